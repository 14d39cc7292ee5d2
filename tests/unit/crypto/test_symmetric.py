"""Codes and streams follow from their key alone."""

import hmac

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st

from masquerade.core.errors import InputError
from masquerade.crypto.keys import expand
from masquerade.crypto.symmetric import BlockFunction, KeyedStream, code, coder, same, stream

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


def test_expansion_is_hkdf():
    """RFC 5869, test case 3: no salt, no info."""
    expected = "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8"
    assert expand(bytes([0x0B] * 22), b"", 42).hex() == expected
    assert expand(bytes(22), b"a", 42) != expand(bytes(22), b"b", 42)


def test_blocks_are_those_of_aes_each_alone():
    """FIPS 197, C.3."""
    block, expected = "00112233445566778899aabbccddeeff", "8ea2b7ca516745bfeafc49904b496089"
    function = BlockFunction(KEY)
    assert function(bytes.fromhex(block)).hex() == expected
    assert function(bytes.fromhex(2 * block)).hex() == 2 * expected
