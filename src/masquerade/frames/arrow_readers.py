"""Readers of Parquet and Arrow files, in batches of rows and within limits of memory."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import ipc, parquet

from masquerade.core.errors import FileError
from masquerade.frames.formats import Format, damage_error
from masquerade.frames.memory_bounds import (
    MOST_IN_BATCH,
    check_arrow,
    check_parquet,
    check_rows,
    check_views,
)
from masquerade.frames.metadata import schema_metadata
from masquerade.frames.parquet_footer import read_row_groups

_BUFFER = 1 << 20  # bytes of a Parquet column chunk that are buffered at a time, however large its row group
_LEAST_OF_TEXT = 4  # minimum bytes of a text value in a Parquet column without a dictionary
_LEAST_GROUP = 1 << 16  # a file with row groups of fewer rows is read without dictionaries
# raised, for example, for a name that is not UTF-8, or a size that exceeds all memory
UNREADABLE = (pa.ArrowException, OSError, ValueError, KeyError, OverflowError, MemoryError, struct.error)


class ParquetReader:
    """A Parquet file, read a few rows at a time even within one huge row group.

    Columns of `coded` that the file stores as a dictionary are read as dictionaries.
    """

    def __init__(self, path: str, source: Any, stack: ExitStack) -> None:
        self._path, self._source = path, source
        self.coded: frozenset[str] = frozenset()
        try:
            self._file = stack.enter_context(
                parquet.ParquetFile(source, pre_buffer=False, buffer_size=_BUFFER)
            )
            self.schema: pa.Schema = self._file.schema_arrow
            names = list(self.schema.names)
        except UNREADABLE:
            raise damage_error(path, Format.PARQUET) from None
        self.names, self.metadata = unique_names(path, names), schema_metadata(self.schema)
        self.total_rows: int | None = self._file.metadata.num_rows
        check_rows(path, Format.PARQUET, self._file.metadata.num_rows)

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Yield batches of the requested columns, in this order, of at most `rows` rows."""
        try:
            most = check_parquet(self._path, self._source, self._file.metadata, columns)
            file = self._with_dictionaries([name for name in columns if name in self.coded])
            for batch in file.iter_batches(batch_size=min(rows, most), columns=list(columns)):
                yield _validate_batch(batch.select(list(columns)), decoded=True)
        except FileError:
            raise
        except UNREADABLE:
            raise damage_error(self._path, Format.PARQUET) from None

    def _with_dictionaries(self, names: Sequence[str]) -> parquet.ParquetFile:
        """Return the file, with text columns read as dictionaries if all their row groups have a small one.

        Text without a dictionary takes at least four bytes per value. So a column that takes fewer bytes is
        stored with a dictionary, of fewer distinct values than a quarter of these bytes. A dictionary built
        while reading could grow without limit. Batches with dictionaries end at the end of a row group, so
        small row groups are read without dictionaries.
        """
        small = {name for name in names if pa.types.is_string(self.schema.field(name).type)}
        known = self._file.metadata
        groups = read_row_groups(self._path, self._source, known) if small else iter(())
        for place, (rows, chunks) in enumerate(groups, start=1):
            if rows < _LEAST_GROUP and place < known.num_row_groups:
                return self._file
            most = _LEAST_OF_TEXT * rows
            small -= {chunk.column.path for chunk in chunks if chunk.total_uncompressed_size >= most}
        if not small or known.num_row_groups == 0:
            return self._file
        return parquet.ParquetFile(
            self._source, metadata=known, read_dictionary=sorted(small), pre_buffer=False, buffer_size=_BUFFER
        )


class ArrowReader:
    """An Arrow IPC file. It is read, not memory-mapped, so pages of a large file do not stay in memory."""

    def __init__(self, path: str, source: Any, stack: ExitStack) -> None:
        del stack  # the caller that opened the file closes it
        self._path, self._source = path, source
        try:
            check_arrow(path, self._source)
            file = ipc.open_file(self._source)
            self.schema: pa.Schema = file.schema
            self.total_rows: int | None = file.count_rows() if hasattr(file, "count_rows") else None
            names = list(self.schema.names)
            check_rows(path, Format.ARROW, self.total_rows or 0)
        except FileError:
            raise
        except UNREADABLE:
            raise damage_error(path, Format.ARROW) from None
        self.names, self.metadata = unique_names(path, names), schema_metadata(self.schema)

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Yield batches of the requested columns, in this order, of at most `rows` rows."""
        wanted = ipc.IpcReadOptions(included_fields=[self.names.index(name) for name in columns])
        try:
            file = ipc.open_file(self._source, options=wanted)
            for place in range(file.num_record_batches):
                batch = file.get_batch(place).select(list(columns))
                for column in batch.columns:
                    check_views(self._path, self._source.size(), column)
                batch = _validate_batch(batch)
                check_rows(self._path, Format.ARROW, len(batch), MOST_IN_BATCH)
                yield from slice_batch(batch, rows)
        except FileError:
            raise
        except UNREADABLE:
            raise damage_error(self._path, Format.ARROW) from None


def _validate_batch(batch: pa.RecordBatch, *, decoded: bool = False) -> pa.RecordBatch:
    """Validate the offsets, indices and text of a batch, because invalid values crash Arrow.

    Offsets made by a decoder are valid, and ASCII is valid text: such columns need no full validation.
    """
    for column in batch.columns:
        column.validate(full=not (decoded and _is_ascii(column)))
    return batch


def _is_ascii(column: pa.Array) -> bool:
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return False
    *_, text = column.buffers()
    return text is None or bool(np.frombuffer(text, dtype=np.uint8).max(initial=0) < 128)


def slice_batch(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield a batch in parts of at most `rows` rows."""
    for start in range(0, len(batch), rows):
        yield batch.slice(start, rows)


def unique_names(path: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of columns; raise FileError if two columns have the same name."""
    if len(set(names)) < len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise FileError(f"{path}: two columns are called {twice!r}.")
    return tuple(names)
