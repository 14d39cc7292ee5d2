"""Sealed messages: ChaCha20-Poly1305 (RFC 8439) with nonces that the caller never chooses.

`seal` draws a random nonce and sends it along, for keys that several people hold or that survive a restart.
`Sealer` and `Opener` count, for one direction of one conversation: they send no nonce and notice messages
that are lost, repeated or out of order.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import NoReturn

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from masquerade.core.errors import InputError
from masquerade.crypto.errors import DecodingError, KeySpent, SealBroken
from masquerade.crypto.keys import KEY_SIZE, derive

NONCE_SIZE, TAG_SIZE, SALT_SIZE = 12, 16, 16
OVERHEAD = NONCE_SIZE + TAG_SIZE  # of `seal`
_MOST = 2**32  # messages under one key; for random nonces a repetition then has probability 2⁻³³


def seal(key: bytes, message: bytes, context: bytes) -> bytes:
    """Return nonce and ciphertext, 28 bytes longer than the message; `context` is bound to it but not sent.

    A key serves at most 2³² messages, over all who hold it.
    """
    return _seal_from_parts(key, message, context, os.urandom(NONCE_SIZE))


def unseal(key: bytes, sealed: bytes, context: bytes) -> bytes:
    """Return the message, or raise `SealBroken` when key, context or any bit is another."""
    if len(sealed) < OVERHEAD:
        raise DecodingError(f"A sealed message has at least {OVERHEAD} bytes. Got {len(sealed)} instead.")
    return _open(_cipher(key), sealed[:NONCE_SIZE], sealed[NONCE_SIZE:], context)


def unseal_run(
    run: bytes, size: int, groups: Iterable[tuple[bytes, bytes, int, int]], wanted: Sequence[bool]
) -> tuple[bytes, list[bool]]:
    """Return the messages of a run of sealed ones of one size, and which did open: `unseal` for a million.

    Each group has a key, a context, and the places from its first to before its last. What does not open, or
    is not wanted, is zeros.
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


class Sealer:
    """The sending end of one direction of a conversation, `direction` naming sender and receiver.

    Every sealer has a key of its own, from `key` and a salt that goes with its first message: two sealers
    made from one key, even after a restart, never use a nonce twice.
    """

    __slots__ = ("_cipher", "_count", "_salt")

    def __init__(self, key: bytes, direction: str) -> None:
        self._salt, self._count = os.urandom(SALT_SIZE), 0
        self._cipher = _counted(key, direction, self._salt)

    def seal(self, message: bytes, context: bytes) -> bytes:
        """Return the next message sealed, 16 bytes longer; the first one 32 bytes."""
        first = self._salt if self._count == 0 else b""
        if self._count >= _MOST:
            raise KeySpent("The key of this conversation has sealed all the messages it may.")
        self._count += 1
        return first + self._cipher.encrypt(_nonce(self._count), message, context)

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        raise TypeError("a Sealer cannot be copied or pickled: a nonce would be used twice")


class Opener:
    """The receiving end, with the sender's `direction`."""

    __slots__ = ("_cipher", "_count", "_direction", "_key")

    def __init__(self, key: bytes, direction: str) -> None:
        _check_key(key)
        self._key, self._direction, self._count = key, direction, 0
        self._cipher: ChaCha20Poly1305 | None = None

    def unseal(self, sealed: bytes, context: bytes) -> bytes:
        """Return the next message; one that is lost, repeated or changed ends the conversation for good."""
        if self._count < 0:
            raise KeySpent("A message of this conversation was changed, lost or repeated: it has ended.")
        needed = TAG_SIZE if self._cipher else SALT_SIZE + TAG_SIZE
        if len(sealed) < needed:
            raise DecodingError(
                f"This sealed message has at least {needed} bytes. Got {len(sealed)} instead."
            )
        if self._cipher is None:
            salt, sealed = sealed[:SALT_SIZE], sealed[SALT_SIZE:]
            self._cipher = _counted(self._key, self._direction, salt)
        self._count += 1
        try:
            return _open(self._cipher, _nonce(self._count), sealed, context)
        except SealBroken:
            self._count = -1
            raise


def _counted(key: bytes, direction: str, salt: bytes) -> ChaCha20Poly1305:
    _check_key(key)
    return ChaCha20Poly1305(derive(key, "counted messages", direction.encode(), salt))


def _nonce(count: int) -> bytes:
    return count.to_bytes(NONCE_SIZE, "big")


def _seal_from_parts(key: bytes, message: bytes, context: bytes, nonce: bytes) -> bytes:
    """Seal with a given nonce: for vectors, and with a fresh one for `seal`."""
    return nonce + _cipher(key).encrypt(nonce, message, context)


def _open(cipher: ChaCha20Poly1305, nonce: bytes, sealed: bytes, context: bytes) -> bytes:
    try:
        return cipher.decrypt(nonce, sealed, context)
    except InvalidTag:
        raise SealBroken("The sealed message was changed or belongs to another key or context.") from None


def _cipher(key: bytes) -> ChaCha20Poly1305:
    _check_key(key)
    return ChaCha20Poly1305(key)


def _check_key(key: bytes) -> None:
    if len(key) != KEY_SIZE:
        raise InputError(f"A key for sealing has {KEY_SIZE} bytes. Got {len(key)} instead.")
