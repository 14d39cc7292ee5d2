"""Every gadget is exact, whoever owns what; what is shown is uniform; randomness is dealt once."""

import numpy as np
import pytest
from scipy.stats import chisquare
from tests.statistical.checks import ALPHA
from tests.unit.protocols.mpc.programs import Watched, own

from masquerade.core.errors import RoundAborted
from masquerade.crypto.errors import DecodingError, KeySpent
from masquerade.protocols.mpc.dealer import times
from masquerade.protocols.mpc.dealer_engine import FEW_COMPARED, batches
from masquerade.protocols.mpc.engine import Deal, EngineRound, run
from masquerade.protocols.mpc.masked_bits import Groups, halvings, numbers, planes

TWO, FOUR = ("a", "b"), ("a", "b", "c", "d")
CASES = 100_000
WIDE = np.iinfo(np.int64)


@pytest.mark.parametrize("parties", [TWO, FOUR], ids=len)
def test_gadgets_are_exact_for_many_numbers_and_at_the_limits(parties):
    generator = np.random.default_rng(len(parties))
    cases = CASES if parties == TWO else CASES // 10
    x = generator.integers(WIDE.min, WIDE.max, cases)
    y = generator.integers(WIDE.min, WIDE.max, cases)
    low = generator.integers(-(2**61), 2**61, cases)
    high = low + generator.integers(-2, 3, cases)
    edge = np.array([0, 0, 2**61 - 1, -(2**61)])
    low[:4], high[:4] = edge, edge[::-1]
    tables = generator.integers(WIDE.min, WIDE.max, (3, 4001))
    places = generator.integers(0, 4001, cases)
    places[:2] = 0, 4000
    apart = generator.integers(WIDE.min, WIDE.max, cases)  # places are sums that wrap around
    which = generator.integers(0, 3, len(places))
    last = parties[-1]

    def program(engine):
        first = yield from own(engine, "a", x)
        second = yield from own(engine, last, y)
        product = yield from engine.product(first, second)
        products = yield from engine.open(product)
        smaller = yield from own(engine, "b", low)
        larger = yield from own(engine, last, high)
        less = yield from engine.less(smaller, larger)  # so many by bits
        lesses = yield from engine.open(less)
        few = []
        for some in batches(cases, FEW_COMPARED):  # these by keys
            few += [(yield from engine.less(smaller[some], larger[some]))]
        less = yield from engine.open(engine.stack(few))
        assert np.array_equal(less, lesses)
        where = yield from own(engine, last, places - apart)
        rest = yield from own(engine, "a", apart)
        found = yield from engine.lookup(where + rest, tables, which)
        looked_up = yield from engine.open(found)
        matrix = yield from engine.inner(first.reshape(-1, 5), second.reshape(-1, 5))
        inner = yield from engine.open(matrix)
        return products, lesses, looked_up, inner

    products, lesses, looked_up, inner = Watched(parties).run(program)
    assert np.array_equal(products, x * y)
    assert np.array_equal(lesses, low < high)
    assert np.array_equal(looked_up, tables[which, places])
    assert np.array_equal(inner, x.reshape(-1, 5).T @ y.reshape(-1, 5))


@pytest.mark.parametrize("records", [500, 70_000], ids=["16 bits", "32 bits"])
def test_counts_over_two_and_three_owners(records):
    generator = np.random.default_rng(records)
    lines = {
        name: (generator.random((k, records)) < 0.4).astype(np.uint8)
        for name, k in zip("abc", (3, 2, 4), strict=True)
    }

    def program(engine):
        held = {
            name: engine.indicators(name, some if engine.name == name else None, some.shape)
            for name, some in lines.items()
        }
        two = yield from engine.counts([(held["a"], held["b"]), (held["a"], held["c"])])
        [crossed] = yield from engine.cross([(held["a"], held["c"])])
        [three] = yield from engine.counts([(crossed, held["b"])])
        first = yield from engine.open(two[0])
        second = yield from engine.open(two[1])
        return first, second, (yield from engine.open(three))

    watched = Watched(("a", "b", "c"), records)
    two = [lines["a"].astype(int) @ lines[name].T for name in "bc"]
    three = np.einsum("ir,jr,kr->ijk", lines["a"], lines["c"], lines["b"], dtype=int).reshape(12, 2)
    for found, due in zip(watched.run(program), [*two, three], strict=True):
        assert np.array_equal(found, due)
    indicators = [words for words in watched.shown if words.size >= records and words.dtype != np.uint64]
    assert sum(words.size for words in indicators) == (3 + 2 + 4 + 2 * 12) * records  # each masked once


def test_rows_have_their_largest_numbers_found_the_first_of_equal_ones():
    generator = np.random.default_rng(3)
    for width in (1, 2, 3, 7):
        rows = generator.integers(-3, 4, (50, width))

        def program(engine, rows=rows, width=width):
            secret = yield from own(engine, "b", rows.ravel())
            value, place = yield from engine.largest(secret, (50, width))
            values = yield from engine.open(value)
            return values, (yield from engine.open(place))

        values, places = Watched(TWO).run(program)
        assert np.array_equal(values, rows.max(axis=1))
        assert np.array_equal(places, rows.argmax(axis=1))


@pytest.mark.parametrize("secret", [(3, 5), (15, 1)], ids=str)
def test_what_is_shown_is_uniform_for_any_input(secret):
    """3·5 and 15·1 open to the same: nothing else that is shown may tell them apart from chance."""
    first, second = (np.full(4000, value) for value in secret)

    def program(engine):
        x = yield from own(engine, "a", first)
        y = yield from own(engine, "b", second)
        product = yield from engine.product(x, y)
        less = yield from engine.less(x, product, bits=31)
        found = yield from engine.lookup(x, np.arange(64)[None], np.zeros(4000, dtype=int))
        engine.stack([less, found])
        return (yield from engine.open(product))

    watched = Watched(TWO)
    assert set(watched.run(program).tolist()) == {15}
    masked = watched.shown[:-2]
    assert len(masked) == 2 * 4
    total = [one + other for one, other in zip(masked[::2], masked[1::2], strict=True)]
    for words in (*masked, *total):
        low = np.bincount((words & np.array(31, words.dtype)).astype(int), minlength=32)
        assert chisquare(low).pvalue > ALPHA / 12


@pytest.mark.parametrize("secret", [(3, 5), (-9, 1000)], ids=str)
def test_what_is_shown_of_many_comparisons_is_uniform_for_any_input(secret):
    """Both pairs come to the same bit: no word, no total and no plane of bits tells them apart."""
    count = 64 * 256
    first, second = (np.full(count, value) for value in secret)

    def program(engine):
        x = yield from own(engine, "a", first)
        y = yield from own(engine, "b", second)
        less = yield from engine.less(x, y, bits=11)
        return (yield from engine.open(less))

    watched = Watched(TWO)
    assert set(watched.run(program).tolist()) == {1}
    masked = watched.shown[:-2]
    rounds = 1 + len(halvings(11)) + 1
    assert len(masked) == 2 * rounds
    total = [one + other for one, other in zip(masked[:2:2], masked[1:2:2], strict=True)]
    total += [one ^ other for one, other in zip(masked[2::2], masked[3::2], strict=True)]
    for words in (*masked, *total):
        low = np.bincount((words & np.uint64(15)).astype(int), minlength=16)
        assert chisquare(low).pvalue > ALPHA / (6 * rounds)
    for words in (*masked[2:], *total[1:]):  # every plane by itself has as many ones as zeros
        ones = np.bitwise_count(words.reshape(-1, count // 64)).sum(axis=1)
        for some in ones:
            assert chisquare([some, count - some]).pvalue > ALPHA / 400


@pytest.mark.parametrize("bits", range(1, 8))
def test_bits_of_a_mask_are_compared_as_numbers_are(bits):
    """Every mask with every number, the shares' sums with clear products: larger where the mask is larger."""
    number, mask = (part.ravel().astype(np.uint64) for part in np.indices((1 << bits, 1 << bits)))
    assert np.array_equal(
        sum(numbers(p, mask.size) << np.uint64(at) for at, p in enumerate(planes(mask, bits))), mask
    )
    share = np.random.default_rng(bits).integers(0, 2**63, planes(mask, bits).shape, dtype=np.uint64)
    opened = planes(number, bits)
    sides = [Groups(share, opened, first=True), Groups(planes(mask, bits) ^ share, opened, first=False)]
    for step in halvings(bits):
        wanted = [side.factors(step.pairs) for side in sides]
        left, right = (one ^ other for one, other in zip(*wanted, strict=True))
        products = left[step.of_left] & right
        sides[0].join(step.pairs, products)
        sides[1].join(step.pairs, np.zeros_like(products))
    [larger] = sides[0].larger ^ sides[1].larger
    assert np.array_equal(numbers(larger, mask.size), mask > number)


def test_randomness_is_dealt_once_and_in_order():
    dealer = Watched(TWO).dealer
    deal = Deal(0, "product", (3,))
    dealer.deal(deal)
    for again in (deal, Deal(0, "less", (3, 8)), Deal(5, "product", (3,))):
        with pytest.raises(KeySpent):
            dealer.deal(again)


def test_parties_that_diverge_or_show_another_length_end_in_an_error():
    watched = Watched(TWO)

    def wrong_step(engine):
        secret = yield from own(engine, "a", np.arange(3))
        bits = 8 if engine.name == "a" else 9
        return (yield from engine.less(secret, secret, bits=bits))

    with pytest.raises(RoundAborted, match="same step"):
        watched.run(wrong_step)

    def short(engine):
        if engine.name == "b":
            yield EngineRound(np.zeros(2, dtype=np.uint64))
            return None
        secret = yield from own(engine, "a", np.arange(3))
        return (yield from engine.open(secret))

    other = Watched(TWO)
    with pytest.raises(DecodingError):
        run({name: short(engine) for name, engine in other.engines.items()}, other.dealer)


def test_multiplying_modulo_is_exact():
    generator = np.random.default_rng(9)
    for kind in (np.uint16, np.uint32, np.uint64):
        most = np.iinfo(kind).max
        left, right = (generator.integers(0, most, (k, 70_000), dtype=kind, endpoint=True) for k in (2, 3))
        left[0], right[0] = most, most
        exact = left.astype(object) @ right.T.astype(object)
        assert times(left, right).tolist() == (exact % (int(most) + 1)).tolist()
