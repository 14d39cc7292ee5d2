"""Whoever convenes a session: brings parties together step by step, learns, and shares the model.

Steps that are done stay done: a session that was interrupted goes on with the epoch, the linked records and
the joined parts that are still there, and begins the rest anew.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from masquerade.channels.policy import Policy
from masquerade.core.errors import (
    InputError,
    MasqueradeError,
    PolicyMismatch,
    RoundAborted,
    did_you_mean,
)
from masquerade.core.guarantee import Disclosure, Guarantee
from masquerade.core.tally import Tally
from masquerade.disguising.report_draws import Codes
from masquerade.protocols.linking.joiner import Joiner, keyed_guarantee
from masquerade.protocols.pooling.masked_sum import MaskedSum
from masquerade.protocols.products.helper_client import HelpedProducts
from masquerade.protocols.products.two_party import PaillierProducts
from masquerade.protocols.projection.receiver import receive_projected
from masquerade.protocols.transport import Transport
from masquerade.protocols.vertical.cross_parents import assembled, cross_parents
from masquerade.protocols.vertical.fetch import Room
from masquerade.protocols.vertical.join import seen_by
from masquerade.protocols.vertical.joint_policy import restricted
from masquerade.protocols.vertical.miner import Miner
from masquerade.services.common.problems import PartyUnreachable
from masquerade.services.common.settings import Strict
from masquerade.services.parties import messages as say
from masquerade.services.parties.joint_schema import JointSchema
from masquerade.services.parties.session import SessionSpec
from masquerade.services.parties.session_goal import assembled_network, learnt
from masquerade.sources.pooled import PooledTally
from masquerade.sources.products import RevealedVerticalCounts

M = TypeVar("M", bound=Strict)
Note = Callable[[str], None]


class Coordinator:
    """One run of a session. `transport(role)` reaches the members; `note` is told the step it is at.

    `epoch` is that of an interrupted run, if there was one; `folder` is the convener's own, for joined parts;
    `own_codes` gives its own records where it is a party that counts with others' ciphertexts.
    """

    def __init__(
        self,
        spec: SessionSpec,
        transport: Callable[[str], Transport],
        *,
        epoch: bytes | None,
        folder: Path,
        note: Note,
        keep_epoch: Callable[[bytes], None],
        own_codes: Callable[[str], Mapping[str, Codes]],
        room: Room,
        identities: Mapping[str, bytes],
    ) -> None:
        self.spec, self._transport, self._folder, self._note = spec, transport, folder, note
        self._epoch, self._keep_epoch, self._own_codes = epoch, keep_epoch, own_codes
        self._room, self._identities = room, {party: identities[party] for party in spec.parties}
        self.guarantee: Guarantee | None = None
        self.records: int | None = None

    def learn(self) -> dict[str, Any]:
        """Return the model, as plain values; nobody else has it yet."""
        arrangement = self._begin()
        if self.spec.linking is not None:
            arrangement = self._link(arrangement)
        return self._learn(arrangement)

    def share(self, model: dict[str, Any]) -> None:
        """Give everybody the model and end the session; whoever has ended it already is left in peace."""
        self._note("sharing the model")
        for member in self.spec.members:
            offer = say.Begin(spec=self.spec, epoch=self._hex)
            if not self._say(member, "begin", offer, say.Begun).ended:
                self._say(member, "model", say.Share(epoch=self._hex, model=model), say.Done)
                self._say(member, "end", say.End(epoch=self._hex), say.Done)
        shutil.rmtree(self._parts, ignore_errors=True)

    @property
    def _hex(self) -> str:
        return self._current.hex()

    @property
    def _current(self) -> bytes:
        if self._epoch is None:
            raise InputError("The session has not begun.")
        return self._epoch

    @property
    def _parts(self) -> Path:
        return self._folder / self._hex

    def _new_epoch(self) -> None:
        if self._epoch is not None:
            shutil.rmtree(self._parts, ignore_errors=True)  # joined under pseudonyms that are no more
        self._epoch = os.urandom(say.EPOCH_SIZE)
        self._keep_epoch(self._epoch)

    def _begin(self) -> JointSchema:
        """Let every member begin; roles with keys in memory only begin anew in an epoch of their own."""
        self._note("beginning")
        resumed = self._epoch is not None and self.spec.linking is not None
        if not resumed:
            self._new_epoch()
        begun = self._begun()
        if resumed and not all(begun[party].linked for party in self.spec.parties):
            self._new_epoch()
            begun = self._begun()
        self._linked = resumed and all(begun[party].linked for party in self.spec.parties)
        self._check_goal(begun)
        self._signatures = {party: begun[party].signature for party in self.spec.parties}
        arrangement = JointSchema.from_dict({party: begun[party].policy for party in self.spec.parties})
        for party, pinned in self.spec.policies.items():
            found = arrangement.policies[party].id
            if found != pinned:
                raise PolicyMismatch(
                    f"Party {party!r} disguises under policy {found[:12]}…, agreed was {pinned[:12]}…."
                )
        return arrangement

    def _check_goal(self, begun: Mapping[str, say.Begun]) -> None:
        """Refuse, before anything has left a party, to learn about variables that nobody brings."""
        policies = JointSchema.from_dict({party: begun[party].policy for party in self.spec.parties}).policies
        known = [name for policy in policies.values() for name in policy.schema]
        for name in self.spec.learn.variables:
            if name not in known:
                raise InputError(
                    f"What is to be learnt names {name!r}, which no party brings.{did_you_mean(name, known)}"
                )

    def _begun(self) -> dict[str, say.Begun]:
        offer = say.Begin(spec=self.spec, epoch=self._hex)
        return {member: self._say(member, "begin", offer, say.Begun) for member in self.spec.members}

    def _link(self, arrangement: JointSchema) -> JointSchema:
        """Agree on the records that take part; tell everybody which these are, and whose variables."""
        if self.spec.linking == "intersection" and not self._linked:
            self._note("linking")
            joiner = Joiner(
                self.spec.parties,
                self._transport("linking"),
                name=self.spec.convener,
                session=self._current,
                peers=self._identities,
            )
            joiner.name_records()
            if self.spec.protocol != "arbitrary-with-miner":
                joiner.intersect()
        settled = {
            party: self._say(party, "settle", say.Settle(epoch=self._hex), say.Settled)
            for party in self.spec.parties
        }
        first = settled[self.spec.parties[0]]
        if self.spec.protocol != "arbitrary-with-miner":
            other = [party for party, it in settled.items() if it.alignment != first.alignment]
            if other:
                raise RoundAborted(
                    f"Parties {self.spec.parties[0]!r} and {other[0]!r} do not have the same records.",
                    spent=True,
                )
        self.guarantee = self._seen_in_linking()
        self.records, self._alignment = first.records, bytes.fromhex(first.alignment)
        message = say.Arrange(
            epoch=self._hex,
            policies=arrangement.to_dict(),
            signatures=self._signatures,
            records=first.records,
            alignment=first.alignment,
            aligned={party: it.signature for party, it in settled.items()},
        )
        for member in self.spec.members:
            self._say(member, "arrange", message, say.Done)
        return arrangement

    def _seen_in_linking(self) -> Guarantee | None:
        """Return who learns what about keys; a party that convenes a keyed session learns as a party does."""
        spec = self.spec
        if spec.linking == "keyed" and spec.convener in spec.parties:
            return None
        if spec.linking == "keyed":
            return keyed_guarantee(spec.parties, spec.convener)
        over = self._transport("linking")
        return Joiner(spec.parties, over, name=spec.convener, peers=self._identities).guarantee()

    def _reveals(self, seen: Guarantee) -> None:
        """Add what is seen of records to what linking shows."""
        self.guarantee = seen if self.guarantee is None else self.guarantee.combine(seen)

    def _learn(self, arrangement: JointSchema) -> dict[str, Any]:
        if self.spec.protocol == "vertical-without-miner":
            return self._without_miner(arrangement)
        source = self._source(arrangement)
        self._reveals(source.guarantee)
        self._note("learning")
        return learnt(source, self.spec.learn)

    def _source(self, arrangement: JointSchema) -> Tally:
        spec, owners = self.spec, arrangement.owners
        if spec.protocol == "pooled-counts":
            self._note("pooling counts")
            policy = common_policy(arrangement.policies)
            pool = MaskedSum(spec.parties, self._transport("pooling"), policy, session=self._current)
            pooled = PooledTally(pool, policy)
            self.records = pooled.n
            return pooled
        if spec.protocol == "revealed-vertical-counts":
            self._note("multiplying under masks")
            return RevealedVerticalCounts(
                HelpedProducts(
                    owners,
                    str(spec.helper),
                    self._transport("products"),
                    arrangement.schema,
                    self.records or 0,
                    alignment=self._alignment,
                )
            )
        if spec.protocol == "revealed-counts-of-two":
            self._note("multiplying under encryption")
            return RevealedVerticalCounts(
                PaillierProducts(
                    spec.convener,
                    self._own_codes(spec.session),
                    self._transport("paillier"),
                    schema=arrangement.schema,
                    owners=owners,
                    alignment=self._alignment,
                )
            )
        if spec.protocol == "projection":
            self._note("receiving projected columns")
            return receive_projected(
                owners,
                self._transport("projection"),
                arrangement.schema,
                self.records or 0,
                receiver=spec.convener,
                alignment=self._alignment,
            )
        self._note("joining disguised records")
        miner = Miner(
            {party: policy.id for party, policy in arrangement.policies.items()},
            self._current,
            name=spec.convener,
            room=self._room,
        )
        self._parts.parent.mkdir(mode=0o700, exist_ok=True)
        self._parts.mkdir(mode=0o700, exist_ok=True)
        return miner.records(
            self._transport("cells"),
            self._parts,
            progress=lambda done, parts: self._note(f"joining disguised records: part {done} of {parts}"),
        )

    def _without_miner(self, arrangement: JointSchema) -> dict[str, Any]:
        """Let every party learn its own nodes, first their parents if these are not known."""
        goal, owners = self.spec.learn, arrangement.owners
        parents: Mapping[str, Any] | None = goal.structure
        if parents is None:
            self._note("parties learn the structure")
            parents = self._gathered(
                owners, say.Learn(epoch=self._hex, order=goal.order, max_parents=goal.max_parents)
            )
        crossing = None if goal.structure is None else cross_parents(goal.structure, owners)
        self._reveals(seen_without_miner(arrangement, crossing, self.spec.convener))
        self._note("parties learn parameters")
        nodes = self._gathered(owners, say.Learn(epoch=self._hex, structure=dict(parents)))
        return assembled_network(nodes, list(parents))

    def _gathered(self, owners: Mapping[str, tuple[str, ...]], message: say.Learn) -> dict[str, Any]:
        found = {party: self._say(party, "learn", message, say.Learnt).nodes for party in self.spec.parties}
        for party, nodes in found.items():
            if set(nodes) != set(owners[party]):
                raise RoundAborted(
                    f"Party {party!r} spoke about other nodes than its own.", spent=True, culprits=(party,)
                )
        return assembled(found, owners)

    def _say(self, member: str, place: str, message: Strict, kind: type[M]) -> M:
        """Say something to a member; whatever it refuses names it."""
        try:
            return say.decode(self._transport(place).exchange(member, say.encode(message)), kind)
        except PartyUnreachable:
            raise
        except RoundAborted as error:
            culprits = error.culprits or (member,)
            raise RoundAborted(f"Party {member!r}: {error}", spent=error.spent, culprits=culprits) from None
        except MasqueradeError as error:
            raise RoundAborted(
                f"Party {member!r} refused: {error}", spent=False, culprits=(member,)
            ) from None


def seen_without_miner(
    arrangement: JointSchema, crossing: Mapping[tuple[str, str], Sequence[str]] | None, convener: str
) -> Guarantee:
    """Return who learns what without a miner: parties what crosses to them, everybody the model.

    `crossing` are the variables by giver and receiver; None: to find the structure, everything crosses.
    """
    policies, owners = arrangement.policies, arrangement.owners
    everything = {(a, b): owners[a] for a in owners for b in owners if a != b}
    model = "the model: parents and parameters of every node"
    found = Guarantee((Disclosure(f"{convener} and all parties", model, tuple(arrangement.schema), None),))
    for (giver, receiver), names in (everything if crossing is None else crossing).items():
        found = found.combine(seen_by(receiver, restricted(policies[giver], names)))
    return found


def common_policy(policies: Mapping[str, Policy]) -> Policy:
    """Return the policy of all parties of a pool; parties that differ are refused."""
    first, *others = policies.items()
    for party, policy in others:
        if policy.id != first[1].id:
            raise PolicyMismatch(
                f"Parties {first[0]!r} and {party!r} have other variables or channels: a pool has one policy."
            )
    return first[1]
