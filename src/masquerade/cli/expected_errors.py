"""What the errors of a policy will be, as the commands that show policies say it."""

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
    """Return how far off each disguised variable's shares will be; nothing where strata differ."""
    items = _errors(policy, priors)
    if not items:
        return []
    points = f"{100 * MARGIN:g}"
    table = output.plain_table(
        "What the reports will tell",
        ["variable"],
        [f"± points with\n{n:,} people", f"people for\n±{points} points"],
    )
    for item in items:
        known = math.isfinite(item.variance)
        figures = (
            (f"{100 * item.margin(n):.2g}", f"{math.ceil(item.needed(MARGIN)):,}")
            if known
            else ("–", "never")
        )
        table.add_row(item.table[0], *figures)
    return [table]


def expected_words(policy: Policy) -> list[str]:
    """Say in a line how many people the disguised variables take."""
    items = [item for item in _errors(policy, {}) if math.isfinite(item.variance)]
    if not items:
        return []
    most = max(items, key=lambda item: item.variance)
    needed = math.ceil(most.needed(MARGIN))
    people = counted(needed, "person", "people")
    told = f"±{100 * MARGIN:g} points at 95% for every variable: {people} ({most.table[0]} takes the most)."
    return [told]


def expected_values(policy: Policy, priors: Priors | None = None, n: int = PEOPLE) -> list[dict[str, Any]]:
    """Return the same for JSON."""
    return [
        {
            "variable": item.table[0],
            "people": n,
            "stderr": item.stderr(n) if math.isfinite(item.variance) else None,
            "margin": item.margin(n) if math.isfinite(item.variance) else None,
            "people_for_3_points": math.ceil(item.needed(MARGIN)) if math.isfinite(item.variance) else None,
        }
        for item in _errors(policy, priors or {})
    ]


def unusable_groups(policy: Policy, *, joint: bool = False) -> list[str]:
    """Say which variables' reports will tell nothing at all, and why; of those disguised together if `joint`.

    Some tables of several variables may be told then, but of none of them alone.
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
