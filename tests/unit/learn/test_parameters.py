"""Parameters of networks: exact on clear records, right errors on disguised ones, honest with few records."""

from __future__ import annotations

import warnings
from importlib import import_module
from statistics import NormalDist
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import beta
from tests.statistical.checks import assert_coverage, assert_unbiased, assert_variance, normal_bound

import masquerade as mq
from masquerade.core.errors import InputError, MasqueradeWarning
from masquerade.data.example_networks import ELEVEN_NODES, eleven_nodes, eleven_nodes_policy
from masquerade.disguising.seeded import simulate_codes
from masquerade.learn.networks.network import known_network
from masquerade.learn.networks.parameters import FEWEST_RECORDS, conditional_table, weight_ratio
from masquerade.sources.records import Records

SCHEMA = mq.Schema({"a": ["x", "y"], "b": [0, 1, 2], "c": [True, False], "d": ["u", "v"]})
PARENTS = {"a": (), "b": (), "c": ("a", "b"), "d": ("c",)}
POPULATION = known_network(
    SCHEMA,
    PARENTS,
    {
        "a": np.array([0.6, 0.4]),
        "b": np.array([0.3, 0.3, 0.4]),
        "c": np.array([[[0.8, 0.2], [0.5, 0.5], [0.1, 0.9]], [[0.3, 0.7], [0.6, 0.4], [0.95, 0.05]]]),
        "d": np.array([[0.7, 0.3], [0.25, 0.75]]),
    },
)
NOT_LUMPABLE = mq.channels.matrix(
    [
        ["0.7", "0.1", "0.1", "0.1"],
        ["0.05", "0.8", "0.05", "0.1"],
        ["0.2", "0.1", "0.6", "0.1"],
        ["0.1", "0.2", "0", "0.7"],
    ]
)
symmetric = mq.channels.symmetric
CASES = {
    "each by itself": {
        "a": symmetric(2, "0.15"),
        "b": symmetric(3, "0.2"),
        "c": mq.channels.binary("0.1", "0.2"),
    },
    "parents together": {("a", "b"): symmetric(6, "0.3"), "c": symmetric(2, "0.1")},
    "node with its parents": {("c", "a", "b"): symmetric(12, "0.3")},
    "node with one parent": {("b", "c"): symmetric(6, "0.3"), "a": symmetric(2, "0.1")},
    "node with an outsider": {("c", "d"): symmetric(4, "0.3"), "a": symmetric(2, "0.1")},
    "node with an outsider, no marginal channel": {("d", "c"): NOT_LUMPABLE, "b": symmetric(3, "0.1")},
    "parent with an outsider": {("d", "a"): NOT_LUMPABLE, "c": symmetric(2, "0.1")},
}


def policy_of(case):
    return mq.Policy.build(SCHEMA, CASES[case])


def disguised(case, n, generator):
    policy = policy_of(case)
    return Records(simulate_codes(POPULATION.sample_codes(n, generator), policy, generator), policy)


@pytest.mark.parametrize("case", CASES)
def test_every_way_of_disguising_a_family(case):
    """Bias, standard errors and 95% intervals over 250 samples; false alarm 1e-6 each.

    The ratio's own bias is (σ/N)² at most, with σ/N ≤ 0.05 here, and shows as at most √250·0.05 < 0.8 of the
    4.9 or more Monte-Carlo standard errors allowed.
    """
    generator = np.random.default_rng(list(CASES).index(case))
    truth = POPULATION["c"].probabilities
    estimates, variances, covered = [], [], []
    for _ in range(250):
        table = mq.learn.bayesian_network(disguised(case, 10_000, generator), PARENTS)["c"]
        interval = table.conf_int()
        assert table.reliable.all()
        estimates.append(table.probabilities)
        variances.append(table.stderr**2)
        covered.append((interval.lower <= truth) & (truth <= interval.upper))
    assert_unbiased(estimates, truth)
    assert_variance(estimates, variances)
    assert_coverage(covered, 0.95, slack=0.005)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("alpha", [0.0, 2.5])
def test_standard_errors_are_the_gradient_through_the_whole_covariance(case, alpha):
    source = disguised(case, 5000, np.random.default_rng(5))
    (counts,) = source.answer([mq.Query(by=("a", "b", "c"))])
    table = conditional_table(counts, alpha)
    covariance = counts.covariance.dense()
    total = counts.values.sum(axis=-1) + 2 * alpha
    for cell in np.ndindex(counts.values.shape):
        theta = (counts.values[cell] + alpha) / total[cell[:-1]]
        gradient = np.zeros(counts.values.shape)
        gradient[cell[:-1]] = -theta / total[cell[:-1]]
        gradient[cell] += 1 / total[cell[:-1]]
        variance = gradient.ravel() @ covariance @ gradient.ravel()
        assert table.probabilities[cell] == pytest.approx(theta, rel=1e-12)
        assert table.stderr[cell] ** 2 == pytest.approx(variance, rel=1e-9)


@pytest.mark.parametrize(
    ("noise", "n"),
    [
        pytest.param(None, 60, marks=pytest.mark.slow),
        ("0.2", 150),
        pytest.param("0.4", 400, marks=pytest.mark.slow),
    ],
)
def test_intervals_cover_where_little_is_known(noise, n):
    """Rows with few records, many of them flagged: coverage falls short by at most 0.02 beyond chance (1e-6).

    Sets that are no interval cover by being [0, 1], so only a shortfall is an error.
    """
    schema = mq.Schema({"a": [0, 1, 2], "b": [0, 1, 2]})
    structure = {"a": (), "b": ("a",)}
    rows = np.array([[0.5, 0.3, 0.2], [0.7, 0.2, 0.1], [0.15, 0.25, 0.6]])
    population = known_network(schema, structure, {"a": np.array([0.6, 0.25, 0.15]), "b": rows})
    policy = mq.Policy.build(schema, {name: symmetric(3, noise) for name in schema} if noise else {})
    generator = np.random.default_rng(8)
    covered, flagged, normal = [], [], []
    for _ in range(1000):
        source = Records(simulate_codes(population.sample_codes(n, generator), policy, generator), policy)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MasqueradeWarning)
            table = mq.learn.bayesian_network(source, structure)["b"]
        interval = table.conf_int()
        covered.append((interval.lower <= rows) & (rows <= interval.upper))
        flagged.append(~table.reliable)
        normal.append(np.abs(table.probabilities - rows) <= 1.96 * table.stderr)
    allowance = normal_bound(rows.size) * np.sqrt(0.95 * 0.05 / 1000)
    assert np.mean(covered, axis=0).min() >= 0.95 - 0.02 - allowance
    assert np.mean(flagged, axis=0)[2] > 0.9
    if noise is None:  # what the plain interval would have done
        assert np.mean(normal, axis=0).min() < 0.95 - 0.02 - allowance


def test_reliable_rows_keep_what_their_standard_errors_promise():
    """Among rows flagged reliable, at any n, estimates lie within 1.96 errors at least 88.4% of the time.

    That is the least that a binomial of 25 to 400 records with these parameters gives (25 records at 0.2):
    its own steps, which no standard error can mend. Less chance, at 1e-6.
    """
    schema = mq.Schema({"a": [0, 1, 2, 3], "b": [0, 1]})
    structure = {"a": (), "b": ("a",)}
    rows = np.array([[0.5, 0.5], [0.3, 0.7], [0.8, 0.2], [0.6, 0.4]])
    population = known_network(schema, structure, {"a": np.array([0.55, 0.25, 0.12, 0.08]), "b": rows})
    generator = np.random.default_rng(21)
    for noise, n in (("0", 200), ("0.1", 400), ("0.3", 1500)):
        policy = mq.Policy.build(schema, {"a": symmetric(4, noise), "b": symmetric(2, noise)})
        hits = trials = 0
        for _ in range(400):
            source = Records(simulate_codes(population.sample_codes(n, generator), policy, generator), policy)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", MasqueradeWarning)
                table = mq.learn.bayesian_network(source, structure)["b"]
            inside = (np.abs(table.probabilities - rows) <= 1.96 * table.stderr)[..., 0]
            hits, trials = hits + int(inside[table.reliable].sum()), trials + int(table.reliable.sum())
        assert trials > 400
        # rows of one sample are nearly independent
        assert hits / trials >= 0.884 - normal_bound(1) * np.sqrt(0.884 * 0.116 / trials)


def test_intervals_of_clear_records_are_wilsons():
    frame = pd.DataFrame({"a": ["x"] * 40 + ["y"] * 30, "b": [0] * 13 + [1] * 27 + [1] * 30})
    table = mq.learn.bayesian_network(mq.tally(frame), {"a": (), "b": ("a",)})["b"]
    z = NormalDist().inv_cdf(0.95)
    found = table.conf_int(0.9)
    # the row's records are 40 of 70: Wilson's interval of 13 in 40, whatever the other rows
    p, c = 13 / 40, 1 + z**2 / 40
    centre, half = p + z**2 / 2 / 40, z * np.sqrt(p * (1 - p) / 40 + z**2 / 4 / 40**2)
    assert found.lower[0, 0] == pytest.approx((centre - half) / c, abs=1e-12)
    assert found.upper[0, 0] == pytest.approx((centre + half) / c, abs=1e-12)
    # and Clopper's and Pearson's of none in 30
    assert found.lower[1, 0] == pytest.approx(0, abs=1e-12)
    assert found.upper[1, 0] == pytest.approx(1 - 0.05 ** (1 / 30))


def test_intervals_of_few_clear_records_are_cloppers_and_pearsons():
    frame = pd.DataFrame({"a": ["x"] * 12 + ["y"] * 30, "b": [0] * 3 + [1] * 9 + [1] * 30})
    found = mq.learn.bayesian_network(mq.tally(frame), {"a": (), "b": ("a",)})["b"].conf_int()
    assert found.lower[0, 0] == pytest.approx(beta.ppf(0.025, 3, 10), rel=1e-6)
    assert found.upper[0, 0] == pytest.approx(beta.ppf(0.975, 4, 9), rel=1e-6)


def test_intervals_become_the_normal_ones():
    table = mq.learn.bayesian_network(
        disguised("each by itself", 400_000, np.random.default_rng(2)), PARENTS
    )["c"]
    z = NormalDist().inv_cdf(0.975)
    found = table.conf_int()
    # they differ by terms of order (z·σ/N)², here 1% of the width
    np.testing.assert_allclose(found.upper - table.probabilities, z * table.stderr, rtol=0.05)
    np.testing.assert_allclose(table.probabilities - found.lower, z * table.stderr, rtol=0.05)
    assert table.is_bounded().all()
    with pytest.raises(InputError, match="level"):
        table.conf_int(1.0)


def test_a_row_is_reliable_from_25_records_and_five_errors_on():
    def flags(*sizes):
        frame = pd.DataFrame({"a": np.repeat(np.arange(len(sizes)), sizes)})
        frame["b"] = np.arange(len(frame)) % 2
        return mq.learn.bayesian_network(mq.tally(frame), {"a": (), "b": ("a",)})["b"].reliable.tolist()

    assert FEWEST_RECORDS == 25
    assert flags(24, 300) == [False, True]
    # 26 of 330: σ = √(26·304/330) = 4.9, 26 ≥ 5σ = 24.5
    assert flags(26, 304) == [True, True]
    assert flags(24) == [False]
    assert flags(25) == [True]


def test_map_parameters():
    frame = pd.DataFrame({"a": ["x", "x", "y", "y", "y"], "b": [0, 1, 1, 1, 1]})
    source, structure = mq.tally(frame), {"a": (), "b": ("a",)}
    net = mq.learn.bayesian_network(source, structure, prior=1)
    np.testing.assert_allclose(net["a"].probabilities, [3 / 7, 4 / 7])
    np.testing.assert_allclose(net["b"].probabilities, [[2 / 4, 2 / 4], [1 / 5, 4 / 5]])
    # Var N_x = 5·.4·.6 over (5 + 2)²
    np.testing.assert_allclose(net["a"].stderr, np.sqrt(5 * 0.4 * 0.6) / 7)
    spread = mq.learn.bayesian_network(source, structure, equivalent_size=8)
    np.testing.assert_allclose(spread["a"].probabilities, [6 / 13, 7 / 13])
    np.testing.assert_allclose(spread["b"].probabilities, [[3 / 6, 3 / 6], [2 / 7, 5 / 7]])
    for wrong in ({"prior": -1}, {"prior": np.nan}, {"equivalent_size": np.inf}, {"equivalent_size": -2.0}):
        with pytest.raises(InputError, match="finite number ≥ 0"):
            mq.learn.bayesian_network(source, structure, **wrong)
    with pytest.raises(InputError, match="not both"):
        mq.learn.bayesian_network(source, structure, prior=1, equivalent_size=1)


def hopeless():
    """One record, heavily disguised: its configuration is thrice there, the other one less than never."""
    schema = mq.Schema({"a": [0, 1], "b": [0, 1, 2]})
    policy = mq.Policy.build(schema, {"a": symmetric(2, "0.4"), "b": symmetric(3, "0.4")})
    codes = {"a": np.zeros(1, dtype=np.uint8), "b": np.zeros(1, dtype=np.uint8)}
    return Records(codes, policy)


@pytest.mark.parametrize("prior", [0.0, 1.0, 10.0])
def test_configurations_with_no_or_fewer_records_are_uniform_and_said_so_once(prior):
    with pytest.warns(MasqueradeWarning, match="1 of 3 configurations of parents have no records") as caught:
        net = mq.learn.bayesian_network(hopeless(), {"a": (), "b": ("a",)}, prior=prior)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    table = net["b"]
    assert table.evidence.records.tolist() == pytest.approx([3, -2])
    np.testing.assert_allclose(table.probabilities[1], 1 / 3)
    assert np.isinf(table.stderr[1]).all()
    assert not table.reliable.any()
    interval = table.conf_int()
    assert interval.lower[1].tolist() == [0, 0, 0]
    assert interval.upper[1].tolist() == [1, 1, 1]
    assert not table.is_bounded()[1].any()
    frame = table.to_frame()
    assert not frame.isna().any().any()
    assert table.has_records.tolist() == [True, False]


def test_no_records_at_all():
    source = mq.tally(pd.DataFrame({"a": [], "b": []}), schema=mq.Schema({"a": [0, 1], "b": [0, 1]}))
    with pytest.warns(MasqueradeWarning, match="3 of 3"):
        net = mq.learn.bayesian_network(source, {"a": (), "b": ("a",)})
    np.testing.assert_array_equal(net["b"].probabilities, 0.5)
    assert np.isinf(net["a"].stderr).all()
    assert np.all(np.isfinite(net["b"].conf_int().upper))


def test_projection_is_a_step_of_its_own():
    with pytest.warns(MasqueradeWarning):
        net = mq.learn.bayesian_network(hopeless(), {"a": (), "b": ("a",)})
    # G = [[3, −2], [−2, 3]] for a; 1.5·[1, 0, 0] + … for b: negative entries
    assert (net["b"].probabilities < 0).any()
    with pytest.raises(InputError, match=r"negative estimates: use network.project\(\)"):
        net.sample(3, seed=0)
    usable = net.project()
    for before, after in zip(net.tables, usable.tables, strict=True):
        clipped = np.maximum(before.probabilities, 0)
        np.testing.assert_allclose(after.probabilities, clipped / clipped.sum(axis=-1, keepdims=True))
        np.testing.assert_array_equal(after.stderr, before.stderr)
        np.testing.assert_array_equal(after.conf_int().upper, before.conf_int().upper)
        np.testing.assert_array_equal(after.estimate, before.probabilities)
    assert len(usable.sample(3, seed=0)) == 3
    with pytest.warns(MasqueradeWarning):
        at_once = mq.learn.bayesian_network(hopeless(), {"a": (), "b": ("a",)}, nonnegative=True)
    np.testing.assert_array_equal(at_once["b"].probabilities, usable["b"].probabilities)
    np.testing.assert_array_equal(usable.project()["b"].estimate, net["b"].estimate)


def test_survey_weights_count_as_fewer_records():
    generator = np.random.default_rng(4)
    policy = policy_of("each by itself")
    weights = generator.choice([1.0, 9.0], 2000)
    codes = simulate_codes(POPULATION.sample_codes(2000, generator), policy, generator)
    source = Records(codes, policy, weights)
    for by in (("a",), ("c", "d"), ("a", "b", "c")):
        (counts,) = source.answer([mq.Query(by=by)])
        assert weight_ratio(counts) == pytest.approx((weights**2).sum() / weights.sum())
    clear = Records(
        {"a": np.zeros(30, dtype=np.uint8)}, mq.Policy.clear(mq.Schema({"a": [0, 1]})), np.full(30, 7.0)
    )
    table = mq.learn.bayesian_network(clear, {"a": ()})["a"]
    assert table.evidence.records == pytest.approx(210)
    assert table.reliable  # thirty records, however heavy
    fewer = Records(
        {"a": np.zeros(20, dtype=np.uint8)}, mq.Policy.clear(mq.Schema({"a": [0, 1]})), np.full(20, 7.0)
    )
    assert not mq.learn.bayesian_network(fewer, {"a": ()})["a"].reliable
    # Clopper's and Pearson's interval of 0 in 30: weights that are all alike change nothing
    assert table.conf_int().upper[1] == pytest.approx(1 - 0.025 ** (1 / 30))


class Counting:
    """A source that knows how often it was asked."""

    def __init__(self, source):
        self.source, self.schema, self.guarantee = source, source.schema, source.guarantee
        self.batches = []

    def check(self, queries):
        return self.source.check(queries)

    def answer(self, queries):
        self.batches.append(list(queries))
        return self.source.answer(queries)


def test_all_nodes_are_asked_for_in_one_batch_from_any_source():
    generator = np.random.default_rng(6)
    parts = [disguised("parents together", n, generator) for n in (3000, 5000)]
    source = Counting(mq.Merged(parts))
    net = mq.learn.bayesian_network(source, PARENTS)
    assert [[query.by for query in batch] for batch in source.batches] == [
        [("a",), ("b",), ("a", "b", "c"), ("c", "d")]
    ]
    together = {name: np.concatenate([part.codes[name] for part in parts]) for name in SCHEMA}
    pooled = mq.learn.bayesian_network(Records(together, policy_of("parents together")), PARENTS)
    for one, other in zip(net.tables, pooled.tables, strict=True):
        np.testing.assert_allclose(one.probabilities, other.probabilities, atol=1e-9)


def test_what_a_structure_learner_returns_is_a_structure():
    source = Records(POPULATION.sample_codes(100, 1), mq.Policy.clear(SCHEMA))
    assert mq.learn.bayesian_network(source, SimpleNamespace(structure={"a": (), "d": "a"})).structure == {
        "a": (),
        "d": ("a",),
    }
    for wrong in ({}, None, ["a"]):
        with pytest.raises(InputError, match="must map every node"):
            mq.learn.bayesian_network(source, wrong)


@pytest.fixture(scope="module")
def pgmpy():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return import_module("pgmpy")


@pytest.mark.filterwarnings("ignore")
def test_clear_parameters_are_pgmpys(pgmpy):  # noqa: ARG001
    from pgmpy.models import DiscreteBayesianNetwork  # noqa: PLC0415
    from pgmpy.parameter_estimator import DiscreteBayesianEstimator, DiscreteMLE  # noqa: PLC0415

    frame = eleven_nodes().sample(3000, seed=7)
    source = mq.tally(frame, schema=eleven_nodes_policy())
    model = DiscreteBayesianNetwork([(p, child) for child, parents in ELEVEN_NODES.items() for p in parents])
    for estimator, options in (
        (DiscreteMLE(), {}),
        (DiscreteBayesianEstimator(prior_type="BDeu", equivalent_sample_size=12), {"equivalent_size": 12}),
    ):
        theirs = model.copy().fit(frame, estimator=estimator)
        ours = mq.learn.bayesian_network(source, ELEVEN_NODES, **options)
        for table in ours.tables:
            cpd = theirs.get_cpds(table.child.name)
            order = [cpd.variables.index(axis.name) for axis in table.axes]
            np.testing.assert_allclose(table.probabilities, cpd.values.transpose(order), rtol=0, atol=1e-15)


# Ma & Sivakumar (2005), Table 2: the first value's probability for every configuration, then the second's
TABLE_2 = {
    "A": (0.70,),
    "T": (0.10, 0.90),
    "S": (0.50,),
    "X": (0.20, 0.60),
    "L": (0.30, 0.71, 0.39, 0.14),
    "B": (0.80, 0.16, 0.094, 0.49),
    "E": (0.25, 0.81, 0.14, 0.51, 0.31, 0.41),
    "D": (0.69, 0.65, 0.11, 0.38, 0.79, 0.39),
    "C": (0.90, 0.38, 0.61, 0.25),
    "F": (0.24, 0.91),
    "G": (0.20, 0.40),
}


def test_the_papers_table_2_is_within_its_statistical_error():
    """Their means of five disguises of one sample of 20,000 against one of ours; false alarm 1e-6.

    Variance: theirs is that of the sample plus a fifth of the disguise's, ours is both; theirs is rounded.
    """
    generator = np.random.default_rng(2005)
    codes = eleven_nodes().sample_codes(20_000, generator)
    ours = mq.learn.bayesian_network(
        Records(simulate_codes(codes, eleven_nodes_policy(), generator), eleven_nodes_policy()), ELEVEN_NODES
    )
    population = eleven_nodes().sample_codes(400_000, generator)
    exact = mq.learn.bayesian_network(
        Records(population, eleven_nodes_policy().without_channels()), ELEVEN_NODES
    )
    scores = []
    for name, printed in TABLE_2.items():
        table = ours[name]
        rows = table.probabilities.reshape(-1, len(table.child))
        sampling = (exact[name].stderr.reshape(rows.shape) ** 2) * 20  # of 20,000 records, not 400,000
        both = table.stderr.reshape(rows.shape) ** 2
        first = slice(0, len(printed))
        own = both.T.ravel()[first]
        sample = sampling.T.ravel()[first]
        rounding = np.array([0.005 if round(p, 2) == p else 0.0005 for p in printed]) ** 2 / 3
        variance = own + sample + (own - sample) / 5 + rounding
        scores += ((rows.T.ravel()[first] - np.array(printed)) / np.sqrt(variance)).tolist()
    assert len(scores) == 34
    assert np.abs(scores).max() < normal_bound(len(scores))
    # and not by wide margins either: the mean square of the scores is near one (χ² with 34 degrees at 1e-6)
    assert 0.22 < np.mean(np.square(scores)) < 2.66
