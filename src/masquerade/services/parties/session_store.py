"""What a node remembers of its sessions across restarts: text, epoch, what was linked, what left."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

from masquerade.core.errors import QueryRefused, Refusal, RoundAborted
from masquerade.core.schema import Schema
from masquerade.core.tally import Tally
from masquerade.core.util.scratch import HELD, Scratch
from masquerade.crypto.errors import KeySpent
from masquerade.services.common.receipts import Receipts
from masquerade.services.common.release_ledger import Release, SignedMark
from masquerade.services.common.restores import Restores
from masquerade.services.parties.kinds import Outflow
from masquerade.services.parties.linkage import Linkage
from masquerade.services.parties.session import SessionSpec
from masquerade.sources.control.answer_history import History
from masquerade.sources.control.inference_control import InferenceControl, Rules

SCOPE = "session"
# what a restored state must remember too, and therefore stands in scopes of its own
RELEASED, POOLS, ENDED, RECORDS, EPOCHS = "released", "pools", "ended", "records", "epochs"
PEOPLE, TEXTS = "people", "texts"
CANCELLED = "cancelled"
LINKED = "linked"  # below a session: linked records, in pieces
FOUND = "found"  # by session: the epoch, and the digest of the model that this node found in it
RUNS = "computations"  # burnt: begun on shares in a session, under its name
OPENED = "openings"  # burnt: sessions in which something opened that followed from fresh draws
MOST_EPOCHS, MOST_RUNS = 100, 100


class SessionStore:
    """The sessions in a node's state; everything is on the disk when a method returns."""

    def __init__(self, restores: Restores, receipts: Receipts) -> None:
        self._receipts = receipts
        self._restores, self._state, self._ledger = restores, restores.state, restores.ledger
        self._notes = self._state.notes
        # what was answered here in all sessions, kept where no backup brings an older one back
        self.answered = History(self._state.burnt)

    def _epoch(self, session: str) -> bytes | None:
        """Return the epoch that a session is in, None if it has not begun here."""
        data = self._notes.get(SCOPE, session)
        return None if data is None else bytes.fromhex(json.loads(data)["epoch"])

    def ledger_end(self) -> SignedMark:
        """Return the end of the release ledger, signed."""
        return self._ledger.end

    def witnessed(self, convener: str, end: SignedMark, signature: str) -> None:
        """Keep that a convener has seen and signed an end of the ledger; refuse a ledger that lacks it."""
        self._receipts.take(convener, end, signature)

    def begin(self, spec: SessionSpec, epoch: bytes, records: str) -> None:
        """Remember that a session is in an epoch; what was linked in another one is destroyed.

        `records` is the digest of the records: within one session they must stay the same, since two results
        over nearly the same people differ by what is true of the few.
        """
        name, before = spec.session, self._epoch(spec.session)
        known = self._notes.get(RECORDS, name)
        same_text = self._notes.get(TEXTS, name) in (None, spec.digest.encode())
        if known is not None and known != records.encode() and same_text:  # another text needs other columns
            raise RoundAborted(
                f"The records here are not those that session {name!r} began with; other records need a "
                "session of another name.",
                spent=False,
            )
        epochs = int(self._notes.get(EPOCHS, name) or 0)
        if epochs >= MOST_EPOCHS:
            reason = f"Session {name!r} has begun {epochs} times here; that is enough."
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
        """Tell whether anything has left in a session of this name under another text."""
        known = self._notes.get(TEXTS, spec.session)
        return known not in (None, spec.digest.encode()) and any(
            entry.release.session == spec.session for entry in self._ledger.entries()
        )

    def ended(self, session: str) -> bytes | None:
        """Return the epoch in which a session has ended here, None if it has not."""
        return self._notes.get(ENDED, session)

    def cancel(self, session: str) -> None:
        """Remember that the operator has withdrawn from a session; its pseudonyms are destroyed."""
        with self._state.transaction():
            self._notes.put(CANCELLED, session, b"1")
            self.unlink(session)
        self._state.replies.forget(f"sessions/{session}")

    def cancelled(self, session: str) -> bool:
        """Tell whether the operator has withdrawn from a session."""
        return self._notes.get(CANCELLED, session) is not None

    def unlink(self, session: str) -> None:
        """Destroy what was linked in a session."""
        number = 0
        while self._notes.delete(SCOPE, f"{session}/{LINKED}{number or ''}"):
            number += 1

    def _linked(self, session: str) -> Iterator[bytes]:
        """Yield what is kept of linked records, piece by piece."""
        number = 0
        while (piece := self._notes.get(SCOPE, f"{session}/{LINKED}{number or ''}")) is not None:
            yield piece
            number += 1

    def pools(self) -> list[frozenset[str]]:
        """Return the parties of every pool that this one was part of."""
        return [frozenset(name.split("/")) for name in self._notes.names(POOLS)]

    def end(self, spec: SessionSpec, epoch: bytes) -> None:
        """Remember that a session is over; its pseudonyms are destroyed."""
        with self._state.transaction():
            self.unlink(spec.session)
            self._note(spec, epoch, ended=True)
            self._notes.put(ENDED, spec.session, epoch)
        self._state.replies.forget(f"sessions/{spec.session}")  # cells were sent under pseudonyms

    def _note(self, spec: SessionSpec, epoch: bytes, *, ended: bool) -> None:
        values = {"spec": spec.model_dump(mode="json"), "epoch": epoch.hex(), "ended": ended}
        self._notes.put(SCOPE, spec.session, json.dumps(values).encode())

    def keep_linkage(self, session: str, linkage: Linkage, least: int) -> None:
        """Remember which of the records held take part, until the session ends; too few are refused."""
        if len(linkage.rows) < least:
            reason = f"{len(linkage.rows):,} records take part; this node's file asks for {least:,}."
            raise QueryRefused([Refusal("too_few_records", reason)])
        with self._state.transaction():
            self.unlink(session)
            for number, piece in enumerate(linkage.to_pieces()):
                self._notes.put(SCOPE, f"{session}/{LINKED}{number or ''}", piece)

    def check_people(self, session: str, people: str, exact: bool, *, others: bool) -> None:  # noqa: FBT001
        """Refuse other people than a session began with, or than earlier exact results were about.

        Two exact results about nearly the same people differ by what is true of the few, and so do sums and
        differences of several: only the very same people tell nothing new. `others` says that this node's
        file agrees to other people than those of earlier sessions.
        """
        for name in self._notes.names(PEOPLE):
            known = json.loads(self._notes.get(PEOPLE, name) or b"{}")
            if known.get("people") == people:
                continue
            if name == session:
                raise RoundAborted(
                    f"Other people take part in session {session!r} than when something left in it: results "
                    "would differ by what is true of a few.",
                    spent=False,
                )
            if exact and known.get("exact") and not others:
                reason = (
                    f"Other people take part than in session {name!r}: exact results would differ by what is "
                    "true of a few. This node's file can agree to that (other_people in its consent)."
                )
                raise QueryRefused([Refusal("other_people", reason)])
        seen = [json.loads(self._notes.get(PEOPLE, name) or b"{}") for name in self._notes.names(PEOPLE)]
        same = {"people": people, "exact": True} in seen
        if exact and not others and not same and self._ledger.doubted:
            raise self._restores.refused(
                "Exact results may be about other people than those that left since the backup, and differ "
                "by what is true of a few."
            )

    def bind_people(self, session: str, people: str, exact: bool, *, others: bool) -> None:  # noqa: FBT001
        """Remember, for good, whom results of a session are about, unless `check_people` refuses them.

        Nothing comes between the two: of sessions that go on side by side, the first to answer decides.
        """
        with self._state.transaction():
            self.check_people(session, people, exact, others=others)
            if self._notes.get(PEOPLE, session) is None:
                self._notes.put(PEOPLE, session, json.dumps({"people": people, "exact": exact}).encode())

    def burn_run(self, session: str, run: bytes) -> None:
        """Have it on the disk, where no backup brings it back, that a computation on shares begins here.

        The same one never begins again; and whoever begins one after the other is stopped in the end. Where
        something drawn has opened, none begins.
        """
        if self._state.burnt.find(OPENED, session.encode()) is not None:
            raise _opened_before(session)
        name = f"{session}/".encode()
        if len(self._state.burnt.values(RUNS, name)) >= MOST_RUNS:
            reason = f"Session {session!r} has begun {MOST_RUNS} computations here; that is enough."
            raise RoundAborted(reason, spent=True)
        self._state.burnt.claim([(RUNS, name + run, b"")])

    def burn_opening(self, session: str) -> None:
        """Have it on the disk, where no backup brings it back, that something drawn opens in a session.

        Drawn anew it would tell something else, and the ledger has one line about it.
        """
        if self._restores.doubted:
            raise self._restores.refused("What was drawn in this session may have opened since the backup.")
        try:
            self._state.burnt.claim([(OPENED, session.encode(), b"")])
        except KeySpent:
            raise _opened_before(session) from None

    def keep_found(self, session: str, epoch: bytes, digest: bytes) -> None:
        """Remember which model was found here in an epoch of a session."""
        self._notes.put(FOUND, session, epoch + digest)

    def found(self, session: str, epoch: bytes) -> bytes | None:
        """Return the digest of the model that was found here in an epoch, None if none was."""
        data = self._notes.get(FOUND, session)
        return data[len(epoch) :] if data is not None and data.startswith(epoch) else None

    def linkage(self, session: str, epoch: bytes, scratch: Scratch = HELD) -> Linkage | None:
        """Return which records take part in an epoch, None if they are not linked in it."""
        there = self._epoch(session) == epoch and self._notes.get(SCOPE, f"{session}/{LINKED}") is not None
        return Linkage.from_pieces(self._linked(session), scratch) if there else None

    def check_draw(self, draw: str, policy: str) -> None:
        """Refuse to draw reports anew where others of the same policy have left already."""
        if self._ledger.doubted and not any(
            (entry.release.draw or "").startswith(f"{draw.partition(':')[0]}:")
            for entry in self._ledger.entries()
        ):
            raise self._restores.refused(
                "Its memo has drawn nothing that the backup knows of: everybody may be drawn a second time."
            )
        others = {
            entry.release.draw
            for entry in self._ledger.entries()
            if entry.release.draw is not None and entry.release.draw.endswith(f":{policy}")
        }
        if others - {draw}:
            raise RoundAborted(
                "Reports under this party's policy have left before, drawn with another memo: memo.json of "
                "its state folder is lost or older. It must be restored; without it every person would be "
                "disguised a second time, and only a new policy may do that.",
                spent=False,
            )

    def control(self, schema: Schema, rules: Rules, counts: Tally | None) -> InferenceControl:
        """Return what decides, after all that was answered here in whichever session, what may be answered.

        Where answers since a backup may be missing, counts are refused until the operator has agreed.
        """
        if self._restores.doubted:
            raise self._restores.refused("Rules about counts cannot be kept without knowing.")
        return InferenceControl(schema, rules, self._state.burnt, counts)

    def released(
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
        """Write into the ledger what leaves, before it does; what has left before is not written twice.

        `draw` names the draws behind reports: the same reports again tell nothing new. Of exact answers it is
        the `question` that tells whether they are the same.
        """
        facts = [spec.session, recipient, item.kind, item.variables, item.policy, draw, rows, question]
        name = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
        if self._notes.get(RELEASED, name) is not None:
            return
        what = (item.kind, item.variables, rows, item.policy, item.gamma)
        digest = hashlib.sha256(reply).hexdigest()
        self._ledger.append(Release(spec.session, spec.protocol, recipient, *what, digest, draw))
        self._notes.put(RELEASED, name, b"1")


def _opened_before(session: str) -> QueryRefused:
    """Return the refusal of another run, after what was drawn in a session has opened."""
    reason = (
        f"What was drawn in session {session!r} has opened here: another run would draw again and tell "
        "something else. Name a new session, which is a further release."
    )
    return QueryRefused([Refusal("already_opened", reason)])
