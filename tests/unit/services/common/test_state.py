"""A service's state: changes survive a crash, and keys that may be used once cannot be restored."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from masquerade.core.errors import FileError, InputError
from masquerade.crypto.errors import KeySpent
from masquerade.protocols.wire.durable_store import Claim
from masquerade.services.common import state as state_module
from masquerade.services.common.state import (
    INTERRUPTED,
    SESSION,
    OnceFolder,
    ReplyStore,
    State,
    StoredReply,
    peek,
)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "state"


def test_a_new_state(folder):
    before = int(time.time())
    with State.open(folder) as state:
        assert not state.restored
        assert before <= state.epoch <= time.time()
        assert state.notes.names("x") == []
        assert state.replies.find("a", "k") is None
        assert "CACHEDIR.TAG" in os.listdir(folder / "once")  # noqa: PTH208
        tag = (folder / "once" / "CACHEDIR.TAG").read_text()
    assert tag.startswith("Signature: 8a477f597d28d172789f06886806bc55\n")


def test_only_the_owner_can_read(folder):
    mask = os.umask(0)
    try:
        with State.open(folder) as state:
            state.notes.put("a", "b", b"c")
            files = [p for p in folder.rglob("*") if p.name != "CACHEDIR.TAG"]
            assert {"state.sqlite", "state.sqlite-wal", "burnt.sqlite"} <= {p.name for p in files}
            for path in [folder, *files]:
                assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    finally:
        os.umask(mask)


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770])
def test_a_folder_that_others_may_write_to_is_refused(folder, mode):
    folder.mkdir(exist_ok=True)
    folder.chmod(mode)
    with pytest.raises(FileError, match="others may write to a state folder"):
        State.open(folder)
    assert not list(folder.iterdir())
    folder.chmod(0o700)
    State.open(folder).close()


def test_a_link_that_somebody_else_planted_is_not_followed(folder, tmp_path, monkeypatch):
    (tmp_path / "theirs").mkdir()
    folder.symlink_to(tmp_path / "theirs")
    if os.geteuid() == 0:
        os.chown(folder, 12345, 12345, follow_symlinks=False)
    else:  # nobody but root gives files away: the one who looks is another
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(FileError, match="belongs to another user, who could have put it there"):
        State.open(folder)
    assert not list((tmp_path / "theirs").iterdir())


def test_commits_are_synced(folder):
    with State.open(folder) as state:
        assert state._store.value("PRAGMA journal_mode") == "wal"
        assert state._store.value("PRAGMA synchronous") == 2  # FULL
        assert state._store.value("PRAGMA secure_delete") == 1


def test_everything_is_there_after_reopening(folder):
    with State.open(folder) as state:
        first = state.epoch, state.incarnation
        state.notes.put("session", "s", b"\x00one")
        state.notes.put("session", "s", b"two")
        state.notes.put("other", "s", b"three")
        state.replies.keep("a", "k", "place", "digest", 200, b"reply")
        state.burnt.claim([Claim("key", b"1")])
    with State.open(folder) as state:
        assert not state.restored
        assert (state.epoch, state.incarnation) == first
        assert state.notes.get("session", "s") == b"two"
        assert state.notes.names("session") == ["s"]
        assert state.notes.delete("other", "s")
        assert not state.notes.delete("other", "s")
        assert state.notes.get("other", "s") is None
        assert state.replies.find("a", "k") == StoredReply("place", "digest", 200, b"reply")
        with pytest.raises(KeySpent):
            state.burnt.claim([Claim("key", b"1")])


def test_one_process_at_a_time(folder):
    with State.open(folder), pytest.raises(FileError, match=rf"in use by process {os.getpid()}; one process"):
        State.open(folder)
    State.open(folder).close()


def test_a_failed_opening_lets_go_of_the_folder(folder):
    State.open(folder).close()
    good = (folder / "state.sqlite").read_bytes()
    (folder / "state.sqlite").write_bytes(b"no database" * 1000)
    for _ in range(2):
        with pytest.raises(FileError, match=r"state\.sqlite"):
            State.open(folder)
    (folder / "state.sqlite").write_bytes(good)
    State.open(folder).close()


def test_places_that_cannot_be_used(tmp_path):
    with pytest.raises(FileError, match="no such file"):
        State.open(tmp_path / "a" / "b")
    (tmp_path / "file").write_text("x")
    with pytest.raises(FileError, match="cannot be used as a state folder"):
        State.open(tmp_path / "file")


def changed(folder, *statements):
    with closing(sqlite3.connect(folder / "state.sqlite")) as store:
        for statement in statements:
            store.execute(statement)
        store.commit()


def test_a_newer_or_foreign_file_is_refused_and_left_as_it_is(folder):
    State.open(folder).close()
    changed(folder, f"PRAGMA user_version = {state_module.LAYOUT.version + 1}")
    before = (folder / "state.sqlite").read_bytes()
    with pytest.raises(FileError, match="newer masquerade"):
        State.open(folder)
    assert (folder / "state.sqlite").read_bytes() == before
    changed(folder, "PRAGMA user_version = 1", "PRAGMA application_id = 7")
    with pytest.raises(FileError, match="not the state of a service"):
        State.open(folder)


def test_damage_is_noticed_on_opening(folder):
    with State.open(folder) as state, state.transaction():
        for i in range(300):
            state.notes.put("a", f"{i:04}", bytes([i % 251]) * 500)
    data = bytearray((folder / "state.sqlite").read_bytes())
    assert len(data) > 20 * 4096
    for page in range(8, 20):
        data[page * 4096 : page * 4096 + 64] = os.urandom(64)
    (folder / "state.sqlite").write_bytes(data)
    with pytest.raises(FileError, match=r"state\.sqlite: (is damaged|the state cannot be read)"):
        State.open(folder)


def test_a_transaction_is_whole_or_nothing(folder):
    with State.open(folder) as state:
        with state.transaction():
            state.notes.put("a", "1", b"x")
            with state.transaction():
                state.notes.put("a", "2", b"x")
        with pytest.raises(ZeroDivisionError), state.transaction():  # noqa: PT012
            state.notes.put("a", "3", b"x")
            state.notes.delete("a", "1")
            state.replies.keep("p", "k", "", "", 200, b"")
            1 / 0  # noqa: B018
        assert state.notes.names("a") == ["1", "2"]
        assert state.replies.find("p", "k") is None
        state.notes.put("a", "4", b"x")
    with State.open(folder) as state:
        assert state.notes.names("a") == ["1", "2", "4"]


def test_threads_take_turns(folder):
    with State.open(folder) as state:

        def count(_name):
            for _ in range(25):
                with state.transaction():
                    number = int(state.notes.get("a", "number") or b"0")
                    state.notes.put("a", "number", str(number + 1).encode())

        threads = [threading.Thread(target=count, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert state.notes.get("a", "number") == b"100"


def test_a_closed_state_says_so(folder):
    state = State.open(folder)
    state.close()
    state.close()
    with pytest.raises(FileError):
        state.notes.put("a", "b", b"c")


# replies


def test_a_reply_is_kept_once(folder):
    with State.open(folder) as state:
        state.replies.keep("a", "k", "p", b"d", 200, b"r")
        state.replies.keep("a", "k", "p", b"d", 200, b"r")
        state.replies.keep("b", "k", "p", b"other", 200, b"r")  # another peer's key is another key
        for other in [("q", b"d", 200, b"r"), ("p", b"e", 200, b"r"), ("p", b"d", 200, b"s")]:
            with pytest.raises(KeySpent):
                state.replies.keep("a", "k", *other)
        assert state.replies.find("a", "k") == ("p", b"d", 200, b"r")


def test_of_a_passing_reply_only_that_it_was_given_is_on_the_disk(folder, monkeypatch):
    monkeypatch.setattr(state_module, "MOST_PASSING_BYTES", 250)
    masked = os.urandom(100)
    with State.open(folder) as state:
        for number in range(4):
            state.replies.keep("a", f"k{number}", "sessions/x/turns", "d", 200, masked, passing=True)
        state.replies.keep("b", "k0", "sessions/xy/turns", "d", 200, masked, passing=True)
        state.replies.keep("b", "k1", "sessions/xy", "d", 200, masked * 9, passing=True)
        again = StoredReply("sessions/x/turns", "d", 200, masked)
        assert all(state.replies.find("a", f"k{number}") == again for number in (1, 2, 3))
        state.replies.keep("a", "k3", *again, passing=True)
        with pytest.raises(KeySpent, match="with a different reply"):
            state.replies.keep("a", "k3", "sessions/x/turns", "d", 200, b"another", passing=True)
        with pytest.raises(KeySpent, match="no longer kept"):
            state.replies.find("a", "k0")  # later ones have taken its room
        assert state.replies.find("b", "k0") is not None
        assert state.replies.find("b", "k1") is not None
        state.replies.forget("sessions/x")
        with pytest.raises(KeySpent, match="no longer kept"):
            state.replies.find("a", "k3")
        assert state.replies.find("b", "k0") is not None
        state.replies.forget("sessions/xy")
        with pytest.raises(KeySpent, match="no longer kept"):
            state.replies.find("b", "k1")
        state.replies.keep("b", "k2", "sessions/z", "d", 200, masked, passing=True)
        on_disk = b"".join(file.read_bytes() for file in folder.glob("state.sqlite*"))
        assert masked not in on_disk
        assert b"sessions/z" in on_disk
    with State.open(folder) as state, pytest.raises(KeySpent, match="no longer kept"):
        state.replies.find("b", "k2")  # answered by a process that has ended: never answered again


def test_beyond_its_room_a_reply_goes_but_not_that_it_was_given(folder):
    with State.open(folder) as state:
        replies = ReplyStore(state._store, most=4, most_bytes=100)
        replies.keep("b", "first", "p", "d", 200, b"x" * 100)
        for i in range(4):
            replies.keep("a", str(i), "p", "d", 200, b"x" * 40)
        assert [_given(replies, "a", str(i)) for i in range(4)] == ["spent", "spent", "kept", "kept"]
        with pytest.raises(KeySpent):
            replies.keep("a", "0", "p", "d", 200, b"x" * 40)
        replies.keep("a", "4", "p", "d", 200, b"")
        assert [_given(replies, "a", str(i)) for i in range(5)] == ["none", "spent", "kept", "kept", "kept"]
        assert _given(replies, "b", "first") == "kept"  # nobody else's requests pushed it out
        with pytest.raises(InputError, match="cannot be stored"):
            replies.keep("a", "5", "p", "d", 200, b"x" * 101)


def _given(replies, peer, key):
    try:
        return "none" if replies.find(peer, key) is None else "kept"
    except KeySpent:
        return "spent"


@settings(max_examples=15, deadline=None)
@given(sizes=st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 60)), max_size=20))
def test_the_room_taken_is_always_what_is_there(tmp_path_factory, sizes):
    with State.open(tmp_path_factory.mktemp("s") / "state") as state:
        replies = ReplyStore(state._store, most=5, most_bytes=100)
        for i, (peer, size) in enumerate(sizes):
            replies.keep(peer, str(i), "p", "d", 200, b"x" * size)
        kept = (
            "SELECT peer, count(*), sum(coalesce(length(reply), 0)) FROM replies GROUP BY peer ORDER BY peer"
        )
        there = state._store.run(kept)
        assert there == state._store.run("SELECT peer, number, bytes FROM room ORDER BY peer")
        assert all(number <= 5 and size <= 100 for _, number, size in there)


# restoring


def used(folder):
    """Make a state with everything in it; return its epoch."""
    with State.open(folder) as state:
        state.notes.put(SESSION, "s1", b"open")
        state.notes.put(SESSION, "s1/linked", b"pseudonyms")
        state.notes.put("other", "n", b"v")
        state.replies.keep("a", "k", "p", "d", 200, b"r")
        state.burnt.claim([Claim("key", b"1")])
        return state.epoch


def restored(folder, epoch):
    """Open a restored state and check that a new epoch has begun, once."""
    with State.open(folder) as state:
        assert state.restored
        assert state.epoch > epoch
        assert state.replies.find("a", "k") is None
        assert state.notes.names(SESSION) == []
        assert state.notes.names(INTERRUPTED) == ["s1", "s1/linked"]
        assert state.notes.get(INTERRUPTED, "s1") == b"open"
        assert state.notes.get(INTERRUPTED, "s1/linked") == b""
        assert state.notes.get("other", "n") == b"v"
        later = state.epoch
    assert b"pseudonyms" not in (folder / "state.sqlite").read_bytes()
    with State.open(folder) as state:
        assert not state.restored
        assert state.epoch == later
    return later


def test_without_its_once_folder_a_state_was_restored(folder):
    epoch = used(folder)
    shutil.rmtree(folder / "once")
    later = restored(folder, epoch)
    used(folder)
    shutil.rmtree(folder / "once")
    assert restored(folder, later) > later


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("lost", [lambda file: file.unlink(), lambda file: file.rename(f"{file}x")])
def test_an_anchor_that_is_lost_or_damaged_is_a_restore(folder, at, lost):
    """Without it nothing would say that the database is older than it was."""
    epoch = used(folder)
    lost(sorted((folder / "once").glob("anchor-*"))[at])
    restored(folder, epoch)


@pytest.fixture(params=["generations", "no generations"])
def file_system(request, monkeypatch):
    """File systems with and without generations of inodes."""
    if request.param == "no generations":

        def unknown(*_):
            raise OSError(25, "Inappropriate ioctl for device")

        monkeypatch.setattr("fcntl.ioctl", unknown)


@pytest.mark.usefixtures("file_system")
def test_a_copy_of_the_whole_folder_is_noticed(folder, tmp_path):
    epoch = used(folder)
    subprocess.run(["cp", "-a", str(folder), str(tmp_path / "copy")], check=True)  # noqa: S603, S607
    restored(tmp_path / "copy", epoch)
    with State.open(folder) as state:  # the original goes on
        assert not state.restored


@pytest.mark.usefixtures("file_system")
def test_a_folder_copied_back_into_its_place_is_noticed(folder, tmp_path):
    epoch = used(folder)
    shutil.copytree(folder, tmp_path / "backup")
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "backup", folder)
    restored(folder, epoch)


@pytest.mark.usefixtures("file_system")
def test_a_moved_folder_is_the_same_one(folder, tmp_path):
    used(folder)
    folder.rename(tmp_path / "elsewhere")
    with State.open(tmp_path / "elsewhere") as state:
        assert not state.restored


def test_a_database_put_back_beside_a_newer_once_is_noticed(folder):
    epoch = used(folder)
    backup = (folder / "state.sqlite").read_bytes()
    with State.open(folder) as state:
        state.notes.put("other", "later", b"v")
        state.burnt.claim([Claim("key", b"2")])
    (folder / "state.sqlite").write_bytes(backup)
    restored(folder, epoch)
    with State.open(folder) as state:
        for name in (b"1", b"2"):
            with pytest.raises(KeySpent):
                state.burnt.claim([Claim("key", name)])  # what was burnt stays burnt


def test_a_lost_database_begins_a_new_epoch(folder):
    epoch = used(folder)
    (folder / "state.sqlite").unlink()
    with State.open(folder) as state:
        assert state.restored
        assert state.epoch > epoch
        with pytest.raises(KeySpent):
            state.burnt.claim([Claim("key", b"1")])


def test_a_backup_restored_twice_never_begins_the_same_epoch(folder, tmp_path, monkeypatch):
    used(folder)
    epochs = set()
    now = time.time()
    for i in range(3):
        place = tmp_path / f"machine{i}"
        place.mkdir()
        shutil.copy(folder / "state.sqlite", place)
        monkeypatch.setattr("masquerade.services.common.state.time.time", lambda i=i: now + 60 * (i + 1))
        with State.open(place) as state:
            epochs.add(state.epoch)
    assert len(epochs) == 3


def test_an_epoch_never_falls_though_the_clock_does(folder, monkeypatch):
    epoch = used(folder)
    monkeypatch.setattr("masquerade.services.common.state.time.time", lambda: 1000.0)
    shutil.rmtree(folder / "once")
    restored(folder, epoch)


def test_a_crash_while_a_new_epoch_begins_only_begins_another(folder, monkeypatch):
    epoch = used(folder)
    shutil.rmtree(folder / "once")
    begin = OnceFolder.begin

    def crash(self, epoch, changes):
        begin(self, epoch, changes)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(OnceFolder, "begin", crash)
        with pytest.raises(KeyboardInterrupt):
            State.open(folder)
    restored(folder, epoch)


@pytest.mark.usefixtures("file_system")
@pytest.mark.parametrize("loss", ["deleted", "emptied", "replaced"])
def test_lost_burnt_keys_are_a_restore(folder, tmp_path, loss):
    epoch = used(folder)
    burnt = folder / "once" / "burnt.sqlite"
    if loss == "replaced":
        shutil.copy(burnt, tmp_path / "old")
        with State.open(folder) as state:
            state.burnt.claim([Claim("key", b"2")])
        (tmp_path / "old").replace(burnt)
    elif loss == "deleted":
        burnt.unlink()
    else:
        burnt.write_bytes(b"")
    restored(folder, epoch)


def test_a_damaged_ledger_of_burnt_keys_is_refused(folder):
    used(folder)
    (folder / "once" / "burnt.sqlite").write_bytes(b"no database" * 1000)
    with pytest.raises(FileError, match=r"burnt\.sqlite"):
        State.open(folder)


def test_peeking_needs_no_lock_and_changes_nothing(folder):
    assert peek(folder, "a", "b") is None
    with State.open(folder) as state:
        state.notes.put("a", "b", b"c")
        assert peek(folder, "a", "b") == b"c"
        assert peek(folder, "a", "x") is None
    before = sorted(os.listdir(folder))  # noqa: PTH208
    assert peek(folder, "a", "b") == b"c"
    assert sorted(os.listdir(folder)) == before  # noqa: PTH208


def test_a_full_disk_loses_nothing_that_was_accepted(folder):
    with State.open(folder) as state:
        state.notes.put("a", "before", b"x")
        pages = state._store.value("PRAGMA page_count")
        state._store.run(f"PRAGMA max_page_count = {pages + 2}")
        with pytest.raises(FileError, match="full"), state.transaction():  # noqa: PT012
            state.notes.put("a", "small", b"x")
            state.notes.put("a", "large", b"x" * 100_000)
        assert state.notes.names("a") == ["before"]
        state._store.run("PRAGMA max_page_count = 1000000")
        state.notes.put("a", "after", b"x" * 100_000)
    with State.open(folder) as state:
        assert not state.restored
        assert state.notes.names("a") == ["after", "before"]


# crashes

WRITER = """
import sys
from masquerade.protocols.wire.durable_store import Claim
from masquerade.services.common.state import State
state = State.open(sys.argv[1])
number = int(sys.argv[2])
while True:
    with state.transaction():
        state.notes.put("pair", f"{number}a", b"x" * (number % 700))
        state.notes.put("pair", f"{number}b", b"y")
    state.replies.keep("peer", str(number), "place", "digest", 200, b"r" * (number % 5000))
    state.burnt.claim([Claim("key", str(number).encode())])
    sys.stdout.write(f"{number}\\n")
    sys.stdout.flush()
    number += 1
"""


def killed_writer(folder, start, seconds):
    """Run a writer and kill it at any moment; return the numbers it acknowledged."""
    command = [sys.executable, "-c", WRITER, str(folder), str(start)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:  # noqa: S603
        first = writer.stdout.readline()
        time.sleep(seconds)
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read()
    assert writer.returncode == -signal.SIGKILL
    lines = (first + rest).split(b"\n")[:-1]
    return [int(line) for line in lines]


def test_nothing_acknowledged_is_lost_when_killed_at_any_moment(folder):
    acknowledged: list[int] = []
    epoch = None
    for i in range(4):
        acknowledged += killed_writer(folder, 1_000_000 * (i + 1), 0.05 + 0.043 * i)
        with State.open(folder) as state:
            assert not state.restored
            epoch = epoch or state.epoch
            assert state.epoch == epoch
            names = set(state.notes.names("pair"))
            assert {name[:-1] for name in names if name.endswith("a")} == {
                name[:-1] for name in names if name.endswith("b")
            }
            for number in acknowledged:
                assert f"{number}a" in names
                stored = state.replies.find("peer", str(number))
                assert stored == ("place", "digest", 200, b"r" * (number % 5000))
                assert state.burnt.find("key", str(number).encode()) is not None
    assert len(acknowledged) > 8


def test_a_killed_process_leaves_no_lock(folder):
    killed_writer(folder, 1, 0.0)
    State.open(Path(folder)).close()
