"""Ways to count the same people at the same ε: disguised records, shuffled reports, and noise on sums.

Sums that carry noise need contributors who are online and do not all collude. Such sums have no policy:
the comparison states who must do what, and the error of every way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

from masquerade.channels.noise.terms import NoiseTerms
from masquerade.core.distributions import two_sided_quantile
from masquerade.core.errors import InputError
from masquerade.core.util.display import Printed
from masquerade.core.util.formatting import counted, printable
from masquerade.plan.central import central_epsilon
from masquerade.plan.expected_errors import LEVEL

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from masquerade.plan.result import Plan

DELTA = 1e-6
PEOPLE_COLLUDE, PEOPLE_LEAVE = 0.1, 0.05  # assumed shares of people in secure aggregation
LARGEST_MASK = 12.0  # largest ε tried for disguised records that are shuffled


class CountedBy(NamedTuple):
    """Parties that add noise to sums, and how many of them may reveal their noise."""

    parties: int
    colluders: int = 1
    delta: float = DELTA

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> CountedBy:
        """Return the parties that are given as plain values."""
        unknown = set(values) - set(cls._fields)
        if unknown or "parties" not in values:
            raise InputError(
                "'counted_by' has 'parties', and optionally 'colluders' and 'delta', such as "
                '{"parties": 3, "colluders": 1}.'
            )
        counted_by = cls(**values)
        if (
            not isinstance(counted_by.parties, int)
            or isinstance(counted_by.parties, bool)
            or counted_by.parties < 1
        ):
            raise InputError(
                f"'parties' of 'counted_by' must be a number of at least 1. Got {counted_by.parties!r}."
            )
        NoiseTerms(1, 1, counted_by.delta, counted_by.parties, counted_by.colluders)  # raises InputError
        return counted_by


class CountingWay(NamedTuple):
    """One way to count: its error, who must be online, and who must not collude."""

    name: str
    stderr: float
    needed_n: float
    delta: float
    online: str
    trust: str


@dataclass(frozen=True, repr=False)
class CountingComparison(Printed):
    """Ways to count the tables of a plan, at the same ε for each person.

    Attributes
    ----------
    epsilon : float
        ε of a record, over all tables.
    n : int
        Number of people.
    tables : int
        Number of tables among which sums with noise divide ε.
    ways : tuple of CountingWay
        Ways to count, in the order of the trust that they require.

    Examples
    --------
    >>> survey = {name: ["yes", "no"] for name in "abcde"}
    >>> plan = mq.plan(survey, privacy=1, n=10_000, counted_by={"parties": 3, "colluders": 1})
    >>> plan.counting.to_frame()["way"].tolist()
    ['masks', 'shuffled masks', 'noise by 3 parties', 'noise by people', 'noise by a curator']
    """

    epsilon: float
    n: int
    tables: int
    ways: tuple[CountingWay, ...]

    def to_frame(self) -> pd.DataFrame:
        """Return one row per way: error of a cell's share in the worst table, δ, people needed, and trust."""
        import pandas as pd  # noqa: PLC0415  (slow to import)

        return pd.DataFrame(
            {
                "way": [way.name for way in self.ways],
                "stderr": [way.stderr for way in self.ways],
                "margin": [two_sided_quantile(LEVEL) * way.stderr for way in self.ways],
                "needed_n": [way.needed_n for way in self.ways],
                "delta": [way.delta for way in self.ways],
                "online": [way.online for way in self.ways],
                "trust": [way.trust for way in self.ways],
            }
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        rows = [
            {
                name: value if isinstance(value, str) or math.isfinite(value) else None
                for name, value in row.items()
            }
            for row in self.to_frame().to_dict(orient="records")
        ]
        return {"epsilon": self.epsilon, "n": self.n, "tables": self.tables, "ways": rows}

    @printable
    def summary(self) -> str:
        """Return the margins of all ways, who must be online, and who must not collude."""
        quantile = two_sided_quantile(LEVEL)
        lines = [
            f"The same {counted(self.tables, 'table')} of {self.n:,} people, ε = {self.epsilon:.3g} a record:"
        ]
        lines += [
            f"- {way.name}: ±{100 * quantile * way.stderr:.2g} points"
            + (f" (δ = {way.delta:g})" if way.delta else "")
            + f". Online: {way.online}. Trust: {way.trust}."
            for way in self.ways
        ]
        return "\n".join(lines)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the margin of each way.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw on. By default new ones.

        Returns
        -------
        matplotlib Axes
            The plot.
        """
        from masquerade.core.plots.drawing import new_axes  # noqa: PLC0415  (loads matplotlib)

        ways = [way for way in reversed(self.ways) if math.isfinite(way.stderr)]
        axes = new_axes(6.8, 1.2 + 0.45 * len(ways)) if ax is None else ax
        margins = [100 * two_sided_quantile(LEVEL) * way.stderr for way in ways]
        axes.barh(range(len(ways)), margins, height=0.6)
        for place, (way, margin) in enumerate(zip(ways, margins, strict=True)):
            axes.annotate(f" ±{margin:.2g}; {way.trust}", (margin, place), va="center", fontsize=8)
        axes.set_yticks(range(len(ways)), [way.name for way in ways])
        axes.set_xscale("log")
        axes.set_xlim(min(margins) / 2, max(margins) * 30)
        axes.set_xlabel(f"± points, worst table, {self.n:,} people, ε = {self.epsilon:.3g}")
        return axes


def compare_counting(plan: Plan, by: CountedBy) -> CountingComparison:
    """Return the ways to count the tables of a plan.

    Parameters
    ----------
    plan : Plan
        Plan of disguised records, whose tables and ε apply to all ways.
    by : CountedBy
        Parties that could add noise.

    Notes
    -----
    Formula: the variance of a share with noise is θ(1 − θ)/n + σ²(ε, δ, Q)·(m/h)·φ/n² for Q tables and m
    contributors, of whom h are honest and present. φ is the factor by which consistency between the tables
    reduces the noise (`noise_factor`).
    """
    n, epsilon = plan.n, plan.way.record_epsilon(plan.epsilon)
    sizes = plan.task.schema
    tables = [frozenset(table) for table in plan.task.tables]
    widest = [set_ for set_ in dict.fromkeys(tables) if not any(set_ < other for other in tables)]
    factor = max(noise_factor(set_, widest, {name: len(sizes[name]) for name in sizes}) for set_ in tables)
    sampling = float(((1 - plan.task.squares) / plan.task.cells).max())
    goal = None if plan.goal.error is None else (plan.goal.error / two_sided_quantile(LEVEL)) ** 2
    masks = float(plan.way.variances(plan.epsilon).max())
    ways = [
        CountingWay(
            "masks",
            math.sqrt(masks / n),
            math.nan if goal is None else masks / goal,
            0.0,
            "nobody: each person reports once",
            "nobody",
        ),
        _shuffled_way(plan, n, by.delta, goal),
    ]

    def noise(name: str, who: tuple[int, int, int], online: str, trust: str) -> None:
        contributors, colluders, present = who
        try:
            terms = NoiseTerms(min(epsilon, 20.0), len(widest), by.delta, contributors, colluders)
            variance = float(terms.total_variance(terms.stages[0], present)) * factor
        except InputError:
            ways.append(CountingWay(name, math.inf, math.inf, by.delta, online, trust))
            return
        needed = math.nan
        if goal is not None:  # sampling/n + variance/n² = goal
            needed = (sampling + math.sqrt(sampling**2 + 4 * goal * variance)) / (2 * goal)
        error = math.sqrt(sampling / n + variance / n**2)
        ways.append(CountingWay(name, error, needed, by.delta, online, trust))

    if by.parties > 1:
        noise(
            f"noise by {by.parties} parties",
            (by.parties, by.colluders, by.parties),
            f"all {by.parties} parties in every round",
            f"at most {by.colluders} of {by.parties} parties collude",
        )
    colluding, staying = math.ceil(PEOPLE_COLLUDE * n), n - math.ceil(PEOPLE_LEAVE * n)
    noise(
        "noise by people",
        (staying, colluding, n),
        f"{1 - PEOPLE_LEAVE:.0%} of the people in every round",
        f"at most {PEOPLE_COLLUDE:.0%} of verified people collude with the miner",
    )
    noise("noise by a curator", (1, 0, 1), "the curator", "the curator sees all records")
    return CountingComparison(epsilon, n, len(widest), tuple(ways))


def noise_factor(names: frozenset[str], tables: Sequence[frozenset[str]], sizes: Mapping[str, int]) -> float:
    """Return the variance of a cell's noise after tables were made consistent, divided by that before.

    Formula: with K_S the number of cells of a set S of variables, the contrasts of S have the precision
    Σ_{t ⊇ S} K_S/K_t over all tables t. A cell of a table is the sum of its contrasts; the total is known.
    """

    def cells(some: frozenset[str]) -> int:
        return math.prod(sizes[name] for name in some)

    total = 0.0
    for size in range(1, len(names) + 1):
        for chosen in map(frozenset, combinations(sorted(names), size)):
            precision = sum(cells(chosen) / cells(table) for table in tables if chosen <= table)
            inside = math.prod(1 - 1 / sizes[name] for name in chosen)
            outside = math.prod(1 / sizes[name] for name in names - chosen)
            total += inside * outside * cells(chosen) / cells(names) / precision
    return total


def _shuffled_way(plan: Plan, n: int, delta: float, goal: float | None) -> CountingWay:
    """Return the plan's best design with a weaker disguise, which is enough if only sums are seen."""
    target = plan.way.record_epsilon(plan.epsilon)
    best, needed = math.inf, math.nan
    for way in plan.ways:
        low, high = plan.epsilon, max(LARGEST_MASK, plan.epsilon)
        for _ in range(18):
            middle = (low + high) / 2
            is_private = central_epsilon(way.record_epsilon(middle), n, delta) <= target
            low, high = (middle, high) if is_private else (low, middle)
        best = min(best, float(way.variances(low).max()))
    if goal is not None:
        needed = best / goal
    return CountingWay(
        "shuffled masks",
        math.sqrt(best / n),
        needed,
        delta,
        "a mixnet, or a server that sees only sums; each person reports once",
        "nobody sees reports or their order",
    )
