"""Differences and ratios of prevalences, odds ratios: groups compared, from counts with their covariance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.distributions import chi_square_tail, two_sided_quantile
from masquerade.core.errors import InputError
from masquerade.core.schema import Category
from masquerade.core.table import CountTable
from masquerade.core.tally import Tally
from masquerade.core.util.display import p_text
from masquerade.stats._tables import (
    Names,
    Where,
    category_of,
    names_of,
    normal_p,
    null_variance,
    reference_of,
    squared_error,
    table_of,
)
from masquerade.stats.estimates import Estimates
from masquerade.stats.percentages import RowShares, given_text, row_shares, unsteady_notes


@dataclass(frozen=True, slots=True)
class Side:
    """A prevalence with the ends of its interval."""

    value: float
    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class Effect:
    """How two prevalences compare: the figure, its standard error and the ends of its interval."""

    value: float
    stderr: float
    lower: float
    upper: float


Compare = Callable[[Side, Side, float, float, float], Effect]  # both sides, their errors, correlation


def difference(
    data: Tally | CountTable,
    outcome: str,
    group: str,
    *,
    category: Category | None = None,
    reference: Category | None = None,
    given: Names = (),
    where: Where = None,
    level: float = 0.95,
) -> Estimates:
    """Return by how much the prevalence of an outcome differs between groups (the risk difference).

    `category` of the outcome is counted (the one that says yes unless it is named); every group is compared
    with the `reference`, the first unless it is named, within every category of `given`.

    Formula: p̂₁ − p̂₀; the ends lie √((p̂₁ − l₁)² − 2ρ(p̂₁ − l₁)(u₀ − p̂₀) + (u₀ − p̂₀)²) below and likewise above,
    with the ends l and u of both prevalences' score intervals and the correlation ρ of the estimates. The
    p-value is of the hypothesis of equal prevalences, with the variance that the counts have under it.
    Reference: Newcombe (1998); Zou & Donner (2008).
    Error: measured, see docs/numerics.md.

    >>> source = mq.tally(mq.data.students())
    >>> print(mq.stats.difference(source, "pills", "exams", category="yes", reference="few"))
    Difference of pills = yes by exams, n = 600
         exams difference stderr lower upper p_value
    many − few      18.0%   3.2% 11.6% 24.3% <0.0001
    (95% intervals; p-values against difference = 0)
    """
    asked = _Asked(outcome, group, category, reference, names_of(given), where, level)
    return _compared(data, asked, "difference", 0.0, _difference)


def ratio(
    data: Tally | CountTable,
    outcome: str,
    group: str,
    *,
    category: Category | None = None,
    reference: Category | None = None,
    given: Names = (),
    where: Where = None,
    level: float = 0.95,
) -> Estimates:
    """Return the ratio of the prevalences of an outcome in groups (the relative risk); see `difference`.

    Formula: p̂₁/p̂₀; the ends are Fieller's (1954), with the variances that the ends of both prevalences'
    score intervals show (Donner & Zou 2012). Where the reference's prevalence may be 0 there is no upper end.

    >>> source = mq.tally(mq.data.students())
    >>> print(mq.stats.ratio(source, "pills", "exams", category="yes", reference="few"))
    Ratio of pills = yes by exams, n = 600
         exams  ratio stderr  lower  upper p_value
    many : few 2.5000 0.4488 1.7638 3.5499 <0.0001
    (95% intervals; p-values against ratio = 1)
    """
    asked = _Asked(outcome, group, category, reference, names_of(given), where, level)
    return _compared(data, asked, "ratio", 1.0, _ratio)


def odds_ratio(
    data: Tally | CountTable,
    outcome: str,
    group: str,
    *,
    category: Category | None = None,
    reference: Category | None = None,
    given: Names = (),
    where: Where = None,
    level: float = 0.95,
) -> Estimates:
    """Return the ratio of the odds of an outcome in groups, in every category of `given`; see `difference`.

    Formula: the difference of logits, its ends as those of `difference` from the logits of the ends of both
    prevalences. Where a prevalence is estimated at or beyond 0 or 1 the odds ratio is not determined: the
    figure is NaN and the interval what the intervals of both prevalences leave, which holds more often.

    >>> source = mq.tally(mq.data.students())
    >>> print(mq.stats.odds_ratio(source, "sleep", "pills", category="bad", reference="no", given="exams"))
    Odds ratio of sleep = bad by pills given exams, n = 600
    exams    pills odds ratio stderr  lower upper p_value
      few yes : no     6.0000 2.2863 2.8790 12.50 <0.0001
     many yes : no     6.0769 1.6704 3.5583 10.38 <0.0001
    (95% intervals; p-values against odds ratio = 1)
    """
    asked = _Asked(outcome, group, category, reference, names_of(given), where, level)
    return _compared(data, asked, "odds ratio", 1.0, _odds_ratio)


@dataclass(frozen=True, slots=True)
class _Asked:
    outcome: str
    group: str
    category: Category | None
    reference: Category | None
    given: tuple[str, ...]
    where: Where
    level: float


def _compared(data: Tally | CountTable, asked: _Asked, what: str, null: float, compare: Compare) -> Estimates:
    table = table_of(data, (*asked.given, asked.group, asked.outcome), asked.where)
    *strata, group, outcome = table.axes
    code, base = category_of(outcome, asked.category), reference_of(group, asked.reference)
    if len(group) < 2:
        raise InputError(f"{group.name!r} has one category: there is nothing to compare.")
    found = row_shares(table, len(strata) + 1, asked.level)
    others = [row for row in range(len(group)) if row != base]
    rows: list[Effect] = []
    p_values, labels, gradients = [], [], []
    for place, stratum in enumerate(product(*(axis.categories for axis in strata))):
        at = tuple(map(int, np.unravel_index(place, table.values.shape[: len(strata)]))) if strata else ()
        known = _sides(found, at, code)
        for row in others:
            one, zero = (_gradient(table, (*at, i), code) for i in (row, base))
            errors = table.covariance.between(np.stack([one, zero]), np.stack([one, zero]))
            scale = np.sqrt(np.maximum(np.diag(errors), 0.0))
            rho = float(errors[0, 1] / (scale[0] * scale[1])) if scale.all() else 0.0
            rows.append(compare(known[row], known[base], float(scale[0]), float(scale[1]), rho))
            p_values.append(_equal_p(table, at, (row, base), code))
            labels.append((*stratum, f"{group.categories[row]} − {group.categories[base]}"))
            gradients.append(one - zero)
    whole = np.stack(gradients)
    notes = list(unsteady_notes(table, found, len(strata) + 1))
    if any(np.isnan(row.value) for row in rows):
        notes.append(
            f"– : a prevalence is estimated at or beyond 0 or 1, so the {what} is not determined; its "
            "interval is what the intervals of both prevalences leave."
        )
    if what != "difference":
        labels = [(*row[:-1], str(row[-1]).replace(" − ", " : ")) for row in labels]
    title = f"{what.capitalize()} of {outcome.name} = {outcome.categories[code]} by {group.name}"
    if strata:
        title += f" given {', '.join(axis.name for axis in strata)}"
    return Estimates(
        title + given_text(asked.where),
        what,
        (*(axis.name for axis in strata), group.name),
        tuple(labels),
        np.array([row.value for row in rows]),
        np.array([row.stderr for row in rows]),
        np.array([row.lower for row in rows]),
        np.array([row.upper for row in rows]),
        table.n,
        asked.level,
        null,
        np.array(p_values),
        covariance=table.covariance.between(whole, whole) if what == "difference" else None,
        in_percent=what == "difference",
        notes=tuple(notes),
    )


def _sides(found: RowShares, at: tuple[int, ...], code: int) -> list[Side]:
    """Return the prevalence of every group in a stratum."""
    columns = (part[at][:, code].tolist() for part in (found.values, found.lower, found.upper))
    return [Side(*ends) for ends in zip(*columns, strict=True)]


def _gradient(table: CountTable, row: tuple[int, ...], code: int) -> Floats:
    """Return the derivative of the share of a category in a row by every count."""
    cells = table.values[row]
    total = cells.sum()
    result = np.zeros(table.values.shape)
    if total > 0:
        result[row] = -cells[code] / total**2
        result[(*row, code)] += 1 / total
    return result


def _equal_p(table: CountTable, at: tuple[int, ...], pair: tuple[int, int], code: int) -> float:
    """Return the p-value of equal prevalences: their difference over its error if they were equal.

    Formula: z = (p̂₁ − p̂₀)/√(wᵀCw), w the derivative of p̂₁ − p̂₀ where both are the pooled prevalence p: then
    the uncertain numbers of records drop out, and only how the category scatters remains.
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
    return normal_p(gap / np.sqrt(variance)) if variance > 0 else float("nan")


def _difference(one: Side, zero: Side, error: float, other: float, rho: float) -> Effect:
    gap = one.value - zero.value
    stderr = float(np.sqrt(max(error**2 + other**2 - 2 * rho * error * other, 0.0)))
    below = _both(one.value - one.lower, zero.upper - zero.value, rho)
    above = _both(one.upper - one.value, zero.value - zero.lower, rho)
    return Effect(gap, stderr, gap - below, gap + above)


def _both(a: float, b: float, rho: float) -> float:
    return float(np.sqrt(max(a * a - 2 * rho * a * b + b * b, 0.0)))


def _ratio(one: Side, zero: Side, error: float, other: float, rho: float) -> Effect:
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


def _odds_ratio(one: Side, zero: Side, error: float, other: float, rho: float) -> Effect:
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
    stderr = _both(error * steps[0], other * steps[1], rho)
    below = _both(a - low1, high0 - b, rho) if np.isfinite([low1, high0]).all() else np.inf
    above = _both(high1 - a, b - low0, rho) if np.isfinite([high1, low0]).all() else np.inf
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
    level: float = 0.95,
) -> Estimates:
    """Return by how much the prevalence of a category changed among the same people, between two variables.

    Of a panel whose waves were disguised under one memo, declare both waves as a `panel` channel: who answers
    the same again reports the same, so the errors of the two waves go together, and less of them is left.

    Formula: Σ_ij ([j = c] − [i = c])N̂_ij/N̂, its error by the delta method on the joint table; the p-value is
    of no change, with the variance that the counts have then.

    >>> import pandas as pd
    >>> waves = pd.DataFrame({"spring": ["yes"] * 30 + ["no"] * 70, "autumn": ["yes"] * 40 + ["no"] * 60})
    >>> print(mq.stats.change(mq.tally(waves), "spring", "autumn", category="yes"))
    Change of spring = yes to autumn, n = 100
              waves change stderr lower upper p_value
    autumn − spring  10.0%   3.0%  4.1% 15.9%  0.0016
    (95% intervals; p-values against change = 0)
    """
    table = table_of(data, (before, after), where)
    first, second = table.axes
    if first.categories != second.categories:
        raise InputError(f"{before!r} and {after!r} have other categories: no change is defined.")
    code, total = category_of(first, category), table.total
    if total <= 0:
        raise InputError("No records are seen by the estimates: there is no change to tell.")
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
        np.array([normal_p(value / np.sqrt(variance)) if variance > 0 else float("nan")]),
        in_percent=True,
    )


def mantel_haenszel(
    data: Tally | CountTable,
    outcome: str,
    group: str,
    given: Names,
    *,
    category: Category | None = None,
    reference: Category | None = None,
    where: Where = None,
    level: float = 0.95,
) -> Estimates:
    """Return the odds ratio that all categories of `given` share, for two groups.

    Formula: Σ a_k d_k/T_k over Σ b_k c_k/T_k of the 2 × 2 tables of the strata; its error by the delta method
    on the logarithm; the p-value is that of Σ(a_k − r_k c_k/T_k) = 0 (Cochran 1954). A note tells the test of
    equal odds ratios: the deviance of the reports without interaction of all three.
    Reference: Mantel & Haenszel (1959).

    >>> source = mq.tally(mq.data.students())
    >>> print(mq.stats.mantel_haenszel(source, "sleep", "pills", "exams", category="bad", reference="no"))
    Mantel–Haenszel odds ratio of sleep = bad by pills given exams, n = 600
       pills odds ratio stderr  lower  upper p_value
    yes : no     6.0510 1.3490 3.9090 9.3669 <0.0001
    (95% intervals; p-values against odds ratio = 1)
    Are the odds ratios of all strata the same? Deviance 0.00, df 1, p 0.978.
    """
    strata = names_of(given)
    table = table_of(data, (*strata, group, outcome), where)
    exposure, answer = table.axes[-2:]
    code, base = category_of(answer, category), reference_of(exposure, reference)
    if not strata or len(exposure) != 2:
        raise InputError(
            "mantel_haenszel() compares two groups within categories of `given`; "
            f"{exposure.name!r} has {len(exposure)} categories."
        )
    cells = table.values.reshape(-1, *table.values.shape[-2:])
    picked = np.stack(
        [_picked(cells.shape[1:], row, code, same=same) for row in (1 - base, base) for same in (True, False)]
    )  # a, b, c, d: the group, then the reference; the category, then the others
    a, b, c, d = np.einsum("pij,kij->pk", picked, cells)
    total = a + b + c + d
    used = total > 0
    if not used.any():
        raise InputError("No stratum has records by the estimates: there is nothing to compare.")
    T = np.where(used, total, 1.0)
    above, below = (float((x * y / T)[used].sum()) for x, y in ((a, d), (b, c)))
    by_cell = {
        "above": np.stack([d / T - a * d / T**2, -a * d / T**2, -a * d / T**2, a / T - a * d / T**2]),
        "below": np.stack([-b * c / T**2, c / T - b * c / T**2, b / T - b * c / T**2, -b * c / T**2]),
    }
    r, s = a + b, a + c
    middle = r * s / T**2
    null = np.stack([1 - s / T - r / T + middle, middle - s / T, middle - r / T, middle])

    def weights(parts: Floats) -> Floats:
        return np.asarray(np.einsum("pk,pij->kij", parts * used, picked)).reshape(table.values.shape)

    gap = float((a - r * s / T)[used].sum())
    variance = null_variance(table, weights(null), gap)
    p_value = normal_p(gap / np.sqrt(variance)) if variance > 0 else float("nan")
    value = stderr = float("nan")
    lower, upper = 0.0, float("inf")
    notes = [] if used.all() else [f"{int((~used).sum())} strata have no records by the estimates."]
    if above > 0 and below > 0:
        error = np.sqrt(squared_error(table, weights(by_cell["above"] / above - by_cell["below"] / below)))
        value = above / below
        stderr = value * error
        lower, upper = value * np.exp(np.array([-1, 1]) * two_sided_quantile(level) * error)
    else:
        notes.append("The counts are too noisy for a common odds ratio: a sum of products is not positive.")
    if len(answer) == 2 and len(cells) > 1:
        pairs = [(*strata, exposure.name), (*strata, answer.name), (exposure.name, answer.name)]
        fits = [table.fit(model) for model in (pairs, [table.names])]
        statistic, df = max(fits[0].deviance - fits[1].deviance, 0.0), len(cells) - 1
        tail = p_text(chi_square_tail(statistic, df))
        notes.append(
            f"Are the odds ratios of all strata the same? Deviance {statistic:.2f}, df {df}, p {tail}."
        )
    return Estimates(
        f"Mantel–Haenszel odds ratio of {answer.name} = {answer.categories[code]} by {exposure.name} given "
        f"{', '.join(strata)}" + given_text(where),
        "odds ratio",
        (exposure.name,),
        ((f"{exposure.categories[1 - base]} : {exposure.categories[base]}",),),
        np.array([value]),
        np.array([stderr]),
        np.array([lower]),
        np.array([upper]),
        table.n,
        level,
        1.0,
        np.array([p_value]),
        notes=tuple(notes),
    )


def _picked(shape: tuple[int, ...], row: int, code: int, *, same: bool) -> Floats:
    result = np.zeros(shape)
    result[row] = 0.0 if same else 1.0
    result[row, code] = 1.0 if same else 0.0
    return result
