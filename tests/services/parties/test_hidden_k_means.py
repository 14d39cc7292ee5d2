"""Clusters found on shares between services: what comes out, what left, and what ends a computation."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError
from tests.services.parties.deployments import (
    HELPER,
    MINER,
    SESSION,
    LearningGoal,
    deployed,
    split_columns,
    split_rows,
)

import masquerade as mq
from masquerade.core.errors import MasqueradeError
from masquerade.protocols.mpc import record_order
from masquerade.protocols.mpc.computation import Continuation, Turn
from masquerade.protocols.mpc.guarantee import HELD_CELLS
from masquerade.protocols.mpc.record_order import PlaceOffer
from masquerade.protocols.wire.codec import tag_of
from masquerade.services.common.state import peek_claims
from masquerade.services.parties.coordinator import Coordinator
from masquerade.services.parties.example import split_cells
from masquerade.services.parties.kinds.hidden_computation import MASKED
from masquerade.services.parties.outflow_plan import plan_outflows
from masquerade.services.parties.session import SessionSpec
from masquerade.services.parties.session_store import RUNS

KIND = "hidden-k-means"
NAMES = ("length", "width", "weight")
OWNERS = {"north": ("length",), "south": ("width", "weight")}
START = [[2, 2, 8], [8, 7, 3], [5, 5, 5]]
SCHEMA = mq.Schema([mq.Variable(name, tuple(range(12))) for name in NAMES])
POLICY = mq.Policy.clear(SCHEMA)


def people(n=90, seed=3):
    """Return three groups of people that overlap a little."""
    generator = np.random.default_rng(seed)
    middles = np.array([[2, 3, 9], [8, 8, 2], [6, 4, 6]])
    drawn = np.rint(middles[generator.integers(0, 3, n)] + generator.normal(0, 1.2, (n, 3)))
    return pd.DataFrame(drawn.clip(0, 11).astype(int), columns=NAMES)


def planned(partition="cells", start=START, frame=None, **clusters):
    frame = people() if frame is None else frame
    goal = LearningGoal(model="k-means", k=3, names=NAMES, **({} if start is None else {"start": start}))
    if partition == "rows":
        made = replace(split_rows(frame, POLICY, tuple(OWNERS), goal, seed=1), protocol=KIND)
    elif partition == "columns":
        made = split_columns(frame, POLICY, OWNERS, KIND, goal, seed=1, linking="keyed")
    else:
        made = replace(split_cells(frame, POLICY, OWNERS, goal, seed=1), protocol=KIND)
    return replace(made, linking="keyed", terms={"clusters": clusters} if clusters else {})


def assert_clear(model, frame, start=START):
    """Compare with the clear learner; what is not opened is not there."""
    due = mq.learn.k_means(mq.tally(frame, schema=SCHEMA), 3, NAMES, start=start)
    found = mq.learn.Clusters.from_dict(model)
    assert np.allclose(found.centres, due.centres, rtol=0, atol=1e-12)
    assert np.allclose(found.shares, due.shares, rtol=0, atol=1e-12)
    assert np.allclose(found.share_stderr, due.share_stderr, rtol=0, atol=1e-9)
    assert (found.centre_stderr, found.within, found.n) == (None, None, len(frame))


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """Clusters of cells that lie anywhere, every step open."""
    with deployed(tmp_path_factory.mktemp("means"), planned(least_size=3)) as deployment:
        yield deployment, deployment.done()


def test_clusters_of_scattered_cells_are_those_of_the_joined_records(done):
    deployment, model = done
    assert_clear(model, people())
    assert model["computation"]["steps"] > 2
    assert model["computation"]["centres_unknown"] == 0
    assert "3 clusters of 90 records" in mq.learn.Clusters.from_dict(model).summary()
    for party in OWNERS:
        assert json.loads((deployment.settings(party).state / "models" / "example.json").read_text()) == model


def test_what_leaves_is_written_down_and_was_told_before_consent(done):
    deployment, _ = done
    left = deployment.ledger("south")
    assert {item.recipient for item in left} == {MINER}
    kinds = {item.kind: item.gamma for item in left}
    assert kinds[MASKED] == Fraction(1)
    assert HELD_CELLS in kinds
    assert any("centres and sizes of clusters of at least 3 records after each" in kind for kind in kinds)
    told = plan_outflows(deployment.spec, deployment.settings("south"))
    for item in left:
        assert any(it.covers(item.recipient, item.kind, item.variables, item.gamma) for it in told.items)
    assert deployment.ledger(HELPER) == []


def test_the_guarantee_says_what_rounds_tell_and_what_malicious_members_can_do(done):
    deployment, _ = done
    with deployment.operator() as operator:
        text = json.dumps(operator.ask("status", {"session": SESSION})["guarantee"])
    for words in (
        "the difference of two steps is about the records that moved",
        "an owner with false records",
        "deals falsely",
        "a record has cells of two pseudonyms, ends the computation",
        HELD_CELLS,
    ):
        assert words in text


def test_nothing_clear_is_in_any_message(done):
    """Whole columns in the common order are known to the test: none passes by as numbers."""
    deployment, _ = done
    offers = {
        party: PlaceOffer.decode(body)
        for party in OWNERS
        for body, _ in deployment.replies(party, "places")
        if tag_of(body) == PlaceOffer.TAG
    }
    assert {offer.records for offer in offers.values()} == {90}
    messages = [
        part for seen in deployment.seen.values() for *_, body, reply in seen for part in (body, reply)
    ]
    table = people().to_numpy()
    for kind in (np.uint8, "<u4", "<u8", "<i8"):
        for column in table.T:
            line = np.asarray(column).astype(kind).tobytes()[:64]
            assert not any(line in message for message in messages)
    for party in OWNERS:
        assert len(deployment.nodes[party].state.burnt.values(RUNS, f"{SESSION}/".encode())) == 1


@pytest.mark.parametrize(
    ("partition", "clusters"),
    [
        ("rows", {"hide_steps": True, "steps": 8, "least_size": 3}),
        pytest.param("columns", {"least_size": 3}, marks=pytest.mark.slow),
    ],
)
def test_any_partition_gives_the_clear_clusters(tmp_path, partition, clusters):
    with deployed(tmp_path, planned(partition, **clusters)) as deployment:
        model = deployment.done()
        assert_clear(model, people())
        with deployment.operator() as operator:
            shown = operator.ask("status", {"session": SESSION})["guarantee"]["disclosures"]
        [helper] = [item for item in shown if item["role"] == HELPER]
        assert helper["gamma"] == ("1" if "hide_steps" in clusters else None)


def test_from_records_that_nobody_knows_steps_end_where_nothing_moves(tmp_path):
    frame = people(60)
    with deployed(tmp_path, planned("rows", None, frame, draw_start=True, least_size=1)) as deployment:
        found = mq.learn.Clusters.from_dict(deployment.done())
    source, k = mq.tally(frame, schema=SCHEMA), len(found.shares)
    again = mq.learn.k_means(source, k, NAMES, start=found.centres)
    assert k >= 2
    assert np.allclose(again.centres, found.centres, rtol=0, atol=1e-12)
    assert np.allclose(again.shares, found.shares, rtol=0, atol=1e-12)


def test_who_stops_between_rounds_ends_the_computation_and_another_begins_anew(tmp_path):
    with deployed(tmp_path, planned(least_size=3)) as deployment:
        with deployment.halting("south", "computation", 5, lost=True):
            status = deployment.run()
        assert status["state"] == "interrupted", status
        turns = [turn for _, turn in deployment.replies("north", "computation") if tag_of(turn) == Turn.TAG]
        files = (deployment.settings("north").state).glob("state.sqlite*")
        on_disk = b"".join(file.read_bytes() for file in files)
        assert b"computation" in on_disk  # that they were given, and nothing else of them
        assert turns
        assert not any(turn[-64:] in on_disk for turn in turns)
        deployment.start("south")
        old = [b for b, _ in deployment.replies("north", "computation") if tag_of(b) == Continuation.TAG]
        for party in OWNERS:
            with pytest.raises(MasqueradeError):
                deployment.say(MINER, party, "computation", old[-1])
        assert_clear(deployment.done(), people())
        for party in OWNERS:
            assert len(peek_claims(deployment.settings(party).state, RUNS)) == 2


def test_a_convener_that_adds_records_or_shows_other_clusters_is_refused(tmp_path, monkeypatch):
    """With made-up records at a centre a cluster of one would be large enough to be opened."""
    share, order = Coordinator.share, record_order._places

    def padded(blocks):
        found, n = order(blocks)
        return found, n + 20

    def lying(run, model):
        share(run, {**model, "centres": [[0.0] * 3] * 3})

    with deployed(tmp_path, planned(least_size=3)) as deployment:
        with monkeypatch.context() as patched:
            patched.setattr(record_order, "_places", padded)
            patched.setattr(record_order, "_check_cells", lambda *_: None)
            status = deployment.run()
            assert status["state"] == "interrupted"
            assert "The order of the records is false" in status["reason"]
        monkeypatch.setattr(Coordinator, "share", lying)
        status = deployment.run()
        assert status["state"] == "interrupted"
        assert "differs from the one that this party computed" in status["reason"]


def test_cells_that_nobody_or_two_have_end_a_session_before_anything_is_computed(tmp_path):
    plan = planned("columns")
    fewer = {**plan.frames, "north": [plan.frames["north"][0].iloc[2:]]}
    with deployed(tmp_path, replace(plan, frames=fewer)) as deployment:
        status = deployment.run()
        assert status["state"] == "interrupted"
        assert "No owner has 'length' of 2 people" in status["reason"]
        assert not any(item.kind == MASKED for item in deployment.ledger("south"))


def test_what_opens_is_consented_to_and_sessions_that_mean_nothing_are_refused(tmp_path):
    with deployed(tmp_path, planned(least_size=3)) as deployment:
        other = deployment.spec.model_copy(
            update={"clusters": deployment.spec.clusters.model_copy(update={"least_size": 2})}
        )
        status = deployment.run(other)
        assert "differs in clusters" in status["reason"]
        assert all(deployment.ledger(party) == [] for party in OWNERS)
    text = deployment.spec.model_dump(mode="json")
    for told, fault in [
        ({"learn": {"model": "k-means", "k": 3}}, "starts either with the centres in start or"),
        ({"clusters": {"draw_start": True}}, "starts either with the centres in start or"),
        ({"learn": {"model": "tables", "tables": [["A"]]}}, "learns k-means clusters, not tables"),
        ({"hide_order": True}, "neither hide_order nor open_counts"),
        ({"convener": "north"}, "must not be a party"),
        ({"clusters": {"steps": 0}}, "greater than or equal to 1"),
        ({"protocol": "arbitrary-with-miner", "helper": None}, "finds no clusters"),
        ({"learn": {"model": "k-means", "k": 3, "start": [["a"]]}}, "a list of lists of numbers"),
    ]:
        with pytest.raises(ValidationError) as refused:
            SessionSpec.model_validate(text | told)
        assert fault in str(refused.value), told
