"""Session type for arbitrarily partitioned data: a miner joins the disguised cells of all parties."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from masquerade.protocols.vertical.disguised_cells import combine_policies
from masquerade.services.parties.kinds.base import Partition
from masquerade.services.parties.kinds.with_miner import CellsRole, WithMiner
from masquerade.services.parties.linkage import Linkage

if TYPE_CHECKING:
    from masquerade.core.schema import Schema
    from masquerade.services.parties.local_data import RecordBlock
    from masquerade.services.parties.participant import SessionParticipant
    from masquerade.services.parties.session import JointSchema, SessionSpec


class ScatteredCellsRole(CellsRole):
    """A party sends the cells of each of its files, which have different people and variables."""

    def blocks(self, part: SessionParticipant) -> Sequence[tuple[RecordBlock, Linkage]]:
        """Return each file's records with the pseudonyms of its people."""
        linkage = part.require_linkage()
        by_place = np.empty_like(linkage.tags)
        by_place[linkage.rows] = linkage.tags
        return [
            (block, Linkage.of(None, by_place[places]))
            for block, places in zip(part.data.blocks, part.data.places_of_keys(), strict=True)
        ]


class AnyCells(WithMiner):
    """The convener, a miner outside the parties, receives the reports of all cells and joins them."""

    name = "arbitrary-with-miner"
    why = "the miner sees the disguised cells of all parties side by side"
    partition = Partition.CELLS
    roles = (ScatteredCellsRole(),)

    def schema(self, spec: SessionSpec, joint: JointSchema) -> Schema:  # noqa: ARG002
        """Return the variables of all parties; several parties may hold cells of the same variable."""
        return schema_of_cells(joint)


def schema_of_cells(joint: JointSchema) -> Schema:
    """Return the variables of all parties; raise PolicyError if two parties disagree on a channel."""
    return combine_policies(list(joint.policies.values())).schema
