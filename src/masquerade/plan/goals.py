"""Goals of a survey, an error or an association to detect, and the number of people needed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from masquerade.core.distributions import two_sided_quantile
from masquerade.core.errors import InputError
from masquerade.plan.candidates import Candidate, Task
from masquerade.plan.expected_errors import LEVEL
from masquerade.plan.power import Rule, associated_table, people_needed

MOST_PEOPLE = 10**10


@dataclass(frozen=True, slots=True)
class Detection:
    """An association of size φ to detect with a given power, by a test at a given level or by BIC."""

    phi: float
    power: float = 0.8
    rule: Rule = "test"
    level: float = 0.05

    @classmethod
    def of(cls, given: float | Mapping[str, Any]) -> Detection:
        """Parse an association to detect; a number is φ."""
        values = dict(given) if isinstance(given, Mapping) else {"phi": given}
        unknown = set(values) - {"phi", "power", "rule", "level"}
        if unknown or "phi" not in values:
            raise InputError("'detect' is φ, or {'phi': 0.1, 'power': 0.8, 'rule': 'test', 'level': 0.05}.")
        found = cls(**values)
        if not (_number(found.phi) and 0 < found.phi < 1):
            raise InputError(f"detect: φ must be between 0 and 1, such as 0.1. Got {found.phi!r} instead.")
        if not (
            _number(found.power) and 0 < found.power < 1 and _number(found.level) and 0 < found.level < 1
        ):
            raise InputError("detect: 'power' and 'level' are between 0 and 1, such as 0.8 and 0.05.")
        if found.rule not in {"test", "bic"}:
            raise InputError(f"detect: 'rule' is 'test' or 'bic'. Got {found.rule!r} instead.")
        return found

    def words(self) -> str:
        """Describe the association."""
        way = "a BIC link" if self.rule == "bic" else f"a test at {100 * self.level:g}%"
        return f"an association of φ = {self.phi:g} detected with power {self.power:g} by {way}"


@dataclass(frozen=True, slots=True)
class PlanGoal:
    """The number of people, and the error or association to reach; a value of None is computed."""

    n: int | None = None
    error: float | None = None
    detect: Detection | None = None

    @classmethod
    def of(cls, n: int | None, error: float | None, detect: float | Mapping[str, Any] | None) -> PlanGoal:
        """Return a goal, or raise InputError if it is not valid."""
        if n is not None and (
            isinstance(n, bool) or not _number(n) or n != int(n) or not 1 <= n <= MOST_PEOPLE
        ):
            raise InputError(f"'n' must be a number of people, at least 1. Got {n!r} instead.")
        if error is not None and not (_number(error) and 0 < error < 1):
            raise InputError(f"'error' is between 0 and 1: 0.03 for ±3 points. Got {error!r} instead.")
        if error is not None and detect is not None:
            raise InputError("Give either 'error' or 'detect': one goal at a time.")
        found = None if detect is None else Detection.of(detect)
        return cls(None if n is None else int(n), None if error is None else float(error), found)

    @property
    def targeted(self) -> bool:
        """Return True if there is an error or an association to reach."""
        return self.error is not None or self.detect is not None

    def words(self) -> str:
        """Describe the goal."""
        parts = [] if self.n is None else [f"{self.n:,} people"]
        if self.error is not None:
            parts.append(f"±{100 * self.error:g} points")
        if self.detect is not None:
            parts.append(self.detect.words())
        return " and ".join(parts) or "neither"


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def people(way: Candidate, task: Task, goal: PlanGoal, epsilon: float) -> float:
    """Return the number of records that a design needs for the goal; without a goal, its largest variance."""
    if goal.detect is not None:
        return people_to_detect(way, task, goal.detect, epsilon)
    return _people_for_variance(float(way.variances(epsilon).max()), goal)


def least_people(way: Candidate, goal: PlanGoal, epsilon: float) -> float:
    """Return a lower bound of `people` that takes little time; 0 if none is known."""
    return 0.0 if goal.detect is not None else _people_for_variance(way.least_variance(epsilon), goal)


def _people_for_variance(largest: float, goal: PlanGoal) -> float:
    return largest if goal.error is None else largest * (two_sided_quantile(LEVEL) / goal.error) ** 2


def people_to_detect(way: Candidate, task: Task, sought: Detection, epsilon: float) -> float:
    """Return the number of records that detect the association in every requested pair."""
    found: dict[Any, float] = {}
    for first, second in pairs_in(task):
        sides = (task.shares[first], task.shares[second])
        spent = way.per_variable(epsilon)
        key = (*map(tuple, sides), round(spent[first], 9), round(spent[second], 9))
        if key not in found:
            reports = way.pair(first, second, epsilon)
            truth = associated_table(*sides, sought.phi)
            found[key] = (
                math.inf
                if reports is None
                else float(people_needed(reports, truth, sought.power, sought.rule, sought.level))
            )
    return max(found.values())


def pairs_in(task: Task) -> list[tuple[str, str]]:
    """Return the pairs of variables that occur together in some table."""
    together = {
        (first, second) for table in task.tables for i, first in enumerate(table) for second in table[i + 1 :]
    }
    order = {name: place for place, name in enumerate(task.schema)}
    return sorted(together, key=lambda pair: (order[pair[0]], order[pair[1]]))
