"""Linear classifiers: exact on clear records, right with right errors on disguised ones."""

from __future__ import annotations

import json
from itertools import product

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from tests.statistical.checks import assert_unbiased, assert_variance

import masquerade as mq
from masquerade.core.axes import contract
from masquerade.core.errors import InputError, MasqueradeWarning, NotConverged, SchemaError, UnknownValue
from masquerade.disguising.seeded import simulate_codes
from masquerade.learn.classifiers import _losses as losses
from masquerade.learn.classifiers.linear import LinearClassifier, grid, linear_classifier
from masquerade.sources.records import Records


def people(n=4000, seed=1, classes=("no", "yes")):
    """Return records with a number, another one, and a label; the class depends on all three."""
    rng = np.random.default_rng(seed)
    x, z, r = rng.integers(0, 4, n), rng.integers(-1, 2, n), rng.choice(list("ens"), n)
    eta = -1 + 0.8 * x - 0.5 * z + 0.7 * (r == "s") + rng.logistic(size=n)
    edges = np.quantile(eta, np.arange(1, len(classes)) / len(classes))
    return pd.DataFrame({"x": x, "z": z, "r": r, "y": np.array(classes)[np.searchsorted(edges, eta)]})


def design(frame):
    return np.column_stack([frame["x"], frame["z"], frame["r"] == "n", frame["r"] == "s"]).astype(float)


def test_squares_are_numpys_least_squares():
    frame = people()
    model = linear_classifier(mq.tally(frame), "y", loss="squares")
    rows = np.column_stack([np.ones(len(frame)), design(frame)])
    sign = np.where(frame["y"] == "yes", 1.0, -1.0)
    expected = np.linalg.lstsq(rows, sign, rcond=None)[0]
    np.testing.assert_allclose(model.coefficients[0], expected, rtol=0, atol=1e-10)
    assert model.names == ("x", "z", "r=n", "r=s")
    assert model.outputs == ("yes",)
    np.testing.assert_allclose(model.decision_function(frame), rows @ expected, atol=1e-10)
    right = np.where(rows @ expected > 0, "yes", "no") == frame["y"]
    assert model.accuracy == pytest.approx(right.mean(), abs=1e-12)
    assert model.accuracy_stderr == pytest.approx(np.sqrt(right.mean() * (1 - right.mean()) / 4000))
    assert (model.predict(frame) == frame["y"]).mean() == pytest.approx(model.accuracy)


def test_the_errors_of_squares_are_the_sandwich():
    frame = people()
    model = linear_classifier(mq.tally(frame), "y", loss="squares")
    rows = np.column_stack([np.ones(len(frame)), design(frame)])
    residual = rows @ model.coefficients[0] - np.where(frame["y"] == "yes", 1.0, -1.0)
    inverse = np.linalg.inv(rows.T @ rows)
    meat = (rows * residual[:, None] ** 2).T @ rows
    np.testing.assert_allclose(model.stderr[0], np.sqrt(np.diag(inverse @ meat @ inverse)), rtol=1e-8)


@pytest.mark.parametrize("ridge", [0.0, 5.0])
def test_logistic_is_scikit_learns(ridge):
    frame = people()
    model = linear_classifier(mq.tally(frame), "y", loss="logistic", ridge=ridge)
    peer = LogisticRegression(C=1 / ridge if ridge else np.inf, tol=1e-10, max_iter=10_000).fit(
        design(frame), frame["y"]
    )
    np.testing.assert_allclose(model.coefficients[0, 1:], peer.coef_[0], rtol=0, atol=1e-6)
    np.testing.assert_allclose(model.coefficients[0, 0], peer.intercept_[0], rtol=0, atol=1e-6)
    np.testing.assert_allclose(model.predict_proba(frame), peer.predict_proba(design(frame)), atol=1e-6)


def test_ridge_of_squares_is_scikit_learns():
    frame = people()
    model = linear_classifier(mq.tally(frame), "y", loss="squares", ridge=50.0)
    peer = Ridge(alpha=50.0).fit(design(frame), np.where(frame["y"] == "yes", 1.0, -1.0))
    np.testing.assert_allclose(model.coefficients[0], [peer.intercept_, *peer.coef_], rtol=0, atol=1e-9)


def test_several_classes_are_one_against_the_rest():
    frame = people(classes=("a", "b", "c"))
    model = linear_classifier(mq.tally(frame), "y", loss="logistic")
    assert model.outputs == ("a", "b", "c")
    for row, label in zip(model.coefficients, "abc", strict=True):
        peer = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000).fit(
            design(frame), frame["y"] == label
        )
        np.testing.assert_allclose(row, [peer.intercept_[0], *peer.coef_[0]], rtol=0, atol=1e-6)
    chance = model.predict_proba(frame)
    np.testing.assert_allclose(chance.sum(axis=1), 1)
    assert (model.predict(frame) == np.array(list("abc"))[chance.argmax(axis=1)]).all()
    assert model.stderr.shape == model.coefficients.shape
    for loss in ("pocket", "squares"):
        other = linear_classifier(mq.tally(frame), "y", loss=loss)
        assert other.decision_function(frame).shape == (4000, 3)
        assert other.accuracy > (frame["y"] == "a").mean()


def test_pocket_separates_what_is_separable():
    points = pd.DataFrame(list(product(range(6), range(6))), columns=["a", "b"])
    points["y"] = np.where(3 * points["a"] - 2 * points["b"] > 1.5, "in", "out")
    model = linear_classifier(mq.tally(points), "y", loss="pocket")
    assert model.accuracy == 1.0
    assert (model.predict(points) == points["y"]).all()
    assert model.stderr is None
    assert "omitted" in model.summary()
    with pytest.raises(NotConverged, match="ridge"):
        linear_classifier(mq.tally(points), "y", loss="logistic")
    assert linear_classifier(mq.tally(points), "y", loss="logistic", ridge=0.1).accuracy > 0.9
    with pytest.raises(InputError, match="probabilities"):
        model.predict_proba(points)


def test_quasi_separation_is_seen_too():
    # a = 1 occurs in only one class: its coefficient would be infinite, the other one is fine
    frame = pd.DataFrame({"a": [0] * 40 + [1] * 10, "y": ["u", "v"] * 20 + ["v"] * 10})
    with pytest.raises(NotConverged, match="separate"):
        linear_classifier(mq.tally(frame), "y", loss="logistic")


@pytest.mark.parametrize("seed", range(12))
def test_pocket_is_never_worse_than_its_start(seed):
    rng = np.random.default_rng(seed)
    cells = rng.dirichlet(np.full(32, 0.3)).reshape(16, 2) * 500
    rows = np.array(list(product([0.0, 1.0], repeat=4)))
    basis = losses.basis_of(rows, cells.sum(axis=1))
    for steps in (1, 10, 1000):
        fitted = losses.pocket(basis, cells[:, 1], cells.sum(axis=1), steps, np.random.default_rng(seed))
        side = rows @ fitted.coefficients[1:] + fitted.coefficients[0] > 0
        right = np.where(side, cells[:, 1], cells[:, 0]).sum()
        assert right >= cells.sum(axis=0).max() - 1e-9


def test_pocket_finds_the_best_boundary_of_a_line():
    """On a line every boundary can be tried: the pocket must find the best one."""
    rng = np.random.default_rng(5)
    cells = np.column_stack([rng.integers(1, 60, 9), rng.integers(1, 60, 9)]).astype(float)
    cells[5:, 1] += 60
    sides = [np.arange(9) >= cut for cut in range(10)] + [np.arange(9) < cut for cut in range(10)]
    best = max(np.where(side, cells[:, 1], cells[:, 0]).sum() for side in sides)
    basis = losses.basis_of(np.arange(9.0)[:, None], cells.sum(axis=1))
    fitted = losses.pocket(basis, cells[:, 1], cells.sum(axis=1), 20_000, np.random.default_rng(0))
    side = np.arange(9) * fitted.coefficients[1] + fitted.coefficients[0] > 0
    assert np.where(side, cells[:, 1], cells[:, 0]).sum() == best


def test_large_tables_challenge_the_pocket_by_long_runs():
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(6000, 3))
    totals, truth = np.ones(6000), np.array([1.0, -2.0, 0.5])
    positive = (rows @ truth + 0.3 > 0).astype(float)
    fitted = losses.pocket(losses.basis_of(rows, totals), positive, totals, 20_000, np.random.default_rng(0))
    right = (rows @ fitted.coefficients[1:] + fitted.coefficients[0] > 0) == positive
    assert right.mean() > max(positive.mean(), 1 - positive.mean())


POLICY = mq.Policy.from_dict(
    {
        "masquerade": 1,
        "variables": {
            "x": {"categories": [0, 1, 2], "channel": {"kind": "symmetric", "p": 0.2}},
            "r": {"categories": ["n", "s"], "channel": {"kind": "binary", "p1": 0.1, "p2": 0.2}},
            "y": {"categories": ["no", "yes"], "channel": {"kind": "binary", "p": 0.15}},
        },
    }
)
POPULATION = np.array([[[0.15, 0.05], [0.1, 0.08]], [[0.08, 0.1], [0.07, 0.09]], [[0.06, 0.08], [0.04, 0.1]]])
ROWS = np.array([[x, r] for x in range(3) for r in range(2)], dtype=float)


@pytest.mark.parametrize("loss", ["squares", "logistic"])
@pytest.mark.parametrize("counts", ["mle", "unbiased"])
def test_coefficients_from_disguised_records_are_right_with_right_errors(loss, counts):
    """Over repeated samples: false alarm 1e-6 for each of the two assertions.

    All cells are far above zero, so projecting changes nothing; the bias of a smooth function of the counts
    is of order 1/n, some hundredth of a standard error here.
    """
    flat = POPULATION.reshape(-1, 2)
    cost = losses.squares if loss == "squares" else losses.logistic
    truth = cost(losses.basis_of(ROWS, flat.sum(axis=1)), flat[:, 1], flat.sum(axis=1)).coefficients
    estimates, variances = [], []
    rng = np.random.default_rng(8)
    for _ in range(200):
        drawn = rng.choice(POPULATION.size, size=30_000, p=POPULATION.ravel())
        codes = dict(zip("xry", np.unravel_index(drawn, POPULATION.shape), strict=True))
        codes = {name: column.astype(np.uint8) for name, column in codes.items()}
        source = Records(simulate_codes(codes, POLICY, rng), POLICY)
        model = linear_classifier(source, "y", loss=loss, counts=counts)
        assert model.negative == 0
        estimates.append(model.coefficients[0])
        variances.append(model.stderr[0] ** 2)
    assert_unbiased(estimates, truth)
    assert_variance(estimates, variances)


def disguised_people(n=3000, seed=2):
    frame = people(n, seed)[["x", "r", "y"]]
    frame = frame[(frame["x"] < 3) & (frame["r"] != "e")]
    return mq.simulate(frame, POLICY, seed=seed)


def test_the_expected_cost_is_the_cost_weighted_by_the_most_likely_table():
    """Chapter 6: Σ_records E[cost | report] with the posterior of T̂ equals Σ_cells T̂·cost at the MLE."""
    records = disguised_people(60)  # few records: cells at zero, where moments would be negative
    source = mq.tally(records, POLICY)
    table = source.answer([mq.Query(by=("x", "r", "y"))])[0]
    T = table.nonnegative("mle").values
    assert table.values.min() < 0
    P = [np.asarray(POLICY.group(name).channel.matrix) for name in "xry"]
    reports = contract(T, P)  # expected number of each report
    assert reports.min() > 0
    rng = np.random.default_rng(0)
    costs = rng.random((20, *T.shape))  # any cost of (configuration, class)
    by_records = np.zeros(20)
    for row in records.itertuples(index=False):
        at = [POLICY.schema[name].code(getattr(row, name)) for name in "xry"]
        likely = T * np.einsum("a,b,c->abc", *(matrix[:, m] for matrix, m in zip(P, at, strict=True)))
        posterior = likely / reports[tuple(at)]
        assert posterior.sum() == pytest.approx(1)
        by_records += (costs * posterior).sum(axis=(1, 2, 3))
    # the update moves T by T(g − 1), which sums to 0; its positive part is at most the likelihood gap, 1e-6
    np.testing.assert_allclose(by_records, (costs * T).sum(axis=(1, 2, 3)), rtol=0, atol=2e-6)


def lenses(n, rng):
    """Return Table 6.1's variables and the class that the Lenses data give them, 1 and 2 made one."""
    shares = {"age": [0.5, 0.3, 0.2], "sight": [0.9, 0.1], "astigmatic": [0.2, 0.8], "tears": [0.2, 0.8]}
    frame = pd.DataFrame({name: rng.choice(len(p), n, p=p) + 1 for name, p in shares.items()})
    age, sight, astigmatic, tears = (frame[name] for name in shares)
    soft = (astigmatic == 1) & ~((age == 3) & (sight == 1))
    hard = (astigmatic == 2) & ((sight == 1) | (age == 1))
    frame["lens"] = np.where((tears == 2) & (soft | hard), "fitted", "none")
    return frame


@pytest.mark.parametrize("p", [0.1, 0.25])
def test_lenses_from_disguised_records(p):
    frame = lenses(6000, np.random.default_rng(6))
    variables = {name: {"categories": [1, 2], "channel": {"kind": "binary", "p": p}} for name in frame}
    variables["age"] = {"categories": [1, 2, 3], "channel": {"kind": "ternary", "p": p}}
    variables["lens"] = {"categories": ["none", "fitted"]}
    policy = mq.Policy.from_dict({"masquerade": 1, "variables": variables})
    clear = linear_classifier(mq.tally(frame, schema=policy), "lens")
    model = linear_classifier(mq.tally(mq.simulate(frame, policy, seed=1), policy), "lens")
    majority = max((frame["lens"] == "none").mean(), (frame["lens"] == "fitted").mean())
    right = (model.predict(frame) == frame["lens"]).mean()
    assert clear.accuracy > 0.97
    assert right > majority + (clear.accuracy - majority) / 2


def test_bins_are_numbers_by_their_middles_or_by_given_scores():
    rng = np.random.default_rng(4)
    petal = np.concatenate([rng.normal(1.5, 0.2, 300), rng.normal(4.3, 0.5, 300), rng.normal(5.6, 0.5, 300)])
    frame = pd.DataFrame({"petal": petal, "kind": np.repeat(["setosa", "other", "virginica"], 300)})
    policy = mq.Policy.from_dict(
        {
            "masquerade": 1,
            "variables": {
                "petal": {"bins": [0, 2, 4, 5, 9], "channel": {"kind": "symmetric", "p": 0.2}},
                "kind": {"categories": ["setosa", "other", "virginica"]},
            },
        }
    )
    source = mq.tally(mq.simulate(frame, policy, seed=1), policy)
    model = linear_classifier(source, "kind", loss="squares")
    assert model.codings[0].ravel().tolist() == [1, 3, 4.5, 7]
    given = linear_classifier(source, "kind", loss="squares", scores={"petal": [1.5, 3, 4.5, 6]})
    assert given.codings[0].ravel().tolist() == [1.5, 3, 4.5, 6]
    flags = linear_classifier(source, "kind", loss="squares", scores={"petal": "indicator"})
    assert flags.names == ("petal=[2, 4)", "petal=[4, 5)", "petal=[5, 9]")
    labels = {"petal": ["[0, 2)", "[4, 5)", "[5, 9]"]}
    assert flags.predict(labels).tolist() == ["setosa", "other", "virginica"]


def test_every_source_gives_the_same_model():
    frame = disguised_people()
    whole = mq.tally(frame, POLICY)
    halves = mq.Merged([mq.tally(frame.iloc[i::2], POLICY) for i in range(2)])
    for loss, counts in product(("squares", "logistic", "pocket"), ("simplex", "clip", "unbiased")):
        if (loss, counts) == ("pocket", "unbiased"):
            continue
        one = linear_classifier(whole, "y", loss=loss, counts=counts)
        again = linear_classifier(mq.Cached(whole), "y", loss=loss, counts=counts)
        np.testing.assert_array_equal(one.coefficients, again.coefficients)
        if counts == "unbiased":  # projecting halves is not projecting the whole
            merged = linear_classifier(halves, "y", loss=loss, counts=counts)
            np.testing.assert_allclose(merged.coefficients, one.coefficients, rtol=1e-8)
            # each half keeps its own N̂N̂ᵀ/n: apart by the chance difference of the halves only
            np.testing.assert_allclose(merged.stderr, one.stderr, rtol=0.05)


def test_models_are_written_and_read_back():
    frame = people(classes=("a", "b", "c"))
    for loss in ("pocket", "squares"):
        model = linear_classifier(mq.tally(frame), "y", loss=loss)
        values = json.loads(json.dumps(model.to_dict()))
        back = LinearClassifier.from_dict(values)
        assert back.to_dict() == model.to_dict()
        assert (back.predict(frame) == model.predict(frame)).all()
    for wrong, match in (
        ({"masquerade_model": 2}, "format 2"),
        ({"kind": "naive_bayes"}, "kind"),
        ({"loss": "hinge"}, "'loss' must be one of"),
        ({"coefficients": [[1.0]]}, "coefficients"),
        ({"columns": ["x"]}, "columns"),
        ({"features": [{"name": "x", "categories": [0, 1], "numbers": [[0.0]]}]}, "x.numbers"),
    ):
        with pytest.raises(InputError, match=match):
            LinearClassifier.from_dict({**values, **wrong})
    del values["accuracy"]
    with pytest.raises(InputError, match="lacks 'accuracy'"):
        LinearClassifier.from_dict(values)


def test_a_class_that_does_not_occur_is_never_predicted():
    schema = mq.Schema({"a": [0, 1], "y": ["u", "v", "w"]})
    frame = pd.DataFrame({"a": [0, 0, 0, 1, 1, 1], "y": ["u", "u", "v", "v", "v", "u"]})
    with pytest.warns(MasqueradeWarning, match="does not occur"):
        model = linear_classifier(mq.tally(frame, schema=schema), "y", loss="logistic")
    assert model.predict({"a": [0, 1]}).tolist() == ["u", "v"]
    np.testing.assert_allclose(model.predict_proba({"a": [0]}), [[2 / 3, 1 / 3, 0]])
    assert np.isinf(model.stderr[2]).all()
    back = LinearClassifier.from_dict(json.loads(json.dumps(model.to_dict())))
    np.testing.assert_array_equal(back.coefficients, model.coefficients)
    two = mq.tally(frame[frame["y"] == "u"], schema=schema)
    with pytest.raises(InputError, match="fewer than two classes"):
        linear_classifier(two, "y")


def test_features_that_never_vary_or_repeat_have_the_smallest_coefficients():
    frame = people()[["x", "y"]].assign(twice=lambda f: 2 * f["x"], same=7)
    with pytest.warns(MasqueradeWarning, match="never vary"):
        model = linear_classifier(mq.tally(frame), "y", ["x", "twice", "same"], loss="squares")
    alone = linear_classifier(mq.tally(frame), "y", ["x"], loss="squares")
    np.testing.assert_allclose(model.decision_function(frame), alone.decision_function(frame), atol=1e-9)
    assert model.coefficients[0, 3] == 0


def test_bad_input_is_refused():
    frame = people(200)
    source = mq.tally(frame)
    with pytest.raises(SchemaError, match="no variable 'w'"):
        linear_classifier(source, "w")
    with pytest.raises(SchemaError, match="no variable 'w'"):
        linear_classifier(source, "y", ["w"])
    with pytest.raises(InputError, match="cannot be one of the features"):
        linear_classifier(source, "y", ["x", "y"])
    with pytest.raises(InputError, match="not the one text"):
        linear_classifier(source, "y", "x")
    with pytest.raises(InputError, match="'loss' must be one of"):
        linear_classifier(source, "y", loss="hinge")
    with pytest.raises(InputError, match="'ridge'"):
        linear_classifier(source, "y", loss="squares", ridge=-1)
    with pytest.raises(InputError, match="neither a ridge"):
        linear_classifier(source, "y", ridge=1)
    with pytest.raises(InputError, match="nor negative counts"):
        linear_classifier(source, "y", counts="unbiased")
    with pytest.raises(InputError, match="4 finite numbers"):
        linear_classifier(source, "y", scores={"x": [1, 2]})
    with pytest.raises(InputError, match="numbers or 'indicator'"):
        linear_classifier(source, "y", scores={"x": "ordinal"})
    with pytest.raises(InputError, match="not a feature"):
        linear_classifier(source, "y", ["x"], scores={"z": [1, 2, 3]})
    with pytest.raises(InputError, match="only one class"):
        linear_classifier(mq.tally(frame.assign(y="u")), "y")
    with pytest.raises(UnknownValue, match="column 'x', row 2"):
        linear_classifier(source, "y").predict({"x": [0, 9], "z": [0, 0], "r": ["n", "n"]})
    with pytest.raises(InputError, match="fewer than two classes"):
        linear_classifier(mq.tally(frame.iloc[:0], schema=source.schema), "y")
    wide = mq.tally(pd.DataFrame({f"v{i}": range(16) for i in range(5)} | {"y": [0, 1] * 8}))
    with pytest.raises(InputError, match=r"2,097,152 cells.*fewer 'features'"):
        linear_classifier(wide, "y")


def test_hopeless_noise_is_refused_when_counts_stay_unbiased():
    rows = np.array([[0.0], [1.0]])
    with pytest.raises(InputError, match="too noisy"):
        losses.basis_of(rows, np.array([12.0, -2.0]))


def test_the_grid_is_the_design_times_the_coefficients():
    rng = np.random.default_rng(0)
    codings, coefficients = [rng.random((3, 1)), rng.random((4, 3)), rng.random((2, 1))], rng.random(6)
    table = grid(codings, coefficients)
    for a, b, c in product(range(3), range(4), range(2)):
        row = [1, *codings[0][a], *codings[1][b], *codings[2][c]]
        assert table[a, b, c] == pytest.approx(np.dot(row, coefficients))


def test_the_summary_says_what_was_done():
    model = linear_classifier(mq.tally(disguised_people(60), POLICY), "y", loss="squares")
    text = model.summary()
    assert "Linear classifier of y: squares" in text
    assert "Counts: mle" in text
    assert model.negative > 0.01
    assert "causes a bias" in text


def test_the_error_of_a_weighted_accuracy_is_that_of_its_resamples():
    generator = np.random.default_rng(3)
    n = 600
    x = generator.integers(0, 2, n)
    y = np.where(generator.random(n) < 0.9, x, 1 - x)
    weights = generator.choice([1.0, 15.0], n)
    codes = {"x": x.astype(np.uint8), "y": y.astype(np.uint8)}
    model = linear_classifier(
        Records(codes, mq.Policy.clear(mq.Schema({"x": [0, 1], "y": ["no", "yes"]})), weights), "y"
    )
    again = []
    for _ in range(3000):
        rows = generator.integers(0, n, n)
        again.append(weights[rows] @ (x == y)[rows] / weights[rows].sum())
    assert model.accuracy_stderr == pytest.approx(np.std(again), rel=0.1)
