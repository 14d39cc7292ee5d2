"""Input of estimators: clear arrays whose categories are learned, or disguised records with a policy."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from masquerade.channels.designs import bin_labels
from masquerade.channels.policy import Policy
from masquerade.core.axes import Floats
from masquerade.core.errors import InputError
from masquerade.core.schema import Category, Schema, Variable, category
from masquerade.frames.label_codes import encode
from masquerade.frames.metadata import metadata_of
from masquerade.frames.native import columns_of
from masquerade.learn.classifiers.prediction_rows import LARGEST_EXACT_FLOAT, labels_of, row_codes
from masquerade.sources.records import Records
from masquerade.sources.report_tally import Missing
from masquerade.sources.tally import check_origin, check_said, missing_from, tally

AnyPolicy = Policy | Mapping[str, Any] | str | Path
Rows = Mapping[str, NDArray[Any]]
MOST_BINS = 16
MOST_CELLS = 2**18  # cells of the table over all columns and the classes, for learners that need it

Codes = NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class NumberColumn:
    """A column of numbers: category k contains the numbers in [cuts[k − 1], cuts[k]).

    If there are few distinct numbers, each is a category, with cuts halfway between them. A new number thus
    falls into the nearest category, as with the thresholds of a decision tree. `means` are the means of the
    categories.
    """

    variable: Variable
    cuts: Floats
    means: Floats

    def codes(self, column: NDArray[Any]) -> Codes:
        """Return the category of every number."""
        return np.searchsorted(self.cuts, _as_numbers(self.variable.name, column), side="right")


@dataclass(frozen=True, slots=True, eq=False)
class LabelColumn:
    """A column of labels; a new label raises an error with its column and row, as in CategoricalNB."""

    variable: Variable

    def codes(self, column: NDArray[Any]) -> Codes:
        """Return the category of every label."""
        name = self.variable.name
        return row_codes({name: list(column)}, Schema([self.variable]), [name])[name]


Column = NumberColumn | LabelColumn


def learn_columns(
    columns: Mapping[str, NDArray[Any]], bins: int | None, small: Collection[str], classes: int
) -> tuple[Column, ...]:
    """Return the categories of columns: numbers with more than `bins` distinct values are binned.

    Without `bins`, there are at most 16 bins, or fewer if the table over the columns in `small` and the
    classes would have more than 262,144 cells.
    """
    if bins is not None and (isinstance(bins, bool) or int(bins) != bins or bins < 2):
        raise InputError(f"The 'bins' parameter must be a whole number of at least 2. Got {bins!r} instead.")
    numeric = {name for name, column in columns.items() if not _is_labels(name, column)}
    most = MOST_BINS if bins is None else int(bins)
    if bins is None and small:
        sizes = {name: len(set(columns[name].tolist())) for name in small if name in columns}
        while most > 2 and classes * prod(
            min(size, most) if name in numeric else size for name, size in sizes.items()
        ) > MOST_CELLS:  # fmt: skip
            most -= 1
    return tuple(
        learn_numbers(name, _as_numbers(name, column), most)
        if name in numeric
        else LabelColumn(
            Variable(name, tuple(sorted(set(map(category, column)), key=lambda own: (str(type(own)), own))))
        )
        for name, column in columns.items()
    )


def learn_numbers(name: str, numbers: Floats, most: int) -> NumberColumn:
    """Return the distinct numbers as categories if there are at most `most`, else equally full bins."""
    points, counts = np.unique(numbers, return_counts=True)
    if len(points) <= most:
        # halfway, or the higher of two adjacent floats
        middle = points[:-1] / 2 + points[1:] / 2
        cuts = np.where(middle > points[:-1], middle, points[1:])
        return NumberColumn(Variable(name, _number_labels(points)), cuts, points)
    shares = counts / len(numbers)
    # the last point of each lower bin, in integer arithmetic: k/most of the records are not above it
    last = np.searchsorted(np.cumsum(counts)[:-1] * most, np.arange(1, most) * len(numbers))
    cuts = points[np.unique(np.minimum(last + 1, len(points) - 1))]
    place = np.searchsorted(cuts, points, side="right")
    means = np.bincount(place, weights=points * shares) / np.bincount(place, weights=shares)
    labels: tuple[Category, ...] = bin_labels([-np.inf, *cuts, np.inf])
    if len(set(labels)) < len(labels):  # cut points that are equal in 15 digits
        labels = tuple(range(len(labels)))
    return NumberColumn(Variable(name, labels), cuts, means)


def _number_labels(numbers: Floats) -> tuple[Category, ...]:
    """Return distinct numbers as categories: themselves if they are all whole, else their text."""
    if np.all((np.floor(numbers) == numbers) & (np.abs(numbers) < LARGEST_EXACT_FLOAT)):
        return tuple(int(number) for number in numbers)
    return tuple(repr(float(number)) for number in numbers)


def _is_labels(name: str, column: NDArray[Any]) -> bool:
    """Return True for a column of labels, False for numbers; raise TypeError for anything else."""
    if column.dtype.kind != "O":
        return column.dtype.kind in "US"
    kinds = {type(value) for value in column}
    for kind in kinds:
        if not issubclass(kind, (str, int, float, np.number, np.bool_)):
            raise TypeError(
                f"Column {name!r}: the argument must be a string or a number, not {kind.__name__!r}."
            )
    return any(issubclass(kind, str) for kind in kinds)


def _as_numbers(name: str, column: NDArray[Any]) -> Floats:
    if _is_labels(name, column):
        raise InputError(
            f"Column {name!r} contained numbers when the estimator was fitted, and contains text now."
        )
    numbers = column.astype(np.float64)
    if not np.all(np.isfinite(numbers)):
        raise InputError(f"Column {name!r} contains NaN or infinity.")
    return np.asarray(numbers)


@dataclass(frozen=True, slots=True, eq=False)
class ClearInput:
    """Clear rows: the learned categories of an array's columns, and the classes in the target's order."""

    target: Variable
    labels: NDArray[Any]
    columns: tuple[Column, ...]

    @property
    def schema(self) -> Schema:
        """Return features and target."""
        return Schema([*(column.variable for column in self.columns), self.target])

    def rows(self, X: NDArray[Any]) -> Rows:
        """Return the categories of rows by feature."""
        return {
            column.variable.name: labels_of(column.variable, column.codes(X[:, i]))
            for i, column in enumerate(self.columns)
        }

    def records(
        self,
        X: NDArray[Any],
        y: NDArray[Any],
        weights: Floats | None = None,
        missing: Missing | None = None,
    ) -> Records:
        """Return rows and their classes as a source of counts; `missing` describes missing rows."""
        codes = {column.variable.name: column.codes(X[:, i]) for i, column in enumerate(self.columns)}
        codes[self.target.name] = np.searchsorted(self.labels, y)
        schema = self.schema
        return Records(
            {
                name: column.astype(np.min_scalar_type(len(schema[name]) - 1))
                for name, column in codes.items()
            },
            Policy.clear(schema),
            weights,
            missing=missing,
        )


@dataclass(frozen=True, slots=True, eq=False)
class DisguisedInput:
    """Records disguised by a policy, and clear rows of the same variables."""

    policy: Policy
    target: Variable

    @property
    def labels(self) -> NDArray[Any]:
        """Return the classes in the target's order."""
        return labels_of(self.target, np.arange(len(self.target)))

    @property
    def names(self) -> tuple[str, ...]:
        """Return all variables but the target: the columns of an array, in this order."""
        return tuple(name for name in self.policy.schema if name != self.target.name)

    def records(
        self,
        X: Any,
        y: NDArray[Any],
        weights: Floats | None = None,
        missing: Missing | None = None,
        features: Sequence[str] | None = None,
    ) -> Records:
        """Return disguised rows and their disguised classes as a source of counts.

        If `features` are given, X may lack the other columns.
        """
        shared = [name for group in self.policy.groups if group.own_report for name in group.names]
        if shared:
            raise InputError(
                f"{', '.join(shared)} share reports, but estimators need one column per variable: "
                "learn from mq.tally(records, policy) with mq.learn instead."
            )
        columns = self._columns(X, self.policy)
        policy = self._reduced_policy(columns, features)
        table = {name: columns[name] for name in policy.schema if name != self.target.name}
        if self.target.name in columns:
            raise InputError(f"The target {self.target.name!r} is y: remove the column from X.")
        table[self.target.name] = arrow(y)
        found = tally(pa.table(table), policy)
        return Records(found.codes, policy, weights, missing=missing)

    def _reduced_policy(self, columns: Mapping[str, Any], features: Sequence[str] | None) -> Policy:
        """Return the policy, reduced to the features and the target if X lacks columns.

        The stratum, and the variables that are disguised together with a feature or the target, stay too.
        """
        if features is None or all(name in columns for name in self.names):
            return self.policy
        wanted = {*features, self.target.name, *([self.policy.stratum_variable] * bool(self.policy.strata))}
        beside = {n for group in self.policy.groups if wanted & set(group.names) for n in group.names}
        return self.policy.select([name for name in self.policy.schema if name in wanted | beside])

    def rows(self, X: Any, names: Sequence[str], *, disguised: bool) -> Rows:
        """Return the labels of rows by name: reports if disguised, else the policy's categories."""
        columns = self._columns(X, self.policy if disguised else None)
        fields = self.policy.fields
        if disguised:
            fields = self.policy.report_fields
        return {
            field.variable.name: labels_of(
                field.variable,
                encode(columns[field.variable.name], field, text=disguised and field.variable.mixed),
            )
            for field in fields
            if field.variable.name in names
        }

    def _columns(self, X: Any, origin: Policy | None) -> Mapping[str, Any]:
        if hasattr(X, "columns"):
            check_origin(X, origin)
            return columns_of(X)
        array = np.asarray(X)
        if array.ndim != 2 or array.shape[1] != len(self.names):
            raise InputError(
                f"An array needs the {len(self.names)} columns {', '.join(self.names)}, in this order. "
                f"Got one of shape {array.shape} instead."
            )
        return {name: arrow(array[:, i]) for i, name in enumerate(self.names)}


def check_origins(X: Any, y: Any, policy: Policy | None, *, accepted: bool) -> Missing | None:
    """Return the missing rows that the metadata of frames and series describe.

    Raise an error if the metadata contradict the policy. Arrays have no metadata.
    """
    marks: dict[str, str] = {}
    for given in (X, y):
        if hasattr(given, "columns"):
            marks |= check_origin(given, policy)
        else:
            marks |= check_said(metadata_of(given), policy)
    return missing_from(marks, accepted=accepted)


def arrow(column: NDArray[Any]) -> pa.Array:
    """Return an array of labels as an Arrow column."""
    try:
        return pa.array(column if column.dtype.kind in "biuf" else column.tolist())
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        raise InputError("A column of X or y mixes types: give a frame, or labels of one type.") from None


def clear_input(
    columns: Mapping[str, NDArray[Any]],
    y: NDArray[Any],
    *,
    bins: int | None,
    target: str | None,
    small: Collection[str],
) -> ClearInput:
    """Learn categories and classes from clear data; `learn_columns` describes `bins` and `small`."""
    labels = np.unique(y)
    own = "target" if target is None else target
    while target is None and own in columns:
        own += "_"
    numeric = labels.dtype.kind in "biuf"
    categories = _number_labels(labels.astype(np.float64)) if numeric else tuple(map(str, labels))
    return ClearInput(Variable(own, categories), labels, learn_columns(columns, bins, small, len(labels)))
