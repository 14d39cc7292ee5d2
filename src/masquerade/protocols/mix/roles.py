"""Respondents, leaders and the miner: bytes in, bytes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from masquerade.core.errors import InputError, RoundAborted
from masquerade.crypto.elgamal import (
    Row,
    embedded,
    encode_rows,
    encrypt,
    pieces_of,
    record_of,
)
from masquerade.crypto.errors import DecodingError, KeySpent, SealBroken
from masquerade.crypto.group import Point
from masquerade.crypto.keys import SigningKey
from masquerade.crypto.proofs import Knows, prove
from masquerade.crypto.secp256k1 import secp256k1
from masquerade.protocols.mix.agreement import MixTerms
from masquerade.protocols.mix.key_holder import (
    Holder,
    checked_shuffle,
    known_randomness,
    opened_key,
    opened_partial,
)
from masquerade.protocols.mix.messages import (
    ENDORSEMENT,
    OPENING,
    SHARE,
    SHUFFLE,
    SUBMISSION,
    Board,
    Signed,
    board_hash,
    opened_board,
    transcript_for,
)
from masquerade.protocols.mix.shuffle import shuffle
from masquerade.protocols.people.ledger import Claim, Ledger, MemoryLedger


class Respondent:
    """A person with a record to give, without their name on it. Learns nothing.

    A record is sent once in a session: two batches with one difference would tell whose record it is.
    """

    def __init__(
        self, name: str, identity: SigningKey, terms: MixTerms, *, ledger: Ledger | None = None
    ) -> None:
        if terms.respondents.get(name) != identity.public:
            raise InputError(f"{name!r} is not enrolled in these terms with this identity.")
        self.name, self.terms, self._identity = name, terms, identity
        self._ledger: Ledger = MemoryLedger() if ledger is None else ledger

    def __repr__(self) -> str:
        """Show the name."""
        return f"Respondent({self.name!r})"

    def submit(self, keys: bytes, record: bytes) -> bytes:
        """Return the encrypted record for a board of key shares, which is checked; spent from then on."""
        key = opened_key(self.terms, keys)
        points = [embedded(piece) for piece in pieces_of(record, self.terms.width)]
        self._ledger.claim([Claim("submitted", self.terms.id)])
        randomness = [secp256k1.random_secret() for _ in points]
        row = tuple(encrypt(point, key.point, r) for point, r in zip(points, randomness, strict=True))
        encoded = encode_rows([row])
        transcript = transcript_for(self.terms, self.name, SUBMISSION, roster=key.id)
        transcript.absorb("row", encoded)
        proof = prove(known_randomness(row), [Knows((r,)) for r in randomness], transcript)
        signed = Signed.make(
            self.terms, self._identity, kind=SUBMISSION, sender=self.name, payload=encoded + proof
        )
        return signed.encode()


class Leader(Holder):
    """Re-encrypts and permutes. Learns who sent something; no record, and no other leader's order.

    One honest leader is enough: it opens nothing until it has seen that all shuffles are shuffles, and
    everybody has signed that. It shuffles, signs and opens once.
    """

    def __init__(self, name: str, identity: SigningKey, terms: MixTerms) -> None:
        super().__init__(name, identity, terms)
        self._place = list(terms.leaders).index(name)
        self._shuffled: _Mixed | None = None
        self._endorsed: _Mixed | None = None

    def shuffle(self, batch: bytes, before: bytes) -> bytes:
        """Return a batch, after the shuffles `before`, shuffled again; all of it is checked first."""
        if self._shuffled is not None:
            raise KeySpent(f"{self.name} has shuffled in this session already.")
        done = opened_board(before, self.terms, SHUFFLE, tuple(self.terms.leaders)[: self._place])
        rows = self._rows_of(batch)
        for signed in done:
            rows = checked_shuffle(self.terms, self.key, batch, rows, signed)
        query = board_hash(b"batch", batch)
        transcript = transcript_for(self.terms, self.name, SHUFFLE, roster=self.key.id, query=query)
        shuffled = shuffle(rows, self.key.point, transcript)
        own = self._signed(SHUFFLE, shuffled.encode())
        self._shuffled = _Mixed(batch, (*Board.decode(before).parts, own), shuffled.rows)
        return own

    def endorse(self, batch: bytes, shuffles: bytes) -> bytes:
        """Return a signature of the batch and all shuffles, after checking those not checked yet."""
        if self._endorsed is not None:
            raise KeySpent(f"{self.name} has endorsed the shuffles of this session already.")
        signed, parts = (
            opened_board(shuffles, self.terms, SHUFFLE, tuple(self.terms.leaders)),
            Board.decode(shuffles),
        )
        mine = self._shuffled
        if mine is None or mine.batch != batch or mine.shuffles != parts.parts[: len(mine.shuffles)]:
            raise RoundAborted("The board is not the one that I shuffled.", spent=False, culprits=("miner",))
        rows = mine.rows
        for later in signed[len(mine.shuffles) :]:
            rows = checked_shuffle(self.terms, self.key, batch, rows, later)
        self._endorsed = _Mixed(batch, parts.parts, rows)
        return self._signed(ENDORSEMENT, board_hash(b"mixed", batch, shuffles))

    def open(self, endorsements: bytes) -> bytes:
        """Return partial decryptions of the last rows, once all leaders have signed the same shuffles."""
        if self._endorsed is None:
            raise InputError("The shuffles come before their endorsements.")
        rows = self._endorsed.rows
        mixed = board_hash(b"mixed", self._endorsed.batch, Board(self._endorsed.shuffles).encode())
        check_endorsed(self.terms, endorsements, mixed)
        return self._opening(rows, mixed)


class _Mixed(NamedTuple):
    """A batch, the shuffles that it went through, and what came out."""

    batch: bytes
    shuffles: tuple[bytes, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Collected:
    """The records of a batch, sorted: who sent which is not known; and how many were no records at all."""

    records: tuple[bytes, ...]
    unreadable: int = 0


class Miner(Holder):
    """Gathers, and opens in the end. Learns the records, not whose they are, if one leader is honest."""

    def __init__(self, identity: SigningKey, terms: MixTerms) -> None:
        super().__init__("miner", identity, terms)
        self.refused: tuple[str, ...] = ()

    def key_board(self, shares: Sequence[bytes]) -> bytes:
        """Return the board of all key shares, checked."""
        board = self._gathered(SHARE, self.terms.holders, shares)
        self.take_key(board)
        return board

    def batch(self, submissions: Sequence[bytes]) -> bytes:
        """Return the board of all valid submissions, in the order of their senders.

        Senders of invalid ones are named in `refused`; of two of one sender the first counts.
        """
        left = dict(sorted(self._first(SUBMISSION, submissions).items()))
        refused: list[str] = []
        while True:
            board = Board(tuple(left.values())).encode()
            try:
                self._rows_of(board)
            except RoundAborted as error:
                if not error.culprits:
                    raise
                refused += error.culprits
                left = {name: data for name, data in left.items() if name not in error.culprits}
            else:
                self.refused = tuple(sorted(refused))
                return board

    def shuffle_board(self, shuffles: Sequence[bytes]) -> bytes:
        """Return the board of the shuffles so far."""
        return self._gathered(SHUFFLE, tuple(self.terms.leaders)[: len(shuffles)], shuffles)

    def endorsement_board(self, endorsements: Sequence[bytes]) -> bytes:
        """Return the board of all leaders' endorsements."""
        return self._gathered(ENDORSEMENT, tuple(self.terms.leaders), endorsements)

    def collect(self, batch: bytes, shuffles: bytes, openings: Sequence[bytes]) -> Collected:
        """Return the records; every shuffle and every partial decryption is checked."""
        leaders = tuple(self.terms.leaders)
        rows = self._rows_of(batch)
        for signed in opened_board(shuffles, self.terms, SHUFFLE, leaders):
            rows = checked_shuffle(self.terms, self.key, batch, rows, signed)
        mixed = board_hash(b"mixed", batch, shuffles)
        board = self._gathered(OPENING, leaders, openings, spent=True)
        signed_openings = opened_board(board, self.terms, OPENING, leaders)
        partials = [self._partial(rows)]
        partials += [opened_partial(self.terms, self.key, rows, mixed, signed) for signed in signed_openings]
        masks = [secp256k1.sum_points(points) for points in zip(*partials, strict=True)]
        pairs = [pair for row in rows for pair in row]
        return readable([pair.b - mask for pair, mask in zip(pairs, masks, strict=True)], self.terms.width)

    def _first(self, kind: str, messages: Sequence[bytes]) -> dict[str, bytes]:
        """Return the first message of every sender; what nobody signed is nobody's and left out."""
        first: dict[str, bytes] = {}
        for data in messages:
            try:
                first.setdefault(Signed.opened(data, self.terms, kind).sender, data)
            except (DecodingError, SealBroken):
                continue
        return first

    def _gathered(
        self, kind: str, senders: Sequence[str], messages: Sequence[bytes], *, spent: bool = False
    ) -> bytes:
        found = self._first(kind, messages)
        missing = [name for name in senders if name not in found]
        if missing:
            raise RoundAborted(f"No {kind} came from {', '.join(missing)}.", spent=spent, culprits=missing)
        return Board(tuple(found[name] for name in senders)).encode()


def readable(points: Sequence[Point], width: int) -> Collected:
    """Return the records among opened points."""
    records, unreadable = [], 0
    for at in range(0, len(points), width):
        try:
            records.append(record_of(points[at : at + width]))
        except DecodingError:
            unreadable += 1
    return Collected(tuple(sorted(records)), unreadable)


def check_endorsed(terms: MixTerms, board: bytes, mixed: bytes) -> None:
    """Abort unless all leaders signed these very shuffles."""
    for signed in opened_board(board, terms, ENDORSEMENT, tuple(terms.leaders)):
        if signed.payload != mixed:
            raise RoundAborted(
                f"{signed.sender} signed other shuffles: the miner tells leaders different things.",
                spent=False,
                culprits=("miner",),
            )
