"""Experiments run: the same results whoever does the work, saved as they come, taken up again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.experiments.toys.watching import TRACES, traces

from masquerade.core.errors import DataMissing, InputError, MasqueradeError
from masquerade_experiments import runner, tasks
from masquerade_experiments.catalogue import Planned, Selection
from masquerade_experiments.experiment import Pending
from masquerade_experiments.runner import reproduce
from masquerade_experiments.tasks import digest_of, own_sources, plain, seed_of, tasks_of
from masquerade_experiments.worker_pool import crew

ROOT = Path(__file__).parents[3]
TOYS = "tests.experiments.toys"
SECONDS = 600  # a limit that a machine ten times slower keeps
COIN, FAILING, HUNGRY, ODD = (
    Planned(f"toy-{name}", f"{TOYS}.{name}") for name in ("coin", "failing", "hungry", "odd")
)
LATER = Pending("toy-later", "Toy & Toy (2001)", "Figure 3", "Tomorrow", "better times")


def chosen(*entries, named=()):
    return Selection(tuple(entries), frozenset(named))


@pytest.fixture
def calls(tmp_path, monkeypatch):
    folder = tmp_path / "calls"
    folder.mkdir()
    monkeypatch.setenv(TRACES, str(folder))
    return folder


def rows_of(outcomes):
    return [outcome.findings.frame.to_csv() for outcome in outcomes]


def saved(out, identity):
    return list((out / "work" / identity).iterdir())


def test_every_run_of_every_setting_is_in_one_task():
    experiment = COIN.load()
    for runs in (1, 2, 7, 30, 31, 100):
        cut = tasks_of(COIN, experiment, runs=runs, quick=False)
        covered = [(task.setting["p"], run) for task in cut for run in range(task.first, task.last)]
        assert sorted(covered) == [(p, run) for p in (0.1, 0.3, 0.5, 0.7, 0.9) for run in range(runs)]
        assert len({task.key for task in cut}) == len(cut)


def test_more_runs_keep_the_tasks_of_fewer():
    experiment = COIN.load()
    few, many = (
        {task.key for task in tasks_of(COIN, experiment, runs=runs, quick=False)} for runs in (28, 56)
    )
    assert few < many


def test_seeds_depend_on_experiment_setting_and_run_only():
    seeds = {
        seed_of(identity, {"n": n, "p": 0.5}, run) for identity in "ab" for n in (1, 2) for run in range(50)
    }
    assert len(seeds) == 200
    assert seed_of("a", {"n": 1, "p": 0.5}, 3) == seed_of("a", {"p": 0.5, "n": 1}, 3)
    assert all(0 <= seed < 2**63 for seed in seeds)
    # kept for ever: another value would change every published figure
    assert seed_of("ma-2006-fig-2.2", {"n": 5000}, 0) == 952609183078151654


def test_the_rows_do_not_depend_on_processes_or_cutting(tmp_path, monkeypatch):
    one = reproduce(chosen(COIN, ODD), tmp_path / "one", quick=True, jobs=1)
    two = reproduce(chosen(COIN, ODD), tmp_path / "two", quick=True, jobs=2)
    monkeypatch.setattr(tasks, "PIECES", 1)
    whole = reproduce(chosen(ODD, COIN), tmp_path / "whole", quick=True, jobs=1)
    assert rows_of(one) == rows_of(two) == rows_of(reversed(whole))
    frame = one[0].findings.frame
    assert list(frame.columns) == ["p", "run", "side", "value"]
    assert len(frame) == 2 * 4 * 2
    assert frame["value"].nunique() > 8
    assert [outcome.comparisons for outcome in one] == [outcome.comparisons for outcome in two]
    assert [o.findings.picture for o in one] == [o.findings.picture for o in two]


def test_what_is_saved_is_not_run_again(tmp_path, calls):
    first = reproduce(chosen(COIN), tmp_path / "out", quick=True)
    assert traces(calls) == 2 * 4
    assert rows_of(reproduce(chosen(COIN), tmp_path / "out", quick=True, jobs=2)) == rows_of(first)
    assert traces(calls) == 2 * 4


def test_a_damaged_or_lost_result_is_run_again(tmp_path, calls):
    first = reproduce(chosen(COIN), tmp_path, quick=True)
    damaged, lost, *_ = saved(tmp_path, "toy-coin")
    damaged.write_text(damaged.read_text()[:-20])
    lost.unlink()
    before = traces(calls)
    assert rows_of(reproduce(chosen(COIN), tmp_path, quick=True)) == rows_of(first)
    assert traces(calls) == before + 2


def test_more_runs_add_to_those_that_are_saved(tmp_path, calls):
    few = reproduce(chosen(COIN), tmp_path, quick=True, runs=3)
    many = reproduce(chosen(COIN), tmp_path, quick=True, runs=5)
    assert traces(calls) == 2 * 5
    frame = many[0].findings.frame
    assert frame[frame["run"] < 3].to_csv(index=False) == few[0].findings.frame.to_csv(index=False)
    assert (many[0].findings.runs, many[0].findings.settings) == (5, 2)


def test_a_changed_experiment_is_run_again(tmp_path, calls, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    package = tmp_path / "changing"
    package.mkdir()
    helper, module, other = (package / f"{name}.py" for name in ("helper", "figure_1", "figure_2"))
    helper.write_text("from tests.experiments.toys.odd import EXPERIMENT as BASE\n")
    module.write_text("from changing.helper import BASE\n\nEXPERIMENT = BASE\n")
    other.write_text("EXPERIMENT = None\n")
    planned = Planned("toy-odd", "changing.figure_1")
    assert own_sources("changing.figure_1") == {module, helper}

    def runs():
        before = traces(calls)
        reproduce(chosen(planned), tmp_path / "out", runs=2)
        return traces(calls) - before

    assert [runs(), runs()] == [2, 0]
    other.write_text("EXPERIMENT = 1\n")
    assert runs() == 0
    helper.write_text(helper.read_text() + "# another thought\n")
    assert runs() == 2
    module.write_text(module.read_text() + "# and another\n")
    assert [runs(), runs()] == [2, 0]


def test_a_changed_library_is_noticed(monkeypatch):
    before = digest_of(COIN.module)
    assert digest_of(COIN.module) == before
    monkeypatch.setattr(tasks, "library_digest", lambda: b"another")
    assert digest_of(COIN.module) != before


def test_a_failing_run_is_named_and_the_others_stay_saved(tmp_path, calls):
    with pytest.raises(MasqueradeError) as caught:
        reproduce(chosen(COIN, FAILING), tmp_path, quick=True, jobs=1)
    line = str(caught.value)
    assert line.startswith(
        f"toy-failing: the run at q=2 with seed {seed_of('toy-failing', {'q': 2}, 2)} failed: "
    )
    assert "ZeroDivisionError at failing.py:" in line
    assert line.endswith("no luck at all")
    assert len(saved(tmp_path, "toy-coin")) == 8
    done = traces(calls)
    reproduce(chosen(COIN), tmp_path, quick=True)
    assert traces(calls) == done


def test_a_failing_run_ends_the_processes(tmp_path):
    with pytest.raises(MasqueradeError, match=r"toy-failing: the run at q=2 with seed \d+ failed"):
        reproduce(chosen(FAILING), tmp_path, jobs=2)


def test_a_process_ended_from_outside_is_no_riddle():
    with pytest.raises(MasqueradeError, match="was killed, perhaps"), crew(2) as workers:
        list(workers.each(os._exit, [1]))


def test_data_that_are_missing_are_told_and_the_others_run(tmp_path):
    coin, hungry, later = reproduce(chosen(COIN, HUNGRY, LATER), tmp_path, quick=True)
    assert (coin.verdict, hungry.verdict, later.verdict) == ("matches printed numbers", "not run", "pending")
    assert hungry.reason == (
        "The data set 'fodder' was not found. Searched in: 1. the barn: empty Set MASQUERADE_DATA."
    )
    assert later.reason == "It waits for better times."
    assert later.findings is hungry.findings is None


def test_an_experiment_called_by_name_must_run(tmp_path):
    for entries, named in (
        ((COIN, HUNGRY), ["toy-hungry"]),
        ((COIN, LATER), ["toy-later"]),
        ((HUNGRY, LATER), []),
    ):
        with pytest.raises(MasqueradeError, match=r"toy-(hungry|later) cannot run\."):
            reproduce(chosen(*entries, named=named), tmp_path, quick=True)


def test_data_are_looked_for_once_and_before_anything_runs(monkeypatch):
    asked = []

    def nowhere(name):
        asked.append(name)
        raise DataMissing(name, ["everywhere"], "Sorry.")

    monkeypatch.setattr(runner, "fetch", nowhere)
    experiments = {"a": needing("x", "y"), "b": needing("y"), "c": needing()}
    found = dict(runner.missing_data(experiments))
    assert asked == ["x", "y"]
    assert list(found) == ["a", "b"]
    assert "'x' was not found" in found["a"]


def needing(*data):
    from dataclasses import replace  # noqa: PLC0415

    return replace(COIN.load(), data=data)


def test_progress_counts_runs_also_those_saved(tmp_path):
    seen = []
    reproduce(chosen(COIN), tmp_path, quick=True, runs=2, progress=lambda *now: seen.append(now))
    assert seen == [(done, 4) for done in range(5)]
    seen.clear()
    reproduce(chosen(COIN), tmp_path, quick=True, runs=2, progress=lambda *now: seen.append(now))
    assert seen == [(4, 4)]


def test_values_are_plain():
    np = pytest.importorskip("numpy")
    for value in (np.float64(0.5), np.int64(3), np.bool_(True), "a", None, 1, True, 0.5):  # noqa: FBT003
        found = plain(value, "here")
        assert type(found) in {float, int, bool, str, type(None)}
        assert found == value
    with pytest.raises(InputError, match=r"here: a value must be a text.* not list"):
        plain([1], "here")


COMMAND = """
import sys
from masquerade_experiments import catalogue
catalogue.ENTRIES = (catalogue.Planned("toy-odd", "tests.experiments.toys.odd"),)
from masquerade.cli import main
main()
"""


def children(process):
    """Return the processes that a process has started, and those they have."""
    found = Path(f"/proc/{process}/task/{process}/children")
    below = found.read_text().split() if found.exists() else []
    return [int(child) for child in below] + [other for child in below for other in children(int(child))]


def alive(process):
    """Return whether a process still runs; one that only waits to be noticed does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads /proc")
@pytest.mark.parametrize(
    ("jobs", "number", "code"),
    [
        pytest.param(1, signal.SIGINT, 130, marks=pytest.mark.slow),
        pytest.param(2, signal.SIGINT, 130),
        pytest.param(2, signal.SIGTERM, 143, marks=pytest.mark.slow),
        pytest.param(2, signal.SIGKILL, -9, marks=pytest.mark.slow),
    ],
)
def test_an_interrupted_command_leaves_no_process_and_goes_on_later(tmp_path, calls, jobs, number, code):
    out = tmp_path / "out"
    command = [sys.executable, "-c", COMMAND, "reproduce", "toy-odd", "--jobs", str(jobs), "--out", str(out)]
    world = os.environ | {"TOY_SLEEP": "3", "PYTHONPATH": str(ROOT)}
    going = subprocess.Popen(command, env=world, stderr=subprocess.PIPE, start_new_session=True)  # noqa: S603
    folder = out / "work" / "toy-odd"
    until = time.monotonic() + SECONDS
    while len(list(folder.glob("*.json"))) < 3 and time.monotonic() < until:
        time.sleep(0.02)
    started = children(going.pid)
    assert bool(started) == (jobs > 1)
    if number == signal.SIGINT:
        os.killpg(going.pid, number)  # as the keyboard does: everybody gets it
    else:
        going.send_signal(number)
    _, said = going.communicate(timeout=SECONDS)
    assert going.returncode == code
    if number != signal.SIGKILL:  # then Python complains of what was left, with good reason
        assert said.startswith(b"masquerade: interrupted." if number == signal.SIGINT else b"")
        assert said.count(b"\n") == (number == signal.SIGINT)  # one line, and nothing of a traceback
    until = time.monotonic() + SECONDS
    while any(map(alive, started)) and time.monotonic() < until:
        time.sleep(0.02)
    assert not any(map(alive, started))
    kept = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    assert number == signal.SIGKILL or len(kept) == len(list(folder.iterdir()))
    assert 2 < len(kept) < 24
    assert not (out / "index.html").exists()
    before = traces(calls)
    again = subprocess.run(command, env=world | {"TOY_SLEEP": "0"}, capture_output=True, check=False)  # noqa: S603
    assert again.returncode == 0, again.stderr
    assert traces(calls) == before + 24 - len(kept)
    assert (out / "index.html").exists()
