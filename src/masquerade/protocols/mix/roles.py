"""Respondents, leaders and the miner: bytes in, bytes out; and the order of their messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from masquerade.core.errors import InputError, RoundAborted
from masquerade.crypto.elgamal import Row, embedded, pieces_of, record_of
from masquerade.crypto.errors import DecodingError, KeySpent, ProofRejected
from masquerade.crypto.group import Point
from masquerade.crypto.keys import SigningKey
from masquerade.crypto.proofs import Transcript
from masquerade.crypto.secp256k1 import secp256k1
from masquerade.protocols.mix.agreement import SUBMISSION, MixTerms
from masquerade.protocols.mix.key_holder import (
    Holder,
    PublicKey,
    check_endorsed,
    opened_key,
    opened_partial,
    submission,
)
from masquerade.protocols.mix.messages import (
    ENDORSEMENT,
    OPENING,
    SHARE,
    SHUFFLE,
    Board,
    Signed,
    board_hash,
    opened_board,
    transcript_for,
)
from masquerade.protocols.mix.shuffle import Shuffled, check_shuffle, shuffle
from masquerade.protocols.people.ledger import Claim, Ledger, MemoryLedger
from masquerade.protocols.people.roster import aborted

Rows = tuple[Row, ...]


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
        return submission(self.terms, key, self.name, self._identity, points)


class Leader(Holder):
    """Re-encrypts and permutes. Learns who sent something; no record, and no other leader's order.

    One honest leader is enough: it opens nothing until it has seen that all shuffles are shuffles, and
    everybody has signed that. It shuffles, signs and opens once.
    """

    WORDS: ClassVar[tuple[str, str]] = "shuffled", "shuffles"  # how errors call what a leader does

    def __init__(self, name: str, identity: SigningKey, terms: MixTerms) -> None:
        super().__init__(name, identity, terms)
        self._place = list(terms.leaders).index(name)
        self._shuffled: _Mixed | None = None
        self._endorsed: _Mixed | None = None

    def shuffle(self, batch: bytes, before: bytes) -> bytes:
        """Return a batch, after the shuffles `before`, shuffled again; all of it is checked first."""
        if self._shuffled is not None:
            raise KeySpent(f"{self.name} has {self.WORDS[0]} in this session already.")
        done = opened_board(before, self.terms, SHUFFLE, tuple(self.terms.leaders)[: self._place])
        rows = self._first_rows(batch)
        for signed in done:
            rows = self._checked(batch, rows, signed)
        payload, rows = self._made(batch, rows)
        own = self._signed(SHUFFLE, payload)
        self._shuffled = _Mixed(batch, (*Board.decode(before).parts, own), rows)
        return own

    def endorse(self, batch: bytes, shuffles: bytes) -> bytes:
        """Return a signature of the batch and all shuffles, after checking those not checked yet."""
        if self._endorsed is not None:
            raise KeySpent(f"{self.name} has endorsed the {self.WORDS[1]} of this session already.")
        signed = opened_board(shuffles, self.terms, SHUFFLE, tuple(self.terms.leaders))
        parts, mine = Board.decode(shuffles).parts, self._shuffled
        if mine is None or mine.batch != batch or mine.shuffles != parts[: len(mine.shuffles)]:
            raise aborted(f"The board is not the one that I {self.WORDS[0]}.", "miner")
        rows = mine.rows
        for later in signed[len(mine.shuffles) :]:
            rows = self._checked(batch, rows, later)
        self._endorsed = _Mixed(batch, parts, rows)
        return self._signed(ENDORSEMENT, board_hash(b"mixed", batch, shuffles))

    def open(self, endorsements: bytes) -> bytes:
        """Return partial decryptions of the last rows, once all leaders have signed the same shuffles."""
        done = self._endorsed
        if done is None:
            raise InputError(f"The {self.WORDS[1]} come before their endorsements.")
        mixed = board_hash(b"mixed", done.batch, Board(done.shuffles).encode())
        check_endorsed(self.terms, endorsements, mixed)
        return self._opening(done.rows, mixed)

    def _first_rows(self, batch: bytes) -> Rows:
        """Return what the first leader is to shuffle."""
        return self._rows_of(batch)

    def _checked(self, batch: bytes, rows: Rows, signed: Signed) -> Rows:
        """Return what another leader made of rows, if it is proved."""
        return checked_shuffle(self.terms, self.key, batch, rows, signed)

    def _made(self, batch: bytes, rows: Rows) -> tuple[bytes, Rows]:
        """Return what this leader makes of rows: as bytes with a proof, and the rows alone."""
        transcript = _shuffle_transcript(self.terms, self.key, batch, self.name)
        shuffled = shuffle(rows, self.key.point, transcript)
        return shuffled.encode(), shuffled.rows


class _Mixed(NamedTuple):
    """A batch, the shuffles that it went through, and what came out."""

    batch: bytes
    shuffles: tuple[bytes, ...]
    rows: Rows


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
        left = dict(sorted(Signed.first(submissions, self.terms, SUBMISSION).items()))
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

    def _gathered(
        self, kind: str, senders: Sequence[str], messages: Sequence[bytes], *, spent: bool = False
    ) -> bytes:
        found = Signed.first(messages, self.terms, kind)
        missing = [name for name in senders if name not in found]
        if missing:
            raise aborted(f"No {kind} came from {', '.join(missing)}.", *missing, spent=spent)
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


def checked_shuffle(terms: MixTerms, key: PublicKey, batch: bytes, rows: Rows, signed: Signed) -> Rows:
    """Return what a leader's shuffle made of the rows, if the proof holds."""
    try:
        shuffled = Shuffled.decode(signed.payload, len(rows), terms.width)
        transcript = _shuffle_transcript(terms, key, batch, signed.sender)
        check_shuffle(rows, key.point, shuffled, transcript)
    except (DecodingError, ProofRejected):
        reason = f"{signed.sender} did not prove that it shuffled, and nothing else."
        raise aborted(reason, signed.sender) from None
    return shuffled.rows


def _shuffle_transcript(terms: MixTerms, key: PublicKey, batch: bytes, leader: str) -> Transcript:
    return transcript_for(terms, leader, SHUFFLE, roster=key.id, query=board_hash(b"batch", batch))


def collect(
    miner: Miner, leaders: Sequence[Leader], submissions: Callable[[bytes], Sequence[bytes]]
) -> Collected:
    """Return what the miner collects; `submissions` gets the board of keys and returns what was sent.

    Everything between the parties passes as bytes.
    """
    keys = miner.key_board([miner.share(), *[leader.share() for leader in leaders]])
    for leader in leaders:
        leader.take_key(keys)
    batch = miner.batch(submissions(keys))
    shuffles: list[bytes] = []
    for leader in leaders:
        shuffles.append(leader.shuffle(batch, miner.shuffle_board(shuffles)))
    board = miner.shuffle_board(shuffles)
    endorsed = miner.endorsement_board([leader.endorse(batch, board) for leader in leaders])
    return miner.collect(batch, board, [leader.open(endorsed) for leader in leaders])
