"""What came out of an experiment: its rows, how they compare with the paper, and the verdict."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from masquerade_experiments.experiment import Comparison, Experiment, Pending
from masquerade_experiments.wording import NONE, figure, with_error

if TYPE_CHECKING:
    import pandas as pd

Overall = Literal[
    "matches", "agrees with theory", "undecided", "differs", "nothing to compare", "pending", "not run"
]
OVERALL: tuple[Overall, ...] = get_args(Overall)


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure in three forms: SVG to stand in a page, an SVG file, a PNG file."""

    inline: str
    svg: bytes
    png: bytes


@dataclass(frozen=True, slots=True, eq=False)
class Findings:
    """What an experiment gave: all rows, comparisons, a table to print, its picture, and what it took."""

    frame: pd.DataFrame
    comparisons: tuple[Comparison, ...]
    table: pd.DataFrame
    picture: Picture
    settings: int
    runs: int
    seed: int  # of the first run
    seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """An experiment with its findings, or with the reason why there are none."""

    about: Experiment | Pending
    findings: Findings | None = None
    reason: str = ""

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """Return the comparisons, none if it did not run."""
        return () if self.findings is None else self.findings.comparisons

    @property
    def verdict(self) -> Overall:
        """Return the verdict over all comparisons: one that differs is enough to differ.

        Without anything printed that matches, agreement is with theory alone.
        """
        if isinstance(self.about, Pending):
            return "pending"
        if self.findings is None:
            return "not run"
        found = verdicts(self.comparisons)
        for verdict in ("differs", "undecided"):
            if found[verdict]:
                return verdict
        if not found["matches"]:
            return "nothing to compare"
        printed = verdicts(item for item in self.comparisons if item.origin == "paper")
        return "matches" if printed["matches"] else "agrees with theory"

    @property
    def counts(self) -> str:
        """Return how many comparisons match, in words: those with print, then those with theory."""
        parts = []
        for origin, word in (("paper", ""), ("theory", "theory ")):
            found = verdicts(item for item in self.comparisons if item.origin == origin)
            judged = found["matches"] + found["differs"] + found["undecided"]
            if judged:
                parts.append(f"{word}{found['matches']} of {judged}")
        return ", ".join(parts) or NONE

    @property
    def whys(self) -> tuple[str, ...]:
        """Return what explains the differences."""
        return tuple(dict.fromkeys(why(item) for item in self.comparisons if item.verdict == "differs"))


def why(comparison: Comparison) -> str:
    """Return what explains a difference and which command shows it, or that nothing does."""
    if not comparison.why:
        return "This was not expected, and nothing explains it."
    return comparison.why + (f" Check: {comparison.check}" if comparison.check else "")


def verdicts(comparisons: Iterable[Comparison]) -> Counter[str]:
    """Return how many comparisons have each verdict."""
    return Counter(item.verdict for item in comparisons)


def overall(outcomes: Sequence[Outcome]) -> dict[Overall, int]:
    """Return how many experiments have each verdict, those that occur."""
    found = Counter(outcome.verdict for outcome in outcomes)
    return {verdict: found[verdict] for verdict in OVERALL if found[verdict]}


def overall_text(outcomes: Sequence[Outcome]) -> str:
    """Return the same as a sentence."""
    words = {
        "matches": "match",
        "agrees with theory": "agree with theory",
        "differs": "differ",
        "nothing to compare": "with nothing to compare",
    }
    single = words | {name: name for name in ("matches", "agrees with theory", "differs")}
    parts = [
        f"{n} {(single if n == 1 else words).get(verdict, verdict)}"
        for verdict, n in overall(outcomes).items()
    ]
    number = f"{len(outcomes)} experiment{'' if len(outcomes) == 1 else 's'}"
    return f"{number}: {', '.join(parts)}."


def comparison_values(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as plain values; what is no finite number becomes None."""
    values: dict[str, Any] = {
        "what": comparison.what,
        "origin": comparison.origin,
        "rule": comparison.rule,
        "paper": comparison.paper,
        "paper_stderr": comparison.paper_stderr,
        "reading": comparison.reading,
        "ours": comparison.ours,
        "stderr": comparison.stderr,
        "difference": None if comparison.paper is None else comparison.ours - comparison.paper,
        "standard_errors": comparison.z,
        "verdict": comparison.verdict,
        "why": comparison.why,
        "check": comparison.check,
    }
    return {name: finite(value) for name, value in values.items()}


def finite(value: Any) -> Any:
    """Return a value as JSON can hold it."""
    if isinstance(value, (str, type(None))):
        return value
    return float(value) if math.isfinite(value) else None


def outcome_values(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as plain values."""
    values: dict[str, Any] = {
        "id": outcome.about.id,
        "paper": outcome.about.paper,
        "item": outcome.about.item,
        "title": outcome.about.title,
        "verdict": outcome.verdict,
        "reason": outcome.reason,
    }
    if outcome.findings is not None:
        values |= {
            "settings": outcome.findings.settings,
            "runs": outcome.findings.runs,
            "seed": outcome.findings.seed,
            "seconds": round(outcome.findings.seconds, 3),
            "comparisons": [comparison_values(item) for item in outcome.comparisons],
        }
    return values


def means(frame: pd.DataFrame, settings: Sequence[str]) -> pd.DataFrame:
    """Return the means over runs as text, with their standard errors where there are several runs.

    Rows are told apart by the columns of the setting and by those that hold texts or truths.
    """
    keys, numbers = [], []
    for name in frame.columns:
        if name in settings or not is_number(frame[name]):
            keys.append(name)
        elif name != "run":
            numbers.append(name)
    if not keys:
        frame, keys = frame.assign(runs="all"), ["runs"]
    grouped = frame.groupby(keys, sort=False, dropna=False)
    table = grouped[numbers].mean().astype(object)
    errors, several = grouped[numbers].sem(), grouped["run"].nunique() > 1
    for name in numbers:
        table[name] = [
            with_error(mean, error) if many else figure(mean)
            for mean, error, many in zip(table[name], errors[name], several, strict=True)
        ]
    return table.reset_index()


def is_number(column: pd.Series[Any]) -> bool:
    """Return whether a column holds numbers, truths not among them."""
    from pandas.api.types import is_bool_dtype, is_numeric_dtype  # noqa: PLC0415

    return bool(is_numeric_dtype(column) and not is_bool_dtype(column))


def table_cells(table: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Return the head and the rows of a table as text."""
    if table.index.names != [None]:
        table = table.reset_index()
    head = [str(name) for name in table.columns]
    return head, [[cell(value) for value in row] for row in table.itertuples(index=False, name=None)]


def cell(value: Any) -> str:
    """Return one value as text."""
    if value is None:
        return NONE
    if isinstance(value, str):
        return value
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, bool):
        return "yes" if value else "no"
    return figure(value) if isinstance(value, float) else str(value)
