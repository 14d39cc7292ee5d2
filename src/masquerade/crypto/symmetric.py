"""What follows from a secret key: codes that prove its possession, streams, blocks; by `cryptography`.

Every function here is deterministic: whoever has the key gets the same bytes. A key for a stream is used
once; keys for several purposes are derived (`crypto.keys.derive`), never shared.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from masquerade.core.errors import InputError


def code(key: bytes, message: bytes) -> bytes:
    """Return 32 bytes that only holders of the key can make for a message (HMAC with SHA-256, RFC 2104)."""
    return hmac.digest(key, message, "sha256")


def coder(key: bytes) -> Callable[[bytes], bytes]:
    """Return `code` for one key and many messages: the key's two paddings are hashed once for all of them."""
    block = hashlib.sha256().block_size
    if not 1 <= len(key) <= block:
        raise InputError(f"A key for codes has from 1 to {block} bytes. Got {len(key)} instead.")
    inner, outer = (
        hashlib.sha256(bytes(byte ^ pad for byte in key.ljust(block, b"\0"))) for pad in (0x36, 0x5C)
    )

    def digest(message: bytes) -> bytes:
        first, second = inner.copy(), outer.copy()
        first.update(message)
        second.update(first.digest())
        return second.digest()

    return digest


def same(first: bytes, second: bytes) -> bool:
    """Tell whether two codes are equal, in a time that does not depend on where they differ."""
    return hmac.compare_digest(first, second)


def expand(secret: bytes, info: bytes, size: int) -> bytes:
    """Return `size` bytes from a secret, for the purpose that `info` names (HKDF with SHA-256, RFC 5869).

    `info` is taken as it is: new purposes use `crypto.keys.derive`, which frames label and context.
    """
    return HKDF(SHA256(), size, salt=None, info=info).derive(secret)


class KeyedStream:
    """The bytes that a key of 32 bytes stands for, one after another (AES-256 in counter mode from zero)."""

    def __init__(self, key: bytes) -> None:
        self._cipher = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()

    def read(self, size: int) -> bytes:
        """Return the next bytes."""
        return self._cipher.update(bytes(size))


def stream(key: bytes, size: int) -> bytes:
    """Return the first bytes of a key's stream."""
    return KeyedStream(key).read(size)


class BlockFunction:
    """A pseudo-random function of blocks of 16 bytes, by a key of 32 bytes (AES-256, block by block).

    Equal blocks give equal results: that is what it is for, and why it hides nothing but random blocks.
    """

    def __init__(self, key: bytes) -> None:
        self._cipher = Cipher(algorithms.AES256(key), modes.ECB())  # noqa: S305

    def __call__(self, blocks: bytes) -> bytes:
        """Return the results of whole blocks, in order."""
        return self._cipher.encryptor().update(blocks)
