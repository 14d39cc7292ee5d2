"""Information gain against textbook values and plain formulas."""

from __future__ import annotations

import numpy as np
import pytest

import masquerade as mq
from masquerade.learn.classifiers._information_gain import (
    clip_counts,
    entropy,
    information_gain,
    split_information,
)
from masquerade.sources.records import Records

# Quinlan's (1986) weather data: rows are the feature's categories, columns "play" and "don't"
OUTLOOK = np.array([[2.0, 3.0], [4.0, 0.0], [3.0, 2.0]])
WINDY = np.array([[3.0, 3.0], [6.0, 2.0]])


def test_gains_are_quinlans():
    # printed in the paper: 0.246 and 0.048 bits, by truncated intermediate values
    assert information_gain(OUTLOOK) == pytest.approx(0.2467, abs=1e-4)
    assert information_gain(WINDY) == pytest.approx(0.0481, abs=1e-4)
    assert split_information(OUTLOOK) == pytest.approx(1.5774, abs=1e-4)
    assert entropy(np.array([9.0, 5.0])) == pytest.approx(0.9403, abs=1e-4)


def test_gain_is_mutual_information_for_many_tables_at_once():
    tables = np.random.default_rng(1).gamma(1.0, 10.0, (20, 4, 3))
    joint = tables / tables.sum(axis=(1, 2), keepdims=True)
    product = joint.sum(axis=2, keepdims=True) * joint.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(
        information_gain(tables), (joint * np.log2(joint / product)).sum(axis=(1, 2)), atol=1e-12
    )


def test_empty_tables_tell_nothing():
    empty = np.zeros((2, 3, 2))
    assert information_gain(empty).tolist() == [0.0, 0.0]
    assert split_information(empty).tolist() == [0.0, 0.0]


def test_clipping_is_the_tables_own():
    policy = mq.Policy.build({"a": [0, 1, 2], "b": [0, 1]}, {"a": mq.channels.symmetric(3, "0.4")})
    codes = {"a": np.array([0, 0, 0, 1], np.uint8), "b": np.array([0, 1, 1, 0], np.uint8)}
    (table,) = Records(codes, policy).answer([mq.Query(by=("a", "b"))])
    assert table.values.min() < 0
    np.testing.assert_allclose(clip_counts(table.values), table.nonnegative("clip").values)
    assert clip_counts(-np.ones((2, 2))).tolist() == [[0, 0], [0, 0]]
