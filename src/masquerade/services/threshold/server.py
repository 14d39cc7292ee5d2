"""What both servers are: state, identity, form and terms, and who may ask what."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from masquerade.core.errors import InputError
from masquerade.services.common.jobs import Call, Handler
from masquerade.services.common.peers import Peer
from masquerade.services.common.server import NodeServer
from masquerade.services.common.service import Service
from masquerade.services.common.state import INTERRUPTED, ONCE, SESSION, State
from masquerade.services.threshold.settings import CollectSettings, load_form, load_levels

OVER: Final = "it is over. Name a new epoch in the settings of both servers."
ANYBODY: Final = Peer("Anybody")  # a capital letter: no peer in a settings file can be called so


class CollectServer(NodeServer):
    """Everything behind the address of a server; a subclass says what it does at which place."""

    CALLED = "server"
    RESTORED = "masquerade collect restored"
    AGREEMENT = "rows of the next epoch may differ by those of single people from rows that opened since"
    settings: CollectSettings
    places: dict[str, Handler]

    def __init__(self, settings: CollectSettings, other: str) -> None:
        self.form = load_form(settings.form, settings.epoch.level)
        self.levels = load_levels(settings.form)
        self.terms = settings.epoch.terms(self.form)
        if self.levels is not None and settings.epoch.shown:
            raise InputError("epoch.shown: generalising hides nothing of quasi-identifiers that are seen.")
        self._other = other
        super().__init__(settings)

    def begin(self, files: ExitStack) -> None:  # noqa: ARG002
        """Refuse two servers that are one, and an epoch that a restored state does not know the end of."""
        if self.settings.peers[self._other].identity == self.identity.public.hex():
            raise InputError(
                f"{self._other!r} has the same identity as this server: the two must be different ones."
            )
        self._check_known()
        if self.state.notes.get(INTERRUPTED, self.epoch) is not None:
            raise InputError(
                f"Epoch {self.epoch!r} was going on when this server's state was restored from a backup: "
                f"{OVER}"
            )

    def _check_known(self) -> None:
        """Refuse to go on with an epoch of which a restored state does not know what has happened."""
        if self.restores.doubted:
            raise InputError(
                f"{self.restores.doubt} What has happened in epoch {self.epoch!r} is not known: {OVER}"
            )

    def check_complete(self, is_complete: bool, file: str) -> None:  # noqa: FBT001
        """Take a file that lacks what was in it for a restore, as if all of the state had been restored."""
        if not is_complete:
            self.restores.notice(f"{file} lacks what was in it")
            self.noticed(self.settings, self.state)
        self._check_known()

    @classmethod
    def noticed(cls, settings: CollectSettings, state: State) -> None:
        """End the epoch of the settings, which may have begun since the backup."""
        name = settings.epoch.name_at(settings.epoch.level)
        if state.notes.get(INTERRUPTED, name) is None:
            state.notes.put(INTERRUPTED, name, b"")

    def check_only(self) -> None:
        """Refuse to begin an epoch after another one that opened, or may have, unless the settings say so.

        Who is in both is known to nobody: the rows of two epochs differ by those of whoever came or left.
        Levels of one form are no such epochs, one after the other: nobody is in two who is open in the first.
        """
        epoch = self.settings.epoch
        levels = [epoch.name_at(level) for level in range(epoch.level)]
        if levels and not self.finished(levels[-1]):
            raise InputError(
                f"Epoch {self.epoch!r} comes after {levels[-1]!r}, whose reports are not all closed or open "
                "here: set level of the epoch back, and end that one first."
            )
        if epoch.repeated:
            return
        notes = self.state.notes
        begun = {name: notes.get(SESSION, name) or b"" for name in notes.names(SESSION)}
        earlier = [*notes.names(INTERRUPTED), *(name for name in begun if self.may_open(name, begun[name]))]
        others = sorted({name for name in earlier if name != self.epoch} - set(levels))
        if others:
            raise InputError(
                f"Epoch {others[0]!r} was before epoch {self.epoch!r}: rows that open in both differ by "
                "those of whoever came or left, and show whose they are. If that is meant, say 'repeated: "
                "true' of the epoch in the settings of both servers and of everybody, who are then asked."
            )

    @abstractmethod
    def may_open(self, epoch: str, notice: bytes) -> bool:
        """Tell whether classes of an earlier epoch have been opened, or still may be."""

    @abstractmethod
    def finished(self, epoch: str) -> bool:
        """Tell whether an earlier epoch has ended here: its key destroyed, or its classes opened."""

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

    def answer(self, call: Call) -> bytes:
        """Answer a message to one of the places."""
        return self.places[call.place](call)

    def service(self) -> Service:
        """Return the service that this server is.

        Replies are kept in memory alone: every place may be asked again without harm, and a store of replies
        would tell when each report came.
        """
        return self.service_at(self.places, ready=self.ready, anonymous=ANYBODY)

    def ready(self) -> bool:
        """Tell whether requests should be sent here."""
        return True

    def described(self) -> str:
        """Return a line for the operator when the service starts."""
        return f"epoch {self.epoch!r}, k = {self.terms.k}"


def digest_of(notice: bytes) -> str:
    """Return the digest of a notice as it is published."""
    return hashlib.sha256(notice).hexdigest()
