"""Learnt structures: as graphs, saved and read back, refused when damaged."""

import json

import pandas as pd
import pytest

import masquerade as mq
from masquerade.core.errors import InputError
from masquerade.learn.catalogue import learner
from masquerade.learn.networks.graph import to_networkx
from masquerade.learn.networks.link_strength import LearnedStructure, Strength

SOURCE = mq.tally(pd.DataFrame({"a": list("xxyy") * 20, "b": list("uuvv") * 20, "c": list("pqpq") * 20}))
CHAIN = {"a": (), "b": ("a",), "c": ("b",)}


def learned():
    strengths = (Strength("a", "b", 5.0, 1.0, 0.025), Strength("b", "c", 20.0, 2.0, 1e-5))
    return LearnedStructure(CHAIN, strengths, "bic", {"kind": "likelihood"}, ("a", "b", "c"))


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
    assert "3 nodes, 2 links by K2, score bic, likelihood" in text
    assert text.index("b → c") < text.index("a → b")  # weakest last
    assert before.cpdag().undirected == {frozenset("ab"), frozenset("bc")}


def test_strengths_say_how_often_samples_have_the_link():
    plain = learned()
    drawn = plain.with_frequencies({("a", "b"): 0.75, ("a", "c"): 1.0})
    assert {(s.parent, s.child): s.frequency for s in drawn.strengths} == {("a", "b"): 0.75, ("b", "c"): 0.0}
    assert LearnedStructure.from_dict(json.loads(json.dumps(drawn.to_dict()))).strengths == drawn.strengths
    assert "75%" in drawn.summary()
    assert "found in" not in plain.summary()
    done = []
    options = learner("structure").read({"resample": 2, "max_parents": 1}, SOURCE.schema)
    found = learner("structure").fit(SOURCE, options, lambda *step: done.append(step))
    assert done == [(1, 2), (2, 2)]
    assert all(s.frequency in {0.0, 0.5, 1.0} for s in found.strengths)
    assert found.strengths


def test_structures_of_earlier_versions_keep_their_design_effects():
    older = learned().to_dict() | {"correction": {"kind": "design_effect"}}
    for item in older["strengths"]:
        item["design_effect"] = 2.5
    found = LearnedStructure.from_dict(json.loads(json.dumps(older)))
    assert {s.design_effect for s in found.strengths} == {2.5}
    assert found.to_dict() == older
    assert "design effect" in found.summary()
    assert "design effect" not in learned().summary()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"masquerade_model": 2}, "format 2"),
        ({"kind": "naive_bayes"}, "not 'structure'"),
        ({"parents": [1]}, "must be of type dict"),
        ({"parents": {"a": ["b"], "b": ["a"], "c": ["b"]}}, "cycle"),
        ({"parents": {"a": "b", "b": [], "c": []}}, "lists of texts"),
        ({"strengths": learned().to_dict()["strengths"][:1] * 2}, "not those of its links"),
        ({"strengths": [{"parent": "a"}]}, "damaged"),
        ({"strengths": [learned().to_dict()["strengths"][0] | {"p_value": "0"}]}, "numbers of 0 or more"),
        ({"strengths": [learned().to_dict()["strengths"][0] | {"p_value": 7.5}]}, "between 0 and 1"),
        ({"strengths": [learned().to_dict()["strengths"][0] | {"frequency": 7.5}]}, "between 0 and 1"),
        ({"strengths": [learned().to_dict()["strengths"][0] | {"statistic": 10**400}]}, "finite numbers"),
        ({"order": [1]}, "lists of texts"),
    ],
)
def test_damaged_structures_are_refused(change, message):
    with pytest.raises(InputError, match=message):
        LearnedStructure.from_dict(learned().to_dict() | change)


def test_a_structure_that_was_found_on_shares_has_no_strengths():
    found = LearnedStructure.from_dict(learned().to_dict() | {"strengths": []})
    assert found.strengths == ()
    assert found.structure == learned().structure


def test_the_summary_says_which_arrows_were_drawn_without_a_reason():
    parents = {"a": (), "c": ("a", "b"), "b": (), "d": ("c",), "e": ("d",)}
    collider = LearnedStructure(parents, (), "bic", {"kind": "likelihood"})
    assert "do not tell" not in collider.summary()
    chain = {"a": (), "b": ("a",), "c": ("b",)}
    climbed = LearnedStructure(chain, (), "bic", {"kind": "likelihood"})
    assert climbed.summary().splitlines()[-1] == "counts do not tell the direction of a – b, b – c"
    ordered = LearnedStructure(chain, (), "bic", {"kind": "likelihood"}, ("a", "b", "c"))
    assert "do not tell" not in ordered.summary()
