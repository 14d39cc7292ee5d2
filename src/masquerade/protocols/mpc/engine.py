"""The seam between what is computed in secret and how: shares of numbers, and the few things done with them.

A program is written once and run by every party on its own shares. Whenever parties have to tell each other
something it yields a `Round`, what this party shows (always under a mask, but for what is opened on purpose),
and is sent a `Reply`, what everybody showed. So the same program runs in one process (`run`) and between
services, one message a round, and `Driver` counts what it takes; an engine that has its own network never
yields, and counts itself (`cost`).

Numbers are integers modulo 2^64, negative ones from the top down. A `Secret` is whatever an engine keeps of
one: programs only hand it on, and add, subtract and index it as they would an array.
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError, RoundAborted
from masquerade.crypto.errors import DecodingError

Integers = NDArray[np.int64]
Words = NDArray[np.unsignedinteger[Any]]
NONCE = 4  # words that a party brings to a common seed
S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True)
class Deal:
    """Randomness that a round needs from the helper: its number in the session, its kind, its sizes.

    A number is dealt for once; all parties ask for the same.
    """

    number: int
    kind: str
    sizes: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Round:
    """What a party shows in a round, and what it needs to go on."""

    words: Words
    deal: Deal | None = None


@dataclass(frozen=True, eq=False)
class Reply:
    """What all parties showed, in their order, and what the helper dealt to this one."""

    shown: tuple[Words, ...]
    dealt: bytes = b""


Steps = Generator[Round, Reply, T]


def common_seed() -> Steps[bytes]:
    """Return bytes that nobody knew before this round, made of what every party drew; for carried rounds."""
    reply = yield Round(np.frombuffer(os.urandom(8 * NONCE), dtype=np.uint64).copy())
    if any(words.shape != (NONCE,) or words.dtype != np.uint64 for words in reply.shown):
        raise DecodingError("A party showed another number of numbers than the step has.")
    return hashlib.sha256(b"".join(words.astype("<u8").tobytes() for words in reply.shown)).digest()


@dataclass
class Cost:
    """What a computation took: rounds, bytes between parties, bytes from the helper."""

    rounds: int = 0
    sent: int = 0
    dealt: int = 0


class SecretEngine(ABC, Generic[S]):
    """Computes on secrets for one party; every party has its own, and calls the same in the same order."""

    name: str
    parties: tuple[str, ...]

    @abstractmethod
    def constant(self, values: Integers) -> S:
        """Return a secret that everybody knows."""

    @abstractmethod
    def share(self, owner: str, values: Integers | None, shape: tuple[int, ...]) -> Steps[S]:
        """Return a secret that one party knows; the others give no values."""

    @abstractmethod
    def indicators(self, owner: str, lines: NDArray[np.uint8] | None, shape: tuple[int, int]) -> Any:
        """Return a handle of 0/1 lines (lines × records) that one party knows, for `counts`."""

    @abstractmethod
    def counts(self, pairs: Sequence[tuple[Any, Any]]) -> Steps[list[S]]:
        """Return, for pairs of handles, how many records are in each line of the one and of the other."""

    @abstractmethod
    def crossed(self, pairs: Sequence[tuple[Any, Any]]) -> Steps[list[Any]]:
        """Return, for pairs of handles, the handle of their lines' products, the first varying slowest."""

    @abstractmethod
    def linear(self, matrix: Integers, secret: S) -> S:
        """Return a public matrix times a secret vector, or each column of a secret matrix."""

    @abstractmethod
    def product(self, first: S, second: S) -> Steps[S]:
        """Return products, number by number."""

    @abstractmethod
    def inner(self, first: S, second: S) -> Steps[S]:
        """Return the matrix product of the first, transposed, and the second."""

    @abstractmethod
    def lookup(self, secret: S, tables: Integers, which: Integers) -> Steps[S]:
        """Return entries of public tables at secret places, each of the table that `which` names."""

    @abstractmethod
    def less(self, first: S, second: S, *, bits: int = 62) -> Steps[S]:
        """Return 1 where the first is less than the second, else 0; differences have at most `bits` bits."""

    @abstractmethod
    def open(self, secret: S, bits: Sequence[int] | None = None) -> Steps[Integers]:
        """Return the numbers themselves, to everybody.

        `bits` says how many bits each of a vector has, all of them not negative: then no more is shown, even
        to a party that has added something to what the others take for one of these.
        """

    @abstractmethod
    def stack(self, secrets: Sequence[S]) -> S:
        """Return secret vectors one after another as one vector."""

    def select(self, bit: S, first: S, second: S) -> Steps[S]:
        """Return the first where a secret bit is 1, else the second."""
        product = yield from self.product(bit, first - second)  # type: ignore[operator]
        return second + product  # type: ignore[no-any-return, operator]

    def largest(self, rows: S, shape: tuple[int, int], *, bits: int = 62) -> Steps[tuple[S, S]]:
        """Return every row's largest number and where it stands (the first of equal ones), both secret."""
        lines, width = shape
        values: Any = rows
        places: Any = self.constant(np.tile(np.arange(width, dtype=np.int64), lines))
        while width > 1:
            at = np.arange(lines * width).reshape(lines, width)
            even, odd = at[:, 0 : width - width % 2 : 2].ravel(), at[:, 1::2].ravel()
            rest = at[:, width - width % 2 :].ravel()
            later: Any = yield from self.less(values[even], values[odd], bits=bits)
            both: Any = yield from self.select(
                self.stack([later, later]),
                self.stack([values[odd], places[odd]]),
                self.stack([values[even], places[even]]),
            )
            width = width // 2 + width % 2
            half = len(even)
            new = np.arange(half).reshape(lines, -1)
            if len(rest):
                new = np.hstack([new, half + np.arange(lines)[:, None]])
            values = self.stack([both[np.arange(half)], values[rest]])
            places = self.stack([both[half + np.arange(half)], places[rest]])
            values, places = values[new.ravel()], places[new.ravel()]
        return values, places


def at_once(value: T) -> Steps[T]:
    """Return a value as a program that shows nothing: of an engine that has its own network."""
    yield from ()
    return value


def finished(steps: Steps[T]) -> T:
    """Run a program to its end whose engine has its own network."""
    try:
        next(steps)
    except StopIteration as end:
        found: T = end.value
        return found
    raise InputError("This engine has no network of its own: its rounds have to be carried.")


class Helper(Protocol):
    """Deals randomness that parties compute with; it is shown nothing."""

    def deal(self, deal: Deal) -> Mapping[str, bytes]:
        """Return what every party gets."""


@dataclass
class Driver:
    """Carries a computation from round to round, and counts what it takes."""

    parties: tuple[str, ...]
    cost: Cost = field(default_factory=Cost)

    def deal_of(self, rounds: Sequence[Round]) -> Deal | None:
        """Return what this round needs from the helper; parties that need different things have diverged."""
        if len({one.deal for one in rounds}) != 1:
            raise RoundAborted("The parties are not at the same step.", spent=True)
        self.cost.rounds += 1
        self.cost.sent += sum(one.words.nbytes for one in rounds) * (len(self.parties) - 1)
        return rounds[0].deal


def run(programs: Mapping[str, Steps[T]], helper: Helper | None = None, cost: Cost | None = None) -> T:
    """Run every party's program in this process, step by step, and return what the first of them found.

    All come to an end at the same step, or none does.
    """
    return next(iter(run_each(programs, helper, cost).values()))


def run_each(
    programs: Mapping[str, Steps[T]], helper: Helper | None = None, cost: Cost | None = None
) -> dict[str, T]:
    """Run every party's program in this process, step by step, and return what each of them found."""
    driver = Driver(tuple(programs), Cost() if cost is None else cost)
    waiting: dict[str, Round] = {}
    found: dict[str, T] = {}
    replies: dict[str, Reply | None] = dict.fromkeys(programs)
    while True:
        for name, program in programs.items():
            reply = replies[name]
            try:
                waiting[name] = next(program) if reply is None else program.send(reply)
            except StopIteration as end:
                found[name] = end.value
        if found:
            break
        rounds = list(waiting.values())
        deal = driver.deal_of(rounds)
        if deal is not None and helper is None:
            raise InputError("This computation needs a helper.")
        dealt = helper.deal(deal) if helper is not None and deal is not None else {}
        driver.cost.dealt += sum(map(len, dealt.values()))
        shown = tuple(one.words for one in rounds)
        replies = {name: Reply(shown, dealt.get(name, b"")) for name in programs}
    if len(found) < len(programs):
        raise RoundAborted("The parties are not at the same step.", spent=True)
    return found
