"""The caller's own frames: columns out of them, the same kind of frame back.

pandas and Polars are never imported here: a frame brings its own library along. A column keeps the type it
had if that can hold the new values; text is never read as numbers for that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from narwhals import dependencies
from narwhals.exceptions import DuplicateError
from numpy.typing import NDArray

from masquerade.core.errors import InputError, SchemaError, UnknownValue, did_you_mean
from masquerade.frames.cores import on_all_cores
from masquerade.frames.label_codes import expanded, kind_of
from masquerade.frames.metadata import foreign_attributes, foreign_metadata
from masquerade.kernels.take import narrowed, rows_with, spread

NewColumns = Mapping[str, "pa.Array | pa.ChunkedArray | None"]
_MOST_NUMBERED = 1 << 16  # categories of all Polars columns together that are taken by their numbers
_GLANCE = 1 << 14  # rows looked at first for one of each category
_FEW_UNSEEN = 8  # categories not among them that are looked for one by one: most often nobody has them
_ACCEPTED = "pandas and Polars data frames, PyArrow tables and record batches, and what narwhals reads"


class _Columns(Mapping[str, pa.ChunkedArray]):
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
        values = _arrow(self.frame, name)
        return values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def columns_of(frame: Any) -> _Columns:
    """Return the columns of any supported frame; what is no frame is an `InputError`.

    >>> columns_of(pa.table({"smoker": ["yes", "no"]}))["smoker"].to_pylist()
    ['yes', 'no']
    """
    return frame if isinstance(frame, _Columns) else _Columns(frame)


def rebuild(frame: Any, columns: NewColumns) -> Any:
    """Return a frame of the same kind with exactly these columns, in this order; None keeps one as it is.

    A column keeps its type if that can hold the new values; categories and dictionaries take new ones that
    come as a dictionary without a look at its labels, and others get them as plain values. pandas keeps its
    index, Arrow the metadata of its fields, a Polars lazy frame comes back lazy, and other lazy frames as a
    PyArrow table. `frame` may be the `_Columns` of a frame (which saves collecting a lazy one twice). What an
    earlier disguise wrote about the frame is dropped.
    """
    source = columns_of(frame)
    for name in columns:
        if columns[name] is None and name not in source:
            raise SchemaError(f"There is no column {name!r} in the frame.{did_you_mean(name, source)}")
    native = source.frame
    if isinstance(native, (pa.Table, pa.RecordBatch)):
        return _arrow_frame(native, columns)
    if dependencies.is_pandas_dataframe(native):
        return _pandas_frame(native, columns)
    if dependencies.is_polars_dataframe(native):
        built = _polars_frame(native, columns)
        return built.lazy() if dependencies.is_polars_lazyframe(source.given) else built
    return _other_frame(native, columns)


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
    if dependencies.is_polars_dataframe(frame):
        return _polars_arrow(frame.get_column(name))
    return nw.from_native(frame, eager_only=True).get_column(name).to_arrow()


def _polars_arrow(series: Any) -> pa.Array | pa.ChunkedArray:
    """Return a Polars column as Arrow; categories as Polars numbers them, without a look at every row."""
    categories = series.dtype.base_type() == nw.get_native_namespace(series).Categorical
    if not categories or not len(series) or series.null_count():
        return series.to_arrow()
    codes, last = narrowed(series.to_physical().to_numpy())
    if last >= _MOST_NUMBERED:
        return series.to_arrow()
    labels = _polars_labels(series, codes, last)
    return pa.DictionaryArray.from_arrays(pa.array(codes), labels, safe=False)


def _polars_labels(series: Any, codes: NDArray[Any], last: int) -> pa.Array:
    """Return what Polars' numbers up to the last stand for; of those that nobody has, any label.

    All columns of a program share their numbers, so that a column has few of them.
    """
    numbers = nw.get_native_namespace(series).Series(np.arange(last + 1)).cast(series.to_physical().dtype)
    if hasattr(numbers.cat, "to"):
        labels = expanded(_whole(numbers.cat.to(series.dtype, strict=False).to_arrow()))
        return labels.fill_null(labels[int(codes[0])])
    row = np.full(last + 1, -1, dtype=np.int64)  # that has the category: Polars below 2
    rows_with(codes[:_GLANCE], row)  # most often the first rows have them all
    unseen = np.flatnonzero(row < 0)
    if len(unseen) > _FEW_UNSEEN:
        rows_with(codes, row)
    else:
        row[unseen] = [np.argmax(codes == code) for code in unseen]
    return expanded(_whole(series[np.maximum(row, 0)].to_arrow()))


def _pandas_arrow(series: Any, name: str) -> pa.Array | pa.ChunkedArray:
    """Return a pandas column as Arrow; one that mixes types is refused at the first row that differs."""
    try:
        if hasattr(series, "cat") and series.array.codes.min(initial=0) >= 0:  # none is missing: no mask
            labels = pa.array(series.array.categories, from_pandas=True)
            return pa.DictionaryArray.from_arrays(pa.array(series.array.codes), labels, safe=False)
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


def _arrow_frame(frame: Any, columns: NewColumns) -> Any:
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
        return pa.RecordBatch.from_arrays([_whole(values) for values in arrays], schema=described)
    return pa.Table.from_arrays(arrays, schema=described)


def _field_like(field: pa.Field | None, name: str, values: Any) -> pa.Field:
    """Return the field of new values: what was said about a column stays if it keeps its type."""
    if field is None or field.type != values.type:
        return pa.field(name, values.type)
    return field.with_nullable(field.nullable or values.null_count > 0)


def _pandas_frame(frame: Any, columns: NewColumns) -> Any:
    library = nw.get_native_namespace(frame)

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
    library = nw.get_native_namespace(frame)

    def column(name: str) -> Any:
        values = columns[name]
        return frame.get_column(name) if values is None else _polars_like(library, frame, name, values)

    return library.DataFrame(on_all_cores(column, columns, rows=len(frame)))


def _other_frame(frame: Any, columns: NewColumns) -> Any:
    """Return a frame of any library that narwhals reads."""
    known = nw.from_native(frame, eager_only=True)
    arrays = {
        name: known.get_column(name).to_arrow() if values is None else _plain(values)
        for name, values in columns.items()
    }
    return nw.from_arrow(pa.table(arrays), backend=known.implementation).to_native()


def _arrow_like(column: Any, values: Any) -> Any:
    """Return values in the type the column had, or as plain ones where it cannot hold them."""
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
    """Return a dictionary column of the type of another, with its labels in their order if they suffice."""
    kind, words = column.type, _whole(values)
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
    """Return values as they are, and those of a dictionary without it."""
    if not pa.types.is_dictionary(values.type):
        return values
    if isinstance(values, pa.ChunkedArray):
        parts = [expanded(chunk) for chunk in values.chunks]
        return pa.chunked_array(parts, type=parts[0].type if parts else values.type.value_type)
    return expanded(values)


def _pandas_like(library: Any, dtype: Any, values: Any) -> Any:
    """Return values as a pandas series of the dtype the column had, or of a natural one."""
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
    """Return values as Python objects; a label of a dictionary is one object, however many rows have it."""
    if not pa.types.is_dictionary(values.type):
        return values.to_pandas().astype(object)
    words = _whole(values)
    labels = np.empty(len(words.dictionary) + 1, dtype=object)  # the last entry serves the missing ones
    labels[:-1] = words.dictionary.to_pylist()
    return labels[_places(words)]


def _categorical(library: Any, dtype: Any, values: Any) -> Any:
    """Return a pandas categorical: the old dtype if it lists all the labels, else one of the labels.

    Labels that were listed keep their order, others follow.
    """
    words = _whole(values if pa.types.is_dictionary(values.type) else values.dictionary_encode())
    labels = words.dictionary.to_pylist()
    listed = {(type(label), label): place for place, label in enumerate(dtype.categories.tolist())}
    known = [(type(label), label) for label in labels]
    if not all(label in listed for label in known):
        order = sorted(known, key=lambda label: listed.get(label, len(listed)))
        listed = {label: place for place, label in enumerate(order)}
        dtype = library.CategoricalDtype([label for _, label in order])
    # The last entry serves the missing ones, whose place is -1.
    width = np.min_scalar_type(-len(listed) - 1)  # as narrow as pandas holds them
    moved = np.array([*(listed[label] for label in known), -1], dtype=width)
    places = np.empty(len(words), dtype=width)
    spread(_places(words), moved, places)
    # Our codes lie within the dtype's: pandas need not look at them again.
    return library.Categorical.from_codes(places, dtype=dtype, validate=False)


def _places(words: pa.DictionaryArray) -> Any:
    """Return the place of every row's label; that of a missing one is past the last label."""
    indices = words.indices
    if indices.null_count:
        indices = indices.cast(pa.int64()).fill_null(len(words.dictionary))
    return indices.to_numpy()


def _polars_like(library: Any, frame: Any, name: str, values: Any) -> Any:
    """Return values as a Polars series of the dtype the column had, or of a natural one."""
    if pa.types.is_dictionary(values.type):
        words = _whole(values)
        labels = _polars_like(library, frame, name, words.dictionary)
        if words.null_count:
            return labels.gather(library.Series(words.indices)).alias(name)
        # A third of the time of `gather`. Places are as wide as Polars wants them: the memory of a copy of
        # its own goes back to the system at once, and every column fetches it anew.
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


def _whole(values: Any) -> Any:
    """Return one array; a chunked one is joined, its dictionaries made one."""
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
