"""What a node answers as a party: only sessions its own file consents to, only to whom they are with."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from masquerade.core.atomic import write_whole
from masquerade.core.errors import InputError, PolicyMismatch, QueryRefused, Refusal, RoundAborted
from masquerade.disguising.report_draws import Codes
from masquerade.learn.model_file import model_of
from masquerade.protocols.codec import tag_of
from masquerade.protocols.vertical.cross_parents import cross_parents
from masquerade.protocols.vertical.fetch import Room
from masquerade.protocols.vertical.messages import Announce, Request
from masquerade.protocols.vertical.model_one import LearningSite
from masquerade.services.common.settings import Limits, Strict
from masquerade.services.parties import messages as say
from masquerade.services.parties.disclosures import leaving, named_by, parameters_leaving, tables_asked
from masquerade.services.parties.joint_schema import JointSchema
from masquerade.services.parties.local_data import LocalData, read_local_data
from masquerade.services.parties.participant import HelperParticipant, NodeIdentity, Participant
from masquerade.services.parties.session import Goal, SessionSpec
from masquerade.services.parties.session_goal import own_parameters, own_parents
from masquerade.services.parties.session_store import SessionStore
from masquerade.services.parties.settings import Consent, PartySettings, SessionNodeSettings
from masquerade.services.parties.signatures import (
    check_policies,
    check_records,
    same_records,
    signed_policy,
    signed_records,
)
from masquerade.services.parties.transport import Connector

ROLES = ("linking", "pooling", "cells", "products", "paillier", "projection")


@dataclass(slots=True, eq=False)
class OpenSession:
    """A session that is going on here, and the lock under which its messages are answered."""

    part: Participant | HelperParticipant
    lock: threading.RLock


class Party:
    """Answers for one node. `outward` reaches other parties, where a protocol lets parties ask each other.

    `tell` is told, for the operator alone, what is wrong with the node's own records.
    """

    def __init__(
        self,
        settings: SessionNodeSettings,
        me: NodeIdentity,
        memory: SessionStore,
        outward: Connector,
        tell: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._settings, self._me, self._memory, self._outward = settings, me, memory, outward
        self._tell = tell
        self._open: dict[str, OpenSession] = {}
        self._guard = threading.Lock()
        self._control: dict[str, Callable[[SessionSpec, OpenSession, bytes], Strict]] = {
            "settle": self._settle,
            "arrange": self._arrange,
            "learn": self._learn,
            "model": self._model,
            "end": self._end,
        }

    def receive(self, peer: str, session: str, role: str, body: bytes) -> bytes:
        """Answer a message of a session; a refused one changes nothing and reveals nothing."""
        if role == "begin":
            return say.encode(self._begin(peer, session, say.decode(body, say.Begin)))
        current = self._open.get(session)
        if current is None:
            state = (
                "has ended here" if self._memory.ended(session) else "has not begun here, or was interrupted"
            )
            raise RoundAborted(f"Session {session!r} {state}.", spent=False)
        spec = current.part.spec
        with current.lock:
            if role in self._control:
                self._check_convener(peer, spec)
                return say.encode(self._control[role](spec, current, body))
            return self._protocol(peer, spec, current, role, body)

    def identities(self, spec: SessionSpec) -> dict[str, bytes]:
        """Return the identities of all parties of a session, this node's own among them if it is one."""
        own = {self._me.name: self._me.identity.public} if self._me.name in spec.parties else {}
        return self._me.identities_of(spec.parties) | own

    def own_codes(self, session: str) -> Mapping[str, Codes]:
        """Return the linked records of this node in a session that it convenes itself."""
        current = self._open.get(session)
        if current is None:
            raise RoundAborted(f"Session {session!r} has not begun here, or was interrupted.", spent=False)
        return taking(current).aligned().codes

    def _begin(self, peer: str, session: str, message: say.Begin) -> say.Begun:
        spec, epoch = message.spec, bytes.fromhex(message.epoch)
        if spec.session != session:
            raise InputError("The message is about another session than its place says.")
        self._check_convener(peer, spec)
        consent = self._consented(spec)
        ended = self._memory.ended(session)
        if ended == epoch:
            return say.Begun(policy=None, linked=False, ended=True)
        if ended is not None:
            raise not_consented(spec, "it has ended here; another run needs another name")
        with self._guard:
            current = self._open.get(session)
            if current is None or current.part.epoch != epoch or current.part.spec != spec:
                current = self._opened(spec, epoch, consent)
        part = current.part
        with current.lock:
            part.renew()
        if isinstance(part, HelperParticipant):
            return say.Begun(policy=None, linked=False)
        policy = part.holding.policy
        signature = signed_policy(self._me, spec, part.epoch, policy)
        return say.Begun(policy=policy.to_dict(), linked=part.linked is not None, signature=signature)

    def _opened(self, spec: SessionSpec, epoch: bytes, consent: Consent) -> OpenSession:
        """Let a session begin: everything that could refuse it comes before anything is remembered."""
        part = self._taking_part(spec, epoch, consent)
        pinned = spec.policies.get(self._me.name)
        if isinstance(part, Participant) and pinned is not None and pinned != part.holding.policy.id:
            raise PolicyMismatch(
                f"The session pins policy {pinned[:12]}…, this party disguises under "
                f"{part.holding.policy.id[:12]}…."
            )
        if isinstance(part, Participant) and part.holding.policy.disguised:
            self._memory.check_draw(part.draw, part.holding.memo_id)
        self._memory.begin(spec, epoch, part.holding.digest if isinstance(part, Participant) else "")
        self._open[spec.session] = OpenSession(part, threading.RLock())
        return self._open[spec.session]

    def _taking_part(
        self, spec: SessionSpec, epoch: bytes, consent: Consent
    ) -> Participant | HelperParticipant:
        settings = self._settings
        if spec.helper == self._me.name:
            return HelperParticipant(self._me, spec, epoch)
        if not isinstance(settings, PartySettings):
            raise not_consented(spec, "this node holds no records")
        key = settings.data.linking_key
        return Participant(
            self._me,
            spec,
            epoch,
            self._read(settings, spec, consent),
            linking_key=None if key is None else key.read_bytes(),
            linked=self._memory.linked(spec.session, epoch),
            most_rows=settings.limits.rows,
            most_cells=settings.limits.cells,
            earlier_pools=self._memory.pools(),
        )

    def _read(self, settings: PartySettings, spec: SessionSpec, consent: Consent) -> LocalData:
        """Read the records; what is wrong with them is this node's own affair, and said here alone."""
        try:
            return read_local_data(
                settings.data, consent.variables, apart=spec.protocol == "arbitrary-with-miner"
            )
        except InputError as error:
            self._tell(f"session {spec.session!r} cannot begin: {error}")
            raise RoundAborted(
                "Its records do not fit its settings or its policy; what it prints says how.", spent=False
            ) from None

    def _consented(self, spec: SessionSpec) -> Consent:
        consent = self._settings.consent(spec.session)
        if consent is None:
            raise not_consented(spec, "no session of that name is in this node's file")
        differences = consent.differences(spec)
        if differences:
            raise not_consented(spec, f"this node's file says otherwise about {', '.join(differences)}")
        if self._memory.has_released_otherwise(spec):
            raise not_consented(spec, "something has left under another text; a new text needs a new name")
        return consent

    def _protocol(self, peer: str, spec: SessionSpec, current: OpenSession, role: str, body: bytes) -> bytes:
        part = current.part
        if role not in ROLES:
            raise InputError(f"There is no role {role!r}.")
        self._check_asker(peer, spec, role, body)
        if role == "cells" and spec.protocol == "vertical-without-miner":
            self._check_crossing(peer, spec, taking(current), body)
        for names in tables_asked(role, body):
            if not spec.learn.allows(names):
                raise not_consented(spec, "this is not what it is to learn")
        if isinstance(part, Participant) and role != "linking":
            self._check_whom(spec, part)
        reply = part.role(role)(body)
        if isinstance(part, Participant):
            question = "" if role in {"linking", "cells"} else hashlib.sha256(body).hexdigest()
            for item in (*leaving(role, body, part.holding.policy), *named_by(role, body, spec)):
                draw = part.draw if item.policy is not None else part.epoch.hex()
                self._memory.released(
                    spec, peer, item, reply, rows=part.records, draw=draw, question=question
                )
        return reply

    def _check_whom(self, spec: SessionSpec, part: Participant) -> None:
        """Let results be about the people that all parties signed, the same ones ever after."""
        if spec.linking is not None and part.arrangement is None:
            raise RoundAborted("The variables of this session are not arranged here.", spent=False)
        people, others = part.people(part.linked), self._consented(spec).other_people
        self._memory.bind_people(spec.session, people, exact=part.exact, others=others)

    def _check_asker(self, peer: str, spec: SessionSpec, role: str, body: bytes) -> None:
        """Let the convener ask, and for disguised cells without a miner the other parties."""
        others = spec.protocol == "vertical-without-miner" and role == "cells"
        askers = {*spec.parties} - {self._me.name} if others else {spec.convener}
        if peer not in askers:
            raise not_consented(spec, f"{peer!r} may not ask for this")
        if role == "cells" and asked_cells(body).recipient != peer:
            raise not_consented(spec, "cells go to whoever asks for them, and to nobody else")

    def _check_crossing(self, peer: str, spec: SessionSpec, part: Participant, body: bytes) -> None:
        """Let cross parents cross to the party that needs them, and nothing else."""
        if spec.learn.structure is None:
            return  # to find parents, a party looks at everything, disguised
        if part.arrangement is None:
            raise RoundAborted("The variables of this session are not arranged here.", spent=False)
        crossing = cross_parents(spec.learn.structure, part.arrangement.owners)
        names = asked_cells(body).names
        if not names or not set(names) <= set(crossing.get((self._me.name, peer), ())):
            raise not_consented(spec, f"the structure gives {peer!r} no need of these variables")

    def _check_convener(self, peer: str, spec: SessionSpec) -> None:
        if peer != spec.convener:
            raise not_consented(spec, f"{peer!r} does not convene it")

    def _settle(self, spec: SessionSpec, current: OpenSession, body: bytes) -> say.Settled:
        part = taking(current)
        say.check_epoch(say.decode(body, say.Settle).epoch, part.epoch)
        if part.linked is None:
            found, consent = part.found_links(), self._consented(spec)
            people = part.people(found)
            self._memory.check_people(spec.session, people, exact=part.exact, others=consent.other_people)
            self._memory.keep_linked(spec.session, found, consent.least_records)
        linked = part.settle_links()
        signature = signed_records(self._me, spec, part.epoch, linked.alignment)
        return say.Settled(records=len(linked.rows), alignment=linked.alignment.hex(), signature=signature)

    def _arrange(self, spec: SessionSpec, current: OpenSession, body: bytes) -> say.Done:
        message = say.decode(body, say.Arrange)
        say.check_epoch(message.epoch, current.part.epoch)
        arrangement = JointSchema.from_dict(message.policies)
        if set(arrangement.policies) != set(spec.parties):
            raise InputError("An arrangement has a policy for every party, and for nobody else.")
        part = current.part
        if isinstance(part, Participant) and arrangement.policies[self._me.name].id != part.holding.policy.id:
            raise PolicyMismatch("The arrangement names another policy for this party than it has.")
        check_policies(self._me, spec, part.epoch, arrangement, message.signatures)
        if same_records(spec):
            linked = part.linked if isinstance(part, Participant) else None
            check_records(self._me, spec, part.epoch, message, None if linked is None else linked.alignment)
        if isinstance(part, HelperParticipant):
            part.arrange(arrangement, message.records, bytes.fromhex(message.alignment))
            return say.Done()
        part.arrangement = arrangement
        return say.Done()

    def _learn(self, spec: SessionSpec, current: OpenSession, body: bytes) -> say.Learnt:
        """Learn own nodes from own clear and others' disguised columns."""
        part, message = taking(current), say.decode(body, say.Learn)
        say.check_epoch(message.epoch, part.epoch)
        if spec.protocol != "vertical-without-miner" or part.arrangement is None:
            raise InputError("Parties learn for themselves without a miner, once a session is arranged.")
        own = part.holding.policy.schema.names
        if not within_goal(message, spec.learn, own, part.parents):
            raise not_consented(spec, "this is not what it is to learn")
        self._check_whom(spec, part)
        others = {p: q for p, q in part.arrangement.policies.items() if p != self._me.name}
        with closing(self._outward(spec)) as members:
            site = LearningSite(part.site, others, room=room_of(self._settings.limits))
            source = site.source(members.role("cells"), message.structure)
        if message.structure is not None:
            nodes = own_parameters(source, message.structure, own)
        else:
            nodes = part.parents = own_parents(source, message.order or (), message.max_parents, own)
        item = parameters_leaving(own, values=message.structure is not None)
        told = say.Learnt(nodes=nodes)
        draw = part.epoch.hex()
        self._memory.released(spec, spec.convener, item, say.encode(told), rows=part.records, draw=draw)
        return told

    def _model(self, spec: SessionSpec, current: OpenSession, body: bytes) -> say.Done:
        """Keep the model that the session came to."""
        message = say.decode(body, say.Share)
        say.check_epoch(message.epoch, current.part.epoch)
        folder = self._settings.state / "models"
        folder.mkdir(mode=0o700, exist_ok=True)
        if "tables" not in message.model:
            model_of(message.model)  # what is no model is refused, not kept
        write_whole(folder / f"{spec.session}.json", say.plain(message.model), private=True)
        return say.Done()

    def _end(self, spec: SessionSpec, current: OpenSession, body: bytes) -> say.Done:
        say.check_epoch(say.decode(body, say.End).epoch, current.part.epoch)
        current.part.forget()
        self._memory.end(spec, current.part.epoch)
        with self._guard:
            self._open.pop(spec.session, None)
        return say.Done()


def room_of(limits: Limits) -> Room:
    """Return how much a node takes of a party."""
    return Room(limits.rows, limits.arrow_bytes)


def taking(current: OpenSession) -> Participant:
    """Return the part of a party; a helper has none of this."""
    if not isinstance(current.part, Participant):
        raise InputError("This node helps in the session and holds no records.")
    return current.part


def asked_cells(body: bytes) -> Announce | Request:
    """Return the question for cells that a message is."""
    return Announce.decode(body) if tag_of(body) == Announce.TAG else Request.decode(body)


def within_goal(message: say.Learn, goal: Goal, own: Sequence[str], found: Mapping[str, Any] | None) -> bool:
    """Tell whether a party is asked for no more than the session is to learn.

    Parents are asked for in the order agreed on; parameters for the structure agreed on, or for the parents
    that the party itself `found` for its `own` nodes.
    """
    if goal.structure is not None:
        return message.order is None and message.structure == goal.structure
    if message.structure is None:
        return (message.order, message.max_parents) == (goal.order, goal.max_parents)
    asked = {name: list(message.structure.get(name, ())) for name in own}
    return message.order is None and found is not None and asked == dict(found)


def not_consented(spec: SessionSpec, why: str) -> QueryRefused:
    """Return the refusal of a session."""
    return QueryRefused([Refusal("not_consented", f"Session {spec.session!r} is not consented to: {why}.")])
