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

    `variance` is the variance of a cell's share for one record, averaged over the cells. `worst` is the
    largest over the cells; for several variables that are dealt in the same blocks, it is the average. Divide
    by n. An infinite variance means that the table cannot be estimated.

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

    Formula: Var = Σ_m λ_m G[m, cell]² − θ², where λ_m is the probability of report m, G the matrix of the
    linear estimate and θ the share of the cell. The second moments of separately disguised variables are
    multiplied: the variables are assumed to be independent, with these shares. If every variable is disguised
    symmetrically, the sum of the second moments over the cells depends on neither assumption.
    """
    known = _KnownErrors(policy, shares)
    return [known.error(table) for table in tables]


class _KnownErrors:
    """Expected errors that are shared by tables whose variables are disguised equally.

    A key lists the parts in the order of the table, so that a stored result equals the table's own result to
    the last bit.
    """

    def __init__(self, policy: Policy, shares: Mapping[str, Floats]) -> None:
        self.policy, self.shares = policy, shares
        self._parts: dict[tuple[str, ...], AxisMoments | None] = {}
        self._part_kinds: dict[tuple[str, ...], int] = {}
        self._moments: dict[tuple[object, ...], int] = {}
        self._by_kind: list[AxisMoments | None] = []
        self._alone: dict[str, tuple[Group, int]] = {}
        self._shares_seen: dict[bytes, int] = {}
        self._deals: dict[tuple[str, ...], BlockDeal | ListedDeal | None] = {}
        self._found: dict[tuple[object, ...], tuple[int, float, float]] = {}

    def error(self, table: Table) -> ExpectedError:
        """Return the expected error of a table."""
        about = [self._about(name) for name in table]
        group = about[0][0]
        if all(owner is group for owner, _ in about):
            deal = self._deal(group)
            if isinstance(deal, BlockDeal):
                key: tuple[object, ...] = (group.names, *(kind for _, kind in about))
                if key not in self._found:
                    self._found[key] = self._sum_dealt(deal, table)
                return ExpectedError(table, *self._found[key])
            if deal is not None:
                return ExpectedError(table, *self._sum_dealt(deal, table))
        if len({id(owner) for owner, _ in about}) == len(about):
            kinds = tuple([self._kind((name,)) for name in table])
        else:
            kinds = tuple([self._kind(names) for names in _split_by_group(self.policy, table)])
        if kinds not in self._found:
            self._found[kinds] = self._multiply_parts(kinds, math.prod(self.policy.schema.shape(table)))
        return ExpectedError(table, *self._found[kinds])

    def _about(self, name: str) -> tuple[Group, int]:
        """Return the group of a variable, and a number that variables with equal shares have in common."""
        if name not in self._alone:
            shares = np.asarray(self.shares[name]).tobytes()
            kind = self._shares_seen.setdefault(shares, len(self._shares_seen))
            self._alone[name] = (self.policy.group(name), kind)
        return self._alone[name]

    def _deal(self, group: Group) -> BlockDeal | ListedDeal | None:
        if group.names not in self._deals:
            self._deals[group.names] = _block_deal(group)
        return self._deals[group.names]

    def _sum_dealt(self, deal: BlockDeal | ListedDeal, table: Table) -> tuple[int, float, float]:
        """Return cells, mean and largest variance of a table whose variables are dealt in the same blocks.

        For several variables the mean is returned for the largest variance, too.
        """
        cells = math.prod(self.policy.schema.shape(table))
        mean = deal.variance(table, self.shares) / cells
        if len(table) > 1 or math.isinf(mean):
            return cells, mean, mean
        return cells, mean, deal.largest_variance(table[0], self.shares[table[0]])

    def _kind(self, names: tuple[str, ...]) -> int:
        """Return the number of the moments of variables of one group; equal moments have the same number."""
        if names not in self._part_kinds:
            axis = _part(self.policy, names, self.shares, self._parts)
            if axis is None:  # of tables that cannot be estimated only the number of cells is known
                key: tuple[object, ...] = self.policy.schema.shape(names)
            else:
                key = (axis.cells.tobytes(), axis.shares.tobytes())
            if key not in self._moments:
                self._moments[key] = len(self._by_kind)
                self._by_kind.append(axis)
            self._part_kinds[names] = self._moments[key]
        return self._part_kinds[names]

    def _multiply_parts(self, kinds: tuple[int, ...], cells: int) -> tuple[int, float, float]:
        """Return cells, mean and largest variance of a table from the moments of its parts."""
        second, first = np.ones(1), np.ones(1)
        for kind in kinds:
            axis = self._by_kind[kind]
            if axis is None:
                return cells, math.inf, math.inf
            second = np.multiply.outer(second, axis.cells).ravel()
            first = np.multiply.outer(first, axis.shares).ravel()
        variance = second - first**2
        return len(variance), float(variance.mean()), float(variance.max())


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


def _block_deal(group: Group) -> BlockDeal | ListedDeal | None:
    """Return the blocks that a group's variables are dealt in, or None."""
    response = group.channel
    if not isinstance(response, ClassResponse):
        return None
    sizes = dict(zip(group.names, group.sizes, strict=True))
    if not response.design and len(response.units) == len(sizes):
        return BlockDeal(sizes, response.k, float(response.gamma), float(response.cells))
    blocks = np.zeros((response.blocks, len(sizes) + 1), dtype=bool)  # the last column is padding
    np.put_along_axis(blocks, response.by_cells.astype(np.int64), values=True, axis=1)
    return ListedDeal(sizes, blocks[:, :-1], response.dealing.weights[0], float(response.gamma))
