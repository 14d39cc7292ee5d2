"""Bring irrational or unwieldy probabilities to integer weights without weakening the guarantee."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from masquerade.channels.channel import Channel, dense

if TYPE_CHECKING:
    from masquerade.core.schema import Category

DENOMINATOR = 2**32


def rounded(rows: Sequence[Sequence[Fraction]], labels: Iterable[Category] | None = None) -> Channel:
    """Return a channel with denominator 2³² near `rows` whose γ is not larger.

    Impossible reports stay impossible and possible ones stay possible. Where rounding alone would raise γ,
    the rows are first mixed with a sliver of the uniform distribution, some 2⁻³²/(γ−1) per report. A channel
    with γ so near to 1 that no sliver helps has its rows made equal: it told nothing that survives rounding.
    """
    names = None if labels is None else tuple(labels)
    bound = largest_ratio(rows)
    sliver = 0
    while 2 * sliver * len(rows[0]) <= DENOMINATOR:
        lifted = [lift(row, Fraction(sliver, DENOMINATOR)) if bound < math.inf else list(row) for row in rows]
        result = dense(np.array([integer_weights(row) for row in lifted], dtype=np.int64), names)
        if result.gamma <= bound:
            return result
        sliver = max(1, 2 * sliver)
    average = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
    return dense(np.array([integer_weights(average)] * len(rows), dtype=np.int64), names)


def largest_ratio(rows: Sequence[Sequence[Fraction]]) -> Fraction | float:
    """Return γ of exact rows."""
    best = Fraction(1)
    for column in zip(*rows, strict=True):
        if max(column) > 0:
            if min(column) == 0:
                return math.inf
            best = max(best, max(column) / min(column))
    return best


def lift(row: Sequence[Fraction], sliver: Fraction) -> list[Fraction]:
    """Mix a row with the uniform distribution over reports that are possible at all."""
    possible = sum(1 for chance in row if chance)
    keep = 1 - sliver * possible
    return [keep * chance + sliver if chance else chance for chance in row]


def integer_weights(row: Sequence[Fraction]) -> list[int]:
    """Return integers near row·2³² with that sum: largest remainders, none of the possible ones zero."""
    exact = [chance * DENOMINATOR for chance in row]
    weights = [max(int(value), 1) if value else 0 for value in exact]
    order = sorted(range(len(row)), key=lambda i: exact[i] - weights[i], reverse=True)
    order = [i for i in order if exact[i]]
    short = DENOMINATOR - sum(weights)
    for i in order[: max(short, 0)]:
        weights[i] += 1
    if short < 0:
        weights[max(range(len(row)), key=weights.__getitem__)] += short
    return weights
