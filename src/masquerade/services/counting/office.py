"""The enrolment office: it makes sure who is who, and fixes who is counted, once for everybody."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from masquerade.core.errors import FileError, InputError
from masquerade.core.util.atomic import write_whole
from masquerade.core.util.json_text import parse_json, read_text
from masquerade.services.common.client import HttpTransport, once_started
from masquerade.services.counting.person_file import ENDING, Admission, PersonFile
from masquerade.services.counting.settings import CountOfficeSettings

PERSON_NAME: Final = re.compile(r"[A-Za-z0-9@_-][A-Za-z0-9@._-]{0,99}")
ROSTER, ADMISSION = "roster.json", "admission.json"
_MINER = "the miner"
_MOST_JSON = 1 << 26


def enrol(
    people: Sequence[str],
    settings: CountOfficeSettings,
    folder: str | Path,
    *,
    wait: float = 10.0,
    tell: Callable[[str], object] = lambda _: None,
) -> dict[str, Path]:
    """Fix who is counted, at the miner and every leader, and return each person's file.

    The folder gets a file for each person, to be handed over; `roster.json` with everybody's public key, and
    `admission.json`, which are nobody's secret. People whose public key stands in the roster already keep the
    file that they have. Servers that are being
    started are waited for; run again with the same people after something failed, it goes on.
    """
    _check_names(people)
    out, description = Path(folder), settings.description()
    out.mkdir(mode=0o700, parents=True, exist_ok=True)
    known = _known(out / ROSTER)
    files = {person: out / f"{person}{ENDING}" for person in people}
    for person in people:
        if person not in known:
            known[person] = PersonFile.make(files[person], person)
            listed = {name: key.hex() for name, key in known.items()}
            write_whole(out / ROSTER, "{" + ",\n ".join(f'"{n}": "{k}"' for n, k in listed.items()) + "}\n")
    terms = description.terms({person: known[person] for person in people})
    peers = [settings.miner.peer(_MINER)]
    peers += [peer.peer(name) for name, peer in settings.leaders.items()]
    if set(settings.leaders) != set(description.leaders):
        raise InputError("The office knows other leaders than the description of the count names.")
    with HttpTransport(settings.name, peers, tls=settings.tls.files()) as http:
        for peer in [*peers[1:], peers[0]]:
            handing = partial(http.exchange, peer.name, terms.encode(), place="enrol")
            if once_started(handing, peer.name, wait, tell) != terms.digest:
                raise InputError(f"{peer.name} took other terms than it was given.")
    authority = settings.tls.authority
    pem = "" if authority is None else authority.read_text(encoding="ascii")
    admission = Admission(
        description.name, settings.miner.url or "", settings.miner.fingerprints, pem, terms.digest.hex()
    )
    write_whole(out / ADMISSION, admission.to_json())
    for file in files.values():
        if file.is_file():  # others have theirs, and get the public file
            person_file = PersonFile(file)
            person_file.admit(admission)
            person_file.close()
    return files


def _check_names(people: Sequence[str]) -> None:
    for place, person in enumerate(people, start=1):
        if not PERSON_NAME.fullmatch(person):
            raise InputError(
                f"Person {place}: a name consists of 1 to 100 letters, digits, '@', '.', '_' or '-', and "
                "does not begin with a dot."
            )
    if len(set(people)) < len(people):
        raise InputError("A person is listed twice.")


def _known(roster: Path) -> dict[str, bytes]:
    """Return the public keys that the office knows already."""
    if not roster.exists():
        return {}
    try:
        values = parse_json(read_text(roster, most=_MOST_JSON))
        return {str(name): bytes.fromhex(key) for name, key in values.items()}
    except FileError:
        raise
    except (InputError, AttributeError, TypeError, ValueError):
        raise FileError(f"{roster}: is not a list of people's public keys.") from None
