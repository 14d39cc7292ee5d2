"""`masquerade count`: people who each keep their own record are counted by votes, sums or a mix."""

from __future__ import annotations

import os
import sys
from json import dumps
from pathlib import Path
from typing import Annotated, Any, Literal

from masquerade.cli.options import WAIT, Folder, Json, Wait, argument, group, option, required
from masquerade.cli.output import check_new, emit, say
from masquerade.core.errors import FileError, InputError
from masquerade.core.util.formatting import counted

count_app = group("Count people who each keep their own record: votes, secure aggregation, or a mix.")

AtNode = Annotated[
    Path, required("The settings of the miner or leader, which must be running on this machine.", "--node")
]


@count_app.command("serve")
def serve(
    file: Annotated[Path, argument("The settings of the miner, or of a leader (YAML).", "FILE")],
) -> None:
    """Serve as miner or, for a mix, as leader until told to stop; the miner may be started again at any time.

    What it has counted it has; a round in which votes may have left is spent. The keys of a mix are in memory
    alone: who stops in the middle of one ends it. Example: masquerade count serve miner.yaml
    """
    server, settings = _server(file)
    server(settings).serve(say)


@count_app.command("enrol")
def enrol(
    people: Annotated[
        list[str] | None, argument("The office's names for people, one each.", "[PERSON]...")
    ] = None,
    *,
    office: Annotated[Path, required("The settings of the enrolment office.")],
    listed: Annotated[Path | None, option("A file with one name a line.", "FILE", "--from")] = None,
    out: Annotated[Path, required("The folder for people's files.", "--out", "-o", metavar="FOLDER")],
    wait: Wait = WAIT,
    json: Json = False,
) -> None:
    """Fix who is counted, and write a private file for each person, to be handed over.

    It is done once for a count: everybody agrees to the same people and rules, by their digest. Enrol people
    whom you know, each under one name. Example: masquerade count enrol --from people.txt --office office.yaml
    --out people
    """
    from masquerade.cli.nodes import checked  # noqa: PLC0415
    from masquerade.services.counting import office as enrolment  # noqa: PLC0415  (loads the web client)

    try:
        lines = [] if listed is None else listed.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise FileError(f"{listed}: is not a text file in UTF-8.") from None
    names = [*(people or []), *(line.strip() for line in lines if line.strip())]
    if not names:
        raise InputError("Name the people to enrol, or give a file with --from.")
    files = enrolment.enrol(names, checked(office, "count-office"), out, wait=wait, tell=say)
    if json:
        emit({"people": {name: str(file) for name, file in files.items()}})
        return
    enrolled = counted(len(files), "person", "people")
    say(f"{enrolled} enrolled; hand each file in {out} to its person, and keep no copy.")


@count_app.command("take-part")
def take_part(
    file: Annotated[Path, argument("The person's file, from the enrolment office.", "FILE")],
    *,
    record: Annotated[Path, required("The person's record as JSON, a label for each variable.")],
    admission: Annotated[
        Path | None, option("The public file of a further count, from the same office.", "FILE")
    ] = None,
    count: Annotated[str | None, option("Which count, if the file was admitted to several.", "NAME")] = None,
    wait: Annotated[
        float | None, option("Seconds to stay; without it until the count is over.", min=0)
    ] = None,
    json: Json = False,
) -> None:
    """Take part in a count from one's own machine, until it is over; run it again to go on.

    The file remembers what has left, and nothing leaves twice. Questions that would give the person away are
    refused, whoever asks. Example: masquerade count take-part anna.person --record anna.json
    """
    if not file.is_file():
        raise FileError(f"{file}: there is no such file; the enrolment office hands it over.")
    options = {
        "file": str(file),
        "record": str(record),
        "admission": None if admission is None else str(admission),
        "count": count,
        "wait": wait,
        "json": json,
    }
    # this process becomes one without the command line, which takes a third of what a device may need
    arguments = [sys.executable, "-P", "-m", "masquerade.services.counting", dumps(options)]
    os.execv(sys.executable, arguments)  # noqa: S606


@count_app.command("close")
def close(*, node: AtNode, wait: Wait = WAIT, json: Json = False) -> None:
    """End a count: devices are told; a mix is shuffled and opened now.

    Example: masquerade count close --node miner.yaml
    """
    _show(_asked(node, wait, "close"), json=json)


@count_app.command("status")
def status(*, node: AtNode, wait: Wait = WAIT, json: Json = False) -> None:
    """Show how far a count is, who left and who was caught cheating.

    Example: masquerade count status --node miner.yaml
    """
    _show(_asked(node, wait, "status"), json=json)


@count_app.command("restored")
def restored(
    *,
    node: AtNode,
    agree: Annotated[str | None, option("What you agree to, in its words.", "WORDS")] = None,
    wait: Wait = WAIT,
) -> None:
    """Say whether a server was restored from a backup, and agree to what that gives away.

    Example: masquerade count restored --node miner.yaml
    """
    from masquerade.cli.nodes import tell_restored  # noqa: PLC0415

    server, settings = _server(node)
    tell_restored(server, settings, node, agree, wait)


@count_app.command("example")
def example(
    folder: Folder,
    *,
    people: Annotated[int, option("How many made-up people.", None, "--n", min=3)] = 20,
    protocol: Annotated[
        Literal["frequency", "aggregation", "mix"], option("How they are counted.")
    ] = "frequency",
) -> None:
    """Write a whole count to try out, on this machine: a miner, leaders, an office, made-up people.

    In earnest they are on different machines, run by different people. Example: masquerade count example try
    """
    from masquerade.services.counting.example import commands, made_up, write_count  # noqa: PLC0415

    check_new(folder)
    files = write_count(folder, protocol=protocol, records=made_up(people), minimum=min(people, 10))
    say(f"wrote a count of {counted(people, 'person', 'people')} into {folder}. To run it:")
    emit("\n".join(commands(folder, files)) + "\n")


def _server(file: Path) -> tuple[Any, Any]:
    """Return the service that a settings file is for, and the settings."""
    from masquerade.cli.nodes import checked  # noqa: PLC0415
    from masquerade.services.common.settings_file import read  # noqa: PLC0415

    if "miner" in read(file):
        from masquerade.services.counting.leader import LeaderService  # noqa: PLC0415

        return LeaderService, checked(file, "count-leader")
    from masquerade.services.counting.miner import MinerService  # noqa: PLC0415

    return MinerService, checked(file, "count-miner")


def _asked(node: Path, wait: float, what: str) -> dict[str, Any]:
    from masquerade.services.common.client import Operator  # noqa: PLC0415

    with Operator(_server(node)[1], wait=wait, tell=say) as operator:
        return operator.ask(what, {})


def _show(said: dict[str, Any], *, json: bool) -> None:
    if json:
        emit(said)
        return
    shown = {
        name: value for name, value in said.items() if name not in ("count", "protocol", "state", "terms")
    }
    told = [
        f"{name} {', '.join(value) if isinstance(value, list) else value}"
        for name, value in shown.items()
        if value not in (None, [])
    ]
    emit(f"count {said['count']!r} by {said['protocol']}: {'; '.join([said['state'], *told])}\n")
