"""Random linear maps, and the same sums written out cell by cell as their oracle."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

import numpy as np

from masquerade.core.axes import AxisMap, AxisMaps, Floats
from masquerade.core.linear_covariance import CovariancePart, LinearCovariance
from masquerade.core.schema import Variable
from masquerade.core.table import CountTable
from masquerade.estimate.evidence import ReportEvidence


def random_maps(rng: np.random.Generator, most_axes: int = 4) -> tuple[AxisMaps, tuple[int, ...]]:
    """Return maps over permuted axes, several axes to a map, some identities, some with no axes at all."""
    axes = rng.permutation(int(rng.integers(0, most_axes + 1))).tolist()
    shape = tuple(int(size) for size in rng.integers(1, 4, len(axes)))
    groups: list[tuple[int, ...]] = []
    while axes:
        take = int(rng.integers(1, len(axes) + 1))
        groups.append(tuple(axes[:take]))
        axes = axes[take:]
    groups += [()] * int(rng.integers(0, 3))
    maps, observed = [], []
    for group in [groups[i] for i in rng.permutation(len(groups))]:
        cells = prod(shape[axis] for axis in group)
        if rng.random() < 0.3:
            maps.append(AxisMap(group, None))
            observed.append(cells)
        else:
            reports = int(rng.integers(1, 5))
            maps.append(AxisMap(group, rng.normal(size=(reports, cells))))
            observed.append(reports)
    return AxisMaps(shape, tuple(maps)), tuple(observed)


def explicit(maps: AxisMaps, observed: Sequence[int]) -> Floats:
    """Return the whole matrix A[x, t] = Π maps[i][x_i, t on the axes of i], entry by entry."""
    cells = list(product(*(range(size) for size in maps.shape)))
    rows = list(product(*(range(size) for size in observed)))
    whole = np.ones((len(rows), len(cells)))
    for r, row in enumerate(rows):
        for c, cell in enumerate(cells):
            for report, axis_map in zip(row, maps.maps, strict=True):
                place = 0
                for axis in axis_map.axes:
                    place = place * maps.shape[axis] + cell[axis]
                entry = float(report == place) if axis_map.matrix is None else axis_map.matrix[report, place]
                whole[r, c] *= entry
    return whole


def clear_table(counts: Sequence[object], axes: Sequence[Variable], n: int | None = None) -> CountTable:
    """Return the table of clear records with these counts."""
    values = np.asarray(counts, dtype=float)
    maps = AxisMaps(values.shape, tuple(AxisMap((axis,), None) for axis in range(values.ndim)))
    records = int(values.sum()) if n is None else n
    covariance = LinearCovariance((CovariancePart(values, maps),), values, values, records)
    return CountTable(tuple(axes), values, records, ReportEvidence.clear(values, covariance))
