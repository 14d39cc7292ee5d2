"""k-means clustering (Lloyd 1982) of records, from counts of numeric variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from math import gcd, lcm
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.answered_tally import MissingAnswers, missing_answers_of, people_who_answered
from masquerade.core.axes import Floats
from masquerade.core.errors import InputError, did_you_mean
from masquerade.core.query import Query
from masquerade.core.schema import Schema, Variable
from masquerade.core.table import CountTable
from masquerade.core.tally import Tally
from masquerade.core.util.display import Printed
from masquerade.core.util.formatting import counted
from masquerade.learn import model_file
from masquerade.learn.density import category_numbers
from masquerade.learn.model_file import Saved, part_of, part_values

if TYPE_CHECKING:
    import pandas as pd

Integers = NDArray[np.int64]
KIND = "k_means"
MOST_STEPS = 1000
MOST_UNITS, MOST_DENOMINATOR = 2**20, 10**6


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Clusters(Printed, Saved):
    """Clusters of records, with standard errors given the assignment of cells to centres.

    Attributes
    ----------
    names : tuple of str
        The variables.
    centres : ndarray
        One row per cluster, one column per variable.
    centre_stderr : ndarray or None
        Standard errors of the centres; infinite for a centre without records. None for clusters found by MPC,
        which does not open the sums that they need.
    shares : ndarray
        Share of the records in each cluster. 0 for a cluster that MPC did not open because it is too small.
    share_stderr : ndarray
        Standard errors of the shares; infinite for a cluster that was not opened.
    within : float or None
        Sum of squared distances from the centres; None for clusters found by MPC.
    n : int
        Number of records.
    missing : MissingAnswers or None
        Shares of missing answers, and how they were treated.

    Examples
    --------
    >>> clusters = mq.learn.k_means(mq.tally(mq.data.students()), 2, ["year"])
    >>> clusters.centres.round(2).tolist(), clusters.shares.round(2).tolist()
    ([[1.5], [3.0]], [0.67, 0.33])
    """

    names: tuple[str, ...]
    centres: Floats  # (clusters, variables)
    centre_stderr: Floats | None
    shares: Floats
    share_stderr: Floats
    within: float | None
    n: int
    missing: MissingAnswers | None = None

    def predict(self, records: Any) -> NDArray[np.intp]:
        """Return the cluster of every record. Records are rows of numbers, in the order of `names`."""
        points = np.asarray(records, dtype=float)
        if points.ndim != 2 or points.shape[1] != len(self.names):
            raise InputError(f"A record must have the numbers of {', '.join(self.names)}, in this order.")
        return _nearest(points, self.centres)

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas frame with one row per cluster: its share and centre, with standard errors."""
        import pandas as pd  # noqa: PLC0415  (learners load pandas only when a frame is asked for)

        columns: dict[str, Any] = {"share": self.shares, "share_stderr": self.share_stderr}
        for place, name in enumerate(self.names):
            columns[name] = self.centres[:, place]
            if self.centre_stderr is not None:
                columns[f"{name}_stderr"] = self.centre_stderr[:, place]
        return pd.DataFrame(columns).rename_axis("cluster")

    def to_dict(self) -> dict[str, Any]:
        """Return the clusters as plain JSON values."""
        names = [field.name for field in fields(self) if field.name != "missing"]
        return {
            **model_file.header(KIND),
            **part_values(self, *names),
            **model_file.missing_values(self.missing),
        }

    @classmethod
    def from_dict(cls, values: Any) -> Clusters:
        """Return the clusters that `to_dict` described; raise InputError if the values are not valid."""
        model_file.check_header(values, KIND)
        names = tuple(model_file.entry(values, "names", list))
        if not names or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
            raise InputError("'names' must be variables, each once.")
        k = len(model_file.entry(values, "shares", list))
        shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("shares", "share_stderr"), (k,))
        shapes |= dict.fromkeys(("centres", "centre_stderr"), (k, len(names)))
        return part_of(cls, values, shapes, names=names, missing=model_file.missing_of(values))

    def summary(self) -> str:
        """Return the clusters as text, the largest first."""
        lines = [f"{counted(len(self.shares), 'cluster')} of {self.n:,} records."]
        for place in np.argsort(-self.shares, kind="stable").tolist():
            errors = [""] * len(self.names)
            if self.centre_stderr is not None:
                errors = [f" ± {error:.2g}" for error in self.centre_stderr[place]]
            about = ", ".join(
                f"{name} {centre:.4g}{error}"
                for name, centre, error in zip(self.names, self.centres[place], errors, strict=True)
            )
            share, error = 100 * self.shares[place], 100 * self.share_stderr[place]
            text = f"{share:.1f}% ± {error:.1f}" if np.isfinite(error) else "share not opened, too small"
            lines.append(f"{text}: {about}")
        return "\n".join([*lines, *model_file.missing_lines(self.missing)])


def k_means(
    source: Tally,
    k: int,
    names: Sequence[str] | None = None,
    *,
    scores: Mapping[str, Sequence[float]] | None = None,
    start: Any = None,
) -> Clusters:
    """Cluster records by numeric variables, from their joint table.

    Parameters
    ----------
    source : Tally
        Source of counts.
    k : int
        Number of clusters.
    names : sequence of str, optional
        Variables. Without it, all.
    scores : mapping of str to sequence of float, optional
        Numbers of the categories of a variable. Without scores, numeric categories keep their values, and
        bins such as "[0, 10)" count as their middles.
    start : array_like, optional
        First centres, k × variables. Without it, the cell with most records, then repeatedly the cell with
        the largest count times squared distance from the centres chosen so far.

    Returns
    -------
    Clusters
        Centres and shares with standard errors.

    Raises
    ------
    InputError
        If `k` is larger than the number of cells with records, or a variable has no numbers.

    Notes
    -----
    Formula: Lloyd's algorithm on cells weighted by their counts, after projection to nonnegative counts.
    Reference: Lloyd (1982); MacQueen (1967).
    Cost: one table of all variables, so use few variables or coarse bins.
    Error: by the delta method under the table's covariance, given the cells of every cluster.

    Examples
    --------
    >>> print(mq.learn.k_means(mq.tally(mq.data.students()), 2, ["year"]).summary())
    2 clusters of 600 records.
    66.7% ± 1.9: year 1.5 ± 0.025
    33.3% ± 1.9: year 3 ± 0
    """
    source = people_who_answered(source)
    chosen = tuple(source.schema if names is None else dict.fromkeys(names))
    unused = [name for name in scores or {} if name not in chosen]
    if unused:
        raise InputError(
            f"'scores' are given for {unused[0]!r}, which is not used.{did_you_mean(unused[0], chosen)}"
        )
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise InputError(f"'k' must be a whole number, at least 1. Got {k!r} instead.")
    numbers = column_numbers(source.schema, chosen, scores)
    [table] = source.answer([Query(by=chosen)])
    points = np.stack([axis.ravel() for axis in np.meshgrid(*numbers, indexing="ij")], axis=1)
    weights = np.maximum(table.nonnegative().values.ravel(), 0.0)
    if k > int((weights > 0).sum()):
        raise InputError(
            f"'k' must be from 1 to {int((weights > 0).sum())}, the cells with records. Got {k!r} instead."
        )
    centres = _first(points, weights, k) if start is None else np.asarray(start, dtype=float)
    if centres.shape != (k, len(chosen)) or not np.all(np.isfinite(centres)):
        raise InputError(f"'start' must be {k} centres of {counted(len(chosen), 'number')} each.")
    for _ in range(MOST_STEPS):
        sizes, sums = lloyd_step(points, weights, centres)
        moved_to = np.where(sizes[:, None] > 0, sums / np.where(sizes > 0, sizes, 1)[:, None], centres)
        if np.array_equal(moved_to, centres):
            break
        centres = moved_to
    return replace(_with_errors(table, chosen, points, centres), missing=missing_answers_of(source))


def column_numbers(
    schema: Schema, names: Sequence[str], scores: Mapping[str, Sequence[float]] | None = None
) -> list[Floats]:
    """Return the numbers of the variables' categories; raise InputError if a variable has none."""
    return [_numbers(schema[name], scores) for name in names]


def _numbers(variable: Variable, scores: Mapping[str, Sequence[float]] | None) -> Floats:
    name = variable.name
    given = (scores or {}).get(name)
    if isinstance(given, str):
        raise InputError(f"The scores of {name!r} must be {len(variable)} numbers.")
    if given is None and variable.missing:
        raise InputError(
            f"A missing answer to {name!r} is not a number. Give 'scores' of all categories, or remove "
            "records without an answer first."
        )
    found = category_numbers(variable) if given is None else np.asarray(given, dtype=float)
    if found is None:
        raise InputError(f"{name!r} has categories that are not numbers: give 'scores'.")
    if found.shape != (len(variable),) or not np.all(np.isfinite(found)):
        raise InputError(f"The scores of {name!r} must be {len(variable)} numbers.")
    return found


def _first(points: Floats, weights: Floats, k: int) -> Floats:
    """Return points with large weights that are far from each other."""
    taken = [int(weights.argmax())]
    least = ((points - points[taken[0]]) ** 2).sum(axis=1)
    while len(taken) < k:
        taken.append(int((weights * least).argmax()))
        least = np.minimum(least, ((points - points[taken[-1]]) ** 2).sum(axis=1))
    return points[taken].astype(float)


def _nearest(points: Any, centres: Any) -> NDArray[np.intp]:
    """Return the nearest centre of every point; ties go to the first."""
    distances = (centres * centres).sum(axis=1) - 2 * points @ centres.T
    return np.asarray(distances.argmin(axis=1))


def _with_errors(table: CountTable, names: tuple[str, ...], points: Floats, centres: Floats) -> Clusters:
    """Return the clusters from a table's unbiased counts, given the assignment of cells to centres."""
    counts, total = table.values.ravel(), table.total
    nearest = _nearest(points, centres)
    shape = table.values.shape
    shares, share_errors = np.zeros(len(centres)), np.zeros(len(centres))
    means, errors = centres.copy(), np.full(centres.shape, np.inf)
    within = 0.0
    for place in range(len(centres)):
        inside = (nearest == place).astype(float)
        size = float(inside @ counts)
        shares[place] = size / total
        share_errors[place] = _error(table, (inside - shares[place]) / total, shape)
        if size <= 0:
            continue
        for column in range(len(names)):
            mean = float((inside * points[:, column]) @ counts) / size
            slopes = inside * (points[:, column] - mean) / size
            means[place, column], errors[place, column] = mean, _error(table, slopes, shape)
        within += float((inside * ((points - means[place]) ** 2).sum(axis=1)) @ counts)
    return Clusters(names, means, errors, shares, share_errors, within, table.n)


def _error(table: CountTable, slopes: Floats, shape: tuple[int, ...]) -> float:
    return float(np.sqrt(max(table.covariance.quadratic(slopes.reshape(shape)), 0.0)))


def lloyd_step(points: Any, weights: Any, centres: Any) -> tuple[Any, Any]:
    """Return the weight nearest to each centre, and its weighted sums."""
    nearest = _nearest(points, centres)
    sizes = np.bincount(nearest, weights=weights, minlength=len(centres))
    sums = np.zeros(centres.shape)
    np.add.at(sums, nearest, points * np.asarray(weights)[:, None])
    return sizes, sums


def known_clusters(
    names: Sequence[str], lattice: Lattice, centres: Any, sizes: Any, n: int, *, least: int = 1
) -> Clusters:
    """Return clusters from opened centres (in units) and sizes only; NaN centres are omitted.

    Sizes below `least` are not opened: they are 0, with an infinite error.
    """
    known = ~np.isnan(np.asarray(centres)).any(axis=1)
    shares = np.asarray(sizes)[known] / n
    errors = np.sqrt(shares * (1 - shares) / n)
    if least > 1:
        errors[shares == 0] = np.inf
    return Clusters(tuple(names), lattice.numbers(centres[known]), None, shares, errors, None, n)


@dataclass(frozen=True, eq=False)
class Lattice:
    """A grid on which all columns are whole numbers from 0 on: a number is ``origin + whole · unit``.

    All columns have the same unit, so that distances in units are proportional to distances of the numbers.
    """

    origin: Floats
    unit: float
    most: tuple[int, ...]
    """The largest whole number of every column."""

    @classmethod
    def of(cls, numbers: Sequence[Any]) -> Lattice:
        """Return the lattice with the coarsest unit in which all numbers of the columns are whole.

        If a column would then span more than 2²⁰ units, numbers are rounded to 2⁻¹⁶ of the widest column.
        """
        columns = [np.unique(np.asarray(column, dtype=float)) for column in numbers]
        if not columns or not all(column.size and np.all(np.isfinite(column)) for column in columns):
            raise InputError("Every column must have public, finite numbers.")
        origin = np.array([column[0] for column in columns])
        widest = max(float(column[-1] - column[0]) for column in columns) or 1.0
        steps = {
            Fraction(float(step)).limit_denominator(MOST_DENOMINATOR)
            for column in columns
            for step in column[1:] - column[0]
        }
        below = lcm(*(step.denominator for step in steps)) if steps else 1
        unit = Fraction(gcd(*(int(step * below) for step in steps)) or below, below)
        if widest / unit > MOST_UNITS:
            unit = Fraction(widest / 2**16)
        found = cls(origin, float(unit), ())
        return replace(found, most=tuple(found.to_units([column[-1] for column in columns]).tolist()))

    def to_units(self, numbers: Any) -> Integers:
        """Return numbers (rows with one number per column) in units, rounded."""
        return np.rint((np.asarray(numbers, dtype=float) - self.origin) / self.unit).astype(np.int64)

    def centres(self, start: Any, k: int) -> Floats:
        """Return first centres in units, not rounded; raise InputError unless there is one per cluster."""
        found = np.asarray(start, dtype=float)
        if found.shape != (k, len(self.most)) or not np.all(np.isfinite(found)):
            raise InputError(f"'start' must be {k} centres of {counted(len(self.most), 'number')} each.")
        return np.asarray((found - self.origin) / self.unit)

    def numbers(self, whole: Any) -> Floats:
        """Convert units to numbers."""
        return np.asarray(self.origin + np.asarray(whole) * self.unit)
