"""Frequency mining counts exactly what is there, and every learner runs on it unchanged."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.protocols.frequency_mining.people import BY_REGION, SMOKES, Village, frame, policy

import masquerade as mq
from masquerade.core.errors import InputError, QueryRefused, RoundAborted
from masquerade.core.table import PROJECTIONS
from masquerade.protocols.frequency_mining.messages import FrequencyTerms
from masquerade.simulation import people_from
from masquerade.simulation.frequency import FrequencyMining
from masquerade.sources.people.frequency import FrequencyTally
from masquerade.sources.records import Records

QUERIES = [
    mq.Query(by=("ill", "smoker")),
    mq.Query(by=("region",), where={"smoker": "yes"}),
    mq.Query(by=("smoker",), where={"ill": True, "region": "s"}),
    mq.Query(where={"smoker": "no"}),
    mq.Query(),
]
STRATA = {"by": "ill", "channels": {True: {"smoker": {"kind": "binary", "p": 0.05}}}}


def behind(village: Village) -> Records:
    """Return the reports of all users as records, which nobody but a test can see."""
    reports = [user._reports for user in village.users.values()]
    codes = {
        name: np.array([report[name] for report in reports], dtype=np.uint8) for name in village.policy.schema
    }
    return Records(codes, village.policy)


def mined(village: Village) -> FrequencyTally:
    return FrequencyTally(
        village.terms, lambda user, data: village.users[user].receive(data), shared_checks=True, workers=1
    )


def same(one, other):
    assert one.n == other.n
    assert one.names == other.names
    np.testing.assert_allclose(one.values, other.values, rtol=1e-9, atol=1e-9)
    for kind in ("population", "given_records"):
        np.testing.assert_allclose(
            one.covariance.dense(kind=kind), other.covariance.dense(kind=kind), rtol=1e-9, atol=1e-9
        )


@pytest.mark.parametrize(
    "used",
    [
        policy(),
        policy("smoker", "region", "ill"),
        policy("smoker"),
        policy(
            "region", joint=[{"variables": ["smoker", "ill"], "channel": {"kind": "symmetric", "p": 0.3}}]
        ),
        policy("smoker", strata=STRATA),
    ],
    ids=["clear", "disguised", "partly", "jointly", "strata"],
)
def test_answers_are_those_of_the_reports_in_one_round(used):
    village = Village(12, used)
    tally, truth = mined(village), behind(village)
    assert tally.check(QUERIES) == []
    answers = tally.answer(QUERIES)
    assert tally.rounds == 1
    for found, wanted in zip(answers, truth.answer(QUERIES), strict=True):
        same(found, wanted)
        for method in PROJECTIONS:
            np.testing.assert_allclose(
                found.nonnegative(method).values, wanted.nonnegative(method).values, atol=0.05
            )
    assert tally.rounds == 1  # projections asked nobody
    assert isinstance(tally, mq.Tally)


def test_a_clear_count_is_the_clear_count():
    data = frame(15)
    tally = FrequencyMining(people_from(data, policy(), seed=None), minimum=5, alone=len(data)).tally()
    (table,) = tally.answer([mq.Query(by=("region", "ill"))])
    (wanted,) = mq.tally(data, schema=policy()).answer([mq.Query(by=("region", "ill"))])
    np.testing.assert_array_equal(table.values, wanted.values)
    assert "simulation" not in " ".join(tally.guarantee.assumptions)


def test_what_is_known_is_not_asked_again():
    village = Village(5)
    tally = mined(village)
    tally.answer([mq.Query(by=("smoker", "region"))])
    more = [
        mq.Query(by="region"),
        mq.Query(by="smoker", where={"region": "n"}),
        mq.Query(where={"smoker": "yes"}),
    ]
    assert tally.check(more) == []
    for found, wanted in zip(tally.answer(more), behind(village).answer(more), strict=True):
        same(found, wanted)
    assert tally.rounds == 1
    tally.answer([mq.Query(by="ill")])
    assert tally.rounds == 2


def test_a_batch_asks_no_margin_that_follows_from_another():
    village = Village(5)
    asked = mined(village).new_questions([mq.Query(by=name) for name in ("ill", "region")])
    assert len(asked) == 2
    both = [mq.Query(by="ill"), mq.Query(by=("ill", "region")), mq.Query(by="region")]
    assert [question.columns for question in mined(village).new_questions(both)] == [("region", "ill")]


def test_learners_run_unchanged():
    data = frame(20, seed=5)
    clear = mq.tally(data, schema=policy())
    tally = FrequencyMining(people_from(data, policy(), seed=None), minimum=5).tally()
    order = ["ill", "smoker", "region"]
    found = mq.learn.structure(tally, order=order, max_parents=2)
    assert found.links == mq.learn.structure(clear, order=order, max_parents=2).links
    models = [
        [
            mq.learn.naive_bayes(source, target="ill").summary(),
            mq.learn.decision_tree(source, target="ill", significance=None).summary(),
            mq.learn.association_rules(source, min_support=0.2, min_confidence=0.5).summary(),
            mq.learn.bayesian_network(source, found).summary(),
        ]
        for source in (clear, tally)
    ]
    assert models[0] == models[1]
    assert tally.rounds <= 4


def test_the_disguise_is_drawn_once_and_the_guarantee_says_what_it_adds():
    used = policy("smoker", "region")
    tally = mined(Village(6, used))
    gammas = {item.variables: item.gamma for item in tally.guarantee.disclosures}
    assert gammas == {("smoker",): 4, ("region",): pytest.approx(14 / 3), ("ill",): None}
    assert {item.role for item in tally.guarantee.disclosures} == {"miner"}
    assert (tally.guarantee.colluders, tally.guarantee.dropouts, tally.guarantee.integrity) == (
        1,
        0,
        "identifies",
    )
    assert tally.guarantee.excluded_coalitions == (("miner", "2 users"),)
    assert tally.guarantee.adversaries == {"miner": "malicious", "user": "malicious"}
    words = " ".join(tally.guarantee.assumptions)
    assert "at least two" in words
    assert "even if all other users collude" in words
    assert "checked once, for all users of the process" in words
    assert "collude" not in " ".join(mined(Village(6)).guarantee.assumptions)


def test_too_many_keys_to_check_are_refused_with_the_reason():
    village = Village(5)
    names = {f"m{i}": (5 + i).to_bytes(32, "little") for i in range(17_000)}
    terms = FrequencyTerms("e", village.policy, names, 3)
    tally = FrequencyTally(terms, lambda _user, _data: pytest.fail("nobody is asked"))
    assert tally.check([mq.Query(by="smoker")]) == []
    (found,) = tally.check([mq.Query(by="region")])
    assert found.code == "too_many_cells"
    assert "17,000 users and 3 counts make 51,000 pairs of keys" in found.reason
    with pytest.raises(QueryRefused, match="at most 50,000"):
        tally.answer([mq.Query(by="region")])


def test_a_small_roster_is_refused_by_the_tally_and_by_every_user():
    village = Village(5, minimum=4)
    small = FrequencyTally(village.terms, lambda _u, _d: pytest.fail("nobody is asked"), village.names[:3])
    (found,) = small.check([mq.Query(by="ill")])
    assert found.code == "roster_too_small"
    current = village.round(users=village.names[:3])
    with pytest.raises(QueryRefused, match="3 users take part, and at least 4 must"):
        village.step(current)
    with pytest.raises(InputError, match="at least 3"):
        FrequencyTerms("e", village.policy, village.terms.members, 2)


def test_a_user_who_left_before_any_vote_is_left_out_and_nothing_is_spent():
    data = frame(8)
    people = FrequencyMining(people_from(data, policy(), seed=None), minimum=5)
    tally = people.tally()
    people.gone.add("user 3")
    with pytest.raises(RoundAborted, match="user 3") as caught:
        tally.answer([mq.Query(by="ill")])
    assert (caught.value.spent, caught.value.culprits) == (False, ("user 3",))
    assert tally.check([mq.Query(by="ill")]) == []
    (table,) = tally.answer([mq.Query(by="ill")])
    (wanted,) = mq.tally(data.drop(index=2), schema=policy()).answer([mq.Query(by="ill")])
    np.testing.assert_array_equal(table.values, wanted.values)
    assert table.n == tally.n == 7
    assert tally.guarantee.colluders == 3  # of the five that the miner might have chosen, not of seven


def test_unanswerable_questions_are_refused_as_everywhere():
    spec = policy("smoker").to_dict()
    spec["variables"]["smoker"]["channel"]["p"] = 0.5
    tally = mined(Village(5, mq.Policy.from_dict(spec)))
    assert [refusal.code for refusal in tally.check([mq.Query(by="smoker")])] == ["singular"]
    assert tally.check([mq.Query(by="ill")]) == []
    with pytest.raises(InputError, match=r"answer\(\[query\]\)"):
        tally.answer(mq.Query(by="ill"))
    with pytest.raises(InputError, match="members"):
        FrequencyTally(tally.terms, lambda _u, _d: None, ["nobody"])


def test_a_round_returns_the_tables_it_was_asked_for():
    village = Village(5)
    current = village.until(village.round([SMOKES, BY_REGION]), "done")
    smokers, regions = current.tables.values()
    assert int(smokers) == int((village.data["smoker"] == "yes").sum())
    assert regions.tolist() == [int((village.data["region"] == label).sum()) for label in ("n", "s", "e")]
