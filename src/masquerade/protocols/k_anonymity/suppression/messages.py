"""The terms of a table, and the messages that are sent after the distances between rows are known.

Signed messages of people, the randomness server and the miner; and the results that all parties can compute
from the boards: the distances, the groups, and who agreed to them.
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
from masquerade.core.guarantee import KEY_HOLDER, PARTICIPANTS, RANDOMNESS_SERVER, Disclosure, Guarantee
from masquerade.crypto.errors import DecodingError, SealBroken
from masquerade.crypto.group import Secret, expand_message
from masquerade.crypto.keys import KEY_SIZE, AgreementKey, decode_agreement_key, decode_identity
from masquerade.crypto.secp256k1 import secp256k1
from masquerade.crypto.symmetric import seal, unseal
from masquerade.protocols.k_anonymity.suppression import comparison
from masquerade.protocols.k_anonymity.threshold.messages import MOST_BYTES, MOST_K, ThresholdTerms
from masquerade.protocols.mixnet import messages as wire
from masquerade.protocols.mixnet.roles import check_endorsed, opened_batch, opened_key, opened_partial
from masquerade.protocols.people.roster import PersonName, abort_round
from masquerade.protocols.wire.codec import U32, Blob, Digest, Key, Many, Message, OneOf, Text, Writer

AGREEMENT, NOTICES, RELEASE = "agreement", "list of notices", "release"
MINER, RANDOMNESS = "miner", "randomness server"  # names of signed messages: part of the wire format
_WIDE = 48  # bytes reduced to a number below the group's order: a bias below 2⁻¹²⁷


@dataclass(frozen=True, eq=False)
class PartitionTerms:
    """Terms of one table: the people, the attributes, k, and the parties that compute it.

    Ed25519 identities of all names are known in advance. `holders` blind and shuffle in this order; the first
    holder also relays reports. `box` is the miner's public key, for which reports are sealed. Values have at
    most `value_size` bytes. Fewer than `minimum` rows are never compared.
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
            raise InputError("A table has at least one attribute, and names are distinct.")
        if len(self.holders) < 2:
            raise InputError(
                f"At least 2 key holders are needed, so that no one of them can see which attributes agree. "
                f"Got {len(self.holders)} instead."
            )
        if not 1 <= self.value_size <= MOST_BYTES:
            raise InputError(f"'value_size' must be from 1 to {MOST_BYTES:,}. Got {self.value_size} instead.")
        decode_agreement_key(self.box)
        if decode_identity(self.randomness) == self.miner:
            raise InputError(
                "The miner must not be the randomness server: together they could try every value."
            )
        object.__setattr__(self, "people", dict(sorted(self.people.items())))
        object.__setattr__(self, "holders", dict(self.holders))
        _ = self.mix  # raises an error if no mix can be made from these terms

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
        """Return 32 bytes that identify the terms."""
        return self.mix.id

    def identity(self, kind: str, name: str) -> bytes | None:
        """Return the identity that must sign a type of message, None if that name may not send it."""
        if kind == AGREEMENT:
            return self.people.get(name)
        return {(NOTICES, RANDOMNESS_SERVER): self.randomness, (RELEASE, MINER): self.miner}.get((kind, name))

    def encode_row(self, row: Sequence[str]) -> tuple[bytes, ...]:
        """Return the values of a row as bytes; raise InputError if a value is too long."""
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
        """Return the number that represents a value of an attribute in this session, in constant time."""
        padded = len(value).to_bytes(4, "big") + value.ljust(self.value_size, b"\0")
        message = self.id + attribute.to_bytes(4, "big") + padded
        wide = expand_message(message, b"masquerade distributed k-anonymity value", _WIDE)
        return secp256k1.secret(int.from_bytes(wide, "big"))

    def opening_terms(self, group: int, attribute: int, size: int) -> ThresholdTerms:
        """Return the terms of an opening in which a value opens if all `size` people of a group have it."""
        return ThresholdTerms(
            f"{self.id.hex()} group {group} attribute {attribute}",
            k=size,
            quasi_size=self.value_size,
            sensitive_size=1,
        )


def partition_guarantee(terms: PartitionTerms) -> Guarantee:
    """Return the disclosures, the adversaries and the assumptions."""
    names, holders, relay = tuple(terms.attributes), len(terms.holders), next(iter(terms.holders))
    return Guarantee(
        (
            Disclosure(PARTICIPANTS, "in how many attributes every two people differ, by name,", names, None),
            Disclosure(
                PARTICIPANTS, f"the values that all of a group of at least {terms.k} share,", names, None
            ),
            Disclosure(
                MINER, "how many in a group agree on a suppressed value, not who or on what,", names, None
            ),
            Disclosure(KEY_HOLDER, "nothing beyond what every participant learns,", names, Fraction(1)),
            Disclosure(
                RANDOMNESS_SERVER, "nothing beyond what every participant learns,", names, Fraction(1)
            ),
        ),
        (
            f"at least one of the {holders} key holders is honest",
            (
                "enrolment gives each person one identity, and people enter their true rows: a person with "
                "a false row learns its distance to every row, two such rows (or one that is false in all "
                "attributes but one) test a value of every row, and colluding people can combine their tests"
            ),
            (
                "the miner and the randomness server do not collude: together they can try values on all "
                "reports until the epoch's keys are destroyed"
            ),
            (
                f"the miner and {relay!r} do not collude: together they see which people of a group share a "
                "suppressed value, and a person of that group who has or guesses the value can reveal it to "
                "them"
            ),
            "k-anonymity hides a row among k rows, but not a value that all rows of a group share",
            (
                "a row is used in one session only, since several tables over different people reveal more "
                "together; honest people refuse a second session while they keep their ledgers and agree to "
                "no exception"
            ),
            "the decisional Diffie–Hellman problem is hard on secp256k1 (hashes as random oracles)",
        ),
        dict.fromkeys((KEY_HOLDER, MINER, RANDOMNESS_SERVER, "person"), "malicious"),
        holders - 1,
        (
            (f"all {holders} key holders",),
            (MINER, RANDOMNESS_SERVER),
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


class Word(wire.SignedMixMessage, tag=b"masquerade partition word 1"):
    """A signed message of one party to all parties."""

    LABEL: ClassVar[str] = PROTOCOL
    kind: Annotated[str, OneOf(Text(32), (AGREEMENT, NOTICES, RELEASE))]
    payload: Annotated[bytes, Blob(1 << 28)]


class GroupVote(Message, tag=b"masquerade partition agreement 1"):
    """A person's vote on the groups: the digest of the boards, a key for replies, and everyone's group."""

    view: Digest
    key: Key
    groups: Annotated[tuple[U32, ...], Many(wire.MOST_ROWS)]


class Notices(Message, tag=b"masquerade partition notices 1"):
    """The randomness server's message: an identity per group, and a notice per group and attribute.

    `credentials` has one credential per person, in order, sealed for that person by a key agreed with `key`.
    """

    agreement: Digest
    key: Key
    identities: Annotated[tuple[Key, ...], Many(wire.MOST_ROWS)]
    notices: Parts
    credentials: Annotated[tuple[Part, ...], Many(wire.MOST_ROWS)]


class Bundle(Message, tag=b"masquerade partition bundle 1"):
    """A message between a person and the randomness server, with one part per attribute."""

    person: PersonName
    parts: Annotated[tuple[Part, ...], Many(_MOST_ATTRIBUTES)]


class Closings(Message, tag=b"masquerade partition closings 1"):
    """The closing of every group and attribute, group by group."""

    parts: Parts


class AddressedReport(Message, tag=b"masquerade partition report 1"):
    """A report with its group and attribute, to be sealed for the miner."""

    group: U32
    attribute: U32
    report: Part


class TableRelease(Message, tag=b"masquerade partition release 1"):
    """The miner's result: at most one value per group and attribute, and the hashes of all reports."""

    agreement: Digest
    values: Annotated[tuple[Annotated[tuple[Part, ...], Many(1)], ...], Many(_MOST_PARTS)]
    receipts: Annotated[tuple[Digest, ...], Many(_MOST_PARTS)]


def sealed_for(box: bytes, message: bytes, terms: PartitionTerms) -> bytes:
    """Seal a message for the owner of a box, without naming the sender."""
    key = AgreementKey()
    return key.public + seal(key.agree(box, f"{PROTOCOL}: report", terms.id), message, terms.id)


def unseal_message(box: AgreementKey, sealed: bytes, terms: PartitionTerms) -> bytes:
    """Open a sealed message and return its bytes; raise `SealBroken` or `DecodingError` if that fails."""
    key = box.agree(sealed[:KEY_SIZE], f"{PROTOCOL}: report", terms.id)
    return unseal(key, sealed[KEY_SIZE:], terms.id)


def word_of(data: bytes, terms: PartitionTerms, kind: str) -> bytes:
    """Return the payload of a message of the randomness server or the miner; a forged message aborts."""
    try:
        return Word.parse(data, terms, kind).payload
    except SealBroken:
        raise abort_round(f"This {kind} was not signed by its sender.", MINER, spent=True) from None


class Boards(NamedTuple):
    """All boards published while rows were compared, in this order."""

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
    def mixed_hash(self) -> bytes:
        """Return the hash that all key holders sign before any of them decrypts."""
        return wire.board_hash(b"mixed", self.batch, self.mixings)


@dataclass(frozen=True, slots=True, eq=False)
class Distances:
    """The distances between all people who sent a row, in the order of their names."""

    names: tuple[str, ...]
    between: comparison.Between
    digest: bytes


@dataclass(frozen=True, slots=True)
class SignedGroups:
    """The groups that all people have signed: members, the key of every person, the hash of the board."""

    names: tuple[str, ...]
    groups: tuple[tuple[str, ...], ...]
    keys: dict[str, bytes]
    view: bytes
    digest: bytes

    def group_of(self, name: str) -> int:
        """Return the index of a person's group."""
        return next(number for number, members in enumerate(self.groups) if name in members)


def distances_on(terms: PartitionTerms, boards: Boards, *, audit: bool = False) -> Distances:
    """Return the distances that follow from the boards.

    The key holders' signatures and every partial decryption are verified, so the distances are correct if one
    key holder is honest, which privacy requires anyway. With `audit`, rows and mixings are verified too; the
    distances are then correct even if no key holder is honest.
    """
    mix, holders = terms.mix, tuple(terms.holders)
    key = opened_key(mix, boards.keys)
    check_endorsed(mix, boards.endorsements, boards.mixed_hash)
    names = tuple(
        message.sender for message in wire.SignedMixMessage.on_board(boards.batch, mix, wire.SUBMISSION)
    )
    mixings = wire.opened_board(boards.mixings, mix, wire.SHUFFLE, holders)
    if audit:
        rows = comparison.quotients(opened_batch(mix, key, boards.batch))
        for signed in mixings:
            rows = comparison.checked_mixing(mix, key, wire.board_hash(b"batch", boards.batch), rows, signed)
    else:
        pairs = len(names) * (len(names) - 1) // 2
        rows = comparison.outcome_of(mixings[-1].payload, pairs, mix.width)
    openings = wire.opened_board(boards.openings, mix, wire.OPENING, mix.holders)
    partials = [opened_partial(mix, key, rows, boards.mixed_hash, signed) for signed in openings]
    return Distances(names, comparison.distances_of(rows, partials, len(names)), boards.digest)


def groups_of(view: Distances, k: int, partition: Partition) -> tuple[int, ...]:
    """Return every person's group by a partition, numbered by first occurrence, each of at least k people."""
    found = np.asarray(partition(view.between.copy(), k))
    if found.shape != (len(view.names),):
        raise InputError(f"A partition must return one group for each of the {len(view.names)} rows.")
    numbers: dict[int, int] = {}
    groups = tuple(numbers.setdefault(int(group), len(numbers)) for group in found)
    _check_groups(groups, k)
    return groups


def _check_groups(groups: Sequence[int], k: int) -> None:
    """Raise an error if groups are not numbered by first occurrence, or one has fewer than k people."""
    first = list(dict.fromkeys(groups))
    if first != list(range(len(first))):
        raise InputError("Groups must be numbered in the order in which they occur.")
    if min(np.bincount(groups)) < k:
        raise InputError(f"A partition has a group of fewer than {k} people.")


def signed_groups(terms: PartitionTerms, board: bytes) -> SignedGroups:
    """Return the groups that all people have signed; a difference aborts and names those in the minority."""
    words = Word.on_board(board, terms, AGREEMENT, spent=True)
    names = tuple(word.sender for word in words)
    if list(names) != sorted(set(names)) or not names:
        raise abort_round("A board must have one agreement per person, in order.", MINER, spent=True)
    said = {word.sender: GroupVote.decode(word.payload) for word in words}
    opinions = [(one.view, one.groups) for one in said.values()]
    most = max(opinions, key=opinions.count)
    others = [name for name, one in said.items() if (one.view, one.groups) != most]
    if others:
        raise abort_round("People computed different groups.", *others, spent=True)
    view, groups = most
    if len(groups) != len(names):
        raise abort_round("The groups are not about the people who agreed.", MINER, spent=True)
    try:
        _check_groups(groups, terms.k)
    except InputError as error:
        raise DecodingError(str(error)) from error
    members = [[name for name, group in zip(names, groups, strict=True) if group == number]
               for number in range(max(groups) + 1)]  # fmt: skip
    keys = {name: one.key for name, one in said.items()}
    digest = hashlib.sha256(board).digest()
    return SignedGroups(names, tuple(map(tuple, members)), keys, view, digest)
