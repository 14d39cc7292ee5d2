"""Shares of missing answers, estimated with their errors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from masquerade.core.schema import Category
from masquerade.core.table import CountTable
from masquerade.core.util.formatting import percent


@dataclass(frozen=True, slots=True)
class MissingShare:
    """The estimated share of the records whose answer to a variable is missing.

    Attributes
    ----------
    name : str
        Variable.
    labels : tuple of category
        Categories that mean a missing answer.
    share, stderr : float
        Estimated share of the records and its standard error.

    Examples
    --------
    >>> from masquerade.core.missing_shares import MissingShare
    >>> MissingShare("visits", ("not stated",), 0.1, 0.004).text
    'visits is missing (not stated) for 10% ± 0.4 points of the records.'
    """

    name: str
    labels: tuple[Category, ...]
    share: float
    stderr: float

    @property
    def text(self) -> str:
        """Return one sentence."""
        labels = ", ".join(map(str, self.labels))
        if np.isnan(self.share):
            return f"{self.name} may be missing ({labels}): there are no records."
        size = percent(max(self.share, 0.0))
        return (
            f"{self.name} is missing ({labels}) for {size} ± {100 * self.stderr:.1f} points of the records."
        )


def missing_shares(table: CountTable, names: Iterable[str]) -> tuple[MissingShare, ...]:
    """Return the share of missing answers of each of the named variables that may be missing."""
    found = []
    for axis, variable in enumerate(table.axes):
        if variable.name not in set(names) or not variable.missing:
            continue
        share, stderr = float("nan"), float("nan")
        total = table.total
        if total > 0:
            absent = np.ones(len(variable))
            absent[list(variable.answered_codes)] = 0.0
            weights = np.broadcast_to(
                absent.reshape([-1 if i == axis else 1 for i in range(table.values.ndim)]), table.values.shape
            )
            share = float((table.values * weights).sum()) / total
            variance = table.covariance.quadratic((weights - share) / total)
            stderr = float(np.sqrt(max(variance, 0.0)))
        found.append(MissingShare(variable.name, variable.missing, share, stderr))
    return tuple(found)
