"""Counting in an engine: few scans, exact counts, nothing left out in silence."""

from __future__ import annotations

import logging
from contextlib import closing
from itertools import combinations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import masquerade as mq
from masquerade.core.errors import InputError, PolicyMismatch, QueryRefused, SchemaError, UnknownValue
from masquerade.core.schema import Field
from masquerade.core.supports import Supports, from_tables
from masquerade.sources.engines.duckdb_files import DuckFiles
from masquerade.sources.engines.engine import Engine
from masquerade.sources.engines.engine_cache import EngineLimits, held_bytes

SUMMED_UP = EngineLimits(cells=1, saving=float("inf"))


class Spy:
    """A table that keeps the SQL it was sent."""

    def __init__(self, table):
        self.table, self.sent = table, []

    def __getattr__(self, name):
        return getattr(self.table, name)

    def fetch(self, write, columns):
        def noted(relation):
            self.sent.append(write(relation))
            return self.sent[-1]

        with closing(self.table.fetch(noted, columns)) as batches:
            yield from batches


def spied(path, policy, *, weights=None, limits=None) -> tuple[Engine, Spy]:
    """Return a source over a file, and what it has sent since it was made."""
    spy = Spy(DuckFiles(path))
    source = Engine(spy, policy, [Field(v) for v in policy.observed.variables], weights=weights)
    source.limits = limits or source.limits
    spy.sent.clear()
    return source, spy


def ten_columns(rows=2000) -> tuple[mq.Policy, pd.DataFrame]:
    names = [f"v{i}" for i in range(10)]
    policy = mq.Policy.build(
        {name: ["a", "b", "c"] for name in names},
        {name: mq.channels.symmetric(3, "0.2") for name in names[:6]}
        | {("v8", "v9"): mq.channels.symmetric(9, "0.3")},
    )
    generator = np.random.default_rng(3)
    frame = pd.DataFrame({name: generator.choice(["a", "b", "c"], rows, p=[0.5, 0.3, 0.2]) for name in names})
    return policy, frame


@pytest.fixture(scope="module")
def survey(tmp_path_factory):
    """Return policy, reports and their file: ten variables, and weights between 0 and 3."""
    policy, clear = ten_columns()
    reports = mq.simulate(clear, policy, seed=4)
    reports.attrs.clear()  # so that they may be read as clear ones too
    reports["w"] = np.random.default_rng(5).choice([0.0, 0.5, 1.25, 3.0], len(reports))
    reports["who"] = [f"person {i}" for i in range(len(reports))]
    path = tmp_path_factory.mktemp("survey") / "reports.parquet"
    reports.to_parquet(path, index=False)
    reports.to_csv(path.with_suffix(".csv"), index=False)
    return policy, reports, path


def pairs(schema):
    return [mq.Query(by=pair) for pair in combinations(schema, 2)]


def assert_same(ours, theirs):
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert one.n == other.n
        np.testing.assert_allclose(one.values, other.values, rtol=1e-9, atol=1e-9 * max(other.n, 1))
        for kind in ("population", "given_records"):
            np.testing.assert_allclose(one.stderr(kind), other.stderr(kind), rtol=1e-9, atol=1e-6)


# --- scans


def test_a_batch_of_45_pairs_is_one_scan(survey):
    policy, reports, path = survey
    source, spy = spied(path, policy)
    tables = source.answer(pairs(policy.schema))
    assert len(tables) == 45
    assert len(spy.sent) == 1
    assert_same(tables, mq.tally(reports, policy).answer(pairs(policy.schema)))


def test_tables_that_do_not_fit_together_are_grouping_sets_of_one_scan(survey):
    policy, reports, path = survey
    source, spy = spied(path, policy, limits=EngineLimits(cells=27))
    assert_same(source.answer(pairs(policy.schema)), mq.tally(reports, policy).answer(pairs(policy.schema)))
    assert len(spy.sent) == 1
    assert "GROUPING SETS" in spy.sent[0]


def test_what_is_held_answers_without_a_scan(survey):
    policy, _, path = survey
    source, spy = spied(path, policy)
    source.answer([mq.Query(by=("v0", "v1", "v2"))])
    source.answer([mq.Query(by=("v2", "v0")), mq.Query(by="v1", where={"v2": "a"}), mq.Query()])
    source.answer([mq.Query(by=("v0", "v1", "v2"))])[0].nonnegative("mle")
    assert source.n == 2000
    assert len(spy.sent) == 1


def test_the_second_scan_fetches_the_distinct_rows_of_all_columns_and_there_is_no_third(survey):
    policy, reports, path = survey
    source, spy = spied(path, policy)
    source.answer([mq.Query(by="v0")])
    queries = [mq.Query(by=("v0", f"v{i}")) for i in range(1, 8)]
    for query in queries:
        assert_same(source.answer([query]), mq.tally(reports, policy).answer([query]))
    assert len(spy.sent) == 2


def test_the_distinct_rows_are_fetched_only_if_a_sample_promises_that_they_are_few(survey, caplog):
    policy, _, path = survey
    few = EngineLimits(cells=27)  # 3^10 combinations would not be fetched unseen
    source, spy = spied(path, policy, limits=few)
    with caplog.at_level(logging.INFO, "masquerade.sources"):
        for i in range(4):
            source.answer([mq.Query(by=f"v{i}")])
    # of 2,000 rows over 59,049 combinations nearly all differ: one sample, then a scan for each question
    assert [sql for sql in spy.sent if "LIMIT 131072" in sql] == spy.sent[1:2]
    assert len(spy.sent) == 5
    assert "every batch of queries needs a scan" in caplog.text


def test_few_distinct_rows_are_found_out_and_fetched(tmp_path, caplog):
    policy = mq.Policy.clear(mq.Schema({f"v{i}": list(range(4)) for i in range(6)}))
    rows = np.random.default_rng(1).integers(0, 4, (5, 6)).repeat(200, axis=0)
    pq.write_table(pa.table({f"v{i}": rows[:, i] for i in range(6)}), tmp_path / "few.parquet")
    source, spy = spied(tmp_path / "few.parquet", policy, limits=EngineLimits(cells=16))
    with caplog.at_level(logging.INFO, "masquerade.sources"):
        for i in range(6):
            (table,) = source.answer([mq.Query(by=f"v{i}")])
            assert table.values.tolist() == np.bincount(rows[:, i], minlength=4).tolist()
    assert len(spy.sent) == 3  # the first question, the sample, the distinct rows
    assert "about 5 of 1,000 rows differ; they are fetched once" in caplog.text


def test_checking_asks_nothing_of_the_engine(survey):
    policy, _, path = survey
    source, spy = spied(path, policy)
    assert source.check(pairs(policy.schema)) == []
    with pytest.raises(SchemaError, match="no variable 'v77'"):
        source.check([mq.Query(by="v77")])
    assert spy.sent == []


def test_tables_too_large_to_be_held_together_take_several_scans(survey):
    policy, reports, path = survey
    one = 27 * (3 + 16)  # bytes of one table of three variables
    source, spy = spied(path, policy, limits=EngineLimits(cells=27, bytes=3 * one, saving=float("inf")))
    queries = [mq.Query(by=names) for names in combinations(list(policy.schema)[:6], 3)]
    assert_same(source.answer(queries), mq.tally(reports, policy).answer(queries))
    assert len(spy.sent) == -(-len(queries) // 3)
    (part,) = source.parts(0)
    assert sum(map(held_bytes, part._held)) <= 3 * one


def test_more_columns_than_bits_in_a_number(tmp_path):
    names = [f"c{i}" for i in range(70)]
    columns = np.random.default_rng(2).integers(0, 2, (70, 500))
    pq.write_table(pa.table(dict(zip(names, columns, strict=True))), tmp_path / "wide.parquet")
    policy = mq.Policy.clear(mq.Schema({name: [0, 1] for name in names}))
    source, spy = spied(tmp_path / "wide.parquet", policy, limits=EngineLimits(cells=2, saving=float("inf")))
    tables = source.answer([mq.Query(by=name) for name in names])
    assert [table.values.tolist() for table in tables] == [
        np.bincount(column, minlength=2).tolist() for column in columns
    ]
    assert len(spy.sent) == 2


# --- exactness


def test_counts_are_exact_whole_numbers(survey):
    policy, reports, path = survey
    clear = mq.Policy.clear(policy.schema)
    for limits in (EngineLimits(), SUMMED_UP):
        source, _ = spied(path, clear, limits=limits)
        queries = [*pairs(policy.schema), mq.Query(by="v3", where={"v1": "c", "v8": "a"}), mq.Query()]
        for ours, theirs in zip(
            source.answer(queries), mq.tally(reports, clear).answer(queries), strict=True
        ):
            np.testing.assert_array_equal(ours.values, theirs.values)


QUERIES = [
    mq.Query(),
    mq.Query(by=("v0", "v7")),
    mq.Query(by="v9", where={"v0": "b"}),
    mq.Query(by=("v1", "v8"), where={"v9": "a", "v7": "c"}),
    mq.Query(where={"v2": "a", "v6": "b", "v8": "c"}),
]


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
@pytest.mark.parametrize("limits", [EngineLimits(), SUMMED_UP], ids=["held", "summed up"])
def test_survey_weights_as_in_memory(survey, suffix, limits):
    policy, reports, path = survey
    source, spy = spied(path.with_suffix(suffix), policy, weights="w", limits=limits)
    assert_same(source.answer(QUERIES), mq.tally(reports, policy, weights="w").answer(QUERIES))
    assert any("CASE" in sql for sql in spy.sent) is (limits is SUMMED_UP)


def test_conditions_are_summed_up_in_as_few_scans_as_there_are_tables(survey):
    policy, reports, path = survey
    source, spy = spied(path, policy, limits=SUMMED_UP)
    queries = [mq.Query(by="v0", where={f"v{i}": label}) for i in range(1, 8) for label in "abc"]
    assert_same(source.answer(queries), mq.tally(reports, policy).answer(queries))
    assert len(spy.sent) == 1  # 21 weights and the number of records in one scan


def test_supports_as_in_memory_whichever_way(survey):
    policy, reports, path = survey
    items = tuple((f"v{i}", "a") for i in range(10))
    question = Supports(items, np.array(list(combinations(range(10), 3)), dtype=np.int32))
    wanted = from_tables(mq.tally(reports, policy), question)
    for limits in (EngineLimits(), EngineLimits(cells=27), SUMMED_UP):
        source, _ = spied(path, policy, limits=limits)
        found = source.supports(question)
        np.testing.assert_allclose(found.values, wanted.values, rtol=1e-9, atol=1e-6)
        np.testing.assert_allclose(found.stderr, wanted.stderr, rtol=1e-9, atol=1e-6)


def test_strata_have_their_own_channels(tmp_path):
    spec = {
        "masquerade": 1,
        "variables": {
            "region": {"categories": ["n", "s", "e\"'x"]},
            "smoker": {"categories": ["yes", "no"], "channel": {"kind": "binary", "p": 0.2}},
        },
        "strata": {"by": "region", "channels": {"s": {"smoker": {"kind": "binary", "p": 0.4}}}},
    }
    policy = mq.Policy.from_dict(spec)
    generator = np.random.default_rng(8)
    clear = pd.DataFrame(
        {"region": generator.choice(["n", "s", "e\"'x"], 900), "smoker": generator.choice(["yes", "no"], 900)}
    )
    reports = mq.simulate(clear, policy, seed=1)
    reports.to_parquet(tmp_path / "r.parquet")
    queries = [mq.Query(by="smoker"), mq.Query(by="region", where={"smoker": "yes"}), mq.Query()]
    for limits in (EngineLimits(), SUMMED_UP):
        source, _ = spied(tmp_path / "r.parquet", policy, limits=limits)
        assert_same(source.answer(queries), mq.tally(reports, policy).answer(queries))
    reports.assign(region="?").to_parquet(tmp_path / "r.parquet")
    with pytest.raises(
        UnknownValue, match=r"r.parquet: column 'region', rows 1, 2, .*: the value is not one"
    ):
        spied(tmp_path / "r.parquet", policy)[0].answer(queries)


# --- values and names


CLEAR = {
    "masquerade": 1,
    "variables": {
        "income": {"bins": [0, 10, 20.5, 1000], "missing": "unknown"},
        "age": {"bins": [0, 30, 60]},
        "kids": {"categories": [0, 1, 2, "not stated"], "missing": "not stated"},
        "flag": {"categories": [True, False]},
        "word": {"categories": ["", "x", "no word"], "missing": "no word"},
    },
}


def clear_frame(rows=600) -> pd.DataFrame:
    generator = np.random.default_rng(12)
    income = generator.choice([0, 9.999, 10, 20.5, 20.4999, 1000, np.nan, 3.25, 777.7], rows)
    kids = generator.choice([0.0, 1.0, 2.0, np.nan, -0.0], rows)
    word = generator.choice(np.array(["", "x", None], dtype=object), rows)
    return pd.DataFrame(
        {
            "income": income,
            "age": generator.integers(0, 61, rows),
            "kids": kids,
            "flag": generator.random(rows) < 0.4,
            "word": word,
        }
    )


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "csv"])
@pytest.mark.parametrize(
    "limits", [EngineLimits(), EngineLimits(cells=1, saving=float("inf"))], ids=["held", "summed up"]
)
def test_bins_missing_values_and_whole_floats_mean_the_same_as_in_memory(tmp_path, suffix, limits):
    policy = mq.Policy.from_dict(CLEAR)
    frame, path = clear_frame(), tmp_path / f"clear.{suffix}"
    if suffix == "csv":
        frame["kids"] += 0.0  # no text stands for minus nought
    table = pa.Table.from_pandas(frame, preserve_index=False)
    if suffix == "arrow":
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    else:
        pq.write_table(table, path) if suffix == "parquet" else frame.to_csv(path, index=False)
    queries = [
        mq.Query(by="income"),
        mq.Query(by=("age", "kids")),
        mq.Query(by="word", where={"income": "unknown"}),
        mq.Query(by="flag", where={"kids": "not stated", "age": policy.schema["age"].categories[1]}),
        mq.Query(by=("income", "flag", "word")),
    ]
    source = mq.tally(path, schema=policy, engine="duckdb")
    source.limits = limits
    wanted = mq.tally(path, schema=policy, engine="memory").answer(queries)
    assert wanted[2].total > 0
    for ours, theirs in zip(source.answer(queries), wanted, strict=True):
        np.testing.assert_array_equal(ours.values, theirs.values)


def test_bins_are_found_by_the_engine_so_that_numbers_are_not_fetched_one_by_one(tmp_path):
    policy = mq.Policy.from_dict(CLEAR)
    frame = clear_frame(5000).assign(income=np.linspace(0, 1000, 5000))
    frame.to_parquet(tmp_path / "c.parquet")
    spy = Spy(DuckFiles(tmp_path / "c.parquet"))
    used = policy.without_channels()
    source = Engine(spy, used, used.fields)
    source.limits = EngineLimits(rows=10)
    (table,) = source.answer([mq.Query(by=("income", "flag"))])
    assert table.total == 5000
    assert "CASE WHEN" in spy.sent[-1]


HOSTILE = [
    "it's", '"quoted"', "back\\slash", "\\'", "100%", "%s %(x)s", "{curly} {}", "${spark.app.name} $1",
    " lead", "trail ", "tab\tnew\nline", "ünïcödé 😀", "-- drop", "'; DROP TABLE reports; --", "NULL", "null",
    "NaN", "?", ":name", "E'x'", "\u2028", "A", "a",
]  # fmt: skip
NAMES = ['we"ird', "select", "Two Words", "semi;colon", "per%cent", "b`tick", "it's", "ünï", "a.b", "GROUP"]


def hostile() -> tuple[mq.Policy, pd.DataFrame]:
    """Return records whose labels and names are hard to write in SQL."""
    generator = np.random.default_rng(21)
    frame = pd.DataFrame({name: generator.choice(HOSTILE, 400) for name in NAMES[:6]})
    frame = frame.assign(**{name: generator.choice(HOSTILE[:2], 400) for name in NAMES[6:]})
    return mq.Policy.clear(mq.Schema(dict.fromkeys(NAMES, HOSTILE))), frame


def hostile_queries():
    return [
        *(mq.Query(by=name) for name in NAMES),
        *(mq.Query(by=NAMES[1], where={NAMES[0]: label}) for label in HOSTILE),
        mq.Query(by=(NAMES[2], NAMES[3]), where={NAMES[4]: HOSTILE[2], NAMES[5]: HOSTILE[3]}),
        *(mq.Query(where={name: HOSTILE[0]}) for name in NAMES),
    ]


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
@pytest.mark.parametrize("limits", [EngineLimits(), SUMMED_UP], ids=["held", "summed up"])
def test_labels_and_names_that_are_hard_to_write(tmp_path, suffix, limits):
    policy, frame = hostile()
    path = tmp_path / f"it's [a] path.{suffix}"
    frame.to_parquet(path) if suffix == "parquet" else frame.to_csv(path, index=False)
    source = mq.tally(path, policy, engine="duckdb")
    source.limits = limits
    assert_same(source.answer(hostile_queries()), mq.tally(frame, policy).answer(hostile_queries()))


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_labels_of_several_types_are_reported_as_text(tmp_path, suffix):
    policy = mq.Policy.build({"m": [1, "one", False], "n": [0, 1]}, {"m": mq.channels.symmetric(3, "0.2")})
    frame = pd.DataFrame({"m": ["1", "one", "false"] * 40, "n": [0, 1] * 60})
    path = tmp_path / f"mixed.{suffix}"
    frame.to_parquet(path) if suffix == "parquet" else frame.to_csv(path, index=False)
    queries = [mq.Query(by="m"), mq.Query(by="n", where={"m": 1})]
    for limits in (EngineLimits(), SUMMED_UP):
        source = mq.tally(path, policy, engine="duckdb")
        source.limits = limits
        assert_same(source.answer(queries), mq.tally(frame, policy).answer(queries))


def test_columns_that_differ_in_case_only_are_refused(tmp_path):
    pq.write_table(pa.table({"Age": ["x"], "age": ["y"], "w": ["x"]}), tmp_path / "case.parquet")
    with pytest.raises(SchemaError, match="'Age' and 'age' differ only in case"):
        spied(tmp_path / "case.parquet", mq.Policy.clear(mq.Schema({"age": ["x", "y"]})))
    policy = mq.Policy.clear(mq.Schema({"w": ["x"]}))
    assert spied(tmp_path / "case.parquet", policy)[0].answer([mq.Query(by="w")])[0].total == 1
    with pytest.raises(SchemaError, match=r"unknown column 'ages'. Did you mean"):
        spied(tmp_path / "case.parquet", mq.Policy.clear(mq.Schema({"ages": ["x"]})))


@pytest.mark.parametrize("name", ["masquerade_count", "MASQUERADE_COUNT", "masquerade_w0", "masquerade_set"])
def test_columns_called_as_results_are_refused_and_may_stand_beside_others(tmp_path, name):
    pq.write_table(pa.table({name: ["x", "y"], "b": ["u", "u"]}), tmp_path / "named.parquet")
    with pytest.raises(SchemaError, match=f"column '{name}' has a reserved name: rename it"):
        spied(tmp_path / "named.parquet", mq.Policy.clear(mq.Schema({name: ["x", "y"]})))
    source, _ = spied(tmp_path / "named.parquet", mq.Policy.clear(mq.Schema({"b": ["u"]})))
    assert source.answer([mq.Query(by="b")])[0].total == 2


# --- refusals


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
@pytest.mark.parametrize("limits", [EngineLimits(), SUMMED_UP], ids=["held", "summed up"])
@pytest.mark.parametrize("bad", ["secret", None])
def test_an_unknown_value_is_named_by_file_row_and_column_as_in_memory_and_never_itself(
    tmp_path, suffix, limits, bad
):
    policy = mq.Policy.build({"a": ["x", "y"], "b": ["x", "y"]}, {"a": mq.channels.binary("0.1")})
    good = pd.DataFrame({"a": ["x", "y"] * 30, "b": ["y", "x"] * 30})
    wrong = good.copy()
    wrong.loc[41, "b"] = bad
    paths = [tmp_path / f"{i}.{suffix}" for i in range(2)]
    for frame, path in zip((good, wrong), paths, strict=True):
        frame.to_parquet(path) if suffix == "parquet" else frame.to_csv(path, index=False)
    with pytest.raises(UnknownValue) as wanted:
        mq.tally(paths, policy, engine="memory")
    assert "1." + suffix in str(wanted.value)
    assert "row 42" in str(wanted.value)
    for query in (mq.Query(by="b"), mq.Query(by="a", where={"b": "x"}), mq.Query(where={"a": "x", "b": "y"})):
        source = mq.tally(paths, policy, engine="duckdb")
        source.limits = limits
        with pytest.raises(UnknownValue) as found:
            source.answer([query])
        assert str(found.value) == str(wanted.value)
        assert "secret" not in str(found.value)


def test_an_unknown_value_among_conditions_is_never_left_out_in_silence(tmp_path):
    """Three conditions, the wrong value in the last one, far from the first rows."""
    policy = mq.Policy.clear(mq.Schema({name: ["x", "y"] for name in "abc"}))
    frame = pd.DataFrame({"a": ["x"] * 900, "b": ["y"] * 900, "c": ["x"] * 899 + ["?"]})
    frame.to_parquet(tmp_path / "f.parquet")
    source, spy = spied(tmp_path / "f.parquet", policy, limits=SUMMED_UP)
    with pytest.raises(UnknownValue, match="column 'c', row 900"):
        source.answer([mq.Query(where={"a": "x", "b": "y", "c": "x"})])
    assert "CASE" in spy.sent[0]


@pytest.mark.parametrize("limits", [EngineLimits(), SUMMED_UP], ids=["held", "summed up"])
@pytest.mark.parametrize("rows", [0, 1])
def test_no_record_and_one(tmp_path, limits, rows):
    policy = mq.Policy.build({"a": ["x", "y"], "b": [0, 1]}, {"a": mq.channels.binary("0.1")})
    table = pa.table({"a": ["y"], "b": [1], "w": [2.0]}).slice(0, rows)
    pq.write_table(table, tmp_path / "f.parquet")
    queries = [
        mq.Query(),
        mq.Query(by=("a", "b")),
        mq.Query(by="b", where={"a": "y"}),
        mq.Query(where={"b": 1}),
    ]
    for weights in (None, "w"):
        source, _ = spied(tmp_path / "f.parquet", policy, weights=weights, limits=limits)
        assert_same(source.answer(queries), mq.tally(table, policy, weights=weights).answer(queries))
        assert source.n == rows


def test_one_category(tmp_path):
    pq.write_table(pa.table({"a": ["only"] * 7}), tmp_path / "f.parquet")
    policy = mq.Policy.build({"a": ["only"]}, {"a": mq.channels.symmetric(1, "0.3")})
    (table,) = spied(tmp_path / "f.parquet", policy)[0].answer([mq.Query(by="a")])
    assert table.values.tolist() == [7]


def test_too_many_different_rows_are_an_error_that_says_what_to_do(survey):
    policy, _, path = survey
    source, _ = spied(path, policy, limits=EngineLimits(rows=50))
    with pytest.raises(InputError, match="columns v0, v1, v2, v3 have too many distinct rows"):
        source.answer([mq.Query(by=("v0", "v1", "v2", "v3"))])
    assert source.answer([mq.Query(by="v0")])[0].n == 2000


def test_a_sample_that_misled_costs_a_scan_and_no_answer(tmp_path):
    """The first rows are alike, the others are not: fetching distinct rows is given up for good."""
    generator = np.random.default_rng(2)
    columns = {f"v{i}": np.r_[np.zeros(500, int), generator.integers(0, 9, 4000)] for i in range(6)}
    pq.write_table(pa.table(columns), tmp_path / "f.parquet")
    policy = mq.Policy.clear(mq.Schema({name: list(range(9)) for name in columns}))
    source, spy = spied(tmp_path / "f.parquet", policy, limits=EngineLimits(cells=81, rows=600, sample=500))
    for i in range(5):
        (table,) = source.answer([mq.Query(by=(f"v{i}", f"v{i + 1}"))])
        found = np.bincount(columns[f"v{i}"] * 9 + columns[f"v{i + 1}"], minlength=81)
        np.testing.assert_array_equal(table.values.ravel(), found)
    # first question; sample and all columns in vain with the second; then a scan for each
    assert len(spy.sent) == 1 + 3 + 3


def test_the_large_tables_that_a_channel_forbids_are_refused_without_a_scan(survey):
    _, _, path = survey
    policy = mq.Policy.build({"v0": ["a", "b", "c"]}, {"v0": mq.channels.matrix([["1/3"] * 3] * 3)})
    source, spy = spied(path, policy)
    with pytest.raises(QueryRefused, match="v0: "):
        source.answer([mq.Query(by="v0")])
    assert spy.sent == []


# --- persons, weights, origins


def test_persons_who_come_twice_are_refused(survey, tmp_path):
    policy, reports, path = survey
    assert mq.tally(path, policy, id="who", engine="duckdb").n == 2000
    twice = tmp_path / "twice.parquet"
    for changed in ({3: "person 2"}, {3: "person 2", 4: None, 5: None}, {7: None}):
        frame = reports.copy()
        for row, who in changed.items():
            frame.loc[row, "who"] = who
        frame.to_parquet(twice)
        told = []
        for engine in ("memory", "duckdb"):
            try:
                mq.tally(twice, policy, id="who", engine=engine)
            except InputError as error:
                told.append(str(error))
        assert len(told) in {0, 2}
        assert len(set(told)) <= 1
        assert bool(told) is (len(changed) != 1 or 3 in changed)


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (-0.5, "Survey weights must be 2,000 finite numbers of at least 0"),
        (np.inf, "Survey weights must be 2,000 finite numbers of at least 0"),
        (None, "column 'w': a value is missing"),
    ],
)
def test_weights_that_are_none_are_refused(survey, tmp_path, suffix, wrong, message):
    policy, reports, _ = survey
    path = tmp_path / f"w{suffix}"
    frame = reports.assign(w=reports["w"].astype(object))
    frame.loc[1234, "w"] = wrong
    frame = frame.assign(w=frame["w"].astype("Float64"))
    frame.to_parquet(path) if suffix == ".parquet" else frame.to_csv(path, index=False)
    source = mq.tally(path, policy, weights="w", engine="duckdb")
    with pytest.raises(InputError, match=message):
        source.answer([mq.Query(by="v0")])


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_weights_that_are_no_numbers_are_refused(survey, suffix):
    policy, _, path = survey
    source = mq.tally(path.with_suffix(suffix), policy, weights="who", engine="duckdb")
    with pytest.raises(InputError, match="Column 'who' contains survey weights and must be numeric"):
        source.answer([mq.Query()])


def test_not_a_number_is_no_weight(tmp_path):
    pq.write_table(pa.table({"a": ["x", "y"], "w": [1.0, float("nan")]}), tmp_path / "f.parquet")
    source = mq.tally(
        tmp_path / "f.parquet", mq.Policy.clear(mq.Schema({"a": ["x", "y"]})), weights="w", engine="duckdb"
    )
    with pytest.raises(InputError, match="finite numbers"):
        source.answer([mq.Query()])


@pytest.mark.parametrize("suffix", ["parquet", "csv", "arrow"])
def test_files_that_name_another_policy_are_refused(tmp_path, suffix):
    policy = mq.Policy.build({"a": ["x", "y"]}, {"a": mq.channels.binary("0.1")})
    other = mq.Policy.build({"a": ["x", "y"]}, {"a": mq.channels.binary("0.2")})
    pd.DataFrame({"a": ["x", "y"]}).to_csv(tmp_path / "clear.csv", index=False)
    target = tmp_path / f"d.{suffix}"
    mq.disguise_file(tmp_path / "clear.csv", target, policy)
    assert mq.tally(target, policy, engine="duckdb").n == 2
    with pytest.raises(PolicyMismatch):
        mq.tally(target, other, engine="duckdb")
    with pytest.raises(PolicyMismatch):
        mq.tally(target, schema=policy, engine="duckdb")
