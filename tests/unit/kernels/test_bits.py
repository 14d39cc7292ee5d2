"""Packed bits, counted sets, the tree of counted sets: each against a plain loop."""

from itertools import combinations

import numpy as np
import pytest

from masquerade.kernels import itemtree
from masquerade.kernels.bits import count_ones, count_sets, pack, unpack, weigh
from masquerade.kernels.itemtree import BlockWeights, ItemTree
from masquerade.kernels.jit import Kernel

ROWS = 70_001  # several tiles of words, the last word not full


def bits(rows=ROWS, items=7, seed=1):
    shares = np.linspace(0.9, 0.3, items)
    return (np.random.default_rng(seed).random((items, rows)) < shares[:, None]).astype(np.uint8)


def all_sets(items, size):
    return np.array(list(combinations(range(items), size)), dtype=np.int32)


@pytest.mark.parametrize("rows", [0, 1, 63, 64, 65, 1000])
def test_packing_can_be_undone(rows):
    column = np.random.default_rng(rows).integers(0, 3, rows).astype(np.uint8)
    for wanted in ([True, False, False], [False, True, True], [True, True, True]):
        words = pack(column, np.array(wanted))
        np.testing.assert_array_equal(unpack(words, rows), np.array(wanted)[column])
        assert count_ones(words) == np.array(wanted)[column].sum()  # the padding holds no ones


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("threads", [1, 3])
def test_sets_are_counted(size, threads):
    columns = bits()
    packed = np.stack([pack(column, np.array([False, True])) for column in columns])
    sets = np.repeat(all_sets(7, size), 400, axis=0)  # so many that several threads pay
    expected = [columns[list(row)].all(axis=0).sum() for row in all_sets(7, size)]
    np.testing.assert_array_equal(count_sets(packed, sets, threads), np.repeat(expected, 400))


def test_weights_are_multiplied_and_summed():
    generator = np.random.default_rng(3)
    weights, root = generator.normal(size=(4, 500)), generator.random(500)
    times = generator.integers(1, 5, 500).astype(float)
    sets = np.array([[0, 1, 2], [0, 1, 3], [0, 2, -1], [1, -1, -1], [3, 2, 1]], dtype=np.int32)
    sums = np.zeros((5, 2))
    for part in (slice(0, 123), slice(123, 500)):
        weigh(np.ascontiguousarray(weights[:, part]), sets, root[part], times[part], sums)
    for row, (first, second) in zip(sets, sums, strict=True):
        product = root * np.prod([weights[i] for i in row if i >= 0], axis=0)
        np.testing.assert_allclose([first, second], [(times * product).sum(), (times * product**2).sum()])


BASE, STEP = np.array([-0.1, 0.0, -0.4, 0.2, -0.3]), np.array([1.2, 1.0, 1.8, 0.5, 1.6])
JOINT = (-0.25, 1.75)  # base and step of items 2 and 3 together


def plan(sets, *, joint):
    """Blocks of one item each, or with items 2 and 3 as one block."""
    blocks = np.zeros(sets.shape, dtype=np.int8)
    base, step = np.zeros(sets.shape), np.ones(sets.shape)
    for row, held in enumerate(sets):
        number = -1
        for place, item in enumerate(held):
            together = joint and item == 3 and 2 in held
            number += not together
            blocks[row, place] = number
            base[row, number], step[row, number] = JOINT if together else (BASE[item], STEP[item])
    return BlockWeights(blocks, base, step)


def weight_of(columns, held, *, joint):
    """The weight of every row, the slow way."""
    held = list(held)
    result = np.ones(columns.shape[1])
    if joint and 2 in held and 3 in held:
        result = result * (JOINT[0] + JOINT[1] * (columns[2] & columns[3]))
        held = [item for item in held if item not in (2, 3)]
    for item in held:
        result = result * (BASE[item] + STEP[item] * columns[item])
    return result


def grown(columns, *, joint, sizes=(1, 2, 3, 4)):
    tree = ItemTree(5, columns.shape[1])
    for size in sizes:
        sets = all_sets(5, size)
        counts = np.array([columns[list(row)].all(axis=0).sum() for row in sets])
        yield tree, sets, tree.add(sets, plan(sets, joint=joint), counts)


@pytest.mark.parametrize("joint", [False, True])
def test_the_disguise_is_undone_from_supports_of_subsets(joint):
    columns = bits(3000, 5)
    for tree, sets, (firsts, squares) in grown(columns, joint=joint):
        weights = np.array([weight_of(columns, row, joint=joint) for row in sets])
        np.testing.assert_allclose(firsts, weights.sum(axis=1), rtol=1e-9)
        np.testing.assert_allclose(squares, (weights**2).sum(axis=1), rtol=1e-9)
        again = tree.sums(tree.find(sets), sets.shape[1])
        np.testing.assert_array_equal(again, (firsts, squares))


@pytest.mark.parametrize("joint", [False, True])
def test_products_with_a_part_of_the_set(joint):
    columns = bits(3000, 5)
    for tree, sets, _ in grown(columns, joint=joint):
        generator = np.random.default_rng(8)
        repeated = np.repeat(sets, 3, axis=0)
        parts = generator.random(repeated.shape) < 0.5
        whole = plan(repeated, joint=joint)
        base, step = np.ones(repeated.shape), np.zeros(repeated.shape)
        expected = []
        for row, (held, inside) in enumerate(zip(repeated, parts, strict=True)):
            own = plan(held[inside][None], joint=joint)
            for place, block in enumerate(own.blocks[0]):
                target = whole.blocks[row, np.flatnonzero(inside)[place]]
                base[row, target], step[row, target] = own.base[0, block], own.step[0, block]
            expected.append(
                (weight_of(columns, held, joint=joint) * weight_of(columns, held[inside], joint=joint)).sum()
            )
        found = tree.products(repeated, parts, whole, BlockWeights(whole.blocks, base, step))
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_what_was_never_counted_is_missed_and_nothing_is_added():
    columns = bits(500, 5)
    *_, (tree, _, _) = grown(columns, joint=False, sizes=(1, 2))
    before = len(tree.keys)
    assert tree.find(all_sets(5, 3)) is None
    assert tree.add(all_sets(5, 4), plan(all_sets(5, 4), joint=False), np.zeros(5, dtype=np.int64)) is None
    assert len(tree.keys) == before
    tree.cut(2)
    assert tree.find(all_sets(5, 2)) is None
    assert tree.find(all_sets(5, 1)) is not None


def test_facets_of_a_set_share_the_walk_to_its_first_items(monkeypatch):
    """A set of s items has s facets: s(s − 1)/2 steps and s − 1 of the shared prefix, not s(s − 1)."""
    size = 6
    tree = ItemTree(size, 10)
    for length in range(1, size):
        sets = all_sets(size, length)
        counts = np.ones(len(sets), dtype=np.int64)
        blocks = np.tile(np.arange(length, dtype=np.int8), (len(sets), 1))
        halves = np.full(sets.shape, 0.5)
        assert tree.add(sets, BlockWeights(blocks, halves, halves), counts) is not None
    steps = []

    def child(keys, children, parent, key):
        steps.append(key)
        found = np.flatnonzero(keys[children[parent] : children[parent + 1]] == key)
        return int(children[parent] + found[0]) if found.size else -1

    monkeypatch.setattr(itemtree, "child", child)
    whole = all_sets(size, size)
    facets = np.full(size, -1, dtype=np.int64)
    blocks = np.arange(size, dtype=np.int8)[None]
    # once compiled, the name is that of the dispatcher
    kernel = itemtree._find_facets
    in_python = kernel.function if isinstance(kernel, Kernel) else kernel.py_func
    in_python(whole, blocks, 0, size, tree.keys, tree.children, facets)
    assert len(steps) == size * (size - 1) // 2 + size - 1
    without = np.array([np.delete(whole[0], place) for place in range(size)])
    np.testing.assert_array_equal(facets, tree.find(without))


def test_sets_are_found_after_larger_ones_were_deleted_and_added_again():
    columns = bits(500, 5)
    *_, (tree, last, _) = grown(columns, joint=False)
    tree.cut(3)
    pairs = all_sets(5, 2)
    assert tree.find(pairs) is not None
    assert tree.find(all_sets(5, 3)) is None
    for size in (3, 4):
        sets = all_sets(5, size)
        counts = np.array([columns[list(row)].all(axis=0).sum() for row in sets])
        assert tree.add(sets, plan(sets, joint=False), counts) is not None
        assert tree.find(sets) is not None
    np.testing.assert_array_equal(last, sets)
