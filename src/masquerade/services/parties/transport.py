"""How a node reaches the members of a session: others over the network, itself directly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from masquerade.protocols.session import Transport
from masquerade.services.common.client import HttpTransport
from masquerade.services.parties.session import SessionSpec


@dataclass(frozen=True, slots=True)
class SessionTransport:
    """The members of one session, all roles over the same connections.

    `own` answers for this node itself: (peer, session, role, message) to reply.
    """

    others: HttpTransport
    name: str
    own: Callable[[str, str, str, bytes], bytes]
    spec: SessionSpec

    def role(self, role: str) -> Transport:
        """Return the transport of one role."""
        return RoleTransport(self, role)

    def close(self) -> None:
        """Close connections."""
        self.others.close()


@dataclass(frozen=True, slots=True)
class RoleTransport:
    """One role of the members of a session."""

    members: SessionTransport
    role: str

    def exchange(self, party: str, message: bytes) -> bytes:
        """Deliver a message and return the reply."""
        members, session = self.members, self.members.spec.session
        if party == members.name:
            return members.own(party, session, self.role, message)
        return members.others.exchange(party, message, place=f"sessions/{session}/{self.role}")


Connector = Callable[[SessionSpec], SessionTransport]
