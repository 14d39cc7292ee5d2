"""Result of a regression: coefficients, tests, intervals and predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.distributions import chi_square_tail, two_sided_quantile
from masquerade.core.errors import InputError
from masquerade.core.plots.drawing import Dots, dot_plot
from masquerade.core.schema import Category
from masquerade.core.util.display import Shown, p_text
from masquerade.core.util.formatting import percent
from masquerade.stats._tables import normal_p
from masquerade.stats.estimates import Estimates, TestResult
from masquerade.stats.hypotheses import wald
from masquerade.stats.regression.families import Family
from masquerade.stats.regression.formula import Cells, select_terms
from masquerade.stats.regression.inference import LikelihoodFit, TermTest, compare_fits, plot_residuals
from masquerade.stats.regression.outcome_shares import estimate_shares, main_rows, share_rows
from masquerade.stats.regression.predictions import (
    At,
    PredictionRows,
    average_over_groups,
    change_covariate,
    changes_of,
    delta_errors,
    interval_ends,
    record_frame,
    rows_of_cells,
    rows_of_covariates,
)
from masquerade.stats.regression.random_intercepts import SD
from masquerade.stats.regression.solver import Certificate

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

ODDS = ("logistic", "multinomial", "proportional odds")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Regression(Shown):
    """A fitted regression; attributes are named as in statsmodels.

    Fits by likelihood have likelihood-ratio p-values and profile intervals. Fits by the corrected score
    (``method="score"``) have Wald p-values and intervals.

    Attributes
    ----------
    kind, formula, outcome : str
        Kind of regression, its formula, and the outcome.
    terms : tuple of str
        Names of the coefficients.
    values, covariance : arrays
        Estimates and their covariance.
    n : int
        Number of records.
    fit_test : TestResult or None
        Goodness-of-fit test of the model against the reports, if there is one.
    robust : Regression or None
        The corrected-score fit, if there are both disguised covariates and continuous clear covariates.
    notes : tuple of str
        Assumptions and warnings.
    level : float
        Confidence level of the intervals in `to_frame`, `summary` and `plot`.

    Examples
    --------
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
    cells: Cells | None = None
    fit: LikelihoodFit | None = None
    fit_test: TestResult | None = None
    robust: Regression | None = None
    notes: tuple[str, ...] = ()
    has_odds: bool = True
    level: float = 0.95

    @property
    def heading(self) -> str:
        """Return a one-line title."""
        return f"{self.kind.capitalize()} regression of {self.outcome}: {self.formula}, n = {self.n:,}"

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return the methods of tests and errors, the goodness of fit, and the notes."""
        lines = []
        level = f"{100 * self.level:g}%"
        if self.fit is None:
            lines.append(f"({level} intervals; corrected score, sandwich errors)")
        else:
            by = self.fit.errors if self.fit.design is None else self.fit.design.text
            by = f"{by} information" if by in ("observed", "expected") else by
            tests = "likelihood-ratio tests"
            if self.fit.design is not None:
                tests = "Rao and Scott's likelihood-ratio tests, F of 1 and df2 degrees of freedom"
            lines.append(f"({tests}, {level} profile intervals; errors: {by})")
            lines.append(f"Log-likelihood {self.llf:.3f}, AIC {self.aic:.1f}, BIC {self.bic:.1f}.")
            lines.append(str(self.fit.certificate))
        test = self.fit_test
        if test is not None:
            how = {"distance": "minimum distance", "G2": "G²", "chi2": "χ² of ten groups"}[test.symbol]
            lines.append(
                f"Fit of the model: {how} {test.statistic:.2f}, df {test.df:.0f}, p {p_text(test.p_value)}."
            )
        return (*lines, *self._spread_lines(), *self._share_lines(), *self.notes)

    @property
    def nobs(self) -> int:
        """Return the number of records."""
        return self.n

    @property
    def params(self) -> pd.Series:
        """Return the estimates by term."""
        return self._series(self.values)

    @property
    def bse(self) -> pd.Series:
        """Return the standard errors by term."""
        return self._series(self._errors)

    @property
    def tvalues(self) -> pd.Series:
        """Return the estimates over their standard errors."""
        return self._series(self.values / self._errors)

    @property
    def pvalues(self) -> pd.Series:
        """Return p-values for each term being 0: likelihood-ratio, or Wald for the corrected score."""
        return self._series(np.array([test.p_value for test in self._tests()]))

    @property
    def llf(self) -> float:
        """Return the log-likelihood."""
        return self._likelihood.solution.value

    @property
    def aic(self) -> float:
        """Return Akaike's information criterion."""
        return self._likelihood.aic

    @property
    def bic(self) -> float:
        """Return the Bayesian information criterion."""
        return self._likelihood.bic

    @property
    def certificate(self) -> Certificate:
        """Return the certificate of the fit, which is true if the fit is a finite maximum."""
        return self._likelihood.certificate

    @property
    def nuisance(self) -> pd.DataFrame:
        """Return the coefficients of the other model components: honesty, items, disguised covariates."""
        import pandas as pd  # noqa: PLC0415  (core and stats import pandas only when needed)

        fit, first = self._likelihood, len(self.terms)
        errors = np.sqrt(np.maximum(np.diag(fit.covariance)[first:], 0.0))
        return pd.DataFrame(
            {"coef": fit.solution.beta[first:], "stderr": errors}, index=list(fit.problem.nuisance)
        )

    def nuisance_terms(self, level: float = 0.95) -> Estimates:
        """Return the coefficients of `nuisance` with their profile intervals.

        Parameters
        ----------
        level : float, default 0.95
            Confidence level.

        Returns
        -------
        Estimates
            One row per coefficient.

        Raises
        ------
        InputError
            If the model has only the terms of its formula, or the fit is by the corrected score.
        """
        fit, first = self._likelihood, len(self.terms)
        names = fit.problem.nuisance
        if not names:
            raise InputError("The model has no other components: all coefficients belong to its formula.")
        two_sided_quantile(level)
        ends = np.array([fit.interval(first + place, level) for place in range(len(names))])
        frame = self.nuisance
        numbers = [frame["coef"].to_numpy(), frame["stderr"].to_numpy(), *ends.T]
        labels: list[tuple[Category, ...]] = [(name,) for name in names]
        result = self._estimates("Other coefficients", ("term",), labels, numbers, level)
        return replace(result, what="coef", in_percent=False)

    def conf_int(self, alpha: float = 0.05) -> pd.DataFrame:
        """Return intervals of level 1 − alpha: profile, or Wald for the corrected score."""
        import pandas as pd  # noqa: PLC0415

        if self.fit is None:
            half = two_sided_quantile(1 - alpha) * self._errors
            ends = np.stack([self.values - half, self.values + half], axis=1)
        else:
            two_sided_quantile(1 - alpha)
            ends = np.array([self.fit.interval(place, 1 - alpha) for place in range(len(self.terms))])
        return pd.DataFrame(ends.reshape(-1, 2), index=list(self.terms))

    def profile(self, term: str, level: float = 0.95) -> tuple[float, float]:
        """Return the profile interval of a term.

        Parameters
        ----------
        term : str
            Name of the coefficient, which may belong to a nuisance component.
        level : float, default 0.95
            Confidence level.

        Returns
        -------
        tuple of float
            The bounds. A bound is infinite if the reports do not determine it.
        """
        fit = self._likelihood
        names = (*self.terms, *fit.problem.nuisance)
        if term not in names:
            raise InputError(f"There is no term {term!r}. There are: {', '.join(names)}.")
        return fit.interval(names.index(term), level)

    def cov_params(self) -> pd.DataFrame:
        """Return the covariance of the estimates by term."""
        import pandas as pd  # noqa: PLC0415

        return pd.DataFrame(self.covariance, index=list(self.terms), columns=list(self.terms))

    def wald_test(self, *terms: str) -> TestResult:
        """Test by Wald's statistic whether some terms are 0; a variable's name selects all of its terms."""
        places = self._places(terms)
        statistic, df = wald(self.values[places], self.covariance[np.ix_(places, places)])
        title = f"No effect of {', '.join(terms)} in {self.formula}"
        return TestResult(title, statistic, df, chi_square_tail(statistic, df), self.n, "chi2")

    def lr_test(self, *terms: str) -> TestResult:
        """Test by the likelihood ratio whether some terms are 0.

        Parameters
        ----------
        *terms : str
            Names of terms. A variable's name selects all of its terms. By default all terms except
            intercepts.

        Returns
        -------
        TestResult
            The likelihood-ratio statistic; with clusters or a survey design, the Rao–Scott statistic.

        Raises
        ------
        InputError
            If there is no such term, or the fit is by the corrected score.
        """
        fit = self._likelihood
        places = (
            self._places(terms) if terms else [i for i, name in enumerate(self.terms) if _is_effect(name)]
        )
        if not places:
            raise InputError("There are no terms to test.")
        test = fit.test_terms(places)
        title = f"No effect of {', '.join(terms) or 'any term'} in {self.formula}"
        return TestResult(title, test.statistic, test.df, test.p_value, self.n, test.symbol, df2=test.df2)

    def compare(self, *others: Regression) -> pd.DataFrame:
        """Return log-likelihood, AIC and BIC of models, and the test of each against this model.

        The test is valid for nested models only.
        """
        import pandas as pd  # noqa: PLC0415

        fits = {f"{i + 1}: {one.formula}": one._likelihood for i, one in enumerate((self, *others))}  # noqa: SLF001
        return pd.DataFrame(compare_fits(fits)).set_index("model")

    def predict(self, at: At | pd.DataFrame = None, level: float = 0.95) -> Estimates:
        """Return predicted shares or means.

        Parameters
        ----------
        at : mapping, sequence of mappings or DataFrame, optional
            Values of the covariates. By default all combinations of their categories.
        level : float, default 0.95
            Confidence level.

        Returns
        -------
        Estimates
            One row per row of `at`, and per category of a multinomial or ordinal outcome. With a random
            intercept, predictions are averages over the groups of the population.
        """
        rows = self._prediction_rows(at)
        values, covariance = self._predictor_values()
        means = self._expectations(rows.X, values)
        stderr = delta_errors(lambda b: self._expectations(rows.X, b), values, covariance)
        lower, upper = interval_ends(means, stderr, two_sided_quantile(level), self._scale)
        names, shown = rows.names, list(rows.labels)
        if self.family.shares:
            names = (*names, self.outcome)
            shown = [(*row, label) for row in shown for label in self.labels]
        return self._estimates("Predictions", names, shown, [means, stderr, lower, upper], level)

    def shares(self, level: float = 0.95) -> Estimates:
        """Return the share or mean of the outcome that the model predicts, averaged over the records."""
        return self._averages("Average predictions", {"all": {}}, level, is_difference=False)

    def outcome_shares(self, level: float = 0.95) -> Estimates:
        """Return the shares of the outcome's categories that the model implies, averaged over the records.

        Designs that model lying, cheating or inattentive respondents have more than two categories. Then the
        share of yes is given with two denominators: all people, and those who follow the design.

        Parameters
        ----------
        level : float, default 0.95
            Confidence level.

        Returns
        -------
        Estimates
            One row per category, and per denominator.

        Raises
        ------
        InputError
            If the regression is not logistic by likelihood, or has a random intercept.
        """
        fit = self._likelihood
        rows = share_rows(fit)
        if not rows:
            raise InputError("Shares of categories are for logistic regressions without random intercepts.")
        shares, stderr = self._cached_shares()
        lower, upper = interval_ends(shares, stderr, two_sided_quantile(level), "logit")
        labels: list[tuple[Category, ...]] = [(row.text, row.of) for row in rows]
        numbers = [shares, stderr, lower, upper]
        return self._estimates("Shares of categories", ("category", "of"), labels, numbers, level)

    def marginal_effects(self, level: float = 0.95) -> Estimates:
        """Return average marginal effects.

        Parameters
        ----------
        level : float, default 0.95
            Confidence level.

        Returns
        -------
        Estimates
            For a numeric covariate, the average slope of the share or mean; for each other category, the
            average difference from the reference category. Averages are over the records, with disguised
            covariates weighted by their posterior.
        """
        changes = changes_of(self._likelihood.problem.covariates)
        return self._averages("Average marginal effects", changes, level, is_difference=True)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per term: coefficient, standard error, test, p-value, interval."""
        import pandas as pd  # noqa: PLC0415

        ends = self.conf_int(1 - self.level)
        tests = self._tests()
        columns: dict[str, Any] = {"term": list(self.terms), "coef": self.values, "stderr": self._errors}
        columns |= {tests[0].symbol if tests else "chi2": np.array([test.statistic for test in tests])}
        if self.fit is not None and self.fit.design is not None:
            columns["df2"] = self.fit.design.df[: len(tests)]
        columns["p_value"] = np.array([test.p_value for test in tests])
        columns |= {"lower": ends[0].to_numpy(), "upper": ends[1].to_numpy()}
        if self.kind in ODDS and self.has_odds:
            columns["odds ratio"] = np.exp(np.minimum(self.values, 700.0))
        return pd.DataFrame(columns)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot the coefficients, except intercepts, with their intervals."""
        kept = [i for i, name in enumerate(self.terms) if _is_effect(name)]
        ends = self.conf_int(1 - self.level)
        parts = [part[kept] for part in (self.values, ends[0].to_numpy(), ends[1].to_numpy())]
        parts = [np.where(np.isfinite(part), part, np.nan) for part in parts]
        return dot_plot(
            [self.terms[i] for i in kept],
            {"coefficient": Dots(*parts)},
            ax,
            xlabel=f"coefficient, {100 * self.level:g}% intervals",
            title=self.heading,
            mark=0.0,
        )

    def plot_residuals(self, ax: Axes | None = None) -> Axes:
        """Plot the observed minus the fitted share of the first report, grouped by the fitted share."""
        return plot_residuals(self._likelihood, self.heading, ax)

    def _cached_shares(self) -> tuple[Floats, Floats]:
        fit = self._likelihood
        if "shares" not in fit.cache:
            fit.cache["shares"] = estimate_shares(fit, share_rows(fit))
        shares: tuple[Floats, Floats] = fit.cache["shares"]
        return shares

    def _share_lines(self) -> tuple[str, ...]:
        """Return the shares of a design with more than two categories of truth, in one line."""
        if self.fit is None or self.fit.problem.sets is None or len(self.fit.problem.sets.labels) < 3:
            return ()
        rows = share_rows(self.fit)
        if not rows:
            return ()
        shares, stderr = self._cached_shares()
        texts = [
            f"{rows[i].text} {percent(shares[i])} ({percent(stderr[i])}) of {rows[i].of}"
            for i in main_rows(rows)
        ]
        return (f"Shares (standard errors): {'; '.join(texts)}.",)

    def _spread_lines(self) -> tuple[str, ...]:
        """Return the residual standard deviation of a linear regression."""
        if self.kind != "linear" or self.fit is None:
            return ()
        sd, stderr = np.exp(self.nuisance["coef"]["log sd"]), self.nuisance["stderr"]["log sd"]
        return (f"Residual standard deviation {sd:.4f} ({sd * stderr:.4f}).",)

    @property
    def _likelihood(self) -> LikelihoodFit:
        if self.fit is None:
            raise InputError("The corrected score has no likelihood: fit with method='likelihood'.")
        return self.fit

    @property
    def _errors(self) -> Floats:
        return np.sqrt(np.maximum(np.diag(self.covariance), 0.0))

    @property
    def _scale(self) -> str:
        return {"linear": "identity", "poisson": "log"}.get(self.kind, "logit")

    def _tests(self) -> list[TermTest]:
        """Return the test of every term."""
        if self.fit is None:
            z = self.values / self._errors
            return [TermTest(float(one), 1.0, normal_p(float(one)), "z") for one in z]
        symbol = "chi2" if self.fit.design is None else "F"
        none = TermTest(np.nan, 0.0, np.nan, symbol)
        # testing whether a cut point is 0 would be meaningless
        return [
            none if " | " in name else self.fit.test_terms([place]) for place, name in enumerate(self.terms)
        ]

    def _places(self, terms: Sequence[str]) -> list[int]:
        places: set[int] = set()
        for term in terms:
            chosen = select_terms(self.terms, term)
            if not chosen:
                raise InputError(f"No term has the name {term!r}. There are: {', '.join(self.terms)}.")
            places |= set(chosen)
        return sorted(places)

    def _prediction_rows(self, at: At | pd.DataFrame) -> PredictionRows:
        if self.fit is not None:
            return rows_of_covariates(self.fit.problem.covariates, at)
        if self.cells is None:
            raise InputError("Predictions by the corrected score need covariates from the source alone.")
        frame: Any = at  # a frame is converted to rows
        return rows_of_cells(self.cells, frame)

    def _predictor_values(self) -> tuple[Floats, Floats]:
        """Return the coefficients that predictions depend on, with their covariance.

        They are the coefficients of the formula and, with a random intercept, its standard deviation.
        """
        if self.fit is None or SD not in self.fit.problem.nuisance:
            return self.values, self.covariance
        places = [*range(len(self.terms)), len(self.terms) + self.fit.problem.nuisance.index(SD)]
        return self.fit.solution.beta[places], self.fit.covariance[np.ix_(places, places)]

    def _expectations(self, X: Floats, values: Floats) -> Floats:
        count = len(self.terms)
        predictors = self.family.design(X) @ values[:count]
        if len(values) == count:
            return self.family.expected(predictors)
        return average_over_groups(self.family, predictors, float(values[count]))

    def _averages(
        self, title: str, changes: Mapping[str, Mapping[str, Any]], level: float, *, is_difference: bool
    ) -> Estimates:
        """Return predictions, or their differences, averaged over the records."""
        weights, frame = record_frame(self._likelihood)
        share = weights / weights.sum()
        covariates = self._likelihood.problem.covariates
        matrix = covariates.matrix
        pairs: dict[str, tuple[Floats | None, Floats, float]] = {}
        for label, change in changes.items():
            if not change:
                pairs[label] = (None, matrix.build(frame), 1.0)
                continue
            [(name, ends)] = change.items()
            low, high, width = change_covariate(covariates, frame, name, ends)
            pairs[label] = (matrix.build(low), matrix.build(high), width)

        def average(beta: Floats) -> Floats:
            rows = []
            for low, high, width in pairs.values():
                mean = share @ self._expectations(high, beta)
                rows.append(mean if low is None else (mean - share @ self._expectations(low, beta)) / width)
            return np.stack(rows)

        values, covariance = self._predictor_values()
        means = average(values)
        stderr = delta_errors(average, values, covariance)
        scale = "identity" if is_difference else self._scale
        lower, upper = interval_ends(means, stderr, two_sided_quantile(level), scale)
        names: tuple[str, ...] = ("effect",) if is_difference else ("records",)
        shown: list[tuple[Category, ...]] = [(label,) for label in pairs]
        if self.family.shares:
            names = (*names, self.outcome)
            shown = [(*row, label) for row in shown for label in self.labels]
        return self._estimates(title, names, shown, [means, stderr, lower, upper], level)

    def _estimates(
        self,
        title: str,
        names: tuple[str, ...],
        labels: Sequence[tuple[Category, ...]],
        numbers: Sequence[Floats],
        level: float,
    ) -> Estimates:
        found, stderr, lower, upper = (part.ravel() for part in numbers)
        return Estimates(
            f"{title} of {self.formula}",
            "mean" if self._scale in ("identity", "log") else "share",
            names,
            tuple(labels),
            found,
            stderr,
            lower,
            upper,
            self.n,
            level,
            in_percent=self._scale == "logit",
        )

    def _series(self, values: Floats) -> pd.Series:
        import pandas as pd  # noqa: PLC0415

        return pd.Series(values, index=list(self.terms))


def _is_effect(name: str) -> bool:
    return "Intercept" not in name and " | " not in name
