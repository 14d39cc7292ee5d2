"""How options and groups of commands are declared, and the options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import typer
from typer.core import TyperGroup

from masquerade.cli.output import say
from masquerade.core.errors import PluginError
from masquerade.core.util.plugins import Group, load_plugin, plugins

HELP = {"help_option_names": ["-h", "--help"]}


def group(told: str, **more: Any) -> typer.Typer:
    """Return a group of commands."""
    return typer.Typer(help=told, no_args_is_help=True, context_settings=HELP, **more)


def argument(told: str, metavar: str) -> Any:
    """Return an argument that has no default."""
    return typer.Argument(help=told, metavar=metavar, show_default=False)


def option(told: str, metavar: str | None = None, *names: str, **more: Any) -> Any:
    """Return an option; without names it is called as its parameter is."""
    return typer.Option(*names, help=told, metavar=metavar, **more)


def required(told: str, *names: str, metavar: str = "FILE") -> Any:
    """Return an option that has no default."""
    return option(told, metavar, *names, show_default=False)


def flag(told: str, *names: str) -> Any:
    """Return an option that is given or not."""
    return typer.Option(*names, help=told)


_FILES = (
    "CSV (also .csv.gz, .tsv), Parquet, Arrow, Excel, SPSS, Stata, SAS or basket files (.baskets, .dat), a "
    "quoted pattern, or - for CSV on standard input"
)
Data = Annotated[list[str], argument(f"{_FILES}.", "DATA")]
Reports = Annotated[
    list[str], argument(f"{_FILES}; with --engine postgres or spark, the name of a table.", "DATA")
]
ENGINES = ("auto", "memory", "duckdb", "spark", "postgres")


def _engine_named(name: str) -> str:
    """Return the name of an engine: ours, or a source that another package brings."""
    if name in ENGINES or name in plugins("sources"):
        return name
    brought = ", ".join(("", *plugins("sources")))
    raise typer.BadParameter(f"{name!r} is not one of {', '.join(ENGINES)}{brought}")


Engine = Annotated[
    str,
    option(
        "Where to count. auto: files in memory if they are small, else in DuckDB, out of core. With spark or "
        "postgres DATA are the name of a table.",
        f"<{'|'.join(ENGINES)}>",
        parser=_engine_named,
    ),
]
Url = Annotated[
    str | None,
    option(
        "Where the table lies: postgresql://user@host/database, or a Spark master such as "
        "spark://host:7077. Without it MASQUERADE_URL, then PostgreSQL's own variables (PGHOST, …) or "
        "Spark's settings. A password is safer in a variable or ~/.pgpass.",
        "URL",
    ),
]
Verbose = Annotated[bool, flag("Say where records are counted, and why.", "--verbose", "-v")]
PolicyFile = Annotated[str, required("The policy file (YAML or JSON).", "--policy", "-p")]
CarriedPolicy = Annotated[
    str | None,
    option(
        "The policy file (YAML or JSON); without it the policy that DATA carry along.",
        "FILE",
        "--policy",
        "-p",
    ),
]
PolicyArgument = Annotated[str, argument("The policy file (YAML or JSON).", "POLICY")]
Weights = Annotated[str | None, option("Column of survey weights.", "COLUMN")]
Person = Annotated[
    str | None, option("Column that names the person: a second record is refused.", "COLUMN", "--id")
]
_SURVEY = "Complex surveys"
Strata = Annotated[
    str | None, option("Column of the stratum that a person was drawn in.", "COLUMN", rich_help_panel=_SURVEY)
]
Clusters = Annotated[
    str | None,
    option("Column of the primary unit that a person was drawn with.", "COLUMN", rich_help_panel=_SURVEY),
]
Fpc = Annotated[
    str | None,
    option(
        "Column of how many units the stratum has in the population, for the finite-population correction.",
        "COLUMN",
        rich_help_panel=_SURVEY,
    ),
]
Replicates = Annotated[
    str | None,
    option(
        "Columns of replicate weights, as A,B or a quoted pattern such as 'rep*'.",
        "COLUMNS",
        rich_help_panel=_SURVEY,
    ),
]
ReplicateMethod = Annotated[
    Literal["bootstrap", "jackknife", "brr"],
    option("How replicate weights were made.", rich_help_panel=_SURVEY),
]
ReplicateScale = Annotated[
    float | None,
    option(
        "What squared deviations of replicates are multiplied with, if it is not 1/R, or (R - 1)/R of a "
        "jackknife.",
        "NUMBER",
        rich_help_panel=_SURVEY,
    ),
]
Variables = Annotated[
    str | None, option("Only these variables, as A,B; without it all.", "A,B", "--variables")
]
Separator = Annotated[
    str | None, option("What separates the fields of a CSV (, ; | tab); found by looking.", "CHAR", "--sep")
]
Decimal = Annotated[
    str | None, option("The decimal mark of a CSV (. or ,); found by looking.", "CHAR", "--decimal")
]
Encoding = Annotated[
    str | None,
    option("How a CSV writes letters (utf-8, latin-1, …); found by looking.", "NAME", "--encoding"),
]
Clear = Annotated[bool, flag("DATA are clear records, read by the policy's variables.", "--clear")]
AcceptIncomplete = Annotated[
    bool,
    flag(
        "Go on though DATA say that rows are missing, not at random: results are about those left.",
        "--accept-incomplete",
    ),
]
Json = Annotated[bool, flag("Print JSON instead of text.", "--json")]
Overwrite = Annotated[bool, flag("Replace the file if it exists.", "--overwrite")]
Out = Annotated[str | None, option("Write to this file instead of standard output.", "FILE", "--out", "-o")]
Into = Annotated[
    str,
    required(
        "Where to: .csv, .tsv, .parquet, .arrow, .xlsx, .sav, .dta, .xpt, .baskets, or - for CSV on standard "
        "output.",
        "--out",
        "-o",
    ),
]
Folder = Annotated[Path, argument("A new folder for it.", "FOLDER")]
Wait = Annotated[
    float, option("Seconds to wait for a service that is being started.", "SECONDS", "--wait", min=0)
]
WAIT = 120.0


class PluginGroup(TyperGroup):
    """A group with the commands that other packages bring under an entry point group.

    Our own names come first and cannot be taken. A part that cannot be used costs its own command and a line
    where commands are listed, never the others.
    """

    plugin_group: ClassVar[Group] = "commands"

    def part(self, name: str) -> Any:
        """Return what becomes a command: a Typer application or a function."""
        return load_plugin(self.plugin_group, name, _problem)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return our commands, then those of other packages."""
        own = super().list_commands(ctx)
        return [*own, *(name for name in plugins(self.plugin_group) if name not in own)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command; where another package's cannot be used, say so and go on without it."""
        try:
            return super().get_command(ctx, cmd_name) or self._brought(cmd_name)
        except PluginError as error:
            say(f"warning: {error}")
            return None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that is run; here a part that cannot be used is an error."""
        if args and args[0] not in self.commands:
            self._brought(args[0])
        return super().resolve_command(ctx, args)

    def _brought(self, name: str) -> Any:
        if name not in plugins(self.plugin_group):
            return None
        return command_of(name, self.part(name))


def command_of(name: str, part: Any) -> Any:
    """Return the command that a Typer application, or a function, becomes under a name."""
    if not isinstance(part, typer.Typer):
        application = typer.Typer(add_completion=False, rich_markup_mode="rich")
        application.command(name)(part)
        part = application
    command = typer.main.get_command(part)
    command.name = name
    return command


def _problem(part: Any) -> str | None:
    known = isinstance(part, typer.Typer) or callable(part)
    return None if known else f"it leads to a {type(part).__name__}, not to a Typer application or a function"
