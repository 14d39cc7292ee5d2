"""Reader of LimeSurvey structures (.lss, XML): groups, questions, subquestions and answers with their texts.

LimeSurvey 4 and later store texts in tables of their own (`question_l10ns`, `answer_l10ns`); earlier versions
store one row per language. Both are read. Lists, yes/no, five-point and gender questions become questions,
arrays become matrices, multiple-choice questions become items to tick, and numbers with limits become numbers
in groups. Texts lose their HTML markup.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Final

from masquerade.core.errors import InputError
from masquerade.core.util.json_text import read_text
from masquerade.learn.networks.files.xml_text import parse_xml
from masquerade.survey.forms.questionnaire import (
    MOST_CONDITION,
    WORD_FOR_WORD,
    Atom,
    ImportedQuestion,
    Questionnaire,
    Texts,
    add_number,
    finish_questionnaire,
    select_languages,
)

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

MOST_BYTES: Final = 20 << 20
MOST_ROWS: Final = 100_000  # rows of all tables together
MOST_MARKUP: Final = 20_000  # characters of one text with markup
YES_NO: Final = {
    "en": ("Yes", "No"),
    "de": ("Ja", "Nein"),
    "fr": ("Oui", "Non"),
    "es": ("Sí", "No"),
}
SCALES: Final = {"A": 5, "B": 10, "5": 5}  # types that offer the numbers from 1
LISTS: Final = frozenset("L!O")
ARRAYS: Final = frozenset("ABCEFH")
CHECKS: Final = frozenset("MP")
OTHER_TYPE: Final = "pages do not ask this type"
WHY: Final = {
    "N": "it needs its smallest and largest number",
    "D": "add it with 'type: date' and its years",
    **dict.fromkeys("STU", WORD_FOR_WORD),
}
MOST_VALUES: Final = 10**6  # most values of a number
SILENT: Final = frozenset("XI*")  # texts, choice of language, equations
WITHOUT_TEXTS: Final = {  # answers that LimeSurvey itself provides, with English texts
    "G": {"F": "Female", "M": "Male"},
    "C": {"Y": "Yes", "N": "No", "U": "Uncertain"},
    "E": {"I": "Increase", "S": "Same", "D": "Decrease"},
}
TYPE_NAMES: Final = {
    ":": "array of numbers", ";": "array of texts", "1": "array with two scales", "D": "date",
    "K": "several numbers", "N": "number", "Q": "several texts", "R": "ranking", "S": "short text",
    "T": "long text", "U": "huge text", "|": "upload of files",
}  # fmt: skip
_OPERATOR: Final = r"(==|!=|eq|ne)"
_VALUE: Final = r"(?:\"([^\"]*)\"|'([^']*)'|(-?\d+))"
_IS: Final = re.compile(rf"([A-Za-z0-9_]+)(?:\.(?:NAOK|code|value))?\s*{_OPERATOR}\s*{_VALUE}", re.IGNORECASE)
_FIELD: Final = re.compile(r"\d+X\d+X(\d+)([A-Za-z0-9_]*)")
_PLACEHOLDER: Final = re.compile(r"\{[^{}\s][^{}]*\}")
_TAG: Final = re.compile(r"</?([A-Za-z][A-Za-z0-9]*)")
BREAKS: Final = frozenset({"br", "p", "div", "li", "tr", "td", "h1", "h2", "h3", "h4", "ul", "ol", "table"})
HIDDEN: Final = frozenset({"script", "style"})
Row = Mapping[str, str]


def read(path: Path) -> Questionnaire:
    """Read the questionnaire in a file."""
    return questionnaire_of(read_text(path, most=MOST_BYTES), path.stem)


def questionnaire_of(text: str, title: str) -> Questionnaire:
    """Convert the text of an .lss file to a questionnaire; `title` is used if the survey has no title."""
    root = parse_xml(text, most=MOST_BYTES)
    if root.tag != "document" or (root.findtext("LimeSurveyDocType") or "").strip() != "Survey":
        raise InputError("is not the structure of a LimeSurvey survey: export it as .lss.")
    survey = _Structure(_tables(root))
    left_out: list[str] = []
    problems: list[str] = []
    questions = [
        question for row in survey.questions for question in _questions(survey, row, left_out, problems)
    ]
    _unique_names(questions)
    in_texts = [language for question in questions for language in question.text]
    first = [survey.language] if survey.language in in_texts else []
    languages = select_languages([*first, *in_texts] or [survey.language], left_out)
    titles = survey.titles() or {survey.language: title}
    form = Questionnaire(titles, languages, questions, left_out)
    return finish_questionnaire(form, problems, _atoms(survey))


def _tables(root: Element) -> dict[str, list[Row]]:
    """Return the rows of all tables."""
    tables: dict[str, list[Row]] = {}
    number = 0
    for table in root:
        rows = table.find("rows")
        for row in () if rows is None else rows:
            number += 1
            if number > MOST_ROWS:
                raise InputError(f"the survey has more than {MOST_ROWS:,} rows.")
            tables.setdefault(table.tag, []).append({cell.tag: (cell.text or "").strip() for cell in row})
    return tables


@dataclass
class _Structure:
    """The tables of a survey, by id."""

    tables: Mapping[str, list[Row]]
    questions: list[Row] = field(init=False)

    def __post_init__(self) -> None:
        settings = next(iter(self.tables.get("surveys", [])), {})
        self.language = _language(settings.get("language", "")) or "en"
        self.groups = {row.get("gid", ""): row for row in self.tables.get("groups", [])}
        self._question_texts = self._texts("questions", "question_l10ns", "qid", ("question", "help"))
        self._question_texts |= self._texts("subquestions", "question_l10ns", "qid", ("question", "help"))
        order = {row.get("gid", ""): _number(row.get("group_order", "")) for row in self.groups.values()}
        first = {row["qid"]: row for row in reversed(self.tables.get("questions", [])) if row.get("qid")}
        self.questions = sorted(
            (row for row in first.values() if row.get("parent_qid", "0") in {"", "0"}),
            key=lambda row: (order.get(row.get("gid", ""), 0), _number(row.get("question_order", ""))),
        )
        self.names = {row["qid"]: row.get("title", "") for row in self.questions}
        self.with_conditions = {row.get("qid", "") for row in self.tables.get("conditions", [])}
        self._subquestions: dict[str, dict[str, Row]] = {}
        for row in sorted(
            self.tables.get("subquestions", []), key=lambda row: _number(row.get("question_order", ""))
        ):
            self._subquestions.setdefault(row.get("parent_qid", ""), {}).setdefault(row.get("qid", ""), row)
        self._answers = self._answer_texts()

    def titles(self) -> Texts:
        """Return the title by language."""
        return {
            _language(row.get("surveyls_language", "")) or self.language: title
            for row in self.tables.get("surveys_languagesettings", [])
            if (title := plain_text(row.get("surveyls_title", "")))
        }

    def texts(self, qid: str, what: str) -> Texts:
        """Return a text of a question or subquestion by language."""
        return self._question_texts.get((qid, what), {})

    def subquestions(self, qid: str) -> list[Row]:
        """Return the subquestions of a question on its first scale."""
        return [
            row for row in self._subquestions.get(qid, {}).values() if row.get("scale_id", "0") in {"", "0"}
        ]

    def answers(self, qid: str) -> dict[str, Texts]:
        """Return the answers of a question by code."""
        return {code: dict(texts) for code, texts in self._answers.get(qid, {}).items()}

    def limits(self, qid: str) -> tuple[int, int] | None:
        """Return the smallest and the largest number of a question, None if it does not have both."""
        attributes = {
            row.get("attribute", ""): row.get("value", "")
            for row in self.tables.get("question_attributes", [])
            if row.get("qid") == qid
        }
        ends = [attributes.get(f"{name}_num_value_n", "") for name in ("min", "max")]
        if not all(re.fullmatch(r"-?\d{1,12}", it) for it in ends):
            return None
        low, high = map(int, ends)
        return (low, high) if 0 < high - low < MOST_VALUES else None

    def _texts(self, table: str, later: str, key: str, names: Sequence[str]) -> dict[tuple[str, str], Texts]:
        texts: dict[tuple[str, str], Texts] = {}
        for row in (*self.tables.get(table, []), *self.tables.get(later, [])):
            language = _language(row.get("language", "")) or self.language
            for name in names:
                if text := plain_text(row.get(name, "")):
                    texts.setdefault((row.get(key, ""), name), {}).setdefault(language, text)
        return texts

    def _answer_texts(self) -> dict[str, dict[str, Texts]]:
        """Return the texts of answers by question and code, whichever table has them."""
        answers: dict[str, dict[str, Texts]] = {}
        by_id: dict[str, Texts] = {}
        listed = self.tables.get("answers", [])
        for row in sorted(listed, key=lambda row: _number(row.get("sortorder", ""))):
            if row.get("scale_id", "0") in {"", "0"}:
                texts = answers.setdefault(row.get("qid", ""), {}).setdefault(row.get("code", ""), {})
                self._add_text(texts, row)
                if row.get("aid"):
                    by_id[row["aid"]] = texts
        for row in self.tables.get("answer_l10ns", []):
            place = by_id.get(row.get("aid", ""))
            if place is None and row.get("qid") and row.get("code"):
                place = answers.setdefault(row["qid"], {}).setdefault(row["code"], {})
            if place is not None:
                self._add_text(place, row)
        return answers

    def _add_text(self, texts: Texts, row: Row) -> None:
        if text := plain_text(row.get("answer", "")):
            texts.setdefault(_language(row.get("language", "")) or self.language, text)


def _questions(
    survey: _Structure, row: Row, left_out: list[str], problems: list[str]
) -> Iterator[ImportedQuestion]:
    """Yield the variables of a question, after listing its parts that cannot be asked."""
    qid, kind, name = row["qid"], row.get("type", ""), row.get("title", "")
    if not name:
        problems.append(f"question {qid[:20]!r}: has no code.")
        return
    if kind in SILENT:
        return
    condition = _condition(survey, row, left_out)
    text, help_text = survey.texts(qid, "question") or {survey.language: name}, survey.texts(qid, "help")
    left_out += _partly_left_out(row, text)
    if kind in LISTS or kind in {"Y", "5", "G"}:
        answers = _answers(survey, qid, kind, list(text))
        question_type = "scale" if kind == "5" else ""
        yield ImportedQuestion(name, dict(text), answers, help_text, condition, question_type)
    elif kind in ARRAYS | CHECKS:
        question = ImportedQuestion(name, dict(text), {}, help_text, condition)
        yield from _items(survey, qid, kind, question)
    elif kind == "N" and (limits := survey.limits(qid)) is not None:
        question = ImportedQuestion(name, dict(text), {}, help_text, condition)
        left_out.append(add_number(question, *limits, 1))
        yield question
    else:
        shown = TYPE_NAMES.get(kind, kind[:10])
        left_out.append(f"{name}: type {shown!r} cannot be asked; {WHY.get(kind, OTHER_TYPE)}.")


def _partly_left_out(row: Row, text: Texts) -> Iterator[str]:
    """Yield the parts of a question that are not asked."""
    kind, name = row.get("type", ""), row.get("title", "")
    if any(_PLACEHOLDER.search(one) for one in text.values()):
        yield f"{name}: its text contains an expression in braces, which is shown as it is."
    if row.get("other", "").upper() == "Y" and kind in LISTS | CHECKS:
        yield f"{name}: 'other' with a free text cannot be asked."
    if kind in {"O", "P"}:
        yield f"{name}: its comment cannot be asked."


def _items(survey: _Structure, qid: str, kind: str, question: ImportedQuestion) -> Iterator[ImportedQuestion]:
    """Yield the lines of an array, or the choices to tick."""
    for inner in survey.subquestions(qid):
        code = inner.get("title", "")
        text = survey.texts(inner.get("qid", ""), "question") or {survey.language: code}
        answers = _answers(survey, qid, "Y" if kind in CHECKS else kind, list(text))
        item_type = "multiple" if kind in CHECKS else "matrix"
        yield ImportedQuestion(
            f"{question.name}_{code}", dict(text), answers, dict(question.help), question.condition,
            item_type, question.name, dict(question.text),
        )  # fmt: skip


def _answers(survey: _Structure, qid: str, kind: str, languages: Sequence[str]) -> dict[str, Texts]:
    if kind == "Y":
        words = {one: YES_NO.get(one, YES_NO["en"]) for one in languages}
        return {code: {one: pair[place] for one, pair in words.items()} for place, code in enumerate("YN")}
    if kind in SCALES:
        return {str(rate): {survey.language: str(rate)} for rate in range(1, SCALES[kind] + 1)}
    if kind in WITHOUT_TEXTS:
        return {code: {survey.language: text} for code, text in WITHOUT_TEXTS[kind].items()}
    return survey.answers(qid)


def _condition(survey: _Structure, row: Row, left_out: list[str]) -> str:
    """Return the condition of a question and its group, with `and` and `or` as words."""
    group = survey.groups.get(row.get("gid", ""), {})
    parts = [group.get("grelevance", ""), row.get("relevance", "")]
    parts = [_as_words(part) for part in parts if part not in {"", "1"}]
    if not parts and row["qid"] in survey.with_conditions:
        left_out.append(
            f"{row.get('title', '')}: its conditions, in the form of older LimeSurvey versions, are not "
            "translated: all respondents are asked."
        )
    return parts[0] if len(parts) == 1 else " and ".join(f"({part})" for part in parts)


def _as_words(condition: str) -> str:
    short = " ".join(condition[: MOST_CONDITION + 1].split())
    return short.replace("||", " or ").replace("&&", " and ")


def _atoms(survey: _Structure) -> Callable[[str], Atom | None]:
    """Return the reader of single conditions: `smokes.NAOK == "Y"`, or by field `123X4X5`."""

    def atom(part: str) -> Atom | None:
        match = _IS.fullmatch(part)
        if match is None:
            return None
        name, operator, *values = match.groups()
        by_field = _FIELD.fullmatch(name)
        if by_field is not None:
            title, more = survey.names.get(by_field[1]), by_field[2]
            if title is None:
                return None
            name = f"{title}_{more}" if more else title
        value = next(value for value in values if value is not None)
        return name, operator.lower() in {"==", "eq"}, (value,)

    return atom


def _unique_names(questions: Sequence[ImportedQuestion]) -> None:
    """Add numbers to the names that rows of different arrays share."""
    names: set[str] = set()
    for question in questions:
        base, number = question.name, 2
        while question.name in names:
            question.name, number = f"{base}_{number}", number + 1
        names.add(question.name)


def _language(code: str) -> str:
    """Return a language as surveys name it: `de-informal` is German."""
    return code.strip().lower().partition("-")[0]


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0


def plain_text(html: str) -> str:
    """Return the text of a piece of HTML, without markup, styles and scripts.

    >>> plain_text("<p>Do you <b>smoke</b>?<br/>Ever?</p><script>alert(1)</script>")
    'Do you smoke? Ever?'
    """
    if "<" not in html and "&" not in html:
        return " ".join(html.split())
    if len(html) > MOST_MARKUP:
        raise InputError(f"a text with markup has more than {MOST_MARKUP:,} characters.")
    parts: list[str] = []
    place = 0
    while (start := html.find("<", place)) >= 0:
        parts.append(html[place:start])
        place = _skip_tag(html, start, parts)
    parts.append(html[place:])
    return " ".join(unescape("".join(parts)).split())


def _skip_tag(html: str, start: int, parts: list[str]) -> int:
    """Return the index after a tag, comment, script or style; any other "<" is text.

    The standard library's parser takes quadratic time on hostile markup, or fails on it.
    """
    if html.startswith("<!--", start):
        end = html.find("-->", start)
        return len(html) if end < 0 else end + 3
    tag = _TAG.match(html, start)
    if tag is None:
        parts.append("<")
        return start + 1
    name = tag[1].lower()
    end = html.find(">", start)
    if end < 0:
        return len(html)
    if name in HIDDEN and not tag[0].startswith("</"):
        close = html.lower().find(f"</{name}", end)
        return len(html) if close < 0 else close
    if name in BREAKS:
        parts.append(" ")
    return end + 1
