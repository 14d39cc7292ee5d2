"""Regression with any of outcome and covariates disguised: corrected scores and sandwich errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar, TypedDict, Unpack

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.distributions import chi_square_tail, two_sided_quantile
from masquerade.core.errors import InputError
from masquerade.core.plots.drawing import Dots, dot_plot
from masquerade.core.schema import Category, Variable
from masquerade.core.table import CountTable
from masquerade.core.tally import RecordTally, Tally
from masquerade.core.util.display import Shown, p_text
from masquerade.stats._corrected_score import score, solve, steadiness
from masquerade.stats._design import (
    Cells,
    Formula,
    Scores,
    cells_of,
    check_names,
    check_rank,
    column,
    matrix_of,
)
from masquerade.stats._families import Family, Mean, Multinomial, Ordinal
from masquerade.stats._tables import Where, category_of, normal_p, schema_of, scores_of, table_of
from masquerade.stats.estimates import Estimates, TestResult
from masquerade.stats.hypotheses import wald
from masquerade.stats.percentages import given_text

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

MOST_MOMENTS = 400
NUDGE = 1e-6

Reference = Mapping[str, Category] | None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Regression(Shown):
    """A fitted regression; names as in statsmodels.

    `terms` are the parameters, `values` their estimates and `covariance` that of the estimates.
    `fit_test` compares the model with the table without it, where that can be done. `predict` gives what is
    expected for categories of the covariates.

    >>> model = mq.stats.logistic(mq.tally(mq.data.students()), "pills ~ exams", reference={"pills": "no"})
    >>> model.params.round(2).to_dict()
    {'Intercept': -1.99, 'exams[T.many]': 1.15}
    >>> model.predict({"exams": "many"}).params.round(2).tolist()
    [0.3]
    """

    result_name: ClassVar[str] = "Regression"
    kind: str
    formula: str
    outcome: str
    terms: tuple[str, ...]
    values: Floats
    covariance: Floats
    n: int
    family: Family
    labels: tuple[str, ...]
    cells: Cells | None
    fit_test: TestResult | None = None
    notes: tuple[str, ...] = ()

    @property
    def heading(self) -> str:
        """Return what was fitted, in a line."""
        return f"{self.kind.capitalize()} regression of {self.outcome}: {self.formula}, n = {self.n:,}"

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return how errors were found, how well the model fits, and what else must be known."""
        fit = self.fit_test
        said = []
        if fit is not None:
            tail = p_text(fit.p_value)
            said = [f"Fit of the model: minimum distance {fit.statistic:.2f}, df {fit.df:.0f}, p {tail}."]
        return ("(95% intervals; corrected score, sandwich errors)", *said, *self.notes)

    @property
    def nobs(self) -> int:
        """Return the number of records."""
        return self.n

    @property
    def params(self) -> pd.Series:
        """Return the estimates by their terms."""
        return self._series(self.values)

    @property
    def bse(self) -> pd.Series:
        """Return the standard errors by their terms."""
        return self._series(self._errors)

    @property
    def tvalues(self) -> pd.Series:
        """Return estimates over their standard errors."""
        return self._series(self.values / self._errors)

    @property
    def pvalues(self) -> pd.Series:
        """Return the p-values of the hypotheses that terms are 0."""
        return self._series(np.array([normal_p(z) for z in self.values / self._errors]))

    def conf_int(self, alpha: float = 0.05) -> pd.DataFrame:
        """Return intervals that hold with probability 1 − alpha."""
        import pandas as pd  # noqa: PLC0415  (a frame is asked for here)

        half = two_sided_quantile(1 - alpha) * self._errors
        return pd.DataFrame({0: self._series(self.values - half), 1: self._series(self.values + half)})

    def cov_params(self) -> pd.DataFrame:
        """Return the covariance of the estimates by their terms."""
        import pandas as pd  # noqa: PLC0415

        return pd.DataFrame(self.covariance, index=list(self.terms), columns=list(self.terms))

    def wald_test(self, *terms: str) -> TestResult:
        """Test whether all of some terms are 0; a name stands for the terms that begin with it."""
        places = [i for i, name in enumerate(self.terms) if any(_belongs(name, term) for term in terms)]
        if not places:
            raise InputError(f"No term begins with {', '.join(terms)}. There are: {', '.join(self.terms)}.")
        statistic, df = wald(self.values[places], self.covariance[np.ix_(places, places)])
        title = f"No effect of {', '.join(terms)} in {self.formula}"
        return TestResult(title, statistic, df, chi_square_tail(statistic, df), self.n, "chi2")

    def predict(
        self, at: Mapping[str, Category] | Sequence[Mapping[str, Category]] | None = None, level: float = 0.95
    ) -> Estimates:
        """Return what is expected for categories of the covariates; by default for all combinations."""
        if self.cells is None:
            raise InputError("Predictions are for covariates that are variables of the policy.")
        variables = self.cells.variables
        wanted = [at] if isinstance(at, Mapping) else at
        labels = [*product(*(variable.categories for variable in variables))]
        rows = [*range(len(labels))] if wanted is None else [_row(variables, one) for one in wanted]
        X = self.cells.X[rows]
        found = self._expected(X, self.values)
        slopes = np.stack(
            [
                (self._expected(X, self.values + step) - self._expected(X, self.values - step)) / (2 * NUDGE)
                for step in NUDGE * np.eye(len(self.values))
            ],
            axis=-1,
        )
        stderr = np.sqrt(np.maximum(np.einsum("rkp,pq,rkq->rk", slopes, self.covariance, slopes), 0.0))
        lower, upper = _ends(found, stderr, two_sided_quantile(level), self._scale)
        names = [variable.name for variable in variables]
        shown = [labels[row] for row in rows]
        if self.family.shares:
            names, shown = [*names, self.outcome], [(*row, label) for row in shown for label in self.labels]
        return Estimates(
            f"Predictions of {self.formula}",
            "mean" if self._scale in ("identity", "log") else "share",
            tuple(names),
            tuple(shown),
            found.ravel(),
            stderr.ravel(),
            lower.ravel(),
            upper.ravel(),
            self.n,
            level,
            in_percent=self._scale == "logit",
        )

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each term: coefficient, standard error, z, p-value, interval."""
        import pandas as pd  # noqa: PLC0415

        ends = self.conf_int()
        columns: dict[str, Any] = {"term": list(self.terms), "coef": self.values, "stderr": self._errors}
        columns |= {"z": self.values / self._errors, "p_value": self.pvalues.to_numpy()}
        columns |= {"lower": ends[0].to_numpy(), "upper": ends[1].to_numpy()}
        if self.kind in ("logistic", "multinomial", "proportional odds"):
            columns["odds ratio"] = np.exp(self.values)
        return pd.DataFrame(columns)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the coefficients with their intervals, without intercepts."""
        kept = [i for i, name in enumerate(self.terms) if "Intercept" not in name and " | " not in name]
        ends = self.conf_int()
        parts = [part[kept] for part in (self.values, ends[0].to_numpy(), ends[1].to_numpy())]
        return dot_plot(
            [self.terms[i] for i in kept],
            {"coefficient": Dots(*parts)},
            ax,
            xlabel="coefficient, 95% intervals",
            title=self.heading,
            mark=0.0,
        )

    @property
    def _errors(self) -> Floats:
        return np.sqrt(np.maximum(np.diag(self.covariance), 0.0))

    @property
    def _scale(self) -> str:
        return {"linear": "identity", "poisson": "log"}.get(self.kind, "logit")

    def _expected(self, X: Floats, values: Floats) -> Floats:
        return self.family.expected(self.family.design(X) @ values)

    def _series(self, values: Floats) -> pd.Series:
        import pandas as pd  # noqa: PLC0415

        return pd.Series(values, index=list(self.terms))


def _belongs(name: str, term: str) -> bool:
    own = name.rpartition(": ")[2]
    return own == term or own.startswith((f"{term}[", f"{term}:", f"C({term})"))


def _row(variables: Sequence[Variable], at: Mapping[str, Category]) -> int:
    missing = [variable.name for variable in variables if variable.name not in at]
    if missing:
        raise InputError(
            f"A prediction needs a category of every covariate. Not given: {', '.join(missing)}."
        )
    codes = [variable.code(at[variable.name]) for variable in variables]
    sizes = [len(variable) for variable in variables]
    return int(np.ravel_multi_index(codes, sizes)) if sizes else 0


def _ends(found: Floats, stderr: Floats, z: float, scale: str) -> tuple[Floats, Floats]:
    """Return the ends of intervals on the scale of the predictors, brought back."""
    if scale == "identity":
        return found - z * stderr, found + z * stderr
    if scale == "log":
        factor = np.exp(z * stderr / found)
        return found / factor, found * factor
    inside = np.clip(found, 1e-12, 1 - 1e-12)
    logit, step = np.log(inside / (1 - inside)), z * stderr / (inside * (1 - inside))
    return 1 / (1 + np.exp(-(logit - step))), 1 / (1 + np.exp(-(logit + step)))


class Options(TypedDict, total=False):
    """What every regression takes beside its data and formula."""

    reference: Reference
    scores: Scores | None
    where: Where
    covariates: Any


def logistic(data: Tally | CountTable, formula: str, **options: Unpack[Options]) -> Regression:
    """Fit a logistic regression, "drug ~ group + age", to a yes/no outcome; any variable may be disguised.

    The outcome's category is the one that says yes, or is named: "smoker[often] ~ …". Categories that are
    numbers are numbers in the formula, as `scores={variable: [numbers]}` make others; the rest are compared
    with their first category or with the one named by `reference={variable: category}`. `where={variable:
    category}` takes some records only. With `covariates`, a frame with a row for each record of the source,
    clear columns of it may stand in the formula.

    Formula: β solves Σ N̂_c X_c(y_c − μ_c) = 0 over the cells c of the table; its covariance is
    H⁻¹(ΨᵀCΨ)H⁻¹ with H = Σ N̂_c μ_c(1 − μ_c)X_cX_cᵀ and Ψ_c = X_c(y_c − μ_c). N̂ is unbiased, so the
    equation is.
    Reference: Nakamura (1990); Stefanski (1989); White (1982) for the sandwich.
    Error: measured, see docs/numerics.md. Where the equation has no root it is refused in words; where its
    information may be 0 a note says so.

    >>> source = mq.tally(mq.data.students())
    >>> print(mq.stats.logistic(source, "pills ~ exams", reference={"pills": "no"}))
    Logistic regression of pills = yes: pills ~ exams, n = 600
             term    coef stderr      z p_value   lower   upper odds ratio
        Intercept -1.9924 0.1777 -11.21 <0.0001 -2.3407 -1.6442     0.1364
    exams[T.many]  1.1451 0.2178 5.2576 <0.0001  0.7182  1.5720     3.1429
    (95% intervals; corrected score, sandwich errors)
    """
    return _fitted(data, formula, "logistic", **options)


def multinomial(data: Tally | CountTable, formula: str, **options: Unpack[Options]) -> Regression:
    """Fit a multinomial logistic regression, against the outcome's `reference`; options as of `logistic`.

    >>> source = mq.tally(mq.data.students())
    >>> model = mq.stats.multinomial(source, "year ~ exams", reference={"year": 1})
    >>> model.params.round(2).to_dict()
    {'2: Intercept': -0.18, '2: exams[T.many]': 0.41, '3: Intercept': -0.41, '3: exams[T.many]': 0.81}
    """
    return _fitted(data, formula, "multinomial", **options)


def proportional_odds(data: Tally | CountTable, formula: str, **options: Unpack[Options]) -> Regression:
    """Fit P(y ≤ k) = expit(α_k − Xβ) to an outcome whose categories are in order; options as of `logistic`.

    Reference: McCullagh (1980).

    >>> source = mq.tally(mq.data.students())
    >>> mq.stats.proportional_odds(source, "year ~ exams").params.round(2).to_dict()
    {'1 | 2': -0.41, '2 | 3': 1.01, 'exams[T.many]': 0.61}
    """
    return _fitted(data, formula, "proportional odds", **options)


def poisson(data: Tally | CountTable, formula: str, **options: Unpack[Options]) -> Regression:
    """Fit log E(y) = Xβ to an outcome that counts, by its numbers or `scores`; options as of `logistic`.

    >>> source = mq.tally(mq.data.students())
    >>> mq.stats.poisson(source, "year ~ exams").params.round(2).to_dict()
    {'Intercept': 0.62, 'exams[T.many]': 0.13}
    """
    return _fitted(data, formula, "poisson", **options)


def linear(data: Tally | CountTable, formula: str, **options: Unpack[Options]) -> Regression:
    """Fit E(y) = Xβ by least squares to an outcome's numbers, middles of bins or `scores`.

    Options as of `logistic`.

    >>> source = mq.tally(mq.data.students())
    >>> mq.stats.linear(source, "year ~ exams").params.round(2).to_dict()
    {'Intercept': 1.87, 'exams[T.many]': 0.27}
    """
    return _fitted(data, formula, "linear", **options)


def _fitted(
    data: Tally | CountTable,
    text: str,
    kind: str,
    *,
    reference: Reference = None,
    scores: Scores | None = None,
    where: Where = None,
    covariates: Any = None,
) -> Regression:
    formula, schema = Formula.of(text), schema_of(data)
    if covariates is not None:
        if where:
            raise InputError("'where' and 'covariates' do not go together: take the records that are meant.")
        return _from_records(data, formula, kind, covariates, reference=reference, scores=scores)
    check_names(formula, schema, reference, scores)
    family, said, notes = _family_of(kind, schema[formula.outcome], formula, reference, scores)
    cells = cells_of(formula, schema, reference, scores)
    table = table_of(data, (*formula.names, formula.outcome), where)
    return regression_of(
        table, cells, family, kind=kind, text=text + given_text(where), said=said, notes=notes
    )


def regression_of(
    table: CountTable,
    cells: Cells,
    family: Family,
    *,
    kind: str,
    text: str = "",
    said: str = "",
    notes: tuple[str, ...] = (),
) -> Regression:
    """Fit a regression to the table of its covariates, in order, and its outcome, the last axis."""
    outcome = table.axes[-1]
    labels = tuple(map(str, outcome.categories))
    names, X = (cells.terms, cells.X) if family.intercept else _without_intercept(cells.terms, cells.X)
    used = Cells(cells.variables, names, X)
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
        said,
        family.terms(names, labels),
        beta,
        bread @ meat @ bread.T,
        table.n,
        family,
        labels,
        used,
        test,
        (*notes, *doubt),
    )


def _family_of(
    kind: str, outcome: Variable, formula: Formula, reference: Reference, scores: Scores | None
) -> tuple[Family, str, tuple[str, ...]]:
    """Return the family of a regression, what its outcome is called, and notes."""
    label: Category | None = None
    if formula.label is not None:
        found = [one for one in outcome.categories if str(one).lower() == formula.label.strip().lower()]
        label = found[0] if found else formula.label
        outcome.code(label)
    if kind == "logistic":
        code = category_of(outcome, label)
        return Mean(kind, np.eye(len(outcome))[code]), f"{outcome.name} = {outcome.categories[code]}", ()
    if label is not None:
        raise InputError(
            f"A {kind} regression is of all categories of {outcome.name!r}: leave [{label}] out."
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
        raise InputError(f"A Poisson regression is of counts; a score of {outcome.name!r} is below 0.")
    return Mean(kind, numbers), outcome.name, (note,) if note else ()


def _without_intercept(names: tuple[str, ...], X: Floats) -> tuple[tuple[str, ...], Floats]:
    kept = [i for i, name in enumerate(names) if name != "Intercept"]
    return tuple(names[i] for i in kept), X[:, kept]


def _fit_test(table: CountTable, family: Family, X: Floats, beta: Floats, text: str) -> TestResult | None:
    """Test the model against the table without it: the minimum distance of the moments that it fixes.

    Formula: min over β of RᵀV⁻R, R_xj = N̂_xj − N̂_x P_j(x; β) (of means: Σ_y (s_y − μ_x)N̂_xy), V its
    covariance; χ² with as many degrees of freedom as moments beyond parameters.
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


def _from_records(
    data: Tally | CountTable,
    formula: Formula,
    kind: str,
    covariates: Any,
    *,
    reference: Reference,
    scores: Scores | None,
) -> Regression:
    """Fit a regression whose formula has clear columns beside the variables of the policy.

    Formula: Σ_r Σ_c g_rc ψ(x_r, c; β) = 0, g_rc the unbiased indicator of truth c that report r gives; the
    meat of the sandwich is Σ_r φ_rφ_rᵀ with φ_r = Σ_c g_rc ψ_rc.
    """
    import pandas as pd  # noqa: PLC0415

    if not isinstance(data, RecordTally) or not hasattr(data, "indicators"):
        raise InputError("Clear columns beside those of a policy need a source of records: mq.tally(frame).")
    clear = pd.DataFrame(covariates).reset_index(drop=True)
    schema = data.schema
    hidden = [name for name in formula.names if name not in clear.columns]
    known = Formula(formula.text, formula.outcome, formula.label, formula.terms, tuple(hidden))
    check_names(known, schema, {k: v for k, v in (reference or {}).items() if k in schema}, scores)
    family, said, notes = _family_of(kind, schema[formula.outcome], formula, reference, scores)
    variables = [schema[name] for name in hidden]
    rows = data.indicators((*hidden, formula.outcome))
    if len(rows) != len(clear):
        raise InputError(f"'covariates' need a row for each of {len(rows):,} records. Got {len(clear):,}.")
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
    names, stacked = matrix_of(formula.terms, pd.concat(frames, ignore_index=True))
    check_rank(names, stacked)
    if not family.intercept:
        names, stacked = _without_intercept(names, stacked)
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
    return Regression(
        kind,
        formula.text,
        said,
        family.terms(names, labels),
        beta,
        bread @ (one.T @ one) @ bread.T,
        len(clear),
        family,
        labels,
        None,
        None,
        (*notes, *doubt),
    )
