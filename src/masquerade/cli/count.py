"""`masquerade count`: count people who each keep their own record, by votes, secure sums or a mixnet."""

from __future__ import annotations

import csv
import os
import sys
from io import StringIO
from json import dumps
from pathlib import Path
from typing import Annotated, Any, Literal

from masquerade.cli.enrolment import NameFile, OfficeFile, People, ask_server, read_names
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
    required_option,
)
from masquerade.cli.output import check_new, emit, say, write_whole
from masquerade.cli.record_limit import DEFAULT, AcceptGamma, OwnLimit, confirm_record_gamma
from masquerade.core.errors import FileError, InputError
from masquerade.core.util.formatting import counted

count_app = group("Count people who each keep their own record: by votes, sums, a mix or a suppressed table.")

AtNode = Annotated[
    Path,
    required_option("The settings of a server of the count that runs on this machine.", "--node"),
]


@count_app.command("serve")
def serve(
    file: Annotated[Path, argument("The settings of the miner, or of another server (YAML).", "FILE")],
    *,
    accept_gamma: AcceptGamma = None,
) -> None:
    """Run a miner, a leader or a randomness server until it is stopped; a miner may be restarted at any time.

    Counts are durable. A round in which votes may have been sent is not repeated. The keys of a mix, and of
    a suppressed table, are in memory only: it ends if one of its servers stops.

    Example: masquerade count serve miner.yaml
    """
    server, settings = _server(file)
    confirm_record_gamma(settings.description().load_policy(), accept_gamma)
    server(settings).serve(say)


@count_app.command("enrol")
def enrol(
    people: People = None,
    *,
    office: OfficeFile,
    listed: NameFile = None,
    out: Annotated[Path, required_option("The folder for people's files.", "--out", "-o", metavar="FOLDER")],
    accept_gamma: AcceptGamma = None,
    wait: Wait = WAIT,
    json: Json = False,
) -> None:
    """Fix who is counted, and write one private file per person, to be handed over.

    This is done once per count: all participants agree to the same people and rules by their digest. Enrol
    people you know, each under one name.

    Example: masquerade count enrol --from people.txt --office office.yaml --out people
    """
    from masquerade.cli.settings_files import load_settings  # noqa: PLC0415
    from masquerade.services.counting import office as enrolment  # noqa: PLC0415  (loads the web client)

    names, settings = read_names(people, listed), load_settings(office, "count-office")
    confirm_record_gamma(settings.description().load_policy(), accept_gamma)
    files = enrolment.enrol(names, settings, out, wait=wait, tell=say)
    if json:
        emit({"people": {name: str(file) for name, file in files.items()}})
        return
    enrolled = counted(len(files), "person", "people")
    say(f"{enrolled} enrolled; hand each file in {out} to its person, and keep no copy.")


@count_app.command("take-part")
def take_part(
    file: Annotated[Path, argument("The person's file, from the enrolment office.", "FILE")],
    *,
    record: Annotated[Path, required_option("The person's record as JSON, one label per variable.")],
    admission: Annotated[
        Path | None, option("The public file of a further count, from the same office.", "FILE")
    ] = None,
    count: Annotated[str | None, option("The count, if the file is admitted to several.", "NAME")] = None,
    wait: Annotated[
        float | None, option("Seconds to participate; by default until the count is over.", min=0)
    ] = None,
    limit: OwnLimit = DEFAULT,
    accept_clear: Annotated[
        bool,
        flag(
            "Participate even if reports reveal more than the limit; they are then treated as clear.",
            "--accept-clear",
        ),
    ] = False,
    earlier: Annotated[
        list[str] | None,
        option("An earlier mix or table with this record, after which you agree to another one.", "NAME"),
    ] = None,
    json: Json = False,
) -> None:
    """Participate in a count from this machine until the count is over; run it again to continue.

    What the reports reveal is shown first, and nothing is drawn above the limit. The person's file stores
    what was sent, and nothing is sent twice. Queries that would single the person out are refused.
    Example: masquerade count take-part anna.person --record anna.json
    """
    if not file.is_file():
        raise FileError(f"{file}: there is no such file; the enrolment office hands it over.")
    options = {
        "file": str(file),
        "record": str(record),
        "admission": None if admission is None else str(admission),
        "count": count,
        "wait": wait,
        "limit": limit,
        "accept_clear": accept_clear,
        "earlier": earlier or [],
        "json": json,
    }
    # replace this process: the command line alone takes a third of a device's memory limit
    arguments = [sys.executable, "-P", "-m", "masquerade.services.counting", dumps(options)]
    os.execv(sys.executable, arguments)  # noqa: S606


@count_app.command("close")
def close(*, node: AtNode, wait: Wait = WAIT, json: Json = False) -> None:
    """End a count and notify the devices; a mix then opens its reports, and a suppression makes its table.

    Example: masquerade count close --node miner.yaml
    """
    _show(ask_server(_server(node)[1], wait, close={})[0], json=json)


@count_app.command("status")
def status(*, node: AtNode, wait: Wait = WAIT, json: Json = False) -> None:
    """Show the progress of a count, who left, and who was caught cheating.

    Example: masquerade count status --node miner.yaml
    """
    _show(ask_server(_server(node)[1], wait, status={})[0], json=json)


@count_app.command("table")
def table(
    *,
    node: AtNode,
    out: Out = None,
    overwrite: Overwrite = False,
    wait: Wait = WAIT,
    json: Json = False,
) -> None:
    """Show the table of a suppression with the group of every row; * is a suppressed value.

    Example: masquerade count table --node miner.yaml --out table.csv
    """
    result = ask_server(_server(node)[1], wait, result={})[0]
    if "rows" not in result:
        raise InputError("Only a suppression has a table; open other counts with mq.people.count.")
    if json:
        emit({name: result[name] for name in ("attributes", "rows", "groups", "refused", "guarantee")})
        return
    rows = sorted(zip(result["groups"], result["rows"], strict=True), key=lambda row: row[0])
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["group", *result["attributes"]])
    for group_number, values in rows:
        writer.writerow([group_number + 1, *("*" if value is None else value for value in values)])
    if out is None:
        emit(text.getvalue())
    else:
        write_whole(out, text.getvalue().encode(), overwrite=overwrite)
        say(f"wrote {counted(len(rows), 'row')} to {out}.")


@count_app.command("plan")
def plan(
    file: Annotated[Path, argument("The description of a count (YAML).", "FILE")],
    *,
    people: Annotated[int, option("Number of people who would be enrolled.", None, "--n", min=3)] = 20,
    json: Json = False,
) -> None:
    """Show who would learn what from a count, and under which assumptions, before people are enrolled.

    Example: masquerade count plan count.yaml --n 20
    """
    from masquerade.cli.settings_files import load_settings  # noqa: PLC0415
    from masquerade.services.counting.office import plan_guarantee  # noqa: PLC0415

    description = load_settings(file, "count")
    guarantee = plan_guarantee(description, people)
    if json:
        emit({"count": description.name, "protocol": description.protocol, "guarantee": guarantee.to_dict()})
        return
    enrolled = counted(people, "person", "people")
    lines = [f"count {description.name!r} by {description.protocol}, {enrolled}. Who learns what:"]
    emit("\n".join([*lines, *(f"- {line}" for line in guarantee.summary().split("\n"))]) + "\n")


@count_app.command("restored")
def restored_command(
    *,
    node: AtNode,
    agree: Annotated[str | None, option("The sentence that you agree to.", "WORDS")] = None,
    wait: Wait = WAIT,
) -> None:
    """Show whether a server was restored from a backup, and agree to what the restore reveals.

    Example: masquerade count restored --node miner.yaml
    """
    from masquerade.cli.nodes import confirm_restore  # noqa: PLC0415

    server, settings = _server(node)
    confirm_restore(server, settings, node, agree, wait)


@count_app.command("example")
def example(
    folder: Folder,
    *,
    people: Annotated[int, option("Number of synthetic people.", None, "--n", min=3)] = 20,
    protocol: Annotated[
        Literal["frequency", "aggregation", "mix", "suppression"], option("The protocol.")
    ] = "frequency",
    k: Annotated[
        int, option("With suppression: the least number of people in a group.", None, "--k", min=2)
    ] = 3,
) -> None:
    """Write a count to try out on this machine: a miner, leaders, an office, synthetic people.

    In production they are on separate machines with separate operators.

    Example: masquerade count example try
    """
    from masquerade.services.counting.example import commands, example_records, write_count  # noqa: PLC0415

    check_new(folder)
    more: dict[str, Any] = {"k": k} if protocol == "suppression" else {}
    files = write_count(
        folder, protocol=protocol, records=example_records(people), minimum=min(people, 10), **more
    )
    say(f"wrote a count of {counted(people, 'person', 'people')} into {folder}. To run it:")
    emit("\n".join(commands(folder, files)) + "\n")


def _server(file: Path) -> tuple[Any, Any]:
    """Return the class of the service that a settings file is for, and the settings."""
    from masquerade.cli.settings_files import load_settings  # noqa: PLC0415
    from masquerade.services.common.settings_file import read  # noqa: PLC0415

    values = read(file)
    if "evaluates_for" in values:
        from masquerade.services.counting.randomness import GroupRandomnessService  # noqa: PLC0415

        return GroupRandomnessService, load_settings(file, "count-randomness")
    if "miner" in values:
        from masquerade.services.counting.leader import LeaderService  # noqa: PLC0415

        return LeaderService, load_settings(file, "count-leader")
    from masquerade.services.counting.miner import MinerService  # noqa: PLC0415

    return MinerService, load_settings(file, "count-miner")


def _show(reply: dict[str, Any], *, json: bool) -> None:
    """Print the reply of a server."""
    if json:
        emit(reply)
        return
    shown = {
        name: value for name, value in reply.items() if name not in ("count", "protocol", "state", "terms")
    }
    facts = [
        f"{name} {', '.join(value) if isinstance(value, list) else value}"
        for name, value in shown.items()
        if value not in (None, [])
    ]
    emit(f"count {reply['count']!r} by {reply['protocol']}: {'; '.join([reply['state'], *facts])}\n")
