"""Formulation 2: people suppress values that single them out, by a distributed form of Meyerson & Williams.

Reference: Meyerson & Williams (2004).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from masquerade.anonymity.suppression import partition_distances
from masquerade.core.errors import InputError
from masquerade.core.guarantee import Guarantee
from masquerade.crypto.keys import AgreementKey, SigningKey
from masquerade.protocols.k_anonymity.suppression.comparison import check_cost
from masquerade.protocols.k_anonymity.suppression.messages import (
    Boards,
    Distances,
    Partition,
    PartitionTerms,
    distances_on,
    partition_guarantee,
    signed_groups,
)
from masquerade.protocols.k_anonymity.suppression.roles import (
    GroupRandomness,
    KeyHolder,
    Person,
    SuppressionMiner,
)
from masquerade.protocols.people.checks import Checks
from masquerade.simulation.costs import Culprit, Meter, PopulationCost, Result
from masquerade.simulation.mixnet import spoil_submission
from masquerade.simulation.people import People, Trouble, check_clear, name_of
from masquerade.simulation.threshold import compile_kernels

ALONE = 2  # people who share no work, to measure the time of a real device
HOLDERS, MINER, SERVER = "key holders", "miner", "randomness server"
Shown = tuple[tuple[str | None, ...], ...]


@dataclass(frozen=True, slots=True, eq=False)
class SuppressedTable:
    """The released table in the given order, None where suppressed, with its groups and its guarantee.

    `distances` are the input of the grouping.
    """

    rows: Shown
    groups: tuple[int, ...]
    distances: Distances
    guarantee: Guarantee


class SuppressionRun:
    """People with their rows, two or more key holders, the miner and the randomness server.

    Each step takes the previous boards (lists of published messages) and returns the next, with every message
    encoded as bytes. `run` runs all steps. One check of the public boards serves all people except the first
    `alone`, who check for themselves. Under `trouble`, some people never send their row, and some send a row
    without a valid proof: they are excluded.
    """

    def __init__(
        self,
        rows: Sequence[Sequence[str]],
        k: int,
        partition: Partition = partition_distances,
        *,
        attributes: Sequence[str] | None = None,
        holders: int = 2,
        value_size: int = 64,
        accept_cost: bool = False,
        trouble: Trouble | None = None,
        alone: int = 0,
    ) -> None:
        if not rows or any(len(row) != len(rows[0]) for row in rows):
            raise InputError("A table needs rows, all with the same attributes.")
        check_cost(len(rows), len(rows[0]), holders, accept_cost=accept_cost)
        width = len(str(len(rows)))
        self.identities = {
            **{f"person {place:0{width}}": SigningKey() for place in range(1, len(rows) + 1)},
            **{f"key holder {place}": SigningKey() for place in range(1, holders + 1)},
            MINER: SigningKey(),
            SERVER: SigningKey(),
        }
        public = {name: key.public for name, key in self.identities.items()}
        box = AgreementKey()
        self.terms = terms = PartitionTerms(
            "local run",
            k,
            attributes or [f"attribute {place}" for place in range(1, len(rows[0]) + 1)],
            public[MINER],
            box.public,
            {name: key for name, key in public.items() if name.startswith("key holder")},
            public[SERVER],
            {name: key for name, key in public.items() if name.startswith("person")},
            value_size,
        )
        self.partition, self.checks, self.meter = partition, Checks(), Meter(len(rows), rounds=1)
        self.meter.roles = dict.fromkeys((HOLDERS, MINER, SERVER), 0.0)
        self.leaving, self.cheating = (trouble or Trouble()).among(len(rows))
        self.places = list(range(len(rows)))
        honest = [place for place in self.places if place not in self.leaving | self.cheating]
        self.alone = honest[:alone]
        self.people = []
        for place, (name, row) in enumerate(zip(terms.people, rows, strict=True)):
            checks = Checks() if place in self.alone else self.checks
            person = Person(name, self.identities[name], terms, row, checks=checks)
            self.people.append(self.meter.watch(person, place))
        self.holders = [
            self.meter.watch(KeyHolder(name, self.identities[name], terms, accept_cost=True), HOLDERS)
            for name in terms.holders
        ]
        miner = SuppressionMiner(self.identities[MINER], box, terms, accept_cost=True, checks=self.checks)
        self.miner = self.meter.watch(miner, MINER)
        self.randomness = self.meter.watch(GroupRandomness(self.identities[SERVER], terms), SERVER)

    def keys(self) -> bytes:
        """Return the board of key shares."""
        board = self.miner.key_board([self.miner.share(), *[holder.share() for holder in self.holders]])
        for holder in self.holders:
            holder.take_key(board)
        return board

    def batch(self, keys: bytes) -> bytes:
        """Return the board of encrypted rows. People who are not on it are excluded."""
        staying = [place for place in self.places if place not in self.leaving]
        sent = {place: self.people[place].submit(keys) for place in staying}
        names = {place: self.people[place].name for place in staying}
        for place in self.cheating:
            sent[place] = spoil_submission(sent[place], self.identities[names[place]], self.terms.mix)
        board = self.miner.batch(list(sent.values()))
        self.places = [place for place in staying if names[place] not in self.miner.refused]
        self.people = [self.people[place] for place in self.places]
        return board

    def mixings(self, batch: bytes) -> bytes:
        """Return the board of comparisons of all pairs, mixed by the key holders in sequence."""
        done: list[bytes] = []
        for holder in self.holders:
            done.append(holder.shuffle(batch, self.miner.shuffle_board(done)))
        return self.miner.shuffle_board(done)

    def endorsements(self, batch: bytes, mixings: bytes) -> bytes:
        """Return the board of signatures by which key holders confirm that they checked all mixings."""
        return self.miner.endorsement_board([holder.endorse(batch, mixings) for holder in self.holders])

    def openings(self, batch: bytes, mixings: bytes, endorsements: bytes) -> bytes:
        """Return the board of all shares that open the distances."""
        parts = [holder.open(endorsements) for holder in self.holders]
        return self.miner.opening_board([*parts, self.miner.open(batch, mixings, endorsements)])

    def compare(self) -> Boards:
        """Return all boards of the first phase, from which all parties compute the distances."""
        keys = self.keys()
        batch = self.batch(keys)
        mixings = self.mixings(batch)
        endorsements = self.endorsements(batch, mixings)
        return Boards(keys, batch, mixings, endorsements, self.openings(batch, mixings, endorsements))

    def agreement(self, boards: Boards) -> bytes:
        """Return the board on which all people sign the groups: the second phase."""
        words = [person.agree(boards, self.partition) for person in self.people]
        return self.miner.agreement_board(boards, words, self.partition)

    def release(self, agreement: bytes) -> bytes:
        """Return the signed table: the third phase."""
        notices = self.randomness.begin(agreement)
        replies = self.randomness.evaluate([person.request(agreement, notices) for person in self.people])
        closings = self.randomness.close()
        answered = zip(self.people, replies, strict=True)
        reports = [report for person, reply in answered for report in person.report(reply, closings)]
        return self.miner.release(agreement, notices, closings, self.holders[0].pass_on(reports))

    def run(self) -> SuppressedTable:
        """Return the table that all parties obtain."""
        boards = self.compare()
        agreement = self.agreement(boards)
        release = self.release(agreement)
        table, *_ = [person.accept(release) for person in self.people]
        distances = self.checks.once(distances_on, self.terms, boards)
        agreed = self.checks.once(signed_groups, self.terms, agreement)
        return SuppressedTable(
            tuple(table[name] for name in distances.names),
            tuple(agreed.group_of(name) for name in distances.names),
            distances,
            partition_guarantee(self.terms),
        )


@dataclass(frozen=True, slots=True, eq=False)
class SuppressionRunResult(Result):
    """Result of suppression: the table, None where suppressed, of the people who were compared.

    `as_expected` is True if the same algorithm makes the same table from the clear rows.
    """

    n: int
    k: int
    quasi: tuple[str, ...]
    rows: Shown
    groups: int
    left: int
    faults: tuple[Culprit, ...]
    as_expected: bool
    cost: PopulationCost
    guarantee: Guarantee

    @property
    def suppressed(self) -> int:
        """Number of suppressed cells."""
        return sum(value is None for row in self.rows for value in row)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON. The table is summarized in numbers."""
        plain = Result.to_dict(self)
        rows = len(plain.pop("rows"))
        figures = {"cells": rows * len(self.quasi), "suppressed": self.suppressed}
        head = {name: plain.pop(name) for name in ("n", "k", "quasi_identifiers")}
        return {"formulation": 2, **head, "compared": rows, "groups": plain.pop("groups"), **figures, **plain}


def suppression(
    people: People, k: int, quasi: Sequence[str], *, trouble: Trouble | None = None, accept_cost: bool = False
) -> SuppressionRunResult:
    """Suppress the values that differ within groups of at least k people (formulation 2).

    Every message is encoded as bytes.

    Parameters
    ----------
    people : People
        Records of the people. Their policy must not disguise any variable.
    k : int
        Smallest size of a group.
    quasi : sequence of str
        Quasi-identifiers.
    trouble : Trouble, optional
        Shares of the people who never send their row, and of those who send a row without a valid proof. The
        latter are named in the result.
    accept_cost : bool, optional
        Allow more than 300 people.

    Returns
    -------
    SuppressionRunResult
        The table, the culprits and the costs.

    Raises
    ------
    InputError
        If there are too few people, or if a policy disguises them.
    QueryRefused
        If there are more than 300 people and `accept_cost` is False.
    """
    check_clear(people, k)
    labels = [list(map(str, people.policy.schema.decode(name, people.codes[name]))) for name in quasi]
    rows = list(zip(*labels, strict=True))
    compile_kernels()
    crowd = SuppressionRun(rows, k, attributes=quasi, accept_cost=accept_cost, trouble=trouble, alone=ALONE)
    done = crowd.run()
    names = list(crowd.terms.people)
    return SuppressionRunResult(
        len(people),
        k,
        tuple(quasi),
        done.rows,
        len(set(done.groups)),
        len(crowd.leaving),
        tuple(
            Culprit(name_of(names.index(name)), "its row has no valid proof") for name in crowd.miner.refused
        ),
        done.rows == _in_one_place([rows[place] for place in crowd.places], k),
        crowd.meter.cost(crowd.alone, crowd.places),
        done.guarantee,
    )


def _in_one_place(rows: Sequence[tuple[str, ...]], k: int) -> Shown:
    """Return the table that the algorithm makes from all clear rows."""
    table = np.array(rows)
    groups = partition_distances((table[:, None, :] != table[None, :, :]).sum(axis=2), k)
    shown: list[tuple[str | None, ...]] = []
    for row, group in zip(rows, groups, strict=True):
        alike = (table[groups == group] == np.array(row)).all(axis=0)
        shown.append(tuple(value if same else None for value, same in zip(row, alike, strict=True)))
    return tuple(shown)
