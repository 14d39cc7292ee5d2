"""Graphs: CPDAGs against all structures of four nodes, distances, cycles."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest

from masquerade.core.errors import InputError
from masquerade.learn.networks.graph import (
    ancestral_order,
    cpdag,
    descendants,
    differences,
    links,
    paths,
    shd,
    skeleton,
)

NODES = "abcd"
CHAIN = {"a": (), "b": ("a",), "c": ("b",)}
FORK = {"a": ("b",), "b": (), "c": ("b",)}
COLLIDER = {"a": (), "b": ("a", "c"), "c": ()}


def is_acyclic(structure):
    try:
        ancestral_order(structure)
    except InputError:
        return False
    return True


def all_structures():
    """Yield every acyclic structure over four nodes: there are 543."""
    pairs = list(combinations(NODES, 2))
    for marks in product((0, 1, 2), repeat=len(pairs)):
        parents = dict.fromkeys(NODES, ())
        for (a, b), mark in zip(pairs, marks, strict=True):
            if mark:
                parent, child = (a, b) if mark == 1 else (b, a)
                parents[child] = (*parents[child], parent)
        if is_acyclic(parents):
            yield parents


def colliders(structure):
    linked = skeleton(structure)
    return frozenset(
        (child, frozenset(pair))
        for child, parents in structure.items()
        for pair in combinations(parents, 2)
        if frozenset(pair) not in linked
    )


def test_cpdags_of_all_small_structures_are_those_of_their_classes():
    """Verma and Pearl: equivalent are those with the same skeleton and colliders."""
    classes: dict[object, list] = {}
    for structure in all_structures():
        classes.setdefault((frozenset(skeleton(structure)), colliders(structure)), []).append(structure)
    assert sum(map(len, classes.values())) == 543
    assert len(classes) == 185  # as counted by Gillispie and Perlman (2001)
    for members in classes.values():
        fixed = set.intersection(*(set(links(member)) for member in members))
        for member in members:
            found = cpdag(member)
            assert found.directed == fixed
            assert found.undirected == skeleton(member) - {frozenset(link) for link in fixed}


def test_distances_count_links_to_add_remove_or_turn():
    assert shd(CHAIN, CHAIN) == 0
    assert shd(CHAIN, FORK) == 1
    assert shd(cpdag(CHAIN), cpdag(FORK)) == 0
    assert shd(CHAIN, COLLIDER) == 1
    assert shd(cpdag(CHAIN), cpdag(COLLIDER)) == 2
    assert shd(CHAIN, {"a": (), "b": (), "c": ("a",)}) == 3
    assert differences(CHAIN, {"a": ("b",), "b": (), "c": ("a",)}) == (1, 1)
    assert cpdag(COLLIDER).mark("a", "b") == "->"
    assert cpdag(COLLIDER).mark("b", "a") == "<-"
    with pytest.raises(InputError, match="not one of each"):
        shd(CHAIN, cpdag(CHAIN))
    with pytest.raises(InputError, match="same nodes"):
        shd(CHAIN, {"a": ()})


def test_paths_and_cycles():
    assert descendants(CHAIN, "a") == {"a", "b", "c"}
    assert descendants(CHAIN, "c") == {"c"}
    assert is_acyclic(CHAIN)
    assert not is_acyclic({"a": ("b",), "b": ("a",)})
    with pytest.raises(InputError, match="cycle"):
        cpdag({"a": ("b",), "b": ("a",)})


def test_paths_are_those_of_repeated_multiplication():
    generator = np.random.default_rng(6)
    for size in (1, 2, 7, 20):
        order = generator.permutation(size).tolist()
        parents = [()] * size
        for place, node in enumerate(order):
            chosen = [other for other in order[:place] if generator.random() < 0.3]
            parents[node] = tuple(sorted(chosen))
        linked = np.zeros((size, size), dtype=int)
        for node, family in enumerate(parents):
            linked[list(family), node] = 1
        assert np.array_equal(
            paths(parents), np.linalg.matrix_power(np.eye(size, dtype=int) + linked, size) > 0
        )
