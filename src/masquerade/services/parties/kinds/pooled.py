"""Session type for secure sums of counts over parties with different people."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from masquerade.channels.policy import Policy
from masquerade.channels.policy.privacy import guarantee_of
from masquerade.core.errors import InputError, PolicyMismatch
from masquerade.core.query import Query
from masquerade.protocols.noise_shares import NoiseBudget, NoiseShares
from masquerade.protocols.secure_sum import LEAST_WITH_NOISE, CountRequest, MaskedSum, PoolingParty
from masquerade.protocols.vertical.disguised_cells import restrict_to_variables
from masquerade.protocols.wire.codec import tag_of
from masquerade.protocols.wire.session import Proposal
from masquerade.services.parties.kinds.base import (
    Outflow,
    Partition,
    Role,
    RoleStep,
    SessionKind,
    list_batch_tables,
)
from masquerade.sources.parties.pooled import NoisyPool, PooledTally, pooling_party

if TYPE_CHECKING:
    from masquerade.core.schema import Schema
    from masquerade.services.parties.coordinator import Coordinator
    from masquerade.services.parties.participant import SessionParticipant
    from masquerade.services.parties.session import JointSchema, SessionSpec

MASKED = "counts under masks that cancel in the sum"
NOISY = "counts with noise that nobody knows"


def _count_outflows(part: SessionParticipant, message: CountRequest) -> list[Outflow]:
    """Return the outflows of counts of the variables that a message requests."""
    policy, tables = part.data.policy, list_batch_tables(message)
    if part.spec.noise is not None:
        whole = _noisy_outflow(part.spec, _restrict_to_goal(part.spec, policy).schema.names)
        return [whole] if any(tables) else [Outflow(MASKED, (), None)]
    return _masked_outflows(
        policy, tuple(name for name in policy.schema if any(name in table for table in tables))
    )


def _masked_outflows(policy: Policy, names: tuple[str, ...]) -> list[Outflow]:
    """Return the outflows of masked counts: with the γ of the reports, or unbounded for clear records."""
    if not names or not policy.disguised:
        return [Outflow(MASKED, names, None)]
    return [
        Outflow(f"{MASKED}, of {item.kind}", item.variables, item.gamma, policy.id)
        for item in guarantee_of(policy).disclosures
        if not set(names).isdisjoint(item.variables)
    ]


def _noisy_outflow(spec: SessionSpec, names: tuple[str, ...]) -> Outflow:
    """Return one outflow for all tables of a session with noise; its γ is 1, since ε and δ bound it."""
    terms = spec.noise_terms
    if terms is None:
        raise InputError("This session adds no noise.")
    stated = f"{terms.number} tables, ε = {terms.epsilon:g}, δ = {terms.delta:g} a record"
    kind = f"{NOISY} ({stated}, standard deviation {terms.deviation:.1f} a cell)"
    bounds = (Fraction(str(terms.epsilon)), Fraction(str(terms.delta)))
    return Outflow(kind, names, Fraction(1), None, *bounds)


class _PoolRole(Role):
    """A party sends its counts under masks that cancel in the sum; counted reports come from the memo."""

    name = "pooling"
    steps = (
        RoleStep(Proposal, list_batch_tables),
        RoleStep(CountRequest, list_batch_tables, _count_outflows),
    )

    def questions(self, message: bytes) -> list[Query]:
        """Return the queries of a message unchanged, since only their cells are summed."""
        kinds: dict[bytes, type[Proposal] | type[CountRequest]]
        kinds = {Proposal.TAG: Proposal, CountRequest.TAG: CountRequest}
        kind = kinds.get(tag_of(message))
        return [] if kind is None else list(kind.decode(message).batch.queries)

    def player(self, part: SessionParticipant) -> PoolingParty:
        """Return the party of the secure sum; with noise, it spends the budget that the consent states."""
        noise, terms = None, part.spec.noise_terms
        if terms is not None:
            consent = part.node.settings.consent(part.spec.session)
            stated = None if consent is None else consent.budget
            budget = None if stated is None else NoiseBudget(stated.epsilon, stated.delta)
            noise = NoiseShares(
                terms, part.node.store.noise_ledger(), bytes.fromhex(part.spec.digest), budget
            )
        return pooling_party(
            part.node.name,
            part.data.source(part.node.kept_memo()),
            part.node.identity,
            part.node.identities_of(part.spec.parties),
            roster=part.spec.parties,
            earlier=part.earlier_pools,
            most_cells=part.limits.cells,
            noise=noise,
        )


def _restrict_to_goal(spec: SessionSpec, policy: Policy) -> Policy:
    """Return the policy of the variables that the model needs; a policy with strata is not restricted."""
    names = spec.learn.needed_variables(policy.schema.names)
    return policy if policy.stratum_variable is not None else restrict_to_variables(policy, names)


class PooledCounts(SessionKind):
    """The convener learns sums of counts over all parties, exact or of reports, and nothing else."""

    name = "pooled-counts"
    why = "with two parties, each could subtract its own counts from the sum"
    partition = Partition.ROWS
    least_parties = 3
    pooled = True
    rules_kept = "each party counts its own records, and refuses a question before it counts"
    roles = (_PoolRole(),)

    def sends(self, spec: SessionSpec, party: str, policy: Policy) -> Iterator[tuple[str, Outflow]]:  # noqa: ARG002
        """Yield masked counts of the needed variables, and of the number of records."""
        names = _restrict_to_goal(spec, policy).schema.names
        counts = _masked_outflows(policy, names) if spec.noise is None else [_noisy_outflow(spec, names)]
        for item in (Outflow(MASKED, (), None), *counts):
            yield spec.convener, item

    def problems(self, spec: SessionSpec) -> Iterator[str]:
        """Yield problems in the specification of a session; with noise, two parties are enough."""
        if spec.noise is None:
            yield from super().problems(spec)
            return
        without = spec.model_copy(update={"noise": None, "parties": (*spec.parties, "", "")})
        yield from super().problems(without)
        if len(spec.parties) < LEAST_WITH_NOISE:
            yield f"{self.name} with noise needs at least {LEAST_WITH_NOISE} parties"
        elif spec.noise.colluders >= len(spec.parties):
            yield f"of {len(spec.parties)} parties at most {len(spec.parties) - 1} may collude"
        else:
            try:
                _ = spec.noise.terms(len(spec.parties)).stages  # raises InputError if no noise suffices
            except InputError as error:
                yield str(error)

    def exact(self, policy: Policy) -> bool:
        """Return True if any variable is counted without disguise."""
        return any(item.gamma is None for item in guarantee_of(policy).disclosures)

    def schema(self, spec: SessionSpec, joint: JointSchema) -> Schema:
        """Return the needed variables; raise PolicyMismatch if parties have different policies."""
        if not joint.policies:
            raise InputError("No party brings any of the variables to learn.")
        (first, policy), *others = joint.policies.items()
        for party, other in others:
            if other.id != policy.id:
                raise PolicyMismatch(
                    f"Parties {first!r} and {party!r} have different variables or channels: a pool has one "
                    "policy."
                )
        return _restrict_to_goal(spec, policy).schema

    def faults(self, spec: SessionSpec, joint: JointSchema) -> Iterator[str]:
        """Yield problems: disguised variables where noise is added, and parties without needed variables."""
        yield from super().faults(spec, joint)
        if spec.noise is not None and any(policy.disguised for policy in joint.policies.values()):
            yield "Noise can be added only to counts of clear records, but a policy disguises variables."
        for party in spec.parties:
            if joint.policies and party not in joint.policies and len(joint.policies) > 1:
                yield f"Party {party!r} brings none of the variables to learn: {self.why}."

    def model(self, run: Coordinator) -> dict[str, Any]:
        """Learn the model from sums over all parties."""
        run.note("pooling counts")
        policy = run.joint.policies[run.spec.parties[0]]
        noise, needed = run.spec.noise_terms, _restrict_to_goal(run.spec, policy)
        pool = MaskedSum(run.spec.parties, run.transport("pooling"), policy, session=run.epoch, noise=noise)
        source = PooledTally(pool, needed) if noise is None else NoisyPool(pool, needed)
        run.records = source.n
        return run.learn_from(source)
