"""Codes and points of many rows at once are those of one after the other, by another implementation."""

import hashlib
import hmac
import os
import sys

import numpy as np
import pyarrow as pa
import pytest

from masquerade.core.errors import InputError
from masquerade.crypto import batch_hash, sodium_rows
from masquerade.crypto.batch_mac import Texts, codes, keyed_tags
from masquerade.crypto.errors import DecodingError
from masquerade.crypto.point_sets import check_points, decode_set, hash_to_points, mask_points
from masquerade.crypto.ristretto255 import ristretto255

LENGTHS = [*range(140), 255, 256, 257, 1024]
TEXTS = [os.urandom(length) for length in LENGTHS]


@pytest.fixture(params=["libsodium", "Python's own library"])
def library(request, monkeypatch):
    if request.param != "libsodium":
        monkeypatch.setitem(sys.modules, "masquerade.crypto.sodium_rows", None)
        monkeypatch.delattr("masquerade.crypto.sodium_rows")


@pytest.mark.usefixtures("library")
def test_codes_of_rows_are_hmac_and_tags_are_blake2b_whatever_the_lengths():
    key, prefix = os.urandom(32), os.urandom(16)
    found = codes(key, prefix, Texts.of(TEXTS), 16)
    assert [bytes(row) for row in found] == [hmac.digest(key, prefix + text, "sha256")[:16] for text in TEXTS]
    for size in (1, 10, 64):
        tags = keyed_tags(key, Texts.of(TEXTS), size)
        expected = [hashlib.blake2b(text, key=key, digest_size=size).digest() for text in TEXTS]
        assert [bytes(row) for row in tags] == expected
    assert codes(key, prefix, Texts.of([]), 16).shape == (0, 16)
    for wrong in (b"", bytes(65)):
        with pytest.raises(InputError, match="from 1 to 64 bytes"):
            codes(wrong, b"", Texts.of([]), 16)


@pytest.mark.parametrize("rows", [1, 63, 64, 65, 1000])
def test_short_texts_side_by_side_have_the_codes_of_each_alone(rows, monkeypatch):
    monkeypatch.setattr(batch_hash, "threads_for", lambda rows: min(3, rows))
    for prefix, key in (
        (b"", os.urandom(1)),
        (os.urandom(16), os.urandom(32)),
        (os.urandom(55), os.urandom(64)),
    ):
        texts = [os.urandom(i % (batch_hash.LONGEST - len(prefix) + 1)) for i in range(55, 55 + rows)]
        for size in (1, 16, 32):
            found = batch_hash.hmac_sha256(key, prefix, *Texts.of(texts), size)
            expected = [hmac.digest(key, prefix + text, "sha256")[:size] for text in texts]
            assert [bytes(row) for row in found] == expected
            assert np.array_equal(codes(key, prefix, Texts.of(texts), size), found)


@pytest.mark.parametrize("rows", [1, 65, 1000])
def test_short_texts_side_by_side_have_the_tags_of_each_alone(rows, monkeypatch):
    monkeypatch.setattr(batch_hash, "threads_for", lambda rows: min(3, rows))
    texts = [os.urandom(1 + i % batch_hash.LONGEST_TAGGED) for i in range(127, 127 + rows)]
    for key, size in ((os.urandom(1), 1), (os.urandom(32), 16), (os.urandom(64), 64)):
        found = batch_hash.keyed_blake2b(key, *Texts.of(texts), size)
        expected = [hashlib.blake2b(text, key=key, digest_size=size).digest() for text in texts]
        assert [bytes(row) for row in found] == expected
        assert np.array_equal(keyed_tags(key, Texts.of(texts), size), found)


@pytest.mark.parametrize("other", [b"", bytes(batch_hash.LONGEST_TAGGED + 1)], ids=["empty", "long"])
def test_texts_of_which_one_is_not_for_lanes_have_the_same_tags(other, monkeypatch):
    key, texts = os.urandom(32), [bytes(3), other, bytes(batch_hash.LONGEST_TAGGED)]
    monkeypatch.setattr(batch_hash, "keyed_blake2b", None)  # not called for these
    expected = [hashlib.blake2b(text, key=key, digest_size=16).digest() for text in texts]
    assert [bytes(row) for row in keyed_tags(key, Texts.of(texts), 16)] == expected


def test_texts_of_which_one_is_too_long_for_lanes_have_the_same_codes(monkeypatch):
    key, texts = os.urandom(32), [bytes(3), bytes(batch_hash.LONGEST), bytes(batch_hash.LONGEST + 1)]
    expected = [hmac.digest(key, text, "sha256") for text in texts]
    assert [bytes(row) for row in codes(key, b"", Texts.of(texts), 32)] == expected
    monkeypatch.setattr(batch_hash, "hmac_sha256", None)  # not called for these
    assert [bytes(row) for row in codes(key, b"", Texts.of(texts), 32)] == expected


def test_chunks_of_rows_on_several_cores_come_back_in_order(monkeypatch):
    monkeypatch.setattr(sodium_rows, "_LONG_CHUNK", 7)
    monkeypatch.setattr(sodium_rows, "_CHUNK", 7)
    whole = Texts.of(TEXTS)
    found = [bytes(row) for row in keyed_tags(bytes(32), whole, 16)]
    assert found == [hashlib.blake2b(text, key=bytes(32), digest_size=16).digest() for text in TEXTS]
    points = hash_to_points(whole, b"domain")
    assert [bytes(row) for row in points] == [
        ristretto255.hash_to_group(text, b"domain").encode() for text in TEXTS
    ]


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.int64(), pa.dictionary(pa.int8(), pa.string())]
)
def test_texts_of_a_column_are_its_values_also_where_it_is_a_slice(kind):
    column = pa.array(["7", "12", "-3", "40"]).cast(pa.int64() if kind == pa.int64() else pa.string())
    column = column.dictionary_encode() if pa.types.is_dictionary(kind) else column.cast(kind)
    assert list(Texts.of_column(column[1:3]).rows()) == [b"12", b"-3"]
    assert list(Texts.of_column(column[:0]).rows()) == []


def test_masks_of_a_set_are_multiplications_and_commute():
    first, second = ristretto255.random_secret(), ristretto255.random_secret()
    points = hash_to_points(Texts.of(TEXTS[:20]), b"domain")
    one = mask_points(points, first)
    for row, text in zip(one, TEXTS, strict=False):
        expected = ristretto255.multiply(ristretto255.hash_to_group(text, b"domain"), first)
        assert bytes(row) == expected.encode()
    assert np.array_equal(mask_points(one, second), mask_points(mask_points(points, second), first))
    check_points(one)


@pytest.mark.parametrize("bad", [bytes(32), b"\xff" * 32, b"\x01" + bytes(31)])
def test_what_is_no_point_is_refused_wherever_it_stands(bad):
    good = hash_to_points(Texts.of([b"a", b"b"]), b"domain").tobytes()
    for data in (bad + good, good + bad):
        points = decode_set(data, 3)
        with pytest.raises(DecodingError, match="canonical"):
            check_points(points)
        with pytest.raises(DecodingError, match="canonical"):
            mask_points(points, ristretto255.random_secret())


def test_a_set_has_no_point_twice_and_not_too_many():
    good = hash_to_points(Texts.of([b"a", b"b"]), b"domain").tobytes()
    with pytest.raises(DecodingError, match="twice"):
        decode_set(good + good[:32], 3)
    for data, most in ((good, 1), (good[:-1], 2)):
        with pytest.raises(DecodingError, match="at most"):
            decode_set(data, most)
    assert decode_set(good[:32] + good[:31] + bytes([good[31] ^ 1]), 2).shape == (2, 32)
