"""Disguising Spark frames on a real cluster: the code of other frames, and never a second draw."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import binomtest
from tests.statistical.checks import normal_bound

import masquerade as mq
from masquerade.core.errors import InputError, SchemaError, UnknownValue
from masquerade.disguising.memo import Memo
from masquerade.disguising.spark import SparkWork, _through

POLICY = mq.Policy.from_dict(
    {
        "masquerade": 1,
        "variables": {
            "region": {"categories": ["north", "south"]},
            "smoker": {"categories": ["yes", "no", "unknown"], "missing": "unknown",
                       "channel": {"kind": "symmetric", "p": 0.3}},
            "age": {"bins": [0, 30, 60, 90],
                    "channel": {"kind": "additive", "noise": "uniform", "scale": 30}},
            "visits": {"categories": [0, 1, 2]},
            "left": {"categories": [False, True]},
            "right": {"categories": [False, True]},
        },
        "joint": [{"variables": ["left", "right"], "channel": {"kind": "symmetric", "p": 0.4}}],
        "strata": {"by": "region", "channels": {"south": {"smoker": {"kind": "symmetric", "p": 0.6}}}},
    }
)  # fmt: skip
COLUMNS = ["visits", "smoker", "age", "region", "left", "right"]
SECONDS = 600  # a limit that a machine ten times slower keeps
CLEAR = 7_654_321  # stands in no policy; looked for in messages and logs


def people(rows: int = 4000) -> pa.Table:
    """Return clear records with a few columns that no policy names."""
    generator = np.random.default_rng(4)
    whole = generator.integers(0, 3, rows)
    return pa.table(
        {
            "id": np.arange(rows),
            "visits": pa.array(whole, pa.int32()),
            "smoker": pa.array(np.array(["yes", "no", None], dtype=object)[whole]),
            "when": pa.array(np.arange(rows) * 1_000_000, pa.timestamp("us", "UTC")),
            "age": generator.uniform(0, 90, rows),
            "region": generator.choice(["north", "south"], rows),
            "left": generator.random(rows) < 0.5,
            "right": generator.random(rows) < 0.2,
            "paid": pa.array([Decimal(i) / 4 for i in range(rows)], pa.decimal128(10, 2)),
        }
    )


def by_id(frame) -> pa.Table:
    return frame.toArrow().sort_by("id")


def redrawn(first: pa.Table, second: pa.Table) -> bool:
    """Tell whether any report changed; 4000 fresh draws all repeat with probability below 1e-300."""
    return not first.select(COLUMNS).equals(second.select(COLUMNS))


def with_a_wrong_value(spark):
    return spark.createDataFrame(people()).selectExpr(
        "id", "smoker", "age", "region", "left", "right", f"if(id = 2345, {CLEAR}, visits) AS visits"
    )


def test_a_frame_comes_back_with_the_policys_columns_in_order_and_their_types(spark):
    frame = spark.createDataFrame(people())
    disguised = mq.disguise(frame, POLICY, keep=["when", "paid"])
    assert type(disguised) is type(frame)
    assert disguised.columns == ["visits", "smoker", "when", "age", "region", "left", "right", "paid"]
    kinds = dict(frame.dtypes) | {"age": "string"}  # bins are reported as text
    assert disguised.dtypes == [(name, kinds[name]) for name in disguised.columns]
    result = disguised.toArrow()
    for name in POLICY.schema:
        assert set(result[name].to_pylist()) == set(POLICY.observed[name].categories)
    pairs = set(zip(result["when"].to_pylist(), result["paid"].to_pylist(), strict=True))
    assert pairs == set(zip(people()["when"].to_pylist(), people()["paid"].to_pylist(), strict=True))


def test_reports_have_exactly_the_channels_frequencies(spark):
    """Each of 7 counts is binomial; its exact test fails by chance below 1e-7, any of them below 1e-6."""
    rows = 30_000
    truth = {"region": "south", "smoker": "yes", "left": True, "right": False, "visits": 1, "age": 45.0}
    clear = pa.table({name: [value] * rows for name, value in truth.items()})
    reports = mq.disguise(spark.createDataFrame(clear), POLICY).toArrow()
    groups = {group.names: group for group in POLICY.groups_of(truth["region"])}
    seen = 0
    for names in (("smoker",), ("left", "right")):
        true_codes = [POLICY.schema[name].code(truth[name]) for name in names]
        sizes = [len(POLICY.schema[name]) for name in names]
        row = groups[names].channel.rows[np.ravel_multi_index(true_codes, sizes)]
        drawn = list(zip(*(reports[name].to_pylist() for name in names), strict=True))
        for code, probability in enumerate(row):
            places = np.unravel_index(code, sizes)
            labels = tuple(POLICY.schema[n].categories[i] for n, i in zip(names, places, strict=True))
            assert binomtest(drawn.count(labels), rows, float(probability)).pvalue > 1e-7
            seen += 1
    assert seen == 7


def test_using_a_result_twice_gives_the_same_reports(spark):
    disguised = mq.disguise(spark.createDataFrame(people()).repartition(4), POLICY, keep="id")
    first, second = by_id(disguised), by_id(disguised)
    assert first.num_rows == 4000
    assert first.equals(second)


def test_without_the_checkpoint_spark_would_draw_again(spark):
    """The danger is real: what `disguise` holds back from its callers changes from use to use."""
    clear = people().select(COLUMNS)
    frame = spark.createDataFrame(clear)
    schema = mq.disguise(frame, POLICY).schema
    arrow = mq.disguise(clear, POLICY).schema.remove_metadata()
    work = SparkWork(POLICY, tuple(COLUMNS), tuple(COLUMNS), None, None, arrow)
    lazy = _through(frame, work.draw, schema)
    assert redrawn(lazy.toArrow(), lazy.toArrow())


def test_a_worker_killed_while_it_draws_changes_no_report(breakable_spark, tmp_path):
    """Spark draws the lost parts once more, for nobody had seen them; what comes out is definite."""
    spark = breakable_spark.session
    frame = spark.createDataFrame(people()).repartition(6)

    folder, go, outcome = checkpoints(spark), tmp_path / "go", []
    before = written(folder)

    def waiting(batches):
        for batch in batches:
            while set(folder.glob("rdd-*/part-*")) - before and not go.exists():
                time.sleep(0.05)  # once the first part is drawn, the others wait for the loss
            yield batch

    slow = _through(frame, waiting, frame.schema)
    drawing = threading.Thread(target=lambda: outcome.append(mq.disguise(slow, POLICY, keep="id")))
    drawing.start()
    until = time.monotonic() + SECONDS
    while written(folder) == before and time.monotonic() < until:
        time.sleep(0.02)
    breakable_spark.kill_worker()
    drawn_before = {part: part.read_bytes() for part in written(folder) - before}
    go.touch()
    drawing.join(SECONDS)
    assert 1 <= len(drawn_before) < 6  # it was under way
    assert all(part.read_bytes() == content for part, content in drawn_before.items())
    (disguised,) = outcome
    first, second = by_id(disguised), by_id(disguised)
    assert first["id"].to_pylist() == list(range(4000))
    assert first.equals(second)


def test_a_worker_killed_after_the_draw_changes_no_report(breakable_spark):
    frame = breakable_spark.session.createDataFrame(people()).repartition(4)
    disguised = mq.disguise(frame, POLICY, keep="id")
    first = by_id(disguised)
    breakable_spark.kill_worker()
    assert by_id(disguised).equals(first)


def test_lost_reports_are_an_error_and_never_drawn_again(spark):
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415

    disguised = mq.disguise(spark.createDataFrame(people()), POLICY)
    for result in checkpoints(spark).glob("rdd-*"):
        shutil.rmtree(result)
    with pytest.raises((PySparkException, Py4JJavaError)):
        disguised.toArrow()


def test_a_memo_gives_the_reports_of_every_other_frame_and_stays_lazy(spark, tmp_path):
    memo, clear = tmp_path / "memo.json", people()
    frame = spark.createDataFrame(clear).repartition(3)
    lazy = mq.disguise(frame, POLICY, memo=memo, id="id", new_memo=True, keep=["id"])
    assert list(Memo.open(memo).releases) == [POLICY.id]
    expected = mq.disguise(clear, POLICY, memo=memo, id="id", keep=["id"]).replace_schema_metadata(None)
    for _ in range(2):
        assert by_id(lazy).replace_schema_metadata(None).cast(expected.schema).equals(expected)


def test_shuffling_breaks_the_order_once(spark):
    disguised = mq.disguise(spark.createDataFrame(people()), POLICY, keep="id", shuffle=True)
    first, second = disguised.toArrow(), disguised.toArrow()
    assert first.equals(second)
    assert first.column_names[0] == "id"
    assert first["id"].to_pylist() != list(range(4000))  # in order with probability 1/4000!
    assert sorted(first["id"].to_pylist()) == list(range(4000))


def test_an_unknown_value_is_named_by_column_only_and_stands_in_no_log(the_spark_cluster):
    spark = the_spark_cluster.session
    with pytest.raises(
        SchemaError, match=r"^column 'visits': a value is not one of the policy's categories$"
    ):
        mq.disguise(with_a_wrong_value(spark), POLICY)
    logs = [path for path in the_spark_cluster.folder.rglob("*") if path.name in {"stderr", "stdout"}]
    assert len(logs) >= 4
    assert not [path for path in logs if str(CLEAR) in path.read_text(errors="replace")]


def test_a_missing_id_is_refused_and_nothing_is_remembered(spark, tmp_path):
    frame = spark.createDataFrame(people()).selectExpr("* EXCEPT (id)", "nullif(id, 99) AS id")
    with pytest.raises(SchemaError, match="column 'id': a value is missing"):
        mq.disguise(frame, POLICY, memo=tmp_path / "memo.json", id="id", new_memo=True)
    assert not (tmp_path / "memo.json").exists()


def test_errors_on_executors_quote_no_value():
    policy = mq.Policy.build({"visits": [0, CLEAR]}, {"visits": mq.channels.symmetric(2, 0.5)})
    work = SparkWork(policy, ("visits",), ("visits",), None, None, pa.schema({"visits": pa.int8()}))
    with pytest.raises(RuntimeError, match=r"^Disguising a partition failed with ArrowInvalid\.$") as caught:
        list(work.draw([pa.record_batch({"visits": np.full(100, CLEAR)})]))
    assert caught.value.__context__ is None
    with pytest.raises(UnknownValue) as unknown:
        list(work.draw([pa.record_batch({"visits": [CLEAR + 1]})]))
    assert str(CLEAR + 1) not in str(unknown.value)


def test_a_disguised_frame_is_not_disguised_again(spark):
    disguised = mq.disguise(spark.createDataFrame(people()), POLICY)
    with pytest.raises(InputError, match="disguised under policy"):
        mq.disguise(disguised.select("*"), POLICY)


def test_what_cannot_be_disguised_is_refused_before_a_job_starts(spark):
    frame = spark.createDataFrame(people(10))
    with pytest.raises(SchemaError, match=r"no column 'age' in the frame\. Did you mean 'Age'"):
        mq.disguise(frame.withColumnRenamed("age", "Age"), POLICY)
    with pytest.raises(InputError, match="two columns called 'age'"):
        mq.disguise(frame.selectExpr("*", "age"), POLICY)
    with pytest.raises(InputError, match="'age' is a variable of the policy"):
        mq.disguise(frame, POLICY, keep=["age"])
    with pytest.raises(SchemaError, match="no column 'idd'"):
        mq.disguise(frame, POLICY, memo="unused.json", id="idd", new_memo=True)
    with pytest.raises(InputError, match="A memo needs both"):
        mq.disguise(frame, POLICY, id="id")
    with pytest.raises(InputError, match="A stream cannot be disguised"):
        mq.disguise(spark.readStream.format("rate").load(), POLICY)


def test_without_a_checkpoint_folder_only_a_memo_is_taken(spark, tmp_path):
    context = spark.sparkContext._jsc.sc()
    folder = context.checkpointDir()
    forget = getattr(context, "checkpointDir_$eq")
    frame = spark.createDataFrame(people(10))
    forget(spark.sparkContext._jvm.scala.Option.empty())
    try:
        with pytest.raises(InputError, match="Spark has no checkpoint folder"):
            mq.disguise(frame, POLICY)
        memo = {"memo": tmp_path / "memo.json", "id": "id", "new_memo": True}
        assert mq.disguise(frame, POLICY, **memo).count() == 10
    finally:
        forget(folder)


def test_names_that_spark_would_read_as_expressions_are_columns(spark):
    policy = mq.Policy.build({"a.b `c`": ["x", "y"]}, {"a.b `c`": mq.channels.symmetric(2, 0.4)})
    frame = spark.createDataFrame(pa.table({"a.b `c`": ["x", "y"] * 50}))
    assert set(mq.disguise(frame, policy).toArrow()["a.b `c`"].to_pylist()) == {"x", "y"}


def test_reports_too_large_for_the_old_type_get_a_wider_one(spark):
    channel = mq.channels.symmetric(2, 0.4)
    policy = mq.Policy.build({"code": [1, 300]}, {"code": channel})
    frame = spark.createDataFrame(pa.table({"code": pa.array([1] * 200, pa.int8())}))
    assert frame.dtypes == [("code", "tinyint")]
    disguised = mq.disguise(frame, policy)
    assert disguised.dtypes == [("code", "bigint")]
    assert set(disguised.toArrow()["code"].to_pylist()) == {1, 300}  # 200 draws alike: below 1e-44


def test_other_frames_do_without_pyspark():
    script = (
        "import sys, pandas as pd, masquerade as mq\n"
        "policy = mq.Policy.build({'a': [0, 1]}, {'a': mq.channels.symmetric(2, 0.25)})\n"
        "mq.disguise(pd.DataFrame({'a': [0, 1]}), policy)\n"
        "assert 'pyspark' not in sys.modules and 'masquerade.disguising.spark' not in sys.modules\n"
        "import masquerade.disguising.spark\n"
        "assert 'pyspark' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)  # noqa: S603


def checkpoints(spark) -> Path:
    return Path(spark.sparkContext.getCheckpointDir().removeprefix("file:"))


def written(folder: Path) -> set[Path]:
    """Return the parts of results that are on disk for good."""
    return set(folder.glob("rdd-*/part-*"))


NAMES = ["a", "b", "c", "d"]
VARIABLES = {name: {"categories": ["no", "yes"]} for name in NAMES}
SHARED = {
    "blocks": {"blocks": [{"variables": NAMES, "k": 2, "cells": "0.7", "gamma": 6, "order": 2}]},
    "joint": {
        "joint": [
            {
                "variables": NAMES[:2],
                "report": "either",
                "channel": {
                    "kind": "matrix",
                    "rows": [
                        [
                            *("0.4" if a == i else "0.1" for i in (0, 1)),
                            *("0.4" if b == i else "0.1" for i in (0, 1)),
                        ]
                        for a in (0, 1)
                        for b in (0, 1)
                    ],
                },
            }
        ]
    },
}


@pytest.mark.parametrize("kind", SHARED)
def test_reports_that_variables_have_in_common_are_drawn_and_counted_by_spark(spark, kind, tmp_path):
    """On dependent truths; no cell is further off than its error allows, but once in a million."""
    policy = mq.Policy.from_dict({"masquerade": 1, "variables": VARIABLES, **SHARED[kind]})
    generator = np.random.default_rng(21)
    cells = np.unravel_index(
        generator.choice(16, size=6_000, p=generator.dirichlet(np.full(16, 0.6))), (2,) * 4
    )
    clear = pa.table(
        {name: np.array(["no", "yes"])[codes] for name, codes in zip(NAMES, cells, strict=True)}
        | {"id": np.arange(6_000)}
    )
    frame = spark.createDataFrame(clear).repartition(3)
    disguised = mq.disguise(frame, policy, keep=["id"])
    assert disguised.columns == [*policy.observed.names, "id"]
    definite = by_id(disguised)
    assert definite.equals(by_id(disguised))
    queries = [mq.Query(by=("c", "d")), mq.Query(by="a"), mq.Query(by="c", where={"b": "yes"})]
    counted = mq.tally(disguised.drop("id"), policy).answer(queries)
    same = mq.tally(definite.drop_columns("id"), policy).answer(queries)
    true = mq.tally(clear.drop_columns("id"), schema=policy).answer(queries)
    for ours, theirs, exact in zip(counted, same, true, strict=True):
        np.testing.assert_allclose(ours.values, theirs.values, atol=1e-8)
        np.testing.assert_allclose(ours.stderr(), theirs.stderr())
        bound = normal_bound(8) * ours.stderr("given_records") + 1e-6
        assert np.all(np.abs(ours.values - exact.values) <= bound)
    memo = tmp_path / "memo.json"
    lazy = mq.disguise(frame, policy, memo=memo, id="id", new_memo=True, keep=["id"])
    expected = mq.disguise(clear, policy, memo=memo, id="id", keep=["id"]).replace_schema_metadata(None)
    assert by_id(lazy).replace_schema_metadata(None).cast(expected.schema).equals(expected)
