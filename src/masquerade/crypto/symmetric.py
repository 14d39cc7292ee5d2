"""Symmetric cryptography on the package `cryptography`: MACs, streams, fresh bytes and sealed messages.

MACs, streams and block functions are deterministic: equal keys give equal bytes. A key of a stream is used
once. Keys for several purposes are derived (`crypto.keys.derive`), never shared.

Messages are sealed by ChaCha20-Poly1305 (RFC 8439) with nonces that the caller cannot choose. `seal` draws a
random nonce and sends it along, for keys that several people hold or that survive a restart. `seal_once`
sends none, for a key that seals a single message.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NoReturn

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from masquerade.core.errors import InputError
from masquerade.crypto.errors import DecodingError, SealBroken
from masquerade.crypto.keys import KEY_SIZE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NONCE_SIZE, TAG_SIZE = 12, 16
OVERHEAD = NONCE_SIZE + TAG_SIZE  # bytes that `seal` adds
_ZEROS = bytes(1 << 20)


def code(key: bytes, message: bytes) -> bytes:
    """Return the 32-byte MAC of a message (HMAC with SHA-256, RFC 2104)."""
    return hmac.digest(key, message, "sha256")


def coder(key: bytes) -> Callable[[bytes], bytes]:
    """Return `code` for one key and many messages; the key's two paddings are hashed only once."""
    block = hashlib.sha256().block_size
    if not 1 <= len(key) <= block:
        raise InputError(f"A MAC key has from 1 to {block} bytes. Got {len(key)} instead.")
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
    """Return True if two MACs are equal, in constant time."""
    return hmac.compare_digest(first, second)


class KeyedStream:
    """The byte stream of a 32-byte key (AES-256 in counter mode from zero)."""

    def __init__(self, key: bytes) -> None:
        self._cipher = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()

    def read(self, size: int) -> bytes:
        """Return the next `size` bytes."""
        return self._cipher.update(bytes(size))


def stream(key: bytes, size: int) -> bytes:
    """Return the first `size` bytes of a key's stream."""
    return KeyedStream(key).read(size)


class BlockFunction:
    """A pseudorandom function of 16-byte blocks under a 32-byte key (AES-256, block by block).

    Equal blocks give equal results, as intended. So it is not encryption: it hides a block only if the block
    is random.
    """

    def __init__(self, key: bytes) -> None:
        self._cipher = Cipher(algorithms.AES256(key), modes.ECB())  # noqa: S305

    def __call__(self, blocks: bytes | memoryview) -> bytes:
        """Return the results of full blocks, in order."""
        return self._cipher.encryptor().update(blocks)


class Keystream(threading.local):
    """A source of fresh uniform bytes: ``Keystream()(n)`` returns ``n`` of them.

    Each thread and each forked process has its own key, so no byte is handed out twice. For the same reason
    an instance cannot be copied or pickled. There is no seed.
    """

    def __init__(self) -> None:
        self._rekey()

    def __call__(self, n: int) -> NDArray[np.uint8]:
        """Return ``n`` fresh bytes."""
        if self._process != os.getpid():
            self._rekey()
        import numpy as np  # noqa: PLC0415  (not needed on devices)

        fresh = np.empty(n, dtype=np.uint8)
        target = fresh.data
        zeros = memoryview(_ZEROS)
        for start in range(0, n, len(_ZEROS)):
            size = min(n - start, len(_ZEROS))
            self._cipher.update_into(zeros[:size], target[start : start + size])
        return fresh

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        raise TypeError("a Keystream cannot be copied or pickled: its bytes would be handed out twice")

    def _rekey(self) -> None:
        self._process = os.getpid()
        self._cipher = Cipher(algorithms.AES256(os.urandom(32)), modes.CTR(os.urandom(16))).encryptor()


def seal(key: bytes, message: bytes, context: bytes) -> bytes:
    """Return nonce and ciphertext, 28 bytes longer than the message; `context` is authenticated but not sent.

    A key may seal at most 2³² messages over all its holders: then a nonce repeats with probability 2⁻³³.
    """
    return _seal_from_parts(key, message, context, os.urandom(NONCE_SIZE))


def unseal(key: bytes, sealed: bytes, context: bytes) -> bytes:
    """Return the message; raise `SealBroken` if the key, the context or any bit differs."""
    if len(sealed) < OVERHEAD:
        raise DecodingError(f"A sealed message has at least {OVERHEAD} bytes. Got {len(sealed)} instead.")
    return _open(_cipher(key), sealed[:NONCE_SIZE], sealed[NONCE_SIZE:], context)


def seal_once(key: bytes, message: bytes, context: bytes) -> bytes:
    """Return the ciphertext, 16 bytes longer, of the only message that this key seals; the nonce is zero."""
    return _cipher(key).encrypt(bytes(NONCE_SIZE), message, context)


def unseal_once(key: bytes, sealed: bytes, context: bytes) -> bytes:
    """Return the only message sealed with this key; raise `SealBroken` if it does not open."""
    return _open(_cipher(key), bytes(NONCE_SIZE), sealed, context)


def unseal_run(
    run: bytes, size: int, groups: Iterable[tuple[bytes, bytes, int, int]], wanted: Sequence[bool]
) -> tuple[bytes, list[bool]]:
    """Open concatenated sealed messages of equal size.

    Parameters
    ----------
    run : bytes
        Sealed messages, concatenated.
    size : int
        Number of bytes of each sealed message.
    groups : iterable of tuple
        Key, context, first position and end position of each group.
    wanted : sequence of bool
        One flag per message: whether to open it.

    Returns
    -------
    tuple
        The concatenated messages, with zeros for each message that was not opened; and one flag per message,
        whether it was opened.
    """
    blank, parts, opened = bytes(size - OVERHEAD), [], list(wanted)
    for key, context, first, last in groups:
        decrypt = _cipher(key).decrypt
        for i in range(first, last):
            at, part = i * size, blank
            if opened[i]:
                try:
                    part = decrypt(run[at : at + NONCE_SIZE], run[at + NONCE_SIZE : at + size], context)
                except InvalidTag:
                    opened[i] = False
            parts.append(part)
    return b"".join(parts), opened


def _seal_from_parts(key: bytes, message: bytes, context: bytes, nonce: bytes) -> bytes:
    """Return a sealed message with the given nonce, which is fresh in `seal` and fixed in test vectors."""
    return nonce + _cipher(key).encrypt(nonce, message, context)


def _open(cipher: ChaCha20Poly1305, nonce: bytes, sealed: bytes, context: bytes) -> bytes:
    try:
        return cipher.decrypt(nonce, sealed, context)
    except InvalidTag:
        raise SealBroken("The sealed message was changed or has a different key or context.") from None


def _cipher(key: bytes) -> ChaCha20Poly1305:
    if len(key) != KEY_SIZE:
        raise InputError(f"A key for sealing has {KEY_SIZE} bytes. Got {len(key)} instead.")
    return ChaCha20Poly1305(key)
