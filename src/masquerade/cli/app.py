"""The commands together; every error that was foreseen is one line on standard error and exit code 2."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any, cast

import typer

import masquerade
from masquerade.cli import (
    anonymize,
    audit,
    collect,
    disguise,
    estimate,
    learn,
    nodes,
    plan,
    policy,
    predict,
    privacy,
    report,
    show,
    simulate,
    stats,
    survey,
    tls,
)
from masquerade.cli.options import HELP, Json, Overwrite, PluginGroup, option
from masquerade.cli.output import emit, say, silence_stdout
from masquerade.core.errors import InputError, MasqueradeError
from masquerade.core.plugins import plugins

BAD_INPUT, INTERNAL, INTERRUPTED, BROKEN_PIPE = 2, 70, 130, 141
# typer brings its own click or uses the installed one: the base of its usage errors, wherever it lives
ClickError = cast(type[Exception], typer.BadParameter.__mro__[2])


ELSEWHERE = {"reproduce": "masquerade-experiments"}  # commands that packages of ours bring


class Commands(PluginGroup):
    """A group of commands that turns errors into lines and exit codes."""

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
    say(f"{message}{'' if message.endswith('?') else '.'} See: {command} --help")
    return BAD_INPUT


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


app.command("plan")(plan.command)
app.command("disguise")(disguise.command)
app.command("estimate")(estimate.command)
app.add_typer(stats.app, name="stats")
app.add_typer(learn.app, name="learn")
app.command("predict")(predict.command)
app.command("privacy")(privacy.command)
app.add_typer(audit.app, name="audit")
app.command("report")(report.command)
app.command("show")(show.command)
app.add_typer(policy.app, name="policy")
app.add_typer(anonymize.app, name="anonymize")
app.add_typer(simulate.app, name="simulate")
app.command("demo")(demo)
app.add_typer(nodes.party_app, name="party")
app.add_typer(nodes.miner_app, name="miner")
app.add_typer(nodes.session_app, name="session")
app.add_typer(collect.collect_app, name="collect")
app.add_typer(survey.survey_app, name="survey")
app.add_typer(nodes.config_app, name="config")
app.add_typer(tls.tls_app, name="tls")
