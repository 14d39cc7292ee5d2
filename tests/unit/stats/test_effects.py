"""Percentages and effects: textbook values on clear counts, the delta method on disguised ones, the edges."""

from __future__ import annotations

import inspect
import pickle

import numpy as np
import pandas as pd
import pytest
from benchmarks.statistics_coverage import BINARY, Survey, symmetric
from scipy import stats
from statsmodels.stats.contingency_tables import StratifiedTable, Table2x2
from statsmodels.stats.proportion import confint_proportions_2indep, proportion_confint

import masquerade as mq
from masquerade.core.errors import InputError, SchemaError
from masquerade.core.table_statistics import TableStatistics
from masquerade.stats._tables import category_of

COUNTS = np.array([[40.0, 160.0], [75.0, 125.0]])
STRATA = np.array([[[30, 70], [20, 80]], [[25, 40], [30, 90]], [[10, 15], [4, 21]]], dtype=float)
THREE = {"s": ("u", "v", "w"), "x": ("a", "b"), "y": ("yes", "no")}


def clear(counts, axes=None):
    axes = axes or BINARY
    return Survey(counts, axes, [None] * counts.ndim).table_of(counts)


def disguised(seed=0, n=4000, p=0.15):
    survey = Survey([[0.3, 0.2], [0.15, 0.35]], BINARY, [symmetric(2, p)] * 2)
    return survey.table(n, np.random.default_rng(seed))


def test_shares_of_clear_records_are_wilsons():
    found = mq.stats.shares(clear(COUNTS), "y")
    lower, upper = proportion_confint(115, 400, method="wilson")
    assert (found.values[0], found.lower[0], found.upper[0]) == pytest.approx((115 / 400, lower, upper))
    rows = mq.stats.shares(clear(COUNTS), "y", by="x")
    lower, upper = proportion_confint([40, 75], 200, method="wilson")
    np.testing.assert_allclose(rows.lower[[0, 2]], lower, rtol=5e-3)
    np.testing.assert_allclose(rows.upper[[0, 2]], upper, rtol=5e-3)
    np.testing.assert_allclose(rows.stderr[0], np.sqrt(0.2 * 0.8 / 200))


def test_joint_shares_sum_to_one_and_columns_are_rows_the_other_way_round():
    table = disguised()
    joint = mq.stats.shares(table, ["x", "y"])
    assert joint.values.sum() == pytest.approx(1)
    columns = mq.stats.shares(table, "x", by="y")
    assert columns.values[:2] == pytest.approx(table.values[:, 0] / table.values[:, 0].sum())


def test_a_condition_is_a_slice():
    table = disguised()
    alone = mq.stats.shares(table, "y", where={"x": "b"})
    rows = mq.stats.shares(table, "y", by="x")
    np.testing.assert_allclose(alone.values, rows.values[2:])
    np.testing.assert_allclose(alone.stderr, rows.stderr[2:], rtol=1e-6)


def test_the_difference_of_clear_records_is_newcombes():
    found = mq.stats.difference(clear(COUNTS), "y", "x")
    lower, upper = confint_proportions_2indep(75, 200, 40, 200, method="newcomb")
    assert found.values[0] == pytest.approx(35 / 200)
    assert (found.lower[0], found.upper[0]) == pytest.approx((lower, upper), rel=5e-3)


def test_the_p_value_of_clear_records_is_pearsons():
    table = clear(COUNTS)
    pearson = stats.chi2_contingency(COUNTS, correction=False)
    for verb in (mq.stats.difference, mq.stats.ratio, mq.stats.odds_ratio):
        assert verb(table, "y", "x").p_values[0] == pytest.approx(pearson.pvalue, rel=1e-9)
    assert mq.stats.independence(table, "x", "y").p_value == pytest.approx(pearson.pvalue, rel=1e-9)


def test_the_odds_ratio_of_clear_records_is_the_textbooks():
    found = mq.stats.odds_ratio(clear(COUNTS), "y", "x")
    book = Table2x2(COUNTS[::-1])
    assert found.values[0] == pytest.approx(book.oddsratio)
    assert found.stderr[0] / found.values[0] == pytest.approx(book.log_oddsratio_se)
    assert (found.lower[0], found.upper[0]) == pytest.approx(book.oddsratio_confint(), rel=0.05)
    risk = mq.stats.ratio(clear(COUNTS), "y", "x")
    assert risk.values[0] == pytest.approx(book.riskratio)
    assert (risk.lower[0], risk.upper[0]) == pytest.approx(book.riskratio_confint(), rel=0.05)


def test_errors_of_disguised_records_are_the_delta_methods_by_hand():
    table = disguised()
    N, C = table.values.ravel(), table.covariance.dense()
    weights = np.array([1, -1, -1, 1]) / N
    odds = mq.stats.odds_ratio(table, "y", "x", reference="b")
    assert np.log(odds.values[0]) == pytest.approx(np.log(N[0] * N[3] / N[1] / N[2]))
    assert odds.stderr[0] / odds.values[0] == pytest.approx(np.sqrt(weights @ C @ weights))
    a, b = N[0] + N[1], N[2] + N[3]
    gradient = np.array([N[1] / a**2, -N[0] / a**2, -N[3] / b**2, N[2] / b**2])
    gap = mq.stats.difference(table, "y", "x", reference="b")
    assert gap.stderr[0] == pytest.approx(np.sqrt(gradient @ C @ gradient))
    assert gap.covariance[0, 0] == pytest.approx(gap.stderr[0] ** 2)


def test_mantel_haenszel_and_its_homogeneity_are_the_textbooks():
    found = mq.stats.mantel_haenszel(clear(STRATA, THREE), "y", "x", "s", reference="b")
    book = StratifiedTable(list(STRATA))
    assert found.values[0] == pytest.approx(book.oddsratio_pooled)
    assert found.stderr[0] / found.values[0] == pytest.approx(book.logodds_pooled_se, rel=0.03)
    assert found.p_values[0] == pytest.approx(book.test_null_odds(correction=False).pvalue, rel=0.15)
    each = mq.stats.odds_ratio(clear(STRATA, THREE), "y", "x", given="s", reference="b")
    np.testing.assert_allclose(each.values, [Table2x2(s).oddsratio for s in STRATA])
    assert "df 2" in found.notes[-1]
    even = mq.stats.mantel_haenszel(clear(np.stack([STRATA[0]] * 3), THREE), "y", "x", "s")
    assert "Deviance 0.00" in even.notes[-1]


def test_a_prevalence_beyond_zero_has_no_odds_ratio_and_says_so():
    survey = Survey([[0.5, 0.5], [0.5, 0.5]], BINARY, [None, symmetric(2, 0.2)])
    table = survey.table_of([[15, 85], [40, 60]])
    found = mq.stats.odds_ratio(table, "y", "x")
    assert np.isnan(found.values[0])
    assert found.upper[0] == np.inf
    assert found.lower[0] > 0
    assert "undetermined" in found.summary()
    ratio = mq.stats.ratio(table, "y", "x")
    assert np.isnan(ratio.values[0])
    assert ratio.upper[0] == np.inf
    assert found.to_dict()["rows"][0]["odds ratio"] is None


def test_hardly_any_records_are_told():
    survey = Survey([[0.5, 0.5], [0.5, 0.5]], BINARY, [symmetric(2, 0.4)] * 2)
    found = mq.stats.shares(survey.table_of([[21, 22], [32, 31]]), "y", by="x")
    assert "for reliable shares" in found.summary()


def test_what_cannot_be_compared_is_refused():
    table = disguised()
    with pytest.raises(SchemaError, match="no category means yes"):
        mq.stats.difference(table, "x", "y")
    with pytest.raises(InputError, match="made nonnegative"):
        mq.stats.shares(table.nonnegative("clip"), "y")
    with pytest.raises(InputError, match="give mq"):
        mq.stats.shares([1, 2], "y")
    with pytest.raises(InputError, match="within categories"):
        mq.stats.mantel_haenszel(table, "y", "x", ())


def test_results_are_values_that_show_themselves():
    found = mq.stats.difference(disguised(), "y", "x")
    again = pickle.loads(pickle.dumps(found))  # noqa: S301  (our own)
    assert again.summary() == found.summary() == repr(found)
    assert found.params["b − a"] == found.values[0]
    assert list(found.conf_int().columns) == ["lower", "upper"]
    assert found.cov_params().shape == (1, 1)
    assert "<table" in found._repr_html_()
    assert "%" in found._repr_html_()
    assert len(found.to_frame()) == len(found) == 1
    assert found.plot().get_xlabel() == "difference in percentage points, 95% intervals"
    adjusted = found.adjust("bh")
    assert "p_adjusted" in adjusted.to_frame()


def test_statistics_of_one_table_are_its_methods():
    frame = pd.DataFrame({"a": ["x", "y"] * 50, "b": ["yes"] * 30 + ["no"] * 70, "c": [0, 1, 1, 2] * 25})
    (table,) = mq.tally(frame).answer([mq.Query(by=("a", "b", "c"))])
    for name, asked in {
        "shares": ("b", "a"),
        "difference": ("b", "a"),
        "ratio": ("b", "a"),
        "odds_ratio": ("b", "a"),
        "mantel_haenszel": ("b", "a", "c"),
        "independence": ("a", "b"),
        "associations": (),
        "trend": ("b", "c"),
        "mean": ("c", "a"),
        "quantile": ("c", 0.5),
    }.items():
        own = getattr(table, name)(*asked)
        assert own.to_dict() == getattr(mq.stats, name)(table, *asked).to_dict()
    for name in vars(TableStatistics):
        if not name.startswith("_"):
            [_, *own] = inspect.signature(getattr(mq.CountTable, name)).parameters.values()
            [_, *of_function] = inspect.signature(getattr(mq.stats, name)).parameters.values()
            assert own == of_function
    assert table.contrast(np.ones(table.values.shape)).values[0] == pytest.approx(100)


def test_yes_is_known_in_the_languages_of_surveys():
    for labels, code in ((("nein", "Ja"), 1), (("Oui", "non"), 0), (("no", "sí"), 1), ((0, 1), 1)):
        assert category_of(mq.Variable("x", labels), None) == code
    with pytest.raises(SchemaError, match="no category means yes"):
        category_of(mq.Variable("x", ("left", "right")), None)
    with pytest.raises(SchemaError, match="not a plain yes/no variable"):
        category_of(mq.Variable("x", ("Yes", "No", "not stated")), None)


def test_intervals_of_differences_are_possible_and_the_estimate_stays_unbiased():
    """Thirty records under a thick mask: estimates may be outside [−1, 1], intervals are inside."""
    schema = {"a": ["x", "y"], "b": ["u", "v"]}
    policy = mq.Policy.build(schema, {name: mq.channels.binary("2/5") for name in schema})
    frame = pd.DataFrame({"a": ["x"] * 15 + ["y"] * 15, "b": ["u"] * 15 + ["v"] * 15})
    beyond = 0
    for seed in range(40):
        source = mq.tally(mq.simulate(frame, policy, seed=seed), policy)
        result = mq.stats.difference(source, "a", "b", category="x")
        if np.isnan(result.values[0]):
            continue
        beyond += abs(result.values[0]) > 1
        assert -1 <= result.lower[0] <= result.upper[0] <= 1
    assert beyond  # not clipped
