"""`mq.projected`: a source over the columns of several owners, who share a secret of their own."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError, did_you_mean
from masquerade.core.schema import Schema
from masquerade.estimate.rotation import Reduction
from masquerade.sources.projection import Projected
from masquerade.sources.projection_owner import SECRET_BYTES, Owner
from masquerade.sources.records import Records
from masquerade.sources.tally import tally, warn_missing

MOST_ROTATED = 50_000  # records: a rotation takes time with their square, here about a minute
LEAST_SURE = 0.5  # of f in the covariance, beyond which squares of estimates say little about squares


def projected(
    data: Any,
    owners: Mapping[str, Sequence[str]],
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
    return source_of(
        data,
        owners,
        os.urandom(SECRET_BYTES),
        schema=schema,
        dimensions=dimensions,
        trials=trials,
        receiver=receiver,
    )


def source_of(
    data: Any,
    owners: Mapping[str, Sequence[str]],
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
            Schema([records.schema[name] for name in records.schema if name in names]),
            {name: records.codes[name] for name in names},
            secret,
        )
        for party, names in owners.items()
    )
    return Projected(parties, records.schema, records.n, reduction, receiver)


def check_owners(owners: Mapping[str, Sequence[str]], schema: Schema, receiver: str) -> None:
    """Refuse owners that do not share out the variables, and a receiver who could undo the projection."""
    if not isinstance(owners, Mapping) or any(isinstance(names, str) for names in owners.values()):
        raise InputError("'owners' must map the name of every owner to a list of variables.")
    if receiver in owners:
        raise InputError(
            f"{receiver!r} cannot be the receiver and an owner: to project its own columns it must know the "
            "random matrix, and then it can undo the projection of everybody else's. A third party is needed."
        )
    if len(owners) < 2:
        raise InputError("A projection needs at least two owners; counts of one alone need none.")
    listed = [name for names in owners.values() for name in names]
    for name in listed:
        if name not in schema:
            raise InputError(f"An owner holds {name!r}, which is no variable.{did_you_mean(name, schema)}")
        if listed.count(name) > 1:
            raise InputError(f"Variable {name!r} is listed twice: it needs one owner.")
    for party, names in owners.items():
        if not names:
            raise InputError(f"Owner {party!r} holds no variable.")
    left = [name for name in schema if name not in listed]
    if left:
        raise InputError(f"Nobody owns {', '.join(map(repr, left))}: every variable needs an owner.")


def reduction_of(dimensions: tuple[int, int] | None, trials: int, n: int) -> Reduction | None:
    """Return the projection of n records; refuse one that takes hours, reduces nothing or tells nothing."""
    if dimensions is None:
        if trials != 1:
            raise InputError("A rotation is exact: 'trials' goes with 'dimensions' only.")
        if n > MOST_ROTATED:
            raise InputError(
                f"A rotation of {n:,} records takes too long (its time grows with their square; the most are "
                f"{MOST_ROTATED:,}): give 'dimensions' for estimates instead."
            )
        return None
    figures = (*dimensions, trials)
    if len(figures) != 3 or any(
        isinstance(size, bool) or not isinstance(size, (int, np.integer)) for size in figures
    ):
        raise InputError("'dimensions' must be two whole numbers (p, k) and 'trials' one.")
    p, k, _ = figures
    if min(figures) < 1 or max(p, k) > n:
        raise InputError(
            f"'dimensions' must be from 1 to the number of records ({n:,}) and 'trials' at least 1. Got "
            f"{dimensions} and {trials} instead."
        )
    reduction = Reduction(int(p), int(k), int(trials))
    if reduction.pairing > LEAST_SURE:
        raise InputError(
            "So few 'dimensions' (p, k) and 'trials' tell too little to estimate a standard error: "
            f"(1/p + 1/k + 1/pk)/trials must be at most {LEAST_SURE}. Got {reduction.pairing:.3g} instead."
        )
    return reduction
