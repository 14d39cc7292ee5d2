"""Sums of counts over parties that hold different people: nobody sees the counts of one of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from masquerade.channels.policy import Policy
from masquerade.channels.policy.privacy import guarantee_of
from masquerade.core.errors import InputError, PolicyMismatch
from masquerade.core.query import Query
from masquerade.protocols.secure_sum import CountRequest, MaskedSum, PoolingParty
from masquerade.protocols.vertical.disguised_cells import restricted
from masquerade.protocols.wire.codec import tag_of
from masquerade.protocols.wire.session import Proposal
from masquerade.services.parties.kinds.base import Outflow, Partition, Role, SessionKind, Step, proposed
from masquerade.sources.parties.pooled import PooledTally, pooling_party

if TYPE_CHECKING:
    from masquerade.core.schema import Schema
    from masquerade.services.parties.coordinator import Coordinator
    from masquerade.services.parties.participant import Participant
    from masquerade.services.parties.session import JointSchema, SessionSpec

MASKED = "counts under masks that cancel in the sum"


def _counted(part: Participant, message: CountRequest) -> list[Outflow]:
    policy, asked = part.data.policy, proposed(message)
    return _masked(policy, tuple(name for name in policy.schema if any(name in some for some in asked)))


def _masked(policy: Policy, names: tuple[str, ...]) -> list[Outflow]:
    """Return what counts give away: of reports what the reports do, of clear records anything."""
    if not names or not policy.disguised:
        return [Outflow(MASKED, names, None)]
    return [
        Outflow(f"{MASKED}, of {item.kind}", item.variables, item.gamma, policy.id)
        for item in guarantee_of(policy).disclosures
        if not set(names).isdisjoint(item.variables)
    ]


class _PoolRole(Role):
    """A party adds its counts, under masks that cancel; its reports come from the memo."""

    name = "pooling"
    steps = (Step(Proposal, proposed), Step(CountRequest, proposed, _counted))

    def questions(self, message: bytes) -> list[Query]:
        """Return the questions as they are asked: only their cells are added up."""
        kinds: dict[bytes, type[Proposal] | type[CountRequest]]
        kinds = {Proposal.TAG: Proposal, CountRequest.TAG: CountRequest}
        asked = kinds.get(tag_of(message))
        return [] if asked is None else list(asked.decode(message).batch.queries)

    def player(self, part: Participant) -> PoolingParty:
        return pooling_party(
            part.node.name,
            part.data.source(part.node.kept_memo()),
            part.node.identity,
            part.node.identities_of(part.spec.parties),
            roster=part.spec.parties,
            earlier=part.earlier_pools,
            most_cells=part.limits.cells,
        )


def _needed(spec: SessionSpec, policy: Policy) -> Policy:
    """Return the policy of what is needed; strata stay together."""
    names = spec.learn.needed(policy.schema.names)
    return policy if policy.stratum_variable is not None else restricted(policy, names)


class PooledCounts(SessionKind):
    """The convener learns sums over all parties, exact ones or of reports, and nothing else."""

    name = "pooled-counts"
    why = "of a sum of two, each subtracts its own counts and has the other's"
    partition = Partition.ROWS
    least_parties = 3
    pooled = True
    rules_kept = "each party counts its own records, and refuses a question before it counts"
    roles = (_PoolRole(),)

    def sends(self, spec: SessionSpec, party: str, policy: Policy) -> Iterator[tuple[str, Outflow]]:  # noqa: ARG002
        """Yield counts of what is needed; and how many records there are."""
        for item in (Outflow(MASKED, (), None), *_masked(policy, _needed(spec, policy).schema.names)):
            yield spec.convener, item

    def exact(self, policy: Policy) -> bool:
        """Tell whether some variable is counted in clear."""
        return any(item.gamma is None for item in guarantee_of(policy).disclosures)

    def schema(self, spec: SessionSpec, joint: JointSchema) -> Schema:
        """Return the variables that are needed of those that every party has, all under one policy."""
        if not joint.policies:
            raise InputError("No party brings anything that is to be learnt.")
        (first, policy), *others = joint.policies.items()
        for party, other in others:
            if other.id != policy.id:
                raise PolicyMismatch(
                    f"Parties {first!r} and {party!r} have other variables or channels: a pool has one "
                    "policy."
                )
        return _needed(spec, policy).schema

    def faults(self, spec: SessionSpec, joint: JointSchema) -> Iterator[str]:
        """Yield parties that bring nothing."""
        yield from super().faults(spec, joint)
        for party in spec.parties:
            if joint.policies and party not in joint.policies and len(joint.policies) > 1:
                yield f"Party {party!r} brings nothing that is to be learnt: {self.why}."

    def model(self, run: Coordinator) -> dict[str, Any]:
        """Learn from sums, all parties having one policy."""
        run.note("pooling counts")
        policy = run.joint.policies[run.spec.parties[0]]
        pool = MaskedSum(run.spec.parties, run.transport("pooling"), policy, session=run.epoch)
        source = PooledTally(pool, _needed(run.spec, policy))
        run.records = source.n
        return run.learnt_from(source)
