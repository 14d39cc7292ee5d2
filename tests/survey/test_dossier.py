"""The dossier for an ethics committee, remarks before building and serving, consent, screening, closing."""

from __future__ import annotations

import json
import re
from fractions import Fraction

import pytest
from playwright.sync_api import expect
from tests.survey.browser import AXE, PHONE, RULES, Visit, running
from tests.survey.test_first_screen import plain, surveyed
from tests.survey.test_survey_file import loaded
from tests.survey.world import change, collecting, example

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError
from masquerade.survey import Survey, build
from masquerade.survey.collector.example import body_of, write_example
from masquerade.survey.collector.store import SurveyStore
from masquerade.survey.device.publication import terms_text
from masquerade.survey.device.terms import DeviceTerms
from masquerade.survey.forms.information import consent_digest
from masquerade.survey.forms.remarks import survey_remarks
from masquerade.survey.forms.survey_file import OWN_LANGUAGES
from masquerade.survey.page.consequences import say_bound, say_views
from masquerade.survey.page.dossier import dossier_words, say_odds, write_dossier


@pytest.fixture(scope="module")
def browser():
    with running() as (_, found):
        yield found


SCREENING = {
    "text": "Are you 16 or older?",
    "answers": {"older": "16 or older", "younger": "Under 16"},
    "admits": ["older"],
    "end": "This survey is for people of 16 or older. Thank you.",
}
CLOSING = {
    "text": "Goodbye.",
    "help": "Call 0800 1110111.",
    "links": [{"text": "The study", "url": "https://study.example.org/x"}],
}


@pytest.mark.parametrize("language", OWN_LANGUAGES)
@pytest.mark.parametrize(("epsilon", "clear"), [("1", False), ("3", True), ("20", False)])
def test_dossier_says_what_the_page_says(tmp_path, language, epsilon, clear):
    survey = surveyed(tmp_path, epsilon, clear=clear, agree="I agree.", delete_after="2031-05-01")
    text = plain(write_dossier(survey, language))
    for sentence in say_bound(survey, language):
        assert " ".join(sentence.split()) in text
    for view in say_views(survey, language):
        cell = " ".join("; ".join(view.true_answers).split())
        assert f"{' '.join(view.who.split())} {cell} {view.sent}" in text
    words = {key: " ".join(text.split()) for key, text in dossier_words(language).items()}
    assert words["missing"] in text  # purpose, and what else a committee asks for
    assert (words["flow_text_all"] in text) == (not clear)
    assert (words["risks_clear"] in text) == clear
    assert words["left_personal"] in text
    assert "issuer" not in text  # the link is open: that is stated in the language of the dossier
    assert words["access_open"] in text
    assert "γ = " in text
    assert build(survey).digest in text
    assert "2031-05-01" not in text
    assert "{" not in text.replace(build(survey).digest, "")


def test_dossiers_have_the_same_texts_in_every_language():
    marks = {
        language: {key: set(re.findall(r"{\w+}", text)) for key, text in dossier_words(language).items()}
        for language in OWN_LANGUAGES
    }
    assert all(one == marks["en"] for one in marks.values())
    assert dossier_words("xx") == dossier_words("en")


def test_dossier_is_accessible_and_names_what_a_committee_misses(browser, tmp_path):
    survey = example(tmp_path / "work", agree=None)
    (tmp_path / "dossier.html").write_text(write_dossier(survey, "de"), encoding="utf-8")
    context = browser.new_context(**PHONE)
    page = context.new_page()
    page.goto(f"file://{tmp_path}/dossier.html")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Ethikkommission")
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate(
        "async (rules) => (await axe.run(document, {runOnly: rules})).violations.map((v) => v.id)", RULES
    )
    assert found == []
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["viewport"]["width"]
    assert page.locator(".missing").all_inner_texts() == [
        "FEHLT: Bitte in die Datei der Befragung schreiben.",
        "Es ist kein Tag zum Löschen festgelegt (delete_after).",
    ]
    context.close()


def test_odds_are_exact_if_people_can_use_them(tmp_path):
    words = surveyed(tmp_path, "1", clear=False).words["en"]
    shares = [Fraction(3, 4), Fraction(19, 30), Fraction(1, 5), Fraction(19248707987, 23543675283)]
    assert [say_odds(share, words) for share in shares] == [
        "75 of 100",
        "19 of 30",
        "2 of 10",
        "about 82 of 100",
    ]


@pytest.mark.parametrize("gamma", ["19", "19248707987/23543675", "5/2", "1.000001"])
def test_no_huge_fraction_reaches_a_person(browser, tmp_path, gamma):
    """Whatever the channel: on the page, in the letter, on sheets and in the dossier."""
    survey = surveyed(tmp_path, "1", clear=False, languages=["en"])
    variables = {
        name: {"categories": ["yes", "no"], "channel": {"kind": "for_gamma", "gamma": gamma}} for name in "ab"
    }
    survey = Survey(survey.spec, Policy.from_dict({"masquerade": 1, "variables": variables}))
    made = build(survey)
    made.write(tmp_path / "page")
    texts = [plain(made.files[name].decode()) for name in ("sheets.html",)]
    texts.append(plain(write_dossier(survey)).split("8 What can be checked")[0])
    context = browser.new_context(**PHONE)
    one = Visit(context, f"file://{tmp_path}/page/survey.html").begin().sees("Question a")
    one.page.get_by_role("radio", name="Yes").check()
    texts.append(one.page.locator("main").inner_text())
    texts.append(one.page.get_by_role("img").get_attribute("aria-label"))
    context.close()
    denominators = [int(n.replace(",", "")) for text in texts for n in re.findall(r"\d of (\d[\d,]*)", text)]
    assert denominators
    assert max(denominators) <= 10_000
    assert ("rounded" in " ".join(survey_remarks(survey))) == (gamma in {"19248707987/23543675", "1.000001"})


POLICY = """
masquerade: 1
variables:
  a: {categories: ["yes", "no"], channel: {kind: binary, p: 0.25}}
  b: {categories: [1, 2, 3], channel: {kind: for_gamma, gamma: 3}}
  c: {categories: ["yes", "no"], channel: {kind: binary, p: 0.25}}
"""


def test_remarks_name_what_people_would_see(tmp_path):
    def changed(values):
        values |= {"languages": ["en", "de"], "title": {"en": "T", "de": "T"}}
        values["questions"][0].pop("answers")
        values["questions"][1] = {"variable": "b", "text": "B?"}
        values["questions"].append(
            {"variable": "c", "text": "C?", "show_if": {"a": [], "b": [1]}, "not_asked": "no"}
        )

    remarks = survey_remarks(loaded(tmp_path, changed, POLICY))
    told = " ".join(remarks)
    assert "questions.0: people see the policy's categories as answers (yes, no)" in told
    assert "questions.1: people see numbers without a label as answers (1, 2, 3)" in told
    assert "questions.1.text: has one text for all languages (en, de)" in told
    assert "title" not in told
    assert "questions.2: nobody is asked 'c'" in told
    expected = "purpose, participants, effort, benefits, legal_basis, retention, rights, officer"
    assert f"an ethics committee will ask for {expected}" in told
    assert "agree: is missing" in told
    assert "the link is open" in told


def test_remarks_find_conditions_that_exclude_each_other(tmp_path):
    policy = POLICY.replace("b: {categories: [1, 2, 3]", 'b: {categories: ["yes", "no", "never"]')

    def changed(values):
        values["questions"].append(
            {"variable": "c", "text": "C?", "show_if": {"b": ["yes"], "a": ["no"]}, "not_asked": "no"}
        )

    told = " ".join(survey_remarks(loaded(tmp_path, changed, policy)))
    assert "questions.2: nobody is asked 'c'" in told  # b is asked only of those who say yes to a
    assert "questions.1" not in told.replace("questions.1: people", "")


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"screening": SCREENING | {"admits": ["old"]}}, "screening.admits: 'old' is not one"),
        ({"screening": SCREENING | {"admits": ["older", "younger"]}}, "admits all answers"),
        (
            {"closing": {"links": [{"text": "x", "url": "javascript:alert(1)"}]}},
            "closing.links.0.url: must be",
        ),
        (
            {"closing": {"links": [{"text": "x", "url": "http://example.org"}]}},
            "closing.links.0.url: must be",
        ),
        ({"information": {"aims": "x"}}, "information.aims: is not a known key"),
        ({"agree": {"de": "Ja"}}, "agree: has no text in 'en'"),
    ],
)
def test_wrong_parts_around_the_questions_are_said_where(tmp_path, more, told):
    with pytest.raises(InputError, match=told):
        loaded(tmp_path, lambda values: values.update(more))


def test_consent_is_ticked_recorded_and_required(browser, tmp_path):
    with collecting(
        tmp_path / "work", agree="I agree to this.", screening=SCREENING, closing=CLOSING, languages=["en"],
        title="T", contact="C", consent="D", information={"purpose": "To learn."},
        questions=[
            {"variable": name, "text": f"{name}?", "caution": "This may worry you."} if name == "nights"
            else {"variable": name, "text": f"{name}?"} for name in ("age", "pills", "told", "nights")
        ],
    ) as (collector, url, http):  # fmt: skip
        digest = consent_digest(collector.survey.spec)
        context = browser.new_context(**PHONE)
        one = Visit(context, url + "/").sees("T").accessible()
        page = one.page
        box = page.get_by_role("checkbox", name="I agree to this.")
        assert not box.is_checked()
        page.get_by_text("To learn.").wait_for()
        page.get_by_role("button", name="Begin").click()
        page.get_by_role("alert").get_by_text("tick the box").wait_for()
        # a program that fills in every field is stopped, and told why
        page.locator("[name=website]").evaluate("(field) => { field.value = 'x'; }")
        one.begin()
        page.get_by_role("alert").get_by_text("hidden field").wait_for()
        page.locator("[name=website]").evaluate("(field) => { field.value = ''; }")
        one.begin().sees("16 or older").accessible()
        page.get_by_role("radio", name="Under 16").check()
        page.get_by_role("button", name="Next").click()
        one.sees("Thank you for your interest").accessible()
        page.get_by_text("This survey is for people of 16 or older.").wait_for()
        assert one.kept() == {}  # not even the dealt blocks
        page.go_back()
        one.sees("16 or older").answer("16 or older").sees("age").answer("under 30").answer("yes").answer(
            "no"
        )
        one.sees("Before the next question").accessible()
        assert (
            page.get_by_role("button", name="Skip this question").count() == 0
        )  # it has no missing category
        page.get_by_role("button", name="Go on").click()
        one.sees("nights").answer("none").send().sees("Sent").accessible()
        page.get_by_text("Call 0800 1110111.").wait_for()
        link = page.get_by_role("link", name="The study")
        assert link.get_attribute("href") == "https://study.example.org/x"
        assert link.get_attribute("rel") == "noopener noreferrer"
        [body] = one.posted()
        assert json.loads(body)["agreed"] == digest
        assert len(body) == collector._size
        assert "older" not in body
        context.close()
        # without consent, or with another, nothing is stored
        for agreed in (None, "0" * 32):
            values = json.loads(body_of(collector.survey, (0, 1, 1, 2))) | {"agreed": agreed}
            if agreed is None:
                values.pop("agreed")
            reply = http.post("/v1/reports", content=json.dumps(values).encode().ljust(collector._size))
            assert reply.status_code == 422
            assert "consent" in reply.text
        assert collector.store.counts()["reports"] == 1
        assert collector.store.consents() == {digest}


def test_an_amended_consent_does_not_refuse_pages_that_are_open(tmp_path):
    """Both texts are accepted from then on; which of them a person agreed to is not stored."""
    write_example(tmp_path / "work", "https://survey.example.org")
    survey = Survey.load(tmp_path / "work" / "survey.yaml")
    first = consent_digest(survey.spec)
    change(tmp_path / "work" / "survey.yaml", agree="Something else.")
    second = consent_digest(Survey.load(tmp_path / "work" / "survey.yaml").spec)
    assert len({first, second}) == 2
    with SurveyStore(tmp_path / "store") as store:
        store.register_consent(first)
        store.register_consent(second)
        assert store.consents() == {first, second}


def test_devices_send_the_consent_too(tmp_path):
    write_example(tmp_path / "work", "https://survey.example.org")
    survey = Survey.load(tmp_path / "work" / "survey.yaml")
    terms = DeviceTerms.parse(terms_text(survey))
    assert terms.agreed == consent_digest(survey.spec)
    assert "I am 18 or older." in terms.consent
    values = json.loads(terms_text(survey))
    with pytest.raises(InputError, match="'agreed' must be 32 hexadecimal digits"):
        DeviceTerms.parse(json.dumps(values | {"agreed": "yes"}))
    assert DeviceTerms.parse(terms_text(example(tmp_path / "other", agree=None))).agreed is None


def test_leaving_warns_while_answers_are_not_sent(browser, tmp_path):
    with collecting(tmp_path / "work") as (_, url, _):
        context = browser.new_context(**PHONE)
        one = Visit(context, url + "/")
        dialogs = []
        one.page.on("dialog", lambda dialog: (dialogs.append(dialog.type), dialog.accept()))
        one.page.reload()
        assert dialogs == []
        one.begin().sees("How old").page.get_by_text("only in this tab until you send them").wait_for()
        one.answer("30 to 49").sees("medicines")
        one.page.reload()
        one.sees("Health at work")
        assert dialogs == ["beforeunload"]
        one.begin().sees("How old")
        assert one.page.locator("input:checked").count() == 0  # gone, as the page said
        one.answer("30 to 49").answer("Yes").answer("No").answer("None").send().sees("Sent")
        one.page.reload()
        one.sees("Health at work")
        assert dialogs == ["beforeunload"]
        context.close()


def test_progress_does_not_jump(browser, tmp_path):
    with collecting(tmp_path / "work") as (_, url, _):
        for answers in (["30 to 49", "Yes", "No", "None"], ["30 to 49", "No", "None"]):
            context = browser.new_context(**PHONE)
            one, steps = Visit(context, url + "/").begin(), []
            for answer in answers:
                steps.append(one.page.locator("#step").inner_text())
                one.answer(answer)
            one.sees("Your answers")
            assert steps == [f"Question {i + 1} of 4 at most" for i in range(len(answers))]
            context.close()
