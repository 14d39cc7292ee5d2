"""From the bytes of a published file to a frame, and what must be true of it before it is handed out.

Numbers are numbers, everything else is text; counts are for people to read, a digest is to be sure.
"""

from __future__ import annotations

import io
from hashlib import sha256

import pandas as pd

from masquerade.data.catalogue import DataSet


def parsed(found: DataSet, contents: list[bytes]) -> pd.DataFrame:
    """Return the frame of a data set from the bytes of its files, one file after the other."""
    whole = pd.concat([cells(found, content) for content in contents], ignore_index=True)
    return typed(whole) if len(contents) == 1 else _in_order(typed(whole))


def cells(found: DataSet, content: bytes) -> pd.DataFrame:
    """Return every cell of a file as text; remarks, blank lines and the full stop after a label go."""
    lines = [line.strip() for line in content.decode("ascii").splitlines()]
    text = "\n".join(line.removesuffix(".") for line in lines if line and not line.startswith("|"))
    return pd.read_csv(
        io.StringIO(text),
        sep=found.separator,
        names=list(found.columns),
        dtype=str,
        keep_default_na=False,
        skipinitialspace=found.separator == ",",
    )


def typed(frame: pd.DataFrame) -> pd.DataFrame:
    """Return columns of whole numbers as int64, of decimals as float64, others (also with "?") as text."""
    return frame.apply(_typed_column)


def _typed_column(column: pd.Series) -> pd.Series:
    for dtype in ("int64", "float64"):
        try:
            return column.astype(dtype)
        except ValueError:
            continue
    return column


def _in_order(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows sorted by all columns, so that the same rows give the same frame."""
    return frame.sort_values(list(frame.columns), ignore_index=True)


def wrong_count(found: DataSet, frame: pd.DataFrame) -> str:
    """Say which count of a frame is not the data set's; nothing if all are."""
    if tuple(frame.columns) != found.columns:
        return f"{len(frame.columns)} columns that are not its {len(found.columns)}"
    if len(frame) != found.rows:
        return f"{len(frame):,} rows, expected {found.rows:,}"
    classes = {str(label): int(n) for label, n in frame[found.target].value_counts().items()}
    if classes != dict(found.classes):
        return f"{_said(classes)} in {found.target!r}, expected {_said(dict(found.classes))}"
    marks = (frame == "?").sum()
    unknown = {str(name): int(n) for name, n in marks[marks > 0].items()}
    if unknown != dict(found.unknown):
        return f'"?" counted as {_said(unknown)}, expected {_said(dict(found.unknown))}'
    return ""


def _said(counts: dict[str, int]) -> str:
    return ", ".join(f"{n:,} {label}" for label, n in sorted(counts.items())) or "none"


def digest(frame: pd.DataFrame) -> str:
    """Return the SHA-256 of a frame written as CSV: its names, values, kinds of number and order of rows."""
    return sha256(frame.to_csv(index=False, lineterminator="\n").encode()).hexdigest()
