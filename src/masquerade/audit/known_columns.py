"""Known-sample attack on a projection: a receiver who knows some clear columns guesses another column."""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import sqrt
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from masquerade.audit.findings import Audit, AuditTable, Finding
from masquerade.core.axes import Floats
from masquerade.core.errors import InputError
from masquerade.core.schema import Schema
from masquerade.estimate.walsh import product_columns
from masquerade.protocols.vertical.columns import OwnColumns
from masquerade.protocols.vertical.projection import RECORDS_A_COLUMN, SECRET_BYTES, Owner

KNOWN = (5, 15, 30, 45, 55)  # numbers of known columns that are tried, for 60 records
LEAST_RECORDS, MOST_RECORDS = 20, 120
BINARIES = 12  # variables of the known owner, enough that few records are equal
TRIALS = 25


class Guess(NamedTuple):
    """Share of correctly guessed signs of a secret column from known columns, and its standard error."""

    known: int
    agreement: float
    error: float
    expected: float


def expected_agreement(known: int, n: int) -> float:
    """Return the expected share of right guesses for independent columns.

    Formula: Φ(√(k/(n − k))). The projection of a secret ±1 column on k of n random directions is k/n times
    the column plus noise of variance (k/n)(1 − k/n).
    """
    return NormalDist().cdf(sqrt(known / (n - known))) if known < n else 1.0


def guesses(n: int, known: Sequence[int], trials: int = TRIALS) -> list[Guess]:
    """Run a projection of random columns of two owners, as in a session, and attack its result.

    The receiver knows columns of one owner in clear. It regresses the other owner's column on them in the
    rotated space, where it has all columns. It then applies the coefficients to the clear columns, because
    rotations preserve inner products.
    """
    if not LEAST_RECORDS <= n <= MOST_RECORDS or any(not 1 <= k < n for k in known) or trials < 2:
        raise InputError(
            f"Use {LEAST_RECORDS} to {MOST_RECORDS} records, 1 or more known columns but fewer than records, "
            "and 2 or more trials."
        )
    open_names = tuple(f"known {number}" for number in range(1, BINARIES + 1))
    schema = Schema({name: [0, 1] for name in (*open_names, "secret")})
    owners = {"known": open_names, "secret": ("secret",)}
    generator = np.random.default_rng()
    right: dict[int, list[float]] = {k: [] for k in known}
    for _ in range(trials):
        codes = {name: generator.integers(0, 2, n) for name in schema}
        key = os.urandom(SECRET_BYTES)
        rotated = [
            Owner(
                party, OwnColumns.of(party, {name: codes[name] for name in names}, schema, owners), key
            ).submit(names, schema.names, None)
            for party, names in owners.items()
        ]
        clear = product_columns([codes[name] for name in open_names], [2] * BINARIES)[1:]
        truth = np.where(codes["secret"] == 1, 1.0, -1.0)
        for k in known:
            chosen = generator.permutation(len(clear))[:k]
            right[k].append(_agreement(rotated[0][chosen], rotated[1][0], clear[chosen], truth))
    return [
        Guess(
            k,
            float(np.mean(right[k])),
            float(np.std(right[k], ddof=1) / sqrt(trials)),
            expected_agreement(k, n),
        )
        for k in known
    ]


def _agreement(seen: Floats, secret: Floats, clear: Floats, truth: Floats) -> float:
    """Return the share of records for which the guess and the secret column have the same sign."""
    weights = np.linalg.lstsq(seen.T, secret, rcond=None)[0]
    return float(np.mean(np.sign(weights @ clear) == truth))


def audit_known_columns(n: int = 60, known: Sequence[int] = KNOWN, trials: int = TRIALS) -> Audit:
    """Measure how well a receiver of rotated columns guesses a column from columns that it knows.

    Parameters
    ----------
    n : int, optional
        Number of records.
    known : sequence of int, optional
        Numbers of known columns to try.
    trials : int, optional
        Number of runs for each number of known columns.

    Returns
    -------
    Audit
        One finding for the largest number of columns that owners send, and a table of all numbers tried.

    Raises
    ------
    InputError
        If `n`, `known` or `trials` is out of range.

    Notes
    -----
    Reference: Liu, Giannella & Kargupta (2006), known-sample attacks on random projections.

    Examples
    --------
    >>> found = mq.audit.audit_known_columns(n=20, known=(2, 6), trials=5)
    >>> found.contradicted, found.tables[0].columns
    (False, ('known columns', 'of the records', 'right', 'standard error', 'expected', 'owners send them'))
    """
    found = guesses(n, known, trials)
    most = n // RECORDS_A_COLUMN
    rows = tuple(
        (it.known, it.known / n, it.agreement, it.error, it.expected, it.known <= most) for it in found
    )
    limit = expected_agreement(max(most, 1), n)
    finding = Finding(
        about="columns under a rotation",
        verdict="at risk",
        says=(
            f"a receiver who knows columns in clear guesses another one: right in {limit:.0%} of {n:,} "
            f"records with {most:,} columns, the most that owners send in a session (one per "
            f"{RECORDS_A_COLUMN} records); by chance in 50%."
        ),
        attack="least squares on known columns in the rotated space, then the sign",
        assumption="columns are independent; correlated columns reveal more, rotated or not",
        value=limit,
        repair="Request few variables of many records, or disguise columns before they are rotated.",
    )
    columns = (
        "known columns",
        "of the records",
        "right",
        "standard error",
        "expected",
        "owners send them",
    )
    table = AuditTable(f"Known columns against a rotation of {n:,} records", columns, rows)
    return Audit("Projection with known columns", (finding,), (table,))
