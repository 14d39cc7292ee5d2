"""What all who hold a share of the key do alike: publish it, learn the sum, check what others did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from masquerade.core.errors import InputError, RoundAborted
from masquerade.core.words import counted
from masquerade.crypto.elgamal import POINT, Row, decode_points, decode_rows
from masquerade.crypto.errors import DecodingError, KeySpent, ProofRejected
from masquerade.crypto.group import Point
from masquerade.crypto.keys import SigningKey
from masquerade.crypto.proof_batches import Claim, Weighed, rejected
from masquerade.crypto.proofs import Knows, prove, verify
from masquerade.crypto.secp256k1 import secp256k1
from masquerade.crypto.statements import Statement, equal_logs, possession
from masquerade.protocols.mix.agreement import MixTerms
from masquerade.protocols.mix.messages import (
    OPENING,
    SHARE,
    SHUFFLE,
    SUBMISSION,
    Signed,
    board_hash,
    opened_board,
    transcript_for,
)
from masquerade.protocols.mix.shuffle import Shuffled, check_shuffle


@dataclass(frozen=True, slots=True)
class PublicKey:
    """The sum of all shares, the shares, and the hash of the board that they stood on."""

    point: Point
    shares: dict[str, Point]
    id: bytes


class Holder:
    """A party with an identity and a share of the key; neither ever leaves it."""

    def __init__(self, name: str, identity: SigningKey, terms: MixTerms) -> None:
        if terms.identity("holder", name) != identity.public:
            raise InputError(f"{name!r} is not a leader, or the miner, of these terms with this identity.")
        self.name, self.terms = name, terms
        self._identity, self._secret = identity, secp256k1.random_secret()
        self._share: bytes | None = None
        self._key: PublicKey | None = None
        self._batch: tuple[bytes, tuple[Row, ...]] | None = None
        self._opened = False

    def __repr__(self) -> str:
        """Show the name."""
        return f"{type(self).__name__}({self.name!r})"

    def share(self) -> bytes:
        """Return this holder's part of the public key, with the proof that it is known; always the same."""
        if self._share is None:
            point = secp256k1.multiply_generator(self._secret)
            where = transcript_for(self.terms, self.name, SHARE)
            proof = prove(possession(point), [Knows((self._secret,))], where)
            self._share = self._signed(SHARE, point.encode() + proof)
        return self._share

    def take_key(self, board: bytes) -> None:
        """Check all shares and keep their sum; the first key stays."""
        key = opened_key(self.terms, board)
        if key.shares[self.name] != secp256k1.multiply_generator(self._secret):
            raise RoundAborted("The board has another share of mine.", spent=False, culprits=("miner",))
        if self._key is not None and self._key.id != key.id:
            raise RoundAborted("The board of shares was changed.", spent=False, culprits=("miner",))
        self._key = key

    @property
    def key(self) -> PublicKey:
        """Return the public key, once it is known."""
        if self._key is None:
            raise InputError("The key shares of all holders come first.")
        return self._key

    def _rows_of(self, batch: bytes) -> tuple[Row, ...]:
        """Return the rows of a batch, checked once."""
        digest = board_hash(b"batch", batch)
        if self._batch is None or self._batch[0] != digest:
            self._batch = (digest, opened_batch(self.terms, self.key, batch))
        return self._batch[1]

    def _partial(self, rows: Sequence[Row]) -> tuple[Point, ...]:
        return tuple([secp256k1.multiply(pair.a, self._secret) for row in rows for pair in row])

    def _opening(self, rows: Sequence[Row], mixed: bytes) -> bytes:
        """Return partial decryptions of rows that were mixed so, proved; once in a session."""
        if self._opened:
            raise KeySpent(f"{self.name} has opened what was mixed in this session already.")
        self._opened = True
        partial = self._partial(rows)
        statement = opening_statement(rows, self.key.shares[self.name], partial)
        transcript = transcript_for(self.terms, self.name, OPENING, roster=self.key.id, query=mixed)
        proof = prove(statement, [Knows((self._secret,))], transcript)
        return self._signed(OPENING, b"".join([point.encode() for point in partial]) + proof)

    def _signed(self, kind: str, payload: bytes) -> bytes:
        signed = Signed.make(self.terms, self._identity, kind=kind, sender=self.name, payload=payload)
        return signed.encode()


def opened_key(terms: MixTerms, board: bytes) -> PublicKey:
    """Return the key on a board of shares: one of each holder, every one proved to be known.

    Without the proofs the last holder could choose a share that cancels all others.
    """
    shares: dict[str, Point] = {}
    for signed in opened_board(board, terms, SHARE, terms.holders):
        try:
            point = secp256k1.decode(signed.payload[:POINT])
            verify(possession(point), signed.payload[POINT:], transcript_for(terms, signed.sender, SHARE))
        except (DecodingError, ProofRejected):
            raise RoundAborted(
                f"The key share of {signed.sender} comes without proof that it is known.",
                spent=False,
                culprits=(signed.sender,),
            ) from None
        shares[signed.sender] = point
    total = secp256k1.sum_points(shares.values())
    if total.is_identity:
        raise RoundAborted("The key shares cancel out.", spent=False)
    return PublicKey(total, shares, board_hash(b"key", board))


def submitted_row(terms: MixTerms, signed: Signed) -> Row:
    """Return the encrypted record of a submission."""
    rows = decode_rows(signed.payload[: 2 * POINT * terms.width], terms.width)
    if len(rows) != 1:
        raise DecodingError("A submission holds one row.")
    return rows[0]


def submission_claim(terms: MixTerms, key: PublicKey, signed: Signed, row: Row) -> Claim:
    """Return what a submission claims: that its sender knows the randomness, and so made it."""
    size = 2 * POINT * terms.width
    transcript = transcript_for(terms, signed.sender, SUBMISSION, roster=key.id)
    transcript.absorb("row", signed.payload[:size])
    return Claim(known_randomness(row), signed.payload[size:], transcript)


def known_randomness(row: Row) -> Statement:
    """State that the randomness of every ciphertext of a row is known."""
    return tuple(part for pair in row for part in possession(pair.a))


def opened_batch(terms: MixTerms, key: PublicKey, board: bytes) -> tuple[Row, ...]:
    """Return the rows of a batch: enough of them, of different people, all made by whoever sent them."""
    messages = opened_board(board, terms, SUBMISSION)
    senders = [message.sender for message in messages]
    if senders != sorted(set(senders)):
        raise RoundAborted("A batch has one row of each sender, in order.", spent=False, culprits=("miner",))
    if len(messages) < terms.minimum:
        raise RoundAborted(
            f"{counted(len(messages), 'record is', 'records are')} too few to hide each other: at least "
            f"{terms.minimum} are mixed.",
            spent=False,
        )
    rows: dict[str, Row] = {}

    def claim(message: Signed) -> Claim:
        rows[message.sender] = submitted_row(terms, message)
        return submission_claim(terms, key, message, rows[message.sender])

    bad = rejected(messages, claim, workers=1)
    if bad:
        raise RoundAborted(
            "Some submissions come without proof that their senders made them.",
            spent=False,
            culprits=[senders[place] for place in bad],
        )
    mixed = tuple(rows[sender] for sender in senders)
    refuse_copies(mixed, senders)
    return mixed


def refuse_copies(rows: Sequence[Row], senders: Sequence[str]) -> None:
    """Abort where a point occurs twice: one sender copied from another, or from themselves."""
    first: dict[bytes, str] = {}
    for row, sender in zip(rows, senders, strict=True):
        for point in [point for pair in row for point in pair]:
            other = first.setdefault(point.hashed, sender)
            if other != sender:
                raise RoundAborted(
                    f"{other} and {sender} sent the same ciphertext.", spent=False, culprits=(other, sender)
                )


def checked_shuffle(
    terms: MixTerms, key: PublicKey, batch: bytes, rows: tuple[Row, ...], signed: Signed
) -> tuple[Row, ...]:
    """Return what a leader's shuffle made of the rows, if the proof holds."""
    transcript = transcript_for(
        terms, signed.sender, SHUFFLE, roster=key.id, query=board_hash(b"batch", batch)
    )
    try:
        shuffled = Shuffled.decode(signed.payload, len(rows), terms.width)
        check_shuffle(rows, key.point, shuffled, transcript)
    except (DecodingError, ProofRejected):
        raise RoundAborted(
            f"{signed.sender} did not prove that it shuffled, and nothing else.",
            spent=False,
            culprits=(signed.sender,),
        ) from None
    return shuffled.rows


def opening_statement(rows: Sequence[Row], share: Point, partial: Sequence[Point]) -> Statement:
    """State that every point was multiplied by the secret of the share."""
    points = [pair.a for row in rows for pair in row]
    return equal_logs([(share, secp256k1.generator), *zip(partial, points, strict=True)])


def opened_partial(
    terms: MixTerms, key: PublicKey, rows: Sequence[Row], mixed: bytes, signed: Signed
) -> tuple[Point, ...]:
    """Return a leader's partial decryptions if they are proved; `mixed` is the hash of all shuffles."""
    size = sum(len(row) for row in rows) * POINT
    transcript = transcript_for(terms, signed.sender, OPENING, roster=key.id, query=mixed)
    weighed = Weighed()
    try:
        partial = decode_points(signed.payload[:size].ljust(size, b"\0"))
        statement = opening_statement(rows, key.shares[signed.sender], partial)
        weighed.add(Claim(statement, signed.payload[size:], transcript))
        holds = weighed.holds()
    except DecodingError:
        holds = False
    if not holds:
        raise RoundAborted(
            f"{signed.sender} did not prove that it decrypted with its share.",
            spent=True,
            culprits=(signed.sender,),
        )
    return partial
