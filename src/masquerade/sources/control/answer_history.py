"""History of answered queries, stored durably, and the knowledge that follows from all answers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

from masquerade.core.errors import QueryRefused, Refusal
from masquerade.core.query import Query
from masquerade.core.schema import Schema, Variable
from masquerade.crypto.errors import KeySpent
from masquerade.protocols.people.ledger import Claim, PersonLedger
from masquerade.sources.control.cell_space import CellSpace
from masquerade.sources.control.linear_span import LinearSpan

ANSWERED = "answered counts"  # type of a history's claims in a ledger


class Answered(NamedTuple):
    """Queries that were answered together, their recipient and purpose, and their variables."""

    queries: tuple[Query, ...]
    variables: tuple[Variable, ...]
    recipient: str = ""
    purpose: str = ""

    def to_bytes(self) -> bytes:
        """Encode an entry of the history: queries, never answers."""
        asked = [{"by": query.by, "where": query.where} for query in self.queries]
        categories = {variable.name: variable.categories for variable in self.variables}
        told = {"recipient": self.recipient, "purpose": self.purpose}
        return json.dumps({"asked": asked, "categories": categories, **told}, ensure_ascii=False).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Answered:
        """Decode the result of `to_bytes`."""
        values = json.loads(data)
        queries = [Query(by=it["by"], where=[tuple(pair) for pair in it["where"]]) for it in values["asked"]]
        variables = [Variable(name, tuple(labels)) for name, labels in values["categories"].items()]
        return cls(tuple(queries), tuple(variables), values["recipient"], values["purpose"])


def answered_in(values: Iterable[bytes]) -> list[Answered]:
    """Return the entries of a history from the values of its claims."""
    return [Answered.from_bytes(value) for value in values]


class AnswerHistory:
    """Answered queries in a ledger, oldest first. It only grows.

    A `FileLedger(path)` stores an entry durably before the answer is sent. A ledger in memory ends with the
    process.
    """

    def __init__(self, ledger: PersonLedger) -> None:
        self._ledger, self._length = ledger, 0  # number of entries seen so far

    def entries(self, after: int = 0) -> list[Answered]:
        """Return all entries but the first `after`."""
        found: list[Answered] = []
        while (data := self._ledger.find(ANSWERED, _turn(after + len(found)))) is not None:
            found.append(Answered.from_bytes(data))
        return found

    def append(self, answered: Answered) -> None:
        """Append an entry, even while other processes append entries."""
        while True:
            while self._ledger.find(ANSWERED, _turn(self._length)) is not None:
                self._length += 1
            try:
                return self.add(self._length, answered)
            except KeySpent:
                continue

    def add(self, turn: int, answered: Answered) -> None:
        """Store an entry durably at index `turn`.

        Raises
        ------
        KeySpent
            If another process has stored an entry there.
        """
        self._ledger.claim([Claim(ANSWERED, _turn(turn), answered.to_bytes())])


def _turn(number: int) -> bytes:
    return number.to_bytes(8, "big")


def joint_schema(schema: Schema, entries: Iterable[Answered]) -> Schema:
    """Return the variables of a schema and of all answered queries.

    Raises
    ------
    QueryRefused
        If a variable has different categories in two entries: what both reveal together is unknown.
    """
    variables = {variable.name: variable for variable in schema.variables}
    for variable in (variable for entry in entries for variable in entry.variables):
        if variables.setdefault(variable.name, variable) != variable:
            reason = (
                f"Counts of {variable.name!r} were answered before with different categories: what both "
                "reveal together is unknown. Use the earlier categories."
            )
            raise QueryRefused([Refusal("other_categories", reason)])
    return Schema(variables.values())


class Knowledge:
    """Knowledge that all answers together give: the queries, their span, and the variables that they join.

    `joined` are the largest sets of variables whose cells a query depends on. Only cells of these can be
    determined, since the component of a cell's indicator that depends on all its variables is not a sum of
    functions of fewer variables. The span is computed on first use.
    """

    def __init__(self, space: CellSpace) -> None:
        self.space = space
        self.queries: dict[Query, None] = {}
        self.joined: list[frozenset[str]] = []
        self._span = LinearSpan()
        self._span.add(space.vector({}))  # every answer includes the number of records
        self._shared, self._waiting = False, list[Query]()

    def learn(self, query: Query) -> None:
        """Add the answer to a query."""
        self.queries[query] = None
        self._waiting.append(query)
        joined = self.space.closure(query.names)
        if not any(joined <= other for other in self.joined):
            self.joined = [other for other in self.joined if not other <= joined] + [joined]

    @property
    def span(self) -> LinearSpan:
        """The span of the answers under addition and subtraction."""
        if self._waiting and self._shared:
            self._span, self._shared = self._span.copy(), False
        for query in self._waiting:
            for vector in self.space.query_vectors(query):
                self._span.add(vector)
        self._waiting.clear()
        return self._span

    def copy(self) -> Knowledge:
        """Return an independent copy."""
        other = Knowledge(self.space)
        other.queries, other.joined = dict(self.queries), self.joined
        other._span, other._waiting = self._span, list(self._waiting)
        self._shared = other._shared = True
        return other

    def sort_names(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return variables in the order of the schema."""
        wanted = frozenset(names)
        return tuple(name for name in self.space.schema if name in wanted)
