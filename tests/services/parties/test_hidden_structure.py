"""A structure found on shares between services: what comes out, what left, and what ends a computation."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from math import ceil, factorial, log2

import numpy as np
import pytest
import yaml
from pydantic import ValidationError
from tests.services.parties.deployments import (
    CLEAR,
    HELPER,
    MINER,
    OWNERS,
    SCHEMA,
    SESSION,
    Deployment,
    LearningGoal,
    clear_counts,
    deployed,
    joined,
    people,
    split_columns,
    started,
)

import masquerade as mq
from masquerade.core.errors import InputError, MasqueradeError
from masquerade.data.example_networks import ELEVEN_NODES
from masquerade.learn.model_file import model_of
from masquerade.protocols.mpc.computation import Continuation, DealRequest, Turn
from masquerade.protocols.mpc.dealer_engine import HelpedEngine
from masquerade.protocols.vertical.disguised_cells import restrict_to_variables
from masquerade.protocols.wire.codec import tag_of
from masquerade.services.common.state import peek_claims
from masquerade.services.parties.coordinator import Coordinator
from masquerade.services.parties.kinds.hidden_computation import MASKED
from masquerade.services.parties.kinds.hidden_structure import HiddenStructure
from masquerade.services.parties.session import SessionSpec
from masquerade.services.parties.session_store import RUNS

KIND = "hidden-structure"
ORDER = tuple(ELEVEN_NODES)
GOAL = LearningGoal(model="structure", order=ORDER, max_parents=2, score="k2")
OF_TWO = {"north": tuple("ATESLB"), "south": tuple("XDCFG")}


def planned(owners=OF_TWO, goal=GOAL, n=300, **terms):
    plan = split_columns(people(n), CLEAR, owners, KIND, goal, seed=4, linking="keyed")
    return replace(plan, terms=terms)


def expected(plan, limit=2, score="k2", order=ORDER):
    schema = mq.Schema([SCHEMA[name] for name in order])
    source = mq.tally(joined(plan)[list(order)], schema=schema)
    return mq.learn.structure(source, order=order, max_parents=limit, score=score).structure


def parents_of(structure):
    return {name: set(parents) for name, parents in structure.items()}


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """A session of three owners that opens the counts of two families."""
    plan = planned(OWNERS, open_counts=["L", "X"])
    with deployed(tmp_path_factory.mktemp("hidden"), plan) as deployment:
        yield deployment, deployment.done()


def test_three_owners_find_the_structure_of_the_joined_records(three):
    deployment, model = three
    found = mq.learn.LearnedStructure.from_dict(model)
    assert parents_of(found.structure) == parents_of(expected(deployment.plan))
    assert found.strengths == ()
    assert "11 nodes" in found.summary()
    for party in OWNERS:
        kept = json.loads((deployment.settings(party).state / "models" / "example.json").read_text())
        assert kept == model


def test_only_agreed_counts_are_in_the_model_and_they_are_exact(three):
    deployment, model = three
    frame = joined(deployment.plan)
    tables = {tuple(item["by"]): item["counts"] for item in model["opened_counts"]}
    due = [tuple(sorted((child, *model["parents"][child]))) for child in ("L", "X")]
    assert sorted(tables) == sorted(due)
    for names, counts in tables.items():
        assert np.array_equal(counts, clear_counts(frame, names))


def test_what_leaves_is_written_down_once_before_it_does(three):
    deployment, _ = three
    left = {(item.recipient, item.kind, item.gamma) for item in deployment.ledger("south")}
    kinds = {kind for _, kind, _ in left}
    assert (MINER, MASKED, Fraction(1)) in left
    assert len(left) == len(deployment.ledger("south")) == 3
    assert any("who won every step" in kind and "bits" in kind for kind in kinds)
    assert any("exact counts of L, X" in kind for kind in kinds)
    assert deployment.ledger(HELPER) == []


def test_the_guarantee_says_who_learns_what_and_what_malicious_members_can_do(three):
    deployment, _ = three
    with deployment.operator() as operator:
        guarantee = operator.ask("status", {"session": SESSION})["guarantee"]
    told = {(item["role"], item["gamma"]) for item in guarantee["disclosures"]}
    assert {(name, None) for name in (*OWNERS, MINER, HELPER)} <= told
    text = json.dumps(guarantee)
    bits = ceil(log2(factorial(11)) + log2(factorial(10)))  # of k candidates or nobody, twice
    assert f"at most {bits} bits" in text
    assert "no count or score" in text
    assert "an owner with false records" in text
    assert "deals falsely" in text
    assert [HELPER, MINER] in guarantee["excluded_coalitions"]
    assert ["north", "south"] in guarantee["excluded_coalitions"]


def test_nothing_clear_is_in_any_message_and_nothing_is_left(three):
    """Records in the shared order are known to the test: neither codes nor indicators pass by."""
    deployment, _ = three
    frame = joined(deployment.plan)
    lines = [
        np.asarray(frame[name] == SCHEMA[name].categories[0]).astype(kind).tobytes()[:64]
        for name in SCHEMA
        for kind in (np.uint8, "<u2", "<u8")
    ]
    messages = [
        part for seen in deployment.seen.values() for *_, body, reply in seen for part in (body, reply)
    ]
    assert not [1 for line in lines for message in messages if line in message]
    for party in (*OWNERS, HELPER):
        assert json.loads(deployment.begun(party)[SESSION])["ended"] is True
    for party in OWNERS:
        assert len(deployment.nodes[party].state.burnt.values(RUNS, f"{SESSION}/".encode())) == 1


def test_with_hidden_order_the_parents_at_the_end_are_all_that_opens(tmp_path):
    few = ("A", "T", "X", "D")
    plan = planned(
        goal=LearningGoal(model="structure", order=few, max_parents=2, score="bic"), hide_order=True
    )
    with deployed(tmp_path, plan) as deployment:
        model = deployment.done()
        found = mq.learn.LearnedStructure.from_dict(model).structure
        assert parents_of(found) == parents_of(expected(plan, 2, "bic", few))
        assert "opened_counts" not in model
        with deployment.operator() as operator:
            shown = operator.ask("status", {"session": SESSION})["guarantee"]["disclosures"]
        [helper] = [item for item in shown if item["role"] == HELPER]
        assert helper["gamma"] == "1"


def test_a_network_follows_from_counts_that_all_agreed_to_open(tmp_path):
    goal = LearningGoal(model="network", order=ORDER, max_parents=1, score="k2", prior=0.5)
    plan = planned(goal=goal, open_counts=list(ORDER))
    with deployed(tmp_path, plan) as deployment:
        learnt = model_of(deployment.done())
        source = mq.tally(joined(plan), schema=SCHEMA)
        due = mq.learn.bayesian_network(source, learnt.structure, prior=0.5)
        assert parents_of(learnt.structure) == parents_of(expected(plan, 1))
        for name in ORDER:
            assert np.allclose(learnt[name].probabilities, due[name].probabilities, atol=1e-9)


def test_a_convener_that_shows_another_structure_is_refused(tmp_path, monkeypatch):
    share = Coordinator.share

    def lying(run, model):
        other = {name: [] for name in model["parents"]}
        share(run, {**model, "parents": other})

    monkeypatch.setattr(Coordinator, "share", lying)
    with deployed(tmp_path, planned(n=60)) as deployment:
        status = deployment.run()
        assert status["state"] == "interrupted"
        assert "differs from the one that this party computed" in status["reason"]
        assert not (deployment.settings("north").state / "models" / "example.json").exists()


def runs_burnt(deployment, name):
    return len(peek_claims(deployment.settings(name).state, RUNS))


@pytest.mark.parametrize(
    ("who", "after", "lost"),
    [
        pytest.param("south", 3, False, marks=pytest.mark.slow),
        ("north", 6, True),
        pytest.param(HELPER, 4, False, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_who_stops_between_rounds_ends_the_computation_and_another_has_other_masks(
    tmp_path, who, after, lost
):
    """Roles forget their keys: what was shown before a computation was cut off is of no use to the next."""
    with deployed(tmp_path, planned(n=60)) as deployment:
        with deployment.halting(who, "computation", after, lost=lost):
            status = deployment.run()
        assert status["state"] == "interrupted", status
        before = {name: shown(deployment, name) for name in OF_TWO}
        deployment.start(who)
        # no member, restarted or not, answers rounds of the old computation
        old = [
            body for body, _ in deployment.replies("north", "computation") if tag_of(body) == Continuation.TAG
        ]
        for party in OF_TWO:
            for body in (old[-1], old[0]):
                with pytest.raises(MasqueradeError):
                    deployment.say(MINER, party, "computation", body)
        model = deployment.done()
        assert parents_of(mq.learn.LearnedStructure.from_dict(model).structure) == parents_of(
            expected(deployment.plan)
        )
        for name in OF_TWO:
            assert runs_burnt(deployment, name) == 2
            again = shown(deployment, name)[len(before[name]) :]
            masked = [words for words in before[name] if len(words) > 64]
            assert masked
            assert not set(masked) & set(again)  # not one number sequence comes twice


def shown(deployment, name):
    """Return the numbers that a party showed, round by round."""
    turns = [
        Turn.decode(r) for b, r in deployment.replies(name, "computation") if tag_of(b) == Continuation.TAG
    ]
    return [turn.words for turn in turns]


def test_a_session_is_refused_with_everything_that_is_wrong_with_it():
    text = {
        "session": "s", "protocol": KIND, "parties": ["north", "south"], "convener": "miner",
        "linking": "keyed", "helper": "helper",
    }  # fmt: skip
    wrong = [
        ({"learn": {"model": "tables", "tables": [["A"]]}}, ["learns a structure, or a network"]),
        ({"learn": {"model": "structure"}}, ["needs an order"]),
        (
            {
                "learn": {"model": "structure", "order": ["A", "B"], "tabu": 3, "correction": "none"},
                "open_counts": ["Z", "Z"],
            },
            ["tabu, correction", "'Z'", "twice"],
        ),
        ({"learn": {"model": "network", "order": ["A", "B"]}, "open_counts": ["A"]}, ["has parameters"]),
        ({"learn": {"model": "structure", "order": ["A"]}, "helper": None}, ["needs a helper"]),
        (
            {"protocol": "revealed-vertical-counts", "learn": {"model": "structure"}, "hide_order": True},
            ["hides no counts"],
        ),
        (
            {
                "learn": {"model": "structure", "order": [f"v{i}" for i in range(60)], "max_parents": 3},
                "hide_order": True,
            },
            ["fewer parents"],
        ),
    ]
    for told, faults in wrong:
        with pytest.raises(ValidationError) as refused:
            SessionSpec.model_validate(text | told)
        for fault in faults:
            assert fault in str(refused.value), told
    plain = SessionSpec.model_validate(text | {"learn": {"model": "structure", "order": ["A", "B"]}})
    said = plain.model_copy(update={"open_counts": ("A",)})
    assert plain.digest != said.digest


def test_what_is_opened_is_consented_to(tmp_path):
    with deployed(tmp_path, planned(n=60)) as deployment:
        for update in ({"open_counts": ("L",)}, {"hide_order": True}):
            status = deployment.run(deployment.spec.model_copy(update=update))
            assert status["state"] == "interrupted"
            assert f"differs in {next(iter(update))}" in status["reason"]
        assert all(deployment.ledger(party) == [] for party in OF_TWO)
        with pytest.raises(MasqueradeError):  # a party may not ask the helper itself
            deployment.say("north", HELPER, "computation", DealRequest(bytes(16), b"", ()).encode())


@pytest.mark.parametrize("lie", ["counts", "nothing computed"])
def test_a_party_keeps_only_what_it_found_itself(tmp_path, monkeypatch, lie):
    """The convener changes an opened count, or shares a model before anything was computed."""
    if lie == "counts":
        share = Coordinator.share

        def lying(run, model):
            model["opened_counts"][0]["counts"][0][0] += 1
            share(run, model)

        monkeypatch.setattr(Coordinator, "share", lying)
    else:
        made_up = mq.learn.LearnedStructure(dict.fromkeys(ORDER, ()), (), "K2", {}, ORDER).to_dict()
        monkeypatch.setattr(HiddenStructure, "model", lambda _kind, _run: made_up)
    few = ("A", "T", "X")
    goal = LearningGoal(model="structure", order=few, max_parents=1, score="k2")
    with deployed(tmp_path, planned(goal=goal, n=60, open_counts=["X"])) as deployment:
        status = deployment.run()
        assert status["state"] == "interrupted"
        expected = "differs from the one that this party computed" if lie == "counts" else "computed no model"
        assert expected in status["reason"]
        for party in OF_TWO:
            assert not list((deployment.settings(party).state / "models").glob("*.json"))


def test_counts_that_open_are_answers_and_rules_of_a_consent_hold_for_them(tmp_path):
    goal = LearningGoal(model="structure", order=("E", "X"), max_parents=1, score="k2")
    owners = {"north": ("E",), "registry": ("X",)}
    policy = restrict_to_variables(CLEAR, ("E", "X"))
    plan = split_columns(people(300)[["E", "X"]], policy, owners, KIND, goal, seed=4, linking="keyed")
    deployment = Deployment(tmp_path / "nodes", replace(plan, terms={"open_counts": ["X"]}))
    deployment.consent_to(deployment.spec, openings=2)  # parents open before counts are refused
    text = deployment.files["registry"].read_text()
    values = yaml.safe_load(text)
    values["consents"][0] |= {"rules": {"protect": [["E", "X"]]}}
    deployment.files["registry"].write_text(yaml.safe_dump(values))
    with started(deployment):
        status = deployment.run()
        assert status["state"] == "interrupted"
        assert "shows cells of E × X, which must stay undetermined" in status["reason"]
        stores = {name: deployment.nodes[name].party.store for name in owners}
        assert stores["registry"].answered.entries() == []
        # north has no rules, and knows all the same what it agreed to
        [entry] = stores["north"].answered.entries()
        assert (entry.recipient, entry.queries) == (MINER, (mq.Query(by=("E", "X")),))
        deployment.stop("registry")
        deployment.files["registry"].write_text(text)
        deployment.start("registry")
        assert "opened_counts" in deployment.done()
        [entry] = deployment.nodes["registry"].party.store.answered.entries()
        assert entry.queries == (mq.Query(by=("E", "X")),)
    values["consents"][0]["open_counts"] = []
    deployment.files["registry"].write_text(yaml.safe_dump(values))
    with pytest.raises(InputError, match="no counts are opened in this session"):
        deployment.settings("registry")


def refused_by_the_third(folder):
    """Make the third of three owners refuse counts of its columns; return the messages of the others."""
    names, n = ("A", "T", "E", "X"), 300
    goal = LearningGoal(model="structure", order=names, max_parents=1, score="k2")
    owners = {"north": ("A",), "south": ("T",), "registry": ("E", "X")}
    frame = people(n)[list(names)]
    plan = split_columns(
        frame, restrict_to_variables(CLEAR, names), owners, KIND, goal, seed=4, linking="keyed"
    )
    deployment = Deployment(folder / "nodes", replace(plan, terms={"open_counts": ["X"]}))
    values = yaml.safe_load(deployment.files["registry"].read_text())
    values["consents"][0] |= {"rules": {"protect": [["E", "X"]]}}
    deployment.files["registry"].write_text(yaml.safe_dump(values))
    with started(deployment):
        status = deployment.run()
        assert "which must stay undetermined" in status["reason"]
        shares = [np.frombuffer(shown(deployment, name)[-1], dtype="<u2") for name in ("north", "south")]
    return shares, clear_counts(frame, ("E", "X")).ravel(), (1 << n.bit_length()) - 1


def test_without_waiting_for_all_a_convener_reads_counts_that_the_third_owner_refuses(tmp_path, monkeypatch):
    """The first two owners hold all shares, and showed them in the round in which the third refused."""

    def at_once(_engine):
        yield from ()

    monkeypatch.setattr(HelpedEngine, "wait_for_all", at_once)
    shares, counts, low = refused_by_the_third(tmp_path)
    assert ((shares[0] + shares[1]) & low).tolist() == counts.tolist()


def test_what_the_third_owner_refuses_does_not_open(tmp_path):
    shares, _, _ = refused_by_the_third(tmp_path)
    assert [len(share) for share in shares] == [0, 0]
