"""Labels to codes: by type and value, errors by row, never by value."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from masquerade.core.errors import SchemaError, UnknownValue
from masquerade.core.schema import Field, Variable
from masquerade.frames.label_codes import decode, encode


def field(*labels, missing=None, edges=None):
    return Field(Variable("v", labels), missing, edges)


TRUTH = field(*[False, True])
TEXT_TYPES = {
    "string": pa.string(),
    "large_string": pa.large_string(),
    "string_view": pa.string_view(),
    "dictionary": pa.dictionary(pa.int8(), pa.string()),
    "large dictionary": pa.dictionary(pa.uint32(), pa.large_string()),
}


@pytest.mark.parametrize("kind", TEXT_TYPES.values(), ids=TEXT_TYPES.keys())
def test_text_of_every_arrow_type(kind):
    column = pa.chunked_array([pa.array(part, type=kind) for part in (["b", "a"], [], ["c", None])])
    assert encode(column, field("a", "b", "c", missing="a")).tolist() == [1, 0, 2, 0]
    with pytest.raises(UnknownValue) as caught:
        encode(column, field("a", "b", "c"))
    assert (caught.value.column, caught.value.row) == ("v", 4)
    assert "missing:" in str(caught.value)


@pytest.mark.parametrize("kind", TEXT_TYPES.values(), ids=TEXT_TYPES.keys())
def test_an_unknown_value_is_refused_at_its_row_and_not_shown(kind):
    column = pa.chunked_array([pa.array(["a", "b"], type=kind), pa.array(["a", "secret", None], type=kind)])
    with pytest.raises(UnknownValue) as caught:
        encode(column, field("a", "b"))
    assert caught.value.row == 4
    assert "secret" not in str(caught.value)
    first, second = str(caught.value).split("; ")
    assert first == "column 'v', row 4: the value is not one of the policy's categories"
    assert second.startswith("column 'v', row 5: the value is missing")


def test_the_first_wrong_row_is_reported_whatever_its_fault():
    for values, row in ((["a", None, "x"], 2), (["a", "x", None], 2)):
        with pytest.raises(UnknownValue) as caught:
            encode(pa.array(values), field("a"))
        assert caught.value.row == row


def test_a_slice_starts_at_its_own_first_row():
    column = pa.array(["x", "a", "b", "a"]).slice(1)
    assert encode(column, field("a", "b")).tolist() == [0, 1, 0]
    assert encode(pa.array(["x", "a", "b"]).dictionary_encode().slice(1), field("a", "b")).tolist() == [0, 1]


def test_a_dictionary_may_list_unknown_values_that_no_row_uses():
    column = pa.DictionaryArray.from_arrays(pa.array([0, 2], pa.int8()), pa.array(["a", "unused", None]))
    assert encode(column, field("a", "b", missing="b")).tolist() == [0, 1]


def test_a_full_int8_dictionary_with_missing_rows():
    labels = [f"c{k}" for k in range(128)]
    indices = pa.array([127, None, 0], pa.int8())
    column = pa.DictionaryArray.from_arrays(indices, pa.array(labels))
    assert encode(column, field(*labels, missing="c5")).tolist() == [127, 5, 0]


@pytest.mark.parametrize(
    ("size", "dtype"), [(1, np.uint8), (255, np.uint8), (256, np.uint8), (257, np.uint16), (65537, np.uint32)]
)
def test_the_smallest_unsigned_type(size, dtype):
    codes = encode(pa.array([0, size - 1]), field(*range(size)))
    assert codes.dtype == dtype
    assert codes.tolist() == [0, size - 1]


@pytest.mark.parametrize(
    "kind",
    [pa.int8(), pa.uint8(), pa.int64(), pa.uint64(), pa.float16(), pa.float32(), pa.float64()],
    ids=str,
)
def test_whole_numbers_of_every_type(kind):
    column = pa.array(np.array([2, 1, 0], dtype=kind.to_pandas_dtype()), type=kind)
    assert encode(column, field(0, 1, 2, -300, 2**70)).tolist() == [2, 1, 0]


def test_floats_match_when_whole_and_nan_is_missing():
    column = pa.array([1.0, -0.0, float("nan"), None])
    assert encode(column, field(0, 1, missing=0)).tolist() == [1, 0, 0, 0]
    with pytest.raises(UnknownValue) as caught:
        encode(pa.array([1.0, 1.5]), field(0, 1))
    assert caught.value.row == 2
    with pytest.raises(UnknownValue, match="row 1: the value is missing"):
        encode(pa.array([float("nan")]), field(0, 1))


def test_types_are_not_mixed_up():
    assert encode(pa.array([True, False]), TRUTH).tolist() == [1, 0]
    assert encode(pa.array([1, 7]), field("1", 1, "7", 7)).tolist() == [1, 3]
    for column, labels, words in [
        (["1"], (1, 2), "holds text where the policy lists whole numbers"),
        ([1], ("1",), "holds whole numbers where the policy lists text"),
        ([True], (1, 0), "holds true/false where the policy lists whole numbers"),
        ([1], (True, False), "holds whole numbers where the policy lists true/false"),
        ([1.5], ("a", True), "holds numbers where the policy lists text and true/false"),
        ([b"x"], ("x",), "holds values of type binary where the policy lists text"),
    ]:
        with pytest.raises(UnknownValue, match=words):
            encode(pa.array(column), field(*labels))


def test_a_column_of_nothing():
    assert encode(pa.nulls(2), field("a", "b", missing="b")).tolist() == [1, 1]
    assert encode(pa.array([], pa.string()), field("a")).tolist() == []
    assert encode(pa.chunked_array([], pa.string()), field("a")).dtype == np.uint8
    with pytest.raises(UnknownValue, match="rows 1, 2"):
        encode(pa.nulls(2), field("a"))


def test_text_forms():
    column = pa.array(["1", "true", "True", "TRUE", "x", "1.0", "-5"])
    # 1 and True are one category to Python, so they need variables of their own
    assert encode(column.take([0, 4, 5, 6]), field(1, "x", -5), text=True).tolist() == [0, 1, 0, 2]
    assert encode(column.slice(1, 3), TRUTH, text=True).tolist() == [1, 1, 1]
    assert encode(pa.array(["1.0", "1"]), field(1, "1.0"), text=True).tolist() == [1, 0]
    with pytest.raises(SchemaError, match="look the same as text"):
        encode(column, field(1, "1"), text=True)


def test_an_empty_text_listed_as_a_category_is_what_a_csv_cannot_write():
    assert encode(pa.array([None, "a"]), field("", "a"), text=True).tolist() == [0, 1]
    with pytest.raises(UnknownValue):
        encode(pa.array([None, "a"]), field("", "a"))


class TestBins:
    AGES = field("child", "adult", "old", missing="old", edges=(0, 18, 65, 120))

    @pytest.mark.parametrize("kind", [pa.int16(), pa.float64(), pa.float32(), pa.uint64()], ids=str)
    def test_each_bin_holds_its_lower_end_and_the_last_its_upper(self, kind):
        column = pa.array([0, 17, 18, 64, 65, 120, None], type=kind)
        assert encode(column, self.AGES).tolist() == [0, 0, 1, 1, 2, 2, 2]

    def test_nan_is_missing(self):
        assert encode(pa.array([17.999, float("nan")]), self.AGES).tolist() == [0, 2]

    def test_a_dictionary_of_numbers(self):
        assert encode(pa.array([70, 3, None]).dictionary_encode(), self.AGES).tolist() == [2, 0, 2]

    @pytest.mark.parametrize("value", [-0.001, 120.5, float("inf")])
    def test_outside(self, value):
        with pytest.raises(UnknownValue, match="row 2: the value is outside the policy's bins"):
            encode(pa.array([1.0, value]), self.AGES)

    def test_open_ends(self):
        open_ended = field("low", "high", edges=(float("-inf"), 0, float("inf")))
        assert encode(pa.array([-1e300, float("-inf"), float("inf")]), open_ended).tolist() == [0, 0, 1]

    def test_text_that_is_a_number(self):
        column = pa.array(["17", " 1.8e1", "+65", "64.", None, "nan"])
        assert encode(column, self.AGES, text=True).tolist() == [0, 1, 2, 1, 2, 2]
        with pytest.raises(UnknownValue, match="row 2: the value is not a number"):
            encode(pa.array(["17", "1_8"]), self.AGES, text=True)
        with pytest.raises(UnknownValue, match="outside"):
            encode(pa.array(["17", "-3", "x"]), self.AGES, text=True)

    def test_text_where_nothing_is_text(self):
        with pytest.raises(UnknownValue, match="holds text where the policy cuts numbers into bins"):
            encode(pa.array([None, "17"]), self.AGES)
        with pytest.raises(UnknownValue, match="holds true/false"):
            encode(pa.array([True]), self.AGES)

    @given(
        st.lists(st.integers(-50, 50), min_size=2, max_size=8, unique=True).map(sorted),
        st.lists(st.floats(-60, 60, allow_nan=False), max_size=20),
    )
    def test_against_the_definition(self, edges, numbers):
        inside = [x for x in numbers if edges[0] <= x <= edges[-1]]
        bins = field(*(f"b{k}" for k in range(len(edges) - 1)), edges=tuple(map(float, edges)))
        expected = [
            next((k for k in range(len(edges) - 1) if edges[k] <= x < edges[k + 1]), len(edges) - 2)
            for x in inside
        ]
        assert encode(pa.array(inside, pa.float64()), bins).tolist() == expected


def test_decode_types():
    codes = np.array([1, 0, 1], dtype=np.uint8)
    assert decode(codes, ["a", "b"]).equals(pa.array(["b", "a", "b"]))
    assert decode(codes, [5, 7]).equals(pa.array([7, 5, 7], pa.int64()))
    assert decode(codes, [True, False]).equals(pa.array([False, True, False]))
    assert decode(codes, [True, "b"]).equals(pa.array(["b", "true", "b"]))
    assert decode(codes[:0], ["a"]).equals(pa.array([], pa.string()))


LABELS = st.one_of(
    st.lists(st.text(), min_size=1, max_size=300, unique=True),
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=300, unique=True),
    st.permutations([True, False]),
)


@given(LABELS, st.data())
def test_round_trip(labels, data):
    codes = np.array(data.draw(st.lists(st.integers(0, len(labels) - 1), max_size=30)), dtype=np.uint16)
    column = decode(codes, labels)
    assert column.to_pylist() == [labels[code] for code in codes]
    assert encode(column, field(*labels)).tolist() == codes.tolist()
    assert encode(column.dictionary_encode(), field(*labels)).tolist() == codes.tolist()
    assert encode(column.cast(pa.string()), field(*labels), text=True).tolist() == codes.tolist()
