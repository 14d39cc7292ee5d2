"""The package for ODK, KoBo and Enketo: an XLSForm for interviewers, and printed sheets for the draws.

The random numbers of these tools are neither exact nor secret: they are stored with the form. So the device
never receives the true answer to a disguised question. The respondent draws by a printed spinner, dice or a
birthday, and the form asks only for the result.
"""

from __future__ import annotations

import io
import itertools
import re
from importlib import import_module
from typing import Any, Final

from masquerade.channels.policy import Group
from masquerade.core.errors import InputError
from masquerade.survey.forms.own_chance import is_together, own_chance_problems
from masquerade.survey.forms.survey_file import Survey
from masquerade.survey.packages.common import (
    check_reports_are_answers,
    check_without_tokens,
    help_text,
    offered_codes,
    question_text,
)
from masquerade.survey.page import page

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,50}")
LANGUAGES: Final = {"en": "English", "de": "Deutsch", "fr": "Français", "es": "Español"}
MODES: Final = ("spinner", "dice", "birthday")
WORDS: Final = {
    "en": ("Use the sheet of your answer to draw. Enter only what the sheet says.",
           "Find the number of your answers. Use the sheet to draw. Enter only the number that it says.",
           "How did you draw?", ("Spinner", "Dice", "Birthday")),
    "de": ("Ziehen Sie mit dem Blatt Ihrer Antwort. Geben Sie nur ein, was das Blatt sagt.",
           "Suchen Sie die Nummer Ihrer Antwort. Ziehen Sie mit dem Blatt. Geben Sie nur dessen Nummer ein.",
           "Womit haben Sie gezogen?", ("Drehscheibe", "Würfel", "Geburtstag")),
    "fr": ("Tirez avec la feuille de votre réponse. Indiquez seulement ce que dit la feuille.",
           "Cherchez le numéro de vos réponses. Tirez avec la feuille. Indiquez seulement le numéro obtenu.",
           "Comment avez-vous tiré ?", ("Roue", "Dés", "Anniversaire")),
    "es": ("Haga el sorteo con la hoja de su respuesta. Indique solo lo que dice la hoja.",
           "Busque el número de sus respuestas. Haga el sorteo con la hoja. Indique solo el número obtenido.",
           "¿Cómo hizo el sorteo?", ("Ruleta", "Dados", "Cumpleaños")),
}  # fmt: skip
README: Final = """\
ODK package of "{title}"

1. Upload form.xlsx to ODK Central, KoBoToolbox or Enketo. Print sheets.html for every interviewer.
2. The respondent keeps the answer to themselves, draws with the sheet, and reports the result. The device and
   the interviewer learn only what was drawn. Practise this with the interviewers first.
3. Switch off audit logs with locations and times if they could single out a respondent.
4. Export the submissions as CSV, and write a file of reports:
   masquerade survey responses PACKAGE submissions.csv --out reports.parquet

Questions that are not disguised are asked as they are. The random functions of XLSForm are not used: their
numbers are stored in the submission, and their generators are not made for secrets.
"""


def build(survey: Survey) -> tuple[dict[str, bytes], dict[str, Any], list[str]]:
    """Return the files, the layout of responses, and remarks."""
    check_without_tokens(survey, "ODK")
    check_reports_are_answers(survey, "ODK")
    conditions = {question.name: list(question.shown) for question in survey.questions if question.shown}
    problems = list(own_chance_problems(survey.policy, conditions))
    if problems:
        listed = "\n  ".join(["", *problems]) if len(problems) > 1 else f" {problems[0]}"
        raise InputError(f"people cannot draw the reports of this survey themselves:{listed}")
    rows, choices, columns = _sheets(survey)
    title = survey.text(survey.spec.title)
    first = survey.languages[0]
    settings = [
        ("form_title", "form_id", "default_language"),
        (title[first], f"masquerade_{survey.policy.id[:12]}", _language(first)),
    ]
    sheets = {"survey": rows, "choices": choices, "settings": settings}
    contents = {
        "form.xlsx": _workbook(sheets),
        "sheets.html": page.build(survey).files["sheets.html"],
        "README.txt": README.format(title=title[first]).encode(),
    }
    return contents, {"columns": columns, "mode_column": "drawn_by"}, []


def _sheets(survey: Survey) -> tuple[list[Any], list[Any], list[dict[str, Any]]]:
    """Return the rows of `survey` and of `choices`, and the layout of the columns of an export."""
    names = [f"::{_language(it)}" for it in survey.languages]
    rows: list[Any] = [
        ("type", "name", *(f"label{it}" for it in names), *(f"hint{it}" for it in names), "required")
    ]
    choices: list[Any] = [("list_name", "name", *(f"label{it}" for it in names))]
    columns: list[dict[str, Any]] = []
    consent = survey.text(survey.spec.consent)
    rows.append(("note", "consent", *(consent[it] for it in survey.languages), *[""] * len(names), ""))
    by_name = {question.name: question for question in survey.questions}
    done: set[str] = set()
    for question in survey.questions:
        group = survey.policy.group(question.name)
        if group.names[0] in done:
            continue
        done |= set(group.names)
        number = len(columns) + 1
        called = _field_name("_".join(group.names), number)
        together = is_together(group)
        texts = [_label(survey, group, it, together=together) for it in survey.languages]
        hints = [
            WORDS.get(it, WORDS["en"])[int(together)] if group.disguised else help_text(survey, question, it)
            for it in survey.languages
        ]
        rows.append((f"select_one list{number}", called, *texts, *hints, "yes"))
        if together:
            combinations = list(itertools.product(*(range(size) for size in group.sizes)))
            codes = {f"c{place}": list(codes) for place, codes in enumerate(combinations, start=1)}
            labels = [[str(place)] * len(names) for place in range(1, len(codes) + 1)]
        else:
            alone = by_name[group.names[0]]
            every = range(len(survey.policy.schema[alone.name])) if group.disguised else offered_codes(alone)
            codes = {f"c{code + 1}": [code] for code in every}
            labels = [[alone.answers[it][code] for it in survey.languages] for code in every]
        choices += [(f"list{number}", name, *text) for name, text in zip(codes, labels, strict=True)]
        columns.append({"column": called, "reports": list(group.names), "codes": codes})
    words = [WORDS.get(it, WORDS["en"]) for it in survey.languages]
    rows.append(("select_one drawn", "drawn_by", *(one[2] for one in words), *[""] * len(names), "yes"))
    choices += [("drawn", mode, *(one[3][place] for one in words)) for place, mode in enumerate(MODES)]
    return rows, choices, columns


def _label(survey: Survey, group: Group, language: str, *, together: bool) -> str:
    """Return a question's text, or the texts and numbered answers of questions that are drawn together."""
    questions = [question for question in survey.questions if question.name in group.names]
    texts = [question_text(question, language) for question in questions]
    if not together:
        return texts[0]
    answers = {question.name: question.answers[language] for question in questions}
    combinations = itertools.product(*(answers[name] for name in group.names))
    numbered = [f"{place}: {' · '.join(one)}" for place, one in enumerate(combinations, start=1)]
    return "\n".join([*texts, "", *numbered])


def _field_name(name: str, number: int) -> str:
    return name if NAME.fullmatch(name) else f"q{number}"


def _language(code: str) -> str:
    return f"{LANGUAGES[code]} ({code})" if code in LANGUAGES else f"{code} ({code})"


def _workbook(sheets: dict[str, list[Any]]) -> bytes:
    try:
        library = import_module("openpyxl")
    except ImportError:
        raise InputError("Excel files need openpyxl: pip install 'masquerade[files]'") from None
    book = library.Workbook(write_only=True)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append([_plain_cell(value) for value in row])
    stream = io.BytesIO()
    book.save(stream)
    return stream.getvalue()


def _plain_cell(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula."""
    return f" {text}" if text.startswith(("=", "+", "-", "@")) else text
