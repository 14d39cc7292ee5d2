"""Pooling of samples of one population that were disguised in different ways."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import prod

import numpy as np

from masquerade.core.axes import AxisMap, AxisMaps, Floats
from masquerade.core.evidence import TableReduction
from masquerade.core.linear_covariance import CovariancePart, LinearCovariance
from masquerade.estimate.em import maximum_likelihood
from masquerade.estimate.reports import Reports

# most entries of the joint channel of the variables that are disguised in different ways
MOST_ENTRIES = 2**23
MOST_TRUTHS = 2048  # most combinations of the categories of those variables
SAME = 1e-11  # singular values below this share of the largest count as 0
LEAST = 0.5  # minimum count of each truth, so that no report has probability 0
WELL_EXPECTED = 5.0  # cells with fewer expected reports are omitted from the test of agreement


@dataclass(frozen=True, slots=True)
class PooledReports:
    """The reports of all samples as one table, and the estimated counts of all records.

    `agreement` is the p-value of the hypothesis that the samples come from one population.
    """

    reports: Reports
    values: Floats
    covariance: LinearCovariance
    agreement: float


def add_reports(samples: Sequence[Reports | None]) -> Reports | None:
    """Return the summed reports of all samples; None unless all exist and have the same channels.

    Samples dealt in the same blocks are summed, too, if only the sizes of the blocks differ.
    """
    first, *others = samples
    for each in others:
        if first is None or each is None or _question(each) != _question(first):
            return None
        if not all(map(_same, each.channels, first.channels)):
            return _add_dealt([each for each in samples if each is not None], len(samples))
    if first is None:
        return None
    every = [each for each in samples if each is not None]
    observed = reduce(np.add, [each.observed for each in every])
    return replace(first, observed=observed, squares=_add_squares(every))


def _add_squares(samples: Sequence[Reports]) -> Floats | None:
    squares = [each.squares for each in samples if each.squares is not None]
    return np.asarray(reduce(np.add, squares)) if squares else None


def _add_dealt(samples: Sequence[Reports], number: int) -> Reports | None:
    """Return samples dealt in the same blocks, of different sizes, as one sample; None for other samples."""
    first = samples[0]
    if len(samples) < number or any(_question(each) != _question(first) for each in samples):
        return None
    counts = [float(each.observed.sum()) for each in samples]
    dealt = [each.dealt for each in samples if each.dealt is not None]
    if len(dealt) < number or any(
        each.axis != dealt[0].axis or not np.array_equal(each.of, dealt[0].of) for each in dealt
    ):
        return None
    axis = dealt[0].axis
    apart = [P for each in samples if (P := each.channels[axis]) is not None]
    alike = all(_same_shares(P, apart[0]) for P in apart) and all(
        all(map(_same, each.channels[:axis], first.channels[:axis]))
        and all(map(_same, each.channels[axis + 1 :], first.channels[axis + 1 :]))
        for each in samples
    )
    if not alike:
        return None
    mean = np.asarray(reduce(np.add, [n * P for n, P in zip(counts, apart, strict=True)]) / sum(counts))
    channels = (*first.channels[:axis], mean, *first.channels[axis + 1 :])
    sizes = np.asarray(reduce(np.add, [each.sizes for each in dealt]))
    return replace(
        first,
        observed=reduce(np.add, [each.observed for each in samples]),
        channels=channels,
        samples=int(np.count_nonzero(sizes)),
        squares=_add_squares(samples),
        dealt=replace(dealt[0], sizes=sizes),
    )


def _same_shares(one: Floats, other: Floats) -> bool:
    """Return True if reports imply the same likelihood of truths, up to the sizes of their samples."""
    if one.shape != other.shape:
        return False
    first, second = one.sum(axis=0), other.sum(axis=0)
    return bool(np.allclose(one * second, other * first, rtol=1e-9, atol=0.0))


def pool_reports(samples: Sequence[Reports]) -> PooledReports | None:
    """Return samples of one population as one sample; None if queries differ or the system is too large.

    Formula: a record of the pool is in sample i with probability n_i/n, whatever its truth. So the pool went
    through the channel A = (n_1/n·A_1, n_2/n·A_2, …), whose reports also identify the sample, and its
    likelihood is the product of the samples' likelihoods. The estimate inverts A by G = W Aᵀ(A W Aᵀ)⁻¹, W =
    diag(1/q), where q are the expected reports at the most likely truths. It is unbiased for any W, and this
    W minimizes the variance among linear estimates. Variables that all samples disguise in the same way keep
    their own channels.
    Reference: Rao (1973) §4a for weighted least squares; Cochran (1937) for samples of unequal precision.
    Cost: O(truths³) over the variables that samples disguise in different ways.
    """
    first = samples[0]
    if any((each.truths, each.reduction) != (first.truths, first.reduction) for each in samples[1:]):
        return None
    if first.reduction.among:
        return None
    if any(each.latent != first.latent for each in samples[1:]):
        samples = [_one_group(each) for each in samples]
        first = samples[0]
    groups = first.groups
    alike = [all(_same(each.channels[g], P) for each in samples) for g, P in enumerate(first.channels)]
    shared = [g for g, same in enumerate(alike) if same]
    apart = [g for g, same in enumerate(alike) if not same]
    truths = prod(first.latent[g] for g in apart)
    entries = sum(truths * prod(each.observed.shape[g] for g in apart) for each in samples)
    if truths > MOST_TRUTHS or entries > MOST_ENTRIES:
        return None
    n = sum(float(each.observed.sum()) for each in samples)
    channel = np.hstack([_channel(each, apart) * (float(each.observed.sum()) / n) for each in samples])
    tables = [each.observed.transpose([*shared, *apart]) for each in samples]
    observed = np.concatenate([table.reshape(*table.shape[: len(shared)], -1) for table in tables], axis=-1)
    order = [axis for g in [*shared, *apart] for axis in groups[g]]
    keep = tuple(order.index(axis) for axis in first.reduction.keep)
    at = tuple(sorted((order.index(axis), code) for axis, code in first.reduction.at))
    channels = (*(first.channels[g] for g in shared), channel)
    lossy = any(each.told is not None for each in samples)
    sizes = tuple(first.truths[axis] for axis in order)
    held = sum(each.samples for each in samples)
    told = prod(int(np.linalg.matrix_rank(P, rtol=SAME)) for P in channels if P is not None and lossy)
    told *= prod(size for P, size in zip(channels, observed.shape, strict=True) if P is None)
    reports = Reports(
        observed, channels, sizes, TableReduction(keep, at), samples=held, told=told if lossy else None
    )
    variables = [*(len(groups[g]) for g in shared), sum(len(groups[g]) for g in apart)]
    margins = [
        observed.sum(axis=tuple(j for j in range(observed.ndim) if j != i)) for i in range(observed.ndim)
    ]
    expected = [_expected_reports(margin, P) for margin, P in zip(margins, channels, strict=True)]
    maps = _maps(reports, variables, expected)
    values = maps.apply(observed)
    covariance = LinearCovariance((CovariancePart(observed, maps),), values, values, round(n))
    rank = int(np.linalg.matrix_rank(channel, rtol=SAME)) if lossy else truths
    freedom = channel.shape[1] - held - (rank - 1)
    return PooledReports(reports, values, covariance, _tail(margins[-1], expected[-1], freedom))


def _question(sample: Reports) -> tuple[object, ...]:
    return sample.truths, sample.reduction, sample.latent, sample.weight, sample.squares is None


def _one_group(sample: Reports) -> Reports:
    channel = _channel(sample, range(sample.observed.ndim))
    return replace(sample, observed=sample.observed.ravel(), channels=(channel,))


def _channel(sample: Reports, groups: Sequence[int]) -> Floats:
    matrices = [sample.channels[g] for g in groups]
    written = [np.eye(sample.latent[g]) if P is None else P for g, P in zip(groups, matrices, strict=True)]
    joint = np.ones((1, 1))
    for matrix in written:
        joint = np.asarray(np.kron(joint, matrix))
    return joint


def _same(one: Floats | None, other: Floats | None) -> bool:
    return one is other or (one is not None and other is not None and np.array_equal(one, other))


def _expected_reports(margin: Floats, channel: Floats | None) -> Floats:
    """Return the expected reports of one group at its most likely truths."""
    if channel is None:
        return margin
    likely = np.maximum(maximum_likelihood(margin, (channel,)).counts, LEAST)
    return np.asarray(likely @ channel * (margin.sum() / likely.sum()))


def _maps(reports: Reports, variables: Sequence[int], expected: Sequence[Floats]) -> AxisMaps:
    """Return the maps from reports to the queried table, group by group."""
    keep, at = reports.reduction.keep, dict(reports.reduction.at)
    lossy = reports.told is not None
    maps: list[AxisMap] = []
    start = 0
    for P, count, q in zip(reports.channels, variables, expected, strict=True):
        axes = range(start, start + count)
        start += count
        places = tuple(keep.index(axis) for axis in axes if axis in keep)
        if P is None and len(places) == count:
            maps.append(AxisMap(places, None))
            continue
        sizes = [reports.truths[axis] for axis in axes]
        inverse = np.eye(prod(sizes)) if P is None else _inverse(P, q, lossy=lossy)
        cells = inverse.reshape(-1, *sizes)[(slice(None), *(at.get(axis, slice(None)) for axis in axes))]
        left = [axis for axis in axes if axis not in at]
        cells = cells.sum(axis=tuple(1 + i for i, axis in enumerate(left) if axis not in keep))
        maps.append(AxisMap(places, cells.reshape(len(inverse), -1)))
    shape = reports.reduction.apply(np.empty(reports.truths)).shape
    return AxisMaps(shape, tuple(maps))


def _inverse(channel: Floats, expected: Floats, *, lossy: bool) -> Floats:
    weighted = np.divide(channel, expected, out=np.zeros_like(channel), where=expected > 0)
    if lossy:
        root = np.sqrt(np.where(expected > 0, expected, 1.0))
        return np.asarray(np.linalg.pinv(channel / root, rcond=SAME) / root[:, None])
    return np.asarray(np.linalg.solve(weighted @ channel.T, weighted).T)


def _tail(observed: Floats, expected: Floats, freedom: int) -> float:
    from scipy.special import chdtrc  # noqa: PLC0415  (scipy is slow to import)

    usual = expected >= WELL_EXPECTED
    freedom -= int(np.count_nonzero(~usual))
    if freedom < 1:
        return 1.0
    statistic = float(np.sum((observed[usual] - expected[usual]) ** 2 / expected[usual]))
    return float(chdtrc(freedom, statistic))
