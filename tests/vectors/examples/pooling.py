"""Messages of pooled sums."""

import numpy as np

from masquerade.protocols.secure_sum import CountRequest, MaskedCounts
from tests.vectors.examples.parties import BATCH, SESSION, WRONG, respelt
from tests.vectors.message_vectors import Example

WORDS = np.array([0, 1, 2**64 - 1], dtype=np.uint64)
EXAMPLES = [
    Example(CountRequest(SESSION, 2, BATCH), bad=respelt(CountRequest(SESSION, 2, BATCH), *WRONG)),
    Example(MaskedCounts(SESSION, 2, WORDS)),
    Example(MaskedCounts(SESSION, 2, WORDS[:0])),
]
