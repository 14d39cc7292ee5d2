"""k-means on shares is Lloyd's on the joined table, step by step, whoever holds which cell."""

import numpy as np
import pytest
from sklearn.datasets import load_iris
from tests.unit.protocols.hidden.programs import Watched

from masquerade.core.errors import InputError
from masquerade.learn.clusters import Lattice, distance_bits, lloyd_step, moved
from masquerade.protocols.hidden.k_means import clusters, step

PARTITIONS = {
    "horizontal": lambda shape, owners: np.arange(shape[0])[:, None] % owners + np.zeros(shape, dtype=int),
    "vertical": lambda shape, owners: np.zeros(shape, dtype=int) + np.arange(shape[1]) % owners,
    "any cells": lambda shape, owners: np.random.default_rng(4).integers(0, owners, shape),
}


@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize(("owners", "k"), [("ab", 3), ("abc", 5)], ids=["two", "three"])
def test_every_step_on_iris_is_lloyds(partition, owners, k):
    numbers = load_iris().data
    lattice = Lattice.of(numbers.min(axis=0), numbers.max(axis=0))
    whole = lattice.whole(numbers)
    holder = PARTITIONS[partition](whole.shape, len(owners))
    held = {name: np.where(holder == place, whole, 0) for place, name in enumerate(owners)}
    centres = whole[:: len(whole) // k][:k].copy()
    corner = np.full((1, 4), 4096)
    bits = distance_bits(np.zeros(4, dtype=np.int64), corner[0], corner)
    watched = Watched(tuple(owners), len(whole))
    for _ in range(6):
        found = watched.run(lambda engine, now=centres: step(engine, held[engine.name], now, bits))
        sizes, sums = lloyd_step(whole, np.ones(len(whole)), centres)
        assert np.array_equal(found.sizes, sizes)
        assert np.array_equal(found.sums, sums)
        after = moved(centres, found.sizes, found.sums)
        if np.array_equal(after, centres):
            break
        centres = after
    assert watched.cost.rounds > 0


def test_numbers_that_are_too_large_are_refused():
    with pytest.raises(InputError, match="coarser units"):
        Watched(("a", "b")).run(
            lambda engine: step(
                engine, np.zeros((2, 1), dtype=np.int64), np.zeros((1, 1), dtype=np.int64), 63
            )
        )


def test_all_steps_end_where_lloyds_do_and_small_clusters_open_nothing():
    """Iris and two records far away: a centre of theirs keeps its place, and their sums never open."""
    far = np.array([[4000, 4000, 0, 0], [4001, 4000, 0, 0]])
    numbers = load_iris().data
    lattice = Lattice.of(numbers.min(axis=0), numbers.max(axis=0), 1000)
    whole = np.vstack([lattice.whole(numbers), far])
    holder = PARTITIONS["any cells"](whole.shape, 2)
    held = {name: np.where(holder == place, whole, 0) for place, name in enumerate("ab")}
    start = np.vstack([whole[[0, 60, 120]], [[3990, 3990, 0, 0]], [[0, 0, 9000, 9000]]])
    bits = distance_bits(np.zeros(4, dtype=np.int64), np.full(4, 9000), start)
    for least in (1, 3):
        watched = Watched(("a", "b"), len(whole))
        found = watched.run(
            lambda engine, least=least: clusters(
                engine, held[engine.name], start, bits, moved=moved, least=least
            )
        )
        centres, steps = start, 0
        while True:
            steps += 1
            sizes, sums = lloyd_step(whole, np.ones(len(whole)), centres)
            sizes = np.where(sizes >= least, sizes, 0)
            after = moved(centres, sizes.astype(np.int64), (sums * (sizes > 0)[:, None]).astype(np.int64))
            if np.array_equal(after, centres):
                break
            centres = after
        assert np.array_equal(found.centres, centres)
        assert np.array_equal(found.sizes, sizes)
        assert found.steps == steps > 2
        assert found.sizes[4] == 0  # an empty cluster keeps its centre
        assert np.array_equal(found.centres[4], start[4])
        assert found.sizes[3] == (2 if least == 1 else 0)
        assert np.array_equal(found.centres[3], start[3]) == (least == 3)
    with pytest.raises(InputError, match="one record at least"):
        Watched(("a", "b")).run(lambda engine: step(engine, held["a"], start, bits, least=0))
