"""Reports and invitations of a survey in PostgreSQL: two clusters, or a cluster and a file."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

from masquerade.survey.collector.file_store import NewReport
from masquerade.survey.collector.postgres_tables import PostgresTables
from masquerade.survey.collector.report_counts import Key

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
POOLED: Final = ("reports", "spent", "withdrawn", "exchanged")  # tables that grow one by one


class PostgresReports(PostgresTables):
    """The reports of a survey in PostgreSQL."""

    def __init__(self, url: str, accept: Collection[str]) -> None:
        super().__init__(url, REPORT_TABLES, POOLED, accept)
        self._count_days_apart()

    def adding(self, reports: Sequence[NewReport]) -> AbstractContextManager[object]:  # noqa: ARG002
        """Open a transaction in which these reports can be looked up and kept."""
        return self.transaction()

    def removing(self) -> AbstractContextManager[object]:
        """Open a transaction in which a report can be withdrawn, or all be deleted."""
        return self.transaction()

    def reading(self) -> AbstractContextManager[object]:
        """Open a transaction in which everything can be read, and versions and facts be written."""
        return self.transaction()

    def make_room(self, longest: Key) -> None:
        """Do nothing: rows have any length."""

    def find_contents(self, ids: Sequence[bytes]) -> dict[bytes, Key]:
        """Return the contents of the reports with these ids."""
        rows = self._rows("id, policy, mode, codes", "reports", ids)
        return {bytes(name): (str(policy), int(mode), str(codes)) for name, policy, mode, codes in rows}

    def find_withdrawn(self, ids: Sequence[bytes]) -> Collection[bytes]:
        """Return the ids whose reports were withdrawn."""
        return {bytes(name) for (name,) in self._rows("id", "withdrawn", ids)}

    def find_spent(self, tokens: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """Return the ids of the reports that tokens came with."""
        return {bytes(token): bytes(name) for token, name in self._rows("token, id", "spent", tokens)}

    def insert(self, reports: Sequence[NewReport], day: str) -> None:
        """Keep reports."""
        self.add("reports", [(report.id, *report.content) for report in reports])
        self.add("spent", [(report.token, report.id) for report in reports if report.token is not None])
        self._count(day, len(reports))

    def remove(self, name: bytes) -> Key | None:
        """Delete a report but for its id and token; return its content, None if it is unknown."""
        content = self.find_contents([name]).get(name)
        if content is not None:
            self.run("DELETE FROM reports WHERE id = ?", (name,))
            self.add("withdrawn", [(name,)])
        return content

    def clear(self) -> int:
        """Delete everything that was reported; return the number of reports."""
        number, _ = self.totals()
        for table in ("reports", "spent", "withdrawn", "days"):
            self.run(f"DELETE FROM {table}")  # noqa: S608  (our own names)
        return number

    def totals(self) -> tuple[int, int]:
        """Return the number of reports, and of those that were withdrawn."""
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
        """Return the number of reports that came on each day."""
        return {str(day): int(number) for day, number in self.run("SELECT day, number FROM days ORDER BY 1")}

    def _rows(self, columns: str, table: str, keys: Sequence[bytes]) -> Sequence[tuple[Any, ...]]:
        """Return columns of the rows with these keys, the first column being the key."""
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

    def _count_days_apart(self) -> None:
        """Take the day out of the rows of an older survey, where it told who came before whom."""
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
        """Keep new invitations."""
        with self.transaction():
            self.run_all("INSERT INTO invitations VALUES (?)", [(name,) for name in sorted(digests)])

    def exchange(self, name: bytes, blinded: bytes) -> bool | None:
        """Use an invitation for one element; None if it is unknown, False if it was used for another."""
        with self.transaction():
            if not self.run("SELECT 1 FROM invitations WHERE digest = ?", (name,)):
                return None
            before = self.run("SELECT blinded FROM exchanged WHERE digest = ?", (name,))
            if before:
                return bytes(before[0][0]) == blinded
            self.add("exchanged", [(name, blinded)])
            return True

    def totals(self) -> tuple[int, int]:
        """Return the number of invitations, and of those that were used."""
        [(invited, used)] = self.run(
            "SELECT (SELECT count(*) FROM invitations), (SELECT count(*) FROM exchanged)"
        )
        return int(invited), int(used)

    def clear(self) -> None:
        """Delete every invitation."""
        with self.transaction():
            for table in INVITATION_TABLES:
                self.run(f"DELETE FROM {table}")  # noqa: S608  (our own names)
