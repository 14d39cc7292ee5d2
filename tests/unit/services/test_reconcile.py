"""Reconciliation: the proposal is one that every party accepts, and says what stands against more."""

from __future__ import annotations

import json
import math
import os
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.e2e.test_cli_app import ok, refused

import masquerade as mq
from masquerade.core.errors import InputError
from masquerade.services.common.settings import load
from masquerade.services.parties.reconcile import Offer, reconcile

LEARNERS = ("network", "structure", "rules", "naive-bayes", "tree", "linear", "k-means", "tables")


def write_offer(folder, name, gammas, **fields):
    """Write a policy of variables with these γ (None: clear) and an offer."""
    categories = {it: [f"{i}" for i in range(2 + len(it) % 3)] for it in gammas}
    channels = {
        it: mq.channels.for_gamma(len(categories[it]), gamma) for it, gamma in gammas.items() if gamma
    }
    mq.Policy.build(categories, channels).save(folder / f"{name}-policy.yaml")
    values = {"party": name, "policy": f"{name}-policy.yaml", "people": 1000, **fields}
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps(values), encoding="utf-8")
    return path


def proposal_of(*paths):
    return reconcile([load(path, Offer, environment={}) for path in paths])


@pytest.mark.parametrize("way", ["above", "absolute", "link", "pipe"])
def test_an_offer_of_another_party_reads_no_policy_outside_its_folder(tmp_path, way):
    """A proposal states categories and bins: a private policy named by a received offer would be shown."""
    mine, received = tmp_path / "mine", tmp_path / "received"
    mine.mkdir()
    received.mkdir()
    north = write_offer(mine, "north", {"smoker": 3})
    private = mine / "north-policy.yaml"
    names = {"above": "../mine/north-policy.yaml", "absolute": str(private)}
    if way == "link":
        (received / "policy.yaml").symlink_to(private)
    if way == "pipe":
        os.mkfifo(received / "policy.yaml")
    south = write_offer(received, "south", {"smoker": 9}, policy=names.get(way, "policy.yaml"))
    said = refused("session", "reconcile", north, south)
    assert "policy" in said
    assert "smoker" not in said


def test_the_smallest_gamma_of_the_holders_is_proposed(tmp_path):
    north = write_offer(tmp_path, "north", {"smoker": 3, "age": None})
    south = write_offer(tmp_path, "south", {"smoker": 9, "age": 5})
    found = proposal_of(north, south)
    assert {it.names: (it.gamma, it.bound_by) for it in found.masks} == {
        ("smoker",): (3, ("north",)),
        ("age",): (5, ("south",)),
    }
    assert (found.partition, found.people) == ("rows", 2000)
    assert {(it.party, it.relax.partition(":")[0]) for it in found.relaxations} == {
        ("north", "smoker"),
        ("south", "age"),
    }


def test_the_strictest_limit_disguises_every_variable_further(tmp_path):
    north = write_offer(tmp_path, "north", {"smoker": 9, "age": 9}, limit="gamma=81")
    south = write_offer(tmp_path, "south", {"smoker": 9, "age": 9}, limit="gamma=9")
    found = proposal_of(north, south)
    assert found.policy.record_gamma <= 9
    assert all(Fraction(29, 10) < it.gamma <= 3 for it in found.masks)
    assert {it.party for it in found.relaxations} == {"south"}


def test_columns_of_several_parties_are_linked(tmp_path):
    north = write_offer(tmp_path, "north", {"smoker": 3}, people=500)
    south = write_offer(tmp_path, "south", {"age": 3}, people=800)
    found = proposal_of(north, south)
    assert (found.partition, found.people, len(found.masks)) == ("columns", 500, 2)


def test_what_one_party_refuses_is_left_out_and_named(tmp_path):
    north = write_offer(
        tmp_path, "north", {"smoker": 3, "age": 3}, withheld=["age"], learners=["tree"], receivers=["a"]
    )
    south = write_offer(
        tmp_path, "south", {"smoker": 3, "age": 3}, least_records=50, learners=["rules"], receivers=["b"]
    )
    found = proposal_of(north, south)
    assert found.left_out == (("age", "withheld by north"),)
    assert found.least_records == 50
    assert (found.receivers, found.is_possible) == ((), False)
    reasons = {it.learner: it.reason for it in found.learners}
    assert reasons["tree"] == "not accepted by south"
    assert reasons["linear"] == "not accepted by north, south"
    relaxed = {(it.party, it.relax) for it in found.relaxations}
    assert {("north", "learners: add rules"), ("south", "learners: add tree")} <= relaxed
    assert {("north", "receivers: add b"), ("south", "least_records: 50")} <= relaxed


def test_different_categories_and_groups_are_left_out(tmp_path):
    north = write_offer(tmp_path, "north", {"smoker": 3})
    south = write_offer(tmp_path, "south", {"smoker": 3})
    policy = mq.Policy.build({"smoker": ["x", "y"]}, {"smoker": mq.channels.for_gamma(2, 3)})
    policy.save(tmp_path / "south-policy.yaml")
    found = proposal_of(north, south)
    assert (found.policy, found.is_possible) == (None, False)
    assert found.left_out == (("smoker", "categories differ between north, south"),)
    pair = mq.Policy.build({"a": [0, 1], "b": [0, 1]}, {("a", "b"): mq.channels.for_gamma(4, 3)})
    alone = mq.Policy.build({"a": [0, 1], "b": [0, 1]}, {})
    pair.save(tmp_path / "north-policy.yaml")
    alone.save(tmp_path / "south-policy.yaml")
    found = proposal_of(north, south)
    assert found.masks == ()
    assert "disguised together" in dict(found.left_out)["a, b"]


def test_small_tables_leave_out_learners_that_count_all_variables(tmp_path):
    north = write_offer(tmp_path, "north", {"a": 3, "bb": 3, "ccc": 3}, most_variables=2)
    south = write_offer(tmp_path, "south", {"a": 3, "bb": 3, "ccc": 3})
    found = proposal_of(north, south)
    margins = {it.learner: it.margin for it in found.learners}
    assert margins["linear"] is None
    assert margins["tables"] < margins["tree"] == margins["network"]
    assert [it.width for it in found.errors] == [1, 2]


def test_an_expected_error_is_that_of_the_estimates(tmp_path):
    """The margin of a clear share of one half is 1.96·√(¼/n); with γ = 3 it is twice as large."""
    for gamma, factor in ((None, 1.0), (3, 2.0)):
        paths = [write_offer(tmp_path, name, {"one": gamma}) for name in ("north", "south")]
        (error,) = proposal_of(*paths).errors
        assert error.typical == pytest.approx(factor * 1.959964 * math.sqrt(0.25 / 2000), rel=1e-4)


GAMMAS = st.one_of(st.none(), st.integers(2, 30))
OFFERS = st.fixed_dictionaries(
    {
        "gammas": st.dictionaries(st.sampled_from(["a", "bb", "ccc", "dddd"]), GAMMAS, min_size=1),
        "limit": st.one_of(st.none(), st.integers(2, 200)),
        "least_records": st.integers(1, 100),
        "most_variables": st.one_of(st.none(), st.integers(1, 4)),
        "learners": st.one_of(st.none(), st.lists(st.sampled_from(LEARNERS), unique=True)),
        "receivers": st.one_of(st.none(), st.lists(st.sampled_from("xyz"), unique=True)),
    }
)


@settings(max_examples=40, deadline=None)
@given(st.lists(OFFERS, min_size=2, max_size=4))
def test_every_party_accepts_the_proposal(tmp_path_factory, offers):
    folder = tmp_path_factory.mktemp("offers")
    paths = []
    for i, offer in enumerate(offers):
        fields = {name: value for name, value in offer.items() if name != "gammas" and value is not None}
        if "limit" in fields:
            fields["limit"] = f"gamma={fields['limit']}"
        paths.append(write_offer(folder, f"party {i}", offer["gammas"], **fields))
    found = proposal_of(*paths)
    for offer in offers:
        for mask in found.masks:
            (name,) = mask.names
            least = offer["gammas"].get(name)
            assert name not in offer["gammas"] or least is None or mask.gamma <= least
        if found.policy is not None and offer["limit"] is not None and found.policy.disguised:
            assert found.policy.record_gamma <= offer["limit"]
        assert found.least_records >= offer["least_records"]
        if offer["most_variables"] is not None:
            assert found.most_variables <= offer["most_variables"]
        if offer["learners"] is not None:
            assert {it.learner for it in found.learners if it.margin is not None} <= set(offer["learners"])
        if offer["receivers"] is not None:
            assert set(found.receivers) <= set(offer["receivers"])


def test_offers_that_cannot_be_combined_raise(tmp_path):
    north = write_offer(tmp_path, "north", {"a": 3})
    with pytest.raises(InputError, match="two parties or more"):
        proposal_of(north)
    with pytest.raises(InputError, match="'north' makes two offers"):
        proposal_of(north, north)
    with pytest.raises(InputError, match="'trees' is not one of network"):
        proposal_of(north, write_offer(tmp_path, "south", {"a": 3}, learners=["trees"]))
    with pytest.raises(InputError, match="'age'"):
        proposal_of(north, write_offer(tmp_path, "south", {"a": 3}, withheld=["age"]))


def test_the_command_prints_and_writes_the_proposal(tmp_path):
    north = write_offer(tmp_path, "north", {"smoker": 3}, receivers=["university"])
    south = write_offer(tmp_path, "south", {"smoker": 9})
    shown = ok("session", "reconcile", north, south, "--policy", tmp_path / "common.yaml").stdout
    assert "The model goes to: university." in shown
    assert "smoker: γ = 3 to γ = 9" in shown
    assert mq.Policy.load(tmp_path / "common.yaml").record_gamma == 3
    values = json.loads(ok("session", "reconcile", north, south, "--json").stdout)
    assert values["masks"][0]["gamma"] == 3
    assert "two parties or more" in refused("session", "reconcile", north)
