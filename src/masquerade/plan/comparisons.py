"""Expected errors of differences between groups that are released in clear."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from masquerade.channels.policy import Policy
from masquerade.core.axes import Floats
from masquerade.core.distributions import normal_quantile, normal_share, two_sided_quantile
from masquerade.core.schema import Schema
from masquerade.core.util.formatting import category_text
from masquerade.plan.expected_errors import LEVEL, expected_errors


@dataclass(frozen=True, slots=True)
class GroupComparison:
    """The expected error of a difference of shares between the two smallest groups of a clear variable.

    Attributes
    ----------
    outcome, group : str
        The disguised variable, and the clear variable that divides the records.
    between : tuple of str
        The two groups with the fewest records: other differences have smaller errors.
    people : tuple of float
        Expected number of records in each group.
    stderr : float
        Standard error of the difference of the shares of one category.
    """

    outcome: str
    group: str
    between: tuple[str, str]
    people: tuple[float, float]
    stderr: float

    @property
    def margin(self) -> float:
        """Return the half-width of the 95% interval of the difference."""
        return two_sided_quantile(LEVEL) * self.stderr

    def detectable(self, power: float = 0.8, level: float = 0.05) -> float:
        """Return the least difference that a two-sided test detects with this power."""
        return (two_sided_quantile(1 - level) + normal_quantile(power)) * self.stderr

    def power(self, difference: float, level: float = 0.05) -> float:
        """Return the probability that a two-sided test detects a difference."""
        if not math.isfinite(self.stderr):
            return level
        effect, bound = abs(difference) / self.stderr, two_sided_quantile(1 - level)
        return normal_share(effect - bound) + normal_share(-effect - bound)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; None for a number that is infinite."""
        margin, detectable = self.margin, self.detectable()
        return {
            "outcome": self.outcome,
            "group": self.group,
            "between": list(self.between),
            "people": list(self.people),
            "margin": margin if math.isfinite(margin) else None,
            "detectable": detectable if math.isfinite(detectable) else None,
        }

    def words(self) -> str:
        """Describe the comparison."""
        name = f"{self.outcome} between {self.between[0]} and {self.between[1]} of {self.group}"
        if not math.isfinite(self.stderr):
            return f"{name} cannot be estimated"
        return f"{name} ±{100 * self.margin:.2g} (detects {100 * self.detectable():.2g})"


def compare_groups(
    policy: Policy,
    outcomes: Sequence[str],
    groups: Sequence[str],
    shares: Mapping[str, Floats],
    n: float,
) -> list[GroupComparison]:
    """Return the expected errors of comparisons of disguised variables between clear groups.

    Formula: records of different groups are independent, so the variance of a difference of shares is
    v/n₁ + v/n₂. v is the largest variance of a category's share for one record (`ExpectedError.worst`), n₁
    and n₂ are the expected numbers of records in the two smallest groups. The power of a test is computed for
    a normally distributed estimate.

    Parameters
    ----------
    policy : Policy
    outcomes : sequence of str
        Disguised variables.
    groups : sequence of str
        Clear variables.
    shares : mapping of str to array
        Expected shares of all of them.
    n : float
        Number of records.

    Returns
    -------
    list of GroupComparison
    """
    errors = expected_errors(policy, [(name,) for name in outcomes], shares)
    return [
        _comparison(error.table[0], error.worst, policy.schema, group, shares[group] * n)
        for error in errors
        for group in groups
        if int(np.count_nonzero(shares[group])) >= 2
    ]


def _comparison(outcome: str, variance: float, schema: Schema, group: str, people: Floats) -> GroupComparison:
    """Return the comparison of the two smallest groups that occur."""
    occurring = np.flatnonzero(people > 0)
    first, second = sorted(occurring[np.argsort(people[occurring], kind="stable")[:2]].tolist())
    labels = schema[group].categories
    sizes = float(people[first]), float(people[second])
    return GroupComparison(
        outcome,
        group,
        (category_text(labels[first]), category_text(labels[second])),
        sizes,
        math.sqrt(variance / sizes[0] + variance / sizes[1]),
    )
