"""What must be true of a frame before it is handed out: counts for people to read, a digest to be sure."""

from __future__ import annotations

from hashlib import sha256

import pandas as pd

from masquerade.data.catalogue_types import DataSet


def wrong_count(found: DataSet, frame: pd.DataFrame) -> str:
    """Say which count of a frame is not the data set's; nothing if all are."""
    if tuple(frame.columns) != found.columns:
        return f"{len(frame.columns)} columns that are not its {len(found.columns)}"
    if len(frame) != found.rows:
        return f"{len(frame):,} rows, expected {found.rows:,}"
    classes = {str(label): int(n) for label, n in frame[found.target].value_counts().items()}
    if classes != dict(found.classes):
        return f"{said(classes)} in {found.target!r}, expected {said(dict(found.classes))}"
    marks = (frame == "?").sum()
    unknown = {str(name): int(n) for name, n in marks[marks > 0].items()}
    if unknown != dict(found.unknown):
        return f'"?" counted as {said(unknown)}, expected {said(dict(found.unknown))}'
    return ""


def said(counts: dict[str, int]) -> str:
    """Return counts in words."""
    return ", ".join(f"{n:,} {label}" for label, n in sorted(counts.items())) or "none"


def digest(frame: pd.DataFrame) -> str:
    """Return the SHA-256 of a frame written as CSV: its names, values, kinds of number and order of rows."""
    return sha256(frame.to_csv(index=False, lineterminator="\n").encode()).hexdigest()
