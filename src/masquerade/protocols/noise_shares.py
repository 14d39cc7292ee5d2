"""Noise shares of one contributor to a secure sum: drawn once for each table, spent permanently.

Every contributor adds its share to its counts before they are masked. Only the sum opens, so nobody knows its
noise. The order is: a durable claim that the tables are spent, then the draw, then the masked reply. After a
crash between two steps the tables are spent, and no share is drawn again.
Reference: Agarwal, Kairouz & Liu (2021), Skellam shares; Goryczka & Xiong (2015), Pólya shares.
Records are no longer protected if more contributors than agreed reveal or omit their shares.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from masquerade.channels.noise.accountant import CELLS_MOVED, compose_losses
from masquerade.channels.noise.disjoint_queries import group_disjoint
from masquerade.channels.noise.terms import NoiseTerms
from masquerade.core.axes import Words
from masquerade.core.errors import InputError, QueryRefused, Refusal
from masquerade.core.query import Query
from masquerade.core.schema import Schema
from masquerade.crypto.errors import KeySpent
from masquerade.protocols.people.ledger import Claim, PersonLedger

SHARES, TURN = "noise shares", "noise turn"  # types of claims: part of the format


class NoiseBudget(NamedTuple):
    """The most ε, at δ, that all sessions with noise about the same records may spend together."""

    epsilon: float
    delta: float


class NoiseShares:
    """A contributor's shares under some terms, with its own ledger of what is spent.

    Parameters
    ----------
    terms : NoiseTerms
        Terms that all contributors agreed on. They have one stage.
    ledger : PersonLedger
        Where spent tables are recorded, for all sessions about the same records.
    scope : bytes
        Name of the agreement in the ledger, 32 bytes. Its tables are spent once, over all its runs.
    budget : NoiseBudget, optional
        Limit over all agreements in the ledger.
    """

    def __init__(
        self, terms: NoiseTerms, ledger: PersonLedger, scope: bytes, budget: NoiseBudget | None = None
    ) -> None:
        if len(terms.stages) > 1:
            raise InputError("Noise of several contributors has one stage: give a number of tables.")
        if len(scope) != 32:
            raise InputError("The scope of noise shares has 32 bytes.")
        self.terms, self._ledger, self._scope, self._budget = terms, ledger, scope, budget

    @property
    def tables_spent(self) -> int:
        """Return the number of tables spent under this agreement."""
        return sum(entry["tables"] for entry in self._entries() if entry["scope"] == self._scope.hex())

    def refusal(self, queries: Sequence[Query]) -> Refusal | None:
        """Return the reason not to answer queries, if any; it does not depend on the counts."""
        return self._refusal(count_tables(queries))

    def draw(self, name: bytes, queries: Sequence[Query], schema: Schema) -> Words:
        """Spend the tables of queries durably, and return a share for each of their cells, modulo 2^64.

        Parameters
        ----------
        name : bytes
            Name of the round: unique under this agreement.
        queries : sequence of Query
            Queries of the round. One without variables is the public number of records, and has no noise.
        schema : Schema
            Categories of the variables.

        Returns
        -------
        array of uint64
            Shares, in the order of the cells.

        Raises
        ------
        QueryRefused
            If the budget does not allow the tables, or the round was drawn before.
        """
        return self.draw_cells(name, queries, [prod(schema.shape(query.by)) for query in queries])

    def draw_cells(self, name: bytes, queries: Sequence[Query], cells: Sequence[int]) -> Words:
        """Return a share for each cell of queries whose numbers of cells are known; see `draw`.

        Parameters
        ----------
        name : bytes
            Name of the round.
        queries : sequence of Query
            Queries of the round.
        cells : sequence of int
            Number of cells of each query.
        """
        tables = count_tables(queries)
        if tables:
            self._spend(name, tables)
        sampler = self.terms.shares(self.terms.stages[0])
        parts = [np.zeros(0, dtype=np.int64)]
        for query, number in zip(queries, cells, strict=True):
            parts.append(sampler.draw(number) if query.names else np.zeros(number, dtype=np.int64))
        return np.concatenate(parts).astype(np.uint64)

    def _spend(self, name: bytes, tables: int) -> None:
        """Record tables durably; raise QueryRefused if the budget or an earlier draw forbids it."""
        turn = len(self._entries())
        refusal = self._refusal(tables)
        if refusal is not None:
            raise QueryRefused([refusal])
        entry = {"scope": self._scope.hex(), "tables": tables, "terms": self.terms.to_dict()}
        claims = [Claim(SHARES, self._scope + name, json.dumps(entry).encode())]
        # a process that spends at the same time has the same turn, and only one of the two gets it
        claims.append(Claim(TURN, turn.to_bytes(8, "big"), b""))
        try:
            self._ledger.claim(claims)
        except KeySpent:
            reason = "Noise of this round was drawn before; a second draw would reveal counts."
            raise QueryRefused([Refusal("budget_spent", reason)]) from None

    def _refusal(self, tables: int) -> Refusal | None:
        spent, number = self.tables_spent, self.terms.number
        if spent + tables > number:
            reason = f"This batch takes {tables} tables, and {max(number - spent, 0)} of {number} are left."
            return Refusal("budget_spent", reason)
        if self._budget is not None and self._total(tables) > self._budget.epsilon:
            reason = "This batch would exceed the budget of noise over all sessions about these records."
            return Refusal("budget_spent", reason)
        return None

    def _total(self, tables: int) -> float:
        """Return ε of everything in the ledger and further tables, at the budget's δ."""
        if self._budget is None:
            return 0.0
        spent = [(NoiseTerms.from_dict(entry["terms"]), int(entry["tables"])) for entry in self._entries()]
        parts = [
            (terms.stages[0].losses(), CELLS_MOVED * number)
            for terms, number in [*spent, (self.terms, tables)]
            if number
        ]
        return compose_losses(parts).epsilon(self._budget.delta)

    def _entries(self) -> list[dict[str, Any]]:
        return [json.loads(value) for value in self._ledger.values(SHARES)]


def count_tables(queries: Sequence[Query]) -> int:
    """Return the number of tables that queries spend; the number of records is public and free."""
    return len(group_disjoint([query for query in queries if query.names]))
