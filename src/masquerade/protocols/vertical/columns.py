"""Columns of parties that hold different variables, in an order of records that all parties agreed on.

A party converts its codes to indicator columns, whose names mean the same for all parties. Sums of products
of indicators are counts.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError, Refusal, did_you_mean
from masquerade.core.guarantee import Guarantee
from masquerade.core.query import Query
from masquerade.core.schema import Schema
from masquerade.core.util.json_text import parse_json
from masquerade.protocols.wire.codec import SESSION_SIZE
from masquerade.protocols.wire.session import Transport, agreement_of, propose

Owners = Mapping[str, Sequence[str]]  # variables by owner


@dataclass(frozen=True, slots=True, eq=False)
class OwnColumns:
    """A copy of a party's columns of codes; the variables in `consented` may be counted."""

    schema: Schema
    codes: Mapping[str, NDArray[Any]]
    n: int
    consented: frozenset[str]

    @classmethod
    def of(
        cls,
        name: str,
        codes: Mapping[str, NDArray[Any]],
        schema: Schema,
        owners: Owners,
        variables: Collection[str] | None = None,
    ) -> OwnColumns:
        """Return a party's columns according to `owners`; raise InputError for a code outside the schema."""
        own = Schema([schema[variable] for variable in schema if variable in owners.get(name, ())])
        if set(codes) != set(own) or not codes:
            raise InputError("A vertical party needs one column of codes for each of its variables.")
        lengths = {len(column) for column in codes.values()}
        if len(lengths) != 1:
            raise InputError("The columns of a vertical party must be equally long.")
        kept = {}
        for variable, column in codes.items():
            if len(column) and not 0 <= int(column.min()) <= int(column.max()) < len(own[variable]):
                raise InputError(f"Column {variable!r} has a code that is not a category.")
            kept[variable] = np.array(column)
            kept[variable].flags.writeable = False
        return cls(own, kept, lengths.pop(), frozenset(own if variables is None else variables))

    def check(self, names: Sequence[str]) -> None:
        """Raise an error unless the names are the party's own, in schema order, and consented to."""
        if not names or tuple(names) != tuple(name for name in self.schema if name in names):
            raise InputError("These are not variables of this party in the order of the schema.")
        if not self.consented.issuperset(names):
            raise InputError("A variable may not be counted here.")

    def refusals(self, queries: Sequence[Query]) -> tuple[Refusal, ...]:
        """Return the refusals of queries about variables that the party does not consent to."""
        return tuple(
            Refusal("not_consented", f"{name!r} may not be counted here.", query)
            for query in queries
            for name in query.names
            if name in self.schema and name not in self.consented
        )

    def cells(self, names: Sequence[str]) -> NDArray[np.int64]:
        """Return the index of every row's combination of categories."""
        cells = np.zeros(self.n, dtype=np.int64)
        for name, size in zip(names, self.schema.shape(names), strict=True):
            cells = cells * size + self.codes[name]
        return cells

    def counts(self, names: Sequence[str]) -> NDArray[np.int64]:
        """Return the number of rows of each combination, in order."""
        return np.bincount(self.cells(names), minlength=prod(self.schema.shape(names)))

    def indicators(self, names: Sequence[str]) -> NDArray[np.uint64]:
        """Return the indicators of every combination but the first, as an array with one row for each."""
        wanted = np.arange(1, prod(self.schema.shape(names)))
        return np.asarray(self.cells(names)[None, :] == wanted[:, None]).astype(np.uint64)


def check_owners(owners: Owners, schema: Schema, receiver: str) -> None:
    """Raise InputError unless the owners partition the variables, and the receiver is not an owner."""
    if not isinstance(owners, Mapping) or any(isinstance(names, str) for names in owners.values()):
        raise InputError("'owners' must map the name of every owner to a list of variables.")
    if receiver in owners:
        raise InputError(
            f"{receiver!r} cannot be the receiver and an owner: to project its own columns it must know the "
            "random matrix, and then it can undo the projection of other columns. A third party is needed."
        )
    if len(owners) < 2:
        raise InputError(
            "A projection needs at least two owners; counts of one owner alone need no projection."
        )
    listed = [name for names in owners.values() for name in names]
    for name in listed:
        if name not in schema:
            raise InputError(f"An owner has {name!r}, which is not a variable.{did_you_mean(name, schema)}")
        if listed.count(name) > 1:
            raise InputError(f"Variable {name!r} is listed twice: it needs one owner.")
    for party, names in owners.items():
        if not names:
            raise InputError(f"Owner {party!r} holds no variable.")
    left = [name for name in schema if name not in listed]
    if left:
        raise InputError(f"No party owns {', '.join(map(repr, left))}: every variable needs an owner.")


class ColumnPart(NamedTuple):
    """Some variables of one party, in the order of the schema."""

    party: str
    names: tuple[str, ...]


class Columns(NamedTuple):
    """Columns of `holder`: of its own variables, or its share of the product of several parts' columns.

    Every combination of categories has a column of zeros and ones, except the first: its count follows from
    the others. A product has a column for every combination of its parts' columns, the last part
    varying fastest.
    """

    holder: str
    parts: tuple[ColumnPart, ...]

    @property
    def is_product(self) -> bool:
        """Return True for shares of a product, False for columns of the holder's variables."""
        return len(self.parts) > 1

    @property
    def id(self) -> bytes:
        """Return a name that is unique to these columns."""
        return json.dumps([self.holder, self.parts], separators=(",", ":"), ensure_ascii=False).encode()

    @classmethod
    def from_name(cls, name: bytes) -> Columns:
        """Return the columns of a name; an invalid name raises."""
        holder, parts = parse_json(name)
        columns = cls(holder, tuple(ColumnPart(party, tuple(names)) for party, names in parts))
        texts = [holder, *(text for part in columns.parts for text in (part.party, *part.names))]
        if not columns.parts or not all(part.names for part in columns.parts):
            raise ValueError("no columns are named")
        if not all(isinstance(text, str) for text in texts):
            raise TypeError("a name is text")
        return columns


def shares_of(parts: tuple[ColumnPart, ...]) -> tuple[Columns, ...]:
    """Return the shares of the product of some parts, one per party."""
    return tuple(Columns(part.party, parts) for part in parts)


def width(schema: Schema, parts: Sequence[ColumnPart]) -> int:
    """Return the number of columns of a part, or of the product of several."""
    return prod(prod(schema.shape(part.names)) - 1 for part in parts)


class Products(ABC):
    """A protocol for sums of products of several parties' columns, run by the party that queries."""

    def __init__(
        self, owners: Owners, schema: Schema, n: int, transport: Transport, asked: Sequence[str]
    ) -> None:
        self.owners, self.schema, self.n = owners, schema, n
        self.session = os.urandom(SESSION_SIZE)
        self._transport, self._asked, self._round = transport, asked, 0
        self._known: dict[tuple[ColumnPart, ...], NDArray[np.int64]] = {}

    @abstractmethod
    def refusals(self, parts: Sequence[ColumnPart]) -> list[Refusal]:
        """Return the reasons why sums over these parts are refused; has no side effects."""

    @abstractmethod
    def guarantee(self) -> Guarantee:
        """Return the disclosures."""

    @abstractmethod
    def _joint(self, parts: tuple[ColumnPart, ...]) -> NDArray[np.int64]:
        """Return the sums of products of one column of each part, with one axis per part."""

    def propose(self, queries: Sequence[Query]) -> None:
        """Raise `QueryRefused` unless all parties consent; by then no party has sent an answer."""
        self._round += 1
        propose(self._transport, self._asked, self.session, self._round, queries)

    def moments(self, parts: tuple[ColumnPart, ...]) -> NDArray[np.int64]:
        """Return sums of products of columns: at most one from each part, chosen in every possible way.

        The result has one axis per part. Index 0 of an axis means that no column of the part is chosen. A
        variable of one category has no columns.
        """
        moments = np.empty([width(self.schema, [part]) + 1 for part in parts], dtype=np.int64)
        for count in range(len(parts) + 1):
            for chosen in combinations(range(len(parts)), count):
                index = tuple(slice(1, None) if i in chosen else 0 for i in range(len(parts)))
                if moments[index].size:
                    moments[index] = self._joint(tuple(parts[i] for i in chosen)) if chosen else self.n
        return moments


def counts_from(moments: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return counts from sums of products, axis by axis; index 0 has the sums without that part's columns.

    Formula: count[0] = moment[0] − Σ moment[i], count[i] = moment[i] for i > 0.
    """
    counts = moments
    for axis in range(moments.ndim):
        moved = np.moveaxis(counts, axis, 0)
        counts = np.moveaxis(
            np.concatenate([moved[:1] - moved[1:].sum(axis=0, keepdims=True), moved[1:]]), 0, axis
        )
    return counts


def product_agreement(schema: Schema, owners: Owners, helper: str, n: int, alignment: bytes) -> bytes:
    """Return the agreement of all members: variables, owners, helper, records and their order."""
    shared = json.dumps({party: list(names) for party, names in owners.items()}, sort_keys=True)
    return agreement_of("vertical counts", Policy.clear(schema).id, shared, helper, str(n), alignment.hex())
