"""Two hospitals, a registry and a university: made-up people of the papers' 11-node network, to try out."""

from __future__ import annotations

from dataclasses import replace

from masquerade.channels.policy import Policy
from masquerade.data.example_networks import ELEVEN_NODES, eleven_nodes, eleven_nodes_policy
from masquerade.services.parties.example import Plan, horizontal, scattered, vertical
from masquerade.services.parties.kinds import Partition, find
from masquerade.services.parties.session import Goal

OWNERS = {"north": ("A", "T", "E"), "south": ("S", "L", "B", "D"), "registry": ("X", "C", "F", "G")}


def two_hospitals_and_a_registry(protocol: str, people: int, *, seed: int = 1) -> Plan:
    """Return made-up people of the papers' 11-node network at two hospitals and a registry.

    Where parties hold the same people, north has A, T and E, south S, L, B and D, the registry the rest, and
    what is sensitive is disguised as in the paper; where cells lie anywhere, that holds for half of the
    people, and of the others each has its neighbour's columns. Where they hold different people, each has
    everything.
    """
    sampled = eleven_nodes().sample(people, seed=seed)
    goal = Goal(model="network", structure=ELEVEN_NODES)
    partition, policy = find(protocol).partition, eleven_nodes_policy()
    if partition is Partition.COLUMNS:
        return vertical(sampled, policy, OWNERS, protocol, goal, seed=seed)
    if partition is Partition.CELLS:
        plan = scattered(sampled, policy, OWNERS, goal, seed=seed)
    else:
        plan = horizontal(sampled, Policy.clear(policy.schema), tuple(OWNERS), goal, seed=seed)
    return replace(plan, protocol=protocol)
