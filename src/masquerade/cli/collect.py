"""`masquerade collect`: rows of people who trust nobody with them; those of large enough classes open."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from masquerade.cli.nodes import AgreeToRestore, checked, tell_restored
from masquerade.cli.options import WAIT, Folder, Json, Overwrite, Wait, argument, group, option, required
from masquerade.cli.output import check_new, check_streams, check_target, emit, say
from masquerade.core.errors import FileError, InputError
from masquerade.core.util.formatting import counted

UNFINISHED = 1

collect_app = group(
    "Rows of people who trust nobody with them: a row opens if at least k share its quasi-identifier."
)
randomness_app = group("The randomness server, run by somebody else than the collector.")
collector_app = group("The collector, run by somebody else than the randomness server.")
collect_app.add_typer(randomness_app, name="randomness")
collect_app.add_typer(collector_app, name="collector")

SettingsFile = Annotated[Path, argument("The settings of the server (YAML).", "FILE")]
AtNode = Annotated[
    Path, required("The settings of the server, which must be running on this machine.", "--node")
]


@randomness_app.command("serve")
def serve_randomness(file: SettingsFile) -> None:
    """Serve as randomness server until told to stop; the epoch in the file is opened with a new key.

    Unless the file names a secret to seal the key under, it is in memory only: a server that stops before the
    epoch is closed ends it, and a new epoch needs a new name. Example: masquerade collect randomness serve
    randomness.yaml
    """
    from masquerade.services.threshold.randomness_server import RandomnessService  # noqa: PLC0415

    RandomnessService(checked(file, "randomness")).serve(say)


@collector_app.command("serve")
def serve_collector(file: SettingsFile) -> None:
    """Serve as collector until told to stop; it may be started again at any time.

    Example: masquerade collect collector serve collector.yaml
    """
    from masquerade.services.threshold.collector import CollectorService  # noqa: PLC0415

    CollectorService(checked(file, "collector")).serve(say)


@collect_app.command("enrol")
def enrol(
    people: Annotated[
        list[str] | None, argument("The office's names for people, one each.", "[PERSON]...")
    ] = None,
    *,
    office: Annotated[Path, required("The settings of the enrolment office.")],
    listed: Annotated[Path | None, option("A file with one name a line.", "FILE", "--from")] = None,
    out: Annotated[Path, required("The folder for the credentials.", "--out", "-o", metavar="FOLDER")],
    json: Json = False,
) -> None:
    """Get people's credentials from the randomness server, a private file each, to be handed over.

    Whoever has two credentials opens any class it can name: enrol people whom you know, each under one name.
    Example: masquerade collect enrol anna ben --office office.yaml --out credentials
    """
    from masquerade.services.threshold import enrolment_office  # noqa: PLC0415  (loads the web client)

    try:
        lines = [] if listed is None else listed.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise FileError(f"{listed}: is not a text file in UTF-8.") from None
    names = [*(people or []), *(line.strip() for line in lines if line.strip())]
    if not names:
        raise InputError("Name the people to enrol, or give a file with --from.")
    credentials = enrolment_office.enrol(names, checked(office, "office"))
    files = enrolment_office.write_credentials(credentials, out)
    if json:
        emit({"credentials": [str(file) for file in files]})
        return
    say(f"wrote {len(files):,} credentials into {out}: hand each to its person, and keep no copy.")


@collect_app.command("submit")
def submit(
    rows: Annotated[Path, argument("One row as .json, or a table (CSV, Parquet) of several people.", "ROWS")],
    *,
    collection: Annotated[Path, required("What people were given (YAML).")],
    credential: Annotated[
        Path, required("The person's credential; for a table the folder of all.", metavar="PATH")
    ],
    records: Annotated[
        Path | None,
        option("Where to remember what was sent; beside the credential if not given.", "FOLDER"),
    ] = None,
    key: Annotated[str, option("The column of a table that names people.")] = "person",
    agree: Annotated[
        str | None, option("Of a collection with several epochs: what you agree to, in its words.", "WORDS")
    ] = None,
    wait: Annotated[float, option("Seconds to wait for the epoch to be closed.", min=0)] = 0.0,
    json: Json = False,
) -> None:
    """Take part: ask the randomness server once, and report to the collector after the epoch is closed.

    Run it again to go on: what was sent is remembered, and nothing is sent twice. A report leaves only when
    the randomness server has signed that the key is destroyed. Where the form has hierarchies, a row whose
    class did not open goes again, coarser by a level, once the servers collect that one. Example: masquerade
    collect submit row.json --collection collection.yaml --credential anna.credential
    """
    from masquerade.services.threshold.levels import Participation  # noqa: PLC0415

    settings = checked(collection, "collection")
    folder = records or (credential if credential.is_dir() else credential.absolute().parent)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = Participation(settings, rows, credential, folder, key, agree).submit(wait)
    figures = {"asked": found.asked, "delivered": found.delivered, "waiting": found.waiting}
    if json:
        emit(
            figures | ({"level": found.level, "opened": found.opened} if found.level or found.opened else {})
        )
    else:
        for level, number in enumerate(found.opened):
            say(f"level {level}: {counted(number, 'row')} opened.")
        at = f"level {found.level}: " if found.level else ""
        say(f"{at}{found.asked:,} evaluated, {found.delivered:,} reported.")
    if found.waiting:
        say(f"{found.waits_for}: run this again after that, with the same files.")
        raise typer.Exit(UNFINISHED)


@collect_app.command("close")
def close(
    *,
    node: AtNode,
    epoch: Annotated[
        str | None, option("An earlier epoch; without it the one in the settings.", "NAME")
    ] = None,
    wait: Wait = WAIT,
    json: Json = False,
) -> None:
    """Close the epoch at the randomness server: its key is destroyed for good, and reports may be sent.

    Example: masquerade collect close --node randomness.yaml
    """
    (said,) = _asked(checked(node, "randomness"), wait, close={} if epoch is None else {"epoch": epoch})
    if json:
        emit(said)
        return
    served = counted(said["evaluations"], "evaluation")
    emit(f"epoch {said['epoch']!r} is closed after {served}; its key is destroyed.\n")
    if said["problem"]:
        say(
            f"the collector could not be told: {said['problem']} People will bring it the closing themselves."
        )


@collect_app.command("open")
def open_classes(
    *,
    node: AtNode,
    out: Annotated[str, required("Where to: .csv, .parquet or .arrow.", "--out", "-o")],
    overwrite: Overwrite = False,
    wait: Wait = WAIT,
    json: Json = False,
) -> None:
    """Take no more reports, open the classes that reached k, and write their rows.

    Rows of smaller classes are missing, and not at random. Opening again writes the same rows. Example:
    masquerade collect open --node collector.yaml --out rows.csv
    """
    from masquerade.services.threshold.results import described, opened_rows, write_rows  # noqa: PLC0415
    from masquerade.services.threshold.settings import load_form  # noqa: PLC0415

    check_streams(out, json=json)
    check_target(out, overwrite=overwrite)
    settings = checked(node, "collector")
    _, result = _asked(settings, wait, open={}, result={})
    form = load_form(settings.form, settings.epoch.level)
    write_rows(opened_rows(result, form), out, overwrite=overwrite)
    shown = {name: value for name, value in result.items() if name != "opening"}
    if json:
        emit(shown | {"out": out})
    else:
        for line in described(shown, out):
            say(line)


@collect_app.command("status")
def status(*, node: AtNode, wait: Wait = WAIT, json: Json = False) -> None:
    """Show how far a server's epoch is.

    Example: masquerade collect status --node collector.yaml
    """
    from masquerade.services.common.settings_file import read  # noqa: PLC0415

    kind = "collector" if "randomness" in read(node) else "randomness"
    (said,) = _asked(checked(node, kind), wait, status={})
    if json:
        emit(said)
        return
    reports = f", {counted(said['reports'], 'report')}" if "reports" in said else ""
    asked_for = "" if said["evaluations"] is None else f", {counted(said['evaluations'], 'evaluation')}"
    emit(f"epoch {said['epoch']!r}: {said['state']}{asked_for}{reports}; notice {said['notice']}\n")


@collect_app.command("restored")
def restored(*, node: AtNode, agree: AgreeToRestore = None, wait: Wait = WAIT) -> None:
    """Say whether a server was restored from a backup, and agree to what that gives away.

    What has happened since the backup is not known to a restored server: the epoch is over, and no other one
    begins until its operator agrees; the release ledger keeps the words. Example: masquerade collect restored
    --node collector.yaml
    """
    from masquerade.services.common.settings_file import read  # noqa: PLC0415
    from masquerade.services.threshold.collector import CollectorService  # noqa: PLC0415
    from masquerade.services.threshold.randomness_server import RandomnessService  # noqa: PLC0415

    kind = "collector" if "randomness" in read(node) else "randomness"
    server = CollectorService if kind == "collector" else RandomnessService
    tell_restored(server, checked(node, kind), node, agree, wait)


@collect_app.command("example")
def example(
    folder: Folder,
    *,
    people: Annotated[int, option("How many made-up people.", None, "--n", min=1)] = 60,
    k: Annotated[int, option("How many rows of a class open it, at least.", None, "-k", min=2)] = 5,
) -> None:
    """Write a whole collection to try out, on this machine: two servers, an office, a form, made-up people.

    In earnest the two servers, the office and the people are on different machines, run by different people.
    Example: masquerade collect example try
    """
    from masquerade.services.threshold.example import commands, made_up, write_collection  # noqa: PLC0415

    check_new(folder)
    files = write_collection(folder, k=k, rows=made_up(people))
    say(f"wrote a collection of {counted(people, 'person', 'people')} into {folder}. To run it:")
    emit("\n".join(commands(folder, files)) + "\n")


def _asked(settings: Any, wait: float, **what: dict[str, Any]) -> list[dict[str, Any]]:
    """Let a server do things for its operator, one after the other, and return what it says."""
    from masquerade.services.common.client import Operator  # noqa: PLC0415

    with Operator(settings, wait=wait, tell=say) as operator:
        return [operator.ask(name, values) for name, values in what.items()]
