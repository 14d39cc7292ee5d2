"""Durable state of a node's sessions: text, epoch, linked records, and releases."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from masquerade.core.errors import QueryRefused, Refusal, RoundAborted
from masquerade.core.schema import Schema
from masquerade.core.tally import Tally
from masquerade.core.util.scratch import MEMORY_ONLY, Scratch
from masquerade.crypto.errors import KeySpent
from masquerade.protocols.wire.durable_store import Claims
from masquerade.services.common.receipts import Receipts
from masquerade.services.common.release_ledger import Release, SignedMark
from masquerade.services.common.restores import Restores
from masquerade.services.parties.kinds import Outflow
from masquerade.services.parties.linkage import Linkage
from masquerade.services.parties.person_limit import SessionTotal, limit_of, session_total
from masquerade.services.parties.session import SessionSpec
from masquerade.sources.control.answer_history import AnswerHistory
from masquerade.sources.control.inference_control import InferenceControl, Rules

if TYPE_CHECKING:
    from masquerade.services.parties.participant import SessionParticipant

SCOPE = "session"
# notes that must survive a restore from a backup, and therefore have scopes of their own
RELEASED, POOLS, ENDED, RECORDS, EPOCHS = "released", "pools", "ended", "records", "epochs"
PEOPLE, TEXTS = "people", "texts"
CANCELLED = "cancelled"
LINKED = "linked"  # below a session: linked records, in pieces
FOUND = "found"  # for each session, the epoch and the digest of the model that this node computed in it
RUNS = "computations"  # burnt keys: computations on shares that started, by session and run
OPENED = "openings"  # burnt keys: computations that opened a result, by session and number
MOST_EPOCHS, MOST_RUNS = 100, 100  # per session, since each further run gives an attacker another chance


class SessionStore:
    """Sessions in a node's state; changes are durable when a method returns."""

    def __init__(self, restores: Restores, receipts: Receipts) -> None:
        self._receipts = receipts
        self._restores, self._state, self._ledger = restores, restores.state, restores.ledger
        self._notes = self._state.notes
        # answers of all sessions, kept outside backups: restoring an older history would allow more answers
        self.answered = AnswerHistory(self._state.burnt)

    def _epoch(self, session: str) -> bytes | None:
        """Return the current epoch of a session, None if it has not started here."""
        data = self._notes.get(SCOPE, session)
        return None if data is None else bytes.fromhex(json.loads(data)["epoch"])

    def ledger_end(self) -> SignedMark:
        """Return the end of the release ledger, signed."""
        return self._ledger.end

    @property
    def ledger_line(self) -> int:
        """Return the number of the last line of the release ledger."""
        return self._ledger.last.number

    def total_with(self, part: SessionParticipant) -> tuple[SessionTotal, int]:
        """Return the privacy total of one person with this session, and the last ledger line included."""
        line, data, node = self.ledger_line, part.data, part.node
        whole = data.all_variables or data.policy
        stated = getattr(node.settings, "limit", None)
        total = session_total(
            (entry.release for entry in self._ledger.entries()),
            part.spec.kind.sends(part.spec, node.name, data.policy),
            whole,
            draw=part.draw,
            limit=limit_of(stated, whole),
        )
        return total, line

    def store_witness(self, convener: str, end: SignedMark, signature: str) -> None:
        """Store an end of the ledger signed by a convener; raise RoundAborted if the ledger lacks it."""
        self._receipts.take(convener, end, signature)

    def begin(self, spec: SessionSpec, epoch: bytes, records: str) -> None:
        """Store that a session is in an epoch, and delete the linkage of an earlier epoch.

        Parameters
        ----------
        spec : SessionSpec
            The session.
        epoch : bytes
            Epoch of the session.
        records : str
            Digest of this party's records.

        Raises
        ------
        RoundAborted
            If the records changed since the session started, or the session started too often. The difference
            of two results about nearly the same people would reveal values of the few people in only one of
            them.
        """
        name, before = spec.session, self._epoch(spec.session)
        earlier = self._notes.get(RECORDS, name)
        same_text = self._notes.get(TEXTS, name) in (None, spec.digest.encode())
        if earlier not in (None, records.encode()) and same_text:  # a different text may need other columns
            raise RoundAborted(
                f"The records here are not those that session {name!r} began with; different records need a "
                "session with a new name.",
                spent=False,
            )
        epochs = int(self._notes.get(EPOCHS, name) or 0)
        if epochs >= MOST_EPOCHS:
            reason = f"Session {name!r} has started {epochs} times here, which is the limit."
            raise RoundAborted(reason, spent=False)
        with self._state.transaction():
            if before not in (None, epoch):
                self.unlink(name)
            self._note(spec, epoch, ended=False)
            self._notes.put(RECORDS, name, records.encode())
            self._notes.put(TEXTS, name, spec.digest.encode())
            if before != epoch:
                self._notes.put(EPOCHS, name, str(epochs + 1).encode())
            if spec.kind.pooled:
                self._notes.put(POOLS, "/".join(sorted(spec.parties)), b"1")
        if before not in (None, epoch):
            self._state.replies.forget(f"sessions/{name}")

    def has_released_otherwise(self, spec: SessionSpec) -> bool:
        """Return True if this node has released data in a session of this name but with a different text."""
        text = self._notes.get(TEXTS, spec.session)
        return text not in (None, spec.digest.encode()) and any(
            entry.release.session == spec.session for entry in self._ledger.entries()
        )

    def ended_epoch(self, session: str) -> bytes | None:
        """Return the epoch in which a session ended here, None if it has not ended."""
        return self._notes.get(ENDED, session)

    def cancel(self, session: str) -> None:
        """Store that the operator has withdrawn from a session, and delete its pseudonyms."""
        with self._state.transaction():
            self._notes.put(CANCELLED, session, b"1")
            self.unlink(session)
        self._state.replies.forget(f"sessions/{session}")

    def cancelled(self, session: str) -> bool:
        """Return True if the operator has withdrawn from a session."""
        return self._notes.get(CANCELLED, session) is not None

    def unlink(self, session: str) -> None:
        """Delete the linkage of a session."""
        number = 0
        while self._notes.delete(SCOPE, f"{session}/{LINKED}{number or ''}"):
            number += 1

    def _linkage_pieces(self, session: str) -> Iterator[bytes]:
        """Yield the stored linkage, piece by piece."""
        number = 0
        while (piece := self._notes.get(SCOPE, f"{session}/{LINKED}{number or ''}")) is not None:
            yield piece
            number += 1

    def pools(self) -> list[frozenset[str]]:
        """Return the sets of parties of all pools that this party was in."""
        return [frozenset(name.split("/")) for name in self._notes.names(POOLS)]

    def end(self, spec: SessionSpec, epoch: bytes) -> None:
        """Store that a session has ended, and delete its pseudonyms."""
        with self._state.transaction():
            self.unlink(spec.session)
            self._note(spec, epoch, ended=True)
            self._notes.put(ENDED, spec.session, epoch)
        self._state.replies.forget(f"sessions/{spec.session}")  # stored replies contain pseudonyms, too

    def _note(self, spec: SessionSpec, epoch: bytes, *, ended: bool) -> None:
        values = {"spec": spec.model_dump(mode="json"), "epoch": epoch.hex(), "ended": ended}
        self._notes.put(SCOPE, spec.session, json.dumps(values).encode())

    def keep_linkage(self, session: str, linkage: Linkage, least: int) -> None:
        """Store the linkage until the session ends; raise QueryRefused for fewer than `least` records."""
        if len(linkage.rows) < least:
            reason = f"{len(linkage.rows):,} records take part; this node's file requires {least:,}."
            raise QueryRefused([Refusal("too_few_records", reason)])
        with self._state.transaction():
            self.unlink(session)
            for number, piece in enumerate(linkage.to_pieces()):
                self._notes.put(SCOPE, f"{session}/{LINKED}{number or ''}", piece)

    def check_people(self, session: str, people: str, exact: bool, *, others: bool) -> None:  # noqa: FBT001
        """Check that results are about the same people as earlier results.

        The difference of two exact results about nearly the same people reveals values of the few people in
        only one of them, and so do sums and differences of several results. Only results about exactly the
        same people are safe.

        Parameters
        ----------
        session : str
            Name of the session.
        people : str
            Digest of the people that take part.
        exact : bool
            Whether results are exact.
        others : bool
            Whether this node's settings file accepts that the people differ from those of earlier sessions.

        Raises
        ------
        RoundAborted
            If the people differ from those of earlier results of this session.
        QueryRefused
            If exact results of other sessions are about different people, or may be after a restore.
        """
        for name in self._notes.names(PEOPLE):
            earlier = json.loads(self._notes.get(PEOPLE, name) or b"{}")
            if earlier.get("people") == people:
                continue
            if name == session:
                raise RoundAborted(
                    f"The people of session {session!r} differ from those of its earlier results: the "
                    "difference of the results would reveal values of a few people.",
                    spent=False,
                )
            if exact and earlier.get("exact") and not others:
                reason = (
                    f"The people are not the same as in session {name!r}: the difference of exact results "
                    "would reveal values of a few people. This node's file can agree to that (other_people "
                    "in its consent)."
                )
                raise QueryRefused([Refusal("other_people", reason)])
        seen = [json.loads(self._notes.get(PEOPLE, name) or b"{}") for name in self._notes.names(PEOPLE)]
        same = {"people": people, "exact": True} in seen
        if exact and not others and not same and self._ledger.doubted:
            raise self._restores.refusal(
                "Exact results may be about different people from results since the backup, and their "
                "difference would reveal values of a few people."
            )

    def bind_people(self, session: str, people: str, exact: bool, *, others: bool) -> None:  # noqa: FBT001
        """Store permanently the people that results of a session are about, after `check_people`.

        The check and the entry are one transaction: of parallel sessions, the first to answer decides.
        """
        with self._state.transaction():
            self.check_people(session, people, exact, others=others)
            if self._notes.get(PEOPLE, session) is None:
                self._notes.put(PEOPLE, session, json.dumps({"people": people, "exact": exact}).encode())

    def burn_run(self, session: str, run: bytes, most: int) -> None:
        """Persist, outside backups, that a computation on shares starts here.

        The same computation never starts again, and a session starts at most `MOST_RUNS` computations. After
        `most` of them have opened a result, no further computation starts.
        """
        self._check_openings(session, most)
        name = _prefix(session)
        if len(self._state.burnt.values(RUNS, name)) >= MOST_RUNS:
            reason = f"Session {session!r} has started {MOST_RUNS} computations here, which is the limit."
            raise RoundAborted(reason, spent=True)
        self._state.burnt.claim([(RUNS, name + run, b"")])

    def burn_opening(self, session: str, most: int) -> None:
        """Persist, outside backups, that a computation opens a result; a session permits `most` of them.

        Each computation can reveal something new: fresh draws differ, and a dishonest party may bring
        different records.
        """
        # openings are outside backups, but a snapshot of the whole disk would bring an older list back
        if self._restores.doubted:
            raise self._restores.refusal("Results may have been opened in this session since the backup.")
        number = self._check_openings(session, most)
        try:  # of two computations that open at the same time, only one can claim the number
            self._state.burnt.claim([(OPENED, _prefix(session) + str(number).encode(), b"")])
        except KeySpent:
            raise _opened_before(session, most) from None

    def _check_openings(self, session: str, most: int) -> int:
        """Return the number of computations that opened a result; raise QueryRefused if it reached `most`."""
        number = len(self._state.burnt.values(OPENED, _prefix(session)))
        if number >= most:
            raise _opened_before(session, most)
        return number

    def store_model_digest(self, session: str, epoch: bytes, digest: bytes) -> None:
        """Persist the digest of the model that this node computed in an epoch of a session."""
        self._notes.put(FOUND, session, epoch + digest)

    def model_digest(self, session: str, epoch: bytes) -> bytes | None:
        """Return the digest of the model that this node computed in an epoch, None if it computed none."""
        data = self._notes.get(FOUND, session)
        return data[len(epoch) :] if data is not None and data.startswith(epoch) else None

    def linkage(self, session: str, epoch: bytes, scratch: Scratch = MEMORY_ONLY) -> Linkage | None:
        """Return the linkage of an epoch, None if records are not linked in it."""
        there = self._epoch(session) == epoch and self._notes.get(SCOPE, f"{session}/{LINKED}") is not None
        return Linkage.from_pieces(self._linkage_pieces(session), scratch) if there else None

    def check_draw(self, draw: str, policy: str) -> None:
        """Check that reports of a policy are drawn from the same memo as before.

        A second, independent draw of the same values would let an observer average the noise away.

        Raises
        ------
        RoundAborted
            If reports of the policy that were drawn from a different memo have been released.
        QueryRefused
            If the state was restored, and the backup has no draws of this memo.
        """
        if self._ledger.doubted and not any(
            (entry.release.draw or "").startswith(f"{draw.partition(':')[0]}:")
            for entry in self._ledger.entries()
        ):
            raise self._restores.refusal(
                "The backup has no draws of its memo: reports of all people may be drawn a second time."
            )
        others = {
            entry.release.draw
            for entry in self._ledger.entries()
            if entry.release.draw is not None and entry.release.draw.endswith(f":{policy}")
        }
        if others - {draw}:
            raise RoundAborted(
                "Reports under this party's policy were drawn from another memo and released before: "
                "memo.json in its state folder is lost or older. It must be restored; without it everyone "
                "would be disguised a second time, which is allowed only under a new policy.",
                spent=False,
            )

    def control(self, schema: Schema, rules: Rules, counts: Tally | None, n: int) -> InferenceControl:
        """Return the inference control (query auditing) over all answers of this node, in every session.

        Raises
        ------
        QueryRefused
            If the state was restored and the operator has not agreed: answers since the backup are unknown.
        """
        if self._restores.doubted:
            raise self._restores.refusal("Rules about counts need a complete history of answers.")
        return InferenceControl(schema, rules, self._state.burnt, counts, n)

    def noise_ledger(self) -> Claims:
        """Return the record of spent noise, which is never restored from a backup.

        Raises
        ------
        QueryRefused
            If the state was restored and the operator has not agreed: tables spent since are unknown.
        """
        if self._restores.doubted:
            raise self._restores.refusal("Noise needs a complete record of the tables spent from its budget.")
        return self._state.burnt

    def record_release(
        self,
        spec: SessionSpec,
        recipient: str,
        item: Outflow,
        reply: bytes,
        *,
        rows: int,
        draw: str,
        question: str = "",
    ) -> None:
        """Write a release into the ledger before it leaves; a repeated release is written once.

        Parameters
        ----------
        spec : SessionSpec
            The session.
        recipient : str
            The peer that receives the reply.
        item : Outflow
            The disclosure by the reply.
        reply : bytes
            The reply; its digest goes into the ledger.
        rows : int
            Number of records that take part.
        draw : str
            Name of the draws of reports: the same reports again reveal nothing new.
        question : str, optional
            Name of an exact answer: the same answer again reveals nothing new.
        """
        facts = [spec.session, recipient, item.kind, item.variables, item.policy, draw, rows, question]
        name = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
        if self._notes.get(RELEASED, name) is not None:
            return
        what = (item.kind, item.variables, rows, item.policy, item.gamma)
        digest, noise = hashlib.sha256(reply).hexdigest(), (item.epsilon, item.delta)
        self._ledger.append(Release(spec.session, spec.protocol, recipient, *what, digest, draw, *noise))
        self._notes.put(RELEASED, name, b"1")


def _prefix(session: str) -> bytes:
    """Return the prefix of the burnt keys of a session."""
    return f"{session}/".encode()


def _opened_before(session: str, most: int) -> QueryRefused:
    """Return the refusal of a further run, after `most` computations have opened a result."""
    reason = (
        f"Computations of session {session!r} have opened {most} results here, which is the limit: another "
        "run may reveal more. Name a new session, which is a further release. If its runs do not draw their "
        "start (draw_start), this node's file can agree to more results instead (openings in its consent)."
    )
    return QueryRefused([Refusal("already_opened", reason)])
