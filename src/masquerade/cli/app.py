"""The `masquerade` command: its subcommands, one-line error messages and exit codes."""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final, cast

import typer

import masquerade
from masquerade.cli.options import HELP, Json, Overwrite, PluginGroup, command_of, option
from masquerade.cli.output import emit, join_names, say, silence_stdout
from masquerade.core.errors import InputError, MasqueradeError, MasqueradeWarning
from masquerade.core.util.atomic import record_published
from masquerade.core.util.plugins import plugins

MOST_NAMED = 12  # the most commands of a group that a message lists
BAD_INPUT, INTERNAL, INTERRUPTED, BROKEN_PIPE = 2, 70, 130, 141
# the base class of usage errors, in the click that Typer bundles or in the installed click
ClickError = cast(type[Exception], typer.BadParameter.__mro__[2])
SERVICES: Final = "services"
SERVICE_PACKAGES: Final = ("masquerade.services", "masquerade.survey.collector", "masquerade.survey.device")
# the extra that installs each module; for modules of services, see `missing_package`
EXTRAS: Final = {
    "coincurve": "crypto",
    "deltalake": "delta",
    "fastapi": SERVICES,
    "formulaic": "stats",
    "gmpy2": SERVICES,
    "httpx": SERVICES,
    "ibis": "postgres",
    "mpyc": "mpyc",
    "onnx": "onnx",
    "openpyxl": "files",
    "polars": "polars",
    "prometheus_client": SERVICES,
    "psycopg": "postgres",
    "pyagrum": "inference",
    "pyiceberg": "iceberg",
    "pyreadstat": "files",
    "pyspark": "spark",
    "rbcl": "crypto",
    "sklearn": "sklearn",
    "starlette": SERVICES,
    "uvicorn": SERVICES,
}

ELSEWHERE = {"reproduce": "masquerade-experiments"}  # commands in separate packages of this project

# built-in commands: module and object, and the help line in the list of commands
# (a module is loaded when its command is run)
OWN = {
    "plan": (
        "plan:command",
        "Plan a survey: given two of privacy, people and error, find the third, and the best policy.",
    ),
    "disguise": (
        "disguise:command",
        "Disguise every variable of the policy; columns that it does not list are omitted.",
    ),
    "estimate": (
        "estimate:command",
        "Estimate counts from disguised records, with standard errors and intervals.",
    ),
    "stats": (
        "stats:app",
        "Estimate percentages, differences and odds ratios, run tests, and fit regressions.",
    ),
    "learn": ("learn:app", "Learn a model from disguised (or clear) records."),
    "predict": (
        "predict:command",
        "Predict the target of every row, with probabilities; or test a model on records nobody may see.",
    ),
    "privacy": (
        "privacy:command",
        "Show what disguised records reveal: by variable, over a whole record, and to whom.",
    ),
    "audit": (
        "audit_session:audit_app",  # includes the command group `session`
        "Before a release: prove a mechanism, test a pipeline, attack the disguised records.",
    ),
    "release": (
        "release:app",
        "Write disguised records as a folder for archives and other tools, or check such a folder.",
    ),
    "output": (
        "output_check:output_app",
        "Check results against disclosure rules, and decide whether they may be published.",
    ),
    "enough": (
        "enough:command",
        "Compute which links between variables a file can show at all, given its disguise and size.",
    ),
    "report": (
        "report:command",
        "Write a page about records: shares, cross-tables, tests, associations and the guarantee.",
    ),
    "show": (
        "show:command",
        (
            "Show a saved model: its summary, its plot, or a table of it for a paper "
            "(.tex, .md, .html, .csv, …)."
        ),
    ),
    "policy": ("policy:app", "Draft, check and identify policy files."),
    "anonymize": (
        "anonymize:app",
        (
            "Make every combination of quasi-identifiers occur at least K times, "
            "suppressing as little as possible."
        ),
    ),
    "simulate": (
        "simulate:app",
        "Simulate a protocol with many people in this process: its result, its cost, and who is caught.",
    ),
    "demo": ("app:demo", "Disguise synthetic people, count them, and write a report."),
    "party": (
        "nodes:party_app",
        "Run an organisation that holds records and answers the sessions it consented to.",
    ),
    "miner": (
        "nodes:miner_app",
        "Run a node without records: it coordinates sessions, links disguised records, or deals randomness.",
    ),
    "session": (
        "nodes:session_app",
        "Create, run, inspect and resume sessions between organisations.",
    ),
    "collect": (
        "collect:collect_app",
        "Collect rows from people who trust no server: a row opens if at least k share its quasi-identifier.",
    ),
    "count": (
        "count:count_app",
        "Count people who each keep their own record: by votes, sums, a mix or a suppressed table.",
    ),
    "survey": (
        "survey_tools:survey_app",  # includes the commands that write packages for other tools
        "Ask a sensitive question: the respondent's own browser disguises the answer before it leaves.",
    ),
    "gather": (
        "gather:gather_app",
        "Gather reports from people's own devices, each of which disguises its answers itself.",
    ),
    "studio": (
        "masquerade.studio.command:command",
        "Open the studio in a browser on this machine: data, policy, estimates, models, audit, release.",
    ),
    "config": ("nodes:config_app", "Check settings files of services."),
    "noise": ("noise:noise_app", "Plan, make and show differential privacy budgets for counts with noise."),
    "tls": ("tls:tls_app", "Make certificates, tokens and identities for services."),
}

# commands that write no file but their results, each atomically
WRITES_RESULTS_ONLY = frozenset(
    {"audit", "enough", "estimate", "evaluate", "learn", "plan", "policy", "predict", "privacy", "report",
     "reproduce", "simulate", "stats"}
)  # fmt: skip


@cache
def own_command(name: str) -> Any:
    """Load a built-in command."""
    module, _, attribute = OWN[name][0].partition(":")
    # a command in a higher layer is listed with its full module path, and imported when it is run
    path = module if "." in module else f"masquerade.cli.{module}"
    part = getattr(import_module(path), attribute)
    if not isinstance(part, typer.Typer):
        return command_of(name, part)
    group = typer.main.get_group(part)  # a group even if it has a single command
    group.name = name
    return group


def _describe_interrupt(command: str, written: Sequence[Path]) -> str:
    """Describe an interrupted command: the complete files, if there are any."""
    if written:
        return f"interrupted. Complete files: {join_names(dict.fromkeys(map(str, written)))}."
    return "interrupted. Nothing was written." if command in WRITES_RESULTS_ONLY else "interrupted."


class Commands(PluginGroup):
    """The top-level group: turns errors into messages and exit codes, and loads a command when it is run."""

    listing = False

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help with one line per command, without loading any command."""
        self.listing = True
        super().format_help(ctx, formatter)
        self.listing = False

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command; while commands are listed, a stub with the help line if it is built in."""
        if cmd_name in OWN and not self.listing:
            return own_command(cmd_name)
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command to run; if it is in another package, name the package to install."""
        package = ELSEWHERE.get(args[0]) if args else None
        if package is not None and args[0] not in plugins("commands"):
            raise InputError(f"`masquerade {args[0]}` is in another package: pip install {package}")
        return super().resolve_command(ctx, args)

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run a command and exit with its code."""
        try:
            code = super().main(*args, **extra | {"standalone_mode": False})
        except ClickError as error:
            sys.exit(_usage(error))
        except typer.Abort:
            say("interrupted.")
            sys.exit(INTERRUPTED)
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: Any) -> Any:
        """Run a command; print an error as one line and exit with its code."""
        written: list[Path] = []
        try:
            with _warnings_in_lines(), record_published() as written:
                result = super().invoke(ctx)
            sys.stdout.flush()
        except (typer.Exit, typer.Abort, ClickError):
            raise
        except KeyboardInterrupt:
            say(_describe_interrupt(str(ctx.invoked_subcommand), written))
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            silence_stdout()
            raise typer.Exit(BROKEN_PIPE) from None
        except MasqueradeError as error:
            say(str(error))
            raise typer.Exit(BAD_INPUT) from None
        except OSError as error:
            reason = os.strerror(error.errno).lower() if error.errno else "input/output error"
            say(f"{error.filename}: {reason}." if error.filename else f"{reason}.")
            raise typer.Exit(BAD_INPUT) from None
        except ImportError as error:
            advice = missing_package(error)
            if advice is None:
                _report_bug(error)
                raise typer.Exit(INTERNAL) from None
            say(advice)
            raise typer.Exit(BAD_INPUT) from None
        except MemoryError:
            say("not enough memory.")
            raise typer.Exit(INTERNAL) from None
        except Exception as error:  # noqa: BLE001  (a message may quote clear data, so it is not shown)
            _report_bug(error)
            raise typer.Exit(INTERNAL) from None
        return result


@contextmanager
def _warnings_in_lines() -> Iterator[None]:
    """Print each masquerade warning once, on one line; Python shows other warnings as usual."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", MasqueradeWarning)
        show, messages = warnings.showwarning, set[str]()

        def show_warning(message: Any, category: type[Warning], *where: Any, **more: Any) -> None:
            if not issubclass(category, MasqueradeWarning):
                show(message, category, *where, **more)
            elif str(message) not in messages:
                messages.add(str(message))
                say(f"warning: {message}")

        warnings.showwarning = show_warning
        yield


def _usage(error: Any) -> int:
    """Print a usage error as one line, or the help if there were no arguments."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return BAD_INPUT
    command = error.ctx.command_path if getattr(error, "ctx", None) else "masquerade"
    message = error.format_message().rstrip(".")
    say(f"{message}{'' if message.endswith('?') else '.'}{_hint(error)} See: {command} --help")
    return BAD_INPUT


def _hint(error: Any) -> str:
    """Return a hint: the commands of a small group, or the options that a command requires."""
    context = getattr(error, "ctx", None)
    if context is None:
        return ""
    if isinstance(context.command, typer.core.TyperGroup):
        names = context.command.list_commands(context)
        return f" It has: {', '.join(names)}." if len(names) <= MOST_NAMED else ""
    if type(error).__name__ != "NoSuchOption":
        return ""
    needed = [it.opts[0] for it in context.command.params if it.required and it.param_type_name == "option"]
    return f" It needs: {', '.join(needed)}." if needed else ""


def missing_package(error: ImportError) -> str | None:
    """Describe how to install a missing module; return None if no extra installs it (a bug)."""
    name, served = "", False
    step: BaseException | None = error
    while step is not None:
        if isinstance(step, ModuleNotFoundError) and step.name:
            name = step.name.partition(".")[0]
        served = served or _is_of_service(step)
        step = step.__cause__ or step.__context__
    if name not in EXTRAS:
        return None
    # a service needs all packages of its extra: the missing module is only the first that was imported
    extra = SERVICES if served and EXTRAS[name] == "crypto" else EXTRAS[name]
    what = "Services need packages that are" if extra == SERVICES else f"This needs {name}, which is"
    return f"{what} not installed: pip install 'masquerade[{extra}]'"


def _is_of_service(error: BaseException) -> bool:
    """Return True if an error was raised in, or passed through, a module of a service."""
    step = error.__traceback__
    while step is not None:
        if str(step.tb_frame.f_globals.get("__name__", "")).startswith(SERVICE_PACKAGES):
            return True
        step = step.tb_next
    return False


def _report_bug(error: Exception) -> None:
    if os.environ.get("MASQUERADE_DEBUG"):
        traceback.print_exc()
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{Path(last.filename).name}:{last.lineno}"
    say(
        f"internal error ({type(error).__name__} at {place}); this is a bug, please report it "
        "(MASQUERADE_DEBUG=1 shows more; that may include values of your data)."
    )


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings=HELP,
)


def _version(*, wanted: bool) -> None:
    if wanted:
        typer.echo(f"masquerade {masquerade.__version__}")
        raise typer.Exit


@app.callback()
def options(
    *,
    version: Annotated[
        bool,
        option(
            "Show the version and exit.",
            None,
            "--version",
            callback=lambda v: _version(wanted=v),
            is_eager=True,
        ),
    ] = False,
) -> None:
    """Learn from data nobody may see: disguise records, count them, know what is revealed."""


def demo(
    *,
    out: Annotated[Path, option("Folder for the files.", None, "--out", "-o")] = Path("demo"),
    n: Annotated[int, option("Number of synthetic people.", None, "--n", min=100)] = 20_000,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Disguise synthetic people, count them, and write a report."""
    from masquerade.report.demo import run_demo  # noqa: PLC0415  (loads everything)

    result = run_demo(out, n, overwrite=overwrite)
    shown = {"text": result.text, "report": str(result.report)}
    emit(shown if json else result.text.rstrip("\n") + "\n")


for _name, (_, _line) in OWN.items():
    app.command(_name, help=_line)(lambda: None)
