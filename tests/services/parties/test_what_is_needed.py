"""What a session needs is known before anything leaves: nothing else is sent, what cannot be is refused."""

import json
from fractions import Fraction

import pytest
import yaml
from pydantic import ValidationError
from tests.e2e.test_cli_app import ok
from tests.services.parties.deployments import (
    MINER,
    OWNERS,
    TABLE_1,
    LearningGoal,
    deployed,
    people,
    split_columns,
)

import masquerade as mq
from masquerade.core.errors import InputError
from masquerade.services.parties.session import JointSchema, SessionSpec

NETWORK = {"A": [], "T": ["A"], "E": ["T"], "X": ["E"]}
GOAL = LearningGoal(model="network", structure=NETWORK)


def test_a_party_sends_what_is_needed_and_a_mistake_costs_nothing(tmp_path, monkeypatch):
    """Before, an order that missed a variable failed when every column was sent; south sent all it has."""
    plan = split_columns(people(60), TABLE_1, OWNERS, "vertical-with-miner", GOAL, seed=2, linking="keyed")
    with deployed(tmp_path, plan) as deployment:
        assert_refused(deployment, LearningGoal(model="network", order=["A", "T", "Z", "Y"]), "'Z'.*'Y'")
        assert_refused(
            deployment, LearningGoal(model="linear", target="A", features=["A", "X"]), "cannot be one of"
        )
        links = LearningGoal(model="structure", order=["A", "T"], required=["A->L"])
        assert_refused(deployment, links, "'order' must list every variable once. Look at: L")
        check, seen = SessionSpec.check, []
        monkeypatch.setattr(  # a convener that does not look
            SessionSpec, "check", lambda *given: (seen.append(1), check(*given) if len(seen) > 1 else None)
        )
        assert_refused(deployment, links, "Party 'north' refused: 'order' must list every variable once")
        monkeypatch.undo()
        consented(deployment, deployment.spec)
        model = mq.learn.BayesianNetwork.from_dict(deployment.done())
        assert set(model.structure) == set(NETWORK)
        assert {
            party: {(it.recipient, it.variables, it.gamma) for it in deployment.ledger(party) if it.policy}
            for party in OWNERS
        } == {
            "north": {(MINER, ("A",), Fraction(3)), (MINER, ("T",), None), (MINER, ("E",), Fraction(4))},
            "south": set(),
            "registry": {(MINER, ("X",), Fraction(4))},
        }
        assert deployment.ledger("south") == []  # by a shared key nothing else leaves either
        plans_say_what_is_sent(deployment)


def plans_say_what_is_sent(deployment):
    """Before consent a party is shown what the ledger has afterwards, by a command that asks nobody."""
    session, deployment_file = deployment.folder / "session.yaml", deployment.files["north"]
    shown = json.loads(ok("session", "plan", session, "--node", deployment_file, "--json").stdout)
    assert {(it["recipient"], *it["variables"], it["gamma"]) for it in shown["sends"]} == {
        (MINER, "A", "3"), (MINER, "T", None), (MINER, "E", "4"), (MINER, "(key)", None),
    }  # fmt: skip
    assert [it["before"] for it in shown["sends"] if it["variables"] == ["A"]] == [True]
    south = json.loads(ok("session", "plan", session, "--node", deployment.files["south"], "--json").stdout)
    assert (south["sends"], south["not_needed"]) == ([], ["S", "L", "B", "D"])
    told = " ".join(ok("session", "plan", session, "--node", deployment_file).stdout.split())
    assert "already has them: nothing new" in told
    assert (shown["consented"], shown["pinned"], shown["differences"]) == (True, True, [])
    assert "names this digest: only this session may run" in told
    assert f"γ spent before with {MINER} on A: 3" in told
    values = yaml.safe_load(deployment_file.read_text())
    values["consents"][0] |= {"spec": "0" * 64}
    deployment_file.write_text(yaml.safe_dump(values))
    told = " ".join(ok("session", "plan", session, "--node", deployment_file).stdout.split())
    assert "its consent differs in spec: nothing leaves" in told
    deployment_file.write_text(yaml.safe_dump({**values, "consents": []}))
    told = " ".join(ok("session", "plan", session, "--node", deployment_file).stdout.split())
    assert "has no consent to 'example'" in told
    assert "A kept with 75%, else swapped" in told


def consented(deployment, spec):
    """Make parties consent to another text, and start them again."""
    deployment.stop(*OWNERS)
    deployment.consent_to(spec)
    deployment.start(*OWNERS)


def assert_refused(deployment, goal, reason):
    """Check that a session that all consent to stops for a reason before anything has left."""
    spec = deployment.spec.model_copy(update={"learn": goal})
    consented(deployment, spec)
    status = deployment.run(spec)
    assert status["state"] == "interrupted"
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(status["reason"])
    assert [item for party in OWNERS for item in deployment.ledger(party)] == []


@pytest.mark.parametrize(
    ("told", "faults"),
    [
        (
            {"model": "tree", "criterion": "best", "target": 3, "min_suport": 1},
            ["criterion must be 'gain' or 'gain_ratio'", "target must be a text", "no option 'min_suport'"],
        ),
        (
            {"model": "network", "order": "A,B", "structure": {"A": ["Q"]}, "max_parents": 11},
            ["a structure or an order", "order must be a list", "at most 10", "the parent 'Q'"],
        ),
        ({"model": "rules", "min_support": True, "rhs": [["A"]]}, ["must be a number", "a list of items"]),
        ({"model": "structure", "tabu": -1, "required": ["A"]}, ["at least 0", "a list of links"]),
        ({"model": "linear", "scores": {"A": "x"}}, ["numbers of categories", "needs a target"]),
        ({"model": "rules", "max_rows": 3}, ["no option 'max_rows'"]),  # how a model is shown
    ],
)
def test_everything_that_is_wrong_with_a_goal_is_said_at_once(told, faults):
    with pytest.raises(ValidationError) as refused:
        LearningGoal(**told)
    for fault in faults:
        assert fault in str(refused.value)


def test_everything_that_is_wrong_between_goal_and_parties_is_said_at_once():
    spec = {
        "session": "s", "protocol": "projection", "parties": ["north", "south"], "convener": "miner",
        "linking": "keyed", "policies": {"north": "0" * 64},
        "learn": {"model": "tables", "tables": [["A", "Q"], ["R"]]},
    }  # fmt: skip
    policy = mq.Policy.clear(mq.Schema({"A": [0, 1]}))
    with pytest.raises(InputError) as refused:
        SessionSpec.model_validate(spec).check(JointSchema({"north": policy}))
    for fault in ("but 000000000000", "names 'Q'", "names 'R'", "at least two parties"):
        assert fault in str(refused.value)


def test_what_the_first_version_wrote_means_what_it_meant():
    written = {"structure": None, "order": None, "max_parents": 3, "target": None, "min_support": 0.1,
               "min_confidence": 0.6, "tables": []}  # fmt: skip
    assert LearningGoal(**written | {"model": "rules"}) == LearningGoal(model="rules")
    assert LearningGoal(model="rules").options == {"min_support": 0.1, "min_confidence": 0.6}
    assert LearningGoal(model="tree", target="A", min_support=0.1).text() == {
        **written,
        "model": "tree",
        "target": "A",
    }
