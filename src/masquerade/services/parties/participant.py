"""State of one session at one node: its records, and its roles, created on demand and deleted at the end."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError, PolicyMismatch, RoundAborted
from masquerade.core.query import Query
from masquerade.core.util.scratch import Scratch
from masquerade.crypto.errors import SealBroken
from masquerade.crypto.keys import verify_signature
from masquerade.protocols.linkage.derived_keys import keys_left
from masquerade.protocols.linkage.pseudonyms import keyed_pseudonyms
from masquerade.protocols.linkage.psi import LinkingParty
from masquerade.protocols.linkage.record_keys import Key
from masquerade.protocols.vertical.disguised_cells import Room
from masquerade.protocols.wire.codec import SESSION_SIZE
from masquerade.services.parties.kinds import Player, Role
from masquerade.services.parties.linkage import LINKINGS, Linkage
from masquerade.services.parties.local_data import LocalData, RecordBlock
from masquerade.services.parties.messages import Arrange
from masquerade.services.parties.session import JointSchema, SessionSpec
from masquerade.services.parties.settings import RulesSettings
from masquerade.sources.control.answer_history import Answered
from masquerade.sources.control.inference_control import InferenceControl

if TYPE_CHECKING:
    from masquerade.services.parties.party import Party

POLICY, RECORDS = "text of a party's policy", "records of a party"  # labels of signatures: part of the format


class SessionParticipant:
    """A node in one session and one epoch: its records, their linkage, and the roles it plays.

    Each party signs its policy and the records that take part, so that the convener cannot show different
    policies or records to different parties. Keys of roles are in memory only, and are created again after a
    restart. The linkage survives a restart, and reports come from the memo, so no value is disguised twice.

    Attributes
    ----------
    node : Party
        The node. Roles use its `name`, `identity`, `identities_of` and `kept_memo`.
    joint : JointSchema or None
        The policies that all parties signed, None before the session is arranged.
    linkage : Linkage or None
        The linked records, None before they are linked.
    lock : RLock
        Held while a message is answered.
    learning : bool
        True while this party queries others to learn its own nodes.
    is_beyond_limit : bool
        True if the reports reveal more about a person than the node's limit allows. All results are then
        treated as exact.
    ledger_checked : int
        Line of the release ledger up to which reports were added up for the limit.
    agreed_records, agreed_alignment
        At a helper, which has no `data`: the number of records, as the convener states it, and the alignment
        that the parties signed.
    """

    agreed_records, agreed_alignment = 0, b""
    is_beyond_limit, ledger_checked = False, 0

    def __init__(self, node: Party, spec: SessionSpec, epoch: bytes, data: LocalData | None = None) -> None:
        self.node, self.spec, self.epoch, self._data = node, spec, epoch, data
        self.limits, self.earlier_pools = node.settings.limits, node.store.pools()
        self.scratch = Scratch(node.settings.state)
        self.linkage = node.store.linkage(spec.session, epoch, self.scratch)
        self.joint: JointSchema | None = None
        self._players: dict[str, Player] = {}
        self._offered: dict[int, NDArray[np.int64]] = {}
        self._people: tuple[Linkage | None, str] | None = None
        self._noted: set[Query] = set()
        self._control: InferenceControl | None = None
        self.lock, self.learning, self.cancelled = threading.RLock(), False, False

    def check_wanted(self) -> None:
        """Raise RoundAborted if the session was cancelled."""
        if self.cancelled:
            raise RoundAborted(f"Session {self.spec.session!r} was cancelled.", spent=False)

    @property
    def helps(self) -> bool:
        """Return True if this node is the helper, which holds no records."""
        return self._data is None

    @property
    def data(self) -> LocalData:
        """Return the records of a party."""
        if self._data is None:
            raise InputError("This node helps in the session and holds no records.")
        return self._data

    @property
    def policy_text(self) -> dict[str, Any]:
        """Return the policy of the variables that this party brings, empty if it brings none."""
        policy = self.data.policy
        return policy.to_dict() if len(policy.schema) else {}

    @property
    def roles(self) -> Mapping[str, Role]:
        """Return the roles of this session by name; a party also has the roles of linking."""
        links = not self.helps and self.spec.linking == "intersection"
        linking = LINKINGS[: self.spec.linking_rounds] if links else ()
        return {role.name: role for role in (*self.spec.kind.roles, *linking)}

    @property
    def records(self) -> int:
        """Return the number of records that take part."""
        return self.data.rows if self.linkage is None else len(self.linkage.rows)

    @property
    def draw(self) -> str:
        """Return a name for the random draws of the reports: the ids of the memo and of the policy."""
        return f"{self.node.kept_memo().id}:{self.data.memo_id}"

    @property
    def least_people(self) -> int:
        """Return the least number of people in a group that is counted separately."""
        consent = self.node.settings.consent(self.spec.session)
        return 1 if consent is None else consent.least_records

    @property
    def room(self) -> Room:
        """Return the largest numbers of rows and bytes that this party accepts from another party."""
        return Room(self.limits.rows, self.limits.arrow_bytes)

    def people(self, linkage: Linkage | None) -> tuple[str, bool]:
        """Return the digest of the people that take part, and whether results about them are exact.

        These are all people of this party, or the linked people if `linkage` is given. Two exact results
        about different sets of people reveal, by their difference, values of the people in which the sets
        differ.
        """
        if self._people is None or self._people[0] is not linkage:
            self._people = (linkage, self.data.people(None if linkage is None else linkage.rows))
        return self._people[1], self.is_beyond_limit or self.spec.kind.exact(self.data.policy)

    def admit(self, questions: Sequence[Query], peer: str, rules: RulesSettings | None) -> None:
        """Record counts that may leave; raise QueryRefused if the rules of this node's consent forbid them.

        Admitted counts are recorded as answered even if another party refuses them. They are recorded
        without rules, too, since a later session may have rules.

        Parameters
        ----------
        questions : sequence of Query
            The counts.
        peer : str
            The recipient.
        rules : RulesSettings or None
            The rules of the consent.
        """
        joint = self.joint
        schema = self.data.policy.observed if joint is None else self.spec.kind.schema(self.spec, joint)
        new = [
            it for it in dict.fromkeys(questions) if it not in self._noted and set(it.names) <= set(schema)
        ]
        if not new:  # the role itself refuses unknown variables
            return
        for query in new:
            query.check(schema)
        if rules is not None:
            if self._control is None:
                counts = self.data.source(self.node.kept_memo()) if rules.data_dependent is not None else None
                self._control = self.node.store.control(schema, rules.rules(), counts, self.records)
            self._control.admit(new, recipient=peer, purpose=self.spec.session)
        else:
            names = dict.fromkeys(name for query in new for name in query.names)
            variables = tuple(schema[name] for name in names)
            self.node.store.answered.append(Answered(tuple(new), variables, peer, self.spec.session))
        self._noted.update(new)

    def store_model_digest(self, model: Mapping[str, Any]) -> None:
        """Persist the digest of the model that this party computed together with the other parties."""
        self.node.store.store_model_digest(self.spec.session, self.epoch, text_digest(model))

    def burn_run(self, run: bytes) -> None:
        """Persist that a computation starts; raise QueryRefused if no further result may be opened."""
        self.node.store.burn_run(self.spec.session, run, self._most_openings)

    def burn_opening(self) -> None:
        """Persist that a computation opens a result; raise QueryRefused if it may not be opened."""
        self.node.store.burn_opening(self.spec.session, self._most_openings)

    @property
    def _most_openings(self) -> int:
        """Return the number of computations that may open a result."""
        consent = self.node.settings.consent(self.spec.session)
        return 1 if consent is None else consent.openings

    def check_model_digest(self, model: Mapping[str, Any]) -> None:
        """Raise RoundAborted if a model differs from the one that this party computed in this epoch.

        The digest is durable, so a party that was restarted still knows it.
        """
        digest = self.node.store.model_digest(self.spec.session, self.epoch)
        if digest is None:
            raise self._accuse_convener(
                "This party has computed no model in this session, and accepts none from the convener."
            )
        if digest != text_digest(model):
            raise self._accuse_convener("The model differs from the one that this party computed.")

    def player(self, role: str) -> Any:
        """Return the object that answers messages of a role, created when the first message arrives."""
        if role not in self._players:
            if self.helps:
                raise RoundAborted(f"There is no role {role!r} here, or it is not arranged yet.", spent=False)
            self._players[role] = self.roles[role].player(self)
        return self._players[role]

    def compute_linkage(self) -> Linkage:
        """Return the linkage: pseudonyms under the shared key, or the result of PSI."""
        data = self.data
        if self.spec.linking == "keyed":
            if data.linking_key is None:
                raise InputError("This party has no linking key: set data.linking_key in the settings.")
            keys = data.keys()
            # derived from the session's text and epoch: pseudonyms of two sessions cannot be linked
            session = hashlib.sha256(bytes.fromhex(self.spec.digest) + self.epoch).digest()[:SESSION_SIZE]
            tags = keyed_pseudonyms(
                keys, data.linking_key, session, most=self.limits.rows, scratch=self.scratch
            )
            return Linkage.of(None, tags, self.scratch)
        linkers = [self._players.get(role.name) for role in LINKINGS[: self.spec.linking_rounds]]
        rounds = [linker for linker in linkers if isinstance(linker, LinkingParty)]
        if len(rounds) < len(linkers):
            raise _not_linked()
        if self.spec.link_by:
            rows = [self._offered[number][linker.rows] for number, linker in enumerate(rounds)]
            tags = np.concatenate([linker.common_tags for linker in rounds])
            return Linkage.of(np.concatenate(rows), tags, self.scratch)
        [linker] = rounds
        if self.spec.kind.same_records:
            return Linkage.of(linker.rows, linker.common_tags, self.scratch)
        return Linkage.of(None, linker.tags, self.scratch)

    def keys_to_link(self, number: int) -> Sequence[Key]:
        """Return the keys that this party offers in a round of linking.

        Derived keys are offered for records that earlier rounds have not linked, unless several of these
        records share the key. A random key is added, so that the set is never empty.
        """
        if not self.spec.link_by:
            return self.data.keys()
        taken: set[int] = set()
        for before in range(number):
            linker = self._players.get(LINKINGS[before].name)
            if not isinstance(linker, LinkingParty):
                raise _not_linked()
            taken.update(self._offered[before][linker.rows].tolist())
        fields, dates = self.data.link_fields()
        left = keys_left(fields, self.spec.link_by[number], taken, dates)
        self._offered[number] = np.array([at for _, at in left] + [-1], dtype=np.int64)
        return [*(key for key, _ in left), os.urandom(16).hex()]

    def keys_offered(self, number: int) -> int:
        """Return the number of derived keys that this party offered in a round."""
        return len(self._offered[number]) - 1

    def settle_links(self, linkage: Linkage) -> None:
        """Fix the linkage, and destroy the secret masks of PSI."""
        self.linkage = linkage
        self._forget_masks()

    def require_linkage(self) -> Linkage:
        """Return the linkage; raise RoundAborted if records are not linked yet."""
        if self.linkage is None:
            raise _not_linked()
        return self.linkage

    def align_records(self) -> RecordBlock:
        """Return the linked records, in the order that all parties share."""
        return self.data.single_block.take(self.require_linkage().rows)

    def columns(self) -> dict[str, Any]:
        """Return the agreed schema, owners and alignment of linked columns, as keyword arguments."""
        joint, alignment = (
            self.require_joint_schema(),
            self.agreed_alignment if self.helps else self.require_linkage().alignment,
        )
        return {"schema": joint.schema, "owners": joint.owners, "alignment": alignment}

    def require_joint_schema(self) -> JointSchema:
        """Return the policies of all parties; raise RoundAborted if they are not arranged yet."""
        if self.joint is None:
            raise RoundAborted("The variables of this session are not arranged here.", spent=False)
        return self.joint

    def arrange(self, message: Arrange) -> None:
        """Accept the policies and records of all parties after checking their signatures for this epoch.

        Raises
        ------
        InputError
            If a party has no policy, or a policy has no party.
        PolicyMismatch
            If the message's policy for this party is not the policy that it signed.
        RoundAborted
            If a signature is missing or not valid, or the records differ from those linked here.
        """
        spec = self.spec
        if set(message.policies) != set(spec.parties):
            raise InputError("An arrangement must have exactly one policy for every party.")
        digests = {party: text_digest(policy) for party, policy in message.policies.items()}
        if not self.helps and digests[self.node.name] != text_digest(self.policy_text):
            raise PolicyMismatch("The arrangement has a policy for this party that is not its own.")
        # signatures first: building a policy can be expensive, so an unsigned text must not reach it
        for party, digest in digests.items():
            if not self._signed(party, POLICY, digest, message.signatures):
                raise self._accuse_convener(f"The policy shown for party {party!r} is not signed by it.")
        local = {} if self.helps else {self.node.name: self.data.policy}  # the same text, as compared above
        joint = JointSchema.from_dict(message.policies, local)
        spec.check(joint)
        if spec.kind.same_records:
            self._check_records(message)
        self.joint = joint
        if self.helps:
            self.agreed_records, self.agreed_alignment = message.records, bytes.fromhex(message.alignment)
            self._players = dict.fromkeys(self.roles, spec.kind.helper(self))

    def sign(self, label: str, what: bytes) -> str:
        """Return this node's signature of `what` under a label, bound to the session, epoch and node."""
        return self.node.identity.sign(label, *self._facts(self.node.name, what)).hex()

    def renew(self) -> None:
        """Delete keys, so that roles start again; the linkage and drawn reports stay."""
        self._forget_masks()
        self._players.clear()
        self.joint = None

    def forget(self) -> None:
        """Delete keys and pseudonyms."""
        self.renew()
        self.linkage = None

    def _forget_masks(self) -> None:
        for role in LINKINGS:
            linker = self._players.pop(role.name, None)
            if isinstance(linker, LinkingParty):
                linker.forget()
        self._offered.clear()

    def _check_records(self, message: Arrange) -> None:
        """Raise RoundAborted unless every party signed the records that are linked here.

        A helper has linked no records and relies on the parties' signatures.
        """
        alignment = bytes.fromhex(message.alignment)
        own = None if self.linkage is None else self.linkage.alignment
        if self.node.name in self.spec.parties and own != alignment:
            raise self._accuse_convener("The arrangement names records that differ from those linked here.")
        for party in self.spec.parties:
            if not self._signed(party, RECORDS, alignment, message.aligned):
                raise self._accuse_convener(f"Party {party!r} did not sign that the same records take part.")

    def _signed(self, party: str, label: str, what: bytes, signatures: Mapping[str, str]) -> bool:
        """Return True if the signature of a party is valid; for this node itself none is needed."""
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

    def _accuse_convener(self, reason: str) -> RoundAborted:
        return RoundAborted(reason, spent=False, culprits=(self.spec.convener,))


def text_digest(values: Mapping[str, Any]) -> bytes:
    """Return the SHA-256 of the JSON text of a policy or model, without building the object."""
    text = json.dumps(json.loads(json.dumps(values)), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).digest()


def _not_linked() -> RoundAborted:
    return RoundAborted("The records of this session are not linked here.", spent=False)
