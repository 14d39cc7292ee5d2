"""`masquerade studio`: a local page for people who do not program."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import webbrowser
from collections.abc import Sequence
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from masquerade.cli.options import flag, option
from masquerade.cli.output import check_target, say, write_whole
from masquerade.core.errors import InputError
from masquerade.studio.allow_list import describe
from masquerade.studio.reach import NotAllowed, Reach, without_credentials

if TYPE_CHECKING:
    from masquerade.studio.allow_list import KeptStep
    from masquerade.studio.project import Project


def command(
    place: Annotated[
        Path | None,
        typer.Argument(
            help="The folder of the project, which is created if needed; or a data file.",
            metavar="PROJECT|DATA",
            show_default=False,
        ),
    ] = None,
    *,
    policy: Annotated[
        str | None, option("Start with this policy (YAML or JSON).", "FILE", "--policy", "-p")
    ] = None,
    port: Annotated[int, option("The port; 0 for any free port.", min=0, max=65535)] = 0,
    no_browser: Annotated[
        bool, flag("Only print the path of the file that opens the page.", "--no-browser")
    ] = False,
    notebook: Annotated[
        str | None,
        option("Write the steps as a notebook (.py for marimo, .ipynb), and exit.", "FILE"),
    ] = None,
    check: Annotated[
        bool,
        flag("Run the steps again, compare their output with the stored results, and exit.", "--check"),
    ] = False,
    allow: Annotated[
        list[str] | None,
        option(
            "A file outside the project, or the address of a PostgreSQL database, that its steps may use; "
            "may be repeated.",
            "FILE|URL",
        ),
    ] = None,
) -> None:
    """Open the studio in a browser on this machine: data, policy, estimates, models, audit, release.

    Example: masquerade studio people.csv
    """
    missing = [name for name in ("fastapi", "uvicorn") if find_spec(name) is None]
    if missing:
        raise InputError("The studio needs FastAPI and uvicorn: pip install 'masquerade[services]'")
    from masquerade.studio.project import Project  # noqa: PLC0415  (loads what it needs)

    where = place or Path("project")
    data = where if where.is_file() else None
    if not where.exists() and where.suffix:
        raise InputError(f"{where}: no such file; the name of a new project has no suffix.")
    folder = where.with_name(f"{where.name.partition('.')[0]}-project") if data else where
    if (notebook is not None or check) and not folder.is_dir():
        raise InputError(f"{folder}: there is no such project.")
    if notebook is not None:
        _write_notebook(Project(folder), notebook, allow or [])
    elif check:
        _check(Project(folder), allow or [])
    else:
        _serve(Project(folder), data, policy, port, allow or [], browser=not no_browser)


def _check_steps(
    project: Project, allow: Sequence[str], *, drawing: bool = True
) -> list[tuple[KeptStep, bool]]:
    """Return the steps of a project, each with True if it may use the user's passwords.

    Raise InputError for the first step that may not run, before any step runs. Without `drawing`, steps that
    draw are omitted and need no permission.
    """
    reach = Reach(project.folder)
    for text in allow:
        reach.name(text)
    permitted = []
    for number, entry in enumerate(project.steps, start=1):
        if entry.step.draws and not drawing:
            continue
        try:
            permitted.append((entry, reach.check(entry.step)))
        except InputError as error:
            needs = error.needs if isinstance(error, NotAllowed) else ()
            instead = "".join(f" Add --allow {shlex.quote(item)}." for item in needs)
            raise InputError(
                f"Step {number} of steps.json, {describe(entry.command)}, is refused: {error}{instead}"
            ) from None
    return permitted


def _write_notebook(project: Project, out: str, allow: Sequence[str]) -> None:
    from masquerade.studio.notebook import jupyter, marimo  # noqa: PLC0415
    from masquerade.studio.project_files import check_notebook_folder  # noqa: PLC0415

    if not out.endswith((".py", ".ipynb")):
        raise InputError(f"{out}: a notebook ends in .py (marimo) or .ipynb.")
    check_target(out, overwrite=False)
    check_notebook_folder(project.folder)
    steps = [step for step, _ in _check_steps(project, allow)]
    content = jupyter(steps) if out.endswith(".ipynb") else marimo(steps).encode()
    write_whole(out, content, overwrite=False)
    say(f"{len(steps)} steps are in {out}; open it in {project.folder}.")


def _check(project: Project, allow: Sequence[str]) -> None:
    """Run all stored steps again except those that draw; exit with 1 if an output differs."""
    from masquerade.studio.engine import SAFE_PATH, run_command  # noqa: PLC0415

    steps = _check_steps(project, allow, drawing=False)
    os.environ[SAFE_PATH] = "1"
    os.chdir(project.folder)
    other = 0
    for step, passwords in steps:
        with nullcontext() if passwords else without_credentials():
            again = run_command(step.command, lambda _done, _total: None)
        if again.printed != project.result_text(step.result):
            other += 1
            say(f"differs: {describe(step.command)}")
    say(f"{len(steps) - other} of {len(steps)} results are the same, byte for byte.")
    if other:
        raise typer.Exit(1)


def _serve(
    project: Project,
    data: Path | None,
    policy: str | None,
    port: int,
    allow: Sequence[str],
    *,
    browser: bool,
) -> None:
    import uvicorn  # noqa: PLC0415  (loads the server)

    from masquerade.channels.policy import text as policy_text  # noqa: PLC0415
    from masquerade.services.common.connections import GateConfig  # noqa: PLC0415
    from masquerade.studio import records  # noqa: PLC0415
    from masquerade.studio.server import MOST_UNREAD, Studio, listening_socket  # noqa: PLC0415

    if policy is not None:
        given = policy_text.read(Path(policy))
        with project.edit(f"policy of {Path(policy).name}") as (_, values):
            values.clear()
            values.update(given)
    listening = listening_socket(port)
    studio = Studio(project, listening.getsockname()[1])
    try:
        for text in [*allow, *([] if data is None else [str(data)])]:
            studio.reach.name(text)
        if data is not None and project.settings["data"] is None:
            asked = {"do": ["draft"], "data": [str(data.resolve())]}
            if policy is None:
                records.choose(studio, asked)
            else:
                with project.edit(f"data of {data.name}") as (settings, _):
                    settings["data"] = str(data.resolve())
        say(f"project {project.folder}")
        say(f"open {studio.access.file} in a browser on this machine; Ctrl-C stops the studio.")
        if browser and sys.stdout.isatty():
            webbrowser.open(studio.access.file.as_uri())
        config = GateConfig(
            studio.app, listening, MOST_UNREAD, log_level="warning", timeout_graceful_shutdown=1
        )
        server = uvicorn.Server(config)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.default_int_handler)
        server.run(sockets=[listening])
    except KeyboardInterrupt:
        pass
    finally:
        studio.close()
        listening.close()
    say("the studio is closed; the project is saved.")
