"""What everybody can see for themselves: the distances on the boards, the groups, and who agreed to them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from masquerade.core.errors import InputError, RoundAborted
from masquerade.crypto.errors import DecodingError, SealBroken
from masquerade.protocols.mix.agreement import SUBMISSION
from masquerade.protocols.mix.key_holder import check_endorsed, opened_batch, opened_key, opened_partial
from masquerade.protocols.mix.messages import OPENING, SHUFFLE, Board, board_hash, opened_board
from masquerade.protocols.partition.agreement import AGREEMENT, MINER, PartitionTerms
from masquerade.protocols.partition.comparison import (
    Between,
    checked_mixing,
    distances_of,
    outcome_of,
    quotients,
)
from masquerade.protocols.partition.messages import GroupVote, Word

Partition = Callable[[Between, int], ArrayLike]


class Boards(NamedTuple):
    """All that was published while rows were compared, in this order."""

    keys: bytes
    batch: bytes
    mixings: bytes
    endorsements: bytes
    openings: bytes

    @property
    def digest(self) -> bytes:
        """Return the hash of all boards."""
        return board_hash(b"distances", *self)

    @property
    def mixed(self) -> bytes:
        """Return the hash that all key holders sign before they open."""
        return board_hash(b"mixed", self.batch, self.mixings)


@dataclass(frozen=True, slots=True, eq=False)
class Distances:
    """The distances between all who sent a row, in the order of their names."""

    names: tuple[str, ...]
    between: Between
    digest: bytes


@dataclass(frozen=True, slots=True)
class SignedGroups:
    """The groups that all have signed: members of each, the key of every person, the hash of the board."""

    names: tuple[str, ...]
    groups: tuple[tuple[str, ...], ...]
    keys: dict[str, bytes]
    view: bytes
    digest: bytes

    def group_of(self, name: str) -> int:
        """Return the number of a person's group."""
        return next(number for number, members in enumerate(self.groups) if name in members)


class Checks:
    """Remembers what was checked, so that people in one process do not all check the same boards."""

    def __init__(self) -> None:
        self._distances: dict[bytes, Distances] = {}
        self._groups: dict[bytes, SignedGroups] = {}

    def distances(self, terms: PartitionTerms, boards: Boards) -> Distances:
        """Return what `distances_on` returns."""
        key = terms.id + boards.digest
        if key not in self._distances:
            self._distances[key] = distances_on(terms, boards)
        return self._distances[key]

    def groups(self, terms: PartitionTerms, board: bytes) -> SignedGroups:
        """Return what `signed_groups` returns."""
        key = terms.id + hashlib.sha256(board).digest()
        if key not in self._groups:
            self._groups[key] = signed_groups(terms, board)
        return self._groups[key]


def distances_on(terms: PartitionTerms, boards: Boards, *, audit: bool = False) -> Distances:
    """Return the distances that the boards show.

    That all key holders signed the mixings, and every partial decryption, is checked: the distances are right
    if one key holder is honest, which privacy rests on anyway. With `audit`, rows and mixings are checked
    too, and then nobody needs to be honest for the distances to be right.
    """
    mix, holders = terms.mix, tuple(terms.holders)
    key = opened_key(mix, boards.keys)
    check_endorsed(mix, boards.endorsements, boards.mixed)
    names = tuple(message.sender for message in opened_board(boards.batch, mix, SUBMISSION))
    mixings = opened_board(boards.mixings, mix, SHUFFLE, holders)
    if audit:
        rows = quotients(opened_batch(mix, key, boards.batch))
        for signed in mixings:
            rows = checked_mixing(mix, key, board_hash(b"batch", boards.batch), rows, signed)
    else:
        pairs = len(names) * (len(names) - 1) // 2
        rows = outcome_of(mixings[-1].payload, pairs, mix.width)
    openings = opened_board(boards.openings, mix, OPENING, mix.holders)
    partials = [opened_partial(mix, key, rows, boards.mixed, signed) for signed in openings]
    return Distances(names, distances_of(rows, partials, len(names)), boards.digest)


def groups_of(view: Distances, k: int, partition: Partition) -> tuple[int, ...]:
    """Return everybody's group by a partition, numbered by first occurrence; each has at least k people."""
    found = np.asarray(partition(view.between.copy(), k))
    if found.shape != (len(view.names),):
        raise InputError(f"A partition of {len(view.names)} rows returns the group of each.")
    numbers: dict[int, int] = {}
    groups = tuple(numbers.setdefault(int(group), len(numbers)) for group in found)
    check_groups(groups, k)
    return groups


def check_groups(groups: Sequence[int], k: int) -> None:
    """Refuse groups that are not numbered by first occurrence, or of which one has fewer than k people."""
    first = list(dict.fromkeys(groups))
    if first != list(range(len(first))):
        raise InputError("Groups are numbered in the order in which they occur.")
    if min(np.bincount(groups)) < k:
        raise InputError(f"A partition has a group of fewer than {k} people.")


def signed_groups(terms: PartitionTerms, board: bytes) -> SignedGroups:
    """Return the groups that all have signed; any difference aborts and names who differs from the most."""
    words = []
    for part in Board.decode(board).parts:
        try:
            words.append(Word.opened(part, terms, AGREEMENT))
        except SealBroken:
            raise RoundAborted(
                "An agreement on the board was not signed by its sender.", spent=True, culprits=(MINER,)
            ) from None
    names = tuple(word.sender for word in words)
    if list(names) != sorted(set(names)) or not names:
        raise RoundAborted(
            "A board has one agreement of each person, in order.", spent=True, culprits=(MINER,)
        )
    said = {word.sender: GroupVote.decode(word.payload) for word in words}
    opinions = [(one.view, one.groups) for one in said.values()]
    most = max(opinions, key=opinions.count)
    others = [name for name, one in said.items() if (one.view, one.groups) != most]
    if others:
        raise RoundAborted("People came to different groups.", spent=True, culprits=others)
    view, groups = most
    if len(groups) != len(names):
        raise RoundAborted("The groups are not of those who agreed.", spent=True, culprits=(MINER,))
    try:
        check_groups(groups, terms.k)
    except InputError as error:
        raise DecodingError(str(error)) from error
    members = [[name for name, group in zip(names, groups, strict=True) if group == number]
               for number in range(max(groups) + 1)]  # fmt: skip
    keys = {name: one.key for name, one in said.items()}
    digest = hashlib.sha256(board).digest()
    return SignedGroups(names, tuple(map(tuple, members)), keys, view, digest)
