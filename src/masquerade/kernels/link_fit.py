"""Compiled fits of links: is a child independent of a new parent, given the other parents?

Tables are concatenated in flat arrays, each in C order over (other parents …, new parent, child). The channel
of an axis is clear, even (a·x + b·Σx, one pass over the table) or a general matrix.
"""

from typing import Final, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from masquerade.kernels.jit import compiled

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CLEAR: Final = 0
EVEN: Final = 1
MATRIX: Final = 2
# directions through a channel; typed, because each value of a plain constant would be compiled separately
_THERE: Final = cast("int", np.int64(0))
_BACK: Final = cast("int", np.int64(1))
_INVERSE: Final = cast("int", np.int64(2))
_ONE: Final = cast("int", np.int64(1))

_LEAST: Final = 1e-3  # starting margins are at least this share of a uniform margin: EM cannot leave a zero
_LEVEL: Final = 0.7  # the second start moves this far towards margins that do not depend on the parents
_VANISHED: Final = 1e-13  # parameters below this share of the records are not extrapolated
_FAR: Final = 12.0  # maximum change of a parameter's logarithm in one extrapolation
_SLOW: Final = 1e4  # largest number of steps assumed to remain in the slowest direction
_CYCLES: Final = 2000
_ROUNDING: Final = 1e-13  # rounding error of a deviance, relative to the number of records


class Links(NamedTuple):
    """Many tables and their channels.

    Axis a of table i has `sizes[i, 0, a]` truths and `sizes[i, 1, a]` reports. The index `way` is the
    direction through its channel: forward, back or inverse. The channel has `scalars[i, way, a]` = (a, b) if
    it is even, or a matrix (before × after) that starts at `entries[starts[i, way, a]]`. The reports and
    truths of table i start at `offsets[0, i]` and `offsets[1, i]`.
    """

    reports: Floats
    offsets: Ints
    axes: Ints
    sizes: Ints
    kinds: Ints
    scalars: Floats
    entries: Floats
    starts: Ints


class LinkFitArrays(NamedTuple):
    """Results of fits, under independence and saturated.

    `deviances` has both deviances by table, and `states` the state (see `fit_links`) and the number of EM
    steps. `expected` has the tables fitted under independence, `likely` the saturated tables.
    """

    deviances: Floats
    states: Ints
    expected: Floats
    likely: Floats


class _Link(NamedTuple):
    observed: Floats
    axes: int
    cells: int
    sizes: Ints
    kinds: Ints
    scalars: Floats
    entries: Floats
    starts: Ints


class _Model(NamedTuple):
    """Numbers of parent configurations, new-parent and child categories; (cells, 0, 0) if saturated."""

    given: int
    parents: int
    children: int


class _Workspace(NamedTuple):
    """Working memory: tables, and parameters of a model."""

    truth: Floats
    x: Floats
    spare: Floats
    sums: Floats
    first: Floats
    second: Floats
    third: Floats
    plain: Floats
    weights: Floats
    another: Floats


@compiled
def _copy(source: Floats, target: Floats, size: int) -> None:
    for i in range(size):
        target[i] = source[i]


@compiled
def _even(x: Floats, shape: tuple[int, int, int], a: float, b: float, sums: Floats) -> None:
    """Replace x by a·x + b·Σx along the middle axis."""
    outer, size, inner = shape
    for o in range(outer):
        base = o * size * inner
        for i in range(inner):
            sums[i] = 0.0
        for k in range(base, base + size * inner, inner):
            for i in range(inner):
                sums[i] += x[k + i]
        for k in range(base, base + size * inner, inner):
            for i in range(inner):
                x[k + i] = a * x[k + i] + b * sums[i]


@compiled
def _matrix(x: Floats, y: Floats, shape: tuple[int, int, int, int], entries: Floats, start: int) -> None:
    """Contract an axis of x with a matrix (before × after, flat from `start`) into y."""
    outer, before, after, inner = shape
    for o in range(outer):
        for m in range(after):
            row = (o * after + m) * inner
            for i in range(inner):
                y[row + i] = 0.0
            for k in range(before):
                weight = entries[start + k * after + m]
                source = (o * before + k) * inner
                for i in range(inner):
                    y[row + i] += weight * x[source + i]


@compiled
def _contract(link: _Link, way: int, work: _Workspace) -> None:
    """Contract each axis of work.x with its channel in the given direction."""
    before = 0 if way == _THERE else 1
    x, spare = work.x, work.spare
    outer = inner = _ONE
    for axis in range(link.axes):
        inner *= link.sizes[before, axis]
    for axis in range(link.axes):
        size, after = link.sizes[before, axis], link.sizes[1 - before, axis]
        inner //= size
        if link.kinds[axis] == EVEN:
            a, b = link.scalars[way, axis, 0], link.scalars[way, axis, 1]
            _even(x, (outer, size, inner), a, b, work.sums)
        elif link.kinds[axis] == MATRIX:
            _matrix(x, spare, (outer, size, after, inner), link.entries, link.starts[way, axis])
            _copy(spare, x, outer * after * inner)
        outer *= after


@compiled
def _total(counts: Floats) -> float:
    total = 0.0
    for i in range(counts.size):
        total += counts[i]
    return total


@compiled
def _deviance(observed: Floats, expected: Floats) -> float:
    """Return 2Σ[Ñ log(Ñ/e) − Ñ + e], a sum of nonnegative terms."""
    total = 0.0
    for i in range(observed.size):
        seen, fitted = observed[i], expected[i]
        if seen > 0.0:
            if fitted <= 1e-200 * seen:
                return np.inf
            total += seen * np.log(seen / fitted) - seen
        total += fitted
    return 2.0 * total


@compiled
def _compose(theta: Floats, model: _Model, truth: Floats) -> float:
    """Fill the table with the model's counts; return their sum."""
    given, parents, children = model
    total = 0.0
    if parents == 0:
        for i in range(given):
            truth[i] = theta[i]
            total += theta[i]
        return total
    other = given * parents
    for j in range(given):
        right = other + j * children
        for z in range(parents):
            left = theta[j * parents + z]
            row = (j * parents + z) * children
            for x in range(children):
                value = left * theta[right + x]
                truth[row + x] = value
                total += value
    return total


@compiled
def _maximize(counts: Floats, model: _Model, theta: Floats, weights: Floats) -> None:
    """Fit the model to clear counts: set theta to M_jz/√M_j and M_jx/√M_j, weights to M_jz and M_jx."""
    given, parents, children = model
    if parents == 0:
        for i in range(given):
            theta[i] = weights[i] = counts[i]
        return
    other = given * parents
    for j in range(given):
        right = other + j * children
        for x in range(children):
            weights[right + x] = 0.0
        total = 0.0
        for z in range(parents):
            row = 0.0
            for x in range(children):
                value = counts[(j * parents + z) * children + x]
                row += value
                weights[right + x] += value
            weights[j * parents + z] = row
            total += row
        scale = 1.0 / np.sqrt(total) if total > 0.0 else 0.0
        for z in range(j * parents, (j + 1) * parents):
            theta[z] = weights[z] * scale
        for x in range(right, right + children):
            theta[x] = weights[x] * scale


@compiled
def _expect(theta: Floats, model: _Model, link: _Link, work: _Workspace) -> None:
    """Write the model's table to work.truth and its expected reports to work.x."""
    _compose(theta, model, work.truth)
    _copy(work.truth, work.x, link.cells)
    _contract(link, _THERE, work)


@compiled
def _em(target: Floats, model: _Model, link: _Link, work: _Workspace) -> None:
    """Take the EM step from the result of `_expect`."""
    observed, x, truth = link.observed, work.x, work.truth
    for i in range(observed.size):
        x[i] = observed[i] / max(x[i], 1e-300) if observed[i] > 0.0 else 0.0
    _contract(link, _BACK, work)
    for i in range(link.cells):
        truth[i] *= x[i]
    _maximize(truth, model, target, work.weights)


@compiled
def _logs(size: int, moving: float, work: _Workspace) -> tuple[float, float]:
    """Convert the second and third point to a log step r and its change v; return their squared lengths."""
    far = bend = 0.0
    first, second, third = work.first, work.second, work.third
    for i in range(size):
        if work.weights[i] > moving and first[i] > 0.0:
            r = np.log(second[i] / first[i])
            v = np.log(third[i] / second[i]) - r
            far += work.weights[i] * r * r
            bend += work.weights[i] * v * v
            second[i], third[i] = r, v
        else:
            first[i] = third[i]
            second[i] = third[i] = 0.0
    return far, bend


@compiled
def _extrapolate(length: float, size: int, n: float, model: _Model, work: _Workspace) -> None:
    """Extrapolate along the steps, and rescale to n records."""
    first = work.first
    for i in range(size):
        move = 2.0 * length * work.second[i] + length * length * work.third[i]
        first[i] *= np.exp(min(max(move, -_FAR), _FAR))
    scale = n / _compose(first, model, work.truth)
    for i in range(model.given * max(model.parents, 1)):
        first[i] *= scale


@compiled
def _climb(
    start: Floats, model: _Model, link: _Link, work: _Workspace, goals: tuple[float, float]
) -> tuple[float, int, int]:
    """Maximize the likelihood from the model's fit to `start`; the most likely table replaces `start`.

    The method is EM with squared extrapolation on the log scale. An extrapolation that is less likely is
    replaced by the plain steps. Return the deviance, a state and the number of EM steps. The state is 1 if
    the fit converged, 0 if it did not within the limit, and −1 if the deviance fell below the threshold and
    the fit was stopped.
    """
    least, tolerance = goals
    first, plain = work.first, work.plain
    size = model.given * max(model.parents + model.children, 1)
    n = _total(link.observed)
    _maximize(start, model, first, work.weights)
    lowest, longest, slowest = np.inf, 4.0, 1.0
    calm, steps, ended = 0, 0, 0
    for _ in range(_CYCLES):
        _expect(first, model, link, work)
        now = _deviance(link.observed, work.x)
        if now > lowest + _ROUNDING * n:
            longest = max(longest / 4.0, 1.0)
            _copy(plain, first, size)
            _expect(first, model, link, work)
            now = _deviance(link.observed, work.x)
            steps += 1
        gained, lowest = lowest - now, now
        if now <= least:
            ended = -1
            break
        _em(work.second, model, link, work)
        _expect(work.second, model, link, work)
        _em(work.third, model, link, work)
        steps += 2
        _copy(work.third, plain, size)
        far, bend = _logs(size, _VANISHED * n, work)
        length = np.sqrt(far / bend) if bend > 0.0 else 1.0
        slowest = max(min(length, _SLOW), 0.5 * slowest)
        # estimate of the missing deviance, as if all directions were as slow as the slowest
        calm = calm + 1 if slowest * far < tolerance and gained < tolerance else 0
        if calm > 1 or far <= _ROUNDING**2 * n:
            ended = 1
            break
        if length >= longest:
            length = longest
            longest *= 4.0
        if length > 1.0:
            _extrapolate(length, size, n, model, work)
        else:
            _copy(plain, first, size)
    _compose(first, model, start)
    return lowest, ended, steps


@compiled
def _raise_to(margin: Floats, begin: int, end: int, least: float) -> float:
    """Raise entries of a margin to a minimum; return their sum."""
    total = 0.0
    for i in range(begin, end):
        margin[i] = max(margin[i], least)
        total += margin[i]
    return total


@compiled
def _start(moment: Floats, model: _Model, certain: tuple[bool, bool, bool], work: _Workspace) -> None:
    """Write starting parameters to work.weights and work.first: margins of an unbiased table, made positive.

    `certain` marks the margins (given; given and parent; given and child) that were not disguised, whose
    zeros are exact.
    """
    given, parents, children = model
    margins = work.weights
    _maximize(moment, model, work.first, margins)
    n = _total(moment)
    for j in range(given):
        rows, columns = j * parents, given * parents + j * children
        total = 0.0
        for z in range(rows, rows + parents):
            total += margins[z]
        total = max(total, 0.0 if certain[0] else _LEAST * n / given)
        left = _raise_to(margins, rows, rows + parents, 0.0 if certain[1] else _LEAST * total / parents)
        least = 0.0 if certain[2] else _LEAST * total / children
        right = _raise_to(margins, columns, columns + children, least)
        for z in range(rows, rows + parents):
            work.first[z] = margins[z] / left * total if left > 0.0 else 0.0
        for x in range(columns, columns + children):
            work.first[x] = margins[x] / right if right > 0.0 else 0.0


@compiled
def _level(model: _Model, work: _Workspace) -> None:
    """Move the distributions of parent and child in each configuration towards their overall average."""
    given, parents, children = model
    first, mean = work.first, work.second
    for i in range(parents + children):
        mean[i] = 0.0
    whole = 0.0
    for j in range(given):
        total = 0.0
        for z in range(parents):
            total += first[j * parents + z]
            mean[z] += first[j * parents + z]
        for x in range(children):
            mean[parents + x] += total * first[given * parents + j * children + x]
        whole += total
        work.third[j] = total
    for j in range(given):
        for z in range(j * parents, (j + 1) * parents):
            own = first[z] / work.third[j] if work.third[j] > 0.0 else 0.0
            first[z] = work.third[j] * (own + _LEVEL * (mean[z - j * parents] / whole - own))
        begin = given * parents + j * children
        for x in range(begin, begin + children):
            first[x] += _LEVEL * (mean[parents + x - begin] / whole - first[x])


@compiled
def _fit(
    link: _Link, work: _Workspace, goals: tuple[float, float], null: Floats, free: Floats
) -> tuple[float, float, int, int]:
    """Fit one table; return both deviances, the state, and the number of EM steps."""
    observed, sizes = link.observed, link.sizes
    n = _total(observed)
    parent, child = link.axes - 2, link.axes - 1
    given, certain = _ONE, n >= 0.0
    for axis in range(parent):
        given *= sizes[0, axis]
        certain = certain and link.kinds[axis] == CLEAR
    model = _Model(given, sizes[0, parent], sizes[0, child])
    clear = link.kinds[parent] == CLEAR, link.kinds[child] == CLEAR
    _copy(observed, work.x, observed.size)
    _contract(link, _INVERSE, work)
    _copy(work.x, free, link.cells)
    if n <= 0.0 or (certain and clear[0] and clear[1]):
        _maximize(free, model, work.first, work.weights)
        _compose(work.first, model, null)
        return _deviance(observed, null) if n > 0.0 else 0.0, 0.0, 1, 0
    _start(free, model, (certain, certain and clear[0], certain and clear[1]), work)
    scale = n / _compose(work.first, model, null)
    for i in range(link.cells):
        null[i] *= scale
    independent, state, steps = _climb(null, model, link, work, goals)
    if state >= 0 and not certain:
        # if other parents are disguised, there may be other maxima, mostly where the new parent and the child
        # depend less on them
        _start(free, model, (certain, False, False), work)
        _level(model, work)
        scale = n / _compose(work.first, model, work.another)
        for i in range(link.cells):
            work.another[i] *= scale
        again, arrived, more = _climb(work.another, model, link, work, goals)
        steps += more
        if again < independent:
            independent, state = again, arrived
            _copy(work.another, null, link.cells)
    best, other, more = 0.0, 1, 0
    # with as many reports as truths, an unbiased table without negative cells fits the reports exactly
    positive = _raise_to(free, link.cells - link.cells, link.cells, 0.0) <= n * (1.0 + _ROUNDING)
    if state >= 0 and not (positive and observed.size == link.cells):
        scale = n / _raise_to(free, link.cells - link.cells, link.cells, _LEAST * n / link.cells)
        for i in range(link.cells):
            free[i] *= scale
        best, other, more = _climb(free, _Model(link.cells, 0, 0), link, work, (-np.inf, goals[1]))
        steps += more
    return independent, best, min(state, other), steps


@compiled
def _workspace_for(which: Ints, links: Links) -> _Workspace:
    """Return working memory for the largest of the tables `which`."""
    largest = 1
    for i in which:
        cells = 1
        for axis in range(links.axes[i]):
            cells *= max(links.sizes[i, 0, axis], links.sizes[i, 1, axis])
        largest = max(largest, cells)
    tables, theta = np.empty((5, largest)), np.empty((5, 2 * largest))
    return _Workspace(
        tables[0],
        tables[1],
        tables[2],
        tables[3],
        theta[0],
        theta[1],
        theta[2],
        theta[3],
        theta[4],
        tables[4],
    )


@compiled
def _link_of(i: int, links: Links) -> _Link:
    """Return table i with its channels."""
    return _Link(
        links.reports[links.offsets[0, i] : links.offsets[0, i + 1]],
        links.axes[i],
        links.offsets[1, i + 1] - links.offsets[1, i],
        links.sizes[i],
        links.kinds[i],
        links.scalars[i],
        links.entries,
        links.starts[i],
    )


@compiled
def fit_links(which: Ints, links: Links, least: Floats, tolerance: float, results: LinkFitArrays) -> None:
    """Fit independence given the other parents, and then the saturated model, to the tables `which`.

    A state is 1 if both fits converged, 0 if one did not, and −1 if the link was stopped because its
    independence deviance is at most the threshold `least`.

    Cost: one forward and one backward contraction per EM step: a few nanoseconds per cell and axis.
    """
    work = _workspace_for(which, links)
    for i in which:
        link = _link_of(i, links)
        begin, end = links.offsets[1, i], links.offsets[1, i + 1]
        independent, free, state, steps = _fit(
            link, work, (least[i], tolerance), results.expected[begin:end], results.likely[begin:end]
        )
        results.deviances[i, 0], results.deviances[i, 1] = independent, free
        results.states[i, 0], results.states[i, 1] = state, steps
