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

    >>> Query(by=("c",), where={"a": 3})
    Query(by=('c',), where=(('a', 3),))
    """

    by: tuple[str, ...]
    where: tuple[tuple[str, Category], ...]

    def __init__(self, by: Iterable[str] | str = (), where: Conditions = ()) -> None:
        names = (by,) if isinstance(by, str) else tuple(by)
        pairs = list(where.items() if isinstance(where, Mapping) else where)
        conditions = tuple(sorted((str(name), category(label)) for name, label in pairs))
        asked = [*names, *(name for name, _ in conditions)]
        for name in asked:
            if asked.count(name) > 1:
                raise SchemaError(f"Variable {name!r} is named twice in one query.")
        object.__setattr__(self, "by", names)
        object.__setattr__(self, "where", conditions)

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
