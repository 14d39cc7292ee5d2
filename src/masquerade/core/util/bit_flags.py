"""Pack booleans into bytes."""

from __future__ import annotations

from collections.abc import Sequence


def pack_bits(bits: Sequence[bool]) -> bytes:
    """Return booleans packed into bytes, the first in the highest bit, padded with zeros."""
    size = -(-len(bits) // 8)
    text = "".join(["1" if bit else "0" for bit in bits]).ljust(8 * size, "0")
    return int(text or "0", 2).to_bytes(size, "big")


def unpack_bits(data: bytes) -> list[bool]:
    """Return the bits of bytes, the highest first."""
    return [bit == "1" for bit in f"{int.from_bytes(data, 'big'):0{8 * len(data)}b}"] if data else []
