"""A node: one service that answers as a party and convenes sessions for its operator."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

from masquerade.core.errors import FileError, InputError, MasqueradeError, RoundAborted
from masquerade.protocols.wire.session import Transport
from masquerade.services.common.client import HttpTransport, json_object, peer_transport
from masquerade.services.common.jobs import Call
from masquerade.services.common.receipts import PLACE, Receipts
from masquerade.services.common.release_ledger import SignedMark
from masquerade.services.common.server import NodeServer
from masquerade.services.common.service import Service
from masquerade.services.parties import messages as say
from masquerade.services.parties.coordinator import Coordinator
from masquerade.services.parties.party import CANCEL, Party
from masquerade.services.parties.session import SessionSpec
from masquerade.services.parties.session_store import SessionStore
from masquerade.services.parties.settings import SessionNodeSettings

STOPPED, WITHDRAWN = "this node was stopped", "its operator cancelled it"
CONVENED = "convened"
MOST_WAITED = 3600  # seconds to wait for parties that are still starting
CANCEL_SECONDS = 10.0  # time for a member to acknowledge that a session is cancelled
RECEIPT_SECONDS = 5.0  # time for a peer to return a receipt; the next session asks absent peers again
STOP_SECONDS = 2.0  # time for a running session to notice that the node stops
LONGEST_POLL = 45.0  # seconds that a status request waits: less than a client's timeout
STOP_CHECK = 0.5  # seconds after which a waiting request notices that the service stops
STATUS_FIELDS = ("state", "step", "reason", "records", "seconds", "guarantee", "requested")
WITHOUT_RECORDS = {"begin", "arrange", "ledger", "witness", "model", "end", CANCEL}  # send no records
WAITING = "waiting"  # prefix of the steps that are reported even to `quiet` status requests


class _RoleTransport(NamedTuple):
    """Transport to one role of the members of a session."""

    send: Callable[[str, str, bytes], bytes]
    role: str

    def exchange(self, party: str, message: bytes) -> bytes:
        return self.send(party, self.role, message)


class Node(NodeServer):
    """The server of a party or miner: paths `operate/…` are for its operator, `sessions/…` for its peers.

    `tell` is called with problems in the node's own records, which only its operator may see.
    """

    RESTORED = "masquerade party restored"
    AGREEMENT = (
        "results may differ by what is true of single people, and everybody may be drawn a second time"
    )
    settings: SessionNodeSettings

    def __init__(self, settings: SessionNodeSettings, tell: Callable[[str], object] = lambda _: None) -> None:
        self._tell = tell
        super().__init__(settings)
        self._running: dict[str, threading.Thread] = {}
        self._closed, self._unwanted = False, set[str]()
        self._requested: set[tuple[str, str, str]] = set()  # stored already: session, party, role
        self._guard = threading.Lock()
        self._changed, self._changes = threading.Condition(), 0
        self._service: Service | None = None
        self.operations = {
            "create": self._create,
            "run": self._run,
            "cancel": self._cancel,
            "status": self._status,
            "model": self._model,
        }

    def begin(self, files: ExitStack) -> None:  # noqa: ARG002
        """Create the party that answers messages of sessions."""
        peers = self.settings.peers.items()
        identities = {name: bytes.fromhex(peer.identity) for name, peer in peers if peer.identity}
        self.receipts, self._asked = Receipts(self.restores, self.identity, identities), set[str]()
        store = SessionStore(self.restores, self.receipts)
        self.party = Party(self.settings, self.identity, store, self._connect, self._tell)

    def close(self) -> None:
        """Close files; sessions convened here stop at their next step, and can be resumed."""
        self._closed = True
        for thread in self._running.values():
            thread.join(STOP_SECONDS)
        super().close()

    def service(self) -> Service:
        """Return the HTTP service of this node; its stored replies survive a restart."""
        self._service = self.service_at([PLACE, "sessions/{session}/{role}"], state=self.state)
        return self._service

    def describe(self) -> str:
        """Return a sentence that names the peers with receipts of this node's ledger."""
        return self.receipts.describe_holders()

    def answer(self, call: Call) -> bytes:
        """Answer a message of a session, or one about receipts."""
        peer = call.peer.name
        if call.place == PLACE:
            return self.receipts.answer(peer, call.body)
        session, role = call.parameters["session"], call.parameters["role"]
        consent = self.settings.consent(session)
        others: set[str] = set()
        if consent is not None and consent.convener == peer:
            others = {*consent.parties, peer, *([consent.helper] if consent.helper else [])}
        if role == "begin":  # before data leaves: a peer's receipt shows whether this ledger was rolled back
            self._exchange_receipts(others - self._asked)
        reply = self.party.receive(peer, session, role, call.body)
        if role == "end":
            self._exchange_receipts(others)
        return reply

    def _exchange_receipts(self, peers: set[str]) -> None:
        """Send peers the end of the ledger and store their receipts; unreachable peers are skipped."""
        reached = sorted(it.name for it in self.peers if it.name in peers and it.url is not None)
        if not reached:
            return
        with (
            peer_transport(self.settings, self.peers, timeout=RECEIPT_SECONDS, retries=0) as http,
            ThreadPoolExecutor(len(reached)) as pool,
        ):
            for name, error in zip(reached, pool.map(partial(self._receipt, http), reached), strict=True):
                if isinstance(error, RoundAborted):
                    self._tell(str(error))
                    raise error
                if error is None:
                    self._asked.add(name)

    def _receipt(self, http: HttpTransport, peer: str) -> MasqueradeError | None:
        try:
            self.receipts.exchange(peer, lambda body: http.exchange(peer, body, place=PLACE))
        except MasqueradeError as error:
            return error
        return None

    @contextmanager
    def _connect(self, spec: SessionSpec, **changed: float) -> Iterator[Callable[[str], Transport]]:
        """Yield a function from roles to transports; messages to this node itself are not sent over HTTP."""
        with peer_transport(self.settings, self.peers, **changed) as http:

            def send(party: str, role: str, message: bytes) -> bytes:
                if role != CANCEL:
                    self._check_wanted(spec.session)
                self._note_request(spec.session, party, role)
                if party == self.settings.name:
                    return self.party.receive(party, spec.session, role, message)
                return http.exchange(party, message, place=f"sessions/{spec.session}/{role}")

            yield lambda role: _RoleTransport(send, role)

    def _note_request(self, session: str, party: str, role: str) -> None:
        """Store that a party is asked about its records in a convened session, before the message leaves."""
        if role in WITHOUT_RECORDS or (session, party, role) in self._requested:
            return
        with self.state.transaction():
            record = self._read(session)
            if record is not None and party in record["spec"]["parties"]:
                requested: dict[str, list[str]] = record.get("requested") or {}
                if role not in requested.setdefault(party, []):
                    requested[party].append(role)
                    self._write(session, requested=requested)
        self._requested.add((session, party, role))

    def _create(self, request: dict[str, Any]) -> dict[str, Any]:
        """Store a session that this node is to convene; storing the same text again changes nothing.

        The text of a session that has no model yet and is not running may be replaced.
        """
        spec = say.decode(json.dumps(request.get("spec")).encode(), SessionSpec)
        if spec.convener != self.settings.name:
            raise InputError(f"Session {spec.session!r} is convened by {spec.convener!r}, not by this node.")
        for member in spec.members:
            if member != self.settings.name and self.settings.peers.get(member) is None:
                raise InputError(f"{member!r} is not a peer in this node's file.")
        with self.state.transaction():
            text = spec.model_dump(mode="json")
            before = self._read(spec.session)
            if before is not None and before["spec"] != text:
                if before.get("learnt") or self._describe_session(spec.session)["state"] in {
                    "running",
                    "done",
                }:
                    raise InputError(
                        f"A different session has the name {spec.session!r}; choose another name."
                    )
                before = None  # the operator corrects the text
            if before is None:
                self._write(spec.session, spec=text, state="created", step="", epoch="", reason="")
        return self._describe_session(spec.session)

    def _run(self, request: dict[str, Any]) -> dict[str, Any]:
        """Start a session or resume an interrupted one; a session that is done stays done."""
        name, wait = _session_name(request), request.get("wait", 0)
        if not isinstance(wait, int | float) or not 0 <= wait <= MOST_WAITED:
            raise InputError(f"The time to wait for parties must be from 0 to {MOST_WAITED:,} seconds.")
        with self._guard:
            if self._require_session(name)["state"] != "done" and not self._is_running(name):
                self._unwanted.discard(name)
                self._write(name, state="running", step="", reason="")
                thread = threading.Thread(
                    target=self._convene, args=(name, wait), name=f"session {name}", daemon=True
                )
                self._running[name] = thread
                thread.start()
        return self._describe_session(name)

    def _convene(self, name: str, wait: float) -> None:
        """Run a session: learn the model unless it is stored, share it, and store the result or the error."""
        record, started = self._require_session(name), time.monotonic()
        spec = SessionSpec.model_validate(record["spec"])
        try:
            with self._connect(spec) as members:
                run = Coordinator(self, spec, members, wait)
                # the model is durable before it is shared: parties no longer answer in a session that ended
                if not record.get("learnt"):
                    self.party.keep_model(name, run.learn())
                    guarantee = None if run.guarantee is None else run.guarantee.to_dict()
                    self._write(name, learnt=True, records=run.records, guarantee=guarantee)
                run.share(json_object(self.party.model_file(name).read_bytes()))
            self._write(name, state="done", step="", seconds=round(time.monotonic() - started, 3))
            self.log.info("session done", session=name)
        except MasqueradeError as error:
            self._note_interruption(name, str(error), error)
        except Exception as error:  # noqa: BLE001  (its text may quote data)
            self._note_interruption(name, f"internal error ({type(error).__name__})", error)

    def _cancel(self, request: dict[str, Any]) -> dict[str, Any]:
        """Stop a session at its next step or message.

        A session convened here stops at all members and can be run again. From any other session this node
        withdraws permanently.
        """
        name = _session_name(request)
        record = self._read(name)
        if record is None:
            self.party.cancel(name)
            return {"session": name, "state": "cancelled", "reason": WITHDRAWN}
        with self._guard:
            if record["state"] == "done":
                raise InputError(f"Session {name!r} is done; there is nothing to cancel.")
            self._unwanted.add(name)
            if not self._is_running(name):
                self._write(name, state="cancelled", step="", reason=WITHDRAWN)
        self._cancel_members(name)
        return self._describe_session(name)

    def _cancel_members(self, name: str) -> None:
        """Cancel a session at its members; at an unreachable member the session stays open."""
        record = self._require_session(name)
        if not record["epoch"]:
            return
        spec = SessionSpec.model_validate(record["spec"])
        message = say.encode(say.InEpoch(epoch=record["epoch"]))
        with self._connect(spec, timeout=CANCEL_SECONDS, retries=0) as members:
            for member in spec.members:
                with suppress(MasqueradeError):
                    members(CANCEL).exchange(member, message)

    def _check_wanted(self, name: str) -> None:
        if name in self._unwanted:
            raise InputError(f"Session {name!r}: {WITHDRAWN}.")

    def epoch_of(self, name: str) -> bytes | None:
        """Return the current epoch of a convened session, None before it has started."""
        return bytes.fromhex(self._require_session(name)["epoch"]) or None

    def keep_epoch(self, name: str, epoch: bytes) -> None:
        """Store the current epoch of a convened session."""
        self._write(name, epoch=epoch.hex())

    def identity_of(self, member: str) -> bytes | None:
        """Return the identity of another node, None if this node's file does not have it."""
        peer = self.settings.peers.get(member)
        return None if peer is None or peer.identity is None else bytes.fromhex(peer.identity)

    def known_end(self, member: str) -> SignedMark | None:
        """Return the last end of another node's ledger that this node has seen."""
        return self.receipts.known_end(member)

    def keep_end(self, member: str, end: SignedMark) -> None:
        """Store the end of another node's ledger."""
        self.receipts.keep_end(member, end)

    def note(self, name: str, step: str) -> None:
        """Store the step of a session; raise InputError if the node stops or the session was cancelled."""
        if self._closed:
            raise InputError(STOPPED)
        self._check_wanted(name)
        self._write(name, step=step)

    def _note_interruption(self, name: str, reason: str, error: Exception) -> None:
        self.log.info("session interrupted", session=name, error=type(error).__name__)
        unwanted = name in self._unwanted
        if unwanted:  # cancel again: the run may have reached further members after the first cancellation
            self._cancel_members(name)
        # the state may be closed by now and keep "running"; _describe_session reports this as interrupted
        with suppress(FileError):
            if unwanted:
                self._write(name, state="cancelled", step="", reason=WITHDRAWN)
            else:
                self._write(name, state="interrupted", reason=STOPPED if self._closed else reason)

    def _status(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the status of one session, or of all.

        With `seen`, the last step that the operator knows, it waits until the session has ended or reached a
        different step, at most `LONGEST_POLL` seconds. With `quiet`, only steps that start with `WAITING`
        count as different.
        """
        if request.get("session") is None:
            return {"sessions": [self._describe_session(name) for name in self.state.notes.names(CONVENED)]}
        name, seen, quiet = _session_name(request), request.get("seen"), request.get("quiet") is True
        longest = min(LONGEST_POLL, 0.75 * self.settings.limits.seconds)  # a longer wait would time out
        until = time.monotonic() + (0.0 if seen is None else longest)
        while True:
            changes = self._changes
            status = self._describe_session(name)
            step = status["step"] if not quiet or str(status["step"]).startswith(WAITING) else seen
            left = until - time.monotonic()
            if status["state"] != "running" or step != seen or left <= 0 or self._is_stopping():
                return status
            with self._changed:
                self._changed.wait_for(lambda: self._changes != changes, min(left, STOP_CHECK))  # noqa: B023

    def _is_stopping(self) -> bool:
        return self._closed or (self._service is not None and self._service.jobs.stopping)

    def _model(self, request: dict[str, Any]) -> dict[str, Any]:
        name = _session_name(request)
        if self._require_session(name)["state"] != "done":
            raise InputError(f"Session {name!r} is not done; it has no model yet.")
        return json_object(self.party.model_file(name).read_bytes())

    def _read(self, name: str) -> dict[str, Any] | None:
        data = self.state.notes.get(CONVENED, name)
        return None if data is None else json_object(data)

    def _require_session(self, name: str) -> dict[str, Any]:
        record = self._read(name)
        if record is None:
            raise InputError(f"There is no session {name!r} here: create it first.")
        return record

    def _write(self, name: str, **changed: Any) -> None:
        with self.state.transaction():
            values = {**(self._read(name) or {}), **changed}
            self.state.notes.put(CONVENED, name, json.dumps(values).encode())
        with self._changed:
            self._changes += 1
            self._changed.notify_all()

    def _is_running(self, name: str) -> bool:
        thread = self._running.get(name)
        return thread is not None and thread.is_alive()

    def _describe_session(self, name: str) -> dict[str, Any]:
        """Return the status of a session; a "running" session without a thread was interrupted."""
        record = self._require_session(name)
        if record["state"] == "running" and not self._is_running(name):
            record |= {"state": "interrupted", "reason": STOPPED}
        status = {key: record.get(key) for key in STATUS_FIELDS}
        spec = record["spec"]
        return {"session": name, "protocol": spec["protocol"], "parties": spec["parties"], **status}


def _session_name(request: dict[str, Any]) -> str:
    name = request.get("session")
    if not isinstance(name, str):
        raise InputError("Name a session.")
    return name
