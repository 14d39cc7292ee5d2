"""Tables of counts as a learner: nothing is fitted, and every cell has its standard error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from masquerade.core.query import Query
from masquerade.core.table import CountTable
from masquerade.core.tally import Tally
from masquerade.core.util.display import Printed
from masquerade.core.util.formatting import printable


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tables(Printed):
    """Tables of counts.

    Attributes
    ----------
    tables : tuple of CountTable
        The tables, in the order of the query.

    Examples
    --------
    >>> found = mq.learn.tables(mq.tally(mq.data.students()), [["exams", "pills"], ["year"]])
    >>> [table.names for table in found.tables]
    [('exams', 'pills'), ('year',)]
    """

    tables: tuple[CountTable, ...]

    @printable
    def summary(self) -> str:
        """Return the tables as text, separated by blank lines."""
        return "\n\n".join(table.summary() for table in self.tables)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        listed = [
            {
                "by": list(table.names),
                "categories": [list(axis.categories) for axis in table.axes],
                "n": table.n,
                "values": table.values.tolist(),
                "stderr": table.stderr().tolist(),
            }
            for table in self.tables
        ]
        return {"masquerade": 1, "tables": listed}


def tables(source: Tally, tables: Sequence[Sequence[str]]) -> Tables:
    """Query several tables of counts in one batch.

    Parameters
    ----------
    source : Tally
        Source of counts.
    tables : sequence of sequence of str
        Variables of each table.

    Returns
    -------
    Tables
        One table per item of `tables`.

    Raises
    ------
    QueryRefused
        If the source refuses a table.

    Examples
    --------
    >>> found = mq.learn.tables(mq.tally(mq.data.students()), [["exams", "pills"]])
    >>> found.tables[0].values.tolist()
    [[264.0, 36.0], [210.0, 90.0]]
    """
    return Tables(tuple(source.answer([Query(by=tuple(names)) for names in tables])))
