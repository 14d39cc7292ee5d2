"""Tests of links: the test of independence used by structure learning and by the splits of trees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.distributions import chi_square_point, chi_square_tail
from masquerade.core.evidence import DistanceEvidence, ResamplingDraws
from masquerade.core.intervals import Flags
from masquerade.core.links.fits import LinkEvidence, fit_links
from masquerade.core.table import CountTable

ACCURACY = 1e-4  # tolerance of deviances
INTERIOR = 3.0  # a count this many standard errors above 0 is taken to be positive
SAMPLES = 199
AT_ONCE = 20
ENOUGH = 10  # stop sampling after this many samples exceed the statistic (Besag & Clifford, 1991)
PLAIN = 1e-3  # p-values below PLAIN or above DULL need no simulation
DULL = 0.2


@dataclass(frozen=True, slots=True)
class LinkTest:
    """The test of one link, given other parents.

    Attributes
    ----------
    statistic : float
        Pearson's X² of the reports, or the distance from independence where only values and a covariance are
        known.
    df : float
        Degrees of freedom of χ² that give the p-value.
    p_value : float
        Probability of reports this far from independence if there is no link.
    deviance : float
        Strength of the link: twice its gain in the log-likelihood of the reports.
    samples : tuple of int or None
        If the p-value is simulated: the number of samples as far from independence, and the number drawn.
    is_bound : bool
        True if the p-value is an upper bound, with degrees of freedom added for counts that may be zero.
    """

    statistic: float
    df: float
    p_value: float
    deviance: float
    samples: tuple[int, int] | None = None
    is_bound: bool = False

    @property
    def note(self) -> str:
        """Return the derivation of the p-value from the statistic, in one sentence."""
        if self.samples is not None:
            return (
                f"Pearson's X² of the reports; {self.samples[0]} of {self.samples[1]} samples without a link "
                "have an X² as large, which gives the p-value."
            )
        added = ", with degrees of freedom added for counts that may be zero" if self.is_bound else ""
        return f"Pearson's X² of the reports, by χ²{added}."


class PearsonTest(NamedTuple):
    """Pearson's statistic, degrees of freedom and p-value, and how the p-value follows from them."""

    statistic: float
    df: float
    p_value: float
    samples: tuple[int, int] | None = None
    is_bound: bool = False


def link_tests(
    tables: Sequence[CountTable],
    places: Sequence[Sequence[int]],
    draws: Callable[[], ResamplingDraws],
    *,
    matters: float = 1.0,
) -> list[LinkTest]:
    """Test links between variables for independence.

    Parameters
    ----------
    tables : sequence of CountTable
        One table per link.
    places : sequence of sequence of int
        Axes of each table for (other parents …, parent, child).
    draws : callable
        Returns the random numbers for samples. Equal numbers give repeatable p-values.
    matters : float, default 1
        Links with a p-value above this are not examined further. Their p-value may be too small, but is above
        `matters`, and their deviance is infinite or an upper bound.

    Returns
    -------
    list of LinkTest
        One test per link.

    Notes
    -----
    Formula: D = 2[ℓ(best table) − ℓ(best table with X ⟂ Z | J)] of the reports measures the strength of a
    link. It is tested by Pearson's statistic, which keeps its level at small counts. Where channels act on X
    and Z separately and J is clear, the statistic is computed on the disguised table, because independence of
    the truth is independence of the reports. Otherwise it is computed from the fit without the link, by χ² if
    that fit is in the interior and from samples drawn from the fit if not. At the boundary χ² is liberal, by
    at most one degree of freedom for each count of (J, Z) and (J, X) that may be zero. No samples are drawn
    if that bound settles the result. With survey weights, or with evidence that is only values and a
    covariance, the bound is used instead of samples. With survey weights, statistic and degrees of freedom
    have a second-order correction for the weights of each report.
    Reference: Pearson (1900); Haberman (1974); Perlman (1969) for the bound; Besag & Clifford (1991); Rao &
    Scott (1981, 1984).
    Cost: two fits per link, up to 199 more if samples are drawn.
    Error: a level of 0.05 is kept within 0.01 if at least 5 reports are expected per cell.
    """
    found: dict[int, LinkTest] = {}
    plain: dict[int, PearsonTest] = {}
    for i, (table, where) in enumerate(zip(tables, places, strict=True)):
        *given, parent, child = where
        itself = table.evidence.independence(given, parent, child)
        if itself is not None:
            plain[i] = PearsonTest(*itself, chi_square_tail(*itself))
            if plain[i].p_value > matters:
                found[i] = LinkTest(*plain[i][:3], deviance=np.inf)
        elif matters < 1 and isinstance(table.evidence, DistanceEvidence):
            df = _degrees(table, where)
            most = table.evidence.distance(_without_link(where), enough=chi_square_point(matters, df))
            p_value = chi_square_tail(most, df)
            if p_value > matters:
                found[i] = LinkTest(most, df, p_value, most)
    left = [i for i in range(len(tables)) if i not in found]
    if not left:
        return list(found.values())
    fits = fit_links([tables[i].evidence for i in left], [places[i] for i in left], tolerance=ACCURACY)
    for i, deviance, block in zip(left, fits.statistic.tolist(), fits.expected, strict=True):
        test = plain[i] if i in plain else _by_the_fit(tables[i], places[i], block, draws)
        found[i] = LinkTest(test.statistic, float(test.df), test.p_value, deviance, *test[3:])
    return [found[i] for i in range(len(tables))]


def _degrees(table: CountTable, places: Sequence[int]) -> float:
    """Return the degrees of freedom that a link adds."""
    *given, parent, child = [table.values.shape[place] for place in places]
    return float(prod(given) * (parent - 1) * (child - 1))


def _by_the_fit(
    table: CountTable, places: Sequence[int], block: Floats | None, draws: Callable[[], ResamplingDraws]
) -> PearsonTest:
    """Return Pearson's test from the fit without the link."""
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
        return PearsonTest(statistic, df, plain)
    empty = [_near_zero(table, margin) for margin in model]
    doubtful = sum(int(cells.sum()) for cells in empty)
    if not doubtful:
        return PearsonTest(statistic, df, plain)
    careful = PearsonTest(statistic, df + doubtful, chi_square_tail(statistic, df + doubtful), is_bound=True)
    # other evidence fits links one at a time, which is too slow to repeat for every sample
    if careful.p_value < PLAIN or not isinstance(table.evidence, LinkEvidence):
        return careful
    null = _set_to_zero(expected, empty)
    samples = _simulate_samples(table, places, null, statistic, draws())
    if samples is None:
        return careful
    return PearsonTest(statistic, df, simulated_p_value(*samples), samples)


def _without_link(places: Sequence[int]) -> list[tuple[int, ...]]:
    *given, parent, child = places
    return [(*given, parent), (*given, child)]


def _in_order(block: Floats, table: CountTable, places: Sequence[int]) -> Floats:
    """Return a fitted block (configurations, parent, child) with the axes of the table."""
    shape = [table.values.shape[place] for place in places]
    return np.transpose(block.reshape(shape), np.argsort(places))


def _near_zero(table: CountTable, margin: Sequence[int]) -> Flags:
    """Return a mask of the cells of a margin whose true count may be zero, with the axes of the table."""
    summed = tuple(axis for axis in range(table.values.ndim) if axis not in margin)
    counts = table.values.sum(axis=summed, keepdims=True)
    variance = table.covariance.reduce(sorted(margin), {}).diagonal().reshape(counts.shape)
    return np.asarray(counts <= INTERIOR * np.sqrt(np.maximum(variance, 0.0)))


def _set_to_zero(expected: Floats, empty: Sequence[Flags]) -> Floats:
    """Return the fit with all counts that may be zero set to zero.

    Samples drawn from a fit near the boundary would underestimate how often the boundary is reached.
    Reference: Andrews (2000), on the bootstrap where parameters are on a boundary.
    """
    positive = expected * ~(empty[0] | empty[1])
    return positive if positive.sum() > 0 else expected


def simulated_p_value(farther: int, drawn: int) -> float:
    """Return the p-value if `farther` of `drawn` samples are as far from independence.

    Formula: farther/drawn where sampling stopped early, because `ENOUGH` samples exceeded the statistic
    (Besag & Clifford, 1991); else (1 + farther)/(1 + drawn).
    """
    return farther / drawn if farther >= ENOUGH else (1 + farther) / (1 + drawn)


def _simulate_samples(
    table: CountTable, places: Sequence[int], expected: Floats, statistic: float, draws: ResamplingDraws
) -> tuple[int, int] | None:
    """Return the number of samples as far from the fit without the link, and the number of all samples."""
    farther = 0
    for start in range(0, SAMPLES, AT_ONCE):
        values = _sample_statistics(table, places, expected, draws, min(AT_ONCE, SAMPLES - start))
        if values is None:
            return None
        for count, value in enumerate(values, start + 1):
            farther += value >= statistic
            if farther == ENOUGH:
                return farther, count
    return farther, SAMPLES


def _sample_statistics(
    table: CountTable, places: Sequence[int], expected: Floats, draws: ResamplingDraws, samples: int
) -> list[float] | None:
    """Return Pearson's statistic of samples drawn from the fit without the link."""
    drawn = [table.evidence.resample(draws, expected) for _ in range(samples)]
    evidences = [sample for sample in drawn if sample is not None]
    if len(evidences) < samples:
        return None
    statistics = []
    for sample, block in zip(evidences, fit_links(evidences, [places] * samples).expected, strict=True):
        pearson = (
            None if block is None else sample.pearson(_in_order(block, table, places), _without_link(places))
        )
        if pearson is None:
            return None
        statistics.append(pearson[0])
    return statistics
