"""What a survey is to reach: an error, or an association to be found; and the people that takes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from masquerade.core.distributions import two_sided_quantile
from masquerade.core.errors import InputError
from masquerade.plan.candidates import Candidate, Task
from masquerade.plan.expected_errors import LEVEL
from masquerade.plan.power import Rule, associated, needed

MOST_PEOPLE = 10**10


@dataclass(frozen=True, slots=True)
class Detection:
    """An association of size φ that is to be found with a power, by a test at a level or by BIC."""

    phi: float
    power: float = 0.8
    rule: Rule = "test"
    level: float = 0.05

    @classmethod
    def of(cls, given: float | Mapping[str, Any]) -> Detection:
        """Return what is to be found; a number is φ."""
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
        """Say what is to be found."""
        way = "a BIC link" if self.rule == "bic" else f"a test at {100 * self.level:g}%"
        return f"an association of φ = {self.phi:g} found with power {self.power:g} by {way}"


@dataclass(frozen=True, slots=True)
class Goal:
    """How many people are asked, and what they are to suffice for; what is None is to be computed."""

    n: int | None = None
    error: float | None = None
    detect: Detection | None = None

    @classmethod
    def of(cls, n: int | None, error: float | None, detect: float | Mapping[str, Any] | None) -> Goal:
        """Return a goal that makes sense, or say why it does not."""
        if n is not None and (
            isinstance(n, bool) or not _number(n) or n != int(n) or not 1 <= n <= MOST_PEOPLE
        ):
            raise InputError(f"'n' is a number of people, from 1. Got {n!r} instead.")
        if error is not None and not (_number(error) and 0 < error < 1):
            raise InputError(f"'error' is between 0 and 1: 0.03 for ±3 points. Got {error!r} instead.")
        if error is not None and detect is not None:
            raise InputError("Give either 'error' or 'detect': one goal at a time.")
        found = None if detect is None else Detection.of(detect)
        return cls(None if n is None else int(n), None if error is None else float(error), found)

    @property
    def targeted(self) -> bool:
        """Tell whether there is an error or an association to reach."""
        return self.error is not None or self.detect is not None

    def words(self) -> str:
        """Say what was asked."""
        parts = [] if self.n is None else [f"{self.n:,} people"]
        if self.error is not None:
            parts.append(f"±{100 * self.error:g} points")
        if self.detect is not None:
            parts.append(self.detect.words())
        return " and ".join(parts) or "neither"


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def people(way: Candidate, task: Task, goal: Goal, epsilon: float) -> float:
    """Return how many records a way takes to reach the goal; without one, its largest variance."""
    if goal.detect is not None:
        return people_to_detect(way, task, goal.detect, epsilon)
    largest = float(way.variances(epsilon).max())
    return largest if goal.error is None else largest * (two_sided_quantile(LEVEL) / goal.error) ** 2


def people_to_detect(way: Candidate, task: Task, sought: Detection, epsilon: float) -> float:
    """Return how many records find the association in every pair that is asked."""
    found: dict[Any, float] = {}
    for first, second in pairs_in(task):
        sides = (task.shares[first], task.shares[second])
        spent = way.per_variable(epsilon)
        key = (*map(tuple, sides), round(spent[first], 9), round(spent[second], 9))
        if key not in found:
            reports = way.pair(first, second, epsilon)
            truth = associated(*sides, sought.phi)
            found[key] = (
                math.inf
                if reports is None
                else float(needed(reports, truth, sought.power, sought.rule, sought.level))
            )
    return max(found.values())


def pairs_in(task: Task) -> list[tuple[str, str]]:
    """Return the pairs of variables that stand in some table together."""
    together = {
        (first, second) for table in task.tables for i, first in enumerate(table) for second in table[i + 1 :]
    }
    order = {name: place for place, name in enumerate(task.schema)}
    return sorted(together, key=lambda pair: (order[pair[0]], order[pair[1]]))
