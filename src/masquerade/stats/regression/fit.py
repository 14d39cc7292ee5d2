"""Regressions in which the outcome and any covariates may be disguised, by the likelihood of the reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from masquerade.core.distributions import two_sided_quantile
from masquerade.core.errors import InputError, SchemaError
from masquerade.core.likelihood_rows import LikelihoodRows, NoLikelihood, SurveyDesign
from masquerade.core.schema import Category, Schema
from masquerade.core.table import CountTable
from masquerade.core.tally import Tally
from masquerade.core.util.display import p_text
from masquerade.stats._tables import Names, Where, names_of, schema_of
from masquerade.stats.percentages import given_text
from masquerade.stats.regression.clusters import with_errors
from masquerade.stats.regression.designs import ITEMS, Items
from masquerade.stats.regression.families import Family, Mean, Multinomial, Ordinal
from masquerade.stats.regression.formula import Formula, Scores
from masquerade.stats.regression.inference import (
    ERRORS,
    Errors,
    LikelihoodFit,
    fit_problem,
    fit_statistic,
)
from masquerade.stats.regression.item_tests import boundary_tail, item_tests
from masquerade.stats.regression.missing_truths import (
    RegressionMissing,
    check_regression_missing,
    leave_out_missing,
    missing_note,
)
from masquerade.stats.regression.problem import (
    NotByLikelihood,
    Problem,
    build_problem,
    names_of_formula,
)
from masquerade.stats.regression.random_intercepts import with_random_intercept
from masquerade.stats.regression.results import Regression
from masquerade.stats.regression.score_fit import Reference, attach_score_fit, fit_by_score
from masquerade.stats.regression.terms_maker import ModelOptions, check_names_of, check_where
from masquerade.stats.regression.truth_models import LINKS, Link

if TYPE_CHECKING:
    import pandas as pd

Method = Literal["auto", "likelihood", "score"]


class Options(TypedDict, total=False):
    """Options of every regression; see `logistic`."""

    reference: Reference
    scores: Scores | None
    where: Where
    covariates: Any
    method: Method
    among: Sequence[Category]
    missing: RegressionMissing
    given: Names
    nuisance: Mapping[str, str] | None
    items: Items
    errors: Errors | None
    clusters: Any
    penalty: Literal["jeffreys"] | None
    level: float


def logistic(
    data: Tally | CountTable, formula: str, *, link: Link = "logit", **options: Unpack[Options]
) -> Regression:
    """Fit a regression of a yes/no outcome, "drug ~ group + age"; any variable may be disguised.

    Parameters
    ----------
    data : Tally or CountTable
        Source of counts. A source with records is fitted by the likelihood of the reports.
    formula : str
        Outcome and terms as R users write them: ``a*b``, ``I(x**2)``, ``bs(x, df=4)``, ``C(x)``. The
        category that means yes may be named, "smoker[often] ~ …", or several, "x[yes, lying] ~ …".
    link : {"logit", "probit", "cloglog", "log"}, default "logit"
        Link function.
    reference : mapping, optional
        Reference category of each variable. By default the first.
    scores : mapping, optional
        Numbers for the categories of a variable. Numeric categories are used as numbers by default.
    where : mapping, optional
        Categories of clear variables, by name. Only records with these categories are used.
    covariates : DataFrame, optional
        Clear columns for the formula, one row per record.
    method : {"auto", "likelihood", "score"}, default "auto"
        "score" solves the corrected score equations. "auto" uses it if only tables are available.
    among : sequence, optional
        Categories that form the denominator, for example the answers of people who follow the instructions.
    missing : {"answered", "at-random"}, default "answered"
        "answered" fits the people who answered outcome and covariates. "at-random" assumes that missing
        answers to covariates are at random given the variables in `given`. In both cases, missing outcomes
        may depend on the covariates.
    given : str or sequence of str, optional
        Variables that missing answers to covariates depend on, for "at-random"; they may include the outcome.
    nuisance : mapping of str to str, optional
        Terms of other components of the model, by the category or variable that each component describes:
        ``{"lying": "~ age"}``.
    items : str, default "auto"
        Distribution of the items of a list experiment: "binomial", "beta-binomial" or "multinomial". With
        "binomial-free" and "multinomial-free" it may depend on the sensitive answer.
    errors : {"observed", "expected", "outer", "sandwich"}, optional
        Information matrix for the standard errors. By default observed; with survey weights, sandwich.
    clusters : str or array, optional
        Column or labels of clusters, for CR2 errors with Bell–McCaffrey degrees of freedom.
    penalty : "jeffreys", optional
        Add Jeffreys' penalty, which keeps estimates finite and shrinks them.
    level : float, default 0.95
        Confidence level of the intervals that are shown.

    Returns
    -------
    Regression
        Coefficients with likelihood-ratio p-values and profile intervals.

    Raises
    ------
    InputError
        If the formula or an option cannot be used.
    NotConverged
        If the corrected score has no root.

    Notes
    -----
    Formula: ℓ(β) = Σ w_i log Σ_k P(report_i | k) p(k | x_i; β) with derivatives by Louis' identity. An
    estimate may be infinite: its test and its one-sided interval are still finite.
    Reference: Louis (1982); Nakamura (1990) for the corrected score.
    Error: measured in benchmarks/regression_study.py. 95% intervals contain the truth in 93 to 97% of
    samples, but only in 92% if few people have a true "yes": in a list experiment with 1,200 people, or in
    Warner's design with 400.

    Examples
    --------
    >>> source = mq.tally(mq.data.students())
    >>> print(mq.stats.logistic(source, "pills ~ exams", reference={"pills": "no"}))
    Logistic regression of pills = yes: pills ~ exams, n = 600
             term    coef stderr   chi2 p_value   lower   upper odds ratio
        Intercept -1.9924 0.1777 195.73 <0.0001 -2.3571 -1.6586     0.1364
    exams[T.many]  1.1451 0.2178  30.07 <0.0001  0.7261  1.5820     3.1429
    (likelihood-ratio tests, 95% profile intervals; errors: observed information)
    Log-likelihood -293.337, AIC 590.7, BIC 599.5.
    Maximum found, and it is finite.
    """
    if link not in LINKS:
        raise InputError(f"The link must be {', '.join(LINKS)}. Got {link!r}.")
    return _fit(data, formula, "logistic", link=link, **options)


def multinomial(data: Tally | CountTable, formula: str, **options: Unpack[Options]) -> Regression:
    """Fit a multinomial logistic regression against the outcome's `reference`.

    Parameters
    ----------
    data : Tally or CountTable
        Source of counts. A source with records is fitted by the likelihood of the reports.
    formula : str
        Outcome and terms, as in `logistic`.
    **options
        As in `logistic`: `reference`, `scores`, `where`, `covariates`, `method`, `nuisance`, `errors`,
        `clusters`, `penalty` and `level`.

    Returns
    -------
    Regression
        Coefficients with tests and intervals.

    Examples
    --------
    >>> source = mq.tally(mq.data.students())
    >>> model = mq.stats.multinomial(source, "year ~ exams", reference={"year": 1})
    >>> model.params.round(2).to_dict()
    {'2: Intercept': -0.18, '2: exams[T.many]': 0.41, '3: Intercept': -0.41, '3: exams[T.many]': 0.81}
    """
    return _fit(data, formula, "multinomial", **options)


def proportional_odds(data: Tally | CountTable, formula: str, **options: Unpack[Options]) -> Regression:
    """Fit proportional odds, P(y ≤ k) = expit(α_k − Xβ), to an outcome with ordered categories.

    Parameters
    ----------
    data : Tally or CountTable
        Source of counts. A source with records is fitted by the likelihood of the reports.
    formula : str
        Outcome and terms, as in `logistic`.
    **options
        As in `logistic`: `reference`, `scores`, `where`, `covariates`, `method`, `nuisance`, `errors`,
        `clusters`, `penalty` and `level`.

    Returns
    -------
    Regression
        Coefficients with tests and intervals.

    Notes
    -----
    Reference: McCullagh (1980).

    Examples
    --------
    >>> source = mq.tally(mq.data.students())
    >>> mq.stats.proportional_odds(source, "year ~ exams").params.round(2).to_dict()
    {'1 | 2': -0.41, '2 | 3': 1.01, 'exams[T.many]': 0.61}
    """
    return _fit(data, formula, "proportional odds", **options)


def poisson(data: Tally | CountTable, formula: str, **options: Unpack[Options]) -> Regression:
    """Fit a Poisson regression, log E(y) = Xβ, to counts.

    Outcomes 0, 1, 2, … are fitted by likelihood. The last category of a disguised count includes all larger
    counts. Other numbers, or `scores`, are fitted by the corrected score.

    Parameters
    ----------
    data : Tally or CountTable
        Source of counts. A source with records is fitted by the likelihood of the reports.
    formula : str
        Outcome and terms, as in `logistic`.
    **options
        As in `logistic`: `reference`, `scores`, `where`, `covariates`, `method`, `nuisance`, `errors`,
        `clusters`, `penalty` and `level`.

    Returns
    -------
    Regression
        Coefficients with tests and intervals.

    Examples
    --------
    >>> source = mq.tally(mq.data.students())
    >>> mq.stats.poisson(source, "year ~ exams").params.round(2).to_dict()
    {'Intercept': 0.62, 'exams[T.many]': 0.13}
    """
    return _fit(data, formula, "poisson", **options)


def linear(data: Tally | CountTable, formula: str, **options: Unpack[Options]) -> Regression:
    """Fit a linear regression, E(y) = Xβ.

    A clear outcome has a normal likelihood. The numbers, midpoints of bins or `scores` of a disguised outcome
    are fitted by least squares, through the corrected score.

    Parameters
    ----------
    data : Tally or CountTable
        Source of counts. A source with records is fitted by the likelihood of the reports.
    formula : str
        Outcome and terms, as in `logistic`.
    **options
        As in `logistic`: `reference`, `scores`, `where`, `covariates`, `method`, `nuisance`, `errors`,
        `clusters`, `penalty` and `level`.

    Returns
    -------
    Regression
        Coefficients with tests and intervals.

    Examples
    --------
    >>> source = mq.tally(mq.data.students())
    >>> mq.stats.linear(source, "year ~ exams").params.round(2).to_dict()
    {'Intercept': 1.87, 'exams[T.many]': 0.27}
    """
    return _fit(data, formula, "linear", **options)


def _fit(
    data: Tally | CountTable,
    text: str,
    kind: str,
    *,
    link: Link = "logit",
    reference: Reference = None,
    scores: Scores | None = None,
    where: Where = None,
    covariates: Any = None,
    method: Method = "auto",
    among: Sequence[Category] = (),
    missing: RegressionMissing = "answered",
    given: Names = (),
    nuisance: Mapping[str, str] | None = None,
    items: Items = "auto",
    errors: Errors | None = None,
    clusters: Any = None,
    penalty: Literal["jeffreys"] | None = None,
    level: float = 0.95,
) -> Regression:
    """Fit a regression by likelihood if the source allows it, otherwise by the corrected score."""
    formula, schema = Formula.of(text), schema_of(data)
    _check_options(method, items, errors, penalty)
    two_sided_quantile(level)
    check_regression_missing(missing, names_of(given))
    options = ModelOptions(
        kind,
        link,
        items,
        tuple(among),
        nuisance,
        reference,
        scores,
        has_penalty=penalty is not None,
        given=names_of(given),
    )
    clear = _clear_columns(covariates)
    check_names_of(formula, schema, clear, options)
    check_where(where, schema, clear)
    reason: str | None = None
    absent = missing_note(data, formula, schema, clear, where, missing, options)
    if method != "score":
        try:
            result = _fit_by_likelihood(
                data, formula, schema, clear, options, where, errors, clusters, method
            )
            return replace(result, notes=(*result.notes, *absent), level=level)
        except NotByLikelihood as error:
            reason = str(error)
    asked = [
        name
        for name, value in (
            ("link", link != "logit"),
            ("among", among),
            ("nuisance", nuisance),
            ("items", items != "auto"),
            ("errors", errors),
            ("clusters", clusters is not None),
            ("penalty", penalty),
            ("missing answers at random", missing == "at-random"),
            ("random intercepts", formula.random),
        )
        if value
    ]
    if method == "likelihood" or (asked and reason):
        raise InputError(f"This regression has no likelihood: {reason}")
    if asked:
        raise InputError(f"The corrected score does not support {', '.join(asked)}.")
    notes = () if reason is None or isinstance(data, CountTable) else (f"Corrected score, since {reason}",)
    result = fit_by_score(
        data,
        formula,
        kind,
        reference=reference,
        scores=scores,
        where=where,
        covariates=covariates,
        notes=(*notes, *absent),
    )
    return replace(result, level=level)


def _check_options(method: str, items: str, errors: str | None, penalty: str | None) -> None:
    """Raise InputError if an option has an unknown value."""
    for name, value, allowed in (
        ("method", method, ("auto", "likelihood", "score")),
        ("items", items, ITEMS),
        ("errors", errors, (None, *ERRORS)),
        ("penalty", penalty, (None, "jeffreys")),
    ):
        if value not in allowed:
            raise InputError(
                f"{name!r} must be {', '.join(str(one) for one in allowed if one)}. Got {value!r}."
            )


def _clear_columns(covariates: Any) -> pd.DataFrame:
    import pandas as pd  # noqa: PLC0415  (core and stats import pandas only when needed)

    return pd.DataFrame() if covariates is None else pd.DataFrame(covariates).reset_index(drop=True)


def _fit_by_likelihood(  # noqa: PLR0917  (all belong together)
    data: Any,
    formula: Formula,
    schema: Schema,
    clear: pd.DataFrame,
    options: ModelOptions,
    where: Where,
    errors: Errors | None,
    clusters: Any,
    method: Method,
) -> Regression:
    """Fit a regression by the likelihood of the reports of records."""
    if isinstance(data, CountTable) or not hasattr(data, "likelihood_rows"):
        raise NotByLikelihood("only tables are known.")
    group_names = [name for name in (formula.random, clusters) if isinstance(name, str)]
    over = [
        *names_of_formula(formula, options, schema),
        *(name for name in (*(where or {}), *group_names) if name in schema),
    ]
    rows = _likelihood_rows(data, tuple(dict.fromkeys(over)), clear, clusters)
    if not len(clear.columns):
        clear = clear.reindex(range(rows.n))
    kept = _rows_where(rows, schema, where)
    rows, clear = (
        (rows, clear) if kept is None else (rows.take(kept), clear.iloc[kept].reset_index(drop=True))
    )
    rows, schema, clear, kept = leave_out_missing(
        rows, schema, clear, kept, names_of_formula(formula, options, schema), formula, options
    )
    label = _group_codes(clusters, rows, clear, "clusters", kept)
    random = _group_codes(formula.random, rows, clear, "random intercepts", kept)
    survey = _survey_design(data, kept, label)
    groups = [codes for codes in (label, random) if codes is not None]
    groups += [] if survey is None else [survey.clusters]
    problem = build_problem(formula, schema, rows, clear, options, groups)
    if random is not None:
        if errors not in (None, "observed") or label is not None or rows.weights is not None:
            raise InputError(
                "Random intercepts have errors by the observed information: omit 'errors', 'clusters' and "
                "survey weights."
            )
        return _fit_mixed(problem, formula, options, where, random)
    chosen: Errors = errors or ("observed" if rows.weights is None else "sandwich")
    fit = with_errors(fit_problem(problem, chosen), chosen, label, survey)
    result = _result_of(problem, fit, formula, options, where)
    if options.items == "auto":

        def build(items: Items) -> Problem:
            return build_problem(formula, schema, rows, clear, replace(options, items=items), groups)

        result = replace(result, notes=(*result.notes, *item_tests(fit, build)))
    absent = any(schema[name].missing for name in problem.covariates.hidden) or options.given
    hidden = () if absent else problem.covariates.hidden
    if hidden and len(problem.covariates.clear) and formula.outcome in schema and kept is None:
        return attach_score_fit(result, data, formula, clear, options, method)
    return result


def _likelihood_rows(data: Any, over: Sequence[str], clear: pd.DataFrame, clusters: Any) -> LikelihoodRows:
    """Return P(report | truth) of a source's records, one row per row of the clear columns."""
    try:
        rows: LikelihoodRows = data.likelihood_rows(over)
    except NoLikelihood as error:
        raise NotByLikelihood(str(error)) from None
    if not rows.is_ordered and (len(clear.columns) or not isinstance(clusters, (str, type(None)))):
        raise InputError(
            "Records in an engine have no order in which 'covariates' or clusters can be matched. Read them "
            "into memory: mq.tally(…, engine='memory'), or --engine memory."
        )
    if len(clear.columns) and len(clear) != rows.n:
        raise InputError(f"'covariates' need a row for each of the {rows.n:,} records. Got {len(clear):,}.")
    return rows


def _survey_design(
    data: Any, kept: NDArray[np.intp] | None, clusters: NDArray[np.intp] | None
) -> SurveyDesign | None:
    """Return the sampling design of a source; None for records without a design."""
    found: SurveyDesign | None = getattr(data, "survey_design", None)
    if found is None:
        return None
    if clusters is not None:
        raise InputError("The source has its own clusters: omit 'clusters'.")
    if kept is not None:
        raise InputError(
            "Errors under a survey design need all records: omit 'where', and disguise missing answers or "
            "use variables without missing answers."
        )
    return found


def _fit_mixed(
    problem: Problem, formula: Formula, options: ModelOptions, where: Where, group: NDArray[np.intp]
) -> Regression:
    """Fit a random intercept, and test whether its standard deviation is 0.

    Formula: the null distribution of the likelihood ratio is ½χ²₀ + ½χ²₁, since σ = 0 is a boundary.
    Reference: Self & Liang (1987).
    """
    plain = fit_problem(problem)
    mixed = with_random_intercept(problem, options.kind, group)
    fit = fit_problem(replace(mixed, starts=(np.append(plain.solution.beta, 0.5),)))
    ratio = max(2 * (fit.solution.value - plain.solution.value), 0.0)
    sd = abs(float(fit.solution.beta[-1]))
    note = (
        f"Random intercept of {formula.random}: sd {sd:.4f}, {int(group.max()) + 1:,} groups; sd = 0: "
        f"LR {ratio:.2f}, df 1 on the boundary, p {p_text(boundary_tail(ratio, 1))}."
    )
    result = _result_of(fit.problem, fit, formula, options, where)
    return replace(result, notes=(*result.notes, note))


def _rows_where(rows: LikelihoodRows, schema: Schema, where: Where) -> NDArray[np.intp] | None:
    """Return the records that satisfy conditions on clear variables; None without conditions."""
    if not where:
        return None
    kept = np.ones(rows.n, dtype=bool)
    for name, label in where.items():
        if name not in rows.known:
            raise NotByLikelihood(f"{name} is disguised, so it is not known which records satisfy 'where'.")
        kept &= rows.known[name] == schema[name].code(label)
    return np.flatnonzero(kept)


def _group_codes(
    given: Any, rows: LikelihoodRows, clear: pd.DataFrame, what: str, kept: NDArray[np.intp] | None
) -> NDArray[np.intp] | None:
    """Return the group number of each record, from a column's name or from labels."""
    if given is None:
        return None
    if isinstance(given, str):
        if given in rows.known:
            return np.unique(rows.known[given], return_inverse=True)[1]
        if given not in clear.columns:
            raise SchemaError(f"There is no clear column {given!r} for {what}.")
        if clear[given].isna().any():
            raise InputError(f"Column {given!r} has missing values: remove such records.")
        labels = np.asarray(clear[given]).astype(str)
    else:
        labels = np.asarray(given).astype(str)
        labels = labels if kept is None else labels[kept]
    if labels.shape != (rows.n,):
        raise InputError(
            f"{what.capitalize()} need one label for each of the {rows.n:,} records. Got {len(labels):,}."
        )
    return np.asarray(np.unique(labels, return_inverse=True)[1], dtype=np.intp)


def _result_of(
    problem: Problem, fit: LikelihoodFit, formula: Formula, options: ModelOptions, where: Where
) -> Regression:
    """Return the result of a fit."""
    count = len(problem.terms)
    text = formula.text + given_text(where)
    return Regression(
        options.kind,
        text,
        problem.outcome,
        problem.terms,
        fit.solution.beta[:count],
        fit.covariance[:count, :count],
        problem.n,
        _family(problem, options, formula),
        problem.labels,
        fit=fit,
        fit_test=fit_statistic(fit, text),
        notes=problem.notes,
        has_odds=options.link == "logit",
    )


def _family(problem: Problem, options: ModelOptions, formula: Formula) -> Family:
    """Return the family that predictions use."""
    places = np.arange(len(problem.labels), dtype=float)
    if options.kind == "multinomial":
        base = str((options.reference or {}).get(formula.outcome, problem.labels[0]))
        return Multinomial(places, problem.labels.index(base))
    if options.kind == "proportional odds":
        return Ordinal(places)
    return Mean(options.kind, np.zeros(1), options.link)
