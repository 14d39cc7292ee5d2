"""Candidate links: each with the table of its child and parents, or many of them counted together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import prod

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError
from masquerade.core.links.fits import LinkBatch, Places, fit_links
from masquerade.core.table import CountTable

ROUNDING = 1e-9


class Candidates:
    """Candidate links. `places` are the axes of each table for (other parents …, parent, child)."""

    def __init__(self, tables: Sequence[CountTable], places: Sequence[Sequence[int]]) -> None:
        self.tables, self.places = tables, places
        self.n = tables[0].n
        if self.n < 1:
            raise _nothing()

    @cached_property
    def shapes(self) -> list[tuple[int, int, int]]:
        """The configurations of the other parents, the categories of the parent and of the child."""
        found = []
        for table, places in zip(self.tables, self.places, strict=True):
            sizes = [table.values.shape[place] for place in places]
            # only the number of configurations matters: parents (2, 3) and (3, 2) both have six
            found.append((prod(sizes[:-2]), sizes[-2], sizes[-1]))
        return found

    @cached_property
    def df(self) -> Floats:
        """The degrees of freedom that each link adds, including configurations that do not occur."""
        sizes = np.array(self.shapes, dtype=float)
        return np.asarray(sizes[:, 0] * (sizes[:, 1] - 1) * (sizes[:, 2] - 1))

    @property
    def effective(self) -> float:
        """The effective number of records: equally weighted records with the same information."""
        return effective_records(self.tables[0])

    def statistics(self, least: Floats) -> Floats:
        """Return the `LinkFits.statistic` of every link, or a bound if it is at most its `least`."""
        return fit_links([table.evidence for table in self.tables], self.places, least=least).statistic

    def by_shape(self) -> list[tuple[list[int], Candidates]]:
        """Return the links grouped by shape, with their indices."""
        groups: dict[tuple[int, int, int], list[int]] = {}
        for i, shape in enumerate(self.shapes):
            groups.setdefault(shape, []).append(i)
        return [(members, self[members]) for members in groups.values()]

    @cached_property
    def estimates(self) -> Floats:
        """The unbiased counts rescaled to n, of links of one shape: (link, configurations, parent, child)."""
        raw = np.empty((len(self), *self.shapes[0]))
        for i, (table, order) in enumerate(zip(self.tables, self.places, strict=True)):
            raw[i] = table.values.transpose(order).reshape(self.shapes[0])
        totals = raw.sum(axis=(1, 2, 3))
        if np.any(totals <= 0):
            raise _nothing()
        return np.asarray(raw * (self.n / totals)[:, None, None, None])

    @cached_property
    def counts(self) -> Floats:
        """The estimates without negative counts: clipped and rescaled, as `nonnegative("clip")` does."""
        positive = np.maximum(self.estimates, 0.0)
        return np.asarray(positive * (self.n / positive.sum(axis=(1, 2, 3)))[:, None, None, None])

    def __getitem__(self, chosen: Sequence[int]) -> Candidates:
        """Return a selection of the links."""
        return Candidates([self.tables[i] for i in chosen], [self.places[i] for i in chosen])

    def __len__(self) -> int:
        """Return the number of links."""
        return len(self.tables)


class LaidOut:
    """Candidate links, for likelihood scores, that a source counted together without one table per link."""

    def __init__(self, batch: LinkBatch, df: Floats, which: Places | None = None) -> None:
        self.batch, self.df = batch, df
        self.which = np.arange(len(df)) if which is None else which
        self.n = batch.n

    @property
    def effective(self) -> float:
        """The effective number of records: equally weighted records with the same information."""
        return float(self.n)

    def statistics(self, least: Floats) -> Floats:
        """Return the `LinkFits.statistic` of every link, or a bound if it is at most its `least`."""
        return self.batch.statistics(self.which, least)

    def __getitem__(self, chosen: Sequence[int]) -> LaidOut:
        """Return a selection of the links."""
        return LaidOut(self.batch, self.df[chosen], self.which[chosen])

    def __len__(self) -> int:
        """Return the number of links."""
        return len(self.which)


def effective_records(table: CountTable) -> float:
    """Return the effective number of records: (Σw)²/Σw², which is n without survey weights."""
    total = table.total
    squares = table.covariance.quadratic(np.ones(table.values.shape)) + total**2 / table.n
    if total <= 0 or squares <= 0:
        raise _nothing()
    effective = total**2 / squares
    return effective if effective < (1 - ROUNDING) * table.n else float(table.n)


def _nothing() -> InputError:
    return InputError("The source has no records: there is nothing to learn a structure from.")
