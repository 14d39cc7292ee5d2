"""Messages of linking."""

from masquerade.protocols.linkage.psi import (
    Confirmation,
    LinkageStep,
    LinkingOffer,
    MaskedPoints,
    PseudonymRequest,
    Pseudonyms,
    Receipt,
    ReturnedPoints,
)
from tests.vectors.examples.parties import DIGEST, SESSION
from tests.vectors.message_vectors import Example

STEPS = (
    LinkageStep("x", 1, bytes(32), DIGEST, bytes(64)),
    LinkageStep("ü", 1, DIGEST, bytes(32), bytes(range(64))),
)
SIGNED = Receipt(SESSION, 7, bytes(range(64)))
EXAMPLES = [
    Example(LinkingOffer(SESSION, ("x", "y"), 100)),
    Example(LinkingOffer(SESSION, ("x", "y"), 2**32 - 1)),
    Example(MaskedPoints(SESSION, "x", DIGEST)),
    Example(MaskedPoints(SESSION, "x", DIGEST, STEPS)),
    Example(ReturnedPoints(SESSION, DIGEST, STEPS)),
    Example(Confirmation(SESSION, (SIGNED.encode(), b""))),
    Example(PseudonymRequest(SESSION)),
    Example(Pseudonyms(SESSION, SESSION)),
    Example(Receipt(SESSION, 7)),
    Example(SIGNED, bad={"half a signature": SIGNED.encode()[:-65] + b"\x20" + bytes(32)}),
]
