"""Running a node: its settings become a service on the network."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from masquerade.services.common.server import run_node
from masquerade.services.common.service import Service
from masquerade.services.parties.node import PLACES, Node
from masquerade.services.parties.settings import SessionNodeSettings


def service_of(node: Node) -> Service:
    """Return the service that a node is."""
    return Service(
        node.settings.name,
        peers=node.peers,
        limits=node.settings.limits,
        state=node.state,
        handler=node.handle,
        places=PLACES,
    )


def serve(settings: SessionNodeSettings, *, announce: Callable[[str], object] = print) -> None:
    """Serve until told to stop."""
    with closing(Node(settings, announce)) as node:
        run_node(service_of(node), settings, announce)
