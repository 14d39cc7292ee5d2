"""Predicted shares and means for rows of covariates or averaged over records, with delta-method errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError
from masquerade.core.schema import Category, Variable
from masquerade.stats.missing_values import answers_only
from masquerade.stats.regression.families import Family
from masquerade.stats.regression.formula import Cells, column
from masquerade.stats.regression.inference import LikelihoodFit
from masquerade.stats.regression.problem import Covariates

if TYPE_CHECKING:
    import pandas as pd

NUDGE = 1e-6
NODES = 25  # nodes of the quadrature over random intercepts
At = Mapping[str, Any] | Sequence[Mapping[str, Any]] | None


@dataclass(frozen=True, slots=True, eq=False)
class PredictionRows:
    """Rows of covariates: their names, their labels and their terms."""

    names: tuple[str, ...]
    labels: tuple[tuple[Category, ...], ...]
    X: Floats


def rows_of_cells(cells: Cells, at: At) -> PredictionRows:
    """Return the rows to predict, from combinations of a table's covariates; by default all combinations."""
    variables = cells.variables
    names = tuple(variable.name for variable in variables)
    every = [*product(*(variable.categories for variable in variables))]
    if at is None:
        return PredictionRows(names, tuple(every), cells.X)
    chosen = []
    for one in _as_mappings(at):
        _check_given(names, one)
        codes = [variable.code(one[variable.name]) for variable in variables]
        sizes = [len(variable) for variable in variables]
        chosen.append(int(np.ravel_multi_index(codes, sizes)) if sizes else 0)
    return PredictionRows(names, tuple(every[row] for row in chosen), cells.X[chosen])


def rows_of_covariates(covariates: Covariates, at: At | pd.DataFrame) -> PredictionRows:
    """Return the rows to predict, from covariates that may include clear columns."""
    names = (*(variable.name for variable in covariates.variables), *covariates.clear)
    if at is None:
        if covariates.clear:
            raise InputError(
                f"Give rows to predict, as mappings or a frame: {', '.join(covariates.clear)} have no list "
                "of categories."
            )
        every = product(*(variable.categories for variable in covariates.variables))
        at = [dict(zip(names, labels, strict=True)) for labels in every]
    rows = _as_mappings(at)
    for one in rows:
        _check_given(names, one)
    labels = tuple(tuple(one[name] for name in names) for one in rows)
    return PredictionRows(names, labels, covariates.matrix.build(frame_of(covariates, rows)))


def frame_of(covariates: Covariates, rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return rows of covariates as the frame from which terms are built."""
    import pandas as pd  # noqa: PLC0415  (core and stats import pandas only when needed)

    columns: dict[str, Any] = {}
    for variable in covariates.variables:
        codes = np.array([variable.code(row[variable.name]) for row in rows], dtype=np.intp)
        reference = covariates.reference.get(variable.name)
        columns[variable.name] = column(variable, codes, reference, covariates.scores)
    for name in covariates.clear:
        values = [row[name] for row in rows]
        columns[name] = [float(v) if isinstance(v, (bool, int)) else v for v in values]
        if name in covariates.reference:
            columns[name] = [str(value) for value in values]
    return pd.DataFrame(columns, index=range(len(rows)))


def _as_mappings(at: Any) -> list[Mapping[str, Any]]:
    if isinstance(at, Mapping):
        return [at]
    if hasattr(at, "to_dict"):
        return list(at.to_dict("records"))
    return list(at)


def _check_given(names: Sequence[str], row: Mapping[str, Any]) -> None:
    missing = [name for name in names if name not in row]
    if missing:
        raise InputError(f"A prediction needs a value of every covariate. Not given: {', '.join(missing)}.")


def delta_errors(function: Callable[[Floats], Floats], values: Floats, covariance: Floats) -> Floats:
    """Return the standard errors of functions of estimates, by central differences."""
    steps = NUDGE * np.eye(len(values))
    slopes = np.stack([(function(values + e) - function(values - e)) / (2 * NUDGE) for e in steps], axis=-1)
    return np.asarray(np.sqrt(np.maximum(np.einsum("...p,pq,...q->...", slopes, covariance, slopes), 0.0)))


def interval_ends(values: Floats, stderr: Floats, z: float, scale: str) -> tuple[Floats, Floats]:
    """Return the bounds of intervals that are symmetric on the scale of the predictors."""
    if scale == "identity":
        return values - z * stderr, values + z * stderr
    if scale == "log":
        factor = np.exp(z * stderr / values)
        return values / factor, values * factor
    inside = np.clip(values, 1e-12, 1 - 1e-12)
    logit, step = np.log(inside / (1 - inside)), z * stderr / (inside * (1 - inside))
    return 1 / (1 + np.exp(-(logit - step))), 1 / (1 + np.exp(-(logit + step)))


def average_over_groups(family: Family, predictors: Floats, sd: float) -> Floats:
    """Return expected shares or means, averaged over the groups of a random intercept.

    Formula: ∫ μ(η + σu) φ(u) du by Gauss–Hermite quadrature.
    """
    points, weights = np.polynomial.hermite_e.hermegauss(NODES)
    shares = weights / weights.sum()
    each = [family.expected(predictors + sd * point) for point in points]
    return np.asarray(np.tensordot(shares, np.stack(each), axes=1))


def changes_of(covariates: Covariates) -> dict[str, Mapping[str, Any]]:
    """Return the changes of covariates whose effects are averaged: slopes, and changes between categories."""
    result: dict[str, Mapping[str, Any]] = {}
    for variable in covariates.variables:
        result |= _changes_of_variable(covariates, variable)
    for name in covariates.clear:
        values = covariates.frame[name]
        if values.dtype.kind in "fiu":
            result[name] = {name: None}
        else:
            result |= _changes_between(covariates, name, sorted(map(str, values.unique())))
    return result


def _changes_of_variable(covariates: Covariates, variable: Variable) -> dict[str, Mapping[str, Any]]:
    name, labels = variable.name, list(variable.categories)
    is_number = all(isinstance(label, int) and not isinstance(label, bool) for label in labels)
    if name in (covariates.scores or {}) or (is_number and name not in covariates.reference):
        low, high = labels[0], labels[-1]
        return {f"{name}: {high} against {low}": {name: (low, high)}}
    return _changes_between(covariates, name, labels)


def _changes_between(
    covariates: Covariates, name: str, labels: Sequence[Category]
) -> dict[str, Mapping[str, Any]]:
    first = covariates.reference.get(name, labels[0])
    return {f"{name}: {label} against {first}": {name: (first, label)} for label in labels if label != first}


def record_frame(fit: LikelihoodFit) -> tuple[Floats, pd.DataFrame]:
    """Return weights and covariates of the records, weighting disguised covariates by their posterior."""
    import pandas as pd  # noqa: PLC0415

    problem = fit.problem
    covariates = problem.covariates
    names = [*(v.name for v in covariates.variables if v.name not in covariates.hidden), *covariates.clear]
    clear = covariates.frame[names]
    if not covariates.hidden:
        return covariates.weights, clear
    posterior = problem.likelihood.posterior(fit.solution.beta)
    hidden = covariates.truths
    sizes = tuple(map(len, hidden))
    by_cell = posterior.reshape(len(posterior), int(np.prod(sizes)), -1).sum(axis=2)
    frames, weights = [], []
    for cell in range(by_cell.shape[1]):
        codes = np.unravel_index(cell, sizes)
        if any(int(c) not in v.answered_codes for v, c in zip(hidden, codes, strict=True)):
            continue  # predictions are for people who answered
        row = {v.name: v.categories[int(c)] for v, c in zip(hidden, codes, strict=True)}
        part = clear.copy()
        only = replace(covariates, variables=tuple(map(answers_only, hidden)), clear=())
        for name, values in frame_of(only, [row] * len(clear)).items():
            part[name] = values.to_numpy() if values.dtype.kind == "f" else values.array
        frames.append(part)
        weights.append(covariates.weights * by_cell[:, cell])
    return np.concatenate(weights), pd.concat(frames, ignore_index=True)


def change_covariate(
    covariates: Covariates, frame: pd.DataFrame, name: str, ends: Any
) -> tuple[pd.DataFrame, pd.DataFrame, float]:
    """Return the frame with one covariate at its lower and upper value, and their difference."""
    import pandas as pd  # noqa: PLC0415

    low, high = frame.copy(), frame.copy()
    if ends is None:
        step = 1e-4 * (float(np.std(frame[name])) or 1.0)
        low[name], high[name] = frame[name] - step, frame[name] + step
        return low, high, 2 * step
    values = frame[name]
    for part, end in ((low, ends[0]), (high, ends[1])):
        if isinstance(values.dtype, pd.CategoricalDtype):
            part[name] = pd.Categorical([str(end)] * len(part), categories=values.cat.categories)
        elif values.dtype.kind == "f" and covariates.variables:
            variable = next((v for v in covariates.variables if v.name == name), None)
            part[name] = float(end if variable is None else _number(covariates, variable, end))
        else:
            part[name] = end
    return low, high, 1.0


def _number(covariates: Covariates, variable: Variable, label: Category) -> float:
    """Return the number that represents a category in the terms."""
    only = replace(covariates, variables=(variable,), clear=())
    return float(frame_of(only, [{variable.name: label}])[variable.name].iloc[0])
