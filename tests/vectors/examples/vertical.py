"""Messages of vertical and arbitrary partitions."""

import masquerade as mq
from masquerade.protocols.vertical.disguised_cells import (
    BlockShape,
    CellDescription,
    CellRequest,
    DescriptionRequest,
    DisguisedCells,
)
from tests.vectors.examples.parties import SESSION
from tests.vectors.message_vectors import Example

POLICY = mq.Policy.from_dict(
    {
        "masquerade": 1,
        "variables": {
            "a": {"categories": ["yes", "no"], "channel": {"kind": "binary", "p": 0.25}},
            "b": {"categories": [1, 2, 3], "channel": {"kind": "symmetric", "p": "1/3"}},
            "c": {"categories": [True, False]},
        },
    }
)
DESCRIBED = CellDescription(SESSION, "x", POLICY, (BlockShape(("A", "B"), 1 << 40), BlockShape(("S",), 0)))


def policies(*texts):
    """Return a description with other texts for its policy."""
    data = DESCRIBED.encode()
    start = data.index(b"{")
    end = data.rindex(b"}") + 1
    return {
        f"the policy {text[:20]}": data[: start - 4] + len(text).to_bytes(4, "big") + text + data[end:]
        for text in texts
    }


WRITTEN = DESCRIBED.encode()[DESCRIBED.encode().index(b"{") : DESCRIBED.encode().rindex(b"}") + 1]
WRONG = (b"{}", b"[]", b"", b"[" * 5000, WRITTEN.replace(b":", b": ", 1), b" " + WRITTEN)
EXAMPLES = [
    Example(DescriptionRequest(SESSION, "miner", ("a",))),
    Example(DescriptionRequest(SESSION, "miner", ())),
    Example(DESCRIBED, bad=policies(*WRONG)),
    Example(CellRequest(SESSION, "miner", ("a",), 0, 1)),
    Example(DisguisedCells(SESSION, "x", POLICY.id, 0, 1, (b"", b"arrow"))),
]
