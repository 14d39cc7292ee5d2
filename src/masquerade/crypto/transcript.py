"""Strong Fiat–Shamir: a challenge is a hash of everything that the proof is about and for."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from masquerade.core.errors import InputError
from masquerade.crypto.group import Group

NOT_YET = b"not yet"  # for a proof made before there is a roster or a query, and said so
_VERSION = b"masquerade transcript 1"
_CONTEXT_FIELDS = (
    ("protocol", str),
    ("session", bytes),
    ("roster", bytes),
    ("query", bytes),
    ("user", bytes),
    ("role", str),
)


@dataclass(frozen=True, slots=True)
class Context:
    """What a proof is for; all of it enters every challenge, so a proof is worth nothing anywhere else.

    `protocol` and `role` are names; `roster` is the hash of the signed roster and `query` the identifier of
    the question, or `NOT_YET` for a proof that comes before them.
    """

    protocol: str
    session: bytes
    roster: bytes
    query: bytes
    user: bytes
    role: str

    def __post_init__(self) -> None:
        for name, kind in _CONTEXT_FIELDS:
            value = getattr(self, name)
            if not isinstance(value, kind) or not value:
                raise InputError(f"The {name!r} of a proof's context must be {kind.__name__} and not empty.")


class Transcript:
    """A running SHA-512 over labelled, length-prefixed fields, begun with the whole context.

    >>> from masquerade.crypto.ristretto255 import ristretto255
    >>> context = Context("demo", b"session 1", NOT_YET, NOT_YET, b"user 7", "voter")
    >>> transcript = Transcript(context)
    >>> transcript.absorb("statement", b"one", b"two")
    >>> 0 < transcript.challenge(ristretto255) < ristretto255.order
    True
    """

    __slots__ = ("_hash",)

    def __init__(self, context: Context) -> None:
        if not isinstance(context, Context):
            raise TypeError("a Transcript begins with a Context")
        self._hash = hashlib.sha512(_VERSION)
        self.absorb(
            "context",
            context.protocol.encode(),
            context.session,
            context.roster,
            context.query,
            context.user,
            context.role.encode(),
        )

    def absorb(self, label: str, *values: bytes) -> None:
        """Take in a labelled list of byte strings; no two sequences of calls hash the same bytes."""
        name = label.encode()
        parts = [len(name).to_bytes(4, "big"), name, len(values).to_bytes(8, "big")]
        for value in values:
            parts += (len(value).to_bytes(8, "big"), value)
        self._hash.update(b"".join(parts))

    def challenge(self, group: Group) -> int:
        """Return a number below the group's order: 64 bytes reduced, a bias below 2⁻²⁵⁵; never zero."""
        self.absorb("challenge", group.name.encode())
        return int.from_bytes(self._hash.digest(), "big") % group.order or 1

    def copy(self) -> Transcript:
        """Return an independent transcript that has taken in the same fields."""
        other = object.__new__(Transcript)
        other._hash = self._hash.copy()
        return other
