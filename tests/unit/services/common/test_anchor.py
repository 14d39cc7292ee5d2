"""A restored state folder is detected: by any method, on any file system, for any of its files."""

from __future__ import annotations

import itertools
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from tests.unit.services.common.file_systems import ALL, mounted

from masquerade.core.errors import FileError
from masquerade.crypto.errors import KeySpent
from masquerade.crypto.keys import SigningKey
from masquerade.protocols.wire.durable_store import Claim, Claims
from masquerade.services.common import anchor as anchor_module
from masquerade.services.common.anchor import Anchor, AnchorStep
from masquerade.services.common.release_ledger import FILE, Release, in_state
from masquerade.services.common.state import State, peek, peek_problem

KEY = SigningKey()
RELEASE = Release("s", "pooled-counts", "miner", "counts", ("a",), 100, None, None)
STATE, BURNT, LEDGER, ANCHOR = "state.sqlite", "once/burnt.sqlite", FILE, "once/anchor"
PARTS = (STATE, BURNT, LEDGER, ANCHOR)
ONCE = (BURNT, ANCHOR)
SUBSETS = [chosen for n in range(1, 5) for chosen in itertools.combinations(PARTS, n)]


def files_of(folder, part):
    """Return the files of a part of a state, relative to it: the anchor is two of them."""
    places = (folder / "once").glob("anchor-*") if part == ANCHOR else [folder / part]
    return [str(place.relative_to(folder)) for place in sorted(places)]


def run(*command, **more):
    subprocess.run(command, check=True, capture_output=True, **more)  # noqa: S603


def each(command):
    """Return a way that runs a command for every file, from the backup to its place in the state."""

    def way(backup, folder, files):
        for file in files:
            run(*command, str(backup / file), str(folder / file))

    return way


def tar(*options):
    def way(backup, folder, files):
        run("tar", "-cf", str(backup / "all.tar"), "-C", str(backup), *files)
        run("tar", "-xf", str(backup / "all.tar"), "-C", str(folder), *options)

    return way


def cat(backup, folder, files):
    for file in files:
        (folder / file).write_bytes(
            (backup / file).read_bytes()
        )  # as a shell's > does: truncated, then written


def move(backup, folder, files):
    for file in files:
        run("cp", "-a", str(backup / file), str(folder / f"{file}.copy"))
        run("mv", str(folder / f"{file}.copy"), str(folder / file))


def dd(backup, folder, files):
    for file in files:
        run("dd", f"if={backup / file}", f"of={folder / file}", "conv=notrunc", "status=none")


def mirror(*options):
    """Return a way that also removes, in the folders of the files, what the backup does not have."""

    def way(backup, folder, files):
        for file in files:
            if "anchor-" in file:
                for other in (folder / "once").glob("anchor-*"):
                    if not (backup / "once" / other.name).exists():
                        other.unlink()
            run("rsync", "-aI", *options, str(backup / file), str(folder / file))

    return way


# rsync with -I: it takes files of one size and second for the same, and a test has both in a second
WAYS = {
    "cp -a": each(["cp", "-a"]),
    "cp -r": each(["cp", "-r"]),
    "cp --preserve=all": each(["cp", "--preserve=all"]),
    "tar --overwrite": tar("--overwrite"),
    "tar": tar(),
    "rsync -a": each(["rsync", "-aI"]),
    "rsync --inplace": each(["rsync", "-aI", "--inplace"]),
    "rsync --delete": mirror(),
    "cat >": cat,
    "mv of a copy": move,
    "dd conv=notrunc": dd,
}


@pytest.fixture(scope="module", params=ALL)
def file_system(request, tmp_path_factory):
    with mounted(request.param, tmp_path_factory.mktemp("system")) as folder:
        yield folder


def wait_for_the_clock(folder):
    """Wait until a change in the folder gets a time that differs from all earlier ones."""
    latest = max(path.stat().st_ctime_ns for path in [folder, *folder.rglob("*")])
    probe = folder.parent / "probe"
    while True:
        probe.write_bytes(b"x")
        if probe.stat().st_ctime_ns > latest:
            return


def burn(folder, key):
    """Open a state with its ledger, change everything in it once, and return what it noticed."""
    with State.open(folder) as state, in_state(state, KEY) as ledger:
        noticed = state.problem
        state.burnt.claim([Claim("key", key)])
        state.notes.put("other", key.decode(), b"x")
        ledger.append(RELEASE)
        return noticed


def free_again(folder, part, key):
    """Return True if a file, read byte by byte, no longer contains a key."""
    if part == BURNT:
        with closing(sqlite3.connect(f"{(folder / BURNT).as_uri()}?immutable=1", uri=True)) as store:
            return not store.execute("SELECT 1 FROM claimed WHERE name = ?", (key,)).fetchall()
    if part == STATE:
        return peek(folder, "other", key.decode()) is None
    return None


def put_back(folder, backup, way, chosen, key):
    """Burn a key, and restore parts of the folder; return True if bytes changed."""
    shutil.rmtree(backup, ignore_errors=True)
    shutil.copytree(folder, backup)
    shutil.copy(folder / LEDGER, folder.parent / "ledger")
    assert burn(folder, key) == ""
    now = {part: (folder / part).read_bytes() for part in chosen if part != ANCHOR}
    ledger = (folder / LEDGER).read_bytes()
    wait_for_the_clock(folder)
    way(backup, folder, [file for part in chosen for file in files_of(backup, part)])
    for part in chosen:
        if part == ANCHOR:
            assert set(files_of(backup, ANCHOR)) <= set(files_of(folder, ANCHOR))
        elif (folder / part).read_bytes() != now[part]:
            assert free_again(folder, part, key) is not False  # used, and free for whoever reads the bytes
    changed = [part for part in chosen if part == ANCHOR or (folder / part).read_bytes() != now[part]]
    return changed, ledger


def check_noticed(folder, changed, ledger, key):
    """Check that a partial restore is detected, and that the state can be used again."""
    told = peek_problem(folder)
    if set(changed) - {LEDGER}:
        assert told, changed
    if LEDGER in changed and STATE not in changed:  # the state knows its end
        with State.open(folder) as state, pytest.raises(FileError, match="the ledger was shortened"):
            in_state(state, KEY)
        (folder / LEDGER).write_bytes(ledger)
        return
    with State.open(folder) as state, in_state(state, KEY) as kept:
        assert state.problem == told, changed
        assert kept.doubted
        if BURNT not in changed:
            with pytest.raises(KeySpent):
                state.burnt.claim([Claim("key", key)])


def usable(way):
    if "rsync" in way and shutil.which("rsync") is None:
        pytest.skip("no rsync here")
    return WAYS[way]


@pytest.mark.parametrize("way", WAYS)
def test_a_folder_put_back_in_any_way_is_noticed_on_any_file_system(file_system, way, tmp_path):
    """All of it, and what lies in once/ alone."""
    folder = file_system / f"state {way}"
    act = usable(way)
    burn(folder, b"first")
    for number, chosen in enumerate([PARTS, ONCE]):
        key = f"key {number}".encode()
        changed, ledger = put_back(folder, tmp_path / "backup", act, chosen, key)
        assert BURNT in changed
        check_noticed(folder, changed, ledger, key)


@pytest.mark.parametrize("way", WAYS)
def test_any_files_of_a_folder_put_back_are_noticed(way, tmp_path):
    """Each file alone, each pair, and more of them."""
    folder, act = tmp_path / "state", usable(way)
    burn(folder, b"first")
    for number, chosen in enumerate(SUBSETS):
        key = f"key {number}".encode()
        changed, ledger = put_back(folder, tmp_path / "backup", act, chosen, key)
        if changed:  # a longer ledger over which the shorter is written is the longer one still
            check_noticed(folder, changed, ledger, key)


def test_the_last_change_alone_cannot_be_taken_back(file_system, tmp_path):
    """A backup of the folder in use, from just before a key was used, is restored file by file."""
    folder = file_system / "last"
    with State.open(folder) as state:
        state.burnt.claim([Claim("key", b"0")])
        shutil.copytree(folder, tmp_path / "backup")
        state.burnt.claim([Claim("key", b"1")])
        one_step_back = {path.name for path in (tmp_path / "backup" / "once").glob("anchor-*")}
    (newer,) = {path.name for path in (folder / "once").glob("anchor-*")} - one_step_back
    wait_for_the_clock(folder)
    # the newer file gets its earlier name again, and the database its earlier bytes
    (older,) = one_step_back - {path.name for path in (folder / "once").glob("anchor-*")}
    (folder / "once" / newer).rename(folder / "once" / older)
    shutil.copyfile(tmp_path / "backup" / BURNT, folder / BURNT)
    assert free_again(folder, BURNT, b"1")
    assert {path.name for path in (folder / "once").glob("anchor-*")} == one_step_back
    with State.open(folder) as state:
        assert "anchor were copied, replaced" in state.problem


COPY_DATABASE = """
import sqlite3
from contextlib import closing
with closing(sqlite3.connect("{folder}/state.sqlite")) as store, closing(sqlite3.connect("{to}/c")) as copy:
    store.backup(copy)
"""
READING = {
    "tar": ["tar", "-cf", "{to}/all.tar", "-C", "{folder}", "."],
    "cp -a": ["cp", "-a", "{folder}", "{to}/copy"],
    "cp -r": ["cp", "-r", "{folder}", "{to}/copy"],
    "rsync": ["rsync", "-a", "{folder}/", "{to}/copy"],
    "SQLite's backup": [sys.executable, "-c", COPY_DATABASE],
}


@pytest.mark.parametrize("reading", READING)
def test_a_backup_that_only_reads_raises_no_alarm(file_system, reading, tmp_path):
    if shutil.which(READING[reading][0]) is None:
        pytest.skip("no rsync here")
    folder = file_system / f"read by {reading}".replace("'", "")
    burn(folder, b"1")
    command = [part.format(folder=folder, to=tmp_path) for part in READING[reading]]
    run(*command)
    assert burn(folder, b"2") == ""
    with State.open(folder):  # also while it is in use
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        run(*command)
    assert burn(folder, b"3") == ""
    assert peek_problem(folder) == ""


@pytest.mark.parametrize(
    "changes",
    [
        lambda folder, to: run("cp", "-al", str(folder), str(to)),
        lambda folder, _: run("chmod", "-R", "go-rwx", str(folder)),
        lambda folder, _: [os.chown(file, os.getuid(), os.getgid()) for file in folder.rglob("*")],
    ],
    ids=["cp -al", "chmod", "chown"],
)
def test_what_changes_the_inodes_of_an_anchor_looks_like_a_restore(tmp_path, changes):
    """Documented: an operator who does this to a state must agree to a restore."""
    folder = tmp_path / "state"
    burn(folder, b"1")
    wait_for_the_clock(folder)
    changes(folder, tmp_path / "links")
    assert "anchor were copied, replaced" in burn(folder, b"2")


@pytest.mark.parametrize("seconds", [-86_400 * 400, 86_400 * 400])
def test_the_clock_may_be_set_to_anything(tmp_path, monkeypatch, seconds):
    folder = tmp_path / "state"
    burn(folder, b"1")
    now = __import__("time").time
    monkeypatch.setattr("masquerade.services.common.state.time.time", lambda: now() + seconds)
    assert burn(folder, b"2") == ""


def lagging(folder, times):
    """Change the database without the anchor, as after a power failure."""
    with State.open(folder) as state:
        state._store.committed = state._add_one
        for number in range(times):
            state.notes.put("other", f"later {number}", b"x")


@pytest.mark.parametrize(("times", "noticed"), [(1, False), (2, True)])
def test_a_database_is_one_change_ahead_of_its_anchor_at_most(tmp_path, times, noticed):
    """A restored anchor is detected even without change times."""
    folder = tmp_path / "state"
    burn(folder, b"1")
    lagging(folder, times)
    assert bool(peek_problem(folder)) is noticed
    assert bool(burn(folder, b"2")) is noticed


def test_after_a_start_of_the_machine_the_last_renames_may_be_lost(tmp_path, monkeypatch):
    folder = tmp_path / "state"
    burn(folder, b"1")
    lagging(folder, 20)
    monkeypatch.setattr(anchor_module, "boot_id", lambda: "another start")
    assert burn(folder, b"2") == ""


def test_a_step_that_fails_stops_the_next_change_until_it_is_taken(tmp_path, monkeypatch):
    folder = tmp_path / "state"
    with State.open(folder) as state:
        real = Path.rename

        def full(_path, _target):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(Path, "rename", full)
        with pytest.raises(FileError, match="anchor of the state cannot be written"):
            state.burnt.claim([Claim("key", b"1")])  # made, and not acknowledged
        with pytest.raises(FileError, match="anchor of the state cannot be written"):
            state.burnt.claim([Claim("key", b"2")])  # not made
        monkeypatch.setattr(Path, "rename", real)
        assert state.burnt.find("key", b"2") is None
        with pytest.raises(KeySpent):
            state.burnt.claim([Claim("key", b"1")])
        state.notes.put("other", "n", b"x")
    assert burn(folder, b"3") == ""


def test_used_keys_of_another_epoch_are_noticed(tmp_path):
    """A file with more keys than are known, which are not those that were used since the restore."""
    folder = tmp_path / "state"
    burn(folder, b"1")
    shutil.copytree(folder, tmp_path / "backup")
    for number in range(5):
        burn(folder, b"first life %d" % number)
    first_life = (folder / BURNT).read_bytes()
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "backup", folder)
    assert burn(folder, b"second life")
    (folder / BURNT).write_bytes(first_life)
    assert Claims.peek(folder / BURNT, "key") == [b""] * 6
    assert "another epoch" in burn(folder, b"3")


@pytest.mark.parametrize("name", ["anchor-", "anchor-1", "anchor-0-0-0-0-0-0", "anchor-é", "progress"])
def test_other_names_state_no_step(name):
    assert AnchorStep.parse(name) is None


def test_a_name_states_its_step(tmp_path):
    step = AnchorStep(300, "ab" * 8, 1_790_000_000, "cd" * 4, {"state": 12, "burnt": 3}, "ef" * 8)
    assert AnchorStep.parse(step.name) == step
    assert len(step.name) < 140  # file systems that encrypt names allow no more
    assert not Anchor(tmp_path / "missing").exists


KILLS = """
import os, random, select, signal, sys, time
from pathlib import Path
from masquerade.crypto.keys import SigningKey
from masquerade.protocols.wire.durable_store import Claim
from masquerade.services.common.release_ledger import Release, in_state
from masquerade.services.common.state import State

folder, kills = Path(sys.argv[1]), int(sys.argv[2])
key, chance = SigningKey.from_seed(bytes(32)), random.SystemRandom()
release = Release("s", "pooled-counts", "miner", "counts", ("a",), 100, None, None)

def work(pipe, number):
    with State.open(folder) as state, in_state(state, key) as ledger:
        os.write(pipe, b"!" if state.restored or ledger.doubted else b"o")
        while True:
            what = chance.randrange(20)
            if what < 7:
                state.burnt.claim([Claim("key", b"%d" % number)])
                os.write(pipe, b"k")
                number += 1
            elif what < 14:
                state.notes.put("n", "n", b"x" * chance.randrange(6000))
            elif what < 19:
                state.replies.keep("p", os.urandom(8).hex(), "p", "d", 200, b"r" * chance.randrange(3000))
            else:
                ledger.append(release)

alarms = used = opened = 0
acknowledged = []
for _ in range(kills):
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            work(write, used)
        finally:
            os._exit(1)
    os.close(write)
    if chance.random() < 0.8:
        select.select([read], [], [], 600)  # in use: from here on at any moment; else while it is opened
    time.sleep(chance.random() * 0.012)
    os.kill(child, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    said = b""
    while part := os.read(read, 65536):
        said += part
    os.close(read)
    alarms, opened = alarms + said.count(b"!"), opened + bool(said)
    acknowledged += range(used, used + said.count(b"k"))
    used += said.count(b"k") + 1
with State.open(folder) as state:
    alarms += state.restored
    lost = sum(state.burnt.find("key", b"%d" % number) is None for number in acknowledged)
print(alarms, opened, len(acknowledged), lost)
"""


@pytest.mark.parametrize("kills", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_process_killed_at_any_moment_raises_no_alarm(tmp_path, kills):
    command = [sys.executable, "-c", KILLS, str(tmp_path / "state"), str(kills)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    alarms, opened, acknowledged, lost = map(int, done.stdout.split())
    assert (alarms, lost) == (0, 0)
    assert opened > kills / 2  # most were killed at work, the others while they opened the state
    assert acknowledged > 0
