"""Links fitted together are what they are fitted alone, whatever their evidence."""

import numpy as np
import pytest
from tests.unit.estimate.cases import draw_table, random_channel

from masquerade.core.covariance import IndependentCovariance
from masquerade.core.evidence import Reduction
from masquerade.core.link_fits import fit_links, one_link
from masquerade.estimate.evidence import GaussianEvidence, ReportEvidence
from masquerade.estimate.reports import Reports


def reported(rng, shape, n, channels, truth=None):
    """Return the evidence of one table of reports."""
    theta = rng.dirichlet(np.ones(np.prod(shape))).reshape(shape) if truth is None else truth
    observed = draw_table(rng, n, theta, channels)
    part = Reports(observed, tuple(channels), tuple(shape), Reduction.none(len(shape)))
    return ReportEvidence.of([part], np.zeros(shape), IndependentCovariance(np.ones(shape)))


def test_links_of_all_kinds_of_evidence_keep_their_order():
    rng = np.random.default_rng(1)
    two = reported(rng, (3, 2), 500, [random_channel(rng, 3, 3), None])
    wald = GaussianEvidence.of(rng.uniform(5, 20, (2, 2, 3)), IndependentCovariance(np.full((2, 2, 3), 4.0)))
    three = reported(rng, (2, 3, 2), 800, [random_channel(rng, 2, 2), None, random_channel(rng, 2, 4)])
    batch, places = [two, wald, three, wald], [(1, 0), (2, 0, 1), (0, 2, 1), (0, 1, 2)]
    fits = fit_links(batch, places, tolerance=1e-6)
    assert len(fits) == 4
    assert fits.df.tolist() == [2, 3, 4, 4]
    assert fits.settled.all()
    assert fits.converged.all()
    for i, (evidence, where) in enumerate(zip(batch, places, strict=True)):
        alone = one_link(evidence, where)
        assert fits.statistic[i] == pytest.approx(alone.statistic[0], abs=1e-4)
        assert fits.expected[i].shape == alone.expected[0].shape
        np.testing.assert_allclose(fits.expected[i], alone.expected[0], atol=0.1)


def test_each_link_needs_its_places():
    with pytest.raises(ValueError, match="as many places"):
        fit_links([], [(0, 1)])


def test_no_links_have_no_fits():
    assert len(fit_links([], [])) == 0
