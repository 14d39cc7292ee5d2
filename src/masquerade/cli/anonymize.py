"""`masquerade anonymize`: a k-anonymous table from a clear one, and how anonymous a table is."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

import masquerade as mq
from masquerade.cli.options import Data, Json, Overwrite
from masquerade.cli.output import (
    as_json,
    check_target,
    emit,
    listed,
    progress,
    render,
    say,
    write_whole,
)
from masquerade.core.errors import InputError
from masquerade.core.words import counted

if TYPE_CHECKING:
    import pyarrow as pa

    from masquerade.anonymity.anonymize import Anonymized
    from masquerade.anonymity.measures import AnonymityReport


class TableOrCommand(TyperGroup):
    """A group that is a command itself, unless its first word names one of its commands."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Leave what follows the name of a command to that command."""
        ctx.command_follows = bool(args) and args[0] in self.commands
        ctx.allow_interspersed_args = not ctx.command_follows
        return super().parse_args(ctx, args)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options of the table's own command, unless another follows."""
        found = super().get_params(ctx)
        own = ctx.command is self and not getattr(ctx, "command_follows", False)
        return found if own else found[len(self.params) :]


app = typer.Typer(
    cls=TableOrCommand,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    subcommand_metavar="",
)

Quasi = Annotated[
    list[str] | None,
    typer.Option(
        "--quasi",
        help="Columns by which a person might be recognised, separated by commas.",
        metavar="COLUMNS",
        show_default=False,
    ),
]
Sensitive = Annotated[
    list[str] | None,
    typer.Option(
        help="Columns that nobody should be able to tell of a person, separated by commas.", metavar="COLUMNS"
    ),
]


@app.callback()
def command(
    context: typer.Context,
    data: Annotated[
        list[str] | None,
        typer.Argument(
            help="CSV (also .csv.gz), Parquet or Arrow files, a pattern, or - for CSV on standard input.",
            metavar="DATA",
            show_default=False,
        ),
    ] = None,
    *,
    k: Annotated[
        int | None, typer.Option("-k", help="How many rows must look alike, at least.", metavar="K")
    ] = None,
    quasi: Quasi = None,
    sensitive: Sensitive = None,
    hierarchies: Annotated[
        str | None,
        typer.Option(
            help="How values may be generalised before they are starred (YAML or JSON).", metavar="FILE"
        ),
    ] = None,
    keep: Annotated[
        list[str] | None, typer.Option(help="Pass these columns on as they are, too.", metavar="COLUMNS")
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            "-o",
            help="Where to: .csv, .parquet, .arrow, or - for CSV on standard output.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    shuffle: Annotated[
        bool, typer.Option("--shuffle", help="Mix the rows, so that order tells nothing.")
    ] = False,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Make every combination of quasi-identifiers occur at least K times, by starring as little as possible.

    A suppressed value is written as a star (*), a missing one stays missing; sensitive columns are passed on
    in clear, others are left out. k-anonymity is not differential privacy: it bounds no belief, and where all
    rows of a class share a sensitive value, that value is told. See: masquerade anonymize check --help

    Example: masquerade anonymize people.csv -k 10 --quasi age,sex,zip --sensitive illness --out shown.csv
    """
    if context.invoked_subcommand is not None:
        return
    for given, name in ((data, "DATA"), (k, "-k K"), (quasi, "--quasi COLUMNS"), (out, "--out FILE")):
        if not given and given != 0:
            raise InputError(f"{name} is missing. See: masquerade anonymize --help")
    assert data is not None and k is not None and out is not None  # noqa: S101, PT018  (just checked)
    if json and out == "-":
        raise InputError("--json and --out - both write to standard output; choose one.")
    by, told, kept = (
        columns_in("--quasi", quasi),
        columns_in("--sensitive", sensitive),
        columns_in("--keep", keep),
    )
    disjoint(by, told, kept)
    if k < 1:
        raise InputError(f"-k is a whole number, at least 1. Got {k} instead.")
    levels = None if hierarchies is None else mq.anonymity.load_hierarchies(hierarchies)
    table, columns, paths = read(data, [*by, *told, *kept])
    writer = prepared(out, table, overwrite=overwrite, inputs=paths)
    with progress("anonymizing"):
        result = mq.anonymity.anonymize(table, by, k, hierarchies=levels)
    report = mq.anonymity.check(typed(result.frame, told), by, told or None)
    shown = mixed(result.frame) if shuffle else result.frame
    with writer(shown) as target:
        for batch in shown.to_batches():
            target.write(batch)
    left_out = [name for name in columns if name not in table.column_names]
    if json:
        emit(as_json(plain(result, report, out, [*told, *kept], left_out) | {"shuffled": shuffle}))
        return
    for said in summary(line(result, out, [*told, *kept], left_out), report, shuffled=shuffle):
        say(said)


@app.command("check")
def check(
    data: Data,
    *,
    quasi: Quasi = None,
    sensitive: Sensitive = None,
    report: Annotated[
        str | None, typer.Option(help="Also write a page with pictures, as .html.", metavar="FILE")
    ] = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Tell how anonymous a table is: k, unique rows, and what its classes tell of sensitive columns.

    Rows are alike if their quasi-identifiers are written alike; a star equals a star.

    Example: masquerade anonymize check shown.csv --quasi age,sex,zip --sensitive illness --report shown.html
    """
    if not quasi:
        raise InputError("--quasi COLUMNS is missing. See: masquerade anonymize check --help")
    by, told = columns_in("--quasi", quasi), columns_in("--sensitive", sensitive)
    disjoint(by, told)
    if report is not None:
        if not report.lower().endswith((".html", ".htm")):
            raise InputError(f"{report}: a report is a page; its name ends in .html.")
        check_target(Path(report), overwrite=overwrite)
    table, _, paths = read(data, [*by, *told])
    found = mq.anonymity.check(typed(table, told), by, told or None)
    if report is not None:
        from masquerade.report.anonymity import anonymity_html  # noqa: PLC0415  (loads matplotlib)

        title = "standard input" if paths[0] == "-" else Path(paths[0]).name
        page = anonymity_html(found, title if len(paths) == 1 else f"{title} and {len(paths) - 1} more")
        write_whole(Path(report), page.encode(), overwrite=overwrite)
        say(f"the report is in {report}.")
    emit(as_json(found.to_dict()) if json else render(found.summary()))


def mixed(table: pa.Table) -> pa.Table:
    """Return the rows in random order, from the operating system's randomness."""
    from masquerade.disguising.columns import permutation  # noqa: PLC0415  (loads Arrow)

    return table.take(permutation(table.num_rows))


def summary(done: str, report: AnonymityReport, *, shuffled: bool) -> list[str]:
    """Return what to say of a table that was written."""
    if not report.rows:
        return [done]
    order = [] if shuffled else ["rows stand in the order of the input; --shuffle hides it."]
    return [done, *order, *warnings_of(report)]


def warnings_of(report: AnonymityReport) -> list[str]:
    """Return a line for every sensitive column that some classes tell outright."""
    return [
        f"warning: {own.name}: {counted(own.homogeneous_rows, 'row')} in classes with one value only, which "
        f"is told of each of them ({counted(own.homogeneous_classes, 'such class', 'such classes')})."
        for own in report.sensitive
        if own.homogeneous_classes
    ]


def columns_in(option: str, texts: list[str] | None) -> list[str]:
    """Return the columns in texts like ``age,sex``; a name with a comma is put in double quotes."""
    names = [
        name.strip() for text in texts or [] for name in next(csv.reader([text], skipinitialspace=True), [])
    ]
    if not all(names):
        raise InputError(f"{option}: the names of columns are separated by single commas.")
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{option}: {name!r} is listed twice.")
    return names


def disjoint(by: Sequence[str], told: Sequence[str], kept: Sequence[str] = ()) -> None:
    """Refuse a column with two roles."""
    for name in (*told, *kept):
        if name in by:
            raise InputError(f"{name!r} is a quasi-identifier and cannot be passed on as it is.")
        if name in told and name in kept:
            raise InputError(f"{name!r} is sensitive, and passed on already; --keep is for other columns.")


def read(data: list[str], wanted: Sequence[str]) -> tuple[pa.Table, list[str], tuple[str, ...]]:
    """Return the wanted columns in the order of the file, all columns that it has, and the files."""
    import pyarrow as pa  # noqa: PLC0415  (slow to load)

    from masquerade.frames.file_reader import open_batches  # noqa: PLC0415

    with open_batches(data, list(wanted)) as batches:
        order = [name for name in batches.file_names if name in wanted]
        found = list(batches)
        if found:
            table = pa.Table.from_batches(found).select(order)
        else:
            table = pa.table({name: pa.array([], pa.string()) for name in order})
        return table, list(batches.file_names), batches.paths


def prepared(out: str, table: pa.Table, *, overwrite: bool, inputs: Sequence[str]) -> Any:
    """Return what opens the output for a frame; a target that cannot be written is refused now."""
    from masquerade.frames.file_writer import AtomicWriter  # noqa: PLC0415

    files = [path for path in inputs if path != "-"]
    AtomicWriter(out, table.schema, {}, overwrite=overwrite, inputs=files)
    return lambda frame: AtomicWriter(out, frame.schema, {}, overwrite=overwrite, inputs=files)


def typed(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return the table with columns of written numbers as numbers, so that their order counts."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    for name in names:
        if pa.types.is_string(table.schema.field(name).type):
            try:
                numbers = table[name].cast(pa.float64())
            except pa.ArrowInvalid:
                continue
            if pc.count_distinct(numbers) == pc.count_distinct(table[name]):  # 07030 and 7030 stay two values
                table = table.set_column(table.schema.get_field_index(name), name, numbers)
    return table


def plain(
    result: Anonymized, report: AnonymityReport, out: str, told: list[str], left_out: list[str]
) -> dict[str, Any]:
    """Return what was done, for programs."""
    return {
        "out": out,
        "k": result.k,
        "quasi_identifiers": list(result.quasi_identifiers),
        "disclosed_in_clear": told,
        "left_out": left_out,
        "utility": result.utility.to_dict(),
        "check": report.to_dict(),
    }


def line(result: Anonymized, out: str, told: list[str], left_out: list[str]) -> str:
    """Return what was done, in a line."""
    target = "standard output" if out == "-" else out
    if not result.utility.rows:
        return f"{target} has no rows, since there are none to anonymize."
    parts = [f"{target} is {result.summary()}"]
    if told:
        parts.append(f"in clear: {listed(told)}")
    if left_out:
        parts.append(f"left out: {listed(left_out)}")
    return "; ".join(parts) + "."
