"""Encode errors as messages, with a code and a sentence; the caller raises the same exception again.

::

    MasqueradeError
    ├── NotAdmitted        unknown caller or wrong credentials
    ├── WrongVersion       a protocol version that the other side does not support
    ├── Busy               overloaded or stopping; nothing was done, try again later
    ├── TimedOut           not done yet; repeating the key returns the reply later
    ├── KeyReused          an idempotency key that was used for a different message
    ├── ServiceFailed      an unexpected error of the other side; its log has the details
    ├── PartyUnreachable   no answer after all retries
    ├── Ended              a collection that is closed permanently; nothing was done
    └── InputError
        ├── TooLarge       a message beyond a limit
        └── NotFound       an unknown path

Received sentences are text only: they are truncated and stripped of control characters. Errors about a
server's own files and engines, and all unexpected errors, are sent without their details.
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
    """Unknown caller or wrong credentials."""


class WrongVersion(errors.MasqueradeError):
    """A protocol version that the other side does not support."""


class Busy(errors.MasqueradeError):
    """Overloaded or stopping; nothing was done."""


class TimedOut(errors.MasqueradeError):
    """Not done yet; a message repeated with the same key gets the reply later and starts nothing new."""


class KeyReused(errors.MasqueradeError):
    """An idempotency key that was used for a different message."""


class ServiceFailed(errors.MasqueradeError):
    """An unexpected error of the other side."""


class PartyUnreachable(errors.MasqueradeError):
    """No answer after all retries."""


class Ended(errors.MasqueradeError):
    """A collection that is closed permanently; nothing was done."""


class TooLarge(errors.InputError):
    """A message beyond a limit."""


class NotFound(errors.InputError):
    """A path that the service does not have."""


@dataclass(frozen=True, slots=True)
class ProblemCode:
    """Code and HTTP status of a type of error; `says` replaces an error text that must not be sent."""

    code: str
    status: int
    says: str | None = None


FAILED = ProblemCode("failed", 500, "An unexpected error occurred; the log of this service has the details.")
KINDS: Mapping[type[errors.MasqueradeError], ProblemCode] = {
    broken.DecodingError: ProblemCode("undecodable", 400),
    TooLarge: ProblemCode("too_large", 413),
    NotFound: ProblemCode("not_found", 404),
    errors.PolicyMismatch: ProblemCode("policy_mismatch", 422),
    errors.PolicyError: ProblemCode("policy", 422),
    errors.ChannelError: ProblemCode("channel", 422),
    errors.SchemaError: ProblemCode("schema", 422),
    errors.FileError: ProblemCode("file", 500, "A file of this service cannot be used; its log says which."),
    errors.InputError: ProblemCode("input", 422),
    broken.ProofRejected: ProblemCode("proof_rejected", 422),
    broken.SealBroken: ProblemCode("seal_broken", 422),
    broken.SharesInconsistent: ProblemCode("shares_inconsistent", 422),
    broken.LogOutOfRange: ProblemCode("log_out_of_range", 422),
    errors.NotConverged: ProblemCode("not_converged", 422),
    broken.KeySpent: ProblemCode("key_spent", 409),
    errors.QueryRefused: ProblemCode("query_refused", 409),
    errors.RoundAborted: ProblemCode("round_aborted", 409),
    KeyReused: ProblemCode("key_reused", 409),
    NotAdmitted: ProblemCode("not_admitted", 403),
    WrongVersion: ProblemCode("wrong_version", 426),
    Ended: ProblemCode("ended", 410),
    Busy: ProblemCode("busy", 503),
    TimedOut: ProblemCode("timed_out", 504),
    errors.EngineError: ProblemCode(
        "engine", 500, "The engine that holds the records failed; nothing was answered."
    ),
    ServiceFailed: FAILED,
    errors.MasqueradeError: ProblemCode("refused", 409),
}
TYPES: Mapping[str, type[errors.MasqueradeError]] = {kind.code: type_ for type_, kind in KINDS.items()}
RETRIED = frozenset({502, 503, 504})


def kind_of(error: BaseException) -> ProblemCode:
    """Return the code of the nearest base class of an error that has a code."""
    return next((KINDS[type_] for type_ in type(error).__mro__ if type_ in KINDS), FAILED)


def encode(error: BaseException) -> tuple[int, bytes]:
    """Return the HTTP status and JSON body for an error."""
    kind = kind_of(error)
    body: dict[str, Any] = {"error": kind.code, "message": kind.says or _clean(str(error))}
    if isinstance(error, errors.RoundAborted):
        body |= {"spent": error.spent, "culprits": [_clean(name) for name in error.culprits[:MOST_ITEMS]]}
    if isinstance(error, errors.QueryRefused):
        body["refusals"] = [
            {"code": _clean(refusal.code), "reason": _clean(refusal.reason)}
            for refusal in error.refusals[:MOST_ITEMS]
        ]
    return kind.status, json.dumps(body, ensure_ascii=False).encode()


def decode(status: int, content: bytes, *, party: str) -> errors.MasqueradeError:
    """Return the error that the other side sent; a body that cannot be read becomes `ServiceFailed`."""
    try:
        values = parse_json(content, most=LARGEST)
    except errors.InputError:
        values = None
    if not isinstance(values, dict):
        values = {}
    message, code = values.get("message"), values.get("error")
    type_ = TYPES.get(code) if isinstance(code, str) else None
    if type_ is None or not isinstance(message, str):
        return ServiceFailed(f"Party {party!r} answered with status {status} and nothing that can be read.")
    return _rebuild(type_, _clean(message), values, party)


def _rebuild(
    type_: type[errors.MasqueradeError], message: str, values: Mapping[str, Any], party: str
) -> errors.MasqueradeError:
    if type_ is errors.RoundAborted:
        # a missing value counts as spent, which is the safe assumption
        spent = values.get("spent") is not False
        return errors.RoundAborted(message, spent=spent, culprits=_texts(values.get("culprits")))
    if type_ is errors.QueryRefused:
        return errors.QueryRefused(_refusals(values.get("refusals")) or (errors.Refusal("refused", message),))
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
    """Return text truncated and without control characters, which a terminal would interpret."""
    return "".join([c if c.isprintable() else " " for c in text[:LONGEST_TEXT]])
