"""Interpolating numbers and points."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from masquerade.core.errors import InputError
from masquerade.crypto.group import interpolate_points, lagrange
from masquerade.crypto.ristretto255 import ristretto255
from masquerade.crypto.secp256k1 import secp256k1

both = pytest.mark.parametrize("group", [secp256k1, ristretto255], ids=str)
places = st.lists(st.integers(1, 2**32 - 1), min_size=1, max_size=12, unique=True)
checked = settings(max_examples=60, deadline=None, derandomize=True)


@both
@checked
@given(data=st.data(), xs=places)
def test_interpolating_gives_the_polynomial_anywhere(group, data, xs):
    coefficients = data.draw(st.lists(st.integers(0, group.order - 1), min_size=1, max_size=len(xs)))

    def f(z):
        return sum(c * pow(z, k, group.order) for k, c in enumerate(coefficients)) % group.order

    for at in (0, xs[0], data.draw(st.integers(0, group.order - 1)), -1):
        weights = lagrange(tuple(xs), at, group)
        assert sum(w * f(x) for w, x in zip(weights, xs, strict=True)) % group.order == f(at)


@both
def test_points_interpolate_in_the_exponent(group):
    xs, H = [3, 7, 2**32 - 1, 12], group.multiply_public(group.generator, 77)
    points = [group.multiply_public(H, (5 + 8 * x + 9 * x * x) % group.order) for x in xs]
    assert interpolate_points(xs[:3], points[:3], 0, group) == group.multiply_public(H, 5)
    assert interpolate_points(xs[1:], points[1:], xs[0], group) == points[0]
    with pytest.raises(InputError, match="one point per position"):
        interpolate_points(xs, points[:2], 0, group)


@both
def test_places_are_checked(group):
    for xs in ([0, 1], [1, 1], [-1, 2], [2**32, 1]):
        with pytest.raises(InputError, match="position"):
            lagrange(tuple(xs), 0, group)
