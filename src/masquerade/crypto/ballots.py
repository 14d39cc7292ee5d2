"""Masked bits of the frequency protocol, and what their sender knows about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from masquerade.core.errors import InputError
from masquerade.crypto.group import Point, Secret
from masquerade.crypto.proofs import Knows
from masquerade.crypto.statements import Ballot


class BallotKeys(NamedTuple):
    """One user's pair of secrets for one count; used for a second count they would give both bits away."""

    x: Secret
    y: Secret


def cast(bit: int, keys: BallotKeys, X: Point, Y: Point) -> Ballot:
    """Return the masked bit: m = bit·G + y·X and h = x·Y, X and Y the sums of all users' keys.

    Both maskings are made and one is chosen, so the time taken does not tell the bit.
    Cost: two constant-time multiplications, and two by the generator for the user's public keys.
    """
    if bit not in (0, 1):
        raise InputError("A ballot masks 0 or 1.")
    if X.is_identity or Y.is_identity:
        raise InputError("The users' keys cancel out and would mask nothing: the roster needs other keys.")
    group = X.group
    zero = group.multiply(X, keys.y)
    masked = (zero, zero + group.generator)[bit]
    X_i, Y_i = group.multiply_generator(keys.x), group.multiply_generator(keys.y)
    return Ballot(X, Y, X_i, Y_i, masked, group.multiply(Y, keys.x))


def knows_bit(bit: int, keys: BallotKeys) -> tuple[Knows, ...]:
    """Return what proves `valid_bit`."""
    return Knows((keys.x,)), Knows((keys.y,), bit)


def knows_one_hot(bits: Sequence[int], keys: Sequence[BallotKeys]) -> tuple[Knows, ...]:
    """Return what proves `one_hot`."""
    if sum(bits) != 1:
        raise InputError("Exactly one bit of a one-hot ballot must be 1.")
    each = [known for bit, pair in zip(bits, keys, strict=True) for known in knows_bit(bit, pair)]
    return (*each, Knows(tuple(pair.y for pair in keys)))
