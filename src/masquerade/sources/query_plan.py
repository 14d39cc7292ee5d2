"""How a query is read off disguised records: which columns to tabulate, which maps undo the disguise.

Any source that can tabulate report codes, or sum products of looked-up weights, can answer a `QueryPlan`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod
from typing import Any

import numpy as np

from masquerade.channels.channel import Channel
from masquerade.channels.policy import Group, Policy
from masquerade.core.axes import AxisMap, AxisMaps, Floats
from masquerade.core.errors import Refusal, SingularChannel
from masquerade.core.evidence import Reduction
from masquerade.core.query import Query
from masquerade.core.schema import Schema
from masquerade.estimate.reports import Reports

MOST_CELLS = 2**27
MOST_PLANS = 10_000


Conditions = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Axis:
    """An observed axis of a table: the report columns it is made of, and the map to the cells asked for.

    `asked` are the places among `columns` of the variables that the map's table axes stand for; `given` are
    the places and codes of those that the query has conditions on.
    """

    columns: tuple[str, ...]
    sizes: tuple[int, ...]
    truth_sizes: tuple[int, ...]
    channel: Channel
    asked: tuple[int, ...]
    map: AxisMap
    given: Conditions = ()

    @property
    def matrix(self) -> Floats | None:
        """Return the chances of reports (truths × reports), None for clear columns."""
        return None if self.channel.is_identity else self.channel.matrix


@dataclass(frozen=True, slots=True)
class Factor:
    """A condition as weights: a record counts vector[its joint report over these columns].

    `given` are the places and codes of the truths that it asks for; with no `channel` the columns are clear.
    """

    columns: tuple[str, ...]
    sizes: tuple[int, ...]
    vector: Floats
    truth_sizes: tuple[int, ...] = ()
    channel: Channel | None = None
    given: Conditions = ()

    @property
    def code(self) -> int | None:
        """Return the one report that meets a condition on clear columns; None if all reports have weights."""
        return None if self.channel is not None else int(np.flatnonzero(self.vector)[0])


@dataclass(frozen=True)
class QueryPlan:
    """Axes to tabulate and factors to multiply into the weight of a record."""

    axes: tuple[Axis, ...]
    factors: tuple[Factor, ...]
    maps: AxisMaps

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns to tabulate."""
        return tuple(name for axis in self.axes for name in axis.columns)

    @cached_property
    def joint_columns(self) -> tuple[str, ...]:
        """The columns to tabulate and those of conditions: their joint table answers everything."""
        if not self.factors:
            return self.columns
        return (*self.columns, *(name for factor in self.factors for name in factor.columns))

    @cached_property
    def observed_shape(self) -> tuple[int, ...]:
        """The shape of the observed table, one axis per group."""
        return tuple(prod(axis.sizes) for axis in self.axes)

    @cached_property
    def joint_shape(self) -> tuple[int, ...]:
        """The shape of the joint table: the observed axes, then one for every factor."""
        if not self.factors:
            return self.observed_shape
        return (*self.observed_shape, *(prod(factor.sizes) for factor in self.factors))

    @cached_property
    def weighing(self) -> tuple[Factor, ...]:
        """The factors that weigh reports: conditions on disguised variables."""
        return tuple(factor for factor in self.factors if factor.code is None)

    def met(self, joint: Floats) -> Floats:
        """Return the part of a joint table that meets the conditions on clear columns."""
        if not self.factors:
            return joint
        open_axes: list[Any] = [slice(None)] * len(self.axes)
        codes = [slice(None) if factor.code is None else factor.code for factor in self.factors]
        return np.asarray(joint[tuple(open_axes + codes)])

    def reports(self, counted: Floats, weight: float = 1.0, squared: Floats | None = None) -> Reports:
        """Return what was observed, with what was done to it.

        `counted` has the observed axes and one axis for every weighing factor; survey weights are counted
        as effective records of one `weight`, and `squared` are the sums of their squares.
        """
        channels, truths, reduction = self._latent
        equal = squared is None or np.array_equal(squared, counted * weight)
        squares = None if squared is None or equal else squared / weight**2
        observed = counted if weight == 1 else counted / weight
        return Reports(observed, channels, truths, reduction, weight, squares=squares)

    @cached_property
    def _latent(self) -> tuple[tuple[Floats | None, ...], tuple[int, ...], Reduction]:
        if not self.factors and all(len(axis.columns) == 1 for axis in self.axes):  # most often, so at once
            order = [axis.map.axes[0] for axis in self.axes]
            whole = Reduction.none(len(order))
            reduction = whole if order == [*whole.keep] else Reduction(tuple(map(order.index, whole.keep)))
            return (
                tuple([axis.matrix for axis in self.axes]),
                tuple([axis.truth_sizes[0] for axis in self.axes]),
                reduction,
            )
        place: dict[int, int] = {}
        given: dict[int, int] = {}
        truths: list[int] = []
        channels: list[Floats | None] = []
        for axis in self.axes:
            place |= {at: len(truths) + i for at, i in zip(axis.map.axes, axis.asked, strict=True)}
            given |= {len(truths) + i: code for i, code in axis.given}
            truths += axis.truth_sizes
            channels.append(axis.matrix)
        for factor in self.weighing:
            given |= {len(truths) + i: code for i, code in factor.given}
            truths += factor.truth_sizes
            channels.append(None if factor.channel is None else factor.channel.matrix)
        keep = tuple(place[at] for at in range(len(place)))
        return tuple(channels), tuple(truths), Reduction(keep, tuple(sorted(given.items())))


@lru_cache(maxsize=4096)
def marginal_group(group: Group, keep: tuple[str, ...]) -> Group:
    """Return the group of the named variables alone if its channel exists, else the whole group."""
    if keep == group.names:
        return group
    places = [group.names.index(name) for name in keep]
    channel = group.channel.marginal(group.sizes, group.report_sizes, places)
    if channel is None:
        return group
    return Group(
        keep,
        channel,
        tuple(group.sizes[i] for i in places),
        tuple(group.report_sizes[i] for i in places),
    )


class Layout:
    """The groups that hold for some records; plans how to read queries off them, each query once."""

    def __init__(self, groups: Sequence[Group], schema: Schema) -> None:
        self.groups = tuple(groups)
        self.schema = schema
        self._owner = {name: place for place, group in enumerate(groups) for name in group.names}
        self._planned: dict[Query, QueryPlan] = {}
        self._axes: dict[tuple[int, int], Axis] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without what was planned already."""
        return type(self), (self.groups, self.schema)

    def plan(self, query: Query) -> QueryPlan:
        """Return how to answer a query; a channel that cannot be undone raises `SingularChannel`."""
        plan = self._planned.get(query)
        if plan is None:
            if len(self._planned) >= MOST_PLANS:
                self._planned.clear()
            plan = self._planned[query] = self._planned_anew(query)
        return plan

    def refusals(self, query: Query) -> list[Refusal]:
        """Return why a query cannot be answered from disguised records."""
        if query in self._planned:
            return []
        query.check(self.schema)
        try:
            plan = self.plan(query)
        except SingularChannel as error:
            return [Refusal("singular", str(error), query)]
        cells = max(prod(plan.observed_shape), prod(plan.maps.shape))
        if cells > MOST_CELLS:
            del self._planned[query]
            reason = f"the table over {', '.join(query.by)} has {cells:,} cells (at most {MOST_CELLS:,})"
            return [Refusal("too_many_cells", reason, query)]
        return []

    def _planned_anew(self, query: Query) -> QueryPlan:
        """Plan a query.

        A group touched by `by` becomes one observed axis, its conditions select columns of the map; a group
        touched by `where` alone becomes a factor. Variables of a group that nobody asked for are summed
        out, before tabulating if the channel is lumpable, after inverting if not.
        """
        conditions = {name: self.schema[name].code(label) for name, label in query.where}
        asked = {*query.by, *conditions}
        axes: list[Axis] = []
        factors: list[Factor] = []
        for place in dict.fromkeys(self._owner[name] for name in query.names):
            group = self.groups[place]
            if len(group.names) == 1 and group.names[0] in query.by:
                axes.append(self._lone_axis(place, query.by.index(group.names[0])))
                continue
            touched = tuple(name for name in group.names if name in asked)
            used = group if touched == group.names else marginal_group(group, touched)
            inverse = _inverse_of(used)
            kept = [name for name in used.names if name in query.by]
            given = tuple((i, conditions[name]) for i, name in enumerate(used.names) if name in conditions)
            if kept:
                positions = tuple(query.by.index(name) for name in kept)
                plain = used.channel.is_identity and len(kept) == len(used.names)
                matrix = None if plain else _chosen(inverse, used, kept, conditions)
                places = tuple(used.names.index(name) for name in kept)
                axis_map = AxisMap(positions, matrix)
                axes.append(
                    Axis(used.names, used.report_sizes, used.sizes, used.channel, places, axis_map, given)
                )
            else:
                vector = np.ascontiguousarray(_chosen(inverse, used, kept, conditions)[:, 0])
                channel = None if used.channel.is_identity else used.channel
                factors.append(Factor(used.names, used.report_sizes, vector, used.sizes, channel, given))
        shape = self.schema.shape(query.by)
        return QueryPlan(tuple(axes), tuple(factors), AxisMaps(shape, tuple(axis.map for axis in axes)))

    def _lone_axis(self, place: int, position: int) -> Axis:
        """Return the axis of a variable disguised alone, at a position of the table."""
        axis = self._axes.get((place, position))
        if axis is None:
            group = self.groups[place]
            matrix = None if group.channel.is_identity else _inverse_of(group)
            axis_map = AxisMap((position,), matrix)
            axis = Axis(group.names, group.report_sizes, group.sizes, group.channel, (0,), axis_map)
            self._axes[place, position] = axis
        return axis


def layouts_of(policy: Policy) -> tuple[Layout, ...]:
    """Return how questions are read off the reports of each stratum of a policy, or off all of them."""
    return tuple(Layout(policy.groups_of(stratum), policy.schema) for stratum in policy.strata or (None,))


def _inverse_of(group: Group) -> Floats:
    """Return the inverse of a group's channel; an error names the variables."""
    try:
        return group.channel.inverse
    except SingularChannel as error:
        raise SingularChannel(f"{', '.join(group.names)}: {error}") from None


def _chosen(inverse: Floats, group: Group, kept: Sequence[str], conditions: dict[str, int]) -> Floats:
    """Return the columns of an inverse for the cells asked for: conditions picked, the rest summed out."""
    if len(kept) == len(group.names):
        return inverse
    cells = inverse.reshape(-1, *group.sizes)
    index = tuple(conditions.get(name, slice(None)) for name in group.names)
    picked = cells[(slice(None), *index)]
    left = [name for name in group.names if name not in conditions]
    summed = picked.sum(axis=tuple(1 + i for i, name in enumerate(left) if name not in kept))
    return np.asarray(summed).reshape(len(inverse), -1)
