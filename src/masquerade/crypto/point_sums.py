"""Sums of many points of secp256k1, on libsecp256k1's own structures; public data only.

The library adds decoded points at 0.35 µs each, so everything here is arranged as few long sums. It aborts
the process when asked for a sum of nothing and fails when a sum is the identity: both come back as None.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
from coincurve._libsecp256k1 import ffi, lib  # type: ignore[import-not-found]
from coincurve.context import GLOBAL_CONTEXT
from numpy.typing import NDArray

from masquerade.core.errors import InputError
from masquerade.crypto.errors import DecodingError

_CONTEXT = GLOBAL_CONTEXT.ctx
_POINTER, _POINTERS = ffi.typeof("secp256k1_pubkey *"), ffi.typeof("secp256k1_pubkey *[]")
_ADDRESS = ffi.typeof("uintptr_t")
_ENCODED = 33
_DECODED = ffi.sizeof("secp256k1_pubkey")
_CHUNK = 8192
_SCALAR = 32
_NARROW = 6  # bits of a value up to which sums are added bit by bit
_ADDING, _CALLING = 0.35, 5.0  # microseconds a point and a sum: they choose the window only


def combine_pointers(handles: Sequence[Any]) -> Any:
    """Return the sum of decoded points, or None when it is the identity."""
    return _combine(ffi.new(_POINTERS, list(handles)), len(handles)) if handles else None


def sum_of_encodings(encodings: bytes, workers: int) -> Any:
    """Return the sum of a run of compressed points, or None; chunks are decoded by threads side by side.

    Cost: 6 µs a point for decoding, nearly all of it outside the interpreter's lock.
    """
    if len(encodings) % _ENCODED:
        raise DecodingError(f"Points of secp256k1 have {_ENCODED} bytes each; the last is incomplete.")
    if workers < 1:
        raise InputError(f"Sums need at least one worker. Got {workers} instead.")
    chunks = [(encodings, at) for at in range(0, len(encodings) // _ENCODED, _CHUNK)]
    if len(chunks) <= 1 or workers == 1:
        parts = [_sum_chunk(chunk) for chunk in chunks]
    else:
        with ThreadPoolExecutor(workers) as pool:
            parts = list(pool.map(_sum_chunk, chunks))
    return combine_pointers([part for part in parts if part is not None])


def _sum_chunk(chunk: tuple[bytes, int]) -> Any:
    encodings, first = chunk
    n = min(_CHUNK, len(encodings) // _ENCODED - first)
    parse, source = lib.secp256k1_ec_pubkey_parse, ffi.from_buffer(encodings) + _ENCODED * first
    decoded = ffi.new("secp256k1_pubkey[]", n)
    for i in range(n):
        sign = encodings[_ENCODED * (first + i)]
        if not (2 <= sign <= 3 and parse(_CONTEXT, decoded + i, source + _ENCODED * i, _ENCODED)):
            raise DecodingError(f"Point {first + i} of a sum must be compressed, canonical and on the curve.")
    return _sum_rows(_as_rows(decoded, n))


def sum_in_buckets(handles: Sequence[Any], scalars: Sequence[int]) -> Any:
    """Return Σ scalar·point, or None when it is the identity; scalars are below 2^256.

    Formula: a scalar is Σ_j d_j 2^(jw) with digits −2^(w−1) < d ≤ 2^(w−1). For each j the points of equal |d|
    are added into a bucket, those of negative d negated; buckets are then added by the bits of |d|.
    Cost: n·256/w additions and 256/w·2^(w−1) buckets; scalars of half the length cost half.
    Reference: Pippenger, "On the evaluation of powers and monomials" (1980).
    """
    if None in handles:  # the identity, which has no multiples
        scalars = [k for k, handle in zip(scalars, handles, strict=True) if handle is not None]
        handles = [handle for handle in handles if handle is not None]
    if not handles:
        return None
    n = len(handles)
    points = np.empty((2 * n, _DECODED), np.uint8)
    points[:n] = np.frombuffer(b"".join([ffi.buffer(handle) for handle in handles]), np.uint8).reshape(n, -1)
    points[n:] = points[:n]
    _negate_all(points[n:])
    digits = np.frombuffer(b"".join([k.to_bytes(_SCALAR + 4, "little") for k in scalars]), np.uint8)
    digits = digits.reshape(n, _SCALAR + 4)
    length = sum([k.bit_length() for k in scalars])
    width = min(range(4, 16), key=lambda w: _ADDING * length / w + -(-257 // w) * 2 ** (w - 1) * _CALLING)
    bits: list[Any] = []
    carried = np.zeros(n, np.uint32)
    for start in range(0, 8 * _SCALAR + 1, width):
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
    """Negate decoded points where they are."""
    first, negate = ffi.from_buffer("secp256k1_pubkey[]", points), lib.secp256k1_ec_pubkey_negate
    for i in range(len(points)):
        negate(_CONTEXT, first + i)


def _window(digits: NDArray[np.uint8], start: int, width: int) -> NDArray[np.uint32]:
    """Return bits start … start+width-1 of every scalar."""
    at, shift = divmod(start, 8)
    three = digits[:, at].astype(np.uint32)
    three |= digits[:, at + 1].astype(np.uint32) << np.uint32(8)
    three |= digits[:, at + 2].astype(np.uint32) << np.uint32(16)
    return (three >> np.uint32(shift)) & np.uint32((1 << width) - 1)


def _sums_by_bit(
    points: NDArray[np.uint8], chosen: NDArray[np.intp], values: NDArray[np.uint16], width: int
) -> list[Any]:
    """Return for each of `width` bits the sum of the chosen points whose value has it; no value is zero.

    Points of equal value are added once. Many sums are in turn added by the lower and by the upper half of
    their value, which takes two additions each instead of one for every bit.
    """
    order = np.argsort(values, kind="stable")
    # side by side in memory: points far apart would cost more to fetch than to add
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
    return np.frombuffer(ffi.buffer(points), np.uint8).reshape(-1, _DECODED)[:n]


def _sum_rows(rows: NDArray[np.uint8]) -> Any:
    return _combine(_pointers(rows), len(rows)) if len(rows) else None


def _pointers(decoded: NDArray[np.uint8]) -> Any:
    """Return a pointer to each row; the rows must outlive it."""
    first = int(ffi.cast(_ADDRESS, ffi.from_buffer(decoded))) if decoded.size else 0
    addresses = first + _DECODED * np.arange(len(decoded), dtype=np.uint64)
    pointers = ffi.new(_POINTERS, len(decoded))
    ffi.memmove(pointers, addresses, addresses.nbytes)
    return pointers


def _combine(pointers: Any, n: int) -> Any:
    total = ffi.new(_POINTER)
    # it fails only where the sum is the identity: n is at least one and every point is valid
    return total if lib.secp256k1_ec_pubkey_combine(_CONTEXT, total, pointers, n) else None
