"""The miner as a service: it holds rounds over people's devices, and remembers what it has counted.

Killed at any moment and started again, it goes on with everything that was counted; a round in which votes
may have left is spent, as people's own ledgers say, too. The key of a mix is in memory alone: a miner that
stops between the first key and the opening ends that count.
"""

from __future__ import annotations

import json
import secrets
import threading
from typing import Any, Final

from masquerade.core.errors import InputError, QueryRefused, Refusal
from masquerade.core.tally import raise_refusals
from masquerade.crypto.errors import DecodingError
from masquerade.protocols.frequency_mining.messages import Terms as FrequencyTerms
from masquerade.protocols.mixnet.messages import MixTerms, Signed
from masquerade.protocols.mixnet.roles import Miner
from masquerade.protocols.people.questions import Question, smallest_cover
from masquerade.protocols.secure_aggregation.agreement import Terms as AggregationTerms
from masquerade.services.common.client import HttpTransport, peer_transport
from masquerade.services.common.jobs import Call
from masquerade.services.common.problems import NotAdmitted
from masquerade.services.counting.message_queue import Desk
from masquerade.services.counting.messages import (
    ASK_LETTER,
    ASK_TERMS,
    LETTER_ID,
    MESSAGE,
    NOT_TAKEN,
    OVER,
    TAKEN,
    WAIT,
    Boards,
    CountTerms,
    DeviceReply,
    DeviceRequest,
    Letter,
)
from masquerade.services.counting.rounds import (
    RoundBook,
    ServedAggregation,
    ServedFrequency,
    question_of,
)
from masquerade.services.counting.server import SCOPE, CountServer
from masquerade.services.counting.settings import CountMinerSettings
from masquerade.sources.people.aggregation import AggregationTally
from masquerade.sources.people.count_rounds import CountRounds, KnownCounts

CLOSED, KEYS, RECORDS = "closed", "keys", "records"
# one sentence, whether the name or the signature is wrong: it tells nobody who is enrolled
NOT_SIGNED: Final = "This is not signed by an enrolled person, under the terms of this count."
KEY_LOST: Final = Refusal(
    "key_lost", "The miner stopped after the keys of this mix were made: it is over. Name a new count."
)


class _Mix:
    """A mix as its miner runs it: keys from all leaders, submissions until the closing, then records.

    A closing that a leader out of reach cut short is taken up again: the batch stays as the first leader saw
    it, and what leaders have said is kept. One that has lost its key ends the mix, and nothing is opened.
    """

    def __init__(self, service: MinerService, terms: MixTerms) -> None:
        self._service, self._terms = service, terms
        self._lock, self._closing = threading.Lock(), threading.Lock()
        notes = service.state.notes
        found = notes.get(SCOPE, RECORDS)
        self.result: dict[str, Any] | None = None if found is None else json.loads(found)
        lost = self.result is None and notes.get(SCOPE, KEYS) is not None
        self.over: Refusal | None = KEY_LOST if lost else None
        self._made: tuple[Miner, bytes] | None = None
        self._board: bytes | None = None
        self._submissions: dict[str, bytes] = {}
        self._closed = False
        self._batch: bytes | None = None
        self._nonce, self._said = secrets.token_urlsafe(24), dict[tuple[str, str], bytes]()
        self._letter = secrets.token_bytes(LETTER_ID)

    def letter(self, person: str) -> Letter:
        """Return the board of keys for a person, until they have answered it."""
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
        """Return the board of all keys once every leader has it; what was made of it before stays."""
        if self._board is None:
            with self._leaders() as http:
                if self._made is None:
                    shares = [http.exchange(name, b"", place="share") for name in self._terms.leaders]
                    miner = Miner(self._service.identity, self._terms)
                    board = miner.key_board([miner.share(), *shares])
                    self._service.state.notes.put(SCOPE, KEYS, b"")
                    self._made = miner, board
                for name in self._terms.leaders:
                    http.exchange(name, self._made[1], place="key")
            self._board = self._made[1]
        return self._board

    def take(self, reply: DeviceReply) -> bool:
        """Keep the first submission that a person signed; return True if it is this one."""
        if reply.letter != self._letter:
            return False
        signed = Signed.opened(reply.content, self._terms, "submission")
        if signed.sender != reply.person:
            raise DecodingError("A submission comes from whoever signed it.")
        with self._lock:
            if self.result is None and not self._closed:
                self._submissions.setdefault(reply.person, reply.content)
            return self._submissions.get(reply.person) == reply.content

    def close(self) -> None:
        """Have everything that was sent shuffled by every leader and opened; once."""
        with self._closing:
            self._check_over()
            if self.result is not None:
                return
            if self._made is None or not self._submissions:
                raise QueryRefused([Refusal("not_begun", "Nobody has sent anything yet.")])
            miner, _ = self._made
            if self._batch is None:
                self._batch = self._closed_batch(miner)
            try:
                with self._leaders() as http:
                    result = self._opened(miner, self._batch, http)
            except QueryRefused as refused:
                self.over = next((one for one in refused.refusals if one.code == KEY_LOST.code), None)
                raise
            self._service.state.notes.put(SCOPE, RECORDS, json.dumps(result).encode())
            self.result = result

    def _closed_batch(self, miner: Miner) -> bytes:
        """Take nothing more, and return what there is; if that is too little, go on taking."""
        with self._lock:
            self._closed, sent = True, list(self._submissions.values())
        try:
            return miner.batch(sent)
        except BaseException:
            self._closed = False
            raise

    def _opened(self, miner: Miner, batch: bytes, http: HttpTransport) -> dict[str, Any]:
        """Let all leaders shuffle, sign and open; what each has said before is not asked for again."""
        leaders = self._terms.leaders

        def told(name: str, place: str, shown: bytes) -> bytes:
            if (name, place) not in self._said:
                key = f"{self._nonce}-{place}"
                self._said[name, place] = http.exchange(name, shown, place=place, key=key)
            return self._said[name, place]

        shuffles: list[bytes] = []
        for name in leaders:
            shuffles.append(told(name, "shuffle", Boards((batch, miner.shuffle_board(shuffles))).encode()))
        board = miner.shuffle_board(shuffles)
        shown = Boards((batch, board)).encode()
        endorsed = miner.endorsement_board([told(name, "endorse", shown) for name in leaders])
        collected = miner.collect(batch, board, [told(name, "open", endorsed) for name in leaders])
        records = [record.hex() for record in collected.records]
        return {"records": records, "unreadable": collected.unreadable, "refused": list(miner.refused)}

    def _check_over(self) -> None:
        if self.over is not None:
            raise QueryRefused([self.over])

    @property
    def sent(self) -> int:
        """Return how many people have sent something."""
        return len(self._submissions)

    def _leaders(self) -> HttpTransport:
        return peer_transport(self._service.settings, self._service.peers)


class MinerService(CountServer):
    """Office: enrol. People enrolled: terms, letters, replies. Operator: check, ask, result, close, status.

    People's devices come without a certificate: each message is signed by the identity that the office
    enrolled, for this count and (a reply) for the letter that it answers. Nothing else is looked at before.
    """

    settings: CountMinerSettings

    def __init__(self, settings: CountMinerSettings) -> None:
        self._asking = threading.Lock()
        self.desk: Desk | None = None
        self.rounds: CountRounds | None = None
        self.mix: _Mix | None = None
        self.policy = settings.description().loaded_policy()
        super().__init__(settings)
        leaders = self.description.leaders
        missing = [name for name in leaders if name not in settings.peers or not settings.peers[name].url]
        if missing:
            raise InputError(f"The leaders {', '.join(missing)} must be peers that have a url.")
        if self.description.miner != self.identity.public.hex():
            raise InputError("The description of the count names another miner's identity than this one's.")
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
        """Begin to count, or go on where the state says."""
        agreed, held = terms.agreed(self.policy), self.settings.limits.concurrency // 2
        if isinstance(agreed, MixTerms):
            self.mix = _Mix(self, agreed)
        else:
            self.desk = Desk(len(terms.members), held, self.settings.patience)
            self.book = RoundBook(self.state, agreed.sizes)
            if isinstance(agreed, FrequencyTerms):
                self.rounds = ServedFrequency(agreed, self.desk, self.book)
            elif isinstance(agreed, AggregationTerms):
                self.rounds = _Summed(ServedAggregation(agreed, self.desk, self.book), self.policy, self.book)
            if self.closed:
                self.desk.end()
        super().take_terms(terms)

    @property
    def closed(self) -> bool:
        """Tell whether counting is over."""
        return self.state.notes.get(SCOPE, CLOSED) is not None

    def described(self) -> str:
        """Return a line for the operator when the service starts."""
        name, protocol = self.description.name, self.description.protocol
        people = "nobody is enrolled yet" if self.terms is None else f"{len(self.terms.members):,} people"
        return f"count {name!r} by {protocol}: {people}"

    def _checked_request(self, call: Call) -> tuple[CountTerms, str]:
        """Return the terms and the enrolled person whose device asks for what is at this place."""
        terms, request = self.enrolled(), DeviceRequest.decode(call.body)
        if not request.is_signed(terms) or request.what != call.place:
            raise NotAdmitted(NOT_SIGNED)
        return terms, request.person

    def _letter(self, call: Call) -> bytes:
        _, person = self._checked_request(call)
        if self.mix is not None:
            return self.mix.letter(person).encode()
        return self._desk().letter(person).encode()

    def _reply(self, call: Call) -> bytes:
        """Take a reply that its person signed for the letter that is out; before that nothing changes."""
        terms, reply = self.enrolled(), DeviceReply.decode(call.body)
        if not reply.is_signed(terms):
            raise NotAdmitted(NOT_SIGNED)
        if self.mix is not None:
            taken = self.mix.take(reply)
        else:
            taken = self._desk().take(reply.person, reply.letter, reply.content)
        return TAKEN if taken else NOT_TAKEN

    def _desk(self) -> Desk:
        if self.desk is None:
            raise InputError("This count has no rounds.")
        return self.desk

    def _questions(self, given: dict[str, Any]) -> tuple[CountRounds, list[Question]]:
        self.enrolled()
        if self.rounds is None:
            raise InputError("A mix gives records, once it is closed (result); no questions are asked.")
        if self.closed:
            raise QueryRefused([Refusal("closed", "This count is closed: no further question is asked.")])
        listed = given.get("questions")
        if not isinstance(listed, list) or not listed:
            raise InputError("'questions' is a list of at least one.")
        return self.rounds, [question_of(one, self.rounds.sizes) for one in listed]

    def _check(self, given: dict[str, Any]) -> dict[str, Any]:
        rounds, questions = self._questions(given)
        asked = _unknown(rounds, questions)[1]
        found = rounds.refusals(asked) if asked else []
        return {"refusals": [{"code": one.code, "reason": one.reason} for one in found]}

    def _ask(self, given: dict[str, Any]) -> dict[str, Any]:
        """Answer questions from what was counted, the rest in one round; the operator's alone."""
        rounds, questions = self._questions(given)
        with self._asking:
            known, asked = _unknown(rounds, questions)
            if asked:
                raise_refusals(rounds.refusals(asked))
                held = rounds.hold_round(asked)
                rounds.held.append(held)
                known = [*known, held]
            n = rounds.n if not known else known[-1].n
            tables = {}
            for question in questions:
                of_it = [one.count([question]) for one in reversed(known) if one.n == n]
                tables[question] = next(one[0] for one in of_it if one)
        return {"n": n, "tables": [tables[one].reshape(-1).tolist() for one in questions]}

    def _result(self, _given: dict[str, Any]) -> dict[str, Any]:
        terms = self.enrolled()
        if self.mix is not None and self.mix.result is None:
            raise QueryRefused([Refusal("not_closed", "The mix is not closed: nothing was opened.")])
        result = {} if self.mix is None else self.mix.result or {}
        return {"terms": terms.encode().hex(), **result}

    def _close(self, _given: dict[str, Any]) -> dict[str, Any]:
        """End the count: a mix is opened, in rounds nothing more is asked and devices are told."""
        self.enrolled()
        if self.mix is not None:
            self.mix.close()
        else:
            with self._asking:
                if not self.closed:
                    self.state.notes.put(SCOPE, CLOSED, b"")
                self._desk().end()
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
                "sent": self.mix.sent,
            }
            if self.mix.result is not None:
                status |= {"records": len(self.mix.result["records"]), "refused": self.mix.result["refused"]}
        elif self.rounds is not None:
            status["state"] = "closed" if self.closed else "open"
            status["rounds"] = len(self.rounds.held)
            status["counted"] = self.rounds.n
            status["cheats"] = sorted({name for one in self.book.of("cheats") for name in one["evidence"]})
            status["left"] = sorted({name for one in self.book.of("gone") for name in one["users"]})
        return status


class _Summed(AggregationTally):
    """Secure aggregation whose counts are written down before they are given."""

    def __init__(self, rounds: ServedAggregation, policy: Any, book: RoundBook) -> None:
        super().__init__(rounds, policy)
        self._book = book
        self.held += book.held(policy)

    def hold_round(self, questions: Any) -> KnownCounts:
        """Have people vote, and write down what they said."""
        held = super().hold_round(questions)
        self._book.counted(held.n, {question: held.count([question])[0] for question in questions})
        self.n = held.n
        return held


def _unknown(
    rounds: CountRounds, questions: list[Question]
) -> tuple[list[KnownCounts], tuple[Question, ...]]:
    """Return the rounds that may answer, over as many people as now, and what is left to be asked."""
    known = [held for held in rounds.held if held.n == rounds.n]
    left = [one for one in questions if not any(held.count([one]) for held in known)]
    return known, smallest_cover(left, rounds.sizes)
