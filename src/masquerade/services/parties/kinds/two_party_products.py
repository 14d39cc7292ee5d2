"""Session type for exact counts over columns of two parties: one uses the other's Paillier ciphertexts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
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
from masquerade.services.parties.kinds.base import Outflow, RoleStep
from masquerade.sources.parties.products import RevealedVerticalCounts

if TYPE_CHECKING:
    from masquerade.channels.policy import Policy
    from masquerade.services.parties.coordinator import Coordinator
    from masquerade.services.parties.participant import SessionParticipant
    from masquerade.services.parties.session import SessionSpec

ENCRYPTED = "columns under Paillier encryption"
SHARED = "the model, learnt from exact counts"
DECRYPTED = Outflow("exact counts, decrypted under masks of whoever asks", (), None)


class _EncryptionRole(base.Role):
    """A party encrypts its columns, and decrypts sums of them under masks of the other party."""

    name = "paillier"
    steps = (
        RoleStep(Proposal, base.list_batch_tables),
        RoleStep(
            EncryptionRequest,
            lambda it: [it.names],
            lambda _, it: [Outflow(ENCRYPTED, it.names, Fraction(1))],
        ),
        RoleStep(Ciphertexts, outflows=lambda _part, _message: [DECRYPTED]),
    )

    def player(self, part: SessionParticipant) -> KeyOwner:
        return KeyOwner(part.node.name, part.align_records().codes, **part.columns())


class CountsOfTwo(base.SessionKind):
    """The convener, one of two parties, learns exact counts of its queries, without a helper."""

    name = "revealed-counts-of-two"
    why = "one of the two counts with the other's ciphertexts"
    partition = base.Partition.COLUMNS
    convener = base.Convener.ONE_OF_TWO
    rules_unkept = "a party decrypts masked sums without knowing what the other party has multiplied"
    roles = (_EncryptionRole(),)

    def sends(self, spec: SessionSpec, party: str, policy: Policy) -> Iterator[tuple[str, Outflow]]:
        """Yield encrypted columns and exact counts; for the convener, the model that it shares."""
        names = policy.schema.names
        if party != spec.convener:
            yield spec.convener, Outflow(ENCRYPTED, names, Fraction(1))
            yield spec.convener, replace(DECRYPTED, variables=names)
        else:
            other = next(name for name in spec.parties if name != party)
            yield other, Outflow(SHARED, names, None)

    def model(self, run: Coordinator) -> dict[str, Any]:
        """Learn the model from counts computed under encryption."""
        run.note("multiplying under encryption")
        over = run.transport("paillier")
        products = PaillierProducts(run.spec.convener, run.own_codes(), over, **run.columns())
        return run.learn_from(RevealedVerticalCounts(products))
