"""How users draw the graph of a session without the server's say: a committee commits, then reveals.

The committee of each attempt follows from the name of the session. Each member reveals its nonce only when
it has seen everybody's commitments, and signs them. All members must reveal: if one is silent, another
attempt with another committee starts, 64 at most, so that whoever withholds nonces chooses among 64 graphs,
not among 2^colluders. Every user checks nonces and signatures of the committee, some 2 kB, whatever n is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from masquerade.protocols.aggregation.agreement import RoundContext, Terms
from masquerade.protocols.aggregation.messages import (
    NONCE_SIZE,
    SIGNED_NONCE_SIZE,
    Neighbours,
    Reveal,
    Signer,
    Work,
)
from masquerade.protocols.aggregation.neighbour_graph import Graph, harary_graph, permutation


def members(context: RoundContext, attempt: int, terms: Terms) -> list[int]:
    """Return the committee of an attempt: nobody's choice once the session has its name."""
    key = hashlib.sha256(b"masquerade aggregation committee" + _head(context, attempt)).digest()
    chosen: list[int] = permutation(key, terms.parameters.users)[: terms.parameters.committee].tolist()
    return chosen


def commitment_to(context: RoundContext, attempt: int, place: int, nonce: bytes) -> bytes:
    """Return the hash by which a member of a committee fixes its nonce before seeing those of others."""
    head = b"masquerade aggregation nonce" + _head(context, attempt) + place.to_bytes(4, "big")
    return hashlib.sha256(head + nonce).digest()


def commitments_hash(context: RoundContext, attempt: int, commitments: Sequence[bytes]) -> bytes:
    """Return the hash of all commitments of a committee."""
    head = b"masquerade aggregation commitments" + _head(context, attempt)
    return hashlib.sha256(head + b"".join(commitments)).digest()


def drawn_graph(context: RoundContext, attempt: int, nonces: Sequence[bytes], terms: Terms) -> Graph:
    """Return the graph that nonces decide: unpredictable while one member is honest."""
    head = b"masquerade aggregation graph" + _head(context, attempt)
    key = hashlib.sha256(head + b"".join(nonces)).digest()
    return harary_graph(terms.parameters.users, terms.parameters.neighbours, key)


def checked_graph(shown: Neighbours, context: RoundContext, terms: Terms, work: Work) -> Graph:
    """Return the graph that a committee drew, each member's nonce and signature checked."""
    attempt, opening = shown.attempt, context.opening
    places, size = members(context, attempt, terms), SIGNED_NONCE_SIZE
    pieces = [shown.drawn[at : at + size] for at in range(0, len(shown.drawn), size)]
    nonces = [piece[:NONCE_SIZE] for piece in pieces]
    hashes = [commitment_to(context, attempt, *one) for one in zip(places, nonces, strict=True)]
    about = commitments_hash(context, attempt, hashes)
    for place, piece in zip(places, pieces, strict=True):
        fields = bytes([attempt]) + piece[:NONCE_SIZE]
        Signer.at(place, terms, work).check(Reveal, opening, fields, piece[NONCE_SIZE:], about)
    return drawn_graph(context, attempt, nonces, terms)


def _head(context: RoundContext, attempt: int) -> bytes:
    return context.opening.info + bytes([attempt])
