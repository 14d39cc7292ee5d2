"""The third party of a projection: receives columns turned by a rotation it does not know, and counts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from masquerade.core.axes import Floats
from masquerade.core.errors import RoundAborted
from masquerade.core.schema import Schema
from masquerade.estimate.rotation import Reduction
from masquerade.protocols.codec import SESSION_SIZE
from masquerade.protocols.projection.messages import Deal, Dealt, Margin, Numbers, Submit, Take, Taken
from masquerade.protocols.projection.owner import projection_terms
from masquerade.protocols.session_keys import Advert, Join, Joined, Roster
from masquerade.protocols.transport import Transport, ask
from masquerade.sources.projected import check_owners, reduction_of
from masquerade.sources.projection import Projected


@dataclass(frozen=True, slots=True, eq=False)
class RemoteOwner:
    """An owner at the other end of a transport, as `Projected` asks it."""

    name: str
    schema: Schema
    session: bytes
    n: int
    transport: Transport

    def table(self, names: Sequence[str]) -> Floats:
        """Return the exact counts of the owner's variables."""
        shape = self.schema.shape(names)
        values = self._numbers(Margin(self.session, tuple(names)), prod(shape))
        if values.size and (values.min() < 0 or values.sum() != self.n):
            raise RoundAborted(f"{self.name!r} sent a table that is none.", spent=True, culprits=(self.name,))
        return values.reshape(shape)

    def submit(self, names: Sequence[str], asked: Sequence[str], reduction: Reduction | None) -> Floats:
        """Return the owner's projected products for a question about the variables `asked`."""
        p, k, trials = (0, 0, 1) if reduction is None else (reduction.p, reduction.k, reduction.trials)
        products = prod(self.schema.shape(names)) - 1
        width = self.n if reduction is None else k * trials
        message = Submit(self.session, tuple(asked), p, k, trials)
        return self._numbers(message, products * width).reshape(products, width)

    def _numbers(self, message: Margin | Submit, count: int) -> Floats:
        values = ask(self.transport, self.name, message, Numbers, spent=True).values
        if values.size != count:
            raise RoundAborted(
                f"{self.name!r} sent {values.size:,} numbers instead of {count:,}.",
                spent=True,
                culprits=(self.name,),
            )
        return values


def receive_projected(
    owners: Mapping[str, Sequence[str]],
    transport: Transport,
    schema: Schema,
    n: int,
    *,
    receiver: str,
    alignment: bytes = b"",
    dimensions: tuple[int, int] | None = None,
    trials: int = 1,
) -> Projected:
    """Bring owners together and return a source of counts over all of their columns."""
    check_owners(owners, schema, receiver)
    reduction = reduction_of(dimensions, trials, n)
    session = os.urandom(SESSION_SIZE)
    terms = projection_terms(schema, owners, receiver, n, alignment)
    convened(tuple(owners), transport, session, terms)
    first, *others = owners
    dealt = ask(transport, first, Deal(session), Dealt, spent=False)
    if len(dealt.sealed) != len(others):
        raise RoundAborted(f"{first!r} dealt for others than the owners.", spent=False, culprits=(first,))
    for other, sealed in zip(others, dealt.sealed, strict=True):
        ask(transport, other, Take(session, sealed), Taken, spent=False)
    remote = tuple(
        RemoteOwner(party, Schema([schema[name] for name in schema if name in names]), session, n, transport)
        for party, names in owners.items()
    )
    return Projected(remote, schema, n, reduction, receiver)


def convened(parties: tuple[str, ...], transport: Transport, session: bytes, terms: bytes) -> None:
    """Let parties join a session, all of them under the roster that all have checked."""
    offer = Join(session, terms, parties)
    adverts = [ask(transport, party, offer, Advert, spent=False) for party in parties]
    roster = Roster(session, tuple(advert.encode() for advert in adverts))
    for party in parties:
        if ask(transport, party, roster, Joined, spent=False).roster != roster.digest:
            raise RoundAborted(f"Party {party!r} saw another roster.", spent=False, culprits=(party,))
