"""Exact counts over columns of two parties at a time, by a rotation that whoever receives does not know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from masquerade.protocols.codec import tag_of
from masquerade.protocols.projection import MarginRequest, ProjectionOwner, ProjectionRequest
from masquerade.services.parties.kinds.base import (
    Convener,
    Outflow,
    Partition,
    Role,
    SessionKind,
    Tables,
)
from masquerade.sources.projection import receive_projected

if TYPE_CHECKING:
    from masquerade.services.parties.coordinator import Coordinator
    from masquerade.services.parties.participant import Participant


class OwnerRole(Role):
    """A party turns its columns by a rotation that owners share."""

    name = "projection"

    def player(self, part: Participant) -> ProjectionOwner:
        """Return an owner of columns."""
        return ProjectionOwner(
            part.node.name,
            part.aligned().codes,
            part.node.identity,
            part.node.identities_of(part.spec.parties),
            receiver=part.spec.convener,
            **part.columns(),
        )

    def tables(self, message: bytes) -> Tables:
        """Return the tables that a projection or a margin is for."""
        tag = tag_of(message)
        if tag == MarginRequest.TAG:
            return [MarginRequest.decode(message).names]
        return [ProjectionRequest.decode(message).asked] if tag == ProjectionRequest.TAG else []

    def outflows(self, part: Participant, message: bytes) -> tuple[Outflow, ...]:
        """Return what a margin or turned columns give away."""
        turned = "columns turned by a rotation unknown to the receiver"
        kind = "exact counts" if tag_of(message) == MarginRequest.TAG else turned
        own = part.data.policy.schema
        return tuple(
            Outflow(kind, tuple(name for name in names if name in own), None)
            for names in self.tables(message)
        )


class ProjectedCounts(SessionKind):
    """The convener, who is no party, learns exact counts of whatever is asked, two parties at a time."""

    name = "projection"
    why = "an owner who receives knows the rotation, and undoes it"
    partition = Partition.COLUMNS
    convener = Convener.OUTSIDER
    roles = (OwnerRole(),)

    def model(self, run: Coordinator) -> dict[str, Any]:
        """Learn from projected columns."""
        run.note("receiving projected columns")
        return run.learnt_from(
            receive_projected(
                run.joint.owners,
                run.transport("projection"),
                run.joint.schema,
                run.records or 0,
                receiver=run.spec.convener,
                alignment=run.alignment,
            )
        )
