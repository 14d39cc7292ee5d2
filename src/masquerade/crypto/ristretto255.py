"""ristretto255 (RFC 9496) by libsodium, for protocols that hash to the group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import reduce
from pathlib import Path
from typing import ClassVar, Literal, final

from masquerade.crypto.errors import DecodingError
from masquerade.crypto.group import SCALAR_SIZE, Group, Point, Secret, expand_message
from masquerade.crypto.libsodium import provide

provide()
try:
    import rbcl  # type: ignore[import-untyped]
    from rbcl._sodium import _sodium  # type: ignore[import-untyped]
except ImportError as error:
    raise ImportError("masquerade.crypto needs rbcl: pip install 'masquerade[crypto]'.") from error


_SIZE = 32
_ZERO = bytes(_SIZE)
_UNIFORM = 64

# rbcl unpacks libsodium into a temporary file in every process and leaves it there
with suppress(OSError):  # some systems lock the file of a loaded library
    Path(_sodium._name).unlink(missing_ok=True)  # noqa: SLF001


@final
class _Ristretto255(Group):
    """ristretto255: 32-byte points, each validated when decoded, so that libsodium never fails silently.

    Cost: about 70 µs per multiplication, 22 µs by the generator, 6 µs per decoding, 19 µs per addition.
    """

    name: ClassVar[str] = "ristretto255"
    order: ClassVar[int] = 2**252 + 27742317777372353535851937790883648493
    point_size: ClassVar[int] = _SIZE
    byteorder: ClassVar[Literal["big", "little"]] = "little"

    def __init__(self) -> None:
        self.generator = self.multiply_generator(self.secret(1))

    def decode(self, encoding: bytes) -> Point:
        """Return the point of a canonical encoding; raise DecodingError for the identity, 32 zeros."""
        self._check_length(encoding)
        encoding = bytes(encoding)
        if encoding == _ZERO or not rbcl.crypto_core_ristretto255_is_valid_point(encoding):
            raise DecodingError("A point of ristretto255 must be canonical and not the identity.")
        return Point(self, encoding, encoding)

    def hash_to_group(self, message: bytes, domain: bytes) -> Point:
        """Return a point with unknown discrete logarithm (RFC 9497, section 4.1: HashToGroup)."""
        return self.from_uniform(expand_message(message, domain, _UNIFORM))

    def hash_to_scalar(self, message: bytes, domain: bytes) -> int:
        """Return a public scalar modulo the order (RFC 9497, section 4.1: HashToScalar)."""
        return int.from_bytes(expand_message(message, domain, _UNIFORM), "little") % self.order

    def from_uniform(self, uniform: bytes) -> Point:
        """Return the point of 64 uniform bytes (RFC 9496, section 4.3.4)."""
        if len(uniform) != _UNIFORM:
            raise DecodingError(
                f"A point is derived from {_UNIFORM} uniform bytes. Got {len(uniform)} instead."
            )
        return self._result(rbcl.crypto_core_ristretto255_from_hash(bytes(uniform)))

    def sum_points(self, points: Iterable[Point]) -> Point:
        addends = (self._bytes(point) for point in points)
        first = next(addends, _ZERO)
        return self._result(reduce(rbcl.crypto_core_ristretto255_add, addends, first))

    def negate(self, point: Point) -> Point:
        return self._result(rbcl.crypto_core_ristretto255_sub(_ZERO, self._bytes(point)))

    def multiply(self, point: Point, secret: Secret) -> Point:
        self._check_ours(secret, Secret)
        if point.is_identity:
            return point
        return self._result(rbcl.crypto_scalarmult_ristretto255(secret._encoding, self._bytes(point)))  # noqa: SLF001

    def multiply_generator(self, secret: Secret) -> Point:
        self._check_ours(secret, Secret)
        return self._result(rbcl.crypto_scalarmult_ristretto255_base(secret._encoding))  # noqa: SLF001

    def multiply_public(self, point: Point, scalar: int) -> Point:
        """Return scalar·point, in constant time because libsodium has no other method."""
        scalar %= self.order
        if scalar == 0 or point.is_identity:
            return self.identity
        encoded = scalar.to_bytes(SCALAR_SIZE, "little")
        if point is self.generator:
            return self._result(rbcl.crypto_scalarmult_ristretto255_base(encoded))
        return self._result(rbcl.crypto_scalarmult_ristretto255(encoded, self._bytes(point)))

    def combine_public(self, points: Sequence[Point], scalars: Sequence[int]) -> Point:
        """Return the sum of scalar·point over many public pairs, one multiplication each."""
        self._check_pairs(points, scalars)
        products = [self.multiply_public(p, k) for p, k in zip(points, scalars, strict=True)]
        return self.sum_points([product for product in products if not product.is_identity])

    def respond(self, nonce: Secret, challenge: int, witness: Secret) -> int:
        self._check_ours(nonce, Secret)
        self._check_ours(witness, Secret)
        product = rbcl.crypto_core_ristretto255_scalar_mul(self.encode_scalar(challenge), witness._encoding)  # noqa: SLF001
        return self.decode_scalar(rbcl.crypto_core_ristretto255_scalar_add(nonce._encoding, product))  # noqa: SLF001

    def _encode(self, point: Point) -> bytes:
        return self._bytes(point)

    def _bytes(self, point: Point) -> bytes:
        self._check_ours(point, Point)
        return _ZERO if point.handle is None else bytes(point.handle)

    def _result(self, encoding: bytes) -> Point:
        return Point(self, None) if encoding == _ZERO else Point(self, encoding, encoding)


ristretto255 = _Ristretto255()


POINT_SIZE = ristretto255.point_size


def quotient(over: Secret, under: Secret) -> Secret:
    """Return over/under: the scalar that replaces the mask `under` by the mask `over`."""
    order = ristretto255.order
    return ristretto255.secret(over.reveal() * pow(under.reveal(), -1, order) % order)
