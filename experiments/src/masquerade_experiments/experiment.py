"""Experiments of papers: what to run, the numbers of the paper, and how to draw the result.

Every experiment is one module with one `EXPERIMENT`; it uses the public interface of the library only.
A *setting* is a combination of values of the parameters that the paper varies. `measure` does one seeded run
at one setting and returns rows of plain numbers. Runs are independent, so they can be distributed over
processes and resumed after an interruption.
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
MOST_STANDARD_ERRORS = 4.0  # largest accepted distance of our value from the paper's, in standard errors
SHOWN_BY = 2.0  # standard errors beyond the bound that confirm or refute a claim; otherwise it is undecided

# The rule for the number of runs, the same for every experiment and fixed before any result was seen.
RUNS_IF_NOT_PRINTED = 20  # if the paper states no number of runs
RAISED = 4  # factor by which the number of runs is raised, once, for experiments that stay undecided


def mean_square_stderr(values: int) -> float:
    """Return the error of a mean of squared standard normal values, for judging by `MOST_STANDARD_ERRORS`.

    A value that is `MOST_STANDARD_ERRORS` of these errors above 1 is as unlikely as a normal value that many
    standard errors above its mean. Reference: Wilson & Hilferty (1931), the cube root is nearly normal.

    >>> round(mean_square_stderr(18), 2)
    0.48
    """
    spread = math.sqrt(2 / (9 * values))
    return float(((1 - spread**2 + MOST_STANDARD_ERRORS * spread) ** 3 - 1) / MOST_STANDARD_ERRORS)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A number of the paper, and our number.

    `kind` is the origin of the paper's number.

    - "printed number": the paper prints the value.
    - "printed formula": a formula or theorem of the paper gives it, for the data and networks used here.
    - "claim as read": a sentence of the paper that gives no value. `read_as` quotes it and states the
      threshold that we chose for it.
    - "own count": operations or bytes that our code counts, compared with what the protocol implies.

    `stderr` is the standard error of our number over the runs (0 if nothing is random, nan for a single run),
    `paper_stderr` the standard error of the paper's number if it can be computed. `reading` is the largest
    rounding error of a printed number. The rules "at most" and "at least" are bounds that may be attained;
    "below" and "above" are claims of a difference, which a difference of exactly 0 refutes. `why` explains
    an expected difference and was written before the runs; `check` is a command that shows the reason.
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
        """Return the difference beyond the rounding error, in the direction that contradicts the paper.

        It is negative if a claim holds.
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
        """Return the verdict: whether our number agrees with the paper, differs, or is undecided.

        A value agrees within the rounding error plus four combined standard errors. A claim is confirmed if
        our number is on the claimed side of the bound by two standard errors, refuted if it is on the other
        side by two, and otherwise undecided. Without a standard error, "at most" and "at least" may be
        attained exactly, "below" and "above" may not. A single run has no standard error: a value then agrees
        within the rounding error and is otherwise undecided.
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
        """Return whether a claim is confirmed, refuted or undecided."""
        if self.combined == 0:
            kept = excess < -rounding if self.rule in {"below", "above"} else excess <= rounding
            return "matches" if kept else "differs"
        if excess <= rounding - SHOWN_BY * self.combined:
            return "matches"
        return "undecided" if excess < SHOWN_BY * self.combined else "differs"


@dataclass(frozen=True, slots=True)
class Experiment:
    """One table or figure of a paper.

    `declared` lists our choices where the paper's text leaves something open; `corrected` lists errors in the
    paper and what is shown instead. `settings(quick)` returns the settings, each of which is run `runs` times
    (`quick_runs` with ``--quick``). `measure(setting, seed)` does one run and must depend on nothing else.
    `compare` and `draw` receive all rows as a frame: the setting's columns, `run`, and the columns that
    `measure` returned. `table` returns the table of the report; by default the means over runs.

    `printed_runs` is the number of runs that the paper states, or None. `is_random` is False if nothing is
    drawn. `runs` follows from both by one rule. `repeats` is the id of the experiment whose results the paper
    prints again here: this experiment uses the same rows and is not counted a second time.
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
        """Return the number of runs: as the paper states, or else `RUNS_IF_NOT_PRINTED`."""
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
