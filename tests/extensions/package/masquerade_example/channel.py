"""A kind of channel: the truth, or with probability p any category alike, the truth among them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from masquerade import Channel, Variable, channels
from masquerade.extend import Number, PolicyPart


class Lottery(PolicyPart):
    """In a policy file: ``channel: {kind: lottery, p: 0.3}``."""

    kind: Literal["lottery"]
    p: Number

    def build(self, variables: Sequence[Variable]) -> Channel:
        """Return the channel over the categories of one variable."""
        (variable,) = variables
        blind = self.p / len(variable)
        rows = [[blind] * len(variable) for _ in variable.categories]
        for code, row in enumerate(rows):
            row[code] += 1 - self.p
        return channels.matrix(rows)
