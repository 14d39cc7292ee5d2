"""Records in memory: exactness, limits, weights, and what they refuse."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import masquerade as mq
from masquerade.core.errors import InputError, QueryRefused
from masquerade.core.linear_covariance import CovariancePart, LinearCovariance
from masquerade.disguising.seeded import simulate_codes
from masquerade.sources.query_plan import QueryLayout
from masquerade.sources.records import Records


def random_channel(generator: np.random.Generator, truths: int, reports: int) -> mq.Channel:
    weights = generator.integers(1, 30, (truths, reports))
    weights[np.arange(truths), np.arange(truths)] += 40
    return mq.channels.matrix([[Fraction(int(w), int(row.sum())) for w in row] for row in weights])


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 3), st.integers(0, 2), st.booleans())
def test_given_records_covariance_is_theorem_2(seed, k1, k2, more, joint):
    """Cov(N̂ | D) = Gᵀ(Σ_l N_l V_l)G when observed counts stand at their expectation PᵀN."""
    generator = np.random.default_rng(seed)
    schema = mq.Schema({"a": list(range(k1)), "b": list(range(k2))})
    if joint:
        policy = mq.Policy.build(schema, {("a", "b"): random_channel(generator, k1 * k2, k1 * k2)})
        P = policy.groups[0].channel.matrix
    else:
        policy = mq.Policy.build(
            schema, {"a": random_channel(generator, k1, k1 + more), "b": random_channel(generator, k2, k2)}
        )
        P = np.kron(policy.groups[0].channel.matrix, policy.groups[1].channel.matrix)
    N = generator.integers(0, 1000, k1 * k2).astype(float)
    V = [np.diag(row) - np.outer(row, row) for row in P]
    G = (
        np.kron(*(g.channel.inverse for g in policy.groups))
        if not joint
        else policy.groups[0].channel.inverse
    )
    wanted = G.T @ sum(count * v for count, v in zip(N, V, strict=True)) @ G

    plan = QueryLayout(policy.groups, schema).plan(mq.Query(by=("a", "b")))
    observed = (P.T @ N).reshape(plan.observed_shape)
    values = plan.maps.apply(observed)
    np.testing.assert_allclose(values.ravel(), N, atol=1e-6)
    covariance = LinearCovariance((CovariancePart(observed, plan.maps),), values, values, int(N.sum()))
    np.testing.assert_allclose(covariance.dense(kind="given_records"), wanted, atol=1e-6 * (1 + N.sum()))
    sampling = np.diag(N) - np.outer(N, N) / max(N.sum(), 1)
    np.testing.assert_allclose(covariance.dense(), wanted + sampling, atol=1e-6 * (1 + N.sum()))


def small_source(rows: int = 4000, **options) -> Records:
    policy = mq.Policy.build(
        {"a": ["x", "y"], "b": [0, 1, 2]},
        {"a": mq.channels.binary(0.1, 0.25), "b": mq.channels.symmetric(3, 0.3)},
    )
    generator = np.random.default_rng(6)
    codes = {
        "a": generator.integers(0, 2, rows).astype(np.uint8),
        "b": generator.integers(0, 3, rows).astype(np.uint8),
    }
    return Records(simulate_codes(codes, policy, generator), policy, **options)


def test_merging_equal_rows_changes_no_answer():
    queries = [mq.Query(by=("a", "b")), mq.Query(by="b", where={"a": "x"}), mq.Query(by="a")]
    fresh = [small_source().answer([query])[0] for query in queries]
    source = small_source()
    source.answer(queries)
    assert source._stores[0].multiplicity is not None
    for wanted, table in zip(fresh, source.answer(queries), strict=True):
        np.testing.assert_allclose(table.values, wanted.values)
        np.testing.assert_allclose(table.stderr(), wanted.stderr())


def test_weights_of_one_change_nothing_and_doubling_them_doubles_counts_and_errors():
    query = mq.Query(by="b", where={"a": "x"})
    (plain,) = small_source().answer([query])
    (ones,) = small_source(weights=np.ones(4000)).answer([query])
    (twos,) = small_source(weights=np.full(4000, 2.0)).answer([query])
    for kind in ("population", "given_records"):
        np.testing.assert_allclose(ones.stderr(kind), plain.stderr(kind))
        np.testing.assert_allclose(twos.stderr(kind), 2 * plain.stderr(kind))
    np.testing.assert_allclose(twos.values, 2 * plain.values)
    np.testing.assert_allclose(ones.conf_int().lower, plain.conf_int().lower)


@pytest.mark.parametrize("weights", [np.ones(3), np.full(4000, -1.0), np.full(4000, np.nan)])
def test_bad_weights_are_refused(weights):
    with pytest.raises(InputError, match="Survey weights"):
        small_source(weights=weights)


def test_no_records():
    source = small_source(0)
    table, sliced = source.answer([mq.Query(by=("a", "b")), mq.Query(by="b", where={"a": "y"})])
    for each in (table, sliced, table.nonnegative("mle"), table.nonnegative("simplex")):
        assert not each.values.any()
        assert np.isnan(each.stderr()).all()  # nothing is known of nobody: 0 would say otherwise


def test_one_category():
    policy = mq.Policy.build({"a": ["only"]}, {"a": mq.channels.symmetric(1, 0.3)})
    (table,) = Records({"a": np.zeros(7, np.uint8)}, policy).answer([mq.Query(by="a")])
    assert table.values.tolist() == [7]
    assert table.stderr().tolist() == [0]


def test_no_noise_is_the_clear_count_with_the_multinomial_error():
    policy = mq.Policy.build({"a": [0, 1, 2]}, {"a": mq.channels.symmetric(3, 0)})
    (table,) = Records({"a": np.array([0, 0, 1, 2, 2, 2], np.uint8)}, policy).answer([mq.Query(by="a")])
    assert table.values.tolist() == [2, 1, 3]
    assert table.stderr("given_records").tolist() == [0, 0, 0]
    np.testing.assert_allclose(table.stderr() ** 2, [2 * 4 / 5, 1 * 5 / 5, 3 * 3 / 5])


def test_too_many_cells_are_refused_before_anything_is_counted():
    names = [f"v{i}" for i in range(12)]
    policy = mq.Policy.clear(mq.Schema({name: list(range(5)) for name in names}))
    source = Records({name: np.zeros(3, np.uint8) for name in names}, policy)
    (refusal,) = source.check([mq.Query(by=names)])
    assert refusal.code == "too_many_cells"
    with pytest.raises(
        QueryRefused,
        match=r"244,140,625 cells, 1\.8 GiB .*: query fewer variables together, merge categories",
    ):
        source.answer([mq.Query(by="v0"), mq.Query(by=names)])


def test_thirteen_variables_flipped_together_are_read_through_marginals():
    names = [f"q{i}" for i in range(13)]
    policy = mq.Policy.build(
        {name: ["yes", "no"] for name in names}, {tuple(names): mq.channels.flip([2] * 13, "0.7")}
    )
    generator = np.random.default_rng(8)
    codes = {name: (generator.random(5000) < 0.3 + 0.04 * i).astype(np.uint8) for i, name in enumerate(names)}
    query = mq.Query(by=("q3", "q11"))
    (table,) = Records(simulate_codes(codes, policy, generator), policy).answer([query])
    (truth,) = Records(codes, policy.without_channels()).answer([query])
    # four cells at 1e-6: |z| < 5.3
    assert np.all(np.abs(table.values - truth.values) < 5.3 * table.stderr("given_records"))


def test_the_misfit_test_accepts_the_policy_and_rejects_a_wrong_one():
    policy = mq.Policy.build({"a": list(range(4))}, {"a": mq.channels.symmetric(4, 0.1)})
    wrong = mq.Policy.build({"a": list(range(4))}, {"a": mq.channels.symmetric(4, 0.6)})
    codes = {"a": np.repeat(np.array([0, 1, 2], np.uint8), 3000)}
    reports = simulate_codes(codes, policy, 11)
    assert Records(reports, policy).misfit(["a"]).p_value > 0.001
    assert Records(reports, wrong).misfit(["a"]).p_value < 1e-6


def test_most_likely_counts_equal_the_moments_inside_and_stay_possible_at_the_boundary():
    (table,) = small_source().answer([mq.Query(by=("a", "b"))])
    assert np.all(table.values > 0)
    np.testing.assert_allclose(table.nonnegative("mle").values, table.values, rtol=1e-6)
    policy = mq.Policy.build({"a": list(range(6))}, {"a": mq.channels.symmetric(6, 0.6)})
    reports = simulate_codes({"a": np.zeros(300, np.uint8)}, policy, 2)
    (edge,) = Records(reports, policy).answer([mq.Query(by="a")])
    assert edge.values.min() < 0
    likely = edge.nonnegative("mle").values
    assert likely.min() == 0
    assert likely.sum() == pytest.approx(300)


def test_codes_must_fit_the_policy():
    policy = mq.Policy.clear(mq.Schema({"a": [0, 1], "b": [0, 1]}))
    with pytest.raises(InputError, match="one column of codes"):
        Records({"a": np.zeros(3, np.uint8)}, policy)
