"""Fit many links to reports in one batch: tables are packed into flat arrays for the compiled kernel."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import zip_longest
from math import prod
from typing import NamedTuple

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.links.fits import SCORES, LinkFits
from masquerade.estimate.inverse import unbiased_map
from masquerade.estimate.reports import Reports
from masquerade.estimate.symmetric import is_symmetric
from masquerade.kernels.cell_sums import lay_out
from masquerade.kernels.link_fit import CLEAR, EVEN, MATRIX, Ints, LinkFitArrays, Links, fit_links
from masquerade.kernels.tiles import run

TIGHTER = 0.01  # safety factor: the kernel may underestimate how far a deviance is from its limit
CHUNKS = 4  # chunks per thread, so that no thread waits long for the others


class _AxisChannel(NamedTuple):
    """A channel of one axis in the kernel's form: forward, backward and inverse."""

    kind: int
    sizes: tuple[int, int]
    scalars: tuple[tuple[float, float], ...]
    matrices: tuple[Floats, ...] | None


def is_simple(part: Reports) -> bool:
    """Return True if each axis of the table is one group of reports, with nothing summed over or sliced."""
    return (
        part.reduction.is_complete(len(part.truths))
        and len(part.truths) == len(part.channels) >= 2
        and part.latent == part.truths
        and part.samples == 1
    )


def _axis_channel(P: Floats | None, size: int) -> _AxisChannel:
    """Return a channel in the kernel's form."""
    none = ((1.0, 0.0),) * 3
    if P is None:
        return _AxisChannel(CLEAR, (size, size), none, None)
    truths, reports = P.shape
    change = is_symmetric(P)
    if change is None:
        return _AxisChannel(MATRIX, (truths, reports), none, (P, P.T, unbiased_map(P)))
    b = change / max(truths - 1, 1)
    a = 1.0 - change - b if truths > 1 else 1.0
    inverse = (1.0 / a, -b / (a * (a + b * truths)))
    return _AxisChannel(EVEN, (truths, reports), ((a, b), (a, b), inverse), None)


def _pack(parts: Sequence[Reports], places: Sequence[Sequence[int]]) -> Links:
    """Return tables packed into flat arrays, axes in the order of `places`."""
    numbers: dict[tuple[int, int], int] = {}
    known: list[_AxisChannel] = []
    observed: list[Floats] = []
    used: list[list[int]] = []
    for part, where in zip(parts, places, strict=True):
        keep, table, channels = part.reduction.keep, part.observed, part.channels
        groups = [keep[axis] for axis in where]
        observed.append(table.transpose(groups).ravel())
        used.append([])
        for group in groups:
            P, size = channels[group], table.shape[group]
            key = (id(P), size)
            number = numbers.get(key)
            if number is None:
                number = numbers[key] = len(known)
                known.append(_axis_channel(P, size))
            used[-1].append(number)
    members = np.array([*zip_longest(*used, fillvalue=-1)]).T
    return _AxisChannels.of(known).links(members, np.concatenate(observed))


class _AxisChannels(NamedTuple):
    """Several channels in the kernel's form; the last represents axes that a table does not have."""

    sizes: Ints
    kinds: Ints
    scalars: Floats
    entries: Floats
    starts: Ints

    @classmethod
    def of(cls, known: Sequence[_AxisChannel]) -> _AxisChannels:
        entries = [np.zeros(0)] + [matrix.ravel() for each in known for matrix in each.matrices or ()]
        lengths = np.array([0 if each.matrices is None else each.matrices[0].size for each in known] + [0])
        begins = 3 * (np.cumsum(lengths) - lengths)
        return cls(
            np.array([each.sizes for each in known] + [(1, 1)]),
            np.array([each.kind for each in known] + [CLEAR]),
            np.array([each.scalars for each in known] + [((0.0, 0.0),) * 3]),
            np.concatenate([*entries, np.zeros(1)]),
            begins[:, None] + lengths[:, None] * np.arange(3),
        )

    def links(self, members: Ints, reports: Floats) -> Links:
        """Return the links whose axes have these channels (−1: no axis), from their tables of reports.

        All arrays are in C order, whatever the order of `members`, so that the kernel is compiled once.
        """
        members = np.ascontiguousarray(members)
        sizes = self.sizes[members].transpose(0, 2, 1).copy()
        offsets = np.zeros((2, len(members) + 1), dtype=np.int64)
        np.cumsum(sizes.prod(axis=2)[:, ::-1].T, axis=1, out=offsets[:, 1:])
        return Links(
            reports,
            offsets,
            np.count_nonzero(members >= 0, axis=1),
            sizes,
            self.kinds[members],
            self.scalars[members].transpose(0, 2, 1, 3).copy(),
            self.entries,
            self.starts[members].transpose(0, 2, 1).copy(),
        )


class LinkLayout:
    """Links between separately disguised variables, laid out for the kernel in batches."""

    def __init__(self, channels: Sequence[Floats | None], sizes: Sequence[int]) -> None:
        known = [_axis_channel(P, size) for P, size in zip(channels, sizes, strict=True)]
        self._channels = _AxisChannels.of(known)
        self.reports = self._channels.sizes[:, 1]
        """Number of reports of each variable, then 1 for a missing axis."""
        self.cells = self._channels.sizes.max(axis=1).astype(float)
        """The larger of the numbers of reports and truths."""

    def subsets(self, members: Ints) -> tuple[Ints, Ints]:
        """Return the distinct sets of variables, ascending and padded with −1, and the set of each link."""
        last = len(self.reports) - 1
        ordered = np.sort(np.where(members < 0, last, members), axis=1)
        unique, of = np.unique(ordered, axis=0, return_inverse=True)
        return np.where(unique == last, -1, unique), of.reshape(-1)

    def batch(self, members: Ints, subsets: Ints, of: Ints, counts: Ints, n: int) -> PackedLinks:
        """Return links to be fitted from the tables of their subsets, which are concatenated in `counts`."""
        members = np.ascontiguousarray(members)
        shapes = self.reports[subsets]
        cells = shapes.prod(axis=1)
        apart = cells[:, None] // np.cumprod(shapes, axis=1)  # cells from one code to the next
        place = (members[:, :, None] == subsets[of][:, None, :]).argmax(axis=2)
        strides = np.take_along_axis(apart[of], place, axis=1)
        tables = np.empty(int(cells[of].sum()))
        lay_out(counts, (np.cumsum(cells) - cells)[of], self.reports[members], strides, tables)
        return PackedLinks(self._channels.links(members, tables), n)


class PackedLinks(NamedTuple):
    """Links with their tables of unweighted reports in the kernel's form: a `core.links.fits.LinkBatch`."""

    links: Links
    n: int

    def statistics(self, which: Ints, least: Floats, tolerance: float = SCORES) -> Floats:
        """Return twice the gain in log-likelihood of links, or a bound that is at most their threshold."""
        every = np.full(len(self.links.axes), -np.inf)
        every[which] = least
        deviances = _fit(self.links, which, every, tolerance).deviances[which]
        return np.asarray(np.maximum(deviances[:, 0] - deviances[:, 1], 0.0))


def _fit(links: Links, which: Ints, least: Floats, tolerance: float) -> LinkFitArrays:
    """Fit links, spread over all processors, the largest first."""
    cells = int(links.offsets[1, -1])
    shape = (len(links.axes), 2)
    fits = LinkFitArrays(np.zeros(shape), np.zeros(shape, dtype=np.int64), np.empty(cells), np.empty(cells))
    tight = tolerance * TIGHTER
    largest_first = which[np.argsort(-np.diff(links.offsets[1])[which], kind="stable")]
    threads = os.cpu_count() or 1
    parts = min(threads * CHUNKS, len(which)) if threads > 1 else 1
    run(
        lambda some: fit_links(some, links, least, tight, fits),
        [largest_first[i::parts].copy() for i in range(parts)],
    )
    return fits


def fit_reports(
    parts: Sequence[Reports], places: Sequence[Sequence[int]], least: Floats, tolerance: float
) -> LinkFits:
    """Fit links to reports whose channels act on one axis each.

    Formula: EM on the table M of truths, with M_jz M_jx/M_j in the M-step (j: the other parents, z: the new
    parent, x: the child) and squared extrapolation of logarithms. The saturated table is fitted in the same
    way, unless the unbiased table has no negative cell.
    Reference: Dempster, Laird & Rubin (1977); Varadhan & Roland (2008).
    Cost: see `masquerade.kernels.link_fit`; links are spread over all processors.
    Error: deviances are within about `tolerance` of a local maximum. The model of independence given
    disguised parents may have several maxima.
    """
    links = _pack(parts, places)
    fits = _fit(links, np.arange(len(parts)), least, tolerance)
    return _results(links, fits, [part.weight for part in parts])


def _results(links: Links, fits: LinkFitArrays, weights: Sequence[float]) -> LinkFits:
    """Return the fits from the flat arrays; tables are scaled by the weight of a record."""
    settled = fits.states[:, 0] >= 0
    blocks = [
        (prod(sizes[: d - 2]), sizes[d - 2], sizes[d - 1])
        for sizes, d in zip(links.sizes[:, 0].tolist(), links.axes.tolist(), strict=True)
    ]
    cuts = links.offsets[1].tolist()

    def tables(cells: Floats) -> tuple[Floats | None, ...]:
        return tuple(
            cells[cuts[i] : cuts[i + 1]].reshape(block) * weight if settled[i] else None
            for i, (block, weight) in enumerate(zip(blocks, weights, strict=True))
        )

    return LinkFits(
        fits.deviances[:, 0],
        fits.deviances[:, 1],
        np.array([given * (parents - 1) * (children - 1) for given, parents, children in blocks]),
        settled,
        fits.states[:, 0] != 0,
        tables(fits.expected),
        tables(fits.likely),
    )
