"""Answered questions as text, CSV and JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import TYPE_CHECKING, Any

from masquerade.cli.query_arguments import shown
from masquerade.core.errors import InputError

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from masquerade.core.covariance import Kind
    from masquerade.core.query import Query
    from masquerade.core.schema import Category
    from masquerade.core.table import CountTable
    from masquerade.estimate.misfit import Misfit

FIGURES = ("count", "stderr", "lower", "upper")
DOUBTFUL, BAD = 0.05, 0.001


@dataclass(frozen=True, slots=True)
class Answer:
    """A table; errors and intervals are those of the unbiased one, whatever is shown."""

    query: Query
    unbiased: CountTable
    table: CountTable
    level: float
    kind: Kind
    misfit: Misfit | None

    def cells(self) -> Iterator[tuple[tuple[Category, ...], tuple[float, ...]]]:
        """Yield labels and figures, cell by cell."""
        interval = self.unbiased.conf_int(self.level, self.kind)
        columns = (self.table.values, self.unbiased.stderr(self.kind), interval.lower, interval.upper)
        labels = product(*(axis.categories for axis in self.table.axes))
        figures = zip(*(column.ravel().tolist() for column in columns), strict=True)
        yield from zip(labels, figures, strict=True)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        plain: dict[str, Any] = {
            "by": list(self.query.by),
            "where": dict(self.query.where),
            "n": self.table.n,
            "level": self.level,
            "kind": self.kind,
            "adjusted": self.table.adjusted,
            "cells": [
                {
                    "labels": dict(zip(self.query.by, labels, strict=True)),
                    **dict(zip(FIGURES, figures, strict=True)),
                }
                for labels, figures in self.cells()
            ],
        }
        if self.misfit is not None:
            plain["misfit"] = {
                "statistic": self.misfit.statistic,
                "degrees": self.misfit.degrees,
                "p_value": self.misfit.p_value,
                "reliable": self.misfit.reliable,
            }
        return plain

    @property
    def title(self) -> str:
        """Return what was asked."""
        asked = " × ".join(self.query.by) or "records"
        given = ", ".join(f"{name} = {shown(label)}" for name, label in self.query.where)
        return asked + (f", where {given}" if given else "")

    @property
    def misfit_words(self) -> str:
        """Say what the misfit test found."""
        if self.misfit is None:
            return ""
        found = self.misfit
        figures = (
            f"Misfit of {', '.join(self.query.names)}: G² = {found.statistic:.2f} on {found.degrees} "
            f"degree{'' if found.degrees == 1 else 's'} of freedom, p {p_words(found.p_value)}: "
        )
        if found.p_value < BAD:
            verdict = (
                "no truth explains these reports. They were disguised under another policy, or people did "
                "not follow it; do not trust the counts."
            )
        elif found.p_value < DOUBTFUL:
            verdict = "these reports are unusual for this policy; look at how they were collected."
        else:
            verdict = "nothing speaks against this policy (which does not prove it)."
        doubt = (
            "" if found.reliable else " Many cells expect fewer than 5 records: take this p as a rough one."
        )
        return figures + verdict + doubt


def as_text(found: Sequence[Answer], rows: int) -> list[RenderableType]:
    """Return tables and what to know about them."""
    parts: list[RenderableType] = []
    for answer in found:
        parts += [text_table(answer, rows), *notes(answer, rows), ""]
    return parts[:-1]


def text_table(answer: Answer, rows: int) -> Table:
    """Return the cells of one answer."""
    from rich import box  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    table = Table(
        title=answer.title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False
    )
    for name in answer.query.by:
        table.add_column(name)
    for name in ("count", "std. error", f"{answer.level * 100:g}% interval"):
        table.add_column(name, justify="right", no_wrap=True)
    digits = 0 if is_exact(answer) else 1
    widths = [0, 0]
    shown_cells = []
    for labels, (count, stderr, lower, upper) in islice(answer.cells(), rows or None):
        ends = [fixed(value) for value in (lower, upper)]
        widths = [max(width, len(end)) for width, end in zip(widths, ends, strict=True)]
        shown_cells.append((labels, fixed(count, digits), fixed(stderr), ends))
    for labels, count_text, stderr_text, ends in shown_cells:
        span = " to ".join(end.rjust(width) for end, width in zip(ends, widths, strict=True))
        table.add_row(*(shown(label) for label in labels), count_text, stderr_text, span)
    return table


def is_exact(answer: Answer) -> bool:
    """Tell whether the counts are those of the records themselves: nothing asked about is disguised."""
    return not answer.unbiased.stderr("given_records").any() and not answer.table.adjusted


def notes(answer: Answer, rows: int) -> list[str]:
    """Return the lines below a table."""
    table = answer.table
    about = "the population they come from" if answer.kind == "population" else "these very records"
    lines = [f"{table.n:,} records; errors and intervals are about {about}."]
    if rows and table.values.size > rows:
        lines.append(f"The first {rows} of {table.values.size:,} cells; --rows 0, --csv or --json gives all.")
    if table.adjusted:
        lines.append(
            f"Made nonnegative by {table.adjusted!r}: no longer unbiased. Errors and intervals are those of "
            "the unbiased estimate."
        )
    elif (table.values < 0).any():
        lines.append(
            "Counts below zero are left as they are: the estimates are unbiased, and a negative one says "
            "that the truth is near zero. --nonnegative mle gives the most likely table without them."
        )
    return [*lines, *([answer.misfit_words] if answer.misfit else [])]


def as_csv(answer: Answer) -> str:
    """Return one table as CSV, figures in full."""
    taken = next((name for name in answer.query.by if name in FIGURES), None)
    if taken is not None:
        raise InputError(f"A CSV would have two columns called {taken!r}; use --json.")
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([*answer.query.by, *FIGURES])
    for labels, figures in answer.cells():
        writer.writerow([*(shown(label) for label in labels), *figures])
    return buffer.getvalue()


def p_words(p: float) -> str:
    """Return a p-value for reading."""
    return "< 0.0001" if p < 1e-4 else f"= {p:.4f}" if p < 0.01 else f"= {p:.2f}"


def fixed(value: float, digits: int = 1) -> str:
    """Return a number with so many digits after the point, never a negative zero."""
    shown_number = f"{value:,.{digits}f}"
    return shown_number.removeprefix("-") if not shown_number.strip("-0.,") else shown_number
