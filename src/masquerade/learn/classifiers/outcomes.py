"""Measures of a classifier from the numbers of records by prediction and true class."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.core.distributions import two_sided_quantile
from masquerade.core.errors import InputError
from masquerade.core.intervals import RatioErrors, keep_inside
from masquerade.core.linear_covariance import contrast_spread_of, ratio_spread_of
from masquerade.core.report_moments import score_interval, share_interval
from masquerade.core.schema import Category, Schema, Variable
from masquerade.core.table import CountTable
from masquerade.core.util.formatting import category_text
from masquerade.learn.classifiers.performance import (
    Calibration,
    Confusion,
    Figure,
    Measure,
    Performance,
    ThresholdCurve,
)
from masquerade.learn.classifiers.prediction_rows import labels_of, row_codes

Codes = Mapping[str, NDArray[np.intp]]

MOST_LEVELS = 256  # distinct scores of an AUC
DIGITS = 12  # digits to which scores are compared
LEAST = 1e-9  # smallest share of the records used as a divisor


class Classifier(Protocol):
    """A model that can be evaluated: `target`, the `features` it reads, and `predict`.

    If it has a method `predict_codes(codes by feature) -> codes of the target`, labels are never formed.
    """

    @property
    def target(self) -> Variable:
        """Return the predicted variable."""

    @property
    def features(self) -> Sequence[Variable]:
        """Return the variables that the model reads; every disguised one widens the error."""

    def predict(self, frame: Any) -> NDArray[Any]:
        """Return the predicted labels of rows."""


class ScoreLevels(NamedTuple):
    """Ordered levels of scores: the mean score of each, and the lower bounds of all but the first."""

    scores: Floats
    ends: Floats

    @classmethod
    def of(cls, scores: Floats, most: int, cuts: Sequence[float] = ()) -> ScoreLevels:
        """Return one level per distinct score; with more than `most`, levels between quantiles and `cuts`."""
        rounded = np.round(scores, DIGITS)
        points = np.unique(rounded)
        if len(points) > most:
            points = np.unique([*np.quantile(rounded, np.linspace(0, 1, most)), *cuts])
        place = np.searchsorted(points[1:], rounded, side="right")
        used, place = np.unique(place, return_inverse=True)
        means = np.bincount(place, rounded) / np.bincount(place)
        return cls(means, points[used[1:]])

    def place(self, scores: Floats) -> NDArray[np.intp]:
        """Return the level of each score."""
        return np.searchsorted(self.ends, np.round(scores, DIGITS), side="right")


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """Numbers of records by group of predictions (rows) and true class (columns).

    Attributes
    ----------
    counts : ndarray
        Estimated numbers.
    n : int
        Number of test records.
    table : CountTable or None
        Table that the counts are sums of.
    groups : ndarray or None
        Group of each cell of the table without its class; None if the table is `counts` itself.
    measured : callable or None
        Standard error of a weighted sum of the counts, if there is no table.
    """

    counts: Floats
    n: int
    table: CountTable | None = None
    groups: NDArray[np.intp] | None = None
    measured: Callable[[Floats], float] | None = None

    def error(self, slopes: Floats) -> float:
        """Return the standard error of a measure from its slopes in the counts."""
        return float(np.sqrt(max(self.covariance([slopes])[0, 0], 0.0)))

    def covariance(self, weights: Sequence[Floats]) -> Floats:
        """Return the covariance matrix of weighted sums of the counts."""
        if self.table is not None:
            stack = np.stack([self._cells(one) for one in weights])
            return self.table.covariance.between(stack, stack)
        if self.measured is None:
            raise InputError("The counts have neither a table nor errors.")
        variance = {}
        for i, first in enumerate(weights):
            for j, second in enumerate(weights[: i + 1]):
                added = self.measured(first + second) ** 2 - self.measured(first - second) ** 2
                variance[i, j] = variance[j, i] = added / 4
        return np.array([[variance[i, j] for j in range(len(weights))] for i in range(len(weights))])

    def sum_figure(self, value: float, slopes: Floats, level: float) -> Figure:
        """Return a measure with its interval from its slopes in the counts, by `score_interval`."""
        z, stderr = two_sided_quantile(level), self.error(slopes)
        spread = None
        if self.table is not None:
            spread = contrast_spread_of(self.table.covariance, self._cells(slopes))
        if spread is None:
            return Figure(value, stderr, value - z * stderr, value + z * stderr)
        gaps = score_interval(np.zeros(()), spread, z)
        stderr = float(spread.standard_error(np.asarray(stderr**2)))
        return Figure(value, stderr, value + float(gaps.lower), value + float(gaps.upper))

    def mean_figure(self, weights: Floats, level: float) -> Figure:
        """Return the mean of a weight over all records, with its interval."""
        total = float(self.counts.sum())
        value = float(np.sum(weights * self.counts)) / total
        return self.sum_figure(value, (weights - value) / total, level)

    def ratio_figure(
        self, part: Floats, denominator: Floats, level: float, value: float | None = None
    ) -> Figure:
        """Return the ratio of two weighted sums of the counts, with an interval in [0, 1].

        `value` is the ratio; it is needed if `part` has the slopes of a numerator that is not a weighted sum.
        Formula: see `masquerade.core.report_moments.share_interval`.
        """
        total = float(np.sum(denominator * self.counts))
        if not total > LEAST * max(self.n, 1):
            return Figure(math.nan, math.inf, 0.0, 1.0)
        share = float(np.sum(part * self.counts)) / total if value is None else value
        contrast = part - share * denominator
        covariance = self.covariance([contrast, denominator])
        variance = max(float(covariance[0, 0]), 0.0)
        whole_variance = max(float(covariance[1, 1]), 0.0)
        with_whole = float(covariance[0, 1]) + share * whole_variance
        stderr = math.sqrt(variance) / total
        spread = None
        if self.table is not None:
            spread = ratio_spread_of(self.table.covariance, self._cells(contrast), self._cells(denominator))
        shares = np.array([share])
        errors = RatioErrors(np.array([stderr]), np.array([with_whole]), np.asarray(whole_variance))
        limits = share_interval(
            shares, errors, np.asarray(total), two_sided_quantile(level), n=self.n, spread=spread
        )
        inside = keep_inside(shares, limits.lower, limits.upper)
        return Figure(share, stderr, float(inside.lower[0]), float(inside.upper[0]))

    def _cells(self, weights: Floats) -> Floats:
        """Return the weights of the cells of the table, given the weights of the counts."""
        if self.table is None or self.groups is None:
            return weights
        return weights[self.groups].reshape(self.table.values.shape)


Counting = Callable[[Callable[[Codes], NDArray[np.intp]], int], Outcomes]  # counts groups by true class


def check_categories(model: Classifier, schema: Schema, target: str | None) -> tuple[str, ...]:
    """Return the names of features and target; raise InputError if a source's categories differ."""
    class_name = model.target.name if target is None else target
    names = (*(feature.name for feature in model.features), class_name)
    if class_name in names[:-1]:
        raise InputError(f"The target {class_name!r} cannot be one of the features.")
    for variable, name in zip((*model.features, model.target), names, strict=True):
        if Variable(name, variable.categories) != schema[name]:
            raise InputError(f"The categories of {name!r} are not the same in the model and in the source.")
    return names


def predict_codes(model: Classifier, rows: Codes) -> NDArray[np.intp]:
    """Return the codes of the predicted classes, from codes by feature."""
    quick: Callable[[Codes], NDArray[np.intp]] | None = getattr(model, "predict_codes", None)
    if quick is not None:
        return quick(rows)
    labels = {feature.name: labels_of(feature, rows[feature.name]) for feature in model.features}
    classes = {model.target.name: np.asarray(model.predict(labels))}
    return row_codes(classes, Schema([model.target]), [model.target.name])[model.target.name]


def positive_code(target: Variable, positive: Category | None) -> int:
    """Return the code of the positive class: the given one, or the second of two."""
    if positive is not None:
        return target.code(positive)
    if len(target) != 2:
        raise InputError(f"{target.name!r} has {len(target)} classes: give the 'positive' one.")
    return 1


def score_function(model: Any, code: int, *, probability: bool = False) -> Callable[[Codes], Floats]:
    """Return a function from rows to a class's probability, or to a discriminant with the same ranking."""

    def scores(rows: Codes) -> Floats:
        labels = {feature.name: labels_of(feature, rows[feature.name]) for feature in model.features}
        if hasattr(model, "predict_proba") and (probability or getattr(model, "loss", "") != "pocket"):
            return np.asarray(model.predict_proba(labels))[:, code]
        discriminants = np.asarray(model.decision_function(labels))
        if discriminants.ndim > 1:
            return np.asarray(discriminants[:, code])
        return discriminants if code else -discriminants

    return scores


def cut_evenly(scores: Floats, bins: int) -> NDArray[np.intp]:
    """Return the bins of probabilities, of equal width."""
    return np.clip((np.round(scores, DIGITS) * bins).astype(np.intp), 0, bins - 1)


class FigureColumns(NamedTuple):
    """Estimates, standard errors and limits of several figures."""

    value: Floats
    stderr: Floats
    lower: Floats
    upper: Floats


def figure_columns(figures: Sequence[Figure]) -> FigureColumns:
    """Return the parts of figures as arrays."""
    parts = np.array(figures, dtype=np.float64).reshape(-1, 4).T
    return FigureColumns(parts[0], parts[1], parts[2], parts[3])


def _by_level(
    outcomes: Outcomes, classes: int
) -> tuple[CountTable | None, NDArray[np.intp] | None, Callable[[Floats], float] | None]:
    """Return table, groups and `measured` of outcomes whose rows are summed over the predicted classes."""
    measured = outcomes.measured
    if outcomes.table is None:
        if measured is None:
            return None, None, None
        return None, None, lambda slopes: measured(np.repeat(slopes, classes, axis=0))
    groups = outcomes.groups
    if groups is None:
        groups = np.arange(len(outcomes.counts))
    return outcomes.table, groups // classes, None


def _balanced_figure(
    outcomes: Outcomes, is_right: Floats, true: NDArray[np.intp], totals: Floats, level: float
) -> Figure:
    """Return the mean, over the true classes, of the share predicted correctly."""
    recall = np.array([np.sum(outcomes.counts[(is_right > 0) & (true == c)]) for c in range(len(totals))])
    recall = recall / totals
    slopes = (is_right - recall[true]) / totals[true] / len(totals)
    return outcomes.sum_figure(float(recall.mean()), slopes, level).within()


def _confusion(outcomes: Outcomes, target: Variable, level: float) -> Confusion:
    """Return the confusion matrix; rows of the outcomes are levels × predicted classes."""
    classes = len(target)
    predicted = np.tile(np.arange(classes), len(outcomes.counts) // classes)
    figures = np.empty((classes, classes), dtype=object)
    for i in range(classes):
        for j in range(classes):
            cell = np.zeros_like(outcomes.counts)
            cell[predicted == j, i] = 1.0
            figures[i, j] = outcomes.mean_figure(cell, level).within()
    parts = {
        name: np.array([[getattr(figure, name) for figure in row] for row in figures])
        for name in Figure._fields
    }
    summed = outcomes.counts.reshape(-1, classes, classes).sum(axis=0)
    groups = None if outcomes.groups is None else outcomes.groups % classes
    if outcomes.groups is None and outcomes.table is not None:
        groups = predicted
    measured = outcomes.measured
    error = None if measured is None else (lambda slopes: measured(slopes[predicted]))
    by_class = Outcomes(summed, outcomes.n, outcomes.table, groups, error)
    balanced = balanced_accuracy_of(by_class) if np.all(summed.sum(axis=0) > 0) else None
    return Confusion(target, parts["value"], parts["stderr"], parts["lower"], parts["upper"], balanced)


def curve_of(  # noqa: PLR0917  (parts of one result)
    outcomes: Outcomes,
    target: Variable,
    code: int,
    scores: Floats,
    thresholds: Sequence[float],
    level: float,
) -> ThresholdCurve | None:
    """Return the measures of a class at thresholds of its probability.

    Of the thresholds that select the same records, only the highest is listed; thresholds that select all
    records or none are omitted.
    """
    positives = np.zeros_like(outcomes.counts)
    positives[:, code] = 1.0
    others, everybody = 1 - positives, np.ones_like(positives)
    chosen: dict[tuple[bool, ...], float] = {}
    for threshold in sorted(thresholds):
        flags = tuple((scores >= threshold).tolist())
        if any(flags) and not all(flags):
            chosen[flags] = threshold
    if not chosen:
        return None
    rows = []
    for selected, threshold in chosen.items():
        flagged = np.repeat(np.array(selected, dtype=float)[:, None], positives.shape[1], axis=1)
        parts = {
            "selected": (flagged, everybody),
            "sensitivity": (flagged * positives, positives),
            "specificity": ((1 - flagged) * others, others),
            "positive predictive value": (flagged * positives, flagged),
            "negative predictive value": ((1 - flagged) * others, 1 - flagged),
        }
        for name, (part, denominator) in parts.items():
            rows.append((threshold, name, outcomes.ratio_figure(part, denominator, level)))
    columns = figure_columns([figure for _, _, figure in rows])
    return ThresholdCurve(
        target.categories[code],
        np.array([threshold for threshold, _, _ in rows]),
        tuple(name for _, name, _ in rows),
        columns.value,
        columns.stderr,
        columns.lower,
        columns.upper,
        level,
    )


def balanced_accuracy_of(outcomes: Outcomes) -> Measure:
    """Return the mean, over the true classes, of the share predicted correctly."""
    counts = outcomes.counts
    classes = counts.shape[1]
    totals = counts.sum(axis=0)
    if not np.all(totals > 0):
        raise InputError("The balanced accuracy needs records of every class.")
    recall = np.diagonal(counts) / totals
    slopes = np.tile(-recall / totals / classes, (classes, 1))
    slopes[np.arange(classes), np.arange(classes)] += 1 / totals / classes
    return Measure("balanced accuracy", float(recall.mean()), outcomes.error(slopes), outcomes.n)


def confusion_of(outcomes: Outcomes, target: Variable, level: float = 0.95) -> Confusion:
    """Return the confusion matrix; rows of the outcomes are predicted classes."""
    return _confusion(outcomes, target, level)


def auc_of(outcomes: Outcomes, code: int, level: float = 0.95) -> Figure:
    """Return the area under the ROC curve of a class; rows of the outcomes are increasing scores.

    Formula: A/many with A = Σ ones·below/few over the scores. `ones` are the records of the class, `many` of
    them in total; `few` is the number of other records, and `below` of these have a lower score (half of
    equal scores). The interval is that of a ratio whose numerator A is given by its slopes in the counts.
    """
    ones, zeros = outcomes.counts[:, code], np.delete(outcomes.counts, code, axis=1).sum(axis=1)
    many, few = ones.sum(), zeros.sum()
    if not (many > 0 and few > 0):
        raise InputError("The AUC needs records of both classes.")
    below = np.cumsum(zeros) - zeros / 2
    above = many - np.cumsum(ones) + ones / 2
    area = float(ones @ below) / (many * few)
    part = np.empty_like(outcomes.counts)
    part[:] = (above / few - area * many / few)[:, None]
    part[:, code] = below / few
    denominator = np.zeros_like(part)
    denominator[:, code] = 1.0
    return outcomes.ratio_figure(part, denominator, level, area)


def calibration_of(  # noqa: PLR0917  (parts of one result)
    outcomes: Outcomes,
    target: Variable,
    code: int,
    bins: NDArray[np.intp],
    scores: Floats,
    level: float = 0.95,
) -> Calibration:
    """Return the observed share of a class by bins of its probability.

    `bins` and `scores` are the bin and the probability of each row of the outcomes. The predicted probability
    of a bin is the mean over its records, limited to the range from its lowest to its highest score.
    """
    rows: list[tuple[float, float, float, Figure, float]] = []
    records = outcomes.counts.sum(axis=1)
    for label in np.unique(bins):
        inside = bins == label
        count = float(records[inside].sum())
        if not count > 0:
            continue
        mean = float(records[inside] @ scores[inside]) / count
        low, high = float(scores[inside].min()), float(scores[inside].max())
        mean = min(max(mean, low), high)
        denominator = np.repeat(inside.astype(float)[:, None], len(target), axis=1)
        part = np.zeros_like(denominator)
        part[:, code] = inside
        rows.append((mean, low, high, outcomes.ratio_figure(part, denominator, level), count))
    columns = figure_columns([figure for _, _, _, figure, _ in rows])
    predicted, lowest, highest = (np.array([row[i] for row in rows], dtype=np.float64) for i in range(3))
    return Calibration(
        target.categories[code],
        predicted,
        lowest,
        highest,
        columns.value,
        columns.stderr,
        columns.lower,
        columns.upper,
        np.array([row[-1] for row in rows]),
        level,
    )


def equal_bins(records: Floats, bins: int) -> NDArray[np.intp]:
    """Return bins of ordered levels with about equal numbers of records; a level is never divided."""
    numbers = np.maximum(records, 0.0)
    middle = np.cumsum(numbers) - numbers / 2
    places = np.minimum((bins * middle / max(numbers.sum(), 1e-300)).astype(np.intp), bins - 1)
    return np.asarray(np.unique(places, return_inverse=True)[1])


def count_levels(
    count: Counting, score: Callable[[Codes], Floats], cuts: Sequence[float] = ()
) -> tuple[Floats, Outcomes]:
    """Return the scores of at most 256 ordered levels, and the outcomes by level.

    With more distinct scores, neighbouring scores between `cuts` are joined.
    """
    levels = _levels(count, score, cuts)
    return levels.scores, count(lambda rows: levels.place(score(rows)), len(levels.scores))


def _levels(count: Counting, score: Callable[[Codes], Floats], cuts: Sequence[float]) -> ScoreLevels:
    seen: list[Floats] = []

    def note_scores(rows: Codes) -> NDArray[np.intp]:
        seen.append(score(rows))
        return np.zeros(len(seen[-1]), dtype=np.intp)

    count(note_scores, 1)
    return ScoreLevels.of(np.concatenate(seen), MOST_LEVELS, cuts)


def measure_performance(
    model: Any,
    count: Counting,
    positive: Category | None,
    *,
    thresholds: Sequence[float],
    bins: int,
    level: float,
) -> Performance:
    """Return all measures of a classifier: see `masquerade.evaluate.performance`."""
    if not 0 < level < 1 or bins < 1 or not all(0 <= one <= 1 for one in thresholds):
        raise InputError("'level' and 'thresholds' must be between 0 and 1, and 'bins' at least 1.")
    target, classes, code = model.target, len(model.target), None
    note: tuple[str, ...] = ()
    if positive is not None:
        code = target.code(positive)
    elif classes == 2:
        everybody = count(lambda rows: np.zeros(len(next(iter(rows.values()))), dtype=np.intp), 1)
        code = int(np.argmin(everybody.counts[0]))
    else:
        note = ("Name the positive class to get its AUC, calibration and thresholds.",)
    scores = None
    if code is None:
        outcomes = count(lambda rows: predict_codes(model, rows), classes)
    else:
        score = score_function(model, code)
        levels = _levels(count, score, thresholds)
        if hasattr(model, "predict_proba") and getattr(model, "loss", "") != "pocket":
            scores = levels.scores

        def place(rows: Codes) -> NDArray[np.intp]:
            return np.asarray(levels.place(score(rows)) * classes + predict_codes(model, rows))

        outcomes = count(place, len(levels.scores) * classes)
    measures = performance_of(
        outcomes, target, code=code, scores=scores, thresholds=thresholds, bins=bins, level=level
    )
    return replace(measures, notes=note)


def performance_of(
    outcomes: Outcomes,
    target: Variable,
    *,
    code: int | None,
    scores: Floats | None,
    thresholds: Sequence[float],
    bins: int,
    level: float,
) -> Performance:
    """Return all measures of a classifier.

    Parameters
    ----------
    outcomes : Outcomes
        Rows are levels of the score × predicted classes, in C order.
    target : Variable
        The predicted variable.
    code : int or None
        Code of the positive class. None: no AUC, calibration and curve.
    scores : ndarray or None
        Probability of the positive class at each level. None: no calibration and curve.
    thresholds : sequence of float
        Candidate thresholds of the curve.
    bins : int
        Number of bins of the calibration.
    level : float
        Confidence level.

    Returns
    -------
    Performance
        The measures.
    """
    classes = len(target)
    shape = (-1, classes, classes)  # level, predicted, true
    counts = outcomes.counts.reshape(shape)
    predicted = np.broadcast_to(np.arange(classes)[None, :, None], counts.shape).reshape(-1, classes)
    true = np.broadcast_to(np.arange(classes)[None, None, :], counts.shape).reshape(-1, classes)
    is_right = (predicted == true).astype(float)
    totals = counts.sum(axis=(0, 1))
    common = int(np.argmax(totals))
    is_common = (true == common).astype(float)
    share_of_common = outcomes.mean_figure(is_common, level)
    rows: dict[str, tuple[Figure, float]] = {}
    if code is not None:
        prevalence = outcomes.mean_figure((true == code).astype(float), level)
        rows["prevalence"] = prevalence.within(), math.nan
    rows["accuracy"] = outcomes.mean_figure(is_right, level).within(), share_of_common.value
    rows["accuracy above trivial"] = outcomes.mean_figure(is_right - is_common, level), 0.0
    if np.all(totals > 0):
        rows["balanced accuracy"] = _balanced_figure(outcomes, is_right, true, totals, level), 1 / classes
    for one in range(classes) if code is None else (code,):
        flagged, positives = (predicted == one).astype(float), (true == one).astype(float)
        rest, trivial = (1 - flagged, 1 - positives), float(common == one)
        name = "" if code is not None else f" of {category_text(target.categories[one])}"
        share = float(totals[one] / totals.sum())
        rows[f"sensitivity{name}"] = outcomes.ratio_figure(flagged * positives, positives, level), trivial
        rows[f"specificity{name}"] = outcomes.ratio_figure(rest[0] * rest[1], rest[1], level), 1 - trivial
        value = outcomes.ratio_figure(flagged * positives, flagged, level)
        rows[f"positive predictive value{name}"] = value, share if trivial else math.nan
        value = outcomes.ratio_figure(rest[0] * rest[1], rest[0], level)
        rows[f"negative predictive value{name}"] = value, math.nan if trivial else 1 - share
    curve = calibration = None
    if code is not None:
        by_level = Outcomes(counts.sum(axis=1), outcomes.n, *_by_level(outcomes, classes))
        if totals[code] > 0 and totals.sum() > totals[code]:
            rows["AUC"] = auc_of(by_level, code, level), 0.5
        if scores is not None:
            positives = np.zeros((len(scores), classes))
            positives[:, code] = 1.0
            rows["observed minus predicted"] = (
                by_level.mean_figure(positives - scores[:, None], level),
                math.nan,
            )
            chosen = equal_bins(by_level.counts.sum(axis=1), bins)
            calibration = calibration_of(by_level, target, code, chosen, scores, level)
            curve = curve_of(by_level, target, code, scores, thresholds, level)
    columns = figure_columns([figure for figure, _ in rows.values()])
    return Performance(
        target,
        None if code is None else target.categories[code],
        target.categories[common],
        outcomes.n,
        level,
        tuple(rows),
        columns.value,
        columns.stderr,
        columns.lower,
        columns.upper,
        np.array([trivial for _, trivial in rows.values()]),
        _confusion(outcomes, target, level),
        calibration,
        curve,
    )
