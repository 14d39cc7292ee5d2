"""`mq.tally`: a source of counts from what the caller has.

What fits easily is counted in memory, in an engine what does not or what lies there already.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from masquerade.channels.policy import Policy, check_policy, policy_of
from masquerade.core.errors import (
    InputError,
    MasqueradeWarning,
    PolicyError,
    PolicyMismatch,
    UnknownValue,
    ValueProblem,
)
from masquerade.core.schema import Category, Field, Schema, category
from masquerade.core.tally import Tally
from masquerade.core.util.plugins import load_plugin, plugins
from masquerade.frames.baskets import Baskets
from masquerade.frames.file_reader import Batches, open_batches
from masquerade.frames.formats import STREAM, is_compressed
from masquerade.frames.label_codes import encode_columns
from masquerade.frames.metadata import INCOMPLETE, POLICY_TEXT, metadata_of
from masquerade.frames.native import columns_of
from masquerade.sources.baskets import BasketRecords
from masquerade.sources.engines.coded_rows import joined
from masquerade.sources.engines.duckdb_files import DuckFiles
from masquerade.sources.engines.engine import Engine, check_same, refuse_repeated
from masquerade.sources.engines.engine_tables import IbisTable, SparkFrame, Table, Watch, table_of
from masquerade.sources.engines.growing import GrowingFiles, NumberedRows
from masquerade.sources.records import Records
from masquerade.sources.report_tally import Missing

LOG = logging.getLogger("masquerade.sources")
ENGINES: Final = ("auto", "memory", "duckdb")
LARGEST_IN_MEMORY: Final = 1 << 26  # bytes of codes: 64 MiB, some 6 million records of ten variables
SHARE_OF_FREE: Final = 8  # and never more than this part of the memory that is free
TEXT_OF_A_VALUE: Final = 2  # bytes that a value takes in a CSV file, at least: a letter and a comma
UNPACKED: Final = 100  # bytes of CSV in a byte of a compressed one, at most, unless rows repeat in order
CONTROL_GROUP: Final = Path("/sys/fs/cgroup")
MOST_INFERRED: Final = 1000
# packages whose objects we count ourselves
OURS = frozenset({"", "builtins", "ibis", "masquerade", "pandas", "pathlib", "polars", "pyarrow", "pyspark"})


@overload
def tally(data: Baskets, policy: Policy | str | Path | None = None) -> BasketRecords: ...


@overload
def tally(
    data: Any,
    policy: Policy | str | Path | None = None,
    *,
    schema: Schema | Policy | None = None,
    weights: str | None = None,
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
    id: str | None = None,  # noqa: A002  (the word users know)
    engine: str = "auto",
    watch: Watch | None = None,
    accept_incomplete: bool = False,
    growing: bool | str = False,
) -> Records | Engine | BasketRecords:
    """Return a source that answers counts about records: a frame, files, a table in an engine, or baskets.

    Files are paths or patterns like ``people/*.parquet``, or what `open_batches` opened; each is opened once.
    A table is an Ibis table or a Spark data frame.

    With a `policy` (or its path), `data` are records disguised by it; files that we disguised carry it along
    and need none. Without one they are clear; their categories come from `schema` (or the variables of a
    policy), and only if none is given from the data themselves.
    `weights` names a column of survey weights; `id` names the person, and a person's second record is
    refused, since repeated records would make the standard errors too small.

    `engine` says where files are counted: "memory", "duckdb" (out of core), or "auto", which takes memory
    for what fits easily and logs its choice (logger ``masquerade.sources``). `watch` is called with the
    share of a scan that is done (None if unknown), while an engine scans. A source that another package
    brings (entry point group ``masquerade.sources``) opens what it is named for: `engine` of its name, a text
    that begins with its name and a colon, or an object of a package of its name.

    Data that keep coming are `growing`: True for files of a pattern, to which files are added; for a table
    the column that numbers its rows, or has their times, so that later ones have higher ones. The source
    answers about what it found; its `refreshed()` is one about what is there then, and scans only what is
    new.

    Data that do not say how they were disguised warn, once, where no truth explains their reports: clear
    data taken for disguised. Data that say that records are missing, not at random, refuse every question
    with the code ``incomplete``, unless you say `accept_incomplete`: answers are then about the records that
    are there.

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
        return _basket_tally(data, policy, [schema, weights, id])
    if policy is not None and schema is not None:
        raise InputError("Give 'policy' for disguised records or 'schema' for clear ones, not both.")
    options: dict[str, Any] = {"schema": schema, "weights": weights, "id": id, "watch": watch}
    options["accept_incomplete"] = accept_incomplete
    if opener := opener_of(data, engine):
        more = {"growing": growing} if growing else {}
        return opener(data, policy, **options, **more)  # type: ignore[no-any-return]  # a stranger's Tally
    if _is_path(data):
        with open_batches(data, []) as files:
            return _tally_of(files, policy, engine=engine, growing=growing, **options)
    return _tally_of(data, policy, engine=engine, growing=growing, **options)


def _tally_of(
    data: Any,
    policy: Policy | None,
    *,
    schema: Schema | Policy | None,
    weights: str | None,
    id: str | None,  # noqa: A002  (the word users know)
    engine: str,
    watch: Watch | None,
    accept_incomplete: bool,
    growing: bool | str,
) -> Records | Engine:
    """Return the source of a frame, of opened files or of a table."""
    found = table_of(data, watch=watch) or data
    if policy is None and schema is None:
        policy = carried_policy(said_by(found))
    used, fields, said = _how_to_read(found, policy, schema, [weights, id])
    missing = missing_from(said, accepted=accept_incomplete)
    released = policy is not None
    table = (
        growing_table(found, growing, engine=engine, watch=watch)
        if growing
        else table_for(found, used, engine=engine, watch=watch)
    )
    unmarked = released and "policy" not in said
    if table is None:
        records = _records_of(
            found, used, fields, weights=weights, person=id, released=released, missing=missing
        )
        records.unmarked = unmarked
        return records
    source = Engine(table, used, fields, weights=weights, released=released, missing=missing)
    source.unmarked = unmarked
    if id is not None:
        source.check_once(id)
    return source


def _records_of(
    data: Any,
    policy: Policy,
    fields: Sequence[Field],
    *,
    weights: str | None,
    person: str | None,
    released: bool,
    missing: Missing | None,
) -> Records:
    extra = [name for name in (weights, person) if name is not None]
    parts: dict[str, list[Any]] = {name: [] for name in (*policy.observed, *extra)}
    problems: list[ValueProblem] = []
    for chunk in _chunks(data, list(parts)):
        # labels of several types are released as text, whatever the file
        spelled = [chunk.text or (released and field.variable.mixed) for field in fields]
        try:
            for name, column in encode_columns(chunk.columns, fields, text=spelled).items():
                parts[name].append(column)
            if weights is not None:
                parts[weights].append(_numbers(chunk, weights))
            if person is not None:
                parts[person].append(chunk.columns[person])
        except UnknownValue as error:
            problems += error.shifted(chunk.before, chunk.file).problems
    if problems:
        raise UnknownValue.of(problems)
    if person is not None:
        _check_once(parts[person], person)
    codes = {name: joined(parts[name], np.uint8) for name in policy.observed}
    weighing = None if weights is None else joined(parts[weights], np.float64)
    return Records(codes, policy, weighing, missing=missing)


def opener_of(data: Any, engine: str) -> Callable[..., Any] | None:
    """Return what opens data that another package brings a source for; None for ours.

    An opener takes the data and, by name, what `tally` takes beside `engine`; it returns a `Tally`.
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
            raise plugins("sources")[name].refused(f"it gives a {type(source).__name__}, which is no Tally")
        return source

    return opened


def _is_path(data: Any) -> bool:
    if isinstance(data, (list, tuple)):
        return bool(data) and all(isinstance(item, (str, Path)) for item in data)
    return isinstance(data, (str, Path))


class _Chunk(NamedTuple):
    """Some rows: columns as Arrow, whether all are text (CSV), the file, and its rows before these."""

    columns: Mapping[str, Any]
    text: bool
    file: str | None
    before: int


def _chunks(data: Any, names: Sequence[str]) -> Iterator[_Chunk]:
    """Yield the rows of a frame at once, of files batch by batch; only the named columns of files."""
    if not isinstance(data, Batches):
        yield _Chunk(columns_of(data), text=False, file=None, before=0)
        return
    for batch in data.select(names):
        columns = {name: batch[name] for name in batch.schema.names}
        yield _Chunk(columns, data.text, data.file, data.rows_before)


def _basket_tally(baskets: Baskets, policy: Policy | None, others: Sequence[object]) -> BasketRecords:
    """Return baskets as a source; they have no columns beside their items."""
    if any(other is not None for other in others):
        raise InputError("Baskets are read by their items: 'schema', 'weights' and 'id' do not apply.")
    if policy is not None:
        check_policy(policy)
        if baskets.policy_id not in {None, policy.id}:
            raise PolicyMismatch("The baskets were disguised under another policy: estimates would be wrong.")
    elif baskets.policy_id is not None:
        raise PolicyMismatch("The baskets are disguised: give their 'policy'.")
    return BasketRecords(baskets, policy)


def _how_to_read(
    data: Any, policy: Policy | None, schema: Schema | Policy | None, leave_out: Sequence[str | None]
) -> tuple[Policy, Sequence[Field], Mapping[str, str]]:
    """Return the policy of the records (for clear ones: none disguised), the fields, and what data say."""
    said = check_origin(data, policy)
    if policy is not None:
        return policy, [Field(variable) for variable in policy.observed.variables], said
    known = _inferred_schema(data, leave_out) if schema is None else schema
    used = known.undisguised() if isinstance(known, Policy) else Policy.clear(known)
    return used, used.fields, said


def said_by(data: Any) -> Mapping[str, str]:
    """Return the texts that travel with data: in a file, beside it, or on a frame."""
    if isinstance(data, SparkFrame):  # its columns say which policy, see `SparkFrame.policies`
        missing = data.missing()
        return {} if missing is None else {INCOMPLETE: missing}
    if isinstance(data, IbisTable):
        return {}  # a database has no place for such words
    return data.metadata if isinstance(data, Batches) else metadata_of(columns_of(data).frame)


def carried_policy(said: Mapping[str, str]) -> Policy | None:
    """Return the policy that disguised data carry along, None if they do not."""
    if "policy" not in said or POLICY_TEXT not in said:
        return None
    return Policy.from_public_text(said[POLICY_TEXT], said["policy"])


def _is_part(policy: Policy, said: Mapping[str, str]) -> bool:
    """Tell whether a policy is that of some variables of the one that data carry along."""
    whole = carried_policy(said)
    if whole is None or not set(policy.schema) <= set(whole.schema):
        return False
    try:
        return whole.select(policy.schema).id == policy.id
    except PolicyError:
        return False


def missing_from(said: Mapping[str, str], *, accepted: bool) -> Missing | None:
    """Return what data say is missing, None if they do not."""
    return Missing(said[INCOMPLETE], accepted) if INCOMPLETE in said else None


def warn_missing(missing: Missing | None) -> None:
    """Warn of records that are missing, where there is nobody to be asked whether that is accepted."""
    if missing is not None:
        warnings.warn(f"The records are incomplete: {missing.what}.", MasqueradeWarning, stacklevel=3)


def check_origin(data: Any, policy: Policy | None) -> Mapping[str, str]:
    """Return what data say of themselves.

    Those that were disguised under another policy, or at all where clear ones are due, are refused.
    """
    return check_said(said_by(data), policy)


def check_said(said: Mapping[str, str], policy: Policy | None) -> Mapping[str, str]:
    """Return what data say of themselves, unless that is another policy, or one where clear ones are due."""
    origin = said.get("policy")
    if origin is not None:
        if policy is None:
            raise PolicyMismatch(
                f"The records were disguised under policy {origin[:12]}…: give it as 'policy'."
            )
        if origin != policy.id and not _is_part(policy, said):
            check_same(origin, policy)
    return said


def _inferred_schema(data: Any, leave_out: Sequence[str | None]) -> Schema:
    from_stream = isinstance(data, Batches) and STREAM in data.paths
    if isinstance(data, (SparkFrame, IbisTable)) or from_stream:
        where = "standard input" if from_stream else data.title
        raise InputError(f"Clear records from {where} need a 'schema' that lists their categories.")
    found: dict[str, dict[Category, None]] = {}
    for chunk in _chunks(data, data.file_names if isinstance(data, Batches) else ()):
        for name in chunk.columns:
            if name in leave_out:
                continue
            values = pc.unique(chunk.columns[name])
            labels = found.setdefault(name, {})
            if pa.types.is_dictionary(values.type):
                values = values.dictionary_decode()
            for value in values.to_pylist():
                if value is None or value != value:  # noqa: PLR0124  (NaN)
                    raise InputError(
                        f"Column {name!r} has missing values: fill them in or leave such records out, or "
                        "give a policy as 'schema' that says what they stand for."
                    )
                labels[category(value)] = None
            if len(labels) > MOST_INFERRED:
                raise InputError(
                    f"Column {name!r} has more than {MOST_INFERRED:,} different values: give a 'schema', "
                    "or leave the column out."
                )
    if not found:
        raise InputError("The data have no records.")
    return Schema({name: sorted(labels, key=lambda v: (str(type(v)), v)) for name, labels in found.items()})


def _numbers(chunk: _Chunk, name: str) -> NDArray[np.float64]:
    try:
        column = pc.cast(chunk.columns[name], pa.float64())
    except pa.ArrowInvalid:
        raise InputError(f"Column {name!r} holds survey weights and must be numbers.") from None
    if column.null_count:
        raise UnknownValue(name, pc.index(pc.is_null(column), value=True).as_py() + 1, "is missing")
    return np.asarray(column.to_numpy(), dtype=np.float64)


def _check_once(parts: Sequence[Any], name: str) -> None:
    arrays = [
        chunk for part in parts for chunk in (part.chunks if isinstance(part, pa.ChunkedArray) else [part])
    ]
    everyone = pa.chunked_array(arrays) if arrays else pa.chunked_array([pa.array([], pa.string())])
    refuse_repeated(len(everyone) - pc.count_distinct(everyone, mode="all").as_py(), name)


def table_for(
    data: Any, policy: Policy, *, engine: str, watch: Watch | None = None, allowed: int | None = None
) -> Table | None:
    """Return the engine's table to count in: the one given, or files if they are large; None for memory.

    Files are large whose codes take more bytes than `allowed`, by default `largest_in_memory()`.
    """
    if engine not in ENGINES:
        raise InputError(f"The engine must be one of {', '.join(ENGINES)}. Got {engine!r} instead.")
    if not isinstance(data, Batches):
        given = isinstance(data, (SparkFrame, IbisTable))
        if engine == "duckdb" or (engine == "memory" and given):
            raise InputError(f"engine={engine!r} is for files; a frame or table is counted where it lies.")
        return _chosen(data, "the records stay there") if given else None
    if engine == "duckdb":
        return _chosen(DuckFiles(data, watch=watch), "asked for", data.paths)
    if engine == "memory" or STREAM in data.paths:
        return None
    needed, most = codes_of(data, policy), largest_in_memory() if allowed is None else allowed
    reason = f"{needed / 2**20:,.0f} MiB of codes, memory is used up to {most / 2**20:,.0f} MiB"
    if needed <= most:
        LOG.info("counting in memory: %s%s", reason, _named(data.paths))
        return None
    return _chosen(DuckFiles(data, watch=watch), reason, data.paths)


def growing_table(
    data: Any, growing: Literal[True] | str, *, engine: str, watch: Watch | None = None
) -> Table:
    """Return the engine's table of files that arrive, or of rows that are added."""
    if engine not in {"auto", "duckdb"}:
        raise InputError("Data that grow are counted by DuckDB or where they lie: leave 'engine' out.")
    if isinstance(data, Batches):
        if growing is not True or STREAM in data.paths:
            raise InputError("Files grow by other files: give a pattern, and growing=True.")
        return _chosen(GrowingFiles(data, watch=watch), "it grows", data.paths)
    if not isinstance(data, IbisTable):
        raise InputError(
            "Files and Ibis tables may grow; a frame is one state of its data: open the next one by itself."
        )
    if growing is True:
        raise InputError(
            "A table grows by a column: growing= its name; later rows have higher numbers there."
        )
    return _chosen(NumberedRows.of(data, growing), "the records stay there")


def _chosen(table: Table, reason: str, paths: Sequence[str] = ()) -> Table:
    LOG.info("counting in %s: %s%s", table.title, reason, _named(paths))
    return table


def _named(paths: Sequence[str]) -> str:
    """Return which files a line of the log is about; of what is in them it says nothing."""
    more = f" and {len(paths) - 1:,} more" if len(paths) > 1 else ""
    return f" ({paths[0]}{more})" if paths else ""


def codes_of(files: Batches, policy: Policy) -> int:
    """Return how many bytes the records would take in memory, at most."""
    rows = files.total_rows
    if rows is None:  # a CSV file: only its size is known
        size = sum(
            Path(path).stat().st_size * (UNPACKED if is_compressed(path) else 1) for path in files.paths
        )
        rows = size // (TEXT_OF_A_VALUE * max(len(files.file_names), 1))
    widths = [np.min_scalar_type(size - 1).itemsize for size in policy.observed.shape(policy.observed)]
    return rows * max(sum(widths), 1)


def largest_in_memory() -> int:
    """Return how many bytes of codes are held without asking."""
    return min(LARGEST_IN_MEMORY, free_memory() // SHARE_OF_FREE)


def free_memory() -> int:
    """Return the bytes that this process may still take: of the machine, or of its control group.

    Pages that only keep files at hand are given back when asked for, so they count as free.
    """
    free = kept_free_by_machine()
    try:
        limit = int((CONTROL_GROUP / "memory.max").read_text(encoding="ascii"))
        used = int((CONTROL_GROUP / "memory.current").read_text(encoding="ascii"))
        pages = dict(line.split() for line in (CONTROL_GROUP / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # no control group, or one without a limit
        return free
    return max(min(free, limit - used + int(pages.get("inactive_file", 0))), 0)


def kept_free_by_machine() -> int:
    """Return the bytes that the machine has for new work."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return 1024 * int(next(line.split()[1] for line in lines if line.startswith("MemAvailable:")))
    except (OSError, StopIteration, ValueError):  # another system than Linux
        pages = os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0
        return pages * os.sysconf("SC_PAGE_SIZE") // 2 if pages else LARGEST_IN_MEMORY * SHARE_OF_FREE
