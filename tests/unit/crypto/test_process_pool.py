"""Work in other processes: the same results in the same order, and none lost when a process is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial

import pytest
from tests.unit.crypto.votes import proved_bits, transcript

from masquerade.crypto import proof_batches
from masquerade.crypto.errors import DecodingError
from masquerade.crypto.proof_batches import ProofClaim, find_rejected, spread
from masquerade.crypto.proofs import Ballot, valid_bit
from masquerade.crypto.secp256k1 import secp256k1


def cube(number):
    return number**3


def where(_task):
    return os.getpid()


def fatal(task, *, parent):
    """End the process, unless it is the one that asked."""
    if task == 3 and os.getpid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
    return task


def failing(task):
    raise DecodingError(f"task {task}")


def noisy(task):
    sys.stdout.write("this must not get between the results")
    return task


def test_results_come_in_order_from_other_processes():
    assert spread(cube, range(20), 2) == [number**3 for number in range(20)]
    assert os.getpid() not in spread(where, range(2), 2)
    assert spread(noisy, [1, 2], 2) == [1, 2]


def test_one_worker_or_one_task_stays_here():
    assert spread(where, range(3), 1) == [os.getpid()] * 3
    assert spread(where, [0], 2) == [os.getpid()]
    assert spread(where, [], 2) == []


def test_what_cannot_be_sent_is_done_here():
    assert spread(lambda task: task + os.getpid(), [1, 2], 2) == [1 + os.getpid(), 2 + os.getpid()]


def test_a_process_that_dies_leaves_no_task_undone():
    assert spread(partial(fatal, parent=os.getpid()), range(8), 2) == list(range(8))


def test_without_another_interpreter_the_work_is_done_here(monkeypatch):
    monkeypatch.setattr(proof_batches.sys, "executable", "/nowhere/python")
    assert spread(cube, range(3), 2) == [0, 1, 8]


def test_what_fails_there_fails_here(capfd):
    with pytest.raises(DecodingError, match="task"):
        spread(failing, range(2), 2)
    capfd.readouterr()  # the other process says so too


def test_scripts_need_no_guard(tmp_path):
    """A script that shares work out is not run again by the processes that it starts."""
    script = tmp_path / "script.py"
    script.write_text(
        "from masquerade.crypto.proof_batches import spread\nprint(spread(abs, [-1, -2, 3], 2))\n",
        encoding="utf-8",
    )
    done = subprocess.run(  # noqa: S603
        [sys.executable, str(script)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[1, 2, 3]\n"


def claim_of(item):
    user, encoded, proof = item
    points = [secp256k1.decode(encoded[at : at + 33]) for at in range(0, len(encoded), 33)]
    return ProofClaim(valid_bit(Ballot(*points)), proof, transcript(user))


def test_cheats_are_named_by_other_processes_too(monkeypatch):
    monkeypatch.setattr(proof_batches, "_MANY", 16)
    statements, proofs = proved_bits(secp256k1, [user % 2 for user in range(40)])
    items = []
    for user, (statement, proof) in enumerate(zip(statements, proofs, strict=True)):
        honest, bits = statement
        first, second = honest.equations
        own, masked = bits.branches[0].equations
        ballot = Ballot(
            masked.terms[0][1], second.terms[0][1], first.image, own.image, masked.image, second.image
        )
        items.append((user, b"".join(point.encode() for point in ballot), proof))
    assert find_rejected(items, claim_of, batch=8) == []
    for user in (0, 19, 20, 39):
        items[user] = (user + 1, *items[user][1:])
    items[7] = (7, bytes(6 * 33), items[7][2])
    assert find_rejected(items, claim_of, batch=8) == [0, 7, 19, 20, 39]
    assert find_rejected(items, claim_of, workers=1) == [0, 7, 19, 20, 39]
