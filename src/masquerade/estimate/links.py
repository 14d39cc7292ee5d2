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
    numbers: dict[tuple[int, int], int] = {}
    known: list[_AxisChannel] = []
    observed: list[Floats] = []
    used: list[int] = []
    for part, where in zip(parts, places, strict=True):
        keep, table, channels = part.reduction.keep, part.observed, part.channels
        groups = [keep[axis] for axis in where]
        observed.append(table.transpose(groups).ravel())
        for group in groups:
            P, size = channels[group], table.shape[group]
            key = (id(P), size)
            number = numbers.get(key)
            if number is None:
                number = numbers[key] = len(known)
                known.append(_axis_channel(P, size))
            used.append(number)
    axes = np.array([len(where) for where in places])
    last = len(known)  # stands for the axes that a table does not have
    chosen = np.full((len(parts), axes.max()), last)
    chosen[np.arange(chosen.shape[1]) < axes[:, None]] = used
    entries = [np.zeros(0)] + [matrix.ravel() for each in known for matrix in each.matrices or ()]
    lengths = np.array([0 if each.matrices is None else each.matrices[0].size for each in known] + [0])
    begins = 3 * (np.cumsum(lengths) - lengths)
    starts = begins[:, None] + lengths[:, None] * np.arange(3)
    sizes = np.array([each.sizes for each in known] + [(1, 1)])[chosen].transpose(0, 2, 1).copy()
    ends = np.array([[table.size for table in observed], sizes[:, 0].prod(axis=1)])
    return Links(
        np.concatenate(observed),
        np.concatenate([np.zeros((2, 1), dtype=np.int64), np.cumsum(ends, axis=1)], axis=1),
        axes,
        sizes,
        np.array([each.kind for each in known] + [CLEAR])[chosen],
        np.array([each.scalars for each in known] + [((0.0, 0.0),) * 3])[chosen].transpose(0, 2, 1, 3).copy(),
        np.concatenate([*entries, np.zeros(1)]),
        starts[chosen].transpose(0, 2, 1).copy(),
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
