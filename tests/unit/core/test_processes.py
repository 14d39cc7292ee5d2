"""What threads share, and what belongs to a process."""

from __future__ import annotations

import os
import pickle
import threading

import pytest

from masquerade.core.errors import InputError
from masquerade.core.util.processes import ForkSafeLock, ResourceOwner
from masquerade.protocols.people.ledger import Claim, FileLedger, MemoryLedger


def in_a_fork(act):
    """Return what a function says in a forked process."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = act()
        except InputError as error:
            said = str(error)
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as told:
        said = told.read()
    os.waitpid(child, 0)
    return said


def test_what_belongs_to_a_process_says_so_in_another():
    owner = ResourceOwner("This door", "Make another.")
    owner.check()
    assert in_a_fork(lambda: f"{owner.is_here}") == "False"
    expected = "This door belongs to the process that opened it. Make another."
    assert in_a_fork(owner.check) == expected
    with pytest.raises(InputError, match=expected):
        pickle.dumps({"held": owner})


def test_what_belongs_to_a_thread_says_so_in_another():
    owner, said = ResourceOwner("This door", "Make another.", thread=True), []
    owner.check()

    def check():
        try:
            owner.check()
        except InputError as error:
            said.append(str(error))

    thread = threading.Thread(target=check)
    thread.start()
    thread.join()
    assert said == ["This door belongs to the thread that opened it. Make another."]


def test_a_lock_that_was_held_is_free_in_a_fork_and_in_a_copy():
    turns = ForkSafeLock()

    def free(these):
        taken = []
        thread = threading.Thread(target=lambda: taken.append(these.__enter__()))
        thread.daemon = True
        thread.start()
        thread.join(600)
        return f"{len(taken)}"

    with turns:
        assert in_a_fork(lambda: free(turns)) == "1"
        assert free(pickle.loads(pickle.dumps(turns))) == "1"  # noqa: S301  (our own bytes)


def test_a_ledger_is_not_doubled_by_a_fork(tmp_path):
    """Two copies would each allow what both together must not."""
    memory, file = MemoryLedger(), FileLedger(tmp_path / "ledger")
    claim = [Claim("key", b"one", b"")]
    assert "FileLedger(path) is one that several may share" in in_a_fork(lambda: memory.claim(claim))
    assert "belongs to the process that opened it" in in_a_fork(lambda: file.claim(claim))
    assert in_a_fork(lambda: f"{FileLedger(tmp_path / 'ledger').claim(claim)}") == "None"
    with pytest.raises(InputError, match="ledger in memory belongs to the process"):
        pickle.dumps(memory)
