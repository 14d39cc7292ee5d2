"""Disguised columns of the same people, joined by a miner who cannot tell whose rows they are (Model II)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from masquerade.channels.policy import Policy
from masquerade.channels.policy.privacy import guarantee_of
from masquerade.protocols.linkage.pseudonyms import SORTED_AT_ONCE
from masquerade.protocols.vertical.disguised_cells import (
    CellRequest,
    DescriptionRequest,
    RepeatedCells,
    Site,
    restricted,
)
from masquerade.protocols.wire.codec import tag_of
from masquerade.services.parties.kinds.base import (
    Convener,
    Outflow,
    Partition,
    Player,
    Role,
    SessionKind,
    Step,
)
from masquerade.services.parties.linkage import PSEUDONYMS, Linkage
from masquerade.sources.parties.joined import Miner

if TYPE_CHECKING:
    from masquerade.services.parties.coordinator import Coordinator
    from masquerade.services.parties.local_data import RecordBlock
    from masquerade.services.parties.participant import Participant
    from masquerade.services.parties.session import SessionSpec


PARTS_AHEAD = 1  # a party draws and sends the next part while one is joined


def cells_of(spec: SessionSpec, policy: Policy) -> list[Outflow]:
    """Return what cells give away: every group its own bound; pseudonyms, unless linking showed them."""
    reports = [
        Outflow(item.kind, item.variables, item.gamma, policy.id) for item in guarantee_of(policy).disclosures
    ]
    compared = spec.linking == "intersection" and spec.kind.same_records
    return reports if compared else [*reports, PSEUDONYMS]


def _sent(part: Participant, message: CellRequest) -> list[Outflow]:
    policy = part.data.policy
    return cells_of(part.spec, restricted(policy, message.names or policy.schema.names))


class CellsRole(Role):
    """A party sends reports of its cells under the pseudonyms of this session, drawn once and for all."""

    name = "cells"
    fresh = False
    steps = (Step(CellRequest, outflows=_sent),)

    def player(self, part: Participant) -> Player:
        """Return the site that releases reports of linked records."""
        return self.site(part)

    def site(self, part: Participant) -> Site:
        """Return a site; its draws come from the memo, and what was linked names its records."""
        memo = part.node.kept_memo().saved(part.data.memo_id)
        held = [
            RepeatedCells(block.codes, found.tags, found.rows, partial(part.data.draws, memo, block))
            for block, found in self.blocks(part)
        ]
        return Site(part.node.name, part.data.policy, held, part.epoch)

    def blocks(self, part: Participant) -> Sequence[tuple[RecordBlock, Linkage]]:
        """Return the records that are held and which of them take part, block by block."""
        block, found = part.data.whole, part.linked()
        if block.rows <= SORTED_AT_ONCE:
            return [(block, found)]
        # in the order of pseudonyms a part is one piece of every column
        return [(block.in_order(found.rows, part.scratch), found.in_place(part.scratch))]

    def check(self, part: Participant, peer: str, message: bytes) -> None:
        """Let cells go to whoever asks for them."""
        if cells_asked(message).recipient != peer:
            raise part.spec.refused("cells go to whoever asks for them, and to nobody else")


def cells_asked(message: bytes) -> DescriptionRequest | CellRequest:
    """Return the question for cells that a message is."""
    described = tag_of(message) == DescriptionRequest.TAG
    return DescriptionRequest.decode(message) if described else CellRequest.decode(message)


class WithMiner(SessionKind):
    """The convener, who is no party, gets the reports of all columns side by side."""

    name = "vertical-with-miner"
    why = "the miner sees everybody's disguised columns side by side"
    partition = Partition.COLUMNS
    convener = Convener.OUTSIDER
    roles = (CellsRole(),)

    def exact(self, policy: Policy) -> bool:  # noqa: ARG002
        """Tell that results are about reports, which are seen record by record."""
        return False

    def sends(self, spec: SessionSpec, party: str, policy: Policy) -> Iterator[tuple[str, Outflow]]:  # noqa: ARG002
        """Yield reports of all that a party brings."""
        for item in cells_of(spec, policy) if len(policy.schema) else ():
            yield spec.convener, item

    def model(self, run: Coordinator) -> dict[str, Any]:
        """Learn from joined reports."""
        run.note("joining disguised records")
        agreed = {party: policy.id for party, policy in run.joint.policies.items()}
        miner = Miner(agreed, run.epoch, name=run.spec.convener, room=run.room)
        source = miner.records(
            run.transport("cells"),
            run.parts(),
            parts_ahead=PARTS_AHEAD,
            progress=lambda done, parts: run.note(f"joining disguised records: part {done} of {parts}"),
        )
        return run.learnt_from(source)
