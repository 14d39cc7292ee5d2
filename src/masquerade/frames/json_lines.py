"""JSON lines: one record per line, as text like a CSV. A null and a missing key are empty cells."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from masquerade.core.errors import FileError, InputError
from masquerade.core.util.json_text import parse_json
from masquerade.frames.formats import Format, unreadable
from masquerade.frames.sheets import TextSheet, rows_at_once

MOST_LINE = 2 << 20  # bytes of one record
MOST_COLUMNS = 1 << 20  # a CSV has no more on a line of 2 MiB
SAMPLE = 1000  # records that are searched for keys


class JsonLines(TextSheet):
    """A file of JSON lines. Columns are the keys of its first records."""

    def __init__(self, path: str, metadata: dict[str, str], stack: ExitStack) -> None:
        try:
            self._stream = stack.enter_context(Path(path).open("rb"))  # noqa: SIM115  (the stack closes it)
        except OSError as error:
            raise unreadable(path, error) from None
        self.path = path
        names: dict[str, None] = {}
        for row, record in enumerate(self._records()):
            names |= dict.fromkeys(record)
            if len(names) > MOST_COLUMNS:
                raise FileError(f"{path}: its records have more than {MOST_COLUMNS:,} keys together.")
            if row + 1 >= SAMPLE:
                break
        if not names:
            raise FileError(f"{path}: the file has no records: one JSON object per line was expected.")
        super().__init__(path, Format.JSON_LINES, list(names), metadata)

    def _records(self) -> Iterator[Mapping[str, Any]]:
        """Yield the records from the start; no error message quotes a record."""
        self._stream.seek(0)
        row = 0
        while line := self._stream.readline(MOST_LINE + 1):
            if not line.strip():
                continue
            row += 1
            if len(line) > MOST_LINE:
                raise FileError(f"{self.path}: record {row} is longer than {MOST_LINE:,} bytes.")
            try:
                record = parse_json(line, most=MOST_LINE)
            except InputError:
                record = None
            if not isinstance(record, dict):
                raise FileError(f"{self.path}: record {row} is not a JSON object on one line.")
            if any(isinstance(value, (dict, list)) for value in record.values()):
                raise FileError(f"{self.path}: record {row} has lists or objects as values.")
            yield record

    def _parts(self, columns: Sequence[str], rows: int) -> Iterator[Mapping[str, Sequence[Any]]]:
        """Yield the values of some records by column; a record without a key has None."""
        keys, most = set(self.names), rows_at_once(len(self.names), rows)
        some: list[Mapping[str, Any]] = []
        for row, record in enumerate(self._records(), start=1):
            if not record.keys() <= keys:
                raise FileError(
                    f"{self.path}: record {row} has a key that none of the first {SAMPLE:,} records has."
                )
            some.append(record)
            if len(some) >= most:
                yield {name: [one.get(name) for one in some] for name in columns}
                some = []
        if some:
            yield {name: [one.get(name) for one in some] for name in columns}


class JsonLinesSink:
    """Writes batches as JSON lines; empty cells are null."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Write one batch."""
        for row in batch.to_pylist():
            self._stream.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")

    def close(self) -> None:
        """Do nothing: the stream is closed by the writer."""
