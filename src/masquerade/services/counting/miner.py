"""The miner as a service: it runs rounds over people's devices, and stores the counts.

After a crash it continues with all stored counts. A round in which votes may have been sent cannot be
repeated; people's own ledgers have the same rule. The key of a mix is kept in memory only: if the miner stops
after it has received all leaders' keys and before the opening, the count is over.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Mapping
from typing import Any, Final

from masquerade.core.errors import InputError, QueryRefused, Refusal
from masquerade.core.query import Query
from masquerade.core.tally import raise_refusals
from masquerade.crypto.errors import DecodingError
from masquerade.protocols.frequency_mining.messages import FrequencyTerms
from masquerade.protocols.mixnet.messages import MixTerms, SignedMixMessage
from masquerade.protocols.mixnet.roles import MixMiner
from masquerade.protocols.people.questions import Question, smallest_cover
from masquerade.protocols.secure_aggregation.agreement import AggregationTerms
from masquerade.services.common.client import HttpTransport, peer_transport
from masquerade.services.common.jobs import Call
from masquerade.services.common.problems import NotAdmitted
from masquerade.services.counting.message_queue import MessageQueue
from masquerade.services.counting.messages import (
    ASK_LETTER,
    ASK_TERMS,
    LETTER_ID,
    MESSAGE,
    NOT_TAKEN,
    OVER,
    TAKEN,
    WAIT,
    CountTerms,
    DeviceReply,
    DeviceRequest,
    Letter,
    MixBoards,
)
from masquerade.services.counting.rounds import (
    RoundBook,
    ServedAggregation,
    ServedFrequency,
    noisy_round_values,
    question_of,
)
from masquerade.services.counting.server import SCOPE, CountServer
from masquerade.services.counting.settings import CountMinerSettings
from masquerade.sources.people.aggregation import AggregationTally
from masquerade.sources.people.count_rounds import CountRounds, KnownCounts
from masquerade.sources.people.noisy_people import NoisyPeople, PeopleWithNoise
from masquerade.sources.people.noisy_votes import NoisyVotes

CLOSED, KEYS, RECORDS = "closed", "keys", "records"
# The same sentence for an unknown name and a wrong signature: it must not reveal who is enrolled.
NOT_SIGNED: Final = "This is not signed by an enrolled person, under the terms of this count."
KEY_LOST: Final = Refusal(
    "key_lost",
    ("The miner stopped after the keys of this mix were made: this count is over. Name a new count."),
)


class _Mix:
    """The miner's side of a mix: keys from all leaders, submissions until the closing, then records.

    If a leader is unreachable, the closing can be repeated with the same batch; leaders' replies are stored
    until then. If a leader has lost its key, the mix is over, and nothing is opened.
    """

    def __init__(self, service: MinerService, terms: MixTerms) -> None:
        self._service, self._terms = service, terms
        self._lock, self._closing = threading.Lock(), threading.Lock()
        notes = service.state.notes
        records = notes.get(SCOPE, RECORDS)
        self.result: dict[str, Any] | None = None if records is None else json.loads(records)
        lost = self.result is None and notes.get(SCOPE, KEYS) is not None
        self.over: Refusal | None = KEY_LOST if lost else None
        self._made: tuple[MixMiner, bytes] | None = None
        self._board: bytes | None = None
        self._submissions: dict[str, bytes] = {}
        self._closed = False
        self._batch: bytes | None = None
        self._nonce, self._replies = secrets.token_urlsafe(24), dict[tuple[str, str], bytes]()
        self._letter = secrets.token_bytes(LETTER_ID)

    def letter(self, person: str) -> Letter:
        """Return the board of keys to a person who has not answered it yet."""
        self._check_over()
        if self.result is not None or person in self._submissions:
            return Letter(OVER)
        if self._closed:
            return Letter(WAIT, 500)
        board = self._board
        if board is None:
            if not self._lock.acquire(blocking=False):
                return Letter(WAIT, 500)
            try:
                board = self._keys()
            finally:
                self._lock.release()
        return Letter(MESSAGE, 0, board, self._letter)

    def _keys(self) -> bytes:
        """Return the board of all keys once every leader has it; an existing board is never replaced."""
        if self._board is None:
            with self._leaders() as http:
                if self._made is None:
                    shares = [http.exchange(name, b"", place="share") for name in self._terms.leaders]
                    miner = MixMiner(self._service.identity, self._terms)
                    board = miner.key_board([miner.share(), *shares])
                    self._service.state.notes.put(SCOPE, KEYS, b"")
                    self._made = miner, board
                for name in self._terms.leaders:
                    http.exchange(name, self._made[1], place="key")
            self._board = self._made[1]
        return self._board

    def take(self, reply: DeviceReply) -> bool:
        """Store the first submission of a person; return True if the reply contains this submission."""
        if reply.letter != self._letter:
            return False
        signed = SignedMixMessage.parse(reply.content, self._terms, "submission")
        if signed.sender != reply.person:
            raise DecodingError("A submission must come from the person who signed it.")
        with self._lock:
            if self.result is None and not self._closed:
                self._submissions.setdefault(reply.person, reply.content)
            return self._submissions.get(reply.person) == reply.content

    def close(self) -> None:
        """Close the mix once: all leaders shuffle and open the submissions."""
        with self._closing:
            self._check_over()
            if self.result is not None:
                return
            if self._made is None or not self._submissions:
                raise QueryRefused([Refusal("not_begun", "No one has sent a record yet.")])
            miner, _ = self._made
            if self._batch is None:
                self._batch = self._closed_batch(miner)
            try:
                with self._leaders() as http:
                    result = self._open_batch(miner, self._batch, http)
            except QueryRefused as refused:
                self.over = next((one for one in refused.refusals if one.code == KEY_LOST.code), None)
                raise
            self._service.state.notes.put(SCOPE, RECORDS, json.dumps(result).encode())
            self.result = result

    def _closed_batch(self, miner: MixMiner) -> bytes:
        """Stop accepting submissions and return the batch; if it is not valid, accept submissions again."""
        with self._lock:
            self._closed, sent = True, list(self._submissions.values())
        try:
            return miner.batch(sent)
        except BaseException:
            self._closed = False
            raise

    def _open_batch(self, miner: MixMiner, batch: bytes, http: HttpTransport) -> dict[str, Any]:
        """Ask all leaders to shuffle, sign and open; replies from an earlier attempt are reused."""
        leaders = self._terms.leaders

        def ask(name: str, place: str, message: bytes) -> bytes:
            if (name, place) not in self._replies:
                key = f"{self._nonce}-{place}"
                self._replies[name, place] = http.exchange(name, message, place=place, key=key)
            return self._replies[name, place]

        shuffles: list[bytes] = []
        for name in leaders:
            boards = MixBoards((batch, miner.shuffle_board(shuffles)))
            shuffles.append(ask(name, "shuffle", boards.encode()))
        board = miner.shuffle_board(shuffles)
        final = MixBoards((batch, board)).encode()
        endorsed = miner.endorsement_board([ask(name, "endorse", final) for name in leaders])
        collected = miner.collect(batch, board, [ask(name, "open", endorsed) for name in leaders])
        records = [record.hex() for record in collected.records]
        return {"records": records, "unreadable": collected.unreadable, "refused": list(miner.refused)}

    def _check_over(self) -> None:
        if self.over is not None:
            raise QueryRefused([self.over])

    @property
    def submission_count(self) -> int:
        """Return the number of people who have sent a submission."""
        return len(self._submissions)

    def _leaders(self) -> HttpTransport:
        return peer_transport(self._service.settings, self._service.peers)


class MinerService(CountServer):
    """Endpoints for the office: enrol. People: terms, letters, replies. Operator: check, ask, result, …

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
        self.mix: _Mix | None = None
        self.policy = settings.description().load_policy()
        super().__init__(settings)
        leaders = self.description.leaders
        missing = [name for name in leaders if name not in settings.peers or not settings.peers[name].url]
        if missing:
            raise InputError(f"The leaders {', '.join(missing)} must be peers that have a url.")
        if self.description.miner != self.identity.public.hex():
            raise InputError("The description of the count names a miner with a different identity.")
        self.places = {
            "enrol": self.enrol,
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
            self.mix = _Mix(self, agreed)
        else:
            self.queue = MessageQueue(len(terms.members), most_held, self.settings.patience)
            self.book = RoundBook(self.state, agreed.sizes)
            if isinstance(agreed, FrequencyTerms):
                votes = ServedFrequency(agreed, self.queue, self.book)
                if agreed.noise is None:
                    self.rounds = votes
                else:
                    self.noisy = NoisyVotes(votes, self.policy)
            elif isinstance(agreed, AggregationTerms):
                aggregation = ServedAggregation(agreed, self.queue, self.book)
                if agreed.noise is None:
                    self.rounds = _StoredAggregation(aggregation, self.policy, self.book)
                else:
                    self.noisy = NoisyPeople(aggregation, self.policy)
            if self.closed:
                self.queue.end()
        super().take_terms(terms)

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
            raise InputError("A mix does not answer questions; it gives records once it is closed (result).")
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
        result: dict[str, Any] = {} if self.mix is None else self.mix.result or {}
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
                status |= {"records": len(self.mix.result["records"]), "refused": self.mix.result["refused"]}
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
