"""Tables of SPSS, Stata and SAS, read in a separate process with limits on memory and time.

The library that reads these files is written in C, and a damaged file can crash it. Then only the separate
process ends, and the file is refused. Records pass through a pipe and are never stored in a file, and a crash
writes no core dump.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
from pyarrow import ipc

from masquerade.core.errors import FileError
from masquerade.frames.formats import Format, damage_error, unreadable
from masquerade.frames.statistics_reader import AMBIGUOUS, BATCH, DAMAGED, DESCRIPTION, DONE, HEAD

MOST_MEMORY = 3 << 30  # bytes of address space; an interpreter with its libraries takes a tenth of it
LEAST_SECONDS = 60  # minimum limit of processor time
BYTES_A_SECOND = 1 << 16  # one more second of processor time per this number of bytes of the file
MOST_DESCRIPTION = 1 << 28  # most bytes of column names
_PROGRAM = """
import json, sys
request = json.loads(sys.stdin.readline())
try:
    import resource
except ImportError:
    pass
else:
    for name, most in (("CORE", 0), ("AS", request["memory"]), ("CPU", request["seconds"])):
        kind = getattr(resource, "RLIMIT_" + name)
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        try:
            resource.setrlimit(kind, (most, most))
        except (OSError, ValueError):  # macOS does not support RLIMIT_AS
            if sys.platform == "linux":
                raise
sys.path[:] = request["path"]
from masquerade.frames.statistics_reader import answer
answer(request)
"""
_RECORD = 80  # bytes of a record in a SAS transport file
_TABLE_STARTS = (b"HEADER RECORD*******MEMBER  HEADER RECORD!", b"HEADER RECORD*******MEMBV8  HEADER RECORD!")
_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT", "LANG", "LC_ALL", "TZ")
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}


class StatisticsFile:
    """A file of SPSS, Stata or SAS; `reader` names the library function that reads it."""

    def __init__(self, path: str, kind: Format, reader: str, catalogue: Path | None) -> None:
        self.path, self._kind = path, kind
        try:
            with Path(path).open("rb") as file:
                size = os.fstat(file.fileno()).st_size
        except OSError as error:
            raise unreadable(path, error) from None
        self._request = {
            "file": path,
            "reader": reader,
            "catalogue": None if catalogue is None else str(catalogue),
            "memory": MOST_MEMORY,
            "seconds": LEAST_SECONDS + size // BYTES_A_SECOND,
            "path": _import_path(),
        }

    def describe(self) -> Mapping[str, Any]:
        """Return the `names`, number of `rows`, `widths` in bytes, and labels of `missing` values."""
        reply = None
        for kind, content in self._replies({"columns": None, "rows": 0}):
            reply = json.loads(content) if kind == DESCRIPTION else None
        if reply is None:
            raise self._failure()
        described: Mapping[str, Any] = reply
        return described

    def batches(
        self, columns: Sequence[str], rows: int, missing: Mapping[str, Sequence[str]] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the columns as text, at most `rows` rows at a time.

        Values that the file marks as missing are empty, except those whose label or code `missing` lists for
        the column.
        """
        request = {"columns": list(columns), "rows": rows, "missing": dict(missing or {})}
        for kind, content in self._replies(request):
            if kind != BATCH:
                raise self._failure()
            try:
                batch = ipc.open_stream(content).read_next_batch()
                batch.validate(full=True)
            except (pa.ArrowException, StopIteration):
                batch = None
            if batch is None or batch.schema.names != list(columns):
                raise self._failure()
            yield batch

    def _replies(self, more: Mapping[str, Any]) -> Iterator[tuple[bytes, bytes]]:
        """Start a process, yield its replies, and end it in any case."""
        try:
            process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-I", "-W", "ignore", "-c", _PROGRAM],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ} | _ONE_THREAD,
            )
        except OSError:
            raise self._failure() from None
        with process:
            try:
                if process.stdin is None or process.stdout is None:
                    raise self._failure()
                with suppress(BrokenPipeError), process.stdin as request:
                    request.write(json.dumps({**self._request, **more}).encode() + b"\n")
                yield from self._receive(process.stdout)
            finally:
                process.kill()

    def _receive(self, stream: IO[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """Yield replies until the process is done; raise FileError if it fails or refuses the file."""
        while True:
            head = stream.read(HEAD.size)
            if len(head) < HEAD.size:
                raise self._failure()
            kind, length = HEAD.unpack(head)
            if length > (MOST_MEMORY if kind == BATCH else MOST_DESCRIPTION):
                raise self._failure()
            content = stream.read(length)
            if len(content) < length:
                raise self._failure()
            if kind == DONE:
                return
            if kind == DAMAGED:
                raise damage_error(self.path, self._kind)
            if kind == AMBIGUOUS:
                raise FileError(
                    f"{self.path}: two codes of column {json.loads(content)!r} are read as one category: "
                    "the label of one is the label or the number of the other. Give every code its own label."
                )
            yield kind, content

    def _failure(self) -> FileError:
        article = "an" if self._kind is Format.SPSS else "a"
        return FileError(
            f"{self.path}: cannot be read as {article} {self._kind.value} file (the reader failed)."
        )


def check_transport(path: str) -> None:
    """Raise `FileError` if a SAS transport file is truncated, or has tables that would be read as rows.

    The format does not store the number of rows, and consists of records of 80 bytes. The library reads
    further tables as rows of the first table, or not at all.
    """
    tables = size = 0
    try:
        with Path(path).open("rb") as file:
            while piece := file.read(_RECORD << 12):
                size += len(piece)
                tables += sum(
                    piece.startswith(_TABLE_STARTS, place) for place in range(0, len(piece), _RECORD)
                )
    except OSError as error:
        raise unreadable(path, error) from None
    if size % _RECORD:
        raise damage_error(path, Format.SAS)
    if tables > 1:
        raise FileError(f"{path}: this SAS file has {tables} tables; write each to a file of its own.")


def _import_path() -> list[str]:
    """Return the folders that this process imports from, except the current working directory."""
    source = Path(__file__).resolve().parents[2]
    return [str(source), *(str(Path(one).resolve()) for one in sys.path if one)]
