"""k-means on shares is Lloyd's on the joined table, step by step, whoever holds which cell."""

import numpy as np
import pytest
from sklearn.datasets import load_iris
from tests.unit.protocols.hidden.programs import Watched

from masquerade.core.errors import InputError
from masquerade.learn.clusters import Lattice, distance_bits, lloyd_step, moved
from masquerade.protocols.hidden.k_means import step

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
