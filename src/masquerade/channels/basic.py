"""Channels from the literature: identity, binary, symmetric, ternary, within_groups, matrix, flip."""

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
    """Return the channel with the given transition probabilities.

    Parameters
    ----------
    rows : sequence of sequences of numbers or str
        One row per truth, one entry per report. A row sums to 1; write thirds as ``"1/3"``.
    labels : iterable, optional
        Labels of the reports. By default a report has the label of the truth with the same index.
    columns : mapping of str to sequence, optional
        Names and labels of several report columns. A report is then a combination of their labels, the first
        column varying slowest.

    Returns
    -------
    Channel
        A channel with one truth per row and one report per column of `rows`.

    Raises
    ------
    ChannelError
        If a row does not sum to 1 or has a negative entry.

    Examples
    --------
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
    """Return the channel over two categories that changes each into the other with a given probability.

    Parameters
    ----------
    p1 : number or str
        Probability of changing the first category.
    p2 : number or str, optional
        Probability of changing the second category. By default `p1`.

    Returns
    -------
    Channel
        A channel over the two categories.

    Examples
    --------
    >>> mq.channels.binary(0.1, 0.25).gamma
    Fraction(15, 2)
    """
    first = probability(p1, "p1")
    second = first if p2 is None else probability(p2, "p2")
    return from_rows([{0: 1 - first, 1: first}, {0: second, 1: 1 - second}], 2)


def symmetric(categories: int, p: Rational) -> Channel:
    """Return k-ary randomized response.

    The truth is reported with probability 1−p. Every other category is equally likely.

    Parameters
    ----------
    categories : int
        Number of categories.
    p : number or str
        Probability of reporting a category that is not the truth.

    Returns
    -------
    Channel
        A channel over the categories.

    Examples
    --------
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

    Error: a ratio from 1 to 2⁶¹ has a relative error of at most 2⁻³². A larger ratio becomes 2⁶¹, and a ratio
    below 1 rises by less than 2⁻³².
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
    """Return the cyclic channel on three categories.

    Parameters
    ----------
    p1 : number or str
        Probability of reporting the next category.
    p2 : number or str, optional
        Probability of reporting the category after that. By default `p1`.

    Returns
    -------
    Channel
        A channel over the three categories.

    Examples
    --------
    >>> round(float(mq.channels.ternary(0.15, 0.15).gamma), 2)
    4.67
    """
    first = probability(p1, "p1")
    second = first if p2 is None else probability(p2, "p2")
    probability(first + second, "p1 + p2")
    return from_rows([{l: 1 - first - second, (l + 1) % 3: first, (l + 2) % 3: second} for l in range(3)], 3)


def within_groups(groups: Sequence[Sequence[int]], within: Sequence[Channel]) -> Channel:
    """Return the block-diagonal channel that changes a category only within its group.

    The report discloses the group.

    Parameters
    ----------
    groups : sequence of sequences of int
        Codes of the categories, each in exactly one group.
    within : sequence of Channel
        A square channel for each group, over its categories in the order given.

    Returns
    -------
    Channel
        A channel over the categories of all groups.

    Raises
    ------
    ChannelError
        If a category is in no group or in two, or a channel does not have the size of its group.

    Examples
    --------
    >>> masks = [mq.channels.binary(0.25), mq.channels.binary(0.1)]
    >>> channel = mq.channels.within_groups([[0, 1], [2, 3]], masks)
    >>> channel.row(3)
    {2: Fraction(1, 10), 3: Fraction(9, 10)}
    """
    members = [code for group in groups for code in group]
    if sorted(members) != list(range(len(members))):
        raise ChannelError("The groups of a within_groups channel must contain every category exactly once.")
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

    All variables of a group are reported unchanged with probability θ, otherwise all are reversed. Groups act
    independently.

    Parameters
    ----------
    sizes : sequence of int
        Number of categories of each variable.
    theta : number or str, or sequence of these
        Probability of keeping a group unchanged: one for all groups, or one per group.
    groups : sequence of sequences of int, optional
        Indices of the variables of each group. By default all variables form one group.
    opposites : sequence, optional
        For each variable an involution of its codes, or None. Required for variables with more than two
        categories; a binary variable has only one.

    Returns
    -------
    Channel
        A channel over all combinations of the variables.

    Notes
    -----
    Reference: Zhan et al. (2004), §3.

    Examples
    --------
    >>> mq.channels.flip([2, 2], 0.7).row(0)
    {0: Fraction(7, 10), 3: Fraction(3, 10)}
    """
    parts = [tuple(group) for group in (groups or [range(len(sizes))])]
    if sorted(i for part in parts for i in part) != list(range(len(sizes))):
        raise ChannelError("The groups of a flip channel must contain every variable exactly once.")
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
    """Return a variable's involution of codes as an array; raise ChannelError if it is not valid."""
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
    """Raise ChannelError unless the number of categories is a positive integer."""
    if isinstance(categories, bool) or not isinstance(categories, (int, np.integer)) or categories < 1:
        raise ChannelError(f"The number of categories must be a whole number from 1. Got {categories!r}.")
