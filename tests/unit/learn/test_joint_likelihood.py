"""The joint likelihood of a network's reports: by enumeration, at its maximum, for structures."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest

import masquerade as mq
from masquerade.core.errors import InputError
from masquerade.core.likelihood_rows import ReportFactor, ReportFactors
from masquerade.core.tally import Cached, Merged
from masquerade.learn.networks.joint_fit import fit_tables, score_rows
from masquerade.learn.networks.joint_likelihood import JointLikelihood

SIZES = {"a": 2, "b": 3, "c": 2, "d": 2, "e": 3, "f": 2, "g": 2, "h": 2}
STRUCTURE = {
    "a": (),
    "b": ("a",),
    "c": ("a",),
    "d": ("b", "c"),
    "e": ("d",),
    "f": ("b", "e"),
    "g": (),
    "h": ("g", "f"),
}
CATEGORIES = {name: [f"{name}{i}" for i in range(size)] for name, size in SIZES.items()}


def network(seed=1):
    generator = np.random.default_rng(seed)
    chances = {
        name: generator.dirichlet(np.full(SIZES[name], 2.0), [SIZES[parent] for parent in parents])
        for name, parents in STRUCTURE.items()
    }
    return mq.learn.known_network(mq.Schema(CATEGORIES), STRUCTURE, chances)


def policy(kind):
    single = {name: mq.channels.symmetric(size, "0.2") for name, size in SIZES.items()}
    if kind == "one by one":
        return mq.Policy.build(CATEGORIES, {name: single[name] for name in "abcdefg"})
    if kind == "together":
        return mq.Policy.build(
            CATEGORIES, {("a", "h"): mq.channels.symmetric(4, "0.3"), "b": single["b"], "d": single["d"]}
        )
    names = list(SIZES)
    blocks = {"variables": {name: {"categories": CATEGORIES[name]} for name in names}}
    blocks["blocks"] = [{"variables": names[:6], "k": 2, "gamma": 9}]
    return mq.Policy.from_dict({"masquerade": 1, **blocks})


def truths():
    return np.array(list(itertools.product(*(range(size) for size in SIZES.values()))))


def joint_chances(known):
    """Return the probability of every combination of the eight variables."""
    cells, names = truths(), list(SIZES)
    total = np.ones(len(cells))
    for table in known.tables:
        columns = [cells[:, names.index(axis.name)] for axis in table.axes]
        total *= table.probabilities[tuple(columns)]
    return total


def by_enumeration(known, source):
    """Return the log-likelihood and expected cells of all combinations, without a junction tree."""
    cells, names, chances = truths(), list(SIZES), joint_chances(known)
    total, expected = 0.0, np.zeros(len(cells))
    for part in source.report_factors(names):
        likely = np.ones((part.records, len(cells)))
        for factor in part.factors:
            columns = tuple(cells[:, names.index(name)] for name in factor.names)
            likely *= factor.chances[(factor.report[:, None], *columns)]
        products = likely * chances
        sums = products.sum(axis=1)
        total += float(part.weights @ np.log(sums))
        expected += part.weights @ (products / sums[:, None])
    return total, expected


@pytest.mark.parametrize("kind", ["one by one", "together", "blocks"])
def test_likelihood_and_expected_counts_equal_enumeration(kind):
    known, masks = network(), policy(kind)
    source = mq.tally(mq.simulate(known.sample(300, seed=2), masks, seed=3), masks)
    total, expected = by_enumeration(known, source)
    assert known.log_likelihood(source) == pytest.approx(total, rel=1e-12)
    joint = JointLikelihood(source.report_factors(list(SIZES)), STRUCTURE, SIZES)
    found = joint.expectation({table.child.name: table.probabilities for table in known.tables})
    assert found.log_likelihood == pytest.approx(total, rel=1e-12)
    cells, names = truths(), list(SIZES)
    for name, parents in STRUCTURE.items():
        places = [names.index(other) for other in (*parents, name)]
        wanted = np.zeros([SIZES[other] for other in (*parents, name)])
        np.add.at(wanted, tuple(cells[:, place] for place in places), expected)
        np.testing.assert_allclose(found.counts[name], wanted, rtol=1e-9, atol=1e-9)


def test_draws_of_the_truth_have_the_posterior_distribution():
    known, masks = network(), policy("one by one")
    source = mq.tally(mq.simulate(known.sample(200, seed=2), masks, seed=3), masks)
    joint = JointLikelihood(source.report_factors(list(SIZES)), STRUCTURE, SIZES)
    tables = {table.child.name: table.probabilities for table in known.tables}
    expected = joint.expectation(tables).counts
    generator, times = np.random.default_rng(5), 300
    sums = {name: np.zeros(table.shape) for name, table in expected.items()}
    for _ in range(times):
        drawn, weights = joint.draws(tables, generator)
        for name, parents in STRUCTURE.items():
            np.add.at(sums[name], tuple(drawn[other] for other in (*parents, name)), weights)
    for (
        name,
        table,
    ) in expected.items():  # 6 standard deviations of a sum of at most `table` chances: 1e-6 in all
        spread = np.sqrt(np.maximum(table, 1.0) / times)
        assert np.all(np.abs(sums[name] / times - table) < 6 * spread), name


def test_of_clear_records_it_is_the_likelihood_of_the_counts():
    records = network().sample(2000, seed=4)
    source = mq.tally(records)
    fitted = mq.learn.bayesian_network(source, STRUCTURE)
    logs = [
        math.log(table.probabilities[tuple(axis.code(row[axis.name]) for axis in table.axes)])
        for table in fitted.tables
        for row in records.to_dict("records")
    ]
    assert fitted.log_likelihood(source) == pytest.approx(sum(logs), rel=1e-10)
    free = sum((SIZES[v] - 1) * math.prod(SIZES[p] for p in parents) for v, parents in STRUCTURE.items())
    assert fitted.bic(source) == pytest.approx(sum(logs) - math.log(2000) / 2 * free, rel=1e-10)
    assert fitted.aic(source) == pytest.approx(sum(logs) - free, rel=1e-10)
    jointly = mq.learn.bayesian_network(source, STRUCTURE, method="likelihood")
    for one, other in zip(fitted.tables, jointly.tables, strict=True):
        np.testing.assert_allclose(one.probabilities, other.probabilities, atol=1e-4)


def test_sources_that_are_wrapped_or_merged_give_the_same_likelihood():
    known, masks = network(), policy("one by one")
    parts = [mq.tally(mq.simulate(known.sample(150, seed=s), masks, seed=s), masks) for s in (1, 2)]
    alone = sum(known.log_likelihood(part) for part in parts)
    assert known.log_likelihood(Merged(parts)) == pytest.approx(alone)
    assert known.log_likelihood(Cached(parts[0])) == pytest.approx(known.log_likelihood(parts[0]))


def test_the_fit_is_at_the_maximum_and_better_than_family_by_family():
    known, masks = network(), policy("one by one")
    source = mq.tally(mq.simulate(known.sample(4000, seed=7), masks, seed=8), masks)
    separate = mq.learn.bayesian_network(source, STRUCTURE, nonnegative=True)
    fitted = mq.learn.bayesian_network(source, STRUCTURE, method="likelihood")
    top = fitted.log_likelihood(source)
    assert top == pytest.approx(fitted.joint.log_likelihood)
    assert top > separate.log_likelihood(source)
    assert top > known.log_likelihood(source)
    generator = np.random.default_rng(9)
    for _ in range(20):  # no small change of all tables improves it
        changed = {}
        for table in fitted.tables:
            moved = table.probabilities * np.exp(0.02 * generator.standard_normal(table.probabilities.shape))
            changed[table.child.name] = moved / moved.sum(axis=-1, keepdims=True)
        assert mq.learn.known_network(fitted.schema, STRUCTURE, changed).log_likelihood(source) < top


def test_a_chance_at_0_does_not_stop_the_other_parameters():
    """The maximum has P(c = 1 | a = 1, b = 1) at 0: the scores of all other parameters are 0."""
    structure = {
        "a": (),
        "b": (),
        "c": ("a", "b"),
        "d": ("b",),
        "e": ("c", "d"),
        "f": ("c",),
        "g": ("e", "f"),
        "h": ("e",),
    }
    names, generator = list(structure), np.random.default_rng([7, 3])
    cells = np.indices((2,) * 8).reshape(8, -1)
    chances = np.ones(256)
    for node, parents in structure.items():
        first = generator.uniform(0.15, 0.85, (2,) * len(parents))
        columns = [cells[names.index(other)] for other in (*parents, node)]
        chances = chances * np.stack([first, 1 - first], axis=-1)[tuple(columns)]
    mask = np.array([[0.7, 0.3], [0.3, 0.7]])
    for axis in range(8):
        chances = np.apply_along_axis(mask.__matmul__, axis, chances.reshape((2,) * 8))
    counts = np.random.default_rng([4, 30, 3]).multinomial(20_000, chances.ravel() / chances.sum())
    factors = tuple(ReportFactor((node,), mask, cells[at]) for at, node in enumerate(names))
    joint = JointLikelihood(
        [ReportFactors(factors, counts.astype(float))], structure, dict.fromkeys(names, 2)
    )
    start = {node: np.full((2,) * (len(parents) + 1), 0.5) for node, parents in structure.items()}
    start = {node: table * [0.9, 1.1] for node, table in start.items()}
    fit = fit_tables(joint, start)
    assert fit.has_converged
    free = np.concatenate([table[..., 0].ravel() for table in fit.tables.values()])
    free = (free > 1e-5) & (free < 1 - 1e-5)
    assert not free.all()
    score, gram = np.zeros(len(free)), np.zeros((len(free),) * 2)
    for weights, _, families in joint.scores(fit.tables):
        scores = score_rows(fit.tables, families)
        score += scores @ weights
        gram += (scores * weights) @ scores.T
    score, gram = score[free], gram[np.ix_(free, free)]
    assert score @ np.linalg.solve(gram, score) < 1e-4  # twice what a step would still gain


def test_errors_are_smaller_than_family_by_family():
    known = mq.data.seven_nodes()
    masks = mq.Policy.build(
        known.schema, {name: mq.channels.symmetric(len(known.schema[name]), "0.2") for name in known.schema}
    )
    source = mq.tally(mq.simulate(known.sample(5000, seed=7), masks, seed=8), masks)
    separate = mq.learn.bayesian_network(source, known.structure)
    fitted = mq.learn.bayesian_network(source, known.structure, method="likelihood")
    ratio = [
        (one.stderr / other.stderr)[one.reliable].ravel()
        for one, other in zip(separate.tables, fitted.tables, strict=True)
    ]
    assert np.exp(np.log(np.concatenate(ratio)).mean()) > 1.1  # 1.2 to 1.6 in variance on such networks


@pytest.mark.parametrize("kind", ["one by one", "blocks"])
def test_some_variables_have_the_likelihood_of_their_own_reports(kind):
    known, masks = network(), policy(kind)
    source = mq.tally(mq.simulate(known.sample(300, seed=2), masks, seed=3), masks)
    some = mq.learn.known_network(
        mq.Schema({name: CATEGORIES[name] for name in "abc"}),
        {"a": (), "b": ("a",), "c": ("a",)},
        {name: known[name].probabilities for name in "abc"},
    )
    # the others summed out of the whole: d … h have no report in this sum
    joint = joint_chances(known).reshape(tuple(SIZES.values())).sum(axis=(3, 4, 5, 6, 7))
    total = 0.0
    for part in source.report_factors(list("abc")):
        likely = np.ones((part.records, 2, 3, 2))
        for factor in part.factors:
            shape = [SIZES[name] if name in factor.names else 1 for name in "abc"]
            likely = likely * factor.chances[factor.report].reshape(part.records, *shape)
        total += float(part.weights @ np.log((likely * joint).sum(axis=(1, 2, 3))))
    assert some.log_likelihood(source.select(list("abc"))) == pytest.approx(total)
    assert sum(part.weights.sum() for part in source.report_factors(list("abc"))) == 300


def test_queries_have_errors_by_the_delta_method():
    """50 runs: |z| of the mean and the ratio of the errors leave their limits with a chance below 1e-6."""
    known, masks = network(), policy("one by one")
    truth = known.query("a", {"h": "h1"})["a0"]
    found, stated = [], []
    for run in range(50):
        source = mq.tally(mq.simulate(known.sample(3000, seed=run), masks, seed=100 + run), masks)
        answer = mq.learn.bayesian_network(source, STRUCTURE, method="likelihood").query("a", {"h": "h1"})
        found.append(answer["a0"])
        stated.append(answer.stderr[0])
        lower, upper = answer.conf_int()
        assert np.all((lower > 0) & (upper < 1) & (lower < upper))
    spread = np.std(found, ddof=1)
    assert abs(np.mean(found) - truth) < 6 * spread / math.sqrt(50)
    assert 0.6 < spread / np.mean(stated) < 1.6
    assert "stderr" in answer.to_frame().columns
    with pytest.raises(InputError, match="method='likelihood'"):
        known.query("a").conf_int()


def test_polishing_never_lowers_the_bic_and_keeps_the_rules():
    known, masks = network(), policy("one by one")
    source = mq.tally(mq.simulate(known.sample(3000, seed=11), masks, seed=12), masks)
    steps = []
    found = mq.learn.structure(
        source,
        polish=True,
        required=[("a", "e")],
        forbidden=[("b", "a"), ("a", "b")],
        progress=lambda done, of: steps.append((done, of)),
    )
    assert found.bic[1] >= found.bic[0]
    assert ("a", "e") in found.links
    assert not {("b", "a"), ("a", "b")} & set(found.links)
    assert all(done <= of for done, of in steps)
    assert "polished by the joint likelihood" in found.summary()
    assert mq.learn.LearnedStructure.from_dict(found.to_dict()).bic == found.bic
    ordered = mq.learn.structure(source, list(SIZES), polish=True)
    place = list(SIZES)
    assert all(place.index(parent) < place.index(child) for parent, child in ordered.links)


def test_tables_alone_have_no_joint_likelihood():
    class Tables:
        """A source of tables: what a session of parties gives."""

        def __init__(self, source):
            self.schema, self.guarantee = source.schema, source.guarantee
            self.check, self.answer = source.check, source.answer

    source = Tables(mq.tally(network().sample(500, seed=1)))
    with pytest.raises(InputError, match="has tables, but not"):
        network().log_likelihood(source)
    with pytest.raises(InputError, match="has tables, but not"):
        mq.learn.structure(source, polish=True)
    with pytest.raises(InputError, match="omit the score"):
        mq.learn.structure(source, score="aic", polish=True)


def test_people_who_answered_alone_have_no_joint_likelihood():
    values = {"a": {"categories": ["x", "y"]}, "b": {"categories": [0, 1, "none"], "missing": "none"}}
    masks = mq.Policy.from_dict({"masquerade": 1, "variables": values})
    source = mq.tally(pd.DataFrame({"a": ["x", "y"] * 50, "b": [0, 1, None, 1] * 25}), schema=masks)
    parents = {"a": (), "b": ("a",)}
    with pytest.raises(InputError, match="missing='category'"):
        mq.learn.bayesian_network(source, parents, method="likelihood")
    found = mq.learn.bayesian_network(source, parents, method="likelihood", missing="category")
    assert found["b"].probabilities.shape == (2, 3)
