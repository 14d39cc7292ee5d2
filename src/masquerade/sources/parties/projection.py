"""Counts over columns of several owners, from random projections held by a third party.

A query goes to the owners of its variables. A single owner answers from its own columns. Two owners each
compute the products of their own ±1 columns, project them by one random matrix that only owners know, and
send them to the receiver. Inner products across owners are the sums of products that no owner could compute
alone.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from math import prod
from typing import Any

import numpy as np

from masquerade.channels.policy import Policy
from masquerade.core.axes import Floats
from masquerade.core.covariance import SumCovariance
from masquerade.core.errors import InputError, Refusal, RoundAborted
from masquerade.core.guarantee import Disclosure, Guarantee
from masquerade.core.linear_covariance import LinearCovariance
from masquerade.core.query import Query
from masquerade.core.schema import Schema
from masquerade.core.table import CountTable
from masquerade.estimate.evidence import GaussianEvidence
from masquerade.estimate.rotation import RandomProjection
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
MOST_NUMBERS = 2**27  # most numbers in projected columns: 1 GiB
# tolerance of inner products: their error is 1e-9 for 50,000 records, and about 1 with a wrong rotation
ROUNDING = 1e-6


def projection_tally(
    data: Any,
    owners: Owners,
    *,
    schema: Schema | Policy | None = None,
    dimensions: tuple[int, int] | None = None,
    trials: int = 1,
    receiver: str = "third party",
) -> Projected:
    """Return a source of counts over columns of several owners, as seen by a third party.

    Columns are turned by a random rotation that the owners share, and counts are exact. With `dimensions`
    they are projected instead, and counts are estimates. A query may name variables of at most two owners.

    Parameters
    ----------
    data : frame or path
        Linked clear records.
    owners : mapping of str to sequence of str
        Columns of each owner.
    schema : Schema or Policy, optional
        Categories of the columns. Without it they are inferred from the data.
    dimensions : tuple of int, optional
        (p, k): project to p and then to k dimensions, instead of a rotation.
    trials : int, optional
        Number of independent projections.
    receiver : str, optional
        Name of the third party, which must not be an owner.

    Returns
    -------
    Projected
        The receiver's source of counts.

    Raises
    ------
    InputError
        If owners or dimensions do not fit the records.

    Examples
    --------
    >>> owners = {"registrar": ["exams", "year"], "clinic": ["pills", "sleep"]}
    >>> source = mq.projection_tally(mq.data.students(), owners)
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
    """Connect the owners and return a source of counts over all of their columns."""
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
        raise InputError("A projection needs records in a frame or in files, not in baskets or engines.")
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
    """A `Tally` for the receiver of projected columns, which is not an owner.

    Without a `reduction` the projection is a rotation and counts are exact, so standard errors equal those of
    clear records. With one, inner products across owners are estimates, as standard errors reflect.
    """

    def __init__(
        self,
        owners: Sequence[Owner | RemoteOwner],
        schema: Schema,
        n: int,
        reduction: RandomProjection | None = None,
        receiver: str = "third party",
    ) -> None:
        self.owners, self.reduction, self.receiver = tuple(owners), reduction, receiver
        super().__init__(schema, n, self._guarantee(tuple(schema)))

    def _refusals(self, query: Query) -> list[Refusal]:
        parts = self._parts(query.names)
        if len(parts) > 2:
            names = ", ".join(repr(owner.name) for owner, _ in parts)
            reason = (
                f"The query names variables of {len(parts)} owners ({names}). Inner products combine columns "
                "of two owners only."
            )
            return [Refusal("too_many_owners", reason, query)]
        shapes = [prod(self.schema.shape(names)) for _, names in parts]
        columns = sum(shapes) if len(parts) == 2 else 0
        if prod(shapes) > MOST_CELLS or columns * self.n > MOST_NUMBERS:
            reason = (
                f"The query has {prod(shapes):,} cells, and {columns:,} products of {self.n:,} records "
                f"would be projected, more than {MOST_CELLS:,} cells or {MOST_NUMBERS:,} numbers."
            )
            return [Refusal("too_many_cells", reason, query)]
        return []

    def _propose(self, queries: Sequence[Query]) -> None:
        """Do nothing: owners consent to variables, not to queries, and refuse when they are contacted."""

    def _parts(self, names: Collection[str]) -> list[tuple[Owner | RemoteOwner, tuple[str, ...]]]:
        """Return the owners of some variables, each with its variables in the order of the schema."""
        parts = [(owner, tuple(name for name in owner.schema if name in names)) for owner in self.owners]
        return [(owner, own) for owner, own in parts if own]

    def _full_table(self, names: frozenset[str]) -> CountTable:
        """Return the table of all variables of a query, the axes of one owner before the other's."""
        parts = self._parts(names)
        margins = [owner.table(own) for owner, own in parts]
        ordered = tuple(name for _, own in parts for name in own)
        if len(parts) < 2:
            return self._exact(ordered, margins[0] if margins else np.array(float(self.n)))
        x, y = (owner.submit(own, ordered, self.reduction) for owner, own in parts)
        first, second = margins
        if self.reduction is None:
            return self._exact(ordered, _join_blocks(first, second, _whole_products(x @ y.T, self.n)))
        values, split = _join_blocks(first, second, x @ y.T), first.ndim
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
        """Return the disclosures: the receiver's view can be simulated from the tables that it queries."""
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
                "records were linked row by row in advance, and their number is public",
                "what rounding projected columns to double precision may tell is not counted",
            ),
            dict.fromkeys((self.receiver, *owners), "semi-honest"),
            0,
            tuple((self.receiver, owner) for owner in owners),
            0,
        )


def _whole_products(across: Floats, n: int) -> Floats:
    """Return inner products of ±1 columns rounded to integers of the parity of the number of records."""
    nearest = n - 2 * np.round((n - across) / 2)
    if not np.all(np.abs(across - nearest) < ROUNDING):
        raise RoundAborted(
            "Inner products of rotated columns are not integers: the owners did not use the same rotation.",
            spent=True,
        )
    return np.asarray(nearest)


def _join_blocks(first: Floats, second: Floats, across: Floats) -> Floats:
    products = np.empty((first.size, second.size))
    products[:, 0] = sums_of_products(first).ravel()
    products[0, :] = sums_of_products(second).ravel()
    products[1:, 1:] = across
    return counts_of(products.reshape(first.shape + second.shape))
