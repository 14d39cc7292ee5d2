"""Projections drawn from a seed, for studies. Results are marked as simulated and protect nobody."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from masquerade.channels.policy import Policy
from masquerade.core.guarantee import SEED_OWNER, Disclosure
from masquerade.core.schema import Schema
from masquerade.protocols.vertical.columns import Owners
from masquerade.protocols.vertical.projection import SECRET_BYTES
from masquerade.sources.parties.projection import Projected, source_of


def simulate_projection(
    data: Any,
    owners: Owners,
    seed: int | np.random.Generator,
    *,
    schema: Schema | Policy | None = None,
    dimensions: tuple[int, int] | None = None,
    trials: int = 1,
    receiver: str = "third party",
) -> Projected:
    """Return the source of `projection_tally` with a seeded secret: repeatable, and therefore not private.

    Parameters
    ----------
    data : frame or path
        Linked clear records.
    owners : mapping of str to sequence of str
        Columns of each owner.
    seed : int or numpy.random.Generator
        Seed of the secret.
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

    Examples
    --------
    >>> owners = {"registrar": ["exams", "year"], "clinic": ["pills", "sleep"]}
    >>> source = mq.simulate_projection(mq.data.students(), owners, seed=1)
    >>> source.answer([mq.Query(by=("exams", "pills"))])[0].values.round(6).tolist()
    [[264.0, 36.0], [210.0, 90.0]]
    """
    secret = np.random.default_rng(seed).bytes(SECRET_BYTES)
    source = source_of(
        data, owners, secret, schema=schema, dimensions=dimensions, trials=trials, receiver=receiver
    )
    seen = Disclosure(SEED_OWNER, "clear values", tuple(source.schema), None)
    source.guarantee = replace(source.guarantee, disclosures=(*source.guarantee.disclosures, seen))
    return source
