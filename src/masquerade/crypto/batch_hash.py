"""HMAC-SHA256 and keyed BLAKE2b of many short texts with one key, in parallel lanes.

A hash of one text is a chain of small steps, each of which waits for the previous one. Hashes of different
texts are independent: 64 of them go through each step together, as lanes that the processor computes in
parallel. The key's block comes first and is the same for all, so it is processed once.

Reference: FIPS 180-4 (SHA-256), RFC 2104 (HMAC), RFC 7693 (BLAKE2b). No step depends on the hashed data: the
running time reveals only lengths.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from masquerade.kernels.jit import compiled
from masquerade.kernels.tiles import run, split, threads_for

LANES: Final = 64
LONGEST: Final = 55  # bytes of prefix and text that fit into one block with padding and length
LONGEST_TAGGED: Final = 128  # bytes of text in one block of BLAKE2b
_BLOCK: Final = 64  # bytes, of SHA-256
Rows = NDArray[np.uint8]
Words = NDArray[np.uint32]
LongWords = NDArray[np.uint64]
Offsets = NDArray[np.signedinteger[Any]]
U4, U8 = np.uint32, np.uint64


def _digits_of_roots(degree: int, count: int, bits: int = 32) -> list[int]:
    """Return the first bits of the fractional parts of the square or cube roots of the first primes."""
    primes = [p for p in range(2, 312) if all(p % q for q in range(2, isqrt(p) + 1))]
    return [_root(p << bits * degree, degree) & ((1 << bits) - 1) for p in primes[:count]]


def _root(number: int, degree: int) -> int:
    """Return the integer part of a root."""
    low, high = 0, 1 << (number.bit_length() // degree + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if middle**degree <= number else (low, middle)
    return low


_START: Final = np.array(_digits_of_roots(2, 8), U4)
_ADDED: Final = np.array(_digits_of_roots(3, 64), U4)
_LONG_START: Final = np.array(_digits_of_roots(2, 8, 64), U8)
# order of a block's words in the twelve rounds of BLAKE2b (RFC 7693, section 2.7)
_TAKEN = (
    "0123456789abcdef ea489fd61c02b753 b8c052fdae367194 7931dcbe265a40f8 905724afe1bc683d 2c6a0b834d75fe19 "
    "c51fed4a0763928b db7ec13950f4862a 6fe9b308c2d714a5 a2847615fb9e3cd0 0123456789abcdef ea489fd61c02b753"
)
_ORDERS: Final = np.array([[int(digit, 16) for digit in order] for order in _TAKEN.split()])


def hmac_sha256(key: bytes, prefix: bytes, data: Rows, offsets: Offsets, size: int) -> Rows:
    """Return the first `size` bytes of HMAC-SHA256(key, prefix ‖ text) for each row.

    Prefix and text have at most `LONGEST` bytes together, the key at most one block of 64. Many rows are
    divided among threads.
    """
    padded = _words_of(key.ljust(_BLOCK, b"\0"))
    inner, outer = (_after_block(padded ^ U4(pad * 0x01010101)) for pad in (0x36, 0x5C))
    known = (inner, outer, _ADDED, _words_of(prefix.ljust(_BLOCK, b"\0")))
    return _spread(
        lambda some, ends, out: _hmac_rows(known, len(prefix), some, ends, out), data, offsets, size
    )


def keyed_blake2b(key: bytes, data: Rows, offsets: Offsets, size: int) -> Rows:
    """Return the keyed BLAKE2b of each row, `size` bytes long.

    Texts have 1 to `LONGEST_TAGGED` bytes: for an empty text the key's block would be the last one.
    """
    begin = _LONG_START.copy()
    begin[0] ^= U8(0x01010000 ^ len(key) << 8 ^ size)
    words, state = np.zeros((16, LANES), U8), np.zeros((16, LANES), U8)
    words[:, 0], state[:8, 0] = np.frombuffer(key.ljust(LONGEST_TAGGED, b"\0"), "<u8"), begin
    state[8:, 0] = _LONG_START
    state[12, 0] ^= U8(LONGEST_TAGGED)
    _blake2b_rounds(words, state, _ORDERS)
    known = (begin ^ state[:8, 0] ^ state[8:, 0], _LONG_START)
    return _spread(
        lambda some, ends, out: _blake2b_rows(known, _ORDERS, some, ends, out), data, offsets, size
    )


def _spread(work: Callable[[Rows, Offsets, Rows], None], data: Rows, offsets: Offsets, size: int) -> Rows:
    """Run work on rows, on all cores if there are many rows.

    Arrays are converted to one type, so that the work is compiled only once.
    """
    read, ends, rows = data.view(), offsets.astype(np.int64, copy=False), len(offsets) - 1
    read.flags.writeable = False
    out = np.empty((rows, size), np.uint8)
    parts = split(rows, threads_for(rows))
    run(lambda part: work(read, np.ascontiguousarray(ends[part.start : part.stop + 1]), out[part]), parts)
    return out


def _words_of(block: bytes) -> Words:
    return np.frombuffer(block, ">u4").astype(U4)


def _after_block(block: Words) -> Words:
    """Return the state of SHA-256 after its first block."""
    words, state = np.zeros((64, LANES), U4), np.zeros((8, LANES), U4)
    words[:16, 0], state[:, 0] = block, _START
    _sha256_rounds(words, state, _ADDED)
    return np.asarray(state[:, 0] + _START)


@compiled
def _rotate_right(word: np.uint32, places: int) -> np.uint32:
    """Return a word rotated to the right."""
    return U4(U4(word >> U4(places)) | U4(word << U4(32 - places)))


@compiled
def _sha256_rounds(words: Words, state: Words, added: Words) -> None:
    """Process one block of SHA-256 in all lanes; `words` has space for the expanded schedule."""
    for t in range(16, 64):
        for lane in range(LANES):
            x, y = words[t - 15, lane], words[t - 2, lane]
            low = U4(_rotate_right(x, 7) ^ _rotate_right(x, 18) ^ U4(x >> U4(3)))
            high = U4(_rotate_right(y, 17) ^ _rotate_right(y, 19) ^ U4(y >> U4(10)))
            words[t, lane] = U4(words[t - 16, lane] + U4(low + U4(words[t - 7, lane] + high)))
    for t in range(64):
        constant = added[t]
        for lane in range(LANES):
            a, b, c, d = state[0, lane], state[1, lane], state[2, lane], state[3, lane]
            e, f, g, h = state[4, lane], state[5, lane], state[6, lane], state[7, lane]
            turned = U4(_rotate_right(e, 6) ^ _rotate_right(e, 11) ^ _rotate_right(e, 25))
            chosen = U4(U4(e & f) ^ U4(U4(~e) & g))
            first = U4(h + U4(turned + U4(chosen + U4(constant + words[t, lane]))))
            turned = U4(_rotate_right(a, 2) ^ _rotate_right(a, 13) ^ _rotate_right(a, 22))
            second = U4(turned + U4(U4(a & b) ^ U4(a & c) ^ U4(b & c)))
            state[7, lane] = g
            state[6, lane] = f
            state[5, lane] = e
            state[4, lane] = U4(d + first)
            state[3, lane] = c
            state[2, lane] = b
            state[1, lane] = a
            state[0, lane] = U4(first + second)


@compiled
def _fill(words: Words, prefix: Words, length: int, data: Rows, offsets: Offsets) -> None:
    """Write one block per row: the prefix of `length` bytes, the text, the padding and the total length."""
    for i in range(16):
        for lane in range(LANES):
            words[i, lane] = prefix[i]
    for lane in range(len(offsets) - 1):
        at = length
        for place in range(offsets[lane], offsets[lane + 1]):
            words[at >> 2, lane] |= U4(U4(data[place]) << U4(24 - 8 * (at & 3)))
            at += 1
        words[at >> 2, lane] |= U4(U4(0x80) << U4(24 - 8 * (at & 3)))
        words[15, lane] = U4(8 * (64 + at))  # total length in bits, including the key's block


@compiled
def _hmac_rows(
    setup: tuple[Words, Words, Words, Words], length: int, data: Rows, offsets: Offsets, out: Rows
) -> None:
    """Write the MACs of rows; `setup` contains both states after the key, the constants and the prefix."""
    inner, outer, added, prefix = setup
    words, state = np.zeros((64, LANES), U4), np.zeros((8, LANES), U4)
    for begin in range(0, len(out), LANES):
        lanes = min(LANES, len(out) - begin)
        _fill(words, prefix, length, data, offsets[begin : begin + lanes + 1])
        for i in range(8):
            for lane in range(LANES):
                state[i, lane] = inner[i]
        _sha256_rounds(words, state, added)
        for i in range(8):
            for lane in range(LANES):
                words[i, lane] = U4(state[i, lane] + inner[i])
                words[8 + i, lane] = U4(0)
                state[i, lane] = outer[i]
        words[8] = U4(0x80000000)
        words[15] = U4(8 * (64 + 32))
        _sha256_rounds(words, state, added)
        for i in range(out.shape[1]):
            for lane in range(lanes):
                word = U4(state[i // 4, lane] + outer[i // 4])
                out[begin + lane, i] = np.uint8(word >> U4(24 - 8 * (i % 4)))


@compiled
def _rotate_right_long(word: np.uint64, places: int) -> np.uint64:
    """Return a 64-bit word rotated to the right."""
    return U8(U8(word >> U8(places)) | U8(word << U8(64 - places)))


@compiled
def _blake2b_rounds(words: LongWords, state: LongWords, orders: NDArray[np.int64]) -> None:
    """Process one block of BLAKE2b in all lanes."""
    for order in range(len(orders)):
        for step in range(8):  # four columns, then four diagonals
            turn = step // 4
            a, b = step % 4, 4 + (step + turn) % 4
            c, d = 8 + (step + 2 * turn) % 4, 12 + (step + 3 * turn) % 4
            x, y = orders[order, 2 * step], orders[order, 2 * step + 1]
            for lane in range(LANES):
                one, two, three, four = state[a, lane], state[b, lane], state[c, lane], state[d, lane]
                one = U8(one + two + words[x, lane])
                four = _rotate_right_long(four ^ one, 32)
                three = U8(three + four)
                two = _rotate_right_long(two ^ three, 24)
                one = U8(one + two + words[y, lane])
                four = _rotate_right_long(four ^ one, 16)
                three = U8(three + four)
                two = _rotate_right_long(two ^ three, 63)
                state[a, lane] = one
                state[b, lane] = two
                state[c, lane] = three
                state[d, lane] = four


@compiled
def _blake2b_rows(
    setup: tuple[LongWords, LongWords], orders: NDArray[np.int64], data: Rows, offsets: Offsets, out: Rows
) -> None:
    """Write the tags of rows; `setup` contains the state after the key, and the initial state."""
    begin, start = setup
    words, state = np.zeros((16, LANES), U8), np.zeros((16, LANES), U8)
    for first in range(0, len(out), LANES):
        lanes = min(LANES, len(out) - first)
        words[:] = U8(0)
        for i in range(8):
            for lane in range(LANES):
                state[i, lane] = begin[i]
                state[8 + i, lane] = start[i]
        for lane in range(lanes):
            low, high = offsets[first + lane], offsets[first + lane + 1]
            for place in range(low, high):
                at = place - low
                words[at >> 3, lane] |= U8(U8(data[place]) << U8(8 * (at & 7)))
            state[12, lane] ^= U8(128 + high - low)  # length so far, including the key's block
            state[14, lane] = ~state[14, lane]  # flag of the last block
        _blake2b_rounds(words, state, orders)
        for i in range(out.shape[1]):
            for lane in range(lanes):
                word = U8(begin[i // 8] ^ state[i // 8, lane] ^ state[8 + i // 8, lane])
                out[first + lane, i] = np.uint8(word >> U8(8 * (i % 8)) & U8(255))
