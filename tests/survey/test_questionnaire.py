"""Forms of other programs as surveys: what is taken, what is left out and said, what is wrong, at once."""

from __future__ import annotations

import json
import math
import zipfile
from fractions import Fraction

import openpyxl
import pytest
from typer.testing import CliRunner

from masquerade.cli.app import app
from masquerade.cli.survey import read_questionnaire
from masquerade.cli.survey_init import use_exact_odds, use_simple_odds
from masquerade.core.errors import InputError
from masquerade.survey import Survey, build
from masquerade.survey.forms import xlsform

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


def init(source, folder, *options, code=0):
    result = CliRunner().invoke(app, ["survey", "init", str(folder), "--from", str(source), *options])
    assert result.exit_code == code, result.output
    return result.output


def test_an_xlsform_becomes_a_survey_that_can_be_built(tmp_path):
    said = init(workbook(tmp_path / "form.xlsx"), tmp_path / "work")
    survey = Survey.load(tmp_path / "work" / "survey.yaml")
    assert build(survey).digest
    assert survey.spec.title == {"en": "Smoking", "de": "Smoking"}
    names = [question.name for question in survey.questions]
    assert names == ["smokes", "often", "when_daily", "when_weekly", "when_rarely", "told", "quit"]
    assert survey.spec.questions[2].items["when_daily"] == {"en": "Daily", "de": "Täglich"}
    assert survey.questions[3].type == "multiple"
    assert survey.questions[0].text == {"en": "Do you smoke?", "de": "Rauchen Sie?"}
    assert survey.questions[0].help == {"en": "Any tobacco", "de": "Any tobacco"}
    often, _, told, stopped = survey.spec.questions[1:]
    assert often.show_if == {"smokes": ["yes"]}  # the group's and its own
    assert often.not_asked == "does not apply"
    assert told.show_if is None
    assert stopped.show_if == {"often": ["daily", "rarely"]}
    assert stopped.not_asked == "no"
    assert survey.policy.limit.to_dict() == {"breach": "5%:50%"}
    assert survey.record_gamma == 19
    assert "# Someone who thought it 5% likely" in (tmp_path / "work" / "policy.yaml").read_text()
    for part in ("'integer' cannot be asked; it needs its smallest", "'note' cannot be asked",
                 "told: the condition", "all respondents are asked",
                 "'does not apply' is added"):  # fmt: skip
        assert part in said
    assert "start" not in said.replace("started", "")


def test_types_of_an_xlsform_become_types_of_a_survey(tmp_path):
    head = (*SURVEY[0], "appearance", "constraint", "parameters")
    rows = [
        head,
        ("select_multiple drugs", "took", "What did you take?", "Was nahmen Sie?"),
        ("select_one yn", "often", "Often?", "Oft?", None, "selected(${took}, 'speed')"),
        ("integer", "age", "How old?", "Wie alt?", None, None, None, ". >= 16 and . < 100"),
        ("range", "pain", "Pain?", "Schmerz?", None, None, None, None, "start=0 end=10 step=1"),
        ("decimal", "hours", "Hours?", "Stunden?", None, None, None, ". > 5"),
        ("begin_group", "feel", "I feel", "Ich bin", None, None, "table-list"),
        ("select_one yn", "calm", "calm", "ruhig"),
        ("select_one yn", "glad", "glad", "froh"),
        ("end_group", None),
        ("select_one yn", "mood", "Good?", "Gut?", None, None, "likert"),
        ("text", "say", "What else?", "Sonst noch?"),
    ]
    choices = [*CHOICES[:3], *(("drugs", *it) for it in (
        ("speed", "Speed", "Speed"), ("weed", "Weed", "Gras"), ("none", "None", "Nichts"),
        ("refused", "Not telling", "Sage ich nicht")))]  # fmt: skip
    form = workbook(tmp_path / "form.xlsx", rows, choices)
    said = init(form, tmp_path / "work", "--clear", "feel", "--count", "singles")
    survey = Survey.load(tmp_path / "work" / "survey.yaml")
    assert build(survey).digest
    took, often, age, pain, feel, mood = survey.spec.questions
    assert (took.type, took.text["de"], list(took.items)) == (
        "multiple",
        "Was nahmen Sie?",
        ["took_speed", "took_weed"],
    )
    assert took.answers == {"refused": {"en": "Not telling", "de": "Sage ich nicht"}}
    assert often.show_if == {"took_speed": ["yes"]}
    assert (age.number.min, age.number.max, age.number.bins) == (16, 99, [37, 58, 79])
    assert survey.questions[3].answers["de"] == ("unter 37", "37 bis 57", "58 bis 78", "79 oder mehr")
    assert (pain.number.slider, pain.number.bins) == (True, [2, 5, 8])
    assert (feel.type, feel.text["en"], list(feel.items)) == ("matrix", "I feel", ["calm", "glad"])
    assert mood.type == "scale"
    assert survey.policy.clear_variables == ("calm", "glad")
    for part in ("age: numbers from 16 to 99 are in 4 groups, cut at 37, 58, 79", "sends it word for word",
                 "'hours': type 'decimal' cannot be asked; it needs"):  # fmt: skip
        assert part in " ".join(said.split())


def test_types_of_a_surveyjs_form_become_types_of_a_survey(tmp_path):
    form = {"elements": [
        {"type": "checkbox", "name": "took", "title": "Took?", "choices": ["speed", "weed"],
         "showRefuseItem": True, "showOtherItem": True},
        {"type": "matrix", "name": "feel", "title": "I feel", "columns": ["never", "often"],
         "rows": ["calm", {"value": "glad", "text": "Glad"}], "visibleIf": "{took} contains 'weed'"},
        {"type": "boolean", "name": "why", "visibleIf": "{feel.glad} = 'often'"},
        {"type": "text", "inputType": "number", "name": "hours", "min": 0, "max": 24, "step": 0.5},
        {"type": "rating", "name": "much"},
        {"type": "comment", "name": "say"},
        {"type": "checkbox", "name": "agreed", "choices": ["I agree."], "isRequired": True},
    ]}  # fmt: skip
    (tmp_path / "form.json").write_text(json.dumps(form))
    said = " ".join(init(tmp_path / "form.json", tmp_path / "work", "--count", "singles").split())
    survey = Survey.load(tmp_path / "work" / "survey.yaml")
    assert build(survey).digest
    took, feel, why, hours, much = survey.spec.questions
    assert list(took.items) == ["took_speed", "took_weed"]
    assert survey.policy.schema["took_weed"].missing == ("refused",)
    assert (feel.type, feel.items["feel_glad"]) == ("matrix", "Glad")
    assert feel.show_if == {"took_weed": ["yes"]}
    assert why.show_if == {"feel_glad": ["often"]}
    assert (hours.number.step, hours.number.bins) == (0.5, [6, 12, 18])
    assert much.type == "scale"
    assert "say: type 'comment' cannot be asked; what people write cannot be disguised" in said
    assert "took: 'other' with a free text" in said
    assert "agreed: a box that must be ticked is consent" in said


@pytest.mark.parametrize(
    ("constraint", "limits"),
    [
        (". >= 16 and . <= 99", (16, 99)), (". > 15 and . < 100", (16, 99)), (". <= 5 and . >= -5", (-5, 5)),
        (". >= 16", None), (". >= 16 or . <= 99", None), (". >= 9 and . <= 3", None), ("", None),
        (". >= 1 and . <= 3 and . <= 9", None), ("." * 100_000, None),
    ],
)  # fmt: skip
def test_numbers_need_limits_that_are_simple(tmp_path, constraint, limits):
    rows = [(*SURVEY[0], "constraint"), ("select_one yn", "a", "A", "A"),
            ("integer", "b", "B", "B", None, None, constraint[:32_000])]  # fmt: skip
    found = read_questionnaire(workbook(tmp_path / "form.xlsx", rows))
    numbers = [(it.number["min"], it.number["max"]) for it in found.questions if it.number is not None]
    assert numbers == ([] if limits is None else [limits])
    assert found.left_out[-1].startswith("survey, line 3, ")


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
    "condition",
    [
        "{" + " " * 30_000 + "x",  # the time grew with the cube of its length: hours for these
        "{smokes} anyof [" + " " * 30_000,
        "${" + " " * 1900 + "x",
        "selected(${" + " " * 1900 + "x",
        "not(" + " " * 1900 + "x",
        "not(" * 480 + ")" * 70,
        "not(" * 390 + ")" * 390,
        "not(" * 8000 + ")" * 8000,  # went deeper than Python does
        "(" * 15_000 + ")" * 15_000,
    ],
)
def test_a_condition_made_to_take_long_is_left_out(tmp_path, condition):
    """The condition of a form that somebody else wrote takes no more time than its length."""
    rows = [*SURVEY, ("select_one yn", "last", "L", "L", None, condition)]
    asked = read_questionnaire(workbook(tmp_path / "form.xlsx", rows))
    assert asked.questions[-1].shown == {}
    assert asked.left_out[-1].startswith("last: the condition")
    elements = [
        {"type": "boolean", "name": "smokes"},
        {"type": "boolean", "name": "last", "visibleIf": condition},
    ]
    (tmp_path / "form.json").write_text(json.dumps({"elements": elements}))
    asked = read_questionnaire(tmp_path / "form.json")
    assert asked.questions[-1].shown == {}
    assert asked.left_out[-1].startswith("last: the condition")


def test_a_sheet_of_few_bytes_and_many_empty_cells_is_refused(tmp_path):
    """One cell at the right edge makes a line of 16,384: before, all lines were read to the end."""
    lines = "".join(f'<row r="{i}"><c r="XFD{i}"><v>1</v></c></row>' for i in range(1, xlsform.MOST_ROWS))
    space = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    sheet = f'<worksheet xmlns="{space}"><sheetData>{lines}</sheetData></worksheet>'
    made, wide = workbook(tmp_path / "form.xlsx"), tmp_path / "wide.xlsx"
    with zipfile.ZipFile(made) as before, zipfile.ZipFile(wide, "w", zipfile.ZIP_DEFLATED) as after:
        for name in before.namelist():
            # sheet1 is the empty one that every new workbook has
            after.writestr(name, sheet if name.endswith("/sheet2.xml") else before.read(name))
    assert wide.stat().st_size < 1 << 18
    with pytest.raises(InputError, match="'survey' has more than 5,000,000 cells"):
        read_questionnaire(wide)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("form.docx", b"", "must be an XLSForm"),
        ("form.xlsx", b"not a workbook", "not a readable Excel workbook"),
        ("form.json", b'{"a": 1}', "is not a SurveyJS form"),
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


def thirty(path):
    """Return a form with thirty questions, five of them follow-ups."""
    often = {"type": "radiogroup", "choices": ["never", "some", "daily"]}
    asked = [{"type": "boolean", "name": f"q{i}", "title": f"Question {i}?"} for i in range(25)]
    asked += [
        {**often, "name": f"f{i}", "title": f"How often {i}?", "visibleIf": f"{{q{i}}} = true"}
        for i in range(5)
    ]
    path.write_text(json.dumps({"title": "Thirty", "elements": asked}))
    return path


def test_thirty_questions_share_one_limit_in_dealt_blocks(tmp_path):
    said = init(thirty(tmp_path / "form.json"), tmp_path / "work", "--people", "200000")
    assert "Someone who thought it 5% likely can think it at most 50% likely" in " ".join(said.split())
    assert "warning" not in said
    survey = Survey.load(tmp_path / "work" / "survey.yaml")
    [group] = survey.policy.groups
    units = {tuple(group.names[place] for place in unit) for unit in group.response.units}
    assert {(f"q{i}", f"f{i}") for i in range(5)} <= units
    assert survey.record_gamma == group.response.gamma == 19
    assert survey.policy.limit.gamma == 19
    assert "with 200,000 people" in (tmp_path / "work" / "policy.yaml").read_text()
    assert build(survey).digest


def test_clear_and_sensitive_questions_of_a_form_are_chosen(tmp_path):
    form = thirty(tmp_path / "form.json")
    said = init(form, tmp_path / "a", "--sensitive", "q0,f0,q1", "--clear", "q9", "--limit", "5%:30%")
    assert "sent in clear: q9" in said
    assert "q2: named neither sensitive nor clear" in said
    survey = Survey.load(tmp_path / "a" / "survey.yaml")
    assert [question.name for question in survey.questions] == ["q0", "q1", "q9", "f0"]
    assert survey.policy.clear_variables == ("q9",)
    assert 7 < survey.record_gamma <= survey.policy.limit.gamma
    for options, told in (
        (("--sensitive", "f0"), "depends on q0"),
        (("--clear", "f0"), "in clear would reveal the answer to 'q0'"),
        (("--clear", "q99"), "no question 'q99'"),
        (("--clear", "q1", "--sensitive", "q1"), "Name each once"),
    ):
        assert told in " ".join(init(form, tmp_path / "b", *options, code=2).split())
    assert "usable" in " ".join(init(form, tmp_path / "c", "--people", "60").lower().split())
    result = CliRunner().invoke(app, ["survey", "init", str(tmp_path / "d"), "--people", "60"])
    assert result.exit_code == 2
    assert "give --from" in result.output


@pytest.mark.parametrize("epsilon", [0.09, 0.5, 0.981, 1.7, 2.944438, 5])
def test_simple_odds_never_exceed_what_they_replace(epsilon):
    found = use_simple_odds({"kind": "for_epsilon", "epsilon": str(epsilon)}, Fraction(19))
    gamma = Fraction(found["gamma"])
    assert found["kind"] == "for_gamma"
    assert gamma.denominator <= 1000
    assert 0.97 * epsilon <= math.log(gamma) <= max(epsilon, math.log(19) * (epsilon > 2.9))
    assert gamma <= 19 or epsilon > 3


@pytest.mark.parametrize("size", [2, 3, 5, 8, 12, 24, 50, 100])
@pytest.mark.parametrize("epsilon", [0.1, 0.2, 0.3, 0.5, 1, 2, 2.944438])
def test_channels_are_chosen_so_that_odds_are_exact(epsilon, size):
    """γ never rises, ε loses at most 6% in all, and the truth is kept in k of fewer than 1,000 cases."""
    parts = {"variables": {"a": {"kind": "for_epsilon", "epsilon": str(epsilon)}}}
    simple = use_simple_odds(parts, Fraction(19))
    gamma = Fraction(use_exact_odds(simple, {"a": size})["variables"]["a"]["gamma"])
    assert gamma <= Fraction(simple["variables"]["a"]["gamma"])
    assert math.log(gamma) >= 0.94 * epsilon
    assert (gamma / (gamma + size - 1)).denominator < 1000
