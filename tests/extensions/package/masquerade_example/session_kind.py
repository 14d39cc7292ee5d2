"""A session kind: every party tells the convener its own table, in clear. Nobody should want that."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

import masquerade as mq
from masquerade.extend import Disclosure
from masquerade.parties import Outflow, Partition, Role, SessionKind


class Teller:
    """A party that counts its records in clear."""

    def __init__(self, part: Any) -> None:
        self._schema, self._codes = part.data.policy.schema, part.data.single_block.codes

    def receive(self, message: bytes) -> bytes:
        """Return the counts of the table of some variables, as a list."""
        names = json.loads(message)
        shape = self._schema.shape(names)
        cells = np.ravel_multi_index([self._codes[name] for name in names], shape)
        return json.dumps(np.bincount(cells, minlength=int(np.prod(shape))).tolist()).encode()


class Telling(Role):
    """A party sends its table to the convener; the outflow has no bound."""

    name = "tables"

    def player(self, part: Any) -> Teller:
        """Return the object that counts."""
        return Teller(part)

    def tables(self, message: bytes) -> list[tuple[str, ...]]:
        """Return the requested table, which is refused if the model does not need it."""
        return [tuple(json.loads(message))]

    def outflows(self, part: Any, message: bytes) -> tuple[Outflow, ...]:  # noqa: ARG002
        """Return the entry of the release ledger."""
        return (Outflow("clear counts of this party alone", tuple(json.loads(message)), None),)


class ClearTally:
    """A source of counts: tables of all parties, added up by the convener."""

    def __init__(self, run: Any) -> None:
        self._parties, self._transport = run.spec.parties, run.transport("tables")
        self.schema = run.joint.policies[self._parties[0]].schema
        seen = Disclosure(run.spec.convener, "clear counts of each party", tuple(self.schema), None)
        self.guarantee = mq.Guarantee((seen,))

    def check(self, queries: Sequence[mq.Query]) -> list[mq.Refusal]:  # noqa: ARG002
        """Refuse nothing."""
        return []

    def answer(self, queries: Sequence[mq.Query]) -> list[mq.CountTable]:
        """Ask every party for every table."""
        return [self._table(query) for query in queries]

    def _table(self, query: mq.Query) -> mq.CountTable:
        names = list(query.names) or [self.schema.names[0]]
        message = json.dumps(names).encode()
        told = [json.loads(self._transport.exchange(party, message)) for party in self._parties]
        cells = pd.MultiIndex.from_product([self.schema[name].categories for name in names], names=names)
        people = cells.repeat(np.sum(told, axis=0)).to_frame(index=False)
        [table] = mq.tally(people, schema=mq.Schema([self.schema[name] for name in names])).answer([query])
        return table


class ClearTables(SessionKind):
    """The convener learns the table of each party in clear."""

    name = "clear-tables"
    why = "one party would tell itself"
    partition = Partition.ROWS
    roles = (Telling(),)

    def model(self, run: Any) -> dict[str, Any]:
        """Learn from tables."""
        run.note("asking for clear tables")
        return run.learn_from(ClearTally(run))
