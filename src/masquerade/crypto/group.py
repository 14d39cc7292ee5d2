"""Groups of prime order: points, secret scalars and their operations.

Only a group creates a `Point`: by `Group.decode`, which is strict, or as the result of an operation. The
identity may be a result but never an input: it has no encoding. Multiplication by a `Secret` takes constant
time. Multiplication by a public ``int`` is faster; the two types prevent confusion.
"""

from __future__ import annotations

import hashlib
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import isqrt, prod
from typing import Any, ClassVar, Literal, NoReturn, final

from masquerade.core.errors import InputError
from masquerade.crypto.errors import DecodingError, KeySpent, LogOutOfRange

SCALAR_SIZE = 32
LARGEST = 10**7  # largest discrete logarithm that is searched for
_DIGEST, _BLOCK = 64, 128  # sizes of SHA-512


@final
class Secret:
    """A secret scalar between 1 and the group's order minus one.

    It does not print its value and cannot be pickled; only `reveal` returns it. `wipe` overwrites the bytes
    stored here. Integers that Python made from them, and copies in libraries, are freed without being
    overwritten; Python cannot promise more.
    """

    __slots__ = ("_held", "group")

    def __init__(self, group: Group, encoded: bytes) -> None:
        if group.decode_scalar(encoded) == 0:
            raise InputError("A secret must not be zero.")
        self.group, self._held = group, bytearray(encoded)

    @property
    def _encoding(self) -> bytes:
        """The encoded scalar, for libraries."""
        if not any(self._held):
            raise KeySpent("This secret was destroyed.")
        return bytes(self._held)

    def reveal(self) -> int:
        """Return the scalar, for sharing it or for arithmetic with a public result."""
        return int.from_bytes(self._encoding, self.group.byteorder)

    def wipe(self) -> None:
        """Overwrite the secret; later use raises `KeySpent`."""
        self._held[:] = bytes(len(self._held))

    def __repr__(self) -> str:
        return f"Secret({self.group.name})"

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        raise TypeError("a Secret is not pickled; seal its encoding instead")


@final
class Point:
    """An element of a group: immutable, compared by its encoding, with ``+``, ``-`` and negation."""

    __slots__ = ("_encoding", "group", "handle")

    def __init__(self, group: Group, handle: Any, encoding: bytes | None = None) -> None:
        self.group, self.handle, self._encoding = group, handle, encoding

    @property
    def is_identity(self) -> bool:
        """Return True if this is the identity."""
        return self.handle is None

    def encode(self) -> bytes:
        """Return the canonical encoding; raise InputError for the identity, which has none."""
        if self.handle is None:
            raise InputError(f"The identity of {self.group.name} has no encoding and is never sent.")
        return self.hash_bytes

    @property
    def hash_bytes(self) -> bytes:
        """Return the encoding for hashing and comparison: the identity is all zeros, which never decodes."""
        if self._encoding is None:
            self._encoding = bytes(self.group.point_size) if self.handle is None else self.group._encode(self)  # noqa: SLF001
        return self._encoding

    def __add__(self, other: Point) -> Point:
        return self.group.sum_points((self, other))

    def __sub__(self, other: Point) -> Point:
        return self.group.sum_points((self, self.group.negate(other)))

    def __neg__(self) -> Point:
        return self.group.negate(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Point):
            return NotImplemented
        return self.group is other.group and self.hash_bytes == other.hash_bytes

    def __hash__(self) -> int:
        return hash(self.hash_bytes)

    def __repr__(self) -> str:
        return f"Point({self.group.name}, {'identity' if self.handle is None else self.hash_bytes.hex()})"

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        raise TypeError("a Point is not pickled; send its encoding and decode it strictly")


class Group(ABC):
    """A group of prime order with a fixed generator: `secp256k1` or `ristretto255`."""

    name: ClassVar[str]
    order: ClassVar[int]
    point_size: ClassVar[int]
    byteorder: ClassVar[Literal["big", "little"]]
    generator: Point

    @abstractmethod
    def decode(self, encoding: bytes) -> Point:
        """Return the point of a canonical encoding: exact length, on the curve, not the identity."""

    @abstractmethod
    def sum_points(self, points: Iterable[Point]) -> Point:
        """Return the sum; the identity if there are no points or they cancel out."""

    @abstractmethod
    def negate(self, point: Point) -> Point:
        """Return the inverse."""

    @abstractmethod
    def multiply(self, point: Point, secret: Secret) -> Point:
        """Return secret·point in constant time."""

    @abstractmethod
    def multiply_generator(self, secret: Secret) -> Point:
        """Return secret·G in constant time."""

    @abstractmethod
    def multiply_public(self, point: Point, scalar: int) -> Point:
        """Return scalar·point for a public scalar, reduced by the order; its time depends on the scalar."""

    @abstractmethod
    def combine_public(self, points: Sequence[Point], scalars: Sequence[int]) -> Point:
        """Return the sum of scalar·point over many public pairs."""

    @abstractmethod
    def respond(self, nonce: Secret, challenge: int, witness: Secret) -> int:
        """Return nonce + challenge·witness modulo the order, in constant time."""

    @abstractmethod
    def _encode(self, point: Point) -> bytes: ...

    @property
    def identity(self) -> Point:
        """Return the identity, which is never sent."""
        return Point(self, None)

    def random_secret(self) -> Secret:
        """Return a fresh uniform secret from the operating system's randomness."""
        return self.secret(1 + secrets.randbelow(self.order - 1))

    def secret(self, value: int) -> Secret:
        """Return a given nonzero integer as a secret of this group."""
        return Secret(self, self.encode_scalar(value % self.order))

    def encode_scalar(self, value: int) -> bytes:
        """Return the 32-byte encoding of an integer below the order."""
        if not 0 <= value < self.order:
            raise InputError(f"A scalar of {self.name} must be at least 0 and below the group's order.")
        return value.to_bytes(SCALAR_SIZE, self.byteorder)

    def decode_scalar(self, encoding: bytes) -> int:
        """Return the integer that 32 bytes encode; raise DecodingError if it is not below the order."""
        if len(encoding) != SCALAR_SIZE:
            raise DecodingError(f"A scalar has {SCALAR_SIZE} bytes. Got {len(encoding)} instead.")
        value = int.from_bytes(encoding, self.byteorder)
        if value >= self.order:
            raise DecodingError(f"A scalar of {self.name} must be below the group's order.")
        return value

    def _check_pairs(self, points: Sequence[Point], scalars: Sequence[int]) -> None:
        if len(points) != len(scalars):
            raise InputError(
                f"Every point needs one scalar. Got {len(points)} points and {len(scalars)} scalars."
            )

    def _check_length(self, encoding: bytes) -> None:
        if len(encoding) != self.point_size:
            raise DecodingError(
                f"A point of {self.name} has {self.point_size} bytes. Got {len(encoding)} instead."
            )

    def _check_ours(self, thing: Point | Secret, kind: type[Point | Secret]) -> None:
        if not isinstance(thing, kind) or thing.group is not self:
            raise TypeError(f"{self.name} needs a {kind.__name__} of this group, not {type(thing).__name__}")

    def __repr__(self) -> str:
        return self.name

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        raise TypeError("a Group is named, not pickled")


def expand_message(message: bytes, domain: bytes, length: int) -> bytes:
    """Return `length` pseudorandom bytes of a message, different for each `domain`.

    Reference: RFC 9380, section 5.3.1, with SHA-512; RFC 9497 builds on it.
    """
    if not 1 <= len(domain) <= 255:
        raise InputError(f"The domain of a hash must have 1 to 255 bytes. Got {len(domain)} instead.")
    if not 1 <= length <= 255 * _DIGEST:
        raise InputError(f"A hash expands to between 1 and {255 * _DIGEST} bytes. Got {length} instead.")
    suffix = domain + bytes([len(domain)])
    first = hashlib.sha512(bytes(_BLOCK) + message + length.to_bytes(2, "big") + b"\x00" + suffix).digest()
    blocks = [hashlib.sha512(first + b"\x01" + suffix).digest()]
    for i in range(2, -(-length // _DIGEST) + 1):
        mixed = bytes(a ^ b for a, b in zip(first, blocks[-1], strict=True))
        blocks.append(hashlib.sha512(mixed + bytes([i]) + suffix).digest())
    return b"".join(blocks)[:length]


class SmallLog:
    """Discrete logarithms of small multiples: d with point = d·G for 0 ≤ d ≤ n, by baby and giant steps.

    Cost: √n additions to prepare the baby steps once, and at most √n additions per point; 20 ms for either
    with n = 10⁷ on secp256k1.

    >>> from masquerade.crypto.secp256k1 import secp256k1
    >>> logs = SmallLog(secp256k1, 1000)
    >>> logs.find(secp256k1.multiply_public(secp256k1.generator, 987))
    987
    """

    __slots__ = ("_baby", "_giant", "_n", "_stride")

    def __init__(self, group: Group, n: int) -> None:
        if not 0 <= n <= LARGEST:
            raise InputError(f"The bound of a sum must be from 0 to {LARGEST}. Got {n} instead.")
        self._n, self._stride = n, isqrt(n) + 1
        self._baby: dict[Point, int] = {}
        step = group.identity
        for d in range(self._stride):
            self._baby[step] = d
            step = step + group.generator
        self._giant = -step

    def find(self, point: Point) -> int:
        """Return d; raise `LogOutOfRange` if there is none: a vote, key or sum was invalid."""
        for giant in range(self._n // self._stride + 1):
            d = self._baby.get(point)
            if d is not None and d + giant * self._stride <= self._n:
                return d + giant * self._stride
            point = point + self._giant
        raise LogOutOfRange(f"The sum is not a whole number from 0 to {self._n}: an input was invalid.")


def interpolate_points(xs: Sequence[int], points: Sequence[Point], at: int, group: Group) -> Point:
    """Return f(at)·H from the points f(x)·H; the polynomial itself stays unknown.

    Other sharing schemes use other fields. `crypto.shamir` deals and opens one seed per user, with shares at
    the positions 1 … k. `crypto.class_secrets` recovers secrets in the field of 2⁶¹ − 1 elements, in compiled
    code, from a million shares at a time, some of which may be bad.
    """
    if len(points) != len(xs):
        raise InputError(f"Interpolation needs one point per position. Got {len(points)} for {len(xs)}.")
    return group.combine_public(points, lagrange(tuple(xs), at, group))


@lru_cache(maxsize=1024)
def lagrange(xs: tuple[int, ...], at: int, group: Group) -> tuple[int, ...]:
    """Return the Lagrange coefficients λ_x(at), the public weight of each share in the value at a position.

    Formula: f(z) = Σ λ_x(z)·f(x), λ_x(z) = Π (z − x') / ((z − x)·Π_{x'≠x} (x − x')), for any f of degree
    below the number of positions.
    Cost: n² products of small numbers and n inversions.
    """
    if not all(1 <= x < 2**32 for x in xs):
        raise InputError("The position of a share must be from 1 to 2^32 − 1; position 0 is the secret.")
    if len(set(xs)) != len(xs):
        raise InputError("Two shares have the same position: each needs its own.")
    q = group.order
    at %= q
    if at in xs:
        return tuple([int(x == at) for x in xs])
    above = prod([at - x for x in xs]) % q
    below = [prod([x - other for other in xs if other != x]) * (at - x) for x in xs]
    return tuple([above * pow(value, -1, q) % q for value in below])
