"""What an estimator reads: clear arrays with learnt categories, or disguised records with a policy's."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from masquerade.channels.policy import Policy, check_policy
from masquerade.core.axes import Floats
from masquerade.core.errors import InputError
from masquerade.core.schema import Field, Schema, Variable
from masquerade.frames.label_codes import encode
from masquerade.frames.native import columns_of
from masquerade.learn.prediction_rows import labels_of
from masquerade.sklearn.learnt import Column, learnt_columns, number_labels
from masquerade.sources.records import Records
from masquerade.sources.tally import check_origin, missing_from, said_by, tally, warn_missing

AnyPolicy = Policy | Mapping[str, Any] | str | Path
Rows = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Clear:
    """Clear rows: an array, its columns' learnt categories, and the classes in the target's order."""

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

    def records(self, X: NDArray[Any], y: NDArray[Any]) -> Records:
        """Return rows and their classes as a source of counts."""
        codes = {column.variable.name: column.codes(X[:, i]) for i, column in enumerate(self.columns)}
        codes[self.target.name] = np.searchsorted(self.labels, y)
        schema = self.schema
        return Records(
            {
                name: column.astype(np.min_scalar_type(len(schema[name]) - 1))
                for name, column in codes.items()
            },
            Policy.clear(schema),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Disguised:
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

    def records(self, X: Any, y: NDArray[Any], weights: Floats | None = None) -> Records:
        """Return disguised rows and their disguised classes as a source of counts."""
        columns = self._columns(X, self.policy)
        warn_missing(missing_from(said_by(X), accepted=True) if hasattr(X, "columns") else None)
        table = {name: columns[name] for name in self.names}
        if self.target.name in columns:
            raise InputError(f"The target {self.target.name!r} is y: leave the column out of X.")
        table[self.target.name] = arrow(y)
        found = tally(pa.table(table), self.policy)
        return found if weights is None else Records(found.codes, self.policy, weights)

    def rows(self, X: Any, names: Sequence[str], *, disguised: bool) -> Rows:
        """Return the labels of rows by name: reports if they are disguised, else the policy's categories."""
        columns = self._columns(X, self.policy if disguised else None)
        fields = self.policy.fields
        if disguised:
            fields = tuple(Field(variable) for variable in self.policy.observed.variables)
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


def arrow(column: NDArray[Any]) -> pa.Array:
    """Return an array of labels as an Arrow column."""
    try:
        return pa.array(column if column.dtype.kind in "biuf" else column.tolist())
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        raise InputError("A column of X or y mixes types: give a frame, or labels of one type.") from None


def clear_reading(
    columns: Mapping[str, NDArray[Any]],
    y: NDArray[Any],
    *,
    bins: int | None,
    target: str | None,
    small: Collection[str],
) -> Clear:
    """Learn categories and classes from clear data; see `learnt_columns` for `bins` and `small`."""
    labels = np.unique(y)
    own = "target" if target is None else target
    while target is None and own in columns:
        own += "_"
    numeric = labels.dtype.kind in "biuf"
    categories = number_labels(labels.astype(np.float64)) if numeric else tuple(map(str, labels))
    return Clear(Variable(own, categories), labels, learnt_columns(columns, bins, small, len(labels)))


def disguised_reading(policy: AnyPolicy, target: str | None) -> Disguised:
    """Return how records of a policy are read; the target is its last variable unless named."""
    used = policy_of(policy)
    name = used.schema.names[-1] if target is None else target
    return Disguised(used, used.schema[name])


def policy_of(given: AnyPolicy) -> Policy:
    """Return a policy given as such, as a path or as plain values."""
    if isinstance(given, (str, Path)):
        return Policy.load(given)
    if isinstance(given, Mapping):
        return Policy.from_dict(given)
    check_policy(given)
    return given
