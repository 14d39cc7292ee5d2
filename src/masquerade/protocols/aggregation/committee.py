"""How users draw the graph of a session without the server's say: a committee commits, then reveals.

The committee of each attempt follows from the name of the session. Each member reveals its nonce only when
it has seen everybody's commitments, and signs them. All members must reveal: if one is silent, another
attempt with another committee starts, 64 at most, so that whoever withholds nonces chooses among 64 graphs,
not among 2^colluders. Every user checks nonces and signatures of the committee, some 2 kB, whatever n is.
"""

from __future__ import annotations

from collections.abc import Sequence

from masquerade.crypto.errors import DecodingError
from masquerade.crypto.keys import SIGNATURE_SIZE
from masquerade.protocols.aggregation.crypto_cache import Work
from masquerade.protocols.aggregation.graph import (
    Graph,
    commitment,
    commitments_hash,
    committee,
    drawn_key,
    harary_graph,
)
from masquerade.protocols.aggregation.messages import Kind, check_signature, pieces
from masquerade.protocols.aggregation.roster import NONCE_SIZE, Context, Terms

__all__ = [
    "MOST_ATTEMPTS",
    "commitment",
    "commitments_hash",
    "drawn_graph",
    "members",
    "read_call",
    "read_commitments",
    "read_drawn",
    "write_drawn",
]

MOST_ATTEMPTS = 64
HASH_SIZE = 32


def members(context: Context, attempt: int, terms: Terms) -> list[int]:
    """Return the committee of an attempt."""
    return committee(context.opening.info, attempt, terms.parameters.users, terms.parameters.committee)


def read_call(body: bytes) -> int:
    """Return the attempt that a call is for."""
    if len(body) != 1:
        raise DecodingError("A call has one byte, the attempt.")
    return read_attempt(body)


def read_attempt(body: bytes) -> int:
    """Return the attempt that a body starts with."""
    if not body or body[0] >= MOST_ATTEMPTS:
        raise DecodingError(f"An attempt has a number below {MOST_ATTEMPTS}.")
    return body[0]


def read_commitments(body: bytes, terms: Terms) -> tuple[int, list[bytes]]:
    """Return the attempt and the commitments of its committee."""
    size = 1 + HASH_SIZE * terms.parameters.committee
    if len(body) != size:
        raise DecodingError(f"The commitments have {size} bytes. Got {len(body)} instead.")
    return read_attempt(body), list(pieces(body[1:], HASH_SIZE))


def write_drawn(attempt: int, reveals: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return what proves to users how the graph was drawn: attempt, nonces, signatures."""
    return bytes([attempt]) + b"".join(nonce + signature for nonce, signature in reveals)


def read_drawn(data: bytes, context: Context, terms: Terms, work: Work) -> tuple[Graph, bytes]:
    """Return the graph that a committee drew, each member's nonce and signature checked, and what follows."""
    each = NONCE_SIZE + SIGNATURE_SIZE
    size = 1 + each * terms.parameters.committee
    if len(data) < size:
        raise DecodingError(f"The drawing of the graph has {size} bytes. Got {len(data)} instead.")
    attempt = read_attempt(data)
    parts = [(part[:NONCE_SIZE], part[NONCE_SIZE:]) for part in pieces(data[1:size], each)]
    context = context.opening
    places = members(context, attempt, terms)
    hashes = [
        commitment(context.info, attempt, place, nonce)
        for place, (nonce, _) in zip(places, parts, strict=True)
    ]
    about = commitments_hash(context.info, attempt, hashes)
    for place, (nonce, signature) in zip(places, parts, strict=True):
        body = bytes([attempt]) + nonce
        signer = terms.roster.signer(place)
        check_signature(Kind.REVEAL, context, body, signature, signer, work=work, about=about)
    return drawn_graph(context, attempt, [nonce for nonce, _ in parts], terms), data[size:]


def drawn_graph(context: Context, attempt: int, nonces: Sequence[bytes], terms: Terms) -> Graph:
    """Return the graph that nonces decide."""
    key = drawn_key(context.opening.info, attempt, nonces)
    return harary_graph(terms.parameters.users, terms.parameters.neighbours, key)
