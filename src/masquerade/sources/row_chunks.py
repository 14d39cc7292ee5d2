"""What a caller gave, as some rows at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from masquerade.core.errors import UnknownValue
from masquerade.core.schema import Field
from masquerade.frames.files import open_batches
from masquerade.frames.label_codes import encode
from masquerade.frames.native import columns_of


class Chunk(NamedTuple):
    """Some rows: columns as Arrow, whether all are text (CSV), the file, and its rows before these."""

    columns: Mapping[str, Any]
    text: bool
    file: str | None
    before: int


def chunks(data: Any, names: Sequence[str] | None) -> Iterator[Chunk]:
    """Yield the rows of a frame at once, of files batch by batch; only the named columns of files."""
    if not is_path(data):
        yield Chunk(columns_of(data), text=False, file=None, before=0)
        return
    with open_batches(data, names) as batches:
        for batch in batches:
            columns = {name: batch[name] for name in batch.schema.names}
            yield Chunk(columns, batches.text, batches.file, batches.rows_before)


def is_path(data: Any) -> bool:
    """Tell paths from frames."""
    if isinstance(data, (list, tuple)):
        return bool(data) and all(isinstance(item, (str, Path)) for item in data)
    return isinstance(data, (str, Path))


def first_unknown(data: Any, error: UnknownValue, field: Field, *, text: bool) -> UnknownValue:
    """Return the error about the first unknown value of a column, in the files' own order."""
    name = field.variable.name
    for chunk in chunks(data, [name]):
        try:
            encode(chunk.columns[name], field, text=text)
        except UnknownValue as found:
            return found.shifted(chunk.before, chunk.file)
    return error
