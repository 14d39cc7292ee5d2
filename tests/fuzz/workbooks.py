"""XLSForms as inputs: the bytes of a workbook, its parts packed after they were changed, its cells.

Almost every change of a workbook's bytes is found by the checksums of its archive, and most of a part's
make it no XML. So parts are changed before they are packed, as bytes or in their attributes and texts alone;
and cells where openpyxl has read them.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import openpyxl

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError
from masquerade.core.util.json_text import parse_json
from masquerade.survey.forms import xlsform
from masquerade.survey.forms.questionnaire import Questionnaire

CELLS: dict[str, list[tuple[Any, ...]]] = {
    "survey": [("type", "name", "label::English (en)", "relevant"), ("select_one l", "a", "A?", ""),
               ("select_one l", "b", "B?", "${a} = 'y' or selected(${a}, 'n')"), ("text", "c", "C?", "")],
    "choices": [("list_name", "name", "label::English (en)"), ("l", "y", "Yes"), ("l", "n", "No")],
}  # fmt: skip
MORE_CELLS: dict[str, list[tuple[Any, ...]]] = {
    "survey": [("type", "name", "label", "label : German (de)", "hint", "relevant"), ("start", "s"),
               ("begin_group", "g", "G", None, None, "not(${a} = 1) and (${a} != '2')"),
               ("select_one  two", "a", "A?", "A??", "H", None), ("end group",),
               ("begin repeat", "r", None, None, None, 'selected(${a}, "1")'),
               ("select_one two", "b", "B?"), ("end repeat", "r"), ("select_multiple two", "m", "M?")],
    "choices": [("list name", "value", "label"), ("two", 1, True), ("two", 2.0, 2.5), (None, None, None)],
    "settings": [("form_title::English (en)", "default_language"), ("T", "English (en)")],
}  # fmt: skip
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
MAIN = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
LINKS = f'xmlns="{PACKAGE}/relationships"'
KIND = "application/vnd.openxmlformats-officedocument.spreadsheetml"
VALUES = re.compile(r'(?<!xmlns)(?<==")[^"]*(?=")|(?<=>)[^<>]+(?=<)')


def asked(found: Questionnaire) -> None:
    """Make of a questionnaire what the command makes of it."""
    Policy.from_dict(found.policy_values())
    found.survey_values("https://s.example", None)


def records() -> bytes:
    """Return a workbook of records."""
    book = openpyxl.Workbook()
    for row in (("a", "b"), ("yes", 1), ("no", 2.5)):
        book.worksheets[0].append(row)
    packed = io.BytesIO()
    book.save(packed)
    return packed.getvalue()


def workbook() -> bytes:
    """Return a workbook as openpyxl writes it."""
    book = openpyxl.Workbook()
    for name, rows in CELLS.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    packed = io.BytesIO()
    book.save(packed)
    return packed.getvalue()


def cell_seeds() -> list[bytes]:
    """Return the cells of sheets as JSON."""
    return [json.dumps(cells).encode() for cells in (CELLS, MORE_CELLS)]


def read_cells(data: bytes) -> None:
    """Read the cells that openpyxl would hand over: lists of lists, by sheet."""
    given = parse_json(data)
    sheets = given if isinstance(given, dict) else {"survey": given}
    rows = {
        name: xlsform.rows_of(name, [line if isinstance(line, list) else [line] for line in lines])
        for name, lines in sheets.items()
        if isinstance(lines, list)
    }
    asked(xlsform.questionnaire_of(rows, "t"))


def packed_seeds() -> list[bytes]:
    """Return workbooks as `pack` takes them, both ways."""
    plain = ["\0".join(f"{name}\n{text}" for name, text in book.items()) for book in BOOKS]
    values = [
        json.dumps([i, {name: VALUES.findall(text) for name, text in book.items()}])
        for i, book in enumerate(BOOKS)
    ]
    return [text.encode() for text in (*plain, *values)]


def pack(path: Path, data: bytes) -> None:
    """Write a workbook, not compressed: of parts with a zero byte between, or of ours with other values.

    The name of a part is its first line. Values are JSON: the number of the workbook, and the attributes and
    texts of its parts in their order.
    """
    try:
        given = parse_json(data)
    except InputError:
        split = [part.partition(b"\n") for part in data.split(b"\0")]
        found = [(name.decode("latin-1"), content) for name, _, content in split]
    else:
        number, values = (*given, 0, 0)[:2] if isinstance(given, list) else (0, given)
        book = BOOKS[1 if number == 1 else 0]
        known = values if isinstance(values, dict) else {}
        found = [(name, _filled(text, known.get(name))) for name, text in book.items()]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, content in found:
            archive.writestr(zipfile.ZipInfo(name), content)


def _filled(text: str, values: object) -> bytes:
    """Return a part with these values, as far as there are any."""
    told = iter(values if isinstance(values, list) else [])
    filled = VALUES.sub(lambda own: escape(str(next(told, own[0])), {'"': "&quot;"}), text)
    return filled.encode("utf-8", "replace")


def parts(cells: dict[str, list[tuple[Any, ...]]], *, shared: bool) -> dict[str, str]:
    """Return the parts of the smallest workbook with these cells; texts in the cells, or shared."""
    texts: list[str] = []
    sheets = [_sheet(rows, texts if shared else None) for rows in cells.values()]
    kinds = [("workbook", "sheet.main"), *((f"worksheets/sheet{i}", "worksheet") for i in range(len(sheets)))]
    if shared:
        kinds.append(("sharedStrings", "sharedStrings"))
    listed = "".join(
        f'<Override PartName="/xl/{name}.xml" ContentType="{KIND}.{kind}+xml"/>' for name, kind in kinds
    )
    named = "".join(f'<sheet name="{name}" sheetId="{i}" r:id="r{i}"/>' for i, name in enumerate(cells))
    links = "".join(
        f'<Relationship Type="{OFFICE}/worksheet" Target="worksheets/sheet{i}.xml" Id="r{i}"/>'
        for i in range(len(sheets))
    )
    found = {
        "[Content_Types].xml": f'<Types xmlns="{PACKAGE}/content-types">{listed}</Types>',
        "xl/workbook.xml": f'<workbook xmlns:r="{OFFICE}" {MAIN}><sheets>{named}</sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f"<Relationships {LINKS}>{links}</Relationships>",
        **{f"xl/worksheets/sheet{i}.xml": text for i, text in enumerate(sheets)},
    }
    if shared:
        told = "".join(f"<si><t>{text}</t></si>" for text in texts)
        found["xl/sharedStrings.xml"] = f"<sst {MAIN}>{told}</sst>"
    return found


def _sheet(rows: list[tuple[Any, ...]], shared: list[str] | None) -> str:
    lines = []
    for number, row in enumerate(rows, start=1):
        cells = "".join(
            _cell(f"{letter}{number}", value, shared)
            for letter, value in zip("ABCDEF", row, strict=False)
            if value is not None
        )
        lines.append(f'<row r="{number}">{cells}</row>')
    return f"<worksheet {MAIN}><sheetData>{''.join(lines)}</sheetData></worksheet>"


def _cell(place: str, value: object, shared: list[str] | None) -> str:
    if isinstance(value, bool):
        return f'<c r="{place}" t="b"><v>{int(value)}</v></c>'
    if not isinstance(value, str):
        return f'<c r="{place}"><v>{value}</v></c>'
    if shared is None:
        return f'<c r="{place}" t="inlineStr"><is><t>{value}</t></is></c>'
    if value not in shared:
        shared.append(value)
    return f'<c r="{place}" t="s"><v>{shared.index(value)}</v></c>'


BOOKS = (parts(CELLS, shared=False), parts(MORE_CELLS, shared=True))
