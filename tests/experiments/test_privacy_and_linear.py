"""Ma (2006), chapters 2, 3 and 6: counts and densities, measures of privacy, linear classifiers."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from itertools import pairwise
from math import log2

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from scipy import integrate, stats
from tests.statistical.checks import ALPHA, normal_bound

from masquerade.core.plots.style import house_style, png
from masquerade_experiments.ma_2006 import figure_6_1, table_2_1, trade_off, two_triangles
from masquerade_experiments.ma_2006.averages import mean_of, over_runs, per_run, pooled_calibration

RUNS = {
    "figure_2_2": 10,
    "figure_2_3": 12,
    "figure_3_1": 1,
    "figure_3_2": 1,
    "figure_3_3": 120,
    "figure_3_4a": 4,
    "figure_3_4b": 3,
    "figure_6_1": 3,
    "figure_6_2": 3,
    "figure_6_3": 10,
}


def experiment(name):
    return import_module(f"masquerade_experiments.ma_2006.{name}").EXPERIMENT


@cache
def frame_of(name):
    """Return the rows of a quick reproduction with fixed seeds."""
    found, quick = experiment(name), True
    rows = [
        {**setting, "run": run, **row}
        for at, setting in enumerate(found.settings(quick))
        for run in range(RUNS[name])
        for row in found.measure(setting, 1_000 * at + run)
    ]
    return pd.DataFrame(rows)


def comparisons(name):
    return {item.what: item for item in experiment(name).compare(frame_of(name))}


def assert_calibrated(frame):
    """Assert that errors are as large as claimed; a sum of squares is nearly gamma with these moments."""
    found = pooled_calibration(frame)
    low, high = stats.gamma.ppf([ALPHA / 2, 1 - ALPHA / 2], found.stderr**-2, scale=found.stderr**2)
    assert low < found.ratio < high


@pytest.mark.parametrize("name", RUNS)
def test_nothing_differs_from_the_paper(name):
    found = comparisons(name).values()
    assert [item.what for item in found if item.verdict == "differs"] == []
    assert any(item.verdict == "matches" for item in found)


@pytest.mark.parametrize("name", RUNS)
def test_the_picture_has_words_on_every_axis(name):
    with house_style():
        picture = experiment(name).draw(frame_of(name).copy())
        assert isinstance(picture, Figure)
        assert png(picture, 40).startswith(b"\x89PNG")
    assert all(axes.get_xlabel() and axes.get_ylabel() for axes in picture.axes)


@pytest.mark.parametrize("name", RUNS)
def test_a_run_depends_on_its_seed_alone(name):
    found, quick = experiment(name), True
    setting = found.settings(quick)[0]
    assert found.measure(setting, 5) == found.measure(setting, 5)
    random = name not in {"figure_3_1", "figure_3_2"}
    assert (found.measure(setting, 5) != found.measure(setting, 6)) == random


@pytest.mark.parametrize("name", RUNS)
def test_one_run_is_enough_to_compare_and_draw(name):
    frame = frame_of(name)
    first = frame[frame["run"] == 0].copy()
    assert experiment(name).compare(first)
    with house_style():
        experiment(name).draw(first)


def test_table_2_1_is_mended_to_sum_to_one():
    printed = table_2_1.PMF.copy()
    printed[4, 4] = 0
    assert printed.sum() == pytest.approx(0.95, abs=1e-12)
    assert table_2_1.PMF.sum() == pytest.approx(1, abs=1e-12)
    assert table_2_1.PMF[0].tolist() == pytest.approx([1 / 40, 3 / 10, 0, 1 / 60, 0])


def test_counts_are_as_accurate_as_theorem_2_claims():
    frame = frame_of("figure_2_2")
    assert_calibrated(frame)
    sums = frame.groupby("run")[["clear", "moment", "likely"]].sum()
    assert np.allclose(sums, 5_000, atol=1e-6)
    assert frame["likely"].min() >= 0 > frame["moment"].min()


def test_the_true_density_is_one_and_its_sample_follows_it():
    assert integrate.quad(two_triangles.density, 0, 20, points=[5, 10, 15])[0] == pytest.approx(1)
    values = two_triangles.sample(100_000, np.random.default_rng(3))

    def below(x):
        shifted = np.asarray(x) % 10
        one = np.where(shifted < 5, shifted**2 / 50, 1 - (10 - shifted) ** 2 / 50)
        return (one + (np.asarray(x) >= 10)) / 2

    assert stats.kstest(values, below).pvalue > ALPHA


@pytest.mark.parametrize(
    ("edges", "heights"),
    [([0, 20], [0.05]), ([0, 3, 4.4, 9, 17, 20], [0.02, 0.09, 0.05, 0.06, 0.01]), ([2, 9], [0.1])],
)
def test_the_distance_between_densities_is_the_integral(edges, heights):
    def gap(x):
        inside = edges[0] <= x <= edges[-1]
        place = min(int(np.searchsorted(edges, x, side="right")) - 1, len(heights) - 1)
        return abs(float(two_triangles.density(x)) - (heights[place] if inside else 0.0))

    ends = sorted({*edges, 0, 5, 10, 15, 20})
    parts = [integrate.quad(gap, low, high, limit=200)[0] for low, high in pairwise(ends)]
    assert two_triangles.distance_to_truth(edges, heights) == pytest.approx(sum(parts), abs=1e-7)


def test_groups_keep_what_was_asked_of_them_and_the_density_comes_back():
    frame = frame_of("figure_2_3")
    widths = frame["high"] - frame["low"]
    assert (frame["clear"] * widths * 100_000).min() >= 1_500 - 1e-6
    assert widths.min() >= two_triangles.LEAST_WIDTH
    assert_calibrated(frame)
    assert per_run(frame, "grouped_distance").max() < per_run(frame, "likely_distance").min()
    assert per_run(frame, "likely_distance").max() < per_run(frame, "disguised_distance").min()
    groups = comparisons("figure_2_3")["Groups made by MGAS"]
    assert (groups.paper, groups.verdict) == (39, "matches")


def test_entropies_follow_their_formula():
    frame = frame_of("figure_3_1")
    p = frame["p"].to_numpy()
    safe = np.clip(p, 1e-300, 1 - 1e-16)
    noise = -(p * np.log2(safe) + (1 - p) * np.log2(1 - np.where(p < 1, p, 0.5)))
    assert np.allclose(frame["binary"], noise, atol=1e-12)
    assert np.allclose(frame["ungrouped"], noise + p * log2(5), atol=1e-12)
    assert np.allclose(frame["grouped"], noise + p * log2(2), atol=1e-12)


@pytest.mark.parametrize(
    "column", ["binary", "ungrouped", "grouped", "gamma_ungrouped", "gamma_within_group"]
)
def test_one_wrong_point_of_a_curve_differs(column):
    frame = frame_of("figure_3_1").copy()
    frame.loc[frame["p"] == 0.1, column] *= 1 + 1e-9
    found = [item.verdict for item in experiment("figure_3_1").compare(frame)]
    assert found.count("differs") == 1


def test_a_grouped_channel_discloses_the_group():
    frame = frame_of("figure_3_1")
    between = frame[(frame["p"] > 0) & (frame["p"] < 1)]
    assert between["gamma_grouped"].isna().all()
    assert between["gamma_within_group"].notna().all()
    assert (between["k_grouped"] == 3).all()
    assert (between["k_ungrouped"] == 6).all()


def test_beliefs_rise_as_far_as_gamma_allows_and_no_further():
    frame = frame_of("figure_3_2")
    expected = frame["gamma"] * frame["belief"] / (1 + (frame["gamma"] - 1) * frame["belief"])
    assert np.allclose(frame["bound"], expected, rtol=1e-12)
    assert np.allclose(frame["reached"], expected, rtol=1e-12)


def test_only_the_corrected_test_of_independence_keeps_its_level():
    # to first order the log odds ratio scatters 1/(1 − 2p)² = 25 times as widely as from clear records
    frame = frame_of("figure_3_3")
    misled = 2 * stats.norm.sf(stats.norm.isf(0.025) * (1 - 2 * 0.4) ** 2)
    levels = {"clear_test": 0.05, "corrected_test": 0.05, "ordinary_test": misled}
    for column, level in levels.items():
        low, high = stats.binom.ppf([ALPHA / 2, 1 - ALPHA / 2], len(frame), level)
        assert low <= frame[column].sum() <= high
    assert misled == pytest.approx(0.9375, abs=1e-3)


@pytest.mark.parametrize("name", ["figure_3_4a", "figure_3_4b"])
def test_more_records_and_less_disguise_bring_the_estimate_closer(name):
    frame = frame_of(name)
    small, large = frame["n"].min(), frame["n"].max()
    means = over_runs(frame, ("kept", "n"), "distance").pivot_table(index="kept", columns="n", values="mean")
    assert (means[large] < means[small])[means.index < 1].all()
    assert means[small].iloc[0] == means.to_numpy().max()
    assert trade_off.distance(frame, means.index[0], small).value == means[small].iloc[0]


def test_the_lenses_table_has_the_classes_of_the_data():
    fitted = figure_6_1.classes()
    assert fitted.sum() == 9
    assert not fitted[..., 0].any()  # a reduced tear production rate: no lenses
    records = figure_6_1.sample(20_000, np.random.default_rng(2))
    for name, chances in figure_6_1.TABLE_6_1.items():
        share = records[name].value_counts(normalize=True).reindex(range(1, len(chances) + 1)).to_numpy()
        allowed = normal_bound(9) * np.sqrt(np.array(chances) * (1 - np.array(chances)) / len(records))
        assert np.all(np.abs(share - chances) <= allowed)


def test_lenses_are_learnt_from_disguised_records():
    frame = frame_of("figure_6_1")
    # what the best one-feature rule gets right: lenses if and only if the tear production is normal
    rule = 1 - 0.8 * (0.2 * 0.9 * 0.2 + 0.5 * 0.1 * 0.8)
    allowed = normal_bound(len(frame)) * np.sqrt(rule * (1 - rule) / figure_6_1.RECORDS)
    assert frame["clear"].min() >= rule - allowed
    fitted = rule - 0.2
    spread = np.sqrt(fitted * (1 - fitted) / figure_6_1.RECORDS)
    assert np.allclose(frame["larger_class"], fitted, atol=normal_bound(len(frame)) * spread)
    undisguised = frame[frame["p"] == 0]
    assert (undisguised["ours"] == undisguised["clear"]).all()
    mild = frame[frame["p"] == 0.1]
    assert mean_of(mild["clear"] - mild["ours"]).value <= 0.05
    strong = frame[frame["p"] == 0.3]
    assert mean_of(strong["ours"] - strong["direct"]).value > 0


def test_iris_is_learnt_almost_as_well_from_disguised_records():
    frame = frame_of("figure_6_2")
    for p in (0.1, 0.3):
        rows = frame[frame["p"] == p]
        assert mean_of(rows["clear"] - rows["ours"]).value <= 0.03
    assert frame["ours"].min() > frame["larger_class"].max()


@pytest.mark.parametrize("feature", ["sepal_length", "sepal_width", "petal_length", "petal_width"])
def test_iris_densities_are_as_accurate_as_claimed(feature):
    rows = frame_of("figure_6_3")
    rows = rows[rows["feature"] == feature]
    assert_calibrated(rows)
    area = rows.assign(area=(rows["high"] - rows["low"]) * rows["density"])
    assert np.allclose(area[area["kind"] == "group"].groupby("run")["area"].sum(), 1)
    bars = rows.assign(area=(rows["high"] - rows["low"]) * rows["clear"])
    assert np.allclose(bars.groupby(["run", "kind"])["area"].sum(), 1)
