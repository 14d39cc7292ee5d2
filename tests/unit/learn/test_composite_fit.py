"""Parameters by the composite likelihood of pairs and families, where a source has tables only."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from tests.statistical.checks import assert_coverage, assert_unbiased, assert_variance
from tests.unit.protocols.secure_sum.pools import pooled

import masquerade as mq
from masquerade.core.errors import InputError
from masquerade.data.example_networks import ELEVEN_NODES, eleven_nodes, eleven_nodes_policy

CATEGORIES = {"a": [0, 1], "b": [0, 1], "c": [0, 1, 2], "d": [0, 1], "e": [0, 1]}
STRUCTURE = {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c"), "e": ("d",)}
CHANCES = {
    "a": [0.4, 0.6],
    "b": [[0.8, 0.2], [0.3, 0.7]],
    "c": [[0.5, 0.3, 0.2], [0.2, 0.3, 0.5]],
    "d": [[[0.8, 0.2], [0.6, 0.4], [0.5, 0.5]], [[0.5, 0.5], [0.3, 0.7], [0.15, 0.85]]],
    "e": [[0.75, 0.25], [0.3, 0.7]],
}
MASKS = mq.Policy.build(
    CATEGORIES, {name: mq.channels.symmetric(len(own), "0.2") for name, own in CATEGORIES.items()}
)


class Tables:
    """A source of tables, as sessions of parties without a miner give."""

    def __init__(self, source):
        self.schema, self.guarantee = source.schema, source.guarantee
        self.check, self.answer = source.check, source.answer


def known():
    return mq.learn.known_network(mq.Schema(CATEGORIES), STRUCTURE, CHANCES)


def records_of(seed, n=4000):
    return mq.tally(mq.simulate(known().sample(n, seed=seed), MASKS, seed=1000 + seed), MASKS)


def flat(network, what="probabilities"):
    return np.concatenate([getattr(table, what).ravel() for table in network.tables])


def test_estimates_are_unbiased_and_intervals_cover():
    """50 runs, false-alarm rate 1e-6 for each of the three: the mean, the errors, the coverage."""
    truth = flat(known())
    asked = known().query("a", {"e": 1})[0]
    found, errors, covered, answers = [], [], [], []
    for run in range(50):
        network = mq.learn.bayesian_network(Tables(records_of(run)), STRUCTURE, method="composite")
        answer = network.query("a", {"e": 1})
        found.append(flat(network))
        errors.append(flat(network, "stderr") ** 2)
        ends = [table.conf_int() for table in network.tables]
        lower, upper = (np.concatenate([end.ravel() for end in ends_]) for ends_ in zip(*ends, strict=True))
        covered.append((lower <= truth) & (truth <= upper))
        answers.append((answer[0], answer.stderr[0] ** 2))
    assert_unbiased(found, truth)
    assert_variance(found, errors)
    assert_coverage(covered, 0.95, 0.02)
    values, stated = np.transpose(answers)
    assert_unbiased(values[:, None], np.array([asked]))
    assert_variance(values[:, None], stated[:, None])


def test_errors_lie_between_those_of_the_joint_likelihood_and_of_families():
    source = records_of(1, 20_000)
    fitted = {
        method: mq.learn.bayesian_network(source, STRUCTURE, method=method)
        for method in ("counts", "likelihood", "composite")
    }
    best = flat(fitted["likelihood"], "stderr")
    ratios = {method: (flat(fitted[method], "stderr") / best) ** 2 for method in ("counts", "composite")}
    means = {method: float(np.exp(np.log(ratio).mean())) for method, ratio in ratios.items()}
    # on networks like this one: pairs 1.01 to 1.3 times the variance of the whole likelihood
    assert 1.0 < means["composite"] < 1.2
    assert means["composite"] < means["counts"]
    gaps = flat(fitted["composite"]) - flat(fitted["likelihood"])
    assert np.all(np.abs(gaps) < 3 * best)  # both come from the same reports
    assert fitted["composite"].joint.is_composite
    assert not fitted["likelihood"].joint.is_composite


def test_the_value_is_the_sum_over_pairs_and_families_and_is_at_its_maximum():
    source = records_of(2, 2000)
    network = mq.learn.bayesian_network(source, STRUCTURE, method="composite")
    scopes = [*itertools.combinations(STRUCTURE, 2), ("b", "c", "d")]
    channels = {
        name: np.asarray(mq.channels.symmetric(len(own), "0.2").matrix, float)
        for name, own in CATEGORIES.items()
    }

    def value(other):
        total = 0.0
        for scope in scopes:
            chances = other.query(scope).probabilities
            for axis, name in enumerate(scope):
                chances = np.moveaxis(np.tensordot(chances, channels[name], (axis, 0)), -1, axis)
            seen = np.zeros(chances.shape)
            np.add.at(seen, tuple(np.asarray(source.codes[name]) for name in scope), 1)
            total += float(np.sum(seen * np.log(chances)))
        return total

    top = network.joint.log_likelihood
    assert top == pytest.approx(value(network), rel=1e-10)
    assert network.joint.n == pytest.approx(2000)
    generator = np.random.default_rng(3)
    for _ in range(10):
        moved = {}
        for table in network.tables:
            chances = table.probabilities * np.exp(
                0.03 * generator.standard_normal(table.probabilities.shape)
            )
            moved[table.child.name] = chances / chances.sum(axis=-1, keepdims=True)
        assert value(mq.learn.known_network(network.schema, STRUCTURE, moved)) < top


def test_pooled_reports_give_what_the_records_give():
    disguised = mq.simulate(known().sample(1500, seed=4), MASKS, seed=5)
    pool = pooled([mq.tally(disguised.iloc[i::3], MASKS) for i in range(3)], MASKS)
    together = mq.learn.bayesian_network(pool, STRUCTURE, method="composite")
    alone = mq.learn.bayesian_network(mq.tally(disguised, MASKS), STRUCTURE, method="composite")
    np.testing.assert_allclose(flat(together), flat(alone), atol=1e-9)
    np.testing.assert_allclose(flat(together, "stderr"), flat(alone, "stderr"), atol=1e-9)
    assert np.all(together.query("a", {"e": 1}).stderr > 0)
    with pytest.raises(InputError, match="method='composite'"):
        mq.learn.bayesian_network(pool, STRUCTURE, method="likelihood")


def test_maxima_on_the_boundary_are_reached_without_a_warning():
    """Two tables of this network are deterministic; warnings are errors here."""
    policy = eleven_nodes_policy()
    disguised = mq.simulate(eleven_nodes().sample(3000, seed=4), policy, seed=5)
    network = mq.learn.bayesian_network(mq.tally(disguised, policy), ELEVEN_NODES, method="composite")
    assert network.joint.has_converged
    answer = network.query("E", {"X": network.schema["X"].categories[0]})
    assert np.all(np.isfinite(answer.stderr))


def test_clear_counts_have_the_joint_likelihood_of_their_families():
    source = mq.tally(known().sample(3000, seed=6), schema=mq.Schema(CATEGORIES))
    network = mq.learn.bayesian_network(Tables(source), STRUCTURE, method="composite")
    counts = mq.learn.bayesian_network(source, STRUCTURE)
    np.testing.assert_allclose(flat(network), flat(counts), atol=1e-5)
    np.testing.assert_allclose(flat(network, "stderr"), flat(counts, "stderr"), rtol=1e-3)
    assert network.joint.log_likelihood == pytest.approx(counts.log_likelihood(source))
    joint = mq.learn.bayesian_network(source, STRUCTURE, method="likelihood").query("a", {"e": 1})
    np.testing.assert_allclose(network.query("a", {"e": 1}).stderr, joint.stderr, rtol=0.05)


@pytest.mark.parametrize("kind", ["noise", "together", "answers", "prior", "name"])
def test_sources_without_counts_of_reports_are_refused_with_what_to_do(kind):
    source, options, words = records_of(7, 500), {}, "method='counts'"
    structure = STRUCTURE
    if kind == "noise":
        clear = mq.tally(known().sample(500, seed=1), schema=mq.Schema(CATEGORIES))
        source = mq.Noisy(clear, epsilon=5, tables=20)
    elif kind == "together":
        masks = mq.Policy.build(CATEGORIES, {("a", "b"): mq.channels.symmetric(4, "0.3")})
        source = mq.tally(mq.simulate(known().sample(500, seed=1), masks, seed=2), masks)
    elif kind == "answers":
        values = {"a": {"categories": ["x", "y"]}, "b": {"categories": [0, 1, "none"], "missing": "none"}}
        asked = mq.Policy.from_dict({"masquerade": 1, "variables": values})
        frame = pd.DataFrame({"a": ["x", "y"] * 50, "b": [0, 1, None, 1] * 25})
        source, structure = mq.tally(frame, schema=asked), {"a": (), "b": ("a",)}
        words = "missing='category'"
    elif kind == "prior":
        options, words = {"prior": 1.0}, "takes no prior"
    method = "pairs" if kind == "name" else "composite"
    words = "'composite'. Got 'pairs'" if kind == "name" else words
    with pytest.raises(InputError, match=words):
        mq.learn.bayesian_network(source, structure, method=method, **options)


@pytest.mark.parametrize("method", ["likelihood", "composite"])
def test_saved_networks_keep_the_errors_of_queries(method, tmp_path):
    network = mq.learn.bayesian_network(records_of(8, 1000), STRUCTURE, method=method)
    mq.learn.save(network, tmp_path / "network.json")
    loaded = mq.learn.load(tmp_path / "network.json")
    np.testing.assert_allclose(
        loaded.query("a", {"e": 1}).stderr, network.query("a", {"e": 1}).stderr, rtol=1e-9
    )
    assert loaded.joint.is_composite == (method == "composite")
    values = network.to_dict()
    for wrong in (values["joint"]["covariance"][:-1], [["x"]], None):
        with pytest.raises(InputError, match="covariance"):
            mq.learn.BayesianNetwork.from_dict(values | {"joint": values["joint"] | {"covariance": wrong}})
    values["joint"]["covariance"][0][0] = -1.0
    with pytest.raises(InputError, match="variances of 0 or more"):
        mq.learn.BayesianNetwork.from_dict(values)
    assert mq.learn.bayesian_network(records_of(8, 1000), STRUCTURE).to_dict().get("joint") is None
