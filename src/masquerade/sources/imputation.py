"""Truths drawn for disguised records: what tools that need records are given, several times over."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError
from masquerade.core.query import Query
from masquerade.sources.expectation import joint
from masquerade.sources.query_plan import Layout

if TYPE_CHECKING:
    from masquerade.sources.records import Records

Codes = NDArray[np.intp]


def imputed(
    records: Records, over: Sequence[str], m: int, *, prior: float, seed: int
) -> list[dict[str, Codes]]:
    """Return category codes of the variables `over` for every record, drawn m times.

    Formula: for each imputation θ is drawn anew from the posterior of the joint table of the variables
    (far apart in its chains), then truth l of a record with report k with probability θ_l P[l, k]/Σ.
    Variables that were disguised together with some of them are drawn too.
    Reference: Rubin (1987) for proper imputation; Tanner & Wong (1987).
    Cost: the posterior, then a draw for every record.
    """
    policy = records.policy
    if records.weights is not None or policy.stratum_variable is not None:
        raise InputError("Imputations are of records that count for one each, and of one stratum.")
    asked = {name: policy.group(name) for name in over}
    groups = {group.names: group for group in asked.values()}
    names = tuple(name for group in groups.values() for name in group.names)
    posterior = records.posterior(Query(by=names), prior=prior, seed=seed)
    plan = Layout(policy.groups, records.schema).plan(Query(by=names))
    columns = {name: np.asarray(records.codes[name]) for name in plan.columns}
    codes: Any = np.ravel_multi_index([joint(axis, columns) for axis in plan.axes], plan.observed_shape)
    matrix: Floats = np.ones((1, 1))
    for axis in plan.axes:
        own = np.eye(prod(axis.sizes)) if axis.matrix is None else axis.matrix
        matrix = np.asarray(np.kron(matrix, own), dtype=np.float64)
    order = np.argsort(codes, kind="stable")
    used, starts = np.unique(codes[order], return_index=True)
    ends = [*starts[1:].tolist(), len(codes)]
    generator = np.random.default_rng([seed, m])
    shape = records.schema.shape(names)
    chosen = np.linspace(0, len(posterior.draws) - 1, m).round().astype(int)
    found = []
    for theta in posterior.draws[chosen].reshape(m, -1):
        truths = np.empty(len(codes), dtype=np.intp)
        for report, start, end in zip(used.tolist(), starts.tolist(), ends, strict=True):
            chances = theta * matrix[:, report]
            cumulative = np.cumsum(chances / chances.sum())
            drawn = np.searchsorted(cumulative, generator.random(end - start), side="right")
            truths[order[start:end]] = np.minimum(drawn, len(theta) - 1)
        parts = np.unravel_index(truths, shape)
        found.append({name: parts[names.index(name)] for name in over})
    return found
