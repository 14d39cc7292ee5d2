"""Queries are values: they can be listed, batched, priced, refused and logged."""

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
    """A count query: the number of records for each combination of categories.

    Parameters
    ----------
    by : str or iterable of str, optional
        Variables of the table. Without it, one cell: the number of records.
    where : mapping or iterable of pairs, optional
        Category that each of these variables must have.

    Raises
    ------
    SchemaError
        If a variable is named twice or is not text.

    Examples
    --------
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
        """Return True if both ask for the same counts; 1 and true are different categories."""
        return isinstance(other, Query) and self._typed_key() == other._typed_key()

    def __hash__(self) -> int:
        """Return a hash that is equal for equal queries."""
        return hash((self.by, self.where))

    @property
    def names(self) -> tuple[str, ...]:
        """Return all variables of the query."""
        return self.by + tuple(name for name, _ in self.where)

    @property
    def id(self) -> str:
        """Return a SHA-256 digest that identifies the query."""
        text = json.dumps({"by": self.by, "where": self.where}, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def check(self, schema: Schema) -> None:
        """Raise `SchemaError` if a variable or category is not in the schema."""
        for name in self.by:
            schema[name]
        for name, label in self.where:
            schema[name].code(label)

    def _typed_key(self) -> tuple[object, ...]:
        return (self.by, tuple((name, type(label), label) for name, label in self.where))
