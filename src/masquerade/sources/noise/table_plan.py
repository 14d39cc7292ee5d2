"""Plan tables with noise: what a budget buys, before anything is spent. No record is read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

from masquerade.channels.noise.terms import NoiseTerms
from masquerade.core.errors import InputError
from masquerade.core.query import Query
from masquerade.core.schema import Schema
from masquerade.core.util.display import Printed
from masquerade.core.util.formatting import counted, printable
from masquerade.sources.noise.contrasts import NoisyTable, TableFusion
from masquerade.sources.noise.table_cost import canonical_query, is_small, tables_to_ask

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

SHOWN = 12  # most queries in the description of a plan


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """Expected errors of one query.

    Attributes
    ----------
    query : Query
        The query.
    cells : int
        Number of its cells.
    noise : float
        Standard deviation of the noise of a cell, after tables were made consistent.
    sampling : float
        Standard deviation of the same count by sampling alone, if all cells are equally likely.
    """

    query: Query
    cells: int
    noise: float
    sampling: float

    @property
    def title(self) -> str:
        """Return the query as text."""
        by = " × ".join(self.query.by) or "records"
        where = ", ".join(f"{name} = {label}" for name, label in self.query.where)
        return f"{by} where {where}" if where else by


@dataclass(frozen=True, repr=False)
class TablePlan(Printed):
    """Plan of tables with noise: the cost and the errors of queries, before they are asked.

    Attributes
    ----------
    terms : NoiseTerms
        Privacy, tables and contributors.
    n : int
        Number of records.
    queries : tuple of PlannedQuery
        Queries and their expected errors.

    Examples
    --------
    >>> schema = mq.tally(mq.data.students()).schema
    >>> plan = mq.plan_tables(schema, n=600, epsilon=1)
    >>> plan.terms.number
    6
    >>> plan.to_frame().columns.tolist()
    ['query', 'cells', 'noise', 'sampling', 'share_error']
    """

    terms: NoiseTerms
    n: int
    queries: tuple[PlannedQuery, ...]

    @property
    def worst(self) -> float:
        """Return the largest standard deviation of the noise of a cell."""
        return max(item.noise for item in self.queries)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per query: cells, deviations of noise and sampling, error of a cell's share."""
        import pandas as pd  # noqa: PLC0415  (slow to import)

        return pd.DataFrame(
            {
                "query": [item.title for item in self.queries],
                "cells": [item.cells for item in self.queries],
                "noise": [item.noise for item in self.queries],
                "sampling": [item.sampling for item in self.queries],
                "share_error": [math.hypot(item.noise, item.sampling) / self.n for item in self.queries],
            }
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        rows = [
            {"query": item.title, "cells": item.cells, "noise": item.noise, "sampling": item.sampling}
            for item in self.queries
        ]
        return {
            "terms": self.terms.to_dict(),
            "records": self.n,
            "tables": self.terms.number,
            "deviation": self.terms.deviation,
            "queries": rows,
        }

    @printable
    def summary(self) -> str:
        """Return the budget, the noise of a cell, and the errors of the queries, the largest first."""
        terms = self.terms
        who = "a curator adds the noise"
        if terms.contributors > 1:
            who = (
                f"{terms.contributors:,} contributors add noise, {terms.honest:,} of them honest and present "
                "to the end"
            )
        lines = [
            (
                f"{counted(terms.number, 'table')} at ε = {terms.epsilon:g} (δ = {terms.delta:g}) a record: "
                f"{who}"
            ),
            f"noise of a cell as drawn: standard deviation {terms.deviation:.1f}",
        ]
        ordered = sorted(self.queries, key=lambda item: -item.noise)
        width = max(len(item.title) for item in ordered[:SHOWN])
        lines.append(f"{'query':<{width}}  cells   noise  sampling  share")
        for item in ordered[:SHOWN]:
            share = math.hypot(item.noise, item.sampling) / self.n
            figures = f"{item.cells:>5}  {item.noise:>6.1f}  {item.sampling:>8.1f}  ±{share:.4f}"
            lines.append(f"{item.title:<{width}}  {figures}")
        if len(ordered) > SHOWN:
            lines.append(f"and {len(ordered) - SHOWN} more with less noise")
        lines.append("(standard deviations; sampling as if all cells were equally likely)")
        return "\n".join(lines)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the error of a cell's share for each query, by noise and by sampling.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw on. By default new ones.

        Returns
        -------
        matplotlib Axes
            The plot.
        """
        from masquerade.core.plots.drawing import new_axes  # noqa: PLC0415  (loads matplotlib)

        ordered = sorted(self.queries, key=lambda item: item.noise)[-SHOWN:]
        axes = new_axes(6.4, 1.2 + 0.3 * len(ordered)) if ax is None else ax
        places = range(len(ordered))
        axes.barh(places, [item.noise / self.n for item in ordered], height=0.6, label="noise")
        axes.scatter(
            [item.sampling / self.n for item in ordered], places, color="black", zorder=3, label="sampling"
        )
        axes.set_yticks(list(places), [item.title for item in ordered])
        axes.set_xlabel("standard deviation of a cell's share")
        axes.legend()
        return axes


def all_tables(schema: Schema, size: int = 2) -> list[Query]:
    """Return the queries of all tables of `size` variables."""
    if not 1 <= size <= len(schema):
        raise InputError(f"Tables have 1 to {len(schema)} variables. Got {size} instead.")
    return [Query(by=names) for names in combinations(schema, size)]


def plan_tables(
    schema: Schema,
    queries: Sequence[Query] | None = None,
    *,
    n: int,
    epsilon: float,
    delta: float = 1e-6,
    tables: int | None = None,
    contributors: int = 1,
    colluders: int = 0,
) -> TablePlan:
    """Plan tables with noise: their cost and errors, from the queries alone. Nothing is spent.

    Parameters
    ----------
    schema : Schema
        Variables and categories.
    queries : sequence of Query, optional
        Queries to answer. By default the tables of all pairs of variables.
    n : int
        Number of records.
    epsilon : float
        ε of all tables together.
    delta : float, default 1e-6
        δ of all tables together.
    tables : int, optional
        Number of tables of the budget. By default as many as the queries take.
    contributors : int, default 1
        Contributors that add noise: 1 for a curator.
    colluders : int, default 0
        Contributors that may reveal their noise.

    Returns
    -------
    TablePlan
        Errors of all queries.

    Raises
    ------
    InputError
        If the queries take more tables than the budget has, or a table is too large.

    Examples
    --------
    >>> schema = mq.Schema({"smoker": ["yes", "no"], "region": ["north", "south"]})
    >>> plan = mq.plan_tables(schema, n=10_000, epsilon=1, contributors=2, colluders=1)
    >>> round(plan.worst, 1)
    3.4
    """
    asked = all_tables(schema, min(2, len(schema))) if queries is None else list(queries)
    for query in asked:
        query.check(schema)
    groups = tables_to_ask(asked, [], [], schema)
    large = [query for group in groups for query in group if not is_small(query, schema)]
    if large or not groups:
        raise InputError("A query has too many cells for noise." if large else "There is no table to query.")
    if tables is not None and len(groups) > tables:
        raise InputError(f"These queries take {len(groups)} tables, and the budget has {tables}.")
    terms = NoiseTerms(epsilon, len(groups) if tables is None else tables, delta, contributors, colluders)
    plain = [query for group in groups for query in group if not query.where]
    fusion = TableFusion(schema, n, [NoisyTable(query.by, None, terms.variance) for query in plain])
    return TablePlan(terms, n, tuple(_expect(query, schema, n, fusion, terms) for query in asked))


def _expect(query: Query, schema: Schema, n: int, fusion: TableFusion, terms: NoiseTerms) -> PlannedQuery:
    """Return the expected errors of a query."""
    names = canonical_query(Query(by=query.names), schema).by
    cells = math.prod(schema.shape(query.by))
    share = 1 / math.prod(schema.shape(names)) if names else 1.0
    variance = terms.variance
    if not names:
        variance = 0.0
    elif fusion.covers(names):
        conditions = {names.index(name): 0 for name, _ in query.where}
        keep = [names.index(name) for name in query.by]
        variance = float(fusion.covariance(names).reduce(keep, conditions).diagonal().max(initial=0.0))
    return PlannedQuery(query, cells, math.sqrt(variance), math.sqrt(n * share * (1 - share)))
