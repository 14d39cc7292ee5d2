"""Batch verification of proofs, and identification of those that fail.

All equations of a batch are multiplied by fresh random 128-bit weights and added up. In a group of prime
order the sum is the identity if all equations hold. If one does not hold, the sum is the identity with
probability at most 2⁻¹²⁷, since weights are never 0.
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
_ALONE = 8  # up to this number, proofs are verified one by one
_MANY = 4096  # from this number on, it is worth starting further processes
_WEIGHT = 16


class ProofClaim(NamedTuple):
    """A proof with its claimed statement; the transcript is copied before use."""

    statement: Statement
    proof: bytes
    transcript: Transcript


def find_rejected(
    items: Iterable[T],
    claim_of: Callable[[T], ProofClaim],
    *,
    batch: int = 25_000,
    workers: int = 2,
    each: int = 1,
) -> list[int]:
    """Return the positions of items whose proof fails or whose claim does not decode, in order.

    Parameters
    ----------
    items : iterable
        Items, usually received messages. All must be available before the call, because the weights are drawn
        inside.
    claim_of : callable
        Converts an item into a claim.
    batch : int
        Number of statements (such as ballots or keys) verified together, which limits memory.
    workers : int
        Number of processes among which thousands of items are divided. Items that cannot be pickled are
        verified in this process (`spread`).
    each : int
        Number of statements (such as ballots or keys) in a claim.

    Returns
    -------
    list of int
        Positions of failures.
    """
    listed = list(items)
    workers = workers if len(listed) * each >= _MANY else 1
    rounds = -(-len(listed) // (max(batch // each, 1) * workers)) or 1
    size = -(-len(listed) // (rounds * workers)) or 1
    chunks = [listed[at : at + size] for at in range(0, len(listed), size)]
    failures = spread(partial(_search, claim_of=claim_of, each=each), chunks, workers)
    return [number * size + index for number, indices in enumerate(failures) for index in indices]


def _search(
    items: Sequence[T], claim_of: Callable[[T], ProofClaim], each: int, among: Sequence[int] | None = None
) -> list[int]:
    """Return the indices that fail, by recursively halving batches that fail."""
    indices = range(len(items)) if among is None else among
    if len(indices) * each <= _ALONE:
        return [index for index in indices if not _holds(items[index], claim_of)]
    weighed, unreadable = WeightedSum(), []
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


def _holds(item: T, claim_of: Callable[[T], ProofClaim]) -> bool:
    try:
        claim = claim_of(item)
        verify(claim.statement, claim.proof, claim.transcript.copy())
    except (DecodingError, ProofRejected):
        return False
    return True


def random_weights(n: int) -> list[int]:
    """Return fresh nonzero 128-bit weights for equations."""
    drawn = secrets.token_bytes(_WEIGHT * n)
    return [int.from_bytes(drawn[at : at + _WEIGHT], "big") or 1 for at in range(0, len(drawn), _WEIGHT)]


class WeightedSum:
    """The running sum Σ weight·(A + c·image − c·shift·G − Σ s·base) over all equations of the claims.

    Points are stored, not claims, so a batch needs little memory. The weights of the commitments A are short,
    which halves their cost.
    """

    def __init__(self) -> None:
        self._points: dict[bytes, Point] = {}  # by encoding, because bases and keys recur
        self._scalars: dict[bytes, int] = {}
        self._commitments: list[Point] = []
        self._weights: list[int] = []

    def add(self, claim: ProofClaim) -> None:
        """Add a claim; raise `DecodingError` and add nothing if it does not decode."""
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
                    encoding = point.hash_bytes
                    points[encoding] = point
                    scalars[encoding] = scalars.get(encoding, 0) + scalar
                at += 1
        self._commitments += commitments
        self._weights += weights

    def holds(self) -> bool:
        """Return True if the sum is the identity."""
        if not self._commitments:
            return True
        points = [*self._points.values(), *self._commitments]
        scalars = [*self._scalars.values(), *self._weights]
        return points[0].group.combine_public(points, scalars).is_identity


def spread(work: Callable[[Task], Result], tasks: Sequence[Task], workers: int) -> list[Result]:
    """Return work(task) for each task in order, computed by at most `workers` processes.

    `work` and the tasks must be picklable: `work` is a module-level function, or a `partial` of a
    module-level function. If a process cannot start or ends early, its tasks are done in this process.
    """
    workers = min(workers, len(tasks))
    if workers <= 1:
        return [work(task) for task in tasks]
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415  (not needed on devices)

    results: dict[int, Result] = {}
    left, lock, stopped = iter(enumerate(tasks)), threading.Lock(), threading.Event()

    def following() -> tuple[int, Task] | None:
        with lock:
            return None if stopped.is_set() else next(left, None)

    def drive(_worker: int) -> None:
        with _worker_process() as ask:
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
            stopped.set()  # after an interrupt, the remaining tasks are skipped
    return [results[number] for number in range(len(tasks))]


@contextmanager
def _worker_process() -> Iterator[Callable[[Callable[[Task], Result], Task], Result]]:
    """Start a worker process that does tasks in sequence; yield a function that sends it a task.

    The process is a new interpreter, not a fork: it inherits no locks, and does not run the caller's script
    again. It ends when its input closes, and so with the caller. The yielded function returns the result of a
    task, or raises `EOFError`, `OSError` or `PickleError` if there is none.
    """
    begin = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import serve; serve()"
    import subprocess  # noqa: PLC0415  (not needed on devices)

    process: subprocess.Popen[bytes] | None = None
    with suppress(OSError):
        process = subprocess.Popen(  # noqa: S603
            [sys.executable or "", "-c", begin],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # a keyboard interrupt goes to the caller only
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
            except (OSError, ValueError):  # it has ended already and its pipes are closed
                process.wait()


def serve() -> None:
    """Do incoming tasks until the input closes: the main loop of a worker process."""
    gc.disable()  # no object here is cyclic, and scanning millions of them takes time
    incoming, outgoing = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr
    with suppress(EOFError):
        while True:
            work, task = pickle.load(incoming)  # noqa: S301
            outgoing.write(pickle.dumps(work(task)))
            outgoing.flush()
