"""The model of association rules: measures, intervals, text, plots and files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError
from masquerade.core.intervals import Flags, Interval, normal_interval
from masquerade.core.plots.drawing import Dots, dot_plot
from masquerade.core.supports import Sets
from masquerade.core.util.display import Printed
from masquerade.core.util.formatting import printable
from masquerade.learn.model_file import check_header, entry, header, missing_lines, part_of, part_values
from masquerade.learn.rules.itemsets import (
    ROUNDING,
    Itemsets,
    Rows,
    braces,
    check_share,
    more,
    whole_numbers,
)
from masquerade.learn.rules.rule_measures import (
    conviction_interval,
    lift_interval,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

KIND = "association_rules"


PICKED = (
    "Errors and intervals are those of one rule by itself. Rules are picked by their estimates: those near\n"
    "a threshold are too good on average, and about 81 to 89% of their 95% intervals contain the truth."
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
class AssociationRules(Printed):
    """Association rules lhs ⇒ rhs between frequent itemsets, one entry per rule in every column.

    A rule is undecided if a threshold is within the interval of its support or confidence. Numbers that a
    file of an earlier version lacks are NaN.

    Attributes
    ----------
    itemsets : Itemsets
        The frequent itemsets.
    lhs, rhs : ndarray of int
        Indices of the items of each side, padded with −1.
    support, stderr, lower, upper : ndarray
        Support of both sides, its standard error and interval.
    confidence, confidence_stderr, confidence_lower, confidence_upper : ndarray
        Confidence, its standard error and interval.
    lhs_support, rhs_support : ndarray
        Support of each side.
    lift_stderr, leverage_stderr, conviction_stderr : ndarray
        Standard errors of the measures.
    p_value : ndarray
        P-value of the test that both sides are independent.
    q_value : ndarray
        Smallest false discovery rate at which the rule is a discovery: see `association_rules`.
    min_confidence : float
        Threshold of the confidence.
    fdr : float or None
        Limit of the false discovery rate.

    Examples
    --------
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
        """Return the confidence relative to its value under independence."""
        return ratio_or_infinity(self.confidence, self.rhs_support)

    @property
    def leverage(self) -> Floats:
        """Return the support minus its value under independence."""
        return self.support - self.lhs_support * self.rhs_support

    @property
    def conviction(self) -> Floats:
        """Return (1 − P(rhs))/(1 − confidence); infinite if the rule never fails, by its estimate."""
        fails = 1 - self.confidence
        sure = fails <= ROUNDING
        return np.where(sure, np.inf, (1 - self.rhs_support) / np.where(sure, 1.0, fails))

    def conf_int(self, of: str = "confidence") -> Interval:
        """Return intervals of a measure, by default the confidence, at the level of the itemsets.

        Supports and confidences have score intervals. The other measures have normal intervals: lift on the
        log scale, conviction on the scale of its inverse, and leverage on its own scale. Each interval is for
        one rule by itself.
        """
        if of not in ORDERS:
            raise InputError(f"'of' must be one of {', '.join(ORDERS)}. Got {of!r} instead.")
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
        stored = np.isfinite(self.confidence_lower)
        return Interval(
            np.where(stored, self.confidence_lower, plain.lower),
            np.where(stored, self.confidence_upper, plain.upper),
        )

    @property
    def is_undecided(self) -> Flags:
        """Return True for rules that may miss a threshold."""
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
        """Return a pandas frame with mlxtend's columns, then errors, intervals and `is_undecided`.

        `representativity` is 1: every record is counted.
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
                "zhangs_metric": ratio_or_zero(
                    self.leverage, np.maximum(both * (1 - left), left * (right - both))
                ),
                "jaccard": ratio_or_zero(both, left + right - both),
                "certainty": ratio_or_zero(self.confidence - right, 1 - right),
                "kulczynski": (self.confidence + ratio_or_zero(both, right)) / 2,
                "stderr": self.stderr,
                "lower": self.lower,
                "upper": self.upper,
                "confidence_stderr": self.confidence_stderr,
                "confidence_lower": interval.lower,
                "confidence_upper": interval.upper,
                "undecided": self.is_undecided,
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
        """Return the indices of the best rules by a measure.

        Parameters
        ----------
        max_rows : int
            Maximum number of rules.
        by : str
            "lift", "confidence", "support", "leverage" or "conviction".

        Returns
        -------
        ndarray of int
            Indices of the rules, the best first.

        Raises
        ------
        InputError
            If there is no such measure.
        """
        if by not in ORDERS:
            raise InputError(f"'by' must be one of {', '.join(ORDERS)}. Got {by!r} instead.")
        return np.argsort(-np.asarray(getattr(self, by)), kind="stable")[:max_rows]

    @printable
    def summary(self, max_rows: int = 20, by: str = "lift") -> str:
        """Return the best rules as text, as arules' `inspect` prints them, with standard errors.

        Parameters
        ----------
        max_rows : int, default 20
            Maximum number of rules.
        by : str, default "lift"
            Measure by which rules are sorted.

        Returns
        -------
        str
            The text.
        """
        order = self.best(max_rows, by)
        sides = {i: tuple(map(braces, self.sides(i))) for i in order.tolist()}
        undecided, lift = self.is_undecided, self.lift
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
        notes = [*([PICKED] if len(self) else []), *missing_lines(self.itemsets.missing)]
        return "\n".join([title, *lines, *more(len(self), len(order)), *notes])

    def _repr_html_(self) -> str:
        """Return the HTML view of a notebook: the printed rules."""
        return f"<pre>{escape(self.summary())}</pre>"

    def plot(self, ax: Axes | None = None, max_rows: int = 20, by: str = "lift") -> Axes:
        """Draw the confidences of the best rules with their intervals; undecided rules are hollow.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Axes to draw on. By default a new figure.
        max_rows : int, default 20
            Maximum number of rules.
        by : str, default "lift"
            Measure by which rules are sorted.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        order = self.best(max_rows, by)
        sides = [tuple(map(braces, self.sides(i))) for i in order.tolist()]
        lower, upper = (end[order] for end in self.conf_int())
        return dot_plot(
            [f"{one} ⇒ {other}" for one, other in sides],
            {"confidence": Dots(self.confidence[order], lower, upper, self.is_undecided[order])},
            ax,
            xlabel=f"confidence, {self.itemsets.level:.0%} intervals; hollow: may miss a threshold",
            title=f"{len(order):,} of {len(self):,} rules by {by}, n = {self.itemsets.n:,}",
            mark=self.min_confidence,
        )

    def filter_discoveries(self, fdr: float | None) -> AssociationRules:
        """Return the rules that are discoveries at this false discovery rate; all rules for None."""
        if fdr is None:
            return self
        discoveries = np.asarray(self.q_value <= fdr)
        columns = {name: getattr(self, name)[discoveries] for name in ("lhs", "rhs", *NUMBERS, *LATER)}
        return replace(self, **columns, fdr=fdr)

    def to_dict(self) -> dict[str, Any]:
        """Return the rules and their itemsets as plain JSON values."""
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
    def from_dict(cls, values: Any) -> AssociationRules:
        """Return the rules that `to_dict` described; raise InputError if the values are not valid."""
        check_header(values, KIND)
        itemsets = Itemsets.from_dict(entry(values, "itemsets", dict))
        if any(np.any(level.facets < 0) for level in itemsets.levels):
            raise InputError("'facets' of the itemsets of rules must all be present.")
        rows = len(entry(values, "lhs", list))
        sides = [
            side_of(entry(values, name, list), rows, name, len(itemsets.items)) for name in ("lhs", "rhs")
        ]
        shapes = dict.fromkeys((*NUMBERS, *LATER), (rows,))
        fields: dict[str, Any] = {name: np.full(rows, np.nan) for name in LATER if name not in values}
        fields |= {"itemsets": itemsets, "lhs": sides[0], "rhs": sides[1]}
        rules = part_of(cls, {"fdr": None, **values}, shapes, **fields)
        if rules.fdr is not None:
            check_share(rules.fdr, "fdr")
        return rules


def side_of(values: Any, rows: int, name: str, items: int) -> Sets:
    """Return one side of all rules from lists of item indices."""
    if len(values) != rows or not all(isinstance(row, list) and row for row in values):
        raise InputError(f"{name!r} must be {rows} lists of items.")
    result = np.full((rows, max(map(len, values), default=1)), -1, dtype=np.int32)
    for target, row in zip(result, values, strict=True):
        target[: len(row)] = whole_numbers([row], (1, len(row)), name, items)[0]
    return result


def ratio_or_infinity(above: Floats, below: Floats) -> Floats:
    """Return a ratio; infinite if the divisor is zero or less."""
    some = below > ROUNDING
    return np.where(some, above / np.where(some, below, 1.0), np.inf)


def ratio_or_zero(above: Floats, below: Floats) -> Floats:
    """Return a ratio; 0 if the divisor is zero."""
    some = below != 0
    return np.where(some, above / np.where(some, below, 1.0), 0.0)
