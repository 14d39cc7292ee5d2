"""Draws from the posterior: the conjugate answer for clear records, quadrature for disguised ones."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from benchmarks import design_coverage
from tests.statistical.checks import normal_bound

import masquerade as mq
from masquerade.core.errors import InputError
from masquerade.estimate.posterior import effective_draws, largest_rhat
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
    assert effective_draws(chains) == pytest.approx(80_000 / 9, rel=0.15)
    assert largest_rhat(chains) < 1.01
    assert largest_rhat(chains + np.arange(4)[:, None, None]) > 1.1


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
    with pytest.raises(InputError, match="without conditions"):
        source.posterior(mq.Query(where={"a": 0}))


def test_groups_of_fixed_sizes_have_the_posterior_that_quadrature_finds():
    """Cheater detection: each group a multinomial of its own, integrated over the simplex."""
    counts = np.array([[150, 350], [260, 240]])  # group × answer
    policy = mq.Policy.build({"x": ["yes", "no", "cheat"]}, {"x": mq.channels.cheater_detection([0.1, 0.6])})
    codes = np.repeat(np.arange(4), counts.ravel())
    columns = {"x_group": codes // 2, "x_answer": codes % 2}
    source = Records({name: column.astype(np.uint8) for name, column in columns.items()}, policy)
    found = source.posterior(mq.Query(by="x"))
    grid = (np.arange(700) + 0.5) / 700
    yes, no = np.meshgrid(grid, grid, indexing="ij")
    cheat = 1 - yes - no
    inside = cheat > 1e-9
    log = -0.5 * np.log(np.where(inside, yes * no * cheat, 1.0))
    for (said, denied), forced in zip(counts, (0.1, 0.6), strict=True):
        share = yes + forced * no
        log += said * np.log(share) + denied * np.log(np.where(inside, 1 - share, 1.0))
    weight = np.exp(np.where(inside, log - log[inside].max(), -np.inf))
    weight /= weight.sum()
    mean = np.array([(weight * part).sum() for part in (yes, no, cheat)])
    sd = np.sqrt([(weight * (part - m) ** 2).sum() for part, m in zip((yes, no, cheat), mean, strict=True)])
    assert np.all(np.abs(found.mean - mean) < normal_bound(3) * sd / np.sqrt(found.ess) + 1e-3)
    np.testing.assert_allclose(found.sd, sd, rtol=0.15)


@pytest.mark.parametrize(
    "name", ["warner", "crosswise with anchor", "unrelated, unknown prevalence", "list experiment"]
)
def test_indirect_questions_have_a_posterior_about_their_estimate(name):
    study = design_coverage.Study.of(design_coverage.DESIGNS[name], (0.4, 0.4))
    source = study.drawn(2000, np.random.default_rng(8))
    found = source.posterior(mq.Query(by="x"))
    table = mq.stats.shares(source, "x")
    assert abs(found.mean[0] - table.values[0]) < 0.75 * table.stderr[0]
    assert found.sd[0] == pytest.approx(table.stderr[0], rel=0.25)
