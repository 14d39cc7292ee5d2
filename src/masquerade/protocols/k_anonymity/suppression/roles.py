"""Key holders, the randomness server, the miner, and people with a row: bytes in, bytes out."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Sequence
from typing import ClassVar, NoReturn

from masquerade.core.errors import InputError
from masquerade.crypto.errors import DecodingError, KeySpent, SealBroken
from masquerade.crypto.keys import AgreementKey, SigningKey, derive
from masquerade.crypto.secp256k1 import secp256k1
from masquerade.crypto.symmetric import seal, unseal
from masquerade.protocols.k_anonymity.suppression import messages as wire
from masquerade.protocols.k_anonymity.suppression.comparison import (
    check_cost,
    checked_mixing,
    mix_pairs,
    mixing_place,
    outcome_of,
    quotients,
)
from masquerade.protocols.k_anonymity.suppression.messages import (
    AGREEMENT,
    MINER,
    NOTICES,
    RANDOMNESS,
    RELEASE,
    PartitionTerms,
)
from masquerade.protocols.k_anonymity.threshold.class_opening import Opening
from masquerade.protocols.k_anonymity.threshold.evaluation_ledger import EvaluationLedger
from masquerade.protocols.k_anonymity.threshold.messages import Closing, EvaluationRefusal, Notice
from masquerade.protocols.k_anonymity.threshold.roles import Client, Collector, RandomnessServer
from masquerade.protocols.mixnet import roles as mix
from masquerade.protocols.mixnet.messages import (
    OPENING,
    SHUFFLE,
    MixBoard,
    SignedMixMessage,
    board_hash,
    opened_board,
)
from masquerade.protocols.mixnet.roles import Leader, Rows, check_endorsed, opened_key, submission
from masquerade.protocols.people.checks import Checks
from masquerade.protocols.people.history import SessionHistory
from masquerade.protocols.people.ledger import Claim, Enrolled, PersonLedger
from masquerade.protocols.people.roster import abort_round

CREDENTIAL = "distributed k-anonymity: credential"
Table = dict[str, tuple[str | None, ...]]


class KeyHolder(Leader):
    """Blinds and shuffles the comparisons. Learns the common results, but no other holder's order.

    One honest key holder is enough: it opens nothing until it has verified the work of all others and all
    have signed it. The first key holder also relays sealed reports, in an order that it chooses.
    """

    WORDS: ClassVar[tuple[str, str]] = "mixed", "mixings"

    def __init__(
        self, name: str, identity: SigningKey, terms: PartitionTerms, *, accept_cost: bool = False
    ) -> None:
        if name not in terms.holders:
            raise InputError(f"{name!r} is not a key holder of these terms.")
        check_cost(len(terms.people), len(terms.attributes), len(terms.holders), accept_cost=accept_cost)
        super().__init__(name, identity, terms.mix)
        self._passed = False

    def _first_rows(self, batch: bytes) -> Rows:
        return quotients(self._rows_of(batch))

    def _check_shuffle(self, batch: bytes, rows: Rows, signed: SignedMixMessage) -> Rows:
        return checked_mixing(self.terms, self.key, board_hash(b"batch", batch), rows, signed)

    def _make_shuffle(self, batch: bytes, rows: Rows) -> tuple[bytes, Rows]:
        where = mixing_place(self.terms, self.key, board_hash(b"batch", batch), self.name)
        return mix_pairs(rows, self.key.point, where)

    def pass_on(self, sealed: Sequence[bytes]) -> list[bytes]:
        """Return sealed reports in a random order, once, so that the miner does not learn who sent which."""
        if self._place != 0 or self._passed:
            raise InputError("Reports are relayed by the first key holder, all together and once.")
        if len({len(one) for one in sealed}) > 1:
            raise InputError(
                "Sealed reports must have the same length: different lengths would reveal senders."
            )
        self._passed = True
        order = list(sealed)
        secrets.SystemRandom().shuffle(order)
        return order


class GroupRandomness:
    """Evaluates blinded values. Learns the groups, as all parties do, and nothing about values.

    This role has a separate server for every group, whose credentials only the members receive: nobody else
    can have a value evaluated in that group, and a member only one value per attribute.

    It must not collude with the miner: together they could try every value on the reports of a group.
    `ledger` stores the credentials used.
    """

    def __init__(
        self, identity: SigningKey, terms: PartitionTerms, *, ledger: EvaluationLedger | None = None
    ) -> None:
        if terms.randomness != identity.public:
            raise InputError("These terms name a different randomness server.")
        self.terms, self._identity = terms, identity
        self._ledger = EvaluationLedger() if ledger is None else ledger
        self._agreed: wire.SignedGroups | None = None
        self._servers: list[RandomnessServer] = []

    def begin(self, agreement: bytes) -> bytes:
        """Return the notices for the signed groups, with a sealed credential for every person."""
        if self._agreed is not None:
            raise InputError("The groups of this session have been made already.")
        agreed = self._agreed = wire.signed_groups(self.terms, agreement)
        seed, box = derive(self._identity.reveal(), "partition randomness", self.terms.id), AgreementKey()
        notices: list[bytes] = []
        for number, members in enumerate(agreed.groups):
            server = RandomnessServer(derive(seed, "group", number.to_bytes(4, "big")), self._ledger)
            self._servers.append(server)
            for attribute in range(len(self.terms.attributes)):
                terms = self.terms.opening_terms(number, attribute, len(members))
                notices.append(server.open(terms.encode()))
        credentials = []
        for name in agreed.names:
            credential = self._servers[agreed.group_of(name)].enrol(name)
            key = box.agree(agreed.keys[name], CREDENTIAL, self.terms.id)
            credentials.append(seal(key, credential, agreed.digest))
        identities = tuple(server.identity for server in self._servers)
        said = wire.Notices(agreed.digest, box.public, identities, tuple(notices), tuple(credentials))
        return wire.Word.make(self.terms, self._identity, NOTICES, RANDOMNESS, said.encode()).encode()

    def evaluate(self, bundles: Sequence[bytes]) -> list[bytes]:
        """Return a bundle of evaluations or refusals for every bundle of requests.

        Requests of one batch share proofs, which is cheaper for the server.
        """
        asked = [self._parse_bundle(bundle) for bundle in bundles]
        replies: list[list[bytes]] = [[] for _ in asked]
        for attribute in range(len(self.terms.attributes)):
            for group, server in enumerate(self._servers):
                places = [place for place, (of, _) in enumerate(asked) if of == group]
                answers = server.evaluate([asked[place][1].parts[attribute] for place in places])
                for place, answer in zip(places, answers, strict=True):
                    replies[place].append(answer)
        return [
            wire.Bundle(bundle.person, tuple(own) or self._refusals(bundle)).encode()
            for (_, bundle), own in zip(asked, replies, strict=True)
        ]

    def close(self) -> bytes:
        """Destroy all keys and return the signed closings; reports are sent only afterwards."""
        if self._agreed is None:
            raise InputError("The groups are not known yet.")
        parts = [
            server.close(self.terms.opening_terms(number, attribute, len(members)).epoch)
            for number, (server, members) in enumerate(zip(self._servers, self._agreed.groups, strict=True))
            for attribute in range(len(self.terms.attributes))
        ]
        return wire.Closings(tuple(parts)).encode()

    def _parse_bundle(self, data: bytes) -> tuple[int, wire.Bundle]:
        """Return the index of a bundle's group, and the bundle; −1 if it is for no group."""
        if self._agreed is None:
            raise InputError("The groups are not known yet.")
        try:
            bundle = wire.Bundle.decode(data)
        except DecodingError:  # one person's invalid message must not delay the others
            return -1, wire.Bundle("", ())
        whole = len(bundle.parts) == len(self.terms.attributes)
        known = bundle.person in self._agreed.names
        return (self._agreed.group_of(bundle.person) if whole and known else -1), bundle

    def _refusals(self, bundle: wire.Bundle) -> tuple[bytes, ...]:
        width = len(self.terms.attributes)
        reason = "not_enrolled" if len(bundle.parts) == width else "malformed"
        return (EvaluationRefusal(reason).encode(),) * width


class SuppressionMiner(mix.MixMiner):
    """Collects messages of people and key holders, and opens the values that all members of a group share.

    Learns the common results, and the number of members of a group that agree on an attribute that does not
    open: neither their names nor the value. A miner that omits people, changes a board or invents a value is
    detected.
    """

    def __init__(
        self,
        identity: SigningKey,
        box: AgreementKey,
        terms: PartitionTerms,
        *,
        accept_cost: bool = False,
        checks: Checks | None = None,
    ) -> None:
        check_cost(len(terms.people), len(terms.attributes), len(terms.holders), accept_cost=accept_cost)
        super().__init__(identity, terms.mix)
        if box.public != terms.box:
            raise InputError("These terms name a different key to seal reports for.")
        self.agreed_terms, self._box, self._checks = terms, box, checks or Checks()
        self.unreadable = 0
        self._released = False

    def open(self, batch: bytes, mixings: bytes, endorsements: bytes) -> bytes:
        """Return the miner's partial decryptions of the distances, after all key holders have signed."""
        boards = wire.Boards(b"", batch, mixings, endorsements, b"")
        check_endorsed(self.terms, endorsements, boards.mixed_hash)
        people = len(self._rows_of(batch))
        last = opened_board(mixings, self.terms, SHUFFLE, tuple(self.terms.leaders))[-1]
        return self._opening(
            outcome_of(last.payload, people * (people - 1) // 2, self.terms.width), boards.mixed_hash
        )

    def opening_board(self, openings: Sequence[bytes]) -> bytes:
        """Return the board of all partial decryptions of the distances."""
        return self._gather_board(OPENING, self.terms.holders, openings, spent=True)

    def agreement_board(
        self, boards: wire.Boards, words: Sequence[bytes], partition: wire.Partition
    ) -> bytes:
        """Return the board of all people's signatures of the groups; a missing or different one aborts."""
        view = self._checks.once(wire.distances_on, self.agreed_terms, boards)
        board = wire.Word.gather(words, self.agreed_terms, AGREEMENT, view.names, spent=True)
        agreed = wire.signed_groups(self.agreed_terms, board)
        own = wire.groups_of(view, self.agreed_terms.k, partition)
        if agreed.view != view.digest or [agreed.group_of(name) for name in agreed.names] != list(own):
            raise abort_round("People and the miner computed different groups.", spent=True)
        return board

    def release(self, agreement: bytes, notices: bytes, closings: bytes, sealed: Sequence[bytes]) -> bytes:
        """Return the signed table: for every group, the values that all its members have."""
        if self._released:
            raise KeySpent("The table of this session has been released already.")
        terms = self.agreed_terms
        agreed = self._checks.once(wire.signed_groups, terms, agreement)
        collectors = self._collectors(agreed, notices, closings)
        self._released = True
        for one in sealed:
            try:
                report = wire.AddressedReport.decode(wire.unseal_message(self._box, one, terms))
                collectors[report.group, report.attribute].take(report.report)
            except (DecodingError, SealBroken, KeyError):
                self.unreadable += 1
        values = [
            _shared_value(collector.open_classes(), len(agreed.groups[group]))
            for (group, _), collector in collectors.items()
        ]
        receipts = sorted({hashlib.sha256(one).digest() for one in sealed})
        said = wire.TableRelease(agreed.digest, tuple(values), tuple(receipts))
        return wire.Word.make(terms, self._identity, RELEASE, MINER, said.encode()).encode()

    def _collectors(
        self, agreed: wire.SignedGroups, notices: bytes, closings: bytes
    ) -> dict[tuple[int, int], Collector]:
        """Return a collector for every group and attribute, ready to accept reports."""
        said = wire.Notices.decode(wire.word_of(notices, self.agreed_terms, NOTICES))
        closed, width = wire.Closings.decode(closings).parts, len(self.agreed_terms.attributes)
        if not len(said.notices) == len(closed) == width * len(agreed.groups):
            reason = "Not every group and attribute has its notice and its closing."
            raise abort_round(reason, RANDOMNESS, spent=True)
        collectors = {}
        for group, members in enumerate(agreed.groups):
            for attribute in range(width):
                place = group * width + attribute
                collector = Collector(said.notices[place], identity=said.identities[group], k=len(members))
                collector.begin(closed[place])
                collectors[group, attribute] = collector
        return collectors


def _shared_value(opening: Opening, size: int) -> tuple[bytes, ...]:
    """Return a tuple of the value that all members of a group reported; empty if none opened."""
    if opening.opened < size or len(opening.quasi) != 1:
        return ()
    value = opening.quasi[0, : opening.quasi_length[0]].tobytes()
    try:
        value.decode()
    except UnicodeDecodeError:  # a group that agrees on an unreadable value must not spoil the table
        return ()
    return (value,)


class Person(Enrolled):
    """A person, who trusts nobody with the row. Learns the common results: distances, groups, the table.

    The row is sent once per session, and every step is taken once: `ledger` records that the row was sent.
    Tables of two sessions over nearly the same people together reveal more than either, so a row is sent in
    one session only; `agreed` names earlier sessions for which this person accepts an exception.
    """

    def __init__(
        self,
        name: str,
        identity: SigningKey,
        terms: PartitionTerms,
        row: Sequence[str],
        *,
        ledger: PersonLedger | None = None,
        checks: Checks | None = None,
        agreed: Iterable[str] = (),
    ) -> None:
        super().__init__(name, identity, terms.people, ledger)
        self._history = SessionHistory(self._ledger, terms.session, terms.id, agreed)
        self.terms, self._values, self._checks = terms, terms.encode_row(row), checks or Checks()
        self._box = AgreementKey()
        self._encrypt_record = b""
        self._view: wire.Distances | None = None
        self._agreed: wire.SignedGroups | None = None
        self._clients: list[Client] = []
        self._notices: wire.Notices | None = None
        self._reports: tuple[bytes, ...] = ()

    def submit(self, keys: bytes) -> bytes:
        """Check a board of key shares and return the encrypted row, which is then spent."""
        key = opened_key(self.terms.mix, keys)
        self._ledger.claim(
            [Claim("row compared", self.terms.id), *self._history.spending_claims(self._history.check())]
        )
        points = [
            secp256k1.multiply_generator(self.terms.exponent(place, value))
            for place, value in enumerate(self._values)
        ]
        self._encrypt_record = submission(self.terms.mix, key, self.name, self._identity, points)
        return self._encrypt_record

    def resume(self, submission: bytes) -> None:
        """Continue with the row that this person sent before its device stopped."""
        self._encrypt_record = submission

    def agree(self, boards: wire.Boards, partition: wire.Partition) -> bytes:
        """Compute the groups from the distances on the boards, and return a signature of them."""
        if self._view is not None:
            raise KeySpent(f"{self.name} has signed the groups of this session already.")
        if not self._encrypt_record or self._encrypt_record not in MixBoard.decode(boards.batch).parts:
            raise abort_round("This person's row was not compared.", MINER, spent=True)
        view = self._checks.once(wire.distances_on, self.terms, boards)
        groups = wire.groups_of(view, self.terms.k, partition)
        self._view = view
        said = wire.GroupVote(view.digest, self._box.public, groups)
        return wire.Word.make(self.terms, self._identity, AGREEMENT, self.name, said.encode()).encode()

    def request(self, agreement: bytes, notices: bytes) -> bytes:
        """Return one blinded value per attribute, after all people have signed the same groups."""
        if self._clients:
            raise KeySpent(f"{self.name} has requested the values of this session already.")
        agreed = self._checks.once(wire.signed_groups, self.terms, agreement)
        view, own = self._view, agreed.keys.get(self.name)
        if view is None or (agreed.view, agreed.names, own) != (view.digest, view.names, self._box.public):
            raise abort_round(
                "The board of agreements is about groups other than those that this person signed.",
                MINER,
                spent=True,
            )
        said = wire.Notices.decode(wire.word_of(notices, self.terms, NOTICES))
        try:
            clients = self._make_clients(agreed, said)
        except (DecodingError, SealBroken) as error:
            reason = f"The notices are not for this person's group: {error}"
            raise abort_round(reason, RANDOMNESS, spent=True) from error
        self._agreed, self._notices, self._clients = agreed, said, clients
        asked = [client.request(value) for client, value in zip(clients, self._values, strict=True)]
        return wire.Bundle(self.name, tuple(asked)).encode()

    def report(self, replies: bytes, closings: bytes) -> tuple[bytes, ...]:
        """Return one sealed report per attribute, all of one length, to be relayed by the first key holder.

        Nothing is sent before the randomness server has signed that it cannot evaluate any more.
        """
        agreed, _ = self._require_groups()
        if not self._reports:
            try:
                self._check_closed(wire.Closings.decode(closings).parts)
            except (DecodingError, SealBroken) as error:
                reason = f"The randomness server did not close this person's group: {error}"
                raise abort_round(reason, RANDOMNESS, spent=True) from error
            answered = wire.Bundle.decode(replies)
            if answered.person != self.name or len(answered.parts) != len(self._clients):
                raise DecodingError(f"A bundle must have one reply for each attribute of {self.name}.")
            group = agreed.group_of(self.name)
            reports = [
                wire.AddressedReport(group, attribute, client.report(reply, b"")).encode()
                for attribute, (client, reply) in enumerate(zip(self._clients, answered.parts, strict=True))
            ]
            self._reports = tuple(wire.sealed_for(self.terms.box, one, self.terms) for one in reports)
        return self._reports

    def accept(self, release: bytes) -> Table:
        """Return the released table, after checking this person's reports and row."""
        agreed, _ = self._require_groups()
        said = wire.TableRelease.decode(wire.word_of(release, self.terms, RELEASE))
        table = released_table(self.terms, agreed, said)
        shown = zip(table[self.name], self._values, strict=True)
        if any(value is not None and value.encode() != own for value, own in shown):
            raise abort_round("The table has a value that this person did not report.", MINER, spent=True)
        arrived = set(said.receipts)
        if any(hashlib.sha256(one).digest() not in arrived for one in self._reports):
            raise abort_round(
                "A report of this person did not arrive.", next(iter(self.terms.holders)), MINER, spent=True
            )
        return table

    def _require_groups(self) -> tuple[wire.SignedGroups, wire.Notices]:
        if self._agreed is None or self._notices is None:
            raise InputError("The groups are not known yet.")
        return self._agreed, self._notices

    def _make_clients(self, agreed: wire.SignedGroups, said: wire.Notices) -> list[Client]:
        """Return a client per attribute if the notices show that only the whole group can open a value."""
        group, width = agreed.group_of(self.name), len(self.terms.attributes)
        if said.agreement != agreed.digest or len(said.credentials) != len(agreed.names):
            raise DecodingError("they are about other groups.")
        if len(said.identities) != len(agreed.groups) or len(said.notices) != width * len(agreed.groups):
            raise DecodingError("not every group and attribute has a notice.")
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

    def _check_closed(self, parts: Sequence[bytes]) -> None:
        agreed, said = self._require_groups()
        group, width = agreed.group_of(self.name), len(self.terms.attributes)
        if len(parts) != len(said.notices):
            raise DecodingError("not every group and attribute has a closing.")
        for place in range(group * width, (group + 1) * width):
            closing = Closing.decode(parts[place])
            closing.verify(said.identities[group])
            if closing.notice != Notice.decode(said.notices[place]).digest:
                raise DecodingError("a closing is about another key.")
            if closing.evaluations > len(agreed.groups[group]):
                raise DecodingError("more values were evaluated than the group has people.")

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        raise TypeError("a Person cannot be pickled: a copy could send the row again")


def released_table(terms: PartitionTerms, agreed: wire.SignedGroups, release: wire.TableRelease) -> Table:
    """Return the row of every person, None where a value is suppressed."""
    width = len(terms.attributes)
    if release.agreement != agreed.digest or len(release.values) != width * len(agreed.groups):
        raise abort_round("The table is not of the agreed groups.", MINER, spent=True)
    try:
        rows = [
            tuple(values[0].decode() if values else None for values in release.values[at : at + width])
            for at in range(0, len(release.values), width)
        ]
    except UnicodeDecodeError:
        raise DecodingError("A value of the table is not text.") from None
    return {name: rows[agreed.group_of(name)] for name in agreed.names}
