"""Groups from distances alone: within the cover's bound of the fewest stars, and the same for everybody."""

from itertools import product
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.anonymity.oracle import fewest_stars

from masquerade.anonymity import ball_cover, lean_cover, subset_cover
from masquerade.anonymity.suppression import differing_cells, distances, partition_distances
from masquerade.core.errors import InputError


def harmonic(n):
    return sum(1 / i for i in range(1, n + 1))


def bound(cover, k):
    """Return the factor that a cover's docstring proves."""
    split = (2 * k - 1) * (2 * k - 2) / k
    return {lean_cover: 2 * split * (1 + harmonic(k)), subset_cover: split * harmonic(2 * k - 1)}.get(
        cover, inf
    )


def stars(codes, groups):
    return int(differing_cells(codes, groups).sum())


tables = st.integers(2, 8).flatmap(
    lambda rows: st.lists(
        st.lists(st.integers(0, 2), min_size=3, max_size=3), min_size=rows, max_size=rows
    ).map(np.array)
)


@pytest.mark.parametrize("cover", [lean_cover, ball_cover, subset_cover])
@given(codes=tables, k=st.integers(2, 3))
@settings(max_examples=120, deadline=None, derandomize=True)
def test_groups_have_k_to_2k_minus_1_rows_and_few_stars(cover, codes, k):
    if len(codes) < k:
        return
    groups = partition_distances(distances(codes), k, cover=cover)
    sizes = np.bincount(groups)
    assert sizes.min() >= k
    assert sizes.max() <= 2 * k - 1
    fewest, found = fewest_stars(codes, k), stars(codes, groups)
    assert found <= bound(cover, k) * fewest if fewest else cover is ball_cover or found == 0


def test_all_small_binary_tables_stay_within_the_bound():
    for cells in product((0, 1), repeat=10):
        codes = np.array(cells).reshape(5, 2)
        found = stars(codes, partition_distances(distances(codes), 2))
        assert found <= bound(lean_cover, 2) * fewest_stars(codes, 2)


def test_a_large_set_is_split_by_nearness_not_by_order():
    codes = np.array([[0, 0, 0], [5, 1, 1], [0, 0, 0], [5, 1, 1], [0, 0, 0], [5, 1, 1]])

    def everybody(between, _k):
        return [set(range(len(between)))]

    groups = partition_distances(distances(codes), 3, cover=everybody)
    assert groups.tolist() == [0, 1, 0, 1, 0, 1]


def test_equal_distances_give_equal_groups():
    codes = np.random.default_rng(5).integers(0, 3, size=(40, 5))
    first, second = (partition_distances(distances(codes), 4) for _ in range(2))
    assert first.tolist() == second.tolist()


@pytest.mark.parametrize(
    ("between", "k", "message"),
    [
        ([[0, 1], [1, 0]], 3, "no groups of 3"),
        ([[0, 1], [1, 0]], 1, "at least 2"),
        ([[0, 1], [2, 0]], 2, "must be symmetric"),
        ([[1, 1], [1, 0]], 2, "zero from a row to itself"),
        ([[0, -1], [-1, 0]], 2, "whole numbers"),
        ([[0, 1.5], [1.5, 0]], 2, "whole numbers"),
        ([[0, 70_000], [70_000, 0]], 2, "65,535"),
        ([0, 1], 2, "square"),
    ],
)
def test_what_is_no_distance_matrix_is_refused(between, k, message):
    with pytest.raises(InputError, match=message):
        partition_distances(between, k)
