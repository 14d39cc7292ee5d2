"""A batch of tables to be counted in one round, and the votes of one record for it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.crypto.errors import DecodingError
from masquerade.protocols.codec import Reader, Writer

MOST_COUNTS = 1 << 16
MOST_TABLES = 1 << 16
Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True, order=True)
class Table:
    """The cells of some columns, among records with given codes; columns are numbered as in the schema."""

    columns: tuple[int, ...]
    where: tuple[tuple[int, int], ...] = ()

    def shape(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """Return the numbers of categories."""
        return tuple(sizes[column] for column in self.columns)

    def covers(self, other: Table) -> bool:
        """Tell whether the other table can be read off this one by selecting and summing."""
        if not set(self.where) <= set(other.where):
            return False
        further = {column for column, _ in set(other.where).difference(self.where)}
        return further.union(other.columns) <= set(self.columns)

    def read(self, cells: Counts, other: Table) -> Counts:
        """Return the cells of a table that this one covers."""
        given = dict(other.where)
        index = tuple(given.get(column, slice(None)) for column in self.columns)
        left = [column for column in self.columns if column not in given]
        gone = tuple(i for i, column in enumerate(left) if column not in other.columns)
        summed: Counts = np.asarray(cells[index]).sum(axis=gone)
        return summed


@dataclass(frozen=True)
class Batch:
    """Tables over coded columns with given numbers of categories; a vote is one cell of every table."""

    tables: tuple[Table, ...]
    sizes: tuple[int, ...]

    @cached_property
    def length(self) -> int:
        """Return the number of counts."""
        return sum(prod(table.shape(self.sizes)) for table in self.tables)

    @cached_property
    def hash(self) -> bytes:
        """Return the sha256 of what is asked."""
        return hashlib.sha256(b"masquerade aggregation batch" + self.encode()).digest()

    def encode(self) -> bytes:
        """Return the batch as bytes."""
        writer = Writer()
        writer.number(len(self.tables), 3)
        for table in self.tables:
            writer.number(len(table.columns), 2)
            writer.number(len(table.where), 2)
            for column in table.columns:
                writer.number(column, 2)
            for column, code in table.where:
                writer.number(column, 2)
                writer.number(code, 4)
        return writer.done()

    @classmethod
    def decode(cls, data: bytes, sizes: Sequence[int]) -> Batch:
        """Return the batch of some bytes about columns of these sizes; there is one spelling only."""
        reader = Reader(data)
        tables = []
        length = 0
        for _ in range(reader.number(3, MOST_TABLES)):
            columns, given = reader.number(2, len(sizes)), reader.number(2, len(sizes))
            table = Table(
                tuple([reader.number(2) for _ in range(columns)]),
                tuple([(reader.number(2), reader.number(4)) for _ in range(given)]),
            )
            check_table(table, sizes)
            length += prod(table.shape(sizes))
            if length > MOST_COUNTS:
                raise DecodingError(f"A batch has at most {MOST_COUNTS:,} counts.")
            tables.append(table)
        reader.done()
        if not tables or any(not first < second for first, second in pairwise(tables)):
            raise DecodingError("The tables of a batch stand in order, none twice.")
        return cls(tuple(tables), tuple(sizes))

    def vote(self, codes: Sequence[int], width: np.dtype[Any]) -> NDArray[Any]:
        """Return the vector of one record: a one in its cell of every table whose conditions it meets."""
        vector = np.zeros(self.length, dtype=width)
        start = 0
        for table in self.tables:
            cell, cells = 0, 1
            for column in table.columns:
                cell = cell * self.sizes[column] + codes[column]
                cells *= self.sizes[column]
            if all(codes[column] == code for column, code in table.where):
                vector[start + cell] = 1
            start += cells
        return vector

    def split(self, counts: Counts) -> dict[Table, Counts]:
        """Return the tables that a vector of counts is made of."""
        found = {}
        start = 0
        for table in self.tables:
            shape = table.shape(self.sizes)
            found[table] = counts[start : start + prod(shape)].reshape(shape)
            start += prod(shape)
        return found


def check_table(table: Table, sizes: Sequence[int]) -> None:
    """Refuse a table that is not spelt in its one way."""
    given = [column for column, _ in table.where]
    for listed in (list(table.columns), given):
        if any(column >= len(sizes) for column in listed) or listed != sorted(set(listed)):
            raise DecodingError("The columns of a table are known, in ascending order, none twice.")
    if set(given) & set(table.columns) or any(code >= sizes[column] for column, code in table.where):
        raise DecodingError("The conditions of a table name other columns and codes that exist.")


def smallest_cover(wanted: Iterable[Table], sizes: Sequence[int]) -> tuple[Table, ...]:
    """Return the tables from which all wanted ones can be read, those that others cover left out."""
    kept: list[Table] = []
    for table in sorted(
        set(wanted), key=lambda table: (-prod(table.shape(sizes)), -len(table.columns), table)
    ):
        if not any(other.covers(table) for other in kept):
            kept.append(table)
    return tuple(sorted(kept))


def found_in(known: Mapping[Table, Counts], table: Table) -> Counts | None:
    """Return the cells of a table if some known one covers it."""
    if table in known:
        return known[table]
    for other, cells in known.items():
        if other.covers(table):
            return other.read(cells, table)
    return None
