"""Iceberg tables: the files of the current snapshot, from a metadata file and its manifests.

The package pyiceberg parses metadata and manifests; Parquet files are read by masquerade's own reader.
Metadata are untrusted: pyiceberg gets files of the table's folder only, within limits, and none of the
properties by which a metadata file can name Python code or a service. Delete files are refused: pyiceberg's
own scan applies them.
"""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from masquerade.core.errors import FileError, InputError, MasqueradeError
from masquerade.core.util.json_text import parse_json, read_text
from masquerade.frames.table_formats.snapshot import TableFile, TableVersion, path_within

ENDING: Final = ".metadata.json"
HINT: Final = "version-hint.text"
MOST_METADATA: Final = 1 << 24  # bytes of a metadata file
MOST_MANIFEST: Final = 1 << 28  # bytes of a decompressed manifest
MOST_FILES: Final = 100_000
_FILE: Final = re.compile(r"file:(?://)?(?=/)")
_HINTED: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")
_MAGIC: Final = b"Obj\x01"
_SYNC: Final = 16  # bytes of the mark after each block of an Avro file


def is_iceberg(folder: Path) -> bool:
    """Return True if a folder is an Iceberg table."""
    metadata = folder / "metadata"
    return metadata.is_dir() and any(metadata.glob(f"*{ENDING}"))


def read_iceberg(path: Path) -> TableVersion:
    """Return the current snapshot of an Iceberg table: of its folder, or of one of its metadata files.

    Raises
    ------
    InputError
        If pyiceberg is not installed.
    FileError
        If the current metadata file is unknown, metadata are damaged, or there are delete files.
    """
    try:
        from pyiceberg.table.metadata import TableMetadataUtil  # noqa: PLC0415  (an extra)
    except ImportError:
        raise InputError(
            f"{path}: Iceberg tables need pyiceberg: pip install 'masquerade[iceberg]'"
        ) from None
    file = path if path.name.endswith(ENDING) else _current_metadata(path)
    folder = file.parent.parent
    if file.is_symlink() or not file.is_file():
        raise FileError(f"{file}: is not a regular file.")
    text = read_text(file, most=MOST_METADATA)
    try:
        parse_json(text, most=MOST_METADATA)  # nesting, numbers and repeated keys, before pyiceberg parses it
    except InputError as error:
        raise FileError(f"{file}: {error}") from None
    try:
        snapshot = _snapshot_of(TableMetadataUtil.parse_raw(text), path, folder)
    except MasqueradeError:
        raise
    except Exception:  # noqa: BLE001  (the library's errors are of many types, and may quote data)
        failed = FileError(
            f"{file}: the metadata of this Iceberg table cannot be read (damaged, or too new)."
        )
    else:
        return snapshot
    raise failed


def _current_metadata(folder: Path) -> Path:
    """Return the metadata file that a folder itself calls current."""
    place = folder / "metadata"
    hint = place / HINT
    if hint.is_file() and not hint.is_symlink():
        with hint.open("rb") as stream:
            text = stream.read(256).decode("ascii", errors="replace").strip()
        name = text if text.endswith(ENDING) else f"v{text}{ENDING}" if text.isdigit() else f"{text}{ENDING}"
        if not _HINTED.fullmatch(name) or not (place / name).is_file():
            raise FileError(f"{hint}: does not name a metadata file of this table.")
        return place / name
    files = sorted(place.glob(f"*{ENDING}"))
    if len(files) == 1:
        return files[0]
    raise FileError(
        f"{folder}: this is an Iceberg table with {len(files)} metadata files, and only its catalog says "
        f"which is current. Pass that file: table.metadata_location, such as {files[-1]}."
    )


def _snapshot_of(metadata: Any, path: Path, folder: Path) -> TableVersion:
    """Return the files of the current snapshot and the columns of the current schema."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow  # noqa: PLC0415  (an extra)
    from pyiceberg.manifest import DataFileContent, ManifestContent, read_manifest_list  # noqa: PLC0415

    current = metadata.current_snapshot()
    if current is None:
        raise FileError(f"{path}: this Iceberg table has no records.")
    title = f"{path} (Iceberg, snapshot {current.snapshot_id})"
    local = _local_io(folder, title)
    schema = metadata.schema()
    files: list[TableFile] = []
    # not current.manifests, whose cache goes by path, over all tables of the process
    for manifest in read_manifest_list(local.new_input(current.manifest_list)):
        entries = manifest.fetch_manifest_entry(local)
        contents = {entry.data_file.content for entry in entries}
        if entries and (manifest.content != ManifestContent.DATA or contents != {DataFileContent.DATA}):
            raise FileError(
                f"{title}: it has delete files (deleted rows), which are not read here. Pass what pyiceberg "
                "itself reads: table.scan().to_arrow_batch_reader(), with a policy or schema."
            )
        spec = metadata.specs()[manifest.partition_spec_id] if entries else None
        files += [_file_of(entry.data_file, spec, schema, folder, title) for entry in entries]
        if len(files) > MOST_FILES:
            raise FileError(f"{title}: has more than {MOST_FILES:,} files.")
    mapping = metadata.name_mapping()
    return TableVersion(
        title,
        (str(path),),
        pa.schema([one.remove_metadata() for one in schema_to_pyarrow(schema)]),
        files,
        {one.name: one.field_id for one in schema.fields},
        {} if mapping is None else {n: one.field_id for one in mapping.root for n in one.names},
        {one.name: one.initial_default for one in schema.fields if one.initial_default is not None},
    )


def _file_of(data: Any, spec: Any, schema: Any, folder: Path, title: str) -> TableFile:
    """Return a data file, and the values of partitions that are the values of a column."""
    if str(data.file_format.value).upper() != "PARQUET":
        raise FileError(f"{title}: its files are {data.file_format.value}, and only Parquet is read.")
    values: dict[str, Any] = {}
    for place, part in enumerate(spec.fields):
        name = schema.find_column_name(part.source_id)
        if str(part.transform) == "identity" and name is not None:
            values[name] = data.partition[place]
    return TableFile(str(path_within(folder, _local(data.file_path), title)), values)


def _local(location: str) -> str:
    return _FILE.sub("", location, count=1)


def _local_io(folder: Path, title: str) -> Any:
    """Return an IO of pyiceberg that only reads Avro files of the folder, within limits."""
    from pyiceberg.io import FileIO, InputFile  # noqa: PLC0415  (an extra)

    class FolderFile(InputFile):
        def __init__(self, location: str, path: Path) -> None:
            super().__init__(location)
            self._path = path

        def __len__(self) -> int:
            return self._path.stat().st_size

        def exists(self) -> bool:
            return self._path.is_file()

        def open(self, seekable: bool = True) -> io.BytesIO:  # noqa: ARG002, FBT001, FBT002
            with self._path.open("rb") as stream:
                content = stream.read(MOST_MANIFEST + 1)
            check_avro(content, self._path)
            return io.BytesIO(content)

    class FolderIO(FileIO):
        def new_input(self, location: str) -> FolderFile:
            return FolderFile(location, path_within(folder, _local(location), title))

        def new_output(self, location: str) -> Any:
            raise NotImplementedError(location)

        def delete(self, location: Any) -> None:
            raise NotImplementedError(location)

    return FolderIO()


def check_avro(content: bytes, path: Path) -> None:
    """Raise FileError if an Avro file is damaged, or its blocks exceed the limit when decompressed."""
    try:
        total = sum(_block_sizes(io.BytesIO(content)))
    except (ValueError, IndexError, zlib.error, pa.ArrowException, OSError):
        raise FileError(f"{path}: this is not a readable manifest (truncated or damaged).") from None
    if max(len(content), total) > MOST_MANIFEST:
        raise FileError(f"{path}: this manifest takes more than {MOST_MANIFEST >> 20} MiB of memory.")


def _block_sizes(stream: io.BytesIO) -> Iterator[int]:
    """Yield the decompressed size of each block of an Avro file, decompressing at most the limit."""
    if stream.read(len(_MAGIC)) != _MAGIC:
        raise ValueError
    codec = b"null"
    while count := _number(stream):
        if count < 0:  # followed by its size in bytes
            _number(stream)
        for _ in range(abs(count)):
            key, value = _bytes(stream), _bytes(stream)
            codec = value if key == b"avro.codec" else codec
    _exactly(stream, _SYNC)
    left = MOST_MANIFEST
    while stream.tell() < len(stream.getbuffer()):
        records, block = _number(stream), _bytes(stream)
        if not 0 <= records <= MOST_MANIFEST:
            raise ValueError
        _exactly(stream, _SYNC)
        size = _size(codec, block, left)
        left -= min(size, left)
        yield size


def _size(codec: bytes, block: bytes, most: int) -> int:
    if codec == b"null":
        return len(block)
    if codec == b"deflate":
        return len(zlib.decompressobj(-zlib.MAX_WBITS).decompress(block, most + 1))
    if codec == b"zstandard":
        with pa.CompressedInputStream(pa.BufferReader(block), "zstd") as plain:
            return len(plain.read(most + 1))
    raise ValueError


def _number(stream: io.BytesIO) -> int:
    """Return an integer of variable length in zigzag code."""
    value = 0
    for shift in range(0, 70, 7):
        byte = _exactly(stream, 1)[0]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1)
    raise ValueError


def _bytes(stream: io.BytesIO) -> bytes:
    size = _number(stream)
    if size < 0:
        raise ValueError
    return _exactly(stream, size)


def _exactly(stream: io.BytesIO, size: int) -> bytes:
    content = stream.read(size)
    if len(content) < size:
        raise ValueError
    return content
