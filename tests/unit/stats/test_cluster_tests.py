"""Sizes of tests with few clusters: Rao's and Scott's likelihood ratio, and CR2 errors with few degrees."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from scipy.stats import t as student

import masquerade as mq

CLUSTERS, EACH, RUNS = 16, 40, 100
MOST = 22  # P(Binomial(100, 0.07) > 22) < 1e-6


@pytest.fixture(scope="module")
def p_values():
    """Return p-values of true nulls, by run: one term, three terms, CR2; and three terms without clusters."""
    draw = np.random.default_rng(3)
    policy = mq.Policy.build({"y": ["yes", "no"]}, {"y": mq.channels.forced_response("1/6", "1/6")})
    cluster = np.repeat(np.arange(CLUSTERS), EACH)
    rows = []
    for run in range(RUNS):
        terms = draw.standard_normal((CLUSTERS, 3))
        terms[:, 0] = np.exp(terms[:, 0])  # a few clusters determine its coefficient
        chance = expit(-0.5 + draw.standard_normal(CLUSTERS))[cluster]
        truth = pd.DataFrame({"y": np.where(draw.random(len(cluster)) < chance, "yes", "no")})
        source = mq.tally(mq.simulate(truth, policy, seed=run), policy)
        clear = pd.DataFrame(terms[cluster], columns=list("abc")).assign(cluster=cluster)
        fit = mq.stats.logistic(source, "y ~ a + b + c", covariates=clear, clusters="cluster").fit
        plain = mq.stats.logistic(source, "y ~ a + b + c", covariates=clear).fit
        z = abs(fit.solution.beta[1]) / np.sqrt(fit.covariance[1, 1])
        rows.append(
            (
                fit.test_terms([1])[2],
                fit.test_terms([1, 2, 3])[2],
                2 * student.sf(z, fit.design.df[1]),
                plain.test_terms([1, 2, 3])[2],
            )
        )
    return dict(zip(("one", "three", "cr2", "plain"), np.array(rows).T, strict=True))


@pytest.mark.parametrize("test", ["one", "three", "cr2"])
def test_true_nulls_of_clusters_are_rejected_at_the_level(p_values, test):
    assert np.sum(p_values[test] < 0.05) <= MOST


def test_without_clusters_true_nulls_are_rejected_far_more_often(p_values):
    """Otherwise the sizes above show nothing; some 60 of 100 here."""
    assert np.sum(p_values["plain"] < 0.05) > MOST
