"""Non-interactive sigma protocols: statements, contexts and proofs.

A statement is a list of parts that all hold, under one challenge. A `Linear` part says that the prover knows
scalars w with image − shift·G = Σ w_k·base_k in each of its equations; all equations use the same w. An
`Either` part says that one of its branches holds, but not which branch. The challenge is a hash of the
statement, the commitments and the whole context (strong Fiat–Shamir).

A proof consists of its commitments, one point per equation, followed for each part by the challenges of all
branches but the last and by the responses, all in the statement's order. Its length follows from that.

Formula: A = Σ r_k·base_k; s_k = r_k + c·w_k; accepted if A = Σ s_k·base_k − c·(image − shift·G). In an OR the
branches' challenges add up to c; all but the true one are simulated (Cramer, Damgård, Schoenmakers 1994).
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from typing import NamedTuple, Self, TypeAlias

from masquerade.core.errors import InputError
from masquerade.crypto.errors import DecodingError, ProofRejected
from masquerade.crypto.group import SCALAR_SIZE, Group, Point, Secret

NOT_YET = b"not yet"  # roster or query of a proof that is made before they exist
_VERSION = b"masquerade transcript 1"


@dataclass(frozen=True, slots=True)
class Context:
    """The context of a proof. All of it enters each challenge, so a proof is invalid in any other context.

    `protocol` and `role` are names; `roster` is the hash of the signed roster and `query` the identifier of
    the query, or `NOT_YET` for a proof that is made before them.
    """

    protocol: str
    session: bytes
    roster: bytes
    query: bytes
    user: bytes
    role: str

    def __post_init__(self) -> None:
        for item in fields(self):
            value, kind = getattr(self, item.name), str if item.type == "str" else bytes
            if not isinstance(value, kind) or not value:
                raise InputError(
                    f"The {item.name!r} of a proof's context must be {kind.__name__} and not empty."
                )


class Transcript:
    """A running SHA-512 over labelled, length-prefixed fields that starts with the context.

    >>> from masquerade.crypto.ristretto255 import ristretto255
    >>> context = Context("demo", b"session 1", NOT_YET, NOT_YET, b"user 7", "voter")
    >>> transcript = Transcript(context)
    >>> transcript.absorb("statement", b"one", b"two")
    >>> 0 < transcript.challenge(ristretto255) < ristretto255.order
    True
    """

    __slots__ = ("_hash",)

    def __init__(self, context: Context) -> None:
        if not isinstance(context, Context):
            raise TypeError("a Transcript starts with a Context")
        self._hash = hashlib.sha512(_VERSION)
        said = [value.encode() if isinstance(value, str) else value for value in astuple(context)]
        self.absorb("context", *said)

    def absorb(self, label: str, *values: bytes) -> None:
        """Add a labelled list of byte strings; different sequences of calls never hash the same bytes."""
        name = label.encode()
        parts = [len(name).to_bytes(4, "big"), name, len(values).to_bytes(8, "big")]
        for value in values:
            parts += (len(value).to_bytes(8, "big"), value)
        self._hash.update(b"".join(parts))

    def challenge(self, group: Group) -> int:
        """Return a nonzero scalar below the group's order: 64 bytes reduced, with a bias below 2⁻²⁵⁵."""
        self.absorb("challenge", group.name.encode())
        return int.from_bytes(self._hash.digest(), "big") % group.order or 1

    def copy(self) -> Transcript:
        """Return an independent transcript with the same fields."""
        other = object.__new__(Transcript)
        other._hash = self._hash.copy()
        return other


class Equation(NamedTuple):
    """image − shift·G = Σ witness[k]·base over `terms`, the pairs (k, base)."""

    image: Point
    terms: tuple[tuple[int, Point], ...]
    shift: int = 0


class Linear(NamedTuple):
    """Equations that hold together for one list of `witnesses` scalars."""

    equations: tuple[Equation, ...]
    witnesses: int = 1


class Either(NamedTuple):
    """A disjunction: one of the branches holds."""

    branches: tuple[Linear, ...]


Part: TypeAlias = Linear | Either
Statement: TypeAlias = tuple[Part, ...]


def possession(key: Point) -> Statement:
    """Return the statement that the prover knows x with key = x·G (Schnorr).

    Its proof prevents keys made from other people's keys.
    """
    return (Linear((Equation(key, ((0, key.group.generator),)),)),)


def equal_logs(pairs: Sequence[tuple[Point, Point]]) -> Statement:
    """Return the statement that the prover knows one x with image = x·base for every pair (image, base).

    For two pairs it is that of Chaum and Pedersen.
    """
    if any(base.is_identity for _, base in pairs):
        raise InputError("A base must not be the identity, whose multiples prove nothing.")
    return (Linear(tuple(Equation(image, ((0, base),)) for image, base in pairs)),)


class Ballot(NamedTuple):
    """A user's keys and masked bit with the sums of all keys, in the notation of the frequency protocol.

    X_i = x·G, Y_i = y·G, m_i = d·G + y·X, h_i = x·Y, where X and Y are the sums of all users' X_i and Y_i.
    """

    X: Point
    Y: Point
    X_i: Point
    Y_i: Point
    m_i: Point
    h_i: Point


def valid_bit(ballot: Ballot) -> Statement:
    """Return the statement that h_i is honest and m_i masks 0 or 1.

    Formula: log_G X_i = log_Y h_i, and for d = 0 or d = 1: log_G Y_i = log_X (m_i − d·G).
    """
    _check_masking(ballot.X, ballot.Y)
    g = ballot.X.group.generator
    honest = Linear((Equation(ballot.X_i, ((0, g),)), Equation(ballot.h_i, ((0, ballot.Y),))))
    own, over = Equation(ballot.Y_i, ((0, g),)), ((0, ballot.X),)
    bits = Either((Linear((own, Equation(ballot.m_i, over))), Linear((own, Equation(ballot.m_i, over, 1)))))
    return (honest, bits)


def one_hot(ballots: Sequence[Ballot]) -> Statement:
    """Return the statement that each ballot masks 0 or 1, and that the bits add up to one.

    Formula: `valid_bit` for each l, and with the same y_l: Y_il = y_l·G, Σ m_il − G = Σ y_l·X_l.
    """
    if not ballots:
        raise InputError("A one-hot statement needs at least one ballot.")
    group = ballots[0].X.group
    keys = tuple(Equation(b.Y_i, ((l, group.generator),)) for l, b in enumerate(ballots))
    total = group.sum_points(b.m_i for b in ballots)
    adds_up = Equation(total, tuple((l, b.X) for l, b in enumerate(ballots)), 1)
    parts = [part for ballot in ballots for part in valid_bit(ballot)]
    return (*parts, Linear((*keys, adds_up), len(ballots)))


def branches_of(part: Part) -> tuple[Linear, ...]:
    """Return the branches of a part; a linear part is its own only branch."""
    return part.branches if isinstance(part, Either) else (part,)


def group_of(statement: Statement) -> Group:
    """Return the group of a statement."""
    return branches_of(statement[0])[0].equations[0].image.group


def describe(statement: Statement) -> tuple[bytes, bytes]:
    """Return the content of a statement for a transcript: its structure, and its points in the same order."""
    structure: list[int] = [len(statement)]
    points: list[bytes] = []
    for part in statement:
        branches = branches_of(part)
        structure += (isinstance(part, Either), len(branches))
        for linear in branches:
            structure += (linear.witnesses, len(linear.equations))
            for image, terms, shift in linear.equations:
                structure += (shift, len(terms))
                points.append(image.hash_bytes)
                for k, base in terms:
                    structure.append(k)
                    points.append(base.hash_bytes)
    return struct.pack(f">{len(structure)}I", *structure), b"".join(points)


class Knows(NamedTuple):
    """A prover's knowledge of one part: the scalars, and in an OR the true branch."""

    witnesses: tuple[Secret, ...]
    branch: int = 0


class BallotKeys(NamedTuple):
    """One user's two secrets for one count. If they were used for a second count, both bits would leak."""

    x: Secret
    y: Secret

    @classmethod
    def fresh(cls, group: Group) -> Self:
        """Return new keys."""
        return cls(group.random_secret(), group.random_secret())


def mask(bit: int, keys: BallotKeys, X: Point, Y: Point) -> tuple[Point, Point]:
    """Return the masked bit: m = bit·G + y·X and h = x·Y, where X and Y are the sums of all users' keys.

    Both masked values are computed and one is chosen, so the running time does not reveal the bit.
    Cost: two constant-time multiplications.
    """
    if bit not in (0, 1):
        raise InputError("A ballot masks 0 or 1.")
    _check_masking(X, Y)
    group = X.group
    zero = group.multiply(X, keys.y)
    return (zero, zero + group.generator)[bit], group.multiply(Y, keys.x)


def _check_masking(X: Point, Y: Point) -> None:
    if X.is_identity or Y.is_identity:
        raise InputError(
            "The users' keys cancel out and would mask nothing: the roster needs different keys."
        )


def knows_bit(bit: int, keys: BallotKeys) -> tuple[Knows, ...]:
    """Return the knowledge that proves `valid_bit`."""
    return Knows((keys.x,)), Knows((keys.y,), bit)


def knows_one_hot(bits: Sequence[int], keys: Sequence[BallotKeys]) -> tuple[Knows, ...]:
    """Return the knowledge that proves `one_hot`."""
    if sum(bits) != 1:
        raise InputError("Exactly one bit of a one-hot ballot must be 1.")
    each = [known for bit, pair in zip(bits, keys, strict=True) for known in knows_bit(bit, pair)]
    return (*each, Knows(tuple(pair.y for pair in keys)))


class BranchRandomness(NamedTuple):
    """The randomness of one branch: nonces, or for a simulated branch its responses and challenge."""

    numbers: tuple[Secret, ...]
    challenge: Secret | None = None


class OpenedProof(NamedTuple):
    """A proof parsed against its statement: the challenge and responses of each branch, in order."""

    branches: tuple[Linear, ...]
    commitments: tuple[bytes, ...]
    challenges: tuple[int, ...]
    responses: tuple[tuple[int, ...], ...]


def prove(statement: Statement, knowledge: Sequence[Knows], transcript: Transcript) -> bytes:
    """Return a proof of the statement; the transcript cannot be used again.

    Cost: one constant-time multiplication per term, and one more per simulated equation.
    """
    group = group_of(statement)
    return _prove_from_parts(statement, knowledge, transcript, _draw(group, statement, knowledge))


def verify(statement: Statement, proof: bytes, transcript: Transcript) -> None:
    """Raise `ProofRejected` unless the proof shows the statement in the transcript's context.

    Malformed bytes raise `DecodingError`. The transcript cannot be used again.
    Cost: one fast multiplication per term and image.
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
    # each branch has its responses, and its challenge unless it is the last of its part
    scalars = sum([linear.witnesses for linear in branches]) + len(branches) - len(statement)
    return points * group_of(statement).point_size + scalars * SCALAR_SIZE


def open_proof(statement: Statement, proof: bytes, transcript: Transcript) -> OpenedProof:
    """Parse a proof strictly and derive its challenge, without verifying it or decoding its commitments."""
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
    return OpenedProof(tuple(branches), commitments, tuple(challenges), tuple(responses))


def _prove_from_parts(
    statement: Statement,
    knowledge: Sequence[Knows],
    transcript: Transcript,
    drawn: Sequence[Sequence[BranchRandomness]],
) -> bytes:
    """Return a proof made with the given randomness, which is fresh in `prove` and fixed in test vectors."""
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


def _draw(group: Group, statement: Statement, knowledge: Sequence[Knows]) -> list[list[BranchRandomness]]:
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
                BranchRandomness(
                    tuple(group.random_secret() for _ in range(linear.witnesses)),
                    None if b == knows.branch else group.random_secret(),
                )
                for b, linear in enumerate(branches)
            ]
        )
    return drawn


def _commit(group: Group, linear: Linear, draw: BranchRandomness) -> list[Point]:
    """Return Σ r_k·base_k for each equation, minus c·(image − shift·G) for a simulated branch."""
    points = []
    for image, terms, shift in linear.equations:
        products = [_times(group, base, draw.numbers[k]) for k, base in terms]
        # for true branches too, or the running time would reveal which branch is true
        claimed = image - group.multiply_public(group.generator, shift) if shift else image
        if draw.challenge is not None:
            products.append(-group.multiply(claimed, draw.challenge))
        points.append(group.sum_points(products))
    return points


def _times(group: Group, base: Point, secret: Secret) -> Point:
    return group.multiply_generator(secret) if base is group.generator else group.multiply(base, secret)


def _answer(
    group: Group, part: Linear | Either, knows: Knows, draws: Sequence[BranchRandomness], challenge: int
) -> list[int]:
    """Return the challenges of a part, without the last challenge, and then its responses."""
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
