"""Respondents, leaders and the miner: bytes in, bytes out; and the sequence of their messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from masquerade.channels.privacy_level import DEFAULT_LIMIT, PrivacyLimit
from masquerade.core.errors import InputError, RoundAborted
from masquerade.core.util.formatting import counted
from masquerade.crypto import elgamal
from masquerade.crypto.errors import DecodingError, KeySpent, ProofRejected
from masquerade.crypto.group import Point
from masquerade.crypto.keys import SigningKey
from masquerade.crypto.proof_batches import ProofClaim, WeightedSum, find_rejected
from masquerade.crypto.proofs import Knows, Statement, Transcript, equal_logs, possession, prove, verify
from masquerade.crypto.secp256k1 import secp256k1
from masquerade.protocols.mixnet import messages as wire
from masquerade.protocols.mixnet.shuffle import Shuffled, check_shuffle, shuffle
from masquerade.protocols.people.checks import Checks
from masquerade.protocols.people.history import SessionHistory
from masquerade.protocols.people.ledger import Claim, Enrolled, PersonLedger
from masquerade.protocols.people.report_form import AnyPolicy, exceeds_limit
from masquerade.protocols.people.reports import reports_of
from masquerade.protocols.people.roster import abort_round

Rows = tuple[elgamal.Row, ...]


@dataclass(frozen=True, slots=True)
class PublicKey:
    """The sum of all shares, the shares, and the hash of the board on which they were published."""

    point: Point
    shares: dict[str, Point]
    id: bytes


class Holder:
    """A party with an identity and a secret share of the key."""

    def __init__(self, name: str, identity: SigningKey, terms: wire.MixTerms) -> None:
        if terms.identity(wire.SHARE, name) != identity.public:
            raise InputError(f"These terms do not name {name!r} as the miner or a leader with this identity.")
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
        """Return this holder's part of the public key with a proof of knowledge; always the same."""
        if self._share is None:
            point = secp256k1.multiply_generator(self._secret)
            where = wire.transcript_for(self.terms, self.name, wire.SHARE)
            proof = prove(possession(point), [Knows((self._secret,))], where)
            self._share = self._sign(wire.SHARE, point.encode() + proof)
        return self._share

    def take_key(self, board: bytes) -> None:
        """Check all shares and store their sum; a key is never replaced."""
        key = opened_key(self.terms, board)
        if key.shares[self.name] != secp256k1.multiply_generator(self._secret):
            raise abort_round("The board has a different share of this party.", "miner")
        if self._key is not None and self._key.id != key.id:
            raise abort_round("The board of shares was changed.", "miner")
        self._key = key

    @property
    def key(self) -> PublicKey:
        """Return the public key; raise an error if it is not known yet."""
        if self._key is None:
            raise InputError("The key shares of all holders must come first.")
        return self._key

    def _rows_of(self, batch: bytes) -> Rows:
        return self._checked_batches.once(opened_batch, self.terms, self.key, batch)

    def _check_shuffle(self, batch: bytes, rows: Rows, signed: wire.SignedMixMessage) -> Rows:
        """Return the shuffled rows of a leader after verifying the proof of the shuffle."""
        try:
            shuffled = Shuffled.decode(signed.payload, len(rows), self.terms.width)
            check_shuffle(rows, self.key.point, shuffled, self._place_of(batch, signed.sender))
        except (DecodingError, ProofRejected):
            reason = f"{signed.sender} did not prove that it shuffled, and nothing else."
            raise abort_round(reason, signed.sender) from None
        return shuffled.rows

    def _place_of(self, batch: bytes, leader: str) -> Transcript:
        """Return the transcript that the proof of a leader's shuffle starts from."""
        query = wire.board_hash(b"batch", batch)
        return wire.transcript_for(self.terms, leader, wire.SHUFFLE, roster=self.key.id, query=query)

    def _partial(self, rows: Sequence[elgamal.Row]) -> tuple[Point, ...]:
        return tuple([secp256k1.multiply(pair.a, self._secret) for row in rows for pair in row])

    def _opening(self, rows: Sequence[elgamal.Row], mixed: bytes) -> bytes:
        """Return partial decryptions of mixed rows with proofs, once per session."""
        if self._opened:
            raise KeySpent(f"{self.name} has opened what was mixed in this session already.")
        self._opened = True
        partial = self._partial(rows)
        statement = opening_statement(rows, self.key.shares[self.name], partial)
        transcript = wire.transcript_for(self.terms, self.name, wire.OPENING, roster=self.key.id, query=mixed)
        proof = prove(statement, [Knows((self._secret,))], transcript)
        self._secret.wipe()  # the share is used for one opening only
        return self._sign(wire.OPENING, b"".join([point.encode() for point in partial]) + proof)

    def _sign(self, kind: str, payload: bytes) -> bytes:
        return wire.SignedMixMessage.make(self.terms, self._identity, kind, self.name, payload).encode()


def opened_key(terms: wire.MixTerms, board: bytes) -> PublicKey:
    """Return the key on a board with one share per holder, each with a valid proof of knowledge.

    Without proofs, the last holder could choose a share that cancels all others.
    """
    shares: dict[str, Point] = {}
    for signed in wire.opened_board(board, terms, wire.SHARE, terms.holders):
        sender, payload = signed.sender, signed.payload
        try:
            shares[sender] = secp256k1.decode(payload[: elgamal.POINT])
            verify(
                possession(shares[sender]),
                payload[elgamal.POINT :],
                wire.transcript_for(terms, sender, wire.SHARE),
            )
        except (DecodingError, ProofRejected):
            reason = f"The key share of {sender} has no valid proof of knowledge."
            raise abort_round(reason, sender) from None
    total = secp256k1.sum_points(shares.values())
    if total.is_identity:
        raise abort_round("The key shares cancel out.")
    return PublicKey(total, shares, wire.board_hash(b"key", board))


def submission(
    terms: wire.MixTerms, key: PublicKey, name: str, identity: SigningKey, points: Sequence[Point]
) -> bytes:
    """Return points encrypted under all holders' key, with a proof of knowledge, signed."""
    randomness = [secp256k1.random_secret() for _ in points]
    row = tuple(elgamal.encrypt(point, key.point, r) for point, r in zip(points, randomness, strict=True))
    encoded = elgamal.encode_rows([row])
    transcript = _submission_transcript(terms, key, name, encoded)
    proof = prove(known_randomness(row), [Knows((r,)) for r in randomness], transcript)
    for number in randomness:
        number.wipe()
    return wire.SignedMixMessage.make(terms, identity, wire.SUBMISSION, name, encoded + proof).encode()


def known_randomness(row: elgamal.Row) -> Statement:
    """Return the statement that the sender knows the randomness of every ciphertext of a row."""
    return tuple(part for pair in row for part in possession(pair.a))


def opened_batch(terms: wire.MixTerms, key: PublicKey, board: bytes) -> Rows:
    """Return the rows of a batch, after checking their number, senders and proofs."""
    messages = wire.SignedMixMessage.on_board(board, terms, wire.SUBMISSION)
    senders = [message.sender for message in messages]
    if senders != sorted(set(senders)):
        raise abort_round("A batch must have one row per sender, in order.", "miner")
    if len(messages) < terms.minimum:
        few = counted(len(messages), "record is", "records are")
        raise abort_round(f"{few} too few to hide each other: at least {terms.minimum} are mixed.")
    rows: dict[str, elgamal.Row] = {}
    size = 2 * elgamal.POINT * terms.width

    def claim(message: wire.SignedMixMessage) -> ProofClaim:
        encoded, proof = message.payload[:size], message.payload[size:]
        if len(encoded) < size:
            raise DecodingError("A submission holds one row.")
        (rows[message.sender],) = elgamal.decode_rows(encoded, terms.width)
        transcript = _submission_transcript(terms, key, message.sender, encoded)
        return ProofClaim(known_randomness(rows[message.sender]), proof, transcript)

    bad = find_rejected(messages, claim, workers=1)
    if bad:
        culprits = [senders[place] for place in bad]
        raise abort_round("Some submissions have no valid proof that their senders made them.", *culprits)
    mixed = tuple(rows[sender] for sender in senders)
    _refuse_copies(mixed, senders)
    return mixed


def _submission_transcript(terms: wire.MixTerms, key: PublicKey, sender: str, row: bytes) -> Transcript:
    transcript = wire.transcript_for(terms, sender, wire.SUBMISSION, roster=key.id)
    transcript.absorb("row", row)
    return transcript


def _refuse_copies(rows: Sequence[elgamal.Row], senders: Sequence[str]) -> None:
    """Abort the round if a point occurs twice: a sender copied a ciphertext."""
    first: dict[bytes, str] = {}
    for row, sender in zip(rows, senders, strict=True):
        for point in [point for pair in row for point in pair]:
            other = first.setdefault(point.hash_bytes, sender)
            if other != sender:
                raise abort_round(f"{other} and {sender} sent the same ciphertext.", other, sender)


def opening_statement(rows: Sequence[elgamal.Row], share: Point, partial: Sequence[Point]) -> Statement:
    """Return the statement that every point was multiplied by the secret of the share."""
    points = [pair.a for row in rows for pair in row]
    return equal_logs([(share, secp256k1.generator), *zip(partial, points, strict=True)])


def opened_partial(
    terms: wire.MixTerms,
    key: PublicKey,
    rows: Sequence[elgamal.Row],
    mixed: bytes,
    signed: wire.SignedMixMessage,
) -> tuple[Point, ...]:
    """Verify and return a leader's partial decryptions; `mixed` is the hash of all shuffles."""
    size = sum(len(row) for row in rows) * elgamal.POINT
    transcript = wire.transcript_for(terms, signed.sender, wire.OPENING, roster=key.id, query=mixed)
    weighed = WeightedSum()
    try:
        partial = elgamal.decode_points(signed.payload[:size].ljust(size, b"\0"))
        statement = opening_statement(rows, key.shares[signed.sender], partial)
        weighed.add(ProofClaim(statement, signed.payload[size:], transcript))
        holds = weighed.holds()
    except DecodingError:
        holds = False
    if not holds:
        reason = f"{signed.sender} did not prove that it decrypted with its share."
        raise abort_round(reason, signed.sender, spent=True)
    return partial


def check_endorsed(terms: wire.MixTerms, board: bytes, mixed: bytes) -> None:
    """Abort the round unless all leaders signed exactly these shuffles."""
    for signed in wire.opened_board(board, terms, wire.ENDORSEMENT, tuple(terms.leaders)):
        if signed.payload != mixed:
            reason = (
                f"{signed.sender} signed different shuffles: the miner shows different boards to the leaders."
            )
            raise abort_round(reason, "miner")


class Respondent(Enrolled):
    """A person who sends a record anonymously. Learns nothing.

    A record is sent once per session: two batches that differ by one record would reveal whose record it is.
    For the same reason a clear record is sent in one session only, and is not counted by any other protocol;
    `agreed` names earlier sessions for which this person accepts an exception. `ledger` records this
    permanently. A disguised record that reveals more than `limit` counts as clear.
    """

    def __init__(
        self,
        name: str,
        identity: SigningKey,
        terms: wire.MixTerms,
        *,
        ledger: PersonLedger | None = None,
        agreed: Iterable[str] = (),
        limit: PrivacyLimit = DEFAULT_LIMIT,
    ) -> None:
        super().__init__(name, identity, terms.respondents, ledger)
        self.terms, self.limit = terms, limit
        self._history = SessionHistory(self._ledger, terms.session, terms.id, agreed)

    def submit(self, keys: bytes, record: bytes) -> bytes:
        """Return an encrypted clear record, after checking the board of key shares; the record is then spent.

        Raise `QueryRefused` if it was sent in another session before.
        """
        return self._encrypt_record(keys, record, clear=True)

    def report(self, keys: bytes, record: Mapping[str, int], policy: AnyPolicy) -> bytes:
        """Disguise a record of truth codes by a policy, once, and encrypt it as `submit` does.

        If the disguise of the whole record is within this respondent's limit, further sessions get the same
        reports, and their difference reveals no more than the reports. Otherwise the record counts as clear.
        """
        reports = reports_of(record, policy, self.name, self._ledger)
        return self._encrypt_record(
            keys, wire.pack_record(reports, policy), clear=exceeds_limit(policy, self.limit)
        )

    def _encrypt_record(self, keys: bytes, record: bytes, *, clear: bool) -> bytes:
        key = opened_key(self.terms, keys)
        points = [elgamal.embed_piece(piece) for piece in elgamal.pieces_of(record, self.terms.width)]
        claims = self._history.spending_claims(self._history.check()) if clear else []
        self._ledger.claim([Claim("submitted", self.terms.id), *claims])
        return submission(self.terms, key, self.name, self._identity, points)


class Leader(Holder):
    """Re-encrypts and permutes records. Learns who participates, but no record and no other leader's order.

    One honest leader is enough: it opens nothing until it has verified all shuffles and all leaders have
    signed them. It shuffles, signs and opens once.
    """

    WORDS: ClassVar[tuple[str, str]] = "shuffled", "shuffles"  # verb and noun for error messages

    def __init__(self, name: str, identity: SigningKey, terms: wire.MixTerms) -> None:
        super().__init__(name, identity, terms)
        self._place = list(terms.leaders).index(name)
        self._shuffled: _Mixed | None = None
        self._endorsed: _Mixed | None = None

    def shuffle(self, batch: bytes, before: bytes) -> bytes:
        """Check a batch and the shuffles `before`, then return the rows shuffled again."""
        if self._shuffled is not None:
            raise KeySpent(f"{self.name} has {self.WORDS[0]} in this session already.")
        done = wire.opened_board(before, self.terms, wire.SHUFFLE, tuple(self.terms.leaders)[: self._place])
        rows = self._first_rows(batch)
        for signed in done:
            rows = self._check_shuffle(batch, rows, signed)
        payload, rows = self._make_shuffle(batch, rows)
        own = self._sign(wire.SHUFFLE, payload)
        self._shuffled = _Mixed(batch, (*wire.MixBoard.decode(before).parts, own), rows)
        return own

    def endorse(self, batch: bytes, shuffles: bytes) -> bytes:
        """Check the remaining shuffles, then return a signature of the batch and all shuffles."""
        if self._endorsed is not None:
            raise KeySpent(f"{self.name} has endorsed the {self.WORDS[1]} of this session already.")
        signed = wire.opened_board(shuffles, self.terms, wire.SHUFFLE, tuple(self.terms.leaders))
        parts, mine = wire.MixBoard.decode(shuffles).parts, self._shuffled
        if mine is None or mine.batch != batch or mine.shuffles != parts[: len(mine.shuffles)]:
            raise abort_round(f"The board differs from the board that this party {self.WORDS[0]}.", "miner")
        rows = mine.rows
        for later in signed[len(mine.shuffles) :]:
            rows = self._check_shuffle(batch, rows, later)
        self._endorsed = _Mixed(batch, parts, rows)
        return self._sign(wire.ENDORSEMENT, wire.board_hash(b"mixed", batch, shuffles))

    def open(self, endorsements: bytes) -> bytes:
        """Return partial decryptions of the last rows, after all leaders have signed the same shuffles."""
        done = self._endorsed
        if done is None:
            raise InputError(f"The {self.WORDS[1]} come before their endorsements.")
        mixed = wire.board_hash(b"mixed", done.batch, wire.MixBoard(done.shuffles).encode())
        check_endorsed(self.terms, endorsements, mixed)
        return self._opening(done.rows, mixed)

    def _first_rows(self, batch: bytes) -> Rows:
        """Return the rows that the first leader shuffles."""
        return self._rows_of(batch)

    def _make_shuffle(self, batch: bytes, rows: Rows) -> tuple[bytes, Rows]:
        """Shuffle rows; return them as bytes with a proof, and as rows."""
        shuffled = shuffle(rows, self.key.point, self._place_of(batch, self.name))
        return shuffled.encode(), shuffled.rows


class _Mixed(NamedTuple):
    """A batch, its shuffles, and the output rows."""

    batch: bytes
    shuffles: tuple[bytes, ...]
    rows: Rows


@dataclass(frozen=True, slots=True)
class Collected:
    """The records of a batch, sorted, so that no sender is known, and the number of unreadable records."""

    records: tuple[bytes, ...]
    unreadable: int = 0


class MixMiner(Holder):
    """Collects messages and opens the records. If one leader is honest, it does not learn their senders."""

    def __init__(self, identity: SigningKey, terms: wire.MixTerms) -> None:
        super().__init__("miner", identity, terms)
        self.refused: tuple[str, ...] = ()

    def key_board(self, shares: Sequence[bytes]) -> bytes:
        """Check all key shares and return their board."""
        board = self._gather_board(wire.SHARE, self.terms.holders, shares)
        self.take_key(board)
        return board

    def batch(self, submissions: Sequence[bytes]) -> bytes:
        """Return the board of all valid submissions, in the order of their senders.

        Senders of invalid submissions are named in `refused`; a sender's first submission counts.
        """
        left = dict(sorted(wire.SignedMixMessage.first(submissions, self.terms, wire.SUBMISSION).items()))
        refused: list[str] = []
        while True:
            board = wire.MixBoard(tuple(left.values())).encode()
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
        return self._gather_board(wire.SHUFFLE, tuple(self.terms.leaders)[: len(shuffles)], shuffles)

    def endorsement_board(self, endorsements: Sequence[bytes]) -> bytes:
        """Return the board of all leaders' endorsements."""
        return self._gather_board(wire.ENDORSEMENT, tuple(self.terms.leaders), endorsements)

    def collect(self, batch: bytes, shuffles: bytes, openings: Sequence[bytes]) -> Collected:
        """Check every shuffle and every partial decryption, and return the records."""
        leaders = tuple(self.terms.leaders)
        rows = self._rows_of(batch)
        for signed in wire.opened_board(shuffles, self.terms, wire.SHUFFLE, leaders):
            rows = self._check_shuffle(batch, rows, signed)
        mixed = wire.board_hash(b"mixed", batch, shuffles)
        board = self._gather_board(wire.OPENING, leaders, openings, spent=True)
        signed_openings = wire.opened_board(board, self.terms, wire.OPENING, leaders)
        partials = [self._partial(rows)]
        partials += [opened_partial(self.terms, self.key, rows, mixed, signed) for signed in signed_openings]
        masks = [secp256k1.sum_points(points) for points in zip(*partials, strict=True)]
        pairs = [pair for row in rows for pair in row]
        return readable([pair.b - mask for pair, mask in zip(pairs, masks, strict=True)], self.terms.width)

    def _gather_board(
        self, kind: str, senders: Sequence[str], messages: Sequence[bytes], *, spent: bool = False
    ) -> bytes:
        return wire.SignedMixMessage.gather(messages, self.terms, kind, senders, spent=spent)


def readable(points: Sequence[Point], width: int) -> Collected:
    """Return the records that opened points encode, sorted."""
    records, unreadable = [], 0
    for at in range(0, len(points), width):
        try:
            records.append(elgamal.record_of(points[at : at + width]))
        except DecodingError:
            unreadable += 1
    return Collected(tuple(sorted(records)), unreadable)


def collect(
    miner: MixMiner, leaders: Sequence[Leader], submissions: Callable[[bytes], Sequence[bytes]]
) -> Collected:
    """Return the miner's records; `submissions` gets the board of keys and returns the submissions.

    All messages between the parties are bytes.
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
