"""Secret counts of families of variables held by several owners; every family is masked and counted once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError
from masquerade.protocols.mpc.engine import SecretEngine, Steps

Family = tuple[str, ...]  # variables, sorted


@dataclass(frozen=True, eq=False)
class HiddenColumns:
    """All variables, their numbers of categories and owners, and the codes held by this party."""

    sizes: Mapping[str, int]
    owners: Mapping[str, str]
    codes: Mapping[str, NDArray[Any]]
    n: int

    def __post_init__(self) -> None:
        if set(self.sizes) != set(self.owners):
            raise InputError("Every variable has an owner and a number of categories.")
        for name, column in self.codes.items():
            if len(column) != self.n:
                raise InputError(f"Variable {name!r} has {len(column):,} records, but there are {self.n:,}.")
            if self.n and not 0 <= int(column.min()) <= int(column.max()) < self.sizes[name]:
                raise InputError(f"Variable {name!r} has a code outside its categories.")

    def width(self, family: Family) -> int:
        """Return the number of cells of a family."""
        return prod(self.sizes[name] for name in family)

    def cell(self, family: Family) -> NDArray[np.int64]:
        """Return the cell of every record in a family whose variables this party holds."""
        place = np.zeros(self.n, dtype=np.int64)
        for name in family:
            place = place * self.sizes[name] + self.codes[name]
        return place


class FamilyCounts:
    """Requests counts of families from an engine; nothing is masked or counted twice."""

    def __init__(self, engine: SecretEngine[Any], columns: HiddenColumns) -> None:
        self._engine, self._columns = engine, columns
        self._lines: dict[tuple[Family, ...], Any] = {}  # key: the variables of each owner
        self._known: dict[Family, Any] = {}

    def cells(self, families: Sequence[Family]) -> Steps[dict[Family, Any]]:
        """Return every family's counts as one secret vector, its last variable varying fastest."""
        fresh = [family for family in dict.fromkeys(families) if family not in self._known]
        parts = {family: self._by_owner(family) for family in fresh}
        yield from self._share_local_counts([family for family in fresh if len(parts[family]) == 1])
        together = [family for family in fresh if len(parts[family]) > 1]
        yield from self._form([parts[family][:-1] for family in together])
        pairs = [
            (self._lines_of(parts[family][:-1]), self._lines_of(parts[family][-1:])) for family in together
        ]
        counted = yield from self._engine.counts(pairs)
        for family, matrix in zip(together, counted, strict=True):
            stands = [name for part in parts[family] for name in part]
            shape = [self._columns.sizes[name] for name in stands]
            axes = [stands.index(name) for name in family]
            places = np.arange(prod(shape)).reshape(shape).transpose(axes).ravel()
            self._known[family] = self._engine.stack([matrix])[places]
        return {family: self._known[family] for family in families}

    def _by_owner(self, family: Family) -> tuple[Family, ...]:
        """Split a family by the owners of its variables, in the order of the parties."""
        owners = self._columns.owners
        found = [tuple(name for name in family if owners[name] == party) for party in self._engine.parties]
        return tuple(part for part in found if part)

    def _share_local_counts(self, families: Sequence[Family]) -> Steps[None]:
        """Share the counts of families with a single owner, which counts them itself."""
        columns, engine = self._columns, self._engine
        for party in engine.parties:
            own = [family for family in families if columns.owners[family[0]] == party]
            if not own:
                continue
            values = None
            if party == engine.name:
                counts = [np.bincount(columns.cell(f), minlength=columns.width(f)) for f in own]
                values = np.concatenate(counts).astype(np.int64)
            widths = [columns.width(family) for family in own]
            secret = yield from engine.share(party, values, (sum(widths),))
            for family, end, width in zip(own, np.cumsum(widths), widths, strict=True):
                self._known[family] = secret[np.arange(end - width, end)]

    def _form(self, products: Sequence[tuple[Family, ...]]) -> Steps[None]:
        """Multiply the indicators of three or more owners, one owner at a time."""
        for count in range(2, max(map(len, products), default=0) + 1):
            wanted = [parts[:count] for parts in products if len(parts) >= count]
            fresh = [parts for parts in dict.fromkeys(wanted) if parts not in self._lines]
            pairs = [(self._lines_of(parts[:-1]), self._lines_of(parts[-1:])) for parts in fresh]
            formed = yield from self._engine.cross(pairs)
            self._lines.update(zip(fresh, formed, strict=True))

    def _lines_of(self, parts: tuple[Family, ...]) -> Any:
        """Return the handle of a product, or of one owner's indicators."""
        if parts not in self._lines:
            columns = self._columns
            [family] = parts
            owner, width = columns.owners[family[0]], columns.width(family)
            lines = None
            if owner == self._engine.name:
                lines = (columns.cell(family)[None, :] == np.arange(width)[:, None]).astype(np.uint8)
            self._lines[parts] = self._engine.indicators(owner, lines, (width, columns.n))
        return self._lines[parts]
