"""Statistics of one table, as methods of the table.

The functions are in `masquerade.stats`, a higher layer, so that package is imported when a method is called.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from masquerade.core.axes import Floats
from masquerade.core.schema import Category

if TYPE_CHECKING:
    from masquerade.stats._tables import Names, Where
    from masquerade.stats.estimates import Adjustment, Estimates, TestResult, TestResults
    from masquerade.stats.hypotheses import Scores
    from masquerade.stats.missing_values import Missing, MissingOrAll
    from masquerade.stats.survival_curves import Survival


def call_statistic(name: str, *arguments: Any, **options: Any) -> Any:
    """Call a function of `masquerade.stats`, which is imported now; lower layers do not depend on it."""
    return getattr(import_module("masquerade.stats"), name)(*arguments, **options)


class TableStatistics:
    """Methods of a table: each is the function of the same name in `masquerade.stats`."""

    __slots__ = ()

    def shares(
        self,
        of: Names,
        by: Names = (),
        *,
        among: Sequence[Category] | None = None,
        where: Where = None,
        missing: Missing = "category",
        given: Names = (),
        level: float = 0.95,
    ) -> Estimates:
        """Estimate the share of each category of a variable, in groups.

        See `masquerade.stats.shares` for parameters and examples.
        """
        result: Estimates = call_statistic(
            "shares", self, of, by, among=among, where=where, missing=missing, given=given, level=level
        )
        return result

    def difference(
        self,
        outcome: str,
        group: str,
        *,
        category: Category | None = None,
        reference: Category | None = None,
        given: Names = (),
        where: Where = None,
        missing: MissingOrAll = "answered",
        level: float = 0.95,
    ) -> Estimates:
        """Estimate risk differences: how prevalences of an outcome differ between groups.

        See `masquerade.stats.difference` for parameters and examples.
        """
        result: Estimates = call_statistic(
            "difference",
            self,
            outcome,
            group,
            category=category,
            reference=reference,
            given=given,
            where=where,
            missing=missing,
            level=level,
        )
        return result

    def ratio(
        self,
        outcome: str,
        group: str,
        *,
        category: Category | None = None,
        reference: Category | None = None,
        given: Names = (),
        where: Where = None,
        missing: MissingOrAll = "answered",
        level: float = 0.95,
    ) -> Estimates:
        """Estimate relative risks: ratios of prevalences of an outcome between groups.

        See `masquerade.stats.ratio` for parameters and examples.
        """
        result: Estimates = call_statistic(
            "ratio",
            self,
            outcome,
            group,
            category=category,
            reference=reference,
            given=given,
            where=where,
            missing=missing,
            level=level,
        )
        return result

    def odds_ratio(
        self,
        outcome: str,
        group: str,
        *,
        category: Category | None = None,
        reference: Category | None = None,
        given: Names = (),
        where: Where = None,
        missing: MissingOrAll = "answered",
        level: float = 0.95,
    ) -> Estimates:
        """Estimate odds ratios of an outcome between groups, per category of `given`.

        See `masquerade.stats.odds_ratio` for parameters and examples.
        """
        result: Estimates = call_statistic(
            "odds_ratio",
            self,
            outcome,
            group,
            category=category,
            reference=reference,
            given=given,
            where=where,
            missing=missing,
            level=level,
        )
        return result

    def mantel_haenszel(
        self,
        outcome: str,
        group: str,
        given: Names,
        *,
        category: Category | None = None,
        reference: Category | None = None,
        where: Where = None,
        missing: MissingOrAll = "answered",
        level: float = 0.95,
    ) -> Estimates:
        """Estimate the common odds ratio over all categories of `given`.

        See `masquerade.stats.mantel_haenszel` for parameters and examples.
        """
        result: Estimates = call_statistic(
            "mantel_haenszel",
            self,
            outcome,
            group,
            given,
            category=category,
            reference=reference,
            where=where,
            missing=missing,
            level=level,
        )
        return result

    def independence(
        self,
        first: str,
        second: str,
        *,
        given: Names = (),
        where: Where = None,
        missing: MissingOrAll = "answered",
    ) -> TestResult:
        """Test whether two variables are independent, per category of `given`.

        See `masquerade.stats.independence` for parameters and examples.
        """
        result: TestResult = call_statistic(
            "independence", self, first, second, given=given, where=where, missing=missing
        )
        return result

    def associations(
        self,
        pairs: Iterable[tuple[str, str]] | str | None = None,
        *,
        given: Names = (),
        where: Where = None,
        missing: MissingOrAll = "answered",
        method: Adjustment = "holm",
    ) -> TestResults:
        """Test pairs of variables for association, with adjusted p-values.

        See `masquerade.stats.associations` for parameters and examples.
        """
        result: TestResults = call_statistic(
            "associations", self, pairs, given=given, where=where, missing=missing, method=method
        )
        return result

    def trend(
        self,
        outcome: str,
        over: str,
        *,
        category: Category | None = None,
        outcome_scores: Scores | None = None,
        scores: Scores | None = None,
        where: Where = None,
        missing: MissingOrAll = "answered",
    ) -> TestResult:
        """Test whether an outcome rises or falls along an ordered variable.

        See `masquerade.stats.trend` for parameters and examples.
        """
        result: TestResult = call_statistic(
            "trend",
            self,
            outcome,
            over,
            category=category,
            outcome_scores=outcome_scores,
            scores=scores,
            where=where,
            missing=missing,
        )
        return result

    def marginal_homogeneity(
        self, first: str, second: str, *, where: Where = None, missing: MissingOrAll = "answered"
    ) -> TestResult:
        """Test whether two variables with the same categories are distributed equally.

        See `masquerade.stats.marginal_homogeneity` for parameters and examples.
        """
        result: TestResult = call_statistic(
            "marginal_homogeneity", self, first, second, where=where, missing=missing
        )
        return result

    def contrast(
        self, weights: Floats | Sequence[float], *, null: float = 0.0, level: float = 0.95
    ) -> Estimates:
        """Estimate a weighted sum of the counts.

        See `masquerade.stats.contrast` for parameters and examples.
        """
        result: Estimates = call_statistic("contrast", self, weights, null=null, level=level)
        return result

    def mean(
        self,
        of: str,
        by: Names = (),
        *,
        scores: Mapping[Category, float] | Sequence[float] | None = None,
        where: Where = None,
        missing: Missing = "answered",
        given: Names = (),
        level: float = 0.95,
    ) -> Estimates:
        """Estimate the mean of a variable whose categories are numbers or bins, or have scores.

        See `masquerade.stats.mean` for parameters and examples.
        """
        result: Estimates = call_statistic(
            "mean", self, of, by, scores=scores, where=where, missing=missing, given=given, level=level
        )
        return result

    def quantile(
        self,
        of: str,
        q: float = 0.5,
        by: Names = (),
        *,
        edges: Sequence[float] | None = None,
        where: Where = None,
        missing: Missing = "answered",
        given: Names = (),
        level: float = 0.95,
    ) -> Estimates:
        """Estimate a quantile of an ordered variable, in groups.

        See `masquerade.stats.quantile` for parameters and examples.
        """
        result: Estimates = call_statistic(
            "quantile", self, of, q, by, edges=edges, where=where, missing=missing, given=given, level=level
        )
        return result

    def survival(
        self,
        time: str,
        event: str,
        by: Names = (),
        *,
        given: Names = (),
        category: Category | None = None,
        where: Where = None,
        missing: MissingOrAll = "answered",
        level: float = 0.95,
    ) -> Survival:
        """Estimate survival curves, with a log-rank test and hazard ratios between groups.

        See `masquerade.stats.survival` for parameters and examples.
        """
        result: Survival = call_statistic(
            "survival",
            self,
            time,
            event,
            by,
            given=given,
            category=category,
            where=where,
            missing=missing,
            level=level,
        )
        return result
