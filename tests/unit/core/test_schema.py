"""Variables, categories and codes."""

import numpy as np
import pytest

from masquerade.core.errors import SchemaError, UnknownValue
from masquerade.core.schema import Field, Schema, Variable, category


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        ("1", "1"),
        (1, 1),
        (True, True),
        (np.int8(3), 3),
        (np.bool_(1), True),
        (np.str_("a"), "a"),
        (2.0, 2),
        (np.float32(2), 2),
        (1.5, "1.5"),
        (np.float64(0.1), "0.1"),
    ],
)
def test_categories_become_plain_python_values_of_the_same_kind(given, plain):
    result = category(given)
    assert result == plain
    assert type(result) is type(plain)


@pytest.mark.parametrize("given", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_are_not_finite_are_no_categories(given):
    with pytest.raises(SchemaError, match="must be finite"):
        category(given)


@pytest.mark.parametrize("given", [b"a", ("a",), 1j])
def test_what_is_no_category_is_refused_by_type_and_never_shown(given):
    with pytest.raises(SchemaError, match=f"Got a {type(given).__name__}") as caught:
        category(given)
    assert repr(given) not in str(caught.value)


def test_labels_of_different_types_are_different_categories():
    text, number, truth = Variable("x", ("0", "1")), Variable("x", (0, 1)), Variable("x", (False, True))
    assert len({text, number, truth}) == 3
    assert number != truth
    for variable, others in [(text, (1, True)), (number, ("1", True)), (truth, ("1", 1))]:
        for other in others:
            with pytest.raises(SchemaError, match="is not a category of 'x'"):
                variable.code(other)
    assert (text.code("1"), number.code(np.int64(1)), truth.code(np.bool_(1))) == (1, 1, 1)
    mixed = Variable("x", ("1", 1, 0, "f"))
    assert [mixed.code(label) for label in ("1", 1, 0, "f")] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("name", "categories", "message"),
    [
        ("x", (), "'x' has no categories"),
        ("x", ("a", "b", "a"), "'x' lists a category twice"),
        ("x", (1, True), "true and 1 count as the same"),
        ("x", (1, 1.0), "lists a category twice"),
        ("", ("a",), "needs a name"),
        (3, ("a",), "needs a name"),
        ("x", "yes", "'x' must be a list, not one text"),
    ],
)
def test_bad_variables_are_refused(name, categories, message):
    with pytest.raises(SchemaError, match=message):
        Variable(name, categories)


def test_a_typing_slip_gets_a_hint():
    schema = Schema({"smoker": ("yes", "no"), "region": ("north", "south")})
    with pytest.raises(SchemaError, match=r"no variable 'smokr' in the schema. Did you mean 'smoker'\?"):
        schema["smokr"]
    with pytest.raises(SchemaError, match=r"'nroth' is not a category of 'region'. Did you mean 'north'\?"):
        schema["region"].code("nroth")
    with pytest.raises(SchemaError, match=r"Known: smoker, region\."):
        schema["zzz"]
    with pytest.raises(SchemaError, match="no variable"):
        schema[["smoker"]]


def test_a_schema_is_ordered_hashable_and_counts():
    schema = Schema([Variable("b", ("x", "y")), Variable("a", (1, 2, 3))])
    assert schema.names == ("b", "a")
    assert list(schema) == ["b", "a"]
    assert schema.shape(["a", "b", "a"]) == (3, 2, 3)
    assert len(schema) == 2
    assert ("a" in schema, "c" in schema) == (True, False)
    same = Schema({"b": ["x", "y"], "a": [1, 2, 3]})
    assert schema == same
    assert hash(schema) == hash(same)
    assert schema != Schema({"a": [1, 2, 3], "b": ["x", "y"]})
    assert Schema({"a": [0, 1]}) != Schema({"a": [False, True]})
    assert repr(schema) == "Schema(b:2, a:3)"
    with pytest.raises(SchemaError, match="lists a variable twice"):
        Schema([Variable("a", ("x",)), Variable("a", ("y",))])
    with pytest.raises(SchemaError, match="must be a list"):
        Schema({"a": "yes"})


def test_codes_and_labels_are_inverse():
    schema = Schema({"x": ("lo", "hi", 3, True)})
    codes = np.array([schema["x"].code(label) for label in ("hi", 3, True, "lo", np.int16(3))])
    assert codes.tolist() == [1, 2, 3, 0, 2]
    assert schema.decode("x", codes) == ["hi", 3, True, "lo", 3]


def test_an_unknown_value_is_told_by_its_place():
    unknown = UnknownValue("x", 2)
    assert (unknown.column, unknown.row) == ("x", 2)
    moved = unknown.shift_rows(100)
    assert moved.row == 102
    assert "row 102" in str(moved)
    assert str(unknown.shift_rows(5, "a.csv")).startswith("a.csv: column 'x', row 7: ")


def test_a_field_reads_a_plain_column_by_default():
    field = Field(Variable("x", ("a", "b")))
    assert (field.missing, field.edges) == (None, None)
