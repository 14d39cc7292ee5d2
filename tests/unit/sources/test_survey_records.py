"""Complex surveys: linearised and replicated errors against the textbook, by hand and by simulation."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.linalg import hadamard
from tests.statistical.checks import assert_unbiased, assert_variance

import masquerade as mq
from masquerade.core.errors import InputError

POLICY = mq.Policy.build({"x": ["yes", "no"], "g": ["a", "b"]}, {"x": mq.channels.binary("0.2")})


def people(seed=0, strata=4, clusters=2, size=30):
    """Return disguised answers of people in clusters that differ, with weights."""
    generator = np.random.default_rng(seed)
    count = strata * clusters
    level = generator.beta(3, 5, count)
    cluster = np.repeat(np.arange(count), size)
    truth = np.where(generator.random(count * size) < level[cluster], "yes", "no")
    frame = pd.DataFrame({"x": truth, "g": np.where(generator.random(count * size) < 0.5, "a", "b")})
    seen = mq.simulate(frame, POLICY, seed=seed)
    return seen.assign(w=1 + cluster % 3, psu=cluster, h=cluster // clusters)


def indicators(frame):
    """Return what every record adds to (yes, no), by hand."""
    G = np.linalg.inv([[0.8, 0.2], [0.2, 0.8]])
    return frame["w"].to_numpy()[:, None] * G[(frame["x"] == "no").to_numpy().astype(int)]


def by_hand(frame, fraction=0.0):
    z = pd.DataFrame(indicators(frame)).groupby([frame["h"], frame["psu"]]).sum()
    total = np.zeros((2, 2))
    for _, rows in z.groupby(level=0):
        gaps = (rows - rows.mean()).to_numpy()
        total += (1 - fraction) * len(rows) / (len(rows) - 1) * gaps.T @ gaps
    return total


def test_strata_and_clusters_are_the_textbooks():
    frame = people()
    source = mq.SurveyRecords(frame, POLICY, weights="w", strata="h", clusters="psu")
    (table,) = source.answer([mq.Query(by=("x",))])
    np.testing.assert_allclose(table.values, indicators(frame).sum(axis=0))
    np.testing.assert_allclose(table.covariance.dense(), by_hand(frame))
    # Hájek's share: a ratio, its error by the delta method
    share = table.values[0] / table.values.sum()
    slope = np.array([1 - share, -share]) / table.values.sum()
    found = mq.stats.shares(source, "x")
    assert found.values[0] == pytest.approx(share)
    assert found.stderr[0] == pytest.approx(np.sqrt(slope @ by_hand(frame) @ slope))
    gap = mq.stats.difference(source, "x", "g")
    assert np.isfinite(gap.stderr[0])
    where = mq.stats.shares(source, "x", where={"g": "a"})
    rows = mq.stats.shares(source, "x", by="g")
    assert where.stderr == pytest.approx(rows.stderr[:2])


def test_replicates_of_totals_are_the_linearised_errors():
    """Delete-one jackknife of one stratum, and fully balanced half samples: exact for totals."""
    frame = people()
    half = hadamard(4)
    signs = half[:, frame["h"]] * np.where(frame["psu"] % 2, 1, -1)
    names = [f"r{i}" for i in range(4)]
    balanced = frame.assign(**dict(zip(names, frame["w"].to_numpy() * (1 + signs), strict=True)))
    source = mq.SurveyRecords(balanced, POLICY, weights="w", replicates=names, method="brr")
    (table,) = source.answer([mq.Query(by=("x",))])
    np.testing.assert_allclose(table.covariance.dense(), by_hand(frame))
    one = frame.assign(h=0)
    units = one["psu"].nunique()
    names = [f"r{i}" for i in range(units)]
    left_out = {n: one["w"] * (one["psu"] != i) * units / (units - 1) for i, n in enumerate(names)}
    source = mq.SurveyRecords(
        one.assign(**left_out), POLICY, weights="w", replicates=names, method="jackknife"
    )
    (table,) = source.answer([mq.Query(by=("x",))])
    np.testing.assert_allclose(table.covariance.dense(), by_hand(one))
    generator = np.random.default_rng(1)
    draws = generator.multinomial(units, np.full(units, 1 / units), 400)
    booted = {f"b{i}": one["w"] * draw[one["psu"]] for i, draw in enumerate(draws)}
    source = mq.SurveyRecords(
        pd.concat([one, pd.DataFrame(booted)], axis=1), POLICY, weights="w", replicates=list(booted)
    )
    (table,) = source.answer([mq.Query(by=("x",))])
    assert table.covariance.diagonal()[0] == pytest.approx(by_hand(one)[0, 0] * (units - 1) / units, rel=0.25)


def test_a_finite_population_is_drawn_without_doubt_but_disguised_with_it():
    frame = people()
    whole = mq.SurveyRecords(frame.assign(N=2), POLICY, weights="w", strata="h", clusters="psu", fpc="N")
    (table,) = whole.answer([mq.Query(by=("x",))])
    np.testing.assert_allclose(
        table.covariance.dense(), table.covariance.dense(kind="given_records"), atol=1e-6
    )
    half = mq.SurveyRecords(frame.assign(N=4), POLICY, weights="w", strata="h", clusters="psu", fpc="N")
    (table,) = half.answer([mq.Query(by=("x",))])
    wanted = by_hand(frame, 0.5) + 0.5 * table.covariance.dense(kind="given_records")
    np.testing.assert_allclose(table.covariance.dense(), wanted)


def test_the_error_of_a_clustered_survey_is_right():
    """Samples of clusters drawn anew: the share is unbiased, its variance what is claimed."""
    values, variances = [], []
    for seed in range(80):
        frame = people(seed, strata=1, clusters=40, size=10).assign(w=1)
        found = mq.stats.shares(mq.SurveyRecords(frame, POLICY, weights="w", clusters="psu"), "x")
        values.append(found.values[0])
        variances.append(found.stderr[0] ** 2)
    assert_unbiased(np.array(values), 3 / 8)
    assert_variance(np.array(values), np.array(variances))
    naive = mq.stats.shares(mq.tally(frame, POLICY), "x").stderr[0]
    assert np.mean(variances) > 1.2 * naive**2  # people of a cluster are alike


def test_designs_that_are_none_are_refused():
    frame = people()
    with pytest.raises(InputError, match="only one cluster"):
        mq.SurveyRecords(frame.assign(h=frame["psu"]), POLICY, weights="w", strata="h", clusters="psu")
    with pytest.raises(InputError, match="already contain the design"):
        mq.SurveyRecords(frame, POLICY, weights="w", strata="h", replicates=["w"])
    with pytest.raises(InputError, match="at least as many as were drawn"):
        mq.SurveyRecords(frame.assign(N=1), POLICY, weights="w", strata="h", clusters="psu", fpc="N")
    with pytest.raises(InputError, match="two strata"):
        mq.SurveyRecords(frame.assign(psu=frame["psu"] % 2), POLICY, weights="w", strata="h", clusters="psu")
    with pytest.raises(InputError, match="must contain numbers"):
        mq.SurveyRecords(frame, POLICY, weights="w", replicates=["x"])
