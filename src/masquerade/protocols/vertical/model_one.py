"""Vertical parties without a miner (Model I): each learns its own nodes, from its own columns as they are.

Only what a party needs of others crosses, disguised by its owner; one disguise of a column serves everybody
who needs it, for parameters and for structures alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError
from masquerade.protocols.codec import check_session
from masquerade.protocols.transport import Transport
from masquerade.protocols.vertical.assembly import Progress, assemble
from masquerade.protocols.vertical.cross_parents import Structure, assembled, cross_parents, owner_of
from masquerade.protocols.vertical.fetch import Arrived, Giver, Room
from masquerade.protocols.vertical.join import seen_by
from masquerade.protocols.vertical.joint_policy import restricted
from masquerade.protocols.vertical.messages import Announce, Parameters
from masquerade.protocols.vertical.pseudonym_ranges import ROWS_AT_ONCE
from masquerade.protocols.vertical.site import Site
from masquerade.sources.engine import Engine
from masquerade.sources.records import Records


class LearningSite:
    """A site that learns: sees its own variables in clear and others' as their policies let them be seen.

    `policies` are the policies of the other parties, as agreed on; `room` limits what is taken of a party.
    """

    def __init__(self, own: Site, policies: Mapping[str, Policy], *, room: Room | None = None) -> None:
        self.site, self.policies, self._room = own, dict(policies), room
        self.sites = {own.name: own.policy.schema.names, **{p: q.schema.names for p, q in policies.items()}}
        owner_of(self.sites)

    def needed(self, structure: Structure | None) -> dict[str, tuple[str, ...]]:
        """Return what this party needs of each other one: cross parents, or all for learning a structure."""
        if structure is None:
            return {party: policy.schema.names for party, policy in self.policies.items()}
        crossing = cross_parents(structure, self.sites)
        return {giver: names for (giver, receiver), names in crossing.items() if receiver == self.site.name}

    def source(
        self,
        transport: Transport,
        structure: Structure | None = None,
        *,
        folder: str | Path | None = None,
        rows_at_once: int = ROWS_AT_ONCE,
        progress: Progress | None = None,
    ) -> Records | Engine:
        """Return a source of counts over own clear and foreign disguised columns, joined on pseudonyms.

        Variables disguised together cross together. Without a structure every foreign column is fetched, in
        the one disguise that its owner has drawn. Joined records, own columns in clear among them, stay in
        memory or go to a `folder` of this party, as a miner's do.
        """
        own = Own(self.site)
        needed = {
            party: (names, restricted(self.policies[party], names).id)
            for party, names in self.needed(structure).items()
        }
        session, name = self.site.session, self.site.name
        view = assemble(
            session,
            name,
            {name: own.policy.id, **{party: agreed for party, (_, agreed) in needed.items()}},
            lambda: [
                own,
                *(
                    Giver(transport, party, Announce(session, name, names), agreed, self._room)
                    for party, (names, agreed) in needed.items()
                ),
            ],
            folder=folder,
            rows_at_once=rows_at_once,
            progress=progress,
        )
        view.guarantee = seen_by(name, view.policy, own.policy.schema.names)
        return view


class Own:
    """A site's own cells, as they are."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.policy, self.shapes = site.policy.undisguised(), site.described().shapes

    def fetch(self, part: int, parts: int) -> list[Arrived]:
        """Return a part of them."""
        return self._site.clear(part, parts)


def shared_parameters(
    messages: Sequence[bytes], session: bytes, sites: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """Return what the parties learnt, node by node; a party speaks once, for its own nodes alone."""
    found: dict[str, dict[str, Any]] = {}
    for data in messages:
        message = Parameters.decode(data)
        check_session(message.session, session)
        if message.party not in sites or message.party in found:
            raise InputError(f"Party {message.party!r} is none of this session, or spoke twice.")
        values = message.values()
        foreign = sorted(set(values) - set(sites[message.party]))
        if foreign:
            raise InputError(f"Party {message.party!r} sent parameters of {', '.join(map(repr, foreign))}.")
        found[message.party] = values
    return assembled(found, sites)
