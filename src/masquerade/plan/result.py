"""The result of planning: the policy, its expected errors and guarantee, and the designs compared."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from masquerade.channels.measures import breach_bound
from masquerade.channels.policy import Policy
from masquerade.channels.policy.fields import missing_in_file, recodes_in_file
from masquerade.channels.policy.models import FORMAT
from masquerade.channels.privacy_level import PrivacyLimit
from masquerade.core.axes import Floats
from masquerade.core.distributions import two_sided_quantile
from masquerade.core.schema import Schema
from masquerade.core.util.display import Printed
from masquerade.core.util.formatting import counted, epsilon_text, gamma_text, percent, printable
from masquerade.plan.candidates import Candidate, Joint, Split, Task
from masquerade.plan.central import ASSUMPTION, central_epsilon
from masquerade.plan.comparisons import GroupComparison, compare_groups
from masquerade.plan.counting import CountedBy, CountingComparison, compare_counting
from masquerade.plan.expected_errors import LEVEL, ExpectedError, expected_errors
from masquerade.plan.goals import PlanGoal, pairs_in, people
from masquerade.plan.power import Rule, detectable
from masquerade.plan.questions import title

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

DELTA = 1e-6
POINTS = 24
SHOWN = 8  # most tables in the description of a plan


@dataclass(frozen=True)
class Plan(Printed):
    """The best design for a purpose; see `masquerade.plan.plan`.

    >>> survey = {"smoker": ["yes", "no"], "region": ["north", "south", "west"]}
    >>> plan = mq.plan(survey, privacy=1.5, error=0.05, queries="smoker, region")
    >>> plan.n
    2178
    >>> plan.save("policy.yaml")
    >>> mq.Policy.load("policy.yaml").id == plan.policy.id
    True
    """

    task: Task
    way: Candidate
    epsilon: float
    goal: PlanGoal
    ways: tuple[Candidate, ...]
    schema: Schema
    fields: Policy | None = None
    limit: PrivacyLimit | None = None
    counted_by: CountedBy | None = None

    @property
    def counting(self) -> CountingComparison:
        """Return the ways to count at the same ε: disguised records, shuffled reports, sums with noise."""
        return compare_counting(self, self.counted_by or CountedBy(1, 0))

    @property
    def design(self) -> str:
        """Return the name of the chosen design."""
        return self.way.title

    @cached_property
    def n(self) -> int:
        """Return the number of people, either given or computed for the goal."""
        if self.goal.n is not None:
            return self.goal.n
        return max(math.ceil(people(self.way, self.task, self.goal, self.epsilon) - 1e-6), 1)

    @cached_property
    def policy(self) -> Policy:
        """Return the policy."""
        return Policy.from_dict(self.policy_values())

    def policy_values(self) -> dict[str, Any]:
        """Return the content of the policy file."""
        parts = self.way.channels(self.epsilon)
        clear = [name for name in self.schema if name not in self.task.schema]
        variables: dict[str, Any] = {}
        for name in self.schema:
            if name in self.task.sizes or name in clear:
                channel = parts.get("variables", {}).get(name)
                variables[name] = self._reading(name) | ({} if channel is None else {"channel": channel})
        values: dict[str, Any] = {"masquerade": FORMAT, "title": self._heading()}
        if self.limit is not None:
            values["limit"] = self.limit.to_dict()
            values |= {"clear": "accepted"} if clear else {}
        values["variables"] = variables
        return values | {key: parts[key] for key in ("joint", "blocks") if key in parts}

    def _reading(self, name: str) -> dict[str, Any]:
        """Return the categories of a column, or the bins and missing values of the policy that was given."""
        field = None
        if self.fields is not None:
            field = next(item for item in self.fields.fields if item.variable.name == name)
        if field is not None and field.edges is not None:
            entry: dict[str, Any] = {"bins": list(field.edges)}
        else:
            entry = {"categories": list(self.schema[name].categories)}
        if field is None:
            return entry
        missing = {} if field.missing is None else {"missing": missing_in_file(field.variable)}
        return entry | missing | recodes_in_file(field)

    def _heading(self) -> str:
        whose = "a record" if self.task.per == "record" else "a variable"
        return (
            f"planned: {self.design}, ε = {self.epsilon:.6g} {whose}, {counted(self.n, 'person', 'people')}"
        )

    def save(self, path: str | Path) -> None:
        """Write the policy to a YAML or JSON file."""
        self.policy.save(path)

    @cached_property
    def errors(self) -> list[ExpectedError]:
        """Return the expected error of every table, from the policy's exact channels."""
        return expected_errors(self.policy, self.task.tables, self.task.shares)

    @property
    def error(self) -> float:
        """Return the largest margin over all tables, the half-width of a 95% interval."""
        return max(item.margin(self.n) for item in self.errors)

    @cached_property
    def queries(self) -> pd.DataFrame:
        """Return a frame with one row per table: error and margin of a cell's share, least possible error."""
        import pandas as pd  # noqa: PLC0415  (slow to import)

        floors = np.sqrt(self.task.floor(self.epsilon) / self.n)
        return pd.DataFrame(
            {
                "query": [title(item.table) for item in self.errors],
                "cells": [item.cells for item in self.errors],
                "stderr": [item.stderr(self.n) for item in self.errors],
                "margin": [item.margin(self.n) for item in self.errors],
                "worst_margin": [
                    two_sided_quantile(LEVEL) * math.sqrt(item.worst / self.n) for item in self.errors
                ],
                "floor": floors if self.task.has_floors else math.nan,
            }
        )

    @cached_property
    def alternatives(self) -> pd.DataFrame:
        """Return a frame with one row per compared design, at the plan's ε and n, best first.

        `gap` is the relative excess of the worst table's variance over the least variance that any mechanism
        could reach for that table alone. It is an upper bound of the gain from a better design.
        `epsilon_central` applies only to published counts, under `central.ASSUMPTION`, with δ = 1e-6.
        """
        import pandas as pd  # noqa: PLC0415  (slow to import)

        rows = [self._row(way) for way in self.ways]
        return pd.DataFrame(rows).sort_values("stderr", kind="stable").reset_index(drop=True)

    def _row(self, way: Candidate) -> dict[str, Any]:
        variances = way.variances(self.epsilon)
        worst = int(np.argmax(variances))
        record = way.record_epsilon(self.epsilon)
        stderr = math.sqrt(variances[worst] / self.n)
        floor = self.task.floor(self.epsilon)[worst]
        bits = math.log2(way.reports(self.epsilon))
        return {
            "design": way.title,
            "chosen": way is self.way,
            "epsilon_variable": max(way.per_variable(self.epsilon).values()),
            "epsilon_record": record,
            "epsilon_central": self._central(way, record),
            "reports": way.reports(self.epsilon),
            "bytes": max(math.ceil(bits / 8), 1),
            "stderr": stderr,
            "margin": two_sided_quantile(LEVEL) * stderr,
            "needed_n": people(way, self.task, self.goal, self.epsilon) if self.goal.targeted else math.nan,
            "gap": variances[worst] / floor - 1 if self.task.has_floors else math.nan,
            "worst_query": title(self.task.tables[worst]),
        }

    def _central(self, way: Candidate, record: float) -> float:
        """Return the smaller of two upper bounds of ε: for any mechanism, and for a symmetric channel."""
        bounds = [central_epsilon(record, self.n, DELTA)]
        alone = isinstance(way, Split) and way.symmetric and len(self.task.variables) == 1
        if alone or isinstance(way, Joint):
            bounds.append(central_epsilon(record, self.n, DELTA, math.prod(self.task.sizes.values())))
        return min(bounds)

    def curve(self, epsilons: Floats | None = None) -> pd.DataFrame:
        """Return the margin and the people needed, by design and ε, and the least possible margin."""
        import pandas as pd  # noqa: PLC0415  (slow to import)

        low, high = min(0.25, self.epsilon / 2), max(6.0, 2 * self.epsilon)
        grid = np.geomspace(low, high, POINTS) if epsilons is None else np.asarray(epsilons, dtype=float)
        rows = []
        for epsilon in grid.tolist():
            floor = float(self.task.floor(epsilon).max())
            for way in self.ways:
                variance = float(way.variances(epsilon).max())
                takes = people(way, self.task, self.goal, epsilon) if self.goal.targeted else math.nan
                rows.append(
                    {
                        "epsilon": epsilon,
                        "design": way.title,
                        "margin": two_sided_quantile(LEVEL) * math.sqrt(variance / self.n),
                        "needed_n": takes,
                        "floor": two_sided_quantile(LEVEL) * math.sqrt(floor / self.n)
                        if self.task.has_floors
                        else math.nan,
                    }
                )
        return pd.DataFrame(rows)

    def detectable(self, power: float = 0.8, rule: Rule = "test") -> dict[tuple[str, str], float]:
        """Return, for every requested pair, the least association φ that n records detect with this power."""
        known: dict[Any, float] = {}
        found = {}
        spent = self.way.per_variable(self.epsilon)
        for first, second in pairs_in(self.task):
            sides = (self.task.shares[first], self.task.shares[second])
            key = (*map(tuple, sides), round(spent[first], 9), round(spent[second], 9))
            if key not in known:
                reports = self.way.pair(first, second, self.epsilon)
                known[key] = (
                    math.inf
                    if reports is None
                    else detectable(reports, sides, self.n, wanted=power, rule=rule)
                )
            found[first, second] = known[key]
        return found

    @cached_property
    def comparisons(self) -> list[GroupComparison]:
        """Return the expected errors of differences of disguised variables between clear groups."""
        clear = [name for name in self.schema if name not in self.task.schema]
        outcomes = [name for name in self.task.schema if name in self.task.sizes]
        return compare_groups(self.policy, outcomes, clear, self.task.shares, self.n)

    @property
    def cannot(self) -> list[str]:
        """Describe the queries that records of this plan cannot answer."""
        left = [name for name in self.task.schema if name not in self.task.sizes]
        dropped = [f"anything about {', '.join(left)}: no query uses them, so they are omitted"]
        return [*(dropped if left else []), *self.way.cannot()]

    def sentence(self) -> str:
        """Describe the guarantee for one person in a sentence for non-specialists such as lawyers."""
        record = self.way.record_epsilon(self.epsilon)
        gamma = math.exp(min(record, 700.0))
        after = percent(breach_bound(gamma, 0.05))
        return (
            f"Someone who thought it 5% likely can think it at most {after} likely "
            "after seeing everything: whatever an attacker already knows about a person, all reports of that "
            f"person change the odds of any belief about them by at most the factor {gamma_text(gamma)}."
        )

    @printable
    def explain(self) -> str:
        """Describe the plan: its design, errors, assumptions and guarantee."""
        record = self.way.record_epsilon(self.epsilon)
        lines = [
            self.sentence(),
            f"Design: {self.design}; {self.n:,} people; ε = {epsilon_text(record)} a record.",
            f"Error: {self._error_words()}",
        ]
        if self.comparisons:
            lines.append(f"Comparisons: {self._comparison_words()}")
        if self.goal.detect is not None:
            takes = people(self.way, self.task, self.goal, self.epsilon)
            lines.append(f"Goal: {self.goal.detect.words()} in every pair needs {math.ceil(takes):,} people.")
        if self.goal.n is not None and self.goal.targeted:
            spare = people(self.way, self.task, self.goal, self.epsilon)
            if spare < 0.95 * self.n:
                lines.append(f"{math.ceil(spare):,} people are enough at this ε.")
        others = [way for way in self.ways if way is not self.way]
        if others:
            lines.append(f"Alternatives: {'; '.join(self._compare_design(way) for way in others)}.")
        lines.append(self._assumption())
        if self.counted_by is not None:
            lines.append(self.counting.summary())
        lines += [f"Cannot answer: {what}." for what in self.cannot]
        central = self._central(self.way, record)
        if central < 0.99 * record:
            lines.append(
                f"As long as {ASSUMPTION}, the published counts have ε = {epsilon_text(central)} (δ = 10⁻⁶)."
            )
        return "\n".join(lines)

    def _error_words(self) -> str:
        ranked = sorted(self.errors, key=lambda item: -item.variance)
        shown = [f"{title(item.table)} ±{100 * item.margin(self.n):.2g}" for item in ranked[:SHOWN]]
        more = f", and {len(ranked) - SHOWN} narrower" if len(ranked) > SHOWN else ""
        return f"95% intervals of a cell's share, in points: {', '.join(shown)}{more}."

    def _comparison_words(self) -> str:
        ranked = sorted(self.comparisons, key=lambda item: -item.stderr)
        more = f", and {len(ranked) - SHOWN} narrower" if len(ranked) > SHOWN else ""
        return (
            "95% intervals of a difference between two groups, in points, and the difference that a test at "
            f"5% detects with power 0.8: {', '.join(item.words() for item in ranked[:SHOWN])}{more}."
        )

    def _compare_design(self, way: Candidate) -> str:
        ratio = float(way.variances(self.epsilon).max() / self.way.variances(self.epsilon).max())
        return f"{way.title} needs {ratio:.3g} times as many people for the same error"

    def _assumption(self) -> str:
        if not self.task.given:
            return "Assumed: all categories equally common, which is nearly the worst case for the error."
        return f"Assumed: the shares given for {', '.join(sorted(self.task.given))}, and independence."

    def summary(self) -> str:
        """Return the description of the plan."""
        return self.explain()

    def __repr__(self) -> str:
        """Return the description of the plan."""
        return self.explain()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "design": self.design,
            "epsilon": self.epsilon,
            "per": self.task.per,
            "n": self.n,
            "error": self.error,
            "sentence": self.sentence(),
            "cannot": self.cannot,
            "assumption": self._assumption(),
            "queries": _plain(self.queries),
            "alternatives": _plain(self.alternatives),
            "comparisons": [item.to_dict() for item in self.comparisons],
            "policy": self.policy.to_dict(),
        } | ({} if self.counted_by is None else {"counting": self.counting.to_dict()})

    def plot_error(self, ax: Axes | None = None) -> Axes:
        """Plot the margin by ε, one line per design, and the lower bound of any mechanism."""
        from masquerade.plan.plan_plot import error_curves  # noqa: PLC0415  (loads matplotlib)

        return error_curves(self, ax)

    def plot_needed(self, ax: Axes | None = None) -> Axes:
        """Plot the people needed for the goal by ε, one line per design."""
        from masquerade.plan.plan_plot import needed_curves  # noqa: PLC0415  (loads matplotlib)

        return needed_curves(self, ax)

    def plot_queries(self, ax: Axes | None = None) -> Axes:
        """Plot the margin of every table."""
        from masquerade.plan.plan_plot import query_bars  # noqa: PLC0415  (loads matplotlib)

        return query_bars(self, ax)

    def plot_counting(self, ax: Axes | None = None) -> Axes:
        """Plot the margin of every way to count: disguised records, shuffled reports, sums with noise."""
        return self.counting.plot(ax)

    def plot_detectable(self, ax: Axes | None = None) -> Axes:
        """Plot the least detectable association of each pair as a matrix."""
        from masquerade.plan.plan_plot import detectable_matrix  # noqa: PLC0415  (loads matplotlib)

        return detectable_matrix(self, ax)


def _plain(frame: pd.DataFrame) -> list[dict[str, Any]]:
    rows = frame.to_dict(orient="records")
    return [
        {
            str(key): None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in row.items()
        }
        for row in rows
    ]
