"""Folders of files: partitions (`key=value`), Delta and Iceberg tables; addresses that are not paths.

The folder of a Delta or Iceberg table also has files of earlier versions and deleted rows: a pattern over its
Parquet files would count these. Such patterns are refused; the folder itself is one version of the table.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa

from masquerade.core.errors import FileError
from masquerade.frames.formats import Format, format_of
from masquerade.frames.table_formats.delta import is_delta, read_delta
from masquerade.frames.table_formats.iceberg import ENDING as METADATA
from masquerade.frames.table_formats.iceberg import is_iceberg, read_iceberg
from masquerade.frames.table_formats.snapshot import TableVersion

MOST_FILES: Final = 100_000
MOST_DEPTH: Final = 20
NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_KEY: Final = re.compile(r"([^=/]+)=(.*)", re.DOTALL)
_WHOLE: Final = re.compile(r"0|-?[1-9][0-9]{0,17}")
_ADDRESS: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
STORES: Final = {
    "s3": ("an object in S3", "s3fs, or pyarrow.dataset.dataset(address) with pyarrow's own S3 file system"),
    "s3a": ("an object in S3", "s3fs, or pyarrow.dataset.dataset(address) with pyarrow's own S3 file system"),
    "gs": ("an object in Google Cloud Storage", "gcsfs, or pyarrow.dataset.dataset(address)"),
    "gcs": ("an object in Google Cloud Storage", "gcsfs, or pyarrow.dataset.dataset(address)"),
    "abfs": ("an object in Azure storage", "adlfs"),
    "abfss": ("an object in Azure storage", "adlfs"),
    "hf": ("a file of the Hugging Face Hub", "polars.scan_parquet(address)"),
    "https": ("a file on a web server", "polars.scan_parquet(address), or download it"),
    "http": ("a file on a web server", "polars.scan_parquet(address), or download it"),
    "hdfs": ("a file in HDFS", "pyarrow.dataset.dataset(address)"),
}


def refuse_address(path: str) -> None:
    """Raise FileError if a text is an address on a network and not a path of this machine."""
    match = _ADDRESS.match(path)
    if match is None or Path(path).exists():
        return
    scheme = match[1].lower()
    if scheme == "file":
        raise FileError(f"{path}: write the path without file://.")
    what, how = STORES.get(scheme, (f"an address ({scheme}://)", "the package for it"))
    raise FileError(
        f"{path}: this is {what}, not a path of this machine; nothing is fetched. Use {how}; "
        "pass the data set, the lazy frame or the files (docs/howto/large-data.md)."
    )


def refuse_table_folder(folder: Path) -> None:
    """Raise FileError if a folder is a Delta or Iceberg table, whose files belong to several versions."""
    kind = "a Delta table" if is_delta(folder) else "an Iceberg table" if is_iceberg(folder) else None
    if kind is not None:
        raise FileError(
            f"{folder}: this is {kind}. Its folder also has files of earlier versions and deleted rows, "
            f"which a pattern would count. Pass the folder itself, {str(folder)!r}, and nothing else."
        )


def snapshot_of(paths: Sequence[str]) -> TableVersion | None:
    """Return the current version if a single Delta or Iceberg table was given."""
    path = Path(paths[0]) if len(paths) == 1 else None
    if path is None:
        return None
    if path.name.endswith(METADATA) and path.is_file():
        return read_iceberg(path)
    if not path.is_dir():
        return None
    if is_delta(path):
        return read_delta(path)
    return read_iceberg(path) if is_iceberg(path) else None


def refuse_table_files(pattern: str, paths: Sequence[str]) -> None:
    """Raise FileError if a pattern matches files of a Delta or Iceberg table."""
    seen: set[Path] = set()
    top = Path(pattern.split("*", 1)[0] or ".").parent
    for path in paths:
        for folder in Path(path).parents:
            if folder in seen:
                break
            seen.add(folder)
            refuse_table_folder(folder)
            if folder == top:
                break


def partition_files(folder: Path) -> list[str] | None:
    """Return the files of a folder with `key=value` folders, sorted; None if it has no such folders."""
    inner = [entry for entry in sorted(folder.iterdir()) if entry.is_dir() and _KEY.fullmatch(entry.name)]
    if not inner:
        return None
    files = list(islice(_files_in(folder, 0), MOST_FILES + 1))
    if len(files) > MOST_FILES:
        raise FileError(f"{folder}: has more than {MOST_FILES:,} files.")
    if not files:
        raise FileError(f"{folder}: its folders contain no file of a known type.")
    return files


def _files_in(folder: Path, depth: int) -> Iterator[str]:
    """Yield the files below a folder. Links are refused: they may lead out of it, or count a file twice."""
    if depth > MOST_DEPTH:
        raise FileError(f"{folder}: folders are nested more than {MOST_DEPTH} deep.")
    refuse_table_folder(folder)
    with os.scandir(folder) as entries:
        listed = list(islice(entries, MOST_FILES + 1))
    if len(listed) > MOST_FILES:
        raise FileError(f"{folder}: has more than {MOST_FILES:,} files.")
    for entry in sorted(listed, key=lambda it: it.name):
        if entry.name.startswith((".", "_")):  # marker files and temporary files of writers
            continue
        path = Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            yield from _files_in(path, depth + 1)
        elif entry.is_symlink() and (path.is_dir() or _is_table(path)):
            raise FileError(f"{path}: is a link. A folder of partitions has its files themselves: copy them.")
        elif _is_table(path):
            if not entry.is_file(follow_symlinks=False):
                raise FileError(f"{path}: is not a regular file.")
            yield str(path)


def _is_table(path: Path) -> bool:
    try:
        return format_of(path) in {Format.PARQUET, Format.CSV, Format.ARROW}
    except FileError:
        return False


def expand_pattern(path: str) -> list[str]:
    """Return the files of a path, of a pattern or of a folder with partitions, sorted by name."""
    refuse_address(path)
    if Path(path).is_dir():
        return partition_files(Path(path)) or [path]
    if not glob.has_magic(path) or Path(path).exists():
        return [path]
    # unlike Path.glob, this skips hidden files, such as those still being written
    files = sorted(glob.glob(path, recursive=True))  # noqa: PTH207
    if not files:
        raise FileError(f"{path}: no file matches.")
    refuse_table_files(path, files)
    return files


def refuse_folder(path: str) -> FileError:
    """Return the error for a folder without partitions; its message suggests a pattern."""
    refuse_table_folder(Path(path))
    return FileError(f"{path}: this is a directory, not a file (try {path.rstrip('/')}/*.parquet).")


def partitions_of(given: Sequence[str], paths: Sequence[str]) -> Partitions | None:
    """Return the partitions if a single folder was given."""
    if len(given) != 1 or list(given) == list(paths) or not Path(given[0]).is_dir():
        return None
    return Partitions(Path(given[0]), paths, text=format_of(paths[0]) is Format.CSV)


class Partitions:
    """The values of `key=value` folders by file, and the type of each key over all files.

    The files are those that were there when the folder was opened.
    """

    def __init__(self, folder: Path, paths: Sequence[str], *, text: bool) -> None:
        self.given, self.paths = (str(folder),), tuple(paths)
        self.values = {path: _values_of(Path(path).relative_to(folder)) for path in paths}
        keys = {tuple(values) for values in self.values.values()}
        if len(keys) > 1:
            raise FileError(
                f"{folder}: its files are not all in folders of the same keys: partition them all by the "
                "same keys."
            )
        self.names = next(iter(keys))
        self.types = {name: self._type(name, text=text) for name in self.names}

    def _type(self, name: str, *, text: bool) -> pa.DataType:
        texts = [values[name] for values in self.values.values() if values[name] is not None]
        is_whole = not text and texts and all(_WHOLE.fullmatch(str(value)) for value in texts)
        return pa.int64() if is_whole else pa.string()

    def extend(
        self, path: str, names: Sequence[str], schema: pa.Schema | None
    ) -> tuple[tuple[str, ...], pa.Schema | None]:
        """Return names and schema of a file's columns followed by the keys of its folders.

        Raises FileError if a key is also a column of the file.
        """
        both = [name for name in self.names if name in names]
        if both:
            raise FileError(f"{path}: column {both[0]!r} is in the file and in the names of its folders.")
        if schema is not None:
            for name in self.names:
                schema = schema.append(pa.field(name, self.types[name]))
        return (*names, *self.names), schema

    def file_columns(self, path: str, selected: Sequence[str], names: Sequence[str]) -> list[str]:
        """Return the columns to read from a file.

        At least one column is read, because a batch without columns would not have a number of rows.
        """
        del path
        return [name for name in selected if name not in self.names] or list(names[:1])

    def add_to(self, batch: pa.RecordBatch, path: str, selected: Sequence[str]) -> pa.RecordBatch:
        """Return a batch of a file with the selected columns, including keys of its folders."""
        columns = [
            self.column(path, name, len(batch)) if name in self.names else batch[name] for name in selected
        ]
        return pa.RecordBatch.from_arrays(columns, names=list(selected))

    def column(self, path: str, name: str, rows: int) -> pa.Array:
        """Return the column of a key for a number of rows of a file; it has the same value in each row."""
        value: Any = self.values[path][name]
        kind = self.types[name]
        if value is not None and pa.types.is_integer(kind):
            value = int(value)
        return pa.nulls(rows, kind) if value is None else pa.repeat(pa.scalar(value, kind), rows)


def _values_of(path: Path) -> Mapping[str, str | None]:
    values: dict[str, str | None] = {}
    for part in path.parts[:-1]:
        match = _KEY.fullmatch(part)
        if match is not None:
            key, value = unquote(match[1]), unquote(match[2])
            if key in values:
                raise FileError(f"{path}: two folders of the path have the key {key!r}.")
            values[key] = None if value == NULL else value
    return values
