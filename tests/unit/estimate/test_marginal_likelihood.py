"""The marginal likelihood of reports: the score of clear counts, integration on 2 × 2, false links."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import gammaln
from tests.statistical.checks import normal_bound

import masquerade as mq
from masquerade.core.links.marginals import marginal_gains
from masquerade.disguising.seeded import simulate_codes
from masquerade.estimate.marginal_likelihood import LinkReports, log_marginals
from masquerade.learn.networks._candidates import Candidates
from masquerade.learn.networks.scores import BIC, K2, Likelihood, bdeu, family_score
from masquerade.sources.records import Records


def binary(p):
    return np.array([[1 - p, p], [p, 1 - p]])


def test_of_clear_counts_it_is_the_ordinary_score():
    counts = np.random.default_rng(1).integers(0, 40, (4, 3, 2)).astype(float)
    policy = mq.Policy.clear(mq.Schema({"j": list(range(4)), "z": list(range(3)), "x": [0, 1]}))
    cells = np.repeat(np.arange(counts.size), counts.astype(int).ravel())
    codes = dict(zip("jzx", (c.astype(np.uint8) for c in np.unravel_index(cells, counts.shape)), strict=True))
    (table,) = Records(codes, policy).answer([mq.Query(by=("j", "z", "x"))])
    clear = LinkReports(counts, (np.eye(4), np.eye(3), np.eye(2)))
    for score in (K2, bdeu(3.0)):
        new = family_score(counts.reshape(12, 2), score, 0)
        old = family_score(counts.sum(axis=1), score, 0)
        assert marginal_gains([table.evidence], [(0, 1, 2)], score.prior)[0] == pytest.approx(
            new - old, rel=1e-12
        )
        parents = score.prior(12)
        found = [
            log_marginals([clear], parents, score.prior(24), linked=True)[0],
            log_marginals([clear], parents, score.prior(8), linked=False)[0],
        ]
        assert found[0] - found[1] == pytest.approx(new - old, rel=1e-9)


class OnLogOdds:
    """The posterior of a 2 × 2 table on the scale of log-odds: of z, and of x given z or for all."""

    def __init__(self, observed, channels, parents, child, *, linked):
        self.observed, self.channels, self.linked = observed, channels, linked
        self.alphas = [parents, *([child] * (2 if linked else 1))]

    def truths(self, odds):
        z, *x = (1 / (1 + np.exp(-each)) for each in odds)
        first, second = (x[0], x[-1])
        return np.stack([z * first, z * (1 - first), (1 - z) * second, (1 - z) * (1 - second)])

    def prior(self, odds):
        return sum(
            gammaln(2 * a) - 2 * gammaln(a) - a * (np.logaddexp(0, each) + np.logaddexp(0, -each))
            for a, each in zip(self.alphas, odds, strict=True)
        )

    def of_reports(self, odds):
        expected = np.tensordot(np.kron(*self.channels).T, self.truths(odds), 1)
        return np.tensordot(self.observed.ravel(), np.log(np.maximum(expected, 1e-300)), 1) + self.prior(odds)

    def integral(self, centre, widths, points):
        """Return the logarithm of the integral by the trapezoidal rule over ± `widths`."""
        axes = [np.linspace(c - w, c + w, points) for c, w in zip(centre, widths, strict=True)]
        heights = self.of_reports(np.meshgrid(*axes, indexing="ij"))
        steps = sum(np.log(axis[1] - axis[0]) for axis in axes)
        return float(np.logaddexp.reduce(heights.ravel()) + steps)


def curvature(function, at):
    """Return minus the second derivatives, by differences."""
    size, step = len(at), 1e-3
    found = np.zeros((size, size))
    for i in range(size):
        for j in range(size):
            a, b = np.eye(size)[i] * step, np.eye(size)[j] * step
            second = function(at + a + b) - function(at + a - b) - function(at - a + b) + function(at - a - b)
            found[i, j] = -second / (4 * step**2)
    return found


@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize(("parents", "child"), [(1.0, 1.0), (0.5, 0.25)])
@pytest.mark.parametrize("p", [0.05, 0.2])
def test_it_is_the_integral_less_the_information_that_the_disguise_took(linked, parents, child, p):
    """With ½ ln(|I(N̂)|/|I(reports)|) it is the integral over all truths, but for Laplace's error.

    That is about a few divided by the effective records: 2,000·(1 − 2p)⁴·.2, so .02 or .1 here.
    """
    truth = np.array([[0.5, 0.2], [0.1, 0.2]])
    channels = (binary(p), binary(p))
    expected = channels[0].T @ truth @ channels[1]
    observed = np.random.default_rng(2).multinomial(2000, expected.ravel()).reshape(2, 2).astype(float)
    link = LinkReports(observed[None], (np.ones((1, 1)), *channels))
    found = log_marginals([link], parents, child, linked=linked)[0]
    posterior = OnLogOdds(observed, channels, parents, child, linked=linked)
    odds = np.zeros(3 if linked else 2)
    for _ in range(60):  # Newton, damped: the mode by other means
        gradient = np.array(
            [
                (posterior.of_reports(odds + h) - posterior.of_reports(odds - h)) / 2e-4
                for h in np.eye(len(odds)) * 1e-4
            ]
        )
        step = np.linalg.solve(curvature(posterior.of_reports, odds) + 0.1 * np.eye(len(odds)), gradient)
        odds = odds + np.clip(step, -1, 1)
    information = curvature(posterior.of_reports, odds)
    truths = posterior.truths(odds)
    reports = truths @ np.kron(*channels)
    counts = truths * (np.kron(*channels) @ (observed.ravel() / reports))
    complete = OnLogOdds(counts.reshape(2, 2), (np.eye(2), np.eye(2)), parents, child, linked=linked)
    lost = (
        np.linalg.slogdet(curvature(complete.of_reports, odds))[1] - np.linalg.slogdet(information)[1]
    ) / 2
    spread = 7 / np.sqrt(np.linalg.eigvalsh(information)[0])
    integral = posterior.integral(odds, [spread] * len(odds), 61 if linked else 201)
    assert lost > 0
    assert found + lost == pytest.approx(integral, abs=0.02 if p < 0.1 else 0.15)


@pytest.mark.parametrize(("p", "seed"), [("0.1", 1), ("0.2", 2), ("0.3", 3)])
@pytest.mark.parametrize("shares", [(0.01, 0.01), (0.5, 0.01)])
def test_the_prior_makes_no_links(p, seed, shares):
    """Two independent binaries, a category of 1 %, n = 10,000: K2 links at most .02, BDeu at most .10.

    Of 300 tables more than the bound has a false alarm of 1e-6.
    """
    generator = np.random.default_rng(seed)
    policy = mq.Policy.build({"a": [0, 1], "b": [0, 1]}, {name: mq.channels.symmetric(2, p) for name in "ab"})
    tables = []
    for _ in range(300):
        codes = {
            name: (generator.random(10_000) < share).astype(np.uint8)
            for name, share in zip("ab", shares, strict=True)
        }
        source = Records(simulate_codes(codes, policy, generator), policy)
        tables += source.answer([mq.Query(by=("a", "b"))])
    links = Candidates(tables, [(0, 1)] * 300)
    floor = np.zeros(300)
    for score, most in ((K2, 0.02), (bdeu(), 0.10), (BIC, 0.02)):
        share = float(np.mean(Likelihood().gains(links, score, floor) > 0))
        assert share <= most + normal_bound(18) * np.sqrt(most * (1 - most) / 300)
