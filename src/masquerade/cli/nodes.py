"""`masquerade party`, `miner`, `session`, `config`: nodes of organisations, and their sessions."""

from __future__ import annotations

import sys
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from masquerade.cli import output
from masquerade.cli.options import (
    WAIT,
    Json,
    Out,
    Overwrite,
    Wait,
    argument,
    flag,
    group,
    option,
    required_option,
)  # fmt: skip
from masquerade.cli.reconcile import reconcile
from masquerade.cli.record_limit import AcceptGamma, confirm_consents
from masquerade.cli.session_example import example
from masquerade.cli.settings_files import (
    load_settings,
    read_settings,
    recognise_type,
    rules_of_consents,
    settings_types,
)
from masquerade.core.errors import InputError, did_you_mean
from masquerade.core.util.formatting import counted, gamma_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from masquerade.channels.policy import Policy
    from masquerade.services.common.client import Operator
    from masquerade.services.common.release_ledger import Entry
    from masquerade.services.common.server import NodeServer

STOPPED, INTERRUPTED = 1, 130
WAITING = "waiting"  # steps with this prefix are printed even if standard error is not a terminal

party_app = group("Run an organisation that holds records and answers the sessions it consented to.")
miner_app = group(
    "Run a node without records: it coordinates sessions, links disguised records, or deals randomness."
)
session_app = group("Create, run, inspect and resume sessions between organisations.")
config_app = group("Check settings files of services.")

SettingsFile = Annotated[Path, argument("The settings of the node (YAML).", "FILE")]
AtNode = Annotated[
    Path,
    required_option(
        "The settings of the coordinating node; its service must be running on this machine.", "--node"
    ),
]
AgreeToRestore = Annotated[
    str | None,
    option("Agree to what the restore reveals, with the printed sentence.", "WORDS", "--agree"),
]


@party_app.command("ledger")
def ledger(
    place: Annotated[
        str, argument("A release ledger (releases.jsonl), or the state folder of a service.", "LEDGER")
    ],
    action: Annotated[
        str | None, argument("verify: only check that no line was changed or removed.", "verify")
    ] = None,
    *,
    json: Json = False,
) -> None:
    """Show what left this party: when, to whom, what, under which policy, and at what γ.

    Every line is checked against the previous line, and the last line against the service's state.

    Example: masquerade party ledger state
    """
    from masquerade.services.common.ledger_totals import spending, summary  # noqa: PLC0415
    from masquerade.services.common.release_ledger import (  # noqa: PLC0415
        ABOUT_ITSELF,
        RESTORED,
        inspect,
        peek_receipts,
    )
    from masquerade.services.common.state import peek_problem  # noqa: PLC0415

    if action is not None and place == "verify" != action:
        place, action = action, place  # the user gave the arguments in reverse order
    if action not in (None, "verify"):
        raise InputError(f"Only 'verify' may follow a ledger. Got {action!r} instead.")
    entries, known = inspect(Path(place))
    if action == "verify":
        restores = sum(entry.release.kind == RESTORED for entry in entries)
        folder = Path(place) if Path(place).is_dir() else None
        problem = None if folder is None else peek_problem(folder)
        found = {
            "ledger": place,
            "intact": not problem,
            "problem": problem,
            "receipts": [] if folder is None else peek_receipts(folder),
            "releases": sum(entry.release.kind not in ABOUT_ITSELF for entry in entries),
            "restores": restores,
            "last": entries[-1].hash if entries else None,
            "end_known": known is not None,
            "signed_by": known.public.hex() if known is not None and known.signature else None,
        }
        output.emit(found if json else _format_verification(found))
        if problem:
            raise typer.Exit(STOPPED)
    elif json:
        spent = [item.to_dict() for item in spending(entries)]
        output.emit({"releases": [entry.to_dict() for entry in entries], "spent": spent})
    else:
        output.emit(output.render(*([_releases(entries)] if entries else []), summary(entries)))


def _format_verification(facts: dict[str, Any]) -> str:
    """Format the result of a verification: number of lines, receipts, and what could not be checked."""
    from masquerade.services.common.receipts import NOBODY  # noqa: PLC0415

    verdict = "its lines follow one another" if facts["problem"] else "intact"
    text = f"{facts['ledger']}: {verdict}, {counted(facts['releases'], 'release')}"
    text += f", and {counted(facts['restores'], 'restore')} of the state." if facts["restores"] else "."
    if facts["last"]:
        text += f" The last: {facts['last']}"
        text += f", signed by {facts['signed_by']}" if facts["signed_by"] else ""
    if facts["problem"]:
        text += (
            f"\nBut the state is not the latest: {facts['problem']}. It was restored from a backup, copied, "
            "or partly restored. Later releases may be missing here, and the service will report it when "
            "it starts."
        )
    if not facts["end_known"]:
        text += "\nWhether lines at the end were removed cannot be seen without the service's state folder."
    elif facts["problem"] is None:
        text += "\nWhether the state was restored cannot be seen here: it has no anchor yet."
    elif facts["receipts"]:
        text += f"\nReceipts of its last line are held by {', '.join(facts['receipts'])}."
    else:
        text += f"\n{NOBODY[0].upper()}{NOBODY[1:]}."
    return text + "\n"


def _releases(entries: Sequence[Entry]) -> Table:
    result = output.plain_table("What left this party")
    for name in ("", "when (UTC)", "to", "session", "what", "variables", "rows", "policy", "γ"):
        result.add_column(name, justify="right" if name in ("", "rows", "γ") else "left")
    for entry in entries:
        item = entry.release
        result.add_row(
            str(entry.number),
            entry.time[:19].replace("T", " "),
            item.recipient,
            item.session,
            item.kind,
            output.join_names(item.variables, 6),
            f"{item.rows:,}",
            (item.policy or "")[:12],
            gamma_text(item.gamma),
        )
    return result


@party_app.command("serve")
def serve_party(file: SettingsFile, *, accept_gamma: AcceptGamma = None) -> None:
    """Run a party until it is stopped (SIGTERM, Ctrl-C).

    It answers only in sessions that the file consents to, and only to their members.

    Example: masquerade party serve party.yaml
    """
    _serve(file, "party", accept_gamma)


@miner_app.command("serve")
def serve_miner(file: SettingsFile) -> None:
    """Run a node without records until it is stopped (SIGTERM, Ctrl-C).

    Example: masquerade miner serve miner.yaml
    """
    _serve(file, "miner")


@party_app.command("restored")
def restored_command(*, node: AtNode, agree: AgreeToRestore = None, wait: Wait = WAIT) -> None:
    """Show whether a party was restored from a backup, and agree to what the restore reveals.

    A restored party does not know its releases since the backup. Until its operator agrees, it refuses exact
    results about people that may have changed, and reports from a memo that the backup does not know. The
    release ledger stores the agreement.

    Example: masquerade party restored --node party.yaml
    """
    from masquerade.services.parties.node import Node  # noqa: PLC0415  (loads the web server)

    kind = "miner" if recognise_type(node) == "miner" else "party"
    confirm_restore(Node, read_settings(node, kind), node, agree, wait)


def confirm_restore(
    server: type[NodeServer], settings: Any, file: Path, agreement: str | None, wait: float
) -> None:
    """Print whether a state was restored, or record the operator's agreement, if one is given.

    The service need not be running.
    """
    from masquerade.services.common.client import Operator  # noqa: PLC0415
    from masquerade.services.common.problems import PartyUnreachable  # noqa: PLC0415

    given, found = {} if agreement is None else {"words": agreement}, None
    if settings.address_file.exists():
        with suppress(PartyUnreachable), Operator(settings, wait=min(wait, 1.0)) as operator:
            found = operator.ask("restored", given)
    found = found or server.answer_restore(settings, given)
    if found["doubted"]:
        output.emit(
            f'{found["doubt"]} To agree, run:\n{server.RESTORED} --node {file} --agree "{found["words"]}"\n'
        )
    elif agreement is None:
        receipts = ", ".join(found["receipts"]) or "no peer"
        output.emit(
            "There is nothing to agree to: the state is the latest. Receipts of the release ledger are held "
            f"by {receipts}.\n"
        )
    else:
        output.emit("Agreed.\n")


def _serve(file: Path, kind: str, accepted: str | None = None) -> None:
    from masquerade.services.parties.node import Node  # noqa: PLC0415  (loads the web server)

    settings = confirm_consents(load_settings(file, kind), accepted)
    Node(settings, output.say).serve(output.say)


@session_app.command("create")
def create(
    file: Annotated[Path, argument("The session (YAML).", "SESSION.yaml")],
    *,
    node: AtNode,
    wait: Wait = WAIT,
    json: Json = False,
) -> None:
    """Submit a session to its coordinating node; nothing is sent to the parties yet.

    Example: masquerade session create session.yaml --node miner.yaml
    """
    from masquerade.services.common.settings import load  # noqa: PLC0415
    from masquerade.services.parties.session import SessionSpec  # noqa: PLC0415

    spec = load(file, SessionSpec, environment={})
    with _connect(node, wait) as operator:
        status = operator.ask("create", {"spec": spec.model_dump(mode="json")})
    text = f"session {spec.session!r} is {status['state']}; digest to name in consents: {spec.digest}\n"
    output.emit(status | {"digest": spec.digest} if json else text)


@session_app.command("plan")
def plan(
    file: Annotated[Path, argument("The session (YAML).", "SESSION.yaml")],
    *,
    node: Annotated[
        Path, required_option("The settings of a party (YAML); its service need not be running.", "--node")
    ],
    json: Json = False,
) -> None:
    """Show what a party would send in a session, before it consents: to whom, what, through which channel.

    No other node is contacted, and nothing is sent. If the party's file has no consent to the session, the
    plan assumes a consent to all of its variables.

    Example: masquerade session plan session.yaml --node party.yaml
    """
    from masquerade.services.common.ledger_totals import spending  # noqa: PLC0415
    from masquerade.services.common.release_ledger import FILE, inspect  # noqa: PLC0415
    from masquerade.services.common.settings import load  # noqa: PLC0415
    from masquerade.services.parties.outflow_plan import plan_outflows  # noqa: PLC0415
    from masquerade.services.parties.session import SessionSpec  # noqa: PLC0415

    spec, settings = load(file, SessionSpec, environment={}), load_settings(node, "party")
    entries = inspect(settings.state)[0] if (settings.state / FILE).exists() else ()
    found = plan_outflows(spec, settings, entries)
    spent = spending(entries)
    if json:
        output.emit(
            {
                "session": spec.session,
                "digest": spec.digest,
                "party": settings.name,
                "consented": found.consented,
                "pinned": found.consented and "spec" not in found.differences,
                "differences": list(found.differences),
                "sends": [item.to_dict() for item in found.items],
                "not_needed": list(found.unneeded),
                "person": found.person.to_dict(),
                "spent": [item.to_dict() for item in spent],
            }
        )
        return
    table = output.plain_table(f"What {settings.name} would send in session {spec.session!r}, at most")
    for name in ("to", "what", "variables", "channel", "γ"):
        table.add_column(name, justify="right" if name == "γ" else "left")
    for item in found.items:
        channels = dict.fromkeys(
            _describe_channel(found.policy, name) for name in item.variables if name in found.policy.schema
        )
        reported = "values" in item.kind  # counts are computed from clear records: no channel applies
        table.add_row(
            item.recipient,
            item.kind + (" (already has them: nothing new)" if item.before else ""),
            output.join_names(item.variables, 12),
            "; ".join(channels) if reported else "",
            gamma_text(item.gamma),
        )
    notes = [f"digest of the session: {spec.digest}"]
    if found.unneeded:
        notes.append(f"not needed and not sent: {', '.join(found.unneeded)}.")
    if not found.consented:
        notes.append(
            f"the party's file has no consent to {spec.session!r}: nothing leaves. masquerade session "
            "consent prints a consent."
        )
    elif not found.differences:
        notes.append("the consent in the party's file names this digest: only this session may run.")
    if found.differences:
        notes.append(f"its consent differs in {', '.join(found.differences)}: nothing leaves.")
    notes += [
        f"γ spent before with {item.recipient} on {', '.join(item.variables) or 'no variable'}: "
        f"{gamma_text(item.gamma)}"
        for item in spent
    ]
    output.emit(output.render(*found.person.lines(), "", table, *notes))


session_app.command("reconcile")(reconcile)


@session_app.command("consent")
def consent(
    file: Annotated[Path, argument("The session (YAML).", "SESSION.yaml")],
    *,
    node: Annotated[
        Path,
        required_option(
            "The settings of a party or dealer (YAML); its service need not be running.", "--node"
        ),
    ],
    json: Json = False,
) -> None:
    """Print a node's consent to exactly this session, for `consents` in its file.

    The consent names the digest of the session's text: what is learnt, from which variables, by whom. Any
    other text under the same name is refused. First see what would be sent (session plan). No file is
    changed.
    Example: masquerade session consent session.yaml --node party.yaml
    """
    from masquerade.services.common.settings import load  # noqa: PLC0415
    from masquerade.services.parties.outflow_plan import consent_text, draft_consent  # noqa: PLC0415
    from masquerade.services.parties.session import SessionSpec  # noqa: PLC0415
    from masquerade.services.parties.settings import load_before_consent  # noqa: PLC0415

    spec = load(file, SessionSpec, environment={})
    settings = load_before_consent(node)
    values = draft_consent(spec, settings)
    output.emit(values if json else consent_text(spec, values, str(node), settings))


def _describe_channel(policy: Policy, name: str) -> str:
    """Describe the channel of a variable."""
    from masquerade.cli.privacy import channel_words  # noqa: PLC0415

    group = policy.group(name)
    if group.response is not None:
        return f"{name} dealt in blocks of {group.response.k}"
    partners = f" with {', '.join(it for it in group.names if it != name)}" if len(group.names) > 1 else ""
    return f"{name}{partners} {channel_words(group.matrix_channel)}"


@session_app.command("run")
def run(
    session: Annotated[str, argument("The name of the session.", "SESSION")],
    *,
    node: AtNode,
    detach: Annotated[bool, flag("Do not wait; see masquerade session status.", "--detach")] = False,
    out: Out = None,
    overwrite: Overwrite = False,
    wait: Wait = WAIT,
    json: Json = False,
) -> None:
    """Run a session, or resume an interrupted one, and wait for its model.

    Example: masquerade session run diabetes --node miner.yaml --out model.json
    """
    output.check_target(out, overwrite=overwrite)
    with _connect(node, wait) as operator:
        status = operator.ask("run", {"session": session, "wait": wait})
        if not detach:
            try:
                status = _follow(operator, status)
            except KeyboardInterrupt:
                _leave_or_cancel(operator, session, node)
                raise typer.Exit(INTERRUPTED) from None
        if status["state"] == "interrupted":
            output.say(f"session {session!r} was interrupted: {status['reason']}")
            output.say(
                f"once that is fixed, resume it: masquerade session run {session} --node {node} "
                "(if you change the session's file, create the session again first)"
            )
            raise typer.Exit(STOPPED)
        if status["state"] == "done" and out is not None:
            output.emit(operator.ask("model", {"session": session}), out, overwrite=overwrite)
    output.emit(status if json else _describe_session(status))


def _follow(operator: Operator, status: dict[str, Any]) -> dict[str, Any]:
    """Wait until a session has ended, and print its steps; return its last status."""
    session, step, quiet = status["session"], "", not sys.stderr.isatty()
    while status["state"] == "running":
        if status["step"] != step and (not quiet or status["step"].startswith(WAITING)):
            step = status["step"]
            if step:
                output.say(f"{session}: {step} …")
        status = operator.ask("status", {"session": session, "seen": step, "quiet": quiet})
    return status


def _cancel_session(operator: Operator, session: str) -> dict[str, Any]:
    """Cancel a session, wait until it has stopped, and return its status."""
    status = operator.ask("cancel", {"session": session})
    while status["state"] == "running":
        status = operator.ask("status", {"session": session, "seen": status["step"], "quiet": True})
    return status


def _leave_or_cancel(operator: Operator, session: str, node: Path) -> None:
    """Ask on a terminal whether to leave a session running; elsewhere, print the command that cancels it.

    The session runs in the services, so it continues after an interrupted command.
    """
    status = operator.ask("status", {"session": session})
    if status["state"] != "running":
        output.emit(_describe_session(status))
        return
    requested = status.get("requested") or {}
    sent = "; ".join(f"{party}: {', '.join(roles)}" for party, roles in requested.items())
    output.say(f"session {session!r} is still running at its nodes ({status['step'] or 'starting'}).")
    output.say(
        f"requested so far, and so possibly sent: {sent}. Release ledgers of the parties list what was sent."
        if sent
        else "no party was asked for anything about its records yet."
    )
    command = f"masquerade session cancel {session} --node {node}"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        output.say(f"it continues without this command; to end it: {command}")
        return
    if typer.prompt("Leave it running, or cancel? (leave/cancel)", default="leave", err=True) == "cancel":
        output.say(f"session {session!r} is {_cancel_session(operator, session)['state']}.")
    else:
        output.say(f"left running; see masquerade session status {session} --node {node}, or {command}")


@session_app.command("cancel")
def cancel(
    session: Annotated[str, argument("The name of the session.", "SESSION")],
    *,
    node: AtNode,
    wait: Wait = WAIT,
    json: Json = False,
) -> None:
    """Stop a session at its next step or message: at all parties, or (at a party's node) only there.

    A coordinator may run the session again. A party that cancels it withdraws permanently.

    Example: masquerade session cancel diabetes --node miner.yaml
    """
    with _connect(node, wait) as operator:
        status = _cancel_session(operator, session)
    output.emit(status if json else f"session {session!r} is {status['state']}.\n")


@session_app.command("status")
def status(
    session: Annotated[str | None, argument("A session; by default all.", "[SESSION]")] = None,
    *,
    node: AtNode,
    wait: Wait = WAIT,
    json: Json = False,
) -> None:
    """Show the progress of a session and who learnt what in it, or one line per session.

    Example: masquerade session status diabetes --node miner.yaml
    """
    with _connect(node, wait) as operator:
        found = operator.ask("status", {} if session is None else {"session": session})
    if json:
        output.emit(found)
    elif session is not None:
        output.emit(_describe_session(found))
    else:
        output.emit(
            output.render("\n".join(map(_headline, found["sessions"])) or "no session was created here.")
        )


session_app.command("example")(example)


def _connect(file: Path, wait: float) -> Operator:
    """Return a connection to the running service of a node."""
    from masquerade.services.common.client import Operator  # noqa: PLC0415

    settings = read_settings(file, "party" if recognise_type(file) == "party" else "miner")
    return Operator(settings, wait=wait, tell=output.say)


def _headline(status: dict[str, Any]) -> str:
    head = f"session {status['session']!r} ({status['protocol']} of {', '.join(status['parties'])})"
    if status["state"] == "done":
        records = "" if status["records"] is None else f" from {status['records']:,} records"
        return f"{head}: done in {status['seconds']:g} s{records}."
    if status["state"] in {"interrupted", "cancelled"}:
        return f"{head}: {status['state']}. {status['reason']}"
    return f"{head}: {status['state']}{', ' + status['step'] if status['step'] else ''}."


def _describe_session(status: dict[str, Any]) -> str:
    """Describe a session: its state, and who learnt what."""
    lines, guarantee = [_headline(status)], status.get("guarantee")
    if guarantee:
        lines += [
            f"- {item['role']} learnt {item['kind']} of {', '.join(item['variables'])}: "
            + ("no bound" if item["gamma"] is None else f"γ = {gamma_text(Fraction(item['gamma']))}")
            for item in guarantee["disclosures"]
        ]
        lines += [f"- assuming {text}" for text in guarantee["assumptions"]]
    return output.render("\n".join(lines))


@config_app.command("check")
def check_config(
    file: Annotated[Path, argument("The settings file (YAML).", "FILE")],
    *,
    kind: Annotated[
        str | None,
        option(
            "The type of the settings: party, miner, randomness, collector, …",
            "KIND",
            show_default="by default recognised from the keys",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Check a settings file, its overrides in the environment, and the files that it names.

    Keys, tokens and identities that others may read are refused.

    Example: masquerade config check party.yaml
    """
    from masquerade.services.common.settings import named_files, overrides  # noqa: PLC0415

    known = settings_types()
    if kind is not None and kind not in known:
        raise InputError(f"There are no settings of type {kind!r}.{did_you_mean(kind, known)}")
    kind = kind or recognise_type(file)
    settings = load_settings(file, kind)
    files = [name for name, _, _ in named_files(settings)]
    changed = overrides(file, known[kind])
    rules, warnings = rules_of_consents(settings)
    if json:
        values = {"file": str(file), "kind": kind, "valid": True, "files": files, "overridden": changed}
        output.emit({**values, "rules": rules, "warnings": warnings})
        return
    for warning in warnings:
        output.say(warning)
    readable = f"; {counted(len(files), 'file')} it names can be read" if files else ""
    lines = [f"{file} is valid for a {kind}{readable}."]
    lines += [f"{key} is overridden by {variable}." for key, variable in changed.items()]
    lines += [f"Rules of session {session!r}: {text}" for session, text in rules.items()]
    output.emit("\n".join(lines) + "\n")
