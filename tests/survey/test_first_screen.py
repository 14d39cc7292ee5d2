"""What page and letter promise, against the computed guarantee: policies from ε = .5 to 20, all languages."""

from __future__ import annotations

import json
import math
import re
from html import unescape

import pytest
from benchmarks import survey_texts
from playwright.sync_api import expect
from tests.survey.browser import PHONE, running

from masquerade.channels.policy import Policy
from masquerade.survey import Survey, build
from masquerade.survey.forms.survey_file import OWN_LANGUAGES, own_words
from masquerade.survey.page.consequences import protection_level, say_bound, say_day, say_views
from masquerade.survey.page.page import page_values

EPSILONS = ("0.5", "1", "1.47", "1.48", "2", "2.9", "3", "4.6", "4.7", "5", "8", "12", "20")
LEVELS = {"no": "true_no", "weak": "true_weak", "none": "true_none"}


def surveyed(folder, epsilon, *, clear, languages=OWN_LANGUAGES, **more):
    """Return a survey of two questions, one of which may be sent in clear."""
    mask = {"channel": {"kind": "for_epsilon", "epsilon": epsilon}}
    variables = {
        name: {"categories": ["yes", "no"], **({} if clear and name == "a" else mask)} for name in "ab"
    }
    policy = Policy.from_dict({"masquerade": 1, "variables": variables})
    (folder / "policy.yaml").write_text(json.dumps(policy.to_dict()))
    answers = {"yes": "Yes", "no": "No"}
    values = {
        "masquerade_survey": 1,
        "title": "T",
        "policy": "policy.yaml",
        "collector": "https://survey.example.org",
        "contact": "C",
        "consent": "D",
        "languages": list(languages),
        "questions": [{"variable": name, "text": f"Question {name}?", "answers": answers} for name in "ab"],
    }
    return Survey.from_values(values | more, folder)


def plain(html):
    """Return the text of a page, blanks as one."""
    return re.sub(r"\s+", " ", unescape(re.sub(r"<style>.*?</style>|<[^>]+>", " ", html, flags=re.DOTALL)))


def belief(gamma, before):
    return 100 * gamma * before / (1 + (gamma - 1) * before)


def stated_shares(sentence, words):
    """Return what a sentence states as cases of 100 (or of more), in percent."""
    number = rf"(\d[\d{re.escape(words['thousands'])}]*)"
    pattern = re.escape(words["cases"]).replace(r"\{k\}", number).replace(r"\{m\}", number)
    found = [[int(re.sub(r"\D", "", it)) for it in pair] for pair in re.findall(pattern, sentence)]
    assert len({total for _, total in found}) == 1  # people compare cases of the same number
    return [100 * cases / total for cases, total in found]


def check_figures(sentence, words, gamma, before):
    """Assert that a sentence states a prior belief, and a bound that holds and is not much too large."""
    first, second = stated_shares(sentence, words)
    true = belief(gamma, before)
    assert first == pytest.approx(100 * before)
    assert true <= second * (1 + 1e-12) < 100
    assert second - true < max(1, 10 * (100 - true))


@pytest.mark.parametrize("clear", [False, True])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_no_text_contradicts_the_computed_bound(tmp_path, epsilon, clear):
    survey = surveyed(tmp_path, epsilon, clear=clear)
    gamma = float(survey.record_gamma)
    assert gamma == pytest.approx(math.exp(float(epsilon) * (1 if clear else 2)), rel=1e-6)
    level = protection_level(survey.record_gamma)
    assert level == ("none" if belief(gamma, 0.5) > 99.99 else "weak" if gamma > 19 else "no")
    shown, letter = page_values(survey), plain(build(survey).files["letter.html"].decode())
    assert [q["name"] for q in shown["questions"] if "bound" not in q] == (["a"] if clear else [])
    for language in OWN_LANGUAGES:
        words = {key: " ".join(text.split()) for key, text in survey.words[language].items()}
        bound = shown["bound"][language]
        assert bound == say_bound(survey, language)
        assert all(" ".join(sentence.split()) in letter for sentence in bound)
        if level == "none":
            assert [" ".join(one.split()) for one in bound] == [words["bound_none"]]
        else:
            check_figures(bound[0], survey.words[language], gamma, 0.05)
            check_figures(bound[1], survey.words[language], gamma, 0.5)
            assert len(bound) == (3 if level == "weak" else 2)
        # nobody is said not to see what they see, and no cell promises more than the figure
        for view in say_views(survey, language):
            assert view.sent == words["yes"]
            cell = " ".join(" ".join(view.true_answers).split())
            if view.level == "true":
                assert cell == words["yes"]
                continue
            assert view.level == level
            assert (words["true_clear"] in view.true_answers) == clear
            assert cell.endswith(words[LEVELS[level]])
            assert " ".join(f"{view.who} {cell} {view.sent}".split()) in letter
        stored, other = ("stored_clear", "not_stored") if clear else ("not_stored", "stored_clear")
        assert words[stored] in letter
        assert words[other] not in letter
        promise, other = ("promise_clear", "promise") if clear else ("promise", "promise_clear")
        assert words[promise] in letter
        assert words[other] not in letter
        assert (words["clear_first"] in letter) == clear
        if clear:
            assert letter.index(words["clear_first"]) < letter.index(" ".join(bound[0].split()))


@pytest.fixture(scope="module")
def browser():
    with running() as (_, found):
        yield found


@pytest.mark.parametrize(("epsilon", "clear"), [("0.5", False), ("2.9", True), ("4", False), ("20", True)])
def test_first_screen_shows_what_the_figures_choose(browser, tmp_path, epsilon, clear):
    """The page itself, in every language: its sentences and its table, and nothing of the other cases."""
    survey = surveyed(tmp_path, epsilon, clear=clear, closes="2027-02-09", delete_after="2027-12-31")
    build(survey).write(tmp_path / "page")
    context = browser.new_context(**PHONE)
    page = context.new_page()
    page.goto(f"file://{tmp_path}/page/survey.html")
    level = protection_level(survey.record_gamma)
    for language in OWN_LANGUAGES:
        page.locator("header select").select_option(language)
        expect(page.locator("html")).to_have_attribute("lang", language)
        words, text = survey.words[language], " ".join(page.locator("main").inner_text().split())
        for sentence in say_bound(survey, language):
            assert " ".join(sentence.split()) in text
        rows = page.locator("table.views tbody tr")
        cells = [rows.nth(i).locator("th, td").all_inner_texts() for i in range(rows.count())]
        views = say_views(survey, language)
        assert [[" ".join(cell.split()) for cell in row] for row in cells] == [
            [view.who, " ".join(" ".join(view.true_answers).split()), view.sent] for view in views
        ]
        for other in LEVELS.keys() - {level}:
            assert all(words[LEVELS[other]] not in row[1].split("\n") for row in cells[:3]) or other == "no"
        # only what nobody sees is green
        assert page.locator(".views .good").count() == (3 if level == "no" else 0)
        assert words["withdraw_until"].replace("{day}", say_day(words, "2027-02-09")) in text
        assert (words["not_stored"] in text) == (not clear)
        assert say_day(words, "2027-12-31") in text
        assert "2027-12-31" not in text
    context.close()


def test_days_are_written_as_each_language_does(tmp_path):
    words = surveyed(tmp_path, "1", clear=False).words
    assert [say_day(words[it], "2027-02-09") for it in ("de", "en", "es", "fr")] == [
        "9. Februar 2027",
        "9 February 2027",
        "9 de febrero de 2027",
        "9 février 2027",
    ]


def test_texts_are_plain_and_their_figures_are_kept():
    """No sentence has more than 20 words, or 21 for committees and teams.

    The index is at least 60, which is plain text for ages 13 to 15. The team's page and the dossier need
    words such as "confidence interval": an index of 50.
    """
    found = survey_texts.measure_all()
    assert json.loads(survey_texts.KEPT.read_text(encoding="utf-8"))["after"] == found
    assert {part: set(figures) for part, figures in found.items()} == {
        **{part: set(OWN_LANGUAGES) for part in survey_texts.PARTS},
        "example": {"en", "de"},
    }
    for part, figures in found.items():
        for language, one in figures.items():
            is_for_people = part in ("page", "example")
            assert one["longest_sentence"] <= (20 if is_for_people else 21), (part, language)
            assert one["index"] >= (60 if is_for_people else 50), (part, language)


@pytest.mark.parametrize("language", OWN_LANGUAGES)
def test_dates_and_numbers_are_not_written_as_in_files(language):
    for key, text in own_words(language).items():
        assert not re.search(r"\d{4}-\d{2}-\d{2}", text), key
        assert language == "en" or not re.search(r"\d,\d{3}|\d%", text), key
