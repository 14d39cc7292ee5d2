"""What everybody agrees on before a table is anonymized: who takes part, in which role, the attributes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from masquerade.core.errors import InputError
from masquerade.core.guarantee import Disclosure, Guarantee
from masquerade.crypto.group import Secret, expand_message
from masquerade.crypto.keys import KEY_SIZE, decode_agreement_key, decode_identity
from masquerade.crypto.secp256k1 import secp256k1
from masquerade.protocols.codec import Many, Text, Writer
from masquerade.protocols.mix.messages import MixTerms
from masquerade.protocols.threshold.messages import MOST_BYTES, MOST_K, Terms

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
    def mix(self) -> MixTerms:
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
        return MixTerms(
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
