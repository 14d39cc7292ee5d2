"""A node: one service that answers as a party, convenes sessions for its operator, and remembers both."""

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

STOPPED, WITHDRAWN = "this node was stopped meanwhile", "its operator cancelled it"
CONVENED = "convened"
MOST_WAITED = 3600  # seconds for parties that are being started
TELLING = 10.0  # seconds for a member to take note that a session is cancelled
RECEIPT = 5.0  # seconds for a peer to give a receipt: one that is away is asked another time
PATIENCE = 2.0  # seconds for a session to notice that the node stops


class _RoleTransport(NamedTuple):
    """One role of the members of a session."""

    send: Callable[[str, str, bytes], bytes]
    role: str

    def exchange(self, party: str, message: bytes) -> bytes:
        return self.send(party, self.role, message)


class Node(NodeServer):
    """Everything behind a node's address. `operate` is for its own operator, `sessions` for its peers.

    `tell` is told, for the operator alone, what is wrong with the node's own records.
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
        self._guard = threading.Lock()
        self.operations = {
            "create": self._create,
            "run": self._run,
            "cancel": self._cancel,
            "status": self._status,
            "model": self._model,
        }

    def begin(self, files: ExitStack) -> None:  # noqa: ARG002
        """Answer as a party."""
        peers = self.settings.peers.items()
        identities = {name: bytes.fromhex(peer.identity) for name, peer in peers if peer.identity}
        self.receipts, self._asked = Receipts(self.restores, self.identity, identities), set[str]()
        store = SessionStore(self.restores, self.receipts)
        self.party = Party(self.settings, self.identity, store, self._connected, self._tell)

    def close(self) -> None:
        """Let go of files; sessions that run here stop at their next step, and can be resumed."""
        self._closed = True
        for thread in self._running.values():
            thread.join(PATIENCE)
        super().close()

    def service(self) -> Service:
        """Return the service that this node is; its replies outlast a restart."""
        return self.service_at([PLACE, "sessions/{session}/{role}"], state=self.state)

    def described(self) -> str:
        """Return the names of the peers that hold receipts, in a sentence."""
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
        if role == "begin":  # before anything leaves
            self._exchange_receipts(others - self._asked)
        reply = self.party.receive(peer, session, role, call.body)
        if role == "end":
            self._exchange_receipts(others)
        return reply

    def _exchange_receipts(self, peers: set[str]) -> None:
        """Give peers the end of the ledger and take their receipts; who cannot be reached is left out."""
        reached = sorted(it.name for it in self.peers if it.name in peers and it.url is not None)
        if not reached:
            return
        with (
            peer_transport(self.settings, self.peers, timeout=RECEIPT, retries=0) as http,
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
    def _connected(self, spec: SessionSpec, **changed: float) -> Iterator[Callable[[str], Transport]]:
        """Yield how a role of the members of a session is reached; this node reaches itself directly."""
        with peer_transport(self.settings, self.peers, **changed) as http:

            def send(party: str, role: str, message: bytes) -> bytes:
                if role != CANCEL:
                    self._check_wanted(spec.session)
                if party == self.settings.name:
                    return self.party.receive(party, spec.session, role, message)
                return http.exchange(party, message, place=f"sessions/{spec.session}/{role}")

            yield lambda role: _RoleTransport(send, role)

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
        name, wait = _session_name(given), given.get("wait", 0)
        if not isinstance(wait, int | float) or not 0 <= wait <= MOST_WAITED:
            raise InputError(f"A session waits for parties between 0 and {MOST_WAITED:,} seconds.")
        with self._guard:
            if self._known(name)["state"] != "done" and not self._goes_on(name):
                self._unwanted.discard(name)
                self._write(name, state="running", step="", reason="")
                thread = threading.Thread(
                    target=self._convene, args=(name, wait), name=f"session {name}", daemon=True
                )
                self._running[name] = thread
                thread.start()
        return self._shown(name)

    def _convene(self, name: str, wait: float) -> None:
        known, started = self._known(name), time.monotonic()
        spec = SessionSpec.model_validate(known["spec"])
        try:
            with self._connected(spec) as members:
                run = Coordinator(self, spec, members, wait)
                if not known.get("learnt"):  # a model is on the disk before parties end, who answer once
                    self.party.keep_model(name, run.learn())
                    guarantee = None if run.guarantee is None else run.guarantee.to_dict()
                    self._write(name, learnt=True, records=run.records, guarantee=guarantee)
                run.share(json_object(self.party.model_file(name).read_bytes()))
            self._write(name, state="done", step="", seconds=round(time.monotonic() - started, 3))
            self.log.info("session done", session=name)
        except MasqueradeError as error:
            self._interrupted(name, str(error), error)
        except Exception as error:  # noqa: BLE001  (its text may quote data)
            self._interrupted(name, f"internal error ({type(error).__name__})", error)

    def _cancel(self, given: dict[str, Any]) -> dict[str, Any]:
        """Stop a session at its next step or message: at all members if it is convened here, else here alone.

        One that is convened here can be run again; from another this node has withdrawn for good.
        """
        name = _session_name(given)
        known = self._read(name)
        if known is None:
            self.party.cancel(name)
            return {"session": name, "state": "cancelled", "reason": WITHDRAWN}
        with self._guard:
            if known["state"] == "done":
                raise InputError(f"Session {name!r} is done; there is nothing to cancel.")
            self._unwanted.add(name)
            if not self._goes_on(name):
                self._write(name, state="cancelled", step="", reason=WITHDRAWN)
        self._let_go(name)
        return self._shown(name)

    def _let_go(self, name: str) -> None:
        """Tell members that a session is no longer wanted; whoever cannot be told keeps it open."""
        known = self._known(name)
        if not known["epoch"]:
            return
        spec = SessionSpec.model_validate(known["spec"])
        message = say.encode(say.InEpoch(epoch=known["epoch"]))
        with self._connected(spec, timeout=TELLING, retries=0) as members:
            for member in spec.members:
                with suppress(MasqueradeError):
                    members(CANCEL).exchange(member, message)

    def _check_wanted(self, name: str) -> None:
        if name in self._unwanted:
            raise InputError(f"Session {name!r}: {WITHDRAWN}.")

    def epoch_of(self, name: str) -> bytes | None:
        """Return the epoch that a convened session is in, None before it has begun."""
        return bytes.fromhex(self._known(name)["epoch"]) or None

    def keep_epoch(self, name: str, epoch: bytes) -> None:
        """Remember the epoch that a convened session is in."""
        self._write(name, epoch=epoch.hex())

    def identity_of(self, member: str) -> bytes | None:
        """Return the identity of another node, if this node's file has it."""
        peer = self.settings.peers.get(member)
        return None if peer is None or peer.identity is None else bytes.fromhex(peer.identity)

    def known_end(self, member: str) -> SignedMark | None:
        """Return the last end of another node's ledger that was seen here."""
        return self.receipts.known_end(member)

    def keep_end(self, member: str, end: SignedMark) -> None:
        """Remember how far another node's ledger has come."""
        self.receipts.keep_end(member, end)

    def note(self, name: str, step: str) -> None:
        """Note how far a session is; a node that stops goes no further."""
        if self._closed:
            raise InputError(STOPPED)
        self._check_wanted(name)
        self._write(name, step=step)

    def _interrupted(self, name: str, reason: str, error: Exception) -> None:
        self.log.info("session interrupted", session=name, error=type(error).__name__)
        unwanted = name in self._unwanted
        if unwanted:  # also those whom it reached since
            self._let_go(name)
        with suppress(FileError):  # the state may be closed by now: then it still says "running", see _shown
            if unwanted:
                self._write(name, state="cancelled", step="", reason=WITHDRAWN)
            else:
                self._write(name, state="interrupted", reason=STOPPED if self._closed else reason)

    def _status(self, given: dict[str, Any]) -> dict[str, Any]:
        if given.get("session") is not None:
            return self._shown(_session_name(given))
        return {"sessions": [self._shown(name) for name in self.state.notes.names(CONVENED)]}

    def _model(self, given: dict[str, Any]) -> dict[str, Any]:
        name = _session_name(given)
        if self._known(name)["state"] != "done":
            raise InputError(f"Session {name!r} is not done; it has no model yet.")
        return json_object(self.party.model_file(name).read_bytes())

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

    def _goes_on(self, name: str) -> bool:
        thread = self._running.get(name)
        return thread is not None and thread.is_alive()

    def _shown(self, name: str) -> dict[str, Any]:
        """Return a session for its operator; one that no thread runs any more was interrupted."""
        known = self._known(name)
        if known["state"] == "running" and not self._goes_on(name):
            known |= {"state": "interrupted", "reason": STOPPED}
        shown = {
            key: known.get(key) for key in ("state", "step", "reason", "records", "seconds", "guarantee")
        }
        spec = known["spec"]
        return {"session": name, "protocol": spec["protocol"], "parties": spec["parties"], **shown}


def _session_name(given: dict[str, Any]) -> str:
    name = given.get("session")
    if not isinstance(name, str):
        raise InputError("Name a session.")
    return name
