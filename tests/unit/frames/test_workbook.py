"""Excel workbooks: read as openpyxl reads them, in parts, and within bounds whatever they unpack to."""

from __future__ import annotations

import datetime as dt
import io
import resource
import time
import tracemalloc
import zipfile

import openpyxl
import pytest
from openpyxl.cell.rich_text import CellRichText, TextBlock
from openpyxl.cell.text import InlineFont

from masquerade.core.errors import FileError
from masquerade.frames import sheets, workbook
from masquerade.frames.cell_text import cell_text
from masquerade.frames.file_reader import open_batches

MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
NAMES = b'<row><c t="inlineStr"><is><t>a</t></is></c><c t="inlineStr"><is><t>b</t></is></c></row>'
SHEET, STRINGS = "xl/worksheets/sheet1.xml", "xl/sharedStrings.xml"
LISTED = (
    b'<Override PartName="/xl/sharedStrings.xml" ContentType="application/vnd.openxmlformats-officedocument.'
    b'spreadsheetml.sharedStrings+xml"/></Types>'
)


def sheet_of(*rows: bytes) -> bytes:
    """Return a sheet of two columns and these rows."""
    return b'<worksheet xmlns="%s"><sheetData>%s%s</sheetData></worksheet>' % (
        MAIN.encode(),
        NAMES,
        b"".join(rows),
    )


def strings_of(*texts: bytes) -> bytes:
    """Return the texts that cells refer to."""
    return b'<sst xmlns="%s">%s</sst>' % (MAIN.encode(), b"".join(b"<si><t>%s</t></si>" % t for t in texts))


def packed(path, parts: dict[str, bytes], *, method: int = zipfile.ZIP_DEFLATED):
    """Write a workbook of which some parts are these."""
    buffer = io.BytesIO()
    openpyxl.Workbook().save(buffer)
    with zipfile.ZipFile(buffer) as plain:
        content = {name: plain.read(name) for name in plain.namelist()}
    if STRINGS in parts:
        content["[Content_Types].xml"] = content["[Content_Types].xml"].replace(b"</Types>", LISTED)
    with zipfile.ZipFile(path, "w", method) as written:
        for name, data in (content | parts).items():
            written.writestr(name, data)
    return path


def rows_of(path) -> list[dict[str, str | None]]:
    """Return all rows of a file as texts."""
    with open_batches(path) as batches:
        return [row for batch in batches for row in batch.to_pylist()]


def test_values_are_those_that_openpyxl_reads(tmp_path):
    book = openpyxl.Workbook()
    sheet = book.worksheets[0]
    day, hour = dt.datetime(2024, 5, 6), dt.datetime(2024, 5, 6, 7, 8, 9)  # noqa: DTZ001  (Excel has no zones)
    bold = CellRichText("a ", TextBlock(InlineFont(b=True), "bold"), " word")
    rows = [
        [None, None],
        ["name", "value", "more"],
        ["text & <tags>", 1, 2.5],
        ["", True, False],
        [None, None, None],
        [day, hour, dt.time(12, 30)],
        [dt.timedelta(hours=30), 1e300, -7],
        ["=1+1", "#N/A", bold],
        [None, None, None, "beyond the names"],
        ["  spaces ", "ünïcode", 12345678901234],
    ]
    for row in rows:
        sheet.append(row)
    book.save(tmp_path / "all.xlsx")
    shared = {
        SHEET: sheet_of(b'<row><c r="A2" t="s"><v>1</v></c><c r="B2" t="s"><v>0</v></c></row>'),
        STRINGS: strings_of(b"one", b"two"),
    }
    packed(tmp_path / "shared.xlsx", shared)
    for name, width in (("all.xlsx", 3), ("shared.xlsx", 2)):
        library = openpyxl.load_workbook(tmp_path / name, read_only=True, data_only=True)
        expected = [
            row[:width]
            for row in library.worksheets[0].iter_rows(values_only=True)
            if any(cell is not None for cell in row)
        ]
        with open_batches(tmp_path / name) as batches:
            assert batches.file_names == expected[0]
            values = [row for batch in batches for row in zip(*batch.to_pydict().values(), strict=True)]
        assert values == [tuple(map(cell_text, row)) for row in expected[1:]]


BOMBS = {
    "cells": sheet_of(b"<row><c><v>1</v></c><c><v>1</v></c></row>" * (1 << 20)),
    "one row": sheet_of(b"<row>", b"<c/>" * (1 << 23), b"</row>"),
    "unknown tags": sheet_of(b"<x/>" * (1 << 23)),
    "one tag": sheet_of(b'<row><c r="', b"A" * (1 << 25), b'"/></row>'),
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_a_workbook_that_unpacks_to_far_more_than_it_is_refused_before_it_is_unpacked(tmp_path, bomb):
    path = packed(tmp_path / "bomb.xlsx", {SHEET: bomb})
    assert path.stat().st_size < (1 << 20) < len(bomb) // 30  # the precondition: small, and large unpacked
    begun, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(FileError, match=r"unpacks to \d+ MB from 0\.\d MB.*Save the sheet as \.csv"):
        rows_of(path)
    assert time.process_time() - begun < 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10


REFUSED = {
    "too many texts": ({STRINGS: strings_of(*[b"x"] * 101)}, "more than 100 different texts"),
    "a long text": (
        {SHEET: sheet_of(b'<row><c t="str"><v>' + b"x" * 2001 + b"</v></c></row>")},
        "more than 2,000",
    ),
    "a long row": (
        {
            STRINGS: strings_of(b"x" * 1500),
            SHEET: sheet_of(b"<row>" + b'<c t="s"><v>0</v></c>' * 2 + b"</row>"),
        },
        "a row of more than 2,500 characters",
    ),
    "texts that are referred to again and again": (
        {STRINGS: strings_of(b"x" * 1000), SHEET: sheet_of(b'<row><c t="s"><v>0</v></c></row>' * 11)},
        "more than 10,000 characters in its cells",
    ),
    "a column beyond": (
        {SHEET: sheet_of(b'<row><c r="XFE2"><v>1</v></c></row>')},
        "more than 16,384 columns",
    ),
    "a long tag": ({SHEET: sheet_of(b'<row><c x="' + b"A" * 400_000 + b'"/></row>')}, "a tag of megabytes"),
    "large styles": ({"xl/styles.xml": b"<styleSheet>" + b" " * (9 << 20)}, "of styles or descriptions"),
    "entities": ({SHEET: b'<!DOCTYPE a [<!ENTITY b "c">]>' + sheet_of()}, "not a readable Excel file"),
    "depth": ({SHEET: sheet_of(b"<x>" * 100 + b"</x>" * 100)}, "not a readable Excel file"),
    "no such text": ({SHEET: sheet_of(b'<row><c t="s"><v>7</v></c></row>')}, "not a readable Excel file"),
    "an endless number": (
        {SHEET: sheet_of(b"<row><c><v>" + b"9" * 1900 + b"e</v></c></row>")},
        "not a readable Excel file",
    ),
}


@pytest.mark.parametrize(("parts", "said"), REFUSED.values(), ids=REFUSED)
def test_a_workbook_beyond_a_bound_is_refused_and_says_which(tmp_path, monkeypatch, parts, said):
    for name, value in {
        "MOST_STRINGS": 100, "MOST_IN_CELL": 2000, "MOST_IN_ROW": 2500, "MOST_TEXT": 10_000,
        "LONGEST_TOKEN": 1 << 18,
    }.items():  # fmt: skip
        monkeypatch.setattr(workbook, name, value)
    path = packed(tmp_path / "bad.xlsx", {SHEET: sheet_of(), **parts}, method=zipfile.ZIP_STORED)
    with pytest.raises(FileError, match=said):
        rows_of(path)


def test_other_compressions_are_not_unpacked(tmp_path):
    path = packed(tmp_path / "bad.xlsx", {SHEET: sheet_of()}, method=zipfile.ZIP_BZIP2)
    with pytest.raises(FileError, match="not a readable Excel file"):
        rows_of(path)


def test_a_row_with_a_huge_number_is_one_row(tmp_path):
    """openpyxl would make up every row before it, without an end."""
    row = b'<row r="99999999999"><c r="A99999999999"><v>5</v></c></row>'
    assert rows_of(packed(tmp_path / "far.xlsx", {SHEET: sheet_of(row)})) == [{"a": "5", "b": None}]


def test_memory_does_not_grow_with_the_cells_or_with_texts_that_they_share(tmp_path, monkeypatch):
    monkeypatch.setattr(sheets, "VALUES_AT_ONCE", 1 << 12)
    monkeypatch.setattr(sheets, "TEXT_AT_ONCE", 1 << 20)
    cell = b'<row><c r="A%d" t="s"><v>0</v></c><c r="B%d"><v>%d</v></c></row>'
    peaks = []
    for rows in (2000, 12_000):
        path = packed(
            tmp_path / f"{rows}.xlsx",
            {
                SHEET: sheet_of(*(cell % (row, row, row) for row in range(2, rows + 2))),
                STRINGS: strings_of(b"x" * 30_000),
            },
        )
        tracemalloc.start()
        with open_batches(path) as batches:
            assert sum(map(len, batches)) == rows
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 2 * peaks[0]
    assert peaks[1] < 50 << 20


@pytest.mark.slow
def test_a_sheet_of_a_million_cells_opens(tmp_path):
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("data")
    sheet.append([f"v{place}" for place in range(10)])
    for row in range(100_000):
        sheet.append([row, "yes", "no", 1, 2.5, True, "maybe", f"text {row}", 0, 0])
    book.save(tmp_path / "large.xlsx")
    with open_batches(tmp_path / "large.xlsx") as batches:
        assert sum(map(len, batches)) == 100_000


def cell(reference: str, text: str, kind: str = "str") -> str:
    return f'<c r="{reference}" t="{kind}"><v>{text}</v></c>'


def row(number: int, *cells: str) -> bytes:
    return f'<row r="{number}">{"".join(cells)}</row>'.encode()


DISPUTED = {
    "a cell twice": row(2, cell("A2", "x"), cell("A2", "y")),
    "cells in another order": row(2, cell("B2", "1"), cell("A2", "x")),
    "a cell of another row": row(2, cell("A3", "x")),
    "a row twice": row(2, cell("A2", "x")) + row(2, cell("B2", "1")),
    "rows in another order": row(5, cell("A5", "x")) + row(2, cell("A2", "y")),
    "a row in a row": b'<row r="2">' + row(3, cell("A3", "x")) + b"</row>",
    "a cell in a cell": f'<row r="2"><c r="A2">{cell("B2", "1")}</c></row>'.encode(),
    "a value twice": b'<row r="2"><c r="A2"><v>1</v><v>2</v></c></row>',
    "two tables": row(2, cell("A2", "x")) + b"</sheetData><sheetData>" + row(3, cell("A3", "y")),
    "a number with an underscore": row(2, cell("A2", "1_0", "n")),
    "a number in digits of another script": row(2, cell("A2", "٣", "n")),
    "a number beyond all bounds": row(2, cell("A2", "1e999", "n")),
    "a truth value of two": row(2, cell("A2", "2", "b")),
    "a text from the end": row(2, cell("A2", "-1", "s")),
}


@pytest.mark.parametrize("name", DISPUTED)
def test_a_sheet_that_readers_take_in_different_ways_is_refused(name, tmp_path):
    parts = {SHEET: sheet_of(DISPUTED[name]), STRINGS: strings_of(b"yes", b"no")}
    with pytest.raises(FileError, match="not a readable Excel file"):
        rows_of(packed(tmp_path / "a.xlsx", parts))


def test_cells_of_another_vocabulary_are_no_cells(tmp_path):
    foreign = b'<row r="2" xmlns:q="urn:q"><q:c r="A2" t="str"><q:v>x</q:v></q:c></row>'
    path = packed(tmp_path / "a.xlsx", {SHEET: sheet_of(foreign, row(3, cell("A3", "y")))})
    assert rows_of(path) == [{"a": "y", "b": None}]
