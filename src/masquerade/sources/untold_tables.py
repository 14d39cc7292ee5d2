"""Reasons why a table does not follow from reports, and the tables that do."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from masquerade.channels.class_response import ClassResponse
from masquerade.channels.policy import Group
from masquerade.core.util.formatting import counted
from masquerade.estimate.inverse import UNRELATED

MOST_NAMED = 12
MOST_TRIED = 256  # most tables that are tried to list the possible ones in a refusal


def tables_told(group: Group) -> str:
    """List the largest tables that follow from the joint report of a group. Empty if none does."""
    places, found = range(len(group.names)), list[tuple[int, ...]]()
    tried = 0
    for size in range(len(group.names) - 1, 0, -1):
        for some in combinations(places, size):
            if any(set(some) <= set(other) for other in found) or tried >= MOST_TRIED:
                continue
            tried += 1
            if group.matrix_channel.tells(group.sizes, some):
                found.append(some)
    return "; ".join(" × ".join(group.names[place] for place in some) for some in sorted(found))


def describe_untold(group: Group) -> str:
    """Return the reason why a table does not follow from a joint report, and the tables that do."""
    tables = tables_told(group)
    return (
        f"This table does not follow from the joint report of {', '.join(group.names)}: different truths "
        "give the same reports. Of these variables "
        + (f"{tables} can be queried, and their margins." if tables else "no table can be queried.")
        + (f" {UNRELATED}" if _reversed_evenly(group) else "")
    )


def _reversed_evenly(group: Group) -> bool:
    """Return True if every truth of yes/no variables gives the same reports as another truth."""
    if any(size != 2 for size in group.sizes):
        return False
    _, alike = np.unique(group.matrix_channel.matrix.round(12), axis=0, return_counts=True)
    return bool(alike.min() > 1)


def describe_blocks_needed(group: Group, response: ClassResponse, touched: Sequence[str]) -> str:
    """Explain that a table cannot be estimated, which tables can, and how to plan for it."""
    few = f"Tables of up to {counted(response.order, 'variable')} of {_first_names(group.names)} follow."
    return (
        f"The table of {', '.join(touched)} does not follow from the reports: nobody reported on these "
        f"{len(touched)} variables together. {few} Plan for it: masquerade policy init --count "
        f"'{'×'.join(touched)}'."
    )


def _first_names(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
