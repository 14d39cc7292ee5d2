"""Labels of rows to codes: every kind of frame, types kept apart, errors that name row and column alone."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import masquerade as mq
from masquerade.core.errors import InputError, MasqueradeWarning, PolicyMismatch, SchemaError, UnknownValue
from masquerade.core.schema import Schema, Variable
from masquerade.learn.classifiers.prediction_rows import labels_of, most_likely, normalise_scores, row_codes

WORDS = Schema({"w": ["no", "yes", "perhaps"]})
LABELS = ["yes", "perhaps", "no", "yes"]
CODES = [1, 2, 0, 1]
NUMBERS = Schema({"w": [7, -2, 40]})
FIGURES = [-2, 40, 7, -2]


def codes(column, schema=WORDS):
    return row_codes({"w": column}, schema, ["w"])["w"].tolist()


@pytest.mark.parametrize(
    "column",
    [
        LABELS,
        tuple(LABELS),
        np.array(LABELS),
        np.array(LABELS, dtype=object),
        np.array(LABELS, dtype=np.dtypes.StringDType()),
        pd.Series(LABELS, index=[9, 9, 3, 1]),
        pd.Series(LABELS, dtype=object),
        pd.Series(LABELS, dtype="category"),
        pd.Series(LABELS, dtype=pd.CategoricalDtype(["yes", "unused", "no", "perhaps"])),
        pd.Series(LABELS, dtype=pd.ArrowDtype(pa.string())),
        pl.Series(LABELS),
        pl.Series(LABELS, dtype=pl.Categorical),
        pa.array(LABELS),
        pa.array(LABELS, type=pa.string_view()),
        pa.chunked_array([LABELS[:1], [], LABELS[1:]]),
        pa.chunked_array(
            [pa.array(LABELS[:2]).dictionary_encode(), pa.array(LABELS[2:]).dictionary_encode()]
        ),
        [np.str_(label) for label in LABELS],
    ],
    ids=lambda column: f"{type(column).__module__}.{getattr(column, 'dtype', getattr(column, 'type', ''))}",
)
def test_every_kind_of_text_column_gives_the_same_codes(column):
    assert codes(column) == CODES


@pytest.mark.parametrize(
    "column",
    [
        FIGURES,
        [np.int8(value) for value in FIGURES],
        [float(value) for value in FIGURES],
        np.array(FIGURES),
        np.array(FIGURES, dtype=np.int8),
        np.array(FIGURES, dtype=np.float32),
        pd.Series(FIGURES),
        pd.Series(FIGURES, dtype="Int16"),
        pl.Series(FIGURES),
        pa.array(FIGURES),
        pa.array(FIGURES, type=pa.float64()),
    ],
)
def test_every_kind_of_number_column_gives_the_same_codes(column):
    assert codes(column, NUMBERS) == [1, 2, 0, 1]


def test_labels_far_apart_and_the_largest_numbers():
    far = Schema({"w": [5, -(2**62), 2**63 + 1]})
    assert codes(np.array([-(2**62), 5]), far) == [1, 0]
    assert codes(np.array([5, 2**63 + 1], dtype=np.uint64), far) == [0, 2]
    with pytest.raises(UnknownValue, match="row 1"):  # 2**64 − 2 would wrap to −2
        codes(np.array([2**64 - 2], dtype=np.uint64), NUMBERS)


def test_a_number_a_text_and_a_truth_value_differ():
    mixed = Schema({"w": [1, "1", "true", False]})
    assert codes([1, "1", "true", False, 1.0, False], mixed) == [0, 1, 2, 3, 0, 3]
    assert codes(np.array([1, "1"], dtype=object), mixed) == [0, 1]
    assert codes(np.array([False, False]), mixed) == [3, 3]
    for column in (
        [True],
        np.array([True]),
        pa.array([True]),
        [0],
        np.array([0]),
        ["False"],
        np.array([0.0]),
    ):
        with pytest.raises(UnknownValue):
            codes(column, mixed)
    flags = Schema({"w": [True, False]})
    assert codes(np.array([False, True]), flags) == [1, 0]
    assert codes(pd.Series([False, True], dtype="boolean"), flags) == [1, 0]
    with pytest.raises(UnknownValue):
        codes(np.array([0, 1]), flags)


@pytest.mark.parametrize("make", [list, np.array, pd.Series, pl.Series, pa.array])
def test_the_first_unknown_label_is_named_by_row_and_never_shown(make):
    with pytest.raises(UnknownValue) as caught:
        codes(make(["yes", "no", "a secret", "another"]))
    assert (caught.value.column, caught.value.row) == ("w", 3)
    assert "secret" not in str(caught.value)
    with pytest.raises(UnknownValue, match="row 2"):
        codes(make([7, 8]), NUMBERS)


@pytest.mark.parametrize(
    ("column", "schema"),
    [
        (["yes", None], WORDS),
        (pd.Series(["yes", None]), WORDS),
        (pl.Series(["yes", None]), WORDS),
        (pa.array(["yes", None]), WORDS),
        (np.array([7.0, np.nan]), NUMBERS),
        (pd.Series([7, None], dtype="Int64"), NUMBERS),
        ([7, pd.NA], NUMBERS),
        ([7, float("nan")], NUMBERS),
    ],
)
def test_a_missing_label_is_said_to_be_missing(column, schema):
    with pytest.raises(UnknownValue, match="column 'w', row 2: the value is missing"):
        codes(column, schema)


@pytest.mark.parametrize("column", [[["yes"]], np.array([b"yes"]), pa.array([["yes"]]), [object()], [2.5]])
def test_what_is_no_label_is_unknown(column):
    with pytest.raises(UnknownValue):
        codes(column)


def test_frames_of_all_kinds_and_no_rows_at_all():
    frame = pd.DataFrame({"w": LABELS, "other": [0, 0, 0, 0]})
    for rows in (frame, pl.DataFrame(frame.to_dict("list")), pa.table(frame.to_dict("list"))):
        assert row_codes(rows, WORDS, ["w"])["w"].tolist() == CODES
        assert len(row_codes(rows[:0], WORDS, ["w"])["w"]) == 0
        with pytest.raises(SchemaError, match="no column 'v' in the rows"):
            row_codes(rows, Schema({"v": [1]}), ["v"])
    assert row_codes(frame, WORDS, []) == {}
    assert codes(pa.chunked_array([], type=pa.string())) == []


@pytest.mark.parametrize("rows", [3, "text", [["yes"]], np.zeros((2, 2)), pl.LazyFrame({"w": LABELS})])
def test_what_has_no_columns_is_refused(rows):
    with pytest.raises(InputError, match="frame"):
        row_codes(rows, WORDS, ["w"])


def test_columns_must_be_columns_and_equally_long():
    with pytest.raises(InputError, match="one-dimensional"):
        codes(np.array([LABELS, LABELS]))
    two = pd.DataFrame([["yes", "no"]], columns=["w", "w"])
    with pytest.raises(InputError, match="one-dimensional"):
        row_codes(two, WORDS, ["w"])
    schema = Schema({"a": [0], "b": [0]})
    with pytest.raises(InputError, match="a: 1, b: 2"):
        row_codes({"a": [0], "b": [0, 0]}, schema, ["a", "b"])


def test_labels_come_back_in_their_own_type():
    assert labels_of(Variable("v", (3, 5)), np.array([1, 0])).dtype.kind == "i"
    assert labels_of(Variable("v", (True, False)), np.array([1])).tolist() == [False]
    mixed = labels_of(Variable("v", (1, "1")), np.array([1, 0])).tolist()
    assert mixed == ["1", 1]
    assert [type(label) for label in mixed] == [str, int]


def test_scores_to_classes():
    scores = np.log([[0.2, 0.6], [0.3, 0.3 * (1 + 1e-12)]])
    assert most_likely(scores).tolist() == [1, 0]  # equal up to rounding: the first
    np.testing.assert_allclose(np.exp(normalise_scores(scores, np.ones(2))), [[0.25, 0.75], [0.5, 0.5]])
    with pytest.warns(MasqueradeWarning, match="1 rows have probability 0"):
        alone = normalise_scores(np.array([[-np.inf, -np.inf], [0, -np.inf]]), np.array([0.25, 0.75]))
    np.testing.assert_allclose(np.exp(alone), [[0.25, 0.75], [1, 0]])


def test_numbers_fall_into_bins():
    schema = Schema({"age": ["[0, 20)", "[20, 40)", "[40, 60]", "unknown"]})
    wanted = [0, 1, 2, 2]
    numbers = [0.0, 20.5, 59.9, 60.0]
    columns = [
        numbers,
        np.array(numbers),
        pd.Series(numbers),
        pd.Series(numbers, dtype="Float64"),
        pa.array(numbers),
        pl.Series(numbers),
    ]
    for column in columns:
        frame = {"age": column}
        assert row_codes(frame, schema, ["age"])["age"].tolist() == wanted
    assert row_codes({"age": np.array([3, 45])}, schema, ["age"])["age"].tolist() == [0, 2]
    assert row_codes({"age": ["[20, 40)", "unknown"]}, schema, ["age"])["age"].tolist() == [1, 3]
    for wrong, row in ([1.0, 61.0], 2), ([-0.5], 1), ([5.0, float("nan")], 2), (["5"], 1):
        with pytest.raises(UnknownValue) as caught:
            row_codes({"age": wrong}, schema, ["age"])
        assert f"row {row}" in str(caught.value)


def test_rows_that_say_they_are_disguised_are_refused_unless_they_are_meant():
    policy = mq.Policy.build({"smoker": ["yes", "no"]}, {"smoker": mq.channels.binary("0.2")})
    people = pd.DataFrame({"smoker": ["yes", "no"] * 5})
    for made in (people, pa.Table.from_pandas(people), pl.from_pandas(people)):
        table = mq.disguise(made, policy)
        with pytest.raises(PolicyMismatch, match="disguised_view"):
            row_codes(table, policy.schema, ["smoker"])
        assert len(row_codes(table, policy.schema, ["smoker"], disguised=True)["smoker"]) == 10
    assert len(row_codes(people, policy.schema, ["smoker"])["smoker"]) == 10
