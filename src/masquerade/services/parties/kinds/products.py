"""Session type for exact counts over columns of several parties: scalar products under a dealer's masks."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from masquerade.protocols.vertical.scalar_products import (
    ColumnRequest,
    HelpedProducts,
    ProductHelper,
    ProductParty,
    ProductRequest,
    SumRequest,
)
from masquerade.protocols.wire.session import Proposal
from masquerade.services.parties.kinds.base import (
    Outflow,
    Partition,
    Role,
    RoleStep,
    SessionKind,
    list_batch_tables,
)
from masquerade.sources.parties.products import RevealedVerticalCounts

if TYPE_CHECKING:
    from masquerade.channels.policy import Policy
    from masquerade.services.parties.coordinator import Coordinator
    from masquerade.services.parties.participant import SessionParticipant
    from masquerade.services.parties.session import SessionSpec, SessionText


EXACT, SHARE = "exact counts", "a share of exact counts"
MASKED = "columns under masks of the helper"


def _column_variables(*columns: Any) -> tuple[str, ...]:
    """Return the variables of product columns."""
    return tuple(name for some in columns for part in some.parts for name in part.names)


def _product_variables(message: ProductRequest) -> tuple[str, ...]:
    return _column_variables(*message.lefts[:1], message.right)


class _ProductsRole(Role):
    """A party multiplies its columns with masked columns of others."""

    name = "products"
    steps = (
        RoleStep(Proposal, list_batch_tables),
        RoleStep(SumRequest, lambda it: [it.names], lambda _, it: [Outflow(EXACT, it.names, None)]),
        RoleStep(
            ProductRequest,
            lambda it: [_product_variables(it)],
            lambda _, it: [Outflow(SHARE, _product_variables(it), None)],
        ),
        RoleStep(
            ColumnRequest,
            outflows=lambda _, it: [Outflow(MASKED, _column_variables(it.columns), Fraction(1))],
        ),
    )

    def player(self, part: SessionParticipant) -> ProductParty:
        peers, helper = part.node.identities_of(part.spec.members), str(part.spec.helper)
        return ProductParty(
            part.node.name,
            part.align_records().codes,
            part.node.identity,
            peers,
            helper=helper,
            **part.columns(),
        )


class HelpedCounts(SessionKind):
    """The convener learns exact counts of its queries; the helper sees only randomness."""

    name = "revealed-vertical-counts"
    why = "one party counts alone"
    partition = Partition.COLUMNS
    helped = True
    rules_kept = (
        "each party sees all variables of a product that uses its own, and gives no share of a product that "
        "it refuses; masked columns are signed under the names of their variables"
    )
    roles = (_ProductsRole(),)

    def rules_problem(self, text: SessionText) -> str | None:
        """Return the reason against rules: a convener that is a party can multiply with any column.

        Its own columns are masked, so other parties cannot see whether it weights their records by powers of
        two, which would reveal single records in the sum.
        """
        if text.convener in text.parties:
            return (
                f"no party can enforce them if a party convenes {self.name}: its own columns are masked, "
                "and with powers of two in one of them, it could read others' records from a single sum; let "
                "a node outside convene"
            )
        return super().rules_problem(text)

    def sends(self, spec: SessionSpec, party: str, policy: Policy) -> Iterator[tuple[str, Outflow]]:  # noqa: ARG002
        """Yield exact counts of a party's variables, alone and with others' columns, and masked columns."""
        names = policy.schema.names
        for kind, gamma in ((EXACT, None), (SHARE, None), (MASKED, Fraction(1))) if names else ():
            yield spec.convener, Outflow(kind, names, gamma)

    def model(self, run: Coordinator) -> dict[str, Any]:
        """Learn the model from counts, which are scalar products of columns."""
        run.note("multiplying under masks")
        helper, over, goal = str(run.spec.helper), run.transport("products"), run.spec.learn
        # without a search, all queries are known in advance
        fixed = goal.learner.at_once or goal.options.get("structure") is not None
        products = HelpedProducts(
            helper=helper, transport=over, n=run.records or 0, known_beforehand=fixed, **run.columns()
        )
        return run.learn_from(RevealedVerticalCounts(products))

    def helper(self, part: SessionParticipant) -> ProductHelper:
        """Return the dealer of correlated randomness."""
        node, peers = part.node, part.node.identities_of(part.spec.parties)
        return ProductHelper(node.name, node.identity, peers, n=part.agreed_records, **part.columns())
