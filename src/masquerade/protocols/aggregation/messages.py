"""Messages on the wire: kind, round, body, and for what users send a signature of their identity.

A body that carries one item for each of several slots is a bundle: a bit for every slot, then the items
present. Whatever is wrong with bytes is a `DecodingError`; whatever is wrong with who sent them, or when,
is a `MessageRefused`. Neither changes the state of the one who got them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import MasqueradeError
from masquerade.crypto.errors import DecodingError, SealBroken
from masquerade.crypto.keys import SIGNATURE_SIZE, SigningKey
from masquerade.protocols.aggregation.crypto_cache import Work
from masquerade.protocols.aggregation.roster import Context, Signer

LABEL = "aggregation message"
HEAD_SIZE = 9


class MessageRefused(MasqueradeError):
    """A message that is not acted on: out of turn, for another round, or not what it claims to be."""

    def __init__(self, reason: str, culprits: Sequence[str] = ()) -> None:
        self.culprits = tuple(culprits)
        super().__init__(reason)


class Kind(IntEnum):
    """What a message is; the server's have even numbers, the users' replies the odd ones after them."""

    ANNOUNCEMENT = 0
    ADVERT = 1
    CALL = 2
    COMMITMENT = 3
    COMMITMENTS = 4
    REVEAL = 5
    NEIGHBOURS = 6
    SHARES = 7
    DELIVERY = 8
    INPUT = 9
    SURVIVORS = 10
    ENDORSEMENT = 11
    ENDORSEMENTS = 12
    UNMASKING = 13


def kind_of(message: bytes) -> Kind:
    """Return the kind of a message."""
    if len(message) < HEAD_SIZE:
        raise DecodingError(f"A message has at least {HEAD_SIZE} bytes. Got {len(message)} instead.")
    try:
        return Kind(message[0])
    except ValueError:
        raise DecodingError("The message is of a kind that does not exist.") from None


def plain(kind: Kind, context: Context, body: bytes) -> bytes:
    """Return a message of the server."""
    return bytes([kind]) + context.tag + body


def signed(kind: Kind, context: Context, body: bytes, key: SigningKey, about: bytes = b"") -> bytes:
    """Return a message of a user; the signature also covers `about`, which the reader knows already."""
    return bytes([kind]) + context.tag + body + key.sign(LABEL, bytes([kind]), context.info, about, body)


def body_of(message: bytes, context: Context) -> bytes:
    """Return the body of a message of this round."""
    kind_of(message)
    if message[1:HEAD_SIZE] != context.tag:
        raise MessageRefused("The message belongs to another round.")
    return message[HEAD_SIZE:]


def signed_body_of(
    message: bytes, context: Context, signer: Signer, *, work: Work, about: bytes = b""
) -> bytes:
    """Return the body of a user's message after checking its signature."""
    body = body_of(message, context)
    if len(body) < SIGNATURE_SIZE:
        raise DecodingError("The message is too short for its signature.")
    cut = len(body) - SIGNATURE_SIZE
    check_signature(kind_of(message), context, body[:cut], body[cut:], signer, work=work, about=about)
    return body[:cut]


def check_signature(
    kind: Kind,
    context: Context,
    body: bytes,
    signature: bytes,
    signer: Signer,
    *,
    work: Work,
    about: bytes = b"",
) -> None:
    """Refuse a body that the user did not sign."""
    try:
        work.verify(signer.identity, signature, LABEL, bytes([kind]), context.info, about, body)
    except SealBroken:
        raise MessageRefused(
            f"The {kind.name.lower()} is not signed by {signer.name!r}, as enrolled.", [signer.name]
        ) from None


def pack_bits(bits: Sequence[bool] | NDArray[np.bool_]) -> bytes:
    """Return bits as bytes, the first bit highest, padded with zeros."""
    return np.packbits(np.asarray(bits, dtype=bool)).tobytes()


def unpack_bits(data: bytes, count: int) -> NDArray[np.bool_]:
    """Return `count` bits; padding must be zero."""
    if len(data) != -(-count // 8):
        raise DecodingError(f"{count} bits have {-(-count // 8)} bytes. Got {len(data)} instead.")
    bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8)).astype(bool)
    if bits[count:].any():
        raise DecodingError("The bits after the last one must be zero.")
    return bits[:count]


def bundle(items: Sequence[bytes | None]) -> bytes:
    """Return a bit for every slot, then the items that are there, all of one size."""
    bits = pack_bits([item is not None for item in items])
    return bits + b"".join([item for item in items if item is not None])


def unbundle(data: bytes, slots: int, size: int) -> list[bytes | None]:
    """Return the items by slot; nothing may be left over."""
    head = -(-slots // 8)
    present: list[bool] = unpack_bits(data[:head], slots).tolist()
    if len(data) != head + size * sum(present):
        raise DecodingError(f"A bundle of {sum(present)} items has {head + size * sum(present)} bytes.")
    parts = pieces(data[head:], size)
    return [next(parts) if there else None for there in present]


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    """Yield the pieces of one size that data are made of."""
    return (data[at : at + size] for at in range(0, len(data), size))


def check_length(body: bytes, size: int) -> None:
    """Refuse a body of another size."""
    if len(body) != size:
        raise DecodingError(f"The message's body has {size} bytes. Got {len(body)} instead.")
