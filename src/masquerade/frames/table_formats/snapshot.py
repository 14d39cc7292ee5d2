"""One version of a table of many files: which files it has, and how their columns form the table's columns.

Metadata of a table are untrusted: a path in them must be that of a regular file within the table's folder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from masquerade.core.errors import FileError

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
FIELD_ID: Final = b"PARQUET:field_id"


@dataclass(frozen=True)
class TableFile:
    """A data file, and the values of the columns that are the same in all its rows (partitions)."""

    path: str
    values: Mapping[str, Any]


@dataclass
class TableVersion:
    """The files of one version of a table, and the columns of the table by name and type.

    `ids` are the field ids of the columns, by which Iceberg finds them in a file; without them columns are
    found by name. `stored_ids` are the field ids of columns in files that state none. `defaults` are the
    values of a column in files that were written before it was added.
    """

    title: str
    given: tuple[str, ...]
    schema: pa.Schema
    files: Sequence[TableFile]
    ids: Mapping[str, int] | None = None
    stored_ids: Mapping[str, int] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    _stored: dict[str, dict[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise FileError if there is no file, or if a file is listed twice."""
        if not self.files:
            raise FileError(f"{self.title}: it has no records.")
        self._values = {file.path: file.values for file in self.files}
        if len(self._values) < len(self.files):
            raise FileError(f"{self.title}: a file is listed twice, so its records would be counted twice.")

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the paths of the files."""
        return tuple(self._values)

    @property
    def is_plain(self) -> bool:
        """Return True if every file has all columns under their names, and no others."""
        names = set(self.schema.names)
        return all(
            stored.keys() == names and all(name == inner for name, inner in stored.items())
            for stored in self._stored.values()
        )

    def extend(
        self, path: str, names: Sequence[str], schema: pa.Schema | None
    ) -> tuple[tuple[str, ...], pa.Schema | None]:
        """Return names and types of the table's columns as a file has them."""
        values = self._values[path]
        stored = self._find(path, names, schema)
        if self.ids is None:  # the log of Delta states the values, whatever the file has
            stored = {name: inner for name, inner in stored.items() if name not in values}
        self._stored[path] = stored
        if schema is None:
            raise FileError(f"{path}: a table's files are Parquet files.")
        fields = [
            pa.field(one.name, schema.field(stored[one.name]).type) if one.name in stored else one
            for one in self.schema
        ]
        return tuple(self.schema.names), pa.schema(fields)

    def _find(self, path: str, names: Sequence[str], schema: pa.Schema | None) -> dict[str, str]:
        """Return the name in a file of each of the table's columns that the file has."""
        if self.ids is None or schema is None:
            return {name: name for name in self.schema.names if name in names}
        by_id: dict[int, str] = {}
        for one in schema:
            text = (one.metadata or {}).get(FIELD_ID)
            number = int(text) if text is not None and text.isdigit() else None
            if number is not None:
                by_id[number] = one.name
        if not by_id:
            by_id = {number: name for name, number in self.stored_ids.items() if name in names}
        if not by_id:
            raise FileError(
                f"{path}: its columns have no field ids, and the table's metadata have no names for them."
            )
        return {name: by_id[number] for name, number in self.ids.items() if number in by_id}

    def file_columns(self, path: str, selected: Sequence[str], names: Sequence[str]) -> list[str]:
        """Return the columns to read from a file, at least one: a batch without columns has no rows."""
        stored = self._stored[path]
        return [stored[name] for name in selected if name in stored] or list(names[:1])

    def add_to(self, batch: pa.RecordBatch, path: str, selected: Sequence[str]) -> pa.RecordBatch:
        """Return a batch of a file with the selected columns of the table."""
        stored, values = self._stored[path], self._values[path]
        columns = [
            batch[stored[name]]
            if name in stored
            else _repeat(values.get(name, self.defaults.get(name)), self.schema.field(name).type, len(batch))
            for name in selected
        ]
        return pa.RecordBatch.from_arrays(columns, names=list(selected))


def _repeat(value: Any, kind: pa.DataType, rows: int) -> pa.Array:
    return pa.nulls(rows, kind) if value is None else pa.repeat(pa.scalar(value, kind), rows)


def path_within(folder: Path, text: str, title: str) -> Path:
    """Return the path of a regular file within a folder that metadata name.

    Raises
    ------
    FileError
        If it is an address, leads out of the folder, or is a link or not a file.
    """
    subject = f"{title}: its metadata name a file"
    if _SCHEME.match(text):
        raise FileError(
            f"{subject} by an address, and nothing is fetched: all its files must be in {folder}."
        )
    try:
        top, named = folder.resolve(), Path(text)
        inner: Path | None = named
        if named.is_absolute():
            bases = [base for base in (folder.absolute(), top) if named.is_relative_to(base)]
            inner = named.relative_to(bases[0]) if bases else None
        is_outside = inner is None or ".." in inner.parts
        path = top if inner is None or is_outside else top / inner
        is_link, is_file = path.resolve() != path, path.is_file()
    except (OSError, ValueError, RuntimeError):
        raise FileError(f"{subject} whose path is not valid.") from None
    if inner is None or is_outside:
        raise FileError(f"{subject} outside {folder} (was the table moved, or is it a shallow clone?).")
    if is_link:
        raise FileError(f"{subject} through a link, which is not followed: copy the files themselves.")
    if not is_file:
        raise FileError(f"{subject} that is not in {folder} (was it deleted by a cleanup?).")
    return folder / inner
