"""How likely each record of a sample is to be recognised by its quasi-identifiers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.anonymity.columns import coded, collapsed, listed
from masquerade.core.errors import InputError
from masquerade.core.util.display import Printed
from masquerade.core.util.formatting import counted, printable

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RiskReport(Printed):
    """The risk of every record, in the order of the table.

    `records` are the probabilities that a record is recognised, `frequencies` how many records of the table
    look like it, and `estimated` how many people of the population. With households, `households` are the
    probabilities that anybody of a record's household is recognised, else None.

    >>> found = mq.anonymity.risk(mq.data.students(), ["exams", "year"])
    >>> round(float(found.records.max()), 4), int(found.frequencies.min())
    (0.0125, 80)
    """

    quasi_identifiers: tuple[str, ...]
    records: Floats
    frequencies: NDArray[np.int64]
    estimated: Floats
    households: Floats | None = None

    @property
    def expected(self) -> float:
        """Return how many records are expected to be recognised, of those in the table."""
        return float(self.records.sum())

    def above(self, threshold: float) -> int:
        """Return how many records have a risk above a threshold."""
        return int((self.records > threshold).sum())

    def to_dict(self) -> dict[str, Any]:
        """Return figures of the whole table as plain values, without any of a single record."""
        rows = len(self.records)
        values = {
            "quasi_identifiers": list(self.quasi_identifiers),
            "rows": rows,
            "expected": self.expected,
            "rate": self.expected / rows if rows else 0.0,
            "largest": float(self.records.max(initial=0.0)),
            "above": [[threshold, self.above(threshold)] for threshold in (0.05, 0.1, 0.2, 0.5)],
        }
        if self.households is not None:
            values["largest_of_a_household"] = float(self.households.max(initial=0.0))
        return values

    @printable
    def summary(self) -> str:
        """Return the figures of the whole table as text."""
        by, rows = ", ".join(self.quasi_identifiers), len(self.records)
        if not rows:
            return f"The table has no rows: over {by} there is no risk to tell."
        share = f"{self.expected / rows:.2%}"
        lines = [
            f"{self.expected:,.2f} of {counted(rows, 'record')} expected to be recognised by {by} ({share})",
            f"largest risk {self.records.max():.4f}; above 0.1: {counted(self.above(0.1), 'record')}",
        ]
        if self.households is not None:
            lines.append(f"largest risk of a household {self.households.max():.4f}")
        lines.append("A model of who looks for whom: no guarantee, whatever the figures.")
        return "\n".join(lines)


def risk(
    frame: Any, quasi_identifiers: Sequence[str], *, weight: str | None = None, household: str | None = None
) -> RiskReport:
    """Return the risk that each record of a table is recognised by somebody who knows its quasi-identifiers.

    `weight` names a column with the number of people of the population that a record stands for (its sampling
    weight, at least 1); without one the table is the whole population. `household` names a column whose equal
    values live together: who recognises one of them recognises all. A star equals a star, as in `check`.

    Formula: r = E[1/F | f] = p/f · ₂F₁(1, 1; f + 1; 1 − p), where f records of the sample look alike, their
    weights sum to F̂, p = f/F̂, and F given f is negative binomial; 1/f where p = 1. Of a household it is
    1 − Π (1 − r).
    Reference: Benedetti & Franconi (1998); Franconi & Polettini (2004), Individual risk estimation in
    μ-Argus: the base individual risk of sdcMicro's measure_risk, there by default approximated.
    Cost: O(rows). Error: that of the model; weights that do not fit the classes bias it.

    >>> print(mq.anonymity.risk(mq.data.students(), ["exams", "year"]).summary())
    6.00 of 600 records expected to be recognised by exams, year (1.00%)
    largest risk 0.0125; above 0.1: 0 records
    A model of who looks for whom: no guarantee, whatever the figures.
    """
    from scipy.special import hyp2f1  # noqa: PLC0415  (slow to load)

    table = listed(frame, quasi_identifiers, "quasi_identifiers")
    listed(frame, [name for name in (*quasi_identifiers, weight, household) if name], "the columns")
    codes = np.stack([coded(table[name]).codes for name in quasi_identifiers], axis=1)
    _, group, sizes = collapsed(codes)
    weights = np.ones(len(codes)) if weight is None else _weights(table[weight].to_list(), weight)
    people = np.bincount(group, weights, minlength=len(sizes)).astype(np.float64)
    share = np.minimum(sizes / np.maximum(people, 1.0), 1.0)
    of_class = share / np.maximum(sizes, 1) * hyp2f1(1, 1, sizes + 1, 1 - share)
    records = np.minimum(of_class, 1.0)[group]
    together = None
    if household is not None:
        home = coded(table[household]).codes
        with np.errstate(divide="ignore"):
            none = np.bincount(home, np.log1p(-records), minlength=1)
        together = -np.expm1(none)[home]
    return RiskReport(tuple(quasi_identifiers), records, sizes[group], people[group], together)


def _weights(values: Sequence[Any], name: str) -> Floats:
    """Return sampling weights; what is none is refused by its row."""
    for row, value in enumerate(values, start=1):
        number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
        if not number or not np.isfinite(value) or value < 1:
            raise InputError(f"column {name!r}, row {row}: a weight is a number of people, at least 1.")
    return np.array(values, dtype=np.float64)
