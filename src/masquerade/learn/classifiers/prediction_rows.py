"""Rows to predict: convert labels to codes and back, and scores to classes.

Only numpy is needed. A column that can list its distinct values (pandas, Polars, PyArrow) does so by its own
methods, so that only the few distinct labels are compared one by one.
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
from masquerade.core.schema import Category, Schema, Variable, category, codes_by_label
from masquerade.core.util.formatting import category_text
from masquerade.core.util.frame_marks import policy_mark

Codes = NDArray[np.intp]

UNKNOWN, MISSING = -1, -2
SUMMED_OUT = -1  # code of a feature whose value is not known: the row is predicted without it
WIDEST_TABLE = 2**16
LARGEST_EXACT_FLOAT = 2**53
TIE = 1e-9
PORTION = 2**13


def row_codes(
    frame: Any,
    schema: Schema,
    names: Iterable[str],
    *,
    disguised: bool = False,
    absent: Mapping[str, Sequence[Category]] | None = None,
) -> dict[str, Codes]:
    """Return the category codes of the named columns, which must be equally long.

    `frame` is anything with `frame[name]` columns of labels: pandas, Polars, PyArrow, a mapping of arrays or
    lists. Labels match by type and value (1, "1" and true differ; a whole float is a whole number), and
    numbers fall into bins such as "[0, 10)". The first unknown or missing label raises `UnknownValue` with
    its column and row (from 1), never its value. Variables in `absent` may be missing, and the
    labels listed there count as missing: their code is −1. A frame marked as disguised is refused unless
    `disguised` is True.
    Cost: a million texts in 30 ms (frames) to 250 ms (numpy text arrays), whole numbers in 4 ms.

    >>> row_codes({"smoker": ["yes", "no", "no"]}, Schema({"smoker": ["yes", "no"]}), ["smoker"])["smoker"]
    array([0, 1, 1])
    """
    if not disguised and policy_mark(frame) is not None:
        raise PolicyMismatch(
            "The rows are disguised: they contain reports, not true values. Use "
            "mq.evaluate.disguised_view(model, policy) to predict them."
        )
    codes_by_name: dict[str, Codes] = {}
    for name in names:
        column = _column_of(frame, name)
        codes = _bin_numbers(column, _column_codes(column, schema[name]), schema[name])
        wrong = codes < 0
        if disguised and wrong.any() and schema[name].mixed:  # labels of several types are released as text
            texts = Variable(name, tuple(map(category_text, schema[name].categories)))
            codes = np.where(wrong, _column_codes(column, texts), codes)
            wrong = codes < 0
        if absent is not None and name in absent and wrong.any():
            labels = Variable(name, tuple(absent[name]))
            is_missing = (codes == MISSING) | (_column_codes(column, labels) >= 0)
            codes, wrong = np.where(is_missing & wrong, SUMMED_OUT, codes), wrong & ~is_missing
        if wrong.any():
            row = int(np.argmax(wrong))
            if codes[row] == MISSING:
                raise UnknownValue(name, row + 1, "is missing")
            raise UnknownValue(name, row + 1)
        codes_by_name[name] = codes
    if len({len(codes) for codes in codes_by_name.values()}) > 1:
        lengths = ", ".join(f"{name}: {len(codes):,}" for name, codes in codes_by_name.items())
        raise InputError(f"The columns must be equally long. Got {lengths}.")
    return codes_by_name


def labels_of(variable: Variable, codes: NDArray[np.integer[Any]]) -> NDArray[Any]:
    """Return the labels of codes as an array; labels of several types stay Python objects."""
    kinds = {type(label) for label in variable.categories}
    labels = np.array(variable.categories, dtype=None if len(kinds) == 1 else object)
    return np.take(labels, codes)


def _column_of(frame: Any, name: str) -> Any:
    """Return a column; raise SchemaError if it is missing, InputError if the frame has no columns."""
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
    """Return the code of every label, or UNKNOWN or MISSING."""
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


def _bin_numbers(column: Any, codes: Codes, variable: Variable) -> Codes:
    """Replace unknown codes by the codes of the bins that contain their numbers."""
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
        raise InputError(f"Column {variable.name!r} must be one-dimensional, not {values.ndim}-dimensional.")
    if values.dtype.kind in "iu" and values.dtype != np.uint64:  # a cast would wrap the largest numbers
        return _whole_number_codes(values.astype(np.int64, copy=False), variable)
    if values.dtype.kind == "f":
        return _number_codes(values.astype(np.float64, copy=False), variable)
    if values.dtype.kind == "b":
        known = codes_by_label(variable)
        both = [known.get((bool, False), UNKNOWN), known.get((bool, True), UNKNOWN)]
        return np.array(both, dtype=np.intp)[values.view(np.uint8)]
    return _list_codes(values.tolist(), variable)


def _arrow_codes(column: Any, variable: Variable) -> Codes:
    """Return the codes of an Arrow column, chunk by chunk, by its distinct values."""
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
    """Return the codes of rows that contain distinct[place]; place -1 is a missing value.

    A listed label that no row has may be unknown: frames keep unused categories.
    """
    table = np.append(_any_codes(distinct, variable), np.intp(MISSING))
    codes: Codes = table[places]
    return codes


def _list_codes(values: Sequence[Any], variable: Variable) -> Codes:
    """Return the codes of Python objects, by one look-up per object if all have one plain type."""
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
    """Return the codes of whole numbers, by a table if the labels are close together."""
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
    """Return the codes of whole numbers stored as floats; NaN is a missing value."""
    known = {v: code for v, code in _labels_by_type(variable, int).items() if abs(v) <= LARGEST_EXACT_FLOAT}
    codes = _sorted_codes(values, known)
    codes[np.isnan(values)] = MISSING
    return codes


def _sorted_codes(values: NDArray[Any], known: Mapping[Any, int]) -> Codes:
    """Return the codes of numbers by binary search among the sorted labels."""
    if not known:
        return np.full(len(values), UNKNOWN, dtype=np.intp)
    labels = np.array(sorted(known), dtype=values.dtype)
    codes = np.array([known[label] for label in sorted(known)], dtype=np.intp)
    places = np.minimum(np.searchsorted(labels, values), len(labels) - 1)
    return np.where(labels[places] == values, codes[places], UNKNOWN)


def _labels_by_type(variable: Variable, kind: type) -> dict[Any, int]:
    """Return the codes of the labels of exactly this type."""
    return {label: code for (own, label), code in codes_by_label(variable).items() if own is kind}


def chosen_features(schema: Schema, target: str, features: Sequence[str] | None) -> tuple[str, ...]:
    """Return the features of a target, all other variables if None; raise InputError for invalid names."""
    schema[target]
    if isinstance(features, str):
        raise InputError(f"'features' must be a list of names, not the one text {features!r}.")
    names = tuple(name for name in schema if name != target) if features is None else tuple(features)
    for name in names:
        schema[name]
    if target in names:
        raise InputError(f"The target {target!r} cannot be one of the features.")
    return names


def require_features(schema: Schema, target: str, features: Sequence[str] | None) -> tuple[str, ...]:
    """Return the features as `chosen_features` does, at least one.

    Raise InputError if the target has one class, or if a feature is missing or listed twice.
    """
    names = chosen_features(schema, target, features)
    if len(schema[target]) < 2:
        raise InputError(f"The target {target!r} has only one class: there is nothing to predict.")
    if not names:
        raise InputError(f"There must be at least one feature to predict {target!r} from.")
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"The feature {name!r} is named twice.")
    return names


class CodedClassifier(ABC):
    """Base of classifiers that use all of their features: converts rows to codes and codes to classes."""

    __slots__ = ()
    target: Variable
    features: tuple[Variable, ...]

    @property
    def schema(self) -> Schema:
        """Return the target and the features."""
        return Schema((self.target, *self.features))

    @abstractmethod
    def scores(self, codes: Mapping[str, NDArray[Any]]) -> Floats:
        """Return the score of every class, rows × classes, from codes of the features."""

    @abstractmethod
    def predict_codes(self, codes: Mapping[str, NDArray[Any]]) -> Codes:
        """Return the codes of the classes from codes of the features; ties go to the first."""

    def predict(self, frame: Any) -> NDArray[Any]:
        """Return the most likely class of every row; `row_codes` describes `frame`."""
        return labels_of(self.target, self.predict_codes(self._codes(frame)))

    def _codes(self, frame: Any) -> dict[str, Codes]:
        missing = getattr(self, "missing", None)
        absent = None if missing is None else missing.labels()
        return row_codes(frame, self.schema, [feature.name for feature in self.features], absent=absent)


class LogScores(CodedClassifier):
    """Base of classifiers with scores ln P(class, row): predicts classes and their probabilities."""

    __slots__ = ()
    prior: Floats

    def predict_proba(self, frame: Any) -> Floats:
        """Return P(class | row): one row per record, classes in the order of `target`."""
        return np.exp(self.predict_log_proba(frame))

    def predict_log_proba(self, frame: Any) -> Floats:
        """Return the logarithms of `predict_proba`.

        Formula: ln P(class, row) − ln of the sum over classes.
        A row that is impossible in every class (alpha = 0) gets the class probabilities, with a warning.
        """
        return normalise_scores(self.scores(self._codes(frame)), self.prior)

    def predict_codes(self, codes: Mapping[str, NDArray[Any]]) -> Codes:
        """Return the codes of the most likely classes from codes of the features; ties go to the first."""
        return most_likely(replace_impossible(self.scores(codes), self.prior))


def sum_logs(prior: Floats, parts: Sequence[tuple[Floats, NDArray[np.integer[Any]]]]) -> Floats:
    """Return ln prior + Σ ln table[:, codes], rows × classes; impossible classes are −inf.

    A code of −1 adds nothing: its feature is not known.
    """
    rows = len(parts[0][1])
    with np.errstate(divide="ignore"):
        logs = [np.vstack([np.log(table).T, np.zeros(len(table))]) for table, _ in parts]
        total = np.tile(np.log(prior), (rows, 1))
    for start in range(0, rows, PORTION):  # a portion stays in the CPU cache while all features are added
        portion = total[start : start + PORTION]
        for own, (_, codes) in zip(logs, parts, strict=True):
            portion += np.take(own, codes[start : start + PORTION], axis=0)
    return total


def replace_impossible(scores: Floats, prior: Floats) -> Floats:
    """Return the scores, replaced by the class probabilities for rows impossible in every class.

    A warning counts these rows.
    """
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
        replaced: Floats = np.where(impossible[:, None], np.log(prior), scores)
    return replaced


def normalise_scores(scores: Floats, prior: Floats) -> Floats:
    """Return log probabilities from log scores, row by row."""
    scores = replace_impossible(scores, prior)
    highest = scores.max(axis=1, keepdims=True)
    whole = np.log(np.exp(scores - highest).sum(axis=1, keepdims=True))
    return np.asarray(scores - highest - whole)


def most_likely(scores: Floats) -> NDArray[np.intp]:
    """Return the best class of every row; ties within rounding go to the first."""
    best = scores.max(axis=1, keepdims=True)
    return np.asarray(np.argmax(np.asarray(scores >= best - TIE), axis=1))
