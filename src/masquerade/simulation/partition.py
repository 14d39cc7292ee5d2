"""Formulation 2: people who star what sets them apart, by a distributed form of Meyerson & Williams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np

from masquerade.anonymity.distance_cover import partition_distances
from masquerade.core.errors import InputError
from masquerade.core.guarantee import Guarantee
from masquerade.crypto.secp256k1 import secp256k1
from masquerade.protocols.mix.messages import SUBMISSION, Signed
from masquerade.protocols.partition import Person, Population, partition_guarantee
from masquerade.protocols.partition.driver import HOLDERS, MINER, PEOPLE, SERVER
from masquerade.simulation.costs import Cost, Meter
from masquerade.simulation.misbehaviour import Trouble
from masquerade.simulation.outcome import Caught, name_of
from masquerade.simulation.people import People, check_enough
from masquerade.simulation.threshold_production import compile_kernels

ALONE = 2  # people who check all boards themselves, to see what a device takes
POINT = secp256k1.point_size
Shown = tuple[tuple[str | None, ...], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Suppression:
    """What came out: the table, None where a value is suppressed, for the people who were compared.

    `as_expected` tells that the table is the one that the same algorithm makes of the clear rows.
    """

    n: int
    k: int
    quasi: tuple[str, ...]
    rows: Shown
    groups: int
    left: int
    faults: tuple[Caught, ...]
    as_expected: bool
    cost: Cost
    guarantee: Guarantee

    @property
    def suppressed(self) -> int:
        """Return how many cells are suppressed."""
        return sum(value is None for row in self.rows for value in row)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "formulation": 2,
            "n": self.n,
            "k": self.k,
            "quasi_identifiers": list(self.quasi),
            "compared": len(self.rows),
            "groups": self.groups,
            "cells": len(self.rows) * len(self.quasi),
            "suppressed": self.suppressed,
            "left": self.left,
            "faults": [asdict(one) for one in self.faults],
            "as_expected": self.as_expected,
            "cost": self.cost.to_dict(),
            "guarantee": self.guarantee.to_dict(),
        }


class Metered:
    """A person whose time and bytes are taken."""

    def __init__(self, person: Person, place: int, meter: Meter) -> None:
        self.person, self.place, self._meter = person, place, meter

    def __getattr__(self, name: str) -> Any:
        """Return a method of the person, on the clock."""
        method = getattr(self.person, name)

        def timed(*given: Any) -> Any:
            with self._meter.user(self.place):
                result = method(*given)
            self._meter.received[self.place] += sum(map(size, given))
            self._meter.sent[self.place] += size(result)
            return result

        return timed


def size(message: Any) -> int:
    """Return the bytes of a message, or of several; what is none has no size."""
    if isinstance(message, bytes):
        return len(message)
    if isinstance(message, tuple):
        return sum(map(size, message))
    return 0


class Crowd(Population):
    """A population in which some never send their row, and some send one that they cannot prove."""

    def __init__(
        self,
        rows: Sequence[Sequence[str]],
        k: int,
        attributes: Sequence[str],
        trouble: Trouble,
        *,
        accept_cost: bool,
    ) -> None:
        super().__init__(rows, k, partition_distances, attributes=attributes, accept_cost=accept_cost)
        self.leaving, self.cheating = trouble.among(len(rows))
        self.meter = Meter(len(rows))
        honest = [place for place in range(len(rows)) if place not in self.leaving | self.cheating]
        self.alone = honest[:ALONE]
        for place in self.alone:
            name = self.people[place].name
            self.people[place] = Person(name, self.identities[name], self.terms, rows[place])
        self.compared_places: list[int] = []
        self._crowd = [Metered(person, place, self.meter) for place, person in enumerate(self.people)]

    def batch(self, keys: bytes) -> bytes:
        """Return the board of encrypted rows; whoever is not on it takes no further part."""
        sent = []
        with self.costs.of(PEOPLE):
            for one in self._crowd:
                if one.place not in self.leaving:
                    submission = one.submit(keys)
                    cheats = one.place in self.cheating
                    sent.append(self.spoilt(one.person.name, submission) if cheats else submission)
        with self.costs.of(MINER):
            board = self.miner.batch(sent)
        self.costs.sent(PEOPLE, *sent)
        self.costs.sent(MINER, board)
        refused = set(self.miner.refused)
        staying = [
            one for one in self._crowd if one.place not in self.leaving and one.person.name not in refused
        ]
        self.compared_places = [one.place for one in staying]
        self.people = cast("list[Person]", staying)
        return board

    def spoilt(self, name: str, submission: bytes) -> bytes:
        """Return a submission whose first ciphertext is not the one it is proved for, signed all the same."""
        payload = Signed.decode(submission).payload
        other = secp256k1.decode(payload[:POINT]) + secp256k1.generator
        changed = other.encode() + payload[POINT:]
        identity = self.identities[name]
        return Signed.make(self.terms.mix, identity, kind=SUBMISSION, sender=name, payload=changed).encode()


def suppression(
    people: People, k: int, quasi: Sequence[str], *, trouble: Trouble | None = None, accept_cost: bool = False
) -> Suppression:
    """Star the values that differ within groups of at least k people (formulation 2), all messages as bytes.

    People who leave never send their row; people who cheat send one that they cannot prove to know, and are
    named. Whoever leaves later stops it. More than 300 people are refused unless the cost is accepted.
    """
    if people.policy.disguised:
        raise InputError("Rows are k-anonymised as they are: the policy must not disguise any variable.")
    check_enough(len(people), k)
    labels = [list(map(str, people.policy.schema.decode(name, people.codes[name]))) for name in quasi]
    rows = list(zip(*labels, strict=True))
    compile_kernels()
    crowd = Crowd(rows, k, quasi, trouble or Trouble(), accept_cost=accept_cost)
    done = crowd.run()
    crowd.meter.roles.update({role: crowd.costs.roles[role].seconds for role in (HOLDERS, MINER, SERVER)})
    names = list(crowd.terms.people)
    places = crowd.compared_places
    return Suppression(
        len(people),
        k,
        tuple(quasi),
        done.rows,
        len(set(done.groups)),
        len(crowd.leaving),
        tuple(
            Caught(name_of(names.index(name)), "its row is not proved to be its own")
            for name in crowd.miner.refused
        ),
        done.rows == in_one_place([rows[place] for place in places], k),
        crowd.meter.cost(crowd.alone, places, 1),
        partition_guarantee(crowd.terms),
    )


def in_one_place(rows: Sequence[tuple[str, ...]], k: int) -> Shown:
    """Return the table that the algorithm makes where all rows are seen."""
    table = np.array(rows)
    groups = partition_distances((table[:, None, :] != table[None, :, :]).sum(axis=2), k)
    shown: list[tuple[str | None, ...]] = []
    for row, group in zip(rows, groups, strict=True):
        alike = (table[groups == group] == np.array(row)).all(axis=0)
        shown.append(tuple(value if same else None for value, same in zip(row, alike, strict=True)))
    return tuple(shown)
