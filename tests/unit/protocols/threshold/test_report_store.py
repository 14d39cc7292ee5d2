"""Sealed reports lie in the collector's file without the order in which they came.

False alarms: two orders with 1e-9 each.
"""

from __future__ import annotations

import secrets
import sqlite3
from contextlib import closing

from tests.survey.order_attack import LEAST_ORDER, p_of_order

from masquerade.protocols.threshold.report_store import ReportStore

SIZE = 100
COMING = """
CREATE TABLE reports (place INTEGER PRIMARY KEY, run BLOB NOT NULL);
CREATE TABLE notes (scope TEXT NOT NULL, name TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY (scope, name));
PRAGMA application_id = 1836151408;
PRAGMA user_version = 1;
"""


def by_place(folder, reports):
    """Return reports in the order in which they lie in the files of a folder."""
    assert [file.name for file in folder.iterdir()] == ["reports.sqlite"]
    content = (folder / "reports.sqlite").read_bytes()
    return sorted(reports, key=lambda one: content.find(one[:20]))


def test_reports_come_one_by_one_and_their_places_do_not_tell_who_came_first(tmp_path):
    reports = [secrets.token_bytes(SIZE) for _ in range(120)]
    with closing(ReportStore.in_folder(tmp_path / "epoch", SIZE)) as store:
        for one in reports:
            store.append(one)
        assert p_of_order(by_place(tmp_path / "epoch", reports), reports) >= LEAST_ORDER
        assert sorted(reports) == sorted(
            store.read()[at : at + SIZE] for at in range(0, len(store.read()), SIZE)
        )
        again = store.read()
    with closing(ReportStore.in_folder(tmp_path / "epoch", SIZE)) as store:
        assert store.read() == again  # what was opened once opens the same


def test_reports_in_the_order_received_as_they_were_kept_before_lose_it(tmp_path):
    (tmp_path / "epoch").mkdir()
    reports = [secrets.token_bytes(SIZE) for _ in range(120)]
    with closing(sqlite3.connect(tmp_path / "epoch" / "reports.sqlite", isolation_level=None)) as before:
        before.executescript(COMING)
        before.executemany("INSERT INTO reports (run) VALUES (?)", [(one,) for one in reports])
    assert p_of_order(by_place(tmp_path / "epoch", reports), reports) < LEAST_ORDER
    with closing(ReportStore.in_folder(tmp_path / "epoch", SIZE)) as store:
        assert len(store.read()) == 120 * SIZE
    assert p_of_order(by_place(tmp_path / "epoch", reports), reports) >= LEAST_ORDER
