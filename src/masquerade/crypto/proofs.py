"""Sigma protocols made non-interactive: proving and verifying a `Statement` under one challenge.

A proof is its commitments, one point for each equation, followed for every part by the challenges of all
branches but the last and by the responses, all in the statement's order; its length follows from that.

Formula: A = Σ r_k·base_k; s_k = r_k + c·w_k; accepted when A = Σ s_k·base_k − c·(image − shift·G). In an OR
the branches' challenges add up to c; all but the true one are simulated (Cramer, Damgård, Schoenmakers 1994).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from masquerade.core.errors import InputError
from masquerade.crypto.errors import DecodingError, ProofRejected
from masquerade.crypto.group import SCALAR_SIZE, Group, Point, Secret
from masquerade.crypto.statements import Either, Linear, Statement, branches_of, describe, group_of
from masquerade.crypto.transcript import Transcript


class Knows(NamedTuple):
    """What the prover knows of one part: the numbers, and in an OR the branch that is true."""

    witnesses: tuple[Secret, ...]
    branch: int = 0


class Drawn(NamedTuple):
    """The randomness of one branch: nonces, or for a simulated branch its responses and its challenge."""

    numbers: tuple[Secret, ...]
    challenge: Secret | None = None


class Opened(NamedTuple):
    """A proof read against its statement: for every branch, in order, its challenge and responses."""

    branches: tuple[Linear, ...]
    commitments: tuple[bytes, ...]
    challenges: tuple[int, ...]
    responses: tuple[tuple[int, ...], ...]


def prove(statement: Statement, knowledge: Sequence[Knows], transcript: Transcript) -> bytes:
    """Return a proof of the statement; the transcript is used up.

    Cost: a constant-time multiplication for each term, and one more for each simulated equation.
    """
    group = group_of(statement)
    return _prove_from_parts(statement, knowledge, transcript, _draw(group, statement, knowledge))


def verify(statement: Statement, proof: bytes, transcript: Transcript) -> None:
    """Raise `ProofRejected` unless the proof shows the statement in the transcript's context.

    Bytes that are no proof at all raise `DecodingError`. The transcript is used up.
    Cost: a fast multiplication for each term and each image.
    """
    group = group_of(statement)
    opened = open_proof(statement, proof, transcript)
    at = 0
    for linear, c, s in zip(opened.branches, opened.challenges, opened.responses, strict=True):
        for equation in linear.equations:
            points = [equation.image, group.generator, *[base for _, base in equation.terms]]
            scalars = [-c, c * equation.shift, *[s[k] for k, _ in equation.terms]]
            commitment = group.combine_public(points, scalars)
            if commitment.is_identity or commitment.encode() != opened.commitments[at]:
                raise ProofRejected("The proof does not show its statement in this context.")
            at += 1


def proof_size(statement: Statement) -> int:
    """Return the length of a proof in bytes."""
    branches = _all_branches(statement)
    points = sum([len(linear.equations) for linear in branches])
    # every branch has its responses, and its challenge, unless it is the last of its part
    scalars = sum([linear.witnesses for linear in branches]) + len(branches) - len(statement)
    return points * group_of(statement).point_size + scalars * SCALAR_SIZE


def open_proof(statement: Statement, proof: bytes, transcript: Transcript) -> Opened:
    """Read a proof strictly and take its challenge; nothing is verified yet, commitments are not decoded."""
    group, expected = group_of(statement), proof_size(statement)
    if len(proof) != expected:
        raise DecodingError(f"This proof has {expected} bytes. Got {len(proof)} instead.")
    branches, size, decode = _all_branches(statement), group.point_size, group.decode_scalar
    end = sum([len(linear.equations) for linear in branches]) * size
    numbers = [decode(proof[at : at + SCALAR_SIZE]) for at in range(end, expected, SCALAR_SIZE)]
    challenge = _challenge(statement, proof[:end], transcript)
    challenges: list[int] = []
    responses: list[tuple[int, ...]] = []
    at = 0
    for part in statement:
        parts = branches_of(part)
        free = numbers[at : at + len(parts) - 1]
        challenges += (*free, (challenge - sum(free)) % group.order)
        at += len(free)
        for linear in parts:
            responses.append(tuple(numbers[at : at + linear.witnesses]))
            at += linear.witnesses
    commitments = tuple([proof[at : at + size] for at in range(0, end, size)])
    return Opened(tuple(branches), commitments, tuple(challenges), tuple(responses))


def _prove_from_parts(
    statement: Statement, knowledge: Sequence[Knows], transcript: Transcript, drawn: Sequence[Sequence[Drawn]]
) -> bytes:
    """Prove with given randomness: for vectors, and with fresh randomness for `prove`."""
    group = group_of(statement)
    commitments = [
        _commit(group, linear, draw)
        for part, draws in zip(statement, drawn, strict=True)
        for linear, draw in zip(branches_of(part), draws, strict=True)
    ]
    points = b"".join([point.encode() for branch in commitments for point in branch])
    challenge = _challenge(statement, points, transcript)
    scalars: list[int] = []
    for part, knows, draws in zip(statement, knowledge, drawn, strict=True):
        scalars += _answer(group, part, knows, draws, challenge)
    return points + b"".join(map(group.encode_scalar, scalars))


def _draw(group: Group, statement: Statement, knowledge: Sequence[Knows]) -> list[list[Drawn]]:
    if len(knowledge) != len(statement):
        raise InputError(f"A proof of {len(statement)} parts needs knowledge of each. Got {len(knowledge)}.")
    drawn = []
    for part, knows in zip(statement, knowledge, strict=True):
        branches = branches_of(part)
        if not 0 <= knows.branch < len(branches) or len(knows.witnesses) != branches[knows.branch].witnesses:
            raise InputError(
                "The knowledge does not fit the statement: its branch or its number of witnesses."
            )
        drawn.append(
            [
                Drawn(
                    tuple(group.random_secret() for _ in range(linear.witnesses)),
                    None if b == knows.branch else group.random_secret(),
                )
                for b, linear in enumerate(branches)
            ]
        )
    return drawn


def _commit(group: Group, linear: Linear, draw: Drawn) -> list[Point]:
    """Return Σ r_k·base_k for each equation, for a simulated branch less c·(image − shift·G)."""
    points = []
    for image, terms, shift in linear.equations:
        products = [_times(group, base, draw.numbers[k]) for k, base in terms]
        # for true branches too, or the time taken would tell which branch is true
        claimed = image - _multiple(group, shift) if shift else image
        if draw.challenge is not None:
            products.append(-group.multiply(claimed, draw.challenge))
        points.append(group.sum_points(products))
    return points


def _multiple(group: Group, n: int) -> Point:
    return group.generator if n == 1 else group.multiply_public(group.generator, n)


def _times(group: Group, base: Point, secret: Secret) -> Point:
    return group.multiply_generator(secret) if base is group.generator else group.multiply(base, secret)


def _answer(
    group: Group, part: Linear | Either, knows: Knows, draws: Sequence[Drawn], challenge: int
) -> list[int]:
    """Return a part's challenges, all but the last, and its responses."""
    simulated = [0 if draw.challenge is None else draw.challenge.reveal() for draw in draws]
    own = (challenge - sum(simulated)) % group.order
    challenges = [own if draw.challenge is None else c for draw, c in zip(draws, simulated, strict=True)]
    responses: list[int] = []
    for draw in draws:
        if draw.challenge is None:
            pairs = zip(draw.numbers, knows.witnesses, strict=True)
            responses += [group.respond(nonce, own, witness) for nonce, witness in pairs]
        else:
            responses += [number.reveal() for number in draw.numbers]
    return challenges[: len(branches_of(part)) - 1] + responses


def _challenge(statement: Statement, commitments: bytes, transcript: Transcript) -> int:
    transcript.absorb("statement", *describe(statement))
    transcript.absorb("commitments", commitments)
    return transcript.challenge(group_of(statement))


def _all_branches(statement: Statement) -> list[Linear]:
    return [linear for part in statement for linear in branches_of(part)]
