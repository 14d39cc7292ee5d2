"""Contract a table with one small matrix per axis: the product of all of them is never formed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Words = NDArray[np.uint64]

SMALL = 4096  # cells of a table that is worth laying beside others


def contract(values: Floats, matrices: Sequence[Floats | None]) -> Floats:
    """Contract axis i of `values` with `matrices[i]` (size of the axis × new size); None leaves it.

    Formula: out[t1..td] = Σ_x values[x1..xd] Π matrices[i][xi, ti].
    Cost: O(cells · Σ sizes) time and two tables of memory; each step moves the front axis to the back, so
    that after the last one the axes stand in their old order without a copy made for transposing.
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
    """Contract many tables, each with matrices of its own: `contract` of every one, to the last bit.

    Cost: small tables of one shape go together, so that there is little to do for a table beside its cells.
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
    """How one observed axis feeds cells of a table.

    `matrix` is (observed codes × cells of `axes`, C order); None is the identity. `axes` are positions
    in the table. Several table axes share one observed axis when their variables were disguised together;
    no axes at all means a condition or a sum.
    """

    axes: tuple[int, ...]
    matrix: Floats | None


@dataclass(frozen=True, slots=True)
class AxisMaps:
    """The maps of all observed axes of a table of the given shape."""

    shape: tuple[int, ...]
    maps: tuple[AxisMap, ...]

    def sizes(self, axes: Sequence[int]) -> tuple[int, ...]:
        """Return the sizes of the given table axes."""
        return tuple([self.shape[axis] for axis in axes])

    def apply(self, observed: Floats) -> Floats:
        """Return the table that the observed array stands for (linear, unbiased if the maps are)."""
        return self.arrange(contract(observed, [axis_map.matrix for axis_map in self.maps]))

    @staticmethod
    def apply_each(maps: Sequence[AxisMaps], observed: Sequence[Floats]) -> list[Floats]:
        """Return what each maps' `apply` gives of its observed array, small tables of one shape together."""
        cells = contract_each(observed, [[each.matrix for each in own.maps] for own in maps])
        return [own.arrange(each) for own, each in zip(maps, cells, strict=True)]

    def arrange(self, cells: Floats) -> Floats:
        """Bring cells from the order of the maps into the order of the table."""
        order = [axis for axis_map in self.maps for axis in axis_map.axes]
        if order == list(range(len(order))):
            return cells.reshape(self.shape)
        return np.transpose(cells.reshape(self.sizes(order)), np.argsort(order))

    def spread(self, weights: Floats) -> Floats:
        """Return Σ_t maps[x, t]·weights[t] for every observed cell x (the transpose of `apply`)."""
        order = [axis for axis_map in self.maps for axis in axis_map.axes]
        by_map = np.transpose(weights, order).reshape(
            [prod(self.sizes(axis_map.axes)) for axis_map in self.maps]
        )
        return contract(by_map, [None if m.matrix is None else m.matrix.T for m in self.maps])

    def dense(self, axis_map: AxisMap) -> Floats:
        """Return the matrix of a map as (observed, *sizes of its axes)."""
        sizes = self.sizes(axis_map.axes)
        matrix = np.eye(prod(sizes)) if axis_map.matrix is None else axis_map.matrix
        return matrix.reshape(-1, *sizes)

    def pairs(self, observed: Floats, inner: Sequence[int]) -> Floats:
        """Return Σ_x observed[x]·maps[x, t]·maps[x, t'] for cells t, t' that differ only along `inner`.

        The result has the other axes in table order, then the cells of `inner` twice (flattened, in the
        order of `inner`). Cost: one contraction; with no inner axes the maps are squared element by element.
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
        """Return Σ_x observed[x]·maps[x, t]^power for every cell t."""
        return self.arrange(
            contract(observed, [None if m.matrix is None else m.matrix**power for m in self.maps])
        )

    def mixed_sums(self, observed: Floats, axis: int, order: int) -> list[Floats]:
        """Return Σ_x observed[x]·maps[x, t]^(order − j)·maps[x, sum of t along an axis]^j for j = 0 … order.

        Cost: one contraction for all of them.
        """
        place = next(i for i, m in enumerate(self.maps) if axis in m.axes)
        own, whole = self.matrix(self.maps[place]), self._summed(self.maps[place], axis)
        matrices = [None if m.matrix is None else m.matrix**order for m in self.maps]
        matrices[place] = np.hstack([own ** (order - j) * whole**j for j in range(order + 1)])
        cells = contract(observed, matrices)
        apart = cells.reshape(*cells.shape[:place], order + 1, -1, *cells.shape[place + 1 :])
        return [self.arrange(each) for each in np.moveaxis(apart, place, 0)]

    def ends(self) -> tuple[Floats, Floats]:
        """Return the smallest and the largest maps[x, t] over all x, for every cell t."""
        return self._ends([self._map_ends(m) for m in self.maps])

    def share_ends(self, axis: int, shares: Floats) -> tuple[Floats, Floats]:
        """Return ends of maps[x, t] − share[t]·maps[x, sum of t along an axis] over all x, or wider ones."""
        inside = next(m for m in self.maps if axis in m.axes)
        summed = self._summed(inside, axis)
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
        """Return the matrix of a map as it is multiplied with."""
        return np.eye(prod(self.sizes(axis_map.axes))) if axis_map.matrix is None else axis_map.matrix

    def _along(self, axis_map: AxisMap, cells: Floats) -> Floats:
        """Return the cells of a map along its axes of the table, and one along the others."""
        kept = sorted(axis_map.axes)
        turned = cells.reshape(self.sizes(axis_map.axes)).transpose([axis_map.axes.index(i) for i in kept])
        return turned.reshape([size if i in kept else 1 for i, size in enumerate(self.shape)])

    def _summed(self, axis_map: AxisMap, axis: int) -> Floats:
        """Return a matrix whose columns are summed along one of its axes, and repeated there."""
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

    def reduced(
        self, observed: Sequence[Floats], powers: Sequence[int], keep: Sequence[int], at: dict[int, int]
    ) -> tuple[list[Floats], AxisMaps, tuple[float, float]]:
        """Keep some table axes, fix others at a code, sum over the rest; contract what no axis needs.

        `observed` are sums of powers of record weights: those of dropped axes go with the same `powers`. The
        ends of the product of dropped weights are returned as well.
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
    """Return the ends of all products of numbers between two pairs of ends, as an outer product."""
    corners = [np.multiply.outer(a, b) for a in one for b in other]
    return np.minimum.reduce(corners), np.maximum.reduce(corners)
