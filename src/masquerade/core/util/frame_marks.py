"""How a frame says under which policy it was disguised: names under which texts of ours travel with data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

ATTRIBUTE: Final = "masquerade"  # among the attributes of a pandas frame
OWN: Final = "_masquerade"  # of a Polars frame, which has no place for such texts
PREFIX: Final = b"masquerade."  # in the metadata of an Arrow schema


def policy_mark(frame: Any) -> str | None:
    """Return the id of the policy that a frame says it was disguised under; None if it says nothing."""
    attributes = getattr(frame, "attrs", None)
    said = attributes.get(ATTRIBUTE) if isinstance(attributes, Mapping) else getattr(frame, OWN, None)
    if isinstance(said, Mapping):
        return str(said["policy"]) if "policy" in said else None
    if hasattr(frame, "collect"):  # a lazy frame, whose schema costs
        return None
    written = getattr(getattr(frame, "schema", None), "metadata", None)
    if isinstance(written, Mapping) and PREFIX + b"policy" in written:
        return bytes(written[PREFIX + b"policy"]).decode(errors="replace")
    return None
