"""Session type for exact counts over columns of two parties, rotated to hide them from the receiver."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from masquerade.protocols.vertical.projection import MarginRequest, ProjectionOwner, ProjectionRequest
from masquerade.services.parties.kinds.base import Convener, Outflow, Partition, Role, RoleStep, SessionKind
from masquerade.sources.parties.projection import receive_projected

if TYPE_CHECKING:
    from masquerade.channels.policy import Policy
    from masquerade.services.parties.coordinator import Coordinator
    from masquerade.services.parties.participant import SessionParticipant
    from masquerade.services.parties.session import JointSchema, SessionSpec

EXACT = "exact counts"
TURNED = "columns turned by a rotation unknown to the receiver"


def _local_outflows(part: SessionParticipant, kind: str, names: tuple[str, ...]) -> list[Outflow]:
    """Return the outflow of the variables that this party holds."""
    schema = part.data.policy.schema
    return [Outflow(kind, tuple(name for name in names if name in schema), None)]


class _OwnerRole(Role):
    """A party rotates its columns by a rotation that the owners share."""

    name = "projection"
    steps = (
        RoleStep(
            MarginRequest, lambda it: [it.names], lambda part, it: _local_outflows(part, EXACT, it.names)
        ),
        RoleStep(
            ProjectionRequest, lambda it: [it.asked], lambda part, it: _local_outflows(part, TURNED, it.asked)
        ),
    )

    def player(self, part: SessionParticipant) -> ProjectionOwner:
        node, codes, convener = part.node, part.align_records().codes, part.spec.convener
        peers = node.identities_of(part.spec.parties)
        return ProjectionOwner(node.name, codes, node.identity, peers, receiver=convener, **part.columns())


class ProjectedCounts(SessionKind):
    """The convener, a node outside the parties, learns exact counts of its queries, two parties at a time."""

    name = "projection"
    why = "an owner that receives columns knows the rotation, and can invert it"
    partition = Partition.COLUMNS
    convener = Convener.OUTSIDER
    rules_kept = (
        "each owner sees all variables of a question, and rotates nothing for a question that it refuses; "
        "each question has its own rotation"
    )
    roles = (_OwnerRole(),)

    def faults(self, spec: SessionSpec, joint: JointSchema) -> Iterator[str]:
        """Yield a problem if fewer than two parties bring variables."""
        yield from super().faults(spec, joint)
        if len(joint.policies) < 2:
            yield "A projection needs columns of at least two parties."

    def sends(self, spec: SessionSpec, party: str, policy: Policy) -> Iterator[tuple[str, Outflow]]:  # noqa: ARG002
        """Yield exact counts of a party's variables, and rotated columns, which give joint counts."""
        for kind in (EXACT, TURNED) if len(policy.schema) else ():
            yield spec.convener, Outflow(kind, policy.schema.names, None)

    def model(self, run: Coordinator) -> dict[str, Any]:
        """Learn the model from counts, which are scalar products of rotated columns."""
        run.note("receiving projected columns")
        over, n, convener = run.transport("projection"), run.records or 0, run.spec.convener
        source = receive_projected(transport=over, n=n, receiver=convener, **run.columns())
        return run.learn_from(source)
