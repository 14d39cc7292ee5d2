"""`mq.tally`: frames and files, disguised and clear."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import masquerade as mq
from masquerade.core.errors import (
    FileError,
    InputError,
    MasqueradeWarning,
    PluginError,
    PolicyMismatch,
    QueryRefused,
    SchemaError,
    UnknownValue,
)
from masquerade.core.supports import Supports
from masquerade.frames.file_writer import AtomicWriter
from masquerade.frames.metadata import with_metadata

FRAME = pd.DataFrame(
    {
        "who": list("pqrstu"),
        "sex": ["f", "m", "f", "f", "m", "f"],
        "kids": [0, 1, 2, 0, 0, 1],
        "w": [1.5, 2, 1, 1, 0.5, 1],
    }
)


def test_clear_records_learn_their_categories_from_the_data_in_order():
    source = mq.tally(FRAME[["sex", "kids"]])
    assert source.schema == mq.Schema({"sex": ["f", "m"], "kids": [0, 1, 2]})
    (table,) = source.answer([mq.Query(by=("sex", "kids"))])
    assert table.values.tolist() == [[2, 1, 1], [1, 1, 0]]


def test_a_schema_decides_what_is_known():
    schema = mq.Schema({"sex": ["f", "m", "x"]})
    (table,) = mq.tally(FRAME, schema=schema).answer([mq.Query(by="sex")])
    assert table.values.tolist() == [4, 2, 0]
    with pytest.raises(UnknownValue, match="column 'sex', rows 2, 5"):
        mq.tally(FRAME, schema=mq.Schema({"sex": ["f"]}))
    with pytest.raises(SchemaError, match="no column 'age'"):
        mq.tally(FRAME, schema=mq.Schema({"age": [1]}))


def test_weights_and_persons():
    (table,) = mq.tally(FRAME, schema=mq.Schema({"sex": ["f", "m"]}), weights="w", id="who").answer(
        [mq.Query(by="sex")]
    )
    assert table.values.tolist() == [4.5, 2.5]
    assert table.n == 6
    with pytest.raises(InputError, match="3 records repeat a person of column 'kids'"):
        mq.tally(FRAME, schema=mq.Schema({"sex": ["f", "m"]}), id="kids")
    with pytest.raises(InputError, match="must be numeric"):
        mq.tally(FRAME, schema=mq.Schema({"sex": ["f", "m"]}), weights="who")


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_files_equal_frames(tmp_path, suffix):
    halves = [tmp_path / f"part{i}.{suffix}" for i in range(2)]
    for path, part in zip(halves, (FRAME[:2], FRAME[2:]), strict=True):
        part.to_csv(path, index=False) if suffix == "csv" else part.to_parquet(path)
    schema = mq.Schema({"kids": [0, 1, 2], "sex": ["f", "m"]})
    for source in (halves, str(tmp_path / f"*.{suffix}")):
        (table,) = mq.tally(source, schema=schema, weights="w").answer([mq.Query(by="kids")])
        assert table.values.tolist() == [3.0, 3.0, 1.0]


def test_polars_and_missing_values():
    assert mq.tally(pl.from_pandas(FRAME[["sex"]])).n == 6
    with pytest.raises(InputError, match="has missing values"):
        mq.tally(pd.DataFrame({"a": ["x", None]}))


def test_a_file_without_records_is_said_to_have_none(tmp_path):
    (tmp_path / "empty.csv").write_text("a,b\n", encoding="utf-8")
    with pytest.raises(InputError, match="no records"):
        mq.tally(str(tmp_path / "empty.csv"))


def test_contradictions_are_refused():
    policy = mq.Policy.clear(mq.Schema({"sex": ["f", "m"]}))
    with pytest.raises(InputError, match="not both"):
        mq.tally(FRAME, policy, schema=policy)
    with pytest.raises(InputError, match="more than 1,000 distinct values"):
        mq.tally(pd.DataFrame({"a": range(2000)}))


SEXES = mq.Schema({"sex": ["f", "m"]})
LEFT_OUT = {"incomplete": "2 of 8 rows did not open"}


def incomplete(folder, kind):
    """Return six of eight rows, as a frame or as a file, that say that two are missing."""
    table = pa.table({"sex": FRAME["sex"].tolist()})
    if kind == "pandas":
        return with_metadata(FRAME[["sex"]], LEFT_OUT)
    if kind == "arrow table":
        return with_metadata(table, LEFT_OUT)
    if kind == "polars":
        return with_metadata(pl.from_arrow(table), LEFT_OUT)
    path = folder / f"rows.{kind}"
    with AtomicWriter(path, table.schema, LEFT_OUT) as target:
        target.write(table.to_batches()[0])
    if kind != "csv":
        assert {one.name for one in folder.iterdir()} == {path.name}  # the mark is in the file itself
    return path


@pytest.mark.parametrize(
    ("kind", "engine"),
    [
        *((kind, "memory") for kind in ("csv", "parquet", "arrow", "pandas", "arrow table", "polars")),
        ("csv", "duckdb"),
        ("parquet", "duckdb"),
    ],
)
def test_rows_that_are_missing_not_at_random_are_refused_until_accepted(tmp_path, kind, engine):
    data = incomplete(tmp_path, kind)
    source = mq.tally(data, schema=SEXES, engine=engine)
    (refusal,) = source.check([mq.Query(by="sex")])
    assert (refusal.code, refusal.query) == ("incomplete", mq.Query(by="sex"))
    assert "2 of 8 rows did not open" in refusal.reason
    item = Supports((("sex", "f"),), np.zeros((1, 1), dtype=np.int32))
    questions = [
        lambda: source.answer([mq.Query(by="sex")]),
        lambda: source.supports(item),
        lambda: source.misfit(["sex"]),
        lambda: mq.learn.bayesian_network(source, {"sex": ()}),
    ]
    if engine == "memory":
        questions.append(lambda: source.expect(lambda codes: codes[:, 0], ["sex"]))
    for ask in questions:
        with pytest.raises(QueryRefused, match="not at random"):
            ask()
    accepted = mq.tally(data, schema=SEXES, engine=engine, accept_incomplete=True)
    (table,) = accepted.answer([mq.Query(by="sex")])
    assert table.values.tolist() == [4, 2]
    assert accepted.supports(item).values.tolist() == [4]
    assert "2 of 8 rows did not open" in accepted.guarantee.assumptions


def test_what_is_missing_is_still_said_after_a_disguise(tmp_path):
    policy = mq.Policy.build({"sex": ["f", "m"]}, {"sex": mq.channels.binary("1/4")})
    mq.disguise_file(incomplete(tmp_path, "parquet"), tmp_path / "out.parquet", policy)
    frame, polars = incomplete(tmp_path, "pandas"), incomplete(tmp_path, "polars")
    disguised = [mq.disguise(frame, policy), mq.simulate(frame, policy, 1), mq.disguise(polars, policy)]
    for data in (tmp_path / "out.parquet", *disguised):
        assert [one.code for one in mq.tally(data, policy).check([mq.Query()])] == ["incomplete"]
        with pytest.raises(PolicyMismatch, match="pass it as 'policy'"):
            mq.tally(data, schema=SEXES)
    with pytest.raises(InputError, match="disguised under policy"):
        mq.disguise(disguised[-1], policy)


def test_standard_output_refuses_rows_whose_mark_it_would_lose(tmp_path, capfdbinary):
    policy = mq.Policy.build({"sex": ["f", "m"]}, {"sex": mq.channels.binary("1/4")})
    with pytest.raises(FileError, match="standard output cannot state"):
        mq.disguise_file(incomplete(tmp_path, "parquet"), "-", policy)
    assert not capfdbinary.readouterr().out
    mq.disguise_file(complete(tmp_path), "-", policy)
    assert capfdbinary.readouterr().out.startswith(b"sex")


def complete(folder):
    FRAME[["sex"]].to_csv(folder / "whole.csv", index=False)
    return folder / "whole.csv"


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="reads /proc")
def test_a_file_redirected_to_standard_input_keeps_its_mark(tmp_path, monkeypatch):
    policy = mq.Policy.build({"sex": ["f", "m"]}, {"sex": mq.channels.binary("1/4")})
    mq.disguise_file(complete(tmp_path), tmp_path / "out.csv", policy)
    with (tmp_path / "out.csv").open() as stream:
        monkeypatch.setattr("sys.stdin", stream)
        with pytest.raises(PolicyMismatch, match="pass it as 'policy'"):
            mq.tally("-", schema=SEXES)
    with incomplete(tmp_path, "csv").open() as stream:
        monkeypatch.setattr("sys.stdin", stream)
        assert [one.code for one in mq.tally("-", schema=SEXES).check([mq.Query()])] == ["incomplete"]
    with complete(tmp_path).open() as stream:
        monkeypatch.setattr("sys.stdin", stream)
        assert mq.tally("-", schema=SEXES).n == 6


def test_where_nobody_can_be_asked_missing_rows_are_warned_of(tmp_path):
    frame = incomplete(tmp_path, "pandas").assign(age=["old", "young"] * 3)
    with pytest.warns(MasqueradeWarning, match="2 of 8 rows did not open"):
        mq.projection_tally(frame, {"a": ["sex"], "b": ["age"]})


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".arrow"])
@pytest.mark.parametrize("given", ["policy", "schema", "nothing"])
def test_every_file_is_opened_once(tmp_path, ending, given, files_opened):
    table = pa.Table.from_pandas(FRAME[["sex", "kids"]])
    paths = [tmp_path / f"{place}{ending}" for place in range(2)]
    for path in paths:
        with AtomicWriter(path, table.schema, {}) as writer:
            writer.write(table.to_batches()[0])
    policy = mq.Policy.build({"sex": ["f", "m"], "kids": [0, 1, 2]}, {"sex": mq.channels.binary("0.1")})
    options = {"policy": {"policy": policy}, "schema": {"schema": policy.schema}, "nothing": {}}[given]
    files_opened.clear()
    (counts,) = mq.tally(paths, **options).answer([mq.Query()])
    assert counts.values == 12
    assert files_opened == [str(path) for path in paths]
    if ending != ".arrow":  # DuckDB reads these when it is asked
        files_opened.clear()
        mq.tally(paths, policy, engine="duckdb")
        assert files_opened == [str(path) for path in paths]


SOURCES = """
import masquerade as mq

class Office:
    def __init__(self, data, policy, **options):
        self.said = (data, policy, options)
        self.schema = mq.Schema({"sex": ["f", "m"]})
        self.guarantee = mq.Guarantee(())

    def check(self, queries):
        return []

    def answer(self, queries):
        raise NotImplementedError

class Box:
    pass

def silent(data, policy, **options):
    return 7
"""


def test_a_source_of_another_package_opens_what_it_is_named_for(install):
    install("office", {"sources": {"office": "Office"}}, SOURCES)
    import office  # noqa: PLC0415  (just installed)

    by_scheme = mq.tally("office://north/table", schema=mq.Schema({"a": [1]}), weights="w")
    assert isinstance(by_scheme, office.Office)
    data, policy, options = by_scheme.said
    assert (data, policy) == ("office://north/table", None)
    assert options == {
        "schema": mq.Schema({"a": [1]}),
        "weights": "w",
        "id": None,
        "watch": None,
        "accept_incomplete": False,
    }
    assert isinstance(mq.tally(["any", "thing"], engine="office"), office.Office)
    box = office.Box()
    assert mq.tally(box).said[0] is box


def test_a_source_of_another_package_must_be_one(install):
    install("mute", {"sources": {"mute": "silent"}}, SOURCES)
    with pytest.raises(
        PluginError, match=r"source 'mute' of the package mute 1.0 .*: it returned a int, which"
    ):
        mq.tally("mute:x")
    with pytest.raises(FileError, match="mut:x: no such file"):
        mq.tally("mut:x")


def test_clear_records_taken_for_disguised_ones_warn_once():
    people = pd.DataFrame({"smoker": ["yes"] * 20 + ["no"] * 480, "region": ["north", "south"] * 250})
    policy = mq.Policy.build(
        {"smoker": ["yes", "no"], "region": ["north", "south"]}, {"smoker": mq.channels.binary("0.2")}
    )
    source = mq.tally(people, policy)
    source.answer([mq.Query(by="region"), mq.Query(by="region", where={"smoker": "yes"})])
    with pytest.warns(MasqueradeWarning, match="No truth explains the reports of 'smoker'"):
        mq.stats.shares(source, "region", by="smoker")
    mq.stats.shares(source, "smoker")  # said once
    seen = mq.disguise(people, policy)
    seen.attrs.clear()  # disguised indeed, though it does not say so
    mq.stats.shares(mq.tally(seen, policy), "smoker")
