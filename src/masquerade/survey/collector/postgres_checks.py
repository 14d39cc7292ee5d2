"""Checks that a PostgreSQL server keeps no trace of the order in which rows arrived, outside its tables.

The tables of a survey have no order. A server has a write-ahead log, however: it may keep more of the log
than it needs, replicate it, or log statements and commit times. Each of these links invitations to reports
just as a table in the order of arrival would. Every transaction checks for them and fails unless the settings
accept each trace by name. The same holds for a server on another machine whose certificate is not verified.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, Protocol, get_args

from masquerade.core.errors import FileError
from masquerade.services.common.settings import is_loopback

Trace = Literal[
    "archiving", "replication", "commit_times", "statement_log", "one_cluster", "unverified_server"
]
POOL: Final = "_pool"  # suffix of the table with the latest rows
TRACES: Final[tuple[str, ...]] = get_args(Trace)
# values of server settings that keep no trace; a setting that the server does not know is None
_HARMLESS: Final[Mapping[str, tuple[str, Collection[str]]]] = {
    "archive_mode": ("archiving", ("off",)),
    "summarize_wal": ("archiving", ("off",)),
    "wal_level": ("replication", ("minimal", "replica")),
    "wal_keep_size": ("replication", ("0",)),
    "synchronous_standby_names": ("replication", ("",)),
    "track_commit_timestamp": ("commit_times", ("off",)),
    "log_statement": ("statement_log", ("none", "ddl")),
    "log_min_duration_statement": ("statement_log", ("-1",)),
    "log_min_duration_sample": ("statement_log", ("-1",)),
    "log_transaction_sample_rate": ("statement_log", ("0",)),
    "log_parameter_max_length_on_error": ("statement_log", ("0",)),
    "debug_print_parse": ("statement_log", ("off",)),
    "debug_print_rewritten": ("statement_log", ("off",)),
    "debug_print_plan": ("statement_log", ("off",)),
    "pgaudit.log": ("statement_log", ("", "none")),
    "pgaudit.role": ("statement_log", ("",)),
    "auto_explain.log_min_duration": ("statement_log", ("-1",)),
}
_OURS: Final = "(SELECT oid FROM pg_class WHERE relname = ANY(%(tables)s))"
_COUNTED: Final[Mapping[str, tuple[str, str]]] = {
    "pg_replication_slots": ("replication", "replication slot"),
    "pg_stat_replication": ("replication", "connected replica"),
    "pg_publication": ("replication", "publication"),
    f"pg_trigger WHERE NOT tgisinternal AND tgrelid IN {_OURS}": ("statement_log", "trigger"),
    f"pg_rewrite WHERE ev_class IN {_OURS}": ("statement_log", "rule"),
}
_VERIFIED: Final = ("verify-ca", "verify-full")
_WHY: Final = {
    "archiving": "its write-ahead log, which contains the order of arrival, is archived",
    "replication": "its write-ahead log, which contains the order of arrival, is replicated",
    "commit_times": "it stores the time of every commit",
    "statement_log": "statements are logged or recorded, with times",
}


class PostgresServer(Protocol):
    """A server that runs SQL statements."""

    def value(self, statement: str) -> Any:
        """Return the first value of the first row, None if there are no rows."""


def check_address(url: str, accept: Collection[str]) -> None:
    """Raise FileError if a server is on another machine and its certificate would not be verified.

    Environment variables and configuration files of PostgreSQL clients apply, as they do to a connection.
    """
    from psycopg import Error, pq  # noqa: PLC0415  (an extra)

    if "unverified_server" in accept:
        return
    try:
        values = [*pq.Conninfo.get_defaults(), *pq.Conninfo.parse(url.encode())]
    except Error:
        raise FileError("store: is not an address of PostgreSQL.") from None
    options = {it.keyword.decode(): it.val.decode() for it in values if it.val}
    hosts = [options.get(name, "") for name in ("host", "hostaddr")]
    is_local = all(_is_local(host) for text in hosts for host in text.split(",")) and "service" not in options
    if not is_local and options.get("sslmode") not in _VERIFIED:
        raise FileError(
            "store: PostgreSQL is on another machine, and its certificate is not verified: an attacker on "
            "the network can read every report. Add sslmode=verify-full (and sslrootcert=FILE) to the "
            "address, or accept this in the settings (accept: [unverified_server])."
        )


def _is_local(host: str) -> bool:
    """Return True for a socket or a loopback address; a name is not looked up."""
    return not host or host.startswith(("/", "@")) or is_loopback(host)


def check_server(connection: Any, tables: Iterable[str], accept: Collection[str]) -> None:
    """Raise FileError if a server keeps a trace of the order of arrival that is not accepted.

    Parameters
    ----------
    connection : psycopg.Connection
        Connection to the server.
    tables : iterable of str
        Tables of the survey, without their pools.
    accept : collection of str
        Traces that the settings accept.
    """
    refused: dict[str, list[str]] = {}
    for trace, sign in _signs(connection, [name for table in tables for name in (table, table + POOL)]):
        if trace not in accept:
            refused.setdefault(trace, []).append(sign)
    if refused:
        head = (
            "store: this PostgreSQL server keeps the order in which reports arrived. Change its "
            f"configuration, or accept this in the settings (accept: [{', '.join(sorted(refused))}]):"
        )
        lines = [f"{', '.join(signs)}: {_WHY[trace]} ({trace})." for trace, signs in sorted(refused.items())]
        raise FileError("\n  ".join([head, *lines]))


def check_clusters(reports: PostgresServer, invitations: PostgresServer, accept: Collection[str]) -> None:
    """Raise FileError if both are in one cluster, whose log links them, and that is not accepted."""
    number = "SELECT system_identifier FROM pg_control_system()"
    if "one_cluster" not in accept and reports.value(number) == invitations.value(number):
        raise FileError(
            "invitations: are in the same PostgreSQL cluster as the reports, whose write-ahead log links "
            "them. Name a folder or another server, or accept this in the settings (accept: [one_cluster])."
        )


def _signs(connection: Any, tables: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each trace of the order of arrival and the setting or object that causes it."""
    columns = [f"current_setting('{name}', true)" for name in _HARMLESS]
    columns += [f"(SELECT count(*) FROM {view})" for view in _COUNTED]  # noqa: S608  (our own names)
    row = connection.execute(f"SELECT {', '.join(columns)}", {"tables": list(tables)}).fetchone()
    for (name, (trace, harmless)), value in zip(_HARMLESS.items(), row, strict=False):
        if value is not None and value not in harmless:
            yield trace, f"{name} = {value}"
    for (trace, text), number in zip(_COUNTED.values(), row[len(_HARMLESS) :], strict=True):
        if number:
            yield trace, f"{number} {text}{'' if number == 1 else 's'}"
