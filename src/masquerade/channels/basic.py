"""The papers' channels: identity, binary, symmetric, ternary, grouped, any matrix, flip."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np

from masquerade.channels.channel import (
    LARGEST_DENOMINATOR,
    MOST_ENTRIES,
    Channel,
    check_cost,
    dense,
    from_rows,
    from_sparse,
)
from masquerade.channels.rationals import Rational, probability, rational
from masquerade.core.errors import ChannelError
from masquerade.core.schema import Category, Schema

MOST_CATEGORIES = 2**24


def identity(categories: int) -> Channel:
    """Return the channel that reports the truth (γ = ∞ with more than one category).

    >>> mq.channels.identity(3).row(2), mq.channels.identity(3).gamma
    ({2: Fraction(1, 1)}, inf)
    """
    check_categories(categories)
    if categories > MOST_CATEGORIES:
        raise ChannelError(f"A channel has at most {MOST_CATEGORIES:,} categories; use smaller groups.")
    codes = np.arange(categories, dtype=np.int32)[:, None]
    return Channel(codes, np.ones((categories, 1), dtype=np.int64), categories)


def matrix(
    rows: Sequence[Sequence[Rational]],
    labels: Iterable[Category] | None = None,
    columns: Mapping[str, Sequence[Category]] | None = None,
) -> Channel:
    """Return the channel with these rows; rows are truths, columns are reports.

    Reports that stand in several `columns` are combinations of their labels, the first varying slowest.

    >>> mq.channels.matrix([["0.9", "0.1"], ["1/4", "3/4"]]).gamma
    Fraction(15, 2)
    """
    if not rows or not rows[0]:
        raise ChannelError("A channel needs at least one truth and one report.")
    if any(len(row) != len(rows[0]) for row in rows):
        raise ChannelError("All rows of a channel must have the same number of reports.")
    exact = [
        {m: rational(entry, f"row {l + 1}, report {m + 1}") for m, entry in enumerate(row)}
        for l, row in enumerate(rows)
    ]
    found = from_rows(exact, len(rows[0]), labels)
    return found if columns is None else replace(found, columns=Schema(columns).variables)


def binary(p1: Rational, p2: Rational | None = None) -> Channel:
    """Return the channel that changes the first category with probability p1, the second with p2 (= p1).

    >>> mq.channels.binary(0.1, 0.25).gamma
    Fraction(15, 2)
    """
    first = probability(p1, "p1")
    second = first if p2 is None else probability(p2, "p2")
    return from_rows([{0: 1 - first, 1: first}, {0: second, 1: 1 - second}], 2)


def symmetric(categories: int, p: Rational) -> Channel:
    """Return k-ary randomized response: the truth with probability 1−p, else any other category alike.

    >>> mq.channels.symmetric(5, 0.4).gamma
    Fraction(6, 1)
    """
    check_categories(categories)
    change = probability(p, "p")
    if categories == 1 or change == 0:
        return identity(categories)
    other = change / (categories - 1)
    scale = math.lcm((1 - change).denominator, other.denominator)
    if scale > LARGEST_DENOMINATOR:
        return near_symmetric(categories, (1 - change) / other)
    return _two_weights(categories, int((1 - change) * scale), int(other * scale))


def near_symmetric(categories: int, ratio: Fraction) -> Channel:
    """Return a symmetric channel whose P(truth)/P(other) is `ratio`, rounded towards 1 so that γ never rises.

    Error: a ratio from 1 to 2⁶¹ is kept to 2⁻³² of itself, a larger one becomes 2⁶¹, one below 1 moves up
    by less than 2⁻³².
    """
    kept = min(ratio, Fraction(2**61))
    other = 1 << max(0, min(32, 61 - (math.ceil(kept) + categories).bit_length()))
    return _two_weights(categories, math.floor(kept * other) if kept >= 1 else math.ceil(kept * other), other)


def _two_weights(categories: int, own: int, other: int) -> Channel:
    """Return the square channel with one integer weight for the truth and one for every other category."""
    if categories**2 > MOST_ENTRIES:
        many = f"{categories:,}" if categories < 10**15 else "more than 10^15"
        raise ChannelError(
            f"A symmetric channel over {many} categories is too large "
            f"(at most {math.isqrt(MOST_ENTRIES):,}); split the variables into smaller groups."
        )
    weights = np.full((categories, categories), other, dtype=np.int64)
    np.fill_diagonal(weights, own)
    return dense(weights)


def ternary(p1: Rational, p2: Rational | None = None) -> Channel:
    """Return the cyclic channel on three categories: to the next with p1, to the one after with p2 (= p1).

    >>> round(float(mq.channels.ternary(0.15, 0.15).gamma), 2)
    4.67
    """
    first = probability(p1, "p1")
    second = first if p2 is None else probability(p2, "p2")
    probability(first + second, "p1 + p2")
    return from_rows([{l: 1 - first - second, (l + 1) % 3: first, (l + 2) % 3: second} for l in range(3)], 3)


def grouped(groups: Sequence[Sequence[int]], within: Sequence[Channel]) -> Channel:
    """Return the block channel that changes a category only within its group (the group is disclosed).

    >>> channel = mq.channels.grouped([[0, 1], [2, 3]], [mq.channels.binary(0.25), mq.channels.binary(0.1)])
    >>> channel.row(3)
    {2: Fraction(1, 10), 3: Fraction(9, 10)}
    """
    members = [code for group in groups for code in group]
    if sorted(members) != list(range(len(members))):
        raise ChannelError("The groups of a grouped channel must hold every category exactly once.")
    if len(groups) != len(within):
        raise ChannelError(f"{len(groups)} groups need {len(groups)} channels. Got {len(within)}.")
    entries = sum(channel.weights.size for channel in within)
    check_cost(2 * entries)
    rows: list[Mapping[int, int]] = [{}] * len(members)
    for group, channel in zip(groups, within, strict=True):
        if (channel.truths, channel.reports) != (len(group), len(group)):
            raise ChannelError(
                f"The channel of a group of {len(group)} categories must be square of that size."
            )
        for place, code in enumerate(group):
            pairs = zip(channel.outcomes[place].tolist(), channel.weights[place].tolist(), strict=True)
            rows[code] = {group[report]: weight for report, weight in pairs if weight}
    return from_sparse(rows, len(members))


def flip(
    sizes: Sequence[int],
    theta: Rational | Sequence[Rational],
    groups: Sequence[Sequence[int]] | None = None,
    opposites: Sequence[Sequence[int] | None] | None = None,
) -> Channel:
    """Return multivariate randomized response over variables disguised together.

    With probability θ all variables of a group are reported as they are, else all reversed; groups act
    independently (all variables are one group by default). A binary value has one opposite; a variable
    with more categories needs a declared involution in `opposites`.
    Reference: Zhan et al. (2004), §3.

    >>> mq.channels.flip([2, 2], 0.7).row(0)
    {0: Fraction(7, 10), 3: Fraction(3, 10)}
    """
    parts = [tuple(group) for group in (groups or [range(len(sizes))])]
    if sorted(i for part in parts for i in part) != list(range(len(sizes))):
        raise ChannelError("The groups of a flip channel must hold every variable exactly once.")
    keeps = [theta] * len(parts) if isinstance(theta, Rational) else list(theta)
    if len(keeps) != len(parts):
        raise ChannelError(f"{len(parts)} groups need one theta or {len(parts)}. Got {len(keeps)}.")
    chances = [probability(keep, "theta") for keep in keeps]
    reverse = [_check_opposite(size, opposites[i] if opposites else None) for i, size in enumerate(sizes)]
    cells, scale = math.prod(sizes), math.prod(chance.denominator for chance in chances)
    check_cost(8 * cells * 2 ** len(parts), scale.bit_length())
    codes = np.unravel_index(np.arange(cells), tuple(sizes))
    rows: list[dict[int, int]] = [{} for _ in range(cells)]
    for choice in product((True, False), repeat=len(parts)):
        weight = math.prod(
            chance.numerator if kept else chance.denominator - chance.numerator
            for chance, kept in zip(chances, choice, strict=True)
        )
        turned = {i for part, kept in zip(parts, choice, strict=True) if not kept for i in part}
        image = tuple(reverse[i][code] if i in turned else code for i, code in enumerate(codes))
        for row, report in zip(rows, np.ravel_multi_index(image, tuple(sizes)).tolist(), strict=True):
            row[report] = row.get(report, 0) + weight
    return from_sparse(rows, cells)


def _check_opposite(size: int, opposite: Sequence[int] | None) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the involution of a variable's codes."""
    if opposite is None:
        if size != 2:
            raise ChannelError(
                f"A flip needs binary variables. For one with {size} categories declare its 'opposites'."
            )
        opposite = (1, 0)
    codes = np.asarray(opposite, dtype=np.int64)
    if sorted(opposite) != list(range(size)) or np.any(codes[codes] != np.arange(size)):
        raise ChannelError("The opposite of the opposite must be the category itself.")
    return codes


def check_categories(categories: int) -> None:
    """Refuse a number of categories that is none."""
    if isinstance(categories, bool) or not isinstance(categories, (int, np.integer)) or categories < 1:
        raise ChannelError(f"The number of categories must be a whole number from 1. Got {categories!r}.")
