"""Every message that a service takes: what shows whose it is, and which test forges it.

A message that is not on the list fails a test here, and so does one whose test is gone.
"""

from __future__ import annotations

import ast
import importlib
import json
import pkgutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

import masquerade.services
from masquerade.core.errors import InputError, MasqueradeError, QueryRefused
from masquerade.crypto.errors import SealBroken
from masquerade.crypto.keys import AgreementKey, SigningKey
from masquerade.services.common.jobs import Call
from masquerade.services.common.peers import Peer
from masquerade.services.common.problems import NotAdmitted
from masquerade.services.common.release_ledger import WITNESS
from masquerade.services.common.server import NodeServer
from masquerade.services.common.settings import load
from masquerade.services.counting.example import example_records, write_count
from masquerade.services.counting.leader import LeaderService
from masquerade.services.counting.miner import MinerService
from masquerade.services.counting.randomness import GroupRandomnessService
from masquerade.services.counting.settings import (
    CountLeaderSettings,
    CountMinerSettings,
    CountRandomnessSettings,
)
from masquerade.services.parties import kinds
from masquerade.services.parties.example import two_hospitals_and_a_registry, write_deployment
from masquerade.services.parties.linkage import LINKINGS
from masquerade.services.parties.node import Node
from masquerade.services.parties.party import CANCEL
from masquerade.services.parties.session import SessionSpec
from masquerade.services.parties.settings import MinerSettings, PartySettings
from masquerade.services.threshold.collector import CollectorService
from masquerade.services.threshold.example import draw_example_rows, write_collection
from masquerade.services.threshold.randomness_server import RandomnessService
from masquerade.services.threshold.settings import CollectorSettings, RandomnessSettings
from masquerade.survey.collector.collector import PLACES as SURVEY_PLACES

HERE = "tests/services/test_message_senders.py"
SUPPRESSIONS = "tests/services/counting/test_suppression.py"
STRANGERS = "tests/services/counting/test_strangers.py"
REFUSALS = "tests/services/parties/test_refusals.py"
CONVENERS = "tests/services/parties/test_hostile_conveners.py"
COLLECTING = "tests/services/threshold/test_hostile.py"
SURVEYS = "tests/survey/test_collector.py"
ANYBODY = Peer("Anybody")
EPOCH = bytes(range(16))


class Line(NamedTuple):
    """What shows whose a message is, before anything changes; and the tests that forge it."""

    shown_by: str
    forged_in: tuple[str, ...]


PEER = "the sender's pinned certificate or token: "
OPERATOR = Line(PEER + "the service's own", (f"{HERE}::test_operations_are_the_operators_alone",))
CONVENER = Line(
    PEER + "the convener's, and the epoch",
    (
        f"{HERE}::test_messages_of_a_session_come_from_those_it_is_with",
        f"{HERE}::test_messages_of_another_epoch_or_session_change_nothing",
    ),
)
MINER_PEER = Line(PEER + "the miner's", (f"{HERE}::test_peers_of_a_count_speak_for_themselves_alone",))


def asked_by(whom, *more):
    """Return the line of a role: who may ask is known by certificate, what is carried by signatures."""
    return Line(PEER + whom, (f"{HERE}::test_messages_of_a_session_come_from_those_it_is_with", *more))


LINES: dict[tuple[str, str], Line] = {
    ("count miner", "enrol"): Line(
        PEER + "the office's",
        (
            f"{HERE}::test_peers_of_a_count_speak_for_themselves_alone",
            f"{STRANGERS}::test_nothing_is_told_or_taken_before_people_are_enrolled",
        ),
    ),
    ("count miner", "terms"): Line(
        "the person's signature, for this place and count",
        (f"{STRANGERS}::test_who_is_enrolled_is_told_to_those_who_are",),
    ),
    ("count miner", "letters"): Line(
        "the person's signature, for this place and count",
        (f"{STRANGERS}::test_who_is_enrolled_is_told_to_those_who_are",),
    ),
    ("count miner", "replies"): Line(
        "the person's signature, for this count, letter and content",
        (
            f"{STRANGERS}::test_a_forged_reply_is_refused_and_withdraws_nothing",
            f"{STRANGERS}::test_a_true_reply_is_taken_once_and_in_no_later_round",
            f"{STRANGERS}::test_strangers_who_hammer_a_count_change_nothing",
        ),
    ),
    ("count leader", "enrol"): Line(
        PEER + "the office's", (f"{HERE}::test_peers_of_a_count_speak_for_themselves_alone",)
    ),
    **{("count leader", place): MINER_PEER for place in ("share", "key", "shuffle", "endorse", "open")},
    ("count leader", "relay"): Line(
        MINER_PEER.shown_by + "; reports are signed by all people of the groups, for these groups",
        (
            *MINER_PEER.forged_in,
            f"{SUPPRESSIONS}::test_a_miner_cannot_have_the_reports_of_a_few_people_relayed",
            f"{SUPPRESSIONS}::test_a_report_whose_content_was_changed_is_refused",
        ),
    ),
    **{
        (name, "box"): Line(
            PEER + "the office's; it changes nothing",
            (f"{SUPPRESSIONS}::test_servers_of_a_suppression_answer_their_miner_and_office_alone",),
        )
        for name in ("count miner", "count leader")
    },
    ("count randomness", "enrol"): Line(
        PEER + "the office's", (f"{HERE}::test_peers_of_a_count_speak_for_themselves_alone",)
    ),
    **{
        ("count randomness", place): Line(shown_by, MINER_PEER.forged_in)
        for place, shown_by in {
            "begin": MINER_PEER.shown_by + "; groups are signed by all people",
            "evaluate": MINER_PEER.shown_by + "; each request has a code under its person's credential",
            "close": MINER_PEER.shown_by,
        }.items()
    },
    ("randomness server", "notice"): Line(
        "nothing: it changes nothing", (f"{COLLECTING}::test_garbage_is_refused_without_harm",)
    ),
    ("randomness server", "closing"): Line(
        "nothing: it changes nothing", (f"{COLLECTING}::test_garbage_is_refused_without_harm",)
    ),
    ("randomness server", "evaluate"): Line(
        "a code under the person's credential",
        (
            f"{COLLECTING}::test_without_a_credential_nothing_is_evaluated",
            f"{COLLECTING}::test_a_dictionary_in_one_message_gets_one_evaluation",
        ),
    ),
    ("randomness server", "enrol"): Line(
        PEER + "the office's",
        (f"{COLLECTING}::test_only_the_office_enrols_and_only_the_operator_operates",),
    ),
    ("collector", "notice"): Line(
        "nothing: it fetches the notice, which the randomness server signed",
        (f"{COLLECTING}::test_garbage_is_refused_without_harm",),
    ),
    ("collector", "begin"): Line(
        "the randomness server's signature of the closing of this notice",
        (f"{COLLECTING}::test_a_forged_or_foreign_closing_does_not_begin_anything",),
    ),
    ("collector", "reports"): Line(
        "nothing, so that reports are nobody's: a bad one is named when classes open, and harms no other",
        (
            f"{COLLECTING}::test_damaged_and_repeated_reports_after_the_closing",
            "tests/unit/protocols/k_anonymity/threshold/test_bad_reports.py::test_every_kind_of_bad_report_is_named_and_harms_nobody",
        ),
    ),
    ("collector", "opened"): Line(
        "nothing: it changes nothing", (f"{COLLECTING}::test_garbage_is_refused_without_harm",)
    ),
    ("survey", "reports"): Line(
        "a token that the survey's key signed blindly, once; or nothing where anybody may answer",
        (f"{SURVEYS}::test_blind_tokens_admit_each_invited_person_once_and_join_with_nothing",),
    ),
    ("survey", "token"): Line(
        "an invitation, once",
        (f"{SURVEYS}::test_blind_tokens_admit_each_invited_person_once_and_join_with_nothing",),
    ),
    ("survey", "withdraw"): Line(
        "the report's own secret code",
        (f"{SURVEYS}::test_a_report_can_be_withdrawn_until_the_survey_is_closed",),
    ),
    ("survey", "team"): Line(
        PEER + "the team's", (f"{SURVEYS}::test_the_team_sees_figures_and_nobody_else_does",)
    ),
    ("survey", "export"): Line(
        PEER + "the exporter's",
        ("tests/survey/test_publication.py::test_exports_and_status_between_reports_follow_the_batches",),
    ),
    ("node", "begin"): Line(
        PEER + "the convener's, and the digest of a consent",
        (
            f"{HERE}::test_messages_of_a_session_come_from_those_it_is_with",
            f"{REFUSALS}::test_a_session_that_was_not_consented_to_does_not_begin",
            "tests/services/parties/test_consents.py::test_a_session_with_one_field_changed_is_refused",
        ),
    ),
    **{("node", role): CONVENER for role in ("settle", "learn", "model", "ledger", "end", CANCEL)},
    ("node", "arrange"): Line(
        CONVENER.shown_by + "; policies and records are signed by their parties",
        (
            *CONVENER.forged_in,
            f"{REFUSALS}::test_an_arrangement_is_of_the_parties_and_of_the_policies_they_have",
        ),
    ),
    ("node", "witness"): Line(
        CONVENER.shown_by + ", and the convener's signature",
        (*CONVENER.forged_in, f"{HERE}::test_an_end_of_a_ledger_that_the_convener_did_not_sign_is_not_kept"),
    ),
    **{("node", role.name): asked_by("the convener's") for role in LINKINGS},  # a role for each round
    ("node", "cells"): asked_by(
        "the convener's, or without a miner another party's",
        f"{REFUSALS}::test_a_party_gets_nothing_from_a_party_where_there_is_a_miner",
    ),
    ("node", "pooling"): asked_by("the convener's; adverts are signed by parties"),
    ("node", "products"): asked_by(
        "the convener's; masked columns are signed by their holders",
        "tests/unit/protocols/vertical/scalar_products/test_attacks.py::test_masked_columns_of_other_sessions_names_or_holders_are_refused",
    ),
    ("node", "paillier"): asked_by("the convener's"),
    ("node", "projection"): asked_by("the convener's; secrets are sealed between owners"),
    ("node", "places"): asked_by("the convener's"),
    ("node", "computation"): asked_by("the convener's; turns and deals are signed by parties"),
}
OPERATIONS = {
    "count miner": {"check", "ask", "result", "close", "status", "restored"},
    "count leader": {"status", "restored"},
    "count randomness": {"status", "restored"},
    "randomness server": {"close", "status", "restored"},
    "collector": {"open", "result", "status", "restored"},
    "node": {"create", "run", "cancel", "status", "model", "restored"},
}


@pytest.fixture(scope="module")
def services(tmp_path_factory):
    """One of each kind of service, made from examples, by the names of the list; nobody calls them yet."""
    folder = tmp_path_factory.mktemp("services")
    counted = write_count(folder / "count", protocol="frequency", records=example_records(12), minimum=10)
    mixed = write_count(folder / "mix", protocol="mix", records=example_records(12), minimum=10)
    suppressed = write_count(
        folder / "suppression", protocol="suppression", records=example_records(12), minimum=10, k=3
    )
    collected = write_collection(folder / "collect", k=3, rows=draw_example_rows(12))
    nodes = write_deployment(folder / "nodes", two_hospitals_and_a_registry("pooled-counts", 60))
    made = {
        "count miner": MinerService(load(counted["miner"], CountMinerSettings, environment={})),
        "count leader": LeaderService(load(mixed["leader1"], CountLeaderSettings, environment={})),
        "count randomness": GroupRandomnessService(
            load(suppressed["randomness"], CountRandomnessSettings, environment={})
        ),
        "randomness server": RandomnessService(
            load(collected["randomness"], RandomnessSettings, environment={})
        ),
        "collector": CollectorService(load(collected["collector"], CollectorSettings, environment={})),
        "node": Node(load(nodes["north"], PartySettings, environment={})),
    }
    yield made
    for service in made.values():
        service.close()


def kinds_of_servers(cls=NodeServer):
    """Return all classes of servers that there are."""
    for found in pkgutil.walk_packages(masquerade.services.__path__, "masquerade.services."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
    below = [one for sub in cls.__subclasses__() for one in (sub, *kinds_of_servers(sub))]
    return [one for one in below if one.__module__.startswith("masquerade.") and not one.__abstractmethods__]


def test_every_service_is_on_the_list(services):
    served = {cls for cls in kinds_of_servers() if not kinds_of_servers(cls)}
    assert served == {type(service) for service in services.values()}
    # who makes a service of another kind: the survey's, whose places are below
    source = Path(masquerade.services.__path__[0]).parent
    makers = {
        str(file.relative_to(source))
        for file in source.rglob("*.py")
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "Service"
    }
    assert makers == {"services/common/server.py", "survey/collector/collector.py"}


def test_every_place_and_role_of_every_service_has_a_line(services):
    found = {
        (name, place)
        for name, service in services.items()
        if not isinstance(service, Node)
        for place in service.places
    }
    found |= {("survey", place) for place in (*SURVEY_PLACES, "reports")}
    linking = [role.name for role in LINKINGS]
    found |= {("node", role) for role in ("begin", CANCEL, *linking, *services["node"].party._control)}
    found |= {("node", role.name) for kind in map(kinds.find, kinds.BUILT_IN) for role in kind.roles}
    assert found == set(LINES)
    assert {name: {*service.operations, "restored"} for name, service in services.items()} == OPERATIONS


@pytest.mark.parametrize(
    "where", sorted({where for line in (*LINES.values(), OPERATOR) for where in line.forged_in})
)
def test_the_test_that_forges_a_message_is_there(where):
    file, _, name = where.partition("::")
    functions = [
        it.name
        for it in ast.parse(Path(file).read_text(encoding="utf-8")).body
        if isinstance(it, ast.FunctionDef)
    ]
    assert name in functions


def rows_of(service):
    """Return everything that a service has on its disk."""
    file = service.settings.state / "state.sqlite"
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as store:
        tables = [name for (name,) in store.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        found = {name: sorted(map(repr, store.execute(f"SELECT * FROM {name}"))) for name in tables}  # noqa: S608
    ledger = service.settings.state / "releases.jsonl"
    return found, ledger.read_bytes() if ledger.exists() else b""


def callers(service, *but):
    """Return all callers, peers and one without credentials, except the given ones."""
    return [peer for peer in (*service.peers, ANYBODY) if peer.name not in but]


def say(service, peer, place, body=b"", **parameters):
    return service.handle(Call(peer, place, body, None, parameters))


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_are_the_operators_alone(name, services):
    service = services[name]
    before = rows_of(service)
    for what in OPERATIONS[name]:
        for peer in callers(service, service.settings.name):
            with pytest.raises(NotAdmitted, match="own operator"):
                say(service, peer, f"operate/{what}", b"{}", what=what)
    assert rows_of(service) == before


def test_peers_of_a_count_speak_for_themselves_alone(services):
    """The office says who is counted, the miner speaks to leaders; neither does the other's, nor anybody."""
    for_miner = {
        "count miner": (),
        "count leader": ("share", "key", "shuffle", "endorse", "open", "relay"),
        "count randomness": ("begin", "evaluate", "close"),
    }
    for name, places in for_miner.items():
        service = services[name]
        keys = {f"P{i:05d}": SigningKey() for i in range(12)}
        boxes = AgreementKey().public, AgreementKey().public
        terms = service.description.terms(
            {person: key.public for person, key in keys.items()}, boxes
        ).encode()
        before = rows_of(service)
        for peer in callers(service, service.settings.office):
            with pytest.raises(NotAdmitted, match="Only the enrolment office"):
                say(service, peer, "enrol", terms)
        for place in places:
            for peer in callers(service, "miner"):
                with pytest.raises(NotAdmitted, match="Only the miner"):
                    say(service, peer, place, b"")
        assert rows_of(service) == before
        assert service.terms is None


# sessions, of every kind


IN_ROUNDS = "revealed-vertical-counts in rounds"
ROUNDS = [[f"field{number}"] for number in range(len(LINKINGS))]


@pytest.fixture(scope="module", params=[*kinds.BUILT_IN, IN_ROUNDS])
def party(request, tmp_path_factory):
    """A party at which its convener has begun a session, not served; and the session."""
    folder = tmp_path_factory.mktemp("session") / "nodes"
    plan = two_hospitals_and_a_registry(request.param.partition(" ")[0], 60)
    files = write_deployment(
        folder, replace(plan, terms={"link_by": ROUNDS}) if request.param == IN_ROUNDS else plan
    )
    spec = load(folder / "session.yaml", SessionSpec, environment={})
    name = next(party for party in spec.parties if party != spec.convener)
    if request.param == IN_ROUNDS:
        values = yaml.safe_load(files[name].read_text())
        values["data"]["link_fields"] = {field: "person" for [field] in ROUNDS}
        files[name].write_text(yaml.safe_dump(values))
    node = Node(load(files[name], PartySettings, environment={}))
    message = {"spec": spec.model_dump(mode="json"), "epoch": EPOCH.hex()}
    to(node, spec.convener, spec, "begin", message)
    yield node, spec, message
    node.close()


def to(node, peer, spec, role, message, session=None):
    """Send a message of a session to a node, as a peer or without credentials."""
    who = next((one for one in node.peers if one.name == peer), ANYBODY)
    session, body = (
        session or spec.session,
        message if isinstance(message, bytes) else json.dumps(message).encode(),
    )
    return say(node, who, f"sessions/{session}/{role}", body, session=session, role=role)


def standing(node, spec):
    """Return everything that a message could have changed."""
    part = node.party._open[spec.session]
    inside = (part.epoch, part.spec, part.joint, part.linkage, tuple(part._players), part.cancelled)
    return rows_of(node), inside


def roles_of(node, spec):
    return [*node.party._control, CANCEL, *node.party._open[spec.session].roles]


def test_messages_of_a_session_come_from_those_it_is_with(party):
    """Every control message and every role, from every peer who may not send it, and from nobody known."""
    node, spec, message = party
    before = standing(node, spec)
    others = [peer.name for peer in callers(node, spec.convener)]
    assert len(others) >= 2
    for name in others:
        with pytest.raises(QueryRefused, match="does not convene it"):
            to(node, name, spec, "begin", message)
        for role in roles_of(node, spec):
            known = node.party._open[spec.session].roles.get(role)
            if known is not None and name in known.askers(spec, node.settings.name):
                continue
            with pytest.raises(QueryRefused, match=r"does not convene it|may not ask for this"):
                to(node, name, spec, role, {"epoch": EPOCH.hex()})
    assert standing(node, spec) == before


def test_messages_of_another_epoch_or_session_change_nothing(party):
    """The convener's own, sent again: what it said in an earlier epoch, or about another session."""
    node, spec, message = party
    before = standing(node, spec)
    whole = {
        "arrange": {"policies": {}, "signatures": {}},
        "model": {"model": {}},
        "witness": {"end": "", "signature": "0" * 128},
    }
    for role in (*node.party._control, CANCEL):
        with pytest.raises(InputError, match="another epoch"):
            to(node, spec.convener, spec, role, {"epoch": bytes(16).hex(), **whole.get(role, {})})
        with pytest.raises(MasqueradeError, match="has not begun here"):
            to(node, spec.convener, spec, role, {"epoch": EPOCH.hex()}, session="other")
    with pytest.raises(InputError, match="session that differs from the one in its path"):
        to(node, spec.convener, spec, "begin", message, session="other")
    assert standing(node, spec) == before


def test_an_end_of_a_ledger_that_the_convener_did_not_sign_is_not_kept(party):
    """Not by a stranger's key, nor where the party knows no identity of the convener's to check it by."""
    node, spec, _ = party
    end = node.party.store.ledger_end().encode()
    shown = {"epoch": EPOCH.hex(), "end": end.decode("ascii")}
    before = standing(node, spec)
    forged = {**shown, "signature": SigningKey().sign(WITNESS, end).hex()}
    with pytest.raises(SealBroken):
        to(node, spec.convener, spec, "witness", forged)
    peers = node.settings.peers
    unknown = peers[spec.convener].model_copy(update={"identity": None})
    settings = node.party.settings
    node.party.settings = settings.model_copy(update={"peers": {**peers, spec.convener: unknown}})
    try:
        with pytest.raises(InputError, match="No identity is known"):
            to(node, spec.convener, spec, "witness", forged)
    finally:
        node.party.settings = settings
    assert standing(node, spec) == before


def test_a_helper_answers_its_convener_alone(tmp_path):
    files = write_deployment(tmp_path / "nodes", two_hospitals_and_a_registry("hidden-tree", 60))
    spec = load(tmp_path / "nodes" / "session.yaml", SessionSpec, environment={})
    with closing(Node(load(files[spec.helper], MinerSettings, environment={}))) as node:
        message = {"spec": spec.model_dump(mode="json"), "epoch": EPOCH.hex()}
        for peer in callers(node, spec.convener):
            with pytest.raises(QueryRefused, match="does not convene it"):
                to(node, peer.name, spec, "begin", message)
        to(node, spec.convener, spec, "begin", message)
        before = standing(node, spec)
        for peer in callers(node, spec.convener):
            for role in roles_of(node, spec):
                with pytest.raises(QueryRefused, match=r"does not convene it|may not ask for this"):
                    to(node, peer.name, spec, role, {"epoch": EPOCH.hex()})
        assert standing(node, spec) == before
