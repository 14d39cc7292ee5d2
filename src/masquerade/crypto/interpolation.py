"""Interpolation in the exponent: a polynomial's value at one place from points at others.

Formula: f(z) = Σ λ_x(z)·f(x), λ_x(z) = Π_{x'≠x} (z − x')/(x − x'), for any f of degree below the number of
places; on points f(x)·H the same sum gives f(z)·H, and nobody learns f.

Secrets are shared elsewhere, each time quickly in a field of its own: `crypto.seed_shares`
deals and opens seeds at the places 1 … k, one of every user; `crypto.class_secrets` works in the field
2⁶¹ − 1, compiled, on secrets that are derived and not drawn: a million shares at once, bad ones among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod

from masquerade.core.errors import InputError
from masquerade.crypto.group import Group, Point

_MOST_PLACE = 2**32 - 1


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


def _check_xs(xs: Sequence[int]) -> None:
    if not all(1 <= x <= _MOST_PLACE for x in xs):
        raise InputError("A share lies at a place from 1 to 2^32 − 1; at 0 lies the secret itself.")
    if len(set(xs)) != len(xs):
        raise InputError("Two shares lie at the same place: each needs a place of its own.")
