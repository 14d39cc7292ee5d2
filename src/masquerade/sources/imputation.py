"""Multiple imputation: truths drawn for disguised records, for tools that need records."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError
from masquerade.core.query import Query
from masquerade.sources.expectation import joint, settle_plan
from masquerade.sources.query_plan import QueryLayout

if TYPE_CHECKING:
    from masquerade.sources.records import Records

Codes = NDArray[np.intp]


def impute_codes(
    records: Records, over: Sequence[str], m: int, *, prior: float, seed: int
) -> list[dict[str, Codes]]:
    """Draw category codes of the variables `over` for every record, `m` times.

    Formula: for each imputation, θ is drawn from the posterior of the joint table of the variables; draws are
    far apart in the chains. Then a record with report k gets the truth l with probability
    θ_l P[l, k]/Σ_j θ_j P[j, k]. Variables that were disguised jointly with variables in `over` are drawn too,
    unless they are dealt in blocks.
    Reference: Rubin (1987) for proper imputation; Tanner & Wong (1987).
    Cost: the posterior, then one draw per record.
    """
    policy = records.policy
    if records.weights is not None or policy.stratum_variable is not None:
        raise InputError("Imputation needs records without survey weights and without strata.")
    asked = {name: policy.group(name) for name in over}
    groups = {group.names: group for group in asked.values()}
    # of variables dealt in blocks, only those in `over` are needed; other groups are drawn as a whole
    names = tuple(
        name for group in groups.values() for name in group.names if group.response is None or name in asked
    )
    posterior = records.posterior(Query(by=names), prior=prior, seed=seed)
    plan = QueryLayout(policy.groups, records.schema).plan(Query(by=names))
    columns = {name: np.asarray(records.codes[name]) for name in plan.columns}
    plan = settle_plan(plan, columns, None)
    own = [np.eye(prod(axis.sizes)) if axis.matrix is None else axis.matrix for axis in plan.axes]
    codes: Any = np.ravel_multi_index(
        [joint(axis, columns) for axis in plan.axes], tuple(each.shape[1] for each in own)
    )
    matrix: Floats = np.ones((1, 1))
    for each in own:
        matrix = np.asarray(np.kron(matrix, each), dtype=np.float64)
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
