"""Naive Bayes from any source of counts."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError, MasqueradeWarning
from masquerade.core.intervals import Flags, normal_interval, ratio_errors
from masquerade.core.plots.drawing import Dots, dot_plot
from masquerade.core.query import Query
from masquerade.core.schema import Variable
from masquerade.core.table import CountTable
from masquerade.core.tally import Tally, check_source
from masquerade.core.util.display import Printed
from masquerade.core.util.formatting import counted, printable
from masquerade.learn import model_file
from masquerade.learn.classifiers.prediction_rows import LogScores, summed_logs, told_apart
from masquerade.learn.model_file import Saved, part_values

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

KIND = "naive_bayes"
FEWEST_SIGMAS = 5.0
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Distribution:
    """Probabilities, the last axis summing to 1, and their standard errors."""

    probabilities: Floats
    stderr: Floats

    @classmethod
    def read(cls, values: Mapping[str, Any], shape: tuple[int, ...], name: str) -> Distribution:
        """Return what a file says of a variable."""
        shapes = {"probabilities": shape, "stderr": shape}
        found = model_file.part_of(cls, values, shapes, f"{name}.")
        table = found.probabilities
        if np.any(table < 0) or not np.allclose(table.sum(axis=-1), 1, atol=1e-9) or np.any(found.stderr < 0):
            raise InputError(
                f"the probabilities of {name!r} must be rows that sum to 1, with errors of 0 or more."
            )
        return found


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class NaiveBayes(Printed, LogScores, Saved):
    """P(class) and P(feature | class) with standard errors; row c of a feature's table is class c.

    A class that nothing speaks for (estimated count ≤ 0) has probability 0, uniform rows with infinite
    standard errors, and is never predicted. `reliable` is False where a class's count is less than five
    standard errors: there the delta method is not to be trusted.

    >>> model = mq.learn.naive_bayes(mq.tally(mq.data.students()), "sleep")
    >>> model.predict_proba(mq.data.students()[:1]).round(2).tolist()
    [[0.6, 0.4]]
    """

    target: Variable
    features: tuple[Variable, ...]
    prior: Floats
    prior_stderr: Floats
    probabilities: tuple[Floats, ...]
    stderrs: tuple[Floats, ...]
    reliable: Flags
    alpha: float
    n: int

    def scores(self, codes: Mapping[str, NDArray[np.integer[Any]]]) -> Floats:
        """Return ln P(class, row) = ln P(c) + Σ_i ln P(x_i | c), rows × classes, from codes of features."""
        return summed_logs(
            self.prior,
            [
                (table, codes[feature.name])
                for feature, table in zip(self.features, self.probabilities, strict=True)
            ],
        )

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas frame: feature, category, class, probability, stderr; the classes come first."""
        import pandas as pd  # noqa: PLC0415  (learners load pandas only when a frame is asked for)

        rows: list[tuple[Any, ...]] = [
            (self.target.name, label, None, p, s)
            for label, p, s in zip(self.target.categories, self.prior, self.prior_stderr, strict=True)
        ]
        for feature, table, errors in zip(self.features, self.probabilities, self.stderrs, strict=True):
            rows += [
                (feature.name, label, own, table[c, x], errors[c, x])
                for c, own in enumerate(self.target.categories)
                for x, label in enumerate(feature.categories)
            ]
        return pd.DataFrame(rows, columns=["variable", "category", "class", "probability", "stderr"])

    @printable
    def summary(self) -> str:
        """Return all probabilities as text, each with its standard error."""
        heads = [str(label) for label in self.target.categories]
        title = (
            f"Naive Bayes of {self.target.name}: {counted(len(self.features), 'feature')}, "
            f"alpha = {self.alpha:g}, n = {self.n:,}"
        )
        blocks = [(f"P({self.target.name})", [""], self.prior[None, :], self.prior_stderr[None, :])]
        blocks += [
            (
                f"P({feature.name} | {self.target.name})",
                [str(x) for x in feature.categories],
                table.T,
                errors.T,
            )
            for feature, table, errors in zip(self.features, self.probabilities, self.stderrs, strict=True)
        ]
        left = max(len(text) for name, labels, _, _ in blocks for text in (name, *(f"  {x}" for x in labels)))
        width = max(18, *(len(head) + 2 for head in heads))
        lines = [title, " " * left + "".join(head.rjust(width) for head in heads)]
        for name, labels, values, errors in blocks:
            lines.append(name)
            for label, row, error in zip(labels, values, errors, strict=True):
                cells = (f"{p:.4f} ± {s:.4f}".rjust(width) for p, s in zip(row, error, strict=True))
                lines.append(f"  {label}".ljust(left) + "".join(cells))
        rare = [head for head, sure in zip(heads, self.reliable, strict=True) if not sure]
        if rare:
            lines.append(f"Too rare for their standard errors to be trusted: {', '.join(rare)}.")
        return "\n".join(lines)

    def plot(self, ax: Axes | None = None, level: float = 0.95) -> Axes:
        """Draw every probability with its interval, a colour for each class; rare classes are hollow."""
        labels = [f"P({self.target.name})"]
        labels += [f"{feature.name} = {label}" for feature in self.features for label in feature.categories]
        rows = [np.hstack(parts) for parts in zip(self.prior, *self.probabilities, strict=True)]
        errors = [np.hstack(parts) for parts in zip(self.prior_stderr, *self.stderrs, strict=True)]
        series = {
            str(label): Dots(values, *normal_interval(values, stderr, level), not sure)
            for label, values, stderr, sure in zip(
                self.target.categories, rows, errors, self.reliable, strict=True
            )
        }
        return dot_plot(
            labels,
            series,
            ax,
            xlabel=f"probability given the class, {level:.0%} intervals",
            title=f"Naive Bayes of {self.target.name}, n = {self.n:,}",
            legend=self.target.name,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values that `from_dict` reads back to the same model."""
        return {
            **model_file.header(KIND),
            **part_values(self, "n", "alpha"),
            "target": {
                **part_values(self.target),
                **part_values(Distribution(self.prior, self.prior_stderr)),
                "reliable": self.reliable.tolist(),
            },
            "features": [
                {**part_values(feature), **part_values(Distribution(table, errors))}
                for feature, table, errors in zip(
                    self.features, self.probabilities, self.stderrs, strict=True
                )
            ],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> NaiveBayes:
        """Return the model that plain values describe; what is none is an `InputError`."""
        target, features = model_file.target_and_features(values, KIND)
        own, listed = values["target"], values["features"]
        told = Distribution.read(own, (len(target),), target.name)
        tables = [
            Distribution.read(item, (len(target), len(feature)), feature.name)
            for item, feature in zip(listed, features, strict=True)
        ]
        return cls(
            target,
            features,
            told.probabilities,
            told.stderr,
            tuple(table.probabilities for table in tables),
            tuple(table.stderr for table in tables),
            model_file.array_of(
                model_file.entry(own, "reliable", list), (len(target),), "reliable", flags=True
            ),
            model_file.number(values, "alpha"),
            model_file.entry(values, "n", int),
        )


def naive_bayes(
    source: Tally, target: str, features: Sequence[str] | None = None, alpha: float = 1.0
) -> NaiveBayes:
    """Return the naive Bayes classifier of `target` from counts alone.

    `features` are all other variables unless given. Estimated counts may be negative, probabilities may not:
    negative class counts are set to zero and the others rescaled to the total ("clip"); within a class,
    negative counts of a feature are set to zero and the others rescaled to the class's count. A class
    whose count is zero or negative is warned about: see `NaiveBayes`.

    Formula: P(c) = N_c/n, P(x | c) = (N_cx + alpha)/(N_c + alpha·K), K the categories of the feature;
    Var P(x | c) ≈ (Var N̂_cx − 2θ Cov(N̂_cx, N̂_c) + θ² Var N̂_c)/(N_c + alpha·K)², from the unbiased counts.
    Reference: Zhan, Chang & Matwin (2004) §3.4; with alpha = 1 scikit-learn's CategoricalNB on clear records.
    Cost: one batch of one question per feature and one for the classes.
    Error: first order in 1/n; flagged where N̂_c is below five standard errors.

    >>> model = mq.learn.naive_bayes(mq.tally(mq.data.students()), "sleep", ["pills"])
    >>> print(model.summary())
    Naive Bayes of sleep: 1 feature, alpha = 1, n = 600
                                   bad              good
    P(sleep)
                       0.3367 ± 0.0193   0.6633 ± 0.0193
    P(pills | sleep)
      no               0.5833 ± 0.0343   0.8925 ± 0.0153
      yes              0.4167 ± 0.0343   0.1075 ± 0.0153
    """
    check_source(source)
    names = told_apart(source.schema, target, features)
    if not np.isfinite(alpha) or alpha < 0:
        raise InputError(f"The 'alpha' parameter of naive_bayes() must be 0 or more. Got {alpha} instead.")
    queries = [Query(by=(target,)), *(Query(by=(target, name)) for name in names)]
    classes, *tables = source.answer(queries)
    counts = np.where(classes.values > ROUNDING * classes.n, classes.nonnegative("clip").values, 0.0)
    if not counts.sum() > 0:
        raise InputError(f"Nothing can be learnt: no class of {target!r} has a positive count.")
    empty = [
        repr(label) for label, count in zip(classes.axes[0].categories, counts, strict=True) if count <= 0
    ]
    if empty:
        warnings.warn(
            f"The estimated count of {target} = {', '.join(empty)} is zero or negative: "
            "these classes have probability 0 and are never predicted.",
            MasqueradeWarning,
            stacklevel=2,
        )
    prior = np.asarray(counts / counts.sum())
    fitted = [_conditional(table, counts, alpha) for table in tables]
    return NaiveBayes(
        classes.axes[0],
        tuple(table.axes[1] for table in tables),
        prior,
        ratio_errors(prior, classes.within((target,)), np.asarray(counts.sum())).stderr,
        tuple(probabilities for probabilities, _ in fitted),
        tuple(errors for _, errors in fitted),
        (counts > 0) & (counts >= FEWEST_SIGMAS * classes.stderr()),
        float(alpha),
        classes.n,
    )


def _conditional(table: CountTable, counts: Floats, alpha: float) -> tuple[Floats, Floats]:
    size = len(table.axes[1])
    clipped = np.maximum(table.values, 0.0)
    sums = clipped.sum(axis=1, keepdims=True)
    # a row that sums to its class already keeps its numbers to the last bit
    off = np.abs(sums - counts[:, None]) > ROUNDING * table.n
    scale = np.where(off, counts[:, None] / np.where(sums > 0, sums, 1.0), 1.0)
    cells = np.where(counts[:, None] > 0, np.where(sums > 0, clipped * scale, counts[:, None] / size), 0.0)
    whole = cells.sum(axis=1) + alpha * size
    seen = whole > 0
    safe = np.where(seen, whole, 1.0)
    probabilities = np.where(seen[:, None], (cells + alpha) / safe[:, None], 1 / size)
    errors = ratio_errors(probabilities, table.within((table.axes[1].name,)), safe).stderr
    return probabilities, np.where((counts > 0)[:, None], errors, np.inf)
