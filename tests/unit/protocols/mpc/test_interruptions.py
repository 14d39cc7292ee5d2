"""Whoever is killed at whichever message, or gets one again or of another length: it ends for everybody."""

import json
from functools import cache

import numpy as np
import pytest

from masquerade.core.errors import InputError, MasqueradeError, RoundAborted
from masquerade.crypto.errors import KeySpent
from masquerade.crypto.keys import SigningKey
from masquerade.learn.networks.score_tables import ScoreTables
from masquerade.protocols.mpc.computation import (
    Computation,
    ComputingParty,
    Continuation,
    DealingHelper,
    DealRequest,
)
from masquerade.protocols.mpc.dealer_engine import HelpedEngine
from masquerade.protocols.mpc.engine import EngineRound
from masquerade.protocols.mpc.family_counts import HiddenColumns
from masquerade.protocols.mpc.k_means import Lloyd, clusters
from masquerade.protocols.mpc.record_order import (
    HolderRequest,
    PlacedOwner,
    PlaceOffer,
    assign_places,
    check_order,
)
from masquerade.protocols.mpc.structure import Search, with_counts
from masquerade.protocols.mpc.tree import Growth, tree
from masquerade.protocols.wire.codec import tag_of
from masquerade.protocols.wire.session import LocalTransport, SessionOffer, SessionRoster, agreement_of

OWNERS, HELPER = ("one", "two"), "helper"
ROLES = (*OWNERS, HELPER)
AGREED = agreement_of("a structure")
N = 30
SIZES, HOLDER = {"u": 2, "v": 2, "w": 3}, {"u": "one", "v": "two", "w": "one"}
CODES = {"u": np.arange(N) % 2, "v": np.arange(N) // 3 % 2, "w": np.arange(N) % 2 + np.arange(N) // 20}
MESSAGES = (SessionOffer, SessionRoster, Continuation, DealRequest)
EPOCH, TAGS = bytes(16), np.random.default_rng(1).integers(0, 256, (N, 16), dtype=np.uint8)
BEFORE = {HolderRequest.TAG, PlaceOffer.TAG}  # by these records get into order, and nothing is computed


def structure(name, key, _owner):
    """Search for a structure, one family's counts opened at the end."""
    own = {x: CODES[x] for x in CODES if HOLDER[x] == name}
    engine, columns = HelpedEngine(name, OWNERS, key, N), HiddenColumns(SIZES, HOLDER, own, N)
    search = Search.in_order(("u", "v", "w"), 2)
    found = yield from with_counts(engine, columns, search, ScoreTables.of("k2", N), ["w"])
    return json.dumps(found)


def decision_tree(name, key, _owner):
    """Grow a tree of one split."""
    own = {x: CODES[x] for x in CODES if HOLDER[x] == name}
    engine, columns = HelpedEngine(name, OWNERS, key, N), HiddenColumns(SIZES, HOLDER, own, N)
    nodes = yield from tree(engine, columns, Growth("u", ("v",), 1))
    return json.dumps([[node.feature, node.branches, node.label] for node in nodes])


def k_means(name, key, owner):
    """Check the order of records, and find two clusters of at least three in it by two open steps."""
    engine, held = HelpedEngine(name, OWNERS, key, N), np.zeros((N, 2), dtype=np.int64)
    column = OWNERS.index(name)
    yield from check_order(engine, owner.placed_blocks, OWNERS, N)
    held[owner.offer.places[0], column] = CODES["uw"[column]]
    plan = Lloyd(N, 2, (1, 2), np.array([[0.0, 0.0], [1.0, 2.0]]), 3, 2)
    found = yield from clusters(engine, held, plan)
    return json.dumps([found.sizes.tolist(), found.sums.tolist()])


PROGRAMS = {"structure": structure, "tree": decision_tree, "k-means": k_means}
EVERY = [(what, kind) for what in PROGRAMS for kind in MESSAGES]
EVERY += [("k-means", kind) for kind in (HolderRequest, PlaceOffer)]
each_message = pytest.mark.parametrize(
    ("what", "kind"), EVERY, ids=[f"{what} {kind.__name__}" for what, kind in EVERY]
)


class Sessions:
    """Members with identities and a disk; each can be killed, and comes back with nothing but these."""

    def __init__(self, what="structure"):
        self.what, self.owners = what, {}
        self.identities = {name: SigningKey() for name in ROLES}
        self.burnt, self.sent, self.members = set(), {name: [] for name in ROLES}, {}
        for name in ROLES:
            self.restart(name)

    def restart(self, name):
        """Begin a member anew, as a process that was killed."""
        public = {other: key.public for other, key in self.identities.items()}
        terms = {"parties": OWNERS, "agreement": AGREED}
        if name == HELPER:
            self.members[name] = DealingHelper(name, self.identities[name], public, **terms)
            return

        self.owners[name] = PlacedOwner(EPOCH, [((name,), TAGS)])

        def burn(run):
            if (name, run) in self.burnt:
                raise KeySpent("burnt")
            self.burnt.add((name, run))

        self.members[name] = ComputingParty(
            name,
            self.identities[name],
            public,
            helper=HELPER,
            program=lambda key: PROGRAMS[self.what](name, key, self.owners[name]),
            burn=burn,
            **terms,
        )

    def answer(self, name, body):
        """Return a member's reply to a message, of whichever role."""
        places = name in OWNERS and body and tag_of(body) in BEFORE
        return (self.owners if places else self.members)[name].receive(body)

    def run(self, carried=lambda _name, _at, message, answer: answer(message)):
        """Carry a computation; `carried` stands between the carrier and a member, and may do anything."""

        def carry(name):
            def exchange(message):
                self.sent[name].append(message)
                at = len(self.sent[name]) - 1
                return carried(name, at, message, lambda body: self.answer(name, body))

            return exchange

        transport = LocalTransport({name: carry(name) for name in ROLES})
        if self.what == "k-means":
            assign_places(OWNERS, OWNERS, transport, EPOCH)
        return json.loads(Computation(OWNERS, HELPER, transport, AGREED).compute())


@cache
def undisturbed(what):
    """Return what is found, and how many messages each member gets."""
    sessions = Sessions(what)
    return sessions.run(), {name: list(sent) for name, sent in sessions.sent.items()}


def test_the_computations_themselves_are_right():
    (found, counts), sent = undisturbed("structure")
    assert set(found) == {"u", "v", "w"}
    assert sum(counts["w"]) == N
    for name, messages in sent.items():
        kinds = {tag_of(message) for message in messages}
        assert kinds == {
            SessionOffer.TAG,
            SessionRoster.TAG,
            (DealRequest if name == HELPER else Continuation).TAG,
        }
    assert len(sent["one"]) == len(sent["two"]) > 15
    nodes, _ = undisturbed("tree")
    assert nodes == [["v", [1, 2], None], [None, [], 0], [None, [], 1]]
    (sizes, sums), sent = undisturbed("k-means")
    assert sum(sizes) == N
    assert np.sum(sums, axis=0).tolist() == [CODES["u"].sum(), CODES["w"].sum()]
    assert {tag_of(message) for message in sent["two"]} >= BEFORE


HOW = ("before it is worked on", "its reply is lost", "and it is sent again")


def kills(what, messages):
    """Yield at which messages a member is killed, and how: the first computation's ends in every way."""
    last = len(messages) - 1
    for step in range(last + 1):
        every = what == "structure" and (step < 3 or step == last)
        for how in HOW if every else (HOW[step % 3],):
            yield step, how


def killing(sessions, who, step, how):
    """Return what stands in the way of the messages of whom is to be killed."""

    def carried(name, at, message, answer):
        if (name, at) != (who, step):
            return answer(message)
        if how == HOW[1]:
            answer(message)
        sessions.restart(name)
        if how == HOW[2]:
            return answer(message)
        raise InputError("Nobody answers.")

    return carried


def nothing_begun(what, who, message):
    """Tell whether somebody who is killed at a message and gets it again has forgotten nothing by it."""
    forgets = what == "k-means" and who != HELPER  # where its records stand
    return tag_of(message) in BEFORE or (tag_of(message) == SessionOffer.TAG and not forgets)


@pytest.mark.parametrize("what", PROGRAMS)
@pytest.mark.parametrize("who", ROLES)
def test_a_member_that_is_killed_at_any_message_ends_the_computation(who, what):
    due, messages = undisturbed(what)
    for step, how in kills(what, messages[who]):
        sessions = Sessions(what)
        carried = killing(sessions, who, step, how)
        if how == HOW[2] and nothing_begun(what, who, messages[who][step]):
            assert sessions.run(carried) == due
            continue
        with pytest.raises(RoundAborted):
            sessions.run(carried)
        turns = [
            (name, it) for name in OWNERS for it in sessions.sent[name] if tag_of(it) == Continuation.TAG
        ]
        for name, old in (*turns[:1], *turns[-1:]):  # at whoever went on or came back
            with pytest.raises(MasqueradeError):
                sessions.members[name].receive(old)
    for name in ROLES:
        sessions.restart(name)
    assert sessions.run() == due  # another computation, with other keys
    assert len({run for _, run in sessions.burnt}) == 2


@each_message
def test_a_message_that_comes_twice_shows_nothing_new(what, kind):
    sessions, twice = Sessions(what), []

    def carried(_name, _at, message, answer):
        reply = answer(message)
        if tag_of(message) == kind.TAG:
            try:
                twice.append(answer(message) == reply)
            except (KeySpent, InputError):
                twice.append(True)
        return reply

    if kind is Continuation:  # a party that is asked for a turn again trusts nobody any more
        with pytest.raises(RoundAborted, match="over"):
            sessions.run(carried)
    else:
        sessions.run(carried)
    assert twice
    assert all(twice)


@pytest.mark.parametrize("which", ["message", "reply"])
@each_message
@pytest.mark.parametrize(
    "change",
    [lambda body: body[:-1], lambda body: body + b"\0", lambda _: b""],
    ids=["shorter", "longer", "none"],
)
def test_another_length_ends_the_computation(what, kind, which, change):
    sessions, changed = Sessions(what), []

    def carried(_name, _at, message, answer):
        if tag_of(message) != kind.TAG or changed:
            return answer(message)
        changed.append(message)
        return answer(change(message)) if which == "message" else change(answer(message))

    with pytest.raises(RoundAborted):
        sessions.run(carried)
    assert changed


@pytest.mark.parametrize("what", PROGRAMS)
def test_numbers_of_a_party_of_another_length_end_the_computation(what):
    """A party that follows nothing signs what it likes: in any round too much, too little or nothing."""
    rounds = sum(tag_of(it) == Continuation.TAG for it in undisturbed(what)[1]["two"]) - 1
    changes = (lambda words: words[:-1], lambda words: np.append(words, words[:1]), lambda words: words[:0])
    for turn in range(rounds):
        sessions, changed = Sessions(what), []

        def lying(key, turn=turn, sessions=sessions, changed=changed):
            steps, at, reply = PROGRAMS[what]("two", key, sessions.owners["two"]), 0, None
            while True:
                try:
                    step = next(steps) if reply is None else steps.send(reply)
                except StopIteration as end:
                    return end.value
                if at == turn and len(step.words):
                    step = EngineRound(changes[turn % 3](step.words), step.deal)
                    changed.append(turn)
                reply, at = (yield step), at + 1

        sessions.members["two"]._program = lying
        try:
            sessions.run()
        except RoundAborted:
            continue
        assert not changed, turn  # it had nothing to show
