"""Mean of any function of the true records, estimated from disguised records in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from masquerade.channels.basic import identity
from masquerade.channels.channel import Channel
from masquerade.channels.policy import Group
from masquerade.core.axes import Floats, contract
from masquerade.core.errors import InputError, NotEstimable
from masquerade.core.query import Query
from masquerade.core.report_moments import ReportSpread
from masquerade.core.tally import raise_refusals
from masquerade.estimate.inverse import UNRELATED
from masquerade.sources.query_plan import MOST_UNDONE, Axis, QueryLayout, QueryPlan, marginal_group

if TYPE_CHECKING:
    from masquerade.sources.records import Records

Truths = NDArray[np.intp]
Function = Callable[[Truths], NDArray[Any]]

MOST_TRUTHS = 2**16
MOST_EVALUATIONS = 2**27
CHUNK = 2**19
DRAWS = 2**22
MOST_POSSIBLE = 2**24  # most possible truths of all records in memory
MOST_TERMS = 64  # most possible truths of a report that are enumerated
FEWER = 4  # enumerate the possible truths of a report if a group has at least this many times as many truths
LEAST_SINGULAR_VALUE = 1e-12  # a block with a smaller singular value has no inverse


@dataclass(frozen=True, slots=True)
class RecordMean:
    """Mean of a function over true records, its standard error, and the variation of the records.

    `spread` has the moments of Σ w(g − mean), and `total` is Σ w.
    """

    value: float
    stderr: float
    spread: ReportSpread
    total: float


def expect(records: Records, f: Function, over: Sequence[str], *, seed: int = 0) -> tuple[float, float]:
    """Estimate the mean of f over the true records from disguised records, with its standard error."""
    found = mean_of(records, f, over, seed=seed)
    return found.value, found.stderr


def mean_of(records: Records, f: Function, over: Sequence[str], *, seed: int = 0) -> RecordMean:
    """Return the mean of f over the true records, estimated from disguised records, and its variation.

    `f` takes an array (m, len(over)) of category codes and returns m numbers, equal for equal codes. With
    survey weights the mean is weighted.

    Formula: v = Σ_r w_r g(x̃_r)/Σ w_r, g(x̃) = Σ_x G[x̃, x] f(x); Var v = Σ w²(g − v)²/(Σw)², which without
    weights is (Σg² − (Σg)²/n)/n². G is the product of the inverse channels of groups disguised together.
    Reference: Zhan et al. (2004) §3.5, Eq. 7, for any channel.
    Cost: f is evaluated once for every distinct combination of the undisguised variables and every truth of
    the disguised variables. A group whose reports each have few possible truths (a flip: a record or its
    opposite) is evaluated only at the possible truths. Beyond 65,536 truths per record, or 134 million
    evaluations in total, truths are drawn with probability ∝ |G| and counted with the sign of G: 4.2 million
    draws in total, with the fixed `seed`.
    Error: unbiased. The standard error covers sampling, disguise and the draws of truths. It grows with every
    disguised variable that f reads.
    """
    query = Query(by=tuple(over))
    query.check(records.schema)
    if not records.n:
        raise InputError("The mean over no records is undefined.")
    generator = np.random.default_rng(seed)
    draws = max(1, DRAWS // records.n)
    gains = np.empty(records.n)
    for groups, rows in strata(records):
        few, others = _few_truths(groups, over)
        plan = QueryLayout(others, records.schema).plan(query)
        columns = {name: records.codes[name][rows] for name in plan.columns}
        plan = settle_plan(plan, columns, None if records.weights is None else records.weights[rows])
        size = records.n if isinstance(rows, slice) else len(rows)
        if size:
            gains[rows] = 0.0
            reported = {name: records.codes[name][rows] for one in few for name in one.names}
            for truths, weight in _possible_truths(few, reported, size):
                known = columns | truths
                gains[rows] += weight * _values_of(plan, known, size, f, generator=generator, draws=draws)
            if plan.samples is not None:
                weights = np.ones(size) if records.weights is None else records.weights[rows]
                gains[rows] -= _sample_differences(plan, columns, gains[rows], weights)
    return _weighted_mean(gains, records.weights)


CountsAndError = tuple[Floats, Callable[[Floats], float]]
GroupOf = Callable[[dict[str, NDArray[np.intp]]], NDArray[np.intp]]


def count_possible_truths(
    records: Records, over: Sequence[str], group_of: GroupOf, shape: tuple[int, int]
) -> CountsAndError | None:
    """Count the true records by group and by the last variable of `over`.

    `group_of` maps codes of the other variables to groups. The second result is a function that returns the
    standard error of a weighted sum of the counts. Returns None if reports have too many possible truths, or
    there are no records.

    Formula: a record counts for each possible truth of its report, weighted by the inverse channel.
    Cost: one copy of the records per possible truth of a report.
    """
    own = np.ones(records.n) if records.weights is None else np.asarray(records.weights, dtype=float)
    placed: list[tuple[Any, Truths, Floats]] = []
    for groups, rows in strata(records):
        few, others = _few_truths(groups, over, fewer=0)
        if any(_hidden(group) and not set(group.names).isdisjoint(over) for group in others):
            return None
        size = records.n if isinstance(rows, slice) else len(rows)
        if size * prod(one.truths.shape[1] for one in few) > MOST_POSSIBLE:
            return None
        told = {name for one in few for name in one.names}
        clear = {
            name: np.asarray(records.codes[name][rows], dtype=np.intp) for name in over if name not in told
        }
        for truths, weight in _possible_truths(few, {name: records.codes[name][rows] for name in told}, size):
            codes = clear | truths
            group = group_of({name: codes[name] for name in over[:-1]})
            placed.append((rows, np.ravel_multi_index((group, codes[over[-1]]), shape), weight))
    if not own.sum() > 0:
        return None
    counts = np.zeros(shape[0] * shape[1])
    for rows, place, weight in placed:
        counts += np.bincount(place, own[rows] * weight, minlength=len(counts))

    def error(slopes: Floats) -> float:
        gains = np.zeros(records.n)
        for rows, place, weight in placed:
            gains[rows] += weight * slopes.ravel()[place]
        mean = float(own @ gains) / float(own.sum())
        return float(np.sqrt(np.sum((own * (gains - mean)) ** 2)))

    return counts.reshape(shape), error


def _hidden(group: Group) -> bool:
    return group.disguised or group.own_report or group.report_sizes != group.sizes


@dataclass(frozen=True, slots=True, eq=False)
class _FewTruths:
    """A group whose reports each have few possible truths: report m counts truths[m] with weights[m]."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    truths: Truths
    weights: Floats


def _few_truths(
    groups: Sequence[Group], over: Sequence[str], fewer: int = FEWER
) -> tuple[list[_FewTruths], tuple[Group, ...]]:
    """Return the groups with few possible truths per report, and the groups to plan the query with.

    In the second list, the variables of groups in the first list are clear. A report has few possible truths
    if its group has at least `fewer` times as many truths.
    """
    few: list[_FewTruths] = []
    others: list[Group] = []
    terms = 1
    for group in groups:
        asked = tuple(name for name in group.names if name in over)
        found = _find_few_truths(group, asked, fewer) if len(asked) > (1 if fewer else 0) else None
        if found is None or terms * found.truths.shape[1] > MOST_TERMS:
            others.append(group)
            continue
        terms *= found.truths.shape[1]
        few.append(found)
        sizes = zip(group.names, group.sizes, strict=True)
        others += [
            Group((name,), identity(size), (size,), (size,), (name,)) for name, size in sizes if name in asked
        ]
    return few, tuple(others)


def _find_few_truths(group: Group, asked: tuple[str, ...], fewer: int) -> _FewTruths | None:
    """Return the possible truths of a group's reports, or None if a report has many."""
    if not group.disguised or group.own_report or group.response is not None:
        return None
    wanted = prod(size for name, size in zip(group.names, group.sizes, strict=True) if name in asked)
    # the marginal is looked up in a table of truths × kept truths
    used = marginal_group(group, asked) if wanted * prod(group.sizes) <= MOST_EVALUATIONS // 8 else group
    if used.report_sizes != used.sizes:
        return None
    mixed = _mixtures(used.matrix_channel)
    if mixed is None or mixed[0].shape[1] * fewer > len(mixed[0]):
        return None
    return _FewTruths(used.names, used.sizes, *mixed)


@lru_cache(maxsize=64)
def _mixtures(channel: Channel) -> tuple[Truths, Floats] | None:
    """Return the possible truths of every report and their entries of the inverse, or None if there are many.

    Formula: truths and reports fall into blocks that do not mix; the inverse is block-diagonal.
    Cost: one small inverse per block, never the whole matrix.
    """
    from scipy.sparse import csr_array  # noqa: PLC0415  (scipy is slow to import)
    from scipy.sparse.csgraph import connected_components  # noqa: PLC0415

    size = channel.truths
    if channel.reports != size or channel.sampled_channel is not None:
        return None
    truth, place = np.nonzero(channel.weights)
    report = channel.outcomes[truth, place].astype(np.intp)
    chance = channel.weights[truth, place] / channel.denominators[truth]
    links = csr_array((chance, (truth, size + report)), shape=(2 * size, 2 * size))
    count, part = connected_components(links, directed=False)
    held = np.bincount(part[:size], minlength=count)
    width = int(held.max())
    if width > MOST_TERMS or np.any(held != np.bincount(part[size:], minlength=count)) or held.min() < width:
        return None
    members = np.argsort(part[:size], kind="stable").reshape(count, width)
    reports = np.argsort(part[size:], kind="stable").reshape(count, width)
    inside = np.zeros(size, dtype=np.intp)
    inside[reports.ravel()] = np.tile(np.arange(width), count)
    row = np.zeros(size, dtype=np.intp)
    row[members.ravel()] = np.tile(np.arange(width), count)
    blocks = np.zeros((count, width, width))
    np.add.at(blocks, (part[truth], row[truth], inside[report]), chance)
    if np.linalg.svd(blocks, compute_uv=False)[:, -1].min() < LEAST_SINGULAR_VALUE:
        if size > MOST_UNDONE:
            raise NotEstimable(f"Different truths give the same reports of a group. {UNRELATED}")
        return None  # the general method reports which tables can be estimated
    inverse = np.linalg.inv(blocks)  # reports × truths of every block
    truths = np.empty((size, width), dtype=np.intp)
    weights = np.empty((size, width))
    truths[reports] = members[:, None, :]
    weights[reports] = inverse
    return truths, weights


def _possible_truths(
    few: Sequence[_FewTruths], reported: dict[str, NDArray[Any]], rows: int
) -> Iterator[tuple[dict[str, NDArray[Any]], Floats]]:
    """Yield one possible truth of every report at a time: its codes by variable, and its weights."""
    reports = [np.ravel_multi_index([reported[name] for name in one.names], one.sizes) for one in few]
    for chosen in product(*(range(one.truths.shape[1]) for one in few)):
        weight, truths = np.ones(rows), dict[str, NDArray[Any]]()
        for one, report, term in zip(few, reports, chosen, strict=True):
            weight = weight * one.weights[report, term]
            truths |= zip(one.names, np.unravel_index(one.truths[report, term], one.sizes), strict=True)
        yield truths, weight


def _sample_differences(
    plan: QueryPlan, columns: dict[str, NDArray[Any]], gains: Floats, weights: Floats
) -> Floats:
    """Return the difference between the mean of each record's sample and the overall mean.

    Samples of dealt blocks have sizes known in advance, so differences between samples add no variance.
    Subtracting the differences leaves the overall mean unchanged.
    """
    assert plan.dealt is not None  # noqa: S101  (for the type checker: there are samples)
    assert plan.samples is not None  # noqa: S101  (for the type checker: there are samples)
    sample = (
        plan.samples.of[joint(plan.axes[plan.dealt], columns)] + 1
    )  # samples that no truth gives come first
    sizes = np.bincount(sample, weights)
    sums = np.bincount(sample, weights * gains)
    means = np.divide(sums, sizes, out=np.zeros_like(sums), where=sizes > 0)
    return np.asarray((means - sums.sum() / max(sizes.sum(), 1e-300))[sample])


def indicators_of(records: Records, over: Sequence[str]) -> Floats:
    """Return each record's contribution to each cell of the table of `over`.

    The result has the shape (records, cells in C order).

    Formula: w_r Π G[x̃_r, x] over the groups disguised together, so that columns sum to the unbiased counts.
    """
    query = Query(by=tuple(over))
    query.check(records.schema)
    raise_refusals(records.check([query]))
    size = prod(records.schema.shape(over))
    if size * records.n > MOST_EVALUATIONS:
        raise InputError(
            f"{records.n:,} records of {size:,} cells do not fit into memory: query fewer cells."
        )
    result = np.empty((records.n, size))
    for groups, rows in strata(records):
        plan = QueryLayout(groups, records.schema).plan(query)
        columns = {name: records.codes[name][rows] for name in plan.columns}
        plan = settle_plan(plan, columns, None if records.weights is None else records.weights[rows])
        count = records.n if isinstance(rows, slice) else len(rows)
        gains = np.ones((count, 1))
        places: list[int] = []
        for axis in plan.axes:
            own = joint(axis, columns)
            matrix = np.eye(cells(axis)) if axis.map.matrix is None else axis.map.matrix
            gains = (gains[:, :, None] * matrix[own][:, None, :]).reshape(count, -1)
            places += axis.map.axes
        shape = [records.schema.shape(over)[place] for place in places]
        turned = np.moveaxis(gains.reshape(count, *shape), range(1, len(places) + 1), [1 + p for p in places])
        result[rows] = turned.reshape(count, -1)
    return result if records.weights is None else result * records.weights[:, None]


def settle_plan(plan: QueryPlan, columns: dict[str, NDArray[Any]], weights: Floats | None) -> QueryPlan:
    """Return the plan for these records, given the number of records that were dealt each block."""
    if plan.census is None:
        return plan
    (block,) = plan.census.columns
    (dealt,) = plan.census.observed_shape
    return plan.settle(np.bincount(columns[block], weights, minlength=dealt).astype(np.float64))


def strata(records: Records) -> Iterator[tuple[tuple[Group, ...], Any]]:
    """Yield the groups of each stratum, and the rows of its records."""
    policy = records.policy
    if policy.stratum_variable is None:
        yield policy.groups, slice(None)
        return
    for code, label in enumerate(policy.strata):
        yield policy.groups_of(label), np.flatnonzero(records.codes[policy.stratum_variable] == code)


def _weighted_mean(values: Floats, weights: Floats | None) -> RecordMean:
    """Return the weighted mean and its standard error.

    Unseen values are assumed to be in the smallest interval that contains all seen values, 0 and 1.
    """
    n = len(values)
    own = np.ones(n) if weights is None else weights
    total = float(own.sum())
    if total <= 0:
        raise InputError("The mean over records that all have weight 0 is undefined.")
    mean = float(own @ values) / total
    gaps = own * (values - mean)
    weight = float(own @ own) / total
    ends = (
        np.asarray(min(float(gaps.min()), -mean * weight)),
        np.asarray(max(float(gaps.max()), (1 - mean) * weight)),
    )
    sums = [np.asarray(np.sum(gaps**power)) for power in (2, 3, 4)]
    spread = ReportSpread.of(np.zeros(()), sums, [ends], given=np.zeros(()), n=n, weight=weight)
    stderr = float(np.sqrt(spread.variance)) / total
    return RecordMean(mean, stderr, spread, total)


@dataclass(frozen=True, slots=True)
class _Split:
    """Records by distinct clear combinations, and joint reports of the disguised variables."""

    clear: tuple[Axis, ...]
    hidden: tuple[Axis, ...]
    distinct: Truths  # clear combinations × clear axes, codes
    member: Truths  # index of a record's combination
    reports: tuple[Truths, ...]  # joint report code of a record, for each hidden axis

    @property
    def truths(self) -> int:
        return prod(cells(axis) for axis in self.hidden)


def _values_of(
    plan: QueryPlan,
    columns: dict[str, NDArray[Any]],
    rows: int,
    f: Function,
    *,
    generator: np.random.Generator,
    draws: int,
) -> Floats:
    """Return g of every record: exact if there are few truths, else by signed draws."""
    split = _split_of(plan, columns, rows)
    if split.truths <= MOST_TRUTHS and split.truths * len(split.distinct) <= MOST_EVALUATIONS:
        return _exact_values(split, f, rows)
    return _draw_values(split, f, generator, draws)


def cells(axis: Axis) -> int:
    """Return the number of truths that an axis distinguishes."""
    return prod(axis.truth_sizes[place] for place in axis.asked)


def _split_of(plan: QueryPlan, columns: dict[str, NDArray[Any]], rows: int) -> _Split:
    """Separate undisguised axes, whose truth is known, from disguised axes."""
    clear = tuple(axis for axis in plan.axes if axis.map.matrix is None)
    hidden = tuple(axis for axis in plan.axes if axis.map.matrix is not None)
    codes = [joint(axis, columns) for axis in clear]
    member = np.zeros(rows, dtype=np.intp)
    first = np.zeros(1, dtype=np.intp)
    for axis, own in zip(clear, codes, strict=True):
        _, first, member = np.unique(member * prod(axis.sizes) + own, return_index=True, return_inverse=True)
    distinct = np.empty((len(first), len(clear)), dtype=np.intp)
    for place, own in enumerate(codes):
        distinct[:, place] = own[first]
    return _Split(clear, hidden, distinct, member, tuple(joint(axis, columns) for axis in hidden))


def joint(axis: Axis, columns: dict[str, NDArray[Any]]) -> Truths:
    """Return the joint report code of the columns of an axis."""
    codes = np.ravel_multi_index([columns[name] for name in axis.columns], axis.sizes)
    return np.asarray(
        codes if axis.sampled_channel is None else axis.sampled_channel.lump[codes], dtype=np.intp
    )


def _exact_values(split: _Split, f: Function, rows: int) -> Floats:
    """Return g of every record, from f at every possible truth."""
    shape = [cells(axis) for axis in split.hidden]
    observed = [len(_matrix_of(axis)) for axis in split.hidden]
    truths = [codes.ravel() for codes in np.indices(shape)] if shape else []
    undo = [np.ascontiguousarray(_matrix_of(axis).T) for axis in split.hidden]
    step = max(1, CHUNK // max(split.truths, prod(observed)))
    order = np.argsort(split.member, kind="stable")
    ends = np.searchsorted(split.member[order], np.arange(len(split.distinct) + 1))
    result = np.empty(rows)
    for start in range(0, len(split.distinct), step):
        here = split.distinct[start : start + step]
        known = [np.repeat(column, split.truths) for column in here.T]
        values = evaluate(split, f, known, [np.tile(codes, len(here)) for codes in truths])
        table = contract(values.reshape(len(here), *shape), [None, *undo])
        chosen = order[ends[start] : ends[start + len(here)]]
        result[chosen] = table[
            (split.member[chosen] - start, *(reports[chosen] for reports in split.reports))
        ]
    return result


def _draw_values(split: _Split, f: Function, generator: np.random.Generator, draws: int) -> Floats:
    """Return an unbiased estimate of g for every record: the mean over signed draws of its truth.

    Formula: x drawn with probability |G[x̃, x]|/‖G[x̃]‖₁ counts f(x)·sign(G[x̃, x])·‖G[x̃]‖₁, axis by axis.
    """
    rows = len(split.member)
    total = np.zeros(rows)
    known = list(split.distinct[split.member].T)
    samplers = [_Sampler.of(_matrix_of(axis)) for axis in split.hidden]
    for _ in range(draws):
        weight = np.ones(rows)
        truths = []
        for sampler, reports in zip(samplers, split.reports, strict=True):
            codes, signed = sampler.draw(reports, generator.random(rows))
            truths.append(codes)
            weight *= signed
        total += weight * evaluate(split, f, known, truths)
    return total / draws


@dataclass(frozen=True, slots=True)
class _Sampler:
    """Sampler of truths in proportion to |G|.

    Row i of `steps` is shifted by i, so that one search serves all rows.
    """

    steps: Floats
    signed: Floats

    @classmethod
    def of(cls, matrix: Floats) -> _Sampler:
        size = np.abs(matrix)
        steps = np.cumsum(size, axis=1) / size.sum(axis=1, keepdims=True)
        steps[:, -1] = 1.0
        return cls(
            (steps + np.arange(len(matrix))[:, None]).ravel(),
            np.sign(matrix) * size.sum(axis=1, keepdims=True),
        )

    def draw(self, reports: Truths, uniform: Floats) -> tuple[Truths, Floats]:
        """Return a truth for every report, and its weight."""
        width = self.signed.shape[1]
        found = np.searchsorted(self.steps, reports + uniform, side="right") - reports * width
        codes = np.minimum(found, width - 1)
        return codes, self.signed[reports, codes]


def _matrix_of(axis: Axis) -> Floats:
    assert axis.map.matrix is not None  # noqa: S101  (for the type checker: clear axes are kept apart)
    return axis.map.matrix


def evaluate(split: _Split, f: Function, known: Sequence[Truths], truths: Sequence[Truths]) -> Floats:
    """Return f at joint codes of the axes, converted to columns in the order of the query."""
    width = sum(len(axis.asked) for axis in (*split.clear, *split.hidden))
    codes = np.empty((len((*known, *truths)[0]) if known or truths else 1, width), dtype=np.intp)
    for axis, own in zip((*split.clear, *split.hidden), (*known, *truths), strict=True):
        sizes = [axis.truth_sizes[place] for place in axis.asked]
        for position, column in zip(axis.map.axes, np.unravel_index(own, sizes), strict=True):
            codes[:, position] = column
    values = np.asarray(f(codes), dtype=np.float64)
    if values.shape != (len(codes),) or not np.isfinite(values).all():
        raise InputError(f"The function must return {len(codes):,} finite numbers, one per row.")
    return values
