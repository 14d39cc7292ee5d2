"""Outcomes of experiments: rows, comparisons with the paper, and verdicts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from masquerade_experiments.experiment import KINDS, Comparison, Experiment, Kind, Pending
from masquerade_experiments.wording import NONE, figure, with_error

if TYPE_CHECKING:
    import pandas as pd

Overall = Literal[
    "matches printed numbers",
    "matches a printed formula",
    "keeps claims as read",
    "agrees by our own count",
    "undecided",
    "differs",
    "nothing to compare",
    "pending",
    "not run",
]
OVERALL: tuple[Overall, ...] = get_args(Overall)
AGREES: dict[Kind, Overall] = {
    "printed number": "matches printed numbers",
    "printed formula": "matches a printed formula",
    "claim as read": "keeps claims as read",
    "own count": "agrees by our own count",
}
SEVERAL: dict[Kind, str] = {
    "printed number": "printed numbers",
    "printed formula": "values of printed formulas",
    "claim as read": "claims as read",
    "own count": "own counts",
}


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure in three formats: SVG for a page, an SVG file, a PNG file."""

    inline: str
    svg: bytes
    png: bytes


@dataclass(frozen=True, slots=True, eq=False)
class Findings:
    """Results of an experiment: all rows, comparisons, a table to print, the figure, and the cost."""

    frame: pd.DataFrame
    comparisons: tuple[Comparison, ...]
    table: pd.DataFrame
    picture: Picture
    settings: int
    runs: int
    seed: int  # seed of the first run
    seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """An experiment with its findings, or with the reason why it has no findings."""

    about: Experiment | Pending
    findings: Findings | None = None
    reason: str = ""

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """Return the comparisons; empty if the experiment did not run."""
        return () if self.findings is None else self.findings.comparisons

    @property
    def verdict(self) -> Overall:
        """Return the verdict over all comparisons: one difference is enough for "differs".

        If all comparisons agree, the verdict names the strongest kind of value that was compared. `counts`
        lists all kinds.
        """
        if isinstance(self.about, Pending):
            return "pending"
        if self.findings is None:
            return "not run"
        found = verdicts(self.comparisons)
        for verdict in ("differs", "undecided"):
            if found[verdict]:
                return verdict
        kinds = {item.kind for item in self.comparisons if item.verdict == "matches"}
        return next((AGREES[kind] for kind in KINDS if kind in kinds), "nothing to compare")

    @property
    def counts(self) -> str:
        """Return the number of matching comparisons of each kind, as text."""
        return ", ".join(kind_text(kind, *pair) for kind, pair in kinds_of([self]).items()) or NONE

    @property
    def whys(self) -> tuple[str, ...]:
        """Return the explanations of the differences."""
        return tuple(dict.fromkeys(why(item) for item in self.comparisons if item.verdict == "differs"))


def why(comparison: Comparison) -> str:
    """Return the explanation of a difference and a command that shows it, or a default text."""
    if not comparison.why:
        return "This was not expected, and nothing explains it."
    return comparison.why + (f" Check: {comparison.check}" if comparison.check else "")


def verdicts(comparisons: Iterable[Comparison]) -> Counter[str]:
    """Return the number of comparisons with each verdict."""
    return Counter(item.verdict for item in comparisons)


def overall(outcomes: Sequence[Outcome]) -> dict[Overall, int]:
    """Return the number of experiments with each verdict that occurs."""
    found = Counter(outcome.verdict for outcome in outcomes)
    return {verdict: found[verdict] for verdict in OVERALL if found[verdict]}


def counted_once(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return the outcomes, omitting repetitions of other experiments."""
    there = {outcome.about.id for outcome in outcomes}
    return [
        outcome
        for outcome in outcomes
        if not (isinstance(outcome.about, Experiment) and outcome.about.repeats in there)
    ]


def kinds_of(outcomes: Sequence[Outcome]) -> dict[Kind, tuple[int, int]]:
    """Return the numbers of matching and of judged values of every kind."""
    found: dict[Kind, tuple[int, int]] = {}
    for kind in KINDS:
        counts = verdicts(it for outcome in outcomes for it in outcome.comparisons if it.kind == kind)
        judged = counts["matches"] + counts["differs"] + counts["undecided"]
        if judged:
            found[kind] = (counts["matches"], judged)
    return found


def kind_text(kind: Kind, matching: int, judged: int) -> str:
    """Return the number of matching values of a kind, as text.

    >>> kind_text("printed number", 3, 4), kind_text("own count", 1, 1)
    ('3 of 4 printed numbers', '1 of 1 own count')
    """
    return f"{matching} of {judged} {kind if judged == 1 else SEVERAL[kind]}"


def overall_text(outcomes: Sequence[Outcome]) -> str:
    """Return the numbers of experiments by verdict and of matching values by kind, as text."""
    once = counted_once(outcomes)
    return headline(overall(once), kinds_of(once), len(outcomes) - len(once))


def headline(found: Mapping[Overall, int], kinds: Mapping[Kind, tuple[int, int]], again: int) -> str:
    """Return the number of experiments with each verdict, and of the matching values of each kind.

    `again` is the number of experiments that repeat another one.
    """
    plural = {
        "matches printed numbers": "match printed numbers",
        "matches a printed formula": "match a printed formula",
        "keeps claims as read": "keep claims as read",
        "agrees by our own count": "agree by our own count",
        "differs": "differ",
        "nothing to compare": "with nothing to compare",
    }
    parts = [f"{n} {verdict if n == 1 else plural.get(verdict, verdict)}" for verdict, n in found.items()]
    total = sum(found.values())
    number = f"{total} experiment{'' if total == 1 else 's'}"
    repeated = f", {again} more {'repeats' if again == 1 else 'repeat'} one of them" if again else ""
    texts = "; ".join(kind_text(kind, *pair) for kind, pair in kinds.items())
    return f"{number}{repeated}: {', '.join(parts)}." + (f" Values: {texts}." if texts else "")


def comparison_values(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as plain values; numbers that are not finite become None."""
    values: dict[str, Any] = {
        "what": comparison.what,
        "kind": comparison.kind,
        "read_as": comparison.read_as,
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
    """Return a value that JSON can represent."""
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
        "repeats": outcome.about.repeats if isinstance(outcome.about, Experiment) else "",
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

    Rows are distinguished by the columns of the setting and by columns of texts or booleans.
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
    """Return True if a column contains numbers other than booleans."""
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
