"""Twins of compiled kernels give the same results to the last bit, and small work never loads Numba."""

from __future__ import annotations

import copy
import subprocess
import sys

import numpy as np
import pytest

from masquerade.kernels import cell_sums, count, draw, jit, label_text, take
from masquerade.kernels.key_texts import Texts

ROWS = 5_001  # odd, so that the last rows do not fill four lanes


def _codes(rng, size, rows=ROWS, width=np.uint8):
    return rng.integers(0, size, rows).astype(width)


def _texts(words: list[str]) -> Texts:
    spelled = [word.encode() for word in words]
    offsets = np.array([0, *np.cumsum([len(word) for word in spelled])], dtype=np.int32)
    return np.frombuffer(b"".join(spelled), dtype=np.uint8), offsets


def _index(rng, cells, width=np.uint16):
    return rng.integers(0, cells, ROWS).astype(width)


def _lanes(cells, *, shared):
    return [np.zeros(cells, np.uint32)] * 4 if shared else [np.zeros(cells, np.uint32) for _ in range(4)]


def _weighted(rng, lanes):
    sums = rng.normal(size=(lanes, 7, 3))
    return _index(rng, 7), rng.normal(size=ROWS), rng.normal(size=ROWS), rng.integers(1, 9, ROWS), sums


def _marked(rng):
    labels = ("yes", "no", "", "a label longer than sixteen bytes", "a label longer than twenty bytes", "é")
    table = label_text.label_table(labels)
    words = [*rng.choice([*labels, "other", "a label longer thaN sixteen bytes"], ROWS), "yes"]
    known = table.words, table.sizes, table.slots, *table.texts
    hashing = np.uint64(table.factor), np.uint64(65 - len(table.slots).bit_length()), label_text._MASKS
    marks = np.array([*range(len(labels)), 99], dtype=np.uint8)
    return _texts(words), known, hashing, marks, np.zeros(len(words), np.uint8)


def _draw_table():
    weights = np.array([[3, 1, 0, 5], [2**40, 1, 2**40 + 1, 7], [1, 1, 1, 1]])
    return draw.draw_table(np.tile(np.arange(4), (3, 1)), weights, 4)


def _words(rng, n):
    return rng.integers(0, 2**64, n, dtype=np.uint64)


def _settled(rng):
    waiting = np.sort(rng.choice(ROWS, ROWS // 2, replace=False))
    words = _words(rng, waiting.size)
    words[:50] = 2**64 - 1  # rejected where the weights do not divide 2^64
    return _codes(rng, 3), waiting, words, _draw_table().intervals, np.zeros(ROWS, np.uint8)


def _written(rng):
    labels = [[b"yes,", b"no,"], [b"a long label\n", b"x\n", b"\xc3\xa9\n"]]
    every = [label for column in labels for label in column]
    padded = [label.ljust(-(-len(label) // 8) * 8, b"\0") for label in every]
    begins = np.cumsum([0, *(len(label) // 8 for label in padded)])[:-1].astype(np.uint64)
    sizes = np.array([len(label) for label in every], dtype=np.uint64)
    spelled = np.frombuffer(b"".join(padded), dtype="<u8"), begins, sizes
    codes = np.array([_codes(rng, 2), _codes(rng, 3)])
    return codes, ROWS, np.array([0, 2], np.uint64), spelled, np.zeros(ROWS * 32, np.uint8)


def _blocks(rng):
    sizes = np.array([3, 40, 50], dtype=np.int64)
    columns = np.array([_codes(rng, size) for size in sizes])
    members = np.array([[0, 1, -1], [2, -1, -1], [0, 1, 2]])
    widths, cells = np.array([2, 1, 3]), np.array([120, 50, 6_000])
    lanes = np.where(cells <= cell_sums.LANED, 4, 1) * cells
    begins = np.cumsum(lanes) - lanes
    tables = np.zeros(lanes.sum(), np.uint32)
    return columns, (members, widths, begins), sizes, np.empty(1 << 13, np.uint16), tables


def _added_lanes(rng):
    *_, (_, _, begins), _, _, tables = _blocks(rng)
    tables[:] = rng.integers(0, 9, tables.size)
    ends = np.cumsum([120, 50, 6_000])
    return tables, begins, ends, np.ones(ends[-1], np.int64)


CASES = {
    cell_sums.start: [lambda r: (np.empty(ROWS, np.uint16), _codes(r, 9))],
    cell_sums.fold: [
        lambda r: (_index(r, 100), 9, _codes(r, 9)),
        lambda r: (_index(r, 1), 1 << 16, _codes(r, 1 << 16, width=np.uint16)),
        lambda r: (_index(r, 1 << 20, np.int64), 1 << 30, _codes(r, 1 << 30, width=np.uint32)),
    ],
    cell_sums.add_rows: [
        lambda r: (_index(r, 50), *_lanes(50, shared=False)),
        lambda r: (_index(r, 1 << 16, np.uint32), *_lanes(1 << 17, shared=True)),
    ],
    cell_sums.add_to_tables: [_blocks],
    cell_sums.add_lanes: [_added_lanes],
    cell_sums.add_repeated: [lambda r: (_index(r, 50), r.integers(0, 2**40, ROWS), np.ones(50, np.int64))],
    cell_sums.multiply: [lambda r: (r.normal(size=ROWS), _codes(r, 9), r.normal(size=9))],
    cell_sums.largest: [lambda r: (_codes(r, 200),)],
    cell_sums.add_weighted: [lambda r: _weighted(r, 4), lambda r: _weighted(r, 1)],
    take.rows_with: [lambda r: (_codes(r, 90), np.full(100, -1))],
    take._spread: [lambda r: (_codes(r, 9), r.integers(0, 200, 9), np.zeros(ROWS, np.uint8))],
    take._narrow: [lambda r: (_codes(r, 1 << 20, width=np.uint32), np.zeros(ROWS, np.uint8))],
    label_text._mark: [_marked],
    label_text._write: [_written],
    draw.tagged_blocks: [
        lambda r: (
            *(_codes(r, 256, (99, 10)), _codes(r, 2**24, 99, np.uint32)),
            *(777, 3, np.ones((99, 16), np.uint8)),
        )
    ],
    draw._screen: [
        lambda r: (
            *(_codes(r, 3), _codes(r, 256), _draw_table().first),
            *(np.zeros(ROWS, np.uint8), np.zeros(ROWS, int)),
        )
    ],
    draw._complete: [lambda r: (_words(r, 99), _codes(r, 256), r.integers(0, ROWS, 99))],
    draw._settle: [_settled],
}  # fmt: skip


def _flat(values):
    for value in values:
        yield from _flat(value) if isinstance(value, (tuple, list)) else [value]


def _comparable(kernel, arguments):
    if kernel in {cell_sums.add_rows, cell_sums.add_to_tables}:  # only the sums of their four lanes matter
        if kernel is cell_sums.add_rows:
            different = {id(table): table for table in arguments[1:]}
            return [sum(table.astype(np.int64) for table in different.values()).tobytes()]
        (_, _, begins), tables = arguments[1], arguments[4]
        totals = np.zeros(6_170, np.int64)
        cell_sums.add_lanes(tables, begins, np.cumsum([120, 50, 6_000]), totals)
        return [totals.tobytes()]
    return [np.asarray(value).tobytes() for value in _flat(arguments)]


@pytest.mark.parametrize("kernel", CASES, ids=lambda kernel: kernel.__name__)
def test_twin_equals_its_kernel_to_the_last_bit(kernel):
    for number, make in enumerate(CASES[kernel]):
        arguments = make(np.random.default_rng(number))
        memo: dict = {}
        mine, theirs = copy.deepcopy(arguments, memo), copy.deepcopy(arguments)
        given, expected = kernel.twin(*mine), kernel.load()(*theirs)
        assert (given is None) == (expected is None)
        if expected is not None:
            assert given == expected
        if kernel in {draw._screen, draw._settle}:  # behind the rows that wait, the buffer is free
            buffers = (mine[4], theirs[4]) if kernel is draw._screen else (mine[1], theirs[1])
            for buffer in buffers:
                buffer[given:] = 0
        assert _comparable(kernel, mine) == _comparable(kernel, theirs)


def test_every_twin_has_a_case():
    modules = [module for name, module in sys.modules.items() if name.startswith("masquerade.")]
    kernels = {one for module in modules for one in vars(module).values() if isinstance(one, jit.Kernel)}
    assert {one.__name__ for one in kernels if one.twin} <= {one.__name__ for one in CASES}


@pytest.mark.parametrize("rows", [1, 7, 20_000])
def test_counts_are_equal_with_and_without_numba(monkeypatch, rows):
    rng = np.random.default_rng(5)
    sizes = [2, 3, 5, 300]
    columns = [_codes(rng, size, rows, np.uint16 if size > 256 else np.uint8) for size in sizes]
    subsets = [(0, 1), (1, 2, 3), (2,), (), *((a, b) for a in range(4) for b in range(a))]
    times = rng.integers(1, 4, rows)
    factors = [(columns[1], rng.normal(size=3)), (columns[2], rng.normal(size=5))]

    def counted(work):
        monkeypatch.setattr(jit, "_work", work)
        tables = count.count_many(columns, sizes, subsets) + count.count_many(columns, sizes, subsets, times)
        tables += count.count_weighted(columns[:1], sizes[:1], factors, rng_weights, times)
        rare = count.distinct(columns[:3], sizes[:3])
        return [table.tobytes() for table in (*tables, *(() if rare is None else (*rare[0], rare[1])))]

    rng_weights = rng.normal(size=rows)
    assert counted(0) == counted(jit.ENOUGH_WORK)


def test_a_code_outside_its_table_is_refused_without_numba(monkeypatch):
    monkeypatch.setattr(jit, "_work", 0)
    with pytest.raises(ValueError, match=r"outside 0\.\.1"):
        count.count([np.array([0, 2, 1], dtype=np.uint8)], [2])


def test_many_small_calls_and_large_ones_end_the_use_of_twins(monkeypatch):
    monkeypatch.setattr(jit, "_work", 0)
    assert jit.is_little(1)
    jit.expect_rows(jit.LARGE - 1)
    assert jit.is_little(1)
    jit.expect_rows(jit.LARGE)
    assert not jit.is_little(1)
    monkeypatch.setattr(jit, "_work", 0)
    calls = next(n for n in range(1, jit.ENOUGH_WORK) if not jit.is_little(1000))
    assert calls <= jit.ENOUGH_WORK // jit.CALL_WORK


def test_small_tables_are_counted_without_numba():
    program = (
        "import sys, numpy as np, masquerade as mq, pyarrow as pa\n"
        "codes = np.random.default_rng(1).integers(0, 2, 20_000)\n"
        "table = pa.table({'a': np.array(['no', 'yes'])[codes], 'b': np.array(['x', 'y'])[codes]})\n"
        "[answer] = mq.tally(table).answer([mq.Query(by=('a', 'b'))])\n"
        "assert answer.values.sum() == 20_000\n"
        "print(sorted({'numba', 'scipy', 'narwhals'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(("tables", "loads"), [(1, False), (45, True)])
def test_compiled_code_is_loaded_for_the_work_and_not_for_the_rows(monkeypatch, tables, loads):
    """One table of a million records is less work than loading Numba; 45 tables are more."""
    monkeypatch.setattr(jit, "_work", 0)
    rng = np.random.default_rng(8)
    columns = [rng.integers(0, 90, 1_000_000, dtype=np.uint8) for _ in range(10)]
    pairs = [(a, b) for a in range(10) for b in range(a)][:tables]
    tables = count.count_many(columns, [90] * 10, pairs)
    assert all(table.sum() == 1_000_000 for table in tables)
    assert jit.is_little(0) != loads
