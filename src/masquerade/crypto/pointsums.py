"""Sums of many points of secp256k1, on libsecp256k1's own structures; public data only.

The library adds decoded points at 0.35 µs each, so everything here is arranged as few long sums. It aborts
the process when asked for a sum of nothing and fails when a sum is the identity: both come back as None.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
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
_ADDING, _CALLING = (
    0.35,
    5.0,
)  # microseconds: one point more in a sum, one sum more; they choose the window only


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
    return _combine(_pointers(np.frombuffer(ffi.buffer(decoded), np.uint8).reshape(n, _DECODED)), n)


def sum_in_buckets(handles: Sequence[Any], scalars: Sequence[int]) -> Any:
    """Return Σ scalar·point, or None when it is the identity.

    Formula: Σ_k 2^k T_k, where T_k is the sum of the points whose scalar has bit k. Points with the same
    window of w bits are added once into a bucket; each of the w sums T_k then adds whole buckets.
    Cost: n·256/w additions and 256/w·2^w buckets; scalars of half the length cost half.
    """
    if not handles:
        return None
    decoded = np.frombuffer(b"".join([ffi.buffer(handle) for handle in handles]), np.uint8)
    decoded = decoded.reshape(len(handles), _DECODED)
    digits = np.frombuffer(b"".join([k.to_bytes(_SCALAR + 3, "little") for k in scalars]), np.uint8)
    digits = digits.reshape(len(handles), _SCALAR + 3)
    width = min(range(4, 14), key=lambda w: -(-256 // w) * (_ADDING * len(handles) + 2**w * _CALLING))
    bits: list[Any] = []
    for start in range(0, 8 * _SCALAR, width):
        bits.extend(_sums_by_bit(decoded, _window(digits, start, width), width))
    total = None
    for part in reversed(bits):
        total = combine_pointers([p for p in (total, total, part) if p is not None])
    return total


def _window(digits: NDArray[np.uint8], start: int, width: int) -> NDArray[np.uint16]:
    """Return bits start … start+width-1 of every scalar."""
    at, shift = divmod(start, 8)
    three = digits[:, at].astype(np.uint32)
    three |= digits[:, at + 1].astype(np.uint32) << np.uint32(8)
    three |= digits[:, at + 2].astype(np.uint32) << np.uint32(16)
    return ((three >> np.uint32(shift)) & np.uint32((1 << width) - 1)).astype(np.uint16)


def _sums_by_bit(decoded: NDArray[np.uint8], window: NDArray[np.uint16], width: int) -> list[Any]:
    """Return for each bit of a window the sum of the points that have it; equal windows are summed once."""
    ends = np.cumsum(np.bincount(window, minlength=1 << width)).tolist()
    order = np.argsort(window, kind="stable")[ends[0] :]  # a window of zeros adds nothing
    # side by side in memory: points far apart would cost more to fetch than to add
    ordered = decoded[order]
    pointers = _pointers(ordered)
    buckets: list[tuple[int, Any]] = []
    for value in range(1, 1 << width):
        start, n = ends[value - 1], ends[value] - ends[value - 1]
        total = _combine(pointers + (start - ends[0]), n) if n else None
        if total is not None:
            buckets.append((value, total))
    return [combine_pointers([b for value, b in buckets if value >> bit & 1]) for bit in range(width)]


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
