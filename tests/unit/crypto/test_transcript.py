"""A challenge depends on every field of the context and on everything taken in."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.crypto.votes import context, transcript

from masquerade.core.errors import InputError
from masquerade.crypto.proofs import NOT_YET, Context, Transcript
from masquerade.crypto.ristretto255 import ristretto255
from masquerade.crypto.secp256k1 import secp256k1

OTHER = {
    "protocol": "other",
    "session": b"other",
    "roster": NOT_YET,
    "query": b"other",
    "user": b"other",
    "role": "other",
}


def challenge(begun, *absorbed):
    for label, values in absorbed:
        begun.absorb(label, *values)
    return begun.challenge(secp256k1)


def test_the_same_fields_give_the_same_challenge():
    assert challenge(transcript(), ("a", [b"1"])) == challenge(transcript(), ("a", [b"1"]))


def test_every_field_of_the_context_counts():
    challenges = {challenge(transcript(**{name: value})) for name, value in OTHER.items()}
    assert len(challenges | {challenge(transcript())}) == len(OTHER) + 1
    assert set(OTHER) == set(Context.__dataclass_fields__)


def test_fields_do_not_flow_into_each_other():
    assert challenge(transcript(session=b"ab", roster=b"c")) != challenge(
        transcript(session=b"a", roster=b"bc")
    )


@pytest.mark.parametrize("name", OTHER)
def test_no_part_of_the_context_can_be_left_out(name):
    empty = "" if isinstance(OTHER[name], str) else b""
    for missing in (empty, None, 5):
        with pytest.raises(InputError, match=name):
            context(**{name: missing})
    with pytest.raises(TypeError):
        Context(**{k: v for k, v in OTHER.items() if k != name})
    with pytest.raises(TypeError):
        Transcript(b"just bytes")


fields = st.lists(st.tuples(st.text(max_size=3), st.lists(st.binary(max_size=3), max_size=3)), max_size=4)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(fields, fields)
def test_different_sequences_never_collide(one, other):
    assert (challenge(transcript(), *one) == challenge(transcript(), *other)) == (one == other)


def test_challenges_follow_each_other_and_copies_are_independent():
    begun = transcript()
    copied = begun.copy()
    first = begun.challenge(secp256k1)
    assert begun.challenge(secp256k1) != first
    assert copied.challenge(secp256k1) == first
    assert transcript().challenge(ristretto255) != first


def test_challenges_fill_the_whole_range():
    """If challenges are uniform, a quarter of the range stays empty with probability 4·(3/4)^400 < 1e-49."""
    for group in (secp256k1, ristretto255):
        quarters = {transcript(user).challenge(group) * 4 // group.order for user in range(400)}
        assert quarters == {0, 1, 2, 3}
