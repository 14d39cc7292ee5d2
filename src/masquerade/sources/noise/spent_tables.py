"""Budget of noisy tables: spent tables and their answers, stored permanently in a ledger.

The order is: claim that the tables are spent, draw the noise, store the answer, return the answer.
A process that ends between two steps has spent its tables. No table is drawn twice.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.channels.noise.terms import NoiseStage, NoiseTerms
from masquerade.core.errors import InputError
from masquerade.core.query import Query
from masquerade.core.schema import Schema
from masquerade.protocols.people.ledger import Claim, PersonLedger

# types of claims: part of the format
PROMISE, TERMS, SPENT, ANSWER = "noise promise", "noise terms", "noise spent", "noise answer"
Cells = NDArray[np.int64]


@dataclass
class SpentTables:
    """Tables that were spent under some terms, read from a ledger that several processes may share.

    Attributes
    ----------
    ledger : PersonLedger
        The ledger. It belongs to one set of records.
    terms : NoiseTerms
        Terms; those of the first use hold permanently.
    schema : Schema
        Variables of the records.
    n : int
        Number of records, which is public.
    """

    ledger: PersonLedger
    terms: NoiseTerms
    schema: Schema
    n: int
    tables_spent: int = 0
    answers: dict[Query, tuple[Cells, int]] = field(default_factory=dict)  # cells and number of the stage
    repeats: list[tuple[Query, Cells, int]] = field(default_factory=list)  # draws of repeated queries
    _turns: int = 0
    _waiting: dict[int, tuple[list[Query], int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        value = json.dumps(
            {
                "terms": self.terms.to_dict(),
                "variables": {variable.name: variable.categories for variable in self.schema.variables},
                "records": self.n,
            },
            ensure_ascii=False,
        ).encode()
        stored, promised = self.ledger.find(TERMS, b""), self.ledger.find(PROMISE, b"")
        if promised is not None and json.loads(promised) != (given := json.loads(value))["terms"]:
            raise InputError(_describe_difference({**given, "terms": json.loads(promised)}, given))
        if stored is None:
            self.ledger.claim([Claim(TERMS, b"", value)])
        elif stored != value:
            raise InputError(_describe_difference(json.loads(stored), json.loads(value)))
        self.refresh()

    def refresh(self) -> None:
        """Read what was spent and answered since, also by other processes."""
        while (data := self.ledger.find(SPENT, _turn(self._turns))) is not None:
            entry = json.loads(data)
            queries = [
                Query(by=it["by"], where=[tuple(pair) for pair in it["where"]]) for it in entry["asked"]
            ]
            self.tables_spent += int(entry["tables"])
            if queries:
                self._waiting[self._turns] = (queries, int(entry["stage"]))
            self._turns += 1
        for turn, (queries, stage) in list(self._waiting.items()):
            data = self.ledger.find(ANSWER, _turn(turn))
            if data is not None:
                shapes = [self.schema.shape(query.by) for query in queries]
                for query, cells in zip(
                    queries, split_cells(np.frombuffer(data, "<i8"), shapes), strict=True
                ):
                    if query in self.answers:
                        self.repeats.append((query, cells, stage))
                    else:
                        self.answers[query] = (cells, stage)
                del self._waiting[turn]

    def stage(self) -> tuple[int, NoiseStage | None, int]:
        """Return the number of the open stage, its noise (None if all is spent), and its tables left."""
        before = 0
        for number, stage in enumerate(self.terms.stages):
            before += stage.tables
            if self.tables_spent < before:
                return number, stage, before - self.tables_spent
        return len(self.terms.stages), None, 0

    def spend(self, queries: Sequence[Query], tables: int, stage: int) -> int:
        """Record durably that tables are spent on queries; return the number of the entry.

        Raises
        ------
        KeySpent
            If another process has spent tables since. Nothing is recorded then.
        """
        asked = [{"by": query.by, "where": query.where} for query in queries]
        entry = json.dumps({"tables": tables, "stage": stage, "asked": asked}, ensure_ascii=False)
        turn = self._turns
        self.ledger.claim([Claim(SPENT, _turn(turn), entry.encode())])
        return turn

    def store(self, turn: int, cells: Sequence[Cells]) -> None:
        """Store the answer of an entry durably, before it leaves."""
        data = np.concatenate([table.ravel() for table in cells]).astype("<i8").tobytes()
        self.ledger.claim([Claim(ANSWER, _turn(turn), data)])


def split_cells(cells: NDArray[Any], shapes: Sequence[tuple[int, ...]]) -> list[Any]:
    """Split concatenated cells into tables."""
    sizes = [prod(shape) for shape in shapes]
    if len(cells) != sum(sizes):
        raise InputError(f"The batch has {sum(sizes):,} cells. Got {len(cells):,} instead.")
    parts = np.split(cells, list(np.cumsum(sizes)[:-1]))
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def _turn(number: int) -> bytes:
    return number.to_bytes(8, "big")


def _describe_difference(stored: dict[str, Any], given: dict[str, Any]) -> str:
    """Return the message for a ledger that is used with different terms or records."""
    if stored["terms"] != given["terms"]:
        names = [name for name in stored["terms"] if stored["terms"][name] != given["terms"].get(name)]
        stated = ", ".join(f"{name} = {stored['terms'][name]}" for name in names)
        return f"This ledger of noise promises {stated}. Use the same terms, or another ledger."
    what = "another number of records" if stored["records"] != given["records"] else "other variables"
    return (
        f"This ledger of noise was used with {what}. A ledger belongs to one set of records: noise drawn for "
        "changed records reveals the change, and needs a budget of its own."
    )
