"""Private set intersection (PSI) of record keys: find the records that all parties have.

A party's keys leave it only as points under secret masks. Every other party in turn masks the set and passes
it on; then the set returns to its origin, which removes its own blinding. So fully masked keys, equal for
equal keys, are seen only by their owner, and as pseudonyms by the joiner (linker), who compares them. A party
learns which of its records all parties have, and the number of keys of every other party. The joiner learns
the sizes of the sets and of all their overlaps, and no key. With three or more parties it must not be one of
them: otherwise it would learn its overlap with each other party, as in pairwise linkage.

A party that inserts guessed keys learns whether all others have them; therefore the size of sets is limited.
With identities every step is signed. A party that masks a set has checked all earlier steps, and signs them
together with its input and output. No pseudonym is shown before all parties have received their sets back
unchanged. So a relay cannot have a point of its own masked by a party, and a party that changes a set is
exposed by its own signature.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError, RoundAborted
from masquerade.core.guarantee import Adversary, Disclosure, Guarantee
from masquerade.core.util.scratch import MEMORY_ONLY, Scratch
from masquerade.crypto.batch_mac import Texts, codes, keyed_tags
from masquerade.crypto.errors import DecodingError, KeySpent, SealBroken
from masquerade.crypto.keys import SIGNATURE_SIZE, SigningKey, verify_signature
from masquerade.crypto.point_sets import check_points, decode_set, hash_to_points, mask_points
from masquerade.crypto.ristretto255 import POINT_SIZE, quotient, ristretto255
from masquerade.disguising.columns import permutation
from masquerade.protocols.linkage.pseudonyms import (
    PSEUDONYM_SIZE,
    ROWS_AT_ONCE,
    Tags,
    order_of,
    places_among,
    repeated_rows,
    split_pseudonyms,
)
from masquerade.protocols.linkage.record_keys import Key, KeyColumn, check_count, check_repeated, forms_of
from masquerade.protocols.wire import codec
from masquerade.protocols.wire.session import Responder, Transport, ask, check_names, check_session

JOINER = "the joiner"
DOMAIN = b"masquerade linking 1 "
MOST_KEYS = 1_000_000
_STEP, _DONE = "step of linking", "set came back whole"
_NOTHING = bytes(codec.DIGEST_SIZE)


@dataclass(frozen=True, slots=True)
class LinkageStep(codec.Struct):
    """A party's signed statement: it received a set with one digest and passed it on with another.

    The first step is by the set's origin, which received nothing.
    """

    party: codec.Name
    size: codec.U32
    came: codec.Digest
    went: codec.Digest
    signature: codec.Signature


Steps = Annotated[tuple[LinkageStep, ...], codec.Many(codec.MOST_PARTIES)]
Points = Annotated[bytes, codec.Blob(1 << 29)]  # 16 million points, or twice as many pseudonyms


class LinkingOffer(codec.SessionMessage, tag=b"masquerade linking begin 1"):
    """Offer of a session: the parties, and the largest size of a set."""

    roster: codec.Names
    most: codec.U32


class MaskedPoints(codec.SessionMessage, tag=b"masquerade linking points 2"):
    """The set of `origin` under some masks, in the order shuffled by `origin`.

    `steps` are the signed masking steps; there are none if parties have no identities.
    """

    origin: codec.Name
    points: Points
    steps: Steps = ()


class ReturnedPoints(codec.SessionMessage, tag=b"masquerade linking finish 2"):
    """A party's own set returned with all other parties' masks, and their signed steps."""

    points: Points
    steps: Steps = ()


class Confirmation(codec.SessionMessage, tag=b"masquerade linking confirm 1"):
    """The signed `Receipt` of every party, in the order of the roster: no set was changed in transit."""

    done: Annotated[tuple[Annotated[bytes, codec.Blob(200)], ...], codec.Many(codec.MOST_PARTIES)]


class PseudonymRequest(codec.SessionMessage, tag=b"masquerade linking compare 1"):
    """Ask for a party's pseudonyms, which the joiner compares."""


class Pseudonyms(codec.SessionMessage, tag=b"masquerade linking pseudonyms 1"):
    """Sorted pseudonyms: of one party (to the joiner), or of the common records (to a party)."""

    values: Points


class Receipt(codec.SessionMessage, tag=b"masquerade linking done 2"):
    """A step is done, with its number of records; signed if it states that a set came back unchanged."""

    records: codec.U32
    signature: Annotated[bytes, codec.Blob(SIGNATURE_SIZE, (0, SIGNATURE_SIZE))] = b""


class Chain:
    """Chain of signed steps of a set: nobody can add, omit or reorder steps.

    Every signature covers the id, roster and size limit of the session.
    """

    def __init__(self, offer: LinkingOffer, peers: Mapping[str, bytes]) -> None:
        missing = [name for name in offer.roster if name not in peers]
        if missing:
            raise InputError(f"No identity is known for {', '.join(map(repr, missing))}.")
        self._offer, self._peers = offer, peers
        self._context = hashlib.sha256(offer.encode()).digest()

    def sign_step(self, identity: SigningKey, party: str, given: MaskedPoints, passed: bytes) -> MaskedPoints:
        """Return the points that a party passes on, with its step appended to the earlier steps."""
        came = digest_of(given.points) if given.steps else _NOTHING
        step = LinkageStep(party, len(passed) // POINT_SIZE, came, digest_of(passed), b"")
        signature = identity.sign(_STEP, *self._fields(given.origin, given.steps, step))
        steps = (*given.steps, replace(step, signature=signature))
        return replace(given, points=passed, steps=steps)

    def check(self, points: MaskedPoints) -> None:
        """Raise an error unless the origin sent the set and every step continues the step before."""
        names, origin = [step.party for step in points.steps], points.origin
        known = set(names) <= set(self._offer.roster)
        if not names or names[0] != origin or len(set(names)) < len(names) or not known:
            raise _broken(f"The set of {origin!r} came without its signed steps.", JOINER)
        for place, step in enumerate(points.steps):
            self._check_step(points, place, step)
        if digest_of(points.points) != points.steps[-1].went:
            raise _broken(f"The set of {origin!r} differs from the set that {names[-1]!r} signed.", JOINER)
        if len(points.points) != POINT_SIZE * points.steps[-1].size:
            raise _broken(f"{names[-1]!r} signed a different size of its set.", names[-1])

    def check_whole(self, points: MaskedPoints, sent: bytes) -> None:
        """Raise an error unless a returned set is the one sent (by digest) under every other party's mask."""
        self.check(points)
        if points.steps[0].went != sent:
            raise _broken(f"The set of {points.origin!r} differs from the set that it sent.", JOINER)
        left_out = [name for name in self._offer.roster if name not in {step.party for step in points.steps}]
        if left_out:
            named = ", ".join(map(repr, left_out))
            raise _broken(f"The set of {points.origin!r} comes back without the mask of {named}.", JOINER)

    def sign_receipt(self, identity: SigningKey, party: str, records: int) -> Receipt:
        """Return a party's signed receipt that its set, of this size, came back unchanged."""
        return Receipt(self._offer.session, records, identity.sign(_DONE, *self._done_fields(party, records)))

    def check_done(self, party: str, done: Receipt, size: int) -> None:
        """Raise an error unless the party signed this receipt for a set of this size."""
        check_session(done.session, self._offer.session)
        try:
            verify_signature(
                self._peers[party], done.signature, _DONE, *self._done_fields(party, done.records)
            )
        except (SealBroken, DecodingError):
            raise _broken(f"{party!r} has not signed that its set came back unchanged.", JOINER) from None
        if done.records != size:
            raise _broken(f"{party!r} signed a different size of its set.", party)

    def _check_step(self, points: MaskedPoints, place: int, step: LinkageStep) -> None:
        before, origin = points.steps[:place], points.origin
        try:
            fields = self._fields(origin, before, step)
            verify_signature(self._peers[step.party], step.signature, _STEP, *fields)
        except SealBroken:
            raise _broken(
                f"{step.party!r} has not signed this step of the set of {origin!r} in this session.", JOINER
            ) from None
        if step.came != (before[-1].went if before else _NOTHING):
            raise _broken(f"{step.party!r} put its mask on a set other than that of {origin!r}.", step.party)
        if before and step.size != before[-1].size:
            raise _broken(f"{step.party!r} changed the size of the set of {origin!r}.", step.party)

    def _fields(self, origin: str, before: Sequence[LinkageStep], step: LinkageStep) -> tuple[bytes, ...]:
        writer = codec.Writer()
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


class LinkingParty(Responder):
    """One party of one linking session. Another session needs a new object and has different pseudonyms.

    `keys` are the keys of this party's records, one per record, in their order. `most` limits the size of
    every set of the session. `roster` lists the required parties, including this one; None accepts the
    offered roster. Fewer common records than `least` are refused, because the joiner states which records are
    common and could single out a person. With `identity` and the identities of the others (`peers`, by name)
    all steps are signed; without them, the relay must be trusted to pass sets on unchanged. Long replies,
    which are repeated on request, are stored in `scratch`.
    """

    BEGINS = LinkingOffer

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
        scratch: Scratch = MEMORY_ONLY,
    ) -> None:
        self.name, self._least, self._most, self._scratch = name, least, most, scratch
        self._roster = None if roster is None else frozenset(roster)
        if self._roster is not None and (name not in self._roster or len(self._roster) < 2):
            raise InputError("The roster of a session has two or more parties, including this one.")
        if least < 0:
            raise InputError(f"'least' must be at least 0. Got {least} instead.")
        if (identity is None) != (peers is None):
            raise InputError("Steps are signed by an identity and checked by peers: give both or neither.")
        self._identity = identity
        self._peers = {} if identity is None else {**(peers or {}), name: identity.public}
        self._chain: Chain | None = None
        check_count(keys, most)
        self._keys = keys if isinstance(keys, KeyColumn) else tuple(keys)
        secret = os.urandom(codec.DIGEST_SIZE)
        self._check_distinct([keyed_tags(secret, forms, PSEUDONYM_SIZE) for forms in self._forms()])
        self._order = permutation(len(self._keys))
        self._draw()
        self.handlers = {
            LinkingOffer: self._begin,
            MaskedPoints: self._mask_others,
            ReturnedPoints: self._finish,
            Confirmation: self._confirm,
            PseudonymRequest: self._compare,
            Pseudonyms: self._settle,
        }

    def receive(self, message: bytes) -> bytes:
        """Return the reply; a repeated message gets the same reply, and a refused message changes nothing."""
        found, digest = codec.decode_any(message, self.handlers), digest_of(message)
        step = (found.TAG, found.origin if isinstance(found, MaskedPoints) else "")
        if step in self._replies:
            before, reply = self._replies[step]
            if before != digest:
                raise KeySpent("This step of the session was done already, with a different message.")
            return bytes(reply)
        answer = self._reply(found)
        del found  # this set is as large as the set being written
        said = answer.encode()
        self._replies[step] = (digest, self._scratch.store(said))
        return said

    @property
    def tags(self) -> Tags:
        """Return the pseudonym of every local record, one row per record, in local order."""
        if self._tags is None:
            raise InputError("The records have no pseudonyms yet, or the pseudonyms were destroyed.")
        if self._chain is not None and not self._confirmed:
            raise InputError("Not every party has signed yet that its set came back unchanged.")
        return self._tags

    @property
    def common_tags(self) -> Tags:
        """Return the sorted pseudonyms of the records that all parties have, one row per record."""
        if self._common is None:
            raise InputError("The common records are not known yet, or were destroyed.")
        return self._common

    @property
    def pseudonyms(self) -> list[bytes]:
        """Return `tags` one by one."""
        return [row.tobytes() for row in self.tags]

    @property
    def common(self) -> list[bytes]:
        """Return `common_tags` one by one."""
        return [row.tobytes() for row in self.common_tags]

    @property
    def rows(self) -> NDArray[np.intp]:
        """Return the indices of the common records among this party's records, in the common order."""
        return places_among(self.tags, self.common_tags)

    def forget(self) -> None:
        """Destroy pseudonyms and masks, so that nobody can link by them any more."""
        self._mask.wipe()
        self._blind.wipe()
        self._keys = ()
        self._draw()

    def _draw(self) -> None:
        """Draw fresh masks, and delete all pseudonyms."""
        self._tags: Tags | None = None
        self._common: Tags | None = None
        self._replies: dict[tuple[bytes, str], tuple[bytes, memoryview]] = {}
        self._sent, self._sizes, self._confirmed = b"", dict[str, int](), False
        self._mask, self._blind = ristretto255.random_secret(), ristretto255.random_secret()

    def _forms(self) -> Iterator[Texts]:
        """Yield the keys in normal form, in blocks."""
        for begin in range(0, len(self._keys), ROWS_AT_ONCE):
            yield forms_of(self._keys, begin, begin + ROWS_AT_ONCE)

    @staticmethod
    def _check_distinct(tags: Sequence[Tags]) -> None:
        if tags:
            check_repeated(repeated_rows(np.concatenate(tags)))

    def _begin(self, offer: LinkingOffer) -> MaskedPoints:
        roster = offer.roster
        if len(roster) < 2 or len(set(roster)) < len(roster) or self.name not in roster:
            raise InputError("Linking needs two or more parties, each named once, including this one.")
        if self._roster is not None and self._roster != set(roster):
            raise InputError("The parties in the offer of the session differ from the agreed parties.")
        if offer.most > self._most:
            raise InputError(f"This party links sets of at most {self._most:,} keys.")
        if len(self._keys) > offer.most:
            raise InputError(f"The session accepts at most {offer.most:,} keys per party.")
        chain = None if self._identity is None else Chain(offer, self._peers)
        if len(roster) == 2:  # two parties learn the intersection anyway: no blinding is needed
            self._blind = self._mask
        self.session, self._offer, self._chain = offer.session, offer, chain
        points = np.empty((len(self._keys), POINT_SIZE), np.uint8)
        for at, forms in enumerate(self._forms()):
            some = mask_points(hash_to_points(forms, DOMAIN + offer.session), self._blind)
            points[at * ROWS_AT_ONCE : (at + 1) * ROWS_AT_ONCE] = some
        points = points[self._order]
        sent = points.tobytes()
        del points
        self._sent = digest_of(sent)
        return self._sign(MaskedPoints(offer.session, self.name, b""), sent)

    def _mask_others(self, points: MaskedPoints) -> MaskedPoints:
        """Mask another party's set, once per party."""
        if points.origin == self.name or points.origin not in self._offer.roster:
            raise InputError("A set to be masked must come from another party of the session.")
        if self._chain is not None:
            self._chain.check(points)
            if self.name in {step.party for step in points.steps}:
                raise InputError("A set to be masked has this party's mask already.")
        found = decode_set(points.points, self._offer.most)
        self._sizes[points.origin] = len(found)
        return self._sign(points, mask_points(found, self._mask).tobytes())

    def _finish(self, finish: ReturnedPoints) -> Receipt:
        """Remove this party's blinding and apply its mask to its own points, which only it sees."""
        if self._chain is not None:
            own = MaskedPoints(finish.session, self.name, finish.points, finish.steps)
            self._chain.check_whole(own, self._sent)
        points = decode_set(finish.points, self._offer.most)
        if len(points) != len(self._keys):
            raise InputError(f"The set must have {len(self._keys):,} points. Got {len(points):,} instead.")
        if self._blind is self._mask:
            check_points(points)
        else:
            points = mask_points(points, quotient(self._mask, self._blind))
        encodings = Texts(points.reshape(-1), np.arange(len(points) + 1) * POINT_SIZE)
        tags = np.empty((len(points), PSEUDONYM_SIZE), np.uint8)
        tags[self._order] = codes(finish.session, b"masquerade pseudonym", encodings, PSEUDONYM_SIZE)
        self._tags, self._sizes[self.name] = tags, len(points)
        if self._identity is None or self._chain is None:
            return Receipt(finish.session, len(points))
        return self._chain.sign_receipt(self._identity, self.name, len(points))

    def _confirm(self, confirm: Confirmation) -> Receipt:
        """Allow pseudonyms to be shown, after every party has signed that its set came back unchanged."""
        roster = self._offer.roster
        if self._chain is None:
            raise InputError("The steps of this session are not signed, so that there is nothing to confirm.")
        if len(confirm.done) != len(roster):
            raise InputError("Every party of the session must sign that its set came back unchanged.")
        for party, done in zip(roster, confirm.done, strict=True):
            if party not in self._sizes:
                raise InputError(f"The set of {party!r} has not been received by this party.")
            self._chain.check_done(party, Receipt.decode(done), self._sizes[party])
        self._confirmed = True
        return Receipt(confirm.session, len(roster))

    def _compare(self, asked: PseudonymRequest) -> Pseudonyms:
        tags = self.tags
        return Pseudonyms(asked.session, tags[order_of(tags)].tobytes())

    def _settle(self, found: Pseudonyms) -> Receipt:
        common = split_pseudonyms(found.values)
        if np.any(places_among(self.tags, common) < 0):
            raise InputError("A common pseudonym does not belong to this party.")
        if len(common) < self._least:
            raise InputError(
                f"{len(common):,} records are common: this party takes part with {self._least:,} "
                "or more, since fewer could single out a person."
            )
        self._common = common
        return Receipt(found.session, len(common))

    def _sign(self, given: MaskedPoints, passed: bytes) -> MaskedPoints:
        if self._identity is None or self._chain is None:
            return replace(given, points=passed)
        return self._chain.sign_step(self._identity, self.name, given, passed)


class Joiner:
    """Coordinates one linking session over a transport; afterwards it stores only the sizes.

    `name` is the joiner's name: a miner, or one of two parties. With the identities of all parties (`peers`)
    it requires signed steps, and names a party whose signature is invalid. `session` is the id of the
    session, by default random.
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
        self.session = os.urandom(codec.SESSION_SIZE) if session is None else session
        if len(self.session) != codec.SESSION_SIZE:
            raise InputError(f"A session has {codec.SESSION_SIZE} bytes. Got {len(self.session)} instead.")
        self._offer = LinkingOffer(self.session, self.parties, most)
        self._chain = None if peers is None else Chain(self._offer, peers)
        self.sizes: dict[str, int] = {}

    def link(self) -> int:
        """Give every record a pseudonym, report the common records to all parties; return their number."""
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
        """Send a set to all other parties for masking, and back; return the origin's receipt."""
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
                raise _broken(
                    f"Party {origin!r} did not sign that its set came back unchanged.", origin
                ) from None
        self.sizes[origin] = done.records
        return done

    def intersect(self) -> int:
        """Report to every party which of its records all parties have; return their number."""
        common: Tags | None = None
        for party in self.parties:
            reply = ask(self._transport, party, PseudonymRequest(self.session), Pseudonyms, spent=True)
            try:
                listed = split_pseudonyms(reply.values)
            except InputError as error:
                raise _broken(f"{party!r}: {error}", party) from None
            common = listed if common is None else common[places_among(listed, common) >= 0]
        found = b"" if common is None else common.tobytes()
        message = Pseudonyms(self.session, found)
        for party in self.parties:
            ask(self._transport, party, message, Receipt, spent=True)
        return len(found) // PSEUDONYM_SIZE

    def guarantee(self) -> Guarantee:
        """Return the disclosures about keys; "keys" represents the columns that records are linked by."""
        signed = (
            "identities were known in advance, and Ed25519 and SHA-256 are secure",
            f"{self.name} says which records are common and may leave some out: parties set the least number",
        )
        unsigned = (f"{self.name} relays sets unchanged: nobody signs them",)
        return _guarantee(
            self.parties,
            self.name,
            "which of its own records all parties have, and set sizes",
            "decisional Diffie–Hellman in ristretto255, and hashing to it as a random oracle",
            "parties link keys of records they have: an inserted guess shows whether all others have it",
            f"sets have at most {self.most:,} keys",
            *(unsigned if self._chain is None else signed),
            # a relay of signed steps cannot insert guesses
            adversary="semi-honest" if self._chain is None else "malicious",
        )

    def _check(
        self, party: str, points: MaskedPoints, given: MaskedPoints | None, origin: str, size: int
    ) -> None:
        """Raise an error unless a party returned the set it was given, with one further signed step."""
        another = _broken(f"Party {party!r} returned a different set.", party)
        if (points.session, points.origin, len(points.points)) != (self.session, origin, size):
            raise another
        if self._chain is None:
            return
        before = () if given is None else given.steps
        if points.steps[:-1] != before or [step.party for step in points.steps[-1:]] != [party]:
            raise another
        try:
            self._chain.check(points)
        except RoundAborted:
            raise another from None


def keyed_guarantee(parties: Sequence[str], joiner: str) -> Guarantee:
    """Return the disclosures of linkage by a secret of the parties that the joiner does not have."""
    if joiner in parties:
        raise InputError(
            f"{joiner!r} cannot be the joiner and a party: with the secret it could try keys on the "
            "pseudonyms of the others."
        )
    return _guarantee(
        parties,
        joiner,
        "which of its own records all parties have",
        "HMAC-SHA256 is a pseudorandom function",
        f"{joiner} does not receive the linking secret from any party: with the secret it could test "
        "guessed keys",
    )


def _guarantee(
    parties: Sequence[str], joiner: str, learnt: str, *assuming: str, adversary: Adversary = "semi-honest"
) -> Guarantee:
    keys = ("keys",)
    sizes = Disclosure(joiner, "sizes of sets and of all their overlaps, and no key", keys, Fraction(1))
    return Guarantee(
        (*(Disclosure(party, learnt, keys, None) for party in parties), sizes),
        (*assuming, "pseudonyms are destroyed once records are joined"),
        {joiner: adversary, **dict.fromkeys(parties, "semi-honest")},
        len(parties) - 1,
        tuple((joiner, party) for party in parties if joiner not in parties),
        0,
    )
