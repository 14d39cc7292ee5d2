"""Pooled counts are those of the pooled records, exactly, whoever learns from them."""

import numpy as np
import pytest
from tests.unit.protocols.secure_sum.pools import (
    FRAME,
    NAMES,
    POLICY,
    QUERIES,
    SCHEMA,
    pooled,
    shares,
)

import masquerade as mq
from masquerade.core.tally import Tally
from masquerade.data.example_networks import ELEVEN_NODES


@pytest.fixture(scope="module")
def whole():
    return mq.tally(FRAME, schema=SCHEMA)


def test_pooled_tables_equal_those_of_the_pooled_clear_records(whole):
    source = pooled(shares())
    assert isinstance(source, Tally)
    assert source.n == len(FRAME)
    for mine, theirs in zip(source.answer(QUERIES), whole.answer(QUERIES), strict=True):
        assert np.array_equal(mine.values, theirs.values)
        assert mine.n == theirs.n
        for sort in ("population", "given_records"):
            np.testing.assert_allclose(mine.stderr(sort), theirs.stderr(sort), atol=1e-9)
    mine, theirs = source.answer([mq.Query(by=("A", "T"))])[0], whole.answer([mq.Query(by=("A", "T"))])[0]
    np.testing.assert_allclose(mine.covariance.dense(), theirs.covariance.dense(), atol=1e-9)


def test_structure_and_parameters_from_a_pool_are_those_from_the_pooled_records(whole):
    source = pooled(shares())
    order = list(ELEVEN_NODES)
    found = mq.learn.structure(source, order=order, max_parents=2).structure
    assert found == mq.learn.structure(whole, order=order, max_parents=2).structure
    mine, theirs = (mq.learn.bayesian_network(s, {"A": (), "T": ("A",)}) for s in (source, whole))
    assert np.array_equal(mine["T"].probabilities, theirs["T"].probabilities)


def test_disguised_parties_pool_reports_and_the_policy_is_undone_once():
    disguised = mq.simulate(FRAME, POLICY, seed=5)
    source = pooled(shares(disguised, POLICY), POLICY)
    whole = mq.tally(disguised, POLICY)
    for mine, theirs in zip(source.answer(QUERIES), whole.answer(QUERIES), strict=True):
        np.testing.assert_allclose(mine.values, theirs.values, atol=1e-9)
        np.testing.assert_allclose(mine.stderr(), theirs.stderr(), atol=1e-9)
        np.testing.assert_allclose(mine.nonnegative().values, theirs.nonnegative().values, atol=1e-6)
    assert source.misfit(["A"]).p_value == pytest.approx(whole.misfit(["A"]).p_value)


def test_the_guarantee_is_that_of_the_parameters():
    clear = pooled(shares()).guarantee
    disguised = pooled(shares(mq.simulate(FRAME, POLICY, seed=5), POLICY), POLICY).guarantee
    assert {item.gamma for item in clear.disclosures} == {None}
    assert clear.colluders == len(NAMES) - 2
    assert clear.adversaries["aggregator"] == "malicious"
    gammas = {item.variables: item.gamma for item in disguised.disclosures}
    assert gammas["A",] == POLICY.group("A").channel.gamma


def test_more_parties_give_the_same_sums(whole):
    names = tuple(f"party {i}" for i in range(5))
    source = pooled(shares(parts=5), names=names)
    assert np.array_equal(
        source.answer([mq.Query(by=("C", "X"))])[0].values, whole.answer([mq.Query(by=("C", "X"))])[0].values
    )
    assert source.guarantee.colluders == 3


def test_a_policy_with_strata_is_undone_stratum_by_stratum():
    entries = {name: {"categories": [1, 2]} for name in "AST"}
    channels = {1: {"A": {"kind": "binary", "p": "0.1"}}}
    entries["A"]["channel"] = {"kind": "binary", "p": "0.3"}
    policy = mq.Policy.from_dict(
        {"masquerade": 1, "variables": entries, "strata": {"by": "S", "channels": channels}}
    )
    disguised = mq.simulate(FRAME[list("AST")], policy, seed=6)
    source, whole = pooled(shares(disguised, policy), policy), mq.tally(disguised, policy)
    queries = [mq.Query(by="A"), mq.Query(by=("T", "A"), where={"S": 2}), mq.Query(by=("S",), where={"A": 1})]
    for mine, theirs in zip(source.answer(queries), whole.answer(queries), strict=True):
        np.testing.assert_allclose(mine.values, theirs.values, atol=1e-9)
        np.testing.assert_allclose(mine.stderr(), theirs.stderr(), atol=1e-9)
