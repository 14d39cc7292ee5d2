"""One file that remembers: whole transactions, marked by kind and version, claimed once and for good."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import replace

import pytest

from masquerade.core.errors import FileError
from masquerade.crypto.errors import KeySpent
from masquerade.protocols.wire.durable_store import Claim, Claims, DurableStore, Layout, Notes

LAYOUT = Layout("a notebook", "the notebook", b"test", Notes.TABLE + Claims.TABLE, remedy="Write it again.")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file.sqlite"


def changed(path, *statements):
    with closing(sqlite3.connect(path)) as store:
        for statement in statements:
            store.execute(statement)
        store.commit()


def rows(path, question):
    with closing(sqlite3.connect(path)) as store:
        return store.execute(question).fetchall()


@pytest.mark.parametrize("log", [True, False])
def test_a_new_file_is_its_owners_alone_and_synced(tmp_path, log):
    mask = os.umask(0)
    try:
        with DurableStore(tmp_path / "f", replace(LAYOUT, log=log)) as store:
            Notes(store).put("a", "b", b"c")
            assert store.value("PRAGMA synchronous") == (2 if log else 3)  # FULL, EXTRA
            assert store.value("PRAGMA secure_delete") == 1
            assert store.value("PRAGMA journal_mode") == ("wal" if log else "delete")
            files = list(tmp_path.iterdir())
            assert len(files) == (3 if log else 1)
            assert all(stat.S_IMODE(file.stat().st_mode) & 0o077 == 0 for file in files)
    finally:
        os.umask(mask)


def test_without_a_path_a_store_is_in_memory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with DurableStore(None, LAYOUT) as store, DurableStore(None, LAYOUT) as another:
        Notes(store).put("a", "b", b"c")
        assert (Notes(store).get("a", "b"), Notes(another).get("a", "b")) == (b"c", None)
    assert list(tmp_path.iterdir()) == []


def test_what_was_put_is_there_after_reopening(path):
    with DurableStore(path, LAYOUT) as store:
        Notes(store).put("a", "b", b"c")
        Claims(store).claim([Claim("key", b"1", b"x")])
    with DurableStore(path, LAYOUT) as store:
        assert Notes(store).get("a", "b") == b"c"
        assert Claims(store).find("key", b"1") == b"x"
        assert store.value("PRAGMA user_version") == 1


def test_a_transaction_inside_another_is_undone_alone(path):
    with DurableStore(path, LAYOUT) as store:
        notes, claims = Notes(store), Claims(store)
        claims.claim([Claim("key", b"1")])
        with store.transaction():
            notes.put("a", "1", b"x")
            for _ in range(2):
                with pytest.raises(KeySpent):
                    claims.claim([Claim("key", b"2"), Claim("key", b"1")])
            notes.put("a", "2", b"x")
        assert notes.names("a") == ["1", "2"]
        assert len(claims.values("key")) == 1
        with pytest.raises(ZeroDivisionError), store.transaction():  # noqa: PT012
            with store.transaction():
                notes.put("a", "3", b"x")
            raise ZeroDivisionError
        assert notes.names("a") == ["1", "2"]


def test_a_hook_is_part_of_every_transaction_and_another_follows_it(path):
    events = []
    with DurableStore(path, LAYOUT) as store:
        store.committing = lambda: events.append(f"in {store._store.in_transaction}")
        store.committed = lambda: events.append(f"in {store._store.in_transaction}")
        with store.transaction():
            Notes(store).put("a", "b", b"c")
    assert events == ["in True", "in False"]


def test_threads_take_turns(path):
    with DurableStore(path, LAYOUT) as store:
        notes = Notes(store)

        def count():
            for _ in range(25):
                with store.transaction():
                    number = int(notes.get("a", "number") or b"0")
                    notes.put("a", "number", str(number + 1).encode())

        threads = [threading.Thread(target=count) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert notes.get("a", "number") == b"100"


# kinds and versions


def test_a_file_of_another_kind_or_newer_is_refused_and_left_as_it_is(path):
    DurableStore(path, LAYOUT).close()
    before = path.read_bytes()
    with pytest.raises(FileError, match=r"file\.sqlite: is a SQLite file, but not a diary\."):
        DurableStore(path, replace(LAYOUT, mark=b"diar", what="a diary"))
    with pytest.raises(
        FileError, match=r"newer masquerade \(notebook version 1; this one reads 0\). Use that"
    ):
        DurableStore(path, replace(LAYOUT, version=0))
    assert path.read_bytes() == before
    path.write_text("no database, but long enough to be read as one" * 100)
    with pytest.raises(FileError, match="the notebook cannot be read or written"):
        DurableStore(path, LAYOUT)


SECOND = replace(
    LAYOUT,
    version=3,
    steps={
        1: "ALTER TABLE notes ADD COLUMN first TEXT;\nUPDATE notes SET first = name;",
        2: "ALTER TABLE notes ADD COLUMN second TEXT;",
    },
)


def test_an_older_file_is_brought_up_to_date_at_once(path):
    with DurableStore(path, LAYOUT) as store:
        Notes(store).put("a", "b", b"c")
    DurableStore(path, SECOND).close()
    assert rows(path, "SELECT scope, name, value, first, second FROM notes") == [("a", "b", b"c", "b", None)]
    assert rows(path, "PRAGMA user_version") == [(3,)]


def test_a_failed_update_changes_nothing(path):
    DurableStore(path, LAYOUT).close()
    for steps, reason in [
        ({**SECOND.steps, 2: "nonsense;"}, "syntax error"),
        (
            {1: SECOND.steps[1]},
            ("holds a notebook of version 2, which this version of masquerade no longer reads"),
        ),
    ]:
        with pytest.raises(FileError, match=reason):
            DurableStore(path, replace(SECOND, steps=steps))
    assert rows(path, "PRAGMA user_version") == [(1,)]
    with DurableStore(path, LAYOUT) as store:
        Notes(store).put("a", "b", b"c")


def test_damage_is_noticed_on_opening(path):
    with DurableStore(path, LAYOUT) as store, store.transaction():
        for i in range(300):
            Notes(store).put("a", f"{i:04}", bytes([i % 251]) * 500)
    data = bytearray(path.read_bytes())
    for page in range(8, 20):
        data[page * 4096 : page * 4096 + 64] = os.urandom(64)
    path.write_bytes(data)
    with pytest.raises(FileError, match=r"(is damaged\. Write it again\.|cannot be read)"):
        DurableStore(path, LAYOUT)


def test_places_that_cannot_be_used(tmp_path):
    with pytest.raises(FileError, match=r"cannot be read or written \(no such file"):
        DurableStore(tmp_path / "a" / "b", LAYOUT)
    with pytest.raises(FileError, match="cannot be read or written"):
        DurableStore(tmp_path, LAYOUT)


# claims


def test_claims_of_the_first_version_open_and_are_marked(path):
    """Version 0.1 wrote these files without a mark."""
    changed(
        path,
        "CREATE TABLE IF NOT EXISTS claimed (place INTEGER PRIMARY KEY AUTOINCREMENT, "
        "kind TEXT NOT NULL, name BLOB NOT NULL, value BLOB NOT NULL, UNIQUE (kind, name))",
        "INSERT INTO claimed (kind, name, value) VALUES ('key', x'61', x'62')",
    )
    claims = Claims.open(path)
    with pytest.raises(KeySpent):
        claims.claim([Claim("key", b"a")])
    claims.claim([Claim("key", b"b", b"2")])
    assert claims.values("key") == [b"b", b"2"]
    claims.close()
    assert rows(path, "PRAGMA application_id") == [(Claims.ALONE.application,)]


def test_the_values_of_claims_come_oldest_first_by_the_beginning_of_their_names(path):
    claims = Claims.open(path)
    claims.claim([Claim("use", b"b1", b"1"), Claim("use", b"a", b"2"), Claim("other", b"b", b"3")])
    claims.claim([Claim("use", b"b0", b"4")])
    claims.claim([])
    assert claims.values("use") == [b"1", b"2", b"4"]
    assert claims.values("use", b"b") == [b"1", b"4"]
    assert claims.values("none") == []
    claims.close()


def test_processes_share_claims_and_open_a_new_file_together(path):
    code = (
        "import sys\n"
        "from masquerade.crypto.errors import KeySpent\n"
        "from masquerade.protocols.wire.durable_store import Claim, Claims\n"
        "claims, won = Claims.open(sys.argv[1]), 0\n"
        "for i in range(50):\n"
        "    try:\n"
        "        claims.claim([Claim('key', bytes([i]), sys.argv[2].encode())])\n"
        "        won += 1\n"
        "    except KeySpent:\n"
        "        pass\n"
        "print(won)"
    )
    command = [sys.executable, "-c", code, str(path)]
    started = [subprocess.Popen([*command, name], stdout=subprocess.PIPE) for name in "abc"]  # noqa: S603
    won = [int(process.communicate()[0]) for process in started]
    assert [process.returncode for process in started] == [0, 0, 0]
    assert sum(won) == 50
