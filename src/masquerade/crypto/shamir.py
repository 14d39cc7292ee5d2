r"""Shamir shares of 31-byte seeds at the small positions 1 … k, with fast dealing and opening.

Formula: share x is f(x) mod 2²⁵⁵−19, f uniform of degree t − 1 with f(0) the seed. For positions S = {1 … r}
\ M the coefficient of share x at 0 is (−1)^(x−1) C(r, x) Π_{m∈M} (m − x)/m: integers up to one common
divisor.
Cost: t additions and small multiplications per share, one reduction and (once per divisor) one inversion per
seed. The server opens one seed per user.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from masquerade.crypto.errors import DecodingError, SharesInconsistent

FIELD = 2**255 - 19
SEED_SIZE = 31
SHARE_SIZE = 32
MOST_TRIES = 300


def new_seed() -> bytes:
    """Return a fresh seed."""
    return secrets.token_bytes(SEED_SIZE)


def deal(seed: bytes, threshold: int, xs: Sequence[int]) -> list[bytes]:
    """Return the shares of a seed at positions `xs`: any `threshold` open it, fewer reveal nothing."""
    higher = [secrets.randbelow(FIELD) for _ in range(threshold - 1)]
    return _deal_from_parts(seed, higher, xs)


def _deal_from_parts(seed: bytes, higher: Sequence[int], xs: Sequence[int]) -> list[bytes]:
    """Return the shares for given coefficients, the highest first."""
    constant = int.from_bytes(seed, "big")
    shares = []
    for x in xs:
        y = 0
        for coefficient in higher:
            y = y * x + coefficient
        shares.append(((y * x + constant) % FIELD).to_bytes(SHARE_SIZE, "big"))
    return shares


def decode_share(share: bytes) -> int:
    """Return the field element that a share encodes."""
    value = int.from_bytes(share, "big")
    if len(share) != SHARE_SIZE or value >= FIELD:
        raise DecodingError(f"A share has {SHARE_SIZE} bytes and a value below the field's order.")
    return value


def open_seed(shares: Mapping[int, int], threshold: int) -> bytes | None:
    """Return the seed of the shares at the lowest `threshold` positions; None if they do not give a seed."""
    xs = sorted(shares)[:threshold]
    last = xs[-1]
    missing = sorted(set(range(1, last + 1)).difference(xs))
    total = 0
    for x in xs:
        coefficient = math.comb(last, x) if x % 2 else -math.comb(last, x)
        for gap in missing:
            coefficient *= gap - x
        total += coefficient * shares[x]
    value = total * inverse(math.prod(missing)) % FIELD
    return None if value >> 8 * SEED_SIZE else value.to_bytes(SEED_SIZE, "big")


@lru_cache(maxsize=1 << 16)
def inverse(value: int) -> int:
    """Return the inverse of a field element."""
    return pow(value, -1, FIELD)


def open_checked(
    shares: Mapping[int, int], threshold: int, right: Callable[[bytes], bool]
) -> tuple[bytes, list[int]]:
    """Return the seed that passes a check, and the positions of wrong shares.

    If the first `threshold` shares fail, random choices are tried. With one wrong share among s, a choice of
    t shares passes with probability (s − t)/s.
    """
    seed = open_seed(shares, threshold)
    if seed is not None and right(seed):
        return seed, []
    places = sorted(shares)
    for _ in range(MOST_TRIES if len(places) > threshold else 0):
        used = {x: shares[x] for x in secrets.SystemRandom().sample(places, threshold)}
        seed = open_seed(used, threshold)
        if seed is not None and right(seed):
            return seed, [x for x in places if x not in used and not agrees(used, x, shares[x], threshold)]
    raise SharesInconsistent("The shares do not open the seed that was committed to: some of them are wrong.")


def agrees(shares: Mapping[int, int], x: int, y: int, threshold: int) -> bool:
    """Return True if a further share is on the polynomial, so that it opens the same seed as the others."""
    first = min(shares)
    exchanged = {place: value for place, value in shares.items() if place != first} | {x: y}
    return open_seed(exchanged, threshold) == open_seed(shares, threshold)
