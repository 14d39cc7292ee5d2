"""Counting in how many attributes two rows agree, without seeing which, or any value.

Every pair of rows becomes one ciphertext for each attribute: of nothing where the two agree, of something
else where they do not. One key holder after the other

1. multiplies each by a fresh number, and proves that it did just that: what is not nothing becomes random;
2. re-encrypts and permutes the attributes of each pair, and proves that it did just that.

Opened in the end, each pair shows how many of its ciphertexts hold nothing. A number cannot be zero: the
product would have no encoding.

Cost: for each pair and attribute about 1 ms to blind, shuffle and prove, half of that to check; more than
300 people are refused, with the time that a handful of comparisons took just now, unless that is accepted.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import QueryRefused, Refusal
from masquerade.core.util.formatting import duration
from masquerade.crypto.elgamal import Ciphertext, Row, decode_rows, encode_rows, encrypt
from masquerade.crypto.errors import DecodingError, ProofRejected
from masquerade.crypto.group import Point, Secret
from masquerade.crypto.proof_batches import Claim, Weighed
from masquerade.crypto.proofs import NOT_YET, Context, Knows, Part, Statement, Transcript, equal_logs, prove
from masquerade.crypto.secp256k1 import secp256k1
from masquerade.protocols.mixnet.messages import LARGEST, SHUFFLE, MixTerms, Signed, transcript_for
from masquerade.protocols.mixnet.roles import PublicKey, opening_statement
from masquerade.protocols.mixnet.shuffle import Shuffled, check_shuffle, shuffle
from masquerade.protocols.people.roster import aborted
from masquerade.protocols.wire.codec import Blob, Many, Message

Between = NDArray[np.uint16]
Where = Callable[[bytes], Transcript]
MOST_PAIRS = 50_000_000
_BLINDING = b"blinding"
MOST_PEOPLE = 300  # more are refused unless the cost is accepted
_MEASURED_ROWS = 4  # six pairs


class MixedPairs(Message, tag=b"masquerade partition mixing 1"):
    """What a key holder made of all pairs: blinded, with one proof; then each pair's shuffle."""

    blinded: Annotated[bytes, Blob(LARGEST)]
    proof: Annotated[bytes, Blob(LARGEST)]
    shuffles: Annotated[tuple[Annotated[bytes, Blob(1 << 20)], ...], Many(MOST_PAIRS)]


def quotients(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Return a row for every two rows, in the order of `combinations`: nothing where they agree."""
    negated = [tuple(Ciphertext(-pair.a, -pair.b) for pair in row) for row in rows]
    return tuple(
        tuple(Ciphertext(x.a + y.a, x.b + y.b) for x, y in zip(rows[i], negated[j], strict=True))
        for i, j in combinations(range(len(rows)), 2)
    )


def mixing_place(terms: MixTerms, key: PublicKey, batch: bytes, holder: str) -> Where:
    """Return where the proofs of a key holder begin; `batch` is the hash of the rows that are compared."""

    def where(label: bytes) -> Transcript:
        query = hashlib.sha256(b"masquerade partition mixing" + batch + label).digest()
        return transcript_for(terms, holder, SHUFFLE, roster=key.id, query=query)

    return where


def mix_pairs(rows: Sequence[Row], key: Point, where: Where) -> tuple[bytes, tuple[Row, ...]]:
    """Return a message with all pairs blinded and shuffled, and proofs; and the rows that came out."""
    factors = [[secp256k1.random_secret() for _ in row] for row in rows]
    blinded = tuple(
        tuple(
            Ciphertext(secp256k1.multiply(pair.a, r), secp256k1.multiply(pair.b, r))
            for pair, r in zip(row, own, strict=True)
        )
        for row, own in zip(rows, factors, strict=True)
    )
    knows = [Knows((r,)) for own in factors for r in own]
    proof = prove(_blinding(rows, blinded), knows, where(_BLINDING))
    shuffled = [shuffle(_apart(row), key, where(_label(p))) for p, row in enumerate(blinded)]
    message = MixedPairs(encode_rows(blinded), proof, tuple(one.encode() for one in shuffled))
    return message.encode(), tuple(_together(one) for one in shuffled)


def check_mixing(rows: Sequence[Row], key: Point, message: bytes, where: Where) -> tuple[Row, ...]:
    """Return the rows that came out, or raise `ProofRejected` or `DecodingError`."""
    mixing, width = MixedPairs.decode(message), len(rows[0])
    blinded = decode_rows(mixing.blinded, width)
    if len(blinded) != len(rows) or len(mixing.shuffles) != len(rows):
        raise ProofRejected("A mixing returns as many pairs as it was given.")
    weighed = Weighed()
    weighed.add(Claim(_blinding(rows, blinded), mixing.proof, where(_BLINDING)))
    if not weighed.holds():
        raise ProofRejected("The proof does not show that these pairs were blinded.")
    shuffled = [Shuffled.decode(data, width, 1) for data in mixing.shuffles]
    for p, (row, one) in enumerate(zip(blinded, shuffled, strict=True)):
        check_shuffle(_apart(row), key, one, where(_label(p)))
    return tuple(_together(one) for one in shuffled)


def checked_mixing(
    terms: MixTerms, key: PublicKey, batch: bytes, rows: Sequence[Row], signed: Signed
) -> tuple[Row, ...]:
    """Return what a key holder made of the pairs, if its proofs hold; otherwise abort and name it."""
    where = mixing_place(terms, key, batch, signed.sender)
    try:
        return check_mixing(rows, key.point, signed.payload, where)
    except (DecodingError, ProofRejected):
        reason = f"{signed.sender} did not prove that it blinded and shuffled, and nothing else."
        raise aborted(reason, signed.sender) from None


def outcome_of(message: bytes, pairs: int, width: int) -> tuple[Row, ...]:
    """Return the rows that a mixing says came out, decoded strictly, without checking any proof."""
    mixing = MixedPairs.decode(message)
    if len(mixing.shuffles) != pairs:
        raise DecodingError(f"This mixing has {pairs} pairs. Got {len(mixing.shuffles)} instead.")
    return tuple(_together(Shuffled.decode(data, width, 1)) for data in mixing.shuffles)


def distances_of(rows: Sequence[Row], partials: Sequence[Sequence[Point]], people: int) -> Between:
    """Return in how many attributes every two people differ, from all partial decryptions."""
    masks = iter([secp256k1.sum_points(points) for points in zip(*partials, strict=True)])
    between = np.zeros((people, people), dtype=np.uint16)
    for (i, j), row in zip(combinations(range(people), 2), rows, strict=True):
        between[i, j] = between[j, i] = sum(pair.b != next(masks) for pair in row)
    return between


def _blinding(rows: Sequence[Row], blinded: Sequence[Row]) -> Statement:
    """State for every ciphertext that both its points were multiplied by one number."""
    parts: list[Part] = []
    for before, after in zip(rows, blinded, strict=True):
        for old, new in zip(before, after, strict=True):
            parts += equal_logs([(new.a, old.a), (new.b, old.b)])
    return tuple(parts)


def _label(pair: int) -> bytes:
    return b"shuffle " + pair.to_bytes(8, "big")


def _apart(row: Row) -> tuple[Row, ...]:
    """Return the attributes of a pair as rows of their own, which a shuffle moves."""
    return tuple((pair,) for pair in row)


def _together(shuffled: Shuffled) -> Row:
    return tuple(row[0] for row in shuffled.rows)


def check_cost(people: int, attributes: int, holders: int, *, accept_cost: bool) -> None:
    """Refuse more than 300 people unless the cost is accepted, and say what it would be.

    The time is measured on this machine, by a handful of comparisons as the key holders make them.
    """
    if people <= MOST_PEOPLE or accept_cost:
        return
    tests = people * (people - 1) // 2 * attributes
    seconds = tests * seconds_per_test(attributes, holders)
    reason = (
        f"{people:,} people have {tests:,} comparisons of {attributes} attributes, which take "
        f"{holders} key holders about {duration(seconds)} in all, by comparisons timed here just now. More "
        f"than {MOST_PEOPLE} are refused unless that is accepted (accept_cost=True, or --accept-cost)."
    )
    raise QueryRefused([Refusal("too_many_people", reason)])


def seconds_per_test(attributes: int, holders: int) -> float:
    """Return the processor time that all holders together need to compare one attribute of one pair.

    Each blinds, shuffles and proves, checks all others, opens its part, as the miner does, and one party
    checks the openings.
    """
    secrets = [secp256k1.random_secret() for _ in range(holders + 1)]
    shares = [secp256k1.multiply_generator(secret) for secret in secrets]
    key, random = secp256k1.sum_points(shares), secp256k1.random_secret
    rows: list[Row] = [
        tuple(encrypt(secp256k1.multiply_generator(random()), key, random()) for _ in range(attributes))
        for _ in range(_MEASURED_ROWS)
    ]
    began = time.process_time()
    pairs = quotients(rows)
    for _ in range(holders):
        before = pairs
        message, pairs = mix_pairs(before, key, _where)
        for _ in range(holders - 1):
            check_mixing(before, key, message, _where)
    for secret in secrets:
        _open(pairs, secret)
    return (time.process_time() - began) / sum(len(row) for row in pairs)


def _open(rows: tuple[Row, ...], secret: Secret) -> None:
    partial = [secp256k1.multiply(pair.a, secret) for row in rows for pair in row]
    statement = opening_statement(rows, secp256k1.multiply_generator(secret), partial)
    proof = prove(statement, [Knows((secret,))], _where(b"opening"))
    weighed = Weighed()
    weighed.add(Claim(statement, proof, _where(b"opening")))
    weighed.holds()


def _where(label: bytes) -> Transcript:
    return Transcript(Context("partition cost", b"measured", NOT_YET, label, b"nobody", "holder"))
