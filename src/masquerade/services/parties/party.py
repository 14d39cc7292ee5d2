"""Answer messages as a party, only in sessions that the node's file consents to and only to their members."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from masquerade.core.errors import FileError, InputError, PolicyMismatch, QueryRefused, RoundAborted
from masquerade.core.util.atomic import write_whole
from masquerade.core.util.scratch import Scratch
from masquerade.crypto.errors import DecodingError
from masquerade.crypto.keys import SigningKey, verify_signature
from masquerade.disguising.memo import Memo
from masquerade.disguising.report_draws import Codes
from masquerade.learn.model_file import model_of
from masquerade.protocols.wire.session import Transport
from masquerade.services.common.jobs import PassingReply
from masquerade.services.common.problems import TooLarge
from masquerade.services.common.release_ledger import WITNESS, SignedMark
from masquerade.services.common.settings import Strict
from masquerade.services.parties import messages as say
from masquerade.services.parties.kinds import Outflow, Partition
from masquerade.services.parties.linkage import LinkingRole
from masquerade.services.parties.local_data import MEMO, LocalData, read_local_data
from masquerade.services.parties.participant import POLICY, RECORDS, SessionParticipant, text_digest
from masquerade.services.parties.session import JointSchema, SessionSpec
from masquerade.services.parties.session_store import SessionStore
from masquerade.services.parties.settings import PartySettings, SessionConsent, SessionNodeSettings

CANCEL = "cancel"  # role of the message with which a convener cancels a session
MOST_OF_CONTROL, MOST_OF_MODEL = 1 << 20, 1 << 23  # bytes: parsed JSON takes up to 30 times the memory
Connector = Callable[[SessionSpec], AbstractContextManager[Callable[[str], Transport]]]


class _WhileWanted(NamedTuple):
    """Transport to other parties that raises RoundAborted once the session is cancelled."""

    others: Transport
    part: SessionParticipant

    def exchange(self, party: str, message: bytes) -> bytes:
        self.part.check_wanted()
        return self.others.exchange(party, message)


class Party:
    """Answers the messages of all sessions of one node.

    Parameters
    ----------
    settings : SessionNodeSettings
        The node's file.
    identity : SigningKey
        Signs policies and records of this party.
    store : SessionStore
        Stored sessions and release ledger.
    connect : callable
        Opens transports to other parties, for session types in which parties query each other.
    tell : callable, optional
        Receives problems of the node's own records, which only its operator may see.
    """

    def __init__(
        self,
        settings: SessionNodeSettings,
        identity: SigningKey,
        store: SessionStore,
        connect: Connector,
        tell: Callable[[str], object] = lambda _: None,
    ) -> None:
        self.settings, self.name = settings, settings.name
        # created before any session, so that sessions that start in parallel draw from the same memo
        self._memo = (
            Memo.load_or_create(settings.state / MEMO) if isinstance(settings, PartySettings) else None
        )
        self.identity, self.store, self._connect, self._tell = identity, store, connect, tell
        self._open: dict[str, SessionParticipant] = {}
        self._guard = threading.Lock()
        self._control: dict[str, tuple[type[say.InEpoch], Callable[[SessionParticipant, Any], Strict]]] = {
            "settle": (say.InEpoch, self._settle),
            "arrange": (say.Arrange, self._arrange),
            "learn": (say.Learn, self._learn),
            "model": (say.Share, self._model),
            "ledger": (say.InEpoch, self._ledger_end),
            "witness": (say.Witness, self._witness),
            "end": (say.InEpoch, self._end),
        }

    def receive(self, peer: str, session: str, role: str, body: bytes) -> bytes:
        """Answer a message of a session; a message that is refused changes nothing and reveals nothing.

        Parameters
        ----------
        peer : str
            The sender, authenticated by the service.
        session, role : str
            The session and role that the message is addressed to.
        body : bytes
            The message.

        Returns
        -------
        bytes
            The reply.

        Raises
        ------
        MasqueradeError
            If the message is refused.
        """
        most = MOST_OF_MODEL if role == "model" else MOST_OF_CONTROL
        if (role in {"begin", CANCEL} or role in self._control) and len(body) > most:
            raise TooLarge(f"A message of this kind must have at most {most:,} bytes.")
        if role == "begin":
            return say.encode(self._begin(peer, session, say.decode(body, say.Begin)))
        part = self._require_open(session)
        if role == CANCEL:  # without the lock: a running answer must not delay it
            return say.encode(self._cancel(peer, part, say.decode(body, say.InEpoch)))
        if part.learning:  # two parties that learn in parallel would wait for each other: a deadlock
            raise RoundAborted(
                f"Party {self.name!r} is learning its own nodes, and answers nothing else in this session "
                "until it is done: the convener must let one party learn at a time.",
                spent=False,
                culprits=(part.spec.convener,),
            )
        with part.lock:
            try:
                part.check_wanted()
                if role not in self._control:
                    reply = self._answer(peer, part, role, body)
                    return PassingReply(reply) if part.roles[role].passing else reply
                self._check_convener(peer, part.spec)
                kind, act = self._control[role]
                message = say.decode(body, kind)
                _check_epoch(part, message)
                return say.encode(act(part, message))
            finally:
                if part.cancelled:
                    part.forget()

    def cancel(self, session: str) -> None:
        """Withdraw from a session permanently, at the request of this node's operator."""
        if self.settings.consent(session) is None:
            raise InputError(
                f"This node's file has no session {session!r}, and the node convenes none of that name."
            )
        self.store.cancel(session)
        part = self._open.get(session)
        if part is not None:
            self._drop(part)

    def _cancel(self, peer: str, part: SessionParticipant, message: say.InEpoch) -> say.Done:
        """Drop a session that its convener cancels; the convener may start it again."""
        self._check_convener(peer, part.spec)
        _check_epoch(part, message)
        self.store.unlink(part.spec.session)
        self._drop(part)
        return say.Done()

    def _drop(self, part: SessionParticipant) -> None:
        """Stop work for a session at its next message or reply, and delete its keys and pseudonyms."""
        part.cancelled = True
        with self._guard:
            if self._open.get(part.spec.session) is part:
                del self._open[part.spec.session]
        if part.lock.acquire(blocking=False):  # else the thread that holds the lock deletes them
            try:
                part.forget()
            finally:
                part.lock.release()

    def kept_memo(self) -> Memo:
        """Return the memo from which reports of all sessions are drawn, created at the node's first start.

        Its file is read once. If the file is replaced while the node runs, `Memo.save` raises an error.
        """
        if self._memo is None:
            raise InputError("This node holds no records.")
        return self._memo

    def identities_of(self, names: Sequence[str]) -> dict[str, bytes]:
        """Return the identities of other nodes; raise InputError if this node's file lacks one."""
        known = {name: peer.identity for name, peer in self.settings.peers.items() if peer.identity}
        missing = [name for name in names if name != self.name and name not in known]
        if missing:
            raise InputError(f"No identity is known for {', '.join(map(repr, missing))}.")
        return {name: bytes.fromhex(known[name]) for name in names if name != self.name}

    def identities(self, names: Sequence[str]) -> dict[str, bytes]:
        """Return the identities of nodes, including this node if it is named."""
        own = {self.name: self.identity.public} if self.name in names else {}
        return self.identities_of(names) | own

    def own_codes(self, session: str) -> Mapping[str, Codes]:
        """Return the codes of this node's linked records, in a session that it convenes as a party."""
        return self._require_open(session).align_records().codes

    def model_file(self, session: str) -> Path:
        """Return the path of the model of a session."""
        folder = self.settings.state / "models"
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder / f"{session}.json"

    def keep_model(self, session: str, model: dict[str, Any]) -> None:
        """Write the model of a session to its file, atomically."""
        text = json.dumps(model, ensure_ascii=False, indent=1) + "\n"
        write_whole(self.model_file(session), text, private=True)

    def _require_open(self, session: str) -> SessionParticipant:
        part = self._open.get(session)
        if part is None:
            ended = self.store.ended_epoch(session)
            state = "has ended here" if ended else "has not begun here, or was interrupted"
            if self.store.cancelled(session):
                state = "was cancelled here by this node's operator"
            raise RoundAborted(f"Session {session!r} {state}.", spent=False)
        return part

    def _begin(self, peer: str, session: str, message: say.Begin) -> say.Begun:
        """Start or continue a session for its convener, if this node's file consents to exactly its text."""
        spec, epoch = message.spec, bytes.fromhex(message.epoch)
        earlier = self._open.get(session)
        if earlier is not None and earlier.spec == spec:
            spec = earlier.spec  # a repeated message: reuse the digest that was computed
        if spec.session != session:
            raise InputError("The message names a session that differs from the one in its path.")
        self._check_convener(peer, spec)
        consent = self._require_consent(spec)
        if self.store.cancelled(session):
            raise spec.refusal("this node's operator has cancelled it; another run needs another name")
        ended = self.store.ended_epoch(session)
        if ended == epoch:
            return say.Begun(policy=None, linked=False, ended=True)
        if ended is not None:
            raise spec.refusal("it has ended here; another run needs another name")
        with self._guard:
            part = self._open.get(session)
            if part is None or part.epoch != epoch or part.spec != spec:
                part = self._start(spec, epoch, consent)
        with part.lock:
            part.renew()
        if part.helps:
            return say.Begun(policy=None, linked=False)
        text = part.policy_text
        signature = part.sign(POLICY, text_digest(text))
        return say.Begun(policy=text, linked=part.linkage is not None, signature=signature)

    def _start(self, spec: SessionSpec, epoch: bytes, consent: SessionConsent) -> SessionParticipant:
        """Start a session; all checks run before anything is stored."""
        records = ""
        if spec.helper == self.name:
            part = SessionParticipant(self, spec, epoch)
        elif isinstance(self.settings, PartySettings):
            part = SessionParticipant(self, spec, epoch, self._read(self.settings, spec, consent))
            pinned, policy, records = spec.policies.get(self.name), part.data.policy, part.data.digest
            if pinned is not None and pinned != policy.id:
                raise PolicyMismatch(
                    f"The session pins policy {pinned[:12]}…, but this party's policy is {policy.id[:12]}…."
                )
            if spec.linking is None:  # there is no `Arrange`: all parties have the same policy
                spec.check(JointSchema({self.name: policy} if len(policy.schema) else {}))
            if policy.disguised:
                self.store.check_draw(part.draw, part.data.memo_id)
            self._check_person(part, consent)
        else:
            raise spec.refusal("this node holds no records")
        self.store.begin(spec, epoch, records)
        self._open[spec.session] = part
        return part

    def _check_person(self, part: SessionParticipant, consent: SessionConsent) -> None:
        """Raise QueryRefused if the session would take a person beyond the limit of this node."""
        total, part.ledger_checked = self.store.total_with(part)
        try:
            total.check(part.spec, is_clear_accepted=consent.clear is not None)
        except QueryRefused:
            self._tell(f"session {part.spec.session!r} was refused: {' '.join(total.lines())}")
            raise
        part.is_beyond_limit = not total.total.is_within(total.limit)

    def _check_person_again(self, part: SessionParticipant, leaving: Sequence[Outflow]) -> None:
        """Check the limit again before reports leave, if the ledger has grown since the last check."""
        sent = any(item.policy is not None for item in leaving)
        if sent and self.store.ledger_line != part.ledger_checked:
            self._check_person(part, self._require_consent(part.spec))

    def _read(self, settings: PartySettings, spec: SessionSpec, consent: SessionConsent) -> LocalData:
        """Read the records; their problems go to this node's operator, never to the convener."""
        apart = spec.kind.partition is Partition.CELLS
        try:
            needed = spec.needed_variables(consent.variables)
            scratch = Scratch(settings.state)
            return read_local_data(settings.data, consent.variables, needed, apart=apart, scratch=scratch)
        except InputError as error:
            self._tell(f"session {spec.session!r} cannot begin: {error}")
            raise RoundAborted(
                "Its records do not fit its settings or its policy; its own output has the details.",
                spent=False,
            ) from None

    def _require_consent(self, spec: SessionSpec) -> SessionConsent:
        consent = self.settings.consent(spec.session)
        if consent is None:
            raise spec.refusal("no session of that name is in this node's file")
        differences = consent.differences(spec)
        if differences:
            raise spec.refusal(f"its consent in this node's file differs in {', '.join(differences)}")
        if self.store.has_released_otherwise(spec):
            raise spec.refusal("data was released under a different text; a changed text needs a new name")
        return consent

    def _answer(self, peer: str, part: SessionParticipant, name: str, body: bytes) -> bytes:
        """Answer a message of a role; releases are written to the ledger before the reply is returned."""
        spec, role = part.spec, part.roles.get(name)
        if role is None:
            raise InputError(f"There is no role {name!r} in a session of {spec.protocol}.")
        if peer not in role.askers(spec, self.name):
            raise spec.refusal(f"{peer!r} may not ask for this")
        if not part.helps:
            role.check(part, peer, body)
        # consent is to one model: tables it does not need are refused, even from the convener
        for names in role.tables(body):
            if not spec.learn.allows(names):
                raise spec.refusal("the session's model does not need this")
        if part.helps:
            return bytes(part.player(name).receive(body))
        if not isinstance(role, LinkingRole):  # before linking the people are not known
            self._bind_people(part)
        questions, leaving = role.questions(body), role.outflows(part, body)
        self._check_person_again(part, leaving)
        if questions:
            part.admit(questions, peer, self._require_consent(spec).rules)
        reply = bytes(part.player(name).receive(body))
        part.check_wanted()
        question = role.question(part, body)
        # recorded before the reply leaves: a crash may leave an entry without a release, never the reverse
        for item in leaving:
            draw = _draw_name(part, item)
            self.store.record_release(
                spec, peer, item, reply, rows=part.records, draw=draw, question=question
            )
        return reply

    def _bind_people(self, part: SessionParticipant) -> None:
        """Bind results of this session to the people that all parties signed.

        Raises RoundAborted or QueryRefused if these people differ from the people of earlier results.
        """
        if part.spec.linking is not None:
            part.require_joint_schema()
        others = self._require_consent(part.spec).other_people
        self.store.bind_people(part.spec.session, *part.people(part.linkage), others=others)

    def _check_convener(self, peer: str, spec: SessionSpec) -> None:
        if peer != spec.convener:
            raise spec.refusal(f"{peer!r} does not convene it")

    def _settle(self, part: SessionParticipant, _message: say.InEpoch) -> say.Settled:
        session, linkage = part.spec.session, part.linkage
        if linkage is None:
            linkage, consent = part.compute_linkage(), self._require_consent(part.spec)
            self.store.check_people(session, *part.people(linkage), others=consent.other_people)
            self.store.keep_linkage(session, linkage, consent.least_records)
        part.settle_links(linkage)
        signature = part.sign(RECORDS, linkage.alignment)
        return say.Settled(records=len(linkage.rows), alignment=linkage.alignment.hex(), signature=signature)

    def _arrange(self, part: SessionParticipant, message: say.Arrange) -> say.Done:
        part.arrange(message)
        return say.Done()

    def _learn(self, part: SessionParticipant, message: say.Learn) -> say.Learnt:
        """Learn this party's nodes or count tables, for session types without a miner."""
        spec, learner = part.spec, part.spec.kind.learner(part)
        learner.check(message)
        self._bind_people(part)
        questions = learner.questions(message)
        if questions:
            part.admit(questions, spec.convener, self._require_consent(spec).rules)
        part.learning = True
        try:
            with self._connect(spec) as members:
                nodes, item = learner.learn(message, lambda role: _WhileWanted(members(role), part))
            part.check_wanted()
        finally:
            part.learning = False
        reply, draw = say.Learnt(nodes=nodes), part.epoch.hex()
        self.store.record_release(spec, spec.convener, item, say.encode(reply), rows=part.records, draw=draw)
        return reply

    def _model(self, part: SessionParticipant, message: say.Share) -> say.Done:
        """Store the model of the session."""
        if "result" in message.model:
            check_result(message.model)
        elif "tables" not in message.model:
            model_of(message.model)  # raises InputError if it is not a valid model
        if not part.helps:
            part.spec.kind.check_model(part, message.model)
        self.keep_model(part.spec.session, message.model)
        return say.Done()

    def _ledger_end(self, _part: SessionParticipant, _message: say.InEpoch) -> say.LedgerEnd:
        return say.LedgerEnd(end=self.store.ledger_end().encode().decode("ascii"))

    def _witness(self, part: SessionParticipant, message: say.Witness) -> say.Done:
        """Check that this node's ledger has an end that the convener has seen; else it was rolled back."""
        try:
            end = SignedMark.decode(message.end.encode())
        except FileError:
            end = None
        if end is None or not end.signature:
            raise DecodingError("The message is not a signed end of a release ledger.")
        convener = part.spec.convener
        identity = self.identities([convener])[convener]  # raises for an unknown identity: nothing is stored
        verify_signature(identity, bytes.fromhex(message.signature), WITNESS, end.encode())
        try:
            self.store.store_witness(convener, end, message.signature)
        except RoundAborted as error:
            self._tell(f"session {part.spec.session!r} was refused: {error}")
            raise
        return say.Done()

    def _end(self, part: SessionParticipant, _message: say.InEpoch) -> say.Done:
        part.forget()
        self.store.end(part.spec, part.epoch)
        with self._guard:
            self._open.pop(part.spec.session, None)
        return say.Done()


def _draw_name(part: SessionParticipant, item: Outflow) -> str:
    """Return the name of the random draw that an outflow contains: releases of one draw count once."""
    if item.epsilon is not None:  # ε covers all tables of the session together
        return f"noise {part.spec.digest}"
    return part.draw if item.policy is not None else part.epoch.hex()


def _check_epoch(part: SessionParticipant, message: say.InEpoch) -> None:
    if message.epoch != part.epoch.hex():
        raise InputError("The message belongs to another epoch of this session.")


def check_result(values: Mapping[str, Any], depth: int = 1) -> None:
    """Raise InputError if values are not a result of statistics: a title, rows and notes.

    Parameters
    ----------
    values : mapping
        Plain values that another node sent.
    depth : int
        The most levels of nested results, such as the tests of survival curves.
    """
    rows: Any = values.get("rows")
    notes: Any = values.get("notes")
    texts = [values.get("result"), values.get("title"), *(notes if isinstance(notes, list) else [None])]
    cells = [cell for row in rows for cell in row.values()] if _are_rows(rows) else [()]
    inner = [it for name, it in values.items() if name not in {"result", "title", "rows", "notes"}]
    if (
        not all(isinstance(text, str) for text in texts)
        or not all(cell is None or isinstance(cell, str | int | float) for cell in cells)
        or not all(isinstance(it, dict) and depth > 0 for it in inner)
    ):
        raise InputError("A result of statistics must have a title, rows of numbers or texts, and notes.")
    for it in inner:
        check_result(it, depth - 1)


def _are_rows(rows: Any) -> bool:
    return isinstance(rows, list) and all(isinstance(row, dict) for row in rows)
