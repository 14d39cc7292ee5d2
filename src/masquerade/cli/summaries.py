"""What a policy draft needs to know of columns, gathered in one pass over batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from masquerade.core.schema import Category
from masquerade.disguising.policy_draft import MOST_CATEGORIES, ColumnSummary, Kind

_NUMBER = r"^[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?$"
_CODE = r"^[+-]?0\d"  # 007 is a code, not a number


@dataclass(slots=True)
class _Column:
    """A column while it is read."""

    name: str
    rows: int = 0
    missing: bool = False
    repeats: bool = False
    seen: dict[Any, None] | None = field(default_factory=dict)
    low: float = math.inf
    high: float = -math.inf
    numbers: int = 0
    fractions: bool = False
    kind: Kind = "text"

    def add(self, column: Any, *, text: bool) -> None:
        """Take in the rows of a batch."""
        values = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        self.kind = kind_of(values.type)
        if pa.types.is_floating(values.type):
            values = pc.if_else(pc.is_finite(values), values, None)
        self.missing |= values.null_count > 0
        values = values.drop_null()
        different = pc.unique(values) if self.kind != "other" else values
        self.rows += len(values)
        self.repeats |= len(different) < len(values)
        if self.kind == "other" or not len(values):
            return
        self._measure(different, values, text=text)
        if self.seen is not None:
            self.seen |= dict.fromkeys(different[: MOST_CATEGORIES + 1].to_pylist())
            if len(self.seen) > MOST_CATEGORIES:
                self.seen = None

    def _measure(self, different: Any, values: Any, *, text: bool) -> None:
        numbers, count = different, len(values)
        if self.kind == "text":
            if not text:
                return
            is_number = numeric(different)
            numbers = different.filter(is_number)
            count = len(values) if len(numbers) == len(different) else pc.sum(numeric(values)).as_py()
        elif self.kind == "truth":
            return
        self.numbers += count
        if len(numbers):
            as_floats = numbers.cast(pa.float64())
            ends = pc.min_max(as_floats).as_py()
            self.low, self.high = min(self.low, ends["min"]), max(self.high, ends["max"])
            self.fractions |= pc.any(pc.not_equal(pc.floor(as_floats), as_floats)).as_py()

    def summary(self, *, text: bool) -> ColumnSummary:
        """Return what was found."""
        kind = self.kind
        if kind == "number" or (text and kind == "text" and self.rows and self.numbers == self.rows):
            kind = "number" if self.fractions else "whole"
        values = None if self.seen is None else sorted_labels(self.seen, kind)
        if text and values and {str(value).lower() for value in values} <= {"true", "false"}:
            kind, values = "truth", tuple(sorted({str(value).lower() == "true" for value in values}))
        mixed = text and kind == "text" and 2 * self.numbers > self.rows
        return ColumnSummary(
            self.name, kind, self.rows, self.missing, values, self.repeats, self.low, self.high, mixed
        )


def numeric(values: Any) -> Any:
    """Tell which texts are numbers."""
    return pc.and_(
        pc.match_substring_regex(values, _NUMBER), pc.invert(pc.match_substring_regex(values, _CODE))
    )


def kind_of(kind: pa.DataType) -> Kind:
    """Return what a column of an Arrow type holds."""
    types = pa.types
    if types.is_boolean(kind):
        return "truth"
    if types.is_integer(kind):
        return "whole"
    if types.is_floating(kind):
        return "number"
    texts = (types.is_string, types.is_large_string, types.is_string_view)
    return "text" if any(is_text(kind) for is_text in texts) else "other"


def sorted_labels(seen: Iterable[Any], kind: Kind) -> tuple[Category, ...]:
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
