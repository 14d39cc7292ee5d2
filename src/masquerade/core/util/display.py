"""Results that show themselves: as text, in a notebook, as plain values."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, ClassVar

from masquerade.core.errors import InputError
from masquerade.core.util.formatting import category_text, printable, visible

if TYPE_CHECKING:
    import pandas as pd

P_VALUES = ("p_value", "p_adjusted")
MOST_LINES, MOST_SHOWN = 24, 60
_LATEX = {
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "−": "$-$",
    "∞": r"$\infty$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "≥": r"$\geq$",
    "ε": r"$\varepsilon$",
    "γ": r"$\gamma$",
    "χ": r"$\chi$",
    "²": r"$^2$",
}


class Printed:
    """A result that has a `summary`, and shows it wherever it is looked at.

    Where it has rows (`to_frame`), these are its table in a notebook, in LaTeX and in Markdown.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        """Show the summary, the first lines if there are many."""
        lines = str(self.summary()).split("\n")  # type: ignore[attr-defined]
        more = [f"… ({len(lines) - MOST_LINES} more lines)"] if len(lines) > MOST_LINES else []
        return "\n".join([*lines[:MOST_LINES], *more])

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return html_of(self)

    def to_markdown(self) -> str:
        """Return the rows as a Markdown table."""
        return markdown_of(self)

    def to_latex(self) -> str:
        """Return the rows as a LaTeX table (booktabs)."""
        return latex_of(self)


class Shown(Printed, ABC):
    """A result with a title, a frame of rows and notes; text, HTML and plain values follow from these."""

    __slots__ = ()
    result_name: ClassVar[str]  # "result" in JSON; stays as it is when a class is renamed
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
        return {"result": self.result_name, "title": self.heading, "rows": rows, "notes": [*self.remarks]}

    def __repr__(self) -> str:
        """Show the result, the first rows if there are many."""
        return self.summary(max_rows=20)

    def written(self) -> pd.DataFrame:
        """Return the frame with its figures as text."""
        frame = self.to_frame()
        for name in frame.columns:
            frame[name] = [_written(str(name), value, self.percent) for value in frame[name]]
        return frame.rename(columns=lambda name: visible(str(name)))


def heading_of(result: Any) -> str:
    """Return what a result is, in a line."""
    found = result.heading if isinstance(result, Shown) else str(result.summary()).split("\n")[0]
    return visible(str(found))


def written_rows(result: Any) -> tuple[list[str], list[list[str]]]:
    """Return the columns and rows of a result, figures as text."""
    if isinstance(result, Shown):
        frame = result.written()
    else:
        frame = result.to_frame()
        for name in frame.columns:
            frame[name] = [_written(str(name), value, ()) for value in frame[name]]
    return [visible(str(name)) for name in frame.columns], frame.astype(str).to_numpy().tolist()


def html_of(result: Any) -> str:
    """Return a result as HTML: its rows as a table, else its summary as it is printed."""
    if not hasattr(result, "to_frame"):
        return f"<pre>{escape(str(result.summary()))}</pre>"
    names, rows = written_rows(result)
    head = "".join(f'<th style="text-align: left">{escape(name)}</th>' for name in names)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows[:MOST_SHOWN]
    )
    left = len(rows) - MOST_SHOWN
    notes = [f"({left:,} more rows)"] if left > 0 else []
    notes += result.remarks if isinstance(result, Shown) else []
    below = "".join(f"<p><small>{escape(visible(note))}</small></p>" for note in notes)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"<div><p><b>{escape(heading_of(result))}</b></p>{table}{below}</div>"


def markdown_of(result: Any) -> str:
    """Return the rows of a result as a Markdown table, with its heading and remarks."""
    names, rows = _rows_or_refusal(result)
    lines = [f"**{heading_of(result)}**", "", _markdown_row(names), _markdown_row(["---"] * len(names))]
    lines += [_markdown_row(row) for row in rows]
    notes = result.remarks if isinstance(result, Shown) else ()
    return "\n".join([*lines, *(f"\n{note}" for note in notes)]) + "\n"


def latex_of(result: Any) -> str:
    """Return the rows of a result as a LaTeX table in the style of booktabs, its heading as caption."""
    names, rows = _rows_or_refusal(result)
    figures = [all(row[i][:1] in "0123456789+-−–<∞" for row in rows) for i in range(len(names))]
    notes = result.remarks if isinstance(result, Shown) else ()
    return "\n".join(
        [
            "\\begin{table}",
            f"\\caption{{{_latex(heading_of(result))}}}",
            f"\\begin{{tabular}}{{{''.join('r' if right else 'l' for right in figures)}}}",
            "\\toprule",
            _latex_row(names),
            "\\midrule",
            *(_latex_row(row) for row in rows),
            "\\bottomrule",
            "\\end{tabular}",
            *(f"\\par\\small {_latex(note)}" for note in notes),
            "\\end{table}",
            "",
        ]
    )


def _rows_or_refusal(result: Any) -> tuple[list[str], list[list[str]]]:
    if not hasattr(result, "to_frame"):
        raise InputError(f"A {type(result).__name__} has no rows for a table: use its summary().")
    return written_rows(result)


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(map(_latex, cells)) + " \\\\"


def _latex(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in text)


def p_text(p: float) -> str:
    """Return a p-value for reading.

    >>> p_text(0.0312), p_text(1e-9)
    ('0.031', '<0.0001')
    """
    return "–" if math.isnan(p) else "<0.0001" if p < 1e-4 else f"{p:.4f}" if p < 0.01 else f"{p:.3f}"


def _written(name: str, value: Any, percent: tuple[str, ...]) -> str:
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return visible(_words(value))
    if not math.isfinite(value):
        return "–" if math.isnan(value) else "∞" if value > 0 else "−∞"
    if name in P_VALUES or name == "q_value":
        return p_text(float(value))
    if name in percent:
        return f"{100 * value:z.1f}%"  # never a negative zero
    if isinstance(value, int) or (name == "df" and value == int(value)):
        return f"{int(value):,}"
    return f"{value:,.1f}" if abs(value) >= 1000 else f"{value:.4f}" if abs(value) < 10 else f"{value:.2f}"


def _words(value: Any) -> str:
    if isinstance(value, (set, frozenset)):
        return f"{{{', '.join(sorted(map(str, value)))}}}"
    if value is None:
        return ""
    return category_text(value) if isinstance(value, (str, bool)) else str(value)


def _plain(value: Any) -> Any:
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return dict(value) if isinstance(value, Mapping) else value
