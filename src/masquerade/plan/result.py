"""A plan that was made: the policy, what it will tell and give away, and what else was compared."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from masquerade.channels.measures import breach_bound
from masquerade.channels.policy import Policy
from masquerade.channels.policy.fields import recodes_in_file
from masquerade.channels.policy.models import FORMAT
from masquerade.core.axes import Floats
from masquerade.core.distributions import two_sided_quantile
from masquerade.core.schema import Schema
from masquerade.core.util.display import Printed
from masquerade.core.util.formatting import counted, epsilon_text, gamma_text, percent, printable
from masquerade.plan.candidates import Candidate, Joint, Split, Task
from masquerade.plan.central import ASSUMPTION, central_epsilon
from masquerade.plan.expected_errors import LEVEL, ExpectedError, expected_errors
from masquerade.plan.goals import Goal, pairs_in, people
from masquerade.plan.power import Rule, detectable
from masquerade.plan.questions import title

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

DELTA = 1e-6
POINTS = 24
SHOWN = 8  # tables in the words of a plan


@dataclass(frozen=True)
class Plan(Printed):
    """The best mask for a purpose; see `masquerade.plan.plan`.

    >>> survey = {"smoker": ["yes", "no"], "region": ["north", "south", "west"]}
    >>> plan = mq.plan(survey, privacy=1.5, error=0.05, queries="smoker, region")
    >>> plan.n
    2367
    >>> plan.save("policy.yaml")
    >>> mq.Policy.load("policy.yaml").id == plan.policy.id
    True
    """

    task: Task
    way: Candidate
    epsilon: float
    goal: Goal
    ways: tuple[Candidate, ...]
    schema: Schema
    fields: Policy | None = None

    @property
    def design(self) -> str:
        """Return the name of the way that was chosen."""
        return self.way.title

    @cached_property
    def n(self) -> int:
        """Return how many people are asked: those given, or those that the goal takes."""
        if self.goal.n is not None:
            return self.goal.n
        return max(math.ceil(people(self.way, self.task, self.goal, self.epsilon) - 1e-6), 1)

    @cached_property
    def policy(self) -> Policy:
        """Return the policy, ready to disguise with."""
        return Policy.from_dict(self.policy_values())

    def policy_values(self) -> dict[str, Any]:
        """Return what the policy's file says."""
        parts = self.way.channels(self.epsilon)
        clear = [name for name in self.schema if name not in self.task.schema]
        variables: dict[str, Any] = {}
        for name in self.schema:
            if name in self.task.sizes or name in clear:
                channel = parts.get("variables", {}).get(name)
                variables[name] = self._reading(name) | ({} if channel is None else {"channel": channel})
        values: dict[str, Any] = {"masquerade": FORMAT, "title": self._heading(), "variables": variables}
        return values | {key: parts[key] for key in ("joint", "blocks") if key in parts}

    def _reading(self, name: str) -> dict[str, Any]:
        """Return how a column is read: its categories, or the bins and missing values of the policy given."""
        field = None
        if self.fields is not None:
            field = next(item for item in self.fields.fields if item.variable.name == name)
        if field is not None and field.edges is not None:
            entry: dict[str, Any] = {"bins": list(field.edges)}
        else:
            entry = {"categories": list(self.schema[name].categories)}
        if field is None:
            return entry
        missing = {} if field.missing is None else {"missing": field.missing}
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
        """Return the largest margin of all tables: ± this share, at 95%."""
        return max(item.margin(self.n) for item in self.errors)

    @cached_property
    def queries(self) -> pd.DataFrame:
        """Return a row for every table: error and margin of a cell's share, and the least possible error."""
        import pandas as pd  # noqa: PLC0415  (loaded when a frame is asked for)

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
                "floor": floors if self.task.floors_known else math.nan,
            }
        )

    @cached_property
    def alternatives(self) -> pd.DataFrame:
        """Return a row for every way that was compared, at the plan's ε and n, the best first.

        `gap` is by how much the variance of the worst table is above what any mechanism could reach for that
        table alone: an upper bound of what a better design would gain. `epsilon_central` holds for published
        counts only, under `central.ASSUMPTION`, with δ = 1e-6.
        """
        import pandas as pd  # noqa: PLC0415  (loaded when a frame is asked for)

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
            "gap": variances[worst] / floor - 1 if self.task.floors_known else math.nan,
            "worst_query": title(self.task.tables[worst]),
        }

    def _central(self, way: Candidate, record: float) -> float:
        """Return the least of the bounds that hold: for any mechanism, and for a symmetric channel."""
        bounds = [central_epsilon(record, self.n, DELTA)]
        alone = isinstance(way, Split) and way.symmetric and len(self.task.asked) == 1
        if alone or isinstance(way, Joint):
            bounds.append(central_epsilon(record, self.n, DELTA, math.prod(self.task.sizes.values())))
        return min(bounds)

    def curve(self, epsilons: Floats | None = None) -> pd.DataFrame:
        """Return margin and needed people of every way over a range of ε, with the least margin possible."""
        import pandas as pd  # noqa: PLC0415  (loaded when a frame is asked for)

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
                        if self.task.floors_known
                        else math.nan,
                    }
                )
        return pd.DataFrame(rows)

    def detectable(self, power: float = 0.8, rule: Rule = "test") -> dict[tuple[str, str], float]:
        """Return the least association φ of every pair asked that n records find with this power."""
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

    @property
    def cannot(self) -> list[str]:
        """Say what records disguised by this plan will not answer."""
        left = [name for name in self.task.schema if name not in self.task.sizes]
        dropped = [f"anything about {', '.join(left)}: no query asks for them, so they are left out"]
        return [*(dropped if left else []), *self.way.cannot()]

    def sentence(self) -> str:
        """Return what is guaranteed to a person, in words for a lawyer."""
        record = self.way.record_epsilon(self.epsilon)
        gamma = math.exp(min(record, 700.0))
        return (
            "Whatever anybody knows about a person beforehand, all that the person reports changes the odds "
            f"of any belief about them at most by the factor {gamma_text(gamma)}: a belief of 5% rises to at "
            f"most {percent(breach_bound(gamma, 0.05))}."
        )

    @printable
    def explain(self) -> str:
        """Return the plan in words: what is done, what it will tell, what it gives away, what it assumes."""
        record = self.way.record_epsilon(self.epsilon)
        lines = [
            f"Design: {self.design}; {self.n:,} people; ε = {epsilon_text(record)} a record.",
            f"Error: {self._error_words()}",
        ]
        if self.goal.detect is not None:
            takes = people(self.way, self.task, self.goal, self.epsilon)
            lines.append(
                f"To find: {self.goal.detect.words()} in every pair takes {math.ceil(takes):,} people."
            )
        if self.goal.n is not None and self.goal.targeted:
            spare = people(self.way, self.task, self.goal, self.epsilon)
            if spare < 0.95 * self.n:
                lines.append(f"{math.ceil(spare):,} people would be enough at this ε.")
        others = [way for way in self.ways if way is not self.way]
        if others:
            lines.append(f"Instead: {'; '.join(self._beside(way) for way in others)}.")
        lines.append(self._assumption())
        lines += [f"Cannot answer: {what}." for what in self.cannot]
        lines.append(self.sentence())
        central = self._central(self.way, record)
        if central < 0.99 * record:
            lines.append(
                f"As long as {ASSUMPTION}, what is published has ε = {epsilon_text(central)} (δ = 10⁻⁶)."
            )
        return "\n".join(lines)

    def _error_words(self) -> str:
        ranked = sorted(self.errors, key=lambda item: -item.variance)
        shown = [f"{title(item.table)} ±{100 * item.margin(self.n):.2g}" for item in ranked[:SHOWN]]
        more = f", {len(ranked) - SHOWN} more below that" if len(ranked) > SHOWN else ""
        return f"95% of the intervals of a cell's share are within (points) {', '.join(shown)}{more}."

    def _beside(self, way: Candidate) -> str:
        ratio = float(way.variances(self.epsilon).max() / self.way.variances(self.epsilon).max())
        return f"{way.title} would take {ratio:.3g} times as many people for the same error"

    def _assumption(self) -> str:
        if not self.task.given:
            return "Assumed: all categories equally common, which is nearly the worst case for the error."
        return f"Assumed: the shares given for {', '.join(sorted(self.task.given))}, and independence."

    def summary(self) -> str:
        """Return the plan in words."""
        return self.explain()

    def __repr__(self) -> str:
        """Show the plan in words."""
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
            "policy": self.policy.to_dict(),
        }

    def plot_error(self, ax: Axes | None = None) -> Axes:
        """Draw the margin against ε, a line for each design, and what no mechanism can be below."""
        from masquerade.plan.plan_plot import error_curves  # noqa: PLC0415  (loads matplotlib)

        return error_curves(self, ax)

    def plot_needed(self, ax: Axes | None = None) -> Axes:
        """Draw the people that the goal takes against ε, a line for each design."""
        from masquerade.plan.plan_plot import needed_curves  # noqa: PLC0415  (loads matplotlib)

        return needed_curves(self, ax)

    def plot_queries(self, ax: Axes | None = None) -> Axes:
        """Draw the margin of every table."""
        from masquerade.plan.plan_plot import query_bars  # noqa: PLC0415  (loads matplotlib)

        return query_bars(self, ax)

    def plot_detectable(self, ax: Axes | None = None) -> Axes:
        """Draw the least association that is found in each pair, as a matrix."""
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
