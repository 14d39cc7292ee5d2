"""What lies on a randomness server's disk: who was served, and nothing about who asked first."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from contextlib import closing

import pytest
from scipy.stats import kendalltau

from masquerade.core.errors import InputError
from masquerade.protocols.k_anonymity.threshold.evaluation_ledger import EvaluationLedger
from masquerade.protocols.wire.slot_table import FIRST_SLOTS

FALSE_ALARMS = 1e-7  # of one list; there are fewer than ten
HEAD = b"a credential"  # of 16 bytes


def credential(i):
    """Return a credential that says who it is, as none does; ids are not in the order of asking."""
    return HEAD + (i * 2654435761 % 2**32).to_bytes(4, "big")


def found_in(folder, number):
    """Return in which order those who asked stand in the bytes of all files, by file."""
    who, found = {credential(i): i for i in range(number)}, {}
    for file in sorted(folder.iterdir()):
        run, at, order = file.read_bytes(), -1, []
        while (at := run.find(HEAD, at + 1)) >= 0:
            order.append(who[run[at : at + 16]])
        found[file.name] = list(dict.fromkeys(order))
    return {name: order for name, order in found.items() if order}


def tells_order(order):
    """Tell whether places in a file go with who asked first, either way."""
    return kendalltau(range(len(order)), order).pvalue < FALSE_ALARMS


def earlier_ledger(folder, number):
    """Keep uses as earlier versions did: cells of a page lie in the order in which they were written."""
    folder.mkdir()
    store = sqlite3.connect(folder / "ledger", isolation_level=None)
    store.execute(
        "CREATE TABLE epochs (number INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL, "
        "notice BLOB NOT NULL, finished INTEGER NOT NULL DEFAULT 0)"
    )
    store.execute(
        "CREATE TABLE uses (epoch INTEGER NOT NULL, credential BLOB NOT NULL, "
        "mark BLOB NOT NULL, PRIMARY KEY (epoch, credential)) WITHOUT ROWID"
    )
    store.execute("INSERT INTO epochs VALUES (1, 'spring', x'00ff', 0)")
    for i in range(number):
        store.execute("INSERT INTO uses VALUES (1, ?, ?)", (credential(i), bytes(16)))
    store.close()


def test_the_disk_told_who_asked_first_and_does_not_any_more(tmp_path):
    earlier_ledger(tmp_path / "before", 60)
    (order,) = found_in(tmp_path / "before", 60).values()
    assert order[::-1] == list(range(60))  # the attack: SQLite fills a page from its end
    number = FIRST_SLOTS + 100  # the table is written again on the way
    (tmp_path / "now").mkdir()
    with closing(EvaluationLedger(tmp_path / "now" / "ledger")) as ledger:
        ledger.begin("spring", b"")
        for i in range(number):
            assert ledger.spend("spring", [(credential(i), bytes(16))]) == [True]
            if i == 59:
                shutil.copytree(tmp_path / "now", tmp_path / "stolen")  # as a killed process leaves it
        for folder, due in ((tmp_path / "stolen", 60), (tmp_path / "now", number)):
            (order,) = found_in(folder, number).values()
            assert sorted(order) == list(range(due))
            assert not tells_order(order)
        assert ledger.count_spent("spring") == number


def test_a_ledger_that_told_the_order_is_written_again_without_it(tmp_path):
    earlier_ledger(tmp_path / "before", 60)
    for _ in range(2):
        with closing(EvaluationLedger(tmp_path / "before" / "ledger")) as ledger:
            assert ledger.count_spent("spring") == 60
            assert ledger.spend("spring", [(credential(7), bytes(16)), (credential(8), b"1" * 16)]) == [
                True,
                False,
            ]
    (order,) = found_in(tmp_path / "before", 60).values()
    assert sorted(order) == list(range(60))
    assert not tells_order(order)


def test_of_uses_of_a_credential_at_the_same_time_one_is_the_first(tmp_path):
    """In one call, in several threads, and in two objects that share a file."""
    with (
        closing(EvaluationLedger(tmp_path / "ledger")) as one,
        closing(EvaluationLedger(tmp_path / "ledger")) as other,
    ):
        one.begin("spring", b"")
        marks = [bytes([i]) * 16 for i in range(8)]
        assert one.spend("spring", [(credential(0), mark) for mark in marks[:3]]) == [True, False, False]
        assert other.spend("spring", [(credential(0), marks[1])]) == [False]
        served, together = [], threading.Barrier(8)

        def ask(ledger, mark):
            together.wait()
            served.extend(ledger.spend("spring", [(credential(1), mark)]))

        threads = [threading.Thread(target=ask, args=(one, mark)) for mark in marks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(served) == [False] * 7 + [True]
        assert one.count_spent("spring") == other.count_spent("spring") == 2
        with pytest.raises(InputError, match="no epoch"):
            one.spend("autumn", [(credential(2), bytes(16))])
