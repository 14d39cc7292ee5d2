"""Engines at work: files larger than they should be, survey weights everywhere, and machines that die."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import ibis
import numpy as np
import pandas as pd
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import masquerade as mq
from masquerade.sources.engines.engine_cache import EngineLimits

ROWS = 5_000_000
SIZES = dict(zip("abcdefghij", (2, 5, 5, 5, 4, 3, 3, 4, 2, 4), strict=True))
POLICY = mq.Policy.build(
    {name: [f"{name} {code}" for code in range(size)] for name, size in SIZES.items()},
    {name: mq.channels.symmetric(size, "0.2") for name, size in SIZES.items() if name not in "abc"},
)
# 4 bytes of offset and 3 of text for each value: what the records would take as Arrow columns
PLAIN_BYTES = ROWS * len(SIZES) * 7

COUNT = """
import json, sys
import masquerade as mq

policy, pattern, engine = mq.Policy.load(sys.argv[1]), sys.argv[2], sys.argv[3]
names = list(policy.schema)
mq.tally(sys.argv[4], policy, engine=engine).answer([mq.Query(by=names[:2])])  # all that is loaded once


def peak():
    # the most that this process held; getrusage would also count what its parent held
    return int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])


before = peak()
source = mq.tally(pattern, policy, engine=engine)
three = source.answer([mq.Query(by=("b", "e", "j"))])[0]
pairs = source.answer([mq.Query(by=(a, b)) for i, a in enumerate(names) for b in names[i + 1 :]])
links = mq.learn.structure(source, order=names, max_parents=2).links
json.dump(
    {
        "n": source.n,
        "three": three.values.tolist(),
        "stderr": three.stderr().tolist(),
        "pairs": [table.values.tolist() for table in pairs],
        "links": sorted(map(list, links)),
        "kilobytes": peak() - before,
    },
    sys.stdout,
)
"""


@pytest.fixture(scope="module")
def five_million(tmp_path_factory):
    """Write five million reports in which every variable follows the one before it, half of the time."""
    folder = tmp_path_factory.mktemp("large")
    generator = np.random.default_rng(50)
    for part in range(4):
        rows, codes, columns = ROWS // 4, np.zeros(ROWS // 4, np.int8), {}
        for name, size in SIZES.items():
            own = generator.integers(0, size, rows, dtype=np.int8)
            codes = np.where(generator.random(rows, dtype=np.float32) < 0.5, codes % size, own).astype(
                np.int8
            )
            labels = pa.array(POLICY.schema[name].categories)
            columns[name] = pa.DictionaryArray.from_arrays(pa.array(codes), labels)
        pq.write_table(pa.table(columns), folder / f"part-{part}.parquet", row_group_size=1 << 18)
    POLICY.save(folder / "policy.yaml")
    pq.write_table(pq.read_table(folder / "part-0.parquet").slice(0, 1000), folder / "small.parquet")
    return folder


def counted(folder: Path, engine: str) -> dict:
    """Count in a process of its own, so that its memory is its own."""
    arguments = [folder / "policy.yaml", folder / "part-*.parquet", engine, folder / "small.parquet"]
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", COUNT, *map(str, arguments)], capture_output=True, check=True, text=True
    )
    return json.loads(done.stdout)


def test_five_million_rows_are_counted_as_in_memory_and_never_held(five_million):
    ours, theirs = counted(five_million, "duckdb"), counted(five_million, "memory")
    assert ours["n"] == theirs["n"] == ROWS
    for key in ("three", "stderr"):
        np.testing.assert_allclose(ours[key], theirs[key], rtol=1e-9, atol=1e-9 * ROWS)
    assert len(ours["pairs"]) == 45
    for one, other in zip(ours["pairs"], theirs["pairs"], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9 * ROWS)
    assert ours["links"] == theirs["links"]
    assert len(ours["links"]) >= 9
    assert ours["kilobytes"] * 1024 < PLAIN_BYTES


# --- survey weights


def weighted() -> tuple[mq.Policy, pd.DataFrame]:
    policy = mq.Policy.build(
        {"a": ["x", "y"], "b": [0, 1, 2], "c": [True, False]},
        {"a": mq.channels.binary("0.1", "0.2"), ("b", "c"): mq.channels.symmetric(6, "0.3")},
    )
    generator = np.random.default_rng(9)
    frame = pd.DataFrame(
        {
            "a": generator.choice(["x", "y"], 1000),
            "b": generator.integers(0, 3, 1000),
            "c": generator.random(1000) < 0.3,
            "w": np.round(generator.gamma(2.0, 1.0, 1000), 3) * (generator.random(1000) < 0.9),
        }
    )
    return policy, frame


def assert_weighted_as_in_memory(data):
    policy, frame = weighted()
    queries = [mq.Query(by=("a", "b")), mq.Query(by="c", where={"a": "y"}), mq.Query(by="a", where={"b": 1})]
    wanted = mq.tally(frame, policy, weights="w").answer(queries)
    for limit in (EngineLimits(), EngineLimits(cells=1, saving=float("inf"))):
        source = mq.tally(data, policy, weights="w")
        source.limits = limit
        for ours, theirs in zip(source.answer(queries), wanted, strict=True):
            assert ours.n == 1000
            np.testing.assert_allclose(ours.values, theirs.values, rtol=1e-9)
            for kind in ("population", "given_records"):
                np.testing.assert_allclose(ours.stderr(kind), theirs.stderr(kind), rtol=1e-9)
            # weights count as equal within a report, and reports differ with the way of counting
            off = np.abs(ours.conf_int().upper - theirs.conf_int().upper)
            assert np.all(off < 0.1 * theirs.stderr())


def test_survey_weights_in_postgres(postgres):
    with psycopg.connect(postgres.fresh_database().url, autocommit=True) as connection:
        connection.execute("CREATE TABLE weighted (a text, b int, c boolean, w numeric)")
        with connection.cursor() as cursor, cursor.copy("COPY weighted FROM STDIN") as copy:
            for row in weighted()[1].itertuples(index=False):
                copy.write_row(row)
        assert_weighted_as_in_memory(ibis.postgres.from_connection(connection).table("weighted"))


def test_survey_weights_in_spark(spark):
    assert_weighted_as_in_memory(
        spark.createDataFrame(pa.Table.from_pandas(weighted()[1], preserve_index=False))
    )


# --- what dies


def test_a_spark_worker_that_dies_in_the_middle_of_a_scan_changes_no_answer(breakable_spark, monkeypatch):
    """Rows that take a microsecond each to work out, in 12 parts; the worker dies when some are done."""
    monkeypatch.setattr("masquerade.sources.engines.engine_tables.PATIENCE", 0.02)
    rows = 600_000
    slow = "0 * length(sha2(sha2(CAST(id AS STRING), 512), 512))"
    frame = breakable_spark.session.range(0, rows, 1, 12).selectExpr(
        f"CAST(id % 3 + {slow} AS INT) AS a", "CAST(id % 5 AS INT) AS b", "id % 7 = 0 AS c"
    )
    killed = []

    def kill(share):
        if not killed and share is not None and share > 0:
            killed.append(share)
            breakable_spark.kill_worker()

    policy = mq.Policy.clear(mq.Schema({"a": [0, 1, 2], "b": list(range(5)), "c": [True, False]}))
    source = mq.tally(frame, policy, watch=kill)
    (table,) = source.answer([mq.Query(by=("a", "b", "c"))])
    number = np.arange(rows)
    wanted = np.bincount((number % 3 * 5 + number % 5) * 2 + (number % 7 != 0), minlength=30)
    assert table.values.ravel().tolist() == wanted.tolist()
    assert killed, "the scan was over before anything was known of it"
    assert 0 < killed[0] < 1
