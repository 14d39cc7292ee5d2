"""Power of tests and BIC links behind masks: known tables of needed people, rare categories, limits."""

import math

import numpy as np
import pytest

from masquerade.core.errors import InputError
from masquerade.plan import power as power_module
from masquerade.plan.power import (
    FEWEST,
    PairReports,
    associated_table,
    detectable,
    pair_of_axes,
    people_needed,
    power,
    symmetric_matrix,
)

HALF = np.array([0.5, 0.5])
# people for 80% at 5%, φ = .05, .1, .2; then as a BIC link; binary, even margins
TABLE = {
    0.0: ([3140, 785, 196], [5725, 1231, 255]),
    0.1: ([7665, 1916, 479], None),
    0.2: ([24225, 6056, 1514], [52887, 11754, 2560]),
    0.25: ([50233, 12558, 3140], None),
    0.3: ([122638, 30660, 7665], [301628, 68179, 15196]),
    0.4: ([1962214, 490554, 122638], None),
}


def masked(p):
    side = np.array([[1 - p, p], [p, 1 - p]])
    return pair_of_axes(side, side)


@pytest.mark.parametrize("p", TABLE)
def test_the_people_needed_to_find_an_association(p):
    tests, links = TABLE[p]
    for place, phi in enumerate((0.05, 0.1, 0.2)):
        truth = associated_table(HALF, HALF, phi)
        assert people_needed(masked(p), truth) == pytest.approx(tests[place], rel=0.005, abs=2)
        if links is not None:
            assert people_needed(masked(p), truth, rule="bic") == pytest.approx(
                links[place], rel=0.005, abs=2
            )


def test_power_and_people_are_each_others_inverse():
    first, second = np.array([0.2, 0.3, 0.5]), np.array([0.4, 0.6])
    reports = pair_of_axes(symmetric_matrix(3, 5.0), symmetric_matrix(2, 4.0))
    truth = associated_table(first, second, 0.15)
    n = people_needed(reports, truth, 0.9)
    assert power(reports, truth, n) == pytest.approx(0.9, abs=1e-3)
    assert detectable(reports, (first, second), n, wanted=0.9) == pytest.approx(0.15, rel=1e-2)


def test_an_association_has_the_margins_and_the_size_asked():
    first, second = np.array([0.1, 0.2, 0.7]), np.array([0.25, 0.25, 0.5])
    truth = associated_table(first, second, 0.2)
    independent = np.outer(first, second)
    assert truth.sum(axis=1) == pytest.approx(first)
    assert truth.sum(axis=0) == pytest.approx(second)
    assert math.sqrt(((truth - independent) ** 2 / independent).sum()) == pytest.approx(0.2)
    with pytest.raises(InputError, match="the largest is"):
        associated_table(np.array([0.01, 0.99]), HALF, 0.5)


def test_power_is_simulated_where_reports_are_rare():
    side = np.array([[0.9, 0.1], [0.001, 0.999]])
    rare = np.array([0.01, 0.99])
    truth = associated_table(rare, HALF, 0.1)
    n = 600
    reports = pair_of_axes(side, np.eye(2))
    assert n * reports.rarest(truth) < 10
    draws = np.random.default_rng(5).multinomial(n, truth.ravel() @ np.kron(side, np.eye(2)), size=4000)
    tables = draws.reshape(-1, 2, 2).astype(float)
    expected = tables.sum(2)[:, :, None] * tables.sum(1)[:, None, :] / n
    logs = np.log(np.divide(tables, expected, out=np.ones_like(tables), where=tables > 0))
    share = np.mean(2 * (tables * logs).sum((1, 2)) > 3.841459)
    assert power(reports, truth, n) == pytest.approx(share, abs=5 * math.sqrt(0.5 / 4000))


def test_a_joint_report_counts_only_what_margins_cannot_explain():
    """Against a search on a fine grid of margins."""
    truth = associated_table(np.array([0.3, 0.7]), np.array([0.4, 0.6]), 0.3)
    reports = PairReports((2, 2), ((0.5, symmetric_matrix(4, 3.0, 16)),))
    law = truth.ravel() @ symmetric_matrix(4, 3.0, 16)
    best = min(
        float((law * np.log(law / (np.kron([a, 1 - a], [b, 1 - b]) @ symmetric_matrix(4, 3.0, 16)))).sum())
        for a in np.linspace(0.2, 0.4, 101)
        for b in np.linspace(0.3, 0.5, 101)
    )
    assert reports.divergence(truth) == pytest.approx(0.5 * best, rel=1e-3)


DIFFER = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])


def test_fitted_runs_agree_with_tables_where_both_can_be_had():
    reports = pair_of_axes(symmetric_matrix(2, 19.0), symmetric_matrix(2, 19.0))
    truth = associated_table(np.array([0.03, 0.97]), np.array([0.03, 0.97]), 0.2)
    tables, fits = (
        way(reports, truth, 900, 3.841)
        for way in (power_module._simulate_power, power_module._simulate_power_by_fits)
    )
    # 4,000 and 1,000 runs of one event: five standard errors of the difference
    assert abs(tables - fits) < 5 * np.sqrt(tables * (1 - tables) * (1 / 4000 + 1 / 1000))


@pytest.mark.parametrize(
    "parts",
    [
        ((1.0, symmetric_matrix(4, 30.0, 64)),),
        ((0.3, symmetric_matrix(4, 8.0, 8)), (0.2, DIFFER @ symmetric_matrix(2, 8.0, 4))),
    ],
    ids=["joint", "blocks"],
)
def test_rare_reports_of_designs_that_are_not_square_are_simulated(parts, monkeypatch):
    reports = PairReports((2, 2), parts)
    even = np.array([0.5, 0.5])
    independent = np.outer(even, even)
    # as often as it says, where nothing is to be found
    size = power_module._simulate_power_by_fits(reports, independent, 2000, 3.841)
    assert abs(size - 0.05) < 5 * np.sqrt(0.05 * 0.95 / 1000)
    truth = associated_table(even, even, 0.3)
    n = people_needed(reports, truth)
    assert n * reports.rarest(truth) > FEWEST
    formula = power(reports, truth, n)
    monkeypatch.setattr(power_module, "FEWEST", 1e9)
    assert abs(power(reports, truth, n) - formula) < 0.05
