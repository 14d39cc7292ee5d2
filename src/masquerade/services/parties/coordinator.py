"""The convener's side of a session: run its steps, learn the model, and share it.

Completed steps are stored. An interrupted session continues in the same epoch if all parties still have the
records that were linked in it, and starts the remaining steps again. Otherwise it starts in a new epoch.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from masquerade.core import errors
from masquerade.core.guarantee import Guarantee
from masquerade.core.tally import Tally
from masquerade.disguising.report_draws import Codes
from masquerade.protocols.linkage.psi import Joiner, keyed_guarantee
from masquerade.protocols.vertical.disguised_cells import Room, assemble_parts
from masquerade.protocols.wire.session import Transport
from masquerade.services.common.client import once_started
from masquerade.services.common.problems import PartyUnreachable
from masquerade.services.common.release_ledger import WITNESS, SignedMark
from masquerade.services.common.settings import Strict
from masquerade.services.parties import messages as say
from masquerade.services.parties.linkage import LINKINGS
from masquerade.services.parties.session import JointSchema, SessionSpec

if TYPE_CHECKING:
    from masquerade.services.parties.node import Node

M = TypeVar("M", bound=Strict)
T = TypeVar("T")


class Coordinator:
    """A run of a session at the node that convenes it.

    Parameters
    ----------
    node : Node
        The convening node.
    spec : SessionSpec
        The session.
    transport : callable
        Returns the transport that reaches the given role of all members.
    wait : float
        Seconds to wait for a party that is still starting.

    Attributes
    ----------
    joint : JointSchema
        The policies of all parties, set when the session has started.
    records : int or None
        Number of records that take part; None before they are linked or counted.
    alignment : bytes
        Digest of the pseudonyms of linked records; empty if records are not linked.
    room : Room
        Largest numbers of rows and bytes that are accepted from one party.
    """

    def __init__(
        self, node: Node, spec: SessionSpec, transport: Callable[[str], Transport], wait: float
    ) -> None:
        self._node, self.spec, self.transport, self._wait = node, spec, transport, wait
        self._epoch, self._identities = node.epoch_of(spec.session), node.party.identities(spec.parties)
        self._folder, limits = node.settings.state / "joined", node.settings.limits
        self.room = Room(limits.rows, limits.arrow_bytes)
        self.guarantee: Guarantee | None = None
        self.records: int | None = None
        self.alignment = b""

    def note(self, step: str) -> None:
        """Store the step that the session has reached; raise InputError if the node is stopping."""
        self._node.note(self.spec.session, step)

    def own_codes(self) -> Mapping[str, Codes]:
        """Return the linked records of the convener, for protocols in which it is a party that counts."""
        return self._node.party.own_codes(self.spec.session)

    def learn(self) -> dict[str, Any]:
        """Run the session until the model is learnt; return the model, not yet shared, as plain values."""
        begun = self._begin()
        if self.spec.linking is not None:
            self._link(begun)
        return self.spec.kind.model(self)

    def share(self, model: dict[str, Any]) -> None:
        """Send the model to all members and end the session; members that have ended it are skipped."""
        self.note("sharing the model")
        offer = say.Begin(spec=self.spec, epoch=self.epoch.hex())

        def give(member: str) -> None:
            if not self._send(member, "begin", offer, say.Begun).ended:
                self._send(member, "model", say.Share(epoch=self.epoch.hex(), model=model), say.Done)
                self._countersign(member)
                self._send(member, "end", say.InEpoch(epoch=self.epoch.hex()), say.Done)

        self._run_parallel(give, self.spec.members)
        shutil.rmtree(self._folder / self.epoch.hex(), ignore_errors=True)

    @property
    def epoch(self) -> bytes:
        """Return the current epoch of the session."""
        if self._epoch is None:
            raise errors.InputError("The session has not begun.")
        return self._epoch

    def parts(self) -> Path:
        """Return the folder of the records joined in this epoch; it is deleted when the session ends."""
        place = self._folder / self.epoch.hex()
        place.parent.mkdir(mode=0o700, exist_ok=True)
        place.mkdir(mode=0o700, exist_ok=True)
        return place

    def learn_from(self, source: Tally) -> dict[str, Any]:
        """Learn the session's model from a source, and add the source's guarantee to the session's.

        Parameters
        ----------
        source : Tally
            Source of counts over the records of all parties.

        Returns
        -------
        dict
            The model, as plain values.
        """
        self.add_guarantee(source.guarantee)
        self.note("learning")
        goal = self.spec.learn
        source = self.spec.correct_links(source, self.joint)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # nobody reads a service's warnings
            model: dict[str, Any] = goal.learner.fit(source, goal.read(source.schema)).to_dict()
        return model

    def columns(self) -> dict[str, Any]:
        """Return the agreed schema, owners and alignment of linked columns, as keyword arguments."""
        return {"schema": self.joint.schema, "owners": self.joint.owners, "alignment": self.alignment}

    def add_guarantee(self, seen: Guarantee) -> None:
        """Add disclosures to the guarantee of the session, which starts with the disclosures of linking."""
        self.guarantee = seen if self.guarantee is None else self.guarantee.combine(seen)

    def learn_local_nodes(self, **asked: Any) -> dict[str, Any]:
        """Request from every party the results for its own network nodes; `asked` are fields of `Learn`."""
        message, owners = say.Learn(epoch=self.epoch.hex(), **asked), self.joint.owners
        found = {party: self._send(party, "learn", message, say.Learnt).nodes for party in owners}
        for party, nodes in found.items():
            if set(nodes) != set(owners[party]):
                raise errors.RoundAborted(
                    f"Party {party!r} did not answer about exactly its own nodes.",
                    spent=True,
                    culprits=(party,),
                )
        return assemble_parts(found, owners)

    def request_counts(self, party: str, tables: Sequence[tuple[str, ...]]) -> dict[str, Any]:
        """Request tables counted from a party's own cells and others' reports; return the unchecked reply."""
        message = say.Learn(epoch=self.epoch.hex(), tables=tuple(tables))
        return self._send(party, "learn", message, say.Learnt).nodes

    def request_tables(self, party: str, tables: Sequence[tuple[str, ...]]) -> list[list[int]]:
        """Request tables that a party counts from its columns and others' reports; return counts by table."""
        counts = self.request_counts(party, tables).get("counts")
        if not isinstance(counts, list) or not all(map(are_cells, counts)):
            raise invalid_tables(party)
        return counts

    def _new_epoch(self) -> None:
        if self._epoch is not None:  # joined parts carry pseudonyms, which are new in every epoch
            shutil.rmtree(self._folder / self._epoch.hex(), ignore_errors=True)
        self._epoch = os.urandom(say.EPOCH_SIZE)
        self._node.keep_epoch(self.spec.session, self._epoch)

    def _begin(self) -> dict[str, say.Begun]:
        """Start or resume the session at all members.

        It resumes if all parties still have the linked records of its epoch, and starts in a new epoch
        otherwise. Keys of roles are in memory only, and are created again in either case.
        """
        self.note("beginning")
        resumed = self._epoch is not None and self.spec.linking is not None
        if not resumed:
            self._new_epoch()
        begun = self._begin_members()
        self._linked = resumed and all(begun[party].linked for party in self.spec.parties)
        if resumed and not self._linked:
            self._new_epoch()
            begun = self._begin_members()
        self._policies = {party: begun[party].policy or {} for party in self.spec.parties}
        self.joint = JointSchema.from_dict(self._policies)
        self.spec.check(self.joint)  # before any data leaves a party
        return begun

    def _begin_members(self) -> dict[str, say.Begun]:
        offer = say.Begin(spec=self.spec, epoch=self.epoch.hex())

        def begin(member: str) -> say.Begun:
            return once_started(
                lambda: self._send(member, "begin", offer, say.Begun), member, self._wait, self.note
            )

        begun = self._run_parallel(begin, self.spec.members)
        for member in self.spec.members:
            self._show_end(member)
        return begun

    def _countersign(self, member: str) -> None:
        """Store the signed end of a member's ledger, and send the member a countersignature."""
        identity = self._node.identity_of(member)
        reply = self._send_if_supported(member, "ledger", say.InEpoch(epoch=self.epoch.hex()), say.LedgerEnd)
        if identity is None or reply is None:
            return
        end = SignedMark.decode(reply.end.encode())
        if end is None or end.public != identity:  # a node must not present another node's ledger
            raise errors.RoundAborted(
                f"Party {member!r} did not sign the end of its release ledger.",
                spent=True,
                culprits=(member,),
            )
        self._node.keep_end(member, end)
        self._show_end(member)

    def _show_end(self, member: str) -> None:
        """Send a member the latest end of its ledger known here; a ledger that lacks it was rolled back."""
        end = self._node.known_end(member)
        if end is not None:
            signature = self._node.identity.sign(WITNESS, end.encode()).hex()
            shown = say.Witness(epoch=self.epoch.hex(), end=end.encode().decode("ascii"), signature=signature)
            self._send_if_supported(member, "witness", shown, say.Done)

    def _send_if_supported(self, member: str, place: str, message: Strict, kind: type[M]) -> M | None:
        """Send a message that earlier versions lack; return None if the member does not support it."""
        if member == self._node.settings.name:
            return None
        try:
            return say.decode(self.transport(place).exchange(member, say.encode(message)), kind)
        except errors.InputError:
            return None
        except errors.RoundAborted as error:
            reason = f"Party {member!r}: {error}"
            raise errors.RoundAborted(reason, spent=error.spent, culprits=(member,)) from None

    def _link(self, begun: Mapping[str, say.Begun]) -> None:
        """Agree on the records that take part, and send all members the signed policies and records."""
        spec, epoch = self.spec, self.epoch.hex()
        if spec.linking == "intersection" and not self._linked:
            self.note("linking")
            for number in range(spec.linking_rounds):
                joiner = self._joiner(number, session=self._linking_session(number))
                joiner.name_records()
                if spec.kind.same_records:
                    joiner.intersect()
        settled = self._run_parallel(
            lambda party: self._send(party, "settle", say.InEpoch(epoch=epoch), say.Settled), spec.parties
        )
        first = settled[spec.parties[0]]
        other = [party for party, it in settled.items() if it.alignment != first.alignment]
        if other and spec.kind.same_records:
            raise errors.RoundAborted(
                f"Parties {spec.parties[0]!r} and {other[0]!r} do not have the same records.", spent=True
            )
        self.guarantee = self._seen_in_linking()
        self.records, self.alignment = first.records, bytes.fromhex(first.alignment)
        message = say.Arrange(
            epoch=epoch,
            policies=self._policies,
            signatures={party: begun[party].signature for party in spec.parties},
            records=first.records,
            alignment=first.alignment,
            aligned={party: it.signature for party, it in settled.items()},
        )
        self._run_parallel(lambda member: self._send(member, "arrange", message, say.Done), spec.members)

    def _seen_in_linking(self) -> Guarantee | None:
        """Return the disclosures of linking, None if a party convenes a keyed session.

        That party holds the shared key, and learns no more about keys than the other parties.
        """
        spec = self.spec
        if spec.linking == "keyed" and spec.convener in spec.parties:
            return None
        if spec.linking == "keyed":
            return keyed_guarantee(spec.parties, spec.convener)
        guarantee = self._joiner(0).guarantee()
        if not spec.link_by:
            return guarantee
        keys = "; ".join(" + ".join(parts) for parts in spec.link_by)
        rounds = f"records are linked in rounds by {keys}, and each round shows how many match"
        return replace(guarantee, assumptions=(*guarantee.assumptions, rounds))

    def _linking_session(self, number: int) -> bytes:
        """Return the id of a round of linking: the epoch in the first round, then a hash of it."""
        if number == 0:
            return self.epoch
        return hashlib.sha256(self.epoch + number.to_bytes(2, "big")).digest()[: len(self.epoch)]

    def _joiner(self, number: int, **more: Any) -> Joiner:
        parties, name, over = self.spec.parties, self.spec.convener, self.transport(LINKINGS[number].name)
        return Joiner(parties, over, name=name, peers=self._identities, **more)

    def _run_parallel(self, say_to: Callable[[str], T], members: Sequence[str]) -> dict[str, T]:
        """Call `say_to` for several members in parallel; if calls fail, raise the error of the first."""
        with ThreadPoolExecutor(len(members)) as pool:
            return dict(zip(members, pool.map(say_to, members), strict=True))

    def _send(self, member: str, place: str, message: Strict, kind: type[M]) -> M:
        """Send a message to a member and return its reply; errors name the member."""
        try:
            return say.decode(self.transport(place).exchange(member, say.encode(message)), kind)
        except PartyUnreachable:
            raise
        except errors.RoundAborted as error:
            reason, spent, culprits = f"Party {member!r}: {error}", error.spent, error.culprits or (member,)
        except errors.MasqueradeError as error:
            reason, spent, culprits = f"Party {member!r} refused: {error}", False, (member,)
        raise errors.RoundAborted(reason, spent=spent, culprits=culprits)


def are_cells(counts: Any) -> bool:
    """Return True if a value that a party sent is a list of integers."""
    return isinstance(counts, list) and all(type(cell) is int for cell in counts)


def invalid_tables(party: str) -> errors.RoundAborted:
    """Return the error for a party that sent something other than tables."""
    return errors.RoundAborted(f"Party {party!r} sent no tables.", spent=True, culprits=(party,))
