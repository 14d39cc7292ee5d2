"""Multiple imputation: proper, by Rubin's rules, and no more precise than the table."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from benchmarks.statistics_coverage import BINARY, log_odds
from scipy import stats

import masquerade as mq
from masquerade.core.errors import InputError


@pytest.fixture(scope="module")
def source():
    generator = np.random.default_rng(1)
    codes = generator.choice(4, 1500, p=[0.3, 0.2, 0.15, 0.35])
    people = pd.DataFrame({"x": np.array(["a", "b"])[codes // 2], "y": np.array(["yes", "no"])[codes % 2]})
    policy = mq.Policy.build(BINARY, {"y": mq.channels.binary("0.2")})
    return mq.tally(mq.simulate(people, policy, seed=3), policy, engine="memory")


def test_rubins_rules_are_the_textbooks():
    values, variances = np.array([1.0, 1.4, 1.3, 1.7]), np.array([0.04, 0.05, 0.06, 0.05])
    found = mq.stats.rubin(values, variances, ["slope"])
    W, B = variances.mean(), values.var(ddof=1)
    T = W + 1.25 * B
    df = 3 * (1 + W / (1.25 * B)) ** 2
    assert found.params["slope"] == pytest.approx(1.35)
    assert found.bse["slope"] == pytest.approx(np.sqrt(T))
    assert found.df["slope"] == pytest.approx(df)
    assert found.conf_int().loc["slope"].tolist() == pytest.approx(
        [1.35 - stats.t.ppf(0.975, df) * np.sqrt(T), 1.35 + stats.t.ppf(0.975, df) * np.sqrt(T)]
    )
    assert found.pvalues["slope"] == pytest.approx(2 * stats.t.sf(1.35 / np.sqrt(T), df))
    assert found.missing["slope"] == pytest.approx(1.25 * B / T)
    assert "Rubin" in found.summary()
    same = mq.stats.rubin([1.0, 1.0], [0.04, 0.04])
    assert same.bse.iloc[0] == pytest.approx(0.2)
    assert same.df.iloc[0] == np.inf


def test_imputations_are_proper_and_agree_with_the_table(source):
    found = mq.stats.impute(source, m=200, seed=4)
    assert len(found) == 200
    assert list(found.frames[0].columns) == ["x", "y"]
    # what is clear stays as it is
    reported = np.array(["a", "b"])[source.codes["x"]]
    assert all((frame["x"].to_numpy() == reported).all() for frame in found)
    shares = np.array([(frame["y"] == "yes").mean() for frame in found])
    table = mq.stats.shares(source, "y")
    # improper imputations, from one best guess of the shares, would vary by the draws of truths alone
    best = table.values[0]
    given = np.array(
        [0.8 * best / (0.8 * best + 0.2 * (1 - best)), 0.2 * best / (0.2 * best + 0.8 * (1 - best))]
    )
    alone = np.sqrt((given * (1 - given))[source.codes["y"]].sum()) / source.n
    assert shares.std() > 1.25 * alone
    assert abs(shares.mean() - best) < 0.5 * table.stderr[0]
    pooled = found.pool(log_odds)
    odds = mq.stats.odds_ratio(source, "y", "x")
    assert pooled.values[0] == pytest.approx(np.log(odds.values[0]), abs=odds.stderr[0] / odds.values[0])
    assert pooled.bse.iloc[0] == pytest.approx(odds.stderr[0] / odds.values[0], rel=0.15)


def test_imputations_of_a_list_experiment_are_what_its_people_may_have_meant():
    generator = np.random.default_rng(6)
    people = pd.DataFrame(
        {"items": generator.binomial(1, 0.5, 500), "x": generator.choice(["yes", "no"], 500, p=[0.4, 0.6])}
    )
    variables = {"items": [0, 1], "x": ["yes", "no"]}
    policy = mq.Policy.build(variables, {("items", "x"): mq.channels.list_experiment(1)})
    seen = mq.simulate(people, policy, seed=2)
    source = mq.tally(seen, policy)
    found = mq.stats.impute(source, m=20)
    treated = (seen["group"] == "treated").to_numpy()
    for frame in found:
        counted = frame["items"].to_numpy() + (treated & (frame["x"] == "yes").to_numpy())
        assert (counted == seen["answer"].to_numpy()).all()
    table = mq.stats.shares(source, "x")
    shares = found.pool(lambda frame: ((frame["x"] == "yes").mean(), (frame["x"] == "yes").var() / 500))
    assert abs(shares.values[0] - table.values[0]) < table.stderr[0]
    assert shares.bse.iloc[0] == pytest.approx(table.stderr[0], rel=0.4)


def test_what_is_no_imputation_is_refused(source):
    with pytest.raises(InputError, match="'m' must be at least 2"):
        mq.stats.impute(source, m=1)
    (table,) = source.answer([mq.Query(by=("x", "y"))])
    with pytest.raises(InputError, match="source of records"):
        mq.stats.impute(table)
    with pytest.raises(InputError, match="a variance for each estimate"):
        mq.stats.rubin([1.0, 2.0], [0.1])
    weighted = type(source)(source.codes, source.policy, np.ones(source.n))
    with pytest.raises(InputError, match="without survey weights"):
        mq.stats.impute(weighted)
