"""Messages of pooled sums."""

import numpy as np

from masquerade.protocols.pooling.masked_sum import Ask, Masked
from masquerade.protocols.pooling.ring_sum import Passed
from tests.vectors.examples.parties import BATCH, DIGEST, SESSION, WRONG, respelt
from tests.vectors.message_vectors import Example

WORDS = np.array([0, 1, 2**64 - 1], dtype=np.uint64)
EXAMPLES = [
    Example(Ask(SESSION, 2, BATCH), bad=respelt(Ask(SESSION, 2, BATCH), *WRONG)),
    Example(Masked(SESSION, 2, WORDS)),
    Example(Masked(SESSION, 2, WORDS[:0])),
    Example(Passed(SESSION, DIGEST, 3, BATCH, WORDS)),
]
