"""Atomic writes of record batches: to a hidden file in the same folder, which is then renamed."""

from __future__ import annotations

import base64
import contextlib
import csv
import io
import json
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
from masquerade.frames.json_lines import JsonLinesSink
from masquerade.frames.label_codes import Kind, expand_dictionary, kind_of
from masquerade.frames.metadata import INCOMPLETE, mark_missing, with_schema_metadata
from masquerade.frames.sheets import SheetSink
from masquerade.kernels.label_text import label_rows

# types of values whose dictionaries are written unchanged, by format
_CODED: dict[Format, tuple[Kind, ...]] = {
    Format.PARQUET: ("text",),
    Format.CSV: ("text", "truth", "whole"),
}
_ROWS_AT_ONCE = 1 << 14  # rows of a Parquet column between two checks of its dictionary size
_MANY = 1 << 12  # batches with at least this number of rows are written by the compiled loop
_MOST_LISTED = 1 << 12  # if a column has at most this number of labels, each is formatted only once


class AtomicWriter:
    """Write record batches to a file atomically.

    The file name extension determines the format. `metadata` is stored in the Arrow schema, or in the sidecar
    of a CSV. ``-`` writes a CSV to standard output immediately, without metadata. Before anything is read or
    written, a target is refused if it is one of the `inputs`, or if it exists and `overwrite` is False. For
    the `disguised` columns, a Parquet file does not store the minimum and maximum of its row groups, and
    files of Excel, SPSS, Stata and SAS warn readers not to tabulate the values directly. SPSS and Stata
    files declare the `missing` labels of a column as missing values.
    """

    def __init__(
        self,
        path: str | Path,
        schema: pa.Schema,
        metadata: Mapping[str, str],
        *,
        overwrite: bool = False,
        inputs: Iterable[str | Path] = (),
        disguised: Collection[str] = (),
        missing: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self._disguised = frozenset(disguised)
        self._name, self._overwrite, self._metadata = str(path), overwrite, dict(metadata)
        self._format = format_of(path)
        if self._format.sheet:
            for name, labels in (missing or {}).items():
                place = schema.get_field_index(name)
                schema = schema.set(place, mark_missing(schema.field(place), labels))
        self._schema = _plain(with_schema_metadata(schema, metadata))
        # text in dictionary form is written to Parquet unchanged; the file declares it as text
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
                "standard output cannot state that rows are missing, not at random, as the input does: "
                "write to a file."
            )
        if self._name != STREAM:
            # a link is itself replaced, because its target may belong to another user
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
            self._sink.write_batch(_fit_schema(batch, self._schema, self._coded))
        except BrokenPipeError:
            raise  # the reader of standard output closed the pipe, which is not an error of the file
        except OSError as error:
            raise unwritable(self._name, error) from None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Move the file to its target path, or remove it after an error."""
        with self._stack:  # no hidden file remains, whatever happens
            if error is not None:
                sink, self._sink = self._sink, None
                with contextlib.suppress(Exception):  # the first error is the one to report
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
        """Write the remaining rows durably; the end of the with block only renames the file."""
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
        """Raise FileError, before any work, if the target cannot or must not be written."""
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
        if kind is Format.JSON_LINES:
            return JsonLinesSink(stream)
        if kind.sheet:
            return SheetSink(kind, stream, schema, name, self._disguised)
        if kind is Format.PARQUET:
            return _ParquetSink(stream, schema, self._coded, self._disguised)
        return ipc.new_file(stream, schema)

    def _publish(self) -> None:
        """Move the file to its target; the metadata of a CSV are moved first, and restored on failure."""
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
    """Writes CSV rows.

    In large batches of dictionary columns, only the labels that need quotes are quoted. In other batches,
    all texts are quoted if any of them needs quotes.
    """

    def __init__(self, stream: IO[bytes], schema: pa.Schema, separator: str = ",") -> None:
        self._stream, self._separator, self._schema = stream, separator, schema
        header = io.StringIO()
        csv.writer(header, delimiter=separator, lineterminator="\n").writerow(schema.names)
        stream.write(header.getvalue().encode())

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Write one batch. Arrow quotes all texts or none, and raises if unquoted text would need quotes."""
        if len(batch) >= _MANY and all(_is_short_list(column) for column in batch.columns):
            for piece in self._rows(batch):
                self._stream.write(piece)
            return
        rendered, plain = None, _fit_schema(batch, self._schema, self._schema)
        with contextlib.suppress(pa.ArrowInvalid):
            rendered = _render_csv(plain, "none", self._separator)
        self._stream.write(_render_csv(plain, "needed", self._separator) if rendered is None else rendered)

    def close(self) -> None:
        """Do nothing: the stream is closed by the writer."""

    def _rows(self, batch: pa.RecordBatch) -> Iterator[memoryview]:
        ends = [*self._separator * (batch.num_columns - 1), "\n"]
        labels = [
            [self._spell_label(label, end) for label in column.dictionary.cast(pa.string()).to_pylist()]
            for column, end in zip(batch.columns, ends, strict=True)
        ]
        return label_rows([column.indices.to_numpy() for column in batch.columns], labels)

    def _spell_label(self, label: str, end: str) -> bytes:
        if any(mark in label for mark in (self._separator, '"', "\r", "\n")):
            label = '"' + label.replace('"', '""') + '"'
        return (label + end).encode()


def _is_short_list(column: pa.Array) -> bool:
    """Return True if a column is a dictionary of few values without nulls."""
    return (
        pa.types.is_dictionary(column.type)
        and len(column.dictionary) <= _MOST_LISTED
        and not column.indices.null_count
        and not column.dictionary.null_count
    )


def _render_csv(batch: pa.RecordBatch, quoting: str, separator: str) -> memoryview:
    buffer = pa.BufferOutputStream()
    options = arrow_csv.WriteOptions(include_header=False, quoting_style=quoting, delimiter=separator)
    arrow_csv.write_csv(batch, buffer, options)
    return memoryview(buffer.getvalue())


class _ParquetSink:
    """Writes batches to a Parquet file; columns that are dictionaries in `coded` are stored as such."""

    def __init__(
        self, stream: IO[bytes], schema: pa.Schema, coded: pa.Schema, disguised: Collection[str]
    ) -> None:
        fields = [own.with_type(kind) for own, kind in zip(schema, coded.types, strict=True)]
        self._schema, self._written = schema, pa.schema(fields)
        self._writer = parquet.ParquetWriter(
            stream,
            self._written,
            store_schema=False,
            write_statistics=[name for name in schema.names if name not in disguised] if disguised else True,
            write_batch_size=_ROWS_AT_ONCE,
        )

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Write one batch."""
        self._writer.write_batch(batch.cast(self._written))

    def close(self) -> None:
        """Write the Arrow schema into the metadata, so that readers restore its types."""
        said = {b"ARROW:schema": base64.b64encode(self._schema.serialize().to_pybytes())}
        self._writer.add_key_value_metadata(said | dict(self._schema.metadata or {}))
        self._writer.close()


def _fit_schema(batch: pa.RecordBatch, schema: pa.Schema, coded: pa.Schema) -> pa.RecordBatch:
    """Return a batch with the schema's types; dictionaries are expanded, except in `coded` columns."""
    columns = [
        expand_dictionary(column)
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
    """Return the schema without dictionaries, except of types in `but`.

    An Arrow file cannot change dictionaries between batches.
    """
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
    """Restore a small file or link: write `content`, create the link again, or remove the file."""
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
