"""Arbitrary partition without a miner: a party's view, with its own cells in clear and all others as reports.

All people with a cell at some party are included. A counting party joins its own clear cells with the reports
of other parties. If several parties own a variable, the counting party has clear values of some people and
reports of others. So people are divided into strata by the shared variables that it holds for them, and a
stratum has one channel per variable. A small stratum would reveal its people's values to the recipient of the
counts, so their shared cells are also taken as reports, in the one draw that other parties receive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError
from masquerade.protocols.linkage.pseudonyms import (
    PSEUDONYM_SIZE,
    ROWS_AT_ONCE,
    Tags,
    parts_for,
    places_among,
)
from masquerade.protocols.vertical.disguised_cells import (
    CellSupplier,
    DescriptionRequest,
    ReceivedCells,
    Room,
    Site,
    join_blocks,
    restrict_to_variables,
)
from masquerade.protocols.wire.session import Transport
from masquerade.sources.parties.own_tables import shared_by, view_of
from masquerade.sources.records import Records


class ScatteredCells:
    """A party's view of all people, stratum by stratum.

    `strata` has the records of each stratum, by the shared variables that the party has in clear. `policies`
    are the policies of all parties, and `crossing` the variables that are sent, by sender and receiver.
    Strata of fewer than `least` people are taken as reports. `room` limits the data accepted from a party.
    """

    def __init__(
        self,
        own: Site,
        policies: Mapping[str, Policy],
        crossing: Mapping[tuple[str, str], Sequence[str]],
        transport: Transport,
        *,
        least: int,
        room: Room | None = None,
    ) -> None:
        party = own.name
        asked = [
            CellSupplier(
                transport,
                giver,
                DescriptionRequest(own.session, party, tuple(names)),
                restrict_to_variables(policies[giver], names).id,
                room,
            )
            for (giver, to), names in crossing.items()
            if to == party
        ]
        shapes = [*own.clear_shapes(), *(shape for one in asked for shape in one.shapes)]
        parts = parts_for(sum(shape.rows for shape in shapes), ROWS_AT_ONCE)
        foreign = [block for part in range(parts) for one in asked for block in one.fetch(part, parts)]
        crossed = {name for (_, to), names in crossing.items() if to == party for name in names}
        self._shared = tuple(name for name in shared_by(party, policies) if name in crossed)
        clear, reported = (
            own.clear(0, 1),
            own.draw_cells(restrict_to_variables(own.policy, self._shared), 0, 1),
        )
        everywhere = shared_by(party, policies)
        everybody = _together([block.tags for block in (*clear, *foreign)])
        held = self._held_variables(everybody, clear, least)
        self.strata: dict[tuple[str, ...], Records] = {}
        for code in np.unique(held).tolist():
            people = everybody[held == code]
            names = tuple(name for place, name in enumerate(self._shared) if code >> place & 1)
            view = view_of(party, policies, crossing, names)
            plain = [name for name in own.policy.schema if name not in everywhere or name in names]
            _refuse_doubles(foreign, names, people)
            blocks = [
                *_some(clear, plain, people),
                *_some(reported, [name for name in self._shared if name not in names], people),
                *_some(foreign, [name for name in view.observed if name not in plain], people),
            ]
            codes = join_blocks(view.observed, blocks)
            self.strata[names] = Records(codes, view)
            if self.strata[names].n != len(people):
                raise InputError("A cell is missing for some people: every record needs every cell.")

    def _held_variables(
        self, everybody: Tags, clear: Sequence[ReceivedCells], least: int
    ) -> NDArray[np.int64]:
        """Return the shared variables that the party holds of each person, as bits."""
        held = np.zeros(len(everybody), np.int64)
        for place, name in enumerate(self._shared):
            for block in clear:
                if name in block.codes:
                    held[places_among(everybody, block.tags)] |= 1 << place
        codes, sizes = np.unique(held, return_counts=True)
        for code, size in sorted(zip(codes.tolist(), sizes.tolist(), strict=True), key=lambda it: it[1]):
            none = np.count_nonzero(held == 0)
            # small strata join the people without clear cells, until these are enough
            if size < least or 0 < none < least:
                held[held == code] = 0
        return held


def _together(tags: Sequence[Tags]) -> Tags:
    """Return all pseudonyms of several blocks, each once, in order."""
    every = np.concatenate([np.empty((0, PSEUDONYM_SIZE), np.uint8), *tags])
    return np.unique(every, axis=0)


def _some(blocks: Sequence[ReceivedCells], names: Sequence[str], people: Tags) -> list[ReceivedCells]:
    """Return the variables of some people from blocks."""
    found = []
    for block in blocks:
        columns = {name: codes for name, codes in block.codes.items() if name in names}
        rows = np.flatnonzero(places_among(people, block.tags) >= 0)
        if columns and len(rows):
            taken = {name: codes[rows] for name, codes in columns.items()}
            found.append(ReceivedCells(taken, block.tags[rows]))
    return found


def _refuse_doubles(foreign: Sequence[ReceivedCells], names: Sequence[str], people: Tags) -> None:
    for block in _some(foreign, names, people):
        raise InputError(f"Cells of {next(iter(block.codes))!r} were sent twice for one record.")
