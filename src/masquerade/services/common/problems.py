"""Errors on the wire: a code for programs, one sentence for people, and the same exception on the other side.

::

    MasqueradeError
    ├── NotAdmitted        nobody this service knows, or not with these credentials
    ├── WrongVersion       a protocol version that the other side does not speak
    ├── Busy               too much at once, or stopping; nothing was done, ask again later
    ├── TimedOut           not done yet; the same key brings the reply later
    ├── KeyReused          an idempotency key that was used for another message
    ├── ServiceFailed      something unexpected on the other side, whose log has it
    ├── PartyUnreachable   no answer after all retries
    ├── Ended              a collection that is closed for good; nothing was done
    └── InputError
        ├── TooLarge       a message beyond a limit
        └── NotFound       a place that the service does not have

What arrives is text: it is cut, stripped of control characters, and never evaluated. Errors about a
server's own files and engines, and everything unexpected, cross without their details.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from masquerade.core import errors
from masquerade.core.util.json_text import parse_json
from masquerade.crypto import errors as broken

LONGEST_TEXT = 1000  # characters of a sentence
MOST_ITEMS = 100  # culprits or refusals
LARGEST = 1 << 20  # bytes of an error


class NotAdmitted(errors.MasqueradeError):
    """Nobody this service knows, or not with these credentials."""


class WrongVersion(errors.MasqueradeError):
    """A protocol version that the other side does not speak."""


class Busy(errors.MasqueradeError):
    """Too much at once, or stopping; nothing was done."""


class TimedOut(errors.MasqueradeError):
    """Not done yet; asking again with the same key brings the reply and starts nothing anew."""


class KeyReused(errors.MasqueradeError):
    """An idempotency key that was used for another message."""


class ServiceFailed(errors.MasqueradeError):
    """Something unexpected on the other side."""


class PartyUnreachable(errors.MasqueradeError):
    """No answer after all retries."""


class Ended(errors.MasqueradeError):
    """A collection that is closed for good; nothing was done."""


class TooLarge(errors.InputError):
    """A message beyond a limit."""


class NotFound(errors.InputError):
    """A place that the service does not have."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of error: its code and status; `says` replaces a sentence that is not for others."""

    code: str
    status: int
    says: str | None = None


FAILED = Kind("failed", 500, "Something unexpected happened here; the log of this service has it.")
KINDS: Mapping[type[errors.MasqueradeError], Kind] = {
    broken.DecodingError: Kind("undecodable", 400),
    TooLarge: Kind("too_large", 413),
    NotFound: Kind("not_found", 404),
    errors.PolicyMismatch: Kind("policy_mismatch", 422),
    errors.PolicyError: Kind("policy", 422),
    errors.ChannelError: Kind("channel", 422),
    errors.SchemaError: Kind("schema", 422),
    errors.FileError: Kind("file", 500, "A file of this service cannot be used; its log says which."),
    errors.InputError: Kind("input", 422),
    broken.ProofRejected: Kind("proof_rejected", 422),
    broken.SealBroken: Kind("seal_broken", 422),
    broken.SharesInconsistent: Kind("shares_inconsistent", 422),
    broken.LogOutOfRange: Kind("log_out_of_range", 422),
    errors.NotConverged: Kind("not_converged", 422),
    broken.KeySpent: Kind("key_spent", 409),
    errors.QueryRefused: Kind("query_refused", 409),
    errors.RoundAborted: Kind("round_aborted", 409),
    KeyReused: Kind("key_reused", 409),
    NotAdmitted: Kind("not_admitted", 403),
    WrongVersion: Kind("wrong_version", 426),
    Ended: Kind("ended", 410),
    Busy: Kind("busy", 503),
    TimedOut: Kind("timed_out", 504),
    errors.EngineError: Kind(
        "engine", 500, "The engine that holds the records failed; nothing was answered."
    ),
    ServiceFailed: FAILED,
    errors.MasqueradeError: Kind("refused", 409),
}
TYPES: Mapping[str, type[errors.MasqueradeError]] = {kind.code: type_ for type_, kind in KINDS.items()}
RETRIED = frozenset({502, 503, 504})


def kind_of(error: BaseException) -> Kind:
    """Return the kind of an error: that of the nearest class above it that has one."""
    return next((KINDS[type_] for type_ in type(error).__mro__ if type_ in KINDS), FAILED)


def encode(error: BaseException) -> tuple[int, bytes]:
    """Return the status and the JSON that tell the other side about an error."""
    kind = kind_of(error)
    said: dict[str, Any] = {"error": kind.code, "message": kind.says or _clean(str(error))}
    if isinstance(error, errors.RoundAborted):
        said |= {"spent": error.spent, "culprits": [_clean(name) for name in error.culprits[:MOST_ITEMS]]}
    if isinstance(error, errors.QueryRefused):
        said["refusals"] = [
            {"code": _clean(refusal.code), "reason": _clean(refusal.reason)}
            for refusal in error.refusals[:MOST_ITEMS]
        ]
    return kind.status, json.dumps(said, ensure_ascii=False).encode()


def decode(status: int, content: bytes, *, party: str) -> errors.MasqueradeError:
    """Return the error that the other side meant; what cannot be read becomes `ServiceFailed`."""
    try:
        said = parse_json(content, most=LARGEST)
    except errors.InputError:
        said = None
    if not isinstance(said, dict):
        said = {}
    message, code = said.get("message"), said.get("error")
    type_ = TYPES.get(code) if isinstance(code, str) else None
    if type_ is None or not isinstance(message, str):
        return ServiceFailed(f"Party {party!r} answered with status {status} and nothing that can be read.")
    return _rebuilt(type_, _clean(message), said, party)


def _rebuilt(
    type_: type[errors.MasqueradeError], message: str, said: Mapping[str, Any], party: str
) -> errors.MasqueradeError:
    if type_ is errors.RoundAborted:
        # what is not said counts as spent
        spent = said.get("spent") is not False
        return errors.RoundAborted(message, spent=spent, culprits=_texts(said.get("culprits")))
    if type_ is errors.QueryRefused:
        return errors.QueryRefused(_refusals(said.get("refusals")) or (errors.Refusal("refused", message),))
    if type_ is ServiceFailed:
        return ServiceFailed(f"Party {party!r} failed: {message}")
    return type_(message)


def _refusals(given: object) -> tuple[errors.Refusal, ...]:
    if not isinstance(given, list):
        return ()
    pairs = [(item.get("code"), item.get("reason")) for item in given[:MOST_ITEMS] if isinstance(item, dict)]
    return tuple(
        errors.Refusal(_clean(code), _clean(reason))
        for code, reason in pairs
        if isinstance(code, str) and isinstance(reason, str)
    )


def _texts(given: object) -> tuple[str, ...]:
    if not isinstance(given, list):
        return ()
    return tuple(_clean(text) for text in given[:MOST_ITEMS] if isinstance(text, str))


def _clean(text: str) -> str:
    """Return text without what could command a terminal, and not too much of it."""
    return "".join([c if c.isprintable() else " " for c in text[:LONGEST_TEXT]])
