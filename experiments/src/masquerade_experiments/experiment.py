"""What an experiment of a paper is: what to run, what the paper says, how to draw it.

Every experiment is one module with one `EXPERIMENT`; it uses the public interface of the library only.
A *setting* is one point of what the paper varies; `measure` does one seeded run at one setting and returns
rows of plain figures. Runs are independent, so they can be spread over processes and taken up again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Value = str | int | float | bool | None
Setting = Mapping[str, Value]
Row = Mapping[str, Value]
Rule = Literal["equal", "at most", "at least"]
Verdict = Literal["matches", "differs", "no figure to compare"]

MOST_STANDARD_ERRORS = 4.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """One figure of the paper beside ours.

    `stderr` is the standard error of ours over the runs (0 where nothing is random), `paper_stderr` that of
    the paper's own figure where it can be worked out. `reading` is how far a value read off a printed
    figure, or rounded in print, can be from what was meant. With the rules "at most" and "at least" the
    paper's value is a bound. `why` explains a difference that is expected, before it is seen.
    """

    what: str
    paper: float | None
    ours: float
    stderr: float = 0.0
    paper_stderr: float = 0.0
    reading: float = 0.0
    rule: Rule = "equal"
    why: str = ""

    @property
    def excess(self) -> float | None:
        """Return by how much ours is off in the direction that counts, beyond the reading error."""
        if self.paper is None:
            return None
        gap = self.ours - self.paper
        sided = {"equal": abs(gap), "at most": gap, "at least": -gap}[self.rule]
        return max(sided - self.reading, 0.0)

    @property
    def z(self) -> float | None:
        """Return the difference in combined standard errors; None without a value or an error."""
        combined = math.hypot(self.stderr, self.paper_stderr)
        if self.paper is None or combined == 0:
            return None
        return (self.ours - self.paper) / combined

    @property
    def verdict(self) -> Verdict:
        """Return whether ours agrees within the reading error and four combined standard errors."""
        if self.excess is None:
            return "no figure to compare"
        allowed = MOST_STANDARD_ERRORS * math.hypot(self.stderr, self.paper_stderr)
        return "matches" if self.excess <= allowed + 1e-12 * max(1.0, abs(self.ours)) else "differs"


@dataclass(frozen=True, slots=True)
class Experiment:
    """One table or figure of a paper.

    `declared` lists what the paper's text leaves open and we chose; `corrected` lists its slips and what is
    shown instead. `settings(quick)` are the points to run, each `runs` times (`quick_runs` when in a
    hurry); `measure(setting, seed)` does one run and must depend on nothing else. `compare` and `draw` get
    all rows as a frame: the setting's columns, `run`, and what `measure` returned. `table` is what the
    report prints, if not the means over runs.
    """

    id: str
    paper: str
    item: str
    title: str
    shows: str
    settings: Callable[[bool], Sequence[Setting]]
    measure: Callable[[Setting, int], Sequence[Row]]
    compare: Callable[[pd.DataFrame], Sequence[Comparison]]
    draw: Callable[[pd.DataFrame], Figure]
    runs: int = 1
    quick_runs: int = 1
    data: tuple[str, ...] = ()
    declared: tuple[str, ...] = ()
    corrected: tuple[str, ...] = ()
    table: Callable[[pd.DataFrame], pd.DataFrame] | None = None


@dataclass(frozen=True, slots=True)
class Pending:
    """An experiment that cannot run yet, and what it waits for."""

    id: str
    paper: str
    item: str
    title: str
    waits_for: str
