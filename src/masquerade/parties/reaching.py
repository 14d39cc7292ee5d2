"""How a node reaches the members of a session: others over the network, itself directly."""

from __future__ import annotations

from collections.abc import Callable

from masquerade.parties.spec import SessionSpec
from masquerade.serving.client import HttpTransport


class Reaching:
    """A transport over the network to others, and straight to the node itself."""

    def __init__(self, others: HttpTransport, me: str, own: Callable[[bytes], bytes]) -> None:
        self._others, self._me, self._own = others, me, own

    def exchange(self, party: str, message: bytes) -> bytes:
        """Deliver a message and return the reply."""
        return self._own(message) if party == self._me else self._others.exchange(party, message)

    def close(self) -> None:
        """Close connections."""
        self._others.close()


Outward = Callable[[SessionSpec, str], Reaching]
