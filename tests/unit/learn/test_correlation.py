"""Correlations from tables of two: those of NumPy on clear records, with the errors claimed on others."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from tests.statistical.checks import assert_unbiased, assert_variance

import masquerade as mq
from masquerade.core.errors import InputError


def people(n=600, seed=3):
    """Two clusters of variables: a, b, c go together, and u, v do."""
    generator = np.random.default_rng(seed)
    first, second = generator.integers(0, 2, n), generator.integers(0, 2, n)

    def copy(bits, share):
        return np.where(generator.random(n) < share, bits, 1 - bits)

    frame = pd.DataFrame({"a": first, "b": copy(first, 0.9), "c": copy(first, 0.85)})
    return frame.assign(u=second * 2 + generator.integers(0, 2, n), v=1 - copy(second, 0.9))


OWNERS = {"north": ["a", "u"], "south": ["b", "c", "v"]}


def test_clear_records_and_exact_projections_have_numpys_correlations():
    frame = people()
    wanted = np.corrcoef(frame.to_numpy().T)
    for source in (mq.tally(frame), mq.projection_tally(frame, OWNERS)):
        found = mq.learn.correlations(source, list(frame))
        np.testing.assert_allclose(found.values, wanted, atol=1e-9)
        assert found.n == 600
        assert {frozenset(names) for names in found.clusters(2)} == {frozenset("abc"), frozenset("uv")}
    assert found.clusters(5) == (("a",), ("b",), ("c",), ("u",), ("v",))
    assert len(found.clusters(1)) == 1
    assert "a" in found.summary()
    assert len(found.to_frame()) == 10
    scored = mq.learn.correlations(mq.tally(frame), ["a", "u"], scores={"u": [0, 0, 1, 1]})
    assert scored.values[0, 1] == pytest.approx(np.corrcoef(frame["a"], frame["u"] // 2)[0, 1])


def test_disguised_records_have_the_error_that_is_claimed():
    policy = mq.Policy.build({"a": (0, 1), "b": (0, 1)}, {name: mq.channels.binary("0.15") for name in "ab"})
    found = []
    for seed in range(150):
        drawn = people(2000, seed)[["a", "b"]]
        found.append(mq.learn.correlations(mq.tally(mq.simulate(drawn, policy, seed), policy)))
    values = [one.values[0, 1] for one in found]
    # P(a = b) = .9 of two fair bits: r = .8; the ratio is biased by less than a tenth of an error
    assert_unbiased([value - 0.8 for value in values], 0.0)
    assert_variance(values, [one.stderr[0, 1] ** 2 for one in found])


def test_what_cannot_be_correlated():
    frame = pd.DataFrame({"a": [1, 1, 1], "b": [0, 1, 1], "k": ["x", "y", "z"]})
    source = mq.tally(frame, schema=mq.Schema({"a": [1, 2], "b": [0, 1], "k": ["x", "y", "z"]}))
    for names, scores, reason in (
        (["a", "b"], None, "has no positive estimated variance"),
        (["b", "k"], None, "give 'scores'"),
        (["b", "k"], {"k": [1, 2]}, "must be 3 numbers"),
        (["b"], None, "two variables"),
    ):
        with pytest.raises(InputError, match=reason):
            mq.learn.correlations(source, names, scores)
    with pytest.raises(InputError, match="'count' must be from 1 to 2"):
        mq.learn.correlations(source, ["b", "k"], {"k": [1, 2, 3]}).clusters(3)
