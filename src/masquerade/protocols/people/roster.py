"""Roster of the enrolled people: their names and public identity keys.

All protocols assume that each name is one person. Enrolment must ensure this.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Annotated, TypeVar

from masquerade.core.errors import InputError, RoundAborted
from masquerade.core.util.bit_flags import pack_bits, unpack_bits
from masquerade.crypto.keys import SigningKey, decode_identity
from masquerade.protocols.wire.codec import Key, Text

T = TypeVar("T")
LONGEST_NAME = 128
PERSON_NAME = re.compile(r"[A-Za-z0-9@_-][A-Za-z0-9@._-]{0,99}")  # given by an office; also a file name
PersonName = Annotated[str, Text(LONGEST_NAME)]
Members = Mapping[PersonName, Key]


def check_members(*groups: Mapping[str, bytes]) -> None:
    """Raise InputError for empty or too long names, invalid keys, and two members with one identity."""
    identities = [identity for members in groups for identity in members.values()]
    for name in (name for members in groups for name in members):
        if not 1 <= len(name.encode()) <= LONGEST_NAME:
            raise InputError(f"A member's name must have from 1 to {LONGEST_NAME} bytes.")
    for identity in identities:
        decode_identity(identity)
    if len(set(identities)) < len(identities):
        raise InputError("Two members share an identity: each person has one of their own.")


def check_person_names(people: Sequence[str]) -> None:
    """Raise InputError if an enrolment office's name for a person is malformed or listed twice."""
    for number, person in enumerate(people, start=1):
        if not PERSON_NAME.fullmatch(person):
            raise InputError(
                f"Person {number}: a name consists of 1 to 100 letters, digits, '@', '.', '_' or '-', and "
                "does not begin with a dot."
            )
    if len(set(people)) < len(people):
        raise InputError("A person is listed twice.")


class Roster(Mapping[str, bytes]):
    """The identity keys of all people by name, in a fixed order; the index in it also identifies a person.

    All people have the same roster, from enrolment and not from the miner: 32 bytes per person, once.
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
    """Return a roster with new identities, and their secret keys: enrolment within one process."""
    keys = [SigningKey() for _ in names]
    return Roster({name: key.public for name, key in zip(names, keys, strict=True)}), keys


def abort_round(reason: str, *culprits: str, spent: bool = False) -> RoundAborted:
    """Return the error of an aborted round: reason, culprits, and whether anything about records was sent."""
    return RoundAborted(reason, spent=spent, culprits=culprits)


def flags_of(places: Sequence[int], size: int) -> bytes:
    """Return one bit for each of `size` members, set for the given indices."""
    there = set(places)
    return pack_bits([place in there for place in range(size)])


def select_flagged(flags: bytes, members: Sequence[T]) -> list[T]:
    """Return the members whose bit is set."""
    return [members[place] for place, there in enumerate(unpack_bits(flags)) if there]
