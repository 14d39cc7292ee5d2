"""Session type for columns of the same people without a miner (the papers' Model I).

To learn a network, each party learns its own nodes. For other models, each table is counted by the party
that holds most of its variables.
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
from masquerade.learn.catalogue import EM
from masquerade.learn.missing_cells import network_with_missing
from masquerade.learn.networks.network import BayesianNetwork, bayesian_network
from masquerade.learn.networks.structure_search import structure
from masquerade.protocols.vertical.disguised_cells import (
    Site,
    Structure,
    cross_parents,
    own_families,
    restrict_to_variables,
    seen_by,
)
from masquerade.services.parties.kinds.base import Outflow, Partition, SessionKind, Tables
from masquerade.services.parties.kinds.with_miner import CellsRole, cell_outflows, decode_cell_request
from masquerade.sources.engines.engine import Engine
from masquerade.sources.parties.joined import LearningSite
from masquerade.sources.parties.own_tables import OwnTables, count_reports, foreign
from masquerade.sources.records import Records

if TYPE_CHECKING:
    from masquerade.channels.policy import Policy
    from masquerade.protocols.wire.session import Transport
    from masquerade.services.parties.coordinator import Coordinator
    from masquerade.services.parties.messages import Learn
    from masquerade.services.parties.participant import SessionParticipant
    from masquerade.services.parties.session import JointSchema, SessionSpec


NODES = "the model: parents and parameters of every node"
BESIDE = "counts of own columns beside others' reports"


class LocalNodes:
    """A party that sends other parties the cells that their nodes need, and learns its own nodes."""

    results_text = BESIDE

    def __init__(self, part: SessionParticipant, cells: CellsRole) -> None:
        self._part, self._cells = part, cells
        self._own = part.data.policy.schema.names
        self._parents: dict[str, Any] | None = None
        self._view: Records | Engine | None = None

    @cached_property
    def _site(self) -> Site:
        return self._cells.site(self._part)

    def receive(self, message: bytes) -> bytes:
        """Answer a request for cells."""
        return self._site.receive(message)

    def check(self, message: Learn) -> None:
        """Raise QueryRefused if a message requests more than the session's model needs.

        Parents may be requested in the agreed order only. Parameters may be requested for the agreed
        structure, or for the parents that this party found for its own nodes. Tables may be requested only
        if the model needs them.
        """
        if not _by_nodes(self._part.spec) or message.tables is not None:
            self._check_tables(message)
            return
        goal = self._part.spec.learn.read(self._part.require_joint_schema().schema)
        if goal["structure"] is not None:
            is_needed = message.order is None and message.structure == goal["structure"]
        elif message.structure is None:
            is_needed = (message.order, message.max_parents) == (goal["order"], goal["max_parents"])
        else:
            parents = {name: list(message.structure.get(name, ())) for name in self._own}
            is_needed = message.order is None and parents == self._parents
        missing = [name for name in self._own if name not in (message.structure or self._own)]
        if missing:
            raise self._part.spec.refusal(f"its structure lacks {missing[0]!r}, which takes part here")
        if not is_needed:
            raise self._part.spec.refusal("the session's model does not need this")

    def questions(self, message: Learn) -> list[Query]:
        """Return the tables that are counted, or the families whose parameters are sent.

        Rules treat other parties' reports like true values: they do not rely on the noise of a channel.
        """
        if message.tables is not None:
            groups = [
                group
                for policy in self._part.require_joint_schema().policies.values()
                for group in policy.groups
            ]
            of = {report: group.names for group in groups for report in group.reports}
            columns = [[name for column in table for name in of[column]] for table in message.tables]
        else:
            parents = message.structure or {}
            columns = [[name, *parents[name]] for name in self._own if name in parents]
        return [Query(by=tuple(dict.fromkeys(names))) for names in columns]

    def _check_tables(self, message: Learn) -> None:
        """Raise QueryRefused unless the message requests tables that the model needs, and nothing else."""
        part = self._part
        is_needed = not _by_nodes(part.spec) and (message.order, message.structure) == (None, None)
        joint = part.require_joint_schema()
        groups = [group for policy in joint.policies.values() for group in policy.groups]
        for columns in message.tables or ():
            # variables that are reported together arrive together, so the counting party sees each of them
            # anyway: only those reported by themselves are compared with the model
            single = [name for name in columns if any(group.names == (name,) for group in groups)]
            is_needed = is_needed and all(any(name in group.reports for group in groups) for name in columns)
            is_needed = is_needed and part.spec.learn.allows(single)
        if message.tables is None or not is_needed:
            raise part.spec.refusal("the session's model does not need this")

    def _count_tables(self, tables: Tables, members: Callable[[str], Transport]) -> dict[str, Any]:
        """Count tables from local clear columns and others' disguised columns, which are fetched once."""
        part = self._part
        if self._view is None:
            others = {p: q for p, q in part.require_joint_schema().policies.items() if p != part.node.name}
            crossing = crossing_of(part.spec, part.require_joint_schema())
            needed = [n for (_, to), names in crossing.items() if to == part.node.name for n in names]
            # with all needed columns as the parents of one local node, all of them are fetched
            family = {self._own[0]: tuple(needed), **dict.fromkeys(needed, ())}
            site = LearningSite(self._site, others, room=part.room)
            self._view = site.source(members("cells"), family)
        if not isinstance(self._view, Records):
            raise InputError("Tables can be counted only from columns in memory.")
        return {"counts": count_reports(self._view, tables)}

    def learn(self, message: Learn, members: Callable[[str], Transport]) -> tuple[dict[str, Any], Outflow]:
        """Learn this party's nodes from its clear and others' disguised columns, or count tables."""
        if message.tables is not None:
            tables = list(message.tables)
            names = tuple(name for name in self._own if any(name in columns for columns in tables))
            return self._count_tables(tables, members), Outflow(self.results_text, names, None)
        part = self._part
        others = {p: q for p, q in part.require_joint_schema().policies.items() if p != part.node.name}
        site = LearningSite(self._site, others, room=part.room)
        source = site.source(members("cells"), message.structure)
        goal = part.spec.learn.read(part.require_joint_schema().schema)
        if message.structure is not None:
            options = {name: goal[name] for name in ("prior", "equivalent_size", "nonnegative")}
            if goal.get("missing") in EM:
                options = {"tables": EM[goal["missing"]], "prior": goal["prior"]}
            values = _local_parameters(source, message.structure, self._own, options)
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
    """A party sends the reports of those columns that are parents of another party's nodes."""

    def player(self, part: SessionParticipant) -> LocalNodes:
        """Return the object that sends cells and learns this party's nodes."""
        return LocalNodes(part, self)

    def askers(self, spec: SessionSpec, name: str) -> Collection[str]:
        """Return the other parties."""
        return {*spec.parties} - {name}

    def check(self, part: SessionParticipant, peer: str, message: bytes) -> None:
        """Raise QueryRefused unless the peer needs the requested variables and may combine them.

        The rules of this party's consent apply to all variables that the peer holds or receives, since it
        could combine them.
        """
        super().check(part, peer, message)
        crossing = crossing_of(part.spec, part.require_joint_schema())
        names = decode_cell_request(message).names
        if not names or not set(names) <= set(crossing.get((part.node.name, peer), ())):
            raise part.spec.refusal(f"the model does not require that {peer!r} has these variables")
        consent = part.node.settings.consent(part.spec.session)
        if consent is not None and consent.rules is not None:
            received = {name for (_, to), columns in crossing.items() if to == peer for name in columns}
            seen = received.union(part.require_joint_schema().owners.get(peer, ()))
            if consent.rules.shows(names, seen):
                raise part.spec.refusal(
                    f"{peer!r} could combine reports of {', '.join(names)} with other variables, and their "
                    "combination must stay undetermined"
                )


class WithoutMiner(SessionKind):
    """All parties learn the model; a party also receives reports of the columns that its nodes need."""

    name = "vertical-without-miner"
    why = "one party has nobody to learn from"
    partition = Partition.COLUMNS
    sends_columns = True
    roles = (CrossParentsRole(),)
    results_text: ClassVar[str] = BESIDE
    rules_kept = (
        "each party refuses to count what must stay undetermined, and sends no reports to a party that "
        "could combine them into that"
    )
    em: ClassVar[tuple[str, ...]] = ("em",)  # no party has columns of all variables
    answers_tables = True  # in reply to the message `Learn`, which does not belong to a role

    def sends(self, spec: SessionSpec, party: str, policy: Policy) -> Iterator[tuple[str, Outflow]]:
        """Yield reports of columns that other parties may need, and results about local variables.

        It is not yet known what other parties hold, so only columns that none of them can need are omitted.
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
                for item in cell_outflows(spec, restrict_to_variables(policy, crossing)):
                    yield other, item
        results = ["parents of own nodes"] * (parents is None) + ["parameters of own nodes"]
        for kind in results if _by_nodes(spec) else [self.results_text]:
            yield spec.convener, Outflow(kind, names, None)

    def learner(self, part: SessionParticipant) -> LocalNodes:
        """Return the object that learns this party's nodes; raise InputError if `Arrange` has not arrived."""
        if part.joint is None:
            super().learner(part)
        found: LocalNodes = part.player("cells")
        return found

    def model(self, run: Coordinator) -> dict[str, Any]:
        """Assemble a network from the parties' nodes, or learn any other model from the parties' tables.

        Without a given structure, the parties first learn the parents of their nodes.
        """
        crossing = crossing_of(run.spec, run.joint)
        if not _by_nodes(run.spec):
            run.note("parties count tables")
            seen = seen_without_miner(run.joint, crossing, run.spec.convener, BESIDE)
            policies, records = run.joint.policies, run.records or 0
            return run.learn_from(OwnTables(policies, crossing, records, run.request_tables, seen))
        goal = run.spec.learn.read(run.joint.schema)
        parents: Mapping[str, Any] | None = goal["structure"]
        if parents is None:
            run.note("parties learn the structure")
            parents = run.learn_local_nodes(order=goal["order"], max_parents=goal["max_parents"])
        run.add_guarantee(seen_without_miner(run.joint, crossing, run.spec.convener))
        run.note("parties learn parameters")
        nodes = run.learn_local_nodes(structure=dict(parents))
        values = {**model_file.header("bayesian_network"), "nodes": [nodes[name] for name in parents]}
        return BayesianNetwork.from_dict(values).to_dict()  # raises InputError if nodes do not fit together


def _is_network(spec: SessionSpec) -> bool:
    return spec.learn.learner.model is not None and spec.learn.learner.model() is BayesianNetwork


def _by_nodes(spec: SessionSpec) -> bool:
    """Return True if each party learns its own nodes of a network.

    If any cell may be at any party, a node belongs to no single party.
    """
    return _is_network(spec) and spec.kind.partition is Partition.COLUMNS


def crossing_of(spec: SessionSpec, joint: JointSchema) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return the columns that parties send each other, by sender and receiver.

    All parties can compute it in advance. If the tables are not known in advance, because the learner
    searches, every party receives reports of all columns of the other parties.
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
    joint: JointSchema,
    crossing: Mapping[tuple[str, str], Sequence[str]],
    convener: str,
    results_text: str = NODES,
) -> Guarantee:
    """Return the disclosures of a session without a miner.

    Parameters
    ----------
    joint : JointSchema
        The policies of all parties.
    crossing : mapping
        The reported variables, by sender and receiver.
    convener : str
        The convener.
    results_text : str, optional
        Description of the parties' results; the model, which all parties learn, or counts for the convener.

    Returns
    -------
    Guarantee
        The disclosure of the results, and the disclosures of the reports that each party receives.
    """
    role = f"{convener} and all parties" if results_text == NODES else convener
    everything = dict.fromkeys(name for own in joint.owners.values() for name in own)
    found = Guarantee((Disclosure(role, results_text, tuple(everything), None),))
    for (sender, receiver), names in crossing.items():
        found = found.combine(seen_by(receiver, restrict_to_variables(joint.policies[sender], names)))
    return found


def _local_parameters(
    source: Tally, parents: Structure, own: Sequence[str], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the conditional tables of the nodes `own`, as plain values."""
    estimate = network_with_missing if "tables" in options else bayesian_network
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        values = estimate(source, own_families(parents, own), **options).to_dict()
    nodes = {node["variable"]["name"]: node for node in json.loads(json.dumps(values))["nodes"]}
    return {name: nodes[name] for name in own}
