"""Conditioned sums that an engine works out itself: weights are looked up and added up where records lie."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from masquerade.sources import sql
from masquerade.sources.coded_rows import codes_of, numbers
from masquerade.sources.query_plan import QueryPlan
from masquerade.sources.record_store import Observed
from masquerade.sources.sql import Column


class Unread(Exception):
    """Some records hold a value of these columns that no category stands for."""

    def __init__(self, columns: Sequence[str]) -> None:
        super().__init__(*columns)
        self.columns = tuple(columns)


def batches_of_plans(plans: Sequence[QueryPlan], most: int) -> Iterator[list[int]]:
    """Yield the places of plans that one scan sums up: they tabulate the same columns."""
    shared: dict[tuple[str, ...], list[int]] = {}
    for place, plan in enumerate(plans):
        shared.setdefault(plan.columns, []).append(place)
    for places in shared.values():
        for start in range(0, len(places), most):
            yield places[start : start + most]


def observed(
    plans: Sequence[QueryPlan],
    rows: pa.Table,
    columns: Mapping[str, Column],
    sizes: Mapping[str, int],
    *,
    weighted: bool,
) -> list[Observed]:
    """Return the sums of plans over the same columns, as `sql.weighed` asked for them.

    A value that no category stands for is an `Unread` of the conditions, an `UnknownValue` of the others.
    """
    for i, plan in enumerate(plans):
        if numbers(rows[f"{sql.UNREAD}{i}"], sql.UNREAD).any():
            raise Unread([name for factor in plan.factors for name in factor.columns])
    names = plans[0].columns
    shape = tuple(sizes[name] for name in names)
    codes = [codes_of(rows[name], columns[name]) for name in names]
    cells = np.ravel_multi_index(codes, shape) if names else np.zeros(len(rows), dtype=np.intp)

    def spread(key: str, plan: QueryPlan) -> NDArray[np.float64]:
        table: NDArray[Any] = np.bincount(cells, weights=numbers(rows[key], key), minlength=prod(shape))
        return table.reshape(plan.observed_shape)

    found = []
    for i, plan in enumerate(plans):
        first, second = spread(f"{sql.FIRST}{i}", plan), spread(f"{sql.SECOND}{i}", plan)
        found.append(
            Observed(
                first,
                second,
                spread(f"{sql.THIRD}{i}", plan) if weighted else first,
                first if not plan.weighing else None,
            )
        )
    return found
