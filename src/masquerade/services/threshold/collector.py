"""The collector as a service: it accepts reports once the epoch's key is destroyed, and opens classes once.

Reports, and the note that they were opened, are in the part of the state that backups do not contain.
Otherwise a collector that is restored to a time before the opening could open classes again with one more
report, and the difference would be one person's row.
"""

from __future__ import annotations

import hashlib
import json
import threading
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any

from masquerade.core.errors import InputError, QueryRefused, Refusal
from masquerade.core.guarantee import COLLECTOR, ENROLMENT_OFFICE, Disclosure, Guarantee
from masquerade.protocols.k_anonymity.threshold.class_opening import Opening, Readable
from masquerade.protocols.k_anonymity.threshold.messages import Closing, Notice, ReportLayout, ThresholdTerms
from masquerade.protocols.k_anonymity.threshold.report_store import ReportStore
from masquerade.protocols.k_anonymity.threshold.roles import Collector
from masquerade.protocols.k_anonymity.threshold.row_schema import (
    NOTHING,
    Form,
    production_guarantee,
)
from masquerade.services.common.client import peer_transport
from masquerade.services.common.jobs import Call
from masquerade.services.common.problems import Busy, PartyUnreachable
from masquerade.services.common.state import SESSION
from masquerade.services.threshold.messages import OpenTags, ShownNotice
from masquerade.services.threshold.results import pack_opening, summary_of
from masquerade.services.threshold.server import CollectServer, digest_of
from masquerade.services.threshold.settings import CollectorSettings

_MARK_SIZE = 16
_FETCH_SECONDS = 5.0
_LONGEST_NAME = 300
_TAGS = "tags"  # a note
OPENED = "opened"  # notes of the state: epochs whose classes were opened


def _report_store(notice: bytes, server: CollectServer) -> ReportStore:
    """Return the store of the reports of an epoch."""
    folder = server.once / f"epoch-{digest_of(notice)[:16]}"
    return ReportStore.in_folder(folder, ReportLayout.of(Notice.decode(notice)).size)


class _EpochCollector(Collector):
    """The collector of one epoch. It stores equal reports once, so that people can retry."""

    def __init__(self, notice: bytes, server: CollectServer, identity: bytes, most: int) -> None:
        store = _report_store(notice, server)
        super().__init__(notice, identity=identity, k=server.terms.k, store=store)
        self.notice, self._most = notice, most
        self._seen = set(self._by_digest(store.read()))
        self._opening: Opening | None = None

    def take(self, reports: bytes) -> int:
        """Store concatenated reports durably; return their number."""
        by_digest = self._by_digest(reports)
        with self._lock:
            new = {digest: one for digest, one in by_digest.items() if digest not in self._seen}
            if len(self._seen) + len(new) > self._most:
                raise QueryRefused(
                    [Refusal("too_many", "This collector has reached its largest number of reports.")]
                )
            if new or not reports:
                super().take(b"".join(new.values()))
                self._seen.update(new)
        return len(reports) // self.layout.size

    def open_classes(self, readable: Readable | None = None) -> Opening:
        """Open the classes once; later calls return the same opening."""
        with self._lock:
            if self._opening is None:
                self._opening = super().open_classes(readable)
            return self._opening

    @property
    def public_tags(self) -> bytes | None:
        """Return the signed tags of open classes, if people can report again at a coarser level."""
        return self._store.find_note(_TAGS)

    def publish(self, tags: bytes) -> None:
        """Store the signed tags of open classes, which anyone may read."""
        if self.public_tags is None:
            self._store.note(_TAGS, tags)

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    @property
    def report_count(self) -> int:
        """Return the number of reports."""
        return len(self._seen)

    @property
    def evaluations(self) -> int | None:
        """Return the number of people that the randomness server served; None until it closed the epoch."""
        closed = self._store.find_note("closing")
        return None if closed is None else Closing.decode(closed).evaluations

    def _by_digest(self, run: bytes) -> dict[bytes, bytes]:
        """Split concatenated reports; return them by a short digest."""
        size = self.layout.size
        reports = [run[at : at + size] for at in range(0, len(run), size)]
        return {hashlib.sha256(one).digest()[:_MARK_SIZE]: one for one in reports}


class CollectorService(CollectServer):
    """Endpoints for all callers: notice, begin, reports, opened. For the operator: open, result, status."""

    settings: CollectorSettings

    def __init__(self, settings: CollectorSettings) -> None:
        self._signer = bytes.fromhex(settings.peers[settings.randomness].identity or "")
        self._kept: _EpochCollector | None = None
        self._fetching = threading.Lock()
        super().__init__(settings, settings.randomness)
        self.places = {
            "notice": self._notice,
            "begin": self._begin,
            "reports": self._reports,
            "opened": self._open_tags,
        }
        self.operations = {"open": self._open, "result": self._result, "status": self._status}

    def begin(self, files: ExitStack) -> None:
        """Continue an epoch that has started before."""
        super().begin(files)
        self._epoch_files = files.enter_context(ExitStack())
        notice = self.state.notes.get(SESSION, self.epoch)
        if notice is not None:
            self._kept = self._open_epoch(notice)
            self._check_opened(self._kept)
        if self._kept is None or self._kept.state != "done":
            self.check_single_epoch()

    def _check_opened(self, kept: _EpochCollector) -> None:
        """Raise InputError if classes were opened here, but not with these reports; store a first opening."""
        noted = self.state.notes.get(OPENED, self.epoch) is not None
        if noted and kept.state != "done":
            raise InputError(
                f"The classes of epoch {self.epoch!r} were opened here before, and the reports in "
                f"{self.once} are missing or older: opening again with other reports would reveal single "
                "people's rows by the difference. The epoch is over. Name a new one in the settings of both "
                "servers."
            )
        if kept.state == "done" and not noted:
            self.state.notes.put(OPENED, self.epoch, b"")

    def _current(self) -> _EpochCollector:
        """Return the epoch; fetch its notice from the randomness server the first time."""
        if self._kept is None:
            if not self._fetching.acquire(blocking=False):
                raise Busy("This collector is fetching the randomness server's notice. Try again.")
            try:
                if self._kept is None:
                    notice = self._fetch_notice()
                    epoch = self._open_epoch(notice)
                    self.remember(notice)
                    self._kept = epoch
            finally:
                self._fetching.release()
        return self._kept

    def may_open(self, epoch: str, notice: bytes) -> bool:
        """Return True if an earlier epoch has reports, which were opened or could be."""
        with closing(_report_store(notice, self)) as kept:
            return bool(kept.read()) or self.state.notes.get(OPENED, epoch) is not None

    def finished(self, epoch: str) -> bool:
        """Return True if the classes of an earlier epoch were opened, and their tags published."""
        return self._load_tags(epoch) is not None

    def _load_tags(self, epoch: str) -> bytes | None:
        """Return the signed tags of an epoch's open classes, None until they were opened."""
        if self._kept is not None and epoch == self.epoch:
            return self._kept.public_tags
        notice = self.state.notes.get(SESSION, epoch)
        if notice is None:
            return None
        with closing(_report_store(notice, self)) as kept:
            return kept.find_note(_TAGS)

    def _open_tags(self, call: Call) -> bytes:
        """Return the signed tags of an epoch's open classes; they exist only if there is a coarser level."""
        if len(call.body) > _LONGEST_NAME:
            raise InputError(f"The name of an epoch must have at most {_LONGEST_NAME} bytes.")
        tags = self._load_tags(call.body.decode(errors="replace"))
        if tags is None:
            reason = "The classes of this epoch have not been opened, or there is no coarser level for them."
            raise QueryRefused([Refusal("not_opened", reason)])
        return tags

    def _fetch_notice(self) -> bytes:
        try:
            with peer_transport(self.settings, self.peers, timeout=_FETCH_SECONDS, retries=0) as http:
                return http.exchange(self.settings.randomness, self.epoch.encode(), place="notice")
        except PartyUnreachable:
            raise Busy(
                "The randomness server, whose notice is needed first, cannot be reached. Try again later."
            ) from None

    def _open_epoch(self, notice: bytes) -> _EpochCollector:
        decoded = Notice.decode(notice)
        decoded.verify(self._signer)
        if decoded.terms != self.terms:
            raise InputError(
                f"The k or the form in the notice of epoch {self.epoch!r} differs from this collector's "
                "settings: both servers need the same settings."
            )
        epoch = _EpochCollector(notice, self, self._signer, self.settings.most_reports)
        self._epoch_files.callback(epoch.close)
        return epoch

    def _notice(self, _call: Call) -> bytes:
        return ShownNotice.sign(self._current().notice, self.identity).encode()

    def _begin(self, call: Call) -> bytes:
        kept = self._current()
        kept.begin(call.body)
        return json.dumps({"state": kept.state}).encode()

    def _reports(self, call: Call) -> bytes:
        return json.dumps({"taken": self._current().take(call.body)}).encode()

    def _open(self, _given: dict[str, Any]) -> dict[str, Any]:
        """Open the classes, publish their tags if there are coarser levels, and return a summary."""
        kept = self._current()
        opening, guarantee = kept.open_classes(self.form.readable), _service_guarantee(self.terms, self.form)
        self._check_opened(kept)
        level, levels = self.settings.epoch.level, 1 if self.levels is None else self.levels.levels
        if level:
            guarantee = replace(
                guarantee, disclosures=(*guarantee.disclosures, _level_disclosure(self.terms, self.form))
            )
        if levels > 1:
            tags = kept.opened_tags(self.form.readable)
            kept.publish(OpenTags.sign(Notice.decode(kept.notice).digest, tags, self.identity).encode())
        by_level = {"level": level, "coarser": level + 1 < levels}
        return {**summary_of(opening, kept.evaluations or 0), **by_level, "guarantee": guarantee.to_dict()}

    def _result(self, given: dict[str, Any]) -> dict[str, Any]:
        kept = self._current()
        if kept.state != "done":
            raise QueryRefused([Refusal("not_opened", "The classes of this epoch have not been opened yet.")])
        return {**self._open(given), "opening": pack_opening(kept.open_classes(self.form.readable))}

    def _status(self, _given: dict[str, Any]) -> dict[str, Any]:
        kept = self._current()
        return {
            "epoch": self.epoch,
            "state": kept.state,
            "reports": kept.report_count,
            "evaluations": kept.evaluations,
            "notice": digest_of(kept.notice),
        }


def _level_disclosure(terms: ThresholdTerms, form: Form) -> Disclosure:
    """Return what a coarser level reveals, in addition to its open rows, about people in closed classes."""
    kind = f"that fewer than {terms.k} of those still closed agreed with open rows at finer levels,"
    return Disclosure(COLLECTOR, kind, form.quasi, None)


def _service_guarantee(terms: ThresholdTerms, form: Form) -> Guarantee:
    """Return the guarantee of the protocol, including the office and the network."""
    protocol = production_guarantee(terms, form)
    everything = (*form.quasi, *form.sensitive)
    enrolled = Disclosure(ENROLMENT_OFFICE, "who is enrolled, and nothing", everything, NOTHING)
    return replace(
        protocol,
        disclosures=(*protocol.disclosures, enrolled),
        assumptions=(
            *protocol.assumptions,
            (
                "the enrolment office verifies who asks, gives nobody a second credential, uses none itself "
                "and does not collude with the collector: with c credentials they could open c classes of "
                f"fewer than {terms.k}"
            ),
            (
                "nobody reports twice: a member of a class can open it by sending "
                f"{terms.k} reports alone; more reports than evaluations show that this happened, not where"
            ),
            (
                "nobody keeps the network addresses that reports came from: the collector's service stores "
                "none, but its machine and every proxy before it sees them"
            ),
        ),
        adversaries={**protocol.adversaries, ENROLMENT_OFFICE: "semi-honest"},
        excluded_coalitions=(*protocol.excluded_coalitions, (COLLECTOR, ENROLMENT_OFFICE)),
    )
