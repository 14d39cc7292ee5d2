"""Who is enrolled, and what binds messages to one session, one round and one batch of questions."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from masquerade.channels.policy import Policy
from masquerade.channels.privacy import guarantee_of
from masquerade.core.errors import InputError
from masquerade.crypto.keys import SigningKey, decode_identity
from masquerade.protocols.aggregation.masks import ring
from masquerade.protocols.aggregation.parameters import Parameters

NONCE_SIZE = 16


class Signer(NamedTuple):
    """An identity key and the name it was enrolled under."""

    identity: bytes
    name: str


@dataclass(frozen=True)
class Roster:
    """Everybody's name and identity key, in the order of enrolment; a user is known by the place in it.

    Everybody has the same roster, from enrolment and not from the server: 32 bytes a user, once.
    """

    names: tuple[str, ...]
    identities: tuple[bytes, ...]

    def __post_init__(self) -> None:
        if len(self.names) != len(self.identities):
            raise InputError("A roster has one identity key for every name.")
        if len(set(self.identities)) < len(self.identities) or len(set(self.names)) < len(self.names):
            raise InputError("A roster lists a name or an identity key twice.")
        for identity in self.identities:
            decode_identity(identity)

    def signer(self, place: int) -> Signer:
        """Return whose signature messages of a user must bear."""
        return Signer(self.identities[place], self.names[place])

    def __len__(self) -> int:
        """Return how many users are enrolled."""
        return len(self.names)

    @cached_property
    def hash(self) -> bytes:
        """Return the sha256 of names and keys in order."""
        digest = hashlib.sha256(b"masquerade aggregation roster")
        for name, identity in zip(self.names, self.identities, strict=True):
            encoded = name.encode()
            digest.update(len(encoded).to_bytes(4, "big") + encoded + identity)
        return digest.digest()


def enrol(names: Sequence[str]) -> tuple[Roster, list[SigningKey]]:
    """Return a roster with fresh identities, and their secret keys: what enrolment does, for one process."""
    keys = [SigningKey() for _ in names]
    return Roster(tuple(names), tuple(key.public for key in keys)), keys


@dataclass(frozen=True, slots=True)
class Context:
    """What every key and signature of a round is bound to: session, round and the hash of the batch."""

    session: bytes
    round: int
    batch: bytes

    @property
    def info(self) -> bytes:
        """Return session‖round‖batch hash."""
        return self.session + self.round.to_bytes(4, "big") + self.batch

    @property
    def opening(self) -> Context:
        """Return what the drawing of the graph is bound to: the session alone, which keeps its graph."""
        return Context(self.session, 0, bytes(32))

    @property
    def tag(self) -> bytes:
        """Return eight bytes by which messages of another round are told apart."""
        return hashlib.sha256(b"masquerade aggregation tag" + self.info).digest()[:8]


@dataclass(frozen=True)
class Terms:
    """What everybody agreed to at enrolment: who takes part, against whom it protects, what a record is.

    `sizes` are the numbers of categories of the columns as they are reported; `policy` is the id of the
    policy by which records are disguised first. `disguised` tells that it bounds what a report says about
    every variable: then the differences of sums need no protection of their own.
    """

    roster: Roster
    parameters: Parameters
    sizes: tuple[int, ...]
    policy: str
    disguised: bool

    def __post_init__(self) -> None:
        if len(self.roster) != self.parameters.users:
            raise InputError(
                f"The parameters are for {self.parameters.users} users, the roster lists {len(self.roster)}."
            )

    @classmethod
    def of(cls, roster: Roster, parameters: Parameters, policy: Policy) -> Terms:
        """Return the terms for records that a policy describes (`Policy.clear` disguises nothing)."""
        bounded = all(item.gamma is not None for item in guarantee_of(policy).disclosures)
        return cls(roster, parameters, policy.observed.shape(policy.schema), policy.id, bounded)

    @cached_property
    def width(self) -> np.dtype[Any]:
        """Return the numbers that votes are summed in."""
        return ring(self.parameters.users)

    def session(self, nonce: bytes) -> bytes:
        """Return the name of a session: nobody who agreed to other terms gets the same."""
        digest = hashlib.sha256(b"masquerade aggregation session" + self.roster.hash)
        digest.update(self.parameters.encode() + self.policy.encode() + nonce)
        return digest.digest()
