"""What everybody agrees on before a mix: who shuffles, who may send, how long records are."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, ClassVar

from masquerade.core.errors import InputError
from masquerade.crypto.elgamal import PIECE
from masquerade.protocols.codec import U32, Key, Many, Message, Text
from masquerade.protocols.people.roster import Members, check_members

MOST_ROWS = 100_000
MOST_WIDTH = 64


@dataclass(frozen=True, eq=False)
class MixTerms(Message):
    """One collection: the miner, the leaders in the order in which they shuffle, and the people enrolled.

    Names go with Ed25519 identities. Every record takes `width` ciphertexts, 30 bytes each, whatever its
    length. Fewer than `minimum` records are never opened: they would not hide each other.
    """

    TAG: ClassVar[bytes] = b"masquerade mix terms 1"
    session: Annotated[str, Text(4096)]
    width: U32 = field(default=1, kw_only=True)
    minimum: U32 = field(default=10, kw_only=True)
    miner: Key
    leaders: Annotated[Members, Many(MOST_ROWS)]
    respondents: Annotated[Members, Many(MOST_ROWS)]

    def __post_init__(self) -> None:
        if not self.session or not self.leaders:
            raise InputError("A mix needs a session name and at least one leader.")
        if "miner" in self.leaders:
            raise InputError(
                "The miner is no leader: whoever opens the records must not be the only one to mix."
            )
        check_members({"miner": self.miner}, self.leaders, self.respondents)
        if not 1 <= self.width <= MOST_WIDTH or not 3 <= self.minimum <= MOST_ROWS:
            raise InputError(
                f"A record has 1 to {MOST_WIDTH} pieces of {PIECE} bytes; a batch at least 3 records."
            )
        object.__setattr__(self, "respondents", dict(sorted(self.respondents.items())))
        object.__setattr__(self, "leaders", dict(self.leaders))

    @cached_property
    def id(self) -> bytes:
        """Return 32 bytes that stand for all of the terms."""
        return hashlib.sha256(self.encode()).digest()

    @property
    def holders(self) -> tuple[str, ...]:
        """Return who holds a share of the key: the leaders in order, then the miner."""
        return (*self.leaders, "miner")

    def identity(self, role: str, name: str) -> bytes | None:
        """Return the identity of a party, None if there is none of that name."""
        if role == "respondent":
            return self.respondents.get(name)
        return self.miner if name == "miner" else self.leaders.get(name)
