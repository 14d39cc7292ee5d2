"""Arithmetic modulo 2⁶¹ − 1 against Python's integers; decoding against all subsets."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from masquerade.kernels import field61

P = field61.PRIME
near_the_ends = st.one_of(
    st.integers(0, P - 1), st.integers(0, 3), st.integers(P - 4, P - 1), st.integers(2**31 - 2, 2**31 + 2)
)


def value(coefficients, x):
    return sum(c * pow(x, j, P) for j, c in enumerate(coefficients)) % P


def elements(numbers):
    return np.array(numbers, dtype=np.uint64)


@settings(max_examples=300, deadline=None)
@given(near_the_ends, near_the_ends)
def test_arithmetic_is_that_of_integers(a, b):
    x, y = np.uint64(a), np.uint64(b)
    assert int(field61.add(x, y)) == (a + b) % P
    assert int(field61.sub(x, y)) == (a - b) % P
    assert int(field61.mul(x, y)) == a * b % P
    if a:
        assert int(field61.inverse(x)) == pow(a, -1, P)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**128 - 1))
def test_wide_numbers_are_reduced(wide):
    low, high = elements([wide % 2**64]), elements([wide >> 64])
    assert int(field61.fold_pairs(low, high)[0]) == wide % P
    assert int(field61.reduce(np.uint64(wide % 2**64))) == wide % 2**64 % P


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_lagrange_inverts_horner_for_several_groups(data):
    k, groups, limbs = (data.draw(st.integers(1, most)) for most in (7, 4, 3))
    coefficients = [
        [[data.draw(near_the_ends) for _ in range(limbs)] for _ in range(k)] for _ in range(groups)
    ]
    xs = [
        data.draw(st.lists(st.integers(1, P - 1), min_size=k, max_size=k, unique=True)) for _ in range(groups)
    ]
    which = np.repeat(np.arange(groups), k)
    flat = elements(xs).ravel()
    ys = field61.evaluate(elements(coefficients), flat, which)
    for i, (g, x) in enumerate(zip(which, flat, strict=True)):
        for limb in range(limbs):
            assert int(ys[i, limb]) == value([row[limb] for row in coefficients[g]], int(x))
    starts = np.arange(groups, dtype=np.int64) * k
    found = field61.lagrange_at_zero(flat, ys, starts, k)
    assert found.tolist() == [rows[0] for rows in coefficients]


def by_brute_force(xs, ys, k):
    """Return the one polynomial of degree below k through at least (m + k)/2 of the points, or None."""
    m = len(xs)
    for chosen in combinations(range(m), k):
        # Newton's form on the chosen points, evaluated everywhere
        hits = 0
        for x, y in zip(xs, ys, strict=True):
            total = 0
            for i in chosen:
                weight = 1
                for j in chosen:
                    if j != i:
                        weight = weight * (x - xs[j]) * pow(xs[i] - xs[j], -1, P) % P
                total += ys[i] * weight
            hits += total % P == y
        if 2 * (m - hits) <= m - k:
            return chosen
    return None


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_decoding_finds_what_brute_force_finds_and_nothing_else(data):
    k = data.draw(st.integers(1, 3))
    m = data.draw(st.integers(k, 7))
    xs = data.draw(st.lists(st.integers(1, 40), min_size=m, max_size=m, unique=True))
    coefficients = data.draw(st.lists(st.integers(0, 5), min_size=k, max_size=k))
    ys = [value(coefficients, x) for x in xs]
    for i in data.draw(st.sets(st.integers(0, m - 1))):
        ys[i] = data.draw(st.integers(0, 30))
    found, decoded = field61.decode(elements(xs), elements(ys), k)
    chosen = by_brute_force(xs, ys, k)
    assert found == (chosen is not None)
    if chosen is not None:
        wrong = [x for x, y in zip(xs, ys, strict=True) if value(decoded.tolist(), x) != y]
        assert 2 * len(wrong) <= m - k
        assert all(value(decoded.tolist(), xs[i]) == ys[i] for i in chosen)


@pytest.mark.parametrize(
    ("m", "k", "bad"), [(300, 100, 100), (301, 100, 100), (64, 2, 31), (100, 100, 0), (40, 39, 0)]
)
def test_decoding_corrects_as_many_as_it_may(m, k, bad):
    generator = np.random.default_rng(m * k + bad)
    coefficients = [int(c) for c in generator.integers(0, P, k)]
    xs = generator.choice(10**9, m, replace=False) + 1
    ys = [value(coefficients, int(x)) for x in xs]
    for i in generator.choice(m, bad, replace=False):
        ys[i] = (ys[i] + int(generator.integers(1, P))) % P
    found, decoded = field61.decode(xs.astype(np.uint64), elements(ys), k)
    assert found
    assert decoded.tolist() == coefficients


def test_decoding_admits_that_it_cannot():
    generator = np.random.default_rng(7)
    xs = generator.choice(10**9, 20, replace=False).astype(np.uint64) + np.uint64(1)
    ys = generator.integers(0, P, 20).astype(np.uint64)  # a polynomial of degree < 4 meets 12 of them: never
    assert not field61.decode(xs, ys, 4)[0]
