"""Sources of records that give the joint likelihood of a network: files, miners of vertical sessions."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.protocols.vertical.sites import NETWORK, POLICIES, SESSION, carried, seeded_sites

import masquerade as mq
from masquerade.core.errors import InputError
from masquerade.data.example_networks import ELEVEN_NODES
from masquerade.sources.parties.joined import JoiningMiner

CATEGORIES = {"a": [0, 1], "b": [0, 1, 2], "c": [0, 1]}
STRUCTURE = {"a": (), "b": ("a",), "c": ("b",)}


def small_network():
    generator = np.random.default_rng(3)
    chances = {
        name: generator.dirichlet(np.full(len(own), 2.0), [len(CATEGORIES[one]) for one in STRUCTURE[name]])
        for name, own in CATEGORIES.items()
    }
    return mq.learn.known_network(mq.Schema(CATEGORIES), STRUCTURE, chances)


def test_files_read_by_an_engine_give_the_likelihood_of_their_records(tmp_path):
    known = small_network()
    masks = mq.Policy.build(
        CATEGORIES, {name: mq.channels.symmetric(len(own), "0.2") for name, own in CATEGORIES.items()}
    )
    disguised = mq.simulate(known.sample(800, seed=1), masks, seed=2)
    disguised.to_csv(tmp_path / "records.csv", index=False)
    memory = mq.tally(disguised, masks)
    engine = mq.tally(tmp_path / "records.csv", masks, engine="duckdb")
    assert known.log_likelihood(engine) == pytest.approx(known.log_likelihood(memory), rel=1e-12)
    fitted = mq.learn.bayesian_network(engine, STRUCTURE, method="likelihood")
    assert fitted.query("a", {"c": 1}).stderr is not None


@pytest.mark.parametrize("kept", ["in memory", "in a folder"])
def test_miners_of_vertical_sessions_have_the_joint_likelihood(kept, tmp_path):
    miner = JoiningMiner({party: policy.id for party, policy in POLICIES.items()}, SESSION)
    sites, _ = seeded_sites(600, 5)
    source = miner.records(carried(sites), tmp_path / "records" if kept == "in a folder" else None)
    value = NETWORK.log_likelihood(source)
    assert np.isfinite(value)
    fitted = mq.learn.bayesian_network(source, ELEVEN_NODES, method="likelihood")
    assert fitted.joint.log_likelihood >= value
    assert np.all(np.isfinite(fitted.query("E", {"X": NETWORK.schema["X"].categories[0]}).stderr))
    found = mq.learn.structure(source, polish=True, max_parents=2)
    assert found.bic[1] >= found.bic[0]


def test_sources_of_tables_name_what_they_use():
    class Tables:
        """A source of tables, as sessions of parties without a miner give."""

        def __init__(self, source):
            self.schema, self.guarantee = source.schema, source.guarantee
            self.check, self.answer = source.check, source.answer

    source = Tables(mq.tally(small_network().sample(300, seed=1), schema=mq.Schema(CATEGORIES)))
    with pytest.raises(InputError, match="composite score"):
        mq.learn.structure(source, polish=True)
    assert mq.learn.structure(source).bic is None
    with pytest.raises(InputError, match="method='counts'"):
        mq.learn.bayesian_network(source, STRUCTURE, method="likelihood")


def test_composite_likelihood_of_tables_prefers_the_network_that_the_tables_came_from():
    source = mq.tally(small_network().sample(3000, seed=1), schema=mq.Schema(CATEGORIES))
    fitted = mq.learn.bayesian_network(source, STRUCTURE)
    other = mq.learn.bayesian_network(source, {"a": (), "b": (), "c": ("a",)})
    values = [one.composite_log_likelihood(source) for one in (fitted, other)]
    assert values[1] < values[0] <= 1e-6
    # the two linked pairs fit exactly: what is left is the pair of a and c
    table = source.answer([mq.Query(by=("a", "c"))])[0]
    expected = fitted.query(("a", "c")).probabilities * table.total
    deviance = 2 * np.sum(table.values * np.log(table.values / expected))
    assert values[0] == pytest.approx(-deviance / 2, abs=1e-6)
