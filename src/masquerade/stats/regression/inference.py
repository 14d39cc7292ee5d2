"""Tests, intervals, errors and residuals of a fitted report likelihood."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.core.distributions import chi_square_point, chi_square_tail
from masquerade.core.errors import InputError
from masquerade.core.plots.drawing import Dots, dot_plot
from masquerade.stats.estimates import TestResult
from masquerade.stats.regression.problem import Problem
from masquerade.stats.regression.profile import FEW_ROWS, profile_interval, ratio_statistic
from masquerade.stats.regression.solver import Certificate, Solution, certify, maximise_from

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Errors = Literal["observed", "expected", "outer", "sandwich"]
ERRORS: tuple[Errors, ...] = ("observed", "expected", "outer", "sandwich")
LEAST_EXPECTED = 5.0  # reports in a cell, on average, for a test of fit by cells
GROUPS = 10  # groups of rows by fitted probability, for a test of fit with continuous covariates


@dataclass(frozen=True, slots=True, eq=False)
class DesignErrors:
    """Errors estimated by clusters, by a survey design or by the sandwich.

    Attributes
    ----------
    covariance : array
        Covariance of all coefficients.
    df : array
        Degrees of freedom of each coefficient.
    text : str
        Method by which the errors were estimated.
    """

    covariance: Floats
    df: Floats
    text: str


class TermTest(NamedTuple):
    """The likelihood-ratio test of some coefficients: χ², or F with clusters or a survey's design."""

    statistic: float
    df: float
    p_value: float
    symbol: str = "chi2"
    df2: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class LikelihoodFit:
    """A maximum of the likelihood with its errors.

    Attributes
    ----------
    problem : Problem
        Likelihood and the meaning of its coefficients.
    solution : Solution
        Maximum.
    certificate : Certificate
        Evidence that the solution is a maximum.
    covariance : array
        Covariance of all coefficients.
    model_covariance : array
        Inverse of the observed information.
    errors : str
        Method by which the covariance was estimated.
    design : DesignErrors or None
        Errors of clusters or a survey's design.
    """

    problem: Problem
    solution: Solution
    certificate: Certificate
    covariance: Floats
    model_covariance: Floats
    errors: str
    design: DesignErrors | None = None
    cache: dict[Any, Any] = field(default_factory=dict)

    def test_terms(self, places: Sequence[int]) -> TermTest:
        """Return the likelihood-ratio test of some coefficients.

        With clusters or a survey's design, it is the test of Rao and Scott: X²/(k·δ) against F(k, df2), where
        δ is the mean design effect of the k coefficients.
        """
        chosen = tuple(places)
        fixed = dict.fromkeys(chosen, 0.0)
        key = ("ratio", chosen)
        if key not in self.cache:
            starts = self.problem.starts
            self.cache[key] = ratio_statistic(self.problem.likelihood, self.solution, fixed, starts)
        statistic, k = self.cache[key], len(chosen)
        if self.design is None:
            return TermTest(statistic, float(k), chi_square_tail(statistic, k))
        effect, df = self._effect(chosen)
        from scipy.stats import f  # noqa: PLC0415  (slow to import)

        ratio = statistic / (k * effect)
        return TermTest(ratio, float(k), float(f.sf(ratio, k, df)), "F", df)

    def interval(self, place: int, level: float) -> tuple[float, float]:
        """Return the profile interval of a coefficient."""
        key = ("interval", place, level)
        if key not in self.cache:
            threshold = chi_square_point(1 - level, 1)
            if self.design is not None:
                from scipy.stats import f  # noqa: PLC0415  (slow to import)

                effect, df = self._effect((place,))
                threshold = effect * float(f.ppf(level, 1, df))
            stderr = float(np.sqrt(max(self.model_covariance[place, place], 0.0)))
            likelihood, starts = self.problem.likelihood, self.problem.starts
            # a likelihood with several starts may have several maxima
            again = starts[:1] if len(starts) > 1 and likelihood.n <= FEW_ROWS else ()
            self.cache[key] = profile_interval(likelihood, self.solution, place, stderr, threshold, again)
        found: tuple[float, float] = self.cache[key]
        return found

    def _effect(self, places: Sequence[int]) -> tuple[float, float]:
        """Return the mean design effect of some coefficients, and their degrees of freedom."""
        assert self.design is not None  # noqa: S101  (for the type checker: the callers have checked it)
        square = np.ix_(list(places), list(places))
        ratio = np.linalg.solve(self.model_covariance[square], self.design.covariance[square])
        return float(np.trace(ratio)) / len(places), float(self.design.df[list(places)].min())

    @property
    def parameters(self) -> int:
        """Return the number of coefficients."""
        return self.problem.likelihood.parameters

    @property
    def aic(self) -> float:
        """Return Akaike's information criterion."""
        return 2 * self.parameters - 2 * self.solution.value

    @property
    def bic(self) -> float:
        """Return the Bayesian information criterion."""
        return float(np.log(self.problem.n) * self.parameters - 2 * self.solution.value)


def fit_problem(problem: Problem, errors: Errors = "observed", start: Floats | None = None) -> LikelihoodFit:
    """Return the maximum of a problem's likelihood, with errors."""
    if errors not in ERRORS:
        raise InputError(f"'errors' must be one of {', '.join(ERRORS)}. Got {errors!r}.")
    starts = problem.starts if start is None else (start, *problem.starts)
    best, differs = maximise_from(problem.likelihood, starts)
    certificate = certify(problem.likelihood, best, has_other_maxima=differs)
    observed = problem.likelihood.derivatives(best.beta).observed
    bread: Floats = np.asarray(np.linalg.pinv(observed, hermitian=True))
    covariance = bread
    if errors == "expected":
        covariance = np.asarray(np.linalg.pinv(problem.likelihood.expected(best.beta), hermitian=True))
    elif errors != "observed":
        outer = problem.likelihood.outer(best.beta)
        inverse = np.asarray(np.linalg.pinv(outer, hermitian=True))
        covariance = inverse if errors == "outer" else bread @ outer @ bread
    return LikelihoodFit(problem, best, certificate, covariance, bread, errors)


def fit_statistic(fit: LikelihoodFit, formula: str) -> TestResult | None:
    """Test how well the model fits the reports; return None if no test applies.

    Formula: with few distinct covariates, G² of the reports within each of their combinations; otherwise, for
    two reports, Pearson's statistic over ten groups of fitted probabilities (Hosmer & Lemeshow 1980).
    """
    problem = fit.problem
    likelihood = problem.likelihood
    frame = problem.covariates.frame
    if not likelihood.has_counts or likelihood.design_of is None:
        return None
    title = f"Fit of {formula}"
    if likelihood.n < problem.n:
        cells = (
            frame.groupby(list(frame.columns), sort=False, observed=True).ngroup().to_numpy()
            if len(frame.columns)
            else np.zeros(likelihood.n, dtype=np.intp)
        )
        group = cells * (int(likelihood.design_of.max()) + 1) + likelihood.design_of
        _, member = np.unique(group, return_inverse=True)
        totals = np.bincount(member, likelihood.weights)
        sizes = np.zeros(len(totals), dtype=np.intp)
        sizes[member] = [likelihood.channels[d].shape[1] for d in likelihood.design_of]
        df = int(np.sum(sizes - 1)) - fit.parameters
        if df < 1:
            return None
        if problem.n / max(int(sizes.sum()), 1) >= LEAST_EXPECTED:
            seen = float(likelihood.weights @ np.log(likelihood.weights / totals[member]))
            statistic = max(2 * (seen - fit.solution.value), 0.0)
            return TestResult(title, statistic, df, chi_square_tail(statistic, df), problem.n, "G2")
    if max(channel.shape[1] for channel in likelihood.channels) > 2 or problem.n < 20 * GROUPS:
        return None
    return _test_groups(fit, title)


def _test_groups(fit: LikelihoodFit, title: str) -> TestResult | None:
    """Test the fit of yes/no reports by groups of rows with similar fitted probabilities."""
    chance, is_first = fitted_first(fit)
    order = np.argsort(chance, kind="stable")
    # a row that represents several records is counted once per record
    order = np.repeat(order, fit.problem.likelihood.weights[order].astype(np.intp))
    statistic = 0.0
    for rows in np.array_split(order, GROUPS):
        spread = float(np.sum(chance[rows] * (1 - chance[rows])))
        if spread > 0:
            statistic += float(np.sum(is_first[rows] - chance[rows])) ** 2 / spread
    df = GROUPS - 2
    return TestResult(title, statistic, df, chi_square_tail(statistic, df), fit.problem.n, "chi2")


def fitted_first(fit: LikelihoodFit) -> tuple[Floats, NDArray[np.float64]]:
    """Return the fitted probability of the first report in each row, and 1.0 if it was observed, else 0.0."""
    likelihood = fit.problem.likelihood
    assert likelihood.design_of is not None  # noqa: S101  (for the type checker: checked before)
    own = np.exp(likelihood.log_reports(fit.solution.beta))
    first = np.stack([channel[:, 0] for channel in likelihood.channels])[likelihood.design_of]
    is_first = np.all(np.abs(first - likelihood.chances) < 1e-12, axis=1)
    return np.where(is_first, own, 1 - own), is_first.astype(float)


def plot_residuals(fit: LikelihoodFit, title: str, ax: Axes | None = None) -> Axes:
    """Plot the observed minus the fitted share of the first report, grouped by the fitted share.

    Raises
    ------
    InputError
        If the reports are not yes/no reports.
    """
    likelihood = fit.problem.likelihood
    if likelihood.design_of is None or max(channel.shape[1] for channel in likelihood.channels) > 2:
        raise InputError("Residuals are plotted for outcomes with two possible reports.")
    chance, is_first = fitted_first(fit)
    order = np.argsort(chance, kind="stable")
    ends = np.searchsorted(
        np.cumsum(likelihood.weights[order]), np.linspace(0, likelihood.weights.sum(), GROUPS + 1)[1:-1]
    )
    labels, gaps, halves = [], [], []
    for rows in np.split(order, np.unique(ends)):
        weights = likelihood.weights[rows]
        if not weights.sum():
            continue
        mean = float(np.average(chance[rows], weights=weights))
        labels.append(f"fitted {mean:.0%}")
        gaps.append(float(np.average(is_first[rows] - chance[rows], weights=weights)))
        halves.append(1.96 * float(np.sqrt(mean * (1 - mean) / weights.sum())))
    middle, half = np.array(gaps), np.array(halves)
    return dot_plot(
        labels,
        {"residual": Dots(middle, middle - half, middle + half)},
        ax,
        xlabel="observed minus fitted share of the first report, 95% intervals",
        title=title,
        mark=0.0,
    )


def compare_fits(fits: Mapping[str, LikelihoodFit]) -> list[dict[str, Any]]:
    """Return one row per model: parameters, log-likelihood, AIC, BIC, and test against the first model."""
    rows = []
    first = next(iter(fits.values()))
    for name, fit in fits.items():
        if fit.problem.n != first.problem.n:
            raise InputError("Models can be compared only if they were fitted to the same records.")
        if set(fit.problem.covariates.hidden) != set(first.problem.covariates.hidden):
            raise InputError(
                "Models with different disguised covariates explain different reports. Use lr_test() instead."
            )
        more = abs(fit.parameters - first.parameters)
        statistic = 2 * abs(fit.solution.value - first.solution.value) if more else np.nan
        rows.append(
            {
                "model": name,
                "parameters": fit.parameters,
                "llf": fit.solution.value,
                "aic": fit.aic,
                "bic": fit.bic,
                "chi2": statistic,
                "df": more,
                "p_value": chi_square_tail(statistic, more) if more else np.nan,
            }
        )
    return rows
