"""A person with a row: sends it encrypted, signs the groups, lets out only what the whole group shares."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NoReturn

from masquerade.core.errors import InputError, RoundAborted
from masquerade.crypto.errors import DecodingError, KeySpent, SealBroken
from masquerade.crypto.keys import AgreementKey, SigningKey
from masquerade.crypto.sealed_messages import unseal
from masquerade.crypto.secp256k1 import secp256k1
from masquerade.protocols.mix.key_holder import opened_key, submission
from masquerade.protocols.mix.messages import Board
from masquerade.protocols.partition.agreement import (
    AGREEMENT,
    MINER,
    NOTICES,
    RANDOMNESS,
    RELEASE,
    PartitionTerms,
)
from masquerade.protocols.partition.messages import (
    AddressedReport,
    Bundle,
    Closings,
    GroupVote,
    Notices,
    Release,
    Word,
    sealed_for,
    word_of,
)
from masquerade.protocols.partition.public_board import (
    Boards,
    Checks,
    Distances,
    Partition,
    SignedGroups,
    groups_of,
)
from masquerade.protocols.partition.randomness_server import CREDENTIAL
from masquerade.protocols.people.ledger import Claim, Ledger, MemoryLedger
from masquerade.protocols.threshold.client import Client
from masquerade.protocols.threshold.messages import Closing, Notice

Table = dict[str, tuple[str | None, ...]]


class Person:
    """Trusts nobody with the row. Learns what everybody learns: all distances, the groups, the table.

    The row is sent once in a session, and every step is taken once: `ledger` remembers that the row has left.
    """

    def __init__(
        self,
        name: str,
        identity: SigningKey,
        terms: PartitionTerms,
        row: Sequence[str],
        *,
        ledger: Ledger | None = None,
        checks: Checks | None = None,
    ) -> None:
        if terms.people.get(name) != identity.public:
            raise InputError(f"{name!r} is not enrolled in these terms with this identity.")
        self.name, self.terms, self._identity = name, terms, identity
        self._values = terms.encoded(row)
        self._ledger: Ledger = MemoryLedger() if ledger is None else ledger
        self._checks = checks or Checks()
        self._box = AgreementKey()
        self._sent = b""
        self._view: Distances | None = None
        self._agreed: SignedGroups | None = None
        self._clients: list[Client] = []
        self._notices: Notices | None = None
        self._reports: tuple[bytes, ...] = ()

    def __repr__(self) -> str:
        """Show the name, never the row."""
        return f"Person({self.name!r})"

    def submit(self, keys: bytes) -> bytes:
        """Return the encrypted row for a board of key shares, which is checked; spent from then on."""
        key = opened_key(self.terms.mix, keys)
        self._ledger.claim([Claim("row compared", self.terms.id)])
        points = [
            secp256k1.multiply_generator(self.terms.exponent(place, value))
            for place, value in enumerate(self._values)
        ]
        self._sent = submission(self.terms.mix, key, self.name, self._identity, points)
        return self._sent

    def agree(self, boards: Boards, partition: Partition) -> bytes:
        """Return a signature of the groups that follow from the distances on the boards."""
        if self._view is not None:
            raise KeySpent(f"{self.name} has signed the groups of this session already.")
        if not self._sent or self._sent not in Board.decode(boards.batch).parts:
            raise RoundAborted("My row is not among those compared.", spent=True, culprits=(MINER,))
        view = self._checks.distances(self.terms, boards)
        groups = groups_of(view, self.terms.k, partition)
        self._view = view
        said = GroupVote(view.digest, self._box.public, groups)
        return Word.make(self.terms, self._identity, AGREEMENT, self.name, said.encode()).encode()

    def request(self, agreement: bytes, notices: bytes) -> bytes:
        """Return one blinded value for each attribute, once all have signed the groups that I signed."""
        if self._clients:
            raise KeySpent(f"{self.name} has asked for the values of this session already.")
        agreed = self._checks.groups(self.terms, agreement)
        view, own = self._view, agreed.keys.get(self.name)
        if view is None or (agreed.view, agreed.names, own) != (view.digest, view.names, self._box.public):
            raise RoundAborted(
                "The board of agreements is not of the groups that I signed.", spent=True, culprits=(MINER,)
            )
        said = Notices.decode(word_of(notices, self.terms, NOTICES))
        try:
            clients = self._made_clients(agreed, said)
        except (DecodingError, SealBroken) as error:
            raise RoundAborted(
                f"The notices are not those of my group: {error}", spent=True, culprits=(RANDOMNESS,)
            ) from error
        self._agreed, self._notices, self._clients = agreed, said, clients
        asked = [client.request(value) for client, value in zip(clients, self._values, strict=True)]
        return Bundle(self.name, tuple(asked)).encode()

    def report(self, replies: bytes, closings: bytes) -> tuple[bytes, ...]:
        """Return a sealed report for each attribute, all of one length; sent through the first key holder.

        Nothing leaves before the randomness server has signed that it cannot evaluate any more.
        """
        agreed, _ = self._begun()
        if not self._reports:
            self._check_closed(closings)
            answered = Bundle.decode(replies)
            if answered.person != self.name or len(answered.parts) != len(self._clients):
                raise DecodingError(f"A bundle of replies has one for each attribute of {self.name}.")
            group = agreed.group_of(self.name)
            reports = [
                AddressedReport(group, attribute, client.report(reply, b"")).encode()
                for attribute, (client, reply) in enumerate(zip(self._clients, answered.parts, strict=True))
            ]
            self._reports = tuple(sealed_for(self.terms.box, one, self.terms) for one in reports)
        return self._reports

    def accept(self, release: bytes) -> Table:
        """Return the released table, after checking that my reports arrived and my row is not falsified."""
        agreed, _ = self._begun()
        said = Release.decode(word_of(release, self.terms, RELEASE))
        table = released_table(self.terms, agreed, said)
        shown = zip(table[self.name], self._values, strict=True)
        if any(value is not None and value.encode() != own for value, own in shown):
            raise RoundAborted("The table shows a value that is not mine.", spent=True, culprits=(MINER,))
        arrived = set(said.receipts)
        if any(hashlib.sha256(one).digest() not in arrived for one in self._reports):
            raise RoundAborted(
                "A report of mine did not arrive.",
                spent=True,
                culprits=(next(iter(self.terms.holders)), MINER),
            )
        return table

    def _begun(self) -> tuple[SignedGroups, Notices]:
        if self._agreed is None or self._notices is None:
            raise InputError("The groups come first.")
        return self._agreed, self._notices

    def _made_clients(self, agreed: SignedGroups, said: Notices) -> list[Client]:
        """Return a client for each attribute, if the notices say that only the whole group opens a value."""
        group, width = agreed.group_of(self.name), len(self.terms.attributes)
        if said.agreement != agreed.digest or len(said.credentials) != len(agreed.names):
            raise DecodingError("they are about other groups.")
        if len(said.identities) != len(agreed.groups) or len(said.notices) != width * len(agreed.groups):
            raise DecodingError("not every group and attribute has one.")
        key = self._box.agree(said.key, CREDENTIAL, self.terms.id)
        credential = unseal(key, said.credentials[agreed.names.index(self.name)], agreed.digest)
        clients = []
        for attribute, notice in enumerate(said.notices[group * width : (group + 1) * width]):
            decoded = Notice.decode(notice)
            if decoded.terms != self.terms.opening_terms(group, attribute, len(agreed.groups[group])):
                raise DecodingError("they would open a value that not all of the group share.")
            identity = said.identities[group]
            clients.append(Client(credential, notice, identity=identity, published=decoded.digest))
        return clients

    def _check_closed(self, closings: bytes) -> None:
        try:
            problem = self._problem(Closings.decode(closings).parts)
        except (DecodingError, SealBroken) as error:
            problem = str(error)
        if problem:
            raise RoundAborted(
                f"The randomness server did not close my group: {problem}", spent=True, culprits=(RANDOMNESS,)
            )

    def _problem(self, parts: Sequence[bytes]) -> str:
        """Return what is wrong with the closings of my group, nothing if nothing is."""
        agreed, said = self._begun()
        group, width = agreed.group_of(self.name), len(self.terms.attributes)
        if len(parts) != len(said.notices):
            return "not every group and attribute has one."
        for place in range(group * width, (group + 1) * width):
            closing = Closing.decode(parts[place])
            closing.verify(said.identities[group])
            if closing.notice != Notice.decode(said.notices[place]).digest:
                return "one is of another key."
            if closing.evaluations > len(agreed.groups[group]):
                return "more values were evaluated than the group has people."
        return ""

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        raise TypeError("a Person is not pickled: the row would leave twice")


def released_table(terms: PartitionTerms, agreed: SignedGroups, release: Release) -> Table:
    """Return everybody's row, None where a value is suppressed."""
    width = len(terms.attributes)
    if release.agreement != agreed.digest or len(release.values) != width * len(agreed.groups):
        raise RoundAborted("The table is not of the groups agreed on.", spent=True, culprits=(MINER,))
    try:
        rows = [
            tuple(values[0].decode() if values else None for values in release.values[at : at + width])
            for at in range(0, len(release.values), width)
        ]
    except UnicodeDecodeError:
        raise DecodingError("A value of the table is not text.") from None
    return {name: rows[agreed.group_of(name)] for name in agreed.names}
