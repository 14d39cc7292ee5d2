"""Messages of linking."""

from masquerade.protocols.linking.messages import (
    Begin,
    Compare,
    Confirm,
    Done,
    Finish,
    Points,
    Pseudonyms,
    Step,
)
from tests.vectors.examples.parties import DIGEST, SESSION
from tests.vectors.message_vectors import Example

STEPS = (Step("x", 1, bytes(32), DIGEST, bytes(64)), Step("ü", 1, DIGEST, bytes(32), bytes(range(64))))
SIGNED = Done(SESSION, 7, bytes(range(64)))
EXAMPLES = [
    Example(Begin(SESSION, ("x", "y"), 100)),
    Example(Begin(SESSION, ("x", "y"), 2**32 - 1)),
    Example(Points(SESSION, "x", DIGEST)),
    Example(Points(SESSION, "x", DIGEST, STEPS)),
    Example(Finish(SESSION, DIGEST, STEPS)),
    Example(Confirm(SESSION, (SIGNED.encode(), b""))),
    Example(Compare(SESSION)),
    Example(Pseudonyms(SESSION, SESSION)),
    Example(Done(SESSION, 7)),
    Example(SIGNED, bad={"half a signature": SIGNED.encode()[:-65] + b"\x20" + bytes(32)}),
]
