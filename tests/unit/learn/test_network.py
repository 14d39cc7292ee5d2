"""Network parameters: exact on clear records, with correct errors on disguised ones."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from tests.statistical.checks import assert_unbiased, assert_variance, normal_bound

import masquerade as mq
from masquerade.core.errors import InputError, SchemaError
from masquerade.disguising.simulate import simulate_codes
from masquerade.learn.network import ancestral_order, known_network
from masquerade.papers.ma_sivakumar_2005 import PRINTED, STRUCTURE, network, table_1
from masquerade.sources.records import Records


def test_clear_parameters_are_the_relative_frequencies():
    frame = pd.DataFrame({"a": ["x", "x", "y", "y", "y"], "b": [0, 1, 1, 1, 1]})
    net = mq.learn.bayesian_network(mq.tally(frame), {"a": (), "b": ("a",)})
    np.testing.assert_allclose(net["a"].probabilities, [0.4, 0.6])
    np.testing.assert_allclose(net["b"].probabilities, [[0.5, 0.5], [0, 1]])
    np.testing.assert_allclose(net["a"].stderr, np.sqrt(0.4 * 0.6 / 5))
    np.testing.assert_allclose(net["b"].stderr, [[np.sqrt(0.25 / 2)] * 2, [0, 0]])


def test_unseen_parents_have_uniform_rows_and_say_so():
    schema = mq.Schema({"a": ["x", "y"], "b": [0, 1, 2]})
    source = mq.tally(pd.DataFrame({"a": ["x"] * 4, "b": [0, 1, 2, 2]}), schema=schema)
    table = mq.learn.bayesian_network(source, {"a": (), "b": ("a",)})["b"]
    np.testing.assert_allclose(table.probabilities[1], 1 / 3)
    assert np.isinf(table.stderr[1]).all()
    assert table.reliable.tolist() == [True, False]


def test_structures_that_are_none_are_refused():
    source = mq.tally(pd.DataFrame({"a": [0, 1], "b": [0, 1]}))
    with pytest.raises(InputError, match="cycle"):
        mq.learn.bayesian_network(source, {"a": ("b",), "b": ("a",)})
    with pytest.raises(InputError, match="no node"):
        mq.learn.bayesian_network(source, {"a": ("z",)})
    with pytest.raises(SchemaError, match="no variable 'z'"):
        mq.learn.bayesian_network(source, {"z": ()})
    assert ancestral_order({"c": ("b",), "b": ("a",), "a": ()}) == ["a", "b", "c"]


def test_the_papers_network_is_as_printed():
    net = network()
    assert net["L"].probabilities.tolist() == [[0.3, 0.4, 0.3], [0.7, 0.15, 0.15]]
    assert net["D"].probabilities[1, 2].tolist() == [0.35, 0.65]
    # 2 + 2 for A and S, 4 for T, X, F and G, 6 for L and B, 12 for E and D, 8 for C
    assert sum(len(values) for values in PRINTED.values()) == 64
    assert {float(table_1().group(name).channel.gamma) for name in "CF"} == {7.5}
    assert table_1().disguised == tuple(name for name in STRUCTURE if name not in "TSG")


def test_sampling_follows_the_parameters():
    sample = network().sample_codes(40_000, seed=3)
    first = {name: (codes == 0).mean() for name, codes in sample.items()}
    # P(A=1) = 0.7; P(T=1) = .7·.1 + .3·.9 = 0.34; P(L=1) = (.3+.7)/2; z at 1e-6 for three
    bound = normal_bound(3)
    for name, p in (("A", 0.7), ("T", 0.34), ("L", 0.5)):
        assert abs(first[name] - p) < bound * np.sqrt(p * (1 - p) / 40_000)
    frame = network().sample(10, seed=1)
    assert list(frame.columns) == list(STRUCTURE)
    assert set(frame["L"]) <= {1, 2, 3}


def test_parameters_from_disguised_records_are_right_with_right_errors():
    """Node D of the papers' network, both parents disguised, over repeated samples."""
    structure, policy = {name: STRUCTURE[name] for name in "SBTLEAD"}, table_1()
    truth = network()["D"].probabilities
    estimates, variances = [], []
    generator = np.random.default_rng(14)
    for _ in range(400):
        codes = network().sample_codes(20_000, generator)
        source = Records(simulate_codes(codes, policy, generator), policy)
        table = mq.learn.bayesian_network(source, structure)["D"]
        estimates.append(table.probabilities)
        variances.append(table.stderr**2)
    # the ratio's own bias is of order variance/n: far below the Monte-Carlo error here
    assert_unbiased(estimates, truth)
    assert_variance(estimates, variances)


def test_impossible_parameters_are_refused():
    schema = mq.Schema({"a": [0, 1]})
    with pytest.raises(InputError, match="sum to 1"):
        known_network(schema, {"a": ()}, {"a": np.array([0.5, 0.6])})
    net = known_network(schema, {"a": ()}, {"a": np.array([1.1, -0.1])})
    with pytest.raises(InputError, match="negative estimates"):
        net.sample(5, seed=0)
    with pytest.raises(InputError, match="no node 'b'"):
        net["b"]
    assert "P(a)" in net.summary()
