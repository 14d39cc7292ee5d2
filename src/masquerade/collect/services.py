"""Running the two servers, and how their operators speak to them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from masquerade.collect.collector import Collecting
from masquerade.collect.common import ANYBODY, OPERATE, Server
from masquerade.collect.randomness import Randomness
from masquerade.collect.settings import CollectorSettings, CollectSettings, RandomnessSettings
from masquerade.core.errors import InputError
from masquerade.core.whole import write_whole
from masquerade.parties.services import ADDRESS, Operator, files_of
from masquerade.serving.app import make_app
from masquerade.serving.running import run


def server_of(settings: CollectSettings) -> Server:
    """Return what settings are for."""
    if isinstance(settings, RandomnessSettings):
        return Randomness(settings)
    if isinstance(settings, CollectorSettings):
        return Collecting(settings)
    raise InputError("These are settings of neither a randomness server nor a collector.")


def app_of(server: Server) -> Any:
    """Return the application of a server.

    Replies are kept in memory alone: every place may be asked again without harm, and a store of replies
    would tell when each report came.
    """
    return make_app(
        server.settings.name,
        peers=server.peers,
        limits=server.settings.limits,
        handler=server.handle,
        ready=server.ready,
        places=(*server.places, OPERATE),
        anonymous=ANYBODY,
    )


def serve(settings: CollectSettings, *, announce: Callable[[str], object] = print) -> None:
    """Serve until told to stop. The address is also left in the state folder, for the operator's commands."""
    server = server_of(settings)
    address = settings.state / ADDRESS

    def listening(line: str) -> None:
        write_whole(address, line.rsplit(" ", 1)[1] + "\n", private=True)
        announce(line)
        announce(server.described())

    try:
        run(
            app_of(server),
            host=settings.listen.host,
            port=settings.listen.port,
            **files_of(settings),
            announce=listening,
        )
    finally:
        address.unlink(missing_ok=True)
        server.close()


def operator_of(settings: CollectSettings, patience: float = 10.0) -> Operator:
    """Return how the operator speaks to a server on this machine, waiting for one that is being started."""
    place, until = settings.state / ADDRESS, time.monotonic() + patience
    while not place.exists():
        if time.monotonic() > until:
            kind = "randomness" if isinstance(settings, RandomnessSettings) else "collector"
            raise InputError(
                f"{settings.name!r} is not running on this machine (there is no {place}): start it with "
                f"masquerade collect {kind} serve."
            )
        time.sleep(0.2)
    return Operator(settings)
