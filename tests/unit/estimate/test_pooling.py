"""Samples of one population under different policies are estimated together."""

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

import masquerade as mq
from masquerade.core.errors import InputError
from masquerade.estimate.pooling import add_reports, pool_reports
from masquerade.estimate.reports import Reports

LABELS = ["a", "b", "c"]
SHARES = np.array([0.03, 0.30, 0.67])
X = mq.Query(by="x")
XY = mq.Query(by=["x", "y"])


def policy(p=None, q=None):
    columns = {"x": LABELS, "y": ["no", "yes"]}
    channels = {}
    if p is not None:
        channels["x"] = mq.channels.symmetric(3, p)
    if q is not None:
        channels["y"] = mq.channels.binary(q, q)
    return mq.Policy.build(columns, channels)


def people(n, generator, shares=SHARES):
    x = generator.choice(3, n, p=shares)
    y = generator.random(n) < np.array([0.8, 0.4, 0.1])[x]
    return pd.DataFrame(
        {"x": pd.Categorical.from_codes(x, LABELS), "y": pd.Categorical.from_codes(y * 1, ["no", "yes"])}
    )


def sample(n, generator, p=None, q=None, shares=SHARES):
    rule = policy(p, q)
    frame = people(n, generator, shares)
    if p is not None or q is not None:
        frame = mq.simulate(frame, rule, seed=int(generator.integers(2**31)))
    return mq.tally(frame, rule)


def three(generator):
    return [sample(300, generator), sample(2000, generator, "0.4", "0.7"), sample(3000, generator, "0.5")]


def test_the_pool_is_unbiased_and_surer_than_its_surest_sample():
    generator = np.random.default_rng(1)
    runs = 80
    found, claimed, projected = np.zeros((3, runs, 3))
    for run in range(runs):
        [table] = mq.Merged(three(generator)).answer([X])
        found[run], claimed[run] = table.values / table.n, table.stderr() / table.n
        projected[run] = table.nonnegative().values / table.n
    off = (found.mean(axis=0) - SHARES) / (found.std(axis=0) / np.sqrt(runs))
    assert np.all(np.abs(off) < 5)
    assert np.all(np.abs((projected.mean(axis=0) - SHARES) / (projected.std(axis=0) / np.sqrt(runs))) < 5)
    np.testing.assert_allclose(found.std(axis=0), np.sqrt((claimed**2).mean(axis=0)), rtol=0.25)
    surest = np.sqrt(SHARES * (1 - SHARES) / 300)
    assert np.all(claimed.mean(axis=0) < surest)


def test_adding_unbiased_tables_stays_available():
    sources = three(np.random.default_rng(2))
    [table] = mq.Merged(sources, of="records").answer([XY])
    parts = [source.answer([XY])[0] for source in sources]
    np.testing.assert_allclose(table.values, sum(part.values for part in parts))
    variances = [part.covariance.diagonal() for part in parts]
    np.testing.assert_allclose(table.covariance.diagonal(), sum(variances))
    [pooled] = mq.Merged(sources).answer([XY])
    assert pooled.n == table.n == 5300
    assert np.all(pooled.stderr() < table.stderr())
    assert pooled.total == pytest.approx(5300)
    with pytest.raises(InputError, match="'population' or 'records'"):
        mq.Merged(sources, of="people")


def test_samples_under_one_policy_are_those_of_the_joined_records():
    generator = np.random.default_rng(3)
    rule = policy("0.3", "0.8")
    frame = mq.simulate(people(900, generator), rule, seed=3)
    [joined] = mq.tally(frame, rule).answer([XY])
    [pooled] = mq.Merged([mq.tally(frame.iloc[i::3], rule) for i in range(3)]).answer([XY])
    for generators in ([["x"], ["y"]], [["x", "y"]], [["y"]]):
        one, other = joined.fit(generators), pooled.fit(generators)
        np.testing.assert_array_equal(one.expected, other.expected)
        assert (one.deviance, one.df, one.pearson) == (other.deviance, other.df, other.pearson)
    np.testing.assert_allclose(pooled.values, joined.values, rtol=1e-12)
    np.testing.assert_array_equal(pooled.nonnegative().values, joined.nonnegative().values)


def test_the_fit_is_that_of_a_general_optimizer():
    generator = np.random.default_rng(4)
    sources = [sample(200, generator), sample(500, generator, "0.4", "0.7"), sample(400, generator, "0.2")]
    [table] = mq.Merged(sources).answer([XY])
    fit = table.fit([["x"], ["y"]])
    likelihoods = [source.answer([XY])[0].evidence for source in sources]

    def objective(at):
        x, y = np.exp([*at[:2], 0.0]), np.exp([at[2], 0.0])
        shares = np.outer(x / x.sum(), y / y.sum())
        return sum(
            each.deviance(shares * source.n) for each, source in zip(likelihoods, sources, strict=True)
        )

    best = minimize(objective, np.zeros(3), method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-9})
    assert fit.deviance == pytest.approx(best.fun, abs=1e-5)
    assert fit.converged
    # reports of all samples that are free, less the parameters of independence
    assert fit.df == 18 - 3 - 3


def test_conditions_and_sums_are_pooled():
    generator = np.random.default_rng(5)
    sources = [sample(4000, generator), sample(4000, generator, "0.4", "0.8")]
    [table] = mq.Merged(sources).answer([mq.Query(by="x", where={"y": "yes"})])
    [clear] = sources[0].answer([mq.Query(by="x", where={"y": "yes"})])
    truth = 8000 * SHARES * [0.8, 0.4, 0.1]
    assert np.all(np.abs(table.values - truth) < 5 * table.stderr())
    assert np.all(table.stderr() / 8000 < clear.stderr() / 4000)
    [whole] = mq.Merged(sources).answer([XY])
    np.testing.assert_allclose(whole.marginal("x").values.sum(), 8000)


def test_sources_of_other_people_are_named():
    generator = np.random.default_rng(6)
    sources = [sample(3000, generator), sample(9000, generator, "0.3", shares=np.array([0.3, 0.3, 0.4]))]
    with pytest.warns(UserWarning, match=r"samples of one population \(by x, p = .*of='records'"):
        mq.Merged(sources).answer([X])


def test_samples_without_reports_are_weighed_by_their_precision():
    generator = np.random.default_rng(7)
    weighted = people(500, generator).assign(w=generator.choice([0.5, 1.5], 500))
    sources = [mq.tally(weighted, policy(), weights="w"), sample(3000, generator, "0.5")]
    [table] = mq.Merged(sources).answer([X])
    parts = [source.answer([X])[0] for source in sources]
    shares = [part.stderr() / part.n for part in parts]
    assert float((table.stderr() / table.n).max()) < min(float(share.max()) for share in shares)
    assert np.all(np.abs(table.values / table.n - SHARES) < 5 * table.stderr() / table.n)
    assert np.all(table.stderr("given_records") > 0)
    again = pickle.loads(pickle.dumps(table))  # noqa: S301  (written here)
    np.testing.assert_array_equal(again.conf_int().lower, table.conf_int().lower)


def test_an_empty_source_changes_nothing():
    generator = np.random.default_rng(8)
    full, empty = sample(300, generator, "0.4"), mq.tally(people(0, generator), policy())
    [alone], [pooled] = full.answer([X]), mq.Merged([empty, full]).answer([X])
    np.testing.assert_array_equal(alone.values, pooled.values)


def test_groups_disguised_together_and_alone_are_pooled():
    generator = np.random.default_rng(9)
    columns = {"x": LABELS, "y": ["no", "yes"]}
    together = mq.Policy.build(columns, {("x", "y"): mq.channels.symmetric(6, "0.3")})
    frame = mq.simulate(people(4000, generator), together, seed=9)
    sources = [mq.tally(frame, together), sample(4000, generator, "0.3", "0.8")]
    [table] = mq.Merged(sources).answer([XY])
    for source in sources:
        [part] = source.answer([XY])
        assert np.all(table.stderr() / table.n < part.stderr() / part.n)


def test_reports_of_other_questions_are_not_pooled():
    generator = np.random.default_rng(10)
    clear, noisy = ([s.answer([q])[0].evidence.parts[0] for q in (X, XY)] for s in three(generator)[:2])
    assert pool_reports([clear[0], noisy[1]]) is None
    assert add_reports([clear[0], noisy[0]]) is None
    assert isinstance(add_reports([clear[0], clear[0]]), Reports)
