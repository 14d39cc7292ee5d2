"""CSV as a stream of record batches of text; no error ever quotes a row."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
from pyarrow import csv as arrow_csv

from masquerade.core.errors import FileError
from masquerade.frames.formats import is_compressed, sidecar_of, unreadable

BLOCK = 2 << 20  # bytes: a row may not be longer
_DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile)


class Counted(io.RawIOBase):
    """A binary stream that counts the bytes read from it, and leaves closing to its owner."""

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__()
        self._stream, self.count = stream, 0

    def readable(self) -> bool:
        """Say that this stream is for reading."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read what fits."""
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        self.count += len(data)
        return len(data)


class CsvStream:
    """An opened CSV: its names, then its batches. `bytes_read` counts the (compressed) file's bytes."""

    def __init__(self, path: str, stream: IO[bytes]) -> None:
        self._path, self._counted = path, Counted(stream)
        buffered = io.BufferedReader(self._counted, BLOCK)
        plain = gzip.GzipFile(fileobj=buffered) if is_compressed(path) else buffered
        self._plain: IO[bytes] = plain  # type: ignore[assignment]  # two classes, one interface
        self._start, self.names = self._header()

    @property
    def bytes_read(self) -> int:
        """Return how much of the file has been read."""
        return self._counted.count

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield batches of the wanted columns, every one as text, empty fields as null."""
        bad_rows: list[tuple[int | None, int, int]] = []

        def remember(row: Any) -> str:
            bad_rows.append((row.number, row.expected_columns, row.actual_columns))
            return "error"

        done, failure = 0, ""
        try:
            reader = arrow_csv.open_csv(
                _Rejoined(self._start, self._plain),
                # One thread: only then does Arrow know the number of a bad row.
                read_options=arrow_csv.ReadOptions(use_threads=False, block_size=BLOCK),
                parse_options=arrow_csv.ParseOptions(
                    newlines_in_values=True,
                    # In a file of one column an empty line is a missing value.
                    ignore_empty_lines=len(self.names) > 1,
                    invalid_row_handler=remember,
                ),
                convert_options=arrow_csv.ConvertOptions(
                    column_types=dict.fromkeys(columns, pa.string()),
                    include_columns=list(columns),
                    null_values=[""],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=True,
                ),
            )
            for batch in reader:
                done += len(batch)
                yield batch
        except (pa.ArrowException, *_DAMAGED) as error:
            failure = _failure(error, done, bad_rows)
        except OSError as error:
            raise unreadable(self._path, error) from None
        if failure:  # raised out here, so that Arrow's error, which quotes the row, is not its context
            raise FileError(f"{self._path}: {failure}.")

    def _header(self) -> tuple[bytes, tuple[str, ...]]:
        """Return the first bytes and the names in them."""
        try:
            start = self._plain.read(BLOCK)
        except _DAMAGED:
            raise FileError(f"{self._path}: the compressed file is truncated or damaged.") from None
        except OSError as error:
            raise unreadable(self._path, error) from None
        if not start.strip():
            raise FileError(f"{self._path}: the file is empty; a first row with the names was expected.")
        return start, _names(self._path, start)


class _Rejoined(io.RawIOBase):
    """The bytes already read, then the rest of the stream."""

    def __init__(self, start: bytes, rest: IO[bytes]) -> None:
        super().__init__()
        self._start, self._rest = io.BytesIO(start), rest

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._start.read(size) or self._rest.read(size)


def _names(path: str, start: bytes) -> tuple[str, ...]:
    """Return the names in the first row."""
    text = start.decode("utf-8-sig", errors="replace")
    try:
        # Empty lines before the names are skipped, as Arrow does.
        names = next((tuple(row) for row in csv.reader(io.StringIO(text, newline="")) if row), ())
    except csv.Error:
        names = ()
    if not names:
        raise FileError(f"{path}: the first row cannot be read as names.")
    if any("\ufffd" in name for name in names):
        raise FileError(f"{path}: the file is not UTF-8 text.")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise FileError(f"{path}: two columns are called {twice!r}.")
    return names


def _failure(error: Exception, done: int, bad_rows: list[tuple[int | None, int, int]]) -> str:
    """Say what is wrong, in our words."""
    if isinstance(error, _DAMAGED):
        return f"the compressed file is truncated or damaged after data row {done}"
    if bad_rows:
        number, expected, actual = bad_rows[0]
        where = f"data row {number - 1}" if number else f"a row after data row {done}"  # row 1 is the names
        return f"{where} has {actual} field{'' if actual == 1 else 's'}, the first row has {expected}"
    if "UTF8" in str(error):
        return f"the file is not UTF-8 text after data row {done}"
    return f"the file cannot be read as CSV after data row {done} (is a quotation mark left open?)"


def read_sidecar(path: str | Path) -> dict[str, str]:
    """Return the metadata kept next to a CSV (or to what it links to, or was compressed from)."""
    given, linked = Path(path), Path(path).resolve()
    places = [given, linked, *(p.with_suffix("") for p in (given, linked) if is_compressed(p))]
    sidecar = next((found for found in map(sidecar_of, places) if found.exists()), None)
    if sidecar is None:
        return {}
    try:
        found = json.loads(sidecar.read_bytes())
    except OSError as error:
        raise unreadable(sidecar, error) from None
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
        raise FileError(f"{sidecar}: this is not the metadata that masquerade writes next to a CSV file.")
    return found
