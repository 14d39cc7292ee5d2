"""A leader of a mix (mix server), or a key holder of a suppression, as a service: it shuffles and opens once.

Its share of the key is kept in memory only, never on disk. A leader that stops after it sent its public share
has lost the key, and the mix is over. The first key holder of a suppression also relays people's reports.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from masquerade.core.errors import InputError, QueryRefused, Refusal
from masquerade.protocols.k_anonymity.suppression.messages import PartitionTerms, signed_groups
from masquerade.protocols.k_anonymity.suppression.roles import KeyHolder
from masquerade.protocols.mixnet.messages import MixTerms
from masquerade.protocols.mixnet.roles import Leader
from masquerade.services.common.jobs import Call, Handler
from masquerade.services.common.problems import NotAdmitted
from masquerade.services.counting.messages import CountTerms, MixBoards, SuppressionCountTerms
from masquerade.services.counting.server import SCOPE, CountServer
from masquerade.services.counting.settings import CountLeaderSettings
from masquerade.services.counting.suppression_messages import PeopleParts, RelayBatch, RelayedReports

SHARED = "shared"


class LeaderService(CountServer):
    """A leader of a mix, or a key holder of a suppression.

    Endpoints for the office: enrol, box. Miner: share, key, shuffle, endorse, open, relay. Operator: status.
    """

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
            "box": self.show_box,
            "share": self._for_miner(lambda leader, _body: leader.share()),
            "key": self._for_miner(_take_key),
            "shuffle": self._for_miner(lambda leader, body: leader.shuffle(*MixBoards.decode(body).parts)),
            "endorse": self._for_miner(lambda leader, body: leader.endorse(*MixBoards.decode(body).parts)),
            "open": self._for_miner(lambda leader, body: leader.open(body)),
            "relay": self._for_miner(self._relay),
        }
        self.operations = {"status": self._status}

    def begin(self, files: ExitStack) -> None:
        """Check whether an earlier process sent its share of the key: if so, the key is lost."""
        super().begin(files)
        self.lost = self.state.notes.get(SCOPE, SHARED) is not None

    def take_terms(self, terms: CountTerms) -> None:
        """Create this leader's share of the key."""
        agreed = terms.protocol_terms(self.description.load_policy())
        if isinstance(agreed, PartitionTerms):
            self._leader = KeyHolder(self.settings.name, self.identity, agreed)
        elif isinstance(agreed, MixTerms):
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
                    raise QueryRefused([Refusal("key_lost", f"{reason}it is over. Name a new count.")])
                if call.place == "share" and self.state.notes.get(SCOPE, SHARED) is None:
                    self.state.notes.put(SCOPE, SHARED, b"")
                return work(self._leader, call.body)

        return handle

    def check_boxes(self, miner: bytes, relay: bytes) -> None:
        """Raise InputError if this is the relay, and the terms name a different key for it."""
        del miner
        if next(iter(self.description.leaders)) == self.settings.name and relay != self.box.public:
            raise InputError("These terms name a different key to seal reports for the relay.")

    def _relay(self, leader: Leader, body: bytes) -> bytes:
        """Return the reports of all people of the groups together, in a random order.

        A miner that hands over the reports of a few people only, to see which came from whom, is refused.
        """
        terms = self.require_terms()
        if not isinstance(leader, KeyHolder) or not isinstance(terms, SuppressionCountTerms):
            raise InputError("A leader of a mix relays no reports.")
        agreed = terms.protocol_terms()
        if not isinstance(agreed, PartitionTerms):
            raise InputError("These terms are not those of a suppression.")
        batch = RelayBatch.decode(body)
        groups = signed_groups(agreed, batch.agreement)
        sent = [RelayedReports.decode(one) for one in batch.reports]
        opened = [one.open(terms, self.box) for one in sent]
        senders = sorted(one.person for one in sent)
        if senders != sorted(groups.names) or any(one.agreement != groups.digest for one in sent):
            raise InputError("Reports are relayed only if all people of the groups sent theirs for them.")
        if any(len(reports) != len(agreed.attributes) for reports in opened):
            raise InputError("Each person sends one report for each variable.")
        return PeopleParts(tuple(leader.pass_on([one for reports in opened for one in reports]))).encode()

    def _status(self, _given: dict[str, Any]) -> dict[str, Any]:
        state = "over" if self.lost else "waiting" if self.terms is None else "open"
        people = None if self.terms is None else len(self.terms.members)
        name, protocol = self.description.name, self.description.protocol
        return {"count": name, "protocol": protocol, "people": people, "state": state}


def _take_key(leader: Leader, board: bytes) -> bytes:
    leader.take_key(board)
    return b"{}"
