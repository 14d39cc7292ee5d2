"""Normalized keys of records, for texts in plain ASCII."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from masquerade.kernels.jit import compiled

Texts: TypeAlias = tuple[NDArray[np.uint8], NDArray[np.signedinteger[Any]]]  # bytes, and the offsets of rows


@compiled
def ascii_forms(texts: Texts, lead: int, most: int, into: Texts, left: NDArray[np.int64]) -> int:
    """Write each text in lower case, stripped, with runs of white space as one space.

    Each text is preceded by its length, in `lead` bytes. Rows that are not ASCII, or would be empty or longer
    than `most` bytes, are listed in `left` and are not written. Return the number of these rows.
    """
    (data, offsets), (out, ends) = texts, into
    at, others = 0, 0
    for row in range(len(ends) - 1):
        begin, gap, plain = at + lead, False, True
        to = begin
        for i in range(offsets[row], offsets[row + 1]):
            byte = data[i]
            if byte >= 128:
                plain = False
                break
            if byte == 32 or 9 <= byte <= 13 or 28 <= byte <= 31:
                gap = True
                continue
            if gap and to > begin:
                out[to] = 32
                to += 1
            gap = False
            out[to] = byte + 32 if 65 <= byte <= 90 else byte
            to += 1
        size = to - begin
        if plain and 0 < size <= most:
            for i in range(lead):
                out[at + i] = (size >> (8 * (lead - 1 - i))) & 255
            at = to
        else:
            left[others] = row
            others += 1
        ends[row + 1] = at
    return others


@compiled
def merge_rows(texts: Texts, others: Texts, rows: NDArray[np.int64], into: Texts) -> None:
    """Write texts, replacing those of `rows` (in order) by texts from a second list."""
    (data, offsets), (more, more_offsets), (out, ends) = texts, others, into
    at, place = 0, 0
    for row in range(len(ends) - 1):
        if place < len(rows) and rows[place] == row:
            size = more_offsets[place + 1] - more_offsets[place]
            out[at : at + size] = more[more_offsets[place] : more_offsets[place + 1]]
            place += 1
        else:
            size = offsets[row + 1] - offsets[row]
            out[at : at + size] = data[offsets[row] : offsets[row + 1]]
        at += size
        ends[row + 1] = at
