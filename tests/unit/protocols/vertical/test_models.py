"""The papers' network over three sites, with a miner and without one, from keys to parameters."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from tests.unit.protocols.vertical.sites import (
    NETWORK,
    POLICIES,
    SESSION,
    SITES,
    batches,
    block,
    carried,
    learner,
    learnt,
    mean_error,
    model_one,
    model_two,
    pseudonyms,
    seeded_sites,
)

import masquerade as mq
from masquerade.core.tally import Tally
from masquerade.data.example_networks import ELEVEN_NODES, eleven_nodes_policy
from masquerade.disguising.memo import Memo
from masquerade.protocols.linkage.psi import Joiner, LinkingParty
from masquerade.protocols.vertical.disguised_cells import (
    Site,
    assemble_parts,
    combine_policies,
    cross_parents,
    own_families,
)
from masquerade.protocols.wire.session import LocalTransport
from masquerade.sources.parties.joined import JoiningMiner, LearningSite


def test_cross_variables_and_parents_of_the_papers_network():
    assert cross_parents(ELEVEN_NODES, SITES) == {
        ("y", "x"): ("L",),
        ("x", "z"): ("E",),
        ("x", "y"): ("E",),
        ("y", "z"): ("D",),
    }
    assert own_families(ELEVEN_NODES, SITES["x"]) == {"L": (), "A": (), "T": ("A",), "E": ("T", "L")}


def test_the_combined_policy_is_the_whole_one():
    whole = combine_policies(list(POLICIES.values()))
    assert set(whole.schema) == set(ELEVEN_NODES)
    for name in ELEVEN_NODES:
        assert whole.group(name).channel.fingerprint == eleven_nodes_policy().group(name).channel.fingerprint


@pytest.fixture(scope="module")
def hospital():
    """Return three parties that hold overlapping people in different orders, linked by key."""
    people = NETWORK.sample(400, seed=77)
    generator = np.random.default_rng(3)
    rows = {party: generator.permutation(400)[:360] for party in SITES}
    linking = {party: LinkingParty(party, [f"Person {r}" for r in rows[party]]) for party in SITES}
    joiner = Joiner(tuple(SITES), LocalTransport({n: p.receive for n, p in linking.items()}))
    count = joiner.link()
    everyone = set.intersection(*(set(r.tolist()) for r in rows.values()))
    assert count == len(everyone)
    sites = {
        party: Site(
            party,
            POLICIES[party],
            [block(people.iloc[rows[party][linking[party].rows]][list(SITES[party])], linking[party].common)],
            joiner.session,
        )
        for party in SITES
    }
    return sites, people.iloc[sorted(everyone)], joiner.session


def test_from_keys_to_a_model_with_a_miner(hospital):
    sites, common, session = hospital
    agreed = {party: policy.id for party, policy in POLICIES.items()}
    source = JoiningMiner(agreed, session).records(carried(sites))
    assert isinstance(source, Tally)
    assert source.n == len(common)
    clear = mq.tally(common, schema=NETWORK.schema)
    # S and G are not disguised and lie at different parties: their table shows that rows were joined rightly
    (mine,), (theirs,) = (s.answer([mq.Query(by=("S", "T", "G"))]) for s in (source, clear))
    assert np.array_equal(mine.values, theirs.values)
    for query in (mq.Query(by=("E", "L")), mq.Query(by=("D", "C"))):
        (mine,), (theirs,) = (s.answer([query]) for s in (source, clear))
        # every cell within 6 standard errors given the records: at most 16 cells, false alarm below 1e-7
        assert np.all(np.abs(mine.values - theirs.values) <= 6 * mine.stderr("given_records"))
    network = learnt(source, ELEVEN_NODES)
    assert set(network.structure) == set(ELEVEN_NODES)
    gammas = {item.variables: item.gamma for item in source.guarantee.disclosures if item.role == "miner"}
    assert gammas["A",] == eleven_nodes_policy().group("A").channel.gamma
    assert {None} == {gamma for names, gamma in gammas.items() if "S" in names}


def test_from_keys_to_a_model_without_a_miner(hospital):
    sites, common, _ = hospital
    transport = carried(sites)
    clear = mq.tally(common, schema=NETWORK.schema)
    found = {}
    for party, own in SITES.items():
        others = {other: policy for other, policy in POLICIES.items() if other != party}
        source = LearningSite(sites[party], others).source(transport, ELEVEN_NODES)
        (mine,), (theirs,) = (s.answer([mq.Query(by=own)]) for s in (source, clear))
        assert np.array_equal(mine.values, theirs.values)  # own columns are clear
        assert not any(set(own) & set(item.variables) for item in source.guarantee.disclosures)
        nodes = learnt(source, own_families(ELEVEN_NODES, own)).to_dict()["nodes"]
        tables = {node["variable"]["name"]: node for node in json.loads(json.dumps(nodes))}
        found[party] = {name: tables[name] for name in own}
    shared = assemble_parts(found, SITES)
    header = {key: value for key, value in NETWORK.to_dict().items() if key != "nodes"}
    network = mq.learn.BayesianNetwork.from_dict({**header, "nodes": [shared[name] for name in ELEVEN_NODES]})
    assert network.structure == {name: tuple(parents) for name, parents in ELEVEN_NODES.items()}
    assert sites["x"].released["y"] == sites["x"].released["z"] == {"E"}
    assert sites["y"].released["x"] == {"L"}
    assert sites["z"].released.keys() <= {"miner"}  # nobody needs a variable of the third site
    local = learnt(clear, {"A": (), "T": ("A",)})
    assert np.array_equal(network["T"].probabilities, local["T"].probabilities)  # a local variable is exact


def test_without_a_miner_errors_are_smaller_than_with_one():
    """Twelve paired runs: the mean difference lies about ten of its standard errors above zero, so that a
    false alarm has a probability below 1e-6; draws are seeded all the same."""
    pairs = []
    for run in range(12):
        sites, _ = seeded_sites(1500, seed=100 + run)
        pairs.append((mean_error(model_one(sites)), mean_error(model_two(sites))))
    one, two = np.array(pairs).T
    assert one.mean() <= two.mean()
    gain = two - one
    assert gain.mean() / (gain.std(ddof=1) / np.sqrt(len(gain))) > 3


def test_structure_learning_disguises_no_column_twice():
    sites, _ = seeded_sites(800, seed=5)
    transport = carried(sites)
    views = {party: learner(sites, party).source(transport) for party in SITES}
    found = {}
    for party, source in views.items():
        assert set(source.schema) == set(ELEVEN_NODES)
        dag = mq.learn.structure(source, order=list(ELEVEN_NODES), max_parents=2).structure
        found[party] = {node: dag[node] for node in SITES[party]}
    whole = assemble_parts(found, SITES)
    assert set(whole) == set(ELEVEN_NODES)
    # three recipients, asked at different times and for different variables, got the very same reports
    reports = set()
    for recipient in ("x", "z", "miner"):
        for names in (("L",), ()):
            (batch,) = batches(sites["y"], names, recipient=recipient)
            reports.add(batch["L"].to_numpy().tobytes())
    assert len(reports) == 1


def test_a_view_equals_the_tally_of_such_a_frame():
    """A party's view is records under a policy whose own variables are not disguised."""
    sites, codes = seeded_sites(600, seed=9)
    source = learner(sites, "z").source(carried(sites), ELEVEN_NODES)
    assert set(source.schema) == {*SITES["z"], "E", "D"}
    assert source.policy.disguised == ("E", "D")
    own = mq.Query(by=("C", "F"))
    expected = np.zeros((2, 2))
    np.add.at(expected, (codes["C"], codes["F"]), 1)
    assert np.array_equal(source.answer([own])[0].values, expected)
    (table,) = source.answer([mq.Query(by=("C", "D"))])
    truth = np.zeros((2, 2))
    np.add.at(truth, (codes["C"], codes["D"]), 1)
    # the disguise of D alone: 4 cells within 6 standard errors, false alarm below 1e-8
    assert np.all(np.abs(table.values - truth) <= 6 * table.stderr("given_records"))
    assert np.all(table.stderr("given_records") > 0)


def reports_in_order(place, tags):
    """Return what a site sends, by name, in the order of some pseudonyms."""
    (batch,) = batches(place)
    found = {tag: row for row, tag in enumerate(batch["pseudonym"].to_pylist())}
    order = [found[tag] for tag in tags]
    return {name: batch[name].to_numpy()[order].tolist() for name in SITES["y"]}


def test_a_memo_makes_two_sessions_one_release(tmp_path):
    people = NETWORK.sample(200, seed=4)[list(SITES["y"])]
    keys = [f"p{i}" for i in range(200)]
    answers = []
    for session in (bytes(16), SESSION):
        tags = pseudonyms(200)
        memo = Memo.load_or_create(tmp_path / "memo.json")
        draws = memo.draws(POLICIES["y"].id, pa.array(keys), "keys")
        memo.save(POLICIES["y"].id)
        one = Site("y", POLICIES["y"], [block(people, tags, POLICIES["y"], draws)], session)
        answers.append(reports_in_order(one, tags))
    assert answers[0] == answers[1]
    fresh = Site("y", POLICIES["y"], [block(people, tags, POLICIES["y"])], SESSION)
    assert reports_in_order(fresh, tags) != answers[0]  # equal with probability below 1e-50


def test_model_two_is_the_tally_of_the_joined_disguised_records():
    sites, _ = seeded_sites(500, seed=6)
    network = model_two(sites)
    reports = {}
    for place in sites.values():
        order = np.lexsort(place.cells[0].tags.T[::-1])
        reports |= place.cells[0].reports(place.policy, place.policy.observed.names, order)
    labels = {n: np.array(eleven_nodes_policy().observed[n].categories)[c] for n, c in reports.items()}
    direct = learnt(mq.tally(pd.DataFrame(labels), eleven_nodes_policy()), ELEVEN_NODES)
    for name in ELEVEN_NODES:
        np.testing.assert_allclose(network[name].probabilities, direct[name].probabilities, atol=1e-12)
        np.testing.assert_allclose(network[name].stderr, direct[name].stderr, atol=1e-12)
