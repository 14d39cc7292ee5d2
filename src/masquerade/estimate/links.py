"""Fits of many links to reports at once: tables are packed one behind the other for the compiled kernel."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from math import prod
from typing import NamedTuple

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.link_fits import LinkFits
from masquerade.estimate.inverse import unbiased_map
from masquerade.estimate.reports import Reports
from masquerade.estimate.symmetric import is_symmetric
from masquerade.kernels.link_fit import CLEAR, EVEN, MATRIX, Found, Links, fit_links

TIGHTER = 0.01  # what the kernel expects a deviance to lack may be that much too little
CHUNKS = 16  # for each thread, so that none waits long for the others


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
    links, most = len(parts), max(len(where) for where in places)
    known: dict[tuple[int, int], _AxisChannel] = {}
    starts: dict[tuple[int, int], tuple[int, int, int]] = {}
    entries: list[Floats] = []
    used = 0
    axes = np.array([len(where) for where in places])
    sizes, offsets = np.ones((links, 2, most), dtype=np.int64), np.zeros((links, 3, most), dtype=np.int64)
    kinds = np.zeros((links, most), dtype=np.int64)
    scalars = np.zeros((links, 3, most, 2))
    observed: list[Floats] = []
    for i, (part, where) in enumerate(zip(parts, places, strict=True)):
        groups = [part.reduction.keep[axis] for axis in where]
        observed.append(part.observed.transpose(groups).ravel())
        for axis, group in enumerate(groups):
            P = part.channels[group]
            key = (id(P), part.observed.shape[group])
            channel = known.get(key)
            if channel is None:
                channel = known[key] = _axis_channel(P, part.observed.shape[group])
                if channel.matrices is not None:
                    size = channel.matrices[0].size
                    starts[key] = (used, used + size, used + 2 * size)
                    entries += [matrix.ravel() for matrix in channel.matrices]
                    used += 3 * size
            sizes[i, :, axis], kinds[i, axis] = channel.sizes, channel.kind
            scalars[i, :, axis] = channel.scalars
            if channel.matrices is not None:
                offsets[i, :, axis] = starts[key]
    ends = np.array([[table.size for table in observed], sizes[:, 0].prod(axis=1)])
    return Links(
        np.concatenate(observed),
        np.concatenate([np.zeros((2, 1), dtype=np.int64), np.cumsum(ends, axis=1)], axis=1),
        axes,
        sizes,
        kinds,
        scalars,
        np.concatenate([*entries, np.zeros(1)]),
        offsets,
    )


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
    cells = int(links.offsets[1, -1])
    shape = (len(parts), 2)
    found = Found(np.zeros(shape), np.zeros(shape, dtype=np.int64), np.zeros(cells), np.zeros(cells))
    tight = tolerance * TIGHTER
    threads = os.cpu_count() or 1
    largest_first = np.argsort(-np.diff(links.offsets[1]), kind="stable")
    chunks = [largest_first[i :: threads * CHUNKS].copy() for i in range(min(threads * CHUNKS, len(parts)))]
    if threads > 1 and len(chunks) > 1:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda which: fit_links(which, links, least, tight, found), chunks))
    else:
        fit_links(largest_first, links, least, tight, found)
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
