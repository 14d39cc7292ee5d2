"""Contractions against the matrix that they avoid forming."""

from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.core.linear import explicit, random_maps

from masquerade.core.axes import AxisMap, AxisMaps, contract, contract_each

seeds = st.integers(0, 2**32 - 1)


@given(seeds)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_contract_equals_the_kronecker_product_in_c_order(seed):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 5, int(rng.integers(1, 5)))
    values = rng.normal(size=tuple(sizes))
    matrices = [None if rng.random() < 0.3 else rng.normal(size=(size, rng.integers(1, 5))) for size in sizes]
    whole = np.eye(1)
    for size, matrix in zip(sizes, matrices, strict=True):
        whole = np.kron(whole, np.eye(size) if matrix is None else matrix)
    result = contract(values, matrices)
    assert result.shape == tuple(
        size if matrix is None else matrix.shape[1] for size, matrix in zip(sizes, matrices, strict=True)
    )
    np.testing.assert_allclose(result.ravel(), values.ravel() @ whole, rtol=1e-10, atol=1e-10)


def test_contract_equals_einsum_and_keeps_the_axes_in_place():
    rng = np.random.default_rng(1)
    values, a, c = rng.normal(size=(2, 3, 4)), rng.normal(size=(2, 5)), rng.normal(size=(4, 6))
    expected = np.einsum("ijk,ia,kc->ajc", values, a, c)
    np.testing.assert_allclose(contract(values, [a, None, c]), expected, rtol=1e-12)


def test_tables_contracted_together_are_those_contracted_alone():
    generator = np.random.default_rng(5)
    shapes = [(3, 4), (3, 4), (4, 3), (2, 3, 4), (2, 3, 4), (5,), (5,), (), (70, 70), (70, 70)]
    tables = [generator.random(shape) for shape in shapes * 3]
    matrices = [
        [
            None if (i + axis) % 5 == 0 else generator.random((size, 2 + i % 2))
            for axis, size in enumerate(t.shape)
        ]
        for i, t in enumerate(tables)
    ]
    for table, own, found in zip(tables, matrices, contract_each(tables, matrices), strict=True):
        assert np.array_equal(found, contract(table, own))


def test_contract_of_a_number_is_the_number():
    assert contract(np.array(7.0), []).shape == ()


@given(seeds)
@settings(max_examples=80, deadline=None, derandomize=True)
def test_apply_and_spread_equal_the_explicit_matrix(seed):
    rng = np.random.default_rng(seed)
    maps, observed = random_maps(rng)
    whole = explicit(maps, observed)
    counts, weights = rng.normal(size=observed), rng.normal(size=maps.shape)
    applied, spread = maps.apply(counts), maps.spread(weights)
    assert applied.shape == maps.shape
    assert spread.shape == observed
    np.testing.assert_allclose(applied.ravel(), counts.ravel() @ whole, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(spread.ravel(), whole @ weights.ravel(), rtol=1e-9, atol=1e-9)


@given(seeds)
@settings(max_examples=80, deadline=None, derandomize=True)
def test_pairs_equal_the_blocks_of_the_explicit_second_moment(seed):
    rng = np.random.default_rng(seed)
    maps, observed = random_maps(rng)
    whole, counts = explicit(maps, observed), rng.normal(size=observed)
    axes = len(maps.shape)
    inner = rng.permutation(axes)[: int(rng.integers(0, axes + 1))].tolist()
    outer = [axis for axis in range(axes) if axis not in inner]
    moment = (whole.T * counts.ravel()) @ whole
    # cells numbered with the outer axes first and the inner ones in the order asked for
    cells = np.arange(prod(maps.shape)).reshape(maps.shape).transpose([*outer, *inner])
    blocks = cells.reshape(*(maps.shape[axis] for axis in outer), -1)
    expected = moment[blocks[..., :, None], blocks[..., None, :]]
    np.testing.assert_allclose(maps.pairs(counts, inner), expected, rtol=1e-9, atol=1e-9)


@given(seeds, st.booleans())
@settings(max_examples=80, deadline=None, derandomize=True)
def test_reduced_maps_give_the_summed_or_sliced_table(seed, squared):
    rng = np.random.default_rng(seed)
    maps, observed = random_maps(rng)
    axes = rng.permutation(len(maps.shape)).tolist()
    kept = int(rng.integers(0, len(axes) + 1))
    keep, rest = axes[:kept], axes[kept:]
    at = {axis: int(rng.integers(maps.shape[axis])) for axis in rest if rng.random() < 0.5}
    counts = rng.normal(size=observed)
    # the oracle works on the columns of the explicit matrix: select the fixed, add up the dropped
    columns = explicit(maps, observed).reshape(-1, *maps.shape)
    columns = columns[(slice(None), *(at.get(axis, slice(None)) for axis in range(len(axes))))]
    left = [axis for axis in range(len(axes)) if axis not in at]
    columns = columns.sum(axis=tuple(1 + i for i, axis in enumerate(left) if axis not in keep))
    left = [axis for axis in left if axis in keep]
    columns = columns.transpose([0, *(1 + left.index(axis) for axis in keep)]).reshape(counts.size, -1)
    (shrunk,), smaller, ends = maps.reduce([counts], [2 if squared else 1], keep, at)
    assert ends[0] <= ends[1]
    assert smaller.shape == tuple(maps.shape[axis] for axis in keep)
    if squared:
        result = smaller.pairs(shrunk, tuple(range(kept))).reshape(columns.shape[1], -1)
        expected = (columns.T * counts.ravel()) @ columns
    else:
        result, expected = smaller.apply(shrunk).ravel(), counts.ravel() @ columns
    np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_map_over_two_axes_reads_its_cells_in_its_own_order(order):
    # one observed axis of 6 reports, identity onto two table axes of sizes 2 and 3 (or 3 and 2)
    shape = (2, 3) if order == (0, 1) else (3, 2)
    table = AxisMaps(shape, (AxisMap(order, None),)).apply(np.arange(6.0))
    expected = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(table, expected if order == (0, 1) else expected.T)
