"""Binding of a history of answers to its records.

Two answers to the same query about different sets of people show, by their difference, the values of the
people in which the sets differ. Therefore a history stores a digest of the records that it is about.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import Refusal
from masquerade.core.query import Query
from masquerade.core.tally import Cached, Merged, Selected, Tally
from masquerade.crypto.errors import KeySpent
from masquerade.crypto.symmetric import code, same
from masquerade.protocols.people.ledger import Claim, PersonLedger
from masquerade.sources.late_codes import Codes
from masquerade.sources.records import Records
from masquerade.sources.report_tally import ReportTally

BOUND = "records of a history"  # type of the claims that name the records of a history
KEY_SIZE = 32
LARGEST_WORD = 1 << 62


class RecordBinding:
    """The records of a source, compared with the records that a history is about.

    The digest is an HMAC under a random key of the history, so that two histories do not show that they are
    about the same records. The key is stored in the history: a reader of it can test a guess of all records.

    Parameters
    ----------
    ledger : PersonLedger
        Ledger of the history.
    source : Tally
        Source of the counts.
    keys : iterable, optional
        Keys of the people. With keys, records count as the same if they are about the same people.
    """

    def __init__(self, ledger: PersonLedger, source: Tally, keys: Iterable[object] | None = None) -> None:
        self._ledger, self._source = ledger, source
        self._keys = None if keys is None else sorted(f"{type(key).__name__} {key}" for key in _plain(keys))
        self._digests: dict[bytes, bytes | None] = {}

    def refusal(self) -> Refusal | None:
        """Return a refusal if the history is about other records, otherwise None."""
        bound = self._ledger.values(BOUND)
        if not bound:
            return None
        digest = self._digest(bound[0][:KEY_SIZE])
        if digest is not None and any(same(it[KEY_SIZE:], digest) for it in bound):
            return None
        return Refusal("other_people", OTHER_PEOPLE if digest is not None else UNKNOWN_PEOPLE)

    def bind(self, *, other_people: bool) -> None:
        """Store durably that the history is about these records.

        Nothing is stored if it is about other records already, unless `other_people` is True.
        """
        while True:
            bound = self._ledger.values(BOUND)
            key = bound[0][:KEY_SIZE] if bound else secrets.token_bytes(KEY_SIZE)
            digest = self._digest(key)
            if digest is None or (bound and not other_people) or key + digest in bound:
                return
            try:
                self._ledger.claim([Claim(BOUND, len(bound).to_bytes(8, "big"), key + digest)])
            except KeySpent:  # another process has bound it concurrently
                continue
            return

    def _digest(self, key: bytes) -> bytes | None:
        if key not in self._digests:
            if self._keys is None:
                self._digests[key] = records_digest(self._source, key)
            else:
                self._digests[key] = _hmac(key, "keys", json.dumps(self._keys).encode())
        return self._digests[key]


OTHER_PEOPLE = (
    "This history is about different records: together with its answers, a count would show the values of "
    "the people in which the two sets differ. Use a history for each set of people, or pass keys=, if "
    "the people are the same. Pass other_people=True if differences may be shown."
)
UNKNOWN_PEOPLE = (
    "This history is about certain records, and this source does not show which records it counts. "
    "Pass keys=, the keys of the people, or other_people=True if differences may be shown."
)


def records_digest(source: Tally, key: bytes) -> bytes | None:
    """Return the HMAC of the records of a source, whatever their order; None if the source has no records.

    Records in memory are identified by all their values. Records in an engine are identified by their number
    and the counts of each variable.
    """
    if isinstance(source, Cached):
        return records_digest(source.source, key)
    if isinstance(source, Selected):
        return records_digest(source.source, key)
    if isinstance(source, Merged):
        parts = [records_digest(part, key) for part in source.sources]
        digests = [part for part in parts if part is not None]
        return _hmac(key, "merged", *sorted(digests)) if len(digests) == len(parts) else None
    if isinstance(source, Records):
        return _content_digest(source, key)
    if isinstance(source, ReportTally):
        tables = source.answer([Query(by=name) for name in sorted(source.schema)])
        values = [np.ascontiguousarray(table.values).tobytes() for table in tables]
        return _hmac(
            key, "margins", _schema_bytes(source), str(tables[0].n if tables else 0).encode(), *values
        )
    return None


def _content_digest(source: Records, key: bytes) -> bytes:
    names = sorted(source.codes)
    sizes = dict(
        zip(source.policy.observed, source.policy.observed.shape(source.policy.observed), strict=True)
    )
    words = _words([source.codes[name] for name in names], [sizes[name] for name in names], source.n)
    if source.weights is not None:
        words.append(np.asarray(source.weights, dtype=float).view(np.int64))
    order = np.lexsort(words) if len(words) > 1 else np.argsort(words[0])
    return _hmac(key, "records", _schema_bytes(source), *(word[order].tobytes() for word in words))


def _words(columns: list[Codes], sizes: list[int], n: int) -> list[NDArray[np.int64]]:
    """Return columns of codes packed into as few columns of integers as possible."""
    words, used = [np.zeros(n, dtype=np.int64)], 1
    for column, size in zip(columns, sizes, strict=True):
        if used * max(size, 1) > LARGEST_WORD:
            words.append(np.zeros(n, dtype=np.int64))
            used = 1
        words[-1] += np.asarray(column, dtype=np.int64) * used
        used *= max(size, 1)
    return words


def _schema_bytes(source: ReportTally) -> bytes:
    """Return the variables and their categories as bytes, sorted by name."""
    observed = source.policy.observed
    listed = {name: [str(label) for label in observed[name].categories] for name in sorted(observed)}
    return json.dumps(listed, sort_keys=True).encode()


def _hmac(key: bytes, label: str, *parts: bytes) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return code(key, label.encode() + digest.digest())


def _plain(keys: Iterable[object]) -> Iterable[object]:
    """Return keys as Python values."""
    return np.asarray(keys).tolist() if not isinstance(keys, (list, tuple, set)) else keys
