"""A node: one service that answers as a party, convenes sessions for its operator, and remembers both."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from masquerade.core.atomic import write_whole
from masquerade.core.errors import FileError, InputError, MasqueradeError
from masquerade.crypto.keys import load_identity
from masquerade.protocols.vertical import Room
from masquerade.services.common import logs
from masquerade.services.common.jobs import Call
from masquerade.services.common.node import json_object, peer_transport, peers_of
from masquerade.services.common.problems import NotAdmitted, NotFound
from masquerade.services.common.release_ledger import in_state
from masquerade.services.common.server import run_node
from masquerade.services.common.service import Service
from masquerade.services.common.state import State
from masquerade.services.parties import messages as say
from masquerade.services.parties.coordinator import Coordinator
from masquerade.services.parties.participant import NodeIdentity
from masquerade.services.parties.party import Party
from masquerade.services.parties.session import SessionSpec
from masquerade.services.parties.session_store import SessionStore
from masquerade.services.parties.settings import SessionNodeSettings
from masquerade.services.parties.transport import SessionTransport

MEMO = "memo.json"
STOPPED = "this node was stopped meanwhile"
CONVENED = "convened"
MOST_WAITED = 3600  # seconds for parties that are being started
PATIENCE = 2.0  # seconds for a session to notice that the node stops
PLACES = ("sessions/{session}/{role}", "operate/{what}")


class Node:
    """Everything behind a node's address. `operate` is for its own operator, `sessions` for its peers."""

    def __init__(self, settings: SessionNodeSettings, tell: Callable[[str], object] = lambda _: None) -> None:
        self.settings = settings
        self.state = State.open(settings.state)
        try:
            self.ledger = in_state(self.state)
            self.peers = peers_of(settings)
            identity = NodeIdentity(
                settings.name,
                load_identity(settings.identity),
                {name: bytes.fromhex(p.identity) for name, p in settings.peers.items() if p.identity},
                settings.state / MEMO,
            )
        except BaseException:
            self.state.close()
            raise
        self._log = logs.Logger(settings.name)
        self._party = Party(settings, identity, SessionStore(self.state, self.ledger), self._connect, tell)
        self._running: dict[str, threading.Thread] = {}
        self._closed = False
        self._guard = threading.Lock()
        self._operations: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "create": self._create,
            "run": self._run,
            "status": self._status,
            "model": self._model,
        }

    def close(self) -> None:
        """Let go of files; sessions that run here stop at their next step, and can be resumed."""
        self._closed = True
        for thread in self._running.values():
            thread.join(PATIENCE)
        self.ledger.close()
        self.state.close()

    def handle(self, call: Call) -> bytes:
        """Answer a message."""
        first, *rest = call.place.split("/")
        if first == "operate" and len(rest) == 1 and rest[0] in self._operations:
            if call.peer.name != self.settings.name:
                raise NotAdmitted("Only this node's own operator may do this.")
            return json.dumps(self._operations[rest[0]](json_object(call.body))).encode()
        if first == "sessions" and len(rest) == 2:
            return self._party.receive(call.peer.name, rest[0], rest[1], call.body)
        raise NotFound("There is no such place here.")

    def _connect(self, spec: SessionSpec) -> SessionTransport:
        """Return how this node reaches members of a session; itself it reaches directly."""
        http = peer_transport(self.settings, self.peers)
        return SessionTransport(http, self.settings.name, self._party.receive, spec)

    def _create(self, given: dict[str, Any]) -> dict[str, Any]:
        """Keep a session that this node is to convene; the same again changes nothing.

        One that did not come to a model may be given again with another text.
        """
        spec = say.decode(json.dumps(given.get("spec")).encode(), SessionSpec)
        if spec.convener != self.settings.name:
            raise InputError(f"Session {spec.session!r} is convened by {spec.convener!r}, not by this node.")
        for member in spec.members:
            if member != self.settings.name and self.settings.peers.get(member) is None:
                raise InputError(f"{member!r} is no peer in this node's file.")
        with self.state.transaction():
            text = spec.model_dump(mode="json")
            before = self._read(spec.session)
            if before is not None and before["spec"] != text:
                if before.get("learnt") or self._shown(spec.session)["state"] in {"running", "done"}:
                    raise InputError(
                        f"There is another session of the name {spec.session!r}; choose another name."
                    )
                before = None  # a mistake is mended
            if before is None:
                self._write(spec.session, spec=text, state="created", step="", epoch="", reason="")
        return self._shown(spec.session)

    def _run(self, given: dict[str, Any]) -> dict[str, Any]:
        """Start a session, or resume one that was interrupted; one that is done stays done."""
        name, wait = session_name(given), given.get("wait", 0)
        if not isinstance(wait, int | float) or not 0 <= wait <= MOST_WAITED:
            raise InputError(f"A session waits for parties between 0 and {MOST_WAITED:,} seconds.")
        with self._guard:
            known = self._known(name)
            going = self._running.get(name)
            if known["state"] != "done" and (going is None or not going.is_alive()):
                self._write(name, state="running", step="", reason="")
                thread = threading.Thread(
                    target=self._convene, args=(name, wait), name=f"session {name}", daemon=True
                )
                self._running[name] = thread
                thread.start()
        return self._shown(name)

    def _convene(self, name: str, wait: float) -> None:
        known = self._known(name)
        spec = SessionSpec.model_validate(known["spec"])
        started = time.monotonic()
        members = self._connect(spec)
        run = Coordinator(
            spec,
            members.role,
            epoch=bytes.fromhex(known["epoch"]) or None,
            folder=self.settings.state / "joined",
            note=lambda step: self._step(name, step),
            keep_epoch=lambda epoch: self._write(name, epoch=epoch.hex()),
            own_codes=lambda: self._party.own_codes(name),
            room=Room(self.settings.limits.rows, self.settings.limits.arrow_bytes),
            identities=self._party.identities(spec),
            wait=wait,
        )
        try:
            if not known.get("learnt"):
                self._keep(name, run, run.learn())
            run.share(json_object(self._model_file(name).read_bytes()))
            self._write(name, state="done", step="", seconds=round(time.monotonic() - started, 3))
            self._log.info("session done", session=name)
        except MasqueradeError as error:
            self._interrupted(name, str(error), error)
        except Exception as error:  # noqa: BLE001  (its text may quote data)
            self._interrupted(name, f"internal error ({type(error).__name__})", error)
        finally:
            members.close()

    def _keep(self, name: str, run: Coordinator, model: dict[str, Any]) -> None:
        """Have the model on the disk before parties are told to end: nobody can be asked again."""
        write_whole(self._model_file(name), say.plain(model), private=True)
        guarantee = None if run.guarantee is None else run.guarantee.to_dict()
        self._write(name, learnt=True, records=run.records, guarantee=guarantee)

    def _step(self, name: str, step: str) -> None:
        """Note how far a session is; a node that stops goes no further."""
        if self._closed:
            raise InputError(STOPPED)
        self._write(name, step=step)

    def _interrupted(self, name: str, reason: str, error: Exception) -> None:
        self._log.info("session interrupted", session=name, error=type(error).__name__)
        with suppress(FileError):  # the state may be closed by now: then it still says "running", see _shown
            self._write(name, state="interrupted", reason=STOPPED if self._closed else reason)

    def _status(self, given: dict[str, Any]) -> dict[str, Any]:
        if given.get("session") is not None:
            return self._shown(session_name(given))
        return {"sessions": [self._shown(name) for name in self.state.notes.names(CONVENED)]}

    def _model(self, given: dict[str, Any]) -> dict[str, Any]:
        name = session_name(given)
        if self._known(name)["state"] != "done":
            raise InputError(f"Session {name!r} is not done; it has no model yet.")
        return json_object(self._model_file(name).read_bytes())

    def _model_file(self, name: str) -> Path:
        folder = self.settings.state / "models"
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder / f"{name}.json"

    def _read(self, name: str) -> dict[str, Any] | None:
        data = self.state.notes.get(CONVENED, name)
        return None if data is None else json_object(data)

    def _known(self, name: str) -> dict[str, Any]:
        known = self._read(name)
        if known is None:
            raise InputError(f"There is no session {name!r} here: create it first.")
        return known

    def _write(self, name: str, **changed: Any) -> None:
        with self.state.transaction():
            values = {**(self._read(name) or {}), **changed}
            self.state.notes.put(CONVENED, name, json.dumps(values).encode())

    def _shown(self, name: str) -> dict[str, Any]:
        """Return a session for its operator; one that no thread runs any more was interrupted."""
        known = self._known(name)
        going = self._running.get(name)
        if known["state"] == "running" and (going is None or not going.is_alive()):
            known = {**known, "state": "interrupted", "reason": STOPPED}
        shown = {
            key: known.get(key) for key in ("state", "step", "reason", "records", "seconds", "guarantee")
        }
        spec = known["spec"]
        return {"session": name, "protocol": spec["protocol"], "parties": spec["parties"], **shown}


def session_name(given: dict[str, Any]) -> str:
    """Return the name of the session that an operator means."""
    name = given.get("session")
    if not isinstance(name, str):
        raise InputError("Name a session.")
    return name


def service_of(node: Node) -> Service:
    """Return the service that a node is."""
    return Service(
        node.settings.name,
        peers=node.peers,
        limits=node.settings.limits,
        state=node.state,
        handler=node.handle,
        places=PLACES,
    )


def serve(settings: SessionNodeSettings, *, announce: Callable[[str], object] = print) -> None:
    """Serve until told to stop."""
    with closing(Node(settings, announce)) as node:
        run_node(service_of(node), settings, announce)
