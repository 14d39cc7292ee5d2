"""Report codes of large files, read column by column when queries need them."""

from __future__ import annotations

import threading
from collections.abc import Callable, ItemsView, Iterator, Mapping, Sequence, ValuesView
from typing import Any

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.unsignedinteger[Any]]


class LateCodes(Mapping[str, Codes]):
    """Columns of codes by name, each read when a query first needs it.

    `read` takes names of columns and returns their codes, which stay in memory. A pickle contains all
    columns.

    >>> codes = LateCodes(["a", "b"], 2, lambda names: {name: np.zeros(2, np.uint8) for name in names})
    >>> codes["b"].tolist(), codes.is_complete
    ([0, 0], False)
    """

    def __init__(
        self, names: Sequence[str], rows: int, read: Callable[[Sequence[str]], Mapping[str, Codes]]
    ) -> None:
        self._names, self.rows, self._read = tuple(names), rows, read
        self._columns: dict[str, Codes] = {}
        self._lock = threading.Lock()

    @property
    def is_complete(self) -> bool:
        """Return True if all columns were read."""
        return len(self._columns) == len(self._names)

    def load(self, names: Sequence[str]) -> None:
        """Read the columns that were not read before, in one pass."""
        with self._lock:
            missing = [name for name in dict.fromkeys(names) if name not in self._columns]
            if missing:
                self._columns |= self._read(missing)

    def __getitem__(self, name: str) -> Codes:
        """Return a column."""
        if name not in self._columns:
            if name not in self._names:
                raise KeyError(name)
            self.load([name])
        return self._columns[name]

    def __contains__(self, name: object) -> bool:
        """Return True for the name of a column, without reading it."""
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        """Yield the names."""
        return iter(self._names)

    def __len__(self) -> int:
        """Return the number of columns."""
        return len(self._names)

    def items(self) -> ItemsView[str, Codes]:
        """Read all columns and return them with their names."""
        self.load(self._names)
        return super().items()

    def values(self) -> ValuesView[Codes]:
        """Read all columns and return them."""
        self.load(self._names)
        return super().values()

    def __reduce__(self) -> tuple[type[dict[str, Codes]], tuple[dict[str, Codes]]]:
        """Return all columns as a dict: another process may not have the files."""
        return dict, (dict(self.items()),)


def load_columns(columns: Mapping[str, Codes], names: Sequence[str]) -> None:
    """Read the named columns in one pass, unless all columns are in memory anyway."""
    if isinstance(columns, LateCodes):
        columns.load(names)
