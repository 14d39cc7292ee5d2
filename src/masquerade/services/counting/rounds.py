"""Rounds over people's devices, and what a miner remembers of them whatever happens to its process.

Votes may leave as soon as everybody is asked for them. That is written down first: a miner that dies then and
is started again knows that they may have left, and whose; what was counted completely it has.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError, QueryRefused, Refusal, RoundAborted
from masquerade.crypto.errors import DecodingError
from masquerade.protocols.frequency_mining.messages import Terms as FrequencyTerms
from masquerade.protocols.frequency_mining.roles import Round
from masquerade.protocols.people.questions import Counts, Question
from masquerade.protocols.secure_aggregation import circle
from masquerade.protocols.secure_aggregation import messages as wire
from masquerade.protocols.secure_aggregation.agreement import Batch, RoundContext
from masquerade.protocols.secure_aggregation.agreement import Terms as AggregationTerms
from masquerade.protocols.secure_aggregation.history import against_another_list
from masquerade.protocols.secure_aggregation.server import Outcome, Server
from masquerade.services.common.state import State
from masquerade.services.counting.message_queue import Desk
from masquerade.sources.people.count_rounds import KnownCounts
from masquerade.sources.people.frequency import FrequencyTally

SCOPE: Final = "count"
_SPENT = "a round was aborted after votes had left, and clear votes are spent"


def question_values(question: Question) -> dict[str, Any]:
    """Return a question as JSON."""
    return {"columns": list(question.columns), "conditions": [list(pair) for pair in question.conditions]}


def question_of(values: Any, sizes: Mapping[str, int]) -> Question:
    """Return the question of JSON; variables and codes that are none are refused."""
    try:
        columns = [str(name) for name in values["columns"]]
        conditions = {str(name): int(code) for name, code in values["conditions"]}
        fine = all(0 <= code < sizes[name] for name, code in conditions.items())
        fine = fine and sizes.keys() >= set(columns) and not set(columns) & set(conditions)
    except (KeyError, TypeError, ValueError):
        fine = False
    if not fine:
        raise InputError("A question has columns and conditions, of variables and reports that there are.")
    return Question.about(columns, conditions, sizes)


class RoundBook:
    """What a miner has counted and what may have left, in its state: entries in order, never taken back."""

    def __init__(self, state: State, sizes: Mapping[str, int]) -> None:
        self._notes, self._sizes = state.notes, sizes
        self.entries: list[dict[str, Any]] = []
        while (found := self._notes.get(SCOPE, self._name(len(self.entries)))) is not None:
            self.entries.append(json.loads(found))

    def add(self, kind: str, **values: Any) -> None:
        """Write an entry; it is on the disk when this returns."""
        entry = {"kind": kind, **values}
        self._notes.put(SCOPE, self._name(len(self.entries)), json.dumps(entry).encode())
        self.entries.append(entry)

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Return the entries of a kind, oldest first."""
        return [entry for entry in self.entries if entry["kind"] == kind]

    def counted(self, n: int, tables: Mapping[Question, Counts]) -> None:
        """Write what a round has counted."""
        listed = [{**question_values(q), "counts": table.reshape(-1).tolist()} for q, table in tables.items()]
        self.add("counted", n=n, tables=listed)

    def held(self, policy: Policy) -> list[KnownCounts]:
        """Return what every round has counted."""
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
    """Frequency mining over devices. Invalid votes are shown to everybody, who go on without the cheats."""

    def __init__(self, terms: FrequencyTerms, desk: Desk, book: RoundBook) -> None:
        super().__init__(terms, lambda _user, _message: None, workers=1)
        self._desk, self._book = desk, book
        self.held += book.held(self.policy)
        for entry in book.entries:
            if entry["kind"] == "gone":
                self._leave_out(entry["users"])
            elif entry["kind"] == "voting":
                self._rosters.append(frozenset(entry["users"]))
                self._spent.update(book.questions(entry))
            elif entry["kind"] == "counted":
                known = [question_of(one, terms.sizes) for one in entry["tables"]]
                self._spent.difference_update(known)
            elif entry["kind"] == "cheats":
                self._voided(entry["evidence"], book.questions(entry))

    def hold_round(self, questions: Sequence[Question]) -> KnownCounts:
        """Mine the counts of a round; whoever was missing or cheated is left out from then on."""
        try:
            held = super().hold_round(questions)
        except RoundAborted as error:
            if error.culprits:
                self._book.add("gone", users=list(error.culprits))
            raise
        tables = {question: held.count([question])[0] for question in questions}
        self._book.counted(held.n, tables)
        return held

    def hand_out(self, current: Round) -> None:
        """Hand everybody the message that is due, and take answers as they come."""
        asked = current.invitation
        if current.phase == "votes":
            listed = [question_values(one) for one in asked.questions]
            self._book.add("voting", users=list(asked.users), questions=listed)
        for _, reply in self._desk.replies(dict.fromkeys(asked.users, current.message)):
            if reply:
                self.take(current, reply)

    def spent(self, current: Round) -> None:
        """Remember that votes have left; invalid ones are shown to all others, for whom the round is void."""
        super().spent(current)
        if not current.evidence:
            return
        cheats, questions = list(current.evidence), current.invitation.questions
        evidence = {name: vote.hex() for name, vote in current.evidence.items()}
        listed = [question_values(one) for one in questions]
        self._book.add("cheats", evidence=evidence, questions=listed)
        honest = [user for user in current.invitation.users if user not in current.evidence]
        for _ in self._desk.replies(dict.fromkeys(honest, current.accusation)):
            pass
        self._voided(cheats, questions)

    def _voided(self, cheats: Iterable[str], questions: Iterable[Question]) -> None:
        """Go on as people do who were shown a cheat: the round may be asked again, without them."""
        named = set(cheats)
        self._rosters = [roster - named for roster in self._rosters]
        self._spent.difference_update(questions)

    def _leave_out(self, users: Iterable[str]) -> None:
        gone = set(users)
        self.users = tuple(user for user in self.users if user not in gone)
        self._renew()


class ServedAggregation:
    """Rounds of secure aggregation over devices (`aggregation.server.Rounds`)."""

    def __init__(self, terms: AggregationTerms, desk: Desk, book: RoundBook) -> None:
        self.terms, self._desk, self._book = terms, desk, book
        self.last: Outcome | None = None
        self._nonce = os.urandom(wire.NONCE_SIZE)
        self._number, self._over = 0, False
        for entry in book.entries:
            if entry["kind"] == "voting":
                self._nonce, self._number = bytes.fromhex(entry["nonce"]), entry["number"]
                self._over = not terms.disguised
            elif entry["kind"] == "outcome":
                self._over, self.last = False, self._restored(entry)

    def refusals(self) -> list[Refusal]:
        """Return why no further round would be answered."""
        return [Refusal("already_spent", _SPENT)] if self._over else []

    def ask(self, batch: Batch) -> Outcome:
        """Count a batch in one round."""
        refusals = self.refusals()
        if refusals:
            raise QueryRefused(refusals)
        self._number += 1
        server = Server(self.terms, self._nonce, self._number, batch, before=self.last)
        try:
            outcome = self.last = self._run(server)
        except RoundAborted as aborted:
            self._over = self._over or (aborted.spent and not self.terms.disguised)
            if self.last is None:
                self._nonce = os.urandom(wire.NONCE_SIZE)  # people keep to one graph a session: draw another
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

    def _run(self, server: Server) -> Outcome:
        names, places = self.terms.roster.names, self.terms.roster.places
        while outgoing := server.advance():
            if wire.kind_of(next(iter(outgoing.values()))) is wire.Delivery:
                self._before_votes(len(outgoing))
            letters = {names[place]: message for place, message in outgoing.items()}
            for person, reply in self._desk.replies(letters):
                if reply:
                    try:
                        server.receive(places[person], reply)
                    except (DecodingError, wire.MessageRefused):
                        continue  # as good as no answer
        if server.outcome is None:
            raise RoundAborted("The round ended without counts.", spent=True)
        return server.outcome

    def _before_votes(self, here: int) -> None:
        """Refuse a round that people would refuse after having voted; else write that votes may leave."""
        if self.last is not None and not self.terms.disguised:
            before, least = len(self.last.survivors), self.terms.parameters.minimum
            refusal = against_another_list(here, before, least)
            if refusal is not None:
                raise QueryRefused([refusal])
        self._book.add("voting", nonce=self._nonce.hex(), number=self._number)

    def _restored(self, entry: Mapping[str, Any]) -> Outcome:
        """Return what a later round needs of an earlier one: over whom, and the graph of the session."""
        graph, drawn = None, (entry["attempt"], bytes.fromhex(entry["drawn"]))
        if drawn[1]:
            sizes = self.terms.sizes
            batch = Batch((Question((next(iter(sizes)),)),), sizes)
            context = RoundContext.of(self.terms, self._nonce, self._number, batch)
            size = wire.SIGNED_NONCE_SIZE
            nonces = [drawn[1][at : at + wire.NONCE_SIZE] for at in range(0, len(drawn[1]), size)]
            graph = circle.drawn_graph(context, drawn[0], nonces, self.terms)
        nothing = np.zeros(0, dtype=np.int64)
        survivors = tuple(entry["survivors"])
        return Outcome(
            nothing, survivors, bytes.fromhex(entry["past"]), graph, drawn, tuple(entry["culprits"])
        )
