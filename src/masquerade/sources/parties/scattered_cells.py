"""Cells that lie anywhere, as one party sees them without a miner: its own as they are, others' as reports.

Everybody takes part of whom anybody knows something. A party that counts joins its own cells, in clear, with
what others report of the rest. Of a variable that several hold it has some people's values and other people's
reports, so people are told apart by which of the shared variables the party holds of them: a stratum has one
channel for every variable. A stratum of few people would show their values to whoever gets the counts; these
people's shared cells are taken as reports, too, in the one draw that others get.
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
    joined,
    restricted,
)
from masquerade.protocols.wire.session import Transport
from masquerade.sources.parties.own_tables import shared_by, view_of
from masquerade.sources.records import Records


class ScatteredCells:
    """What a party sees of everybody, stratum by stratum: `strata` are the shared variables it has in clear.

    `policies` are those of all parties, `crossing` the variables that cross, by giver and receiver. Strata of
    fewer than `least` people are taken as reports. `room` limits what is taken of a party.
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
                restricted(policies[giver], names).id,
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
        clear, reported = own.clear(0, 1), own.reported(restricted(own.policy, self._shared), 0, 1)
        everywhere = shared_by(party, policies)
        everybody = _together([block.tags for block in (*clear, *foreign)])
        held = self._held(everybody, clear, least)
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
            codes = joined(view.observed, blocks)
            self.strata[names] = Records(codes, view)
            if self.strata[names].n != len(people):
                raise InputError("Some people lack a cell: every record needs every cell.")

    def _held(self, everybody: Tags, clear: Sequence[ReceivedCells], least: int) -> NDArray[np.int64]:
        """Return of everybody which shared variables the party holds, a bit for each."""
        held = np.zeros(len(everybody), np.int64)
        for place, name in enumerate(self._shared):
            for block in clear:
                if name in block.codes:
                    held[places_among(everybody, block.tags)] |= 1 << place
        codes, sizes = np.unique(held, return_counts=True)
        for code, size in sorted(zip(codes.tolist(), sizes.tolist(), strict=True), key=lambda it: it[1]):
            none = np.count_nonzero(held == 0)
            if size < least or 0 < none < least:  # with few, more are taken as reports until they are enough
                held[held == code] = 0
        return held


def _together(tags: Sequence[Tags]) -> Tags:
    """Return all pseudonyms of several blocks, each once, in order."""
    every = np.concatenate([np.empty((0, PSEUDONYM_SIZE), np.uint8), *tags])
    return np.unique(every, axis=0)


def _some(blocks: Sequence[ReceivedCells], names: Sequence[str], people: Tags) -> list[ReceivedCells]:
    """Return what blocks say about some people's variables."""
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
        raise InputError(f"Cells of {next(iter(block.codes))!r} came twice for one record.")
