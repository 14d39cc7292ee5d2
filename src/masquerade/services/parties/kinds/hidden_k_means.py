"""Session type for k-means in MPC, where any party may hold any cell: only centres and sizes are opened."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from masquerade.core.errors import InputError
from masquerade.learn.clusters import Clusters, Lattice, column_numbers, known_clusters
from masquerade.protocols.mpc.dealer_engine import HelpedEngine
from masquerade.protocols.mpc.engine import Integers, Steps
from masquerade.protocols.mpc.guarantee import HELD_CELLS, clusters_guarantee, clusters_opened
from masquerade.protocols.mpc.k_means import Lloyd, clusters
from masquerade.protocols.mpc.record_order import HolderRequest, PlacedOwner, assign_places, check_order
from masquerade.protocols.wire.session import agreement_of
from masquerade.services.parties.kinds.any_cells import ScatteredCellsRole, schema_of_cells
from masquerade.services.parties.kinds.base import Convener, Outflow, Partition, Role, RoleStep
from masquerade.services.parties.kinds.hidden_computation import (
    COST,
    ComputationRole,
    HiddenKind,
    run_computation,
)

if TYPE_CHECKING:
    from masquerade.channels.policy import Policy
    from masquerade.core.schema import Schema
    from masquerade.services.parties.coordinator import Coordinator
    from masquerade.services.parties.participant import SessionParticipant
    from masquerade.services.parties.session import ClusterTerms, JointSchema, SessionSpec


USUAL = 2**20  # records assumed when a session is checked before their number is known


class _PlacedParty(PlacedOwner):
    """A party that receives the positions of its records; `found` has each file's records and linkage."""

    def __init__(self, part: SessionParticipant) -> None:
        self.found = ScatteredCellsRole().blocks(part)
        blocks = [(tuple(block.codes), linkage.tags) for block, linkage in self.found]
        super().__init__(part.epoch, blocks, most=part.limits.rows)


class _PlacesRole(Role):
    """A party reveals the pseudonyms and variables of its cells, and receives positions of its records."""

    name = "places"
    fresh = False
    steps = (
        RoleStep(
            HolderRequest, outflows=lambda part, _: [Outflow(HELD_CELLS, part.data.policy.schema.names, None)]
        ),
    )

    def player(self, part: SessionParticipant) -> _PlacedParty:
        """Return the receiver of positions, block by block in the order of the files."""
        return _PlacedParty(part)


class _ClusterComputation:
    """Public parameters of k-means in a session, known to all members."""

    def __init__(self, spec: SessionSpec, joint: JointSchema) -> None:
        self._spec, self._joint = spec, joint
        self.owners = tuple(joint.policies)
        schema = schema_of_cells(joint)
        options = spec.learn.read(schema)
        self.names = tuple(schema) if options["names"] is None else tuple(options["names"])
        self._numbers = column_numbers(schema, self.names, options["scores"])
        self.lattice = Lattice.of(self._numbers)
        self._k = int(options["k"])
        self._start = options["start"]

    @property
    def agreement(self) -> bytes:
        """Return the digest of the session's text and all policies.

        The dealt randomness is bound to the remaining parameters.
        """
        policies = [f"{party}={policy.id}" for party, policy in self._joint.policies.items()]
        return agreement_of("hidden k-means", self._spec.digest, *policies)

    def plan(self, n: int) -> Lloyd:
        """Return the public parameters of Lloyd's algorithm for `n` records."""
        terms = cluster_terms(self._spec)
        start = None if self._start is None else self.lattice.centres(self._start, self._k)
        return Lloyd(n, self._k, self.lattice.most, start, terms.least_size, terms.steps, terms.hide_steps)

    def program(self, part: SessionParticipant, key: Callable[[str, int], bytes]) -> Steps[str]:
        """Find clusters; the result is the same text at every party."""
        placed_party: _PlacedParty = part.player(_PlacesRole.name)
        plan = self.plan(placed_party.offer.records)
        engine = HelpedEngine(part.node.name, self.owners, key, plan.n)
        yield from check_order(engine, placed_party.placed_blocks, self.names, plan.n)
        table = self._local_table(placed_party)
        found = yield from clusters(engine, table, plan, before_opening=part.burn_opening)
        model = known_clusters(
            self.names, self.lattice, found.centres(), found.sizes, plan.n, least=plan.least
        )
        took = {"steps": found.steps, "centres_unknown": int((~found.known).sum())}
        return json.dumps({"model": model.to_dict(), "took": took}, sort_keys=True)

    def model(self, found: str) -> dict[str, Any]:
        """Return the clusters as plain values."""
        return Clusters.from_dict(json.loads(found)["model"]).to_dict()

    def _local_table(self, party: _PlacedParty) -> Integers:
        """Return this party's cells in units of the lattice, and zero for cells that it does not hold."""
        table = np.zeros((party.offer.records, len(self.names)), dtype=np.int64)
        for (block, linkage), where in zip(party.found, party.offer.places, strict=True):
            for column, name in enumerate(self.names):
                if name in block.codes:
                    numbers = self._numbers[column] - self.lattice.origin[column]
                    whole = np.rint(numbers / self.lattice.unit).astype(np.int64)
                    table[where, column] = whole[block.codes[name][linkage.rows]]
        return table


def cluster_terms(spec: SessionSpec) -> ClusterTerms:
    """Return the terms of a session's clusters, or the defaults."""
    from masquerade.services.parties.session import ClusterTerms  # noqa: PLC0415  (sessions import kinds)

    return spec.clusters or ClusterTerms()


class HiddenKMeans(HiddenKind):
    """All parties learn centres and sizes of clusters; the cluster of a record is never opened."""

    name = "hidden-k-means"
    why = "the convener sees, by pseudonym, which party holds which cells"
    partition = Partition.CELLS
    convener = Convener.OUTSIDER
    opens = "k-means"
    roles = (_PlacesRole(), ComputationRole())
    too_few = "Clusters on shares need cells of at least two parties: a single party computes alone."

    def terms(self, part: SessionParticipant) -> _ClusterComputation:
        """Return the parameters of the computation."""
        return _ClusterComputation(part.spec, part.require_joint_schema())

    def describe_openings(self, spec: SessionSpec) -> list[str]:
        """Return the description of centres and sizes."""
        terms = cluster_terms(spec)
        return [clusters_opened(least=terms.least_size, steps=terms.steps, hide_steps=terms.hide_steps)]

    def sends(self, spec: SessionSpec, party: str, policy: Policy) -> Iterator[tuple[str, Outflow]]:
        """Yield the outflows of the computation, and the list of a party's cells, which the convener sees."""
        if len(policy.schema):
            yield spec.convener, Outflow(HELD_CELLS, policy.schema.names, None)
        yield from super().sends(spec, party, policy)

    def schema(self, spec: SessionSpec, joint: JointSchema) -> Schema:  # noqa: ARG002
        """Return the variables of all parties; several parties may hold cells of the same variable."""
        return schema_of_cells(joint)

    def problems(self, spec: SessionSpec) -> Iterator[str]:
        """Yield problems in the specification of a k-means session."""
        yield from super().problems(spec)
        goal = spec.learn
        if goal.learner.model is None or goal.learner.model() is not Clusters:
            yield f"{self.name} learns k-means clusters, not {goal.model}"
            return
        if spec.hide_order or spec.open_counts:
            yield f"{self.name} has neither hide_order nor open_counts: see clusters"
        drawn, given = cluster_terms(spec).draw_start, goal.options.get("start") is not None
        if drawn == given:
            yield (
                f"{self.name} starts either with the centres in start or with records drawn in secret "
                "(clusters: {draw_start: true})"
            )

    def check(self, spec: SessionSpec, joint: JointSchema) -> None:
        """Raise InputError if start centres are not valid."""
        _ClusterComputation(spec, joint).plan(USUAL)

    def model(self, run: Coordinator) -> dict[str, Any]:
        """Bring records into a common order, relay the rounds, and return the parties' result."""
        terms = _ClusterComputation(run.spec, run.joint)
        run.note("bringing records into a common order")
        n = assign_places(terms.owners, terms.names, run.transport(_PlacesRole.name), run.epoch)
        if not n:
            raise InputError("A cluster must have at least one record.")
        run.records = n
        guarantee = clusters_guarantee(
            terms.owners, terms.names, terms.plan(n), helper=str(run.spec.helper), convener=run.spec.convener
        )
        text, took = run_computation(run, terms, guarantee)
        found = json.loads(text)
        return {**terms.model(text), COST: {**took, **found["took"]}}
