"""The collector (the talk's miner): it takes reports, then opens the classes that reached its k.

It waits until the randomness server has signed that the epoch's key is destroyed, takes reports, and opens
once: opened twice, with one report more the second time, the difference would be one person's row.
"""

from __future__ import annotations

import threading

from masquerade.core.errors import InputError, QueryRefused, Refusal
from masquerade.crypto.errors import DecodingError, SealBroken
from masquerade.protocols.threshold.class_opening import Opening, Readable, open_reports
from masquerade.protocols.threshold.messages import Closing, Notice
from masquerade.protocols.threshold.report_layout import Layout
from masquerade.protocols.threshold.stores import ReportStore

_CLOSING, _OPENED = "closing", "opened"


class Collector:
    """Takes the reports of one epoch. *Waiting* → `begin` → *taking* → `open_classes` → *done*.

    `k` is the collector's own: a notice with another is refused, and so are reports made for another.
    """

    def __init__(self, notice: bytes, *, identity: bytes, k: int, store: ReportStore | None = None) -> None:
        self._notice, self._identity = Notice.decode(notice), identity
        self._notice.verify(identity)
        if self._notice.terms.k != k:
            raise InputError(
                f"This collector opens classes of {k}; the notice says k = {self._notice.terms.k}."
            )
        self.layout = Layout.of(self._notice)
        self._store = ReportStore() if store is None else store
        self._lock = threading.RLock()

    @property
    def state(self) -> str:
        """Return "waiting", "taking" or "done"."""
        if self._store.noted(_OPENED) is not None:
            return "done"
        return "waiting" if self._store.noted(_CLOSING) is None else "taking"

    def begin(self, closing: bytes) -> None:
        """Start taking reports, on the server's signed word that the key of this epoch is destroyed."""
        said = Closing.decode(closing)
        said.verify(self._identity)
        if said.notice != self._notice.digest:
            raise SealBroken("The closing is of another epoch, or of another key than the notice's.")
        with self._lock:
            if self._store.noted(_CLOSING) is None:
                self._store.note(_CLOSING, closing)

    def take(self, reports: bytes) -> int:
        """Keep one report, or a run of them, and return how many; safe on the disk when this returns.

        Whether a report is good shows when classes are opened: a bad one is named then and harms no other.
        """
        if not reports or len(reports) % self.layout.size:
            raise DecodingError(f"A report has {self.layout.size} bytes. Got {len(reports):,} bytes instead.")
        with self._lock:
            if self.state == "waiting":
                reason = "The randomness server has not said that the key of this epoch is destroyed."
                raise QueryRefused([Refusal("epoch_open", reason)])
            if self.state == "done":
                raise QueryRefused([Refusal("already_opened", "The classes of this epoch have been opened.")])
            self._store.append(reports)
        return len(reports) // self.layout.size

    def open_classes(self, readable: Readable | None = None) -> Opening:
        """Take no more reports, and return the rows of the classes that reached k.

        `readable` is `Form.readable` where rows were filled in on a form. Called again, it opens the same.
        """
        with self._lock:
            if self.state == "waiting":
                raise QueryRefused(
                    [Refusal("epoch_open", "No report has been taken: the epoch is still open.")]
                )
            if self.state == "taking":
                self._store.note(_OPENED, b"\x01")
            return open_reports(self.layout, self._store.read(), readable)
