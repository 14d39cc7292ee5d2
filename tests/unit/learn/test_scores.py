"""Scores against loops over cells, the design effect against its definition and against simulation."""

from __future__ import annotations

from math import lgamma, log

import numpy as np
import pandas as pd
import pytest
from tests.statistical.checks import normal_bound

import masquerade as mq
from masquerade.core.axes import AxisMap, AxisMaps
from masquerade.core.errors import InputError
from masquerade.core.linear_covariance import CovariancePart, LinearCovariance
from masquerade.core.schema import Variable
from masquerade.core.table import CountTable
from masquerade.estimate.evidence import GaussianEvidence
from masquerade.learn.networks import _design_effect
from masquerade.learn.networks._candidates import Candidates
from masquerade.learn.networks._design_effect import design_effects
from masquerade.learn.networks.link_strength import link_strengths
from masquerade.learn.networks.scores import (
    AIC,
    BIC,
    K2,
    LIKELIHOOD,
    Constant,
    DesignEffect,
    Eta,
    Uncorrected,
    bdeu,
    family_score,
    score_called,
)

NO_FLOOR = np.array([-np.inf])
COUNTS = np.array([[7.0, 0.0, 3.5], [0.0, 0.0, 0.0], [2.0, 9.0, 1.0], [4.0, 4.0, 4.0]])


def symmetric(size: int, p: float) -> np.ndarray:
    return np.full((size, size), p / (size - 1)) + (1 - p - p / (size - 1)) * np.eye(size)


def estimated(observed: np.ndarray, p: float) -> CountTable:
    """Return the table that records with these report counts give, every variable disguised symmetrically."""
    n = round(observed.sum())
    maps = AxisMaps(
        observed.shape,
        tuple(AxisMap((i,), np.linalg.inv(symmetric(size, p))) for i, size in enumerate(observed.shape)),
    )
    values = maps.apply(observed)
    axes = tuple(Variable(f"v{i}", tuple(range(size))) for i, size in enumerate(observed.shape))
    covariance = LinearCovariance((CovariancePart(observed, maps),), values, values, n)
    return CountTable(axes, values, n, GaussianEvidence.of(values, covariance))


def reported(truth: np.ndarray, p: float) -> np.ndarray:
    """Return the expected report counts."""
    for axis, size in enumerate(truth.shape):
        truth = np.moveaxis(np.tensordot(truth, symmetric(size, p), (axis, 0)), -1, axis)
    return truth


def test_penalised_scores_are_their_formula():
    fit = sum(
        c * log(c / row.sum()) for row in COUNTS for c in row if c > 0
    )  # loops, so that nothing is shared with the code
    assert family_score(COUNTS, BIC, 50.0) == pytest.approx(fit - log(50) / 2 * 4 * 2, rel=1e-12)
    assert family_score(COUNTS, AIC, 50.0) == pytest.approx(fit - 4 * 2, rel=1e-12)


@pytest.mark.parametrize(("score", "alpha"), [(K2, 1.0), (bdeu(6.0), 6.0 / 12)])
def test_bayesian_scores_are_their_formula(score, alpha):
    expected = 0.0
    for row in COUNTS:
        expected += lgamma(3 * alpha) - lgamma(3 * alpha + row.sum())
        expected += sum(lgamma(alpha + c) - lgamma(alpha) for c in row)
    assert family_score(COUNTS, score, 50.0) == pytest.approx(expected, rel=1e-12)


def test_scores_of_many_families_at_once_are_those_of_each():
    stack = np.stack([COUNTS, COUNTS[::-1] + 1])
    for score in (BIC, K2, bdeu()):
        each = [family_score(counts, score, 90.0) for counts in stack]
        np.testing.assert_allclose(family_score(stack, score, 90.0), each, rtol=1e-13)


def test_bayesian_scores_see_divided_counts():
    table = estimated(np.random.default_rng(1).integers(20, 90, (2, 3, 2)).astype(float), 0.1)
    link = Candidates([table], [(1, 0, 2)])
    shape = link.counts[0].shape
    for c in (1.0, 7.0):
        scaled = link.counts[0] / c
        new = family_score(scaled.reshape(-1, shape[-1]), K2, table.n)
        old = family_score(scaled.sum(axis=1), K2, table.n)
        assert Constant(c).gains(link, K2, NO_FLOOR)[0] == pytest.approx(c * (new - old), rel=1e-10)


def test_bic_gain_is_positive_exactly_if_the_divided_likelihood_exceeds_the_penalty():
    table = estimated(np.random.default_rng(2).integers(20, 90, (3, 4, 2)).astype(float), 0.1)
    link = Candidates([table], [(1, 0, 2)])
    raw = Uncorrected().gains(link, LIKELIHOOD, NO_FLOOR)[0]
    df = 4 * (3 - 1) * (2 - 1)
    edge = raw / (log(table.n) / 2 * df)
    assert DesignEffect().divided_gains(link, BIC, np.array([edge * 0.999]))[0] > 0
    assert DesignEffect().divided_gains(link, BIC, np.array([edge * 1.001]))[0] < 0


def test_eta_asks_for_a_share_of_the_old_score():
    table = estimated(np.random.default_rng(3).integers(20, 90, (2, 2)).astype(float), 0.1)
    link = Candidates([table], [(0, 1)])
    old = float(family_score(link.counts[0].sum(axis=1), K2, table.n))
    plain, strict = (rule.gains(link, K2, NO_FLOOR)[0] for rule in (Eta(1.0), Eta(0.97)))
    assert plain - strict == pytest.approx(0.03 * abs(old), rel=1e-10)


def by_definition(table: CountTable, counts: np.ndarray) -> float:
    """Return δ̄ of axes 1 and 2 given axis 0 from the dense covariance and explicit residual maps."""
    cells = counts[0].size
    dense = table.covariance.dense()
    clear = np.diag(table.values.ravel()) - np.outer(table.values, table.values) / table.n
    total, df = 0.0, 0
    for j, block in enumerate(counts):
        pi_z, pi_x = block.sum(axis=1) / block.sum(), block.sum(axis=0) / block.sum()
        maps = np.kron(
            np.eye(len(pi_z)) - np.outer(pi_z, np.ones(len(pi_z))),
            np.eye(len(pi_x)) - np.outer(pi_x, np.ones(len(pi_x))),
        )
        here = slice(j * cells, (j + 1) * cells)
        variance = np.diag(maps @ (dense - clear)[here, here] @ maps.T)
        total += np.sum(variance / (block.sum() * np.outer(pi_z, pi_x).ravel()))
        df += (len(pi_z) - 1) * (len(pi_x) - 1)
    return 1 + total / df


def test_design_effect_is_its_definition(monkeypatch):
    observed = np.random.default_rng(4).integers(200, 900, (4, 3, 2)).astype(float)
    table = estimated(observed, 0.15)
    link = Candidates([table], [(0, 1, 2)])
    expected = by_definition(table, link.counts[0])
    assert expected > 1.5
    assert design_effects(link)[0] == pytest.approx(expected, rel=1e-10)
    monkeypatch.setattr(_design_effect, "LARGEST_BLOCKS", 0)  # from margins instead of blocks
    assert design_effects(link)[0] == pytest.approx(expected, rel=1e-10)


def test_design_effect_of_independent_binaries_is_known():
    """One binary with share π: 1 + p(1−p)/((1−2p)²π(1−π)); two of them multiply."""
    shares, p = (0.3, 0.4), 0.2
    truth = 10_000 * np.outer(*([s, 1 - s] for s in shares))
    table = estimated(reported(truth, p), p)
    expected = np.prod([1 + p * (1 - p) / ((1 - 2 * p) ** 2 * s * (1 - s)) for s in shares])
    # the product holds up to the −N̂N̂ᵀ/n of both covariances, which an independent table maps to 0
    assert design_effects(Candidates([table], [(0, 1)]))[0] == pytest.approx(expected, rel=1e-9)


def test_clear_counts_have_no_design_effect_whatever_they_are():
    """Two rare categories that never meet: their own variances, taken literally, would give 0.02."""
    never = np.array([[0.0, 200.0], [200.0, 19_600.0]])
    link = Candidates([estimated(never, 0.0)], [(0, 1)])
    assert design_effects(link)[0] == pytest.approx(1, abs=1e-9)
    assert DesignEffect().gains(link, BIC, NO_FLOOR)[0] < 0


def test_unseen_configurations_are_skipped():
    observed = np.zeros((3, 2, 2))
    observed[0], observed[2] = [[30, 10], [20, 40]], [[25, 25], [5, 45]]
    with_gap = Candidates([estimated(observed, 0.0)], [(0, 1, 2)])
    without = Candidates([estimated(observed[[0, 2]], 0.0)], [(0, 1, 2)])
    for score in (LIKELIHOOD, K2):
        gain = [Uncorrected().gains(link, score, NO_FLOOR)[0] for link in (with_gap, without)]
        assert gain[0] == pytest.approx(gain[1], rel=1e-12)
    assert np.isfinite(design_effects(with_gap)).all()


@pytest.mark.parametrize("p", [0.0, 0.1, 0.2, 0.3])
def test_noise_inflates_the_statistic_and_the_design_effect_takes_it_out(p):
    """Independent binaries (shares .3, .4), n = 10,000: G² has mean 1/2.6/8.9/47, G²/δ̄ keeps mean 1.

    False alarm 1e-6 over the four levels and two means, by the runs' own spread. Bias allowed for: Bartlett's
    (Σ1/π_x − 1)(Σ1/π_z − 1)/(6n) at the effective number n/δ̄ of records.
    """
    runs, shares = 1000, (0.3, 0.4)
    generator = np.random.default_rng(int(10 * p))
    expected = reported(np.outer(*([s, 1 - s] for s in shares)), p)
    tables = [
        estimated(generator.multinomial(10_000, expected.ravel()).reshape(2, 2).astype(float), p)
        for _ in range(runs)
    ]
    links = Candidates(tables, [(0, 1)] * runs)
    statistic = 2 * Uncorrected().gains(links, LIKELIHOOD, np.full(runs, -np.inf))
    effect = np.prod([1 + p * (1 - p) / ((1 - 2 * p) ** 2 * s * (1 - s)) for s in shares])
    bartlett = np.prod([1 / s + 1 / (1 - s) - 1 for s in shares]) / (6 * 10_000 / effect)
    bound = normal_bound(8) / np.sqrt(runs)
    divided = statistic / design_effects(links)
    assert abs(divided.mean() - 1) <= bound * divided.std(ddof=1) + bartlett
    assert abs(statistic.mean() / effect - 1) <= bound * statistic.std(ddof=1) / effect + bartlett


def test_strengths_of_links_through_a_source():
    frame = pd.DataFrame({"a": [0, 0, 1, 1] * 50, "b": [0, 0, 1, 1] * 49 + [1, 0, 1, 0], "c": [0, 1] * 100})
    first, second = link_strengths(mq.tally(frame), {"a": (), "c": (), "b": ("c", "a")})
    assert (first.parent, second.parent, first.child) == ("a", "c", "b")
    assert first.p_value < 1e-6 < second.p_value


def test_bad_scores_and_rules_are_refused():
    assert score_called("k2") is K2
    with pytest.raises(InputError, match="Did you mean 'bdeu'"):
        score_called("bde")
    with pytest.raises(InputError, match="equivalent sample size"):
        bdeu(0)
    with pytest.raises(InputError, match=r"C\*"):
        Constant(0)
    with pytest.raises(InputError, match="η"):
        Eta(1.5)
    with pytest.raises(InputError, match="no records"):
        Candidates([estimated(np.zeros((2, 2)), 0.1)], [(0, 1)])
