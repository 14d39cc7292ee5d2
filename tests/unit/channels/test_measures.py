"""Entropy, probabilistic anonymity, vulnerability and capacity by enumeration."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.channels.exact import random_rows

from masquerade import channels as ch
from masquerade.channels import measures
from masquerade.core.errors import InputError


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_figures_equal_their_definitions(seed):
    rng = np.random.default_rng(seed)
    channel = ch.matrix(random_rows(rng, 4, 5, 12, 0.4))
    prior = rng.dirichlet(np.ones(4))
    threshold = float(rng.choice([0.0, 0.1]))
    bits, sizes, distances, best, top = 0.0, [], [], 0.0, 0.0
    for report in range(5):
        joint = [prior[l] * float(channel.row(l).get(report, 0)) for l in range(4)]
        top += max(float(channel.row(l).get(report, 0)) for l in range(4))
        total = sum(joint)
        if total == 0:
            continue
        beliefs = [x / total for x in joint]
        bits -= total * sum(b * math.log2(b) for b in beliefs if b > 0)
        best += max(joint)
        counted = [b for b in beliefs if b > threshold]
        shares = [b / sum(counted) for b in counted]
        sizes.append(len(counted))
        distances.append(math.log2(len(counted)) + sum(s * math.log2(s) for s in shares))
    assert channel.entropy(prior) == pytest.approx(bits, abs=1e-9)
    anonymity = channel.k_anonymity(prior, threshold)
    assert anonymity.k == min(sizes)
    assert anonymity.distance == pytest.approx(max(distances), abs=1e-9)
    assert channel.vulnerability(prior) == pytest.approx(best)
    assert channel.capacity == pytest.approx(top)


def test_hand_values_of_the_binary_channel():
    # p = 1/4, uniform prior: H = −.75 log₂ .75 − .25 log₂ .25; both truths stay possible
    channel, H = ch.binary("1/4"), 2 - 0.75 * math.log2(3)
    assert channel.entropy() == pytest.approx(H)
    assert (channel.k_anonymity().k, channel.k_anonymity().distance) == (2, pytest.approx(1 - H))
    assert channel.k_anonymity(threshold=0.3).k == 1
    assert channel.k_anonymity(threshold=0.8).k == 0
    assert channel.vulnerability() == pytest.approx(0.75)
    assert channel.vulnerability([0.9, 0.1]) == pytest.approx(0.9)  # the report never changes the best guess
    assert channel.capacity == pytest.approx(1.5)


def test_dist_k_is_the_largest_over_reports():
    # report 1: truths 1:9, distance 1 − H(.1); report 2 as even as can be at 1:1, distance 0
    channel = ch.matrix([["0.1", "0.4", "0.5"], ["0.9", "0.1", "0"]])
    even, uneven = 1, -(0.1 * math.log2(0.1) + 0.9 * math.log2(0.9))
    got = channel.k_anonymity([0.5, 0.5])
    assert got.k == 1  # the third report comes from the first truth alone
    assert got.distance == pytest.approx(even - uneven)


def test_identity_and_uniform_are_the_extremes():
    assert ch.identity(4).entropy() == 0
    assert ch.identity(4).capacity == 4
    assert ch.symmetric(4, "3/4").entropy() == pytest.approx(2)
    assert ch.symmetric(4, "3/4").capacity == pytest.approx(1)
    assert measures.entropy(np.array([0.5, 0.25, 0.25, 0])) == pytest.approx(1.5)


@pytest.mark.parametrize("prior", [[0.5], [0.5, 0.6], [-0.5, 1.5], [math.nan, 1], [[0.5, 0.5]]])
def test_a_prior_that_is_none_is_refused(prior):
    with pytest.raises(InputError, match="needs 2 probabilities that sum to 1"):
        ch.binary("0.1").entropy(prior)
