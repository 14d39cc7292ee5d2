"""The columns that one party holds of all records: coded, in the order that all parties agreed on."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError, Refusal, did_you_mean
from masquerade.core.query import Query
from masquerade.core.schema import Schema

Owners = Mapping[str, Sequence[str]]  # who holds which variables


@dataclass(frozen=True, slots=True, eq=False)
class OwnColumns:
    """Columns of codes, copied so that nothing can change them; those `consented` to may be counted."""

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
        """Return the columns that `owners` say a party holds; codes outside the schema are refused."""
        own = Schema([schema[variable] for variable in schema if variable in owners.get(name, ())])
        if set(codes) != set(own) or not codes:
            raise InputError("A vertical party needs one column of codes for each of its variables.")
        lengths = {len(column) for column in codes.values()}
        if len(lengths) != 1:
            raise InputError("The columns of a vertical party must be equally long.")
        kept = {}
        for variable, column in codes.items():
            if len(column) and not 0 <= int(column.min()) <= int(column.max()) < len(own[variable]):
                raise InputError(f"Column {variable!r} has a code that is no category.")
            kept[variable] = np.array(column)
            kept[variable].flags.writeable = False
        return cls(own, kept, lengths.pop(), frozenset(own if variables is None else variables))

    def check(self, names: Sequence[str]) -> None:
        """Refuse names that are none of the party's own in the order of the schema, or not consented to."""
        if not names or tuple(names) != tuple(name for name in self.schema if name in names):
            raise InputError("These are not variables of this party in the order of the schema.")
        if not self.consented.issuperset(names):
            raise InputError("A variable may not be counted here.")

    def refusals(self, queries: Sequence[Query]) -> tuple[Refusal, ...]:
        """Return why questions may not be answered: own variables that the party does not consent to."""
        return tuple(
            Refusal("not_consented", f"{name!r} may not be counted here.", query)
            for query in queries
            for name in query.names
            if name in self.schema and name not in self.consented
        )

    def cells(self, names: Sequence[str]) -> NDArray[np.int64]:
        """Return which combination of categories every row has."""
        cells = np.zeros(self.n, dtype=np.int64)
        for name, size in zip(names, self.schema.shape(names), strict=True):
            cells = cells * size + self.codes[name]
        return cells

    def counts(self, names: Sequence[str]) -> NDArray[np.int64]:
        """Return how many rows have each combination, one after the other."""
        return np.bincount(self.cells(names), minlength=prod(self.schema.shape(names)))

    def indicators(self, names: Sequence[str]) -> NDArray[np.uint64]:
        """Return a column of zeros and ones for every combination but the first, each a row."""
        wanted = np.arange(1, prod(self.schema.shape(names)))
        return np.asarray(self.cells(names)[None, :] == wanted[:, None]).astype(np.uint64)


def check_owners(owners: Owners, schema: Schema, receiver: str) -> None:
    """Refuse owners that do not share out the variables, and a receiver who could undo the projection."""
    if not isinstance(owners, Mapping) or any(isinstance(names, str) for names in owners.values()):
        raise InputError("'owners' must map the name of every owner to a list of variables.")
    if receiver in owners:
        raise InputError(
            f"{receiver!r} cannot be the receiver and an owner: to project its own columns it must know the "
            "random matrix, and then it can undo the projection of everybody else's. A third party is needed."
        )
    if len(owners) < 2:
        raise InputError("A projection needs at least two owners; counts of one alone need none.")
    listed = [name for names in owners.values() for name in names]
    for name in listed:
        if name not in schema:
            raise InputError(f"An owner holds {name!r}, which is no variable.{did_you_mean(name, schema)}")
        if listed.count(name) > 1:
            raise InputError(f"Variable {name!r} is listed twice: it needs one owner.")
    for party, names in owners.items():
        if not names:
            raise InputError(f"Owner {party!r} holds no variable.")
    left = [name for name in schema if name not in listed]
    if left:
        raise InputError(f"Nobody owns {', '.join(map(repr, left))}: every variable needs an owner.")
