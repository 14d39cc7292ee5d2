"""Delta tables: the files of the newest version, from the log in `_delta_log`.

The package deltalake reads the log; Parquet files are read by masquerade's own reader. The log is untrusted.
Deletion vectors and renamed columns are refused: deltalake's own scan applies them.
"""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import parquet

from masquerade.core.errors import FileError, InputError
from masquerade.frames.memory_bounds import check_parquet
from masquerade.frames.table_formats.snapshot import TableFile, TableVersion, path_within

LOG: Final = "_delta_log"
MOST_FILES: Final = 100_000  # of a log
MOST_LOG: Final = 1 << 30  # bytes of all files of a log
# features that are accepted: harmless, or (deletionVectors) checked separately
HARMLESS: Final = {"timestampNtz", "vacuumProtocolCheck", "v2Checkpoint", "deletionVectors"}


def is_delta(folder: Path) -> bool:
    """Return True if a folder is a Delta table."""
    return (folder / LOG).is_dir()


def read_delta(folder: Path) -> TableVersion:
    """Return the newest version of a Delta table.

    Raises
    ------
    InputError
        If deltalake is not installed.
    FileError
        If the log is damaged, or the version needs a feature that is not supported.
    """
    try:
        from deltalake import DeltaTable  # noqa: PLC0415  (an extra)
    except ImportError:
        raise InputError(f"{folder}: Delta tables need deltalake: pip install 'masquerade[delta]'") from None
    _check_log(folder)
    try:
        table = DeltaTable(str(folder.absolute()))
        version, features = table.version(), set(table.protocol().reader_features or ())
        schema = pa.schema(table.schema().to_arrow())
        added = pa.table(table.get_add_actions()).to_pylist()
        mapped = table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none"
        vectors = pa.RecordBatchReader.from_stream(table.deletion_vectors())
        has_vectors = any(len(batch) for batch in vectors)
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        failed = True  # the library's error may quote data
    else:
        failed = False
    if failed:
        raise FileError(f"{folder}: the log of this Delta table cannot be read (damaged, or too new).")
    title = f"{folder} (Delta, version {version})"
    if has_vectors:
        raise FileError(f"{title}: it has deletion vectors, {_road(folder)}.")
    if mapped or "columnMapping" in features:
        raise FileError(f"{title}: its columns were renamed (column mapping), {_road(folder)}.")
    if unknown := sorted(features - HARMLESS):
        raise FileError(f"{title}: it needs {', '.join(unknown)}, {_road(folder)}.")
    files = [
        TableFile(str(path_within(folder, unquote(file["path"]), title)), file.get("partition") or {})
        for file in added
    ]
    return TableVersion(title, (str(folder),), schema, files)


def _road(folder: Path) -> str:
    return (
        "which this package does not support. Pass what deltalake itself reads: "
        f"deltalake.DeltaTable({str(folder)!r}).scan(), with a policy or schema"
    )


def _check_log(folder: Path) -> None:
    """Raise FileError unless the log has regular files within limits of number, size and memory."""
    size = 0
    for place in (folder / LOG, folder / LOG / "_sidecars"):
        if place.is_symlink():
            raise FileError(f"{place}: is a link, which is not followed.")
        if not place.is_dir():
            continue
        with os.scandir(place) as entries:
            listed = list(islice(entries, MOST_FILES + 1))
        if len(listed) > MOST_FILES:
            raise FileError(f"{place}: has more than {MOST_FILES:,} files: write a checkpoint and clean up.")
        for entry in listed:
            if entry.is_dir(follow_symlinks=False):
                continue
            if not entry.is_file(follow_symlinks=False):
                raise FileError(f"{entry.path}: is not a regular file.")
            size += entry.stat().st_size
            if entry.name.endswith(".parquet"):
                _check_checkpoint(entry.path)
    if size > MOST_LOG:
        raise FileError(f"{folder / LOG}: has more than {MOST_LOG >> 20:,} MiB: clean it up.")


def _check_checkpoint(path: str) -> None:
    """Raise FileError if a checkpoint is damaged, or would take too much memory."""
    try:
        with pa.OSFile(path) as source, parquet.ParquetFile(source) as file:
            check_parquet(path, source, file.metadata, file.schema_arrow.names)
    except FileError:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError, OverflowError, MemoryError):
        failed = FileError(f"{path}: this is not a readable checkpoint of a Delta table.")
    else:
        return
    raise failed
