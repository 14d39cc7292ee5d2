"""Rows of quasi-identifiers and sensitive variables as bytes, and the disclosures of threshold reporting."""

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
from masquerade.core.guarantee import (
    CLASS_MEMBER,
    COLLECTOR,
    DEALER,
    RANDOMNESS_SERVER,
    Disclosure,
    Guarantee,
)
from masquerade.core.schema import Schema, Variable
from masquerade.protocols.k_anonymity.threshold.class_opening import Opening
from masquerade.protocols.k_anonymity.threshold.messages import Rows, ThresholdTerms


@dataclass(frozen=True)
class Form:
    """The form of a row: a schema whose variables are quasi-identifiers or sensitive.

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

    def terms(self, epoch: str, k: int, *, shown: bool = False) -> ThresholdTerms:
        """Return the terms of an epoch in which this form is filled in.

        Parameters
        ----------
        epoch : str
            Name of the epoch.
        k : int
            Least size of a class that opens.
        shown : bool, optional
            Whether the collector sees all quasi-identifiers in clear.

        Returns
        -------
        ThresholdTerms
        """
        sizes = (_width(self._variables(self.quasi)), _width(self._variables(self.sensitive)))
        return ThresholdTerms(epoch, k, *sizes, shown, self.digest)

    @cached_property
    def digest(self) -> bytes:
        """Return the SHA-256 of the form; it is part of the terms, so that all people use the same form."""
        variables = [[v.name, [[type(c).__name__, c] for c in v.categories]] for v in self.schema.variables]
        text = json.dumps([variables, self.quasi, self.sensitive], ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(text.encode()).digest()

    def fill(self, row: Mapping[str, object]) -> tuple[bytes, bytes]:
        """Return the quasi-identifier and the sensitive part of a row of labels."""
        return self._encode(self.quasi, row), self._encode(self.sensitive, row)

    def readable(self, rows: Rows) -> NDArray[np.bool_]:
        """Return True for opened rows that are valid rows of this form."""
        return _in_range(rows.quasi, rows.quasi_length, self._variables(self.quasi)) & _in_range(
            rows.sensitive, rows.sensitive_length, self._variables(self.sensitive)
        )

    def codes(self, opening: Opening) -> dict[str, NDArray[np.unsignedinteger[Any]]]:
        """Return the open rows as codes, by variable."""
        if opening.terms.form != self.digest:
            raise SchemaError("The rows belong to a different form.")
        quasi = _columns(opening.quasi, self._variables(self.quasi))
        sensitive = _columns(opening.sensitive, self._variables(self.sensitive))
        found = {name: column[opening.class_of] for name, column in quasi.items()} | sensitive
        return {name: np.ascontiguousarray(found[name]) for name in self.schema}

    def _variables(self, names: Sequence[str]) -> list[Variable]:
        return [self.schema[name] for name in names]

    def _encode(self, names: Sequence[str], row: Mapping[str, object]) -> bytes:
        parts = []
        for variable in self._variables(names):
            if variable.name not in row:
                raise SchemaError(f"The row has no value for {variable.name!r}.")
            try:
                code = variable.code(row[variable.name])
            except SchemaError:  # the original error would show the value
                raise UnknownValue(variable.name, None, "is not one of the form's categories") from None
            parts.append(code.to_bytes(_bytes_of(variable), "little"))
        return b"".join(parts)


def _bytes_of(variable: Variable) -> int:
    return 1 if len(variable) <= 2**8 else 2 if len(variable) <= 2**16 else 4


def _width(variables: Sequence[Variable]) -> int:
    return sum(map(_bytes_of, variables))


def _columns(lines: NDArray[np.uint8], variables: Sequence[Variable]) -> dict[str, NDArray[Any]]:
    """Split lines of bytes into one column of codes per variable."""
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
EPOCHS = (
    "there is one epoch only, or people agreed to several: two epochs differ by the people who joined or left"
)


def production_guarantee(terms: ThresholdTerms, form: Form) -> Guarantee:
    """Return the disclosures of threshold reporting with a randomness server.

    Parameters
    ----------
    terms : ThresholdTerms
        Terms of the epoch.
    form : Form
        The form of the rows.

    Returns
    -------
    Guarantee

    Examples
    --------
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
        Disclosure(RANDOMNESS_SERVER, "who takes part, and nothing", everything, NOTHING),
    ]
    if terms.shown:
        disclosures[1] = Disclosure(COLLECTOR, "the clear values, in all rows,", form.quasi, None)
    return Guarantee(
        tuple(disclosures),
        (
            "collector and randomness server do not collude, and a closed epoch's key is destroyed",
            (
                "each person is enrolled once, and the collector has no credential: with a credential, its "
                "owner can open the class of one chosen quasi-identifier to a reader of the reports"
            ),
            (
                "each person sends one report, and the randomness server sends none: the members of a class "
                "know its secret, and the server knows the secret of every class while the epoch is open; "
                "with forged reports, both can open a class for the collector"
            ),
            (
                "reports are not proved: anyone who reaches the collector can forge classes, which is "
                "visible only if two classes have the same quasi-identifier or there are more reports than "
                "evaluations"
            ),
            "reports reach the collector through a proxy or network that hides their senders",
            EPOCHS,
            "k-anonymity hides a row among k rows, but not a value that all rows of a class share",
        ),
        {COLLECTOR: "malicious", RANDOMNESS_SERVER: "malicious", "user": "semi-honest"},
        0,
        ((COLLECTOR, RANDOMNESS_SERVER), (COLLECTOR, CLASS_MEMBER)),
        None,
        "detects",  # reports carry no names, and bad shares in classes that stay closed are unseen
    )


def faithful_guarantee(k: int, quasi: tuple[str, ...], sensitive: tuple[str, ...]) -> Guarantee:
    """Return the disclosures of threshold reporting with a dealer.

    Colluding users lower k for every class, not only their own.

    Parameters
    ----------
    k : int
        Least size of a class that opens.
    quasi, sensitive : tuple of str
        Variables of a row.

    Returns
    -------
    Guarantee

    Examples
    --------
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
            "the dealer draws a new polynomial for each epoch, deletes it and colludes with nobody",
            (
                f"c users who collude with the collector lower k to {k} − 2c for every class, since each "
                f"holds two points; {enough} such users know the whole polynomial and can open everything"
            ),
            EPOCHS,
            "k-anonymity hides a row among k rows, but not a value that all rows of a class share",
        ),
        {COLLECTOR: "malicious", DEALER: "semi-honest", "user": "malicious"},
        0,
        ((COLLECTOR, DEALER), (COLLECTOR, "user"), (COLLECTOR, f"{enough} user{'' if enough == 1 else 's'}")),
        None,
        "identifies",
    )


def _often(k: int) -> str:
    return f"occurs at least {k} times,"
