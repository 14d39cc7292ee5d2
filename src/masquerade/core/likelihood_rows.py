"""Probabilities of each record's report given the truth, as input to a likelihood.

A regression reads them as rows over the truths of a few variables, a network as one factor for each variable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError

Codes = NDArray[np.intp]
MOST_REPORTS = 512  # of one survey design, for which all chances are listed


class NoLikelihood(InputError):
    """The chances of the reports cannot be listed: there are too many, or the records are weighted."""


@dataclass(frozen=True, slots=True, eq=False)
class LikelihoodRows:
    """P(report | truth) of every record, over the variables that the reports do not show.

    Attributes
    ----------
    names, shape : tuples
        Hidden variables and their numbers of categories: those asked for, then those reported with them.
    chances : array (distinct reports, truths)
        Chances of the reports that occur. Groups that people were dealt into are conditioned on.
    report : array (records,)
        Index of each record's row of `chances`.
    channels : tuple of arrays (truths, reports)
        Chances of all reports in each survey design; empty if the reports are too many to list.
    design_of : array (records,)
        Index in `channels` of each record's design.
    known : mapping of str to array
        Codes of the variables asked for that the reports show.
    weights : array or None
        Survey weights.
    dealt : tuple of str
        Hidden variables of a survey design that are reported as a whole: either together with the group
        that a person was dealt into, or because the report determines no table of only some of them.
    is_ordered : bool
        The records are in the order of the data. An engine has no order: columns that are not its own cannot
        be matched to its records.
    """

    names: tuple[str, ...]
    shape: tuple[int, ...]
    chances: Floats
    report: Codes
    channels: tuple[Floats, ...]
    design_of: Codes
    known: Mapping[str, Codes]
    weights: Floats | None = None
    dealt: tuple[str, ...] = ()
    is_ordered: bool = True

    @property
    def n(self) -> int:
        """Return the number of records."""
        return len(self.report)

    def widen(self, names: Sequence[str], shape: Sequence[int]) -> LikelihoodRows:
        """Return the rows over more hidden variables, in the given order; reports do not depend on them."""
        if tuple(names) == self.names:
            return self
        own = [names.index(name) for name in self.names]

        def spread(table: Floats) -> Floats:
            cells = table.reshape(len(table), *self.shape)
            order = np.argsort(own)
            cells = np.transpose(cells, (0, *(1 + order)))
            full = [size if place in own else 1 for place, size in enumerate(shape)]
            wide = np.broadcast_to(cells.reshape(len(table), *full), (len(table), *shape))
            return np.ascontiguousarray(wide.reshape(len(table), -1))

        channels = tuple(np.ascontiguousarray(spread(channel.T).T) for channel in self.channels)
        return LikelihoodRows(
            tuple(names),
            tuple(shape),
            spread(self.chances),
            self.report,
            channels,
            self.design_of,
            self.known,
            self.weights,
            self.dealt,
            self.is_ordered,
        )

    def take(self, rows: Codes) -> LikelihoodRows:
        """Return some of the records."""
        return LikelihoodRows(
            self.names,
            self.shape,
            self.chances,
            self.report[rows],
            self.channels,
            self.design_of[rows],
            {name: codes[rows] for name, codes in self.known.items()},
            None if self.weights is None else self.weights[rows],
            self.dealt,
            self.is_ordered,
        )


@dataclass(frozen=True, slots=True, eq=False)
class SurveyDesign:
    """How the people of a survey were drawn.

    Attributes
    ----------
    clusters, strata : arrays (records,)
        Primary unit and stratum of each record.
    fraction : array (strata,)
        Sampling fraction of each stratum; 0 without a finite population correction.
    replicates : tuple of arrays
        Replicate weights; then the units above are not used.
    scale : float
        Factor of the squared deviations of the replicates.
    """

    clusters: Codes
    strata: Codes
    fraction: Floats
    replicates: tuple[Floats, ...] = ()
    scale: float = 1.0


@runtime_checkable
class LikelihoodSource(Protocol):
    """A source of records that gives the chances of their reports."""

    def likelihood_rows(self, over: Sequence[str]) -> LikelihoodRows:
        """Return P(report | truth) of every record, for the truths of the named variables.

        Parameters
        ----------
        over : sequence of str
            Variables.

        Returns
        -------
        LikelihoodRows
            One row per record, in the order of the records.
        """


def join_rows(parts: Sequence[LikelihoodRows], sizes: Mapping[str, int]) -> LikelihoodRows:
    """Return the rows of several sources about different people.

    A variable that is known in some sources only is hidden in the result.
    """
    hidden = list(dict.fromkeys(name for part in parts for name in part.names))
    shape = [sizes[name] for name in hidden]
    wide = [hide_known(part, [name for name in hidden if name in part.known], sizes) for part in parts]
    wide = [part.widen(hidden, shape) for part in wide]
    rows = np.cumsum([0, *(len(part.chances) for part in wide)])
    designs = np.cumsum([0, *(len(part.channels) for part in wide)])
    if any((part.weights is None) != (wide[0].weights is None) for part in wide):
        raise InputError("Some sources have survey weights and others none: give weights to all.")
    has_channels = all(part.channels for part in wide)
    weights = [part.weights for part in wide if part.weights is not None]
    return LikelihoodRows(
        tuple(hidden),
        tuple(shape),
        np.concatenate([part.chances for part in wide]),
        np.concatenate([part.report + start for part, start in zip(wide, rows, strict=False)]),
        tuple(channel for part in wide for channel in part.channels) if has_channels else (),
        np.concatenate([part.design_of + start for part, start in zip(wide, designs, strict=False)]),
        {name: np.concatenate([part.known[name] for part in wide]) for name in wide[0].known},
        np.concatenate(weights) if weights else None,
        tuple(dict.fromkeys(name for part in wide for name in part.dealt)),
        all(part.is_ordered for part in wide),
    )


def hide_known(part: LikelihoodRows, names: Sequence[str], sizes: Mapping[str, int]) -> LikelihoodRows:
    """Return rows in which known variables are treated as hidden variables that are reported truthfully."""
    for name in names:
        size, codes = sizes[name], part.known[name]
        pairs, report = np.unique(part.report * size + codes, return_inverse=True)
        chances = part.chances[pairs // size][:, :, None] * np.eye(size)[pairs % size][:, None, :]
        part = LikelihoodRows(
            (*part.names, name),
            (*part.shape, size),
            chances.reshape(len(pairs), -1),
            np.asarray(report, dtype=np.intp),
            tuple(np.asarray(np.kron(channel, np.eye(size))) for channel in part.channels),
            part.design_of,
            {other: codes for other, codes in part.known.items() if other != name},
            part.weights,
            part.dealt,
            part.is_ordered,
        )
    return part


def check_possible(rows: LikelihoodRows) -> None:
    """Raise InputError if no truth gives some record's report."""
    impossible = np.flatnonzero(~rows.chances.any(axis=1))
    if len(impossible):
        first = int(np.flatnonzero(np.isin(rows.report, impossible))[0]) + 1
        raise InputError(
            f"Record {first:,}: no truth gives its report under this policy. Check the policy and the file."
        )


def truths_of(rows: LikelihoodRows) -> int:
    """Return the number of combinations of the hidden variables."""
    return prod(rows.shape)


@dataclass(frozen=True, slots=True, eq=False)
class ReportFactor:
    """P(report | truth) of variables that were reported together.

    Attributes
    ----------
    names : tuple of str
        The variables.
    chances : array (distinct reports, categories of each variable)
        Chances of the reports that occur.
    report : array (records,)
        Index of each record's report.
    """

    names: tuple[str, ...]
    chances: Floats
    report: Codes


@dataclass(frozen=True, slots=True, eq=False)
class ReportFactors:
    """Reports of records that were asked in the same way; equal records are merged.

    Attributes
    ----------
    factors : tuple of ReportFactor
        The likelihood of a record is the product of its factors' chances. A variable without a factor was
        not reported.
    weights : array (distinct records,)
        Number of records, or their summed survey weights.
    """

    factors: tuple[ReportFactor, ...]
    weights: Floats

    @property
    def records(self) -> int:
        """Return the number of distinct records."""
        return len(self.weights)


@runtime_checkable
class FactorSource(Protocol):
    """A source that knows what each record reported."""

    def report_factors(self, over: Sequence[str]) -> tuple[ReportFactors, ...]:
        """Return the chances of the reports, given the truth of the named variables."""


@runtime_checkable
class FactorEvidence(Protocol):
    """Evidence of a table that knows how often each combination of its axes was reported."""

    def report_factors(self, over: Sequence[str]) -> ReportFactors | None:
        """Return the reports of the table as factors, with the number of each.

        Parameters
        ----------
        over : sequence of str
            Names of the axes of the table.

        Returns
        -------
        ReportFactors or None
            None if the truth of these axes does not determine the distribution of the reports.
        """


def merge_equal(factors: Sequence[ReportFactor], weights: Floats) -> ReportFactors:
    """Return the factors of distinct records, with the number or summed weights of each."""
    member = np.zeros(len(weights), dtype=np.intp)
    first = np.zeros(min(1, len(weights)), dtype=np.intp)
    for factor in factors:
        width = len(factor.chances)
        _, first, member = np.unique(member * width + factor.report, return_index=True, return_inverse=True)
    merged = tuple(ReportFactor(one.names, one.chances, one.report[first]) for one in factors)
    totals = np.bincount(member, weights, minlength=len(first)).astype(np.float64)
    return ReportFactors(merged, totals)
