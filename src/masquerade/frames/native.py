"""The caller's data frames: read their columns, and return results as the same type of frame.

pandas and Polars are never imported here: the library of a frame is loaded already. A column keeps its type
if that type can hold the new values; text is never converted to numbers for this.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from masquerade.core.errors import InputError, SchemaError, UnknownValue, did_you_mean
from masquerade.frames.cores import on_all_cores
from masquerade.frames.label_codes import expand_dictionary, kind_of
from masquerade.frames.metadata import (
    foreign_attributes,
    foreign_metadata,
    is_pandas_frame,
    is_polars_frame,
    is_polars_lazy,
)
from masquerade.kernels.take import narrow_codes, rows_with, spread

NewColumns = Mapping[str, "pa.Array | pa.ChunkedArray | None"]
_MOST_NUMBERED = 1 << 16  # with higher category numbers in a Polars column, the numbers are not used as codes
_GLANCE = 1 << 14  # number of first rows in which a row of each category is looked up
_FEW_UNSEEN = 8  # up to this number of categories not found there are searched for one by one in all rows
_ACCEPTED = "pandas and Polars data frames, PyArrow tables and record batches, and what narwhals reads"


class _Columns(Mapping[str, pa.ChunkedArray]):
    """The columns of a frame by name, converted to Arrow on request.

    `given` is the caller's frame; `frame` is the same frame, collected once if it is lazy.
    """

    __slots__ = ("_names", "frame", "given", "rows")

    def __init__(self, given: Any) -> None:
        self.given, self.frame = given, _collect_lazy(given)
        names = _names(self.frame)
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InputError(f"The frame has two columns called {twice!r}.")
        self._names = tuple(name for name in names if isinstance(name, str))
        self.rows = len(self.frame)

    def __getitem__(self, name: str) -> pa.ChunkedArray:
        """Return a column as Arrow; raise `SchemaError` for an unknown name."""
        if name not in self._names:
            raise SchemaError(f"There is no column {name!r} in the frame.{did_you_mean(name, self._names)}")
        values = _arrow(self.frame, name)
        return values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def columns_of(frame: Any) -> _Columns:
    """Return the columns of any supported frame; raise `InputError` for anything else.

    >>> columns_of(pa.table({"smoker": ["yes", "no"]}))["smoker"].to_pylist()
    ['yes', 'no']
    """
    return frame if isinstance(frame, _Columns) else _Columns(frame)


def rebuild(frame: Any, columns: NewColumns) -> Any:
    """Return a frame of the same type with exactly these columns, in this order; None keeps a column.

    A column keeps its type if that type can hold the new values. New values in a dictionary stay coded in
    columns of categories or dictionaries, and become plain values in other columns. A pandas frame keeps its
    index, an Arrow table the metadata of its fields. A Polars lazy frame is returned lazy, other lazy frames
    as a PyArrow table. `frame` may be the `_Columns` of a frame, so that a lazy frame is collected only once.
    Metadata of an earlier disguise is dropped.
    """
    source = columns_of(frame)
    for name in columns:
        if columns[name] is None and name not in source:
            raise SchemaError(f"There is no column {name!r} in the frame.{did_you_mean(name, source)}")
    native = source.frame
    if isinstance(native, (pa.Table, pa.RecordBatch)):
        return _arrow_frame(native, columns)
    if is_pandas_frame(native):
        return _pandas_frame(native, columns)
    if is_polars_frame(native):
        built = _polars_frame(native, columns)
        return built.lazy() if is_polars_lazy(source.given) else built
    return _other_frame(native, columns)


def _collect_lazy(frame: Any) -> Any:
    """Return an eager frame of the caller's library."""
    if isinstance(frame, (pa.Table, pa.RecordBatch)) or is_pandas_frame(frame):
        return frame
    import narwhals as nw  # noqa: PLC0415  (slow to import, and files do not need it)
    from narwhals.exceptions import DuplicateError  # noqa: PLC0415

    try:
        known = nw.from_native(frame)
    except TypeError:
        raise InputError(f"A {type(frame).__name__} is not a frame. Accepted: {_ACCEPTED}.") from None
    except DuplicateError:
        raise InputError("The frame has two columns of the same name.") from None
    if isinstance(known, nw.LazyFrame):
        polars = is_polars_lazy(frame)
        return known.collect(None if polars else "pyarrow").to_native()
    return frame


def _names(frame: Any) -> list[Any]:
    if isinstance(frame, (pa.Table, pa.RecordBatch)):
        return list(frame.schema.names)
    if is_pandas_frame(frame) or is_polars_frame(frame):
        return list(frame.columns)
    return list(_narwhals_frame(frame).columns)


def _arrow(frame: Any, name: str) -> pa.Array | pa.ChunkedArray:
    if isinstance(frame, (pa.Table, pa.RecordBatch)):
        return frame.column(name)
    if is_pandas_frame(frame):
        return _pandas_arrow(frame[name], name)
    if is_polars_frame(frame):
        return _polars_arrow(frame.get_column(name))
    return _narwhals_frame(frame).get_column(name).to_arrow()


def _narwhals_frame(frame: Any) -> Any:
    """Return a frame of another library as a narwhals frame."""
    import narwhals as nw  # noqa: PLC0415  (slow to import, and files do not need it)

    return nw.from_native(frame, eager_only=True)


def _polars_arrow(series: Any) -> pa.Array | pa.ChunkedArray:
    """Return a Polars column as Arrow; Polars' category numbers become codes, so that rows need no lookup."""
    categories = series.dtype.base_type() == sys.modules["polars"].Categorical
    if not categories or not len(series) or series.null_count():
        return series.to_arrow()
    codes, last = narrow_codes(series.to_physical().to_numpy())
    if last >= _MOST_NUMBERED:
        return series.to_arrow()
    labels = _polars_labels(series, codes, last)
    return pa.DictionaryArray.from_arrays(pa.array(codes), labels, safe=False)


def _polars_labels(series: Any, codes: NDArray[Any], last: int) -> pa.Array:
    """Return the labels of Polars' category numbers up to `last`; unused numbers get an arbitrary label.

    All columns of a program share one numbering, so a column may use only a few of the numbers.
    """
    numbers = sys.modules["polars"].Series(np.arange(last + 1)).cast(series.to_physical().dtype)
    if hasattr(numbers.cat, "to"):
        labels = expand_dictionary(_combine_chunks(numbers.cat.to(series.dtype, strict=False).to_arrow()))
        return labels.fill_null(labels[int(codes[0])])
    row = np.full(last + 1, -1, dtype=np.int64)  # for older Polars: the index of a row with each category
    rows_with(codes[:_GLANCE], row)  # usually the first rows contain all of them
    unseen = np.flatnonzero(row < 0)
    if len(unseen) > _FEW_UNSEEN:
        rows_with(codes, row)
    else:
        row[unseen] = [np.argmax(codes == code) for code in unseen]
    return expand_dictionary(_combine_chunks(series[np.maximum(row, 0)].to_arrow()))


def _pandas_arrow(series: Any, name: str) -> pa.Array | pa.ChunkedArray:
    """Return a pandas column as Arrow; for mixed types, raise an error with the first row that differs."""
    try:
        if hasattr(series, "cat") and series.array.codes.min(initial=0) >= 0:  # none is missing: no mask
            labels = pa.array(series.array.categories, from_pandas=True)
            return pa.DictionaryArray.from_arrays(pa.array(series.array.codes), labels, safe=False)
        return pa.array(series, from_pandas=True)
    except (pa.ArrowException, OverflowError, UnicodeError):
        pass  # Arrow's message quotes the value: the error is raised below, without this context
    row = _first_of_another_type(series.tolist())
    raise UnknownValue(name, row, "has a different type from the values before it, or a type without labels")


def _first_of_another_type(values: list[Any]) -> int:
    """Return the first row (from 1) whose type differs from the rows before it."""
    first = None
    for row, value in enumerate(values, start=1):
        missing = value is None or value != value  # noqa: PLR0124 - NaN, without asking for its type
        if missing:
            continue
        if first is not None and type(value) is not first:
            return row
        first = type(value)
    return 1


def _arrow_frame(frame: Any, columns: NewColumns) -> Any:
    """Return a table or record batch with new columns, without metadata of an earlier disguise."""
    names, schema = list(columns), frame.schema

    def column(name: str) -> Any:
        values = columns[name]
        if values is None:
            return frame.column(name)
        return _arrow_like(frame.column(name), values) if name in schema.names else _plain(values)

    arrays = on_all_cores(column, names, rows=len(frame))
    fields = [
        _field_like(schema.field(name) if name in schema.names else None, name, values)
        for name, values in zip(names, arrays, strict=True)
    ]
    described = pa.schema(fields, metadata=foreign_metadata(schema))
    if isinstance(frame, pa.RecordBatch):
        return pa.RecordBatch.from_arrays([_combine_chunks(values) for values in arrays], schema=described)
    return pa.Table.from_arrays(arrays, schema=described)


def _field_like(field: pa.Field | None, name: str, values: Any) -> pa.Field:
    """Return the Arrow field of new values; if the type is unchanged, the column's metadata is kept."""
    if field is None or field.type != values.type:
        return pa.field(name, values.type)
    return field.with_nullable(field.nullable or values.null_count > 0)


def _pandas_frame(frame: Any, columns: NewColumns) -> Any:
    library = sys.modules["pandas"]

    def column(name: str) -> Any:
        values = columns[name]
        if values is None:
            return frame[name]
        series = _pandas_like(library, frame[name].dtype if name in frame.columns else None, values)
        series.index = frame.index
        return series

    series = dict(zip(columns, on_all_cores(column, columns, rows=len(frame)), strict=True))
    built = library.DataFrame(series, index=frame.index, columns=list(series), copy=False)
    if frame.columns.nlevels == 1:
        built.columns.name = frame.columns.name
    built.attrs = foreign_attributes(frame)
    return built


def _polars_frame(frame: Any, columns: NewColumns) -> Any:
    library = sys.modules["polars"]

    def column(name: str) -> Any:
        values = columns[name]
        return frame.get_column(name) if values is None else _polars_like(library, frame, name, values)

    return library.DataFrame(on_all_cores(column, columns, rows=len(frame)))


def _other_frame(frame: Any, columns: NewColumns) -> Any:
    """Return a frame of any library that narwhals reads."""
    import narwhals as nw  # noqa: PLC0415  (slow to import, and files do not need it)

    known = _narwhals_frame(frame)
    arrays = {
        name: known.get_column(name).to_arrow() if values is None else _plain(values)
        for name, values in columns.items()
    }
    return nw.from_arrow(pa.table(arrays), backend=known.implementation).to_native()


def _arrow_like(column: Any, values: Any) -> Any:
    """Return values in the column's original type, or as plain values if that type cannot hold them."""
    kind = column.type
    if _family(kind) != _family(values.type):
        return _plain(values)
    try:
        if not pa.types.is_dictionary(kind):
            return _plain(values).cast(kind)
        return _in_dictionary(
            column, values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
        )
    except pa.ArrowException:
        return _plain(values)


def _in_dictionary(column: Any, values: Any) -> pa.DictionaryArray:
    """Return values as a dictionary of the column's type; its labels keep their order if they suffice."""
    import pyarrow.compute as pc  # noqa: PLC0415  (slow to import)

    kind, words = column.type, _combine_chunks(values)
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    labels = words.dictionary.cast(kind.value_type)
    order = pc.index_in(labels, value_set=chunks[0].dictionary) if chunks else labels.slice(0, 0)
    if len(labels) and len(order) and not order.null_count:
        moved = np.append(order.to_numpy(), 0).astype(kind.index_type.to_pandas_dtype())
        places = np.empty(len(words), dtype=moved.dtype)
        spread(_places(words), moved, places)
        missing = words.is_null().to_numpy(zero_copy_only=False) if words.null_count else None
        indices, labels = pa.array(places, mask=missing), chunks[0].dictionary
    else:
        indices = words.indices.cast(kind.index_type)
    return pa.DictionaryArray.from_arrays(indices, labels, ordered=kind.ordered, safe=False)


def _plain(values: Any) -> Any:
    """Return a column, decoded if it is a dictionary."""
    if not pa.types.is_dictionary(values.type):
        return values
    if isinstance(values, pa.ChunkedArray):
        parts = [expand_dictionary(chunk) for chunk in values.chunks]
        return pa.chunked_array(parts, type=parts[0].type if parts else values.type.value_type)
    return expand_dictionary(values)


def _pandas_like(library: Any, dtype: Any, values: Any) -> Any:
    """Return values as a pandas series of the column's original dtype, or else of a natural dtype."""
    if isinstance(dtype, library.CategoricalDtype):
        return library.Series(_categorical(library, dtype, values), copy=False)
    if dtype == "object":
        return library.Series(_objects(values), dtype=object, copy=False)
    values = _plain(values)
    plain = library.Series(values.to_pandas(), copy=False)
    if dtype is None or plain.dtype == dtype or _pandas_family(library, dtype) != _family(values.type):
        return plain
    try:
        cast = plain.astype(dtype)
    except (TypeError, ValueError, OverflowError):
        return plain
    return cast if ((cast == plain) | plain.isna()).all() else plain


def _objects(values: Any) -> Any:
    """Return values as Python objects; equal labels of a dictionary are one object."""
    if not pa.types.is_dictionary(values.type):
        return values.to_pandas().astype(object)
    words = _combine_chunks(values)
    labels = np.empty(len(words.dictionary) + 1, dtype=object)  # the last entry is for missing values
    labels[:-1] = words.dictionary.to_pylist()
    return labels[_places(words)]


def _categorical(library: Any, dtype: Any, values: Any) -> Any:
    """Return a pandas categorical: of the original dtype if that lists all labels, else of a new dtype.

    In a new dtype, listed labels keep their order and new labels follow.
    """
    words = _combine_chunks(values if pa.types.is_dictionary(values.type) else values.dictionary_encode())
    labels = words.dictionary.to_pylist()
    listed = {(type(label), label): place for place, label in enumerate(dtype.categories.tolist())}
    known = [(type(label), label) for label in labels]
    if not all(label in listed for label in known):
        order = sorted(known, key=lambda label: listed.get(label, len(listed)))
        listed = {label: place for place, label in enumerate(order)}
        dtype = library.CategoricalDtype([label for _, label in order])
    # the last entry is for missing values, whose index is -1
    width = np.min_scalar_type(-len(listed) - 1)  # the same small type that pandas uses
    moved = np.array([*(listed[label] for label in known), -1], dtype=width)
    places = np.empty(len(words), dtype=width)
    spread(_places(words), moved, places)
    # the codes are valid for the dtype, so pandas need not check them again
    return library.Categorical.from_codes(places, dtype=dtype, validate=False)


def _places(words: pa.DictionaryArray) -> Any:
    """Return the index of every row's label; missing values get the index after the last label."""
    indices = words.indices
    if indices.null_count:
        indices = indices.cast(pa.int64()).fill_null(len(words.dictionary))
    return indices.to_numpy()


def _polars_like(library: Any, frame: Any, name: str, values: Any) -> Any:
    """Return values as a Polars series of the column's original dtype, or else of a natural dtype."""
    if pa.types.is_dictionary(values.type):
        words = _combine_chunks(values)
        labels = _polars_like(library, frame, name, words.dictionary)
        if words.null_count:
            return labels.gather(library.Series(words.indices)).alias(name)
        # This takes a third of the time of `gather`. Indices have the width that Polars uses: otherwise it
        # would allocate a copy for every column.
        places = pa.array(words.indices.to_numpy().astype(np.uint32))
        return labels[library.Series(places)].alias(name)
    series = library.Series(name, values)
    dtype = frame.schema.get(name)
    if dtype is None or _polars_family(library, dtype) != _family(values.type):
        return series
    try:
        return series.cast(dtype, strict=True)
    except library.exceptions.PolarsError:
        return series


def _combine_chunks(values: Any) -> Any:
    """Return one array; chunks are joined, and their dictionaries unified."""
    if not isinstance(values, pa.ChunkedArray):
        return values
    joined = values.unify_dictionaries().combine_chunks()
    return joined if isinstance(joined, pa.Array) else pa.concat_arrays(joined.chunks)


def _family(kind: pa.DataType) -> str:
    found = kind_of(kind)
    return "number" if found == "whole" else found


def _pandas_family(library: Any, dtype: Any) -> str:
    types = library.api.types
    if types.is_bool_dtype(dtype):
        return "truth"
    if types.is_numeric_dtype(dtype):
        return "number"
    return "text" if types.is_string_dtype(dtype) else "other"


def _polars_family(library: Any, dtype: Any) -> str:
    if dtype.base_type() in (library.String, library.Categorical, library.Enum):
        return "text"
    if dtype == library.Boolean:
        return "truth"
    return "number" if dtype.is_integer() or dtype.is_float() else "other"
