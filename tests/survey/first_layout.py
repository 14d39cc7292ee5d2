"""The store as it was before slots: the tables, the inserts and the write-ahead log of the first layout.

Frozen: tests show what its files tell, and that such files are brought into the layout of today.
"""

from __future__ import annotations

import hashlib
import secrets
import sqlite3
from pathlib import Path

REPORTS = """
CREATE TABLE reports (id BLOB PRIMARY KEY, policy TEXT NOT NULL, mode INTEGER NOT NULL, day TEXT NOT NULL,
    codes TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE spent (token BLOB PRIMARY KEY, id BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE withdrawn (id BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE versions (policy TEXT PRIMARY KEY, content TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""
INVITATIONS = """
CREATE TABLE invitations (digest BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE exchanged (digest BLOB PRIMARY KEY, blinded BLOB NOT NULL) WITHOUT ROWID;
"""


class FirstStore:
    """Reports and invitations as they were kept: each write a transaction, at the place its key gives it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.reports = _opened(folder / "reports.sqlite", REPORTS, b"mqsv")
        self.invitations = _opened(folder / "invitations.sqlite", INVITATIONS, b"mqsi")

    def invite(self, number: int) -> list[str]:
        codes = [secrets.token_urlsafe(18) for _ in range(number)]
        self.invitations.execute("BEGIN IMMEDIATE")
        rows = sorted((hashlib.sha256(code.encode()).digest(),) for code in codes)
        self.invitations.executemany("INSERT INTO invitations VALUES (?)", rows)
        self.invitations.execute("COMMIT")
        return codes

    def exchange(self, code: str, blinded: bytes) -> None:
        name = hashlib.sha256(code.encode()).digest()
        self.invitations.execute("INSERT INTO exchanged VALUES (?, ?)", (name, blinded))

    def add(self, name: bytes, token: bytes, codes: str, day: str = "2030-01-01") -> None:
        self.reports.execute("BEGIN IMMEDIATE")
        self.reports.execute("INSERT INTO reports VALUES (?, ?, 0, ?, ?)", (name, "p" * 64, day, codes))
        self.reports.execute("INSERT INTO spent VALUES (?, ?)", (token, name))
        self.reports.execute("COMMIT")

    def withdraw(self, name: bytes) -> None:
        self.reports.execute("BEGIN IMMEDIATE")
        self.reports.execute("DELETE FROM reports WHERE id = ?", (name,))
        self.reports.execute("INSERT INTO withdrawn VALUES (?)", (name,))
        self.reports.execute("COMMIT")

    def close(self) -> None:
        self.reports.close()
        self.invitations.close()


def _opened(file: Path, tables: str, mark: bytes) -> sqlite3.Connection:
    store = sqlite3.connect(file, isolation_level=None)
    store.execute("PRAGMA journal_mode = WAL")
    store.execute("PRAGMA synchronous = FULL")
    store.execute("PRAGMA secure_delete = ON")
    store.executescript(tables)
    store.execute(f"PRAGMA application_id = {int.from_bytes(mark, 'big')}")
    store.execute("PRAGMA user_version = 1")
    return store
