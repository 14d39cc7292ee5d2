"""Packages for other survey tools: SurveyJS itself, a LimeSurvey theme's form in a browser, an XLSForm."""

from __future__ import annotations

import csv
import io
import itertools
import json
import shutil
import subprocess
import threading
from contextlib import contextmanager
from html import escape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from playwright.sync_api import expect
from scipy.stats import binomtest
from tests.statistical.checks import ALPHA
from tests.survey.browser import PHONE, Visit, running
from tests.survey.programs import node, packages
from tests.survey.world import change, collecting, example
from typer.testing import CliRunner

import masquerade as mq
from masquerade.cli.app import app
from masquerade.core.errors import FileError, InputError, UnknownValue
from masquerade.survey.forms import limesurvey as limesurvey_reader
from masquerade.survey.forms import surveyjs as surveyjs_reader
from masquerade.survey.forms import xlsform
from masquerade.survey.packages.limesurvey import question_codes
from masquerade.survey.packages.package import build_package
from masquerade.survey.packages.responses import Responses

GIVEN = {"age": "30 to 49", "pills": "yes", "told": "no", "nights": "many"}
KEPT = 0.8  # "yes" with 24 of 30: 19 for all four as they are, and 5 of the 11 others
TIMES = 40


@contextmanager
def serving(folder):
    """Serve a folder, and take a form as LimeSurvey does."""
    bodies = []

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *values):
            super().__init__(*values, directory=str(folder))

        def do_POST(self):
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>T</title><h1>Stored</h1>")

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", bodies
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_surveyjs_sends_reports_and_deletes_answers(tmp_path):
    """The model of SurveyJS in Node, without a user interface."""
    program, place = node(), packages()
    with collecting(tmp_path / "work") as (collector, url, _):
        folder = tmp_path / "package"
        build_package(collector.survey, "surveyjs").write(folder)
        (folder / "package.json").write_text('{"type": "module"}')
        command = [program, str(Path(__file__).with_name("surveyjs.mjs")), str(place), str(folder)]
        done = subprocess.run([*command, url, str(TIMES)], capture_output=True, text=True, check=False)  # noqa: S603
        assert done.returncode == 0, done.stderr
        stored = [codes for *_, codes in collector.store.reports()]
    outcome = json.loads(done.stdout)
    assert outcome["errors"] == ["no answer, or none of the policy's categories: pills"]
    assert outcome["states"] == ["saving"] * (TIMES + 1)
    assert outcome["left"] == [0] * (TIMES + 1)  # nothing stays in SurveyJS's model
    sent = [json.loads(body) for body in outcome["bodies"]]
    assert len({len(body) for body in outcome["bodies"]}) == 1
    assert {" ".join(sorted(one)) for one in sent} == {"id mode policy reports token"}
    assert sorted(stored) == sorted(tuple(one["reports"]) for one in sent)
    kept = sum(one["reports"][1] == 0 for one in sent)
    assert binomtest(kept, TIMES, KEPT).pvalue > ALPHA


def with_vendor(folder):
    """Add the files of SurveyJS and its user interface, as README.txt says."""
    (folder / "vendor").mkdir()
    modules = packages() / "node_modules"
    for source in (
        "survey-core-2/survey.core.min.js",
        "survey-core-2/survey.i18n.min.js",
        "survey-core-2/survey-core.fontless.min.css",
        "survey-js-ui/survey-js-ui.min.js",
    ):
        shutil.copy(modules / source, folder / "vendor")


def answer(visit, label):
    visit.page.get_by_role("radio", name=label, exact=True).check(force=True)
    return visit


def go_on(visit, name="Next"):
    visit.page.get_by_role("button", name=name, exact=True).click()


@pytest.mark.parametrize("pills", ["Yes", "No"])
def test_surveyjs_with_its_user_interface_sends_only_reports(tmp_path, pills):
    agree = {"en": "I agree", "de": "Ich stimme zu"}
    with collecting(tmp_path / "work", agree=agree) as (collector, url, _):
        folder = tmp_path / "package"
        build_package(collector.survey, "surveyjs").write(folder)
        with_vendor(folder)
        with serving(folder) as (address, _), running() as (_, browser):
            visit = Visit(browser.new_context(**PHONE), f"{address}/index.html")
            expect(visit.page.get_by_text("Taking part is voluntary")).to_be_visible()
            go_on(visit)  # refused: the box is not ticked
            expect(visit.page.get_by_text("How old are you?")).to_have_count(0)
            visit.page.get_by_role("checkbox", name="I agree").check(force=True)
            go_on(visit)
            go_on(answer(visit, "30 to 49"))
            go_on(answer(visit, pills))
            if pills == "Yes":
                expect(visit.page.get_by_text("Does anyone at work know")).to_be_visible()
                go_on(answer(visit, "No"))
            expect(visit.page.get_by_text("How many nights")).to_be_visible()
            assert visit.posted() == []
            go_on(answer(visit, "Four or more"), "Complete")
            expect(visit.page.get_by_text("Thank you")).to_be_visible()
            visit.page.wait_for_function("document.body.innerText.includes('successfully')")
            assert visit.problems == []
            [body] = visit.posted()
            to = {request.url for request in visit.requests if request.method == "POST"}
            reached = [one.url for one in visit.requests if not one.url.startswith("data:")]
            visit.context.close()
        [stored] = [codes for *_, codes in collector.store.reports()]
    sent = json.loads(body)
    assert to == {f"{url}/v1/reports"}
    assert {request.split("/")[2] for request in reached} == {url.split("/")[2], address.split("/")[2]}
    assert set(sent) == {"policy", "id", "mode", "reports", "token", "agreed"}
    assert tuple(sent["reports"]) == stored
    assert stored[0] == 1  # the age is not disguised


def test_a_surveyjs_form_reads_back_as_the_same_questions(tmp_path):
    survey = example(tmp_path / "work")
    build_package(survey, "surveyjs").write(tmp_path / "package")
    form = surveyjs_reader.read(tmp_path / "package" / "form.json")
    assert [question.name for question in form.questions] == list(survey.policy.schema)
    assert form.questions[2].shown == {"pills": ["yes"]}
    assert form.questions[0].text == survey.questions[0].text
    assert set(form.languages) == {"en", "de"}
    assert "not disguised" in form.questions[0].help["en"]
    assert form.questions[3].help == {}


LIME = """<!doctype html><html lang="en"><title>LimeSurvey</title>
<link rel="stylesheet" href="{theme}/css/masquerade.css">
<form id="limesurvey" method="post" action="/sent">{questions}
<button type="submit" id="ls-button-submit" name="move" value="movesubmit">Submit</button></form>
<script>
for (const one of document.querySelectorAll("input[type=radio]"))
  one.addEventListener("change", () => document.getElementById("java" + one.name).value = one.value);
</script><script src="{theme}/scripts/masquerade.js"></script></html>"""
BOX = """<div id="question{qid}" class="list-radio question-container masquerade-q{qid}"><h2>{text}</h2>
<ul>{items}</ul>
<input type="hidden" name="java{field}" id="java{field}" value=""></div>"""
ITEM = """<li class="answer-item radio-item">
<input type="radio" name="{field}" id="answer{field}{value}" value="{value}">
<label for="answer{field}{value}">{text}</label></li>"""


def lime_form(survey, folder):
    """Write the form as a theme of LimeSurvey 6 renders it, with the hidden copies that it keeps."""
    build_package(survey, "limesurvey").write(folder)
    [theme] = [path.name for path in folder.iterdir() if path.is_dir()]
    boxes = []
    for qid, question in enumerate(survey.questions, start=1):
        field = f"100001X1X{qid}"
        items = "".join(
            ITEM.format(field=field, value=f"A{code + 1}", text=escape(text))
            for code, text in enumerate(question.answers["en"])
        )
        boxes.append(BOX.format(qid=qid, field=field, text=escape(question.text["en"]), items=items))
    (folder / "form.html").write_text(LIME.format(theme=theme, questions="\n".join(boxes)))


def test_a_limesurvey_form_is_masked_before_it_leaves(tmp_path):
    survey, folder = example(tmp_path / "work"), tmp_path / "package"
    lime_form(survey, folder)
    values = {name: f"A{survey.policy.schema[name].code(label) + 1}" for name, label in GIVEN.items()}
    with serving(folder) as (url, bodies), running() as (_, browser):
        visit = Visit(browser.new_context(**PHONE), f"{url}/form.html")
        page = visit.page
        expect(page.locator("#question3")).to_be_hidden()  # asked of those who take pills
        page.get_by_role("button", name="Submit").click()
        page.locator("#answer100001X1X2A1").check()
        expect(page.locator("#question3")).to_be_visible()
        alerts = []
        page.on("dialog", lambda dialog: (alerts.append(dialog.message), dialog.accept()))
        page.get_by_role("button", name="Submit").click()
        page.wait_for_function("true")
        assert alerts == ["Please answer every question."]
        assert bodies == []
        for time in range(TIMES):
            if time:
                page.goto(f"{url}/form.html")
            for qid, value in enumerate(values.values(), start=1):
                page.locator(f"#answer100001X1X{qid}{value}").check()
            page.get_by_role("button", name="Submit").click()
            visit.sees("Stored")
        assert visit.problems == []
        visit.context.close()
    sent = [parse_qs(body) for body in bodies]
    assert len(sent) == TIMES
    for one in sent:
        assert one["100001X1X1"] == ["A2"]  # the age has no channel
        for qid in (1, 2, 3, 4):
            assert one[f"java100001X1X{qid}"] == one[f"100001X1X{qid}"]  # no copy of the true answer
    kept = sum(one["100001X1X2"] == ["A1"] for one in sent)
    assert binomtest(kept, TIMES, KEPT).pvalue > ALPHA


def test_a_limesurvey_follow_up_that_is_not_shown_sends_a_report_all_the_same(tmp_path):
    survey, folder = example(tmp_path / "work"), tmp_path / "package"
    lime_form(survey, folder)
    with serving(folder) as (url, bodies), running() as (_, browser):
        visit = Visit(browser.new_context(**PHONE), f"{url}/form.html")
        for qid, value in ((1, "A1"), (2, "A2"), (4, "A1")):
            visit.page.locator(f"#answer100001X1X{qid}{value}").check()
        visit.page.get_by_role("button", name="Submit").click()
        visit.sees("Stored")
        visit.context.close()
    [one] = [parse_qs(body) for body in bodies]
    assert one["100001X1X3"][0] in {"A1", "A2"}


def test_a_limesurvey_form_without_the_script_shows_no_answers(tmp_path):
    survey, folder = example(tmp_path / "work"), tmp_path / "package"
    lime_form(survey, folder)
    with serving(folder) as (url, _), running() as (_, browser):
        visit = Visit(browser.new_context(**PHONE, java_script_enabled=False), f"{url}/form.html")
        expect(visit.page.locator("input[type=radio]").first).to_be_hidden()
        expect(visit.page.locator("#ls-button-submit")).to_be_hidden()
        visit.context.close()


def test_the_structure_for_limesurvey_reads_back_and_stores_no_more_than_needed(tmp_path):
    survey = example(tmp_path / "work")
    build_package(survey, "limesurvey").write(tmp_path / "package")
    text = (tmp_path / "package" / "survey.lss").read_text()
    form = limesurvey_reader.questionnaire_of(text, "t")
    assert [question.name for question in form.questions] == list(question_codes(survey).values())
    assert form.questions[1].text == survey.questions[1].text
    assert form.questions[3].answers["A3"] == {"en": "Four or more", "de": "Vier oder mehr"}
    assert form.left_out == []
    for setting in ("<ipaddr>N<", "<datestamp>N<", "<savetimings>N<", "<allowsave>N<", "<anonymized>Y<"):
        assert setting in text
    assert "<relevance>1</relevance>" in text


def exported(columns, rows):
    stream = io.StringIO()
    writer = csv.writer(stream, quoting=csv.QUOTE_ALL)
    writer.writerow(columns)
    writer.writerows(rows)
    return stream.getvalue()


def test_responses_of_limesurvey_become_reports_with_estimates(tmp_path):
    survey = example(tmp_path / "work")
    build_package(survey, "limesurvey").write(tmp_path / "package")
    rows = [(i, "1980-01-01", "A2", "A1", "A2", "A3") for i in range(30)]
    rows += [(i, "1980-01-01", "A1", "A2", "A1", "A1") for i in range(12)] + [(99, "", "A1", "", "", "")]
    (tmp_path / "responses.csv").write_text(exported(("id", "submitdate", *survey.policy.schema), rows))
    command = ["survey", "responses", str(tmp_path / "package"), str(tmp_path / "responses.csv"), "--out"]
    result = CliRunner().invoke(
        app, [*command, str(tmp_path / "reports.sav"), "--codebook", str(tmp_path / "book.xml")]
    )
    assert result.exit_code == 0, result.output
    assert "1 row without an answer to every question: omitted." in result.output
    source = mq.tally(tmp_path / "reports.sav")
    assert source.policy.id == survey.policy.id
    assert source.n == 42
    [table] = source.answer([mq.Query(by="age")])
    assert table.values.tolist() == [12, 30, 0]
    assert "How old are you?" in (tmp_path / "book.xml").read_text()


def test_a_code_that_the_package_does_not_have_is_refused_by_row_without_its_value(tmp_path):
    survey = example(tmp_path / "work")
    build_package(survey, "limesurvey").write(tmp_path / "package")
    rows = [("A2", "A1", "A2", "A3"), ("A2", "secret", "A2", "A3")]
    (tmp_path / "responses.csv").write_text(exported(tuple(survey.policy.schema), rows))
    with pytest.raises(UnknownValue, match="row 2") as refused:
        Responses.load(tmp_path / "package").write(tmp_path / "responses.csv", tmp_path / "reports.csv")
    assert "secret" not in str(refused.value)
    assert not (tmp_path / "reports.csv").exists()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"policy": "0" * 64}, "belongs to a different policy"),
        ({"tool": "other"}, "not the layout of a package"),
        ({"columns": {}}, "columns: must be a list"),
        ({"columns": []}, "use masquerade survey export"),
        ({"columns": [7]}, "columns.0: must have a column"),
        ({"columns": [{"column": "a", "reports": ["x"], "codes": {}}]}, "not a report of the policy"),
        (
            {"columns": [{"column": "a", "reports": ["age"], "codes": {"A1": [9]}}]},
            "one valid code for each",
        ),
        (
            {"columns": [{"column": "a", "reports": ["age"], "codes": {"A1": [0]}}]},
            "each report of the policy",
        ),
        ({"mode": "guess"}, "mode: is not a mode"),
    ],
)
def test_a_layout_that_does_not_fit_is_refused(tmp_path, changed, message):
    build_package(example(tmp_path / "work"), "limesurvey").write(tmp_path / "package")
    change_json(tmp_path / "package" / "responses.json", changed)
    with pytest.raises(InputError, match=message):
        Responses.load(tmp_path / "package")


def change_json(path, changed):
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))


def test_an_xlsform_asks_for_the_result_of_the_sheet_only(tmp_path):
    survey = example(tmp_path / "work")
    build_package(survey, "odk").write(tmp_path / "package")
    form = xlsform.read(tmp_path / "package" / "form.xlsx")
    age, together, by = form.questions
    assert (age.name, by.name) == ("age", "drawn_by")
    assert together.name == "pills_told_nights"
    assert len(together.answers) == 12
    assert "12: No · No · Four or more" in together.text["en"]
    assert "Enter only the number" in together.help["en"]
    assert list(by.answers) == ["spinner", "dice", "birthday"]
    assert (tmp_path / "package" / "sheets.html").read_text().count("<svg") >= 1


def test_submissions_of_odk_become_reports(tmp_path):
    survey = example(tmp_path / "work")
    build_package(survey, "odk").write(tmp_path / "package")
    combinations = list(itertools.product(range(2), range(2), range(3)))
    rows = [("2026-01-01", "c2", f"c{place}", "dice") for place in range(1, 13)]
    header = ("SubmissionDate", "age", "pills_told_nights", "drawn_by")
    (tmp_path / "submissions.csv").write_text(exported(header, rows))
    written = Responses.load(tmp_path / "package").write(
        tmp_path / "submissions.csv", tmp_path / "reports.csv"
    )
    assert written == (12, 0)
    lines = list(csv.DictReader((tmp_path / "reports.csv").read_text().splitlines()))
    labels = [survey.policy.schema[name].categories for name in ("pills", "told", "nights")]
    expected = {tuple(own[code] for own, code in zip(labels, one, strict=True)) for one in combinations}
    assert {(line["pills"], line["told"], line["nights"]) for line in lines} == expected
    assert {line["mode"] for line in lines} == {"dice"}


FINE = {
    "masquerade": 1,
    "variables": {
        name: {"categories": ["a", "b"], "channel": {"kind": "for_gamma", "gamma": "10007/1003"}}
        for name in ("age", "pills", "told", "nights")
    },
}


def test_what_a_tool_cannot_do_is_refused_with_the_reason(tmp_path):
    survey = example(tmp_path / "a", panel=True)
    for tool in ("limesurvey", "surveyjs", "odk"):
        with pytest.raises(InputError, match="panel: needs masquerade's own page"):
            build_package(survey, tool)
    with pytest.raises(InputError, match="must be one of limesurvey, surveyjs, odk"):
        build_package(survey, "redcap")
    folder = tmp_path / "b"
    example(folder)
    (folder / "policy.yaml").write_text(json.dumps(FINE))
    questions = [{"variable": name, "text": name} for name in FINE["variables"]]
    change(folder / "survey.yaml", questions=questions)
    with pytest.raises(InputError, match="cannot draw the reports of this survey themselves"):
        build_package(mq.survey.Survey.load(folder / "survey.yaml"), "odk")
    blocks = {
        "masquerade": 1,
        "variables": {name: {"categories": ["a", "b"]} for name in FINE["variables"]},
        "blocks": [{"variables": list(FINE["variables"]), "k": 2, "gamma": 9}],
    }
    (folder / "policy.yaml").write_text(json.dumps(blocks))
    dealt = mq.survey.Survey.load(folder / "survey.yaml")
    for tool in ("limesurvey", "odk"):
        with pytest.raises(InputError, match="stores one answer to each question"):
            build_package(dealt, tool)
    assert build_package(dealt, "surveyjs").files


def test_a_package_is_the_same_everywhere_and_never_replaces_files_by_itself(tmp_path):
    survey = example(tmp_path / "work")
    package = build_package(survey, "limesurvey")
    assert package.files == build_package(survey, "limesurvey").files
    package.write(tmp_path / "package")
    with pytest.raises(FileError, match="exists already; --overwrite replaces it"):
        package.write(tmp_path / "package")
    package.write(tmp_path / "package", overwrite=True)


def test_the_command_names_what_differs_from_the_survey_file(tmp_path):
    example(tmp_path / "work", agree={"en": "I agree", "de": "Ja"})
    command = ["survey", "package", str(tmp_path / "work" / "survey.yaml"), "--for", "odk", "--out"]
    result = CliRunner().invoke(app, [*command, str(tmp_path / "package")])
    assert result.exit_code == 0, result.output
    shown = " ".join(result.output.split())
    assert "the box to agree is not included" in shown
    assert "README.txt has the next steps" in shown
