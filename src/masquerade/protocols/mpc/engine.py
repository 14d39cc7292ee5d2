"""Interface of MPC engines: shares of numbers, and the operations on them.

A program is written once, and every party runs it on its own shares. To exchange numbers, it yields an
`EngineRound` with the numbers that this party shows (masked, unless they are opened on purpose), and receives
a `Reply` with those of all parties. So the same program runs in one process (`run`) and between services,
with one message per round, and `Driver` counts the cost. An engine with its own network never yields, and
counts its cost itself (`cost`).

Numbers are integers modulo 2^64, in two's complement. A `Secret` is an engine's handle of a number: programs
pass it on, and add, subtract and index it like an array.
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError, RoundAborted
from masquerade.crypto.errors import DecodingError

Integers = NDArray[np.int64]
Words = NDArray[np.unsignedinteger[Any]]
NONCE = 4  # words that each party contributes to a common seed
S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True)
class Deal:
    """Request for randomness from the helper: its number in the session, its type, its sizes.

    A number is used once; all parties request the same deal.
    """

    number: int
    kind: str
    sizes: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class EngineRound:
    """The numbers that a party shows in a round, and the deal that it needs next."""

    words: Words
    deal: Deal | None = None


@dataclass(frozen=True, eq=False)
class Reply:
    """The numbers of all parties, in their order, and the helper's deal to this party."""

    shown: tuple[Words, ...]
    dealt: bytes = b""


Steps = Generator[EngineRound, Reply, T]


def common_seed() -> Steps[bytes]:
    """Return bytes that no party could predict, derived from numbers that every party drew in this round."""
    reply = yield EngineRound(np.frombuffer(os.urandom(8 * NONCE), dtype=np.uint64).copy())
    if any(words.shape != (NONCE,) or words.dtype != np.uint64 for words in reply.shown):
        raise DecodingError("A party sent the wrong number of values for this step.")
    return hashlib.sha256(b"".join(words.astype("<u8").tobytes() for words in reply.shown)).digest()


@dataclass
class Cost:
    """Cost of a computation: rounds, bytes between parties, bytes from the helper."""

    rounds: int = 0
    sent: int = 0
    dealt: int = 0


class SecretEngine(ABC, Generic[S]):
    """Computes on secrets for one party; all parties call the same methods in the same order."""

    name: str
    parties: tuple[str, ...]

    @abstractmethod
    def constant(self, values: Integers) -> S:
        """Return a secret with a public value."""

    @abstractmethod
    def share(self, owner: str, values: Integers | None, shape: tuple[int, ...]) -> Steps[S]:
        """Return a secret from one party's values; the other parties pass None."""

    @abstractmethod
    def indicators(self, owner: str, lines: NDArray[np.uint8] | None, shape: tuple[int, int]) -> Any:
        """Return a handle of 0/1 lines (lines × records) that one party knows, for `counts`."""

    @abstractmethod
    def counts(self, pairs: Sequence[tuple[Any, Any]]) -> Steps[list[S]]:
        """Return, for pairs of handles, the number of records in each pair of their lines."""

    @abstractmethod
    def cross(self, pairs: Sequence[tuple[Any, Any]]) -> Steps[list[Any]]:
        """Return, for pairs of handles, a handle of the products of lines, the first varying slowest."""

    @abstractmethod
    def linear(self, matrix: Integers, secret: S) -> S:
        """Return a public matrix times a secret vector, or each column of a secret matrix."""

    @abstractmethod
    def product(self, first: S, second: S) -> Steps[S]:
        """Return elementwise products."""

    @abstractmethod
    def inner(self, first: S, second: S) -> Steps[S]:
        """Return the matrix product of the first, transposed, and the second."""

    @abstractmethod
    def lookup(self, secret: S, tables: Integers, which: Integers) -> Steps[S]:
        """Return entries of public tables at secret indices, each from the table given by `which`."""

    @abstractmethod
    def less(self, first: S, second: S, *, bits: int = 62) -> Steps[S]:
        """Return 1 where the first is less than the second, else 0; differences have at most `bits` bits."""

    @abstractmethod
    def open(self, secret: S, bits: Sequence[int] | None = None) -> Steps[Integers]:
        """Open the numbers: return them to all parties.

        `bits` states the number of bits of each entry of a vector without negative entries. Then no more bits
        are shown, even to a party that changed its share.
        """

    @abstractmethod
    def wait_for_all(self) -> Steps[None]:
        """Wait until every party has reached this step, including parties without a share."""

    @abstractmethod
    def stack(self, secrets: Sequence[S]) -> S:
        """Return the concatenation of secret vectors."""

    def select(self, bit: S, first: S, second: S) -> Steps[S]:
        """Return the first where a secret bit is 1, else the second."""
        product = yield from self.product(bit, first - second)  # type: ignore[operator]
        return second + product  # type: ignore[no-any-return, operator]

    def largest(self, rows: S, shape: tuple[int, int], *, bits: int = 62) -> Steps[tuple[S, S]]:
        """Return every row's largest number and its position (the first of equal numbers), both secret."""
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


def agree_to_open(engine: SecretEngine[Any], check: Callable[[], object]) -> Steps[None]:
    """Call `check`, which may raise, and wait until the checks of all parties have passed.

    Two parties have all shares. Without the wait they would show them in the round in which a third party
    refuses, and the refusal would be too late.
    """
    check()
    yield from engine.wait_for_all()


def at_once(value: T) -> Steps[T]:
    """Return a value as a program without rounds, for an engine with its own network."""
    yield from ()
    return value


def run_alone(steps: Steps[T]) -> T:
    """Run a program whose engine has its own network, to the end."""
    try:
        next(steps)
    except StopIteration as end:
        found: T = end.value
        return found
    raise InputError("This engine has no network: its rounds must be relayed.")


class Helper(Protocol):
    """Interface of the helper (trusted dealer): it deals randomness and sees no share."""

    def deal(self, deal: Deal) -> Mapping[str, bytes]:
        """Return every party's part of the deal."""


@dataclass
class Driver:
    """Relays the rounds of a computation, and counts their cost."""

    parties: tuple[str, ...]
    cost: Cost = field(default_factory=Cost)

    def deal_of(self, rounds: Sequence[EngineRound]) -> Deal | None:
        """Return the deal that all parties need in this round; raise an error if they differ."""
        if len({one.deal for one in rounds}) != 1:
            raise RoundAborted("The parties are not at the same step.", spent=True)
        self.cost.rounds += 1
        self.cost.sent += sum(one.words.nbytes for one in rounds) * (len(self.parties) - 1)
        return rounds[0].deal


def run(programs: Mapping[str, Steps[T]], helper: Helper | None = None, cost: Cost | None = None) -> T:
    """Run every party's program in this process, step by step, and return the result of the first.

    All programs must end at the same step.
    """
    return next(iter(run_each(programs, helper, cost).values()))


def run_each(
    programs: Mapping[str, Steps[T]], helper: Helper | None = None, cost: Cost | None = None
) -> dict[str, T]:
    """Run every party's program in this process, step by step, and return the result of each."""
    driver = Driver(tuple(programs), Cost() if cost is None else cost)
    waiting: dict[str, EngineRound] = {}
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
