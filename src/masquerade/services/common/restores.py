"""States restored from a backup: events since the backup are unknown, and the operator must accept this.

This applies to every service with a state. The release ledger records the restore and, once the operator has
agreed, the sentence they typed. Until then the service refuses all requests that the unknown events could
make unsafe.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from masquerade.core.errors import InputError, QueryRefused, Refusal
from masquerade.services.common.release_ledger import WITNESSED, ReleaseLedger, agree, note_restored
from masquerade.services.common.state import State


@dataclass(frozen=True, slots=True)
class Restores:
    """Restores of a service's state, the refusals that follow, and the operator's agreement.

    Attributes
    ----------
    state, ledger
        State and release ledger of the service.
    called : str
        Name of the service in messages, such as "party".
    command : str
        The command by which the operator agrees.
    words : str
        The sentence that the operator types to agree.
    """

    state: State
    ledger: ReleaseLedger
    called: str
    command: str
    words: str

    @property
    def doubted(self) -> bool:
        """Return True if the state was restored and the operator has not agreed to the consequences."""
        return self.ledger.doubted

    @property
    def doubt(self) -> str:
        """Return a sentence about the missing events and the command that resolves the doubt."""
        return (
            f"This {self.called}'s state was restored from a backup, and releases since then are unknown. "
            f"Its operator can agree to the consequences ({self.command})."
        )

    def notice(self, problem: str) -> None:
        """Start a new epoch and record a restore that was detected after the start, with its reason."""
        self.state.begin_anew(problem)
        note_restored(self.ledger, self.state)

    def refusal(self, why: str) -> QueryRefused:
        """Return the refusal of an operation that a restored state does not allow."""
        return QueryRefused([Refusal("restored", f"{self.doubt} {why}")])

    def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return the status of a restore for the operator, after recording an agreement stated in `given`."""
        words = given.get("words")
        if words is not None and words != self.words:
            raise InputError(f"To agree, repeat these words exactly: {self.words!r}.")
        if words is not None and self.doubted:
            agree(self.ledger, self.state, self.words)
        receipts = self.state.notes.names(WITNESSED)
        return {"doubted": self.doubted, "doubt": self.doubt, "words": self.words, "receipts": receipts}
