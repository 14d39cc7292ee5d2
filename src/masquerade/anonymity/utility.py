"""What a k-anonymous table has lost."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.words import counted


@dataclass(frozen=True, slots=True)
class Utility:
    """Measures of what was taken away; smaller is better for all of them.

    `suppressed_cells` are stars and `generalised_cells` values shown more coarsely, among `cells` of
    quasi-identifiers. `discernibility` is Σ (rows of a class)². `average_class` is C_avg: the average class
    over k. `loss` is the normalised certainty penalty: 0 for a value as it was, 1 for a star, else the share
    of the column's distinct values that look the same, averaged over all cells.
    """

    rows: int
    cells: int
    suppressed_cells: int
    generalised_cells: int
    classes: int
    discernibility: int
    average_class: float
    loss: float

    def to_dict(self) -> dict[str, Any]:
        """Return the measures as plain values."""
        return asdict(self)

    def summary(self) -> str:
        """Return the measures as text."""
        share = self.suppressed_cells / max(self.cells, 1)
        return (
            f"{self.suppressed_cells:,} of {counted(self.cells, 'cell')} suppressed ({share:.1%}), "
            f"{self.generalised_cells:,} generalised; {counted(self.classes, 'class', 'classes')} of "
            f"{counted(self.rows, 'row')}, "
            f"C_avg = {self.average_class:.2f}, discernibility {self.discernibility:,}, loss {self.loss:.4f}"
        )


def measured(
    levels: NDArray[np.int8],
    tops: NDArray[np.int8],
    loss: NDArray[np.float64],
    sizes: NDArray[np.int64],
    k: int,
) -> Utility:
    """Return the measures of a table from the level of every cell, the loss of every row and the classes."""
    rows, columns = levels.shape
    stars = int((levels == tops).sum())
    return Utility(
        rows=rows,
        cells=rows * columns,
        suppressed_cells=stars,
        generalised_cells=int((levels > 0).sum()) - stars,
        classes=len(sizes),
        discernibility=int((sizes.astype(object) ** 2).sum()) if len(sizes) else 0,
        average_class=rows / len(sizes) / k if len(sizes) else 0.0,
        loss=float(loss.sum()) / max(rows * columns, 1),
    )
