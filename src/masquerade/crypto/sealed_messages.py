"""Sealed messages: ChaCha20-Poly1305 (RFC 8439) with nonces that the caller never chooses.

`seal` draws a random nonce and sends it along, for keys that several people hold or that survive a restart;
`seal_once` sends none, for a key that seals one message.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from masquerade.core.errors import InputError
from masquerade.crypto.errors import DecodingError, SealBroken
from masquerade.crypto.keys import KEY_SIZE

NONCE_SIZE, TAG_SIZE = 12, 16
OVERHEAD = NONCE_SIZE + TAG_SIZE  # of `seal`


def seal(key: bytes, message: bytes, context: bytes) -> bytes:
    """Return nonce and ciphertext, 28 bytes longer than the message; `context` is bound to it but not sent.

    A key serves at most 2³² messages, over all who hold it: a nonce then repeats with probability 2⁻³³.
    """
    return _seal_from_parts(key, message, context, os.urandom(NONCE_SIZE))


def unseal(key: bytes, sealed: bytes, context: bytes) -> bytes:
    """Return the message, or raise `SealBroken` when key, context or any bit is another."""
    if len(sealed) < OVERHEAD:
        raise DecodingError(f"A sealed message has at least {OVERHEAD} bytes. Got {len(sealed)} instead.")
    return _open(_cipher(key), sealed[:NONCE_SIZE], sealed[NONCE_SIZE:], context)


def seal_once(key: bytes, message: bytes, context: bytes) -> bytes:
    """Return the ciphertext, 16 bytes longer, of the only message that this key seals; the nonce is zero."""
    return _cipher(key).encrypt(bytes(NONCE_SIZE), message, context)


def unseal_once(key: bytes, sealed: bytes, context: bytes) -> bytes:
    """Return the one message that was sealed with this key, or raise `SealBroken`."""
    return _open(_cipher(key), bytes(NONCE_SIZE), sealed, context)


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
