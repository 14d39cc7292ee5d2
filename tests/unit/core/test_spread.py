"""Score intervals against Wilson's, Clopper's and Pearson's, and against the constrained fit written out."""

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import beta, binom
from tests.unit.core.linear import explicit, random_maps

from masquerade.core.axes import AxisMap, AxisMaps
from masquerade.core.covariance import IndependentCovariance, SumCovariance
from masquerade.core.distributions import two_sided_quantile
from masquerade.core.linear_covariance import (
    CovariancePart,
    LinearCovariance,
    contrast_spread_of,
    share_spread_of,
    spread_of,
)
from masquerade.core.report_moments import ReportSpread, exact_interval, score_interval

Z = two_sided_quantile(0.95)


def spread_of_reports(counts, weights) -> tuple[np.ndarray, ReportSpread]:
    """Return the estimate and the spread of Σ counts·weights, for rows of counts."""
    counts, weights = np.atleast_2d(np.asarray(counts, float)), np.asarray(weights, float)
    values = counts @ weights
    sums = [counts @ weights**power for power in (2, 3, 4)]
    n = float(counts[0].sum())
    ends = [(np.full(len(counts), weights.min()), np.full(len(counts), weights.max()))]
    return values, ReportSpread.of(values, sums, ends, given=sums[0] - values, n=n)


def constrained_variance(counts, weights, mean):
    """Return Σ q(a − mean)² for the most likely q with this mean, by its one multiplier."""
    gaps = weights - mean
    seen = counts > 0

    def off(multiplier):
        return float(np.sum(counts[seen] * gaps[seen] / (1 + multiplier * gaps[seen])))

    room = 1 - 1e-9
    low, high = -room / gaps.max(), room / -gaps.min()
    multiplier = brentq(off, low, high, xtol=1e-14)
    q = counts[seen] / (1 + multiplier * gaps[seen])
    return float(np.sum(q * gaps[seen] ** 2))


@pytest.mark.parametrize("weights", [(0.0, 20.0), (-0.3, 1.4), (-19.0, 1.0)])
def test_reports_of_two_kinds_have_wilsons_interval_mapped_back(weights):
    counts = np.array([[970, 30], [500, 500], [20, 980]])
    values, spread = spread_of_reports(counts, weights)
    for end in score_interval(values, spread, Z):
        share = (end / 1000 - weights[0]) / (weights[1] - weights[0])
        seen = counts[:, 1] / 1000
        np.testing.assert_allclose((seen - share) ** 2, Z * Z * share * (1 - share) / 1000, rtol=1e-9)


@pytest.mark.parametrize("weights", [(0.0, 20.0), (-0.3, 1.4), (-19.0, 1.0)])
def test_few_reports_of_two_kinds_have_cloppers_and_pearsons_interval_mapped_back(weights):
    k = np.array([0, 1, 4])
    values, spread = spread_of_reports(np.stack([1000 - k, k], axis=1), weights)
    lower, upper = score_interval(values, spread, Z)
    step = weights[1] - weights[0]
    np.testing.assert_allclose(
        upper, 1000 * (weights[0] + step * beta.ppf(0.975, k + 1, 1000 - k)), rtol=1e-6
    )
    ends = np.where(k > 0, beta.ppf(0.025, np.maximum(k, 1), 1001 - k), 0.0)
    np.testing.assert_allclose(lower, 1000 * (weights[0] + step * ends), rtol=1e-6, atol=1e-9)


def test_the_variance_under_the_hypothesis_is_that_of_the_constrained_fit_to_second_order():
    counts, weights = np.array([700.0, 120.0, 140.0, 40.0]), np.array([0.1, 2.0, -1.0, 5.0])
    values, spread = spread_of_reports(counts, weights)
    sigma = np.sqrt(spread.variance[0])
    for step in (-1.0, 0.5, 1.0, 2.0):
        end = float(values[0]) + step * sigma
        guess = spread.variance + spread.skew * step * sigma + spread.bend * (step * sigma) ** 2
        exact = constrained_variance(counts, weights, end / 1000)
        assert guess[0] == pytest.approx(exact, rel=0.004 * abs(step) ** 3 + 1e-9)


def test_decisive_reports_are_counted():
    # 12 reports of weight 20 among 1,000; for reports of equal weights all count
    _, rare = spread_of_reports([988, 12], (0.0, 20.0))
    assert rare.decisive[0] == pytest.approx(12, rel=0.1)
    _, even = spread_of_reports([500, 500], (-1.0, 1.0))
    assert even.decisive[0] == pytest.approx(1000, rel=0.01)
    # nothing of the kind that weighs most was seen: it may still decide
    _, unseen = spread_of_reports([900, 100, 0], (0.0, 1.0, 50.0))
    assert unseen.decisive[0] < 1


def test_binary_95_0_covers():
    """All outcomes with their chances: 1,000 people, each decisive report stands for 20."""
    k = np.arange(1001)
    values, spread = spread_of_reports(np.stack([1000 - k, k], axis=1), (0.0, 20.0))
    lower, upper = score_interval(values, spread, Z)
    assert np.all(spread.standard_error(spread.variance) > 0)
    for people in (5, 10, 30, 60, 100, 200, 400, 600):
        held = (lower <= people) & (people <= upper)
        coverage = binom.pmf(k, 1000, people / 20_000)[held].sum()
        assert coverage >= 0.93
        if people >= 600:
            assert coverage == pytest.approx(0.95, abs=0.015)


def test_given_records_binary_95_0_covers():
    k = np.arange(1001)
    values, spread = spread_of_reports(np.stack([1000 - k, k], axis=1), (0.0, 20.0))
    lower, upper = score_interval(values, spread, Z, given=True)
    for people in (1, 5, 10, 30, 60, 100, 200, 400, 600):
        held = (lower <= people) & (people <= upper)
        assert binom.pmf(k, people, 0.05)[held].sum() >= 0.93


def test_clear_records_are_known():
    values, spread = spread_of_reports([[60, 40], [97, 3], [100, 0]], (0.0, 1.0))
    for end in score_interval(values, spread, Z, given=True):
        np.testing.assert_array_equal(end, values)


def test_very_many_exact_intervals_are_those_of_a_few():
    k = np.random.default_rng(0).uniform(0, 9, 5000)
    values, spread = spread_of_reports(np.stack([1000 - k, k], axis=1), (0.0, 20.0))
    some = slice(0, 50)
    few_values, few = spread_of_reports(np.stack([1000 - k, k], axis=1)[some], (0.0, 20.0))
    many = exact_interval(values, spread, Z)
    for whole, part in zip(many, exact_interval(few_values, few, Z), strict=True):
        np.testing.assert_allclose(whole[some], part, atol=2e-4)


@pytest.mark.parametrize("seed", range(12))
def test_spreads_equal_sums_written_out(seed):
    rng = np.random.default_rng(seed)
    maps, observed = random_maps(rng, 3)
    whole = explicit(maps, observed)
    counts = rng.integers(0, 30, whole.shape[0]).astype(float)
    n, values = int(counts.sum()), counts @ whole
    covariance = LinearCovariance(
        (CovariancePart(counts.reshape(observed), maps),),
        values.reshape(maps.shape),
        values.reshape(maps.shape),
        n,
    )
    spread = spread_of(covariance)
    gaps = whole - values / n
    for power, found in ((2, spread.variance), (3, spread.third), (4, spread.fourth)):
        np.testing.assert_allclose(found.ravel(), counts @ gaps**power, rtol=1e-7, atol=1e-6)
    np.testing.assert_allclose(spread.high.ravel(), whole.max(axis=0))
    np.testing.assert_allclose(spread.low.ravel(), whole.min(axis=0))
    weights = rng.normal(size=maps.shape)
    one, gains = contrast_spread_of(covariance, weights), whole @ weights.ravel()
    np.testing.assert_allclose(one.third, counts @ (gains - gains @ counts / n) ** 3, rtol=1e-7, atol=1e-6)
    assert (one.low, one.high) == (pytest.approx(gains.min()), pytest.approx(gains.max()))
    if maps.shape:
        axis = int(rng.integers(len(maps.shape)))
        shares = rng.uniform(0, 1, maps.shape)
        summed = whole.reshape(-1, *maps.shape).sum(axis=1 + axis, keepdims=True)
        total = np.broadcast_to(summed, (len(whole), *maps.shape)).reshape(len(whole), -1)
        b = whole - shares.ravel() * total
        found = share_spread_of(covariance, axis, shares)
        np.testing.assert_allclose(found.third.ravel(), counts @ b**3, rtol=1e-7, atol=1e-6)
        np.testing.assert_allclose(found.fourth.ravel(), counts @ b**4, rtol=1e-7, atol=1e-6)
        np.testing.assert_allclose(found.with_whole.ravel(), counts @ (b**2 * total), rtol=1e-7, atol=1e-6)
        assert np.all(found.high.ravel() >= b.max(axis=0) - 1e-9)
        assert np.all(found.low.ravel() <= b.min(axis=0) + 1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_the_spread_of_a_smaller_table_is_that_of_its_sums(seed):
    rng = np.random.default_rng(100 + seed)
    maps, observed = random_maps(rng, 3)
    counts = rng.integers(0, 30, observed).astype(float)
    values = maps.apply(counts)
    n = int(counts.sum())
    axes = rng.permutation(len(maps.shape)).tolist()
    keep = axes[: int(rng.integers(0, len(axes) + 1))]
    at = {axis: 0 for axis in axes if axis not in keep and rng.random() < 0.5}
    found = spread_of(LinearCovariance((CovariancePart(counts, maps),), values, values, n).reduce(keep, at))
    whole = explicit(maps, observed).reshape(-1, *maps.shape)
    index = tuple(at.get(axis, slice(None)) for axis in range(len(axes)))
    left = [axis for axis in range(len(axes)) if axis not in at]
    columns = whole[(slice(None), *index)].sum(
        axis=tuple(1 + i for i, axis in enumerate(left) if axis not in keep)
    )
    left = [axis for axis in left if axis in keep]
    columns = columns.transpose([0, *(1 + left.index(axis) for axis in keep)]).reshape(counts.size, -1)
    gaps = columns - counts.ravel() @ columns / n
    np.testing.assert_allclose(found.third.ravel(), counts.ravel() @ gaps**3, rtol=1e-7, atol=1e-6)
    np.testing.assert_allclose(found.fourth.ravel(), counts.ravel() @ gaps**4, rtol=1e-7, atol=1e-6)
    assert np.all(found.high.ravel() >= columns.max(axis=0) - 1e-9)
    assert np.all(found.low.ravel() <= columns.min(axis=0) + 1e-9)


def test_spreads_of_different_records_add_and_unknown_ones_do_not():
    counts = np.array([90.0, 10.0])
    maps = AxisMaps((2,), (AxisMap((0,), None),))
    one = LinearCovariance((CovariancePart(counts, maps),), counts, counts, 100)
    both = spread_of(SumCovariance((one, one)))
    assert both.n == 200
    np.testing.assert_allclose(both.variance, 2 * spread_of(one).variance)
    np.testing.assert_allclose(both.high, [1, 1])
    noise = IndependentCovariance(np.ones(2))
    assert spread_of(SumCovariance((one, noise))) is None
    assert share_spread_of(noise, 0, counts / 100) is None
    assert contrast_spread_of(noise, counts) is None
