"""Verifying many proofs at once, and naming the ones that fail.

All equations of a batch are weighed by fresh random numbers of 128 bits and added up: in a group of prime
order the sum is the identity when all hold, and otherwise with probability at most 2⁻¹²⁸.
"""

from __future__ import annotations

import gc
import pickle
import secrets
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import NamedTuple, TypeVar

from masquerade.crypto.errors import DecodingError, ProofRejected
from masquerade.crypto.group import Point
from masquerade.crypto.proofs import Statement, Transcript, group_of, open_proof, verify

T = TypeVar("T")
Task = TypeVar("Task")
Result = TypeVar("Result")
_ALONE = 8  # as few as this are verified one by one
_MANY = 4096  # from here on, another process is worth its start
_WEIGHT = 16


class Claim(NamedTuple):
    """A proof with what it is said to show; the transcript is copied before it is used."""

    statement: Statement
    proof: bytes
    transcript: Transcript


def rejected(
    items: Iterable[T],
    claim_of: Callable[[T], Claim],
    *,
    batch: int = 25_000,
    workers: int = 2,
    each: int = 1,
) -> list[int]:
    """Return the positions of the items whose proof fails or whose claim does not decode, in order.

    `claim_of` turns an item, usually a received message, into a claim, which is about `each` counts or keys.
    Thousands of them are shared out among `workers` processes if both can be sent there (`spread`); `batch`
    of them, and so memory, are weighed at once. All proofs must be at hand before the call: the weights are
    drawn inside.
    """
    listed = list(items)
    workers = workers if len(listed) * each >= _MANY else 1
    rounds = -(-len(listed) // (max(batch // each, 1) * workers)) or 1
    size = -(-len(listed) // (rounds * workers)) or 1
    chunks = [listed[at : at + size] for at in range(0, len(listed), size)]
    found = spread(partial(_search, claim_of=claim_of, each=each), chunks, workers)
    return [number * size + index for number, indices in enumerate(found) for index in indices]


def _search(
    items: Sequence[T], claim_of: Callable[[T], Claim], each: int, among: Sequence[int] | None = None
) -> list[int]:
    """Return the indices that fail, among some or all, by halving what fails as a whole."""
    indices = range(len(items)) if among is None else among
    if len(indices) * each <= _ALONE:
        return [index for index in indices if not _holds(items[index], claim_of)]
    weighed, unreadable = Weighed(), []
    for index in indices:
        try:
            weighed.add(claim_of(items[index]))
        except DecodingError:
            unreadable.append(index)
    if weighed.holds():
        return unreadable
    read = sorted(set(indices).difference(unreadable))
    if len(read) == 1:
        return sorted([*unreadable, *read])
    half = len(read) // 2
    found = [_search(items, claim_of, each, part) for part in (read[:half], read[half:])]
    return sorted([*unreadable, *found[0], *found[1]])


def _holds(item: T, claim_of: Callable[[T], Claim]) -> bool:
    try:
        claim = claim_of(item)
        verify(claim.statement, claim.proof, claim.transcript.copy())
    except (DecodingError, ProofRejected):
        return False
    return True


def random_weights(n: int) -> list[int]:
    """Return fresh numbers of 128 bits, none zero, for weighing equations against each other."""
    drawn = secrets.token_bytes(_WEIGHT * n)
    return [int.from_bytes(drawn[at : at + _WEIGHT], "big") or 1 for at in range(0, len(drawn), _WEIGHT)]


class Weighed:
    """The running sum Σ weight·(A + c·image − c·shift·G − Σ s·base) over all equations of the claims added.

    Points are kept, not claims: a batch holds little. Commitments keep short weights, at half the cost.
    """

    def __init__(self) -> None:
        self._points: dict[bytes, Point] = {}  # by encoding: bases and keys come again and again
        self._scalars: dict[bytes, int] = {}
        self._commitments: list[Point] = []
        self._weights: list[int] = []

    def add(self, claim: Claim) -> None:
        """Take in a claim, or raise `DecodingError` and take in nothing of it."""
        group = group_of(claim.statement)
        opened = open_proof(claim.statement, claim.proof, claim.transcript.copy())
        commitments = [group.decode(encoding) for encoding in opened.commitments]
        weights = random_weights(len(commitments))
        scalars, points, generator, at = self._scalars, self._points, group.generator, 0
        for linear, c, s in zip(opened.branches, opened.challenges, opened.responses, strict=True):
            for image, terms, shift in linear.equations:
                weight = weights[at]
                weighed = [(image, weight * c), *[(base, -weight * s[k]) for k, base in terms]]
                if shift:
                    weighed.append((generator, -weight * c * shift))
                for point, scalar in weighed:
                    encoding = point.hashed
                    points[encoding] = point
                    scalars[encoding] = scalars.get(encoding, 0) + scalar
                at += 1
        self._commitments += commitments
        self._weights += weights

    def holds(self) -> bool:
        """Return whether the sum is the identity."""
        if not self._commitments:
            return True
        points = [*self._points.values(), *self._commitments]
        scalars = [*self._scalars.values(), *self._weights]
        return points[0].group.combine_public(points, scalars).is_identity


def spread(work: Callable[[Task], Result], tasks: Sequence[Task], workers: int) -> list[Result]:
    """Return work(task) for every task in order, done by at most `workers` processes.

    Both must be picklable: `work` is a function known by its name, or a partial of one. What no process can
    do, because it cannot start, ends early or is not sent such work, is done here.
    """
    workers = min(workers, len(tasks))
    if workers <= 1:
        return [work(task) for task in tasks]
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415  (devices check alone)

    results: dict[int, Result] = {}
    left, lock, stopped = iter(enumerate(tasks)), threading.Lock(), threading.Event()

    def following() -> tuple[int, Task] | None:
        with lock:
            return None if stopped.is_set() else next(left, None)

    def drive(_worker: int) -> None:
        with _helper() as ask:
            while (numbered := following()) is not None:
                number, task = numbered
                try:
                    results[number] = ask(work, task)
                except (OSError, EOFError, pickle.PickleError, AttributeError, TypeError):
                    results[number] = work(task)

    with ThreadPoolExecutor(workers) as pool:
        try:
            list(pool.map(drive, range(workers)))
        finally:
            stopped.set()  # after an interrupt, nobody waits for the rest
    return [results[number] for number in range(len(tasks))]


@contextmanager
def _helper() -> Iterator[Callable[[Callable[[Task], Result], Task], Result]]:
    """Start another process that does one task after the other; the pipes to it are nobody else's.

    It is this interpreter started anew, not a copy of the caller: it inherits no locks, and does not run the
    caller's script again. It ends with its input, and so with the caller. What is yielded returns what the
    process makes of a task, or raises `EOFError`, `OSError` or `PickleError` if it makes nothing.
    """
    begin = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import serve; serve()"
    import subprocess  # noqa: PLC0415  (devices check alone)

    process: subprocess.Popen[bytes] | None = None
    with suppress(OSError):
        process = subprocess.Popen(  # noqa: S603
            [sys.executable or "", "-c", begin],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # an interrupt from the keyboard is the caller's affair
        )

    def ask(work: Callable[[Task], Result], task: Task) -> Result:
        packed = pickle.dumps((work, task))
        if process is None or process.stdin is None or process.stdout is None:
            raise EOFError
        process.stdin.write(packed)
        process.stdin.flush()
        result: Result = pickle.load(process.stdout)  # noqa: S301
        return result

    try:
        yield ask
    except BaseException:
        if process is not None:
            process.kill()
        raise
    finally:
        if process is not None:
            try:
                process.communicate()
            except (OSError, ValueError):  # it ended before: its pipes are closed
                process.wait()


def serve() -> None:
    """Do what comes in until nothing more does: the whole life of a helper."""
    gc.disable()  # nothing here is cyclic, and there are millions of objects to look through
    incoming, outgoing = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr
    with suppress(EOFError):
        while True:
            work, task = pickle.load(incoming)  # noqa: S301
            outgoing.write(pickle.dumps(work(task)))
            outgoing.flush()
