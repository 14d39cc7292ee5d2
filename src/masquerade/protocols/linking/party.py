"""A party that links its records with others': its keys leave it only as points under secret masks.

The party learns which of its own records all parties have, and how many keys every other party has. A party
that inserts guessed keys learns whether all the others have them: that is why sets are capped. With
identities every step is signed, nobody masks a set that its origin did not send, and no pseudonym is shown
before all parties have their sets back whole: whoever carries the sets cannot insert guesses.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, cast

from masquerade.core.errors import InputError
from masquerade.crypto.keys import SigningKey
from masquerade.crypto.ristretto255 import ristretto255
from masquerade.disguising.frames import permutation
from masquerade.protocols.codec import tag_of
from masquerade.protocols.linking.chain import Chain, digest_of
from masquerade.protocols.linking.key_normal_form import Key, normal_forms
from masquerade.protocols.linking.messages import PSEUDONYM_SIZE, Begin, Confirm, Done, Finish, Points
from masquerade.protocols.linking.point_masks import (
    check_same,
    decoded,
    encoded,
    hashed,
    masked,
    quotient,
)
from masquerade.protocols.linking.pseudonyms import NamedRecords

MOST_KEYS = 1_000_000


class Known(NamedTuple):
    """A party's own identity, and the identities of all that it knows, its own among them."""

    identity: SigningKey
    peers: Mapping[str, bytes]


class LinkingParty(NamedRecords):
    """One party of one linking session; a second session needs a fresh object and has other pseudonyms.

    `keys` name the records of this party, one each, in their order. `most` caps every set of the session;
    `roster` are the parties that it must have, `least` how many common records it takes. With `identity` and
    the identities of the others (`peers`, by name) all steps are signed; without, whoever carries the
    messages must be trusted to pass sets on as they are.
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
        super().__init__(name, roster=roster, least=least)
        if (identity is None) != (peers is None):
            raise InputError("Steps are signed by an identity and checked by peers: give both or neither.")
        self._known = None if identity is None else Known(identity, {**(peers or {}), name: identity.public})
        self._chain: Chain | None = None
        self._sent, self._sizes, self._confirmed = b"", dict[str, int](), False
        self._most, self._forms = most, normal_forms(keys, most)
        self._order = permutation(len(self._forms))
        self._mask, self._blind = ristretto255.random_secret(), ristretto255.random_secret()

    @property
    def pseudonyms(self) -> list[bytes]:
        """Return the pseudonym of every own record, in own order: for cells that a miner merges."""
        found = super().pseudonyms
        if self._known is not None and not self._confirmed:
            raise InputError("Not every party has signed yet that its set came back whole.")
        return found

    def forget(self) -> None:
        """Destroy pseudonyms and masks; nobody can link by them any more."""
        super().forget()
        self._forms, self._sent, self._sizes, self._confirmed = [], b"", {}, False
        self._mask, self._blind = ristretto255.random_secret(), ristretto255.random_secret()

    def _slot(self, message: bytes) -> bytes:
        tag = tag_of(message)
        return tag + (Points.decode(message).origin.encode() if tag == Points.TAG else b"")

    def _reply(self, tag: bytes, message: bytes) -> bytes:
        if tag == Begin.TAG:
            return self._begin(Begin.decode(message)).encode()
        if tag == Points.TAG:
            return self._mask_others(Points.decode(message)).encode()
        if tag == Finish.TAG:
            return self._finish(Finish.decode(message)).encode()
        if tag == Confirm.TAG:
            return self._confirm(Confirm.decode(message)).encode()
        return super()._reply(tag, message)

    def _begin(self, offer: Begin) -> Points:
        self._check_roster(offer.roster)
        if offer.most > self._most:
            raise InputError(f"This party links sets of at most {self._most:,} keys.")
        if len(self._forms) > offer.most:
            raise InputError(f"The session takes at most {offer.most:,} keys of a party.")
        chain = None if self._known is None else Chain(offer, self._known.peers)
        if len(offer.roster) == 2:
            self._blind = (
                self._mask
            )  # two parties learn the intersection anyway: nothing to take off at the end
        self._offer, self._chain = offer, chain
        points = hashed([self._forms[row] for row in self._order], offer.session)
        sent = encoded(masked(points, self._blind))
        self._sent = digest_of(sent)
        return self._signed(Points(offer.session, self.name, b""), sent)

    def _mask_others(self, points: Points) -> Points:
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

    def _finish(self, finish: Finish) -> Done:
        """Take the blinding off own points and put the mask on: only this party sees them so."""
        offer = self._current(finish.session)
        if self._chain is not None:
            own = Points(offer.session, self.name, finish.points, finish.steps)
            self._chain.check_whole(own, self._sent)
        points = decoded(finish.points, offer.most)
        check_same(len(points), len(self._forms))
        if self._blind is not self._mask:
            points = masked(points, quotient(self._mask, self._blind))
        pseudonyms = [b""] * len(points)
        for row, point in zip(self._order, points, strict=True):
            digest = hmac.digest(offer.session, b"masquerade pseudonym" + point.encode(), "sha256")
            pseudonyms[row] = digest[:PSEUDONYM_SIZE]
        self._pseudonyms, self._sizes[self.name] = pseudonyms, len(points)
        if self._known is None or self._chain is None:
            return Done(offer.session, len(points))
        return self._chain.done(self._known.identity, self.name, len(points))

    def _confirm(self, confirm: Confirm) -> Done:
        """Let pseudonyms be shown, once every party has signed that its set came back whole."""
        offer = self._current(confirm.session)
        if self._chain is None:
            raise InputError("The steps of this session are not signed: there is nothing to confirm.")
        if len(confirm.done) != len(offer.roster):
            raise InputError("Every party of the session signs that its set came back whole.")
        for party, done in zip(offer.roster, confirm.done, strict=True):
            if party not in self._sizes:
                raise InputError(f"The set of {party!r} has not passed through here.")
            self._chain.check_done(party, Done.decode(done), self._sizes[party])
        self._confirmed = True
        return Done(offer.session, len(offer.roster))

    def _signed(self, given: Points, passed: bytes) -> Points:
        if self._known is None or self._chain is None:
            return Points(given.session, given.origin, passed, given.steps)
        return self._chain.signed(self._known.identity, self.name, given, passed)

    def _current(self, session: bytes) -> Begin:
        self._check_current(session)
        return cast("Begin", self._offer)
