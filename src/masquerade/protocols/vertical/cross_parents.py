"""Which variables must cross between parties for a given structure.

Reference: Ma (2006), section 5.2, after Chen, Sivakumar & Kargupta (2004): definitions 1 and 2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from masquerade.core.errors import InputError

Structure = Mapping[str, Sequence[str]]
T = TypeVar("T")


def owner_of(sites: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return who holds each variable; one that two parties hold is refused."""
    owner: dict[str, str] = {}
    for party, names in sites.items():
        for name in names:
            if name in owner:
                raise InputError(
                    f"Variable {name!r} is held by two parties; in a vertical partition one holds it."
                )
            owner[name] = party
    return owner


def cross_parents(
    structure: Structure, sites: Mapping[str, Sequence[str]]
) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return the cross parents of one party for another: variables of (giver, receiver) that must cross.

    >>> cross_parents({"a": (), "b": ("a",)}, {"x": ["a"], "y": ["b"]})
    {('x', 'y'): ('a',)}
    """
    owner = owner_of(sites)
    found: dict[tuple[str, str], dict[str, None]] = {}
    for node, parents in structure.items():
        for parent in parents:
            if node not in owner or parent not in owner:
                raise InputError(f"Nobody holds {node if node not in owner else parent!r}.")
            if owner[parent] != owner[node]:
                found.setdefault((owner[parent], owner[node]), {})[parent] = None
    return {pair: tuple(names) for pair, names in found.items()}


def own_families(structure: Structure, own: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the structure that one party learns: its own nodes with all parents, foreign ones with none."""
    foreign = dict.fromkeys(parent for node in own for parent in structure[node] if parent not in own)
    return {**dict.fromkeys(foreign, ()), **{node: tuple(structure[node]) for node in own}}


def assembled(found: Mapping[str, Mapping[str, T]], sites: Mapping[str, Sequence[str]]) -> dict[str, T]:
    """Return one mapping over all nodes, each as its own party found it; nobody else's word counts."""
    whole: dict[str, T] = {}
    for party, names in sites.items():
        for name in names:
            if name not in found.get(party, {}):
                raise InputError(f"Party {party!r} said nothing about its variable {name!r}.")
            whole[name] = found[party][name]
    return whole
