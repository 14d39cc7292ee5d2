"""`masquerade estimate`: how many there are, and how sure that is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

import masquerade as mq
from masquerade.cli.data_source import Given, Place
from masquerade.cli.learner_commands import warnings_said
from masquerade.cli.options import (
    AcceptIncomplete,
    Engine,
    Json,
    Out,
    Overwrite,
    PolicyFile,
    Reports,
    Url,
    Verbose,
)
from masquerade.cli.output import as_json, check_target, emit, render, say
from masquerade.cli.progress import watched
from masquerade.cli.query_arguments import conditions, tables_asked
from masquerade.core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from masquerade.cli.answer_output import Answer

Form = Literal["text", "json", "csv"]


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
    weights: Annotated[str | None, typer.Option(help="Column of survey weights.", metavar="COLUMN")] = None,
    person: Annotated[
        str | None,
        typer.Option(
            "--id", help="Column that names the person: a second record is refused.", metavar="COLUMN"
        ),
    ] = None,
    clear: Annotated[
        bool, typer.Option("--clear", help="DATA are clear records, read by the policy's variables.")
    ] = False,
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
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV instead of text (one table).")] = False,
    out: Out = None,
    overwrite: Overwrite = False,
) -> None:
    """Estimate counts from disguised records, with standard errors and intervals.

    Example: masquerade estimate disguised.csv --policy policy.yaml --by smoker,region
    """
    from masquerade.cli import answer_output  # noqa: PLC0415  (loads numpy)

    form = wanted_form(out, json=json, csv=csv)
    loaded = mq.Policy.load(policy)
    given = conditions(where or [], loaded.schema)
    queries = [mq.Query(by=names, where=given) for names in tables_asked(by or [], given, loaded.schema)]
    check(queries, level, form, weights if misfit else None, misfit_of_clear=misfit and clear)
    if out is not None and out != "-":
        check_target(Path(out), overwrite=overwrite)
    counted = Given(data, loaded, weights, person, clear, Place(engine, url, verbose), accept_incomplete)
    unsure = counted.origin_note("estimates are")
    with warnings_said(), watched("counting") as watch, counted.opened(watch) as source:
        tables = source.answer(queries)
        found = [
            answer_output.Answer(
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
    from masquerade.cli import answer_output  # noqa: PLC0415

    if form == "json":
        return as_json([answer.to_dict() for answer in found])
    if form == "csv":
        return answer_output.as_csv(found[0])
    return render(*answer_output.as_text(found, rows), to_file=to_file)


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
