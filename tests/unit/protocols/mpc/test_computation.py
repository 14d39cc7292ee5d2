"""A computation between members: what is carried, what whoever carries cannot do, what is used once."""

import json
from dataclasses import replace

import numpy as np
import pytest
from tests.unit.protocols.mpc.programs import own

from masquerade.core.errors import InputError, MasqueradeError, RoundAborted
from masquerade.crypto.errors import DecodingError, KeySpent, SealBroken
from masquerade.crypto.keys import SigningKey
from masquerade.protocols.mpc.computation import (
    Computation,
    ComputingParty,
    Continuation,
    DealingHelper,
    DealRequest,
    DealtShares,
    NeededDeal,
    Turn,
)
from masquerade.protocols.mpc.dealer import Dealer
from masquerade.protocols.mpc.dealer_engine import HelpedEngine
from masquerade.protocols.mpc.engine import Deal
from masquerade.protocols.wire.codec import tag_of
from masquerade.protocols.wire.session import LocalTransport, agreement_of

PARTIES = ("a", "b", "c")
AGREED = agreement_of("a test")
VALUES = np.arange(-20, 20)


def program(name):
    """Return a program that compares, looks up and multiplies, and opens three sums."""

    def steps(key):
        engine = HelpedEngine(name, PARTIES, key, 40)
        x = yield from own(engine, "a", VALUES)
        y = yield from own(engine, "c", VALUES[::-1].copy())
        less = yield from engine.less(x, y, bits=20)
        squares = yield from engine.product(x, y)
        found = yield from engine.lookup(less, np.array([[5, 7]]), np.zeros(40, dtype=np.int64))
        lines = (VALUES > 0).astype(np.uint8)[None]
        held = [engine.indicators(p, lines if p == name else None, lines.shape) for p in ("a", "c")]
        [both] = yield from engine.counts([tuple(held)])
        sums = [engine.linear(np.ones((1, 40), dtype=np.int64), it) for it in (less, squares, found)]
        opened = yield from engine.open(engine.stack(sums))
        count = yield from engine.open(both)
        return json.dumps([*opened.tolist(), int(count[0, 0])])

    return steps


class World:
    """Members of a computation whose messages pass by, and may be changed on the way."""

    def __init__(self, changed=lambda _to, message: message):
        keys = {name: SigningKey() for name in (*PARTIES, "helper")}
        public = {name: key.public for name, key in keys.items()}
        self.burnt, self.seen = [], []
        shared = {"parties": PARTIES, "agreement": AGREED}
        self.members = {
            name: ComputingParty(
                name,
                keys[name],
                public,
                helper="helper",
                program=program(name),
                burn=self.burn(name),
                **shared,
            )
            for name in PARTIES
        }
        self.members["helper"] = DealingHelper("helper", keys["helper"], public, **shared)
        self.changed = changed
        self.transport = LocalTransport({name: self.carried(name) for name in self.members})

    def burn(self, name):
        return lambda run: self.burnt.append((name, run))

    def carried(self, name):
        def carry(message):
            message = self.changed(name, message)
            reply = self.members[name].receive(message)
            self.seen.append((name, message, reply))
            return reply

        return carry

    def found(self):
        computation = Computation(PARTIES, "helper", self.transport, AGREED)
        return json.loads(computation.compute()), computation


def test_what_is_found_is_what_the_numbers_say_and_every_party_burnt_it_first():
    world = World()
    found, computation = world.found()
    assert found == [20, int((VALUES * VALUES[::-1]).sum()), 20 * 5 + 20 * 7, 19]
    assert sorted(world.burnt) == [(name, computation.session) for name in PARTIES]
    assert computation.cost.rounds > 5 < computation.cost.dealt
    clear = VALUES.astype("<i8").tobytes()
    assert not any(clear in message or clear in reply for _, message, reply in world.seen)


def continuation(change, number=3):
    """Return a change of what party b is told at a turn."""

    def changed(to, message):
        if to != "b" or tag_of(message) != Continuation.TAG:
            return message
        told = Continuation.decode(message)
        return change(told).encode() if told.number == number else message

    return changed


def flipped(data, place=-80):
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :] if data else b"1"


def shown(told, change):
    """Change the first turn that is carried."""
    turn = Turn.decode(told.turns[0])
    return replace(told, turns=(change(turn).encode(), *told.turns[1:]))


@pytest.mark.parametrize(
    ("change", "error", "reason"),
    [
        (
            lambda it: shown(it, lambda t: replace(t, words=flipped(t.words, 0))),
            RoundAborted,
            "changed on the way",
        ),
        (lambda it: shown(it, lambda t: replace(t, words=t.words[:-8])), RoundAborted, "changed on the way"),
        (lambda it: shown(it, lambda t: replace(t, number=t.number + 1)), RoundAborted, "changed on the way"),
        (lambda it: replace(it, turns=it.turns[::-1]), RoundAborted, "changed on the way"),
        (lambda it: replace(it, turns=it.turns[:1]), InputError, "every other party"),
        (lambda it: replace(it, sealed=flipped(it.sealed, 0)), SealBroken, ""),
        (lambda it: replace(it, number=it.number + 1), KeySpent, "run once"),
        (lambda it: replace(it, number=it.number - 1), KeySpent, "run once"),
        (lambda it: replace(it, turns=(b"nothing", *it.turns[1:])), DecodingError, ""),
    ],
    ids=["number", "length", "round", "order", "fewer", "dealt", "later", "again", "garbage"],
)
def test_a_changed_turn_ends_the_computation_for_good(change, error, reason):
    world = World(continuation(change))
    with pytest.raises(RoundAborted):
        world.found()
    last = [
        message for name, message, _ in world.seen if name == "b" and tag_of(message) == Continuation.TAG
    ][-1]
    told = Continuation.decode(last)
    world.changed = lambda _to, message: message
    for number in range(told.number + 3):  # whatever is tried afterwards, nothing more is shown
        with pytest.raises(MasqueradeError):
            world.members["b"].receive(replace(told, number=number).encode())
    party = World(continuation(change))
    raised = []

    def noted(name):
        def carry(message):
            try:
                return party.members[name].receive(party.changed(name, message))
            except MasqueradeError as trouble:
                raised.append(trouble)
                raise

        return carry

    with pytest.raises(RoundAborted):
        Computation(PARTIES, "helper", LocalTransport({n: noted(n) for n in party.members}), AGREED).compute()
    assert isinstance(raised[0], error), raised[0]
    assert reason in str(raised[0])


def test_an_old_turn_is_not_taken_for_a_new_one():
    old = {}

    def changed(to, message):
        if to == "b" and tag_of(message) == Continuation.TAG:
            told = Continuation.decode(message)
            old[told.number] = told
            if told.number == 4:
                return replace(told, turns=old[3].turns).encode()
        return message

    with pytest.raises(RoundAborted, match="old message was repeated"):
        World(changed).found()


def test_the_helper_deals_what_all_parties_signed_and_nothing_twice():
    world = World()
    world.found()
    helper = world.members["helper"]
    asked = [
        DealRequest.decode(m) for n, m, _ in world.seen if n == "helper" and tag_of(m) == DealRequest.TAG
    ]
    for request in (asked[0], asked[-1]):
        with pytest.raises(KeySpent):
            helper.receive(request.encode())
    # an owner that carries the rounds asks for the keys of another one's masks
    number = NeededDeal.decode(asked[-1].needed).number + 1
    forged = NeededDeal.of(asked[0].session, Deal(number, "mask", (16, 40, 2, 1))).encode()
    for signatures in (asked[-1].signatures, ()):
        with pytest.raises(MasqueradeError, match=r"did not sign|Every party"):
            helper.receive(replace(asked[0], needed=forged, signatures=signatures).encode())
    sealed = [
        DealtShares.decode(reply).sealed
        for n, m, reply in world.seen
        if n == "helper" and tag_of(m) == DealRequest.TAG
    ]
    assert all(len(set(parts)) == len(PARTIES) for parts in sealed)


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        ("product", ()),
        ("product", (1 << 40,)),
        ("lookup", (10, 40, 4)),
        ("lookup", (10, 4, 4)),
        ("less", (5, 64)),
        ("matrix", (1 << 30, 4, 4)),
        ("mask", (16, 1 << 40, 0, 4)),
        ("mask", (15, 10, 0, 4)),
        ("counts", (0, 0, 0)),
        ("counts", (0, 0, 0, 1)),
        ("crossed", ()),
        ("share", (1, 1 << 40)),
        ("nothing", (1,)),
    ],
)
def test_dishonest_sizes_are_refused_before_anything_is_drawn(kind, sizes):
    def key(party, purpose, number):
        raise AssertionError((party, purpose, number))

    with pytest.raises(InputError):
        Dealer(PARTIES, key).deal(Deal(0, kind, sizes))


def test_a_party_that_burnt_a_computation_shows_nothing_of_it():
    world = World()

    def spent(_run):
        raise KeySpent("burnt")

    world.members["b"]._burn = spent
    with pytest.raises(RoundAborted, match="burnt"):
        world.found()
    assert not [1 for name, _, reply in world.seen if name == "b" and tag_of(reply) == Turn.TAG]


def test_others_than_agreed_are_refused():
    with pytest.raises(RoundAborted, match="differ from the agreement"):
        Computation(("b", "a", "c"), "helper", World().transport, AGREED)
    with pytest.raises(RoundAborted, match="terms of the session differ"):
        Computation(PARTIES, "helper", World().transport, agreement_of("another"))
