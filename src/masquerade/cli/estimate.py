"""`masquerade estimate`: how many there are, and how sure that is."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import masquerade as mq
from masquerade.cli.data_source import Given, Place
from masquerade.cli.options import (
    AcceptIncomplete,
    Clear,
    Engine,
    Json,
    Out,
    Overwrite,
    Person,
    PolicyFile,
    Reports,
    Url,
    Verbose,
    Weights,
)
from masquerade.cli.output import (
    as_json,
    check_target,
    emit,
    plain_table,
    render,
    say,
    warnings_said,
    watched,
)
from masquerade.core.errors import InputError
from masquerade.core.words import category_text
from masquerade.learn.option_kinds import category_called, names_in, variable_named

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from masquerade.core.covariance import Kind
    from masquerade.core.query import Query
    from masquerade.core.schema import Category, Schema, Variable
    from masquerade.core.table import CountTable
    from masquerade.estimate.misfit import Misfit

Form = Literal["text", "json", "csv"]
FIGURES = ("count", "stderr", "lower", "upper")
DOUBTFUL, BAD = 0.05, 0.001


def command(
    data: Reports,
    *,
    policy: PolicyFile,
    by: Annotated[
        list[str] | None,
        typer.Option(
            help="Variables of a table, as A,B; repeat for more tables. None: one count.", metavar="A,B"
        ),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(help="Only records with this category; repeat for more.", metavar="VARIABLE=CATEGORY"),
    ] = None,
    weights: Weights = None,
    person: Person = None,
    clear: Clear = False,
    accept_incomplete: AcceptIncomplete = False,
    engine: Engine = "auto",
    url: Url = None,
    verbose: Verbose = False,
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    kind: Annotated[
        Literal["population", "given_records"],
        typer.Option(help="Uncertainty about the population, or about these very records."),
    ] = "population",
    nonnegative: Annotated[
        Literal["mle", "simplex", "clip"] | None,
        typer.Option(help="Project the counts so that none is below zero (biased; shown as such)."),
    ] = None,
    misfit: Annotated[
        bool, typer.Option("--misfit", help="Test whether the reports can have come from this policy at all.")
    ] = False,
    rows: Annotated[int, typer.Option(help="Most cells shown of a table as text; 0: all.", min=0)] = 60,
    json: Json = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV instead of text (one table).")] = False,
    out: Out = None,
    overwrite: Overwrite = False,
) -> None:
    """Estimate counts from disguised records, with standard errors and intervals.

    Example: masquerade estimate disguised.csv --policy policy.yaml --by smoker,region
    """
    form = wanted_form(out, json=json, csv=as_csv)
    loaded = mq.Policy.load(policy)
    given = conditions(where or [], loaded.schema)
    queries = [mq.Query(by=names, where=given) for names in tables_asked(by or [], given, loaded.schema)]
    check(queries, level, form, weights if misfit else None, misfit_of_clear=misfit and clear)
    if out is not None and out != "-":
        check_target(Path(out), overwrite=overwrite)
    counted = Given(data, loaded, weights, person, clear, Place(engine, url, verbose), accept_incomplete)
    with (
        warnings_said(),
        watched("counting") as watch,
        counted.opened(watch, "estimates are") as (source, unsure),
    ):
        if misfit and not hasattr(source, "misfit"):
            raise InputError("--misfit tests reports; this source has none to show.")
        tables = source.answer(queries)
        found = [
            Answer(
                query,
                table,
                table.nonnegative(nonnegative) if nonnegative else table,
                level,
                kind,
                source.misfit(query.names) if misfit else None,
            )
            for query, table in zip(queries, tables, strict=True)
        ]
    emit(written(found, form, rows, to_file=out not in {None, "-"}), out, overwrite=overwrite)
    if misfit and form == "csv":
        for answer in found:
            say(answer.misfit_words)
    if unsure is not None:
        say(unsure)


def written(found: Sequence[Answer], form: Form, rows: int, *, to_file: bool) -> str:
    """Return the answers in the form asked for."""
    if form == "json":
        return as_json([answer.to_dict() for answer in found])
    if form == "csv":
        return csv_text(found[0])
    return render(*tables_and_notes(found, rows), to_file=to_file)


def wanted_form(out: str | None, *, json: bool, csv: bool) -> Form:
    """Return the form asked for; the name of the file tells if no option does."""
    if json and csv:
        raise InputError("Give either --json or --csv.")
    ending = Path(out or "").suffix.lower()
    if json or (not csv and ending == ".json"):
        return "json"
    return "csv" if csv or ending == ".csv" else "text"


def check(
    queries: Sequence[mq.Query], level: float, form: Form, weights: str | None, *, misfit_of_clear: bool
) -> None:
    """Refuse what cannot work before any data are read."""
    if not 0 < level < 1:
        raise InputError(f"--level must be between 0 and 1, such as 0.95. Got {level:g} instead.")
    if form == "csv" and len(queries) > 1:
        raise InputError("A CSV holds one table: give one --by, or --json.")
    if misfit_of_clear:
        raise InputError("--misfit tests a disguise; --clear records have none.")
    if weights is not None:
        raise InputError("--misfit counts records and takes no --weights.")


def tables_asked(by: Sequence[str], where: Mapping[str, Category], schema: Schema) -> list[tuple[str, ...]]:
    """Return the variables of every table; none at all asks for one count."""
    tables = [names_in(text, schema, "--by") for text in by] or [()]
    for names in tables:
        for name in names:
            if name in where:
                raise InputError(f"{name!r} is in --by and in --where: count its categories, or fix one.")
    return tables


def conditions(texts: Sequence[str], schema: Schema) -> dict[str, Category]:
    """Return the conditions in "C=x", each category in its own type."""
    found: dict[str, Category] = {}
    for text in texts:
        variable, label = split(text, schema)
        if variable.name in found:
            raise InputError(f"--where names {variable.name!r} twice; a record has one category.")
        found[variable.name] = category_called(variable, label, "--where")
    return found


def split(text: str, schema: Schema) -> tuple[Variable, str]:
    """Return the two sides of a condition; a name that holds "=" is known by being a variable."""
    places = [place for place, character in enumerate(text) if character == "="]
    for place in places:
        if text[:place].strip() in schema:
            return schema[text[:place].strip()], text[place + 1 :].strip()
    if not places or not text[: places[0]].strip():
        raise InputError(f"--where {text!r}: a condition is given as VARIABLE=CATEGORY.")
    return variable_named(text[: places[0]].strip(), schema, "--where"), ""


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
        given = ", ".join(f"{name} = {category_text(label)}" for name, label in self.query.where)
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


def tables_and_notes(found: Sequence[Answer], rows: int) -> list[RenderableType]:
    """Return tables and what to know about them."""
    parts: list[RenderableType] = []
    for answer in found:
        parts += [text_table(answer, rows), *notes(answer, rows), ""]
    return parts[:-1]


def text_table(answer: Answer, rows: int) -> Table:
    """Return the cells of one answer."""
    table = plain_table(answer.title, answer.query.by)
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
        table.add_row(*(category_text(label) for label in labels), count_text, stderr_text, span)
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


def csv_text(answer: Answer) -> str:
    """Return one table as CSV, figures in full."""
    taken = next((name for name in answer.query.by if name in FIGURES), None)
    if taken is not None:
        raise InputError(f"A CSV would have two columns called {taken!r}; use --json.")
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([*answer.query.by, *FIGURES])
    for labels, figures in answer.cells():
        writer.writerow([*(category_text(label) for label in labels), *figures])
    return buffer.getvalue()


def p_words(p: float) -> str:
    """Return a p-value for reading."""
    return "< 0.0001" if p < 1e-4 else f"= {p:.4f}" if p < 0.01 else f"= {p:.2f}"


def fixed(value: float, digits: int = 1) -> str:
    """Return a number with so many digits after the point, never a negative zero."""
    shown_number = f"{value:,.{digits}f}"
    return shown_number.removeprefix("-") if not shown_number.strip("-0.,") else shown_number
