"""What lies on a collector's disk: reports, and nothing about when each of them came."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from scipy.stats import kendalltau

from masquerade.protocols.k_anonymity.threshold.report_store import ReportStore
from masquerade.protocols.wire.slot_table import FIRST_SLOTS

SIZE = 148
FALSE_ALARMS = 1e-7  # of one list; there are fewer than twenty
NUMBERS = [30, 120, 1000, 1500]  # of the last, slots were made anew on the way


def numbered(i):
    """Return a report that says when it came, as no report does."""
    return i.to_bytes(8, "big") + b"mqt1" * ((SIZE - 8) // 4)


def ordered_kept(folder, number):
    """Keep reports as the first version did: rows one after another, with a log."""
    store = sqlite3.connect(folder / "reports.sqlite", isolation_level=None)
    store.execute("PRAGMA journal_mode = wal")
    store.execute("CREATE TABLE reports (place INTEGER PRIMARY KEY, run BLOB NOT NULL)")
    for i in range(number):
        store.execute("INSERT INTO reports (run) VALUES (?)", (numbered(i),))
    return store


def found_in(folder):
    """Return the numbers of reports as they stand in every file that is there, by file."""
    found = {}
    for file in sorted(Path(folder).rglob("*")):
        run, at, numbers = file.read_bytes(), 0, []
        while (at := run.find(b"mqt1" * 35, at)) >= 0:
            numbers.append(int.from_bytes(run[at - 8 : at], "big"))
            at += SIZE
        found[file.name] = list(dict.fromkeys(numbers))
    return {name: numbers for name, numbers in found.items() if numbers}


def tells_order(numbers):
    """Tell whether places in a file go with times of arrival, either way."""
    return kendalltau(range(len(numbers)), numbers).pvalue < FALSE_ALARMS


@pytest.mark.parametrize("number", NUMBERS)
def test_the_disk_told_the_order_of_arrival_and_does_not_any_more(tmp_path, number):
    (tmp_path / "before").mkdir()
    with closing(ordered_kept(tmp_path / "before", number)):
        shutil.copytree(tmp_path / "before", tmp_path / "stolen")  # as a process that is killed leaves it
    assert by_rows(tmp_path / "stolen", "SELECT run FROM reports") == list(range(number))  # the attack
    with closing(ReportStore.in_folder(tmp_path / "now", SIZE)) as store:
        for i in range(number):
            store.append(numbered(i))
        found = found_in(tmp_path / "now")
        shutil.copytree(tmp_path / "now", tmp_path / "stolen now")
        assert list(found) == ["reports.sqlite"]
        assert sorted(found["reports.sqlite"]) == list(range(number))
        assert not tells_order(found["reports.sqlite"])
        assert store.read() == store.read()
    rows = by_rows(
        tmp_path / "stolen now",
        "SELECT substr(content, 13) FROM slots WHERE substr(content, 1, 8) != zeroblob(8)",
    )
    assert sorted(rows) == list(range(number))
    assert not tells_order(rows)


def by_rows(folder, query):
    """Return the numbers of reports in the order of a table's rows."""
    with closing(sqlite3.connect(folder / "reports.sqlite")) as store:
        return [int.from_bytes(run[:8], "big") for (run,) in store.execute(query)]


def apart(folder):
    with closing(ReportStore.in_folder(folder, SIZE)) as store:
        run = store.read()
    return [run[at : at + SIZE] for at in range(0, len(run), SIZE)]


def test_reports_that_come_after_slots_were_made_anew_stand_among_the_others(tmp_path):
    with closing(ReportStore.in_folder(tmp_path, SIZE)) as store:
        for i in range(FIRST_SLOTS + FIRST_SLOTS // 2):
            store.append(numbered(i))
    numbers = found_in(tmp_path)["reports.sqlite"]
    late = [place for place, i in enumerate(numbers) if i >= FIRST_SLOTS]
    early = [place for place, i in enumerate(numbers) if i < FIRST_SLOTS]
    ranks = [0] * len(early) + [1] * len(late)
    assert kendalltau(early + late, ranks).pvalue > FALSE_ALARMS


KILLED = """
import sys
from pathlib import Path
from masquerade.protocols.k_anonymity.threshold.report_store import ReportStore
store = ReportStore.in_folder(Path(sys.argv[1]), int(sys.argv[2]))
for i in range(100_000):
    store.append(i.to_bytes(8, "big") + b"mqt1" * 35)
    print(i, flush=True)
"""


@pytest.mark.parametrize("least", [30, 300])
def test_a_collector_that_is_killed_in_the_middle_of_a_write_leaves_no_order(tmp_path, least):
    script = [sys.executable, "-c", KILLED, tmp_path, str(SIZE)]
    with subprocess.Popen(script, stdout=subprocess.PIPE) as writer:  # noqa: S603  (our own)
        acknowledged = 0
        for line in writer.stdout:
            acknowledged = int(line) + 1
            if acknowledged == least:
                writer.kill()
    found = found_in(tmp_path)
    assert list(found) == ["reports.sqlite"]
    assert not any(tells_order(numbers) for numbers in found.values())
    kept = {int.from_bytes(one[:8], "big") for one in apart(tmp_path)}
    assert set(range(acknowledged)) <= kept <= set(range(acknowledged + 1))  # nothing that was taken is lost


def test_reports_that_an_earlier_store_kept_in_order_are_taken_over_without_it(tmp_path):
    with closing(ordered_kept(tmp_path, 200)) as store:
        store.execute("CREATE TABLE notes (scope TEXT, name TEXT, value BLOB, PRIMARY KEY (scope, name))")
        store.execute("INSERT INTO notes VALUES ('collector', 'closing', x'01')")
        store.execute(f"PRAGMA application_id = {int.from_bytes(b'mqrp', 'big')}")
        store.execute("PRAGMA user_version = 1")
    with closing(ReportStore.in_folder(tmp_path, SIZE)) as store:
        assert store.find_note("closing") == b"\x01"
        found = found_in(tmp_path)
    assert list(found) == ["reports.sqlite"]
    assert sorted(found["reports.sqlite"]) == list(range(200))
    assert not tells_order(found["reports.sqlite"])
