"""A whole deployment on one machine: certificates, identities, settings, policies and made-up records.

It serves to try services out and to copy settings from. The people are drawn from the 11-node network of the
papers; every party gets some of the columns (vertical), some of the rows (pooled) or some of the cells.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from masquerade.channels.policy import Policy
from masquerade.core.util.atomic import write_whole
from masquerade.data.example_networks import ELEVEN_NODES, eleven_nodes, eleven_nodes_policy
from masquerade.protocols.vertical.disguised_cells import restricted
from masquerade.services.common.example_deployment import ExampleDeployment
from masquerade.services.parties import kinds
from masquerade.services.parties.kinds.any_cells import AnyCells
from masquerade.services.parties.kinds.pooled import PooledCounts
from masquerade.services.parties.session import Goal, SessionSpec
from masquerade.services.parties.settings import consent_values

MINER, HELPER = "university", "helper"
OWNERS = {"north": ("A", "T", "E"), "south": ("S", "L", "B", "D"), "registry": ("X", "C", "F", "G")}
OF_TWO = {"north": ("A", "T", "E"), "south": ("S", "L")}


@dataclass(frozen=True, slots=True)
class Plan:
    """Who holds which records: a frame and a policy by party, and what is learnt from all of them."""

    protocol: str
    frames: Mapping[str, Sequence[pd.DataFrame]]
    policies: Mapping[str, Policy]
    key: str
    goal: Goal
    linking: str | None = None
    session: str = "example"
    terms: Mapping[str, Any] = field(default_factory=dict)
    """What else the session's text says."""


def write_deployment(folder: Path, plan: Plan, *, ports: Mapping[str, int] | None = None) -> dict[str, Path]:
    """Write everything that every node needs into a folder of its own; return the settings files by node."""
    kind = kinds.find(plan.protocol)
    parties = tuple(plan.frames)
    convener = parties[0] if kind.convener is kinds.Convener.ONE_OF_TWO else MINER
    nodes = tuple(dict.fromkeys((*parties, convener, *((HELPER,) if kind.helped else ()))))
    spec = SessionSpec.model_validate(
        {
            "session": plan.session,
            "protocol": plan.protocol,
            "parties": parties,
            "convener": convener,
            "helper": HELPER if kind.helped else None,
            "linking": (plan.linking or "intersection") if kind.linked else None,
            "learn": plan.goal.model_dump(exclude_defaults=True),
            **plan.terms,
        }
    )
    made = ExampleDeployment(folder, nodes, ports=ports)
    if spec.linking == "keyed":
        shared = secrets.token_bytes(32)
        for party in parties:
            write_whole(folder / party / "linking.key", shared, private=True)
    files = {}
    for node in nodes:
        settings = made.settings(node) | {
            "peers": {name: facts for name, facts in made.known.items() if name != node}
        }
        if node in plan.frames:
            settings |= written_data(folder / node, plan, node, keyed=spec.linking == "keyed")
            settings["consents"] = [consent_values(spec, plan.policies[node].schema)]
        elif node == HELPER:
            settings["consents"] = [consent_values(spec)]
        file = "miner.yaml" if node in {MINER, HELPER} else "party.yaml"
        files[node] = made.write(f"{node}/{file}", settings)
    made.write("session.yaml", {"masquerade": 1, **spec.model_dump(mode="json", exclude_defaults=True)})
    return files


def written_data(folder: Path, plan: Plan, node: str, *, keyed: bool) -> dict[str, Any]:
    """Write a party's records and policy, and return the part of its settings that names them."""
    names = []
    for i, frame in enumerate(plan.frames[node]):
        name = "records.parquet" if len(plan.frames[node]) == 1 else f"records-{i + 1}.parquet"
        frame.to_parquet(folder / name, index=False)
        names.append(name)
    plan.policies[node].save(folder / "policy.yaml")
    data: dict[str, Any] = {"files": names, "policy": "policy.yaml", "key": plan.key}
    return {"data": data | ({"linking_key": "linking.key"} if keyed else {})}


def named(people: pd.DataFrame) -> pd.DataFrame:
    """Return people with a key each."""
    return people.assign(person=[f"P{i:06d}" for i in range(len(people))])


def vertical(
    people: pd.DataFrame,
    policy: Policy,
    owners: Mapping[str, Sequence[str]],
    protocol: str,
    goal: Goal,
    *,
    seed: int,
    missing: float = 0.1,
    linking: str = "intersection",
) -> Plan:
    """Share out columns: every party has its own, of most people, in an order of its own."""
    generator = np.random.default_rng(seed)
    keyed = named(people)
    kept = len(people) if linking == "keyed" else round(len(people) * (1 - missing))
    frames = {
        party: [
            keyed.iloc[generator.permutation(len(people))[:kept]][["person", *names]].reset_index(drop=True)
        ]
        for party, names in owners.items()
    }
    policies = {party: restricted(policy, names) for party, names in owners.items()}
    return Plan(protocol, frames, policies, "person", goal, linking)


def scattered(
    people: pd.DataFrame, policy: Policy, owners: Mapping[str, Sequence[str]], goal: Goal, *, seed: int
) -> Plan:
    """Share out cells: of half of the people each party has its own columns, of the rest its neighbour's."""
    keyed = named(people)
    order = np.random.default_rng(seed).permutation(len(people))
    halves = [keyed.iloc[order[: len(people) // 2]], keyed.iloc[order[len(people) // 2 :]]]
    parties = list(owners)
    frames, policies = {}, {}
    for party, neighbour in zip(parties, parties[1:] + parties[:1], strict=True):
        columns = (owners[party], owners[neighbour])
        frames[party] = [
            half[["person", *names]].reset_index(drop=True)
            for half, names in zip(halves, columns, strict=True)
        ]
        policies[party] = restricted(policy, [*columns[0], *columns[1]])
    return Plan(AnyCells.name, frames, policies, "person", goal, "intersection")


def horizontal(
    people: pd.DataFrame, policy: Policy, parties: Sequence[str], goal: Goal, *, seed: int
) -> Plan:
    """Share out rows: every party has some people, with all of their columns."""
    generator = np.random.default_rng(seed)
    keyed = named(people)
    at = generator.integers(0, len(parties), len(people))
    frames = {party: [keyed[at == i].reset_index(drop=True)] for i, party in enumerate(parties)}
    return Plan(PooledCounts.name, frames, dict.fromkeys(parties, policy), "person", goal)


def _hidden_goal(model: str | None) -> Goal:
    """Return what is learnt where only a model opens."""
    names = tuple(ELEVEN_NODES)
    if model == "k-means":
        return Goal(model="k-means", k=2, names=names, start=[[1] * len(names), [2] * len(names)])
    if model == "tree":
        return Goal(model="tree", target="D", max_depth=2, min_records=10, significance=1)
    return Goal(model="structure", order=names, max_parents=2, score="k2")


def two_hospitals_and_a_registry(protocol: str, people: int, *, seed: int = 1) -> Plan:
    """Return made-up people of the papers' 11-node network at two hospitals and a registry.

    Where parties hold the same people, north has A, T and E, south S, L, B and D, the registry the rest, and
    what is sensitive is disguised as in the paper; where cells lie anywhere, that holds for half of the
    people, and of the others each has its neighbour's columns. Where they hold different people, each has
    everything. Where two take part alone, who encrypt every value, they have five of the variables. What is
    learnt are the parameters of a known network; where counts stay hidden, its structure, or two clusters
    by all variables, whose categories are numbers, or a tree.
    """
    sampled = eleven_nodes().sample(people, seed=seed)
    kind, policy = kinds.find(protocol), eleven_nodes_policy()
    partition = kind.partition
    owners = OF_TWO if kind.convener is kinds.Convener.ONE_OF_TWO else OWNERS
    held = {name for names in owners.values() for name in names}
    goal = Goal(
        model="network", structure={node: parents for node, parents in ELEVEN_NODES.items() if node in held}
    )
    if kind.hides:
        goal = _hidden_goal(kind.opens)
    if partition is kinds.Partition.COLUMNS:
        return vertical(sampled, policy, owners, protocol, goal, seed=seed)
    if partition is kinds.Partition.CELLS:
        plan = scattered(sampled, policy, OWNERS, goal, seed=seed)
    else:
        plan = horizontal(sampled, Policy.clear(policy.schema), tuple(OWNERS), goal, seed=seed)
    return replace(plan, protocol=protocol)
