"""Naive Bayes from any source of counts."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError, MasqueradeWarning
from masquerade.core.intervals import Flags, normal_interval, ratio_errors
from masquerade.core.plots import Dots, dot_plot
from masquerade.core.query import Query
from masquerade.core.schema import Schema, Variable
from masquerade.core.table import CountTable
from masquerade.core.tally import Tally
from masquerade.core.words import counted
from masquerade.learn import model_file
from masquerade.learn.prediction_rows import LogScores, row_codes, summed_logs

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

KIND = "naive_bayes"
FEWEST_SIGMAS = 5.0
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class NaiveBayes(LogScores):
    """P(class) and P(feature | class) with standard errors; row c of a feature's table is class c.

    A class that nothing speaks for (estimated count ≤ 0) has probability 0, uniform rows with infinite
    standard errors, and is never predicted. `reliable` is False where a class's count is less than five
    standard errors: there the delta method is not to be trusted.
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

    @property
    def schema(self) -> Schema:
        """Return the target and the features."""
        return Schema((self.target, *self.features))

    def predict_codes(self, codes: Mapping[str, NDArray[np.integer[Any]]]) -> NDArray[np.intp]:
        """Return the codes of the most likely classes from codes of the features; ties go to the first."""
        return self._likeliest(codes)

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
            "n": self.n,
            "alpha": self.alpha,
            "target": {
                **model_file.variable_values(self.target),
                "probabilities": model_file.number_values(self.prior),
                "stderr": model_file.number_values(self.prior_stderr),
                "reliable": self.reliable.tolist(),
            },
            "features": [
                {
                    **model_file.variable_values(feature),
                    "probabilities": model_file.number_values(table),
                    "stderr": model_file.number_values(errors),
                }
                for feature, table, errors in zip(
                    self.features, self.probabilities, self.stderrs, strict=True
                )
            ],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> NaiveBayes:
        """Return the model that plain values describe; what is none is an `InputError`."""
        model_file.check_header(values, KIND)
        own = model_file.entry(values, "target", dict)
        target = model_file.variable_of(own)
        listed = model_file.entry(values, "features", list)
        features = tuple(model_file.variable_of(item) for item in listed)
        Schema((target, *features))
        shapes = [(len(target), len(feature)) for feature in features]
        tables = [
            _distribution_of(item, shape, feature.name)
            for item, shape, feature in zip(listed, shapes, features, strict=True)
        ]
        prior, prior_stderr = _distribution_of(own, (len(target),), target.name)
        reliable = model_file.entry(own, "reliable", list)
        if len(reliable) != len(target) or any(type(item) is not bool for item in reliable):
            raise InputError(f"'reliable' must be {len(target)} times true or false.")
        return cls(
            target,
            features,
            prior,
            prior_stderr,
            tuple(table for table, _ in tables),
            tuple(errors for _, errors in tables),
            np.array(reliable, dtype=bool),
            model_file.number(values, "alpha"),
            model_file.entry(values, "n", int),
        )

    def save(self, path: str | Path) -> None:
        """Write the model as a JSON file."""
        model_file.save(self, path)

    def _codes(self, frame: Any) -> dict[str, NDArray[np.intp]]:
        return row_codes(frame, self.schema, [feature.name for feature in self.features])


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
    """
    names = _check_names(source.schema, target, features)
    if not np.isfinite(alpha) or alpha < 0:
        raise InputError(f"The 'alpha' parameter of naive_bayes() must be 0 or more. Got {alpha} instead.")
    queries = [Query(by=(target,)), *(Query(by=(target, name)) for name in names)]
    classes, *tables = source.answer(queries)
    counts = np.where(classes.values > ROUNDING * classes.n, classes.nonnegative("clip").values, 0.0)
    if not counts.sum() > 0:
        raise InputError(f"Nothing can be learnt: no class of {target!r} has a positive count.")
    _warn_of_empty(classes.axes[0], counts)
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


def _check_names(schema: Schema, target: str, features: Sequence[str] | None) -> tuple[str, ...]:
    """Return the features; refuse unknown names, a target among them, or none at all."""
    variable = schema[target]
    if isinstance(features, str):
        raise InputError(f"'features' must be a list of names, not the one text {features!r}.")
    names = tuple(name for name in schema if name != target) if features is None else tuple(features)
    for name in names:
        schema[name]
        if names.count(name) > 1:
            raise InputError(f"The feature {name!r} is named twice.")
    if target in names:
        raise InputError(f"The target {target!r} cannot be one of the features.")
    if not names:
        raise InputError("Naive Bayes needs at least one feature.")
    if len(variable) < 2:
        raise InputError(f"The target {target!r} has one class only: there is nothing to tell apart.")
    return names


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


def _warn_of_empty(target: Variable, counts: Floats) -> None:
    empty = [repr(label) for label, count in zip(target.categories, counts, strict=True) if count <= 0]
    if empty:
        warnings.warn(
            f"The estimated count of {target.name} = {', '.join(empty)} is zero or negative: "
            "these classes have probability 0 and are never predicted.",
            MasqueradeWarning,
            stacklevel=3,
        )


def _distribution_of(values: Mapping[str, Any], shape: tuple[int, ...], name: str) -> tuple[Floats, Floats]:
    """Return probabilities and standard errors read from a file; rows must be distributions."""
    table = model_file.array_of(
        model_file.entry(values, "probabilities", list), shape, f"{name}.probabilities"
    )
    errors = model_file.array_of(model_file.entry(values, "stderr", list), shape, f"{name}.stderr")
    if np.any(table < 0) or not np.allclose(table.sum(axis=-1), 1, atol=1e-9) or np.any(errors < 0):
        raise InputError(
            f"the probabilities of {name!r} must be rows that sum to 1, with errors of 0 or more."
        )
    return table, errors
