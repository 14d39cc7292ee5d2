"""Who did what to whose set: a chain of signed steps that nobody can add to, leave out from or reorder.

A party that masks a set has checked every step before its own, and signs these steps together with what it
was given and what it passed on. So whoever carries sets can put no point of its own under anybody's mask, and
a party that signs something else than it was given is named by its own signature.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from masquerade.core.errors import InputError, RoundAborted
from masquerade.crypto.errors import DecodingError, SealBroken
from masquerade.crypto.keys import SigningKey, verify_signature
from masquerade.crypto.point_masks import POINT_SIZE
from masquerade.protocols.codec import DIGEST_SIZE, Writer
from masquerade.protocols.linking.messages import LinkingOffer, MaskedPoints, Receipt, Step
from masquerade.protocols.session import check_session

JOINER = "the joiner"
STEP, DONE = "step of linking", "set came back whole"
NOTHING = bytes(DIGEST_SIZE)


class Chain:
    """Signs and checks the steps of one session; its id, roster and cap enter every signature."""

    def __init__(self, offer: LinkingOffer, peers: Mapping[str, bytes]) -> None:
        missing = [name for name in offer.roster if name not in peers]
        if missing:
            raise InputError(f"No identity is known for {', '.join(map(repr, missing))}.")
        self._offer, self._peers = offer, peers
        self._context = hashlib.sha256(offer.encode()).digest()

    def signed(self, identity: SigningKey, party: str, given: MaskedPoints, passed: bytes) -> MaskedPoints:
        """Return the points that a party passes on, with its step after those of what it was given."""
        came = digest_of(given.points) if given.steps else NOTHING
        unsigned = Step(party, len(passed) // POINT_SIZE, came, digest_of(passed), b"")
        step = Step(
            party,
            unsigned.size,
            came,
            unsigned.went,
            identity.sign(STEP, *self._fields(given.origin, given.steps, unsigned)),
        )
        return MaskedPoints(given.session, given.origin, passed, (*given.steps, step))

    def check(self, points: MaskedPoints) -> None:
        """Refuse a set unless its origin sent it and every step since then was done to what came before."""
        names, origin = [step.party for step in points.steps], points.origin
        if not names or names[0] != origin or len(set(names)) < len(names) or not self._knows(names):
            raise _broken(f"The set of {origin!r} came without the steps that it went through.", JOINER)
        for place, step in enumerate(points.steps):
            self._check_step(points, place, step)
        if digest_of(points.points) != points.steps[-1].went:
            raise _broken(f"The set of {origin!r} is not the one that {names[-1]!r} signed.", JOINER)
        if len(points.points) != POINT_SIZE * points.steps[-1].size:
            raise _broken(f"{names[-1]!r} signed another size than that of its set.", names[-1])

    def check_whole(self, points: MaskedPoints, sent: bytes) -> None:
        """Refuse an own set unless it is the one sent (its digest), with every other party's mask on it."""
        self.check(points)
        if points.steps[0].went != sent:
            raise _broken(f"The set of {points.origin!r} is not the one that it sent.", JOINER)
        left_out = [name for name in self._offer.roster if name not in {step.party for step in points.steps}]
        if left_out:
            named = ", ".join(map(repr, left_out))
            raise _broken(f"The set of {points.origin!r} comes back without the mask of {named}.", JOINER)

    def done(self, identity: SigningKey, party: str, records: int) -> Receipt:
        """Return a party's word that its set, of this size, came back whole."""
        return Receipt(self._offer.session, records, identity.sign(DONE, *self._done_fields(party, records)))

    def check_done(self, party: str, done: Receipt, size: int) -> None:
        """Refuse a word that the party did not give, or gave for a set of another size."""
        check_session(done.session, self._offer.session)
        try:
            verify_signature(
                self._peers[party], done.signature, DONE, *self._done_fields(party, done.records)
            )
        except (SealBroken, DecodingError):
            raise _broken(f"{party!r} has not signed that its set came back whole.", JOINER) from None
        if done.records != size:
            raise _broken(f"{party!r} signed another size than that of its set.", party)

    def _check_step(self, points: MaskedPoints, place: int, step: Step) -> None:
        before, origin = points.steps[:place], points.origin
        try:
            fields = self._fields(origin, before, step)
            verify_signature(self._peers[step.party], step.signature, STEP, *fields)
        except SealBroken:
            raise _broken(
                f"{step.party!r} has not signed this step of the set of {origin!r} in this session.", JOINER
            ) from None
        if step.came != (before[-1].went if before else NOTHING):
            raise _broken(f"{step.party!r} put its mask on another set than that of {origin!r}.", step.party)
        if before and step.size != before[-1].size:
            raise _broken(f"{step.party!r} changed the size of the set of {origin!r}.", step.party)

    def _knows(self, names: Sequence[str]) -> bool:
        return set(names) <= set(self._offer.roster)

    def _fields(self, origin: str, before: Sequence[Step], step: Step) -> tuple[bytes, ...]:
        writer = Writer()
        for earlier in before:
            earlier.write(writer)
        size = step.size.to_bytes(4, "big")
        return self._context, origin.encode(), writer.done(), step.party.encode(), size, step.came, step.went

    def _done_fields(self, party: str, records: int) -> tuple[bytes, ...]:
        return self._context, party.encode(), records.to_bytes(4, "big")


def digest_of(points: bytes) -> bytes:
    """Return the sha256 of a set."""
    return hashlib.sha256(points).digest()


def _broken(reason: str, culprit: str) -> RoundAborted:
    return RoundAborted(reason, spent=True, culprits=(culprit,))
