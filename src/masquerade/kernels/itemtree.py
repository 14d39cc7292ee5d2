"""The tree of all itemsets counted so far, from which observed supports of subsets are read."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from masquerade.kernels.bits import Floats, Ints, Sets
from masquerade.kernels.jit import compiled

LONGEST_PART: Final = 20  # largest set whose subsets are all tabulated


class Nodes(NamedTuple):
    """Arrays of an `ItemTree` for compiled loops; `known` is its `firsts` or `squares`."""

    items: int
    keys: Ints
    children: Ints
    starts: Ints
    offsets: Ints
    counts: Ints
    known: Floats


class BlockWeights(NamedTuple):
    """Weights of the blocks of each set, one row per set.

    `blocks` has the block number of each item; `base` and `step` have one number per block.
    """

    blocks: NDArray[np.int8]
    base: Floats
    step: Floats


class ItemTree:
    """Counted itemsets by size, with the sums that `_undo` needs.

    Nodes are stored in flat arrays, ordered by level. The root is node 0 (the empty set, all rows). The key
    of a node is its parent's number × items + its last item. Keys ascend within a level because sets are
    sorted, so the children of node p are nodes ``children[p]`` to ``children[p + 1] − 1``; nodes of the last
    level have no children yet. `firsts` and `squares` have level + 1 sums per node, of the weights
    and of their squares.
    """

    def __init__(self, items: int, rows: int) -> None:
        self.items = items
        self.keys = np.zeros(1, dtype=np.int64)
        self.children = np.ones(1, dtype=np.int64)
        self.counts = np.array([rows], dtype=np.int64)
        self.starts = np.array([0, 1], dtype=np.int64)
        self.offsets = np.array([0, 1], dtype=np.int64)
        self.firsts = np.array([rows], dtype=np.float64)
        self.squares = np.array([rows], dtype=np.float64)

    def cut(self, size: int) -> None:
        """Delete sets of this size and above."""
        if size < len(self.starts) - 1:
            nodes, sums = self.starts[size], self.offsets[size]
            self.starts, self.offsets = self.starts[: size + 1], self.offsets[: size + 1]
            self.children = self.children[: self.starts[-2] + 1]
            self.keys, self.counts = self.keys[:nodes], self.counts[:nodes]
            self.firsts, self.squares = self.firsts[:sums], self.squares[:sums]

    def find(self, sets: Sets) -> Ints | None:
        """Return the nodes of sets of one size; None if one of them was not counted."""
        nodes = np.empty(len(sets), dtype=np.int64)
        return nodes if find(sets, self._nodes(self.firsts), nodes) else None

    def sums(self, nodes: Ints, size: int) -> tuple[Floats, Floats]:
        """Return the corrected sums of counted sets of one size."""
        places = self.offsets[size] + (nodes - self.starts[size]) * (size + 1)
        return self.firsts[places], self.squares[places]

    def add(self, sets: Sets, weighed: BlockWeights, counts: Ints) -> tuple[Floats, Floats] | None:
        """Add all sets of the next size, in order; return their sums of weights and of squared weights.

        Return None and add nothing if a needed subset was not counted: a set without its last item, or
        without one of its disguised blocks.
        """
        size = sets.shape[1]
        parents = self.find(np.ascontiguousarray(sets[:, :-1])) if len(self.starts) == size + 1 else None
        if parents is None:
            return None
        blocks, base, step = weighed
        squared = BlockWeights(blocks, base**2, (base + step) ** 2 - base**2)
        firsts, squares = np.zeros((2, len(sets), size + 1))
        known = self._nodes(self.firsts)
        if not _undo(sets, (weighed, squared), (known, self.squares), counts, (firsts, squares)):
            return None
        level = np.arange(self.starts[-2], self.starts[-1])
        ends = self.starts[-1] + np.searchsorted(parents, level, side="right")
        self.children = np.concatenate([self.children, ends])
        self.keys = np.concatenate([self.keys, parents * self.items + sets[:, -1]])
        self.counts = np.concatenate([self.counts, counts])
        self.starts = np.append(self.starts, len(self.keys))
        self.firsts = np.concatenate([self.firsts, firsts.ravel()])
        self.squares = np.concatenate([self.squares, squares.ravel()])
        self.offsets = np.append(self.offsets, len(self.firsts))
        return firsts[:, 0], squares[:, 0]

    def products(
        self, sets: Sets, parts: NDArray[np.bool_], whole: BlockWeights, part: BlockWeights
    ) -> Floats | None:
        """Return Σ (weight of a set)·(weight of its subset) over rows; None if a needed subset is missing."""
        result = np.zeros(len(sets))
        terms = np.stack(
            [whole.base * part.base, whole.base * part.step, whole.step * (part.base + part.step)], axis=2
        )
        nodes = self._nodes(self.firsts)
        return result if _undo_products(sets, parts, (whole.blocks, terms), nodes, result) else None

    def _nodes(self, known: Floats) -> Nodes:
        return Nodes(self.items, self.keys, self.children, self.starts, self.offsets, self.counts, known)


# `child` and `_find_facets` take arrays, not `Nodes`: Numba would count references to its members per call


@compiled
def child(keys: Ints, children: Ints, parent: int, key: int) -> int:
    """Return the node with a key among the children of a node; −1 if missing."""
    if parent + 1 >= children.size:
        return -1
    low, last = children[parent], children[parent + 1]
    high = last
    while low < high:
        middle = (low + high) >> 1
        if keys[middle] < key:
            low = middle + 1
        else:
            high = middle
    return low if low < last and keys[low] == key else -1


@compiled
def find(sets: Sets, tree: Nodes, nodes: Ints) -> bool:
    """Find the node of each set; return False if one is missing."""
    items, keys, children = tree.items, tree.keys, tree.children
    for row in range(sets.shape[0]):
        if row > 0 and np.all(sets[row] == sets[row - 1]):
            nodes[row] = nodes[row - 1]
            continue
        node = 0
        for place in range(sets.shape[1]):
            if node >= 0:
                node = child(keys, children, node, node * items + sets[row, place])
        nodes[row] = node
        if node < 0:
            return False
    return True


@compiled
def _find_facets(  # noqa: PLR0917  (compiled: positional arguments)
    sets: Sets, blocks: NDArray[np.int8], row: int, items: int, keys: Ints, children: Ints, facets: Ints
) -> None:
    """Find, for each block of a set, the node of the set without that block; −1 if missing.

    The walk down the set's first items is shared between the blocks.
    """
    size = sets.shape[1]
    prefix = 0
    for first in range(size):
        block = blocks[row, first]
        seen = False
        for place in range(first):
            seen |= blocks[row, place] == block
        if not seen:
            node = prefix
            for place in range(first + 1, size):
                if blocks[row, place] != block and node >= 0:
                    node = child(keys, children, node, node * items + sets[row, place])
            facets[block] = node
        if prefix >= 0 and first < size - 1:
            prefix = child(keys, children, prefix, prefix * items + sets[row, first])


@compiled
def _undo(
    sets: Sets,
    weighed: tuple[BlockWeights, BlockWeights],
    known: tuple[Nodes, Floats],
    counts: Ints,
    results: tuple[Floats, Floats],
) -> bool:
    """Sum Π (base + step·[all items of the block are reported]) over rows, for each set of blocks.

    The sums are computed for the weights of records and for the squares of these weights.

    Formula: let V_C[j] be the sum with the first j blocks counted as reported and the others corrected. Then
    V_C[all] is the observed support and V_C[j−1] = base_j·V_{C∖j}[j−1] + step_j·V_C[j]: inclusion–exclusion
    in as many steps as blocks, because each C∖j was counted before. V_C[0] is the sum.
    Reference: Ma (2006), Proposition 7.4, with the alternating sum over all subsets replaced by a recursion.
    Cost: one walk down the tree per block, half of it shared between the blocks of a set.
    """
    blocks, base, step = weighed[0]
    _, other_base, other_step = weighed[1]
    tree, squares = known
    items, keys, children, firsts = tree.items, tree.keys, tree.children, tree.known
    starts, offsets = tree.starts, tree.offsets
    result, other_result = results
    size = sets.shape[1]
    facets = np.empty(size, dtype=np.int64)
    for row in range(sets.shape[0]):
        number = blocks[row].max() + 1
        value = other = float(counts[row])
        result[row, number] = other_result[row, number] = value
        _find_facets(sets, blocks, row, items, keys, children, facets)
        for block in range(number - 1, -1, -1):
            value = step[row, block] * value
            other = other_step[row, block] * other
            if base[row, block] != 0.0:
                node = facets[block]
                if node < 0:
                    return False
                level = size
                for place in range(size):
                    level -= blocks[row, place] == block
                place = offsets[level] + (node - starts[level]) * (level + 1) + block
                value += base[row, block] * firsts[place]
                other += other_base[row, block] * squares[place]
            result[row, block], other_result[row, block] = value, other
    return True


@compiled
def _undo_products(
    sets: Sets,
    parts: NDArray[np.bool_],
    weighed: tuple[NDArray[np.int8], Floats],
    tree: Nodes,
    result: Floats,
) -> bool:
    """Sum, over rows, the weight of a set times the weight of its part (a subset).

    Formula: in a block the product is (a + b·[part reported])·(c + d·[whole reported])
    = ac + bc·[part] + (a + b)d·[whole]: the three `terms`. Their product over the blocks is a sum of observed
    supports of subsets.
    Cost: two or three terms per disguised block, and one search per subset that occurs.
    """
    size = sets.shape[1]
    blocks, terms = weighed
    node = np.empty(1 << size, dtype=np.int64)
    masks, values = np.empty((2, 1 << size), dtype=np.int64), np.empty((2, 1 << size))
    for row in range(sets.shape[0]):
        if row == 0 or np.any(sets[row] != sets[row - 1]):
            node[:] = -2
            node[0] = 0
        masks[0, 0], values[0, 0], used, side = 0, 1.0, 1, 0
        for block in range(blocks[row].max() + 1):
            places = _places(blocks[row], parts[row], block)
            used = _multiply_terms((masks, values), side, used, terms[row, block], places)
            side = 1 - side
        for i in range(used):
            found = _find_subset(sets[row], masks[side, i], node, tree)
            if found < 0:
                return False
            result[row] += values[side, i] * tree.counts[found]
    return True


@compiled
def _places(blocks: NDArray[np.int8], part: NDArray[np.bool_], block: int) -> tuple[int, int]:
    """Return the items of a block that are in the part, and all items of the block, as bits."""
    inside, whole = 0, 0
    for place in range(blocks.size):
        if blocks[place] == block:
            whole |= 1 << place
            inside |= int(part[place]) << place
    return inside, whole


@compiled
def _multiply_terms(
    held: tuple[Ints, Floats], side: int, used: int, terms: Floats, places: tuple[int, int]
) -> int:
    """Multiply a sum of terms by the terms of a block, from one half of the buffers to the other."""
    masks, values = held
    inside, whole = places
    none, part, both = terms[0], terms[1], terms[2]
    if inside == whole:
        part, both = 0.0, part + both
    count = 0
    for i in range(used):
        for mask, factor in ((0, none), (inside, part), (whole, both)):
            if factor != 0.0:
                masks[1 - side, count] = masks[side, i] | mask
                values[1 - side, count] = values[side, i] * factor
                count += 1
    return count


@compiled
def _find_subset(row: Sets, mask: int, node: Ints, tree: Nodes) -> int:
    """Return the node of a subset, cached with the nodes of all its prefixes."""
    held, at = 0, 0
    for place in range(row.size):
        if mask & (1 << place) and at >= 0:
            held |= 1 << place
            if node[held] == -2:
                node[held] = child(tree.keys, tree.children, at, at * tree.items + row[place])
            at = node[held]
    return at
