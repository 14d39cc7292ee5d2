"""Naive Bayes from any source of counts."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from masquerade.core.answered_tally import (
    MissingAnswers,
    ModelMissing,
    missing_answers_of,
    people_who_answered,
)
from masquerade.core.axes import Floats
from masquerade.core.errors import InputError, MasqueradeWarning
from masquerade.core.intervals import Flags, normal_interval, ratio_errors
from masquerade.core.plots.drawing import Dots, dot_plot
from masquerade.core.query import Query
from masquerade.core.schema import Variable
from masquerade.core.table import CountTable
from masquerade.core.tally import Tally
from masquerade.core.util.display import Printed
from masquerade.core.util.formatting import counted, printable
from masquerade.learn import model_file
from masquerade.learn.classifiers.prediction_rows import (
    LogScores,
    normalise_scores,
    require_features,
    sum_logs,
)
from masquerade.learn.model_file import Saved, part_values
from masquerade.learn.networks.composite_fit import fit_composite
from masquerade.learn.networks.joint_fit import fit_tables, inner_chances, table_errors, warn_of_step
from masquerade.learn.networks.joint_likelihood import joint_likelihood_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

KIND = "naive_bayes"
FEWEST_SIGMAS = 5.0  # least class count, in its standard errors, for which the delta method is reliable
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class ProbabilityTable:
    """Probabilities, summing to 1 over the last axis, and their standard errors."""

    probabilities: Floats
    stderr: Floats

    @classmethod
    def read(cls, values: Mapping[str, Any], shape: tuple[int, ...], name: str) -> ProbabilityTable:
        """Return the probabilities of a variable in a model file; raise InputError if they are not valid."""
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
    """Naive Bayes classifier: P(class) and P(feature | class) with standard errors.

    A class without support (estimated count ≤ 0) has probability 0 and uniform rows with infinite standard
    errors, and is never predicted.

    Attributes
    ----------
    target : Variable
        The predicted variable.
    features : tuple of Variable
        Variables to predict from.
    prior : ndarray
        P(class).
    prior_stderr : ndarray
        Standard errors of `prior`.
    probabilities : tuple of ndarray
        P(category | class) of each feature, one row per class.
    stderrs : tuple of ndarray
        Standard errors of `probabilities`.
    reliable : ndarray of bool
        False for a class whose count is less than five standard errors: the delta method is not reliable
        there.
    alpha : float
        Pseudo-count.
    n : int
        Number of records.
    missing : MissingAnswers or None
        Shares of missing answers, and how they were treated.
    covariance : ndarray or None
        Joint covariance of the logits of the prior and of all rows, in the order of the features, for a model
        fitted with ``method="likelihood"`` or ``"composite"``. Files do not contain it.

    Examples
    --------
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
    missing: MissingAnswers | None = None
    covariance: Floats | None = None

    def predict_stderr(self, frame: Any) -> Floats:
        """Compute the standard errors of `predict_proba`, by the delta method on the joint covariance.

        Parameters
        ----------
        frame : data frame or mapping
            Rows to predict, as in `predict_proba`.

        Returns
        -------
        ndarray
            One row per record, classes in the order of `target`.

        Raises
        ------
        InputError
            If the model was not fitted with ``method="likelihood"`` or ``"composite"``.

        Notes
        -----
        Formula: ∂ P(c | x) = P(c | x) (s_c − Σ_c' P(c' | x) s_c'), s_c the gradient of ln P(c, x) in the
        logits of all parameters.

        Examples
        --------
        >>> source = mq.tally(mq.data.students())
        >>> model = mq.learn.naive_bayes(source, "sleep", ["pills"], method="likelihood")
        >>> model.predict_stderr({"pills": ["no", "yes"]}).round(3).tolist()
        [[0.02, 0.02], [0.042, 0.042]]
        """
        if self.covariance is None:
            raise InputError(
                "The errors of predictions need the covariance of all tables: fit the model with "
                "method='likelihood', or method='composite' where only tables are known."
            )
        codes = self._codes(frame)
        columns = np.stack([codes[feature.name] for feature in self.features], axis=1)
        rows, member = np.unique(columns, axis=0, return_inverse=True)
        distinct = {feature.name: rows[:, i] for i, feature in enumerate(self.features)}
        chances = np.exp(normalise_scores(self.scores(distinct), self.prior))
        errors = np.empty(chances.shape)
        for i, (row, likely) in enumerate(zip(rows, chances, strict=True)):
            slopes = likely[:, None] * (self._slopes(row) - likely @ self._slopes(row))
            variance = np.einsum("cp,pq,cq->c", slopes, self.covariance, slopes)
            errors[i] = np.sqrt(np.maximum(variance, 0.0))
        return np.asarray(errors[member.ravel()])

    def _slopes(self, row: NDArray[np.integer[Any]]) -> Floats:
        """Return ∂ ln P(class, row) / ∂ logits (classes, parameters); an unknown feature adds nothing."""
        classes = np.eye(len(self.target))
        parts = [classes[:, :-1] - self.prior[:-1]]
        for table, code in zip(self.probabilities, row.tolist(), strict=True):
            seen = np.eye(table.shape[1])[code] if code >= 0 else table
            slope = (seen - table)[:, :-1]
            parts.append((classes[:, :, None] * slope[None]).reshape(len(classes), -1))
        return np.concatenate(parts, axis=1)

    def scores(self, codes: Mapping[str, NDArray[np.integer[Any]]]) -> Floats:
        """Return ln P(class, row) = ln P(c) + Σ_i ln P(x_i | c), rows × classes, from codes of features."""
        return sum_logs(
            self.prior,
            [
                (table, codes[feature.name])
                for feature, table in zip(self.features, self.probabilities, strict=True)
            ],
        )

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas frame: variable, category, class, probability, stderr; the target comes first."""
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
        return "\n".join([*lines, *model_file.missing_lines(self.missing)])

    def plot(self, ax: Axes | None = None, level: float = 0.95) -> Axes:
        """Draw every probability with its interval, one colour per class; unreliable classes are hollow.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Axes to draw on. By default a new figure.
        level : float, default 0.95
            Confidence level of the intervals.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
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
                **part_values(ProbabilityTable(self.prior, self.prior_stderr)),
                "reliable": self.reliable.tolist(),
            },
            "features": [
                {**part_values(feature), **part_values(ProbabilityTable(table, errors))}
                for feature, table, errors in zip(
                    self.features, self.probabilities, self.stderrs, strict=True
                )
            ],
            **model_file.missing_values(self.missing),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> NaiveBayes:
        """Return the model that `to_dict` described; raise InputError if the values are not valid."""
        target, features = model_file.target_and_features(values, KIND)
        entries = values["target"]
        prior = ProbabilityTable.read(entries, (len(target),), target.name)
        tables = [
            ProbabilityTable.read(item, (len(target), len(feature)), feature.name)
            for item, feature in zip(values["features"], features, strict=True)
        ]
        return cls(
            target,
            features,
            prior.probabilities,
            prior.stderr,
            tuple(table.probabilities for table in tables),
            tuple(table.stderr for table in tables),
            model_file.array_of(
                model_file.entry(entries, "reliable", list), (len(target),), "reliable", flags=True
            ),
            model_file.number(values, "alpha"),
            model_file.entry(values, "n", int),
            model_file.missing_of(values),
        )


def naive_bayes(
    source: Tally,
    target: str,
    features: Sequence[str] | None = None,
    alpha: float = 1.0,
    *,
    missing: ModelMissing = "answered",
    method: Literal["counts", "likelihood", "composite"] = "counts",
) -> NaiveBayes:
    """Learn a naive Bayes classifier from counts.

    Estimated counts may be negative, probabilities may not. Negative class counts are set to zero and the
    others rescaled to the total ("clip"). Within a class, negative counts of a feature are set to zero and
    the others rescaled to the count of the class. A class with a count of zero or less causes a warning.

    Parameters
    ----------
    source : Tally
        Source of counts.
    target : str
        Variable to predict.
    features : sequence of str, optional
        Variables to predict from. Without it, all other variables.
    alpha : float, default 1.0
        Pseudo-count added to every cell of a class.
    missing : {"answered", "category"}, default "answered"
        Count people who answered, or count missing answers as categories.
    method : {"counts", "likelihood", "composite"}
        "counts" estimates the table of each feature separately. "likelihood" maximises the joint likelihood
        of the reports, and needs a source with the reports of each record. "composite" maximises the
        composite likelihood of pairs, for sources that have tables only. With the last two, predictions have
        standard errors (`NaiveBayes.predict_stderr`), and `alpha` is not used.

    Returns
    -------
    NaiveBayes
        The classifier.

    Raises
    ------
    InputError
        If a variable is unknown, `alpha` is negative, or no class has a positive count.
    QueryRefused
        If the source refuses a query.

    Notes
    -----
    Formula: P(c) = N_c/n, P(x | c) = (N_cx + alpha)/(N_c + alpha·K), K the categories of the feature; Var P(x
    | c) ≈ (Var N̂_cx − 2θ Cov(N̂_cx, N̂_c) + θ² Var N̂_c)/(N_c + alpha·K)², from the unbiased counts.
    Reference: Zhan, Chang & Matwin (2004) §3.4; with alpha = 1 scikit-learn's CategoricalNB on clear records.
    Cost: one batch with one query per feature and one for the classes.
    Error: first order in 1/n; flagged where N̂_c is below five standard errors.

    Examples
    --------
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
    source = people_who_answered(source, missing)
    names = require_features(source.schema, target, features)
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
    if method in ("likelihood", "composite"):
        return _fit_jointly(source, classes, tables, method)
    if method != "counts":
        raise InputError(f"The method must be 'counts', 'likelihood' or 'composite'. Got {method!r} instead.")
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
        missing_answers_of(source),
    )


def _fit_jointly(source: Tally, classes: CountTable, tables: Sequence[CountTable], method: str) -> NaiveBayes:
    """Return the model whose tables maximise the joint or composite likelihood of the reports."""
    target = classes.axes[0]
    structure = {target.name: (), **{table.axes[1].name: (target.name,) for table in tables}}
    counts = {table.axes[-1].name: table for table in (classes, *tables)}
    if method == "composite":
        fit = fit_composite(source, structure, counts)
    else:
        start = {name: np.maximum(table.values, 0.0) for name, table in counts.items()}
        fit = fit_tables(joint_likelihood_of(source, structure), inner_chances(start))
    warn_of_step(fit)
    errors = table_errors(fit)
    names = [table.axes[1].name for table in tables]
    reliable = fit.counts[target.name] >= FEWEST_SIGMAS * errors[target.name] * fit.n
    return NaiveBayes(
        target,
        tuple(table.axes[1] for table in tables),
        fit.tables[target.name],
        errors[target.name],
        tuple(fit.tables[name] for name in names),
        tuple(errors[name] for name in names),
        np.asarray(reliable),
        0.0,
        classes.n,
        missing_answers_of(source),
        fit.covariance,
    )


def _conditional(table: CountTable, counts: Floats, alpha: float) -> tuple[Floats, Floats]:
    size = len(table.axes[1])
    clipped = np.maximum(table.values, 0.0)
    sums = clipped.sum(axis=1, keepdims=True)
    # rows that already sum to their class are not rescaled: clear counts stay exact
    off = np.abs(sums - counts[:, None]) > ROUNDING * table.n
    scale = np.where(off, counts[:, None] / np.where(sums > 0, sums, 1.0), 1.0)
    cells = np.where(counts[:, None] > 0, np.where(sums > 0, clipped * scale, counts[:, None] / size), 0.0)
    whole = cells.sum(axis=1) + alpha * size
    seen = whole > 0
    safe = np.where(seen, whole, 1.0)
    probabilities = np.where(seen[:, None], (cells + alpha) / safe[:, None], 1 / size)
    errors = ratio_errors(probabilities, table.within((table.axes[1].name,)), safe).stderr
    return probabilities, np.where((counts > 0)[:, None], errors, np.inf)
