"""Base of servers that people's devices call without credentials: counting and threshold reporting."""

from __future__ import annotations

from typing import Final

from masquerade.core.errors import InputError
from masquerade.services.common.jobs import Call, Handler
from masquerade.services.common.peers import Peer
from masquerade.services.common.server import NodeServer
from masquerade.services.common.state import INTERRUPTED, State

ANYBODY: Final = Peer("Anybody")  # names of peers in settings have no capital letters, so this is unique


class PeopleServer(NodeServer):
    """A server of one count or epoch; a subclass sets the handlers by path, `places`."""

    CALLED = "server"
    places: dict[str, Handler]

    def answer(self, call: Call) -> bytes:
        """Answer a message with the handler of its path."""
        return self.places[call.place](call)

    def check_doubt(self, title: str, over: str) -> None:
        """Raise InputError if the state was restored, and may lack events of the count or epoch.

        `title` names the count or epoch in the message; `over` ends the message with the consequence.
        """
        if self.restores.doubted:
            raise InputError(f"{self.restores.doubt} What has happened in {title} is not known: {over}")

    def check_interrupted(self, name: str, title: str, over: str) -> None:
        """Raise InputError if the count or epoch `name` was running when the state was restored."""
        if self.state.notes.get(INTERRUPTED, name) is not None:
            title = title[0].upper() + title[1:]
            raise InputError(
                f"{title} was running when this server's state was restored from a backup: {over}"
            )

    @staticmethod
    def interrupt(state: State, name: str) -> None:
        """Store that the count or epoch `name` may have continued after the backup, so that it must end."""
        if state.notes.get(INTERRUPTED, name) is None:
            state.notes.put(INTERRUPTED, name, b"")
