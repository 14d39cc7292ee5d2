"""Every message has one encoding, and whatever is not it raises the one decoding error."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.protocols.threshold.world import World

from masquerade.core.errors import InputError
from masquerade.crypto.errors import DecodingError
from masquerade.protocols.threshold.agreement import Closing, Notice, Terms
from masquerade.protocols.threshold.faithful import Deal, Dealer, Dealing, Submission, User
from masquerade.protocols.threshold.oprf_messages import Credential, Evaluation, Refused, Request, read_reply


def samples():
    world = World()
    client = world.client("ann")
    request = client.request(b"07030")
    (reply,) = world.server.evaluate([request])
    dealer = Dealer("talk", k=2, users=3, sensitive_size=8)
    user = User(dealer.dealing(), dealer.deal(1))
    return {
        Terms: world.terms.encode(),
        Notice: world.notice,
        Credential: world.server.enrol("ann"),
        Request: request,
        Evaluation: reply,
        Refused: Refused("already_spent").encode(),
        Closing: world.server.close("spring"),
        Dealing: dealer.dealing(),
        Deal: dealer.deal(1),
        Submission: user.submit(b"07030", b"polio"),
    }


SAMPLES = samples()


@pytest.mark.parametrize("kind", SAMPLES, ids=lambda kind: kind.__name__)
def test_messages_survive_the_journey(kind):
    assert kind.decode(SAMPLES[kind]).encode() == SAMPLES[kind]


@pytest.mark.parametrize("kind", SAMPLES, ids=lambda kind: kind.__name__)
def test_cut_short_or_prolonged_messages_do_not_decode(kind):
    for at in range(len(SAMPLES[kind])):
        with pytest.raises(DecodingError):
            kind.decode(SAMPLES[kind][:at])
    with pytest.raises(DecodingError):
        kind.decode(SAMPLES[kind] + b"\0")


@pytest.mark.parametrize("kind", SAMPLES, ids=lambda kind: kind.__name__)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_changed_messages_decode_canonically_or_not_at_all(kind, data):
    changed = bytearray(SAMPLES[kind])
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    try:
        message = kind.decode(bytes(changed))
    except DecodingError:
        return
    assert message.encode() == bytes(changed)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300))
def test_noise_is_no_message(noise):
    for read in (*(kind.decode for kind in SAMPLES), read_reply):
        with pytest.raises(DecodingError):
            read(noise)


def test_secrets_are_not_shown():
    credential = Credential.decode(SAMPLES[Credential])
    assert credential.key.hex() not in repr(credential)
    assert repr(credential.key) not in repr(credential)
    deal = Deal.decode(SAMPLES[Deal])
    assert str(deal.own) not in repr(deal)


@pytest.mark.parametrize(
    "fields",
    [
        ("", 3, 8, 8),
        ("e" * 201, 3, 8, 8),
        ("e", 1, 8, 8),
        ("e", 10_001, 8, 8),
        ("e", 3, 0, 8),
        ("e", 3, 8, 5000),
    ],
)
def test_terms_out_of_range_are_refused(fields):
    with pytest.raises(InputError):
        Terms(*fields)
