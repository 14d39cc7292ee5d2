"""Drafting a policy from what was seen of columns."""

from __future__ import annotations

import math
from decimal import Decimal
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from masquerade.channels.policy import Policy
from masquerade.channels.policy import text as policy_text
from masquerade.core.errors import InputError, PolicyError
from masquerade.disguising import column_summary
from masquerade.disguising.column_summary import ColumnSummary, summaries
from masquerade.disguising.draft_bins import cut_points, plain, round_bins
from masquerade.disguising.policy_draft import (
    draft_per_answer,
    draft_variables,
    draft_with_limit,
    entry,
    reason_against,
)


def seen(values, *, csv=False, name="x", batches=1):
    """Return the summary of a column."""
    array = pa.array(values)
    size = math.ceil(len(array) / batches) or 1
    parts = [pa.record_batch({name: array.slice(start, size)}) for start in range(0, len(array), size)]
    (summary,) = summaries(parts, text=csv)
    return summary


def draft(columns):
    """Return a draft that leaves the channel of every variable open."""
    return draft_per_answer(draft_variables(columns))


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
        (["off", "~", "off"], True, ["off", "~"]),
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


@pytest.mark.parametrize("bins", [6, 10])
def test_crowded_numbers_get_bins_with_about_equal_numbers_of_records(bins):
    """Nearly all costs are in the first of equally wide bins; cut points stay round and cover the range."""
    costs = np.round(np.exp(np.random.default_rng(1).normal(6, 1.6, 40_000)), 2)
    even = [float(edge) for edge in cut_points(float(costs.min()), float(costs.max()), bins)]
    assert np.histogram(costs, even)[0].max() > 0.95 * len(costs)
    column = seen(costs, batches=3)
    edges = [float(edge) for edge in round_bins(column.low, column.high, column.sample, bins)]
    shares = np.histogram(costs, edges)[0] / len(costs)
    assert shares.sum() == pytest.approx(1)  # every number is in a bin
    assert 0.6 / bins < shares.min() <= shares.max() < 1.5 / bins
    for edge in edges:
        assert edge == float(f"{edge:.2g}")
    assert any(line.startswith("# bins with about equal") for line in entry(column, bins=bins))


def test_spread_numbers_keep_equally_wide_bins():
    column = seen(np.random.default_rng(1).integers(18, 94, 5000) + 0.5)
    assert round_bins(column.low, column.high, column.sample) == cut_points(column.low, column.high)


def test_a_number_that_most_records_have_leaves_bins_for_the_others():
    draw = np.random.default_rng(2)
    costs = np.where(draw.random(20_000) < 0.7, 0.0, np.exp(draw.normal(6, 1.6, 20_000)))
    column = seen(costs)
    edges = [float(edge) for edge in round_bins(column.low, column.high, column.sample, 6)]
    shares = np.histogram(costs[costs > 0], edges)[0] / np.sum(costs > 0)
    assert len(shares) >= 5
    assert shares.max() < 0.35


def test_the_sample_of_numbers_is_small_and_from_the_whole_stream():
    column = seen(np.arange(200_000.0), batches=7)
    assert len(column.sample) <= 1 << 14
    assert np.abs(np.quantile(column.sample, [0.1, 0.5, 0.9]) - [20_000, 100_000, 180_000]).max() < 200


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
    assert drafted(seen(["missing", None, "b", "a"]))["x"]["missing"] == "missing"
    numbers = drafted(seen([1, 2, None, 2, -1, 1]))["x"]
    assert numbers["missing"] == "missing"
    assert numbers["categories"] == [-1, 1, 2, "missing"]
    assert "1.1% of the values are missing" in draft([seen([i / 7 for i in range(90)] + [None])])


def test_marks_of_empty_cells_and_labels_of_missing_answers_are_no_answers():
    column = seen(["a", "NA", "refused", "b", "a", "n/a", "Not stated", None])
    assert column.missing_share == 5 / 8
    entry = drafted(column)["x"]
    assert entry["categories"] == ["a", "b", "missing", "Not stated", "refused"]
    assert entry["missing"] == ["missing", "Not stated", "refused"]
    assert entry["na"] == ["NA", "n/a"]
    numbers = drafted(seen(["1.5", "2.5", "refused", "NA", "3.5", "4.5", "1.5"] * 9, csv=True))["x"]
    assert numbers["missing"] == ["missing", "refused"]
    assert numbers["na"] == ["NA"]
    assert "bins" in numbers
    assert drafted(seen(["a", "refused", "b", "a"]))["x"]["missing"] == "refused"


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
        ("x", [[1], [2], [1]], False, "lists and the like"),
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


def test_a_named_column_is_drafted_whatever_its_name_and_number_of_categories():
    columns = [
        seen(["a", "b", "a"], name="name"),
        seen([f"c{i % 20}" for i in range(100)], name="many"),
        seen(["a", "b", "a"]),
    ]
    draft = draft_variables(columns, most_categories=12)
    assert list(draft.entries) == ["x"]
    assert "too many to count well" in draft.left_out["many"]
    assert list(draft_variables(columns, named=["name", "many"], most_categories=12).entries) == [
        "name",
        "many",
        "x",
    ]


@pytest.mark.parametrize("end", ["\n", "\r", "\x85", "\u2028"])
def test_names_in_the_costs_cannot_break_out_of_their_comment(end):
    name = f"a{end}title: x"
    column = ColumnSummary(name, "text", 3, missing=False, values=("a", "b"), repeats=True)
    text = draft_with_limit(draft_variables([column]), [f"NOT USABLE: {name}"], {"limit": {"gamma": 19}}, {})
    assert set(policy_text.parse(text, "yaml")) == {"masquerade", "limit", "variables"}


def test_texts_are_tried_as_numbers_once_each_and_not_once_per_record(monkeypatch):
    tried = []
    numeric = column_summary._numeric
    monkeypatch.setattr(
        column_summary, "_numeric", lambda values: tried.append(len(values)) or numeric(values)
    )
    seen(["yes", "no"] * 5000, csv=True)
    assert sum(tried) == 2
    tried.clear()
    column = seen(["1", "2", "3"] * 5000, csv=True)
    assert sum(tried) == 3
    assert column.values == (1, 2, 3)


def test_numbers_among_texts_are_counted_by_their_records():
    column = seen(["1"] * 60 + ["2"] * 30 + ["unclear"] * 80 + ["3"] * 1, csv=True)
    assert column.kind == "whole"
    assert column.rows == 171
    assert sorted(column.sample) == [1.0] * 60 + [2.0] * 30 + [3.0]
