"""The accuracy of a classifier on test records that nobody may see."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from masquerade.core.covariance import contrast_spread_of
from masquerade.core.errors import InputError, MasqueradeWarning
from masquerade.core.intervals import quantile
from masquerade.core.query import Query
from masquerade.core.schema import Schema, Variable
from masquerade.core.shown import Printed
from masquerade.core.spread import Spread, score_interval
from masquerade.core.tally import RecordTally, Selected, Tally
from masquerade.core.words import printable
from masquerade.learn.prediction_rows import labels_of, row_codes
from masquerade.sources.expectation import MOST_TRUTHS
from masquerade.sources.records import Records

if TYPE_CHECKING:
    pass

LARGEST_USEFUL = 0.05

Codes = Mapping[str, NDArray[np.intp]]


class Classifier(Protocol):
    """What can be tested: `target`, the `features` it looks at, and `predict`.

    With a method `predict_codes(codes by feature) -> codes of the target`, labels are never formed.
    """

    @property
    def target(self) -> Variable:
        """Return what is predicted."""

    @property
    def features(self) -> Sequence[Variable]:
        """Return what it is predicted from; every disguised one widens the error."""

    def predict(self, frame: Any) -> NDArray[Any]:
        """Return the predicted labels of rows."""


@dataclass(frozen=True, slots=True, repr=False)
class Accuracy(Printed):
    """The share of records that are predicted right: unbiased, so it may lie outside [0, 1]."""

    value: float
    stderr: float
    n: int
    warning: str | None = None
    spread: Spread | None = None
    total: float = 1.0

    def conf_int(self, level: float = 0.95) -> tuple[float, float]:
        """Return a score interval on the reports: see `masquerade.core.spread.score_interval`.

        Wilson's on clear records, Clopper's and Pearson's where few records tell; a normal one where the
        source tells a standard error only.
        """
        z = quantile(level)
        if self.spread is None:
            return self.value - z * self.stderr, self.value + z * self.stderr
        gaps = score_interval(np.zeros(()), self.spread, z)
        return self.value + float(gaps.lower) / self.total, self.value + float(gaps.upper) / self.total

    @printable
    def summary(self) -> str:
        """Return the accuracy as text."""
        text = f"accuracy {self.value:.4f} ± {self.stderr:.4f} (n = {self.n:,})"
        return text if self.warning is None else f"{text}\n{self.warning}"


def accuracy(model: Classifier, source: Tally, target: str | None = None) -> Accuracy:
    """Return the share of the source's true records that a classifier predicts right.

    `source` holds test records, clear or disguised by any policy; `target` names the variable with the true
    class if that is not called what the model's is. Sources that cannot be asked for the mean of a
    function are asked for the whole table of features and target, if it has at most 65,536 cells.

    Formula: the mean of 1{prediction(x) = c} over the truths (x, c) of the records: see
    `masquerade.sources.expectation.expect`. On clear records the plain share, with the binomial error.
    Reference: Zhan, Chang & Matwin (2004) §3.5, for any policy.
    Error: unbiased; the standard error multiplies over the disguised variables that the model reads. Above
    0.05 the figure is useless, and a `MasqueradeWarning` says so.
    """
    over = checked_names(model, source.schema, target)

    def right(codes: NDArray[np.intp]) -> NDArray[np.bool_]:
        rows = {feature.name: codes[:, i] for i, feature in enumerate(model.features)}
        return np.asarray(predicted(model, rows) == codes[:, -1])

    found = _mean_over(source, right, over)
    stderr = found.stderr
    warning = None
    if stderr > LARGEST_USEFUL:
        warning = (
            f"The accuracy is useless: its standard error is {stderr:.2g}, more than {LARGEST_USEFUL}. "
            "More records, less disguise, or a model that reads fewer disguised variables would help."
        )
        warnings.warn(warning, MasqueradeWarning, stacklevel=2)
    if found.spread is not None:  # nothing wrong, or nothing right, among the records seen
        stderr = float(found.spread.standard_error(np.asarray((stderr * found.total) ** 2))) / found.total
    return replace(found, stderr=stderr, warning=warning)


def checked_names(model: Classifier, schema: Schema, target: str | None) -> tuple[str, ...]:
    """Return features and target; refuse a source whose categories are not the model's."""
    own = model.target.name if target is None else target
    names = (*(feature.name for feature in model.features), own)
    if own in names[:-1]:
        raise InputError(f"The target {own!r} cannot be one of the features.")
    for variable, name in zip((*model.features, model.target), names, strict=True):
        if Variable(name, variable.categories) != schema[name]:
            raise InputError(f"The categories of {name!r} are not the same in the model and in the source.")
    return names


def predicted(model: Classifier, rows: Codes) -> NDArray[np.intp]:
    """Return the codes of the predicted classes."""
    quick: Callable[[Codes], NDArray[np.intp]] | None = getattr(model, "predict_codes", None)
    if quick is not None:
        return quick(rows)
    labels = {feature.name: labels_of(feature, rows[feature.name]) for feature in model.features}
    given = {model.target.name: np.asarray(model.predict(labels))}
    return row_codes(given, Schema([model.target]), [model.target.name])[model.target.name]


def _mean_over(source: Tally, f: Callable[[NDArray[np.intp]], NDArray[Any]], over: Sequence[str]) -> Accuracy:
    """Return the mean of f over the true records, its standard error and the number of records."""
    if isinstance(source, Selected):
        return _mean_over(source.source, f, over)
    if isinstance(source, RecordTally):
        (everyone,) = source.answer([Query()])
        if isinstance(source, Records):
            known = source.mean(f, over)
            return Accuracy(known.value, known.stderr, everyone.n, None, known.spread, known.total)
        return Accuracy(*source.expect(f, over), everyone.n)
    shape = source.schema.shape(over)
    if prod(shape) > MOST_TRUTHS:
        raise InputError(
            f"The table over {', '.join(over)} has {prod(shape):,} cells (at most {MOST_TRUTHS:,}), and the "
            "source cannot be asked for the mean of a function: test on records, or on a smaller model."
        )
    (table,) = source.answer([Query(by=over)])
    if not table.total > 0:
        raise InputError("The mean over no records is not defined.")
    codes = np.stack([axis.ravel() for axis in np.indices(shape)], axis=1)
    values = np.asarray(f(codes), dtype=float).reshape(shape)
    mean = float(np.sum(values * table.values)) / table.total
    variance = table.covariance.quadratic(values - mean)
    spread = contrast_spread_of(table.covariance, values - mean)
    return Accuracy(
        mean, float(np.sqrt(max(variance, 0.0))) / table.total, table.n, None, spread, table.total
    )
