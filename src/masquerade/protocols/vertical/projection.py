"""Random orthogonal projection: owners of columns, and the third party that receives the projections.

An owner projects its columns with random numbers that only the owners know, and sends the projections. The
third party receives columns rotated by a matrix that it does not know.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import prod
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from masquerade.channels.policy import Policy
from masquerade.core.axes import Floats
from masquerade.core.errors import InputError, RoundAborted
from masquerade.core.query import Query
from masquerade.core.schema import Schema
from masquerade.core.util.formatting import duration
from masquerade.crypto.errors import SealBroken
from masquerade.crypto.keys import SigningKey
from masquerade.crypto.symmetric import KeyedStream, code, same, seal, unseal
from masquerade.estimate.rotation import Normals, RandomProjection, rotate
from masquerade.estimate.walsh import product_columns
from masquerade.protocols.vertical.columns import OwnColumns, Owners, check_owners
from masquerade.protocols.wire import codec
from masquerade.protocols.wire.session import Member, SessionOffer, Transport, agreement_of, ask, convene

SECRET_BYTES = 32
MOST_NUMBERS = 2**27
MOST_ROTATED = 10_000  # records; the time grows with their square, and is about 5 s per query on one core
ROTATION_SECONDS = 5e-8  # seconds per query and squared record, for both owners on one core
# who knows k columns of n records in clear guesses others right in Φ(√(k/(n − k))) of cases: 63% at k = n/10
RECORDS_A_COLUMN = 10
LEAST_SURE = 0.5  # noise factor of the covariance above which no standard error is reliable
_LABEL = "projection secret"

Sealed = Annotated[bytes, codec.Blob(200)]
Variables = Annotated[tuple[codec.Name, ...], codec.Many(1000)]


class SecretRequest(codec.SessionMessage, tag=b"masquerade projection deal 1"):
    """Ask the first owner for a fresh secret, sealed for every other owner."""


class SealedSecrets(codec.SessionMessage, tag=b"masquerade projection dealt 1"):
    """The owners' secret, sealed for each other owner, in the order of the roster."""

    sealed: Annotated[tuple[Sealed, ...], codec.Many(codec.MOST_PARTIES)]


class SealedSecret(codec.SessionMessage, tag=b"masquerade projection take 1"):
    """Deliver the sealed secret to an owner."""

    sealed: Sealed


class SecretReceipt(codec.SessionMessage, tag=b"masquerade projection taken 1"):
    """Confirm that an owner has the secret."""


class MarginRequest(codec.SessionMessage, tag=b"masquerade projection margin 1"):
    """Ask an owner for the exact table of some of its variables."""

    names: Variables


class ProjectionRequest(codec.SessionMessage, tag=b"masquerade projection submit 1"):
    """Ask an owner for its projected part of a query about `asked` (rotated if p is 0)."""

    asked: Variables
    p: codec.U64
    k: codec.U64
    trials: codec.U32


class Numbers(codec.SessionMessage, tag=b"masquerade projection numbers 1", eq=False):
    """A table, or concatenated projected columns."""

    values: Annotated[Floats, codec.Array("<f8", MOST_NUMBERS)]


def shared_normals(secret: bytes, question: str) -> Normals:
    """Return standard normal numbers for a query, the same for every holder of the secret.

    The bytes are a stream under a separate key for every query; 53 bits give one number.
    """
    from scipy.special import ndtri  # noqa: PLC0415  (scipy is slow to import)

    stream = KeyedStream(code(secret, f"masquerade projection {question}".encode()))

    def normals(n: int) -> Floats:
        words = np.frombuffer(stream.read(8 * n), dtype="<u8")
        return np.asarray(ndtri(((words >> np.uint64(11)) + 0.5) * 2.0**-53), dtype=np.float64)

    return normals


@dataclass(frozen=True, slots=True, eq=False)
class Owner:
    """A party with some columns of all records, which shares a secret with the other owners."""

    name: str
    columns: OwnColumns
    secret: bytes = field(repr=False)

    @property
    def schema(self) -> Schema:
        """Return the owner's variables."""
        return self.columns.schema

    def table(self, names: Sequence[str]) -> Floats:
        """Return the exact counts of variables of this owner."""
        return self.columns.counts(names).astype(np.float64).reshape(self.schema.shape(names))

    def submit(
        self, names: Sequence[str], asked: Sequence[str], reduction: RandomProjection | None
    ) -> Floats:
        """Return the projected products of this owner's variables, one per row, without the empty product.

        `asked` are all variables of the query, the same for all owners. The projection depends on them, so
        different queries have independent projections, and a repeated query gets the same columns again.
        """
        codes = [self.columns.codes[name] for name in names]
        products = product_columns(codes, self.schema.shape(names))[1:]
        normals = shared_normals(self.secret, Query(by=sorted(asked)).id)
        return rotate(products, normals) if reduction is None else reduction.project(products, normals)


class ProjectionOwner(Member):
    """Holds some columns of all records. The receiver, who is not an owner, learns the requested counts.

    `schema` lists all variables, `owners` the variables of each owner. `codes` are this owner's columns, in
    the agreed order of records (`alignment` is its digest). `variables` are the variables that it consents
    to.
    """

    def __init__(
        self,
        name: str,
        codes: Mapping[str, NDArray[Any]],
        identity: SigningKey,
        peers: Mapping[str, bytes],
        *,
        schema: Schema,
        owners: Owners,
        receiver: str,
        alignment: bytes = b"",
        variables: Collection[str] | None = None,
    ) -> None:
        check_owners(owners, schema, receiver)
        self._own = OwnColumns.of(name, codes, schema, owners, variables)
        agreement = projection_agreement(schema, owners, receiver, self._own.n, alignment)
        super().__init__(name, identity, peers, agreement)
        self._schema, self._owners = schema, frozenset(owners)
        self._secret: bytes | None = None
        self._way: tuple[int, int, int] | None = None
        self._asked: set[frozenset[str]] = set()
        self._parts = {party: frozenset(names) for party, names in owners.items()}
        self.handlers |= {
            SecretRequest: self._deal,
            SealedSecret: self._take,
            MarginRequest: self._margin,
            ProjectionRequest: self._submit,
        }

    def _check_offer(self, offer: SessionOffer) -> None:
        """Raise an error unless all members are owners: with the secret, others could undo the rotation."""
        if set(offer.roster) != self._owners:
            raise InputError("The roster does not list exactly the owners.")

    def _deal(self, question: SecretRequest) -> SealedSecrets:
        """Draw the secret, once; only the first owner of the roster may do so."""
        first, *others = self.members
        if first != self.name:
            raise InputError("The first owner of the roster draws the secret.")
        if self._secret is None:
            self._secret = os.urandom(SECRET_BYTES)
        keys = {other: self.secret(other, _LABEL) for other in others}
        sealed = tuple(seal(keys[other], self._secret, question.session) for other in others)
        return SealedSecrets(question.session, sealed)

    def _take(self, given: SealedSecret) -> SecretReceipt:
        first = self.members[0]
        secret = unseal(self.secret(first, _LABEL), given.sealed, given.session)
        if len(secret) != SECRET_BYTES or not (self._secret is None or same(self._secret, secret)):
            raise SealBroken("Another secret was dealt in this session already.")
        self._secret = secret
        return SecretReceipt(given.session)

    def _margin(self, question: MarginRequest) -> Numbers:
        self._own.check(question.names)
        return Numbers(question.session, self._owner().table(question.names).ravel())

    def _submit(self, question: ProjectionRequest) -> Numbers:
        """Project this owner's products for one query, by randomness used for no other query."""
        names = tuple(name for name in self._own.schema if name in question.asked)
        self._own.check(names)
        for name in question.asked:
            self._schema[name]
        self._check_columns(question.asked)
        way = (question.p, question.k, question.trials)
        if self._way not in {None, way}:
            raise InputError(
                "A session projects columns in one way only: a second projection would reuse the randomness."
            )
        dimensions = (question.p, question.k) if question.p else None
        reduction = reduction_of(dimensions, question.trials, self._own.n)
        size = self._own.n if reduction is None else reduction.trials * reduction.k
        if prod(self._own.schema.shape(names)) * max(size, self._own.n) > MOST_NUMBERS:
            raise InputError("The question asks for too many projected numbers.")
        columns = self._owner().submit(names, question.asked, reduction)
        self._way = way
        self._asked.add(frozenset(question.asked))
        return Numbers(question.session, columns.ravel())

    def _check_columns(self, asked: Collection[str]) -> None:
        """Raise an error if this session would show more columns of all owners than the records allow."""
        questions = {*self._asked, frozenset(asked)}
        parts = [part & question for question in questions for part in self._parts.values()]
        columns, most = products_in(parts, self._schema), self._own.n // RECORDS_A_COLUMN
        if columns > most:
            raise InputError(
                f"The session would send {columns:,} or more projected columns of {self._own.n:,} records, "
                f"and at most {most:,} are allowed, one per {RECORDS_A_COLUMN} records: a receiver who "
                "knows some of the records in clear could guess the others. Query fewer variables, or more "
                "records."
            )

    def _owner(self) -> Owner:
        if self._secret is None:
            raise InputError("The owners have no secret yet.")
        return Owner(self.name, self._own, self._secret)


def products_in(parts: Sequence[frozenset[str]], schema: Schema) -> int:
    """Return the number of different products of columns in queries about parts of owners' variables.

    Inner products of columns of two queries are counts too, so all columns of a session count together.
    """
    told = [sorted(name for name in part if len(schema[name]) > 1) for part in parts]
    largest = max((prod(schema.shape(part)) - 1 for part in told), default=0)
    if largest > MOST_ROTATED:  # too many in any case
        return largest
    subsets = {some for part in told for size in range(1, len(part) + 1) for some in combinations(part, size)}
    return sum(prod(len(schema[name]) - 1 for name in some) for some in subsets)


def reduction_of(dimensions: tuple[int, int] | None, trials: int, n: int) -> RandomProjection | None:
    """Return the projection of n records; raise InputError if it is too slow, too noisy or useless."""
    if dimensions is None:
        if trials != 1:
            raise InputError("A rotation is exact: 'trials' needs 'dimensions'.")
        if n > MOST_ROTATED:
            raise InputError(
                f"A rotation of {n:,} records takes too long: about {duration(ROTATION_SECONDS * n**2)} per "
                f"query, and the time grows with their square (at most {MOST_ROTATED:,}). Give 'dimensions' "
                "for estimates, count products without a projection, or rotate parts of the records "
                "separately and add the tables, which shows the receiver the counts of each part."
            )
        return None
    figures = (*dimensions, trials)
    if len(figures) != 3 or any(
        isinstance(size, bool) or not isinstance(size, (int, np.integer)) for size in figures
    ):
        raise InputError("'dimensions' must be two whole numbers (p, k) and 'trials' one.")
    p, k, _ = figures
    if min(figures) < 1 or max(p, k) > n:
        raise InputError(
            f"'dimensions' must be from 1 to the number of records ({n:,}) and 'trials' at least 1. Got "
            f"{dimensions} and {trials} instead."
        )
    reduction = RandomProjection(int(p), int(k), int(trials))
    if reduction.pairing > LEAST_SURE:
        raise InputError(
            "'dimensions' (p, k) and 'trials' are too small to estimate a standard error: (1/p + 1/k + "
            f"1/pk)/trials must be at most {LEAST_SURE}. Got {reduction.pairing:.3g} instead."
        )
    return reduction


def projection_agreement(schema: Schema, owners: Owners, receiver: str, n: int, alignment: bytes) -> bytes:
    """Return the agreement of all owners."""
    shared = ";".join(f"{party}:{','.join(names)}" for party, names in sorted(owners.items()))
    return agreement_of("projection", Policy.clear(schema).id, shared, receiver, str(n), alignment.hex())


@dataclass(frozen=True, slots=True, eq=False)
class RemoteOwner:
    """An owner at the other end of a transport, with the methods of a local owner."""

    name: str
    schema: Schema
    session: bytes
    n: int
    transport: Transport

    def table(self, names: Sequence[str]) -> Floats:
        """Return the exact counts of the owner's variables."""
        shape = self.schema.shape(names)
        values = self._numbers(MarginRequest(self.session, tuple(names)), prod(shape))
        if values.size and (values.min() < 0 or values.sum() != self.n):
            raise RoundAborted(f"{self.name!r} sent an invalid table.", spent=True, culprits=(self.name,))
        return values.reshape(shape)

    def submit(
        self, names: Sequence[str], asked: Sequence[str], reduction: RandomProjection | None
    ) -> Floats:
        """Return the owner's projected products for a question about the variables `asked`."""
        p, k, trials = (0, 0, 1) if reduction is None else (reduction.p, reduction.k, reduction.trials)
        products = prod(self.schema.shape(names)) - 1
        width = self.n if reduction is None else k * trials
        message = ProjectionRequest(self.session, tuple(asked), p, k, trials)
        return self._numbers(message, products * width).reshape(products, width)

    def _numbers(self, message: MarginRequest | ProjectionRequest, count: int) -> Floats:
        values = ask(self.transport, self.name, message, Numbers, spent=True).values
        if values.size != count:
            reason = f"{self.name!r} sent {values.size:,} numbers instead of {count:,}."
            raise RoundAborted(reason, spent=True, culprits=(self.name,))
        return values


def convene_owners(
    owners: Owners, transport: Transport, schema: Schema, n: int, *, receiver: str, alignment: bytes = b""
) -> tuple[RemoteOwner, ...]:
    """Start a session of the owners; the first owner draws the secret, which is sealed for the others."""
    check_owners(owners, schema, receiver)
    session = os.urandom(codec.SESSION_SIZE)
    convene(tuple(owners), transport, session, projection_agreement(schema, owners, receiver, n, alignment))
    first, *others = owners
    dealt = ask(transport, first, SecretRequest(session), SealedSecrets, spent=False)
    if len(dealt.sealed) != len(others):
        raise RoundAborted(
            f"{first!r} sealed the secret for parties other than the owners.", spent=False, culprits=(first,)
        )
    for other, sealed in zip(others, dealt.sealed, strict=True):
        ask(transport, other, SealedSecret(session, sealed), SecretReceipt, spent=False)
    return tuple(
        RemoteOwner(party, Schema([schema[name] for name in schema if name in names]), session, n, transport)
        for party, names in owners.items()
    )
