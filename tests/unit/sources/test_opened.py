"""Opened rows as a source: refused until their incompleteness is accepted, exact about what is there."""

import pickle

import numpy as np
import pytest
from tests.unit.protocols.k_anonymity.threshold.world import Insiders, World

import masquerade as mq
from masquerade.core.errors import QueryRefused, SchemaError, UnknownValue
from masquerade.core.supports import Supports
from masquerade.core.tally import Tally
from masquerade.protocols.k_anonymity.threshold.class_opening import Verdict, open_reports
from masquerade.protocols.k_anonymity.threshold.row_schema import (
    Form,
    faithful_guarantee,
    production_guarantee,
)
from masquerade.sources.people.opened import OpenedRows

ZIPS = [f"{n:05d}" for n in range(300)]  # more than a byte holds
SCHEMA = mq.Schema({"allergy": ["none", "sulfur"], "zip": ZIPS, "illness": ["polio", "stroke", "colitis"]})
FORM = Form(SCHEMA, ("zip",), ("illness", "allergy"))
QUERY = mq.Query(by=("zip", "illness"), where={"allergy": "none"})
SUPPORTS = Supports((("illness", "polio"),), np.zeros((1, 1), dtype=np.int32))


def first_code(codes):
    return codes[:, 0]


@pytest.fixture(scope="module")
def table():
    generator = np.random.default_rng(3)
    zips = generator.choice([7, 8, 9, 299], 60, p=[0.6, 0.3, 0.08, 0.02])
    return [
        {
            "zip": ZIPS[z],
            "illness": SCHEMA["illness"].categories[generator.integers(3)],
            "allergy": SCHEMA["allergy"].categories[generator.integers(2)],
        }
        for z in zips
    ]


@pytest.fixture(scope="module")
def opening(table):
    insiders = Insiders(World(FORM.terms("spring", 10)).layout)
    return open_reports(
        insiders.layout, b"".join(insiders.report(*FORM.fill(row)) for row in table), FORM.readable
    )


def kept(table):
    sizes = {z: sum(row["zip"] == z for row in table) for z in ZIPS}
    return [row for row in table if sizes[row["zip"]] >= 10]


def test_opened_rows_pickle(opening):
    source = OpenedRows(opening, FORM, accept_incomplete=True)
    again = pickle.loads(pickle.dumps(source))  # noqa: S301  (our own)
    assert (again.answer([QUERY])[0].values == source.answer([QUERY])[0].values).all()
    assert again.incompleteness == source.incompleteness
    assert again.guarantee == source.guarantee


def test_every_question_is_refused_until_incompleteness_is_accepted(table, opening):
    source = OpenedRows(opening, FORM)
    assert isinstance(source, Tally)
    (refusal,) = source.check([QUERY])
    assert (refusal.code, refusal.query) == ("incomplete", QUERY)
    assert f"{60 - len(kept(table))} of 60 reports did not open" in refusal.reason
    questions = [
        lambda: source.answer([QUERY]),
        lambda: source.supports(SUPPORTS),
        lambda: source.expect(first_code, ["illness"]),
        lambda: mq.learn.naive_bayes(source, target="illness"),
    ]
    for ask in questions:
        with pytest.raises(QueryRefused, match="not at random"):
            ask()


def test_the_frame_of_opened_rows_says_what_is_missing(opening):
    source = OpenedRows(opening, FORM)
    (refusal,) = mq.tally(source.to_frame(), schema=SCHEMA).check([QUERY])
    assert refusal == source.check([QUERY])[0]


def test_plain_counts_of_opened_rows_are_exact(table, opening):
    counts = OpenedRows(opening, FORM).counts(QUERY)
    for z in (7, 8, 9, 299):
        for i, illness in enumerate(SCHEMA["illness"].categories):
            wanted = {"zip": ZIPS[z], "illness": illness, "allergy": "none"}
            assert counts[z, i] == sum(row == wanted for row in kept(table))


def test_accepted_it_is_a_source_like_any_other(table, opening):
    source = OpenedRows(opening, FORM, accept_incomplete=True)
    clear = mq.tally(source.to_frame(), schema=SCHEMA, accept_incomplete=True)
    (ours,), (theirs,) = source.answer([QUERY]), clear.answer([QUERY])
    np.testing.assert_array_equal(ours.values, theirs.values)
    np.testing.assert_array_equal(ours.stderr(), theirs.stderr())
    assert ours.n == len(kept(table)) == opening.opened
    assert source.supports(SUPPORTS).values.tolist() == clear.supports(SUPPORTS).values.tolist()
    assert source.expect(first_code, ["illness"]) == clear.expect(first_code, ["illness"])
    learnt, from_clear = (mq.learn.naive_bayes(one, target="illness") for one in (source, clear))
    assert learnt.summary() == from_clear.summary()
    assert sorted(map(sorted, (row.items() for row in source.to_frame().to_dict("records")))) == sorted(
        map(sorted, (row.items() for row in kept(table)))
    )


def test_the_guarantee_says_who_learns_what_and_what_is_missing(opening):
    text = OpenedRows(opening, FORM).guarantee.summary()
    assert "collector learns the rows whose quasi-identifier occurs at least 10 times" in text
    assert "sizes of classes below 10" in text
    assert "randomness server learns who takes part, and nothing of zip, illness, allergy: γ = 1" in text
    assert "rare quasi-identifiers are missing most" in text
    shown = production_guarantee(FORM.terms("spring", 10, shown=True), FORM)
    assert "collector learns the clear values, in all rows, of zip" in shown.summary()
    assert ("collector", "randomness server") in shown.excluded_coalitions
    assert shown.integrity == "detects"  # reports carry no names
    faithful = faithful_guarantee(5, ("zip",), ("illness",))
    assert ("collector", "3 users") in faithful.excluded_coalitions
    assert "lower k to 5 − 2c" in faithful.summary()
    assert faithful.integrity == "identifies"


def test_rows_that_nobody_could_have_filled_in_are_named():
    insiders = Insiders(World(FORM.terms("spring", 2)).layout)
    quasi, sensitive = FORM.fill({"zip": "00007", "illness": "polio", "allergy": "none"})
    reports = [insiders.report(quasi, part) for part in (sensitive, sensitive, b"\x03\x00", b"\x00")]
    impossible = [insiders.report((300).to_bytes(2, "little"), sensitive) for _ in range(2)]
    opening = open_reports(insiders.layout, b"".join(reports + impossible), FORM.readable)
    assert [Verdict(v) for v in opening.verdicts] == [Verdict.OPENED] * 2 + [Verdict.MALFORMED] * 4
    assert FORM.codes(opening)["zip"].tolist() == [7, 7]


def test_a_form_is_checked_and_never_shows_a_value():
    with pytest.raises(UnknownValue) as caught:
        FORM.fill({"zip": "00007", "illness": "SECRET", "allergy": "none"})
    assert "SECRET" not in str(caught.value)
    with pytest.raises(SchemaError, match="no value for 'allergy'"):
        FORM.fill({"zip": "00007", "illness": "polio"})
    with pytest.raises(SchemaError, match="once"):
        Form(SCHEMA, ("zip",), ("illness",))
    with pytest.raises(SchemaError, match="at least one"):
        Form(SCHEMA, (), ("zip", "illness", "allergy"))
    with pytest.raises(SchemaError, match="no variable"):
        Form(SCHEMA, ("zip", "colour"), ("illness", "allergy"))


def test_rows_of_another_form_are_refused(opening):
    other = Form(SCHEMA, ("zip", "allergy"), ("illness",))
    with pytest.raises(SchemaError, match="different form"):
        OpenedRows(opening, other)
