"""Uniform bytes from a message and a domain: expand_message_xmd with SHA-512 (RFC 9380, section 5.3.1)."""

import hashlib

from masquerade.core.errors import InputError

_DIGEST, _BLOCK = 64, 128


def expand_message(message: bytes, domain: bytes, length: int) -> bytes:
    """Return `length` bytes that look random to all who cannot hash, different for every `domain`.

    Reference: RFC 9380, section 5.3.1, with SHA-512; the form that RFC 9497 builds on.
    """
    if not 1 <= len(domain) <= 255:
        raise InputError(f"The domain of a hash must have 1 to 255 bytes. Got {len(domain)} instead.")
    if not 1 <= length <= 255 * _DIGEST:
        raise InputError(f"A hash expands to between 1 and {255 * _DIGEST} bytes. Got {length} instead.")
    suffix = domain + bytes([len(domain)])
    first = hashlib.sha512(bytes(_BLOCK) + message + length.to_bytes(2, "big") + b"\x00" + suffix).digest()
    blocks = [hashlib.sha512(first + b"\x01" + suffix).digest()]
    for i in range(2, -(-length // _DIGEST) + 1):
        mixed = bytes(a ^ b for a, b in zip(first, blocks[-1], strict=True))
        blocks.append(hashlib.sha512(mixed + bytes([i]) + suffix).digest())
    return b"".join(blocks)[:length]
