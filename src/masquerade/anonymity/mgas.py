"""MGAS: group numbers until every group has enough records and a large enough span (Ma 2006, §2.3).

The data owner groups numbers before they are disguised. The groups are then part of a policy, which is
public. Since they are computed from data, **edges, means and counts are themselves a release**: every mean
is over at least `k_min` records, but no bound such as γ covers it. If this is not acceptable, compute the
groups from other data (a public sample, last year's records) or choose round cut points by hand.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError, MasqueradeWarning
from masquerade.core.util.formatting import printable
from masquerade.kernels.jit import compiled

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Place = int | np.integer[Any]
MOST_POINTS = 20_000
LARGEST = 1e150  # squares and differences stay finite
LABEL_DIGITS = 15  # significant digits in the label of a bin


@dataclass(frozen=True, slots=True, eq=False)
class Bins:
    """Groups (bins) of a numeric variable.

    Attributes
    ----------
    edges : ndarray
        Group k contains [edges[k], edges[k+1]); the last group also contains its upper edge.
    means : ndarray
        Mean of each group.
    counts : ndarray of int
        Number of records in each group.

    Examples
    --------
    >>> bins = mq.anonymity.mgas([18, 19, 20, 40, 41, 42], k_min=3, g=2)
    >>> bins.edges.tolist(), bins.counts.tolist()
    ([18.0, 30.0, 42.0], [3, 3])
    >>> bins.policy_bins(0, 120)
    [0.0, 30.0, 120.0]
    """

    edges: Floats
    means: Floats
    counts: Ints

    def __len__(self) -> int:
        """Return the number of groups."""
        return len(self.means)

    def replace_by_order(self, values: ArrayLike) -> NDArray[np.intp]:
        """Return the index of every value's group, 0 for the lowest, for models that need only counts."""
        numbers = finite_array(values, 1)
        outside = np.flatnonzero((numbers < self.edges[0]) | (numbers > self.edges[-1]))
        if outside.size:
            raise InputError(f"The value in row {outside[0] + 1} is outside the bins.")
        return np.minimum(np.searchsorted(self.edges, numbers, side="right") - 1, len(self) - 1)

    def replace_by_mean(self, values: ArrayLike) -> Floats:
        """Return the mean of every value's group, for models that compute with numbers."""
        return np.asarray(self.means[self.replace_by_order(values)])

    def policy_bins(self, low: float | None = None, high: float | None = None) -> list[float]:
        """Return the cut points for `bins:` of a policy.

        A value outside the bins is refused when records are disguised, so pass limits that later data will
        not exceed.

        Parameters
        ----------
        low : float, optional
            Public lower limit, used instead of the first edge.
        high : float, optional
            Public upper limit, used instead of the last edge.

        Returns
        -------
        list of float
            Cut points.

        Raises
        ------
        InputError
            If the limits do not enclose the bins.
        """
        cuts = [float(edge) for edge in self.edges]
        cuts[0], cuts[-1] = cuts[0] if low is None else float(low), cuts[-1] if high is None else float(high)
        if not (cuts[0] <= self.edges[0] and cuts[-1] >= self.edges[-1]):
            raise InputError(
                f"The limits must enclose the bins, from {self.edges[0]:g} to {self.edges[-1]:g}. "
                f"Got {cuts[0]:g} and {cuts[-1]:g} instead."
            )
        return cuts

    @printable
    def summary(self) -> str:
        """Return the groups as text."""
        rows = [f"{'from':>14} {'to':>14} {'mean':>14} {'records':>12}"]
        for low, high, mean, count in zip(self.edges, self.edges[1:], self.means, self.counts, strict=False):
            rows.append(f"{low:>14.6g} {high:>14.6g} {mean:>14.6g} {count:>12,}")
        return "\n".join(rows)


@dataclass(frozen=True, slots=True, eq=False)
class RecordGroups:
    """Groups of records that have several numbers.

    Attributes
    ----------
    labels : ndarray of int
        Group of every record.
    means : ndarray
        Mean of each group: one row per group, one column per number.
    counts : ndarray of int
        Number of records in each group.

    Examples
    --------
    >>> groups = mq.anonymity.mgas_groups([[18, 1], [19, 1], [40, 3], [41, 3]], k_min=2, g=0)
    >>> groups.labels.tolist(), groups.means.tolist()
    ([0, 0, 1, 1], [[18.5, 1.0], [40.5, 3.0]])
    """

    labels: NDArray[np.intp]
    means: Floats
    counts: Ints

    def __len__(self) -> int:
        """Return the number of groups."""
        return len(self.means)

    def replace_by_order(self) -> NDArray[np.intp]:
        """Return the group of every record, numbered by its first record in lexicographic order."""
        return self.labels

    def replace_by_mean(self) -> Floats:
        """Return every record replaced by the mean of its group."""
        return np.asarray(self.means[self.labels])

    def nearest(self, rows: ArrayLike) -> NDArray[np.intp]:
        """Return, for each of the given records, the group with the nearest mean."""
        numbers = finite_array(rows, 2)
        if numbers.shape[1] != self.means.shape[1]:
            raise InputError(
                f"The groups have {self.means.shape[1]} columns. Got {numbers.shape[1]} instead."
            )
        found = np.empty(len(numbers), dtype=np.intp)
        for start in range(0, len(numbers), 4096):
            block = numbers[start : start + 4096]
            found[start : start + 4096] = ((block[:, None] - self.means) ** 2).sum(axis=2).argmin(axis=1)
        return found


def mgas(values: ArrayLike, k_min: int, g: float) -> Bins:
    """Group numbers by merging neighbours until groups have ≥ `k_min` records and a span ≥ `g`.

    The span of a group is its largest minus its smallest value. An edge between two groups is the shortest
    decimal number between them. The outer edges are rounded outward, so that they need not be a person's
    value. All results are computed from data and are therefore a release themselves: no bound such as γ
    covers them.

    Parameters
    ----------
    values : array_like of float
        Numbers to group.
    k_min : int
        Smallest number of records in a group.
    g : float
        Smallest span of a group.

    Returns
    -------
    Bins
        Edges, means and counts of the groups.

    Raises
    ------
    InputError
        If a value is missing or not a number, or there are fewer than `k_min` values.

    Notes
    -----
    Formula: start with one group per distinct value. Merge the two neighbouring groups whose means are
    closest (of ties, the leftmost pair). A group that meets both requirements is finished. A group whose
    neighbours are all finished joins the neighbour with the nearer mean. Data that span less than `g` form
    one group, with a warning.
    Reference: Ma (2006), §2.3, which does not specify the linkage (here: distance of means) and the last
    step.
    Cost: one sort, then O(n): merging only increases gaps between means, so any pair that is closer than both
    neighbouring pairs may be merged immediately, in any order.
    Error: exact, deterministic.

    Examples
    --------
    >>> mq.anonymity.mgas([18, 19, 20, 40, 41, 42], k_min=3, g=2).counts.tolist()
    [3, 3]
    """
    numbers = finite_array(values, 1)
    _check_requirements(len(numbers), k_min, np.array([g], dtype=float))
    points, counts = np.unique(numbers, return_counts=True)
    starts, means, sizes = _merged_neighbours(points, counts.astype(np.int64), k_min, float(g))
    _warn_if_narrow(np.array([points[-1] - points[0]]), np.array([g], dtype=float))
    lows, highs = points[starts], points[np.append(starts[1:], len(points)) - 1]
    inner = cuts_between(highs[:-1], lows[1:])
    first, last = _outer_edges(lows, highs, float(g))
    if inner.size and inner[-1] == last:  # adjacent floats: there is no number between the last two groups
        last = math.nextafter(last, math.inf)
    return Bins(np.array([first, *inner, last]), np.clip(means, lows, highs), sizes)


def mgas_groups(rows: ArrayLike, k_min: int, g: float | Sequence[float]) -> RecordGroups:
    """Group records until groups have ≥ `k_min` records and a span ≥ `g` in every column.

    Distances are Euclidean in the given units: scale the columns to comparable units first. The result is a
    release: see `mgas`.

    Parameters
    ----------
    rows : array_like of float
        Records: one row per record, one column per number.
    k_min : int
        Least number of records in a group.
    g : float or sequence of float
        Least span, for all columns or one per column (0 for no requirement).

    Returns
    -------
    RecordGroups
        Group of every record, and the means and counts of the groups.

    Raises
    ------
    InputError
        If a value is missing or not a number, or there are more than 20,000 distinct records.

    Notes
    -----
    Formula: as `mgas`, over all pairs of unfinished groups; a last unfinished group joins the nearest other.
    Reference: Ma (2006), §2.3.
    Cost: O(m²) distances for m distinct records, at most 20,000.
    Error: exact, deterministic: of equally close pairs, the first in lexicographic order of the records is
    merged.

    Examples
    --------
    >>> groups = mq.anonymity.mgas_groups([[18, 1], [19, 1], [40, 3], [41, 3]], k_min=2, g=0)
    >>> groups.counts.tolist()
    [2, 2]
    """
    numbers = finite_array(rows, 2)
    columns = numbers.shape[1]
    spans = (
        np.broadcast_to(np.asarray(g, dtype=float), (columns,)) if np.ndim(g) == 0 else np.asarray(g, float)
    )
    if spans.shape != (columns,) or columns == 0:
        raise InputError(f"'g' must be one number or one for each of the {columns} columns.")
    _check_requirements(len(numbers), k_min, spans)
    points, inverse, counts = np.unique(numbers, axis=0, return_inverse=True, return_counts=True)
    if len(points) > MOST_POINTS:
        raise InputError(
            f"Grouping several columns compares all pairs of {len(points):,} distinct records (at most "
            f"{MOST_POINTS:,}). Round the columns first, or group each alone with mgas()."
        )
    _warn_if_narrow(np.ptp(points, axis=0), spans)
    owner = _merged_pairs(points, counts, k_min, spans)
    heads, order = np.unique(owner, return_inverse=True)
    sizes = np.bincount(order, weights=counts).astype(np.int64)
    means = np.stack(
        [np.bincount(order, weights=counts * column) / sizes for column in points.T], axis=1
    ).reshape(len(heads), columns)
    return RecordGroups(order[inverse.ravel()].astype(np.intp), means, sizes)


def cuts_between(lows: Floats, highs: Floats) -> Floats:
    """Return the shortest decimal near the middle of each pair, or the higher value if none is in between.

    >>> cuts_between(np.array([3.1, 0.9]), np.array([3.2, 1.3])).tolist()
    [3.15, 1.0]
    """
    middle = lows / 2 + highs / 2
    size = np.floor(np.log10(np.maximum(np.abs(middle), np.finfo(float).tiny))).astype(int)
    cuts, open_ = highs.copy(), np.ones(len(lows), dtype=bool)
    for digits in range(1, LABEL_DIGITS + 1):
        places = digits - 1 - size[open_]
        up, down = 10.0 ** np.clip(places, 0, 300), 10.0 ** np.clip(-places, 0, 300)
        tries = np.round(middle[open_] * up / down) / up * down
        good = (lows[open_] < tries) & (tries < highs[open_])
        at = np.flatnonzero(open_)[good]
        cuts[at], open_[at] = tries[good], False
    return cuts


def _outer_edges(lows: Floats, highs: Floats, g: float) -> tuple[float, float]:
    """Return the first and the last edge: the extremes, rounded outward to a multiple of a power of ten.

    The power of ten is at most a tenth of the span of the outermost group.
    """
    first, last = float(lows[0]), float(highs[-1])
    if first == last:  # all values equal: a bin around them
        half = max(g, 1.0) / 2
        return min(first - half, math.nextafter(first, -math.inf)), max(
            last + half, math.nextafter(last, math.inf)
        )
    below, above = _unit(highs[0] - first), _unit(last - lows[-1])
    if below:
        first = min(first, float(f"{math.floor(first / below) * below:.{LABEL_DIGITS}g}"))
    if above:
        last = max(last, float(f"{math.ceil(last / above) * above:.{LABEL_DIGITS}g}"))
    return first, last


def _unit(span: float) -> float:
    """Return the power of ten between a hundredth and a tenth of a span, or 0 for a span of 0."""
    return 10.0 ** (math.floor(math.log10(span)) - 1) if span > 0 else 0.0


def finite_array(values: ArrayLike, dimensions: int) -> Floats:
    """Return numbers as an array with `dimensions` dimensions.

    Raise InputError with the row of a value that is missing or too large.
    """
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("MGAS groups numbers; some of the values are not numbers.") from None
    if numbers.ndim != dimensions:
        raise InputError(
            f"MGAS needs a {dimensions}-dimensional array here. Got {numbers.ndim} dimensions instead."
        )
    wrong = np.argwhere(~(np.abs(numbers) <= LARGEST))
    if len(wrong):
        raise InputError(f"The value in row {wrong[0][0] + 1} is missing or beyond {LARGEST:g}.")
    return numbers


def _check_requirements(n: int, k_min: int, spans: Floats) -> None:
    if isinstance(k_min, bool) or not isinstance(k_min, (int, np.integer)) or k_min < 1:
        raise InputError(
            f"The 'k_min' parameter must be a whole number of at least 1. Got {k_min!r} instead."
        )
    if not (np.all(np.isfinite(spans)) and np.all(spans >= 0)):
        raise InputError(f"The 'g' parameter must be a number of at least 0. Got {spans.tolist()} instead.")
    if n < max(k_min, 1):
        raise InputError(f"{n:,} records cannot make a group of {k_min:,} (k_min).")


def _warn_if_narrow(spans: Floats, wanted: Floats) -> None:
    if np.any(spans < wanted):
        warnings.warn(
            "The records together span less than 'g': they are left as one group.",
            MasqueradeWarning,
            stacklevel=3,
        )


def _merged_neighbours(points: Floats, counts: Ints, k_min: int, g: float) -> tuple[Ints, Floats, Ints]:
    """Return the first index of each group among sorted distinct points, its mean and its record count."""
    means, sizes, highs = points.copy(), counts.copy(), points.copy()
    done = (counts >= k_min) & (g <= 0)
    following = np.append(np.arange(1, len(points), dtype=np.int64), -1)
    previous = np.arange(-1, len(points) - 1, dtype=np.int64)
    for both in (True, False):  # merge unfinished groups first with each other, then with finished groups
        _merge_line(means, sizes, points, highs, done, following, previous, k_min, g, both)
    starts = [0]
    while following[starts[-1]] >= 0:
        starts.append(int(following[starts[-1]]))
    found = np.array(starts, dtype=np.int64)
    return found, means[found], sizes[found]


@compiled
def _gap(i: int, means: Floats, done: Bools, following: Ints, both: bool) -> float:  # noqa: FBT001
    # distance of the means of a group and the next one; infinite if the two may not be merged
    j = following[i]
    if j < 0 or ((done[i] or done[j]) if both else (done[i] and done[j])):
        return np.inf
    return means[j] - means[i]  # type: ignore[no-any-return]


@compiled
def _merge_line(  # noqa: PLR0917
    means: Floats,
    sizes: Ints,
    lows: Floats,
    highs: Floats,
    done: Bools,
    following: Ints,
    previous: Ints,
    k_min: int,
    g: float,
    both: bool,  # noqa: FBT001
) -> None:
    # Follow decreasing gaps, and merge at a gap that is smaller than both neighbouring gaps. Left of the
    # current index, gaps decrease strictly or may not be closed. So except for one or two steps after a
    # merge, the index only increases: linear time.
    i = 0
    while True:
        here = _gap(i, means, done, following, both)
        left = _gap(previous[i], means, done, following, both) if previous[i] >= 0 else np.inf
        j = following[i]
        if left < np.inf and left <= here:
            i = previous[i]
        elif j < 0:
            return
        elif here == np.inf or _gap(j, means, done, following, both) < here:
            i = j
        else:
            means[i] += (means[j] - means[i]) * (sizes[j] / (sizes[i] + sizes[j]))
            sizes[i] += sizes[j]
            highs[i] = highs[j]
            done[i] = done[i] or done[j] or (sizes[i] >= k_min and highs[i] - lows[i] >= g)
            following[i] = following[j]
            if following[j] >= 0:
                previous[following[j]] = i
            if previous[i] >= 0:  # a group that is now finished may forbid merging with the group on its left
                i = previous[i]


def _merged_pairs(points: Floats, counts: Ints, k_min: int, spans: Floats) -> Ints:
    """Return for every distinct point the first point of its group."""
    owner = np.arange(len(points), dtype=np.int64)
    sizes = counts.astype(np.int64)
    done = (sizes >= k_min) & bool(np.all(spans <= 0))
    means = points.copy()
    _merge_all(means, sizes, points.copy(), points.copy(), done, owner, k_min, spans)
    alone = np.flatnonzero((owner == np.arange(len(owner))) & ~done)
    if alone.size and done.any():  # a single unfinished group is left: it joins the nearest finished group
        other = _nearest(alone[0], means, done)[0]
        owner[max(alone[0], other)] = min(alone[0], other)
    while np.any(owner[owner] != owner):
        owner = owner[owner]
    return owner


@compiled
def _distance(i: Place, k: Place, means: Floats) -> float:
    total = 0.0
    for c in range(means.shape[1]):
        total += (means[k, c] - means[i, c]) ** 2
    return total


@compiled
def _nearest(i: Place, means: Floats, pool: Bools) -> tuple[int, float]:
    # the group of the pool that is nearest to group i (the first of equals), and its squared distance
    best, where = np.inf, -1
    for k in range(len(means)):
        if pool[k] and k != i:
            distance = _distance(i, k, means)
            if distance < best:
                best, where = distance, k
    return where, best


@compiled
def _join(  # noqa: PLR0917
    i: Place, j: Place, means: Floats, sizes: Ints, lows: Floats, highs: Floats, k_min: int, spans: Floats
) -> bool:
    # merge group j into group i; return True if the result meets the requirements
    enough = sizes[i] + sizes[j] >= k_min
    for c in range(means.shape[1]):
        means[i, c] += (means[j, c] - means[i, c]) * (sizes[j] / (sizes[i] + sizes[j]))
        lows[i, c] = min(lows[i, c], lows[j, c])
        highs[i, c] = max(highs[i, c], highs[j, c])
        enough = enough and highs[i, c] - lows[i, c] >= spans[c]
    sizes[i] += sizes[j]
    return bool(enough)


@compiled
def _merge_all(  # noqa: PLR0917
    means: Floats,
    sizes: Ints,
    lows: Floats,
    highs: Floats,
    done: Bools,
    owner: Ints,
    k_min: int,
    spans: Floats,
) -> None:
    # Every open group stores its nearest open group; a merge changes that for few of them.
    m = len(sizes)
    pool = ~done
    nearest, gap = np.full(m, -1), np.full(m, np.inf)
    for i in np.flatnonzero(pool):
        nearest[i], gap[i] = _nearest(i, means, pool)
    while np.min(gap) < np.inf:
        i = np.argmin(gap)
        j = nearest[i]
        done[i] = _join(i, j, means, sizes, lows, highs, k_min, spans)
        owner[j], pool[j], gap[j] = i, False, np.inf
        if done[i]:
            pool[i], gap[i] = False, np.inf
        for k in np.flatnonzero(pool):
            if k == i or nearest[k] in (i, j):
                nearest[k], gap[k] = _nearest(k, means, pool)
            elif pool[i]:
                distance = _distance(i, k, means)
                if distance < gap[k] or (distance == gap[k] and i < nearest[k]):
                    nearest[k], gap[k] = i, distance
