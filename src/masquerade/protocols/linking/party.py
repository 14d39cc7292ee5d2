"""A party that links its records with others': its keys leave it only as points under secret masks.

The party learns which of its own records all parties have, and how many keys every other party has. A party
that inserts guessed keys learns whether all the others have them: that is why sets are capped. With
identities every step is signed, nobody masks a set that its origin did not send, and no pseudonym is shown
before all parties have their sets back whole: whoever carries the sets cannot insert guesses.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError
from masquerade.crypto.errors import KeySpent
from masquerade.crypto.keys import SigningKey
from masquerade.crypto.point_masks import decoded, encoded, hashed, masked, quotient
from masquerade.crypto.ristretto255 import ristretto255
from masquerade.crypto.symmetric import coder
from masquerade.disguising.columns import permutation
from masquerade.protocols.codec import Message, tag_of
from masquerade.protocols.linking.messages import (
    PSEUDONYM_SIZE,
    Confirmation,
    LinkingOffer,
    MaskedPoints,
    PseudonymRequest,
    Pseudonyms,
    Receipt,
    ReturnedPoints,
)
from masquerade.protocols.linking.record_keys import Key, normal_forms
from masquerade.protocols.linking.signed_steps import Chain, digest_of
from masquerade.protocols.session import check_session

MOST_KEYS = 1_000_000
DOMAIN = b"masquerade linking 1 "


class LinkingParty:
    """One party of one linking session; a second session needs a fresh object and has other pseudonyms.

    `keys` name the records of this party, one each, in their order. `most` caps every set of the session.
    `roster` are the parties that it must have, this one among them; None takes whom it is offered. Fewer
    common records than `least` are refused: whoever compares says which are common, and could single out a
    person. With `identity` and the identities of the others (`peers`, by name) all steps are signed; without,
    whoever carries the messages must be trusted to pass sets on as they are.
    """

    def __init__(
        self,
        name: str,
        keys: Sequence[Key],
        *,
        most: int = MOST_KEYS,
        roster: Collection[str] | None = None,
        identity: SigningKey | None = None,
        peers: Mapping[str, bytes] | None = None,
        least: int = 0,
    ) -> None:
        self.name, self._least, self._most = name, least, most
        self._roster = None if roster is None else frozenset(roster)
        if self._roster is not None and (name not in self._roster or len(self._roster) < 2):
            raise InputError("The roster of a session has two parties or more, this one among them.")
        if least < 0:
            raise InputError(f"At least 0 common records can be asked for. Got {least} instead.")
        if (identity is None) != (peers is None):
            raise InputError("Steps are signed by an identity and checked by peers: give both or neither.")
        self._identity = identity
        self._peers = {} if identity is None else {**(peers or {}), name: identity.public}
        self._offer: LinkingOffer | None = None
        self._chain: Chain | None = None
        self._forms = normal_forms(keys, most)
        self._order = permutation(len(self._forms))
        self._draw()
        self._kinds: dict[bytes, tuple[type[Message], Callable[[Any], Message]]] = {
            LinkingOffer.TAG: (LinkingOffer, self._begin),
            MaskedPoints.TAG: (MaskedPoints, self._mask_others),
            ReturnedPoints.TAG: (ReturnedPoints, self._finish),
            Confirmation.TAG: (Confirmation, self._confirm),
            PseudonymRequest.TAG: (PseudonymRequest, self._compare),
        }

    def receive(self, message: bytes) -> bytes:
        """Return the reply to a message; asked again it says the same, a refused one changes nothing."""
        tag, digest = tag_of(message), hashlib.sha256(message).digest()
        kind, reply_to = self._kinds.get(tag, (Pseudonyms, self._settle))
        found = kind.decode(message)
        step = (tag, found.origin if isinstance(found, MaskedPoints) else "")
        if step in self._replies:
            before, reply = self._replies[step]
            if before != digest:
                raise KeySpent("This step of the session was done already, with another message.")
            return reply
        reply = reply_to(found).encode()
        self._replies[step] = (digest, reply)
        return reply

    @property
    def pseudonyms(self) -> list[bytes]:
        """Return the pseudonym of every own record, in own order: for cells that a miner merges."""
        if self._pseudonyms is None:
            raise InputError("The records have no pseudonyms yet, or they were forgotten.")
        if self._chain is not None and not self._confirmed:
            raise InputError("Not every party has signed yet that its set came back whole.")
        return self._pseudonyms

    @property
    def common(self) -> list[bytes]:
        """Return the pseudonyms of the records that all parties have, sorted."""
        if self._common is None:
            raise InputError("The common records are not known yet, or were forgotten.")
        return self._common

    @property
    def rows(self) -> NDArray[np.intp]:
        """Return the places of the common records among own ones, in the order that all parties share."""
        place = {pseudonym: row for row, pseudonym in enumerate(self.pseudonyms)}
        return np.array([place[pseudonym] for pseudonym in self.common], dtype=np.intp)

    def forget(self) -> None:
        """Destroy pseudonyms and masks; nobody can link by them any more."""
        self._forms = []
        self._draw()

    def _draw(self) -> None:
        """Start with fresh masks and without any pseudonym."""
        self._pseudonyms: list[bytes] | None = None
        self._common: list[bytes] | None = None
        self._replies: dict[tuple[bytes, str], tuple[bytes, bytes]] = {}
        self._sent, self._sizes, self._confirmed = b"", dict[str, int](), False
        self._mask, self._blind = ristretto255.random_secret(), ristretto255.random_secret()

    def _begin(self, offer: LinkingOffer) -> MaskedPoints:
        roster = offer.roster
        if len(roster) < 2 or len(set(roster)) < len(roster) or self.name not in roster:
            raise InputError("Linking needs two parties or more, each named once, this one among them.")
        if self._roster is not None and self._roster != set(roster):
            raise InputError("The session is offered with other parties than were agreed on.")
        if offer.most > self._most:
            raise InputError(f"This party links sets of at most {self._most:,} keys.")
        if len(self._forms) > offer.most:
            raise InputError(f"The session takes at most {offer.most:,} keys of a party.")
        chain = None if self._identity is None else Chain(offer, self._peers)
        if len(roster) == 2:  # two parties learn the intersection anyway: nothing to take off at the end
            self._blind = self._mask
        self._offer, self._chain = offer, chain
        points = hashed([self._forms[row] for row in self._order], DOMAIN + offer.session)
        sent = encoded(masked(points, self._blind))
        self._sent = digest_of(sent)
        return self._signed(MaskedPoints(offer.session, self.name, b""), sent)

    def _mask_others(self, points: MaskedPoints) -> MaskedPoints:
        """Put this party's mask on another's set; once for each of them."""
        offer = self._current(points.session)
        if points.origin == self.name or points.origin not in offer.roster:
            raise InputError("A set to be masked comes from another party of the session.")
        if self._chain is not None:
            self._chain.check(points)
            if self.name in {step.party for step in points.steps}:
                raise InputError("A set to be masked has this party's mask already.")
        found = decoded(points.points, offer.most)
        self._sizes[points.origin] = len(found)
        return self._signed(points, encoded(masked(found, self._mask)))

    def _finish(self, finish: ReturnedPoints) -> Receipt:
        """Take the blinding off own points and put the mask on: only this party sees them so."""
        offer = self._current(finish.session)
        if self._chain is not None:
            own = MaskedPoints(offer.session, self.name, finish.points, finish.steps)
            self._chain.check_whole(own, self._sent)
        points = decoded(finish.points, offer.most)
        if len(points) != len(self._forms):
            raise InputError(f"The set has {len(self._forms):,} points. Got {len(points):,} instead.")
        if self._blind is not self._mask:
            points = masked(points, quotient(self._mask, self._blind))
        digest = coder(offer.session)
        pseudonyms = [b""] * len(points)
        for row, point in zip(self._order, points, strict=True):
            pseudonyms[row] = digest(b"masquerade pseudonym" + point.encode())[:PSEUDONYM_SIZE]
        self._pseudonyms, self._sizes[self.name] = pseudonyms, len(points)
        if self._identity is None or self._chain is None:
            return Receipt(offer.session, len(points))
        return self._chain.done(self._identity, self.name, len(points))

    def _confirm(self, confirm: Confirmation) -> Receipt:
        """Let pseudonyms be shown, once every party has signed that its set came back whole."""
        offer = self._current(confirm.session)
        if self._chain is None:
            raise InputError("The steps of this session are not signed: there is nothing to confirm.")
        if len(confirm.done) != len(offer.roster):
            raise InputError("Every party of the session signs that its set came back whole.")
        for party, done in zip(offer.roster, confirm.done, strict=True):
            if party not in self._sizes:
                raise InputError(f"The set of {party!r} has not passed through here.")
            self._chain.check_done(party, Receipt.decode(done), self._sizes[party])
        self._confirmed = True
        return Receipt(offer.session, len(offer.roster))

    def _compare(self, asked: PseudonymRequest) -> Pseudonyms:
        self._current(asked.session)
        return Pseudonyms(asked.session, b"".join(sorted(self.pseudonyms)))

    def _settle(self, found: Pseudonyms) -> Receipt:
        self._current(found.session)
        common = split_pseudonyms(found.values)
        if not set(common) <= set(self.pseudonyms):
            raise InputError("A pseudonym said to be common is none of this party's.")
        if len(common) < self._least:
            raise InputError(
                f"{len(common):,} records are said to be common: this party takes part with {self._least:,} "
                "or more, since fewer could single out a person."
            )
        self._common = common
        return Receipt(found.session, len(common))

    def _signed(self, given: MaskedPoints, passed: bytes) -> MaskedPoints:
        if self._identity is None or self._chain is None:
            return MaskedPoints(given.session, given.origin, passed, given.steps)
        return self._chain.signed(self._identity, self.name, given, passed)

    def _current(self, session: bytes) -> LinkingOffer:
        if self._offer is None:
            raise InputError("No session was begun yet.")
        check_session(session, self._offer.session)
        return self._offer


def split_pseudonyms(values: bytes) -> list[bytes]:
    """Return pseudonyms; they must be sorted, none twice."""
    if len(values) % PSEUDONYM_SIZE:
        raise InputError(f"Pseudonyms have {PSEUDONYM_SIZE} bytes each; the last is incomplete.")
    listed = [values[at : at + PSEUDONYM_SIZE] for at in range(0, len(values), PSEUDONYM_SIZE)]
    if any(first >= second for first, second in pairwise(listed)):
        raise InputError("Pseudonyms must be sorted, none twice.")
    return listed
