"""The miner's side of a mix: keys from all leaders, people's records, and their opening at the end."""

from __future__ import annotations

import json
import secrets
import threading
from typing import TYPE_CHECKING, Any, Final

from masquerade.core.errors import QueryRefused, Refusal
from masquerade.crypto.errors import DecodingError
from masquerade.protocols.mixnet.messages import MixTerms, SignedMixMessage
from masquerade.protocols.mixnet.roles import MixMiner
from masquerade.services.common.client import HttpTransport, peer_transport
from masquerade.services.counting.messages import (
    LETTER_ID,
    MESSAGE,
    OVER,
    WAIT,
    DeviceReply,
    Letter,
    MixBoards,
)
from masquerade.services.counting.server import SCOPE

if TYPE_CHECKING:
    from masquerade.services.counting.miner import MinerService

KEYS, RECORDS = "keys", "records"
KEY_LOST: Final = Refusal(
    "key_lost",
    ("The miner stopped after the keys of this mix were made: this count is over. Name a new count."),
)


class MixBatch:
    """The miner's side of a mix: keys from all leaders, submissions until the closing, then records.

    If a leader is unreachable, the closing can be repeated with the same batch; leaders' replies are stored
    until then. If a leader has lost its key, the mix is over, and nothing is opened.
    """

    def __init__(self, service: MinerService, terms: MixTerms) -> None:
        self.service, self._terms = service, terms
        self._lock, self._closing = threading.Lock(), threading.Lock()
        notes = service.state.notes
        records = notes.get(SCOPE, RECORDS)
        self.result: dict[str, Any] | None = None if records is None else json.loads(records)
        lost = self.result is None and notes.get(SCOPE, KEYS) is not None
        self.over: Refusal | None = KEY_LOST if lost else None
        self._made: tuple[MixMiner, bytes] | None = None
        self._board: bytes | None = None
        self._submissions: dict[str, bytes] = {}
        self._closed = False
        self._batch: bytes | None = None
        self._nonce, self._replies = secrets.token_urlsafe(24), dict[tuple[str, str], bytes]()
        self._letter = secrets.token_bytes(LETTER_ID)

    def letter(self, person: str) -> Letter:
        """Return the board of keys to a person who has not answered it yet."""
        self.check_over()
        if self.result is not None or person in self._submissions:
            return Letter(OVER)
        if self._closed:
            return Letter(WAIT, 500)
        board = self._board
        if board is None:
            if not self._lock.acquire(blocking=False):
                return Letter(WAIT, 500)
            try:
                board = self._keys()
            finally:
                self._lock.release()
        return Letter(MESSAGE, 0, self.keys_message(board), self._letter)

    def keys_message(self, board: bytes) -> bytes:
        """Return the message that hands the board of keys to a person."""
        return board

    def make_miner(self) -> MixMiner:
        """Return the miner's role in the protocol, with a new share of the key."""
        return MixMiner(self.service.identity, self._terms)

    def _keys(self) -> bytes:
        """Return the board of all keys once every leader has it; an existing board is never replaced."""
        if self._board is None:
            with self._leaders() as http:
                if self._made is None:
                    shares = [http.exchange(name, b"", place="share") for name in self._terms.leaders]
                    miner = self.make_miner()
                    board = miner.key_board([miner.share(), *shares])
                    self.service.state.notes.put(SCOPE, KEYS, b"")
                    self._made = miner, board
                for name in self._terms.leaders:
                    http.exchange(name, self._made[1], place="key")
            self._board = self._made[1]
        return self._board

    def take(self, reply: DeviceReply) -> bool:
        """Store the first submission of a person; return True if the reply contains this submission."""
        if reply.letter != self._letter:
            return False
        signed = SignedMixMessage.parse(reply.content, self._terms, "submission")
        if signed.sender != reply.person:
            raise DecodingError("A submission must come from the person who signed it.")
        with self._lock:
            if self.result is None and not self._closed:
                self._submissions.setdefault(reply.person, reply.content)
            return self._submissions.get(reply.person) == reply.content

    def close(self) -> None:
        """Close the mix once: all leaders shuffle and open the submissions."""
        with self._closing:
            self.check_over()
            if self.result is not None:
                return
            if self._made is None or not self._submissions:
                raise QueryRefused([Refusal("not_begun", "No one has sent a record yet.")])
            miner, _ = self._made
            if self._batch is None:
                self._batch = self._closed_batch(miner)
            try:
                with self._leaders() as http:
                    result = self.open_batch(miner, self._batch, http)
            except QueryRefused as refused:
                self.over = self.over or next(
                    (one for one in refused.refusals if one.code == KEY_LOST.code), None
                )
                raise
            self.service.state.notes.put(SCOPE, RECORDS, json.dumps(result).encode())
            self.result = result

    def _closed_batch(self, miner: MixMiner) -> bytes:
        """Stop accepting submissions and return the batch; if it is not valid, accept submissions again."""
        with self._lock:
            self._closed, sent = True, list(self._submissions.values())
        try:
            return miner.batch(sent)
        except BaseException:
            self._closed = False
            raise

    def open_batch(self, miner: MixMiner, batch: bytes, http: HttpTransport) -> dict[str, Any]:
        """Ask all leaders to shuffle, sign and open; replies from an earlier attempt are reused."""
        board, _, openings = self.run_shuffles(miner, batch, http)
        collected = miner.collect(batch, board, openings)
        records = [record.hex() for record in collected.records]
        return {"records": records, "unreadable": collected.unreadable, "refused": list(miner.refused)}

    def run_shuffles(
        self, miner: MixMiner, batch: bytes, http: HttpTransport
    ) -> tuple[bytes, bytes, list[bytes]]:
        """Return the boards of shuffles and of endorsements, and the leaders' partial decryptions."""
        shuffles: list[bytes] = []
        for name in self._terms.leaders:
            boards = MixBoards((batch, miner.shuffle_board(shuffles)))
            shuffles.append(self.ask(http, name, "shuffle", boards.encode()))
        board = miner.shuffle_board(shuffles)
        final = MixBoards((batch, board)).encode()
        endorsements = [self.ask(http, name, "endorse", final) for name in self._terms.leaders]
        endorsed = miner.endorsement_board(endorsements)
        openings = [self.ask(http, name, "open", endorsed) for name in self._terms.leaders]
        return board, endorsed, openings

    def ask(self, http: HttpTransport, name: str, place: str, message: bytes) -> bytes:
        """Return a server's reply; a reply that came in an earlier attempt is used again."""
        if (name, place) not in self._replies:
            key = f"{self._nonce}-{place}"
            self._replies[name, place] = http.exchange(name, message, place=place, key=key)
        return self._replies[name, place]

    def summary(self) -> dict[str, Any]:
        """Return the entries of the status of a closed mix."""
        result = self.result or {}
        return {"records": len(result["records"]), "refused": result["refused"]}

    def check_over(self) -> None:
        """Raise QueryRefused if nothing can be opened any more."""
        if self.over is not None:
            raise QueryRefused([self.over])

    @property
    def submission_count(self) -> int:
        """Return the number of people who have sent a submission."""
        return len(self._submissions)

    def _leaders(self) -> HttpTransport:
        return peer_transport(self.service.settings, self.service.peers)
