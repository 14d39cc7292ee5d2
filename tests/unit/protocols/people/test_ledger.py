"""What was claimed once is claimed for good: twice, from two processes, after a crash."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from masquerade.core.errors import FileError
from masquerade.crypto.errors import KeySpent
from masquerade.protocols.people.ledger import Claim, FileLedger, MemoryLedger


@pytest.fixture(params=["memory", "file"])
def ledger(request, tmp_path):
    return MemoryLedger() if request.param == "memory" else FileLedger(tmp_path / "ledger.db")


def test_an_entry_is_claimed_once(ledger):
    ledger.claim([Claim("key", b"a", b"1"), Claim("round", b"a")])
    assert ledger.find("key", b"a") == b"1"
    assert ledger.find("key", b"b") is None
    with pytest.raises(KeySpent):
        ledger.claim([Claim("key", b"a", b"2")])
    assert ledger.find("key", b"a") == b"1"


def test_entries_are_claimed_together_or_not_at_all(ledger):
    ledger.claim([Claim("key", b"a")])
    for entries in ([Claim("key", b"b"), Claim("key", b"a")], [Claim("key", b"c"), Claim("key", b"c")]):
        with pytest.raises(KeySpent):
            ledger.claim(entries)
    assert ledger.find("key", b"b") is None
    assert ledger.find("key", b"c") is None


def test_values_come_in_order_by_the_beginning_of_their_names(ledger):
    for name in (b"x2", b"x1", b"y1", b"x%"):
        ledger.claim([Claim("voted", name, name.upper())])
    ledger.claim([Claim("other", b"x3", b"no")])
    assert ledger.values("voted", b"x") == [b"X2", b"X1", b"X%"]


def test_a_file_keeps_what_a_killed_process_claimed_and_shares_it(tmp_path):
    path = tmp_path / "ledger.db"
    code = (
        "import os, sys; from masquerade.protocols.people.ledger import Claim, FileLedger; "
        "FileLedger(sys.argv[1]).claim([Claim('key', b'a', b'1')]); os.kill(os.getpid(), 9)"
    )
    open_before = FileLedger(path)
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=False)  # noqa: S603
    assert done.returncode == -9
    for ledger in (open_before, FileLedger(path)):
        with pytest.raises(KeySpent):
            ledger.claim([Claim("key", b"a")])
        ledger.close()


def test_a_new_file_is_its_owners_alone(tmp_path):
    ledger = FileLedger(tmp_path / "ledger.db")
    ledger.claim([Claim("key", b"a")])
    assert [path.stat().st_mode & 0o077 for path in tmp_path.iterdir()] == [0]
    ledger.close()


def test_a_place_that_cannot_be_written_is_an_error_with_its_name(tmp_path):
    with pytest.raises(FileError, match=r"missing.ledger\.db"):
        FileLedger(tmp_path / "missing" / "ledger.db")
    other = tmp_path / "notes.txt"
    other.write_text("these are notes, not a ledger, and long enough to be read as one" * 40)
    with pytest.raises(FileError, match=r"notes\.txt"):
        FileLedger(other)
    ledger = FileLedger(tmp_path / "ledger.db")
    ledger.close()
    with pytest.raises(FileError):
        ledger.find("key", b"a")
    assert os.listdir(tmp_path)  # noqa: PTH208
