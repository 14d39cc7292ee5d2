"""`masquerade anonymize`: make k-anonymous tables, and measure how anonymous a table is."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

import masquerade as mq
from masquerade.cli import mgas, output
from masquerade.cli.options import HELP, Data, Json, Overwrite, argument, flag, option
from masquerade.core.errors import InputError
from masquerade.core.util.formatting import counted

if TYPE_CHECKING:
    import pyarrow as pa

    from masquerade.anonymity.anonymize import Anonymized
    from masquerade.anonymity.measures import AnonymityReport
    from masquerade.anonymity.requirements import Requirement


class _TableOrCommand(TyperGroup):
    """A group that is itself a command unless its first argument names a subcommand."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.command_follows = bool(args) and args[0] in self.commands
        ctx.allow_interspersed_args = not ctx.command_follows
        return super().parse_args(ctx, args)

    def get_params(self, ctx: Any) -> list[Any]:
        found = super().get_params(ctx)
        own = ctx.command is self and not getattr(ctx, "command_follows", False)
        return found if own else found[len(self.params) :]


app = typer.Typer(
    cls=_TableOrCommand, invoke_without_command=True, context_settings=HELP, subcommand_metavar=""
)

Quasi = Annotated[
    list[str] | None,
    option("Columns by which a person might be recognised, separated by commas.", "COLUMNS", "--quasi"),
]
Sensitive = Annotated[
    list[str] | None,
    option("Columns whose values must not be linked to a person, separated by commas.", "COLUMNS"),
]


@app.callback()
def command(
    context: typer.Context,
    data: Annotated[
        list[str] | None,
        argument(
            "CSV (also .csv.gz), Parquet or Arrow files, a pattern, or - for CSV on standard input.", "DATA"
        ),
    ] = None,
    *,
    k: Annotated[
        int | None, option("Least number of rows that share their quasi-identifiers.", "K", "-k")
    ] = None,
    quasi: Quasi = None,
    sensitive: Sensitive = None,
    diverse: Annotated[
        list[str] | None,
        option(
            "l-diversity: the least number of distinct values of a sensitive column in every class, as "
            "illness=3, illness=entropy:2.5 or illness=recursive:C:L.",
            "COLUMN=L",
        ),
    ] = None,
    close: Annotated[
        list[str] | None,
        option(
            "t-closeness: the largest distance between a class and the whole table, as illness=0.2, or "
            "income=ordered:0.2 for a distance that uses the order of numbers.",
            "COLUMN=T",
        ),
    ] = None,
    hierarchies: Annotated[
        str | None, option("How values may be generalised before they are suppressed (YAML or JSON).", "FILE")
    ] = None,
    keep: Annotated[list[str] | None, option("Also copy these columns unchanged.", "COLUMNS")] = None,
    out: Annotated[
        str | None,
        option(
            "Output file: .csv, .parquet, .arrow, or - for CSV on standard output.", "FILE", "--out", "-o"
        ),
    ] = None,
    shuffle: Annotated[
        bool, flag("Shuffle the rows, so that their order reveals nothing.", "--shuffle")
    ] = False,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Make every combination of quasi-identifiers occur at least K times, suppressing as little as possible.

    A suppressed value is written as a star (*); a missing value stays missing. Sensitive columns are copied
    in clear; all other columns are omitted.

    k-anonymity is not differential privacy: it does not bound what an attacker can infer. If all rows of a
    class share a sensitive value, that value is revealed. --diverse and --close prevent this, at the cost of
    more suppressed values. See also: masquerade anonymize check --help

    Example: masquerade anonymize people.csv -k 10 --quasi age,sex,zip --sensitive illness --out shown.csv
    """
    if context.invoked_subcommand is not None:
        return
    needed = ((data, "DATA"), (k, "-k K"), (quasi, "--quasi COLUMNS"), (out, "--out FILE"))
    missing = [name for given, name in needed if not given and given != 0]
    if missing:
        raise InputError(f"{missing[0]} is missing. See: masquerade anonymize --help")
    assert data is not None and k is not None and out is not None  # noqa: S101, PT018  (just checked)
    output.check_streams(out, json=json)
    by, sensitive_names = columns_in("--quasi", quasi), columns_in("--sensitive", sensitive)
    kept = columns_in("--keep", keep)
    _disjoint(by, sensitive_names, kept)
    required = _parse_requirements(diverse, close, sensitive_names)
    output.refuse((k < 1, f"-k is a whole number, at least 1. Got {k} instead."))
    levels = None if hierarchies is None else mq.anonymity.load_hierarchies(hierarchies)
    table, columns, paths = _read(data, [*by, *sensitive_names, *kept])
    from masquerade.frames.file_writer import AtomicWriter  # noqa: PLC0415  (loads Arrow)

    how: dict[str, Any] = {"overwrite": overwrite, "inputs": [path for path in paths if path != "-"]}
    AtomicWriter(out, table.schema, {}, **how)  # refuses a target that cannot be written
    with output.progress("anonymizing"):
        typed = _cast_numbers(table, sensitive_names)
        result = mq.anonymity.anonymize(typed, by, k, hierarchies=levels, sensitive=required)
    report = mq.anonymity.check(result.frame, by, sensitive_names or None)
    shown = result.frame
    for name in sensitive_names:
        shown = shown.set_column(shown.schema.get_field_index(name), table.schema.field(name), table[name])
    if shuffle:
        from masquerade.disguising.columns import permutation  # noqa: PLC0415  (loads Arrow)

        shown = shown.take(permutation(shown.num_rows))
    with AtomicWriter(out, shown.schema, {}, **how) as target:
        for batch in shown.to_batches():
            target.write(batch)
    passed, left_out = [*sensitive_names, *kept], [name for name in columns if name not in table.column_names]
    if json:
        output.emit(_plain(result, report, out, passed, left_out) | {"shuffled": shuffle})
        return
    output.say(_line(result, out, passed, left_out))
    if report.rows and not shuffle:
        output.say("rows are in the order of the input; --shuffle hides it.")
    for warning in _warnings(report):
        output.say(warning)


app.command("mgas")(mgas.command)


@app.command("check")
def check(
    data: Data,
    *,
    quasi: Quasi = None,
    sensitive: Sensitive = None,
    report: Annotated[str | None, option("Also write a page with plots (.html).", "FILE")] = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Measure how anonymous a table is: k, unique rows, and what its classes reveal of sensitive columns.

    Rows whose quasi-identifiers have the same text form a class; a star equals another star.

    Example: masquerade anonymize check shown.csv --quasi age,sex,zip --sensitive illness --report shown.html
    """
    output.refuse((not quasi, "--quasi COLUMNS is missing. See: masquerade anonymize check --help"))
    by, sensitive_names = columns_in("--quasi", quasi), columns_in("--sensitive", sensitive)
    _disjoint(by, sensitive_names)
    if report is not None and not report.lower().endswith((".html", ".htm")):
        raise InputError(f"{report}: a report is a page: its name must end in .html.")
    output.check_target(report, overwrite=overwrite)
    table, _, paths = _read(data, [*by, *sensitive_names])
    found = mq.anonymity.check(_cast_numbers(table, sensitive_names), by, sensitive_names or None)
    if report is not None:
        from masquerade.report.anonymity import anonymity_html  # noqa: PLC0415  (loads matplotlib)

        title = "standard input" if paths[0] == "-" else Path(paths[0]).name
        page = anonymity_html(found, title if len(paths) == 1 else f"{title} and {len(paths) - 1} more")
        output.write_whole(report, page.encode(), overwrite=overwrite)
        output.say(f"the report is in {report}.")
    output.emit(found.to_dict() if json else output.render(found.summary()))


@app.command("risk")
def risk(
    data: Data,
    *,
    quasi: Quasi = None,
    weight: Annotated[
        str | None, option("Column with the number of people that a sampled record represents.", "COLUMN")
    ] = None,
    household: Annotated[str | None, option("Column that names the household of a record.", "COLUMN")] = None,
    out: Annotated[
        str | None,
        option("Also write the risk of every record, in the order of the input (.csv, .parquet).", "FILE"),
    ] = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Estimate how likely each record of a table is to be recognised by its quasi-identifiers.

    Without --weight the table is the whole population. The estimate rests on a model; it is not a guarantee.

    Example: masquerade anonymize risk sample.csv --quasi age,sex,zip --weight people --out risks.csv
    """
    output.refuse((not quasi, "--quasi COLUMNS is missing. See: masquerade anonymize risk --help"))
    by = columns_in("--quasi", quasi)
    others = [name for name in (weight, household) if name is not None]
    _disjoint(by, others)
    table, _, paths = _read(data, [*by, *others])
    found = mq.anonymity.risk(
        _cast_numbers(table, [weight] if weight else []), by, weight=weight, household=household
    )
    if out is not None:
        import pyarrow as pa  # noqa: PLC0415

        from masquerade.frames.file_writer import AtomicWriter  # noqa: PLC0415

        columns = {"risk": found.records, "frequency": found.frequencies, "population": found.estimated}
        if found.households is not None:
            columns["household_risk"] = found.households
        batch = pa.record_batch({name: pa.array(values) for name, values in columns.items()})
        inputs = [path for path in paths if path != "-"]
        with AtomicWriter(out, batch.schema, {}, overwrite=overwrite, inputs=inputs) as target:
            target.write(batch)
        output.say(f"the risk of every record is in {out}: show it only to people who may see the table.")
    output.emit(found.to_dict() if json else output.render(found.summary()))


def _parse_requirements(
    diverse: list[str] | None, close: list[str] | None, sensitive_names: Sequence[str]
) -> dict[str, list[Requirement]]:
    """Parse requirements on classes, such as ``illness=3``, and return them by column."""
    kinds: dict[str, dict[str, Any]] = {
        "--diverse": {
            "": lambda l: mq.anonymity.DistinctDiversity(int(l)),
            "entropy": lambda l: mq.anonymity.EntropyDiversity(float(l)),
            "recursive": lambda c, l: mq.anonymity.RecursiveDiversity(float(c), int(l)),
        },
        "--close": {
            "": lambda t: mq.anonymity.Closeness(float(t)),
            "ordered": lambda t: mq.anonymity.Closeness(float(t), ordered=True),
        },
    }
    found: dict[str, list[Requirement]] = {}
    for name, texts in (("--diverse", diverse), ("--close", close)):
        for text in texts or []:
            column, sign, rule = text.rpartition("=")
            kind, *numbers = rule.split(":") if ":" in rule else ("", rule)
            if not sign or column not in sensitive_names:
                raise InputError(
                    f"{name}: {column or text!r} is not among --sensitive. Write COLUMN=NUMBER for a column "
                    "that is."
                )
            try:
                made = kinds[name][kind](*numbers)
            except (KeyError, TypeError, ValueError) as error:
                if isinstance(error, InputError):
                    raise
                forms = " or ".join(f"{column}={word}{':' if word else ''}…" for word in kinds[name])
                raise InputError(
                    f"{name}: {rule!r} cannot be read; give {forms}, with numbers in place of the dots."
                ) from None
            found.setdefault(column, []).append(made)
    return found


def columns_in(option: str, texts: list[str] | None) -> list[str]:
    """Parse lists of columns such as ``age,sex``; a name with a comma needs double quotes."""
    names = [
        name.strip() for text in texts or [] for name in next(csv.reader([text], skipinitialspace=True), [])
    ]
    if not all(names):
        raise InputError(f"{option}: the names of columns are separated by single commas.")
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{option}: {name!r} is listed twice.")
    return names


def _disjoint(by: Sequence[str], sensitive_names: Sequence[str], kept: Sequence[str] = ()) -> None:
    for name in (*sensitive_names, *kept):
        if name in by:
            raise InputError(f"{name!r} is a quasi-identifier and cannot be copied unchanged.")
        if name in sensitive_names and name in kept:
            raise InputError(f"{name!r} is sensitive, so it is copied anyway; --keep is for other columns.")


def _read(data: list[str], wanted: Sequence[str]) -> tuple[pa.Table, list[str], tuple[str, ...]]:
    """Return the wanted columns in the order of the file, the names of all its columns, and the files."""
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


def _cast_numbers(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Convert columns of numbers that are written as text to numbers, so that they are ordered as numbers."""
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


def _plain(
    result: Anonymized, report: AnonymityReport, out: str, in_clear: list[str], left_out: list[str]
) -> dict[str, Any]:
    return {
        "out": out,
        "k": result.k,
        "quasi_identifiers": list(result.quasi_identifiers),
        "required": {name: [str(item) for item in items] for name, items in result.required.items()},
        "disclosed_in_clear": in_clear,
        "left_out": left_out,
        "utility": result.utility.to_dict(),
        "check": report.to_dict(),
    }


def _line(result: Anonymized, out: str, in_clear: list[str], left_out: list[str]) -> str:
    target = "standard output" if out == "-" else out
    if not result.utility.rows:
        return f"{target} has no rows, since there are none to anonymize."
    parts = [f"{target} is {result.summary()}"]
    if in_clear:
        parts.append(f"in clear: {output.join_names(in_clear)}")
    if left_out:
        parts.append(f"omitted: {output.join_names(left_out)}")
    return "; ".join(parts) + "."


def _warnings(report: AnonymityReport) -> list[str]:
    """Return a warning for each sensitive column that has a single value in some class."""
    return [
        f"warning: {item.name}: {counted(item.homogeneous_rows, 'row')} in classes with only one value, "
        f"which is thereby revealed ({counted(item.homogeneous_classes, 'such class', 'such classes')})."
        for item in report.sensitive
        if item.homogeneous_classes
    ]
