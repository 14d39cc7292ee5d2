"""Running the two servers, and how their operators speak to them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from masquerade.core.errors import InputError
from masquerade.services.collect.base import ANYBODY, OPERATE, Server
from masquerade.services.collect.collector import Collecting
from masquerade.services.collect.randomness_server import Randomness
from masquerade.services.collect.settings import CollectorSettings, CollectSettings, RandomnessSettings
from masquerade.services.common.node import Operator
from masquerade.services.common.server import run_node
from masquerade.services.common.service import Service


def server_of(settings: CollectSettings) -> Server:
    """Return what settings are for."""
    if isinstance(settings, RandomnessSettings):
        return Randomness(settings)
    if isinstance(settings, CollectorSettings):
        return Collecting(settings)
    raise InputError("These are settings of neither a randomness server nor a collector.")


def service_of(server: Server) -> Service:
    """Return the service that a server is.

    Replies are kept in memory alone: every place may be asked again without harm, and a store of replies
    would tell when each report came.
    """
    return Service(
        server.settings.name,
        peers=server.peers,
        limits=server.settings.limits,
        handler=server.handle,
        ready=server.ready,
        places=(*server.places, OPERATE),
        anonymous=ANYBODY,
    )


def serve(settings: CollectSettings, *, announce: Callable[[str], object] = print) -> None:
    """Serve until told to stop."""

    def listening(line: str) -> None:
        announce(line)
        announce(server.described())

    with closing(server_of(settings)) as server:
        run_node(service_of(server), settings, listening)


def operator_of(
    settings: CollectSettings, wait: float = 10.0, tell: Callable[[str], object] = lambda _: None
) -> Operator:
    """Return how the operator speaks to a server on this machine, waiting for one that is being started."""
    kind = "randomness" if isinstance(settings, RandomnessSettings) else "collector"
    return Operator(settings, f"masquerade collect {kind} serve", wait, tell)
