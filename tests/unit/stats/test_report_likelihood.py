"""The likelihood engine: derivatives, maxima, certificates, tests, intervals, errors of clusters."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import chi2

from masquerade.stats.regression import likelihood as likelihood_module
from masquerade.stats.regression import solver
from masquerade.stats.regression.clusters import bias_reduced
from masquerade.stats.regression.likelihood import RegressionLikelihood
from masquerade.stats.regression.profile import profile_interval, ratio_statistic
from masquerade.stats.regression.random_intercepts import MixedLikelihood
from masquerade.stats.regression.solver import certify, maximise
from masquerade.stats.regression.truth_models import (
    BinaryOutcome,
    MultinomialLogit,
    Part,
    Product,
)

THRESHOLD = float(chi2.ppf(0.95, 1))


def forced(n=400, seed=1, beta=(-1.0, 0.7), p=1 / 6):
    """Return reports of a forced response as a likelihood, with the design matrix."""
    draw = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), draw.standard_normal(n)])
    truth = draw.random(n) < expit(X @ np.array(beta))
    said = draw.random(n) < np.where(truth, 1 - p, p)
    chances = np.where(said[:, None], [[1 - p, p]], [[p, 1 - p]])
    channel = np.array([[1 - p, p], [p, 1 - p]])
    zeros = np.zeros(n, dtype=np.intp)
    return RegressionLikelihood(
        chances, BinaryOutcome(), (X,), (np.arange(2),), np.ones(n), (channel,), zeros
    )


def masked(n=300, seed=2):
    """Return a likelihood with predictors that depend on the truth: a disguised covariate."""
    draw = np.random.default_rng(seed)
    z, x = draw.standard_normal(n), draw.integers(0, 2, n)
    y = draw.random(n) < expit(-0.5 + x + 0.3 * z)
    said = np.where(draw.random(n) < 0.2, 1 - x, x)
    chances_x = np.where(said[:, None] == np.arange(2), 0.8, 0.2)
    seen = np.column_stack([y, ~y]).astype(float)
    chances = (chances_x[:, :, None] * seen[:, None, :]).reshape(n, -1)
    Z = np.stack([np.column_stack([np.ones(n), np.full(n, float(k)), z]) for k in (0, 0, 1, 1)], axis=1)
    model = Product(
        (
            Part(BinaryOutcome(), (0,), np.array([0, 1, 0, 1])),
            Part(MultinomialLogit(2), (1,), np.array([0, 0, 1, 1])),
        ),
        4,
        2,
    )
    W = np.column_stack([np.ones(n), z])
    return RegressionLikelihood(chances, model, (Z, W), (np.arange(3), np.arange(3, 5)), np.ones(n))


@pytest.mark.parametrize("make", [forced, masked])
def test_information_is_the_negative_hessian(make):
    likelihood = make()
    beta = np.linspace(-0.4, 0.5, likelihood.parameters)
    found, step = likelihood.derivatives(beta, complete_too=True), 1e-5
    moves = step * np.eye(likelihood.parameters)
    slope = [(likelihood.value(beta + e) - likelihood.value(beta - e)) / (2 * step) for e in moves]
    np.testing.assert_allclose(found.slope, slope, rtol=1e-6, atol=1e-6)
    bend = [
        (likelihood.derivatives(beta + e).slope - likelihood.derivatives(beta - e).slope) / (2 * step)
        for e in moves
    ]
    np.testing.assert_allclose(found.observed, -np.array(bend), rtol=1e-6, atol=1e-5)
    assert np.linalg.eigvalsh(found.complete)[0] > 0


@pytest.mark.parametrize("make", [forced, masked])
def test_derivatives_are_the_same_in_one_piece_and_in_chunks(make, monkeypatch):
    found = []
    for small, chunk in ((1 << 20, 1 << 22), (0, 1 << 22), (0, 300)):
        monkeypatch.setattr(likelihood_module, "SMALL", small)
        monkeypatch.setattr(likelihood_module, "CHUNK", chunk)
        likelihood = make()
        beta = np.linspace(-0.4, 0.5, likelihood.parameters)
        each = likelihood.derivatives(beta, complete_too=True)
        np.testing.assert_allclose(likelihood.scores(beta).sum(axis=0), each.slope, atol=1e-10)
        assert each.value == pytest.approx(likelihood.value(beta), rel=1e-12)
        found.append(np.concatenate([each.slope, each.observed.ravel(), each.complete.ravel()]))
    np.testing.assert_allclose(found[1], found[0], atol=1e-10)
    np.testing.assert_allclose(found[2], found[0], atol=1e-10)


@pytest.mark.parametrize("start", [np.zeros(5), np.array([3.0, -3, 3, -3, 3])])
def test_a_step_never_falls_and_the_maximum_is_certified(start, monkeypatch):
    likelihood = masked()
    best = maximise(likelihood)
    assert certify(likelihood, best)
    values = [likelihood.value(start)]
    for steps in range(1, 30):
        monkeypatch.setattr(solver, "STEPS", steps)
        values.append(maximise(likelihood, start).value)
    assert np.all(np.diff(values) > -1e-9)
    assert values[-1] == pytest.approx(best.value, abs=1e-8)


def test_rows_that_repeat_are_rows_that_count():
    likelihood = forced(60)
    counts = np.arange(60) % 4 + 1.0
    rows = np.repeat(np.arange(60), counts.astype(int))
    merged = RegressionLikelihood(
        likelihood.chances, likelihood.model, likelihood.designs, likelihood.index, counts
    )
    spread = RegressionLikelihood(
        likelihood.chances[rows],
        likelihood.model,
        (likelihood.designs[0][rows],),
        likelihood.index,
        np.ones(len(rows)),
    )
    np.testing.assert_allclose(maximise(merged).beta, maximise(spread).beta, rtol=1e-9)
    assert maximise(merged).value == pytest.approx(maximise(spread).value, rel=1e-12)


def test_separated_data_have_no_certificate_but_a_test_and_a_one_sided_interval():
    x = np.r_[np.zeros(30), np.ones(30)]
    y = np.r_[np.arange(30) % 2, np.ones(30)]
    X = np.column_stack([np.ones(60), x])
    chances = np.column_stack([y, 1 - y]).astype(float)
    likelihood = RegressionLikelihood(chances, BinaryOutcome(), (X,), (np.arange(2),), np.ones(60))
    best = maximise(likelihood)
    found = certify(likelihood, best)
    assert not found
    assert found.is_separated
    lower, upper = profile_interval(likelihood, best, 1, 1.0, THRESHOLD)
    assert np.isinf(upper)
    assert 0 < lower < 5
    assert chi2.sf(ratio_statistic(likelihood, best, {1: 0.0}), 1) < 1e-4


@pytest.mark.parametrize("make", [forced, masked])
def test_ends_of_profile_intervals_have_the_deviance_of_the_level(make):
    likelihood = make()
    best = maximise(likelihood)
    stderr = np.sqrt(np.linalg.inv(best.observed)[1, 1])
    for end in profile_interval(likelihood, best, 1, stderr, THRESHOLD):
        fixed = maximise(likelihood, best.beta, {1: end})
        assert 2 * (best.value - fixed.value) == pytest.approx(THRESHOLD, abs=1e-6)


def test_expected_information_is_the_textbook_formula():
    likelihood = forced()
    beta = np.array([-0.8, 0.4])
    X = likelihood.designs[0]
    p = expit(X @ beta)
    q = 1 / 6 + 2 / 3 * p
    slope = 2 / 3 * p * (1 - p)
    wanted = (X * (slope**2 / (q * (1 - q)))[:, None]).T @ X
    np.testing.assert_allclose(likelihood.expected(beta), wanted, rtol=1e-9)


def test_jeffreys_penalty_keeps_separated_estimates_finite():
    x = np.r_[np.zeros(20), np.ones(20)]
    y = np.r_[np.arange(20) % 2, np.ones(20)]
    X = np.column_stack([np.ones(40), x])
    chances = np.column_stack([y, 1 - y]).astype(float)
    zeros = np.zeros(40, dtype=np.intp)
    penalised = RegressionLikelihood(
        chances, BinaryOutcome(), (X,), (np.arange(2),), np.ones(40), (np.eye(2),), zeros, has_penalty=True
    )
    # Firth's estimates of a saturated 2 × 2 table add a half to every cell
    wanted = np.log(20.5 / 0.5) - np.log(10.5 / 10.5)
    assert maximise(penalised).beta[1] == pytest.approx(wanted, abs=1e-3)


def test_cluster_errors_of_a_linear_outcome_are_the_formula_of_records():
    draw = np.random.default_rng(5)
    cluster = np.repeat(np.arange(8), 5)
    X = np.column_stack([np.ones(40), draw.standard_normal(40), np.repeat(draw.standard_normal(8), 5)])
    y = draw.standard_normal(40)
    bread = np.linalg.inv(X.T @ X)
    residual = y - X @ bread @ X.T @ y
    hat = X @ bread @ X.T
    meat, a = np.zeros((3, 3)), np.zeros((40, 3))
    for g in range(8):
        rows = cluster == g
        values, vectors = np.linalg.eigh(np.eye(5) - hat[np.ix_(rows, rows)])
        power = np.where(values > 1e-8, 1 / np.sqrt(np.maximum(values, 1e-8)), 0)
        A = (vectors * power) @ vectors.T
        u = X[rows].T @ A @ residual[rows]
        meat += np.outer(u, u)
        a[rows] = A @ X[rows] @ bread
    sums = np.stack([X[cluster == g].T @ residual[cluster == g] for g in range(8)])
    information = np.stack([X[cluster == g].T @ X[cluster == g] for g in range(8)])
    covariance, df = bias_reduced(sums, information)
    np.testing.assert_allclose(covariance, bread @ meat @ bread, rtol=1e-8)
    for place in range(3):
        pieces = np.stack([(np.eye(40) - hat)[:, cluster == g] @ a[cluster == g, place] for g in range(8)])
        omega = pieces @ pieces.T
        assert df[place] == pytest.approx(np.trace(omega) ** 2 / np.sum(omega**2), rel=1e-8)


def test_a_random_intercept_without_spread_is_no_random_intercept():
    plain = forced(200)
    group = np.arange(200) % 10
    mixed = MixedLikelihood(
        plain.chances, plain.model, plain.designs, plain.index, plain.weights, group=group
    )
    for beta in (np.array([-0.5, 0.3]), np.array([-2.0, 1.0])):
        assert mixed.value(np.append(beta, 0.0)) == pytest.approx(plain.value(beta), rel=1e-10)
    beta, step = np.array([-0.5, 0.3, 0.6]), 1e-5
    moves = step * np.eye(3)
    slope = [(mixed.value(beta + e) - mixed.value(beta - e)) / (2 * step) for e in moves]
    found = mixed.derivatives(beta)
    np.testing.assert_allclose(found.slope, slope, atol=1e-3)
    bend = [
        (mixed.derivatives(beta + e).slope - mixed.derivatives(beta - e).slope) / (2 * step) for e in moves
    ]
    np.testing.assert_allclose(found.observed, -np.array(bend), rtol=1e-3, atol=2e-2)
    np.testing.assert_allclose(mixed.scores(beta).sum(axis=0), found.slope, atol=1e-10)


def test_where_the_quadrature_is_rough_its_maximum_is_found_by_differences():
    """With the intercept fixed far off, sd is large and Louis' identity is not the gradient of the sum."""
    plain = forced(300, beta=(-3.0, 0.7), p=0.25)
    mixed = MixedLikelihood(
        plain.chances, plain.model, plain.designs, plain.index, plain.weights, group=np.arange(300) % 15
    )
    found = maximise(mixed, np.array([0.0, 0.5, 0.5]), {0: 0.0})
    assert abs(found.beta[2]) > 2
    other = minimize(
        lambda v: -mixed.value(np.array([0.0, *v])),
        found.beta[1:],
        method="Nelder-Mead",
        options={"maxfev": 300},
    )
    assert found.value > -other.fun - 1e-4
