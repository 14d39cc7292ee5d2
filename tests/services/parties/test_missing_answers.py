"""Sessions of parties whose people did not answer everything: models of those who answered, and by EM."""

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError
from tests.services.parties.deployments import LearningGoal, deployed, split_columns, split_rows

import masquerade as mq
from masquerade.core.errors import PolicyMismatch
from masquerade.services.parties.session import JointSchema, SessionSpec

PARTIES = ("north", "south", "registry")
YES_NO = {"categories": ["no", "yes", "not stated"], "missing": "not stated"}
POLICY = mq.Policy.from_dict({"masquerade": 1, "variables": {"a": YES_NO, "b": YES_NO}})
N = 600


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({"a": rng.choice(["no", "yes"], N), "b": rng.choice(["no", "yes"], N, p=[0.7, 0.3])})
    frame.loc[rng.random(N) < 0.2, "b"] = None
    frame.loc[rng.random(N) < 0.1, "a"] = "not stated"
    return frame.fillna("not stated")


def test_pool_learns_a_network_of_the_people_who_answered(tmp_path, people):
    goal = LearningGoal(model="network", structure={"a": (), "b": ("a",)})
    with deployed(tmp_path, split_rows(people, POLICY, PARTIES, goal, seed=4)) as deployment:
        network = mq.learn.BayesianNetwork.from_dict(deployment.done())
    clear = mq.learn.bayesian_network(mq.tally(people, schema=POLICY), {"a": (), "b": ("a",)})
    assert network["b"].probabilities == pytest.approx(clear["b"].probabilities)
    assert network["b"].probabilities.shape == (2, 2)
    answered = people[(people["a"] == "yes") & (people["b"] != "not stated")]
    assert network["b"].probabilities[1, 1] == pytest.approx((answered["b"] == "yes").mean())
    shares = {share.name: share.share for share in network.missing.shares}
    assert shares == pytest.approx({name: (people[name] == "not stated").mean() for name in ("a", "b")})


CHAIN = {"a": (), "b": ("a",), "c": ("b",)}
OWNERS = {"north": ("a",), "south": ("b",), "registry": ("c",)}
THREE = mq.Policy.from_dict({"masquerade": 1, "variables": dict.fromkeys("abc", YES_NO)})


def goal(missing, **more):
    return LearningGoal(model="network", structure=CHAIN, missing=missing, **more)


@pytest.fixture(scope="module")
def absent():
    """Return people for whom b is missing more often where c is yes, with their true answers."""
    rng, n = np.random.default_rng(8), 1500
    a = rng.random(n) < 0.4
    b = rng.random(n) < np.where(a, 0.7, 0.2)
    c = rng.random(n) < np.where(b, 0.8, 0.1)
    truth = pd.DataFrame({"a": a, "b": b, "c": c}).replace({True: "yes", False: "no"})
    shown = truth.copy()
    shown.loc[rng.random(n) < np.where(c, 0.6, 0.1), "b"] = "not stated"
    shown.loc[rng.random(n) < 0.1, "a"] = "not stated"
    return shown, truth


@pytest.mark.parametrize(
    ("protocol", "missing"),
    [
        ("revealed-vertical-counts", "em"),
        ("revealed-vertical-counts", "em-joint"),
        ("vertical-with-miner", "em-joint"),
        ("vertical-without-miner", "em"),
    ],
)
def test_linked_columns_with_missing_answers_are_learnt_by_em(tmp_path, absent, protocol, missing):
    shown, truth = absent
    plan = split_columns(shown, THREE, OWNERS, protocol, goal(missing), seed=2, linking="keyed")
    with deployed(tmp_path, plan) as deployment:
        network = mq.learn.BayesianNetwork.from_dict(deployment.done())
        lines = {names for party in OWNERS for names in [it.variables for it in deployment.ledger(party)]}
    tables = {"em": "families", "em-joint": "joint"}[missing]
    clear = mq.learn.network_with_missing(mq.tally(shown, schema=THREE), CHAIN, tables=tables, prior=0.0)
    for name in CHAIN:
        assert network[name].probabilities == pytest.approx(clear[name].probabilities, abs=1e-6)
    if protocol == "revealed-vertical-counts":
        widest = {frozenset(names) for names in lines if len(names) > 1}
        assert (frozenset("abc") in widest) == (missing == "em-joint")
    if missing == "em-joint":
        # who answered b depends on c, so people who answered are biased, and EM on all variables is not
        share = network["a"].probabilities @ network["b"].probabilities[:, 1]
        true = (truth["b"] == "yes").mean()
        answered = shown["b"][shown["b"] != "not stated"]
        assert abs(share - true) < 5 * np.sqrt(0.25 / len(answered))  # false alarms below 1e-6
        assert (answered == "yes").mean() < true - 0.08
    if protocol != "vertical-without-miner":  # there each party sends its own nodes, and no shares
        assert network.missing.taken == "expected"
        assert {it.name: it.share for it in network.missing.shares} == pytest.approx(
            {name: (shown[name] == "not stated").mean() for name in CHAIN}
        )


def test_em_is_part_of_the_digest_and_needs_exact_tables_that_exist():
    text = {
        "session": "one", "protocol": "vertical-without-miner", "parties": [*OWNERS], "linking": "keyed",
        "convener": "university", "learn": {**goal("em").model_dump()},
    }  # fmt: skip
    spec = SessionSpec.model_validate(text)
    assert spec.digest != SessionSpec.model_validate(text | {"learn": goal("answered").model_dump()}).digest
    joint = text | {"learn": goal("em-joint").model_dump()}
    with pytest.raises(ValidationError, match="use missing: em"):
        SessionSpec.model_validate(joint)
    with_miner = SessionSpec.model_validate(joint | {"protocol": "vertical-with-miner"})
    # a table of all variables is needed by EM on it, and by nothing else
    assert with_miner.learn.allows("abc")
    assert not spec.learn.allows("abc")
    assert not with_miner.learn.allows("abcd")
    policies = {
        party: mq.Policy.from_dict({"masquerade": 1, "variables": dict.fromkeys(names, YES_NO)})
        for party, names in OWNERS.items()
    }
    with_miner.check(JointSchema(policies))
    disguised = {**YES_NO, "channel": {"kind": "symmetric", "p": "1/4"}}
    policies["south"] = mq.Policy.from_dict({"masquerade": 1, "variables": {"b": disguised}})
    with pytest.raises(Exception, match="'south' disguises its values") as refused:
        with_miner.check(JointSchema(policies))
    assert not isinstance(refused.value, PolicyMismatch)
    with pytest.raises(Exception, match="leave method and equivalent_size out"):
        spec.learn.learner.rehearse(THREE.schema, goal("em", equivalent_size=5).read(THREE.schema))
