"""A count as a value."""

import hashlib
import json

import pytest

from masquerade.core.errors import SchemaError
from masquerade.core.query import Query
from masquerade.core.schema import Schema


def test_the_id_is_the_sha256_of_the_canonical_text():
    # printf '%s' '{"by":["c"],"where":[["a",3],["ä",true]]}' | sha256sum
    pinned = "535c947205947ea1586500fb0f24083865a7303490e0e684c76eab356e3d491d"
    query = Query(by=("c",), where={"ä": True, "a": 3})
    text = json.dumps({"by": ["c"], "where": [["a", 3], ["ä", True]]}, ensure_ascii=False).replace(" ", "")
    assert query.id == hashlib.sha256(text.encode()).hexdigest() == pinned


def test_every_way_of_asking_the_same_is_the_same_question():
    asked = [
        Query(by=["c"], where={"b": "x", "a": 3}),
        Query(by="c", where=[("a", 3), ("b", "x")]),
        Query("c", (("b", "x"), ("a", 3.0))),
    ]
    assert len(set(asked)) == 1
    assert len({query.id for query in asked}) == 1
    assert asked[0].where == (("a", 3), ("b", "x"))
    assert asked[0].names == ("c", "a", "b")
    assert repr(asked[0]) == "Query(by=('c',), where=(('a', 3), ('b', 'x')))"


def test_different_questions_differ_in_equality_and_id():
    asked = [
        Query(),
        Query("a"),
        Query("b"),
        Query(("a", "b")),
        Query(("b", "a")),
        Query(where={"a": 1}),
        Query(where={"a": True}),
        Query(where={"a": "1"}),
        Query("b", {"a": 1}),
    ]
    assert len(set(asked)) == len(asked)
    assert len({query.id for query in asked}) == len(asked)
    assert Query() != "Query()"


@pytest.mark.parametrize(
    ("by", "where", "message"),
    [
        (("a", "a"), {}, "'a' is named twice"),
        (("a",), {"a": 1}, "'a' is named twice"),
        ((), [("a", 1), ("a", "x")], "'a' is named twice"),
        ((1,), {}, "names variables by text"),
        ((), {2: "x"}, "names variables by text"),
        ((), {"a": float("nan")}, "must be finite"),
        ((), {"a": None}, "category must be"),
    ],
)
def test_bad_questions_are_refused(by, where, message):
    with pytest.raises(SchemaError, match=message):
        Query(by, where)


def test_check_finds_unknown_variables_and_categories():
    schema = Schema({"a": (1, 2), "b": ("x", "y")})
    Query("b", {"a": 1}).check(schema)
    for query, message in [
        (Query("c"), "no variable 'c'"),
        (Query("b", {"c": 1}), "no variable 'c'"),
        (Query("b", {"a": 3}), "3 is not a category of 'a'"),
        (Query("b", {"a": True}), "True is not a category of 'a'"),
    ]:
        with pytest.raises(SchemaError, match=message):
            query.check(schema)


def test_a_query_cannot_be_changed():
    with pytest.raises(AttributeError):
        Query("a").by = ("b",)
