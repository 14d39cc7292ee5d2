"""Association rules from any source of counts, with errors of supports and confidences."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.distributions import two_sided_quantile
from masquerade.core.errors import InputError, MasqueradeWarning
from masquerade.core.intervals import Flags, RatioErrors
from masquerade.core.report_moments import ShareSpread, share_interval, unbiased_factor
from masquerade.core.supports import Item, Sets, Supports, query_supports
from masquerade.core.tally import Tally, check_source
from masquerade.learn.rules.itemsets import (
    ROUNDING,
    Items,
    Itemsets,
    Rows,
    allowed_items,
    check_share,
    frequent_itemsets,
)
from masquerade.learn.rules.rule_measures import (
    RuleShares,
    false_discovery_rates,
)

if TYPE_CHECKING:
    pass
from masquerade.learn.rules.rules_model import LATER, NUMBERS, AssociationRules

MOST_RULES = 20_000_000


@dataclass(frozen=True, slots=True, eq=False)
class RuleBlock:
    """Rules from itemsets of one size.

    `rows`, `lhs` and `rhs` are the row indices of the itemset, the left and the right side in the `Level` of
    their size. `parts` marks the items of the left side.
    """

    size: int
    rows: Rows
    parts: Flags
    lhs: Rows
    rhs: Rows


def association_rules(
    source: Tally,
    min_support: float = 0.05,
    min_confidence: float = 0.6,
    *,
    max_len: int | None = None,
    lhs: Iterable[str | Item] | None = None,
    rhs: Iterable[str | Item] | None = None,
    level: float = 0.95,
    items: Items | None = None,
    fdr: float | None = None,
) -> AssociationRules:
    """Find the rules lhs ⇒ rhs whose estimated support and confidence reach the thresholds.

    Parameters
    ----------
    source : Tally
        Source of counts.
    min_support : float, default 0.05
        Minimum share of records that contain both sides.
    min_confidence : float, default 0.6
        Minimum share of records with the right side among those with the left side.
    max_len : int, optional
        Maximum number of items in a rule.
    lhs, rhs : iterable of str or (str, category), optional
        Items of each side: labels, variables or pairs.
    level : float, default 0.95
        Confidence level of the intervals.
    items : iterable or mapping, optional
        Items to use, as in `frequent_itemsets`.
    fdr : float, optional
        Limit of the false discovery rate. Only rules whose sides are found to be dependent are returned, and
        on average at most this share of them are false discoveries.

    Returns
    -------
    AssociationRules
        The rules.

    Raises
    ------
    InputError
        If an option is not valid, or there are too many rules.
    QueryRefused
        If the source refuses a query.

    Notes
    -----
    Formula: confidence θ = N̂(lhs ∪ rhs)/N̂(lhs); Var θ ≈ (Var N̂₁ − 2θ Cov(N̂₁, N̂₂) + θ² Var N̂₂)/N̂₂².
    `fdr` uses the procedure of Benjamini and Yekutieli on the test of independence in the reports
    (`RuleShares.p_values`), over all rules between frequent sets, whatever their confidence.
    Reference: Agrawal & Srikant (1994); the delta method for a ratio of dependent normals.
    Cost: as for `frequent_itemsets`, and one batch of covariances per size of itemset.
    Error: first order in 1/n. If the support of a left side is estimated as zero or less, its rules are
    omitted with a warning. Intervals are for one rule by itself, but thresholds select rules whose estimates
    happen to be too high: near a threshold, 81% of 95% Wald intervals of supports, and 87 to 89% of 95%
    intervals of confidences, contained the truth in simulations.

    Examples
    --------
    >>> source = mq.tally(mq.data.students())
    >>> rules = mq.learn.association_rules(source, min_support=0.1, max_len=2, rhs=["sleep"])
    >>> print(rules.summary())
    7 rules, support ≥ 0.1, confidence ≥ 0.6, n = 600; 4 undecided (?)
         lhs             rhs           support (stderr)  confidence (stderr)    lift
    [1]  {pills=yes}  => {sleep=bad}    0.1400 (0.0142)      0.6667 (0.0420)   1.980 ?
    [2]  {pills=no}   => {sleep=good}   0.5933 (0.0201)      0.7511 (0.0199)   1.132
    [3]  {exams=few}  => {sleep=good}   0.3500 (0.0195)      0.7000 (0.0265)   1.055
    [4]  {year=1}     => {sleep=good}   0.2283 (0.0172)      0.6850 (0.0329)   1.033
    [5]  {year=2}     => {sleep=good}   0.2217 (0.0170)      0.6650 (0.0334)   1.003 ?
    [6]  {year=3}     => {sleep=good}   0.2133 (0.0167)      0.6400 (0.0340)   0.965 ?
    [7]  {exams=many} => {sleep=good}   0.3133 (0.0190)      0.6267 (0.0279)   0.945 ?
    Errors and intervals are those of one rule by itself. Rules are picked by their estimates: those near
    a threshold are too good on average, and about 81 to 89% of their 95% intervals contain the truth.
    """
    check_source(source)
    check_share(min_confidence, "min_confidence")
    if fdr is not None:
        check_share(fdr, "fdr")
    found = frequent_itemsets(source, min_support, max_len=max_len, items=items, level=level)
    allowed = (
        allowed_items(lhs, found.items, found.labels, "lhs"),
        allowed_items(rhs, found.items, found.labels, "rhs"),
    )
    work = sum(int(mask.sum()) << (size + 1) for size, mask in enumerate(found.chosen))
    if work > MOST_RULES:
        raise InputError(f"There are {work:,} candidate rules (at most {MOST_RULES:,}): set 'max_len'.")
    parts: list[RuleBlock] = []
    nothing = tests = 0
    for size in range(2, len(found.levels) + 1):
        part, without, tried = rules_of(found, size, min_confidence, allowed)
        nothing, tests = nothing + without, tests + tried
        parts += [part] if len(part.rows) else []
    if nothing:
        warnings.warn(
            f"{nothing:,} rules were omitted: the support of their left side is estimated as zero or less.",
            MasqueradeWarning,
            stacklevel=2,
        )
    return build_rules(source, found, parts, min_confidence, tests).filter_discoveries(fdr)


def rules_of(
    found: Itemsets, size: int, least: float, allowed: tuple[Flags, Flags]
) -> tuple[RuleBlock, int, int]:
    """Return the rules of one size, the numbers omitted (left side without support) and tried."""
    held = found.levels[size - 1]
    rows = np.flatnonzero(found.chosen[size - 1])
    left_ok, right_ok = (mask[held.sets[rows]] for mask in allowed)
    nodes = subsets(found, size, rows)
    everything = (1 << size) - 1
    kept: list[tuple[Rows, Rows, Rows, Rows]] = []
    nothing = tried = 0
    for mask in range(1, everything):
        inside = np.array([bool(mask >> place & 1) for place in range(size)])
        fits = left_ok[:, inside].all(axis=1) & right_ok[:, ~inside].all(axis=1)
        left, right = nodes[mask], nodes[everything ^ mask]
        base = found.levels[int(inside.sum()) - 1].values[left]
        some = base > ROUNDING * found.n
        nothing += int(np.count_nonzero(fits & ~some))
        tried += int(np.count_nonzero(fits))
        confidence = held.values[rows] / np.where(some, base, 1.0)
        good = np.flatnonzero(fits & some & (confidence >= least - ROUNDING))
        if len(good):
            kept.append((rows[good], np.full(len(good), mask), left[good], right[good]))
    columns = [np.concatenate(column) for column in zip(*kept, strict=True)] or [
        np.zeros(0, dtype=np.int64)
    ] * 4
    order = np.lexsort((columns[1], columns[0]))
    row, mask_of, left, right = (column[order] for column in columns)
    parts = (mask_of[:, None] >> np.arange(size) & 1).astype(bool)
    return RuleBlock(size, row, parts, left, right), nothing, tried


def subsets(found: Itemsets, size: int, rows: Rows) -> dict[int, Rows]:
    """Return, by bit mask of its items, the row index of every subset in the level of its size."""
    everything = (1 << size) - 1
    nodes = {everything: rows}
    for mask in range(everything - 1, 0, -1):
        gone = next(place for place in range(size) if not mask >> place & 1)
        larger = mask | 1 << gone
        place = (larger & ((1 << gone) - 1)).bit_count()
        nodes[mask] = found.levels[larger.bit_count() - 1].facets[nodes[larger], place]
    return nodes


def build_rules(
    source: Tally, itemsets: Itemsets, parts: list[RuleBlock], least: float, tests: int
) -> AssociationRules:
    """Query the covariances and combine the columns of all rules."""
    widest = max((part.size for part in parts), default=1)
    sides: list[tuple[Sets, Sets]] = []
    columns: dict[str, list[Floats]] = {name: [] for name in (*NUMBERS, *LATER)}
    for part in parts:
        sets = itemsets.levels[part.size - 1].sets[part.rows]
        sides.append((select_items(sets, part.parts, widest), select_items(sets, ~part.parts, widest)))
        for name, column in numbers_of(source, itemsets, part).items():
            columns[name].append(column)
    joined: dict[str, Any] = {
        name: np.concatenate(some) if some else np.zeros(0)
        for name, some in columns.items()
        if name != "q_value"
    }
    lhs, rhs = (
        np.concatenate([pair[side] for pair in sides]) if sides else np.zeros((0, widest), dtype=np.int32)
        for side in (0, 1)
    )
    rates = false_discovery_rates(joined["p_value"], tests)
    return AssociationRules(itemsets, lhs, rhs, **joined, q_value=rates, min_confidence=least)


def numbers_of(source: Tally, itemsets: Itemsets, part: RuleBlock) -> dict[str, Floats]:
    """Return the columns of the rules of sets of one size, except the false discovery rates."""
    level = itemsets.levels[part.size - 1]
    sets = level.sets[part.rows]
    with_left, with_right = (
        query_supports(source, Supports(itemsets.items, sets, inside)) for inside in (part.parts, ~part.parts)
    )
    inside = part.parts.sum(axis=1)
    union = SideCounts(level.values[part.rows], level.stderr[part.rows])
    left, right = side_values(itemsets, inside, part.lhs), side_values(itemsets, part.size - inside, part.rhs)
    factor = unbiased_factor(itemsets.n)
    ratio = union.values / left.values
    covariance = factor * np.asarray(with_left.covariance)
    variance = np.maximum(union.stderr**2 - 2 * ratio * covariance + ratio**2 * left.stderr**2, 0.0)
    spread = None
    if left.ends is not None and right.ends is not None:
        spread = ShareSpread.of_two_kinds(
            ratio[:, None],
            variance[:, None],
            left.values[:, None],
            (right.ends[0][:, None], right.ends[1][:, None]),
            (left.ends[0][:, None], left.ends[1][:, None]),
        )
    stderr = np.sqrt(variance) / left.values
    errors = RatioErrors(stderr[:, None], covariance[:, None], left.stderr**2)
    interval = share_interval(
        ratio[:, None],
        errors,
        left.values,
        two_sided_quantile(itemsets.level),
        n=itemsets.n,
        sampling=with_left.ratio,
        spread=spread,
    )
    # if the sides were disguised separately, a record's weight for both is the product of its weights
    apart = factor * (with_left.ratio * union.values - left.values * right.values / max(itemsets.n, 1))
    scale = itemsets.total**2
    shares = RuleShares(
        union.values / itemsets.total,
        left.values / itemsets.total,
        right.values / itemsets.total,
        union.stderr**2 / scale,
        left.stderr**2 / scale,
        right.stderr**2 / scale,
        covariance / scale,
        factor * np.asarray(with_right.covariance) / scale,
        apart / scale,
    )
    return {
        "support": shares.both,
        "stderr": union.stderr / itemsets.total,
        "lower": level.lower[part.rows] / itemsets.total,
        "upper": level.upper[part.rows] / itemsets.total,
        "confidence": ratio,
        "confidence_stderr": stderr,
        "lhs_support": shares.left,
        "rhs_support": shares.right,
        "confidence_lower": interval.lower[:, 0],
        "confidence_upper": interval.upper[:, 0],
        "lift_stderr": shares.lift_error(),
        "leverage_stderr": shares.leverage_error(),
        "conviction_stderr": shares.conviction_error(),
        "p_value": shares.p_values(itemsets.n, weighted=with_left.ratio != 1),
    }


class SideCounts(NamedTuple):
    """Counts of itemsets, their standard errors, and the bounds of one record's contribution."""

    values: Floats
    stderr: Floats
    ends: tuple[Floats, Floats] | None = None


def side_values(itemsets: Itemsets, sizes: Rows, rows: Rows) -> SideCounts:
    """Return the counts of itemsets given by size and row."""
    values, errors, low, high = np.zeros((4, len(rows)))
    has_ends = True
    for size in np.unique(sizes).tolist():
        here = sizes == size
        level = itemsets.levels[size - 1]
        values[here], errors[here] = level.values[rows[here]], level.stderr[rows[here]]
        if level.ends is None:
            has_ends = False
        else:
            low[here], high[here] = level.ends[0][rows[here]], level.ends[1][rows[here]]
    return SideCounts(values, errors, (low, high) if has_ends else None)


def select_items(sets: Sets, inside: Flags, width: int) -> Sets:
    """Return the marked items of every set, moved to the front and padded with −1."""
    result = np.full((len(sets), width), -1, dtype=np.int32)
    row, place = np.nonzero(inside)
    result[row, np.cumsum(inside, axis=1)[row, place] - 1] = sets[row, place]
    return result
