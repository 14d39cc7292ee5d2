"""How the demo writes its figures."""

from __future__ import annotations

import math

import pytest

from masquerade.report.demo import count_row, format_z, number, parameter_row, within
from masquerade.report.study import StudyFigure

CELL = (("A", 1), ("T", 2))


@pytest.mark.parametrize(
    ("value", "digits", "sign", "written"),
    [
        (1234.5678, 0, "-", "1,235"),
        (-1234.5, 1, "-", "−1,234.5"),
        (-0.04, 1, "-", "0.0"),
        (0.04, 1, "+", "0.0"),
        (0.06, 1, "+", "+0.1"),
        (None, 1, "+", "–"),
    ],
)
def test_number(value, digits, sign, written):
    assert number(value, digits, sign) == written


def test_signed():
    assert [format_z(value) for value in (1.26, -1.26, None)] == ["+1.3", "−1.3", "–"]


def test_count_row_shows_decimals_only_where_people_are_few():
    item = StudyFigure(CELL, 100.0, 150.0, 99.6, 4.2)
    few, many = count_row(item, 999), count_row(item, 1000)
    assert (few.label, few.truth, few.naive, few.naive_off) == ("A=1, T=2", "100", "150", "+50%")
    assert (few.estimate, few.stderr, few.z) == ("99.6", "4.2", "−0.1")
    assert (many.estimate, many.stderr) == ("100", "4")


def test_naive_off_needs_a_truth():
    assert count_row(StudyFigure(CELL, 0.0, 3.0, 1.0, 1.0), 50).naive_off == "–"


@pytest.mark.parametrize(
    ("stderr", "reliable", "estimate", "note"),
    [
        (0.1, True, "0.500", ""),
        (0.1, False, "0.500", "rare"),
        (2.0, False, "rare", ""),
        (math.inf, False, "unseen", ""),
    ],
)
def test_parameter_row(stderr, reliable, estimate, note):
    row = parameter_row(StudyFigure(CELL, 0.4, None, 0.5, stderr, reliable))
    assert (row.estimate, row.note) == (estimate, note)
    assert row.naive == row.naive_off == "–"


def test_comparison_without_a_standard_error_has_no_z():
    assert StudyFigure(CELL, 0.4, 0.5, 0.5, 0.0).z is None
    assert StudyFigure(CELL, 0.4, 0.5, 0.5, math.inf).z is None
    assert StudyFigure(CELL, 0.4, 0.5, 0.5, 0.05).z == pytest.approx(2)


def test_within():
    rows = within([0.5, -1.5, 2.5, 3.5])
    assert [(limit, inside) for limit, inside, *_ in rows] == [(1, 1), (2, 2), (3, 3)]
    assert [expected for *_, expected in rows] == pytest.approx([0.6827, 0.9545, 0.9973], abs=1e-4)
    assert within([])[0][:3] == (1, 0, 0.0)
