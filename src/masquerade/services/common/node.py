"""A node among others: whom it knows, how it calls them, and how its own operator speaks to it."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable
from typing import Any, Self, TypeVar

from masquerade.core.errors import InputError
from masquerade.crypto.certificates import fingerprint
from masquerade.crypto.keys import token_digest
from masquerade.services.common.client import HttpTransport
from masquerade.services.common.peers import Peer
from masquerade.services.common.problems import NotAdmitted, PartyUnreachable
from masquerade.services.common.settings import NodeSettings

T = TypeVar("T")
_PAUSE = 0.2  # seconds between two tries to reach a service that is being started
_SILENT_SECONDS = 2.0  # before anybody is told that it is waited for


def peers_of(settings: NodeSettings) -> dict[str, Peer]:
    """Return everybody who may call, the node's own operator among them."""
    own_token = None if settings.operator_token is None else settings.operator_token.read_text().strip()
    found = {
        settings.name: Peer(
            settings.name,
            fingerprints=() if settings.tls is None else (fingerprint(settings.tls.certificate),),
            token_digest=None if own_token is None else token_digest(own_token),
        )
    }
    for name, peer in settings.peers.items():
        found[name] = Peer(
            name,
            peer.url,
            peer.fingerprints,
            peer.token_digest,
            None if peer.token_file is None else peer.token_file.read_text().strip(),
            peer.identity,
        )
    return found


def peer_transport(
    settings: NodeSettings,
    peers: dict[str, Peer],
    *,
    seconds: float | None = None,
    retries: int | None = None,
) -> HttpTransport:
    """Return how a node reaches its peers, with its own certificate and within its own limits."""
    return HttpTransport(
        settings.name,
        peers,
        tls=settings.tls_files(),
        timeout=settings.limits.seconds if seconds is None else seconds,
        retries=settings.retries if retries is None else retries,
        limits=settings.limits,
    )


def json_object(data: bytes) -> dict[str, Any]:
    """Return the JSON object of a message."""
    try:
        values = json.loads(data or b"{}")
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise InputError("The message is no JSON object.")
    return values


class NotRunning(InputError):
    """A service on this machine that has not said where it listens."""


def once_started(
    ask: Callable[[], T], name: str, wait: float, tell: Callable[[str], object] = lambda _: None
) -> T:
    """Return what a service answers, asking again for `wait` seconds while nobody answers there.

    A service that is being started has no address yet, or nobody listens there; after a moment `tell` is told
    that it is waited for.
    """
    began, told = time.monotonic(), False
    while True:
        try:
            return ask()
        except (NotRunning, PartyUnreachable):
            waited = time.monotonic() - began
            if waited >= wait:
                raise
            if waited >= _SILENT_SECONDS and not told:
                told = True
                tell(f"waiting for {name!r} to start, {wait:g} seconds at most")
            time.sleep(_PAUSE)


class Operator:
    """How the operator of a node speaks to it: with the node's own credentials, on its own machine.

    `how` says by which command it is started, for when it does not run. Until it has answered once, it is
    waited for, `wait` seconds in all; see `once_started`.
    """

    def __init__(
        self,
        settings: NodeSettings,
        how: str = "masquerade party serve or masquerade miner serve",
        wait: float = 10.0,
        tell: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._settings, self._how, self._wait, self._tell = settings, how, wait, tell
        self._http: HttpTransport | None = None

    def ask(self, what: str, values: dict[str, Any]) -> dict[str, Any]:
        """Let the node do something, and return what it says."""
        name, key = self._settings.name, secrets.token_urlsafe(24)

        def asked() -> dict[str, Any]:
            http, repeatable = self._http or self._connected(), what in {"status", "model"}
            try:
                answer: dict[str, Any] = http.post_json(
                    name, f"operate/{what}", values, key=key, repeatable=repeatable
                )
            except BaseException:
                if self._http is None:
                    http.close()  # where it listens is looked up again
                raise
            self._http = http
            return answer

        try:
            return once_started(asked, name, self._wait if self._http is None else 0.0, self._tell)
        except NotAdmitted:
            raise NotAdmitted(
                f"{name!r} does not know the certificate or token in its file: restart it, if they "
                "were replaced since it was started."
            ) from None

    def _connected(self) -> HttpTransport:
        """Return a way to where the node says that it listens."""
        settings = self._settings
        try:
            url = settings.address_file.read_text(encoding="ascii").strip()
        except OSError:
            raise NotRunning(
                f"{settings.name!r} is not running on this machine (there is no {settings.address_file}): "
                f"start it with {self._how}."
            ) from None
        token = None if settings.operator_token is None else settings.operator_token.read_text().strip()
        marks = () if settings.tls is None else (fingerprint(settings.tls.certificate),)
        own = Peer(settings.name, url, marks, token=token)
        return HttpTransport(
            settings.name, [own], tls=settings.tls_files(), retries=1, limits=settings.limits
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._http is not None:
            self._http.close()
