"""Networks from tables with missing answers: EM on the joined tally and on each family's table."""

from fractions import Fraction
from itertools import product

import numpy as np
import pandas as pd
import pytest

import masquerade as mq
from masquerade.core.errors import InputError, MasqueradeWarning

ASIA = {
    "asia": (),
    "tub": ("asia",),
    "smoke": (),
    "lung": ("smoke",),
    "bronc": ("smoke",),
    "either": ("tub", "lung"),
    "xray": ("either",),
    "dysp": ("bronc", "either"),
}
YES = {
    "asia": 0.01,
    "tub": [0.01, 0.05],
    "smoke": 0.5,
    "lung": [0.01, 0.1],
    "bronc": [0.3, 0.6],
    "either": [[0.0, 1.0], [1.0, 1.0]],
    "xray": [0.05, 0.98],
    "dysp": [[0.1, 0.7], [0.8, 0.9]],
}
MISSING = 2


def schema(names):
    return mq.Schema([mq.Variable(name, (0, 1, MISSING), missing=[MISSING]) for name in names])


def joint(chances):
    """Return the probabilities of all records, given P(node | parents) by node."""
    names = list(ASIA)
    found = np.empty([2] * len(names))
    for record in product((0, 1), repeat=len(names)):
        value = dict(zip(names, record, strict=True))
        found[record] = np.prod(
            [chances[name][tuple(value[it] for it in ASIA[name])][value[name]] for name in names]
        )
    return found


@pytest.mark.parametrize("tables", ["joint", "families"])
def test_asia_with_missing_answers_is_close_to_the_truth(tables):
    """10,000 records, 30% of answers missing completely at random: KL to the truth at most 0.003.

    With 18 free parameters the expected KL of complete records is 0.0009.
    """
    plain = mq.Schema({name: [0, 1] for name in ASIA})
    chances = {name: np.stack([1 - np.asarray(yes), np.asarray(yes)], axis=-1) for name, yes in YES.items()}
    frame = mq.learn.known_network(plain, ASIA, chances).sample(10_000, seed=11)
    hidden = np.random.default_rng(12).random(frame.shape) < 0.3
    source = mq.tally(frame.mask(hidden, MISSING).astype(int), schema=schema(ASIA))
    network = mq.learn.network_with_missing(source, ASIA, tables=tables)
    truth, found = joint(chances), joint({name: network[name].probabilities for name in ASIA})
    kept = truth > 0
    assert np.sum(truth[kept] * np.log(truth[kept] / found[kept])) <= 0.003


def test_absence_that_depends_on_an_answered_variable_does_not_bias():
    """b is missing for 60% of a = 1 and 10% of a = 0: P(b) of those who answered is biased, EM is not."""
    rng, n = np.random.default_rng(3), 40_000
    a = (rng.random(n) < 0.4).astype(int)
    b = (rng.random(n) < np.where(a == 1, 0.6, 0.2)).astype(int)
    shown = np.where(rng.random(n) < np.where(a == 1, 0.6, 0.1), MISSING, b)
    source = mq.tally(pd.DataFrame({"a": a, "b": shown}), schema=schema("ab"))
    network = mq.learn.network_with_missing(source, {"a": (), "b": ("a",)}, prior=0.0)
    share = float(network["a"].probabilities @ network["b"].probabilities[:, 1])
    assert abs(share - b.mean()) < 5 * np.sqrt(0.25 / (0.4 * n))  # false alarms below 1e-6
    assert np.mean(b[shown < MISSING]) < b.mean() - 0.03
    joined = mq.learn.network_with_missing(source, {"a": (), "b": ("a",)}, prior=0.0, tables="joint")
    assert joined["b"].probabilities == pytest.approx(network["b"].probabilities, abs=1e-6)


def test_without_missing_answers_it_is_the_network_of_counts():
    source = mq.tally(mq.data.students())
    structure = {"exams": (), "pills": ("exams",), "sleep": ("pills", "exams")}
    plain = mq.learn.bayesian_network(source, structure, prior=0.5)
    for tables in ("families", "joint"):
        found = mq.learn.network_with_missing(source, structure, tables=tables)
        for name in structure:
            assert found[name].probabilities == pytest.approx(plain[name].probabilities, abs=1e-9)
    plain = mq.learn.bayesian_network(source, structure)
    for tables in ("families", "joint"):
        found = mq.learn.network_with_missing(source, structure, tables=tables, prior=0.0)
        for name in structure:
            assert found[name].stderr == pytest.approx(plain[name].stderr, rel=1e-6)


def test_estimates_from_disguised_records_are_refused():
    policy = mq.data.students_policy()
    source = mq.tally(mq.simulate(mq.data.students(), policy, seed=1), policy)
    with pytest.raises(InputError, match="needs exact counts"):
        mq.learn.network_with_missing(source, {"pills": ()})


def erasure(kept, flipped):
    """Return a channel that shows an answer with probability `kept`, and the other answer if flipped."""
    kept, flipped = Fraction(kept), Fraction(flipped)
    shown, other = kept * (1 - flipped), kept * flipped
    return mq.channels.matrix([[shown, other, 1 - kept], [other, shown, 1 - kept]], labels=["no", "yes", "?"])


def reported(flips_of_a, flips_of_b, n=40_000):
    """Return reports of a and b; b is missing for 60% of a = yes and 10% of a = no, and P(b) = 0.36."""
    rng = np.random.default_rng(5)
    a = rng.random(n) < 0.4
    b = rng.random(n) < np.where(a, 0.6, 0.2)
    missing = rng.random(n) < np.where(a, 0.6, 0.1)
    a, b = a ^ (rng.random(n) < flips_of_a), b ^ (rng.random(n) < flips_of_b)
    yes_no = np.array(["no", "yes"])
    return pd.DataFrame({"a": yes_no[a.astype(int)], "b": np.where(missing, "?", yes_no[b.astype(int)])})


def shares_of_b(frame, rate, flips_of_b="0"):
    """Return P(b = yes) by the inverse and by the likelihood of a stated rate, with the latter's error."""
    policy = mq.Policy.build({"a": ["no", "yes"], "b": ["no", "yes"]}, {"b": erasure(rate, flips_of_b)})
    (table,) = mq.tally(frame, policy).answer([mq.Query(by=("a", "b"))])
    fitted = table.fit([["a", "b"]]).contrast(np.array([[0.0, 1.0], [0.0, 1.0]]))
    n = len(frame)
    inverse = float(table.values[:, 1].sum() / table.values.sum())
    return inverse, float(fitted.value) / n, float(fitted.stderr) / n


@pytest.mark.parametrize("flips", ["0", "0.15"])
def test_the_likelihood_of_an_erasure_does_not_depend_on_the_stated_rate(flips):
    """Biases where absence depends on a clear variable: P(b) is 0.36, and the stated rates are wrong.

    The column of erased answers is constant, so it cancels in the likelihood, and not in the inverse.
    """
    frame = reported(0, float(flips))
    right, wrong = (shares_of_b(frame, rate, flips) for rate in ("0.7", "0.5"))
    assert wrong[1:] == pytest.approx(right[1:], abs=1e-6)
    assert abs(right[1] - 0.36) < 5 * right[2]  # false alarms below 1e-6
    assert right[2] < 0.006
    assert right[0] == pytest.approx(0.291, abs=0.02)  # the inverse with the mean rate: complete cases
    assert wrong[0] == pytest.approx(0.208, abs=0.02)  # the inverse with a wrong rate
    if flips == "0":  # EM on the table states no rate, and finds the same
        codes = {"no": 0, "yes": 1, "?": MISSING}
        source = mq.tally(frame.apply(lambda column: column.map(codes)), schema=schema("ab"))
        network = mq.learn.network_with_missing(source, {"a": (), "b": ("a",)}, prior=0.0)
        share = float(network["a"].probabilities @ network["b"].probabilities[:, 1])
        assert share == pytest.approx(right[1], abs=1e-6)


def test_absence_that_depends_on_a_disguised_variable_biases_the_likelihood():
    """Why EM refuses disguised records: absence then depends on the truth, which the report hides."""
    frame = reported(0.25, 0)
    policy = mq.Policy.build(
        {"a": ["no", "yes"], "b": ["no", "yes"]},
        {"a": mq.channels.binary("0.25"), "b": erasure("0.7", "0")},
    )
    (table,) = mq.tally(frame, policy).answer([mq.Query(by=("a", "b"))])
    fitted = table.fit([["a", "b"]]).contrast(np.array([[0.0, 1.0], [0.0, 1.0]]))
    share, stderr = float(fitted.value) / len(frame), float(fitted.stderr) / len(frame)
    assert share == pytest.approx(0.305, abs=0.015)
    assert share < 0.36 - 6 * stderr


# --- standard errors ----------------------------------------------------------------------------------------

CHAIN = {"a": (), "b": ("a",), "c": ("b",)}
FREE = (
    ("a", ()),
    ("b", (0,)),
    ("b", (1,)),
    ("c", (0,)),
    ("c", (1,)),
)  # nodes and rows of the five parameters
TRUE = {"a": np.array([0.6, 0.4]), "b": np.array([[0.8, 0.2], [0.3, 0.7]]),
        "c": np.array([[0.9, 0.1], [0.2, 0.8]])}  # fmt: skip


def draw_chain(rng, n):
    """Return records of a chain: a is missing at random for 20%, b more often where c is 1, c for 10%."""
    a = (rng.random(n) < TRUE["a"][1]).astype(int)
    b = (rng.random(n) < TRUE["b"][a, 1]).astype(int)
    c = (rng.random(n) < TRUE["c"][b, 1]).astype(int)
    frame = pd.DataFrame({"a": a, "b": b, "c": c})
    hidden_c = rng.random(n) < 0.1
    frame["b"] = frame["b"].mask(rng.random(n) < np.where(hidden_c, 0.3, np.where(c == 1, 0.5, 0.2)), MISSING)
    frame["a"] = frame["a"].mask(rng.random(n) < 0.2, MISSING)
    frame["c"] = frame["c"].mask(hidden_c, MISSING)
    return frame


def log_likelihood(logits, counts):
    """Return the log-likelihood of a table of the chain with missing answers, from its five logits."""
    yes = 1 / (1 + np.exp(-np.asarray(logits)))
    joint = (
        np.array([1 - yes[0], yes[0]])[:, None, None]
        * np.array([[1 - yes[1], yes[1]], [1 - yes[2], yes[2]]])[:, :, None]
        * np.array([[1 - yes[3], yes[3]], [1 - yes[4], yes[4]]])[None]
    )
    for axis in range(3):  # a missing answer agrees with both
        joint = np.concatenate([joint, joint.sum(axis=axis, keepdims=True)], axis=axis)
    seen = counts > 0
    return float(counts[seen] @ np.log(joint[seen]))


def second_derivatives(function, at, step=1e-3):
    """Return the matrix of second derivatives, by central differences."""
    unit = step * np.eye(len(at))
    return np.array(
        [
            [
                (function(at + i + j) - function(at + i - j) - function(at - i + j) + function(at - i - j))
                / (4 * step**2)
                for j in unit
            ]
            for i in unit
        ]
    )


@pytest.mark.parametrize("prior", [0.0, 2.0])
def test_errors_of_a_network_are_those_of_the_observed_information(prior):
    """Against second derivatives of the log-likelihood: tables, and P(c) by the delta method."""
    frame = draw_chain(np.random.default_rng(21), 800)
    network = mq.learn.network_with_missing(
        mq.tally(frame, schema=schema("abc")), CHAIN, prior=prior, tables="joint"
    )
    yes = np.array([network[name].probabilities[(*row, 1)] for name, row in FREE])
    logits = np.log(yes / (1 - yes))
    counts = np.zeros((3, 3, 3))
    np.add.at(counts, tuple(frame[name] for name in "abc"), 1)
    information = -second_derivatives(lambda at: log_likelihood(at, counts), logits)
    pulled = information + np.diag(2 * prior * yes * (1 - yes))
    covariance = np.linalg.inv(pulled) @ information @ np.linalg.inv(pulled)
    assert network.joint.covariance == pytest.approx(covariance, rel=1e-3, abs=1e-6)  # of the logit of 0
    expected = yes * (1 - yes) * np.sqrt(np.diag(covariance))
    found = [network[name].stderr[(*row, 1)] for name, row in FREE]
    assert found == pytest.approx(expected, rel=1e-4)

    def share(at):
        own = 1 / (1 + np.exp(-at))
        second = own[1] * (1 - own[0]) + own[2] * own[0]
        return own[3] * (1 - second) + own[4] * second

    slope = np.array([(share(logits + e) - share(logits - e)) / 2e-5 for e in 1e-5 * np.eye(5)])
    assert network.query("c").stderr[1] == pytest.approx(np.sqrt(slope @ covariance @ slope), rel=1e-3)
    again = mq.learn.BayesianNetwork.from_dict(network.to_dict())
    assert again.query("c").stderr == pytest.approx(network.query("c").stderr)


def test_intervals_of_em_contain_the_truth_as_often_as_stated():
    """Coverage of 95% intervals over 300 runs of 500 people, for five parameters and P(b).

    At least 285 − 5·√14.25 of 300 each: false alarms below 1e-5 for all. Errors from the people who answered
    a family are larger by more than 5%: the other answers tell something.
    """
    rng, runs, level = np.random.default_rng(31), 300, 1.96
    hits, widths, before = np.zeros(6), np.zeros(5), np.zeros(5)
    true = np.array([TRUE[name][(*row, 1)] for name, row in FREE] + [0.6 * 0.2 + 0.4 * 0.7])
    for _ in range(runs):
        source = mq.tally(draw_chain(rng, 500), schema=schema("abc"))
        network = mq.learn.network_with_missing(source, CHAIN, prior=0.0, tables="joint")
        share = network.query("b")
        values = [network[name].probabilities[(*row, 1)] for name, row in FREE]
        errors = [network[name].stderr[(*row, 1)] for name, row in FREE]
        gap = np.abs(np.array([*values, share.probabilities[1]]) - true)
        hits += gap < level * np.array([*errors, share.stderr[1]])
        widths += errors
        answered = mq.learn.bayesian_network(source, CHAIN)
        before += [answered[name].stderr[(*row, 1)] for name, row in FREE]
    assert hits.min() >= 0.95 * runs - 5 * np.sqrt(0.95 * 0.05 * runs)
    assert (before / widths).max() > 1.05
    assert (before / widths)[0] > 1.0


def test_what_the_table_says_nothing_about_has_infinite_errors():
    frame = pd.DataFrame({"a": [0] * 50 + [1] * 50, "b": [0, 1] * 25 + [MISSING] * 50})
    source = mq.tally(frame, schema=schema("ab"))
    for prior in (0.0, 0.5):
        for tables in ("families", "joint"):
            with pytest.warns(MasqueradeWarning, match="no records"):
                network = mq.learn.network_with_missing(
                    source, {"a": (), "b": ("a",)}, prior=prior, tables=tables
                )
            assert np.isinf(network["b"].stderr[1]).all()
            assert network["b"].stderr[0] == pytest.approx([np.sqrt(0.25 / 50)] * 2, rel=0.03)
            assert network["a"].stderr == pytest.approx([np.sqrt(0.25 / 100)] * 2, rel=0.03)
            assert network.joint is None
