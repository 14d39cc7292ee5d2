"""Rows of categories as bytes: which variables are quasi-identifiers, which sensitive; who learns what."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import SchemaError, UnknownValue
from masquerade.core.guarantee import Disclosure, Guarantee
from masquerade.core.schema import Schema, Variable
from masquerade.protocols.k_anonymity.threshold.class_opening import Opening
from masquerade.protocols.k_anonymity.threshold.messages import Rows, Terms


@dataclass(frozen=True)
class Form:
    """What everybody fills in: a schema whose every variable is a quasi-identifier or sensitive.

    Each variable takes as many bytes as its codes need, so rows of one form all have the same length.

    >>> schema = mq.Schema({"zip": ["07029", "07030"], "ill": ["colitis", "stroke"]})
    >>> form = mq.people.Form(schema, quasi=("zip",), sensitive=("ill",))
    >>> quasi, own = form.fill({"zip": "07030", "ill": "stroke"})
    >>> form.terms("spring", k=2).k
    2
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


NOTHING = Fraction(1)
EPOCHS = "there is one epoch only, or people agreed to more: two differ by the rows of whoever came or left"
COLLECTOR, SERVER, MEMBER, DEALER = "collector", "randomness server", "user of the same class", "dealer"


def production_guarantee(terms: Terms, form: Form) -> Guarantee:
    """Return who learns what with a randomness server.

    >>> schema = mq.Schema({"zip": ["07029", "07030"], "ill": ["colitis", "stroke"]})
    >>> form = mq.people.Form(schema, quasi=("zip",), sensitive=("ill",))
    >>> guarantee = mq.people.production_guarantee(form.terms("spring", k=2), form)
    >>> sorted({disclosure.role for disclosure in guarantee.disclosures})
    ['collector', 'randomness server']
    """
    everything = (*form.quasi, *form.sensitive)
    disclosures = [
        Disclosure(COLLECTOR, f"the rows whose quasi-identifier {_often(terms.k)}", everything, None),
        Disclosure(COLLECTOR, f"the sizes of classes below {terms.k}, unnamed,", form.quasi, None),
        Disclosure(SERVER, "who takes part, and nothing", everything, NOTHING),
    ]
    if terms.shown:
        disclosures[1] = Disclosure(COLLECTOR, "the clear values, in all rows,", form.quasi, None)
    return Guarantee(
        tuple(disclosures),
        (
            "collector and randomness server do not collude, and a closed epoch's key is destroyed",
            (
                "each person is enrolled once, and the collector holds no credential: each opens the class "
                "of one quasi-identifier of its holder's choice to whoever has the reports"
            ),
            (
                "each person sends one report: whoever belongs to a class knows its secret and can open it "
                "for the collector with reports it made up"
            ),
            "reports reach the collector through something that hides their senders",
            EPOCHS,
            "k-anonymity hides a row among k, not what all of a class have in common",
        ),
        {COLLECTOR: "malicious", SERVER: "malicious", "user": "semi-honest"},
        0,
        ((COLLECTOR, SERVER), (COLLECTOR, MEMBER)),
        None,
        "detects",  # reports carry no names, and bad shares in classes that stay closed are unseen
    )


def faithful_guarantee(k: int, quasi: tuple[str, ...], sensitive: tuple[str, ...]) -> Guarantee:
    """Return who learns what with a dealer: colluding users lower k for every class, not only their own.

    >>> print(mq.people.faithful_guarantee(5, ("zip",), ("ill",)).summary().splitlines()[0])
    collector learns the rows whose quasi-identifier occurs at least 5 times, of zip, ill: no bound
    """
    enough = -(-k // 2)
    return Guarantee(
        (
            Disclosure(COLLECTOR, f"the rows whose quasi-identifier {_often(k)}", (*quasi, *sensitive), None),
            Disclosure(COLLECTOR, "the clear values, in all rows,", quasi, None),
            Disclosure(DEALER, "nothing, but with the collector's reports everything", sensitive, NOTHING),
        ),
        (
            "the dealer draws a fresh polynomial for each epoch, forgets it and colludes with nobody",
            (
                f"c users who collude with the collector lower k to {k} − 2c for every class, since each "
                f"holds two points; {enough} such users know the whole polynomial and open everything"
            ),
            EPOCHS,
            "k-anonymity hides a row among k, not what all of a class have in common",
        ),
        {COLLECTOR: "malicious", DEALER: "semi-honest", "user": "malicious"},
        0,
        ((COLLECTOR, DEALER), (COLLECTOR, "user"), (COLLECTOR, f"{enough} user{'' if enough == 1 else 's'}")),
        None,
        "identifies",
    )


def _often(k: int) -> str:
    return f"occurs at least {k} times,"
