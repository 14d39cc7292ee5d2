"""Files written whole or not at all: next to their place under a hidden name, then moved there."""

from __future__ import annotations

import base64
import contextlib
import csv
import io
import json
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import pyarrow as pa
from pyarrow import csv as arrow_csv
from pyarrow import ipc, parquet

from masquerade.core.errors import FileError
from masquerade.core.util.atomic import AtomicFile, check_replaceable, write_whole
from masquerade.frames.baskets import BasketSink
from masquerade.frames.formats import STREAM, Format, format_of, is_compressed, sidecar_of, unwritable
from masquerade.frames.label_codes import Kind, expanded, kind_of
from masquerade.frames.metadata import INCOMPLETE, with_schema_metadata
from masquerade.frames.sheets import SheetSink
from masquerade.kernels.label_text import label_rows

# of which kinds of values dictionaries are written as they come
_CODED: dict[Format, tuple[Kind, ...]] = {
    Format.PARQUET: ("text",),
    Format.CSV: ("text", "truth", "whole"),
}
_ROWS_AT_ONCE = 1 << 14  # of a Parquet column: each time its dictionary is looked at
_MANY = 1 << 12  # rows from which on labels are written by our own loop
_MOST_LISTED = 1 << 12  # labels of a column that are spelled once for all its rows


class AtomicWriter:
    """Writes record batches to a file that appears complete, or does not appear.

    Format by ending; `metadata` goes into the Arrow schema, or next to a CSV. ``-`` writes a CSV to
    standard output as it comes, without metadata. An existing file is refused unless `overwrite`, and
    one of the `inputs` always, before anything is read or written. Of the `unranked` columns a Parquet file
    does not say the least and greatest values of its row groups.
    """

    def __init__(
        self,
        path: str | Path,
        schema: pa.Schema,
        metadata: Mapping[str, str],
        *,
        overwrite: bool = False,
        inputs: Iterable[str | Path] = (),
        unranked: Collection[str] = (),
    ) -> None:
        self._unranked = frozenset(unranked)
        self._name, self._overwrite, self._metadata = str(path), overwrite, dict(metadata)
        self._format = format_of(path)
        self._schema = _plain(with_schema_metadata(schema, metadata))
        # text that comes as a dictionary goes into a Parquet file as it is; the file says that it is text
        self._coded = _plain(schema, but=_CODED.get(self._format, ()))
        self._stack = contextlib.ExitStack()
        self._sink: Any = None  # takes batches in the format of the file
        if not self._format.carries_metadata:
            for field in self._schema:
                if pa.types.is_nested(field.type):
                    raise FileError(
                        f"{path}: column {field.name!r} holds lists or structures, which "
                        f"{'a CSV' if self._format is Format.CSV else 'this kind of file'} cannot."
                    )
        if self._name == STREAM and INCOMPLETE in metadata:
            raise FileError(
                "standard output carries no mark that rows are missing, not at random, as the input says: "
                "write to a file."
            )
        if self._name != STREAM:
            # a link is replaced itself: what it leads to may be anybody's
            self._target = Path(path).absolute()
            try:
                self._check(inputs)
            except OSError as error:
                raise unwritable(self._name, error) from None

    def __enter__(self) -> Self:
        """Open a hidden file next to the target."""
        if self._name == STREAM:
            self._sink = self._sink_of(sys.stdout.buffer)
            return self
        try:
            self._file = self._stack.enter_context(AtomicFile(self._target))
            self._sink = self._sink_of(self._file.stream)
        except BaseException as error:
            self._stack.close()
            if isinstance(error, OSError):
                raise unwritable(self._name, error) from None
            raise
        return self

    def write(self, batch: pa.RecordBatch) -> None:
        """Write a batch of the schema's columns."""
        if self._sink is None:
            raise RuntimeError("An AtomicWriter writes inside its with block only.")
        try:
            self._sink.write_batch(_fitted(batch, self._schema, self._coded))
        except BrokenPipeError:
            raise  # the reader of our standard output has gone: no fault of the file
        except OSError as error:
            raise unwritable(self._name, error) from None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Move the file to its place, or remove it if anything went wrong."""
        with self._stack:  # whatever happens, nothing hidden stays behind
            if error is not None:
                sink, self._sink = self._sink, None
                with contextlib.suppress(Exception):  # the first error is the one to tell
                    if sink is not None:
                        sink.close()
                return
            self.settle()
            if self._name == STREAM:
                return
            try:
                self._publish()
            except OSError as failure:
                raise unwritable(self._name, failure) from None

    def settle(self) -> None:
        """Write what is left and bring it to the disk; the end of the with block only gives it its name."""
        sink, self._sink = self._sink, None
        if sink is None:
            return
        try:
            sink.close()
            if self._name == STREAM:
                sys.stdout.buffer.flush()
            else:
                self._file.settle()
        except BrokenPipeError:
            raise
        except OSError as failure:
            raise unwritable(self._name, failure) from None

    def _check(self, inputs: Iterable[str | Path]) -> None:
        """Refuse, before any work, a target that cannot or must not be written."""
        target, name = self._target, self._name
        if is_compressed(name):
            raise FileError(
                f"{name}: compressed CSV files are read, not written; write a .csv or a .parquet."
            )
        if any(_same_file(target, source) for source in inputs):
            raise FileError(f"{name}: this file is also the input; write to another one.")
        check_replaceable(Path(name))
        for existing in (target, *([] if self._format.carries_metadata else [sidecar_of(target)])):
            if (existing.exists() or existing.is_symlink()) and not self._overwrite:
                shown = name if existing is target else str(existing)
                raise FileError(f"{shown}: exists already; overwrite=True (--overwrite) replaces it.")
        if not target.parent.is_dir():
            raise FileError(f"{name}: cannot be written: there is no directory {target.parent}.")
        if not os.access(target.parent, os.W_OK | os.X_OK):
            raise FileError(f"{name}: cannot be written: no permission in {target.parent}.")

    def _sink_of(self, stream: IO[bytes]) -> Any:
        kind, schema, name = self._format, self._schema, self._name
        if kind is Format.CSV:
            return _CsvSink(stream, schema, "\t" if name.lower().endswith(".tsv") else ",")
        if kind is Format.BASKETS:
            return BasketSink(stream, schema, name)
        if kind.sheet:
            return SheetSink(kind, stream, schema, name)
        if kind is Format.PARQUET:
            return _ParquetSink(stream, schema, self._coded, self._unranked)
        return ipc.new_file(stream, schema)

    def _publish(self) -> None:
        """Put the file, and for a CSV its metadata first, in place; on failure neither is left there."""
        with contextlib.ExitStack() as undo:
            if not self._format.carries_metadata:
                sidecar = sidecar_of(self._target)
                before = _content_of(sidecar)
                after = json.dumps(self._metadata, indent=2).encode() + b"\n" if self._metadata else None
                undo.callback(_replace_bytes, sidecar, before)
                _replace_bytes(sidecar, after)
            undo.callback(self._file.withdraw)
            try:
                self._file.publish(overwrite=self._overwrite)
            except FileExistsError:
                raise FileError(f"{self._target}: another program has created this file meanwhile.") from None
            undo.pop_all()


class _CsvSink:
    """Rows of text: dictionaries label by label, others quoted in batches that need it."""

    def __init__(self, stream: IO[bytes], schema: pa.Schema, separator: str = ",") -> None:
        self._stream, self._separator, self._schema = stream, separator, schema
        header = io.StringIO()
        csv.writer(header, delimiter=separator, lineterminator="\n").writerow(schema.names)
        stream.write(header.getvalue().encode())

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Write one batch; Arrow quotes all texts or none, and refuses none where some need it."""
        if len(batch) >= _MANY and all(_is_short_list(column) for column in batch.columns):
            for piece in self._rows(batch):
                self._stream.write(piece)
            return
        rendered, plain = None, _fitted(batch, self._schema, self._schema)
        with contextlib.suppress(pa.ArrowInvalid):
            rendered = _rendered(plain, "none", self._separator)
        self._stream.write(_rendered(plain, "needed", self._separator) if rendered is None else rendered)

    def close(self) -> None:
        """Nothing is left: the stream belongs to the writer."""

    def _rows(self, batch: pa.RecordBatch) -> Iterator[memoryview]:
        ends = [*self._separator * (batch.num_columns - 1), "\n"]
        labels = [
            [self._spelled(label, end) for label in column.dictionary.cast(pa.string()).to_pylist()]
            for column, end in zip(batch.columns, ends, strict=True)
        ]
        return label_rows([column.indices.to_numpy() for column in batch.columns], labels)

    def _spelled(self, label: str, end: str) -> bytes:
        if any(mark in label for mark in (self._separator, '"', "\r", "\n")):
            label = '"' + label.replace('"', '""') + '"'
        return (label + end).encode()


def _is_short_list(column: pa.Array) -> bool:
    """Tell whether a column is a dictionary of few values, none of them missing."""
    return (
        pa.types.is_dictionary(column.type)
        and len(column.dictionary) <= _MOST_LISTED
        and not column.indices.null_count
        and not column.dictionary.null_count
    )


def _rendered(batch: pa.RecordBatch, quoting: str, separator: str) -> memoryview:
    buffer = pa.BufferOutputStream()
    options = arrow_csv.WriteOptions(include_header=False, quoting_style=quoting, delimiter=separator)
    arrow_csv.write_csv(batch, buffer, options)
    return memoryview(buffer.getvalue())


class _ParquetSink:
    """Batches of a Parquet file; `coded` is the schema, with dictionaries for what is text in the file."""

    def __init__(
        self, stream: IO[bytes], schema: pa.Schema, coded: pa.Schema, unranked: Collection[str]
    ) -> None:
        fields = [own.with_type(kind) for own, kind in zip(schema, coded.types, strict=True)]
        self._schema, self._written = schema, pa.schema(fields)
        self._writer = parquet.ParquetWriter(
            stream,
            self._written,
            store_schema=False,
            write_statistics=[name for name in schema.names if name not in unranked] if unranked else True,
            write_batch_size=_ROWS_AT_ONCE,
        )

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Write one batch."""
        self._writer.write_batch(batch.cast(self._written))

    def close(self) -> None:
        """Write what Arrow writes about the schema itself, so that readers find the types it names."""
        said = {b"ARROW:schema": base64.b64encode(self._schema.serialize().to_pybytes())}
        self._writer.add_key_value_metadata(said | dict(self._schema.metadata or {}))
        self._writer.close()


def _fitted(batch: pa.RecordBatch, schema: pa.Schema, coded: pa.Schema) -> pa.RecordBatch:
    """Return a batch of the schema's types, dictionaries expanded but for those that are coded."""
    columns = [
        expanded(column)
        if pa.types.is_dictionary(column.type) and not pa.types.is_dictionary(kind)
        else column
        for column, kind in zip(batch.columns, coded.types, strict=True)
    ]
    return pa.record_batch(
        [
            column if pa.types.is_dictionary(column.type) else column.cast(field.type)
            for column, field in zip(columns, schema, strict=True)
        ],
        names=batch.schema.names,
    )


def _plain(schema: pa.Schema, *, but: Collection[Kind] = ()) -> pa.Schema:
    """Return the schema without dictionaries: an Arrow file could not change them between batches."""
    for place, field in enumerate(schema):
        if pa.types.is_dictionary(field.type) and kind_of(field.type) not in but:
            schema = schema.set(place, field.with_type(field.type.value_type))
    return schema


def _content_of(path: Path) -> bytes | Path | None:
    """Return the content of a small file, or the target of a link; None if there is neither."""
    if path.is_symlink():
        return path.readlink()
    return path.read_bytes() if path.is_file() else None


def _replace_bytes(path: Path, content: bytes | Path | None) -> None:
    """Make a small file hold `content`, be a link again, or not exist."""
    if isinstance(content, bytes):
        write_whole(path, content)
        return
    path.unlink(missing_ok=True)
    if content is not None:
        path.symlink_to(content)


def _same_file(target: Path, source: str | Path) -> bool:
    try:
        return str(source) != STREAM and target.samefile(source)
    except OSError:
        return False
