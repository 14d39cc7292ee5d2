"""Reconstructed densities: counts over widths, with errors."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from tests.statistical.checks import assert_unbiased, assert_variance, normal_bound

import masquerade as mq
from masquerade.anonymity.mgas import mgas
from masquerade.core.bins import bin_ends
from masquerade.core.errors import InputError
from masquerade.learn.density import (
    category_numbers,
    density_of,
    label_edges,
    reconstructed_density,
)

EDGES = [0, 1, 3, 7]


def policy(p=None, edges=EDGES):
    entry = {"bins": list(edges)} | ({} if p is None else {"channel": {"kind": "symmetric", "p": p}})
    return mq.Policy.from_dict({"masquerade": 1, "variables": {"x": entry}})


def test_clear_density_is_count_over_n_and_width():
    frame = pd.DataFrame({"x": [0.5, 0.2, 2.0, 4.0, 5.0, 6.0, 7.0, 1.0]})
    density = reconstructed_density(mq.tally(frame, schema=policy()), "x")
    np.testing.assert_allclose(density.values, [2 / 8, 2 / 8 / 2, 4 / 8 / 4])
    share = np.array([2, 2, 4]) / 8
    np.testing.assert_allclose(density.stderr, np.sqrt(share * (1 - share) / 8) / [1, 2, 4])
    assert (density.values * np.diff(density.edges)).sum() == pytest.approx(1)
    assert density.at([0.5, 3, 7, 8, -1]).tolist() == [0.25, 0.125, 0.125, 0, 0]
    assert density.to_frame().shape == (3, 4)
    assert density.summary().startswith("Density of x: 3 bins, n = 8")


def test_density_from_disguised_records_is_unbiased_with_right_errors():
    """A uniform number on [0, 7]: 1/7 in every bin; false alarm 1e-6 for each assertion."""
    used, estimates, variances = policy(0.4), [], []
    rng = np.random.default_rng(3)
    for _ in range(200):
        frame = pd.DataFrame({"x": rng.uniform(0, 7, 2000)})
        density = reconstructed_density(mq.tally(mq.simulate(frame, used, rng), used), "x")
        estimates.append(density.values)
        variances.append(density.stderr**2)
    assert_unbiased(estimates, np.full(3, 1 / 7))
    assert_variance(estimates, variances)


def test_survey_weights_divide_by_their_estimated_total():
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"x": rng.uniform(0, 7, 500), "w": rng.uniform(0.5, 2, 500)})
    density = reconstructed_density(mq.tally(frame, schema=policy(), weights="w"), "x")
    inside = np.stack([(frame["x"] >= a) & (frame["x"] < b) for a, b in pairwise(EDGES)])
    share = (inside * frame["w"].to_numpy()).sum(axis=1) / frame["w"].sum()
    np.testing.assert_allclose(density.values, share / [1, 2, 4])
    ratio = np.sqrt((((inside - share[:, None]) * frame["w"].to_numpy()) ** 2).sum(axis=1)) / frame["w"].sum()
    np.testing.assert_allclose(density.stderr, ratio / [1, 2, 4], rtol=1e-9)


def test_two_triangles_through_mgas_and_a_disguise():
    """The reconstructed density is the grouped one within its errors (false alarm 1e-6 over all bins)."""
    rng = np.random.default_rng(4)
    n = 20_000
    x = np.where(rng.random(n) < 0.5, rng.triangular(0, 5, 10, n), rng.triangular(10, 15, 20, n))
    bins = mgas(x, 600, 0.5)
    used = policy(0.5, bins.policy_bins(low=0, high=20))
    source = mq.tally(mq.simulate(pd.DataFrame({"x": x}), used, seed=5), used)
    density = reconstructed_density(source, "x")
    truth = bins.counts / n / np.diff(density.edges)
    table = source.answer([mq.Query(by="x")])[0]
    error = table.stderr("given_records") / n / np.diff(density.edges)
    assert np.all(np.abs(density.values - truth) <= normal_bound(len(bins)) * error)
    projected = reconstructed_density(source, "x", nonnegative="mle")
    assert projected.values.min() >= 0
    assert (projected.values * np.diff(density.edges)).sum() == pytest.approx(1)


def test_labels_of_bins_are_read():
    assert bin_ends("[-1.5, 2e+20)") == (-1.5, 2e20)
    assert bin_ends("[3, 3.5]") == (3, 3.5)
    for label in ("3", 3, "[4, 3)", "[., 3)", "[a, b)", True):
        assert bin_ends(label) is None
    assert label_edges(mq.Variable("x", ("[0, 1)", "[2, 3]"))) is None
    rng = np.random.default_rng(0)
    cuts = np.sort(rng.normal(size=20)).round(6)
    np.testing.assert_array_equal(label_edges(policy(edges=cuts.tolist()).schema["x"]), cuts)


def test_numbers_of_categories():
    for categories, numbers in (
        ((1, 2, 5), [1, 2, 5]),
        ((False, True), [0, 1]),
        (("1.5", "2"), [1.5, 2]),
        (("[0, 1)", "[1, 3]"), [0.5, 2]),
    ):
        assert category_numbers(mq.Variable("x", categories)).tolist() == numbers
    for categories in (("a", "b"), ("1", "many"), ("nan", "1"), ("(-inf, 1)", "[1, inf)")):
        assert category_numbers(mq.Variable("x", categories)) is None


def test_bad_input_is_refused():
    source = mq.tally(pd.DataFrame({"x": ["a", "b"], "y": [0, 1]}))
    with pytest.raises(InputError, match="give 'edges'"):
        reconstructed_density(source, "x")
    assert reconstructed_density(source, "x", [0, 1, 3]).values.tolist() == [0.5, 0.25]
    for edges in ([0, 1], [0, 1, 1], [0, 1, np.inf]):
        with pytest.raises(InputError, match="3 finite, increasing 'edges'"):
            reconstructed_density(source, "x", edges)
    with pytest.raises(InputError, match="one variable"):
        density_of(source.answer([mq.Query(by=("x", "y"))])[0])
    with pytest.raises(InputError, match="no records"):
        reconstructed_density(mq.tally(pd.DataFrame({"x": [0.5]})[:0], schema=policy()), "x")


def test_the_density_is_drawn():
    density = reconstructed_density(mq.tally(pd.DataFrame({"x": [0.5, 2.0, 4.0]}), schema=policy()), "x")
    axes = density.plot()
    assert axes.get_xlabel() == "x"
    assert len(axes.patches) == 2
