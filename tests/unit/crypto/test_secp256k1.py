"""secp256k1 against plain formulas, and the library's pitfalls."""

import random

import pytest
from tests.unit.crypto import slow_secp as slow

from masquerade.core.errors import InputError
from masquerade.crypto.errors import DecodingError
from masquerade.crypto.secp256k1 import secp256k1

EDGES = [1, 2, 3, 2**128, secp256k1.order - 1, secp256k1.order - 2, (secp256k1.order + 1) // 2]


def scalars(n, seed):
    draw = random.Random(seed)  # noqa: S311
    return [*EDGES, *(draw.randrange(1, secp256k1.order) for _ in range(n))]


def of(k):
    return secp256k1.multiply_public(secp256k1.generator, k)


def test_multiples_are_those_of_the_plain_formulas():
    assert slow.multiply(slow.N, slow.G) is None
    for k in scalars(10, seed=1):
        expected = slow.encode(slow.multiply(k, slow.G))
        assert secp256k1.multiply_generator(secp256k1.secret(k)).encode() == expected
        assert of(k).encode() == expected


def test_products_and_sums_are_those_of_the_plain_formulas():
    ks = scalars(8, seed=2)
    total = None
    for k, j in zip(ks, reversed(ks), strict=True):
        base = slow.multiply(j, slow.G)
        product = slow.multiply(k, base)
        assert secp256k1.multiply(of(j), secp256k1.secret(k)).encode() == slow.encode(product)
        assert secp256k1.multiply_public(of(j), k).encode() == slow.encode(product)
        assert (-of(j)).encode() == slow.encode((base[0], slow.P - base[1]))
        total = slow.add(total, product)
    products = [secp256k1.multiply_public(of(j), k) for k, j in zip(ks, reversed(ks), strict=True)]
    assert secp256k1.sum_points(products).encode() == slow.encode(total)


def test_only_compressed_encodings_on_the_curve_decode():
    good = of(5).encode()
    x, y = slow.multiply(5, slow.G)
    full = x.to_bytes(32, "big") + y.to_bytes(32, "big")
    wrong = {
        "uncompressed": b"\x04" + full,
        "hybrid": bytes([6 + y % 2]) + full,
        "hybrid, other parity": bytes([7 - y % 2]) + full,
        **{f"first byte {first}": bytes([first]) + good[1:] for first in range(256) if first not in (2, 3)},
        "x not below p": b"\x02" + slow.P.to_bytes(32, "big"),
        "x not below p, on the curve when reduced": b"\x02" + (slow.P + 1).to_bytes(32, "big"),
        "no point has this x": b"\x02" + (5).to_bytes(32, "big"),
        "identity of one byte": b"\x00",
        "all zeros": bytes(33),
    }
    assert pow(5**3 + 7, (slow.P - 1) // 2, slow.P) == slow.P - 1
    assert secp256k1.decode(b"\x02" + (1).to_bytes(32, "big"))
    for name, encoding in wrong.items():
        with pytest.raises(DecodingError):
            pytest.fail(f"{name} decoded to {secp256k1.decode(encoding)}")
        if len(encoding) == 33:
            with pytest.raises(DecodingError, match="Point 1 "):
                secp256k1.sum_encoded(good + encoding + good)


def test_sums_of_encodings_count_every_point_once():
    n = 20_000  # more than two chunks
    total = n * (n + 1) // 2
    run, point = [], secp256k1.identity
    for _ in range(n):
        point = point + secp256k1.generator
        run.append(point.encode())
    encodings = b"".join(run)
    for workers in (1, 2):
        assert secp256k1.sum_encoded(encodings, workers=workers) == of(total)
    assert secp256k1.sum_encoded(b"").is_identity
    assert secp256k1.sum_encoded(of(3).encode() + of(-3).encode()).is_identity
    with pytest.raises(DecodingError, match="incomplete"):
        secp256k1.sum_encoded(encodings[:-1])
    with pytest.raises(DecodingError, match="Point 19999 "):
        secp256k1.sum_encoded(encodings[:-33] + bytes(33))
    with pytest.raises(InputError, match="worker"):
        secp256k1.sum_encoded(encodings, workers=0)


@pytest.mark.parametrize("n", [399, 400, 1500])
def test_many_products_at_once_equal_one_product(n):
    draw = random.Random(n)  # noqa: S311
    logs = [draw.randrange(1, 100) for _ in range(n)]  # repeated points, so buckets hold equal ones
    multiples = [of(k) for k in range(100)]
    scalars = [
        draw.choice([0, 1, secp256k1.order - 1, draw.getrandbits(128), draw.randrange(secp256k1.order)])
        for _ in logs
    ]
    points = [multiples[k] for k in logs]
    expected = sum(k * s for k, s in zip(logs, scalars, strict=True))
    assert secp256k1.combine_public(points, scalars) == of(expected)
    # one more product makes the whole the identity; identities and multiples of the order add nothing
    points += [of(expected), secp256k1.identity, multiples[1]]
    assert secp256k1.combine_public(points, [*scalars, -1, 5, secp256k1.order]).is_identity


def test_products_that_cancel_everywhere_are_the_identity():
    A = of(11)
    assert secp256k1.combine_public([A, -A] * 300, [7] * 600).is_identity
    assert secp256k1.combine_public([], []).is_identity
    assert secp256k1.combine_public([A], [0]).is_identity


def test_independent_points_are_points_and_differ_by_label():
    first, second = secp256k1.independent_point(b"a"), secp256k1.independent_point(b"b")
    assert first == secp256k1.independent_point(b"a")
    assert len({first, second, secp256k1.generator}) == 3
