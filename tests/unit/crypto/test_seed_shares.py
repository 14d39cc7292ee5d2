"""Shares of seeds at small places: any threshold of them opens, fewer say nothing, wrong ones are named."""

import os

import pytest

from masquerade.crypto import shamir
from masquerade.crypto.errors import DecodingError, SharesInconsistent


@pytest.mark.parametrize("missing", [(), (1,), (2, 5), (1, 3, 8), (4, 6, 7)])
def test_any_threshold_shares_open_a_seed(missing):
    seed = os.urandom(31)
    shares = dict(enumerate(map(shamir.decode_share, shamir.deal(seed, 5, range(1, 9))), start=1))
    left = {x: y for x, y in shares.items() if x not in missing}
    assert shamir.open_seed(left, 5) == seed


def test_fast_opening_is_lagrange_interpolation():
    seed = bytes(range(31))
    shares = shamir._deal_from_parts(seed, [7, 5**100, 3**150], range(1, 12))
    used = {x: shamir.decode_share(shares[x - 1]) for x in (2, 5, 7, 11)}
    value = 0
    for x, y in used.items():
        weight = 1
        for other in used:
            if other != x:
                weight = weight * other * pow(other - x, -1, shamir.FIELD) % shamir.FIELD
        value += weight * y
    assert (value % shamir.FIELD).to_bytes(31, "big") == seed == shamir.open_seed(used, 4)


def test_one_share_fewer_says_nothing():
    """For every seed there is a polynomial through t − 1 given shares: all seeds are equally likely."""
    seed, other = bytes(31), bytes([1] * 31)
    shares = dict(enumerate(map(shamir.decode_share, shamir.deal(seed, 3, (1, 2, 3))), start=1))
    # the third share that would open the other seed exists: f(0) = 3 f(1) − 3 f(2) + f(3)
    third = (int.from_bytes(other, "big") - 3 * shares[1] + 3 * shares[2]) % shamir.FIELD
    assert shamir.open_seed({1: shares[1], 2: shares[2], 3: third}, 3) == other


def test_wrong_shares_are_named_and_too_many_are_an_error():
    seed = os.urandom(31)
    shares = dict(enumerate(map(shamir.decode_share, shamir.deal(seed, 4, range(1, 11))), start=1))
    shares[2] ^= 1
    shares[9] ^= 4
    assert shamir.open_checked(shares, 4, lambda found: found == seed) == (seed, [2, 9])
    with pytest.raises(SharesInconsistent):
        shamir.open_checked({x: shares[x] for x in (1, 2, 3, 4)}, 4, lambda found: found == seed)


def test_a_share_beyond_the_field_is_refused():
    with pytest.raises(DecodingError):
        shamir.decode_share(b"\xff" * 32)
