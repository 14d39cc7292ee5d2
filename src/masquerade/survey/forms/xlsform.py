"""Reader of XLSForm, the spreadsheets of ODK, KoBo and Enketo: sheets `survey`, `choices` and `settings`.

It uses openpyxl, which is an optional dependency anyway, instead of pyxform, which mainly converts forms.
Questions to choose one answer or several, numbers within limits and ranges are imported; a group with the
appearance `table-list` becomes a matrix. The condition of a group applies to all questions in it.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Final

from masquerade.core.errors import InputError
from masquerade.survey.forms.questionnaire import (
    WORD_FOR_WORD,
    Atom,
    ImportedQuestion,
    Questionnaire,
    Texts,
    add_number,
    finish_questionnaire,
    select_languages,
    tick_items,
)

MOST_BYTES: Final = 50 << 20  # most bytes of an unpacked workbook
MOST_ROWS: Final = 20_000
MOST_CELLS: Final = 5_000_000  # most cells of a sheet; one cell at its right edge makes a row of 16,384 cells
NAMES: Final = {"english": "en", "german": "de", "deutsch": "de", "french": "fr", "français": "fr",
                "francais": "fr", "spanish": "es", "español": "es", "espanol": "es"}  # fmt: skip
SILENT: Final = frozenset(
    {"start", "end", "today", "deviceid", "phonenumber", "username", "email", "audit", "simserial",
     "subscriberid", "start-geopoint"}
)  # fmt: skip
_IS: Final = re.compile(r"\$\{([^}]+)\}\s*(!?=)\s*(?:'([^']*)'|\"([^\"]*)\"|(\d+))")
_SELECTED: Final = re.compile(r"selected\(\s*\$\{([^}]+)\}\s*,\s*(?:'([^']*)'|\"([^\"]*)\")\s*\)")
_NOT: Final = re.compile(r"not\((.*)\)")
_LIMIT: Final = re.compile(r"\.\s*(>=|<=|>|<)\s*(-?\d{1,12}(?:\.\d{1,6})?)")
_PARAMETER: Final = re.compile(r"(start|end|step)\s*=\s*(-?\d{1,12}(?:\.\d{1,6})?)")
STEPS: Final = {"integer": 1.0, "int": 1.0, "decimal": 0.1, "range": 1.0}
MOST_VALUES: Final = 10**6  # most values of a number
NO_LIMITS: Final = "it needs its smallest and largest number, such as '. >= 16 and . <= 99' as constraint"
WHY: Final = {
    "text": WORD_FOR_WORD,
    "date": "add it with 'type: date' and its years",
    "note": "write it into 'help' or 'consent'",
}


Cells = Iterable[Sequence[object]]  # cells of a sheet, line by line
Rows = list[dict[str, str]]


def read(path: Path) -> Questionnaire:
    """Read the questionnaire in a workbook."""
    return questionnaire_of(_sheets(path), path.stem)


def questionnaire_of(sheets: Mapping[str, Rows], title: str) -> Questionnaire:
    """Convert the rows of the sheets to a questionnaire; `title` is used if the form has no title."""
    if "survey" not in sheets:
        raise InputError("has no sheet 'survey': this is not an XLSForm.")
    settings = next(iter(sheets.get("settings", [])), {})
    default = _language(settings.get("default_language", "")) or "en"
    problems: list[str] = []
    reader = _Form(default, _lists(sheets.get("choices", []), default, problems), problems)
    for row in sheets["survey"]:
        reader.read_row(row)
    titles = _texts(settings, "form_title", default) or {default: title}
    in_texts = [language for question in reader.questions for language in question.text]
    languages = select_languages(in_texts or [default], reader.left_out)
    form = Questionnaire(titles, languages, reader.questions, reader.left_out)
    return finish_questionnaire(form, problems, lambda part: _of_item(_atom(part), reader.several))


@dataclass
class _Form:
    """Reader of a form, row by row: the questions so far, and the groups that are open."""

    default: str
    lists: Mapping[str, dict[str, Texts]]
    problems: list[str]
    left_out: list[str] = field(default_factory=list)
    questions: list[ImportedQuestion] = field(default_factory=list)
    several: set[str] = field(default_factory=set)  # questions with several answers
    conditions: list[str] = field(default_factory=list)  # of the open groups
    tables: list[_Table | None] = field(default_factory=list)  # the open groups that are tables of choices

    def read_row(self, row: Mapping[str, str]) -> None:
        """Read a row of the sheet `survey`."""
        kind, name = row.get("type", "").strip(), row.get("name", "").strip()
        lowered = re.sub(r"[\s_]+", " ", kind.lower())
        where = f"survey, line {row['line']}"
        if lowered.startswith(("begin group", "begin repeat")):
            if lowered.startswith("begin repeat"):
                self.left_out.append(f"{where}, {name!r}: repeated questions are asked once.")
            self.conditions.append(row.get("relevant", "").strip())
            is_table = "table-list" in row.get("appearance", "").split()
            label = _texts(row, "label", self.default)
            self.tables.append(_Table(name, label) if is_table and name else None)
        elif lowered.startswith(("end group", "end repeat")):
            self.conditions, self.tables = self.conditions[:-1], self.tables[:-1]
        elif lowered.startswith(("select one ", "select multiple ")) and not lowered.endswith(" or other"):
            self._read_choice(row, name, kind.split()[-1], where, is_one=lowered.startswith("select one "))
        elif lowered in STEPS and name and (limits := _limits(row, lowered)) is not None:
            question = self._question(row, name)
            if question.text:
                self.left_out.append(f"{where}, {add_number(question, *limits, slider=lowered == 'range')}")
            self.questions.append(question)
        elif kind and lowered not in SILENT:
            why = NO_LIMITS if lowered in STEPS else WHY.get(lowered, "pages do not ask this type")
            self.left_out.append(f"{where}, {name!r}: type {kind[:40]!r} cannot be asked; {why}.")

    def _read_choice(
        self, row: Mapping[str, str], name: str, listed: str, where: str, *, is_one: bool
    ) -> None:
        choices = self.lists.get(listed)
        if choices is None:
            self.problems.append(f"{where}: the list {listed!r} is not on the sheet 'choices'.")
            return
        if not name:
            self.problems.append(f"{where}: the question has no name.")
            return
        question = self._question(row, name)
        if not is_one:
            self.several.add(name)
            text = question.text or {self.default: name}
            self.questions += tick_items(name, text, choices, question.help, question.condition)
            return
        question.answers = {label: dict(by_language) for label, by_language in choices.items()}
        question.type = "scale" if "likert" in row.get("appearance", "").split() else ""
        table = self.tables[-1] if self.tables else None
        if table is not None and not row.get("relevant", "").strip():
            table.add(question, listed)
        self.questions.append(question)

    def _question(self, row: Mapping[str, str], name: str) -> ImportedQuestion:
        """Return a question without answers, with its condition and those of its groups."""
        both = [one for one in (*self.conditions, row.get("relevant", "").strip()) if one]
        condition = both[0] if len(both) == 1 else " and ".join(f"({one})" for one in both)
        texts, help_texts = _texts(row, "label", self.default), _texts(row, "hint", self.default)
        return ImportedQuestion(name, texts, {}, help_texts, condition)


@dataclass
class _Table:
    """A group of questions that is shown as a table: its name, its label, and the list of its choices."""

    name: str
    label: Texts
    choices: str = ""

    def add(self, question: ImportedQuestion, choices: str) -> None:
        """Make a question a line of this table if it has the same choices as the first line."""
        self.choices = self.choices or choices
        if choices == self.choices and self.label:
            question.type, question.item_of, question.intro = "matrix", self.name, dict(self.label)


def _limits(row: Mapping[str, str], kind: str) -> tuple[float, float, float] | None:
    """Return the smallest number, the largest and the step of a number; None if the form does not say."""
    step = STEPS[kind]
    if kind == "range":
        parameters = {
            name: float(value) for name, value in _PARAMETER.findall(row.get("parameters", "")[:200])
        }
        low, high, step = (
            parameters.get("start", 0.0),
            parameters.get("end", 10.0),
            parameters.get("step", step),
        )
    else:
        parts = re.split(r"\s+and\s+", row.get("constraint", "").strip()[:200])
        matches = [_LIMIT.fullmatch(part.strip()) for part in parts]
        bounds = {match[1][0]: (match[1], float(match[2])) for match in matches if match is not None}
        if None in matches or len(matches) != 2 or len(bounds) != 2:
            return None
        (above, low), (below, high) = bounds[">"], bounds["<"]
        low, high = low + step * (above == ">"), high - step * (below == "<")
    return (low, high, step) if step > 0 and 0 < (high - low) / step < MOST_VALUES else None


def _of_item(atom: Atom | None, several: set[str]) -> Atom | None:
    """Return a condition on a choice of a question with several answers, as a condition on its variable."""
    if atom is None or atom[0] not in several:
        return atom
    name, holds, [choice] = atom
    return f"{name}_{choice}", holds, ("yes",)


def _sheets(path: Path) -> dict[str, Rows]:
    """Read the rows of the three sheets (see `rows_of`)."""
    try:
        library = import_module("openpyxl")
    except ImportError:
        raise InputError("Excel files need openpyxl: pip install 'masquerade[files]'") from None
    try:
        with zipfile.ZipFile(path) as packed:
            size = sum(part.file_size for part in packed.infolist())
        book = library.load_workbook(path, read_only=True, data_only=True) if size <= MOST_BYTES else None
    except Exception as error:  # noqa: BLE001  (the library raises many types for invalid files)
        if isinstance(error, OSError) and error.strerror:
            raise InputError(f"cannot be read ({error.strerror.lower()}).") from None
        raise InputError("is not a readable Excel workbook.") from None
    if book is None:
        raise InputError(f"unpacked, the workbook has more than {MOST_BYTES >> 20} MiB.")
    try:
        names = ("survey", "choices", "settings")
        return {
            sheet.title.strip().lower(): rows_of(sheet.title, sheet.iter_rows(values_only=True))
            for sheet in book.worksheets
            if sheet.title.strip().lower() in names
        }
    except InputError:
        raise
    except Exception:  # noqa: BLE001
        raise InputError("is not a readable Excel workbook.") from None
    finally:
        book.close()


def rows_of(title: str, cells: Cells) -> Rows:
    """Return the rows of a sheet as texts by column name; the column `line` has the number of the row.

    The first row that is not empty has the names.
    """
    names: list[str] = []
    rows: Rows = []
    cells_read = 0
    for line, row in enumerate(cells, start=1):
        if line > MOST_ROWS:
            raise InputError(f"the sheet {title!r} has more than {MOST_ROWS:,} lines.")
        cells_read += len(row)
        if cells_read > MOST_CELLS:
            raise InputError(f"the sheet {title!r} has more than {MOST_CELLS:,} cells.")
        texts = ["" if cell is None else _cell(cell) for cell in row]
        if not any(texts):
            continue
        if not names:
            names = [re.sub(r"\s*::?\s*", "::", cell.strip()) for cell in texts]
            continue
        named = {name: cell for name, cell in zip(names, texts, strict=False) if name}
        rows.append(named | {"line": str(line)})
    return rows


def _cell(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _lists(rows: Rows, default: str, problems: list[str]) -> dict[str, dict[str, Texts]]:
    lists: dict[str, dict[str, Texts]] = {}
    for row in rows:
        name = (row.get("list_name") or row.get("list name") or "").strip()
        label = (row.get("name") or row.get("value") or "").strip()
        if not name and not label:
            continue
        if not name or not label:
            problems.append(f"choices, line {row['line']}: needs a list_name and a name.")
            continue
        choices = lists.setdefault(name, {})
        if label in choices:
            problems.append(f"choices, line {row['line']}: {label!r} is in the list {name!r} twice.")
        choices[label] = _texts(row, "label", default) or {default: label}
    return lists


def _texts(row: Mapping[str, str], what: str, default: str) -> Texts:
    """Return a text by language: `label`, `label::English (en)`."""
    texts: Texts = {}
    for name, text in row.items():
        head, _, language = name.partition("::")
        if head.strip().lower() == what and text.strip():
            texts.setdefault(_language(language) if language else default, text.strip())
    return texts


def _language(name: str) -> str:
    code = re.search(r"\(([A-Za-z-]{2,11})\)\s*$", name)
    plain = name.strip().lower()
    return code[1].lower() if code else NAMES.get(plain, plain)


def _atom(part: str) -> Atom | None:
    negated = _NOT.fullmatch(part)
    if negated is not None:
        inner = _plain_atom(negated[1].strip())
        return None if inner is None else (inner[0], not inner[1], inner[2])
    return _plain_atom(part)


def _plain_atom(part: str) -> Atom | None:
    equal = _IS.fullmatch(part)
    if equal is not None:
        name, sign, *values = equal.groups()
        return name.strip(), sign == "=", (next(value for value in values if value is not None),)
    chosen = _SELECTED.fullmatch(part)
    if chosen is not None:
        return chosen[1].strip(), True, (chosen[2] if chosen[2] is not None else chosen[3],)
    return None
