"""Messages of a projection."""

import numpy as np

from masquerade.protocols.vertical.projection import (
    MarginRequest,
    Numbers,
    ProjectionRequest,
    SealedSecret,
    SealedSecrets,
    SecretReceipt,
    SecretRequest,
)
from tests.vectors.examples.parties import SESSION
from tests.vectors.message_vectors import Example

FLOATS = Numbers(SESSION, np.array([1.5, -0.0, 5e-324]))
EXAMPLES = [
    Example(SecretRequest(SESSION)),
    Example(SealedSecrets(SESSION, (b"for one", b""))),
    Example(SealedSecret(SESSION, b"sealed")),
    Example(SecretReceipt(SESSION)),
    Example(MarginRequest(SESSION, ("a", "b"))),
    Example(ProjectionRequest(SESSION, ("a",), 0, 2**40, 7)),
    Example(
        FLOATS,
        bad={
            "no number": FLOATS.encode()[:-8] + np.array([np.nan]).tobytes(),
            "no finite number": FLOATS.encode()[:-8] + np.array([np.inf]).tobytes(),
        },
    ),
]
