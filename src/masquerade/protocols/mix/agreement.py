"""What everybody agrees on before a mix: who shuffles, who may send, how long records are."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from masquerade.core.errors import InputError
from masquerade.crypto.elgamal import PIECE
from masquerade.crypto.keys import decode_identity
from masquerade.protocols.codec import Writer

LONGEST_NAME = 128
MOST_ROWS = 100_000
MOST_WIDTH = 64


@dataclass(frozen=True, eq=False)
class MixTerms:
    """One collection: the miner, the leaders in the order in which they shuffle, and the people enrolled.

    Names go with Ed25519 identities. Every record takes `width` ciphertexts, 30 bytes each, whatever its
    length. Fewer than `minimum` records are never opened: they would not hide each other.
    """

    session: str
    miner: bytes
    leaders: Mapping[str, bytes]
    respondents: Mapping[str, bytes]
    width: int = 1
    minimum: int = 10

    def __post_init__(self) -> None:
        if not self.session or not self.leaders:
            raise InputError("A mix needs a session name and at least one leader.")
        if "miner" in self.leaders:
            raise InputError(
                "The miner is no leader: whoever opens the records must not be the only one to mix."
            )
        for name in (*self.leaders, *self.respondents):
            if not 1 <= len(name.encode()) <= LONGEST_NAME:
                raise InputError(f"A name must have from 1 to {LONGEST_NAME} bytes.")
        identities = [self.miner, *self.leaders.values(), *self.respondents.values()]
        for identity in identities:
            decode_identity(identity)
        if len(set(identities)) < len(identities):
            raise InputError("Two parties share an identity: each has one of their own.")
        if not 1 <= self.width <= MOST_WIDTH or not 3 <= self.minimum <= MOST_ROWS:
            raise InputError(
                f"A record has 1 to {MOST_WIDTH} pieces of {PIECE} bytes; a batch at least 3 records."
            )
        object.__setattr__(self, "respondents", dict(sorted(self.respondents.items())))
        object.__setattr__(self, "leaders", dict(self.leaders))

    @cached_property
    def id(self) -> bytes:
        """Return 32 bytes that stand for all of the terms."""
        writer = Writer()
        writer.text("masquerade mix terms 1", 255)
        writer.text(self.session, 4096)
        writer.number(self.width, 4)
        writer.number(self.minimum, 4)
        writer.fixed(self.miner, 32)
        for people in (self.leaders, self.respondents):
            writer.number(len(people), 4)
            for name, identity in people.items():
                writer.text(name, LONGEST_NAME)
                writer.fixed(identity, 32)
        return hashlib.sha256(writer.done()).digest()

    @property
    def holders(self) -> tuple[str, ...]:
        """Return who holds a share of the key: the leaders in order, then the miner."""
        return (*self.leaders, "miner")

    def identity(self, role: str, name: str) -> bytes | None:
        """Return the identity of a party, None if there is none of that name."""
        if role == "respondent":
            return self.respondents.get(name)
        return self.miner if name == "miner" else self.leaders.get(name)
