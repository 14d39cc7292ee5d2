"""Plans that estimate a query from disguised records: columns to tabulate, and maps that invert channels.

Any source that can tabulate report codes, or sum products of looked-up weights, can answer a `QueryPlan`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from math import prod
from typing import Any

import numpy as np

from masquerade.channels.basic import identity
from masquerade.channels.channel import Channel
from masquerade.channels.policy import Group, Policy
from masquerade.channels.sampled_channel import SampledChannel
from masquerade.core.axes import AxisMap, AxisMaps, Floats
from masquerade.core.errors import NotEstimable, Refusal, SingularChannel
from masquerade.core.evidence import TableReduction
from masquerade.core.linear_covariance import Samples
from masquerade.core.query import Query
from masquerade.core.schema import Category, Schema
from masquerade.estimate.inverse import estimable
from masquerade.estimate.links import LinkLayout
from masquerade.estimate.reports import Reports
from masquerade.sources.untold_tables import describe_blocks_needed, describe_untold

MOST_CELLS = 2**27
MOST_PLANS = 10_000  # most cached plans when a batch begins
MOST_IN_BATCH = 1 << 18
MOST_UNDONE = 4096  # truths of a group whose whole channel is inverted for a few of its variables

Conditions = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Axis:
    """An observed axis of a table: its report columns, and the map to the queried cells.

    `asked` are the indexes of the queried variables among the group's variables. `given` are the indexes and
    codes of the variables with conditions. Reports of dealt blocks are lumped to their information about
    these variables (a `SampledChannel`). Once the number of records of each block is known, `settle` replaces
    the `SampledChannel` by a channel, and `samples` are the samples of its reports.
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

    # thousands of plans share the axis of a single variable: its results are cached

    @cached_property
    def sampled_channel(self) -> SampledChannel | None:
        """Channel of dealt blocks to the variables. None for other reports."""
        return self.channel if isinstance(self.channel, SampledChannel) else None

    @cached_property
    def matrix(self) -> Floats | None:
        """Probabilities of reports (truths × reports). None for clear columns."""
        if self.settled is not None:
            return self.settled
        if isinstance(self.channel, SampledChannel):
            return self.channel.channel(self.channel.shares)
        return None if self.channel.is_identity else self.channel.matrix

    @cached_property
    def singular(self) -> bool:
        """True if some truths cannot be distinguished."""
        return self.channel.is_singular if isinstance(self.channel, Channel) else not self.channel.estimable

    @property
    def rank(self) -> int:
        """Number of distinguishable combinations of truths."""
        return self.channel.rank if self.singular else prod(self.truth_sizes)


@dataclass(frozen=True)
class Factor:
    """A condition as weights: the weight of a record is vector[its joint report over these columns].

    `given` are the indexes and codes of the queried truths. Without a `channel` the columns are clear.
    """

    # as for axes: thousands of plans share the factor of a condition

    columns: tuple[str, ...]
    sizes: tuple[int, ...]
    vector: Floats
    truth_sizes: tuple[int, ...] = ()
    channel: Channel | None = None
    given: Conditions = ()

    @property
    def singular(self) -> bool:
        """True if some truths cannot be distinguished."""
        return self.channel is not None and self.channel.is_singular

    @property
    def rank(self) -> int:
        """Number of distinguishable combinations of truths."""
        channel = self.channel
        return channel.rank if channel is not None and self.singular else prod(self.truth_sizes)

    @cached_property
    def ends(self) -> tuple[float, float]:
        """The smallest and the largest weight."""
        if self.channel is None:
            return 0.0, 1.0
        return float(self.vector.min()), float(self.vector.max())

    @property
    def code(self) -> int | None:
        """The single report that meets a condition on clear columns. None if all reports have weights."""
        return None if self.channel is not None else int(np.flatnonzero(self.vector)[0])


@dataclass(frozen=True)
class QueryPlan:
    """Axes to tabulate, and factors of the weight of a record."""

    axes: tuple[Axis, ...]
    factors: tuple[Factor, ...]
    maps: AxisMaps
    columns: tuple[str, ...] = field(init=False)
    """The columns to tabulate."""
    observed_shape: tuple[int, ...] = field(init=False)
    """The shape of the table of columns, one axis per group."""
    dealt: int | None = field(init=False, default=None)
    """Index of the axis with reports of dealt blocks, if there is one."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple([name for axis in self.axes for name in axis.columns]))
        object.__setattr__(self, "observed_shape", tuple([prod(axis.sizes) for axis in self.axes]))
        for place, axis in enumerate(self.axes):
            if axis.sampled_channel is not None:
                object.__setattr__(self, "dealt", place)
                break

    @property
    def census(self) -> QueryPlan | None:
        """The plan that counts the records of every block, which `settle` needs."""
        if self.dealt is None:
            return None
        axis = self.axes[self.dealt]
        return _count_plan(axis.columns[0], axis.sizes[0])

    def settle(self, blocks: Floats) -> QueryPlan:
        """Return the plan for records with the given counts per block."""
        if self.dealt is None:
            return self
        axis = self.axes[self.dealt]
        sampled = axis.sampled_channel
        assert sampled is not None  # noqa: S101  (for the type checker: that is what `dealt` finds)
        channel, inverse, samples = sampled.at_block_sizes(blocks)
        chosen = _cells_of(inverse, axis.truth_sizes, axis.asked, dict(axis.given))
        own = replace(axis, map=AxisMap(axis.map.axes, chosen), settled=channel, samples=samples)
        axes = (*self.axes[: self.dealt], own, *self.axes[self.dealt + 1 :])
        maps = AxisMaps(self.maps.shape, tuple(each.map for each in axes))
        return QueryPlan(axes, self.factors, maps)

    @property
    def joint_columns(self) -> tuple[str, ...]:
        """The columns to tabulate and those of conditions: their joint table answers every query."""
        if not self.factors:
            return self.columns
        return (*self.columns, *(name for factor in self.factors for name in factor.columns))

    @property
    def joint_shape(self) -> tuple[int, ...]:
        """The shape of the joint table: the observed axes, then one axis per factor."""
        if not self.factors:
            return self.observed_shape
        return (*self.observed_shape, *(prod(factor.sizes) for factor in self.factors))

    def lump(self, observed: Floats) -> Floats:
        """Return a table of columns with the reports of dealt blocks lumped."""
        if self.dealt is None:
            return observed
        sampled = self.axes[self.dealt].sampled_channel
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

    def select_met(self, joint: Floats) -> Floats:
        """Return the lumped cells of a joint table that meet the conditions on clear columns."""
        if not self.factors:
            return self.lump(joint)
        open_axes: list[Any] = [slice(None)] * len(self.axes)
        codes = [slice(None) if factor.code is None else factor.code for factor in self.factors]
        return self.lump(np.asarray(joint[tuple(open_axes + codes)]))

    def reports(self, counted: Floats, weight: float = 1.0, squared: Floats | None = None) -> Reports:
        """Return the observed reports with their channels.

        `counted` has the observed axes and one axis per weighing factor. Survey weights are counted as
        effective records of one `weight`, and `squared` are the sums of their squares.
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
        """The samples with sizes known in advance, if there are any."""
        if self.dealt is None:
            return None
        axis = self.axes[self.dealt]
        if axis.sampled_channel is None or axis.samples is None:
            return None
        return Samples(self.dealt, axis.sampled_channel.sample, axis.samples)

    def _distinct_truths(self) -> int | None:
        """Return the number of distinguishable combinations of truths. None for all."""
        channels: Sequence[Axis | Factor] = [*self.axes, *self.weighing] if self.factors else self.axes
        if True not in [each.singular for each in channels]:
            return None
        return prod(each.rank for each in channels)

    @cached_property
    def _latent(self) -> tuple[tuple[Floats | None, ...], tuple[int, ...], TableReduction, int | None]:
        order = [place for axis in self.axes for place in axis.map.axes]
        if not self.factors and [1] * len(order) == [len(axis.truth_sizes) for axis in self.axes]:
            # the most frequent case, without a search
            whole = TableReduction.none(len(order))
            reduction = (
                whole if order == [*whole.keep] else TableReduction(tuple(map(order.index, whole.keep)))
            )
            return (
                tuple([axis.matrix for axis in self.axes]),
                tuple([axis.truth_sizes[0] for axis in self.axes]),
                reduction,
                self._distinct_truths(),
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
        return (
            tuple(channels),
            tuple(truths),
            TableReduction(keep, tuple(sorted(given.items()))),
            self._distinct_truths(),
        )


@lru_cache(maxsize=4096)
def marginal_group(group: Group, keep: tuple[str, ...]) -> Group:
    """Return the group of the named variables if its channel exists, else the whole group."""
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


class QueryLayout:
    """The groups of some records. It plans every query once."""

    def __init__(self, groups: Sequence[Group], schema: Schema) -> None:
        self.groups = tuple(groups)
        self.schema = schema
        self._owner = {name: place for place, group in enumerate(groups) for name in group.names}
        self._alone = {group.names[0] for group in groups if len(group.names) == 1 and not _in_groups(group)}
        self._planned: dict[Query, QueryPlan] = {}
        self._axes: dict[tuple[int, int], Axis] = {}
        self._codes: dict[tuple[str, type[Any], Category], int] = {}
        self._factors: dict[tuple[int, int], Factor] = {}
        self._links: dict[tuple[str, ...], LinkLayout | None] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without cached plans."""
        return type(self), (self.groups, self.schema)

    def plan(self, query: Query) -> QueryPlan:
        """Return the plan of a query.

        Raises
        ------
        SingularChannel
            If a channel cannot be inverted.
        NotEstimable
            If the table does not follow from the reports, but other queries can be answered.
        """
        plan = self._planned.get(query)
        if plan is None:
            if len(self._planned) >= MOST_IN_BATCH:
                self._planned.clear()
            plan = self._planned[query] = self._make_plan(query)
        return plan

    def latent(self, names: Sequence[str]) -> QueryPlan:
        """Return the plan of variables for a model of their reports, even if no table can be estimated."""
        query = Query(by=tuple(names))
        query.check(self.schema)
        groups = {self._owner[name] for name in names}
        missing = [name for place in groups for name in self.groups[place].names if name not in names]
        if missing:
            raise NotEstimable(
                f"A model of {', '.join(names)} also needs the variables that were reported with them: "
                f"{missing}."
            )
        return self._make_plan(query, checked=False)

    def forget_plans(self) -> None:
        """Drop cached plans if there are many. Called between batches, whose plans are in use together."""
        if len(self._planned) >= MOST_PLANS:
            self._planned.clear()

    def refusals(self, query: Query) -> list[Refusal]:
        """Return the reasons why a query cannot be answered from disguised records."""
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
                f"(at most {MOST_CELLS:,}): query fewer variables together, merge categories, or allow a "
                "structure fewer parents"
            )
            return [Refusal("too_many_cells", reason, query)]
        return []

    def _make_plan(self, query: Query, *, checked: bool = True) -> QueryPlan:
        """Plan a query.

        A group named in `by` becomes one observed axis, and its conditions select columns of the map. A group
        named in `where` only becomes a factor. Other variables of a group are summed out, before tabulating
        if the channel is lumpable, otherwise after inverting.
        """
        if not query.where and self._alone.issuperset(query.by):  # the most frequent case, without a search
            lone = [self._lone_axis(self._owner[name], place) for place, name in enumerate(query.by)]
            cells = tuple([axis.truth_sizes[0] for axis in lone])
            return QueryPlan(tuple(lone), (), AxisMaps(cells, tuple([axis.map for axis in lone])))
        conditions = {name: self._code(name, label) for name, label in query.where}
        asked = {*query.by, *conditions}
        axes: list[Axis] = []
        factors: list[Factor] = []
        for place in dict.fromkeys(self._owner[name] for name in query.names):
            group = self.groups[place]
            if group.names[0] in self._alone and group.names[0] in query.by:
                axes.append(self._lone_axis(place, query.by.index(group.names[0])))
                continue
            if group.names[0] in self._alone and group.response is None:
                factors.append(self._lone_factor(place, conditions[group.names[0]]))
                continue
            touched = tuple(name for name in group.names if name in asked)
            if group.response is not None or _in_groups(group):
                axes.append(self._dealt_axis(group, touched, query.by, conditions))
                continue
            used = group if touched == group.names else marginal_group(group, touched)
            whole = prod(group.sizes) <= MOST_UNDONE
            if used is not group and whole and used.matrix_channel.is_singular:
                used = group  # reports of the others may have information that these lack
            channel = used.matrix_channel
            kept = [name for name in used.names if name in query.by]
            given = tuple((i, conditions[name]) for i, name in enumerate(used.names) if name in conditions)
            places = tuple(used.names.index(name) for name in kept)
            if kept:
                positions = tuple(query.by.index(name) for name in kept)
                plain = channel.is_identity and len(kept) == len(used.names)
                matrix = None if plain else _inverse_map(used, places, dict(given), checked=checked)
                axis_map = AxisMap(positions, matrix)
                axes.append(
                    Axis(used.reports, used.report_sizes, used.sizes, channel, places, axis_map, given)
                )
            else:
                factors.append(_factor_of(used, given))
        if sum(axis.sampled_channel is not None for axis in axes) > 1:
            raise NotEstimable(
                f"The table of {', '.join(query.names)} does not follow from the reports: people reported "
                "only some of these variables, which were chosen separately. Query the variables of one "
                "choice at a time, or choose from all of them together."
            )
        shape = self.schema.shape(query.by)
        return QueryPlan(tuple(axes), tuple(factors), AxisMaps(shape, tuple(axis.map for axis in axes)))

    def _lone_axis(self, place: int, position: int) -> Axis:
        """Return the axis of a variable disguised alone, at a position of the table."""
        axis = self._axes.get((place, position))
        if axis is None:
            group = self.groups[place]
            channel = group.matrix_channel
            matrix = None if channel.is_identity else _inverse_map(group, (0,), {})
            axis_map = AxisMap((position,), matrix)
            axis = Axis(group.reports, group.report_sizes, group.sizes, channel, (0,), axis_map)
            self._axes[place, position] = axis
        return axis

    # a deep tree asks for thousands of tables under the same few conditions

    def _code(self, name: str, label: Category) -> int:
        """Return the code of a condition."""
        key = (name, type(label), label)  # 1 and true are different categories
        code = self._codes.get(key)
        if code is None:
            code = self._codes[key] = self.schema[name].code(label)
        return code

    def _lone_factor(self, place: int, code: int) -> Factor:
        """Return the factor of a condition on a variable disguised alone."""
        factor = self._factors.get((place, code))
        if factor is None:
            factor = self._factors[place, code] = _factor_of(self.groups[place], ((0, code),))
        return factor

    def links(self, names: tuple[str, ...]) -> LinkLayout | None:
        """Return the layout by which links between variables are fitted.

        None unless each variable has its own report, and an estimate counts every report as one record in
        total, as the inverse of a channel does.
        """
        if names not in self._links:
            self._links[names] = self._make_links(names)
        return self._links[names]

    def report_of(self, name: str) -> str:
        """Return the first report column of a variable."""
        return self.groups[self._owner[name]].reports[0]

    def _make_links(self, names: tuple[str, ...]) -> LinkLayout | None:
        if not self._alone.issuperset(names):
            return None
        try:
            axes = [self._lone_axis(self._owner[name], 0) for name in names]
        except SingularChannel:
            return None
        plain = [
            len(axis.columns) == 1 and axis.sampled_channel is None and not axis.singular for axis in axes
        ]
        maps = [axis.map.matrix for axis in axes if axis.map.matrix is not None]
        if not all(plain) or not all(np.allclose(matrix.sum(axis=1), 1.0, atol=1e-9) for matrix in maps):
            return None
        return LinkLayout([axis.matrix for axis in axes], [axis.sizes[0] for axis in axes])

    @staticmethod
    def _dealt_axis(
        group: Group, touched: Sequence[str], by: Sequence[str], conditions: dict[str, int]
    ) -> Axis:
        """Return the axis of variables that are dealt in blocks, or whose people are dealt into groups.

        If `by` names none of the variables, the axis adds no axis to the table.
        """
        response = group.response
        if response is not None:
            names = tuple(touched)
            sampled = response.sampled_channel(tuple(group.names.index(name) for name in touched))
            if not sampled.estimable:
                raise NotEstimable(describe_blocks_needed(group, response, touched))
        else:
            names, found = group.names, group.matrix_channel.sampled_channel
            assert found is not None  # noqa: S101  (for the type checker: asked before)
            sampled = found
        sizes = tuple(group.sizes[group.names.index(name)] for name in names)
        asked = tuple(i for i, name in enumerate(names) if name in by)
        given = tuple((i, conditions[name]) for i, name in enumerate(names) if name in conditions)
        matrix = _cells_of(sampled.inverse, sizes, asked, dict(given))
        if not sampled.estimable:
            summing = _cells_of(np.eye(prod(sizes)), sizes, asked, dict(given))
            if not estimable(sampled.channel(sampled.shares), matrix, summing):
                raise NotEstimable(describe_untold(group))
        axis_map = AxisMap(tuple(by.index(names[i]) for i in asked), matrix)
        return Axis(group.reports, group.report_sizes, sizes, sampled, asked, axis_map, given)


def layouts_of(policy: Policy) -> tuple[QueryLayout, ...]:
    """Return the layout of each stratum of a policy, or of all records."""
    return tuple(
        QueryLayout(policy.groups_of(stratum), policy.schema) for stratum in policy.strata or (None,)
    )


def refusal_of(error: SingularChannel, query: Query | None = None) -> Refusal:
    """Return the refusal of a query that the reports cannot answer."""
    return Refusal("not_estimable" if isinstance(error, NotEstimable) else "singular", str(error), query)


def _in_groups(group: Group) -> bool:
    """Return True if a report column names a group of people of known size."""
    return group.response is None and group.matrix_channel.sampled_channel is not None


@lru_cache(maxsize=256)
def _count_plan(column: str, size: int) -> QueryPlan:
    """Return the plan that counts the labels of one clear column."""
    axis = Axis((column,), (size,), (size,), identity(size), (0,), AxisMap((0,), None))
    return QueryPlan((axis,), (), AxisMaps((size,), (axis.map,)))


def _inverse_map(
    group: Group, asked: tuple[int, ...], given: dict[int, int], *, checked: bool = True
) -> Floats:
    """Return the map from a group's reports to the queried cells. Errors name the variables.

    Formula: G = W⁻¹Pᵀ(PW⁻¹Pᵀ)⁺L for the summing matrix L of the cells, allowed exactly if PG = L.
    """
    channel = group.matrix_channel
    if not channel.is_singular:
        return _cells_of(channel.inverse, group.sizes, asked, given)
    if len(group.names) > 1:
        chosen = _cells_of(channel.generalised_inverse, group.sizes, asked, given)
        summing = _cells_of(np.eye(channel.truths), group.sizes, asked, given)
        if not checked or estimable(channel.matrix, chosen, summing):
            return chosen
        raise NotEstimable(describe_untold(group))
    try:
        return channel.inverse
    except SingularChannel as error:
        raise SingularChannel(f"{', '.join(group.names)}: {error}") from None


def _factor_of(group: Group, given: Conditions) -> Factor:
    """Return the weights of the reports of a group under a condition; raise SingularChannel if none exist."""
    channel = group.matrix_channel
    vector = np.ascontiguousarray(_inverse_map(group, (), dict(given))[:, 0])
    hidden = None if channel.is_identity else channel
    return Factor(group.reports, group.report_sizes, vector, group.sizes, hidden, given)


def _cells_of(
    inverse: Floats, sizes: tuple[int, ...], asked: tuple[int, ...], given: dict[int, int]
) -> Floats:
    """Return the columns of an inverse for the queried cells: conditions selected, the rest summed out."""
    if len(asked) == len(sizes):
        return inverse
    cells = inverse.reshape(-1, *sizes)
    picked = cells[(slice(None), *(given.get(place, slice(None)) for place in range(len(sizes))))]
    left = [place for place in range(len(sizes)) if place not in given]
    summed = picked.sum(axis=tuple(1 + i for i, place in enumerate(left) if place not in asked))
    return np.asarray(summed).reshape(len(inverse), -1)
