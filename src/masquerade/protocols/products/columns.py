"""Indicator columns: what a vertical party multiplies, named so that all parties mean the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import combinations
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from masquerade.core.schema import Schema


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


def shares_of(parts: tuple[Part, ...]) -> tuple[Columns, ...]:
    """Return the shares of the product of some parts: each party of them holds one."""
    return tuple(Columns(part.party, parts) for part in parts)


def width(schema: Schema, parts: Sequence[Part]) -> int:
    """Return how many columns a part, or the product of several, has."""
    return prod(prod(schema.shape(part.names)) - 1 for part in parts)


def moments_of(
    schema: Schema, n: int, parts: Sequence[Part], joint: Callable[[tuple[Part, ...]], NDArray[Any]]
) -> NDArray[np.int64]:
    """Return the sums of products of every choice of one column, or none, of each part.

    `joint` gives those of one column of each of some parts; a variable of one category has no columns.
    """
    moments = np.empty([width(schema, [part]) + 1 for part in parts], dtype=np.int64)
    for count in range(len(parts) + 1):
        for chosen in combinations(range(len(parts)), count):
            index = tuple(slice(1, None) if i in chosen else 0 for i in range(len(parts)))
            if moments[index].size:
                moments[index] = joint(tuple(parts[i] for i in chosen)) if chosen else n
    return moments


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
