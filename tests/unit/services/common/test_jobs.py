"""Jobs and replies apart from any network."""

import asyncio
import threading

import pytest

from masquerade.crypto.errors import KeySpent
from masquerade.services.common.jobs import Call, Jobs, PassingReply, in_thread
from masquerade.services.common.peers import Peer
from masquerade.services.common.problems import Busy, TimedOut
from masquerade.services.common.service import Metrics
from masquerade.services.common.settings import Limits
from masquerade.services.common.state import ReplyStore, State

SECONDS = 600.0  # a limit that a machine ten times slower keeps; nobody waits for it where all goes well
CALL = Call(Peer("south"), "echo", b"x", "a-key-of-mine")


def memory():
    return ReplyStore.in_memory(100)


def test_memory_keeps_the_latest():
    replies = memory()
    for number in range(260):
        replies.keep("south", f"key-{number}", "echo", "d", 200, b"x")
    assert [replies.find("south", f"key-{number}") is None for number in range(2, 6)] == [
        True,
        True,
        False,
        False,
    ]
    assert replies.find("south", "key-259").reply == b"x"
    assert replies.find("west", "key-259") is None
    longest = ReplyStore.in_memory(65 << 20)
    longest.keep("south", "long", "echo", "d", 200, bytes(65 << 20))
    assert len(longest.find("south", "long").reply) == 65 << 20


def test_what_a_busy_handler_refuses_is_not_kept():
    tries = []

    def handler(call):
        tries.append(call)
        if len(tries) == 1:
            raise Busy("later")
        return b"done"

    async def twice():
        jobs = Jobs(memory(), Limits())
        with pytest.raises(Busy, match="later"):
            await jobs.answer(CALL, handler)
        return [await jobs.answer(CALL, handler) for _ in range(2)]

    first, second = asyncio.run(twice())
    assert (first.body, second.body, first.replayed, second.replayed) == (b"done", b"done", False, True)
    assert len(tries) == 2


def test_a_passing_reply_is_given_again_while_the_process_lives_and_never_worked_out_twice(tmp_path):
    tries = []

    def handler(call):
        tries.append(call)
        return PassingReply(b"masked")

    async def asked(replies):
        return await Jobs(replies, Limits()).answer(CALL, handler)

    with State.open(tmp_path / "state") as state:
        first, second = (asyncio.run(asked(state.replies)) for _ in range(2))
    assert (first.body, second.body, first.replayed, second.replayed) == (b"masked", b"masked", False, True)
    assert type(first.body) is bytes
    with State.open(tmp_path / "state") as state, pytest.raises(KeySpent, match="no longer kept"):
        asyncio.run(asked(state.replies))
    assert len(tries) == 1


def test_an_exit_from_a_handler_is_an_error_of_that_call_alone():
    async def one():
        with pytest.raises(RuntimeError, match="SystemExit"):
            await Jobs(memory(), Limits()).answer(CALL, lambda _: exit(3))
        return await in_thread(lambda: 7)

    assert asyncio.run(one()) == 7


def test_a_job_that_nobody_waits_for_is_waited_for_at_the_end():
    go = threading.Event()
    replies = memory()

    async def one():
        jobs = Jobs(replies, Limits(seconds=0.01, concurrency=1))
        jobs.enter("south")
        with pytest.raises(TimedOut):
            await jobs.answer(CALL, lambda _: b"late" if go.wait(SECONDS) else b"")
        jobs.leave("south")
        with pytest.raises(Busy, match="at most 1 requests"):
            jobs.enter("south")
        assert not await jobs.finish(0.01)
        go.set()
        assert await jobs.finish(SECONDS)
        jobs.enter("south")
        jobs.stopping = True
        with pytest.raises(Busy, match="stopping"):
            jobs.enter("south")

    asyncio.run(one())
    assert replies.find("south", "a-key-of-mine").reply == b"late"


def test_work_that_outlives_the_loop_ends_in_silence(recwarn):
    go, ended = threading.Event(), threading.Event()

    def work():
        go.wait(SECONDS)
        ended.set()

    async def one():
        in_thread(work)

    asyncio.run(one())
    go.set()
    assert ended.wait(SECONDS)
    for thread in threading.enumerate():
        if thread.name == "masquerade call":
            thread.join(SECONDS)
    assert not recwarn.list  # an error in a thread would be one


def test_counters_are_of_one_service_and_name_no_one():
    ours, theirs = Metrics("party"), Metrics("miner")
    ours.count("sessions/{session}", 200, received=10, sent=20, seconds=0.02, replayed=True)
    ours.handshakes.inc()
    text = ours.text().decode()
    assert 'masquerade_requests_total{place="sessions/{session}",status="200"} 1.0' in text
    assert 'masquerade_received_bytes_total{place="sessions/{session}"} 10.0' in text
    assert 'masquerade_sent_bytes_total{place="sessions/{session}"} 20.0' in text
    assert 'masquerade_request_seconds_bucket{le="0.03",place="sessions/{session}"} 1.0' in text
    assert "masquerade_refused_handshakes_total 1.0" in text
    assert "sessions" not in theirs.text().decode()
