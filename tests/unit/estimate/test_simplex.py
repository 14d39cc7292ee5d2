"""Projections against a brute-force quadratic programme."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from masquerade.estimate.gaussian import clip_and_rescale, onto_simplex

VALUES = st.lists(st.floats(-100, 100), min_size=1, max_size=6).map(np.array)


def brute_force(values, total):
    """Try every support: on it the projection shifts all cells alike."""
    best, nearest = None, np.inf
    for support in product([False, True], repeat=len(values)):
        mask = np.array(support)
        if mask.any():
            x = np.where(mask, values + (total - values[mask].sum()) / mask.sum(), 0.0)
            distance = np.sum((x - values) ** 2)
            if x.min() >= 0 and distance < nearest:
                best, nearest = x, distance
    return best


@given(VALUES, st.floats(0.01, 200))
def test_is_the_nearest_point_of_the_simplex(values, total):
    np.testing.assert_allclose(onto_simplex(values, total), brute_force(values, total), atol=1e-6)


@given(VALUES, st.floats(0.01, 200))
def test_clip_and_rescale_keeps_order_signs_and_total(values, total):
    result = clip_and_rescale(values, total)
    assert result.min() >= 0
    assert result.sum() == pytest.approx(total)
    if values.max() > 1e-9:
        assert not result[values <= 0].any()


@pytest.mark.parametrize("project", [onto_simplex, clip_and_rescale])
def test_shapes_totals_and_fixed_points(project):
    table = np.random.default_rng(3).normal(2, 2, size=(3, 4, 2))
    result = project(table, 30.0)
    assert result.shape == table.shape
    assert result.sum() == pytest.approx(30.0)
    np.testing.assert_allclose(project(result, 30.0), result, atol=1e-12)
    for total in (0.0, -1.0):
        assert not project(table, total).any()
    np.testing.assert_allclose(project(np.full(4, -3.0), 8.0), 2.0)
    assert project(np.zeros((0,)), 1.0).shape == (0,)


def test_large_values_lose_nothing():
    assert onto_simplex(np.array([1e15, 1e15 - 2]), 4.0).tolist() == [3.0, 1.0]
