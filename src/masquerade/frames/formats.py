"""The supported file formats, and the messages of their errors."""

from __future__ import annotations

import os
from enum import Enum
from importlib.util import find_spec
from pathlib import Path

from masquerade.core.errors import FileError

STREAM = "-"  # standard input or output
DATABASES = (".duckdb", ".ddb")  # file name extensions of DuckDB databases


class Format(Enum):
    """A file format."""

    CSV = "CSV"
    PARQUET = "Parquet"
    ARROW = "Arrow"
    EXCEL = "Excel"
    SPSS = "SPSS"
    STATA = "Stata"
    SAS = "SAS"
    BASKETS = "basket"
    JSON_LINES = "JSON lines"

    @property
    def sheet(self) -> bool:
        """Return True for a spreadsheet or a file of a statistics program."""
        return self in {Format.EXCEL, Format.SPSS, Format.STATA, Format.SAS}

    @property
    def carries_metadata(self) -> bool:
        """Return True if the file itself stores metadata; other formats have a sidecar."""
        return self in {Format.PARQUET, Format.ARROW}


_BY_ENDING = {
    ".csv": Format.CSV,
    ".csv.gz": Format.CSV,
    ".csv.zst": Format.CSV,
    ".tsv": Format.CSV,
    ".tsv.gz": Format.CSV,
    ".tsv.zst": Format.CSV,
    ".txt": Format.CSV,
    ".parquet": Format.PARQUET,
    ".arrow": Format.ARROW,
    ".feather": Format.ARROW,
    ".xlsx": Format.EXCEL,
    ".sav": Format.SPSS,
    ".zsav": Format.SPSS,
    ".dta": Format.STATA,
    ".sas7bdat": Format.SAS,
    ".xpt": Format.SAS,
    ".jsonl": Format.JSON_LINES,
    ".ndjson": Format.JSON_LINES,
    ".baskets": Format.BASKETS,
    ".baskets.gz": Format.BASKETS,
    ".dat": Format.BASKETS,
    ".dat.gz": Format.BASKETS,
}


def format_of(path: str | Path) -> Format:
    """Return the format of a file by its extension; raise `FileError` if the extension is unknown.

    >>> format_of("people.parquet").value
    'Parquet'
    """
    name = str(path)
    if name == STREAM:
        return Format.CSV
    for ending, kind in _BY_ENDING.items():
        if name.lower().endswith(ending):
            return kind
    raise FileError(f"{name}: the file name extension is unknown. Known: {', '.join(_BY_ENDING)}.")


def offered_endings() -> str:
    """Return the file name extensions that this installation can write, as a list for help texts.

    >>> offered_endings().startswith(".csv, .parquet, .arrow")
    True
    """
    statistics = (".sav", ".dta", ".xpt") if find_spec("pyreadstat") else ()
    sheets = (".xlsx",) if find_spec("openpyxl") else ()
    return ", ".join((".csv", ".parquet", ".arrow", *statistics, *sheets))


def is_compressed(path: str | Path) -> bool:
    """Return True if a CSV is compressed, by gzip or Zstandard."""
    return str(path).lower().endswith((".gz", ".zst"))


def sidecar_of(path: str | Path) -> Path:
    """Return the path of a CSV's metadata file, next to it."""
    return Path(f"{path}.masquerade.json")


def sidecars_of(path: str | Path) -> list[Path]:
    """Return the paths of possible sidecars: of the file, its link target, and its uncompressed name."""
    given, linked = Path(path), Path(path).resolve()
    places = [given, linked, *(p.with_suffix("") for p in (given, linked) if is_compressed(p))]
    return list(dict.fromkeys(map(sidecar_of, places)))


def unreadable(path: str | Path, error: OSError) -> FileError:
    """Return a `FileError` for an error of the operating system."""
    return FileError(f"{path}: {_reason(error)}.")


def damage_error(path: str | Path, kind: Format) -> FileError:
    """Return a `FileError` for a file whose content does not match its name."""
    return FileError(
        f"{path}: this is not a readable {kind.value} file (truncated, damaged, or of another type)."
    )


def unwritable(path: str | Path, error: OSError) -> FileError:
    """Return a `FileError` for an error of the operating system in writing."""
    return FileError(f"{path}: cannot be written: {_reason(error)}.")


def _reason(error: OSError) -> str:
    """Return the system's description of the error only, because a library's own text may quote data."""
    return os.strerror(error.errno).lower() if error.errno else "input/output error"
