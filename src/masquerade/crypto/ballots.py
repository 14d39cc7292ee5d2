"""Masked bits of the frequency protocol, and what their sender knows about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

from masquerade.core.errors import InputError
from masquerade.crypto.group import Group, Point, Secret
from masquerade.crypto.proofs import Knows


class BallotKeys(NamedTuple):
    """One user's pair of secrets for one count; used for a second count they would give both bits away."""

    x: Secret
    y: Secret

    @classmethod
    def fresh(cls, group: Group) -> Self:
        """Return new keys."""
        return cls(group.random_secret(), group.random_secret())


def mask(bit: int, keys: BallotKeys, X: Point, Y: Point) -> tuple[Point, Point]:
    """Return the masked bit: m = bit·G + y·X and h = x·Y, X and Y the sums of all users' keys.

    Both maskings are made and one is chosen, so the time taken does not tell the bit.
    Cost: two constant-time multiplications.
    """
    if bit not in (0, 1):
        raise InputError("A ballot masks 0 or 1.")
    if X.is_identity or Y.is_identity:
        raise InputError("The users' keys cancel out and would mask nothing: the roster needs other keys.")
    group = X.group
    zero = group.multiply(X, keys.y)
    return (zero, zero + group.generator)[bit], group.multiply(Y, keys.x)


def knows_bit(bit: int, keys: BallotKeys) -> tuple[Knows, ...]:
    """Return what proves `proofs.valid_bit`."""
    return Knows((keys.x,)), Knows((keys.y,), bit)


def knows_one_hot(bits: Sequence[int], keys: Sequence[BallotKeys]) -> tuple[Knows, ...]:
    """Return what proves `proofs.one_hot`."""
    if sum(bits) != 1:
        raise InputError("Exactly one bit of a one-hot ballot must be 1.")
    each = [known for bit, pair in zip(bits, keys, strict=True) for known in knows_bit(bit, pair)]
    return (*each, Knows(tuple(pair.y for pair in keys)))
