"""Questions in people's own words: accepted by name, sent as written, said so everywhere, never estimated."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest
from tests.survey.browser import PHONE, Visit, running
from tests.survey.test_first_screen import plain, surveyed
from tests.survey.world import collecting

import masquerade as mq
from masquerade.core.errors import InputError
from masquerade.survey import build
from masquerade.survey.collector.export import export, write_texts
from masquerade.survey.forms.free_text import parse_texts
from masquerade.survey.forms.survey_file import OWN_LANGUAGES
from masquerade.survey.page.consequences import say_views
from masquerade.survey.page.dossier import write_dossier
from masquerade.survey.page.page import body_size

TEXT = {"variable": "remarks", "type": "text", "clear": "accepted", "text": "Anything else?", "longest": 40}
ANSWERS = {"yes": "Yes", "no": "No"}


def asked(*more):
    return [*({"variable": name, "text": f"Question {name}?", "answers": ANSWERS} for name in "ab"), *more]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"clear": None}, "cannot be disguised"),
        ({"variable": "a"}, "another name"),
        ({"answers": ANSWERS}, "does not fit the type text"),
        ({"longest": 10**6}, "longest"),
        ({"show_if": {"a": ["yes"]}}, "reveals: \\[a\\]"),
        ({"show_if": {"remarks": ["yes"]}}, "must be an earlier question"),
        ({"type": None}, "the policy has no variable"),
    ],
)
def test_text_that_is_not_accepted_or_does_not_fit_is_refused(tmp_path, change, told):
    entry = {key: value for key, value in (TEXT | change).items() if value is not None}
    with pytest.raises(InputError, match=told):
        surveyed(tmp_path, "1", clear=False, questions=asked(entry))


def test_a_text_after_a_disguised_answer_counts_that_answer_as_clear(tmp_path):
    entry = TEXT | {"show_if": {"a": ["yes"]}, "reveals": ["a"]}
    survey = surveyed(tmp_path, "1", clear=False, questions=asked(entry))
    assert survey.clear_variables == ("a",)
    assert [text["en"] for text in survey.clear_texts] == ["Question a?", "Anything else?"]


def test_page_letter_and_dossier_say_that_the_text_is_sent_as_written(tmp_path):
    survey = surveyed(tmp_path, "1", clear=False, questions=asked(TEXT))
    letter = plain(build(survey).files["letter.html"].decode())
    for language in OWN_LANGUAGES:
        words = {key: " ".join(text.split()) for key, text in survey.words[language].items()}
        dossier = plain(write_dossier(survey, language))
        for printed in (letter, dossier):
            assert words["clear_first"] in printed
            assert words["text_clear"] in printed
            assert words["stored_clear"] in printed
            assert words["promise"] not in printed
        assert words["not_stored"] not in letter
        assert all(words["true_clear"] in " ".join(it.true_answers) for it in say_views(survey, language)[:3])
    without = plain(build(surveyed(tmp_path, "1", clear=False)).files["letter.html"].decode())
    assert survey.words["en"]["text_clear"] not in without


@pytest.mark.parametrize(
    "values",
    [[], {"other": "x"}, *({"remarks": it} for it in ("", "x" * 41, 1, "\x00", "\ud800"))],
)
def test_other_texts_are_refused_without_quoting_them(values):
    with pytest.raises(InputError) as refused:
        parse_texts(values, {"remarks": 40})
    assert "xxx" not in str(refused.value)


@pytest.fixture(scope="module")
def browser():
    with running() as (_, found):
        yield found


def test_what_is_written_arrives_is_exported_apart_and_can_be_withdrawn(browser, tmp_path):
    mask = {"channel": {"kind": "for_gamma", "gamma": 4}}
    policy = {"masquerade": 1, "variables": {name: {"categories": ["yes", "no"]} | mask for name in "ab"}}
    told = "Überstunden, „immer“ 😀\nund nachts."
    with collecting(
        tmp_path / "work", policy=policy, questions=[TEXT, *asked()], languages=["en"], title="T",
        contact="C", consent="D", information=None, closing=None,
    ) as (collector, url, _):  # fmt: skip
        context = browser.new_context(**PHONE)
        one = Visit(context, url + "/")
        page, words = one.page, collector.survey.words["en"]
        page.get_by_text(words["text_clear"]).wait_for()
        one.accessible().begin().sees("Anything else").accessible()
        page.get_by_text(words["text_clear"]).wait_for()
        box = page.get_by_role("textbox")  # some browsers send what is typed to check or continue it
        assert [box.get_attribute(name) for name in ("spellcheck", "writingsuggestions")] == ["false"] * 2
        box.fill(told)
        page.get_by_role("button", name="Next", exact=True).click()
        one.sees("Question a").answer("Yes").sees("Question b").answer("No").sees("Your answers")
        page.get_by_text("Überstunden").wait_for()
        page.get_by_role("button", name="Change: Anything else?").click()
        assert page.get_by_role("textbox").input_value() == told
        page.go_back()
        one.sees("Your answers").accessible().send().sees("Sent").accessible()
        page.get_by_text("Überstunden").wait_for()
        code = page.locator("code").inner_text()
        [sent] = [request.post_data_buffer for request in one.requests if request.method == "POST"]
        assert len(sent) == body_size(collector.survey)
        assert json.loads(sent)["texts"] == {"remarks": told}
        assert collector.store.texts() == [("remarks", told)]
        another = Visit(context, url + "/")
        another.page.get_by_role("button", name="Answer for another person").click()
        another.begin().page.get_by_role("button", name="Next", exact=True).click()
        another.answer("No").answer("No").sees("Your answers")
        another.page.get_by_text(words["text_none"]).wait_for()
        another.send().sees("Sent")
        assert "texts" in json.loads(another.posted()[-1])
        with pytest.raises(InputError, match="closed"):
            write_texts(collector.store, tmp_path / "texts.csv")
        assert sum(sum(counts.values()) for counts in collector.store.count_reports().values()) == 2
        another.page.goto(url + "/")
        another.page.get_by_text("Withdraw", exact=True).first.click()
        another.page.get_by_label("Withdrawal code").fill(code)
        another.page.get_by_role("button", name="Withdraw", exact=True).click()
        another.page.get_by_text(words["withdrawn"]).wait_for()
        assert collector.store.texts() == []
        assert one.problems == another.problems == []
        context.close()


def test_texts_are_exported_without_the_reports_and_estimates_ignore_them(tmp_path):
    from masquerade.survey.collector.store import Report, SurveyStore  # noqa: PLC0415

    survey = surveyed(tmp_path, "1", clear=False, questions=asked(TEXT))
    written = [f"text {i}" for i in range(30)]
    with SurveyStore(tmp_path / "state") as store:
        store.register(survey.policy, {"remarks": 120})
        for i, text in enumerate(written):
            store.add(Report(bytes([i]) * 16, survey.policy.id, 0, (0, i % 2), None, {"remarks": text}))
        store.end()
        assert export(store, tmp_path / "reports.parquet", survey=survey) == 30
        assert write_texts(store, tmp_path / "texts.parquet") == 30
    assert pq.read_table(tmp_path / "reports.parquet").column_names == ["a", "b", "mode"]
    rows = pq.read_table(tmp_path / "texts.parquet").to_pydict()
    assert set(rows["question"]) == {"remarks"}
    assert sorted(rows["text"]) == sorted(written)
    assert mq.tally(str(tmp_path / "reports.parquet")).n == 30
