"""A tree grown on shares between services: what comes out, what left, and what ends a computation."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from pydantic import ValidationError
from tests.services.parties.deployments import (
    CLEAR,
    HELPER,
    MINER,
    OWNERS,
    SCHEMA,
    SESSION,
    LearningGoal,
    deployed,
    joined,
    people,
    split_columns,
)

import masquerade as mq
from masquerade.core.errors import InputError
from masquerade.learn.classifiers.label_tree import LabelTree
from masquerade.learn.model_file import model_of
from masquerade.services.common.state import peek_claims
from masquerade.services.parties.coordinator import Coordinator
from masquerade.services.parties.kinds.hidden_computation import MASKED
from masquerade.services.parties.kinds.hidden_tree import OPENED
from masquerade.services.parties.outflow_plan import plan_outflows
from masquerade.services.parties.session import SessionSpec
from masquerade.services.parties.session_store import RUNS

TOLD = {"target": "D", "max_depth": 2, "min_records": 5}
GOAL = LearningGoal(model="tree", significance=1, **TOLD)


def planned(n=300):
    return split_columns(people(n), CLEAR, OWNERS, "hidden-tree", GOAL, seed=4, linking="keyed")


def clear(plan):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that nodes are empty
        source = mq.tally(joined(plan), schema=SCHEMA)
        order = [name for names in OWNERS.values() for name in names if name != "D"]
        features = {"features": order, **TOLD}
        tree = mq.learn.decision_tree(source, significance=None, **features)
    return LabelTree.of(tree)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    with deployed(tmp_path_factory.mktemp("tree"), planned()) as deployment:
        yield deployment, deployment.done()


def test_three_owners_grow_the_tree_of_the_joined_records(done):
    deployment, model = done
    found, due = model_of(model), clear(deployment.plan)
    assert isinstance(found, LabelTree)
    assert found.nodes == due.nodes
    frame = joined(deployment.plan)
    assert (found.predict(frame) == due.predict(frame)).all()
    assert len(set(found.predict(frame))) > 1
    assert "no counts known" in found.summary()
    for party in OWNERS:
        kept = json.loads((deployment.settings(party).state / "models" / "example.json").read_text())
        assert kept == model


def test_what_leaves_was_told_before_consent_and_the_guarantee_bounds_what_opens(done):
    deployment, _ = done
    left = deployment.ledger("south")
    assert {(item.recipient, item.kind, item.gamma) for item in left} == {
        (MINER, MASKED, Fraction(1)),
        (MINER, OPENED, None),
    }
    told = plan_outflows(deployment.spec, deployment.settings("south"))
    for item in left:
        assert any(it.covers(item.recipient, item.kind, item.variables, item.gamma) for it in told.items)
    assert deployment.ledger(HELPER) == []
    with deployment.operator() as operator:
        text = json.dumps(operator.ask("status", {"session": SESSION})["guarantee"])
    assert "the class of every leaf, at most" in text
    assert "deals falsely" in text


def test_nothing_clear_is_in_any_message(done):
    """Records in the shared order are known to the test: neither codes nor indicators pass by."""
    deployment, _ = done
    frame = joined(deployment.plan)
    messages = [
        part for seen in deployment.seen.values() for *_, body, reply in seen for part in (body, reply)
    ]
    assert len(messages) > 50
    for name in SCHEMA:
        for column in (frame[name] == SCHEMA[name].categories[0], frame[name], frame[name] - 1):
            for kind in (np.uint8, "<u2", "<u8"):
                line = np.asarray(column).astype(kind).tobytes()[:64]
                assert not any(line in message for message in messages)


def test_who_stops_ends_the_computation_and_a_convener_shows_no_other_tree(tmp_path, monkeypatch):
    with deployed(tmp_path, planned(60)) as deployment:
        with deployment.halting("north", "computation", 4):
            assert deployment.run()["state"] == "interrupted"
        deployment.start("north")
        share = Coordinator.share

        def lying(run, model):
            leaf = {"feature": None, "branches": [], "label": 0}
            share(run, {**model, "nodes": [leaf]})

        with monkeypatch.context() as patched:
            patched.setattr(Coordinator, "share", lying)
            assert "differs from the one that this party computed" in deployment.run()["reason"]
        assert model_of(deployment.done()).nodes == clear(deployment.plan).nodes
        assert len(peek_claims(deployment.settings("south").state, RUNS)) == 2  # begun anew, not taken up


def test_trees_that_cannot_be_grown_on_shares_are_refused(tmp_path):
    text = {
        "session": "s", "protocol": "hidden-tree", "parties": ["north", "south"], "convener": "miner",
        "linking": "keyed", "helper": "helper", "learn": {"model": "tree", "target": "D", "significance": 1},
    }  # fmt: skip
    SessionSpec.model_validate(text)
    for told, fault in [
        ({"learn": {"model": "tree", "target": "D"}}, "set significance: 1"),
        ({"learn": {**text["learn"], "criterion": "gain_ratio"}}, "is ID3"),
        ({"learn": {**text["learn"], "prune": 0.25}}, "is ID3"),
        ({"learn": {"model": "structure"}}, "grows a tree, not structure"),
        ({"open_counts": ["D"]}, "neither hide_order nor open_counts"),
    ]:
        with pytest.raises(ValidationError) as refused:
            SessionSpec.model_validate(text | told)
        assert fault in str(refused.value), told
    deep = replace(planned(60), goal=LearningGoal(model="tree", target="D", significance=1, min_records=5))
    wide = mq.Schema([mq.Variable(v.name, tuple(range(1, 9))) for v in SCHEMA.variables])
    policies = {name: mq.Policy.clear(mq.Schema([wide[v] for v in own])) for name, own in OWNERS.items()}
    with deployed(tmp_path, replace(deep, policies=policies)) as deployment:
        assert "give a smaller max_depth" in deployment.run()["reason"]
        assert all(deployment.ledger(party) == [] for party in OWNERS)


def test_a_file_that_is_no_tree_is_refused():
    tree = clear(planned())
    values = tree.to_dict()
    assert LabelTree.from_dict(values).to_dict() == values
    nodes = values["nodes"]
    leaf = {"feature": None, "branches": [], "label": 0}
    for wrong in (
        {"nodes": [*nodes, leaf]},
        {"nodes": nodes[:-1]},
        {"nodes": [leaf | {"label": 9}]},
        {"nodes": [leaf | {"branches": [1]}]},
        {"nodes": [nodes[0] | {"branches": [2, 1]}, *nodes[1:]]},
        {"nodes": [nodes[0] | {"feature": "Z"}, *nodes[1:]]},
        {"n": -1},
    ):
        with pytest.raises(InputError):
            LabelTree.from_dict(values | wrong)
