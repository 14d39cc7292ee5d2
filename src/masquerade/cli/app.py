"""The commands together; every error that was foreseen is one line on standard error and exit code 2."""

from __future__ import annotations

import os
import sys
import traceback
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, cast

import typer

import masquerade
from masquerade.cli.missing_package import missing_package
from masquerade.cli.options import HELP, Json, Overwrite, PluginGroup, command_of, option
from masquerade.cli.output import emit, say, silence_stdout
from masquerade.core.errors import InputError, MasqueradeError
from masquerade.core.util.plugins import plugins

MOST_NAMED = 12  # commands of a group that a message lists
BAD_INPUT, INTERNAL, INTERRUPTED, BROKEN_PIPE = 2, 70, 130, 141
# typer brings its own click or uses the installed one: the base of its usage errors, wherever it lives
ClickError = cast(type[Exception], typer.BadParameter.__mro__[2])


ELSEWHERE = {"reproduce": "masquerade-experiments"}  # commands that packages of ours bring

# our commands: where each is, and its line in the list of all; a module is loaded when its command is run
OWN = {
    "plan": (
        "plan:command",
        "Plan a survey: two of privacy, people and error give the third, and the best policy for it.",
    ),
    "disguise": (
        "disguise:command",
        "Disguise every variable of the policy; columns that it does not list are left out.",
    ),
    "estimate": (
        "estimate:command",
        "Estimate counts from disguised records, with standard errors and intervals.",
    ),
    "stats": (
        "stats:app",
        "Percentages, differences, odds ratios, tests and regression, with their uncertainty.",
    ),
    "learn": ("learn:app", "Learn a model from disguised (or clear) records."),
    "predict": (
        "predict:command",
        "Predict the target of every row, with probabilities; or test a model on records nobody may see.",
    ),
    "privacy": (
        "privacy:command",
        "Tell what disguised records give away: by variable, over a record, and to whom.",
    ),
    "audit": (
        "audit_session:audit_app",  # with its group `session`
        "Prove a mechanism, test a pipeline, attack a release: what to do before you sign.",
    ),
    "release": (
        "release:app",
        "Disguised records as a folder that archives and other tools open; and is it whole?",
    ),
    "report": (
        "report:command",
        "Write a page about records: shares, cross-tables, tests, what goes with what, and the guarantee.",
    ),
    "show": (
        "show:command",
        (
            "Show a saved model: its summary, its picture, or a table of it for a paper "
            "(.tex, .md, .html, .csv, …)."
        ),
    ),
    "policy": ("policy:app", "Draft, check and identify policy files."),
    "anonymize": (
        "anonymize:app",
        (
            "Make every combination of quasi-identifiers occur at least K times, "
            "by starring as little as possible."
        ),
    ),
    "simulate": (
        "simulate:app",
        "Run a protocol on many people in this process: what comes out, what it costs, who is caught.",
    ),
    "demo": ("app:demo", "Disguise made-up people, count them, and write a report to look at."),
    "party": (
        "nodes:party_app",
        "An organisation that holds records and answers for the sessions it consented to.",
    ),
    "miner": (
        "nodes:miner_app",
        "A node without records: it convenes sessions, joins disguised records, or helps.",
    ),
    "session": (
        "nodes:session_app",
        "Sessions between organisations: create, run, look at and resume them.",
    ),
    "collect": (
        "collect:collect_app",
        "Rows of people who trust nobody with them: a row opens if at least k share its quasi-identifier.",
    ),
    "count": (
        "count:count_app",
        "Count people who each keep their own record: votes, secure aggregation, or a mix.",
    ),
    "survey": (
        "survey:survey_app",
        "Ask a sensitive question: the respondent's own browser disguises the answer before it leaves.",
    ),
    "gather": (
        "gather:gather_app",
        "Disguised reports from people's own devices: each draws for itself, and sends what it drew.",
    ),
    "studio": (
        "masquerade.studio.command:command",
        "Open a page on this machine for all of it: data, policy, estimates, models, audit, release.",
    ),
    "config": ("nodes:config_app", "Settings files of services."),
    "tls": ("tls:tls_app", "Make certificates, tokens and identities for services."),
}


@cache
def own_command(name: str) -> Any:
    """Return one of our commands, loaded with what it needs."""
    module, _, attribute = OWN[name][0].partition(":")
    # a command of a package above this one is named with it, and found when it is run
    place = module if "." in module else f"masquerade.cli.{module}"
    part = getattr(import_module(place), attribute)
    if not isinstance(part, typer.Typer):
        return command_of(name, part)
    group = typer.main.get_group(part)  # also where it has a single command
    group.name = name
    return group


class Commands(PluginGroup):
    """A group of commands that turns errors into lines and exit codes; a command is loaded when it is run."""

    listing = False

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, with a line for every command, of which none is loaded."""
        self.listing = True
        super().format_help(ctx, formatter)
        self.listing = False

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command; where commands are listed, ours are their lines."""
        if cmd_name in OWN and not self.listing:
            return own_command(cmd_name)
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that is run; one of a package that is not installed says which."""
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
        """Run a command; what can go wrong becomes one line."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except (typer.Exit, typer.Abort, ClickError):
            raise
        except KeyboardInterrupt:
            say("interrupted.")
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
            told = missing_package(error)
            if told is None:
                _report_bug(error)
                raise typer.Exit(INTERNAL) from None
            say(told)
            raise typer.Exit(BAD_INPUT) from None
        except MemoryError:
            say("not enough memory.")
            raise typer.Exit(INTERNAL) from None
        except Exception as error:  # noqa: BLE001  (a message may quote clear data, so it is not shown)
            _report_bug(error)
            raise typer.Exit(INTERNAL) from None
        return result


def _usage(error: Any) -> int:
    """Say what is wrong with the arguments in a line; without any, show the help."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return BAD_INPUT
    command = error.ctx.command_path if getattr(error, "ctx", None) else "masquerade"
    message = error.format_message().rstrip(".")
    say(f"{message}{'' if message.endswith('?') else '.'}{_instead(error)} See: {command} --help")
    return BAD_INPUT


def _instead(error: Any) -> str:
    """Return what is there instead: of a group its few commands, else the options that are required."""
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
    """Learn from data nobody is allowed to see: disguise records, count them, know what is revealed."""


def demo(
    *,
    out: Annotated[Path, option("Folder for the files it makes.", None, "--out", "-o")] = Path("demo"),
    n: Annotated[int, option("How many people to make up.", None, "--n", min=100)] = 20_000,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Disguise made-up people, count them, and write a report to look at."""
    from masquerade.report.demo import run_demo  # noqa: PLC0415  (loads everything)

    result = run_demo(out, n, overwrite=overwrite)
    shown = {"text": result.text, "report": str(result.report)}
    emit(shown if json else result.text.rstrip("\n") + "\n")


for _name, (_, _line) in OWN.items():
    app.command(_name, help=_line)(lambda: None)
