"""Survival curves and logistic regressions in sessions: the same as of all records at one place, or near it.

False alarms: exact sessions agree to rounding. Of disguised records, 6 standard errors: below 1e-8 a number.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from tests.services.parties.deployments import (
    DeploymentPlan,
    LearningGoal,
    deployed,
    split_columns,
)
from tests.unit.stats.test_survival import remissions

import masquerade as mq
from masquerade.services.parties.example import split_cells

SURVIVAL = LearningGoal(model="survival", time="week", event="relapse", by=["arm"])
LOGISTIC = LearningGoal(model="logistic", target="sick", features=["smoker", "region"])
WEEKS = sorted(set(remissions()["week"]))
CLEAR = mq.Policy.clear(mq.Schema({"week": WEEKS, "relapse": ["no", "yes"], "arm": ["drug", "placebo"]}))
LINKED = "revealed-vertical-counts"


def sick_people(n, seed=1):
    """Return people whose illness depends on smoking and region, log odds ratios 1.1 and -0.7."""
    generator = np.random.default_rng(seed)
    smoker, region = generator.random(n) < 0.4, generator.integers(0, 3, n)
    odds = np.exp(-1 + 1.1 * smoker - 0.7 * (region == 1))
    sick = generator.random(n) < odds / (1 + odds)
    names = np.array(["islands", "north", "south"])
    return pd.DataFrame(
        {
            "smoker": np.where(smoker, "yes", "no"),
            "region": names[region],
            "sick": np.where(sick, "yes", "no"),
        }
    )


def people_policy(*, disguised):
    variables = {"smoker": ["no", "yes"], "region": ["islands", "north", "south"], "sick": ["no", "yes"]}
    channels = {"sick": mq.channels.binary("0.1"), "smoker": mq.channels.binary("0.1")} if disguised else {}
    return mq.Policy.build(variables, channels)


def by_rows(frame, policy, goal):
    """Return a plan in which three parties each have some of the people."""
    keyed = frame.assign(person=[f"P{i}" for i in range(len(frame))])
    parts = {
        party: [keyed.iloc[i::3].reset_index(drop=True)] for i, party in enumerate(("north", "south", "west"))
    }
    return DeploymentPlan("pooled-counts", parts, dict.fromkeys(parts, policy), "person", goal)


def test_survival_of_pooled_records_equals_that_of_all(tmp_path):
    frame = remissions().sample(frac=1, random_state=1)
    with deployed(tmp_path, by_rows(frame, CLEAR, SURVIVAL)) as deployment:
        model = deployment.done()
    whole = mq.stats.survival(mq.tally(frame, CLEAR), "week", "relapse", by="arm")
    # the published figure of Freireich's trial
    assert model["logrank"]["rows"][0]["chi2"] == pytest.approx(16.792941, abs=1e-6)
    for found, expected in zip(model["rows"], whole.to_dict()["rows"], strict=True):
        assert set(found) == set(expected)
        for name, value in expected.items():
            assert found[name] == (value if isinstance(value, str) else pytest.approx(value, rel=1e-9)), name
    assert np.log(model["hazard_ratio"]["rows"][0]["hazard_ratio"]) == pytest.approx(1.659, abs=5e-4)


def test_survival_of_linked_columns_counts_one_table(tmp_path):
    owners = {"north": ("week", "relapse"), "registry": ("arm",)}
    plan = split_columns(remissions(), CLEAR, owners, LINKED, SURVIVAL, seed=1, missing=0.0)
    with deployed(tmp_path, plan) as deployment:
        model = deployment.done()
        left = {(item.kind, tuple(sorted(item.variables))) for item in deployment.ledger("registry")}
    assert model["logrank"]["rows"][0]["chi2"] == pytest.approx(16.792941, abs=1e-6)
    assert {names for _, names in left} <= {("arm",), ("arm", "relapse", "week"), ("(key)",), ()}


def coefficients(model):
    return {row["term"]: (row["coef"], row["stderr"]) for row in model["rows"]}


OWNERS = {"north": ("sick",), "south": ("smoker", "region")}
SOME = {"north": ("sick",), "south": ("smoker",), "west": ("region",)}


def plan_of(protocol, frame, policy):
    """Return a plan by rows, by columns, or by any cells: each party has other columns of other people."""
    if protocol == "pooled-counts":
        return by_rows(frame, policy, LOGISTIC)
    if protocol.startswith("arbitrary"):
        plan = split_cells(frame, policy, SOME, LOGISTIC, seed=3)
        return replace(plan, protocol=protocol, linking="keyed")
    return split_columns(frame, policy, OWNERS, protocol, LOGISTIC, seed=1, missing=0.0)


@pytest.mark.parametrize(
    "protocol",
    [
        "pooled-counts",
        LINKED,
        "projection",
        "vertical-with-miner",
        "vertical-without-miner",
        "arbitrary-with-miner",
    ],
)
def test_a_logistic_regression_equals_that_of_all_records(tmp_path, protocol):
    """Coefficients, errors, p-values and profile intervals, of rows, columns and any cells."""
    frame, policy = sick_people(600), people_policy(disguised=False)
    expected = mq.stats.logistic(mq.tally(frame, policy), "sick ~ smoker + region").to_dict()
    with deployed(tmp_path, plan_of(protocol, frame, policy)) as deployment:
        model = deployment.done()
    assert any("errors: observed information" in note for note in model["notes"])
    assert len(model["rows"]) == len(expected["rows"]) == 4
    for found, known in zip(model["rows"], expected["rows"], strict=True):
        assert set(found) == set(known)
        for name, value in known.items():
            assert found[name] == (value if isinstance(value, str) else pytest.approx(value, abs=1e-5)), name


def test_a_logistic_regression_of_cells_counted_in_strata_has_sandwich_errors(tmp_path):
    """Each party counts some people in clear and others by their reports: there is no single likelihood."""
    frame, policy = sick_people(600), people_policy(disguised=False)
    expected = coefficients(mq.stats.logistic(mq.tally(frame, policy), "sick ~ smoker + region").to_dict())
    with deployed(tmp_path, plan_of("arbitrary-without-miner", frame, policy)) as deployment:
        model = deployment.done()
    assert any("Corrected score, since the records are counted in strata" in note for note in model["notes"])
    for term, (value, error) in coefficients(model).items():
        assert value == pytest.approx(expected[term][0], abs=1e-6)
        assert error == pytest.approx(expected[term][1], rel=0.1)


@pytest.mark.parametrize("protocol", ["pooled-counts", "vertical-with-miner", "arbitrary-with-miner"])
def test_a_logistic_regression_of_disguised_records_is_near_the_truth(tmp_path, protocol):
    frame, policy = sick_people(3000), people_policy(disguised=True)
    with deployed(tmp_path, plan_of(protocol, frame, policy)) as deployment:
        model = deployment.done()
    found = coefficients(model)
    assert any("errors: observed information" in note for note in model["notes"])
    truth = {"Intercept": -1.0, "smoker[T.yes]": 1.1, "region[T.north]": -0.7, "region[T.south]": 0.0}
    assert set(found) == set(truth)
    for term, value in truth.items():
        assert abs(found[term][0] - value) < 6 * found[term][1], term
        assert found[term][1] < 0.5
    reported = pd.DataFrame(mq.simulate(frame, policy, seed=1).to_dict("list"))  # without its policy
    naive = coefficients(
        mq.stats.logistic(
            mq.tally(reported, people_policy(disguised=False)), "sick ~ smoker + region"
        ).to_dict()
    )
    assert naive["smoker[T.yes]"][0] < 0.8  # reports taken as truth: pulled towards 0


def test_a_session_says_that_a_continuous_column_needs_bins(tmp_path):
    goal = LearningGoal(model="logistic", target="sick", features=["smoker", "weight"])
    plan = by_rows(sick_people(90), people_policy(disguised=False), goal)
    with deployed(tmp_path, plan) as deployment:
        status = deployment.run()
        assert not any(deployment.ledger(name) for name in plan.frames)
    assert status["state"] == "interrupted"
    assert "names 'weight', which no party brings" in status["reason"]
    assert "a continuous column is grouped into bins" in status["reason"]
