"""What is refused over HTTPS: second evaluations, early and damaged reports, and people who may not ask."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.services.threshold.world import K, World, labels

from masquerade.core.errors import InputError, QueryRefused, UnknownValue
from masquerade.crypto.class_secrets import TAG_SIZE, key_of, secret_of
from masquerade.crypto.errors import SealBroken
from masquerade.crypto.keys import SigningKey
from masquerade.crypto.oprf import output_of
from masquerade.crypto.symmetric import unseal
from masquerade.protocols.k_anonymity.threshold.messages import (
    Closing,
    Credential,
    Evaluation,
    EvaluationRefusal,
    Notice,
    read_reply,
)
from masquerade.protocols.k_anonymity.threshold.roles import Client, tag_in
from masquerade.services.common.client import HttpTransport
from masquerade.services.common.peers import Peer, TlsFiles
from masquerade.services.common.problems import NotAdmitted, PartyUnreachable
from masquerade.services.threshold.client import COLLECTOR, RANDOMNESS, deliver_all
from masquerade.services.threshold.messages import MOST_TOGETHER, ClientRecord, RequestBatch, mark_of


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    made = World(tmp_path_factory.mktemp("hostile") / "world")
    with made.served():
        yield made


@pytest.fixture(scope="module")
def to(world):
    with world.collection() as made:
        yield made


def evaluated(to, *requests):
    replies = RequestBatch.decode(
        to.exchange(RANDOMNESS, RequestBatch(requests).encode(), place="evaluate")
    ).items
    return [read_reply(reply) for reply in replies]


def asker(to, credential):
    notice = to.notice()
    return Client(
        credential, notice, identity=to.identities[RANDOMNESS], published=Notice.decode(notice).digest
    )


def row_of(world, person, i=0):
    return {**world.rows[i], "person": person}


def test_a_dictionary_of_quasi_identifiers_ends_at_the_second_evaluation(world, to):
    (credential,) = world.enrol("curious").values()
    guesses = [to.form.fill(labels(world.rows[i]))[0] for i in (0, 20, 41)]
    answers = [evaluated(to, asker(to, credential).request(guess))[0] for guess in guesses]
    assert isinstance(answers[0], Evaluation)
    assert answers[1:] == [EvaluationRefusal("already_spent")] * 2
    together = [asker(to, credential).request(guess) for guess in guesses]
    assert evaluated(to, *together) == [EvaluationRefusal("already_spent")] * 3
    world.enrol("curious")  # enrolled again, it is the same credential
    assert evaluated(to, *together) == [EvaluationRefusal("already_spent")] * 3


def test_a_dictionary_in_one_message_gets_one_evaluation(world, to):
    (credential,) = world.enrol("hasty").values()
    guesses = [to.form.fill(labels(world.rows[i]))[0] for i in (0, 20, 41)]
    answers = evaluated(to, *[asker(to, credential).request(guess) for guess in guesses])
    assert [type(answer) for answer in answers] == [Evaluation, EvaluationRefusal, EvaluationRefusal]


def test_a_lost_reply_is_asked_for_again_and_counts_once(world, to, monkeypatch):
    (credential,) = world.enrol("unlucky").values()
    row = row_of(world, "unlucky")
    before = world.operate("randomness", "status")["evaluations"]

    def losing(server, message, *, place):
        answer = type(to).exchange(to, server, message, place=place)
        if place == "evaluate":
            raise PartyUnreachable("The line went dead.")
        return answer

    monkeypatch.setattr(to, "exchange", losing)
    with pytest.raises(PartyUnreachable):
        world.submission(row, credential, to).ask()
    monkeypatch.undo()
    assert ClientRecord.load(world.record("unlucky")).kept != b""
    world.submission(row, credential, to).ask()  # another process, the same record
    report = world.report("unlucky")
    world.submission(row, credential, to).ask()
    assert world.report("unlucky") == report
    assert world.operate("randomness", "status")["evaluations"] == before + 1


def test_a_second_row_or_a_lost_record_is_refused(world, to):
    (credential,) = world.enrol("wavering").values()
    world.submission(row_of(world, "wavering"), credential, to).ask()
    with pytest.raises(InputError, match="another row was started"):
        world.submission(row_of(world, "wavering", i=1), credential, to)
    world.record("wavering").unlink()
    with pytest.raises(QueryRefused) as refused:
        world.submission(row_of(world, "wavering"), credential, to).ask()
    assert refused.value.refusals[0].code == "already_spent"


def guessed(world, to, person, credential):
    """Return the rows that a thief of a record and its credential takes for the person's."""
    record, key = ClientRecord.load(world.record(person)), Credential.decode(credential)
    return [row for row in world.rows if mark_of(key, *to.form.fill(labels(row))) == record.mark]


def test_a_stolen_record_tells_the_row_to_a_dictionary_until_it_is_delivered(tmp_path):
    world = World(tmp_path / "world")
    rows = world.rows[:K]
    with world.served(), world.collection() as to:
        made, credentials = world.everybody(to, rows), world.enrol(*[row["person"] for row in rows])
        for row in rows:  # the attack: people have few rows to choose from
            assert guessed(world, to, row["person"], credentials[row["person"]]) == [row]
        world.operate("randomness", "close")
        for row, one in zip(rows, made, strict=True):
            assert one.deliver()
            assert guessed(world, to, row["person"], credentials[row["person"]]) == []
        again = world.submission(rows[0], credentials[rows[0]["person"]], to)
        assert again.deliver()  # as before, and nothing is sent
        assert world.operate("collector", "open")["received"] == K


def opened_by_a_member(layout, secret, report):
    """Return the row that a member of a class reads in a stolen report of its class, None if it cannot."""
    tag, sealed = layout.read(report)["tag"][0].tobytes(), layout.read(report)["sealed"][0].tobytes()
    try:
        return unseal(key_of(secret), sealed, layout.bound_to(tag))
    except SealBroken:
        return None


def test_a_stolen_record_shows_the_row_to_a_member_of_the_class_until_it_is_delivered(tmp_path):
    """Also of a class that never opens: every member knows what its reports are sealed with."""
    world = World(tmp_path / "world")
    row, member = world.rows[-1], row_of(world, "member", -1)
    with world.served(), world.collection() as to:
        credentials = world.enrol(row["person"], "member")
        one = world.submission(row, credentials[row["person"]], to)
        one.ask()
        quasi, sensitive = to.form.fill(labels(row))
        client = asker(to, credentials["member"])
        [reply] = evaluated(to, client.request(to.form.fill(labels(member))[0]))
        unblinded = client._unblind(reply.encode())
        secret, layout = secret_of(output_of(to.terms.input_of(quasi), unblinded)), world.layout(to)
        stolen = ClientRecord.load(world.record(row["person"])).report
        assert sensitive in opened_by_a_member(layout, secret, stolen)  # the attack
        world.operate("randomness", "close")
        assert one.deliver()
        left = ClientRecord.load(world.record(row["person"])).report
        assert opened_by_a_member(layout, secret, left) is None
        assert tag_in(layout, left) == tag_in(layout, stolen)  # by which the person knows whether it opened
        assert left.count(0) >= len(left) - TAG_SIZE  # and nothing by which a collector would know the report
        place = world.record(row["person"])
        replace(ClientRecord.load(place), report=stolen).save(place)  # as earlier versions left it
        assert world.submission(row, credentials[row["person"]], to).deliver()
        assert ClientRecord.load(place).report == left
        assert world.operate("collector", "open")["received"] == 1


def test_without_a_credential_nothing_is_evaluated(world, to):
    made_up = Credential(bytes(16), bytes(32)).encode()
    with pytest.raises(QueryRefused) as refused:
        world.submission(row_of(world, "nobody"), made_up, to).ask()
    assert refused.value.refusals[0].code == "not_enrolled"


def test_reports_before_the_closing_are_refused_and_none_leaves(world, to):
    (credential,) = world.enrol("early").values()
    one = world.submission(row_of(world, "early"), credential, to)
    with pytest.raises(InputError, match="ask first"):
        one.deliver()
    one.ask()
    assert deliver_all([one]) == 1
    report = world.report("early")
    with pytest.raises(QueryRefused) as refused:
        to.exchange(COLLECTOR, report, place="reports")
    assert refused.value.refusals[0].code == "epoch_open"
    assert world.operate("collector", "status")["reports"] == 0


@pytest.mark.parametrize("place", ["reports", "begin", "evaluate", "enrol", "notice", "closing"])
@pytest.mark.parametrize("body", [b"", b"\x00", b"garbage" * 50, bytes(1000), b"\xff" * 300])
def test_garbage_is_refused_without_harm(world, place, body):
    for name in ("randomness", "collector"):
        status, _ = world.raw(name, place, body)
        asks_for_the_epoch = place == "notice" and (name == "collector" or body == b"")
        assert status == 200 if asks_for_the_epoch else 400 <= status < 500, (name, status)


def test_garbage_inside_a_batch_is_refused_beside_good_requests(world, to):
    (credential,) = world.enrol("mixed").values()
    good = asker(to, credential).request(to.form.fill(labels(world.rows[0]))[0])
    first, second, third = evaluated(to, b"nonsense", good, good[:-1])
    assert (first, third) == (EvaluationRefusal("malformed"), EvaluationRefusal("malformed"))
    assert isinstance(second, Evaluation)
    flipped = good[:-1] + bytes([good[-1] ^ 1])
    assert evaluated(to, flipped) == [EvaluationRefusal("not_enrolled")]
    status, said = world.raw("randomness", "evaluate", RequestBatch((good,) * MOST_TOGETHER).encode()[:-1])
    assert (status, json.loads(said)["error"]) == (400, "undecodable")


def test_a_body_beyond_the_limit_is_refused(world):
    most = world.settings("collector").limits.body_bytes
    for name, place in (("collector", "reports"), ("randomness", "evaluate")):
        assert world.said(name, place, bytes(most + 1)) == (413, "too_large")


def test_only_the_office_enrols_and_only_the_operator_operates(world):
    names = json.dumps({"people": ["mallory"]}).encode()
    assert world.said("randomness", "enrol", names) == (403, "not_admitted")
    for name, what in (
        ("randomness", "close"),
        ("randomness", "status"),
        ("collector", "open"),
        ("collector", "result"),
    ):
        assert world.said(name, f"operate/{what}", b"{}") == (403, "not_admitted")
    for who in ("collector", "office"):
        with as_somebody(world, who, "randomness") as http, pytest.raises(NotAdmitted, match="own operator"):
            http.post_json("server", "operate/close", {})
    with as_somebody(world, "collector", "randomness") as http, pytest.raises(NotAdmitted, match="office"):
        http.post_json("server", "enrol", {"people": ["mallory"]})
    assert world.operate("randomness", "status")["state"] == "open"


def as_somebody(world, who, name):
    tls, settings = world.folder / "tls", world.settings("collection")
    server = getattr(settings, name)
    return HttpTransport(
        who,
        [Peer("server", server.url, server.fingerprints)],
        tls=TlsFiles(tls / f"{who}.pem", tls / f"{who}.key", tls / "ca.pem"),
        retries=0,
    )


@pytest.mark.parametrize("people", [[], [""], ["x" * 201], [3], "anna", None, ["a"] * 1001])
def test_the_office_names_people_properly(world, people):
    with as_somebody(world, "office", "randomness") as http, pytest.raises(InputError, match="people"):
        http.post_json("server", "enrol", {"people": people})


@pytest.mark.parametrize("names", [("../up",), (".hidden",), ("a b",), ("",), ("a", "a")])
def test_names_that_are_no_file_names_are_refused_by_the_office(world, names):
    with pytest.raises(InputError):
        world.enrol(*names)


def test_a_forged_or_foreign_closing_does_not_begin_anything(world, to):
    digest = Notice.decode(to.notice()).digest
    for closing in (
        Closing.sign(digest, 3, SigningKey()),
        Closing.sign(bytes(32), 3, world.running["randomness"][1].identity),
    ):
        status, code = world.said("collector", "begin", closing.encode())
        assert (status, code) == (422, "seal_broken")
    assert world.operate("collector", "status")["state"] == "waiting"
    with pytest.raises(QueryRefused):
        world.operate("collector", "open")


def test_a_value_outside_the_form_is_not_shown(world, to):
    (credential,) = world.enrol("odd").values()
    with pytest.raises(UnknownValue) as error:
        world.submission({**world.rows[0], "person": "odd", "illness": "leprosy"}, credential, to)
    assert "leprosy" not in str(error.value)
    assert not world.record("odd").exists()


def test_damaged_and_repeated_reports_after_the_closing(tmp_path):
    """The last of an epoch: truncated, too long, repeated in one run and in another, and too many."""
    world = World(tmp_path / "world")
    settings = world.files["collector"]
    settings.write_text(settings.read_text() + "most_reports: 7\n")
    with world.served("randomness"), world.collection(retries=0) as to:
        credentials = world.enrol(*[row["person"] for row in world.rows[:K]])
        row = world.rows[0]
        with pytest.raises(PartyUnreachable):  # the collector has to show the notice, too
            world.submission(row, credentials["P000"], to).ask()
        assert not world.record("P000").exists()
        world.start("collector")
        made = world.everybody(to, world.rows[:K])
        world.stop("collector")
        told = world.operate("randomness", "close")
        assert not told["collector_told"]
        assert "collector" in told["problem"]
        world.start("collector")
        assert world.operate("collector", "status")["state"] == "waiting"
        assert all(one.deliver() for one in made)  # people bring the closing themselves
        assert all(one.deliver() for one in made)
        reports = [world.report(row["person"]) for row in world.rows[:K]]
        size = len(reports[0])
        for damaged in (reports[0][:-1], reports[0] + b"\x00", reports[0] * 2 + b"x"):
            assert world.said("collector", "reports", damaged) == (400, "undecodable")
        for again in (reports[0], reports[0] * 3, b"".join(reports)):
            status, said = world.raw("collector", "reports", again)
            assert (status, json.loads(said)) == (200, {"taken": len(again) // size})
        assert world.operate("collector", "status")["reports"] == K
        noise = [bytes([i]) * size for i in (1, 2, 3)]
        assert world.said("collector", "reports", b"".join(noise)) == (409, "query_refused")
        assert world.raw("collector", "reports", b"".join(noise[:2]))[0] == 200
        late = asker(to, credentials["P001"]).request(to.form.fill(labels(world.rows[1]))[0])
        assert evaluated(to, late) == [EvaluationRefusal("epoch_closed")]
        opened = world.operate("collector", "open")
        assert (opened["opened"], opened["received"], opened["bad_reports"]) == (K, K + 2, 2)
