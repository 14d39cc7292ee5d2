"""Rows to predict for: labels in any frame or mapping of arrays to codes and back, and scores to classes.

Nothing but numpy is needed: a column that can list its own distinct values (pandas, Polars, PyArrow) is asked
for them by the methods it brings along, so that only the few distinct labels are compared one by one.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.core.bins import bin_codes, bin_ends
from masquerade.core.errors import (
    InputError,
    MasqueradeWarning,
    PolicyMismatch,
    SchemaError,
    UnknownValue,
    did_you_mean,
)
from masquerade.core.schema import Schema, Variable, category, codes_by_label
from masquerade.core.util.frame_marks import policy_mark

Codes = NDArray[np.intp]

UNKNOWN, MISSING = -1, -2
WIDEST_TABLE = 2**16
LARGEST_EXACT_FLOAT = 2**53
TIE = 1e-9
PORTION = 2**13


def row_codes(
    frame: Any, schema: Schema, names: Iterable[str], *, disguised: bool = False
) -> dict[str, Codes]:
    """Return the category codes of the named columns, which must be equally long.

    `frame` is anything with `frame[name]` columns of labels: pandas, Polars, PyArrow, a mapping of arrays or
    lists. Labels match by type and value (1, "1" and true differ; a whole float is a whole number), and
    numbers fall into bins such as "[0, 10)". The first unknown or missing label is an `UnknownValue` that
    names column and row (from 1), never the value. A frame that says that it was disguised is refused, unless
    it is `disguised` rows that are meant.
    Cost: a million texts in 30 ms (frames) to 250 ms (numpy text arrays), whole numbers in 4 ms.

    >>> row_codes({"smoker": ["yes", "no", "no"]}, Schema({"smoker": ["yes", "no"]}), ["smoker"])["smoker"]
    array([0, 1, 1])
    """
    if not disguised and policy_mark(frame) is not None:
        raise PolicyMismatch(
            "The rows were disguised: what they hold are reports, not what is true. A model predicts them as "
            "mq.evaluate.disguised_view(model, policy)."
        )
    coded: dict[str, Codes] = {}
    for name in names:
        column = _column_of(frame, name)
        codes = _binned(column, _column_codes(column, schema[name]), schema[name])
        wrong = codes < 0
        if wrong.any():
            row = int(np.argmax(wrong))
            if codes[row] == MISSING:
                raise UnknownValue(name, row + 1, "is missing")
            raise UnknownValue(name, row + 1)
        coded[name] = codes
    if len({len(codes) for codes in coded.values()}) > 1:
        lengths = ", ".join(f"{name}: {len(codes):,}" for name, codes in coded.items())
        raise InputError(f"The columns must be equally long. Got {lengths}.")
    return coded


def labels_of(variable: Variable, codes: NDArray[np.integer[Any]]) -> NDArray[Any]:
    """Return the labels of codes as an array; labels of several types stay Python objects."""
    kinds = {type(label) for label in variable.categories}
    labels = np.array(variable.categories, dtype=None if len(kinds) == 1 else object)
    return np.take(labels, codes)


def _column_of(frame: Any, name: str) -> Any:
    """Return a column; one that is not there is a `SchemaError`, what has no columns an `InputError`."""
    listed = getattr(frame, "column_names", None)  # PyArrow, whose .columns are the columns themselves
    if listed is None and not hasattr(frame, "collect"):  # a lazy frame has no columns yet
        listed = getattr(frame, "columns", None)
    if listed is None and isinstance(frame, Mapping):
        listed = frame.keys()
    if listed is None or not hasattr(frame, "__getitem__"):
        raise InputError(
            f"Rows must be a pandas, Polars or PyArrow frame, or a mapping from names to labels. "
            f"Got a {type(frame).__name__} instead."
        )
    if name not in list(listed):
        raise SchemaError(f"There is no column {name!r} in the rows.{did_you_mean(name, listed)}")
    return frame[name]


def _column_codes(column: Any, variable: Variable) -> Codes:
    """Return the code of every label; UNKNOWN or MISSING where there is none."""
    if hasattr(column, "to_arrow"):  # Polars
        column = column.to_arrow()
    if hasattr(column, "dictionary_encode"):  # PyArrow
        return _arrow_codes(column, variable)
    if hasattr(column, "factorize") and not isinstance(column.dtype, np.dtype):  # pandas' own types
        places, distinct = column.factorize()
        return _spread(np.asarray(places, dtype=np.intp), list(distinct), variable)
    if isinstance(column, (list, tuple)):
        return _list_codes(column, variable)
    return _array_codes(np.asarray(column), variable)


def _binned(column: Any, codes: Codes, variable: Variable) -> Codes:
    """Return codes with those of numbers that lie in bins of the variable, where they were unknown."""
    unknown = codes == UNKNOWN
    if not unknown.any() or all(bin_ends(label) is None for label in variable.categories):
        return codes
    if hasattr(column, "factorize") and not isinstance(column.dtype, np.dtype):  # pandas' own types
        numeric = column.dtype.name.startswith(("Int", "UInt", "Float"))
        values = column.to_numpy(np.float64, na_value=np.nan) if numeric else np.zeros(0, dtype=object)
    else:
        values = np.asarray(column.to_numpy() if hasattr(column, "to_numpy") else column)
    if values.dtype.kind not in "iuf":
        return codes
    return np.where(unknown, bin_codes(values.astype(np.float64), variable), codes)


def _array_codes(values: NDArray[Any], variable: Variable) -> Codes:
    if values.ndim != 1:
        raise InputError(f"Column {variable.name!r} must be one column of labels, not {values.ndim}-way.")
    if values.dtype.kind in "iu" and values.dtype != np.uint64:  # a cast would wrap the largest ones
        return _whole_number_codes(values.astype(np.int64, copy=False), variable)
    if values.dtype.kind == "f":
        return _number_codes(values.astype(np.float64, copy=False), variable)
    if values.dtype.kind == "b":
        known = codes_by_label(variable)
        both = [known.get((bool, False), UNKNOWN), known.get((bool, True), UNKNOWN)]
        return np.array(both, dtype=np.intp)[values.view(np.uint8)]
    return _list_codes(values.tolist(), variable)


def _arrow_codes(column: Any, variable: Variable) -> Codes:
    """Return the codes of an Arrow column, chunk by chunk through its distinct values."""
    parts = []
    for chunk in column.chunks if hasattr(column, "chunks") else [column]:
        try:
            encoded = chunk.dictionary_encode()
        except NotImplementedError:  # a type that Arrow cannot hash
            parts.append(_list_codes(chunk.to_pylist(), variable))
            continue
        places = encoded.indices.cast("int64").fill_null(-1).to_numpy()
        parts.append(_spread(places, encoded.dictionary.to_pylist(), variable))
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.intp)


def _spread(places: NDArray[np.integer[Any]], distinct: Sequence[Any], variable: Variable) -> Codes:
    """Return the codes of rows that hold distinct[place]; place -1 is a missing value.

    A listed label that no row has may be unknown: frames carry such categories around.
    """
    table = np.append(_any_codes(distinct, variable), np.intp(MISSING))
    codes: Codes = table[places]
    return codes


def _list_codes(values: Sequence[Any], variable: Variable) -> Codes:
    """Return the codes of Python objects: one look-up each if they are all of one plain type."""
    kinds = set(map(type, values))
    if len(kinds) != 1 or not kinds <= {str, int, bool}:
        return _any_codes(values, variable)
    known = _labels_by_type(variable, kinds.pop())
    return np.fromiter(map(known.get, values, repeat(UNKNOWN)), dtype=np.intp, count=len(values))


def _any_codes(values: Sequence[Any], variable: Variable) -> Codes:
    return np.array([_code_of(value, variable) for value in values], dtype=np.intp)


def _code_of(value: Any, variable: Variable) -> int:
    if value is None or type(value).__name__ in {"NAType", "NaTType"}:
        return MISSING
    if isinstance(value, (float, np.floating)) and np.isnan(value):
        return MISSING
    try:
        plain = category(value)
    except SchemaError:
        return UNKNOWN
    return codes_by_label(variable).get((type(plain), plain), UNKNOWN)


def _whole_number_codes(values: NDArray[np.int64], variable: Variable) -> Codes:
    """Return the codes of whole numbers through a table if the labels lie close together."""
    bounds = np.iinfo(np.int64)
    known = {v: code for v, code in _labels_by_type(variable, int).items() if bounds.min <= v <= bounds.max}
    if not known or max(known) - min(known) >= WIDEST_TABLE:
        return _sorted_codes(values, known)
    low, high = min(known), max(known)
    table = np.full(high - low + 2, UNKNOWN, dtype=np.intp)
    table[np.array(list(known)) - low] = list(known.values())
    outside = (values < low) | (values > high)
    codes: Codes = table[np.where(outside, high + 1 - low, values - low)]
    return codes


def _number_codes(values: NDArray[np.float64], variable: Variable) -> Codes:
    """Return the codes of whole numbers kept as floats; NaN is a missing value."""
    known = {v: code for v, code in _labels_by_type(variable, int).items() if abs(v) <= LARGEST_EXACT_FLOAT}
    codes = _sorted_codes(values, known)
    codes[np.isnan(values)] = MISSING
    return codes


def _sorted_codes(values: NDArray[Any], known: Mapping[Any, int]) -> Codes:
    """Return the codes of numbers by search among the sorted labels."""
    if not known:
        return np.full(len(values), UNKNOWN, dtype=np.intp)
    labels = np.array(sorted(known), dtype=values.dtype)
    codes = np.array([known[label] for label in sorted(known)], dtype=np.intp)
    places = np.minimum(np.searchsorted(labels, values), len(labels) - 1)
    return np.where(labels[places] == values, codes[places], UNKNOWN)


def _labels_by_type(variable: Variable, kind: type) -> dict[Any, int]:
    """Return the codes of those labels that have exactly this type."""
    return {label: code for (own, label), code in codes_by_label(variable).items() if own is kind}


def chosen_features(schema: Schema, target: str, features: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names that a target is predicted from, all others if none are given; refuse wrong ones."""
    schema[target]
    if isinstance(features, str):
        raise InputError(f"'features' must be a list of names, not the one text {features!r}.")
    names = tuple(name for name in schema if name != target) if features is None else tuple(features)
    for name in names:
        schema[name]
    if target in names:
        raise InputError(f"The target {target!r} cannot be one of the features.")
    return names


def told_apart(schema: Schema, target: str, features: Sequence[str] | None) -> tuple[str, ...]:
    """Return features as `chosen_features` does; refuse a target of one class, no feature, or one twice."""
    names = chosen_features(schema, target, features)
    if len(schema[target]) < 2:
        raise InputError(f"The target {target!r} has one class only: there is nothing to tell apart.")
    if not names:
        raise InputError(f"There must be at least one feature to tell the classes of {target!r} apart.")
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"The feature {name!r} is named twice.")
    return names


class CodedClassifier(ABC):
    """What classifiers share that look at all of their features: rows become codes, codes become classes."""

    __slots__ = ()
    target: Variable
    features: tuple[Variable, ...]

    @property
    def schema(self) -> Schema:
        """Return the target and the features."""
        return Schema((self.target, *self.features))

    @abstractmethod
    def scores(self, codes: Mapping[str, NDArray[Any]]) -> Floats:
        """Return what speaks for every class, rows × classes, from codes of the features."""

    @abstractmethod
    def predict_codes(self, codes: Mapping[str, NDArray[Any]]) -> Codes:
        """Return the codes of the classes from codes of the features; ties go to the first."""

    def predict(self, frame: Any) -> NDArray[Any]:
        """Return the most likely class of every row: see `row_codes` for what `frame` may be."""
        return labels_of(self.target, self.predict_codes(self._codes(frame)))

    def _codes(self, frame: Any) -> dict[str, Codes]:
        return row_codes(frame, self.schema, [feature.name for feature in self.features])


class LogScores(CodedClassifier):
    """What classifiers share that say ln P(class, row): the likeliest classes, and how likely they are."""

    __slots__ = ()
    prior: Floats

    def predict_proba(self, frame: Any) -> Floats:
        """Return P(class | row): one row each, classes in the order of `target`."""
        return np.exp(self.predict_log_proba(frame))

    def predict_log_proba(self, frame: Any) -> Floats:
        """Return the logarithms of `predict_proba`.

        Formula: ln P(class, row) − ln of the sum over classes.
        A row that no class can give (alpha = 0) keeps the class probabilities, with a warning.
        """
        return normalised(self.scores(self._codes(frame)), self.prior)

    def predict_codes(self, codes: Mapping[str, NDArray[Any]]) -> Codes:
        """Return the codes of the most likely classes from codes of the features; ties go to the first."""
        return most_likely(possible(self.scores(codes), self.prior))


def summed_logs(prior: Floats, parts: Sequence[tuple[Floats, NDArray[np.integer[Any]]]]) -> Floats:
    """Return ln prior + Σ ln table[:, codes], rows × classes; impossible ones are −inf."""
    rows = len(parts[0][1])
    with np.errstate(divide="ignore"):
        logs = [np.ascontiguousarray(np.log(table).T) for table, _ in parts]
        total = np.tile(np.log(prior), (rows, 1))
    for start in range(0, rows, PORTION):  # a portion stays in the cache while all features are added
        portion = total[start : start + PORTION]
        for own, (_, codes) in zip(logs, parts, strict=True):
            portion += np.take(own, codes[start : start + PORTION], axis=0)
    return total


def possible(scores: Floats, prior: Floats) -> Floats:
    """Return the scores, with those of the classes alone for rows that no class can give (warned about)."""
    impossible = np.asarray(scores.max(axis=1) == -np.inf)
    if not impossible.any():
        return scores
    warnings.warn(
        f"{int(impossible.sum()):,} rows have probability 0 under every class: they get the class "
        "probabilities. Use alpha > 0.",
        MasqueradeWarning,
        stacklevel=4,
    )
    with np.errstate(divide="ignore"):
        alone: Floats = np.where(impossible[:, None], np.log(prior), scores)
    return alone


def normalised(scores: Floats, prior: Floats) -> Floats:
    """Return log probabilities from log scores, row by row."""
    scores = possible(scores, prior)
    highest = scores.max(axis=1, keepdims=True)
    whole = np.log(np.exp(scores - highest).sum(axis=1, keepdims=True))
    return np.asarray(scores - highest - whole)


def most_likely(scores: Floats) -> NDArray[np.intp]:
    """Return the first of the best classes, equal within rounding."""
    best = scores.max(axis=1, keepdims=True)
    return np.asarray(np.argmax(np.asarray(scores >= best - TIE), axis=1))
