"""`masquerade collect`: threshold reporting; rows open once enough people share their quasi-identifier."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from masquerade.cli.enrolment import NameFile, OfficeFile, People, ask_server, read_names
from masquerade.cli.nodes import AgreeToRestore, confirm_restore
from masquerade.cli.options import (
    WAIT,
    Folder,
    Json,
    Overwrite,
    Wait,
    argument,
    group,
    option,
    required_option,
)
from masquerade.cli.output import check_new, check_streams, check_target, emit, say
from masquerade.cli.settings_files import load_settings
from masquerade.core.util.formatting import counted

UNFINISHED = 1

collect_app = group(
    "Collect rows from people who trust no server: a row opens if at least k share its quasi-identifier."
)
randomness_app = group("The randomness server. Its operator must not also operate the collector.")
collector_app = group("The collector. Its operator must not also operate the randomness server.")
collect_app.add_typer(randomness_app, name="randomness")
collect_app.add_typer(collector_app, name="collector")

SettingsFile = Annotated[Path, argument("The settings of the server (YAML).", "FILE")]
AtNode = Annotated[
    Path, required_option("The settings of the server, which must be running on this machine.", "--node")
]


@randomness_app.command("serve")
def serve_randomness(file: SettingsFile) -> None:
    """Run the randomness server until it is stopped; the epoch in the file is opened with a new key.

    The key is in memory only, unless the file names a secret that encrypts a stored copy. If a server without
    a stored key stops before the epoch is closed, the epoch ends, and a new epoch needs a new name.

    Example: masquerade collect randomness serve randomness.yaml
    """
    from masquerade.services.threshold.randomness_server import RandomnessService  # noqa: PLC0415

    RandomnessService(load_settings(file, "randomness")).serve(say)


@collector_app.command("serve")
def serve_collector(file: SettingsFile) -> None:
    """Run the collector until it is stopped; it may be restarted at any time.

    Example: masquerade collect collector serve collector.yaml
    """
    from masquerade.services.threshold.collector import CollectorService  # noqa: PLC0415

    CollectorService(load_settings(file, "collector")).serve(say)


@collect_app.command("enrol")
def enrol(
    people: People = None,
    *,
    office: OfficeFile,
    listed: NameFile = None,
    out: Annotated[Path, required_option("The folder for the credentials.", "--out", "-o", metavar="FOLDER")],
    json: Json = False,
) -> None:
    """Get credentials from the randomness server, one private file per person, to be handed over.

    A spare credential and the reports open any one class, whatever k is: enrol people you know, each once.
    Example: masquerade collect enrol anna ben --office office.yaml --out credentials
    """
    from masquerade.services.threshold import enrolment_office  # noqa: PLC0415  (loads the web client)

    names = read_names(people, listed)
    credentials = enrolment_office.enrol(names, load_settings(office, "office"))
    files = enrolment_office.write_credentials(credentials, out)
    if json:
        emit({"credentials": [str(file) for file in files]})
        return
    say(f"wrote {len(files):,} credentials into {out}: hand each to its person, and keep no copy.")


@collect_app.command("submit")
def submit(
    rows: Annotated[Path, argument("One row as .json, or a table (CSV, Parquet) of several people.", "ROWS")],
    *,
    collection: Annotated[
        Path, required_option("The collection's file, which all participants received (YAML).")
    ],
    credential: Annotated[
        Path,
        required_option(
            "The person's credential; for a table, the folder of all credentials.", metavar="PATH"
        ),
    ],
    records: Annotated[
        Path | None,
        option("Folder that stores what was sent; by default the folder of the credential.", "FOLDER"),
    ] = None,
    key: Annotated[str, option("The column of a table that names people.")] = "person",
    agree: Annotated[
        str | None, option("If the collection has several epochs: the sentence that you agree to.", "WORDS")
    ] = None,
    wait: Annotated[float, option("Seconds to wait for the epoch to be closed.", min=0)] = 0.0,
    json: Json = False,
) -> None:
    """Participate: ask the randomness server once, and report to the collector after the epoch is closed.

    Run the command again to continue: it stores what was sent, and sends nothing twice. A report leaves only
    when the randomness server has signed that the key is destroyed. If the form has hierarchies, a row whose
    class did not open is sent again, one level coarser, once the servers collect that level.

    Example: masquerade collect submit row.json --collection collection.yaml --credential anna.credential
    """
    from masquerade.services.threshold.client import disclosure  # noqa: PLC0415  (loads the web client)
    from masquerade.services.threshold.levels import CollectionRun  # noqa: PLC0415

    settings = load_settings(collection, "collection")
    say(disclosure(settings))
    folder = records or (credential if credential.is_dir() else credential.absolute().parent)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = CollectionRun(settings, rows, credential, folder, key, agree).submit(wait)
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
    epoch: Annotated[str | None, option("The epoch; by default the one in the settings.", "NAME")] = None,
    wait: Wait = WAIT,
    json: Json = False,
) -> None:
    """Close the epoch at the randomness server: its key is destroyed permanently, and reports may be sent.

    Example: masquerade collect close --node randomness.yaml
    """
    (reply,) = ask_server(
        load_settings(node, "randomness"), wait, close={} if epoch is None else {"epoch": epoch}
    )
    if json:
        emit(reply)
        return
    served = counted(reply["evaluations"], "evaluation")
    emit(f"epoch {reply['epoch']!r} is closed after {served}; its key is destroyed.\n")
    if reply["problem"]:
        say(f"the collector was not notified: {reply['problem']} Clients that report will notify it.")


@collect_app.command("open")
def open_classes(
    *,
    node: AtNode,
    out: Annotated[str, required_option("Output file: .csv, .parquet or .arrow.", "--out", "-o")],
    overwrite: Overwrite = False,
    wait: Wait = WAIT,
    json: Json = False,
) -> None:
    """Stop taking reports, open the classes that reached k, and write their rows.

    Rows of smaller classes are not opened, so rows are not missing at random. Opening again writes the same
    rows.

    Example: masquerade collect open --node collector.yaml --out rows.csv
    """
    from masquerade.services.threshold.results import describe_result, opened_rows, write_rows  # noqa: PLC0415
    from masquerade.services.threshold.settings import load_form  # noqa: PLC0415

    check_streams(out, json=json)
    check_target(out, overwrite=overwrite)
    settings = load_settings(node, "collector")
    _, result = ask_server(settings, wait, open={}, result={})
    form = load_form(settings.form, settings.epoch.level)
    write_rows(opened_rows(result, form), out, overwrite=overwrite)
    shown = {name: value for name, value in result.items() if name != "opening"}
    if json:
        emit(shown | {"out": out})
    else:
        for line in describe_result(shown, out):
            say(line)


@collect_app.command("status")
def status(*, node: AtNode, wait: Wait = WAIT, json: Json = False) -> None:
    """Show the progress of a server's epoch.

    Example: masquerade collect status --node collector.yaml
    """
    (reply,) = ask_server(load_settings(node, _server_type(node)), wait, status={})
    if json:
        emit(reply)
        return
    reports = f", {counted(reply['reports'], 'report')}" if "reports" in reply else ""
    served = "" if reply["evaluations"] is None else f", {counted(reply['evaluations'], 'evaluation')}"
    emit(f"epoch {reply['epoch']!r}: {reply['state']}{served}{reports}; notice {reply['notice']}\n")


@collect_app.command("restored")
def restored_command(*, node: AtNode, agree: AgreeToRestore = None, wait: Wait = WAIT) -> None:
    """Show whether a server was restored from a backup, and agree to what the restore reveals.

    A restored server does not know what happened since the backup: the epoch is over, and no other epoch
    starts until its operator agrees. The release ledger stores the agreement.

    Example: masquerade collect restored --node collector.yaml
    """
    from masquerade.services.threshold.collector import CollectorService  # noqa: PLC0415
    from masquerade.services.threshold.randomness_server import RandomnessService  # noqa: PLC0415

    kind = _server_type(node)
    server = CollectorService if kind == "collector" else RandomnessService
    confirm_restore(server, load_settings(node, kind), node, agree, wait)


@collect_app.command("example")
def example(
    folder: Folder,
    *,
    people: Annotated[int, option("Number of synthetic people.", None, "--n", min=1)] = 60,
    k: Annotated[int, option("Least number of rows that open a class.", None, "-k", min=2)] = 5,
) -> None:
    """Write a collection to try out on this machine: two servers, an office, a form, synthetic people.

    In production the two servers, the office and the people are on separate machines with separate operators.
    Example: masquerade collect example try
    """
    from masquerade.services.threshold.example import commands, draw_example_rows, write_collection  # noqa: PLC0415

    check_new(folder)
    files = write_collection(folder, k=k, rows=draw_example_rows(people))
    say(f"wrote a collection of {counted(people, 'person', 'people')} into {folder}. To run it:")
    emit("\n".join(commands(folder, files)) + "\n")


def _server_type(file: Path) -> str:
    """Return the type of server that a settings file is for."""
    from masquerade.services.common.settings_file import read  # noqa: PLC0415

    return "collector" if "randomness" in read(file) else "randomness"
