"""Control messages between the convener and the members of a session: small JSON objects, read strictly."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import Field, ValidationError

from masquerade.core.util.json_text import parse_json
from masquerade.crypto.errors import DecodingError
from masquerade.services.common.settings import Strict
from masquerade.services.parties.session import SessionSpec

EPOCH_SIZE = 16  # bytes
M = TypeVar("M", bound=Strict)


class InEpoch(Strict):
    """A message in one epoch of a session.

    Without further fields, the path of the message states the request: to settle the linked records, to sign
    the end of the ledger, or to end or cancel the session.
    """

    epoch: str = Field(pattern=r"^[0-9a-f]{32}$")


class Begin(InEpoch):
    """A request to start or continue a session in an epoch."""

    spec: SessionSpec


class Begun(Strict):
    """The reply to `Begin`: the signed policy of a party's variables, and whether its records are linked.

    `ended` is True if the session has ended here, in the same epoch.
    """

    policy: dict[str, Any] | None
    linked: bool
    signature: str = ""
    ended: bool = False


class Settled(Strict):
    """The number of linked records, and the digest of their pseudonyms, which the party signs."""

    records: int
    alignment: str = Field(pattern=r"^[0-9a-f]{64}$")
    signature: str = ""


class Arrange(InEpoch):
    """The policies of all parties and the records that take part, each signed by its party."""

    policies: dict[str, dict[str, Any]]
    signatures: dict[str, str]
    records: int = Field(0, ge=0)
    alignment: str = Field("", pattern=r"^([0-9a-f]{64})?$")
    aligned: dict[str, str] = Field(default_factory=dict)


class Learn(InEpoch):
    """A request to a party to learn its own nodes, or to count tables.

    With `order`, the party finds the parents of its nodes by K2; with `structure`, the parameters of its
    nodes. With `tables`, it counts tables from its own columns and others' reports.
    """

    order: tuple[str, ...] | None = None
    max_parents: int = Field(3, ge=0, le=10)
    structure: dict[str, tuple[str, ...]] | None = None
    tables: tuple[tuple[str, ...], ...] | None = None


class Learnt(Strict):
    """The reply to `Learn`: parents or parameters by node, or `counts` by table."""

    nodes: dict[str, Any]


class Share(InEpoch):
    """The model, for all members."""

    model: dict[str, Any]


class LedgerEnd(Strict):
    """The end of a member's release ledger (number and hash of its last line), signed by the member."""

    end: str = Field(max_length=400)


class Witness(InEpoch):
    """An end of a member's ledger that the convener has received, with the convener's signature.

    When a session starts, the convener sends the last end that it has received: a ledger that does not
    contain it was rolled back.
    """

    end: str = Field(max_length=400)
    signature: str = Field(pattern=r"^[0-9a-f]{128}$")


class Done(Strict):
    """An acknowledgement."""


def encode(message: Strict) -> bytes:
    """Return a message as JSON."""
    return message.model_dump_json().encode()


def decode(data: bytes, kind: type[M]) -> M:
    """Return the message; raise DecodingError with the position of a problem, never with the value."""
    try:
        return kind.model_validate(parse_json(data))
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise DecodingError(f"The message is wrong at {place or 'its top'}: {first['msg']}.") from None
    except (ValueError, RecursionError):
        raise DecodingError("The message is not a JSON object.") from None
