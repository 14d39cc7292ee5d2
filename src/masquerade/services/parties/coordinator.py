"""Whoever convenes a session: brings parties together step by step, learns, and shares the model.

Steps that are done stay done: a session that was interrupted goes on with the epoch, the linked records and
the joined parts that are still there, and begins the rest anew.
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from masquerade.core import errors
from masquerade.core.guarantee import Guarantee
from masquerade.core.tally import Tally
from masquerade.disguising.report_draws import Codes
from masquerade.protocols.linkage.psi import Joiner, keyed_guarantee
from masquerade.protocols.vertical.disguised_cells import Room, assembled
from masquerade.protocols.wire.session import Transport
from masquerade.services.common.client import once_started
from masquerade.services.common.problems import PartyUnreachable
from masquerade.services.common.release_ledger import WITNESS, SignedMark
from masquerade.services.common.settings import Strict
from masquerade.services.parties import messages as say
from masquerade.services.parties.linkage import LINKING
from masquerade.services.parties.session import JointSchema, SessionSpec

if TYPE_CHECKING:
    from masquerade.services.parties.node import Node

M = TypeVar("M", bound=Strict)
T = TypeVar("T")


class Coordinator:
    """One run of a session at the node that convenes it; `transport(role)` reaches the members.

    An interrupted run is taken up in its epoch. A party that is being started is waited for, `wait` seconds.

    A session kind that is asked for a model finds here `spec` and `epoch`, what all parties hold (`joint`)
    and, if records were linked, the number of `records` and their `alignment`; `room` is how much is taken of
    a party, and `note` is told the step it is at.
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
        """Say which step the session is at; a node that stops goes no further."""
        self._node.note(self.spec.session, step)

    def own_codes(self) -> Mapping[str, Codes]:
        """Return the convener's own linked records, where it is a party that counts with others'."""
        return self._node.party.own_codes(self.spec.session)

    def learn(self) -> dict[str, Any]:
        """Return the model, as plain values; nobody else has it yet."""
        begun = self._begin()
        if self.spec.linking is not None:
            self._link(begun)
        return self.spec.kind.model(self)

    def share(self, model: dict[str, Any]) -> None:
        """Give everybody the model and end the session; whoever has ended it already is left in peace."""
        self.note("sharing the model")
        offer = say.Begin(spec=self.spec, epoch=self.epoch.hex())

        def give(member: str) -> None:
            if not self._say(member, "begin", offer, say.Begun).ended:
                self._say(member, "model", say.Share(epoch=self.epoch.hex(), model=model), say.Done)
                self._countersign(member)
                self._say(member, "end", say.InEpoch(epoch=self.epoch.hex()), say.Done)

        self._at_once(give, self.spec.members)
        shutil.rmtree(self._folder / self.epoch.hex(), ignore_errors=True)

    @property
    def epoch(self) -> bytes:
        """Return the epoch that the session is in."""
        if self._epoch is None:
            raise errors.InputError("The session has not begun.")
        return self._epoch

    def parts(self) -> Path:
        """Return the folder of this epoch for what is joined here; it is gone when the session has ended."""
        place = self._folder / self.epoch.hex()
        place.parent.mkdir(mode=0o700, exist_ok=True)
        place.mkdir(mode=0o700, exist_ok=True)
        return place

    def learnt_from(self, source: Tally) -> dict[str, Any]:
        """Return what is to be learnt from a source, and remember what that shows of records."""
        self.reveals(source.guarantee)
        self.note("learning")
        goal = self.spec.learn
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a service has nobody to warn; flags are in the model itself
            model: dict[str, Any] = goal.learner.learnt(source, goal.read(source.schema)).to_dict()
        return model

    def columns(self) -> dict[str, Any]:
        """Return what all agreed on about columns of linked records: schema, owners and alignment."""
        return {"schema": self.joint.schema, "owners": self.joint.owners, "alignment": self.alignment}

    def reveals(self, seen: Guarantee) -> None:
        """Add what is seen of records to what linking shows."""
        self.guarantee = seen if self.guarantee is None else self.guarantee.combine(seen)

    def own_nodes(self, **asked: Any) -> dict[str, Any]:
        """Let every party learn about its own nodes, and return what all found; `asked` as in `Learn`."""
        message, owners = say.Learn(epoch=self.epoch.hex(), **asked), self.joint.owners
        found = {party: self._say(party, "learn", message, say.Learnt).nodes for party in owners}
        for party, nodes in found.items():
            if set(nodes) != set(owners[party]):
                raise errors.RoundAborted(
                    f"Party {party!r} spoke about other nodes than its own.", spent=True, culprits=(party,)
                )
        return assembled(found, owners)

    def counted_by(self, party: str, tables: Sequence[tuple[str, ...]]) -> dict[str, Any]:
        """Let a party count tables of its own cells and of others' reports, and return what it says."""
        message = say.Learn(epoch=self.epoch.hex(), tables=tuple(tables))
        return self._say(party, "learn", message, say.Learnt).nodes

    def own_tables(self, party: str, tables: Sequence[tuple[str, ...]]) -> list[list[int]]:
        """Let a party count tables of its own columns and of others' reports, and return their cells."""
        counts = self.counted_by(party, tables).get("counts")
        if not isinstance(counts, list) or not all(map(are_cells, counts)):
            raise no_tables_of(party)
        return counts

    def _new_epoch(self) -> None:
        if self._epoch is not None:  # what was joined there is under pseudonyms that are no more
            shutil.rmtree(self._folder / self._epoch.hex(), ignore_errors=True)
        self._epoch = os.urandom(say.EPOCH_SIZE)
        self._node.keep_epoch(self.spec.session, self._epoch)

    def _begin(self) -> dict[str, say.Begun]:
        """Let every member begin; roles with keys in memory only begin anew in an epoch of their own."""
        self.note("beginning")
        resumed = self._epoch is not None and self.spec.linking is not None
        if not resumed:
            self._new_epoch()
        begun = self._begun()
        self._linked = resumed and all(begun[party].linked for party in self.spec.parties)
        if resumed and not self._linked:
            self._new_epoch()
            begun = self._begun()
        self._policies = {party: begun[party].policy or {} for party in self.spec.parties}
        self.joint = JointSchema.from_dict(self._policies)
        self.spec.check(self.joint)  # nothing has left a party by now
        return begun

    def _begun(self) -> dict[str, say.Begun]:
        offer = say.Begin(spec=self.spec, epoch=self.epoch.hex())

        def begin(member: str) -> say.Begun:
            return once_started(
                lambda: self._say(member, "begin", offer, say.Begun), member, self._wait, self.note
            )

        begun = self._at_once(begin, self.spec.members)
        for member in self.spec.members:
            self._show_end(member)
        return begun

    def _countersign(self, member: str) -> None:
        """See how far a member's ledger has come, remember it, and give the member our word for it."""
        identity = self._node.identity_of(member)
        told = self._offered(member, "ledger", say.InEpoch(epoch=self.epoch.hex()), say.Ledger)
        if identity is None or told is None:
            return
        end = SignedMark.decode(told.end.encode())
        if end is None or end.public != identity:
            raise errors.RoundAborted(
                f"Party {member!r} did not sign the end of its release ledger.",
                spent=True,
                culprits=(member,),
            )
        self._node.keep_end(member, end)
        self._show_end(member)

    def _show_end(self, member: str) -> None:
        """Show a member the last end of its ledger that was seen here; one that was rolled back lacks it."""
        end = self._node.known_end(member)
        if end is not None:
            signature = self._node.identity.sign(WITNESS, end.encode()).hex()
            shown = say.Witness(epoch=self.epoch.hex(), end=end.encode().decode("ascii"), signature=signature)
            self._offered(member, "witness", shown, say.Done)

    def _offered(self, member: str, place: str, message: Strict, kind: type[M]) -> M | None:
        """Say what members of earlier versions do not know; None from these."""
        if member == self._node.settings.name:
            return None
        try:
            return say.decode(self.transport(place).exchange(member, say.encode(message)), kind)
        except errors.InputError:
            return None
        except errors.RoundAborted as error:
            told = f"Party {member!r}: {error}"
            raise errors.RoundAborted(told, spent=error.spent, culprits=(member,)) from None

    def _link(self, begun: Mapping[str, say.Begun]) -> None:
        """Agree on the records that take part; tell everybody which these are, and whose variables."""
        spec, epoch = self.spec, self.epoch.hex()
        if spec.linking == "intersection" and not self._linked:
            self.note("linking")
            joiner = self._joiner(session=self.epoch)
            joiner.name_records()
            if spec.kind.same_records:
                joiner.intersect()
        settled = self._at_once(
            lambda party: self._say(party, "settle", say.InEpoch(epoch=epoch), say.Settled), spec.parties
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
        self._at_once(lambda member: self._say(member, "arrange", message, say.Done), spec.members)

    def _seen_in_linking(self) -> Guarantee | None:
        """Return who learns what about keys; a party that convenes a keyed session learns as a party does."""
        spec = self.spec
        if spec.linking == "keyed" and spec.convener in spec.parties:
            return None
        if spec.linking == "keyed":
            return keyed_guarantee(spec.parties, spec.convener)
        return self._joiner().guarantee()

    def _joiner(self, **more: Any) -> Joiner:
        parties, name, over = self.spec.parties, self.spec.convener, self.transport(LINKING.name)
        return Joiner(parties, over, name=name, peers=self._identities, **more)

    def _at_once(self, say_to: Callable[[str], T], members: Sequence[str]) -> dict[str, T]:
        """Say something to several members at the same time; of several troubles the first one's is told."""
        with ThreadPoolExecutor(len(members)) as pool:
            return dict(zip(members, pool.map(say_to, members), strict=True))

    def _say(self, member: str, place: str, message: Strict, kind: type[M]) -> M:
        """Say something to a member; whatever it refuses names it."""
        try:
            return say.decode(self.transport(place).exchange(member, say.encode(message)), kind)
        except PartyUnreachable:
            raise
        except errors.RoundAborted as error:
            told, spent, culprits = f"Party {member!r}: {error}", error.spent, error.culprits or (member,)
        except errors.MasqueradeError as error:
            told, spent, culprits = f"Party {member!r} refused: {error}", False, (member,)
        raise errors.RoundAborted(told, spent=spent, culprits=culprits)


def are_cells(counts: Any) -> bool:
    """Tell whether something that a party sent is a list of whole numbers."""
    return isinstance(counts, list) and all(type(cell) is int for cell in counts)


def no_tables_of(party: str) -> errors.RoundAborted:
    """Return that a party sent something else than tables."""
    return errors.RoundAborted(f"Party {party!r} sent no tables.", spent=True, culprits=(party,))
