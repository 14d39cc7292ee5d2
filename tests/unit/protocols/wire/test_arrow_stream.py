"""Arrow streams from strangers: only the one batch that is due is read, and nothing else does any harm."""

import struct
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import ipc

from masquerade.core.errors import InputError
from masquerade.crypto.errors import DecodingError
from masquerade.protocols.wire.arrow_stream import column, pack, unpack

SCHEMA = pa.schema(
    [
        column("pseudonym", pa.binary(16)),
        column("a", pa.uint8()),
        column("b", pa.uint16()),
        column("ü", pa.uint32()),
    ]
)
WIDTH = 23


def batch_of(rows, schema=SCHEMA, seed=1):
    generator = np.random.default_rng(seed)
    ids = [generator.bytes(16) for _ in range(rows)]
    numbers = [
        pa.array(generator.integers(0, 100, rows).astype(f.type.to_pandas_dtype()), f.type)
        for f in list(schema)[1:]
    ]
    return pa.RecordBatch.from_arrays([pa.array(ids, pa.binary(16)), *numbers], schema=schema)


def stream(batches, schema=SCHEMA, **options):
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, schema, options=ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def read(data, *, most_bytes=1 << 20, most_rows=1000, schema=SCHEMA):
    return unpack(data, most_bytes=most_bytes, most_rows=most_rows, schema=schema)


@pytest.mark.parametrize("rows", [0, 1, 7, 8, 999])
def test_what_is_packed_is_unpacked(rows):
    batch = batch_of(rows)
    found = read(pack(batch))
    found.validate(full=True)
    assert found.equals(batch)
    assert read(pack(batch.slice(rows // 3, rows // 2))).equals(batch.slice(rows // 3, rows // 2))


def test_any_arrow_library_reads_and_writes_it():
    batch = batch_of(100)
    assert ipc.open_stream(pack(batch)).read_all().equals(pa.Table.from_batches([batch]))
    for options in ({}, {"compression": "zstd"}, {"compression": pa.Codec("zstd", 9)}):
        assert read(stream([batch], **options)).equals(batch)


OTHERS = {
    "no batch": lambda: stream([]),
    "two batches": lambda: stream([batch_of(5), batch_of(5)]),
    "bytes at the end": lambda: pack(batch_of(5)) + b"\0",
    "no end": lambda: pack(batch_of(5))[:-8],
    "a file": lambda: b"ARROW1\0\0" + pack(batch_of(5)),
    "another compression": lambda: stream([batch_of(5)], compression="lz4"),
    "an old version": lambda: stream([batch_of(5)], metadata_version=ipc.MetadataVersion.V4),
    "a legacy stream": lambda: stream([batch_of(5)], use_legacy_format=True),
    "too many rows": lambda: pack(batch_of(1001)),
    "nothing": lambda: b"",
}


@pytest.mark.parametrize("what", OTHERS)
def test_another_stream_is_refused(what):
    assert len(read(pack(batch_of(5)))) == 5
    with pytest.raises(DecodingError):
        read(OTHERS[what]())


def changed(place, field):
    return SCHEMA.set(place, field)


SCHEMAS = {
    "another name": changed(1, column("c", pa.uint8())),
    "another width": changed(1, column("a", pa.uint16())),
    "signed": changed(1, column("a", pa.int8())),
    "one less": SCHEMA.remove(3),
    "one more": SCHEMA.append(column("d", pa.uint8())),
    "another order": pa.schema([SCHEMA[i] for i in (0, 2, 1, 3)]),
    "longer pseudonyms": changed(0, column("pseudonym", pa.binary(17))),
    "missing values allowed": changed(1, pa.field("a", pa.uint8())),
    "words about the schema": SCHEMA.with_metadata({"k": "v"}),
    "words about a column": changed(1, column("a", pa.uint8()).with_metadata({"k": "v"})),
    "text": changed(1, column("a", pa.string())),
    "a list": changed(1, column("a", pa.list_(pa.uint8()))),
    "a float": changed(1, column("a", pa.float32())),
    "words of a dictionary": changed(1, column("a", pa.dictionary(pa.uint8(), pa.string()))),
    "truth values": changed(1, column("a", pa.bool_())),
}


@pytest.mark.parametrize("what", SCHEMAS)
def test_other_columns_are_refused(what):
    schema = SCHEMAS[what]
    if what == "words of a dictionary":  # an empty one would come before the batch
        arrays = [
            pa.array([], f.type) if f.name != "a" else pa.array(["x"])[:0].dictionary_encode() for f in schema
        ]
        arrays[1] = pa.DictionaryArray.from_arrays(pa.array([], pa.uint8()), pa.array(["x"]))
    else:
        arrays = [pa.array([], f.type) for f in schema]
    with pytest.raises(DecodingError):
        read(stream([pa.RecordBatch.from_arrays(arrays, schema=schema)], schema))


def test_missing_values_are_refused():
    open_schema = pa.schema([pa.field(field.name, field.type) for field in SCHEMA])
    batch = batch_of(9).to_pydict()
    batch["a"][4] = None
    forged = stream([pa.RecordBatch.from_pydict(batch, schema=open_schema)], open_schema)
    closed = stream([batch_of(9)])
    whole = closed[: schema_end(closed)] + forged[schema_end(forged) :]  # a schema that says none is missing
    with pytest.raises(DecodingError, match="missing values"):
        read(whole)


def schema_end(data):
    return 8 + struct.unpack("<i", data[4:8])[0]


def test_only_columns_without_missing_values_are_packed():
    for field in (pa.field("a", pa.uint8()), column("a", pa.string()), column("a", pa.float64())):
        with pytest.raises(InputError, match="whole numbers or fixed bytes"):
            pack(pa.RecordBatch.from_arrays([pa.array([], field.type)], schema=pa.schema([field])))


def test_a_decompression_bomb_is_refused_before_it_is_decompressed():
    """64 MB of zeros in a few kilobytes: refused by rows, by bytes, and by what the buffer says of itself."""
    schema = pa.schema([column("a", pa.uint8())])
    rows = (1 << 26) + 12_345
    zeros = pa.RecordBatch.from_arrays([pa.array(np.zeros(rows, np.uint8))], schema=schema)
    bomb = pack(zeros)
    assert len(bomb) < 10_000
    assert len(unpack(bomb, most_bytes=rows, most_rows=rows, schema=schema)) == rows
    with allocating() as pool:
        unpack(bomb, most_bytes=rows, most_rows=rows, schema=schema)
    assert pool.max_memory() >= rows  # the pool does see it
    with allocating() as pool:
        with pytest.raises(DecodingError, match="at most 1,000 rows"):
            unpack(bomb, most_bytes=1 << 40, most_rows=1000, schema=schema)
        with pytest.raises(DecodingError, match="bytes"):
            unpack(bomb, most_bytes=1000, most_rows=rows, schema=schema)
        said = struct.pack("<q", rows)
        small = pack(pa.RecordBatch.from_arrays([pa.array(np.zeros(1000, np.uint8))], schema=schema))
        at = bomb.rindex(said)
        for claimed in (1 << 62, rows, 1001 + 64, 999, 0, -2):
            lying = small.replace(
                struct.pack("<q", 1000) + b"\x28\xb5", struct.pack("<q", claimed) + b"\x28\xb5"
            )
            assert lying != small
            with pytest.raises(DecodingError):
                unpack(lying, most_bytes=1 << 62, most_rows=1000, schema=schema)
        # honest about its rows, but the compressed bytes hold 64 MB: never written beyond the announced size
        stuffed = bomb[:at] + struct.pack("<q", 1000) + bomb[at + 8 :]
        stuffed = stuffed.replace(said, struct.pack("<q", 1000))
        with pytest.raises(DecodingError, match="decompressed"):
            unpack(stuffed, most_bytes=1 << 20, most_rows=1000, schema=schema)
    assert pool.max_memory() < 100_000


@contextmanager
def allocating():
    """Count what Arrow allocates, at most at once."""
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    try:
        yield pool
    finally:
        pa.set_memory_pool(before)


def harmless(data):
    """Read a stream: either a valid batch within the limits, or the one error."""
    try:
        found = read(data)
    except DecodingError:
        return
    found.validate(full=True)
    assert found.schema.equals(SCHEMA)
    assert len(found) <= 1000
    assert all(len(column.to_pylist()) == len(found) for column in found.columns)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.binary(max_size=600))
def test_arbitrary_bytes_do_no_harm(data):
    harmless(data)
    harmless(b"\xff\xff\xff\xff" + struct.pack("<i", len(data) // 8 * 8) + data)


GOOD = pack(batch_of(20))


@settings(max_examples=700, deadline=None, derandomize=True)
@given(
    st.lists(
        st.tuples(
            st.integers(0, len(GOOD) - 1),
            st.one_of(
                st.binary(min_size=1, max_size=1),
                st.sampled_from([-(1 << 63), -1, 0, 1, 1 << 31, (1 << 63) - 1]).map(
                    lambda n: struct.pack("<q", n)
                ),
                st.integers(-40, 40).map(lambda n: struct.pack("<i", n)),
            ),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_a_changed_stream_does_no_harm(changes):
    data = bytearray(GOOD)
    for at, new in changes:
        data[at : at + len(new)] = new
    harmless(bytes(data[: len(GOOD)]))


def test_every_changed_byte_and_every_truncation_does_no_harm():
    for at in range(len(GOOD)):
        harmless(GOOD[:at])
        for new in (0, 1, 0x7F, 0x80, 0xFF):
            harmless(GOOD[:at] + bytes([new]) + GOOD[at + 1 :])
