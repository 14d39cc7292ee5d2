"""A person's side: one request to the randomness server, and one report to the collector after the closing.

What leaves this machine, and when: a blinded element, from which nobody learns anything; then, only after the
randomness server has signed that the key of the epoch is destroyed, the report. Both servers see the network
address that a message comes from, unless something in between hides it.
"""

from __future__ import annotations

import secrets as randomness
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from masquerade.core.errors import FileError, InputError, QueryRefused, Refusal, RoundAborted
from masquerade.core.schema import Field
from masquerade.core.util.json_text import parse_json, read_text
from masquerade.crypto import symmetric
from masquerade.crypto.errors import SealBroken
from masquerade.frames.file_reader import open_batches
from masquerade.frames.label_codes import encode
from masquerade.protocols.k_anonymity.threshold.messages import Closing, Credential, Layout, Notice
from masquerade.protocols.k_anonymity.threshold.roles import Client, tag_in
from masquerade.protocols.k_anonymity.threshold.row_schema import Form
from masquerade.services.common.client import HttpTransport
from masquerade.services.common.peers import Peer, TlsFiles
from masquerade.services.threshold.enrolment_office import ENDING, PERSON_NAME, read_credential
from masquerade.services.threshold.messages import Batch, ClientRecord, OpenTags, ShownNotice, mark_of
from masquerade.services.threshold.settings import CollectionSettings, load_form

MOST_JSON: Final = 1 << 20
PERSON: Final = "person"
RANDOMNESS: Final = "randomness server"
COLLECTOR: Final = "collector"
AGREEMENT: Final = "whoever has the rows of two epochs may have mine as their difference"
NOT_YET: Final = frozenset({"epoch_open", "key_lost"})  # of a closing: the operator has not closed the epoch


class Collection(HttpTransport):
    """A collection as a person sees it: its form and terms, and connections to its two servers.

    Each person who shares nothing with others uses a collection of its own: one connection tells the
    collector that what comes over it has one sender.
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
        known_digest = settings.notice if level == 0 else None  # each level has a notice of its own
        self._published = None if known_digest is None else bytes.fromhex(known_digest)
        known = ((RANDOMNESS, settings.randomness), (COLLECTOR, settings.collector))
        peers = [Peer(name, server.url, server.fingerprints) for name, server in known]
        tls = TlsFiles(authority=settings.authority)
        super().__init__("a person", peers, tls=tls, timeout=timeout, retries=retries)

    def notice(self) -> bytes:
        """Return the epoch's notice, after making sure that it is the one that everybody is shown.

        It is compared with the digest that was published, and with what the collector was shown.
        """
        if self._notice is not None:
            return self._notice
        notice = self.exchange(RANDOMNESS, self.terms.epoch.encode(), place="notice")
        said = Notice.decode(notice)
        said.verify(self.identities[RANDOMNESS])
        if said.terms != self.terms:
            raise InputError(
                "The randomness server's notice is for another k or form than yours: nothing was asked."
            )
        if self._published is not None and not symmetric.same(said.digest, self._published):
            raise SealBroken(
                "The notice is not the one that was published: the server may tell people apart."
            )
        shown = ShownNotice.decode(self.exchange(COLLECTOR, b"", place="notice"))
        shown.verify(self.identities[COLLECTOR])
        if Notice.decode(shown.notice).terms.epoch != self.terms.epoch:
            reason = f"The collector collects another epoch than {self.terms.epoch!r} at this moment."
            raise QueryRefused([Refusal("unknown_epoch", reason)])
        if not symmetric.same(shown.notice, notice):
            raise SealBroken(
                "The collector was shown another notice: the randomness server may tell people apart."
            )
        self._notice = notice
        return notice

    def closing(self, notice: bytes) -> bytes | None:
        """Return the server's signed word that the key of a notice is destroyed, None until it is."""
        try:
            closing = self.exchange(RANDOMNESS, self.terms.epoch.encode(), place="closing")
        except QueryRefused as refused:
            if {refusal.code for refusal in refused.refusals} <= NOT_YET:
                return None
            raise
        said = Closing.decode(closing)
        said.verify(self.identities[RANDOMNESS])
        if said.notice != Notice.decode(notice).digest:
            raise SealBroken("The closing is of another epoch, or of another key: nothing was reported.")
        return closing

    def opened(self, notice: bytes) -> frozenset[bytes] | None:
        """Return the tags of the classes that opened, as the collector signed them; None until they have."""
        if self._open_tags is not None:
            return self._open_tags
        try:
            reply = self.exchange(COLLECTOR, self.terms.epoch.encode(), place="opened")
        except QueryRefused as refused:
            if {refusal.code for refusal in refused.refusals} == {"not_opened"}:
                return None
            raise
        said = OpenTags.decode(reply)
        said.verify(self.identities[COLLECTOR])
        if said.notice != Notice.decode(notice).digest:
            raise SealBroken("The open classes are of another epoch, or of another key.")
        self._open_tags = said.listed
        return self._open_tags


class Submission:
    """One person's row in one epoch: `ask` first, `deliver` once it is closed; both may be repeated.

    `record` is a file of this person and epoch alone. It is written before anything leaves, so that whatever
    happens, the same request and the same report are sent again and no others.

    Nobody knows who else takes part, so nobody can see whether two epochs differ by one person alone. Whoever
    is asked again (the collection repeats, or there is a record of `another` epoch) agrees in the `words` of
    `AGREEMENT`, or nothing leaves.
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
            if not symmetric.same(self._record.mark, self._mark):
                raise InputError(
                    f"{self._path}: another row was begun with this credential; an epoch takes one a person."
                )
        elif (to.repeated or another) and words != AGREEMENT:
            raise InputError(
                "This collection has several epochs, whose rows differ by those of whoever came or left. "
                f"Nothing was asked; who agrees to that says so in these words (--agree): {AGREEMENT!r}."
            )

    def ask(self) -> None:
        """Have the blinded quasi-identifier evaluated, and keep the report that follows.

        Raises `QueryRefused` where the server refuses: ``already_spent`` means that this credential was used
        without this record, by somebody else or before the record was lost.
        """
        if self._record is None:
            notice = self._to.notice()
            client = self._client(notice)
            request = client.request(self._quasi)
            self._save(ClientRecord(notice, self._mark, client.kept()))
        elif self._record.report:
            return
        else:
            client = self._client(self._record.notice)
            request = client.resume(self._quasi, self._record.kept)
        reply = self._to.exchange(RANDOMNESS, Batch((request,)).encode(), place="evaluate")
        replies = Batch.decode(reply).items
        if len(replies) != 1:
            reason = "The randomness server did not give one reply to one request."
            raise RoundAborted(reason, spent=True, culprits=(RANDOMNESS,))
        report = client.report(replies[0], self._sensitive)
        assert self._record is not None  # noqa: S101  (saved above)
        self._save(replace(self._record, kept=b"", report=report))

    def deliver(self) -> bool:
        """Send the report if the epoch is closed; return whether the collector has it."""
        record = self._record
        if record is None or not record.report:
            raise InputError("A report comes after the evaluation: ask first.")
        if record.delivered:
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
        self._save(replace(record, delivered=True))
        return True

    def is_open(self) -> bool | None:
        """Tell whether the own class has opened; None until the collector has opened classes.

        A report that came too late for that is closed as others are, and never sent.
        """
        record = self._record
        if record is None or not record.report:
            raise InputError("Whether a row is open shows after its report was made: ask first.")
        tags = self._to.opened(record.notice)
        if tags is None:
            return None
        own = tag_in(Layout.of(Notice.decode(record.notice)), record.report)
        return record.delivered and own in tags

    def _client(self, notice: bytes) -> Client:
        identity, compared = self._to.identities[RANDOMNESS], Notice.decode(notice).digest  # when it was got
        return Client(self._credential.encode(), notice, identity=identity, published=compared)

    def _save(self, record: ClientRecord) -> None:
        record.save(self._path)
        self._record = record


def deliver_all(submissions: Sequence[Submission], wait: float = 0.0, pause: float = 2.0) -> int:
    """Send the reports of people who asked, in random order; wait so many seconds for the epoch's closing.

    Return how many still wait: call again later, with the same records.
    """
    left = list(submissions)
    randomness.SystemRandom().shuffle(left)  # their order would tell whose report is whose
    until = time.monotonic() + wait
    while left := [one for one in left if not one.deliver()]:
        if time.monotonic() >= until:
            break
        time.sleep(min(pause, max(0.0, until - time.monotonic())))
    return len(left)


def read_row(path: str | Path) -> dict[str, Any]:
    """Return the row in a JSON file: an object of labels by variable."""
    place = Path(path)
    try:
        row = parse_json(read_text(place, most=MOST_JSON))
    except FileError:
        raise
    except InputError:
        row = None
    if not isinstance(row, dict):
        raise FileError(f"{place}: must be one JSON object, a label for each variable of the form.")
    return row


def read_rows(path: str | Path, form: Form, key: str = PERSON) -> list[tuple[str, dict[str, Any]]]:
    """Return the rows of a table (CSV, Parquet, Arrow) with the person that each is of."""
    found: list[tuple[str, dict[str, Any]]] = []
    with open_batches(str(path), [key, *form.schema]) as batches:
        for batch in batches:
            people = [str(value) for value in batch.column(key).to_pylist()]
            columns = {
                name: encode(batch.column(name), Field(form.schema[name]), text=batches.text).tolist()
                for name in form.schema
            }
            for i, person in enumerate(people):
                labels = {name: form.schema[name].categories[codes[i]] for name, codes in columns.items()}
                found.append((person, labels))
    if len({person for person, _ in found}) < len(found):
        raise InputError(f"{path}: a person has several rows; each reports one.")
    return found


def to_submit(
    rows: Path, credential: Path, form: Form, key: str = PERSON
) -> list[tuple[str, dict[str, Any], bytes]]:
    """Return people with their rows and credentials, all of them read before anything is sent.

    A JSON file is the row of the one person whose credential it is; a table comes with a folder of them.
    """
    if rows.suffix.lower() == ".json":
        return [(credential.stem, read_row(rows), read_credential(credential))]
    found = read_rows(rows, form, key)
    if not credential.is_dir():
        raise InputError(f"{credential}: for a table, give the folder that holds everybody's credential.")
    if not all(PERSON_NAME.fullmatch(person) for person, _ in found):
        raise InputError(f"{rows}: column {key!r}: a name that the office could not have given.")
    return [(person, row, read_credential(credential / f"{person}{ENDING}")) for person, row in found]
