"""k-means (Lloyd 1982): groups of records around centres, from counts of variables that are numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import gcd, lcm
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError, did_you_mean
from masquerade.core.query import Query
from masquerade.core.schema import Schema, Variable
from masquerade.core.table import CountTable
from masquerade.core.tally import Tally, check_source
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
    """Groups of records: where their centres lie and what share belongs to each, with standard errors.

    The errors take as given which cells belong to which centre; those of a centre with no records are
    infinite. Clusters that were found on shares have neither errors of centres nor `within`, the sum of
    squared distances: both would need sums that are not opened. Of one that was too small its share is not
    opened either: zero, with an infinite error.

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

    def predict(self, records: Any) -> NDArray[np.intp]:
        """Return the cluster of every record: rows of numbers, in the order of `names`."""
        points = np.asarray(records, dtype=float)
        if points.ndim != 2 or points.shape[1] != len(self.names):
            raise InputError(f"A record has the numbers of {', '.join(self.names)}, in this order.")
        return _nearest(points, self.centres)

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas frame, one row a cluster: its share and centre, with standard errors."""
        import pandas as pd  # noqa: PLC0415  (learners load pandas only when a frame is asked for)

        columns: dict[str, Any] = {"share": self.shares, "share_stderr": self.share_stderr}
        for place, name in enumerate(self.names):
            columns[name] = self.centres[:, place]
            if self.centre_stderr is not None:
                columns[f"{name}_stderr"] = self.centre_stderr[:, place]
        return pd.DataFrame(columns).rename_axis("cluster")

    def to_dict(self) -> dict[str, Any]:
        """Return the clusters as plain JSON values."""
        return {**model_file.header(KIND), **part_values(self)}

    @classmethod
    def from_dict(cls, values: Any) -> Clusters:
        """Return the clusters that `to_dict` described; what is none is refused."""
        model_file.check_header(values, KIND)
        names = tuple(model_file.entry(values, "names", list))
        if not names or len(set(names)) < len(names) or not all(isinstance(name, str) for name in names):
            raise InputError("'names' must be variables, each once.")
        k = len(model_file.entry(values, "shares", list))
        shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("shares", "share_stderr"), (k,))
        shapes |= dict.fromkeys(("centres", "centre_stderr"), (k, len(names)))
        return part_of(cls, values, shapes, names=names)

    def summary(self) -> str:
        """Return the clusters in words, the largest first."""
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
            told = f"{share:.1f}% ± {error:.1f}" if np.isfinite(error) else "share not opened, too small"
            lines.append(f"{told}: {about}")
        return "\n".join(lines)


def k_means(
    source: Tally,
    k: int,
    names: Sequence[str] | None = None,
    *,
    scores: Mapping[str, Sequence[float]] | None = None,
    start: Any = None,
) -> Clusters:
    """Return `k` clusters of records by variables that are numbers, from their one joint table.

    Categories stand for themselves, bins such as "[0, 10)" for their middles, others need `scores`. `start`
    are the first centres (k × variables, in these numbers); without, the heaviest cell and then, again and
    again, the one that is heaviest times its squared distance from those taken.
    Formula: Lloyd's steps on cells weighed by their counts, estimates after projection to non-negative ones.
    Reference: Lloyd (1982); MacQueen (1967).
    Cost: one table of all variables, so a few of them, or coarse bins.
    Error: by the delta method under the table's covariance, given the cells of every cluster.

    >>> print(mq.learn.k_means(mq.tally(mq.data.students()), 2, ["year"]).summary())
    2 clusters of 600 records.
    66.7% ± 1.9: year 1.5 ± 0.025
    33.3% ± 1.9: year 3 ± 0
    """
    check_source(source)
    chosen = tuple(source.schema if names is None else dict.fromkeys(names))
    unused = [name for name in scores or {} if name not in chosen]
    if unused:
        raise InputError(f"'scores' are given for {unused[0]!r}, not used.{did_you_mean(unused[0], chosen)}")
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise InputError(f"'k' must be a number of clusters from 1 on. Got {k!r} instead.")
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
    return _with_errors(table, chosen, points, centres)


def column_numbers(
    schema: Schema, names: Sequence[str], scores: Mapping[str, Sequence[float]] | None = None
) -> list[Floats]:
    """Return the numbers that the categories of variables stand for; one without any is refused."""
    return [_numbers(schema[name], scores) for name in names]


def _numbers(variable: Variable, scores: Mapping[str, Sequence[float]] | None) -> Floats:
    name = variable.name
    given = (scores or {}).get(name)
    if isinstance(given, str):
        raise InputError(f"The scores of {name!r} must be {len(variable)} numbers.")
    found = category_numbers(variable) if given is None else np.asarray(given, dtype=float)
    if found is None:
        raise InputError(f"{name!r} has categories that are no numbers: give 'scores'.")
    if found.shape != (len(variable),) or not np.all(np.isfinite(found)):
        raise InputError(f"The scores of {name!r} must be {len(variable)} numbers.")
    return found


def _first(points: Floats, weights: Floats, k: int) -> Floats:
    """Return points far from each other where much lies."""
    taken = [int(weights.argmax())]
    least = ((points - points[taken[0]]) ** 2).sum(axis=1)
    while len(taken) < k:
        taken.append(int((weights * least).argmax()))
        least = np.minimum(least, ((points - points[taken[-1]]) ** 2).sum(axis=1))
    return points[taken].astype(float)


def _nearest(points: Any, centres: Any) -> NDArray[np.intp]:
    """Return the nearest centre of every point, the first of equally near ones."""
    distances = (centres * centres).sum(axis=1) - 2 * points @ centres.T
    return np.asarray(distances.argmin(axis=1))


def _with_errors(table: CountTable, names: tuple[str, ...], points: Floats, centres: Floats) -> Clusters:
    """Return the clusters of a table's own estimates, given which cells belong to which centre."""
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
    """Return how much lies nearest to each centre, and its sums."""
    nearest = _nearest(points, centres)
    sizes = np.bincount(nearest, weights=weights, minlength=len(centres))
    sums = np.zeros(centres.shape)
    np.add.at(sums, nearest, points * np.asarray(weights)[:, None])
    return sizes, sums


def known_clusters(
    names: Sequence[str], lattice: Lattice, centres: Any, sizes: Any, n: int, *, least: int = 1
) -> Clusters:
    """Return clusters of which centres (in units) and sizes are all that is known; NaN: not even these.

    Sizes below `least` are not opened, and zero.
    """
    known = ~np.isnan(np.asarray(centres)).any(axis=1)
    shares = np.asarray(sizes)[known] / n
    errors = np.sqrt(shares * (1 - shares) / n)
    if least > 1:
        errors[shares == 0] = np.inf
    return Clusters(tuple(names), lattice.numbers(centres[known]), None, shares, errors, None, n)


@dataclass(frozen=True, eq=False)
class Lattice:
    """The unit in which all columns are whole numbers from 0 on: a number is ``origin + whole · unit``.

    One unit for all columns, so that distances are those of the numbers themselves.
    """

    origin: Floats
    unit: float
    most: tuple[int, ...]
    """The largest whole number of every column."""

    @classmethod
    def of(cls, numbers: Sequence[Any]) -> Lattice:
        """Return the coarsest unit in which all numbers that columns can have are whole.

        Where that would be more than 2²⁰ units from a lowest to a highest number, they are rounded to 2⁻¹⁶
        of the widest column.
        """
        columns = [np.unique(np.asarray(column, dtype=float)) for column in numbers]
        if not columns or not all(column.size and np.all(np.isfinite(column)) for column in columns):
            raise InputError("Every column has numbers that are public.")
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
        return replace(found, most=tuple(found.whole([column[-1] for column in columns]).tolist()))

    def whole(self, numbers: Any) -> Integers:
        """Return numbers (a row has one of every column) in units, rounded."""
        return np.rint((np.asarray(numbers, dtype=float) - self.origin) / self.unit).astype(np.int64)

    def centres(self, start: Any, k: int) -> Floats:
        """Return first centres in units, not rounded; what is not one for each cluster is refused."""
        found = np.asarray(start, dtype=float)
        if found.shape != (k, len(self.most)) or not np.all(np.isfinite(found)):
            raise InputError(f"'start' must be {k} centres of {counted(len(self.most), 'number')} each.")
        return np.asarray((found - self.origin) / self.unit)

    def numbers(self, whole: Any) -> Floats:
        """Return what units stand for."""
        return np.asarray(self.origin + np.asarray(whole) * self.unit)
