"""Intervals of counts and shares with noise hold; the whole study is benchmarks/noise_coverage.py."""

import numpy as np
import pandas as pd
import pytest
from tests.statistical.checks import assert_coverage, assert_unbiased, assert_variance

import masquerade as mq

CELLS = np.array([[0.35, 0.15], [0.3, 0.2]])
SCHEMA = mq.Schema({"a": [0, 1], "b": [0, 1]})
RECORDS, RUNS = 2000, 400


@pytest.mark.parametrize("epsilon", [0.1, 1, 3])
def test_counts_and_shares_with_noise_are_unbiased_and_covered(epsilon):
    """False-alarm rate 1e-6 for each of the four comparisons; coverage within .02 of the level."""
    rng = np.random.default_rng(3)
    values, variances, counts, shares = [], [], [], []
    expected = RECORDS * CELLS
    of_rows = (CELLS / CELLS.sum(axis=1, keepdims=True)).ravel()
    for _ in range(RUNS):
        drawn = rng.multinomial(RECORDS, CELLS.ravel())
        frame = pd.DataFrame({"a": np.repeat([0, 0, 1, 1], drawn), "b": np.repeat([0, 1, 0, 1], drawn)})
        source = mq.Noisy(mq.tally(frame, schema=SCHEMA), epsilon=epsilon, tables=6)
        [table] = source.answer([mq.Query(by=("a", "b"))])
        values.append(table.values)
        variances.append(table.covariance.diagonal())
        low, high = table.conf_int()
        counts.append((low <= expected) & (expected <= high))
        rows = mq.stats.shares(table, "b", by="a").to_frame()
        shares.append((rows["lower"].to_numpy() <= of_rows) & (of_rows <= rows["upper"].to_numpy()))
    assert_unbiased(values, expected)
    assert_variance(values, variances)
    assert_coverage(counts, 0.95, 0.02)
    assert_coverage(shares, 0.95, 0.02)
