"""Answers from sums over observed reports, shared by all sources that tabulate reports."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Protocol

import numpy as np

from masquerade.channels.policy import Policy
from masquerade.channels.policy.privacy import guarantee_of
from masquerade.core.axes import AxisMaps, Floats
from masquerade.core.errors import InputError, MasqueradeWarning, Refusal
from masquerade.core.evidence import Fit
from masquerade.core.guarantee import Guarantee
from masquerade.core.linear_covariance import CovariancePart, LinearCovariance
from masquerade.core.query import Query
from masquerade.core.table import CountTable
from masquerade.core.tally import Selected, raise_refusals
from masquerade.estimate.evidence import GaussianEvidence, ReportEvidence
from masquerade.estimate.misfit import Misfit, misfit
from masquerade.estimate.posterior import Posterior, posterior_of
from masquerade.sources.query_plan import QueryLayout, QueryPlan
from masquerade.sources.record_store import Observed

BEYOND_CHANCE = 1 - 2e-6  # under the right policy, such an interval is below 0 in one of a million cells


@dataclass(frozen=True, slots=True)
class Missing:
    """Description of missing records, and whether the caller accepts it.

    Standard errors refer to a population, as if the records were a sample of it. Learners rely on them, so
    every query is refused until the caller accepts that answers are about the remaining records.
    """

    what: str
    accepted: bool = False

    def refusals(self, queries: Sequence[Query | None]) -> list[Refusal]:
        """Return a refusal with the code ``incomplete`` for every query, or none if accepted."""
        if self.accepted:
            return []
        reason = (
            f"Rows are missing, not at random: {self.what}. "
            "Use accept_incomplete=True (or --accept-incomplete) to continue."
        )
        return [Refusal("incomplete", reason, query) for query in queries]

    def add_to(self, guarantee: Guarantee) -> Guarantee:
        """Return a guarantee with the missing records among its assumptions."""
        return replace(guarantee, assumptions=(*guarantee.assumptions, self.what))


class ReportPart(Protocol):
    """Reports that share their channels: all of them, or those of one stratum."""

    @property
    def layout(self) -> QueryLayout:
        """Layout of these reports."""

    def observe(self, plans: Sequence[QueryPlan]) -> list[Observed]:
        """Return the sums that plans need, in as few passes as possible."""


class ReportTally(ABC):
    """A `Tally` over reports that can be tabulated.

    A subclass defines `parts`, the number of records (`n`), and whether records have survey weights
    (`weighted`). Everything else follows from the sums of the parts. If records are `missing`, not at random,
    every query is refused unless the caller accepts that. `unmarked` records do not state how they were
    disguised: a warning is issued for the first variable whose reports are implausible under the policy.
    """

    n: int
    weighted: bool = False
    missing: Missing | None = None
    unmarked: bool = False

    def __init__(self, policy: Policy, missing: Missing | None = None) -> None:
        self.policy = policy
        self.schema = policy.schema
        self.missing = missing
        self._looked: set[str] = set()
        known = guarantee_of(policy)
        self.guarantee = known if missing is None else missing.add_to(known)

    @abstractmethod
    def parts(self, questions: int) -> Sequence[ReportPart]:
        """Return the parts to query. `questions` is the number of queries that follow."""

    def layouts(self) -> Sequence[QueryLayout]:
        """Return the layout of every part."""
        return [part.layout for part in self.parts(0)]

    def check(self, queries: Sequence[Query]) -> list[Refusal]:
        """Return the refusals of queries: missing records, channels without inverse, too many cells."""
        missing = [] if self.missing is None else self.missing.refusals(queries)
        layouts = self.layouts()
        for part in layouts:
            part.forget_plans()
        return missing + [item for query in queries for part in layouts for item in part.refusals(query)]

    def select(self, names: Iterable[str]) -> Selected:
        """Return some variables as a separate source: ``source.select(["a", "b"])``."""
        return Selected(self, names)

    def check_complete(self) -> None:
        """Raise QueryRefused if records are missing and the caller has not accepted it."""
        if self.missing is not None:
            raise_refusals(self.missing.refusals([None]))

    def answer(self, queries: Sequence[Query]) -> list[CountTable]:
        """Answer a batch, with as few passes over the records as possible."""
        if isinstance(queries, Query):
            raise InputError("A source answers a list of queries: write answer([query]).")
        raise_refusals(self.check(queries))
        if not queries:
            return []
        observed = [
            observed_by(part, [part.layout.plan(query) for query in queries])
            for part in self.parts(len(queries))
        ]
        values = [
            AxisMaps.apply_each([plan.maps for plan, _ in part], [sums.firsts for _, sums in part])
            for part in observed
        ]
        tables = [
            self._table(query, parts, reduce(np.add, counts))
            for query, parts, counts in zip(
                queries, zip(*observed, strict=True), zip(*values, strict=True), strict=True
            )
        ]
        if self.unmarked:
            self._warn_of_clear(queries, tables)
        return tables

    def _warn_of_clear(self, queries: Sequence[Query], tables: Sequence[CountTable]) -> None:
        """Warn once if a count is significantly negative: this policy did not disguise the records."""
        for query, table in zip(queries, tables, strict=True):
            for name in () if query.where else query.by:
                if name in self._looked or name not in self.policy.disguised:
                    continue
                self._looked.add(name)
                if np.any(table.marginal(name).conf_int(BEYOND_CHANCE).upper < 0):
                    self.unmarked = False
                    warnings.warn(
                        f"No truth explains the reports of {name!r}: the estimated count of one of its "
                        "categories is negative. These records are not disguised, or were disguised under a "
                        "different policy, or people did not follow it: do not trust their numbers.",
                        MasqueradeWarning,
                        stacklevel=3,
                    )
                    return

    def posterior(self, query: Query, *, prior: float = 0.5, seed: int = 0) -> Posterior:
        """Draw the shares of a table from their posterior distribution, under a Dirichlet prior.

        See `masquerade.estimate.posterior`. `prior` is the pseudo-count of every cell. Equal seeds give equal
        draws.
        """
        (table,) = self.answer([query])
        if query.where or not isinstance(table.evidence, ReportEvidence):
            raise InputError("A posterior needs a query without conditions: query the larger table.")
        generator = np.random.default_rng(seed)
        return posterior_of(table.evidence.parts, table.axes, table.n, prior, generator)

    def fit(self, names: Sequence[str], generators: Iterable[Iterable[str] | str]) -> Fit:
        """Fit a log-linear model to the reports of variables, even if their table cannot be estimated.

        A model with fewer parameters than reports may distinguish truths that a table cannot: see
        `mq.channels.self_protective_no`. The fit's `contrast` has standard errors, its `deviance` measures
        the fit.
        """
        parts = self.parts(1)
        if len(parts) > 1 or self.weighted:
            raise InputError("A log-linear fit needs one stratum at a time, and unweighted records.")
        self.check_complete()
        [(plan, sums)] = observed_by(parts[0], [parts[0].layout.latent(names)])
        values = plan.maps.apply(sums.firsts)
        covariance = LinearCovariance((CovariancePart(sums.squares, plan.maps),), values, values, self.n)
        reports = replace(plan.reports(sums.firsts), told=None)
        places = [
            [list(names).index(name) for name in ([own] if isinstance(own, str) else own)]
            for own in generators
        ]
        found = ReportEvidence.of([reports], values, covariance).fit(places)
        if found.df < 0:
            raise InputError("The model has more parameters than the reports can identify: omit terms.")
        return found

    def misfit(self, names: Sequence[str]) -> Misfit:
        """Test whether the reports of some variables can come from this policy (goodness of fit).

        See `masquerade.estimate.misfit`. A small p-value indicates a wrong policy or cheating respondents.
        """
        parts = self.parts(1)
        if len(parts) > 1 or self.weighted:
            raise InputError("The goodness-of-fit test needs one stratum at a time, and unweighted records.")
        query = Query(by=names)
        raise_refusals(self.check([query]))
        [(plan, sums)] = observed_by(parts[0], [parts[0].layout.plan(query)])
        reports = plan.reports(sums.firsts)
        return misfit(reports.observed, reports.channels, reports.samples)

    def noise_parts(self, query: Query) -> tuple[CovariancePart, ...]:
        """Return the variance of noise that others added to the sums of a query; none here."""
        del query
        return ()

    def _table(self, query: Query, parts: Sequence[tuple[QueryPlan, Observed]], values: Floats) -> CountTable:
        fixed = (
            reduce(np.add, [plan.maps.apply(sums.fixed) for plan, sums in parts]) if self.weighted else values
        )
        weight = _mean_weight([sums for _, sums in parts]) if self.weighted else 1.0
        noise = self.noise_parts(query)
        covariance = LinearCovariance(
            (*[_scatter(plan, sums, weight if self.weighted else None) for plan, sums in parts], *noise),
            values,
            fixed,
            self.n,
            query.by,
            weight,
            self._between(parts),
        )
        axes = tuple([self.schema[name] for name in query.by])
        reports = [
            plan.reports(sums.counted, sums.weight, sums.squared)
            for plan, sums in parts
            if sums.counted is not None and not noise
        ]
        if len(reports) < len(parts):  # sums of weights, and noisy sums, have no likelihood here
            return CountTable(axes, values, self.n, GaussianEvidence.of(values, covariance))
        return CountTable(axes, values, self.n, ReportEvidence.of(reports, values, covariance))

    def _between(self, parts: Sequence[tuple[QueryPlan, Observed]]) -> tuple[tuple[Floats, float], ...]:
        """Return the part of the variance that is absent between records that were dealt different blocks."""
        dealt = [(plan.samples, plan.maps, sums.firsts) for plan, sums in parts if plan.samples is not None]
        if not dealt:
            return ()
        total = sum(float(samples.sizes.sum()) for samples, _, _ in dealt)
        scale = self.n / total if self.weighted and total > 0 and len(dealt) == len(parts) else 1.0
        return tuple(pair for samples, maps, firsts in dealt for pair in samples.between(firsts, maps, scale))


def observed_by(part: ReportPart, plans: Sequence[QueryPlan]) -> list[tuple[QueryPlan, Observed]]:
    """Return every plan, completed with the number of records per block, and the sums that it needs."""
    censuses = {plan.columns: plan for plan in [each.census for each in plans] if plan is not None}
    found = part.observe([*plans, *censuses.values()])
    blocks = dict(zip(censuses, [sums.firsts for sums in found[len(plans) :]], strict=True))
    settled = [plan if plan.census is None else plan.settle(blocks[plan.census.columns]) for plan in plans]
    return list(zip(settled, found[: len(plans)], strict=True))


def _scatter(plan: QueryPlan, sums: Observed, weight: float | None) -> CovariancePart:
    """Return the sums of second, third and fourth powers of row weights, and the bounds of those weights.

    `weight` is the mean survey weight, weighted by itself; survey weights are taken as equal within a report.
    If a condition on disguised variables was weighted record by record, every row is assumed to have the
    largest weight.
    """
    if (
        weight is None and sums.counted is not None and not plan.factors
    ):  # the most frequent case: rows have weight 1
        return CovariancePart(sums.squares, plan.maps, sums.counted, sums.counted, (1.0, 1.0))
    low, high = 1.0, 1.0
    for factor in plan.factors:
        corners = [a * b for a in (low, high) for b in factor.ends]
        low, high = min(corners), max(corners)
    mean = 1.0 if weight is None else weight
    ends_of_rows = low * mean, high * mean
    if sums.counted is not None and (weight is None or plan.weighing):
        cubes, fourths = sums.counted * mean**2, sums.counted * mean**3
        for factor in reversed(plan.weighing):
            cubes, fourths = cubes @ factor.vector**3, fourths @ factor.vector**4
    elif not plan.weighing:
        own = np.divide(sums.squares, sums.firsts, out=np.zeros_like(sums.firsts), where=sums.firsts > 0)
        cubes, fourths = sums.squares * own, sums.squares * own**2
    else:
        heaviest = max(map(abs, ends_of_rows))
        cubes, fourths = sums.squares * heaviest, sums.squares * heaviest**2
    return CovariancePart(sums.squares, plan.maps, np.asarray(cubes), np.asarray(fourths), ends_of_rows)


def _mean_weight(parts: Sequence[Observed]) -> float:
    """Return the mean survey weight of records, weighted by itself: Σv²/Σv."""
    above, below = (
        sum(float(np.abs(sums).sum()) for sums in some)
        for some in ([sums.fixed for sums in parts], [sums.firsts for sums in parts])
    )
    return above / below if below > 0 else 1.0
