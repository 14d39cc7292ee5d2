"""Expected errors of a policy, as the commands that show policies print them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from masquerade.cli import output
from masquerade.core.util.formatting import counted

if TYPE_CHECKING:
    from rich.table import Table

    from masquerade.channels.policy import Policy
    from masquerade.plan.expected_errors import ExpectedError

PEOPLE = 1000
MARGIN = 0.03
Priors = Mapping[str, Sequence[float]]


def expected_table(policy: Policy, priors: Priors, n: int) -> list[Table]:
    """Return a list of one table, the expected error of each variable; empty if no errors are known."""
    items = _errors(policy, priors)
    if not items:
        return []
    points = f"{100 * MARGIN:g}"
    table = output.plain_table(
        "Expected precision",
        ["variable"],
        [f"± points with\n{n:,} people", f"people for\n±{points} points"],
    )
    for item in items:
        known = math.isfinite(item.variance)
        figures = (
            (f"{100 * item.margin(n):.2g}", f"{math.ceil(item.people_needed(MARGIN)):,}")
            if known
            else ("–", "never")
        )
        table.add_row(item.table[0], *figures)
    return [table]


def expected_words(policy: Policy) -> list[str]:
    """Describe in one line the number of people for ±3 points (`MARGIN`) in every disguised variable."""
    items = [item for item in _errors(policy, {}) if math.isfinite(item.variance)]
    if not items:
        return []
    most = max(items, key=lambda item: item.variance)
    needed = math.ceil(most.people_needed(MARGIN))
    people = counted(needed, "person", "people")
    return [f"±{100 * MARGIN:g} points at 95% for every variable: {people} ({most.table[0]} needs the most)."]


def expected_values(policy: Policy, priors: Priors | None = None, n: int = PEOPLE) -> list[dict[str, Any]]:
    """Return the expected error of each disguised variable for JSON."""
    return [
        {
            "variable": item.table[0],
            "people": n,
            "stderr": item.stderr(n) if math.isfinite(item.variance) else None,
            "margin": item.margin(n) if math.isfinite(item.variance) else None,
            "people_for_3_points": math.ceil(item.people_needed(MARGIN))
            if math.isfinite(item.variance)
            else None,
        }
        for item in _errors(policy, priors or {})
    ]


def unusable_groups(policy: Policy, *, joint: bool = False) -> list[str]:
    """Describe the variables whose counts cannot be estimated from their reports, and why.

    If `joint`, describe instead the groups of variables that are disguised together. Counts of a single
    variable of such a group cannot be estimated, but some of its joint tables may be.
    """
    from masquerade.channels.policy.estimability import unusable  # noqa: PLC0415  (loads NumPy)

    found = unusable(policy).items()
    return [f"{', '.join(names)}: {why}" for names, why in found if (len(names) > 1) == joint]


def _errors(policy: Policy, priors: Priors) -> list[ExpectedError]:
    from masquerade.plan.expected_errors import expected_errors  # noqa: PLC0415  (loads SciPy)
    from masquerade.plan.priors import expected_shares  # noqa: PLC0415

    if policy.stratum_variable is not None:
        return []
    shares, _ = expected_shares(priors or None, policy.schema)
    return expected_errors(policy, [(name,) for name in policy.disguised], shares)
