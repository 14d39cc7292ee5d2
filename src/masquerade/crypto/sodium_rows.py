"""libsodium on many rows: compiled loops that call the library on all cores, without one object per row.

Rows are concatenated in one array. Texts of different lengths have offsets: row i is from ``offsets[i]`` to
``offsets[i + 1]``.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import llvmlite.binding as llvm
import numpy as np
from numba import types
from numpy.typing import NDArray

from masquerade.core.errors import InputError
from masquerade.crypto.libsodium import provide
from masquerade.kernels.jit import compiled

provide()
try:
    from rbcl._sodium import _sodium  # type: ignore[import-untyped]

    import masquerade.crypto.ristretto255  # noqa: F401  (removes the temporary file of the library)
except ImportError as error:
    raise ImportError("masquerade.crypto needs rbcl: pip install 'masquerade[crypto]'.") from error

POINT_SIZE, SCALAR_SIZE, UNIFORM_SIZE = 32, 32, 64
_SHA512_BLOCK, _MOST_DOMAIN = 128, 255
_WORKERS = min(os.cpu_count() or 1, 16)
_CHUNK = 4096  # rows per task if a row is slow
_LONG_CHUNK = 1 << 16  # rows per task if a row is fast
Rows: TypeAlias = NDArray[np.uint8]
Offsets: TypeAlias = NDArray[np.signedinteger[Any]]

_AT, _SIZE = types.uintp, types.uint64


def _external(name: str, *arguments: Any) -> Any:
    """Return a libsodium function for compiled code, which looks it up by name."""
    address = ctypes.cast(getattr(_sodium, name), ctypes.c_void_p).value
    llvm.add_symbol(f"masquerade_{name}", address)
    return types.ExternalFunction(f"masquerade_{name}", types.int32(*arguments))


_hmac_update = _external("crypto_auth_hmacsha256_update", _AT, _AT, _SIZE)
_hmac_final = _external("crypto_auth_hmacsha256_final", _AT, _AT)
_blake2b = _external("crypto_generichash_blake2b", _AT, _SIZE, _AT, _SIZE, _AT, _SIZE)
_sha512_update = _external("crypto_hash_sha512_update", _AT, _AT, _SIZE)
_sha512_final = _external("crypto_hash_sha512_final", _AT, _AT)
_multiply = _external("crypto_scalarmult_ristretto255", _AT, _AT, _AT)
_from_hash = _external("crypto_core_ristretto255_from_hash", _AT, _AT)
_is_valid = _external("crypto_core_ristretto255_is_valid_point", _AT)


@compiled
def _hmac_rows(start: Rows, data: Rows, offsets: Offsets, out: Rows) -> None:
    state, digest = start.copy(), np.empty(32, np.uint8)
    for row in range(len(out)):
        state[:] = start
        _hmac_update(state.ctypes.data, data.ctypes.data + offsets[row], offsets[row + 1] - offsets[row])
        _hmac_final(state.ctypes.data, digest.ctypes.data)
        out[row] = digest[: out.shape[1]]


@compiled
def _blake2b_rows(key: Rows, data: Rows, offsets: Offsets, out: Rows) -> None:
    size = out.shape[1]
    for row in range(len(out)):
        text, length = data.ctypes.data + offsets[row], offsets[row + 1] - offsets[row]
        _blake2b(out.ctypes.data + row * size, size, text, length, key.ctypes.data, len(key))


@compiled
def _point_rows(states: tuple[Rows, Rows], tail: Rows, data: Rows, offsets: Offsets, out: Rows) -> None:
    padded, empty = states
    state, first, uniform = padded.copy(), np.empty(64, np.uint8), np.empty(64, np.uint8)
    second = tail[2:].copy()  # without the length, with the block number
    second[0] = 1
    for row in range(len(out)):
        state[:] = padded
        _sha512_update(state.ctypes.data, data.ctypes.data + offsets[row], offsets[row + 1] - offsets[row])
        _sha512_update(state.ctypes.data, tail.ctypes.data, len(tail))
        _sha512_final(state.ctypes.data, first.ctypes.data)
        state[:] = empty
        _sha512_update(state.ctypes.data, first.ctypes.data, 64)
        _sha512_update(state.ctypes.data, second.ctypes.data, len(second))
        _sha512_final(state.ctypes.data, uniform.ctypes.data)
        _from_hash(out.ctypes.data + 32 * row, uniform.ctypes.data)


@compiled
def _multiply_rows(points: Rows, scalar: Rows, out: Rows) -> bool:
    for row in range(len(points)):
        at = 32 * row
        if _multiply(out.ctypes.data + at, scalar.ctypes.data, points.ctypes.data + at) != 0:
            return False
    return True


@compiled
def _valid_rows(points: Rows) -> bool:
    for row in range(len(points)):
        if _is_valid(points.ctypes.data + 32 * row) != 1 or not points[row].any():
            return False
    return True


def hmac_sha256(key: bytes, prefix: bytes, data: Rows, offsets: Offsets, size: int) -> Rows:
    """Return the first `size` bytes of HMAC-SHA256(key, prefix ‖ text) for each row."""
    start = np.zeros(int(_sodium.crypto_auth_hmacsha256_statebytes()), np.uint8)
    place = ctypes.c_void_p(start.ctypes.data)
    _sodium.crypto_auth_hmacsha256_init(place, key, ctypes.c_size_t(len(key)))
    _sodium.crypto_auth_hmacsha256_update(place, prefix, ctypes.c_ulonglong(len(prefix)))
    out = np.empty((len(offsets) - 1, size), np.uint8)
    _spread(lambda a, b: _hmac_rows(start, data, offsets[a : b + 1], out[a:b]), len(out), _LONG_CHUNK)
    return out


def keyed_blake2b(key: bytes, data: Rows, offsets: Offsets, size: int) -> Rows:
    """Return the keyed BLAKE2b of each row, `size` bytes long."""
    out, own = np.empty((len(offsets) - 1, size), np.uint8), np.frombuffer(key, np.uint8)
    _spread(lambda a, b: _blake2b_rows(own, data, offsets[a : b + 1], out[a:b]), len(out), _LONG_CHUNK)
    return out


def hashed_points(domain: bytes, data: Rows, offsets: Offsets) -> Rows:
    """Return the point of each text (RFC 9497, section 4.1: HashToGroup of ristretto255)."""
    if not 1 <= len(domain) <= _MOST_DOMAIN:
        raise InputError(f"The domain of a hash must have 1 to 255 bytes. Got {len(domain)} instead.")
    empty = np.zeros(int(_sodium.crypto_hash_sha512_statebytes()), np.uint8)
    _sodium.crypto_hash_sha512_init(ctypes.c_void_p(empty.ctypes.data))
    padded, zeros = empty.copy(), bytes(_SHA512_BLOCK)
    _sodium.crypto_hash_sha512_update(
        ctypes.c_void_p(padded.ctypes.data), zeros, ctypes.c_ulonglong(len(zeros))
    )
    ending = UNIFORM_SIZE.to_bytes(2, "big") + b"\0" + domain + bytes([len(domain)])
    tail, out = np.frombuffer(ending, np.uint8), np.empty((len(offsets) - 1, POINT_SIZE), np.uint8)
    _spread(lambda a, b: _point_rows((padded, empty), tail, data, offsets[a : b + 1], out[a:b]), len(out))
    return out


def multiplied_points(points: Rows, scalar: bytes) -> Rows | None:
    """Return each point times a scalar; None if a row is not a point or a product is the identity."""
    out, by = np.empty_like(points), np.frombuffer(scalar, np.uint8)
    done = _spread(lambda a, b: _multiply_rows(points[a:b], by, out[a:b]), len(out))
    return out if all(done) else None


def are_points(points: Rows) -> bool:
    """Return True if all rows are canonical points other than the identity."""
    return all(_spread(lambda a, b: _valid_rows(points[a:b]), len(points)))


def _spread(work: Callable[[int, int], Any], rows: int, chunk: int = _CHUNK) -> list[Any]:
    """Run work on chunks of rows in threads; compiled loops run without the interpreter's lock."""
    cuts = [(begin, min(begin + chunk, rows)) for begin in range(0, rows, chunk)]
    if len(cuts) <= 1:
        return [work(*cut) for cut in cuts]
    with ThreadPoolExecutor(min(_WORKERS, len(cuts))) as pool:
        return list(pool.map(lambda cut: work(*cut), cuts))
