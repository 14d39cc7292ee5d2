"""What engines and their drivers send, as Arrow batches whose types do not depend on the values in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import pyarrow as pa

from masquerade.sources.sql import sum_type

ROWS: Final = 1 << 16


def streamed_at_once() -> int:
    """Return how many rows PostgreSQL's client takes at a time: a large result is never held whole."""
    from psycopg import capabilities  # noqa: PLC0415

    return 1000 if capabilities.has_stream_chunked() else 1


def fetched(cursor: Any, rows: Iterator[Any], kinds: Mapping[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a database cursor as batches whose types do not depend on the values in them."""
    some = list(islice(rows, ROWS))
    names = [column[0] for column in cursor.description]
    types = [kinds.get(name) or sum_type(name) for name in names]
    while True:
        columns = zip(*some, strict=True) if some else [()] * len(names)
        arrays = [array_of(values, kind) for values, kind in zip(columns, types, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, names)
        some = list(islice(rows, ROWS))
        if not some:
            return


def array_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return values as an array; sums may come as decimals, truth values as 0 and 1."""
    if pa.types.is_floating(kind):
        return pa.array([None if value is None else float(value) for value in values], kind)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return pa.array(values).cast(kind)
    return pa.array(values, kind)


def readable(kind: pa.DataType) -> pa.DataType:
    """Return the type that a column is fetched as: a database's decimals are read as numbers."""
    return pa.float64() if pa.types.is_decimal(kind) else kind


def batches_of(table: pa.Table) -> list[pa.RecordBatch]:
    """Return the batches of a table, at least one, which then says what the columns are."""
    table = table.cast(pa.schema([(field.name, readable(field.type)) for field in table.schema]))
    return table.to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]
