"""Build key columns from pieces and sort keys; long columns are stored in unnamed scratch files."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from masquerade.core.errors import InputError
from masquerade.core.util.scratch import Scratch, release_pages
from masquerade.protocols.linkage.pseudonyms import ROWS_AT_ONCE, SORTED_AT_ONCE
from masquerade.protocols.linkage.record_keys import is_text

SAMPLED_KEYS = 64  # keys sampled per range, to choose where ranges are cut


class GrowingKeys:
    """A column of keys that arrives in pieces; `missing` counts null keys."""

    def __init__(self, scratch: Scratch) -> None:
        self._ends, self._values, self._others = scratch.column(), scratch.column(), list[pa.Array]()
        self._kind: pa.DataType | None = None
        self.missing = 0

    def append(self, piece: pa.Array | pa.ChunkedArray) -> None:
        """Add keys; raise InputError if their type differs from the type of earlier pieces."""
        for chunk in piece.chunks if isinstance(piece, pa.ChunkedArray) else [piece]:
            keys = chunk.dictionary_decode() if pa.types.is_dictionary(chunk.type) else chunk
            self._kind = keys.type if self._kind is None else self._kind
            if keys.type != self._kind:
                raise InputError(f"The keys are {self._kind} in one file and {keys.type} in another.")
            self.missing += keys.null_count
            if not keys.null_count:
                self._add(keys)

    def _add(self, keys: pa.Array) -> None:
        """Append the values of a piece without nulls, and the end offset of each text."""
        if pa.types.is_integer(keys.type):
            self._values.append(keys.to_numpy())
        elif is_text(keys.type):
            _, ends, values = keys.buffers()
            wide = np.int64 if pa.types.is_large_string(keys.type) else np.int32
            own = np.frombuffer(ends, wide)[keys.offset : keys.offset + len(keys) + 1]
            if not self._ends.rows:
                self._ends.append(np.zeros(1, wide))
            reached = self._values.rows
            if reached + int(own[-1]) - int(own[0]) > np.iinfo(wide).max:
                raise InputError(
                    "The keys take more than 2 GiB: store their column as the Arrow type large_string."
                )
            self._ends.append(own[1:] - own[0] + wide(reached))
            empty = np.empty(0, np.uint8)
            self._values.append(
                empty if values is None else np.frombuffer(values, np.uint8)[own[0] : own[-1]]
            )
        else:
            self._others.append(keys)

    def array(self) -> pa.Array | None:
        """Return all keys, None if no piece was added; no keys may be added afterwards."""
        kind = self._kind
        if kind is None:
            return None
        if not pa.types.is_integer(kind) and not is_text(kind):
            return pa.chunked_array(self._others, kind).combine_chunks()
        values = pa.py_buffer(self._values.array()) if self._values.rows or self._ends.rows else None
        if pa.types.is_integer(kind):
            return pa.Array.from_buffers(kind, self._values.rows, [None, values])
        rows = self._ends.rows - 1
        return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(self._ends.array()), values])


def sorted_keys(keys: pa.Array, scratch: Scratch) -> pa.Array:
    """Return keys in order; long columns are sorted range by range, cut at quantiles of a sample."""
    if len(keys) <= SORTED_AT_ONCE:
        return keys.take(pc.sort_indices(keys))
    found = GrowingKeys(scratch)
    for run in _ranges(keys):
        found.append(run.take(pc.sort_indices(run)))
    return found.array()


def _ranges(keys: pa.Array) -> Iterator[pa.Array]:
    """Yield the keys of each range, in ascending order of ranges."""
    ranges = -(-len(keys) // SORTED_AT_ONCE)
    some = keys.take(pa.array(np.linspace(0, len(keys) - 1, ranges * SAMPLED_KEYS).astype(np.int64)))
    some = some.take(pc.sort_indices(some))
    for low, high in pairwise([None, *(some[part * SAMPLED_KEYS] for part in range(1, ranges)), None]):
        found = []
        for at in range(0, len(keys), ROWS_AT_ONCE):
            part = keys[at : at + ROWS_AT_ONCE]
            if high is not None:
                part = part.filter(pc.less(part, high))
            if low is not None:
                part = part.filter(pc.greater_equal(part, low))
            found.append(pa.concat_arrays([part]))
            release_pages()
        yield pa.concat_arrays(found)
