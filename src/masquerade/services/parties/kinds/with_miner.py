"""Session type with a miner that joins disguised columns of the same people (the papers' Model II)."""

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
    restrict_to_variables,
)
from masquerade.protocols.wire.codec import tag_of
from masquerade.services.parties.kinds.base import (
    Convener,
    Outflow,
    Partition,
    Player,
    Role,
    RoleStep,
    SessionKind,
)
from masquerade.services.parties.linkage import PSEUDONYMS, Linkage
from masquerade.sources.parties.joined import JoiningMiner

if TYPE_CHECKING:
    from masquerade.services.parties.coordinator import Coordinator
    from masquerade.services.parties.local_data import RecordBlock
    from masquerade.services.parties.participant import SessionParticipant
    from masquerade.services.parties.session import SessionSpec


PARTS_AHEAD = 1  # parties draw and send the next part while the miner joins the current one


def cell_outflows(spec: SessionSpec, policy: Policy) -> list[Outflow]:
    """Return the outflows of cells: γ per group of variables, and pseudonyms unless linking revealed them."""
    reports = [
        Outflow(item.kind, item.variables, item.gamma, policy.id) for item in guarantee_of(policy).disclosures
    ]
    compared = spec.linking == "intersection" and spec.kind.same_records
    return reports if compared else [*reports, PSEUDONYMS]


def _requested_outflows(part: SessionParticipant, message: CellRequest) -> list[Outflow]:
    """Return the outflows of the cells that a message requests."""
    policy = part.data.policy
    return cell_outflows(part.spec, restrict_to_variables(policy, message.names or policy.schema.names))


class CellsRole(Role):
    """A party sends reports of its cells, each drawn only once, under the pseudonyms of this session."""

    name = "cells"
    fresh = False
    steps = (RoleStep(CellRequest, outflows=_requested_outflows),)

    def player(self, part: SessionParticipant) -> Player:
        """Return the site that releases reports of linked records."""
        return self.site(part)

    def site(self, part: SessionParticipant) -> Site:
        """Return the site of this party, with draws from the memo and pseudonyms from the linkage."""
        memo = part.node.kept_memo().save(part.data.memo_id)
        held = [
            RepeatedCells(block.codes, found.tags, found.rows, partial(part.data.draws, memo, block))
            for block, found in self.blocks(part)
        ]
        return Site(part.node.name, part.data.policy, held, part.epoch)

    def blocks(self, part: SessionParticipant) -> Sequence[tuple[RecordBlock, Linkage]]:
        """Return the records of this party and their linkage, block by block."""
        block, found = part.data.single_block, part.require_linkage()
        if block.rows <= SORTED_AT_ONCE:
            return [(block, found)]
        # sorted by pseudonym, each part that the miner requests is one contiguous piece of every column
        return [(block.in_order(found.rows, part.scratch), found.in_place(part.scratch))]

    def check(self, part: SessionParticipant, peer: str, message: bytes) -> None:
        """Raise QueryRefused unless the recipient named in the message is its sender."""
        if decode_cell_request(message).recipient != peer:
            raise part.spec.refusal("cells go only to the peer that requests them")


def decode_cell_request(message: bytes) -> DescriptionRequest | CellRequest:
    """Return the request for cells, or for their description."""
    described = tag_of(message) == DescriptionRequest.TAG
    return DescriptionRequest.decode(message) if described else CellRequest.decode(message)


class WithMiner(SessionKind):
    """The convener, a miner outside the parties, receives the reports of all columns side by side."""

    name = "vertical-with-miner"
    why = "the miner sees the disguised columns of all parties side by side"
    partition = Partition.COLUMNS
    convener = Convener.OUTSIDER
    roles = (CellsRole(),)

    def exact(self, policy: Policy) -> bool:  # noqa: ARG002
        """Return False: results are about reports, which the miner sees record by record."""
        return False

    def sends(self, spec: SessionSpec, party: str, policy: Policy) -> Iterator[tuple[str, Outflow]]:  # noqa: ARG002
        """Yield reports of all variables that a party brings."""
        for item in cell_outflows(spec, policy) if len(policy.schema) else ():
            yield spec.convener, item

    def model(self, run: Coordinator) -> dict[str, Any]:
        """Learn the model from the joined reports."""
        run.note("joining disguised records")
        agreed = {party: policy.id for party, policy in run.joint.policies.items()}
        miner = JoiningMiner(agreed, run.epoch, name=run.spec.convener, room=run.room)
        source = miner.records(
            run.transport("cells"),
            run.parts(),
            parts_ahead=PARTS_AHEAD,
            progress=lambda done, parts: run.note(f"joining disguised records: part {done} of {parts}"),
        )
        return run.learn_from(source)
