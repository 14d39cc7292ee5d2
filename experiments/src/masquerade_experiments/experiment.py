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
Origin = Literal["paper", "theory"]
Verdict = Literal["matches", "differs", "undecided", "no figure to compare"]

MOST_STANDARD_ERRORS = 4.0  # that ours may be from a value of the paper
SHOWN_BY = 2.0  # standard errors by which a claim holds or fails; between them nothing is shown


@dataclass(frozen=True, slots=True)
class Comparison:
    """One figure of the paper beside ours.

    `origin` tells where the value beside ours comes from: printed in the paper (a value or a claim of its
    text), or worked out from its theorems for the data and networks that stand in for lost ones. `stderr` is
    the standard error of ours over the runs (0 where nothing is random, nan from one run alone),
    `paper_stderr` that of the paper's own figure where it can be worked out. `reading` is how far a value
    read off a printed figure, or rounded in print, can be from what was meant. With the rules "at most" and
    "at least" the value is a bound: a claim, which holds if ours keeps it by more than chance explains. `why`
    explains a difference that is expected, before it is seen, and `check` is a command that shows the reason.
    """

    what: str
    paper: float | None
    ours: float
    stderr: float = 0.0
    paper_stderr: float = 0.0
    reading: float = 0.0
    rule: Rule = "equal"
    why: str = ""
    check: str = ""
    origin: Origin = "paper"

    @property
    def combined(self) -> float:
        """Return the standard error of the difference."""
        return math.hypot(self.stderr, self.paper_stderr)

    @property
    def excess(self) -> float | None:
        """Return by how much ours is off in the direction that counts, beyond the reading error.

        A claim that is kept has a negative one.
        """
        if self.paper is None:
            return None
        gap = self.ours - self.paper
        if self.rule == "equal":
            return max(abs(gap) - self.reading, 0.0)
        return (gap if self.rule == "at most" else -gap) - self.reading

    @property
    def z(self) -> float | None:
        """Return the difference in combined standard errors; None without a value or an error."""
        if self.paper is None or not self.combined > 0:
            return None
        return (self.ours - self.paper) / self.combined

    @property
    def verdict(self) -> Verdict:
        """Return whether ours agrees.

        A value: within the reading error and four combined standard errors. A claim: on the right side of
        the bound by two standard errors it is shown, on the wrong side by as many it is refuted, and between
        them the runs tell neither. One run has no error: within the reading a value agrees, else it tells
        neither.
        """
        if self.excess is None:
            return "no figure to compare"
        rounding = 1e-12 * max(1.0, abs(self.ours))
        if math.isnan(self.combined) and not math.isnan(self.ours):
            return "matches" if self.rule == "equal" and self.excess <= rounding else "undecided"
        if self.rule == "equal" or self.combined == 0:
            allowed = MOST_STANDARD_ERRORS * self.combined
            return "matches" if self.excess <= allowed + rounding else "differs"
        if self.excess <= rounding - SHOWN_BY * self.combined:
            return "matches"
        return "undecided" if self.excess < SHOWN_BY * self.combined else "differs"


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
