"""k-means from counts: as scikit-learn's on records; honest errors from disguised ones."""

import numpy as np
import pandas as pd
import pytest
from sklearn.cluster import KMeans
from tests.statistical.checks import assert_unbiased, assert_variance

import masquerade as mq
from masquerade.core.errors import InputError
from masquerade.learn.clusters import Lattice, _with_errors, known_clusters

GRID = tuple(range(6))


def groups(n, seed):
    generator = np.random.default_rng(seed)
    far = generator.random(n) < 0.3
    numbers = generator.normal(np.where(far, 4.2, 1.0)[:, None], 0.6, (n, 2))
    return pd.DataFrame(np.clip(np.rint(numbers), 0, 5).astype(int), columns=["x", "y"])


def variables():
    return [mq.Variable(name, GRID) for name in ("x", "y")]


def test_clear_counts_give_what_scikit_learn_gives():
    frame = groups(3000, 1)
    start = [[0.0, 0.0], [5.0, 5.0]]
    found = mq.learn.k_means(mq.tally(frame, schema=mq.Schema(variables())), 2, start=start)
    theirs = KMeans(2, init=np.array(start), n_init=1, tol=0, algorithm="lloyd").fit(frame.to_numpy(float))
    assert np.allclose(found.centres, theirs.cluster_centers_)
    assert found.within == pytest.approx(theirs.inertia_)
    assert np.array_equal(found.predict(frame), theirs.labels_)
    assert found.shares == pytest.approx(np.bincount(theirs.labels_) / 3000)
    assert list(found.to_frame().columns) == ["share", "share_stderr", "x", "x_stderr", "y", "y_stderr"]
    assert "cluster" in found.summary()
    by_itself = mq.learn.k_means(mq.tally(frame, schema=mq.Schema(variables())), 2)
    assert by_itself.within == pytest.approx(found.within)


def test_shares_and_centres_of_disguised_records_are_unbiased_with_the_error_they_claim():
    """Given which cells belong to which centre: the first centres are the truth's, and nearly stay."""
    generator = np.random.default_rng(3)
    chances = np.outer([4, 3, 1, 1, 2, 3], [4, 3, 1, 1, 2, 3]) / 196
    middles = np.arange(6)
    policy = mq.Policy.build(
        {"x": GRID, "y": GRID}, {name: mq.channels.for_gamma(6, 40) for name in ("x", "y")}
    )
    points = np.array([(i, j) for i in middles for j in middles], dtype=float)
    centres = np.array([[0.6, 0.6], [4.2, 4.2]])
    near = ((points[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
    weights = chances.ravel()
    truth = [
        [weights[near == k].sum(), *(weights[near == k] @ points[near == k] / weights[near == k].sum())]
        for k in (0, 1)
    ]
    told, claimed = [], []
    for _ in range(200):
        cells = generator.choice(36, 4000, p=weights)
        frame = pd.DataFrame({"x": cells // 6, "y": cells % 6})
        [table] = mq.tally(mq.disguise(frame, policy), policy).answer([mq.Query(by=("x", "y"))])
        found = _with_errors(table, ("x", "y"), points, centres)
        told.append(np.column_stack([found.shares, found.centres]))
        claimed.append(np.column_stack([found.share_stderr, found.centre_stderr]) ** 2)
    assert_unbiased(told, truth)
    assert_variance(told, claimed)


def test_bins_stand_for_their_middles_and_what_is_no_number_is_refused():
    frame = pd.DataFrame({"age": ["[0, 10)"] * 3 + ["[10, 30)"], "town": list("abab")})
    found = mq.learn.k_means(mq.tally(frame), 2, ["age"])
    assert sorted(found.centres.ravel()) == [5.0, 20.0]
    with pytest.raises(InputError, match="'town' has categories that are not numbers"):
        mq.learn.k_means(mq.tally(frame), 2)
    with pytest.raises(InputError, match="'k' must be from 1 to 2"):
        mq.learn.k_means(mq.tally(frame), 3, ["age"])
    scored = mq.learn.k_means(mq.tally(frame), 1, scores={"town": [0, 1]})
    assert scored.centres.tolist() == [[8.75, 0.5]]
    with pytest.raises(InputError, match="'start'"):
        mq.learn.k_means(mq.tally(frame), 1, ["age"], start=[[1, 2]])


def test_clusters_are_a_file_that_reads_back(tmp_path):
    frame = pd.DataFrame({"x": [0, 0, 1, 3, 3], "y": [0, 1, 0, 3, 2]})
    found = mq.learn.k_means(mq.tally(frame), 2)
    found.save(tmp_path / "clusters.json")
    assert mq.learn.load(tmp_path / "clusters.json").to_dict() == found.to_dict()
    values = found.to_dict()
    for wrong in ({"names": ["x", "x"]}, {"names": []}, {"centres": [[1.0, 2.0]]}, {"n": "5"}):
        with pytest.raises(InputError):
            mq.learn.Clusters.from_dict(values | wrong)
    for told in ({"scores": {"z": [1, 2]}}, {"scores": {"x": "indicator"}}, {"k": 0}):
        with pytest.raises(InputError):
            mq.learn.k_means(mq.tally(frame), **{"k": 2} | told)


def test_numbers_on_a_lattice():
    lattice = Lattice.of([[4.3, 4.4, 7.9], [-1, -0.75, 1]])
    assert (lattice.unit, lattice.most) == (0.05, (72, 40))
    assert lattice.to_units([[4.4, 1]]).tolist() == [[2, 40]]
    assert np.allclose(lattice.numbers([[2, 40]]), [[4.4, 1]], rtol=0, atol=1e-12)
    assert Lattice.of([[5], [2, 7]]).most == (0, 1)  # a column of one number, and one of two
    uneven = Lattice.of([[0, np.sqrt(2), np.pi]])  # no common unit: rounded
    assert uneven.most == (2**16,)
    for wrong in ([], [[]], [[np.inf]]):
        with pytest.raises(InputError):
            Lattice.of(wrong)


def test_a_share_that_did_not_open_is_not_said_to_be_zero():
    lattice, centres = Lattice.of([np.arange(5.0)]), np.array([[1.0], [3.0], [np.nan]])
    small = known_clusters(["x"], lattice, centres, np.array([40, 0, 0]), 50, least=10)
    assert small.share_stderr.tolist()[1:] == [np.inf]
    assert "share not opened, too small: x 3" in small.summary()
    again = mq.learn.Clusters.from_dict(small.to_dict())
    assert again.to_dict() == small.to_dict()
    empty = known_clusters(["x"], lattice, centres, np.array([50, 0, 0]), 50)
    assert empty.share_stderr.tolist() == [0, 0]  # an empty cluster is known to be empty
    assert "0.0% ± 0.0: x 3" in empty.summary()
