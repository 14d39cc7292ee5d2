"""Links fitted together are what they are fitted alone, whatever their evidence."""

import numpy as np
import pytest
from scipy import optimize, special
from tests.unit.estimate.cases import draw_table, random_channel, symmetric

from masquerade.core.axes import contract
from masquerade.core.covariance import IndependentCovariance
from masquerade.core.evidence import TableReduction
from masquerade.core.links.fits import fit_links, fit_one_link
from masquerade.estimate.em import maximum_likelihood
from masquerade.estimate.evidence import GaussianEvidence, ReportEvidence
from masquerade.estimate.links import LinkLayout
from masquerade.estimate.reports import Reports


def reported(rng, shape, n, channels, truth=None):
    """Return the evidence of one table of reports."""
    theta = rng.dirichlet(np.ones(np.prod(shape))).reshape(shape) if truth is None else truth
    observed = draw_table(rng, n, theta, channels)
    part = Reports(observed, tuple(channels), tuple(shape), TableReduction.none(len(shape)))
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
        alone = fit_one_link(evidence, where)
        assert fits.statistic[i] == pytest.approx(alone.statistic[0], abs=1e-4)
        assert fits.expected[i].shape == alone.expected[0].shape
        np.testing.assert_allclose(fits.expected[i], alone.expected[0], atol=0.1)


@pytest.mark.parametrize("order", "CF")
def test_the_kernel_gets_arrays_of_one_layout_in_whatever_order_links_are_named(order):
    """For another layout it would be compiled again, which takes a quarter of a minute."""
    layout = LinkLayout([None, symmetric(3, 0.2), symmetric(2, 0.1)], (2, 3, 2))
    members = np.array([[0, 1, 2], [2, 1, -1], [1, 0, 2]], order=order)
    subsets, of = layout.subsets(members)
    counts = np.arange(layout.reports[subsets].prod(axis=1).sum())
    links = layout.batch(members, subsets, of, counts, 100).links
    assert all(part.flags.c_contiguous for part in links)
    assert links.offsets.tolist() == [[0, 12, 18, 30], [0, 12, 18, 30]]


def test_each_link_needs_its_places():
    with pytest.raises(ValueError, match="as many lists of axes"):
        fit_links([], [(0, 1)])


def test_no_links_have_no_fits():
    assert len(fit_links([], [])) == 0


def deviance_at(evidence, truth):
    """Return the deviance of a table of truths, written down from its definition."""
    (part,) = evidence.parts
    expected = np.maximum(contract(truth, part.channels), 1e-12)
    seen = part.observed > 0
    return 2 * np.sum(part.observed[seen] * np.log(part.observed[seen] / expected[seen]))


def by_optimizer(evidence, places):
    """Return the least deviance of independence given the others, by a general method."""
    (part,) = evidence.parts
    shape = [part.latent[place] for place in places]
    n, J, z, x = part.observed.sum(), int(np.prod(shape[:-2])), shape[-2], shape[-1]
    back = np.argsort(places)

    def truth(values):
        share = special.softmax(values[:J])
        rows = special.softmax(values[J : J + J * z].reshape(J, z), axis=1)
        columns = special.softmax(values[J + J * z :].reshape(J, x), axis=1)
        cells = share[:, None, None] * rows[:, :, None] * columns[:, None, :]
        return n * cells.reshape(shape).transpose(back)

    rng = np.random.default_rng(0)
    return min(
        optimize.minimize(
            lambda values: deviance_at(evidence, truth(values)),
            rng.normal(size=J * (1 + z + x)) * spread,
            method="SLSQP",
            bounds=[(-15, 15)] * (J * (1 + z + x)),
            options={"maxiter": 100, "ftol": 1e-9},
        ).fun
        for spread in (0.1, 1.0)
    )


@pytest.mark.parametrize("seed", range(6))
def test_fits_are_those_of_a_general_optimizer(seed):
    rng = np.random.default_rng(seed)
    kinds = [None, random_channel(rng, 2, 2), random_channel(rng, 3, 3), random_channel(rng, 2, 4, 0.7)]
    kinds += [symmetric(2, 0.2), symmetric(3, 0.3)]
    channels = [kinds[i] for i in rng.choice(6, 3)]
    shape = tuple(2 if P is None else P.shape[0] for P in channels)
    evidence = reported(rng, shape, 700, channels)
    places = tuple(rng.permutation(3).tolist())
    fits = fit_links([evidence], [places], tolerance=1e-6)
    best = by_optimizer(evidence, places)
    assert fits.independent[0] <= best + 1e-3
    assert fits.independent[0] == pytest.approx(best, abs=0.02)  # the optimizer may be stopped by a boundary
    back = np.argsort(places)
    for cells, deviance in ((fits.expected[0], fits.independent[0]), (fits.likely[0], fits.free[0])):
        table = cells.reshape([shape[place] for place in places]).transpose(back)
        assert table.sum() == pytest.approx(700)
        assert deviance_at(evidence, table) == pytest.approx(deviance, abs=1e-6)
    likely = maximum_likelihood(evidence.parts[0].observed, channels)
    assert deviance_at(evidence, likely.counts) == pytest.approx(fits.free[0], abs=1e-4)
    alone = fit_one_link(evidence, places)
    assert fits.independent[0] <= alone.independent[0] + 1e-4
    *_, parents, children = fits.expected[0].shape
    for block in fits.expected[0]:
        outer = block.sum(1, keepdims=True) * block.sum(0) / max(block.sum(), 1e-300)
        np.testing.assert_allclose(block, outer, atol=1e-9 * 700)
    assert fits.df[0] == len(fits.expected[0]) * (parents - 1) * (children - 1)


def test_clear_tables_have_the_ordinary_g_statistic_to_the_last_digits():
    counts = np.array([[[5.0, 0], [7, 3]], [[0, 0], [0, 0]], [[2, 9], [0, 4]]])
    part = Reports(counts, (None, None, None), counts.shape, TableReduction.none(3))
    evidence = ReportEvidence.of([part], counts, IndependentCovariance(counts))
    fits = fit_links([evidence], [(0, 1, 2)])
    total = counts.sum((1, 2), keepdims=True)
    expected = counts.sum(1, keepdims=True) * counts.sum(2, keepdims=True) / np.maximum(total, 1)
    seen = counts > 0
    g = 2 * np.sum(counts[seen] * np.log(counts[seen] / expected[seen]))
    assert fits.statistic[0] == pytest.approx(g, rel=1e-13)
    np.testing.assert_allclose(fits.expected[0], expected, atol=1e-12)
    np.testing.assert_array_equal(fits.likely[0], counts)
    assert fits.df[0] == 3


def test_hopeless_links_are_given_up_and_bounded():
    rng = np.random.default_rng(3)
    P = symmetric(3, 0.2)
    shares = rng.dirichlet(np.ones(3), 2)
    apart = reported(rng, (3, 3), 3000, [P, P], np.outer(*shares))
    tied = reported(rng, (3, 3), 3000, [P, P], np.diag(shares[0]))
    fits = fit_links([apart, tied], [(0, 1), (0, 1)], least=[30, 30])
    exact = fit_links([apart, tied], [(0, 1), (0, 1)])
    assert fits.settled.tolist() == [False, True]
    assert exact.settled.all()
    assert exact.statistic[0] <= fits.statistic[0] <= 30
    assert fits.statistic[1] == pytest.approx(exact.statistic[1])
    assert fits.expected[0] is None


@pytest.mark.parametrize("clear", [True, False])
def test_unseen_configurations_and_single_categories_leave_no_nan(clear):
    rng = np.random.default_rng(4)
    P = symmetric(3, 0.3)
    single = np.ones((1, 1))
    one_cell = np.zeros((3, 3, 3))
    one_cell[1, 2, 0] = 50
    cases = [
        (one_cell, [None if clear else P, P, P]),
        (np.zeros((3, 3, 3)), [P, None, P]),
        (draw_table(rng, 90, np.eye(3)[:, None, :] / 3, [P, None, P]), [P, None, P]),
        (draw_table(rng, 90, np.eye(3)[:, None, :] / 3, [P, single, P]), [P, single, P]),
        (np.vstack([np.zeros((2, 3, 3)), np.ones((1, 3, 3))]), [None if clear else P, P, None]),
    ]
    batch, places = [], []
    for observed, channels in cases:
        shape = observed.shape
        part = Reports(observed, tuple(channels), shape, TableReduction.none(3))
        batch.append(ReportEvidence.of([part], np.zeros(shape), IndependentCovariance(np.ones(shape))))
        places.append((0, 1, 2))
    fits = fit_links(batch, places)
    assert fits.converged.all()
    assert np.isfinite([fits.independent, fits.free]).all()
    assert (fits.statistic >= 0).all()
    for (observed, _), expected, likely in zip(cases, fits.expected, fits.likely, strict=True):
        for table in (expected, likely):
            assert (table >= 0).all()
            assert table.sum() == pytest.approx(observed.sum())


def test_sliced_and_summed_tables_are_fitted_one_by_one():
    rng = np.random.default_rng(6)
    channels = [random_channel(rng, 2, 2), random_channel(rng, 3, 3), None]
    whole = reported(rng, (2, 3, 2), 900, channels)
    simple = reported(rng, (2, 3), 900, channels[:2])
    batch = [whole.reduce([0, 1], {2: 1}), simple, whole.reduce([1, 0], {})]
    fits = fit_links(batch, [(0, 1)] * 3)
    for i, evidence in enumerate(batch):
        assert fits.statistic[i] == pytest.approx(fit_one_link(evidence, (0, 1)).statistic[0], abs=1e-2)
