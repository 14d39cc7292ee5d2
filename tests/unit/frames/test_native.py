"""Every kind of frame in, the same kind out."""

from __future__ import annotations

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from masquerade.core.errors import InputError, SchemaError, UnknownValue
from masquerade.core.schema import Field, Variable
from masquerade.frames.label_codes import decode, dictionary_of, encode
from masquerade.frames.metadata import metadata_of, with_metadata
from masquerade.frames.native import columns_of, rebuild

TEXT = Variable("v", ("no", "yes"))
WHOLE = Variable("v", (1, 2))
TRUTH = Variable("v", (False, True))
INDEX = [7, 7, 3]


def of_pandas(values, dtype):
    return pd.DataFrame({"v": pd.Series(values, dtype=dtype, index=INDEX), "w": [0, 0, 0]}, index=INDEX)


def of_polars(values, dtype):
    return pl.DataFrame({"v": pl.Series(values, dtype=dtype), "w": [0, 0, 0]})


def of_arrow(values, kind):
    return pa.table(
        {"v": pa.chunked_array([pa.array(values[:1], kind), pa.array(values[1:], kind)]), "w": [0] * 3}
    )


YES = ["yes", "no", "yes"]
# numbered apart from other columns, in a byte; earlier versions of Polars number all in one way
OWN_CATEGORIES = (
    pl.Categorical(pl.Categories("answers", physical=pl.UInt8))
    if hasattr(pl, "Categories")
    else pl.Categorical
)
FRAMES = {
    "pandas str": (of_pandas(YES, "str"), TEXT),
    "pandas string": (of_pandas(YES, "string"), TEXT),
    "pandas arrow string": (of_pandas(YES, pd.ArrowDtype(pa.string())), TEXT),
    "pandas object": (of_pandas(YES, object), TEXT),
    "pandas category": (of_pandas(YES, "category"), TEXT),
    "pandas ordered": (of_pandas(YES, pd.CategoricalDtype(["yes", "x", "no"], ordered=True)), TEXT),
    "pandas category of ints": (of_pandas([2, 1, 2], "category"), WHOLE),
    "pandas int64": (of_pandas([2, 1, 2], "int64"), WHOLE),
    "pandas int8": (of_pandas([2, 1, 2], "int8"), WHOLE),
    "pandas Int64": (of_pandas([2, 1, 2], "Int64"), WHOLE),
    "pandas float": (of_pandas([2, 1, 2], "float64"), WHOLE),
    "pandas object ints": (of_pandas([2, 1, 2], object), WHOLE),
    "pandas bool": (of_pandas([True, False, True], "bool"), TRUTH),
    "pandas boolean": (of_pandas([True, False, True], "boolean"), TRUTH),
    "polars String": (of_polars(YES, pl.String), TEXT),
    "polars Categorical": (of_polars(YES, pl.Categorical), TEXT),
    "polars Enum": (of_polars(YES, pl.Enum(["no", "yes"])), TEXT),
    "polars Categorical of its own": (of_polars(YES, OWN_CATEGORIES), TEXT),
    "polars Int64": (of_polars([2, 1, 2], pl.Int64), WHOLE),
    "polars UInt8": (of_polars([2, 1, 2], pl.UInt8), WHOLE),
    "polars Boolean": (of_polars([True, False, True], pl.Boolean), TRUTH),
    "arrow string": (of_arrow(YES, pa.string()), TEXT),
    "arrow large_string": (of_arrow(YES, pa.large_string()), TEXT),
    "arrow dictionary": (of_arrow(YES, pa.dictionary(pa.int8(), pa.string())), TEXT),
    "arrow int16": (of_arrow([2, 1, 2], pa.int16()), WHOLE),
    "arrow bool": (of_arrow([True, False, True], pa.bool_()), TRUTH),
    "arrow batch": (of_arrow(YES, pa.string()).combine_chunks().to_batches()[0], TEXT),
    "arrow batch of dictionary": (
        pa.record_batch({"v": pa.array(YES).dictionary_encode(), "w": [0] * 3}),
        TEXT,
    ),
}


@pytest.mark.parametrize("built", [decode, dictionary_of])
@pytest.mark.parametrize(("frame", "variable"), FRAMES.values(), ids=FRAMES.keys())
def test_round_trip(frame, variable, built):
    columns = columns_of(frame)
    assert list(columns) == ["v", "w"]
    assert columns.rows == 3
    codes = encode(columns["v"], Field(variable))
    assert codes.tolist() == [1, 0, 1]
    back = rebuild(frame, {"w": None, "v": built(codes, variable.categories)})
    assert type(back) is type(frame)
    expected = frame.select(["w", "v"]) if not isinstance(frame, pd.DataFrame) else frame[["w", "v"]]
    if isinstance(frame, pd.DataFrame):
        pd.testing.assert_frame_equal(back, expected)
    elif isinstance(frame, pl.DataFrame):
        assert back.equals(expected)
        assert back.schema == expected.schema
    else:
        assert back.schema == expected.schema
        assert back.to_pylist() == expected.to_pylist()


WITH_GAPS = {
    "pandas str": of_pandas(["yes", None, "no"], "str"),
    "pandas object": of_pandas(["yes", np.nan, "no"], object),
    "pandas category": of_pandas(["yes", None, "no"], "category"),
    "pandas Int64": of_pandas([2, pd.NA, 1], "Int64"),
    "pandas float": of_pandas([2, np.nan, 1], None),
    "pandas boolean": of_pandas([True, None, False], "boolean"),
    "polars String": of_polars(["yes", None, "no"], pl.String),
    "polars Categorical": of_polars(["yes", None, "no"], pl.Categorical),
    "polars Enum": of_polars(["yes", None, "no"], pl.Enum(["yes", "no"])),
    "polars Int64": of_polars([2, None, 1], pl.Int64),
    "polars Float64": of_polars([2.0, float("nan"), 1.0], pl.Float64),
    "arrow string": of_arrow(["yes", None, "no"], pa.string()),
    "arrow dictionary": of_arrow(["yes", None, "no"], pa.dictionary(pa.int8(), pa.string())),
}


@pytest.mark.parametrize("frame", WITH_GAPS.values(), ids=WITH_GAPS.keys())
def test_missing_values(frame):
    column = columns_of(frame)["v"]
    first = column[0].as_py()
    variable = TRUTH if first is True else WHOLE if first == 2 else TEXT
    assert encode(column, Field(variable, missing=variable.categories[0])).tolist() == [1, 0, 0]
    with pytest.raises(UnknownValue) as caught:
        encode(column, Field(variable))
    assert caught.value.row == 2


class TestTypesThatCannotHoldTheLabels:
    NEW = pa.array(["low", "high", "low"])

    def test_pandas(self):
        whole = rebuild(of_pandas([2, 1, 2], "int64"), {"v": self.NEW})
        assert whole["v"].tolist() == ["low", "high", "low"]
        assert whole.index.tolist() == INDEX
        category = rebuild(of_pandas(YES, "category"), {"v": self.NEW})
        assert category["v"].dtype == "category"
        assert sorted(category["v"].cat.categories) == ["high", "low"]
        large = rebuild(of_pandas([2, 1, 2], "int8"), {"v": pa.array([1, 300, 2])})
        assert large["v"].tolist() == [1, 300, 2]

    def test_digits_stay_text(self):
        digits = pa.array(["1", "0", "1"])
        for frame in (
            of_pandas([2, 1, 2], "int64"),
            of_polars([2, 1, 2], pl.Int64),
            of_arrow([2, 1, 2], pa.int64()),
        ):
            assert columns_of(rebuild(frame, {"v": digits}))["v"].to_pylist() == ["1", "0", "1"]

    def test_polars(self):
        back = rebuild(of_polars(YES, pl.Enum(["no", "yes"])), {"v": self.NEW})
        assert back.schema == {"v": pl.String}
        assert rebuild(of_polars([2, 1, 2], pl.Int8), {"v": pa.array([1, 300, 2])}).schema == {"v": pl.Int64}

    def test_arrow(self):
        assert rebuild(of_arrow([2, 1, 2], pa.int8()), {"v": pa.array([1, 300, 2])}).schema.types == [
            pa.int64()
        ]


def test_categories_keep_the_callers_order_and_those_not_listed_follow():
    reports = dictionary_of(np.array([2, 0, 1], dtype=np.uint8), ["a", "b", "c"])
    ordered = pd.CategoricalDtype(["c", "x", "b", "a"], ordered=True)
    frame = of_pandas(["a", "b", "c"], ordered)
    frame.attrs = {"mine": 1}
    frame.columns.name = "questions"
    back = rebuild(frame, {"v": reports})
    assert back.columns.name == "questions"
    assert back["v"].dtype == ordered
    assert back["v"].tolist() == ["c", "a", "b"]
    assert back.index.tolist() == INDEX
    assert back.attrs == {"mine": 1}
    fewer = rebuild(of_pandas(["b", "b", "b"], pd.CategoricalDtype(["x", "b"])), {"v": reports})
    assert fewer["v"].cat.categories.tolist() == ["b", "a", "c"]
    assert fewer["v"].tolist() == ["c", "a", "b"]
    words = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int16()), ["c", "b", "a"])
    again = rebuild(pa.table({"v": words}), {"v": reports})["v"].chunk(0)
    assert again.type == words.type
    assert again.dictionary.to_pylist() == ["c", "b", "a"]
    assert again.to_pylist() == ["c", "a", "b"]
    listed = pl.Enum(["c", "x", "b", "a"])
    polars = rebuild(of_polars(["a", "b", "c"], listed), {"v": reports})
    assert polars.schema == {"v": listed}
    assert polars["v"].to_list() == ["c", "a", "b"]


def test_new_columns_have_a_natural_type():
    new = {"n": pa.array(["a", "b", "c"])}
    assert rebuild(of_pandas(YES, "str"), new)["n"].tolist() == ["a", "b", "c"]
    assert rebuild(of_polars(YES, pl.String), new).schema == {"n": pl.String}
    assert rebuild(of_arrow(YES, pa.string()), new).schema.types == [pa.string()]


def test_a_lazy_frame_is_collected_and_comes_back_lazy():
    lazy = of_polars(YES, pl.String).lazy()
    columns = columns_of(lazy)
    back = rebuild(columns, {"v": columns["v"], "w": None})
    assert isinstance(back, pl.LazyFrame)
    assert back.collect().equals(lazy.collect())


def test_a_column_kept_may_hold_anything():
    frame = pd.DataFrame({"v": YES, "odd": [1, "x", [2]]})
    assert rebuild(frame, {"odd": None})["odd"].tolist() == [1, "x", [2]]


def test_a_pandas_column_that_mixes_types_is_refused_by_row():
    for values in (["a", None, "b", 99], [1, np.nan, 2, "secret"], [True, None, False, 1]):
        with pytest.raises(UnknownValue) as caught:
            _ = columns_of(pd.DataFrame({"v": pd.Series(values, dtype=object)}))["v"]
        assert caught.value.row == 4
        assert "99" not in str(caught.value)
        assert caught.value.__context__ is None
    assert caught.value.column == "v"


def test_names():
    columns = columns_of(pd.DataFrame({"smoker": [1], 5: [2]}))
    assert list(columns) == ["smoker"]
    with pytest.raises(SchemaError, match=r"no column 'smokr' in the frame\. Did you mean 'smoker'"):
        _ = columns["smokr"]
    with pytest.raises(SchemaError, match="no column 'smokr'"):
        rebuild(columns, {"smokr": None})


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame([[1, 2]], columns=["a", "a"]),
        pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]),
        pa.record_batch([pa.array([1]), pa.array([2])], names=["a", "a"]),
    ],
    ids=["pandas", "table", "batch"],
)
def test_duplicate_names_are_refused(frame):
    with pytest.raises(InputError, match="two columns called 'a'"):
        columns_of(frame)


@pytest.mark.parametrize("thing", [[1, 2], {"a": [1]}, np.zeros(3), "people.csv", None, pd.Series([1])])
def test_what_is_no_frame_is_refused(thing):
    with pytest.raises(InputError, match=r"is not a frame\. Accepted: pandas"):
        columns_of(thing)


POLICY = {"policy": "b1946ac9", "epsilon": "1.1"}


class TestMetadata:
    def test_pandas(self):
        frame = of_pandas(YES, "str")
        frame.attrs["mine"] = 1
        marked = with_metadata(frame, POLICY)
        assert metadata_of(marked) == POLICY
        assert marked.attrs["mine"] == 1
        assert metadata_of(frame) == {}
        assert metadata_of(marked.head(1)) == POLICY
        assert rebuild(marked, {"v": None}).attrs == {"mine": 1}

    @pytest.mark.parametrize("name", ["arrow string", "arrow batch"])
    def test_arrow(self, name):
        frame = FRAMES[name][0].replace_schema_metadata({"mine": "1", "masquerade.old": "x"})
        marked = with_metadata(frame, POLICY)
        assert metadata_of(marked) == POLICY
        assert marked.schema.metadata[b"mine"] == b"1"
        assert rebuild(marked, {"v": None}).schema.metadata == {b"mine": b"1"}

    @pytest.mark.parametrize("name", ["arrow string", "arrow dictionary", "arrow batch"])
    def test_arrow_fields(self, name):
        frame = FRAMES[name][0]
        fields = [
            pa.field(own.name, own.type, nullable=False, metadata={"label": own.name}) for own in frame.schema
        ]
        frame = frame.cast(pa.schema(fields))
        again = rebuild(frame, {"w": None, "v": dictionary_of(np.array([1, 0, 0], np.uint8), ["yes", "no"])})
        assert again.schema.equals(pa.schema(fields[::-1]), check_metadata=True)
        assert again["v"].to_pylist() == ["no", "yes", "yes"]
        hole = rebuild(frame, {"v": pa.array(["no", None, "yes"]), "w": pa.array(["text"] * 3)})
        assert hole.schema.field("v").nullable
        assert hole.schema.field("v").metadata == {b"label": b"v"}
        assert hole.schema.field("w").metadata is None  # said of numbers

    def test_polars_carries_it_and_the_frame_given_does_not(self):
        frame = of_polars(YES, pl.String)
        marked = with_metadata(frame, POLICY)
        assert marked.equals(frame)
        assert metadata_of(marked) == POLICY
        assert metadata_of(frame) == {}


def test_narwhals_frames_are_no_surprise():
    with pytest.raises(InputError):
        columns_of(nw.from_native(pd.DataFrame({"a": [1]})).get_column("a"))


@pytest.mark.parametrize("others", [1, 400])
def test_categories_of_polars_are_taken_by_number_wherever_they_first_stand(others):
    early = [f"early {i % others}" for i in range(20_000)]
    values = [*early, "late", "early 0"]  # later than where one looks first, and among what nobody here has
    pl.Series([f"of another frame {i}" for i in range(5)], dtype=pl.Categorical)
    frame = pl.DataFrame({"v": pl.Series(values, dtype=pl.Categorical)})
    found = columns_of(frame)["v"]
    assert pa.types.is_dictionary(found.type)
    assert found.to_pylist() == values
    assert rebuild(frame, {"v": found})["v"].to_list() == values
    assert rebuild(frame, {"v": found})["v"].dtype == pl.Categorical
