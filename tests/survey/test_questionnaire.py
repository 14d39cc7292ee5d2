"""Forms of other programs as surveys: what is taken, what is left out and said, what is wrong, at once."""

from __future__ import annotations

import json

import openpyxl
import pytest
from typer.testing import CliRunner

from masquerade.cli.app import app
from masquerade.core.errors import InputError
from masquerade.survey import Survey, build
from masquerade.survey.forms.form_file import read_questionnaire

SURVEY = [
    ("type", "name", "label::English (en)", "label::Deutsch (de)", "hint::English (en)", "relevant"),
    ("start", "start", None, None, None, None),
    ("note", "hello", "Hello", "Hallo", None, None),
    ("select_one yn", "smokes", "Do you smoke?", "Rauchen Sie?", "Any tobacco", None),
    ("begin_group", "g", None, None, None, "${smokes} = 'yes'"),
    ("select_one often", "often", "How often?", "Wie oft?", None, "selected(${smokes}, 'yes')"),
    ("integer", "age", "How old?", "Wie alt?", None, None),
    ("end_group", None, None, None, None, None),
    ("select_multiple often", "when", "When?", "Wann?", None, None),
    (
        "select_one yn",
        "told",
        "Told anybody?",
        "Jemandem gesagt?",
        None,
        "${often} != 'rarely' and ${age} > 17",
    ),
    ("select_one yn", "quit", "Quit?", None, None, "${often} = 'daily' or ${often} = 'rarely'"),
]
CHOICES = [
    ("list_name", "name", "label::English (en)", "label::Deutsch (de)"),
    ("yn", "yes", "Yes", "Ja"),
    ("yn", "no", "No", "Nein"),
    ("often", "daily", "Daily", "Täglich"),
    ("often", "weekly", "Weekly", "Wöchentlich"),
    ("often", "rarely", "Rarely", "Selten"),
]
FORM = {
    "title": {"default": "Health", "de": "Gesundheit", "fi": "Terveys"},
    "pages": [
        {
            "elements": [
                {
                    "type": "boolean",
                    "name": "smokes",
                    "title": {"default": "Do you smoke?", "de": "Rauchen Sie?"},
                },
                {
                    "type": "panel",
                    "visibleIf": "{smokes} = true",
                    "elements": [
                        {"type": "rating", "name": "much", "title": "How much?", "rateMax": 3},
                        {"type": "text", "name": "brand"},
                    ],
                },
                {
                    "type": "radiogroup",
                    "name": "where",
                    "title": "Where?",
                    "choices": ["home", {"value": "work", "text": {"de": "Arbeit", "default": "At work"}}],
                    "visibleIf": "{much} anyof [2, 3]",
                },
                {"type": "dropdown", "name": "cost", "choices": ["low", "high"], "visibleIf": "{much} > 2"},
            ]
        }
    ],
}


def workbook(path, survey=SURVEY, choices=CHOICES):
    book = openpyxl.Workbook()
    for name, rows in {
        "survey": survey,
        "choices": choices,
        "settings": [("form_title",), ("Smoking",)],
    }.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    book.save(path)
    return path


def init(source, folder, code=0):
    result = CliRunner().invoke(app, ["survey", "init", str(folder), "--from", str(source)])
    assert result.exit_code == code, result.output
    return result.output


def test_an_xlsform_becomes_a_survey_that_can_be_built(tmp_path):
    said = init(workbook(tmp_path / "form.xlsx"), tmp_path / "work")
    survey = Survey.load(tmp_path / "work" / "survey.yaml")
    assert build(survey).digest
    assert survey.spec.title == {"en": "Smoking", "de": "Smoking"}
    names = [question.name for question in survey.questions]
    assert names == ["smokes", "often", "told", "quit"]
    assert survey.questions[0].text == {"en": "Do you smoke?", "de": "Rauchen Sie?"}
    assert survey.questions[0].help == {"en": "Any tobacco", "de": "Any tobacco"}
    often, told, stopped = survey.spec.questions[1:]
    assert often.show_if == {"smokes": ["yes"]}  # the group's and its own
    assert often.not_asked == "does not apply"
    assert told.show_if is None
    assert stopped.show_if == {"often": ["daily", "rarely"]}
    assert stopped.not_asked == "no"
    assert all(survey.policy.group(name).matrix_channel.gamma == 3 for name in names)
    for part in ("'integer' cannot be asked", "'note' cannot be asked", "each of its choices as a question",
                 "told: the condition", "everybody is asked", "'does not apply' is added"):  # fmt: skip
        assert part in said
    assert "start" not in said.replace("started", "")


def test_a_surveyjs_form_becomes_a_survey_that_can_be_built(tmp_path):
    (tmp_path / "form.json").write_text(json.dumps(FORM))
    said = init(tmp_path / "form.json", tmp_path / "work")
    survey = Survey.load(tmp_path / "work" / "survey.yaml")
    assert build(survey).digest
    assert survey.languages == ("en", "de")
    assert survey.spec.title == {"en": "Health", "de": "Gesundheit"}
    smokes, much, where, cost = survey.spec.questions
    assert smokes.variable == "smokes"
    assert much.show_if == {"smokes": ["true"]}
    assert where.show_if == {"much": ["2", "3"]}
    assert where.answers["work"] == {"en": "At work", "de": "Arbeit"}
    assert cost.show_if is None
    assert "brand: type 'text' cannot be asked" in said
    assert "cost: the condition '{much} > 2' is not translated" in said


def test_and_binds_tighter_than_or_and_what_is_not_simple_is_not_translated(tmp_path):
    def condition(text):
        row = ("select_one yn", "last", "Last?", "Zuletzt?", None, text)
        found = read_questionnaire(workbook(tmp_path / "c.xlsx", [*SURVEY, row]))
        return found.questions[-1].shown

    assert condition("${often} = 'daily' or ${often} = 'rarely' and ${smokes} = 'yes'") == {}
    assert condition("(${often} = 'daily' or ${often} = 'rarely') and ${smokes} = 'yes'") == {
        "often": ["daily", "rarely"],
        "smokes": ["yes"],
    }
    known = ["weekly", "rarely", "does not apply"]
    assert condition("not(selected(${often}, 'daily'))") == {"often": known}
    for other in (
        "${often} = 'hourly'",
        "${last} = 'yes'",
        "${often} = 'daily' or ${smokes} = 'yes'",
        "true()",
    ):
        assert condition(other) == {}


def test_everything_that_is_wrong_is_said_at_once(tmp_path):
    bad = [*SURVEY, ("select_one nowhere", "x", "X", None, None, None), ("select_one yn", "smokes", "S", "T"),
           ("select_one yn", None, "no name", None), ("select_one one", "single", "O", "O")]  # fmt: skip
    choices = [
        *CHOICES,
        ("one", "alone", "Alone", "Allein"),
        ("yn", "yes", "again", "wieder"),
        ("yn", None, "?"),
    ]
    with pytest.raises(InputError) as wrong:
        read_questionnaire(workbook(tmp_path / "bad.xlsx", bad, choices))
    told = str(wrong.value)
    assert told.startswith(f"{tmp_path / 'bad.xlsx'}:")
    for part in ("'nowhere' is not on the sheet", "smokes: two questions", "line 14: the question has no",
                 "single: has 1 answers", "'yes' is in the list 'yn' twice", "line 9: needs a"):  # fmt: skip
        assert part in told
    js = {"elements": [{"type": "radiogroup"}, {"type": "dropdown", "name": "a", "choices": [{"text": "x"}]},
                       {"type": "rating", "name": "r", "rateMax": 10**9}]}  # fmt: skip
    (tmp_path / "bad.json").write_text(json.dumps(js))
    with pytest.raises(InputError) as wrong:
        read_questionnaire(tmp_path / "bad.json")
    for part in ("elements.0: has no name", "choices.0: has no value", "rateMin and rateMax"):
        assert part in str(wrong.value)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("form.docx", b"", "must be an XLSForm"),
        ("form.xlsx", b"not a workbook", "not a readable Excel workbook"),
        ("form.json", b'{"a": 1}', "is no SurveyJS form"),
        ("form.json", b'{"elements": [{"type": "text", "name": "a"}]}', "no question with answers"),
        ("missing.xlsx", None, "no such file"),
        ("missing.json", None, "no such file"),
    ],
)
def test_a_file_that_is_no_form_is_refused_and_nothing_is_written(tmp_path, name, content, said):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert said in " ".join(init(tmp_path / name, tmp_path / "work", code=2).lower().split()).replace(
        "xlsform", "XLSForm"
    ).replace("excel", "Excel").replace("surveyjs", "SurveyJS")
    assert not (tmp_path / "work").exists()
