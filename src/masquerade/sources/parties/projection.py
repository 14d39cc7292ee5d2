"""Counts over columns of several owners, from random projections that a third party holds.

A question goes to the owners of its variables. One owner answers alone, from its own columns. Two owners each
form the products of their own ±1 columns, project them all by one random matrix that only owners know, and
send them to the receiver; inner products across owners are the sums of products that no owner could form.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from math import prod
from typing import Any

import numpy as np

from masquerade.channels.policy import Policy
from masquerade.core.axes import Floats
from masquerade.core.covariance import LinearCovariance, SumCovariance
from masquerade.core.errors import InputError, Refusal, RoundAborted
from masquerade.core.guarantee import Disclosure, Guarantee
from masquerade.core.query import Query
from masquerade.core.schema import Schema
from masquerade.core.table import CountTable
from masquerade.estimate.evidence import GaussianEvidence
from masquerade.estimate.rotation import Reduction
from masquerade.estimate.walsh import counts_of, sums_of_products
from masquerade.protocols.vertical.columns import OwnColumns, Owners, check_owners
from masquerade.protocols.vertical.projection import (
    SECRET_BYTES,
    Owner,
    RemoteOwner,
    convene_owners,
    reduction_of,
)
from masquerade.protocols.wire.session import Transport
from masquerade.sources.parties.products import WholeTables
from masquerade.sources.parties.projection_noise import ProjectionNoise, side
from masquerade.sources.records import Records
from masquerade.sources.tally import tally, warn_missing

MOST_CELLS = 2**16
MOST_NUMBERS = 2**27  # of projected columns, 1 GiB
ROUNDING = 1e-6  # of inner products: 50,000 records have an error of 1e-9, other rotations one of 1


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

    >>> owners = {"registrar": ["exams", "year"], "clinic": ["pills", "sleep"]}
    >>> source = mq.projected(mq.data.students(), owners)
    >>> source.answer([mq.Query(by=("exams", "pills"))])[0].values.round(6).tolist()
    [[264.0, 36.0], [210.0, 90.0]]
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


class Projected(WholeTables):
    """A `Tally` for whoever receives projected columns: the receiver, who is none of the owners.

    Without a `reduction` the projection is a rotation and counts are exact, so standard errors are those of
    clear records; with one, inner products across owners are estimates, and standard errors say so.
    """

    def __init__(
        self,
        owners: Sequence[Owner | RemoteOwner],
        schema: Schema,
        n: int,
        reduction: Reduction | None = None,
        receiver: str = "third party",
    ) -> None:
        self.owners, self.reduction, self.receiver = tuple(owners), reduction, receiver
        super().__init__(schema, n, self._guarantee(tuple(schema)))

    def _refusals(self, query: Query) -> list[Refusal]:
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

    def _propose(self, queries: Sequence[Query]) -> None:
        """Owners consent to variables, not to questions, and say so when they are asked."""

    def _parts(self, names: Collection[str]) -> list[tuple[Owner | RemoteOwner, tuple[str, ...]]]:
        """Return the owners asked, each with its variables in the order of the schema."""
        parts = [(owner, tuple(name for name in owner.schema if name in names)) for owner in self.owners]
        return [(owner, own) for owner, own in parts if own]

    def _whole(self, names: frozenset[str]) -> CountTable:
        """Return the table of all variables of a question, one owner's before the other's."""
        parts = self._parts(names)
        margins = [owner.table(own) for owner, own in parts]
        ordered = tuple(name for _, own in parts for name in own)
        if len(parts) < 2:
            return self._exact(ordered, margins[0] if margins else np.array(float(self.n)))
        x, y = (owner.submit(own, ordered, self.reduction) for owner, own in parts)
        first, second = margins
        if self.reduction is None:
            return self._exact(ordered, _joined(first, second, _whole_products(x @ y.T, self.n)))
        values, split = _joined(first, second, x @ y.T), first.ndim
        noise = ProjectionNoise(
            values,
            side(range(split), first),
            side(range(split, values.ndim), second),
            self.n,
            self.reduction,
            ordered,
        )
        covariance = SumCovariance((LinearCovariance.clear(values, self.n, ordered), noise))
        axes = tuple(self.schema[name] for name in ordered)
        return CountTable(axes, values, self.n, GaussianEvidence.of(values, covariance))

    def _guarantee(self, names: tuple[str, ...]) -> Guarantee:
        """Return who learns what: the view of the receiver can be simulated from the tables it asks for."""
        learnt = (
            "the exact counts of all variables of each question, whole (the Gram matrix of the columns "
            "submitted)"
            if self.reduction is None
            else "the exact counts of each owner's part of a question, and noisy inner products across owners"
        )
        owners = tuple(owner.name for owner in self.owners)
        return Guarantee(
            (Disclosure(self.receiver, learnt, names, None),),
            (
                f"the owners share a secret, for these records only, that the {self.receiver} does not know",
                f"projected columns go to the {self.receiver} alone",
                "records were linked row by row beforehand, and their number is public",
                "what rounding projected columns to double precision may tell is not counted",
            ),
            dict.fromkeys((self.receiver, *owners), "semi-honest"),
            0,
            tuple((self.receiver, owner) for owner in owners),
            0,
        )


def _whole_products(across: Floats, n: int) -> Floats:
    """Return inner products of ±1 columns as the integers they are, of the parity of the records."""
    nearest = n - 2 * np.round((n - across) / 2)
    if not np.all(np.abs(across - nearest) < ROUNDING):
        raise RoundAborted(
            "Inner products of rotated columns are not whole: the owners did not use the same rotation.",
            spent=True,
        )
    return np.asarray(nearest)


def _joined(first: Floats, second: Floats, across: Floats) -> Floats:
    products = np.empty((first.size, second.size))
    products[:, 0] = sums_of_products(first).ravel()
    products[0, :] = sums_of_products(second).ravel()
    products[1:, 1:] = across
    return counts_of(products.reshape(first.shape + second.shape))
