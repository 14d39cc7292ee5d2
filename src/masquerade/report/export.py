"""Results as files for papers and spreadsheets: LaTeX, Markdown, HTML, CSV, Excel, JSON or text."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from masquerade.core.errors import InputError
from masquerade.core.util.display import html_of, latex_of, markdown_of

ENDINGS = (".txt", ".md", ".tex", ".html", ".htm", ".csv", ".tsv", ".xlsx", ".json")


def check_ending(path: str | Path) -> None:
    """Raise InputError, before any work, if the file ending is unknown."""
    ending = Path(path).suffix.lower()
    if ending not in ENDINGS:
        raise InputError(f"{path}: the file name of a result must end in {', '.join(ENDINGS)}.")
    if ending == ".xlsx" and find_spec("openpyxl") is None:
        raise InputError(f"{path}: Excel files need openpyxl: pip install 'masquerade[files]'")


def _workbook(result: Any) -> bytes:
    """Return an Excel file: the rows, and a second sheet of remarks if there are any."""
    import pandas as pd  # noqa: PLC0415  (slow to import)

    buffer = io.BytesIO()
    remarks = list(getattr(result, "remarks", ()))
    with pd.ExcelWriter(buffer, engine="openpyxl") as book:
        result.to_frame().to_excel(book, index=False)
        if remarks:
            pd.DataFrame({"remark": remarks}).to_excel(book, sheet_name="remarks", index=False)
    return buffer.getvalue()


def export_result(result: Any, path: str | Path) -> bytes:
    """Return a result as the bytes of a file with this name."""
    check_ending(path)
    ending = Path(path).suffix.lower()
    if ending == ".xlsx":
        return _workbook(result)
    writers: dict[str, Callable[[Any], str]] = {
        ".md": markdown_of,
        ".tex": latex_of,
        ".html": lambda result: html_of(result) + "\n",
        ".htm": lambda result: html_of(result) + "\n",
        ".csv": lambda result: result.to_frame().to_csv(index=False),
        ".tsv": lambda result: result.to_frame().to_csv(index=False, sep="\t"),
        ".json": lambda result: json.dumps(result.to_dict(), indent=2, ensure_ascii=False) + "\n",
    }
    write = writers.get(ending, lambda result: f"{result.summary()}\n")
    return write(result).encode()
