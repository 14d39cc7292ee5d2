"""The primitive of Yang, Zhong and Wright: keys, masked bits, their proofs and their sum.

User i has for every frequency a pair of keys X_i = x·G, Y_i = y·G, used once; X and Y are the sums over all
users. A bit d is sent as m_i = d·G + y·X and h_i = x·Y. Since Σ y_i·X = Σ x_i·Y, the masks cancel in Σ m_i −
Σ h_i = (Σ d_i)·G, and in no smaller sum.

Reference: Yang, Zhong, Wright, "Privacy-preserving classification of customer data without loss of accuracy"
(SIAM SDM 2005), as described in Wright's talk of 2005. The proofs are an addition: the paper assumes that
users do not cheat.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple

from masquerade.crypto import proofs
from masquerade.crypto.elgamal import decode_points
from masquerade.crypto.errors import DecodingError
from masquerade.crypto.group import Point, SmallLog
from masquerade.crypto.proof_batches import ProofClaim, find_rejected
from masquerade.crypto.secp256k1 import secp256k1

if TYPE_CHECKING:  # processes that verify proofs import this module, so it imports little
    from masquerade.protocols.people.questions import Question, Sizes

PROTOCOL = "frequency mining"
POINT = secp256k1.point_size


class PublicKeys(NamedTuple):
    """Keys of one user, or the sums over all users: one X and one Y per frequency."""

    X: tuple[Point, ...]
    Y: tuple[Point, ...]

    def encode(self) -> bytes:
        """Return all X, then all Y."""
        return b"".join([point.encode() for point in (*self.X, *self.Y)])


class Setting(NamedTuple):
    """The context of all proofs of a round: terms, round, and the hashes of invitation and roster."""

    session: bytes
    invitation: bytes
    roster: bytes = proofs.NOT_YET

    def transcript(self, user: str, role: str) -> proofs.Transcript:
        """Return the transcript that a user's proof starts from."""
        context = proofs.Context(PROTOCOL, self.session, self.roster, self.invitation, user.encode(), role)
        return proofs.Transcript(context)


def make_keys(counts: int, setting: Setting, user: str) -> tuple[tuple[proofs.BallotKeys, ...], bytes]:
    """Return fresh keys and the payload that publishes them: all X, all Y, and a proof of knowledge."""
    pairs = tuple(proofs.BallotKeys.fresh(secp256k1) for _ in range(counts))
    keys = public_keys(pairs)
    statement = possession_of(keys)
    knowledge = [*[proofs.Knows((pair.x,)) for pair in pairs], *[proofs.Knows((pair.y,)) for pair in pairs]]
    proof = proofs.prove(statement, knowledge, setting.transcript(user, "keys"))
    return pairs, keys.encode() + proof


def public_keys(pairs: Sequence[proofs.BallotKeys]) -> PublicKeys:
    """Return the public keys of secret keys."""
    return PublicKeys(
        tuple([secp256k1.multiply_generator(pair.x) for pair in pairs]),
        tuple([secp256k1.multiply_generator(pair.y) for pair in pairs]),
    )


def possession_of(keys: PublicKeys) -> proofs.Statement:
    """Return the statement that the user knows every key, in this order, so that keys cannot be swapped."""
    return tuple(part for key in (*keys.X, *keys.Y) for part in proofs.possession(key))


def read_keys(payload: bytes, counts: int) -> tuple[PublicKeys, bytes]:
    """Return the keys and the proof in a payload."""
    points, proof = _points(payload, 2 * counts)
    return PublicKeys(points[:counts], points[counts:]), proof


def keys_claim(post: tuple[str, bytes], counts: int, setting: Setting) -> ProofClaim:
    """Return the statement that a user's keys prove."""
    user, payload = post
    keys, proof = read_keys(payload, counts)
    return ProofClaim(possession_of(keys), proof, setting.transcript(user, "keys"))


def sum_of_keys(listed: Sequence[PublicKeys]) -> PublicKeys:
    """Return the sums X and Y of every frequency, with which users mask their bits."""
    return PublicKeys(
        tuple(secp256k1.sum_points(column) for column in zip(*[keys.X for keys in listed], strict=True)),
        tuple(secp256k1.sum_points(column) for column in zip(*[keys.Y for keys in listed], strict=True)),
    )


def ballots_of(
    total: PublicKeys, own: PublicKeys, m: Sequence[Point], h: Sequence[Point]
) -> list[proofs.Ballot]:
    """Return a user's masked bits together with the keys."""
    return [proofs.Ballot(*row) for row in zip(*total, *own, m, h, strict=True)]


class Span(NamedTuple):
    """The index range of a question's frequencies in a round, and whether it is a single bit."""

    alone: bool
    start: int
    end: int


def is_bit(question: Question) -> bool:
    """Return True if the answer is one bit, and not one of several cells."""
    return not question.columns and bool(question.conditions)


def counts_of(question: Question, sizes: Sizes) -> int:
    """Return the number of frequencies that are mined for a question.

    A user who does not meet the conditions is counted in one further cell, so that every answer is one-hot. A
    question with a single cell needs no further cell.
    """
    return question.cells(sizes) + (bool(question.conditions) and not is_bit(question))


def bits_of(question: Question, reports: Mapping[str, int], sizes: Sizes) -> list[int]:
    """Return a person's answer: a bit for every frequency."""
    bits = [0] * counts_of(question, sizes)
    cell = question.cell(reports, sizes)
    if cell is not None:
        bits[cell] = 1
    elif not is_bit(question):
        bits[-1] = 1
    return bits


def spans_of(questions: Sequence[Question], sizes: Sizes) -> tuple[Span, ...]:
    """Return the index range of every question's frequencies."""
    spans, at = [], 0
    for question in questions:
        end = at + counts_of(question, sizes)
        spans.append(Span(is_bit(question), at, end))
        at = end
    return tuple(spans)


def validity(spans: Sequence[Span], ballots: Sequence[proofs.Ballot]) -> proofs.Statement:
    """Return the statement that a vote is valid: every bit is 0 or 1, and every table has a single 1."""
    parts: list[proofs.Part] = []
    for alone, start, end in spans:
        parts += proofs.valid_bit(ballots[start]) if alone else proofs.one_hot(ballots[start:end])
    return tuple(parts)


def vote_claim(
    vote: tuple[str, bytes, bytes], spans: tuple[Span, ...], total: bytes, setting: Setting
) -> ProofClaim:
    """Return the statement that a vote (user, public keys, payload) must prove, given the sum of all keys."""
    user, keys, payload = vote
    summed = _decoded_keys(total)
    counts = len(summed.X)
    points, proof = _points(payload, 2 * counts)
    ballots = ballots_of(summed, read_keys(keys, counts)[0], points[:counts], points[counts:])
    return ProofClaim(validity(spans, ballots), proof, setting.transcript(user, "vote"))


@lru_cache(maxsize=2)  # decoded once for all votes
def _decoded_keys(encoded: bytes) -> PublicKeys:
    return read_keys(encoded, len(encoded) // (2 * POINT))[0]


@dataclass(frozen=True, eq=False)
class Booth:
    """The public data of a round in which votes are cast."""

    spans: tuple[Span, ...]
    total: PublicKeys
    keys: dict[str, PublicKeys]
    setting: Setting

    def cast(self, user: str, pairs: Sequence[proofs.BallotKeys], bits: Sequence[int]) -> bytes:
        """Return a vote: all m, all h, and the proof that they are valid."""
        masked = [
            proofs.mask(bit, pair, X, Y) for bit, pair, X, Y in zip(bits, pairs, *self.total, strict=True)
        ]
        m, h = [first for first, _ in masked], [second for _, second in masked]
        statement = validity(self.spans, ballots_of(self.total, self.keys[user], m, h))
        knows: list[proofs.Knows] = []
        for alone, start, end in self.spans:
            own, cells = bits[start:end], pairs[start:end]
            knows += proofs.knows_bit(own[0], cells[0]) if alone else proofs.knows_one_hot(own, cells)
        proof = proofs.prove(statement, knows, self.setting.transcript(user, "vote"))
        return b"".join([point.encode() for point in (*m, *h)]) + proof

    def invalid(self, votes: Sequence[tuple[str, bytes]], *, workers: int = 2) -> list[str]:
        """Return the users whose votes do not decode or are not proved valid."""
        listed = [(user, self.keys[user].encode(), payload) for user, payload in votes]
        claim = partial(vote_claim, spans=self.spans, total=self.total.encode(), setting=self.setting)
        bad = find_rejected(listed, claim, workers=workers, each=len(self.total.X))
        return [votes[place][0] for place in bad]

    def frequencies(self, votes: Sequence[bytes], *, workers: int = 2) -> list[int]:
        """Return every frequency; one outside 0 … n raises `LogOutOfRange`."""
        logs = SmallLog(secp256k1, len(votes))
        half = len(self.total.X) * POINT
        found = []
        for at in range(0, half, POINT):
            m, h = (
                secp256k1.sum_encoded(b"".join([vote[i : i + POINT] for vote in votes]), workers=workers)
                for i in (at, half + at)
            )
            found.append(logs.find(m - h))
        return found


def _points(payload: bytes, n: int) -> tuple[tuple[Point, ...], bytes]:
    if len(payload) < n * POINT:
        raise DecodingError(f"{n} points need {n * POINT} bytes. Got {len(payload)} instead.")
    return decode_points(payload[: n * POINT]), payload[n * POINT :]
