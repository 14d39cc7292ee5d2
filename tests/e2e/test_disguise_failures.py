"""What is left when a release fails after its first row was written: no file, and no draw that nobody counts.

Every function of ours that runs between the first row and the moment when the file has its name is made to
fail in turn, as are the system's own calls; which functions these are a first run finds out.
"""

from __future__ import annotations

import errno
import gc
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

import pytest
from tests.e2e.test_cli_app import PEOPLE, files, ok, process, run, world

import masquerade as mq
from masquerade.core.util.atomic import AtomicFile
from masquerade.disguising import files as disguised_files
from masquerade.disguising.memo import Memo
from masquerade.frames.file_writer import AtomicWriter

OURS = os.path.dirname(mq.__file__)  # noqa: PTH120  (compared with names in code objects)
DURING = {"written": True, "published": False}
WRITE, PUBLISHED = AtomicWriter.write.__code__, AtomicWriter._publish.__code__


class _Injected(BaseException):
    """What goes wrong; nothing of ours expects it."""


@contextmanager
def watched(see: Callable[[CodeType], None]) -> Iterator[None]:
    """Call `see` with every function of ours that begins after the first row and before the file is named."""
    state = {"written": False, "published": False}

    def profile(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "return":
            state["written"] |= code is WRITE
            state["published"] |= code is PUBLISHED
        elif event == "call" and code.co_filename.startswith(OURS) and state == DURING:
            see(code)

    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(None)


def named(code: CodeType) -> str:
    """Return a name for a function."""
    return f"{os.path.relpath(code.co_filename, OURS)}:{code.co_qualname}"


KINDS = {
    "a file": ["-o", "out.csv"],
    "another kind of file, with a memo": ["-o", "out.parquet", "--memo", "memo", "--new-memo", "--id", "id"],
    "a file that is replaced, told as JSON": ["-o", "old.csv", "--overwrite", "--json"],
}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of Arrow, left in the middle
@pytest.mark.parametrize(
    "options",
    [  # a run for each of dozens of functions: `make test` has the kind with the most of them
        pytest.param(options, id=name, marks=() if "memo" in name else pytest.mark.slow)
        for name, options in KINDS.items()
    ],
)
def test_no_step_after_the_first_row_leaves_a_file_when_it_fails(tmp_path, monkeypatch, request, options):
    """First the precondition: dozens of our functions run after the first row was written."""

    def fresh(name: str) -> list[str]:
        folder = tmp_path / name
        folder.mkdir()
        data, rules = world(folder)
        (folder / "old.csv").write_text("mine")
        monkeypatch.chdir(folder)
        return ["disguise", data.name, "-p", rules.name, *options]

    steps: dict[str, CodeType] = {}
    arguments = fresh("whole")
    with watched(lambda code: steps.setdefault(named(code), code)):
        assert run(*arguments).exit_code == 0
    assert {"core/util/atomic.py:sync_folder", "frames/file_writer.py:AtomicWriter.settle"} <= steps.keys()
    assert "cli/disguise.py:_Announcement.__call__" in steps
    assert len(steps) > 15
    gc.freeze()  # only what the runs below leave is looked at: what other tests left takes a second each time
    request.addfinalizer(gc.unfreeze)
    for place, (step, code) in enumerate(steps.items()):
        arguments = fresh(str(place))
        before, hit = files(tmp_path / str(place)), []

        def fail(found: CodeType, *, own: CodeType = code, hits: list[CodeType] = hit) -> None:
            if found is own and not hits:
                hits.append(found)
                raise _Injected

        with pytest.raises(_Injected), watched(fail):
            run(*arguments)
        assert hit, step
        gc.collect()  # of what the end of a with block did not come to
        left = files(tmp_path / str(place)) - before
        assert left <= {"memo"}, step
        if "memo" in left:  # it may be there without a release, never the other way round
            assert Memo.load(tmp_path / str(place) / "memo").id
        if "old.csv" in options and "old.csv" in files(tmp_path / str(place)):
            assert (tmp_path / str(place) / "old.csv").read_text() == "mine", step


SYSTEM = {
    "bringing it to the disk": ("os.fsync", 0),
    "the name": ("os.link", 0),
    "the name of the folder": ("masquerade.core.util.atomic.sync_folder", 0),
    "metadata": ("masquerade.frames.file_writer.json.dumps", 0),
}


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt(), MemoryError()], ids=repr
)
@pytest.mark.parametrize("call", [name for name, _ in SYSTEM.values()], ids=SYSTEM)
def test_no_failing_call_of_the_system_leaves_a_file(tmp_path, monkeypatch, call, error):
    data, rules = world(tmp_path)
    before = files(tmp_path)

    def fail(*_: Any, **__: Any) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(call, fail)
        if call == "os.link" and isinstance(error, OSError):  # no links there: the file is moved instead
            patched.setattr("pathlib.Path.replace", fail)
        assert run("disguise", data, "-p", rules, "-o", tmp_path / "out.csv").exit_code != 0
    assert files(tmp_path) == before


def test_a_progress_that_fails_and_a_caller_that_refuses_leave_nothing(tmp_path):
    data, rules = world(tmp_path)
    before = files(tmp_path)

    def fail(*_: object) -> None:
        assert not (tmp_path / "out.csv").exists()
        raise RuntimeError("no")

    for hook in ("progress", "before_publish"):
        memo = {"memo": tmp_path / "memo", "id": "id", "new_memo": not (tmp_path / "memo").exists()}
        with pytest.raises(RuntimeError, match="no"):
            mq.disguise_file(data, tmp_path / "out.csv", rules, **memo, **{hook: fail})
        assert files(tmp_path) - before <= {"memo"}
    assert list(Memo.load(tmp_path / "memo").releases) == [mq.Policy.load(rules).id]


def test_a_reader_of_the_report_who_has_gone_leaves_nothing(tmp_path):
    data, rules = world(tmp_path)
    before = files(tmp_path)
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-c", "from masquerade.cli import main; main()", "disguise", str(data)]
    done = subprocess.run(  # noqa: S603
        [*command, "-p", str(rules), "-o", str(tmp_path / "out.csv"), "--json"],
        stdout=writing,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writing)
    assert done.returncode == 141
    assert files(tmp_path) == before


def _small_files() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))


@pytest.mark.parametrize("ending", ["csv", pytest.param("parquet", marks=pytest.mark.slow)])
def test_a_full_disk_leaves_nothing(tmp_path, ending):
    data, rules = world(tmp_path, people=PEOPLE + "9,Ida,no,s,1,true\n" * 2_000_000)
    before = files(tmp_path)
    done = process("disguise", data, "-p", rules, "-o", tmp_path / f"out.{ending}", preexec_fn=_small_files)
    assert b"cannot be written: file too large" in done.stderr
    assert done.returncode == 2
    assert files(tmp_path) == before


def test_rows_that_left_through_standard_output_are_counted_in_the_memo(tmp_path):
    """They leave as they come, so the memo is there before the first; without one the command says so."""
    bad = PEOPLE + "9,Ida,no,s,1,true\n" * 300_000 + "10,Jan,unknown,s,1,true\n"
    data, rules = world(tmp_path, people=bad)
    memo = ["--memo", tmp_path / "memo", "--id", "id"]
    done = process("disguise", data, "-p", rules, "-o", "-", *memo, "--new-memo")
    assert done.returncode == 2
    assert done.stdout.count(b"\n") > 1  # the precondition: a draw has left
    assert list(Memo.load(tmp_path / "memo").releases) == [mq.Policy.load(rules).id]
    assert b"rows may have left" not in done.stderr
    again = process("disguise", data, "-p", rules, "-o", "-", *memo)
    assert again.stdout == done.stdout  # nothing new is told
    fresh = process("disguise", data, "-p", rules, "-o", "-")
    assert fresh.stdout.count(b"\n") > 1
    assert b"warning: rows may have been written to standard output: they are a draw" in fresh.stderr


def test_the_memo_is_saved_before_the_file_has_its_name(tmp_path, monkeypatch):
    data, rules = world(tmp_path)
    order: list[str] = []
    publish, save = AtomicFile.publish, Memo.save
    monkeypatch.setattr(Memo, "save", lambda *given: (order.append("memo"), save(*given))[1])
    monkeypatch.setattr(
        AtomicFile, "publish", lambda self, **how: (order.append(self._target.name), publish(self, **how))[1]
    )
    mq.disguise_file(data, tmp_path / "out.csv", rules, memo=tmp_path / "memo", id="id", new_memo=True)
    assert order.index("memo") < order.index("out.csv")
    assert order[-1] == "out.csv"


@pytest.mark.parametrize("columns", [400, *(pytest.param(n, marks=pytest.mark.slow) for n in (1000, 3000))])
def test_a_policy_of_many_columns_is_disguised_and_estimated(tmp_path, columns):
    """The attack: γ has more digits than Python writes, and the file was there before that showed."""
    names = [f"v{place}" for place in range(columns)]
    channel = mq.channels.symmetric(3, "0.123456789012345")
    policy = mq.Policy.build({name: ["a", "b", "c"] for name in names}, dict.fromkeys(names, channel))
    gamma = mq.privacy(policy).record_gamma
    with pytest.raises(ValueError, match="Exceeds the limit"):
        str(gamma)
    rules = tmp_path / "policy.json"
    policy.save(rules)
    rows = [",".join("abc"[(row + place) % 3] for place in range(columns)) for row in range(60)]
    (tmp_path / "people.csv").write_text(",".join(names) + "\n" + "\n".join(rows) + "\n")
    arguments = [tmp_path / "people.csv", "-p", rules, "-o", tmp_path / "out.csv", "--json"]
    done = json.loads(ok("disguise", *arguments, "--accept-gamma", "inf").stdout)
    assert done["rows"] == 60
    assert len(done["record"]["gamma_exact"]) < 20
    assert done["record"]["epsilon"] == pytest.approx(columns * mq.privacy(policy).variables[0].epsilon)
    table = json.loads(ok("estimate", tmp_path / "out.csv", "-p", rules, "--by", "v7", "--json").stdout)
    assert "60" in json.dumps(table)
    assert "γ = " in ok("privacy", rules).stdout


def test_disguise_file_writes_a_release_only_when_its_figures_are_known(tmp_path, monkeypatch):
    data, rules = world(tmp_path)
    before = files(tmp_path)

    def fail(*_: object) -> float:
        raise RuntimeError("no figure")

    for name in ("epsilon_of", "draws_before", "epsilon_together"):
        with monkeypatch.context() as patched:
            patched.setattr(disguised_files, name, fail)
            patched.setattr(AtomicWriter, "__init__", lambda *_, **__: pytest.fail("a file is written"))
            with pytest.raises(RuntimeError, match="no figure"):
                mq.disguise_file(data, tmp_path / "out.csv", rules)
    assert files(tmp_path) == before
