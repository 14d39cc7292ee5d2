"""The enrolment office: it makes sure who is asking, and gets each person a credential, always the same."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from masquerade.core.errors import FileError, InputError
from masquerade.core.util.atomic import write_whole
from masquerade.crypto.errors import DecodingError
from masquerade.protocols.k_anonymity.threshold.messages import Credential
from masquerade.services.common.client import HttpTransport
from masquerade.services.common.peers import TlsFiles
from masquerade.services.common.problems import ServiceFailed
from masquerade.services.common.settings import check_private
from masquerade.services.threshold.messages import MOST_ENROLLED
from masquerade.services.threshold.settings import OfficeSettings

ENDING: Final = ".credential"
PERSON_NAME: Final = re.compile(r"[A-Za-z0-9@_-][A-Za-z0-9@._-]{0,99}")
_RANDOMNESS = "randomness server"


def enrol(people: Sequence[str], settings: OfficeSettings) -> dict[str, bytes]:
    """Return people's credentials, by name. The randomness server learns the names: they may be pseudonyms.

    One person under two names has two credentials, and opens any class it can name: the names are the
    office's own, one for each person it has seen.
    """
    for place, person in enumerate(people, start=1):
        if not PERSON_NAME.fullmatch(person):
            raise InputError(
                f"Person {place}: a name consists of 1 to 100 letters, digits, '@', '.', '_' or '-', and "
                "does not begin with a dot."
            )
    if len(set(people)) < len(people):
        raise InputError("A person is listed twice.")
    tls = TlsFiles(authority=settings.authority) if settings.tls is None else settings.tls.files()
    with HttpTransport(settings.name, [settings.randomness.peer(_RANDOMNESS)], tls=tls) as http:
        found: dict[str, bytes] = {}
        for at in range(0, len(people), MOST_ENROLLED):
            some = list(people[at : at + MOST_ENROLLED])
            said = http.post_json(_RANDOMNESS, "enrol", {"people": some})
            found |= dict(zip(some, _credentials(said, len(some)), strict=True))
    return found


def write_credentials(credentials: dict[str, bytes], folder: str | Path) -> list[Path]:
    """Write each credential to a file of its own, which only its owner can read; return the files."""
    place = Path(folder)
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    files = [place / f"{person}{ENDING}" for person in credentials]
    for file, credential in zip(files, credentials.values(), strict=True):
        write_whole(file, credential.hex() + "\n", private=True)
    return files


def read_credential(path: str | Path) -> bytes:
    """Return the credential in a file that only its owner may read."""
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


def _credentials(said: object, number: int) -> list[bytes]:
    given = said.get("credentials") if isinstance(said, dict) else None
    try:
        found = [bytes.fromhex(one) for one in given or ()]
        for one in found:
            Credential.decode(one)
    except (TypeError, ValueError):
        raise ServiceFailed("The randomness server answered with something that is no credentials.") from None
    if len(found) != number:
        raise ServiceFailed("The randomness server answered with another number of credentials than asked.")
    return found
