"""Convert between counts of all configurations and sums of products of ±1 columns (fast Walsh–Hadamard).

A variable with K categories is coded by K − 1 columns of ±1, "is it category k?" for k = 1 … K − 1. A binary
variable has a single column. A product contains at most one column of each variable. The array of products
has the shape of the table of counts; index 0 on an axis means that the product contains no column of that
variable.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats


def coding(size: int) -> Floats:
    """Return the contribution of each category (row) to the empty product and to each ±1 column.

    >>> coding(2)
    array([[ 1., -1.],
           [ 1.,  1.]])
    """
    columns = np.full((size, size), -1.0)
    columns[:, 0] = 1.0
    columns[np.arange(1, size), np.arange(1, size)] = 1.0
    return columns


def product_columns(codes: Sequence[NDArray[Any]], sizes: Sequence[int]) -> Floats:
    """Return all products of the variables' ±1 columns, one per row; the first is the empty product.

    Cost: records × Π sizes.
    """
    records = len(codes[0])
    coded = [coding(size)[column].T for column, size in zip(codes, sizes, strict=True)]
    return reduce(
        lambda done, more: (done[:, None, :] * more[None, :, :]).reshape(-1, records),
        coded,
        np.ones((1, records)),
    )


def sums_of_products(counts: Floats) -> Floats:
    """Return the sum over all records of each product of ±1 columns, from the table of counts.

    Formula: α = A N with A = ⊗ coding(K)ᵀ; for binary variables A Aᵀ = 2^m I (Hadamard).
    Reference: Meng, Sivakumar & Kargupta (2004), equation 3, with axes in table order.
    Cost: O(cells · axes); A is never formed.
    """
    for axis in range(counts.ndim):
        whole = counts.sum(axis=axis, keepdims=True)
        rest = 2 * np.delete(counts, 0, axis=axis) - whole
        counts = np.concatenate([whole, rest], axis=axis)
    return counts


def counts_of(products: Floats) -> Floats:
    """Return the table of counts from the sums of all products: the inverse of `sums_of_products`.

    Formula: N = A⁻¹ α, for binary variables Aᵀα/2^m.
    Reference: Meng, Sivakumar & Kargupta (2004), equation 3.
    Cost: O(cells · axes). Error: exact while sums stay below 2⁵³ divided by the number of cells.
    """
    for axis in range(products.ndim):
        whole = np.take(products, [0], axis=axis)
        rest = (np.delete(products, 0, axis=axis) + whole) / 2
        products = np.concatenate([whole - rest.sum(axis=axis, keepdims=True), rest], axis=axis)
    return products
