"""Optimal channels with a separate γ for each pair of truths, for example if only "yes" is sensitive.

Reports are then the extreme directions of the cone {v : v_l ≤ γ[l, l']·v_l'} instead of staircase columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np

from masquerade.channels.channel import Channel, dense
from masquerade.channels.optimum import (
    NEGLIGIBLE,
    OptimalDesign,
    Queries,
    checked_prior,
    second_moment,
    wanted_rows,
)
from masquerade.channels.privacy_level import gamma_of, shorten_gamma
from masquerade.channels.rationals import Rational, rational
from masquerade.channels.staircase import DesignProblem, solve
from masquerade.core.axes import Floats
from masquerade.core.errors import ChannelError

MOST_CATEGORIES = 7
Bounds = list[list[Fraction | None]]  # None: no bound


def optimal_pairwise(
    gammas: Sequence[Sequence[Rational | None]],
    queries: Queries = "counts",
    prior: Sequence[float] | None = None,
) -> OptimalDesign:
    """Return the best channel with ``P(report | l) ≤ gammas[l][l']·P(report | l')`` for every report.

    Parameters
    ----------
    gammas : square table
        Bounds for each pair of truths, at least 1. None means unbounded: a report of l may then exclude l'.
        If only "yes" of (yes, no) is sensitive, the table is ``[[1, γ], [None, 1]]``, and the optimal channel
        is a forced "yes".
    queries : {"counts", "cumulative"} or array, optional
        Queries to estimate, as for `optimal_design`.
    prior : sequence of float, optional
        Expected distribution of the truths. By default uniform.

    Returns
    -------
    OptimalDesign
        The channel, its value and `gap`, the proved distance from the optimum.

    Raises
    ------
    ChannelError
        If the table is not square, a bound is below 1, or two truths cannot be distinguished.

    Notes
    -----
    Reference: Chatzikokolakis et al. (2013) for bounds that differ by pair; Murakami & Kawamoto (2019) for
    sensitive categories.
    Cost: seconds for seven categories, the largest number allowed.
    Error: `gap`, proved.

    Examples
    --------
    >>> bounds = mq.channels.only_sensitive(2, [0], gamma=3)
    >>> design = mq.channels.optimal_pairwise(bounds)
    >>> round(float(design.channel.matrix[1].max()), 3), design.gap < 1e-6
    (0.667, True)
    """
    bounds = _check_bounds(gammas)
    size = len(bounds)
    rows, theta = wanted_rows(queries, size), checked_prior(prior, size)
    rays = extreme_rays(bounds)
    columns = np.array([[float(level) for level in ray] for ray in rays])
    if np.linalg.matrix_rank(columns) < size:
        raise ChannelError("two categories have the bound 1 between them: no report may distinguish them.")
    solution = solve(DesignProblem(columns, theta, rows.T @ rows))
    kept = np.flatnonzero(solution.weights > NEGLIGIBLE * solution.weights.max())
    channel = _rational([rays[i] for i in kept], solution.weights[kept], bounds)
    worst = channel.gamma
    gamma = worst if isinstance(worst, Fraction) else Fraction(0)
    return OptimalDesign(
        channel, gamma, (), (), second_moment(channel, rows, theta), solution.bound, rows, theta
    )


def only_sensitive(
    categories: int, sensitive: Iterable[int], gamma: Rational | None = None, epsilon: Rational | None = None
) -> Bounds:
    """Return bounds under which no report raises the odds of a sensitive category by more than γ.

    A report may exclude a sensitive category: it may become certain that a truth is not sensitive.

    Parameters
    ----------
    categories : int
        Number of categories.
    sensitive : iterable of int
        Codes of the sensitive categories, at least one.
    gamma, epsilon : number or str
        The bound, as γ or as ε = ln γ. Give one of them.

    Returns
    -------
    list of lists
        The table that `optimal_pairwise` takes.

    Examples
    --------
    >>> mq.channels.only_sensitive(2, [0], gamma=3)
    [[Fraction(1, 1), Fraction(3, 1)], [None, Fraction(1, 1)]]
    """
    bound = gamma_of(gamma, epsilon)
    chosen = set(sensitive)
    if not chosen <= set(range(categories)) or not chosen:
        raise ChannelError(f"'sensitive' are codes from 0 to {categories - 1}, at least one.")
    return [
        [Fraction(1) if l == other else bound if l in chosen else None for other in range(categories)]
        for l in range(categories)
    ]


def extreme_rays(bounds: Bounds) -> list[tuple[Fraction, ...]]:
    """Return the extreme directions of {v ≥ 0 : v_l ≤ γ[l, l']·v_l'}, the largest entry 1.

    A direction is determined by tight bounds that connect its positive entries. The search therefore adds one
    entry at a time, tied to an existing entry by a tight bound.
    """
    size = len(bounds)
    found: dict[tuple[Fraction, ...], None] = {}
    for mask in range(1, 2**size):
        members = [l for l in range(size) if mask >> l & 1]
        outside = [l for l in range(size) if not mask >> l & 1]
        if any(bounds[l][other] is not None for l in members for other in outside):
            continue
        partial: set[tuple[tuple[int, Fraction], ...]] = {((members[0], Fraction(1)),)}
        for _ in members[1:]:
            partial = {grown for state in partial for grown in _extend_state(state, members, bounds)}
        for state in partial:
            level = dict(state)
            top = max(level.values())
            found[tuple(level.get(l, Fraction(0)) / top for l in range(size))] = None
    return list(found)


def _extend_state(
    state: tuple[tuple[int, Fraction], ...], members: Sequence[int], bounds: Bounds
) -> Iterable[tuple[tuple[int, Fraction], ...]]:
    """Yield a state with one further entry, tied to an existing entry, if no bound is violated."""
    level = dict(state)
    for new in members:
        if new in level:
            continue
        above = {known * bound for l, known in state if (bound := bounds[new][l]) is not None}
        below = {known / bound for l, known in state if (bound := bounds[l][new]) is not None}
        for value in above | below:
            if value <= min(above, default=value) and value >= max(below, default=value):
                yield tuple(sorted((*state, (new, value))))


def _check_bounds(gammas: Sequence[Sequence[Rational | None]]) -> Bounds:
    """Return bounds as exact numbers, None for unbounded; raise ChannelError if they are not valid."""
    size = len(gammas)
    if not 2 <= size <= MOST_CATEGORIES or any(len(row) != size for row in gammas):
        raise ChannelError(
            f"'gammas' is a square table of bounds for 2 to {MOST_CATEGORIES} categories. "
            "If there are more, merge some."
        )
    bounds: Bounds = [
        [
            None if value is None or value == math.inf else shorten_gamma(rational(value, "gammas"))
            for value in row
        ]
        for row in gammas
    ]
    for l in range(size):
        bounds[l][l] = Fraction(1)
    if any(value is not None and value < 1 for row in bounds for value in row):
        raise ChannelError("every entry of 'gammas' must be at least 1, or None for no bound.")
    return bounds


def _rational(rays: Sequence[tuple[Fraction, ...]], weights: Floats, bounds: Bounds) -> Channel:
    """Return the channel with integer weights. An extra report within all bounds makes row totals equal."""
    finite = [value for row in bounds for value in row if value is not None and value > 1]
    scale = 2**44
    columns = []
    for ray, weight in zip(rays, weights / weights.max(), strict=True):
        common = math.lcm(*(level.denominator for level in ray))
        times = max(round(float(weight) * scale / common), 1)
        columns.append([int(level * common) * times for level in ray])
    totals = [sum(column[l] for column in columns) for l in range(len(rays[0]))]
    if min(totals) < max(totals):
        spare = math.ceil(Fraction(max(totals) - min(totals)) / (min(finite, default=Fraction(2)) - 1))
        columns.append([spare + max(totals) - total for total in totals])
    if max(totals) >= 2**61:
        raise ChannelError("the bounds have too many digits; round them to small fractions.")
    return dense(np.array(columns, dtype=np.int64).T, range(1, len(columns) + 1))
