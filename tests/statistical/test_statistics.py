"""Intervals and tests of `masquerade.stats` hold what they say: short runs of the study that is kept."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from benchmarks import statistics_coverage as study
from tests.statistical.checks import ALPHA, normal_bound

import masquerade as mq

KEPT = Path(__file__).parents[2] / "benchmarks" / "results" / "statistics_coverage.json"


def within(share, low, high, runs, comparisons):
    """Assert that a share of runs lies in a range, but for chance."""
    allowed = normal_bound(comparisons, ALPHA) * np.sqrt(0.05 * 0.95 / runs)
    assert low - allowed <= share <= high + allowed


def test_effects_cover_in_a_short_run():
    rows = study.effects(40, seed=11)
    assert len(rows) == 9
    for row in rows:
        within(row["coverage"], 0.94, 0.96, 40, len(rows))


def test_intervals_next_to_nothing_cover_in_a_short_run():
    rows = study.rare(20, seed=12)
    assert len(rows) == 16
    for row in rows:
        within(row["coverage"], 0.93, 1.0, 20, len(rows))


def test_the_survey_is_told_apart_in_a_short_run():
    rows = {row["name"]: row for row in study.survey(30, seed=13)}
    for name, row in rows.items():
        if "all agree" in name:
            assert row["share"] >= 0.9
        elif name.startswith("22%"):
            within(row["rejected"], 0.97, 1.0, 30, len(rows))
        else:
            within(row["rejected"], 0.04, 0.06, 30, len(rows))


def kept(name):
    rows = [row for row in json.loads(KEPT.read_text(encoding="utf-8")) if row["study"] == name]
    assert rows
    return rows


def test_the_kept_study_of_effects_covers():
    for row in kept("effects"):
        assert row["runs"] >= 4000
        if row["name"].startswith(("odds", "difference")):
            within(row["coverage"], 0.94, 0.96, row["runs"], 9)


def test_the_kept_study_next_to_nothing_covers():
    for row in kept("rare"):
        within(row["coverage"], 0.935, 1.0, row["runs"], 16)


def test_the_kept_survey_rejects_as_often_as_it_should():
    for row in kept("survey"):
        assert row["runs"] >= 2000
        if "all agree" in row["name"]:
            assert row["share"] >= 0.99
        elif row["name"].startswith("22%"):
            assert row["rejected"] >= 0.97
        else:
            assert 0.04 <= row["rejected"] <= 0.06


def test_regression_covers_in_a_short_run_and_naive_never_does():
    rows = study.regression(50, seed=14)
    for row in rows[:4]:
        within(row["coverage"], 0.93, 0.97, 50, 4)
    assert all(row["coverage"] <= 0.2 for row in rows[4:])


def test_the_kept_study_of_regression_covers_and_naive_never_does():
    rows = kept("regression")
    for row in rows:
        assert row["runs"] >= 4000
        if row["name"].startswith("ours"):
            assert 0.93 <= row["coverage"] <= 0.97
            assert abs(row["mean"] - row["truth"]) < 0.1 * row["sd"]
            assert row["stderr"] == pytest.approx(row["sd"], rel=0.05)
        else:
            assert row["coverage"] == 0


def test_the_kept_study_of_imputations_covers():
    rows = kept("imputation")
    assert {row["name"] for row in rows} == {"20 imputations", "table"}
    for row in rows:
        assert row["runs"] >= 300
        within(row["coverage"], 0.945, 0.965, row["runs"], 2)


def test_imputations_tell_what_the_table_tells_and_no_more():
    """Improper ones, which leave the error of the shares out, would have much narrower intervals."""
    source, exact = study.two_disguised(np.random.default_rng())
    imputed = mq.stats.impute(source, m=100, seed=15).pool(study.log_odds).conf_int().iloc[0]
    table = np.log(mq.stats.odds_ratio(source, "y", "x").conf_int().iloc[0])
    widths = [limits["upper"] - limits["lower"] for limits in (imputed, table)]
    assert 0.6 <= widths[0] / widths[1] <= 1.6
    middles = [(limits["upper"] + limits["lower"]) / 2 for limits in (imputed, table)]
    assert abs(middles[0] - middles[1]) < 0.3 * widths[1]
    assert abs(middles[0] - exact) < 1.5 * widths[1]


def test_a_study_that_misses_is_told():
    with pytest.raises(AssertionError):
        within(0.8, 0.94, 0.96, 4000, 9)
