"""Messages of computations on shares."""

import numpy as np

from masquerade.protocols.mpc.computation import Continuation, DealRequest, DealtShares, NeededDeal, Turn
from masquerade.protocols.mpc.engine import Deal
from masquerade.protocols.mpc.private_queries import AnswerShare, QuestionKey
from masquerade.protocols.mpc.record_order import HeldBlock, HeldCells, HolderRequest, PlaceOffer, PlacesTaken
from tests.vectors.examples.parties import SESSION
from tests.vectors.message_vectors import Example

NEEDED = NeededDeal.of(SESSION, Deal(3, "lookup", (7, 10, 4)))
TURN = Turn(SESSION, 4, 2, np.arange(5, dtype="<u2").tobytes())
EXAMPLES = [
    Example(NEEDED),
    Example(DealRequest(SESSION, NEEDED.encode(), (bytes(64), b"s" * 64))),
    Example(DealtShares(SESSION, (b"", b"sealed"))),
    Example(TURN),
    Example(Turn(SESSION, 5, 8, b"", NEEDED.encode(), b"a" * 64, None, b"t" * 64)),
    Example(Turn(SESSION, 6, 8, b"", found='{"parents":{}}')),
    Example(Continuation(SESSION, 5, (TURN.encode(),), b"sealed")),
    Example(QuestionKey(SESSION, 2, 1, bytes(range(16)), b"corrections")),
    Example(AnswerShare(SESSION, 2, 2**64 - 1, 7)),
    Example(HolderRequest(SESSION)),
    Example(HeldCells(SESSION, (HeldBlock(("A", "B"), bytes(32)), HeldBlock(("C",), b"t" * 16)))),
    Example(PlaceOffer(SESSION, 3, (np.array([0, 2], dtype=np.uint32), np.array([1], dtype=np.uint32)))),
    Example(PlacesTaken(SESSION)),
]
