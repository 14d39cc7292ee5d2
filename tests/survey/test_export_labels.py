"""Reports for statistics programs: marks of disguised columns, who was asked, and a codebook that agrees."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import openpyxl
import pandas as pd
import pyarrow.parquet as pq
import pyreadstat
import pytest
from tests.survey.world import example

import masquerade as mq
from masquerade.core.util.frame_marks import DISGUISED
from masquerade.frames import formats
from masquerade.frames.ddi import NAMESPACE
from masquerade.survey import Survey
from masquerade.survey.collector.export import write_reports

COUNTS = {(0, (1, 0, 1, 2)): 40, (0, (0, 1, 0, 0)): 25, (1, (2, 1, 1, 1)): 5}
DISGUISED_COLUMNS = ("pills", "told", "nights")
POLICY = """\
masquerade: 1
variables:
  visits: {categories: [0, 1, 2], channel: {kind: for_gamma, gamma: 4}}
  smoker: {categories: [true, false], channel: {kind: for_gamma, gamma: 4}}
  ill: {categories: ["yes", "no", refused, not asked], missing: [refused, not asked],
        channel: {kind: for_gamma, gamma: 2}}
"""
SURVEY = """\
masquerade_survey: 1
title: T
languages: [de, en]
policy: policy.yaml
collector: https://survey.example.org
contact: c
consent: d
questions:
- {variable: visits, text: {de: "Wie oft?", en: "How often?"}}
- {variable: smoker, text: {de: "Rauchen Sie?", en: "Do you smoke?"}}
- variable: ill
  text: {de: "Krank?", en: "Ill?"}
  show_if: {visits: [1, 2]}
  not_asked: not asked
"""
READ = {".sav": pyreadstat.read_sav, ".dta": pyreadstat.read_dta, ".xpt": pyreadstat.read_xport}


def written(tmp_path, ending, survey=None):
    survey = survey or example(tmp_path / "work")
    target = tmp_path / f"reports{ending}"
    counts = (
        COUNTS if len(survey.questions) == 4 else {(0, (0, 1, 3)): 8, (0, (2, 0, 0)): 3, (0, (1, 1, 2)): 2}
    )
    write_reports(
        counts, survey.policy, target, survey=survey, codebook_to=tmp_path / "book.xml", overwrite=True
    )
    return survey, target


def typed(tmp_path):
    folder = tmp_path / "typed"
    folder.mkdir()
    (folder / "policy.yaml").write_text(POLICY)
    (folder / "survey.yaml").write_text(SURVEY)
    return Survey.load(folder / "survey.yaml")


@pytest.mark.parametrize("ending", [".sav", ".dta", ".xpt"])
def test_disguised_columns_say_so_in_labels_and_clear_ones_do_not(tmp_path, ending):
    survey, target = written(tmp_path, ending)
    _, about = READ[ending](str(target))
    labels = about.column_names_to_labels
    for name in DISGUISED_COLUMNS:
        assert labels[name].startswith(DISGUISED)
    assert labels["age"] == "How old are you?"
    assert labels["told"].startswith(f"{DISGUISED} [if pills = yes] Does anyone")
    assert about.file_label.lower().startswith("disguised: do not tabulate")
    if ending != ".xpt":
        assert all(
            label.endswith(" (disguised)")
            for name in DISGUISED_COLUMNS
            for label in about.variable_value_labels[name].values()
        )
        assert set(about.variable_value_labels["age"].values()) == set(survey.policy.schema["age"].categories)
    if ending == ".sav":
        notes = " ".join(about.notes)
        assert survey.policy.id in notes
        assert "reports.sav.masquerade.json" in notes
        assert all(len(note.encode()) <= 80 for note in about.notes)
    assert (tmp_path / f"reports{ending}.masquerade.json").exists()


@pytest.mark.parametrize("ending", [".sav", ".zsav", ".dta", ".xpt", ".xlsx", ".csv", ".parquet", ".arrow"])
@pytest.mark.parametrize("types", ["text", "typed"])
def test_marked_files_are_read_back_as_the_reports_they_hold(tmp_path, ending, types):
    survey, target = written(tmp_path, ending, typed(tmp_path) if types == "typed" else None)
    source = mq.tally(target)
    _, other = written(tmp_path, ".arrow" if ending == ".parquet" else ".parquet", survey)
    by = tuple(survey.policy.schema)
    [table], [reference] = (one.answer([mq.Query(by=by)]) for one in (source, mq.tally(other)))
    assert source.policy.id == survey.policy.id
    assert table.values.tolist() == reference.values.tolist()


def test_a_workbook_has_the_warning_on_a_second_sheet(tmp_path):
    survey, target = written(tmp_path, ".xlsx")
    book = openpyxl.load_workbook(target)
    assert book.sheetnames == ["data", "about"]
    texts = [row[0].value for row in book["about"].iter_rows()]
    assert texts[0] == DISGUISED
    assert any(survey.policy.id in text for text in texts)


@pytest.mark.parametrize("ending", [".sav", ".dta", ".xpt", ".csv"])
@pytest.mark.parametrize("types", ["text", "typed"])
def test_codebook_and_file_agree_on_types_and_codes(tmp_path, ending, types):
    survey, target = written(tmp_path, ending, typed(tmp_path) if types == "typed" else None)
    root = ET.parse(tmp_path / "book.xml").getroot()  # noqa: S314  (written just now)
    book = {}
    for variable in root.iter(f"{{{NAMESPACE}}}var"):
        values = [one.text for one in variable.iter(f"{{{NAMESPACE}}}catValu")]
        kind = variable.find(f"{{{NAMESPACE}}}varFormat").get("type")
        book[variable.get("name")] = kind, values
    assert set(book) == {*survey.policy.observed, "mode"}
    if ending == ".csv":
        lines = [line.split(",") for line in target.read_text().splitlines()]
        for place, name in enumerate(lines[0]):
            assert {line[place] for line in lines[1:]} <= set(book[name][1])
        return
    options = {} if ending == ".xpt" else {"user_missing": True}
    frame, about = READ[ending](str(target), **options)
    for name, (kind, values) in book.items():
        stored = frame[name].dropna().tolist()
        is_number = all(isinstance(one, (int, float)) or len(one) == 1 for one in stored) and ending != ".xpt"
        is_number |= all(isinstance(one, (int, float)) for one in stored)
        assert (kind == "numeric") == is_number, name
        texts = {
            f".{one}" if isinstance(one, str) and kind == "numeric" else f"{one:g}" if is_number else one
            for one in stored
        }
        assert texts <= set(values), name
        if ending != ".xpt" and name in about.variable_value_labels:
            labelled = {
                f".{code}" if isinstance(code, str) else f"{code:g}"
                for code in about.variable_value_labels[name]
            }
            assert labelled <= set(values)


def test_the_codebook_says_among_whom_a_follow_up_was_asked_in_every_language(tmp_path):
    written(tmp_path, ".parquet", typed(tmp_path))
    root = ET.parse(tmp_path / "book.xml").getroot()  # noqa: S314
    universes = {
        variable.get("name"): [one.text for one in variable.iter(f"{{{NAMESPACE}}}universe")]
        for variable in root.iter(f"{{{NAMESPACE}}}var")
    }
    assert universes["visits"] == universes["mode"] == []
    german, english = universes["ill"]
    assert german.startswith("Nur gefragt, wer auf „Wie oft?“ mit „1“ oder „2“ geantwortet hat. Alle anderen")
    assert english.startswith("Asked only of people who answered “1” or “2” to “How often?”. All others")


def test_parquet_columns_carry_the_question_and_its_condition(tmp_path):
    _, target = written(tmp_path, ".parquet")
    field = pq.read_schema(target).field("told")
    assert field.metadata[b"label"].decode().startswith("[if pills = yes] Does anyone")


def test_a_label_that_is_not_marked_keeps_its_words(tmp_path):
    """Only columns whose own label has the mark lose it: others may be called so."""
    path = tmp_path / "theirs.sav"
    frame = pd.DataFrame({"a": [1.0, 2.0]})
    pyreadstat.write_sav(
        frame, str(path), column_labels=["plain"], variable_value_labels={"a": {1: "x (disguised)", 2: "y"}}
    )
    assert set(mq.tally(path).schema["a"].categories) == {"x (disguised)", "y"}


def test_help_offers_the_formats_that_are_installed(monkeypatch):
    assert formats.offered_endings() == ".csv, .parquet, .arrow, .sav, .dta, .xpt, .xlsx"
    monkeypatch.setattr(formats, "find_spec", lambda _: None)
    assert formats.offered_endings() == ".csv, .parquet, .arrow"
