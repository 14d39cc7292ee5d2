"""Itemsets and rules as frames shaped like mlxtend's, and as text printed like arules'."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from masquerade.learn.itemsets import Itemsets
    from masquerade.learn.rules import Rules

ORDERS = ("lift", "confidence", "support", "leverage", "conviction")


def itemsets_frame(found: Itemsets) -> pd.DataFrame:
    """Return one row per set: mlxtend's support and itemsets, then stderr, lower, upper, undecided."""
    import pandas as pd  # noqa: PLC0415  (learners load pandas only when a frame is asked for)

    return pd.DataFrame(
        {
            "support": found.column("values"),
            "itemsets": pd.Series(list(found), dtype=object),
            "stderr": found.column("stderr"),
            "lower": found.column("lower"),
            "upper": found.column("upper"),
            "undecided": found.undecided,
        }
    )


def rules_frame(rules: Rules) -> pd.DataFrame:
    """Return one row per rule: mlxtend's columns, then errors and intervals.

    `representativity` is 1: no record is left out of any count.
    """
    import pandas as pd  # noqa: PLC0415  (learners load pandas only when a frame is asked for)

    sides = [rules.sides(row) for row in range(len(rules))]
    interval = rules.conf_int()
    both, left, right = rules.support, rules.lhs_support, rules.rhs_support
    return pd.DataFrame(
        {
            "antecedents": pd.Series([frozenset(side) for side, _ in sides], dtype=object),
            "consequents": pd.Series([frozenset(side) for _, side in sides], dtype=object),
            "antecedent support": left,
            "consequent support": right,
            "support": both,
            "confidence": rules.confidence,
            "lift": rules.lift,
            "representativity": np.ones(len(rules)),
            "leverage": rules.leverage,
            "conviction": rules.conviction,
            "zhangs_metric": ratio(
                rules.leverage, np.maximum(both * (1 - left), left * (right - both)), otherwise=0.0
            ),
            "jaccard": ratio(both, left + right - both, otherwise=0.0),
            "certainty": ratio(rules.confidence - right, 1 - right, otherwise=0.0),
            "kulczynski": (rules.confidence + ratio(both, right, otherwise=0.0)) / 2,
            "stderr": rules.stderr,
            "lower": rules.lower,
            "upper": rules.upper,
            "confidence_stderr": rules.confidence_stderr,
            "confidence_lower": interval.lower,
            "confidence_upper": interval.upper,
            "undecided": rules.undecided,
        }
    )


def itemsets_text(found: Itemsets, max_rows: int) -> str:
    """Return the most frequent sets as text."""
    support, error = found.column("values"), found.column("stderr")
    names = [braces(sorted(names)) for names in found]
    order = np.argsort(-support, kind="stable")[:max_rows]
    undecided = found.undecided
    title = (
        f"{len(found):,} frequent itemsets of {len(found.items):,} items, support ≥ {found.min_support:g}, "
        f"n = {found.n:,}; {int(undecided.sum()):,} undecided (?)"
    )
    width = max((len(names[i]) for i in order), default=5)
    lines = [f"     {'items':<{width}}  support  stderr"]
    lines += [
        f"[{place}]".ljust(5)
        + f"{names[i]:<{width}}  {support[i]:7.4f}  {error[i]:6.4f}{' ?' if undecided[i] else ''}"
        for place, i in enumerate(order.tolist(), start=1)
    ]
    return "\n".join([title, *lines, *more(len(names), len(order))])


def rules_text(rules: Rules, max_rows: int, by: str) -> str:
    """Return the best rules as arules' `inspect` prints them, with standard errors."""
    if by not in ORDERS:
        raise InputError(f"Rules are ordered by one of {', '.join(ORDERS)}. Got {by!r} instead.")
    order = np.argsort(-np.asarray(getattr(rules, by)), kind="stable")[:max_rows]
    sides = {i: tuple(map(braces, rules.sides(i))) for i in order.tolist()}
    undecided, lift = rules.undecided, rules.lift
    title = (
        f"{len(rules):,} rules, support ≥ {rules.itemsets.min_support:g}, confidence ≥ "
        f"{rules.min_confidence:g}, n = {rules.itemsets.n:,}; {int(undecided.sum()):,} undecided (?)"
    )
    left = max((len(side) for side, _ in sides.values()), default=3)
    right = max((len(side) for _, side in sides.values()), default=3)
    lines = [f"     {'lhs':<{left}}    {'rhs':<{right}}  support (stderr)  confidence (stderr)    lift"]
    for place, (i, (one, other)) in enumerate(sides.items(), start=1):
        lines.append(
            f"[{place}]".ljust(5)
            + f"{one:<{left}} => {other:<{right}}   {rules.support[i]:6.4f} ({rules.stderr[i]:6.4f})"
            + f"      {rules.confidence[i]:6.4f} ({rules.confidence_stderr[i]:6.4f})  {lift[i]:6.3f}"
            + (" ?" if undecided[i] else "")
        )
    return "\n".join([title, *lines, *more(len(rules), len(order))])


def braces(names: Iterable[str]) -> str:
    """Return names as a set is printed: {a,b}."""
    return "{" + ",".join(names) + "}"


def more(all_of: int, shown: int) -> list[str]:
    """Return a line that says how many are not shown."""
    return [f"… and {all_of - shown:,} more"] if all_of > shown else []


def ratio(above: Floats, below: Floats, *, otherwise: float) -> Floats:
    """Return a quotient, and `otherwise` where the divisor is zero."""
    some = below != 0
    return np.where(some, above / np.where(some, below, 1.0), otherwise)
