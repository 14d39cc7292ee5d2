"""Test and use models when the records at hand are disguised: the floor above sources and learners.

`accuracy` of a classifier on test records that nobody may see; `disguised_view`, a model seen through the
policy of the rows that it predicts.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from masquerade.channels.policy import Group, Policy
from masquerade.core.axes import Floats, contract
from masquerade.core.covariance import contrast_spread_of
from masquerade.core.errors import InputError, MasqueradeWarning, SchemaError
from masquerade.core.intervals import quantile
from masquerade.core.query import Query
from masquerade.core.schema import Category, Schema, Variable
from masquerade.core.shown import Printed
from masquerade.core.spread import Spread, score_interval
from masquerade.core.tally import RecordTally, Selected, Tally
from masquerade.core.words import printable
from masquerade.learn.bayes import NaiveBayes
from masquerade.learn.prediction_rows import LogScores, labels_of, row_codes, summed_logs
from masquerade.sources.expectation import MOST_TRUTHS
from masquerade.sources.query_plan import marginal_group
from masquerade.sources.records import Records

__all__ = ["Accuracy", "DisguisedView", "accuracy", "disguised_view"]

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
    over = _checked_names(model, source.schema, target)

    def right(codes: NDArray[np.intp]) -> NDArray[np.bool_]:
        rows = {feature.name: codes[:, i] for i, feature in enumerate(model.features)}
        return np.asarray(_predicted(model, rows) == codes[:, -1])

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


def _checked_names(model: Classifier, schema: Schema, target: str | None) -> tuple[str, ...]:
    """Return features and target; refuse a source whose categories are not the model's."""
    own = model.target.name if target is None else target
    names = (*(feature.name for feature in model.features), own)
    if own in names[:-1]:
        raise InputError(f"The target {own!r} cannot be one of the features.")
    for variable, name in zip((*model.features, model.target), names, strict=True):
        if Variable(name, variable.categories) != schema[name]:
            raise InputError(f"The categories of {name!r} are not the same in the model and in the source.")
    return names


def _predicted(model: Classifier, rows: Codes) -> NDArray[np.intp]:
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


@dataclass(frozen=True, slots=True, eq=False)
class _Emission:
    """P(joint report of some features | class), classes × reports."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    table: Floats


@dataclass(frozen=True, slots=True, eq=False)
class DisguisedView(LogScores):
    """A naive Bayes classifier of disguised rows; `features` have the labels of the reports.

    Where a policy has strata, a row's own stratum (which is never disguised) says which channels it
    went through, so that rows must have this column too, even if it is no feature.
    """

    target: Variable
    features: tuple[Variable, ...]
    prior: Floats
    emissions: Mapping[Category | None, tuple[_Emission, ...]]
    stratum: Variable | None = None

    def scores(self, codes: Mapping[str, NDArray[np.intp]]) -> Floats:
        """Return ln P(class, report), rows × classes, from codes of the reports."""
        if self.stratum is None:
            return self._scores(None, codes)
        if self.stratum.name not in codes:
            raise SchemaError(f"There is no column {self.stratum.name!r} in the rows.")
        own = codes[self.stratum.name]
        result = np.empty((len(own), len(self.target)))
        for code, label in enumerate(self.stratum.categories):
            rows = np.flatnonzero(own == code)
            result[rows] = self._scores(label, {name: column[rows] for name, column in codes.items()})
        return result

    def _scores(self, stratum: Category | None, codes: Mapping[str, NDArray[np.intp]]) -> Floats:
        parts = [
            (
                part.table,
                np.asarray(np.ravel_multi_index([codes[name] for name in part.names], part.sizes)),
            )
            for part in self.emissions[stratum]
        ]
        return summed_logs(self.prior, parts)

    def _codes(self, frame: Any) -> dict[str, NDArray[np.intp]]:
        known = {variable.name: variable for variable in self.features}
        if self.stratum is not None:
            known.setdefault(self.stratum.name, self.stratum)
        return row_codes(frame, Schema(known.values()), list(known))


def disguised_view(model: NaiveBayes, policy: Policy) -> DisguisedView:
    """Return the classifier of rows that were disguised by a policy.

    Formula: P(c | x̃) ∝ P(c)·Π_g Σ_x Π_i P(x_i | c)·P_g[x, x̃_g] over the groups g disguised together. If the
    target itself is in a group, its truth is c and its report is summed over.
    Reference: Zhan et al. (2004) §3.4 for one variable a group.
    Cost: one product of small matrices per group, then one look-up per group and row.
    Error: exact for the model's probabilities. A group with other variables, whose truth the report of the
    features depends on, is refused: the model does not say how those are distributed.
    """
    for variable in (*model.features, model.target):
        if policy.schema[variable.name] != variable:
            raise InputError(
                f"The categories of {variable.name!r} are not the same in the model and in the policy."
            )
    by = policy.stratum_variable
    if by == model.target.name:
        raise InputError(f"The policy tells the strata by {by!r}: the target is not hidden from anybody.")
    labels: Sequence[Category | None] = policy.strata or (None,)
    features = {feature.name for feature in model.features}
    for group in policy.groups:
        if group.own_report and features & set(group.names):
            raise InputError(
                f"{', '.join(group.names)} have one report in common, not one each: such rows have no "
                "features to classify by. Classify clear rows, or rows of another policy."
            )
    return DisguisedView(
        model.target,
        tuple(policy.observed[feature.name] for feature in model.features),
        model.prior,
        {
            label: tuple(
                _emission(model, group) for group in policy.groups_of(label) if features & set(group.names)
            )
            for label in labels
        },
        None if by is None else policy.schema[by],
    )


def _emission(model: NaiveBayes, group: Group) -> _Emission:
    """Return P(joint report of a group's features | class)."""
    tables = dict(zip((feature.name for feature in model.features), model.probabilities, strict=True))
    own = tuple(name for name in group.names if name in tables)
    used = marginal_group(group, own)
    if used.names != own:  # the reports of the features may still depend on the class, which is given
        used = marginal_group(group, tuple(n for n in group.names if n in tables or n == model.target.name))
    strangers = [name for name in used.names if name not in tables and name != model.target.name]
    if strangers:
        raise InputError(
            f"{', '.join(group.names)} were disguised together, and what is reported of {', '.join(own)} "
            f"depends on {', '.join(strangers)}: only a model with these as features can classify rows."
        )
    sizes = tuple(size for name, size in zip(used.names, used.report_sizes, strict=True) if name in tables)
    rows = []
    for c in range(len(model.target)):
        certain = np.eye(len(model.target))[c]
        factors = [tables[name][c] if name in tables else certain for name in used.names]
        # the joint distribution of independent variables, flat, the first slowest
        truth = contract(np.ones([1] * len(factors)), [factor[None, :] for factor in factors])
        reports = (truth.ravel() @ used.matrix_channel.matrix).reshape(used.report_sizes)
        summed = reports.sum(axis=tuple(i for i, name in enumerate(used.names) if name not in tables))
        rows.append(summed.ravel())
    return _Emission(own, sizes, np.array(rows))
