"""How a node reaches the members of a session: others over the network, itself directly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from masquerade.protocols.transport import Transport
from masquerade.services.common.client import HttpTransport
from masquerade.services.parties.session import SessionSpec

Own = Callable[[str, str, str, bytes], bytes]  # (peer, session, role, message) to reply


class SessionTransport:
    """The members of one session, all roles over the same connections."""

    def __init__(self, others: HttpTransport, me: str, own: Own, spec: SessionSpec) -> None:
        self._others, self._me, self._own, self._spec = others, me, own, spec

    def role(self, role: str) -> Transport:
        """Return the transport of one role."""
        return Role(self, role)

    def exchange(self, party: str, role: str, message: bytes) -> bytes:
        """Deliver a message to a role and return the reply."""
        session = self._spec.session
        if party == self._me:
            return self._own(self._me, session, role, message)
        return self._others.exchange(party, message, place=f"sessions/{session}/{role}")

    def close(self) -> None:
        """Close connections."""
        self._others.close()


@dataclass(frozen=True, slots=True)
class Role:
    """One role of the members of a session."""

    members: SessionTransport
    name: str

    def exchange(self, party: str, message: bytes) -> bytes:
        """Deliver a message and return the reply."""
        return self.members.exchange(party, self.name, message)


Connector = Callable[[SessionSpec], SessionTransport]
