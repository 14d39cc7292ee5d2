"""Rows of channels on a person's device: reports with weights, in whole numbers, without NumPy."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated

from masquerade.core.record_gamma import Gamma
from masquerade.protocols.wire.codec import U32, Many, Number, Text

MOST_VARIABLES, MOST_LABELS = 255, 1 << 12
VariableName = Annotated[str, Text(1024)]
Weight = Annotated[int, Number(8)]
Row = Annotated[tuple[tuple[U32, Weight], ...], Many(MOST_LABELS)]


def gamma_of_rows(rows: Sequence[Sequence[tuple[int, int]]]) -> Gamma:
    """Return γ, the largest ratio of the probabilities of one report; infinite if a report excludes a value.

    Fractions are compared as pairs of whole numbers, for speed: there may be millions.
    """
    least: dict[int, tuple[int, int]] = {}
    most: dict[int, tuple[int, int]] = {}
    seen: Counter[int] = Counter()
    for row in rows:
        weights: Counter[int] = Counter()
        for report, weight in row:
            weights[report] += weight
        total = weights.total()
        for report, weight in weights.items():
            if not weight:
                continue
            seen[report] += 1
            low, high = (
                least.setdefault(report, (weight, total)),
                most.setdefault(report, (weight, total)),
            )
            if weight * low[1] < low[0] * total:
                least[report] = weight, total
            if weight * high[1] > high[0] * total:
                most[report] = weight, total
    if any(number < len(rows) for number in seen.values()):
        return math.inf
    return max(Fraction(*most[report]) / Fraction(*least[report]) for report in most)


def join_codes(codes: Sequence[int], sizes: Sequence[int]) -> int:
    """Return several codes as one, the last varying fastest."""
    joint = 0
    for code, size in zip(codes, sizes, strict=True):
        joint = joint * size + code
    return joint
