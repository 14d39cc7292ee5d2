"""Tables by name: a connection to PostgreSQL or a Spark session that is opened, used and closed.

Callers with an open connection or session pass its table to `mq.tally` instead. No message repeats a URL or a
driver's text about one: a mistyped URL may have its password where the host should be.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from masquerade.core.errors import EngineError, InputError
from masquerade.frames.table_formats.delta import is_delta
from masquerade.frames.table_formats.iceberg import is_iceberg
from masquerade.sources.engines.engine_tables import SPARK, translate_engine_errors

if TYPE_CHECKING:
    from masquerade.core.schema import Field

URL: Final = "MASQUERADE_URL"
# defaults if neither the URL nor the environment sets them: give up on a silent server
PATIENT: Final = {
    "connect_timeout": "15",
    "keepalives_idle": "60",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "fallback_application_name": "masquerade",
}
NO_TABLE: Final = (
    "PostgreSQL: this database has no table or view {!r}. Outside the search path, write schema.table."
)


def url_of(given: str | None) -> str | None:
    """Return the given URL, or the one in the environment."""
    return given or os.environ.get(URL) or None


@contextmanager
def postgres_table(name: str, url: str | None = None) -> Iterator[Any]:
    """Yield a table of PostgreSQL as an Ibis table with one state for as long as it is used.

    Without a `url`, the usual variables and files apply (PGHOST, PGUSER, …, ~/.pgpass). The connection is
    read-only and sees one state of the database, so that concurrent inserts do not enter one query and not
    another.
    """
    try:
        import ibis  # type: ignore[import-untyped]  # noqa: PLC0415  (an extra)
        import psycopg  # noqa: PLC0415
    except ImportError:
        raise InputError(_missing_extra("PostgreSQL", "postgres")) from None
    connection = _connect(psycopg, url)
    try:
        with translate_engine_errors("PostgreSQL"):
            place = resolve_table(connection, name)
        if place is None:
            raise InputError(NO_TABLE.format(name))
        with translate_engine_errors("PostgreSQL"):
            table = ibis.postgres.from_connection(connection).table(place[1], database=place[0])
        yield table
    finally:
        connection.close()


def _connect(psycopg: Any, url: str | None) -> Any:
    """Return a read-only connection that sees one state."""
    settings = "PGHOST, PGPORT, PGUSER, … or their defaults" if url is None else "the URL"
    try:
        given = psycopg.conninfo.conninfo_to_dict(url or "")
    except psycopg.ProgrammingError:
        raise InputError(
            "PostgreSQL: the URL is not valid. It looks like postgresql://user@host:5432/database; in a "
            "password, characters such as @ : / % are written as %40 %3A %2F %25."
        ) from None
    settled = {*given, *(key for key in PATIENT if f"PG{key.upper()}" in os.environ)}
    ours = {key: value for key, value in PATIENT.items() if key not in settled}
    try:
        connection = psycopg.connect(url or "", **ours)
    except psycopg.Error as error:
        raise EngineError(f"PostgreSQL: could not connect with {settings}: {why_not(error)}.") from None
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    connection.read_only = True
    return connection


def why_not(error: Exception) -> str:
    """Return the reason of a failed connection, without the driver's text."""
    said = str(error).lower()
    reasons = {
        "password authentication failed": "user name or password was refused",
        "no password supplied": "the server requires a password",
        "no pg_hba.conf entry": "the server does not accept connections from this host, or not without TLS",
        "role ": "the server does not know this user",
        "database ": "the server has no such database",
        "timeout": "the server did not answer in time",
        "refused": "no server answers at this host and port",
        "no such file": "no server answers at this socket",
        "resolve": "the host is unknown",
        "translate host": "the host is unknown",
    }
    return next((reason for sign, reason in reasons.items() if sign in said), "it failed")


def resolve_table(connection: Any, name: str) -> tuple[str, str] | None:
    """Return the schema and table of a name, read first as SQL reads it, then literally."""
    with connection.cursor() as cursor:
        try:
            cursor.execute(
                "SELECT n.nspname, c.relname FROM pg_catalog.pg_class c "
                "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
                "WHERE c.oid = coalesce(to_regclass(%s), to_regclass("
                "(SELECT string_agg(quote_ident(part), '.') FROM unnest(string_to_array(%s, '.')) AS part))) "
                "AND c.relkind IN ('r', 'v', 'm', 'f', 'p')",
                [name, name],
            )
        except connection.ProgrammingError:  # "a..b" is not a valid name
            return None
        row = cursor.fetchone()
    return None if row is None else (str(row[0]), str(row[1]))


@contextmanager
def spark_table(
    names: Sequence[str], master: str | None = None, fields: Sequence[Field] = ()
) -> Iterator[Any]:
    """Yield a Spark frame: a table of the session's catalogue, or Parquet or CSV files by path or pattern.

    The session is the active one, or a new one on `master` (``spark://host:7077``, ``yarn``, ``local[4]``, or
    ``sc://host:15002`` for Spark Connect; without it, Spark's own settings), which is stopped afterwards. CSV
    columns are text unless `fields` gives their types.
    """
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415  (an extra)
    except ImportError:
        raise InputError(_missing_extra("Spark", "spark")) from None
    for name in names:
        _refuse_versions(name)
    active = SparkSession.getActiveSession()
    session = active or _start_session(SparkSession, master)
    try:
        with translate_engine_errors("Spark"):
            frame = read(session, names, fields)
        if frame is None:
            raise InputError(
                f"Spark: found no readable {'file' if _is_files(names) else 'table'} {', '.join(names)!r}. "
                "Files end in .parquet, .csv or .csv.gz, folders of Parquet files in /."
            )
        yield frame
    finally:
        if active is None:
            session.stop()


def _refuse_versions(name: str) -> None:
    """Raise InputError if Spark would read the files of all versions of a Delta or Iceberg table."""
    places = [Path(path) for path in (glob(name, recursive=True) if _is_files([name]) else ())]  # noqa: PTH207
    for folder in dict.fromkeys(above for place in places for above in (place, *place.parents)):
        if is_delta(folder) or is_iceberg(folder):
            raise InputError(
                f"{folder}: this is a Delta or Iceberg table, whose folder also has files of earlier "
                "versions and deleted rows. Omit --engine and give the folder, or give the name of the table "
                "in the catalogue of the Spark session."
            )


def _start_session(session_class: Any, master: str | None) -> Any:
    builder = session_class.builder.appName("masquerade")
    if master is not None and master.startswith("sc://"):
        builder = builder.remote(master)
    else:
        builder = builder.config("spark.ui.showConsoleProgress", "false")
        builder = builder if master is None else builder.master(master)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Spark warns about the machine, which does not concern the user
            session = builder.getOrCreate()
            session.version  # noqa: B018  (Spark Connect connects on the first call)
    except Exception as error:  # noqa: BLE001  (from Java or Python)
        raise EngineError(
            f"Spark: no session ({type(error).__name__}). It needs Java, and a master that answers, such as "
            "spark://host:7077, yarn or local[4]; sc://host:15002 (Spark Connect) needs no Java, but does "
            "need pip install 'pyspark[connect]'."
        ) from None
    return session


def read(session: Any, names: Sequence[str], fields: Sequence[Field]) -> Any | None:
    """Return the frame of some names, or None if there is none."""
    from pyspark.errors import AnalysisException  # noqa: PLC0415

    try:
        if not all(map(_is_csv, names)):
            frame = session.read.parquet(*names) if _is_files(names) else session.read.table(names[0])
            frame.schema  # noqa: B018  (Spark Connect resolves it only now)
            return frame
        columns = session.read.csv(list(names), header=True).columns
        kinds = {field.variable.name: spark_type(field) for field in fields}
        schema = ", ".join(f"{SPARK.name(name)} {kinds.get(name, 'STRING')}" for name in columns)
        # a value of another type must end the scan: read as missing, it would be counted wrongly
        return session.read.csv(list(names), schema, header=True, enforceSchema=False, mode="FAILFAST")
    except AnalysisException:
        return None


def spark_type(field: Field) -> str:
    """Return the type of a CSV column for the values of a variable."""
    if field.edges is not None:
        return "DOUBLE"
    kinds = {type(label) for label in field.variable.categories}
    return "BIGINT" if kinds == {int} else "BOOLEAN" if kinds == {bool} else "STRING"


def _is_files(names: Sequence[str]) -> bool:
    return len(names) > 1 or any("/" in n or "*" in n or _is_csv(n) or n.endswith(".parquet") for n in names)


def _is_csv(name: str) -> bool:
    return name.lower().endswith((".csv", ".csv.gz"))


def _missing_extra(engine: str, extra: str) -> str:
    return f"{engine} needs packages that are not installed: pip install 'masquerade[{extra}]'."
