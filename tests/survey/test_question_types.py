"""Types of questions: the file, groups in words, estimates through the page's own code, the page itself."""

from __future__ import annotations

import json

import pytest
from tests.survey import question_types
from tests.survey.browser import PHONE, Visit, running
from tests.survey.test_survey_file import loaded
from tests.survey.world import collecting

from masquerade.core.errors import InputError
from masquerade.survey.forms.question_types import NumberInput, bin_texts
from masquerade.survey.forms.survey_file import own_words


def test_two_thousand_people_of_every_type_are_estimated_without_bias(tmp_path):
    """False alarms: at most 1e-6 over all cells."""
    question_types.judge(question_types.study(tmp_path, people=2000, runs=1))


def test_coverage_of_every_type_was_kept_on_file():
    kept = json.loads(question_types.KEPT.read_text(encoding="utf-8"))
    assert kept["people"] == 2000
    assert kept["runs"] == 2000
    assert {one["type"] for one in kept["types"].values()} == set(question_types.TYPES.values())
    question_types.judge(kept)
    for name, one in kept["types"].items():
        low, high = question_types.coverage_bounds(one["covered"], kept["runs"])
        assert low < 0.95 < high, name


@pytest.mark.parametrize("language", ["de", "en", "es", "fr"])
def test_groups_are_words_and_never_intervals(language):
    words = own_words(language)
    texts = [
        *bin_texts(NumberInput((20, 30, 31), (0, 1, 2, 3), 16, 99, 1), words),
        *bin_texts(NumberInput((0.5, 1.5), (0, 1, 2), 0, 9, 0.1), words),
        *bin_texts(NumberInput((2000, 2020), (0, 1, 2), 1990, 2026, 1, date="year"), words),
        *bin_texts(NumberInput((1000, 2500), (0, 1, 2), 0, 9999, 1), words),
        *bin_texts(NumberInput((8, 9), (0, 1, 2), 7, 9, 1), words),
    ]
    assert not any(sign in text for text in texts for sign in "[]()")
    assert texts[-3:] == ["7", "8", "9"]  # groups of one number
    shown = {
        "en": ("20 to 29", "30", "31 or more", "0.5 to under 1.5", "2000 to 2019", "1,000 to 2,499"),
        "de": ("20 bis 29", "30", "31 oder mehr", "0,5 bis unter 1,5", "2000 bis 2019", "1.000 bis 2.499"),
    }
    assert set(shown.get(language, ())) <= set(texts)


POLICY = """
masquerade: 1
variables:
  a: {categories: ["yes", "no"], channel: {kind: binary, p: 0.25}}
  b: {bins: [16, 20, 99], channel: {kind: binary, p: 0.25}}
"""


def second(**entry):
    def change(values):
        values["questions"][1] = {"text": "B?"} | entry

    return change


def test_a_variable_with_bins_is_asked_as_a_number(tmp_path):
    survey = loaded(tmp_path, second(variable="b"), POLICY)
    question = survey.questions[1]
    assert question.type == "number"
    assert question.answers["en"] == ("under 20", "20 or more")
    assert question.number.values() == {"cuts": (20,), "codes": (0, 1), "min": 16, "max": 99, "step": 1}


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({}, "needs either a 'variable' or 'items'"),
        ({"variable": "b", "items": {"b": "B"}}, "needs either a 'variable' or 'items'"),
        ({"variable": "b", "type": "multiple"}, "needs 'items'"),
        ({"items": {"b": "B"}, "type": "number"}, "multiple or matrix"),
        ({"variable": "b", "type": "date"}, "need each other"),
        ({"variable": "b", "number": {"bins": [20, 18]}}, "above the one before"),
        ({"variable": "b", "number": {"bins": [18, 20]}}, "needs 1 cut points"),
        ({"variable": "b", "number": {"bins": [18]}}, "needs 'min' and 'max'"),
        ({"variable": "b", "number": {"min": 0, "max": 9, "bins": [18]}}, "must lie between 0 and 9"),
        ({"variable": "b", "number": {"min": 9, "max": 3, "bins": [5]}}, "below its largest"),
        ({"variable": "b", "number": {"slider": True, "step": 0.01}}, "more than 1,000 positions"),
        ({"variable": "b", "number": {"bins": [float("nan")]}}, "number.bins"),
        ({"variable": "b", "number": {"min": 10**200}}, "number.min"),
        ({"variable": "b", "number": {"step": 0}}, "number.step"),
        ({"variable": "b", "required": False}, "write 'missing'"),
        ({"items": {"b": "B"}, "ticked": "maybe"}, "is not a category"),
    ],
)
def test_what_does_not_fit_a_type_is_said_where(tmp_path, entry, told):
    with pytest.raises(InputError, match=told):
        loaded(tmp_path, second(**entry), POLICY)


@pytest.fixture(scope="module")
def browser():
    with running() as (_, found):
        yield found


def test_the_page_asks_every_type(browser, tmp_path):
    """With γ = 10⁹ the reports are the codes of what people enter, but for a chance below 1e-7."""
    mask = {"kind": "for_gamma", "gamma": 10**9}
    policy = json.loads(json.dumps(question_types.POLICY).replace('"gamma": 4', f'"gamma": {mask["gamma"]}'))
    shown = question_types.SURVEY["questions"]
    with collecting(
        tmp_path / "work", policy=policy, questions=shown, languages=["en"], title="T", contact="C",
        consent="D", information=None, closing=None,
    ) as (collector, url, _):  # fmt: skip
        context = browser.new_context(**PHONE)
        one = Visit(context, url + "/").begin()
        page, following = one.page, one.page.get_by_role("button", name="Next", exact=True)
        page.get_by_text("Question 1 of 10 at most").wait_for()
        one.answer("Other").sees("2").accessible().answer("4").sees("3")
        following.click()
        page.get_by_role("alert").get_by_text("Enter a number from 16 to 99.").wait_for()
        page.get_by_role("spinbutton").fill("29")
        page.get_by_text("Only the group counts: 20 to 29.").wait_for()
        assert "[" not in page.locator("main").inner_text()
        one.accessible()
        following.click()
        one.sees("4").accessible()
        following.click()
        page.get_by_role("alert").get_by_text("Enter a number from 0 to 100.").wait_for()  # not moved yet
        page.get_by_role("slider").press("End")
        following.click()
        one.sees("5").accessible()
        page.get_by_label("Month").select_option("1")
        following.click()
        page.get_by_role("alert").get_by_text(
            "Please choose a month and a year from 1930 to 2010."
        ).wait_for()
        page.get_by_label("Year").select_option("1931")
        following.click()
        one.sees("6")
        page.get_by_label("Month").select_option("3")
        page.get_by_label("Year").select_option("2019")
        following.click()
        one.sees("7").accessible()
        following.click()
        page.get_by_role("alert").get_by_text("Please choose an answer.").wait_for()
        page.get_by_role("checkbox", name="None of these").check()
        page.get_by_role("checkbox", name="Beer").check()
        assert not page.get_by_role("checkbox", name="None of these").is_checked()
        following.click()
        one.sees("8").accessible()
        page.get_by_role("group", name="First").get_by_label("often").check()
        following.click()
        page.get_by_role("alert").get_by_text("in every line").wait_for()
        page.get_by_role("group", name="Second").get_by_label("never").check()
        following.click()
        one.sees("9")
        page.get_by_role("spinbutton").fill("10")
        following.click()
        one.sees("10").answer("y").sees("Your answers").accessible()
        page.get_by_text("29: 20 to 29").wait_for()
        page.go_back()
        one.sees("10").page.go_back()
        one.sees("9")
        assert page.get_by_role("spinbutton").input_value() == "10"
        page.go_forward()
        one.sees("10").page.go_forward()
        one.sees("Your answers").send().sees("Sent").accessible()
        rows = page.get_by_role("rowheader").all_inner_texts()
        numbers = [row.split()[0] for row in rows]
        assert numbers == [
            "1",
            "2",
            "3",
            "4",
            "5",
            "6",
            "7",
            "7",
            "7",
            "8",
            "8",
            "9",
            "10",
        ]  # the file's order
        [(_, _, codes)] = collector.store.reports()
        expected = {
            "single": 2, "scale": 3, "number": 1, "slider": 1, "age": 2, "period": 1, "beer": 0, "wine": 1,
            "water": 1, "first": 1, "second": 0, "follow": 1, "clear": 1,
        }  # fmt: skip
        assert dict(zip(collector.survey.policy.observed, codes, strict=True)) == expected
        assert one.problems == []
        page.go_back()  # what was sent stays on the screen
        one.sees("Sent")
        context.close()
