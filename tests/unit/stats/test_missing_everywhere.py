"""Missing answers in effects, tests, quantiles, imputations, bounds and regressions."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import masquerade as mq
from masquerade.core.errors import InputError

SIGMAS = 5.5  # false alarms below 4e-8 a comparison
N = 40_000


def _channel(flip: str | None) -> dict[str, object]:
    return {} if flip is None else {"channel": {"kind": "symmetric", "p": flip}}


def _policy(flip: str | None, driver: str | None = None) -> mq.Policy:
    """Return a policy of a driver a, an outcome b and numbers v that may be missing, and groups g."""
    return mq.Policy.from_dict(
        {
            "masquerade": 1,
            "variables": {
                "a": {"categories": ["no", "yes"], **_channel(driver)},
                "b": {
                    "categories": ["no", "yes", "not stated", "refused"],
                    "missing": ["not stated", "refused"],
                    **_channel(flip),
                },
                "v": {"categories": [0, 1, 2, 3, "refused"], "missing": "refused", **_channel(flip)},
                "g": {"categories": ["u", "w", "empty"], "missing": "empty", **_channel(flip)},
            },
        }
    )


def _complete(n: int, rng: np.random.Generator) -> pd.DataFrame:
    a = rng.random(n) < 0.5
    b = rng.random(n) < np.where(a, 0.60, 0.12)
    g = rng.random(n) < np.where(b, 0.7, 0.4)
    v = rng.binomial(3, np.where(g, 0.6, 0.4))
    return pd.DataFrame(
        {
            "a": np.where(a, "yes", "no"),
            "b": np.where(b, "yes", "no").astype(object),
            "v": v.astype(object),
            "g": np.where(g, "u", "w").astype(object),
        }
    )


def _with_missing(people: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """Return people some of whom did not answer b (60% or 10%, by a), v and g (10% each)."""
    result, n = people.copy(), len(people)
    result.loc[rng.random(n) < np.where(people["a"] == "yes", 0.6, 0.1), "b"] = None
    result.loc[rng.random(n) < 0.1, "v"] = None
    result.loc[rng.random(n) < 0.1, "g"] = None
    return result


def _source(people: pd.DataFrame, flip: str | None, driver: str | None = None) -> mq.Tally:
    policy = _policy(flip, driver)
    if flip is None and driver is None:
        return mq.tally(people, schema=policy)
    return mq.tally(mq.disguise(people, policy), policy)


def _answers(people: pd.DataFrame, names: list[str]) -> mq.Tally:
    """Return the complete records of some variables, without missing categories."""
    categories = {name: list(_policy(None).schema[name].answers) for name in names}
    policy = {"masquerade": 1, "variables": {name: {"categories": categories[name]} for name in names}}
    return mq.tally(people[names].dropna(), schema=mq.Policy.from_dict(policy))


@pytest.fixture(scope="module")
def people() -> pd.DataFrame:
    rng = np.random.default_rng(11)
    return _with_missing(_complete(3000, rng), rng)


def test_effects_of_clear_records_are_those_of_people_who_answered(people: pd.DataFrame) -> None:
    source = _source(people, None)
    for verb in (mq.stats.difference, mq.stats.ratio, mq.stats.odds_ratio):
        found = verb(source, "b", "g")
        plain = verb(_answers(people, ["b", "g"]), "b", "g", category="yes")
        assert found.values == pytest.approx(plain.values)
        assert found.stderr == pytest.approx(plain.stderr, rel=1e-3)
        assert "b is missing (not stated, refused) for 3" in found.notes[0]
        assert "g is missing (empty) for" in found.notes[0]
        assert found.notes[0].endswith("Only people who answered are counted.")
    strata = mq.stats.mantel_haenszel(source, "b", "a", "g")
    plain = mq.stats.mantel_haenszel(_answers(people, ["b", "a", "g"]), "b", "a", "g", category="yes")
    assert strata.values == pytest.approx(plain.values)
    assert strata.p_values == pytest.approx(plain.p_values, abs=1e-6)
    counted = mq.stats.difference(source, "b", "g", category="yes", missing="category")
    assert len(counted.values) == 2  # w and empty, against u
    assert "counted as categories" in counted.notes[0]


def test_tests_of_clear_records_are_those_of_people_who_answered(people: pd.DataFrame) -> None:
    source = _source(people, None)
    pair = _answers(people, ["b", "v"])
    found, plain = mq.stats.independence(source, "b", "v"), mq.stats.independence(pair, "b", "v")
    assert found.df == plain.df == 3
    assert found.statistic == pytest.approx(plain.statistic)
    assert found.p_value == pytest.approx(plain.p_value)
    many = mq.stats.associations(source, [("b", "v"), ("b", "g")])
    assert many["b – v"].statistic == pytest.approx(plain.statistic)
    assert many.notes[0].count("b is missing") == 1
    rising, other = mq.stats.trend(source, "b", "v"), mq.stats.trend(pair, "b", "v", category="yes")
    assert rising.statistic == pytest.approx(other.statistic, rel=1e-3)
    model = mq.stats.loglinear(source, "b + v")
    assert model.deviance == pytest.approx(mq.stats.loglinear(pair, "b + v").deviance)
    assert "Only people who answered" in model.notes[0]
    counted = mq.stats.independence(source, "b", "v", missing="category")
    assert counted.df == 8  # nobody is "refused" in these records, so that two missing categories are left


@pytest.mark.parametrize("driver", [None, "0.25"])
def test_disguised_effects_are_unbiased_among_people_who_answered(driver: str | None) -> None:
    rng = np.random.default_rng(12)
    whole = _complete(N, rng)
    people = _with_missing(whole, rng)
    source = _source(people, "0.15", driver)
    # whether b is missing depends on a alone, so b given a is the same among those who answered
    found = mq.stats.difference(source, "b", "a", reference="no")
    assert abs(found.values[0] - (0.60 - 0.12)) < SIGMAS * found.stderr[0]
    joint = mq.stats.shares(source, ["b", "g"], missing="answered")
    assert joint.values.sum() == pytest.approx(1.0)
    truth = people.dropna(subset=["b", "g"]).value_counts(["b", "g"], normalize=True)
    for (b, g), value, error in zip(joint.labels, joint.values, joint.stderr, strict=True):
        assert abs(value - truth[b, g]) < SIGMAS * error
    test = mq.stats.independence(source, "b", "g", given="a")
    assert test.p_value < 1e-6


@pytest.mark.parametrize("driver", [None, "0.25"])
def test_median_at_random_is_right_where_that_of_the_answers_is_not(driver: str | None) -> None:
    """People with a = yes have larger numbers and answer seldom: the median of the answers is too small."""
    rng = np.random.default_rng(13)
    a = rng.random(N) < 0.5
    v = rng.binomial(3, np.where(a, 0.85, 0.25)).astype(object)
    truth = float(np.median(v.astype(float)))
    v[rng.random(N) < np.where(a, 0.8, 0.05)] = None
    source = _source(
        pd.DataFrame({"a": np.where(a, "yes", "no"), "b": "no", "v": v, "g": "u"}), "0.1", driver
    )
    at_random = mq.stats.quantile(source, "v", missing="at-random", given="a")
    answered = mq.stats.quantile(source, "v")
    assert at_random.values[0] == truth == 2.0
    assert answered.upper[0] < truth
    assert "at random given a" in at_random.notes[0]


def test_bounds_hold_whatever_made_answers_missing() -> None:
    """People who would say yes, or a large number, refuse more often: no assumption but bounds hold."""
    rng = np.random.default_rng(14)
    whole = _complete(N, rng)
    people = whole.copy()
    people.loc[rng.random(N) < np.where(whole["b"] == "yes", 0.5, 0.05), "b"] = None
    large = whole["v"].astype(int).to_numpy() >= 2
    people.loc[rng.random(N) < np.where(large, 0.4, 0.05), "v"] = None
    source = _source(people, "0.1")
    shares = mq.stats.shares(source, "b", missing="bounds")
    assert shares.labels == (("no", "lowest"), ("no", "highest"), ("yes", "lowest"), ("yes", "highest"))
    low, high = shares.values[2:]
    errors = shares.stderr[2:]
    truth = (whole["b"] == "yes").mean()
    assert low - SIGMAS * errors[0] < truth < high + SIGMAS * errors[1]
    assert high - low == pytest.approx(people["b"].isna().mean(), abs=SIGMAS * float(errors.sum()))
    wrong = mq.stats.shares(source, "b", missing="at-random", given="a")
    assert abs(wrong.values[1] - truth) > 10 * wrong.stderr[1]  # which cannot be known from the answers
    mean = mq.stats.mean(source, "v", missing="bounds")
    numbers = whole["v"].astype(float)
    assert mean.lower[0] - SIGMAS * mean.stderr[0] < numbers.mean() < mean.upper[1] + SIGMAS * mean.stderr[1]
    empty = people["v"].isna()
    for value, error, filled in zip(mean.values, mean.stderr, (0, 3), strict=True):
        assert abs(value - numbers.where(~empty, filled).mean()) < SIGMAS * error
    median = mq.stats.quantile(source, "v", missing="bounds")
    assert median.values[0] <= numbers.median() <= median.values[1]
    assert "Nothing is assumed" in median.notes[0]


def test_imputations_leave_missing_answers_empty_or_draw_them() -> None:
    rng = np.random.default_rng(15)
    people = _with_missing(_complete(4000, rng), rng)[["a", "b"]].assign(v=0, g="u")
    source = _source(people, "0.1", "0.1")
    empty = mq.stats.impute(source, ["b"], m=2)
    assert abs(empty.frames[0]["b"].isna().mean() - people["b"].isna().mean()) < 0.06
    assert "Only people who answered" in empty.notes[0]
    named = mq.stats.impute(source, ["b"], m=2, missing="category")
    assert set(named.frames[0]["b"]) <= {"no", "yes", "not stated", "refused"}
    drawn = mq.stats.impute(source, ["b"], m=5, missing="at-random", given="a")
    assert not any(frame["b"].isna().any() for frame in drawn)
    pooled = drawn.pool(lambda f: ([(f["b"] == "yes").mean()], [0.25 / len(f)]))
    assert abs(pooled.params.iloc[0] - 0.36) < SIGMAS * max(pooled.bse.iloc[0], 0.012)
    with pytest.raises(InputError, match="need an assumption"):
        mq.stats.impute(source, ["b"], m=2, missing="bounds")  # type: ignore[arg-type]


def test_what_makes_no_sense_is_refused_with_what_to_do_instead(people: pd.DataFrame) -> None:
    source = _source(people, None)
    with pytest.raises(InputError, match="name those variables in 'given'"):
        mq.stats.difference(source, "b", "g", missing="at-random")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="There are bounds for shares, means and quantiles"):
        mq.stats.independence(source, "b", "g", missing="bounds")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="is not a number"):
        mq.stats.trend(source, "b", "v", category="yes", missing="category")
    with pytest.raises(InputError, match="no position in the order"):
        mq.stats.quantile(source, "v", missing="category")
    with pytest.raises(InputError, match="all categories of one variable"):
        mq.stats.shares(source, ["b", "g"], missing="bounds")
    with pytest.raises(InputError, match="not a category of a regression"):
        mq.stats.logistic(source, "b ~ g", missing="category")  # type: ignore[typeddict-item]
    with pytest.raises(InputError, match="bounds for shares"):
        mq.stats.logistic(source, "b ~ g", missing="bounds")  # type: ignore[typeddict-item]
    with pytest.raises(InputError, match="Add v to the formula"):
        mq.stats.logistic(source, "b ~ g", missing="at-random", given="v")
    assert mq.stats.shares(source, "b").values.sum() == pytest.approx(1.0)


BETA = np.array([-0.5, 1.0, 0.5])  # of y ~ x + z


def _regression_people(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Return people of whom x is missing for 35% or 10%, by y, and visits for 15%."""
    z = rng.random(n) < 0.5
    x = rng.random(n) < np.where(z, 0.6, 0.3)
    y = rng.random(n) < 1 / (1 + np.exp(-(BETA[0] + BETA[1] * x + BETA[2] * z)))
    visits = np.minimum(rng.poisson(np.exp(0.2 + 0.4 * z)), 4).astype(object)
    visits[rng.random(n) < 0.15] = None
    shown = np.where(x, "yes", "no").astype(object)
    shown[rng.random(n) < np.where(y, 0.35, 0.1)] = None
    return pd.DataFrame(
        {"z": np.where(z, "b", "a"), "x": shown, "y": np.where(y, "yes", "no"), "visits": visits}
    )


def _regression_source(people: pd.DataFrame, x: str | None, y: str | None) -> mq.Tally:
    policy = mq.Policy.from_dict(
        {
            "masquerade": 1,
            "variables": {
                "z": {"categories": ["a", "b"]},
                "x": {"categories": ["no", "yes", "not stated"], "missing": "not stated", **_channel(x)},
                "y": {"categories": ["no", "yes"], **_channel(y)},
                "visits": {"categories": [0, 1, 2, 3, 4, "refused"], "missing": "refused", **_channel(y)},
            },
        }
    )
    if x is None and y is None:
        return mq.tally(people, schema=policy)
    return mq.tally(mq.disguise(people, policy), policy)


def test_regression_of_clear_records_is_that_of_complete_records() -> None:
    people = _regression_people(3000, np.random.default_rng(21))
    found = mq.stats.logistic(_regression_source(people, None, None), "y ~ x + z")
    plain = mq.stats.logistic(mq.tally(people[["x", "y", "z"]].dropna()), "y[yes] ~ x + z")
    assert found.values == pytest.approx(plain.values, abs=1e-6)
    assert found.bse.to_numpy() == pytest.approx(plain.bse.to_numpy(), abs=1e-6)
    assert found.n == people["x"].notna().sum()
    assert "x is missing (not stated) for 2" in found.notes[-1]
    assert found.notes[-1].endswith("Only people who answered are counted.")
    number = np.where(np.arange(3000) % 10 == 0, np.nan, np.arange(3000) % 7)
    clear = mq.stats.linear(
        _regression_source(people, None, None), "number ~ z", covariates={"number": number}
    )
    assert clear.n == 2700
    assert "number is missing (empty) for 10%" in clear.notes[-1]


@pytest.mark.parametrize(("x", "y"), [(None, None), ("0.2", None), (None, "0.1"), ("0.15", "0.1")])
def test_regression_at_random_is_unbiased_where_complete_ones_are_not(x: str | None, y: str | None) -> None:
    """Whether x is missing depends on y: the intercept of those who answered is about −0.82, not −0.5."""
    people = _regression_people(N, np.random.default_rng(22))
    source = _regression_source(people, x, y)
    at_random = mq.stats.logistic(source, "y ~ x + z", missing="at-random", given=["y", "z"])
    assert np.all(np.abs(at_random.values - BETA) < SIGMAS * at_random.bse.to_numpy())
    assert "at random given y, z" in at_random.notes[-1]
    assert at_random.n == N
    answered = mq.stats.logistic(source, "y ~ x + z")
    assert abs(answered.values[0] - BETA[0]) > 5 * answered.bse.iloc[0]
    complete = mq.stats.logistic(mq.tally(people[["x", "y", "z"]].dropna()), "y[yes] ~ x + z")
    assert np.all(np.abs(answered.values - complete.values) < SIGMAS * answered.bse.to_numpy())
    # predictions are about answers: no category "not stated"
    assert {row[0] for row in answered.predict().labels} == {"no", "yes"}


@pytest.mark.parametrize("flip", [None, "0.1"])
def test_outcomes_that_are_missing_are_left_out_of_every_regression(flip: str | None) -> None:
    people = _regression_people(N, np.random.default_rng(23))
    source = _regression_source(people, None, flip)
    poisson = mq.stats.poisson(source, "visits ~ z")
    errors = poisson.bse.to_numpy()
    if flip is not None:  # a disguised count is "4 or more", so that cutting off at 4 does no harm
        assert np.all(np.abs(poisson.values - np.array([0.2, 0.4])) < SIGMAS * errors)
    complete = people.dropna(subset=["visits"])
    plain = mq.tally(complete[["z", "visits"]].astype({"visits": int}))
    for verb in (mq.stats.poisson, mq.stats.proportional_odds, mq.stats.multinomial, mq.stats.linear):
        found, truth = verb(source, "visits ~ z"), verb(plain, "visits ~ z")
        assert found.terms == truth.terms
        if verb is mq.stats.poisson and flip is not None:
            continue  # the clear count 4 is exactly 4
        assert np.all(np.abs(found.values - truth.values) < SIGMAS * found.bse.to_numpy() + 1e-6)


def test_regression_of_a_table_leaves_missing_answers_out() -> None:
    people = _regression_people(3000, np.random.default_rng(24))
    (table,) = _regression_source(people, "0.1", "0.1").answer([mq.Query(by=("x", "z", "y"))])
    found = mq.stats.logistic(table, "y ~ x + z")
    assert found.terms == ("Intercept", "x[T.yes]", "z[T.b]")
    complete = mq.stats.logistic(mq.tally(people[["x", "y", "z"]].dropna()), "y[yes] ~ x + z")
    assert np.all(np.abs(found.values - complete.values) < SIGMAS * found.bse.to_numpy())
    with pytest.raises(InputError, match="only tables are known"):
        mq.stats.logistic(table, "y ~ x + z", missing="at-random", given="y")
