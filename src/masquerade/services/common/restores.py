"""A state that came from a backup: what has happened since is not known, unless the operator agrees to that.

Every service that keeps a state works so. The release ledger has a line about the restore and, once the
operator has agreed, their words; until then the service refuses what it would have refused had it known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from masquerade.core.errors import InputError, QueryRefused, Refusal
from masquerade.services.common.release_ledger import WITNESSED, ReleaseLedger, agree, note_restored
from masquerade.services.common.state import State


@dataclass(frozen=True, slots=True)
class Restores:
    """Whether a service's state was restored, what it then refuses, and the words of who agrees to that."""

    state: State
    ledger: ReleaseLedger
    called: str
    command: str
    words: str

    @property
    def doubted(self) -> bool:
        """Tell whether the state was restored, and its operator has not agreed to what that gives away."""
        return self.ledger.doubted

    @property
    def doubt(self) -> str:
        """Return what is in doubt, and what can be done."""
        return (
            f"This {self.called}'s state was restored from a backup, and what has left since is not known. "
            f"Its operator can agree to what that gives away ({self.command})."
        )

    def notice(self, problem: str) -> None:
        """Begin a new epoch and write down a restore that showed after the start, as `problem` says."""
        self.state.begin_anew(problem)
        note_restored(self.ledger, self.state)

    def refused(self, why: str) -> QueryRefused:
        """Return the refusal of something that a restored state does not allow."""
        return QueryRefused([Refusal("restored", f"{self.doubt} {why}")])

    def asked(self, given: dict[str, Any]) -> dict[str, Any]:
        """Tell the operator whether anything is in doubt; with the `words`, agree to what that gives away."""
        words = given.get("words")
        if words is not None and words != self.words:
            raise InputError(f"Who agrees says so in these words: {self.words!r}.")
        if words is not None and self.doubted:
            agree(self.ledger, self.state, self.words)
        receipts = self.state.notes.names(WITNESSED)
        return {"doubted": self.doubted, "doubt": self.doubt, "words": self.words, "receipts": receipts}
