"""Sums of counts over parties that hold different people: nobody sees the counts of one of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from masquerade.channels.policy import Policy
from masquerade.channels.privacy import guarantee_of
from masquerade.core.errors import PolicyMismatch
from masquerade.disguising.memo import Memo
from masquerade.protocols.codec import tag_of
from masquerade.protocols.pooling import CountRequest, MaskedSum, PoolingParty
from masquerade.protocols.session import Proposal
from masquerade.services.parties.kinds.base import Outflow, Partition, Role, SessionKind, Tables
from masquerade.sources.pooled import PooledTally, pooling_party

if TYPE_CHECKING:
    from masquerade.services.parties.coordinator import Coordinator
    from masquerade.services.parties.participant import Participant

MASKED = "counts under masks that cancel in the sum"


class PoolRole(Role):
    """A party adds its counts, under masks that cancel."""

    name = "pooling"

    def player(self, part: Participant) -> PoolingParty:
        """Return a party of the pool; its reports come from the memo."""
        return pooling_party(
            part.node.name,
            part.data.source(Memo.open(part.node.memo)),
            part.node.identity,
            part.node.identities_of(part.spec.parties),
            roster=part.spec.parties,
            earlier=part.earlier_pools,
            most_cells=part.limits.cells,
        )

    def tables(self, message: bytes) -> Tables:
        """Return the tables that are proposed or asked for."""
        tag = tag_of(message)
        if tag == Proposal.TAG:
            return [query.names for query in Proposal.decode(message).batch.queries]
        return (
            [query.names for query in CountRequest.decode(message).batch.queries]
            if tag == CountRequest.TAG
            else []
        )

    def outflows(self, part: Participant, message: bytes) -> tuple[Outflow, ...]:
        """Return what counts give away: of reports what the reports do, of clear records anything."""
        if tag_of(message) != CountRequest.TAG:
            return ()
        policy, asked = part.data.policy, self.tables(message)
        names = tuple(name for name in policy.schema if any(name in some for some in asked))
        if not names or not policy.disguised:
            return (Outflow(MASKED, names, None),)
        return tuple(
            Outflow(f"{MASKED}, of {item.kind}", item.variables, item.gamma, policy.id)
            for item in guarantee_of(policy).disclosures
            if not set(names).isdisjoint(item.variables)
        )


class PooledCounts(SessionKind):
    """The convener learns sums over all parties, exact ones or of reports, and nothing else."""

    name = "pooled-counts"
    why = "of a sum of two, each subtracts its own counts and has the other's"
    partition = Partition.ROWS
    least_parties = 3
    pooled = True
    roles = (PoolRole(),)

    def exact(self, policy: Policy) -> bool:
        """Tell whether some variable is counted in clear."""
        return any(item.gamma is None for item in guarantee_of(policy).disclosures)

    def model(self, run: Coordinator) -> dict[str, Any]:
        """Learn from sums."""
        run.note("pooling counts")
        policy = common_policy(run.joint.policies)
        pool = MaskedSum(run.spec.parties, run.transport("pooling"), policy, session=run.epoch)
        source = PooledTally(pool, policy)
        run.records = source.n
        return run.learnt_from(source)


def common_policy(policies: Mapping[str, Policy]) -> Policy:
    """Return the policy of all parties of a pool; parties that differ are refused."""
    first, *others = policies.items()
    for party, policy in others:
        if policy.id != first[1].id:
            raise PolicyMismatch(
                f"Parties {first[0]!r} and {party!r} have other variables or channels: a pool has one policy."
            )
    return first[1]
