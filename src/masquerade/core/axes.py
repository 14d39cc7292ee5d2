"""Contractions of a table with one small matrix per axis, without forming their Kronecker product."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Words = NDArray[np.uint64]

SMALL = 4096  # tables up to this number of cells are contracted in batches


def contract(values: Floats, matrices: Sequence[Floats | None]) -> Floats:
    """Contract axis i of `values` with `matrices[i]` (axis size × new size); None leaves an axis unchanged.

    Formula: out[t1..td] = Σ_x values[x1..xd] Π matrices[i][xi, ti].
    Cost: O(cells · Σ sizes) time and two tables of memory. Each step moves the first axis to the end, so the
    last step restores the order of the axes without a transposing copy.
    """
    if all(matrix is None for matrix in matrices):
        return values
    for matrix in matrices:
        rest = values.shape[1:]
        front = values.reshape(values.shape[0], -1).T
        moved = front if matrix is None else front @ matrix
        values = moved.reshape(*rest, moved.shape[1])
    return values


def contract_each(tables: Sequence[Floats], matrices: Sequence[Sequence[Floats | None]]) -> list[Floats]:
    """Contract many tables, each with its own matrices; equal to `contract` of each table, bit for bit.

    Cost: small tables of one shape are contracted together, so there is little overhead per table.
    """
    found: list[Floats] = list(tables)
    alike: dict[tuple[tuple[int, ...], tuple[tuple[int, ...] | None, ...]], list[int]] = {}
    for i, (table, own) in enumerate(zip(tables, matrices, strict=True)):
        if table.size <= SMALL and len(own) == table.ndim > 1:
            sizes = tuple([None if matrix is None else matrix.shape for matrix in own])
            alike.setdefault((table.shape, sizes), []).append(i)
        else:
            found[i] = contract(table, own)
    for (shape, changed), members in alike.items():
        if len(members) == 1 or not any(changed):
            for i in members:
                found[i] = contract(tables[i], matrices[i])
            continue
        values = np.concatenate([tables[i] for i in members]).reshape(len(members), *shape)
        for axis, size in enumerate(changed):
            rest = values.shape[2:]
            front = values.reshape(*values.shape[:2], -1).transpose(0, 2, 1)
            if size is not None:
                stacked = [matrix for i in members if (matrix := matrices[i][axis]) is not None]
                front = front @ np.concatenate(stacked).reshape(len(members), *size)
            values = front.reshape(len(members), *rest, front.shape[2])
        for i, cells in zip(members, values, strict=True):
            found[i] = cells
    return found


@dataclass(frozen=True, slots=True)
class AxisMap:
    """Linear map from one observed axis to cells of a table.

    `matrix` has shape (observed codes, cells of `axes` in C order); None is the identity. `axes` are
    positions in the table. Several table axes share one observed axis if their variables were disguised
    together. A map without axes is a condition or a sum.
    """

    axes: tuple[int, ...]
    matrix: Floats | None


@dataclass(frozen=True, slots=True)
class AxisMaps:
    """The maps of all observed axes of a table of the given shape."""

    shape: tuple[int, ...]
    maps: tuple[AxisMap, ...]

    def sizes(self, axes: Sequence[int]) -> tuple[int, ...]:
        """Return the sizes of table axes."""
        return tuple([self.shape[axis] for axis in axes])

    def apply(self, observed: Floats) -> Floats:
        """Return the table for an array of observed counts (linear; unbiased if the maps are)."""
        return self.arrange(contract(observed, [axis_map.matrix for axis_map in self.maps]))

    @staticmethod
    def apply_each(maps: Sequence[AxisMaps], observed: Sequence[Floats]) -> list[Floats]:
        """Return `apply` of each of several maps; small tables of one shape are batched."""
        cells = contract_each(observed, [[each.matrix for each in own.maps] for own in maps])
        return [own.arrange(each) for own, each in zip(maps, cells, strict=True)]

    def arrange(self, cells: Floats) -> Floats:
        """Return cells reordered from the order of the maps to the order of the table."""
        order = [axis for axis_map in self.maps for axis in axis_map.axes]
        if order == list(range(len(order))):
            return cells.reshape(self.shape)
        return np.transpose(cells.reshape(self.sizes(order)), np.argsort(order))

    def spread(self, weights: Floats) -> Floats:
        """Return Σ_t maps[x, t]·weights[t] for each observed cell x (the transpose of `apply`)."""
        order = [axis for axis_map in self.maps for axis in axis_map.axes]
        by_map = np.transpose(weights, order).reshape(
            [prod(self.sizes(axis_map.axes)) for axis_map in self.maps]
        )
        return contract(by_map, [None if m.matrix is None else m.matrix.T for m in self.maps])

    def dense(self, axis_map: AxisMap) -> Floats:
        """Return the matrix of a map in the shape (observed, *sizes of its axes)."""
        sizes = self.sizes(axis_map.axes)
        matrix = np.eye(prod(sizes)) if axis_map.matrix is None else axis_map.matrix
        return matrix.reshape(-1, *sizes)

    def pairs(self, observed: Floats, inner: Sequence[int]) -> Floats:
        """Return Σ_x observed[x]·maps[x, t]·maps[x, t'] for cells t, t' that differ only along `inner`.

        The result has the other axes in table order, then the cells of `inner` twice (flattened, in the order
        of `inner`). Cost: one contraction; without inner axes the maps are squared element by element.
        """
        matrices: list[Floats | None] = []
        labels: list[tuple[str, int]] = []
        for axis_map in self.maps:
            inside = [axis for axis in axis_map.axes if axis in inner]
            outside = [axis for axis in axis_map.axes if axis not in inner]
            labels += (
                [("out", a) for a in outside] + [("in", a) for a in inside] + [("in2", a) for a in inside]
            )
            if not inside and axis_map.matrix is None:
                matrices.append(None)
                continue
            dense = self.dense(axis_map)
            order = [1 + axis_map.axes.index(axis) for axis in outside + inside]
            arranged = dense.transpose([0, *order]).reshape(
                dense.shape[0], prod(self.sizes(outside)), prod(self.sizes(inside))
            )
            matrices.append(
                (arranged[:, :, :, None] * arranged[:, :, None, :]).reshape(dense.shape[0], -1)
                if inside
                else arranged[:, :, 0] ** 2
            )
        cells = contract(observed, matrices).reshape([self.shape[axis] for _, axis in labels])
        outer = [axis for axis in range(len(self.shape)) if axis not in inner]
        wanted = [("out", a) for a in outer] + [("in", a) for a in inner] + [("in2", a) for a in inner]
        block = prod(self.sizes(inner))
        return cells.transpose([labels.index(label) for label in wanted]).reshape(
            *self.sizes(outer), block, block
        )

    def power_sums(self, observed: Floats, power: int) -> Floats:
        """Return Σ_x observed[x]·maps[x, t]^power for each cell t."""
        return self.arrange(
            contract(observed, [None if m.matrix is None else m.matrix**power for m in self.maps])
        )

    def mixed_sums(self, observed: Floats, axis: int, order: int) -> list[Floats]:
        """Return Σ_x observed[x]·maps[x, t]^(order − j)·maps[x, Σt along an axis]^j for j = 0 … order.

        Cost: one contraction for all of them.
        """
        position = next(i for i, m in enumerate(self.maps) if axis in m.axes)
        matrix, totals = self.matrix(self.maps[position]), self._sum_along(self.maps[position], axis)
        matrices = [None if m.matrix is None else m.matrix**order for m in self.maps]
        matrices[position] = np.hstack([matrix ** (order - j) * totals**j for j in range(order + 1)])
        cells = contract(observed, matrices)
        apart = cells.reshape(*cells.shape[:position], order + 1, -1, *cells.shape[position + 1 :])
        return [self.arrange(each) for each in np.moveaxis(apart, position, 0)]

    def ends(self) -> tuple[Floats, Floats]:
        """Return the minimum and maximum of maps[x, t] over all x, for each cell t."""
        return self._ends([self._map_ends(m) for m in self.maps])

    def share_ends(self, axis: int, shares: Floats) -> tuple[Floats, Floats]:
        """Return bounds of maps[x, t] − share[t]·maps[x, Σt along an axis] over all x."""
        inside = next(m for m in self.maps if axis in m.axes)
        summed = self._sum_along(inside, axis)
        own = [self._along(inside, end) for end in self._map_ends(inside)]
        whole = [self._along(inside, end) for end in (summed.min(axis=0), summed.max(axis=0))]
        gaps = [a - shares * b for a in own for b in whole]
        low, high = np.minimum.reduce(gaps), np.maximum.reduce(gaps)
        for m in self.maps:
            if m is not inside:
                others = [self._along(m, end) for end in self._map_ends(m)]
                corners = [a * b for a in (low, high) for b in others]
                low, high = np.minimum.reduce(corners), np.maximum.reduce(corners)
        return low, high

    def matrix(self, axis_map: AxisMap) -> Floats:
        """Return the matrix of a map; the identity if it has none."""
        return np.eye(prod(self.sizes(axis_map.axes))) if axis_map.matrix is None else axis_map.matrix

    def _along(self, axis_map: AxisMap, cells: Floats) -> Floats:
        """Return the cells of a map on its axes of the table, with size 1 on all others."""
        kept = sorted(axis_map.axes)
        turned = cells.reshape(self.sizes(axis_map.axes)).transpose([axis_map.axes.index(i) for i in kept])
        return turned.reshape([size if i in kept else 1 for i, size in enumerate(self.shape)])

    def _sum_along(self, axis_map: AxisMap, axis: int) -> Floats:
        """Return a matrix whose columns are replaced by their sums along one axis."""
        dense = self.dense(axis_map)
        place = 1 + axis_map.axes.index(axis)
        return np.broadcast_to(dense.sum(axis=place, keepdims=True), dense.shape).reshape(len(dense), -1)

    def _map_ends(self, axis_map: AxisMap) -> tuple[Floats, Floats]:
        if axis_map.matrix is not None:
            return axis_map.matrix.min(axis=0), axis_map.matrix.max(axis=0)
        cells = prod(self.sizes(axis_map.axes))
        return np.full(cells, float(cells <= 1)), np.ones(cells)

    def _ends(self, pairs: Sequence[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
        low, high = np.ones(()), np.ones(())
        for pair in pairs:
            low, high = times_ends((low, high), pair)
        return self.arrange(low), self.arrange(high)

    def take(self, codes: Mapping[int, Sequence[int]]) -> AxisMaps:
        """Return the maps to the cells of the table with the given codes on some axes."""
        maps = []
        for axis_map in self.maps:
            if not any(axis in codes for axis in axis_map.axes):
                maps.append(axis_map)
                continue
            dense = self.dense(axis_map)
            for place, axis in enumerate(axis_map.axes):
                if axis in codes:
                    dense = dense.take(list(codes[axis]), axis=1 + place)
            maps.append(AxisMap(axis_map.axes, dense.reshape(len(dense), -1)))
        shape = tuple(len(codes[axis]) if axis in codes else size for axis, size in enumerate(self.shape))
        return AxisMaps(shape, tuple(maps))

    def reduce(
        self, observed: Sequence[Floats], powers: Sequence[int], keep: Sequence[int], at: dict[int, int]
    ) -> tuple[list[Floats], AxisMaps, tuple[float, float]]:
        """Keep some table axes, fix others at a code and sum over the rest; contract axes no longer needed.

        Parameters
        ----------
        observed : sequence of array
            Sums of powers of record weights over the observed cells.
        powers : sequence of int
            Power of each of these sums.
        keep : sequence of int
            Table axes to keep, in this order.
        at : dict of int to int
            Codes of fixed axes.

        Returns
        -------
        tuple
            The reduced sums, the maps of the smaller table, and the smallest and largest product of the
            entries of the maps that were contracted.
        """
        maps: list[AxisMap] = []
        columns: list[Floats | None] = []
        for axis_map in self.maps:
            left = tuple(axis for axis in axis_map.axes if axis in keep)
            if left == axis_map.axes:
                maps.append(AxisMap(tuple(keep.index(axis) for axis in left), axis_map.matrix))
                columns.append(None)
                continue
            dense = self.dense(axis_map)
            index: tuple[int | slice, ...] = tuple(at.get(axis, slice(None)) for axis in axis_map.axes)
            chosen = dense[(slice(None), *index)]
            open_axes = [axis for axis in axis_map.axes if axis not in at]
            summed = chosen.sum(axis=tuple(1 + i for i, axis in enumerate(open_axes) if axis not in keep))
            if left:
                maps.append(
                    AxisMap(tuple(keep.index(axis) for axis in left), summed.reshape(summed.shape[0], -1))
                )
                columns.append(None)
            else:
                columns.append(summed.reshape(-1, 1))
        gone = tuple(i for i, column in enumerate(columns) if column is not None)
        dropped = [column for column in columns if column is not None]
        ends = np.ones(()), np.ones(())
        for column in dropped:
            ends = times_ends(ends, (column.min(axis=0), column.max(axis=0)))
        known: dict[tuple[int, int], Floats] = {}
        for sums, power in zip(observed, powers, strict=True):
            if (id(sums), power if gone else 0) not in known:
                raised = [None if column is None else column**power for column in columns]
                known[id(sums), power if gone else 0] = (
                    contract(sums, raised).squeeze(axis=gone) if gone else sums
                )
        shrunk = [known[id(sums), power if gone else 0] for sums, power in zip(observed, powers, strict=True)]
        return shrunk, AxisMaps(self.sizes(keep), tuple(maps)), (float(ends[0].min()), float(ends[1].max()))


def times_ends(one: tuple[Floats, Floats], other: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    """Return the bounds of all products of numbers from two ranges, as an outer product."""
    corners = [np.multiply.outer(a, b) for a in one for b in other]
    return np.minimum.reduce(corners), np.maximum.reduce(corners)
