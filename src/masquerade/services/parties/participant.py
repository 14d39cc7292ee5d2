"""One session at one node: the roles it plays, made when they are needed and forgotten at the end."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.channels.privacy import guarantee_of
from masquerade.core.errors import InputError, RoundAborted
from masquerade.crypto.keys import SigningKey
from masquerade.disguising.memo import Memo
from masquerade.protocols.codec import SESSION_SIZE
from masquerade.protocols.linking.party import LinkingParty
from masquerade.protocols.linking.record_keys import keyed_pseudonyms
from masquerade.protocols.pooling.masked_sum import PoolingParty
from masquerade.protocols.products.helper import Helper
from masquerade.protocols.products.party import ProductParty
from masquerade.protocols.products.two_party import KeyOwner
from masquerade.protocols.projection.owner import ProjectionOwner
from masquerade.protocols.vertical.site import Held, Site
from masquerade.services.parties.joint_schema import JointSchema
from masquerade.services.parties.linkage import Linkage
from masquerade.services.parties.local_data import Cells, LocalData
from masquerade.services.parties.session import SessionSpec

Receive = Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True, eq=False)
class NodeIdentity:
    """Who a node is: its name, its identity, the identities of those it knows, where its memo lies."""

    name: str
    identity: SigningKey
    identities: Mapping[str, bytes]
    memo: Path

    def identities_of(self, names: tuple[str, ...]) -> dict[str, bytes]:
        """Return the identities of others; one that is not known is refused."""
        missing = [name for name in names if name != self.name and name not in self.identities]
        if missing:
            raise InputError(f"No identity is known for {', '.join(map(repr, missing))}.")
        return {name: self.identities[name] for name in names if name != self.name}


class Participant:
    """The roles of a party in one session and one epoch.

    Keys of roles live in memory only: a node that was restarted begins them anew, in a new epoch. What was
    linked survives, and reports come from the memo, so that nothing is disguised twice.
    """

    def __init__(
        self,
        me: NodeIdentity,
        spec: SessionSpec,
        epoch: bytes,
        holding: LocalData,
        *,
        linking_key: bytes | None = None,
        linked: Linkage | None = None,
        most_rows: int,
        most_cells: int,
        earlier_pools: Sequence[frozenset[str]] = (),
    ) -> None:
        self.me, self.spec, self.epoch, self.holding = me, spec, epoch, holding
        self._linking_key, self.linked, self._most = linking_key, linked, most_rows
        self._most_cells, self._earlier = most_cells, earlier_pools
        self.arrangement: JointSchema | None = None
        self.parents: Mapping[str, Any] | None = None
        self._roles: dict[str, Receive] = {}
        self._linker: LinkingParty | None = None
        self._site: Site | None = None
        self._people: tuple[Linkage | None, str] | None = None

    @property
    def records(self) -> int:
        """Return how many records take part."""
        return self.holding.rows if self.linked is None else len(self.linked.rows)

    @property
    def draw(self) -> str:
        """Return what names the draws behind reports: another secret in the memo means other draws."""
        return f"{Memo.open(self.me.memo).id}:{self.holding.memo_id}"

    @property
    def exact(self) -> bool:
        """Tell whether results are exact, so that two of them differ by what is true of whom they differ in.

        A miner sees reports record by record; reports are drawn once, and a difference shows nothing new.
        """
        if self.spec.protocol == "pooled-counts":
            return any(item.gamma is None for item in guarantee_of(self.holding.policy).disclosures)
        return not self.spec.protocol.endswith("with-miner")

    def people(self, linked: Linkage | None) -> str:
        """Return the digest of who takes part: of all here, or of those that were linked."""
        if self._people is None or self._people[0] is not linked:
            self._people = (linked, self.holding.people(None if linked is None else linked.rows))
        return self._people[1]

    def role(self, name: str) -> Receive:
        """Return what answers the messages of a role."""
        if name not in self._roles:
            self._roles[name] = self._made(name)
        return self._roles[name]

    def _made(self, name: str) -> Receive:
        protocol, me = self.spec.protocol, self.me
        if name == "linking" and self.spec.linking == "intersection":
            self._linker = LinkingParty(
                me.name,
                self.holding.keys(),
                most=self._most,
                roster=self.spec.parties,
                identity=me.identity,
                peers=me.identities_of(self.spec.parties),
            )
            return self._linker.receive
        if name == "pooling" and protocol == "pooled-counts":
            source = self.holding.source(Memo.open(me.memo))
            peers = me.identities_of(self.spec.parties)
            return PoolingParty(
                me.name,
                source,
                me.identity,
                peers,
                roster=self.spec.parties,
                earlier=self._earlier,
                most_cells=self._most_cells,
            ).receive
        if name == "cells" and protocol.startswith(("vertical", "arbitrary")):
            return self.site.receive
        if name == "products" and protocol == "revealed-vertical-counts" and self.spec.helper is not None:
            return ProductParty(
                me.name,
                self.aligned().codes,
                me.identity,
                me.identities_of(self.spec.members),
                schema=self._arranged().schema,
                owners=self._arranged().owners,
                helper=self.spec.helper,
                alignment=self._linked().alignment,
            ).receive
        if name == "paillier" and protocol == "revealed-counts-of-two":
            return KeyOwner(
                me.name,
                self.aligned().codes,
                schema=self._arranged().schema,
                owners=self._arranged().owners,
                alignment=self._linked().alignment,
            ).receive
        if name == "projection" and protocol == "projection":
            return ProjectionOwner(
                me.name,
                self.aligned().codes,
                me.identity,
                me.identities_of(self.spec.parties),
                schema=self._arranged().schema,
                owners=self._arranged().owners,
                receiver=self.spec.convener,
                alignment=self._linked().alignment,
            ).receive
        raise InputError(f"There is no role {name!r} in a session of {protocol}.")

    def settle_links(self) -> Linkage:
        """Fix which records take part and under which pseudonyms, and let go of the masks of linking."""
        if self.linked is None:
            self.linked = self.found_links()
        if self._linker is not None:
            self._linker.forget()
            self._linker = None
            self._roles.pop("linking", None)
        return self.linked

    def found_links(self) -> Linkage:
        """Return which records linking came to."""
        if self.spec.linking == "keyed":
            if self._linking_key is None:
                raise InputError("This party has no linking key: data.linking_key in the settings.")
            keys = self.holding.keys()
            # of this text and this epoch: pseudonyms of two sessions have nothing to do with each other
            session = hashlib.sha256(bytes.fromhex(self.spec.digest) + self.epoch).digest()[:SESSION_SIZE]
            tags = keyed_pseudonyms(keys, self._linking_key, session, most=self._most)
            return Linkage.from_tags(np.arange(len(keys)), tags)
        if self._linker is None:
            raise RoundAborted("The records of this session are not linked here.", spent=False)
        if self.spec.protocol == "arbitrary-with-miner":
            pseudonyms = self._linker.pseudonyms
            return Linkage.of(np.arange(len(pseudonyms)), pseudonyms)
        return Linkage.of(self._linker.rows, self._linker.common)

    def _linked(self) -> Linkage:
        if self.linked is None:
            raise RoundAborted("The records of this session are not linked here.", spent=False)
        return self.linked

    def _arranged(self) -> JointSchema:
        if self.arrangement is None:
            raise RoundAborted("The variables of this session are not arranged here.", spent=False)
        return self.arrangement

    def aligned(self) -> Cells:
        """Return the linked records, in the order that all parties share."""
        return self.holding.whole.take(self._linked().rows)

    @property
    def site(self) -> Site:
        """Return the site that releases reports of linked records."""
        if self._site is None:
            memo = Memo.open(self.me.memo).saved(self.holding.memo_id)
            held = [self._held(memo, block) for block in self._blocks()]
            self._site = Site(self.me.name, self.holding.policy, held, self.epoch)
        return self._site

    def _blocks(self) -> list[tuple[Cells, NDArray[np.uint8]]]:
        """Return the records that take part with their pseudonyms, block by block."""
        linked = self._linked()
        if self.spec.protocol != "arbitrary-with-miner":
            return [(self.aligned(), linked.tags)]
        places = {key: place for place, key in enumerate(self.holding.keys())}
        by_place = np.empty_like(linked.tags)
        by_place[linked.rows] = linked.tags
        return [
            (block, by_place[[places[key] for key in (block.keys.to_pylist() if block.keys else [])]])
            for block in self.holding.blocks
        ]

    def _held(self, memo: Memo, block: tuple[Cells, NDArray[np.uint8]]) -> Held:
        cells, tags = block
        return Held(cells.codes, tags, self.holding.draws(memo, cells))

    def renew(self) -> None:
        """Let go of keys, so that roles begin anew; linked records and drawn reports stay."""
        self._roles.clear()
        self.arrangement = self.parents = None

    def forget(self) -> None:
        """Destroy keys and pseudonyms."""
        if self._linker is not None:
            self._linker.forget()
        self._roles.clear()
        self.linked = self._linker = self._site = None


class HelperParticipant:
    """A node that deals randomness for scalar products and holds no records."""

    def __init__(self, me: NodeIdentity, spec: SessionSpec, epoch: bytes) -> None:
        self.me, self.spec, self.epoch = me, spec, epoch
        self._receive: Receive | None = None

    def arrange(self, arrangement: JointSchema, records: int, alignment: bytes) -> None:
        """Learn what products are about: variables, who holds them, and how many records there are."""
        self._receive = Helper(
            self.me.name,
            self.me.identity,
            self.me.identities_of(self.spec.parties),
            schema=arrangement.schema,
            owners=arrangement.owners,
            n=records,
            alignment=alignment,
        ).receive

    def role(self, name: str) -> Receive:
        """Return what answers the messages of a role."""
        if name != "products" or self._receive is None:
            raise RoundAborted(f"There is no role {name!r} here, or it is not arranged yet.", spent=False)
        return self._receive

    def renew(self) -> None:
        """Let go of keys; what products are about is told anew."""
        self._receive = None

    def forget(self) -> None:
        """Destroy keys."""
        self._receive = None
