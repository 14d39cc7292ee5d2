"""Running a node: its settings become a service on the network."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from typing import Any, Self

from masquerade.core.atomic import write_whole
from masquerade.core.errors import InputError
from masquerade.services.common.app import make_app
from masquerade.services.common.certificates import fingerprint
from masquerade.services.common.client import HttpTransport
from masquerade.services.common.peers import Peer
from masquerade.services.common.problems import NotAdmitted
from masquerade.services.common.server import run
from masquerade.services.parties.node import PLACES, Node
from masquerade.services.parties.settings import NodeSettings

ADDRESS = "address"


def app_of(node: Node) -> Any:
    """Return the application of a node."""
    return make_app(
        node.settings.name,
        peers=node.peers,
        limits=node.settings.limits,
        state=node.state,
        handler=node.handle,
        places=PLACES,
    )


def serve(settings: NodeSettings, *, announce: Callable[[str], object] = print) -> None:
    """Serve until told to stop."""
    with closing(Node(settings, announce)) as node:
        run_here(app_of(node), settings, announce)


def run_here(app: Any, settings: NodeSettings, announce: Callable[[str], object]) -> None:
    """Run an application until told to stop; its address is left in the state folder, for the operator."""
    address = settings.state / ADDRESS

    def listening(line: str) -> None:
        url = line.rsplit(" ", 1)[1]
        for everywhere in ("//0.0.0.0:", "//[::]:"):  # the operator is on this machine
            url = url.replace(everywhere, "//127.0.0.1:")
        write_whole(address, url + "\n", private=True)
        announce(line)

    try:
        run(
            app,
            host=settings.listen.host,
            port=settings.listen.port,
            **files_of(settings),
            announce=listening,
        )
    finally:
        address.unlink(missing_ok=True)


def address_of(settings: NodeSettings, how: str, patience: float) -> str:
    """Return where a node listens, waiting a while for one that is just being started."""
    place, until = settings.state / ADDRESS, time.monotonic() + patience
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
            **files_of(settings),
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


def files_of(settings: NodeSettings) -> dict[str, Any]:
    """Return the files of TLS, as servers and clients take them."""
    tls = settings.tls
    if tls is None:
        return {}
    return {"certificate": tls.certificate, "key": tls.key, "authority": tls.authority}
