"""A node among others: whom it knows, how it calls them, and how its own operator speaks to it."""

from __future__ import annotations

import json
import time
from typing import Any, Self

from masquerade.core.errors import InputError
from masquerade.crypto import tokens
from masquerade.crypto.certificates import fingerprint
from masquerade.services.common.client import HttpTransport
from masquerade.services.common.peers import Peer
from masquerade.services.common.problems import NotAdmitted
from masquerade.services.common.settings import NodeSettings


def peers_of(settings: NodeSettings) -> dict[str, Peer]:
    """Return everybody who may call, the node's own operator among them."""
    own_token = None if settings.operator_token is None else settings.operator_token.read_text().strip()
    found = {
        settings.name: Peer(
            settings.name,
            fingerprints=() if settings.tls is None else (fingerprint(settings.tls.certificate),),
            token_digest=None if own_token is None else tokens.digest(own_token),
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
        **settings.tls_files(),
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


def address_of(settings: NodeSettings, how: str, patience: float) -> str:
    """Return where a node listens, waiting a while for one that is just being started."""
    place, until = settings.address_file, time.monotonic() + patience
    while True:
        try:
            return place.read_text(encoding="ascii").strip()
        except OSError:
            if time.monotonic() > until:
                raise InputError(
                    f"{settings.name!r} is not running on this machine (there is no {place}): start it with "
                    f"{how}."
                ) from None
            time.sleep(0.2)


class Operator:
    """How the operator of a node speaks to it: with the node's own credentials, on its own machine.

    `how` says by which command it is started, for when it does not run.
    """

    def __init__(
        self,
        settings: NodeSettings,
        how: str = "masquerade party serve or masquerade miner serve",
        patience: float = 10.0,
    ) -> None:
        url = address_of(settings, how, patience)
        token = None if settings.operator_token is None else settings.operator_token.read_text().strip()
        marks = () if settings.tls is None else (fingerprint(settings.tls.certificate),)
        self._name = settings.name
        self._http = HttpTransport(
            self._name,
            [Peer(self._name, url, marks, token=token)],
            **settings.tls_files(),
            retries=1,
            limits=settings.limits,
        )

    def ask(self, what: str, values: dict[str, Any]) -> dict[str, Any]:
        """Let the node do something, and return what it says."""
        asking = what in {"status", "model"}
        try:
            answer: dict[str, Any] = self._http.post_json(
                self._name, f"operate/{what}", values, repeatable=asking
            )
        except NotAdmitted:
            raise NotAdmitted(
                f"{self._name!r} does not know the certificate or token in its file: restart it, if they "
                "were replaced since it was started."
            ) from None
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()
