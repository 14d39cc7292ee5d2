"""What a source has answered: kept for good, and what whoever has all answers can work out from them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

from masquerade.core.errors import QueryRefused, Refusal
from masquerade.core.query import Query
from masquerade.core.schema import Schema, Variable
from masquerade.crypto.errors import KeySpent
from masquerade.protocols.people.ledger import Claim, Ledger
from masquerade.sources.control.cell_space import CellSpace
from masquerade.sources.control.linear_span import LinearSpan

ANSWERED = "answered counts"  # the kind of a history's claims


class Answered(NamedTuple):
    """Questions that were answered together, to whom and for what, and the variables that they name."""

    queries: tuple[Query, ...]
    variables: tuple[Variable, ...]
    recipient: str = ""
    purpose: str = ""

    def to_bytes(self) -> bytes:
        """Return what a history keeps: questions, never answers."""
        asked = [{"by": query.by, "where": query.where} for query in self.queries]
        categories = {variable.name: variable.categories for variable in self.variables}
        told = {"recipient": self.recipient, "purpose": self.purpose}
        return json.dumps({"asked": asked, "categories": categories, **told}, ensure_ascii=False).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Answered:
        """Read what `to_bytes` wrote."""
        values = json.loads(data)
        queries = [Query(by=it["by"], where=[tuple(pair) for pair in it["where"]]) for it in values["asked"]]
        variables = [Variable(name, tuple(labels)) for name, labels in values["categories"].items()]
        return cls(tuple(queries), tuple(variables), values["recipient"], values["purpose"])


def answered_in(values: Iterable[bytes]) -> list[Answered]:
    """Return the entries of a history from the values of its claims."""
    return [Answered.from_bytes(value) for value in values]


class History:
    """What a ledger says was answered, oldest first; it only grows.

    `FileLedger(path)` keeps it on the disk, before an answer leaves and whatever happens to the process;
    a ledger in memory ends with it.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger, self._length = ledger, 0  # so many entries at least

    def entries(self, after: int = 0) -> list[Answered]:
        """Return everything that was answered after the first so many entries."""
        found: list[Answered] = []
        while (data := self._ledger.find(ANSWERED, _turn(after + len(found)))) is not None:
            found.append(Answered.from_bytes(data))
        return found

    def append(self, answered: Answered) -> None:
        """Take the next turn, whoever else adds to it."""
        while True:
            while self._ledger.find(ANSWERED, _turn(self._length)) is not None:
                self._length += 1
            try:
                return self.add(self._length, answered)
            except KeySpent:
                continue

    def add(self, turn: int, answered: Answered) -> None:
        """Take the turn after so many entries, durably; `KeySpent` if somebody else was quicker."""
        self._ledger.claim([Claim(ANSWERED, _turn(turn), answered.to_bytes())])


def _turn(number: int) -> bytes:
    return number.to_bytes(8, "big")


def joint_schema(schema: Schema, entries: Iterable[Answered]) -> Schema:
    """Return the variables of a schema and of everything answered; other categories cannot be compared."""
    variables = {variable.name: variable for variable in schema.variables}
    for variable in (variable for entry in entries for variable in entry.variables):
        if variables.setdefault(variable.name, variable) != variable:
            reason = (
                f"Counts of {variable.name!r} were answered before with other categories: what both give "
                "away together cannot be told. Use the earlier categories."
            )
            raise QueryRefused([Refusal("other_categories", reason)])
    return Schema(variables.values())


class Knowledge:
    """What whoever has all answers knows: the questions, their span, and which variables they join.

    `joined` are the widest sets of variables whose cells a question depends on: only cells of these can be
    determined, since the part of a cell's indicator that depends on all its variables is no sum of functions
    of fewer. The span is worked out when it is first looked at.
    """

    def __init__(self, space: CellSpace) -> None:
        self.space = space
        self.queries: dict[Query, None] = {}
        self.joined: list[frozenset[str]] = []
        self._span = LinearSpan()
        self._span.add(space.vector({}))  # how many records there are stands in every answer
        self._shared, self._waiting = False, list[Query]()

    def learn(self, query: Query) -> None:
        """Take the answer to a question in."""
        self.queries[query] = None
        self._waiting.append(query)
        joined = self.space.closure(query.names)
        if not any(joined <= other for other in self.joined):
            self.joined = [other for other in self.joined if not other <= joined] + [joined]

    @property
    def span(self) -> LinearSpan:
        """Return what follows from the answers by adding and subtracting."""
        if self._waiting and self._shared:
            self._span, self._shared = self._span.copy(), False
        for query in self._waiting:
            for vector in self.space.answered(query):
                self._span.add(vector)
        self._waiting.clear()
        return self._span

    def copy(self) -> Knowledge:
        """Return the same knowledge, which learns on its own."""
        other = Knowledge(self.space)
        other.queries, other.joined = dict(self.queries), self.joined
        other._span, other._waiting = self._span, list(self._waiting)
        self._shared = other._shared = True
        return other

    def ordered(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return variables in the order of the schema."""
        wanted = frozenset(names)
        return tuple(name for name in self.space.schema if name in wanted)
