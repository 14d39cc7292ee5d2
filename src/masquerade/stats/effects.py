"""Compare groups: risk differences, relative risks and odds ratios, from counts with their covariance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.distributions import two_sided_quantile
from masquerade.core.errors import InputError
from masquerade.core.intervals import keep_inside
from masquerade.core.schema import Category
from masquerade.core.table import CountTable
from masquerade.core.tally import Tally
from masquerade.stats._tables import (
    Names,
    Where,
    category_of,
    names_of,
    null_variance,
    reference_of,
    squared_error,
    z_of,
)
from masquerade.stats.estimates import Estimates
from masquerade.stats.missing_values import MissingOrAll, table_of_answers
from masquerade.stats.percentages import RowShares, given_text, row_shares, unsteady_notes


@dataclass(frozen=True, slots=True)
class Prevalence:
    """Prevalence of one group with its confidence interval."""

    value: float
    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class Effect:
    """Comparison of two prevalences: estimate, standard error and interval."""

    value: float
    stderr: float
    lower: float
    upper: float


# both prevalences, their standard errors, the correlation of the estimates
Compare = Callable[[Prevalence, Prevalence, float, float, float], Effect]


def difference(
    data: Tally | CountTable,
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
    """Estimate risk differences: how the prevalence of an outcome differs between groups.

    Parameters
    ----------
    data : Tally or CountTable
        Source of counts, or a table that contains all variables named here.
    outcome : str
        Variable whose prevalence is compared.
    group : str
        Variable that defines the groups.
    category : category, optional
        Category of the outcome that is counted. May be omitted for yes/no outcomes: then it is "yes".
    reference : category, optional
        Group that the others are compared with. By default the first category of `group`.
    given : str or sequence of str, optional
        Strata: groups are compared within each combination of their categories.
    where : mapping of str to category, optional
        Count only the records with these categories, for example ``{"region": "north"}``.
    missing : {"answered", "category"}, default "answered"
        Count only people who answered all variables named here, or count missing answers as categories.
    level : float, default 0.95
        Confidence level of the intervals.

    Returns
    -------
    Estimates
        One row per compared group and stratum, with p-values for equal prevalences.

    Raises
    ------
    InputError
        If a variable or category is unknown, or `group` has a single category.
    QueryRefused
        If the source refuses the counts.

    Notes
    -----
    Formula: p̂₁ − p̂₀. The lower limit is √((p̂₁ − l₁)² − 2ρ(p̂₁ − l₁)(u₀ − p̂₀) + (u₀ − p̂₀)²) below the
    estimate, the upper limit correspondingly above, where l and u are the limits of both prevalences' score
    intervals and ρ is the correlation of the estimates. The p-value uses the variance under equal
    prevalences.
    Reference: Newcombe (1998); Zou & Donner (2008).
    Error: measured, see docs/numerics.md.

    Examples
    --------
    >>> source = mq.tally(mq.data.students())
    >>> print(mq.stats.difference(source, "pills", "exams", category="yes", reference="few"))
    Difference of pills = yes by exams, n = 600
         exams difference stderr lower upper      z p_value
    many − few      18.0%   3.2% 11.6% 24.3% 5.4125 <0.0001
    (95% intervals; p-values against difference = 0)
    """
    comparison = _Comparison(outcome, group, category, reference, names_of(given), where, missing, level)
    return _compare_groups(data, comparison, "difference", 0.0, _difference)


def ratio(
    data: Tally | CountTable,
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
    """Estimate relative risks: ratios of the prevalence of an outcome between groups.

    Parameters
    ----------
    data : Tally or CountTable
        Source of counts, or a table that contains all variables named here.
    outcome : str
        Variable whose prevalence is compared.
    group : str
        Variable that defines the groups.
    category : category, optional
        Category of the outcome that is counted. May be omitted for yes/no outcomes: then it is "yes".
    reference : category, optional
        Group that the others are compared with. By default the first category of `group`.
    given : str or sequence of str, optional
        Strata: groups are compared within each combination of their categories.
    where : mapping of str to category, optional
        Count only the records with these categories, for example ``{"region": "north"}``.
    missing : {"answered", "category"}, default "answered"
        Count only people who answered all variables named here, or count missing answers as categories.
    level : float, default 0.95
        Confidence level of the intervals.

    Returns
    -------
    Estimates
        One row per compared group and stratum, with p-values for equal prevalences.

    Raises
    ------
    InputError
        If a variable or category is unknown, or `group` has a single category.
    QueryRefused
        If the source refuses the counts.

    Notes
    -----
    Formula: p̂₁/p̂₀ with Fieller's (1954) limits, computed from the variances implied by both prevalences'
    score intervals (Donner & Zou 2012). Where the prevalence of the reference may be 0 the upper limit is
    infinite.

    Examples
    --------
    >>> source = mq.tally(mq.data.students())
    >>> print(mq.stats.ratio(source, "pills", "exams", category="yes", reference="few"))
    Ratio of pills = yes by exams, n = 600
         exams  ratio stderr  lower  upper      z p_value
    many : few 2.5000 0.4488 1.7638 3.5499 5.4125 <0.0001
    (95% intervals; p-values against ratio = 1)
    """
    comparison = _Comparison(outcome, group, category, reference, names_of(given), where, missing, level)
    return _compare_groups(data, comparison, "ratio", 1.0, _ratio)


def odds_ratio(
    data: Tally | CountTable,
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
    """Estimate odds ratios of an outcome between groups.

    Parameters
    ----------
    data : Tally or CountTable
        Source of counts, or a table that contains all variables named here.
    outcome : str
        Variable whose prevalence is compared.
    group : str
        Variable that defines the groups.
    category : category, optional
        Category of the outcome that is counted. May be omitted for yes/no outcomes: then it is "yes".
    reference : category, optional
        Group that the others are compared with. By default the first category of `group`.
    given : str or sequence of str, optional
        Strata: groups are compared within each combination of their categories.
    where : mapping of str to category, optional
        Count only the records with these categories, for example ``{"region": "north"}``.
    missing : {"answered", "category"}, default "answered"
        Count only people who answered all variables named here, or count missing answers as categories.
    level : float, default 0.95
        Confidence level of the intervals.

    Returns
    -------
    Estimates
        One row per compared group and stratum, with p-values for equal prevalences.

    Raises
    ------
    InputError
        If a variable or category is unknown, or `group` has a single category.
    QueryRefused
        If the source refuses the counts.

    Notes
    -----
    Formula: the difference of logits. Its limits are computed as in `difference`, from the logits of the
    limits of both prevalences. Where a prevalence is estimated at or beyond 0 or 1 the odds ratio is
    undetermined: the estimate is NaN, and the interval follows from both prevalences' intervals alone, which
    is conservative.

    Examples
    --------
    >>> source = mq.tally(mq.data.students())
    >>> print(mq.stats.odds_ratio(source, "sleep", "pills", category="bad", reference="no", given="exams"))
    Odds ratio of sleep = bad by pills given exams, n = 600
    exams    pills odds ratio stderr  lower upper      z p_value
      few yes : no     6.0000 2.2863 2.8790 12.50 4.0419 <0.0001
     many yes : no     6.0769 1.6704 3.5583 10.38 6.3263 <0.0001
    (95% intervals; p-values against odds ratio = 1)
    """
    comparison = _Comparison(outcome, group, category, reference, names_of(given), where, missing, level)
    return _compare_groups(data, comparison, "odds ratio", 1.0, _odds_ratio)


@dataclass(frozen=True, slots=True)
class _Comparison:
    outcome: str
    group: str
    category: Category | None
    reference: Category | None
    given: tuple[str, ...]
    where: Where
    missing: MissingOrAll
    level: float


def _compare_groups(
    data: Tally | CountTable, comparison: _Comparison, what: str, null: float, compare: Compare
) -> Estimates:
    names = (*comparison.given, comparison.group, comparison.outcome)
    table, absent = table_of_answers(data, names, comparison.where, comparison.missing, f"A {what}")
    *strata, group, outcome = table.axes
    code, base = category_of(outcome, comparison.category), reference_of(group, comparison.reference)
    if len(group) < 2:
        raise InputError(f"{group.name!r} has one category: there is nothing to compare.")
    group_shares = row_shares(table, len(strata) + 1, comparison.level)
    others = [row for row in range(len(group)) if row != base]
    rows: list[Effect] = []
    statistics, labels, gradients = [], [], []
    for index, stratum in enumerate(product(*(axis.categories for axis in strata))):
        at = tuple(map(int, np.unravel_index(index, table.values.shape[: len(strata)]))) if strata else ()
        prevalences = _prevalences(group_shares, at, code)
        for row in others:
            one, zero = (_gradient(table, (*at, i), code) for i in (row, base))
            errors = table.covariance.between(np.stack([one, zero]), np.stack([one, zero]))
            scale = np.sqrt(np.maximum(np.diag(errors), 0.0))
            rho = float(errors[0, 1] / (scale[0] * scale[1])) if scale.all() else 0.0
            rows.append(compare(prevalences[row], prevalences[base], float(scale[0]), float(scale[1]), rho))
            statistics.append(_equal_z(table, at, (row, base), code))
            labels.append((*stratum, f"{group.categories[row]} − {group.categories[base]}"))
            gradients.append(one - zero)
    stacked = np.stack(gradients)
    notes = [*absent, *unsteady_notes(table, group_shares, len(strata) + 1)]
    if any(np.isnan(row.value) for row in rows):
        notes.append(
            f"– : a prevalence is estimated at or beyond 0 or 1, so the {what} is undetermined; its "
            "interval follows from the intervals of both prevalences."
        )
    if what != "difference":
        labels = [(*row[:-1], str(row[-1]).replace(" − ", " : ")) for row in labels]
    title = f"{what.capitalize()} of {outcome.name} = {outcome.categories[code]} by {group.name}"
    if strata:
        title += f" given {', '.join(axis.name for axis in strata)}"
    return Estimates(
        title + given_text(comparison.where),
        what,
        (*(axis.name for axis in strata), group.name),
        tuple(labels),
        np.array([row.value for row in rows]),
        np.array([row.stderr for row in rows]),
        np.array([row.lower for row in rows]),
        np.array([row.upper for row in rows]),
        table.n,
        comparison.level,
        null,
        np.array(statistics),
        covariance=table.covariance.between(stacked, stacked) if what == "difference" else None,
        in_percent=what == "difference",
        notes=tuple(notes),
    )


def _prevalences(group_shares: RowShares, at: tuple[int, ...], code: int) -> list[Prevalence]:
    """Return the prevalence of each group in a stratum."""
    columns = (
        part[at][:, code].tolist() for part in (group_shares.values, group_shares.lower, group_shares.upper)
    )
    return [Prevalence(*ends) for ends in zip(*columns, strict=True)]


def _gradient(table: CountTable, row: tuple[int, ...], code: int) -> Floats:
    """Return the derivative of a category's share in a row with respect to each count."""
    cells = table.values[row]
    total = cells.sum()
    result = np.zeros(table.values.shape)
    if total > 0:
        result[row] = -cells[code] / total**2
        result[(*row, code)] += 1 / total
    return result


def _equal_z(table: CountTable, at: tuple[int, ...], pair: tuple[int, int], code: int) -> float:
    """Return the statistic of equal prevalences, with the standard error under equality.

    Formula: z = (p̂₁ − p̂₀)/√(wᵀCw + (p̂₁ − p̂₀)²/n), where w is the derivative of p̂₁ − p̂₀ at the pooled
    prevalence. There, errors of the group sizes cancel, and only the variance of the category's counts
    remains.
    """
    counts = np.stack([table.values[(*at, row)] for row in pair])
    totals = counts.sum(axis=1)
    if np.any(totals <= 0):
        return float("nan")
    pooled = counts[:, code].sum() / totals.sum()
    weights = np.zeros(table.values.shape)
    for sign, row, total in zip((1, -1), pair, totals, strict=True):
        weights[(*at, row)] -= sign * pooled / total
        weights[(*at, row, code)] += sign / total
    gap = counts[0, code] / totals[0] - counts[1, code] / totals[1]
    variance = null_variance(table, weights, gap)
    return z_of(float(gap), variance)


def _difference(one: Prevalence, zero: Prevalence, error: float, other: float, rho: float) -> Effect:
    gap = one.value - zero.value
    stderr = float(np.sqrt(max(error**2 + other**2 - 2 * rho * error * other, 0.0)))
    below = _difference_error(one.value - one.lower, zero.upper - zero.value, rho)
    above = _difference_error(one.upper - one.value, zero.value - zero.lower, rho)
    # `keep_inside` expects shares: map the difference from [−1, 1] to [0, 1], and its limits back
    ends = (np.array([(end + 1) / 2]) for end in (gap, gap - below, gap + above))
    lower, upper = (float(2 * end[0] - 1) for end in keep_inside(*ends))
    return Effect(gap, stderr, lower, upper)


def _difference_error(a: float, b: float, rho: float) -> float:
    """Return the error of a difference of two estimates with errors `a` and `b` and correlation `rho`."""
    return float(np.sqrt(max(a * a - 2 * rho * a * b + b * b, 0.0)))


def _ratio(one: Prevalence, zero: Prevalence, error: float, other: float, rho: float) -> Effect:
    if not zero.value > 0 or np.isnan(one.value):
        return Effect(float("nan"), float("nan"), 0.0, float("inf"))
    value = one.value / zero.value
    variance = error**2 - 2 * value * rho * error * other + (value * other) ** 2
    ends = []
    for sign, a, b in (
        (-1, one.value - one.lower, zero.upper - zero.value),
        (1, one.upper - one.value, zero.value - zero.lower),
    ):
        square, middle = zero.value**2 - b * b, one.value * zero.value - rho * a * b
        inside = middle**2 - square * (one.value**2 - a * a)
        if square <= 0:
            ends.append(float("inf") if sign > 0 else float("-inf"))
        else:
            ends.append((middle + sign * np.sqrt(max(inside, 0.0))) / square)
    return Effect(value, float(np.sqrt(max(variance, 0.0)) / zero.value), float(ends[0]), float(ends[1]))


def _odds_ratio(one: Prevalence, zero: Prevalence, error: float, other: float, rho: float) -> Effect:
    sides = [[_logit(x) for x in (side.value, side.lower, side.upper)] for side in (one, zero)]
    (a, low1, high1), (b, low0, high0) = sides
    if not (np.isfinite(a) and np.isfinite(b)):
        ends = np.exp(
            [
                low1 - high0 if np.isfinite(low1 - high0) else -np.inf,
                high1 - low0 if np.isfinite(high1 - low0) else np.inf,
            ]
        )
        return Effect(float("nan"), float("nan"), float(ends[0]), float(ends[1]))
    steps = [1 / (side.value * (1 - side.value)) for side in (one, zero)]
    stderr = _difference_error(error * steps[0], other * steps[1], rho)
    below = _difference_error(a - low1, high0 - b, rho) if np.isfinite([low1, high0]).all() else np.inf
    above = _difference_error(high1 - a, b - low0, rho) if np.isfinite([high1, low0]).all() else np.inf
    value = float(np.exp(a - b))
    return Effect(value, value * stderr, float(np.exp(a - b - below)), float(np.exp(a - b + above)))


def _logit(share: float) -> float:
    if np.isnan(share):
        return float("nan")
    return -np.inf if share <= 0 else np.inf if share >= 1 else float(np.log(share / (1 - share)))


def change(
    data: Tally | CountTable,
    before: str,
    after: str,
    *,
    category: Category | None = None,
    where: Where = None,
    missing: MissingOrAll = "answered",
    level: float = 0.95,
) -> Estimates:
    """Estimate how the prevalence of a category changed between two variables of the same people.

    For a panel whose waves were disguised with one memo, declare both waves as a `panel` channel. People who
    give the same answer again then send the same report, so the errors of both waves are correlated and
    partly cancel.

    Parameters
    ----------
    data : Tally or CountTable
        Source of counts, or a table that contains all variables named here.
    before : str
        Variable of the first wave.
    after : str
        Variable of the second wave, with the same categories.
    category : category, optional
        Category whose prevalence is compared. May be omitted for yes/no variables: then it is "yes".
    where : mapping of str to category, optional
        Count only the records with these categories, for example ``{"region": "north"}``.
    missing : {"answered", "category"}, default "answered"
        Count only people who answered all variables named here, or count missing answers as categories.
    level : float, default 0.95
        Confidence level of the intervals.

    Returns
    -------
    Estimates
        One row, with the p-value for no change.

    Raises
    ------
    InputError
        If the variables have different categories, or the estimated number of records is not positive.
    QueryRefused
        If the source refuses the counts.

    Notes
    -----
    Formula: Σ_ij ([j = c] − [i = c])N̂_ij/N̂ for category c, with its error by the delta method on the joint
    table. The p-value uses the variance under no change.

    Examples
    --------
    >>> import pandas as pd
    >>> waves = pd.DataFrame({"spring": ["yes"] * 30 + ["no"] * 70, "autumn": ["yes"] * 40 + ["no"] * 60})
    >>> print(mq.stats.change(mq.tally(waves), "spring", "autumn", category="yes"))
    Change of spring = yes to autumn, n = 100
              waves change stderr lower upper      z p_value
    autumn − spring  10.0%   3.0%  4.1% 15.9% 3.1623  0.0016
    (95% intervals; p-values against change = 0)
    """
    table, notes = table_of_answers(data, (before, after), where, missing, "A change")
    first, second = table.axes
    if first.categories != second.categories:
        raise InputError(f"{before!r} and {after!r} must have the same categories, in the same order.")
    code, total = category_of(first, category), table.total
    if total <= 0:
        raise InputError("The estimated number of records is not positive: no change can be estimated.")
    weights = np.zeros(table.values.shape)
    weights[:, code] += 1
    weights[code, :] -= 1
    value = float(np.sum(weights * table.values)) / total
    stderr = np.sqrt(squared_error(table, (weights - value) / total))
    variance = null_variance(table, weights / total, value)
    half = two_sided_quantile(level) * stderr
    return Estimates(
        f"Change of {before} = {first.categories[code]} to {after}{given_text(where)}",
        "change",
        ("waves",),
        ((f"{after} − {before}",),),
        np.array([value]),
        np.array([stderr]),
        np.array([value - half]),
        np.array([value + half]),
        table.n,
        level,
        0.0,
        np.array([z_of(value, variance)]),
        in_percent=True,
        notes=notes,
    )
