"""A leader of a mix (mix server) as a service: it shuffles once, and opens after all leaders have signed.

Its share of the key is kept in memory only, never on disk. A leader that stops after it sent its public share
has lost the key, and the mix is over.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from masquerade.core.errors import InputError, QueryRefused, Refusal
from masquerade.protocols.mixnet.messages import MixTerms
from masquerade.protocols.mixnet.roles import Leader
from masquerade.services.common.jobs import Call, Handler
from masquerade.services.common.problems import NotAdmitted
from masquerade.services.counting.messages import CountTerms, MixBoards
from masquerade.services.counting.server import SCOPE, CountServer
from masquerade.services.counting.settings import CountLeaderSettings

SHARED = "shared"


class LeaderService(CountServer):
    """Endpoints for the office: enrol. Miner: share, key, shuffle, endorse, open. Operator: status."""

    settings: CountLeaderSettings

    def __init__(self, settings: CountLeaderSettings) -> None:
        self._leader: Leader | None = None
        self._lock = threading.Lock()
        super().__init__(settings)
        if self.description.leaders.get(settings.name) != self.identity.public.hex():
            raise InputError(
                f"The description of the count has no leader {settings.name!r} with this identity."
            )
        self.places = {
            "enrol": self.enrol,
            "share": self._for_miner(lambda leader, _body: leader.share()),
            "key": self._for_miner(_take_key),
            "shuffle": self._for_miner(lambda leader, body: leader.shuffle(*MixBoards.decode(body).parts)),
            "endorse": self._for_miner(lambda leader, body: leader.endorse(*MixBoards.decode(body).parts)),
            "open": self._for_miner(lambda leader, body: leader.open(body)),
        }
        self.operations = {"status": self._status}

    def begin(self, files: ExitStack) -> None:
        """Check whether an earlier process sent its share of the key: if so, the key is lost."""
        super().begin(files)
        self.lost = self.state.notes.get(SCOPE, SHARED) is not None

    def take_terms(self, terms: CountTerms) -> None:
        """Create this leader's share of the key."""
        agreed = terms.protocol_terms(self.description.load_policy())
        if isinstance(agreed, MixTerms):
            self._leader = Leader(self.settings.name, self.identity, agreed)
        super().take_terms(terms)

    def describe(self) -> str:
        """Return a line for the operator when the service starts."""
        return f"leader of count {self.description.name!r}{': its key is lost, and it is over' * self.lost}"

    def _for_miner(self, work: Callable[[Leader, bytes], bytes]) -> Handler:
        """Return a handler for requests of the miner; it first stores that a key share will be sent."""

        def handle(call: Call) -> bytes:
            if call.peer.name != self.settings.miner:
                raise NotAdmitted("Only the miner of this count may send requests to its leaders.")
            self.require_terms()
            with self._lock:
                if self.lost or self._leader is None:
                    reason = f"Leader {self.settings.name!r} stopped after it gave its share of the key: "
                    raise QueryRefused([Refusal("key_lost", f"{reason}this mix is over. Name a new count.")])
                if call.place == "share" and self.state.notes.get(SCOPE, SHARED) is None:
                    self.state.notes.put(SCOPE, SHARED, b"")
                return work(self._leader, call.body)

        return handle

    def _status(self, _given: dict[str, Any]) -> dict[str, Any]:
        state = "over" if self.lost else "waiting" if self.terms is None else "open"
        people = None if self.terms is None else len(self.terms.members)
        return {"count": self.description.name, "protocol": "mix", "people": people, "state": state}


def _take_key(leader: Leader, board: bytes) -> bytes:
    leader.take_key(board)
    return b"{}"
