"""Regression by the corrected score, with sandwich errors: for tables, and as a check of likelihood fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.covariance import take_cells
from masquerade.core.distributions import chi_square_tail
from masquerade.core.errors import InputError, MasqueradeError
from masquerade.core.schema import Category, Schema, Variable
from masquerade.core.table import CountTable
from masquerade.core.tally import RecordTally, Tally
from masquerade.core.util.display import p_text
from masquerade.stats._tables import Where, category_of, schema_of, scores_of, table_of
from masquerade.stats.estimates import TestResult
from masquerade.stats.missing_values import answers_only
from masquerade.stats.percentages import given_text
from masquerade.stats.regression.corrected_score import score, solve, steadiness
from masquerade.stats.regression.families import Family, Mean, Multinomial, Ordinal
from masquerade.stats.regression.formula import (
    Cells,
    Formula,
    Scores,
    cells_of,
    check_names,
    check_rank,
    column,
    terms_matrix,
)
from masquerade.stats.regression.results import Regression
from masquerade.stats.regression.terms_maker import ModelOptions

if TYPE_CHECKING:
    import pandas as pd

MOST_MOMENTS = 400
NUDGE = 1e-6
DOUBTFUL = 0.05

Reference = Mapping[str, Category] | None


def fit_by_score(
    data: Tally | CountTable,
    formula: Formula,
    kind: str,
    *,
    reference: Reference = None,
    scores: Scores | None = None,
    where: Where = None,
    covariates: Any = None,
    notes: tuple[str, ...] = (),
) -> Regression:
    """Fit a regression by the corrected score: to a table, or to records with clear columns."""
    schema = Schema(answers_only(variable) for variable in schema_of(data).variables)
    if covariates is not None:
        if where:
            raise InputError("'where' and 'covariates' cannot be combined: select the records first.")
        return fit_records(data, formula, kind, covariates, reference=reference, scores=scores)[0]
    check_names(formula, schema, reference, scores)
    family, outcome, more = family_of(kind, schema[formula.outcome], formula, reference, scores)
    cells = cells_of(formula, schema, reference, scores)
    table = table_of(data, (*formula.names, formula.outcome), where).drop_missing()
    text = formula.text + given_text(where)
    return regression_of(table, cells, family, kind=kind, text=text, shown=outcome, notes=(*notes, *more))


def regression_of(
    table: CountTable,
    cells: Cells,
    family: Family,
    *,
    kind: str,
    text: str = "",
    shown: str = "",
    notes: tuple[str, ...] = (),
) -> Regression:
    """Fit a regression to a table of its covariates, in order, with the outcome as its last axis.

    `text` is the formula and `shown` the name of the outcome, both for display in the result.
    """
    outcome = table.axes[-1]
    labels = tuple(map(str, outcome.categories))
    used = cells if family.intercept else Cells(cells.variables, cells.matrix.without_intercept())
    names, X = used.terms, used.X
    counts = table.values.reshape(len(X), -1)
    Z = family.design(X)
    beta = solve(family, Z, counts, names)
    psi, information, bends = score(family, Z, counts, beta)
    shape = (-1, *table.values.shape)
    meat = table.covariance.between(psi.T.reshape(shape), psi.T.reshape(shape))
    doubt = steadiness(
        information, bends, lambda w: table.covariance.quadratic(w.reshape(table.values.shape))
    )
    bread = np.linalg.inv(information)
    test = _fit_test(table, family, X, beta, text)
    return Regression(
        kind,
        text,
        shown,
        family.terms(names, labels),
        beta,
        bread @ meat @ bread.T,
        table.n,
        family,
        labels,
        used,
        fit_test=test,
        notes=(*notes, *doubt),
    )


def family_of(
    kind: str, outcome: Variable, formula: Formula, reference: Reference, scores: Scores | None
) -> tuple[Family, str, tuple[str, ...]]:
    """Return the family of a regression, the displayed name of its outcome, and notes."""
    if kind == "logistic":
        codes = [_code_of(outcome, label) for label in formula.labels] or [category_of(outcome, None)]
        chosen = ", ".join(str(outcome.categories[code]) for code in codes)
        return Mean(kind, np.eye(len(outcome))[codes].sum(axis=0)), f"{outcome.name} = {chosen}", ()
    if formula.labels:
        raise InputError(
            f"A {kind} regression uses all categories of {outcome.name!r}: omit "
            f"[{', '.join(formula.labels)}]."
        )
    if kind in ("multinomial", "proportional odds"):
        if len(outcome) < 2:
            raise InputError(f"{outcome.name!r} has one category: there is nothing to explain.")
        places = np.arange(len(outcome), dtype=float)
        if kind == "proportional odds":
            return Ordinal(places), outcome.name, ()
        first = (reference or {}).get(outcome.name)
        base = 0 if first is None else outcome.code(first)
        return Multinomial(places, base), outcome.name, (f"Compared with {outcome.categories[base]}.",)
    numbers, note = scores_of(outcome, (scores or {}).get(outcome.name))
    if kind == "poisson" and np.any(numbers < 0):
        raise InputError(f"A Poisson regression needs counts; a score of {outcome.name!r} is below 0.")
    return Mean(kind, numbers), outcome.name, (note,) if note else ()


def _code_of(outcome: Variable, label: str) -> int:
    found = [one for one in outcome.categories if str(one).lower() == label.strip().lower()]
    return outcome.code(found[0] if found else label)


def _fit_test(table: CountTable, family: Family, X: Floats, beta: Floats, text: str) -> TestResult | None:
    """Test the fit of the model to the table, by the minimum distance of its moments.

    Formula: the minimum over β of RᵀV⁻R, where R has covariance V and R_xj = N̂_xj − N̂_x P_j(x; β), or for
    means R_x = Σ_y (s_y − μ_x)N̂_xy. It is χ² with (rank of V − number of parameters) degrees of freedom.
    Reference: Neyman (1949); Grizzle, Starmer & Koch (1969); Hansen (1982).
    """
    counts = table.values.reshape(len(X), -1)
    size = counts.shape[1]
    free = size - 1 if family.shares else 1
    seen = np.flatnonzero(counts.sum(axis=1) > 0)
    if len(seen) * free > MOST_MOMENTS or len(seen) * free <= len(beta):
        return None
    values = np.eye(size)[:free] if family.shares else family.numbers[None, :]

    def weights(b: Floats) -> Floats:
        expected = family.expected(family.design(X) @ b)[:, :free]
        full = np.zeros((len(seen), free, *counts.shape))
        for place, row in enumerate(seen):
            full[place, :, row, :] = values - expected[row][:, None]
        return full.reshape(len(seen) * free, *table.values.shape)

    def moments(b: Floats) -> Floats:
        return np.asarray(weights(b).reshape(-1, counts.size) @ counts.ravel())

    now = weights(beta)
    V = table.covariance.between(now, now)
    inverse = np.linalg.pinv(V, rcond=1e-10, hermitian=True)
    b = beta
    for _ in range(4):
        slopes = np.stack(
            [(moments(b + e) - moments(b - e)) / (2 * NUDGE) for e in NUDGE * np.eye(len(b))], 1
        )
        normal = slopes.T @ inverse @ slopes
        b = b - np.linalg.lstsq(normal, slopes.T @ inverse @ moments(b), rcond=None)[0]
    rest = moments(b)
    statistic = float(rest @ inverse @ rest)
    df = int(np.linalg.matrix_rank(V, hermitian=True)) - len(beta)
    if df <= 0 or not np.isfinite(statistic):
        return None
    return TestResult(f"Fit of {text}", statistic, df, chi_square_tail(statistic, df), table.n, "distance")


def _answer_indicators(data: Any, names: Sequence[str]) -> Floats:
    """Return each record's unbiased indicators of the cells of answers, of shape (records, cells)."""
    variables = [data.schema[name] for name in names]
    rows = np.asarray(data.indicators(tuple(names)))
    if not any(variable.missing for variable in variables):
        return rows
    cells = rows.reshape(len(rows), *map(len, variables))
    chosen = {1 + axis: variable.answered_codes for axis, variable in enumerate(variables)}
    return take_cells(cells, chosen).reshape(len(rows), -1)


def fit_records(
    data: Tally | CountTable,
    formula: Formula,
    kind: str,
    covariates: Any,
    *,
    reference: Reference,
    scores: Scores | None,
) -> tuple[Regression, Floats]:
    """Fit a regression to records with clear columns; return it with each record's influence.

    Formula: Σ_r Σ_c g_rc ψ(x_r, c; β) = 0, where g_rc is the unbiased indicator of truth c from report r. The
    meat of the sandwich is Σ_r φ_rφ_rᵀ with φ_r = Σ_c g_rc ψ_rc.
    """
    import pandas as pd  # noqa: PLC0415

    if not isinstance(data, RecordTally) or not hasattr(data, "indicators"):
        raise InputError(
            "Clear columns in addition to those of a policy need a source of records: mq.tally(frame)."
        )
    clear = pd.DataFrame(covariates).reset_index(drop=True)
    schema = Schema(answers_only(variable) for variable in data.schema.variables)
    hidden = [name for name in formula.names if name not in clear.columns]
    known = Formula(formula.text, formula.outcome, formula.labels, formula.terms, tuple(hidden))
    check_names(known, schema, {k: v for k, v in (reference or {}).items() if k in schema}, scores)
    family, said, notes = family_of(kind, schema[formula.outcome], formula, reference, scores)
    variables = [schema[name] for name in hidden]
    rows = _answer_indicators(data, (*hidden, formula.outcome))
    if len(rows) != len(clear):
        raise InputError(
            f"'covariates' need a row for each of the {len(rows):,} records. Got {len(clear):,}."
        )
    is_complete = clear[[name for name in formula.names if name in clear.columns]].notna().all(axis=1)
    rows, clear = rows[is_complete.to_numpy()], clear[is_complete].reset_index(drop=True)
    outcome = schema[formula.outcome]
    rows = rows.reshape(len(rows), -1, len(outcome))
    frames = []
    for codes in product(*(range(len(variable)) for variable in variables)):
        frame = clear.copy()
        for variable, code in zip(variables, codes, strict=True):
            frame[variable.name] = column(
                variable, [code] * len(frame), (reference or {}).get(variable.name), scores
            )
        frames.append(frame)
    matrix = terms_matrix(formula.terms, pd.concat(frames, ignore_index=True))
    check_rank(matrix.names, matrix.X)
    if not family.intercept:
        matrix = matrix.without_intercept()
    names, stacked = matrix.names, matrix.X
    Z = family.design(stacked)
    counts = rows.transpose(1, 0, 2).reshape(len(stacked), -1)
    beta = solve(family, Z, counts, names)
    psi, information, bends = score(family, Z, counts, beta)
    one = (psi.reshape(len(frames), len(clear), -1, len(beta)) * rows.transpose(1, 0, 2)[..., None]).sum(
        (0, 2)
    )

    def variance(weights: Floats) -> float:
        each = (weights.reshape(len(frames), len(clear), -1) * rows.transpose(1, 0, 2)).sum((0, 2))
        return float(np.sum((each - each.mean()) ** 2))

    doubt = steadiness(information, bends, variance)
    bread = np.linalg.inv(information)
    labels = tuple(map(str, outcome.categories))
    result = Regression(
        kind,
        formula.text,
        said,
        family.terms(names, labels),
        beta,
        bread @ (one.T @ one) @ bread.T,
        len(clear),
        family,
        labels,
        notes=(*notes, *doubt),
    )
    return result, one @ bread.T


def attach_score_fit(  # noqa: PLR0917  (all belong together)
    result: Regression,
    data: Any,
    formula: Formula,
    clear: pd.DataFrame,
    options: ModelOptions,
    method: str,
) -> Regression:
    """Return the result with the corrected-score fit attached.

    If both fits disagree, the corrected-score fit is returned with the result attached, because the
    likelihood needs a model of the disguised covariates given the clear covariates.

    Formula: d'V⁻d of the difference d of both estimates, V from the difference of their influences
    (Hausman 1978).
    """
    fit = result.fit
    assert fit is not None  # noqa: S101  (for the type checker: fitted just now)
    try:
        score, influence = fit_records(
            data, formula, options.kind, clear, reference=options.reference, scores=options.scores
        )
    except MasqueradeError:
        return result
    count = len(result.terms)
    scores = fit.problem.likelihood.scores(fit.solution.beta)[fit.problem.row_of]
    gap = influence - (scores @ fit.model_covariance)[:, :count]
    difference = score.values - result.values
    V = gap.T @ gap
    statistic = float(difference @ np.linalg.pinv(V, hermitian=True) @ difference)
    p = chi_square_tail(statistic, count)
    largest = int(np.argmax(np.abs(difference)))
    note = (
        f"Corrected score against likelihood: p {p_text(p)}, largest difference {difference[largest]:.3f} "
        f"({result.terms[largest]})."
    )
    if p >= DOUBTFUL or method == "likelihood":
        return replace(result, robust=score, notes=(*result.notes, note))
    note += " The model of the disguised covariates is doubtful, so this is the corrected score."
    return replace(score, robust=result, notes=(*score.notes, note))
