"""What all who hold a share of the key do alike: publish it, learn the sum, check what others did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from masquerade.core.errors import InputError
from masquerade.core.words import counted
from masquerade.crypto.elgamal import POINT, Row, decode_points, decode_rows, encode_rows, encrypt
from masquerade.crypto.errors import DecodingError, KeySpent, ProofRejected
from masquerade.crypto.group import Point
from masquerade.crypto.keys import SigningKey
from masquerade.crypto.proof_batches import Claim, Weighed, rejected
from masquerade.crypto.proofs import Knows, Statement, Transcript, equal_logs, possession, prove, verify
from masquerade.crypto.secp256k1 import secp256k1
from masquerade.protocols.mix.agreement import SUBMISSION, MixTerms
from masquerade.protocols.mix.messages import (
    ENDORSEMENT,
    OPENING,
    SHARE,
    Signed,
    board_hash,
    opened_board,
    transcript_for,
)
from masquerade.protocols.people.checks import Checks
from masquerade.protocols.people.roster import aborted


@dataclass(frozen=True, slots=True)
class PublicKey:
    """The sum of all shares, the shares, and the hash of the board that they stood on."""

    point: Point
    shares: dict[str, Point]
    id: bytes


class Holder:
    """A party with an identity and a share of the key; neither ever leaves it."""

    def __init__(self, name: str, identity: SigningKey, terms: MixTerms) -> None:
        if terms.identity(SHARE, name) != identity.public:
            raise InputError(f"{name!r} is not a leader, or the miner, of these terms with this identity.")
        self.name, self.terms = name, terms
        self._identity, self._secret = identity, secp256k1.random_secret()
        self._share: bytes | None = None
        self._key: PublicKey | None = None
        self._checked_batches = Checks()
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
            raise aborted("The board has another share of mine.", "miner")
        if self._key is not None and self._key.id != key.id:
            raise aborted("The board of shares was changed.", "miner")
        self._key = key

    @property
    def key(self) -> PublicKey:
        """Return the public key, once it is known."""
        if self._key is None:
            raise InputError("The key shares of all holders come first.")
        return self._key

    def _rows_of(self, batch: bytes) -> tuple[Row, ...]:
        return self._checked_batches.once(opened_batch, self.terms, self.key, batch)

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
        return Signed.make(self.terms, self._identity, kind, self.name, payload).encode()


def opened_key(terms: MixTerms, board: bytes) -> PublicKey:
    """Return the key on a board of shares: one of each holder, every one proved to be known.

    Without the proofs the last holder could choose a share that cancels all others.
    """
    shares: dict[str, Point] = {}
    for signed in opened_board(board, terms, SHARE, terms.holders):
        sender, payload = signed.sender, signed.payload
        try:
            shares[sender] = secp256k1.decode(payload[:POINT])
            verify(possession(shares[sender]), payload[POINT:], transcript_for(terms, sender, SHARE))
        except (DecodingError, ProofRejected):
            reason = f"The key share of {sender} comes without proof that it is known."
            raise aborted(reason, sender) from None
    total = secp256k1.sum_points(shares.values())
    if total.is_identity:
        raise aborted("The key shares cancel out.")
    return PublicKey(total, shares, board_hash(b"key", board))


def submission(
    terms: MixTerms, key: PublicKey, name: str, identity: SigningKey, points: Sequence[Point]
) -> bytes:
    """Return points encrypted by all holders' key, proved to be known and signed."""
    randomness = [secp256k1.random_secret() for _ in points]
    row = tuple(encrypt(point, key.point, r) for point, r in zip(points, randomness, strict=True))
    encoded = encode_rows([row])
    transcript = _submission_transcript(terms, key, name, encoded)
    proof = prove(known_randomness(row), [Knows((r,)) for r in randomness], transcript)
    return Signed.make(terms, identity, SUBMISSION, name, encoded + proof).encode()


def known_randomness(row: Row) -> Statement:
    """State that the randomness of every ciphertext of a row is known."""
    return tuple(part for pair in row for part in possession(pair.a))


def opened_batch(terms: MixTerms, key: PublicKey, board: bytes) -> tuple[Row, ...]:
    """Return the rows of a batch: enough of them, of different people, all made by whoever sent them."""
    messages = opened_board(board, terms, SUBMISSION)
    senders = [message.sender for message in messages]
    if senders != sorted(set(senders)):
        raise aborted("A batch has one row of each sender, in order.", "miner")
    if len(messages) < terms.minimum:
        few = counted(len(messages), "record is", "records are")
        raise aborted(f"{few} too few to hide each other: at least {terms.minimum} are mixed.")
    rows: dict[str, Row] = {}
    size = 2 * POINT * terms.width

    def claim(message: Signed) -> Claim:
        encoded, proof = message.payload[:size], message.payload[size:]
        if len(encoded) < size:
            raise DecodingError("A submission holds one row.")
        (rows[message.sender],) = decode_rows(encoded, terms.width)
        transcript = _submission_transcript(terms, key, message.sender, encoded)
        return Claim(known_randomness(rows[message.sender]), proof, transcript)

    bad = rejected(messages, claim, workers=1)
    if bad:
        culprits = [senders[place] for place in bad]
        raise aborted("Some submissions come without proof that their senders made them.", *culprits)
    mixed = tuple(rows[sender] for sender in senders)
    _refuse_copies(mixed, senders)
    return mixed


def _submission_transcript(terms: MixTerms, key: PublicKey, sender: str, row: bytes) -> Transcript:
    transcript = transcript_for(terms, sender, SUBMISSION, roster=key.id)
    transcript.absorb("row", row)
    return transcript


def _refuse_copies(rows: Sequence[Row], senders: Sequence[str]) -> None:
    """Abort where a point occurs twice: one sender copied from another, or from themselves."""
    first: dict[bytes, str] = {}
    for row, sender in zip(rows, senders, strict=True):
        for point in [point for pair in row for point in pair]:
            other = first.setdefault(point.hashed, sender)
            if other != sender:
                raise aborted(f"{other} and {sender} sent the same ciphertext.", other, sender)


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
        reason = f"{signed.sender} did not prove that it decrypted with its share."
        raise aborted(reason, signed.sender, spent=True)
    return partial


def check_endorsed(terms: MixTerms, board: bytes, mixed: bytes) -> None:
    """Abort unless all leaders signed these very shuffles."""
    for signed in opened_board(board, terms, ENDORSEMENT, tuple(terms.leaders)):
        if signed.payload != mixed:
            reason = f"{signed.sender} signed other shuffles: the miner tells leaders different things."
            raise aborted(reason, "miner")
