"""Who is enrolled: names with the identity keys by which everybody knows everybody else.

That each name is one person is what enrolment has to see to, and an assumption of everything that follows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Annotated, TypeVar

from masquerade.core.errors import InputError, RoundAborted
from masquerade.core.util.bit_flags import packed_bits, unpacked_bits
from masquerade.crypto.keys import SigningKey, decode_identity
from masquerade.protocols.wire.codec import Key, Text

T = TypeVar("T")
LONGEST_NAME = 128
PersonName = Annotated[str, Text(LONGEST_NAME)]
Members = Mapping[PersonName, Key]


def check_members(*groups: Mapping[str, bytes]) -> None:
    """Refuse names that are empty or too long, keys that are none, and two members with one identity."""
    identities = [identity for members in groups for identity in members.values()]
    for name in (name for members in groups for name in members):
        if not 1 <= len(name.encode()) <= LONGEST_NAME:
            raise InputError(f"A member's name must have from 1 to {LONGEST_NAME} bytes.")
    for identity in identities:
        decode_identity(identity)
    if len(set(identities)) < len(identities):
        raise InputError("Two members share an identity: each person has one of their own.")


class Roster(Mapping[str, bytes]):
    """Everybody's identity key by name, in one order; a person is known by the place in it, too.

    Everybody has the same roster, from enrolment and not from whoever counts: 32 bytes a person, once.
    """

    def __init__(self, members: Mapping[str, bytes]) -> None:
        check_members(members)
        self._members = dict(members)
        self.names, self.identities = tuple(members), tuple(members.values())  # in one order
        self.places = {name: place for place, name in enumerate(self.names)}

    def __getitem__(self, name: str) -> bytes:
        return self._members[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self):,} people)"

    @cached_property
    def hash(self) -> bytes:
        """Return the sha256 of names and keys in order."""
        digest = hashlib.sha256(b"masquerade aggregation roster")
        for name, identity in self._members.items():
            encoded = name.encode()
            digest.update(len(encoded).to_bytes(4, "big") + encoded + identity)
        return digest.digest()


def enrol(names: Sequence[str]) -> tuple[Roster, list[SigningKey]]:
    """Return a roster with fresh identities, and their secret keys: what enrolment does, for one process."""
    keys = [SigningKey() for _ in names]
    return Roster({name: key.public for name, key in zip(names, keys, strict=True)}), keys


def aborted(reason: str, *culprits: str, spent: bool = False) -> RoundAborted:
    """Return the end of a round: why, through whose fault, and whether anything about records has left."""
    return RoundAborted(reason, spent=spent, culprits=culprits)


def flags_of(places: Sequence[int], size: int) -> bytes:
    """Return a bit for each of `size` members, set for those at these places."""
    there = set(places)
    return packed_bits([place in there for place in range(size)])


def flagged(flags: bytes, members: Sequence[T]) -> list[T]:
    """Return the members whose bit is set."""
    return [members[place] for place, there in enumerate(unpacked_bits(flags)) if there]
