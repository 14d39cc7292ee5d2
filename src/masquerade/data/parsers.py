"""From the bytes of a published file to a frame: names, numbers as numbers, everything else as text."""

from __future__ import annotations

import io

import pandas as pd

from masquerade.data.catalogue_types import DataSet


def parsed(found: DataSet, contents: list[bytes]) -> pd.DataFrame:
    """Return the frame of a data set from the bytes of its files, one file after the other."""
    whole = pd.concat([cells(found, content) for content in contents], ignore_index=True)
    return typed(whole) if len(contents) == 1 else in_order(typed(whole))


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
    return frame.apply(typed_column)


def typed_column(column: pd.Series) -> pd.Series:
    """Return one column as numbers if all of it is."""
    for dtype in ("int64", "float64"):
        try:
            return column.astype(dtype)
        except ValueError:
            continue
    return column


def in_order(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows sorted by all columns, so that the same rows give the same frame."""
    return frame.sort_values(list(frame.columns), ignore_index=True)
