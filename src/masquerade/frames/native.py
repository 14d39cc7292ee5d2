"""The caller's own frames: columns out of them, the same kind of frame back.

pandas and Polars are never imported here: a frame brings its own library along.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import narwhals as nw
import pyarrow as pa
from narwhals import dependencies
from narwhals.exceptions import DuplicateError

from masquerade.core.errors import InputError, SchemaError, UnknownValue, did_you_mean
from masquerade.frames import frame_builders
from masquerade.frames.metadata import metadata_of, with_metadata

__all__ = ["Columns", "columns_of", "metadata_of", "rebuild", "with_metadata"]

_ACCEPTED = "pandas and Polars data frames, PyArrow tables and record batches, and what narwhals reads"


class Columns(Mapping[str, pa.ChunkedArray]):
    """The columns of a frame by name, turned into Arrow when asked for.

    `given` is the caller's frame; `frame` is the same with a lazy frame collected, once.
    """

    __slots__ = ("_names", "frame", "given", "rows")

    def __init__(self, given: Any) -> None:
        self.given, self.frame = given, _collected(given)
        names = _names(self.frame)
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InputError(f"The frame has two columns called {twice!r}.")
        self._names = tuple(name for name in names if isinstance(name, str))
        self.rows = len(self.frame)

    def __getitem__(self, name: str) -> pa.ChunkedArray:
        """Return a column as Arrow; an unknown name is a `SchemaError`."""
        if name not in self._names:
            raise SchemaError(f"There is no column {name!r} in the frame.{did_you_mean(name, self._names)}")
        return _chunked(_arrow(self.frame, name))

    def __contains__(self, name: object) -> bool:
        """Tell whether the frame has such a column."""
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names, in order."""
        return iter(self._names)

    def __len__(self) -> int:
        """Return the number of columns."""
        return len(self._names)


def columns_of(frame: Any) -> Columns:
    """Return the columns of any supported frame; what is no frame is an `InputError`.

    >>> columns_of(pa.table({"smoker": ["yes", "no"]}))["smoker"].to_pylist()
    ['yes', 'no']
    """
    return frame if isinstance(frame, Columns) else Columns(frame)


def rebuild(frame: Any, columns: Mapping[str, pa.Array | pa.ChunkedArray | None]) -> Any:
    """Return a frame of the same kind with exactly these columns, in this order; None keeps one as it is.

    A column keeps its type if that can hold the new values. pandas keeps its index, a Polars lazy frame
    comes back lazy, and other lazy frames as a PyArrow table. `frame` may be the `Columns` of a frame
    (which saves collecting a lazy one twice). What an earlier disguise wrote about the frame is dropped.
    """
    source = columns_of(frame)
    for name in columns:
        if columns[name] is None and name not in source:
            raise SchemaError(f"There is no column {name!r} in the frame.{did_you_mean(name, source)}")
    native = source.frame
    if isinstance(native, (pa.Table, pa.RecordBatch)):
        return frame_builders.arrow(native, columns)
    if dependencies.is_pandas_dataframe(native):
        return frame_builders.pandas(native, columns)
    if dependencies.is_polars_dataframe(native):
        built = frame_builders.polars(native, columns)
        return built.lazy() if dependencies.is_polars_lazyframe(source.given) else built
    return frame_builders.other(native, columns)


def _collected(frame: Any) -> Any:
    """Return an eager frame of the caller's library."""
    if isinstance(frame, (pa.Table, pa.RecordBatch)) or dependencies.is_pandas_dataframe(frame):
        return frame
    try:
        known = nw.from_native(frame)
    except TypeError:
        raise InputError(f"A {type(frame).__name__} is not a frame. Accepted: {_ACCEPTED}.") from None
    except DuplicateError:
        raise InputError("The frame has two columns of the same name.") from None
    if isinstance(known, nw.LazyFrame):
        polars = dependencies.is_polars_lazyframe(frame)
        return known.collect(None if polars else "pyarrow").to_native()
    return frame


def _names(frame: Any) -> list[Any]:
    if isinstance(frame, (pa.Table, pa.RecordBatch)):
        return list(frame.schema.names)
    return list(frame.columns if dependencies.is_pandas_dataframe(frame) else nw.from_native(frame).columns)


def _arrow(frame: Any, name: str) -> pa.Array | pa.ChunkedArray:
    if isinstance(frame, (pa.Table, pa.RecordBatch)):
        return frame.column(name)
    if dependencies.is_pandas_dataframe(frame):
        return _pandas_arrow(frame[name], name)
    return nw.from_native(frame, eager_only=True).get_column(name).to_arrow()


def _pandas_arrow(series: Any, name: str) -> pa.Array | pa.ChunkedArray:
    """Return a pandas column as Arrow; one that mixes types is refused at the first row that differs."""
    try:
        return pa.array(series, from_pandas=True)
    except (pa.ArrowException, OverflowError, UnicodeError):
        pass  # Arrow's message quotes the value: ours is made outside of this block, without its context
    row = _first_of_another_type(series.tolist())
    raise UnknownValue(name, row, "is of another type than those before it, or of one that has no labels")


def _first_of_another_type(values: list[Any]) -> int:
    """Return the first row (from 1) whose type is not that of the rows before it."""
    first = None
    for row, value in enumerate(values, start=1):
        missing = value is None or value != value  # noqa: PLR0124 - NaN, without asking for its type
        if missing:
            continue
        if first is not None and type(value) is not first:
            return row
        first = type(value)
    return 1


def _chunked(values: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    return values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])
