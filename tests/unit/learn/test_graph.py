"""Graphs: CPDAGs against all structures of four nodes, distances, averages, saved structures."""

from __future__ import annotations

import json
from itertools import combinations, product

import pytest

from masquerade.core.errors import InputError
from masquerade.learn.graph import (
    averaged,
    cpdag,
    descendants,
    differences,
    is_acyclic,
    links,
    shd,
    skeleton,
    to_networkx,
)
from masquerade.learn.link_strength import LearnedStructure, Strength

NODES = "abcd"
CHAIN = {"a": (), "b": ("a",), "c": ("b",)}
FORK = {"a": ("b",), "b": (), "c": ("b",)}
COLLIDER = {"a": (), "b": ("a", "c"), "c": ()}


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


def test_averages_keep_frequent_links_in_their_frequent_direction():
    mean = averaged([CHAIN, CHAIN, FORK, {"a": (), "b": (), "c": ("a",)}])
    assert mean.structure == CHAIN
    assert mean.frequency == {("a", "b"): 0.5, ("a", "c"): 0.25, ("b", "a"): 0.25, ("b", "c"): 0.75}
    assert "* b → c  0.750" in mean.summary()
    assert averaged([CHAIN, FORK], threshold=0.99).structure == CHAIN  # a tie: from the earlier node


def test_averages_have_no_cycle():
    """Every structure is acyclic, the three most frequent directions are not."""
    turned = [
        {"a": (), "b": ("a",), "c": ("b",)},
        {"a": ("c",), "b": (), "c": ("b",)},
        {"a": ("c",), "b": ("a",), "c": ()},
    ]
    mean = averaged(turned)
    assert is_acyclic(mean.structure)
    assert len(links(mean.structure)) == 3
    with pytest.raises(InputError, match="at least one"):
        averaged([])
    with pytest.raises(InputError, match="same nodes"):
        averaged([CHAIN, {"a": ()}])
    with pytest.raises(InputError, match="threshold"):
        averaged([CHAIN], threshold=1.0)


def learned():
    strengths = (Strength("a", "b", 12.5, 2.5, 1.0, 0.025), Strength("b", "c", 40.0, 2.0, 1.5, 1e-5))
    return LearnedStructure(CHAIN, strengths, "bic", {"kind": "design_effect"}, ("a", "b", "c"))


def test_structures_become_networkx_graphs():
    graph = learned().to_networkx()
    assert set(graph.edges) == {("a", "b"), ("b", "c")}
    assert graph.edges["a", "b"]["p_value"] == 0.025
    assert list(to_networkx({"a": (), "z": ()}).nodes) == ["a", "z"]


def test_structures_are_saved_and_read_back():
    before = learned()
    after = LearnedStructure.from_dict(json.loads(json.dumps(before.to_dict())))
    assert after.to_dict() == before.to_dict()
    assert after.structure == CHAIN
    assert after.strengths == before.strengths
    text = before.summary()
    assert "3 nodes, 2 links by K2, score bic, design_effect" in text
    assert text.index("b → c") < text.index("a → b")  # weakest last
    assert before.cpdag().undirected == {frozenset("ab"), frozenset("bc")}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"masquerade_model": 2}, "format 2"),
        ({"kind": "naive_bayes"}, "not 'structure'"),
        ({"parents": [1]}, "must be of type dict"),
        ({"parents": {"a": ["b"], "b": ["a"], "c": ["b"]}}, "cycle"),
        ({"parents": {"a": "b", "b": [], "c": []}}, "lists of texts"),
        ({"strengths": []}, "not those of its links"),
        ({"strengths": [{"parent": "a"}]}, "damaged"),
        ({"strengths": [learned().to_dict()["strengths"][0] | {"p_value": "0"}]}, "numbers from 0"),
        ({"order": [1]}, "lists of texts"),
    ],
)
def test_damaged_structures_are_refused(change, message):
    with pytest.raises(InputError, match=message):
        LearnedStructure.from_dict(learned().to_dict() | change)
