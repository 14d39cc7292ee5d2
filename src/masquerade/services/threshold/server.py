"""Base of the randomness server and the collector: state, identity, form, terms, and checks of epochs."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from masquerade.core.errors import InputError
from masquerade.services.common.people_server import ANYBODY, PeopleServer
from masquerade.services.common.service import Service
from masquerade.services.common.state import INTERRUPTED, ONCE, SESSION, State
from masquerade.services.threshold.settings import CollectSettings, load_form, load_levels

OVER: Final = "it is over. Name a new epoch in the settings of both servers."
UNLOGGED: Final = ("evaluate", "reports")  # a log would show when each person sent a message


class CollectServer(PeopleServer):
    """Base of a server of a collection; subclasses define its endpoints."""

    RESTORED = "masquerade collect restored"
    AGREEMENT = "rows of the next epoch may differ by those of single people from rows that opened since"
    settings: CollectSettings

    def __init__(self, settings: CollectSettings, other: str) -> None:
        self.form = load_form(settings.form, settings.epoch.level)
        self.levels = load_levels(settings.form)
        self.terms = settings.epoch.terms(self.form)
        if self.levels is not None and settings.epoch.shown:
            raise InputError("epoch.shown: levels hide nothing if the collector sees quasi-identifiers.")
        self._other = other
        super().__init__(settings)

    def begin(self, files: ExitStack) -> None:  # noqa: ARG002
        """Raise InputError if both servers are the same, or the epoch is uncertain after a restore."""
        if self.settings.peers[self._other].identity == self.identity.public.hex():
            raise InputError(
                f"{self._other!r} has the same identity as this server: the two servers must be different."
            )
        self._check_known()
        self.check_interrupted(self.epoch, f"epoch {self.epoch!r}", OVER)

    def _check_known(self) -> None:
        """Raise InputError if the state was restored and may lack events of the epoch."""
        self.check_doubt(f"epoch {self.epoch!r}", OVER)

    def check_complete(self, is_complete: bool, file: str) -> None:  # noqa: FBT001
        """Treat a file with missing entries like a restore of the entire state."""
        if not is_complete:
            self.restores.notice(f"{file} lacks earlier entries")
            self.persist_restore(self.settings, self.state)
        self._check_known()

    @classmethod
    def persist_restore(cls, settings: CollectSettings, state: State) -> None:
        """End the epoch of the settings, which may have started since the backup."""
        cls.interrupt(state, settings.epoch.name_at(settings.epoch.level))

    def check_single_epoch(self) -> None:
        """Raise InputError if another epoch may have opened before and the settings do not allow it.

        This is checked at every start until the epoch has ended, since another epoch may have opened after
        this one started. The rows of two epochs differ by the rows of people who joined or left, and no role
        knows who is in both. Successive levels of one form do not count as other epochs: people whose row is
        open do not report again.
        """
        epoch = self.settings.epoch
        levels = [epoch.name_at(level) for level in range(epoch.level)]
        if levels and not self.finished(levels[-1]):
            raise InputError(
                f"Epoch {self.epoch!r} comes after {levels[-1]!r}, which has not ended here: set the level "
                "of the epoch back, and end the earlier epoch first."
            )
        if epoch.repeated:
            return
        notes = self.state.notes
        begun = {name: notes.get(SESSION, name) or b"" for name in notes.names(SESSION)}
        earlier = [*notes.names(INTERRUPTED), *(name for name in begun if self.may_open(name, begun[name]))]
        others = sorted({name for name in earlier if name != self.epoch} - set(levels))
        if others:
            raise InputError(
                f"Epoch {others[0]!r} was before epoch {self.epoch!r}: the rows opened in the two epochs "
                "differ by the rows of people who joined or left, which reveals whose rows they are. If that "
                "is intended, set 'repeated: true' for the epoch in the settings of both servers and of all "
                "people, who must then agree."
            )

    @abstractmethod
    def may_open(self, epoch: str, notice: bytes) -> bool:
        """Return True if classes of an earlier epoch have been opened, or may still be."""

    @abstractmethod
    def finished(self, epoch: str) -> bool:
        """Return True if an earlier epoch has ended here: its key is destroyed, or its classes are open."""

    @property
    def epoch(self) -> str:
        """Return the name of the current epoch."""
        return self.terms.epoch

    @property
    def once(self) -> Path:
        """Return the folder for facts that must not be rolled back; backups do not contain it."""
        return self.state.folder / ONCE

    def remember(self, notice: bytes) -> None:
        """Store that the epoch has started, so that a restore of older state is detected."""
        self.state.notes.put(SESSION, self.epoch, notice)

    def service(self) -> Service:
        """Return the HTTP service.

        Replies are kept in memory only: every request can be repeated without harm, and stored replies, like
        a log, would show when each report came.
        """
        return self.service_at(self.places, ready=self.ready, anonymous=ANYBODY, unlogged=UNLOGGED)

    def ready(self) -> bool:
        """Return True if the server can serve requests."""
        return True

    def describe(self) -> str:
        """Return a line for the operator when the service starts."""
        return f"epoch {self.epoch!r}, k = {self.terms.k}"


def digest_of(notice: bytes) -> str:
    """Return the digest of a notice in the form in which it is published."""
    return hashlib.sha256(notice).hexdigest()
