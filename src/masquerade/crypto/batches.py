"""Verifying many proofs at once, and naming the ones that fail.

All equations of a batch are weighed by fresh random numbers of 128 bits and added up: in a group of prime
order the sum is the identity when all hold, and otherwise with probability at most 2⁻¹²⁸.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import NamedTuple, TypeVar

from masquerade.crypto.errors import DecodingError, ProofRejected
from masquerade.crypto.group import Point
from masquerade.crypto.proofs import open_proof, verify
from masquerade.crypto.statements import Statement, group_of
from masquerade.crypto.transcript import Transcript

T = TypeVar("T")
_ALONE = 8  # as few as this are verified one by one
_WEIGHT = 16


class Claim(NamedTuple):
    """A proof with what it is said to show; the transcript is copied before it is used."""

    statement: Statement
    proof: bytes
    transcript: Transcript


def rejected(
    items: Iterable[T], claim_of: Callable[[T], Claim], *, batch: int = 8192, workers: int = 2
) -> list[int]:
    """Return the positions of the items whose proof fails or whose claim does not decode, in order.

    `claim_of` turns an item, usually a received message, into a claim; it runs in the worker. Threads work
    side by side because the groups' libraries run outside the interpreter's lock. All proofs must be at hand
    before the call: the weights are drawn inside. Memory is bounded by `workers` batches.
    """
    found: list[int] = []
    with ThreadPoolExecutor(workers) as pool:
        waiting: list[Future[list[int]]] = []
        for start, chunk in _chunks(items, batch):
            if len(waiting) > workers:
                found += waiting.pop(0).result()
            waiting.append(pool.submit(_rejected_in, start, chunk, claim_of))
        for future in waiting:
            found += future.result()
    return found


def _chunks(items: Iterable[T], size: int) -> Iterator[tuple[int, list[T]]]:
    iterator, start = iter(items), 0
    while chunk := list(islice(iterator, size)):
        yield start, chunk
        start += len(chunk)


def _rejected_in(start: int, items: Sequence[T], claim_of: Callable[[T], Claim]) -> list[int]:
    return [start + index for index in _search(range(len(items)), items, claim_of)]


def _search(indices: Sequence[int], items: Sequence[T], claim_of: Callable[[T], Claim]) -> list[int]:
    """Return the indices that fail, by halving what fails as a whole."""
    if len(indices) <= _ALONE:
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
    half = len(read) // 2
    return sorted(
        [*unreadable, *_search(read[:half], items, claim_of), *_search(read[half:], items, claim_of)]
    )


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
        at = 0
        for linear, c, s in zip(opened.branches, opened.challenges, opened.responses, strict=True):
            for image, terms, shift in linear.equations:
                weight = weights[at]
                self._add(image, weight * c)
                for k, base in terms:
                    self._add(base, -weight * s[k])
                if shift:
                    self._add(group.generator, -weight * c * shift)
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

    def _add(self, point: Point, scalar: int) -> None:
        encoding = point.hashed
        if encoding in self._points:
            self._scalars[encoding] += scalar
        else:
            self._points[encoding] = point
            self._scalars[encoding] = scalar
