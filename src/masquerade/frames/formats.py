"""Which kinds of file we know, and how their errors are told."""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path

from masquerade.core.errors import FileError

STREAM = "-"  # standard input or output


class Format(Enum):
    """A kind of file."""

    CSV = "CSV"
    PARQUET = "Parquet"
    ARROW = "Arrow"
    EXCEL = "Excel"
    SPSS = "SPSS"
    STATA = "Stata"
    SAS = "SAS"
    BASKETS = "basket"

    @property
    def sheet(self) -> bool:
        """Tell whether it is a table of a spreadsheet or of a statistics program."""
        return self in {Format.EXCEL, Format.SPSS, Format.STATA, Format.SAS}

    @property
    def carries_metadata(self) -> bool:
        """Tell whether texts can stand in the file itself; they are kept next to the others."""
        return self in {Format.PARQUET, Format.ARROW}


_BY_ENDING = {
    ".csv": Format.CSV,
    ".csv.gz": Format.CSV,
    ".tsv": Format.CSV,
    ".tsv.gz": Format.CSV,
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
    ".baskets": Format.BASKETS,
    ".baskets.gz": Format.BASKETS,
    ".dat": Format.BASKETS,
    ".dat.gz": Format.BASKETS,
}


def format_of(path: str | Path) -> Format:
    """Return the kind of a file by its ending; another ending is a `FileError`.

    >>> format_of("people.parquet").value
    'Parquet'
    """
    name = str(path)
    if name == STREAM:
        return Format.CSV
    for ending, kind in _BY_ENDING.items():
        if name.lower().endswith(ending):
            return kind
    raise FileError(f"{name}: the kind of file is not known by its name. Known: {', '.join(_BY_ENDING)}.")


def is_compressed(path: str | Path) -> bool:
    """Tell whether a CSV is gzipped."""
    return str(path).lower().endswith(".gz")


def sidecar_of(path: str | Path) -> Path:
    """Return where the metadata of a CSV is kept: next to it."""
    return Path(f"{path}.masquerade.json")


def sidecars_of(path: str | Path) -> list[Path]:
    """Return where that is looked for: next to a file, what it links to, and what it was compressed from."""
    given, linked = Path(path), Path(path).resolve()
    places = [given, linked, *(p.with_suffix("") for p in (given, linked) if is_compressed(p))]
    return list(dict.fromkeys(map(sidecar_of, places)))


def unreadable(path: str | Path, error: OSError) -> FileError:
    """Return a `FileError` for what the operating system said."""
    return FileError(f"{path}: {_reason(error)}.")


def damaged(path: str | Path, kind: Format) -> FileError:
    """Return a `FileError` for a file that does not hold what its name says."""
    return FileError(
        f"{path}: this is not a readable {kind.value} file (truncated, damaged, or of another kind)."
    )


def unwritable(path: str | Path, error: OSError) -> FileError:
    """Return a `FileError` for what the operating system said about writing."""
    return FileError(f"{path}: cannot be written: {_reason(error)}.")


def _reason(error: OSError) -> str:
    """Say it in the system's words only: a library's own text may quote data."""
    return os.strerror(error.errno).lower() if error.errno else "input/output error"
