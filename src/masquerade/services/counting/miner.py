"""The miner as a service: it runs rounds over people's devices, and stores the counts.

After a crash it continues with all stored counts. A round in which votes may have been sent cannot be
repeated; people's own ledgers have the same rule. The key of a mix is kept in memory only: if the miner stops
after it has received all leaders' keys and before the opening, the count is over.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Final

from masquerade.core.errors import InputError, QueryRefused, Refusal
from masquerade.core.query import Query
from masquerade.core.tally import raise_refusals
from masquerade.protocols.frequency_mining.messages import FrequencyTerms
from masquerade.protocols.k_anonymity.suppression.messages import PartitionTerms
from masquerade.protocols.mixnet.messages import MixTerms
from masquerade.protocols.people.questions import Question, smallest_cover
from masquerade.protocols.secure_aggregation.agreement import AggregationTerms
from masquerade.services.common.jobs import Call
from masquerade.services.common.problems import NotAdmitted
from masquerade.services.counting.message_queue import MessageQueue
from masquerade.services.counting.messages import (
    ASK_LETTER,
    ASK_TERMS,
    NOT_TAKEN,
    TAKEN,
    CountTerms,
    DeviceReply,
    DeviceRequest,
    SuppressionCountTerms,
)
from masquerade.services.counting.mix_batch import MixBatch
from masquerade.services.counting.rounds import (
    RoundBook,
    ServedAggregation,
    ServedFrequency,
    noisy_round_values,
    question_of,
)
from masquerade.services.counting.server import SCOPE, CountServer
from masquerade.services.counting.settings import CountMinerSettings
from masquerade.services.counting.suppression_batch import SuppressionBatch, suppression_guarantee
from masquerade.sources.people.aggregation import AggregationTally
from masquerade.sources.people.count_rounds import CountRounds, KnownCounts
from masquerade.sources.people.noisy_people import NoisyPeople, PeopleWithNoise
from masquerade.sources.people.noisy_votes import NoisyVotes

CLOSED = "closed"
# The same sentence for an unknown name and a wrong signature: it must not reveal who is enrolled.
NOT_SIGNED: Final = "This is not signed by an enrolled person, under the terms of this count."


class MinerService(CountServer):
    """Endpoints for the office: enrol, box. People: terms, letters, replies. Operator: check, ask, result, …

    People's devices have no certificate. Each message is signed with the identity that the office enrolled.
    The signature covers the count and, in a reply, the id of the message (letter) that it answers. It is
    checked first.
    """

    settings: CountMinerSettings

    def __init__(self, settings: CountMinerSettings) -> None:
        self._asking = threading.Lock()
        self.queue: MessageQueue | None = None
        self.rounds: CountRounds | None = None
        self.noisy: PeopleWithNoise | None = None
        self.mix: MixBatch | None = None
        self.policy = settings.description().load_policy()
        super().__init__(settings)
        leaders = self.description.leaders
        missing = [name for name in leaders if name not in settings.peers or not settings.peers[name].url]
        if missing:
            raise InputError(f"The leaders {', '.join(missing)} must be peers that have a url.")
        self.randomness = settings.randomness or ""
        if self.description.randomness is not None:
            peer = settings.peers.get(self.randomness)
            if peer is None or not peer.url:
                raise InputError("'randomness' must name the randomness server, a peer that has a url.")
        if self.description.miner != self.identity.public.hex():
            raise InputError("The description of the count names a miner with a different identity.")
        self.places = {
            "enrol": self.enrol,
            "box": self.show_box,
            ASK_TERMS: lambda call: self._checked_request(call)[0].encode(),
            ASK_LETTER: self._letter,
            "replies": self._reply,
        }
        self.operations = {
            "check": self._check,
            "ask": self._ask,
            "result": self._result,
            "close": self._close,
            "status": self._status,
        }

    def take_terms(self, terms: CountTerms) -> None:
        """Start counting, or continue from the state."""
        agreed, most_held = terms.protocol_terms(self.policy), self.settings.limits.concurrency // 2
        if isinstance(agreed, MixTerms):
            self.mix = MixBatch(self, agreed)
        elif isinstance(agreed, PartitionTerms) and isinstance(terms, SuppressionCountTerms):
            self.mix = SuppressionBatch(self, terms, agreed, most_held)
        elif isinstance(agreed, (FrequencyTerms, AggregationTerms)):
            self.queue = MessageQueue(len(terms.members), most_held, self.settings.patience)
            self.book = RoundBook(self.state, agreed.sizes)
            if isinstance(agreed, FrequencyTerms):
                votes = ServedFrequency(agreed, self.queue, self.book)
                if agreed.noise is None:
                    self.rounds = votes
                else:
                    self.noisy = NoisyVotes(votes, self.policy)
            else:
                aggregation = ServedAggregation(agreed, self.queue, self.book)
                if agreed.noise is None:
                    self.rounds = _StoredAggregation(aggregation, self.policy, self.book)
                else:
                    self.noisy = NoisyPeople(aggregation, self.policy)
            if self.closed:
                self.queue.end()
        super().take_terms(terms)

    def check_boxes(self, miner: bytes, relay: bytes) -> None:
        """Raise InputError if terms name a different key for which reports are sealed to the miner."""
        del relay
        if miner != self.box.public:
            raise InputError("These terms name a different key to seal reports for the miner.")

    @property
    def closed(self) -> bool:
        """Return True if counting is over."""
        return self.state.notes.get(SCOPE, CLOSED) is not None

    def describe(self) -> str:
        """Return a line for the operator when the service starts."""
        name, protocol = self.description.name, self.description.protocol
        people = "nobody is enrolled yet" if self.terms is None else f"{len(self.terms.members):,} people"
        return f"count {name!r} by {protocol}: {people}"

    def _checked_request(self, call: Call) -> tuple[CountTerms, str]:
        """Return the terms and the enrolled person who signed a request; raise NotAdmitted otherwise."""
        terms, request = self.require_terms(), DeviceRequest.decode(call.body)
        if not request.is_signed(terms) or request.what != call.place:
            raise NotAdmitted(NOT_SIGNED)
        return terms, request.person

    def _letter(self, call: Call) -> bytes:
        _, person = self._checked_request(call)
        if self.mix is not None:
            return self.mix.letter(person).encode()
        return self._require_queue().letter(person).encode()

    def _reply(self, call: Call) -> bytes:
        """Accept a reply that its person signed for the current message; the signature is checked first."""
        terms, reply = self.require_terms(), DeviceReply.decode(call.body)
        if not reply.is_signed(terms):
            raise NotAdmitted(NOT_SIGNED)
        if self.mix is not None:
            taken = self.mix.take(reply)
        else:
            taken = self._require_queue().take(reply.person, reply.letter, reply.content)
        return TAKEN if taken else NOT_TAKEN

    def _require_queue(self) -> MessageQueue:
        if self.queue is None:
            raise InputError("This count has no rounds.")
        return self.queue

    def _questions(self, values: dict[str, Any]) -> tuple[CountRounds, list[Question]]:
        if self.rounds is None:
            raise InputError(
                "A mix does not answer questions; it gives records, or a table, once it is closed (result)."
            )
        return self.rounds, self._parse_questions(values, self.rounds.sizes)

    def _parse_questions(self, values: dict[str, Any], sizes: Mapping[str, int]) -> list[Question]:
        if self.closed:
            raise QueryRefused([Refusal("closed", "This count is closed: it answers no more questions.")])
        listed = values.get("questions")
        if not isinstance(listed, list) or not listed:
            raise InputError("'questions' must be a list with at least one question.")
        return [question_of(one, sizes) for one in listed]

    def _noisy_queries(self, noisy: PeopleWithNoise, values: dict[str, Any]) -> list[Query]:
        """Return the queries of a round with noise; raise QueryRefused if the analyst missed a round."""
        queries = [noisy.query(one) for one in self._parse_questions(values, noisy.sizes)]
        if values.get("rounds") != noisy.rounds_held:
            reason = (
                "Other tables have been counted meanwhile: open the count again, so that no table is spent "
                "twice."
            )
            raise QueryRefused([Refusal("already_counted", reason)])
        return queries

    def _check(self, values: dict[str, Any]) -> dict[str, Any]:
        self.require_terms()
        if self.noisy is not None:
            refused = self.noisy.refusals(self._noisy_queries(self.noisy, values))
            return {"refusals": [{"code": one.code, "reason": one.reason} for one in refused]}
        rounds, questions = self._questions(values)
        new = _split_questions(rounds, questions)[1]
        refusals = rounds.refusals(new) if new else []
        return {"refusals": [{"code": one.code, "reason": one.reason} for one in refusals]}

    def _ask(self, values: dict[str, Any]) -> dict[str, Any]:
        """Answer the operator's questions, from earlier counts if possible, the others in one round."""
        self.require_terms()
        if self.noisy is not None:
            with self._asking:
                return noisy_round_values(self.noisy.hold_round(self._noisy_queries(self.noisy, values)))
        rounds, questions = self._questions(values)
        with self._asking:
            earlier, new = _split_questions(rounds, questions)
            if new:
                raise_refusals(rounds.refusals(new))
                current = rounds.hold_round(new)
                rounds.held.append(current)
                earlier = [*earlier, current]
            n = rounds.n if not earlier else earlier[-1].n
            tables = {}
            for question in questions:
                counts = [one.count([question]) for one in reversed(earlier) if one.n == n]
                tables[question] = next(one[0] for one in counts if one)
        return {"n": n, "tables": [tables[one].reshape(-1).tolist() for one in questions]}

    def _result(self, _values: dict[str, Any]) -> dict[str, Any]:
        terms = self.require_terms()
        if self.mix is not None and self.mix.result is None:
            raise QueryRefused([Refusal("not_closed", "The mix is not closed: nothing was opened.")])
        result: dict[str, Any] = {} if self.mix is None else dict(self.mix.result or {})
        if isinstance(terms, SuppressionCountTerms):
            agreed = terms.protocol_terms(self.policy)
            if isinstance(agreed, PartitionTerms):
                result["guarantee"] = suppression_guarantee(agreed).to_dict()
        if self.noisy is not None:
            rounds = [noisy_round_values(one) for one in self.book.noisy_rounds()]
            result = {"rounds": rounds, "lost": self.book.lost_tables()}
        return {"terms": terms.encode().hex(), **result}

    def _close(self, _given: dict[str, Any]) -> dict[str, Any]:
        """End the count: open the records of a mix, or run no further rounds and dismiss the devices."""
        self.require_terms()
        if self.mix is not None:
            self.mix.close()
        else:
            with self._asking:
                if not self.closed:
                    self.state.notes.put(SCOPE, CLOSED, b"")
                self._require_queue().end()
        return self._status({})

    def _status(self, _given: dict[str, Any]) -> dict[str, Any]:
        terms = self.terms
        status: dict[str, Any] = {
            "count": self.description.name,
            "protocol": self.description.protocol,
            "people": None if terms is None else len(terms.members),
            "terms": None if terms is None else terms.digest.hex(),
            "state": "waiting" if terms is None else "open",
        }
        if self.mix is not None:
            opened = self.mix.result is not None
            status |= {
                "state": "over" if self.mix.over else "closed" if opened else "open",
                "sent": self.mix.submission_count,
            }
            if self.mix.result is not None:
                status |= self.mix.summary()
        elif self.rounds is not None:
            status["state"] = "closed" if self.closed else "open"
            status |= {"rounds": len(self.rounds.held), "counted": self.rounds.n, **self._named_people()}
        elif self.noisy is not None:
            status["state"] = "closed" if self.closed else "open"
            status |= {"rounds": self.noisy.rounds_held, "counted": self.noisy.n}
            status |= {"tables_spent": self.noisy.tables_spent, "tables_left": self.noisy.tables_left}
            if isinstance(self.noisy, NoisyVotes):
                status |= self._named_people()
        return status

    def _named_people(self) -> dict[str, list[str]]:
        """Return the people who cast invalid votes, and those who left."""
        cheats = {name for one in self.book.of("cheats") for name in one["evidence"]}
        left = {name for one in self.book.of("gone") for name in one["users"]}
        return {"cheats": sorted(cheats), "left": sorted(left)}


class _StoredAggregation(AggregationTally):
    """Secure aggregation whose counts are stored before they are returned."""

    def __init__(self, rounds: ServedAggregation, policy: Any, book: RoundBook) -> None:
        super().__init__(rounds, policy)
        self._book = book
        self.held += book.load_counts(policy)

    def hold_round(self, questions: Any) -> KnownCounts:
        """Run a round of votes, and store its counts."""
        counts = super().hold_round(questions)
        self._book.add_counts(counts.n, {question: counts.count([question])[0] for question in questions})
        self.n = counts.n
        return counts


def _split_questions(
    rounds: CountRounds, questions: list[Question]
) -> tuple[list[KnownCounts], tuple[Question, ...]]:
    """Return the earlier rounds over the current number of people, and the questions they do not answer."""
    earlier = [counts for counts in rounds.held if counts.n == rounds.n]
    left = [one for one in questions if not any(counts.count([one]) for counts in earlier)]
    return earlier, smallest_cover(left, rounds.sizes)
