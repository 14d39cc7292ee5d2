"""`masquerade party`, `miner`, `session`, `config`: services of organisations, and their sessions."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from masquerade.cli import output
from masquerade.cli.options import (
    WAIT,
    Folder,
    Json,
    Out,
    Overwrite,
    Wait,
    argument,
    flag,
    group,
    option,
    required,
)
from masquerade.core.errors import InputError, did_you_mean
from masquerade.core.util.formatting import counted, gamma_text
from masquerade.services.parties.kinds import EXAMPLE, OURS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pydantic import BaseModel
    from rich.table import Table

    from masquerade.channels.policy import Policy
    from masquerade.services.common.client import Operator
    from masquerade.services.common.release_ledger import Entry
    from masquerade.services.common.server import NodeServer

STOPPED = 1
PAUSE = 0.2  # seconds between two looks at a session
WAITING = "waiting"  # steps of which anybody is told, not at a terminal alone

party_app = group("An organisation that holds records and answers for the sessions it consented to.")
miner_app = group("A node without records: it convenes sessions, joins disguised records, or helps.")
session_app = group("Sessions between organisations: create, run, look at and resume them.")
config_app = group("Settings files of services.")

SettingsFile = Annotated[Path, argument("The settings of the node (YAML).", "FILE")]
AtNode = Annotated[
    Path,
    required(
        "The settings of the node that convenes; its service must be running on this machine.", "--node"
    ),
]
AgreeToRestore = Annotated[
    str | None,
    option("Agree to what the restore gives away, in the words that are printed.", "WORDS", "--agree"),
]


@party_app.command("ledger")
def ledger(
    place: Annotated[
        str, argument("A release ledger (releases.jsonl), or the state folder of a service.", "LEDGER")
    ],
    action: Annotated[
        str | None, argument("verify: only check that nothing was changed or removed.", "verify")
    ] = None,
    *,
    json: Json = False,
) -> None:
    """Show what left this party: when, to whom, what, under which policy, for how much γ.

    Every line is checked against the one before, and the last against what the service remembers. Example:
    masquerade party ledger state
    """
    from masquerade.services.common.release_ledger import (  # noqa: PLC0415
        ABOUT_ITSELF,
        RESTORED,
        inspect,
        peek_receipts,
        spending,
        summary,
    )
    from masquerade.services.common.state import peek_problem  # noqa: PLC0415

    if action is not None and place == "verify" != action:
        place, action = action, place  # said in the other order
    if action not in (None, "verify"):
        raise InputError(f"What follows a ledger is 'verify' or nothing. Got {action!r} instead.")
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
    """Format the result of a verification: lines, anchor, receipts, and limits."""
    from masquerade.services.common.receipts import NOBODY  # noqa: PLC0415

    verdict = "its lines follow one another" if facts["problem"] else "intact"
    text = f"{facts['ledger']}: {verdict}, {counted(facts['releases'], 'release')}"
    text += f", and {counted(facts['restores'], 'restore')} of the state." if facts["restores"] else "."
    if facts["last"]:
        text += f" The last: {facts['last']}"
        text += f", signed by {facts['signed_by']}" if facts["signed_by"] else ""
    if facts["problem"]:
        text += (
            f"\nBut this is not the state that it was: {facts['problem']}. It was restored from a backup, "
            "copied, or put back in part. What left since may be missing here, and the service will say so "
            "when it starts."
        )
    if not facts["end_known"]:
        text += "\nWhether lines at the end were removed cannot be seen without the service's state folder."
    elif facts["problem"] is None:
        text += "\nWhether the state was put back cannot be seen here: no anchor has been made for it yet."
    elif facts["receipts"]:
        text += f"\nReceipts of its end are with {', '.join(facts['receipts'])}."
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
            output.listed(item.variables, 6),
            f"{item.rows:,}",
            (item.policy or "")[:12],
            gamma_text(item.gamma),
        )
    return result


@party_app.command("serve")
def serve_party(file: SettingsFile) -> None:
    """Serve as a party until told to stop (SIGTERM, Ctrl-C).

    Only sessions that the file consents to are served, only to whom they are with. Example: masquerade party
    serve party.yaml
    """
    _serve(file, "party")


@miner_app.command("serve")
def serve_miner(file: SettingsFile) -> None:
    """Serve as a node without records until told to stop (SIGTERM, Ctrl-C).

    Example: masquerade miner serve miner.yaml
    """
    _serve(file, "miner")


@party_app.command("restored")
def restored(
    *,
    node: AtNode,
    agree: AgreeToRestore = None,
    wait: Wait = WAIT,
) -> None:
    """Say whether a party was restored from a backup, and agree to what that gives away.

    What has left since the backup is not known to a restored party. It refuses exact results about people
    that it does not know to be the same, and draws with a memo that it does not know, until its operator
    agrees; the release ledger keeps the words. Example: masquerade party restored --node party.yaml
    """
    from masquerade.services.parties.node import Node  # noqa: PLC0415  (loads the web server)

    kind = "miner" if _likeliest(node) == "miner" else "party"
    tell_restored(Node, _loaded(node, kind), node, agree, wait)


def tell_restored(
    server: type[NodeServer], settings: Any, file: Path, words: str | None, wait: float
) -> None:
    """Say whether a service's state was restored, or agree, be the service running or not."""
    from masquerade.services.common.client import Operator  # noqa: PLC0415
    from masquerade.services.common.problems import PartyUnreachable  # noqa: PLC0415

    given, found = {} if words is None else {"words": words}, None
    if settings.address_file.exists():
        with suppress(PartyUnreachable), Operator(settings, wait=min(wait, 1.0)) as operator:
            found = operator.ask("restored", given)
    found = found or server.restored(settings, given)
    if found["doubted"]:
        output.emit(
            f'{found["doubt"]} To agree, say:\n{server.RESTORED} --node {file} --agree "{found["words"]}"\n'
        )
    elif words is None:
        receipts = ", ".join(found["receipts"]) or "no peer"
        output.emit(
            "There is nothing to agree to: nothing is in doubt here. Receipts of the release ledger are with "
            f"{receipts}.\n"
        )
    else:
        output.emit("Agreed.\n")


def _serve(file: Path, kind: str) -> None:
    from masquerade.services.parties.node import Node  # noqa: PLC0415  (loads the web server)

    Node(checked(file, kind), output.say).serve(output.say)


@session_app.command("create")
def create(
    file: Annotated[Path, argument("The session (YAML).", "SESSION.yaml")],
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
    with _reached(node, wait) as operator:
        status = operator.ask("create", {"spec": spec.model_dump(mode="json")})
    text = f"session {spec.session!r} is {status['state']}; the digest that consents name: {spec.digest}\n"
    output.emit(status | {"digest": spec.digest} if json else text)


@session_app.command("plan")
def plan(
    file: Annotated[Path, argument("The session (YAML).", "SESSION.yaml")],
    *,
    node: Annotated[Path, required("The settings of a party (YAML); its service need not run.", "--node")],
    json: Json = False,
) -> None:
    """Show what a party would send in a session, before it consents: to whom, what, through which channel.

    Nobody is asked, and nothing leaves. Without a consent to the session in the party's file, it is what
    consenting to all of its variables would mean. Example: masquerade session plan session.yaml --node
    party.yaml
    """
    from masquerade.services.common.release_ledger import FILE, inspect, spending  # noqa: PLC0415
    from masquerade.services.common.settings import load  # noqa: PLC0415
    from masquerade.services.parties.outflow_plan import planned  # noqa: PLC0415
    from masquerade.services.parties.session import SessionSpec  # noqa: PLC0415

    spec, settings = load(file, SessionSpec, environment={}), checked(node, "party")
    entries = inspect(settings.state)[0] if (settings.state / FILE).exists() else ()
    found = planned(spec, settings, entries)
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
                "spent": [item.to_dict() for item in spent],
            }
        )
        return
    table = output.plain_table(f"What {settings.name} would send in session {spec.session!r}, at most")
    for name in ("to", "what", "variables", "channel", "γ"):
        table.add_column(name, justify="right" if name == "γ" else "left")
    for item in found.items:
        channels = dict.fromkeys(
            _channel(found.policy, name) for name in item.variables if name in found.policy.schema
        )
        reported = "values" in item.kind  # counts of own records are of these as they are
        table.add_row(
            item.recipient,
            item.kind + (" (has them already: nothing new)" if item.before else ""),
            output.listed(item.variables, 12),
            "; ".join(channels) if reported else "",
            gamma_text(item.gamma),
        )
    notes = [f"digest of the session: {spec.digest}"]
    if found.unneeded:
        notes.append(f"not needed, and not sent: {', '.join(found.unneeded)}.")
    if not found.consented:
        notes.append(
            f"the party's file has no consent to {spec.session!r}: as things are, nothing leaves. masquerade "
            "session consent prints one."
        )
    elif not found.differences:
        notes.append("the consent in the party's file names this digest: this session may run, no other.")
    if found.differences:
        notes.append(f"its consent says otherwise about {', '.join(found.differences)}: nothing leaves.")
    notes += [
        f"γ spent before with {one.recipient} on {', '.join(one.variables) or 'no variable'}: "
        f"{gamma_text(one.gamma)}"
        for one in spent
    ]
    output.emit(output.render(table, *notes))


@session_app.command("consent")
def consent(
    file: Annotated[Path, argument("The session (YAML).", "SESSION.yaml")],
    *,
    node: Annotated[
        Path, required("The settings of a party or helper (YAML); its service need not run.", "--node")
    ],
    json: Json = False,
) -> None:
    """Print the consent of a node to exactly this session, for `consents` in its file.

    It names the digest of the session's text: what is learnt, from what, by whom. Any other text under the
    same name is refused. Look first at what would leave (session plan). Nothing is changed. Example:
    masquerade session consent session.yaml --node party.yaml
    """
    from masquerade.services.common.settings import load  # noqa: PLC0415
    from masquerade.services.parties.outflow_plan import consent_text, written_consent  # noqa: PLC0415
    from masquerade.services.parties.session import SessionSpec  # noqa: PLC0415
    from masquerade.services.parties.settings import load_before_consent  # noqa: PLC0415

    spec = load(file, SessionSpec, environment={})
    values = written_consent(spec, load_before_consent(node))
    output.emit(values if json else consent_text(spec, values, str(node)))


def _channel(policy: Policy, name: str) -> str:
    """Return what becomes of a variable, in words."""
    from masquerade.cli.privacy import channel_words  # noqa: PLC0415

    group = policy.group(name)
    if group.response is not None:
        return f"{name} dealt in blocks of {group.response.k}"
    beside = f" with {', '.join(it for it in group.names if it != name)}" if len(group.names) > 1 else ""
    return f"{name}{beside} {channel_words(group.matrix_channel)}"


@session_app.command("run")
def run(
    session: Annotated[str, argument("The name of the session.", "SESSION")],
    *,
    node: AtNode,
    detach: Annotated[bool, flag("Do not wait; look with: masquerade session status.", "--detach")] = False,
    out: Out = None,
    overwrite: Overwrite = False,
    wait: Wait = WAIT,
    json: Json = False,
) -> None:
    """Run a session, or resume one that was interrupted, and wait for its model.

    Example: masquerade session run diabetes --node miner.yaml --out model.json
    """
    output.check_target(out, overwrite=overwrite)
    with _reached(node, wait) as operator:
        status = operator.ask("run", {"session": session, "wait": wait})
        step = ""
        while status["state"] == "running" and not detach:
            if status["step"] != step:
                step = status["step"]
                if step.startswith(WAITING) or (step and sys.stderr.isatty()):
                    output.say(f"{session}: {step} …")
            time.sleep(PAUSE)
            status = operator.ask("status", {"session": session})
        if status["state"] == "interrupted":
            output.say(f"session {session!r} was interrupted: {status['reason']}")
            output.say(
                f"once that is mended, resume it: masquerade session run {session} --node {node} "
                "(after a change of the session's own file, create it again first)"
            )
            raise typer.Exit(STOPPED)
        if status["state"] == "done" and out is not None:
            output.emit(operator.ask("model", {"session": session}), out, overwrite=overwrite)
    output.emit(status if json else _described(status))


@session_app.command("cancel")
def cancel(
    session: Annotated[str, argument("The name of the session.", "SESSION")],
    *,
    node: AtNode,
    wait: Wait = WAIT,
    json: Json = False,
) -> None:
    """Stop a session at its next step or message: at all parties, or (at a party's node) there alone.

    A convener may run it again; a party has withdrawn from it for good. Example: masquerade session cancel
    diabetes --node miner.yaml
    """
    with _reached(node, wait) as operator:
        status = operator.ask("cancel", {"session": session})
        while status["state"] == "running":
            time.sleep(PAUSE)
            status = operator.ask("status", {"session": session})
    output.emit(status if json else f"session {session!r} is {status['state']}.\n")


@session_app.command("status")
def status(
    session: Annotated[str | None, argument("One session; without it all.", "[SESSION]")] = None,
    *,
    node: AtNode,
    wait: Wait = WAIT,
    json: Json = False,
) -> None:
    """Show how far a session is and who learnt what in it, or all sessions in a line each.

    Example: masquerade session status diabetes --node miner.yaml
    """
    with _reached(node, wait) as operator:
        found = operator.ask("status", {} if session is None else {"session": session})
    if json:
        output.emit(found)
    elif session is not None:
        output.emit(_described(found))
    else:
        output.emit(
            output.render("\n".join(map(_headline, found["sessions"])) or "no session was created here.")
        )


@session_app.command("example")
def example(
    folder: Folder,
    *,
    protocol: Annotated[str, option(f"How the parties work together: {', '.join(OURS)}.", "KIND")] = EXAMPLE,
    people: Annotated[int, option("How many made-up people.", None, "--n", min=10)] = 2000,
) -> None:
    """Write a whole deployment to try out: two hospitals, a registry and a university, on this machine.

    Where exactly two take part, these are the hospitals.

    Certificates, identities, settings, policies and made-up records, and the commands to start it. Example:
    masquerade session example try
    """
    from masquerade.services.parties.example import (  # noqa: PLC0415
        MINER,
        two_hospitals_and_a_registry,
        write_deployment,
    )

    output.check_new(folder)
    files = write_deployment(folder, two_hospitals_and_a_registry(protocol, people))
    convener = files.get(MINER, files[next(iter(files))])
    output.say(f"wrote a deployment of {len(files)} nodes into {folder}. To run it:")
    lines = [f"masquerade {file.stem} serve {file} &" for file in files.values()]
    lines += [
        f"masquerade session create {folder / 'session.yaml'} --node {convener}",
        f"masquerade session run example --node {convener} --out model.json",
        f"masquerade party ledger {folder / 'north' / 'state'}",
    ]
    output.emit("\n".join(lines) + "\n")


def _reached(file: Path, wait: float) -> Operator:
    """Return how to speak to the service of a node."""
    from masquerade.services.common.client import Operator  # noqa: PLC0415

    settings = _loaded(file, "party" if _likeliest(file) == "party" else "miner")
    return Operator(settings, wait=wait, tell=output.say)


def _headline(status: dict[str, Any]) -> str:
    head = f"session {status['session']!r} ({status['protocol']} of {', '.join(status['parties'])})"
    if status["state"] == "done":
        records = "" if status["records"] is None else f" from {status['records']:,} records"
        return f"{head}: done in {status['seconds']:g} s{records}."
    if status["state"] in {"interrupted", "cancelled"}:
        return f"{head}: {status['state']}. {status['reason']}"
    return f"{head}: {status['state']}{', ' + status['step'] if status['step'] else ''}."


def _described(status: dict[str, Any]) -> str:
    """Return a session in words: its state, and who learnt what."""
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
            "What the file must be for: party, miner, randomness, collector, …",
            "KIND",
            show_default="what it is for",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Check a settings file, the environment's overrides, and the files that it names.

    Keys, tokens and identities that others may read are refused. Example: masquerade config check party.yaml
    """
    from masquerade.services.common.settings import named_files, overrides  # noqa: PLC0415

    known = _kinds()
    if kind is not None and kind not in known:
        raise InputError(f"There are no settings of kind {kind!r}.{did_you_mean(kind, known)}")
    kind = kind or _likeliest(file)
    settings = checked(file, kind)
    files = [name for name, _, _ in named_files(settings)]
    changed = overrides(file, known[kind])
    if json:
        output.emit({"file": str(file), "kind": kind, "valid": True, "files": files, "overridden": changed})
        return
    readable = f"; {counted(len(files), 'file')} it names can be read" if files else ""
    lines = [f"{file} is valid for a {kind}{readable}."]
    lines += [f"{key} is overridden by {variable}." for key, variable in changed.items()]
    output.emit("\n".join(lines) + "\n")


def checked(file: Path, kind: str) -> Any:
    """Return the settings in a file for a kind of service, after looking at every file they name."""
    from masquerade.services.common.settings import check_files  # noqa: PLC0415
    from masquerade.services.parties.settings import PartySettings  # noqa: PLC0415

    settings = _loaded(file, kind)
    check_files(settings, file)
    if isinstance(settings, PartySettings):
        from masquerade.services.parties.local_data import check_records  # noqa: PLC0415  (loads Arrow)

        check_records(settings)
    return settings


def _loaded(file: Path, kind: str) -> Any:
    """Return the settings in a file for a kind of service; a file for another kind is told so."""
    from masquerade.services.common.settings import load  # noqa: PLC0415

    try:
        return load(file, _kinds()[kind])
    except InputError:
        other = _likeliest(file)
        if other == kind:
            raise
        raise InputError(f"{file}: this is a file of kind {other!r}, not {kind!r}.") from None


def _likeliest(file: Path) -> str:
    """Return the kind of service whose keys are most like those of a file."""
    from masquerade.services.common.settings_file import read  # noqa: PLC0415

    keys = set(read(file))

    def likeness(item: tuple[str, type[BaseModel]]) -> int:
        fields = item[1].model_fields
        needed = {name for name, field in fields.items() if field.is_required()}
        return len(keys & fields.keys()) - len(keys - fields.keys()) - len(needed - keys)

    return max(_kinds().items(), key=likeness)[0]


def _kinds() -> Mapping[str, type[BaseModel]]:
    """Return the kinds of settings files and their models."""
    from masquerade.services.counting.settings import KINDS as COUNTING  # noqa: PLC0415
    from masquerade.services.parties.session import SessionSpec  # noqa: PLC0415
    from masquerade.services.parties.settings import KINDS as PARTIES  # noqa: PLC0415
    from masquerade.services.threshold.settings import KINDS as COLLECTING  # noqa: PLC0415  (loads pydantic)
    from masquerade.survey.collector.settings import KINDS as SURVEYS  # noqa: PLC0415

    return {**PARTIES, "session": SessionSpec, **COLLECTING, **COUNTING, **SURVEYS}
