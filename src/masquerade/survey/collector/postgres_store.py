"""Reports and invitations of a survey in PostgreSQL: two clusters, or a cluster and a file."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

from masquerade.core.errors import FileError
from masquerade.survey.collector.file_store import Key, NewReport
from masquerade.survey.collector.postgres_tables import PostgresTables

REPORT_TABLES: Final = {
    "reports": "id BYTEA PRIMARY KEY, policy TEXT NOT NULL, mode INTEGER NOT NULL, codes TEXT NOT NULL",
    "spent": "token BYTEA PRIMARY KEY, id BYTEA NOT NULL",
    "withdrawn": "id BYTEA PRIMARY KEY",
    "days": "day TEXT PRIMARY KEY, number BIGINT NOT NULL",
    "versions": "policy TEXT PRIMARY KEY, content TEXT NOT NULL",
    "facts": "name TEXT PRIMARY KEY, value TEXT NOT NULL",
}
INVITATION_TABLES: Final = {
    "invitations": "digest BYTEA PRIMARY KEY",
    "exchanged": "digest BYTEA PRIMARY KEY, blinded BYTEA NOT NULL",
}
POOLED: Final = ("reports", "spent", "withdrawn", "exchanged")  # tables to which rows are added one by one


class PostgresReports(PostgresTables):
    """The reports of a survey in PostgreSQL."""

    def __init__(self, url: str, accept: Collection[str]) -> None:
        super().__init__(url, REPORT_TABLES, POOLED, accept)
        try:
            self._count_days_apart()
            self._check_whole()
        except BaseException:
            self.close()
            raise

    def adding(self, reports: Sequence[NewReport]) -> AbstractContextManager[object]:  # noqa: ARG002
        """Open a transaction in which these reports can be looked up and stored."""
        return self.transaction()

    def removing(self) -> AbstractContextManager[object]:
        """Open a transaction in which one report can be withdrawn, or all reports deleted."""
        return self.transaction()

    def reading(self) -> AbstractContextManager[object]:
        """Open a transaction that reads everything, and may write versions and facts."""
        return self.transaction()

    def make_room(self, longest: Key) -> None:
        """Raise FileError if people may write what the database cannot store; rows can have any length."""
        encoding = self.value("SHOW server_encoding")
        if longest[2].endswith("}]") and encoding != "UTF8":  # one such text would stop its whole group
            raise FileError(
                f"store: the database has the encoding {encoding}, which lacks characters that people may "
                "write in their own words. Create it with ENCODING 'UTF8'."
            )

    def find_contents(self, ids: Sequence[bytes]) -> dict[bytes, Key]:
        """Return the contents of the reports with these ids."""
        rows = self._rows("id, policy, mode, codes", "reports", ids)
        return {bytes(name): (str(policy), int(mode), str(codes)) for name, policy, mode, codes in rows}

    def find_withdrawn(self, ids: Sequence[bytes]) -> Collection[bytes]:
        """Return the ids whose reports were withdrawn."""
        return {bytes(name) for (name,) in self._rows("id", "withdrawn", ids)}

    def find_spent(self, tokens: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """Return the ids of the reports that were sent with these tokens."""
        return {bytes(token): bytes(name) for token, name in self._rows("token, id", "spent", tokens)}

    def insert(self, reports: Sequence[NewReport], day: str) -> None:
        """Store reports."""
        self.add("reports", [(report.id, *report.content) for report in reports])
        self.add("spent", [(report.token, report.id) for report in reports if report.token is not None])
        self._count(day, len(reports))

    def remove(self, name: bytes) -> Key | None:
        """Delete a report except its id and token; return its content, or None if the id is unknown."""
        content = self.find_contents([name]).get(name)
        if content is not None:
            self.run("DELETE FROM reports WHERE id = ?", (name,))
            self.add("withdrawn", [(name,)])
        return content

    def clear(self) -> int:
        """Delete all reports; return their number."""
        number, _ = self.totals()
        for table in ("reports", "spent", "withdrawn", "days"):
            self.run(f"DELETE FROM {table}")  # noqa: S608  (our own names)
        return number

    def totals(self) -> tuple[int, int]:
        """Return the number of reports, and of withdrawn reports."""
        [(reports, withdrawn)] = self.run(
            "SELECT (SELECT count(*) FROM reports), (SELECT count(*) FROM withdrawn)"
        )
        return int(reports), int(withdrawn)

    def rows(self) -> Iterable[tuple[bytes, Key]]:
        """Return id and content of every report."""
        for name, policy, mode, codes in self.run("SELECT id, policy, mode, codes FROM reports"):
            yield bytes(name), (str(policy), int(mode), str(codes))

    def count_equal(self) -> dict[Key, int]:
        """Return the number of reports of each content."""
        rows = self.run("SELECT policy, mode, codes, count(*) FROM reports GROUP BY policy, mode, codes")
        return {(str(policy), int(mode), str(codes)): int(number) for policy, mode, codes, number in rows}

    def days(self) -> dict[str, int]:
        """Return the number of reports that arrived on each day."""
        return {str(day): int(number) for day, number in self.run("SELECT day, number FROM days ORDER BY 1")}

    def _rows(self, columns: str, table: str, keys: Sequence[bytes]) -> Sequence[tuple[Any, ...]]:
        """Return columns of the rows with these keys; the first column is the key."""
        if not keys:
            return []
        marks, key = ", ".join("?" * len(keys)), columns.partition(",")[0]
        return self.run(f"SELECT {columns} FROM {table} WHERE {key} IN ({marks})", keys)  # noqa: S608

    def _count(self, day: str, number: int) -> None:
        self.run(
            "INSERT INTO days VALUES (?, ?) ON CONFLICT (day) DO UPDATE "
            "SET number = days.number + EXCLUDED.number",
            (day, number),
        )

    def _check_whole(self) -> None:
        """Raise FileError if there are fewer reports than arrived.

        A dump that starts while rows are rewritten lacks them without an error: to a snapshot that is older
        than a TRUNCATE the table is empty.
        """
        with self.transaction():
            arrived = int(self.value("SELECT coalesce(sum(number), 0) FROM days"))
            missing = arrived - sum(self.totals())
        if missing > 0:
            raise FileError(
                f"store: {missing:,} of {arrived:,} reports are missing. The database was restored from a "
                "copy that was made while the collector wrote: restore one that was made while it was "
                "stopped. To continue without these reports, empty the table 'days'."
            )

    def _count_days_apart(self) -> None:
        """Remove the day from the rows of an older survey, where it revealed the order of reports."""
        column = (
            "SELECT 1 FROM pg_attribute WHERE attrelid = 'reports'::regclass "
            "AND attname = 'day' AND NOT attisdropped"
        )
        with self.transaction():
            if not self.run(column):
                return
            for day, number in self.run("SELECT day, count(*) FROM reports GROUP BY day"):
                self._count(str(day), int(number))
            self.run("ALTER TABLE reports DROP COLUMN day")
        self.tidy()


class PostgresInvitations(PostgresTables):
    """The invitations to a survey in PostgreSQL."""

    def __init__(self, url: str, accept: Collection[str]) -> None:
        super().__init__(url, INVITATION_TABLES, POOLED, accept)

    def invite(self, digests: Iterable[bytes]) -> None:
        """Store new invitations."""
        with self.transaction():
            self.run_all("INSERT INTO invitations VALUES (?)", [(name,) for name in sorted(digests)])

    def exchange(self, names: Sequence[bytes], blinded: bytes) -> bool | None:
        """Exchange one of a link's invitations for an element, or find the earlier exchange for this element.

        Returns None if the invitations are unknown, and False if all were used for other elements.
        """
        holes = ", ".join("?" * len(names))
        with self.transaction():
            existing = self.run(f"SELECT digest FROM invitations WHERE digest IN ({holes})", names)  # noqa: S608
            if not existing:
                return None
            statement = f"SELECT digest, blinded FROM exchanged WHERE digest IN ({holes})"  # noqa: S608
            before = {bytes(name): bytes(element) for name, element in self.run(statement, names)}
            if blinded in before.values():
                return True
            unused = [bytes(name) for (name,) in existing if bytes(name) not in before]
            if not unused:
                return False
            self.add("exchanged", [(secrets.choice(unused), blinded)])
            return True

    def totals(self) -> tuple[int, int]:
        """Return the number of invitations, and of used invitations."""
        [(invited, used)] = self.run(
            "SELECT (SELECT count(*) FROM invitations), (SELECT count(*) FROM exchanged)"
        )
        return int(invited), int(used)

    def clear(self) -> None:
        """Delete every invitation."""
        with self.transaction():
            for table in INVITATION_TABLES:
                self.run(f"DELETE FROM {table}")  # noqa: S608  (our own names)
