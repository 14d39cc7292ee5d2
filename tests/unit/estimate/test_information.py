"""The observed information and errors of contrasts: formulas, numerical derivatives, simulation."""

import numpy as np
import pytest
from tests.unit.estimate.cases import draw_table, random_channel, symmetric

from masquerade.core.covariance import IndependentCovariance
from masquerade.core.errors import InputError
from masquerade.core.evidence import TableReduction
from masquerade.core.links.fits import fit_links
from masquerade.estimate.evidence import ReportEvidence
from masquerade.estimate.information import contrast_covariance, information
from masquerade.estimate.likelihood import likelihood
from masquerade.estimate.loglinear import design, generators_of
from masquerade.estimate.reports import Reports


def reports_of(observed, channels):
    shape = tuple(size if P is None else P.shape[0] for P, size in zip(channels, observed.shape, strict=True))
    return Reports(observed, tuple(channels), shape, TableReduction.none(len(shape)))


def evidence_of(reports):
    shape = reports.truths
    return ReportEvidence.of([reports], np.zeros(shape), IndependentCovariance(np.ones(shape)))


def test_is_the_second_derivative_of_the_deviance():
    rng = np.random.default_rng(1)
    channels = [random_channel(rng, 2, 3), None, random_channel(rng, 3, 3)]
    theta = rng.dirichlet(np.ones(12)).reshape(2, 2, 3)
    model = likelihood(draw_table(rng, 500, theta, channels), channels)
    X = design(generators_of([[0, 1], [1, 2]], 3), (2, 2, 3))
    beta = np.linalg.lstsq(X, np.log(500 * theta).ravel(), rcond=None)[0]

    def deviance(at):
        return model.at(np.exp(X @ at).reshape(2, 2, 3)).deviance

    step = 1e-4
    steps = step * np.eye(len(beta))
    numeric = [
        [
            (
                deviance(beta + a + b)
                - deviance(beta + a - b)
                - deviance(beta - a + b)
                + deviance(beta - a - b)
            )
            / (4 * step**2)
            for b in steps
        ]
        for a in steps
    ]
    ours = information(model, np.exp(X @ beta).reshape(2, 2, 3), X)
    np.testing.assert_allclose(ours, numeric, atol=1e-3, rtol=1e-4)


def test_clear_tables_have_the_multinomial_covariance():
    observed = np.array([[30.0, 10], [25, 35]])
    reports = reports_of(observed, [None, None])
    cells = np.eye(4).reshape(4, 2, 2)
    found = contrast_covariance(reports, ((0, 1),), observed, cells)
    flat = observed.ravel()
    np.testing.assert_allclose(found, np.diag(flat) - np.outer(flat, flat) / 100, atol=1e-9)
    p, q = observed.sum(1) / 100, observed.sum(0) / 100
    found = contrast_covariance(reports, ((0,), (1,)), 100 * np.outer(p, q), cells)
    variance = 100 * (np.outer(p * p, q * (1 - q)) + np.outer(p * (1 - p), q * q))  # of a product of shares
    np.testing.assert_allclose(np.diag(found).reshape(2, 2), variance, rtol=1e-9)


def test_a_saturated_interior_fit_has_the_covariance_of_the_unbiased_table():
    rng = np.random.default_rng(2)
    P = symmetric(3, 0.2)
    observed = draw_table(rng, 5000, np.array([0.5, 0.3, 0.2]), [P])
    G = np.linalg.inv(P)
    found = contrast_covariance(reports_of(observed, [P]), ((0,),), observed @ G, np.eye(3))
    expected = G.T @ (np.diag(observed) - np.outer(observed, observed) / 5000) @ G
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_errors_of_contrasts_are_those_of_repeated_samples():
    """400 samples: a ratio of standard deviations outside 1 ± 0.18 has a chance below 1e-6."""
    rng = np.random.default_rng(3)
    channels = [symmetric(2, 0.2), random_channel(rng, 2, 2, 0.4), None]
    given = np.array([0.6, 0.4])
    rows, columns = np.array([[0.7, 0.3], [0.4, 0.6]]), np.array([[0.5, 0.5], [0.2, 0.8]])
    theta = np.einsum("j,jz,jx->jzx", given, rows, columns)
    generators = generators_of([[0, 1], [0, 2]], 3)
    contrasts = np.zeros((2, 2, 2, 2))
    contrasts[0, 0, 0], contrasts[1, :, 1, 1] = 1.0, 1.0
    samples = [reports_of(draw_table(rng, 4000, theta, channels), channels) for _ in range(400)]
    fits = fit_links([evidence_of(reports) for reports in samples], [(0, 1, 2)] * 400, tolerance=1e-5)
    values = [np.sum(contrasts * expected, axis=(1, 2, 3)) for expected in fits.expected]
    errors = [
        np.diag(contrast_covariance(reports, generators, expected, contrasts))
        for reports, expected in zip(samples, fits.expected, strict=True)
    ]
    ratio = np.std(values, axis=0) / np.sqrt(np.mean(errors, axis=0))
    assert np.all(np.abs(ratio - 1) < 0.18)


def test_zeros_are_known_and_open_tables_refused():
    P = symmetric(3, 0.4)
    reports = reports_of(np.array([500.0, 400, 60]), [P])
    fit = evidence_of(reports).fit([[0]])
    found = contrast_covariance(reports, ((0,),), fit.expected, np.eye(3))
    assert fit.expected[2] == pytest.approx(0, abs=1e-3)
    assert np.isfinite(found).all()
    assert found[0, 0] > 0
    open_table = Reports(np.ones((2, 2)), (None, None), (2, 2), TableReduction((0,)))
    with pytest.raises(InputError, match="nothing summed over or sliced"):
        contrast_covariance(open_table, ((0,),), np.ones(2), np.ones((1, 2)))
