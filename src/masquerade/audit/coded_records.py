"""Records of a frame or file as codes, with the persons named by a column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError, UnknownValue
from masquerade.core.schema import Field
from masquerade.disguising.person_ids import normalize_ids
from masquerade.frames.file_reader import open_batches
from masquerade.frames.label_codes import encode_columns, missing_texts_of
from masquerade.frames.metadata import metadata_of
from masquerade.frames.native import columns_of

Codes = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CodedRecords:
    """Records as codes by column.

    Attributes
    ----------
    codes : mapping of str to array
        Codes of each column.
    persons : tuple of str, optional
        Person of each row, if a column names them.
    metadata : mapping
        Metadata of the data: the policy and the memo under which they were disguised.
    """

    codes: Mapping[str, Codes]
    persons: tuple[str, ...] | None
    metadata: Mapping[str, str]

    @property
    def rows(self) -> int:
        """Return the number of records."""
        return len(next(iter(self.codes.values())))

    def at(self, rows: Any) -> CodedRecords:
        """Return the records at the given rows, in that order."""
        persons = (
            None if self.persons is None else tuple(self.persons[row] for row in np.asarray(rows).tolist())
        )
        return CodedRecords({name: codes[rows] for name, codes in self.codes.items()}, persons, self.metadata)


def released_records(data: Any, policy: Policy, person: str | None = None) -> CodedRecords:
    """Read disguised records as codes of their reports."""
    return _read(data, policy.report_fields, person, released=True)


def clear_records(data: Any, policy: Policy, person: str | None = None) -> CodedRecords:
    """Read clear records as codes of their categories."""
    return _read(data, policy.fields, person, released=False)


def rows_of_persons(first: CodedRecords, second: CodedRecords) -> tuple[Codes, Codes]:
    """Return the rows of the persons in both, in the same order: the first row of each person."""
    if first.persons is None or second.persons is None:
        raise InputError("Rows are matched by person: name the column that identifies persons.")
    here = {name: row for row, name in reversed(list(enumerate(first.persons)))}
    there = {name: row for row, name in reversed(list(enumerate(second.persons)))}
    both = [(row, there[name]) for name, row in here.items() if name in there]
    first_rows, second_rows = zip(*sorted(both), strict=True) if both else ((), ())
    return np.array(first_rows, dtype=np.int64), np.array(second_rows, dtype=np.int64)


def _read(data: Any, fields: Sequence[Field], person: str | None, *, released: bool) -> CodedRecords:
    names = [field.variable.name for field in fields]
    extra = [] if person is None else [person]
    if not isinstance(data, (str, Path)):
        columns = columns_of(data)
        spelled = [released and field.variable.mixed for field in fields]
        codes = encode_columns(columns, fields, text=spelled)
        persons = None if person is None else _texts(columns[person])
        return CodedRecords(_wide(codes), persons, metadata_of(columns.frame))
    parts: dict[str, list[Any]] = {name: [] for name in names}
    texts: list[str] = []
    with open_batches(data, [*names, *extra]) as batches:
        metadata = batches.tell_missing(missing_texts_of(fields)).metadata
        for batch in batches:
            batch_columns = {name: batch[name] for name in batch.schema.names}
            spelled = [batches.text or (released and field.variable.mixed) for field in fields]
            try:
                for name, column in encode_columns(batch_columns, fields, text=spelled).items():
                    parts[name].append(column)
            except UnknownValue as error:
                raise error.shift_rows(batches.rows_before, batches.file) from None
            if person is not None:
                texts += _texts(batch_columns[person])
    codes = {name: np.concatenate(column) if column else np.zeros(0) for name, column in parts.items()}
    return CodedRecords(_wide(codes), None if person is None else tuple(texts), metadata)


def _wide(codes: Mapping[str, Any]) -> dict[str, Codes]:
    return {name: np.asarray(column).astype(np.int64) for name, column in codes.items()}


def _texts(column: Any) -> tuple[str, ...]:
    """Return ids as a memo stores them, equal for all file formats. A missing id is ""."""
    ids = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    there = ids.drop_null()
    if pa.types.is_dictionary(there.type):
        there = there.dictionary_decode()
    forms = iter(normalize_ids(there, "id").to_pylist()) if len(there) else iter(())
    return tuple("" if missing else next(forms) for missing in ids.is_null().to_pylist())
