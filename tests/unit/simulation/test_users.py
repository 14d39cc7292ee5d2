"""People counted by each protocol: the model of the clear records, cheaters named, costs charged to whom."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import masquerade as mq
from masquerade.core.errors import InputError, QueryRefused, RoundAborted
from masquerade.learn.catalogue import LEARNERS
from masquerade.simulation import (
    PEOPLE,
    Lesson,
    Trouble,
    frequency,
    people_from,
    synthetic_people,
    users,
)
from masquerade.simulation.aggregation import STUFFED
from masquerade.simulation.people import FEW

BAYES = Lesson("naive-bayes", "income", FEW)


def test_synthetic_people_are_the_same_for_the_same_seed_and_like_a_census():
    people, again, others = synthetic_people(5000), synthetic_people(5000), synthetic_people(5000, seed=3)
    assert all((people.codes[name] == again.codes[name]).all() for name in PEOPLE)
    assert any((people.codes[name] != others.codes[name]).any() for name in PEOPLE)
    rich = people.codes["income"] == 1
    assert 0.15 < rich.mean() < 0.35  # a quarter in the census extract
    assert rich[people.codes["education"] == 2].mean() > 1.5 * rich[people.codes["education"] == 0].mean()


def test_a_regression_comes_out_as_from_clear_records():
    found = users(synthetic_people(200), Lesson("logistic", "income", ("sex",)), "mix")
    assert found.compared.equal
    assert len(found.model.values) == 2  # an intercept and a slope


def test_survival_needs_times_of_events():
    with pytest.raises(InputError, match="times of events"):
        users(synthetic_people(40), Lesson("survival", "income"), "mix")


@pytest.mark.parametrize("kind", [kind for kind in LEARNERS if kind not in {"logistic", "survival"}])
def test_every_lesson_comes_out_as_from_clear_records(kind):
    found = users(synthetic_people(40), Lesson(kind, "income"), "mix")
    assert found.compared.equal
    assert found.compared.counts >= 36 or kind == "tree"
    assert (found.n, found.counted, found.left, found.caught) == (40, 40, 0, ())
    assert found.model.summary()


@pytest.mark.parametrize(
    ("protocol", "left", "caught"), [("frequency", 2, 1), ("aggregation", 2, 0), ("mix", 2, 1)]
)
def test_people_may_leave_and_cheaters_are_named_where_that_can_be(protocol, left, caught):
    trouble = Trouble(0.05, 0.02, seed=4)
    leaving, cheating = trouble.among(30)
    found = users(synthetic_people(30), BAYES, protocol, trouble=trouble)
    assert (len(leaving), len(cheating)) == (2, 1)
    assert (found.left, len(found.caught), found.counted) == (left, caught, 30 - left - caught)
    if caught:
        assert [one.name for one in found.caught] == [f"user {place + 1}" for place in cheating]
        assert found.compared.equal
    else:
        assert not found.compared.equal
        assert found.compared.largest == STUFFED
        assert "this cannot be detected" in " ".join(found.notes)


def test_frequency_mining_goes_on_without_those_who_leave_and_in_another_epoch_after_a_cheat():
    found = users(synthetic_people(24), BAYES, "frequency", trouble=Trouble(0.04, 0.04))
    first, second = found.notes
    assert "1 of 24 users did not answer" in first
    assert "No vote had been sent" in first
    assert "1 of 23 users were not proved valid" in second
    assert "another epoch" in second
    assert "a miner that lied about the cheating could compute the difference" in second
    (said,) = [text for text in found.guarantee.assumptions if "agreed to an exception" in text]
    assert "of this epoch and of simulation 1 may differ by few users" in said
    assert found.cost.rounds == 3
    quiet = users(synthetic_people(24), BAYES, "frequency")
    assert (quiet.notes, quiet.cost.rounds) == ((), 1)
    assert not [text for text in quiet.guarantee.assumptions if "agreed to an exception" in text]


def test_people_who_did_not_agree_are_not_counted_in_another_epoch(monkeypatch):
    monkeypatch.setattr(frequency, "MiningUser", unmoved(frequency.MiningUser))
    with pytest.raises(QueryRefused, match="as counted in epoch 'simulation 1': 1 of the 24 users") as caught:
        users(synthetic_people(24), BAYES, "frequency", trouble=Trouble(0, 0.04))
    assert [refusal.code for refusal in caught.value.refusals] == ["departed_too_few"]


def unmoved(user):
    """Return users who agree to nothing, whatever the simulation says."""
    return lambda *given, **named: user(*given, **{**named, "agreed": ()})


def test_the_disguise_comes_first_and_is_corrected():
    policy = mq.Policy.build(PEOPLE, {name: mq.channels.for_gamma(len(PEOPLE[name]), 19) for name in PEOPLE})
    for protocol in ("frequency", "aggregation", "mix"):
        found = users(synthetic_people(60, policy), BAYES, protocol, server="semi-honest")
        assert not found.compared.equal
        # 10 standard errors are 20 of 60 changed where 3 are expected (binomial, 1 in 20), or 28 where 5.7
        # are (2 in 21): chances below 1e-10, for 12 counts
        assert 0 < found.compared.errors < 10
        assert all(item.gamma is not None for item in found.guarantee.disclosures)


def test_costs_are_charged_to_whom_they_belong():
    found = {
        protocol: users(synthetic_people(40), BAYES, protocol).cost
        for protocol in ("frequency", "aggregation", "mix")
    }
    assert [cost.measured_on for cost in found.values()] == [3, 5, 40]
    assert [list(cost.roles) for cost in found.values()] == [
        ["miner"],
        ["server"],
        ["miner", "leader 1", "leader 2"],
    ]
    for cost in found.values():
        assert 0 < cost.client_seconds.mean <= cost.client_seconds.worst
        assert 0 < cost.sent.mean <= cost.sent.worst
        assert all(seconds > 0 for seconds in cost.roles.values())
        assert cost.server_seconds == pytest.approx(sum(cost.roles.values()))
    # everybody gets the keys of all others, 2 points for each of 10 counts, at least
    assert found["frequency"].received.mean > 40 * 10 * 2 * 33


def test_frequency_mining_refuses_too_many_counts_with_its_reason():
    lesson = Lesson("naive-bayes", "income")
    with pytest.raises(QueryRefused, match=r"1,400 users and 36 counts make 50,400 pairs of keys"):
        users(synthetic_people(1400), lesson, "frequency")


def test_a_round_that_too_many_leave_is_void():
    with pytest.raises((RoundAborted, InputError)):
        users(synthetic_people(40), BAYES, "aggregation", trouble=Trouble(0.6))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: users(synthetic_people(20), Lesson("naive-bayes"), "mix"), "needs a target"),
        (lambda: users(synthetic_people(20), Lesson("network"), "mix"), "needs a target"),
        (lambda: users(synthetic_people(20), Lesson("forest", "income"), "mix"), "no learner 'forest'"),
        (lambda: users(synthetic_people(20), Lesson("tree", "wage"), "mix"), "no variable 'wage'"),
        (lambda: users(synthetic_people(20), BAYES, "magic"), "must be one of frequency"),
        (lambda: synthetic_people(20).first(21), "from 1 to 20, the number of people. Got 21"),
        (lambda: Trouble(0.7, 0.4).among(10), "7 would leave and 4 cheat"),
        (lambda: Trouble("many").among(10), "share of dropouts"),
        (lambda: Trouble(0, 1).among(10), "share of cheaters"),
    ],
)
def test_what_cannot_be_is_refused(call, said):
    with pytest.raises(mq.MasqueradeError, match=said):
        call()


def test_own_records_and_a_given_network():
    generator = np.random.default_rng(1)
    frame = pd.DataFrame({"a": generator.integers(0, 2, 30), "b": generator.integers(0, 3, 30)})
    people = people_from(frame)
    assert sorted(zip(*people.codes.values(), strict=True)) == sorted(
        frame.itertuples(index=False, name=None)
    )
    found = users(people, Lesson("network", parents={"a": (), "b": ("a",)}), "mix")
    assert found.compared.equal
    assert found.model.structure == {"a": (), "b": ("a",)}


def test_plain_values_hold_it_all():
    found = users(synthetic_people(25), Lesson("tables", "income", FEW), "mix", trouble=Trouble(0, 0.04))
    plain = found.to_dict()
    assert plain["counted"] == 24
    assert plain["caught"][0]["why"] == "its ciphertext has no valid proof"
    assert plain["compared_with_clear"]["equal"] is True
    assert [table["by"] for table in plain["model"]["tables"]] == [
        ["income", "sex"],
        ["income", "hours"],
    ]
    assert sum(map(sum, plain["model"]["tables"][0]["values"])) == 24
    assert set(plain["cost"]) >= {"client_seconds", "sent", "received", "roles", "wall", "rounds"}
