"""What user and server both know about a round: its announcement, sizes of fields, labels of keys."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field

from masquerade.crypto.keys import KEY_SIZE, AgreementKey
from masquerade.crypto.sealed_messages import seal_once, unseal_once
from masquerade.protocols.aggregation.batch import Batch
from masquerade.protocols.aggregation.graph import Graph
from masquerade.protocols.aggregation.messages import HEAD_SIZE, Kind, body_of, plain
from masquerade.protocols.aggregation.roster import NONCE_SIZE, Context, Terms
from masquerade.protocols.aggregation.seed_shares import SEED_SIZE, SHARE_SIZE
from masquerade.protocols.codec import Reader

ROUND_SIZE = 4
ADVERT_SIZE = 2 * KEY_SIZE
SEALED_SIZE = 2 * SHARE_SIZE + 16
SEALING, MASKING = "aggregation sealed shares", "aggregation pair mask"


@dataclass(slots=True, repr=False)
class Round:
    """What a user knows in one round; the seeds are what its neighbours get shares of."""

    context: Context
    batch: Batch
    expected: Kind
    turn: int = 0
    sealing: AgreementKey = field(default_factory=AgreementKey)
    mask_seed: bytes = field(default_factory=lambda: os.urandom(SEED_SIZE))
    own_seed: bytes = field(default_factory=lambda: os.urandom(SEED_SIZE))
    nonces: dict[int, bytes] = field(default_factory=dict)
    revealed: set[int] = field(default_factory=set)
    graph: Graph | None = None
    near: list[int] = field(default_factory=list)
    mask_keys: list[bytes | None] = field(default_factory=list)
    secrets: list[bytes | None] = field(default_factory=list)
    held: list[bytes | None] = field(default_factory=list)
    surviving: list[bool] = field(default_factory=list)
    about: bytes = b""


def write_announcement(context: Context, nonce: bytes, batch: Batch) -> bytes:
    """Return the message that opens a round."""
    body = nonce + context.round.to_bytes(ROUND_SIZE, "big") + batch.encode()
    return plain(Kind.ANNOUNCEMENT, context, body)


def read_announcement(message: bytes, terms: Terms) -> tuple[Context, Batch]:
    """Return the round that a server announces, its batch read strictly."""
    reader = Reader(message[HEAD_SIZE:])
    nonce, number = reader.fixed(NONCE_SIZE), reader.number(ROUND_SIZE)
    batch = Batch.decode(message[HEAD_SIZE + NONCE_SIZE + ROUND_SIZE :], terms.sizes)
    context = Context(terms.session(nonce), number, batch.hash)
    body_of(message, context)
    return context, batch


def own_commitment(seed: bytes, context: Context) -> bytes:
    """Return the hash by which a user fixes the seed of its own mask, so that wrong shares are noticed."""
    return hashlib.sha256(b"masquerade aggregation own seed" + context.info + seed).digest()


def seal_shares(secret: bytes, sender: int, receiver: int, both: bytes, info: bytes) -> bytes:
    """Return two shares sealed for a neighbour, by a key of this round and direction: a user deals once."""
    return seal_once(one_way(secret, sender, receiver), both, info)


def open_shares(secret: bytes, sender: int, receiver: int, sealed: bytes, info: bytes) -> bytes:
    """Return the two shares that a neighbour sealed, or raise `SealBroken`."""
    return unseal_once(one_way(secret, sender, receiver), sealed, info)


def one_way(secret: bytes, sender: int, receiver: int) -> bytes:
    """Return the half of a pair's secret that serves one direction."""
    return secret[:KEY_SIZE] if sender < receiver else secret[KEY_SIZE:]
