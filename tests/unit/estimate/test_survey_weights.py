"""Survey weights: Pearson's statistic to second order, errors of contrasts, by formulas and by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from tests.statistical.checks import assert_unbiased, assert_variance, normal_bound
from tests.unit.estimate.cases import symmetric

import masquerade as mq
from masquerade.core.evidence import TableReduction
from masquerade.core.links.fits import fit_links
from masquerade.disguising.seeded import simulate_codes
from masquerade.estimate.loglinear import design
from masquerade.estimate.reports import Reports
from masquerade.estimate.resampling import conditional_pearson
from masquerade.estimate.survey_weights import independent_residuals, second_order, weighted_residuals
from masquerade.sources.records import Records

RUNS = 300
# of a population in which z and x are independent, people were drawn with chances that depend on both
CHANCES = np.array([[0.1, 0.1, 0.05], [0.5, 0.5, 0.9], [0.9, 0.9, 0.3]])
SHARES = np.multiply.outer([0.5, 0.3, 0.2], [0.6, 0.3, 0.1])


def policy(channels):
    schema = mq.Schema({"j": [0, 1], "z": [0, 1, 2], "x": [0, 1, 2]})
    made = {name: mq.channels.symmetric(len(schema[name]), p) for name, p in channels.items()}
    return mq.Policy.build(schema, made)


def weighted_tables(channels, by, runs=RUNS, n=2500, seed=1):
    """Yield weighted tables; weights are those of the chances, half of the people weigh thrice as much."""
    generator = np.random.default_rng(seed)
    rule = policy(channels)
    drawn = (SHARES * CHANCES).ravel() / (SHARES * CHANCES).sum()
    for _ in range(runs):
        z, x = np.unravel_index(generator.choice(9, n, p=drawn), (3, 3))
        codes = {"j": generator.integers(0, 2, n), "z": z, "x": x}
        codes = {name: column.astype(np.uint8) for name, column in codes.items()}
        weights = generator.choice([1.0, 3.0], n) / CHANCES[z, x]
        reports = simulate_codes(codes, rule, generator) if channels else codes
        yield Records(reports, rule, weights).answer([mq.Query(by=by)])[0]


def test_weights_that_are_all_the_same_change_nothing():
    expected = np.outer([30.0, 20, 50], [0.2, 0.3, 0.5])
    assert second_order(7.0, 4, [independent_residuals(expected, expected)]) == pytest.approx((7.0, 4.0))
    generator = np.random.default_rng(2)
    codes = {name: generator.integers(0, 2, 400).astype(np.uint8) for name in "ab"}
    rule = mq.Policy.clear(mq.Schema({"a": [0, 1], "b": [0, 1]}))
    plain, same = (
        Records(codes, rule, weights).answer([mq.Query(by=("a", "b"))])[0].evidence
        for weights in (None, np.full(400, 2.5))
    )
    assert same.parts[0].squares is None
    assert same.independence((), 0, 1) == pytest.approx(plain.independence((), 0, 1))
    assert second_order(7.0, 4, []) == (7.0, 4)


def test_the_moments_are_those_of_the_eigenvalues_written_out():
    """δ are the eigenvalues of the covariance of what is left of √reports once the model has been fitted."""
    generator = np.random.default_rng(3)
    P = symmetric(3, 0.2)
    truth = np.outer([500.0, 300, 200], [0.5, 0.3, 0.2])
    reports = P.T @ truth @ P
    squares = reports * generator.uniform(0.5, 4, reports.shape)
    part = Reports(reports, (P, P), (3, 3), TableReduction.none(2), squares=squares)
    slopes = np.kron(P.T, P.T) @ (truth.ravel()[:, None] * design(((0,), (1,)), (3, 3)))
    scaled = slopes / np.sqrt(reports.ravel())[:, None]
    left = np.eye(9) - scaled @ np.linalg.pinv(scaled)
    eigenvalues = np.linalg.eigvalsh(left @ np.diag((squares / reports).ravel()) @ left)
    found = weighted_residuals(part, ((0,), (1,)), truth, reports)
    assert found.first == pytest.approx(eigenvalues.sum(), rel=1e-9)
    assert found.second == pytest.approx((eigenvalues**2).sum(), rel=1e-9)
    # independence of the reports is the same model as that of the truth, behind channels that can be inverted
    assert independent_residuals(squares, reports) == pytest.approx(found, rel=1e-9)
    two = conditional_pearson(np.stack([reports, reports]), np.stack([squares, squares]))
    assert two[1] == pytest.approx(2 * found.first**2 / found.second, rel=1e-9)


@pytest.mark.parametrize(
    ("channels", "given"),
    [({}, False), ({"z": "0.1", "x": "0.2"}, False), ({"j": "0.1", "z": "0.1", "x": "0.1"}, True)],
)
def test_without_a_link_the_statistic_is_a_chi_square(channels, given):
    """Its mean is its degrees of freedom, and 5 % are beyond the 95th percentile.

    A mean of 300 draws of χ²_ν/ν, ν ≥ 2, has an error of at most 0.058; false alarms are 1e-6.
    """
    by = ("j", "z", "x") if given else ("z", "x")
    ratios, plain, tails = [], [], []
    for table in weighted_tables(channels, by):
        evidence = table.evidence
        if given:
            model = [(0, 1), (0, 2)]
            (block,) = fit_links([evidence], [(0, 1, 2)]).expected
            statistic, df = evidence.pearson(block, model)
        else:
            statistic, df = evidence.independence((), 0, 1)
            plain.append(conditional_pearson(evidence.parts[0].observed[None])[0] / 4)
        ratios.append(statistic / df)
        tails.append(stats.chi2.sf(statistic, df) <= 0.05)
    bound = normal_bound(6)
    assert abs(np.mean(ratios) - 1) <= bound * np.std(ratios) / np.sqrt(RUNS) + 0.03
    assert abs(np.mean(tails) - 0.05) <= bound * np.sqrt(0.05 * 0.95 / RUNS) + 0.01
    if not channels:  # one number of effective records for all reports is not enough
        assert np.mean(plain) < 0.9


@pytest.mark.parametrize("channels", [{}, {"z": "0.1", "x": "0.2"}])
def test_contrasts_of_weighted_fits_have_the_errors_of_repeated_samples(channels):
    shares, variances = [], []
    contrasts = np.zeros((2, 3, 3))
    contrasts[0, 0], contrasts[1, :, 2] = 1.0, 1.0
    for table in weighted_tables(channels, ("z", "x"), runs=150):
        value, stderr = table.fit(["z", "x"]).contrast(contrasts)
        shares.append(value / table.total)
        variances.append((stderr / table.total) ** 2)
    assert_unbiased(shares, [0.5, 0.1])
    assert_variance(shares, variances)


def test_weighted_models_expect_the_weighted_total():
    (table,) = weighted_tables({"x": "0.2"}, ("z", "x"), runs=1)
    for model in (["z", "x"], ["x"], [["z", "x"]]):
        fit = table.fit(model)
        assert fit.expected.sum() == pytest.approx(table.total)
        # the deviance is that of effective records, wherever the table is
        assert fit.deviance == pytest.approx(table.deviance(fit.expected), abs=1e-4)
    (clear,) = weighted_tables({}, ("z", "x"), runs=1)
    margins = clear.values.sum(axis=1), clear.values.sum(axis=0)
    np.testing.assert_allclose(clear.fit(["z", "x"]).expected, np.outer(*margins) / clear.total)


def test_weighted_strata_are_tested_by_their_covariance():
    generator = np.random.default_rng(5)
    spec = {
        "masquerade": 1,
        "variables": {"s": {"categories": [0, 1]}, "a": {"categories": [0, 1]}, "b": {"categories": [0, 1]}},
        "strata": {
            "by": "s",
            "channels": {0: {"a": {"kind": "binary", "p": 0.1}}, 1: {"a": {"kind": "binary", "p": 0.3}}},
        },
    }
    rule = mq.Policy.from_dict(spec)
    codes = {name: generator.integers(0, 2, 3000).astype(np.uint8) for name in "sab"}
    reports = simulate_codes(codes, rule, generator)
    (table,) = Records(reports, rule, generator.uniform(1, 5, 3000)).answer([mq.Query(by=("a", "b"))])
    model = [(0,), (1,)]
    statistic, df = table.evidence.pearson(table.values, model)
    assert df == 1
    gap = table.values - np.outer(table.values.sum(1), table.values.sum(0)) / table.total
    error = np.sqrt(table.covariance.quadratic(np.array([[1.0, -1], [-1, 1]]) / 4))
    assert statistic == pytest.approx((gap[0, 0] / error) ** 2, rel=0.2)
