"""What everybody agrees on before a table is anonymized, and the messages after the distances.

Who takes part, in which role, the attributes; signed words of people, the randomness server and the miner;
what everybody can see for themselves on the boards: the distances, the groups, who agreed to them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from masquerade.core.errors import InputError
from masquerade.core.guarantee import Disclosure, Guarantee
from masquerade.crypto.errors import DecodingError, SealBroken
from masquerade.crypto.group import Secret, expand_message
from masquerade.crypto.keys import KEY_SIZE, AgreementKey, decode_agreement_key, decode_identity
from masquerade.crypto.secp256k1 import secp256k1
from masquerade.crypto.symmetric import seal, unseal
from masquerade.protocols.k_anonymity.suppression import comparison
from masquerade.protocols.k_anonymity.threshold.messages import MOST_BYTES, MOST_K, Terms
from masquerade.protocols.mixnet import messages as wire
from masquerade.protocols.mixnet.roles import check_endorsed, opened_batch, opened_key, opened_partial
from masquerade.protocols.people.roster import PersonName, aborted
from masquerade.protocols.wire.codec import U32, Blob, Digest, Key, Many, Message, OneOf, Text, Writer

AGREEMENT, NOTICES, RELEASE = "agreement", "list of notices", "release"
EVERYBODY, HOLDER, MINER, RANDOMNESS = "everybody", "key holder", "miner", "randomness server"
_WIDE = 48  # bytes reduced to a number below the group's order: a bias below 2⁻¹²⁷


@dataclass(frozen=True, eq=False)
class PartitionTerms:
    """One table: the people whose rows it has, its attributes, k, and the parties that compute it.

    Names go with Ed25519 identities known beforehand. `holders` blind and shuffle in this order; the first
    one also passes reports on. `box` is the miner's key that reports are sealed for. Values have at most
    `value_size` bytes. Fewer than `minimum` rows are never compared.
    """

    session: str
    k: int
    attributes: Sequence[str]
    miner: bytes
    box: bytes
    holders: Mapping[str, bytes]
    randomness: bytes
    people: Mapping[str, bytes]
    value_size: int = 64
    minimum: int = 3

    def __post_init__(self) -> None:
        object.__setattr__(self, "attributes", tuple(self.attributes))
        if not 2 <= self.k <= MOST_K // 2:
            raise InputError(f"'k' must be from 2 to {MOST_K // 2:,}. Got {self.k} instead.")
        if not self.attributes or len(set(self.attributes)) < len(self.attributes):
            raise InputError("A table has at least one attribute, and each has a name of its own.")
        if len(self.holders) < 2:
            raise InputError(
                f"At least 2 key holders are needed, so that no one of them can see which attributes agree. "
                f"Got {len(self.holders)} instead."
            )
        if not 1 <= self.value_size <= MOST_BYTES:
            raise InputError(f"'value_size' must be from 1 to {MOST_BYTES:,}. Got {self.value_size} instead.")
        decode_agreement_key(self.box)
        if decode_identity(self.randomness) == self.miner:
            raise InputError("The miner is not the randomness server: together they could try every value.")
        object.__setattr__(self, "people", dict(sorted(self.people.items())))
        object.__setattr__(self, "holders", dict(self.holders))
        _ = self.mix  # refuses what no mix could be made from

    @cached_property
    def mix(self) -> wire.MixTerms:
        """Return the terms under which keys, rows and shuffles are exchanged."""
        writer = Writer()
        writer.text(self.session, 4096)
        writer.number(self.k, 4)
        writer.number(self.value_size, 4)
        writer.number(self.minimum, 4)
        writer.fixed(self.box, KEY_SIZE)
        writer.fixed(self.randomness, KEY_SIZE)
        Many(1 << 16, Text(255)).write(writer, self.attributes)
        digest = hashlib.sha256(writer.done()).hexdigest()
        return wire.MixTerms(
            f"masquerade distributed k-anonymity 1 {digest}",
            self.miner,
            self.holders,
            self.people,
            width=len(self.attributes),
            minimum=max(self.minimum, self.k),
        )

    @property
    def id(self) -> bytes:
        """Return 32 bytes that stand for all of the terms."""
        return self.mix.id

    def identity(self, kind: str, name: str) -> bytes | None:
        """Return whose signature a word must bear, None if nobody of that name may say it."""
        if kind == AGREEMENT:
            return self.people.get(name)
        return {(NOTICES, RANDOMNESS): self.randomness, (RELEASE, MINER): self.miner}.get((kind, name))

    def encoded(self, row: Sequence[str]) -> tuple[bytes, ...]:
        """Return the values of a row as bytes; one that is too long is refused."""
        if len(row) != len(self.attributes):
            raise InputError(f"A row has {len(self.attributes)} values here. Got {len(row)} instead.")
        try:
            values = tuple(value.encode() for value in row)
        except UnicodeEncodeError:
            raise InputError("Values must be valid Unicode.") from None
        for name, value in zip(self.attributes, values, strict=True):
            if len(value) > self.value_size:
                raise InputError(f"A value of {name!r} has more than {self.value_size} bytes.")
        return values

    def exponent(self, attribute: int, value: bytes) -> Secret:
        """Return the number that stands for a value of an attribute in this session, found in equal time."""
        padded = len(value).to_bytes(4, "big") + value.ljust(self.value_size, b"\0")
        message = self.id + attribute.to_bytes(4, "big") + padded
        wide = expand_message(message, b"masquerade distributed k-anonymity value", _WIDE)
        return secp256k1.secret(int.from_bytes(wide, "big"))

    def opening_terms(self, group: int, attribute: int, size: int) -> Terms:
        """Return the terms under which a value opens if all `size` people of a group have it."""
        return Terms(
            f"{self.id.hex()} group {group} attribute {attribute}",
            k=size,
            quasi_size=self.value_size,
            sensitive_size=1,
        )


def partition_guarantee(terms: PartitionTerms) -> Guarantee:
    """Return who learns what, from whom protected, and on what that rests."""
    names, holders, relay = tuple(terms.attributes), len(terms.holders), next(iter(terms.holders))
    return Guarantee(
        (
            Disclosure(EVERYBODY, "in how many attributes every two people differ, by name,", names, None),
            Disclosure(
                EVERYBODY, f"the values that all of a group of at least {terms.k} share,", names, None
            ),
            Disclosure(
                MINER, "how many in a group agree on a suppressed value, not who or on what,", names, None
            ),
            Disclosure(HOLDER, "beyond what everybody learns, nothing", names, Fraction(1)),
            Disclosure(RANDOMNESS, "beyond what everybody learns, nothing", names, Fraction(1)),
        ),
        (
            f"at least one of the {holders} key holders is honest",
            (
                "enrolment gives each person one identity, and people enter their true rows: whoever enters "
                "a made-up row learns its distance to everybody, two such rows (or one that is false in all "
                "attributes but one) test a value of everybody's, and colluding people add up their tests"
            ),
            (
                "the miner and the randomness server do not collude: together they can try values on all "
                "reports until the epoch's keys are destroyed"
            ),
            (
                f"the miner and {relay!r} do not collude: together they see who of a group share a "
                "suppressed value, and a person of that group who has it, or guesses it, can tell them which"
            ),
            "k-anonymity hides a row among k, not what all of a group have in common",
            (
                "a row goes into one session alone: tables over other people tell more of it together; "
                "honest people refuse a second one while they keep their ledgers and agree to no exception"
            ),
            "the decisional Diffie–Hellman problem is hard on secp256k1 (hashes as random oracles)",
        ),
        dict.fromkeys((HOLDER, MINER, RANDOMNESS, "person"), "malicious"),
        holders - 1,
        (
            (f"all {holders} key holders",),
            (MINER, RANDOMNESS),
            (MINER, relay),
            (MINER, "person of the same group"),
        ),
        0,
        "detects",
    )


PROTOCOL = "distributed k-anonymity"
_MOST_ATTRIBUTES = 1 << 10
_MOST_PARTS = wire.MOST_ROWS * _MOST_ATTRIBUTES

Partition = Callable[[comparison.Between, int], ArrayLike]
Part = Annotated[bytes, Blob(1 << 14)]
Parts = Annotated[tuple[Part, ...], Many(_MOST_PARTS)]


class Word(wire.Signed, tag=b"masquerade partition word 1"):
    """What one party says to all, signed."""

    LABEL: ClassVar[str] = PROTOCOL
    kind: Annotated[str, OneOf(Text(32), (AGREEMENT, NOTICES, RELEASE))]
    payload: Annotated[bytes, Blob(1 << 28)]


class GroupVote(Message, tag=b"masquerade partition agreement 1"):
    """A person's word on the groups: what was seen, a key to be written to, and everybody's group."""

    view: Digest
    key: Key
    groups: Annotated[tuple[U32, ...], Many(wire.MOST_ROWS)]


class Notices(Message, tag=b"masquerade partition notices 1"):
    """The randomness server's word: for each group an identity and, in a run, a notice for each attribute.

    `credentials` has one for each person, in order, sealed for that person alone by a key agreed with `key`.
    """

    agreement: Digest
    key: Key
    identities: Annotated[tuple[Key, ...], Many(wire.MOST_ROWS)]
    notices: Parts
    credentials: Annotated[tuple[Part, ...], Many(wire.MOST_ROWS)]


class Bundle(Message, tag=b"masquerade partition bundle 1"):
    """What goes between one person and the randomness server: one part for each attribute."""

    person: PersonName
    parts: Annotated[tuple[Part, ...], Many(_MOST_ATTRIBUTES)]


class Closings(Message, tag=b"masquerade partition closings 1"):
    """The closing of every group and attribute, group by group."""

    parts: Parts


class AddressedReport(Message, tag=b"masquerade partition report 1"):
    """A report with the group and attribute that it is about: what is sealed for the miner."""

    group: U32
    attribute: U32
    report: Part


class Release(Message, tag=b"masquerade partition release 1"):
    """The miner's word: for each group and attribute no value or one, and the hashes of all it was sent."""

    agreement: Digest
    values: Annotated[tuple[Annotated[tuple[Part, ...], Many(1)], ...], Many(_MOST_PARTS)]
    receipts: Annotated[tuple[Digest, ...], Many(_MOST_PARTS)]


def sealed_for(box: bytes, message: bytes, terms: PartitionTerms) -> bytes:
    """Return a message that only the owner of a box can read, and that does not say who sent it."""
    key = AgreementKey()
    return key.public + seal(key.agree(box, f"{PROTOCOL}: report", terms.id), message, terms.id)


def unsealed(box: AgreementKey, sealed: bytes, terms: PartitionTerms) -> bytes:
    """Return the message of a sealed one, or raise `SealBroken` or `DecodingError`."""
    key = box.agree(sealed[:KEY_SIZE], f"{PROTOCOL}: report", terms.id)
    return unseal(key, sealed[KEY_SIZE:], terms.id)


def word_of(data: bytes, terms: PartitionTerms, kind: str) -> bytes:
    """Return the payload of a word of the randomness server or the miner; a forged one aborts."""
    try:
        return Word.opened(data, terms, kind).payload
    except SealBroken:
        raise aborted(f"This {kind} was not signed by its sender.", MINER, spent=True) from None


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
        return wire.board_hash(b"distances", *self)

    @property
    def mixed(self) -> bytes:
        """Return the hash that all key holders sign before they open."""
        return wire.board_hash(b"mixed", self.batch, self.mixings)


@dataclass(frozen=True, slots=True, eq=False)
class Distances:
    """The distances between all who sent a row, in the order of their names."""

    names: tuple[str, ...]
    between: comparison.Between
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


def distances_on(terms: PartitionTerms, boards: Boards, *, audit: bool = False) -> Distances:
    """Return the distances that the boards show.

    That all key holders signed the mixings, and every partial decryption, is checked: the distances are right
    if one key holder is honest, which privacy rests on anyway. With `audit`, rows and mixings are checked
    too, and then nobody needs to be honest for the distances to be right.
    """
    mix, holders = terms.mix, tuple(terms.holders)
    key = opened_key(mix, boards.keys)
    check_endorsed(mix, boards.endorsements, boards.mixed)
    names = tuple(message.sender for message in wire.Signed.on_board(boards.batch, mix, wire.SUBMISSION))
    mixings = wire.opened_board(boards.mixings, mix, wire.SHUFFLE, holders)
    if audit:
        rows = comparison.quotients(opened_batch(mix, key, boards.batch))
        for signed in mixings:
            rows = comparison.checked_mixing(mix, key, wire.board_hash(b"batch", boards.batch), rows, signed)
    else:
        pairs = len(names) * (len(names) - 1) // 2
        rows = comparison.outcome_of(mixings[-1].payload, pairs, mix.width)
    openings = wire.opened_board(boards.openings, mix, wire.OPENING, mix.holders)
    partials = [opened_partial(mix, key, rows, boards.mixed, signed) for signed in openings]
    return Distances(names, comparison.distances_of(rows, partials, len(names)), boards.digest)


def groups_of(view: Distances, k: int, partition: Partition) -> tuple[int, ...]:
    """Return everybody's group by a partition, numbered by first occurrence; each has at least k people."""
    found = np.asarray(partition(view.between.copy(), k))
    if found.shape != (len(view.names),):
        raise InputError(f"A partition of {len(view.names)} rows returns the group of each.")
    numbers: dict[int, int] = {}
    groups = tuple(numbers.setdefault(int(group), len(numbers)) for group in found)
    _check_groups(groups, k)
    return groups


def _check_groups(groups: Sequence[int], k: int) -> None:
    """Refuse groups that are not numbered by first occurrence, or of which one has fewer than k people."""
    first = list(dict.fromkeys(groups))
    if first != list(range(len(first))):
        raise InputError("Groups are numbered in the order in which they occur.")
    if min(np.bincount(groups)) < k:
        raise InputError(f"A partition has a group of fewer than {k} people.")


def signed_groups(terms: PartitionTerms, board: bytes) -> SignedGroups:
    """Return the groups that all have signed; any difference aborts and names who differs from the most."""
    words = Word.on_board(board, terms, AGREEMENT, spent=True)
    names = tuple(word.sender for word in words)
    if list(names) != sorted(set(names)) or not names:
        raise aborted("A board has one agreement of each person, in order.", MINER, spent=True)
    said = {word.sender: GroupVote.decode(word.payload) for word in words}
    opinions = [(one.view, one.groups) for one in said.values()]
    most = max(opinions, key=opinions.count)
    others = [name for name, one in said.items() if (one.view, one.groups) != most]
    if others:
        raise aborted("People came to different groups.", *others, spent=True)
    view, groups = most
    if len(groups) != len(names):
        raise aborted("The groups are not of those who agreed.", MINER, spent=True)
    try:
        _check_groups(groups, terms.k)
    except InputError as error:
        raise DecodingError(str(error)) from error
    members = [[name for name, group in zip(names, groups, strict=True) if group == number]
               for number in range(max(groups) + 1)]  # fmt: skip
    keys = {name: one.key for name, one in said.items()}
    digest = hashlib.sha256(board).digest()
    return SignedGroups(names, tuple(map(tuple, members)), keys, view, digest)
