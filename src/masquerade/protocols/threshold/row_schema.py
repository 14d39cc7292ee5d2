"""Rows of categories as bytes: which variables are quasi-identifiers and which sensitive, in codes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import SchemaError, UnknownValue
from masquerade.core.schema import Schema, Variable
from masquerade.protocols.threshold.class_opening import Opening
from masquerade.protocols.threshold.messages import Terms
from masquerade.protocols.threshold.report_layout import Rows


@dataclass(frozen=True)
class Form:
    """What everybody fills in: a schema whose every variable is a quasi-identifier or sensitive.

    Each variable takes as many bytes as its codes need, so rows of one form all have the same length.
    """

    schema: Schema
    quasi: tuple[str, ...]
    sensitive: tuple[str, ...]

    def __post_init__(self) -> None:
        listed = (*self.quasi, *self.sensitive)
        for name in listed:
            self.schema[name]
        if sorted(listed) != sorted(self.schema):
            raise SchemaError("A form names every variable once, as a quasi-identifier or as sensitive.")
        if not self.quasi or not self.sensitive:
            raise SchemaError("A form has at least one quasi-identifier and one sensitive variable.")

    def terms(self, epoch: str, k: int, *, shown: bool = False) -> Terms:
        """Return the terms of an epoch in which this form is filled in."""
        sizes = (_width(self._variables(self.quasi)), _width(self._variables(self.sensitive)))
        return Terms(epoch, k, *sizes, shown, self.digest)

    @cached_property
    def digest(self) -> bytes:
        """Return the SHA-256 of the form; terms carry it, so that all fill in the same one."""
        variables = [[v.name, [[type(c).__name__, c] for c in v.categories]] for v in self.schema.variables]
        text = json.dumps([variables, self.quasi, self.sensitive], ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(text.encode()).digest()

    def fill(self, row: Mapping[str, object]) -> tuple[bytes, bytes]:
        """Return the quasi-identifier and the sensitive part of a row of labels."""
        return self._encoded(self.quasi, row), self._encoded(self.sensitive, row)

    def readable(self, rows: Rows) -> NDArray[np.bool_]:
        """Tell which opened rows somebody could have filled in on this form."""
        return _in_range(rows.quasi, rows.quasi_length, self._variables(self.quasi)) & _in_range(
            rows.sensitive, rows.sensitive_length, self._variables(self.sensitive)
        )

    def codes(self, opening: Opening) -> dict[str, NDArray[np.unsignedinteger[Any]]]:
        """Return the open rows as codes, by variable."""
        if opening.terms.form != self.digest:
            raise SchemaError("The rows were filled in on another form.")
        quasi = _columns(opening.quasi, self._variables(self.quasi))
        sensitive = _columns(opening.sensitive, self._variables(self.sensitive))
        found = {name: column[opening.class_of] for name, column in quasi.items()} | sensitive
        return {name: np.ascontiguousarray(found[name]) for name in self.schema}

    def _variables(self, names: Sequence[str]) -> list[Variable]:
        return [self.schema[name] for name in names]

    def _encoded(self, names: Sequence[str], row: Mapping[str, object]) -> bytes:
        parts = []
        for variable in self._variables(names):
            if variable.name not in row:
                raise SchemaError(f"The row has no value for {variable.name!r}.")
            try:
                code = variable.code(row[variable.name])
            except SchemaError:  # its words would show the value
                raise UnknownValue(variable.name, None, "is not one of the form's categories") from None
            parts.append(code.to_bytes(_bytes_of(variable), "little"))
        return b"".join(parts)


def _bytes_of(variable: Variable) -> int:
    return 1 if len(variable) <= 2**8 else 2 if len(variable) <= 2**16 else 4


def _width(variables: Sequence[Variable]) -> int:
    return sum(map(_bytes_of, variables))


def _columns(lines: NDArray[np.uint8], variables: Sequence[Variable]) -> dict[str, NDArray[Any]]:
    """Take lines of bytes apart into a column of codes for each variable."""
    columns, at = {}, 0
    for variable in variables:
        size = _bytes_of(variable)
        part = np.ascontiguousarray(lines[:, at : at + size])
        columns[variable.name] = part.view(f"<u{size}").reshape(len(lines))
        at += size
    return columns


def _in_range(
    lines: NDArray[np.uint8], lengths: NDArray[np.int64], variables: Sequence[Variable]
) -> NDArray[np.bool_]:
    good: NDArray[np.bool_] = lengths == _width(variables)
    if lines.shape[1] != _width(variables):
        return np.zeros(len(lines), dtype=np.bool_)
    columns = _columns(lines, variables)
    for variable in variables:
        good &= columns[variable.name] < len(variable)
    return good
