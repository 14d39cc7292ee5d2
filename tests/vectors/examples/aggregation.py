"""Messages of secure aggregation."""

import struct
from dataclasses import replace
from types import SimpleNamespace

from masquerade.crypto.keys import SigningKey
from masquerade.protocols.people.questions import Question
from masquerade.protocols.secure_aggregation.agreement import RoundContext
from masquerade.protocols.secure_aggregation.messages import (
    AggregationAdvert,
    Announcement,
    Commitment,
    Commitments,
    Delivery,
    Endorsement,
    Endorsements,
    Neighbours,
    Reveal,
    RoundCall,
    Shares,
    Stretch,
    Survivors,
    Unmasking,
    Vote,
)
from tests.vectors.message_vectors import Example

IDENTITY = SigningKey.from_seed(bytes([7] * 32))
CONTEXT = RoundContext(bytes(range(32)), 2, bytes([9] * 32), 10, 2, 9, 2, 3)
TERMS = SimpleNamespace(sizes={"a": 2, "b": 3})
COMPLETE = replace(CONTEXT, committee=0)
ROUND, UNSIGNED, HASH, NONCE = CONTEXT.tag, bytes(64), bytes(range(32)), bytes(range(16))
QUESTIONS = (Question(("a", "b")), Question(("b",), (("a", 1),)), Question(()))


def signed(kind, *fields, about=b""):
    """Return a message of a user; the signature is the same whenever it is made."""
    data = kind(ROUND, UNSIGNED, *fields).encode_signed(IDENTITY, CONTEXT, about)
    return kind.decode(data, CONTEXT)


def slots(size, there=(0, 3, 9), count=10):
    """Return items of one size for some of several slots."""
    return tuple(bytes([slot] * size) if slot in there else None for slot in range(count))


def beyond(message, at):
    """Return a message with a bit set beyond the last slot, in the byte at a place."""
    data = bytearray(message.encode(CONTEXT))
    data[at] |= 1
    return bytes(data)


DRAWN = NONCE + UNSIGNED + bytes(16) + bytes(range(64))
HEAD = 4 + len(Delivery.TAG) + len(ROUND)
SIGNED = [
    signed(AggregationAdvert, HASH, bytes([3] * 32)),
    signed(Commitment, 63, HASH),
    signed(Reveal, 0, NONCE, about=HASH),
    signed(Shares, HASH, slots(80)),
    signed(Vote, [i % 3 == 0 for i in range(10)], struct.pack("<3H", 1, 65535, 256)),
    signed(Endorsement, about=HASH),
    signed(Unmasking, slots(32), about=HASH),
]
EXAMPLES = [
    Example(Announcement(ROUND, NONCE, 1, QUESTIONS), TERMS),
    Example(RoundCall(ROUND, 63), CONTEXT),
    Example(Commitments(ROUND, 0, (HASH, bytes(32))), CONTEXT),
    Example(Neighbours(ROUND, 1, DRAWN, slots(128)), CONTEXT),
    Example(Neighbours(ROUND, 0, b"", slots(128, range(10))), COMPLETE),
    Example(
        Delivery(ROUND, slots(80)),
        CONTEXT,
        bad={"an eleventh slot": beyond(Delivery(ROUND, slots(80)), HEAD + 1)},
    ),
    Example(Delivery(ROUND, slots(80, ())), CONTEXT),
    Example(Survivors(ROUND, Stretch((HASH, bytes(32)), (bytes(36), bytes(range(36))))), CONTEXT),
    Example(Survivors(ROUND, Stretch((HASH,), ())), CONTEXT),
    Example(Endorsements(ROUND, slots(64, (1, 8), 9)), CONTEXT),
    *[Example(message, CONTEXT) for message in SIGNED],
]
