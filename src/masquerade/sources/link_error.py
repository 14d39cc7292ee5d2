"""Tables of linked records, corrected for wrong and missing links.

A wrong link pairs a record with another person's values, which acts as a channel on the variables of the
other file. A missing link removes a record. The rates of wrong and missing links come from links that were
checked, or from planted pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Self

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.covariance import BlockCovariance, Covariance, Kind
from masquerade.core.errors import InputError, Refusal
from masquerade.core.evidence import TableReduction
from masquerade.core.query import Query
from masquerade.core.reduced_covariance import ReducedCovariance
from masquerade.core.schema import Category
from masquerade.core.table import CountTable
from masquerade.core.tally import Tally, check_source, raise_refusals
from masquerade.estimate.evidence import GaussianEvidence

MOST_CELLS = 4096
Rate = float | Mapping[Category, float]


@dataclass(frozen=True, slots=True)
class LinkError:
    """Rates of right and of found links, with the numbers of links from which they were estimated.

    Parameters
    ----------
    right : float or mapping
        Share of links that pair the records of one person; by category of `by` if it differs.
    found : float or mapping, optional
        Share of people in both files whose records are linked correctly.
    by : str, optional
        Variable on which the rates depend. It must not be in the file whose values wrong links replace.
    checked : int or mapping, optional
        Number of links that were checked for `right`. Without it, `right` is taken as known.
    planted : int or mapping, optional
        Number of pairs that `found` was estimated from. Without it, `found` is taken as known.

    Examples
    --------
    >>> error = mq.LinkError(right={"f": 0.92, "m": 0.88}, by="sex", checked={"f": 110, "m": 90})
    >>> error.rate("right", "f")
    0.92
    """

    right: Rate
    found: Rate = 1.0
    by: str | None = None
    checked: int | Mapping[Category, int] | None = None
    planted: int | Mapping[Category, int] | None = None

    def __post_init__(self) -> None:
        for name in ("right", "found"):
            stated = getattr(self, name)
            for value in stated.values() if isinstance(stated, Mapping) else [stated]:
                if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 1:
                    raise InputError(
                        f"{name!r} of a link error must be above 0 and at most 1. Got {value!r}."
                    )
        for name in ("right", "found", "checked", "planted"):
            if isinstance(getattr(self, name), Mapping) and self.by is None:
                raise InputError(
                    f"{name!r} of a link error differs by category: name the variable with 'by'."
                )
        for name in ("checked", "planted"):
            stated = getattr(self, name)
            numbers = [] if stated is None else stated.values() if isinstance(stated, Mapping) else [stated]
            if any(isinstance(it, bool) or not isinstance(it, int) or it < 1 for it in numbers):
                raise InputError(f"{name!r} of a link error must be an integer of at least 1.")

    @classmethod
    def from_pairs(cls, planted: Mapping[Any, Any], links: Mapping[Any, Any]) -> Self:
        """Estimate both rates from planted pairs: records that were put into both files on purpose.

        Parameters
        ----------
        planted : mapping
            The right partner of each planted record.
        links : mapping
            The partner that each record of the first file was linked with. Other records are ignored.

        Returns
        -------
        LinkError

        Raises
        ------
        InputError
            If no planted pair is linked correctly.
        """
        linked = [record for record in planted if record in links]
        right = sum(links[record] == planted[record] for record in linked)
        if not right:
            raise InputError("No planted pair was linked correctly: rates of links cannot be estimated.")
        return cls(right / len(linked), right / len(planted), checked=len(linked), planted=len(planted))

    def rate(self, name: str, label: Category | None) -> float:
        """Return the rate of a category, or the number of pairs from which a rate was estimated.

        Parameters
        ----------
        name : {"right", "found", "checked", "planted"}
            Name of the rate or number. A number that is not stated is infinite.
        label : str, int, float, bool or None
            Category of `by`.

        Returns
        -------
        float
        """
        stated = getattr(self, name)
        if not isinstance(stated, Mapping):
            return float("inf") if stated is None else float(stated)
        if label not in stated:
            raise InputError(f"{name!r} of the link error lacks a category of {self.by!r}.")
        return float(stated[label])

    def correct(self, table: CountTable, of: str | Sequence[str], margin: Mapping[Any, float]) -> CountTable:
        """Return the table that right and complete links would have shown, with its uncertainty.

        Parameters
        ----------
        table : CountTable
            Counts of linked records.
        of : str or sequence of str
            Variables of the other file, whose values belong to another person after a wrong link. For a table
            without such variables, pass () and the `margin` {(): 1}.
        margin : mapping
            Share of each category of `of` among all records of the other file that could have been linked.
            With several variables, keys are tuples.

        Returns
        -------
        CountTable
            Unbiased counts, which may be negative. With all rates 1, the same table.

        Raises
        ------
        InputError
            If a variable, category or rate is missing.

        Notes
        -----
        Formula: N = (t − (1 − λ) q t₊)/ρ in each cell of the other variables, where t are linked counts with
        sum t₊, λ and ρ the rates of right and found links, and q the margin. The covariance is that of t,
        mapped linearly, plus (q t₊/ρ)² λ(1 − λ)/m for m checked links and (N/ρ)² ρ(1 − ρ)/m for m planted
        pairs.
        Cost: the square of the number of cells, at most 4,096.
        """
        names = [axis.name for axis in table.axes]
        other = [of] if isinstance(of, str) else list(of)
        for name in (*other, *([] if self.by is None else [self.by])):
            if name not in names:
                raise InputError(f"The table has no variable {name!r} for the correction of links.")
        if self.by in other:
            raise InputError("'by' of a link error must not be a variable of the other file ('of').")
        if table.adjusted or table.values.size > MOST_CELLS:
            raise InputError(f"Links are corrected in unbiased tables of at most {MOST_CELLS:,} cells.")
        labels = [None] if self.by is None else list(table.axes[names.index(self.by)].categories)
        if all(self.rate(rate, label) == 1.0 for rate in ("right", "found") for label in labels):
            return table
        return _Correction(self, table, names, other, _shares(table, names, other, margin)).table()


def _shares(table: CountTable, names: list[str], other: list[str], margin: Mapping[Any, float]) -> Floats:
    """Return the margin as an array over the variables of the other file."""
    axes = [table.axes[names.index(name)] for name in other]
    shares = np.zeros([len(axis) for axis in axes])
    for place in np.ndindex(*shares.shape):
        label = tuple(axis.categories[code] for axis, code in zip(axes, place, strict=True))
        key = label[0] if len(other) == 1 else label
        if key not in margin:
            raise InputError(f"'margin' must have a share for every category of {', '.join(other)}.")
        shares[place] = float(margin[key])
    if np.any(shares < 0) or abs(shares.sum() - 1) > 1e-6:
        raise InputError("'margin' must have shares of at least 0 with sum 1.")
    return shares


class LinkCorrected:
    """A source whose tables are corrected for wrong and missing links.

    Parameters
    ----------
    source : Tally
        Source of counts of linked records.
    error : LinkError
        The rates.
    other : sequence of str
        Variables of the file whose values a wrong link replaces.
    margins : mapping of tuple to mapping
        By variables of `other`, the share of each category among all records that could have been linked.

    Examples
    --------
    >>> from masquerade.sources.link_error import LinkCorrected
    >>> error, margins = mq.LinkError(right=0.9, found=0.9), {("pills",): {"no": 0.8, "yes": 0.2}}
    >>> source = LinkCorrected(mq.tally(mq.data.students()), error, ["pills"], margins)
    >>> source.answer([mq.Query(by=("exams", "pills"))])[0].values.round(1).tolist()
    [[266.7, 33.3], [206.7, 93.3]]
    """

    def __init__(
        self,
        source: Tally,
        error: LinkError,
        other: Sequence[str],
        margins: Mapping[Any, Mapping[Any, float]],
    ) -> None:
        check_source(source)
        self.source, self.error, self.other = source, error, frozenset(other)
        self.schema, self.guarantee = source.schema, source.guarantee
        self._margins = {frozenset(names): (tuple(names), shares) for names, shares in margins.items()}

    def check(self, queries: Sequence[Query]) -> list[Refusal]:
        """Return the refusals of the source; raise InputError for a table that cannot be corrected."""
        for query in queries:
            query.check(self.schema)
            names = [name for name in query.names if name in self.other]
            if names and frozenset(names) not in self._margins:
                raise InputError(f"The link error states no margin of {', '.join(names)}.")
            if self.error.by is not None and self.error.by not in query.names:
                listed = ", ".join(query.names)
                raise InputError(
                    f"Rates of links differ by {self.error.by!r}, but the table of {listed} lacks it."
                )
        return self.source.check([_whole_table(query) for query in queries])

    def answer(self, queries: Sequence[Query]) -> list[CountTable]:
        """Answer a batch with corrected tables, each from the whole table of its variables."""
        raise_refusals(self.check(queries))
        tables = self.source.answer([_whole_table(query) for query in queries])
        result = []
        for query, table in zip(queries, tables, strict=True):
            names, shares = self._margins.get(frozenset(query.names) & self.other, ((), {(): 1.0}))
            corrected = self.error.correct(table, names, shares)
            result.append(corrected.select(dict(query.where)).marginal(query.by))
        return result


def _whole_table(query: Query) -> Query:
    """Return the query for the whole table of a query's variables."""
    return Query(by=tuple(query.names))


@dataclass(frozen=True, slots=True)
class _Correction:
    """The linear map of a correction, and the errors of its rates."""

    error: LinkError
    source: CountTable
    names: list[str]
    other: list[str]
    shares: Floats

    def table(self) -> CountTable:
        values = np.asarray(self.source.values, dtype=float)
        matrix, errors = np.eye(values.size), []
        by = None if self.error.by is None else self.source.axes[self.names.index(self.error.by)]
        places = np.arange(values.size).reshape(values.shape)
        for label in [None] if by is None else by.categories:
            rows = places
            if by is not None:
                rows = np.take(places, [by.code(label)], axis=self.names.index(by.name))
            slopes = [np.zeros(values.size), np.zeros(values.size)]
            for cells in self._blocks(rows):
                found_rate, right_rate = (self.error.rate(name, label) for name in ("found", "right"))
                q, linked = self.shares.ravel(), values.ravel()[cells]
                matrix[np.ix_(cells, cells)] = (
                    np.eye(len(cells)) - (1 - right_rate) * np.outer(q, np.ones(len(q)))
                ) / found_rate
                slopes[0][cells] = q * linked.sum() / found_rate
                slopes[1][cells] = -(linked - (1 - right_rate) * q * linked.sum()) / found_rate**2
            for slope, rate, number in zip(slopes, ("right", "found"), ("checked", "planted"), strict=True):
                share = self.error.rate(rate, label)
                errors.append(slope * np.sqrt(share * (1 - share) / self.error.rate(number, label)))
        corrected = (matrix @ values.ravel()).reshape(values.shape)
        covariance = LinkedCovariance(self.source.covariance, matrix, np.array(errors), tuple(self.names))
        evidence = GaussianEvidence.of(corrected, covariance)
        return CountTable(self.source.axes, corrected, self.source.n, evidence)

    def _blocks(self, rows: Any) -> Any:
        """Return one row per cell of this file's variables: the cells over the other file's variables."""
        inner = [self.names.index(name) for name in self.other]
        outer = [axis for axis in range(len(self.names)) if axis not in inner]
        return rows.transpose([*outer, *inner]).reshape(-1, self.shares.size)


@dataclass(frozen=True, slots=True)
class LinkedCovariance(BlockCovariance):
    """Covariance of a linear map of a table, plus independent errors along given directions."""

    term: Covariance
    matrix: Floats
    errors: Floats
    names: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the table."""
        return self.term.shape

    def within(self, axes: Sequence[int | str], kind: Kind = "population") -> Floats:
        """Return the covariance blocks of cells that differ only along `axes`."""
        units = np.eye(prod(self.shape)).reshape(-1, *self.shape)
        dense = self.between(units, units, kind)
        cells = self.in_blocks(np.arange(prod(self.shape)).reshape(self.shape), self.positions(axes))
        return np.asarray(dense[cells[..., :, None], cells[..., None, :]])

    def between(self, first: Floats, second: Floats, kind: Kind = "population") -> Floats:
        """Return the covariances of sums of cells, for all pairs of weights along the first axes."""
        flat = [weights.reshape(len(weights), -1) for weights in (first, second)]
        mapped = [(weights @ self.matrix).reshape(-1, *self.shape) for weights in flat]
        return np.asarray(
            self.term.between(mapped[0], mapped[1], kind)
            + (flat[0] @ self.errors.T) @ (flat[1] @ self.errors.T).T
        )

    def reduce(self, keep: Sequence[int], at: Mapping[int, int]) -> ReducedCovariance:
        """Return the covariance of the table summed or sliced to the axes `keep`."""
        names = tuple(self.names[axis] for axis in keep) if self.names else ()
        return ReducedCovariance(self, TableReduction.none(len(self.shape)).then(keep, at), names)
