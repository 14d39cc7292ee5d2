"""What a disguise costs: distances that are 0 for the same, and equal other people's code."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import entropy

import masquerade as mq
from masquerade.core.errors import InputError
from masquerade.disguising.seeded import simulate_codes
from masquerade.learn.density import Density
from masquerade.sources.records import Records


def test_kl_is_scipys_entropy():
    p, q = np.array([[5.0, 0], [3, 2]]), np.array([[1.0, 4], [4, 1]])
    assert mq.evaluate.kl(p, q) == pytest.approx(entropy(p.ravel(), q.ravel()))
    assert mq.evaluate.kl(p, p) == 0
    assert mq.evaluate.kl(q, p) == np.inf
    table = mq.tally(pd.DataFrame({"x": [1, 1, 2], "y": [0, 1, 1]})).answer([mq.Query(by=("x", "y"))])[0]
    assert mq.evaluate.kl(table, table.values / 3) == pytest.approx(0)
    for wrong, reason in (
        ([0.5, -0.5, 1], "negative cells"),
        ([0, 0], "sum to more"),
        ([0.5, np.nan], "finite"),
    ):
        with pytest.raises(InputError, match=reason):
            mq.evaluate.kl(wrong, wrong)
    with pytest.raises(InputError, match="same cells"):
        mq.evaluate.kl([1, 2], [1, 2, 3])


def pair(n=4000, p="0.2", seed=4):
    policy = mq.Policy.build(
        {"a": (0, 1), "b": (0, 1)}, {name: mq.channels.binary(p) for name in "ab"} if p != "0" else {}
    )
    generator = np.random.default_rng(seed)
    a = generator.integers(0, 2, n).astype(np.uint8)
    b = np.where(generator.random(n) < 0.7, a, 1 - a).astype(np.uint8)
    clear = Records({"a": a, "b": b}, policy.without_channels())
    return clear, Records(simulate_codes(clear.codes, policy, generator), policy)


def test_ckl_weighs_the_rows_of_a_node_by_its_records():
    clear, disguised = pair()
    structure = {"a": (), "b": ("a",)}
    known, learnt = (mq.learn.bayesian_network(source, structure)["b"] for source in (clear, disguised))
    counts = clear.answer([mq.Query(by=("a",))])[0].values
    by_rows = [entropy(p, q) for p, q in zip(known.probabilities, learnt.probabilities, strict=True)]
    assert mq.evaluate.ckl(known, learnt) == pytest.approx(float(counts @ by_rows) / counts.sum())
    assert mq.evaluate.ckl(known, known) == 0
    with pytest.raises(InputError, match="one node"):
        mq.evaluate.ckl(known, mq.learn.bayesian_network(clear, structure)["a"])
    unlearnt = mq.learn.known_network(
        clear.schema, structure, {"a": np.full(2, 0.5), "b": np.full((2, 2), 0.5)}
    )["b"]
    with pytest.raises(InputError, match="was learned from records"):
        mq.evaluate.ckl(unlearnt, known)


def test_the_odds_ratio_and_its_error():
    clear, disguised = pair()
    (table,) = clear.answer([mq.Query(by=("a", "b"))])
    (a, b), (c, d) = table.values
    found = mq.evaluate.odds_ratio(table)
    assert found.value == pytest.approx(a * d / (b * c))
    assert found.stderr == pytest.approx(found.value * np.sqrt(1 / a + 1 / b + 1 / c + 1 / d))  # Woolf (1955)
    noisy = mq.evaluate.odds_ratio(disguised.answer([mq.Query(by=("a", "b"))])[0])
    assert noisy.stderr > found.stderr
    assert abs(noisy.value - found.value) < 5 * noisy.stderr
    with pytest.raises(InputError, match="two yes/no"):
        mq.evaluate.odds_ratio(clear.answer([mq.Query(by=("a",))])[0])


def test_the_distance_of_densities():
    edges = np.array([0.0, 1.0, 3.0])
    found = Density("x", edges, np.array([0.5, 0.25]), np.zeros(2), 10)
    assert mq.evaluate.density_distance(found, found) == 0
    apart = Density("x", edges + 3, found.values, np.zeros(2), 10)
    assert mq.evaluate.density_distance(apart, found) == pytest.approx(2)
    flat = Density("x", np.array([0.0, 2.0]), np.array([0.5]), np.zeros(1), 10)
    assert mq.evaluate.density_distance(flat, found) == pytest.approx(0.25 + 0.25)

    def uniform(x):
        return np.where((x >= 0) & (x <= 2), 0.5, 0.0)

    assert mq.evaluate.density_distance(uniform, found) == pytest.approx(0.5)
    shifted = mq.evaluate.density_distance(lambda x: uniform(x - 2), found)
    assert shifted == pytest.approx(0.5 + 0.25 + 0.25 + 0.5)  # half of it lies outside the bins
