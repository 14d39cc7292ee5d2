"""The primitive of Yang, Zhong and Wright: keys, masked bits, their proofs and their sum.

User i has for every frequency a pair of keys X_i = x·G, Y_i = y·G, used once; X and Y are the sums over all
users. A bit d is sent as m_i = d·G + y·X and h_i = x·Y. Since Σ y_i·X = Σ x_i·Y, the masks cancel in Σ m_i −
Σ h_i = (Σ d_i)·G, and in no smaller sum.

Reference: Yang, Zhong, Wright, "Privacy-preserving classification of customer data without loss of accuracy"
(SIAM SDM 2005), as told in Wright's talk of 2005. The proofs are ours: the paper's users do not cheat.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple

from masquerade.crypto.errors import DecodingError
from masquerade.crypto.group import Point, Secret
from masquerade.crypto.proof_batches import Claim, rejected
from masquerade.crypto.proofs import Knows, prove
from masquerade.crypto.secp256k1 import secp256k1
from masquerade.crypto.small_log import SmallLog
from masquerade.crypto.statements import Ballot, Part, Statement, one_hot, possession, valid_bit
from masquerade.crypto.transcript import NOT_YET, Context, Transcript

if TYPE_CHECKING:  # processes that check proofs need this module, and no more than they must
    from masquerade.protocols.people.questions import Question, Sizes

PROTOCOL = "frequency mining"
POINT = secp256k1.point_size


class Pair(NamedTuple):
    """The secret keys of one frequency."""

    x: Secret
    y: Secret


class PublicKeys(NamedTuple):
    """Keys of one user, or of all together: one X and one Y for every frequency."""

    X: tuple[Point, ...]
    Y: tuple[Point, ...]

    def encode(self) -> bytes:
        """Return all X, then all Y."""
        return b"".join([point.encode() for point in (*self.X, *self.Y)])


class Setting(NamedTuple):
    """What all proofs of a round are bound to: terms and round, the hashes of invitation and roster."""

    session: bytes
    invitation: bytes
    roster: bytes = NOT_YET

    def transcript(self, user: str, role: str) -> Transcript:
        """Return where a user's proof begins."""
        context = Context(PROTOCOL, self.session, self.roster, self.invitation, user.encode(), role)
        return Transcript(context)


def make_keys(counts: int, setting: Setting, user: str) -> tuple[tuple[Pair, ...], bytes]:
    """Return fresh keys and the payload that publishes them: all X, all Y, the proof that they are known."""
    pairs = tuple(Pair(secp256k1.random_secret(), secp256k1.random_secret()) for _ in range(counts))
    keys = public_keys(pairs)
    statement = possession_of(keys)
    knowledge = [*[Knows((pair.x,)) for pair in pairs], *[Knows((pair.y,)) for pair in pairs]]
    proof = prove(statement, knowledge, setting.transcript(user, "keys"))
    return pairs, keys.encode() + proof


def public_keys(pairs: Sequence[Pair]) -> PublicKeys:
    """Return the public keys of secret ones."""
    return PublicKeys(
        tuple([secp256k1.multiply_generator(pair.x) for pair in pairs]),
        tuple([secp256k1.multiply_generator(pair.y) for pair in pairs]),
    )


def possession_of(keys: PublicKeys) -> Statement:
    """State that every key is known, in this order: no X passes as a Y, nor a key as another count's."""
    return tuple(part for key in (*keys.X, *keys.Y) for part in possession(key))


def read_keys(payload: bytes, counts: int) -> tuple[PublicKeys, bytes]:
    """Return keys and proof of a payload."""
    points, proof = _points(payload, 2 * counts)
    return PublicKeys(points[:counts], points[counts:]), proof


def keys_claim(post: tuple[str, bytes], counts: int, setting: Setting) -> Claim:
    """Return what a user's payload of keys claims."""
    user, payload = post
    keys, proof = read_keys(payload, counts)
    return Claim(possession_of(keys), proof, setting.transcript(user, "keys"))


def sum_of_keys(listed: Sequence[PublicKeys]) -> PublicKeys:
    """Return X and Y for every frequency: what users mask with."""
    return PublicKeys(
        tuple(secp256k1.sum_points(column) for column in zip(*[keys.X for keys in listed], strict=True)),
        tuple(secp256k1.sum_points(column) for column in zip(*[keys.Y for keys in listed], strict=True)),
    )


def mask(bit: int, pair: Pair, X: Point, Y: Point) -> tuple[Point, Point]:
    """Return m_i and h_i; both possible sums are made, so that the time does not tell the bit."""
    masked = secp256k1.multiply(X, pair.y)
    return (masked, masked + secp256k1.generator)[bit], secp256k1.multiply(Y, pair.x)


def ballots_of(total: PublicKeys, own: PublicKeys, m: Sequence[Point], h: Sequence[Point]) -> list[Ballot]:
    """Return a user's masked bits beside the keys."""
    return [Ballot(*row) for row in zip(*total, *own, m, h, strict=True)]


class Span(NamedTuple):
    """Where a question's frequencies lie among those of a round, and whether it is a single bit."""

    alone: bool
    start: int
    end: int


def is_bit(question: Question) -> bool:
    """Tell whether the answer is one bit, and not one of several cells."""
    return not question.columns and bool(question.conditions)


def counts_of(question: Question, sizes: Sizes) -> int:
    """Return how many frequencies are mined for a question.

    Whoever does not meet the conditions is counted in one cell more, so that every answer is one-hot; a
    single cell needs no such company.
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
    """Return where every question's frequencies lie."""
    spans, at = [], 0
    for question in questions:
        end = at + counts_of(question, sizes)
        spans.append(Span(is_bit(question), at, end))
        at = end
    return tuple(spans)


def validity(spans: Sequence[Span], ballots: Sequence[Ballot]) -> Statement:
    """State that a vote is one that an honest user could have sent: 0 or 1, and one cell of every table."""
    parts: list[Part] = []
    for alone, start, end in spans:
        parts += valid_bit(ballots[start]) if alone else one_hot(ballots[start:end])
    return tuple(parts)


class Vote(NamedTuple):
    """What a user sent, with the user's public keys as the roster has them."""

    user: str
    keys: bytes
    payload: bytes


def vote_claim(vote: Vote, spans: tuple[Span, ...], total: bytes, setting: Setting) -> Claim:
    """Return what a vote claims, beside the sums of all keys."""
    summed = decoded_keys(total)
    counts = len(summed.X)
    points, proof = _points(vote.payload, 2 * counts)
    own, _ = read_keys(vote.keys, counts)
    ballots = ballots_of(summed, own, points[:counts], points[counts:])
    return Claim(validity(spans, ballots), proof, setting.transcript(vote.user, "vote"))


@lru_cache(maxsize=2)
def decoded_keys(encoded: bytes) -> PublicKeys:
    """Return keys from `PublicKeys.encode`: decoded once for all votes."""
    return read_keys(encoded, len(encoded) // (2 * POINT))[0]


def knowledge_of(spans: Sequence[Span], pairs: Sequence[Pair], bits: Sequence[int]) -> list[Knows]:
    """Return what a voter knows, in the order of `validity`."""
    knows: list[Knows] = []
    for alone, start, end in spans:
        for pair, bit in zip(pairs[start:end], bits[start:end], strict=True):
            knows += (Knows((pair.x,)), Knows((pair.y,), bit))
        if not alone:
            knows.append(Knows(tuple(pair.y for pair in pairs[start:end])))
    return knows


@dataclass(frozen=True, eq=False)
class Booth:
    """All that is public when votes are cast."""

    spans: tuple[Span, ...]
    total: PublicKeys
    keys: dict[str, PublicKeys]
    setting: Setting

    @property
    def counts(self) -> int:
        """Return how many frequencies are mined."""
        return len(self.total.X)

    def cast(self, user: str, pairs: Sequence[Pair], bits: Sequence[int]) -> bytes:
        """Return a vote: all m, all h, and the proof that they are valid."""
        masked = [mask(bit, pair, X, Y) for bit, pair, X, Y in zip(bits, pairs, *self.total, strict=True)]
        m, h = [first for first, _ in masked], [second for _, second in masked]
        statement = validity(self.spans, ballots_of(self.total, self.keys[user], m, h))
        knows = knowledge_of(self.spans, pairs, bits)
        proof = prove(statement, knows, self.setting.transcript(user, "vote"))
        return b"".join([point.encode() for point in (*m, *h)]) + proof

    def invalid(
        self, votes: Sequence[tuple[str, bytes]], *, workers: int = 2, alone: bool = False
    ) -> list[str]:
        """Return the users whose votes do not decode or are not proved valid; `alone`: one by one."""
        listed = [Vote(user, self.keys[user].encode(), payload) for user, payload in votes]
        claim = partial(vote_claim, spans=self.spans, total=self.total.encode(), setting=self.setting)
        bad = rejected(listed, claim, workers=workers, each=self.counts, alone=alone)
        return [votes[place][0] for place in bad]

    def frequencies(self, votes: Sequence[bytes], *, workers: int = 2) -> list[int]:
        """Return every frequency; one outside 0 … n raises `LogOutOfRange`."""
        logs = SmallLog(secp256k1, len(votes))
        half = self.counts * POINT
        found = []
        for at in range(0, half, POINT):
            m = secp256k1.sum_encoded(b"".join([vote[at : at + POINT] for vote in votes]), workers=workers)
            h = secp256k1.sum_encoded(
                b"".join([vote[half + at : half + at + POINT] for vote in votes]), workers=workers
            )
            found.append(logs.find(m - h))
        return found


def _points(payload: bytes, n: int) -> tuple[tuple[Point, ...], bytes]:
    if len(payload) < n * POINT:
        raise DecodingError(f"{n} points need {n * POINT} bytes. Got {len(payload)} instead.")
    decode = secp256k1.decode
    return tuple([decode(payload[at : at + POINT]) for at in range(0, n * POINT, POINT)]), payload[
        n * POINT :
    ]
