"""Conditional probability tables: estimated from counts, with standard errors and intervals."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.covariance import Covariance
from masquerade.core.distributions import two_sided_quantile
from masquerade.core.errors import InputError, MasqueradeWarning
from masquerade.core.intervals import (
    ConfidenceSet,
    Flags,
    Interval,
    RatioErrors,
    logit_interval,
    ratio_errors,
)
from masquerade.core.linear_covariance import share_spread_of
from masquerade.core.plots.drawing import Dots, dot_plot
from masquerade.core.report_moments import ShareSpread, share_interval
from masquerade.core.schema import Variable
from masquerade.core.table import CountTable, cell_frame, cell_labels
from masquerade.core.util.display import Printed
from masquerade.core.util.formatting import printable
from masquerade.learn import model_file

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

FEWEST_SIGMAS = 5.0
# a count of N records varies by about √N even if it is the whole sample and its standard error is 0;
# 5·√N ≤ N means N ≥ 25
FEWEST_RECORDS = FEWEST_SIGMAS**2
ROUNDING = 1e-9
ROW_SUM_ERROR = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class RowEvidence:
    """The counts underlying the rows of a conditional table.

    `records` and `records_stderr` are the estimated number of records of each configuration of the parents
    and its standard error; `with_records` is the covariance of every cell with that number. `prior` is the
    pseudo-count that the Dirichlet prior adds to each of `records`, `n` the number of records of the source,
    `sampling` the mean squared survey weight over the mean weight (1 without weights). `spread` contains the
    moments of the reports, or the covariance of the counts that they are computed from; it is used for
    intervals only, and is None if unknown.
    """

    records: Floats
    records_stderr: Floats
    with_records: Floats
    prior: float
    n: int
    sampling: float
    spread: ShareSpread | Covariance | None = None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ConditionalTable(Printed):
    """P(child | parents) with standard errors; parents are the leading axes, the child is the last.

    Estimates may be negative or above one, so that they stay unbiased; `project` makes them probabilities and
    keeps the original estimates in `unbiased`, for the intervals. A configuration without records (an
    estimate of zero or less) has a uniform row and infinite standard errors. A standard error of zero at 0 or
    1 means only that nothing else was observed; use `conf_int` there.

    Attributes
    ----------
    child : Variable
        The variable.
    parents : tuple of Variable
        Parents of the variable.
    probabilities : ndarray
        The parameters, one axis per parent and the child last.
    stderr : ndarray
        Standard errors of the parameters.
    reliable : ndarray of bool
        False for a configuration of the parents whose number of records is less than five of its standard
        errors, or below 25: its standard errors are not reliable.
    evidence : RowEvidence or None
        The underlying counts. None for a known table, and for one fitted by the joint likelihood, whose
        intervals are symmetric on the scale of the logits.
    unbiased : ndarray or None
        The estimates before `project`.

    Examples
    --------
    >>> source = mq.tally(mq.data.students())
    >>> network = mq.learn.bayesian_network(source, {"exams": (), "pills": ("exams",)})
    >>> print(network["pills"].summary())
    P(pills | exams)
    exams pills  probability  stderr  lower  upper  reliable
      few    no       0.8800  0.0188 0.8383 0.9120      True
      few   yes       0.1200  0.0188 0.0880 0.1617      True
     many    no       0.7000  0.0265 0.6459 0.7491      True
     many   yes       0.3000  0.0265 0.2509 0.3541      True
    """

    child: Variable
    parents: tuple[Variable, ...]
    probabilities: Floats
    stderr: Floats
    reliable: Flags
    evidence: RowEvidence | None = None
    unbiased: Floats | None = None

    @property
    def axes(self) -> tuple[Variable, ...]:
        """Return the parents and then the child."""
        return (*self.parents, self.child)

    @property
    def estimate(self) -> Floats:
        """Return the unbiased estimates, before `project`."""
        return self.probabilities if self.unbiased is None else self.unbiased

    @property
    def spread(self) -> ShareSpread | None:
        """Return the moments of the reports for each parameter; None if unknown."""
        found = None if self.evidence is None else self.evidence.spread
        if found is None or isinstance(found, ShareSpread):
            return found
        return share_spread_of(found, len(self.parents), self.estimate)

    @property
    def has_records(self) -> Flags:
        """Return True for every configuration of the parents that has records."""
        return np.asarray(np.isfinite(self.stderr).all(axis=-1))

    def conf_int(self, level: float = 0.95) -> Interval:
        """Return confidence intervals of the parameters.

        These are score intervals on the reports: Wilson's interval for clear records, Clopper and Pearson's
        where few reports are informative, Fieller's where the number of records is itself uncertain, the
        estimate ± z standard errors where there are many. See
        `masquerade.core.report_moments.share_interval`. A confidence set that is not an interval is given as
        [0, 1] (see `is_bounded`). With a prior, the intervals are for the shrunken parameter (α_k + N_k)/(α +
        N).
        """
        found = self._confidence(level)
        return Interval(found.lower, found.upper)

    def is_bounded(self, level: float = 0.95) -> Flags:
        """Return False for intervals that are [0, 1] because the records exclude nothing."""
        return self._confidence(level).bounded

    def project(self) -> ConditionalTable:
        """Return the table with negative estimates set to zero and the rows rescaled to sum to one.

        This explicit step introduces a bias, and is needed before sampling, inference or export. Standard
        errors and intervals remain those of the unbiased estimate.
        """
        if np.all(self.probabilities >= 0):
            return self
        clipped = np.maximum(self.probabilities, 0.0)
        return replace(
            self, probabilities=clipped / clipped.sum(axis=-1, keepdims=True), unbiased=self.estimate
        )

    @printable
    def summary(self) -> str:
        """Return every parameter with its standard error."""
        given = f" | {', '.join(parent.name for parent in self.parents)}" if self.parents else ""
        frame = self.to_frame().to_string(index=False, float_format=lambda x: f"{x:.4f}")
        return f"P({self.child.name}{given})\n{frame}"

    def to_frame(self, level: float = 0.95) -> pd.DataFrame:
        """Return a pandas frame with one row per parameter.

        Columns: parents, child, probability, stderr, lower, upper, reliable.
        """
        lower, upper = self.conf_int(level)
        return cell_frame(
            self.axes,
            probability=self.probabilities,
            stderr=self.stderr,
            lower=lower,
            upper=upper,
            reliable=np.repeat(self.reliable.ravel(), len(self.child)),
        )

    def plot(self, ax: Axes | None = None, level: float = 0.95) -> Axes:
        """Draw the table with intervals, one row per configuration of parents; unreliable rows are hollow."""
        interval = self.conf_int(level)
        series = {
            str(label): Dots(
                self.probabilities[..., code].ravel(),
                interval.lower[..., code].ravel(),
                interval.upper[..., code].ravel(),
                ~self.reliable.ravel(),
            )
            for code, label in enumerate(self.child.categories)
        }
        given = f" | {', '.join(parent.name for parent in self.parents)}" if self.parents else ""
        return dot_plot(
            cell_labels(self.parents),
            series,
            ax,
            xlabel=f"probability, {level:.0%} intervals",
            title=f"P({self.child.name}{given})",
            legend=self.child.name,
        )

    def _confidence(self, level: float) -> ConfidenceSet:
        z = two_sided_quantile(level)
        if self.evidence is None:
            ends = logit_interval(self.estimate, self.stderr, level)
            return ConfidenceSet(ends.lower, ends.upper, np.ones(self.estimate.shape, dtype=bool))
        evidence, seen = self.evidence, self.has_records
        errors = RatioErrors(
            np.where(seen[..., None], self.stderr, 0.0), evidence.with_records, evidence.records_stderr**2
        )
        totals = np.where(seen, evidence.records + evidence.prior, 1.0)
        intervals = share_interval(
            self.estimate, errors, totals, z, n=evidence.n, sampling=evidence.sampling, spread=self.spread
        )
        bounded = intervals.bounded & seen[..., None]
        return ConfidenceSet(
            np.where(bounded, intervals.lower, 0.0), np.where(bounded, intervals.upper, 1.0), bounded
        )


def conditional_table(
    counts: CountTable, alpha: float = 0.0, sampling: float | None = None
) -> ConditionalTable:
    """Return P(last axis | the others) with standard errors; `alpha` is added to every cell.

    `sampling` is the source's mean squared survey weight over mean weight, computed if not given.
    """
    child = counts.axes[-1]
    prior = alpha * len(child)
    records: Floats = np.asarray(counts.values.sum(axis=-1))
    seen = records > ROUNDING * counts.n
    whole = np.where(seen, records + prior, 1.0)
    shares = np.where(seen[..., None], (counts.values + alpha) / whole[..., None], 1 / len(child))
    errors = ratio_errors(shares, counts.within((child.name,)), whole)
    ratio = weight_ratio(counts) if sampling is None else sampling
    spread = np.sqrt(errors.total_variance)
    return ConditionalTable(
        child,
        counts.axes[:-1],
        shares,
        np.where(seen[..., None], errors.stderr, np.inf),
        np.asarray(seen & (records >= FEWEST_SIGMAS * spread) & (records >= FEWEST_RECORDS * ratio)),
        RowEvidence(records, spread, errors.with_total, prior, counts.n, ratio, counts.covariance),
    )


def weight_ratio(counts: CountTable) -> float:
    """Return the mean squared survey weight over the mean weight, equal for all tables of a source."""
    total = float(counts.estimate.sum())
    if total <= ROUNDING * counts.n or counts.n == 0:
        return 1.0
    ones = np.ones(counts.values.shape)
    both = [counts.covariance.quadratic(ones, kind) for kind in ("population", "given_records")]
    return max((both[0] - both[1] + total**2 / counts.n) / total, 0.0)


def check_prior(prior: float, equivalent_size: float | None) -> None:
    """Raise InputError if a prior is negative or not finite, or both priors are given."""
    for name, value in (("prior", prior), ("equivalent_size", equivalent_size or 0.0)):
        if not (math.isfinite(value) and value >= 0):
            raise InputError(f"The {name!r} of a network must be a finite number ≥ 0. Got {value} instead.")
    if prior and equivalent_size is not None:
        raise InputError("Give a prior per cell or an equivalent sample size, not both.")


def warn_of_unseen(tables: Sequence[ConditionalTable]) -> None:
    """Warn once about configurations of parents without records."""
    nodes = [table.child.name for table in tables if not np.all(table.has_records)]
    if nodes:
        unseen = sum(int((~table.has_records).sum()) for table in tables)
        rows = sum(table.has_records.size for table in tables)
        names = ", ".join(map(repr, nodes[:5])) + (", …" if len(nodes) > 5 else "")
        warnings.warn(
            f"{unseen:,} of {rows:,} configurations of parents have no records by the estimates "
            f"(of {names}): their rows are uniform, with infinite standard errors.",
            MasqueradeWarning,
            stacklevel=3,
        )


def table_values(table: ConditionalTable) -> dict[str, Any]:
    """Return a conditional table as plain JSON values."""
    own = table.evidence and replace(table.evidence, spread=table.spread)
    values = {
        "variable": model_file.plain(table.child),
        "parents": [parent.name for parent in table.parents],
        **model_file.part_values(table, "probabilities", "stderr", "reliable", "unbiased"),
        "evidence": model_file.plain(own),
    }
    for part in (values, values["evidence"] or {}):  # omit empty entries
        for name in [name for name, value in part.items() if value is None]:
            del part[name]
    return values


def table_of(values: Mapping[str, Any], child: Variable, parents: tuple[Variable, ...]) -> ConditionalTable:
    """Return a conditional table of known variables from plain JSON values."""
    shape = tuple(len(axis) for axis in (*parents, child))
    shapes = {"probabilities": shape, "stderr": shape, "unbiased": shape, "reliable": shape[:-1]}
    own = evidence_of(model_file.entry(values, "evidence", dict), shape) if "evidence" in values else None
    table = model_file.part_of(
        ConditionalTable, {"unbiased": None, **values}, shapes, child=child, parents=parents, evidence=own
    )
    check_rows(child.name, table.probabilities)
    check_rows(child.name, table.estimate)
    if np.any(table.stderr < 0):
        raise InputError(f"The standard errors of {child.name!r} must not be negative.")
    return table


def evidence_of(values: Mapping[str, Any], shape: tuple[int, ...]) -> RowEvidence:
    """Return the counts underlying a conditional table from plain JSON values."""
    shapes = {"records": shape[:-1], "records_stderr": shape[:-1], "with_records": shape}
    every = {field.name: shape for field in fields(ShareSpread)}
    spread = model_file.part_of(ShareSpread, values["spread"], every) if "spread" in values else None
    evidence = model_file.part_of(RowEvidence, values, shapes, spread=spread)
    if not all(np.all(np.isfinite(part)) for part in (evidence.records, evidence.records_stderr)):
        raise InputError("The numbers of records of a conditional table must be finite.")
    return evidence


def check_rows(name: str, probabilities: Floats, tolerance: float = ROW_SUM_ERROR) -> None:
    """Raise InputError if rows do not sum to one, relative to their largest entry."""
    if not np.all(np.isfinite(probabilities)):
        raise InputError(f"The parameters of {name!r} must be finite numbers.")
    size = np.maximum(np.abs(probabilities).max(axis=-1), 1.0)
    if not np.all(np.abs(probabilities.sum(axis=-1) - 1) <= tolerance * size):
        raise InputError(f"The parameters of {name!r} must be rows that sum to 1.")
