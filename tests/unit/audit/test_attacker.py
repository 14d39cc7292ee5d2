"""What an attacker achieves who knows the population: exactly, and by simulated records."""

import math

import numpy as np
import pytest
from tests.statistical.checks import normal_bound

import masquerade as mq
from masquerade.audit.attacker import attack, averaging, forest
from masquerade.audit.linkage import linkage, linkage_curve, measured_linkage, top_chance
from masquerade.core.errors import InputError
from masquerade.disguising.seeded import simulate_codes

NAMES = "ASTLBEXD"
PARENTS = {"A": (), "S": (), "T": "A", "L": "S", "B": "S", "E": ("T", "L"), "X": "E", "D": ("E", "B")}


def asia():
    """Lauritzen & Spiegelhalter (1988)."""
    chances = {
        "A": [0.99, 0.01],
        "S": [0.5, 0.5],
        "T": [[0.99, 0.01], [0.95, 0.05]],
        "L": [[0.99, 0.01], [0.9, 0.1]],
        "B": [[0.7, 0.3], [0.4, 0.6]],
        "E": [[[1, 0], [0, 1]], [[0, 1], [0, 1]]],
        "X": [[0.95, 0.05], [0.02, 0.98]],
        "D": [[[0.9, 0.1], [0.2, 0.8]], [[0.3, 0.7], [0.1, 0.9]]],
    }
    schema = mq.Schema({name: ["no", "yes"] for name in NAMES})
    parents = {name: tuple(own) for name, own in PARENTS.items()}
    arrays = {name: np.array(values, dtype=float) for name, values in chances.items()}
    return mq.learn.known_network(schema, parents, arrays)


def masked(p):
    schema = mq.Schema({name: ["no", "yes"] for name in NAMES})
    return mq.Policy.build(schema, {name: mq.channels.binary(p) for name in NAMES})


def test_exact_successes_are_those_of_the_enumeration():
    (either,) = attack(masked("1/4"), asia(), ["E"])
    assert either.whole == pytest.approx(0.9455, abs=5e-5)
    assert either.prior == pytest.approx(0.935, abs=5e-4)
    assert either.own == pytest.approx(0.935, abs=5e-4)
    assert either.shift == pytest.approx(76.08, abs=0.01)
    assert math.exp(either.bound) == pytest.approx(6561)
    (either, smoker) = attack(masked("1/10"), asia(), ["E", "S"])
    assert either.whole == pytest.approx(0.982, abs=5e-4)
    assert either.others == pytest.approx(0.970, abs=5e-4)
    assert either.shift == pytest.approx(3804, abs=1)
    assert smoker.own == pytest.approx(0.9)


def test_simulated_records_agree_with_the_exact_sum():
    policy, network = masked("1/4"), asia()
    for exact, sampled in zip(
        attack(policy, network, ["E", "S", "D"]),
        attack(policy, network, ["E", "S", "D"], exact=False, records=4000),
        strict=True,
    ):
        assert abs(exact.whole - sampled.whole) < normal_bound(3) * sampled.stderr
        assert sampled.shift <= exact.shift * (1 + 1e-9)
        assert sampled.prior == pytest.approx(exact.prior)


def test_joint_channels_are_attacked_whole():
    network = asia()
    schema = mq.Schema({name: ["no", "yes"] for name in NAMES})
    joint = mq.Policy.build(
        schema, {("E", "X"): mq.channels.symmetric(4, "1/2"), "S": mq.channels.binary("1/4")}
    )
    (exact,) = attack(joint, network, ["E"])
    (sampled,) = attack(joint, network, ["E"], exact=False, records=2000)
    assert abs(exact.whole - sampled.whole) < normal_bound(1) * max(sampled.stderr, 1e-9)
    assert (
        exact.shift == math.inf
    )  # D is clear, and E makes some of its values impossible together with others
    with pytest.raises(InputError, match="not in the policy"):
        attack(joint.select(["S"]), network)


def test_virtual_evidence_is_that_of_queries():
    network = asia()
    certain = {("X",): np.array([[0.0, 1.0]]), ("S",): np.array([[1.0, 0.0]])}
    asked = network.query("T", {"X": "yes", "S": "no"})
    assert network.posteriors("T", certain)[0] == pytest.approx(asked.probabilities)
    assert network.posteriors("T", {})[0] == pytest.approx(network.query("T").probabilities)
    with pytest.raises(InputError, match="must be records"):
        network.posteriors("T", {("X",): np.ones((1, 3))})


def test_averaging_over_fresh_draws():
    even = np.array([0.5, 0.5])
    quarter, weak = (np.array([[1 - p, p], [p, 1 - p]]) for p in (0.25, 0.45))
    assert [round(averaging(quarter, even, r), 3) for r in (1, 3, 9, 31)] == [0.75, 0.844, 0.951, 0.999]
    assert [round(averaging(weak, even, r), 3) for r in (1, 31, 101, 365)] == [0.55, 0.713, 0.844, 0.972]
    assert averaging(np.full((9, 9), 1 / 9), np.full(9, 1 / 9), 31) is None


def wide(d, categories, p):
    schema = mq.Schema({f"v{i}": [str(j) for j in range(categories)] for i in range(d)})
    return mq.Policy.build(schema, {name: mq.channels.symmetric(categories, p) for name in schema})


@pytest.mark.parametrize(
    ("d", "categories", "p", "n", "success"),
    [(10, 5, "0.3", 10_000, 0.321), (10, 5, "0.6", 10_000, 0.011), (20, 2, "0.25", 10_000, 0.049)],
)
def test_linkage_by_formula(d, categories, p, n, success):
    assert linkage(wide(d, categories, p), {}, n) == pytest.approx(success, abs=5e-4)


def test_linkage_by_formula_agrees_with_attacked_records():
    policy, n = wide(10, 5, "0.3"), 10_000
    generator = np.random.default_rng()
    truths = {name: generator.integers(0, 5, n) for name in policy.schema}
    small = {name: codes.astype(np.uint8) for name, codes in truths.items()}
    reports = {
        name: codes.astype(np.int64) for name, codes in simulate_codes(small, policy, generator).items()
    }
    measured, persons = measured_linkage(policy, truths, reports, list(policy.schema))
    bound = normal_bound(1) * math.sqrt(0.321 * 0.679 / persons)
    assert abs(measured - linkage(policy, {}, n)) < bound
    curve = [success for _, success in linkage_curve(policy, {}, n)]
    assert curve == sorted(curve)
    assert curve[-1] == pytest.approx(0.3207, abs=1e-4)


def test_a_best_score_is_that_of_brute_force():
    generator = np.random.default_rng()
    own, other = (generator.dirichlet(np.ones(4)) for _ in range(2))
    scores = np.arange(4)
    runs = 20_000
    mine = generator.choice(scores, size=runs, p=own)
    theirs = generator.choice(scores, size=(runs, 5), p=other)
    ties = (theirs == mine[:, None]).sum(axis=1)
    won = np.where(theirs.max(axis=1) > mine, 0.0, 1 / (1 + ties))
    assert abs(won.mean() - top_chance(own, other, 6)) < normal_bound(1) * won.std() / math.sqrt(runs)


def test_a_forest_links_copies_and_leaves_the_rest_alone():
    generator = np.random.default_rng()
    n = 20_000
    trait = generator.integers(0, 2, n)
    copies = {f"c{i}": np.where(generator.random(n) < 0.95, trait, 1 - trait) for i in range(3)}
    apart = {f"u{i}": generator.integers(0, 2, n) for i in range(3)}
    import pandas as pd  # noqa: PLC0415

    people = pd.DataFrame(copies | apart)
    policy = mq.Policy.build(
        mq.Schema({name: [0, 1] for name in people}), dict.fromkeys(people, mq.channels.binary("1/4"))
    )
    network = forest(mq.tally(mq.simulate(people, policy, generator), policy))
    links = {(name, parent) for name, parents in network.structure.items() for parent in parents}
    assert len(links) == 2
    assert all({name[0], parent[0]} == {"c"} for name, parent in links)
