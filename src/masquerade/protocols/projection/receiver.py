"""The third party of a projection: receives columns turned by a rotation it does not know."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from masquerade.core.axes import Floats
from masquerade.core.errors import RoundAborted
from masquerade.core.schema import Schema
from masquerade.estimate.rotation import Reduction
from masquerade.protocols.codec import SESSION_SIZE
from masquerade.protocols.own_columns import Owners, check_owners
from masquerade.protocols.projection.messages import (
    MarginRequest,
    Numbers,
    ProjectionRequest,
    SealedSecret,
    SealedSecrets,
    SecretReceipt,
    SecretRequest,
)
from masquerade.protocols.projection.owner import projection_agreement
from masquerade.protocols.session_keys import convene
from masquerade.protocols.transport import Transport, ask


@dataclass(frozen=True, slots=True, eq=False)
class RemoteOwner:
    """An owner at the other end of a transport, asked as one that is here."""

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
            raise RoundAborted(f"{self.name!r} sent a table that is none.", spent=True, culprits=(self.name,))
        return values.reshape(shape)

    def submit(self, names: Sequence[str], asked: Sequence[str], reduction: Reduction | None) -> Floats:
        """Return the owner's projected products for a question about the variables `asked`."""
        p, k, trials = (0, 0, 1) if reduction is None else (reduction.p, reduction.k, reduction.trials)
        products = prod(self.schema.shape(names)) - 1
        width = self.n if reduction is None else k * trials
        message = ProjectionRequest(self.session, tuple(asked), p, k, trials)
        return self._numbers(message, products * width).reshape(products, width)

    def _numbers(self, message: MarginRequest | ProjectionRequest, count: int) -> Floats:
        values = ask(self.transport, self.name, message, Numbers, spent=True).values
        if values.size != count:
            raise RoundAborted(
                f"{self.name!r} sent {values.size:,} numbers instead of {count:,}.",
                spent=True,
                culprits=(self.name,),
            )
        return values


def convene_owners(
    owners: Owners, transport: Transport, schema: Schema, n: int, *, receiver: str, alignment: bytes = b""
) -> tuple[RemoteOwner, ...]:
    """Bring owners together, let the first draw their secret and hand it to the others, sealed."""
    check_owners(owners, schema, receiver)
    session = os.urandom(SESSION_SIZE)
    convene(tuple(owners), transport, session, projection_agreement(schema, owners, receiver, n, alignment))
    first, *others = owners
    dealt = ask(transport, first, SecretRequest(session), SealedSecrets, spent=False)
    if len(dealt.sealed) != len(others):
        raise RoundAborted(f"{first!r} dealt for others than the owners.", spent=False, culprits=(first,))
    for other, sealed in zip(others, dealt.sealed, strict=True):
        ask(transport, other, SealedSecret(session, sealed), SecretReceipt, spent=False)
    return tuple(
        RemoteOwner(party, Schema([schema[name] for name in schema if name in names]), session, n, transport)
        for party, names in owners.items()
    )
