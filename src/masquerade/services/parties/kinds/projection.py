"""Exact counts over columns of two parties at a time, by a rotation that whoever receives does not know."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from masquerade.protocols.vertical.projection import MarginRequest, ProjectionOwner, ProjectionRequest
from masquerade.services.parties.kinds.base import Convener, Outflow, Partition, Role, SessionKind, Step
from masquerade.sources.parties.projection import receive_projected

if TYPE_CHECKING:
    from masquerade.channels.policy import Policy
    from masquerade.services.parties.coordinator import Coordinator
    from masquerade.services.parties.participant import Participant
    from masquerade.services.parties.session import JointSchema, SessionSpec

EXACT = "exact counts"
TURNED = "columns turned by a rotation unknown to the receiver"


def _own(part: Participant, kind: str, names: tuple[str, ...]) -> list[Outflow]:
    schema = part.data.policy.schema
    return [Outflow(kind, tuple(name for name in names if name in schema), None)]


class _OwnerRole(Role):
    """A party turns its columns by a rotation that owners share."""

    name = "projection"
    steps = (
        Step(MarginRequest, lambda it: [it.names], lambda part, it: _own(part, EXACT, it.names)),
        Step(ProjectionRequest, lambda it: [it.asked], lambda part, it: _own(part, TURNED, it.asked)),
    )

    def player(self, part: Participant) -> ProjectionOwner:
        node, codes, convener = part.node, part.aligned().codes, part.spec.convener
        peers = node.identities_of(part.spec.parties)
        return ProjectionOwner(node.name, codes, node.identity, peers, receiver=convener, **part.columns())


class ProjectedCounts(SessionKind):
    """The convener, who is no party, learns exact counts of whatever is asked, two parties at a time."""

    name = "projection"
    why = "an owner who receives knows the rotation, and undoes it"
    partition = Partition.COLUMNS
    convener = Convener.OUTSIDER
    rules_kept = (
        "each owner sees all variables of a question, and turns nothing for one it refuses; columns of two "
        "questions are turned differently"
    )
    roles = (_OwnerRole(),)

    def faults(self, spec: SessionSpec, joint: JointSchema) -> Iterator[str]:
        """Yield that too few bring something."""
        yield from super().faults(spec, joint)
        if len(joint.policies) < 2:
            yield "A projection needs columns of at least two parties."

    def sends(self, spec: SessionSpec, party: str, policy: Policy) -> Iterator[tuple[str, Outflow]]:  # noqa: ARG002
        """Yield exact counts of what is brought, and turned columns, which give counts beside others'."""
        for kind in (EXACT, TURNED) if len(policy.schema) else ():
            yield spec.convener, Outflow(kind, policy.schema.names, None)

    def model(self, run: Coordinator) -> dict[str, Any]:
        """Learn from projected columns."""
        run.note("receiving projected columns")
        over, n, convener = run.transport("projection"), run.records or 0, run.spec.convener
        source = receive_projected(transport=over, n=n, receiver=convener, **run.columns())
        return run.learnt_from(source)
