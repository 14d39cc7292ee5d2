"""Sessions of parties: how messages travel, who takes part under which keys, what is asked and consented to.

Keys are fresh and signed by known identities; from them follow the secrets that pairs share. Whoever carries
the messages can read adverts but cannot make one: every party checks every signature against the identities
it knew beforehand. Questions are proposed in their one spelling before anything is counted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Protocol, TypeVar

import numpy as np

from masquerade.core.axes import Words
from masquerade.core.errors import (
    InputError,
    MasqueradeError,
    QueryRefused,
    Refusal,
    RoundAborted,
    did_you_mean,
)
from masquerade.core.query import Query
from masquerade.core.util.json_text import parse_json
from masquerade.crypto.errors import DecodingError, SealBroken
from masquerade.crypto.keys import AgreementKey, SigningKey, verify_signature
from masquerade.crypto.symmetric import stream
from masquerade.protocols.wire import codec

LARGEST = 1 << 30  # bytes of a message
MOST_QUERIES = 100_000
ADVERT = "advert of a party"

M = TypeVar("M", bound=codec.Message)


class Transport(Protocol):
    """The seam between protocols and networks."""

    def exchange(self, party: str, message: bytes) -> bytes:
        """Deliver a message to a party and return its reply."""


class LocalTransport:
    """Parties in this process, each a function from message to reply; messages are bytes all the same.

    >>> LocalTransport({"hospital": bytes.upper}).exchange("hospital", b"hello")
    b'HELLO'
    """

    def __init__(self, parties: Mapping[str, Callable[[bytes], bytes]], *, largest: int = LARGEST) -> None:
        self._parties, self._largest = dict(parties), largest

    def exchange(self, party: str, message: bytes) -> bytes:
        """Hand a message over and return the reply; either beyond the limit is refused unread."""
        if party not in self._parties:
            raise InputError(f"There is no party {party!r}.{did_you_mean(party, self._parties)}")
        reply = self._parties[party](self._fitting(message))
        return self._fitting(reply)

    def _fitting(self, message: bytes) -> bytes:
        if len(message) > self._largest:
            raise InputError(f"A message has at most {self._largest:,} bytes. Got {len(message):,} instead.")
        return bytes(message)


def ask(transport: Transport, party: str, message: codec.Message, reply: type[M], *, spent: bool) -> M:
    """Return a party's decoded reply; whatever it refuses or garbles aborts the round and names it.

    `spent` tells whether something about the records may have left a party by then.
    """
    try:
        return reply.decode(transport.exchange(party, message.encode()))
    except DecodingError:
        reason = f"Party {party!r} sent a reply that cannot be read."
    except RoundAborted:
        raise
    except MasqueradeError as error:
        named = str(error).startswith(f"Party {party!r}")
        reason = str(error) if named else f"Party {party!r} refused: {error}"
    raise RoundAborted(reason, spent=spent, culprits=(party,))


class SessionOffer(codec.SessionMessage, tag=b"masquerade parties join 1"):
    """A session is offered: its id, a digest of what was agreed on, and who is to take part."""

    agreement: codec.Digest
    roster: codec.Names


class Advert(codec.SessionMessage, tag=b"masquerade parties advert 1"):
    """A party's fresh key for one session under this agreement, signed."""

    agreement: codec.Digest
    party: codec.Name
    key: codec.Key
    signature: codec.Signature

    @property
    def signed(self) -> tuple[bytes, ...]:
        """Return what the signature covers."""
        return (self.session, self.agreement, self.party.encode(), self.key)


class Roster(codec.SessionMessage, tag=b"masquerade parties roster 1"):
    """The adverts of all who take part."""

    adverts: Annotated[tuple[Annotated[bytes, codec.Blob(1000)], ...], codec.Many(codec.MOST_PARTIES)]

    @property
    def digest(self) -> bytes:
        """Return the sha256 of the whole roster."""
        return hashlib.sha256(self.encode()).digest()


class RosterReceipt(codec.SessionMessage, tag=b"masquerade parties joined 1"):
    """A party has checked the roster with this digest and keeps to it."""

    roster: codec.Digest


class Responder:
    """A role in one session: it replies to the kinds of messages that `handlers` names.

    `BEGINS` is the kind of message that brings the session; a role without is made for one.
    """

    BEGINS: ClassVar[type[codec.SessionMessage] | None] = None
    session: bytes | None = None
    handlers: dict[type[codec.SessionMessage], Callable[[Any], codec.SessionMessage]]

    def receive(self, message: bytes) -> bytes:
        """Return the reply to a message; a refused one changes nothing."""
        return self._reply(codec.decoded(message, self.handlers)).encode()

    def _reply(self, found: codec.SessionMessage) -> codec.SessionMessage:
        if type(found) is not self.BEGINS:
            if self.session is None:
                raise InputError("No session was begun yet.")
            check_session(found.session, self.session)
        return self.handlers[type(found)](found)


class Member(Responder):
    """A role that joins a session as agreed.

    It makes its advert, checks everybody else's, and derives the secrets that it shares with each. The key is
    fresh and never stored, so a member that restarts begins another session. A subclass adds `handlers`, and
    may refuse an offer.
    """

    BEGINS = SessionOffer

    def __init__(self, name: str, identity: SigningKey, peers: Mapping[str, bytes], agreement: bytes) -> None:
        self.name, self.agreement = name, agreement
        self._identity, self._peers = identity, {**peers, name: identity.public}
        self._key = AgreementKey()
        self._offer: SessionOffer | None = None
        self._keys: dict[str, bytes] = {}
        self.roster = b""
        self.handlers = {SessionOffer: self._join, Roster: self._accept}

    @property
    def members(self) -> tuple[str, ...]:
        """Return all who take part, this one included."""
        if self._offer is None or not self.roster:
            raise InputError("The roster is not known yet.")
        return self._offer.roster

    def secret(self, peer: str, label: str, *context: bytes) -> bytes:
        """Return a secret that only this member and `peer` can derive, for one labelled purpose."""
        if peer not in self._keys or self.session is None:
            raise InputError(f"Party {peer!r} shares no secret with {self.name!r}.")
        return self._key.agree(self._keys[peer], label, self.session, self.roster, *context)

    def mask(self, peer: str, count: int, label: str, *context: bytes) -> Words:
        """Return uniform 64-bit words that only this member and `peer` can repeat."""
        words = np.frombuffer(stream(self.secret(peer, label, *context), 8 * count), dtype="<u8")
        return words.astype(np.uint64, copy=False)

    def _check_offer(self, offer: SessionOffer) -> None:
        """Refuse an offer that this role does not take part in."""

    def _join(self, offer: SessionOffer) -> Advert:
        """Return the advert for a session; only one is ever joined, and only as agreed."""
        self._check_offer(offer)
        if self._offer is not None and offer != self._offer:
            raise InputError("This party has joined a session already; a new one needs fresh keys.")
        if offer.agreement != self.agreement:
            raise InputError("The session has other terms: another policy, schema or bound.")
        if self.name not in offer.roster or len(set(offer.roster)) < len(offer.roster):
            raise InputError("The roster names a party twice, or not this one.")
        unknown = [name for name in offer.roster if name not in self._peers]
        if unknown:
            raise InputError(f"No identity is known for {', '.join(map(repr, unknown))}.")
        self._offer, self.session = offer, offer.session
        unsigned = Advert(offer.session, self.agreement, self.name, self._key.public, bytes(64))
        return replace(unsigned, signature=self._identity.sign(ADVERT, *unsigned.signed))

    def _accept(self, roster: Roster) -> RosterReceipt:
        """Check every advert and keep the keys; another roster afterwards is refused."""
        if self.roster and roster.digest != self.roster:
            raise InputError("Another roster was shown for the same session.")
        adverts = [Advert.decode(data) for data in roster.adverts]
        if self._offer is None or tuple(advert.party for advert in adverts) != self._offer.roster:
            raise InputError("The roster is not the one that the session was offered with.")
        for advert in adverts:
            self._check(advert)
        keys = {advert.party: advert.key for advert in adverts}
        if keys.pop(self.name) != self._key.public:
            raise InputError("The roster shows another key for this party.")
        self._keys, self.roster = keys, roster.digest
        return RosterReceipt(roster.session, self.roster)

    def _check(self, advert: Advert) -> None:
        if (advert.session, advert.agreement) != (self.session, self.agreement):
            raise InputError(f"The advert of party {advert.party!r} belongs to another session.")
        try:
            verify_signature(self._peers[advert.party], advert.signature, ADVERT, *advert.signed)
            self._key.agree(advert.key, ADVERT)  # refuses a key of small order before anything is sent
        except SealBroken:
            raise SealBroken(
                f"The advert of party {advert.party!r} is not signed by its known identity."
            ) from None
        except DecodingError:
            raise InputError(f"Party {advert.party!r} has a key that is none.") from None


def convene(parties: Sequence[str], transport: Transport, session: bytes, agreement: bytes) -> None:
    """Let parties join a session, all of them under the roster that all have checked."""
    offer = SessionOffer(session, agreement, tuple(parties))
    adverts = [ask(transport, party, offer, Advert, spent=False) for party in parties]
    roster = Roster(session, tuple(advert.encode() for advert in adverts))
    for party in parties:
        if ask(transport, party, roster, RosterReceipt, spent=False).roster != roster.digest:
            raise RoundAborted(f"Party {party!r} saw another roster.", spent=False, culprits=(party,))


def agreement_of(*facts: str) -> bytes:
    """Return the digest of what a session is about."""
    return hashlib.sha256("\0".join(("masquerade terms", *facts)).encode()).digest()


def check_names(names: Sequence[str]) -> None:
    """Refuse a roster with an empty or repeated name."""
    if any(not name for name in names) or len(set(names)) < len(names):
        raise InputError("Parties need names, each its own.")


@dataclass(frozen=True, slots=True)
class Batch:
    """Questions as one canonical text; its digest is what everybody must have been asked.

    >>> Batch((Query(by="sex"),)).text
    '[[["sex"],[]]]'
    """

    queries: tuple[Query, ...]

    @property
    def text(self) -> str:
        """Return the questions as JSON."""
        return json.dumps(
            [[query.by, query.where] for query in self.queries], ensure_ascii=False, separators=(",", ":")
        )

    @property
    def digest(self) -> bytes:
        """Return the sha256 of the text."""
        return hashlib.sha256(self.text.encode()).digest()

    @classmethod
    def parse(cls, text: str) -> Batch:
        """Return the questions of a text; what is no list of [by, where] raises what comes up."""
        listed = parse_json(text)
        if len(listed) > MOST_QUERIES:
            raise ValueError("too many questions")
        return cls(
            tuple(Query(by=tuple(by), where=[(name, label) for name, label in where]) for by, where in listed)
        )


Questions = Annotated[
    Batch,
    codec.Converted(
        codec.Text(codec.LONGEST_TEXT), lambda batch: batch.text, Batch.parse, "A batch of questions"
    ),
]
Refusals = Annotated[
    tuple[Refusal, ...],
    codec.Converted(
        codec.Many(2 * MOST_QUERIES, codec.Text(codec.LONGEST_TEXT)),
        lambda refusals: tuple(text for one in refusals for text in (one.code, one.reason)),
        lambda texts: tuple(Refusal(*pair) for pair in zip(texts[::2], texts[1::2], strict=True)),
        "A list of refusals",
    ),
]


class Proposal(codec.SessionMessage, tag=b"masquerade pooling proposal 1"):
    """Questions of a round, before anything is counted."""

    round: codec.U64
    batch: Questions


class Consent(codec.SessionMessage, tag=b"masquerade pooling consent 1"):
    """What a party says to a proposal: nothing against it, or why not."""

    round: codec.U64
    refusals: Refusals


def propose(
    transport: Transport, parties: Sequence[str], session: bytes, number: int, queries: Sequence[Query]
) -> None:
    """Raise `QueryRefused` unless every party consents; nothing has left anybody by then."""
    proposal = Proposal(session, number, Batch(tuple(queries)))
    refusals: list[Refusal] = []
    for party in parties:
        reply = ask(transport, party, proposal, Consent, spent=False)
        refusals += [Refusal(item.code, f"{party}: {item.reason}") for item in reply.refusals]
    if refusals:
        raise QueryRefused(refusals)


def check_session(session: bytes, due: bytes) -> None:
    """Refuse a message of another session."""
    if session != due:
        raise InputError("The message belongs to another session.")
