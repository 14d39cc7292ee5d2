"""Re-identification risk: the probability that an attacker recognises a record of a sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.anonymity.columns import distinct_rows, encode_column, require_columns
from masquerade.core.errors import InputError
from masquerade.core.util.display import Printed
from masquerade.core.util.formatting import counted, printable

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RiskReport(Printed):
    """Re-identification risk of every record, in the order of the table.

    Attributes
    ----------
    quasi_identifiers : tuple of str
        Columns that the attacker knows.
    records : ndarray
        Probability that each record is recognised.
    frequencies : ndarray of int
        Number of records in the table with the same quasi-identifiers, for each record.
    estimated : ndarray
        Estimated number of people in the population with the same quasi-identifiers, for each record.
    households : ndarray or None
        Probability that any member of the record's household is recognised; None without households.

    Examples
    --------
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
    def expected_count(self) -> float:
        """Return the expected number of recognised records of the table."""
        return float(self.records.sum())

    def above(self, threshold: float) -> int:
        """Return the number of records with a risk above a threshold."""
        return int((self.records > threshold).sum())

    def to_dict(self) -> dict[str, Any]:
        """Return figures for the whole table as plain values, without the risk of any single record."""
        rows = len(self.records)
        values = {
            "quasi_identifiers": list(self.quasi_identifiers),
            "rows": rows,
            "expected": self.expected_count,
            "rate": self.expected_count / rows if rows else 0.0,
            "largest": float(self.records.max(initial=0.0)),
            "above": [[threshold, self.above(threshold)] for threshold in (0.05, 0.1, 0.2, 0.5)],
        }
        if self.households is not None:
            values["largest_of_a_household"] = float(self.households.max(initial=0.0))
        return values

    @printable
    def summary(self) -> str:
        """Return figures for the whole table as text."""
        by, rows = ", ".join(self.quasi_identifiers), len(self.records)
        if not rows:
            return f"The table has no rows, so there is no risk by {by}."
        expected = f"{self.expected_count:,.2f} of {counted(rows, 'record')} expected"
        share = f"{self.expected_count / rows:.2%}"
        lines = [
            f"{expected} to be recognised by {by} ({share})",
            f"largest risk {self.records.max():.4f}; above 0.1: {counted(self.above(0.1), 'record')}",
        ]
        if self.households is not None:
            lines.append(f"largest risk of a household {self.households.max():.4f}")
        lines.append("These numbers rest on a model of the attacker: they are not a guarantee.")
        return "\n".join(lines)


def risk(
    frame: Any, quasi_identifiers: Sequence[str], *, weight: str | None = None, household: str | None = None
) -> RiskReport:
    """Estimate the risk that each record is recognised by its quasi-identifiers.

    The attacker knows the quasi-identifiers of a person in the population. Suppressed cells (stars) are equal
    to each other, as in `check`.

    Parameters
    ----------
    frame : DataFrame
        Table: pandas, Polars or PyArrow.
    quasi_identifiers : sequence of str
        Columns that the attacker knows.
    weight : str, optional
        Column with sampling weights: the number of people in the population that a record represents, at
        least 1. Without it, the table is taken to be the whole population.
    household : str, optional
        Column with the same value for all members of a household. An attacker who recognises one member is
        assumed to recognise all.

    Returns
    -------
    RiskReport
        Risk of every record, and totals.

    Raises
    ------
    InputError
        If a column is unknown or a weight is not a number of at least 1.

    Notes
    -----
    Formula: r = E[1/F | f] = p/f · ₂F₁(1, 1; f + 1; 1 − p), where f records of the sample share the
    quasi-identifiers, their weights sum to F̂, p = f/F̂, and F given f is negative binomial; r = 1/f if p = 1.
    The risk of a household is 1 − Π (1 − r).
    Reference: Benedetti & Franconi (1998); Franconi & Polettini (2004), Individual risk estimation in
    μ-Argus. It is the base individual risk of sdcMicro's measure_risk, which approximates it by default.
    Cost: O(rows). Error: the model's own error; weights that do not represent the classes bias the risk.

    Examples
    --------
    >>> print(mq.anonymity.risk(mq.data.students(), ["exams", "year"]).summary())
    6.00 of 600 records expected to be recognised by exams, year (1.00%)
    largest risk 0.0125; above 0.1: 0 records
    These numbers rest on a model of the attacker: they are not a guarantee.
    """
    from scipy.special import hyp2f1  # noqa: PLC0415  (slow to load)

    table = require_columns(frame, quasi_identifiers, "quasi_identifiers")
    require_columns(frame, [name for name in (*quasi_identifiers, weight, household) if name], "the columns")
    codes = np.stack([encode_column(table[name]).codes for name in quasi_identifiers], axis=1)
    _, group, sizes = distinct_rows(codes)
    weights = np.ones(len(codes)) if weight is None else _weights(table[weight].to_list(), weight)
    people = np.bincount(group, weights, minlength=len(sizes)).astype(np.float64)
    share = np.minimum(sizes / np.maximum(people, 1.0), 1.0)
    of_class = share / np.maximum(sizes, 1) * hyp2f1(1, 1, sizes + 1, 1 - share)
    records = np.minimum(of_class, 1.0)[group]
    together = None
    if household is not None:
        home = encode_column(table[household]).codes
        with np.errstate(divide="ignore"):
            none = np.bincount(home, np.log1p(-records), minlength=1)
        together = -np.expm1(none)[home]
    return RiskReport(tuple(quasi_identifiers), records, sizes[group], people[group], together)


def _weights(values: Sequence[Any], name: str) -> Floats:
    """Return sampling weights; raise InputError with the row of an invalid weight."""
    for row, value in enumerate(values, start=1):
        number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
        if not number or not np.isfinite(value) or value < 1:
            raise InputError(f"column {name!r}, row {row}: a weight must be a number of people, at least 1.")
    return np.array(values, dtype=np.float64)
