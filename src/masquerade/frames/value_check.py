"""All that is wrong with the values of files, found in one pass: columns and rows, never a value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from masquerade.core.errors import UnknownValue, ValueProblem
from masquerade.core.schema import Field
from masquerade.frames.label_codes import encode_columns

if TYPE_CHECKING:
    import pyarrow as pa

    from masquerade.frames.file_reader import Batches


def value_problems(
    batches: Batches, stream: Iterator[pa.RecordBatch], fields: Sequence[Field]
) -> Iterator[ValueProblem]:
    """Yield what is wrong with the rest of a stream of these batches; rows are counted in their files."""
    for batch in stream:
        try:
            encode_columns({name: batch[name] for name in batch.schema.names}, fields, text=batches.text)
        except UnknownValue as error:
            yield from error.shifted(batches.rows_before, batches.file).problems
