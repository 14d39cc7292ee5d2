"""Cheats, and servers that are killed at every step of a round."""

import threading

import pytest
from tests.services.count.world import LONG, World, kill_now, until

import masquerade as mq
from masquerade.core.errors import QueryRefused, RoundAborted
from masquerade.crypto.secp256k1 import secp256k1
from masquerade.protocols.aggregation.messages import (
    Announcement,
    Delivery,
    Endorsements,
    Neighbours,
    Survivors,
    kind_of,
)
from masquerade.protocols.codec import tag_of
from masquerade.protocols.frequency.ballots import POINT
from masquerade.protocols.frequency.messages import Gathered, Invitation, Signed, Step

PEOPLE = 12
QUESTION = [mq.Query(by=("smoker", "illness"))]


@pytest.fixture
def made(tmp_path):
    worlds = []

    def make(protocol, **more):
        world = World(tmp_path, protocol, PEOPLE, **{"minimum": 10, "patience": LONG} | more)
        worlds.append(world)
        world.serve(*[role for role in world.files if role == "miner" or role.startswith("leader")])
        world.enrol()
        return world

    yield make
    for world in worlds:
        world.end()


class DoubleVoter:
    """A user who adds one to the first count, on top of what the record says."""

    def __init__(self, user):
        self.user = user

    def receive(self, message):
        reply = self.user.receive(message)
        said = Signed.decode(reply)
        if said.step is not Step.VOTE:
            return reply
        payload = (secp256k1.decode(said.payload[:POINT]) + secp256k1.generator).encode() + said.payload[
            POINT:
        ]
        user, terms = self.user, self.user.terms
        return Signed.make(
            terms, user._identity, user=user.name, step=said.step, number=said.number, payload=payload
        ).encode()


def test_a_cheater_is_named_with_evidence_and_the_others_go_on(made):
    world = made("frequency")
    cheat = world.names[4]

    def change(name, device):
        if name == cheat:
            user = until(device._begun, "the terms")
            device._participant = DoubleVoter(user)

    world.start_threads(change)
    people = world.source()
    with pytest.raises(RoundAborted) as told:
        people.answer(QUESTION)
    assert told.value.culprits == (cheat,)
    assert told.value.spent
    assert world.status()["cheats"] == [cheat]
    # everybody was shown the vote, and is counted without whoever cast it
    [table] = people.answer(QUESTION)
    [clear] = world.clear(without=[cheat]).answer(QUESTION)
    assert table.n == PEOPLE - 1
    assert (table.values == clear.values).all()


def step_of(message):
    """Return which message of the miner this is."""
    tag = tag_of(message)
    if tag == Gathered.TAG:
        return Gathered.decode(message).step
    return Invitation if tag == Invitation.TAG else kind_of(message)


@pytest.mark.parametrize(
    ("protocol", "before", "voting"),
    [
        ("frequency", [Invitation, Step.KEYS], Step.ENDORSEMENT),
        ("aggregation", [Announcement, Neighbours], Delivery),
        ("aggregation", [], Survivors),
        ("aggregation", [], Endorsements),
    ],
)
def test_a_miner_killed_at_a_step_goes_on_and_after_votes_left_fails_closed(made, protocol, before, voting):
    world = made(protocol)
    deadly = []  # at which message the miner is killed, by the first device that gets it

    def change(_name, device):
        answer = device._answer

        def watched(role, message):
            if deadly and step_of(message) == deadly[0]:
                deadly.pop(0)
                kill_now(world.servers["miner"].pid)
            answer(role, message)

        device._answer = watched

    world.start_threads(change)
    deadly += before
    [table] = asked_through_deaths(world, QUESTION, len(before))  # nothing had left
    [clear] = world.clear().answer(QUESTION)
    assert (table.values == clear.values).all()

    deadly.append(voting)
    more = [mq.Query(by=("smoker", "region", "illness"))]
    refused = asked_through_deaths(world, more, 1)
    assert isinstance(refused, QueryRefused)
    assert {one.code for one in refused.refusals} == {"already_spent"}
    [table] = world.source().answer(QUESTION)  # what was counted is kept
    assert (table.values == clear.values).all()


def asked_through_deaths(world, queries, deaths):
    """Ask while the miner dies so many times and is started again; return the answer, or the refusal."""
    found = []

    def ask():
        try:
            found.append(world.source().answer(queries))
        except QueryRefused as refused:
            found.append(refused)

    asking = threading.Thread(target=ask)
    asking.start()
    for _ in range(deaths):
        until(lambda: world.servers["miner"].poll() is not None, "the miner to be killed")
        world.serve("miner")
    asking.join(LONG)
    return found[0]


def test_a_mix_over_leaders_and_what_a_killed_leader_ends(made):
    world = made("mix")
    world.start_threads()
    until(lambda: world.status()["sent"] == PEOPLE, "everybody's record")
    assert world.close()["records"] == PEOPLE
    assert mq.learn.naive_bayes(world.source(), "illness").to_dict() == (
        mq.learn.naive_bayes(world.clear(), "illness").to_dict()
    )
    world.kill("miner")
    world.serve("miner")
    assert world.source().n == PEOPLE  # what was opened is kept


def test_a_mix_whose_leader_or_miner_is_killed_after_the_keys_fails_closed(made):
    world = made("mix")
    world.start_threads()
    until(lambda: world.status()["sent"] == PEOPLE, "everybody's record")
    world.kill("leader1")
    address = world.folder / "leader1" / "state" / "address"
    address.unlink()
    world.serve("leader1")
    until(address.exists, "the leader to listen")
    with pytest.raises(QueryRefused, match="stopped after it gave its share"):
        world.close()
    world.kill("miner")
    world.serve("miner")
    with pytest.raises(QueryRefused, match="this mix were made: it is over"):
        world.close()
    assert world.status()["state"] == "over"


def test_somebody_who_leaves_between_two_rounds_of_sums_ends_them(made):
    """A sum over eleven beside one over twelve would show one person's record: nobody answers any more."""
    world = made("aggregation", patience=15.0)
    gone, left = world.names[3], threading.Event()

    def change(name, device):
        if name == gone:
            step = device.step
            device.step = lambda: 0.05 if left.is_set() else step()

    world.start_threads(change)
    people = world.source()
    [table] = people.answer(QUESTION)
    [clear] = world.clear().answer(QUESTION)
    assert (table.values == clear.values).all()
    left.set()
    more = [mq.Query(by=("smoker", "region", "illness"))]
    for _ in range(2):
        with pytest.raises(QueryRefused, match="1 of the 12 users counted before left, fewer than 10"):
            people.answer(more)
    assert world.status()["rounds"] == 1
    [table] = world.source().answer(QUESTION)
    assert (table.values == clear.values).all()
