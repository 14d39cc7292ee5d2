"""What a PostgreSQL server keeps of the order in which rows came, beside its tables.

The tables of a survey have no order. A server has a write-ahead log, though, and may keep more of it than it
needs, hand it on, or write statements and times of commits down. Each of these joins invitations with reports
as well as a table in order of arrival would. They are looked at on every new connection, and refused unless
the settings accept them, one by one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, Literal, Protocol, get_args

from masquerade.core.errors import FileError

Trace = Literal["archiving", "replication", "commit_times", "statement_log", "one_cluster"]
TRACES: Final[tuple[str, ...]] = get_args(Trace)
# what a setting may be without keeping anything; a server that does not know it has None
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
    "auto_explain.log_min_duration": ("statement_log", ("-1",)),
}
_COUNTED: Final = {
    "pg_replication_slots": "replication slot",
    "pg_stat_replication": "connected replica",
    "pg_publication": "publication",
}
_WHY: Final = {
    "archiving": "its write-ahead log, which has the order of arrival, is kept",
    "replication": "its write-ahead log, which has the order of arrival, is handed on",
    "commit_times": "it keeps the time of every commit",
    "statement_log": "its own log gets what is written, with times",
}


class PostgresServer(Protocol):
    """A server that answers statements."""

    def value(self, statement: str) -> Any:
        """Return the first value of the first row, None if there are no rows."""


def check_server(connection: Any, accept: Collection[str]) -> None:
    """Raise FileError if a server keeps an order that is not accepted; `connection` is a driver's."""
    refused: dict[str, list[str]] = {}
    for trace, sign in _signs(connection):
        if trace not in accept:
            refused.setdefault(trace, []).append(sign)
    if refused:
        head = (
            "store: this PostgreSQL server keeps the order in which reports came. Switch that off there, or "
            f"accept it in the settings (accept: [{', '.join(sorted(refused))}]):"
        )
        lines = [f"{', '.join(signs)}: {_WHY[trace]} ({trace})." for trace, signs in sorted(refused.items())]
        raise FileError("\n  ".join([head, *lines]))


def check_clusters(reports: PostgresServer, invitations: PostgresServer, accept: Collection[str]) -> None:
    """Raise FileError if both are of one cluster, whose one log joins them, and that is not accepted."""
    number = "SELECT system_identifier FROM pg_control_system()"
    if "one_cluster" not in accept and reports.value(number) == invitations.value(number):
        raise FileError(
            "invitations: are in the same PostgreSQL cluster as the reports, whose write-ahead log joins "
            "them. Name a folder or a server of their own, or accept it in the settings (accept: "
            "[one_cluster])."
        )


def _signs(connection: Any) -> Iterator[tuple[str, str]]:
    """Yield what keeps an order: which trace it is, and the sign of it."""
    columns = ", ".join(f"current_setting('{name}', true)" for name in _HARMLESS)
    values = connection.execute(f"SELECT {columns}").fetchone()
    for (name, (trace, harmless)), value in zip(_HARMLESS.items(), values, strict=True):
        if value is not None and value not in harmless:
            yield trace, f"{name} = {value}"
    for view, text in _COUNTED.items():
        (number,) = connection.execute(f"SELECT count(*) FROM {view}").fetchone()  # noqa: S608
        if number:
            yield "replication", f"{number} {text}{'' if number == 1 else 's'}"
