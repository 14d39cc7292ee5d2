"""The collector as a service: it takes reports once the epoch's key is destroyed, and opens once.

Reports, and the mark that they were opened, lie in the part of the state that no backup brings back: restored
to a time before the opening, a collector would open again, with one report more, and the difference would be
one person's row.
"""

from __future__ import annotations

import hashlib
import json
import threading
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any

from masquerade.core.errors import InputError, QueryRefused, Refusal
from masquerade.core.guarantee import Disclosure, Guarantee
from masquerade.protocols.k_anonymity.threshold.class_opening import Opening, Readable
from masquerade.protocols.k_anonymity.threshold.messages import Closing, Layout, Notice, Terms
from masquerade.protocols.k_anonymity.threshold.report_store import ReportStore
from masquerade.protocols.k_anonymity.threshold.roles import Collector
from masquerade.protocols.k_anonymity.threshold.row_schema import (
    COLLECTOR,
    NOTHING,
    Form,
    production_guarantee,
)
from masquerade.services.common.client import peer_transport
from masquerade.services.common.jobs import Call
from masquerade.services.common.problems import Busy, PartyUnreachable
from masquerade.services.common.state import SESSION
from masquerade.services.threshold.messages import OpenTags, ShownNotice
from masquerade.services.threshold.results import packed, summary_of
from masquerade.services.threshold.server import CollectServer, digest_of
from masquerade.services.threshold.settings import CollectorSettings

_MARK_SIZE = 16
_FETCH_SECONDS = 5.0
_LONGEST_NAME = 300
_TAGS = "tags"  # a note
OPENED = "opened"  # notes of the state: epochs, beside the reports themselves
OFFICE = "enrolment office"


def _reports(notice: bytes, server: CollectServer) -> ReportStore:
    """Return the store of the reports of an epoch."""
    folder = server.once / f"epoch-{digest_of(notice)[:16]}"
    return ReportStore.in_folder(folder, Layout.of(Notice.decode(notice)).size)


class _EpochCollector(Collector):
    """The collector of one epoch; a report that came before is not taken twice, so that people may retry."""

    def __init__(self, notice: bytes, server: CollectServer, identity: bytes, most: int) -> None:
        store = _reports(notice, server)
        super().__init__(notice, identity=identity, k=server.terms.k, store=store)
        self.notice, self._most = notice, most
        self._seen = set(self._marked(store.read()))
        self._opening: Opening | None = None

    def take(self, reports: bytes) -> int:
        """Keep a run of reports, and return how many of them are safe now."""
        marked = self._marked(reports)
        with self._lock:
            new = {mark: one for mark, one in marked.items() if mark not in self._seen}
            if len(self._seen) + len(new) > self._most:
                raise QueryRefused(
                    [Refusal("too_many", "This collector has as many reports as it may take.")]
                )
            if new or not reports:
                super().take(b"".join(new.values()))
                self._seen.update(new)
        return len(reports) // self.layout.size

    def open_classes(self, readable: Readable | None = None) -> Opening:
        """Return the opening; asked again, the same one."""
        with self._lock:
            if self._opening is None:
                self._opening = super().open_classes(readable)
            return self._opening

    @property
    def published(self) -> bytes | None:
        """Return the signed tags of open classes, where people may report again, coarser."""
        return self._store.noted(_TAGS)

    def publish(self, tags: bytes) -> None:
        """Keep what anybody may be told of open classes."""
        if self.published is None:
            self._store.note(_TAGS, tags)

    def close(self) -> None:
        """Let go of the file."""
        self._store.close()

    @property
    def received(self) -> int:
        """Return how many reports there are."""
        return len(self._seen)

    @property
    def evaluations(self) -> int | None:
        """Return how many people the randomness server has served, once it has closed the epoch."""
        found = self._store.noted("closing")
        return None if found is None else Closing.decode(found).evaluations

    def _marked(self, run: bytes) -> dict[bytes, bytes]:
        """Return reports by a mark that tells them apart."""
        size = self.layout.size
        reports = [run[at : at + size] for at in range(0, len(run), size)]
        return {hashlib.sha256(one).digest()[:_MARK_SIZE]: one for one in reports}


class CollectorService(CollectServer):
    """Places for anybody: notice, begin, reports. For the operator: open, result, status."""

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
        """Go on with an epoch that has begun."""
        super().begin(files)
        self._epoch_files = files.enter_context(ExitStack())
        known = self.state.notes.get(SESSION, self.epoch)  # its notice, if it has begun
        if known is None:
            self.check_only()
        else:
            self._kept = self._made(known)
            self._check_opened(self._kept)

    def _check_opened(self, kept: _EpochCollector) -> None:
        """Raise `InputError` if other reports than these were opened before; else note that these are."""
        noted = self.state.notes.get(OPENED, self.epoch) is not None
        if noted and kept.state != "done":
            raise InputError(
                f"The classes of epoch {self.epoch!r} were opened here before, and the reports in "
                f"{self.once} are gone or older: opened again with others, the difference would be single "
                "people's rows. The epoch is over. Name a new one in the settings of both servers."
            )
        if kept.state == "done" and not noted:
            self.state.notes.put(OPENED, self.epoch, b"")

    def _current(self) -> _EpochCollector:
        """Return the epoch, after getting its notice from the randomness server the first time."""
        if self._kept is None:
            if not self._fetching.acquire(blocking=False):
                raise Busy("This collector is asking the randomness server for its notice. Ask again.")
            try:
                if self._kept is None:
                    notice = self._fetched()
                    made = self._made(notice)
                    self.remember(notice)
                    self._kept = made
            finally:
                self._fetching.release()
        return self._kept

    def may_open(self, epoch: str, notice: bytes) -> bool:
        """Tell whether an earlier epoch has reports: they are opened, or could be."""
        with closing(_reports(notice, self)) as kept:
            return bool(kept.read()) or self.state.notes.get(OPENED, epoch) is not None

    def finished(self, epoch: str) -> bool:
        """Tell whether the classes of an earlier epoch were opened, and their tags published."""
        return self._published(epoch) is not None

    def _published(self, epoch: str) -> bytes | None:
        """Return the tags of an epoch's open classes, signed, once they were opened."""
        if self._kept is not None and epoch == self.epoch:
            return self._kept.published
        notice = self.state.notes.get(SESSION, epoch)
        if notice is None:
            return None
        with closing(_reports(notice, self)) as kept:
            return kept.noted(_TAGS)

    def _open_tags(self, call: Call) -> bytes:
        """Tell anybody which classes of an epoch opened, where there is a coarser level for the others."""
        if len(call.body) > _LONGEST_NAME:
            raise InputError(f"The name of an epoch has at most {_LONGEST_NAME} bytes.")
        tags = self._published(call.body.decode(errors="replace"))
        if tags is None:
            reason = "The classes of this epoch have not been opened, or there is no coarser level for them."
            raise QueryRefused([Refusal("not_opened", reason)])
        return tags

    def _fetched(self) -> bytes:
        try:
            with peer_transport(self.settings, self.peers, timeout=_FETCH_SECONDS, retries=0) as http:
                return http.exchange(self.settings.randomness, self.epoch.encode(), place="notice")
        except PartyUnreachable:
            raise Busy(
                "The randomness server, whose notice is needed first, cannot be reached. Ask again."
            ) from None

    def _made(self, notice: bytes) -> _EpochCollector:
        said = Notice.decode(notice)
        said.verify(self._signer)
        if said.terms != self.terms:
            raise InputError(
                f"The notice of epoch {self.epoch!r} is for another k or form than this collector's "
                "settings: the two servers must be given the same ones."
            )
        made = _EpochCollector(notice, self, self._signer, self.settings.most_reports)
        self._epoch_files.callback(made.close)
        return made

    def _notice(self, _call: Call) -> bytes:
        return ShownNotice.signed(self._current().notice, self.identity).encode()

    def _begin(self, call: Call) -> bytes:
        kept = self._current()
        kept.begin(call.body)
        return json.dumps({"state": kept.state}).encode()

    def _reports(self, call: Call) -> bytes:
        return json.dumps({"taken": self._current().take(call.body)}).encode()

    def _open(self, _given: dict[str, Any]) -> dict[str, Any]:
        kept = self._current()
        opening, guarantee = kept.open_classes(self.form.readable), _service_guarantee(self.terms, self.form)
        self._check_opened(kept)
        level, levels = self.settings.epoch.level, 1 if self.levels is None else self.levels.levels
        if level:
            guarantee = replace(
                guarantee, disclosures=(*guarantee.disclosures, _finer(self.terms, self.form))
            )
        if levels > 1:
            tags = kept.opened_tags(self.form.readable)
            kept.publish(OpenTags.signed(Notice.decode(kept.notice).digest, tags, self.identity).encode())
        told = {"level": level, "coarser": level + 1 < levels}
        return {**summary_of(opening, kept.evaluations or 0), **told, "guarantee": guarantee.to_dict()}

    def _result(self, given: dict[str, Any]) -> dict[str, Any]:
        kept = self._current()
        if kept.state != "done":
            raise QueryRefused([Refusal("not_opened", "The classes of this epoch have not been opened yet.")])
        return {**self._open(given), "opening": packed(kept.open_classes(self.form.readable))}

    def _status(self, _given: dict[str, Any]) -> dict[str, Any]:
        kept = self._current()
        return {
            "epoch": self.epoch,
            "state": kept.state,
            "reports": kept.received,
            "evaluations": kept.evaluations,
            "notice": digest_of(kept.notice),
        }


def _finer(terms: Terms, form: Form) -> Disclosure:
    """Return what a level tells beyond its rows."""
    kind = f"that fewer than {terms.k} of those still closed agreed with open rows at finer levels,"
    return Disclosure(COLLECTOR, kind, form.quasi, None)


def _service_guarantee(terms: Terms, form: Form) -> Guarantee:
    """Return the guarantee of the protocol with what the office and the network add."""
    protocol = production_guarantee(terms, form)
    everything = (*form.quasi, *form.sensitive)
    enrolled = Disclosure(OFFICE, "who is enrolled, and nothing", everything, NOTHING)
    return replace(
        protocol,
        disclosures=(*protocol.disclosures, enrolled),
        assumptions=(
            *protocol.assumptions,
            (
                "the enrolment office makes sure who asks, gives nobody a second credential, uses none "
                "itself and does not collude with the collector: with c credentials they open c classes of "
                f"fewer than {terms.k}"
            ),
            (
                "nobody reports twice: whoever takes part in a class makes it open by sending "
                f"{terms.k} reports of its own; more reports than evaluations show that somebody did, "
                "not where"
            ),
            (
                "nobody keeps the network addresses that reports came from: the collector's service stores "
                "none, but its machine and every proxy before it sees them"
            ),
        ),
        adversaries={**protocol.adversaries, OFFICE: "semi-honest"},
        excluded_coalitions=(*protocol.excluded_coalitions, (COLLECTOR, OFFICE)),
    )
