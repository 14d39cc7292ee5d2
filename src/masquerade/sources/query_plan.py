"""How a query is read off disguised records: which columns to tabulate, which maps undo the disguise.

Any source that can tabulate report codes, or sum products of looked-up weights, can answer a `QueryPlan`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import combinations
from math import prod
from typing import Any

import numpy as np

from masquerade.channels.basic import identity
from masquerade.channels.channel import Channel
from masquerade.channels.class_response import ClassResponse
from masquerade.channels.policy import Group, Policy
from masquerade.channels.sampled_channel import SampledChannel
from masquerade.core.axes import AxisMap, AxisMaps, Floats
from masquerade.core.covariance import Samples
from masquerade.core.errors import NotEstimable, Refusal, SingularChannel
from masquerade.core.evidence import Reduction
from masquerade.core.query import Query
from masquerade.core.schema import Schema
from masquerade.estimate.inverse import UNRELATED, estimable
from masquerade.estimate.links import LinkLayout
from masquerade.estimate.reports import Reports

MOST_CELLS = 2**27
MOST_PLANS = 10_000
MOST_UNDONE = 4096  # truths of a group whose whole channel is undone for the sake of a few variables
MOST_TRIED = 256  # tables that are tried for a refusal that says which can be asked


Conditions = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Axis:
    """An observed axis of a table: the report columns it is made of, and the map to the cells asked for.

    `asked` are the places among the truths' variables of those that the map's table axes stand for; `given`
    are the places and codes of those that the query has conditions on. Reports of dealt blocks are lumped to
    what they tell about these variables (a `SampledChannel`); once it is known how many records each block
    has, the axis is `settled` on a channel, and knows the `samples` that its reports fall into.
    """

    columns: tuple[str, ...]
    sizes: tuple[int, ...]
    truth_sizes: tuple[int, ...]
    channel: Channel | SampledChannel
    asked: tuple[int, ...]
    map: AxisMap
    given: Conditions = ()
    settled: Floats | None = None
    samples: Floats | None = None

    # an axis of a variable alone is shared by thousands of plans: what they ask of it is kept

    @cached_property
    def sampled(self) -> SampledChannel | None:
        """What dealt blocks tell about the variables; None for other reports."""
        return self.channel if isinstance(self.channel, SampledChannel) else None

    @cached_property
    def matrix(self) -> Floats | None:
        """Return the chances of reports (truths × reports), None for clear columns."""
        if self.settled is not None:
            return self.settled
        if isinstance(self.channel, SampledChannel):
            return self.channel.channel(self.channel.shares)
        return None if self.channel.is_identity else self.channel.matrix

    @cached_property
    def singular(self) -> bool:
        """Tell whether some combinations of truths cannot be told apart."""
        return self.channel.is_singular if isinstance(self.channel, Channel) else not self.channel.estimable

    @property
    def rank(self) -> int:
        """Return how many combinations of truths the reports tell."""
        return self.channel.rank if self.singular else prod(self.truth_sizes)


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
    def singular(self) -> bool:
        """Tell whether some combinations of truths cannot be told apart."""
        return self.channel is not None and self.channel.is_singular

    @property
    def rank(self) -> int:
        """Return how many combinations of truths the reports tell."""
        channel = self.channel
        return channel.rank if channel is not None and self.singular else prod(self.truth_sizes)

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
    columns: tuple[str, ...] = field(init=False)
    """The columns to tabulate."""
    observed_shape: tuple[int, ...] = field(init=False)
    """The shape of the table of columns, one axis per group."""
    dealt: int | None = field(init=False, default=None)
    """The place of the axis whose reports are of dealt blocks, if there is one."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple([name for axis in self.axes for name in axis.columns]))
        object.__setattr__(self, "observed_shape", tuple([prod(axis.sizes) for axis in self.axes]))
        for place, axis in enumerate(self.axes):
            if axis.sampled is not None:
                object.__setattr__(self, "dealt", place)
                break

    @property
    def census(self) -> QueryPlan | None:
        """The plan that counts the records of every block, which tells how to read this one."""
        if self.dealt is None:
            return None
        axis = self.axes[self.dealt]
        return _counted(axis.columns[0], axis.sizes[0])

    def settled(self, blocks: Floats) -> QueryPlan:
        """Return the plan for records of which so many were dealt each block."""
        if self.dealt is None:
            return self
        axis = self.axes[self.dealt]
        sampled = axis.sampled
        assert sampled is not None  # noqa: S101  (for the type checker: that is what `dealt` finds)
        channel, inverse, samples = sampled.settled(blocks)
        chosen = _cells_of(inverse, axis.truth_sizes, axis.asked, dict(axis.given))
        own = replace(axis, map=AxisMap(axis.map.axes, chosen), settled=channel, samples=samples)
        axes = (*self.axes[: self.dealt], own, *self.axes[self.dealt + 1 :])
        maps = AxisMaps(self.maps.shape, tuple(each.map for each in axes))
        return QueryPlan(axes, self.factors, maps)

    @property
    def joint_columns(self) -> tuple[str, ...]:
        """The columns to tabulate and those of conditions: their joint table answers everything."""
        if not self.factors:
            return self.columns
        return (*self.columns, *(name for factor in self.factors for name in factor.columns))

    @property
    def joint_shape(self) -> tuple[int, ...]:
        """The shape of the joint table: the observed axes, then one for every factor."""
        if not self.factors:
            return self.observed_shape
        return (*self.observed_shape, *(prod(factor.sizes) for factor in self.factors))

    def lumped(self, observed: Floats) -> Floats:
        """Return a table of columns with the reports of dealt blocks lumped to what they tell."""
        if self.dealt is None:
            return observed
        sampled = self.axes[self.dealt].sampled
        assert sampled is not None  # noqa: S101  (for the type checker: that is what `dealt` finds)
        if observed.ndim == 1:
            return np.asarray(
                np.bincount(sampled.lump, weights=observed, minlength=len(sampled.sample)), dtype=np.float64
            )
        front = np.moveaxis(observed, self.dealt, 0)
        result = np.zeros((len(sampled.sample), *front.shape[1:]))
        np.add.at(result, sampled.lump, front)
        return np.moveaxis(result, 0, self.dealt)

    @property
    def weighing(self) -> tuple[Factor, ...]:
        """The factors that weigh reports: conditions on disguised variables."""
        return tuple([factor for factor in self.factors if factor.channel is not None])

    def met(self, joint: Floats) -> Floats:
        """Return the part of a joint table that meets the conditions on clear columns, lumped."""
        if not self.factors:
            return self.lumped(joint)
        open_axes: list[Any] = [slice(None)] * len(self.axes)
        codes = [slice(None) if factor.code is None else factor.code for factor in self.factors]
        return self.lumped(np.asarray(joint[tuple(open_axes + codes)]))

    def reports(self, counted: Floats, weight: float = 1.0, squared: Floats | None = None) -> Reports:
        """Return what was observed, with what was done to it.

        `counted` has the observed axes and one axis for every weighing factor; survey weights are counted
        as effective records of one `weight`, and `squared` are the sums of their squares.
        """
        channels, truths, reduction, told = self._latent
        equal = squared is None or np.array_equal(squared, counted * weight)
        squares = None if squared is None or equal else squared / weight**2
        observed = counted if weight == 1 else counted / weight
        samples = self.samples
        held = 1 if samples is None else int(np.count_nonzero(samples.sizes))
        return Reports(observed, channels, truths, reduction, weight, held, squares, told, samples)

    @property
    def samples(self) -> Samples | None:
        """The samples of sizes known beforehand that records fall into, where there are some."""
        if self.dealt is None:
            return None
        axis = self.axes[self.dealt]
        if axis.sampled is None or axis.samples is None:
            return None
        return Samples(self.dealt, axis.sampled.sample, axis.samples)

    def _told(self) -> int | None:
        """Return how many combinations of truths the reports tell apart; None for all."""
        channels: Sequence[Axis | Factor] = [*self.axes, *self.weighing] if self.factors else self.axes
        if True not in [each.singular for each in channels]:
            return None
        return prod(each.rank for each in channels)

    @cached_property
    def _latent(self) -> tuple[tuple[Floats | None, ...], tuple[int, ...], Reduction, int | None]:
        order = [place for axis in self.axes for place in axis.map.axes]
        if not self.factors and [1] * len(order) == [len(axis.truth_sizes) for axis in self.axes]:
            # most often, so at once
            whole = Reduction.none(len(order))
            reduction = whole if order == [*whole.keep] else Reduction(tuple(map(order.index, whole.keep)))
            return (
                tuple([axis.matrix for axis in self.axes]),
                tuple([axis.truth_sizes[0] for axis in self.axes]),
                reduction,
                self._told(),
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
        return tuple(channels), tuple(truths), Reduction(keep, tuple(sorted(given.items()))), self._told()


@lru_cache(maxsize=4096)
def marginal_group(group: Group, keep: tuple[str, ...]) -> Group:
    """Return the group of the named variables alone if its channel exists, else the whole group."""
    if keep == group.names or group.own_report:
        return group
    places = [group.names.index(name) for name in keep]
    channel = group.matrix_channel.marginal(group.sizes, group.report_sizes, places)
    if channel is None:
        return group
    return Group(
        keep,
        channel,
        tuple(group.sizes[i] for i in places),
        tuple(group.report_sizes[i] for i in places),
        keep,
    )


class Layout:
    """The groups that hold for some records; plans how to read queries off them, each query once."""

    def __init__(self, groups: Sequence[Group], schema: Schema) -> None:
        self.groups = tuple(groups)
        self.schema = schema
        self._owner = {name: place for place, group in enumerate(groups) for name in group.names}
        self._alone = {group.names[0] for group in groups if len(group.names) == 1 and not _in_groups(group)}
        self._planned: dict[Query, QueryPlan] = {}
        self._axes: dict[tuple[int, int], Axis] = {}
        self._links: dict[tuple[str, ...], LinkLayout | None] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without what was planned already."""
        return type(self), (self.groups, self.schema)

    def plan(self, query: Query) -> QueryPlan:
        """Return how to answer a query; a channel that cannot be undone raises `SingularChannel`.

        Where other questions about the same variables have an answer, that is a `NotEstimable`.
        """
        plan = self._planned.get(query)
        if plan is None:
            if len(self._planned) >= MOST_PLANS:
                self._planned.clear()
            plan = self._planned[query] = self._planned_anew(query)
        return plan

    def latent(self, names: Sequence[str]) -> QueryPlan:
        """Return how reports of variables come about, for a model of them, whether or not a table follows."""
        query = Query(by=tuple(names))
        query.check(self.schema)
        groups = {self._owner[name] for name in names}
        missing = [name for place in groups for name in self.groups[place].names if name not in names]
        if missing:
            raise NotEstimable(f"A model of {', '.join(names)} needs what was reported with them: {missing}.")
        return self._planned_anew(query, checked=False)

    def refusals(self, query: Query) -> list[Refusal]:
        """Return why a query cannot be answered from disguised records."""
        if query in self._planned:
            return []
        query.check(self.schema)
        try:
            plan = self.plan(query)
        except SingularChannel as error:
            return [refusal_of(error, query)]
        cells = max(prod(plan.observed_shape), prod(plan.maps.shape))
        if cells > MOST_CELLS:
            del self._planned[query]
            reason = (
                f"the table over {', '.join(query.by)} has {cells:,} cells, {cells * 8 / 2**30:,.1f} GiB "
                f"(at most {MOST_CELLS:,}): ask about fewer variables at once, merge categories, or allow a "
                "structure fewer parents"
            )
            return [Refusal("too_many_cells", reason, query)]
        return []

    def _planned_anew(self, query: Query, *, checked: bool = True) -> QueryPlan:
        """Plan a query.

        A group touched by `by` becomes one observed axis, its conditions select columns of the map; a group
        touched by `where` alone becomes a factor. Variables of a group that nobody asked for are summed
        out, before tabulating if the channel is lumpable, after inverting if not.
        """
        if not query.where and self._alone.issuperset(query.by):  # most often, so at once
            lone = [self._lone_axis(self._owner[name], place) for place, name in enumerate(query.by)]
            cells = tuple([axis.truth_sizes[0] for axis in lone])
            return QueryPlan(tuple(lone), (), AxisMaps(cells, tuple([axis.map for axis in lone])))
        conditions = {name: self.schema[name].code(label) for name, label in query.where}
        asked = {*query.by, *conditions}
        axes: list[Axis] = []
        factors: list[Factor] = []
        for place in dict.fromkeys(self._owner[name] for name in query.names):
            group = self.groups[place]
            if group.names[0] in self._alone and group.names[0] in query.by:
                axes.append(self._lone_axis(place, query.by.index(group.names[0])))
                continue
            touched = tuple(name for name in group.names if name in asked)
            if group.response is not None or _in_groups(group):
                axes.append(self._dealt_axis(group, touched, query.by, conditions))
                continue
            used = group if touched == group.names else marginal_group(group, touched)
            whole = prod(group.sizes) <= MOST_UNDONE
            if used is not group and whole and used.matrix_channel.is_singular:
                used = group  # reports of the others may tell what these do not
            channel = used.matrix_channel
            kept = [name for name in used.names if name in query.by]
            given = tuple((i, conditions[name]) for i, name in enumerate(used.names) if name in conditions)
            places = tuple(used.names.index(name) for name in kept)
            if kept:
                positions = tuple(query.by.index(name) for name in kept)
                plain = channel.is_identity and len(kept) == len(used.names)
                matrix = None if plain else _undone(used, places, dict(given), checked=checked)
                axis_map = AxisMap(positions, matrix)
                axes.append(
                    Axis(used.reports, used.report_sizes, used.sizes, channel, places, axis_map, given)
                )
            else:
                vector = np.ascontiguousarray(_undone(used, places, dict(given))[:, 0])
                hidden = None if channel.is_identity else channel
                factors.append(Factor(used.reports, used.report_sizes, vector, used.sizes, hidden, given))
        if sum(axis.sampled is not None for axis in axes) > 1:
            raise NotEstimable(
                f"{', '.join(query.names)}: not all are dealt in the same blocks or groups. Ask about those "
                "of one deal at a time, or deal all of them together."
            )
        shape = self.schema.shape(query.by)
        return QueryPlan(tuple(axes), tuple(factors), AxisMaps(shape, tuple(axis.map for axis in axes)))

    def _lone_axis(self, place: int, position: int) -> Axis:
        """Return the axis of a variable disguised alone, at a position of the table."""
        axis = self._axes.get((place, position))
        if axis is None:
            group = self.groups[place]
            channel = group.matrix_channel
            matrix = None if channel.is_identity else _undone(group, (0,), {})
            axis_map = AxisMap((position,), matrix)
            axis = Axis(group.reports, group.report_sizes, group.sizes, channel, (0,), axis_map)
            self._axes[place, position] = axis
        return axis

    def links(self, names: tuple[str, ...]) -> LinkLayout | None:
        """Return how links between variables are fitted; None unless each has a report of its own alone.

        And unless an estimate counts every report as one record in all, as the inverse of a channel does.
        """
        if names not in self._links:
            self._links[names] = self._links_anew(names)
        return self._links[names]

    def report_of(self, name: str) -> str:
        """Return the first column of what was reported of a variable."""
        return self.groups[self._owner[name]].reports[0]

    def _links_anew(self, names: tuple[str, ...]) -> LinkLayout | None:
        if not self._alone.issuperset(names):
            return None
        try:
            axes = [self._lone_axis(self._owner[name], 0) for name in names]
        except SingularChannel:
            return None
        plain = [len(axis.columns) == 1 and axis.sampled is None and not axis.singular for axis in axes]
        maps = [axis.map.matrix for axis in axes if axis.map.matrix is not None]
        if not all(plain) or not all(np.allclose(matrix.sum(axis=1), 1.0, atol=1e-9) for matrix in maps):
            return None
        return LinkLayout([axis.matrix for axis in axes], [axis.sizes[0] for axis in axes])

    @staticmethod
    def _dealt_axis(
        group: Group, touched: Sequence[str], by: Sequence[str], conditions: dict[str, int]
    ) -> Axis:
        """Return the axis of variables that are dealt in blocks, or whose people are dealt into groups.

        A condition is one without table axes.
        """
        response = group.response
        if response is not None:
            names = tuple(touched)
            sampled = response.sampled(tuple(group.names.index(name) for name in touched))
            if not sampled.estimable:
                raise NotEstimable(_blocks_needed(group, response, touched))
        else:
            names, found = group.names, group.matrix_channel.sampled
            assert found is not None  # noqa: S101  (for the type checker: asked before)
            sampled = found
        sizes = tuple(group.sizes[group.names.index(name)] for name in names)
        asked = tuple(i for i, name in enumerate(names) if name in by)
        given = tuple((i, conditions[name]) for i, name in enumerate(names) if name in conditions)
        matrix = _cells_of(sampled.inverse, sizes, asked, dict(given))
        if not sampled.estimable:
            summing = _cells_of(np.eye(prod(sizes)), sizes, asked, dict(given))
            if not estimable(sampled.channel(sampled.shares), matrix, summing):
                raise NotEstimable(_not_told(group))
        axis_map = AxisMap(tuple(by.index(names[i]) for i in asked), matrix)
        return Axis(group.reports, group.report_sizes, sizes, sampled, asked, axis_map, given)


def layouts_of(policy: Policy) -> tuple[Layout, ...]:
    """Return how questions are read off the reports of each stratum of a policy, or off all of them."""
    return tuple(Layout(policy.groups_of(stratum), policy.schema) for stratum in policy.strata or (None,))


def refusal_of(error: SingularChannel, query: Query | None = None) -> Refusal:
    """Return the refusal of a question that reports do not answer."""
    return Refusal("not_estimable" if isinstance(error, NotEstimable) else "singular", str(error), query)


def _in_groups(group: Group) -> bool:
    """Tell whether a column of the report names a group of people, whose size is known."""
    return group.response is None and group.matrix_channel.sampled is not None


@lru_cache(maxsize=256)
def _counted(column: str, size: int) -> QueryPlan:
    """Return the plan that counts the labels of one clear column."""
    axis = Axis((column,), (size,), (size,), identity(size), (0,), AxisMap((0,), None))
    return QueryPlan((axis,), (), AxisMaps((size,), (axis.map,)))


def _undone(group: Group, asked: tuple[int, ...], given: dict[int, int], *, checked: bool = True) -> Floats:
    """Return the map from a group's reports to the cells asked for; an error names the variables.

    Formula: G = W⁻¹Pᵀ(PW⁻¹Pᵀ)⁺L for the summing matrix L of the cells, allowed exactly if PG = L.
    """
    channel = group.matrix_channel
    if not channel.is_singular:
        return _cells_of(channel.inverse, group.sizes, asked, given)
    if len(group.names) > 1:
        chosen = _cells_of(channel.generalised, group.sizes, asked, given)
        summing = _cells_of(np.eye(channel.truths), group.sizes, asked, given)
        if not checked or estimable(channel.matrix, chosen, summing):
            return chosen
        raise NotEstimable(_not_told(group))
    try:
        return channel.inverse
    except SingularChannel as error:
        raise SingularChannel(f"{', '.join(group.names)}: {error}") from None


def _cells_of(
    inverse: Floats, sizes: tuple[int, ...], asked: tuple[int, ...], given: dict[int, int]
) -> Floats:
    """Return the columns of an inverse for the cells asked for: conditions picked, the rest summed out."""
    if len(asked) == len(sizes):
        return inverse
    cells = inverse.reshape(-1, *sizes)
    picked = cells[(slice(None), *(given.get(place, slice(None)) for place in range(len(sizes))))]
    left = [place for place in range(len(sizes)) if place not in given]
    summed = picked.sum(axis=tuple(1 + i for i, place in enumerate(left) if place not in asked))
    return np.asarray(summed).reshape(len(inverse), -1)


def tables_told(group: Group) -> str:
    """Return which tables follow from the joint report of a group, the largest; empty if none does."""
    places, found = range(len(group.names)), list[tuple[int, ...]]()
    tried = 0
    for size in range(len(group.names) - 1, 0, -1):
        for some in combinations(places, size):
            if any(set(some) <= set(other) for other in found) or tried >= MOST_TRIED:
                continue
            tried += 1
            if group.matrix_channel.tells(group.sizes, some):
                found.append(some)
    return "; ".join(" × ".join(group.names[place] for place in some) for some in sorted(found))


def _not_told(group: Group) -> str:
    """Say that a table does not follow from the joint report of a group, and which do."""
    tables = tables_told(group)
    return (
        f"This table does not follow from the joint report of {', '.join(group.names)}: different truths "
        "give the same reports. Of these variables "
        + (f"{tables} can be asked, and what they sum to." if tables else "no table can be asked.")
        + (f" {UNRELATED}" if _reversed_evenly(group) else "")
    )


def _reversed_evenly(group: Group) -> bool:
    """Tell whether every truth of yes/no variables gives the same reports as another one."""
    if any(size != 2 for size in group.sizes):
        return False
    _, alike = np.unique(group.matrix_channel.matrix.round(12), axis=0, return_counts=True)
    return bool(alike.min() > 1)


def _blocks_needed(group: Group, response: ClassResponse, touched: Sequence[str]) -> str:
    """Say which blocks a table would have needed."""
    return (
        f"The table of {', '.join(touched)} does not follow from blocks of {response.k}: it needs cells "
        f"blocks with all {len(touched)} of them (k: {len(touched)}). Tables of up to {response.order} of "
        f"{', '.join(group.names)} can be asked."
    )
