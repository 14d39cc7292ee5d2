"""`masquerade estimate`: counts with their uncertainty."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import masquerade as mq
from masquerade.cli import output
from masquerade.cli.data_source import RecordOptions, conditions_in, over_records
from masquerade.cli.options import Json, Out, Overwrite, flag, option
from masquerade.core.errors import InputError
from masquerade.core.util.display import Shown
from masquerade.core.util.formatting import category_text, counted
from masquerade.learn.option_types import names_in

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import RenderableType

    from masquerade.core.covariance import Kind
    from masquerade.core.query import Query
    from masquerade.core.schema import Category, Schema
    from masquerade.core.simultaneous import Simultaneous
    from masquerade.core.table import CountTable
    from masquerade.estimate.misfit import Misfit

FIGURES = ("count", "stderr", "lower", "upper")
DOUBTFUL, BAD = 0.05, 0.001


@over_records
def command(
    *,
    by: Annotated[
        list[str] | None,
        option("Variables of a table, as A,B; may be repeated. By default one count of all records.", "A,B"),
    ] = None,
    where: Annotated[
        list[str] | None,
        option("Only records with this category; may be repeated.", "VARIABLE=CATEGORY"),
    ] = None,
    records: RecordOptions,
    level: Annotated[float, option("Confidence level of the intervals.")] = 0.95,
    kind: Annotated[
        Literal["population", "given_records"],
        option("Uncertainty about the population, or about these records only."),
    ] = "population",
    simultaneous: Annotated[
        Literal["bonferroni", "max-t"] | None,
        option("Make the intervals hold for all cells of a table together."),
    ] = None,
    nonnegative: Annotated[
        Literal["mle", "simplex", "clip"] | None,
        option("Project the counts so that none is below zero (biased, and marked as such)."),
    ] = None,
    misfit: Annotated[
        bool, flag("Test whether this policy can have produced the reports.", "--misfit")
    ] = False,
    rows: Annotated[int, option("Largest number of cells shown as text; 0 for all.", min=0)] = 60,
    json: Json = False,
    as_csv: Annotated[bool, flag("Print CSV instead of text (one table).", "--csv")] = False,
    out: Out = None,
    overwrite: Overwrite = False,
) -> None:
    """Estimate counts from disguised records, with standard errors and intervals.

    Example: masquerade estimate disguised.csv --policy policy.yaml --by smoker,region
    """
    output.refuse((json and as_csv, "Give either --json or --csv."))
    ending = Path(out or "").suffix.lower()  # decides the format if no option does
    form = "json" if json or (not as_csv and ending == ".json") else "text"
    form = "csv" if as_csv or (form == "text" and ending == ".csv") else form
    schema = records.policy.schema
    given = conditions_in(where, schema)
    queries = [mq.Query(by=names, where=given) for names in _tables_asked(by or [], given, schema)]
    output.refuse(
        (not 0 < level < 1, f"--level must be between 0 and 1, such as 0.95. Got {level:g} instead."),
        (form == "csv" and len(queries) > 1, "A CSV file has one table: give one --by, or --json."),
        (misfit and records.clear, "--misfit tests a disguise, and --clear records have none."),
        (misfit and records.weights is not None, "--misfit counts records and takes no --weights."),
    )
    output.check_target(out, overwrite=overwrite)
    exporting = form == "text" and ending not in {"", ".txt"} and out not in {None, "-"}
    if exporting:
        output.refuse((len(queries) > 1, "A file of this type has one table: give one --by, or --json."))
        from masquerade.report.export import check_ending, export_result  # noqa: PLC0415

        check_ending(str(out))
    with records.open_source("counting", "estimates are") as source:
        untestable = misfit and not hasattr(source, "misfit")
        output.refuse((untestable, "--misfit tests reports, and this source has none."))
        found = [
            _Answer(
                query,
                table,
                table.nonnegative(nonnegative) if nonnegative else table,
                level,
                kind,
                source.misfit(query.names) if misfit else None,
                simultaneous,
            )
            for query, table in zip(queries, source.answer(queries), strict=True)
        ]
    if form == "json":
        text = output.as_json([answer.to_dict() for answer in found])
    elif form == "csv":
        text = found[0].csv_text()
    else:
        parts = [part for answer in found for part in (*answer.parts(rows), "")]
        text = output.render(*parts[:-1], to_file=out not in {None, "-"})
    if exporting:
        output.write_whole(str(out), export_result(found[0].result, str(out)), overwrite=overwrite)
    else:
        output.emit(text, out, overwrite=overwrite)
    if misfit and form == "csv":
        for answer in found:
            output.say(answer.misfit_words)
    if records.origin_note is not None:
        output.say(records.origin_note)


def _tables_asked(by: Sequence[str], where: Mapping[str, Category], schema: Schema) -> list[tuple[str, ...]]:
    tables = [names_in(text, schema, "--by") for text in by] or [()]
    for names in tables:
        for name in names:
            if name in where:
                raise InputError(f"{name!r} is in --by and in --where: count its categories, or fix one.")
    return tables


@dataclass(frozen=True, slots=True, repr=False)
class CellResult(Shown):
    """A table of counts for export to a file."""

    result_name: ClassVar[str] = "CellResult"
    title: str
    rows: tuple[dict[str, Any], ...]
    notes: tuple[str, ...]

    @property
    def heading(self) -> str:
        """Return the title of the table."""
        return self.title

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return notes on the intervals and the fit."""
        return self.notes

    def to_frame(self) -> pd.DataFrame:
        """Return a frame with one row per cell."""
        import pandas as pd  # noqa: PLC0415

        return pd.DataFrame(list(self.rows))


@dataclass(frozen=True, slots=True)
class _Answer:
    """The answer to a query: the table to show, with the errors and intervals of the unbiased estimate."""

    query: Query
    unbiased: CountTable
    table: CountTable
    level: float
    kind: Kind
    misfit: Misfit | None
    simultaneous: Simultaneous | None = None

    def cells(self) -> Iterator[tuple[tuple[Category, ...], tuple[float, ...]]]:
        interval = self.unbiased.conf_int(self.level, self.kind, self.simultaneous)
        columns = (self.table.values, self.unbiased.stderr(self.kind), interval.lower, interval.upper)
        labels = product(*(axis.categories for axis in self.table.axes))
        figures = zip(*(column.ravel().tolist() for column in columns), strict=True)
        yield from zip(labels, figures, strict=True)

    def to_dict(self) -> dict[str, Any]:
        plain: dict[str, Any] = {
            "by": list(self.query.by),
            "where": dict(self.query.where),
            "n": self.table.n,
            "level": self.level,
            "kind": self.kind,
            "simultaneous": self.simultaneous,
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
                "mixture": " " in self.misfit.df_text,
                "p_value": self.misfit.p_value,
                "reliable": self.misfit.reliable,
            }
        return plain

    @property
    def result(self) -> CellResult:
        """Return the table for export, with rows and notes."""
        cells = [(*labels, *figures) for labels, figures in self.cells()]
        columns = [name if name not in FIGURES else f"{name}_" for name in self.query.by]
        rows = [dict(zip((*columns, *FIGURES), cell, strict=True)) for cell in cells]
        notes = [f"({self.level:.0%} intervals)", *([self.misfit_words] if self.misfit else [])]
        return CellResult(f"{self.title}, n = {self.table.n:,}", tuple(rows), tuple(notes))

    @property
    def title(self) -> str:
        asked = " × ".join(self.query.by) or "records"
        given = ", ".join(f"{name} = {category_text(label)}" for name, label in self.query.where)
        return asked + (f", where {given}" if given else "")

    @property
    def misfit_words(self) -> str:
        if self.misfit is None:
            return ""
        found = self.misfit
        p = found.p_value
        p_text = "< 0.0001" if p < 1e-4 else f"= {p:.4f}" if p < 0.01 else f"= {p:.2f}"
        mean = "mean p" if " " in found.df_text else "p"
        figures = (
            f"Misfit of {', '.join(self.query.names)}: G² = {found.statistic:.2f} on {found.df_text} "
            f"degree{'' if found.df_text == '1' else 's'} of freedom, {mean} {p_text}: "
        )
        if p < BAD:
            verdict = (
                "no truth explains these reports. They were disguised under a different policy, or people "
                "did not follow it; do not trust the counts."
            )
        elif p < DOUBTFUL:
            verdict = "these reports are unusual for this policy; look at how they were collected."
        else:
            verdict = "no evidence against this policy (which does not prove it)."
        doubt = (
            "" if found.reliable else " Many cells expect fewer than 5 records: this p is only approximate."
        )
        return figures + verdict + doubt

    def parts(self, rows: int) -> list[RenderableType]:
        """Return the table and its notes as text."""
        shown = output.plain_table(self.title, self.query.by)
        for name in ("count", "std. error", f"{self.level * 100:g}% interval"):
            shown.add_column(name, justify="right", no_wrap=True)
        table = self.table
        # counts are exact if no variable of the table is disguised
        exact = not self.unbiased.stderr("given_records").any() and not table.adjusted
        cells = [
            (
                labels,
                _format_fixed(count, 0 if exact else 1),
                _format_fixed(stderr),
                _format_fixed(lower),
                _format_fixed(upper),
            )
            for labels, (count, stderr, lower, upper) in islice(self.cells(), rows or None)
        ]
        left, right = (max((len(cell[end]) for cell in cells), default=0) for end in (3, 4))
        for labels, count_text, stderr_text, lower_text, upper_text in cells:
            span = f"{lower_text.rjust(left)} to {upper_text.rjust(right)}"
            shown.add_row(*map(category_text, labels), count_text, stderr_text, span)
        about = "the population they come from" if self.kind == "population" else "these records only"
        lines = [f"{counted(table.n, 'record')}; errors and intervals are about {about}."]
        if not table.n:
            lines = ["There are no records: the zeros say nothing."]
        if self.simultaneous is not None:
            lines.append(f"The intervals hold for all cells of the table together ({self.simultaneous}).")
        if rows and table.values.size > rows:
            lines.append(
                f"The first {rows} of {table.values.size:,} cells; --rows 0, --csv or --json gives all."
            )
        if table.adjusted:
            lines.append(
                f"Made nonnegative by {table.adjusted!r}: no longer unbiased. Errors and intervals are those "
                "of the unbiased estimate."
            )
        elif (table.values < 0).any():
            lines.append(
                "Counts below zero are left unchanged: the estimates are unbiased, and a negative estimate "
                "means that the truth is near zero. --nonnegative mle gives the most likely table without "
                "negative counts."
            )
        return [shown, *lines, *([self.misfit_words] if self.misfit else [])]

    def csv_text(self) -> str:
        """Return the table as CSV with all digits."""
        duplicate = next((name for name in self.query.by if name in FIGURES), None)
        if duplicate is not None:
            raise InputError(f"A CSV would have two columns called {duplicate!r}; use --json.")
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow([*self.query.by, *FIGURES])
        for labels, figures in self.cells():
            writer.writerow([*map(category_text, labels), *figures])
        return buffer.getvalue()


def _format_fixed(value: float, digits: int = 1) -> str:
    """Format a number with `digits` decimal places, never as a negative zero."""
    shown_number = f"{value:,.{digits}f}"
    return shown_number.removeprefix("-") if not shown_number.strip("-0.,") else shown_number
