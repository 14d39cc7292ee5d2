"""secp256k1 by libsecp256k1, for protocols that add many points.

The low-level binding is used throughout: coincurve's own classes multiply secrets in variable time, abort on
an empty sum and parse hybrid encodings.

The library adds decoded points at 0.35 µs each, so sums of many public points are arranged as few long sums
on its own structures. It aborts the process on an empty sum and fails if a sum is the identity; the functions
here return None in either case.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Literal, final

try:
    from coincurve._libsecp256k1 import ffi, lib  # type: ignore[import-not-found]
    from coincurve.context import GLOBAL_CONTEXT
except ImportError as error:
    raise ImportError("masquerade.crypto needs coincurve: pip install 'masquerade[crypto]'.") from error

from masquerade.core.errors import InputError
from masquerade.crypto.errors import DecodingError
from masquerade.crypto.group import SCALAR_SIZE, Group, Point, Secret, expand_message

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_CONTEXT = GLOBAL_CONTEXT.ctx
_POINTER, _POINTERS = ffi.typeof("secp256k1_pubkey *"), ffi.typeof("secp256k1_pubkey *[]")
_ADDRESS = ffi.typeof("uintptr_t")
_SIZE, _DECODED = 33, ffi.sizeof("secp256k1_pubkey")
_CHUNK = 8192
_NARROW = 6  # values up to this number of bits are summed bit by bit
_ADDING, _CALLING = 0.35, 5.0  # microseconds per point and per sum, used only to choose the window
_FEW = 400  # below this number of points, one multiplication each is faster


@ffi.callback("int(unsigned char *, const unsigned char *, const unsigned char *, void *)")  # type: ignore[untyped-decorator]
def _whole_point(output: Any, x: Any, y: Any, _data: Any) -> int:
    """Write the full product instead of its hash, as the callback of the library's key agreement."""
    ffi.memmove(output, x, 32)
    ffi.memmove(output + 32, y, 32)
    return 1


@final
class _Secp256k1(Group):
    """secp256k1 with 33-byte encodings; points are stored as libsecp256k1 does, so sums are fast."""

    name: ClassVar[str] = "secp256k1"
    order: ClassVar[int] = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
    point_size: ClassVar[int] = _SIZE
    byteorder: ClassVar[Literal["big", "little"]] = "big"

    def __init__(self) -> None:
        self.generator = self.multiply_generator(self.secret(1))

    def decode(self, encoding: bytes) -> Point:
        """Return the point of a compressed encoding; raise DecodingError for any other encoding."""
        if len(encoding) != _SIZE:
            self._check_length(encoding)
        encoding = bytes(encoding)
        handle = ffi.new(_POINTER)
        # the library also parses hybrid encodings; none has 33 bytes, but the first byte is checked anyway
        if encoding[0] not in (2, 3) or not lib.secp256k1_ec_pubkey_parse(_CONTEXT, handle, encoding, _SIZE):
            raise DecodingError("A point of secp256k1 must be compressed, canonical and on the curve.")
        return Point(self, handle, encoding)

    def independent_point(self, label: bytes) -> Point:
        """Return a point with unknown logarithm for a public label (its time depends on the label)."""
        for attempt in range(256):  # each attempt succeeds with probability one half
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
        """Return the sum of concatenated encodings of points, each decoded strictly."""
        return Point(self, sum_of_encodings(encodings, workers))

    def negate(self, point: Point) -> Point:
        if self._ours(point).handle is None:
            return point
        handle = self._copy(point)
        lib.secp256k1_ec_pubkey_negate(_CONTEXT, handle)
        return Point(self, handle)

    def multiply(self, point: Point, secret: Secret) -> Point:
        """Return secret·point in constant time, by the multiplication of libsecp256k1's key agreement."""
        self._check_ours(secret, Secret)
        if self._ours(point).handle is None:
            return point
        product = bytearray(65)
        product[0] = 4
        written = ffi.from_buffer(product) + 1
        done = lib.secp256k1_ecdh(_CONTEXT, written, point.handle, secret._encoding, _whole_point, ffi.NULL)  # noqa: SLF001
        handle = ffi.new(_POINTER)
        if not done or not lib.secp256k1_ec_pubkey_parse(_CONTEXT, handle, bytes(product), 65):
            raise RuntimeError("libsecp256k1 failed to multiply a valid point by a valid scalar")
        return Point(self, handle)

    def multiply_generator(self, secret: Secret) -> Point:
        self._check_ours(secret, Secret)
        handle = ffi.new(_POINTER)
        if not lib.secp256k1_ec_pubkey_create(_CONTEXT, handle, secret._encoding):  # noqa: SLF001
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
        """Return the sum of scalar·point over many public pairs, bit by bit in shared buckets."""
        self._check_pairs(points, scalars)
        order = self.order
        reduced = [scalar % order for scalar in scalars]
        # two lists, not one of pairs: a million pairs would keep the garbage collector busy
        handles = [self._ours(point).handle for point in points]
        if len(points) >= _FEW and "numpy" in sys.modules:  # else one by one: devices load no NumPy
            return Point(self, sum_in_buckets(handles, reduced))
        products = [self.multiply_public(p, k) for p, k in zip(points, reduced, strict=True)]
        return self.sum_points(products)

    def respond(self, nonce: Secret, challenge: int, witness: Secret) -> int:
        self._check_ours(nonce, Secret)
        self._check_ours(witness, Secret)
        scalar = ffi.new("unsigned char[32]", witness._encoding)  # noqa: SLF001
        if not lib.secp256k1_ec_seckey_tweak_mul(_CONTEXT, scalar, self.encode_scalar(challenge)):
            raise InputError("A challenge must not be zero.")
        if not lib.secp256k1_ec_seckey_tweak_add(_CONTEXT, scalar, nonce._encoding):  # noqa: SLF001
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


def combine_pointers(handles: Sequence[Any]) -> Any:
    """Return the sum of decoded points; None if it is the identity."""
    return _combine(ffi.new(_POINTERS, list(handles)), len(handles)) if handles else None


def sum_of_encodings(encodings: bytes, workers: int) -> Any:
    """Return the sum of concatenated compressed points, or None; threads decode chunks in parallel.

    Cost: 6 µs per point for decoding, nearly all of it outside the interpreter's lock.
    """
    if len(encodings) % _SIZE:
        raise DecodingError(f"Points of secp256k1 have {_SIZE} bytes each; the last is incomplete.")
    if workers < 1:
        raise InputError(f"Sums need at least one worker. Got {workers} instead.")
    chunks = [(encodings, at) for at in range(0, len(encodings) // _SIZE, _CHUNK)]
    if len(chunks) <= 1 or workers == 1:
        parts = [_sum_chunk(chunk) for chunk in chunks]
    else:
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415  (not needed on devices)

        with ThreadPoolExecutor(workers) as pool:
            parts = list(pool.map(_sum_chunk, chunks))
    return combine_pointers([part for part in parts if part is not None])


def _sum_chunk(chunk: tuple[bytes, int]) -> Any:
    encodings, first = chunk
    n = min(_CHUNK, len(encodings) // _SIZE - first)
    parse, source = lib.secp256k1_ec_pubkey_parse, ffi.from_buffer(encodings) + _SIZE * first
    decoded = ffi.new("secp256k1_pubkey[]", n)
    for i in range(n):
        prefix = encodings[_SIZE * (first + i)]
        if not (2 <= prefix <= 3 and parse(_CONTEXT, decoded + i, source + _SIZE * i, _SIZE)):
            raise DecodingError(f"Point {first + i} of a sum must be compressed, canonical and on the curve.")
    return _sum_rows(_as_rows(decoded, n))


def sum_in_buckets(handles: Sequence[Any], scalars: Sequence[int]) -> Any:
    """Return Σ scalar·point, or None if it is the identity; scalars are below 2^256.

    Formula: a scalar is Σ_j d_j 2^(jw) with digits −2^(w−1) < d ≤ 2^(w−1). For each j the points of equal |d|
    are added into a bucket, negated if d is negative; buckets are then added by the bits of |d|.
    Cost: n·256/w additions and 256/w·2^(w−1) buckets; scalars of half the length cost half.
    Reference: Pippenger, "On the evaluation of powers and monomials" (1980).
    """
    if None in handles:  # multiples of the identity are skipped
        scalars = [k for k, handle in zip(scalars, handles, strict=True) if handle is not None]
        handles = [handle for handle in handles if handle is not None]
    if not handles:
        return None
    import numpy as np  # noqa: PLC0415  (not needed on devices)

    n = len(handles)
    points = np.empty((2 * n, _DECODED), np.uint8)
    points[:n] = np.frombuffer(b"".join([ffi.buffer(handle) for handle in handles]), np.uint8).reshape(n, -1)
    points[n:] = points[:n]
    _negate_all(points[n:])
    digits = np.frombuffer(b"".join([k.to_bytes(SCALAR_SIZE + 4, "little") for k in scalars]), np.uint8)
    digits = digits.reshape(n, SCALAR_SIZE + 4)
    length = sum([k.bit_length() for k in scalars])
    width = min(range(4, 16), key=lambda w: _ADDING * length / w + -(-257 // w) * 2 ** (w - 1) * _CALLING)
    bits: list[Any] = []
    carried = np.zeros(n, np.uint32)
    for start in range(0, 8 * SCALAR_SIZE + 1, width):
        values = _window(digits, start, width) + carried
        negative = values > 1 << (width - 1)
        carried = negative.astype(np.uint32)
        values[negative] = (1 << width) - values[negative]
        used = np.flatnonzero(values)
        bits.extend(_sums_by_bit(points, used + n * negative[used], values[used].astype(np.uint16), width))
    total = None
    for part in reversed(bits):
        total = combine_pointers([p for p in (total, total, part) if p is not None])
    return total


def _negate_all(points: NDArray[np.uint8]) -> None:
    """Negate decoded points in place."""
    first, negate = ffi.from_buffer("secp256k1_pubkey[]", points), lib.secp256k1_ec_pubkey_negate
    for i in range(len(points)):
        negate(_CONTEXT, first + i)


def _window(digits: NDArray[np.uint8], start: int, width: int) -> NDArray[np.uint32]:
    """Return bits start … start+width-1 of each scalar."""
    import numpy as np  # noqa: PLC0415  (not needed on devices)

    at, shift = divmod(start, 8)
    three = digits[:, at].astype(np.uint32)
    three |= digits[:, at + 1].astype(np.uint32) << np.uint32(8)
    three |= digits[:, at + 2].astype(np.uint32) << np.uint32(16)
    return (three >> np.uint32(shift)) & np.uint32((1 << width) - 1)


def _sums_by_bit(
    points: NDArray[np.uint8], chosen: NDArray[np.intp], values: NDArray[np.uint16], width: int
) -> list[Any]:
    """Return, per bit of `width` bits, the sum of the chosen points whose nonzero value has that bit.

    Points of equal value are added once. Many sums are then added by the lower and the upper half of their
    value, which takes two additions each instead of one per bit.
    """
    import numpy as np  # noqa: PLC0415  (not needed on devices)

    order = np.argsort(values, kind="stable")
    # contiguous in memory: fetching scattered points would take longer than adding them
    pointers = _pointers(ordered := points.take(chosen[order], axis=0))
    inside = values[order]
    starts = np.flatnonzero(np.diff(inside, prepend=0))
    found = inside[starts]
    sums = ffi.new("secp256k1_pubkey[]", len(found))
    combine, context = lib.secp256k1_ec_pubkey_combine, _CONTEXT
    kept: list[int] = []
    for place, (start, end) in enumerate(pairwise([*starts.tolist(), len(ordered)])):
        if combine(context, sums + len(kept), pointers + start, end - start):  # else it is the identity
            kept.append(place)
    found, summed = found[kept], _as_rows(sums, len(kept))
    if width <= _NARROW:
        return [_sum_rows(summed[found >> bit & 1 == 1]) for bit in range(width)]
    half = width // 2
    parts = ((found & ((1 << half) - 1), half), (found >> half, width - half))
    bits: list[Any] = []
    for part, size in parts:
        places = np.flatnonzero(part)
        bits += _sums_by_bit(summed, places, part[places].astype(np.uint16), size)
    return bits


def _as_rows(points: Any, n: int) -> NDArray[np.uint8]:
    import numpy as np  # noqa: PLC0415  (not needed on devices)

    return np.frombuffer(ffi.buffer(points), np.uint8).reshape(-1, _DECODED)[:n]


def _sum_rows(rows: NDArray[np.uint8]) -> Any:
    return _combine(_pointers(rows), len(rows)) if len(rows) else None


def _pointers(decoded: NDArray[np.uint8]) -> Any:
    """Return a pointer to each row; the rows must outlive it."""
    import numpy as np  # noqa: PLC0415  (not needed on devices)

    first = int(ffi.cast(_ADDRESS, ffi.from_buffer(decoded))) if decoded.size else 0
    addresses = first + _DECODED * np.arange(len(decoded), dtype=np.uint64)
    pointers = ffi.new(_POINTERS, len(decoded))
    ffi.memmove(pointers, addresses, addresses.nbytes)
    return pointers


def _combine(pointers: Any, n: int) -> Any:
    total = ffi.new(_POINTER)
    # it fails only if the sum is the identity: n is at least one and all points are valid
    return total if lib.secp256k1_ec_pubkey_combine(_CONTEXT, total, pointers, n) else None


secp256k1 = _Secp256k1()
