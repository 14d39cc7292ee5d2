"""The form of Wright's talk of 2005: a dealer's polynomial, keys and shares in the exponent.

A dealer draws a polynomial f of degree k − 1 for one epoch; user i of N gets f(i) and f(N + i). With H the
hash of epoch and quasi-identifier, user i seals its sensitive part by a key from f(i)·H and submits f(N +
i)·H. From k such points of one quasi-identifier the collector interpolates f(i)·H of every user of the class;
fewer points reveal nothing about them. This is a reconstruction from the talk's slides. The commitments, by
which users check their points and all others check the users' points, are an addition: without them one bad
point would spoil a class, and its sender could not be identified.

Disclosures: `faithful_guarantee` of `row_schema`. The collector sees all quasi-identifiers and their senders;
the dealer must be trusted. Every user has two points, so c colluding users lower k to k − 2c for every class,
and ⌈k/2⌉ of them know f.

State is in memory only, and a crash reveals nothing. A dealer that stopped has lost f, as intended: it deals
no further points, and the epoch continues with the points dealt, or ends. A user who is interrupted sends the
same row again, without a new draw. The collector opens classes by itself; opening them again reveals nothing
new.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar, Final, NoReturn

from masquerade.core.errors import InputError
from masquerade.crypto import proofs
from masquerade.crypto.errors import DecodingError, ProofRejected, SealBroken, SharesInconsistent
from masquerade.crypto.group import Point, interpolate_points
from masquerade.crypto.keys import derive
from masquerade.crypto.ristretto255 import ristretto255 as group
from masquerade.crypto.symmetric import OVERHEAD, seal, unseal
from masquerade.protocols.wire.codec import U32, Blob, Many, Message, Text, point_of, scalar_of

MOST_USERS: Final = 100_000
MOST_K: Final = 1000
MOST_PRODUCTS: Final = 200_000  # class size times k: about 20 s
_MOST_NAME, _MOST_PART, _LENGTH = 200, 4096, 2
_DOMAIN: Final = b"masquerade threshold faithful 1"

GroupPoint = Annotated[Point, point_of(group)]
Scalar = Annotated[int, scalar_of(group)]


class PublicDeal(Message, tag=b"threshold dealing 1"):
    """The dealer's public message: epoch, k, number of users, and a_j·G for every coefficient of f."""

    epoch: Annotated[str, Text(_MOST_NAME)]
    users: U32
    sensitive_size: U32
    commitments: Annotated[tuple[GroupPoint, ...], Many(MOST_K)]

    def __post_init__(self) -> None:
        if not self.epoch or not 2 <= len(self.commitments) <= MOST_K:
            raise InputError(f"A dealing names its epoch and has k from 2 to {MOST_K:,}.")
        if not self.k <= self.users <= MOST_USERS:
            raise InputError(f"A dealing is for k to {MOST_USERS:,} users. Got {self.users:,} instead.")
        if not 1 <= self.sensitive_size <= _MOST_PART:
            raise InputError(f"'sensitive_size' must be from 1 to {_MOST_PART:,} bytes.")

    @property
    def k(self) -> int:
        """Return the number of equal quasi-identifiers that open a class."""
        return len(self.commitments)

    @cached_property
    def digest(self) -> bytes:
        """Return the SHA-256 of the dealing."""
        return hashlib.sha256(self.encode()).digest()

    def commitment_of(self, x: int) -> Point:
        """Return f(x)·G."""
        return group.combine_public(self.commitments, [pow(x, j, group.order) for j in range(self.k)])

    def base(self, quasi: bytes) -> Point:
        """Return H, the hash of epoch and quasi-identifier: nobody knows its logarithm."""
        return group.hash_to_group(self.digest + quasi, _DOMAIN)

    def statement(self, index: int, point: Point, base: Point) -> proofs.Statement:
        """Return the statement that the point is H times the number that the dealer committed to at N + i."""
        return proofs.equal_logs([(self.commitment_of(self.users + index), group.generator), (point, base)])

    def transcript(self, index: int, quasi: bytes, sealed: bytes) -> proofs.Transcript:
        """Return the transcript of a user's proof, which includes the row and its sealed part."""
        query, user = hashlib.sha256(quasi).digest(), index.to_bytes(4, "big")
        context = proofs.Context("threshold faithful", self.epoch.encode(), self.digest, query, user, "user")
        bound = proofs.Transcript(context)
        bound.absorb("sealed", hashlib.sha256(sealed).digest())
        return bound

    def key(self, index: int, point: Point) -> bytes:
        """Return the key that follows from f(i)·H."""
        return derive(point.encode(), "threshold faithful key", self.digest, index.to_bytes(4, "big"))


@dataclass(frozen=True, repr=False)
class PrivateDeal(Message):
    """A dealer's private message to one user: its index and two values of f."""

    TAG: ClassVar[bytes] = b"threshold deal 1"
    index: U32
    own: Scalar
    submitted: Scalar


class DealtSubmission(Message, tag=b"threshold submission 1"):
    """A user's submission: clear quasi-identifier, point with a proof, and sealed sensitive part."""

    index: U32
    quasi: Annotated[bytes, Blob(_MOST_PART)]
    point: GroupPoint
    proof: Annotated[bytes, Blob(1024)]
    sealed: Annotated[bytes, Blob(_MOST_PART + OVERHEAD + _LENGTH)]


class PolynomialDealer:
    """Draws the polynomial of one epoch and deals its values. Call `forget` when all users have theirs."""

    def __init__(self, epoch: str, *, k: int, users: int, sensitive_size: int) -> None:
        if not 2 <= k <= MOST_K:
            raise InputError(f"'k' must be from 2 to {MOST_K:,}. Got {k} instead.")
        self._coefficients = [group.random_secret() for _ in range(k)]
        committed = tuple(map(group.multiply_generator, self._coefficients))
        self._dealing = PublicDeal(epoch, users, sensitive_size, committed)

    def dealing(self) -> bytes:
        """Return the public message, to be published once."""
        return self._dealing.encode()

    def deal(self, index: int) -> bytes:
        """Return the private message for user `index`, from 1 to N."""
        if not 1 <= index <= self._dealing.users:
            raise InputError(f"Users are numbered from 1 to {self._dealing.users:,}. Got {index} instead.")
        return PrivateDeal(index, self._value(index), self._value(self._dealing.users + index)).encode()

    def _value(self, x: int) -> int:
        value = 0
        for coefficient in reversed(self._coefficients):
            value = (value * x + coefficient.reveal()) % group.order
        return value

    def forget(self) -> None:
        """Overwrite the polynomial, so that nothing more can be dealt."""
        for coefficient in self._coefficients:
            coefficient.wipe()

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        raise TypeError("a PolynomialDealer is not pickled: it must be deleted")


class DealtUser:
    """A person's side: checks the dealt values, and submits one row."""

    def __init__(self, dealing: bytes, deal: bytes) -> None:
        self._dealing, dealt = PublicDeal.decode(dealing), PrivateDeal.decode(deal)
        self.index = dealt.index
        if not 1 <= dealt.index <= self._dealing.users or 0 in {dealt.own, dealt.submitted}:
            raise SharesInconsistent("The dealer dealt an invalid value, or to an unknown user.")
        self._own, self._submitted = group.secret(dealt.own), group.secret(dealt.submitted)
        for x, value in ((self.index, self._own), (self._dealing.users + self.index, self._submitted)):
            if group.multiply_generator(value) != self._dealing.commitment_of(x):
                raise SharesInconsistent(
                    "The dealer dealt values of a different polynomial from its commitments."
                )
        self._sent: tuple[bytes, bytes, bytes] | None = None

    def submit(self, quasi: bytes, sensitive: bytes) -> bytes:
        """Return the submission of a row; a repeated call for the same row returns the same bytes."""
        if self._sent is not None:
            if self._sent[:2] != (quasi, sensitive):
                raise InputError(
                    "A user submits one row per epoch, and has submitted a different row already."
                )
            return self._sent[2]
        size = self._dealing.sensitive_size
        if len(sensitive) > size:
            raise InputError(
                f"The sensitive part of a row has at most {size} bytes here. Got {len(sensitive)}."
            )
        base = self._dealing.base(quasi)
        point = group.multiply(base, self._submitted)
        plain = len(sensitive).to_bytes(_LENGTH, "big") + sensitive + bytes(size - len(sensitive))
        sealed = seal(self._dealing.key(self.index, group.multiply(base, self._own)), plain, quasi)
        proof = proofs.prove(
            self._dealing.statement(self.index, point, base),
            [proofs.Knows((self._submitted,))],
            self._dealing.transcript(self.index, quasi, sealed),
        )
        message = DealtSubmission(self.index, quasi, point, proof, sealed).encode()
        self._sent = quasi, sensitive, message
        self._own.wipe()
        self._submitted.wipe()
        return message


@dataclass(frozen=True)
class OpenRows:
    """Open rows (quasi-identifier, sensitive part), and the faults of submissions by user."""

    rows: tuple[tuple[bytes, bytes], ...]
    faults: tuple[tuple[int, str], ...]


class DealtMiner:
    """The collector of the faithful form: opens the classes with at least k good points."""

    def __init__(self, dealing: bytes) -> None:
        self._dealing = PublicDeal.decode(dealing)
        self._taken: dict[int, DealtSubmission] = {}

    def take(self, submission: bytes) -> None:
        """Store a submission, one per user, if its proof is valid.

        `ProofRejected` names the user in the message, who may not be its sender: a relay can change a
        message. A stored submission was made by the user, so a fault found later is the user's.
        """
        given = DealtSubmission.decode(submission)
        if not 1 <= given.index <= self._dealing.users:
            raise DecodingError(
                f"Users are numbered from 1 to {self._dealing.users:,}. Got {given.index} instead."
            )
        statement = self._dealing.statement(given.index, given.point, self._dealing.base(given.quasi))
        expected = self._dealing.sensitive_size + OVERHEAD + _LENGTH
        if len(given.proof) != proofs.proof_size(statement) or len(given.sealed) != expected:
            raise DecodingError(f"The submission of user {given.index} has parts of the wrong length.")
        try:
            bound = self._dealing.transcript(given.index, given.quasi, given.sealed)
            proofs.verify(statement, given.proof, bound)
        except ProofRejected as error:
            raise ProofRejected(
                f"The submission for user {given.index} has no valid proof: its point was not dealt, or it "
                "was changed on the way."
            ) from error
        if self._taken.get(given.index, given) != given:
            raise InputError(f"User {given.index} has submitted a different row.")
        self._taken[given.index] = given

    def open_classes(self) -> OpenRows:
        """Return the rows of all classes with at least k readable rows.

        Formula: f(i)·H = Σ_j λ_j(i)·f(N + j)·H over k users j of the class. Cost: k multiplications a row.
        """
        classes: dict[bytes, list[DealtSubmission]] = {}
        for one in self._taken.values():
            classes.setdefault(one.quasi, []).append(one)
        rows: list[tuple[bytes, bytes]] = []
        faults: list[tuple[int, str]] = []
        for quasi, members in classes.items():
            if len(members) < self._dealing.k:
                continue
            if len(members) * self._dealing.k > MOST_PRODUCTS:
                raise InputError(
                    f"A class of {len(members):,} at k = {self._dealing.k} takes more than {MOST_PRODUCTS:,} "
                    "multiplications: use the form with a randomness server."
                )
            read = [(one.index, self._read(one, members)) for one in members]
            faults += [(index, "its sealed part does not open") for index, part in read if part is None]
            good = [part for _, part in read if part is not None]
            if len(good) >= self._dealing.k:
                rows += [(quasi, part) for part in good]
        return OpenRows(tuple(rows), tuple(sorted(faults)))

    def _read(self, one: DealtSubmission, members: Sequence[DealtSubmission]) -> bytes | None:
        some = members[: self._dealing.k]
        xs = [self._dealing.users + other.index for other in some]
        point = interpolate_points(xs, [other.point for other in some], one.index, group)
        if point.is_identity:
            return None
        try:
            plain = unseal(self._dealing.key(one.index, point), one.sealed, one.quasi)
        except SealBroken:
            return None
        length = int.from_bytes(plain[:_LENGTH], "big")
        part, padding = plain[_LENGTH : _LENGTH + length], plain[_LENGTH + length :]
        return part if length <= self._dealing.sensitive_size and not any(padding) else None
