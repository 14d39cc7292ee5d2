"""Exact counts over columns of several parties, as scalar products under masks that a helper deals."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from masquerade.protocols.codec import tag_of
from masquerade.protocols.products import (
    ColumnRequest,
    HelpedProducts,
    Helper,
    ProductParty,
    ProductRequest,
    SumRequest,
)
from masquerade.protocols.session import Proposal
from masquerade.services.parties.kinds.base import Outflow, Partition, Role, SessionKind, Tables
from masquerade.sources.products import RevealedVerticalCounts

if TYPE_CHECKING:
    from masquerade.services.parties.coordinator import Coordinator
    from masquerade.services.parties.participant import HelperParticipant, Participant


class ProductsRole(Role):
    """A party multiplies columns of its own with others' masked ones."""

    name = "products"

    def player(self, part: Participant) -> ProductParty:
        """Return a party of products over the linked records."""
        return ProductParty(
            part.node.name,
            part.aligned().codes,
            part.node.identity,
            part.node.identities_of(part.spec.members),
            helper=str(part.spec.helper),
            **part.columns(),
        )

    def tables(self, message: bytes) -> Tables:
        """Return the tables that are proposed, summed or multiplied."""
        tag = tag_of(message)
        if tag == Proposal.TAG:
            return [query.names for query in Proposal.decode(message).batch.queries]
        if tag == SumRequest.TAG:
            return [SumRequest.decode(message).names]
        return [multiplied(message)] if tag == ProductRequest.TAG else []

    def outflows(self, part: Participant, message: bytes) -> tuple[Outflow, ...]:  # noqa: ARG002
        """Return what a step gives away: masked columns nothing, sums and shares of them exact counts."""
        tag = tag_of(message)
        if tag == SumRequest.TAG:
            return (Outflow("exact counts", SumRequest.decode(message).names, None),)
        if tag == ProductRequest.TAG:
            return (Outflow("a share of exact counts", multiplied(message), None),)
        if tag == ColumnRequest.TAG:
            names = tuple(name for part in ColumnRequest.decode(message).columns.parts for name in part.names)
            return (Outflow("columns under masks of the helper", names, Fraction(1)),)
        return ()


def multiplied(message: bytes) -> tuple[str, ...]:
    """Return the variables of a product."""
    question = ProductRequest.decode(message)
    columns = (*question.lefts[:1], question.right)
    return tuple(name for some in columns for part in some.parts for name in part.names)


class HelpedCounts(SessionKind):
    """The convener learns exact counts of whatever is asked; the helper sees only randomness."""

    name = "revealed-vertical-counts"
    why = "one party counts alone"
    partition = Partition.COLUMNS
    helped = True
    roles = (ProductsRole(),)

    def model(self, run: Coordinator) -> dict[str, Any]:
        """Learn from products."""
        run.note("multiplying under masks")
        return run.learnt_from(
            RevealedVerticalCounts(
                HelpedProducts(
                    run.joint.owners,
                    str(run.spec.helper),
                    run.transport("products"),
                    run.joint.schema,
                    run.records or 0,
                    alignment=run.alignment,
                )
            )
        )

    def helper(self, part: HelperParticipant) -> Helper:
        """Return who deals randomness."""
        joint = part.arranged()
        return Helper(
            part.node.name,
            part.node.identity,
            part.node.identities_of(part.spec.parties),
            schema=joint.schema,
            owners=joint.owners,
            n=part.records,
            alignment=part.alignment,
        )
