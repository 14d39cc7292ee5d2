"""Count the attributes in which two rows agree, without revealing which attributes, or any value.

Every pair of rows becomes one ciphertext per attribute: an encryption of zero (the identity) if the rows
agree, of another point if they do not. Each key holder in turn

1. multiplies each ciphertext by a fresh number, and proves it: zero stays zero, other points become random;
2. re-encrypts and permutes the attributes of each pair, and proves it.

After decryption, each pair shows how many of its ciphertexts encrypt zero. The fresh number itself cannot be
zero, because the product would have no encoding.

Cost: for each pair and attribute about 1 ms to blind, shuffle and prove, and half of that to check. More than
300 people are refused, with an estimate of the time from a few comparisons, unless the cost is accepted.
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
from masquerade.crypto.proof_batches import ProofClaim, WeightedSum
from masquerade.crypto.proofs import NOT_YET, Context, Knows, Part, Statement, Transcript, equal_logs, prove
from masquerade.crypto.secp256k1 import secp256k1
from masquerade.protocols.mixnet.messages import LARGEST, SHUFFLE, MixTerms, SignedMixMessage, transcript_for
from masquerade.protocols.mixnet.roles import PublicKey, opening_statement
from masquerade.protocols.mixnet.shuffle import Shuffled, check_shuffle, shuffle
from masquerade.protocols.people.roster import abort_round
from masquerade.protocols.wire.codec import Blob, Many, Message

Between = NDArray[np.uint16]
Where = Callable[[bytes], Transcript]
MOST_PAIRS = 50_000_000
_BLINDING = b"blinding"
MOST_PEOPLE = 300  # more are refused unless the cost is accepted
_MEASURED_ROWS = 4  # six pairs


class MixedPairs(Message, tag=b"masquerade partition mixing 1"):
    """Output of one key holder: all pairs blinded, with one proof, and the shuffle of each pair."""

    blinded: Annotated[bytes, Blob(LARGEST)]
    proof: Annotated[bytes, Blob(LARGEST)]
    shuffles: Annotated[tuple[Annotated[bytes, Blob(1 << 20)], ...], Many(MOST_PAIRS)]


def quotients(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Return a row per pair of rows, in the order of `combinations`; it encrypts zero where they agree."""
    negated = [tuple(Ciphertext(-pair.a, -pair.b) for pair in row) for row in rows]
    return tuple(
        tuple(Ciphertext(x.a + y.a, x.b + y.b) for x, y in zip(rows[i], negated[j], strict=True))
        for i, j in combinations(range(len(rows)), 2)
    )


def mixing_place(terms: MixTerms, key: PublicKey, batch: bytes, holder: str) -> Where:
    """Return the transcripts of a holder's proofs, by label; `batch` is the hash of the compared rows."""

    def where(label: bytes) -> Transcript:
        query = hashlib.sha256(b"masquerade partition mixing" + batch + label).digest()
        return transcript_for(terms, holder, SHUFFLE, roster=key.id, query=query)

    return where


def mix_pairs(rows: Sequence[Row], key: Point, where: Where) -> tuple[bytes, tuple[Row, ...]]:
    """Return a message with all pairs blinded and shuffled, with proofs, and the output rows."""
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
    shuffled = [shuffle(_split(row), key, where(_label(p))) for p, row in enumerate(blinded)]
    message = MixedPairs(encode_rows(blinded), proof, tuple(one.encode() for one in shuffled))
    return message.encode(), tuple(_together(one) for one in shuffled)


def check_mixing(rows: Sequence[Row], key: Point, message: bytes, where: Where) -> tuple[Row, ...]:
    """Return the output rows; raise `ProofRejected` or `DecodingError` if a proof is not valid."""
    mixing, width = MixedPairs.decode(message), len(rows[0])
    blinded = decode_rows(mixing.blinded, width)
    if len(blinded) != len(rows) or len(mixing.shuffles) != len(rows):
        raise ProofRejected("A mixing returns as many pairs as it was given.")
    weighed = WeightedSum()
    weighed.add(ProofClaim(_blinding(rows, blinded), mixing.proof, where(_BLINDING)))
    if not weighed.holds():
        raise ProofRejected("The proof does not show that these pairs were blinded.")
    shuffled = [Shuffled.decode(data, width, 1) for data in mixing.shuffles]
    for p, (row, one) in enumerate(zip(blinded, shuffled, strict=True)):
        check_shuffle(_split(row), key, one, where(_label(p)))
    return tuple(_together(one) for one in shuffled)


def checked_mixing(
    terms: MixTerms, key: PublicKey, batch: bytes, rows: Sequence[Row], signed: SignedMixMessage
) -> tuple[Row, ...]:
    """Return a key holder's output pairs if its proofs are valid; otherwise abort and name it."""
    where = mixing_place(terms, key, batch, signed.sender)
    try:
        return check_mixing(rows, key.point, signed.payload, where)
    except (DecodingError, ProofRejected):
        reason = f"{signed.sender} did not prove that it blinded and shuffled, and nothing else."
        raise abort_round(reason, signed.sender) from None


def outcome_of(message: bytes, pairs: int, width: int) -> tuple[Row, ...]:
    """Return the output rows of a mixing, decoded strictly, without checking any proof."""
    mixing = MixedPairs.decode(message)
    if len(mixing.shuffles) != pairs:
        raise DecodingError(f"This mixing must have {pairs} pairs. Got {len(mixing.shuffles)} instead.")
    return tuple(_together(Shuffled.decode(data, width, 1)) for data in mixing.shuffles)


def distances_of(rows: Sequence[Row], partials: Sequence[Sequence[Point]], people: int) -> Between:
    """Return the number of attributes in which every two people differ, from all partial decryptions."""
    masks = iter([secp256k1.sum_points(points) for points in zip(*partials, strict=True)])
    between = np.zeros((people, people), dtype=np.uint16)
    for (i, j), row in zip(combinations(range(people), 2), rows, strict=True):
        between[i, j] = between[j, i] = sum(pair.b != next(masks) for pair in row)
    return between


def _blinding(rows: Sequence[Row], blinded: Sequence[Row]) -> Statement:
    """Return the statement that both points of every ciphertext were multiplied by the same number."""
    parts: list[Part] = []
    for before, after in zip(rows, blinded, strict=True):
        for old, new in zip(before, after, strict=True):
            parts += equal_logs([(new.a, old.a), (new.b, old.b)])
    return tuple(parts)


def _label(pair: int) -> bytes:
    return b"shuffle " + pair.to_bytes(8, "big")


def _split(row: Row) -> tuple[Row, ...]:
    """Return each attribute of a pair as a separate row, which a shuffle can move."""
    return tuple((pair,) for pair in row)


def _together(shuffled: Shuffled) -> Row:
    return tuple(row[0] for row in shuffled.rows)


def check_cost(people: int, attributes: int, holders: int, *, accept_cost: bool) -> None:
    """Raise an error with the estimated cost for more than 300 people, unless the cost is accepted.

    The time is measured on this machine, by a few comparisons as the key holders make them.
    """
    if people <= MOST_PEOPLE or accept_cost:
        return
    tests = people * (people - 1) // 2 * attributes
    seconds = tests * seconds_per_test(attributes, holders)
    reason = (
        f"{people:,} people with {attributes} attributes need {tests:,} comparisons, which take {holders} "
        f"key holders about {duration(seconds)} in all, measured on this machine. More than {MOST_PEOPLE} "
        "people are refused unless that cost is accepted (accept_cost=True, or --accept-cost)."
    )
    raise QueryRefused([Refusal("too_many_people", reason)])


def seconds_per_test(attributes: int, holders: int) -> float:
    """Return the processor time that all holders together need to compare one attribute of one pair.

    Each holder blinds, shuffles, proves, and checks all other holders. Each holder and the miner then decrypt
    with their shares, and one party checks these decryptions.
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
    weighed = WeightedSum()
    weighed.add(ProofClaim(statement, proof, _where(b"opening")))
    weighed.holds()


def _where(label: bytes) -> Transcript:
    return Transcript(Context("partition cost", b"measured", NOT_YET, label, b"nobody", "holder"))
