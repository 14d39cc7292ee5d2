"""Counts over columns of several owners, from random projections that a third party holds.

A question goes to the owners of its variables. One owner answers alone, from its own columns. Two owners each
form the products of their own ±1 columns, project them all by one random matrix that only owners know, and
send them to the receiver; inner products across owners are the sums of products that no owner could form.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Protocol

import numpy as np

from masquerade.channels.policy import Policy
from masquerade.core.axes import AxisMap, AxisMaps, Floats
from masquerade.core.covariance import Covariance, LinearCovariance, Part, SumCovariance
from masquerade.core.errors import InputError, Refusal, RoundAborted
from masquerade.core.guarantee import Disclosure, Guarantee
from masquerade.core.query import Query
from masquerade.core.schema import Schema
from masquerade.core.table import CountTable
from masquerade.core.tally import raise_refusals
from masquerade.estimate.evidence import GaussianEvidence, ReportEvidence
from masquerade.estimate.rotation import Reduction
from masquerade.estimate.walsh import counts_of, sums_of_products
from masquerade.protocols.own_columns import OwnColumns, Owners, check_owners
from masquerade.protocols.projection.owner import SECRET_BYTES, Owner, reduction_of
from masquerade.protocols.projection.receiver import convene_owners
from masquerade.protocols.transport import Transport
from masquerade.sources.projection_noise import ProjectionNoise, side
from masquerade.sources.records import Records
from masquerade.sources.tally import tally, warn_missing

MOST_CELLS = 2**16
MOST_NUMBERS = 2**27  # of projected columns, 1 GiB
ROUNDING = 1e-6  # of inner products: 50,000 records have an error of 1e-9, other rotations one of 1


class ColumnOwner(Protocol):
    """Somebody who holds some columns of all records, here or at the other end of a network."""

    @property
    def name(self) -> str:
        """Who it is."""

    @property
    def schema(self) -> Schema:
        """Its variables."""

    def table(self, names: Sequence[str]) -> Floats:
        """Return the exact counts of some of its variables."""

    def submit(self, names: Sequence[str], asked: Sequence[str], reduction: Reduction | None) -> Floats:
        """Return the projected products of its variables `names` for a question about `asked`."""


def projected(
    data: Any,
    owners: Owners,
    *,
    schema: Schema | Policy | None = None,
    dimensions: tuple[int, int] | None = None,
    trials: int = 1,
    receiver: str = "third party",
) -> Projected:
    """Return a source that counts over the columns of several owners as a third party could.

    `data` are the linked clear records, a frame or files; `owners` says who holds which columns. Columns are
    turned by a random rotation that the owners share, and counts are exact; with `dimensions` (p, k) they
    are projected to p and then to k dimensions instead, `trials` times, and counts are estimates. A question
    may touch variables of two owners. The `receiver` must be none of the owners.
    """
    secret = os.urandom(SECRET_BYTES)
    return source_of(
        data, owners, secret, schema=schema, dimensions=dimensions, trials=trials, receiver=receiver
    )


def receive_projected(
    owners: Owners,
    transport: Transport,
    schema: Schema,
    n: int,
    *,
    receiver: str,
    alignment: bytes = b"",
    dimensions: tuple[int, int] | None = None,
    trials: int = 1,
) -> Projected:
    """Bring owners together and return a source of counts over all of their columns."""
    check_owners(owners, schema, receiver)
    reduction = reduction_of(dimensions, trials, n)
    remote = convene_owners(owners, transport, schema, n, receiver=receiver, alignment=alignment)
    return Projected(remote, schema, n, reduction, receiver)


def source_of(
    data: Any,
    owners: Owners,
    secret: bytes,
    *,
    schema: Schema | Policy | None,
    dimensions: tuple[int, int] | None,
    trials: int,
    receiver: str,
) -> Projected:
    """Return the source of records whose owners share a secret."""
    records = tally(data, schema=schema, engine="memory")
    if not isinstance(records, Records):
        raise InputError("A projection needs records as a frame or as files: baskets and engines have none.")
    warn_missing(records.missing)
    check_owners(owners, records.schema, receiver)
    reduction = reduction_of(dimensions, trials, records.n)
    parties = tuple(
        Owner(
            party,
            OwnColumns.of(party, {name: records.codes[name] for name in names}, records.schema, owners),
            secret,
        )
        for party, names in owners.items()
    )
    return Projected(parties, records.schema, records.n, reduction, receiver)


@dataclass(eq=False)
class Projected:
    """A `Tally` for whoever receives projected columns: the receiver, who is none of the owners.

    Without a `reduction` the projection is a rotation and counts are exact, so standard errors are those of
    clear records; with one, inner products across owners are estimates, and standard errors say so.
    """

    owners: tuple[ColumnOwner, ...]
    schema: Schema
    n: int
    reduction: Reduction | None = None
    receiver: str = "third party"
    guarantee: Guarantee = field(init=False, repr=False)
    _owner: Mapping[str, ColumnOwner] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._owner = {name: owner for owner in self.owners for name in owner.schema}
        self.guarantee = guarantee_of(self)

    def check(self, queries: Sequence[Query]) -> list[Refusal]:
        """Return why queries would be refused: variables of three owners, or too many products."""
        return [refusal for query in queries for refusal in self._refusals(query)]

    def answer(self, queries: Sequence[Query]) -> list[CountTable]:
        """Answer a batch; questions about the same variables are put to the owners once."""
        if isinstance(queries, Query):
            raise InputError("A source answers a list of queries: write answer([query]).")
        raise_refusals(self.check(queries))
        known: dict[frozenset[str], CountTable] = {}
        for query in queries:
            asked = frozenset(query.names)
            if asked not in known:
                known[asked] = self._whole(asked)
        return [laid_out(known[frozenset(query.names)], query) for query in queries]

    def _refusals(self, query: Query) -> list[Refusal]:
        query.check(self.schema)
        parts = self._parts(query.names)
        if len(parts) > 2:
            names = ", ".join(repr(owner.name) for owner, _ in parts)
            reason = (
                f"The question is about variables of {len(parts)} owners ({names}): inner products join two "
                "owners' columns, and nobody can form a product across three."
            )
            return [Refusal("too_many_owners", reason, query)]
        shapes = [prod(self.schema.shape(names)) for _, names in parts]
        columns = sum(shapes) if len(parts) == 2 else 0
        if prod(shapes) > MOST_CELLS or columns * self.n > MOST_NUMBERS:
            reason = (
                f"The question has {prod(shapes):,} cells, and {columns:,} products of {self.n:,} records "
                f"would be projected; the most are {MOST_CELLS:,} cells and {MOST_NUMBERS:,} numbers."
            )
            return [Refusal("too_many_cells", reason, query)]
        return []

    def _parts(self, names: Sequence[str]) -> list[tuple[ColumnOwner, tuple[str, ...]]]:
        """Return the owners asked, each with its variables in the order of the schema."""
        parts = [(owner, tuple(name for name in owner.schema if name in names)) for owner in self.owners]
        return [(owner, own) for owner, own in parts if own]

    def _whole(self, asked: frozenset[str]) -> CountTable:
        """Return the table of all variables of a question, one owner's before the other's."""
        parts = self._parts(tuple(asked))
        margins = [owner.table(names) for owner, names in parts]
        axes = tuple(self.schema[name] for _, names in parts for name in names)
        names = tuple(axis.name for axis in axes)
        if len(parts) < 2:
            values = margins[0] if margins else np.array(float(self.n))
            return table_of(axes, values, self.n, exact(values, self.n, names), is_exact=True)
        first, second = (owner.submit(own, names, self.reduction) for owner, own in parts)
        across = first @ second.T
        if self.reduction is None:
            across = whole_products(across, self.n)
        values = joined(margins[0], margins[1], across)
        sampling = exact(values, self.n, names)
        if self.reduction is None:
            return table_of(axes, values, self.n, sampling, is_exact=True)
        split = margins[0].ndim
        noise = ProjectionNoise(
            values,
            side(range(split), margins[0]),
            side(range(split, len(axes)), margins[1]),
            self.n,
            self.reduction,
            names,
        )
        return table_of(axes, values, self.n, SumCovariance((sampling, noise)), is_exact=False)


def whole_products(across: Floats, n: int) -> Floats:
    """Return inner products of ±1 columns as the integers they are, of the parity of the records."""
    nearest = n - 2 * np.round((n - across) / 2)
    if not np.all(np.abs(across - nearest) < ROUNDING):
        raise RoundAborted(
            "Inner products of rotated columns are not whole: the owners did not use the same rotation.",
            spent=True,
        )
    return np.asarray(nearest)


def joined(first: Floats, second: Floats, across: Floats) -> Floats:
    """Return the table of two owners' variables from their own tables and the inner products across."""
    products = np.empty((first.size, second.size))
    products[:, 0] = sums_of_products(first).ravel()
    products[0, :] = sums_of_products(second).ravel()
    products[1:, 1:] = across
    return counts_of(products.reshape(first.shape + second.shape))


def exact(values: Floats, n: int, names: tuple[str, ...]) -> LinearCovariance:
    """Return the covariance of clear records."""
    maps = AxisMaps(values.shape, tuple(AxisMap((axis,), None) for axis in range(values.ndim)))
    return LinearCovariance((Part(values, maps),), values, values, n, names)


def table_of(
    axes: tuple[Any, ...], values: Floats, n: int, covariance: Covariance, *, is_exact: bool
) -> CountTable:
    """Return a table of exact counts, or of estimates by projection, which are approximately normal."""
    evidence = ReportEvidence.clear if is_exact else GaussianEvidence.of
    return CountTable(axes, values, n, evidence(values, covariance))


def laid_out(whole: CountTable, query: Query) -> CountTable:
    """Return the axes and the slice that a query asks for."""
    return whole.select(dict(query.where)).marginal(query.by)


def guarantee_of(source: Projected) -> Guarantee:
    """Return who learns what: the view of the receiver can be simulated from the tables it asks for."""
    everything = tuple(source.schema)
    learnt = (
        "the exact counts of all variables of each question, whole (the Gram matrix of the columns submitted)"
        if source.reduction is None
        else "the exact counts of each owner's part of a question, and noisy inner products across owners"
    )
    owners = tuple(owner.name for owner in source.owners)
    return Guarantee(
        (Disclosure(source.receiver, learnt, everything, None),),
        (
            f"the owners share a secret, for these records only, that the {source.receiver} does not know",
            f"projected columns go to the {source.receiver} alone",
            "records were linked row by row beforehand, and their number is public",
            "what rounding projected columns to double precision may tell is not counted",
        ),
        dict.fromkeys((source.receiver, *owners), "semi-honest"),
        0,
        tuple((source.receiver, owner) for owner in owners),
        0,
    )
