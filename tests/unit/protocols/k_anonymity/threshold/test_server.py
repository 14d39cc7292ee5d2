"""The randomness server: once for each credential, never after closing, always with its one key."""

import sqlite3
from contextlib import closing

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.unit.protocols.k_anonymity.threshold.world import SEED, World

from masquerade.core.errors import FileError, InputError, QueryRefused, RoundAborted
from masquerade.crypto import oprf
from masquerade.crypto.errors import DecodingError, SealBroken
from masquerade.crypto.ristretto255 import ristretto255 as group
from masquerade.protocols.k_anonymity.threshold.class_opening import Verdict
from masquerade.protocols.k_anonymity.threshold.evaluation_ledger import EvaluationLedger
from masquerade.protocols.k_anonymity.threshold.messages import (
    Closing,
    Credential,
    Evaluation,
    EvaluationRefusal,
    Notice,
    Request,
    ThresholdTerms,
    read_reply,
)
from masquerade.protocols.k_anonymity.threshold.roles import Client, Collector, RandomnessServer


def reason(reply):
    answer = read_reply(reply)
    return answer.reason if isinstance(answer, EvaluationRefusal) else None


def evaluated(reply):
    answer = read_reply(reply)
    assert isinstance(answer, Evaluation)
    return answer.evaluated[32 * answer.place : 32 * answer.place + 32]


def element():
    return group.multiply_generator(group.random_secret()).encode()


def request_of(world, person, point=None):
    credential = Credential.decode(world.server.enrol(person))
    return Request.make(world.published, credential, point or element()).encode()


def test_a_second_evaluation_is_refused_and_a_repeated_one_tells_nothing_new():
    world = World()
    first = request_of(world, "ann")
    (reply,) = world.server.evaluate([first])
    (again,) = world.server.evaluate([first])
    assert evaluated(again) == evaluated(reply)
    assert [reason(r) for r in world.server.evaluate([request_of(world, "ann")])] == ["already_spent"]
    with pytest.raises(QueryRefused, match="already used in this epoch") as caught:
        _report(world, "ann")
    assert caught.value.refusals[0].code == "already_spent"


def _report(world, person):
    client = world.client(person)
    (reply,) = world.server.evaluate([client.request(b"07030")])
    return client.report(reply, b"polio")


def test_two_requests_of_one_credential_in_one_batch():
    world = World()
    batch = [request_of(world, "ann"), request_of(world, "bob"), request_of(world, "ann")]
    assert [reason(reply) for reply in world.server.evaluate(batch)] == [None, None, "already_spent"]


def test_bad_requests_are_refused_one_by_one_and_the_others_served():
    world = World()
    other = World(server=RandomnessServer(bytes(32), EvaluationLedger()))
    good = request_of(world, "ann")
    stranger = Request.make(world.published, Credential(bytes(16), bytes(32)), element()).encode()
    spoilt = Request.decode(request_of(world, "bob"))
    swapped = Request(spoilt.notice, spoilt.credential, element(), spoilt.code).encode()
    identity = Request.make(world.published, Credential.decode(world.server.enrol("cat")), bytes(32)).encode()
    batch = [b"", stranger, swapped, identity, request_of(other, "ann"), good, good + b"\0"]
    reasons = [reason(reply) for reply in world.server.evaluate(batch)]
    expected = ["malformed", "not_enrolled", "not_enrolled", "malformed", "unknown_epoch", None, "malformed"]
    assert reasons == expected


def test_a_closed_epoch_evaluates_nothing_and_says_so_signed():
    world = World()
    world.server.evaluate([request_of(world, "ann")])
    closing = Closing.decode(world.server.close("spring"))
    closing.verify(world.server.identity)
    assert (closing.notice, closing.evaluations) == (world.published, 1)
    assert world.server._keys == {}
    assert [reason(r) for r in world.server.evaluate([request_of(world, "bob")])] == ["epoch_closed"]
    assert world.server.close("spring") == closing.encode()
    with pytest.raises(InputError, match="used once"):
        world.server.open(world.terms.encode())
    with pytest.raises(InputError, match="no epoch"):
        world.server.close("winter")


def test_epochs_do_not_share_keys_or_uses():
    world = World()
    summer = World(ThresholdTerms("summer", 3, 12, 16), server=world.server)
    point = element()
    spring_reply, summer_reply = world.server.evaluate(
        [
            request_of(world, "ann", point),
            request_of(summer, "ann", point),
        ]
    )
    assert evaluated(spring_reply) != evaluated(summer_reply)


def test_what_was_spent_survives_a_restart_and_keys_do_not(tmp_path):
    world = World(ledger=EvaluationLedger(tmp_path / "ledger"))
    request = request_of(world, "ann")
    world.server.evaluate([request])
    key = group.encode_scalar(world.server._keys["spring"].secret.reveal())
    world.server._ledger.close()
    assert key not in (tmp_path / "ledger").read_bytes()
    assert (tmp_path / "ledger").stat().st_mode & 0o077 == 0

    ledger = EvaluationLedger(tmp_path / "ledger")
    again = RandomnessServer(SEED, ledger)
    assert again.identity == world.server.identity
    assert again.enrol("ann") == world.server.enrol("ann") != again.enrol("bob")
    assert again.notice("spring") == world.notice
    assert [reason(reply) for reply in again.evaluate([request])] == ["key_lost"]
    assert not any(ledger.spend("spring", [(Request.decode(request).credential, bytes(16))]))
    assert Closing.decode(again.close("spring")).evaluations == 1
    assert ledger.finished("spring")
    assert [reason(reply) for reply in again.evaluate([request])] == ["epoch_closed"]
    ledger.close()
    with pytest.raises(FileError, match="cannot be read or written"):
        EvaluationLedger(tmp_path / "no" / "ledger")


def test_a_ledger_of_the_first_version_opens(tmp_path):
    with closing(sqlite3.connect(tmp_path / "ledger")) as first:
        first.execute(
            "CREATE TABLE epochs (number INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL, "
            "notice BLOB NOT NULL, finished INTEGER NOT NULL DEFAULT 0)"
        )
        first.execute(
            "CREATE TABLE uses (epoch INTEGER NOT NULL, credential BLOB NOT NULL, "
            "mark BLOB NOT NULL, PRIMARY KEY (epoch, credential)) WITHOUT ROWID"
        )
        first.execute("INSERT INTO epochs VALUES (1, 'spring', x'00ff', 0)")
        first.execute("INSERT INTO uses VALUES (1, x'01', x'02')")
        first.commit()
    for _ in range(2):
        with closing(EvaluationLedger(tmp_path / "ledger")) as ledger:
            assert ledger.epochs() == {"spring": b"\0\xff"}
            assert (ledger.count_spent("spring"), ledger.finished("spring")) == (1, False)
            assert ledger.spend("spring", [(b"\1", b"\2"), (b"\1", b"\3")]) == [True, False]


def test_nothing_leaves_if_the_ledger_cannot_remember():
    class Broken(EvaluationLedger):
        def spend(self, epoch, uses):
            raise OSError(f"no space left for {len(uses)} uses of {epoch}")

    world = World(ledger=Broken())
    with pytest.raises(OSError, match="no space"):
        world.server.evaluate([request_of(world, "ann")])


def test_a_server_that_uses_another_key_is_caught_and_named():
    world = World()
    client = world.client("ann")
    request = client.request(b"07030")
    world.server._keys["spring"] = oprf.random_key()  # not the published one
    (reply,) = world.server.evaluate([request])
    with pytest.raises(RoundAborted, match="published key") as caught:
        client.report(reply, b"polio")
    assert caught.value.spent
    assert caught.value.culprits == ("randomness server",)


def test_replies_that_were_tampered_with_are_refused():
    world = World()
    ann, bob = world.client("ann"), world.client("bob")
    replies = world.server.evaluate([ann.request(b"07030"), bob.request(b"07029")])
    with pytest.raises(RoundAborted, match="different request"):
        ann.report(replies[1], b"polio")
    answer = read_reply(replies[0])
    spoilt = Evaluation(answer.elements, answer.evaluated[::-1], answer.proof, answer.place)
    swapped = Evaluation(answer.elements, answer.evaluated[32:] + answer.evaluated[:32], answer.proof, 0)
    for bad in (spoilt, swapped, Evaluation(answer.elements, answer.evaluated, bytes(64), 0)):
        with pytest.raises(RoundAborted, match="did not prove"):
            ann.report(bad.encode(), b"polio")
    with pytest.raises(DecodingError):
        ann.report(replies[0] + b"\0", b"polio")
    assert len(ann.report(replies[0], b"polio")) == world.layout.size  # the honest one still serves


def test_a_client_asks_once_and_reports_once():
    world = World()
    client = world.client("ann")
    with pytest.raises(InputError, match="Make a request before"):
        client.report(EvaluationRefusal("malformed").encode(), b"")
    request = client.request(b"07030")
    assert client.request(b"07030") == request
    with pytest.raises(InputError, match="one quasi-identifier"):
        client.request(b"07031")
    (reply,) = world.server.evaluate([request])
    report = client.report(reply, b"polio")
    assert client.report(reply, b"polio") == report
    with pytest.raises(InputError, match="one report"):
        client.report(reply, b"colitis")


def test_a_server_that_gives_people_different_keys_is_caught():
    first = World()
    second = World(server=RandomnessServer(SEED, EvaluationLedger()))  # the same identity, another key
    assert first.server.identity == second.server.identity
    with pytest.raises(SealBroken, match="published"):
        Client(
            first.server.enrol("ann"),
            second.notice,
            identity=first.server.identity,
            published=first.published,
        )
    notices = Notice.decode(first.notice), Notice.decode(second.notice)
    for notice in notices:  # both signed, for one epoch: evidence that anybody can check
        notice.verify(first.server.identity)
    assert notices[0].terms == notices[1].terms
    assert notices[0].digest != notices[1].digest
    # a client that does not look is noticed by the collector
    reports = first.reports([(b"07030", b"polio")] * 3)
    opening = first.opening([*reports, *second.reports([(b"07030", b"stroke")])])
    assert [fault.verdict for fault in opening.faults()] == [Verdict.OTHER_NOTICE]
    assert opening.opened == 3


def test_a_notice_by_somebody_else_is_refused():
    world, other = World(), World(server=RandomnessServer(bytes(32), EvaluationLedger()))
    digest = Notice.decode(other.notice).digest
    with pytest.raises(SealBroken, match="signature"):
        Client(world.server.enrol("ann"), other.notice, identity=world.server.identity, published=digest)
    with pytest.raises(SealBroken, match="signature"):
        Collector(other.notice, identity=world.server.identity, k=3)


def test_parameters_are_checked():
    with pytest.raises(InputError, match="32 bytes"):
        RandomnessServer(b"short", EvaluationLedger())
    with pytest.raises(InputError, match="'together'"):
        RandomnessServer(SEED, EvaluationLedger(), together=65)
    with pytest.raises(InputError, match="must not be empty"):
        World().server.enrol("")
    with pytest.raises(QueryRefused, match="no epoch"):
        World().server.notice("winter")


class Serving(RuleBasedStateMachine):
    """Requests repeated, reordered and made by several people: one element each, until the end."""

    def __init__(self):
        super().__init__()
        self.world = World()
        self.closed = False
        self.served = {}
        self.made = {}

    @rule(batch=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2)), max_size=6))
    def ask(self, batch):
        requests = [self.made.setdefault((person, i), request_of(self.world, person)) for person, i in batch]
        for (person, i), reply in zip(batch, self.world.server.evaluate(requests), strict=True):
            if self.closed:
                assert reason(reply) == "epoch_closed"
            elif reason(reply) is None:
                assert self.served.setdefault(person, i) == i
            else:
                assert reason(reply) == "already_spent"
                assert self.served[person] != i

    @rule()
    def close(self):
        self.world.server.close("spring")
        self.closed = True

    @invariant()
    def the_count_is_right(self):
        assert self.world.server._ledger.count_spent("spring") == len(self.served)


TestServing = Serving.TestCase
TestServing.settings = settings(max_examples=8, stateful_step_count=8, deadline=None)
