"""Whoever brings parties together: passes masked sets around, compares pseudonyms, tells the common ones.

Every set goes through all other parties' masks and back to its origin, which takes its own blinding off; so
fully masked keys, equal for equal keys, are seen by their owner alone, and as pseudonyms by the joiner. The
joiner learns how large the sets and all their overlaps are, and no key. For three parties or more it must be
none of them: a party who compares would learn its overlap with each of the others, as pairwise linking tells.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from fractions import Fraction

from masquerade.core.errors import InputError, RoundAborted
from masquerade.core.guarantee import Disclosure, Guarantee
from masquerade.protocols.adverts import check_names
from masquerade.protocols.linking.messages import Begin, Compare, Done, Finish, Points, Pseudonyms
from masquerade.protocols.linking.named import split_pseudonyms
from masquerade.protocols.linking.party import MOST_KEYS
from masquerade.protocols.transport import Transport, ask
from masquerade.protocols.wire import SESSION_SIZE


class Joiner:
    """Drives one linking session over a transport; keeps nothing afterwards but the sizes.

    `name` says who it is: a miner, or for two parties one of them.
    """

    def __init__(
        self, parties: Sequence[str], transport: Transport, *, name: str = "miner", most: int = MOST_KEYS
    ) -> None:
        check_names(parties)
        if len(parties) < 2:
            raise InputError("Linking needs two parties or more.")
        if len(parties) > 2 and name in parties:
            raise InputError(
                f"{name!r} cannot be the joiner and one of {len(parties)} parties: it would learn its "
                "overlap with each of the others."
            )
        self.parties, self.name, self.most = tuple(parties), name, most
        self._transport, self.session = transport, os.urandom(SESSION_SIZE)
        self.sizes: dict[str, int] = {}

    def link(self) -> int:
        """Give every record a pseudonym and tell every party which are common; return how many."""
        self.name_records()
        return self.intersect()

    def name_records(self) -> None:
        """Give every record of every party a pseudonym, equal for equal keys."""
        offer = Begin(self.session, self.parties, self.most)
        sets = {party: ask(self._transport, party, offer, Points, spent=False) for party in self.parties}
        for origin, points in sets.items():
            self._check(origin, points, origin, len(points.points))
            passed = points
            for party in self.parties:
                if party != origin:
                    passed = ask(self._transport, party, passed, Points, spent=True)
                    self._check(party, passed, origin, len(points.points))
            done = ask(self._transport, origin, Finish(self.session, passed.points), Done, spent=True)
            self.sizes[origin] = done.records

    def intersect(self) -> int:
        """Tell every party which of its records all have; return how many these are."""
        common: set[bytes] | None = None
        for party in self.parties:
            reply = ask(self._transport, party, Compare(self.session), Pseudonyms, spent=True)
            try:
                listed = set(split_pseudonyms(reply.values))
            except InputError as error:
                raise RoundAborted(f"{party!r}: {error}", spent=True, culprits=(party,)) from None
            common = listed if common is None else common & listed
        message = Pseudonyms(self.session, b"".join(sorted(common or ())))
        for party in self.parties:
            ask(self._transport, party, message, Done, spent=True)
        return len(common or ())

    def guarantee(self) -> Guarantee:
        """Return who learns what about keys; "keys" stands for what records are linked by."""
        keys = ("keys",)
        return Guarantee(
            (
                *(
                    Disclosure(party, "which of its own records all parties have, and set sizes", keys, None)
                    for party in self.parties
                ),
                Disclosure(
                    self.name, "sizes of sets and of all their overlaps, and no key", keys, Fraction(1)
                ),
            ),
            (
                "decisional Diffie–Hellman in ristretto255, and hashing to it as a random oracle",
                "parties link keys of records they have: an inserted guess shows whether all others have it",
                f"sets have at most {self.most:,} keys",
                "pseudonyms are destroyed once records are joined",
            ),
            dict.fromkeys((self.name, *self.parties), "semi-honest"),
            len(self.parties) - 1,
            tuple((self.name, party) for party in self.parties) if len(self.parties) > 2 else (),
            0,
        )

    def _check(self, party: str, points: Points, origin: str, size: int) -> None:
        if (points.session, points.origin, len(points.points)) != (self.session, origin, size):
            raise RoundAborted(f"Party {party!r} returned another set.", spent=True, culprits=(party,))
