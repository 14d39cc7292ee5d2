"""Marks of distinct values reach the rows that have them, whatever the types and however many rows."""

import numpy as np
import pytest

from masquerade.kernels.take import narrow_codes, rows_with, spread


@pytest.mark.parametrize("rows", [0, 5, 40_000])
@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16, np.uint32, np.int64])
@pytest.mark.parametrize("ordered", [True, False])
def test_as_numpy_takes(rows, kind, ordered):
    generator = np.random.default_rng()
    indices = generator.integers(0, 100, rows).astype(kind)
    table = np.arange(101) if ordered else generator.integers(0, 250, 101)
    out = np.empty(rows, dtype=np.uint8)
    spread(indices, table.astype(np.uint8), out)
    assert np.array_equal(out, table.astype(np.uint8)[indices])


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize("step", [1, 2])
def test_bytes_that_begin_and_end_anywhere(kind, step):
    generator = np.random.default_rng()
    indices = generator.integers(0, 100, 40_003).astype(np.int8)[1::step]
    table = generator.permutation(101).astype(kind)
    out = np.full(40_004, 7, dtype=kind)[2::step][: len(indices)]
    spread(indices, table, out)
    assert np.array_equal(out, table[indices])


def test_a_table_longer_than_its_indices_can_say():
    indices = np.random.default_rng().integers(0, 128, 40_000).astype(np.int8)
    table = np.arange(300)[::-1] % 251
    out = np.empty(40_000, dtype=np.uint8)
    spread(indices, table.astype(np.uint8), out)
    assert np.array_equal(out, table[indices])
    indices[5] = -56  # as a byte without sign 200, which is inside
    with pytest.raises(IndexError, match="outside"):
        spread(indices, table.astype(np.uint8), out)


@pytest.mark.parametrize(
    ("largest", "kind"), [(0, np.uint8), (255, np.uint8), (256, np.uint16), (70_000, np.uint32)]
)
def test_codes_as_narrow_as_they_can_be(largest, kind):
    codes = np.random.default_rng().integers(0, largest + 1, 1000).astype(np.uint32)
    codes[500] = largest
    small, found = narrow_codes(codes)
    assert found == largest
    assert small.dtype == kind
    assert np.array_equal(small, codes)


@pytest.mark.parametrize("wrong", [-1, 3])
@pytest.mark.parametrize("rows", [5, 40_000])
def test_an_index_outside_is_refused(wrong, rows):
    indices = np.zeros(rows, dtype=np.int8)
    indices[rows // 2] = wrong
    with pytest.raises(IndexError, match="outside"):
        spread(indices, np.zeros(3, dtype=np.uint8), np.empty(rows, dtype=np.uint8))


def test_every_code_has_a_row_that_has_it():
    codes = np.random.default_rng().integers(0, 50, 1000).astype(np.uint32)
    row = np.zeros(50, dtype=np.int64)
    rows_with(codes, row)
    assert all(codes[row[code]] == code for code in np.unique(codes))
