"""Whoever is killed at whichever message, or gets one again or of another length: it ends for everybody."""

import json
from functools import cache

import numpy as np
import pytest

from masquerade.core.errors import InputError, MasqueradeError, RoundAborted
from masquerade.crypto.errors import KeySpent
from masquerade.crypto.keys import SigningKey
from masquerade.learn.score_tables import ScoreTables
from masquerade.protocols.codec import tag_of
from masquerade.protocols.hidden.computation import (
    Computation,
    ComputingParty,
    Continuation,
    DealingHelper,
    DealRequest,
)
from masquerade.protocols.hidden.family_counts import HiddenColumns
from masquerade.protocols.hidden.helped_engine import HelpedEngine
from masquerade.protocols.hidden.structure import Search, with_counts
from masquerade.protocols.session import LocalTransport, Roster, SessionOffer, agreement_of

OWNERS, HELPER = ("one", "two"), "helper"
ROLES = (*OWNERS, HELPER)
AGREED = agreement_of("a structure")
N = 30
SIZES, HOLDER = {"u": 2, "v": 2, "w": 3}, {"u": "one", "v": "two", "w": "one"}
CODES = {"u": np.arange(N) % 2, "v": np.arange(N) // 3 % 2, "w": np.arange(N) % 2 + np.arange(N) // 20}
KINDS = (SessionOffer, Roster, Continuation, DealRequest)


def program(name):
    """Return the search of a hidden structure, one family's counts opened at the end."""

    def steps(key):
        own = {x: CODES[x] for x in CODES if HOLDER[x] == name}
        engine, columns = HelpedEngine(name, OWNERS, key, N), HiddenColumns(SIZES, HOLDER, own, N)
        search = Search.in_order(("u", "v", "w"), 2)
        found = yield from with_counts(engine, columns, search, ScoreTables.of("k2", N), ["w"])
        return json.dumps(found)

    return steps


class Sessions:
    """Members with identities and a disk; each can be killed, and comes back with nothing but these."""

    def __init__(self):
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

        def burn(run):
            if (name, run) in self.burnt:
                raise KeySpent("burnt")
            self.burnt.add((name, run))

        self.members[name] = ComputingParty(
            name,
            self.identities[name],
            public,
            helper=HELPER,
            program=program(name),
            burn=burn,
            **terms,
        )

    def run(self, carried=lambda _name, _at, message, answer: answer(message)):
        """Carry a computation; `carried` stands between the carrier and a member, and may do anything."""

        def carry(name):
            def exchange(message):
                self.sent[name].append(message)
                at = len(self.sent[name]) - 1
                return carried(name, at, message, self.members[name].receive)

            return exchange

        transport = LocalTransport({name: carry(name) for name in ROLES})
        return json.loads(Computation(OWNERS, HELPER, transport, AGREED).found())


@cache
def undisturbed():
    """Return what is found, and how many messages each member gets."""
    sessions = Sessions()
    return sessions.run(), {name: list(sent) for name, sent in sessions.sent.items()}


def test_the_computation_itself_is_right():
    (found, counts), sent = undisturbed()
    assert set(found) == {"u", "v", "w"}
    assert sum(counts["w"]) == N
    for name, messages in sent.items():
        kinds = {tag_of(message) for message in messages}
        assert kinds == {SessionOffer.TAG, Roster.TAG, (DealRequest if name == HELPER else Continuation).TAG}
    assert len(sent["one"]) == len(sent["two"]) > 15


HOW = ("before it is worked on", "its reply is lost", "and it is sent again")


def kills(messages):
    """Yield at which messages a member is killed, and how: at the first three and the last in every way."""
    last = len(messages) - 1
    for step in range(last + 1):
        for how in HOW if step < 3 or step == last else (HOW[step % 3],):
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
            return sessions.members[name].receive(message)
        raise InputError("Nobody answers.")

    return carried


@pytest.mark.parametrize("who", ROLES)
def test_a_member_that_is_killed_at_any_message_ends_the_computation(who):
    due, messages = undisturbed()
    for step, how in kills(messages[who]):
        sessions = Sessions()
        carried = killing(sessions, who, step, how)
        if (step, how) == (0, HOW[2]):
            assert sessions.run(carried) == due  # nothing was begun by then
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


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_message_that_comes_twice_shows_nothing_new(kind):
    sessions, twice = Sessions(), []

    def carried(_name, _at, message, answer):
        reply = answer(message)
        if tag_of(message) == kind.TAG:
            try:
                twice.append(answer(message) == reply)
            except KeySpent:
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
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize(
    "change",
    [lambda body: body[:-1], lambda body: body + b"\0", lambda _: b""],
    ids=["shorter", "longer", "none"],
)
def test_another_length_ends_the_computation(kind, which, change):
    sessions, changed = Sessions(), []

    def carried(_name, _at, message, answer):
        if tag_of(message) != kind.TAG or changed:
            return answer(message)
        changed.append(message)
        return answer(change(message)) if which == "message" else change(answer(message))

    with pytest.raises(RoundAborted):
        sessions.run(carried)
    assert changed
