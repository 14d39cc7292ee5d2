"""Files written whole or not at all: next to their place under a hidden name, then moved there."""

from __future__ import annotations

import base64
import contextlib
import csv
import io
import json
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import pyarrow as pa
from pyarrow import csv as arrow_csv
from pyarrow import ipc, parquet

from masquerade.core.atomic import AtomicFile, write_whole
from masquerade.core.errors import FileError
from masquerade.frames.baskets import BasketSink
from masquerade.frames.formats import STREAM, Format, format_of, is_compressed, sidecar_of, unwritable
from masquerade.frames.label_codes import expanded
from masquerade.frames.metadata import INCOMPLETE, with_schema_metadata
from masquerade.frames.sheets import SheetSink


class AtomicWriter:
    """Writes record batches to a file that appears complete, or does not appear.

    Format by ending; `metadata` goes into the Arrow schema, or next to a CSV. ``-`` writes a CSV to
    standard output as it comes, without metadata. An existing file is refused unless `overwrite`, and
    one of the `inputs` always, before anything is read or written.
    """

    def __init__(
        self,
        path: str | Path,
        schema: pa.Schema,
        metadata: Mapping[str, str],
        *,
        overwrite: bool = False,
        inputs: Iterable[str | Path] = (),
    ) -> None:
        self._name, self._overwrite, self._metadata = str(path), overwrite, dict(metadata)
        self._format = format_of(path)
        self._schema = _plain(with_schema_metadata(schema, metadata))
        # text that comes as a dictionary goes into a Parquet file as it is; the file says that it is text
        self._coded = schema if self._format is Format.PARQUET else self._schema
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
            self._target = Path(path).resolve()
            try:
                self._check(inputs)
            except OSError as error:
                raise unwritable(self._name, error) from None

    def __enter__(self) -> Self:
        """Open a hidden file next to the target."""
        if self._name == STREAM:
            self._sink = _sink(self._format, sys.stdout.buffer, self._schema, self._name, self._coded)
            return self
        try:
            self._file = self._stack.enter_context(AtomicFile(self._target))
            self._sink = _sink(self._format, self._file.stream, self._schema, self._name, self._coded)
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
        sink, self._sink = self._sink, None
        with self._stack:  # whatever happens, nothing hidden stays behind
            if sink is None:
                return
            if error is not None:
                with contextlib.suppress(Exception):  # the first error is the one to tell
                    sink.close()
                return
            try:
                sink.close()
                if self._name == STREAM:
                    sys.stdout.buffer.flush()
                else:
                    self._file.settle()
                    self._publish()
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
        if target.exists() and not target.is_file():
            what = "a directory" if target.is_dir() else "not a regular file"
            raise FileError(f"{name}: cannot be written: this is {what}.")
        for existing in (target, *([] if self._format.carries_metadata else [sidecar_of(target)])):
            if existing.exists() and not self._overwrite:
                shown = name if existing is target else str(existing)
                raise FileError(f"{shown}: exists already; overwrite=True (--overwrite) replaces it.")
        if not target.parent.is_dir():
            raise FileError(f"{name}: cannot be written: there is no directory {target.parent}.")
        if not os.access(target.parent, os.W_OK | os.X_OK):
            raise FileError(f"{name}: cannot be written: no permission in {target.parent}.")

    def _publish(self) -> None:
        """Put the file, and for a CSV its metadata first, in place; the metadata goes back on failure."""
        with contextlib.ExitStack() as undo:
            if not self._format.carries_metadata:
                sidecar = sidecar_of(self._target)
                before = sidecar.read_bytes() if sidecar.exists() else None
                after = json.dumps(self._metadata, indent=2).encode() + b"\n" if self._metadata else None
                undo.callback(_replace_bytes, sidecar, before)
                _replace_bytes(sidecar, after)
            try:
                self._file.publish(overwrite=self._overwrite)
            except FileExistsError:
                raise FileError(f"{self._target}: another program has created this file meanwhile.") from None
            undo.pop_all()


class _CsvSink:
    """Rows of text, quoted only in batches that need it."""

    def __init__(self, stream: IO[bytes], schema: pa.Schema, separator: str = ",") -> None:
        self._stream, self._separator = stream, separator
        header = io.StringIO()
        csv.writer(header, delimiter=separator, lineterminator="\n").writerow(schema.names)
        stream.write(header.getvalue().encode())

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Write one batch; Arrow quotes all texts or none, and refuses none where some need it."""
        rendered = None
        with contextlib.suppress(pa.ArrowInvalid):
            rendered = _rendered(batch, "none", self._separator)
        self._stream.write(_rendered(batch, "needed", self._separator) if rendered is None else rendered)

    def close(self) -> None:
        """Nothing is left: the stream belongs to the writer."""


def _rendered(batch: pa.RecordBatch, quoting: str, separator: str) -> memoryview:
    buffer = pa.BufferOutputStream()
    options = arrow_csv.WriteOptions(include_header=False, quoting_style=quoting, delimiter=separator)
    arrow_csv.write_csv(batch, buffer, options)
    return memoryview(buffer.getvalue())


class _ParquetSink:
    """Batches of a Parquet file; `coded` is the schema, with dictionaries for what is text in the file."""

    def __init__(self, stream: IO[bytes], schema: pa.Schema, coded: pa.Schema) -> None:
        fields = [_coded_field(own, coded.field(own.name).type) for own in schema]
        self._schema, self._written = schema, pa.schema(fields)
        self._writer = parquet.ParquetWriter(stream, self._written, store_schema=False)

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Write one batch."""
        self._writer.write_batch(batch.cast(self._written))

    def close(self) -> None:
        """Write what Arrow writes about the schema itself, so that readers find the types it names."""
        said = {b"ARROW:schema": base64.b64encode(self._schema.serialize().to_pybytes())}
        self._writer.add_key_value_metadata(said | dict(self._schema.metadata or {}))
        self._writer.close()


def _coded_field(field: pa.Field, kind: pa.DataType) -> pa.Field:
    return field.with_type(kind) if _is_coded_text(kind) else field


def _is_coded_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_dictionary(kind) and pa.types.is_string(kind.value_type))


def _fitted(batch: pa.RecordBatch, schema: pa.Schema, coded: pa.Schema) -> pa.RecordBatch:
    """Return a batch of the schema's types, dictionaries expanded but for text that is coded."""
    columns = [
        column
        if _is_coded_text(coded.field(place).type) or not pa.types.is_dictionary(column.type)
        else expanded(column)
        for place, column in enumerate(batch.columns)
    ]
    return pa.record_batch(
        [
            column if pa.types.is_dictionary(column.type) else column.cast(field.type)
            for column, field in zip(columns, schema, strict=True)
        ],
        names=batch.schema.names,
    )


def _sink(kind: Format, stream: IO[bytes], schema: pa.Schema, name: str, coded: pa.Schema) -> Any:
    if kind is Format.CSV:
        return _CsvSink(stream, schema, "\t" if name.lower().endswith(".tsv") else ",")
    if kind is Format.BASKETS:
        return BasketSink(stream, schema, name)
    if kind.sheet:
        return SheetSink(kind, stream, schema, name)
    if kind is Format.PARQUET:
        return _ParquetSink(stream, schema, coded)
    return ipc.new_file(stream, schema)


def _plain(schema: pa.Schema) -> pa.Schema:
    """Return the schema without dictionaries: an Arrow file could not change them between batches."""
    for place, field in enumerate(schema):
        if pa.types.is_dictionary(field.type):
            schema = schema.set(place, field.with_type(field.type.value_type))
    return schema


def _replace_bytes(path: Path, content: bytes | None) -> None:
    """Make a small file hold `content`, or not exist."""
    if content is None:
        path.unlink(missing_ok=True)
        return
    write_whole(path, content)


def _same_file(target: Path, source: str | Path) -> bool:
    try:
        return str(source) != STREAM and target.samefile(source)
    except OSError:
        return False
