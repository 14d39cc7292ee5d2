"""Rounds over people's devices, and their durable record, which survives a crash of the miner.

People may send votes as soon as they are asked. Therefore the miner first stores whom it is about to ask:
after a crash it knows that these people may have sent votes. Complete counts are stored as well.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError, QueryRefused, Refusal, RoundAborted
from masquerade.crypto.errors import DecodingError
from masquerade.protocols.frequency_mining.messages import FrequencyTerms
from masquerade.protocols.frequency_mining.roles import MiningRound
from masquerade.protocols.noise_shares import count_tables
from masquerade.protocols.people.questions import Counts, Question
from masquerade.protocols.secure_aggregation import circle
from masquerade.protocols.secure_aggregation import messages as wire
from masquerade.protocols.secure_aggregation.agreement import AggregationTerms, QuestionBatch, RoundContext
from masquerade.protocols.secure_aggregation.history import against_another_list
from masquerade.protocols.secure_aggregation.server import AggregationOutcome, Server
from masquerade.services.common.state import State
from masquerade.services.counting.message_queue import MessageQueue
from masquerade.sources.people.count_rounds import CountedRound, KnownCounts
from masquerade.sources.people.frequency import FrequencyTally

SCOPE: Final = "count"
_SPENT = "a round was aborted after votes were sent, and clear votes are spent"


def question_values(question: Question) -> dict[str, Any]:
    """Return a question as JSON."""
    return {"columns": list(question.columns), "conditions": [list(pair) for pair in question.conditions]}


def question_of(values: Any, sizes: Mapping[str, int]) -> Question:
    """Parse a question from JSON; raise InputError if a variable or a code is unknown."""
    try:
        columns = [str(name) for name in values["columns"]]
        conditions = {str(name): int(code) for name, code in values["conditions"]}
        fine = all(0 <= code < sizes[name] for name, code in conditions.items())
        fine = fine and sizes.keys() >= set(columns) and not set(columns) & set(conditions)
    except (KeyError, TypeError, ValueError):
        fine = False
    if not fine:
        raise InputError("A question must have columns and conditions of known variables and reports.")
    return Question.about(columns, conditions, sizes)


def noisy_round_values(counted_round: CountedRound) -> dict[str, Any]:
    """Return a round with noise as JSON."""
    listed = [
        {**question_values(q), "counts": t.reshape(-1).tolist()} for q, t in counted_round.tables.items()
    ]
    return {"people": list(counted_round.people), "tables": listed}


def noisy_round_of(values: Any, sizes: Mapping[str, int]) -> CountedRound:
    """Parse a round with noise from JSON."""
    tables = {}
    for one in values["tables"]:
        question = question_of(one, sizes)
        tables[question] = np.array(one["counts"], dtype=np.int64).reshape(question.shape(sizes))
    return CountedRound(tables, tuple(int(place) for place in values["people"]))


class RoundBook:
    """The durable record of rounds in a miner's state: entries in order, never deleted."""

    def __init__(self, state: State, sizes: Mapping[str, int]) -> None:
        self._notes, self._sizes = state.notes, sizes
        self.entries: list[dict[str, Any]] = []
        while (entry := self._notes.get(SCOPE, self._name(len(self.entries)))) is not None:
            self.entries.append(json.loads(entry))

    def add(self, kind: str, **values: Any) -> None:
        """Store an entry durably."""
        entry = {"kind": kind, **values}
        self._notes.put(SCOPE, self._name(len(self.entries)), json.dumps(entry).encode())
        self.entries.append(entry)

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Return the entries of a kind, oldest first."""
        return [entry for entry in self.entries if entry["kind"] == kind]

    def add_counts(self, n: int, tables: Mapping[Question, Counts]) -> None:
        """Store the counts of a round."""
        listed = [{**question_values(q), "counts": table.reshape(-1).tolist()} for q, table in tables.items()]
        self.add("counted", n=n, tables=listed)

    def add_noisy_round(self, counted_round: CountedRound) -> None:
        """Store the tables of a round with noise, and the people whose votes they sum."""
        self.add("noisy", **noisy_round_values(counted_round))

    def noisy_rounds(self) -> list[CountedRound]:
        """Return the rounds with noise, oldest first."""
        return [noisy_round_of(entry, self._sizes) for entry in self.of("noisy")]

    def lost_tables(self) -> int:
        """Return the number of tables of noisy rounds whose votes may have been sent, but not counted."""
        lost = open_tables = 0
        for entry in self.entries:
            if entry["kind"] == "voting":
                open_tables = len(entry["questions"]) if "questions" in entry else entry.get("tables", 0)
                lost += open_tables
            elif entry["kind"] == "noisy":
                lost -= open_tables
        return lost

    def load_counts(self, policy: Policy) -> list[KnownCounts]:
        """Return the counts of every round."""
        return [
            KnownCounts(
                policy, {self._question(one): self._table(one) for one in entry["tables"]}, entry["n"]
            )
            for entry in self.of("counted")
        ]

    def questions(self, entry: Mapping[str, Any]) -> list[Question]:
        """Return the questions of an entry."""
        return [self._question(one) for one in entry["questions"]]

    def _question(self, values: Any) -> Question:
        return question_of(values, self._sizes)

    def _table(self, values: Any) -> Counts:
        shape = self._question(values).shape(self._sizes)
        return np.array(values["counts"], dtype=np.int64).reshape(shape)

    def _name(self, number: int) -> str:
        return f"entry {number}"


class ServedFrequency(FrequencyTally):
    """Frequency mining over devices; invalid votes are shown to all people, who continue without cheats."""

    def __init__(self, terms: FrequencyTerms, queue: MessageQueue, book: RoundBook) -> None:
        super().__init__(terms, lambda _user, _message: None, workers=1)
        self._queue, self._book = queue, book
        self.held += book.load_counts(self.policy)
        for entry in book.entries:
            if entry["kind"] == "gone":
                self._leave_out(entry["users"])
            elif entry["kind"] == "voting":
                self._rosters.append(frozenset(entry["users"]))
                self._spent.update(book.questions(entry))
            elif entry["kind"] in {"counted", "noisy"}:
                answered = [question_of(one, terms.sizes) for one in entry["tables"]]
                self._spent.difference_update(answered)
            elif entry["kind"] == "cheats":
                self._void_round(entry["evidence"], book.questions(entry))

    def hold_round(self, questions: Sequence[Question]) -> KnownCounts:
        """Run a round and store its counts; later rounds omit people who were missing or cheated."""
        with self._noting_culprits():
            counts = super().hold_round(questions)
        tables = {question: counts.count([question])[0] for question in questions}
        self._book.add_counts(counts.n, tables)
        return counts

    def earlier(self) -> list[CountedRound]:
        """Return the rounds with noise that were counted before."""
        return self._book.noisy_rounds()

    def lost_tables(self) -> int:
        """Return the number of tables of rounds whose votes may have been sent, but not counted."""
        return self._book.lost_tables()

    def hold(self, questions: Sequence[Question]) -> CountedRound:
        """Run a round of redrawn votes and store its tables."""
        with self._noting_culprits():
            counted_round = super().hold(questions)
        self._book.add_noisy_round(counted_round)
        return counted_round

    @contextmanager
    def _noting_culprits(self) -> Iterator[None]:
        """Store who was missing or cheated, if the round is aborted."""
        try:
            yield
        except RoundAborted as error:
            if error.culprits:
                self._book.add("gone", users=list(error.culprits))
            raise

    def hand_out(self, current: MiningRound) -> None:
        """Send the current message to all people of the round, and accept replies as they arrive."""
        invitation = current.invitation
        if current.phase == "votes":
            listed = [question_values(one) for one in invitation.questions]
            self._book.add("voting", users=list(invitation.users), questions=listed)
        for _, reply in self._queue.replies(dict.fromkeys(invitation.users, current.message)):
            if reply:
                self.take(current, reply)

    def record_spent(self, current: MiningRound) -> None:
        """Store that votes were sent; invalid votes are shown to all other people, which voids the round."""
        super().record_spent(current)
        if not current.evidence:
            return
        cheats, questions = list(current.evidence), current.invitation.questions
        evidence = {name: vote.hex() for name, vote in current.evidence.items()}
        listed = [question_values(one) for one in questions]
        self._book.add("cheats", evidence=evidence, questions=listed)
        honest = [user for user in current.invitation.users if user not in current.evidence]
        for _ in self._queue.replies(dict.fromkeys(honest, current.accusation)):
            pass  # only wait until people have received the evidence: their replies have no content
        self._void_round(cheats, questions)

    def _void_round(self, cheats: Iterable[str], questions: Iterable[Question]) -> None:
        """Treat a round as void, as people who saw the evidence do: it may be repeated without the cheats."""
        named = set(cheats)
        self._rosters = [roster - named for roster in self._rosters]
        self._spent.difference_update(questions)

    def _leave_out(self, users: Iterable[str]) -> None:
        gone = set(users)
        self.users = tuple(user for user in self.users if user not in gone)
        self._renew()


class ServedAggregation:
    """Rounds of secure aggregation over devices (`secure_aggregation.server.Rounds`)."""

    def __init__(self, terms: AggregationTerms, queue: MessageQueue, book: RoundBook) -> None:
        self.terms, self._queue, self._book = terms, queue, book
        self.last: AggregationOutcome | None = None
        self._nonce = os.urandom(wire.NONCE_SIZE)
        self._number, self._over, self._tables = 0, False, 0
        for entry in book.entries:
            if entry["kind"] == "voting":
                self._nonce, self._number = bytes.fromhex(entry["nonce"]), entry["number"]
                self._over = not terms.bounded
            elif entry["kind"] == "outcome":
                self._over, self.last = False, self._restore_outcome(entry)

    def refusals(self, questions: Sequence[Question] = ()) -> list[Refusal]:
        """Return the reasons why people would refuse another round; they do not depend on its questions."""
        del questions
        return [Refusal("already_spent", _SPENT)] if self._over else []

    def ask(self, batch: QuestionBatch) -> AggregationOutcome:
        """Count a batch in one round."""
        refusals = self.refusals()
        if refusals:
            raise QueryRefused(refusals)
        self._number += 1
        server = Server(self.terms, self._nonce, self._number, batch, before=self.last)
        try:
            outcome = self.last = self._run(server)
        except RoundAborted as aborted:
            self._over = self._over or (aborted.spent and not self.terms.bounded)
            if self.last is None:
                # people accept one graph per session: start another session
                self._nonce = os.urandom(wire.NONCE_SIZE)
            raise
        self._book.add(
            "outcome",
            survivors=list(outcome.survivors),
            past=outcome.past.hex(),
            attempt=outcome.drawn[0],
            drawn=outcome.drawn[1].hex(),
            culprits=list(outcome.culprits),
        )
        return outcome

    def earlier(self) -> list[CountedRound]:
        """Return the rounds with noise that were counted before."""
        return self._book.noisy_rounds()

    def lost_tables(self) -> int:
        """Return the number of tables of rounds whose votes may have been sent, but not counted."""
        return self._book.lost_tables()

    def hold(self, questions: Sequence[Question]) -> CountedRound:
        """Count questions with noise in one round, and store the tables."""
        batch = QuestionBatch(tuple(questions), self.terms.sizes)
        self._tables = count_tables(batch.queries)
        outcome = self.ask(batch)
        counted_round = CountedRound(batch.tables(outcome.counts), outcome.survivors)
        self._book.add_noisy_round(counted_round)
        return counted_round

    def _run(self, server: Server) -> AggregationOutcome:
        """Run all steps of a round; people without a valid reply drop out."""
        names, places = self.terms.roster.names, self.terms.roster.places
        while outgoing := server.advance():
            if wire.kind_of(next(iter(outgoing.values()))) is wire.Delivery:
                self._before_votes(len(outgoing))
            letters = {names[place]: message for place, message in outgoing.items()}
            for person, reply in self._queue.replies(letters):
                if reply:
                    try:
                        server.receive(places[person], reply)
                    except (DecodingError, wire.MessageRefused):
                        continue  # an invalid reply counts as no reply
        if server.outcome is None:
            raise RoundAborted("The round ended without counts.", spent=True)
        return server.outcome

    def _before_votes(self, here: int) -> None:
        """Raise QueryRefused if people would refuse after voting; else store that votes may be sent."""
        if self.last is not None and not self.terms.bounded:
            before, least = len(self.last.survivors), self.terms.parameters.minimum
            refusal = against_another_list(here, before, least)
            if refusal is not None:
                raise QueryRefused([refusal])
        self._book.add("voting", nonce=self._nonce.hex(), number=self._number, tables=self._tables)

    def _restore_outcome(self, entry: Mapping[str, Any]) -> AggregationOutcome:
        """Return the part of a stored outcome that later rounds need: its people, and the session's graph."""
        graph, drawn = None, (entry["attempt"], bytes.fromhex(entry["drawn"]))
        if drawn[1]:
            sizes = self.terms.sizes
            batch = QuestionBatch((Question((next(iter(sizes)),)),), sizes)
            context = RoundContext.of(self.terms, self._nonce, self._number, batch)
            size = wire.SIGNED_NONCE_SIZE
            nonces = [drawn[1][at : at + wire.NONCE_SIZE] for at in range(0, len(drawn[1]), size)]
            graph = circle.drawn_graph(context, drawn[0], nonces, self.terms)
        nothing = np.zeros(0, dtype=np.int64)
        survivors = tuple(entry["survivors"])
        return AggregationOutcome(
            nothing, survivors, bytes.fromhex(entry["past"]), graph, drawn, tuple(entry["culprits"])
        )
