"""LimeSurvey structures (.lss) as surveys: texts of both layouts, conditions, and what is left out."""

from __future__ import annotations

import time

import pytest
from tests.survey.limesurvey_file import limesurvey_file
from tests.survey.test_questionnaire import init

from masquerade.cli.survey import read_questionnaire
from masquerade.core.errors import InputError
from masquerade.survey import Survey, build
from masquerade.survey.forms.limesurvey import MOST_MARKUP, plain_text, questionnaire_of


@pytest.fixture(params=[False, True], ids=["version 3", "version 6"])
def form(request):
    return questionnaire_of(limesurvey_file(localized=request.param), "t")


def test_questions_come_in_the_order_of_groups_with_texts_of_all_languages(form):
    names = [question.name for question in form.questions]
    assert names == ["smokes", "often", "feel_SQ001", "feel_SQ002", "when_work", "told", "rate", "weight"]
    assert form.title == {"en": "Smoking", "de": "Rauchen"}
    assert form.languages == ["en", "de"]
    by_name = {question.name: question for question in form.questions}
    assert by_name["smokes"].text == {"en": "Do you smoke?", "de": "Rauchen Sie?"}
    assert by_name["smokes"].answers == {"Y": {"en": "Yes", "de": "Ja"}, "N": {"en": "No", "de": "Nein"}}
    assert by_name["often"].text["en"] == "How often? On average"
    assert by_name["often"].answers["A2"] == {"en": "Weekly", "de": "Wöchentlich"}
    assert by_name["feel_SQ002"].text == {"en": "at night", "de": "nachts"}
    assert by_name["feel_SQ002"].intro == {"en": "How do you feel", "de": "Wie geht es Ihnen"}
    assert by_name["weight"].number == {"min": 16, "max": 99, "bins": [37, 58, 79]}
    assert list(by_name["feel_SQ001"].answers)[:2] == ["G", "B"]
    assert list(by_name["rate"].answers) == ["1", "2", "3", "4", "5"]


def test_simple_conditions_become_show_if_and_others_are_named(form):
    by_name = {question.name: question for question in form.questions}
    assert by_name["often"].shown == {"smokes": ["Y"]}
    assert by_name["feel_SQ001"].shown == {"often": ["A2", "A3", "does not apply"], "smokes": ["Y"]}
    assert by_name["told"].shown == {}
    listed = "\n".join(form.left_out)
    for part in (
        "told: the condition",
        "age: type 'number' cannot be asked",
        "often: 'other' with a free text",
        "weight: numbers from 16 to 99 are in 4 groups",
        "remarks: type 'long text' cannot be asked; what people write cannot be disguised",
        "told: its text contains an expression in braces",
    ):
        assert part in listed
    assert "hello" not in listed


def test_the_condition_of_a_group_applies_to_its_questions():
    text = limesurvey_file(localized=True, group_condition='smokes == "N"')
    rate = questionnaire_of(text, "t").questions[-2]
    assert (rate.name, rate.shown) == ("rate", {"smokes": ["N"]})


def test_a_limesurvey_structure_becomes_a_survey_that_can_be_built(tmp_path):
    (tmp_path / "form.lss").write_text(limesurvey_file(localized=True))
    output = init(tmp_path / "form.lss", tmp_path / "work", "--count", "singles")
    survey = Survey.load(tmp_path / "work" / "survey.yaml")
    assert build(survey).digest
    assert survey.policy.schema["told"].missing == ("-99",)
    types = [(entry.type, list(entry.items or ())) for entry in survey.spec.questions]
    assert types == [
        (None, []), (None, []), ("matrix", ["feel_SQ001", "feel_SQ002"]), ("multiple", ["when_work"]),
        (None, []), ("scale", []), ("number", []),
    ]  # fmt: skip
    assert "age: type 'number' cannot be asked" in output


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<document><LimeSurveyDocType>Group</LimeSurveyDocType></document>", "not the structure of a"),
        ("<a/>", "not the structure of a"),
        ("<document>", "not well-formed XML"),
        (
            (
                '<!DOCTYPE d [<!ENTITY e "x">]><document><LimeSurveyDocType>Survey</LimeSurveyDocType>'
                "<surveys><rows><row><language>&e;</language></row></rows></surveys></document>"
            ),
            "entities are not read",
        ),
        (
            '<!DOCTYPE d [<!ENTITY e SYSTEM "file:///etc/passwd">]><document>&e;</document>',
            "entities are not read",
        ),
        (
            "<document><LimeSurveyDocType>Survey</LimeSurveyDocType></document>",
            "no question with answers to choose from",
        ),
        (
            (
                "<document><LimeSurveyDocType>Survey</LimeSurveyDocType><questions><rows><row><qid>1</qid>"
                f"<type>L</type><title>a</title><question>&lt;b{'x' * MOST_MARKUP}</question></row></rows>"
                "</questions></document>"
            ),
            "a text with markup has more than",
        ),
        (
            (
                "<document><LimeSurveyDocType>Survey</LimeSurveyDocType><questions><rows><row><qid>1</qid>"
                "<type>L</type></row></rows></questions></document>"
            ),
            "question '1': has no code",
        ),
    ],
)
def test_a_file_that_is_no_survey_is_refused(tmp_path, text, message):
    (tmp_path / "form.lss").write_text(text)
    with pytest.raises(InputError, match=message) as refused:
        read_questionnaire(tmp_path / "form.lss")
    assert str(refused.value).startswith(f"{tmp_path / 'form.lss'}:")


@pytest.mark.parametrize(
    "markup", ["<" * 19_000, "<!--" * 4_900, "<a " * 6_000, "&#" * 9_000, "<![" * 6_000, "<script>" * 2_000]
)
def test_markup_made_to_take_long_is_read_in_the_time_of_its_length(markup):
    start = time.process_time()
    assert len(plain_text(markup)) <= len(markup)
    assert time.process_time() - start < 2  # the standard library's parser took 40


def test_scripts_and_styles_are_no_text():
    assert plain_text("<style>p {}</style>A<script>alert('b')</script> &amp; c") == "A & c"
