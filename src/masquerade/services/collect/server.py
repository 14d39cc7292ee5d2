"""What both servers are: state, identity, form and terms, who may ask what; and how they are run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from masquerade.core.errors import InputError
from masquerade.crypto.keys import load_identity
from masquerade.services.collect.settings import CollectSettings, load_form
from masquerade.services.common import logs
from masquerade.services.common.jobs import Call, Handler
from masquerade.services.common.node import Operator, json_object, peers_of
from masquerade.services.common.peers import Peer
from masquerade.services.common.problems import NotAdmitted, NotFound
from masquerade.services.common.server import run_node
from masquerade.services.common.service import Service
from masquerade.services.common.state import INTERRUPTED, ONCE, SESSION, State

ANYBODY: Final = Peer("Anybody")  # a capital letter: no peer in a settings file can be called so
Operation = Callable[[dict[str, Any]], dict[str, Any]]


class CollectServer:
    """Everything behind the address of a server; a subclass says what it does at which place."""

    places: dict[str, Handler]
    operations: dict[str, Operation]

    def __init__(self, settings: CollectSettings, other: str) -> None:
        self.settings = settings
        self.identity = load_identity(settings.identity)
        if settings.peers[other].identity == self.identity.public.hex():
            raise InputError(
                f"{other!r} has the same identity as this server: the two must be different ones."
            )
        self.form = load_form(settings.form)
        self.terms = settings.epoch.terms(self.form)
        self.peers = peers_of(settings)
        self.log = logs.Logger(settings.name)
        self.state = State.open(settings.state)
        self._refuse_after_a_restore()

    def _refuse_after_a_restore(self) -> None:
        """End the epoch of a state that came from a backup, even one before it: it may have begun since."""
        notes = self.state.notes
        if self.state.restored and notes.get(INTERRUPTED, self.epoch) is None:
            notes.put(INTERRUPTED, self.epoch, b"")
        if notes.get(INTERRUPTED, self.epoch) is None:
            return
        self.state.close()
        raise InputError(
            f"This server's state was restored from a backup, and what has happened in epoch {self.epoch!r} "
            "is not known: it is over. Name a new epoch in the settings of both servers."
        )

    @property
    def epoch(self) -> str:
        """Return the name of the current epoch."""
        return self.terms.epoch

    @property
    def once(self) -> Path:
        """Return the folder of what may happen only once, which no backup brings back."""
        return self.state.folder / ONCE

    def remember(self, notice: bytes) -> None:
        """Remember that the epoch began, so that a restore of older state shows."""
        self.state.notes.put(SESSION, self.epoch, notice)

    def remembered(self) -> bytes | None:
        """Return the notice of the epoch, None if it has not begun."""
        return self.state.notes.get(SESSION, self.epoch)

    def handle(self, call: Call) -> bytes:
        """Answer a message."""
        what = call.parameters.get("what")
        if what is not None:
            if call.peer.name != self.settings.name:
                raise NotAdmitted("Only this server's own operator may do this.")
            if what not in self.operations:
                raise NotFound("There is no such operation here.")
            return json.dumps(self.operations[what](json_object(call.body))).encode()
        return self.places[call.place](call)

    def service(self) -> Service:
        """Return the service that this server is.

        Replies are kept in memory alone: every place may be asked again without harm, and a store of replies
        would tell when each report came.
        """
        return Service(
            self.settings.name,
            peers=self.peers,
            limits=self.settings.limits,
            handler=self.handle,
            ready=self.ready,
            places=(*self.places, "operate/{what}"),
            anonymous=ANYBODY,
        )

    def ready(self) -> bool:
        """Tell whether requests should be sent here."""
        return True

    def described(self) -> str:
        """Return a line for the operator when the service starts."""
        return f"epoch {self.epoch!r}, k = {self.terms.k}"

    def close(self) -> None:
        """Let go of files."""
        self.state.close()


def serve(server: CollectServer, *, announce: Callable[[str], object] = print) -> None:
    """Serve until told to stop, and let go of files."""

    def listening(line: str) -> None:
        announce(line)
        announce(server.described())

    with closing(server):
        run_node(server.service(), server.settings, listening)


def operator_of(
    settings: CollectSettings, wait: float = 10.0, tell: Callable[[str], object] = lambda _: None
) -> Operator:
    """Return how the operator speaks to a server on this machine, waiting for one that is being started."""
    return Operator(settings, f"masquerade collect {settings.KIND} serve", wait, tell)


def digest_of(notice: bytes) -> str:
    """Return the digest of a notice as it is published."""
    return hashlib.sha256(notice).hexdigest()
