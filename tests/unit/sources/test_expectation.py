"""The mean of a function over true records: the table's answer, without the table."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from tests.conformance.cases import BEYOND, SPECS, case
from tests.statistical.checks import assert_unbiased, assert_variance

import masquerade as mq
from masquerade.core.errors import InputError, NotEstimable, QueryRefused, SchemaError, SingularChannel
from masquerade.disguising.seeded import simulate_codes
from masquerade.sources import expectation
from masquerade.sources.expectation import expect
from masquerade.sources.records import Records

OVER = [("A",), ("B", "A"), ("D", "C", "B"), ("C", "A", "D", "B")]


def some_function(schema, over, seed=1):
    """Return a function of codes with arbitrary values, and the same as a table."""
    table = np.random.default_rng(seed).normal(size=schema.shape(over))
    return lambda codes: table[tuple(codes.T)], table


def by_table(source, table, over):
    """Return mean and standard error from the whole estimated table, whose covariance is tested elsewhere."""
    (counts,) = source.answer([mq.Query(by=over)])
    mean = float((table * counts.values).sum()) / counts.total
    return mean, np.sqrt(counts.covariance.quadratic(table - mean)) / counts.total


@pytest.mark.parametrize("over", OVER, ids="".join)
@pytest.mark.parametrize("name", list(SPECS))
@pytest.mark.parametrize("weighted", [False, True])
def test_every_policy_gives_what_the_whole_table_gives(name, over, weighted):
    source = mq.tally(case(name).disguised, case(name).policy)
    if weighted:
        weights = np.random.default_rng(2).exponential(size=source.n)
        source = Records(source.codes, source.policy, weights)
    f, table = some_function(source.schema, over)
    if name in BEYOND and BEYOND[name] <= set(over):
        with pytest.raises(SingularChannel, match="does not follow"):
            expect(source, f, over)
        return
    value, error = expect(source, f, over)
    wanted, claimed = by_table(source, table, over)
    np.testing.assert_allclose(value, wanted, rtol=1e-9)
    # weighted records of dealt blocks or groups: what does not vary between them is known to O(1/n)
    dealt = name in {"blocks", "more reports than truths"}
    np.testing.assert_allclose(error, claimed, rtol=0.05 if weighted and dealt else 1e-9)


def test_small_portions_change_nothing(monkeypatch):
    source = mq.tally(case("strata").disguised, case("strata").policy)
    f, _ = some_function(source.schema, OVER[3])
    whole = expect(source, f, OVER[3])
    monkeypatch.setattr(expectation, "CHUNK", 7)
    np.testing.assert_allclose(expect(source, f, OVER[3]), whole, rtol=1e-12)


def test_clear_records_give_the_plain_mean_and_its_error():
    source = mq.tally(case("joint").clear, schema=case("joint").policy)
    f, table = some_function(source.schema, ("D", "B"))
    values = table[source.codes["D"], source.codes["B"]]
    wanted = values.mean(), values.std() / np.sqrt(len(values))
    np.testing.assert_allclose(expect(source, f, ("D", "B")), wanted, rtol=1e-12)


def test_undisguised_variables_cost_no_truths():
    """Forty clear binaries have 2⁴⁰ combinations, a record has one."""
    names = [f"v{i}" for i in range(40)]
    schema = mq.Schema({"h": [0, 1], **{name: [0, 1] for name in names}})
    policy = mq.Policy.build(schema, {"h": mq.channels.binary("0.2", "0.2")})
    generator = np.random.default_rng(3)
    codes = {name: generator.integers(0, 2, 500).astype(np.uint8) for name in schema}
    source = Records(codes, policy)
    rows = []

    def f(truths):
        rows.append(len(truths))
        return truths[:, 0] * truths[:, 1:].sum(axis=1)

    value, _ = expect(source, f, schema.names)
    assert sum(rows) <= 2 * 500
    G = policy.group("h").channel.inverse
    others = sum(codes[name].astype(int) for name in names)
    assert value == pytest.approx(np.mean(G[codes["h"], 1] * others), rel=1e-12)


@pytest.mark.parametrize("name", ["independent", "not lumpable", "more reports than truths", "strata"])
def test_signed_draws_are_unbiased_and_say_how_far_they_stray(name, monkeypatch):
    """Over 300 seeds, the draws alone spread by what the standard error has beyond that of the exact mean."""
    source = mq.tally(case(name).disguised[:200], case(name).policy)
    f, _ = some_function(source.schema, OVER[3])
    value, stderr = expect(source, f, OVER[3])
    monkeypatch.setattr(expectation, "MOST_TRUTHS", 0)
    monkeypatch.setattr(expectation, "DRAWS", 200 * 8)
    drawn = np.array([expect(source, f, OVER[3], seed=seed) for seed in range(300)])
    assert len(set(drawn[:, 0])) > 250
    assert_unbiased(drawn[:, 0], value)
    # Σ(ĝ − v̂)²/n² is short of the draws' own variance by 1/n of it: v̂ is drawn too
    assert_variance(drawn[:, 0], (drawn[:, 1] ** 2 - stderr**2) / (1 - 1 / 200))
    assert expect(source, f, OVER[3], seed=5) == expect(source, f, OVER[3], seed=5)


def test_many_disguised_variables_are_drawn_not_enumerated():
    names = [f"v{i}" for i in range(20)]  # 2²⁰ truths a record
    policy = mq.Policy.build(
        {name: [0, 1] for name in names}, {name: mq.channels.binary("0.01", "0.01") for name in names}
    )
    generator = np.random.default_rng(4)
    codes = {name: (generator.random(40_000) < 0.5).astype(np.uint8) for name in names}
    source = Records(simulate_codes(codes, policy, generator), policy)
    truth = np.mean(sum(codes[name].astype(float) for name in names) > 10)
    value, stderr = expect(source, lambda x: x.sum(axis=1) > 10, names)
    # z = 4.9 at 1e-6; the error beyond that of sampling 40,000 records is small but there
    assert abs(value - truth) < 4.9 * stderr
    assert np.sqrt(truth * (1 - truth) / 40_000) < stderr < 0.02


def test_the_error_multiplies_over_disguised_variables():
    """Ten binaries, n = 10,000: about .035, .24 and 6 at p = .1, .2 and .3 (methods, section 3).

    With independent signs as f, E g² = Π Σ_x G[x̃, x]² = (((1 − p)² + p²)/(1 − 2p)²)¹⁰, whatever the reports.
    """
    names = [f"v{i}" for i in range(10)]
    generator = np.random.default_rng(5)
    codes = {name: generator.integers(0, 2, 10_000).astype(np.uint8) for name in names}
    for p, about in ((0.1, 0.035), (0.2, 0.24), (0.3, 6.0)):
        policy = mq.Policy.build(
            {name: [0, 1] for name in names}, {name: mq.channels.binary(str(p), str(p)) for name in names}
        )
        squares = []
        for _ in range(40):
            signs = generator.choice([-1.0, 1.0], 1024)
            _, stderr = expect(
                Records(codes, policy), lambda x, signs=signs: signs[x @ (1 << np.arange(10))], names
            )
            squares.append(stderr**2)
        derived = (((1 - p) ** 2 + p**2) / (1 - 2 * p) ** 2) ** 10 / 10_000
        # the squared mean, at most 1/n of the sum of squares in expectation, is taken off
        assert_unbiased(squares, derived * (1 - 1e-4))
        assert np.sqrt(derived) == pytest.approx(about, rel=0.05)


def test_bad_questions_are_refused():
    source = mq.tally(case("independent").disguised, case("independent").policy)
    with pytest.raises(SchemaError, match="no variable 'Z'"):
        expect(source, lambda x: x[:, 0], ["Z"])
    with pytest.raises(InputError, match="finite numbers, one per row"):
        expect(source, lambda x: x, ["A"])
    with pytest.raises(InputError, match="finite numbers"):
        expect(source, lambda x: np.full(len(x), np.nan), ["A"])
    empty = Records({name: column[:0] for name, column in source.codes.items()}, source.policy)
    with pytest.raises(InputError, match="no records"):
        expect(empty, lambda x: x[:, 0], ["A"])
    weightless = Records(source.codes, source.policy, np.zeros(source.n))
    with pytest.raises(InputError, match="have weight 0"):
        expect(weightless, lambda x: x[:, 0], ["A"])
    blind = mq.Policy.build({"a": [0, 1]}, {"a": mq.channels.binary("0.5", "0.5")})
    with pytest.raises(SingularChannel, match="a:"):
        expect(Records({"a": np.zeros(3, np.uint8)}, blind), lambda x: x[:, 0], ["a"])


def test_a_constant_needs_no_variables():
    source = mq.tally(case("joint").disguised, case("joint").policy)
    assert expect(source, lambda x: np.full(len(x), 3.0), ()) == (3.0, 0.0)


def flipped(groups, theta, n=400, weights=None):
    """Five yes/no variables that are flipped in groups, one disguised alone, one clear."""
    names = list("abcde")
    policy = mq.Policy.build(
        {**dict.fromkeys(names, (0, 1)), "s": (0, 1, 2), "k": (0, 1)},
        {
            tuple(names): mq.channels.flip([2] * 5, theta, groups),
            "s": mq.channels.symmetric(3, "0.2"),
        },
    )
    generator = np.random.default_rng(8)
    codes = {
        name: generator.integers(0, 3 if name == "s" else 2, n).astype(np.uint8) for name in policy.schema
    }
    held = None if weights is None else generator.uniform(0.5, 2, n)
    return Records(simulate_codes(codes, policy, generator), policy, held)


@pytest.mark.parametrize("groups", [[range(5)], [(0, 3), (1, 2, 4)]])
@pytest.mark.parametrize("weights", [None, "some"])
@pytest.mark.parametrize("over", ["abcdesk", "sak", "dbsc"])
def test_flipped_groups_are_read_by_few_truths_as_by_the_whole_matrix(groups, weights, over, monkeypatch):
    records = flipped(groups, ["0.7"] if len(groups) == 1 else ["0.7", "0.2"], weights=weights)
    values = np.random.default_rng(1).normal(size=[len(records.schema[name]) for name in over])

    def f(codes):
        return values[tuple(codes.T)]

    quick = expectation.mean_of(records, f, tuple(over))
    monkeypatch.setattr(expectation, "MOST_TERMS", 0)
    expectation._mixtures.cache_clear()
    slow = expectation.mean_of(records, f, tuple(over))
    np.testing.assert_allclose([quick.value, quick.stderr], [slow.value, slow.stderr], rtol=1e-10)


def test_the_accuracy_of_fourteen_flipped_attributes_takes_megabytes():
    """Zhan et al. (2004): one group of 14; its matrix alone would have 2 GB."""
    names = [f"x{i}" for i in range(14)]
    schema = {**dict.fromkeys(names, (0, 1)), "c": (0, 1)}
    generator = np.random.default_rng(2)
    target = generator.integers(0, 2, 3000)
    codes = {name: np.where(generator.random(3000) < 0.7, target, 1 - target) for name in names} | {
        "c": target
    }
    clear = Records(
        {name: code.astype(np.uint8) for name, code in codes.items()}, mq.Policy.clear(mq.Schema(schema))
    )
    model = mq.learn.naive_bayes(clear, "c")
    truth = mq.evaluate.accuracy(model, clear).value

    def source(theta):
        policy = mq.Policy.build(schema, {tuple(names): mq.channels.flip([2] * 14, theta)})
        return Records(simulate_codes(clear.codes, policy, generator), policy)

    disguised = source("0.75")
    tracemalloc.start()
    try:
        found = mq.evaluate.accuracy(model, disguised)
        assert tracemalloc.get_traced_memory()[1] < 100e6
    finally:
        tracemalloc.stop()
    assert abs(found.value - truth) < 5 * found.stderr
    assert found.stderr < 0.03
    with pytest.raises(NotEstimable, match="unrelated-question design"):
        mq.evaluate.accuracy(model, source("0.5"))
    with pytest.raises(QueryRefused, match="unrelated-question design"):
        mq.learn.naive_bayes(source("0.5"), "c")
