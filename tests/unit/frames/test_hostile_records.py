"""Files of records that do harm: a small file may claim memory, time or rows that nobody has.

Each is read in a process of its own, whose peak of memory is measured.
"""

import base64
import gzip
import signal
import struct
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyreadstat
import pytest
from pyarrow import csv as arrow_csv
from pyarrow import ipc, parquet

import masquerade as mq
from masquerade.core.errors import FileError, UnknownValue
from masquerade.frames import arrow_readers, file_reader, memory_bounds, statistics_process
from masquerade.frames.file_reader import open_batches
from masquerade.frames.label_codes import NEARLY, encode

MOST_PEAK = 128  # MiB above what the process takes before it opens a file
ENDLESS_ARROW = base64.b64decode(
    "QVJST1cxAAD/////cAAAABAAAAAAAAoADAAGAAUACAAKAAAAAAEEAAwAAAAIAAgAAAAEAAgAAAAEAAAAAQAAABQAAAAQABQACAAG"
    "AAcADAAAABAAEAAAAAAAAQUQAAAAGAAAAAEAAAAAAAAAAQAAAGEAAAAEAAQABAAAAAAAAAD/////mAAAABQAAAAAAAAADAAWAAYA"
    "BQAIAAwADAAAAAADBAAYAAAAGAAAAAAAAAAAAAoAGAAMAAQACAAKAAAATAAAABAAAACYAAAAQVJST1cxAAIAAAAAAAAAAAAAAAMA"
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAQAMAAAAAAAAABAAAP8AAAAABQAAAAAAAAAAAAAAAQAAAAIAAAAAAAAAAAAAAAAAAAAA"
    "AAAAAAAAQAUAAAAAAAAAeWVzbm8AAAD/////AAAAABAAAAAMABQABgAIAAwAEAAMAACAAAAEADgAAAAoAAAABAAAAAEAAACAAAAA"
    "AAAAAHllc25vAAAA/////wAAAAAQAAAADAAUAAYACAAMABAADAAAAAAABAA4AAAAKAAAAAQAAAABAAAAgAAAAAAAAAB5ZXNubwAA"
    "AP////8AAAAAEAAAAAwAFAAGAAgADAAQAAwAAAAAAAQAOAAAACgAAAAEAAAAAQAAAIAAAAAAAAAAoAAAAAAAAAAYAAAAAAAAAAAA"
    "AAAAAAAACAAIAAAABAAIAAAABAAAAAAAAAD/////EAAUAAgABgAHAAwAAAAQABAAAAAAAAEFEAAAABgAAAAEAAAAAAAAAAEAAAAA"
    "AAAABAAEAAQAAACYAAAAQVJST1cx"
)
CRASH_ZSAV = base64.b64decode(
    "JEZMM0AoIykgU1BTUyBEQVRBIEZJTEUgLSBodHRwczovL2dpdGh1Yi5jb20vV2l6YXJkTWFjL1JlYWRTdGF0IAIAAAAFAAAAAgAA"
    "AAAAAAADAAAAAAAAAAAAWUAxOCBOb3YgMjYwMDo1MDo0MyAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAg"
    "ICAgICAgICAgICAgICAgICAgICAgICAAAAACAAAAAIAAAAEAAAAAAAAAAggFAAIIBQBBICAgICAgIAEAAABBICAgAgAAABQAAAAB"
    "AAAAAAAAAAAUAQAAFAEAQiAgICAgICABAAAAQiAgIAIAAAD/////AAAAAAAAAAABHQEAAR0BACAgICAgICAgAgAAAP////8AAAAA"
    "AAAAAAEdAQABHQEAICAgICAgICACAAAAAAAAAAEAAAAAAAAAAggFAAIIBQBDICAgICAgIAEAAABDICAgAwAAAAIAAAAAAAAAAADw"
    "PwN5ZXMgICAgAAAAAAAAAEACbm8gICAgIAQAAAABAAAAAQAAAAcAAAADAAAABAAAAAgAAAAUAAAAAAAAAAAAAAD/////AQAAAAEA"
    "AAACAAAA6f0AAAcAAAAEAAAACAAAAAMAAAD////////v/////////+9//v//////7/8HAAAAFAAAAAEAAAAFAAAAVVRGLTgHAAAA"
    "CwAAAAQAAAAJAAAAAAAAAAgAAAABAAAAAAAAAAgAAAAAAAAAAAAAAAgAAAABAAAABwAAAA0AAAABAAAACwAAAEE9YQlCPWIJQz1j"
    "BwAAABAAAAAIAAAAAgAAAAEAAAAAAAAAAwAAAAAAAADnAwAAAAAAAIACAAAAAAAAygIAAAAAAAAwAAAAAAAAAHicS/37799fBgaG"
    "ytRiBRBgAIMf9mlA8f9AVl4+WFgh9e/fv+l/GBgqsACQPAD9fhwenP////////8AAAAAAAAAAADwPwABAAAAgAIAAAAAAACYAgAA"
    "AAAAAEgAAAAyAAAA"
)
CRASH_SAV = base64.b64decode(
    "JEZMMkAoIykgU1BTUyBEQVRBIEZJTEUgLSBodHRwczovL2dpdGh1Yi5jb20vV2l6YXJkTWFjL1JlYWRTdGF0IAIAAAAFAAAAAAAA"
    "AAAAAAADAAAAAAAAAAAAWUAxOCBOb3YgMjYwMDo1MjoyMSAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAg"
    "ICAgICAgICAgICAgICAgICAgICAgICAAAAACAAAAAAAEAAEAAAAAAAAAAggFAAIIBQBBICAgICAgIAEAAABBICAgAgAAABQAAAAB"
    "AAAAAAAAAAAUAQAAFAEAQiAgICAgICABAAAAQiAgIAIAAAD/////AAAAAAAAAAABHQEAAR0BACAgICAgICAgAgAAAP////8AAAAA"
    "AAAAAAEdAQABHQEAICAgICAgICACAAAAAAAAAAEAAAAAAAAAAggFAAIIBQBDICAgICAgIAEAAABDICAgAwAAAAIAAAAAAAAAAADw"
    "PwN5ZXMgICAgAAAAAAAAAEACbm8gICAgIAQAAAABAAAAAQAAAAcAAAADAAAABAAAAAgAAAAUAAAAAAAAAAAAAAD/////AQAAAAEA"
    "AAACAAAA6f0AAAcAAAAEAAAACAAAAAMAAAD////////v/////////+9//v//////7/8HAAAAFAAAAAEAAAAFAAAAVVRGLTgHAAAA"
    "CwAAAAQAAAAJAAAAAAAAAAgAAAABAAAAAAAAAAgAAAAAAAAAAAAAAAgAAAABAAAABwAAAA0AAAABAAAACwAAAEE9YQlCPWIJQz1j"
    "BwAAABAAAAAIAAAAAgAAAAEAAAAAAAAAAwAAAAAAAADnAwAAAAAAAAAAAAAAAPA/eWVzICAgICAgICAgICAgICAgICAgICAgAAAA"
    "AAAA+D8AAAAAAAAAQG5vICAgICAgICAgICAgICAgICAgICAgIP///////+//AAAAAAAA8D94eHh4eHh4eHh4eHh4eHh4eHh4eCAg"
    "ICAAAAAAAAAIQA=="
)
READ = """
import resource, sys
from pathlib import Path
import masquerade as mq
from masquerade.core.errors import FileError, UnknownValue
from masquerade.frames.file_reader import open_batches
from masquerade.frames.label_codes import NEARLY, encode
def peak():
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
base = peak()
resource.setrlimit(resource.RLIMIT_CPU, (120, 120))
try:
    with open_batches(Path(sys.argv[1])) as batches:
        rows = sum(len(batch) for batch in batches)
    print("read", rows)
except FileError as error:
    print("refused", error)
print((peak() - base) >> 10)
"""


def read_apart(path):
    """Return what comes of reading a file in another process, and the MiB that this took."""
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-W", "ignore", "-c", READ, str(path)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-300:])
    *words, peak = done.stdout.splitlines()
    return "\n".join(words), int(peak)


def write_arrow(path, table, compression="zstd"):
    with ipc.new_file(path, table.schema, options=ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table)


def long_text():
    return pa.table({"a": ["\0" * (300 << 20)]})


LARGE = {
    "page.parquet": lambda path: parquet.write_table(
        long_text(), path, compression="zstd", use_dictionary=False, write_statistics=False
    ),
    "dictionary.parquet": lambda path: parquet.write_table(
        long_text(), path, compression="zstd", write_statistics=False
    ),
    "numbers.arrow": lambda path: write_arrow(path, pa.table({"a": np.zeros(40_000_000, np.int64)})),
    "text.arrow": lambda path: write_arrow(path, long_text()),
    "dictionary.arrow": lambda path: write_arrow(
        path, pa.table({"a": long_text()["a"].combine_chunks().dictionary_encode()})
    ),
}


@pytest.mark.parametrize("name", LARGE)
def test_a_small_file_that_unpacks_to_hundreds_of_megabytes_is_refused_before(name, tmp_path):
    path = tmp_path / name
    LARGE[name](path)
    assert path.stat().st_size < 100_000
    if path.suffix == ".parquet":
        assert parquet.read_metadata(path).row_group(0).column(0).total_uncompressed_size > 300 << 20
    said, peak = read_apart(path)
    assert said.startswith(f"refused {path}: this ")
    assert "file unpacks to" in said
    assert "MiB are held" in said
    assert peak < MOST_PEAK


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_a_constant_column_of_many_rows_is_read_though_it_unpacks_to_a_thousand_times_its_size(
    name, tmp_path
):
    path, table = tmp_path / name, pa.table({"a": np.zeros(1 << 22, np.int64)})
    if name == "a.parquet":
        parquet.write_table(table, path, compression="zstd", use_dictionary=False)
    else:
        write_arrow(path, table)
    assert path.stat().st_size * 1000 < table.nbytes
    with open_batches(path) as batches:
        assert sum(len(batch) for batch in batches) == 1 << 22


def test_rows_that_take_no_space_are_refused_beyond_a_bound(tmp_path):
    path = tmp_path / "rows.arrow"
    path.write_bytes(ENDLESS_ARROW)
    assert ipc.open_file(path).count_rows() > 10**18  # a loop over slices of these never ends
    with pytest.raises(FileError, match=r"claims 5,\d{3},.* rows; at most 68,719,476,736 are read"):
        open_batches(path)


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_a_file_with_any_byte_changed_is_read_or_refused(name, tmp_path):
    path = tmp_path / name
    table = pa.table({"a": pa.array(["yes", "no", None] * 5).dictionary_encode(), "b": list(range(15))})
    write_arrow(path, table) if name == "a.arrow" else parquet.write_table(table, path, compression="zstd")
    content, refused = path.read_bytes(), 0
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 0xFF
        with pa.OSFile(str(path), "wb") as file:
            file.write(changed)
        try:
            with pa.OSFile(str(path)) as source:
                if name == "a.arrow":
                    memory_bounds.check_arrow("a", source)
                else:
                    known = parquet.read_metadata(path)
                    memory_bounds.check_parquet("a", source, known, ["a", "b"])
        except (FileError, *arrow_readers.UNREADABLE):
            refused += 1
    assert 0 < refused < len(content)


def test_batches_that_lie_over_each_other_are_refused(tmp_path):
    path = tmp_path / "a.arrow"
    table = pa.table({"a": list(range(1000))})
    write_arrow(path, pa.concat_tables([table, table.slice(0)]), None)
    content = path.read_bytes()
    with pa.OSFile(str(path)) as source:
        first, second = memory_bounds._blocks(source, source.size())
    block = memory_bounds._BLOCK.pack
    assert content.count(block(*second)) == 1
    larger = (first[0], first[1], len(content))
    path.write_bytes(content.replace(block(*second), block(*larger)))
    with pytest.raises(FileError, match="not a readable Arrow file"):
        open_batches(path)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd"])
@pytest.mark.parametrize("dictionary", [True, False])
def test_the_sizes_of_pages_are_read_as_arrow_wrote_them(version, compression, dictionary, tmp_path):
    path = tmp_path / "a.parquet"
    texts = [None if i % 7 == 0 else f"text {i % 1000}" for i in range(20_000)]
    parquet.write_table(
        pa.table({"text": texts, "list": [[i, i] for i in range(20_000)], "long": ["x" * 3000] * 20_000}),
        path,
        data_page_version=version,
        compression=compression,
        use_dictionary=dictionary,
        row_group_size=7000,
        data_page_size=4096,
        write_page_index=True,
    )
    known = parquet.read_metadata(path)
    with pa.OSFile(str(path)) as source:
        for group in range(known.num_row_groups):
            for number in range(known.num_columns):
                chunk = known.row_group(group).column(number)
                headers = list(memory_bounds.page_headers(source, chunk, source.size()))
                assert len(headers) > 1 or not dictionary
                unpacked = sum(header.unpacked + header.length for header in headers)
                assert unpacked == chunk.total_uncompressed_size
    with open_batches(path, ["text"]) as batches:
        assert [one for batch in batches for one in batch["text"].to_pylist()] == texts


def test_a_footer_that_understates_its_pages_does_not_help(tmp_path):
    path = tmp_path / "page.parquet"
    LARGE["page.parquet"](path)
    data = path.read_bytes()
    size = parquet.read_metadata(path).row_group(0).column(0).total_uncompressed_size

    def varint(number):
        number, out = number << 1, b""
        while number >= 128:
            out, number = out + bytes([number & 127 | 128]), number >> 7
        return out + bytes([number])

    small = bytearray(varint(1))
    small[-1:] = bytes([small[-1] | 128, *([128] * (len(varint(size)) - 2)), 0])  # as long as the true one
    (footer,) = struct.unpack("<I", data[-8:-4])
    start = len(data) - 8 - footer
    path.write_bytes(data[:start] + data[start:].replace(varint(size), bytes(small)))
    assert parquet.read_metadata(path).row_group(0).column(0).total_uncompressed_size == 1
    said, peak = read_apart(path)
    assert "unpacks to a page of 315 MB" in said
    assert peak < MOST_PEAK


CRASH = """
import resource, sys, pyreadstat
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
pyreadstat.read_sav(sys.argv[1], row_limit=1000)
"""


@pytest.mark.parametrize(("name", "content"), [("a.zsav", CRASH_ZSAV), ("a.sav", CRASH_SAV)])
def test_a_file_that_crashes_the_library_is_refused(name, content, tmp_path):
    path = tmp_path / name
    path.write_bytes(content)
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", CRASH, str(path)], capture_output=True, check=False
    )
    assert done.returncode in {-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS}
    with (
        pytest.raises(FileError, match=r"cannot be read as an SPSS file \(the reader failed\)\.$"),
        open_batches(path) as batches,
    ):
        list(batches)


def write_people(path):
    people = pd.DataFrame({"a": [1.0, 2.0, 1.0], "b": ["x", "", "z"]})
    pyreadstat.write_sav(people, str(path), variable_value_labels={"a": {1: "yes", 2: "no"}})


@pytest.mark.parametrize(("bound", "value"), [("MOST_MEMORY", 1 << 26), ("LEAST_SECONDS", 0)])
def test_a_reader_beyond_its_memory_or_time_is_refused(bound, value, tmp_path, monkeypatch):
    path = tmp_path / "a.sav"
    write_people(path)
    with open_batches(path) as batches:
        assert [batch.to_pydict() for batch in batches] == [
            {"a": ["yes", "no", "yes"], "b": ["x", None, "z"]}
        ]
    monkeypatch.setattr(statistics_process, bound, value)
    with pytest.raises(FileError, match="the reader failed"):
        open_batches(path)


def test_a_statistics_file_is_read_again_after_somebody_stopped_in_the_middle(tmp_path):
    path = tmp_path / "a.sav"
    write_people(path)
    with open_batches(path, rows=1) as batches:
        assert next(iter(batches)).to_pydict() == {"a": ["yes"], "b": ["x"]}
        assert sum(len(batch) for batch in batches) == 3


@pytest.mark.parametrize(
    ("labels", "codes"),
    [({1: "2"}, [1.0, 2.0]), ({1: "2", 2: "3"}, [2.0, 3.0])],
)
@pytest.mark.parametrize("rows", [1, 10])
def test_two_codes_that_are_read_as_one_category_are_refused(labels, codes, rows, tmp_path):
    path = tmp_path / "a.sav"
    pyreadstat.write_sav(pd.DataFrame({"a": codes}), str(path), variable_value_labels={"a": labels})
    merged, _ = pyreadstat.read_sav(str(path), apply_value_formats=True, formats_as_category=False)
    assert len({str(one).removesuffix(".0") for one in merged["a"]}) == 1
    with (
        pytest.raises(FileError, match="two codes of column 'a' are read as one category"),
        open_batches(path, rows=rows) as batches,
    ):
        list(batches)


def test_codes_with_one_label_are_one_category(tmp_path):
    path, labels = tmp_path / "a.sav", {98: "no answer", 99: "no answer"}
    frame = pd.DataFrame({"a": [98.0, 99.0, 1.0]})
    pyreadstat.write_sav(frame, str(path), variable_value_labels={"a": labels})
    with open_batches(path) as batches:
        assert [one for batch in batches for one in batch["a"].to_pylist()] == ["no answer", "no answer", "1"]


def test_labels_that_look_like_other_codes_are_read_where_no_row_has_these(tmp_path):
    path = tmp_path / "a.sav"
    labels = {1: "0", 2: "1", 3: "many"}
    pyreadstat.write_sav(pd.DataFrame({"a": [1.0, 2.0, 1.0]}), str(path), variable_value_labels={"a": labels})
    with open_batches(path) as batches:
        assert next(iter(batches)).to_pydict() == {"a": ["0", "1", "0"]}


SMALL_BOUND = 1 << 22  # bytes held at a time, in place of 256 MiB: the attack is as much smaller


def long_texts(rows=3000, length=20_000):
    return pa.table({"a": ["x" * length] * rows})


EXPANDING = {
    "dictionary": lambda path: parquet.write_table(long_texts(), path, compression="zstd"),
    "prefixes": lambda path: parquet.write_table(
        long_texts(), path, compression="zstd", use_dictionary=False, column_encoding="DELTA_BYTE_ARRAY"
    ),
    "prefixes of 2.0": lambda path: parquet.write_table(
        long_texts(),
        path,
        compression="zstd",
        use_dictionary=False,
        column_encoding="DELTA_BYTE_ARRAY",
        data_page_version="2.0",
    ),
    "many small pages": lambda path: parquet.write_table(
        long_texts(),
        path,
        compression="zstd",
        use_dictionary=False,
        data_page_size=1 << 17,
        write_batch_size=16,
    ),
    "many columns": lambda path: parquet.write_table(
        pa.table({f"c{i}": np.zeros(1 << 16, np.int64) for i in range(100)}), path, compression="zstd"
    ),
}


@pytest.mark.parametrize("name", EXPANDING)
def test_a_parquet_file_whose_rows_expand_is_read_few_rows_at_a_time(name, tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    EXPANDING[name](path)
    whole = next(parquet.ParquetFile(path).iter_batches(file_reader.ROWS))
    assert path.stat().st_size * 100 < whole.nbytes
    assert whole.nbytes > 10 * SMALL_BOUND
    monkeypatch.setattr(memory_bounds, "MOST_HELD", SMALL_BOUND)
    with open_batches(path) as batches:
        rows = 0
        for batch in batches:
            rows += len(batch)
            assert batch.nbytes <= SMALL_BOUND
    assert rows == len(whole)


def test_a_parquet_row_that_is_a_long_list_is_refused(tmp_path, monkeypatch):
    path, rows = tmp_path / "a.parquet", 1 << 20
    lists = pa.LargeListArray.from_arrays(pa.array([0, rows]), pa.array(np.zeros(rows, np.int64)))
    parquet.write_table(pa.table({"a": lists}), path, compression="zstd")
    assert path.stat().st_size < 10_000
    monkeypatch.setattr(memory_bounds, "MOST_HELD", SMALL_BOUND)
    with pytest.raises(FileError, match="unpacks to lists of 17 MB"), open_batches(path) as batches:
        list(batches)


@pytest.mark.parametrize("encoding", ["DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"])
@pytest.mark.parametrize("nullable", [True, False])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_a_parquet_page_that_claims_more_lengths_than_values_is_refused(
    encoding, nullable, version, tmp_path
):
    path, rows = tmp_path / "a.parquet", 1 << 14
    parquet.write_table(
        pa.table([pa.array([""] * rows)], schema=pa.schema([pa.field("a", pa.string(), nullable)])),
        path,
        use_dictionary=False,
        column_encoding=encoding,
        compression="none",
        data_page_version=version,
        max_rows_per_page=rows,
    )
    with open_batches(path) as batches:
        assert sum(len(batch) for batch in batches) == rows
    content = path.read_bytes()
    honest, claim = b"\x80\x01\x04\x80\x80\x01", b"\x80\x01\x04\xff\xff\x7f"  # blocks of 128, 4 parts, count
    assert content.count(honest) == (1 if encoding == "DELTA_LENGTH_BYTE_ARRAY" else 2)
    last = content.rindex(honest)
    path.write_bytes(content[:last] + claim + content[last + len(claim) :])
    known = parquet.read_metadata(path)
    with pa.OSFile(str(path)) as source, pytest.raises(ValueError, match=r"^$"):
        memory_bounds.check_parquet("a", source, known, ["a"])
    with pytest.raises(FileError, match="not a readable Parquet file"), open_batches(path) as batches:
        list(batches)


def shared_views(rows, length):
    """Return a column of views in which all rows share one text."""
    views = np.zeros((rows, 4), dtype="<i4")
    views[:, 0], views[:, 1] = length, int.from_bytes(b"xxxx", "little")
    return pa.Array.from_buffers(
        pa.string_view(), rows, [None, pa.py_buffer(views.tobytes()), pa.py_buffer(b"x" * length)]
    )


@pytest.mark.parametrize("inside", ["column", "dictionary", "list"])
def test_views_that_share_one_long_text_are_refused_before_it_is_copied(inside, tmp_path):
    path, column = tmp_path / "a.arrow", shared_views(20_000, 1 << 20)
    column.validate()
    if inside == "dictionary":
        column = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), column)
    elif inside == "list":
        column = pa.ListArray.from_arrays(pa.array([0, 20_000], pa.int32()), column)
    write_arrow(path, pa.table({"a": column}))
    assert path.stat().st_size < 10_000
    said, peak = read_apart(path)
    assert "unpacks to texts of 20,972 MB" in said or "has lists of views" in said
    assert peak < MOST_PEAK


def test_views_of_short_texts_are_read(tmp_path):
    path = tmp_path / "a.arrow"
    write_arrow(path, pa.table({"a": pa.array(["yes", None, "a longer text than a view"], pa.string_view())}))
    with open_batches(path) as batches:
        assert next(iter(batches))["a"].to_pylist() == ["yes", None, "a longer text than a view"]


def test_row_groups_that_contradict_the_number_of_rows_are_refused(tmp_path):
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"a": ["yes"] * 1000}), path, row_group_size=500, compression="none")
    known = parquet.read_metadata(path)

    class Fewer:
        """The description of the file, with other numbers of rows."""

        num_rows, num_row_groups, schema = 999, known.num_row_groups, known.schema
        row_group = staticmethod(known.row_group)

    with pa.OSFile(str(path)) as source:
        assert memory_bounds.check_parquet("a", source, known, ["a"]) > 1000
        with pytest.raises(ValueError, match=r"^$"):
            memory_bounds.check_parquet("a", source, Fewer(), ["a"])


def test_long_texts_are_not_compared_with_categories():
    texts = pa.array([0, 1, 2], pa.int8())
    column = pa.DictionaryArray.from_arrays(texts, pa.array([" YES", "YES" + " " * 10_000, "x"]))
    policy = mq.Policy.from_dict({"masquerade": 1, "variables": {"a": {"categories": ["yes", "no"]}}})
    for values in (column, column.dictionary):
        with pytest.raises(UnknownValue) as raised:
            encode(values, policy.fields[0])
        assert {problem.rows: NEARLY in problem.problem for problem in raised.value.problems} == {
            (1,): True,
            (2, 3): False,
        }


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-be with a mark", "cp1252"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", ""])
@pytest.mark.parametrize("columns", [1, 2])
def test_a_quotation_mark_that_is_left_open_hides_no_rows(encoding, end, columns, tmp_path):
    def write(text):
        text = text.replace("\n", end or "\n")
        text = text if end else text.rstrip("\n")
        text, codec = (text, encoding) if " " not in encoding else ("\ufeff" + text, "utf-16-be")
        path.write_bytes(text.encode(codec))

    path, more = tmp_path / "a.csv", "" if columns == 1 else ",x"
    names = "ä" + more.replace("x", "note")
    write(f"{names}\nö{more}\nö{more}\nö{more}\n")
    with open_batches(path, ["ä"]) as batches:
        assert [one for batch in batches for one in batch["ä"].to_pylist()] == ["ö"] * 3
    opened = '"ö' if columns == 1 else 'ö,"x'
    write(f"{names}\nö{more}\n{opened}\nö{more}\n")
    options = arrow_csv.ParseOptions(newlines_in_values=True)
    read = arrow_csv.ReadOptions(encoding="utf-16" if "16" in encoding else encoding)
    assert len(arrow_csv.read_csv(path, read, options)) == 2  # the third person is gone
    with (
        pytest.raises(FileError, match="a quotation mark is left open after data row 1"),
        open_batches(path, ["ä"]) as batches,
    ):
        list(batches)


def test_a_quotation_mark_left_open_in_the_names_is_refused(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('a,"b\n1,2\n3,4\n', encoding="utf-8")
    with pytest.raises(FileError, match="quotation mark"), open_batches(path) as batches:
        list(batches)


def test_a_compressed_csv_without_a_last_line_end_is_read_whole(tmp_path):
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"a\n" + b"x\n" * 700_000 + b"y"))
    for _ in range(2):
        with open_batches(path) as batches:
            *_, last = batches
            assert last["a"][-1].as_py() == "y"
            assert sum(len(batch) for batch in batches) == 700_001


def test_codes_with_an_empty_label_stay_apart(tmp_path):
    path, labels = tmp_path / "a.sav", {1: "", 2: " ", 3: "no"}
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0]})
    pyreadstat.write_sav(frame, str(path), variable_value_labels={"a": labels})
    with open_batches(path) as batches:
        assert next(iter(batches)).to_pydict() == {"a": ["1", "2", "no"]}


@pytest.mark.parametrize("version", [5, 8])
def test_a_transport_file_that_is_cut_off_or_has_two_tables_is_refused(version, tmp_path):
    path, frame = tmp_path / "a.xpt", pd.DataFrame({"a": [1.0, 2.0] * 150})
    pyreadstat.write_xport(frame, str(path), file_format_version=version)
    with open_batches(path) as batches:
        assert sum(len(batch) for batch in batches) == 300
    content = path.read_bytes()
    path.write_bytes(content + content[240:])  # the second table follows the library's header
    assert len(pyreadstat.read_xport(str(path))[0]) != 600
    with pytest.raises(FileError, match="this SAS file has 2 tables"):
        open_batches(path)
    path.write_bytes(content[:-200])
    with pytest.raises(FileError, match="not a readable SAS file"):
        open_batches(path)
