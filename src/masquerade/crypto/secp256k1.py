"""secp256k1 by libsecp256k1, for protocols that add up many points.

The low-level binding is used throughout: coincurve's own classes multiply secrets in variable time, abort on
an empty sum and parse hybrid encodings.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Literal, final

try:
    from coincurve._libsecp256k1 import ffi, lib  # type: ignore[import-not-found]
    from coincurve.context import GLOBAL_CONTEXT
except ImportError as error:
    raise ImportError("masquerade.crypto needs coincurve: pip install 'masquerade[crypto]'.") from error

from masquerade.core.errors import InputError
from masquerade.crypto.errors import DecodingError
from masquerade.crypto.group import SCALAR_SIZE, Group, Point, Secret, expand_message
from masquerade.crypto.point_sums import combine_pointers, sum_in_buckets, sum_of_encodings

_CONTEXT = GLOBAL_CONTEXT.ctx
_POINTER = ffi.typeof("secp256k1_pubkey *")
_SIZE = 33
_WINDOWS, _DIGITS = SCALAR_SIZE, 256
_FEW = 400  # below this many points, one multiplication each is the cheaper way


@ffi.callback("int(unsigned char *, const unsigned char *, const unsigned char *, void *)")  # type: ignore[untyped-decorator]
def _whole_point(output: Any, x: Any, y: Any, _data: Any) -> int:
    """Hand out the whole product where a key agreement would hash it."""
    ffi.memmove(output, x, 32)
    ffi.memmove(output + 32, y, 32)
    return 1


@final
class _Secp256k1(Group):
    """secp256k1 with 33-byte encodings; a point is libsecp256k1's own, so sums cost 0.35 µs a point."""

    name: ClassVar[str] = "secp256k1"
    order: ClassVar[int] = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
    point_size: ClassVar[int] = _SIZE
    byteorder: ClassVar[Literal["big", "little"]] = "big"

    def __init__(self) -> None:
        self.generator = self.multiply_generator(self.secret(1))

    def decode(self, encoding: bytes) -> Point:
        """Return the point of a compressed encoding; hybrid and uncompressed ones are refused."""
        if len(encoding) != _SIZE:
            self._check_length(encoding)
        encoding = bytes(encoding)
        handle = ffi.new(_POINTER)
        # the library parses hybrid encodings too; not in 33 bytes, but the first byte is checked all the same
        if encoding[0] not in (2, 3) or not lib.secp256k1_ec_pubkey_parse(_CONTEXT, handle, encoding, _SIZE):
            raise DecodingError("A point of secp256k1 must be compressed, canonical and on the curve.")
        return Point(self, handle, encoding)

    def independent_point(self, label: bytes) -> Point:
        """Return a point whose logarithm nobody knows, from a public label (its time tells the label)."""
        for attempt in range(256):  # each succeeds with probability one half
            x = expand_message(label + bytes([attempt]), b"masquerade-secp256k1-independent-point", 32)
            try:
                return self.decode(b"\x02" + x)
            except DecodingError:
                continue
        raise InputError("No point was found for this label: choose another.")

    def sum_points(self, points: Iterable[Point]) -> Point:
        handles = [point.handle for point in map(self._ours, points) if point.handle is not None]
        return Point(self, combine_pointers(handles))

    def sum_encoded(self, encodings: bytes, *, workers: int = 2) -> Point:
        """Return the sum of many points given as one run of encodings, each decoded strictly."""
        return Point(self, sum_of_encodings(encodings, workers))

    def negate(self, point: Point) -> Point:
        if self._ours(point).handle is None:
            return point
        handle = self._copy(point)
        lib.secp256k1_ec_pubkey_negate(_CONTEXT, handle)
        return Point(self, handle)

    def multiply(self, point: Point, secret: Secret) -> Point:
        """Return secret·point in constant time: the multiplication of libsecp256k1's key agreement."""
        self._check_ours(secret, Secret)
        if self._ours(point).handle is None:
            return point
        product = bytearray(65)
        product[0] = 4
        written = ffi.from_buffer(product) + 1
        done = lib.secp256k1_ecdh(_CONTEXT, written, point.handle, secret._encoded, _whole_point, ffi.NULL)  # noqa: SLF001
        handle = ffi.new(_POINTER)
        if not done or not lib.secp256k1_ec_pubkey_parse(_CONTEXT, handle, bytes(product), 65):
            raise RuntimeError("libsecp256k1 failed to multiply a valid point by a valid scalar")
        return Point(self, handle)

    def multiply_generator(self, secret: Secret) -> Point:
        self._check_ours(secret, Secret)
        handle = ffi.new(_POINTER)
        if not lib.secp256k1_ec_pubkey_create(_CONTEXT, handle, secret._encoded):  # noqa: SLF001
            raise RuntimeError("libsecp256k1 failed to multiply the generator by a valid scalar")
        return Point(self, handle)

    def multiply_public(self, point: Point, scalar: int) -> Point:
        scalar %= self.order
        if scalar == 0 or self._ours(point).handle is None:
            return self.identity
        encoded = scalar.to_bytes(SCALAR_SIZE, "big")
        handle = self._copy(point)
        if not lib.secp256k1_ec_pubkey_tweak_mul(_CONTEXT, handle, encoded):
            raise RuntimeError("libsecp256k1 failed to multiply a valid point by a valid scalar")
        return Point(self, handle)

    def combine_public(self, points: Sequence[Point], scalars: Sequence[int]) -> Point:
        """Return the sum of scalar·point over many public pairs: bit by bit, in shared buckets."""
        self._check_pairs(points, scalars)
        order = self.order
        reduced = [scalar % order for scalar in scalars]
        # two lists, not one of pairs: a million pairs would keep the garbage collector busy
        handles = [self._ours(point).handle for point in points]
        if len(points) >= _FEW:
            return Point(self, sum_in_buckets(handles, reduced))
        terms: list[Any] = []
        for point, handle, scalar in zip(points, handles, reduced, strict=True):
            if handle is None or scalar == 0:
                continue
            if point.table is None:
                terms.append(self.multiply_public(point, scalar).handle)
            else:
                digits = zip(point.table, scalar.to_bytes(SCALAR_SIZE, "big"), strict=True)
                terms += [row[digit] for row, digit in digits if digit]
        return Point(self, combine_pointers(terms))

    def prepare(self, point: Point) -> Point:
        """Tabulate the multiples by every digit of a scalar in 40 ms: `combine_public` then only adds."""
        if self._ours(point).table is None and point.handle is not None:
            unit, rows = point, []
            for _ in range(_WINDOWS):
                row = [None, unit.handle]
                row += [None] * (_DIGITS - 2)
                for digit in range(2, _DIGITS):
                    row[digit] = combine_pointers([row[digit - 1], unit.handle])
                rows.append(row)
                unit = Point(self, combine_pointers([row[-1], unit.handle]))
            point.table = rows[::-1]
        return point

    def respond(self, nonce: Secret, challenge: int, witness: Secret) -> int:
        self._check_ours(nonce, Secret)
        self._check_ours(witness, Secret)
        scalar = ffi.new("unsigned char[32]", witness._encoded)  # noqa: SLF001
        if not lib.secp256k1_ec_seckey_tweak_mul(_CONTEXT, scalar, self.encode_scalar(challenge)):
            raise InputError("A challenge must not be zero.")
        if not lib.secp256k1_ec_seckey_tweak_add(_CONTEXT, scalar, nonce._encoded):  # noqa: SLF001
            return 0
        return self.decode_scalar(bytes(ffi.buffer(scalar)))

    def _ours(self, point: Point) -> Point:
        if point.group is not self:
            raise TypeError(f"{self.name} cannot work with a point of {point.group.name}")
        return point

    def _copy(self, point: Point) -> Any:
        return ffi.new(_POINTER, point.handle[0])

    def _encode(self, point: Point) -> bytes:
        output, size = bytearray(_SIZE), ffi.new("size_t *", _SIZE)
        lib.secp256k1_ec_pubkey_serialize(
            _CONTEXT, ffi.from_buffer(output), size, point.handle, lib.SECP256K1_EC_COMPRESSED
        )
        return bytes(output)


secp256k1 = _Secp256k1()
