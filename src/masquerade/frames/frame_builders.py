"""A frame of the caller's kind from Arrow columns, one function per library.

A column keeps the type it had if that can hold the new values; text is never read as numbers for that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa

from masquerade.frames.metadata import foreign_attributes, foreign_metadata

NewColumns = Mapping[str, "pa.Array | pa.ChunkedArray | None"]


def arrow(frame: Any, columns: NewColumns) -> Any:
    """Return a PyArrow table, or record batch, with these columns."""
    names, schema = list(columns), frame.schema
    arrays = [
        frame.column(name)
        if values is None
        else (_arrow_like(schema.field(name).type, values) if name in schema.names else values)
        for name, values in columns.items()
    ]
    if isinstance(frame, pa.RecordBatch):
        built = pa.RecordBatch.from_arrays([_whole(values) for values in arrays], names=names)
    else:
        built = pa.Table.from_arrays(arrays, names=names)
    return built.replace_schema_metadata(foreign_metadata(schema))


def pandas(frame: Any, columns: NewColumns) -> Any:
    """Return a pandas frame with these columns and the index of `frame`."""
    library = nw.get_native_namespace(frame)
    series = {}
    for name, values in columns.items():
        if values is None:
            series[name] = frame[name]
        else:
            dtype = frame[name].dtype if name in frame.columns else None
            series[name] = _pandas_like(library, dtype, values)
            series[name].index = frame.index
    built = library.DataFrame(series, index=frame.index, columns=list(series), copy=False)
    built.attrs = foreign_attributes(frame)
    return built


def polars(frame: Any, columns: NewColumns) -> Any:
    """Return a Polars frame with these columns."""
    library = nw.get_native_namespace(frame)
    return library.DataFrame(
        [
            frame.get_column(name) if values is None else _polars_like(library, frame, name, values)
            for name, values in columns.items()
        ]
    )


def other(frame: Any, columns: NewColumns) -> Any:
    """Return a frame of any library that narwhals reads."""
    known = nw.from_native(frame, eager_only=True)
    arrays = {
        name: known.get_column(name).to_arrow() if values is None else values
        for name, values in columns.items()
    }
    return nw.from_arrow(pa.table(arrays), backend=known.implementation).to_native()


def _arrow_like(kind: pa.DataType, values: Any) -> Any:
    """Return values in the type the column had, or as they are where it cannot hold them."""
    if _family(kind) != _family(values.type):
        return values
    try:
        if pa.types.is_dictionary(kind) and not pa.types.is_dictionary(values.type):
            return values.cast(kind.value_type).dictionary_encode().cast(kind)
        return values.cast(kind)
    except pa.ArrowException:
        return values


def _pandas_like(library: Any, dtype: Any, values: Any) -> Any:
    """Return values as a pandas series of the dtype the column had, or of a natural one."""
    if isinstance(dtype, library.CategoricalDtype):
        return library.Series(_categorical(library, dtype, values))
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    plain = library.Series(values.to_pandas())
    if dtype == "object":
        return plain.astype(object)
    if dtype is None or plain.dtype == dtype:
        return plain
    if _pandas_family(library, dtype) != _family(values.type):
        return plain
    try:
        cast = plain.astype(dtype)
    except (TypeError, ValueError, OverflowError):
        return plain
    return cast if ((cast == plain) | plain.isna()).all() else plain


def _categorical(library: Any, dtype: Any, values: Any) -> Any:
    """Return a pandas categorical: the old dtype if it lists all the labels, else one of the labels."""
    words = _whole(values if pa.types.is_dictionary(values.type) else values.dictionary_encode())
    places = words.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    labels = words.dictionary.to_pylist()
    listed = {(type(label), label): place for place, label in enumerate(dtype.categories.tolist())}
    moved = [listed.get((type(label), label)) for label in labels]
    if None in moved:
        return library.Categorical.from_codes(places, categories=labels)
    # The last entry serves the missing ones, whose place is -1.
    return library.Categorical.from_codes(np.array([*moved, -1], dtype=np.int64)[places], dtype=dtype)


def _polars_like(library: Any, frame: Any, name: str, values: Any) -> Any:
    """Return values as a Polars series of the dtype the column had, or of a natural one."""
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
    types = pa.types
    if types.is_dictionary(kind):
        return _family(kind.value_type)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "text"
    if types.is_boolean(kind):
        return "truth"
    return "number" if types.is_integer(kind) or types.is_floating(kind) else "other"


def _pandas_family(library: Any, dtype: Any) -> str:
    types = library.api.types
    if types.is_bool_dtype(dtype):
        return "truth"
    if types.is_numeric_dtype(dtype):
        return "number"
    return "text" if types.is_string_dtype(dtype) else "other"


def _polars_family(library: Any, dtype: Any) -> str:
    if dtype in (library.String, library.Categorical, library.Enum):
        return "text"
    if dtype == library.Boolean:
        return "truth"
    return "number" if dtype.is_integer() or dtype.is_float() else "other"
