"""What both groups promise: strict decoding, arithmetic, and secrets kept apart from public numbers."""

import copy
import pickle
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from masquerade.core.errors import InputError
from masquerade.crypto.errors import DecodingError
from masquerade.crypto.group import Secret
from masquerade.crypto.ristretto255 import ristretto255
from masquerade.crypto.secp256k1 import secp256k1

GROUPS = [secp256k1, ristretto255]
both = pytest.mark.parametrize("group", GROUPS, ids=str)


def point(group, k):
    return group.multiply_public(group.generator, k)


@both
def test_multiplying_by_secrets_and_by_public_numbers_agree(group):
    a, b = group.random_secret(), group.random_secret()
    A, B = group.multiply_generator(a), group.multiply_generator(b)
    assert group.multiply(A, b) == group.multiply(B, a) == point(group, a.reveal() * b.reveal())
    assert group.multiply_public(A, b.reveal()) == group.multiply(A, b)


@both
def test_sums_differences_and_the_identity(group):
    A, B = point(group, 5), point(group, 7)
    assert point(group, 12) == A + B
    assert A - B == point(group, -2) == -point(group, 2)
    assert (A - A).is_identity
    assert group.sum_points([]) == group.identity == point(group, 0) == point(group, group.order)
    assert A + group.identity == A
    assert -group.identity == group.identity
    assert group.multiply(group.identity, group.random_secret()).is_identity
    assert group.multiply_public(group.identity, 3).is_identity
    assert group.sum_points([A, B, -A, -B]).is_identity
    assert hash(A) == hash(point(group, 5))
    assert A != "A"


@both
def test_the_identity_is_never_sent(group):
    with pytest.raises(InputError, match="has no encoding"):
        (point(group, 1) - point(group, 1)).encode()
    with pytest.raises(DecodingError):
        group.decode(group.identity.hash_bytes)


@both
def test_points_decode_to_themselves_and_lengths_are_exact(group):
    encoding = point(group, 9).encode()
    assert group.decode(encoding).encode() == encoding
    assert group.decode(bytearray(encoding)) == point(group, 9)
    for wrong in (b"", encoding[:-1], encoding + b"\x00"):
        with pytest.raises(DecodingError, match="bytes"):
            group.decode(wrong)


@both
@settings(max_examples=200, deadline=None, derandomize=True)
@given(data=st.data())
def test_random_bytes_decode_canonically_or_not_at_all(group, data):
    encoding = data.draw(st.binary(min_size=group.point_size, max_size=group.point_size))
    with suppress(DecodingError):
        assert group.decode(encoding).encode() == encoding


@both
@settings(max_examples=100, deadline=None, derandomize=True)
@given(data=st.binary(max_size=80))
def test_fuzzed_points_scalars_and_sums_raise_the_one_error(group, data):
    for parse in (group.decode, group.decode_scalar, secp256k1.sum_encoded):
        with suppress(DecodingError):
            parse(data)


@both
def test_scalars_at_or_above_the_order_are_refused(group):
    last = group.order - 1
    assert group.decode_scalar(group.encode_scalar(last)) == last
    for value in (group.order, 2**256 - 1):
        with pytest.raises(DecodingError, match="below the group's order"):
            group.decode_scalar(value.to_bytes(32, group.byteorder))
        with pytest.raises(InputError):
            group.encode_scalar(value)
    with pytest.raises(InputError):
        group.encode_scalar(-1)
    for wrong in (bytes(31), bytes(33)):
        with pytest.raises(DecodingError, match="32 bytes"):
            group.decode_scalar(wrong)


@both
def test_secrets_and_public_numbers_do_not_mix(group):
    secret, A = group.random_secret(), point(group, 3)
    with pytest.raises(TypeError):
        group.multiply(A, 5)
    with pytest.raises(TypeError):
        group.multiply_generator(5)
    with pytest.raises(TypeError):
        group.multiply_public(A, secret)
    with pytest.raises(TypeError):
        group.combine_public([A], [secret])
    with pytest.raises(TypeError):
        group.respond(5, 5, secret)


def test_groups_do_not_mix():
    for group, other in (GROUPS, GROUPS[::-1]):
        for wrong in (
            lambda group=group, other=other: group.multiply(group.generator, other.random_secret()),
            lambda group=group, other=other: group.multiply(other.generator, group.random_secret()),
            lambda group=group, other=other: group.generator + other.generator,
            lambda group=group, other=other: group.negate(other.generator),
            lambda group=group, other=other: group.multiply_public(other.generator, 2),
            lambda group=group, other=other: group.combine_public([other.generator], [2]),
        ):
            with pytest.raises(TypeError):
                wrong()
        assert group.generator != other.generator


@both
def test_a_secret_stays_inside(group):
    secret = group.secret(123456789)
    assert "123456789" not in repr(secret)
    for kept in (secret, group.generator, group):
        for leave in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError):
                leave(kept)
    with pytest.raises(InputError, match="zero"):
        group.secret(group.order)
    with pytest.raises(DecodingError):
        Secret(group, group.order.to_bytes(32, group.byteorder))


@both
def test_secrets_are_fresh_and_in_range(group):
    drawn = {group.random_secret().reveal() for _ in range(100)}
    assert len(drawn) == 100
    assert all(0 < value < group.order for value in drawn)


@both
@pytest.mark.parametrize("challenge", [1, 2**128, -1])
def test_responses_are_what_they_should_be(group, challenge):
    nonce, witness = group.random_secret(), group.random_secret()
    challenge %= group.order
    expected = (nonce.reveal() + challenge * witness.reveal()) % group.order
    assert group.respond(nonce, challenge, witness) == expected
    assert group.respond(group.secret(-challenge), challenge, group.secret(1)) == 0


@both
def test_products_need_as_many_numbers_as_points(group):
    with pytest.raises(InputError, match="Got 1 points and 0 scalars"):
        group.combine_public([group.generator], [])
    assert group.combine_public([group.generator] * 1000, [0] * 1000).is_identity
