"""Exact counts over columns of two parties: one counts with the other's Paillier ciphertexts."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from masquerade.protocols.codec import tag_of
from masquerade.protocols.session import Proposal
from masquerade.protocols.two_party_products import Ciphertexts, EncryptionRequest, KeyOwner, PaillierProducts
from masquerade.services.parties.kinds.base import (
    Convener,
    Outflow,
    Partition,
    Role,
    SessionKind,
    Tables,
)
from masquerade.sources.products import RevealedVerticalCounts

if TYPE_CHECKING:
    from masquerade.services.parties.coordinator import Coordinator
    from masquerade.services.parties.participant import Participant


class EncryptionRole(Role):
    """A party encrypts its columns, and decrypts sums of them under the other's masks."""

    name = "paillier"

    def player(self, part: Participant) -> KeyOwner:
        """Return who has the key."""
        return KeyOwner(
            part.node.name,
            part.aligned().codes,
            **part.columns(),
        )

    def tables(self, message: bytes) -> Tables:
        """Return the tables that are proposed, and columns that are to be encrypted."""
        tag = tag_of(message)
        if tag == Proposal.TAG:
            return [query.names for query in Proposal.decode(message).batch.queries]
        return [EncryptionRequest.decode(message).names] if tag == EncryptionRequest.TAG else []

    def outflows(self, part: Participant, message: bytes) -> tuple[Outflow, ...]:  # noqa: ARG002
        """Return what ciphertexts of own columns give away, and what decrypting sums of them does."""
        tag = tag_of(message)
        if tag == EncryptionRequest.TAG:
            return (
                Outflow(
                    "columns under Paillier encryption", EncryptionRequest.decode(message).names, Fraction(1)
                ),
            )
        if tag == Ciphertexts.TAG:
            return (Outflow("exact counts, decrypted under masks of whoever asks", (), None),)
        return ()


class CountsOfTwo(SessionKind):
    """One of the two learns exact counts of whatever is asked, without a helper."""

    name = "revealed-counts-of-two"
    why = "one of the two counts with the other's ciphertexts"
    partition = Partition.COLUMNS
    convener = Convener.ONE_OF_TWO
    roles = (EncryptionRole(),)

    def model(self, run: Coordinator) -> dict[str, Any]:
        """Learn from products under encryption."""
        run.note("multiplying under encryption")
        return run.learnt_from(
            RevealedVerticalCounts(
                PaillierProducts(
                    run.spec.convener,
                    run.own_codes(),
                    run.transport("paillier"),
                    schema=run.joint.schema,
                    owners=run.joint.owners,
                    alignment=run.alignment,
                )
            )
        )
