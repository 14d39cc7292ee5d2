"""What a node remembers of its sessions across restarts: text, epoch, what was linked, what left."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from masquerade.core.errors import RoundAborted
from masquerade.parties.linked import Linked
from masquerade.parties.releases import Leaving
from masquerade.parties.spec import SessionSpec
from masquerade.serving.release_ledger import Release, ReleaseLedger
from masquerade.serving.state import State

SCOPE = "session"
RELEASED = "released"
POOLS = "pools"


@dataclass(frozen=True, slots=True)
class Remembered:
    """A session as a node knows it."""

    spec: SessionSpec
    epoch: bytes
    ended: bool


class Memory:
    """The sessions in a node's state; everything is on the disk when a method returns."""

    def __init__(self, state: State, ledger: ReleaseLedger) -> None:
        self._state, self._ledger = state, ledger

    def sessions(self) -> list[Remembered]:
        """Return all sessions."""
        names = [name for name in self._state.notes.names(SCOPE) if "/" not in name]
        found = [self.find(name) for name in names]
        return [item for item in found if item is not None]

    def find(self, session: str) -> Remembered | None:
        """Return a session, None if it has not begun here."""
        data = self._state.notes.get(SCOPE, session)
        if data is None:
            return None
        values: dict[str, Any] = json.loads(data)
        spec = SessionSpec.model_validate(values["spec"])
        return Remembered(spec, bytes.fromhex(values["epoch"]), bool(values["ended"]))

    def begin(self, spec: SessionSpec, epoch: bytes) -> None:
        """Remember that a session is in an epoch; what was linked in another one is destroyed."""
        before = self.find(spec.session)
        with self._state.transaction():
            if before is not None and before.epoch != epoch:
                self._state.notes.delete(SCOPE, f"{spec.session}/linked")
            self._note(spec, epoch, ended=False)
            if spec.protocol == "pooled-counts":
                self._state.notes.put(POOLS, "/".join(sorted(spec.parties)), b"1")
        if before is not None and before.epoch != epoch:
            self._state.replies.forget(f"sessions/{spec.session}")

    def pools(self) -> list[frozenset[str]]:
        """Return the parties of every pool that this one was part of."""
        return [frozenset(name.split("/")) for name in self._state.notes.names(POOLS)]

    def end(self, spec: SessionSpec, epoch: bytes) -> None:
        """Remember that a session is over; its pseudonyms are destroyed."""
        with self._state.transaction():
            self._state.notes.delete(SCOPE, f"{spec.session}/linked")
            self._note(spec, epoch, ended=True)
        self._state.replies.forget(f"sessions/{spec.session}")  # cells were sent under pseudonyms

    def _note(self, spec: SessionSpec, epoch: bytes, *, ended: bool) -> None:
        values = {"spec": spec.model_dump(mode="json"), "epoch": epoch.hex(), "ended": ended}
        self._state.notes.put(SCOPE, spec.session, json.dumps(values).encode())

    def keep_linked(self, session: str, linked: Linked) -> None:
        """Remember which records take part, until the session ends."""
        self._state.notes.put(SCOPE, f"{session}/linked", linked.to_bytes())

    def linked(self, session: str, epoch: bytes) -> Linked | None:
        """Return which records take part in an epoch, None if they are not linked in it."""
        begun = self.find(session)
        data = self._state.notes.get(SCOPE, f"{session}/linked")
        if data is None or begun is None or begun.epoch != epoch:
            return None
        return Linked.from_bytes(data)

    def check_draw(self, draw: str, policy: str) -> None:
        """Refuse to draw reports anew where others of the same policy have left already."""
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

    def released(
        self, spec: SessionSpec, recipient: str, item: Leaving, reply: bytes, *, rows: int, draw: str
    ) -> None:
        """Write into the ledger what leaves, before it does; what has left before is not written twice.

        `draw` names the draws behind reports: the same reports again tell nothing new.
        """
        facts = json.dumps([spec.session, recipient, item.kind, item.variables, item.policy, draw, rows])
        name = hashlib.sha256(facts.encode()).hexdigest()
        if self._state.notes.get(RELEASED, name) is not None:
            return
        self._ledger.append(
            Release(
                session=spec.session,
                protocol=spec.protocol,
                recipient=recipient,
                kind=item.kind,
                variables=item.variables,
                rows=rows,
                policy=item.policy,
                gamma=item.gamma,
                digest=hashlib.sha256(reply).hexdigest(),
                draw=draw,
            )
        )
        self._state.notes.put(RELEASED, name, b"1")
