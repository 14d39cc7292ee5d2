"""Tables of SPSS, Stata and SAS, read in a process of its own within bounds of memory and time.

The library that reads them is C that a damaged file can crash: what dies is then the other process, and the
file is refused. Records come through a pipe and lie in no file, and a crash leaves no image of its memory.
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
from masquerade.frames.formats import Format, damaged, unreadable
from masquerade.frames.statistics_reader import AMBIGUOUS, BATCH, DAMAGED, DESCRIPTION, DONE, HEAD

MOST_MEMORY = 3 << 30  # bytes of address space: an interpreter with its libraries takes a tenth
LEAST_SECONDS = 60  # of processor time for any file
BYTES_A_SECOND = 1 << 16  # of a file: one more second for as many
MOST_DESCRIPTION = 1 << 28  # bytes of names
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
        except (OSError, ValueError):  # macOS knows no bound of AS
            if sys.platform == "linux":
                raise
sys.path[:] = request["path"]
from masquerade.frames.statistics_reader import answer
answer(request)
"""
_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT", "LANG", "LC_ALL", "TZ")
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}


class StatisticsFile:
    """A file and how it is read: `reader` is the name of the library's function for it."""

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
        """Return the `names`, the number of `rows` and the `widths` of the columns in bytes."""
        reply = None
        for kind, content in self._replies({"columns": None, "rows": 0}):
            reply = json.loads(content) if kind == DESCRIPTION else None
        if reply is None:
            raise self._failure()
        described: Mapping[str, Any] = reply
        return described

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the columns as text, at most `rows` rows at a time."""
        for kind, content in self._replies({"columns": list(columns), "rows": rows}):
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
        """Yield what a new process replies; it is gone once this ends, however that is."""
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
                raise damaged(self.path, self._kind)
            if kind == AMBIGUOUS:
                raise FileError(
                    f"{self.path}: two codes of column {json.loads(content)!r} are read as one category: "
                    "one has the label or the number of the other as its label. Give every code its own."
                )
            yield kind, content

    def _failure(self) -> FileError:
        article = "an" if self._kind is Format.SPSS else "a"
        return FileError(
            f"{self.path}: cannot be read as {article} {self._kind.value} file (the reader failed)."
        )


def _import_path() -> list[str]:
    """Return the folders that this process imports from, but for the folder that it happens to be in."""
    source = Path(__file__).resolve().parents[2]
    return [str(source), *(str(Path(one).resolve()) for one in sys.path if one)]
