"""Codes and streams follow from their key alone."""

import hmac

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st

from masquerade.core.errors import InputError
from masquerade.crypto.symmetric import KeyedStream, code, coder, same, stream

KEY = bytes(range(32))


@settings(max_examples=50, deadline=None)
@given(st.binary(min_size=1, max_size=64), st.binary(max_size=300))
def test_codes_are_hmac_whether_one_or_many(key, message):
    assert coder(key)(message) == code(key, message) == hmac.digest(key, message, "sha256")
    assert same(code(key, message), coder(key)(message))


@pytest.mark.parametrize("size", [0, 65])
def test_a_key_for_many_codes_has_at_most_one_block(size):
    with pytest.raises(InputError, match="from 1 to 64 bytes"):
        coder(bytes(size))


def test_a_stream_is_aes_in_counter_mode_and_goes_on_where_it_was():
    expected = Cipher(algorithms.AES256(KEY), modes.CTR(bytes(16))).encryptor().update(bytes(80))
    assert stream(KEY, 80) == expected
    going_on = KeyedStream(KEY)
    assert b"".join(going_on.read(size) for size in (3, 0, 77)) == expected
