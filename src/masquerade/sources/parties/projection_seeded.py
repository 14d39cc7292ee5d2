"""Projections drawn from a seed, for studies: what comes out is marked as simulated and protects nobody."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from masquerade.channels.policy import Policy
from masquerade.core.guarantee import Disclosure
from masquerade.core.schema import Schema
from masquerade.protocols.vertical.columns import Owners
from masquerade.protocols.vertical.projection import SECRET_BYTES
from masquerade.sources.parties.projection import Projected, source_of


def simulate_projected(
    data: Any,
    owners: Owners,
    seed: int | np.random.Generator,
    *,
    schema: Schema | Policy | None = None,
    dimensions: tuple[int, int] | None = None,
    trials: int = 1,
    receiver: str = "third party",
) -> Projected:
    """Return what `projected` does, by a seeded secret: repeatable, and therefore not private.

    >>> owners = {"registrar": ["exams", "year"], "clinic": ["pills", "sleep"]}
    >>> source = mq.simulate_projected(mq.data.students(), owners, seed=1)
    >>> source.answer([mq.Query(by=("exams", "pills"))])[0].values.round(6).tolist()
    [[264.0, 36.0], [210.0, 90.0]]
    """
    secret = np.random.default_rng(seed).bytes(SECRET_BYTES)
    source = source_of(
        data, owners, secret, schema=schema, dimensions=dimensions, trials=trials, receiver=receiver
    )
    seen = Disclosure("whoever knows the seed", "clear values", tuple(source.schema), None)
    source.guarantee = replace(source.guarantee, disclosures=(*source.guarantee.disclosures, seen))
    return source
