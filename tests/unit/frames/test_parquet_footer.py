"""Footers of untrusted Parquet files: some end the process in pyarrow, all of these are refused."""

from __future__ import annotations

import base64
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyarrow.parquet import encryption

from masquerade.core.errors import FileError
from masquerade.frames import thrift
from masquerade.frames.file_reader import open_batches
from masquerade.frames.parquet_footer import read_row_groups
from masquerade.frames.thrift import ThriftReader

LISTS = base64.b64decode(
    "UEFSMRUEFTAVMEwVBhUAEgAAAQAAAAAAAAACAAAAAAAAAAMAAAAAAAAAFQAVMhUyLBU2FRAVBhUGHBgIAwAAAAAAAAAYCAEAAAAA"
    "AAAAFgAoCAMAAAAAAAAAGAgBAAAAAAAAABERAAAABQAAAAmSJEkCAgAAADYDAgkkSZIkSZIkABUEGUw1ABgGc2NoZW1hFQIANQIY"
    "AWEVAhUGTDwAAAA1BBgEbGlzdBUCABUEJQIYB2VsZW1lbnQAFiQZHBkcJgAcFQQZNQAGEBk4AWEEbGlzdAdlbGVtZW50FQAWNhb8"
    "ARb8ASZUJggcGAgDAAAAAAAAABgIAQAAAAAAAAAWACgIAwAAAAAAAAAYCAEAAAAAAAAAEREAGSwVBBUAFQIAFQAVEBUCADwpJiQS"
    "GUYAAAA2AAAAFvwBFiQmCBb8AQAoIHBhcnF1ZXQtY3BwLWFycm93IHZlcnNpb24gMjYuMC4xGRwcAAAA5gAAAFBBUjE="
)
TEXTS = base64.b64decode(
    "UEFSMRUEFRoVHkwVBBUAEgAADTADAAAAeWVzAgAAAG5vFQAVEhUWLBUEFRAVBhUGHDYAKAN5ZXMYAm5vEREAAAAJIAIAAAAEAQED"
    "AhUEFSAVJEwVBBUAEgAAEDwBAAAAAAAAAAIAAAAAAAAAFQAVEhUWLBUEFRAVBhUGHBgIAgAAAAAAAAAYCAEAAAAAAAAAFgAoCAIA"
    "AAAAAAAAGAgBAAAAAAAAABERAAAACSACAAAABAEBAwIVBBk8NQAYBnNjaGVtYRUEABUMJQIYAWElAEwcAAAAFQQlAhgBYgAWBBkc"
    "GSwmABwVDBk1AAYQGRgBYRUCFgQWiAEWkAEmQiYIHDYAKAN5ZXMYAm5vEREAGSwVBBUAFQIAFQAVEBUCADwWChkGGSYABAAAACYA"
    "HBUEGTUABhAZGAFiFQIWBBbMARbUASbYASaYARwYCAIAAAAAAAAAGAgBAAAAAAAAABYAKAgCAAAAAAAAABgIAQAAAAAAAAAREQAZ"
    "LBUEFQAVAgAVABUQFQIAPCkGGSYABAAAABbUAhYEJggW5AIAKCBwYXJxdWV0LWNwcC1hcnJvdyB2ZXJzaW9uIDI2LjAuMRksHAAA"
    "HAAAABABAABQQVIx"
)
BY_PYARROW = """
import sys
from pyarrow import parquet
known = parquet.read_metadata(sys.argv[1])
[known.row_group(0).column(number).compression for number in range(known.num_columns)]
"""
BY_US = """
import sys
from masquerade.core.errors import FileError
from masquerade.frames.file_reader import open_batches
try:
    with open_batches(sys.argv[1]) as batches:
        list(batches)
except FileError as error:
    print(error)
"""
EVERY_BYTE = """
import sys
from pathlib import Path
from masquerade.core.errors import FileError
from masquerade.frames.file_reader import open_batches
path, read, refused = Path(sys.argv[1]), 0, 0
content = path.read_bytes()
length = int.from_bytes(content[-8:-4], "little")
for place in range(len(content) - 8 - length, len(content) - 8):
    for byte in {0, 1, 2, 255, content[place] ^ 1, content[place] ^ 16, content[place] ^ 128}:
        path.write_bytes(content[:place] + bytes([byte]) + content[place + 1 :])
        try:
            with open_batches(path) as batches:
                list(batches)
            read += 1
        except FileError:
            refused += 1
print(read > 100, refused > 100)
"""
HOSTILE = {
    "levels of the schema": (LISTS, 148, 0),
    "levels of the schema's list": (LISTS, 175, 0),
    "a short histogram": (LISTS, 296, 57),
    "codec": (LISTS, 220, 16),
    "bytes of text in a column of numbers": (TEXTS, 200, 0),
}


def run_apart(code: str, path: Path) -> subprocess.CompletedProcess[str]:
    """Run Python code about a file in a process of its own."""
    return subprocess.run(  # noqa: S603
        [sys.executable, "-W", "ignore", "-c", code, str(path)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_ends_the_process_of_pyarrow_is_refused(name, tmp_path):
    path, (content, place, byte) = tmp_path / "a.parquet", HOSTILE[name]
    path.write_bytes(content)
    assert run_apart(BY_PYARROW, path).returncode == 0
    path.write_bytes(content[:place] + bytes([byte]) + content[place + 1 :])
    assert run_apart(BY_PYARROW, path).returncode == -signal.SIGABRT
    done = run_apart(BY_US, path)
    assert done.returncode == 0, done.stderr[-300:]
    assert "this is not a readable Parquet file" in done.stdout


@pytest.mark.parametrize("content", [LISTS, TEXTS], ids=["lists", "texts"])
def test_a_footer_with_any_byte_changed_is_read_or_refused(content, tmp_path):
    path = tmp_path / "a.parquet"
    path.write_bytes(content)
    done = run_apart(EVERY_BYTE, path)
    assert (done.returncode, done.stdout) == (0, "True True\n"), done.stderr[-300:]


class Keys(encryption.KmsClient):
    """A key service that wraps nothing."""

    def __init__(self, _config: object) -> None:
        super().__init__()

    def wrap_key(self, key: bytes, _name: str) -> bytes:
        return base64.b64encode(key)


def test_a_file_with_encrypted_columns_is_refused_by_its_reason(tmp_path):
    path, table = tmp_path / "a.parquet", pa.table({"a": ["yes", "no"], "b": [1, 2]})
    wanted = encryption.EncryptionConfiguration("footer", column_keys={"key": ["a"]}, plaintext_footer=True)
    properties = encryption.CryptoFactory(Keys).file_encryption_properties(
        encryption.KmsConnectionConfig(), wanted
    )
    with parquet.ParquetWriter(path, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)
    assert run_apart(BY_PYARROW, path).returncode == -signal.SIGABRT
    with pytest.raises(FileError, match="columns of this Parquet file are encrypted"):
        list(open_batches(path, ["b"]))


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "brotli", "zstd", "lz4"])
def test_column_chunks_are_described_as_arrow_does(compression, tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table(
        {
            "text": [None if i % 7 == 0 else f"text {i % 1000}" for i in range(9000)],
            "lists": [[i, i] for i in range(9000)],
            "parts": [{"x": i, "y": [{"z": str(i)}]} for i in range(9000)],
            "number": pa.array(range(9000), pa.int64()),
        }
    )
    parquet.write_table(
        table, path, compression=compression, row_group_size=4000, use_dictionary=["text"],
        write_page_index=True, store_decimal_as_integer=True,
    )  # fmt: skip
    known = parquet.read_metadata(path)
    with pa.OSFile(str(path)) as source:
        groups = list(read_row_groups("a", source, known))
    assert [rows for rows, _ in groups] == [4000, 4000, 1000]
    for place, (_, chunks) in enumerate(groups):
        assert len(chunks) == known.num_columns == 5
        for number, chunk in enumerate(chunks):
            arrow = known.row_group(place).column(number)
            for name in chunk._fields[1:]:
                assert getattr(chunk, name) == (getattr(arrow, name) or 0)
            assert chunk.column.path == arrow.path_in_schema


def varint(number: int) -> bytes:
    """Return an unsigned number of the compact protocol."""
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + varint(number >> 7)


def packed(kind: int, value: object) -> bytes:
    """Return a value of the compact protocol."""
    if kind == thrift.STRUCT:
        return structure(*value)
    if kind == thrift.LIST:
        inner, items = value
        return bytes([0xF0 | inner]) + varint(len(items)) + b"".join(packed(inner, item) for item in items)
    return varint(value << 1 if value >= 0 else (-value << 1) - 1)


def structure(*fields: tuple[int, int, object]) -> bytes:
    """Return a structure: number, type and value of each field."""
    return (
        b"".join(bytes([kind]) + varint(field << 1) + packed(kind, value) for field, kind, value in fields)
        + b"\0"
    )


NUMBERS = {1: 2, 4: 0, 5: 1, 6: 9, 7: 9, 9: 4}


def footer(
    *, meta_data=True, chunks=1, groups=1, rows=1, kinds=thrift.INT64, more=(), **changes: int
) -> bytes:
    """Return a footer with a column of whole numbers, as far as it is read here."""
    numbers = NUMBERS | {int(name[1:]): value for name, value in changes.items()}
    described = [(n, thrift.INT32 if n in (1, 4) else kinds, value) for n, value in numbers.items()]
    chunk = [(3, thrift.STRUCT, [*described, *more])] if meta_data else []
    group = [(1, thrift.LIST, (thrift.STRUCT, [chunk] * chunks)), (3, thrift.INT64, rows)]
    return structure((4, thrift.LIST, (thrift.STRUCT, [group] * groups)))


def read_footer(data: bytes) -> list[int]:
    """Return the rows of the row groups of a footer, of a file with one column of whole numbers."""
    sink = pa.BufferOutputStream()
    parquet.write_table(pa.table({"a": pa.array([1], pa.int64())}), sink)
    known = parquet.read_metadata(pa.BufferReader(sink.getvalue()))
    content = b"PAR1" + data + len(data).to_bytes(4, "little") + b"PAR1"
    return [rows for rows, _ in read_row_groups("a", pa.BufferReader(content), known)]


@pytest.mark.parametrize(
    "data",
    [
        footer(meta_data=False),
        footer(chunks=0),
        footer(chunks=2),
        footer(groups=0),
        footer(groups=2),
        footer(rows=-1),
        footer(kinds=thrift.INT32),
        footer(_1=1),
        footer(_1=99),
        footer(_1=-1),
        footer(_4=8),
        footer(_4=1 << 31),
        footer(_5=-1),
        footer(_9=-4),
        footer(more=[(5, thrift.INT64, 1)]),  # a second number of values
        footer(more=[(16, thrift.INT64, 1)]),
        footer(more=[(16, thrift.STRUCT, [(1, thrift.INT64, 9)])]),
        footer(more=[(16, thrift.STRUCT, [(2, thrift.LIST, (thrift.INT64, [1, 2]))])]),
        footer(more=[(16, thrift.STRUCT, [(3, thrift.LIST, (thrift.INT64, [1, 2, 3]))])]),
        footer(more=[(16, thrift.STRUCT, [(3, thrift.LIST, (thrift.INT32, [1, 2]))])]),
        footer()[:-1],
        footer()[:20],
        b"",
    ],
)
def test_a_footer_that_contradicts_the_schema_is_refused(data):
    assert read_footer(footer(more=[(16, thrift.STRUCT, [(3, thrift.LIST, (thrift.INT64, [0, 1]))])])) == [1]
    with pytest.raises(ValueError, match=r"^$"):
        read_footer(data)


def skip_all(reader: ThriftReader) -> list[int]:
    """Return the types of the fields of a structure, after passing over their values."""
    kinds = []
    for _, kind in reader.fields():
        kinds.append(kind)
        reader.skip(kind)
    return kinds


@pytest.mark.parametrize(
    "data",
    [
        b"\x19" * 100_000,  # lists within lists
        b"\x1c" * 100_000,  # structures within structures
        b"\x19\xf9" + varint(1 << 60),  # a list longer than the data
        b"\x1b" + varint(1 << 60) + b"\x33",  # a map
        b"\x1d\x00",  # a type that there is not
        b"\x15\x02" * 33 + b"\x00",  # more fields than any structure has
        b"\x15" + b"\xff" * 10 + b"\x00",  # a number of 70 bits
    ],
)
def test_thrift_that_has_no_end_is_refused(data):
    with pytest.raises(ValueError, match=r"^$"):
        skip_all(ThriftReader(data))


def test_thrift_values_of_every_type_are_passed_over():
    values = (
        b"\x11\x12\x13\x07\x14\x04\x15\x04\x16\x04\x17" + b"\0" * 8 + b"\x18\x02ab"
        + b"\x19\x21\x01\x02\x1a\x15\x04\x1b\x01\x58\x02\x01c\x1b\x00\x1c\x00"
    )  # fmt: skip
    reader = ThriftReader(values + b"\x00")
    assert skip_all(reader) == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 11, 12]
    assert reader.place == len(values) + 1
