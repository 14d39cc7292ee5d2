"""Messages of a projection."""

import numpy as np

from masquerade.protocols.projection.messages import Deal, Dealt, Margin, Numbers, Submit, Take, Taken
from tests.vectors.examples.parties import SESSION
from tests.vectors.message_vectors import Example

FLOATS = Numbers(SESSION, np.array([1.5, -0.0, 5e-324]))
EXAMPLES = [
    Example(Deal(SESSION)),
    Example(Dealt(SESSION, (b"for one", b""))),
    Example(Take(SESSION, b"sealed")),
    Example(Taken(SESSION)),
    Example(Margin(SESSION, ("a", "b"))),
    Example(Submit(SESSION, ("a",), 0, 2**40, 7)),
    Example(
        FLOATS,
        bad={
            "no number": FLOATS.encode()[:-8] + np.array([np.nan]).tobytes(),
            "no finite number": FLOATS.encode()[:-8] + np.array([np.inf]).tobytes(),
        },
    ),
]
