"""The errors that a policy will have, before anybody was asked: from its channels and the shares expected."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from masquerade.channels.class_response import ClassResponse
from masquerade.channels.policy import Group, Policy
from masquerade.core.axes import Floats
from masquerade.core.distributions import two_sided_quantile
from masquerade.core.errors import NotEstimable, SingularChannel
from masquerade.estimate.inverse import estimable
from masquerade.plan.questions import Table
from masquerade.plan.variance import AxisMoments, BlockDeal, axis_moments

LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class ExpectedError:
    """What a table's cells will be off by.

    `variance` is that of a cell's share for one record, averaged over the cells, `worst` that of the cell
    with the largest; divide by n. Infinite: the table cannot be estimated.

    >>> plan = mq.plan({"smoker": ["yes", "no"]}, privacy=1.5, n=3000, queries="singles")
    >>> [expected] = plan.errors
    >>> round(expected.stderr(3000), 4), round(expected.needed(0.03))
    (0.0144, 2645)
    """

    table: Table
    cells: int
    variance: float
    worst: float

    def stderr(self, n: float) -> float:
        """Return the standard error of a cell's share, the root mean square over the table's cells."""
        return math.sqrt(self.variance / n)

    def margin(self, n: float, level: float = LEVEL) -> float:
        """Return the half-width of an interval: ± this at the level, 95% by default."""
        return two_sided_quantile(level) * self.stderr(n)

    def needed(self, margin: float, level: float = LEVEL) -> float:
        """Return how many records bring the margin down to this."""
        return self.variance * (two_sided_quantile(level) / margin) ** 2


def expected_errors(
    policy: Policy, tables: Sequence[Table], shares: Mapping[str, Floats]
) -> list[ExpectedError]:
    """Return the expected error of every table: exact for the maps that estimates use, prior by prior.

    Formula: Var = Σ_m λ_m G[m, cell]² − θ²; variables disguised apart multiply. Variables are taken as
    independent with these shares: of a table's cells the second moments depend on no more where each is
    disguised symmetrically.
    """
    parts: dict[tuple[str, ...], AxisMoments | None] = {}
    found = []
    for table in tables:
        sizes = policy.schema.shape(table)
        dealt = _dealt(policy, table)
        if dealt is not None:
            total = dealt.variance(table, shares)
            mean = total / math.prod(sizes)
            found.append(ExpectedError(table, math.prod(sizes), mean, mean))
            continue
        axes = [_part(policy, names, shares, parts) for names in _grouped(policy, table)]
        known = [axis for axis in axes if axis is not None]
        if len(known) < len(axes):
            found.append(ExpectedError(table, math.prod(sizes), math.inf, math.inf))
            continue
        second, first = np.ones(1), np.ones(1)
        for axis in known:
            second = np.multiply.outer(second, axis.cells).ravel()
            first = np.multiply.outer(first, axis.shares).ravel()
        variance = second - first**2
        found.append(ExpectedError(table, len(variance), float(variance.mean()), float(variance.max())))
    return found


def _grouped(policy: Policy, table: Table) -> list[tuple[str, ...]]:
    """Return the table's variables, those that are disguised together together."""
    together: dict[tuple[str, ...], list[str]] = {}
    for name in table:
        together.setdefault(policy.group(name).names, []).append(name)
    return [tuple(names) for names in together.values()]


def _part(
    policy: Policy,
    names: tuple[str, ...],
    shares: Mapping[str, Floats],
    known: dict[tuple[str, ...], AxisMoments | None],
) -> AxisMoments | None:
    """Return the moments of variables of one group; None if they cannot be estimated."""
    if names not in known:
        group = policy.group(names[0])
        try:
            if group.response is not None:
                known[names] = _dealt_part(group, group.response, names, shares)
            elif group.names == names and len(names) == 1:
                known[names] = axis_moments(group.matrix_channel, shares[names[0]])
            else:
                known[names] = _joint(policy, names, shares)
        except SingularChannel:
            known[names] = None
    return known[names]


def _dealt_part(
    group: Group, response: ClassResponse, names: tuple[str, ...], shares: Mapping[str, Floats]
) -> AxisMoments | None:
    """Return the moments of variables that are dealt in blocks, beside others that are not."""
    places = [group.names.index(name) for name in names]
    inside = tuple(sorted(places))
    sampled = response.sampled(inside)
    if not sampled.estimable:
        return None
    theta, own = np.ones(1), np.ones(1)
    for place in inside:
        theta = np.multiply.outer(theta, shares[group.names[place]]).ravel()
    for name in names:
        own = np.multiply.outer(own, shares[name]).ravel()
    moments = (theta @ sampled.channel(sampled.shares)) @ sampled.inverse**2
    table = moments.reshape([group.sizes[place] for place in inside])
    return AxisMoments(np.transpose(table, [inside.index(place) for place in places]).ravel(), own)


def _joint(policy: Policy, names: tuple[str, ...], shares: Mapping[str, Floats]) -> AxisMoments:
    """Return the moments of some variables of a joint channel: its map, summed over the others."""
    group = policy.group(names[0])
    theta = np.ones(1)
    for name in group.names:
        theta = np.multiply.outer(theta, shares[name]).ravel()
    channel, places = group.matrix_channel, [group.names.index(name) for name in names]
    marginal = None if group.own_report else channel.marginal(group.sizes, group.report_sizes, places)
    own = np.ones(1)
    for name in names:
        own = np.multiply.outer(own, shares[name]).ravel()
    if marginal is not None and not marginal.is_singular:
        return axis_moments(marginal, own)
    codes = np.unravel_index(np.arange(len(theta)), group.sizes)
    kept = np.ravel_multi_index(
        [codes[group.names.index(name)] for name in names], policy.schema.shape(names)
    )
    summing = np.eye(len(own))[kept]
    weights = channel.generalised @ summing
    if not estimable(channel.matrix, weights, summing):
        raise NotEstimable(f"{', '.join(names)}: this table does not follow from the joint report.")
    return AxisMoments(np.asarray((theta @ channel.matrix) @ weights**2), own)


def _dealt(policy: Policy, table: Table) -> BlockDeal | None:
    """Return how the table's variables are dealt, if they are in blocks."""
    group = policy.group(table[0])
    mechanism = group.channel
    if not isinstance(mechanism, ClassResponse) or not set(table) <= set(group.names):
        return None
    sizes = dict(zip(group.names, group.sizes, strict=True))
    return BlockDeal(sizes, mechanism.k, float(mechanism.gamma), float(mechanism.cells))
