"""Messages of a suppression as a service, which contain the messages of the protocol."""

from __future__ import annotations

import hashlib
from typing import Annotated, Final

from masquerade.crypto.errors import SealBroken
from masquerade.crypto.keys import KEY_SIZE, SIGNATURE_SIZE, AgreementKey, SigningKey, verify_signature
from masquerade.crypto.symmetric import seal, unseal
from masquerade.protocols.people.roster import PersonName
from masquerade.protocols.wire.codec import Blob, Digest, Many, Message, OneOf, Signature, Text
from masquerade.services.counting.messages import MOST_BYTES, MOST_COMPARED, SuppressionCountTerms

KEYS, DISTANCES, GROUPS, CLOSINGS, TABLE = "keys", "distances", "groups", "closings", "table"
STEPS: Final = (KEYS, DISTANCES, GROUPS, CLOSINGS, TABLE)
_MOST_REPORTS = 1 << 10
_REPORT = 1 << 16
_LABEL, _RELAYED = "count suppression reports", "count suppression relay"

Part = Annotated[bytes, Blob(MOST_BYTES)]


class SuppressionStep(Message, tag=b"masquerade count suppression 1"):
    """A step that the miner asks of a person's device: the boards or replies on which its answer depends."""

    step: Annotated[str, OneOf(Text(16), STEPS)]
    parts: Annotated[tuple[Part, ...], Many(5)]


class SealedBatch(Message, tag=b"masquerade count sealed batch 1"):
    """All reports of one person, each sealed for the miner, as they are sealed for the relay."""

    reports: Annotated[tuple[Annotated[bytes, Blob(_REPORT)], ...], Many(_MOST_REPORTS)]


class RelayedReports(Message, tag=b"masquerade count relayed reports 1"):
    """A person's reports for the relay, signed by the person for the groups of `agreement`.

    The miner hands them over unopened. The relay opens the sealing and returns the reports of all people
    together, in an order that it draws.
    """

    person: PersonName
    agreement: Digest
    content: Annotated[bytes, Blob(1 << 22)]
    signature: Signature

    @classmethod
    def make(
        cls,
        person: str,
        reports: tuple[bytes, ...],
        agreement: bytes,
        terms: SuppressionCountTerms,
        identity: SigningKey,
    ) -> RelayedReports:
        """Seal reports for the relay and sign them."""
        key = AgreementKey()
        secret = key.agree(terms.relay, _RELAYED, terms.digest)
        content = key.public + seal(secret, SealedBatch(reports).encode(), terms.digest)
        unsigned = cls(person, agreement, content, bytes(SIGNATURE_SIZE))
        return cls(person, agreement, content, identity.sign(_LABEL, terms.digest, *unsigned._fields()))

    def open(self, terms: SuppressionCountTerms, box: AgreementKey) -> tuple[bytes, ...]:
        """Return the reports after checking the signature; raise SealBroken or DecodingError if it is not."""
        identity = terms.members.get(self.person)
        if identity is None:
            raise SealBroken("These reports are not from an enrolled person.")
        verify_signature(identity, self.signature, _LABEL, terms.digest, *self._fields())
        secret = box.agree(self.content[:KEY_SIZE], _RELAYED, terms.digest)
        return SealedBatch.decode(unseal(secret, self.content[KEY_SIZE:], terms.digest)).reports

    def _fields(self) -> tuple[bytes, ...]:
        return self.person.encode(), self.agreement, hashlib.sha256(self.content).digest()


class RelayBatch(Message, tag=b"masquerade count relay batch 1"):
    """The board of the signed groups, and the reports of all people in them, for the relay."""

    agreement: Part
    reports: Annotated[tuple[Annotated[bytes, Blob(1 << 23)], ...], Many(MOST_COMPARED)]


class PeopleParts(Message, tag=b"masquerade count people parts 1"):
    """One message per person, in the order of their names, to or from a server."""

    parts: Annotated[tuple[Annotated[bytes, Blob(1 << 24)], ...], Many(MOST_COMPARED * _MOST_REPORTS)]
