"""Processes that are killed and disks that are full while sessions run: a few here, many in the benchmark."""

import json
import time
from pathlib import Path

import pytest
from benchmarks.soak import (
    FULL,
    KILL_AFTER,
    KILL_STEP,
    SECONDS,
    Deployment,
    Fault,
    Miner,
    draws,
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
    """Every session came to its end, whatever was killed or full, and nothing was drawn twice."""
    kept = json.loads(Path("benchmarks/results/soak.json").read_text(encoding="utf-8"))
    assert kept["states"] == {"done": kept["sessions"]}
    assert kept["with_faults"] >= 80
    assert kept["unsaid"] == 0
    assert all(set(run.values()) == {1} for run in kept["models_by_text"])  # another draw, another model
    for run in kept["draws"]:
        for said in run.values():
            assert {name: said[name] for name in DRAWN_ONCE} == DRAWN_ONCE
