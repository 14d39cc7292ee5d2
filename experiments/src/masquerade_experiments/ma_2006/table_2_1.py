"""Ma (2006), Table 2.1: two variables with five categories each, and their disguise."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd

import masquerade as mq

NAMES = ("x1", "x2")
SIZE = 5

# probabilities in 60ths; rows are the categories of the first variable. As printed, the table sums to 57/60:
# column 5 lacks 3/60, which is added to its last cell.
SIXTIETHS = (
    (1.5, 18, 0, 1, 0),
    (4.5, 0, 2, 3, 3),
    (0, 6, 2, 0, 0),
    (3, 0, 0, 1, 6),
    (3, 0, 2, 1, 3),
)
PMF = np.array(SIXTIETHS) / 60

CORRECTED = (
    (
        "Table 2.1 as printed sums to 0.95: its fifth column lacks 1/20. The missing 1/20 is put into the "
        "cell of category 5 of both variables."
    ),
)


def sample(n: int, generator: np.random.Generator) -> pd.DataFrame:
    """Return records drawn from the table, with the categories 1 to 5."""
    cells = generator.choice(PMF.size, n, p=PMF.ravel())
    return pd.DataFrame(dict(zip(NAMES, (code + 1 for code in np.divmod(cells, SIZE)), strict=True)))


@cache
def policy(p: float) -> mq.Policy:
    """Return the disguise of both variables, independently: each value changes with probability p."""
    channel = mq.channels.symmetric(SIZE, p)
    return mq.Policy.build({name: list(range(1, SIZE + 1)) for name in NAMES}, dict.fromkeys(NAMES, channel))
