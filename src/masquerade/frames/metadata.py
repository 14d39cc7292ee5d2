"""Metadata: short texts stored with data, such as the id of the policy under which the data was disguised."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from masquerade.core.errors import FileError, InputError
from masquerade.core.util.frame_marks import ATTRIBUTE, OWN, PREFIX
from masquerade.core.util.json_text import parse_json, read_text
from masquerade.frames.formats import sidecars_of

_LABEL, _CATEGORIES, _MISSING = b"label", b"categories", b"missing"
MEMO = "memo"  # the key of the id of the memo that drew the reports
POLICY_TEXT = "policy_text"  # the key of the policy itself, as JSON
MOST_POLICY_TEXT = 1 << 20  # most bytes of a policy that is stored with records; a larger policy is not
MOST_SIDECAR = 1 << 22  # most bytes of the metadata file of a CSV
INCOMPLETE = "incomplete"  # the key of a text that states which records are missing (not at random)


def is_frame(data: Any, library: str, *types: str) -> bool:
    """Return True if data has one of these types of a library, without importing the library.

    >>> is_frame([1, 2], "pandas", "DataFrame")
    False
    """
    module = sys.modules.get(library)
    return module is not None and isinstance(data, tuple(getattr(module, name, ()) for name in types))


def is_pandas_frame(data: Any) -> bool:
    """Return True if data is a pandas data frame."""
    return is_frame(data, "pandas", "DataFrame")


def is_polars_frame(data: Any) -> bool:
    """Return True if data is a Polars data frame that is not lazy."""
    return is_frame(data, "polars", "DataFrame")


def is_polars_lazy(data: Any) -> bool:
    """Return True if data is a Polars lazy frame."""
    return is_frame(data, "polars", "LazyFrame")


def is_dask_frame(data: Any) -> bool:
    """Return True if data is a Dask frame of pandas partitions."""
    return is_frame(data, "dask.dataframe", "DataFrame")


def metadata_of(frame: Any) -> dict[str, str]:
    """Return the metadata that `with_metadata` stored on a frame, or on the frame that a series came from.

    A Polars frame stores it as an attribute, which frames derived from it lack.

    >>> metadata_of(with_metadata(pa.table({"a": [1]}), {"policy": "b1946ac9"}))
    {'policy': 'b1946ac9'}
    """
    if isinstance(frame, (pa.Table, pa.RecordBatch)):
        return schema_metadata(frame.schema)
    written = None
    if is_frame(frame, "pandas", "DataFrame", "Series"):
        written = frame.attrs.get(ATTRIBUTE)
    elif is_polars_frame(frame):
        written = getattr(frame, OWN, None)
    return dict(written) if isinstance(written, Mapping) else {}


def with_metadata(frame: Any, metadata: Mapping[str, str]) -> Any:
    """Return a copy of the frame with this metadata instead of earlier masquerade metadata."""
    if isinstance(frame, (pa.Table, pa.RecordBatch)):
        return frame.replace_schema_metadata(with_schema_metadata(frame.schema, metadata).metadata)
    if is_pandas_frame(frame):
        marked = frame.copy(deep=False)
        marked.attrs = {**foreign_attributes(frame), **({ATTRIBUTE: dict(metadata)} if metadata else {})}
        return marked
    if is_polars_frame(frame):
        own = frame.clone()
        setattr(own, OWN, dict(metadata))
        return own
    return frame


def schema_metadata(schema: pa.Schema) -> dict[str, str]:
    """Return the masquerade metadata of an Arrow schema."""
    return {
        key.removeprefix(PREFIX).decode(errors="replace"): text.decode(errors="replace")
        for key, text in (schema.metadata or {}).items()
        if key.startswith(PREFIX)
    }


def with_schema_metadata(schema: pa.Schema, metadata: Mapping[str, str]) -> pa.Schema:
    """Return an Arrow schema with exactly these texts as masquerade metadata; other metadata is kept."""
    ours = {PREFIX + key.encode(): text.encode() for key, text in metadata.items()}
    return schema.with_metadata(foreign_metadata(schema) | ours)


def describe_column(column: pa.Field, label: str, categories: Sequence[str]) -> pa.Field:
    """Return a column with its label and its categories in order as metadata."""
    return column.with_metadata({_LABEL: label.encode(), _CATEGORIES: json.dumps(list(categories)).encode()})


def description_of(column: pa.Field) -> tuple[str, list[str]]:
    """Return the label and categories that `describe_column` stored on a column; empty if it stored none."""
    said = column.metadata or {}
    return said.get(_LABEL, b"").decode(), json.loads(said.get(_CATEGORIES, b"[]"))


def mark_missing(column: pa.Field, labels: Sequence[str]) -> pa.Field:
    """Return a column whose metadata names the labels of missing values."""
    metadata = dict(column.metadata or {})
    return column.with_metadata(metadata | {_MISSING: json.dumps(list(labels)).encode()})


def missing_of(column: pa.Field) -> list[str]:
    """Return the labels that `mark_missing` stored on a column; empty if it stored none."""
    labels: list[str] = json.loads((column.metadata or {}).get(_MISSING, b"[]"))
    return labels


def foreign_metadata(schema: pa.Schema) -> dict[bytes, bytes]:
    """Return the metadata of an Arrow schema that is not masquerade's."""
    return {key: text for key, text in (schema.metadata or {}).items() if not key.startswith(PREFIX)}


def foreign_attributes(frame: Any) -> dict[Any, Any]:
    """Return the attributes of a pandas frame that are not masquerade's."""
    return {key: value for key, value in frame.attrs.items() if key != ATTRIBUTE}


def stdin_metadata() -> dict[str, str]:
    """Return the metadata next to the file that standard input was redirected from; a pipe has none."""
    try:
        given = Path(f"/proc/self/fd/{sys.stdin.buffer.fileno()}").readlink()
    except (OSError, ValueError):  # not a file, or the system does not provide its path
        return {}
    return read_sidecar(given) if given.is_file() else {}


def read_sidecar(path: str | Path) -> dict[str, str]:
    """Return the metadata stored next to a CSV, its link target, or its uncompressed file."""
    sidecar = next((found for found in sidecars_of(path) if found.exists()), None)
    if sidecar is None:
        return {}
    try:
        found = parse_json(read_text(sidecar, most=MOST_SIDECAR), most=MOST_SIDECAR)
    except FileError:
        raise
    except InputError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
        raise FileError(f"{sidecar}: this is not the metadata that masquerade writes next to a CSV file.")
    return found
