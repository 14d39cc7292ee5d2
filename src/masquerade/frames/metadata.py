"""Small texts that travel with data, such as the id of the policy it was disguised under."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from narwhals import dependencies

from masquerade.core.util.frame_marks import ATTRIBUTE, OWN, PREFIX

_LABEL, _CATEGORIES = b"label", b"categories"
MEMO = "memo"  # the key of the id of the memo that drew the reports
POLICY_TEXT = "policy_text"  # the key of the policy itself, as JSON
MOST_POLICY_TEXT = 1 << 20  # bytes of it that travel with records; a larger one stays where it is
INCOMPLETE = "incomplete"  # the key of a text that says which records are missing, not at random


def metadata_of(frame: Any) -> dict[str, str]:
    """Return what `with_metadata` wrote on a frame, or on the one that a pandas series was taken from.

    A Polars frame carries it itself; frames made from that one do not.

    >>> metadata_of(with_metadata(pa.table({"a": [1]}), {"policy": "b1946ac9"}))
    {'policy': 'b1946ac9'}
    """
    if isinstance(frame, (pa.Table, pa.RecordBatch)):
        return schema_metadata(frame.schema)
    written = None
    if dependencies.is_pandas_dataframe(frame) or dependencies.is_pandas_series(frame):
        written = frame.attrs.get(ATTRIBUTE)
    elif dependencies.is_polars_dataframe(frame):
        written = getattr(frame, OWN, None)
    return dict(written) if isinstance(written, Mapping) else {}


def with_metadata(frame: Any, metadata: Mapping[str, str]) -> Any:
    """Return the frame with these texts instead of earlier ones of ours; the given frame is left alone."""
    if isinstance(frame, (pa.Table, pa.RecordBatch)):
        return frame.replace_schema_metadata(with_schema_metadata(frame.schema, metadata).metadata)
    if dependencies.is_pandas_dataframe(frame):
        marked = frame.copy(deep=False)
        marked.attrs = {**foreign_attributes(frame), **({ATTRIBUTE: dict(metadata)} if metadata else {})}
        return marked
    if dependencies.is_polars_dataframe(frame):
        own = frame.clone()
        setattr(own, OWN, dict(metadata))
        return own
    return frame


def schema_metadata(schema: pa.Schema) -> dict[str, str]:
    """Return the texts under our prefix in an Arrow schema."""
    return {
        key.removeprefix(PREFIX).decode(errors="replace"): text.decode(errors="replace")
        for key, text in (schema.metadata or {}).items()
        if key.startswith(PREFIX)
    }


def with_schema_metadata(schema: pa.Schema, metadata: Mapping[str, str]) -> pa.Schema:
    """Return an Arrow schema with exactly these texts under our prefix, others kept."""
    ours = {PREFIX + key.encode(): text.encode() for key, text in metadata.items()}
    return schema.with_metadata(foreign_metadata(schema) | ours)


def described(column: pa.Field, label: str, categories: Sequence[str]) -> pa.Field:
    """Return a column that says what it is about and in which order its categories stand."""
    return column.with_metadata({_LABEL: label.encode(), _CATEGORIES: json.dumps(list(categories)).encode()})


def description_of(column: pa.Field) -> tuple[str, list[str]]:
    """Return what `described` wrote on a column: its label and categories, empty where it says nothing."""
    said = column.metadata or {}
    return said.get(_LABEL, b"").decode(), json.loads(said.get(_CATEGORIES, b"[]"))


def foreign_metadata(schema: pa.Schema) -> dict[bytes, bytes]:
    """Return the metadata of an Arrow schema that is not ours."""
    return {key: text for key, text in (schema.metadata or {}).items() if not key.startswith(PREFIX)}


def foreign_attributes(frame: Any) -> dict[Any, Any]:
    """Return the attributes of a pandas frame that are not ours."""
    return {key: value for key, value in frame.attrs.items() if key != ATTRIBUTE}
