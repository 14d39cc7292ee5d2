"""Small logarithms: every one in range is found, and nothing outside."""

import pytest

from masquerade.core.errors import InputError
from masquerade.crypto.errors import LogOutOfRange
from masquerade.crypto.group import LARGEST, SmallLog
from masquerade.crypto.ristretto255 import ristretto255
from masquerade.crypto.secp256k1 import secp256k1


def of(group, k):
    return group.multiply_public(group.generator, k)


@pytest.mark.parametrize("group", [secp256k1, ristretto255], ids=str)
@pytest.mark.parametrize("n", [0, 1, 2, 3, 15, 16, 17, 30])
def test_every_number_up_to_n_is_found_and_no_other(group, n):
    logs = SmallLog(group, n)
    assert [logs.find(of(group, d)) for d in range(n + 1)] == list(range(n + 1))
    for d in (n + 1, n + 2, 2 * n + 5, -1, -n - 1, group.order // 2):
        with pytest.raises(LogOutOfRange, match=f"from 0 to {n}"):
            logs.find(of(group, d))


def test_ten_million():
    logs = SmallLog(secp256k1, LARGEST)
    for d in (0, 1, 3162, 3163, 9_999_999, LARGEST):
        assert logs.find(of(secp256k1, d)) == d
    for d in (-1, LARGEST + 1):
        with pytest.raises(LogOutOfRange):
            logs.find(of(secp256k1, d))


def test_bounds_are_checked():
    for n in (-1, LARGEST + 1):
        with pytest.raises(InputError, match="bound"):
            SmallLog(secp256k1, n)
