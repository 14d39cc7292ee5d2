"""The test of a link: textbook statistics on clear records, its level under noise, what it does at edges."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy import stats
from tests.statistical.checks import normal_bound

import masquerade as mq
from masquerade.core.links import deviance_test
from masquerade.core.links.deviance_test import link_tests
from masquerade.core.links.fits import fit_links
from masquerade.disguising.seeded import simulate_codes
from masquerade.sources.records import Records

DRAWS = partial(np.random.default_rng, 0)


def drawn(shares, n, generator):
    """Return codes of independent variables with these shares."""
    return {name: generator.choice(len(share), n, p=share).astype(np.uint8) for name, share in shares.items()}


def table_of(codes, policy, by, where=(), generator=None):
    reports = codes if generator is None else simulate_codes(codes, policy, generator)
    return Records(reports, policy).answer([mq.Query(by=by, where=where)])[0]


def policy_of(sizes, channels):
    """Return the policy of variables with these sizes, some of them behind symmetric channels."""
    made = {name: mq.channels.symmetric(sizes[name], p) for name, p in channels.items()}
    return mq.Policy.build({name: list(range(size)) for name, size in sizes.items()}, made)


SIZES = {"j": 2, "z": 3, "x": 4}
EVEN = {name: np.full(size, 1 / size) for name, size in SIZES.items()}


RISING = {"j": [0.4, 0.6], "z": [0.2, 0.3, 0.5], "x": [0.1, 0.2, 0.3, 0.4]}


def test_on_clear_records_it_is_pearsons_test_in_every_configuration():
    generator = np.random.default_rng(2)
    table = table_of(drawn(EVEN, 600, generator), policy_of(SIZES, {}), ("j", "z", "x"))
    (found,) = link_tests([table], [(0, 1, 2)], DRAWS)
    pearson = [stats.chi2_contingency(block, correction=False) for block in table.values]
    deviance = [
        stats.chi2_contingency(block, correction=False, lambda_="log-likelihood") for block in table.values
    ]
    assert found.df == sum(test.dof for test in pearson)
    assert found.deviance == pytest.approx(sum(test.statistic for test in deviance), rel=1e-7)
    assert found.statistic == pytest.approx(sum(test.statistic for test in pearson), rel=1e-9)
    tail = stats.chi2.sf(sum(test.statistic for test in pearson), found.df)
    assert found.p_value == pytest.approx(tail, rel=1e-9)


def test_a_disguised_pair_is_tested_as_it_was_reported():
    generator = np.random.default_rng(3)
    policy = policy_of(SIZES, {"z": "0.3", "x": "0.2"})
    codes = drawn(EVEN, 5000, generator)
    reports = simulate_codes(codes, policy, generator)
    counts = np.zeros((3, 4))
    np.add.at(counts, (reports["z"], reports["x"]), 1)
    (found,) = link_tests([table_of(reports, policy, ("z", "x"))], [(0, 1)], DRAWS)
    expected = stats.chi2_contingency(counts, correction=False)
    assert found.df == expected.dof
    assert found.p_value == pytest.approx(expected.pvalue, rel=1e-9)


def test_an_unseen_category_lowers_the_degrees_of_freedom():
    generator = np.random.default_rng(4)
    codes = drawn({"j": [1.0, 0.0], "z": [0.5, 0.0, 0.5], "x": [0.25] * 4}, 400, generator)
    (found,) = link_tests([table_of(codes, policy_of(SIZES, {}), ("j", "z", "x"))], [(0, 1, 2)], DRAWS)
    assert found.df == 3


def test_nothing_to_tell_is_no_link():
    codes = {name: np.zeros(50, np.uint8) for name in SIZES}
    (found,) = link_tests([table_of(codes, policy_of(SIZES, {}), ("z", "x"))], [(0, 1)], DRAWS)
    assert (found.statistic, found.df, found.p_value) == (pytest.approx(0, abs=1e-6), 0, 1.0)


def test_a_fit_at_the_edge_is_compared_with_samples_from_it(monkeypatch):
    """Categories that nobody has, behind disguised parents: χ² takes noise for a link, samples do not.

    Nominal p-values are asked for below .5 only: theirs must be larger, but for the luck of 19 samples.
    """
    monkeypatch.setattr(deviance_test, "SAMPLES", 19)
    monkeypatch.setattr(deviance_test, "DULL", 0.5)
    sizes = {"j": 3, "z": 3, "x": 2}
    policy = policy_of(sizes, dict.fromkeys(sizes, "0.2"))
    shares = {"j": [0.5, 0.5, 0], "z": [0.6, 0.4, 0], "x": [0.7, 0.3]}
    compared = []
    for seed in range(12):
        generator = np.random.default_rng(seed)
        table = table_of(drawn(shares, 3000, generator), policy, ("j", "z", "x"), generator=generator)
        (found,) = link_tests([table], [(0, 1, 2)], DRAWS)
        (fits,) = fit_links([table.evidence], [(0, 1, 2)]).expected
        plain = stats.chi2.sf(table.evidence.pearson(fits, [(0, 1), (0, 2)])[0], found.df)
        assert found.df == 3 * 2
        compared.append((plain, found.p_value))
    simulated = [(plain, p) for plain, p in compared if plain < 0.5]
    assert np.mean([p for _, p in simulated]) > np.mean([plain for plain, _ in simulated])
    assert all(p == pytest.approx(plain) for plain, p in compared if plain >= 0.5)


@pytest.mark.parametrize(
    ("shares", "channels", "where"),
    [
        ({"j": [1, 0], "z": [0.9, 0.08, 0.02], "x": [0.97, 0.01, 0.01, 0.01]}, {"z": "0.2", "x": "0.2"}, {}),
        ({"j": [1, 0], "z": [1, 0, 0], "x": [0.5, 0.5, 0, 0]}, {"z": "0.3", "x": "0.3"}, {}),
        (RISING, dict.fromkeys("jzx", "0.1"), {"j": 1}),
    ],
)
def test_independent_variables_are_linked_as_often_as_said(shares, channels, where):
    """Of 400 tables 5 % are rejected, also of skewed and unseen categories, and under disguised conditions.

    A binomial share leaves its expectation by the bound below with probability 1e-6; .01 is allowed for what
    normal theory and small expected counts do.
    """
    generator = np.random.default_rng(5)
    policy = policy_of(SIZES, channels)
    alone = []
    for _ in range(400):
        table = table_of(drawn(shares, 5000, generator), policy, ("z", "x"), where, generator)
        alone.append(replace(table, evidence=table.evidence.restrict_to_table()))
    p_values = np.array([found.p_value for found in link_tests(alone, [(0, 1)] * len(alone), DRAWS)])
    error = normal_bound(3) * np.sqrt(0.05 * 0.95 / len(p_values))
    assert abs(np.mean(p_values <= 0.05) - 0.05) <= 0.01 + error
    judged = np.array([each.p_value for each in link_tests(alone, [(0, 1)] * 400, DRAWS, matters=0.05)])
    assert np.array_equal(judged[p_values <= 0.05], p_values[p_values <= 0.05])
    assert np.all((judged > 0.05) & (judged <= p_values * (1 + 1e-9)), where=p_values > 0.05)


def test_evidence_is_drawn_anew_as_it_was_observed():
    """400 samples from a fit: reports have its mean and the spread of their number (χ² of 4,000 draws)."""
    generator = np.random.default_rng(6)
    policy = policy_of(SIZES, {"z": "0.2", "x": "0.2"})
    table = table_of(drawn(EVEN, 1000, generator), policy, ("z", "x"), generator=generator)
    for expected in (None, table.fit(["z", "x"]).expected):
        samples = [table.evidence.resample(generator, expected) for _ in range(400)]
        values = np.array([sample.values for sample in samples])
        centre = table.values if expected is None else expected
        error = np.sqrt(values.var(axis=0, ddof=1) / len(values))
        assert np.abs((values.mean(axis=0) - centre) / error).max() <= normal_bound(24)
        ratio = values.var(axis=0, ddof=1) / table.covariance.diagonal()
        assert 0.5 < ratio.min() <= ratio.max() < 2
        np.testing.assert_allclose(samples[0].covariance.values, samples[0].values)
