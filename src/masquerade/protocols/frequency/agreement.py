"""What everybody agrees on before anything is counted, and the questions that may then be asked."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from masquerade.channels.policy import Policy
from masquerade.channels.privacy import guarantee_of
from masquerade.core.errors import InputError
from masquerade.crypto.errors import DecodingError
from masquerade.crypto.keys import decode_identity
from masquerade.protocols.codec import Reader, Writer

MOST_PROOFS = 50_000  # users times counts: every user checks that many pairs of keys
LONGEST_NAME = 128
LONGEST_EPOCH = 4096
IDENTITY = 32
TAG = "masquerade frequency terms 1"
FEWEST = 3  # with two, each learns the other's answer from the count

Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Terms:
    """The terms of one epoch: who is enrolled, how records are disguised, how few may be counted together.

    `members` are the names of all people enrolled with their Ed25519 identities; that each is one person is
    an assumption of everything that follows. Within an epoch a record does not change and no question is
    voted on twice. A person who is given new terms, with a new `epoch`, agrees to be counted anew; not that
    clear counts of the two epochs differ by few people, which takes a word of its own (`User`).

    The miner chooses who is counted, at least `minimum` people: so that two honest ones are among any of
    them, at most `colluders` = minimum − 2 may collude with it.
    """

    epoch: str
    policy: Policy
    members: Mapping[str, bytes]
    minimum: int = 10

    def __post_init__(self) -> None:
        ordered = dict(sorted(self.members.items()))
        for name, identity in ordered.items():
            if not 1 <= len(name.encode()) <= LONGEST_NAME:
                raise InputError(f"A member's name must have from 1 to {LONGEST_NAME} bytes.")
            decode_identity(identity)
        if len(set(ordered.values())) < len(ordered):
            raise InputError("Two members share an identity: each person has one of their own.")
        if len(ordered) > MOST_PROOFS:
            raise InputError(
                f"At most {MOST_PROOFS:,} members can be counted in this mode. Got {len(ordered):,}."
            )
        if not self.epoch or self.minimum < FEWEST:
            raise InputError(f"Terms need an epoch and a minimum roster of at least {FEWEST}.")
        object.__setattr__(self, "members", ordered)

    @cached_property
    def id(self) -> bytes:
        """Return 32 bytes that stand for all of the terms; every signature and proof is bound to them."""
        return hashlib.sha256(self.encoded).digest()

    @cached_property
    def encoded(self) -> bytes:
        """Return all of the terms as bytes, the policy by its id."""
        writer = Writer()
        writer.text(TAG, 255)
        writer.text(self.epoch, LONGEST_EPOCH)
        writer.text(self.policy.id, 255)
        writer.number(self.minimum, 4)

        def member(pair: tuple[str, bytes]) -> None:
            writer.text(pair[0], LONGEST_NAME)
            writer.fixed(pair[1], IDENTITY)

        writer.many(self.members.items(), MOST_PROOFS, member)
        return writer.done()

    @property
    def colluders(self) -> int:
        """Return how many users may collude with the miner."""
        return tolerated(self.minimum)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Return the members in order."""
        return tuple(self.members)

    @cached_property
    def places(self) -> dict[str, int]:
        """Return the place of every member in that order."""
        return {name: place for place, name in enumerate(self.names)}

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Return how many reports each variable has."""
        observed = self.policy.observed
        return dict(zip(observed, observed.shape(observed), strict=True))

    @cached_property
    def bounded(self) -> frozenset[str]:
        """Return the variables whose reports tell a bounded amount, even if seen as they are."""
        seen = guarantee_of(self.policy).disclosures
        return frozenset(name for item in seen if item.gamma is not None for name in item.variables)


def tolerated(minimum: int) -> int:
    """Return how many may collude so that two of any `minimum` users are honest."""
    return minimum - 2


class Enrolled(NamedTuple):
    """What a person keeps of terms agreed to before: the identities are in the order of the names."""

    epoch: str
    minimum: int
    identities: tuple[bytes, ...]

    @classmethod
    def decode(cls, data: bytes) -> Enrolled:
        """Read what `Terms.encoded` wrote."""
        reader = Reader(data)
        if reader.text(255) != TAG:
            raise DecodingError("These are no terms of frequency mining.")
        epoch, _, minimum = reader.text(LONGEST_EPOCH), reader.text(255), reader.number(4)

        def member() -> bytes:
            reader.text(LONGEST_NAME)
            return reader.fixed(IDENTITY)

        identities = reader.many(MOST_PROOFS, member)
        reader.done()
        return cls(epoch, minimum, identities)


@dataclass(frozen=True, slots=True)
class Question:
    """How many people's reports have each combination of `columns`, among those that meet `conditions`?

    Names stand in the order of the schema, conditions hold report codes. Whoever does not meet the conditions
    is counted in one cell more, so that every answer is one-hot; a single cell needs no such company.
    """

    columns: tuple[str, ...]
    conditions: tuple[tuple[str, int], ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Return every variable touched."""
        return (*self.columns, *[name for name, _ in self.conditions])

    @property
    def is_bit(self) -> bool:
        """Tell whether the answer is one bit, and not one of several cells."""
        return not self.columns and bool(self.conditions)

    def shape(self, terms: Terms) -> tuple[int, ...]:
        """Return the shape of the table."""
        return tuple(terms.sizes[name] for name in self.columns)

    def counts(self, terms: Terms) -> int:
        """Return how many frequencies are mined for this question."""
        return prod(self.shape(terms)) + (bool(self.conditions) and not self.is_bit)

    def bits(self, record: Mapping[str, int], terms: Terms) -> list[int]:
        """Return a person's answer: a bit for every frequency."""
        bits = [0] * self.counts(terms)
        if all(record[name] == code for name, code in self.conditions):
            cell = 0
            for name in self.columns:
                cell = cell * terms.sizes[name] + record[name]
            bits[cell] = 1
        elif not self.is_bit:
            bits[-1] = 1
        return bits

    def write(self, writer: Writer, terms: Terms) -> None:
        """Write the question by the places of its variables."""
        place = {name: at for at, name in enumerate(terms.sizes)}
        writer.many(self.columns, 255, lambda name: writer.number(place[name], 2))

        def condition(pair: tuple[str, int]) -> None:
            writer.number(place[pair[0]], 2)
            writer.number(pair[1], 4)

        writer.many(self.conditions, 255, condition)

    @classmethod
    def read(cls, reader: Reader, terms: Terms) -> Question:
        """Read a question; names out of order, unknown codes and tables beyond all bounds are refused."""
        names = tuple(terms.sizes)

        def name() -> str:
            place = reader.number(2)
            if place >= len(names):
                raise DecodingError("A question names a variable that the terms do not have.")
            return names[place]

        columns = reader.many(255, name)
        conditions = reader.many(255, lambda: (name(), reader.number(4)))
        for listed in (columns, tuple(variable for variable, _ in conditions)):
            if list(listed) != sorted(set(listed), key=names.index):
                raise DecodingError("A question lists its variables once and in the order of the schema.")
        if not {variable for variable, _ in conditions}.isdisjoint(columns):
            raise DecodingError("A question has a variable both as a column and as a condition.")
        if any(code >= terms.sizes[variable] for variable, code in conditions):
            raise DecodingError("A question has a condition on a report that does not exist.")
        question = cls(columns, conditions)
        if not question.names or question.counts(terms) > MOST_PROOFS:
            raise DecodingError("A question has no variables, or more cells than could ever be counted.")
        return question

    def id(self, terms: Terms) -> bytes:
        """Return 32 bytes that stand for this question under these terms."""
        writer = Writer()
        self.write(writer, terms)
        return hashlib.sha256(b"masquerade frequency question 1" + terms.id + writer.done()).digest()


def ordered(names: Sequence[str], terms: Terms) -> tuple[str, ...]:
    """Return variables once each, in the order of the schema."""
    wanted = set(names)
    return tuple(name for name in terms.sizes if name in wanted)


def implied(wanted: Question, known: Question) -> bool:
    """Tell whether the answer to one question follows from that to another."""
    inside = set(known.conditions)
    return (
        inside <= set(wanted.conditions)
        and set(wanted.columns) <= set(known.columns)
        and {name for name, _ in set(wanted.conditions) - inside} <= set(known.columns)
    )


def implied_counts(wanted: Question, known: Question, table: Counts) -> Counts:
    """Return the table of a question from that of a larger one: conditions picked, the rest summed out."""
    given = dict(wanted.conditions)
    index: tuple[int | slice, ...] = tuple(given.get(name, slice(None)) for name in known.columns)
    picked = np.asarray(table[index])
    left = [name for name in known.columns if name not in given]
    gone = tuple(axis for axis, name in enumerate(left) if name not in wanted.columns)
    return np.asarray(picked.sum(axis=gone))
