"""Errors of lift, leverage and conviction, and the test of independence of a rule."""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.distributions import two_sided_quantile
from masquerade.core.intervals import Interval
from masquerade.core.report_moments import unbiased_factor

ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class RuleShares:
    """Shares of records with both sides, the left side and the right side, and their (co)variances."""

    both: Floats
    left: Floats
    right: Floats
    of_both: Floats
    of_left: Floats
    of_right: Floats
    both_left: Floats
    both_right: Floats
    left_right: Floats

    def error(self, both: Floats, left: Floats, right: Floats) -> Floats:
        """Return the standard error of a measure with these partial derivatives, by the delta method."""
        variance = both**2 * self.of_both + left**2 * self.of_left + right**2 * self.of_right
        mixed = both * left * self.both_left + both * right * self.both_right + left * right * self.left_right
        return np.sqrt(np.maximum(variance + 2 * mixed, 0.0))

    def lift_error(self) -> Floats:
        """Return the standard error of P(both)/(P(left)·P(right))."""
        left, right = positive(self.left), positive(self.right)
        lift = self.both / (left * right)
        return np.where(
            self.right > ROUNDING, self.error(1 / (left * right), -lift / left, -lift / right), np.inf
        )

    def leverage_error(self) -> Floats:
        """Return the standard error of P(both) − P(left)·P(right)."""
        return self.error(np.ones_like(self.both), -self.right, -self.left)

    def conviction_error(self) -> Floats:
        """Return the standard error of (1 − P(right))/(1 − confidence); infinite if the rule never fails."""
        fails = self.left - self.both
        safe = positive(fails)
        slopes = (
            (1 - self.right) * self.left / safe**2,
            -(1 - self.right) * self.both / safe**2,
            -self.left / safe,
        )
        return np.where(fails > ROUNDING * self.left, self.error(*slopes), np.inf)

    def p_values(self, n: int, *, weighted: bool = False) -> Floats:
        """Return p-values of the test that both sides are independent in the reports.

        Formula: z = leverage/√(n·Var left·Var right), the correlation of a record's weights for both sides
        times √n; two-sided. Channels of different variables preserve independence, so the variance under the
        hypothesis is known. For two binary items this is Pearson's test of their disguised table. Survey
        weights may depend on the items: with them z = leverage/stderr.
        Error: approximate where few reports are informative. Both sides must have been disguised separately;
        under one symmetric channel for both, the test is conservative.
        """
        from scipy.special import ndtr  # noqa: PLC0415  (learners load scipy only if a test is requested)

        if weighted:
            spread = self.leverage_error()
        else:
            spread = np.sqrt(np.maximum(n * self.of_left * self.of_right, 0.0)) / unbiased_factor(n)
        gap = self.both - self.left * self.right
        z = np.divide(gap, spread, out=np.zeros_like(gap), where=spread > 0)
        return np.asarray(2 * ndtr(-np.abs(z)))


def lift_interval(lift: Floats, stderr: Floats, level: float) -> Interval:
    """Return intervals of ratios, normal on the log scale."""
    known = np.isfinite(lift) & np.isfinite(stderr) & (lift > 0)
    factor = np.exp(
        np.minimum(
            two_sided_quantile(level) * np.divide(stderr, lift, out=np.zeros_like(lift), where=known), 700
        )
    )
    return Interval(np.where(known, lift / factor, 0.0), np.where(known, lift * factor, np.inf))


def conviction_interval(conviction: Floats, stderr: Floats, level: float) -> Interval:
    """Return intervals of convictions, normal on the scale of 1/conviction, the rate of failure."""
    finite = np.isfinite(conviction) & (conviction > 0)
    fails = np.where(finite, 1 / np.where(finite, conviction, 1.0), 0.0)
    half = two_sided_quantile(level) * np.where(finite, stderr, 0.0) * fails**2
    known = np.isfinite(stderr) & finite
    lower = np.where(known, 1 / positive(fails + half), 0.0)
    upper = np.where(known & (fails - half > ROUNDING), 1 / positive(fails - half), np.inf)
    return Interval(lower, upper)


def false_discovery_rates(p_values: Floats, tests: int) -> Floats:
    """Return, for each p-value, the smallest false discovery rate at which it is a discovery.

    Formula: min over ranks j ≥ i of p_(j)·m·(1 + 1/2 + … + 1/m)/j among m tests; tests whose p-value is not
    given count as not rejected. Valid for any dependence of the tests.
    Reference: Benjamini & Yekutieli (2001).
    """
    m = max(tests, len(p_values), 1)
    exact = min(m, 100_000)
    harmonic = fsum(1 / j for j in range(1, exact + 1)) + float(np.log(m / exact))
    order = np.argsort(p_values, kind="stable")
    rates = p_values[order] * m * harmonic / np.arange(1, len(order) + 1)
    result = np.empty_like(rates)
    result[order] = np.minimum(np.minimum.accumulate(rates[::-1])[::-1], 1.0)
    return result


def positive(values: Floats) -> Floats:
    """Return values, replacing those that are not positive by 1."""
    return np.where(values > ROUNDING, values, 1.0)
