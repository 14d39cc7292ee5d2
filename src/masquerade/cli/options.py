"""Options that several commands share, spelt once."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from masquerade.core.plugins import plugins


def argument(told: str, metavar: str) -> Any:
    """Return an argument that has no default."""
    return typer.Argument(help=told, metavar=metavar, show_default=False)


def required(told: str, *names: str, metavar: str = "FILE") -> Any:
    """Return an option that has no default."""
    return typer.Option(*names, help=told, metavar=metavar, show_default=False)


Data = Annotated[
    list[str],
    typer.Argument(
        help="CSV (also .csv.gz), Parquet or Arrow files, a quoted pattern, or - for CSV on standard input.",
        metavar="DATA",
        show_default=False,
    ),
]
Reports = Annotated[
    list[str],
    typer.Argument(
        help="CSV (also .csv.gz), Parquet or Arrow files, a quoted pattern, or - for CSV on standard input; "
        "with --engine postgres or spark, the name of a table.",
        metavar="DATA",
        show_default=False,
    ),
]
ENGINES = ("auto", "memory", "duckdb", "spark", "postgres")


def engine_named(name: str) -> str:
    """Return the name of an engine: ours, or a source that another package brings."""
    if name in ENGINES or name in plugins("sources"):
        return name
    brought = ", ".join(("", *plugins("sources")))
    raise typer.BadParameter(f"{name!r} is not one of {', '.join(ENGINES)}{brought}")


Engine = Annotated[
    str,
    typer.Option(
        help="Where to count. auto: files in memory if they are small, else in DuckDB, out of core. With "
        "spark or postgres DATA are the name of a table.",
        parser=engine_named,
        metavar=f"<{'|'.join(ENGINES)}>",
    ),
]
Url = Annotated[
    str | None,
    typer.Option(
        help="Where the table lies: postgresql://user@host/database, or a Spark master such as "
        "spark://host:7077. Without it MASQUERADE_URL, then PostgreSQL's own variables (PGHOST, …) or "
        "Spark's settings. A password is safer in a variable or ~/.pgpass.",
        metavar="URL",
        show_default=False,
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Say where records are counted, and why.")]
PolicyFile = Annotated[
    str,
    typer.Option(
        "--policy", "-p", help="The policy file (YAML or JSON).", metavar="FILE", show_default=False
    ),
]
PolicyArgument = Annotated[
    str, typer.Argument(help="The policy file (YAML or JSON).", metavar="POLICY", show_default=False)
]
Weights = Annotated[str | None, typer.Option(help="Column of survey weights.", metavar="COLUMN")]
Person = Annotated[
    str | None,
    typer.Option("--id", help="Column that names the person: a second record is refused.", metavar="COLUMN"),
]
Clear = Annotated[
    bool, typer.Option("--clear", help="DATA are clear records, read by the policy's variables.")
]
AcceptIncomplete = Annotated[
    bool,
    typer.Option(
        "--accept-incomplete",
        help="Go on though DATA say that rows are missing, not at random: results are about those left.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")]
Out = Annotated[
    str | None,
    typer.Option("--out", "-o", help="Write to this file instead of standard output.", metavar="FILE"),
]
Wait = Annotated[
    float,
    typer.Option(
        "--wait",
        help="Seconds to wait for a service that is being started.",
        metavar="SECONDS",
        min=0,
        show_default=True,
    ),
]
WAIT = 60.0
