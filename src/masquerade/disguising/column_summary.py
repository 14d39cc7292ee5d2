"""Summaries of the columns of a file, from which a policy is drafted."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from masquerade.core.schema import Category, DateReading, category
from masquerade.core.util.formatting import category_text
from masquerade.disguising.draft_bins import NumberSample
from masquerade.disguising.draft_dates import check_dates, is_dates, labels_of_dates
from masquerade.frames.label_codes import Kind, fold_label, kind_of

MOST_CATEGORIES = 50
MOST_DECIMALS = 12  # most distinct numbers with decimals that are drafted as categories
MOST_OTHERS = 12  # most distinct texts among numbers that may represent missing values
# a text seen at most RARE times looks like a typo of a text seen at least OFTEN times, if they are this
# similar
RARE, OFTEN, CLOSE = 2, 20, 0.8
SHORTEST_WORD = 4
# texts, in lower case, that mean an empty cell in most files, and labels of missing answers
EMPTY_MARKS = frozenset(
    {"na", "n/a", "n.a.", "nan", "null", "#n/a", "#null!", ".", "?", "-", "k. a.", "k.a."}
)
MISSING_LABELS = frozenset(
    {"missing", "not stated", "no answer", "not answered", "refused", "not asked", "rather not say",
     "i would rather not say", "prefer not to say", "keine angabe"}
)  # fmt: skip
_NUMBER = r"^[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?$"
_CODE = r"^[+-]?0\d"  # 007 is a code, not a number


@dataclass(frozen=True, slots=True)
class ColumnSummary:
    """Summary of a column for a draft, with at most a few distinct values.

    `values` are the distinct values in order, None if there are more than fifty. `repeats` is True if some
    value occurs twice. `na` are texts that are read as empty cells: marks such as "NA", or the few texts
    among numbers. `recodes` are the texts that look like misspellings of another text. `missing` is True if
    cells are empty or are read as empty. `kinds` are the labels of missing answers, and `missing_rows` counts
    all missing values. `sample` are some of the numbers, in order of size, from the entire file. `date` is
    the reading of dates (as ages, years, quarters or months); without it, `is_date` is True for a column of
    dates.
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
    seen_rows: int = 0
    kinds: tuple[str, ...] = ()
    missing_rows: int = 0
    sample: tuple[float, ...] = ()
    date: DateReading | None = None
    is_date: bool = False

    @property
    def missing_share(self) -> float:
        """Return the share of records without an answer."""
        return self.missing_rows / max(self.seen_rows, 1)

    @property
    def missing_labels(self) -> tuple[str, ...]:
        """Return the missing categories of a draft, the first for an empty cell."""
        if not self.missing:
            return self.kinds
        taken = self.values or ()
        stand_in = next(word for word in ("missing", "(missing)", "((missing))") if word not in taken)
        return tuple(dict.fromkeys([stand_in, *self.kinds]))


@dataclass(slots=True)
class _Column:
    """State of a column while it is read."""

    name: str
    rows: int = 0
    missing: bool = False
    repeats: bool = False
    seen: Counter[Any] | None = field(default_factory=Counter)
    others: set[str] | None = field(default_factory=set)  # texts that are not numbers
    low: float = math.inf
    high: float = -math.inf
    numbers: int = 0
    fractions: bool = False
    kind: Kind = "text"
    all_rows: int = 0
    sample: NumberSample = field(default_factory=NumberSample)
    date: DateReading | None = None
    is_date: bool = True

    def add(self, column: Any, *, text: bool) -> None:
        values = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        self.kind = kind_of(values.type)
        if pa.types.is_floating(values.type):
            values = pc.if_else(pc.is_finite(values), values, None)
        self.missing |= values.null_count > 0
        self.all_rows += len(values)
        values = values.drop_null()
        counts = pc.value_counts(values) if self.kind != "other" else None
        different = values if counts is None else counts.field("values")
        self.rows += len(values)
        self.repeats |= len(different) < len(values)
        self.is_date = self.is_date and is_dates(different)
        if counts is None or not len(values):
            return
        self._measure(different, counts.field("counts"), values, text=text)
        if self.seen is not None:
            few = counts[: MOST_CATEGORIES + 1]
            self.seen.update(
                dict(zip(few.field("values").to_pylist(), few.field("counts").to_pylist(), strict=True))
            )
            if len(self.seen) > MOST_CATEGORIES:
                self.seen = None

    def _measure(self, different: Any, times: Any, values: Any, *, text: bool) -> None:
        """Measure the numbers among values; `times` is how often each of the different values occurs."""
        numbers, count, listed = different, len(values), values
        if self.kind == "text":
            if not text:
                return
            is_number = _numeric(different)
            numbers = different.filter(is_number)
            if self.others is not None:
                self.others.update(different.filter(pc.invert(is_number))[: MOST_OTHERS + 1].to_pylist())
                self.others = None if len(self.others) > MOST_OTHERS else self.others
            if len(numbers) < len(different):
                count = pc.sum(times.filter(is_number), min_count=0).as_py()
                listed = values.filter(_numeric(values)) if count else numbers
        elif self.kind == "truth":
            return
        self.numbers += count
        if len(numbers):
            self.sample.add(listed.cast(pa.float64()).to_numpy(zero_copy_only=False))
            as_floats = numbers.cast(pa.float64())
            ends = pc.min_max(as_floats).as_py()
            self.low, self.high = min(self.low, ends["min"]), max(self.high, ends["max"])
            self.fractions |= pc.any(pc.not_equal(pc.floor(as_floats), as_floats)).as_py()

    def summary(self, *, text: bool, kinds: Sequence[str] = ()) -> ColumnSummary:
        kind, seen = self.kind, self.seen
        if text and kind == "text" and 2 * self.numbers > self.rows and self.others is not None:
            kind, absent, missing_rows = "whole", self.others, self.rows - self.numbers
        else:
            texts = seen or () if kind == "text" else ()
            absent = {value for value in texts if fold_label(value) in EMPTY_MARKS | MISSING_LABELS}
            missing_rows = sum(seen[value] for value in absent) if seen else 0
        seen = None if seen is None else Counter({v: n for v, n in seen.items() if v not in absent})
        named = sorted(value for value in absent if fold_label(value) in MISSING_LABELS)
        na = tuple(sorted(absent.difference(named)))
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
            self.all_rows,
            tuple(dict.fromkeys([*named, *kinds])),
            self.all_rows - self.rows + missing_rows,
            self.sample.values() if kind in {"whole", "number"} else (),
            self.date,
            self.is_date,
        )


def _misspelt(seen: Counter[str]) -> dict[str, tuple[str, ...]]:
    """Return likely misspellings, grouped by the more frequent text that was probably meant.

    They differ from it in case, in white space, or in a few letters.
    """
    found: dict[str, list[str]] = {}
    often = [value for value, _ in seen.most_common()]
    for value in reversed(often):
        # among texts that differ only in case and white space, the most frequent one is taken as correct
        meant = next(other for other in often if fold_label(other) == fold_label(value))
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
    """Return the distinct values in order; whole numbers become integers."""
    if kind == "whole":
        return tuple(sorted({int(float(value)) if "." in str(value) else int(value) for value in seen}))
    return tuple(sorted(seen)) if kind != "number" else _decimals(list(seen))


def _decimals(seen: Sequence[Any]) -> tuple[Category, ...]:
    """Return numbers with decimals as categories; none if there are many, or if one has two spellings."""
    labels = {float(value): category(float(value)) for value in seen}
    spelled = {value for value in seen if isinstance(value, str)}
    known = {form for label in labels.values() for form in (category_text(label), f"{label}.0")}
    if len(labels) > MOST_DECIMALS or not spelled <= known:
        return ()
    return tuple(labels[number] for number in sorted(labels))


def summaries(
    batches: Iterable[pa.RecordBatch],
    *,
    text: bool,
    progress: Callable[[], None] | None = None,
    missing_kinds: Mapping[str, Sequence[str]] | None = None,
    dates: Mapping[str, DateReading] | None = None,
) -> list[ColumnSummary]:
    """Return a summary of every column of a stream of batches, in constant memory.

    `missing_kinds` are the labels of values that the file marks as missing, by column. `dates` is the
    reading of each column of dates.
    """
    columns: dict[str, _Column] = {}
    readings = dates or {}
    for batch in batches:
        check_dates(readings, batch.schema.names)
        for name in batch.schema.names:
            reading = readings.get(name)
            values = batch[name] if reading is None else labels_of_dates(batch[name], reading)
            column = columns.setdefault(name, _Column(name, date=reading))
            column.add(values, text=text or reading is not None)
        if progress is not None:
            progress()
    kinds = missing_kinds or {}
    return [
        column.summary(text=text or column.date is not None, kinds=kinds.get(column.name, ()))
        for column in columns.values()
    ]
