"""Is there a link at all? The test of independence on which strengths of links and splits of trees rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.distributions import chi_square_point, chi_square_tail
from masquerade.core.evidence import DistanceEvidence, Draws
from masquerade.core.intervals import Flags
from masquerade.core.link_fits import LinkEvidence, fit_links
from masquerade.core.table import CountTable

ACCURACY = 1e-4  # of deviances
INTERIOR = 3.0  # standard errors from which on a count is taken to be positive
SAMPLES = 199
AT_ONCE = 20
ENOUGH = 10  # samples beyond the statistic that tell its p-value well enough
PLAIN = 1e-3  # a p-value that is so small, or larger than DULL, needs no simulation
DULL = 0.2


@dataclass(frozen=True, slots=True)
class LinkTest:
    """The test of one link, given other parents.

    `statistic` is D, twice the log-likelihood of the reports that the link adds; `df` the degrees of freedom
    of the test; `p_value` the chance of reports so far from independence if there were no link.
    """

    statistic: float
    df: float
    p_value: float


def link_tests(
    tables: Sequence[CountTable],
    places: Sequence[Sequence[int]],
    draws: Callable[[], Draws],
    *,
    matters: float = 1.0,
) -> list[LinkTest]:
    """Test links; `places` are the axes of each table for (parents already there …, parent, child).

    `draws` gives the random numbers for samples, the same for every link if p-values are to be repeatable.
    Of a link whose p-value is certainly larger than `matters` only that is found out: its p-value may be a
    smaller one that is larger than `matters` too, its statistic a bound from above.

    Formula: D = 2[ℓ(best table) − ℓ(best table with X ⟂ Z | J)] of the reports says how strong a link is.
    Its p-value is that of Pearson's statistic, which keeps its level where counts are small: on the disguised
    table itself where channels act on X and Z alone and J is clear (independence of the truth is independence
    of the reports); else of the fit without the link, by χ² where that fit is interior and from samples drawn
    from it where it is not. There χ² is liberal, by at most one degree of freedom for every count of (J, Z)
    and (J, X) that may be zero: no samples are drawn where that settles the matter, and none from evidence of
    values and a covariance alone, or of survey weights, which keeps that bound. With survey weights statistic
    and degrees of freedom are corrected to second order for what the weights of each report do to it.
    Reference: Pearson (1900); Haberman (1974); Perlman (1969) for the bound; Besag & Clifford (1991); Rao &
    Scott (1981, 1984).
    Cost: two fits a link, up to 199 more where samples are drawn.
    Error: 0.05 is kept within 0.01 where at least 5 reports are expected in a cell.
    """
    found: dict[int, LinkTest] = {}
    plain: dict[int, tuple[float, float]] = {}
    for i, (table, where) in enumerate(zip(tables, places, strict=True)):
        *given, parent, child = where
        itself = table.evidence.independence(given, parent, child)
        if itself is not None:
            plain[i] = itself[1], chi_square_tail(*itself)
            if plain[i][1] > matters:
                found[i] = LinkTest(np.inf, *plain[i])
        elif matters < 1 and isinstance(table.evidence, DistanceEvidence):
            df = _degrees(table, where)
            most = table.evidence.distance(_without_link(where), enough=chi_square_point(matters, df))
            p_value = chi_square_tail(most, df)
            if p_value > matters:
                found[i] = LinkTest(most, df, p_value)
    left = [i for i in range(len(tables)) if i not in found]
    if not left:
        return list(found.values())
    fits = fit_links([tables[i].evidence for i in left], [places[i] for i in left], tolerance=ACCURACY)
    for i, statistic, block in zip(left, fits.statistic.tolist(), fits.expected, strict=True):
        df, p_value = plain[i] if i in plain else _by_the_fit(tables[i], places[i], block, draws)
        found[i] = LinkTest(statistic, float(df), p_value)
    return [found[i] for i in range(len(tables))]


def _degrees(table: CountTable, places: Sequence[int]) -> float:
    """Return the degrees of freedom that a link adds."""
    *given, parent, child = [table.values.shape[place] for place in places]
    return float(prod(given) * (parent - 1) * (child - 1))


def _by_the_fit(
    table: CountTable, places: Sequence[int], block: Floats | None, draws: Callable[[], Draws]
) -> tuple[float, float]:
    """Return degrees of freedom and p-value from the fit without the link."""
    model = _without_link(places)
    expected = None if block is None else _in_order(block, table, places)
    pearson = None if expected is None else table.evidence.pearson(expected, model)
    if expected is None or pearson is None:
        fit = table.evidence.fit(model)
        expected, statistic, df = fit.expected, fit.pearson, float(fit.df)
    else:
        statistic, df = pearson
    plain = chi_square_tail(statistic, df)
    if plain > DULL:
        return df, plain
    empty = [_near_zero(table, margin) for margin in model]
    doubtful = sum(int(cells.sum()) for cells in empty)
    if not doubtful:
        return df, plain
    careful = chi_square_tail(statistic, df + doubtful)
    if careful < PLAIN or not isinstance(
        table.evidence, LinkEvidence
    ):  # fits one by one are too slow to repeat
        return df, careful
    simulated = _simulated(table, places, _emptied(expected, empty), statistic, draws())
    return df, careful if simulated is None else simulated


def _without_link(places: Sequence[int]) -> list[tuple[int, ...]]:
    *given, parent, child = places
    return [(*given, parent), (*given, child)]


def _in_order(block: Floats, table: CountTable, places: Sequence[int]) -> Floats:
    """Return a fitted table (configurations, parent, child) with the axes of the table."""
    shape = [table.values.shape[place] for place in places]
    return np.transpose(block.reshape(shape), np.argsort(places))


def _near_zero(table: CountTable, margin: Sequence[int]) -> Flags:
    """Tell which cells of a margin may be zero in truth, with the axes of the table."""
    kept = sorted(margin)
    gone = tuple(axis for axis in range(table.values.ndim) if axis not in margin)
    counts = table.values.sum(axis=gone, keepdims=True)
    variance = table.covariance.reduced(kept, {}).diagonal().reshape(counts.shape)
    return np.asarray(counts <= INTERIOR * np.sqrt(np.maximum(variance, 0.0)))


def _emptied(expected: Floats, empty: Sequence[Flags]) -> Floats:
    """Return the fit with what may be zero set to zero: samples from next to an edge forget that it is there.

    Reference: Andrews (2000), on the bootstrap where parameters lie on a boundary.
    """
    kept = expected * ~(empty[0] | empty[1])
    return kept if kept.sum() > 0 else expected


def _simulated(
    table: CountTable, places: Sequence[int], expected: Floats, statistic: float, draws: Draws
) -> float | None:
    """Return how often samples drawn from the fit without the link, each fitted anew, are as far from it.

    Drawing ends after `ENOUGH` of them: the l-th makes the p-value `ENOUGH`/l (Besag & Clifford, 1991).
    """
    farther = 0
    for start in range(0, SAMPLES, AT_ONCE):
        found = _sampled(table, places, expected, draws, min(AT_ONCE, SAMPLES - start))
        if found is None:
            return None
        for place, value in enumerate(found, start + 1):
            farther += value >= statistic
            if farther == ENOUGH:
                return farther / place
    return (1 + farther) / (1 + SAMPLES)


def _sampled(
    table: CountTable, places: Sequence[int], expected: Floats, draws: Draws, samples: int
) -> list[float] | None:
    """Return Pearson's statistic of samples drawn from the fit without the link."""
    drawn = [table.evidence.drawn(draws, expected) for _ in range(samples)]
    known = [sample for sample in drawn if sample is not None]
    if len(known) < samples:
        return None
    found = []
    for sample, block in zip(known, fit_links(known, [places] * samples).expected, strict=True):
        pearson = (
            None if block is None else sample.pearson(_in_order(block, table, places), _without_link(places))
        )
        if pearson is None:
            return None
        found.append(pearson[0])
    return found
