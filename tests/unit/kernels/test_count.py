"""Tables of codes against the plainest NumPy that computes the same."""

from itertools import combinations, zip_longest

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from masquerade.kernels import count as counting
from masquerade.kernels import tiles
from masquerade.kernels.count import (
    count,
    count_flat,
    count_many,
    count_weighted,
    count_weighted_many,
    distinct,
)
from masquerade.kernels.cover import _assign, cover, scatter_cost

DTYPES = (np.uint8, np.uint16, np.uint32)


def plain(columns, sizes, multiplicity=None):
    table = np.zeros(sizes, dtype=np.int64)
    np.add.at(table, tuple(columns), 1 if multiplicity is None else multiplicity)
    return table


def random_columns(seed, sizes, rows, dtypes=DTYPES):
    generator = np.random.default_rng(seed)
    return [generator.integers(0, size, rows).astype(dtypes[c % len(dtypes)]) for c, size in enumerate(sizes)]


@st.composite
def coded_columns(draw):
    sizes = draw(st.lists(st.integers(1, 9), min_size=1, max_size=5))
    rows = draw(st.integers(0, 300))
    dtypes = draw(st.permutations(DTYPES))
    return random_columns(draw(st.integers(0, 2**32)), sizes, rows, dtypes), sizes


@given(coded_columns(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_count_is_exact(data, repeated):
    columns, sizes = data
    times = np.arange(columns[0].size, dtype=np.int64) - 3 if repeated else None
    table = count(columns, sizes, times)
    assert table.dtype == np.int64
    assert table.flags.c_contiguous
    assert (table == plain(columns, sizes, times)).all()


@given(coded_columns(), st.data())
@settings(max_examples=60, deadline=None)
def test_count_many_answers_each_request_in_its_own_order(data, choices):
    columns, sizes = data
    some = st.lists(st.permutations(range(len(sizes))), max_size=6)
    subsets = [tuple(order[: choices.draw(st.integers(0, len(sizes)))]) for order in choices.draw(some)]
    tables = count_many(columns, sizes, subsets)
    for subset, table in zip(subsets, tables, strict=True):
        chosen = [sizes[c] for c in subset]
        expected = plain([columns[c] for c in subset], chosen) if subset else np.array(columns[0].size)
        assert table.shape == tuple(chosen)
        assert table.flags.c_contiguous
        assert (table == expected).all()
    if subsets and max(map(len, subsets)):
        members = np.array([*zip_longest(*subsets, fillvalue=-1)]).T
        flat = count_flat(columns, sizes, members)
        assert (flat == np.concatenate([table.ravel() for table in tables])).all()


@pytest.mark.parametrize("rows", [tiles.TILE - 1, tiles.TILE + 1, 2 * tiles.SHARE + 3])
def test_tiles_and_threads_lose_no_row(rows):
    sizes = [3, 200, 2]
    columns = random_columns(1, sizes, rows)
    times = np.arange(rows, dtype=np.int64)
    assert (count(columns, sizes) == plain(columns, sizes)).all()
    assert (count(columns, sizes, times) == plain(columns, sizes, times)).all()


@pytest.mark.parametrize("sizes", [[70_000], [300, 300], [2000, 1000], [256], [65_536]])
def test_large_tables(sizes):
    columns = random_columns(2, sizes, 100_000, (np.uint32, np.uint16))
    assert (count(columns, sizes) == plain(columns, sizes)).all()


def test_many_requests_share_blocks():
    sizes = [5, 2, 3, 5, 40, 2, 5, 7]
    columns = random_columns(3, sizes, 2_000_000, (np.uint8,))
    subsets = [pair for k in (1, 2, 3) for pair in combinations(range(8), k)]
    assert len(cover(sizes, subsets, 2_000_000)) < 28
    for subset, table in zip(subsets, count_many(columns, sizes, subsets), strict=True):
        code = np.zeros(2_000_000, dtype=np.int64)
        for c in subset:
            code = code * sizes[c] + columns[c]
        assert (table.ravel() == np.bincount(code, minlength=table.size)).all()


@pytest.mark.parametrize("shared", [0, 1 << 40])
@pytest.mark.parametrize("dtypes", [(np.uint8,), (np.uint8, np.uint16, np.uint32)])
@pytest.mark.parametrize("rows", [0, 5, 1003, tiles.TILE + 1, 2 * tiles.SHARE + 3])
def test_small_tables_are_counted_together(rows, dtypes, shared, monkeypatch):
    monkeypatch.setattr(counting, "_SHARED", shared)
    monkeypatch.setattr(counting, "cover", lambda _, subsets, __: _assign(subsets, subsets))
    sizes = [2, 40, 3, 30, 4]
    columns = random_columns(5, sizes, rows, dtypes)
    subsets = [pair for k in (1, 2, 3) for pair in combinations(range(5), k)]
    for subset, table in zip(subsets, count_many(columns, sizes, subsets), strict=True):
        own = [columns[c] for c in subset]
        assert (table == plain(own, [sizes[c] for c in subset])).all()
    if rows:
        with pytest.raises(ValueError, match="column 1 has the code 39"):
            count_many([np.full(rows, 39, np.uint8)] * 5, [40, 39, 40, 40, 40], subsets)


def test_few_rows_are_counted_without_planning():
    subsets = list(combinations(range(10), 2))
    assert [block.columns for block in cover([5] * 10, subsets, 1000)] == subsets
    assert len(cover([5] * 10, subsets, 10_000_000)) < 8


def test_the_cost_of_a_row_grows_with_the_table():
    costs = [scatter_cost(1 << bits) for bits in range(40)]
    assert costs == sorted(costs)


def test_no_columns_count_the_rows():
    assert count([], [], np.array([2, 3])).item() == 5
    assert count_many([np.zeros(7, np.uint8)], [1], [()])[0].item() == 7
    assert count_many([np.zeros(7, np.uint8)], [1], []) == []
    with pytest.raises(ValueError, match="needed to count rows"):
        count([], [])


def test_no_rows_and_no_categories():
    assert count([np.empty(0, np.uint8)], [0]).shape == (0,)
    assert (count([np.empty(0, np.uint8)] * 2, [2, 3]) == np.zeros((2, 3))).all()
    assert count_weighted([np.empty(0, np.uint8)], [2], [], None, None)[0].tolist() == [0, 0]
    with pytest.raises(ValueError, match="code 0"):
        count([np.zeros(1, np.uint8)], [0])


def test_strided_and_read_only_columns():
    column = np.arange(100, dtype=np.uint8)
    column.flags.writeable = False
    assert (count([column[::2]], [100]) == plain([column[::2]], [100])).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("multiplicity", [None, np.ones(3, dtype=np.int64)])
def test_codes_outside_their_size_are_refused(dtype, multiplicity):
    columns, sizes = [np.zeros(3, dtype), np.array([0, 1, 250], dtype)], [2, 250]
    with pytest.raises(ValueError, match="column 1 has the code 250"):
        count(columns, sizes, multiplicity)
    with pytest.raises(ValueError, match="column 1 has the code 250"):
        count_weighted(columns, sizes, [], None, multiplicity)
    with pytest.raises(ValueError, match="column 0 has the code 250"):
        count_weighted([], [], [(columns[1], np.ones(250))], None, multiplicity)


@pytest.mark.parametrize(
    ("columns", "sizes", "complaint"),
    [
        ([np.zeros(2, np.uint8)] * 2, [1 << 14, 1 << 14], "268435456 cells"),
        ([np.zeros(2, np.uint8), np.zeros(3, np.uint8)], [1, 1], "equally long"),
        ([np.zeros((2, 2), np.uint8)], [1], "one-dimensional"),
        ([np.zeros(2, np.int64)], [1], "unsigned"),
        ([np.zeros(2, np.uint64)], [1], "32 bits"),
        ([np.zeros(2, np.uint8)], [1, 1], "as many sizes"),
    ],
)
def test_impossible_requests_are_refused(columns, sizes, complaint):
    with pytest.raises(ValueError, match=complaint):
        count(columns, sizes)


def test_a_column_cannot_be_asked_for_twice():
    with pytest.raises(ValueError, match="twice"):
        count_many([np.zeros(2, np.uint8)], [1], [(0, 0)])


@given(coded_columns(), st.integers(0, 2), st.booleans(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_weighted_sums(data, cells_from, weighted, repeated):
    columns, sizes = data
    rows = columns[0].size
    generator = np.random.default_rng(rows)
    factors = [(c, generator.normal(size=size)) for c, size in zip(columns, sizes, strict=True)]
    v = generator.random(rows) if weighted else np.ones(rows)
    m = generator.integers(0, 5, rows) if repeated else np.ones(rows, dtype=np.int64)
    cells, shape = columns[:cells_from], sizes[:cells_from]
    sums = count_weighted(cells, shape, factors, v if weighted else None, m if repeated else None)
    w = np.prod([vector[codes] for codes, vector in factors], axis=0)
    for found, values in zip(sums, (v * w, (v * w) ** 2, v**2 * w), strict=True):
        expected = np.zeros(shape)
        np.add.at(expected, tuple(cells), m * values) if cells else expected.__iadd__((m * values).sum())
        assert found.shape == tuple(shape)
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


def test_weighted_sums_do_not_depend_on_the_number_of_threads(monkeypatch):
    rows = 3 * tiles.SHARE + 11
    columns = random_columns(5, [5, 6, 7], rows)
    vector = np.random.default_rng(6).normal(size=7)
    results = []
    for cores in (1, 2, 5):
        monkeypatch.setattr(tiles.os, "cpu_count", lambda cores=cores: cores)
        results.append(count_weighted(columns[:2], [5, 6], [(columns[2], vector)], None, None))
    expected = np.bincount(columns[0].astype(int) * 6 + columns[1], vector[columns[2]]).reshape(5, 6)
    np.testing.assert_allclose(results[0][0], expected)
    for other in results[1:]:
        assert all((a == b).all() for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize(("cells", "rows"), [(20, 4000), (2000, 4000)])
def test_weighted_tables_of_any_size(cells, rows, monkeypatch):
    monkeypatch.setattr(counting, "_LANED", 100)
    column = random_columns(7, [cells], rows, (np.uint16,))[0]
    sums = count_weighted([column], [cells], [], np.full(rows, 0.5), None)
    table = plain([column], [cells])
    for found, factor in zip(sums, (0.5, 0.25, 0.25), strict=True):
        assert (found == factor * table).all()


@pytest.mark.parametrize("sizes", [[3, 4], [60_000, 50_000, 4_000_000], [1]])
def test_distinct_rows_reproduce_the_counts(sizes):
    generator = np.random.default_rng(8)
    kinds = [generator.integers(0, size, 50).astype(np.uint32) for size in sizes]
    pick = generator.integers(0, 50, 20_000)
    columns = [kind[pick] for kind in kinds]
    found = distinct(columns, sizes)
    assert found is not None
    rows, times = found
    expected, expected_times = np.unique(np.stack(columns, axis=1), axis=0, return_counts=True)
    assert (np.stack(rows, axis=1) == expected).all()
    assert (times == expected_times).all()
    assert [row.dtype for row in rows] == [column.dtype for column in columns]


def test_distinct_gives_up_where_it_does_not_pay():
    generator = np.random.default_rng(9)
    many = [generator.integers(0, 1000, 20_000).astype(np.uint16) for _ in range(3)]
    assert distinct(many, [1000] * 3) is None
    half = [np.where(np.arange(20_000) % 2 == 0, 0, column).astype(np.uint16) for column in many]
    assert distinct(half, [1000] * 3) is None
    assert distinct([np.zeros(2, np.uint8)], [2]) is None
    assert distinct([np.zeros(100, np.uint32)] * 3, [1 << 31] * 3) is None


@pytest.mark.parametrize("rows", [0, 1, 5000, 3 * tiles.SHARE + 5])
def test_weighted_tables_together_are_those_counted_alone_to_the_last_bit(rows):
    sizes = [3, 40, 70]
    columns = random_columns(9, sizes, rows)
    vector = np.random.default_rng(3).normal(size=70)
    v, m = np.random.default_rng(4).random(rows), np.random.default_rng(5).integers(0, 4, rows)
    subsets = [(0,), (), (1, 0), (2, 1)]
    factors = [(columns[2], vector)]
    tables = count_weighted_many(columns, sizes, subsets, factors, row_weights=v, multiplicity=m)
    for used, table in zip(subsets, tables, strict=True):
        alone = count_weighted([columns[c] for c in used], [sizes[c] for c in used], factors, v, m)
        for one, other in zip(table, alone, strict=True):
            assert one.shape == tuple(sizes[c] for c in used)
            assert (one == other).all()
