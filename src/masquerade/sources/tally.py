"""`mq.tally`: a source of counts from the caller's data.

Small data are counted in memory, large data and tables of an engine in the engine.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, overload

import numpy as np
import pyarrow as pa

from masquerade.channels.policy import Policy, check_policy, policy_of
from masquerade.core.errors import (
    InputError,
    MasqueradeWarning,
    PolicyError,
    PolicyMismatch,
)
from masquerade.core.schema import Category, Field, Schema, category
from masquerade.core.tally import Tally
from masquerade.core.util.plugins import load_plugin, plugins
from masquerade.frames.baskets import Baskets
from masquerade.frames.file_reader import Batches, open_batches
from masquerade.frames.formats import STREAM, is_compressed
from masquerade.frames.label_codes import missing_texts_of
from masquerade.frames.metadata import INCOMPLETE, POLICY_TEXT, metadata_of
from masquerade.frames.native import columns_of
from masquerade.frames.streams import BatchStream, is_duckdb_file, scanned_files, stream_of
from masquerade.sources.baskets import BasketRecords
from masquerade.sources.engines.duckdb_files import DuckFiles
from masquerade.sources.engines.engine import Engine, check_same
from masquerade.sources.engines.engine_tables import IbisTable, SparkFrame, Table, Watch, table_of
from masquerade.sources.engines.growing import GrowingFiles, NumberedRows
from masquerade.sources.read_records import chunks_of, late_records, read_records
from masquerade.sources.records import Records
from masquerade.sources.report_tally import Missing

LOG = logging.getLogger("masquerade.sources")
ENGINES: Final = ("auto", "memory", "duckdb")
LARGEST_IN_MEMORY: Final = 1 << 26  # bytes of codes: 64 MiB, some 6 million records of ten variables
SHARE_OF_FREE: Final = 8  # and never more than one eighth of the free memory
TEXT_OF_A_VALUE: Final = 2  # fewest bytes of a value in a CSV file: a letter and a comma
UNPACKED: Final = 100  # largest compression ratio of a CSV file, unless rows repeat in order
CONTROL_GROUP: Final = Path("/sys/fs/cgroup")
MOST_INFERRED: Final = 1000
# packages whose objects have a built-in source
OURS = frozenset(
    {
        "",
        "arro3",
        "builtins",
        "dask",
        "ibis",
        "masquerade",
        "pandas",
        "pathlib",
        "polars",
        "pyarrow",
        "pyspark",
    }
)


@overload
def tally(data: Baskets, policy: Policy | str | Path | None = None) -> BasketRecords: ...


@overload
def tally(
    data: Any,
    policy: Policy | str | Path | None = None,
    *,
    schema: Schema | Policy | None = None,
    weights: str | None = None,
    counts: str | None = None,
    id: str | None = None,
    engine: Literal["memory"],
    accept_incomplete: bool = False,
) -> Records: ...


@overload
def tally(
    data: Any,
    policy: Policy | str | Path | None = None,
    *,
    schema: Schema | Policy | None = None,
    weights: str | None = None,
    counts: str | None = None,
    id: str | None = None,
    engine: str = "auto",
    watch: Watch | None = None,
    accept_incomplete: bool = False,
    growing: Literal[True] | str,
) -> Engine: ...


@overload
def tally(
    data: Any,
    policy: Policy | str | Path | None = None,
    *,
    schema: Schema | Policy | None = None,
    weights: str | None = None,
    counts: str | None = None,
    id: str | None = None,
    engine: str = "auto",
    watch: Watch | None = None,
    accept_incomplete: bool = False,
) -> Records | Engine: ...


def tally(
    data: Any,
    policy: Policy | str | Path | None = None,
    *,
    schema: Schema | Policy | None = None,
    weights: str | None = None,
    counts: str | None = None,
    id: str | None = None,  # noqa: A002  (the word users know)
    engine: str = "auto",
    watch: Watch | None = None,
    accept_incomplete: bool = False,
    growing: bool | str = False,
) -> Records | Engine | BasketRecords:
    """Return a source that answers counting queries about records.

    Parameters
    ----------
    data : frame, path, table or Baskets
        Records: a data frame, a path or pattern like ``people/*.parquet``, a folder of partitions like
        ``region=north/``, the folder of a Delta or Iceberg table (its newest version), opened files
        (`open_batches`), an Ibis table, a Spark data frame, or baskets.
        Polars lazy frames, Dask frames, Arrow data sets and readers of record batches are read in batches.
    policy : Policy or path, optional
        Policy that disguised the records. Files that `mq.disguise` wrote include it. Without a policy the
        records are clear.
    schema : Schema or Policy, optional
        Categories of clear records. Without it they are inferred from the data.
    weights : str, optional
        Column of survey weights.
    counts : str, optional
        Column of whole numbers: a row represents this number of records, and is repeated in memory. Weights
        are different: they do not change the number of records.
    id : str, optional
        Column that identifies persons. A second record of a person is an error, since repeated records would
        make standard errors too small.
    engine : str, optional
        ``"memory"``, ``"duckdb"`` (out of core), or ``"auto"``, which uses memory for small files and logs
        its choice (logger ``masquerade.sources``). With ``"auto"``, columns of a Parquet file of 100,000 rows
        or more are read when queries need them: the file must stay unchanged. A plug-in (entry point group
        ``masquerade.sources``) is selected by its name, by a text that starts with its name and a colon, or
        by an object of its package.
    watch : callable, optional
        Called with the completed share of a scan (None if unknown) while an engine scans.
    accept_incomplete : bool, optional
        Accept that answers are about the remaining records if the data state that records are missing, not at
        random. Otherwise such data refuse every query with the code ``incomplete``.
    growing : bool or str, optional
        For data that grow. For files that match a pattern, True. For a table, the name of a column with row
        numbers or times, which must be higher for later rows. The source answers about one state; its
        `refresh()` returns a source about the present state, and scans only new records.

    Returns
    -------
    Tally
        `Records` in memory, an `Engine`, or `BasketRecords`.

    Raises
    ------
    InputError
        If arguments contradict each other, or categories cannot be inferred.
    PolicyMismatch
        If the records state that they were disguised under a different policy.
    UnknownValue
        If a value is not a category.

    Warns
    -----
    MasqueradeWarning
        If records do not state how they were disguised and no truth explains their reports.

    Examples
    --------
    >>> source = mq.tally(mq.data.students())
    >>> [table] = source.answer([mq.Query(by="pills", where={"exams": "many"})])
    >>> print(table.summary())
    pills: 2 cells, n = 600
    pills  count  stderr  lower  upper
       no  210.0    11.7  187.7  233.4
      yes   90.0     8.8   74.2  108.5
    (95% intervals)
    >>> policy = mq.data.students_policy()
    >>> mq.tally(mq.disguise(mq.data.students(), policy), policy).schema["pills"].categories
    ('yes', 'no')
    """
    policy = None if policy is None else policy_of(policy)
    if isinstance(data, Baskets):
        return _basket_tally(data, policy, [schema, weights, counts, id])
    if policy is not None and schema is not None:
        raise InputError("Pass 'policy' for disguised records or 'schema' for clear records, not both.")
    options: dict[str, Any] = {"schema": schema, "weights": weights, "id": id, "watch": watch}
    options["accept_incomplete"] = accept_incomplete
    if counts is not None:
        if weights or id or growing or engine not in {"auto", "memory"}:
            raise InputError("'counts' are for rows in memory, without 'weights', 'id' and 'growing'.")
        options["counts"], engine = counts, "memory"
    if opener := opener_of(data, engine):
        more = {"growing": growing} if growing else {}
        return opener(data, policy, **options, **more)  # type: ignore[no-any-return]  # a plug-in's Tally
    data = scanned_files(data) or data
    if _is_path(data) and not is_duckdb_file(data):
        with open_batches(data, []) as files:
            return _tally_of(files, policy, engine=engine, growing=growing, **options)
    return _tally_of(data, policy, engine=engine, growing=growing, **options)


def _tally_of(
    data: Any,
    policy: Policy | None,
    *,
    schema: Schema | Policy | None,
    weights: str | None,
    counts: str | None = None,
    id: str | None,  # noqa: A002  (the word users know)
    engine: str,
    watch: Watch | None,
    accept_incomplete: bool,
    growing: bool | str,
) -> Records | Engine:
    """Return the source of a frame, of opened files or of a table."""
    found = table_of(data, watch=watch) or stream_of(data) or data
    if policy is None and schema is None:
        policy = carried_policy(said_by(found))
    used, fields, said = _how_to_read(found, policy, schema, [weights, counts, id])
    if isinstance(found, Batches):
        found.tell_missing(missing_texts_of(fields))
    missing = missing_from(said, accepted=accept_incomplete)
    released = policy is not None
    table = (
        growing_table(found, growing, engine=engine, watch=watch)
        if growing
        else table_for(found, used, engine=engine, watch=watch)
    )
    unmarked = released and "policy" not in said
    if table is None:
        is_plain = weights is None and counts is None and id is None
        records = (
            late_records(found, used, fields, missing=missing, released=released)
            if engine == "auto" and is_plain
            else None
        ) or read_records(
            found,
            used,
            fields,
            weights=weights,
            counts=counts,
            person=id,
            released=released,
            missing=missing,
        )
        records.unmarked = unmarked
        return records
    source = Engine(table, used, fields, weights=weights, released=released, missing=missing)
    source.unmarked = unmarked
    if id is not None:
        source.check_once(id)
    return source


def opener_of(data: Any, engine: str) -> Callable[..., Any] | None:
    """Return the plug-in function that opens the data, or None for built-in sources.

    An opener takes the data and the keyword arguments of `tally` except `engine`. It returns a `Tally`.
    """
    if engine not in ENGINES:
        name = engine
    elif isinstance(data, str):
        name = data.partition(":")[0] if ":" in data and not Path(data).exists() else ""
    else:
        name = type(data).__module__.partition(".")[0]
    if not isinstance(name, str) or name in OURS or name not in plugins("sources"):
        return None

    def opened(data: Any, policy: Policy | None, **options: Any) -> Any:
        source = load_plugin("sources", name)(data, policy, **options)
        if not isinstance(source, Tally):
            raise plugins("sources")[name].make_error(
                f"it returned a {type(source).__name__}, which is not a Tally"
            )
        return source

    return opened


def _is_path(data: Any) -> bool:
    if isinstance(data, (list, tuple)):
        return bool(data) and all(isinstance(item, (str, Path)) for item in data)
    return isinstance(data, (str, Path))


def _basket_tally(baskets: Baskets, policy: Policy | None, others: Sequence[object]) -> BasketRecords:
    """Return baskets as a source. They have no columns other than items."""
    if any(other is not None for other in others):
        raise InputError("Baskets have items only: 'schema', 'weights' and 'id' do not apply.")
    if policy is not None:
        check_policy(policy)
        if baskets.policy_id not in {None, policy.id}:
            raise PolicyMismatch(
                "The baskets were disguised under a different policy: estimates would be wrong."
            )
    elif baskets.policy_id is not None:
        raise PolicyMismatch("The baskets are disguised: pass their 'policy'.")
    return BasketRecords(baskets, policy)


def _how_to_read(
    data: Any, policy: Policy | None, schema: Schema | Policy | None, leave_out: Sequence[str | None]
) -> tuple[Policy, Sequence[Field], Mapping[str, str]]:
    """Return the policy of the records (identity for clear records), the fields, and the metadata."""
    said = check_origin(data, policy)
    if policy is not None:
        return policy, policy.report_fields, said
    known = _inferred_schema(data, leave_out) if schema is None else schema
    used = known.without_channels() if isinstance(known, Policy) else Policy.clear(known)
    return used, used.fields, said


def said_by(data: Any) -> Mapping[str, str]:
    """Return the metadata of data: in a file, next to it, or on a frame."""
    if isinstance(data, SparkFrame):  # its columns name the policy: see `SparkFrame.policies`
        missing = data.missing()
        return {} if missing is None else {INCOMPLETE: missing}
    if isinstance(data, IbisTable):
        return {}  # a database stores no such metadata
    return data.metadata if isinstance(data, (Batches, BatchStream)) else metadata_of(columns_of(data).frame)


def carried_policy(said: Mapping[str, str]) -> Policy | None:
    """Return the policy included in the metadata, or None."""
    if "policy" not in said or POLICY_TEXT not in said:
        return None
    return Policy.from_public_text(said[POLICY_TEXT], said["policy"])


def _is_part(policy: Policy, said: Mapping[str, str]) -> bool:
    """Return True if a policy covers some variables of the policy in the metadata."""
    whole = carried_policy(said)
    if whole is None or not set(policy.schema) <= set(whole.schema):
        return False
    try:
        return whole.select(policy.schema).id == policy.id
    except PolicyError:
        return False


def missing_from(said: Mapping[str, str], *, accepted: bool) -> Missing | None:
    """Return the missing records that the metadata state, or None."""
    return Missing(said[INCOMPLETE], accepted) if INCOMPLETE in said else None


def warn_missing(missing: Missing | None) -> None:
    """Warn of missing records, for functions in which the caller cannot accept them."""
    if missing is not None:
        warnings.warn(f"The records are incomplete: {missing.what}.", MasqueradeWarning, stacklevel=3)


def check_origin(data: Any, policy: Policy | None) -> Mapping[str, str]:
    """Return the metadata of data.

    Raises
    ------
    PolicyMismatch
        If they were disguised under a different policy, or were disguised but should be clear.
    """
    return check_said(said_by(data), policy)


def check_said(said: Mapping[str, str], policy: Policy | None) -> Mapping[str, str]:
    """Return the metadata.

    Raises
    ------
    PolicyMismatch
        If they name a different policy, or any policy where clear records are expected.
    """
    origin = said.get("policy")
    if origin is not None:
        if policy is None:
            raise PolicyMismatch(
                f"The records were disguised under policy {origin[:12]}…: pass it as 'policy'."
            )
        if origin != policy.id and not _is_part(policy, said):
            check_same(origin, policy)
    return said


def _inferred_schema(data: Any, leave_out: Sequence[str | None]) -> Schema:
    from_stream = isinstance(data, Batches) and STREAM in data.paths
    read_once = isinstance(data, BatchStream) and not data.again
    if isinstance(data, (SparkFrame, IbisTable)) or from_stream or read_once:
        where = "standard input" if from_stream else f"a {data.title}" if read_once else data.title
        raise InputError(f"Clear records from {where} need a 'schema' that lists their categories.")
    found: dict[str, dict[Category, None]] = {}
    names = data.file_names if isinstance(data, Batches) else getattr(data, "names", ())
    for chunk in chunks_of(data, names):
        for name in chunk.columns:
            if name in leave_out:
                continue
            values = chunk.columns[name].unique()
            labels = found.setdefault(name, {})
            if pa.types.is_dictionary(values.type):
                values = values.dictionary_decode()
            for value in values.to_pylist():
                if value is None or value != value:  # noqa: PLR0124  (NaN)
                    raise InputError(
                        f"Column {name!r} has missing values: fill them in, omit such records, or "
                        "pass a policy as 'schema' that assigns them a category."
                    )
                labels[category(value)] = None
            if len(labels) > MOST_INFERRED:
                raise InputError(
                    f"Column {name!r} has more than {MOST_INFERRED:,} distinct values: pass a 'schema', "
                    "or omit the column."
                )
    if not found:
        raise InputError("The data contain no records.")
    return Schema({name: sorted(labels, key=lambda v: (str(type(v)), v)) for name, labels in found.items()})


def table_for(
    data: Any, policy: Policy, *, engine: str, watch: Watch | None = None, allowed: int | None = None
) -> Table | None:
    """Return the engine's table to count in: the given one, or large files. None for memory.

    Files are large if their codes take more than `allowed` bytes, by default `largest_in_memory()`.
    """
    if engine not in ENGINES:
        raise InputError(f"The engine must be one of {', '.join(ENGINES)}. Got {engine!r} instead.")
    if not isinstance(data, Batches):
        given = isinstance(data, (SparkFrame, IbisTable))
        if engine == "duckdb" or (engine == "memory" and given):
            raise InputError(f"engine={engine!r} is for files. Frames and tables are counted where they are.")
        return _log_choice(data, "the records stay there") if given else None
    if engine == "duckdb":
        return _log_choice(DuckFiles(data, watch=watch), "asked for", data.paths)
    if engine == "memory" or STREAM in data.paths:
        return None
    needed, most = codes_of(data, policy), largest_in_memory() if allowed is None else allowed
    reason = f"{needed / 2**20:,.0f} MiB of codes, memory is used up to {most / 2**20:,.0f} MiB"
    if needed <= most:
        LOG.info("counting in memory: %s%s", reason, _format_paths(data.paths))
        return None
    return _log_choice(DuckFiles(data, watch=watch), reason, data.paths)


def growing_table(
    data: Any, growing: Literal[True] | str, *, engine: str, watch: Watch | None = None
) -> Table:
    """Return the engine's table of growing files or of a growing table."""
    if engine not in {"auto", "duckdb"}:
        raise InputError("Growing data are counted by DuckDB or in their own engine: omit 'engine'.")
    if isinstance(data, Batches):
        if growing is not True or STREAM in data.paths:
            raise InputError("Files grow by new files: pass a pattern, and growing=True.")
        if data.snapshot is not None:
            raise InputError(
                f"{data.snapshot.title}: a later version may lack records of this one. Omit 'growing', and "
                "open the later version separately."
            )
        return _log_choice(GrowingFiles(data, watch=watch), "it grows", data.paths)
    if not isinstance(data, IbisTable):
        raise InputError(
            "Only files and Ibis tables may grow. A frame is one state of its data: open the next frame "
            "separately."
        )
    if growing is True:
        raise InputError(
            "A growing table needs growing= the name of a column in which later rows have higher numbers."
        )
    return _log_choice(NumberedRows.of(data, growing), "the records stay there")


def _log_choice(table: Table, reason: str, paths: Sequence[str] = ()) -> Table:
    LOG.info("counting in %s: %s%s", table.title, reason, _format_paths(paths))
    return table


def _format_paths(paths: Sequence[str]) -> str:
    """Return the file names for a log line, without any content of the files."""
    more = f" and {len(paths) - 1:,} more" if len(paths) > 1 else ""
    return f" ({paths[0]}{more})" if paths else ""


def codes_of(files: Batches, policy: Policy) -> int:
    """Return the largest number of bytes that the records can take in memory."""
    rows = files.total_rows
    if rows is None:  # of a CSV file only the size is known
        size = sum(
            Path(path).stat().st_size * (UNPACKED if is_compressed(path) else 1) for path in files.paths
        )
        rows = size // (TEXT_OF_A_VALUE * max(len(files.file_names), 1))
    widths = [np.min_scalar_type(size - 1).itemsize for size in policy.observed.shape(policy.observed)]
    return rows * max(sum(widths), 1)


def largest_in_memory() -> int:
    """Return the number of bytes of codes that are held in memory by default."""
    return min(LARGEST_IN_MEMORY, free_memory() // SHARE_OF_FREE)


def free_memory() -> int:
    """Return the bytes that this process may still allocate, on the machine or in its control group.

    Cached file pages are released on demand, so they count as free.
    """
    free = kept_free_by_machine()
    try:
        limit = int((CONTROL_GROUP / "memory.max").read_text(encoding="ascii"))
        used = int((CONTROL_GROUP / "memory.current").read_text(encoding="ascii"))
        pages = dict(line.split() for line in (CONTROL_GROUP / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # no control group, or no limit
        return free
    return max(min(free, limit - used + int(pages.get("inactive_file", 0))), 0)


def kept_free_by_machine() -> int:
    """Return the bytes that the machine has available."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return 1024 * int(next(line.split()[1] for line in lines if line.startswith("MemAvailable:")))
    except (OSError, StopIteration, ValueError):  # not Linux
        pages = os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0
        return pages * os.sysconf("SC_PAGE_SIZE") // 2 if pages else LARGEST_IN_MEMORY * SHARE_OF_FREE
