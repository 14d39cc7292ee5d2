"""Clusters of records whose cells lie with any party, found on shares: centres and sizes open."""

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
from masquerade.protocols.mpc.record_order import HolderRequest, PlacedOwner, check_order, placed
from masquerade.protocols.wire.session import agreement_of
from masquerade.services.parties.kinds.any_cells import ScatteredCellsRole, schema_of_cells
from masquerade.services.parties.kinds.base import Convener, Outflow, Partition, Role, Step
from masquerade.services.parties.kinds.hidden_computation import COST, ComputationRole, HiddenKind, carried

if TYPE_CHECKING:
    from masquerade.channels.policy import Policy
    from masquerade.core.schema import Schema
    from masquerade.services.parties.coordinator import Coordinator
    from masquerade.services.parties.participant import Participant
    from masquerade.services.parties.session import ClusterTerms, JointSchema, SessionSpec


USUAL = 2**20  # records, as which a session is looked at before these are known


class _PlacedParty(PlacedOwner):
    """A party that is told places; `found` are its files, each with the pseudonyms of its people."""

    def __init__(self, part: Participant) -> None:
        self.found = ScatteredCellsRole().blocks(part)
        blocks = [(tuple(block.codes), linkage.tags) for block, linkage in self.found]
        super().__init__(part.epoch, blocks, most=part.limits.rows)


class _PlacesRole(Role):
    """A party tells of whom it holds which cells, and is told where its records stand among everybody's."""

    name = "places"
    fresh = False
    steps = (
        Step(
            HolderRequest, outflows=lambda part, _: [Outflow(HELD_CELLS, part.data.policy.schema.names, None)]
        ),
    )

    def player(self, part: Participant) -> _PlacedParty:
        """Return who is told places, block by block in the order of the files."""
        return _PlacedParty(part)


class _Terms:
    """What all members know of clusters that are looked for."""

    def __init__(self, spec: SessionSpec, joint: JointSchema) -> None:
        self._spec, self._joint = spec, joint
        self.owners = tuple(joint.policies)
        schema = schema_of_cells(joint)
        told = spec.learn.read(schema)
        self.names = tuple(schema) if told["names"] is None else tuple(told["names"])
        self._numbers = column_numbers(schema, self.names, told["scores"])
        self.lattice = Lattice.of(self._numbers)
        self._k = int(told["k"])
        self._start = told["start"]

    @property
    def agreement(self) -> bytes:
        """Return the digest of the session's text and everybody's policy; deals agree on the rest."""
        policies = [f"{party}={policy.id}" for party, policy in self._joint.policies.items()]
        return agreement_of("hidden k-means", self._spec.digest, *policies)

    def plan(self, n: int) -> Lloyd:
        """Return what is public about the computation."""
        terms = cluster_terms(self._spec)
        start = None if self._start is None else self.lattice.centres(self._start, self._k)
        return Lloyd(n, self._k, self.lattice.most, start, terms.least_size, terms.steps, terms.hide_steps)

    def program(self, part: Participant, key: Callable[[str, int], bytes]) -> Steps[str]:
        """Find clusters; the same text at every party."""
        placed_party: _PlacedParty = part.player(_PlacesRole.name)
        plan = self.plan(placed_party.offer.records)
        engine = HelpedEngine(part.node.name, self.owners, key, plan.n)
        yield from check_order(engine, placed_party.placed_blocks, self.names, plan.n)
        # another run draws other first centres and would tell something new: what was drawn opens once
        burn = part.burn_opening if plan.secret_start else lambda: None
        found = yield from clusters(engine, self._held(placed_party), plan, before_opening=burn)
        model = known_clusters(
            self.names, self.lattice, found.centres(), found.sizes, plan.n, least=plan.least
        )
        took = {"steps": found.steps, "centres_unknown": int((~found.known).sum())}
        return json.dumps({"model": model.to_dict(), "took": took}, sort_keys=True)

    def model(self, found: str) -> dict[str, Any]:
        """Return the clusters."""
        return Clusters.from_dict(json.loads(found)["model"]).to_dict()

    def _held(self, party: _PlacedParty) -> Integers:
        """Return this party's part of the table, in units, zero where a cell is not its own."""
        table = np.zeros((party.offer.records, len(self.names)), dtype=np.int64)
        for (block, linkage), where in zip(party.found, party.offer.places, strict=True):
            for column, name in enumerate(self.names):
                if name in block.codes:
                    numbers = self._numbers[column] - self.lattice.origin[column]
                    whole = np.rint(numbers / self.lattice.unit).astype(np.int64)
                    table[where, column] = whole[block.codes[name][linkage.rows]]
        return table


def cluster_terms(spec: SessionSpec) -> ClusterTerms:
    """Return what of clusters opens in a session."""
    from masquerade.services.parties.session import ClusterTerms  # noqa: PLC0415  (sessions know their kinds)

    return spec.clusters or ClusterTerms()


class HiddenKMeans(HiddenKind):
    """Everybody learns centres and sizes of clusters; whose record is in which is never opened."""

    name = "hidden-k-means"
    why = "whoever convenes sees by pseudonym who holds which cells"
    partition = Partition.CELLS
    convener = Convener.OUTSIDER
    opens = "k-means"
    roles = (_PlacesRole(), ComputationRole())

    def terms(self, part: Participant) -> _Terms:
        """Return what is computed."""
        return _Terms(part.spec, part.arranged())

    def opened(self, spec: SessionSpec) -> list[str]:
        """Return that centres and sizes open."""
        terms = cluster_terms(spec)
        return [clusters_opened(least=terms.least_size, steps=terms.steps, hide_steps=terms.hide_steps)]

    def sends(self, spec: SessionSpec, party: str, policy: Policy) -> Iterator[tuple[str, Outflow]]:
        """Yield, beside what computing shows, that whoever convenes is told who holds which cells."""
        if len(policy.schema):
            yield spec.convener, Outflow(HELD_CELLS, policy.schema.names, None)
        yield from super().sends(spec, party, policy)

    def schema(self, spec: SessionSpec, joint: JointSchema) -> Schema:  # noqa: ARG002
        """Return the variables of everybody, of which several may hold one."""
        return schema_of_cells(joint)

    def problems(self, spec: SessionSpec) -> Iterator[str]:
        """Yield what is wrong with clusters that are to be found on shares."""
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
                f"{self.name} begins with the centres in start or with records that nobody knows "
                "(clusters: {draw_start: true}), one of them"
            )

    def faults(self, spec: SessionSpec, joint: JointSchema) -> Iterator[str]:
        """Yield that too few bring something, and centres that do not fit."""
        yield from super().faults(spec, joint)
        if len(joint.policies) < 2:
            yield "Clusters on shares need cells of at least two parties; one computes alone."
        try:
            _Terms(spec, joint).plan(USUAL)
        except InputError as error:
            yield str(error)

    def model(self, run: Coordinator) -> dict[str, Any]:
        """Bring records into order, carry the rounds, and return what all parties found."""
        terms = _Terms(run.spec, run.joint)
        run.note("bringing records into a common order")
        n = placed(terms.owners, terms.names, run.transport(_PlacesRole.name), run.epoch)
        if not n:
            raise InputError("Clusters are of at least one record.")
        run.records = n
        guarantee = clusters_guarantee(
            terms.owners, terms.names, terms.plan(n), helper=str(run.spec.helper), convener=run.spec.convener
        )
        text, took = carried(run, terms, guarantee)
        found = json.loads(text)
        return {**terms.model(text), COST: {**took, **found["took"]}}
