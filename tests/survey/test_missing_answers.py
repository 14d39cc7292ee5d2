"""Missing answers in surveys go through the channel: refused, not asked, on pages, devices and in files."""

from __future__ import annotations

import json

import pyreadstat
import pytest
from tests.survey.test_questionnaire import CHOICES, FORM, init, workbook
from tests.survey.test_survey_file import loaded

import masquerade as mq
from masquerade.channels.policy.record import record_gamma
from masquerade.core.errors import InputError
from masquerade.frames.ddi import codebook
from masquerade.survey import Survey
from masquerade.survey.collector.export import table_of, wordings
from masquerade.survey.device.publication import terms_text
from masquerade.survey.device.terms import DeviceTerms
from masquerade.survey.page.page import page_values
from masquerade.survey.page.paper import sheets

POLICY = """
masquerade: 1
variables:
  a: {categories: ["yes", "no", refused], missing: refused, channel: {kind: for_gamma, gamma: 3}}
  b:
    categories: ["yes", "no", refused, not asked]
    missing: [refused, not asked]
    channel: {kind: for_gamma, gamma: 4}
"""


def asked(values):
    values |= {"languages": ["en", "de"]}
    values["questions"][1]["not_asked"] = "not asked"


def test_missing_categories_are_offered_in_the_words_of_the_page(tmp_path):
    survey = loaded(tmp_path, asked, POLICY)
    first, second = survey.questions
    assert first.answers["en"] == ("Yes", "No", "I would rather not say")
    assert first.answers["de"][-1] == "Das möchte ich nicht sagen"
    assert second.answers["en"] == ("yes", "no", "I would rather not say", "Not asked")
    assert (first.not_offered, second.not_offered, second.not_asked) == ((), (3,), 3)
    shown = {one["name"]: one for one in page_values(survey)["questions"]}
    assert "notOffered" not in shown["a"]
    assert shown["b"]["notOffered"] == (3,)
    assert "I would rather not say" in sheets(survey)


def test_a_text_of_the_survey_takes_the_place_of_the_page_s(tmp_path):
    def told(values):
        asked(values)
        values["questions"][1]["answers"] = {"refused": "No comment", "not asked": "Does not apply to me"}

    survey = loaded(tmp_path, told, POLICY)
    assert survey.questions[1].answers["en"] == ("yes", "no", "No comment", "Does not apply to me")
    assert survey.questions[1].not_offered == ()  # it has a text: whoever wants to can choose it


def test_missing_answers_count_in_the_bound_of_a_person(tmp_path):
    survey = loaded(tmp_path, asked, POLICY)
    # whoever refuses the first question is not asked the second: one pair of records has both factors
    assert survey.record_gamma == record_gamma(survey.policy, survey.follow_ups) == 12


def test_a_survey_sends_no_missing_answer_in_clear(tmp_path):
    clear = POLICY.replace("missing: refused,", "missing: refused, clear_missing: accepted,")
    with pytest.raises(InputError, match=r"variables\.a\.clear_missing: a survey sends missing answers"):
        loaded(tmp_path, asked, clear)


def test_a_device_sends_what_is_not_answered_as_missing(tmp_path):
    terms = DeviceTerms.parse(terms_text(loaded(tmp_path, asked, POLICY)))
    assert terms.codes({"a": "yes", "b": None}) == {"a": 0, "b": 2}
    assert terms.codes({"a": "yes"}) == {"a": 0, "b": 2}
    assert terms.codes({}) == {"a": 2, "b": 3}  # not asked: the first was not answered with yes
    with pytest.raises(InputError, match="'a' must be one of"):
        terms.codes({"a": "perhaps"})
    values = json.loads(terms_text(loaded(tmp_path, asked, POLICY)))
    values["questions"][0]["missing"] = [7]
    with pytest.raises(InputError, match="missing answers of 'a'"):
        DeviceTerms.parse(json.dumps(values))


def test_reports_for_spss_and_codebooks_say_which_labels_are_missing(tmp_path):
    survey = loaded(tmp_path, asked, POLICY)
    table = table_of({(0, (0, 3)): 5, (0, (2, 1)): 2}, survey.policy, survey)
    assert len(table) == 7
    text = codebook(survey.policy, cases=7, wordings=wordings(survey))
    assert text.count('missing="Y"') == 3
    out = tmp_path / "reports.sav"
    mq.disguise_file(_clear(tmp_path), out, survey.policy)
    _, about = pyreadstat.read_sav(str(out), user_missing=True)
    assert about.missing_ranges == {"a": [{"lo": 3.0, "hi": 3.0}], "b": [{"lo": 3.0, "hi": 4.0}]}


def _clear(folder):
    path = folder / "clear.csv"
    path.write_text("a,b\n" + "yes,no\nrefused,not asked\nno,\n" * 20)
    return path


def test_choices_that_forms_call_refused_are_missing(tmp_path):
    choices = [*CHOICES, ("yn", "-99", "Prefer not to answer", "Keine Angabe")]
    init(workbook(tmp_path / "form.xlsx", choices=choices), tmp_path / "work")
    policy = Survey.load(tmp_path / "work" / "survey.yaml").policy
    assert policy.schema["smokes"].missing == ("-99",)
    assert policy.schema["often"].missing == ("does not apply",)
    assert policy.schema["quit"].missing == ("-99",)


def test_surveyjs_items_for_refusing_are_missing(tmp_path):
    form = json.loads(json.dumps(FORM))
    form["pages"][0]["elements"][2] |= {
        "showRefuseItem": True,
        "refuseText": "Rather not",
        "showDontKnowItem": True,
    }
    (tmp_path / "form.json").write_text(json.dumps(form))
    init(tmp_path / "form.json", tmp_path / "work")
    survey = Survey.load(tmp_path / "work" / "survey.yaml")
    assert survey.policy.schema["where"].missing == ("refused", "dontknow", "does not apply")
    where = next(question for question in survey.questions if question.name == "where")
    assert where.answers["en"][2:4] == ("Rather not", "Don't know")
