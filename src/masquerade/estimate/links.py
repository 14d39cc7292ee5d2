"""Fits of many links to reports at once: tables are packed one behind the other for the compiled kernel."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import zip_longest
from math import prod
from typing import NamedTuple

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.link_fits import SCORES, LinkFits
from masquerade.estimate.inverse import unbiased_map
from masquerade.estimate.reports import Reports
from masquerade.estimate.symmetric import is_symmetric
from masquerade.kernels.cell_sums import lay_out
from masquerade.kernels.link_fit import CLEAR, EVEN, MATRIX, Found, Ints, Links, fit_links
from masquerade.kernels.tiles import run

TIGHTER = 0.01  # what the kernel expects a deviance to lack may be that much too little
CHUNKS = 4  # for each thread, so that none waits long for the others


class _AxisChannel(NamedTuple):
    """What a channel does to an axis there, back and inversely, as the kernel reads it."""

    kind: int
    sizes: tuple[int, int]
    scalars: tuple[tuple[float, float], ...]
    matrices: tuple[Floats, ...] | None


def is_simple(part: Reports) -> bool:
    """Tell whether every axis of the table is one group of reports: nothing is summed over or sliced."""
    return (
        not part.reduction.at
        and len(part.reduction.keep) == len(part.truths) == len(part.channels) >= 2
        and part.latent == part.truths
        and part.samples == 1
    )


def _axis_channel(P: Floats | None, size: int) -> _AxisChannel:
    """Return a channel as the kernel reads it."""
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


def _packed(parts: Sequence[Reports], places: Sequence[Sequence[int]]) -> Links:
    """Lay tables out in flat arrays, axes in the order of `places`."""
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
    """Several channels as the kernel reads them; the last stands for the axes that a table does not have."""

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
        """Return the links whose axes have these channels (−1 for none), from their tables of reports.

        All arrays are in C order, whatever that of the members is, so that the kernel is compiled once.
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
    """Links between variables whose reports are their own alone: laid out for the kernel many at a time."""

    def __init__(self, channels: Sequence[Floats | None], sizes: Sequence[int]) -> None:
        known = [_axis_channel(P, size) for P, size in zip(channels, sizes, strict=True)]
        self._channels = _AxisChannels.of(known)
        self.reports = self._channels.sizes[:, 1]
        """How many reports each variable has, then 1 for none."""
        self.cells = self._channels.sizes.max(axis=1).astype(float)
        """The larger of the numbers of reports and truths."""

    def subsets(self, members: Ints) -> tuple[Ints, Ints]:
        """Return the different sets of variables, ascending (then −1), and which of them each link has."""
        last = len(self.reports) - 1
        ordered = np.sort(np.where(members < 0, last, members), axis=1)
        unique, of = np.unique(ordered, axis=0, return_inverse=True)
        return np.where(unique == last, -1, unique), of.reshape(-1)

    def batch(self, members: Ints, subsets: Ints, of: Ints, counts: Ints, n: int) -> PackedLinks:
        """Return links to be fitted from the tables of their subsets, which stand one behind the other."""
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
    """Links with their tables of unweighted reports, as the kernel reads them: a `core.LinkBatch`."""

    links: Links
    n: int

    def statistics(self, which: Ints, least: Floats, tolerance: float = SCORES) -> Floats:
        """Return twice the gain in log-likelihood of some links, or a bound that is at most their least."""
        every = np.full(len(self.links.axes), -np.inf)
        every[which] = least
        found = _fitted(self.links, which, every, tolerance).deviances[which]
        return np.asarray(np.maximum(found[:, 0] - found[:, 1], 0.0))


def _fitted(links: Links, which: Ints, least: Floats, tolerance: float) -> Found:
    """Fit some links, spread over all processors, the largest first."""
    cells = int(links.offsets[1, -1])
    shape = (len(links.axes), 2)
    found = Found(np.zeros(shape), np.zeros(shape, dtype=np.int64), np.empty(cells), np.empty(cells))
    tight = tolerance * TIGHTER
    largest_first = which[np.argsort(-np.diff(links.offsets[1])[which], kind="stable")]
    threads = os.cpu_count() or 1
    parts = min(threads * CHUNKS, len(which)) if threads > 1 else 1
    run(
        lambda some: fit_links(some, links, least, tight, found),
        [largest_first[i::parts].copy() for i in range(parts)],
    )
    return found


def fit_reports(
    parts: Sequence[Reports], places: Sequence[Sequence[int]], least: Floats, tolerance: float
) -> LinkFits:
    """Fit links to reports whose channels act on one axis each.

    Formula: EM on the table of truths, M_jz M_jx/M_j in the M-step, with squared extrapolation of logarithms;
    the free table likewise, unless the unbiased one has no negative cell.
    Reference: Dempster, Laird & Rubin (1977); Varadhan & Roland (2008).
    Cost: see `masquerade.kernels.link_fit`; links are spread over all processors.
    Error: deviances are within about `tolerance` of the top that they climb; independence given disguised
    parents may have several.
    """
    links = _packed(parts, places)
    found = _fitted(links, np.arange(len(parts)), least, tolerance)
    return _results(links, found, [part.weight for part in parts])


def _results(links: Links, found: Found, weights: Sequence[float]) -> LinkFits:
    """Read the fits off the flat arrays; records are worth their weight in the tables."""
    settled = found.states[:, 0] >= 0
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
        found.deviances[:, 0],
        found.deviances[:, 1],
        np.array([given * (parents - 1) * (children - 1) for given, parents, children in blocks]),
        settled,
        found.states[:, 0] != 0,
        tables(found.expected),
        tables(found.likely),
    )
