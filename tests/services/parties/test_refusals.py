"""What a party does not do: every refusal says why, is logged, and changes nothing."""

from __future__ import annotations

import json
import os

import pandas as pd
import pytest
import yaml
from tests.services.parties.deployments import (
    CLEAR,
    MINER,
    OWNERS,
    SESSION,
    TABLE_1,
    Deployment,
    LearningGoal,
    deployed,
    people,
    split_columns,
    split_rows,
    started,
)

from masquerade.core.errors import (
    InputError,
    MasqueradeError,
    PolicyMismatch,
    QueryRefused,
    RoundAborted,
    SchemaError,
)
from masquerade.crypto import certificates
from masquerade.crypto.errors import DecodingError
from masquerade.data.example_networks import ELEVEN_NODES
from masquerade.protocols.linkage.psi import LinkingOffer
from masquerade.protocols.vertical.disguised_cells import CellRequest, DescriptionRequest
from masquerade.services.common.client import HttpTransport
from masquerade.services.common.peers import TlsFiles
from masquerade.services.common.problems import KeyReused, NotAdmitted, NotFound, TooLarge
from masquerade.services.common.settings import load
from masquerade.services.parties.node import Node
from masquerade.services.parties.session import SessionSpec
from masquerade.services.parties.settings import PartySettings

EPOCH = bytes(range(16))
MOST = 200_000  # bytes of a body
TABLES = LearningGoal(model="tables", tables=(("S", "T", "G"),))
CONTROL = ("settle", "arrange", "learn", "model", "end")


def columns(protocol="vertical-with-miner", goal=TABLES, policy=TABLE_1, n=60):
    return split_columns(people(n), policy, OWNERS, protocol, goal, seed=2)


@pytest.fixture(scope="module")
def quiet(tmp_path_factory):
    """A deployment in which no session has begun; its helper is a peer like any other."""
    plan = columns("revealed-vertical-counts", policy=CLEAR)
    with deployed(tmp_path_factory.mktemp("quiet"), plan, limits={"body_bytes": MOST}) as deployment:
        yield deployment


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """A session that stands still in the middle: records are linked, north has sent its cells."""
    with deployed(tmp_path_factory.mktemp("begun"), columns(), limits={"body_bytes": MOST}) as deployment:
        with deployment.halting("registry", "cells"):
            assert deployment.run()["state"] == "interrupted"
        deployment.epoch = bytes.fromhex(json.loads(deployment.begun("north")[SESSION])["epoch"])
        yield deployment


def standing(deployment, name="north"):
    """Return everything that a message could have changed at a node."""
    state = deployment.settings(name).state
    party = deployment.nodes[name].party
    files = {
        path.relative_to(state): path.stat().st_mtime_ns
        for path in state.rglob("*")
        if path.is_file() and path.parent.name != "once" and not path.name.startswith("state.sqlite")
    }
    opened = {session: (part.epoch, part.spec) for session, part in party._open.items()}
    return deployment.ledger(name), deployment.begun(name), opened, files


@pytest.fixture
def refuses(capsys):
    """Return a check that a message is refused, for this reason, with a line in the log and no change."""

    def check(deployment, caller, role, body, error, text, *, name="north", session=SESSION):
        before = standing(deployment, name)
        capsys.readouterr()
        with pytest.raises(error, match=text):
            deployment.say(caller, name, role, body, session=session)
        assert standing(deployment, name) == before
        lines = [json.loads(line) for line in capsys.readouterr().err.splitlines() if line.startswith("{")]
        [line] = [it for it in lines if it["event"] == "request" and it["name"] == name]
        assert line["facts"]["peer"] == caller
        assert line["facts"]["status"] >= 400
        assert line["facts"]["error"] == error.__name__ or error in {InputError, MasqueradeError}

    return check


def begin(spec, epoch=EPOCH, **changed):
    """Return the message that a session begins, changed where a test wants it."""
    values = {**spec.model_dump(mode="json"), **changed}
    return {"spec": values, "epoch": epoch.hex()}


# who may bring a party into which session


@pytest.mark.parametrize(
    ("caller", "changed", "reason"),
    [
        (MINER, {"session": "other"}, "no session of that name"),
        (MINER, {"protocol": "vertical-with-miner", "helper": None}, "differs in protocol, helper"),
        (MINER, {"parties": ["north", "south"]}, "differs in parties"),
        ("helper", {"convener": "helper", "helper": MINER}, "differs in convener, helper"),
        (MINER, {"linking": "keyed"}, "differs in linking"),
        ("south", {}, "'south' does not convene it"),
        ("helper", {}, "'helper' does not convene it"),
    ],
)
def test_a_session_that_was_not_consented_to_does_not_begin(quiet, refuses, caller, changed, reason):
    session = changed.get("session", SESSION)
    refuses(quiet, caller, "begin", begin(quiet.spec, **changed), QueryRefused, reason, session=session)


def test_a_session_is_spoken_of_at_its_own_place(quiet, refuses):
    refuses(
        quiet,
        MINER,
        "begin",
        begin(quiet.spec),
        InputError,
        "differs from the one in its path",
        session="other",
    )


def test_a_node_that_only_helps_is_no_party(quiet, refuses):
    changed = {"helper": None, "protocol": "vertical-with-miner"}
    refuses(quiet, MINER, "begin", begin(quiet.spec, **changed), QueryRefused, "differs in", name="helper")


def test_nothing_is_answered_before_a_session_has_begun(quiet, refuses):
    for role in (*CONTROL, "linking", "cells"):
        body = LinkingOffer(EPOCH, tuple(OWNERS), 100).encode()
        refuses(quiet, MINER, role, body, RoundAborted, "has not begun here")


def test_another_policy_than_the_one_pinned_is_refused(quiet, refuses):
    body = begin(quiet.spec, policies={"north": "0" * 64})
    refuses(quiet, MINER, "begin", body, QueryRefused, "differs in spec")


def test_a_stranger_of_the_same_authority_is_not_admitted(quiet, capsys):
    made = certificates.issue(quiet.folder / "tls", "stranger")
    before = standing(quiet)
    peers = [peer for peer in quiet.nodes[MINER].peers if peer.name == "north"]
    files = TlsFiles(made.certificate, made.key, quiet.folder / "tls" / "ca.pem")
    with HttpTransport("stranger", peers, tls=files, retries=0) as http, pytest.raises(NotAdmitted):
        http.exchange("north", json.dumps(begin(quiet.spec)).encode(), place=f"sessions/{SESSION}/begin")
    assert standing(quiet) == before
    assert '"error":"NotAdmitted"' in capsys.readouterr().err


def test_only_variables_in_the_consent_take_part(tmp_path):
    """North consents to T alone: nobody hears of its A and E, and cells of them are refused."""
    deployment = Deployment(tmp_path / "some", columns())
    values = yaml.safe_load(deployment.files["north"].read_text())
    values["consents"][0]["variables"] = ["T"]
    deployment.files["north"].write_text(yaml.safe_dump(values))
    try:
        deployment.start()
        with deployment.halting("registry", "cells"):
            assert deployment.run()["state"] == "interrupted"
        deployment.start("registry")
        epoch = bytes.fromhex(json.loads(deployment.begun("north")[SESSION])["epoch"])
        with pytest.raises(SchemaError, match="'A'"):
            deployment.say(MINER, "north", "cells", CellRequest(epoch, MINER, ("A",), 0, 1).encode())
        deployment.done()
        assert {name for item in deployment.ledger("north") for name in item.variables} == {"(key)", "T"}
    finally:
        deployment.stop()


@pytest.mark.parametrize(
    ("broken", "error", "text"),
    [
        (lambda frame: frame.drop(columns="T"), RoundAborted, "its own output has the details"),
        (lambda frame: frame.assign(T=7), RoundAborted, "its own output has the details"),
        (lambda frame: frame.assign(person=None), RoundAborted, "its own output has the details"),
    ],
    ids=["no column", "another category", "no keys"],
)
def test_records_of_another_schema_do_not_take_part(tmp_path, refuses, broken, error, text):
    plan = columns(n=20)
    deployment = Deployment(tmp_path / "schema", plan)
    try:
        deployment.start("north", MINER)
        path = deployment.settings("north").data.files[0]
        broken(pd.read_parquet(path)).to_parquet(path, index=False)
        refuses(deployment, MINER, "begin", begin(deployment.spec), error, text)
    finally:
        deployment.stop()


def test_a_pool_has_one_policy(tmp_path):
    plan = split_rows(
        people(60), CLEAR, tuple(OWNERS), LearningGoal(model="tables", tables=(("A",),)), seed=2
    )
    plan.policies["south"] = TABLE_1
    with deployed(tmp_path, plan) as deployment:
        status = deployment.run()
        assert status["state"] == "interrupted"
        assert "a pool has one policy" in status["reason"]
        assert not [item for name in OWNERS for item in deployment.ledger(name)]


def test_the_convener_refuses_a_policy_that_it_did_not_pin(tmp_path):
    """All consent to a text that pins a policy which is not south's: south refuses, and nothing leaves."""
    plan = columns(n=20)
    deployment = Deployment(tmp_path / "nodes", plan)
    spec = deployment.spec.model_copy(update={"policies": {"south": plan.policies["north"].id}})
    deployment.consent_to(spec)
    with started(deployment):
        status = deployment.run(spec)
        assert status["state"] == "interrupted"
        assert "pins policy" in status["reason"]
        assert deployment.begun("south") == {}


# who may ask for what in a session that is going on


@pytest.mark.parametrize("role", CONTROL)
def test_a_peer_who_does_not_convene_moves_nothing(begun, refuses, role):
    refuses(begun, "south", role, {"epoch": begun.epoch.hex()}, QueryRefused, "'south' does not convene it")


@pytest.mark.parametrize("role", ["linking", "cells"])
def test_a_party_gets_nothing_from_a_party_where_there_is_a_miner(begun, refuses, role):
    body = CellRequest(begun.epoch, "south", (), 0, 1).encode()
    refuses(begun, "south", role, body, QueryRefused, "'south' may not ask for this")


@pytest.mark.parametrize("message", [DescriptionRequest, CellRequest])
def test_cells_go_to_whoever_asks_for_them(begun, refuses, message):
    rest = () if message is DescriptionRequest else (0, 1)
    body = message(begun.epoch, "south", (), *rest).encode()
    refuses(begun, MINER, "cells", body, QueryRefused, "only to the peer that requests them")


@pytest.mark.parametrize("role", ["columns", "begun", "operate"])
def test_there_are_no_other_roles(begun, refuses, role):
    refuses(begun, MINER, role, b"", InputError, "There is no role")


@pytest.mark.parametrize("role", ["pooling", "products", "projection", "paillier"])
def test_a_role_of_another_protocol_is_none(begun, refuses, role):
    refuses(begun, MINER, role, b"", InputError, "There is no role|cannot be read|no message|ends")


def test_messages_of_another_epoch_are_refused(begun, refuses):
    other = EPOCH.hex()
    bodies = {
        "settle": {"epoch": other},
        "arrange": {"epoch": other, "policies": {}, "signatures": {}},
        "learn": {"epoch": other, "structure": {}},
        "model": {"epoch": other, "model": {}},
        "end": {"epoch": other},
    }
    for role, body in bodies.items():
        refuses(begun, MINER, role, body, InputError, "another epoch")
    refuses(begun, MINER, "cells", CellRequest(EPOCH, MINER, (), 0, 1).encode(), InputError, "session")


def test_a_begun_session_keeps_its_text(begun, refuses):
    body = begin(begun.spec, begun.epoch, learn={"model": "tables", "tables": [["A"]]})
    refuses(begun, MINER, "begin", body, QueryRefused, "differs in spec")


def test_a_key_serves_one_message(begun):
    key, body = "k" * 24, begin(begun.spec, begun.epoch)
    first = begun.say(MINER, "north", "begin", body, key=key)
    before = standing(begun)
    assert begun.say(MINER, "north", "begin", body, key=key) == first
    with pytest.raises(KeyReused):
        begun.say(MINER, "north", "begin", {**body, "epoch": EPOCH.hex()}, key=key)
    with pytest.raises(KeyReused):
        begun.say(MINER, "north", "end", {"epoch": begun.epoch.hex()}, key=key)
    assert standing(begun) == before


def test_what_is_no_model_is_not_kept(begun, refuses):
    for model in ({}, {"masquerade": 1, "kind": "bayesian_network", "nodes": "all"}, {"kind": []}):
        body = {"epoch": begun.epoch.hex(), "model": model}
        refuses(begun, MINER, "model", body, MasqueradeError, ".")


def test_an_arrangement_is_of_the_parties_and_of_the_policies_they_have(begun, refuses):
    own = {name: policy.to_dict() for name, policy in begun.plan.policies.items()}
    asked = {"epoch": begun.epoch.hex(), "records": 10, "alignment": "", "signatures": {}}
    body = {**asked, "policies": {**own, "east": own["south"]}}
    refuses(begun, MINER, "arrange", body, InputError, "exactly one policy for every party")
    body = {**asked, "policies": {**own, "north": own["south"]}}
    refuses(begun, MINER, "arrange", body, PolicyMismatch, "policy for this party that is not its own")


@pytest.mark.parametrize("role", ["begin", *CONTROL, "linking", "cells"])
def test_garbage_is_refused(begun, refuses, role):
    whole = {
        "begin": json.dumps(begin(begun.spec, begun.epoch)).encode(),
        "linking": LinkingOffer(begun.epoch, tuple(OWNERS), 100).encode(),
        "cells": CellRequest(begun.epoch, MINER, (), 0, 1).encode(),
    }.get(role, json.dumps({"epoch": begun.epoch.hex()}).encode())
    nested = b"[" * 100_000
    for body in (b"", os.urandom(64), whole[:-1], whole + b"x", nested, b"[1, 2]", b"\xff{}"):
        refuses(begun, MINER, role, body, MasqueradeError, ".")


@pytest.mark.parametrize("body", [{}, {"epoch": "00"}, {"epoch": 3}, {"epoch": EPOCH.hex(), "more": 1}])
def test_messages_around_a_protocol_are_read_strictly(begun, refuses, body):
    refuses(begun, MINER, "end", body, DecodingError, "The message is wrong at")


def test_an_oversized_message_is_refused_unread(begun, refuses):
    with begun.speaking(MINER) as http:
        body = b" " * (MOST + 1)
        with pytest.raises(TooLarge):
            http.exchange("north", body, place=f"sessions/{SESSION}/cells")
    refuses(begun, MINER, "cells", body, TooLarge, "at most 200,000 bytes")


@pytest.mark.parametrize("what", ["create", "run", "status", "model"])
def test_only_its_own_operator_operates_a_node(begun, what, capsys):
    before = standing(begun)
    with begun.speaking(MINER) as http, pytest.raises(NotAdmitted, match="own operator"):
        http.exchange("north", b"{}", place=f"operate/{what}")
    assert standing(begun) == before
    assert '"error":"NotAdmitted"' in capsys.readouterr().err
    with begun.speaking(MINER) as http, pytest.raises(NotFound):
        http.exchange("north", b"{}", place="operate/erase/everything")


# without a miner: what parties ask of each other


@pytest.fixture(scope="module")
def crossing(tmp_path_factory):
    """A session without a miner that stands still: south is to learn its nodes."""
    plan = columns("vertical-without-miner", LearningGoal(model="network", structure=ELEVEN_NODES))
    with deployed(tmp_path_factory.mktemp("crossing"), plan) as deployment:
        with deployment.halting("south", "learn"):
            assert deployment.run()["state"] == "interrupted"
        deployment.epoch = bytes.fromhex(json.loads(deployment.begun("north")[SESSION])["epoch"])
        yield deployment


@pytest.mark.parametrize("names", [("A",), ("E", "A"), ()])
def test_only_cross_parents_cross(crossing, refuses, names):
    """E is the parent of a node of the registry; A of nobody's."""
    body = CellRequest(crossing.epoch, "registry", names, 0, 1).encode()
    refuses(crossing, "registry", "cells", body, QueryRefused, "does not require that")
    crossing.say("registry", "north", "cells", CellRequest(crossing.epoch, "registry", ("E",), 0, 1).encode())


def test_the_convener_gets_no_cells_where_there_is_no_miner(crossing, refuses):
    body = CellRequest(crossing.epoch, MINER, ("E",), 0, 1).encode()
    refuses(crossing, MINER, "cells", body, QueryRefused, "may not ask for this")


@pytest.mark.parametrize(
    "asked",
    [
        {"structure": {**ELEVEN_NODES, "T": []}},
        {"structure": {**ELEVEN_NODES, "E": ["A", "T", "L"]}},
        {"order": list(ELEVEN_NODES)},
        {"structure": ELEVEN_NODES, "order": list(ELEVEN_NODES)},
    ],
)
def test_a_party_learns_what_was_agreed_on_and_nothing_else(crossing, refuses, asked):
    body = {"epoch": crossing.epoch.hex(), **asked}
    refuses(crossing, MINER, "learn", body, QueryRefused, "model does not need this")


def test_a_party_does_not_learn_where_there_is_a_miner(begun, refuses):
    body = {"epoch": begun.epoch.hex(), "structure": ELEVEN_NODES}
    refuses(begun, MINER, "learn", body, InputError, "without a miner")


# sessions that must not exist

POOL = {
    "session": "s",
    "protocol": "pooled-counts",
    "parties": ["north", "south", "registry"],
    "convener": MINER,
    "learn": {"model": "tables", "tables": [["A"]]},
}
LINKED = {**POOL, "protocol": "vertical-with-miner", "linking": "intersection"}


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (
            {**POOL, "parties": ["north", "south"]},
            "at least 3 parties: with two parties, each could subtract its own",
        ),
        ({**POOL, "parties": ["north", "south", "south"]}, "named twice"),
        ({**POOL, "linking": "keyed"}, "links nothing"),
        ({**POOL, "helper": "helper"}, "no helper"),
        ({**LINKED, "linking": None}, "needs linking"),
        ({**LINKED, "convener": "north"}, "must not be a party"),
        ({**LINKED, "protocol": "projection", "convener": "north"}, "knows the rotation, and can invert it"),
        ({**LINKED, "protocol": "projection", "parties": ["north"]}, "at least 2 parties"),
        ({**LINKED, "protocol": "revealed-vertical-counts"}, "needs a helper"),
        (
            {**LINKED, "protocol": "revealed-vertical-counts", "helper": "south"},
            "neither a party nor the convener: it could unmask columns",
        ),
        (
            {**LINKED, "protocol": "revealed-vertical-counts", "helper": MINER},
            "neither a party nor the convener",
        ),
        (
            {**LINKED, "protocol": "vertical-without-miner", "convener": "north"},
            "would learn its overlap with each of the others",
        ),
        ({**LINKED, "policies": {"east": "00" * 32}}, "pinned for parties only"),
        ({**POOL, "learn": {"model": "network"}}, "a structure or an order"),
        ({**POOL, "learn": {"model": "tree"}}, "a classifier needs a target"),
        ({**POOL, "more": 1}, "more"),
    ],
)
def test_a_session_that_cannot_keep_its_promise_is_refused_with_the_reason(quiet, tmp_path, values, reason):
    file = tmp_path / "session.yaml"
    file.write_text(yaml.safe_dump(values))
    with pytest.raises(InputError, match=reason):
        load(file, SessionSpec, environment={})
    with quiet.operator() as operator:
        with pytest.raises(DecodingError):
            operator.ask("create", {"spec": values})
        assert operator.ask("status", {}) == {"sessions": []}


def test_a_node_convenes_its_own_sessions_with_peers_it_knows(quiet):
    with quiet.operator() as operator:
        with pytest.raises(InputError, match="convened by 'north'"):
            operator.ask("create", {"spec": {**POOL, "convener": "north"}})
        with pytest.raises(InputError, match="'east' is not a peer"):
            operator.ask("create", {"spec": {**POOL, "parties": ["north", "south", "east"]}})
        with pytest.raises(InputError, match="no session 'nothing'"):
            operator.ask("run", {"session": "nothing"})
        with pytest.raises(InputError, match="Name a session"):
            operator.ask("run", {})


def test_a_mistake_can_be_mended_until_there_is_a_model(tmp_path):
    deployment = Deployment(tmp_path / "nodes", columns())
    wrong = deployment.spec.model_copy(update={"learn": LearningGoal(model="tables", tables=(("Z",),))})
    deployment.consent_to(wrong)
    with started(deployment):
        status = deployment.run(wrong)
        assert status["state"] == "interrupted"
        assert "names 'Z', which no party brings" in status["reason"]
        assert not [item for name in OWNERS for item in deployment.ledger(name)]  # nothing has left
        deployment.stop(*OWNERS)
        deployment.consent_to(deployment.spec)
        deployment.start(*OWNERS)
        deployment.done()
        with (
            deployment.operator() as operator,
            pytest.raises(InputError, match="different session has the name"),
        ):
            operator.ask("create", {"spec": wrong.model_dump(mode="json")})


def test_there_is_no_model_before_the_end(begun):
    with begun.operator() as operator, pytest.raises(InputError, match="is not done"):
        operator.ask("model", {"session": SESSION})


# settings that must not be used


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"tls": None}, "needs tls, or an operator_token"),
        ({"peers": {}}, "which is not a peer"),
        ({"data": {"files": ["records.parquet"], "policy": "policy.yaml"}}, "data.key must name the column"),
        ({"name": "east"}, "does not have this party"),
    ],
)
def test_settings_are_checked_before_anything_is_served(quiet, tmp_path, changed, reason):
    values = yaml.safe_load(quiet.files["north"].read_text()) | changed
    if changed.get("name"):
        values["peers"]["north"] = values["peers"]["south"]
    file = tmp_path / "party.yaml"
    file.write_text(yaml.safe_dump(values))
    with pytest.raises(InputError, match=reason):
        load(file, PartySettings, environment={})


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"linking": "keyed"}, "data.linking_key must name a file"),
        ({"variables": []}, "list the variables"),
        ({"parties": ["south", "registry"]}, "does not have this party"),
    ],
)
def test_consents_are_checked_too(quiet, tmp_path, changed, reason):
    values = yaml.safe_load(quiet.files["north"].read_text())
    values["consents"][0] |= changed
    file = tmp_path / "party.yaml"
    file.write_text(yaml.safe_dump(values))
    with pytest.raises(InputError, match=reason):
        load(file, PartySettings, environment={})
    values["consents"] = [values["consents"][0]] * 2
    file.write_text(yaml.safe_dump(values))
    with pytest.raises(InputError):
        load(file, PartySettings, environment={})


def test_one_process_at_a_time_is_a_node(quiet):
    with pytest.raises(InputError, match="is in use"):
        Node(quiet.settings("north"))
