"""Records in a common order that owners need not take anybody's word for."""

import os
from dataclasses import replace

import numpy as np
import pytest
from tests.unit.protocols.hidden.programs import Watched

from masquerade.core.errors import InputError, MasqueradeError, RoundAborted
from masquerade.protocols.hidden import places as module
from masquerade.protocols.hidden.places import PlacedOwner, PlaceOffer, check_order, placed
from masquerade.protocols.session import LocalTransport

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
    n = placed(ABC, NAMES, LocalTransport({name: it.receive for name, it in owners.items()}), SESSION)
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
    with pytest.raises(RoundAborted, match="false order"):
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
