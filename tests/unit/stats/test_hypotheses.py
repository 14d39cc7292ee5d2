"""Tests against textbooks on clear counts, and against matrices on disguised ones."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from benchmarks.statistics_coverage import Survey, symmetric
from scipy import stats
from statsmodels.stats.contingency_tables import SquareTable, Table
from statsmodels.stats.multitest import multipletests

import masquerade as mq
from masquerade.core.errors import InputError
from masquerade.plan import power
from masquerade.stats.estimates import TestResult

ORDERED = np.array([[30.0, 70.0], [45.0, 80.0], [60.0, 60.0]])
SQUARE = np.array([[20.0, 5.0, 7.0], [11.0, 30.0, 4.0], [9.0, 12.0, 25.0]])
AXES = {"dose": (0, 1, 2), "y": ("yes", "no")}
RATERS = {"first": ("l", "m", "h"), "second": ("l", "m", "h")}


def clear(counts, axes):
    return Survey(counts, axes, [None] * counts.ndim).table_of(counts)


def test_a_trend_of_clear_records_is_the_textbooks():
    found = mq.stats.trend(clear(ORDERED, AXES), "y", "dose")
    book = Table(ORDERED).test_ordinal_association(col_scores=np.array([1, 0]))
    assert abs(found.statistic) == pytest.approx(abs(book.zscore), rel=0.02)
    assert "y = yes rises along dose" in found.summary()


def test_a_trend_of_disguised_records_is_a_contrast():
    survey = Survey(ORDERED, AXES, [None, symmetric(2, 0.2)])
    table = survey.table(2000, np.random.default_rng(1))
    found = mq.stats.trend(table, "y", "dose", scores=[0, 1, 5])
    s = np.array([0, 1, 5]) - table.values.sum(axis=1) @ [0, 1, 5] / 2000
    t = np.array([1, 0]) - table.values[:, 0].sum() / 2000
    by_hand = mq.stats.contrast(table, np.outer(s, t))
    null = np.sqrt(by_hand.stderr[0] ** 2 + by_hand.values[0] ** 2 / 2000)
    assert found.statistic == pytest.approx(by_hand.values[0] / null)
    assert found.p_value == pytest.approx(2 * stats.norm.sf(abs(found.statistic)))


def test_equal_margins_of_clear_records_are_stuarts_and_mcnemars():
    found = mq.stats.marginal_homogeneity(clear(SQUARE, RATERS), "first", "second")
    book = SquareTable(SQUARE).homogeneity()
    assert (found.statistic, found.df) == pytest.approx((book.statistic, book.df))
    pair = clear(SQUARE[:2, :2], {"a": (0, 1), "b": (0, 1)})
    mcnemar = mq.stats.marginal_homogeneity(pair, "a", "b")
    gap, sum_ = 5 - 11, 5 + 11
    assert mcnemar.statistic == pytest.approx(gap**2 / sum_)
    assert "McNemar" in mcnemar.summary()


def test_independence_given_others_sums_over_their_categories():
    generator = np.random.default_rng(3)
    counts = generator.multinomial(3000, np.full(12, 1 / 12)).reshape(2, 2, 3).astype(float)
    table = clear(counts, {"g": (0, 1), "a": (0, 1), "b": (0, 1, 2)})
    found = mq.stats.independence(table, "a", "b", given="g")
    book = [stats.chi2_contingency(block, correction=False) for block in counts]
    assert found.df == 4
    assert found.p_value == pytest.approx(stats.chi2.sf(sum(test.statistic for test in book), 4))
    assert "given g" in found.heading


def test_many_pairs_are_adjusted_together():
    generator = np.random.default_rng(4)
    counts = generator.multinomial(3000, np.full(12, 1 / 12)).reshape(2, 2, 3).astype(float)
    table = clear(counts, {"g": (0, 1), "a": (0, 1), "b": (0, 1, 2)})
    found = mq.stats.associations(table)
    assert found.names == ("g – a", "g – b", "a – b")
    assert found["a – b"].p_value == mq.stats.independence(table, "a", "b").p_value
    np.testing.assert_allclose(found.p_adjusted, multipletests(found.p_values, method="holm")[1])
    one = mq.stats.associations(table, "a", method="bh")
    np.testing.assert_allclose(one.p_adjusted, multipletests(one.p_values, method="fdr_bh")[1])
    assert "Beyond chance at 5%" in one.summary()
    assert one.plot().get_xlabel().startswith("−log")


def test_p_values_without_a_test_are_left_out():
    found = mq.stats.adjusted_p_values([0.01, np.nan, 0.02], "bh")
    np.testing.assert_allclose(found, [0.02, np.nan, 0.02])
    with pytest.raises(InputError, match="'holm' or 'bh'"):
        mq.stats.adjusted_p_values([0.1], "sidak")


def test_means_and_quantiles_of_clear_records():
    counts = np.array([[10.0, 20.0, 30.0, 40.0], [40.0, 30.0, 20.0, 10.0]])
    table = clear(counts, {"g": ("a", "b"), "age": ("[0, 10)", "[10, 20)", "[20, 30)", "[30, 40]")})
    found = mq.stats.mean(table, "age", by="g")
    values = np.repeat([5.0, 15.0, 25.0, 35.0], counts[0].astype(int))
    assert found.values[0] == pytest.approx(values.mean())
    assert found.stderr[0] == pytest.approx(values.std() / 10)
    median = mq.stats.quantile(table, "age", by="g")
    assert median.values.tolist() == pytest.approx([20 + 20 / 3, 20 - 20 / 3])
    assert np.all((median.lower < median.values) & (median.values < median.upper))
    low = mq.stats.quantile(table, "age", 0.05, where={"g": "a"})
    assert low.values[0] == pytest.approx(5)
    numbers = mq.stats.mean(table, "age", scores=[1, 2, 3, 4])
    assert numbers.values[0] == pytest.approx(2.5)


def test_scores_are_needed_for_words():
    table = clear(SQUARE, RATERS)
    with pytest.raises(InputError, match="not numbers"):
        mq.stats.mean(table, "first")
    with pytest.raises(InputError, match="3 finite numbers"):
        mq.stats.mean(table, "first", scores=[1, 2])
    with pytest.raises(InputError, match="lack: h"):
        mq.stats.mean(table, "first", scores={"l": 1, "m": 2})
    with pytest.raises(InputError, match="between 0 and 1"):
        mq.stats.quantile(table, "first", 1.5)
    assert mq.stats.mean(table, "first", scores={"l": 1, "m": 2, "h": 3}).n == 123
    found = mq.stats.quantile(table, "first", edges=[0, 1, 2, 3])
    assert 0 < found.values[0] < 3


def test_a_contrast_needs_a_weight_for_every_cell():
    with pytest.raises(InputError, match="one weight per cell"):
        mq.stats.contrast(clear(SQUARE, RATERS), [1.0, 2.0])


def test_people_needed_are_those_of_the_planned_power_at_the_same_truth():
    matrix = np.kron(mq.channels.binary(Fraction(1, 5)).matrix, mq.channels.binary(Fraction(1, 10)).matrix)
    reports = power.PairReports((2, 2), ((1.0, matrix),))
    truth = power.associated_table(np.array([0.4, 0.6]), np.array([0.3, 0.7]), phi=0.3)
    n = 2000
    expected = 2 * n * reports.divergence(truth) + 1  # of the deviance, nearly: non-centrality and df
    found = TestResult("t", expected, 1.0, 0.0, n)
    assert found.sample_size() == pytest.approx(power.people_needed(reports, truth), abs=1)
    assert found.sample_size(0.95) > found.sample_size(0.8) > found.sample_size(0.5)
    assert TestResult("t", 0.7, 1.0, 0.4, n).sample_size() is None
    with pytest.raises(InputError, match="power"):
        found.sample_size(1.2)
