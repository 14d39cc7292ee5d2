"""Whoever brings parties together: passes masked sets around, compares pseudonyms, tells the common ones.

Every set goes through all other parties' masks and back to its origin, which takes its own blinding off; so
fully masked keys, equal for equal keys, are seen by their owner alone, and as pseudonyms by the joiner. The
joiner learns how large the sets and all their overlaps are, and no key. For three parties or more it must be
none of them: a party who compares would learn its overlap with each of the others, as pairwise linking tells.
Where parties have identities they sign what they do to sets, and a joiner that inserts points is refused.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from fractions import Fraction

from masquerade.core.errors import InputError, RoundAborted
from masquerade.core.guarantee import Adversary, Disclosure, Guarantee
from masquerade.crypto.point_masks import POINT_SIZE
from masquerade.protocols.codec import SESSION_SIZE
from masquerade.protocols.linking.messages import (
    Confirmation,
    LinkingOffer,
    MaskedPoints,
    PseudonymRequest,
    Pseudonyms,
    Receipt,
    ReturnedPoints,
)
from masquerade.protocols.linking.party import MOST_KEYS, split_pseudonyms
from masquerade.protocols.linking.signed_steps import Chain
from masquerade.protocols.session import Transport, ask, check_names


class Joiner:
    """Drives one linking session over a transport; keeps nothing afterwards but the sizes.

    `name` says who it is: a miner, or for two parties one of them. With the identities of all parties
    (`peers`) it insists on signed steps, and names a party whose signature is none. `session` is the id of
    the session; without, it gets a random one.
    """

    def __init__(
        self,
        parties: Sequence[str],
        transport: Transport,
        *,
        name: str = "miner",
        most: int = MOST_KEYS,
        session: bytes | None = None,
        peers: Mapping[str, bytes] | None = None,
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
        self._transport = transport
        self.session = os.urandom(SESSION_SIZE) if session is None else session
        if len(self.session) != SESSION_SIZE:
            raise InputError(f"A session has {SESSION_SIZE} bytes. Got {len(self.session)} instead.")
        self._offer = LinkingOffer(self.session, self.parties, most)
        self._chain = None if peers is None else Chain(self._offer, peers)
        self.sizes: dict[str, int] = {}

    def link(self) -> int:
        """Give every record a pseudonym and tell every party which are common; return how many."""
        self.name_records()
        return self.intersect()

    def name_records(self) -> None:
        """Give every record of every party a pseudonym, equal for equal keys."""
        sets = {
            party: ask(self._transport, party, self._offer, MaskedPoints, spent=False)
            for party in self.parties
        }
        words = [self._passed_around(origin, points) for origin, points in sets.items()]
        if any(done.signature for done in words):
            confirm = Confirmation(self.session, tuple(done.encode() for done in words))
            for party in self.parties:
                ask(self._transport, party, confirm, Receipt, spent=True)

    def _passed_around(self, origin: str, points: MaskedPoints) -> Receipt:
        """Let every other party mask a set and its origin take it back; return the origin's word for it."""
        size = len(points.points)
        self._check(origin, points, None, origin, size)
        for party in self.parties:
            if party != origin:
                given, points = points, ask(self._transport, party, points, MaskedPoints, spent=True)
                self._check(party, points, given, origin, size)
        finish = ReturnedPoints(self.session, points.points, points.steps)
        done = ask(self._transport, origin, finish, Receipt, spent=True)
        if self._chain is not None:
            try:
                self._chain.check_done(origin, done, size // POINT_SIZE)
            except (InputError, RoundAborted):
                reason = f"Party {origin!r} did not sign that its set came back whole."
                raise RoundAborted(reason, spent=True, culprits=(origin,)) from None
        self.sizes[origin] = done.records
        return done

    def intersect(self) -> int:
        """Tell every party which of its records all have; return how many these are."""
        common: set[bytes] | None = None
        for party in self.parties:
            reply = ask(self._transport, party, PseudonymRequest(self.session), Pseudonyms, spent=True)
            try:
                listed = set(split_pseudonyms(reply.values))
            except InputError as error:
                raise RoundAborted(f"{party!r}: {error}", spent=True, culprits=(party,)) from None
            common = listed if common is None else common & listed
        message = Pseudonyms(self.session, b"".join(sorted(common or ())))
        for party in self.parties:
            ask(self._transport, party, message, Receipt, spent=True)
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
                *self._trusted(),
                "pseudonyms are destroyed once records are joined",
            ),
            {self.name: self._adversary, **dict.fromkeys(self.parties, "semi-honest")},
            len(self.parties) - 1,
            tuple((self.name, party) for party in self.parties if self.name not in self.parties),
            0,
        )

    @property
    def _adversary(self) -> Adversary:
        """Return whom the joiner may be: who carries only what parties signed can insert no guesses."""
        return "semi-honest" if self._chain is None else "malicious"

    def _trusted(self) -> tuple[str, ...]:
        if self._chain is None:
            return (f"{self.name} passes sets on as they are: nobody signs what it did to them",)
        return (
            "identities were known beforehand, and Ed25519 and SHA-256 are secure",
            f"{self.name} says which records are common and may leave some out: parties set the least number",
        )

    def _check(
        self, party: str, points: MaskedPoints, given: MaskedPoints | None, origin: str, size: int
    ) -> None:
        """Refuse what a party returned unless it is the set that it was given, with one signed step more."""
        if (points.session, points.origin, len(points.points)) != (self.session, origin, size):
            raise _other_set(party)
        if self._chain is None:
            return
        before = () if given is None else given.steps
        if points.steps[:-1] != before or [step.party for step in points.steps[-1:]] != [party]:
            raise _other_set(party)
        try:
            self._chain.check(points)
        except RoundAborted:
            raise _other_set(party) from None


def keyed_guarantee(parties: Sequence[str], joiner: str) -> Guarantee:
    """Return who learns what where parties link by a secret that they share and the joiner does not have."""
    if joiner in parties:
        raise InputError(
            f"{joiner!r} cannot be the joiner and a party: with the secret it could try keys on the "
            "pseudonyms of the others."
        )
    keys = ("keys",)
    return Guarantee(
        (
            *(
                Disclosure(party, "which of its own records all parties have", keys, None)
                for party in parties
            ),
            Disclosure(joiner, "sizes of sets and of all their overlaps, and no key", keys, Fraction(1)),
        ),
        (
            "HMAC-SHA256 is a pseudorandom function",
            f"{joiner} does not get the linking secret from any party: with it keys could be tried",
            "pseudonyms are destroyed once records are joined",
        ),
        dict.fromkeys((joiner, *parties), "semi-honest"),
        len(parties) - 1,
        tuple((joiner, party) for party in parties),
        0,
    )


def _other_set(party: str) -> RoundAborted:
    return RoundAborted(f"Party {party!r} returned another set.", spent=True, culprits=(party,))
