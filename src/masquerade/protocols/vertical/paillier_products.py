"""Scalar products between exactly two parties without a helper (Goethals et al. 2004), for few records.

One party, the key owner, encrypts its indicator columns; the other, the evaluator, multiplies the ciphertexts
of the rows where its own column is one, adds a mask drawn from all of Z_n and re-randomises. The owner
decrypts a uniformly random number and returns it. The evaluator subtracts the mask and checks that the result
is a count.

Secure against semi-honest parties only, on both sides. An owner who encrypts a_r = 2^r in row r could read
the other column from the sum. The evaluator detects this, because the sum is not a count, but it cannot
detect an owner who encrypts only one person's row. An evaluator who raises row r to the power 2^r reads the
owner's whole column, undetected. The owner proves that masks modulo its modulus hide what they are added to.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError, Refusal, RoundAborted
from masquerade.core.guarantee import Disclosure, Guarantee
from masquerade.core.schema import Schema
from masquerade.crypto.errors import DecodingError
from masquerade.crypto.paillier import ROOTS, PaillierKey, PaillierPublic
from masquerade.protocols.vertical.columns import (
    ColumnPart,
    OwnColumns,
    Owners,
    Products,
    product_agreement,
    width,
)
from masquerade.protocols.wire.codec import Blob, Digest, Many, Name, SessionMessage
from masquerade.protocols.wire.session import Proposal, Responder, SignedConsent, Transport, ask

MOST_ROWS = 10_000
MOST_BYTES = 1 << 30  # of ciphertexts in a message


class SessionOpening(SessionMessage, tag=b"masquerade paillier open 1"):
    """The evaluator starts a session under this agreement."""

    agreement: Digest


class PaillierModulus(SessionMessage, tag=b"masquerade paillier key 2"):
    """The owner's public key, with a proof that masks modulo this key hide what they are added to."""

    n: Annotated[bytes, Blob(2048)]
    proof: Annotated[bytes, Blob(ROOTS * 2048)]


class EncryptionRequest(SessionMessage, tag=b"masquerade paillier encrypt 1"):
    """Ask for the encrypted columns of some variables."""

    names: Annotated[tuple[Name, ...], Many(1000)]


class Ciphertexts(SessionMessage, tag=b"masquerade paillier ciphertexts 1"):
    """Concatenated ciphertexts: encrypted columns, or masked sums to be decrypted."""

    values: Annotated[bytes, Blob(MOST_BYTES)]


class Plaintexts(SessionMessage, tag=b"masquerade paillier plaintexts 1"):
    """Decrypted masked sums."""

    values: Annotated[bytes, Blob(MOST_BYTES)]


class KeyOwner(Responder):
    """The party that encrypts; it learns nothing unless it receives the counts."""

    BEGINS = SessionOpening

    def __init__(
        self,
        name: str,
        codes: Mapping[str, NDArray[Any]],
        *,
        schema: Schema,
        owners: Owners,
        alignment: bytes = b"",
        variables: Collection[str] | None = None,
        key: PaillierKey | None = None,
    ) -> None:
        self._own = OwnColumns.of(name, codes, schema, owners, variables)
        self.agreement = _two_sided(self._own, name, schema, owners, alignment)
        self._key = PaillierKey() if key is None else key
        self._encrypted: dict[tuple[str, ...], bytes] = {}
        self.handlers = {
            SessionOpening: self._open,
            Proposal: lambda it: SignedConsent(it.session, it.round, self._own.refusals(it.batch.queries)),
            EncryptionRequest: self._encrypt,
            Ciphertexts: self._decrypt,
        }

    def _open(self, opening: SessionOpening) -> PaillierModulus:
        if opening.agreement != self.agreement:
            raise InputError(
                "The terms of the session differ: another schema, other owners or other records."
            )
        if self.session not in {None, opening.session}:
            raise InputError("This party serves one session; a new one needs a fresh key.")
        self.session = opening.session
        n = self._key.public.n.to_bytes(self._key.public.size, "big")
        return PaillierModulus(opening.session, n, self._key.prove(opening.session + self.agreement))

    def _encrypt(self, question: EncryptionRequest) -> Ciphertexts:
        """Return encrypted columns; repeated requests get the same ciphertexts."""
        names = question.names
        self._own.check(names)
        if names not in self._encrypted:
            bits = self._own.indicators(names).ravel().tolist()
            self._encrypted[names] = self._key.public.encode(self._key.encrypt(bit) for bit in bits)
        return Ciphertexts(question.session, self._encrypted[names])

    def _decrypt(self, sums: Ciphertexts) -> Plaintexts:
        public = self._key.public
        plain = [self._key.decrypt(value) for value in public.decode(sums.values)]
        return Plaintexts(sums.session, b"".join(value.to_bytes(public.size, "big") for value in plain))


class PaillierProducts(Products):
    """The evaluator: it holds the other columns, and learns only counts about the owner's columns."""

    def __init__(
        self,
        name: str,
        codes: Mapping[str, NDArray[Any]],
        transport: Transport,
        *,
        schema: Schema,
        owners: Owners,
        alignment: bytes = b"",
    ) -> None:
        self._own = OwnColumns.of(name, codes, schema, owners)
        agreement = _two_sided(self._own, name, schema, owners, alignment)
        (self._other,) = (party for party in owners if party != name)
        super().__init__(owners, schema, self._own.n, transport, (self._other,))
        self.name = name
        reply = ask(
            transport, self._other, SessionOpening(self.session, agreement), PaillierModulus, spent=False
        )
        self._key = PaillierPublic(int.from_bytes(reply.n, "big"))
        try:
            self._key.check(reply.proof, self.session + agreement)
        except DecodingError as error:
            raise RoundAborted(
                f"The key of {self._other!r} is refused: {error}", spent=False, culprits=(self._other,)
            ) from None
        self._columns: dict[tuple[str, ...], list[list[int]]] = {}

    def refusals(self, parts: Sequence[ColumnPart]) -> list[Refusal]:
        """Return the reasons why sums over these parts are refused."""
        for part in parts:
            size = width(self.schema, [part]) * self.n * 2 * self._key.size
            if part.party != self.name and size > MOST_BYTES:
                reason = f"The encrypted columns would have {size:,} bytes (at most {MOST_BYTES:,})."
                return [Refusal("too_many_cells", reason)]
        return []

    def _joint(self, parts: tuple[ColumnPart, ...]) -> NDArray[np.int64]:
        """Return the sums of products of one column of each part; the owner decrypts every sum once.

        The owner's margins are products with a column of ones, which every evaluator has.
        """
        if parts[0].party == self.name:
            margin = self._own.counts(parts[0].names)[1:]
            return margin if len(parts) == 1 else self._joint(parts[::-1]).T
        if parts not in self._known:
            ones = np.ones((1, self.n), dtype=np.uint64)
            own = self._own.indicators(parts[1].names) if len(parts) == 2 else ones
            sums = self._multiply(self._request_columns(parts[0].names), own)
            self._known[parts] = sums if len(parts) == 2 else sums[:, 0]
        return self._known[parts]

    def _multiply(self, theirs: list[list[int]], own: NDArray[np.uint64]) -> NDArray[np.int64]:
        n, size = self._key.n, self._key.size
        chosen = [np.flatnonzero(column).tolist() for column in own]
        masks, sums = [], []
        for column in theirs:
            for rows in chosen:
                masks.append(secrets.randbelow(n))
                fresh = self._key.encrypt(masks[-1])  # adds the mask and re-randomises in one step
                sums.append(self._key.product([fresh, *(column[row] for row in rows)]))
        question = Ciphertexts(self.session, self._key.encode(sums))
        reply = ask(self._transport, self._other, question, Plaintexts, spent=True).values
        if len(reply) != size * len(sums):
            reason = f"{self._other!r} decrypted a different number of sums."
            raise RoundAborted(reason, spent=True, culprits=(self._other,))
        opened = [int.from_bytes(reply[i * size : (i + 1) * size], "big") for i in range(len(sums))]
        counts = [(value - mask) % n for value, mask in zip(opened, masks, strict=True)]
        most = [len(rows) for rows in chosen] * len(theirs)
        if any(count > bound for count, bound in zip(counts, most, strict=True)):
            reason = "A sum of products is not a count: the other party did not encrypt zeros and ones."
            raise RoundAborted(reason, spent=True, culprits=(self._other,))
        return np.array(counts, dtype=np.int64).reshape(len(theirs), len(chosen))

    def _request_columns(self, names: tuple[str, ...]) -> list[list[int]]:
        if names not in self._columns:
            question = EncryptionRequest(self.session, names)
            reply = ask(self._transport, self._other, question, Ciphertexts, spent=True)
            values = self._key.decode(reply.values)
            lines = width(self.schema, [ColumnPart(self._other, names)])
            if len(values) != lines * self.n:
                raise RoundAborted(f"{self._other!r} encrypted different columns.", spent=True)
            self._columns[names] = [values[i * self.n : (i + 1) * self.n] for i in range(lines)]
        return self._columns[names]

    def guarantee(self) -> Guarantee:
        """Return the disclosures: counts for the evaluator, if both sides follow the protocol."""
        return Guarantee(
            (Disclosure(self.name, "exact counts of every table asked for", tuple(self.schema), None),),
            (
                f"Paillier's encryption with {self._key.n.bit_length()} bits is secure",
                f"{self.name} weights rows by zeros and ones: with powers of two it could read whole columns",
                f"{self._other} encrypts zeros and ones of its true records",
                "records were linked row by row in advance, and their number is public",
            ),
            dict.fromkeys(self.owners, "semi-honest"),
            0,
            dropouts=0,
        )


def _two_sided(own: OwnColumns, name: str, schema: Schema, owners: Owners, alignment: bytes) -> bytes:
    """Return the agreement; raise InputError for more than two parties, or for too many rows."""
    if len(owners) != 2 or name not in owners:
        raise InputError(
            "Scalar products without a helper are for exactly two parties; more parties need a helper."
        )
    if own.n > MOST_ROWS:
        raise InputError(
            f"Without a helper at most {MOST_ROWS:,} records are counted. Got {own.n:,} instead."
        )
    return product_agreement(schema, owners, "", own.n, alignment)  # there is no helper
