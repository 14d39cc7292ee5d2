"""A count is a value: it can be listed, batched, priced, refused and logged."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from masquerade.core.errors import SchemaError
from masquerade.core.schema import Category, Schema, category

if TYPE_CHECKING:
    Conditions = Mapping[str, Category] | Iterable[tuple[str, Category]]


@dataclass(frozen=True, slots=True, init=False)
class Query:
    """How many records have each combination of `by`, among those that satisfy `where`?

    >>> mq.Query(by="pills", where={"exams": "many"})
    Query(by=('pills',), where=(('exams', 'many'),))
    """

    by: tuple[str, ...]
    where: tuple[tuple[str, Category], ...]

    def __init__(self, by: Iterable[str] | str = (), where: Conditions = ()) -> None:
        names = (by,) if isinstance(by, str) else tuple(by)
        pairs = where.items() if isinstance(where, Mapping) else where
        conditions = tuple(
            sorted([(name, category(label)) for name, label in pairs], key=lambda pair: str(pair[0]))
            if pairs
            else ()
        )
        asked = [*names, *[name for name, _ in conditions]] if conditions else names
        for place, name in enumerate(asked):
            if not isinstance(name, str):
                raise SchemaError(f"A query names variables by text. Got a {type(name).__name__} instead.")
            if name in asked[:place]:
                raise SchemaError(f"Variable {name!r} is named twice in one query.")
        object.__setattr__(self, "by", names)
        object.__setattr__(self, "where", conditions)

    def __eq__(self, other: object) -> bool:
        """Two queries are equal if they ask the same, by type too (1 is not true)."""
        return isinstance(other, Query) and self._typed() == other._typed()

    def __hash__(self) -> int:
        """Hash by what is asked; equal queries have equal hashes."""
        return hash((self.by, self.where))

    @property
    def names(self) -> tuple[str, ...]:
        """Return every variable that the query touches."""
        return self.by + tuple(name for name, _ in self.where)

    @property
    def id(self) -> str:
        """Return a sha256 that identifies the question, whoever asks it."""
        text = json.dumps({"by": self.by, "where": self.where}, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def check(self, schema: Schema) -> None:
        """Raise a `SchemaError` if a variable or category is not in the schema."""
        for name in self.by:
            schema[name]
        for name, label in self.where:
            schema[name].code(label)

    def _typed(self) -> tuple[object, ...]:
        return (self.by, tuple((name, type(label), label) for name, label in self.where))
