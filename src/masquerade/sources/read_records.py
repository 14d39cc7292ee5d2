"""Records in memory: frames and files converted to codes, in one pass or column by column."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError, UnknownValue, ValueProblem
from masquerade.core.schema import Field
from masquerade.frames.file_reader import Batches, open_batches
from masquerade.frames.formats import Format, format_of
from masquerade.frames.label_codes import encode_columns
from masquerade.frames.native import columns_of
from masquerade.frames.streams import BatchStream
from masquerade.sources.engines.coded_rows import join_parts
from masquerade.sources.engines.engine import refuse_repeated
from masquerade.sources.late_codes import LateCodes
from masquerade.sources.records import Records, whole_numbers
from masquerade.sources.report_tally import Missing

LEAST_LATE: Final = 100_000  # rows from which the columns of a file are read only when a query needs them


def read_records(
    data: Any,
    policy: Policy,
    fields: Sequence[Field],
    *,
    weights: str | None,
    counts: str | None,
    person: str | None,
    released: bool,
    missing: Missing | None,
) -> Records:
    """Read records into memory."""
    numeric = [name for name in (weights, counts) if name is not None]
    parts = _read_columns(data, fields, numeric, [] if person is None else [person], released=released)
    if person is not None:
        _check_once(parts[person], person)
    codes = {name: join_parts(parts[name], np.uint8) for name in policy.observed}
    if counts is not None:
        times = whole_numbers(join_parts(parts[counts], np.float64), counts)
        codes = {name: np.repeat(column, times) for name, column in codes.items()}
    weighing = None if weights is None else join_parts(parts[weights], np.float64)
    return Records(codes, policy, weighing, missing=missing)


def late_records(
    data: Any, policy: Policy, fields: Sequence[Field], *, released: bool, missing: Missing | None
) -> Records | None:
    """Return records whose columns are read when queries need them.

    None unless the data are large Parquet files, which are stored by column. Files that changed before a
    column is read raise `DataChanged`.
    """
    rows = data.total_rows if isinstance(data, Batches) else None
    if rows is None or rows < LEAST_LATE or policy.stratum_variable is not None:
        return None
    if data.table is not None or any(format_of(path) is not Format.PARQUET for path in data.paths):
        return None
    names = list(policy.observed)
    data.select(names)  # a missing column is detected now
    paths, state = data.paths, data.state

    def read(columns: Sequence[str]) -> dict[str, NDArray[Any]]:
        state.check()
        with open_batches(paths, columns) as files:
            some = [field for field in fields if field.variable.name in columns]
            parts = _read_columns(files, some, [], [], released=released)
        state.check()
        return {name: join_parts(parts[name], np.uint8) for name in columns}

    return Records(LateCodes(names, rows, read), policy, missing=missing)


def _read_columns(
    data: Any, fields: Sequence[Field], numeric: Sequence[str], others: Sequence[str], *, released: bool
) -> dict[str, list[Any]]:
    """Return codes, numbers and other columns by name, in parts; unknown values are raised as one error."""
    coded = [field.variable.name for field in fields]
    parts: dict[str, list[Any]] = {name: [] for name in (*coded, *numeric, *others)}
    problems: list[ValueProblem] = []
    for chunk in chunks_of(data, list(parts)):
        # labels of mixed types are released as text in all file formats
        spelled = [chunk.text or (released and field.variable.mixed) for field in fields]
        try:
            for name, column in encode_columns(chunk.columns, fields, text=spelled).items():
                parts[name].append(column)
            for name in numeric:
                parts[name].append(_numbers(chunk, name))
            for name in others:
                parts[name].append(chunk.columns[name])
        except UnknownValue as error:
            problems += error.shift_rows(chunk.before, chunk.file).problems
    if problems:
        raise UnknownValue.of(problems)
    return parts


class Chunk(NamedTuple):
    """Some rows: Arrow columns, whether all are text (CSV), the file, and the number of rows before them."""

    columns: Mapping[str, Any]
    text: bool
    file: str | None
    before: int


def chunks_of(data: Any, names: Sequence[str]) -> Iterator[Chunk]:
    """Yield a frame as one chunk, or files batch by batch with only the named columns."""
    if isinstance(data, BatchStream):
        before = 0
        for batch in data.batches(names):
            yield Chunk({name: batch[name] for name in names}, text=False, file=None, before=before)
            before += len(batch)
        return
    if not isinstance(data, Batches):
        yield Chunk(columns_of(data), text=False, file=None, before=0)
        return
    for batch in data.select(names, coded=names):
        columns = {name: batch[name] for name in batch.schema.names}
        yield Chunk(columns, data.text, data.file, data.rows_before)


def _numbers(chunk: Chunk, name: str) -> NDArray[np.float64]:
    try:
        column = chunk.columns[name].cast(pa.float64())
    except pa.ArrowInvalid:
        raise InputError(f"Column {name!r} has survey weights or counts, and must be numeric.") from None
    if column.null_count:
        raise UnknownValue(name, column.is_null().index(True).as_py() + 1, "is missing")
    return np.asarray(column.to_numpy(), dtype=np.float64)


def _check_once(parts: Sequence[Any], name: str) -> None:
    arrays = [
        chunk for part in parts for chunk in (part.chunks if isinstance(part, pa.ChunkedArray) else [part])
    ]
    everyone = pa.chunked_array(arrays) if arrays else pa.chunked_array([pa.array([], pa.string())])
    refuse_repeated(len(everyone) - len(everyone.unique()), name)
