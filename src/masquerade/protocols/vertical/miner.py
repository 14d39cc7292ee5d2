"""A miner (Model II, and arbitrary partitions): joins what parties disguised, and learns from that alone."""

from __future__ import annotations

from collections.abc import Mapping

from masquerade.core.errors import InputError
from masquerade.protocols.transport import Transport
from masquerade.protocols.vertical.combining import combined
from masquerade.protocols.vertical.joining import gather, joined, seen_by
from masquerade.protocols.vertical.messages import Request
from masquerade.sources.records import Records


class Miner:
    """Sees every variable as its party's policy lets it be seen, and the records only joined.

    `policies` are the ids of the policies agreed on, by party. In a vertical partition parties hold different
    variables of the same records; in an arbitrary one any cell may be at any party, and a variable at two
    parties goes through the same channel at both.
    """

    def __init__(self, policies: Mapping[str, str], session: bytes, *, name: str = "miner") -> None:
        if not policies:
            raise InputError("A miner needs at least one party.")
        self.policies, self.session, self.name = dict(policies), session, name
        self._joined = False

    def records(self, transport: Transport) -> Records:
        """Fetch all cells, join them on their pseudonyms, forget these, and return a source of counts."""
        if self._joined:
            raise InputError(
                "The records of this session were joined already, and their pseudonyms are gone."
            )
        gathered = [
            gather(transport, party, Request(self.session, self.name, (), 0), agreed)
            for party, agreed in self.policies.items()
        ]
        policy = combined([one.policy for one in gathered])
        codes = joined(policy.schema, [block for one in gathered for block in one.blocks])
        source = Records(codes, policy)
        source.guarantee = seen_by(self.name, policy)
        self._joined = True
        return source
