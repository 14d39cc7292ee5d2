"""Linear classifiers from any source of counts: the model and its learner."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from masquerade.core.answered_tally import (
    MissingAnswers,
    ModelMissing,
    missing_answers_of,
    people_who_answered,
)
from masquerade.core.axes import Floats
from masquerade.core.errors import InputError, MasqueradeWarning, did_you_mean
from masquerade.core.intervals import normal_interval
from masquerade.core.plots.drawing import Dots, dot_plot
from masquerade.core.query import Query
from masquerade.core.schema import Schema, Variable
from masquerade.core.table import CountTable
from masquerade.core.tally import Tally
from masquerade.core.util.display import Printed
from masquerade.core.util.formatting import counted, printable
from masquerade.learn import model_file
from masquerade.learn.classifiers import _losses as losses
from masquerade.learn.classifiers.prediction_rows import CodedClassifier, require_features
from masquerade.learn.density import category_numbers
from masquerade.learn.model_file import Saved, part_values

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

Loss = Literal["pocket", "squares", "logistic"]
Counts = Literal["auto", "mle", "simplex", "clip", "unbiased"]
Scores = Mapping[str, Sequence[float] | Literal["indicator"]]

KIND = "linear_classifier"
TIES = 1e-9
TINY = 1e-300
MUCH = 0.01  # share of negative counts above which the summary warns
Cost = Callable[[losses.Basis, Floats, Floats], losses.Fitted]

MOST_CELLS = 2**20
MOST_LIKELY_CELLS = 2**14  # above this the most likely table takes minutes, so "auto" clips instead
MOST_JOINT_WORK = 2**22  # cells × coefficients above which only variances are computed
MOST_ERROR_WORK = 2**27  # cells × coefficients above which standard errors are omitted


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LinearClassifier(Printed, CodedClassifier, Saved):
    """A linear discriminant of two classes, or one per class against the rest.

    With two classes, a positive discriminant predicts the second. With more, the largest discriminant wins.

    Attributes
    ----------
    target : Variable
        The predicted variable.
    features : tuple of Variable
        Variables to predict from.
    codings : tuple of ndarray
        Numbers of the categories of each feature, categories × columns.
    names : tuple of str
        Columns of the design.
    loss : str
        "pocket", "squares" or "logistic".
    coefficients : ndarray
        One row per discriminant: the intercept, then one number per column.
    stderr : ndarray or None
        Standard errors of the coefficients. None for pocket, whose loss has no slope, and for large tables.
    accuracy : float
        Share of the records, by the counts used for learning, that are classified correctly.
    accuracy_stderr : float
        Standard error of `accuracy`.
    counts : str
        How negative counts were handled.
    negative : float
        Sum of the negative unbiased counts before projection, as a share of the records.
    ridge : float
        Penalty.
    n : int
        Number of records.
    shares : tuple of ndarray or None
        Shares of the categories of each feature, needed to predict disguised rows. None in files of earlier
        versions.
    missing : MissingAnswers or None
        Shares of missing answers, and how they were treated.
    covariance : ndarray or None
        Covariance of all coefficients, row by row. None for pocket, large tables and loaded models.

    Examples
    --------
    >>> model = mq.learn.linear_classifier(mq.tally(mq.data.students()), "sleep", loss="logistic")
    >>> model.names
    ('exams=many', 'year', 'pills=yes')
    >>> model.coefficients.round(2).tolist()
    [[1.12, 0.01, -0.01, -1.8]]
    """

    target: Variable
    features: tuple[Variable, ...]
    codings: tuple[Floats, ...]
    names: tuple[str, ...]
    loss: Loss
    coefficients: Floats
    stderr: Floats | None
    accuracy: float
    accuracy_stderr: float
    counts: str
    negative: float
    ridge: float
    n: int
    shares: tuple[Floats, ...] | None = None
    missing: MissingAnswers | None = None
    covariance: Floats | None = None

    @property
    def outputs(self) -> tuple[str, ...]:
        """Return the class of each discriminant."""
        labels = self.target.categories
        return tuple(map(str, labels[1:] if len(labels) == 2 else labels))

    def decision_function(self, frame: Any) -> Floats:
        """Return the discriminants of clear rows: one number per row for two classes, else rows × classes."""
        scores = self.scores(self._codes(frame))
        return scores[:, 0] if len(self.target) == 2 else scores

    def predict_proba(self, frame: Any) -> Floats:
        """Return P(class | row) of the logistic loss, rows × classes; one against the rest, normalised."""
        if self.loss != "logistic":
            raise InputError(f"Only loss='logistic' has probabilities; this model has {self.loss!r}.")
        chance = losses.expit(self.scores(self._codes(frame)))
        if len(self.target) == 2:
            return np.hstack([1 - chance, chance])
        sums = chance.sum(axis=1, keepdims=True)
        return np.where(sums > 0, chance / np.where(sums > 0, sums, 1.0), 1 / len(self.target))

    def predict_stderr(self, frame: Any) -> Floats:
        """Compute the standard errors of `predict_proba`, by the delta method on all coefficients.

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
            If the loss is not logistic, or the model was loaded from a file or learned from a large table.

        Notes
        -----
        Formula: ∂p = p(1 − p)·x of each discriminant, then of the normalised shares. Other losses have no
        probabilities, so the delta method does not apply.

        Examples
        --------
        >>> model = mq.learn.linear_classifier(mq.tally(mq.data.students()), "sleep", loss="logistic")
        >>> model.predict_stderr(mq.data.students()[:1]).round(3).tolist()
        [[0.058, 0.058]]
        """
        chances = self.predict_proba(frame)
        if self.covariance is None:
            raise InputError(
                "This model has no covariance of its coefficients: it was loaded from a file or comes from "
                "disguised_view(), or a class does not occur, or the table is too large."
            )
        design = np.hstack([np.ones((len(chances), 1)), self._design(self._codes(frame))])
        single = losses.expit(design @ self.coefficients.T)  # rows × discriminants
        inner = single * (1 - single)
        if len(self.target) == 2:
            shares = np.stack([-inner, inner], axis=1)
        else:  # P_c = s_c/Σs, so ∂P_c/∂s_d = (δ_cd − P_c)/Σs
            own = np.eye(len(self.target)) - chances[:, :, None]
            shares = own / np.maximum(single.sum(axis=1), TINY)[:, None, None] * inner[:, None, :]
        slopes = (shares[..., None] * design[:, None, None, :]).reshape(*chances.shape, -1)
        variance = np.einsum("rcp,pq,rcq->rc", slopes, self.covariance, slopes)
        return np.asarray(np.sqrt(np.maximum(variance, 0.0)))

    def scores(self, codes: Mapping[str, NDArray[np.integer[Any]]]) -> Floats:
        """Return the discriminants, rows × discriminants, from codes of the features."""
        return np.asarray(self._design(codes) @ self.coefficients[:, 1:].T + self.coefficients[:, 0])

    def _design(self, codes: Mapping[str, NDArray[np.integer[Any]]]) -> Floats:
        """Return the numbers of the rows, one column per coefficient but the intercept."""
        codings = self.codings
        if self.shares is not None:  # a feature that is not known (code −1) counts with its mean
            known = zip(codings, self.shares, strict=True)
            codings = tuple(np.vstack([coding, shares @ coding]) for coding, shares in known)
        parts = [
            codes_of[codes[feature.name]] for feature, codes_of in zip(self.features, codings, strict=True)
        ]
        return np.hstack(parts)

    def predict_codes(self, codes: Mapping[str, NDArray[np.integer[Any]]]) -> NDArray[np.intp]:
        """Return the codes of the classes from codes of the features; ties go to the first."""
        return _winners(np.moveaxis(self.scores(codes), -1, 0))

    def coefficient_frame(self) -> pd.DataFrame:
        """Return a pandas frame: class, term, coefficient, stderr; the intercept of a class comes first."""
        import pandas as pd  # noqa: PLC0415  (learners load pandas only when a frame is asked for)

        terms = ["(intercept)", *self.names]
        frame = pd.DataFrame(
            {
                "class": np.repeat(self.outputs, len(terms)),
                "term": np.tile(terms, len(self.outputs)),
                "coefficient": self.coefficients.ravel(),
            }
        )
        return frame if self.stderr is None else frame.assign(stderr=self.stderr.ravel())

    @printable
    def summary(self) -> str:
        """Return the coefficients as text, with standard errors where they are known."""
        lines = [
            f"Linear classifier of {self.target.name}: {self.loss}, ridge = {self.ridge:g}, n = {self.n:,}",
            f"Counts: {self.counts}; below zero before projecting: {self.negative:.1%} of the records",
            f"Training accuracy: {self.accuracy:.4f} ± {self.accuracy_stderr:.4f}",
        ]
        columns = ["(intercept)", *self.names]
        left = max(map(len, columns))
        width = max(22, *(len(label) + 2 for label in self.outputs))
        lines.append(" " * left + "".join(label.rjust(width) for label in self.outputs))
        for i, name in enumerate(columns):
            cells = [f"{row[i]:.4g}" for row in self.coefficients]
            if self.stderr is not None:
                cells = [f"{cell} ± {row[i]:.2g}" for cell, row in zip(cells, self.stderr, strict=True)]
            lines.append(name.ljust(left) + "".join(cell.rjust(width) for cell in cells))
        if self.stderr is None:
            why = "the pocket loss has no slope" if self.loss == "pocket" else "the table is too large"
            lines.append(f"Standard errors of coefficients are omitted: {why}.")
        elif self.counts != "unbiased" and self.negative > MUCH:
            lines.append("Projecting the negative counts causes a bias that the standard errors omit.")
        return "\n".join([*lines, *model_file.missing_lines(self.missing)])

    def plot(self, ax: Axes | None = None, level: float = 0.95) -> Axes:
        """Draw the coefficients, with intervals if their errors are known.

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
        ends = [
            (None, None) if self.stderr is None else normal_interval(row, self.stderr[d], level)
            for d, row in enumerate(self.coefficients)
        ]
        series = {
            label: Dots(row, *interval)
            for label, row, interval in zip(self.outputs, self.coefficients, ends, strict=True)
        }
        known = "" if self.stderr is None else f", {level:.0%} intervals"
        return dot_plot(
            ["(intercept)", *self.names],
            series,
            ax,
            xlabel=f"coefficient{known}",
            title=f"Linear classifier of {self.target.name} ({self.loss})",
            legend=self.target.name,
            mark=0.0,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values that `from_dict` reads back to the same model."""
        return {
            **model_file.header(KIND),
            **part_values(self, "n", "loss", "ridge", "counts", "negative"),
            **part_values(self, "accuracy", "accuracy_stderr", "target"),
            "features": [
                {
                    **part_values(feature),
                    "numbers": model_file.plain(coding),
                    **({} if self.shares is None else {"shares": model_file.plain(self.shares[place])}),
                }
                for place, (feature, coding) in enumerate(zip(self.features, self.codings, strict=True))
            ],
            "columns": list(self.names),
            **part_values(self, "coefficients", "stderr"),
            **model_file.missing_values(self.missing),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> LinearClassifier:
        """Return the model that `to_dict` described; raise InputError if the values are not valid."""
        target, features = model_file.target_and_features(values, KIND)
        codings, shares = list[Floats](), list[Floats]()
        for item, feature in zip(values["features"], features, strict=True):
            rows = model_file.entry(item, "numbers", list)
            columns = len(rows[0]) if rows and isinstance(rows[0], list) else 0
            codings.append(model_file.array_of(rows, (len(feature), columns), f"{feature.name}.numbers"))
            if "shares" in item:
                shares.append(model_file.array_of(item["shares"], (len(feature),), f"{feature.name}.shares"))
        if any(abs(part.sum() - 1) > 1e-6 or part.min() < 0 for part in shares):
            raise InputError("The shares of a feature's categories do not add up to 1.")
        names = tuple(map(str, model_file.entry(values, "columns", list)))
        if len(names) != sum(coding.shape[1] for coding in codings) or len(target) < 2:
            raise InputError("'columns' must name every number of the features; 'target' needs two classes.")
        shape = (1 if len(target) == 2 else len(target), 1 + len(names))
        model = model_file.part_of(
            cls,
            values,
            {"coefficients": shape, "stderr": shape},
            target=target,
            features=features,
            codings=tuple(codings),
            names=names,
            missing=model_file.missing_of(values),
            covariance=None,
            shares=tuple(shares) if len(shares) == len(features) else None,
            loss=_one_of("loss", model_file.entry(values, "loss", str), get_args(Loss)),
            counts=_one_of("counts", model_file.entry(values, "counts", str), get_args(Counts)[1:]),
        )
        slopes, intercepts = model.coefficients[:, 1:], model.coefficients[:, 0]
        # a class that does not occur has the intercept -inf
        if not np.all(np.isfinite(slopes)) or np.any(intercepts == np.inf):
            raise InputError("'coefficients' must contain finite numbers.")
        # unbiased counts may be negative, so a share may be outside [0, 1]
        if model.counts != "unbiased" and not 0 <= model.accuracy <= 1 + model_file.ROUNDING:
            raise InputError("'accuracy' must be between 0 and 1.")
        return model


def linear_classifier(
    source: Tally,
    target: str,
    features: Sequence[str] | None = None,
    loss: Loss = "pocket",
    scores: Scores | None = None,
    *,
    ridge: float = 0.0,
    counts: Counts = "auto",
    steps: int = 20_000,
    seed: int = 0,
    missing: ModelMissing = "answered",
) -> LinearClassifier:
    """Learn a linear classifier from counts, by minimising the expected cost.

    Ma (2006) minimises Σ over disguised records of E[cost(truth) | report]. Summed over records first, the
    weight of a configuration is one EM update of its estimated count. At the most likely table, that is
    the count itself, so the expected cost is the ordinary cost weighted by the table.

    Parameters
    ----------
    source : Tally
        Source of counts.
    target : str
        Variable to predict.
    features : sequence of str, optional
        Variables to predict from. Without it, all other variables.
    loss : {"pocket", "squares", "logistic"}
        Loss to minimise.
    scores : mapping, optional
        Numbers of a feature's categories, such as the means of `mgas`, or "indicator". Without scores,
        numbers keep their values, bins count as their midpoints, and other labels get one indicator per
        category except the first.
    ridge : float, default 0.0
        Penalty ridge·Σβ² (squares) or half of it (logistic). Not for pocket.
    counts : {"auto", "mle", "simplex", "clip", "unbiased"}
        How negative counts are handled: "mle", "simplex" and "clip" as in `CountTable.nonnegative`. "auto" is
        "mle" up to 16,384 cells and "clip" above. "unbiased" keeps them, for squares and logistic only
        (corrected scores), which avoids the bias of projection when there are more cells than records.
    steps : int, default 20000
        Steps of the pocket algorithm.
    seed : int, default 0
        Seed of the pocket algorithm.
    missing : {"answered", "category"}, default "answered"
        Count people who answered, or count missing answers as categories.

    Returns
    -------
    LinearClassifier
        The classifier.

    Raises
    ------
    InputError
        If an option is not valid, the table is too large, or fewer than two classes occur.
    NotConverged
        If the logistic loss has no finite minimum.

    Notes
    -----
    Formula: min_β Σ_cells N̂(x, c)·cost(x, c; β); several classes one against the rest. Standard errors: to
    first order a coefficient is a sum of cells with weights −H⁻¹·∂cost/∂β; its variance is a quadratic form.
    Reference: Ma (2006), §4.2 and chapter 6 (pocket); least squares and logistic are its future work (a).
    Cost: one query over all features and the target, at most 2²⁰ cells; then see `learn.classifiers._losses`.
    Error: first order in 1/n. If `negative` is large, projection biases the coefficients (not with
    "unbiased"), while standard errors remain those of the unbiased counts. The bias of a ridge is not
    included.

    Examples
    --------
    >>> model = mq.learn.linear_classifier(mq.tally(mq.data.students()), "sleep", loss="logistic")
    >>> round(model.accuracy, 3)
    0.733
    """
    source = people_who_answered(source, missing)
    names = require_features(source.schema, target, features)
    _check_size(source.schema, target, names)
    _check_options(loss, ridge, counts, steps)
    coded = [_coding(source.schema[name], (scores or {}).get(name)) for name in names]
    unused = [name for name in scores or {} if name not in names]
    if unused:
        raise InputError(
            f"'scores' are given for {unused[0]!r}, not a feature.{did_you_mean(unused[0], names)}"
        )
    (table,) = source.answer([Query(by=(*names, target))])
    method = counts if counts != "auto" else "mle" if table.values.size <= MOST_LIKELY_CELLS else "clip"
    cells = table.values if method == "unbiased" else table.nonnegative(method).values
    codings = [matrix for _, matrix in coded]
    generator = np.random.default_rng(seed)

    def cost(basis: losses.Basis, positive: Floats, totals: Floats) -> losses.Fitted:
        if loss == "pocket":
            return losses.pocket(basis, positive, totals, steps, generator)
        smooth = losses.squares if loss == "squares" else losses.logistic
        return smooth(basis, positive, totals, ridge)

    fits = _fits(table.axes[-1], codings, cells, cost)
    coefficients = np.array([one.coefficients for one in fits])
    chosen = _winners(np.stack([grid(codings, row) for row in coefficients]))
    right = np.asarray(chosen[..., None] == np.arange(cells.shape[-1]), dtype=float)
    total = cells.sum()
    accuracy = float((cells * right).sum() / total)
    spread = max(table.covariance.quadratic(right - accuracy), 0.0)
    errors = _covariance(table, codings, fits, loss)
    return LinearClassifier(
        target=table.axes[-1],
        features=table.axes[:-1],
        codings=tuple(codings),
        names=tuple(name for columns, _ in coded for name in columns),
        loss=loss,
        coefficients=coefficients,
        stderr=None
        if errors is None
        else np.sqrt(np.maximum(np.diag(errors), 0.0)).reshape(coefficients.shape),
        accuracy=accuracy,
        accuracy_stderr=float(np.sqrt(spread) / total),
        counts=method,
        negative=float(np.maximum(-table.values, 0.0).sum() / total),
        ridge=float(ridge),
        n=table.n,
        shares=tuple(_shares(cells, axis) for axis in range(len(names))),
        missing=missing_answers_of(source),
        covariance=errors if errors is not None and np.all(np.isfinite(errors)) else None,
    )


def _shares(cells: Floats, axis: int) -> Floats:
    """Return the shares of a feature's categories; negative estimates count as zero."""
    sums = cells.sum(axis=tuple(other for other in range(cells.ndim) if other != axis))
    positive = np.maximum(sums, 0.0)
    return np.asarray(positive / positive.sum())


def _fits(target: Variable, codings: Sequence[Floats], cells: Floats, cost: Cost) -> list[losses.Fitted]:
    """Return the discriminants of a table: one for two classes, else one per class against the rest.

    The discriminant of a class that does not occur is minus infinity, with a warning.
    """
    flat = cells.reshape(-1, len(target))
    occurs = flat.sum(axis=0) > TIES * flat.sum()
    if not flat.sum() > 0 or np.count_nonzero(occurs) < 2:
        raise InputError(f"Nothing can be learnt: fewer than two classes of {target.name!r} occur.")
    used = np.flatnonzero(np.any(flat != 0, axis=1))
    codes = np.unravel_index(used, cells.shape[:-1])
    design = np.hstack([matrix[code] for matrix, code in zip(codings, codes, strict=True)])
    totals = flat[used].sum(axis=1)
    basis = losses.basis_of(design, totals)
    columns = design.shape[1]
    if basis.rank < 1 + columns:
        warnings.warn(
            "Some features never vary or are determined by the others: of all equally good coefficients the "
            "smallest are used, and standard errors refer to these.",
            MasqueradeWarning,
            stacklevel=3,
        )
    fits = []
    for code in [1] if len(target) == 2 else range(len(target)):
        if occurs[code]:
            fits.append(cost(basis, flat[used, code], totals))
        else:
            text = f"{target.name} = {target.categories[code]!r} does not occur: it is never predicted."
            warnings.warn(text, MasqueradeWarning, stacklevel=3)
            fits.append(losses.Fitted(np.array([-np.inf, *np.zeros(columns)]), None))
    return fits


def _covariance(
    table: CountTable, codings: Sequence[Floats], fits: Sequence[losses.Fitted], loss: Loss
) -> Floats | None:
    """Return the covariance of all coefficients, from their influences, or None if not feasible.

    Variances of a class that does not occur are infinite. Covariances in large tables are NaN.
    """
    columns = len(fits[0].coefficients)
    if loss == "pocket" or table.values.size * columns * len(fits) > MOST_ERROR_WORK:
        return None
    known = [d for d, one in enumerate(fits) if one.inverse is not None]

    def influence(place: int) -> Floats:
        d, row = divmod(place, columns)
        classes = np.arange(table.values.shape[-1]) == (1 if len(fits) == 1 else d)
        eta = grid(codings, fits[d].coefficients)[..., None]
        residual = eta - np.where(classes, 1.0, -1.0) if loss == "squares" else losses.expit(eta) - classes
        return grid(codings, np.asarray(fits[d].inverse)[row])[..., None] * residual

    result = np.diag(np.full(len(fits) * columns, np.inf))
    if known:
        places = np.concatenate([np.arange(d * columns, (d + 1) * columns) for d in known])
        if table.values.size * len(places) <= MOST_JOINT_WORK:
            cells = np.stack([influence(place) for place in places])
            result[np.ix_(places, places)] = table.covariance.between(cells, cells)
        else:
            result[np.ix_(places, places)] = np.nan
            for place in places:
                result[place, place] = table.covariance.quadratic(influence(place))
    return result


def _check_size(schema: Schema, target: str, names: Sequence[str]) -> None:
    cells = prod(schema.shape((*names, target)))
    if cells > MOST_CELLS:
        raise InputError(
            f"The table of {counted(len(names), 'feature')} and {target!r} has {cells:,} cells; at most "
            f"{MOST_CELLS:,} are allowed. Name fewer 'features', or "
            "disguise them with fewer categories or wider bins."
        )


def _check_options(loss: str, ridge: float, counts: str, steps: int) -> None:
    _one_of("loss", loss, get_args(Loss))
    _one_of("counts", counts, get_args(Counts))
    if not np.isfinite(ridge) or ridge < 0:
        raise InputError(
            f"The 'ridge' parameter of linear_classifier() must be 0 or more. Got {ridge} instead."
        )
    if loss == "pocket" and (counts == "unbiased" or ridge or steps < 1):
        raise InputError(
            "loss='pocket' needs at least one step, and allows neither a ridge nor negative counts."
        )


def _winners(scores: Floats) -> NDArray[np.intp]:
    """Return the class codes from discriminants along the first axis; ties go to the first class."""
    if len(scores) == 1:
        return np.asarray(scores[0] > TIES, dtype=np.intp)
    best = scores.max(axis=0)
    return np.asarray((scores >= best - TIES * (1 + np.abs(best))).argmax(axis=0), dtype=np.intp)


def grid(codings: Sequence[Floats], coefficients: Floats) -> Floats:
    """Return intercept + Σ numbers·coefficients for every configuration, as an array over the features."""
    total = np.full((1,) * len(codings), coefficients[0])
    at = 1
    for axis, matrix in enumerate(codings):
        part = matrix @ coefficients[at : at + matrix.shape[1]]
        total = total + part.reshape([-1 if i == axis else 1 for i in range(len(codings))])
        at += matrix.shape[1]
    return total


def _coding(variable: Variable, given: Sequence[float] | str | None) -> tuple[list[str], Floats]:
    """Return the names of a feature's columns and the numbers of its categories in them."""
    numbers = category_numbers(variable) if given is None else None
    if given is not None and not isinstance(given, str):
        numbers = np.asarray(given, dtype=float)
        if numbers.shape != (len(variable),) or not np.all(np.isfinite(numbers)):
            raise InputError(f"The scores of {variable.name!r} must be {len(variable)} finite numbers.")
    elif given is not None and given != "indicator":
        raise InputError(f"The scores of {variable.name!r} must be numbers or 'indicator'. Got {given!r}.")
    if numbers is not None:
        return [variable.name], numbers[:, None]
    return [f"{variable.name}={label}" for label in variable.categories[1:]], np.eye(len(variable))[:, 1:]


def _one_of(name: str, given: str, known: Sequence[str]) -> Any:
    if given not in known:
        raise InputError(f"The {name!r} must be one of {', '.join(map(repr, known))}. Got {given!r} instead.")
    return given
