"""What follows from what: tables read off larger ones, and the fewest that have to be asked for."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from masquerade.protocols.people.questions import (
    Question,
    found_in,
    order_variables,
    smallest_cover,
    tables_of,
)

SIZES = {"a": 2, "b": 3, "c": 1, "d": 2}
ROWS = [dict(zip(SIZES, codes, strict=True)) for codes in product(*map(range, SIZES.values()))] * 2 + [
    {"a": 1, "b": 2, "c": 0, "d": 0}
]


@st.composite
def questions(draw):
    """Return a question about some of the variables, conditions on others."""
    names = draw(st.lists(st.sampled_from(list(SIZES)), unique=True))
    cut = draw(st.integers(0, len(names)))
    given_codes = {name: draw(st.integers(0, SIZES[name] - 1)) for name in names[cut:]}
    return Question.about(names[:cut], given_codes, SIZES)


def counted(question):
    """Count the rows one by one."""
    table = np.zeros(question.shape(SIZES), dtype=np.int64)
    for row in ROWS:
        cell = question.cell(row, SIZES)
        if cell is not None:
            table.reshape(-1)[cell] += 1
    return table


@settings(max_examples=300, derandomize=True, deadline=None)
@given(questions(), questions())
def test_what_a_question_covers_is_read_off_its_table(one, other):
    if one.covers(other):
        np.testing.assert_array_equal(one.pick_table(counted(one), other), counted(other))
    else:
        assert found_in({one: counted(one)}, other) is None


@settings(max_examples=200, derandomize=True, deadline=None)
@given(st.lists(questions(), max_size=6))
def test_the_smallest_cover_answers_everything_and_needs_each_of_its_tables(wanted):
    cover = smallest_cover(wanted, SIZES)
    known = {question: counted(question) for question in cover}
    for question in wanted:
        np.testing.assert_array_equal(found_in(known, question), counted(question))
    assert not any(one.covers(other) for one in cover for other in cover if one is not other)
    assert set(cover) <= set(wanted)


def test_names_stand_in_the_order_of_the_schema():
    assert order_variables(["d", "a", "d"], SIZES) == ("a", "d")
    assert Question.about(["d", "b"], {"c": 0, "a": 1}, SIZES) == Question(("b", "d"), (("a", 1), ("c", 0)))
    assert Question(("b",), (("a", 1),)).names == ("b", "a")


def test_a_row_of_counts_is_cut_into_tables():
    listed = [Question(("a",)), Question(("b",), (("a", 1),)), Question(())]
    found = tables_of(np.arange(7), listed, [2, 4, 1], SIZES)
    assert [table.tolist() for table in found.values()] == [[0, 1], [2, 3, 4], 6]


@pytest.mark.parametrize(("row", "cell"), [((0, 1, 0, 1), None), ((1, 2, 0, 1), 5), ((1, 0, 0, 0), 0)])
def test_a_person_is_in_one_cell_or_in_none(row, cell):
    question = Question(("b", "d"), (("a", 1),))
    assert question.cell(dict(zip(SIZES, row, strict=True)), SIZES) == cell
