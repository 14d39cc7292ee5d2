"""Association rules from any source of counts, with the errors of supports and confidences."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError, MasqueradeWarning
from masquerade.core.intervals import Flags, Interval, normal_interval
from masquerade.core.plots import Dots, dot_plot
from masquerade.core.supports import Item, Sets, Supports, ask
from masquerade.core.tally import Tally
from masquerade.learn.itemsets import (
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
from masquerade.learn.model_file import array_of, check_header, entry, header, number_values

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

KIND = "association_rules"
MOST_RULES = 20_000_000
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


@dataclass(frozen=True, slots=True, eq=False)
class Rules:
    """Rules lhs ⇒ rhs between frequent itemsets, one entry of every column per rule.

    `lhs` and `rhs` hold places of items, −1 pads short ones. `stderr`, `lower` and `upper` belong to the
    support. A rule is undecided if a threshold lies within the interval of its support or confidence.
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
    min_confidence: float

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

    def conf_int(self) -> Interval:
        """Return normal intervals of the confidences, at the level of the itemsets."""
        return normal_interval(self.confidence, self.confidence_stderr, self.itemsets.level)

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
            }
        )

    def best(self, max_rows: int, by: str) -> Rows:
        """Return the first rules, ordered by one of the measures."""
        if by not in ORDERS:
            raise InputError(f"Rules are ordered by one of {', '.join(ORDERS)}. Got {by!r} instead.")
        return np.argsort(-np.asarray(getattr(self, by)), kind="stable")[:max_rows]

    def summary(self, max_rows: int = 20, by: str = "lift") -> str:
        """Return the best rules as arules' `inspect` prints them, with standard errors."""
        order = self.best(max_rows, by)
        sides = {i: tuple(map(braces, self.sides(i))) for i in order.tolist()}
        undecided, lift = self.undecided, self.lift
        title = (
            f"{len(self):,} rules, support ≥ {self.itemsets.min_support:g}, confidence ≥ "
            f"{self.min_confidence:g}, n = {self.itemsets.n:,}; {int(undecided.sum()):,} undecided (?)"
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
        return "\n".join([title, *lines, *more(len(self), len(order))])

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

    def to_dict(self) -> dict[str, Any]:
        """Return the rules, and the itemsets they come from, as plain JSON values."""
        return {
            **header(KIND),
            "min_confidence": self.min_confidence,
            "lhs": [[i for i in row if i >= 0] for row in self.lhs.tolist()],
            "rhs": [[i for i in row if i >= 0] for row in self.rhs.tolist()],
            **{name: number_values(getattr(self, name)) for name in NUMBERS},
            "itemsets": self.itemsets.to_dict(),
        }

    @classmethod
    def from_dict(cls, values: Any) -> Rules:
        """Return the rules that plain JSON values describe; what are none is an `InputError`."""
        check_header(values, KIND)
        itemsets = Itemsets.from_dict(entry(values, "itemsets", dict))
        rows = len(entry(values, "lhs", list))
        sides = [
            side_of(entry(values, name, list), rows, name, len(itemsets.items)) for name in ("lhs", "rhs")
        ]
        numbers = {name: array_of(values.get(name), (rows,), name) for name in NUMBERS}
        least = float(entry(values, "min_confidence", int, float))
        return cls(itemsets, sides[0], sides[1], **numbers, min_confidence=least)


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
) -> Rules:
    """Return the rules lhs ⇒ rhs whose support and confidence reach the thresholds, by the estimates.

    `lhs` and `rhs` limit the items of each side (labels, variables or pairs), `max_len` those of both.
    Formula: confidence θ = N̂(lhs ∪ rhs)/N̂(lhs); Var θ ≈ (Var N̂₁ − 2θ Cov(N̂₁, N̂₂) + θ² Var N̂₂)/N̂₂².
    Reference: Agrawal & Srikant (1994); the delta method for a ratio of dependent normals.
    Cost: that of `frequent_itemsets`, and one batch of covariances for each size of set.
    Error: first order in 1/n. A left side with an estimate of zero or less gives no rule, with a warning.
    """
    check_share(min_confidence, "min_confidence")
    found = frequent_itemsets(source, min_support, max_len=max_len, items=items, level=level)
    allowed = (
        places_of(lhs, found.items, found.labels, "lhs"),
        places_of(rhs, found.items, found.labels, "rhs"),
    )
    work = sum(int(mask.sum()) << (size + 1) for size, mask in enumerate(found.chosen))
    if work > MOST_RULES:
        raise InputError(f"There are {work:,} rules to look at (at most {MOST_RULES:,}): set 'max_len'.")
    parts: list[RuleBlock] = []
    nothing = 0
    for size in range(2, len(found.levels) + 1):
        part, without = rules_of(found, size, min_confidence, allowed)
        nothing += without
        parts += [part] if len(part.rows) else []
    if nothing:
        warnings.warn(
            f"{nothing:,} rules were left out: the support of their left side is estimated as zero or less.",
            MasqueradeWarning,
            stacklevel=2,
        )
    return assembled(source, found, parts, min_confidence)


def rules_of(found: Itemsets, size: int, least: float, allowed: tuple[Flags, Flags]) -> tuple[RuleBlock, int]:
    """Return the rules of all frequent sets of one size, and how many had no left side to speak of."""
    held = found.levels[size - 1]
    rows = np.flatnonzero(found.chosen[size - 1])
    left_ok, right_ok = (mask[held.sets[rows]] for mask in allowed)
    nodes = subsets(found, size, rows)
    everything = (1 << size) - 1
    kept: list[tuple[Rows, Rows, Rows, Rows]] = []
    nothing = 0
    for mask in range(1, everything):
        inside = np.array([bool(mask >> place & 1) for place in range(size)])
        fits = left_ok[:, inside].all(axis=1) & right_ok[:, ~inside].all(axis=1)
        left, right = nodes[mask], nodes[everything ^ mask]
        base = found.levels[int(inside.sum()) - 1].values[left]
        some = base > ROUNDING * found.n
        nothing += int(np.count_nonzero(fits & ~some))
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
    return RuleBlock(size, row, parts, left, right), nothing


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


def assembled(source: Tally, found: Itemsets, parts: list[RuleBlock], least: float) -> Rules:
    """Ask for the covariances and put the columns of all rules together."""
    widest = max((part.size for part in parts), default=1)
    columns: dict[str, list[NDArray[Any]]] = {name: [] for name in ("lhs", "rhs", *NUMBERS)}
    for part in parts:
        held = found.levels[part.size - 1]
        sets = held.sets[part.rows]
        covariance = ask(source, Supports(found.items, sets, part.parts)).covariance
        value, error = held.values[part.rows], held.stderr[part.rows]
        base, base_error = side_values(found, part.parts.sum(axis=1), part.lhs)
        other, _ = side_values(found, part.size - part.parts.sum(axis=1), part.rhs)
        ratio = value / base
        variance = error**2 - 2 * ratio * np.asarray(covariance) + ratio**2 * base_error**2
        columns["lhs"].append(padded(sets, part.parts, widest))
        columns["rhs"].append(padded(sets, ~part.parts, widest))
        columns["support"].append(value / found.total)
        columns["stderr"].append(error / found.total)
        columns["lower"].append(held.lower[part.rows] / found.total)
        columns["upper"].append(held.upper[part.rows] / found.total)
        columns["confidence"].append(ratio)
        columns["confidence_stderr"].append(np.sqrt(np.maximum(variance, 0.0)) / base)
        columns["lhs_support"].append(base / found.total)
        columns["rhs_support"].append(other / found.total)
    empty = {name: np.zeros((0, widest) if name.endswith("hs") else 0) for name in columns}
    joined = {name: np.concatenate(list_) if list_ else empty[name] for name, list_ in columns.items()}
    sides = joined.pop("lhs").astype(np.int32), joined.pop("rhs").astype(np.int32)
    return Rules(found, sides[0], sides[1], **joined, min_confidence=least)


def side_values(found: Itemsets, sizes: Rows, rows: Rows) -> tuple[Floats, Floats]:
    """Return counts and standard errors of sets given by size and row."""
    values, errors = np.zeros(len(rows)), np.zeros(len(rows))
    for size in np.unique(sizes).tolist():
        here = sizes == size
        held = found.levels[size - 1]
        values[here], errors[here] = held.values[rows[here]], held.stderr[rows[here]]
    return values, errors


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
