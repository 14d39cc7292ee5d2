"""Verifiable shuffle: rows are re-encrypted and permuted, with a proof that nothing else was changed.

The prover commits to a permutation matrix, c_j = s_j·G + H_i where row j goes to position i, and then
receives random numbers u_j. It proves, under one challenge,

    Σ c_j − Σ H_i = (Σ s_j)·G                        every row of the matrix adds up to one;
    Σ u_j·c_j     = (Σ s_j u_j)·G + Σ ũ_i·H_i        the same matrix turns u into some ũ;
    ĉ_i = t_i·G + ũ_i·ĉ_{i−1}, ĉ_0 = H, and          a chain of commitments, whose end shows that
    ĉ_N − (Π u_j)·H = R·G                            Π ũ_i = Π u_j: the matrix is a permutation;
    Σ u_j·a_j = −ρ·G + Σ ũ_i·a'_i, and               the outputs encrypt the same points, moved by that
    Σ u_j·b_j = −ρ·K + Σ ũ_i·b'_i                    permutation; once for every piece of a row.

A matrix whose rows add up to one and that keeps the product of the components of a random vector is a
permutation, except with probability N/q (Schwartz–Zippel). H and all H_i are points whose logarithms nobody
knows.

Reference: Terelius, Wikström, "Proofs of restricted shuffles" (Africacrypt 2010); Wikström, "A
commitment-consistent proof of a shuffle" (ACISP 2009); the form with a chain as in Haenni, Locher, Koenig,
Dubuis (2017).
Cost: about (5 + 3w)·N constant-time multiplications to prove rows of w pieces, (5 + 4w)·N terms of one sum to
verify.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from masquerade.crypto.elgamal import POINT, Row, decode_points, decode_rows, encode_rows, rerandomize
from masquerade.crypto.errors import DecodingError, ProofRejected
from masquerade.crypto.group import Point
from masquerade.crypto.proof_batches import ProofClaim, WeightedSum
from masquerade.crypto.proofs import Equation, Knows, Linear, Statement, Transcript, prove
from masquerade.crypto.secp256k1 import secp256k1

_ORDER = secp256k1.order


class Shuffled(NamedTuple):
    """Public output of a shuffle: the rows, the committed permutation, the chain, the proof."""

    rows: tuple[Row, ...]
    commitments: tuple[Point, ...]
    chain: tuple[Point, ...]
    proof: bytes

    def encode(self) -> bytes:
        """Return the bytes of all parts in order; their lengths follow from the number of rows."""
        points = b"".join([point.encode() for point in (*self.commitments, *self.chain)])
        return encode_rows(self.rows) + points + self.proof

    @classmethod
    def decode(cls, data: bytes, n: int, width: int) -> Shuffled:
        """Decode a shuffle of n rows."""
        rows, points = n * width * 2 * POINT, n * POINT
        ends = [rows, rows + points, rows + 2 * points]
        if len(data) < ends[-1]:
            raise DecodingError(
                f"A shuffle of {n} rows has more than {ends[-1]} bytes. Got {len(data)} instead."
            )
        return cls(
            decode_rows(data[: ends[0]], width),
            decode_points(data[ends[0] : ends[1]]),
            decode_points(data[ends[1] : ends[2]]),
            data[ends[2] :],
        )


def shuffle(rows: Sequence[Row], key: Point, transcript: Transcript) -> Shuffled:
    """Re-encrypt and permute rows, with a proof; the transcript cannot be used again."""
    order = list(range(len(rows)))
    secrets.SystemRandom().shuffle(order)
    return _shuffle_in_order(rows, key, transcript, order)


def check_shuffle(rows: Sequence[Row], key: Point, shuffled: Shuffled, transcript: Transcript) -> None:
    """Raise `ProofRejected` unless the shuffle encrypts the same rows; the transcript is used up."""
    if len(shuffled.rows) != len(rows) or [len(row) for row in shuffled.rows] != [len(row) for row in rows]:
        raise ProofRejected("A shuffle must return as many rows as it was given, with the same widths.")
    u = _challenges(rows, key, shuffled.rows, shuffled.commitments, transcript)
    statement = _statement(rows, key, shuffled, u)
    weighed = WeightedSum()
    try:
        weighed.add(ProofClaim(statement, shuffled.proof, transcript))
    except DecodingError:
        raise ProofRejected("The proof of a shuffle is malformed.") from None
    if not weighed.holds():
        raise ProofRejected("The proof does not show that this is a shuffle of these rows.")


def _shuffle_in_order(
    rows: Sequence[Row], key: Point, transcript: Transcript, order: Sequence[int]
) -> Shuffled:
    """Shuffle in a given order: output i is input order[i]."""
    n, width, random = len(rows), len(rows[0]), secp256k1.random_secret
    fresh = [[random() for _ in range(width)] for _ in range(n)]
    outputs = tuple(
        [
            tuple([rerandomize(old, key, r) for old, r in zip(rows[j], fresh[i], strict=True)])
            for i, j in enumerate(order)
        ]
    )
    s = [random() for _ in range(n)]
    commitments = [secp256k1.identity] * n
    for i, j in enumerate(order):
        commitments[j] = secp256k1.multiply_generator(s[j]) + _base(i)
    u = _challenges(rows, key, outputs, commitments, transcript)
    moved = [secp256k1.secret(u[j]) for j in order]
    t = [random() for _ in range(n)]
    chain, total = _chain([secret.reveal() for secret in t], [u[j] for j in order])
    opened = [secret.reveal() for secret in s]
    rho = [
        sum(fresh[i][piece].reveal() * u[j] for i, j in enumerate(order)) % _ORDER for piece in range(width)
    ]
    witnesses = (
        secp256k1.secret(sum(opened)),
        secp256k1.secret(total),
        secp256k1.secret(sum(a * b for a, b in zip(opened, u, strict=True))),
        *[secp256k1.secret(-value) for value in rho],
        *t,
        *moved,
    )
    shuffled = Shuffled(outputs, tuple(commitments), tuple(chain), b"")
    proof = prove(_statement(rows, key, shuffled, u), [Knows(witnesses)], transcript)
    return shuffled._replace(proof=proof)


def _chain(t: Sequence[int], moved: Sequence[int]) -> tuple[list[Point], int]:
    """Return ĉ_i = t_i·G + ũ_i·ĉ_{i−1} and R with ĉ_N = R·G + (Π ũ_i)·H.

    All t and ũ are known here, so every link is computed directly: ĉ_i = R_i·G + (ũ_1 … ũ_i)·H.
    """
    links: list[Point] = []
    total, product = 0, 1
    for number, factor in zip(t, moved, strict=True):
        total, product = (number + factor * total) % _ORDER, product * factor % _ORDER
        at_g = secp256k1.multiply_generator(secp256k1.secret(total))
        links.append(at_g + secp256k1.multiply(_first(), secp256k1.secret(product)))
    return links, total


def _challenges(
    rows: Sequence[Row],
    key: Point,
    outputs: Sequence[Row],
    commitments: Sequence[Point],
    transcript: Transcript,
) -> list[int]:
    """Return a random number for every input, bound to all inputs, all outputs and the permutation."""
    transcript.absorb("key", key.encode())
    transcript.absorb("inputs", encode_rows(rows))
    transcript.absorb("outputs", encode_rows(outputs))
    transcript.absorb("permutation", b"".join([point.encode() for point in commitments]))
    return [transcript.challenge(secp256k1) for _ in rows]


def _statement(rows: Sequence[Row], key: Point, shuffled: Shuffled, u: Sequence[int]) -> Statement:
    """State the equations above; witnesses: Σ s, R, Σ s·u, −ρ for every piece, all t, all ũ."""
    n, width, g = len(rows), len(rows[0]), secp256k1.generator
    bases = [_base(i) for i in range(n)]
    product = 1
    for number in u:
        product = product * number % _ORDER
    t, moved = 3 + width, 3 + width + n
    equations = [
        Equation(secp256k1.sum_points(shuffled.commitments) - secp256k1.sum_points(bases), ((0, g),)),
        Equation(shuffled.chain[-1] - secp256k1.multiply_public(_first(), product), ((1, g),)),
        Equation(
            secp256k1.combine_public(shuffled.commitments, u),
            ((2, g), *[(moved + i, base) for i, base in enumerate(bases)]),
        ),
    ]
    for piece in range(width):
        for part, base in enumerate((g, key)):
            before = secp256k1.combine_public([row[piece][part] for row in rows], u)
            after = [(moved + i, row[piece][part]) for i, row in enumerate(shuffled.rows)]
            equations.append(Equation(before, ((3 + piece, base), *after)))
    links = (_first(), *shuffled.chain)
    equations += [Equation(links[i + 1], ((t + i, g), (moved + i, links[i]))) for i in range(n)]
    return (Linear(tuple(equations), moved + n),)


@lru_cache(maxsize=200_000)
def _base(i: int) -> Point:
    return secp256k1.independent_point(b"masquerade mix permutation " + i.to_bytes(8, "big"))


@lru_cache(maxsize=1)
def _first() -> Point:
    return secp256k1.independent_point(b"masquerade mix chain")
