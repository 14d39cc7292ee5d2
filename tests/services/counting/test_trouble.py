"""Cheats, and servers that are killed at every step of a round."""

import os
import signal
import threading

import pytest
import yaml
from tests.services.counting.world import LONG, World, kill_now, until

import masquerade as mq
from masquerade.core.errors import QueryRefused, RoundAborted
from masquerade.crypto.secp256k1 import secp256k1
from masquerade.protocols.frequency_mining.ballots import POINT
from masquerade.protocols.frequency_mining.messages import (
    Gathered,
    Invitation,
    MiningStep,
    SignedMiningMessage,
)
from masquerade.protocols.secure_aggregation.messages import (
    Announcement,
    Delivery,
    Endorsements,
    Neighbours,
    Survivors,
    kind_of,
)
from masquerade.protocols.wire.codec import tag_of

PEOPLE = 12
QUESTION = [mq.Query(by=("smoker", "illness"))]


@pytest.fixture
def made(tmp_path):
    worlds = []

    def make(protocol, *, deadly=None, hasty=False, leaving=False, **more):
        world = World(tmp_path, protocol, PEOPLE, **{"minimum": 10, "patience": LONG} | more)
        worlds.append(world)
        if hasty:
            text = yaml.safe_load(world.node.read_text()) | {"retries": 0, "limits": {"seconds": 2}}
            world.node.write_text(yaml.safe_dump(text))
        for role in world.files:
            if role == "miner" or role.startswith("leader"):
                left = world.left if leaving and role == "miner" else None
                world.serve(role, deadly=(deadly or {}).get(role, ""), left=left)
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
        said = SignedMiningMessage.decode(reply)
        if said.step is not MiningStep.VOTE:
            return reply
        payload = (secp256k1.decode(said.payload[:POINT]) + secp256k1.generator).encode() + said.payload[
            POINT:
        ]
        user, terms = self.user, self.user.terms
        return SignedMiningMessage.make(
            terms, user._identity, user=user.name, step=said.step, number=said.number, payload=payload
        ).encode()


def test_a_cheater_is_named_with_evidence_and_the_others_go_on(made):
    world = made("frequency")
    cheat = world.names[4]

    def change(name, device):
        if name == cheat:
            user = until(device._start, "the terms")
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
        ("frequency", [Invitation, MiningStep.KEYS], MiningStep.ENDORSEMENT),
        pytest.param("aggregation", [Announcement, Neighbours], Delivery, marks=pytest.mark.slow),
        ("aggregation", [], Survivors),
        pytest.param("aggregation", [], Endorsements, marks=pytest.mark.slow),
    ],
)
def test_a_miner_killed_at_a_step_goes_on_and_after_votes_left_fails_closed(made, protocol, before, voting):
    world = made(protocol)
    deadly = []  # at which message the miner is killed, by the first device that gets it

    def change(_name, device):
        answer = device._answer

        def watched(role, message, letter):
            if deadly and step_of(message) == deadly[0]:
                deadly.pop(0)
                kill_now(world.servers["miner"].pid)
            answer(role, message, letter)

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


def closed(world):
    """Close a mix; None if a leader was out of reach."""
    try:
        return world.close()
    except mq.MasqueradeError as error:
        if "'leader2'" in str(error) and "gave no answer" in str(error):
            return None
        raise


def test_a_mix_over_leaders_is_closed_in_spite_of_one_out_of_reach_and_kept(made):
    world = made("mix", hasty=True)
    late, seen, go, devices = world.names[5], threading.Event(), threading.Event(), []

    def change(name, device):
        if name != late:
            return
        answer, device.http.patience = device._answer, LONG

        def slow(*given):  # has seen the keys, and takes its time
            seen.set()
            go.wait(LONG)
            answer(*given)

        device._answer = slow
        devices.append(device)

    world.start_threads(change)
    until(lambda: seen.is_set() and world.status()["sent"] == PEOPLE - 1, "everybody's record but one")
    leader = world.servers["leader2"].pid
    os.kill(leader, signal.SIGSTOP)
    assert closed(world) is None
    go.set()  # what the first leader has shuffled stays as it is: who comes now is told so
    until(lambda: devices[0].over, "the late one to be answered")
    assert devices[0].refused == ["The mix was closed before this record arrived: it was not accepted."]
    os.kill(leader, signal.SIGCONT)
    status = until(lambda: closed(world), "the leader to be reached")
    assert status["records"] == PEOPLE - 1
    assert mq.learn.naive_bayes(world.source(), "illness").to_dict() == (
        mq.learn.naive_bayes(world.clear(without=[late]), "illness").to_dict()
    )
    world.kill("miner")
    world.serve("miner")
    assert world.source().n == PEOPLE - 1  # what was opened is kept


@pytest.mark.parametrize(
    "step",
    [*(pytest.param(step, marks=pytest.mark.slow) for step in ("share", "shuffle", "endorse")), "open"],
)
def test_a_mix_whose_leader_or_miner_is_killed_after_the_keys_fails_closed(made, step):
    """The second leader is killed when it has done a step, before anybody knows; the first has done it."""
    world = made("mix", deadly={"leader2": step})
    world.start_threads()
    if step == "share":
        until(lambda: world.servers["leader2"].poll() is not None, "the leader to be killed")
        world.serve_again("leader2")
        with pytest.raises(QueryRefused, match="No one has sent a record yet"):
            world.close()  # nobody was shown a key
        assert world.status()["sent"] == 0
        return
    until(lambda: world.status()["sent"] == PEOPLE, "everybody's record")
    found = []

    def close():
        try:
            world.close()
        except mq.MasqueradeError as error:
            found.append(error)

    closing = threading.Thread(target=close)
    closing.start()
    until(lambda: world.servers["leader2"].poll() is not None, "the leader to be killed")
    world.serve_again("leader2")
    closing.join(LONG)
    # the closing fails whether the leader was back in time or not, and so does every later one
    (refused,) = found
    assert "'leader2'" in str(refused)
    with pytest.raises(QueryRefused, match="'leader2' stopped after it gave its share"):
        world.close()
    assert world.status()["state"] == "over"
    with pytest.raises(QueryRefused, match="nothing was opened"):
        world.source()
    if step == "open":
        world.kill("miner")
        world.serve_again("miner")
        with pytest.raises(QueryRefused, match="this mix were made: this count is over"):
            world.close()
        assert world.status()["state"] == "over"


def test_somebody_who_leaves_between_two_rounds_of_sums_ends_them(made):
    """A sum over eleven beside one over twelve would show one person's record: nobody answers any more."""
    world = made("aggregation", leaving=True)
    gone, left, silent = world.names[3], threading.Event(), threading.Event()

    def change(name, device):
        if name != gone:
            return
        step = device.step

        def last():
            if not left.is_set():
                return step()
            silent.set()
            return 0.05

        device.step = last

    world.start_threads(change)
    people = world.source()
    [table] = people.answer(QUESTION)
    [clear] = world.clear().answer(QUESTION)
    assert (table.values == clear.values).all()
    left.set()
    assert silent.wait(LONG)  # what it was about to answer is answered
    world.left.write_text(gone)
    more = [mq.Query(by=("smoker", "region", "illness"))]
    for _ in range(2):
        with pytest.raises(QueryRefused, match="1 of the 12 users counted before left, fewer than 10"):
            people.answer(more)
    assert world.status()["rounds"] == 1
    [table] = world.source().answer(QUESTION)
    assert (table.values == clear.values).all()
