"""A party that links its records with others': its keys leave it only as points under secret masks.

The party learns which of its own records all parties have, and how many keys every other party has. A party
that inserts guessed keys learns whether all the others have them: that is why sets are capped.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError
from masquerade.crypto.errors import KeySpent
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
from masquerade.protocols.linking.messages import (
    PSEUDONYM_SIZE,
    Begin,
    Compare,
    Done,
    Finish,
    Points,
    Pseudonyms,
)
from masquerade.protocols.wire import check_session, tag_of

MOST_KEYS = 1_000_000


class LinkingParty:
    """One party of one linking session; a second session needs a fresh object and has other pseudonyms.

    `keys` name the records of this party, one each, in their order. `most` caps every set of the session.
    """

    def __init__(self, name: str, keys: Sequence[Key], *, most: int = MOST_KEYS) -> None:
        self.name, self._most = name, most
        self._forms = normal_forms(keys, most)
        self._order = permutation(len(self._forms))
        self._mask, self._blind = ristretto255.random_secret(), ristretto255.random_secret()
        self._offer: Begin | None = None
        self._replies: dict[bytes, tuple[bytes, bytes]] = {}
        self._pseudonyms: list[bytes] | None = None
        self._common: list[bytes] | None = None
        self._sent: bytes | None = None

    def receive(self, message: bytes) -> bytes:
        """Return the reply to a message; asked again it says the same, a refused one changes nothing."""
        tag = tag_of(message)
        slot = tag + (Points.decode(message).origin.encode() if tag == Points.TAG else b"")
        digest = hashlib.sha256(message).digest()
        if slot in self._replies:
            before, reply = self._replies[slot]
            if before != digest:
                raise KeySpent("This step of the session was done already, with another message.")
            return reply
        reply = self._reply(tag, message)
        self._replies[slot] = (digest, reply)
        return reply

    def _reply(self, tag: bytes, message: bytes) -> bytes:
        if tag == Begin.TAG:
            return self._begin(Begin.decode(message)).encode()
        if tag == Points.TAG:
            return self._mask_others(Points.decode(message)).encode()
        if tag == Finish.TAG:
            return self._finish(Finish.decode(message)).encode()
        if tag == Compare.TAG:
            return self._compare(Compare.decode(message)).encode()
        return self._settle(Pseudonyms.decode(message)).encode()

    @property
    def pseudonyms(self) -> list[bytes]:
        """Return the pseudonym of every own record, in own order: for cells that a miner merges."""
        if self._pseudonyms is None:
            raise InputError("The records have no pseudonyms yet, or they were forgotten.")
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

    @property
    def alignment(self) -> bytes:
        """Return the digest of that order, by which parties notice that they mean different records."""
        return hashlib.sha256(b"".join(self.common)).digest()

    def forget(self) -> None:
        """Destroy pseudonyms and masks; nobody can link by them any more."""
        self._pseudonyms = self._common = None
        self._forms, self._replies = [], {}
        self._mask, self._blind = ristretto255.random_secret(), ristretto255.random_secret()

    def _begin(self, offer: Begin) -> Points:
        if (
            len(offer.roster) < 2
            or len(set(offer.roster)) < len(offer.roster)
            or self.name not in offer.roster
        ):
            raise InputError("Linking needs two parties or more, each named once, this one among them.")
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

    def _compare(self, question: Compare) -> Pseudonyms:
        self._current(question.session)
        return Pseudonyms(question.session, b"".join(sorted(self.pseudonyms)))

    def _settle(self, found: Pseudonyms) -> Done:
        self._current(found.session)
        common = split_pseudonyms(found.values)
        if not set(common) <= set(self.pseudonyms):
            raise InputError("A pseudonym said to be common is none of this party's.")
        self._common = common
        return Done(found.session, len(common))

    def _current(self, session: bytes) -> Begin:
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
