"""Maximum likelihood against the moment estimate, exact solutions, other optimisers and its own proof."""

import numpy as np
import pytest
from scipy.optimize import minimize
from tests.unit.estimate.cases import boundary_case, draw_table, gaussian_noise, random_channel, symmetric

from masquerade.core.axes import contract
from masquerade.core.errors import InputError, NotConverged
from masquerade.estimate.em import maximum_likelihood, squarem_step
from masquerade.estimate.inverse import unbiased_map
from masquerade.estimate.likelihood import likelihood
from masquerade.estimate.newton import newton_step
from masquerade.estimate.symmetric import symmetric_mle


def test_is_the_moment_estimate_when_that_is_interior():
    rng = np.random.default_rng(1)
    channels = [random_channel(rng, 3, 3), None, random_channel(rng, 2, 2)]
    observed = draw_table(rng, 100_000, np.full((3, 4, 2), 1 / 24), channels)
    moment = contract(observed, [None if P is None else unbiased_map(P) for P in channels])
    assert moment.min() > 0
    fit = maximum_likelihood(observed, channels)
    np.testing.assert_allclose(fit.counts, moment, rtol=1e-12)
    assert fit.steps == 0


def test_equals_the_exact_solution_of_randomized_response_on_the_boundary():
    rng = np.random.default_rng(2)
    for _ in range(300):
        K = int(rng.integers(2, 40))
        p = rng.uniform(0, 0.95 * (K - 1) / K)
        n = int(10 ** rng.uniform(0, 6))
        observed = rng.multinomial(n, rng.dirichlet(np.full(K, 0.3))).astype(float)
        fit = maximum_likelihood(observed, [symmetric(K, p)], tolerance=1e-12)
        assert np.max(np.abs(fit.counts - symmetric_mle(observed, p))) <= 1e-6 * n


def test_large_counts():
    rng = np.random.default_rng(3)
    observed, channels = boundary_case(rng, (20,), 10**9, 0.8)
    fit = maximum_likelihood(observed, channels)
    np.testing.assert_allclose(fit.counts, symmetric_mle(observed, 0.8), atol=1e-6 * 10**9)
    assert fit.gap <= 1e-5


def log_likelihood(theta, observed, channels):
    q = contract(theta, channels)
    seen = observed > 0
    return float(np.sum(observed[seen] * np.log(q[seen])))


@pytest.mark.parametrize("seed", range(4))
def test_agrees_with_a_general_optimiser(seed):
    rng = np.random.default_rng(seed)
    channels = [random_channel(rng, 2, 3), None, random_channel(rng, 3, 3)]
    shape = (2, 2, 3)
    theta = rng.dirichlet(np.full(12, 0.2)).reshape(shape)
    observed = draw_table(rng, 200, theta, channels)
    fit = maximum_likelihood(observed, channels)
    found = minimize(
        lambda x: -log_likelihood(np.maximum(x, 1e-15).reshape(shape), observed, channels),
        np.full(12, 1 / 12),
        method="SLSQP",
        bounds=[(0, 1)] * 12,
        constraints={"type": "eq", "fun": lambda x: x.sum() - 1},
        options={"ftol": 1e-12, "maxiter": 2000},
    )
    on_simplex = np.maximum(found.x, 0) / np.maximum(found.x, 0).sum()  # the optimiser lets it be off by 1e-8
    best = log_likelihood(on_simplex.reshape(shape), observed, channels)
    assert fit.log_likelihood >= best - 1e-6
    assert fit.log_likelihood == pytest.approx(best, abs=1e-4)
    assert fit.log_likelihood == pytest.approx(log_likelihood(fit.counts / 200, observed, channels))


def test_agrees_with_plain_em():
    rng = np.random.default_rng(5)
    observed, channels = boundary_case(rng, (3, 4), 500, 0.3)
    model = likelihood(observed, channels)
    point = model.at(np.full((3, 4), 500 / 12))
    for _ in range(20_000):
        point = model.at(point.counts * point.pull)
    fit = maximum_likelihood(observed, channels)
    np.testing.assert_allclose(fit.counts, point.counts, atol=0.05)
    assert fit.log_likelihood >= model.log_likelihood(point) - 1e-6


@pytest.mark.parametrize("seed", range(8))
def test_optimality_conditions_hold_at_the_solution(seed):
    rng = np.random.default_rng(seed)
    channels = [random_channel(rng, 3, 5), None, random_channel(rng, 4, 4, 0.8)]
    theta = rng.dirichlet(np.full(24, 0.1)).reshape(3, 2, 4)
    observed = draw_table(rng, 2000, theta, channels)
    fit = maximum_likelihood(observed, channels)
    model = likelihood(observed, channels)
    pull = model.at(fit.counts).pull
    assert fit.counts.min() >= 0
    assert fit.counts.sum() == pytest.approx(2000)
    assert 2000 * (pull.max() - 1) <= 1e-6
    # Complementarity: Σ N(1 − g) = 0 with both factors of one sign up to the gap.
    assert np.sum(fit.counts * np.abs(1 - pull)) <= 1e-5


@pytest.mark.parametrize("seed", range(5))
def test_no_step_lowers_the_likelihood(seed):
    rng = np.random.default_rng(seed)
    observed, channels = boundary_case(rng, (4, 5, 3), 3000, 0.5)
    model = likelihood(observed, channels)
    point = model.at(np.full((4, 5, 3), 3000 / 60))
    for _ in range(15):
        squared = squarem_step(model, point)
        newton, _ = newton_step(model, point)
        for after in [squared] if newton is None else [squared, newton]:
            assert after.deviance <= point.deviance * (1 + 1e-13)
            assert after.counts.min() >= 0
            assert after.counts.sum() == pytest.approx(3000)
            assert point.deviance - after.deviance <= model.gap(point) + 1e-9
            assert model.change(point, after) == pytest.approx(after.deviance - point.deviance, abs=1e-8)
        point = squared if newton is None else newton


def test_any_start_leads_to_the_same_likelihood():
    observed, channels = boundary_case(np.random.default_rng(7), (5, 4), 1000, 0.4)
    fit = maximum_likelihood(observed, channels)
    start = np.zeros((5, 4))
    start[0, 0] = 1.0
    for begin in (start, np.zeros((5, 4)), np.ones((5, 4))):
        again = maximum_likelihood(observed, channels, start=begin)
        assert again.log_likelihood == pytest.approx(fit.log_likelihood, abs=2e-6)
    with pytest.raises(InputError, match="start"):
        maximum_likelihood(observed, channels, start=np.ones(3))


def test_configurations_of_clear_axes_are_fitted_separately_and_empty_ones_stay_empty():
    rng = np.random.default_rng(8)
    P = symmetric(5, 0.5)
    observed = np.stack([boundary_case(rng, (5,), n, 0.5)[0] for n in (50, 0, 700)])
    fit = maximum_likelihood(observed, [None, P])
    assert not fit.counts[1].any()
    for row, counts in zip(observed, fit.counts, strict=True):
        np.testing.assert_allclose(counts, symmetric_mle(row, 0.5), atol=1e-2)


def test_edges():
    assert maximum_likelihood(np.array([9.0]), [np.array([[1.0]])]).counts.tolist() == [9.0]
    assert maximum_likelihood(np.array([4.0, 5.0]), [np.array([[0.5, 0.5]])]).counts.tolist() == [9.0]
    empty = maximum_likelihood(np.zeros((3, 2)), [random_channel(np.random.default_rng(0), 2, 3), None])
    assert empty.counts.shape == (2, 2)
    assert not empty.counts.any()
    table = np.array([[3.0, 0.0], [0.0, 2.0]])
    np.testing.assert_array_equal(maximum_likelihood(table, [None, None]).counts, table)
    np.testing.assert_allclose(maximum_likelihood(table, [symmetric(2, 0.0), None]).counts, table)
    np.testing.assert_allclose(maximum_likelihood(np.array(6.0), []).counts, 6.0)


def test_a_channel_with_zeros_under_a_zero_moment():
    P = np.array([[1.0, 0.0, 0.0], [0.3, 0.7, 0.0], [0.0, 0.4, 0.6]])
    fit = maximum_likelihood(np.array([1.0, 9.0, 0.0]), [P])
    assert fit.gap < 1e-6
    assert fit.counts[2] == 0


def test_refusals():
    P = symmetric(2, 0.2)
    with pytest.raises(InputError, match="negative"):
        maximum_likelihood(np.array([1.0, -1.0]), [P])
    with pytest.raises(InputError, match="as many channels"):
        maximum_likelihood(np.array([1.0, 1.0]), [P, P])
    with pytest.raises(InputError, match="codes"):
        maximum_likelihood(np.array([1.0, 1.0, 1.0]), [P])
    with pytest.raises(InputError, match="no truth gives"):
        maximum_likelihood(np.array([1.0, 1.0, 1.0]), [np.array([[0.8, 0.2, 0.0], [0.2, 0.8, 0.0]])])


def test_truths_that_give_the_same_reports_have_one_of_several_most_likely_tables():
    assert maximum_likelihood(np.array([1.0, 1.0]), [symmetric(2, 0.5)]).counts.sum() == 2
    # the second and the third truth look alike: their sum is told, and is that of the merged categories
    P = np.array([[0.8, 0.2], [0.3, 0.7], [0.3, 0.7]])
    observed = np.array([45.0, 55.0])
    merged = maximum_likelihood(observed, [P[:2]]).counts
    found = maximum_likelihood(observed, [P]).counts
    np.testing.assert_allclose([found[0], found[1] + found[2]], merged, atol=1e-4)


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_nearly_singular_channels_are_solved_to_the_proof(seed, folded):
    """Gaussian noise of two bins on 20: condition above 1e6, most cells of the solution zero."""
    rng = np.random.default_rng(seed)
    P = gaussian_noise(20, 2.0)
    if folded:  # what falls off the ends is reported there
        P = np.hstack([P[:, :9].sum(1, keepdims=True), P[:, 9:-9], P[:, -9:].sum(1, keepdims=True)])
    assert np.linalg.cond(P) > 1e6
    theta = rng.dirichlet(np.full(20, 0.3 if seed % 2 else 3.0))
    observed = draw_table(rng, 30_000, theta, [P])
    fit = maximum_likelihood(observed, [P])
    assert fit.gap < 1e-6
    truth = likelihood(observed, [P])
    assert fit.log_likelihood >= truth.log_likelihood(truth.at_normalized(theta))
    assert (fit.counts == 0).sum() >= 5


def test_says_how_far_it_was_when_steps_run_out():
    observed, channels = boundary_case(np.random.default_rng(9), (6, 6), 1000, 0.6)
    with pytest.raises(NotConverged, match="may still rise by"):
        maximum_likelihood(observed, channels, max_steps=1)


@pytest.mark.parametrize(("shape", "p"), [((50,), 0.9), ((5, 5, 5, 5), 0.5)])
def test_boundary_solutions_take_few_steps(shape, p):
    """Plain EM takes thousands of steps here; acceleration and Newton's method some dozens."""
    observed, channels = boundary_case(np.random.default_rng(10), shape, 10_000, p)
    fit = maximum_likelihood(observed, channels)
    assert (fit.counts == 0).any()
    assert fit.gap < 1e-6
    assert fit.steps < 500
