"""MGAS: no group too small or too narrow, and exactly the groups of the slow algorithm."""

from __future__ import annotations

import warnings
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import masquerade as mq
from masquerade.anonymity.mgas import mgas, mgas_groups
from masquerade.core.errors import InputError, MasqueradeWarning

INTEGERS = st.lists(st.integers(-60, 60), min_size=1, max_size=40)
FLOATS = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40)


def quiet(function, *arguments):
    """Call without minding that the records may span less than g."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MasqueradeWarning)
        return function(*arguments)


def slow_line(values, k_min, g):
    """Merge the closest pair of neighbours, one at a time, by the definition; return the groups."""
    groups = []
    for value in sorted(set(values)):
        members = [x for x in values if x == value]
        groups.append((float(value), len(members), members))

    def done(group):
        return group[1] >= k_min and max(group[2]) - min(group[2]) >= g

    for alone in (False, True):  # first among the unfinished, then those left alone
        while True:
            pairs = []
            for i, (a, b) in enumerate(pairwise(groups)):
                ready = (done(a), done(b))
                if not (all(ready) if alone else any(ready)):
                    pairs.append((b[0] - a[0], i))
            if not pairs:
                break
            _, i = min(pairs)
            a, b = groups[i], groups[i + 1]
            mean = a[0] + (b[0] - a[0]) * (b[1] / (a[1] + b[1]))
            groups[i : i + 2] = [(mean, a[1] + b[1], a[2] + b[2])]
    return [sorted(group[2]) for group in groups]


def slow_plane(rows, k_min, spans):
    """Do the same over all pairs of points."""
    points, inverse = np.unique(rows, axis=0, return_inverse=True)
    inverse = inverse.ravel()
    groups = {
        i: (p.astype(float), [r for r in range(len(rows)) if inverse[r] == i]) for i, p in enumerate(points)
    }
    finished = {}

    def settle():
        for i, (_, members) in list(groups.items()):
            if len(members) >= k_min and np.all(np.ptp(rows[members], axis=0) >= spans):
                finished[i] = groups.pop(i)

    settle()
    while len(groups) > 1:
        names = sorted(groups)
        _, i, j = min(
            (((groups[a][0] - groups[b][0]) ** 2).sum(), a, b) for a in names for b in names if a < b
        )
        (m, own), (other_mean, other) = groups.pop(i), groups.pop(j)
        share = len(other) / (len(own) + len(other))
        groups[i] = (m + (other_mean - m) * share, own + other)
        settle()
    if groups and finished:
        ((mean, members),) = groups.values()
        near = min(finished, key=lambda i: (((finished[i][0] - mean) ** 2).sum(), i))
        finished[near][1].extend(members)
    else:
        finished.update(groups)
    return sorted(sorted(members) for _, members in finished.values())


def check(bins, values, k_min, g):
    values = np.asarray(values, dtype=float)
    assert np.all(np.diff(bins.edges) > 0)
    assert bins.edges[0] <= values.min()
    assert bins.edges[-1] >= values.max()
    order = bins.replace_by_order(values)
    assert np.array_equal(np.bincount(order, minlength=len(bins)), bins.counts)
    for k in range(len(bins)):
        members = values[order == k]
        assert len(members) >= k_min
        assert members.max() - members.min() >= g or len(bins) == 1
        assert bins.means[k] == pytest.approx(members.mean(), rel=1e-9, abs=1e-6)
    np.testing.assert_array_equal(bins.replace_by_mean(values), bins.means[order])


@settings(max_examples=150, deadline=None)
@given(FLOATS, st.integers(1, 8), st.floats(0, 1e5))
def test_every_group_has_enough_records_and_width(values, k_min, g):
    if len(values) < k_min:
        with pytest.raises(InputError, match="cannot make a group"):
            mgas(values, k_min, g)
        return
    check(quiet(mgas, values, k_min, g), values, k_min, g)


@settings(max_examples=150, deadline=None)
@given(INTEGERS, st.integers(1, 6), st.integers(0, 20))
def test_the_groups_are_those_of_the_slow_algorithm(values, k_min, g):
    if len(values) < k_min:
        return
    bins = quiet(mgas, values, k_min, g)
    order = bins.replace_by_order(values)
    found = [sorted(np.asarray(values)[order == k].tolist()) for k in range(len(bins))]
    assert found == slow_line(values, k_min, g)


def test_many_groups_are_those_of_the_slow_algorithm():
    values = np.random.default_rng(1).integers(0, 100_000, 300)
    for k_min, g in ((2, 0), (5, 0), (3, 1500), (12, 100)):
        order = mgas(values, k_min, g).replace_by_order(values)
        found = [sorted(values[order == k].tolist()) for k in range(order.max() + 1)]
        assert found == slow_line(values.tolist(), k_min, g)
        assert len(found) > 10


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=4, max_size=25),
    st.integers(1, 4),
    st.integers(0, 4),
    st.integers(0, 4),
)
def test_groups_of_several_columns_are_those_of_the_slow_algorithm(rows, k_min, g1, g2):
    rows = np.array(rows, dtype=float)
    groups = quiet(mgas_groups, rows, k_min, [g1, g2])
    found = sorted(np.flatnonzero(groups.labels == k).tolist() for k in range(len(groups)))
    assert found == slow_plane(rows, k_min, np.array([g1, g2]))
    for k in range(len(groups)):
        members = rows[groups.replace_by_order() == k]
        assert len(members) == groups.counts[k] >= k_min
        assert np.all(np.ptp(members, axis=0) >= [g1, g2]) or len(groups) == 1
        np.testing.assert_allclose(groups.means[k], members.mean(axis=0), atol=1e-9)
    np.testing.assert_array_equal(groups.replace_by_mean(), groups.means[groups.labels])


def test_one_column_of_several_is_one_number_without_neighbours_only_rule():
    rows = np.array([[0.0], [1.0], [10.0], [11.0], [30.0], [31.0]])
    groups = mgas_groups(rows, 2, 1)
    assert groups.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert groups.nearest([[9.0], [25.0]]).tolist() == [1, 2]
    with pytest.raises(InputError, match="1 columns"):
        groups.nearest([[1.0, 2.0]])


def test_the_order_of_the_records_does_not_matter():
    values = np.random.default_rng(0).normal(size=500).round(1)
    one, other = mgas(values, 10, 0.2), mgas(values[::-1], 10, 0.2)
    np.testing.assert_array_equal(one.edges, other.edges)
    np.testing.assert_array_equal(one.means, other.means)


def test_records_that_are_all_equal_or_too_close_are_one_group():
    bins = mgas([7] * 5, 3, 0)
    assert (len(bins), bins.means.tolist(), bins.counts.tolist()) == (1, [7.0], [5])
    assert bins.edges.tolist() == [6.5, 7.5]
    with pytest.warns(MasqueradeWarning, match="less than 'g'"):
        narrow = mgas([1, 2, 3], 2, 10)
    assert narrow.counts.tolist() == [3]
    with pytest.warns(MasqueradeWarning, match="less than 'g'"):
        assert len(mgas_groups([[1, 2], [3, 2], [5, 2]], 1, 1)) == 1
    large = mgas([1e140] * 2, 1, 0).edges
    assert large[0] < 1e140 < large[1]


def test_groups_of_neighbouring_floats_have_rising_edges():
    values = [1.0, np.nextafter(1.0, 2), 0.0, 5e-324]
    check(mgas(values, 1, 0), values, 1, 0)
    check(mgas(values[:2], 1, 0), values[:2], 1, 0)


def test_bad_input_is_refused():
    for values, k_min, g, match in (
        ([], 1, 0, "0 records"),
        ([1, 2], 3, 0, "2 records cannot make a group of 3"),
        ([1, 2], 0, 0, "'k_min'"),
        ([1, 2], 1.5, 0, "'k_min'"),
        ([1, 2], 1, -1, "'g'"),
        ([1, 2], 1, np.nan, "'g'"),
        ([1, np.nan], 1, 0, "row 2"),
        (["a"], 1, 0, "numbers"),
        ([[1, 2]], 1, 0, "1-dimensional"),
        ([0, -1e308], 1, 0, "row 2 is missing or beyond 1e.150"),
        ([0, np.inf], 1, 0, "row 2"),
    ):
        with pytest.raises(InputError, match=match):
            mgas(values, k_min, g)
    with pytest.raises(InputError, match="2 columns"):
        mgas_groups([[1, 2], [3, 4]], 1, [1, 2, 3])
    with pytest.raises(InputError, match="2-dimensional"):
        mgas_groups([1, 2], 1, 0)
    with pytest.raises(InputError, match="distinct records"):
        mgas_groups(np.arange(40_002).reshape(-1, 2), 1, 0)


def test_outside_the_bins_is_refused_by_row():
    bins = mgas([1, 2, 3, 4], 2, 1)
    with pytest.raises(InputError, match="row 2 is outside"):
        bins.replace_by_order([1, 99])


def test_bins_go_into_a_policy():
    values = np.random.default_rng(2).gamma(2, 10, 3000)
    bins = mgas(values, 150, 2)
    cuts = bins.policy_bins(low=0, high=1000)
    assert (cuts[0], cuts[-1]) == (0, 1000)
    policy = mq.Policy.from_dict({"masquerade": 1, "variables": {"income": {"bins": cuts}}})
    assert mq.Policy.from_dict(policy.to_dict()).id == policy.id
    counts = mq.tally(pd.DataFrame({"income": values}), schema=policy).answer([mq.Query(by="income")])[0]
    np.testing.assert_array_equal(counts.values, bins.counts)
    with pytest.raises(InputError, match="limits must enclose"):
        bins.policy_bins(low=values.mean())
    assert len(bins.summary().splitlines()) == len(bins) + 1


def test_no_outer_edge_is_somebodys_value():
    values = np.random.default_rng(3).normal(size=1000)
    bins = mgas(values, 50, 0.1)
    assert bins.edges[0] < values.min()
    assert bins.edges[-1] > values.max()
    assert not set(bins.edges) & set(values)


def two_triangles(n, rng):
    """Return samples of two triangles side by side, on [0, 10] and [10, 20] (a support declared here)."""
    left = rng.random(n) < 0.5
    return np.where(left, rng.triangular(0, 5, 10, n), rng.triangular(10, 15, 20, n))


def test_the_two_triangles_of_the_dissertation():
    """§2.5: 100,000 samples, k_min 1,500, g 0.25; 39 groups there, on a support that is not given."""
    values = two_triangles(100_000, np.random.default_rng(2006))
    bins = mgas(values, 1500, 0.25)
    check(bins, values, 1500, 0.25)
    assert 30 <= len(bins) <= 45


def test_gaps_that_only_grow_are_walked_in_linear_time():
    """The worst case of merging in rounds, some 300,000² steps; the walk takes each gap a few times."""
    bins = mgas(np.arange(300_000, dtype=float) ** 2, 1000, 0)
    assert bins.counts.min() >= 1000
    assert bins.counts.sum() == 300_000
