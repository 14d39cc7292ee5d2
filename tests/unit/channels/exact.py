"""Channels by brute force: exact fractions, written out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import product

import numpy as np

Rows = Sequence[Sequence[Fraction]]


def fractions(*rows: str) -> tuple[tuple[Fraction, ...], ...]:
    """Return rows written as text: "9/10 1/10"."""
    return tuple(tuple(Fraction(entry) for entry in row.split()) for row in rows)


def gamma(rows: Rows) -> Fraction | float:
    """Return the largest ratio within a column, over all pairs of truths."""
    best = Fraction(1)
    for report in range(len(rows[0])):
        for first, second in product(rows, repeat=2):
            if first[report] and not second[report]:
                return math.inf
            if second[report]:
                best = max(best, first[report] / second[report])
    return best


def random_rows(rng: np.random.Generator, truths: int, reports: int, most: int, zeros: float = 0.0) -> Rows:
    """Return rows with independent denominators; some reports impossible with probability `zeros`."""
    rows = []
    for _ in range(truths):
        weights = [int(w) * int(rng.random() >= zeros) for w in rng.integers(1, most, reports)]
        weights[int(rng.integers(reports))] += 1
        rows.append(tuple(Fraction(weight, sum(weights)) for weight in weights))
    return tuple(rows)


def times(first: Rows, second: Rows) -> Rows:
    """Return the product of two exact matrices."""
    columns = list(zip(*second, strict=True))
    return tuple(
        tuple(sum((a * b for a, b in zip(row, column, strict=True)), Fraction(0)) for column in columns)
        for row in first
    )
