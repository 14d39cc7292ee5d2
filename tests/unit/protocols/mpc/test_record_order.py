"""Records in a common order that owners need not take anybody's word for."""

import hashlib
import os
from dataclasses import replace

import numpy as np
import pytest
from tests.unit.protocols.mpc.programs import Watched

from masquerade.core.errors import InputError, MasqueradeError, RoundAborted
from masquerade.protocols.linkage.pseudonyms import words_of
from masquerade.protocols.mpc import record_order as module
from masquerade.protocols.mpc.dealer import SHARE, expand_key
from masquerade.protocols.mpc.engine import Deal
from masquerade.protocols.mpc.record_order import PlacedOwner, PlaceOffer, assign_places, check_order
from masquerade.protocols.wire.session import LocalTransport

NAMES, SESSION = ("x", "y", "z"), os.urandom(16)
ABC = ("a", "b", "c")


def blocks_of(n=40):
    """Return blocks by owner: b has all of the first people, of the others a has x, b has y and c has z."""
    tags = np.frombuffer(os.urandom(16 * n), dtype=np.uint8).reshape(n, 16)
    rest = tags[n // 4 :]
    shuffled = {owner: np.random.default_rng().permutation(len(rest)) for owner in ABC}
    return {
        "a": [(("x",), rest[shuffled["a"]])],
        "b": [(NAMES, tags[: n // 4]), (("y", "unused"), rest[shuffled["b"]])],
        "c": [(("z",), rest[shuffled["c"]])],
    }


def ordered(blocks):
    owners = {name: PlacedOwner(SESSION, own) for name, own in blocks.items()}
    n = assign_places(ABC, NAMES, LocalTransport({name: it.receive for name, it in owners.items()}), SESSION)
    told = {
        name: [(own, tags, where.copy()) for own, tags, where in it.placed_blocks]
        for name, it in owners.items()
    }
    return told, n


def checked(told, n):
    watched = Watched(ABC, n)
    watched.run(lambda engine: check_order(engine, told[engine.name], NAMES, n))
    return watched


@pytest.mark.parametrize("at_once", [1 << 16, 7])
def test_a_true_order_is_taken_and_its_check_opens_zeros_alone(monkeypatch, at_once):
    monkeypatch.setattr(module, "AT_ONCE", at_once)
    told, n = ordered(blocks_of())
    watched = checked(told, n)
    shown = [words for words in watched.shown if words.size == module.CHECKS]
    assert not np.any(shown[-2] + shown[-1])  # of the two who hold shares
    assert np.all(shown[-1])


def swapped(told, n):
    """Two people's cells change places at one owner."""
    told["a"][0][2][[0, 1]] = told["a"][0][2][[1, 0]]
    return n


def padded(_told, n):
    """Records are added that nobody has: a cluster of few would be large."""
    return n + 20


def twice(told, n):
    """A cell is put upon another owner's, and one's own place stays empty."""
    told["c"][0][2][0] = told["b"][0][2][0]
    return n


def left_out(told, n):
    """An owner gets the places of fewer people."""
    names, tags, where = told["c"][0]
    told["c"] = [(names, tags[1:], where[1:])]
    return n


@pytest.mark.parametrize("change", [swapped, padded, twice, left_out], ids=lambda it: it.__name__)
@pytest.mark.parametrize("at_once", [1 << 16, 7])
def test_a_false_order_ends_the_computation_before_it_begins(monkeypatch, change, at_once):
    monkeypatch.setattr(module, "AT_ONCE", at_once)
    told, n = ordered(blocks_of())
    n = change(told, n)
    with pytest.raises(RoundAborted, match="order of the records is false"):
        checked(told, n)


def test_places_of_another_number_or_beyond_all_or_given_twice_are_refused():
    tags = np.frombuffer(os.urandom(16 * 4), dtype=np.uint8).reshape(4, 16)
    good = PlaceOffer(SESSION, 6, (np.array([5, 0, 2, 3], dtype=np.uint32),))
    for wrong in (
        replace(good, places=()),
        replace(good, places=(*good.places, *good.places)),
        replace(good, places=(good.places[0][:-1],)),
        replace(good, places=(np.array([5, 0, 2, 6], dtype=np.uint32),)),
        replace(good, places=(np.array([5, 0, 2, 2], dtype=np.uint32),)),
        replace(good, records=3),
        replace(good, records=2**40),
        replace(good, session=os.urandom(16)),
    ):
        owner = PlacedOwner(SESSION, [(("x",), tags)])
        with pytest.raises(MasqueradeError):
            owner.receive(wrong.encode())
        with pytest.raises(RoundAborted, match="no common order yet"):
            _ = owner.offer
    owner = PlacedOwner(SESSION, [(("x",), tags)])
    owner.receive(good.encode())
    with pytest.raises(InputError, match="already"):
        owner.receive(good.encode())


def test_a_party_of_few_records_does_no_work_for_as_many_as_it_is_told(monkeypatch):
    """Of each record there is said to be, checking the order expands numbers: 2^28 cost a minute."""
    tags = np.frombuffer(os.urandom(16 * 4), dtype=np.uint8).reshape(4, 16)
    places = (np.arange(4, dtype=np.uint32),)
    owner = PlacedOwner(SESSION, [(("x",), tags)], most=100)
    with monkeypatch.context() as patched:
        patched.setattr(module.np, "zeros", None)  # what it would take for each record is not even made
        for records in (101, 2**28):
            with pytest.raises(InputError, match="at most 100 "):
                owner.receive(PlaceOffer(SESSION, records, places).encode())
    owner.receive(PlaceOffer(SESSION, 100, places).encode())
    assert owner.offer.records == 100


TWO, PEOPLE = ("x", "y"), 24


def two_of_three():
    """Return people, whose x lies with a, and blocks: c has y of everybody, a and b have x of some."""
    tags = np.frombuffer(os.urandom(16 * PEOPLE), dtype=np.uint8).reshape(PEOPLE, 16)
    tags = tags[np.lexsort(tuple(tags.T[::-1]))]  # whoever knows all people knows their order
    with_a = np.random.default_rng().permutation(PEOPLE) < PEOPLE // 2
    return (
        tags,
        with_a,
        {"a": [(("x",), tags[with_a])], "b": [(("x",), tags[~with_a])], "c": [(("y",), tags)]},
    )


def whose(shown, tags, split):
    """Return who has a cell of x with a, from what everybody sees and what c knows; None if nothing fits.

    c knows everybody's pseudonym, and the part of a's share that it split its own sum by. What a showed last,
    less that, is a sum over a's people, unless it is random: which sum is found by halves, 2^12 of each.
    """
    nonces = shown[:3]
    seed = hashlib.sha256(b"".join(words.astype("<u8").tobytes() for words in nonces)).digest()
    factors = expand_key(hashlib.sha256(seed + b"pseudonyms").digest(), 2 * module.CHECKS).reshape(2, -1, 1)
    first, second = words_of(tags)
    key = hashlib.sha256(seed + (0).to_bytes(8, "big")).digest()
    u, w = expand_key(key, 2 * module.CHECKS * 2 * PEOPLE).reshape(2, module.CHECKS, 2, PEOPLE)
    one = u[:, 0] + w[:, 1] * (factors[0] * first + factors[1] * second)
    due = shown[-3] + u.sum(axis=(1, 2), dtype=np.uint64) - split
    chosen = ((np.arange(1 << 12)[:, None] >> np.arange(12)) & 1).astype(np.uint64)
    low, high = chosen @ one[:, :12].T, chosen @ one[:, 12:].T
    at = {int(total): place for place, total in enumerate(low[:, 0])}
    for place, rest in enumerate(due[0] - high[:, 0]):
        found = at.get(int(rest))
        if found is not None and np.array_equal(low[found] + high[place], due):
            return np.concatenate([chosen[found], chosen[place]]).astype(bool)
    return None


def test_a_check_of_the_order_does_not_tell_a_third_owner_whom_the_others_have(monkeypatch):
    def as_they_are(_engine, secret):
        yield from ()
        return secret

    def seen_by_c():
        tags, with_a, blocks = two_of_three()
        owners = {name: PlacedOwner(SESSION, own) for name, own in blocks.items()}
        n = assign_places(
            ABC, TWO, LocalTransport({name: it.receive for name, it in owners.items()}), SESSION
        )
        watched = Watched(ABC, n)
        watched.run(lambda engine: check_order(engine, owners[engine.name].placed_blocks, TWO, n))
        [of_c] = [words for words in watched.shown[6:9] if words.size]
        split = of_c + watched.engines["a"]._mask("share", Deal(0, SHARE, ()), module.CHECKS)
        return with_a, whose(watched.shown, tags, split)

    for _ in range(5):
        _, found = seen_by_c()
        assert found is None  # by chance with a probability of 2^24 · 2^-192
    monkeypatch.setattr(module, "refresh_shares", as_they_are)
    for _ in range(5):
        with_a, found = seen_by_c()
        assert np.array_equal(found, with_a)  # the attack: every one of 24 people
