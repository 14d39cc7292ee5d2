"""Columns of the same people, and no miner (Model I).

Each party learns its own nodes of a network; for other models it counts the tables of which it holds most.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from masquerade.core.errors import InputError
from masquerade.core.guarantee import Disclosure, Guarantee
from masquerade.core.query import Query
from masquerade.core.tally import Tally
from masquerade.learn import model_file
from masquerade.learn.networks.network import BayesianNetwork, bayesian_network
from masquerade.learn.networks.structure_search import structure
from masquerade.protocols.vertical.disguised_cells import (
    Site,
    Structure,
    cross_parents,
    own_families,
    restricted,
    seen_by,
)
from masquerade.services.parties.kinds.base import Outflow, Partition, SessionKind, Tables
from masquerade.services.parties.kinds.with_miner import CellsRole, cells_asked, cells_of
from masquerade.sources.engines.engine import Engine
from masquerade.sources.parties.joined import LearningSite
from masquerade.sources.parties.own_tables import OwnTables, counted, foreign
from masquerade.sources.records import Records

if TYPE_CHECKING:
    from masquerade.channels.policy import Policy
    from masquerade.protocols.wire.session import Transport
    from masquerade.services.parties.coordinator import Coordinator
    from masquerade.services.parties.messages import Learn
    from masquerade.services.parties.participant import Participant
    from masquerade.services.parties.session import JointSchema, SessionSpec


NODES = "the model: parents and parameters of every node"
BESIDE = "counts of own columns beside others' reports"


class OwnNodes:
    """A party that sends others the cells that their nodes need, and learns its own nodes."""

    told = BESIDE

    def __init__(self, part: Participant, cells: CellsRole) -> None:
        self._part, self._cells = part, cells
        self._own = part.data.policy.schema.names
        self._parents: dict[str, Any] | None = None
        self._view: Records | Engine | None = None

    @cached_property
    def _site(self) -> Site:
        return self._cells.site(self._part)

    def receive(self, message: bytes) -> bytes:
        """Send cells to whoever needs them."""
        return self._site.receive(message)

    def check(self, message: Learn) -> None:
        """Refuse to be asked for more than the session is to learn.

        Parents are asked for in the order agreed on; parameters for the structure agreed on, or for the
        parents that the party itself found for its own nodes. Tables are those that other models need.
        """
        if not _by_nodes(self._part.spec) or message.tables is not None:
            self._check_tables(message)
            return
        goal = self._part.spec.learn.read(self._part.arranged().schema)
        if goal["structure"] is not None:
            due = message.order is None and message.structure == goal["structure"]
        elif message.structure is None:
            due = (message.order, message.max_parents) == (goal["order"], goal["max_parents"])
        else:
            asked = {name: list(message.structure.get(name, ())) for name in self._own}
            due = message.order is None and asked == self._parents
        missing = [name for name in self._own if name not in (message.structure or self._own)]
        if missing:
            raise self._part.spec.refused(f"its structure lacks {missing[0]!r}, which takes part here")
        if not due:
            raise self._part.spec.refused("this is not what it is to learn")

    def questions(self, message: Learn) -> list[Query]:
        """Return the tables that are counted, or the families whose parameters are told.

        Reports of others count as what they are reports of: what they leave open is no protection here.
        """
        if message.tables is not None:
            groups = [group for policy in self._part.arranged().policies.values() for group in policy.groups]
            of = {report: group.names for group in groups for report in group.reports}
            columns = [[name for column in table for name in of[column]] for table in message.tables]
        else:
            parents = message.structure or {}
            columns = [[name, *parents[name]] for name in self._own if name in parents]
        return [Query(by=tuple(dict.fromkeys(names))) for names in columns]

    def _check_tables(self, message: Learn) -> None:
        """Let tables be asked for that are needed, of those who hold most of their variables."""
        part, due = (
            self._part,
            not _by_nodes(self._part.spec) and (message.order, message.structure) == (None, None),
        )
        joint = part.arranged()
        groups = [group for policy in joint.policies.values() for group in policy.groups]
        for columns in message.tables or ():
            # of variables that are reported together, or as they are, whoever counts sees each
            alone = [name for name in columns if any(group.names == (name,) for group in groups)]
            due = due and all(any(name in group.reports for group in groups) for name in columns)
            due = due and part.spec.learn.allows(alone)
        if message.tables is None or not due:
            raise part.spec.refused("this is not what it is to learn")

    def _counted(self, tables: Tables, members: Callable[[str], Transport]) -> dict[str, Any]:
        """Count tables of own clear and others' disguised columns, which are fetched once."""
        part = self._part
        if self._view is None:
            others = {p: q for p, q in part.arranged().policies.items() if p != part.node.name}
            crossing = crossing_of(part.spec, part.arranged())
            needed = [n for (_, to), names in crossing.items() if to == part.node.name for n in names]
            wanted = {self._own[0]: tuple(needed), **dict.fromkeys(needed, ())}  # as if own, with parents
            site = LearningSite(self._site, others, room=part.room)
            self._view = site.source(members("cells"), wanted)
        if not isinstance(self._view, Records):
            raise InputError("Tables are counted in memory.")
        return {"counts": counted(self._view, tables)}

    def learn(self, message: Learn, members: Callable[[str], Transport]) -> tuple[dict[str, Any], Outflow]:
        """Learn own nodes from own clear and others' disguised columns, or count."""
        if message.tables is not None:
            tables = list(message.tables)
            names = tuple(name for name in self._own if any(name in columns for columns in tables))
            return self._counted(tables, members), Outflow(self.told, names, None)
        part = self._part
        others = {p: q for p, q in part.arranged().policies.items() if p != part.node.name}
        site = LearningSite(self._site, others, room=part.room)
        source = site.source(members("cells"), message.structure)
        goal = part.spec.learn.read(part.arranged().schema)
        if message.structure is not None:
            told = {name: goal[name] for name in ("prior", "equivalent_size", "nonnegative")}
            values = _own_parameters(source, message.structure, self._own, told)
            return values, Outflow("parameters of own nodes", self._own, None)
        found = structure(
            source,
            order=list(message.order or ()),
            max_parents=message.max_parents,
            score=goal["score"],
            correction=goal["correction"],
        ).structure
        self._parents = {name: list(found[name]) for name in self._own}
        return self._parents, Outflow("parents of own nodes", self._own, None)


class CrossParentsRole(CellsRole):
    """Parties send each other reports of the columns that are parents of the other's nodes."""

    def player(self, part: Participant) -> OwnNodes:
        """Return who sends cells, and learns."""
        return OwnNodes(part, self)

    def askers(self, spec: SessionSpec, name: str) -> Collection[str]:
        """Let the other parties ask, and nobody else."""
        return {*spec.parties} - {name}

    def check(self, part: Participant, peer: str, message: bytes) -> None:
        """Let cross parents cross to the party that needs them, and nothing else."""
        super().check(part, peer, message)
        crossing = crossing_of(part.spec, part.arranged())
        names = cells_asked(message).names
        if not names or not set(names) <= set(crossing.get((part.node.name, peer), ())):
            raise part.spec.refused(f"what is to be learnt gives {peer!r} no need of these variables")
        consent = part.node.settings.consent(part.spec.session)
        if consent is not None and consent.rules is not None:
            beside = {name for (_, to), columns in crossing.items() if to == peer for name in columns}
            seen = beside.union(part.arranged().owners.get(peer, ()))
            if consent.rules.shows(names, seen):
                raise part.spec.refused(
                    f"{peer!r} would have reports of {', '.join(names)} beside variables with which they "
                    "must stay undetermined"
                )


class WithoutMiner(SessionKind):
    """Everybody learns the model, and of records the reports of columns that cross to it."""

    name = "vertical-without-miner"
    why = "one party has nobody to learn from"
    partition = Partition.COLUMNS
    roles = (CrossParentsRole(),)
    told: ClassVar[str] = BESIDE
    rules_kept = (
        "each party refuses what it would count itself, and sends no reports to a party that could "
        "combine them into what must stay undetermined"
    )
    answers_tables = True  # counts, or parameters that are counts, though no message of a role asks for them

    def sends(self, spec: SessionSpec, party: str, policy: Policy) -> Iterator[tuple[str, Outflow]]:
        """Yield reports of what may cross, to whoever needs it, and what is told about own variables.

        Before parties have met, nobody knows what others hold: whatever no other party can need is left out.
        """
        names = policy.schema.names
        if not names:
            return
        parents, crossing = spec.learn.options.get("structure"), names
        if _by_nodes(spec) and parents is not None:
            others = {parent for node in parents if node not in names for parent in parents[node]}
            crossing = tuple(name for name in names if name in others)
        for other in spec.parties:
            if other != party and crossing:
                for item in cells_of(spec, restricted(policy, crossing)):
                    yield other, item
        told = ["parents of own nodes"] * (parents is None) + ["parameters of own nodes"]
        for kind in told if _by_nodes(spec) else [self.told]:
            yield spec.convener, Outflow(kind, names, None)

    def learner(self, part: Participant) -> OwnNodes:
        """Return who learns own nodes, once it is known who holds which."""
        if part.joint is None:
            super().learner(part)
        found: OwnNodes = part.player("cells")
        return found

    def model(self, run: Coordinator) -> dict[str, Any]:
        """Let every party learn its own nodes, first their parents if they are not known; or count tables."""
        crossing = crossing_of(run.spec, run.joint)
        if not _by_nodes(run.spec):
            run.note("parties count tables")
            seen = seen_without_miner(run.joint, crossing, run.spec.convener, BESIDE)
            policies, records = run.joint.policies, run.records or 0
            return run.learnt_from(OwnTables(policies, crossing, records, run.own_tables, seen))
        goal = run.spec.learn.read(run.joint.schema)
        parents: Mapping[str, Any] | None = goal["structure"]
        if parents is None:
            run.note("parties learn the structure")
            parents = run.own_nodes(order=goal["order"], max_parents=goal["max_parents"])
        run.reveals(seen_without_miner(run.joint, crossing, run.spec.convener))
        run.note("parties learn parameters")
        nodes = run.own_nodes(structure=dict(parents))
        values = {**model_file.header("bayesian_network"), "nodes": [nodes[name] for name in parents]}
        return BayesianNetwork.from_dict(values).to_dict()  # what does not fit together is refused


def _is_network(spec: SessionSpec) -> bool:
    return spec.learn.learner.model is not None and spec.learn.learner.model() is BayesianNetwork


def _by_nodes(spec: SessionSpec) -> bool:
    """Tell whether each party learns its own part of the model: of a network, its nodes.

    Where any cell may be at any party, nobody's nodes are its own.
    """
    return _is_network(spec) and spec.kind.partition is Partition.COLUMNS


def crossing_of(spec: SessionSpec, joint: JointSchema) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return what crosses, by who gives and who receives; all can tell before anything does.

    Where it is not known which tables will be asked for, parties look at everything, disguised.
    """
    owners, goal = joint.owners, spec.learn
    parents = goal.options.get("structure")
    if _by_nodes(spec) and parents is not None:
        return cross_parents(parents, owners)
    if goal.learner.at_once or (_is_network(spec) and parents is not None):
        schema = spec.kind.schema(spec, joint)
        first = goal.learner.rehearse(schema, goal.read(schema))
        return foreign([query.names for query in first], owners)
    return {(a, b): owners[a] for a in owners for b in owners if a != b}


def seen_without_miner(
    joint: JointSchema, crossing: Mapping[tuple[str, str], Sequence[str]], convener: str, told: str = NODES
) -> Guarantee:
    """Return who learns what without a miner: parties what crosses to them, everybody the model.

    `crossing` are the variables by sender and receiver; `told` is what whoever convenes hears of parties.
    """
    role = f"{convener} and all parties" if told == NODES else convener
    everything = dict.fromkeys(name for own in joint.owners.values() for name in own)
    found = Guarantee((Disclosure(role, told, tuple(everything), None),))
    for (sender, receiver), names in crossing.items():
        found = found.combine(seen_by(receiver, restricted(joint.policies[sender], names)))
    return found


def _own_parameters(
    source: Tally, parents: Structure, own: Sequence[str], told: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the conditional tables of a party's own nodes, as plain values."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        values = bayesian_network(source, own_families(parents, own), **told).to_dict()
    nodes = {node["variable"]["name"]: node for node in json.loads(json.dumps(values))["nodes"]}
    return {name: nodes[name] for name in own}
