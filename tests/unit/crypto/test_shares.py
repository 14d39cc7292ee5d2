"""Sharing and recovering secrets."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from masquerade.core.errors import InputError
from masquerade.crypto.errors import DecodingError, SharesInconsistent
from masquerade.crypto.ristretto255 import ristretto255
from masquerade.crypto.secp256k1 import secp256k1
from masquerade.crypto.shares import (
    SHARE_SIZE,
    Share,
    interpolate_points,
    lagrange,
    recover,
    recover_seed,
    split,
    split_seed,
)

both = pytest.mark.parametrize("group", [secp256k1, ristretto255], ids=str)
places = st.lists(st.integers(1, 2**32 - 1), min_size=1, max_size=12, unique=True)
checked = settings(max_examples=60, deadline=None, derandomize=True)


@both
@checked
@given(data=st.data(), xs=places)
def test_any_threshold_of_shares_recovers_the_secret(group, data, xs):
    secret = data.draw(st.integers(0, group.order - 1))
    threshold = data.draw(st.integers(1, len(xs)))
    shares = data.draw(st.permutations(split(secret, threshold, xs, group)))
    assert recover(shares[:threshold], threshold, group) == secret
    assert recover(shares, threshold, group) == secret
    assert sorted(share.x for share in shares) == sorted(xs)


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
def test_fewer_shares_fit_every_secret(group):
    """With one share missing, every candidate secret belongs to exactly one value of the missing share."""
    shares = split(5, 3, [1, 2, 3], group)[:2]
    for candidate in (0, 1, 99):
        weights = lagrange((1, 2, 3), 0, group)
        known = sum(w * share.y for w, share in zip(weights, shares, strict=False))
        missing = (candidate - known) * pow(weights[2], -1, group.order) % group.order
        assert recover([*shares, Share(3, missing)], 3, group) == candidate


@both
def test_shares_of_the_same_secret_differ_each_time(group):
    assert split(5, 2, [1, 2], group) != split(5, 2, [1, 2], group)
    assert split(5, 1, [1, 2], group) == [Share(1, 5), Share(2, 5)]


@both
def test_points_interpolate_in_the_exponent(group):
    secret = group.random_secret()
    xs, H = [3, 7, 2**32 - 1, 12], group.multiply_public(group.generator, 77)
    shares = split(secret.reveal(), 3, xs, group)
    points = [group.multiply_public(H, share.y) for share in shares]
    assert interpolate_points(xs[:3], points[:3], 0, group) == group.multiply(H, secret)
    assert interpolate_points(xs[1:], points[1:], xs[0], group) == points[0]
    with pytest.raises(InputError, match="one point for each place"):
        interpolate_points(xs, points[:2], 0, group)


@both
@checked
@given(seed=st.binary(min_size=31, max_size=31))
def test_seeds_come_back(group, seed):
    assert recover_seed(split_seed(seed, 2, [4, 5, 6], group)[1:], 2, group) == seed


@both
def test_wrong_shares_are_noticed_where_they_can_be(group):
    shares = split_seed(bytes(31), 2, [1, 2, 3], group)
    wrong = [Share(1, (shares[0].y + 1) % group.order), *shares[1:]]
    with pytest.raises(SharesInconsistent, match="one secret"):
        recover_seed(wrong, 2, group)
    with pytest.raises(SharesInconsistent, match="a seed"):  # 0 becomes 2, and here: far above 2^248
        recover_seed([Share(1, (shares[0].y + group.order // 2) % group.order), shares[1]], 2, group)


@both
def test_places_are_checked(group):
    for xs in ([0, 1], [1, 1], [-1, 2], [2**32, 1]):
        with pytest.raises(InputError, match="place"):
            split(1, 1, xs, group)
        with pytest.raises(InputError, match="place"):
            recover([Share(x, 1) for x in xs], 1, group)
        with pytest.raises(InputError, match="place"):
            lagrange(tuple(xs), 0, group)
    for threshold in (0, 3):
        with pytest.raises(InputError):
            split(1, threshold, [1, 2], group)
        with pytest.raises(InputError):
            recover(split(1, 2, [1, 2], group), threshold, group)
    for secret in (-1, group.order):
        with pytest.raises(InputError):
            split(secret, 1, [1], group)
    for seed in (bytes(30), bytes(32)):
        with pytest.raises(InputError, match="31 bytes"):
            split_seed(seed, 1, [1], group)


@both
@checked
@given(data=st.binary(min_size=SHARE_SIZE - 1, max_size=SHARE_SIZE + 1))
def test_shares_decode_canonically_or_not_at_all(group, data):
    with suppress(DecodingError):
        assert Share.decode(data, group).encode(group) == data


@both
def test_shares_encode_to_36_bytes_and_do_not_print_their_value(group):
    share = Share(7, group.order - 1)
    assert len(share.encode(group)) == SHARE_SIZE == 36
    assert Share.decode(share.encode(group), group) == share
    assert repr(share) == "Share(x=7)"
    for wrong in (bytes(4) + group.encode_scalar(1), (1).to_bytes(4, "big") + b"\xff" * 32, b""):
        with pytest.raises(DecodingError):
            Share.decode(wrong, group)
    with pytest.raises(InputError):
        Share(0, 1).encode(group)
