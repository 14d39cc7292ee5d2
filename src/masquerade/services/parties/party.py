"""What a node answers as a party: only sessions its own file consents to, only to whom they are with."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from masquerade.core.errors import FileError, InputError, PolicyMismatch, RoundAborted
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
from masquerade.services.parties.kinds import Partition
from masquerade.services.parties.linkage import LINKING
from masquerade.services.parties.local_data import LocalData, read_local_data
from masquerade.services.parties.participant import POLICY, RECORDS, Participant, text_digest
from masquerade.services.parties.session import JointSchema, SessionSpec
from masquerade.services.parties.session_store import SessionStore
from masquerade.services.parties.settings import Consent, PartySettings, SessionNodeSettings

MEMO = "memo.json"
CANCEL = "cancel"  # the role of a convener who no longer wants a session
MOST_OF_CONTROL, MOST_OF_MODEL = 1 << 20, 1 << 23  # bytes: JSON takes up to thirty times as much in memory
Connector = Callable[[SessionSpec], AbstractContextManager[Callable[[str], Transport]]]


class _WhileWanted(NamedTuple):
    """How others are asked in a session until it is cancelled."""

    others: Transport
    part: Participant

    def exchange(self, party: str, message: bytes) -> bytes:
        self.part.check_wanted()
        return self.others.exchange(party, message)


class Party:
    """Answers for one node. `connect` reaches other parties, where a kind lets parties ask each other.

    `tell` is told, for the operator alone, what is wrong with the node's own records.
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
        if isinstance(settings, PartySettings):
            self.kept_memo()  # before any session: two that begin at once draw from the same one
        self.identity, self.store, self._connect, self._tell = identity, store, connect, tell
        self._open: dict[str, Participant] = {}
        self._guard = threading.Lock()
        self._control: dict[str, tuple[type[say.InEpoch], Callable[[Participant, Any], Strict]]] = {
            "settle": (say.InEpoch, self._settle),
            "arrange": (say.Arrange, self._arrange),
            "learn": (say.Learn, self._learn),
            "model": (say.Share, self._model),
            "ledger": (say.InEpoch, self._ledger_end),
            "witness": (say.Witness, self._witness),
            "end": (say.InEpoch, self._end),
        }

    def receive(self, peer: str, session: str, role: str, body: bytes) -> bytes:
        """Answer a message of a session; a refused one changes nothing and reveals nothing."""
        most = MOST_OF_MODEL if role == "model" else MOST_OF_CONTROL
        if (role in {"begin", CANCEL} or role in self._control) and len(body) > most:
            raise TooLarge(f"A message of this kind has at most {most:,} bytes.")
        if role == "begin":
            return say.encode(self._begin(peer, session, say.decode(body, say.Begin)))
        part = self._opened(session)
        if role == CANCEL:  # at once, whatever else goes on
            return say.encode(self._cancel(peer, part, say.decode(body, say.InEpoch)))
        if part.learning:  # it asks others meanwhile: two that wait for each other would wait for long
            raise RoundAborted(
                f"Party {self.name!r} is learning about its own nodes at this moment, and answers nothing "
                "else in this session: whoever convenes lets one party learn at a time.",
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
        """Withdraw from a session for good, as this node's operator wishes; what works for it stops."""
        if self.settings.consent(session) is None:
            raise InputError(
                f"There is no session {session!r} in this node's file, and none that it convenes."
            )
        self.store.cancel(session)
        part = self._open.get(session)
        if part is not None:
            self._drop(part)

    def _cancel(self, peer: str, part: Participant, message: say.InEpoch) -> say.Done:
        """Let go of a session that its convener no longer wants; it may begin again."""
        self._check_convener(peer, part.spec)
        _check_epoch(part, message)
        self.store.unlink(part.spec.session)
        self._drop(part)
        return say.Done()

    def _drop(self, part: Participant) -> None:
        """Let work for a session stop at its next message or reply, and destroy keys and pseudonyms."""
        part.cancelled = True
        with self._guard:
            if self._open.get(part.spec.session) is part:
                del self._open[part.spec.session]
        if part.lock.acquire(blocking=False):  # else whoever has it sees to it
            try:
                part.forget()
            finally:
                part.lock.release()

    def kept_memo(self) -> Memo:
        """Return the memo that reports of all sessions are drawn from, made when the node first starts."""
        return Memo.kept(self.settings.state / MEMO)

    def identities_of(self, names: Sequence[str]) -> dict[str, bytes]:
        """Return the identities of others; one that is not known is refused."""
        known = {name: peer.identity for name, peer in self.settings.peers.items() if peer.identity}
        missing = [name for name in names if name != self.name and name not in known]
        if missing:
            raise InputError(f"No identity is known for {', '.join(map(repr, missing))}.")
        return {name: bytes.fromhex(known[name]) for name in names if name != self.name}

    def identities(self, names: Sequence[str]) -> dict[str, bytes]:
        """Return the identities of parties, this node's own among them if it is one."""
        own = {self.name: self.identity.public} if self.name in names else {}
        return self.identities_of(names) | own

    def own_codes(self, session: str) -> Mapping[str, Codes]:
        """Return the linked records of this node in a session that it convenes itself."""
        return self._opened(session).aligned().codes

    def model_file(self, session: str) -> Path:
        """Return where the model of a session is kept."""
        folder = self.settings.state / "models"
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder / f"{session}.json"

    def keep_model(self, session: str, model: dict[str, Any]) -> None:
        """Have the model of a session on the disk."""
        text = json.dumps(model, ensure_ascii=False, indent=1) + "\n"
        write_whole(self.model_file(session), text, private=True)

    def _opened(self, session: str) -> Participant:
        part = self._open.get(session)
        if part is None:
            ended = self.store.ended(session)
            state = "has ended here" if ended else "has not begun here, or was interrupted"
            if self.store.cancelled(session):
                state = "was cancelled here by this node's operator"
            raise RoundAborted(f"Session {session!r} {state}.", spent=False)
        return part

    def _begin(self, peer: str, session: str, message: say.Begin) -> say.Begun:
        spec, epoch = message.spec, bytes.fromhex(message.epoch)
        if spec.session != session:
            raise InputError("The message is about another session than its place says.")
        self._check_convener(peer, spec)
        consent = self._consented(spec)
        if self.store.cancelled(session):
            raise spec.refused("this node's operator has cancelled it; another run needs another name")
        ended = self.store.ended(session)
        if ended == epoch:
            return say.Begun(policy=None, linked=False, ended=True)
        if ended is not None:
            raise spec.refused("it has ended here; another run needs another name")
        with self._guard:
            part = self._open.get(session)
            if part is None or part.epoch != epoch or part.spec != spec:
                part = self._started(spec, epoch, consent)
        with part.lock:
            part.renew()
        if part.helps:
            return say.Begun(policy=None, linked=False)
        text = part.policy_text
        signature = part.sign(POLICY, text_digest(text))
        return say.Begun(policy=text, linked=part.linkage is not None, signature=signature)

    def _started(self, spec: SessionSpec, epoch: bytes, consent: Consent) -> Participant:
        """Let a session begin: everything that could refuse it comes before anything is remembered."""
        records = ""
        if spec.helper == self.name:
            part = Participant(self, spec, epoch)
        elif isinstance(self.settings, PartySettings):
            part = Participant(self, spec, epoch, self._read(self.settings, spec, consent))
            pinned, policy, records = spec.policies.get(self.name), part.data.policy, part.data.digest
            if pinned is not None and pinned != policy.id:
                raise PolicyMismatch(
                    f"The session pins policy {pinned[:12]}…, this party disguises under {policy.id[:12]}…."
                )
            if spec.linking is None:  # nobody arranges anything: all have what this party has
                spec.check(JointSchema({self.name: policy} if len(policy.schema) else {}))
            if policy.disguised:
                self.store.check_draw(part.draw, part.data.memo_id)
        else:
            raise spec.refused("this node holds no records")
        self.store.begin(spec, epoch, records)
        self._open[spec.session] = part
        return part

    def _read(self, settings: PartySettings, spec: SessionSpec, consent: Consent) -> LocalData:
        """Read the records; what is wrong with them is this node's own affair, and said here alone."""
        apart = spec.kind.partition is Partition.CELLS
        try:
            needed = spec.needed(consent.variables)
            scratch = Scratch(settings.state)
            return read_local_data(settings.data, consent.variables, needed, apart=apart, scratch=scratch)
        except InputError as error:
            self._tell(f"session {spec.session!r} cannot begin: {error}")
            raise RoundAborted(
                "Its records do not fit its settings or its policy; what it prints says how.", spent=False
            ) from None

    def _consented(self, spec: SessionSpec) -> Consent:
        consent = self.settings.consent(spec.session)
        if consent is None:
            raise spec.refused("no session of that name is in this node's file")
        differences = consent.differences(spec)
        if differences:
            raise spec.refused(f"this node's file says otherwise about {', '.join(differences)}")
        if self.store.has_released_otherwise(spec):
            raise spec.refused("something has left under another text; a new text needs a new name")
        return consent

    def _answer(self, peer: str, part: Participant, name: str, body: bytes) -> bytes:
        """Let a role answer, and write down what leaves before it does."""
        spec, role = part.spec, part.roles.get(name)
        if role is None:
            raise InputError(f"There is no role {name!r} in a session of {spec.protocol}.")
        if peer not in role.askers(spec, self.name):
            raise spec.refused(f"{peer!r} may not ask for this")
        if not part.helps:
            role.check(part, peer, body)
        for names in role.tables(body):
            if not spec.learn.allows(names):
                raise spec.refused("this is not what it is to learn")
        if part.helps:
            return bytes(part.player(name).receive(body))
        if role is not LINKING:
            self._check_whom(part)
        questions = role.questions(body)
        if questions:
            part.admit(questions, peer, self._consented(spec).rules)
        reply = bytes(part.player(name).receive(body))
        part.check_wanted()
        question = hashlib.sha256(body).hexdigest() if role.fresh else ""
        for item in role.outflows(part, body):
            draw = part.draw if item.policy is not None else part.epoch.hex()
            self.store.released(spec, peer, item, reply, rows=part.records, draw=draw, question=question)
        return reply

    def _check_whom(self, part: Participant) -> None:
        """Let results be about the people that all parties signed, the same ones ever after."""
        if part.spec.linking is not None:
            part.arranged()
        others = self._consented(part.spec).other_people
        self.store.bind_people(part.spec.session, *part.people(part.linkage), others=others)

    def _check_convener(self, peer: str, spec: SessionSpec) -> None:
        if peer != spec.convener:
            raise spec.refused(f"{peer!r} does not convene it")

    def _settle(self, part: Participant, _message: say.InEpoch) -> say.Settled:
        session, linkage = part.spec.session, part.linkage
        if linkage is None:
            linkage, consent = part.found_links(), self._consented(part.spec)
            self.store.check_people(session, *part.people(linkage), others=consent.other_people)
            self.store.keep_linkage(session, linkage, consent.least_records)
        part.settle_links(linkage)
        signature = part.sign(RECORDS, linkage.alignment)
        return say.Settled(records=len(linkage.rows), alignment=linkage.alignment.hex(), signature=signature)

    def _arrange(self, part: Participant, message: say.Arrange) -> say.Done:
        part.arrange(message)
        return say.Done()

    def _learn(self, part: Participant, message: say.Learn) -> say.Learnt:
        """Learn about own nodes, where a kind lets parties learn for themselves."""
        spec, learner = part.spec, part.spec.kind.learner(part)
        learner.check(message)
        self._check_whom(part)
        questions = learner.questions(message)
        if questions:
            part.admit(questions, spec.convener, self._consented(spec).rules)
        part.learning = True
        try:
            with self._connect(spec) as members:
                nodes, item = learner.learn(message, lambda role: _WhileWanted(members(role), part))
            part.check_wanted()
        finally:
            part.learning = False
        told, draw = say.Learnt(nodes=nodes), part.epoch.hex()
        self.store.released(spec, spec.convener, item, say.encode(told), rows=part.records, draw=draw)
        return told

    def _model(self, part: Participant, message: say.Share) -> say.Done:
        """Keep the model that the session came to."""
        if "tables" not in message.model:
            model_of(message.model)  # what is no model is refused, not kept
        if not part.helps:
            part.spec.kind.check_model(part, message.model)
        self.keep_model(part.spec.session, message.model)
        return say.Done()

    def _ledger_end(self, _part: Participant, _message: say.InEpoch) -> say.Ledger:
        return say.Ledger(end=self.store.ledger_end().encode().decode("ascii"))

    def _witness(self, part: Participant, message: say.Witness) -> say.Done:
        """Take an end of the own ledger that the convener has seen; a ledger without it was rolled back."""
        try:
            end = SignedMark.decode(message.end.encode())
        except FileError:
            end = None
        if end is None or not end.signature:
            raise DecodingError("The message is no signed end of a release ledger.")
        convener = part.spec.convener
        identity = self.identities([convener])[convener]  # refuses one that is not known: nothing is kept
        verify_signature(identity, bytes.fromhex(message.signature), WITNESS, end.encode())
        try:
            self.store.witnessed(convener, end, message.signature)
        except RoundAborted as error:
            self._tell(f"session {part.spec.session!r} was refused: {error}")
            raise
        return say.Done()

    def _end(self, part: Participant, _message: say.InEpoch) -> say.Done:
        part.forget()
        self.store.end(part.spec, part.epoch)
        with self._guard:
            self._open.pop(part.spec.session, None)
        return say.Done()


def _check_epoch(part: Participant, message: say.InEpoch) -> None:
    if message.epoch != part.epoch.hex():
        raise InputError("The message belongs to another epoch of this session.")
