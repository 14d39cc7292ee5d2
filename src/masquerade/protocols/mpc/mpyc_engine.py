"""MPC engine of three or more computing parties without a dealer: Shamir shares, by MPyC and its network.

It needs the extra ``masquerade[mpyc]``. Fewer than half of the parties may collude; two parties would have no
privacy at all and are refused. All parties are assumed to follow the program. It sends about thirty times as
much as `dealer_engine`. Use it if there is no trusted dealer, or as a second implementation.

Numbers are integers of at most 62 bits, so that no sum wraps around.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError
from masquerade.protocols.mpc.engine import Cost, Integers, SecretEngine, Steps, at_once

BITS = 64
LEAST_PARTIES = 3
AT_ONCE = 1 << 16  # numbers of unit vectors formed in one batch


@dataclass(eq=False)
class Lines:
    """0/1 lines that a party knows, or products of other lines; shared when they are first needed."""

    shape: tuple[int, int]
    owner: int
    words: NDArray[np.uint8] | None
    shared: Any = None


class _Clock:
    """Counts sequential rounds, although MPyC sends many messages concurrently.

    Every message has a label, and all parties use the same labels. When this party first sends or requests a
    message with a label, the label gets a round: the one after the last round from which this party has read
    a message. So messages of one round could have been sent together, and the number of rounds is the length
    of the longest chain of messages that this party had to wait for.
    """

    def __init__(self) -> None:
        self.rounds = 0
        self._label, self._round = 0, 0

    def round_of(self, label: int) -> int:
        """Return the round of a label; a party finishes one label before it starts the next."""
        if label != self._label or not self._round:
            self._label, self._round = label, self.rounds + 1
        return self._round

    def read(self, number: int) -> None:
        """Record that a message of a round was read."""
        self.rounds = max(self.rounds, number)


class _Watched:
    """A connection of MPyC to a peer whose messages a clock observes; it adds no messages."""

    def __init__(self, connection: Any, clock: _Clock, loop: Any) -> None:
        self._connection, self._clock, self._loop = connection, clock, loop

    def send(self, label: int, payload: bytes) -> None:
        """Send a message."""
        self._clock.round_of(label)
        self._connection.send(label, payload)

    def receive(self, label: int) -> Any:
        """Return a message, or a future that yields it."""
        number = self._clock.round_of(label)
        found = self._connection.receive(label)
        if isinstance(found, Future):
            found.add_done_callback(lambda _: self._clock.read(number))
        else:  # arrived already: it counts as read when the caller continues
            self._loop.call_soon(self._clock.read, number)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


class MpycEngine(SecretEngine[Any]):
    """The engine of one party. `runtime` is a started MPyC runtime; `parties` are names in its order."""

    def __init__(self, runtime: Any, parties: Sequence[str]) -> None:
        if len(parties) < LEAST_PARTIES:
            raise InputError(
                f"Without a helper, shares need at least {LEAST_PARTIES} parties: with fewer, a single party "
                "could see everything. Use the engine with a dealer instead."
            )
        if len(runtime.parties) != len(parties):
            raise InputError(f"MPyC runs {len(runtime.parties)} parties, but {len(parties)} names are given.")
        self._mpc, self.parties = runtime, tuple(parties)
        self.name = self.parties[runtime.pid]
        self._numbers = runtime.SecInt(BITS)
        self._clock = _Clock()
        for peer in runtime.parties:
            if peer.pid != runtime.pid:
                peer.protocol = _Watched(peer.protocol, self._clock, runtime._loop)  # noqa: SLF001
        self._before = self._send()

    @property
    def cost(self) -> Cost:
        """Return the number of rounds so far, and the bytes sent by this party, headers included."""
        return Cost(rounds=self._clock.rounds, sent=self._send() - self._before)

    def _send(self) -> int:
        return sum(int(getattr(peer.protocol, "nbytes_sent", 0)) for peer in self._mpc.parties)

    def constant(self, values: Integers) -> Any:
        """Return public values as a secret."""
        return self._numbers.array(np.asarray(values, dtype=np.int64).astype(object))

    def share(self, owner: str, values: Integers | None, shape: tuple[int, ...]) -> Steps[Any]:
        """Return an owner's numbers, shared among all."""
        if (values is not None) != (owner == self.name):
            raise InputError("The owner, and no other party, gives the numbers to be shared.")
        given = np.zeros(shape, dtype=np.int64) if values is None else np.asarray(values).reshape(shape)
        return at_once(self._mpc.input(self.constant(given), senders=self.parties.index(owner)))

    def indicators(self, owner: str, lines: NDArray[np.uint8] | None, shape: tuple[int, int]) -> Lines:
        """Return a handle; the lines are shared when they are first counted with another owner's."""
        if (lines is not None) != (owner == self.name) or (lines is not None and lines.shape != shape):
            raise InputError("The owner, and no other party, gives the indicators, in the agreed shape.")
        return Lines(shape, self.parties.index(owner), lines)

    def counts(self, pairs: Sequence[tuple[Lines, Lines]]) -> Steps[list[Any]]:
        """Multiply lines of different owners and sum over records."""
        return at_once([self._of(left) @ self._of(right).T for left, right in pairs])

    def cross(self, pairs: Sequence[tuple[Lines, Lines]]) -> Steps[list[Lines]]:
        """Multiply lines of different owners record by record."""
        found = []
        for left, right in pairs:
            n = left.shape[1]
            rows = np.repeat(np.arange(left.shape[0]), right.shape[0])
            columns = np.tile(np.arange(right.shape[0]), left.shape[0])
            product = self._of(left)[rows] * self._of(right)[columns]
            found.append(Lines((len(rows), n), -1, None, product))
        return at_once(found)

    def linear(self, matrix: Integers, secret: Any) -> Any:
        """Return a public matrix times a secret vector, or each column of a secret matrix."""
        public = np.asarray(matrix, dtype=np.int64).astype(object)
        return secret @ public.T if len(secret.shape) == 1 else (secret.T @ public.T).T

    def product(self, first: Any, second: Any) -> Steps[Any]:
        """Multiply elementwise."""
        return at_once(first * second)

    def inner(self, first: Any, second: Any) -> Steps[Any]:
        """Multiply two matrices (records × lines)."""
        return at_once(first.T @ second)

    def lookup(self, secret: Any, tables: Integers, which: Integers) -> Steps[Any]:
        """Look up secret indices by unit vectors, which are computed from the bits of the indices."""
        places, length = secret.reshape(-1), tables.shape[1]
        bits = max(int(length - 1).bit_length(), 1)
        whole = np.zeros((len(tables), 1 << bits), dtype=np.int64)
        whole[:, :length] = tables
        found = []
        step = max(AT_ONCE >> bits, 1)
        for start in range(0, places.shape[0], step):
            some = np.arange(start, min(start + step, places.shape[0]))
            digits = self._mpc.np_to_bits(places[some], bits)
            units = self.constant(np.ones((len(some), 1), dtype=np.int64))
            for place in range(bits):  # the lowest first: later ones vary slowest
                bit = digits[:, place].reshape(len(some), 1)
                high = units * bit
                units = self._mpc.np_concatenate((units - high, high), axis=1)
            rows = whole[np.asarray(which)[some]].astype(object)
            found.append(self._mpc.np_sum(units * self._numbers.array(rows), axis=1))
        return at_once(self.stack(found).reshape(secret.shape))

    def less(self, first: Any, second: Any, *, bits: int = 62) -> Steps[Any]:
        """Compare elementwise."""
        if bits > BITS - 2:
            raise InputError(f"Differences of {bits} bits are more than {BITS - 2}.")
        return at_once(first < second)

    def open(self, secret: Any, bits: Sequence[int] | None = None) -> Steps[Integers]:  # noqa: ARG002
        """Open the numbers: return them to all parties, with all of their bits, whatever `bits` states."""
        found = self._mpc.run(self._mpc.output(secret))
        numbers = np.array([int(value) for value in np.ravel(found)], dtype=np.int64)
        return at_once(numbers.reshape(secret.shape))

    def wait_for_all(self) -> Steps[None]:
        """Exchange an empty message with every party."""
        self._mpc.run(self._mpc.transfer(b""))
        return at_once(None)

    def stack(self, secrets: Sequence[Any]) -> Any:
        """Return the concatenation of secrets."""
        flat = [secret.reshape(-1) for secret in secrets if np.prod(secret.shape)]
        return self._mpc.np_concatenate(tuple(flat)) if len(flat) > 1 else flat[0]

    def _of(self, lines: Lines) -> Any:
        if lines.shared is None:
            given = np.zeros(lines.shape, dtype=np.uint8) if lines.words is None else lines.words
            lines.shared = self._mpc.input(self.constant(given.astype(np.int64)), senders=lines.owner)
        return lines.shared
