"""The verifiable oblivious PRF (VOPRF) of RFC 9497 over ristretto255 with SHA-512.

A client blinds its input, a server multiplies the blinded input by its key, and the client unblinds and
hashes the product. The server does not see the input. Equal inputs give equal outputs, and nobody can compute
an output without the server. One proof shows that a whole batch was multiplied by the key that the server
published.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from masquerade.core.errors import InputError
from masquerade.crypto.errors import ProofRejected
from masquerade.crypto.group import SCALAR_SIZE, Point, Secret
from masquerade.crypto.ristretto255 import ristretto255 as group

POINT_SIZE: Final = group.point_size
PROOF_SIZE: Final = 2 * SCALAR_SIZE
MOST_IN_BATCH: Final = 2**16 - 1  # positions in a batch are numbered by two bytes
MOST_INPUT: Final = 2**16 - 1

_CONTEXT = b"OPRFV1-\x01-ristretto255-SHA512"
_TO_GROUP, _TO_SCALAR = b"HashToGroup-" + _CONTEXT, b"HashToScalar-" + _CONTEXT
_SEED = b"Seed-" + _CONTEXT


@dataclass(frozen=True, slots=True, repr=False)
class ServerKey:
    """A server's secret scalar and the point that it publishes."""

    secret: Secret
    public: Point


@dataclass(frozen=True, slots=True, repr=False)
class Blinded:
    """Client state of a request: the input, the scalar that blinds it, and the point to send."""

    value: bytes
    blind: Secret
    element: Point


def random_key() -> ServerKey:
    """Return a fresh key."""
    secret = group.random_secret()
    return ServerKey(secret, group.multiply_generator(secret))


def blind(value: bytes) -> Blinded:
    """Blind an input with a fresh random scalar (RFC 9497, section 3.3.2: Blind)."""
    return _blind_from_parts(value, group.random_secret())


def blind_again(value: bytes, number: bytes) -> Blinded:
    """Blind an input with an earlier scalar, so that a retry is the same request."""
    return _blind_from_parts(value, group.secret(group.decode_scalar(number)))


def _blind_from_parts(value: bytes, number: Secret) -> Blinded:
    point = _hash_input(value)
    return Blinded(value, number, group.multiply(point, number))


def evaluate(key: ServerKey, elements: Sequence[Point]) -> tuple[list[Point], bytes]:
    """Return the elements times the key, and one proof for all (RFC 9497, section 3.3.2: BlindEvaluate).

    Cost: two multiplications and an addition per element, and three multiplications for the proof.
    """
    return _evaluate_from_parts(key, elements, group.random_secret())


def _evaluate_from_parts(
    key: ServerKey, elements: Sequence[Point], nonce: Secret
) -> tuple[list[Point], bytes]:
    evaluated = [group.multiply(element, key.secret) for element in elements]
    combined = group.combine_public(elements, _weights(key.public, elements, evaluated))
    image = group.multiply(combined, key.secret)
    challenge = _challenge(
        key.public, combined, image, group.multiply_generator(nonce), group.multiply(combined, nonce)
    )
    response = group.respond(nonce, (-challenge) % group.order, key.secret)
    return evaluated, group.encode_scalar(challenge) + group.encode_scalar(response)


def verify(public: Point, elements: Sequence[Point], evaluated: Sequence[Point], proof: bytes) -> None:
    """Raise `ProofRejected` unless the key of `public` multiplied all elements (VerifyProof).

    Cost: two multiplications and two additions per element, and four multiplications.
    """
    if len(proof) != PROOF_SIZE or len(elements) != len(evaluated):
        raise ProofRejected(f"A proof has {PROOF_SIZE} bytes, and there is one result per element.")
    challenge = group.decode_scalar(proof[:SCALAR_SIZE])
    response = group.decode_scalar(proof[SCALAR_SIZE:])
    weights = _weights(public, elements, evaluated)
    combined, image = group.combine_public(elements, weights), group.combine_public(evaluated, weights)
    expected = _challenge(
        public,
        combined,
        image,
        group.combine_public((group.generator, public), (response, challenge)),
        group.combine_public((combined, image), (response, challenge)),
    )
    if challenge != expected:
        raise ProofRejected("The elements were not multiplied by the key that was published.")


def unblind(blinded: Blinded, evaluated: Point) -> Point:
    """Return the hashed input times the key, from which `output_of` computes the output."""
    # variable time is safe: the scalar is used once, and no other party can time this step
    inverse = group.secret(pow(blinded.blind.reveal(), -1, group.order))
    return group.multiply(evaluated, inverse)


def output_of(value: bytes, unblinded: bytes) -> bytes:
    """Return the 64-byte output for an input and its unblinded element (RFC 9497: Finalize)."""
    return hashlib.sha512(_with_length(value) + _with_length(unblinded) + b"Finalize").digest()


def output_by(key: ServerKey, value: bytes) -> bytes:
    """Return the output for an input, computed with the key itself (RFC 9497: Evaluate)."""
    return output_of(value, group.multiply(_hash_input(value), key.secret).encode())


def key_of(secret: bytes) -> ServerKey:
    """Return the key of a secret scalar, encoded by `encode_scalar`."""
    number = group.secret(group.decode_scalar(secret))
    return ServerKey(number, group.multiply_generator(number))


def _hash_input(value: bytes) -> Point:
    if len(value) > MOST_INPUT:
        raise InputError(f"An input has at most {MOST_INPUT:,} bytes. Got {len(value):,} instead.")
    point = group.hash_to_group(value, _TO_GROUP)
    if point.is_identity:
        raise InputError("This input hashes to the identity; it cannot be evaluated.")
    return point


def _weights(public: Point, elements: Sequence[Point], evaluated: Sequence[Point]) -> list[int]:
    """Return the random weights that combine the elements of a batch."""
    if not 1 <= len(elements) <= MOST_IN_BATCH:
        raise InputError(f"A batch has 1 to {MOST_IN_BATCH:,} elements. Got {len(elements):,} instead.")
    seed = _with_length(hashlib.sha512(_with_length(public.encode()) + _with_length(_SEED)).digest())
    return [
        group.hash_to_scalar(
            seed + i.to_bytes(2, "big") + _with_length(c.encode()) + _with_length(d.encode()) + b"Composite",
            _TO_SCALAR,
        )
        for i, (c, d) in enumerate(zip(elements, evaluated, strict=True))
    ]


def _challenge(*points: Point) -> int:
    transcript = b"".join(_with_length(point.hash_bytes) for point in points)
    return group.hash_to_scalar(transcript + b"Challenge", _TO_SCALAR)


def _with_length(value: bytes) -> bytes:
    return len(value).to_bytes(2, "big") + value
