"""Results that show themselves: as text, in a notebook, as plain values."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any, ClassVar

from masquerade.core.words import category_text, printable, visible

if TYPE_CHECKING:
    import pandas as pd

P_VALUES = ("p_value", "p_adjusted")


class Shown(ABC):
    """A result with a title, a frame of rows and notes; text, HTML and plain values follow from these."""

    __slots__ = ()
    percent: ClassVar[tuple[str, ...]] = ()  # columns that are read as percentages

    @property
    @abstractmethod
    def heading(self) -> str:
        """Return what the result is, in a line."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return what a reader must know beside the figures."""
        return ()

    @abstractmethod
    def to_frame(self) -> pd.DataFrame:
        """Return the rows as a pandas frame."""

    @printable
    def summary(self, max_rows: int = 60) -> str:
        """Return the result as text, the way it is pasted into a paper."""
        frame = self.written()
        left = len(frame) - max_rows
        body = frame.head(max_rows).to_string(index=False) if len(frame.columns) else ""
        more = [f"({left:,} more rows)"] if left > 0 else []
        return "\n".join([self.heading, body, *more, *self.remarks])

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain JSON values; what is no number is None."""
        rows = [
            {str(name): _plain(value) for name, value in row.items()}
            for row in self.to_frame().to_dict("records")
        ]
        return {"result": type(self).__name__, "title": self.heading, "rows": rows, "notes": [*self.remarks]}

    def __repr__(self) -> str:
        """Show the result, the first rows if there are many."""
        return self.summary(max_rows=20)

    @printable
    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        notes = "".join(f"<p><small>{escape(note)}</small></p>" for note in self.remarks)
        table = self.written().to_html(index=False, border=0, justify="left", max_rows=60)
        return f"<div><p><b>{escape(self.heading)}</b></p>{table}{notes}</div>"

    def written(self) -> pd.DataFrame:
        """Return the frame with its figures as text."""
        frame = self.to_frame()
        for name in frame.columns:
            frame[name] = [_written(str(name), value, self.percent) for value in frame[name]]
        return frame.rename(columns=lambda name: visible(str(name)))


def p_text(p: float) -> str:
    """Return a p-value for reading.

    >>> p_text(0.0312), p_text(1e-9)
    ('0.031', '<0.0001')
    """
    return "–" if math.isnan(p) else "<0.0001" if p < 1e-4 else f"{p:.4f}" if p < 0.01 else f"{p:.3f}"


def _written(name: str, value: Any, percent: tuple[str, ...]) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return visible(category_text(value))
    if not math.isfinite(value):
        return "–" if math.isnan(value) else "∞" if value > 0 else "−∞"
    if name in P_VALUES:
        return p_text(float(value))
    if name in percent:
        return f"{100 * value:.1f}%"
    if isinstance(value, int) or (name == "df" and value == int(value)):
        return f"{int(value):,}"
    return f"{value:,.1f}" if abs(value) >= 1000 else f"{value:.4f}" if abs(value) < 10 else f"{value:.2f}"


def _plain(value: Any) -> Any:
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return dict(value) if isinstance(value, Mapping) else value
