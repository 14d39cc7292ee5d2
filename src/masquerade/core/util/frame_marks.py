"""Metadata of disguised frames: the keys under which a frame stores its policy's id."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

ATTRIBUTE: Final = "masquerade"  # key in `attrs` of a pandas frame
OWN: Final = "_masquerade"  # attribute of a Polars frame, which has no metadata
PREFIX: Final = b"masquerade."  # prefix of keys in the metadata of an Arrow schema
# marks of disguised columns in files of statistics programs: in the label of the column, and of each value
DISGUISED: Final = "DISGUISED: do not tabulate as it is."
DISGUISED_VALUE: Final = " (disguised)"


def policy_mark(frame: Any) -> str | None:
    """Return the id of the policy that a frame was disguised under; None if the frame does not state it."""
    attributes = getattr(frame, "attrs", None)
    marks = attributes.get(ATTRIBUTE) if isinstance(attributes, Mapping) else getattr(frame, OWN, None)
    if isinstance(marks, Mapping):
        return str(marks["policy"]) if "policy" in marks else None
    if hasattr(frame, "collect"):  # a lazy frame: resolving its schema is expensive
        return None
    metadata = getattr(getattr(frame, "schema", None), "metadata", None)
    if isinstance(metadata, Mapping) and PREFIX + b"policy" in metadata:
        return bytes(metadata[PREFIX + b"policy"]).decode(errors="replace")
    return None
