"""Running a node: its settings become a service on the network."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

from masquerade.services.common.app import make_app
from masquerade.services.common.server import run_node
from masquerade.services.parties.node import PLACES, Node
from masquerade.services.parties.settings import SessionNodeSettings


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


def serve(settings: SessionNodeSettings, *, announce: Callable[[str], object] = print) -> None:
    """Serve until told to stop."""
    with closing(Node(settings, announce)) as node:
        run_node(app_of(node), settings, announce)
