"""Draft a policy from clear data: it lists what was seen and leaves every decision to a person.

Categories come from the policy, never silently from data: a draft is refused until it has been edited.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from difflib import get_close_matches
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import yaml

from masquerade.channels.designs import bin_labels
from masquerade.core.errors import InputError
from masquerade.core.schema import Category
from masquerade.frames.label_codes import Kind, folded, kind_of

MOST_CATEGORIES = 50
LONGEST_LABEL = 80
FEW = 5  # so few different values may all differ by chance
MANY_ROWS = 1000
BINS = 10
MOST_OTHERS = 12  # different texts among numbers that may stand for missing ones
RARE, OFTEN, CLOSE = 2, 20, 0.8  # so rarely seen, a text so close to one so often seen looks like a slip
SHORTEST_WORD = 4
_IDENTIFIER = re.compile(
    r"(?:^|[\W_])(?:id|ids|uuid|guid|ssn|iban|passport|e-?mail|phone|mobile|address|street|name|surname|"
    r"(?:first|last|full|user)_?name|nachname|vorname|kennung|telefon|adresse|stra(?:ss|ß)e)(?:$|[\W_])",
    re.IGNORECASE,
)
_NUMBER = r"^[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?$"
_CODE = r"^[+-]?0\d"  # 007 is a code, not a number

REFUSED = "masquerade refuses it until every DECIDE below is settled."
SETTLE = "Settle every DECIDE below before it is used."
HEADER = f"""\
# A policy drafted from data. {REFUSED}
#
# For each variable somebody has to decide:
#  1. Are these all the categories that may ever occur? Only those that were seen are listed, and that they
#     were seen already tells something: give the full code list of the variable instead.
#  2. Is it sensitive, and which guarantee does it need? Put a channel in place of {{kind: decide}}, such as
#       channel: {{kind: for_gamma, gamma: 19}}      # no belief of 5% can rise above 50%
#       channel: {{kind: symmetric, p: 0.3}}         # kept with 70%, else any other category alike
#     or remove the 'channel' line: then the variable is released as it is.
#  3. Is it needed at all? Remove what nobody will count: every variable adds to what a record gives away.
#
# Afterwards: masquerade policy check FILE, masquerade privacy FILE.
"""


@dataclass(frozen=True, slots=True)
class ColumnSummary:
    """What a draft needs to know of a column: never more than a few different values.

    `values` are the different ones in order, None if there are more than fifty; `repeats` tells whether
    some value occurs twice; `na` are the few texts among numbers, `recodes` the texts that look like
    misspellings of another.
    """

    name: str
    kind: Kind
    rows: int
    missing: bool
    values: tuple[Category, ...] | None
    repeats: bool
    low: float = math.nan
    high: float = math.nan
    na: tuple[str, ...] = ()
    recodes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(slots=True)
class _Column:
    """A column while it is read."""

    name: str
    rows: int = 0
    missing: bool = False
    repeats: bool = False
    seen: Counter[Any] | None = field(default_factory=Counter)
    others: set[str] | None = field(default_factory=set)  # texts that are no numbers
    low: float = math.inf
    high: float = -math.inf
    numbers: int = 0
    fractions: bool = False
    kind: Kind = "text"

    def add(self, column: Any, *, text: bool) -> None:
        values = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        self.kind = kind_of(values.type)
        if pa.types.is_floating(values.type):
            values = pc.if_else(pc.is_finite(values), values, None)
        self.missing |= values.null_count > 0
        values = values.drop_null()
        counts = pc.value_counts(values) if self.kind != "other" else None
        different = values if counts is None else counts.field("values")
        self.rows += len(values)
        self.repeats |= len(different) < len(values)
        if counts is None or not len(values):
            return
        self._measure(different, values, text=text)
        if self.seen is not None:
            few = counts[: MOST_CATEGORIES + 1]
            self.seen.update(
                dict(zip(few.field("values").to_pylist(), few.field("counts").to_pylist(), strict=True))
            )
            if len(self.seen) > MOST_CATEGORIES:
                self.seen = None

    def _measure(self, different: Any, values: Any, *, text: bool) -> None:
        numbers, count = different, len(values)
        if self.kind == "text":
            if not text:
                return
            is_number = _numeric(different)
            numbers = different.filter(is_number)
            if self.others is not None:
                self.others.update(different.filter(pc.invert(is_number))[: MOST_OTHERS + 1].to_pylist())
                self.others = None if len(self.others) > MOST_OTHERS else self.others
            count = len(values) if len(numbers) == len(different) else pc.sum(_numeric(values)).as_py()
        elif self.kind == "truth":
            return
        self.numbers += count
        if len(numbers):
            as_floats = numbers.cast(pa.float64())
            ends = pc.min_max(as_floats).as_py()
            self.low, self.high = min(self.low, ends["min"]), max(self.high, ends["max"])
            self.fractions |= pc.any(pc.not_equal(pc.floor(as_floats), as_floats)).as_py()

    def summary(self, *, text: bool) -> ColumnSummary:
        kind, seen, na = self.kind, self.seen, tuple[str, ...]()
        if text and kind == "text" and 2 * self.numbers > self.rows and self.others is not None:
            kind, na = "whole", tuple(sorted(self.others))
            seen = None if seen is None else Counter({v: n for v, n in seen.items() if v not in self.others})
        if kind in {"whole", "number"} and (text or kind == "number"):
            kind = "number" if self.fractions else "whole"
        recodes = _misspelt(seen) if kind == "text" and seen is not None else {}
        kept = [] if seen is None else [v for v in seen if not any(v in worse for worse in recodes.values())]
        values = None if seen is None else _sorted_labels(kept, kind)
        if text and values and {str(value).lower() for value in values} <= {"true", "false"}:
            kind, values = "truth", tuple(sorted({str(value).lower() == "true" for value in values}))
            recodes = {}
        return ColumnSummary(
            self.name,
            kind,
            self.rows,
            self.missing or bool(na),
            values,
            self.repeats,
            self.low,
            self.high,
            na,
            recodes,
        )


def _misspelt(seen: Counter[str]) -> dict[str, tuple[str, ...]]:
    """Return the texts that look like another, far more frequent one: by capitals, blanks, or a letter."""
    found: dict[str, list[str]] = {}
    often = [value for value, _ in seen.most_common()]
    for value in reversed(often):
        # the most frequent of those that differ in capitals and blanks only is what was meant
        meant = next(other for other in often if folded(other) == folded(value))
        if meant == value and len(value) >= SHORTEST_WORD and seen[value] <= RARE:
            near = get_close_matches(value, [other for other in often if seen[other] >= OFTEN], 1, CLOSE)
            meant = near[0] if near else value
        if meant != value:
            found.setdefault(meant, []).append(value)
    return {meant: tuple(sorted(worse)) for meant, worse in sorted(found.items())}


def _numeric(values: Any) -> Any:
    return pc.and_(
        pc.match_substring_regex(values, _NUMBER), pc.invert(pc.match_substring_regex(values, _CODE))
    )


def _sorted_labels(seen: Iterable[Any], kind: Kind) -> tuple[Category, ...]:
    """Return the different values in order, whole numbers as such."""
    if kind == "whole":
        return tuple(sorted({int(float(value)) if "." in str(value) else int(value) for value in seen}))
    return tuple(sorted(seen)) if kind != "number" else ()


def summaries(
    batches: Iterable[pa.RecordBatch], *, text: bool, progress: Callable[[], None] | None = None
) -> list[ColumnSummary]:
    """Return a summary of every column of a stream of batches; memory does not grow with it."""
    columns: dict[str, _Column] = {}
    for batch in batches:
        for name in batch.schema.names:
            columns.setdefault(name, _Column(name)).add(batch[name], text=text)
        if progress is not None:
            progress()
    return [column.summary(text=text) for column in columns.values()]


def draft(
    columns: Sequence[ColumnSummary],
    epsilon: float | None = None,
    *,
    per: str = "variable",
    groups: Mapping[str, Sequence[float]] | None = None,
) -> str:
    """Return a policy in YAML that says what is still to be decided, for the columns that are variables.

    With `epsilon` every variable has a symmetric channel with this ε, or with an even share of it if it is
    for a whole record. `groups` are cut points of numbers that were grouped already, such as by MGAS.
    """
    known = groups or {}
    left_out = {
        column.name: why for column in columns if column.name not in known and (why := reason_against(column))
    }
    chosen = [column for column in columns if column.name not in left_out]
    if not chosen:
        why = "; ".join(f"{name}: {reason}" for name, reason in list(left_out.items())[:3])
        raise InputError(
            f"No column can be drafted as a variable ({why})."
            if why
            else "The data have no records to draft from."
        )
    header, channel = HEADER, ["# DECIDE: which guarantee it needs", "channel: {kind: decide}"]
    if epsilon is not None:
        share = epsilon / (len(chosen) if per == "record" else 1)
        spent = f"{math.floor(share * 1e6 + 1e-7) / 1e6:.6f}".rstrip("0").rstrip(".")
        whose = "an even share of the record's" if per == "record" else "of this variable"
        channel = [
            f"# ε {whose}; masquerade plan finds better",
            f"channel: {{kind: for_epsilon, epsilon: {spent}}}",
        ]
        header = header.replace(REFUSED, SETTLE)
    lines = [header, "masquerade: 1", "variables:"]
    for column in chosen:
        rows = [*entry(column, known.get(column.name)), *channel]
        lines += [f"  {quoted(column.name, key=True)}:", *(f"    {line}" for line in rows)]
    if left_out:
        lines += ["", "# Left out (a released record has none of these):"]
        lines += [f"#   {quoted(name, key=True)}: {reason}" for name, reason in left_out.items()]
    return "\n".join(lines) + "\n"


def reason_against(column: ColumnSummary) -> str:
    """Say why a column is no variable; nothing if it is one."""
    several = column.values is None or len(column.values) > FEW
    no_repeat = several and not column.repeats
    constant = column.values is not None and len(column.values) == 1
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", column.name)
    by_kind = {"text": _against_text, "whole": _against_numbers, "number": _against_numbers}
    reasons = (
        (column.rows == 0, "has no values"),
        (column.kind == "other", "dates, lists and the like: turn it into text or numbers first"),
        (_IDENTIFIER.search(words) is not None, "looks like an identifier by its name"),
        (constant, "has one value only: it tells nothing"),
    )
    found = next((reason for holds, reason in reasons if holds), "")
    return found or (by_kind[column.kind](column, no_repeat=no_repeat) if column.kind in by_kind else "")


def _against_text(column: ColumnSummary, *, no_repeat: bool) -> str:
    if column.values is None:
        return f"more than {MOST_CATEGORIES} different texts; if it is a code, list all its categories"
    if max(len(str(value)) for value in column.values) > LONGEST_LABEL:
        return "looks like free text"
    return "no text occurs twice: looks like names or free text" if no_repeat else ""


def _against_numbers(column: ColumnSummary, *, no_repeat: bool) -> str:
    dense = column.high - column.low < 2 * column.rows
    if column.kind == "whole" and no_repeat and (dense or column.rows >= MANY_ROWS):
        return "no number occurs twice: looks like an identifier"
    labels = bin_labels(list(map(float, cut_points(column.low, column.high)))) if _binned(column) else ()
    if len(set(labels)) < len(labels):
        return "the range is too narrow for its size: shift or scale the numbers first"
    return ""


def _binned(column: ColumnSummary) -> bool:
    if column.kind == "number":
        return True
    several = column.values is None or len(column.values) > FEW
    return column.kind == "whole" and (column.values is None or (several and not column.repeats))


def entry(column: ColumnSummary, groups: Sequence[float] | None = None) -> list[str]:
    """Return the lines that say how a variable is read; `groups` are its cut points, if they are known."""
    lines = []
    if groups is not None or _binned(column):
        if groups is None:
            cuts = cut_points(column.low, column.high)
        else:
            cuts = [Decimal(repr(edge)) for edge in groups]
            lines.append("# grouped by MGAS from these data: the cut points tell something of them")
        lines.append("# DECIDE: cut points; a number outside them is refused, so cover all that may occur")
        lines.append(f"bins: [{', '.join(map(plain, cuts))}]")
        if column.missing:
            lines.append(
                "# DECIDE: some values are missing; they become one more category (else they are refused)"
            )
            lines.append('missing: "missing"')
    else:
        labels = list(column.values or ())
        stand_in = _missing_label(labels)
        lines.append("# DECIDE: all categories that may occur, not only those seen")
        lines.append(
            f"categories: [{', '.join(map(quoted, [*labels, stand_in] if column.missing else labels))}]"
        )
        if column.kind == "whole" and len(labels) > BINS:
            edges = ", ".join(map(plain, cut_points(column.low, column.high)))
            lines.append(f"# or, as a number, in place of the categories:  bins: [{edges}]")
        if column.missing:
            lines.append(
                "# DECIDE: some values are missing; they become this category (else they are refused)"
            )
            lines.append(f"missing: {quoted(stand_in)}")
    if column.na:
        lines.append("# DECIDE: these texts stand among numbers; they are read as missing")
        lines.append(f"na: [{', '.join(map(quoted, column.na))}]")
    if column.recodes:
        lines.append("# DECIDE: these look like slips of the pen; they are read as the category before them")
        lines.append("recode:")
        for label, worse in column.recodes.items():
            lines.append(f"  {quoted(label)}: [{', '.join(map(quoted, worse))}]")
    return lines


def _missing_label(labels: Sequence[Category]) -> Category:
    """Return a category for missing values that is not taken, of the same type where there is one."""
    if all(type(label) is int for label in labels):
        return min(-1, min(int(label) for label in labels) - 1)
    return next(word for word in ("missing", "(missing)", "((missing))") if word not in labels)


def cut_points(low: float, high: float) -> list[Decimal]:
    """Return about ten round, equally wide bins that cover a range.

    >>> [plain(edge) for edge in cut_points(18, 93)]
    ['10', '20', '30', '40', '50', '60', '70', '80', '90', '100']
    """
    wanted = Decimal(repr((high - low) / BINS))
    unit = Decimal(1).scaleb(wanted.adjusted())
    step = next(unit * times for times in (1, 2, 5, 10) if unit * times >= wanted)
    first = math.floor(Decimal(repr(low)) / step)
    last = max(math.ceil(Decimal(repr(high)) / step), first + 1)
    return [step * place for place in range(first, last + 1)]


def plain(edge: Decimal) -> str:
    """Return a cut point without exponent or trailing zeros."""
    shown = f"{edge:f}"
    return shown.rstrip("0").rstrip(".") if "." in shown else shown


def quoted(label: Category, *, key: bool = False) -> str:
    """Return a label, or a name, as YAML text on one line."""
    if not isinstance(label, str):
        return str(label).lower()
    if (
        key
        and re.fullmatch(r"[A-Za-z_]\w*", label, re.ASCII)
        and label.lower() not in {"true", "false", "null"}
    ):
        return label
    return str(yaml.safe_dump(label, default_style='"', allow_unicode=True, width=math.inf)).strip()
