"""Shamir's secret sharing over the scalar field of a group, and interpolation, also of points.

Formula: share x is f(x) for a uniform polynomial f of degree threshold − 1 with f(0) the secret; any
`threshold` shares give f(z) = Σ λ_x(z)·f(x), λ_x(z) = Π_{x'≠x} (z − x')/(x − x'), and fewer say nothing.

Three codes share secrets, each where the others would not do. This one works at any places and on points,
whose logarithms nobody knows. `protocols.aggregation.seed_shares` deals and opens seeds at the places 1 … k,
two to five times as quickly: a server opens one of every user. `crypto.class_secrets` works in the field
2⁶¹ − 1, compiled, on secrets that are derived and not drawn: a million shares at once, bad ones among them.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from masquerade.core.errors import InputError
from masquerade.crypto.errors import DecodingError, SharesInconsistent
from masquerade.crypto.group import SCALAR_SIZE, Group, Point

SEED_SIZE = 31  # every seed is a number below both groups' orders
_X_SIZE = 4
SHARE_SIZE = _X_SIZE + SCALAR_SIZE


@dataclass(frozen=True, slots=True, repr=False)
class Share:
    """The value of the polynomial at `x`, from 1 to 2³² − 1; it does not print its value."""

    x: int
    y: int

    def encode(self, group: Group) -> bytes:
        """Return the 36 bytes of a share."""
        return _check_x(self.x).to_bytes(_X_SIZE, "big") + group.encode_scalar(self.y)

    @classmethod
    def decode(cls, data: bytes, group: Group) -> Share:
        """Return the share of 36 bytes."""
        if len(data) != SHARE_SIZE:
            raise DecodingError(f"A share has {SHARE_SIZE} bytes. Got {len(data)} instead.")
        x = int.from_bytes(data[:_X_SIZE], "big")
        if x == 0:
            raise DecodingError("A share at 0 would be the secret itself.")
        return cls(x, group.decode_scalar(data[_X_SIZE:]))

    def __repr__(self) -> str:
        return f"Share(x={self.x})"


def split(secret: int, threshold: int, xs: Sequence[int], group: Group) -> list[Share]:
    """Return a share of the secret at each of `xs`, of which any `threshold` recover it.

    Cost: threshold multiplications modulo the order for each share.
    """
    _check_split(secret, threshold, xs, group)
    return _split_from_parts(
        secret, [secrets.randbelow(group.order) for _ in range(threshold - 1)], xs, group
    )


def recover(shares: Sequence[Share], threshold: int, group: Group) -> int:
    """Return the secret from at least `threshold` shares; further shares must agree with the first."""
    _check_recover([share.x for share in shares], threshold)
    used, rest = shares[:threshold], shares[threshold:]
    xs = tuple(share.x for share in used)
    for share in rest:
        if _evaluate(used, lagrange(xs, share.x, group), group) != share.y:
            raise SharesInconsistent("The shares do not belong to one secret: some of them are wrong.")
    return _evaluate(used, lagrange(xs, 0, group), group)


def split_seed(seed: bytes, threshold: int, xs: Sequence[int], group: Group) -> list[Share]:
    """Return shares of a seed of 31 bytes."""
    if len(seed) != SEED_SIZE:
        raise InputError(f"A shared seed has {SEED_SIZE} bytes. Got {len(seed)} instead.")
    return split(int.from_bytes(seed, "big"), threshold, xs, group)


def recover_seed(shares: Sequence[Share], threshold: int, group: Group) -> bytes:
    """Return the seed; a result that is too long for one shows that some share is wrong."""
    value = recover(shares, threshold, group)
    if value >> 8 * SEED_SIZE:
        raise SharesInconsistent("The shares do not belong to a seed: some of them are wrong.")
    return value.to_bytes(SEED_SIZE, "big")


def interpolate_points(xs: Sequence[int], points: Sequence[Point], at: int, group: Group) -> Point:
    """Return f(at)·H from the points f(x)·H, the polynomial itself remaining unknown."""
    if len(points) != len(xs):
        raise InputError(f"Interpolation needs one point for each place. Got {len(points)} for {len(xs)}.")
    return group.combine_public(points, lagrange(tuple(xs), at, group))


@lru_cache(maxsize=1024)
def lagrange(xs: tuple[int, ...], at: int, group: Group) -> tuple[int, ...]:
    """Return the coefficients λ_x(at): which share counts how much for the value at any place, public.

    Formula: λ_x(z) = Π (z − x') / ((z − x)·Π_{x'≠x} (x − x')).
    Cost: n² products of small numbers and one inversion.
    """
    _check_xs(xs)
    q = group.order
    at %= q
    if at in xs:
        return tuple([int(x == at) for x in xs])
    below = [prod([x - other for other in xs if other != x]) * (at - x) % q for x in xs]
    above = prod([at - x for x in xs]) % q
    return tuple([above * inverse % q for inverse in _inverses(below, q)])


def _inverses(values: Sequence[int], q: int) -> list[int]:
    """Invert all with one inversion (Montgomery)."""
    products = [1]
    for value in values:
        products.append(products[-1] * value % q)
    inverse, inverted = pow(products[-1], -1, q), []
    for value, before in zip(reversed(values), reversed(products[:-1]), strict=True):
        inverted.append(inverse * before % q)
        inverse = inverse * value % q
    return inverted[::-1]


def _split_from_parts(secret: int, higher: Sequence[int], xs: Sequence[int], group: Group) -> list[Share]:
    """Evaluate the polynomial with given coefficients: for vectors, and with fresh ones for `split`."""
    shares = []
    for x in xs:
        y = 0
        for coefficient in reversed((secret, *higher)):
            y = (y * x + coefficient) % group.order
        shares.append(Share(x, y))
    return shares


def _evaluate(shares: Sequence[Share], coefficients: Sequence[int], group: Group) -> int:
    return sum(share.y * k for share, k in zip(shares, coefficients, strict=True)) % group.order


def _check_split(secret: int, threshold: int, xs: Sequence[int], group: Group) -> None:
    _check_xs(xs)
    if not 0 <= secret < group.order:
        raise InputError("A shared secret must be at least 0 and below the group's order.")
    if not 1 <= threshold <= len(xs):
        raise InputError(f"The threshold must be from 1 to the {len(xs)} shares. Got {threshold} instead.")


def _check_recover(xs: Sequence[int], threshold: int) -> None:
    _check_xs(xs)
    if threshold < 1 or len(xs) < threshold:
        raise InputError(f"Recovering needs at least {threshold} shares. Got {len(xs)} instead.")


def _check_xs(xs: Sequence[int]) -> None:
    for x in xs:
        _check_x(x)
    if len(set(xs)) != len(xs):
        raise InputError("Two shares lie at the same place: each needs a place of its own.")


def _check_x(x: int) -> int:
    if not 1 <= x < 1 << 8 * _X_SIZE:
        raise InputError(
            f"A share lies at a place from 1 to 2^{8 * _X_SIZE} − 1; at 0 lies the secret itself."
        )
    return x
