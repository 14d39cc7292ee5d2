"""What a request says about itself: version, credentials, place and key, each read strictly."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from starlette.requests import Request

from masquerade.core.errors import InputError
from masquerade.services.common.exactly_once import Handler
from masquerade.services.common.problems import NotFound, WrongVersion

VERSIONS = (1,)
VERSION_HEADER = "Masquerade-Version"
KEY_HEADER = "Idempotency-Key"
CERTIFICATE = "peer_certificate"  # in the state that the server gives a request
_PLACE = re.compile(r"(?!.*(?:^|/)\.{1,2}(?:/|$))[A-Za-z0-9._~-]+(?:/[A-Za-z0-9._~-]+)*")
_KEY = re.compile(r"[A-Za-z0-9._~-]{8,128}")
_OFFER = re.compile(r"[0-9]{1,4}(, ?[0-9]{1,4}){0,9}")
_LONGEST_PLACE = 200


@dataclass(frozen=True, slots=True)
class Place:
    """Where messages may go: a template such as ``sessions/{session}/columns``, and who handles them."""

    template: str
    pattern: re.Pattern[str]
    handler: Handler


def compiled(places: Mapping[str, Handler]) -> list[Place]:
    """Return places from templates, in the order given."""
    made = []
    for template, handler in places.items():
        parts = re.split(r"\{(\w+)(:path)?\}", template.strip("/"))
        pattern = "".join(
            re.escape(text) + (f"(?P<{name}>{'.+' if whole else '[^/]+'})" if name else "")
            for text, name, whole in zip(parts[::3], [*parts[1::3], None], [*parts[2::3], None], strict=True)
        )
        made.append(Place(template, re.compile(pattern), handler))
    return made


def found(places: Sequence[Place], path: str) -> tuple[str, Handler, str, dict[str, str]]:
    """Return the place that a path names, its handler, its template and the template's parameters."""
    if len(path) <= _LONGEST_PLACE and _PLACE.fullmatch(path):
        for place in places:
            match = place.pattern.fullmatch(path)
            if match:
                return path, place.handler, place.template, match.groupdict()
    raise NotFound("This service has no such place.")


def agreed_version(request: Request) -> int:
    """Return the newest version that the caller offers and this service speaks; without one, refuse."""
    given = request.headers.getlist(VERSION_HEADER)
    offered = given[0].split(",") if len(given) == 1 and _OFFER.fullmatch(given[0]) else []
    common = {int(version) for version in offered} & set(VERSIONS)
    if not common:
        spoken = ", ".join(map(str, VERSIONS))
        raise WrongVersion(
            f"This service speaks version {spoken}: offer one of them in one header {VERSION_HEADER}."
        )
    return max(common)


def bearer(request: Request) -> str | None:
    """Return the token that was shown, None if none was; what cannot be read is nobody's token."""
    given = request.headers.getlist("authorization")
    if not given:
        return None
    scheme, _, token = given[0].partition(" ")
    return token.strip() if len(given) == 1 and scheme.lower() == "bearer" else ""


def certificate(request: Request) -> bytes | None:
    """Return the certificate that the connection was made with."""
    shown = request.scope.get("state", {}).get(CERTIFICATE)
    return shown if isinstance(shown, bytes) else None


def key(request: Request) -> str | None:
    """Return the idempotency key, None if there is none."""
    given = request.headers.getlist(KEY_HEADER)
    if not given:
        return None
    if len(given) > 1 or not _KEY.fullmatch(given[0]):
        raise InputError(f"{KEY_HEADER} comes once, and has 8 to 128 letters, digits, '.', '_', '~' or '-'.")
    return given[0]
