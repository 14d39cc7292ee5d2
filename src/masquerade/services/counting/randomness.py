"""The randomness server of a suppression as a service: it evaluates blinded values of the groups, once.

Its keys are in memory only. After a restart it refuses to continue: the table is over. The ledger in the
state is durable, and contains the credentials that were used.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any, Final

from masquerade.core.errors import InputError, QueryRefused, Refusal
from masquerade.protocols.k_anonymity.suppression.messages import PartitionTerms
from masquerade.protocols.k_anonymity.suppression.roles import GroupRandomness
from masquerade.protocols.k_anonymity.threshold.evaluation_ledger import EvaluationLedger
from masquerade.services.common.jobs import Call, Handler
from masquerade.services.common.problems import NotAdmitted
from masquerade.services.common.state import ONCE
from masquerade.services.counting.messages import CountTerms
from masquerade.services.counting.server import SCOPE, CountServer
from masquerade.services.counting.settings import CountRandomnessSettings
from masquerade.services.counting.suppression_messages import PeopleParts

BEGUN, LEDGER = "begun", "evaluations.sqlite"
KEYS_LOST: Final = Refusal(
    "key_lost",
    "The randomness server stopped after it had opened the groups: this table is over. Name a new count.",
)


class GroupRandomnessService(CountServer):
    """Endpoints for the office: enrol. Miner: begin, evaluate, close. Operator: status."""

    settings: CountRandomnessSettings

    def __init__(self, settings: CountRandomnessSettings) -> None:
        self._randomness: GroupRandomness | None = None
        self._lock, self._closed = threading.Lock(), False
        super().__init__(settings)
        if self.description.randomness != self.identity.public.hex():
            raise InputError("The description of the count names a randomness server with another identity.")
        self.places = {
            "enrol": self.enrol,
            "begin": self._for_miner(self._begin),
            "evaluate": self._for_miner(_evaluate),
            "close": self._for_miner(self._close),
        }
        self.operations = {"status": self._status}

    def begin(self, files: ExitStack) -> None:
        """Check whether an earlier process opened the groups; its keys are then lost."""
        folder = self.state.folder / ONCE
        folder.mkdir(mode=0o700, exist_ok=True)
        self._ledger = files.enter_context(closing(EvaluationLedger(folder / LEDGER)))
        super().begin(files)
        self.lost = self.state.notes.get(SCOPE, BEGUN) is not None

    def take_terms(self, terms: CountTerms) -> None:
        """Start with the terms that the office has fixed."""
        agreed = terms.protocol_terms(self.description.load_policy())
        if isinstance(agreed, PartitionTerms):
            self._randomness = GroupRandomness(self.identity, agreed, ledger=self._ledger)
        super().take_terms(terms)

    def describe(self) -> str:
        """Return a line for the operator when the service starts."""
        over = ": its keys are lost, and it is over" * self.lost
        return f"randomness server of count {self.description.name!r}{over}"

    def _for_miner(self, work: Callable[[GroupRandomness, bytes], bytes]) -> Handler:
        """Return a handler for requests of the miner, one at a time."""

        def handle(call: Call) -> bytes:
            if call.peer.name != self.settings.evaluates_for:
                raise NotAdmitted("Only the miner of this count may send requests to its randomness server.")
            self.require_terms()
            with self._lock:
                if self.lost or self._randomness is None:
                    raise QueryRefused([KEYS_LOST])
                return work(self._randomness, call.body)

        return handle

    def _begin(self, randomness: GroupRandomness, agreement: bytes) -> bytes:
        """Open the signed groups, after storing that this was done; a restarted server opens none again."""
        if self.state.notes.get(SCOPE, BEGUN) is None:
            self.state.notes.put(SCOPE, BEGUN, b"")
        return randomness.begin(agreement)

    def _close(self, randomness: GroupRandomness, _body: bytes) -> bytes:
        closings = randomness.close()
        self._closed = True
        return closings

    def _status(self, _given: dict[str, Any]) -> dict[str, Any]:
        waiting = "waiting" if self.terms is None else "open"
        state = "over" if self.lost else "closed" if self._closed else waiting
        people = None if self.terms is None else len(self.terms.members)
        name, protocol = self.description.name, self.description.protocol
        return {"count": name, "protocol": protocol, "people": people, "state": state}


def _evaluate(randomness: GroupRandomness, body: bytes) -> bytes:
    return PeopleParts(tuple(randomness.evaluate(PeopleParts.decode(body).parts))).encode()
