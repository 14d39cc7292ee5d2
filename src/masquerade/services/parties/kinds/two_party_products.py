"""Exact counts over columns of two parties: one counts with the other's Paillier ciphertexts."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from masquerade.protocols.vertical.paillier_products import (
    Ciphertexts,
    EncryptionRequest,
    KeyOwner,
    PaillierProducts,
)
from masquerade.protocols.wire.session import Proposal
from masquerade.services.parties.kinds import base
from masquerade.services.parties.kinds.base import Outflow, Step
from masquerade.sources.parties.products import RevealedVerticalCounts

if TYPE_CHECKING:
    from masquerade.channels.policy import Policy
    from masquerade.services.parties.coordinator import Coordinator
    from masquerade.services.parties.participant import Participant
    from masquerade.services.parties.session import SessionSpec

ENCRYPTED = "columns under Paillier encryption"
DECRYPTED = Outflow("exact counts, decrypted under masks of whoever asks", (), None)


class _EncryptionRole(base.Role):
    """A party encrypts its columns, and decrypts sums of them under the other's masks."""

    name = "paillier"
    steps = (
        Step(Proposal, base.proposed),
        Step(
            EncryptionRequest,
            lambda it: [it.names],
            lambda _, it: [Outflow(ENCRYPTED, it.names, Fraction(1))],
        ),
        Step(Ciphertexts, outflows=lambda _part, _message: [DECRYPTED]),
    )

    def player(self, part: Participant) -> KeyOwner:
        return KeyOwner(part.node.name, part.aligned().codes, **part.columns())


class CountsOfTwo(base.SessionKind):
    """One of the two learns exact counts of whatever is asked, without a helper."""

    name = "revealed-counts-of-two"
    why = "one of the two counts with the other's ciphertexts"
    partition = base.Partition.COLUMNS
    convener = base.Convener.ONE_OF_TWO
    rules_unkept = "a party decrypts what it cannot look into, whatever the other one has multiplied"
    roles = (_EncryptionRole(),)

    def sends(self, spec: SessionSpec, party: str, policy: Policy) -> Iterator[tuple[str, Outflow]]:
        """Yield encrypted columns and exact counts, of the one who does not count."""
        if party != spec.convener:
            yield spec.convener, Outflow(ENCRYPTED, policy.schema.names, Fraction(1))
            yield spec.convener, DECRYPTED

    def model(self, run: Coordinator) -> dict[str, Any]:
        """Learn from products under encryption."""
        run.note("multiplying under encryption")
        over = run.transport("paillier")
        products = PaillierProducts(run.spec.convener, run.own_codes(), over, **run.columns())
        return run.learnt_from(RevealedVerticalCounts(products))
