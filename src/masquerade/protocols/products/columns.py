"""Indicator columns: what a vertical party multiplies, named so that all parties mean the same."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError
from masquerade.core.schema import Schema
from masquerade.protocols.codec import Words


class Part(NamedTuple):
    """Some variables of one party, in the order of the schema."""

    party: str
    names: tuple[str, ...]


class Columns(NamedTuple):
    """Columns that `holder` has: of its own variables, or its share of the product of several parts' columns.

    Every combination of categories has a column of zeros and ones, except the first: its count follows from
    the others. A product has a column for every combination of its parts' columns, the last part fastest.
    """

    holder: str
    parts: tuple[Part, ...]

    @property
    def is_product(self) -> bool:
        """Tell shares of a product from columns of own variables."""
        return len(self.parts) > 1

    @property
    def id(self) -> bytes:
        """Return a name that no other columns have."""
        return json.dumps([self.holder, self.parts], separators=(",", ":"), ensure_ascii=False).encode()

    @classmethod
    def named(cls, name: bytes) -> Columns:
        """Return the columns of a name; what is no name raises what comes up."""
        holder, parts = json.loads(name)
        columns = cls(holder, tuple(Part(party, tuple(names)) for party, names in parts))
        texts = [holder, *(text for part in columns.parts for text in (part.party, *part.names))]
        if not columns.parts or not all(part.names for part in columns.parts):
            raise ValueError("no columns are named")
        if not all(isinstance(text, str) for text in texts):
            raise TypeError("a name is text")
        return columns


@dataclass(frozen=True, slots=True, eq=False)
class Holding:
    """The columns of one party, row by row in the order that all parties agreed on."""

    schema: Schema
    codes: Mapping[str, NDArray[Any]]
    n: int

    def indicators(self, names: Sequence[str]) -> Words:
        """Return the columns of some variables: (combinations − 1) × rows, zeros and ones."""
        cells = self.cells(names)
        wanted = np.arange(1, prod(self.schema.shape(names)))
        return np.asarray(cells[None, :] == wanted[:, None]).astype(np.uint64)

    def sums(self, names: Sequence[str]) -> Words:
        """Return the sums of the columns: exact counts of own variables."""
        size = prod(self.schema.shape(names))
        return np.bincount(self.cells(names), minlength=size)[1:].astype(np.uint64)

    def cells(self, names: Sequence[str]) -> NDArray[np.int64]:
        """Return which combination every row has."""
        cells = np.zeros(self.n, dtype=np.int64)
        for name, size in zip(names, self.schema.shape(names), strict=True):
            cells = cells * size + self.codes[name]
        return cells


def holding(schema: Schema, codes: Mapping[str, NDArray[Any]]) -> Holding:
    """Return own columns, copied so that nothing can change them; codes outside the schema are refused."""
    if set(codes) != set(schema) or not codes:
        raise InputError("A vertical party needs one column of codes for each of its variables.")
    lengths = {len(column) for column in codes.values()}
    if len(lengths) != 1:
        raise InputError("The columns of a vertical party must be equally long.")
    kept = {}
    for name, column in codes.items():
        if len(column) and not 0 <= int(column.min()) <= int(column.max()) < len(schema[name]):
            raise InputError(f"Column {name!r} has a code that is no category.")
        kept[name] = np.array(column)
        kept[name].flags.writeable = False
    return Holding(schema, kept, lengths.pop())


def held(parts: tuple[Part, ...]) -> tuple[Columns, ...]:
    """Return the shares of the product of some parts: each party of them holds one."""
    return tuple(Columns(part.party, parts) for part in parts)


def width(schema: Schema, parts: Sequence[Part]) -> int:
    """Return how many columns a part, or the product of several, has."""
    return prod(prod(schema.shape(part.names)) - 1 for part in parts)


def counts_from(moments: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return counts from sums of products, axis by axis: place 0 holds the sums without that part's columns.

    Formula: count[0] = moment[0] − Σ moment[i], count[i] = moment[i] for i > 0.
    """
    counts = moments
    for axis in range(moments.ndim):
        moved = np.moveaxis(counts, axis, 0)
        counts = np.moveaxis(
            np.concatenate([moved[:1] - moved[1:].sum(axis=0, keepdims=True), moved[1:]]), 0, axis
        )
    return counts
