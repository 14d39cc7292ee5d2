"""An owner of columns: projects them by randomness that only owners know, and never shows them otherwise."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from math import prod
from typing import Any

from numpy.typing import NDArray

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError
from masquerade.core.schema import Schema
from masquerade.crypto.errors import SealBroken
from masquerade.crypto.keys import SigningKey
from masquerade.crypto.sealed_messages import seal, unseal
from masquerade.estimate.rotation import Reduction
from masquerade.protocols.codec import check_session, tag_of
from masquerade.protocols.projection.messages import Deal, Dealt, Margin, Numbers, Submit, Take, Taken
from masquerade.protocols.session_keys import Advert, Join, Membership, Roster, terms_of
from masquerade.sources.projected import check_owners, reduction_of
from masquerade.sources.projection_owner import SECRET_BYTES, Owner

LABEL = "projection secret"
MOST_NUMBERS = 2**27


class ProjectionOwner:
    """Holds some columns of all records. The receiver, who is none of the owners, learns the counts it asks.

    `schema` lists all variables and `owners` who holds which; `codes` are this owner's, in the order of the
    records that all agreed on (`alignment` is its digest). `variables` are those it consents to.
    """

    def __init__(
        self,
        name: str,
        codes: Mapping[str, NDArray[Any]],
        identity: SigningKey,
        peers: Mapping[str, bytes],
        *,
        schema: Schema,
        owners: Mapping[str, Sequence[str]],
        receiver: str,
        alignment: bytes = b"",
        variables: Collection[str] | None = None,
    ) -> None:
        check_owners(owners, schema, receiver)
        self.name, self._schema, self._codes = name, schema, dict(codes)
        self._own = Schema([schema[variable] for variable in schema if variable in owners[name]])
        self._n = len(next(iter(self._codes.values())))
        self._membership = Membership(name, identity, peers)
        self._terms = projection_terms(schema, owners, receiver, self._n, alignment)
        self._consented = frozenset(self._own if variables is None else variables)
        self._owners = frozenset(owners)
        self._secret: bytes | None = None
        self._way: tuple[int, int, int] | None = None

    def receive(self, message: bytes) -> bytes:
        """Return the reply to a message; a refused one changes nothing."""
        tag = tag_of(message)
        if tag == Join.TAG:
            return self._join(Join.decode(message)).encode()
        if tag == Roster.TAG:
            return self._membership.accept(Roster.decode(message)).encode()
        if tag == Deal.TAG:
            return self._deal(Deal.decode(message)).encode()
        if tag == Take.TAG:
            return self._take(Take.decode(message)).encode()
        if tag == Margin.TAG:
            return self._margin(Margin.decode(message)).encode()
        return self._submit(Submit.decode(message)).encode()

    def _join(self, offer: Join) -> Advert:
        """Join the owners, all of them and nobody else: with the secret anybody could undo the rotation."""
        if set(offer.roster) != self._owners:
            raise InputError("The roster is not that of the owners.")
        return self._membership.join(offer, self._terms)

    def _deal(self, question: Deal) -> Dealt:
        """Draw the secret once; only the first owner of the roster does."""
        check_session(question.session, self._membership.session)
        first, *others = self._membership.members
        if first != self.name:
            raise InputError("The first owner of the roster draws the secret.")
        if self._secret is None:
            self._secret = os.urandom(SECRET_BYTES)
        keys = {other: self._membership.secret(other, LABEL) for other in others}
        sealed = tuple(seal(keys[other], self._secret, question.session) for other in others)
        return Dealt(question.session, sealed)

    def _take(self, given: Take) -> Taken:
        check_session(given.session, self._membership.session)
        first = self._membership.members[0]
        secret = unseal(self._membership.secret(first, LABEL), given.sealed, given.session)
        if len(secret) != SECRET_BYTES or self._secret not in {None, secret}:
            raise SealBroken("Another secret was dealt in this session already.")
        self._secret = secret
        return Taken(given.session)

    def _margin(self, question: Margin) -> Numbers:
        check_session(question.session, self._membership.session)
        self._check_own(question.names)
        return Numbers(question.session, self._owner().table(question.names).ravel())

    def _submit(self, question: Submit) -> Numbers:
        """Project own products for one question; the randomness belongs to the question alone."""
        check_session(question.session, self._membership.session)
        names = tuple(name for name in self._own if name in question.asked)
        self._check_own(names)
        for name in question.asked:
            self._schema[name]
        way = (question.p, question.k, question.trials)
        if self._way not in {None, way}:
            raise InputError("Columns are projected in one way in a session; two would share randomness.")
        dimensions = (question.p, question.k) if question.p else None
        reduction: Reduction | None = reduction_of(dimensions, question.trials, self._n)
        size = self._n if reduction is None else reduction.trials * reduction.k
        if prod(self._own.shape(names)) * max(size, self._n) > MOST_NUMBERS:
            raise InputError("The question asks for too many projected numbers.")
        columns = self._owner().submit(names, question.asked, reduction)
        self._way = way
        return Numbers(question.session, columns.ravel())

    def _owner(self) -> Owner:
        if self._secret is None:
            raise InputError("The owners have no secret yet.")
        return Owner(self.name, self._own, self._codes, self._secret)

    def _check_own(self, names: Sequence[str]) -> None:
        if not names or tuple(names) != tuple(name for name in self._own if name in names):
            raise InputError("These are not variables of this owner in the order of the schema.")
        if not self._consented.issuperset(names):
            raise InputError("A variable may not be counted here.")


def projection_terms(
    schema: Schema, owners: Mapping[str, Sequence[str]], receiver: str, n: int, alignment: bytes
) -> bytes:
    """Return what all owners must agree on."""
    shared = ";".join(f"{party}:{','.join(names)}" for party, names in sorted(owners.items()))
    return terms_of("projection", Policy.clear(schema).id, shared, receiver, str(n), alignment.hex())
