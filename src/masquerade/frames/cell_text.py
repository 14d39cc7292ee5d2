"""Cells of spreadsheets as text."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

from masquerade.core.util.formatting import category_text


def cell_text(value: Any) -> str | None:
    """Return a cell as the text that a CSV would contain; None if it is empty.

    >>> cell_text(2.0), cell_text("")
    ('2', None)
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, (dt.date, dt.time)):
        return None if value != value else value.isoformat()  # noqa: PLR0124  (NaT)
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return (
        category_text(value) if isinstance(value, (bool, int, str)) and value != "" else (str(value) or None)
    )
