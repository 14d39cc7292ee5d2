"""The messages of a projection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from masquerade.core.axes import Floats
from masquerade.protocols.codec import MOST_PARTIES, U32, U64, Array, Blob, Many, Name, SessionMessage

MOST_NAMES = 1000
MOST_NUMBERS = 2**27
Sealed = Annotated[bytes, Blob(200)]


@dataclass(frozen=True, slots=True)
class SecretRequest(SessionMessage):
    """Ask the first owner for a fresh secret, sealed for every other one."""

    TAG: ClassVar[bytes] = b"masquerade projection deal 1"


@dataclass(frozen=True, slots=True)
class SealedSecrets(SessionMessage):
    """The secret of the owners, sealed for each of the others in the order of the roster."""

    TAG: ClassVar[bytes] = b"masquerade projection dealt 1"
    sealed: Annotated[tuple[Sealed, ...], Many(MOST_PARTIES)]


@dataclass(frozen=True, slots=True)
class SealedSecret(SessionMessage):
    """Hand the sealed secret to an owner."""

    TAG: ClassVar[bytes] = b"masquerade projection take 1"
    sealed: Sealed


@dataclass(frozen=True, slots=True)
class SecretReceipt(SessionMessage):
    """An owner has the secret."""

    TAG: ClassVar[bytes] = b"masquerade projection taken 1"


@dataclass(frozen=True, slots=True)
class MarginRequest(SessionMessage):
    """Ask an owner for the exact table of some of its variables."""

    TAG: ClassVar[bytes] = b"masquerade projection margin 1"
    names: Annotated[tuple[Name, ...], Many(MOST_NAMES)]


@dataclass(frozen=True, slots=True)
class ProjectionRequest(SessionMessage):
    """Ask an owner for its part of a question about `asked`, projected (by a rotation where p is 0)."""

    TAG: ClassVar[bytes] = b"masquerade projection submit 1"
    asked: Annotated[tuple[Name, ...], Many(MOST_NAMES)]
    p: U64
    k: U64
    trials: U32


@dataclass(frozen=True, slots=True, eq=False)
class Numbers(SessionMessage):
    """A table, or projected columns one after the other."""

    TAG: ClassVar[bytes] = b"masquerade projection numbers 1"
    values: Annotated[Floats, Array("<f8", MOST_NUMBERS)]
