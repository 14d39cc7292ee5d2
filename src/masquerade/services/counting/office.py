"""The enrolment office: it identifies people, and fixes the list of people who are counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from masquerade.core.errors import FileError, InputError
from masquerade.core.util.atomic import write_whole
from masquerade.core.util.json_text import parse_json, read_text
from masquerade.protocols.people.roster import check_person_names
from masquerade.services.common.client import HttpTransport, once_started
from masquerade.services.counting.person_file import ENDING, Admission, PersonFile
from masquerade.services.counting.settings import CountOfficeSettings

ROSTER, ADMISSION = "roster.json", "admission.json"
_MINER = "the miner"
_MOST_JSON = 1 << 26
_TOGETHER = 256  # people who are added to the roster by one write


def enrol(
    people: Sequence[str],
    settings: CountOfficeSettings,
    folder: str | Path,
    *,
    wait: float = 10.0,
    tell: Callable[[str], object] = lambda _: None,
) -> dict[str, Path]:
    """Send the list of people to the miner and every leader; return the path of each person's file.

    The folder gets one file per person, to be handed to the person, and two public files: `roster.json` with
    all public keys, and `admission.json`. People whose public key is in the roster already keep their file.
    The function waits up to `wait` seconds for servers that are starting. After a failure, call it again with
    the same people.
    """
    check_person_names(people)
    out, description = Path(folder), settings.description()
    out.mkdir(mode=0o700, parents=True, exist_ok=True)
    roster = _load_roster(out / ROSTER)
    files = {person: out / f"{person}{ENDING}" for person in people}
    _make_files(files, roster, out / ROSTER)
    terms = description.terms({person: roster[person] for person in people})
    peers = [settings.miner.peer(_MINER)]
    peers += [peer.peer(name) for name, peer in settings.leaders.items()]
    if set(settings.leaders) != set(description.leaders):
        raise InputError("The leaders in the office's settings differ from the description of the count.")
    with HttpTransport(settings.name, peers, tls=settings.tls.files()) as http:
        for peer in [*peers[1:], peers[0]]:
            handing = partial(http.exchange, peer.name, terms.encode(), place="enrol")
            if once_started(handing, peer.name, wait, tell) != terms.digest:
                raise InputError(f"{peer.name} confirmed different terms from those it received.")
    authority = settings.tls.authority
    pem = "" if authority is None else authority.read_text(encoding="ascii")
    admission = Admission(
        description.name, settings.miner.url or "", settings.miner.fingerprints, pem, terms.digest.hex()
    )
    write_whole(out / ADMISSION, admission.to_json())
    for file in files.values():
        if file.is_file():  # people who have already received their file get the public file instead
            person_file = PersonFile(file)
            person_file.admit(admission)
            person_file.close()
    return files


def _make_files(files: Mapping[str, Path], roster: dict[str, bytes], place: Path) -> None:
    """Create the files of people who are not in the roster yet, and add their public keys to it.

    The roster is written once for many people: a file per person would take time quadratic in their number.
    """
    new = [person for person in files if person not in roster]
    for first in range(0, len(new), _TOGETHER):
        try:
            for person in new[first : first + _TOGETHER]:
                roster[person] = _identity_of(files[person], person)
        finally:
            lines = ",\n ".join(f'"{name}": "{key.hex()}"' for name, key in roster.items())
            write_whole(place, "{" + lines + "}\n")


def _identity_of(file: Path, person: str) -> bytes:
    """Return the public key in a person's file; create the file unless an interrupted call has made it."""
    if not file.exists():
        return PersonFile.make(file, person)
    person_file = PersonFile(file)
    try:
        if person_file.name != person:
            raise FileError(f"{file}: is the file of another person.")
        return person_file.identity.public
    finally:
        person_file.close()


def _load_roster(roster: Path) -> dict[str, bytes]:
    """Load the public keys of people who have a file already."""
    if not roster.exists():
        return {}
    try:
        values = parse_json(read_text(roster, most=_MOST_JSON))
        return {str(name): bytes.fromhex(key) for name, key in values.items()}
    except FileError:
        raise
    except (InputError, AttributeError, TypeError, ValueError):
        raise FileError(f"{roster}: is not a list of people's public keys.") from None
