"""What a convener and a party say around a protocol's own messages: small JSON objects, read strictly."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import Field, ValidationError

from masquerade.core.util.json_text import parse_json
from masquerade.crypto.errors import DecodingError
from masquerade.services.common.settings import Strict
from masquerade.services.parties.session import SessionSpec

EPOCH_SIZE = 16
M = TypeVar("M", bound=Strict)


class InEpoch(Strict):
    """A message of a session, in an epoch of it.

    Nothing more is said where linking is done and records are to be settled, and where a session ends.
    """

    epoch: str = Field(pattern=r"^[0-9a-f]{32}$")


class Begin(InEpoch):
    """A session is to begin, or to go on, in an epoch."""

    spec: SessionSpec


class Begun(Strict):
    """A party takes part: the policy of its variables, signed, and whether its records are still linked.

    Or the session has `ended` here, in this very epoch.
    """

    policy: dict[str, Any] | None
    linked: bool
    signature: str = ""
    ended: bool = False


class Settled(Strict):
    """How many records take part, and the digest of their pseudonyms, signed."""

    records: int
    alignment: str = Field(pattern=r"^[0-9a-f]{64}$")
    signature: str = ""


class Arrange(InEpoch):
    """What everybody's variables are, and which records take part, each signed by its party."""

    policies: dict[str, dict[str, Any]]
    signatures: dict[str, str]
    records: int = Field(0, ge=0)
    alignment: str = Field("", pattern=r"^([0-9a-f]{64})?$")
    aligned: dict[str, str] = Field(default_factory=dict)


class Learn(InEpoch):
    """Learn own nodes: their parents by K2 in an order, or their parameters in a structure.

    Or count tables of columns: own ones, and others' reports.
    """

    order: tuple[str, ...] | None = None
    max_parents: int = Field(3, ge=0, le=10)
    structure: dict[str, tuple[str, ...]] | None = None
    tables: tuple[tuple[str, ...], ...] | None = None


class Learnt(Strict):
    """What a party found out about its own nodes, parents or parameters; or `counts`, table by table."""

    nodes: dict[str, Any]


class Share(InEpoch):
    """The model that was learnt, for everybody."""

    model: dict[str, Any]


class Ledger(Strict):
    """The end of a member's release ledger, as it signed it."""

    end: str = Field(max_length=400)


class Witness(InEpoch):
    """An end of a member's ledger that the convener has seen, with the convener's signature.

    At the beginning of a session it is the last one seen: a ledger without it was rolled back.
    """

    end: str = Field(max_length=400)
    signature: str = Field(pattern=r"^[0-9a-f]{128}$")


class Done(Strict):
    """Nothing more to say."""


def encode(message: Strict) -> bytes:
    """Return a message as JSON."""
    return message.model_dump_json().encode()


def decode(data: bytes, kind: type[M]) -> M:
    """Read a message; what is not one is a `DecodingError` that says where, never what it was."""
    try:
        return kind.model_validate(parse_json(data))
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise DecodingError(f"The message is wrong at {place or 'its top'}: {first['msg']}.") from None
    except (ValueError, RecursionError):
        raise DecodingError("The message is no JSON object.") from None
