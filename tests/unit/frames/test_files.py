"""Files in a stream, out whole or not at all; errors are one line and show no data."""

from __future__ import annotations

import gzip
import io
import json
import os
import stat
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import feather, parquet

from masquerade.core.errors import FileError, InputError, SchemaError
from masquerade.frames import file_reader, file_writer
from masquerade.frames.file_reader import open_batches
from masquerade.frames.file_writer import AtomicWriter
from masquerade.frames.formats import sidecar_of

TABLE = pa.table(
    {
        "a": ["x", "y, z", None, 'say "hi"', "two\nlines"],
        "n": [1, 2, 3, None, 5],
        "b": [True, False, None, True, True],
    }
)
AS_TEXT = {
    "a": ["x", "y, z", None, 'say "hi"', "two\nlines"],
    "n": ["1", "2", "3", None, "5"],
    "b": ["true", "false", None, "true", "true"],
}
POLICY = {"policy": "b1946ac9"}
ENDINGS = [".csv", ".parquet", ".arrow", ".feather"]


def write(path, table=TABLE, metadata=POLICY, **options):
    with AtomicWriter(path, table.schema, metadata, **options) as writer:
        for batch in table.to_batches(max_chunksize=2):
            writer.write(batch)
    return path


def read(path, columns=None, **options):
    with open_batches(path, columns, **options) as batches:
        return pa.Table.from_batches(batches).to_pydict()


def read_whole(path, columns):
    """Return some columns, by other means."""
    if str(path).endswith(".csv"):
        return {name: AS_TEXT[name] for name in columns}
    return {name: TABLE[name].to_pylist() for name in columns}


def refusal(path, columns=None):
    with pytest.raises(FileError) as caught:
        read(path, columns)
    assert "\n" not in str(caught.value)
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    return str(caught.value)


@pytest.mark.parametrize("ending", ENDINGS)
class TestEveryFormat:
    def test_round_trip(self, tmp_path, ending):
        path = write(tmp_path / f"people{ending}")
        assert read(path) == (AS_TEXT if ending == ".csv" else TABLE.to_pydict())
        with open_batches(path) as batches:
            assert batches.names == ("a", "n", "b")
            assert batches.metadata == POLICY
            assert batches.text is (ending == ".csv")
            assert batches.total_rows == (None if ending == ".csv" else 5)
            assert batches.total_bytes == path.stat().st_size
            assert batches.bytes_read == 0 or batches.text
            for _ in batches:
                pass
            assert batches.bytes_read == batches.total_bytes

    def test_projection_in_the_order_asked_for(self, tmp_path, ending):
        path = write(tmp_path / f"people{ending}")
        assert list(read(path, ["b", "a"])) == ["b", "a"]
        with pytest.raises(SchemaError, match=r"there is no column 'c'\. Known: a, n, b\."):
            open_batches(path, ["a", "c"])

    def test_batches_are_small_and_located(self, tmp_path, ending):
        long = pa.table({"k": [str(i) for i in range(1000)]})
        first, second = write(tmp_path / f"1{ending}", long), write(tmp_path / f"2{ending}", long)
        with open_batches([first, second], rows=300) as batches:
            places = [(batches.file, batches.rows_before, batch["k"][0].as_py()) for batch in batches]
            assert batches.total_rows in {None, 2000}
        assert all(str(row) == value for _, row, value in places)
        assert {file for file, _, _ in places} == {str(first), str(second)}

    def test_nothing_is_left_after_a_crash(self, tmp_path, ending):
        def crash(error):
            with AtomicWriter(tmp_path / f"out{ending}", TABLE.schema, POLICY) as writer:
                writer.write(TABLE.to_batches()[0])
                (hidden,) = tmp_path.iterdir()
                assert hidden.name.startswith(".")
                assert stat.S_IMODE(hidden.stat().st_mode) == 0o600
                raise error

        for error in (RuntimeError, KeyboardInterrupt):
            with pytest.raises(error):
                crash(error)
            assert list(tmp_path.iterdir()) == []

    def test_the_published_file_has_ordinary_permissions(self, tmp_path, ending):
        mask = os.umask(0o027)
        try:
            path = write(tmp_path / f"out{ending}")
        finally:
            os.umask(mask)
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        assert not [found for found in tmp_path.iterdir() if found.name.startswith(".")]

    def test_an_existing_file_is_replaced_only_when_asked(self, tmp_path, ending):
        path = write(tmp_path / f"out{ending}")
        before = path.read_bytes()
        with pytest.raises(FileError, match="exists already; overwrite=True"):
            AtomicWriter(path, TABLE.schema, {})
        assert path.read_bytes() == before
        write(path, TABLE.slice(0, 1), {"policy": "other"}, overwrite=True)
        with open_batches(path) as batches:
            assert batches.metadata == {"policy": "other"}
            assert sum(map(len, batches)) == 1
        write(path, TABLE, {}, overwrite=True)
        with open_batches(path) as batches:
            assert batches.metadata == {}

    def test_a_failed_overwrite_leaves_the_old_file(self, tmp_path, ending, monkeypatch):
        path = write(tmp_path / f"out{ending}")
        before = {found.name: found.read_bytes() for found in tmp_path.iterdir()}

        def no_space(*_args, **_options):
            raise OSError(28, "secret")

        monkeypatch.setattr(file_writer.AtomicFile, "publish", no_space)
        with pytest.raises(FileError, match="no space left on device"):
            write(path, TABLE.slice(1), {"policy": "other"}, overwrite=True)
        assert {found.name: found.read_bytes() for found in tmp_path.iterdir()} == before

    def test_a_file_that_appears_meanwhile_is_left_alone(self, tmp_path, ending):
        path = tmp_path / f"out{ending}"
        with (
            pytest.raises(FileError, match="meanwhile"),
            AtomicWriter(path, TABLE.schema, POLICY),
        ):
            path.write_text("mine")
        assert path.read_text() == "mine"
        assert list(tmp_path.iterdir()) == [path]

    def test_the_input_is_never_the_output(self, tmp_path, ending):
        path = write(tmp_path / f"people{ending}")
        (tmp_path / f"link{ending}").symlink_to(path)
        with pytest.raises(FileError, match="also the input"):
            AtomicWriter(tmp_path / f"link{ending}", TABLE.schema, {}, overwrite=True, inputs=["-", path])

    def test_a_link_is_replaced_and_never_what_it_leads_to(self, tmp_path, ending):
        """The attack: links with the names of an output, and of what is said next to it."""
        path, link = write(tmp_path / f"people{ending}"), tmp_path / f"link{ending}"
        precious = tmp_path / "precious"
        precious.write_text("old")
        link.symlink_to(path)
        (tmp_path / f"link{ending}.masquerade.json").symlink_to(precious)
        before = path.read_bytes()
        with pytest.raises(FileError, match="exists already"):
            write(link, TABLE.slice(0, 2), {"policy": "other"})
        write(link, TABLE.slice(0, 2), {"policy": "other"}, overwrite=True)
        assert not link.is_symlink()
        assert path.read_bytes() == before
        assert precious.read_text() == "old"
        with open_batches(link) as batches:
            assert batches.metadata == {"policy": "other"}
            assert sum(map(len, batches)) == 2

    def test_places_that_cannot_be_written(self, tmp_path, ending):
        (tmp_path / "file").touch()
        (tmp_path / f"folder{ending}").mkdir()
        for place in ("file/out", "nowhere/out", "folder"):
            with pytest.raises(FileError, match="cannot be written"):
                AtomicWriter(tmp_path / f"{place}{ending}", TABLE.schema, {})

    @pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
    def test_no_permission(self, tmp_path, ending):
        path = write(tmp_path / f"people{ending}")
        path.chmod(0)
        assert "permission denied" in refusal(path)
        tmp_path.chmod(0o500)
        with pytest.raises(FileError, match="permission"):
            AtomicWriter(tmp_path / f"out{ending}", TABLE.schema, {})
        tmp_path.chmod(0o700)

    def test_files_that_cannot_be_read(self, tmp_path, ending):
        assert "no such file" in refusal(tmp_path / f"nothing{ending}")
        empty = tmp_path / f"empty{ending}"
        empty.touch()
        assert "empty" in refusal(empty)
        folder = tmp_path / f"folder{ending}"
        folder.mkdir()
        assert "directory" in refusal(folder)

    def test_no_rows(self, tmp_path, ending):
        path = write(tmp_path / f"none{ending}", TABLE.slice(0, 0))
        with open_batches(path) as batches:
            assert batches.names == ("a", "n", "b")
            assert sum(map(len, batches)) == 0

    def test_dictionaries_that_change_between_batches_are_written_plain(self, tmp_path, ending):
        batches = [pa.record_batch({"k": pa.array([v]).dictionary_encode()}) for v in ("u", "v")]
        path = tmp_path / f"out{ending}"
        with AtomicWriter(path, batches[0].schema, {}) as writer:
            for batch in batches:
                writer.write(batch)
        assert read(path) == {"k": ["u", "v"]}

    def test_files_can_be_read_again_and_are_opened_once(self, tmp_path, ending, files_opened):
        paths = [write(tmp_path / f"{place}{ending}") for place in range(3)]
        files_opened.clear()
        with open_batches(paths, []) as batches:
            assert sum(map(len, batches.select(["a"]))) == 15
            again = pa.Table.from_batches(batches.select(["b", "a"])).to_pydict()
            assert again == {name: 3 * values for name, values in read_whole(paths[0], ["b", "a"]).items()}
            with pytest.raises(SchemaError, match="there is no column 'c'"):
                batches.select(["c"])
        assert files_opened == [str(path) for path in paths]

    def test_of_a_long_list_few_files_stay_open(self, tmp_path, ending, monkeypatch, files_opened):
        monkeypatch.setattr(file_reader, "MOST_OPEN", 2)
        paths = [write(tmp_path / f"{place}{ending}") for place in range(4)]
        files_opened.clear()
        with open_batches(paths) as batches:
            assert sum(map(len, batches)) == 20
        assert files_opened == [str(path) for path in (*paths, *paths[2:])]


@pytest.mark.parametrize("ending", [".parquet", ".arrow"])
def test_truncated_and_foreign_files(tmp_path, ending):
    path = tmp_path / f"people{ending}"
    write(path, pa.table({"secret": ["secret"] * 5000}))
    whole = path.read_bytes()
    for part in (whole[: len(whole) // 2], whole[:3], b"secret,b\n1,2\n"):
        path.write_bytes(part)
        message = refusal(path)
        assert "not a readable" in message
        assert "secret" not in message


def test_damage_in_the_middle_of_parquet(tmp_path):
    path = tmp_path / "people.parquet"
    parquet.write_table(pa.table({"k": [str(i) for i in range(20000)]}), path, compression="snappy")
    damaged = bytearray(path.read_bytes())
    damaged[200:4000] = bytes(3800)
    path.write_bytes(damaged)
    assert "not a readable Parquet" in refusal(path)


def test_one_huge_row_group_comes_in_small_batches(tmp_path):
    path = tmp_path / "people.parquet"
    parquet.write_table(pa.table({"k": range(10_000)}), path, row_group_size=10_000)
    with open_batches(path, rows=999) as batches:
        assert max(map(len, batches)) <= 999


def test_feather_of_other_programs(tmp_path):
    feather.write_feather(TABLE, tmp_path / "people.feather", compression="lz4")
    assert read(tmp_path / "people.feather", ["n"]) == {"n": TABLE["n"].to_pylist()}


def test_unknown_endings():
    with pytest.raises(
        FileError,
        match=r"Known: \.csv, \.csv\.gz, .*\.tsv.*, \.parquet, \.arrow, \.feather, \.xlsx",
    ):
        open_batches(__file__)
    with pytest.raises(FileError, match="Known"):
        AtomicWriter("people.ods", TABLE.schema, {})


def test_patterns_and_lists(tmp_path):
    for name in ("1", "2"):
        write(tmp_path / f"{name}.parquet", pa.table({"k": [name], "only": [1]}))
    write(tmp_path / ".3.parquet", pa.table({"k": ["hidden"]}))
    assert read(tmp_path / "*.parquet", ["k"]) == {"k": ["1", "2"]}
    assert read([tmp_path / "2.parquet", tmp_path / "1.parquet"], ["k"]) == {"k": ["2", "1"]}
    assert "no file matches" in refusal(tmp_path / "*.csv")
    write(tmp_path / "4.parquet", pa.table({"k": ["4"]}))
    with pytest.raises(SchemaError, match=r"4\.parquet: there is no column 'only'"):
        open_batches(tmp_path / "*.parquet")
    write(tmp_path / "5.parquet", pa.table({"k": ["5"]}), {"policy": "other"})
    assert "was not disguised as" in refusal(tmp_path / "*.parquet", ["k"])
    write(tmp_path / "6.csv", pa.table({"k": ["6"]}))
    assert "cannot be read as one" in refusal([tmp_path / "1.parquet", tmp_path / "6.csv"], ["k"])
    with pytest.raises(FileError, match="No file"):
        open_batches([])


class TestCsv:
    def text(self, tmp_path, content, name="people.csv"):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def test_empty_fields_are_missing_and_nothing_is_guessed(self, tmp_path):
        path = self.text(tmp_path, '\ufeffa,b\n"",007\r\nNA,\n\n"1",true\n')
        assert read(path) == {"a": [None, "NA", "1"], "b": ["007", None, "true"]}

    def test_in_a_single_column_an_empty_line_is_a_missing_value(self, tmp_path):
        assert read(self.text(tmp_path, "a\nx\n\ny\n")) == {"a": ["x", None, "y"]}
        path = write(tmp_path / "out.csv", pa.table({"a": ["x", None, "y"]}))
        assert read(path) == {"a": ["x", None, "y"]}

    @pytest.mark.parametrize("block", [64, 2 << 20])
    def test_a_row_of_another_length_is_named_by_its_number(self, tmp_path, monkeypatch, block):
        monkeypatch.setattr(file_reader, "BLOCK", block)
        path = self.text(tmp_path, "a,b\n" + "1,2\n" * 100 + "secret\n" + "1,2\n" * 100)
        message = refusal(path)
        assert message == f"{path}: data row 101 has 1 field, the first row has 2."

    @pytest.mark.parametrize("block", [64, 2 << 20])
    def test_fields_and_names_across_blocks(self, tmp_path, monkeypatch, block):
        monkeypatch.setattr(file_reader, "BLOCK", block)
        rows = [f"value {i}\nof, rows é" for i in range(50)]
        path = write(tmp_path / "people.csv", pa.table({"k": rows, "l": rows}))
        assert read(path, ["l"]) == {"l": rows}

    def test_other_faults_show_no_data(self, tmp_path):
        for content, words in [
            ('a,b\n"secret,2\n3,4\n', "data row 1 has 1 field"),
            (b"a,b\n1,2\nsecret\xff\0,2\n", "not UTF-8"),
            (b"a\xff\0,b\n1,2\n", "not UTF-8"),
            ("a,b,a\nsecret,2,3\n", "two columns are called 'a'"),
            ("\n \n", "empty"),
        ]:
            message = refusal(self.text(tmp_path, content))
            assert words in message
            assert "secret" not in message

    def test_an_open_quotation_mark_in_a_long_file(self, tmp_path, monkeypatch):
        monkeypatch.setattr(file_reader, "BLOCK", 64)
        message = refusal(self.text(tmp_path, 'a,b\n"secret,2\n' + "3,4\n" * 100))
        assert "quotation mark" in message
        assert "secret" not in message

    def test_compressed(self, tmp_path):
        plain = ("a,b\n" + "x,1\n" * 50_000).encode()
        path = self.text(tmp_path, gzip.compress(plain), "people.csv.gz")
        sidecar_of(tmp_path / "people.csv").write_text(json.dumps(POLICY))
        with open_batches(path, ["b"]) as batches:
            assert batches.metadata == POLICY
            assert sum(map(len, batches)) == 50_000
            assert batches.bytes_read == batches.total_bytes
        path.write_bytes(path.read_bytes()[:-20])
        assert "truncated or damaged" in refusal(path)
        path.write_bytes(plain)
        assert "truncated or damaged" in refusal(path)
        with pytest.raises(FileError, match="read, not written"):
            AtomicWriter(tmp_path / "out.csv.gz", TABLE.schema, {})

    def test_metadata_lives_next_to_the_file(self, tmp_path):
        path = write(tmp_path / "out.csv")
        assert json.loads(Path(f"{path}.masquerade.json").read_text()) == POLICY
        write(path, TABLE, {}, overwrite=True)
        assert list(tmp_path.iterdir()) == [path]
        sidecar_of(path).write_text("[1]")
        assert "metadata that masquerade writes" in refusal(path)
        path.unlink()
        with pytest.raises(FileError, match=r"masquerade\.json: exists already"):
            write(path)

    def test_quotes_only_where_needed(self, tmp_path):
        path = write(tmp_path / "out.csv", pa.table({"a": ["x", "y"], "n": [1, 2]}))
        assert path.read_text() == "a,n\nx,1\ny,2\n"

    @pytest.mark.parametrize("ending", [".csv", ".tsv"])
    @pytest.mark.parametrize("missing", [False, True])
    def test_dictionaries_of_many_rows_are_written_label_by_label(self, tmp_path, ending, missing):
        rows = np.arange(10_000)
        words = ["x", "y, z", 'say "hi"', "two\nlines", "tab\tand\rreturn", "", "ä" * 30]
        columns = {
            "text": (rows % 7, pa.array(words)),
            "number": (rows % 3, pa.array([10**18, -1, 0])),
            "truth": ((rows % 2).astype(np.uint8), pa.array([True, False])),
        }
        table = pa.table({n: pa.DictionaryArray.from_arrays(*own) for n, own in columns.items()})
        if missing:  # Arrow writes such a batch
            hole = pa.array([None, *["x"] * 9999]).dictionary_encode()
            table = table.append_column("hole", hole)
        path = tmp_path / f"out{ending}"
        with AtomicWriter(path, table.schema, {}) as writer:
            writer.write(table.combine_chunks().to_batches()[0])
        text = {name: table[name].cast(pa.string()).to_pylist() for name in table.column_names}
        assert read(path) == text | {"text": [word or None for word in text["text"]]}
        assert ('"x"' in path.read_text()) is missing  # else only labels that need it are quoted

    def test_nested_columns_are_refused_before_any_work(self, tmp_path):
        with pytest.raises(FileError, match="column 'l' holds lists"):
            AtomicWriter(tmp_path / "out.csv", pa.schema([("l", pa.list_(pa.int8()))]), {})

    def test_standard_input_and_output(self, monkeypatch):
        source, target = io.BytesIO(b"a,b\nx,1\ny,2\n"), io.BytesIO()
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(source))
        monkeypatch.setattr("sys.stdout", io.TextIOWrapper(target))
        with (
            open_batches("-", ["b"]) as batches,
            AtomicWriter("-", pa.schema([("b", pa.string())]), POLICY) as writer,
        ):
            assert (batches.total_bytes, batches.total_rows, batches.metadata) == (None, None, {})
            for batch in batches:
                writer.write(batch)
            with pytest.raises(InputError, match="once only"):
                list(batches)
        assert target.getvalue() == b"b\n1\n2\n"


def test_writing_outside_of_the_block_is_a_mistake(tmp_path):
    writer = AtomicWriter(tmp_path / "out.csv", TABLE.schema, {})
    with pytest.raises(RuntimeError):
        writer.write(TABLE.to_batches()[0])


def test_a_csv_row_beyond_the_bound_is_refused_with_the_bound_before_all_is_read(tmp_path):
    """300,001 columns were refused because of a name that was cut off, and stood there twice."""
    path, most = tmp_path / "wide.csv", "2,097,152 bytes"

    class Counting(io.BytesIO):
        read_bytes = 0

        def read(self, size=-1):
            data = super().read(size)
            self.read_bytes += len(data)
            return data

    header = ",".join(f"v{place}" for place in range(300_001)).encode()
    stream = Counting(header + b"\n" + b"1" * (1 << 24))
    with pytest.raises(
        FileError, match=f"the first row is longer than {most}.*write the records as .parquet"
    ):
        file_reader._Csv("wide.csv", stream, {}, file_reader.Dialect())
    assert stream.read_bytes <= file_reader.BLOCK
    path.write_bytes(b"a,b\n1,2\n" + b"3" * (3 * file_reader.BLOCK) + b",4\n")
    with open_batches(path) as batches, pytest.raises(FileError, match=f"data row . is longer than {most}"):
        list(batches)
    longest = ",".join(f"v{place}" for place in range(200_000))  # just within it
    path.write_text(f"{longest}\n{','.join(['1'] * 200_000)}\n")
    with open_batches(path, ["v7"]) as batches:
        assert [batch.to_pylist() for batch in batches] == [[{"v7": "1"}]]
