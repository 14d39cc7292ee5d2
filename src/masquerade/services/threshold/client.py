"""Client of a person: one request to the randomness server, later one report to the collector.

First, a blinded element leaves this machine; it reveals nothing. The report leaves only after the randomness
server has signed a statement that the key of the epoch is destroyed. Both servers see the network address of
each message, unless a proxy hides it.
"""

from __future__ import annotations

import math
import secrets as randomness
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from masquerade.core.errors import FileError, InputError, QueryRefused, Refusal, RoundAborted
from masquerade.core.record_gamma import describe_gamma
from masquerade.core.schema import Field
from masquerade.core.util.json_text import parse_json, read_text
from masquerade.crypto import symmetric
from masquerade.crypto.errors import SealBroken
from masquerade.frames.file_reader import open_batches
from masquerade.frames.label_codes import encode
from masquerade.protocols.k_anonymity.threshold.messages import Closing, Credential, Notice, ReportLayout
from masquerade.protocols.k_anonymity.threshold.roles import Client, keep_tag, tag_in
from masquerade.protocols.k_anonymity.threshold.row_schema import Form
from masquerade.protocols.people.roster import PERSON_NAME
from masquerade.services.common.client import HttpTransport
from masquerade.services.common.peers import Peer, TlsFiles
from masquerade.services.threshold.enrolment_office import ENDING, read_credential
from masquerade.services.threshold.messages import ClientRecord, OpenTags, RequestBatch, ShownNotice, mark_of
from masquerade.services.threshold.settings import CollectionSettings, load_form

MOST_JSON: Final = 1 << 20
PERSON: Final = "person"
RANDOMNESS: Final = "randomness server"
COLLECTOR: Final = "collector"
AGREEMENT: Final = "whoever has the rows of two epochs may have mine as their difference"
NOT_YET: Final = frozenset({"epoch_open", "key_lost"})  # refusals until the operator has closed the epoch


class Collection(HttpTransport):
    """A collection as a person sees it: its form and terms, and connections to its two servers.

    Use one object per person, unless the people share a machine: messages over one connection reveal to the
    collector that they have the same sender.
    """

    def __init__(
        self, settings: CollectionSettings, *, level: int = 0, timeout: float = 30.0, retries: int = 5
    ) -> None:
        self.form = load_form(settings.form, level)
        self.terms, self.repeated = settings.epoch.terms(self.form, level), settings.epoch.repeated
        self.identities = {
            RANDOMNESS: bytes.fromhex(settings.randomness.identity),
            COLLECTOR: bytes.fromhex(settings.collector.identity),
        }
        self._notice: bytes | None = None
        self._open_tags: frozenset[bytes] | None = None
        digest = settings.notice if level == 0 else None  # each level has a different notice
        self._published = None if digest is None else bytes.fromhex(digest)
        servers = ((RANDOMNESS, settings.randomness), (COLLECTOR, settings.collector))
        peers = [Peer(name, server.url, server.fingerprints) for name, server in servers]
        tls = TlsFiles(authority=settings.authority)
        super().__init__("a person", peers, tls=tls, timeout=timeout, retries=retries)

    def notice(self) -> bytes:
        """Return the epoch's notice, after checking that all people get the same notice.

        The notice is compared with the published digest, and with the notice that the collector received.
        """
        if self._notice is not None:
            return self._notice
        notice = self.exchange(RANDOMNESS, self.terms.epoch.encode(), place="notice")
        decoded = Notice.decode(notice)
        decoded.verify(self.identities[RANDOMNESS])
        if decoded.terms != self.terms:
            raise InputError(
                "The k or the form in the randomness server's notice differs from yours: nothing was sent."
            )
        if self._published is not None and not symmetric.same(decoded.digest, self._published):
            raise SealBroken(
                "The notice differs from the published one: the server may try to distinguish people."
            )
        shown = ShownNotice.decode(self.exchange(COLLECTOR, b"", place="notice"))
        shown.verify(self.identities[COLLECTOR])
        if Notice.decode(shown.notice).terms.epoch != self.terms.epoch:
            reason = f"The collector is on a different epoch at this moment, not on {self.terms.epoch!r}."
            raise QueryRefused([Refusal("unknown_epoch", reason)])
        if not symmetric.same(shown.notice, notice):
            raise SealBroken(
                "The collector received a different notice: the randomness server may try to distinguish "
                "people."
            )
        self._notice = notice
        return notice

    def closing(self, notice: bytes) -> bytes | None:
        """Return the server's signed statement that the key of a notice is destroyed, None until then."""
        try:
            closing = self.exchange(RANDOMNESS, self.terms.epoch.encode(), place="closing")
        except QueryRefused as refused:
            if {refusal.code for refusal in refused.refusals} <= NOT_YET:
                return None
            raise
        decoded = Closing.decode(closing)
        decoded.verify(self.identities[RANDOMNESS])
        if decoded.notice != Notice.decode(notice).digest:
            raise SealBroken("The closing belongs to another epoch or key: nothing was reported.")
        return closing

    def fetch_open_tags(self, notice: bytes) -> frozenset[bytes] | None:
        """Return the tags of open classes, signed by the collector; None until it has opened classes."""
        if self._open_tags is not None:
            return self._open_tags
        try:
            reply = self.exchange(COLLECTOR, self.terms.epoch.encode(), place="opened")
        except QueryRefused as refused:
            if {refusal.code for refusal in refused.refusals} == {"not_opened"}:
                return None
            raise
        decoded = OpenTags.decode(reply)
        decoded.verify(self.identities[COLLECTOR])
        if decoded.notice != Notice.decode(notice).digest:
            raise SealBroken("The open classes belong to another epoch or key.")
        self._open_tags = decoded.split_tags()
        return self._open_tags


def disclosure(settings: CollectionSettings) -> str:
    """Describe in plain words what a row reveals once its class has opened; rows are not disguised."""
    form, k = load_form(settings.form), settings.epoch.k
    quasi, sensitive = ", ".join(form.quasi), ", ".join(form.sensitive)
    seen = f"The collector sees {quasi} of everyone. " if settings.epoch.shown else ""
    return (
        f"In clear: {seen}If at least {k} people share {quasi}, the collector sees {sensitive} of each of "
        f"them, without names. {describe_gamma(math.inf)}"
    )


class Submission:
    """One person's row in one epoch: `ask` first, then `deliver` once the epoch is closed.

    Both can be repeated safely. A person does not know who else participates, and cannot tell whether the
    people of two epochs differ by only one person. People who participate again must therefore agree to this
    risk explicitly.

    Parameters
    ----------
    row : mapping of str to object
        A label for each variable of the form.
    credential : bytes
        The person's credential.
    to : Collection
        The collection.
    record : str or Path
        File for the state of this person in this epoch. It is written before anything is sent, so that a
        repeated run sends the same request and the same report.
    words : str, optional
        The text of `AGREEMENT`, required if the collection is repeated or the person took part in another
        epoch.
    another : bool
        True if a record of another epoch exists.

    Raises
    ------
    InputError
        If the record belongs to another collection, epoch or row, or the agreement is missing.
    """

    def __init__(
        self,
        row: Mapping[str, object],
        credential: bytes,
        to: Collection,
        record: str | Path,
        *,
        words: str | None = None,
        another: bool = False,
    ) -> None:
        self._to, self._path = to, Path(record)
        self._credential = Credential.decode(credential)
        self._quasi, self._sensitive = to.form.fill(row)
        self._mark = mark_of(self._credential, self._quasi, self._sensitive)
        self._record = ClientRecord.load(self._path)
        if self._record is not None:
            if Notice.decode(self._record.notice).terms != to.terms:
                raise InputError(f"{self._path}: is the record of another collection or epoch.")
            if not self._record.delivered and not symmetric.same(self._record.mark, self._mark):
                raise InputError(
                    f"{self._path}: another row was started with this credential; an epoch accepts one row "
                    "per person."
                )
        elif (to.repeated or another) and words != AGREEMENT:
            raise InputError(
                "This collection has several epochs, and the rows of two epochs differ by the rows of people "
                "who joined or left. Nothing was sent. To agree to that, repeat this sentence (--agree): "
                f"{AGREEMENT!r}."
            )

    def ask(self) -> None:
        """Request the evaluation of the blinded quasi-identifier, and store the report made from it.

        Raises
        ------
        QueryRefused
            If the server refuses. ``already_spent`` means that the credential was used without this record:
            by someone else, or before the record was lost.
        """
        if self._record is None:
            notice = self._to.notice()
            client = self._client(notice)
            request = client.request(self._quasi)
            self._save(ClientRecord(notice, self._mark, client.stored_state()))
        elif self._record.report:
            return
        else:
            client = self._client(self._record.notice)
            request = client.resume(self._quasi, self._record.kept)
        reply = self._to.exchange(RANDOMNESS, RequestBatch((request,)).encode(), place="evaluate")
        replies = RequestBatch.decode(reply).items
        if len(replies) != 1:
            reason = "The randomness server did not send exactly one reply to the request."
            raise RoundAborted(reason, spent=True, culprits=(RANDOMNESS,))
        report = client.report(replies[0], self._sensitive)
        assert self._record is not None  # noqa: S101  (saved above)
        self._save(replace(self._record, kept=b"", report=report))

    def deliver(self) -> bool:
        """Send the report if the epoch is closed; return True if the collector has it."""
        record = self._record
        if record is None or not record.report:
            raise InputError("There is no report before the evaluation: ask first.")
        # only the tag is kept: class members could open the report, and the collector could recognise it
        left = keep_tag(ReportLayout.of(Notice.decode(record.notice)), record.report)
        if record.delivered:
            if record.report != left:  # stored by an earlier version
                self._save(replace(record, report=left))
            return True
        closing = self._to.closing(record.notice)
        if closing is None:
            return False
        try:
            self._to.exchange(COLLECTOR, record.report, place="reports")
        except QueryRefused as refused:
            if {refusal.code for refusal in refused.refusals} != {"epoch_open"}:
                raise
            self._to.exchange(COLLECTOR, closing, place="begin")
            self._to.exchange(COLLECTOR, record.report, place="reports")
        self._save(replace(record, delivered=True, mark=bytes(len(record.mark)), report=left))
        return True

    def is_open(self) -> bool | None:
        """Return True if this person's class has opened; None until the collector has opened classes.

        If the report was not delivered before classes were opened, its class counts as closed, and the report
        is never sent.
        """
        record = self._record
        if record is None or not record.report:
            raise InputError("There is no class before the evaluation: ask first.")
        tags = self._to.fetch_open_tags(record.notice)
        if tags is None:
            return None
        tag = tag_in(ReportLayout.of(Notice.decode(record.notice)), record.report)
        return record.delivered and tag in tags

    def _client(self, notice: bytes) -> Client:
        # the notice was compared with the published digest when it was fetched
        identity, digest = self._to.identities[RANDOMNESS], Notice.decode(notice).digest
        return Client(self._credential.encode(), notice, identity=identity, published=digest)

    def _save(self, record: ClientRecord) -> None:
        record.save(self._path)
        self._record = record


def deliver_all(submissions: Sequence[Submission], wait: float = 0.0, pause: float = 2.0) -> int:
    """Send reports in random order; wait at most `wait` seconds for the epoch's closing.

    Return the number of reports that still wait: call this again later, with the same records.
    """
    left = list(submissions)
    randomness.SystemRandom().shuffle(left)  # the order of the file would reveal whose report each one is
    until = time.monotonic() + wait
    while left := [one for one in left if not one.deliver()]:
        if time.monotonic() >= until:
            break
        time.sleep(min(pause, max(0.0, until - time.monotonic())))
    return len(left)


def read_row(path: str | Path) -> dict[str, Any]:
    """Read a row from a JSON file: an object of labels by variable."""
    place = Path(path)
    try:
        row = parse_json(read_text(place, most=MOST_JSON))
    except FileError:
        raise
    except InputError:
        row = None
    if not isinstance(row, dict):
        raise FileError(f"{place}: must be one JSON object with a label for each variable of the form.")
    return row


def read_rows(path: str | Path, form: Form, key: str = PERSON) -> list[tuple[str, dict[str, Any]]]:
    """Read a table (CSV, Parquet, Arrow); return each row with the person's name from column `key`."""
    rows: list[tuple[str, dict[str, Any]]] = []
    with open_batches(str(path), [key, *form.schema]) as batches:
        for batch in batches:
            people = [str(value) for value in batch.column(key).to_pylist()]
            columns = {
                name: encode(batch.column(name), Field(form.schema[name]), text=batches.text).tolist()
                for name in form.schema
            }
            for i, person in enumerate(people):
                labels = {name: form.schema[name].categories[codes[i]] for name, codes in columns.items()}
                rows.append((person, labels))
    if len({person for person, _ in rows}) < len(rows):
        raise InputError(f"{path}: a person has several rows; each person reports one.")
    return rows


def read_submissions(
    rows: Path, credential: Path, form: Form, key: str = PERSON
) -> list[tuple[str, dict[str, Any], bytes]]:
    """Return people with their rows and credentials; all files are read before anything is sent.

    If `rows` is a JSON file with the row of one person, `credential` is a file. If `rows` is a table,
    `credential` is the folder with the credentials of all people.
    """
    if rows.suffix.lower() == ".json":
        return [(credential.stem, read_row(rows), read_credential(credential))]
    people = read_rows(rows, form, key)
    if not credential.is_dir():
        raise InputError(f"{credential}: for a table, give the folder with all people's credentials.")
    if not all(PERSON_NAME.fullmatch(person) for person, _ in people):
        raise InputError(f"{rows}: column {key!r} contains a name that the office does not allow.")
    return [(person, row, read_credential(credential / f"{person}{ENDING}")) for person, row in people]
