"""Questions before anything is counted: a batch in its one spelling, a round's proposal, and the consent."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from masquerade.core.errors import QueryRefused, Refusal
from masquerade.core.query import Query
from masquerade.protocols.codec import LONGEST_TEXT, U64, Converted, Many, SessionMessage, Text
from masquerade.protocols.transport import Transport, ask

MOST_QUERIES = 100_000


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
        listed = json.loads(text)
        if len(listed) > MOST_QUERIES:
            raise ValueError("too many questions")
        return cls(
            tuple(Query(by=tuple(by), where=[(name, label) for name, label in where]) for by, where in listed)
        )


def _texts(refusals: tuple[Refusal, ...]) -> tuple[str, ...]:
    return tuple(text for refusal in refusals for text in (refusal.code, refusal.reason))


def _refusals(texts: tuple[str, ...]) -> tuple[Refusal, ...]:
    return tuple(Refusal(code, reason) for code, reason in zip(texts[::2], texts[1::2], strict=True))


Questions = Annotated[
    Batch,
    Converted(Text(LONGEST_TEXT), lambda batch: batch.text, Batch.parse, "A batch of questions"),
]
Refusals = Annotated[
    tuple[Refusal, ...],
    Converted(Many(2 * MOST_QUERIES, Text(LONGEST_TEXT)), _texts, _refusals, "A list of refusals"),
]


@dataclass(frozen=True, slots=True)
class Proposal(SessionMessage):
    """Questions of a round, before anything is counted."""

    TAG: ClassVar[bytes] = b"masquerade pooling proposal 1"
    round: U64
    batch: Questions


@dataclass(frozen=True, slots=True)
class Consent(SessionMessage):
    """What a party says to a proposal: nothing against it, or why not."""

    TAG: ClassVar[bytes] = b"masquerade pooling consent 1"
    round: U64
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
