"""k-means on shares is Lloyd's on the joined table, whoever holds which cell and whatever opens."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris
from tests.unit.protocols.mpc.programs import Watched

import masquerade as mq
from masquerade.core.errors import InputError
from masquerade.learn.clusters import Lattice
from masquerade.protocols.mpc.dealer_engine import MOST_MULTIPLIED, HelpedEngine
from masquerade.protocols.mpc.k_means import Lloyd, clusters
from masquerade.services.common.settings import Limits

IRIS = load_iris().data
LATTICE = Lattice.of(list(IRIS.T))
WHOLE = LATTICE.to_units(IRIS)
START, STEPS = IRIS[[5, 60, 120]], 10
PARTITIONS = {
    "horizontal": lambda shape, owners: np.arange(shape[0])[:, None] % owners + np.zeros(shape, dtype=int),
    "vertical": lambda shape, owners: np.zeros(shape, dtype=int) + np.arange(shape[1]) % owners,
    "any cells": lambda shape, owners: np.random.default_rng(4).integers(0, owners, shape),
}


def plan_of(whole=WHOLE, start=START, **told):
    first = None if start is None else (start - LATTICE.origin) / LATTICE.unit
    most = tuple(whole.max(axis=0).tolist())
    return Lloyd(len(whole), told.pop("k", 3), most, first, **told)


def found(plan, whole=WHOLE, partition="any cells", owners="ab", **told):
    holder = PARTITIONS[partition](whole.shape, len(owners))
    held = {name: np.where(holder == place, whole, 0) for place, name in enumerate(owners)}
    watched = Watched(tuple(owners), len(whole))
    return watched.run(lambda engine: clusters(engine, held[engine.name], plan, **told)), watched


@pytest.fixture(scope="module")
def due():
    """The clear learner's clusters of Iris, from the same first centres."""
    frame = pd.DataFrame(IRIS, columns=["a", "b", "c", "d"]).map(str)
    return mq.learn.k_means(mq.tally(frame), len(START), start=START)


def assert_same(ended, due):
    assert np.allclose(LATTICE.numbers(ended.centres()), due.centres, rtol=0, atol=1e-12)
    assert np.array_equal(ended.sizes, np.rint(due.shares * len(IRIS)))
    assert ended.known.all()


@pytest.mark.parametrize(
    ("partition", "owners", "hide_steps"),
    [
        ("horizontal", "ab", False),
        pytest.param("vertical", "abc", False, marks=pytest.mark.slow),
        pytest.param("any cells", "ab", False, marks=pytest.mark.slow),
        ("any cells", "ab", True),
    ],
)
def test_clusters_of_iris_are_those_of_the_clear_learner(due, monkeypatch, partition, owners, hide_steps):
    opened, reveal = [], HelpedEngine.open

    def watched_open(engine, secret, bits=None):
        opened.append(engine.name)
        return reveal(engine, secret, bits)

    monkeypatch.setattr(HelpedEngine, "open", watched_open)
    plan = plan_of(hide_steps=hide_steps, steps=STEPS, least=5)
    ended, watched = found(plan, partition=partition, owners=owners)
    assert_same(ended, due)
    assert watched.cost.rounds > ended.steps
    assert opened.count("a") == (1 if hide_steps else ended.steps)  # nothing opens before the end


def lloyd(whole, plan):
    """Take steps in exact integers, in fractions of a unit."""
    least, steps = plan.least, plan.steps
    now, scale = plan.first, 1 << plan.fraction
    for _ in range(steps):
        distances = ((whole[:, None].astype(object) * scale - now[None]) ** 2).sum(axis=2)
        nearest = np.array([min(range(len(now)), key=row.__getitem__) for row in distances])
        sizes = np.bincount(nearest, minlength=len(now))
        sums = np.array([whole[nearest == place].sum(axis=0) for place in range(len(now))])
        sums, sizes, before = sums * (sizes >= least)[:, None], sizes * (sizes >= least), now
        now = np.where(sizes[:, None] > 0, plan.means(sizes, sums), now)
    return sizes, sums, before


@pytest.mark.parametrize("least", [1, 3])
@pytest.mark.parametrize("hide_steps", [False, True])
def test_small_and_empty_clusters_keep_their_centres_and_open_nothing(least, hide_steps):
    """Iris and two records far away: with three at least a centre of theirs stays, and no sum opens."""
    whole = np.vstack([WHOLE, [[400, 400, 0, 0], [401, 400, 0, 0]]])
    start = np.vstack([WHOLE[[0, 60, 120]], [[399, 399, 0, 0]], [[0, 0, 900, 900]]]).astype(float)
    plan = Lloyd(len(whole), 5, tuple(whole.max(axis=0).tolist()), start, least, 4, hide_steps=hide_steps)
    ended, _ = found(plan, whole)
    sizes, sums, before = lloyd(whole, plan)
    assert np.array_equal(ended.sizes, sizes)
    assert np.array_equal(ended.sums, sums)
    assert ended.sizes[3:].tolist() == [2 if least == 1 else 0, 0]
    kept = ended.sizes == 0
    assert np.array_equal(ended.centres()[kept], before[kept] / (1 << plan.fraction))
    assert np.array_equal(ended.centres()[4], start[4])  # an empty cluster stays, as with the clear learner


def test_first_centres_can_be_records_that_nobody_knows(due):
    """What is drawn is known to the test alone: the sum of both parties' draws names a record."""
    draws = {"a": [7, 45, 3], "b": [48, 15, 17]}  # modulo 50: rows 5, 60 and 120
    plan = plan_of(start=None, steps=STEPS, least=5)
    holder = PARTITIONS["any cells"](WHOLE.shape, 2)

    def program(engine):
        own = iter(draws[engine.name])
        held = np.where(holder == "ab".index(engine.name), WHOLE, 0)
        return clusters(engine, held, plan, lambda among: next(own) % among)

    assert_same(Watched(("a", "b"), len(WHOLE)).run(program), due)


@pytest.mark.parametrize("hide_steps", [False, True])
def test_a_drawn_record_whose_cluster_stays_small_is_never_opened(hide_steps):
    whole = np.vstack([np.repeat([[1], [2]], 20, axis=0), [[90]] * 20])
    plan = Lloyd(60, 3, (90,), None, 21, 3, hide_steps=hide_steps)
    ended, watched = found(plan, whole)
    assert ended.known.tolist() == [s > 0 for s in ended.sizes]
    assert ended.sizes.max() <= 60
    assert np.isnan(ended.centres()[ended.sizes == 0]).all()
    assert (ended.sizes == 0).any()
    assert watched.shown


@pytest.mark.parametrize(
    ("told", "match"),
    [
        ({"least": 0}, "must be at least 1"),
        ({"steps": 0}, "from 1 to 1000\\."),
        ({"k": 200, "start": None}, "number of records \\(150\\)"),
        ({"k": 4}, "must have 4 centres"),
    ],
)
def test_plans_that_mean_nothing_are_refused(told, match):
    with pytest.raises(InputError, match=match):
        plan_of(**told)


def test_numbers_that_are_too_large_are_refused():
    with pytest.raises(InputError, match="coarser units"):
        Lloyd(10, 2, (2**31, 2**31), np.zeros((2, 2)), hide_steps=True)
    fine = plan_of()
    assert fine.fraction == 24
    assert replace(fine, most=(2**20,) * 4, hide_steps=True).fraction < 16
    with pytest.raises(InputError, match="150 records of 4"):
        found(fine, WHOLE[:10])


@pytest.mark.parametrize(("k", "columns"), [(3, 4), (16, 30), (2, 1), (500, 10_000)])
def test_what_two_parties_show_of_records_at_once_fits_into_a_message(k, columns):
    plan = Lloyd(1_000_000, k, (3,) * columns, None)
    assert plan.at_once >= 1
    assert 2 * 8 * plan.at_once * (k + columns) < Limits().body_bytes
    assert Limits().body_bytes > 2 * 2 * 8 * MOST_MULTIPLIED
