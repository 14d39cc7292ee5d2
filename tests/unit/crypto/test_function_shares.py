"""Shared functions: both keys together give the function, one alone gives noise; frozen and tampered ones."""

import hashlib

import numpy as np
import pytest
from scipy.stats import chisquare
from tests.statistical.checks import ALPHA

from masquerade.core.errors import InputError
from masquerade.crypto.dpf import (
    PointKeys,
    ThresholdKeys,
    fresh_roots,
    point_keys,
    threshold_keys,
)
from masquerade.crypto.errors import DecodingError


def words(generator, count, bits=64):
    return generator.integers(0, 2**bits - 1, count, dtype=np.uint64, endpoint=True)


@pytest.mark.parametrize("bits", [1, 2, 3, 6, 10])
def test_points_are_naive_unit_vectors(bits):
    generator = np.random.default_rng(bits)
    count = 400
    points, payloads = generator.integers(0, 2**bits, count), words(generator, count)
    first, second = point_keys(points, payloads, bits, fresh_roots(count))
    naive = np.zeros((count, 2**bits), dtype=np.uint64)
    naive[np.arange(count), points] = payloads
    assert np.array_equal(first.expand() + second.expand(), naive)
    assert np.array_equal(first.some(slice(3, 9)).expand(), first.expand()[3:9])


@pytest.mark.parametrize("bits", [1, 5, 31, 63])
def test_thresholds_are_naive_comparisons(bits):
    generator = np.random.default_rng(bits)
    count = 25_000
    points, payloads = words(generator, count, bits), words(generator, count)
    near = points + np.arange(count, dtype=np.uint64) % np.uint64(3) - np.uint64(1)
    at = np.where(generator.random(count) < 0.5, near & np.uint64(2**bits - 1), words(generator, count, bits))
    first, second = threshold_keys(points, payloads, bits, fresh_roots(count))
    assert np.array_equal(
        first.evaluate(at) + second.evaluate(at), np.where(at < points, payloads, np.uint64(0))
    )


def test_one_key_alone_is_uniform_wherever_the_point_is():
    count = 4000
    for point in (0, 200):
        for keys in point_keys(np.full(count, point), np.ones(count, np.int64), 8, fresh_roots(count)):
            for place in (0, 200, 255):
                bytes_seen = np.bincount(keys.expand()[:, place].copy().view(np.uint8), minlength=256)
                assert chisquare(bytes_seen).pvalue > ALPHA / 24


def test_keys_travel_and_changed_ones_are_refused_or_give_noise():
    roots = fresh_roots(5)
    for made, kind in ((point_keys, PointKeys), (threshold_keys, ThresholdKeys)):
        first, _ = made(np.arange(5), np.arange(5), 4, roots)
        data = first.encode_shared()
        assert len(data) == kind.size(4, 5)
        again = kind.read(data, 0, 4, roots[0])
        assert again.encode_shared() == data
        for wrong in (data[:-1], data + b"\0", b""):
            with pytest.raises(DecodingError):
                kind.read(wrong, 0, 4, roots[0])
        flags = first.nodes.nbytes
        with pytest.raises(DecodingError):
            kind.read(data[:flags] + b"\2" + data[flags + 1 :], 0, 4, roots[0])


def test_frozen_expansions():
    roots = tuple(np.arange(start, start + 8, dtype=np.uint64).reshape(4, 2) * 977 for start in (4, 900))
    points = point_keys([0, 1, 6, 7], [1, 2, 3, 4], 3, roots)
    below = threshold_keys([0, 1, 6, 7], [1, 2, 3, 4], 3, roots)
    told = [keys.expand() for keys in points] + [keys.evaluate([0, 0, 5, 7]) for keys in below]
    digest = hashlib.sha256(b"".join(part.astype("<u8").tobytes() for part in told)).hexdigest()
    assert digest == "b77f42526aa1cf0a676a8173c8dbef299e310cb4d28a4a5d95de7da41d5f17d3"
    broken = points[1].nodes.copy()
    broken[0, 2, 1] ^= np.uint64(1)
    changed = PointKeys(1, 3, points[1].roots, broken, points[1].flags, points[1].leaves).expand()
    assert not np.array_equal(points[0].expand()[2] + changed[2], [0, 0, 0, 0, 0, 0, 3, 0])


@pytest.mark.parametrize(
    ("made", "points", "bits"),
    [
        (point_keys, [8], 3),
        (point_keys, [1, 1], 3),
        (point_keys, [1], 25),
        (threshold_keys, [1], 64),
        (threshold_keys, [-1], 3),
    ],
)
def test_what_is_no_point_is_refused(made, points, bits):
    with pytest.raises(InputError):
        made(points, [1], bits, fresh_roots(1))
