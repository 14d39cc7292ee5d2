"""Messages have one encoding each, and no bytes do more than raise the one decoding error."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.protocols.frequency_mining.people import BY_REGION, SMOKES, Village, policy, refusal

from masquerade.core.errors import InputError
from masquerade.crypto.errors import DecodingError
from masquerade.protocols.frequency_mining.messages import (
    FrequencyTerms,
    Gathered,
    Invitation,
    MiningStep,
    Objection,
    SignedMiningMessage,
    check_length,
)
from masquerade.protocols.people.questions import Question

VILLAGE = Village(4)
TERMS = VILLAGE.terms
PARSERS = {
    "signed": SignedMiningMessage.decode,
    "gathered": Gathered.decode,
    "objection": Objection.decode,
    "invitation": lambda data: Invitation.decode(data, TERMS),
}
GOOD = {
    "signed": SignedMiningMessage("u1", MiningStep.VOTE, 7, b"payload", bytes(64)).encode(),
    "gathered": Gathered(MiningStep.KEYS, 7, (b"one", b"", b"three")).encode(),
    "objection": Objection(bytes(32), "code", "reason", ("u1", "u2")).encode(),
    "invitation": Invitation(
        TERMS.id, 3, ("u0", "u2", "u3"), (SMOKES, BY_REGION, Question(("region",), (("ill", 1),)))
    ).encode(TERMS),
}


@pytest.mark.parametrize("name", PARSERS)
def test_what_is_encoded_decodes_to_the_same(name):
    decoded = PARSERS[name](GOOD[name])
    again = decoded.encode(TERMS) if isinstance(decoded, Invitation) else decoded.encode()
    assert again == GOOD[name]


@pytest.mark.parametrize("name", PARSERS)
@settings(max_examples=150, derandomize=True, deadline=None)
@given(data=st.data())
def test_spoilt_bytes_raise_the_one_error_or_are_canonical(name, data):
    good = GOOD[name]
    kind = data.draw(st.sampled_from(["random", "cut", "longer", "changed"]))
    if kind == "random":
        spoilt = data.draw(st.binary(max_size=200))
    elif kind == "cut":
        spoilt = good[: data.draw(st.integers(0, len(good) - 1))]
    elif kind == "longer":
        spoilt = good + data.draw(st.binary(min_size=1, max_size=9))
    else:
        at = data.draw(st.integers(0, len(good) - 1))
        spoilt = good[:at] + bytes([good[at] ^ data.draw(st.integers(1, 255))]) + good[at + 1 :]
    try:
        decoded = PARSERS[name](spoilt)
    except DecodingError:
        return
    assert kind in {"changed", "random"}
    again = decoded.encode(TERMS) if isinstance(decoded, Invitation) else decoded.encode()
    assert again == spoilt


@settings(max_examples=100, derandomize=True, deadline=None)
@given(noise=st.binary(max_size=300), known=st.sampled_from(sorted(GOOD)), keep=st.integers(0, 60))
def test_a_user_answers_any_noise_with_a_refusal(noise, known, keep):
    assert refusal(VILLAGE.users["u0"].receive(GOOD[known][:keep] + noise)) is not None


@settings(max_examples=100, derandomize=True, deadline=None)
@given(noise=st.binary(max_size=300), keep=st.integers(0, 60))
def test_a_miner_hears_no_noise(noise, keep):
    current = VILLAGE.round()
    with pytest.raises(DecodingError):
        current.receive(GOOD["signed"][:keep] + noise)
    assert current.waiting == tuple(VILLAGE.names)


def invitation(users=(0, 1, 2), questions=(((), ((0, 0),)),), number=1, terms_id=TERMS.id):
    data = (
        (33).to_bytes(4, "big") + b"masquerade frequency invitation 1" + terms_id + number.to_bytes(4, "big")
    )
    data += len(users).to_bytes(4, "big") + b"".join(place.to_bytes(4, "big") for place in users)
    data += len(questions).to_bytes(4, "big")
    for columns, conditions in questions:
        data += len(columns).to_bytes(4, "big") + b"".join(place.to_bytes(2, "big") for place in columns)
        data += len(conditions).to_bytes(4, "big")
        data += b"".join(place.to_bytes(2, "big") + code.to_bytes(4, "big") for place, code in conditions)
    return data


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"users": (1, 0, 2)}, "once and in order"),
        ({"users": (0, 0, 2)}, "once and in order"),
        ({"users": (0, 1, 9)}, "once and in order"),
        ({"questions": ()}, "at least one question"),
        ({"questions": (((0,), ()), ((0,), ()))}, "none twice"),
        ({"questions": (((7,), ()),)}, "do not have"),
        ({"questions": (((1, 0), ()),)}, "order of the schema"),
        ({"questions": (((0, 0), ()),)}, "order of the schema"),
        ({"questions": (((0,), ((0, 1),)),)}, "both as a column and as a condition"),
        ({"questions": (((), ((0, 5),)),)}, "does not exist"),
        ({"questions": (((), ()),)}, "no variables"),
        ({"terms_id": bytes(32)}, "differ from the agreed terms"),
    ],
)
def test_invitations_are_read_strictly(changes, words):
    assert Invitation.decode(invitation(), TERMS).questions == (SMOKES,)
    with pytest.raises(DecodingError, match=words):
        Invitation.decode(invitation(**changes), TERMS)


def test_what_is_beyond_all_bounds_is_not_even_read():
    with pytest.raises(DecodingError, match="at most 10 bytes"):
        check_length(bytes(11), 10)


def test_terms_say_what_is_wrong_with_them():
    key = TERMS.members["u0"]
    for members, words in [
        ({"": key}, "name must have"),
        ({"a": key, "b": key}, "share an identity"),
        ({"a": bytes(32)}, "small order"),
    ]:
        with pytest.raises(InputError, match=words):
            FrequencyTerms("e", policy(), members)
    with pytest.raises(InputError, match="epoch"):
        FrequencyTerms("", policy(), TERMS.members)


def test_terms_that_differ_in_anything_have_another_id():
    ids = {
        TERMS.id,
        FrequencyTerms("summer", TERMS.policy, TERMS.members, 3).id,
        FrequencyTerms("spring", policy("ill"), TERMS.members, 3).id,
        FrequencyTerms("spring", TERMS.policy, TERMS.members, 4).id,
        FrequencyTerms("spring", TERMS.policy, Village(4).terms.members, 3).id,
    }
    assert len(ids) == 5
    assert (
        FrequencyTerms("spring", TERMS.policy, dict(reversed(list(TERMS.members.items()))), 3).id == TERMS.id
    )


def test_nothing_secret_is_shown():
    assert repr(VILLAGE.users["u0"]) == "MiningUser('u0')"
