"""Confusion, balanced accuracy, AUC and calibration of classifiers, from records clear or disguised."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from masquerade.channels.policy import Policy
from masquerade.core.axes import Floats
from masquerade.core.errors import InputError
from masquerade.core.intervals import quantile
from masquerade.core.palette import ESTIMATE, LINE
from masquerade.core.plots import Dots, dot_plot, new_axes
from masquerade.core.query import Query
from masquerade.core.schema import Category, Variable
from masquerade.core.shown import Printed
from masquerade.core.table import CountTable, cell_frame
from masquerade.core.tally import Selected, Tally
from masquerade.core.words import category_text, printable
from masquerade.learn.prediction_rows import labels_of
from masquerade.sources.expectation import MOST_TRUTHS
from masquerade.sources.records import Records

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
from masquerade.evaluate.hits import Classifier, Codes, checked_names, predicted

MOST_LEVELS = 256  # of scores, for an AUC


@dataclass(frozen=True, slots=True, repr=False)
class Measure(Printed):
    """How well a classifier does by one measure: an estimate, which may lie outside its range."""

    name: str
    value: float
    stderr: float
    n: int

    def conf_int(self, level: float = 0.95) -> tuple[float, float]:
        """Return a normal interval."""
        half = quantile(level) * self.stderr
        return self.value - half, self.value + half

    def summary(self) -> str:
        """Return it as text."""
        return f"{self.name} {self.value:.4f} ± {self.stderr:.4f} (n = {self.n:,})"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Confusion(Printed):
    """Which true classes are predicted as which: shares of all records, rows true, columns predicted."""

    target: Variable
    shares: Floats
    stderr: Floats
    balanced: Measure

    @printable
    def summary(self) -> str:
        """Return the matrix as text."""
        frame = self.to_frame().to_string(index=False, float_format=lambda x: f"{x:.4f}")
        return f"Confusion of {self.target.name}: {self.balanced.summary()}\n{frame}"

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas frame: true, predicted, share, stderr."""
        axes = [Variable(name, self.target.categories) for name in ("true", "predicted")]
        return cell_frame(axes, share=self.shares, stderr=self.stderr)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the shares with intervals, a row for each true class, colours for what was predicted."""
        half = quantile(0.95) * self.stderr
        series = {
            f"{label}": Dots(self.shares[:, i], (self.shares - half)[:, i], (self.shares + half)[:, i])
            for i, label in enumerate(self.target.categories)
        }
        rows = [f"true: {label}" for label in self.target.categories]
        return dot_plot(rows, series, ax, xlabel="share of records, 95% intervals", legend="predicted")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Calibration(Printed):
    """Of rows with a predicted probability, how many are of the class? A row for each bin of predictions."""

    positive: Category
    predicted: Floats
    observed: Floats
    stderr: Floats
    records: Floats

    @printable
    def summary(self) -> str:
        """Return the bins as text."""
        frame = self.to_frame().to_string(index=False, float_format=lambda x: f"{x:.4f}")
        return f"Calibration of P({category_text(self.positive)})\n{frame}"

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas frame: predicted, observed, stderr, records."""
        import pandas as pd  # noqa: PLC0415  (a frame is asked for here)

        columns = ("predicted", "observed", "stderr", "records")
        return pd.DataFrame({name: getattr(self, name) for name in columns})

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw what was observed with intervals against what was predicted; honest ones lie on the line."""
        axes = new_axes(4.8, 4.4) if ax is None else ax
        axes.plot([0, 1], [0, 1], color=LINE, linewidth=1)
        half = quantile(0.95) * self.stderr
        axes.errorbar(self.predicted, self.observed, yerr=half, fmt="o", color=ESTIMATE, elinewidth=1.5)
        axes.set(xlim=(-0.02, 1.02), ylim=(-0.15, 1.15))
        axes.set_xlabel("predicted probability")
        axes.set_ylabel("share that is of the class, 95% intervals")
        axes.spines[["top", "right"]].set_visible(False)
        return axes


def confusion(model: Classifier, source: Tally, target: str | None = None) -> Confusion:
    """Return which classes a classifier takes for which, from test records clear or disguised.

    Formula: shares are means over the truths, as in `accuracy`; the balanced accuracy is the mean over the
    true classes of the share predicted right, with its error by the delta method.
    """
    classes = len(model.target)
    found = _outcomes(model, source, target, lambda rows: predicted(model, rows), classes)
    total, counts = found.total, found.counts
    shares = counts.T / total
    stderr = np.empty_like(shares)
    for i in range(classes):
        for j in range(classes):
            own = np.zeros_like(counts)
            own[j, i] = 1.0
            stderr[i, j] = found.error((own - shares[i, j]) / total)
    return Confusion(model.target, shares, stderr, _balanced(found))


def balanced_accuracy(model: Classifier, source: Tally, target: str | None = None) -> Measure:
    """Return the mean, over the true classes, of the share predicted right."""
    found = _outcomes(model, source, target, lambda rows: predicted(model, rows), len(model.target))
    return _balanced(found)


def roc_auc(
    model: Classifier, source: Tally, target: str | None = None, positive: Category | None = None
) -> Measure:
    """Return the area under the ROC curve of one of two classes (the second unless `positive` is named).

    Formula: P(score of one of the class > score of one of the other) + half of P(equal), over the truths; its
    error by the delta method. Beyond 256 different scores neighbours count as equal.
    """
    code = _positive_code(model, positive)
    scored = _scored(model, code)
    place, levels = _levels(model, source, target, scored)
    found = _outcomes(model, source, target, lambda rows: place(scored(rows)), levels)
    ones, zeros = found.counts[:, code], np.delete(found.counts, code, axis=1).sum(axis=1)
    many, few = ones.sum(), zeros.sum()
    if not (many > 0 and few > 0):
        raise InputError("The AUC needs records of both classes.")
    below = np.cumsum(zeros) - zeros / 2
    above = many - np.cumsum(ones) + ones / 2
    area = float(ones @ below) / (many * few)
    slopes = np.empty_like(found.counts)
    slopes[:] = ((above / many - area) / few)[:, None]
    slopes[:, code] = (below / few - area) / many
    return Measure("AUC", area, found.error(slopes), found.n)


def calibration(
    model: Classifier,
    source: Tally,
    target: str | None = None,
    positive: Category | None = None,
    bins: int = 10,
) -> Calibration:
    """Return, for bins of the predicted probability of a class, the share that is of it, with its error."""
    code = _positive_code(model, positive)
    scored = _scored(model, code, probability=True)
    cut = partial(_cut_evenly, bins=bins)
    found = _outcomes(model, source, target, lambda rows: cut(scored(rows)), bins)
    records = found.counts.sum(axis=1)
    kept = np.flatnonzero(records > 0)
    share = found.counts[kept, code] / records[kept]
    errors = []
    for place, value in zip(kept, share, strict=True):
        slopes = np.zeros_like(found.counts)
        slopes[place] = -value / records[place]
        slopes[place, code] += 1 / records[place]
        errors.append(found.error(slopes))
    label = model.target.categories[code]
    return Calibration(label, (kept + 0.5) / bins, share, np.array(errors), records[kept])


@dataclass(frozen=True, slots=True, eq=False)
class _Outcomes:
    """How many records there are of every group of predictions (rows) and true class (columns)."""

    counts: Floats
    error: Callable[[Floats], float]
    n: int

    @property
    def total(self) -> float:
        return float(self.counts.sum())


def _outcomes(
    model: Classifier,
    source: Tally,
    target: str | None,
    grouped: Callable[[Codes], NDArray[np.intp]],
    groups: int,
) -> _Outcomes:
    """Return the counts of groups by classes: from the rows themselves where features are not disguised.

    Else from the table over features and target, if it has at most 65,536 cells.
    """
    source = source.source if isinstance(source, Selected) else source
    over = checked_names(model, source.schema, target)
    if isinstance(source, Records) and _reads_clear(source.policy, over):
        rows = {name: np.asarray(source.codes[name], dtype=np.intp) for name in over[:-1]}
        own = source.policy.group(over[-1])
        known = {"groups of predictions": range(groups), over[-1]: source.schema[over[-1]].categories}
        policy = Policy.build(known, {over[-1]: own.channel})
        kind = np.min_scalar_type(groups)
        codes = {"groups of predictions": grouped(rows).astype(kind), over[-1]: source.codes[over[-1]]}
        reports = Records(codes, policy, source.weights, missing=source.missing)
        (table,) = reports.answer([Query(by=tuple(known))])
        return _Outcomes(table.values, lambda slopes: _error(table, slopes), table.n)
    shape = source.schema.shape(over)
    if prod(shape) > MOST_TRUTHS:
        raise InputError(
            f"The table over {', '.join(over)} has {prod(shape):,} cells (at most {MOST_TRUTHS:,}): test a "
            "model that reads fewer disguised variables."
        )
    (table,) = source.answer([Query(by=over)])
    if not table.total > 0:
        raise InputError("The mean over no records is not defined.")
    cells = np.indices(shape[:-1]).reshape(len(shape) - 1, -1)
    place = grouped({name: cells[i] for i, name in enumerate(over[:-1])})
    counts = np.zeros((groups, shape[-1]))
    np.add.at(counts, place, table.values.reshape(-1, shape[-1]))
    return _Outcomes(counts, lambda slopes: _error(table, slopes[place].reshape(shape)), table.n)


def _error(table: CountTable, slopes: Floats) -> float:
    return float(np.sqrt(max(table.covariance.quadratic(slopes), 0.0)))


def _reads_clear(policy: Policy, over: Sequence[str]) -> bool:
    alone = len(policy.group(over[-1]).names) == 1 and policy.stratum_variable is None
    return alone and not any(name in policy.disguised for name in over[:-1])


def _balanced(found: _Outcomes) -> Measure:
    counts = found.counts
    classes = counts.shape[1]
    totals = counts.sum(axis=0)
    if not np.all(totals > 0):
        raise InputError("The balanced accuracy needs records of every class.")
    recall = np.diagonal(counts) / totals
    slopes = np.tile(-recall / totals / classes, (classes, 1))
    slopes[np.arange(classes), np.arange(classes)] += 1 / totals / classes
    return Measure("balanced accuracy", float(recall.mean()), found.error(slopes), found.n)


def _positive_code(model: Classifier, positive: Category | None) -> int:
    if positive is not None:
        return model.target.code(positive)
    if len(model.target) != 2:
        raise InputError(f"{model.target.name!r} has {len(model.target)} classes: say which is 'positive'.")
    return 1


def _scored(model: Any, code: int, *, probability: bool = False) -> Callable[[Codes], Floats]:
    """Return what gives every row the probability of a class, or a discriminant that orders rows alike."""

    def scores(rows: Codes) -> Floats:
        labels = {feature.name: labels_of(feature, rows[feature.name]) for feature in model.features}
        if hasattr(model, "predict_proba") and (probability or getattr(model, "loss", "") != "pocket"):
            return np.asarray(model.predict_proba(labels))[:, code]
        found = np.asarray(model.decision_function(labels))
        return (found if code else -found) if found.ndim == 1 else found[:, code]

    return scores


def _levels(
    model: Classifier, source: Tally, target: str | None, scored: Callable[[Codes], Floats]
) -> tuple[Callable[[Floats], NDArray[np.intp]], int]:
    """Return what puts scores in order into at most 256 levels, and how many there are."""
    seen: list[Floats] = []

    def noted(rows: Codes) -> NDArray[np.intp]:
        seen.append(np.round(scored(rows), 12))
        return np.zeros(len(seen[-1]), dtype=np.intp)

    _outcomes(model, source, target, noted, 1)
    points = np.unique(np.concatenate(seen))
    if len(points) > MOST_LEVELS:
        points = np.unique(np.quantile(np.concatenate(seen), np.linspace(0, 1, MOST_LEVELS)))
    return lambda scores: np.searchsorted(points[1:], np.round(scores, 12), side="right"), len(points)


def _cut_evenly(scores: Floats, bins: int) -> NDArray[np.intp]:
    return np.clip((scores * bins).astype(np.intp), 0, bins - 1)
