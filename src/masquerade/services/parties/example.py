"""Example deployment on one machine: certificates, identities, settings, policies and synthetic records.

It is for trying services out and for copying settings. The people are drawn from the 11-node network of the
papers. Each party gets some of the columns (vertical), some of the rows (pooled) or some of the cells.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from masquerade.channels.policy import Policy
from masquerade.channels.privacy_level import DEFAULT_LIMIT, PrivacyLimit
from masquerade.core.errors import InputError
from masquerade.core.util.atomic import write_whole
from masquerade.data.example_networks import ELEVEN_NODES, eleven_nodes, eleven_nodes_policy
from masquerade.protocols.vertical.disguised_cells import restrict_to_variables
from masquerade.services.common.example_deployment import ExampleDeployment
from masquerade.services.parties import kinds
from masquerade.services.parties.kinds.any_cells import AnyCells
from masquerade.services.parties.kinds.pooled import PooledCounts
from masquerade.services.parties.local_data import restrict_policy
from masquerade.services.parties.person_limit import limit_of, session_total
from masquerade.services.parties.session import LearningGoal, SessionSpec
from masquerade.services.parties.settings import consent_values

MINER, HELPER = "university", "helper"
OWNERS = {"north": ("A", "T", "E"), "south": ("S", "L", "B", "D"), "registry": ("X", "C", "F", "G")}
OF_TWO = {"north": ("A", "T", "E"), "south": ("S", "L")}


@dataclass(frozen=True, slots=True)
class DeploymentPlan:
    """Records and policies by party, and the model to learn from them."""

    protocol: str
    frames: Mapping[str, Sequence[pd.DataFrame]]
    policies: Mapping[str, Policy]
    key: str
    goal: LearningGoal
    linking: str | None = None
    session: str = "example"
    terms: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the session file."""
    more: Mapping[str, LearningGoal] = field(default_factory=dict)
    """Goals of further sessions over the same records, by session name."""


def write_deployment(
    folder: Path,
    plan: DeploymentPlan,
    *,
    ports: Mapping[str, int] | None = None,
    hosts: Mapping[str, str] | None = None,
) -> dict[str, Path]:
    """Write the files of each node into a folder of its own, and return the settings files by node.

    With `hosts`, each folder goes to the machine of its node; otherwise all nodes run on this machine.
    """
    kind = kinds.find(plan.protocol)
    parties = tuple(plan.frames)
    convener = parties[0] if kind.convener is kinds.Convener.ONE_OF_TWO else MINER
    nodes = tuple(dict.fromkeys((*parties, convener, *((HELPER,) if kind.helped else ()))))
    text = {
        "protocol": plan.protocol,
        "parties": parties,
        "convener": convener,
        "helper": HELPER if kind.helped else None,
        "linking": (plan.linking or "intersection") if kind.linked else None,
        **plan.terms,
    }
    spec, *others = [
        SessionSpec.model_validate({"session": name, "learn": goal.model_dump(exclude_defaults=True), **text})
        for name, goal in {plan.session: plan.goal, **plan.more}.items()
    ]
    made = ExampleDeployment(folder, nodes, ports=ports, hosts=hosts)
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
            settings |= write_data(folder / node, plan, node, keyed=spec.linking == "keyed")
            settings["consents"] = [_consent(each, plan, node) for each in (spec, *others)]
        elif node == HELPER:
            settings["consents"] = [consent_values(each) for each in (spec, *others)]
        file = "miner.yaml" if node in {MINER, HELPER} else "party.yaml"
        files[node] = made.write(f"{node}/{file}", settings)
        role = files[node].stem
        made.write_host_files(node, role, (role, "serve"), files[node])
    for each, file in [(spec, "session.yaml"), *((other, f"{other.session}.yaml") for other in others)]:
        made.write(file, {"masquerade": 1, **each.model_dump(mode="json", exclude_defaults=True)})
    return files


def _consent(spec: SessionSpec, plan: DeploymentPlan, node: str) -> dict[str, Any]:
    """Return the consent of a party to a session, which accepts exact results if there are any."""
    accepted = {"clear": "accepted"} if _is_exact(spec, plan, node) else {}
    return consent_values(spec, plan.policies[node].schema) | accepted


def _is_exact(spec: SessionSpec, plan: DeploymentPlan, node: str) -> bool:
    """Return True if a session reveals exact results about variables that a party's policy disguises."""
    policy = plan.policies[node]
    names = policy.schema.names
    sends = spec.kind.sends(spec, node, restrict_policy(policy, names, spec.needed_variables(names)))
    return session_total((), sends, policy, draw="", limit=limit_of(None, _with_limit(policy))).needs_clear


def write_data(folder: Path, plan: DeploymentPlan, node: str, *, keyed: bool) -> dict[str, Any]:
    """Write a party's records and policy, and return the settings that name them."""
    names = []
    for i, frame in enumerate(plan.frames[node]):
        name = "records.parquet" if len(plan.frames[node]) == 1 else f"records-{i + 1}.parquet"
        frame.to_parquet(folder / name, index=False)
        names.append(name)
    _with_limit(plan.policies[node]).save(folder / "policy.yaml")
    data: dict[str, Any] = {"files": names, "policy": "policy.yaml", "key": plan.key}
    return {"data": data | ({"linking_key": "linking.key"} if keyed else {})}


def _with_limit(policy: Policy) -> Policy:
    """Return the policy with a limit on γ: the default, or the least that its channels need."""
    gamma = policy.record_gamma
    if not policy.disguised or policy.limit is not None or not isinstance(gamma, Fraction):
        return policy
    needed = PrivacyLimit.parse({"gamma": math.ceil(gamma)})
    limit = DEFAULT_LIMIT if gamma <= DEFAULT_LIMIT.gamma else needed
    return policy.with_limit(limit, clear_accepted=True)


def add_person_keys(people: pd.DataFrame) -> pd.DataFrame:
    """Return the people with a column of keys, `person`."""
    return people.assign(person=[f"P{i:06d}" for i in range(len(people))])


def split_columns(
    people: pd.DataFrame,
    policy: Policy,
    owners: Mapping[str, Sequence[str]],
    protocol: str,
    goal: LearningGoal,
    *,
    seed: int,
    missing: float = 0.1,
    linking: str = "intersection",
) -> DeploymentPlan:
    """Split by columns: each party has its own columns, for a random sample of the people in random order.

    The sample has the share `1 - missing` of the people. With ``linking="keyed"`` each party has all people.
    """
    generator = np.random.default_rng(seed)
    keyed = add_person_keys(people)
    kept = len(people) if linking == "keyed" else round(len(people) * (1 - missing))
    frames = {
        party: [
            keyed.iloc[generator.permutation(len(people))[:kept]][["person", *names]].reset_index(drop=True)
        ]
        for party, names in owners.items()
    }
    policies = {party: restrict_to_variables(policy, names) for party, names in owners.items()}
    return DeploymentPlan(protocol, frames, policies, "person", goal, linking)


def split_cells(
    people: pd.DataFrame,
    policy: Policy,
    owners: Mapping[str, Sequence[str]],
    goal: LearningGoal,
    *,
    seed: int,
) -> DeploymentPlan:
    """Split by cells: each party has its own columns for one half of the people.

    For the other half, it has the columns of the next party.
    """
    keyed = add_person_keys(people)
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
        policies[party] = restrict_to_variables(policy, [*columns[0], *columns[1]])
    return DeploymentPlan(AnyCells.name, frames, policies, "person", goal, "intersection")


def split_rows(
    people: pd.DataFrame, policy: Policy, parties: Sequence[str], goal: LearningGoal, *, seed: int
) -> DeploymentPlan:
    """Split by rows: each party has all columns for some of the people."""
    generator = np.random.default_rng(seed)
    keyed = add_person_keys(people)
    at = generator.integers(0, len(parties), len(people))
    frames = {party: [keyed[at == i].reset_index(drop=True)] for i, party in enumerate(parties)}
    return DeploymentPlan(PooledCounts.name, frames, dict.fromkeys(parties, policy), "person", goal)


def _hidden_goal(model: str | None) -> LearningGoal:
    """Return the goal of a session that opens only a model, by the name of its learner."""
    names = tuple(ELEVEN_NODES)
    if model == "k-means":
        return LearningGoal(model="k-means", k=2, names=names, start=[[1] * len(names), [2] * len(names)])
    if model == "tree":
        return LearningGoal(model="tree", target="D", max_depth=2, min_records=10, significance=1)
    return LearningGoal(model="structure", order=names, max_parents=2, score="k2")


def two_hospitals_with_noise(protocol: str, people: int, epsilon: float, *, seed: int = 1) -> DeploymentPlan:
    """Return synthetic people at two hospitals that pool counts; no party knows the noise in the sums."""
    if not kinds.find(protocol).pooled:
        raise InputError(f"Only {PooledCounts.name} adds noise: give --protocol {PooledCounts.name}.")
    goal = LearningGoal(model="network", structure=dict(ELEVEN_NODES))
    sampled, policy = eleven_nodes().sample(people, seed=seed), Policy.clear(eleven_nodes_policy().schema)
    plan = split_rows(sampled, policy, ("north", "south"), goal, seed=seed)
    noise = {"epsilon": epsilon, "tables": len(ELEVEN_NODES), "colluders": 1}
    return replace(plan, terms={"noise": noise})


def two_hospitals_and_a_registry(protocol: str, people: int, *, seed: int = 1) -> DeploymentPlan:
    """Return synthetic people of the papers' 11-node network at two hospitals and a registry.

    The partition of the session type determines the data of each party:

    - columns: north has A, T and E, south has S, L, B and D, the registry has the rest. Sensitive variables
      are disguised as in the paper. Session types for two parties use five variables, since they encrypt each
      value.
    - cells: for half of the people as with columns; for the other half each party has its neighbour's
      columns.
    - rows: each party has all columns of its own people.

    The model is the parameters of a known network. If the session type opens only a model and no counts, the
    model is the structure of the network, two clusters by all variables (with categories as numbers), or a
    tree.
    """
    sampled = eleven_nodes().sample(people, seed=seed)
    kind, policy = kinds.find(protocol), eleven_nodes_policy()
    partition = kind.partition
    owners = OF_TWO if kind.convener is kinds.Convener.ONE_OF_TWO else OWNERS
    held = {name for names in owners.values() for name in names}
    goal = LearningGoal(
        model="network", structure={node: parents for node, parents in ELEVEN_NODES.items() if node in held}
    )
    if kind.hides:
        goal = _hidden_goal(kind.opens)
    if partition is kinds.Partition.COLUMNS:
        return split_columns(sampled, policy, owners, protocol, goal, seed=seed)
    if partition is kinds.Partition.CELLS:
        plan = split_cells(sampled, policy, OWNERS, goal, seed=seed)
    else:
        plan = split_rows(sampled, Policy.clear(policy.schema), tuple(OWNERS), goal, seed=seed)
    return replace(plan, protocol=protocol)
