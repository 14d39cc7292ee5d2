"""Drafting a policy from what was seen of columns."""

from __future__ import annotations

import math
from decimal import Decimal
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from masquerade.channels.policy import Policy
from masquerade.channels.policy import text as policy_text
from masquerade.core.errors import InputError, PolicyError
from masquerade.disguising.policy_draft import (
    ColumnSummary,
    cut_points,
    draft,
    plain,
    reason_against,
    summaries,
)


def seen(values, *, csv=False, name="x", batches=1):
    """Return the summary of a column."""
    array = pa.array(values)
    size = math.ceil(len(array) / batches) or 1
    parts = [pa.record_batch({name: array.slice(start, size)}) for start in range(0, len(array), size)]
    (summary,) = summaries(parts, text=csv)
    return summary


def drafted(*columns):
    """Return the plain values of a draft."""
    return policy_text.parse(draft(columns), "yaml")["variables"]


@pytest.mark.parametrize("batches", [1, 3])
def test_few_values_become_sorted_categories(batches):
    column = seen(["s", "n", "e", "n"] * 3, batches=batches)
    assert drafted(column) == {"x": {"categories": ["e", "n", "s"], "channel": {"kind": "decide"}}}


@pytest.mark.parametrize(
    ("values", "csv", "categories"),
    [
        ([3, 1, 3, 10], False, [1, 3, 10]),
        (["3", "1", "3", "10"], True, [1, 3, 10]),
        (["1.0", "2.0", "1.0"], True, [1, 2]),
        ([1.0, 2.0, 1.0], False, [1, 2]),
        (["01", "02", "01"], True, ["01", "02"]),
        (["3", "1", "3"], False, ["1", "3"]),
        ([True, False, True], False, [False, True]),
        (["True", "False", "True"], True, [False, True]),
        (["yes", "no", "no"], True, ["no", "yes"]),
        (["null", "~", "null"], True, ["null", "~"]),
    ],
)
def test_categories_keep_their_type(values, csv, categories):
    found = drafted(seen(values, csv=csv))["x"]["categories"]
    assert found == categories
    assert [type(label) for label in found] == [type(label) for label in categories]


def test_many_numbers_become_round_bins():
    bins = drafted(seen([18.5 + i % 70 + i / 1000 for i in range(300)]))["x"]["bins"]
    assert bins == [10, 20, 30, 40, 50, 60, 70, 80, 90]
    assert drafted(seen([str(i % 60) for i in range(300)], csv=True))["x"]["bins"][0] == 0


@given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9))
def test_cut_points_cover_the_range_evenly(one, other):
    low, high = sorted((one, other))
    assume(high - low > 1e-6 * max(abs(low), abs(high), 1e-300))
    edges = cut_points(low, high)
    assert edges[0] <= Decimal(repr(low))
    assert edges[-1] >= Decimal(repr(high))
    assert 3 <= len(edges) <= 13
    assert len({after - before for before, after in pairwise(edges)}) == 1
    assert [Decimal(plain(edge)) for edge in edges] == edges


def test_missing_values_get_a_category_that_is_not_taken():
    assert drafted(seen(["a", None, "b", "a"]))["x"]["missing"] == "missing"
    assert drafted(seen(["missing", None, "b", "b"]))["x"]["missing"] == "(missing)"
    numbers = drafted(seen([1, 2, None, 2, -1, 1]))["x"]
    assert numbers["missing"] == -2
    assert numbers["categories"] == [-1, 1, 2, -2]
    assert "some values are missing" in draft([seen([i / 7 for i in range(90)] + [None])])


@pytest.mark.parametrize(
    ("name", "values", "csv", "said"),
    [
        ("person_id", [1, 1, 2], False, "by its name"),
        ("PersonId", ["a", "b", "a"], False, "by its name"),
        ("e-mail", ["a", "b", "a"], False, "by its name"),
        ("x", list(range(100)), False, "looks like an identifier"),
        ("x", [str(7 * i) for i in range(2000)], True, "looks like an identifier"),
        ("x", [f"{i} words" for i in range(100)], False, "different texts"),
        ("x", list("abcdefgh"), False, "names or free text"),
        ("x", ["long " * 50, "b", "b"], False, "free text"),
        ("x", ["a", "a"], False, "one value only"),
        ("x", [None, None], False, "no values"),
        ("x", [[1], [2], [1]], False, "dates, lists"),
    ],
)
def test_what_is_no_variable_is_left_out_with_the_reason(name, values, csv, said):
    column = seen(values, csv=csv, name=name)
    assert said in reason_against(column)
    with pytest.raises(InputError, match="No column can be drafted"):
        draft([column])


@pytest.mark.parametrize("name", ["width", "idle", "lengthy_naming", "paid", "kids"])
def test_names_that_only_contain_such_words_stay(name):
    assert reason_against(seen(["a", "b", "a"], name=name)) == ""


@given(
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=12),
    st.sets(st.text(st.characters(codec="utf-8"), max_size=12), min_size=2, max_size=6),
    st.booleans(),
)
def test_every_draft_parses_and_is_refused_as_undecided(name, labels, missing):
    column = ColumnSummary(name, "text", 100, missing, tuple(sorted(labels)), repeats=True)
    assume(not reason_against(column))
    values = policy_text.parse(draft([column]), "yaml")
    assert set(values["variables"]) == {name}
    assert set(labels) <= set(values["variables"][name]["categories"])
    with pytest.raises(PolicyError, match="still to be decided"):
        Policy.from_dict(values)


def test_left_out_names_cannot_break_out_of_their_comment():
    bad = ColumnSummary("a\nb: {}", "other", 3, missing=False, values=None, repeats=True)
    good = ColumnSummary("x", "text", 3, missing=False, values=("a", "b"), repeats=True)
    assert set(drafted(good, bad)) == {"x"}
