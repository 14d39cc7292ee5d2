"""Noise on counts: the sampler against exact weights, the accountant against two other implementations.

Figures of the accountant were computed with Google's dp-accounting 0.6.0 (pessimistic rounding), weights with
mpmath 1.4.1 at 60 digits. The limits were fixed before the comparison.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from masquerade.channels.noise import accountant, sampler
from masquerade.channels.noise.accountant import (
    bounded_losses,
    compose_losses,
    gaussian_variance,
    laplace_losses,
    skellam_losses,
)
from masquerade.channels.noise.sampler import NoiseSampler, polya_shares, skellam_shares
from masquerade.channels.noise.terms import NoiseTerms
from masquerade.core.errors import InputError

ALPHA = 1e-6
# variance of a cell, tables, δ, ε by dp-accounting (rounded up there too)
DP_ACCOUNTING = [
    (33.8, 1, 1e-6, 0.9990099134491272),
    (357.0, 10, 1e-6, 0.9998573960773102),
    (1607.0, 45, 1e-6, 0.9999880142452738),
    (47.5, 10, 1e-6, 2.9980720218605907),
    (118776.0, 45, 1e-6, 0.09997585425390636),
    (23776.2, 666, 1e-6, 1.0006035548788081),
    (214.65, 45, 1e-6, 2.9991919202503),
    (1607.0, 45, 1e-9, 1.3175721884201406),
]
LOWER = {(33.8, 1): 0.99852, (357.0, 10): 0.99938, (1607.0, 45): 0.99951, (47.5, 10): 2.99677}
MPMATH = [
    (Fraction(1607, 850000), 0, 18411918275465883923),
    (Fraction(1607, 850000), 1, 17404670264156379),
    (Fraction(1607, 850000), 2, 8226264985007),
    (Fraction(1607, 9), 0, 551122312696862501),
    (Fraction(1607, 9), 7, 480283164233410495),
    (Fraction(1607, 9), 40, 6282113148507093),
    (Fraction(1607, 2), 1, 259498010586117940),
    (Fraction(1607, 2), 40, 95900719019373479),
    (Fraction(118776), 7, 21348939919969960),
    (Fraction(118776), 300, 14619299611101759),
]


@pytest.mark.parametrize(("variance", "tables", "delta", "expected"), DP_ACCOUNTING)
def test_accountant_agrees_with_dp_accounting(variance, tables, delta, expected):
    epsilon = compose_losses([(skellam_losses(variance), 2 * tables)]).epsilon(delta)
    assert abs(epsilon / expected - 1) <= 1e-3
    assert epsilon >= LOWER.get((variance, tables), 0.0)


def rdp_epsilon(variance, cells, delta):
    """Return ε by Rényi divergences of the two distributions, which is an upper bound of its own."""
    k = np.arange(-int(12 * math.sqrt(variance)) - 60, int(12 * math.sqrt(variance)) + 61)
    log_p = stats.skellam.logpmf(k, variance / 2, variance / 2)
    best = math.inf
    for order in 1 + np.logspace(-1, 2, 60):
        terms = order * log_p[1:] + (1 - order) * log_p[:-1]
        largest = terms.max()
        divergence = cells * (largest + math.log(np.exp(terms - largest).sum())) / (order - 1)
        best = min(
            best, divergence + math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)
        )
    return best


@pytest.mark.parametrize(("variance", "tables"), [(33.8, 1), (357.0, 10), (47.5, 10)])
def test_accountant_is_below_renyi_divergence(variance, tables):
    epsilon = compose_losses([(skellam_losses(variance), 2 * tables)]).epsilon(1e-6)
    assert 0.9 * rdp_epsilon(variance, 2 * tables, 1e-6) < epsilon < rdp_epsilon(variance, 2 * tables, 1e-6)


@pytest.mark.parametrize(("variance", "epsilon"), [(33.8, 0.5), (33.8, 1.0), (2.0, 3.0)])
def test_accountant_of_one_cell_is_above_the_exact_delta(variance, epsilon):
    """δ of one cell has a closed sum: Σ max(P(k) − e^ε·P(k−1), 0)."""
    k = np.arange(-400, 401)
    p, shifted = (stats.skellam.pmf(k - move, variance / 2, variance / 2) for move in (0, 1))
    exact = np.maximum(p - math.exp(epsilon) * shifted, 0).sum()
    assert (
        exact
        <= compose_losses([(skellam_losses(variance), 1)]).delta(epsilon)
        <= 1.02 * exact + accountant.LEAST_DELTA
    )


def test_accountant_of_two_cells_is_above_the_exact_delta():
    k = np.arange(-150, 151)
    p, shifted = (stats.skellam.pmf(k - move, 10.0, 10.0) for move in (0, 1))
    exact = np.maximum(np.outer(p, p) - math.exp(0.7) * np.outer(shifted, shifted), 0).sum()
    assert exact <= compose_losses([(skellam_losses(20.0), 2)]).delta(0.7) <= 1.02 * exact


def test_stages_compose_like_dp_accounting():
    composed = compose_losses([(skellam_losses(1000.0), 90), (skellam_losses(500.0), 20)])
    assert abs(composed.epsilon(1e-6) / 1.577374535159611 - 1) <= 1e-3


def test_losses_of_pure_privacy_add_up():
    assert compose_losses([(laplace_losses(0.2), 6)]).epsilon(1e-6) == pytest.approx(1.2, rel=1e-4)
    assert compose_losses([(bounded_losses(3.0), 1)]).epsilon(1e-9) == pytest.approx(math.log(3), rel=1e-6)
    assert compose_losses([]).epsilon(1e-6) == 0.0
    assert compose_losses([(bounded_losses(1.0), 1)]).epsilon(1e-6) == 0.0


def test_a_release_beside_noise_costs_less_than_the_sum():
    terms = NoiseTerms(1, 10, contributors=3, colluders=1)
    both = terms.epsilon_with(2, gamma=3)
    assert 2.07 < both < 1 + math.log(3)


def test_mass_beyond_the_grid_is_counted(monkeypatch):
    exact = compose_losses([(skellam_losses(357.0), 20)])
    monkeypatch.setattr(accountant, "_SPREADS", 2.0)
    narrow = compose_losses([(skellam_losses(357.0), 20)])
    assert narrow.delta(0.3) >= exact.delta(0.3)
    assert narrow.infinite > 1e-3


@pytest.mark.parametrize(("variance", "k", "expected"), MPMATH)
def test_weights_equal_mpmath(variance, k, expected):
    shares = skellam_shares(variance)
    for sign in {k, -k}:
        # the mode gets what flooring left over, less than one word for each outcome
        slack = len(shares.weights) if k == 0 else 0
        assert expected <= shares.weights[sign - shares.lowest] <= expected + slack


@pytest.mark.parametrize("shares", [skellam_shares(Fraction(34), 3), polya_shares(Fraction(3, 5), 2)])
def test_weights_fill_all_words_and_state_their_error(shares):
    assert sum(shares.weights) == 2**64
    assert 0 < shares.error < Fraction(1, 2**50)


def test_sampler_assigns_words_exactly_by_weight():
    small = NoiseSampler(-1, (2**62, 2**63, 2**62), Fraction(0))
    edges = [0, 2**62 - 1, 2**62, 2**62 + 2**63 - 1, 2**62 + 2**63, 2**64 - 1]
    assert small.outcomes_of(np.array(edges, dtype=np.uint64)).tolist() == [-1, -1, 0, 0, 1, 1]
    one = NoiseSampler(5, (2**64,), Fraction(0))
    assert one.outcomes_of(np.array([0, 2**64 - 1], dtype=np.uint64)).tolist() == [5, 5]


def chi_square(drawn, pmf):
    """Return the p-value of a fit of drawn integers to a distribution; rare outcomes form one class."""
    k = np.arange(drawn.min() - 1, drawn.max() + 2)
    expected = pmf(k) * len(drawn)
    common = expected >= 20
    observed = np.array([(drawn == each).sum() for each in k[common]])
    rest = len(drawn) - observed.sum(), len(drawn) - expected[common].sum()
    statistic = ((observed - expected[common]) ** 2 / expected[common]).sum()
    if rest[1] > 1:
        statistic += (rest[0] - rest[1]) ** 2 / rest[1]
    return stats.chi2.sf(statistic, common.sum())


@pytest.mark.parametrize("honest", [1, 2, 3, 1000])
def test_sums_of_shares_have_the_distribution_of_the_accountant(honest):
    """False-alarm rate 1e-6 for each of the eight comparisons."""
    runs = 60_000 if honest < 1000 else 3_000
    skellam = skellam_shares(Fraction(135, 4), honest).draw((runs, honest)).sum(axis=1)
    assert chi_square(skellam, lambda k: stats.skellam.pmf(k, 135 / 8, 135 / 8)) > ALPHA
    laplace = polya_shares(Fraction(3, 5), honest).draw((runs, honest)).sum(axis=1)
    assert chi_square(laplace, lambda k: 0.25 * 0.6 ** np.abs(k)) > ALPHA


def test_colluders_subtract_their_shares_and_the_rest_has_the_variance():
    terms = NoiseTerms(1, 10, contributors=3, colluders=1)
    [stage] = terms.stages
    shares = terms.shares(stage).draw((100_000, 3))
    secret = shares[:, :2].sum(axis=1)
    bound = stats.norm.isf(ALPHA / 2) * math.sqrt(2 / len(secret)) * 1.01
    assert abs(secret.var() / float(stage.variance) - 1) < bound
    assert abs(shares.sum(axis=1).var() / terms.variance - 1) < bound
    assert terms.variance == pytest.approx(1.5 * float(stage.variance))


@pytest.mark.parametrize("shares", [skellam_shares(Fraction(34), 3), polya_shares(Fraction(3, 5), 2)])
def test_every_word_is_searched_by_the_same_number_of_steps(monkeypatch, shares):
    """The duration of a draw does not depend on the noise: tails and mode take as many comparisons."""
    looked = []

    class Watched(np.ndarray):
        def __getitem__(self, index):
            looked.append(np.size(index))
            return np.asarray(self)[index]

    last = sampler._last_words(shares)
    monkeypatch.setattr(sampler, "_last_words", lambda _: last.view(Watched))
    steps = set()
    for word in (0, 2**63, 2**63 + 2**40, 2**64 - 1):
        looked.clear()
        shares.outcomes_of(np.array([word], dtype=np.uint64))
        steps.add(len(looked))
    assert steps == {len(last).bit_length() - 1}


def test_draws_use_no_floats(monkeypatch):
    """A draw calls OS randomness, and every array on the way holds integers."""
    seen = []
    draw = NoiseSampler.outcomes_of

    def watched(self, words):
        result = draw(self, words)
        seen.append((words.dtype.kind, result.dtype.kind, sampler._last_words(self).dtype.kind))
        return result

    monkeypatch.setattr(NoiseSampler, "outcomes_of", watched)
    shares = skellam_shares(Fraction(34), 3)
    assert shares.draw(10).dtype == np.int64
    assert seen == [("u", "i", "u")]
    assert all(isinstance(weight, int) for weight in shares.weights)


@pytest.mark.parametrize(
    ("tables", "variance"),
    [(1, 7.84), (2, 31.8), (3, 71.8), (4, 127.8), (5, 178.1), (10, 356.8), (45, 1606.7)],
)
def test_terms_choose_the_law_with_less_noise(tables, variance):
    [stage] = NoiseTerms(1, tables).stages
    assert stage.law == ("laplace" if tables <= 4 else "skellam")
    assert float(stage.variance) == pytest.approx(variance, rel=2e-3)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_terms_keep_their_promise_tightly(epsilon):
    terms = NoiseTerms(epsilon, 12)
    assert 0.999 * epsilon < terms.epsilon_with(1) <= epsilon
    assert terms.sampler_delta < 1e-3 * terms.delta


def test_terms_in_stages_share_the_budget():
    terms = NoiseTerms(1, [(45, 0.6), (10, 0.4)])
    first, second = terms.stages
    assert terms.number == 55
    assert 0.999 < terms.epsilon_with(1) <= 1
    assert float(first.variance / second.variance) == pytest.approx((45 / 0.6) / (10 / 0.4), rel=1e-3)


def test_terms_without_delta_are_pure():
    terms = NoiseTerms(1, 3, delta=0)
    [stage] = terms.stages
    assert -math.log(stage.ratio) * 6 <= 1
    assert terms.epsilon_with(1) <= 1
    assert 0 < terms.sampler_delta < 1e-12


def test_idle_contributors_cost_epsilon():
    terms = NoiseTerms(1, 10, contributors=3, colluders=1)
    assert terms.epsilon_with(1) == pytest.approx(1.45, abs=0.01)
    assert terms.epsilon_with(3) == pytest.approx(0.80, abs=0.01)
    assert terms.epsilon_with(0) == math.inf


def test_two_contributors_are_enough():
    terms = NoiseTerms(1, 10, contributors=2, colluders=1)
    assert terms.deviation == pytest.approx(math.sqrt(2) * NoiseTerms(1, 10).deviation, rel=1e-3)


def test_many_people_share_the_noise():
    terms = NoiseTerms(1, 45, contributors=1_000_000, colluders=150_000)
    assert terms.sampler_delta < 1e-9
    assert terms.deviation == pytest.approx(NoiseTerms(1, 45).deviation * math.sqrt(1 / 0.85), rel=1e-3)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"epsilon": 0}, "'epsilon' of noise"),
        ({"epsilon": math.nan}, "'epsilon' of noise"),
        ({"epsilon": True}, "must be a number"),
        ({"delta": 1e-11}, "'delta' of noise must be 0, or from 1e-10"),
        ({"delta": -1}, "'delta' of noise"),
        ({"tables": 0}, "'tables' of noise"),
        ({"tables": [(3, 0.5)]}, "must add up to 1"),
        ({"tables": [3]}, "Stages of noise are pairs"),
        ({"contributors": 2, "colluders": 2}, "at most 1 may collude"),
        ({"contributors": 0}, "'contributors' of noise"),
    ],
)
def test_terms_refuse_what_cannot_be_promised(options, text):
    with pytest.raises(InputError, match=text):
        NoiseTerms(**({"epsilon": 1, "tables": 3} | options))


def test_terms_survive_json():
    terms = NoiseTerms(1, [(45, 0.6), (10, 0.4)], contributors=3, colluders=1)
    assert NoiseTerms.from_dict(terms.to_dict()) == terms


def test_gaussian_variance_is_the_limit_of_many_tables():
    assert 2 * gaussian_variance(1, 1e-6) * 45 == pytest.approx(NoiseTerms(1, 45).variance, rel=2e-3)
