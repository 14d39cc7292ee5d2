"""Channels that report a block of categories: subset selection, and balanced designs with far fewer blocks.

A truth inside a block reports it γ times as often as a truth outside. If every truth is in the same number of
blocks, and every pair of truths is together in the same number of blocks, each count has the same variance as
with all C(K, d) subsets of size d. About K blocks are enough for this.
Reference: Ye & Barg (2018) for subsets; Park, Nam & Lee (2023) and Feldman, Nelson, Nguyen & Talwar (2022)
for designs; Acharya, Sun & Zhang (2019) for Hadamard response.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, product
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from masquerade.channels.basic import check_categories
from masquerade.channels.channel import MOST_ENTRIES, Channel, dense
from masquerade.channels.privacy_level import gamma_of
from masquerade.channels.rationals import Rational
from masquerade.core.errors import ChannelError

MOST_REPORTS = 4096
LARGEST_FIELD = 64  # largest field of a geometry: blocks of 1/64 of the points serve γ beyond 60
Gamma = TypeVar("Gamma", float, Fraction)
Blocks = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class BalancedDesign:
    """v points, v blocks of k points each, every two points together in λ = k(k−1)/(v−1) blocks."""

    family: str
    points: int
    size: int
    order: int  # q of the geometry or of Paley's field; 0 for single points
    complement: bool = False

    def second_moment(self, categories: int, gamma: Fraction) -> Fraction:
        """Return the sum over `categories` of the second moment of one record's contribution, exactly.

        Formula: a reported block contains the truth with probability p, and any other given category with
        probability q. The contribution to the count of l is (1[l in block] − q)/(p − q).
        """
        together = Fraction(self.size * (self.size - 1), self.points - 1) if self.points > 1 else Fraction(0)
        total = gamma * self.size + self.points - self.size
        own = gamma * self.size / total
        other = (gamma * together + self.size - together) / total
        spread = own * (1 - own) + (categories - 1) * other * (1 - other)
        return spread / (own - other) ** 2 + 1

    def blocks(self) -> Blocks:
        """Return the incidence matrix, with one row per block."""
        if self.family == "single":
            found = np.eye(self.points, dtype=bool)
        elif self.family == "paley":
            found = _paley(self.order)
        else:
            found = _geometry(self.points, self.order)
        return ~found if self.complement else found


def block_design(
    categories: int,
    gamma: Rational | None = None,
    *,
    epsilon: Rational | None = None,
    breach: Sequence[Rational] | None = None,
    size: int | None = None,
) -> Channel:
    """Return the channel of the balanced block design with the least variance at a given γ.

    Reports are the blocks' numbers, from 1.

    Parameters
    ----------
    categories : int
        Number of categories, at least 2.
    gamma, epsilon, breach : optional
        Privacy level: γ, or ε = ln γ, or two beliefs (ρ1, ρ2) of which the first may not rise above the
        second. Give one of them.
    size : int, optional
        Categories per block. By default the size with the least variance.

    Returns
    -------
    Channel
        A channel with one report per block.

    Raises
    ------
    ChannelError
        If no known design has blocks of `size`.

    Notes
    -----
    The families are Hadamard designs from Paley's residues, projective geometries, their complements, and
    single categories (k-ary randomized response). If a family has no design for K points, surplus points of
    its next larger design are dropped.
    Error: γ is exact. Unless points are dropped, the variance equals the variance with all subsets of the
    block's size.

    Examples
    --------
    >>> channel = mq.channels.block_design(7, 2, size=3)
    >>> channel.gamma, channel.reports
    (Fraction(2, 1), 7)
    """
    bound = gamma_of(gamma, epsilon, breach)
    design = best_design(categories, bound, size)
    return channel_of_blocks(design.blocks()[:, :categories], bound)


def best_design(categories: int, gamma: Fraction, size: int | None = None) -> BalancedDesign:
    """Return the design with the least summed second moment; of equal designs, the one with fewest points."""
    check_categories(categories)
    if categories < 2:
        raise ChannelError("A block design needs at least 2 categories.")
    known = list(designs(categories))
    fitting = [design for design in known if size is None or design.size == size]
    if not fitting:
        sizes = sorted({design.size for design in known})
        raise ChannelError(
            f"no known design has blocks of {size} for {categories} categories; there are blocks of "
            f"{', '.join(map(str, sizes[:20]))}."
        )
    return min(fitting, key=lambda design: (design.second_moment(categories, gamma), design.points))


def designs(categories: int) -> Iterator[BalancedDesign]:
    """Yield the smallest design of each family that has at least `categories` points."""
    yield BalancedDesign("single", categories, 1, 0)
    if categories > 2:
        yield BalancedDesign("single", categories, categories - 1, 0, complement=True)
    paley = next((q for q in range(max(categories, 3), MOST_REPORTS) if q % 4 == 3 and _prime_power(q)), None)
    if paley is not None:
        yield BalancedDesign("paley", paley, (paley - 1) // 2, paley)
        yield BalancedDesign("paley", paley, (paley + 1) // 2, paley, complement=True)
    for q in range(2, LARGEST_FIELD + 1):
        if not _prime_power(q):
            continue
        points, size = q * q + q + 1, q + 1
        while points < categories:
            points, size = points * q + 1, points
        if points <= MOST_REPORTS and points * categories <= MOST_ENTRIES:
            yield BalancedDesign("geometry", points, size, q)
            yield BalancedDesign("geometry", points, points - size, q, complement=True)


def subset_selection(
    categories: int,
    gamma: Rational | None = None,
    *,
    epsilon: Rational | None = None,
    breach: Sequence[Rational] | None = None,
    size: int | None = None,
) -> Channel:
    """Return subset selection: the report is a subset of `size` categories, numbered in order.

    It is optimal for counts if all categories are treated alike. If there are too many subsets to list, use a
    `block_design`: it has the same variance with about K reports.

    Parameters
    ----------
    categories : int
        Number of categories.
    gamma, epsilon, breach : optional
        Privacy level: γ, or ε = ln γ, or two beliefs (ρ1, ρ2) of which the first may not rise above the
        second. Give one of them.
    size : int, optional
        Categories per subset. By default the size with the least variance, next to K/(γ+1).

    Returns
    -------
    Channel
        A channel with one report per subset.

    Raises
    ------
    ChannelError
        If `size` is not from 1 to K−1, or there are too many subsets.

    Notes
    -----
    Reference: Ye & Barg (2018).

    Examples
    --------
    >>> channel = mq.channels.subset_selection(6, gamma=2)
    >>> channel.reports, channel.gamma
    (15, Fraction(2, 1))
    """
    check_categories(categories)
    bound = gamma_of(gamma, epsilon, breach)
    best = best_subset_size(categories, bound) if size is None else size
    if not 1 <= best < categories:
        raise ChannelError(f"'size' must be from 1 to {categories - 1}. Got {best} instead.")
    if math.comb(categories, best) * categories > MOST_ENTRIES:
        raise ChannelError(
            f"{categories} categories have {math.comb(categories, best):,} subsets of {best}: too many to "
            "list. block_design() gives the same variance with few reports."
        )
    return channel_of_blocks(subsets(categories, best), bound)


def subsets(categories: int, size: int) -> Blocks:
    """Return all subsets of a size as an incidence matrix, with one row per subset."""
    members = np.array(list(combinations(range(categories), size)))
    found = np.zeros((len(members), categories), dtype=bool)
    np.put_along_axis(found, members, values=True, axis=1)
    return found


def subset_second_moment(categories: int, gamma: Gamma, size: int) -> Gamma:
    """Return tr M⁻¹ of subset selection under a uniform prior: the summed second moment of a record's counts.

    Exact if γ is a fraction. Subsets of size 1 are k-ary randomized response.

    Formula: (K−1)u²/((γ−1)²(f1 − f2)) + 1/K with f1 = d/K, f2 = f1(d−1)/(K−1), u = 1 + (γ−1)f1.

    >>> round(subset_second_moment(4, math.e, 1), 4)
    8.5562
    """
    others = categories - size
    total = categories + (gamma - 1) * size
    return ((categories - 1) ** 2 * total**2 / ((gamma - 1) ** 2 * (size * others)) + 1) / categories


def best_subset_size(categories: int, gamma: Gamma) -> int:
    """Return the size of subsets with the least moment: one of the two next to K/(γ+1) (Ye & Barg 2018)."""
    below = math.floor(categories / (gamma + 1))
    sizes = {min(max(size, 1), categories - 1) for size in (below, below + 1)}
    return min(sorted(sizes), key=lambda size: subset_second_moment(categories, gamma, size))


def hadamard_response(
    categories: int,
    gamma: Rational | None = None,
    *,
    epsilon: Rational | None = None,
    breach: Sequence[Rational] | None = None,
) -> Channel:
    """Return Hadamard response: 2^⌈log₂(K+1)⌉ reports, half of them γ times as likely for each truth.

    Report m (numbered from 1) is in the half of truth l if entry (l+1, m−1) of Sylvester's matrix is +1. A
    `block_design` is never worse at the same γ; this channel is for comparison with other systems.

    Parameters
    ----------
    categories : int
        Number of categories.
    gamma, epsilon, breach : optional
        Privacy level: γ, or ε = ln γ, or two beliefs (ρ1, ρ2) of which the first may not rise above the
        second. Give one of them.

    Returns
    -------
    Channel
        A channel with 2^⌈log₂(K+1)⌉ reports.

    Notes
    -----
    Reference: Acharya, Sun & Zhang (2019), for small ε.

    Examples
    --------
    >>> channel = mq.channels.hadamard_response(5, gamma=3)
    >>> channel.reports, channel.gamma
    (8, Fraction(3, 1))
    """
    check_categories(categories)
    bound = gamma_of(gamma, epsilon, breach)
    reports = 1 << math.ceil(math.log2(categories + 1))
    if reports * categories > MOST_ENTRIES:
        raise ChannelError(f"Hadamard response over {categories:,} categories is too large to write out.")
    codes = np.arange(reports)[:, None] & np.arange(1, categories + 1)
    odd = np.bitwise_count(codes) % 2 == 1
    return channel_of_blocks(~odd, bound)


def channel_of_blocks(blocks: Blocks, gamma: Fraction) -> Channel:
    """Return the channel whose report m has weight γ for the truths in row m of `blocks`, 1 for the others.

    Every truth must be in the same number of blocks: otherwise row totals would differ, and γ would change.
    """
    times = blocks.sum(axis=0)
    if np.ptp(times):
        raise ChannelError("every category must be in the same number of blocks.")
    weights = np.where(blocks.T, gamma.numerator, gamma.denominator).astype(np.int64)
    return dense(weights, range(1, len(blocks) + 1))


def staircase_channel(
    categories: int, gamma: Fraction, blocks: Sequence[Sequence[int]], weights: Sequence[int]
) -> Channel:
    """Return the channel with these integer weights and γ not above `gamma`; reports are numbered.

    A truth gives report m with weight w_m, times γ if it is in block m. An extra report makes the row totals
    equal; each truth has enough weight on it that γ does not rise.
    """
    if len(blocks) != len(weights) or not blocks or any(weight < 1 for weight in weights):
        raise ChannelError("an optimal channel needs a positive whole weight for every block.")
    if any(len(set(block)) < len(block) or not set(block) <= set(range(categories)) for block in blocks):
        raise ChannelError("a block must list categories of the variable, each only once.")
    low, high = gamma.denominator, gamma.numerator
    rows = [[low * weight for weight in weights] for _ in range(categories)]
    for report, block in enumerate(blocks):
        for code in block:
            rows[code][report] = high * weights[report]
    totals = [sum(row) for row in rows]
    most = max(totals)
    if min(totals) < most:
        spare = math.ceil(Fraction(most - min(totals)) / (gamma - 1))
        for row, total in zip(rows, totals, strict=True):
            row.append(spare + most - total)
    if max(sum(row) for row in rows) >= 2**62:
        raise ChannelError(
            "the weights of an optimal channel are too large: each row must sum to less than 2^62."
        )
    return dense(np.array(rows, dtype=np.int64), range(1, len(rows[0]) + 1))


def _prime_power(q: int) -> tuple[int, int] | None:
    """Return (p, m) with q = p^m for a prime p; None if q is not a prime power."""
    prime = next((p for p in range(2, math.isqrt(q) + 1) if q % p == 0), q)
    power = round(math.log(q, prime)) if q > 1 else 0
    return (prime, power) if q > 1 and prime**power == q else None


class _Field:
    """The finite field of q elements 0 … q−1, by its tables of addition and multiplication."""

    def __init__(self, q: int) -> None:
        prime, power = _prime_power(q) or (q, 1)
        if power == 1:
            elements = np.arange(q)
            self.add = (elements[:, None] + elements) % q
            self.multiply = (elements[:, None] * elements) % q
            return
        digits = np.array(list(product(range(prime), repeat=power)))[
            :, ::-1
        ]  # row e: the digits of element e in base p
        place = prime ** np.arange(power)
        self.add = (((digits[:, None] + digits) % prime) @ place).astype(int)
        for low in digits[1:]:
            self.multiply = self._products(digits, low, prime, power) @ place
            # x^m + low is irreducible exactly if no two elements other than zero have the product zero
            if np.all(self.multiply[1:, 1:] != 0):
                return
        raise AssertionError("every prime power has a field")

    @staticmethod
    def _products(
        digits: NDArray[np.int64], low: NDArray[np.int64], prime: int, power: int
    ) -> NDArray[np.int64]:
        """Return the digits of all products modulo x^m + low."""
        size = len(digits)
        whole = np.zeros((size, size, 2 * power - 1), dtype=np.int64)
        for i in range(power):
            for j in range(power):
                whole[:, :, i + j] += digits[:, None, i] * digits[None, :, j]
        for degree in range(2 * power - 2, power - 1, -1):
            lead = whole[:, :, degree].copy()
            whole[:, :, degree - power : degree] -= lead[:, :, None] * low
            whole[:, :, degree] = 0
        return whole[:, :, :power] % prime


def _paley(q: int) -> Blocks:
    """Return Paley's Hadamard design for q ≡ 3 (mod 4): the squares of the field, shifted by each element."""
    field = _Field(q)
    squares = np.unique(np.diagonal(field.multiply)[1:])
    found = np.zeros((q, q), dtype=bool)
    for shift in range(q):
        found[shift, field.add[squares, shift]] = True
    return found


def _geometry(points: int, q: int) -> Blocks:
    """Return the hyperplanes of the projective geometry over q elements that has this many points."""
    field = _Field(q)
    dimension = 1
    while (q**dimension - 1) // (q - 1) < points:
        dimension += 1
    # a point is represented by the vector whose first nonzero entry is 1
    vectors = [
        (0,) * lead + (1, *rest)
        for lead in range(dimension)
        for rest in product(range(q), repeat=dimension - lead - 1)
    ]
    array = np.array(vectors)
    total = np.zeros((points, points), dtype=int)
    for place in range(dimension):
        total = field.add[total, field.multiply[array[:, None, place], array[None, :, place]]]
    return np.asarray(total == 0)
