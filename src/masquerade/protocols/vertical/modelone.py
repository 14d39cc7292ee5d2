"""Vertical parties without a miner (Model I): each learns its own nodes, from its own columns as they are.

Only what a party needs of others crosses, disguised by its owner; one disguise of a column serves everybody
who needs it, for parameters and for structures alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError
from masquerade.protocols.transport import Transport
from masquerade.protocols.vertical.combining import combined, restricted
from masquerade.protocols.vertical.crossing import Structure, assembled, cross_parents, owner_of
from masquerade.protocols.vertical.joining import Arrived, gather, joined, seen_by
from masquerade.protocols.vertical.messages import Parameters, Request
from masquerade.protocols.vertical.site import Site
from masquerade.protocols.wire import check_session
from masquerade.sources.records import Records


class LearningSite:
    """A site that learns: sees its own variables in clear and others' as their policies let them be seen.

    `policies` are the policies of the other parties, as agreed on.
    """

    def __init__(self, own: Site, policies: Mapping[str, Policy]) -> None:
        self.site, self.policies = own, dict(policies)
        self.sites = {own.name: own.policy.schema.names, **{p: q.schema.names for p, q in policies.items()}}
        owner_of(self.sites)

    def needed(self, structure: Structure | None) -> dict[str, tuple[str, ...]]:
        """Return what this party needs of each other one: cross parents, or all for learning a structure."""
        if structure is None:
            return {party: policy.schema.names for party, policy in self.policies.items()}
        crossing = cross_parents(structure, self.sites)
        return {giver: names for (giver, receiver), names in crossing.items() if receiver == self.site.name}

    def source(self, transport: Transport, structure: Structure | None = None) -> Records:
        """Return a source of counts over own clear and foreign disguised columns, joined on pseudonyms.

        Variables disguised together cross together. Without a structure every foreign column is fetched, in
        the one disguise that its owner has drawn.
        """
        own = self.site.policy.undisguised()
        blocks = [Arrived(cells.codes, cells.tags) for cells in self.site.held]
        policies = [own]
        for party, names in self.needed(structure).items():
            agreed = restricted(self.policies[party], names)
            request = Request(self.site.session, self.site.name, names, 0)
            found = gather(transport, party, request, agreed.id)
            policies.append(found.policy)
            blocks += found.blocks
        policy = combined(policies)
        view = Records(joined(policy.schema, blocks), policy)
        view.guarantee = seen_by(self.site.name, policy, own.schema.names)
        return view


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
