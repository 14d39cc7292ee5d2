"""A projection answers as clear records do, exactly or with honest errors; it refuses what it cannot do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from tests.architecture.modules import MODULES
from tests.architecture.test_imports import seeds_of
from tests.statistical.checks import assert_coverage, assert_unbiased, assert_variance

import masquerade as mq
from masquerade.core.errors import InputError, QueryRefused, RoundAborted
from masquerade.estimate.walsh import product_columns
from masquerade.protocols.vertical.projection import shared_normals
from masquerade.sources.parties.projection import Projected

OWNERS = {"hospital": ["A", "B"], "insurer": ["D", "C"]}
QUERIES = [
    mq.Query(),
    mq.Query(by="B"),
    mq.Query(by=("A", "D")),
    mq.Query(by=("D", "A", "C")),
    mq.Query(by=("C",), where={"B": "b", "D": 2}),
    mq.Query(by=("A", "B"), where={"C": True}),
    mq.Query(where={"A": 1, "C": False}),
    mq.Query(by=("C", "B", "A", "D")),
]


def records(n, seed=4):
    rng = np.random.default_rng(seed)
    joint = rng.dirichlet(np.ones(48)).ravel()
    A, B, C, D = np.unravel_index(rng.choice(48, n, p=joint), (2, 3, 2, 4))
    return pd.DataFrame({"A": A, "B": np.array(["a", "b", "c"])[B], "C": C == 1, "D": D})


SCHEMA = mq.Schema({"A": [0, 1], "B": ["a", "b", "c"], "C": [False, True], "D": [0, 1, 2, 3]})


@pytest.mark.parametrize("n", [2, 50, 51, 333])
def test_a_rotation_counts_exactly(n):
    frame = records(n)
    source = mq.projection_tally(frame, OWNERS, schema=SCHEMA)
    assert isinstance(source, mq.Tally)
    for found, wanted in zip(
        source.answer(QUERIES), mq.tally(frame, schema=SCHEMA).answer(QUERIES), strict=True
    ):
        assert found.axes == wanted.axes
        assert found.n == wanted.n
        np.testing.assert_array_equal(found.values, wanted.values)
        for kind in ("population", "given_records"):
            np.testing.assert_allclose(
                found.covariance.dense(kind=kind), wanted.covariance.dense(kind=kind), atol=1e-9
            )
        np.testing.assert_array_equal(found.nonnegative("mle").values, wanted.values)


def test_learners_run_on_it():
    frame = records(200)
    structure = {"A": (), "B": ("A",), "C": ("A",), "D": ("C", "A")}
    wanted = mq.learn.bayesian_network(mq.tally(frame, schema=SCHEMA), structure)
    found = mq.learn.bayesian_network(mq.projection_tally(frame, OWNERS, schema=SCHEMA), structure)
    for node in structure:
        np.testing.assert_array_equal(found[node].probabilities, wanted[node].probabilities)
        np.testing.assert_allclose(found[node].stderr, wanted[node].stderr)


def estimates(query, runs, **options):
    frame = records(400)
    return [
        mq.simulate_projection(frame, OWNERS, seed, schema=SCHEMA, **options).answer([query])[0]
        for seed in range(runs)
    ]


@pytest.mark.parametrize("options", [{"dimensions": (30, 20)}, {"dimensions": (9, 12), "trials": 3}])
def test_double_projection_is_unbiased_with_the_variance_it_claims(options):
    query = mq.Query(by=("D", "A", "B"))
    (truth,) = mq.tally(records(400), schema=SCHEMA).answer([query])
    tables = estimates(query, 600, **options)
    values = np.array([table.values for table in tables])
    assert_unbiased(values, truth.values)
    assert_variance(values, np.array([table.covariance.diagonal("given_records") for table in tables]))
    weights = np.random.default_rng(2).normal(size=truth.values.shape)
    assert_variance(
        (values * weights).sum(axis=(1, 2, 3)),
        np.array([table.covariance.quadratic(weights, "given_records") for table in tables]),
    )
    centred = (values - truth.values).reshape(len(values), -1)
    dense = np.array([table.covariance.dense(kind="given_records") for table in tables])
    assert_unbiased(centred[:, :, None] * centred[:, None, :] - dense, np.zeros(dense.shape[1:]))


def test_sampling_is_added_to_the_noise_of_the_projection():
    rng = np.random.default_rng(6)
    joint = rng.dirichlet(np.ones(4)).reshape(2, 2)
    found, claimed, covered = [], [], []
    for seed in range(800):
        x, y = np.unravel_index(rng.choice(4, 300, p=joint.ravel()), (2, 2))
        frame = pd.DataFrame({"x": x, "y": y})
        schema = mq.Schema({"x": [0, 1], "y": [0, 1]})
        source = mq.simulate_projection(
            frame, {"one": ["x"], "two": ["y"]}, seed, schema=schema, dimensions=(60, 60)
        )
        (table,) = source.answer([mq.Query(by=("y", "x"))])
        found.append(table.values)
        claimed.append(table.stderr() ** 2)
        low, high = table.conf_int(0.95)
        covered.append((low <= 300 * joint.T) & (high >= 300 * joint.T))
    assert_unbiased(found, 300 * joint.T)
    assert_variance(found, claimed)
    assert_coverage(covered, 0.95, slack=0.01)


def test_the_covariance_is_one_operator():
    (table,) = estimates(mq.Query(by=("C", "B", "A", "D")), 1, dimensions=(40, 30))
    dense = table.covariance.dense()
    rng = np.random.default_rng(1)
    weights = rng.normal(size=table.values.shape)
    assert table.covariance.quadratic(weights) == pytest.approx(weights.ravel() @ dense @ weights.ravel())
    others = np.stack([weights, np.ones_like(weights)])
    expected = others.reshape(2, -1) @ dense @ others.reshape(2, -1).T
    np.testing.assert_allclose(table.covariance.between(others, others), expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(table.covariance.diagonal().ravel(), np.diag(dense))
    whole = dense.reshape(table.values.shape * 2)
    blocks = table.within(("D", "B"))
    np.testing.assert_allclose(table.covariance.within((3, 1)), blocks)
    for c in range(2):
        for a in range(2):
            wanted = whole[c, :, a, :, c, :, a, :].transpose(1, 0, 3, 2).reshape(12, 12)
            np.testing.assert_allclose(blocks[c, a], wanted, atol=1e-9)
    part = table.marginal(("D", "C", "A"))
    np.testing.assert_allclose(
        part.covariance.dense(), np.einsum("abcdefgh->dacheg", whole).reshape(16, 16), atol=1e-8
    )


def test_margins_of_one_owner_and_the_total_are_exact():
    frame = records(400)
    (table,) = estimates(mq.Query(by=("C", "B", "A", "D")), 1, dimensions=(40, 30))
    clear = mq.tally(frame, schema=SCHEMA)
    for names in OWNERS.values():
        (wanted,) = clear.answer([mq.Query(by=names)])
        margin = table.marginal(names)
        np.testing.assert_allclose(margin.values, wanted.values, atol=1e-9)
        np.testing.assert_allclose(margin.covariance.dense(), wanted.covariance.dense(), atol=1e-7)
    assert table.total == pytest.approx(400)


def test_conditions_and_order_are_slices_of_one_table():
    source = mq.projection_tally(records(300), OWNERS, schema=SCHEMA, dimensions=(40, 30))
    whole, sliced = source.answer([mq.Query(by=("A", "D", "B")), mq.Query(by=("B", "D"), where={"A": 1})])
    same = whole.select({"A": 1})
    np.testing.assert_allclose(same.values.T, sliced.values)
    np.testing.assert_allclose(same.stderr().T, sliced.stderr())
    np.testing.assert_array_equal(source.answer([mq.Query(by=("A", "D", "B"))])[0].values, whole.values)


def test_estimates_can_be_made_nonnegative_and_the_most_likely_table_is_the_nearest_by_covariance():
    (table,) = estimates(mq.Query(by=("A", "B", "C", "D")), 1, dimensions=(9, 9))
    assert table.values.min() < 0
    made = {method: table.nonnegative(method).values for method in ("mle", "simplex", "clip")}
    assert all(values.min() >= 0 for values in made.values())
    far = {method: table.deviance(values) for method, values in made.items()}
    assert 0 < far["mle"] < min(far["simplex"], far["clip"])


def test_three_owners_are_refused_before_anything_is_asked():
    source = mq.projection_tally(records(20), {"a": ["A"], "b": ["B", "D"], "c": ["C"]}, schema=SCHEMA)
    assert source.check([mq.Query(by=("A", "B")), mq.Query(by="C", where={"B": "a"})]) == []
    (refusal,) = source.check([mq.Query(by=("A", "B")), mq.Query(by=("A", "B"), where={"C": True})])
    assert refusal.code == "too_many_owners"
    with pytest.raises(QueryRefused, match=r"three owners|3 owners"):
        source.answer([mq.Query(by=("A", "B", "C"))])


def test_too_many_products_are_refused():
    names = [f"v{i}" for i in range(18)]
    frame = pd.DataFrame({name: [0, 1, 1] for name in names})
    source = mq.projection_tally(frame, {"a": names[:9], "b": names[9:]})
    assert source.check([mq.Query(by=names[1:17])]) == []
    (refusal,) = source.check([mq.Query(by=names)])
    assert refusal.code == "too_many_cells"


@pytest.mark.parametrize(
    ("owners", "options", "complaint"),
    [
        (OWNERS, {"receiver": "insurer"}, "can undo the projection"),
        ({"a": ["A", "B", "C", "D"]}, {}, "at least two owners"),
        ({"a": ["A", "B"], "b": ["C"]}, {}, "No party owns 'D'"),
        ({"a": ["A", "B"], "b": ["B", "C", "D"]}, {}, "'B' is listed twice"),
        ({"a": ["A", "B", "C", "D"], "b": []}, {}, "'b' holds no variable"),
        ({"a": ["A", "B"], "b": ["C", "E"]}, {}, "'E', which is not a variable"),
        ({"a": "AB", "b": "CD"}, {}, "list of variables"),
        (OWNERS, {"trials": 3}, "needs 'dimensions'"),
        (OWNERS, {"dimensions": (0, 4)}, "from 1 to the number of records"),
        (OWNERS, {"dimensions": (31, 4)}, "from 1 to the number of records"),
        (OWNERS, {"dimensions": (4, 4)}, "too small to estimate"),
        (OWNERS, {"dimensions": (4.5, 4)}, "whole numbers"),
        (OWNERS, {"dimensions": (4,)}, "whole numbers"),
    ],
)
def test_mistakes_are_told(owners, options, complaint):
    with pytest.raises(InputError, match=complaint):
        mq.projection_tally(records(30), owners, schema=SCHEMA, **options)


def test_a_rotation_of_very_many_records_is_refused():
    frame = pd.DataFrame({"x": np.zeros(50_000, dtype=int), "y": np.ones(50_000, dtype=int)})
    with pytest.raises(InputError, match=r"takes too long: about 2\.08 min per query"):
        mq.projection_tally(frame, {"a": ["x"], "b": ["y"]})


def test_the_guarantee_says_who_learns_what():
    guarantee = mq.projection_tally(records(20), OWNERS, schema=SCHEMA, receiver="miner").guarantee
    (disclosure,) = guarantee.disclosures
    assert disclosure.role == "miner"
    assert set(disclosure.variables) == set(SCHEMA)
    assert disclosure.gamma is None
    assert "exact counts" in disclosure.kind
    assert "Gram matrix" in disclosure.kind
    assert guarantee.excluded_coalitions == (("miner", "hospital"), ("miner", "insurer"))
    assert guarantee.colluders == 0
    noisy = mq.projection_tally(records(20), OWNERS, schema=SCHEMA, dimensions=(10, 10)).guarantee
    assert "noisy" in noisy.disclosures[0].kind
    seeded = mq.simulate_projection(records(20), OWNERS, 1, schema=SCHEMA).guarantee
    assert "anyone who knows the seed learns clear values" in seeded.summary()


def submitted(source, party, names, question):
    (owner,) = [owner for owner in source.owners if owner.name == party]
    return owner.submit(names, question, source.reduction)


def test_every_source_and_every_question_has_its_own_projection():
    frame = records(40)
    one, other = (mq.projection_tally(frame, OWNERS, schema=SCHEMA) for _ in range(2))
    asked = submitted(one, "hospital", ["A"], ["A", "C"])
    np.testing.assert_array_equal(asked, submitted(one, "hospital", ["A"], ["C", "A"]))
    for another in (
        submitted(one, "hospital", ["A"], ["A", "D"]),
        submitted(other, "hospital", ["A"], ["A", "C"]),
    ):
        assert np.abs(asked - another).max() > 0.1
    clear = product_columns([frame["A"].to_numpy()], [2])[1]
    assert np.linalg.norm(asked) == pytest.approx(np.linalg.norm(clear))
    assert np.abs(asked - clear).max() > 0.1


def test_what_is_submitted_for_a_question_has_the_gram_matrix_of_its_table():
    # two data sets with the same table, rows in another order: the receiver's inner products are the same
    frame = records(60)
    shuffled = frame.sample(frac=1, random_state=1)
    grams = []
    for rows in (frame, shuffled):
        source = mq.projection_tally(rows, OWNERS, schema=SCHEMA)
        sent = np.concatenate([submitted(source, party, names, SCHEMA) for party, names in OWNERS.items()])
        grams.append(sent @ sent.T)
    np.testing.assert_allclose(grams[0], grams[1], atol=1e-9)


def test_owners_with_different_secrets_are_noticed():
    source = mq.projection_tally(records(50), OWNERS, schema=SCHEMA)
    first, second = source.owners
    torn = Projected((first, replace(second, secret=bytes(32))), SCHEMA, 50)
    with pytest.raises(RoundAborted, match="same rotation"):
        torn.answer([mq.Query(by=("A", "C"))])


def test_shared_normals_are_normal():
    # moments of 200,000 standard normals: variances of x, x², x³, x⁴ are 1, 2, 15, 96
    x = shared_normals(bytes(range(32)), "question")(200_000)[:, None]
    assert_unbiased(np.concatenate([x, x**2, x**3, x**4], axis=1), np.array([0.0, 1.0, 0.0, 3.0]))


def test_nothing_but_the_study_can_be_seeded():
    names = (
        "protocols.vertical.projection",
        "sources.parties.projection",
        "sources.parties.projection_noise",
    )
    found = [module for module in MODULES if module.name.removeprefix("masquerade.") in names]
    assert len(found) == len(names)
    for module in found:
        assert seeds_of(module) == []
        assert not [item for item in module.imports if "seeded" in item.name]
