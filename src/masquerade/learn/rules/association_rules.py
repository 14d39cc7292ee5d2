"""Association rules from any source of counts, with the errors of supports and confidences."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.distributions import two_sided_quantile
from masquerade.core.errors import InputError, MasqueradeWarning
from masquerade.core.intervals import Flags, Interval, RatioErrors, normal_interval
from masquerade.core.plots.drawing import Dots, dot_plot
from masquerade.core.report_moments import ShareSpread, share_interval, unbiased_factor
from masquerade.core.supports import Item, Sets, Supports, ask
from masquerade.core.tally import Tally, check_source
from masquerade.core.util.display import Printed
from masquerade.core.util.formatting import printable
from masquerade.learn.model_file import check_header, entry, header, part_of, part_values
from masquerade.learn.rules.itemsets import (
    ROUNDING,
    Items,
    Itemsets,
    Rows,
    braces,
    check_share,
    frequent_itemsets,
    more,
    places_of,
    whole_numbers,
)
from masquerade.learn.rules.rule_measures import (
    RuleShares,
    conviction_interval,
    false_discovery_rates,
    lift_interval,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

KIND = "association_rules"
MOST_RULES = 20_000_000
PICKED = (
    "Errors and intervals are those of one rule by itself. Rules are picked by their estimates: those near\n"
    "a threshold are too good on average, and of their 95% intervals some 81 to 89% hold the truth."
)
ORDERS = ("lift", "confidence", "support", "leverage", "conviction")
NUMBERS = (
    "support",
    "stderr",
    "lower",
    "upper",
    "confidence",
    "confidence_stderr",
    "lhs_support",
    "rhs_support",
)
LATER = (  # columns that files of earlier versions do not have
    "confidence_lower",
    "confidence_upper",
    "lift_stderr",
    "leverage_stderr",
    "conviction_stderr",
    "p_value",
    "q_value",
)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Rules(Printed):
    """Rules lhs ⇒ rhs between frequent itemsets, one entry of every column per rule.

    `lhs` and `rhs` hold places of items, −1 pads short ones. `stderr`, `lower` and `upper` belong to the
    support. A rule is undecided if a threshold lies within the interval of its support or confidence.
    `p_value` tests that both sides have nothing to do with each other; `q_value` is the least rate of false
    discoveries at which the rule would be one (see `association_rules`). Numbers that a file of an earlier
    version does not have are NaN.

    >>> rules = mq.learn.association_rules(mq.tally(mq.data.students()), min_support=0.1, rhs=["sleep"])
    >>> len(rules.confidence), round(float(rules.confidence.max()), 2), round(float(rules.lift.max()), 2)
    (20, 0.75, 1.98)
    """

    itemsets: Itemsets
    lhs: Sets
    rhs: Sets
    support: Floats
    stderr: Floats
    lower: Floats
    upper: Floats
    confidence: Floats
    confidence_stderr: Floats
    lhs_support: Floats
    rhs_support: Floats
    confidence_lower: Floats
    confidence_upper: Floats
    lift_stderr: Floats
    leverage_stderr: Floats
    conviction_stderr: Floats
    p_value: Floats
    q_value: Floats
    min_confidence: float
    fdr: float | None = None

    def __len__(self) -> int:
        """Return the number of rules."""
        return len(self.support)

    @property
    def lift(self) -> Floats:
        """Return confidence over what it would be if both sides had nothing to do with each other."""
        return divided(self.confidence, self.rhs_support)

    @property
    def leverage(self) -> Floats:
        """Return support minus what it would be if both sides had nothing to do with each other."""
        return self.support - self.lhs_support * self.rhs_support

    @property
    def conviction(self) -> Floats:
        """Return (1 − P(rhs))/(1 − confidence); infinite where the rule never fails (by its estimate)."""
        fails = 1 - self.confidence
        sure = fails <= ROUNDING
        return np.where(sure, np.inf, (1 - self.rhs_support) / np.where(sure, 1.0, fails))

    def conf_int(self, of: str = "confidence") -> Interval:
        """Return intervals, at the level of the itemsets, of a measure: by default the confidences.

        Score intervals of supports and confidences; of lift normal ones on the scale of logarithms, of
        conviction on that of its inverse, of leverage plain ones. Each holds for one rule by itself.
        """
        if of not in ORDERS:
            raise InputError(f"There are intervals of {', '.join(ORDERS)}. Got {of!r} instead.")
        level = self.itemsets.level
        if of == "support":
            return Interval(self.lower, self.upper)
        if of == "lift":
            return lift_interval(self.lift, self.lift_stderr, level)
        if of == "leverage":
            return normal_interval(self.leverage, self.leverage_stderr, level)
        if of == "conviction":
            return conviction_interval(self.conviction, self.conviction_stderr, level)
        plain = normal_interval(self.confidence, self.confidence_stderr, level)
        known = np.isfinite(self.confidence_lower)
        return Interval(
            np.where(known, self.confidence_lower, plain.lower),
            np.where(known, self.confidence_upper, plain.upper),
        )

    @property
    def undecided(self) -> Flags:
        """Tell which rules might miss a threshold after all."""
        unsure = self.lower < self.itemsets.min_support - ROUNDING
        return unsure | (self.conf_int().lower < self.min_confidence - ROUNDING)

    def sides(self, row: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the labels of both sides of one rule."""
        labels = self.itemsets.labels
        left, right = (
            tuple(labels[i] for i in side[row].tolist() if i >= 0) for side in (self.lhs, self.rhs)
        )
        return left, right

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas frame with mlxtend's columns, then errors, intervals and what is undecided.

        `representativity` is 1: no record is left out of any count.
        """
        import pandas as pd  # noqa: PLC0415  (learners load pandas only when a frame is asked for)

        sides = [self.sides(row) for row in range(len(self))]
        interval = self.conf_int()
        both, left, right = self.support, self.lhs_support, self.rhs_support
        return pd.DataFrame(
            {
                "antecedents": pd.Series([frozenset(side) for side, _ in sides], dtype=object),
                "consequents": pd.Series([frozenset(side) for _, side in sides], dtype=object),
                "antecedent support": left,
                "consequent support": right,
                "support": both,
                "confidence": self.confidence,
                "lift": self.lift,
                "representativity": np.ones(len(self)),
                "leverage": self.leverage,
                "conviction": self.conviction,
                "zhangs_metric": quotient(
                    self.leverage, np.maximum(both * (1 - left), left * (right - both))
                ),
                "jaccard": quotient(both, left + right - both),
                "certainty": quotient(self.confidence - right, 1 - right),
                "kulczynski": (self.confidence + quotient(both, right)) / 2,
                "stderr": self.stderr,
                "lower": self.lower,
                "upper": self.upper,
                "confidence_stderr": self.confidence_stderr,
                "confidence_lower": interval.lower,
                "confidence_upper": interval.upper,
                "undecided": self.undecided,
                **{
                    f"{name}_{end}": column
                    for name in ("lift", "leverage", "conviction")
                    for end, column in zip(
                        ("stderr", "lower", "upper"),
                        (getattr(self, f"{name}_stderr"), *self.conf_int(name)),
                        strict=True,
                    )
                },
                "p_value": self.p_value,
                "q_value": self.q_value,
            }
        )

    def best(self, max_rows: int, by: str) -> Rows:
        """Return the first rules, ordered by one of the measures."""
        if by not in ORDERS:
            raise InputError(f"Rules are ordered by one of {', '.join(ORDERS)}. Got {by!r} instead.")
        return np.argsort(-np.asarray(getattr(self, by)), kind="stable")[:max_rows]

    @printable
    def summary(self, max_rows: int = 20, by: str = "lift") -> str:
        """Return the best rules as arules' `inspect` prints them, with standard errors."""
        order = self.best(max_rows, by)
        sides = {i: tuple(map(braces, self.sides(i))) for i in order.tolist()}
        undecided, lift = self.undecided, self.lift
        title = (
            f"{len(self):,} rules, support ≥ {self.itemsets.min_support:g}, confidence ≥ "
            f"{self.min_confidence:g}, n = {self.itemsets.n:,}; {int(undecided.sum()):,} undecided (?)"
            + ("" if self.fdr is None else f"; false discoveries at most {self.fdr:g} of them, on average")
        )
        left = max((len(side) for side, _ in sides.values()), default=3)
        right = max((len(side) for _, side in sides.values()), default=3)
        lines = [f"     {'lhs':<{left}}    {'rhs':<{right}}  support (stderr)  confidence (stderr)    lift"]
        for place, (i, (one, other)) in enumerate(sides.items(), start=1):
            lines.append(
                f"[{place}]".ljust(5)
                + f"{one:<{left}} => {other:<{right}}   {self.support[i]:6.4f} ({self.stderr[i]:6.4f})"
                + f"      {self.confidence[i]:6.4f} ({self.confidence_stderr[i]:6.4f})  {lift[i]:6.3f}"
                + (" ?" if undecided[i] else "")
            )
        return "\n".join([title, *lines, *more(len(self), len(order)), *([PICKED] if len(self) else [])])

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the best rules as they are printed."""
        return f"<pre>{escape(self.summary())}</pre>"

    def plot(self, ax: Axes | None = None, max_rows: int = 20, by: str = "lift") -> Axes:
        """Draw the confidences of the best rules with their intervals; undecided ones are hollow."""
        order = self.best(max_rows, by)
        sides = [tuple(map(braces, self.sides(i))) for i in order.tolist()]
        lower, upper = (end[order] for end in self.conf_int())
        return dot_plot(
            [f"{one} ⇒ {other}" for one, other in sides],
            {"confidence": Dots(self.confidence[order], lower, upper, self.undecided[order])},
            ax,
            xlabel=f"confidence, {self.itemsets.level:.0%} intervals; hollow: may miss a threshold",
            title=f"{len(order):,} of {len(self):,} rules by {by}, n = {self.itemsets.n:,}",
            mark=self.min_confidence,
        )

    def discovered(self, fdr: float | None) -> Rules:
        """Return the rules that are discoveries at this rate of false ones; all of them for None."""
        if fdr is None:
            return self
        kept = np.asarray(self.q_value <= fdr)
        columns = {name: getattr(self, name)[kept] for name in ("lhs", "rhs", *NUMBERS, *LATER)}
        return replace(self, **columns, fdr=fdr)

    def to_dict(self) -> dict[str, Any]:
        """Return the rules, and the itemsets they come from, as plain JSON values."""
        later = [name for name in LATER if not np.isnan(getattr(self, name)).any()]
        return {
            **header(KIND),
            "min_confidence": self.min_confidence,
            **({} if self.fdr is None else {"fdr": self.fdr}),
            "lhs": [[i for i in row if i >= 0] for row in self.lhs.tolist()],
            "rhs": [[i for i in row if i >= 0] for row in self.rhs.tolist()],
            **part_values(self, *NUMBERS, *later),
            "itemsets": self.itemsets.to_dict(),
        }

    @classmethod
    def from_dict(cls, values: Any) -> Rules:
        """Return the rules that plain JSON values describe; what are none is an `InputError`."""
        check_header(values, KIND)
        itemsets = Itemsets.from_dict(entry(values, "itemsets", dict))
        if any(np.any(held.facets < 0) for held in itemsets.levels):
            raise InputError("'facets' of the itemsets of rules must all be held.")
        rows = len(entry(values, "lhs", list))
        sides = [
            side_of(entry(values, name, list), rows, name, len(itemsets.items)) for name in ("lhs", "rhs")
        ]
        shapes = dict.fromkeys((*NUMBERS, *LATER), (rows,))
        known: dict[str, Any] = {name: np.full(rows, np.nan) for name in LATER if name not in values}
        known |= {"itemsets": itemsets, "lhs": sides[0], "rhs": sides[1]}
        found = part_of(cls, {"fdr": None, **values}, shapes, **known)
        if found.fdr is not None:
            check_share(found.fdr, "fdr")
        return found


@dataclass(frozen=True, slots=True, eq=False)
class RuleBlock:
    """Rules of sets of one size: rows of the set and of both sides in their levels, and the left side."""

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
) -> Rules:
    """Return the rules lhs ⇒ rhs whose support and confidence reach the thresholds, by the estimates.

    `lhs` and `rhs` limit the items of each side (labels, variables or pairs), `max_len` those of both. With
    `fdr` only rules are returned whose sides have something to do with each other, so that on average at most
    this share of them are false discoveries: Benjamini's and Yekutieli's procedure on the test of
    independence in the reports (`RuleShares.p_values`), over all rules between frequent sets, whatever their
    confidence.
    Formula: confidence θ = N̂(lhs ∪ rhs)/N̂(lhs); Var θ ≈ (Var N̂₁ − 2θ Cov(N̂₁, N̂₂) + θ² Var N̂₂)/N̂₂².
    Reference: Agrawal & Srikant (1994); the delta method for a ratio of dependent normals.
    Cost: that of `frequent_itemsets`, and one batch of covariances for each size of set.
    Error: first order in 1/n. A left side with an estimate of zero or less gives no rule, with a warning.
    Intervals are those of one rule by itself; thresholds pick lucky ones. Near them 81% of 95% Wald intervals
    of supports and 87 to 89% of those of confidences were measured to hold the truth.

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
    a threshold are too good on average, and of their 95% intervals some 81 to 89% hold the truth.
    """
    check_source(source)
    check_share(min_confidence, "min_confidence")
    if fdr is not None:
        check_share(fdr, "fdr")
    found = frequent_itemsets(source, min_support, max_len=max_len, items=items, level=level)
    allowed = (
        places_of(lhs, found.items, found.labels, "lhs"),
        places_of(rhs, found.items, found.labels, "rhs"),
    )
    work = sum(int(mask.sum()) << (size + 1) for size, mask in enumerate(found.chosen))
    if work > MOST_RULES:
        raise InputError(f"There are {work:,} rules to look at (at most {MOST_RULES:,}): set 'max_len'.")
    parts: list[RuleBlock] = []
    nothing = tests = 0
    for size in range(2, len(found.levels) + 1):
        part, without, tried = rules_of(found, size, min_confidence, allowed)
        nothing, tests = nothing + without, tests + tried
        parts += [part] if len(part.rows) else []
    if nothing:
        warnings.warn(
            f"{nothing:,} rules were left out: the support of their left side is estimated as zero or less.",
            MasqueradeWarning,
            stacklevel=2,
        )
    return assembled(source, found, parts, min_confidence, tests).discovered(fdr)


def rules_of(
    found: Itemsets, size: int, least: float, allowed: tuple[Flags, Flags]
) -> tuple[RuleBlock, int, int]:
    """Return the rules of sets of one size, how many had no left side to speak of, how many were tried."""
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
    """Return, for every choice of places, the rows of those subsets in their own level."""
    everything = (1 << size) - 1
    nodes = {everything: rows}
    for mask in range(everything - 1, 0, -1):
        gone = next(place for place in range(size) if not mask >> place & 1)
        larger = mask | 1 << gone
        place = (larger & ((1 << gone) - 1)).bit_count()
        nodes[mask] = found.levels[larger.bit_count() - 1].facets[nodes[larger], place]
    return nodes


def assembled(source: Tally, found: Itemsets, parts: list[RuleBlock], least: float, tests: int) -> Rules:
    """Ask for the covariances and put the columns of all rules together."""
    widest = max((part.size for part in parts), default=1)
    sides: list[tuple[Sets, Sets]] = []
    columns: dict[str, list[Floats]] = {name: [] for name in (*NUMBERS, *LATER)}
    for part in parts:
        sets = found.levels[part.size - 1].sets[part.rows]
        sides.append((padded(sets, part.parts, widest), padded(sets, ~part.parts, widest)))
        for name, column in numbers_of(source, found, part).items():
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
    return Rules(found, lhs, rhs, **joined, q_value=rates, min_confidence=least)


def numbers_of(source: Tally, found: Itemsets, part: RuleBlock) -> dict[str, Floats]:
    """Return the columns of the rules of sets of one size, but for the rates of false discoveries."""
    held = found.levels[part.size - 1]
    sets = held.sets[part.rows]
    with_left, with_right = (
        ask(source, Supports(found.items, sets, inside)) for inside in (part.parts, ~part.parts)
    )
    inside = part.parts.sum(axis=1)
    own = Side(held.values[part.rows], held.stderr[part.rows])
    left, right = side_values(found, inside, part.lhs), side_values(found, part.size - inside, part.rhs)
    factor = unbiased_factor(found.n)
    ratio = own.values / left.values
    covariance = factor * np.asarray(with_left.covariance)
    variance = np.maximum(own.stderr**2 - 2 * ratio * covariance + ratio**2 * left.stderr**2, 0.0)
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
        two_sided_quantile(found.level),
        n=found.n,
        sampling=with_left.ratio,
        spread=spread,
    )
    # a record weighs for both sides the product of what it weighs for each, if they were disguised apart
    apart = factor * (with_left.ratio * own.values - left.values * right.values / max(found.n, 1))
    scale = found.total**2
    shares = RuleShares(
        own.values / found.total,
        left.values / found.total,
        right.values / found.total,
        own.stderr**2 / scale,
        left.stderr**2 / scale,
        right.stderr**2 / scale,
        covariance / scale,
        factor * np.asarray(with_right.covariance) / scale,
        apart / scale,
    )
    return {
        "support": shares.both,
        "stderr": own.stderr / found.total,
        "lower": held.lower[part.rows] / found.total,
        "upper": held.upper[part.rows] / found.total,
        "confidence": ratio,
        "confidence_stderr": stderr,
        "lhs_support": shares.left,
        "rhs_support": shares.right,
        "confidence_lower": interval.lower[:, 0],
        "confidence_upper": interval.upper[:, 0],
        "lift_stderr": shares.lift_error(),
        "leverage_stderr": shares.leverage_error(),
        "conviction_stderr": shares.conviction_error(),
        "p_value": shares.p_values(found.n, weighted=with_left.ratio != 1),
    }


class Side(NamedTuple):
    """Counts of sets, their standard errors, and the ends of what a record can count."""

    values: Floats
    stderr: Floats
    ends: tuple[Floats, Floats] | None = None


def side_values(found: Itemsets, sizes: Rows, rows: Rows) -> Side:
    """Return the counts of sets given by size and row."""
    values, errors, low, high = np.zeros((4, len(rows)))
    known = True
    for size in np.unique(sizes).tolist():
        here = sizes == size
        held = found.levels[size - 1]
        values[here], errors[here] = held.values[rows[here]], held.stderr[rows[here]]
        if held.ends is None:
            known = False
        else:
            low[here], high[here] = held.ends[0][rows[here]], held.ends[1][rows[here]]
    return Side(values, errors, (low, high) if known else None)


def padded(sets: Sets, inside: Flags, width: int) -> Sets:
    """Return the marked items of every set, moved to the front, −1 behind them."""
    result = np.full((len(sets), width), -1, dtype=np.int32)
    row, place = np.nonzero(inside)
    result[row, np.cumsum(inside, axis=1)[row, place] - 1] = sets[row, place]
    return result


def side_of(values: Any, rows: int, name: str, items: int) -> Sets:
    """Return one side of all rules from lists of places of items."""
    if len(values) != rows or not all(isinstance(row, list) and row for row in values):
        raise InputError(f"{name!r} must be {rows} lists of items.")
    result = np.full((rows, max(map(len, values), default=1)), -1, dtype=np.int32)
    for target, row in zip(result, values, strict=True):
        target[: len(row)] = whole_numbers([row], (1, len(row)), name, items)[0]
    return result


def divided(above: Floats, below: Floats) -> Floats:
    """Return a ratio; infinite where nothing, or less, is below."""
    some = below > ROUNDING
    return np.where(some, above / np.where(some, below, 1.0), np.inf)


def quotient(above: Floats, below: Floats) -> Floats:
    """Return a ratio, 0 where the divisor is zero."""
    some = below != 0
    return np.where(some, above / np.where(some, below, 1.0), 0.0)
