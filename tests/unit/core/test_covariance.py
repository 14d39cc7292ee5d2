"""The lazy covariance against the matrix summed record by record."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.core.linear import explicit, random_maps

from masquerade.core.axes import AxisMap, AxisMaps
from masquerade.core.covariance import KINDS, ScaledCovariance, SumCovariance, reduce_cells
from masquerade.core.errors import InputError
from masquerade.core.linear_covariance import CovariancePart, LinearCovariance

seeds = st.integers(0, 2**32 - 1)


def random_case(seed):
    """Return a covariance built from sums, and both kinds of it summed record by record."""
    rng = np.random.default_rng(seed)
    maps, observed = random_maps(rng, 3)
    whole = explicit(maps, observed)
    records = rng.integers(0, whole.shape[0], int(rng.integers(1, 30)))
    weights = rng.uniform(0.5, 2, len(records))
    seconds = np.zeros((whole.shape[1],) * 2)
    values, fixed = np.zeros(whole.shape[1]), np.zeros(whole.shape[1])
    for record, weight in zip(records, weights, strict=True):
        a = weight * whole[record]
        seconds += np.outer(a, a)
        values += a
        fixed += weight * a
    squares = np.bincount(records, weights**2, whole.shape[0]).reshape(observed)
    covariance = LinearCovariance(
        (CovariancePart(squares, maps),), values.reshape(maps.shape), fixed.reshape(maps.shape), len(records)
    )
    brute = {
        "population": seconds - np.outer(values, values) / len(records),
        "given_records": seconds - np.diag(fixed),
    }
    return rng, covariance, brute


@given(seeds, st.sampled_from(KINDS))
@settings(max_examples=80, deadline=None, derandomize=True)
def test_every_view_agrees_with_the_matrix_summed_record_by_record(seed, kind):
    rng, covariance, brute = random_case(seed)
    close = {"rtol": 1e-8, "atol": 1e-8}
    np.testing.assert_allclose(covariance.dense(kind=kind), brute[kind], **close)
    np.testing.assert_allclose(covariance.diagonal(kind).ravel(), np.diag(brute[kind]), **close)
    weights = rng.normal(size=covariance.shape)
    expected = weights.ravel() @ brute[kind] @ weights.ravel()
    assert covariance.quadratic(weights, kind) == pytest.approx(expected, rel=1e-8, abs=1e-8)
    first, second = (rng.normal(size=(many, *covariance.shape)) for many in (2, 3))
    expected = first.reshape(2, -1) @ brute[kind] @ second.reshape(3, -1).T
    np.testing.assert_allclose(covariance.between(first, second, kind), expected, **close)
    both = SumCovariance((covariance, ScaledCovariance(covariance, 2.0)))
    twice = expected + ScaledCovariance(covariance, 2.0).between(first, second, kind)
    np.testing.assert_allclose(both.between(first, second, kind), twice, **close)
    axes = len(covariance.shape)
    inner = rng.permutation(axes)[: int(rng.integers(0, axes + 1))].tolist()
    outer = [axis for axis in range(axes) if axis not in inner]
    cells = np.arange(len(brute[kind])).reshape(covariance.shape).transpose([*outer, *inner])
    blocks = cells.reshape(*(covariance.shape[axis] for axis in outer), -1)
    expected = brute[kind][blocks[..., :, None], blocks[..., None, :]]
    np.testing.assert_allclose(covariance.within(inner, kind), expected, **close)


@given(seeds, st.sampled_from(KINDS))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_reduced_equals_the_matrix_of_summed_or_sliced_cells(seed, kind):
    rng, covariance, brute = random_case(seed)
    axes = rng.permutation(len(covariance.shape)).tolist()
    kept = int(rng.integers(0, len(axes) + 1))
    keep = axes[:kept]
    at = {axis: int(rng.integers(covariance.shape[axis])) for axis in axes[kept:] if rng.random() < 0.5}
    # row i of L picks the cells that make up cell i of the smaller table
    cells = int(np.prod(covariance.shape))
    L = np.stack(
        [reduce_cells(unit.reshape(covariance.shape), keep, at).ravel() for unit in np.eye(cells)], axis=1
    )
    result = covariance.reduce(keep, at).dense(kind=kind)
    np.testing.assert_allclose(result, L @ brute[kind] @ L.T, rtol=1e-8, atol=1e-8)


def test_reduce_cells_sums_fixes_and_reorders():
    cells = np.arange(24.0).reshape(2, 3, 4)
    np.testing.assert_array_equal(reduce_cells(cells, [2, 0], {1: 2}), cells[:, 2, :].T)
    np.testing.assert_array_equal(reduce_cells(cells, [1], {}), cells.sum(axis=(0, 2)))
    assert reduce_cells(cells, [], {0: 1, 1: 1, 2: 1}) == 17  # 12 + 4 + 1


def test_given_records_is_the_papers_theorem_when_expectations_stand_for_counts():
    # Σ_l N_l V_l with V_l = Gᵀ diag(P_l) G − e_l e_lᵀ, the variance that the disguise of one record adds
    P = np.array([[0.9, 0.1], [0.25, 0.75]])
    G, N = np.linalg.inv(P), np.array([30.0, 70.0])
    expected = sum(N[l] * (G.T @ np.diag(P[l]) @ G - np.outer(np.eye(2)[l], np.eye(2)[l])) for l in range(2))
    covariance = LinearCovariance((CovariancePart(N @ P, AxisMaps((2,), (AxisMap((0,), G),))),), N, N, 100)
    np.testing.assert_allclose(covariance.dense(kind="given_records"), expected, rtol=1e-12)


def test_clear_records_have_the_multinomial_covariance_and_no_disguise():
    N = np.array([2.0, 3.0, 5.0])
    covariance = LinearCovariance((CovariancePart(N, AxisMaps((3,), (AxisMap((0,), None),))),), N, N, 10)
    np.testing.assert_allclose(covariance.dense(), np.diag(N) - np.outer(N, N) / 10)
    np.testing.assert_array_equal(covariance.dense(kind="given_records"), np.zeros((3, 3)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_sum_adds_every_view(kind):
    case = 3
    _, first, brute = random_case(case)
    _, second, _ = random_case(case)
    total = SumCovariance((first, second))
    weights = np.linspace(-1, 1, math.prod(first.shape)).reshape(first.shape)
    assert total.shape == first.shape
    assert len(first.shape) == 3  # so that the reduction below has something to sum over
    np.testing.assert_allclose(total.dense(kind=kind), 2 * brute[kind])
    np.testing.assert_allclose(total.diagonal(kind), 2 * first.diagonal(kind))
    np.testing.assert_allclose(total.within([0], kind), 2 * first.within([0], kind))
    assert total.quadratic(weights, kind) == pytest.approx(2 * first.quadratic(weights, kind))
    np.testing.assert_allclose(
        total.reduce([1], {0: 0}).dense(kind=kind), 2 * first.reduce([1], {0: 0}).dense(kind=kind)
    )


def test_dense_is_refused_with_the_sizes_in_the_message():
    values = np.ones((80, 80))
    maps = AxisMaps((80, 80), (AxisMap((0,), None), AxisMap((1,), None)))
    covariance = LinearCovariance((CovariancePart(values, maps),), values, values, 6400)
    # 6400² · 8 bytes / 2³⁰ = 0.305 GiB
    with pytest.raises(InputError, match=r"6,400 cells would take 0\.3 GiB.*max_cells \(now 4,096\)"):
        covariance.dense()
    with pytest.raises(InputError, match=r"now 6,399"):
        SumCovariance((covariance,)).dense(6399)
    assert LinearCovariance((CovariancePart(values, maps),), values, values, 1).within(
        [], "population"
    ).shape == (
        80,
        80,
        1,
        1,
    )


def test_an_unknown_kind_is_refused():
    covariance = LinearCovariance(
        (CovariancePart(np.ones(()), AxisMaps((), ())),), np.ones(()), np.ones(()), 1
    )
    for ask in (covariance.diagonal, lambda kind: covariance.quadratic(np.ones(()), kind)):
        with pytest.raises(InputError, match=r"population, given_records.*'sampling'"):
            ask("sampling")
