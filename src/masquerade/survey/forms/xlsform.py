"""XLSForm, the spreadsheets of ODK, KoBo and Enketo: sheets `survey`, `choices` and `settings`.

Read with openpyxl, which is an extra already: of pyxform, which makes forms of such sheets, only the reading
would be used. A question is `select_one`; groups pass their conditions on to what is in them.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Final

from masquerade.core.errors import InputError
from masquerade.survey.forms.questionnaire import (
    Atom,
    ImportedQuestion,
    Questionnaire,
    Texts,
    finished,
    spoken,
)

MOST_BYTES: Final = 50 << 20  # of a workbook, unpacked
MOST_ROWS: Final = 20_000
NAMES: Final = {"english": "en", "german": "de", "deutsch": "de", "french": "fr", "français": "fr",
                "francais": "fr", "spanish": "es", "español": "es", "espanol": "es"}  # fmt: skip
SILENT: Final = frozenset(
    {"start", "end", "today", "deviceid", "phonenumber", "username", "email", "audit", "simserial",
     "subscriberid", "start-geopoint"}
)  # fmt: skip
_IS: Final = re.compile(r"\$\{\s*([^}]+?)\s*\}\s*(!?=)\s*(?:'([^']*)'|\"([^\"]*)\"|(\d+))")
_SELECTED: Final = re.compile(r"selected\(\s*\$\{\s*([^}]+?)\s*\}\s*,\s*(?:'([^']*)'|\"([^\"]*)\")\s*\)")
_NOT: Final = re.compile(r"not\(\s*(.*?)\s*\)\s*")


Cells = Iterable[Iterable[object]]  # of a sheet, line by line
Rows = list[dict[str, str]]


def read(path: Path) -> Questionnaire:
    """Return the questionnaire in a workbook."""
    return questionnaire_of(_sheets(path), path.stem)


def questionnaire_of(sheets: Mapping[str, Rows], title: str) -> Questionnaire:
    """Return the questionnaire in the rows of its sheets; `title` is that of a form that has none."""
    if "survey" not in sheets:
        raise InputError("has no sheet 'survey': this is not an XLSForm.")
    settings = next(iter(sheets.get("settings", [])), {})
    default = _language(settings.get("default_language", "")) or "en"
    problems: list[str] = []
    lists = _lists(sheets.get("choices", []), default, problems)
    left_out: list[str] = []
    questions: list[ImportedQuestion] = []
    conditions: list[str] = []  # of the groups that are open
    for row in sheets["survey"]:
        kind, name, line = row.get("type", "").strip(), row.get("name", "").strip(), row["line"]
        lowered = re.sub(r"[\s_]+", " ", kind.lower())
        where = f"survey, line {line}"
        if lowered.startswith(("begin group", "begin repeat")):
            if lowered.startswith("begin repeat"):
                left_out.append(f"{where}, {name!r}: what is repeated is asked once.")
            conditions.append(row.get("relevant", "").strip())
        elif lowered.startswith(("end group", "end repeat")):
            conditions = conditions[:-1]
        elif lowered.startswith("select one ") and not lowered.endswith(" or other"):
            known = lists.get(kind.split()[-1])
            if known is None:
                problems.append(f"{where}: the list {kind.split()[-1]!r} is not on the sheet 'choices'.")
                continue
            if not name:
                problems.append(f"{where}: the question has no name.")
                continue
            own = [one for one in (*conditions, row.get("relevant", "").strip()) if one]
            condition = own[0] if len(own) == 1 else " and ".join(f"({one})" for one in own)
            texts, help_texts = _texts(row, "label", default), _texts(row, "hint", default)
            answers = {label: dict(told) for label, told in known.items()}
            questions.append(ImportedQuestion(name, texts, answers, help_texts, condition))
        elif kind and lowered not in SILENT:
            why = "ask each of its choices as a question of its own" if lowered.startswith("select") else (
                "pages ask questions with answers to choose from")  # fmt: skip
            left_out.append(f"{where}, {name!r}: type {kind[:40]!r} cannot be asked; {why}.")
    titles = _texts(settings, "form_title", default) or {default: title}
    told = [language for question in questions for language in question.text]
    languages = spoken(told or [default], left_out)
    return finished(Questionnaire(titles, languages, questions, left_out), problems, _atom)


def _sheets(path: Path) -> dict[str, Rows]:
    """Return the rows of the three sheets, by the names in their first line, as texts with their `line`."""
    try:
        library = import_module("openpyxl")
    except ImportError:
        raise InputError("Excel files need openpyxl: pip install 'masquerade[files]'") from None
    try:
        with zipfile.ZipFile(path) as packed:
            size = sum(part.file_size for part in packed.infolist())
        book = library.load_workbook(path, read_only=True, data_only=True) if size <= MOST_BYTES else None
    except Exception as error:  # noqa: BLE001  (a library's own, some of which are errors of input too)
        if isinstance(error, OSError) and error.strerror:
            raise InputError(f"cannot be read ({error.strerror.lower()}).") from None
        raise InputError("is not a readable Excel workbook.") from None
    if book is None:
        raise InputError(f"unpacked, the workbook has more than {MOST_BYTES >> 20} MiB.")
    try:
        wanted = ("survey", "choices", "settings")
        return {
            sheet.title.strip().lower(): rows_of(sheet.title, sheet.iter_rows(values_only=True))
            for sheet in book.worksheets
            if sheet.title.strip().lower() in wanted
        }
    except InputError:
        raise
    except Exception:  # noqa: BLE001
        raise InputError("is not a readable Excel workbook.") from None
    finally:
        book.close()


def rows_of(title: str, cells: Cells) -> Rows:
    """Return the lines of a sheet by the names in its first, as texts, each with its number as `line`."""
    names: list[str] = []
    rows: Rows = []
    for line, row in enumerate(cells, start=1):
        if line > MOST_ROWS:
            raise InputError(f"the sheet {title!r} has more than {MOST_ROWS:,} lines.")
        told = ["" if cell is None else _cell(cell) for cell in row]
        if not any(told):
            continue
        if not names:
            names = [re.sub(r"\s*::?\s*", "::", cell.strip()) for cell in told]
            continue
        known = {name: cell for name, cell in zip(names, told, strict=False) if name}
        rows.append(known | {"line": str(line)})
    return rows


def _cell(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _lists(rows: Rows, default: str, problems: list[str]) -> dict[str, dict[str, Texts]]:
    found: dict[str, dict[str, Texts]] = {}
    for row in rows:
        name = (row.get("list_name") or row.get("list name") or "").strip()
        label = (row.get("name") or row.get("value") or "").strip()
        if not name and not label:
            continue
        if not name or not label:
            problems.append(f"choices, line {row['line']}: needs a list_name and a name.")
            continue
        own = found.setdefault(name, {})
        if label in own:
            problems.append(f"choices, line {row['line']}: {label!r} is in the list {name!r} twice.")
        own[label] = _texts(row, "label", default) or {default: label}
    return found


def _texts(row: Mapping[str, str], what: str, default: str) -> Texts:
    """Return a text by language: `label`, `label::English (en)`."""
    found: Texts = {}
    for name, text in row.items():
        head, _, language = name.partition("::")
        if head.strip().lower() == what and text.strip():
            found.setdefault(_language(language) if language else default, text.strip())
    return found


def _language(told: str) -> str:
    code = re.search(r"\(([A-Za-z-]{2,11})\)\s*$", told)
    plain = told.strip().lower()
    return code[1].lower() if code else NAMES.get(plain, plain)


def _atom(part: str) -> Atom | None:
    negated = _NOT.fullmatch(part)
    if negated is not None:
        inner = _atom(negated[1])
        return None if inner is None else (inner[0], not inner[1], inner[2])
    equal = _IS.fullmatch(part)
    if equal is not None:
        name, sign, *values = equal.groups()
        return name, sign == "=", (next(value for value in values if value is not None),)
    chosen = _SELECTED.fullmatch(part)
    if chosen is not None:
        return chosen[1], True, (chosen[2] if chosen[2] is not None else chosen[3],)
    return None
