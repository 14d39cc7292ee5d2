"""One session at one node: the roles it plays, made when they are needed and forgotten at the end."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from masquerade.core.errors import InputError, PolicyMismatch, RoundAborted
from masquerade.core.query import Query
from masquerade.core.util.scratch import Scratch
from masquerade.crypto.errors import SealBroken
from masquerade.crypto.keys import verify_signature
from masquerade.protocols.linkage.pseudonyms import keyed_pseudonyms
from masquerade.protocols.linkage.psi import LinkingParty
from masquerade.protocols.vertical.disguised_cells import Room
from masquerade.protocols.wire.codec import SESSION_SIZE
from masquerade.services.parties.kinds import Player, Role
from masquerade.services.parties.linkage import LINKING, Linkage
from masquerade.services.parties.local_data import LocalData, RecordBlock
from masquerade.services.parties.messages import Arrange
from masquerade.services.parties.session import JointSchema, SessionSpec
from masquerade.services.parties.settings import RulesSettings
from masquerade.sources.control.answer_history import Answered
from masquerade.sources.control.inference_control import InferenceControl

if TYPE_CHECKING:
    from masquerade.services.parties.party import Party

POLICY, RECORDS = "text of a party's policy", "records of a party"  # what signatures are about


class Participant:
    """A node in one session and one epoch: its records, what was linked of them, and the roles it plays.

    Each party signs its policy and which records take part, so that whoever convenes can tell nobody anything
    else. `joint` is what all agreed on, None before that. Keys of roles live in memory only: a node that was
    restarted begins them anew, in a new epoch. What was linked survives, and reports come from the memo, so
    that nothing is disguised twice. Messages are answered under a `lock`; while it is `learning`, a party
    asks others itself. Of the `node` a role needs its `name`, its `identity`, `identities_of` others, and its
    memo, `kept_memo`.

    A helper has no `data`: parties say how many `agreed_records` take part, in which `agreed_alignment`.
    """

    agreed_records, agreed_alignment = 0, b""

    def __init__(self, node: Party, spec: SessionSpec, epoch: bytes, data: LocalData | None = None) -> None:
        self.node, self.spec, self.epoch, self._data = node, spec, epoch, data
        self.limits, self.earlier_pools = node.settings.limits, node.store.pools()
        self.scratch = Scratch(node.settings.state)
        self.linkage = node.store.linkage(spec.session, epoch, self.scratch)
        self.joint: JointSchema | None = None
        self._players: dict[str, Player] = {}
        self._people: tuple[Linkage | None, str] | None = None
        self._noted: set[Query] = set()
        self._control: InferenceControl | None = None
        self.lock, self.learning, self.cancelled = threading.RLock(), False, False

    def check_wanted(self) -> None:
        """Go no further where the session was cancelled meanwhile."""
        if self.cancelled:
            raise RoundAborted(f"Session {self.spec.session!r} was cancelled.", spent=False)

    @property
    def helps(self) -> bool:
        """Tell whether this node holds no records, and helps."""
        return self._data is None

    @property
    def data(self) -> LocalData:
        """Return the records of a party."""
        if self._data is None:
            raise InputError("This node helps in the session and holds no records.")
        return self._data

    @property
    def policy_text(self) -> dict[str, Any]:
        """Return the policy of the variables that this party brings, nothing if it brings none."""
        policy = self.data.policy
        return policy.to_dict() if len(policy.schema) else {}

    @property
    def roles(self) -> Mapping[str, Role]:
        """Return the roles of this session by name, linking among them at a party."""
        linking = () if self.helps or self.spec.linking != "intersection" else (LINKING,)
        return {role.name: role for role in (*self.spec.kind.roles, *linking)}

    @property
    def records(self) -> int:
        """Return how many records take part."""
        return self.data.rows if self.linkage is None else len(self.linkage.rows)

    @property
    def draw(self) -> str:
        """Return what names the draws behind reports: another secret in the memo means other draws."""
        return f"{self.node.kept_memo().id}:{self.data.memo_id}"

    @property
    def least_people(self) -> int:
        """Return how many people at least are told apart from others in what is counted here."""
        consent = self.node.settings.consent(self.spec.session)
        return 1 if consent is None else consent.least_records

    @property
    def room(self) -> Room:
        """Return how much this party takes of another one."""
        return Room(self.limits.rows, self.limits.arrow_bytes)

    def people(self, linkage: Linkage | None) -> tuple[str, bool]:
        """Return the digest of who takes part, of all here or of those that were linked.

        And whether results are exact: two of them then differ by what is true of whom they differ in.
        """
        if self._people is None or self._people[0] is not linkage:
            self._people = (linkage, self.data.people(None if linkage is None else linkage.rows))
        return self._people[1], self.spec.kind.exact(self.data.policy)

    def admit(self, questions: Sequence[Query], peer: str, rules: RulesSettings | None) -> None:
        """Refuse counts that the rules of this node's consent do not allow; note those that may leave.

        What is agreed to counts as answered, whoever else may refuse it. Without rules it is noted all the
        same: later sessions may have some.
        """
        joint = self.joint
        schema = self.data.policy.observed if joint is None else self.spec.kind.schema(self.spec, joint)
        new = [
            it for it in dict.fromkeys(questions) if it not in self._noted and set(it.names) <= set(schema)
        ]
        if not new:  # what has other names is refused by the role
            return
        for query in new:
            query.check(schema)
        if rules is not None:
            if self._control is None:
                counts = self.data.source(self.node.kept_memo()) if rules.data_dependent is not None else None
                self._control = self.node.store.control(schema, rules.rules(), counts)
            self._control.admit(new, recipient=peer, purpose=self.spec.session)
        else:
            names = dict.fromkeys(name for query in new for name in query.names)
            variables = tuple(schema[name] for name in names)
            self.node.store.answered.append(Answered(tuple(new), variables, peer, self.spec.session))
        self._noted.update(new)

    def keep_found(self, model: Mapping[str, Any]) -> None:
        """Have it on the disk which model this party found itself, where parties compute together."""
        self.node.store.keep_found(self.spec.session, self.epoch, text_digest(model))

    def burn_opening(self) -> None:
        """Have it on the disk that what was drawn in this session opens; a second time it is refused."""
        self.node.store.burn_opening(self.spec.session)

    def check_found(self, model: Mapping[str, Any]) -> None:
        """Refuse another model than this party found itself in this epoch; a restarted one knows it still."""
        found = self.node.store.found(self.spec.session, self.epoch)
        if found is None:
            raise self._accused("This party has found no model in this session: it takes nobody's word.")
        if found != text_digest(model):
            raise self._accused("The model is another than this party found with the others.")

    def player(self, role: str) -> Any:
        """Return who answers the messages of a role."""
        if role not in self._players:
            if self.helps:
                raise RoundAborted(f"There is no role {role!r} here, or it is not arranged yet.", spent=False)
            self._players[role] = self.roles[role].player(self)
        return self._players[role]

    def found_links(self) -> Linkage:
        """Return which records linking came to."""
        data = self.data
        if self.spec.linking == "keyed":
            if data.linking_key is None:
                raise InputError("This party has no linking key: data.linking_key in the settings.")
            keys = data.keys()
            # of this text and this epoch: pseudonyms of two sessions have nothing to do with each other
            session = hashlib.sha256(bytes.fromhex(self.spec.digest) + self.epoch).digest()[:SESSION_SIZE]
            tags = keyed_pseudonyms(
                keys, data.linking_key, session, most=self.limits.rows, scratch=self.scratch
            )
            return Linkage.of(None, tags, self.scratch)
        linker = self._players.get(LINKING.name)
        if not isinstance(linker, LinkingParty):
            raise _not_linked()
        if self.spec.kind.same_records:
            return Linkage.of(linker.rows, linker.common_tags, self.scratch)
        return Linkage.of(None, linker.tags, self.scratch)

    def settle_links(self, found: Linkage) -> None:
        """Fix which records take part and under which pseudonyms, and let go of the masks of linking."""
        self.linkage = found
        self._forget_masks()

    def linked(self) -> Linkage:
        """Return which records take part, once they are linked."""
        if self.linkage is None:
            raise _not_linked()
        return self.linkage

    def aligned(self) -> RecordBlock:
        """Return the linked records, in the order that all parties share."""
        return self.data.whole.take(self.linked().rows)

    def columns(self) -> dict[str, Any]:
        """Return what all agreed on about columns of linked records: schema, owners and alignment."""
        joint, alignment = self.arranged(), self.agreed_alignment if self.helps else self.linked().alignment
        return {"schema": joint.schema, "owners": joint.owners, "alignment": alignment}

    def arranged(self) -> JointSchema:
        """Return what all agreed on."""
        if self.joint is None:
            raise RoundAborted("The variables of this session are not arranged here.", spent=False)
        return self.joint

    def arrange(self, message: Arrange) -> None:
        """Take what all agreed on, if they signed it for this epoch and it is what this node has.

        Building a policy may cost much: none is built before its party is known to have signed its text.
        """
        spec = self.spec
        if set(message.policies) != set(spec.parties):
            raise InputError("An arrangement has a policy for every party, and for nobody else.")
        digests = {party: text_digest(policy) for party, policy in message.policies.items()}
        if not self.helps and digests[self.node.name] != text_digest(self.policy_text):
            raise PolicyMismatch("The arrangement names another policy for this party than it has.")
        for party, digest in digests.items():
            if not self._signed(party, POLICY, digest, message.signatures):
                raise self._accused(f"The policy shown for party {party!r} is not signed by it.")
        joint = JointSchema.from_dict(message.policies)
        spec.check(joint)
        if spec.kind.same_records:
            self._check_records(message)
        self.joint = joint
        if self.helps:
            self.agreed_records, self.agreed_alignment = message.records, bytes.fromhex(message.alignment)
            self._players = dict.fromkeys(self.roles, spec.kind.helper(self))

    def sign(self, label: str, what: bytes) -> str:
        """Return this node's word for something, in an epoch of a session."""
        return self.node.identity.sign(label, *self._facts(self.node.name, what)).hex()

    def renew(self) -> None:
        """Let go of keys, so that roles begin anew; linked records and drawn reports stay."""
        self._forget_masks()
        self._players.clear()
        self.joint = None

    def forget(self) -> None:
        """Destroy keys and pseudonyms."""
        self.renew()
        self.linkage = None

    def _forget_masks(self) -> None:
        linker = self._players.pop(LINKING.name, None)
        if isinstance(linker, LinkingParty):
            linker.forget()

    def _check_records(self, message: Arrange) -> None:
        """Refuse unless every party signed that these very records take part, those that all have.

        A helper, who has linked none, takes the parties' word.
        """
        alignment = bytes.fromhex(message.alignment)
        own = None if self.linkage is None else self.linkage.alignment
        if self.node.name in self.spec.parties and own != alignment:
            raise self._accused("The arrangement is about other records than were linked here.")
        for party in self.spec.parties:
            if not self._signed(party, RECORDS, alignment, message.aligned):
                raise self._accused(f"Party {party!r} did not sign that the same records take part.")

    def _signed(self, party: str, label: str, what: bytes, signatures: Mapping[str, str]) -> bool:
        """Tell whether a party signed something; of its own word a node needs no proof."""
        if party == self.node.name:
            return True
        known = self.node.identities_of(self.spec.parties)[party]
        try:
            signature = bytes.fromhex(signatures.get(party, ""))
            verify_signature(known, signature, label, *self._facts(party, what))
        except (ValueError, SealBroken):
            return False
        return True

    def _facts(self, party: str, what: bytes) -> tuple[bytes, ...]:
        return bytes.fromhex(self.spec.digest), self.epoch, party.encode(), what

    def _accused(self, reason: str) -> RoundAborted:
        return RoundAborted(reason, spent=False, culprits=(self.spec.convener,))


def text_digest(values: Mapping[str, Any]) -> bytes:
    """Return the SHA-256 of a policy's or a model's text as it is sent: no more than reading it costs."""
    text = json.dumps(json.loads(json.dumps(values)), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).digest()


def _not_linked() -> RoundAborted:
    return RoundAborted("The records of this session are not linked here.", spent=False)
