"""Expected errors of a policy before any data are collected, from its channels and expected shares."""

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
from masquerade.plan.block_search import ListedDeal
from masquerade.plan.questions import Table
from masquerade.plan.variance import AxisMoments, BlockDeal, axis_moments

LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class ExpectedError:
    """The expected error of a table's cells.

    `variance` is the variance of a cell's share for one record, averaged over the cells; `worst` is the
    largest over the cells. Divide by n. An infinite variance means that the table cannot be estimated.

    >>> plan = mq.plan({"smoker": ["yes", "no"]}, privacy=1.5, n=3000, queries="singles")
    >>> [expected] = plan.errors
    >>> round(expected.stderr(3000), 4), round(expected.people_needed(0.03))
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
        """Return the half-width of a confidence interval, at 95% by default."""
        return two_sided_quantile(level) * self.stderr(n)

    def people_needed(self, margin: float, level: float = LEVEL) -> float:
        """Return the number of records needed for this margin."""
        return self.variance * (two_sided_quantile(level) / margin) ** 2


def expected_errors(
    policy: Policy, tables: Sequence[Table], shares: Mapping[str, Floats]
) -> list[ExpectedError]:
    """Return the expected error of every table, exact for the linear estimates and the given shares.

    Formula: Var = Σ_m λ_m G[m, cell]² − θ². Moments of variables that are disguised separately multiply.
    Variables are assumed independent with these shares. The second moments depend on nothing else if each
    variable is disguised symmetrically.
    """
    parts: dict[tuple[str, ...], AxisMoments | None] = {}
    found = []
    for table in tables:
        sizes = policy.schema.shape(table)
        dealt = _block_deal(policy, table)
        if dealt is not None:
            total = dealt.variance(table, shares)
            mean = total / math.prod(sizes)
            found.append(ExpectedError(table, math.prod(sizes), mean, mean))
            continue
        axes = [_part(policy, names, shares, parts) for names in _split_by_group(policy, table)]
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


def _split_by_group(policy: Policy, table: Table) -> list[tuple[str, ...]]:
    """Return the table's variables, grouped by those that are disguised together."""
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
    """Return the moments of variables dealt in blocks, in a table with variables that are not."""
    places = [group.names.index(name) for name in names]
    inside = tuple(sorted(places))
    sampled = response.sampled_channel(inside)
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
    """Return the moments of the named variables of a joint channel, summed over its other variables."""
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
    weights = channel.generalised_inverse @ summing
    if not estimable(channel.matrix, weights, summing):
        raise NotEstimable(f"{', '.join(names)}: this table does not follow from the joint report.")
    return AxisMoments(np.asarray((theta @ channel.matrix) @ weights**2), own)


def _block_deal(policy: Policy, table: Table) -> BlockDeal | ListedDeal | None:
    """Return the blocks that the table's variables are dealt in, or None."""
    group = policy.group(table[0])
    response = group.channel
    if not isinstance(response, ClassResponse) or not set(table) <= set(group.names):
        return None
    sizes = dict(zip(group.names, group.sizes, strict=True))
    if not response.design and len(response.units) == len(sizes):
        return BlockDeal(sizes, response.k, float(response.gamma), float(response.cells))
    blocks = np.zeros((response.blocks, len(sizes) + 1), dtype=bool)  # the last column is padding
    np.put_along_axis(blocks, response.by_cells.astype(np.int64), values=True, axis=1)
    return ListedDeal(sizes, blocks[:, :-1], response.dealing.weights[0], float(response.gamma))
