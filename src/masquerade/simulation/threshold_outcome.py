"""What comes out of an epoch of distributed k-anonymity, in either form."""

from __future__ import annotations

from dataclasses import dataclass

from masquerade.core.guarantee import Guarantee
from masquerade.simulation.costs import Cost
from masquerade.simulation.outcome import Caught

Row = tuple[bytes, bytes]  # quasi-identifier and sensitive part


@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """Open rows, how many others did not open for which reason, bad reports, cost and guarantee."""

    rows: tuple[Row, ...]
    closed: dict[str, int]
    faults: tuple[Caught, ...]
    cost: Cost
    guarantee: Guarantee
