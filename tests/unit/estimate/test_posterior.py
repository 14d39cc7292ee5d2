"""Draws from the posterior: the conjugate answer for clear records, quadrature for disguised ones."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from tests.statistical.checks import normal_bound

import masquerade as mq
from masquerade.core.errors import InputError
from masquerade.estimate.posterior import effective, mixing
from masquerade.sources.records import Records


def source_of(counts, channel=None, size=2):
    policy = mq.Policy.build({"a": list(range(size))}, {} if channel is None else {"a": channel})
    return Records({"a": np.repeat(np.arange(size), counts).astype(np.uint8)}, policy)


def test_clear_records_have_the_conjugate_posterior():
    found = source_of([30, 70]).posterior(mq.Query(by="a"))
    mean = 30.5 / 101
    sd = np.sqrt(mean * (1 - mean) / 102)
    error = sd / np.sqrt(found.ess)
    assert abs(found.mean[0] - mean) < normal_bound(1) * error
    assert found.sd[0] == pytest.approx(sd, rel=normal_bound(1) / np.sqrt(2 * found.ess))
    assert found.ess >= 1000
    assert found.rhat < 1.01


def test_disguised_records_have_the_posterior_that_quadrature_finds():
    found = source_of([60, 140], mq.channels.symmetric(2, "0.25")).posterior(mq.Query(by="a"))
    grid = (np.arange(20_000) + 0.5) / 20_000
    report = 0.75 * grid + 0.25 * (1 - grid)
    log = 60 * np.log(report) + 140 * np.log(1 - report) - 0.5 * np.log(grid * (1 - grid))
    weight = np.exp(log - log.max())
    weight /= weight.sum()
    mean = weight @ grid
    sd = np.sqrt(weight @ (grid - mean) ** 2)
    assert abs(found.mean[0] - mean) < normal_bound(1) * sd / np.sqrt(found.ess) + 1e-4
    assert found.sd[0] == pytest.approx(sd, rel=0.15)
    lower, upper = found.conf_int()
    assert lower[0] < mean < upper[0]


def test_the_effective_number_is_that_of_an_autoregression():
    draw = np.random.default_rng(1)
    chains = np.zeros((4, 20_000, 1))
    for step in range(1, 20_000):
        chains[:, step] = 0.8 * chains[:, step - 1] + draw.normal(size=(4, 1))
    assert effective(chains) == pytest.approx(80_000 / 9, rel=0.15)
    assert mixing(chains) < 1.01
    assert mixing(chains + np.arange(4)[:, None, None]) > 1.1


def test_a_posterior_is_a_value_that_shows_itself_and_can_be_repeated():
    source = source_of([20, 30, 50], mq.channels.symmetric(3, "0.2"), 3)
    found = source.posterior(mq.Query(by="a"))
    again = pickle.loads(pickle.dumps(found))  # noqa: S301  (our own)
    assert again.summary() == source.posterior(mq.Query(by="a")).summary() == found.summary()
    assert "effective" in found.summary()
    assert found.to_frame()["mean"].sum() == pytest.approx(1)
    assert found.plot().get_xlabel() == "share in percent, 95%"
    with pytest.raises(InputError, match="above 0"):
        source.posterior(mq.Query(by="a"), prior=0)
    with pytest.raises(InputError, match="without a condition"):
        source.posterior(mq.Query(where={"a": 0}))
