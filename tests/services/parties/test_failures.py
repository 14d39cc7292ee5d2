"""Nodes that stop in the middle of a session: messages, stored state, and no second draws."""

from __future__ import annotations

import json
import shutil
from collections import Counter

import numpy as np
import pytest
from tests.services.parties.deployments import (
    CLEAR,
    MINER,
    OWNERS,
    SCHEMA,
    SESSION,
    TABLE_1,
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
    CellRequest,
    DisguisedCells,
    restrict_to_variables,
    schema_of,
)
from masquerade.protocols.wire.arrow_stream import unpack
from masquerade.protocols.wire.codec import tag_of
from masquerade.services.common.problems import PartyUnreachable
from masquerade.sources.parties.joined import JoiningMiner

ROWS_AT_ONCE = 30
TABLES = (("S", "T", "G"),)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setitem(JoiningMiner.records.__kwdefaults__, "rows_at_once", ROWS_AT_ONCE)


def columns(protocol="vertical-with-miner", goal=None, policy=TABLE_1, n=150):
    return split_columns(
        people(n), policy, OWNERS, protocol, goal or LearningGoal(model="tables", tables=TABLES), seed=2
    )


def interrupted(deployment, *where, **how):
    """Run a session until south stops, check that it says so, and start south again."""
    with deployment.halting("south", *where, **how):
        status = deployment.run()
    assert status["state"] == "interrupted", status
    assert "'south'" in status["reason"] or "has not begun here" in status["reason"], status
    before = {name: deployment.ledger(name) for name in OWNERS}
    deployment.start("south")
    with deployment.operator() as operator:  # nothing goes on by itself
        assert operator.ask("status", {"session": SESSION})["state"] == "interrupted"
    assert {name: deployment.ledger(name) for name in OWNERS} == before


def assert_exact(deployment, model):
    table = model["tables"][0]
    exact = clear_counts(joined(deployment.plan), table["by"])
    assert np.allclose(table["values"], exact, atol=1e-9)


def cells_sent(deployment, name):
    """Return every reply with cells, by the question that it answers."""
    found = {}
    for body, reply in deployment.replies(name, "cells"):
        if tag_of(body) == CellRequest.TAG:
            found.setdefault(body, []).append(reply)
    return found


def reports_of(deployment, name, epoch):
    """Return all records that a party sent in an epoch, as a multiset of tuples of reports."""
    whole = deployment.plan.policies[name]
    policy = restrict_to_variables(
        whole, deployment.spec.learn.needed_variables(whole.schema.names)
    )  # no more is sent
    schema, found = schema_of(policy.schema.names, policy), Counter()
    for body, replies in cells_sent(deployment, name).items():
        if CellRequest.decode(body).session == epoch:
            [block] = DisguisedCells.decode(replies[0]).blocks
            batch = unpack(block, most_bytes=1 << 20, most_rows=10_000, schema=schema)
            found.update(zip(*(column.to_pylist() for column in batch.columns[1:]), strict=True))
    return found


def epoch_of(deployment, name="north"):
    return bytes.fromhex(json.loads(deployment.begun(name)[SESSION])["epoch"])


@pytest.mark.parametrize(
    ("role", "after", "lost"),
    [
        ("linking", 3, False),
        pytest.param("settle", 0, True, marks=pytest.mark.slow),
        pytest.param("arrange", 0, False, marks=pytest.mark.slow),
        pytest.param("cells", 2, False, marks=pytest.mark.slow),
        ("cells", 3, True),
        pytest.param("model", 0, False, marks=pytest.mark.slow),
        pytest.param("end", 0, True, marks=pytest.mark.slow),
    ],
)
def test_a_party_that_stops_where_there_is_a_miner(tmp_path, role, after, lost):
    with deployed(tmp_path, columns()) as deployment:
        interrupted(deployment, role, after, lost=lost)
        begun = epoch_of(deployment)
        assert_exact(deployment, deployment.done())
        same = epoch_of(deployment) == begun
        # linked records survive a restart, even of a node that stops while all settle; none exist before
        assert same == (role != "linking")
        repeated = 0
        for name in OWNERS:
            for replies in cells_sent(deployment, name).values():
                assert len(set(replies)) == 1  # whatever was sent twice was the same, byte for byte
                repeated += len(replies) - 1
            kinds = Counter(
                (item.kind, item.variables) for item in deployment.ledger(name) if item.policy is not None
            )
            assert set(kinds.values()) == {1}  # repeated reports are not a second release
            assert not any("/" in note for note in deployment.begun(name))
        if (role, lost) == ("cells", True):
            assert repeated
        assert not list((deployment.settings(MINER).state / "joined").glob("*"))


@pytest.mark.parametrize(
    ("protocol", "role", "after"),
    [
        pytest.param("vertical-without-miner", "learn", 0, marks=pytest.mark.slow),
        ("vertical-without-miner", "cells", 1),
        ("revealed-vertical-counts", "products", 4),
        ("projection", "projection", 4),
    ],
)
def test_a_party_that_stops_while_others_learn(tmp_path, protocol, role, after):
    structure = LearningGoal(model="network", structure=ELEVEN_NODES)
    policy = TABLE_1 if protocol == "vertical-without-miner" else CLEAR
    n = 700 if protocol == "projection" else 150  # owners send one column for ten records
    with deployed(tmp_path, columns(protocol, structure, policy, n)) as deployment:
        interrupted(deployment, role, after)
        learnt = mq.learn.BayesianNetwork.from_dict(deployment.done())
        clear = mq.learn.bayesian_network(mq.tally(joined(deployment.plan), schema=SCHEMA), ELEVEN_NODES)
        exact = ELEVEN_NODES if policy is CLEAR else ("A", "T", "S", "L", "B", "F", "G")
        names = [name for name in exact if protocol != "vertical-without-miner" or name not in "FG"]
        for name in names:
            assert np.allclose(learnt[name].probabilities, clear[name].probabilities, equal_nan=True), name
        for replies in cells_sent(deployment, "north").values():
            assert len(set(replies)) == 1
        kinds = Counter(
            (item.recipient, item.kind, item.variables)
            for item in deployment.ledger("north")
            if item.policy is not None
        )
        assert set(kinds.values()) <= {1}


def test_a_party_that_stops_in_a_pool(tmp_path):
    frame = people(120)
    plan = split_rows(frame, CLEAR, tuple(OWNERS), LearningGoal(model="tables", tables=(("A", "T"),)), seed=2)
    with deployed(tmp_path, plan) as deployment:
        interrupted(deployment, "pooling", 2)
        [table] = deployment.done()["tables"]
        assert np.array_equal(table["values"], clear_counts(frame, ("A", "T")))


def test_a_party_that_is_gone_is_named(tmp_path):
    with deployed(tmp_path, columns(n=60)) as deployment:
        deployment.stop("south")
        status = deployment.run()
        assert status["state"] == "interrupted"
        assert "Party 'south'" in status["reason"]
        assert "Check that it is running" in status["reason"]
        deployment.start("south")
        assert_exact(deployment, deployment.done())


def test_a_convener_that_stops_fetches_no_part_twice(tmp_path):
    with deployed(tmp_path, columns()) as deployment:
        with deployment.halting("south", "cells", 3, stops=MINER), pytest.raises(PartyUnreachable):
            deployment.run()
        begun = epoch_of(deployment)
        state = deployment.settings(MINER).state
        there = {int(path.stem[-6:]) for path in (state / "joined").rglob("part-*.parquet")}
        assert there
        fetched = len(deployment.replies("north", "cells"))
        deployment.start(MINER)
        with deployment.operator() as operator:
            status = operator.ask("status", {"session": SESSION})
        assert (status["state"], status["reason"]) == ("interrupted", "this node was stopped")
        assert_exact(deployment, deployment.done())
        assert epoch_of(deployment) == begun
        asked = [CellRequest.decode(body) for body, _ in deployment.replies("north", "cells")[fetched:]
                 if tag_of(body) == CellRequest.TAG]  # fmt: skip
        assert asked
        assert there.isdisjoint(request.part for request in asked)
        assert not list((state / "joined").glob("*"))


def test_a_session_that_is_done_stays_done(tmp_path):
    with deployed(tmp_path, columns(n=60)) as deployment:
        model = deployment.done()
        deployment.stop(MINER, "south")
        deployment.start(MINER)
        assert deployment.done() == model  # nobody is asked, and south is not even there


def backed_up(deployment, name, place, *, without=()):
    """Copy a node's state while it is stopped, all but what must never be restored."""
    state = deployment.settings(name).state
    shutil.copytree(state, place, ignore=shutil.ignore_patterns("once", "lock", "address", *without))


def restored(deployment, name, place):
    state = deployment.settings(name).state
    shutil.rmtree(state)
    shutil.copytree(place, state)


def test_a_restored_party_begins_a_new_epoch_with_the_same_reports(tmp_path):
    with deployed(tmp_path, columns()) as deployment:
        with deployment.halting("registry", "cells", 4):
            assert deployment.run()["state"] == "interrupted"
        deployment.start("registry")
        deployment.stop("south")
        backed_up(deployment, "south", tmp_path / "backup")
        deployment.start("south")
        first = deployment.nodes["south"].state
        life, stored = first.epoch, first._store.value("SELECT count(*) FROM replies")
        begun, left = epoch_of(deployment), deployment.ledger("south")
        assert stored
        assert any("/linked" in note for note in deployment.begun("south"))
        deployment.stop("south")
        restored(deployment, "south", tmp_path / "backup")
        deployment.start("south")
        second = deployment.nodes["south"].state
        assert second.restored
        assert second.epoch > life
        assert second._store.value("SELECT count(*) FROM replies") == 0
        assert deployment.begun("south") == {}  # pseudonyms are gone with it
        assert_exact(deployment, deployment.done())
        assert epoch_of(deployment) != begun
        assert [item.kind for item in deployment.ledger("south")[: len(left) + 1]] == [
            *(item.kind for item in left),
            "restored",
        ]
        sent = reports_of(deployment, "south", begun)
        again = reports_of(deployment, "south", epoch_of(deployment))
        assert sent <= again  # what had been sent before is what is sent now
        assert len({item.draw for item in deployment.ledger("south") if item.policy is not None}) == 1
        assert not list((deployment.settings(MINER).state / "joined").glob("*"))


def test_a_party_that_lost_its_memo_disguises_nobody_a_second_time(tmp_path):
    goal = LearningGoal(model="tables", tables=(*TABLES, ("A",)))  # also what is disguised
    with deployed(tmp_path, columns(goal=goal, n=60)) as deployment:
        with deployment.halting("north", "end"):
            assert deployment.run()["state"] == "interrupted"
        backed_up(deployment, "north", tmp_path / "without", without=["memo.json"])
        backed_up(deployment, "north", tmp_path / "whole")
        restored(deployment, "north", tmp_path / "without")
        deployment.start("north")
        left = deployment.ledger("north")
        status = deployment.run()
        assert status["state"] == "interrupted"
        assert deployment.ledger("north") == left
        assert deployment.begun("north") == {}
        deployment.stop("north")
        restored(deployment, "north", tmp_path / "whole")
        deployment.start("north")
        assert_exact(deployment, deployment.done())
        assert len({item.draw for item in deployment.ledger("north") if item.policy is not None}) == 1
