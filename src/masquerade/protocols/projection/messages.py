"""The messages of a projection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.crypto.byte_codec import Reader, Writer
from masquerade.crypto.errors import DecodingError
from masquerade.protocols.codec import (
    MOST_PARTIES,
    SESSION,
    Blob,
    Fields,
    Kind,
    Many,
    Number,
    Text,
)

MOST_NAMES = 1000
MOST_NUMBERS = 2**27
SEALED_SIZE = 200


@dataclass(frozen=True, slots=True)
class FloatsOf:
    """At most so many finite double-precision numbers, little-endian, as one array."""

    most: int

    def write(self, writer: Writer, value: Floats) -> None:
        """Write the numbers with the number of their bytes."""
        writer.varying(np.ascontiguousarray(value, dtype="<f8").tobytes(), 8 * self.most)

    def read(self, reader: Reader) -> Floats:
        """Read the numbers; half a number, or one that is none, is refused."""
        data = reader.varying(8 * self.most)
        if len(data) % 8:
            raise DecodingError("An array of numbers ends inside a number.")
        numbers: NDArray[Any] = np.frombuffer(data, dtype="<f8")
        if not np.all(np.isfinite(numbers)):
            raise DecodingError("An array of numbers holds one that is not finite.")
        return numbers.astype(np.float64, copy=False)


@dataclass(frozen=True, slots=True)
class Deal(Fields):
    """Ask the first owner for a fresh secret, sealed for every other one."""

    session: bytes

    TAG: ClassVar[bytes] = b"masquerade projection deal 1"
    FIELDS: ClassVar = (SESSION,)


@dataclass(frozen=True, slots=True)
class Dealt(Fields):
    """The secret of the owners, sealed for each of the others in the order of the roster."""

    session: bytes
    sealed: tuple[bytes, ...]

    TAG: ClassVar[bytes] = b"masquerade projection dealt 1"
    FIELDS: ClassVar = (SESSION, ("sealed", Many(Blob(SEALED_SIZE), MOST_PARTIES)))


@dataclass(frozen=True, slots=True)
class Take(Fields):
    """Hand the sealed secret to an owner."""

    session: bytes
    sealed: bytes

    TAG: ClassVar[bytes] = b"masquerade projection take 1"
    FIELDS: ClassVar = (SESSION, ("sealed", Blob(SEALED_SIZE)))


@dataclass(frozen=True, slots=True)
class Taken(Fields):
    """An owner has the secret."""

    session: bytes

    TAG: ClassVar[bytes] = b"masquerade projection taken 1"
    FIELDS: ClassVar = (SESSION,)


@dataclass(frozen=True, slots=True)
class Margin(Fields):
    """Ask an owner for the exact table of some of its variables."""

    session: bytes
    names: tuple[str, ...]

    TAG: ClassVar[bytes] = b"masquerade projection margin 1"
    FIELDS: ClassVar = (SESSION, ("names", Many(Text(), MOST_NAMES)))


@dataclass(frozen=True, slots=True)
class Submit(Fields):
    """Ask an owner for its part of a question about `asked`, projected (by a rotation where p is 0)."""

    session: bytes
    asked: tuple[str, ...]
    p: int
    k: int
    trials: int

    TAG: ClassVar[bytes] = b"masquerade projection submit 1"
    FIELDS: ClassVar = (
        SESSION,
        ("asked", Many(Text(), MOST_NAMES)),
        ("p", Number(8)),
        ("k", Number(8)),
        ("trials", Number(4)),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Numbers(Fields):
    """A table, or projected columns one after the other."""

    session: bytes
    values: Floats

    TAG: ClassVar[bytes] = b"masquerade projection numbers 1"
    FIELDS: ClassVar[tuple[tuple[str, Kind[Any]], ...]] = (SESSION, ("values", FloatsOf(MOST_NUMBERS)))
