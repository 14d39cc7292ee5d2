"""The enrolment office: it identifies people, and obtains one credential per person, always the same one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from masquerade.core.errors import FileError
from masquerade.core.util.atomic import write_whole
from masquerade.crypto.errors import DecodingError
from masquerade.protocols.k_anonymity.threshold.messages import Credential
from masquerade.protocols.people.roster import check_person_names
from masquerade.services.common.client import HttpTransport
from masquerade.services.common.peers import TlsFiles
from masquerade.services.common.problems import ServiceFailed
from masquerade.services.common.settings import check_private
from masquerade.services.threshold.messages import MOST_ENROLLED
from masquerade.services.threshold.settings import OfficeSettings

ENDING: Final = ".credential"
_RANDOMNESS = "randomness server"


def enrol(people: Sequence[str], settings: OfficeSettings) -> dict[str, bytes]:
    """Return people's credentials by name.

    The randomness server learns the names, which can be pseudonyms. A person with two names would get two
    credentials, count twice, and could open a class of fewer than k people: the office must give each person
    that it identifies only one name.
    """
    check_person_names(people)
    tls = TlsFiles(authority=settings.authority) if settings.tls is None else settings.tls.files()
    with HttpTransport(settings.name, [settings.randomness.peer(_RANDOMNESS)], tls=tls) as http:
        credentials: dict[str, bytes] = {}
        for at in range(0, len(people), MOST_ENROLLED):
            some = list(people[at : at + MOST_ENROLLED])
            reply = http.post_json(_RANDOMNESS, "enrol", {"people": some})
            credentials |= dict(zip(some, _credentials(reply, len(some)), strict=True))
    return credentials


def write_credentials(credentials: dict[str, bytes], folder: str | Path) -> list[Path]:
    """Write each credential to its own file, readable only by its owner; return the files."""
    place = Path(folder)
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    files = [place / f"{person}{ENDING}" for person in credentials]
    for file, credential in zip(files, credentials.values(), strict=True):
        write_whole(file, credential.hex() + "\n", private=True)
    return files


def read_credential(path: str | Path) -> bytes:
    """Read a credential from a file; only its owner may have access to the file."""
    place = Path(path)
    try:
        check_private(place)
        credential = bytes.fromhex(place.read_text(encoding="ascii").strip())
        Credential.decode(credential)
    except OSError as error:
        raise FileError(f"{place}: cannot be read ({(error.strerror or 'error').lower()}).") from None
    except FileError:
        raise
    except (DecodingError, ValueError):
        raise FileError(f"{place}: is not a credential of a randomness server.") from None
    return credential


def _credentials(reply: object, number: int) -> list[bytes]:
    listed = reply.get("credentials") if isinstance(reply, dict) else None
    try:
        credentials = [bytes.fromhex(one) for one in listed or ()]
        for one in credentials:
            Credential.decode(one)
    except (TypeError, ValueError):
        raise ServiceFailed("The randomness server's reply does not contain valid credentials.") from None
    if len(credentials) != number:
        raise ServiceFailed("The randomness server's reply has the wrong number of credentials.")
    return credentials
