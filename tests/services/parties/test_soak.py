"""Processes that are killed and disks that are full while sessions run: a few here, many in the benchmark."""

import json
import time
from pathlib import Path

import pytest
from benchmarks.soak import FAULTS as ALL_FAULTS
from benchmarks.soak import (
    FULL,
    KILL_AFTER,
    KILL_STEP,
    SECONDS,
    Deployment,
    Fault,
    Miner,
    draws,
    growth,
    long_lives,
    memo_of,
    soaked,
)

from masquerade.services.parties.example import MINER, OWNERS

DRAWN_ONCE = {
    "most_draws_of_a_policy": 1,
    "draws_of_other_memos": 0,
    "spent_more_than_once": 0,
    "restored_lines": 0,
}
LEAKS = {"kept": 0, "leaking": 1}
FAULTS = [
    Fault("south", KILL_AFTER, at=4),
    Fault(MINER, KILL_STEP, at=2),
    Fault("north", FULL, at=2, lasts=2),
]


@pytest.fixture
def deployment(tmp_path):
    made = Deployment(tmp_path, 2 + len(FAULTS))
    try:
        yield made
    finally:
        made.stop()


def test_two_live_sessions_that_race_on_one_memo_and_others_that_are_killed_draw_once(deployment):
    """Two processes of one party and then two sessions begin at once, on a state that has no memo yet."""
    for name in deployment.files:
        deployment.start(name)
    first = deployment.processes["south"]
    deployment.start("south")
    both, until = (first, deployment.processes["south"]), time.monotonic() + SECONDS
    while all(process.is_alive() for process in both) and time.monotonic() < until:
        time.sleep(0.005)
    [deployment.processes["south"]] = [one for one in both if one.is_alive()]  # one of them has the state
    deployment.mend()
    memos, miner = {party: memo_of(deployment, party) for party in OWNERS}, Miner(deployment)
    raced = [spec for _, spec in deployment.specs[:2]]
    for spec in raced:
        miner.ask("create", spec=spec.model_dump(mode="json"))
        miner.ask("run", session=spec.session)
    states = ["running"]
    while "running" in states:
        assert time.monotonic() < until
        time.sleep(0.05)
        states = [miner.ask("status", session=spec.session)["state"] for spec in raced]
    assert states == ["done", "done"]
    miner.close()
    for (kind, spec), fault in zip(deployment.specs[2:], FAULTS, strict=True):
        ended = soaked(deployment, kind, spec, fault)
        assert ended["state"] == "done"
        assert all(ended["reasons"])
    assert deployment.starts["north"] == 1
    assert min(deployment.starts[name] for name in ("south", MINER)) >= 2  # they were killed
    assert {party: memo_of(deployment, party) for party in OWNERS} == memos
    for party, said in draws(deployment).items():
        assert {name: said[name] for name in DRAWN_ONCE} == DRAWN_ONCE, party


def test_what_the_kept_sessions_came_to():
    """In one chain of 200 sessions and more all came to their end, nothing was drawn twice, nothing grew."""
    [kept] = json.loads(Path("benchmarks/results/soak.json").read_text(encoding="utf-8")).values()
    assert kept["sessions"] >= 200
    assert kept["states"] == {"done": kept["sessions"]}
    assert kept["with_faults"] >= 150
    assert set(kept["faults"]) == {*ALL_FAULTS, "none"}
    assert all(number > 10 for number in kept["starts"].values())  # every process was killed, again and again
    assert kept["unsaid"] == 0
    assert set(kept["models_by_text"].values()) == {1}  # another draw, another model
    assert kept["memos_unchanged"]
    for said in kept["draws"].values():
        assert {name: said[name] for name in DRAWN_ONCE} == DRAWN_ONCE
    for growth_ in (kept["growth"], kept["growth_of_long_lives"]):  # without faults, under others
        assert set(growth_) == {*OWNERS, MINER}
        for node, grown in growth_.items():
            assert grown["sessions"] >= 40
            assert grown["files"] <= 1, node  # a connection that is kept for the next request
            assert grown["threads"] == 0, node
            assert grown["mib"] <= 0.05 * grown["sessions"], node  # ledgers and histories have more lines


def test_growth_is_seen():
    """A process that opens a file in every session has more of them in the end, one that does not has not."""
    sizes = [
        {
            name: {"process": 1, "files": 9 + leak * i, "threads": 4, "mib": 200.0}
            for name, leak in LEAKS.items()
        }
        for i in range(30)
    ]
    sizes[14]["kept"]["files"] += 3  # a request under way
    for found in (growth(sizes), long_lives(sizes)):
        assert found["kept"]["files"] == 0
        assert found["leaking"]["files"] == 10
        assert found["leaking"]["sessions"] == 30
    restarted = [one | {"leaking": one["leaking"] | {"process": i // 10}} for i, one in enumerate(sizes)]
    assert long_lives(restarted)["leaking"]["sessions"] == 10
