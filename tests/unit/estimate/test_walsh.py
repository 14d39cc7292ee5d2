"""The fast transform equals the matrix of the paper, and undoes itself."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from masquerade.estimate.walsh import coding, counts_of, product_columns, sums_of_products

SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=1, max_side=4)
COUNTS = SHAPES.flatmap(lambda shape: hnp.arrays(np.float64, shape, elements=st.integers(-(2**30), 2**30)))

# Meng, Sivakumar & Kargupta (2004), equation 2: columns a … h are (z, x, y) = (−,−,−), (−,−,+), … (+,+,+)
EQUATION_2 = np.array(
    [
        [-1, -1, -1, -1, 1, 1, 1, 1],  # z
        [-1, -1, 1, 1, -1, -1, 1, 1],  # x
        [-1, 1, -1, 1, -1, 1, -1, 1],  # y
        [1, 1, -1, -1, -1, -1, 1, 1],  # z x
        [1, -1, 1, -1, -1, 1, -1, 1],  # z y
        [-1, 1, 1, -1, 1, -1, -1, 1],  # z x y
        [1, -1, -1, 1, 1, -1, -1, 1],  # x y
        [1, 1, 1, 1, 1, 1, 1, 1],
    ]
)
PLACES = [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (1, 0, 1), (1, 1, 1), (0, 1, 1), (0, 0, 0)]


def matrix(shape):
    return reduce(np.kron, [coding(size).T for size in shape], np.ones((1, 1)))


@given(COUNTS)
def test_the_transform_is_the_matrix_and_undoes_itself(counts):
    products = sums_of_products(counts)
    np.testing.assert_array_equal(products.ravel(), matrix(counts.shape) @ counts.ravel())
    np.testing.assert_array_equal(counts_of(products), counts)


@pytest.mark.parametrize("m", range(7))
def test_binary_variables_have_a_hadamard_matrix(m):
    A = matrix((2,) * m)
    np.testing.assert_array_equal(A @ A.T, 2**m * np.eye(2**m))
    products = np.random.default_rng(m).normal(size=(2,) * m)
    np.testing.assert_allclose(counts_of(products).ravel(), A.T @ products.ravel() / 2**m, atol=1e-12)


def test_equation_2_of_the_paper():
    counts = np.random.default_rng(1).integers(0, 100, (2, 2, 2)).astype(float)
    products = sums_of_products(counts)
    np.testing.assert_array_equal([products[place] for place in PLACES], EQUATION_2 @ counts.ravel())


def test_one_more_variable_is_the_recursion_of_the_paper():
    # equations 4 and 5 with the new variable slowest, as in Table 3: [[A, A], [−A, A]]
    A = matrix((2, 2))
    np.testing.assert_array_equal(matrix((2, 2, 2)), np.block([[A, A], [-A, A]]))


@pytest.mark.parametrize("sizes", [(2,), (3,), (2, 2), (2, 3), (4, 1, 2)])
def test_sums_of_the_columns_are_the_transform_of_the_counts(sizes):
    rng = np.random.default_rng(len(sizes))
    codes = [rng.integers(0, size, 50) for size in sizes]
    counts = np.zeros(sizes)
    np.add.at(counts, tuple(codes), 1)
    columns = product_columns(codes, sizes)
    assert set(np.unique(columns)) <= {-1.0, 1.0}
    np.testing.assert_array_equal(columns.sum(axis=1), sums_of_products(counts).ravel())


def test_inner_products_of_two_sets_of_columns_are_products_of_all():
    rng = np.random.default_rng(3)
    codes, sizes = [rng.integers(0, size, 40) for size in (2, 3, 2)], (2, 3, 2)
    first, second = product_columns(codes[:2], sizes[:2]), product_columns(codes[2:], sizes[2:])
    whole = product_columns(codes, sizes).sum(axis=1)
    np.testing.assert_array_equal((first @ second.T).ravel(), whole)
