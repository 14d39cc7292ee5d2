"""Twenty people's devices, a process each, over TLS: learners, memory, restarts, and somebody who leaves."""

import subprocess
import sys
import threading

import pytest
from tests.services.counting.world import LONG, World, libraries_of, memory_of, until

import masquerade as mq
from masquerade.core.errors import QueryRefused, RoundAborted
from masquerade.services.counting import message_queue
from masquerade.services.counting.message_queue import MessageQueue

PEOPLE, MOST_KILOBYTES = 20, 40 * 1024


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    made = World(tmp_path_factory.mktemp("devices"), "frequency", PEOPLE, patience=LONG)
    made.serve("miner", left=made.left)
    made.enrol()
    made.start_devices()
    yield made
    made.end()


def learnt(source):
    """Return what three learners make of a source."""
    frame = mq.learn.frequent_itemsets(source, min_support=0.2).to_frame()
    return (
        mq.learn.naive_bayes(source, "illness").to_dict(),
        mq.learn.decision_tree(source, "illness", criterion="gain").to_dict(),
        {
            items: round(share * PEOPLE)
            for items, share in zip(frame["itemsets"], frame["support"], strict=True)
        },
    )


def test_learners_on_devices_give_the_clear_models_and_all_else_holds(world):
    people = world.source()
    assert learnt(people) == learnt(world.clear())
    rounds = world.status()["rounds"]
    assert rounds >= 1

    for name, process in world.devices.items():
        assert process.poll() is None, (world.folder / f"{name}.log").read_text()
        assert max(memory_of(process.pid).values()) <= MOST_KILOBYTES
        loaded = libraries_of(process.pid)
        assert not [part for part in ("numpy", "numba", "pandas", "pyarrow") if f"/{part}/" in loaded]

    # a miner that is killed has what was counted, and asks on
    world.kill("miner")
    world.serve("miner", left=world.left)
    again = world.source()
    assert learnt(again) == learnt(world.clear())
    assert world.status()["rounds"] == rounds

    # somebody leaves between two rounds: the round is void, and the next one would tell what they answered
    gone = world.names[7]
    world.devices[gone].kill()
    world.devices[gone].wait()
    world.left.write_text(gone)
    question = [mq.Query(by=("smoker", "region", "illness"))]
    with pytest.raises(RoundAborted) as told:
        again.answer(question)
    assert told.value.culprits == (gone,)
    assert not told.value.spent
    with pytest.raises(QueryRefused, match="1 of the 20 users counted before left, fewer than 10"):
        again.answer(question)
    assert world.status()["left"] == [gone]

    assert world.close()["state"] == "closed"
    for name, process in world.devices.items():
        if name != gone:
            until(lambda process=process: process.poll() is not None, "a device to end")
            assert process.returncode == 0, (world.folder / f"{name}.log").read_text()
    with pytest.raises(QueryRefused, match="closed"):
        again.answer(question)


def test_a_desk_waits_for_replies_until_its_patience_has_an_end():
    queue = MessageQueue(people=2, held=0, patience=0.01)
    assert list(queue.replies({"a": b"to a", "b": b"to b"})) == []
    assert not queue.take("a", queue.letter("a").id, b"late")  # and what comes after that is lost


def test_a_device_loads_no_numeric_library():
    code = (
        "import sys, masquerade.services.counting.__main__\n"
        "import masquerade.protocols.frequency_mining.roles, masquerade.protocols.secure_aggregation.user\n"
        "import masquerade.protocols.mixnet.roles\n"
        "heavy = {'numpy', 'numba', 'pandas', 'pyarrow', 'pydantic', 'httpx', 'scipy', 'typer'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_a_reply_does_not_wake_requests_that_are_held_open(monkeypatch):
    monkeypatch.setattr(message_queue, "HOLD_SECONDS", LONG)
    queue, woken, came = MessageQueue(people=50, held=1, patience=LONG), [], []
    held = queue._changed.wait_for

    def counted(condition, timeout=None):
        return held(lambda: (woken.append(1), condition())[1], timeout)

    monkeypatch.setattr(queue._changed, "wait_for", counted)
    people = [f"P{i}" for i in range(50)]
    waiting = threading.Thread(target=queue.letter, args=("another person",))
    collecting = threading.Thread(target=lambda: came.extend(queue.replies(dict.fromkeys(people, b"to all"))))
    waiting.start()
    until(lambda: woken, "the request to wait")
    collecting.start()
    until(lambda: queue._letters, "the messages")
    for person in people:
        assert queue.take(person, queue.letter(person).id, b"reply")
    collecting.join()
    queue.end()
    waiting.join()
    assert sorted(name for name, _ in came) == sorted(people)
    assert len(woken) <= 3  # when it came, when messages were handed out, and at the end
