"""Experiments of papers: what to run, the numbers of the paper, and how to draw the result.

Every experiment is one module with one `EXPERIMENT`; it uses the public interface of the library only.
A *setting* is one point of what the paper varies; `measure` does one seeded run at one setting and returns
rows of plain figures. Runs are independent, so they can be spread over processes and taken up again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Value = str | int | float | bool | None
Setting = Mapping[str, Value]
Row = Mapping[str, Value]
Rule = Literal["equal", "at most", "at least", "below", "above"]
Kind = Literal["printed number", "printed formula", "claim as read", "own count"]
Verdict = Literal["matches", "differs", "undecided", "no figure to compare"]

KINDS: tuple[Kind, ...] = get_args(Kind)
MOST_STANDARD_ERRORS = 4.0  # that ours may be from a value of the paper
SHOWN_BY = 2.0  # standard errors by which a claim holds or fails; between them nothing is shown

# The rule for the number of runs, the same for every experiment and fixed before any of them was looked at.
RUNS_IF_NOT_PRINTED = 20  # where the paper prints no number of runs
RAISED = 4  # times as many runs, once, for every experiment that those leave undecided


def mean_square_stderr(values: int) -> float:
    """Return the error of a mean of squared standard normal values, for judging by `MOST_STANDARD_ERRORS`.

    A value that many errors above 1 is as rare as that many standard errors of a normal value. Wilson &
    Hilferty (1931): the cube root is nearly normal.

    >>> round(mean_square_stderr(18), 2)
    0.48
    """
    spread = math.sqrt(2 / (9 * values))
    return float(((1 - spread**2 + MOST_STANDARD_ERRORS * spread) ** 3 - 1) / MOST_STANDARD_ERRORS)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One figure of the paper, and ours.

    `kind` names where the value beside ours comes from.

    - "printed number": the paper prints the value.
    - "printed formula": a formula or theorem of the paper gives it, for the data and networks used here.
    - "claim as read": a sentence of the paper gives no value. `read_as` quotes it and states the threshold
      by which we read it.
    - "own count": operations that our code counts, compared with what the protocol implies.

    `stderr` is the standard error of ours over the runs (0 where nothing is random, nan from one run alone),
    `paper_stderr` that of the paper's own figure where it can be worked out. `reading` is how far a printed
    number can be from what was meant, by rounding alone. The rules "at most" and "at least" are bounds that
    may be attained; "below" and "above" are claims of a difference, which a gap of exactly 0 refutes. `why`
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
    kind: Kind = "printed number"
    read_as: str = ""

    @property
    def combined(self) -> float:
        """Return the standard error of the difference."""
        return math.hypot(self.stderr, self.paper_stderr)

    @property
    def excess(self) -> float | None:
        """Return the difference in the direction that counts, beyond the reading error.

        A claim that is kept has a negative one.
        """
        if self.paper is None:
            return None
        gap = self.ours - self.paper
        if self.rule == "equal":
            return max(abs(gap) - self.reading, 0.0) if not math.isnan(gap) else gap
        return (gap if self.rule in {"at most", "below"} else -gap) - self.reading

    @property
    def z(self) -> float | None:
        """Return the difference in combined standard errors; None without a value or an error."""
        if self.paper is None or not self.combined > 0:
            return None
        return (self.ours - self.paper) / self.combined

    @property
    def verdict(self) -> Verdict:
        """Return True if ours agrees.

        A value: within the reading error and four combined standard errors. A claim: on the right side of
        the bound by two standard errors it is shown, on the wrong side by as many it is refuted, and between
        them the runs show neither. Without an error, "at most" and "at least" may be attained exactly;
        "below" and "above" may not. One run has no error: within the reading a value agrees, else it shows
        neither.
        """
        if self.excess is None:
            return "no figure to compare"
        if not math.isfinite(self.ours):
            return "differs"
        rounding = 1e-12 * max(1.0, abs(self.ours))
        if math.isnan(self.combined):
            return "matches" if self.rule == "equal" and self.excess <= rounding else "undecided"
        if self.rule == "equal":
            allowed = MOST_STANDARD_ERRORS * self.combined
            return "matches" if self.excess <= allowed + rounding else "differs"
        return self._claim_verdict(self.excess, rounding)

    def _claim_verdict(self, excess: float, rounding: float) -> Verdict:
        """Return whether a claim is shown, refuted or neither."""
        if self.combined == 0:
            kept = excess < -rounding if self.rule in {"below", "above"} else excess <= rounding
            return "matches" if kept else "differs"
        if excess <= rounding - SHOWN_BY * self.combined:
            return "matches"
        return "undecided" if excess < SHOWN_BY * self.combined else "differs"


@dataclass(frozen=True, slots=True)
class Experiment:
    """One table or figure of a paper.

    `declared` lists what the paper's text leaves open and we chose; `corrected` lists its slips and what is
    shown instead. `settings(quick)` are the points to run, each `runs` times (`quick_runs` when in a
    hurry); `measure(setting, seed)` does one run and must depend on nothing else. `compare` and `draw` get
    all rows as a frame: the setting's columns, `run`, and what `measure` returned. `table` is what the
    report prints, if not the means over runs.

    `printed_runs` is the number of runs that the paper prints, None where it prints none; `is_random` is
    False where nothing is drawn. `runs` follows from both by one rule. `repeats` is the id of the experiment
    that this one prints again: it uses the same rows and is not counted a second time.
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
    printed_runs: int | None = None
    is_random: bool = True
    quick_runs: int = 1
    data: tuple[str, ...] = ()
    declared: tuple[str, ...] = ()
    corrected: tuple[str, ...] = ()
    table: Callable[[pd.DataFrame], pd.DataFrame] | None = None
    repeats: str = ""

    @property
    def runs(self) -> int:
        """Return the number of runs: the paper's, or the same number for all where it prints none."""
        if not self.is_random:
            return 1
        return RUNS_IF_NOT_PRINTED if self.printed_runs is None else self.printed_runs


@dataclass(frozen=True, slots=True)
class Pending:
    """An experiment that cannot run yet, and the reason."""

    id: str
    paper: str
    item: str
    title: str
    waits_for: str
