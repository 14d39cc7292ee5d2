"""Every protocol between organisations as services: what comes out, what left, and what is gone afterwards.

That Model I's errors are on average no larger than Model II's is shown in tests/unit/protocols/vertical.
"""

from __future__ import annotations

import json
import time
import warnings
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from tests.services.parties.deployments import (
    CLEAR,
    HELPER,
    MINER,
    OWNERS,
    SCHEMA,
    SECONDS,
    TABLE_1,
    DeploymentPlan,
    LearningGoal,
    clear_counts,
    deployed,
    joined,
    people,
    split_columns,
    split_rows,
)

import masquerade as mq
from masquerade.data.example_networks import ELEVEN_NODES
from masquerade.protocols.vertical.disguised_cells import (
    CellDescription,
    DisguisedCells,
    restrict_to_variables,
    schema_of,
)
from masquerade.protocols.vertical.paillier_products import KeyOwner
from masquerade.protocols.wire.arrow_stream import unpack
from masquerade.protocols.wire.codec import tag_of
from masquerade.services.parties.example import split_cells, two_hospitals_and_a_registry
from masquerade.services.parties.kinds.any_cells_without_miner import RESULTS as BY_STRATUM
from masquerade.services.parties.outflow_plan import plan_outflows

LOCAL = [  # nodes whose parents are all with their own party
    name for names in OWNERS.values() for name in names if set(ELEVEN_NODES[name]) <= set(names)
]
TABLES = (("A",), ("T", "E"), ("S", "L", "B"), ("E", "X", "D"))
ORDER = tuple(ELEVEN_NODES)
# larger errors have probability 2e-9 each, in all below 1e-6
DEVIATIONS = 6.0
# what turned up as each other's: sums and roundings in another order
CLOSE = 1e-9


def tables_of(model):
    return {tuple(item["by"]): item for item in model["tables"]}


def assert_exact(model, frame, tables):
    found = tables_of(model)
    assert set(found) == set(tables)
    for by in tables:
        assert np.array_equal(found[by]["values"], clear_counts(frame, by)), by
        assert found[by]["n"] == len(frame)


def assert_same_parameters(learnt, exact, names=ELEVEN_NODES):
    for name in names:
        assert np.allclose(
            learnt[name].probabilities, exact[name].probabilities, atol=CLOSE, equal_nan=True
        ), name


def parents_of(structure):
    """Return parents without their order, which depends on that of the variables."""
    return {name: set(parents) for name, parents in structure.items()}


def left(deployment, party):
    """Return the releases of a party: recipient, kind, variables and γ."""
    return {
        (item.recipient, item.kind, item.variables, item.gamma)
        for item in deployment.ledger(party)
        if item.session == "example" and item.protocol == deployment.spec.protocol
    }


def linking(recipient):
    """Return the outflows of a private set intersection."""
    return {
        (recipient, "keys under secret masks", ("(key)",), Fraction(1)),
        (recipient, "pseudonyms of records, which tell who is common", ("(key)",), None),
    }


def pseudonyms_sent(deployment, party):
    """Return the pseudonyms under which a party sent cells."""
    policy = deployment.plan.policies[party]
    shapes, found = [], set()
    for _, reply in deployment.replies(party, "cells"):
        if tag_of(reply) == CellDescription.TAG:
            described = CellDescription.decode(reply)
            policy, shapes = described.policy, described.shapes
        else:
            for block, shape in zip(DisguisedCells.decode(reply).blocks, shapes, strict=True):
                schema = schema_of(shape.names, policy)
                batch = unpack(block, most_bytes=1 << 24, most_rows=10**6, schema=schema)
                found |= set(batch.column(0).to_pylist())
    return found


def assert_forgotten(deployment):
    """Nothing that names a record of the session is in a node's notes, or in the miner's files."""
    tags = set().union(*(pseudonyms_sent(deployment, party) for party in deployment.spec.parties))
    for name, node in deployment.nodes.items():
        if name in deployment.spec.members:
            assert list(deployment.begun(name)) == ["example"]
            assert json.loads(deployment.begun(name)["example"])["ended"] is True
        notes = [
            bytes(value)
            for (value,) in node.state._store.run("SELECT value FROM notes")  # whatever their scope
        ]
        notes += [bytes(reply) for (reply,) in node.state._store.run("SELECT reply FROM replies") if reply]
        assert not [tag for tag in tags for note in notes if tag in note]
        state = deployment.settings(name).state
        assert not list((state / "joined").glob("*"))
        kept = [path.read_bytes() for path in state.rglob("*") if path.is_file()]
        assert not [tag for tag in tags for data in kept if tag in data]
    return tags


def assert_as_planned(deployment, party):
    """Every release is covered by the plan that the party saw in advance."""
    settings = deployment.settings(party)
    plan = plan_outflows(deployment.spec, settings)
    assert plan.consented
    assert not plan.differences
    own = {"(key)", *plan.policy.schema}
    for recipient, kind, variables, gamma in left(deployment, party):
        told = [name for name in variables if name in own]
        assert any(item.covers(recipient, kind, told, gamma) for item in plan.items), (recipient, kind, told)


def assert_shared(deployment, model):
    """Every party has the model, every ledger is in order and has nothing that was not planned."""
    for party in deployment.spec.parties:
        assert_as_planned(deployment, party)
        text = (deployment.settings(party).state / "models" / "example.json").read_text()
        assert json.loads(text) == model
        deployment.nodes[party].ledger.entries()


def test_pooled_counts_are_those_of_all_rows(tmp_path):
    frame = people(300)
    plan = split_rows(frame, CLEAR, tuple(OWNERS), LearningGoal(model="tables", tables=TABLES), seed=2)
    with deployed(tmp_path, plan) as deployment:
        model = deployment.done()
        assert_exact(model, frame, TABLES)
        assert_shared(deployment, model)
        kind = "counts under masks that cancel in the sum"
        for party in OWNERS:
            found = left(deployment, party)
            assert {(to, what, gamma) for to, what, _, gamma in found} == {(MINER, kind, None)}
            assert {name for _, _, names, _ in found for name in names} == set().union(*TABLES)
            rows = {item.rows for item in deployment.ledger(party)}
            assert rows == {len(plan.frames[party][0])}


def test_pooled_reports_spend_what_their_channels_do(tmp_path):
    frame = people(600)
    plan = split_rows(
        frame, TABLE_1, tuple(OWNERS), LearningGoal(model="tables", tables=(("A", "T"),)), seed=2
    )
    with deployed(tmp_path, plan) as deployment:
        found = tables_of(deployment.done())["A", "T"]
        errors = np.abs(np.array(found["values"]) - clear_counts(frame, ("A", "T")))
        assert np.all(errors <= DEVIATIONS * np.array(found["stderr"]))
        of_reports = {item for item in left(deployment, "north") if item[2] == ("A",)}
        assert {gamma for *_, gamma in of_reports} == {Fraction(3)}


@pytest.fixture(scope="module")
def with_a_miner(tmp_path_factory):
    plan = split_columns(
        people(500),
        TABLE_1,
        OWNERS,
        "vertical-with-miner",
        LearningGoal(model="tables", tables=(("S", "T", "G"), ("A", "X"), ("E", "L"), ("F", "C"))),
        seed=2,
    )
    with deployed(tmp_path_factory.mktemp("miner"), plan) as deployment:
        yield deployment, deployment.done()


def test_a_miner_counts_clear_variables_exactly_and_disguised_ones_within_their_errors(with_a_miner):
    deployment, model = with_a_miner
    frame, found = joined(deployment.plan), tables_of(model)
    assert 0 < len(frame) < 500
    assert np.allclose(found["S", "T", "G"]["values"], clear_counts(frame, ("S", "T", "G")), atol=CLOSE)
    for by in (("A", "X"), ("E", "L"), ("F", "C")):
        errors = np.abs(np.array(found[by]["values"]) - clear_counts(frame, by))
        assert np.all(errors <= DEVIATIONS * np.array(found[by]["stderr"])), by
        assert np.max(errors) > CLOSE, by  # they did go through a channel


def test_a_miner_gets_reports_and_forgets_whose_they_are(with_a_miner):
    deployment, model = with_a_miner
    rows = len(joined(deployment.plan))
    assert_shared(deployment, model)
    tags = assert_forgotten(deployment)
    assert len(tags) == rows
    assert left(deployment, "north") == linking(MINER) | {
        (MINER, "disguised values", ("A",), Fraction(3)),
        (MINER, "disguised values", ("E",), Fraction(4)),
        (MINER, "clear values", ("T",), None),
    }
    cells = [item for item in deployment.ledger("south") if item.policy is not None]
    assert {item.rows for item in cells} == {rows}
    whole = deployment.plan.policies["south"]
    assert {item.policy for item in cells} == {restrict_to_variables(whole, ("S", "L")).id}
    assert deployment.ledger(MINER) == []


def test_the_operator_is_told_who_learnt_what(with_a_miner):
    deployment, _ = with_a_miner
    with deployment.operator() as operator:
        guarantee = operator.ask("status", {"session": "example"})["guarantee"]
    learnt = {
        (item["role"], item["kind"], *item["variables"]): item["gamma"] for item in guarantee["disclosures"]
    }
    assert learnt[MINER, "disguised values", "A"] == "3"
    assert learnt[MINER, "clear values", "T", "S", "G"] is None
    assert ("north", "which of its own records all parties have, and set sizes", "keys") in learnt
    assert [MINER, "north"] in guarantee["excluded_coalitions"]


def test_without_a_miner_local_nodes_are_exact_and_only_cross_parents_cross(tmp_path):
    goal = LearningGoal(model="network", structure=ELEVEN_NODES)
    plan = split_columns(people(400), TABLE_1, OWNERS, "vertical-without-miner", goal, seed=3)
    with deployed(tmp_path, plan) as deployment:
        model = deployment.done()
        learnt = mq.learn.BayesianNetwork.from_dict(model)
        clear = mq.learn.bayesian_network(mq.tally(joined(plan), schema=SCHEMA), ELEVEN_NODES)
        assert_same_parameters(learnt, clear, LOCAL)
        assert all(
            np.any(learnt[name].probabilities != clear[name].probabilities)
            for name in ELEVEN_NODES
            if name not in LOCAL
        )
        assert_shared(deployment, model)
        assert_forgotten(deployment)
        # E of north is a parent of X (registry) and of D (south); its A and T are nobody else's parents
        to_parties = {item for item in left(deployment, "north") if item[0] != MINER}
        assert to_parties == {
            (party, "disguised values", ("E",), Fraction(4)) for party in ("south", "registry")
        }
        told = {item[1] for item in left(deployment, "north") - linking(MINER) if item[0] == MINER}
        assert told == {"parameters of own nodes"}
        assert not deployment.replies(MINER, "cells")


def test_without_a_miner_parties_find_the_structure_of_the_joined_records(tmp_path):
    goal = LearningGoal(model="network", order=ORDER, max_parents=2)
    plan = split_columns(people(400), CLEAR, OWNERS, "vertical-without-miner", goal, seed=3)
    with deployed(tmp_path, plan) as deployment:
        learnt = mq.learn.BayesianNetwork.from_dict(deployment.done())
        clear = mq.tally(joined(plan), schema=SCHEMA)
        expected = mq.learn.structure(clear, order=ORDER, max_parents=2).structure
        assert parents_of(learnt.structure) == parents_of(expected)
        assert_same_parameters(learnt, mq.learn.bayesian_network(clear, learnt.structure))


def test_the_example_with_cells_anywhere_counts_everybody(tmp_path):
    with deployed(tmp_path, two_hospitals_and_a_registry("arbitrary-with-miner", 120)) as deployment:
        status = deployment.run()
        assert (status["state"], status["records"]) == ("done", 120)


def test_cells_anywhere_make_one_table(tmp_path):
    """The first half of A is at north, the rest at south, in two files of its own; S is spread as well."""
    keyed = people(600).assign(person=[f"P{i:06d}" for i in range(600)])
    first, second = keyed.iloc[:300], keyed.iloc[300:].sample(frac=1, random_state=5)
    frames = {
        "north": [first[["person", "A", "T"]], second[["person", "T", "S"]]],
        "south": [second[["person", "A"]], first[["person", "S"]], keyed[["person", "G", "E"]]],
    }
    policies = {
        party: restrict_to_variables(
            TABLE_1, {name for frame in listed for name in frame if name != "person"}
        )
        for party, listed in frames.items()
    }
    goal = LearningGoal(model="tables", tables=(("S", "T", "G"), ("A", "T"), ("A", "E")))
    plan = DeploymentPlan("arbitrary-with-miner", frames, policies, "person", goal, "intersection")
    with deployed(tmp_path, plan) as deployment:
        model = deployment.done()
        found = tables_of(model)
        exact = clear_counts(keyed, ("S", "T", "G"))
        assert np.allclose(found["S", "T", "G"]["values"], exact, atol=CLOSE)
        for by in (("A", "T"), ("A", "E")):
            errors = np.abs(np.array(found[by]["values"]) - clear_counts(keyed, by))
            assert np.all(errors <= DEVIATIONS * np.array(found[by]["stderr"])), by
        assert_shared(deployment, model)
        assert len(assert_forgotten(deployment)) == 600
        kinds = {(kind, names) for _, kind, names, _ in left(deployment, "north") - linking(MINER)}
        assert ("disguised values", ("A",)) in kinds


def polled(deployment, name):
    """Wait until a caller was told that a node is still working on its message."""
    registry = deployment._services[name].metrics.registry
    told = {"place": "sessions/{session}/{role}", "status": "504"}
    until = time.monotonic() + SECONDS
    while not registry.get_sample_value("masquerade_requests_total", told):
        assert time.monotonic() < until
        time.sleep(0.01)


OF_TWO = {"north": tuple("ATESLB"), "south": tuple("XDCFG")}


@pytest.mark.parametrize(
    ("protocol", "owners"), [("revealed-vertical-counts", OWNERS), ("projection", OF_TWO)]
)
def test_k2_over_columns_of_several_finds_the_structure_of_the_joined_table(protocol, owners, tmp_path):
    goal = LearningGoal(model="network", order=ORDER, max_parents=2)
    n = 800 if protocol == "projection" else 260  # owners send one column for ten records
    plan = split_columns(people(n), CLEAR, owners, protocol, goal, seed=4)
    with deployed(tmp_path, plan) as deployment:
        learnt = mq.learn.BayesianNetwork.from_dict(deployment.done())
        clear = mq.tally(joined(plan), schema=SCHEMA)
        expected = mq.learn.structure(clear, order=ORDER, max_parents=2).structure
        assert parents_of(learnt.structure) == parents_of(expected)
        assert_same_parameters(learnt, mq.learn.bayesian_network(clear, learnt.structure))
        assert_forgotten(deployment)
        unbounded = {kind for _, kind, _, gamma in left(deployment, "south") if gamma is None}
        assert "exact counts" in unbounded  # of questions about its own variables alone
        if protocol == "projection":
            assert "columns turned by a rotation unknown to the receiver" in unbounded
        else:
            assert "a share of exact counts" in unbounded
            assert deployment.ledger(HELPER) == []


@pytest.mark.parametrize(
    ("protocol", "tables"),
    [
        ("revealed-vertical-counts", (("A",), ("A", "S"), ("A", "T", "E"), ("E", "S", "X"), ("T", "L", "B"))),
        ("projection", (("A",), ("A", "S"), ("A", "T", "E"), ("T", "L", "B"), ("L", "D", "C", "G"))),
    ],
)
def test_counts_over_columns_of_three_are_exact(protocol, tables, tmp_path):
    plan = split_columns(
        people(300), CLEAR, OWNERS, protocol, LearningGoal(model="tables", tables=tables), seed=4
    )
    with deployed(tmp_path, plan) as deployment:
        model = deployment.done()
        assert_exact(model, joined(plan), tables)
        assert_shared(deployment, model)


def test_a_question_that_projections_cannot_answer_interrupts_with_the_reason(tmp_path):
    goal = LearningGoal(model="tables", tables=(("A", "S", "X"),))
    plan = split_columns(people(40), CLEAR, OWNERS, "projection", goal, seed=4)
    with deployed(tmp_path, plan) as deployment:
        status = deployment.run()
        assert status["state"] == "interrupted"
        assert "combine columns of two owners only" in status["reason"]


def test_two_parties_count_without_a_helper_however_long_encrypting_takes(tmp_path, monkeypatch):
    """Earlier, a caller gave up when the other's time was over, just before it was told to wait."""
    owners = {"north": ("A", "T"), "south": ("S", "L")}
    tables = (("A", "S"), ("A", "T", "S"))
    frame = people(60)[["A", "T", "S", "L"]]
    plan = split_columns(frame, restrict_to_variables(CLEAR, tuple("ATSL")), owners, "revealed-counts-of-two",
                    LearningGoal(model="tables", tables=tables), seed=4)  # fmt: skip
    with deployed(tmp_path, plan, retries=0, limits={"seconds": 4}) as deployment:
        encrypt = KeyOwner._encrypt
        monkeypatch.setattr(
            KeyOwner, "_encrypt", lambda owner, asked: (polled(deployment, "south"), encrypt(owner, asked))[1]
        )
        model = deployment.done()
        whole = pd.concat([frames[0].set_index("person") for frames in plan.frames.values()], axis=1).dropna()
        assert_exact(model, whole.astype(int), tables)
        assert_shared(deployment, model)


def test_parties_with_a_shared_key_are_linked_by_it(tmp_path):
    plan = split_columns(
        people(300),
        TABLE_1,
        OWNERS,
        "vertical-with-miner",
        LearningGoal(model="tables", tables=(("S", "T", "G"),)),
        seed=2,
        linking="keyed",
    )
    with deployed(tmp_path, plan) as deployment:
        model = deployment.done()
        found = tables_of(model)["S", "T", "G"]
        assert np.allclose(found["values"], clear_counts(joined(plan), ("S", "T", "G")), atol=CLOSE)
        assert len(assert_forgotten(deployment)) == 300
        [told] = [kind for _, kind, names, _ in left(deployment, "north") if names == ("(key)",)]
        assert "pseudonyms" in told  # they leave with the cells


def test_parties_with_other_keys_or_other_people_do_not_come_together(tmp_path):
    plan = split_columns(
        people(50),
        TABLE_1,
        OWNERS,
        "vertical-with-miner",
        LearningGoal(model="tables", tables=(("S", "T", "G"),)),
        seed=2,
        linking="keyed",
    )
    with deployed(tmp_path, plan) as deployment:
        key = deployment.settings("south").data.linking_key
        key.write_bytes(bytes(32))
        status = deployment.run()
        assert status["state"] == "interrupted"
        assert "do not have the same records" in status["reason"]
        assert not [item for party in OWNERS for item in deployment.ledger(party)]


@pytest.mark.parametrize(
    "told",
    [
        {"model": "naive-bayes", "target": "G", "alpha": 2.0},
        {"model": "tree", "target": "G", "significance": 0.2, "max_depth": 2},
        {"model": "linear", "target": "G", "features": ["C", "F"], "loss": "logistic"},
        {"model": "rules", "min_support": 0.3, "rhs": ["G"]},
        {"model": "structure", "score": "aic", "correction": "none", "max_parents": 2},
        {"model": "network", "order": list(ORDER), "score": "k2", "prior": 0.5, "max_parents": 2},
    ],
    ids=lambda told: told["model"],
)
def test_other_models_come_out_as_their_learners_make_them(told, tmp_path):
    """Every option that a learner has stands in a session's file, and does there what it does elsewhere."""
    frame, goal = people(200), LearningGoal(**told)
    plan = split_rows(frame, CLEAR, tuple(OWNERS), goal, seed=2)
    with deployed(tmp_path, plan) as deployment:
        model = deployment.done()
        needed = mq.Schema([SCHEMA[name] for name in goal.needed_variables(SCHEMA)])
        source = mq.tally(frame[list(needed)], schema=needed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = goal.learner.fit(source, goal.read(needed)).to_dict()
        assert alike(model, json.loads(json.dumps(expected)))
        assert_shared(deployment, model)


def alike(one, other):
    """Return True if plain values are equal up to rounding of sums in a different order."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, float) or isinstance(other, float):
        return bool(np.isclose(one, other, rtol=1e-6, atol=CLOSE, equal_nan=True))
    return one == other


@pytest.mark.parametrize(
    "told",
    [
        {"model": "naive-bayes", "target": "E"},
        {"model": "tree", "target": "E", "max_depth": 2, "features": ["T", "X", "D"]},
        {"model": "rules", "min_support": 0.3, "max_len": 2},
        {"model": "k-means", "k": 2, "names": ["T", "X", "S"]},
    ],
    ids=lambda told: told["model"],
)
def test_without_a_miner_other_models_are_those_of_the_joined_records(told, tmp_path):
    goal = LearningGoal(**told)
    plan = split_columns(people(120), CLEAR, OWNERS, "vertical-without-miner", goal, seed=3, linking="keyed")
    with deployed(tmp_path, plan) as deployment:
        model = deployment.done()
        names = goal.needed_variables([name for own in OWNERS.values() for name in own])
        schema = mq.Schema([SCHEMA[name] for name in names])
        expected = goal.learner.fit(mq.tally(joined(plan)[list(names)], schema=schema), goal.read(schema))
        assert alike(model, json.loads(json.dumps(expected.to_dict())))
        assert_shared(deployment, model)
        if told["model"] == "naive-bayes":  # of a class and a feature the class crosses
            crossed = {(it.recipient, it.variables) for it in deployment.ledger("north") if it.policy}
            assert crossed == {(party, ("E",)) for party in ("south", "registry")}
            assert not [it for party in ("south", "registry") for it in deployment.ledger(party) if it.policy]
            kinds = {(it.kind, it.gamma) for it in deployment.ledger("south") if it.recipient == MINER}
            assert kinds == {("counts of own columns beside others' reports", None)}


@pytest.mark.parametrize(
    "told",
    [{"model": "naive-bayes", "target": "E"}, {"model": "network", "structure": ELEVEN_NODES}],
    ids=lambda told: told["model"],
)
def test_with_cells_anywhere_and_no_miner_models_are_those_of_all_cells(told, tmp_path):
    """Each of three parties has its own columns of half of the people, and its neighbour's of the others."""
    goal, frame = LearningGoal(**told), people(160)
    plan = replace(split_cells(frame, CLEAR, OWNERS, goal, seed=3), protocol="arbitrary-without-miner")
    plan = replace(plan, linking="keyed")
    with deployed(tmp_path, plan) as deployment:
        model = deployment.done()
        expected = goal.learner.fit(mq.tally(frame, schema=SCHEMA), goal.read(SCHEMA)).to_dict()
        assert alike(*map(probabilities_of, (model, json.loads(json.dumps(expected)))))
        assert_shared(deployment, model)
        assert_forgotten(deployment)
        kinds = {(it.kind, it.recipient) for it in deployment.ledger("north") if it.policy is None}
        assert (BY_STRATUM, MINER) in kinds
        assert not deployment.replies(MINER, "cells")


def probabilities_of(model):
    """Return the probabilities of a model by variable; parties have an order of their own."""
    if "nodes" in model:
        return {node["variable"]["name"]: node["probabilities"] for node in model["nodes"]}
    return {part["name"]: part["probabilities"] for part in (model["target"], *model["features"])}
