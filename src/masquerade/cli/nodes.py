"""`masquerade party`, `miner` and `session`: services of organisations, and the sessions between them."""

from __future__ import annotations

import sys
import time
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from masquerade.cli import party_ledger
from masquerade.cli.node_config import check_config, checked, likeliest, load_kind
from masquerade.cli.options import WAIT, Json, Out, Overwrite, Wait
from masquerade.cli.output import as_json, check_target, emit, render, say
from masquerade.core.errors import FileError
from masquerade.core.words import gamma_text
from masquerade.services.parties.kinds import EXAMPLE, OURS

if TYPE_CHECKING:
    from masquerade.services.common.node import Operator

STOPPED = 1
PAUSE = 0.2  # seconds between two looks at a session
WAITING = "waiting"  # steps of which anybody is told, not at a terminal alone


def group(text: str) -> typer.Typer:
    """Return a group of commands."""
    return typer.Typer(
        help=text, no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"]}
    )


party_app = group("An organisation that holds records and answers for the sessions it consented to.")
miner_app = group("A node without records: it convenes sessions, joins disguised records, or helps.")
session_app = group("Sessions between organisations: create, run, look at and resume them.")
config_app = group("Settings files of services.")

SettingsFile = Annotated[
    Path, typer.Argument(help="The settings of the node (YAML).", metavar="FILE", show_default=False)
]
AtNode = Annotated[
    Path,
    typer.Option(
        "--node",
        help="The settings of the node that convenes; its service must be running on this machine.",
        metavar="FILE",
        show_default=False,
    ),
]
SessionName = Annotated[
    str, typer.Argument(help="The name of the session.", metavar="SESSION", show_default=False)
]

party_app.command("ledger")(party_ledger.ledger_app)
config_app.command("check")(check_config)


@party_app.command("serve")
def serve_party(file: SettingsFile) -> None:
    """Serve as a party until told to stop (SIGTERM, Ctrl-C).

    Only sessions that the file consents to are served, only to whom they are with. Example: masquerade party
    serve party.yaml
    """
    serve(file, "party")


@miner_app.command("serve")
def serve_miner(file: SettingsFile) -> None:
    """Serve as a node without records until told to stop (SIGTERM, Ctrl-C).

    Example: masquerade miner serve miner.yaml
    """
    serve(file, "miner")


def serve(file: Path, kind: str) -> None:
    """Check the settings and every file they name, then serve."""
    from masquerade.services.parties.node import serve as run  # noqa: PLC0415  (loads the web server)

    run(checked(file, kind), announce=say)


@session_app.command("create")
def create(
    file: Annotated[
        Path, typer.Argument(help="The session (YAML).", metavar="SESSION.yaml", show_default=False)
    ],
    *,
    node: AtNode,
    wait: Wait = WAIT,
    json: Json = False,
) -> None:
    """Give a session to the node that convenes it; nothing is asked of the parties yet.

    Example: masquerade session create session.yaml --node miner.yaml
    """
    from masquerade.services.common.settings import load  # noqa: PLC0415
    from masquerade.services.parties.session import SessionSpec  # noqa: PLC0415

    spec = load(file, SessionSpec, environment={})
    with reached(node, wait) as operator:
        status = operator.ask("create", {"spec": spec.model_dump(mode="json")})
    if json:
        emit(as_json(status | {"digest": spec.digest}))
        return
    emit(f"session {spec.session!r} is {status['state']}; its digest, to pin in consents: {spec.digest}\n")


@session_app.command("run")
def run(
    session: SessionName,
    *,
    node: AtNode,
    detach: Annotated[
        bool, typer.Option("--detach", help="Do not wait; look with: masquerade session status.")
    ] = False,
    out: Out = None,
    overwrite: Overwrite = False,
    wait: Wait = WAIT,
    json: Json = False,
) -> None:
    """Run a session, or resume one that was interrupted, and wait for its model.

    Example: masquerade session run diabetes --node miner.yaml --out model.json
    """
    if out is not None and out != "-":
        check_target(Path(out), overwrite=overwrite)
    with reached(node, wait) as operator:
        status = operator.ask("run", {"session": session, "wait": wait})
        step = ""
        while status["state"] == "running" and not detach:
            if status["step"] != step:
                step = status["step"]
                if step.startswith(WAITING) or (step and sys.stderr.isatty()):
                    say(f"{session}: {step} …")
            time.sleep(PAUSE)
            status = operator.ask("status", {"session": session})
        if status["state"] == "interrupted":
            say(f"session {session!r} was interrupted: {status['reason']}")
            say(
                f"once that is mended, resume it: masquerade session run {session} --node {node} "
                "(after a change of the session's own file, create it again first)"
            )
            raise typer.Exit(STOPPED)
        if status["state"] == "done" and out is not None:
            emit(as_json(operator.ask("model", {"session": session})), out, overwrite=overwrite)
    emit(as_json(status) if json else described(status))


@session_app.command("status")
def status(
    session: Annotated[
        str | None, typer.Argument(help="One session; without it all.", metavar="[SESSION]")
    ] = None,
    *,
    node: AtNode,
    wait: Wait = WAIT,
    json: Json = False,
) -> None:
    """Show how far a session is and who learnt what in it, or all sessions in a line each.

    Example: masquerade session status diabetes --node miner.yaml
    """
    with reached(node, wait) as operator:
        found = operator.ask("status", {} if session is None else {"session": session})
    if json:
        emit(as_json(found))
    elif session is not None:
        emit(described(found))
    else:
        emit(
            render("\n".join(headline(item) for item in found["sessions"]) or "no session was created here.")
        )


@session_app.command("example")
def example(
    folder: Annotated[
        Path, typer.Argument(help="A new folder for it.", metavar="FOLDER", show_default=False)
    ],
    *,
    protocol: Annotated[
        str, typer.Option(help=f"How the parties work together: {', '.join(OURS)}.", metavar="KIND")
    ] = EXAMPLE,
    people: Annotated[int, typer.Option("--n", help="How many made-up people.", min=10)] = 2000,
) -> None:
    """Write a whole deployment to try out: two hospitals, a registry and a university, on this machine.

    Certificates, identities, settings, policies and made-up records, and the commands to start it. Example:
    masquerade session example try
    """
    from masquerade.services.parties.example import write_deployment  # noqa: PLC0415
    from masquerade.services.parties.two_hospitals import two_hospitals_and_a_registry  # noqa: PLC0415

    if folder.exists():
        raise FileError(f"{folder}: exists already; name a new folder.")
    files = write_deployment(folder, two_hospitals_and_a_registry(protocol, people))
    lines = [
        f"masquerade {'miner' if file.name == 'miner.yaml' else 'party'} serve {file} &"
        for file in files.values()
    ]
    miner = folder / "university" / "miner.yaml"
    lines += [
        f"masquerade session create {folder / 'session.yaml'} --node {miner}",
        f"masquerade session run example --node {miner} --out model.json",
        f"masquerade party ledger {folder / 'north' / 'state'}",
    ]
    say(f"wrote a deployment of {len(files)} nodes into {folder}. To run it:")
    emit("\n".join(lines) + "\n")


def reached(file: Path, wait: float) -> Operator:
    """Return how to speak to the service of a node."""
    from masquerade.services.common.node import Operator  # noqa: PLC0415

    settings = load_kind(file, "party" if likeliest(file) == "party" else "miner")
    return Operator(settings, wait=wait, tell=say)


def headline(status: dict[str, Any]) -> str:
    """Return the state of a session in a line."""
    head = f"session {status['session']!r} ({status['protocol']} of {', '.join(status['parties'])})"
    if status["state"] == "done":
        records = "" if status["records"] is None else f" from {status['records']:,} records"
        return f"{head}: done in {status['seconds']:g} s{records}."
    if status["state"] == "interrupted":
        return f"{head}: interrupted. {status['reason']}"
    return f"{head}: {status['state']}{', ' + status['step'] if status['step'] else ''}."


def described(status: dict[str, Any]) -> str:
    """Return a session in words: its state, and who learnt what."""
    lines = [headline(status)]
    guarantee = status.get("guarantee")
    if guarantee:
        lines += [
            f"- {item['role']} learnt {item['kind']} of {', '.join(item['variables'])}: "
            + ("no bound" if item["gamma"] is None else f"γ = {gamma_text(Fraction(item['gamma']))}")
            for item in guarantee["disclosures"]
        ]
        lines += [f"- assuming {text}" for text in guarantee["assumptions"]]
    return render("\n".join(lines))
