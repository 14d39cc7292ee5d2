"""A party that swaps its columns is noticed with the power that docs/incentives.md states."""

from __future__ import annotations

import math
import re
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

import masquerade as mq

PAGE = Path(__file__).parents[2] / "docs" / "incentives.md"
LEVEL, SIGMAS = 0.98, 4.75  # as on the page
ALARM = 1e-6  # false alarms of this file's tests
RUNS = 300
SWAPPED, TWICE = 0.5, 0.75  # agreement on a fair binary column
POLICY = mq.Policy.build(
    {"north": (0, 1), "south": (0, 1)}, dict.fromkeys(("north", "south"), mq.channels.binary("0.25"))
)


def power(agreement, n):
    """Return the probability of an alarm: reports agree with probability 0.375 + 0.25·A."""
    q = 0.375 + 0.25 * agreement
    error = 4 * math.sqrt(q * (1 - q) / n)
    return NormalDist().cdf((LEVEL - agreement) / error - SIGMAS)


def is_alarm(frame, seed):
    source = mq.tally(mq.simulate(frame, POLICY, seed), POLICY)
    (table,) = source.answer([mq.Query(by=("north", "south"))])
    same = np.eye(2) / table.n
    return (same * table.values).sum() + SIGMAS * table.covariance.quadratic(same) ** 0.5 < LEVEL


def count_alarms(n, lie):
    generator = np.random.default_rng(n)
    alarms = 0
    for seed in range(RUNS):
        north = generator.integers(0, 2, n)
        south = lie(north, generator)
        alarms += is_alarm(pd.DataFrame({"north": north, "south": south}), seed)
    return alarms


def test_the_page_states_the_power():
    rows = re.findall(
        r"^\| ([\d,]+) \| (?:more than )?([\d.]+) \| ([\d.]+) \|$", PAGE.read_text("utf-8"), re.MULTILINE
    )
    assert len(rows) == 4
    for people, *stated in rows:
        n = int(people.replace(",", ""))
        for text, agreement in zip(stated, (SWAPPED, TWICE), strict=True):
            exact = power(agreement, n)
            if text == "0.9999":
                assert exact > 0.99985
            else:
                assert f"{exact:.{len(text) - 2}f}" == text


@pytest.mark.parametrize("n", [500, 2000])
def test_swapped_columns_are_noticed_with_the_stated_power(n):
    """Alarms are binomial; a power that is off by chance alone fails with probability 1e-6.

    The share of alarms may differ from the normal approximation of one estimate by 0.02.
    """
    alarms = count_alarms(n, lambda north, generator: generator.permutation(north))
    low, high = (max(0.0, power(SWAPPED, n) - 0.02), min(1.0, power(SWAPPED, n) + 0.02))
    assert binom.sf(alarms - 1, RUNS, high) > ALARM / 2
    assert binom.cdf(alarms, RUNS, low) > ALARM / 2


def test_noise_that_was_not_agreed_on_is_noticed_with_the_stated_power():
    def disguise_again(north, generator):
        return np.where(generator.random(len(north)) < 0.25, 1 - north, north)

    alarms = count_alarms(2000, disguise_again)
    expected = power(TWICE, 2000)
    assert binom.sf(alarms - 1, RUNS, expected + 0.02) > ALARM / 2
    assert binom.cdf(alarms, RUNS, expected - 0.02) > ALARM / 2


def test_honest_parties_raise_no_alarm():
    """One alarm in a million: two among 300 runs have a probability of 5e-8."""
    assert count_alarms(500, lambda north, _: north) <= 1


def association(counts):
    other, smokers = counts[:, 1] / counts.sum(axis=1)
    return smokers - other


def test_a_liar_among_pooled_counts_dilutes_the_sum_and_undoes_its_own_lie():
    """The page's second example: margins stay, the association keeps the share of honest people."""
    n, lied, effect = 200_000, 60_000, 0.3
    generator = np.random.default_rng(5)
    smoker = (generator.random(n) < 0.3).astype(int)
    frame = pd.DataFrame({"smoker": smoker, "ill": (generator.random(n) < 0.2 + effect * smoker).astype(int)})
    west = frame.iloc[n - lied :]
    swapped = west.assign(ill=generator.permutation(west["ill"]))

    def count(some):
        (table,) = mq.tally(some, schema=mq.Schema(dict.fromkeys(frame, (0, 1)))).answer(
            [mq.Query(by=("smoker", "ill"))]
        )
        return table.values

    honest, opened = count(frame), count(frame.iloc[: n - lied]) + count(swapped)
    for axis in (0, 1):
        assert np.array_equal(opened.sum(axis=axis), honest.sum(axis=axis))
    shares = opened[:, 1] / opened.sum(axis=1)
    error = math.sqrt((shares * (1 - shares) / opened.sum(axis=1)).sum())
    assert abs(association(opened) - effect * (1 - lied / n)) < NormalDist().inv_cdf(1 - ALARM / 2) * error
    assert np.array_equal(opened - count(swapped) + count(west), honest)
