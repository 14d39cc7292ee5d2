"""Evidence: deviances and fits of hierarchical models to reports, against formulas and another method."""

import pickle

import numpy as np
import pytest
from scipy import optimize

import masquerade as mq
from masquerade.core.axes import AxisMap, AxisMaps
from masquerade.core.covariance import IndependentCovariance
from masquerade.core.errors import InputError
from masquerade.core.evidence import TableReduction
from masquerade.core.linear_covariance import CovariancePart, LinearCovariance
from masquerade.core.schema import Variable
from masquerade.core.table import CountTable
from masquerade.estimate.evidence import GaussianEvidence, ReportEvidence
from masquerade.estimate.likelihood import likelihood
from masquerade.estimate.loglinear import design, generators_of, parameters, proportional_fit
from masquerade.estimate.reports import Reports

SCHEMA = mq.Schema({"a": ["x", "y", "z"], "b": ["x", "y"], "c": ["x", "y"], "d": ["x", "y"]})


def records(policy, n=4000, seed=3):
    rng = np.random.default_rng(seed)
    a = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    b = (rng.random(n) < np.array([0.3, 0.5, 0.7])[a]).astype(int)
    c = (rng.random(n) < 0.4).astype(int)
    d = (rng.random(n) < np.where(b == c, 0.7, 0.4)).astype(int)
    codes = {"a": a, "b": b, "c": c, "d": d}
    frame = {name: np.array(SCHEMA[name].categories)[codes[name]] for name in codes}
    import pandas as pd  # noqa: PLC0415

    return mq.tally(mq.simulate(pd.DataFrame(frame), policy, seed=seed), policy)


def masked(p="1/5"):
    flat = mq.channels.symmetric
    return mq.Policy.build(SCHEMA, {"a": flat(3, p), ("b", "c"): flat(4, p), "d": flat(2, p)})


CLEAR = mq.Policy.clear(SCHEMA)


def table(source, by, where=()):
    return source.answer([mq.Query(by=by, where=where)])[0]


def test_clear_records_give_the_ordinary_g_statistic_and_pearsons():
    found = table(records(CLEAR), ("a", "b"))
    fit = found.fit(["a", "b"])
    observed = found.values
    expected = observed.sum(1, keepdims=True) * observed.sum(0) / observed.sum()
    np.testing.assert_allclose(fit.expected, expected, rtol=1e-12)
    assert fit.df == 2
    assert fit.deviance == pytest.approx(2 * np.sum(observed * np.log(observed / expected)), rel=1e-9)
    assert fit.pearson == pytest.approx(np.sum((observed - expected) ** 2 / expected), rel=1e-9)
    assert found.deviance(expected) == pytest.approx(fit.deviance, rel=1e-9)
    assert found.fit([["a", "b"]]).deviance == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("disguised", [False, True])
def test_a_model_expects_records_where_none_was_observed(disguised):
    """Two clear variables that never meet in one cell, the third disguised or not: margins are followed."""
    observed = np.array([[[0.0, 30.0], [20.0, 10.0]], [[0.0, 5.0], [15.0, 20.0]]])
    channel = np.array([[0.8, 0.2], [0.2, 0.8]]) if disguised else None
    part = Reports(observed, (channel, None, None), (2, 2, 2), TableReduction.none(3))
    evidence = ReportEvidence.of([part], observed, IndependentCovariance(observed))
    fit = evidence.fit([(0,), (1,), (2,)])
    assert fit.expected.sum() == pytest.approx(100)
    np.testing.assert_allclose(fit.expected.sum(axis=0), np.outer([35, 65], [35, 65]) / 100, rtol=1e-6)


def by_optimizer(reports, generators, shape):
    """Minimise the deviance of the reports over the parameters of the model, by a general method."""
    X = design(generators_of(generators, len(shape)), shape)
    n = reports.observed.sum()

    def deviance(beta):
        logs = X @ beta
        truth = np.exp(logs - logs.max())
        truth = (n * truth / truth.sum()).reshape(shape)
        expected = truth
        for axis, P in enumerate(reports.channels):
            if P is not None:
                expected = np.moveaxis(np.tensordot(expected, P, (axis, 0)), -1, axis)
        seen = reports.observed > 0
        return 2 * np.sum(reports.observed[seen] * np.log(reports.observed[seen] / expected[seen]))

    best = optimize.minimize(deviance, np.zeros(X.shape[1]), method="BFGS", options={"gtol": 1e-6})
    return best.fun


@pytest.mark.parametrize("generators", [["a", "d"], [["a", "d"]], ["d"], []])
def test_fits_to_reports_are_those_of_a_general_optimizer(generators):
    source = records(masked())
    found = table(source, ("a", "d"))
    fit = found.fit(generators)
    (part,) = found.evidence.parts
    places = [[("a", "d").index(name) for name in ([g] if isinstance(g, str) else g)] for g in generators]
    assert fit.converged
    assert fit.deviance == pytest.approx(by_optimizer(part, places, (3, 2)), abs=2e-4)
    assert fit.expected.sum() == pytest.approx(source.n)
    assert found.deviance(fit.expected) == pytest.approx(fit.deviance, abs=1e-6)


def test_a_saturated_fit_is_the_most_likely_table():
    found = table(records(masked("2/5")), ("a", "d"))
    np.testing.assert_allclose(found.fit([["a", "d"]]).expected, found.nonnegative("mle").values, atol=0.5)


def test_disguised_conditions_and_joint_groups_fit_in_the_larger_table():
    source = records(masked())
    whole = table(source, ("a", "d", "c"))  # c was disguised together with b, which nobody asked for
    slice_ = table(source, ("a", "d"), {"c": "y"})
    assert isinstance(slice_.evidence, ReportEvidence)
    np.testing.assert_allclose(slice_.values, whole.select({"c": "y"}).values, atol=1e-6)
    np.testing.assert_allclose(
        slice_.nonnegative().values, whole.nonnegative().select({"c": "y"}).values, atol=0.2
    )
    ours, theirs = slice_.fit(["a", "d"]), whole.select({"c": "y"}).fit(["a", "d"])
    np.testing.assert_allclose(ours.expected, theirs.expected, atol=0.2)
    assert ours.deviance == pytest.approx(theirs.deviance, abs=1e-3)
    assert ours.df == 2
    # what lies outside the slice is free: the slice alone cannot fit worse than both slices together
    assert ours.deviance <= whole.fit([["a", "c"], ["d", "c"]]).deviance + 1e-6


def test_conditions_over_very_many_reports_leave_values_and_covariance(monkeypatch):
    monkeypatch.setattr("masquerade.sources.record_store.MOST_JOINT", 1)
    monkeypatch.setattr("masquerade.sources.record_store.FEW_JOINT", 1)
    source = records(masked())
    found = table(source, ("a", "d"), {"c": "y"})
    assert isinstance(found.evidence, GaussianEvidence)
    monkeypatch.undo()
    other = table(records(masked()), ("a", "d"), {"c": "y"})
    np.testing.assert_allclose(found.values, other.values, atol=1e-6)
    np.testing.assert_allclose(found.stderr(), other.stderr(), rtol=1e-9)
    np.testing.assert_allclose(found.nonnegative().values, other.nonnegative().values, atol=5)
    # Wald's distance and the deviance of the reports agree to first order
    assert found.fit(["a", "d"]).deviance == pytest.approx(other.fit(["a", "d"]).deviance, abs=1.5)


def test_strata_are_parts_whose_truths_add_up():
    variables = {name: {"categories": list(SCHEMA[name].categories)} for name in SCHEMA}
    variables["d"]["channel"] = {"kind": "symmetric", "p": "1/10"}
    strata = {"by": "b", "channels": {"y": {"d": {"kind": "symmetric", "p": "1/3"}}}}
    policy = mq.Policy.from_dict({"masquerade": 1, "variables": variables, "strata": strata})
    found = table(records(policy), ("a", "d"))
    assert len(found.evidence.parts) == 2
    fit = found.fit(["a", "d"])
    assert fit.converged
    assert fit.expected.sum() == pytest.approx(4000)
    rank_one = fit.expected.sum(1, keepdims=True) * fit.expected.sum(0) / 4000
    np.testing.assert_allclose(fit.expected, rank_one, rtol=1e-6)


def gaussian(values, variances):
    axes = tuple(Variable(f"v{i}", tuple(range(size))) for i, size in enumerate(np.shape(values)))
    covariance = IndependentCovariance(np.asarray(variances, dtype=float))
    evidence = GaussianEvidence.of(np.asarray(values, dtype=float), covariance)
    return CountTable(axes, np.asarray(values, dtype=float), 100, evidence)


def test_independent_errors_give_weighted_least_squares():
    found = gaussian([[10, -4], [30, 64]], [[4, 9], [4, 4]])
    assert found.nonnegative("mle").values.tolist() == [[10, 0], [30, 64]]
    assert found.deviance(np.array([[12, 0], [30, 64]])) == pytest.approx(2**2 / 4 + 4**2 / 9)
    assert found.stderr().tolist() == [[2, 3], [2, 2]]
    assert found.marginal("v0").stderr() ** 2 == pytest.approx([13, 8])
    assert found.covariance.quadratic(np.array([[1, -1], [0, 0]])) == pytest.approx(13)
    np.testing.assert_array_equal(found.covariance.dense(), np.diag([4, 9, 4, 4]))
    np.testing.assert_array_equal(found.within("v1"), [np.diag([4, 9]), np.diag([4, 4])])
    pooled = found + found
    assert pooled.values.tolist() == [[20, -8], [60, 128]]
    assert pooled.stderr() ** 2 == pytest.approx(2 * found.stderr() ** 2)


def test_the_distance_of_independence_is_that_of_a_general_optimizer():
    values = np.array([[31.0, 14.0], [29.0, 26.0]])
    found = gaussian(values, [[16, 9], [25, 9]])
    fit = found.fit(["v0", "v1"])

    def distance(beta):
        expected = np.exp(np.add.outer([0, beta[0]], [beta[1], beta[2]]))
        return np.sum((values - expected) ** 2 / [[16, 9], [25, 9]])

    best = optimize.minimize(distance, [0.0, 3.0, 3.0], method="BFGS")
    assert fit.deviance == pytest.approx(best.fun, abs=1e-5)
    assert (fit.df, fit.converged) == (1, True)


def test_evidence_of_different_kinds_adds_as_values_and_covariance():
    ours = table(records(masked()), ("a", "d"))
    covariance = IndependentCovariance(np.full((3, 2), 25.0))
    noisy = GaussianEvidence.of(np.full((3, 2), 10.0), covariance)
    for both in (ours.evidence + noisy, noisy + ours.evidence):
        assert isinstance(both, GaussianEvidence)
        np.testing.assert_allclose(both.values, ours.values + 10)
        np.testing.assert_allclose(both.covariance.diagonal(), ours.covariance.diagonal() + 25)


def test_large_tables_known_by_covariance_alone_say_what_to_do():
    wide = gaussian(-np.ones((50, 50)), np.ones((50, 50)))
    with pytest.raises(InputError, match=r"nonnegative\('simplex'\)"):
        wide.nonnegative("mle")


def test_generators_are_checked_and_reduced():
    assert generators_of([[0], [1, 0], [1]], 2) == ((0, 1),)
    assert parameters(generators_of([[0, 1], [2]], 3), (3, 2, 4)) == 6 + 3
    with pytest.raises(InputError, match="axes 0 to 1"):
        generators_of([[2]], 2)


@pytest.mark.parametrize("generators", [[[0, 1], [1, 2]], [[0, 1], [1, 2], [0, 2]], [[0], [1], [2]]])
def test_proportional_fits_keep_the_margins_and_have_no_higher_interactions(generators):
    counts = np.random.default_rng(1).uniform(1, 20, (3, 2, 4))
    fitted = proportional_fit(counts, generators_of(generators, 3))
    for axes in generators:
        gone = tuple(axis for axis in range(3) if axis not in axes)
        np.testing.assert_allclose(fitted.sum(gone), counts.sum(gone), rtol=1e-8)
    X = design(generators_of(generators, 3), counts.shape)
    log = np.log(fitted).ravel()
    np.testing.assert_allclose(X @ np.linalg.lstsq(X, log, rcond=None)[0], log, atol=1e-8)


def test_evidence_pickles_with_its_fits():
    found = table(records(masked()), ("a", "d"), {"c": "y"})
    again = pickle.loads(pickle.dumps(found))  # noqa: S301
    for each in (lambda t: t, lambda t: t.marginal("d"), lambda t: t.select({"a": "z"})):
        np.testing.assert_array_equal(each(again).nonnegative().values, each(found).nonnegative().values)
        np.testing.assert_array_equal(each(again).conf_int(), each(found).conf_int())
        assert each(again).fit([]).deviance == each(found).fit([]).deviance


def test_no_records_fit_everything():
    nothing = np.zeros((2, 2))
    maps = AxisMaps((2, 2), (AxisMap((0,), None), AxisMap((1,), None)))
    covariance = LinearCovariance((CovariancePart(nothing, maps),), nothing, nothing, 0)
    P = np.array([[0.9, 0.1], [0.2, 0.8]])
    part = Reports(nothing, (P, None), (2, 2), TableReduction.none(2))
    fit = ReportEvidence.of([part], nothing, covariance).fit([[0], [1]])
    assert (fit.deviance, fit.converged) == (0, True)
    np.testing.assert_array_equal(fit.expected, nothing)


def test_contrasts_of_a_saturated_fit_have_the_errors_of_the_estimate():
    found = table(records(masked()), ("a", "d"))
    fit = found.fit([["a", "d"]])
    weights = np.zeros((2, 3, 2))
    weights[0, 1], weights[1, :, 0] = 1.0, [1.0, -1.0, 0.5]
    values, errors = fit.contrast(weights)
    np.testing.assert_allclose(values, [(each * found.values).sum() for each in weights], rtol=1e-4)
    expected = [np.sqrt(found.covariance.quadratic(each)) for each in weights]
    np.testing.assert_allclose(errors, expected, rtol=2e-3)
    one = fit.contrast(weights[0])
    assert one.value.shape == one.stderr.shape == ()
    assert pickle.loads(pickle.dumps(fit)).contrast(weights[0]) == one  # noqa: S301  (written here)
    with pytest.raises(InputError, match=r"one weight per cell, shape \(3, 2\). Got \(2, 3\)"):
        fit.contrast(np.ones((2, 3)))


def test_contrasts_of_a_smaller_model_are_surer_and_say_how_sure():
    cell = np.zeros((3, 2))
    cell[2, 0] = 1.0
    policy = mq.Policy.build(
        SCHEMA, {"a": mq.channels.symmetric(3, "1/5"), "d": mq.channels.symmetric(2, "1/5")}
    )
    rng = np.random.default_rng(11)
    found, claimed, free = [], [], []
    for run in range(200):
        a, d = rng.choice(3, 1000, p=[0.5, 0.3, 0.2]), rng.choice(2, 1000, p=[0.6, 0.4])
        codes = {"a": a, "b": d, "c": d, "d": d}
        clear = {name: np.array(SCHEMA[name].categories)[codes[name]] for name in codes}
        import pandas as pd  # noqa: PLC0415

        counted = table(mq.tally(mq.simulate(pd.DataFrame(clear), policy, seed=run), policy), ("a", "d"))
        value, error = counted.fit(["a", "d"]).contrast(cell)
        found.append(float(value))
        claimed.append(float(error))
        free.append(float(counted.stderr()[2, 0]))
    assert abs(np.mean(found) - 120) < 5 * np.std(found) / np.sqrt(200)
    assert np.std(found) == pytest.approx(np.mean(claimed), rel=0.25)
    assert np.mean(claimed) < 0.8 * np.mean(free)


def test_contrasts_of_conditions_and_of_values_alone():
    source = records(masked())
    sliced = table(source, ("a",), {"d": "x"})
    fit = sliced.fit(["a"])
    assert float(fit.contrast(np.array([1.0, 0, 0])).stderr) == pytest.approx(
        float(sliced.stderr()[0]), rel=0.02
    )
    plain = table(source, ("a", "d"))
    alone = GaussianEvidence.of(plain.values, plain.covariance)
    weights = np.array([[1.0, 0], [0, 0], [0, 0]])
    both = [float(each.fit([[0], [1]]).contrast(weights).stderr) for each in (alone, plain.evidence)]
    assert both[0] == pytest.approx(both[1], rel=0.1)


def test_fits_with_several_tops_keep_the_best_of_all_starts():
    """Given a disguised parent, EM from the most likely table alone may end on a lower top or a saddle."""
    rng = np.random.default_rng(5)
    flat = mq.channels.symmetric
    channels = tuple(np.array(flat(K, "3/10").matrix, dtype=float) for K in (3, 3, 3))
    truth = rng.dirichlet(np.full(27, 0.3)).reshape(3, 3, 3)
    expected = np.einsum("jzx,ja,zb,xc->abc", truth, *channels)
    observed = rng.multinomial(20_000, expected.ravel() / expected.sum()).reshape(3, 3, 3).astype(float)
    part = Reports(observed, channels, (3, 3, 3), TableReduction.none(3))
    evidence = ReportEvidence.of([part], observed, IndependentCovariance(observed))
    fit = evidence.fit([[0, 1], [0, 2]])
    assert fit.converged
    X = design(generators_of([[0, 1], [0, 2]], 3), (3, 3, 3))
    pull = likelihood(observed, channels).at(fit.expected).pull
    slope = X.T @ (fit.expected * (1 - pull)).ravel()
    assert np.abs(slope).max() < 0.01  # stationary: records that a parameter is off by
    for seed in range(4):
        start = np.random.default_rng(seed).dirichlet(np.ones(27)).reshape(3, 3, 3)
        again = evidence.fit([[0, 1], [0, 2]], start=20_000 * start)
        assert again.converged
        assert again.deviance <= fit.deviance + 1e-6
        assert fit.deviance <= again.deviance + 1.0


@pytest.mark.parametrize("generators", [[[0, 1], [1, 2], [0, 2]], [[0, 1], [2]]])
def test_newton_steps_end_where_em_would(generators):
    """Against plain EM, long; neither model has a closed form behind channels."""
    rng = np.random.default_rng(6)
    P = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.1, 0.6]])
    channels = (P, None, np.array([[0.8, 0.1, 0.1], [0.2, 0.2, 0.6]]))
    truth = rng.dirichlet(np.ones(12)).reshape(3, 2, 2)
    expected = np.einsum("azx,ab,xc->bzc", truth, P, channels[2])
    observed = rng.multinomial(3000, expected.ravel() / expected.sum()).reshape(3, 2, 3).astype(float)
    part = Reports(observed, channels, (3, 2, 2), TableReduction.none(3))
    fit = ReportEvidence.of([part], truth, IndependentCovariance(np.ones((3, 2, 2)))).fit(generators)
    model, kept = likelihood(observed, channels), generators_of(generators, 3)
    point = model.at(np.full((3, 2, 2), 3000 / 12))
    for _ in range(1500):
        point = model.at(proportional_fit(point.counts * point.pull, kept))
    assert fit.deviance == pytest.approx(2 * point.deviance, abs=1e-4)
    assert fit.deviance <= 2 * point.deviance + 1e-6
    np.testing.assert_allclose(fit.expected, point.counts, atol=0.5)
