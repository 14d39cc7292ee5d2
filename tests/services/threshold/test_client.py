"""The client's durable record, and a request that is made again after an interruption."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from masquerade.core.errors import FileError, InputError
from masquerade.crypto.errors import DecodingError, SealBroken
from masquerade.crypto.keys import SigningKey
from masquerade.protocols.k_anonymity.threshold.evaluation_ledger import EvaluationLedger
from masquerade.protocols.k_anonymity.threshold.messages import Credential, Notice, ThresholdTerms
from masquerade.protocols.k_anonymity.threshold.roles import Client, Collector, RandomnessServer
from masquerade.services.threshold.messages import ClientRecord, RequestBatch, ShownNotice, mark_of

KEY = SigningKey()
RECORD = ClientRecord(b"a notice", bytes(range(32)), b"kept", b"", delivered=False)


@pytest.fixture
def server():
    return RandomnessServer(os.urandom(32), EvaluationLedger(), signing=KEY)


def client_of(server, notice, person="anna"):
    published = Notice.decode(notice).digest
    return Client(server.enrol(person), notice, identity=KEY.public, published=published)


def test_a_server_signs_with_the_identity_it_is_given(server):
    notice = server.open(ThresholdTerms("spring", 2, 4, 4).encode())
    assert server.identity == KEY.public
    Notice.decode(notice).verify(KEY.public)


def test_an_interrupted_client_makes_the_same_request_and_a_report_that_opens(server):
    notice = server.open(ThresholdTerms("spring", 2, 4, 4).encode())
    first = client_of(server, notice)
    with pytest.raises(InputError, match="no state to store"):
        first.stored_state()
    request = first.request(b"qi")
    kept = first.stored_state()
    server.evaluate([request])  # whose reply is lost, and the client with it
    second = client_of(server, notice)
    assert second.resume(b"qi", kept) == request
    assert second.resume(b"qi", kept) == request
    other = client_of(server, notice, "ben")
    reports = [
        second.report(server.evaluate([request])[0], b"yes"),
        other.report(server.evaluate([other.request(b"qi")])[0], b"no"),
    ]
    collector = Collector(notice, identity=KEY.public, k=2)
    collector.begin(server.close("spring"))
    collector.take(b"".join(reports))
    assert sorted(collector.open_classes().rows()) == [(b"qi", b"no"), (b"qi", b"yes")]


def test_what_was_kept_is_read_strictly(server):
    notice = server.open(ThresholdTerms("spring", 2, 4, 4).encode())
    for kept in (b"", b"\xff" * 32, bytes(31)):
        with pytest.raises(DecodingError):
            client_of(server, notice).resume(b"qi", kept)


def test_a_record_is_private_and_comes_back_whole(tmp_path):
    path = tmp_path / "anna.record"
    assert ClientRecord.load(path) is None
    RECORD.save(path)
    assert ClientRecord.load(path) == RECORD
    assert path.stat().st_mode & 0o777 == 0o600
    assert "kept" not in repr(RECORD)
    path.write_bytes(RECORD.encode()[:-1])
    with pytest.raises(FileError, match="is damaged"):
        ClientRecord.load(path)


def test_a_mark_tells_rows_apart_to_the_holder_of_the_credential_alone():
    one, other = Credential(bytes(16), bytes(32)), Credential(bytes(16), b"\x01" * 32)
    marks = {mark_of(one, b"ab", b"c"), mark_of(one, b"a", b"bc"), mark_of(other, b"ab", b"c")}
    assert len(marks) == 3
    assert mark_of(one, b"ab", b"c") in marks


def test_what_the_collector_was_shown_is_signed_by_it():
    shown = ShownNotice.decode(ShownNotice.sign(b"notice", KEY).encode())
    shown.verify(KEY.public)
    with pytest.raises(SealBroken):
        shown.verify(SigningKey().public)
    with pytest.raises(SealBroken):
        ShownNotice(b"another", shown.signature).verify(KEY.public)


@pytest.mark.parametrize("kind", [RequestBatch, ShownNotice, ClientRecord])
@given(data=st.binary(max_size=200))
def test_random_bytes_are_undecodable(kind, data):
    for given_ in (data, (len(kind.TAG)).to_bytes(4, "big") + kind.TAG + data):
        try:
            message = kind.decode(given_)
        except DecodingError:
            continue
        assert message.encode() == given_
