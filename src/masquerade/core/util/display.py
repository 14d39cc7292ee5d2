"""Results that can be displayed: as text, in notebooks, and as plain values."""

from __future__ import annotations

import math
import re
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


_MARKUP = re.compile(r"<(?=[A-Za-z/!?])|\](?=[(\[])|\\(?=[!-/:-@\[-`{-~])")  # tags, links, escapes


class Printed:
    """A result with a `summary`, which is shown wherever the result is displayed.

    If it has rows (`to_frame`), they form its table in notebooks, LaTeX and Markdown.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        """Return the summary, shortened to its first lines."""
        lines = str(self.summary()).split("\n")  # type: ignore[attr-defined]
        more = [f"… ({len(lines) - MOST_LINES} more lines)"] if len(lines) > MOST_LINES else []
        return "\n".join([*lines[:MOST_LINES], *more])

    def _repr_html_(self) -> str:
        """Return the HTML for notebooks."""
        return html_of(self)

    def to_markdown(self) -> str:
        """Return the rows as a Markdown table."""
        return markdown_of(self)

    def to_latex(self) -> str:
        """Return the rows as a LaTeX table (booktabs)."""
        return latex_of(self)


class Shown(Printed, ABC):
    """A result with a title, a frame of rows and remarks, from which its text, HTML and JSON derive."""

    __slots__ = ()
    result_name: ClassVar[str]  # "result" in JSON; does not change when a class is renamed
    percent: ClassVar[tuple[str, ...]] = ()  # columns shown as percentages

    @property
    @abstractmethod
    def heading(self) -> str:
        """Return a title in one line."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return remarks below the table."""
        return ()

    @abstractmethod
    def to_frame(self) -> pd.DataFrame:
        """Return the rows as a pandas frame."""

    def table_columns(self) -> dict[str, Sequence[Any]] | None:
        """Return the rows as columns by name, for results that can be shown without pandas; else None."""
        return None

    @printable
    def summary(self, max_rows: int = 60) -> str:
        """Return the result as text: title, rows and remarks."""
        columns = self.table_columns()
        rows = len(next(iter(columns.values()))) if columns else 0
        if columns and rows:
            body = _align(
                {
                    visible(name): [_format_value(name, value, self.percent) for value in values[:max_rows]]
                    for name, values in columns.items()
                }
            )
        else:
            frame = self.format_frame()
            rows = len(frame)
            body = frame.head(max_rows).to_string(index=False) if len(frame.columns) else ""
        left = rows - max_rows
        more = [f"({left:,} more rows)"] if left > 0 else []
        return "\n".join([self.heading, body, *more, *self.remarks])

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain JSON values; NaN and infinite numbers become None."""
        columns = self.table_columns()
        rows = plain_rows(self.to_frame()) if columns is None else _plain_records(columns)
        return {"result": self.result_name, "title": self.heading, "rows": rows, "notes": [*self.remarks]}

    def __repr__(self) -> str:
        """Return the summary, shortened to its first rows."""
        return self.summary(max_rows=20)

    def format_frame(self) -> pd.DataFrame:
        """Return the frame with numbers formatted as text."""
        frame = self.to_frame()
        for name in frame.columns:
            frame[name] = [_format_value(str(name), value, self.percent) for value in frame[name]]
        return frame.rename(columns=lambda name: visible(str(name)))


def _align(columns: Mapping[str, Sequence[str]]) -> str:
    """Return columns of text as lines, aligned to the right, as pandas prints a frame without its index."""
    widths = [max(len(name), *map(len, cells)) for name, cells in columns.items()]
    lines = [tuple(columns), *zip(*columns.values(), strict=True)]
    return "\n".join(
        " ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines
    )


def _plain_records(columns: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    rows = zip(*([_plain(value) for value in values] for values in columns.values()), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def plain_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a frame as plain JSON values; NaN and infinite numbers become None."""
    return [{str(name): _plain(value) for name, value in row.items()} for row in frame.to_dict("records")]


def heading_of(result: Any) -> str:
    """Return the title of a result in one line."""
    title = result.heading if isinstance(result, Shown) else str(result.summary()).split("\n")[0]
    return visible(str(title))


def format_rows(result: Any) -> tuple[list[str], list[list[str]]]:
    """Return the columns and rows of a result, with numbers formatted as text."""
    if isinstance(result, Shown):
        frame = result.format_frame()
    else:
        frame = result.to_frame()
        for name in frame.columns:
            frame[name] = [_format_value(str(name), value, ()) for value in frame[name]]
    return [visible(str(name)) for name in frame.columns], frame.astype(str).to_numpy().tolist()


def html_of(result: Any) -> str:
    """Return a result as HTML: a table of its rows, or else its summary."""
    if not hasattr(result, "to_frame"):
        return f"<pre>{escape(str(result.summary()))}</pre>"
    names, rows = format_rows(result)
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
    """Return the rows of a result as a Markdown table with its title and remarks."""
    names, rows = _rows_or_refusal(result)
    lines = [
        f"**{_markdown(heading_of(result))}**",
        "",
        _markdown_row(names),
        _markdown_row(["---"] * len(names)),
    ]
    lines += [_markdown_row(row) for row in rows]
    notes = result.remarks if isinstance(result, Shown) else ()
    return "\n".join([*lines, *(f"\n{_markdown(note)}" for note in notes)]) + "\n"


def latex_of(result: Any) -> str:
    """Return the rows of a result as a LaTeX table (booktabs) with its title as caption."""
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
    return format_rows(result)


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_markdown(cell).replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _markdown(text: str) -> str:
    """Escape tags, links and pictures in text, so that displaying it neither runs nor fetches anything."""
    return _MARKUP.sub(r"\\\g<0>", text)


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(map(_latex, cells)) + " \\\\"


def _latex(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in text)


def p_text(p: float) -> str:
    """Return a p-value as text.

    >>> p_text(0.0312), p_text(1e-9)
    ('0.031', '<0.0001')
    """
    return "–" if math.isnan(p) else "<0.0001" if p < 1e-4 else f"{p:.4f}" if p < 0.01 else f"{p:.3f}"


def _format_value(name: str, value: Any, percent: tuple[str, ...]) -> str:
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
