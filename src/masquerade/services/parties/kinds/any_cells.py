"""Any cell at any party: disguised, and joined by a miner over everybody that anybody knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from masquerade.protocols.vertical.disguised_cells import combined
from masquerade.services.parties.kinds.base import Partition
from masquerade.services.parties.kinds.with_miner import CellsRole, WithMiner
from masquerade.services.parties.linkage import Linkage

if TYPE_CHECKING:
    from masquerade.core.schema import Schema
    from masquerade.services.parties.local_data import RecordBlock
    from masquerade.services.parties.participant import Participant
    from masquerade.services.parties.session import JointSchema, SessionSpec


class ScatteredCellsRole(CellsRole):
    """A party sends the cells of each of its files, which have other people and other variables."""

    def blocks(self, part: Participant) -> Sequence[tuple[RecordBlock, Linkage]]:
        """Return every file with the pseudonyms of its people."""
        linkage = part.linked()
        by_place = np.empty_like(linkage.tags)
        by_place[linkage.rows] = linkage.tags
        return [
            (block, Linkage.of(None, by_place[places]))
            for block, places in zip(part.data.blocks, part.data.places_of_keys(), strict=True)
        ]


class AnyCells(WithMiner):
    """The convener, who is no party, gets the reports of all cells, joined."""

    name = "arbitrary-with-miner"
    why = "the miner sees everybody's disguised cells side by side"
    partition = Partition.CELLS
    roles = (ScatteredCellsRole(),)

    def schema(self, spec: SessionSpec, joint: JointSchema) -> Schema:  # noqa: ARG002
        """Return the variables of everybody, of which several may hold one."""
        return schema_of_cells(joint)


def schema_of_cells(joint: JointSchema) -> Schema:
    """Return the variables of everybody; one that several hold has the same channel with all of them."""
    return combined(list(joint.policies.values())).schema
