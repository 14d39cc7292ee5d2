"""A party that links its records with others': its keys leave it only as points under secret masks.

The party learns which of its own records all parties have, and how many keys every other party has. A party
that inserts guessed keys learns whether all the others have them: that is why sets are capped.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from typing import cast

from masquerade.core.errors import InputError
from masquerade.crypto.ristretto255 import ristretto255
from masquerade.disguising.frames import permutation
from masquerade.protocols.linking.keys import Key, normal_forms
from masquerade.protocols.linking.masking import (
    check_same,
    decoded,
    encoded,
    hashed,
    masked,
    quotient,
)
from masquerade.protocols.linking.messages import PSEUDONYM_SIZE, Begin, Done, Finish, Points
from masquerade.protocols.linking.named import NamedRecords
from masquerade.protocols.wire import tag_of

MOST_KEYS = 1_000_000


class LinkingParty(NamedRecords):
    """One party of one linking session; a second session needs a fresh object and has other pseudonyms.

    `keys` name the records of this party, one each, in their order. `most` caps every set of the session.
    """

    def __init__(self, name: str, keys: Sequence[Key], *, most: int = MOST_KEYS) -> None:
        super().__init__(name)
        self._most, self._forms = most, normal_forms(keys, most)
        self._order = permutation(len(self._forms))
        self._mask, self._blind = ristretto255.random_secret(), ristretto255.random_secret()

    def forget(self) -> None:
        """Destroy pseudonyms and masks; nobody can link by them any more."""
        super().forget()
        self._forms = []
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
        return super()._reply(tag, message)

    def _begin(self, offer: Begin) -> Points:
        self._check_roster(offer.roster)
        if offer.most > self._most:
            raise InputError(f"This party links sets of at most {self._most:,} keys.")
        if len(self._forms) > offer.most:
            raise InputError(f"The session takes at most {offer.most:,} keys of a party.")
        if len(offer.roster) == 2:
            self._blind = (
                self._mask
            )  # two parties learn the intersection anyway: nothing to take off at the end
        self._offer = offer
        points = hashed([self._forms[row] for row in self._order], offer.session)
        return Points(offer.session, self.name, encoded(masked(points, self._blind)))

    def _mask_others(self, points: Points) -> Points:
        """Put this party's mask on another's set; once for each of them."""
        offer = self._current(points.session)
        if points.origin == self.name or points.origin not in offer.roster:
            raise InputError("A set to be masked comes from another party of the session.")
        return Points(
            offer.session, points.origin, encoded(masked(decoded(points.points, offer.most), self._mask))
        )

    def _finish(self, finish: Finish) -> Done:
        """Take the blinding off own points and put the mask on: only this party sees them so."""
        offer = self._current(finish.session)
        points = decoded(finish.points, offer.most)
        check_same(len(points), len(self._forms))
        if self._blind is not self._mask:
            points = masked(points, quotient(self._mask, self._blind))
        pseudonyms = [b""] * len(points)
        for row, point in zip(self._order, points, strict=True):
            digest = hmac.digest(offer.session, b"masquerade pseudonym" + point.encode(), "sha256")
            pseudonyms[row] = digest[:PSEUDONYM_SIZE]
        self._pseudonyms = pseudonyms
        return Done(offer.session, len(points))

    def _current(self, session: bytes) -> Begin:
        self._check_current(session)
        return cast("Begin", self._offer)
