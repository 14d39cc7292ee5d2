"""Requests to the running collector on this machine, for what it has published."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx

from masquerade.core.errors import InputError
from masquerade.core.util.private_file import read_private
from masquerade.crypto.certificates import fingerprint
from masquerade.services.common import problems
from masquerade.services.common.client import json_object
from masquerade.services.common.peers import Peer, PinnedContext
from masquerade.services.common.problems import PartyUnreachable
from masquerade.survey.collector.export import OPEN
from masquerade.survey.collector.settings import SurveySettings

_SECONDS: Final = 60.0
_ANY_ADDRESS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  (a key: nothing listens here)


def fetch_figures(settings: SurveySettings) -> dict[str, Any]:
    """Return the figures that the running collector shows.

    Raises
    ------
    PartyUnreachable
        If no collector answers, or the settings have no team token.
    """
    if settings.team_token is None:
        raise PartyUnreachable("The settings have no team_token, which requests to the collector need.")
    return _ask(settings, "team", settings.team_token)


def fetch_reports(settings: SurveySettings) -> dict[str, dict[tuple[int, tuple[int, ...]], int]]:
    """Return the published reports of an open survey: by policy, the count of each mode and codes.

    Raises
    ------
    InputError
        If the settings have no export_token.
    PartyUnreachable
        If no collector answers.
    """
    if settings.export_token is None:
        raise InputError(OPEN)
    rows: Mapping[str, Any] = _ask(settings, "export", settings.export_token)["reports"]
    return {
        name: {(mode, tuple(codes)): number for mode, codes, number in reports}
        for name, reports in rows.items()
    }


def _ask(settings: SurveySettings, place: str, token: Path) -> dict[str, Any]:
    """Post to an endpoint of the collector on this machine.

    A token is never sent elsewhere, even if an untrusted author wrote the settings.
    """
    host = _ANY_ADDRESS.get(settings.listen.host, settings.listen.host)
    scheme = "http" if settings.tls is None else "https"
    address = f"{scheme}://{f'[{host}]' if ':' in host else host}:{settings.listen.port}"
    if not _is_here(host):
        raise PartyUnreachable(f"{address} is not on this machine: run this where the collector runs.")
    bearer = read_private(token, "a token").decode("ascii", "replace").strip()
    try:
        with httpx.Client(
            base_url=address, trust_env=False, timeout=_SECONDS, verify=_context(settings, address)
        ) as http:
            reply = http.post(f"/v1/{place}", headers={"Authorization": f"Bearer {bearer}"})
    except httpx.TransportError:
        raise PartyUnreachable(
            f"No collector of this survey answers at {address}: start it with masquerade survey serve."
        ) from None
    if reply.status_code != 200:
        raise problems.decode(reply.status_code, reply.content, party=settings.name)
    return dict(json_object(reply.content))


def _context(settings: SurveySettings, address: str) -> ssl.SSLContext | bool:
    """Return a TLS context that accepts exactly the certificate of the settings, whatever its host name."""
    if settings.tls is None:
        return True
    context = PinnedContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # the certificate itself is compared
    context.peer = Peer(settings.name, address, (fingerprint(Path(settings.tls.certificate)),))
    return context


def _is_here(host: str) -> bool:
    """Return True if an address belongs to this machine: only then can a socket be bound to it."""
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.bind(where)
    except OSError:
        return False
    return True
