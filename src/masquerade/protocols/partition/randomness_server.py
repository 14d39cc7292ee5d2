"""The randomness server of the third phase: values that a whole group shares can open, and no others.

Every group has a server of its own inside this role, whose credentials only its members get: nobody else can
have a value evaluated in that group, and a member one value for each attribute.
"""

from __future__ import annotations

from collections.abc import Sequence

from masquerade.core.errors import InputError
from masquerade.crypto.errors import DecodingError
from masquerade.crypto.keys import AgreementKey, SigningKey, derive
from masquerade.crypto.sealed_messages import seal
from masquerade.protocols.partition.agreement import NOTICES, RANDOMNESS, PartitionTerms
from masquerade.protocols.partition.messages import Bundle, Closings, Notices, Word
from masquerade.protocols.partition.public_board import SignedGroups, signed_groups
from masquerade.protocols.threshold.messages import EvaluationRefusal
from masquerade.protocols.threshold.server import RandomnessServer
from masquerade.protocols.threshold.stores import EvaluationLedger

CREDENTIAL = "distributed k-anonymity: credential"


class GroupRandomness:
    """Evaluates blinded values. Learns who is in which group, as everybody does, and of values nothing.

    It must not collude with the miner: together they could try every value on the reports of a group.
    `ledger` remembers who was served.
    """

    def __init__(
        self, identity: SigningKey, terms: PartitionTerms, *, ledger: EvaluationLedger | None = None
    ) -> None:
        if terms.randomness != identity.public:
            raise InputError("These terms name another randomness server.")
        self.terms, self._identity = terms, identity
        self._ledger = EvaluationLedger() if ledger is None else ledger
        self._agreed: SignedGroups | None = None
        self._servers: list[RandomnessServer] = []

    def begin(self, agreement: bytes) -> bytes:
        """Return the notices for the groups that all have signed, with a sealed credential for everybody."""
        if self._agreed is not None:
            raise InputError("The groups of this session have been made already.")
        agreed = self._agreed = signed_groups(self.terms, agreement)
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
        said = Notices(agreed.digest, box.public, identities, tuple(notices), tuple(credentials))
        return Word.make(self.terms, self._identity, NOTICES, RANDOMNESS, said.encode()).encode()

    def evaluate(self, bundles: Sequence[bytes]) -> list[bytes]:
        """Return a bundle of replies, evaluations or refusals, for every bundle of requests.

        People who ask together share proofs, which is cheaper for this side.
        """
        asked = [self._asked(bundle) for bundle in bundles]
        replies: list[list[bytes]] = [[] for _ in asked]
        for attribute in range(len(self.terms.attributes)):
            for group, server in enumerate(self._servers):
                places = [place for place, (of, _) in enumerate(asked) if of == group]
                answers = server.evaluate([asked[place][1].parts[attribute] for place in places])
                for place, answer in zip(places, answers, strict=True):
                    replies[place].append(answer)
        return [
            Bundle(bundle.person, tuple(own) or self._refusals(bundle)).encode()
            for (_, bundle), own in zip(asked, replies, strict=True)
        ]

    def close(self) -> bytes:
        """Destroy all keys and return the signed closings: reports are sent only after that."""
        if self._agreed is None:
            raise InputError("The groups come first.")
        parts = [
            server.close(self.terms.opening_terms(number, attribute, len(members)).epoch)
            for number, (server, members) in enumerate(zip(self._servers, self._agreed.groups, strict=True))
            for attribute in range(len(self.terms.attributes))
        ]
        return Closings(tuple(parts)).encode()

    def _asked(self, data: bytes) -> tuple[int, Bundle]:
        """Return the group that a bundle is for, and the bundle; −1 where it is for none."""
        if self._agreed is None:
            raise InputError("The groups come first.")
        try:
            bundle = Bundle.decode(data)
        except DecodingError:  # one person's nonsense must not keep the others waiting
            return -1, Bundle("", ())
        whole = len(bundle.parts) == len(self.terms.attributes)
        known = bundle.person in self._agreed.names
        return (self._agreed.group_of(bundle.person) if whole and known else -1), bundle

    def _refusals(self, bundle: Bundle) -> tuple[bytes, ...]:
        width = len(self.terms.attributes)
        reason = "not_enrolled" if len(bundle.parts) == width else "malformed"
        return (EvaluationRefusal(reason).encode(),) * width
