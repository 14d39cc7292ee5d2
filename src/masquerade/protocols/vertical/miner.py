"""A miner (Model II, and arbitrary partitions): joins what parties disguised, and learns from that alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from masquerade.core.errors import InputError
from masquerade.protocols.transport import Transport
from masquerade.protocols.vertical.assembly import Progress, assemble
from masquerade.protocols.vertical.fetch import Giver, Room
from masquerade.protocols.vertical.join import seen_by
from masquerade.protocols.vertical.messages import Announce
from masquerade.protocols.vertical.pseudonym_ranges import ROWS_AT_ONCE
from masquerade.sources.engine import Engine
from masquerade.sources.records import Records


class Miner:
    """Sees every variable as its party's policy lets it be seen, and the records only joined.

    `policies` are the ids of the policies agreed on, by party. In a vertical partition parties hold different
    variables of the same records; in an arbitrary one any cell may be at any party, and a variable at two
    parties goes through the same channel at both. `room` limits what is taken of a party.
    """

    def __init__(
        self, policies: Mapping[str, str], session: bytes, *, name: str = "miner", room: Room | None = None
    ) -> None:
        if not policies:
            raise InputError("A miner needs at least one party.")
        self.policies, self.session, self.name = dict(policies), session, name
        self._room = room
        self._joined = False

    def records(
        self,
        transport: Transport,
        folder: str | Path | None = None,
        *,
        rows_at_once: int = ROWS_AT_ONCE,
        progress: Progress | None = None,
    ) -> Records | Engine:
        """Fetch all cells, join them on their pseudonyms, forget these, and return a source of counts.

        Parties are asked for about `rows_at_once` records at a time, and memory is taken for these alone
        where a `folder` is given: joined records go there, part by part, as Parquet. A session that was
        begun in the folder goes on with the parts that are missing; one that is complete there asks nobody.
        `progress` is told how many of how many parts are there.
        """
        if folder is None and self._joined:
            raise InputError(
                "The records of this session were joined already, and their pseudonyms are gone."
            )
        source = assemble(
            self.session,
            self.name,
            self.policies,
            lambda: [
                Giver(transport, party, Announce(self.session, self.name, ()), agreed, self._room)
                for party, agreed in self.policies.items()
            ],
            folder=folder,
            rows_at_once=rows_at_once,
            progress=progress,
        )
        source.guarantee = seen_by(self.name, source.policy)
        self._joined = True
        return source
