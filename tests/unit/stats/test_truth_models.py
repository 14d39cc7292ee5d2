"""Derivatives of all truth models against complex steps through formulas written a second time."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import comb, erfc, gammaln, loggamma

from masquerade.stats.regression.truth_models import (
    BetaBinomialItems,
    BinaryOutcome,
    BinomialItems,
    CumulativeLogit,
    MultinomialLogit,
    NormalDensity,
    Part,
    PoissonCounts,
    Product,
)

ROWS = 40
Y = np.linspace(-2, 2, ROWS)
SENSITIVE, ITEMS = np.repeat([0, 1], 4), np.tile(np.arange(4), 2)


def both(yes, no):
    return np.stack([yes, no], axis=-1)


def log_expit(u):
    return -np.log1p(np.exp(-u))


def logit(eta):
    return both(log_expit(eta[..., 0]), log_expit(-eta[..., 0]))


def probit(eta):
    u = eta[..., 0] / np.sqrt(2)
    return both(np.log(erfc(-u) / 2), np.log(erfc(u) / 2))


def cloglog(eta):
    hazard = np.exp(eta[..., 0])
    return both(np.log(-np.expm1(-hazard)), -hazard)


def log_link(eta):
    return both(eta[..., 0], np.log(1 - np.exp(eta[..., 0])))


def softmax(eta, reference):
    full = np.insert(eta, reference, 0, axis=-1)
    return full - np.log(np.exp(full).sum(axis=-1, keepdims=True))


def ordinal(eta):
    F = 1 / (1 + np.exp(-eta))
    F = np.concatenate([np.zeros((*eta.shape[:-1], 1)), F, np.ones((*eta.shape[:-1], 1))], axis=-1)
    return np.log(np.diff(F, axis=-1))


def counts(eta, size=6, *, is_top_coded):
    k = np.arange(80)
    log_p = k * eta - np.exp(eta) - gammaln(k + 1)
    if is_top_coded:
        log_p[..., size - 1] = np.log(np.exp(log_p[..., size - 1 :]).sum(axis=-1))
    return log_p[..., :size]


def binomial(eta):
    j = np.arange(4)
    return np.log(comb(3, j)) + j * log_expit(eta) + (3 - j) * log_expit(-eta)


def beta_binomial(eta):
    j = np.arange(4)
    p, spread = 1 / (1 + np.exp(-eta[..., :1])), 1 / (1 + np.exp(-eta[..., 1:]))
    total = (1 - spread) / spread
    a, b = p * total, (1 - p) * total

    def log_beta(x, y):
        return loggamma(x) + loggamma(y) - loggamma(x + y)

    return np.log(comb(3, j)) + log_beta(a + j, b + 3 - j) - log_beta(a, b)


def normal(eta):
    z = (Y[: len(eta)] - eta[:, 0]) / np.exp(eta[:, 1])
    return (-z * z / 2 - eta[:, 1] - np.log(2 * np.pi) / 2)[:, None]


def lie_detector(eta):
    yes, honest = logit(eta[..., :1]), logit(eta[..., 1:])
    return np.stack([yes[:, 0] + honest[:, 0], yes[:, 1], yes[:, 0] + honest[:, 1]], axis=-1)


def cheaters(eta):
    yes, follows = logit(eta[..., :1]), logit(-eta[..., 1:])
    return np.stack([follows[:, 0] + yes[:, 0], follows[:, 0] + yes[:, 1], follows[:, 1]], axis=-1)


def items(eta):
    return logit(eta[:, :1])[:, SENSITIVE] + softmax(eta[:, 1:], 0)[:, ITEMS]


def by_truth(eta):
    """Return log p of (covariate, outcome), where every truth has predictors of its own."""
    return np.stack(
        [logit(eta[:, k, :1])[:, k % 2] + softmax(eta[:, k, 1:], 0)[:, k // 2] for k in range(eta.shape[1])],
        axis=-1,
    )


MODELS = {
    "logit": (BinaryOutcome("logit"), logit),
    "probit": (BinaryOutcome("probit"), probit),
    "cloglog": (BinaryOutcome("cloglog"), cloglog),
    "log": (BinaryOutcome("log"), log_link),
    "multinomial": (MultinomialLogit(5, 2), lambda eta: softmax(eta, 2)),
    "ordinal": (CumulativeLogit(4), ordinal),
    "counts": (PoissonCounts(6, is_top_coded=False), lambda eta: counts(eta, is_top_coded=False)),
    "top-coded counts": (PoissonCounts(6, is_top_coded=True), lambda eta: counts(eta, is_top_coded=True)),
    "binomial items": (BinomialItems(4), binomial),
    "beta-binomial items": (BetaBinomialItems(4), beta_binomial),
    "normal": (NormalDensity(Y), normal),
    "lie detector": (
        Product(
            (
                Part(BinaryOutcome(), (0,), np.array([0, 1, 0])),
                Part(BinaryOutcome(), (1,), np.array([0, -1, 1])),
            ),
            3,
            2,
        ),
        lie_detector,
    ),
    "cheaters": (
        Product(
            (
                Part(BinaryOutcome(), (1,), np.array([1, 1, 0])),
                Part(BinaryOutcome(), (0,), np.array([0, 1, -1])),
            ),
            3,
            2,
        ),
        cheaters,
    ),
    "list": (
        Product((Part(BinaryOutcome(), (0,), SENSITIVE), Part(MultinomialLogit(4), (1, 2, 3), ITEMS)), 8, 4),
        items,
    ),
    "disguised covariate": (
        Product(
            (
                Part(BinaryOutcome(), (0,), np.tile([0, 1], 3)),
                Part(MultinomialLogit(3), (1, 2), np.repeat(np.arange(3), 2)),
            ),
            6,
            3,
        ),
        by_truth,
    ),
}


def test_beta_binomial_items_without_overdispersion_are_binomial():
    """Quotients of gamma functions lose .1 of the log-likelihood of 3,000 records here."""
    u = np.random.default_rng(5).normal(size=(50, 1))
    rows = np.arange(50)
    plain = BinomialItems(6).evaluate(u, rows)
    for v in (-30.0, -50.0, -500.0):
        limit = BetaBinomialItems(6).evaluate(np.column_stack([u, np.full(50, v)]), rows)
        np.testing.assert_allclose(limit[0], plain[0], atol=1e-11)
        np.testing.assert_allclose(limit[1][..., :1], plain[1], atol=1e-11)
        np.testing.assert_allclose(limit[2][..., :1, :1], plain[2], atol=1e-10)
        np.testing.assert_allclose(limit[1][..., 1], 0, atol=1e-10)


@pytest.mark.parametrize("name", MODELS)
def test_truth_models_have_the_derivatives_of_a_complex_step(name):
    model, formula = MODELS[name]
    draw = np.random.default_rng(3)
    shape = (ROWS, model.truths) if name == "disguised covariate" else (ROWS,)
    eta = draw.normal(-0.5, 1, (*shape, model.predictors))
    if name == "log":
        eta = -np.abs(eta) - 0.2
    if name == "ordinal":
        eta = np.cumsum(0.3 + np.abs(eta), axis=1) - 2

    def slopes(at):
        moves = 1e-20j * np.eye(model.predictors)
        return np.stack([formula(at + move).imag / 1e-20 for move in moves], axis=-1)

    log_p, s, h = model.evaluate(eta, np.arange(ROWS))
    if name not in (
        "normal",
        "counts",
        "disguised covariate",
    ):
        np.testing.assert_allclose(np.exp(log_p).sum(axis=-1), 1.0, atol=1e-12)
    np.testing.assert_allclose(log_p, formula(eta.astype(complex)).real, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(s, slopes(eta), rtol=1e-9, atol=1e-9)
    moves = 1e-5 * np.eye(model.predictors)
    bends = np.stack([(slopes(eta + move) - slopes(eta - move)) / 2e-5 for move in moves], axis=-1)
    np.testing.assert_allclose(h, bends, rtol=1e-7, atol=1e-8)
