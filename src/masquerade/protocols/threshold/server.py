"""The randomness server: it evaluates the oblivious function once for each credential in each epoch.

It never learns what it evaluates. Without it, whoever holds the reports could try every quasi-identifier;
with it, every try costs a credential. An oblivious function alone does not stop that: the ledger does.

An epoch is *open*, when requests are evaluated, and then *closed*: its key, which was nowhere but in memory,
is destroyed, and a signed closing says so. A collector takes no report before it has seen that closing, so
nobody who holds reports can have anything evaluated. A server that is restarted has lost its keys: the epochs
that were open can only be closed.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from masquerade.core.errors import InputError, QueryRefused, Refusal
from masquerade.crypto import oprf, symmetric
from masquerade.crypto.errors import DecodingError
from masquerade.crypto.group import Point
from masquerade.crypto.keys import KEY_SIZE, SigningKey, derive
from masquerade.crypto.ristretto255 import ristretto255 as group
from masquerade.protocols.durable_store import DurableStore, Layout
from masquerade.protocols.threshold.messages import (
    ID_SIZE,
    MOST_TOGETHER,
    Closing,
    Credential,
    Evaluation,
    EvaluationRefusal,
    Notice,
    Request,
    Terms,
)

TOGETHER: Final = 8  # elements under one proof: the server saves most of it, a client checks it in 2 ms
_EVALUATIONS: Final = Layout(
    "the ledger of a randomness server",
    "the ledger",
    b"mqev",
    """CREATE TABLE epochs (number INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL,
       notice BLOB NOT NULL, finished INTEGER NOT NULL DEFAULT 0);
    CREATE TABLE uses (epoch INTEGER NOT NULL, credential BLOB NOT NULL,
       mark BLOB NOT NULL, PRIMARY KEY (epoch, credential)) WITHOUT ROWID;
    """,
    steps={0: ""},
    unmarked=frozenset({"epochs", "uses"}),
    log=False,
)


class EvaluationLedger:
    """The randomness server's memory of epochs, and of the credentials spent in each; keys never get here.

    What it is told is on the disk before the call returns; without a path it is in memory. Cost: one sync for
    each call of `spend`, however many uses, and about 5 µs for each use.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self._store = DurableStore(path, _EVALUATIONS)

    def begin(self, epoch: str, notice: bytes) -> bool:
        """Remember a new epoch and its notice; False if the name was used before."""
        line = "INSERT OR IGNORE INTO epochs (name, notice) VALUES (?, ?)"
        return self._store.run_all(line, [(epoch, notice)]) == 1

    def notice(self, epoch: str) -> bytes | None:
        """Return the notice of an epoch, None if there was none of this name."""
        found = self._store.value("SELECT notice FROM epochs WHERE name = ?", (epoch,))
        return None if found is None else bytes(found)

    def epochs(self) -> dict[str, bytes]:
        """Return the notices of all epochs by name, in the order they began."""
        rows = self._store.run("SELECT name, notice FROM epochs ORDER BY number")
        return {str(name): bytes(notice) for name, notice in rows}

    def spend(self, epoch: str, uses: Sequence[tuple[bytes, bytes]]) -> list[bool]:
        """Remember (credential, fingerprint) pairs, all at once.

        True where the credential is used for the first time in the epoch, or again with the same fingerprint.
        """
        with self._store.transaction():
            number = self._store.value("SELECT number FROM epochs WHERE name = ?", (epoch,))
            return [self._use(number, credential, mark) for credential, mark in uses]

    def spent(self, epoch: str) -> int:
        """Return how many credentials were used in an epoch."""
        query = "SELECT count(*) FROM uses WHERE epoch = (SELECT number FROM epochs WHERE name = ?)"
        return int(self._store.value(query, (epoch,)))

    def finish(self, epoch: str) -> None:
        """Remember that an epoch is closed."""
        self._store.run("UPDATE epochs SET finished = 1 WHERE name = ?", (epoch,))

    def finished(self, epoch: str) -> bool:
        """Tell whether an epoch is closed."""
        return bool(self._store.value("SELECT finished FROM epochs WHERE name = ?", (epoch,)))

    def close(self) -> None:
        """Let go of the file."""
        self._store.close()

    def _use(self, number: int, credential: bytes, mark: bytes) -> bool:
        if self._store.run_all("INSERT OR IGNORE INTO uses VALUES (?, ?, ?)", [(number, credential, mark)]):
            return True
        query = "SELECT mark FROM uses WHERE epoch = ? AND credential = ?"
        return bytes(self._store.value(query, (number, credential))) == mark


class RandomnessServer:
    """Evaluates blinded elements, each credential's once an epoch.

    `seed` is 32 secret bytes that outlive a restart: the server's credentials follow from it, and so does its
    identity unless `signing` is that; the keys of epochs do not. `ledger` remembers who was served.
    """

    def __init__(
        self,
        seed: bytes,
        ledger: EvaluationLedger,
        *,
        signing: SigningKey | None = None,
        together: int = TOGETHER,
    ) -> None:
        if len(seed) != KEY_SIZE:
            raise InputError(f"A randomness server is made from {KEY_SIZE} bytes. Got {len(seed)} instead.")
        if not 1 <= together <= MOST_TOGETHER:
            raise InputError(f"'together' must be from 1 to {MOST_TOGETHER}. Got {together} instead.")
        self._signing = signing or SigningKey.from_seed(derive(seed, "threshold server identity"))
        self._people = derive(seed, "threshold server people")
        self._credentials = derive(seed, "threshold server credentials")
        self._ledger, self._together = ledger, together
        self._keys: dict[str, oprf.ServerKey] = {}
        self._epochs = {Notice.decode(notice).digest: epoch for epoch, notice in ledger.epochs().items()}
        self._lock = threading.RLock()

    @property
    def identity(self) -> bytes:
        """Return the public key that notices and closings are signed with."""
        return self._signing.public

    def enrol(self, person: str) -> bytes:
        """Return the credential of a person, always the same one.

        Whoever calls this has made sure who is asking: one person with two names opens any class it can name.
        """
        if not person:
            raise InputError("A person is enrolled under a name that is not empty.")
        identifier = symmetric.code(self._people, person.encode())[:ID_SIZE]
        return Credential(identifier, self._key_of(identifier)).encode()

    def open(self, terms: bytes) -> bytes:
        """Begin an epoch under these terms with a fresh key, and return the notice for everybody."""
        agreed = Terms.decode(terms)
        with self._lock:
            key = oprf.random_key()
            notice = Notice.signed(agreed, key.public, self._signing)
            if not self._ledger.begin(agreed.epoch, notice.encode()):
                raise InputError(f"Epoch {agreed.epoch!r} has been: the name of an epoch is used once.")
            self._keys[agreed.epoch], self._epochs[notice.digest] = key, agreed.epoch
            return notice.encode()

    def evaluate(self, requests: Sequence[bytes]) -> list[bytes]:
        """Return one reply for each request, an evaluation or a refusal; the ledger is synced first.

        A request that is repeated byte for byte gets the same element evaluated again, which is nothing new.

        Cost: about 0.2 ms a request, and one sync of the ledger for all that are given together.
        """
        with self._lock:
            replies: list[bytes | None] = [None] * len(requests)
            admitted: dict[str, list[tuple[int, Request, Point]]] = {}
            for place, data in enumerate(requests):
                try:
                    request = Request.decode(data)
                    point = group.decode(request.element)
                except DecodingError:
                    replies[place] = EvaluationRefusal("malformed").encode()
                    continue
                problem = self._problem(request)
                if problem is None:
                    admitted.setdefault(self._epochs[request.notice], []).append((place, request, point))
                else:
                    replies[place] = EvaluationRefusal(problem).encode()
            for epoch, asked in admitted.items():
                uses = [(request.credential, request.fingerprint) for _, request, _ in asked]
                allowed = self._ledger.spend(epoch, uses)
                served = [one for one, first in zip(asked, allowed, strict=True) if first]
                for place, _, _ in asked:
                    replies[place] = EvaluationRefusal("already_spent").encode()
                for start in range(0, len(served), self._together):
                    self._serve(self._keys[epoch], served[start : start + self._together], replies)
            return [reply for reply in replies if reply is not None]

    def close(self, epoch: str) -> bytes:
        """Destroy the key of an epoch for good and return the signed closing; may be asked for again."""
        with self._lock:
            notice = self._ledger.notice(epoch)
            if notice is None:
                raise InputError(f"There has been no epoch {epoch!r}.")
            self._keys.pop(epoch, None)
            self._ledger.finish(epoch)
            digest = hashlib.sha256(notice).digest()
            return Closing.signed(digest, self._ledger.spent(epoch), self._signing).encode()

    def notice(self, epoch: str) -> bytes:
        """Return the notice of an epoch, open or closed."""
        notice = self._ledger.notice(epoch)
        if notice is None:
            raise QueryRefused([Refusal("unknown_epoch", f"There has been no epoch {epoch!r}.")])
        return notice

    def _problem(self, request: Request) -> str | None:
        epoch = self._epochs.get(request.notice)
        if epoch is None:
            return "unknown_epoch"
        if not request.authentic(self._key_of(request.credential)):
            return "not_enrolled"
        if epoch in self._keys:
            return None
        return "epoch_closed" if self._ledger.finished(epoch) else "key_lost"

    def _serve(
        self, key: oprf.ServerKey, asked: Sequence[tuple[int, Request, Point]], replies: list[bytes | None]
    ) -> None:
        evaluated, proof = oprf.evaluate(key, [point for _, _, point in asked])
        elements = b"".join([request.element for _, request, _ in asked])
        results = b"".join([point.encode() for point in evaluated])
        for i, (place, _, _) in enumerate(asked):
            replies[place] = Evaluation(elements, results, proof, i).encode()

    def _key_of(self, identifier: bytes) -> bytes:
        return symmetric.code(self._credentials, identifier)
