"""Functions that declare options and command groups, and the options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import typer
from typer.core import TyperGroup

from masquerade.cli.output import say
from masquerade.core.errors import PluginError
from masquerade.core.util.plugins import Group, load_plugin, plugins

HELP = {"help_option_names": ["-h", "--help"]}
POLICY_ENDINGS = (".yaml", ".yml", ".json")


def group(text: str, **more: Any) -> typer.Typer:
    """Return a group of commands; `text` is its help text."""
    return typer.Typer(help=text, no_args_is_help=True, context_settings=HELP, **more)


def argument(text: str, metavar: str) -> Any:
    """Return an argument without a default; `text` is its help text."""
    return typer.Argument(help=text, metavar=metavar, show_default=False)


def option(text: str, metavar: str | None = None, *names: str, **more: Any) -> Any:
    """Return an option with the help text `text`; without `names`, it is named after its parameter."""
    return typer.Option(*names, help=text, metavar=metavar, **more)


def required_option(text: str, *names: str, metavar: str = "FILE") -> Any:
    """Return an option without a default; `text` is its help text."""
    return option(text, metavar, *names, show_default=False)


def flag(text: str, *names: str) -> Any:
    """Return an option without a value; `text` is its help text."""
    return typer.Option(*names, help=text)


_FILES = (
    "CSV (also .csv.gz, .tsv), Parquet, Arrow, Excel, SPSS, Stata, SAS or basket files (.baskets, .dat), a "
    "quoted pattern, the folder of a Delta or Iceberg table, or - for CSV on standard input"
)
Data = Annotated[list[str], argument(f"{_FILES}.", "DATA")]
Reports = Annotated[
    list[str], argument(f"{_FILES}. With --engine postgres or spark, the name of a table.", "DATA")
]
ENGINES = ("auto", "memory", "duckdb", "spark", "postgres")


def _parse_engine(name: str) -> str:
    """Return the name of an engine; raise BadParameter if it is neither built in nor a plug-in."""
    if name in ENGINES or name in plugins("sources"):
        return name
    from_plugins = ", ".join(("", *plugins("sources")))
    raise typer.BadParameter(f"{name!r} is not one of {', '.join(ENGINES)}{from_plugins}")


Engine = Annotated[
    str,
    option(
        "Where to count. auto: small files in memory, large files in DuckDB, out of core. With spark or "
        "postgres, DATA is the name of a table.",
        f"<{'|'.join(ENGINES)}>",
        parser=_parse_engine,
    ),
]
Url = Annotated[
    str | None,
    option(
        "Location of the table: postgresql://user@host/database, or a Spark master such as "
        "spark://host:7077. By default MASQUERADE_URL, then PostgreSQL's own variables (PGHOST, …) or "
        "Spark's settings. A password is safer in a variable or in ~/.pgpass.",
        "URL",
    ),
]
Verbose = Annotated[bool, flag("Print where records are counted, and why.", "--verbose", "-v")]
PolicyFile = Annotated[str, required_option("The policy file (YAML or JSON).", "--policy", "-p")]
CarriedPolicy = Annotated[
    str | None,
    option(
        "The policy file (YAML or JSON); by default the policy stored with DATA.",
        "FILE",
        "--policy",
        "-p",
    ),
]
PolicyArgument = Annotated[str, argument("The policy file (YAML or JSON).", "POLICY")]
Weights = Annotated[str | None, option("Column of survey weights.", "COLUMN")]
Counts = Annotated[
    str | None,
    option(
        "Column that states how many records a row represents, for a frequency table. Weights are different: "
        "a weight states how many people a record represents.",
        "COLUMN",
    ),
]
Person = Annotated[
    str | None,
    option("Column that names the person; a second record of a person is refused.", "COLUMN", "--id"),
]
_SURVEY = "Complex surveys"
Strata = Annotated[str | None, option("Column of the sampling stratum.", "COLUMN", rich_help_panel=_SURVEY)]
Clusters = Annotated[
    str | None,
    option("Column of the primary sampling unit.", "COLUMN", rich_help_panel=_SURVEY),
]
Fpc = Annotated[
    str | None,
    option(
        "Column with the number of units of the stratum in the population (finite-population correction).",
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
        "Factor of the squared deviations of replicates. By default 1/R; for a jackknife (R - 1)/R.",
        "NUMBER",
        rich_help_panel=_SURVEY,
    ),
]
Noise = Annotated[
    str | None,
    option(
        "Add noise to the counts of clear records, within the budget of this ledger (masquerade noise init).",
        "LEDGER",
        "--noise",
    ),
]
Variables = Annotated[
    str | None, option("Use only these variables, as A,B; by default all.", "A,B", "--variables")
]
Separator = Annotated[
    str | None, option("Field separator of a CSV (, ; | tab); detected by default.", "CHAR", "--sep")
]
Decimal = Annotated[
    str | None, option("Decimal mark of a CSV (. or ,); detected by default.", "CHAR", "--decimal")
]
Encoding = Annotated[
    str | None,
    option("Character encoding of a CSV (utf-8, latin-1, …); detected by default.", "NAME", "--encoding"),
]
Clear = Annotated[bool, flag("DATA contains clear records with the variables of the policy.", "--clear")]
AcceptIncomplete = Annotated[
    bool,
    flag(
        "Continue although rows of DATA are missing, not at random: results describe the remaining rows.",
        "--accept-incomplete",
    ),
]
Json = Annotated[bool, flag("Print JSON instead of text.", "--json")]
Overwrite = Annotated[bool, flag("Replace the file if it exists.", "--overwrite")]
Out = Annotated[str | None, option("Write to this file instead of standard output.", "FILE", "--out", "-o")]
Into = Annotated[
    str,
    required_option(
        "Output file: .csv, .tsv, .parquet, .arrow, .xlsx, .sav, .dta, .xpt, .jsonl, .baskets, or - for CSV "
        "on standard output.",
        "--out",
        "-o",
    ),
]
Folder = Annotated[Path, argument("A new folder.", "FOLDER")]
Wait = Annotated[float, option("Seconds to wait for a service that is starting.", "SECONDS", "--wait", min=0)]
WAIT = 120.0


class PluginGroup(TyperGroup):
    """A group of commands, including those that other packages register as entry points.

    Built-in names take precedence. If a plug-in cannot be loaded, only its own command is missing, and
    listing the commands prints a warning.
    """

    plugin_group: ClassVar[Group] = "commands"

    def part(self, name: str) -> Any:
        """Load a plug-in: a Typer application or a function."""
        return load_plugin(self.plugin_group, name, _type_problem)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the built-in commands, then those of other packages."""
        own = super().list_commands(ctx)
        return [*own, *(name for name in plugins(self.plugin_group) if name not in own)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command; print a warning and return None if a plug-in cannot be loaded."""
        try:
            return super().get_command(ctx, cmd_name) or self._plugin_command(cmd_name)
        except PluginError as error:
            say(f"warning: {error}")
            return None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command to run; here a plug-in that cannot be loaded is an error."""
        if args and args[0] not in self.commands:
            self._plugin_command(args[0])
        return super().resolve_command(ctx, args)

    def _plugin_command(self, name: str) -> Any:
        if name not in plugins(self.plugin_group):
            return None
        return command_of(name, self.part(name))


def command_of(name: str, part: Any) -> Any:
    """Convert a Typer application or a function to a command with a name."""
    if not isinstance(part, typer.Typer):
        application = typer.Typer(add_completion=False, rich_markup_mode="rich")
        application.command(name)(part)
        part = application
    command = typer.main.get_command(part)
    command.name = name
    return command


def _type_problem(part: Any) -> str | None:
    """Return the reason why a plug-in cannot be a command; return None if it can."""
    known = isinstance(part, typer.Typer) or callable(part)
    return None if known else f"it leads to a {type(part).__name__}, not to a Typer application or a function"
