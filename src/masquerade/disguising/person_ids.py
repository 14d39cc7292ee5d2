"""Normal form of person ids, by which a memo repeats draws.

Two spellings of one id must be one person, otherwise that person is drawn twice. Ids of different persons
must never be merged: their draws would repeat each other, and a report of one person could exclude a value of
the other. So only those spellings are merged that no system distinguishes:

- white space at either end is removed, such as the padding of a fixed-width column;
- text is normalised to Unicode NFC;
- a whole number is represented by its digits, whether it is a number of any type or text: `7.0` equals `7`.

Leading zeros, case, and inner white space are significant: `007` and `7`, `Ann` and `ann` are four persons.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from masquerade.core.errors import UnknownValue

TAG_BYTES = 10
ROWS_AT_ONCE = 2**18
MOST_EXACT = 2**53  # larger integers are not exact in floating point
AS_WRITTEN, NORMAL = 1, 2  # memo formats, by the form of the ids that identify persons
_WHOLE_DECIMAL = r"^(-?(?:0|[1-9][0-9]*))\.0+$"


def normalize_ids(ids: pa.Array, column: str) -> pa.Array:
    """Return the normal forms of ids as texts; raise UnknownValue if an id is missing.

    >>> normalize_ids(pa.array(["7", " 7 ", "7.0", "007"]), "id").to_pylist()
    ['7', '7', '7', '007']
    """
    if pa.types.is_floating(ids.type):
        ids = _exact_numbers(ids, column)
    if not pa.types.is_string(ids.type) and not pa.types.is_large_string(ids.type):
        ids = ids.cast(pa.string())
    texts = pc.utf8_trim_whitespace(pc.utf8_normalize(ids, form="NFC"))
    if pc.any(pc.match_substring(texts, ".")).as_py():
        texts = pc.replace_substring_regex(texts, _WHOLE_DECIMAL, r"\1")
    blank = pc.equal(pc.binary_length(texts), 0)
    if pc.any(blank).as_py():
        row = pc.index(blank, value=True).as_py() + 1
        raise UnknownValue(column, row, "is missing: the memo needs the person's id")
    return texts


def _exact_numbers(ids: pa.Array, column: str) -> pa.Array:
    """Return floating-point ids as whole numbers if all are whole; otherwise as texts."""
    numbers = ids.cast(pa.float64()).to_numpy(zero_copy_only=False)
    beyond = np.flatnonzero(~(np.abs(numbers) < MOST_EXACT))
    if len(beyond):
        raise UnknownValue(
            column,
            int(beyond[0]) + 1,
            "is a floating-point number that cannot hold every digit of an id: read the column as text",
        )
    whole_numbers = np.floor(numbers) == numbers
    if whole_numbers.all():
        return pa.array(numbers.astype(np.int64))
    spelled = zip(numbers.tolist(), whole_numbers.tolist(), strict=True)
    return pa.array([str(int(number)) if is_whole else repr(number) for number, is_whole in spelled])


def person_tags(persons: Any, column: str, key: bytes, form: int = NORMAL) -> NDArray[np.uint8]:
    """Return a keyed tag for every person, from ids in the form that the memo's format requires.

    Raise UnknownValue with the row if an id is missing.
    """
    missing = pc.is_null(persons, nan_is_null=pa.types.is_floating(persons.type))
    if pc.any(missing).as_py():
        row = pc.index(missing, value=True).as_py() + 1
        raise UnknownValue(column, row, "is missing: the memo needs the person's id")
    tags = np.empty((len(persons), TAG_BYTES), dtype=np.uint8)
    for begin in range(0, len(persons), ROWS_AT_ONCE):
        some = persons.slice(begin, ROWS_AT_ONCE)
        try:
            tags[begin : begin + ROWS_AT_ONCE] = _tags_of(
                some.combine_chunks() if isinstance(some, pa.ChunkedArray) else some, column, key, form
            )
        except UnknownValue as error:
            raise error.shift_rows(begin) from None
    return tags


def _tags_of(persons: pa.Array, column: str, key: bytes, form: int) -> NDArray[np.uint8]:
    """Return a keyed tag for every person."""
    from masquerade.crypto.batch_mac import Texts, keyed_tags  # noqa: PLC0415  (only a memo hashes)

    if pa.types.is_dictionary(persons.type):
        try:
            entry_tags: NDArray[np.uint8] = _tags_of(persons.dictionary, column, key, form)[
                persons.indices.to_numpy(zero_copy_only=False)
            ]
        except UnknownValue:  # the invalid id is in a row, or in a dictionary entry that no row uses
            return _tags_of(persons.dictionary_decode(), column, key, form)
        return entry_tags
    ids = persons if form == AS_WRITTEN else normalize_ids(persons, column)
    return keyed_tags(key, Texts.of_column(ids), TAG_BYTES)
