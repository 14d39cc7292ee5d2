"""Sessions of parties: the transport of messages, the members' keys, queries and consent.

Keys are fresh and signed by known identities; the secrets that pairs share are derived from them. A relay can
read adverts but cannot forge one: every party checks every signature against identities known in advance.
Queries are proposed in canonical form before anything is counted.
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
    """The interface between protocols and networks."""

    def exchange(self, party: str, message: bytes) -> bytes:
        """Deliver a message to a party and return its reply."""


class LocalTransport:
    """Parties in this process, each a function from message to reply; messages are bytes, as over a network.

    >>> LocalTransport({"hospital": bytes.upper}).exchange("hospital", b"hello")
    b'HELLO'
    """

    def __init__(self, parties: Mapping[str, Callable[[bytes], bytes]], *, largest: int = LARGEST) -> None:
        self._parties, self._largest = dict(parties), largest

    def exchange(self, party: str, message: bytes) -> bytes:
        """Deliver a message and return the reply; a message or reply beyond the limit is refused unread."""
        if party not in self._parties:
            raise InputError(f"There is no party {party!r}.{did_you_mean(party, self._parties)}")
        reply = self._parties[party](self._fitting(message))
        return self._fitting(reply)

    def _fitting(self, message: bytes) -> bytes:
        if len(message) > self._largest:
            raise InputError(f"A message has at most {self._largest:,} bytes. Got {len(message):,} instead.")
        return bytes(message)


def ask(transport: Transport, party: str, message: codec.Message, reply: type[M], *, spent: bool) -> M:
    """Return a party's decoded reply; a refusal or an invalid reply aborts the round and names the party.

    `spent` is True if data about the records may have left a party by then.
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
    """Offer of a session: its id, a digest of the agreement, and the participants."""

    agreement: codec.Digest
    roster: codec.Names


class Advert(codec.SessionMessage, tag=b"masquerade parties advert 1"):
    """A party's fresh key for one session under this agreement, signed."""

    agreement: codec.Digest
    party: codec.Name
    key: codec.Key
    signature: codec.Signature

    @property
    def signed_bytes(self) -> tuple[bytes, ...]:
        """Return the bytes that the signature covers."""
        return (self.session, self.agreement, self.party.encode(), self.key)


class SessionRoster(codec.SessionMessage, tag=b"masquerade parties roster 1"):
    """The adverts of all participants."""

    adverts: Annotated[tuple[Annotated[bytes, codec.Blob(1000)], ...], codec.Many(codec.MOST_PARTIES)]

    @property
    def digest(self) -> bytes:
        """Return the sha256 of the whole roster."""
        return hashlib.sha256(self.encode()).digest()


class RosterReceipt(codec.SessionMessage, tag=b"masquerade parties joined 1"):
    """A party's statement that it has checked the roster with this digest, and uses no other."""

    roster: codec.Digest


class Responder:
    """A role in one session: it replies to the types of messages in `handlers`.

    `BEGINS` is the type of message that starts the session; a role without it is created for one session.
    """

    BEGINS: ClassVar[type[codec.SessionMessage] | None] = None
    session: bytes | None = None
    handlers: dict[type[codec.SessionMessage], Callable[[Any], codec.SessionMessage]]

    def receive(self, message: bytes) -> bytes:
        """Return the reply to a message; a refused message changes nothing."""
        return self._reply(codec.decode_any(message, self.handlers)).encode()

    def _reply(self, found: codec.SessionMessage) -> codec.SessionMessage:
        if type(found) is not self.BEGINS:
            if self.session is None:
                raise InputError("No session has started yet.")
            check_session(found.session, self.session)
        return self.handlers[type(found)](found)


class Member(Responder):
    """A role that joins a session on agreed terms.

    It makes its advert, checks all others, and derives the secrets that it shares with each. The key is fresh
    and never stored, so a member that restarts joins a new session. A subclass adds `handlers`, and may
    refuse an offer.
    """

    BEGINS = SessionOffer

    def __init__(self, name: str, identity: SigningKey, peers: Mapping[str, bytes], agreement: bytes) -> None:
        self.name, self.agreement = name, agreement
        self._identity, self._peers = identity, {**peers, name: identity.public}
        self._key = AgreementKey()
        self._offer: SessionOffer | None = None
        self._keys: dict[str, bytes] = {}
        self.roster = b""
        self.handlers = {SessionOffer: self._join, SessionRoster: self._accept}

    @property
    def members(self) -> tuple[str, ...]:
        """Return all participants, including this one."""
        if self._offer is None or not self.roster:
            raise InputError("The roster is not known yet.")
        return self._offer.roster

    def secret(self, peer: str, label: str, *context: bytes) -> bytes:
        """Return a secret for one purpose that only this member and `peer` can derive."""
        if peer not in self._keys or self.session is None:
            raise InputError(f"Party {peer!r} shares no secret with {self.name!r}.")
        return self._key.agree(self._keys[peer], label, self.session, self.roster, *context)

    def mask(self, peer: str, count: int, label: str, *context: bytes) -> Words:
        """Return uniform 64-bit words that only this member and `peer` can compute."""
        words = np.frombuffer(stream(self.secret(peer, label, *context), 8 * count), dtype="<u8")
        return words.astype(np.uint64, copy=False)

    def _check_offer(self, offer: SessionOffer) -> None:
        """Raise an error if this role must not accept the offer."""

    def _join(self, offer: SessionOffer) -> Advert:
        """Return the advert for a session. A member joins one session only, on the agreed terms."""
        self._check_offer(offer)
        if self._offer is not None and offer != self._offer:
            raise InputError("This party has joined a session already; a new one needs fresh keys.")
        if offer.agreement != self.agreement:
            raise InputError("The terms of the session differ: another policy, schema or bound.")
        if self.name not in offer.roster or len(set(offer.roster)) < len(offer.roster):
            raise InputError("The roster lists a party twice, or does not list this party.")
        unknown = [name for name in offer.roster if name not in self._peers]
        if unknown:
            raise InputError(f"No identity is known for {', '.join(map(repr, unknown))}.")
        self._offer, self.session = offer, offer.session
        unsigned = Advert(offer.session, self.agreement, self.name, self._key.public, bytes(64))
        return replace(unsigned, signature=self._identity.sign(ADVERT, *unsigned.signed_bytes))

    def _accept(self, roster: SessionRoster) -> RosterReceipt:
        """Check every advert and store the keys; a different roster is refused from then on."""
        if self.roster and roster.digest != self.roster:
            raise InputError("A different roster was received for the same session.")
        adverts = [Advert.decode(data) for data in roster.adverts]
        if self._offer is None or tuple(advert.party for advert in adverts) != self._offer.roster:
            raise InputError("The roster differs from the roster in the offer of the session.")
        for advert in adverts:
            self._check(advert)
        keys = {advert.party: advert.key for advert in adverts}
        if keys.pop(self.name) != self._key.public:
            raise InputError("The roster contains a different key for this party.")
        self._keys, self.roster = keys, roster.digest
        return RosterReceipt(roster.session, self.roster)

    def _check(self, advert: Advert) -> None:
        if (advert.session, advert.agreement) != (self.session, self.agreement):
            raise InputError(f"The advert of party {advert.party!r} belongs to another session.")
        try:
            verify_signature(self._peers[advert.party], advert.signature, ADVERT, *advert.signed_bytes)
            self._key.agree(advert.key, ADVERT)  # refuses a key of small order before anything is sent
        except SealBroken:
            raise SealBroken(
                f"The advert of party {advert.party!r} is not signed by its known identity."
            ) from None
        except DecodingError:
            raise InputError(f"Party {advert.party!r} has an invalid key.") from None


def convene(parties: Sequence[str], transport: Transport, session: bytes, agreement: bytes) -> None:
    """Make all parties join a session; return when all have checked the same roster."""
    offer = SessionOffer(session, agreement, tuple(parties))
    adverts = [ask(transport, party, offer, Advert, spent=False) for party in parties]
    roster = SessionRoster(session, tuple(advert.encode() for advert in adverts))
    for party in parties:
        if ask(transport, party, roster, RosterReceipt, spent=False).roster != roster.digest:
            raise RoundAborted(
                f"Party {party!r} received a different roster.", spent=False, culprits=(party,)
            )


def agreement_of(*facts: str) -> bytes:
    """Return the digest of the agreement on a session."""
    return hashlib.sha256("\0".join(("masquerade terms", *facts)).encode()).digest()


def check_names(names: Sequence[str]) -> None:
    """Raise InputError for an empty or repeated name."""
    if any(not name for name in names) or len(set(names)) < len(names):
        raise InputError("The names of the parties must be distinct and not empty.")


@dataclass(frozen=True, slots=True)
class Batch:
    """Questions as one canonical text, whose digest must be the same for all parties.

    >>> Batch((Query(by="sex"),)).text
    '[[["sex"],[]]]'
    """

    queries: tuple[Query, ...]

    @property
    def text(self) -> str:
        """Return the queries as JSON."""
        return json.dumps(
            [[query.by, query.where] for query in self.queries], ensure_ascii=False, separators=(",", ":")
        )

    @property
    def digest(self) -> bytes:
        """Return the sha256 of the text."""
        return hashlib.sha256(self.text.encode()).digest()

    @classmethod
    def parse(cls, text: str) -> Batch:
        """Return the queries in a text; raise an error unless it is a list of [by, where]."""
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
    """Queries of a round, proposed before anything is counted."""

    round: codec.U64
    batch: Questions


class SignedConsent(codec.SessionMessage, tag=b"masquerade pooling consent 1"):
    """A party's answer to a proposal: its refusals, or an empty list if it consents."""

    round: codec.U64
    refusals: Refusals


def propose(
    transport: Transport, parties: Sequence[str], session: bytes, number: int, queries: Sequence[Query]
) -> None:
    """Raise `QueryRefused` unless every party consents; by then no party has sent an answer."""
    proposal = Proposal(session, number, Batch(tuple(queries)))
    refusals: list[Refusal] = []
    for party in parties:
        reply = ask(transport, party, proposal, SignedConsent, spent=False)
        refusals += [Refusal(item.code, f"{party}: {item.reason}") for item in reply.refusals]
    if refusals:
        raise QueryRefused(refusals)


def check_session(session: bytes, due: bytes) -> None:
    """Raise an error for a message of a different session."""
    if session != due:
        raise InputError("The message belongs to another session.")
