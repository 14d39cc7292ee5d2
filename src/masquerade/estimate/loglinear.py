"""Hierarchical log-linear models of a table: generators, parameters, and fits to clear counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain, combinations
from math import prod

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError

Generators = tuple[tuple[int, ...], ...]
CYCLES = 500  # most cycles of proportional fitting; decomposable models need one or two
FEW_CELLS = 256  # design matrices of tables up to this size are cached
STILL = 1e-11  # proportional fitting has converged when margins change by less than this (relative)


def generators_of(sets: Iterable[Iterable[int]], axes: int) -> Generators:
    """Return the maximal sets of axes; raise InputError unless axes exist and are unique within a set."""
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
    """Return all terms of the model: all subsets of its generators, including the empty one."""
    below = (combinations(axis_set, size) for axis_set in generators for size in range(len(axis_set) + 1))
    return sorted({*chain.from_iterable(below), ()}, key=lambda term: (len(term), term))


def parameters(generators: Generators, shape: Sequence[int]) -> int:
    """Return the number of free parameters, including the total."""
    return sum(prod(shape[axis] - 1 for axis in term) for term in terms_of(generators))


def proportional_fit(counts: Floats, generators: Generators) -> Floats:
    """Return the table of the model whose margins over the generators equal those of `counts`.

    Formula: E ← E·margin(counts)/margin(E), generator by generator, from the uniform table.
    Reference: Deming & Stephan (1940); Haberman (1974). Closed form for decomposable models.
    Cost: two passes over the table per generator and cycle.
    Error: margins agree to 1e-11, relative to the total.
    """
    total = float(counts.sum())
    if total <= 0 or not counts.ndim:
        return np.array(counts, dtype=float)
    fitted = np.full(counts.shape, total / counts.size)
    margins = []
    for axis_set in generators:
        summed = tuple(axis for axis in range(counts.ndim) if axis not in axis_set)
        margins.append((summed, counts.sum(axis=summed, keepdims=True)))
    for _ in range(CYCLES):
        off = 0.0
        for summed, target in margins:
            margin = fitted.sum(axis=summed, keepdims=True)
            off = max(off, float(np.abs(margin - target).max()))
            fitted = fitted * np.divide(target, margin, out=np.zeros_like(margin), where=margin > 0)
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
    """Return a small design matrix, cached for all fits of the model."""
    X = _new_design(generators, shape)
    X.flags.writeable = False
    return X


def effects(size: int) -> Floats:
    """Return the effect coding of a variable: a column per category except the last, whose row is all −1."""
    return np.vstack([np.eye(size - 1), -np.ones((1, size - 1))])
