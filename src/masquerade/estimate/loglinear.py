"""Hierarchical log-linear models of a table: margins that they follow, parameters, fits to clear counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain, combinations
from math import prod

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError

Generators = tuple[tuple[int, ...], ...]
CYCLES = 500  # of proportional fitting; decomposable models need one or two
FEW_CELLS = 256  # of a table whose design matrix is kept
STILL = 1e-11  # relative change of a margin below which proportional fitting stands still


def generators_of(sets: Iterable[Iterable[int]], axes: int) -> Generators:
    """Return the sets of axes that no other one contains; axes must exist, each once in a set."""
    listed = [tuple(sorted(axis_set)) for axis_set in sets]
    for axis_set in listed:
        if len(set(axis_set)) < len(axis_set) or any(not 0 <= axis < axes for axis in axis_set):
            raise InputError(f"A generator names axes 0 to {axes - 1}, each once. Got {axis_set} instead.")
    unique = sorted(set(listed), key=lambda axis_set: (-len(axis_set), axis_set))
    kept: list[tuple[int, ...]] = []
    for axis_set in unique:
        if not any(set(axis_set) <= set(other) for other in kept):
            kept.append(axis_set)
    return tuple(kept)


def terms_of(generators: Generators) -> list[tuple[int, ...]]:
    """Return every term of the model: all subsets of its generators, the empty one among them."""
    below = (combinations(axis_set, size) for axis_set in generators for size in range(len(axis_set) + 1))
    return sorted({*chain.from_iterable(below), ()}, key=lambda term: (len(term), term))


def parameters(generators: Generators, shape: Sequence[int]) -> int:
    """Return the number of free parameters, the total among them."""
    return sum(prod(shape[axis] - 1 for axis in term) for term in terms_of(generators))


def proportional_fit(counts: Floats, generators: Generators) -> Floats:
    """Return the table of the model whose margins over the generators are those of `counts`.

    Formula: E ← E·margin(counts)/margin(E), generator by generator, from the even table.
    Reference: Deming & Stephan (1940); Haberman (1974). Closed form where the model is decomposable.
    Cost: two passes over the table for each generator and cycle.
    Error: margins agree to 1e-11, relative to the total.
    """
    total = float(counts.sum())
    if total <= 0 or not counts.ndim:
        return np.array(counts, dtype=float)
    fitted = np.full(counts.shape, total / counts.size)
    margins = []
    for axis_set in generators:
        gone = tuple(axis for axis in range(counts.ndim) if axis not in axis_set)
        margins.append((gone, counts.sum(axis=gone, keepdims=True)))
    for _ in range(CYCLES):
        off = 0.0
        for gone, wanted in margins:
            found = fitted.sum(axis=gone, keepdims=True)
            off = max(off, float(np.abs(found - wanted).max()))
            fitted = fitted * np.divide(wanted, found, out=np.zeros_like(found), where=found > 0)
        if off <= STILL * total or len(margins) < 2:
            break
    return fitted


def design(generators: Generators, shape: Sequence[int]) -> Floats:
    """Return the design matrix (cells × parameters) of log expected counts, in effect coding."""
    build = _known_design if prod(shape) <= FEW_CELLS else _new_design
    return build(generators, tuple(shape))


def _new_design(generators: Generators, shape: tuple[int, ...]) -> Floats:
    columns = []
    for term in terms_of(generators):
        blocks = [effects(size) if axis in term else np.ones((size, 1)) for axis, size in enumerate(shape)]
        column: Floats = np.ones((1, 1))
        for block in blocks:
            column = np.asarray(np.kron(column, block), dtype=np.float64)
        columns.append(column)
    return np.hstack(columns)


@lru_cache(maxsize=128)
def _known_design(generators: Generators, shape: tuple[int, ...]) -> Floats:
    """Return a small design matrix, which every fit of the model shares."""
    X = _new_design(generators, shape)
    X.flags.writeable = False
    return X


def effects(size: int) -> Floats:
    """Return the effects of a variable: one column for every category but the last, which is minus them."""
    return np.vstack([np.eye(size - 1), -np.ones((1, size - 1))])
