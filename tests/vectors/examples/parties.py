"""Messages that open a session, and questions before anything is counted."""

import masquerade as mq
from masquerade.core.errors import Refusal
from masquerade.protocols.wire.session import (
    Advert,
    Batch,
    Proposal,
    RosterReceipt,
    SessionOffer,
    SessionRoster,
    SignedConsent,
)
from tests.vectors.message_vectors import Example

SESSION = bytes(range(16))
DIGEST = bytes(range(32))
BATCH = Batch((mq.Query(by=("a", "b"), where={"c": True, "d": 1}), mq.Query()))


def respelt(message, *texts):
    """Return a message with other spellings of its batch of questions."""
    data, canonical = message.encode(), BATCH.text.encode()
    written = len(canonical).to_bytes(4, "big") + canonical
    assert data.count(written) == 1
    return {
        f"the batch {text[:20]}": data.replace(written, len(text).to_bytes(4, "big") + text.encode())
        for text in texts
    }


WRONG = (
    "{}",
    "[[]]",
    '[["a",[]]]',
    '[[["a"], []]]',
    '[[["a","a"],[]]]',
    '[[["a"],[["b",1.5]]]]',
    "[" * 5000,
    "1" * 5000,
)
EXAMPLES = [
    Example(SessionOffer(SESSION, DIGEST, ("x", "ü"))),
    Example(SessionOffer(SESSION, DIGEST, ())),
    Example(Advert(SESSION, DIGEST, "x", DIGEST, bytes(64))),
    Example(SessionRoster(SESSION, (b"1", b""))),
    Example(RosterReceipt(SESSION, DIGEST)),
    Example(Proposal(SESSION, 1, BATCH), bad=respelt(Proposal(SESSION, 1, BATCH), *WRONG)),
    Example(SignedConsent(SESSION, 1, (Refusal("code", "reason"), Refusal("other", "")))),
    Example(SignedConsent(SESSION, 2**64 - 1, ())),
]
