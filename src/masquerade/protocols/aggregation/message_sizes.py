"""How many bytes a round takes a user at the most: the sizes of its largest messages."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from masquerade.crypto.keys import KEY_SIZE, SIGNATURE_SIZE
from masquerade.crypto.seed_shares import SHARE_SIZE
from masquerade.protocols.aggregation import messages as wire
from masquerade.protocols.aggregation.agreement import Batch
from masquerade.protocols.aggregation.masks import SEALED_SIZE, ring
from masquerade.protocols.aggregation.neighbour_graph import complete_graph, harary_graph
from masquerade.protocols.aggregation.parameters import Parameters
from masquerade.protocols.aggregation.survivor_tree import Stretch, SurvivorTree, leaves_near

ROUND, SIGNATURE, HASH, NONCE = bytes(wire.TAG_SIZE), bytes(SIGNATURE_SIZE), bytes(32), bytes(wire.NONCE_SIZE)


class Traffic(NamedTuple):
    """Bytes that a user sends and receives."""

    sent: int
    received: int


def most_traffic(parameters: Parameters, batch: Batch) -> Traffic:
    """Return the most that a user sends and receives in the first round of a session, with one drawing.

    That is a user whose neighbours are all there, who is a witness and on the committee that draws the graph,
    and whose neighbours lie across leaves of the list of survivors. Whoever is called to a committee again,
    since a member of the first was silent, sends and receives `drawing_traffic` again.
    """
    k, members = parameters.neighbours, 0 if parameters.complete else parameters.committee
    sizes = wire.MessageSizes(k, members, parameters.witnesses, ring(parameters.users), batch.length)
    signed = [SIGNATURE if i < parameters.quorum else None for i in range(parameters.witnesses)]
    sealed, vector = (bytes(SEALED_SIZE),) * k, np.zeros(batch.length, dtype=sizes.width)
    adverts = (bytes(wire.ADVERT_SIZE + SIGNATURE_SIZE),) * k
    received = [
        wire.Announcement(ROUND, NONCE, 1, batch.questions).encode(batch),
        wire.Neighbours(ROUND, 0, bytes(members * wire.SIGNED_NONCE_SIZE), adverts).encode(sizes),
        wire.Delivery(ROUND, sealed).encode(sizes),
        wire.Survivors(ROUND, longest_stretch(parameters)).encode(sizes),
    ]
    sent = [
        wire.Advert(ROUND, SIGNATURE, bytes(KEY_SIZE), bytes(KEY_SIZE)).encode(sizes),
        wire.Shares(ROUND, SIGNATURE, HASH, sealed).encode(sizes),
        wire.Vote(ROUND, SIGNATURE, np.ones(k, dtype=bool), vector).encode(sizes),
        wire.Unmasking(ROUND, SIGNATURE, (bytes(SHARE_SIZE),) * k).encode(sizes),
    ]
    if parameters.server == "malicious":
        received.append(wire.Endorsements(ROUND, tuple(signed)).encode(sizes))
        sent.append(wire.Endorsement(ROUND, SIGNATURE).encode(sizes))
    drawing = drawing_traffic(members)
    return Traffic(drawing.sent + sum(map(len, sent)), drawing.received + sum(map(len, received)))


def drawing_traffic(members: int) -> Traffic:
    """Return what it takes to be on a committee: nothing where everybody is everybody's neighbour."""
    if not members:
        return Traffic(0, 0)
    sizes = wire.MessageSizes(0, members, 0, ring(1))
    sent = (wire.Commitment(ROUND, SIGNATURE, 0, HASH), wire.Reveal(ROUND, SIGNATURE, 0, NONCE))
    received = (wire.Call(ROUND, 0), wire.Commitments(ROUND, 0, (HASH,) * members))
    return Traffic(
        sum(len(message.encode(sizes)) for message in sent),
        sum(len(message.encode(sizes)) for message in received),
    )


def longest_stretch(parameters: Parameters) -> Stretch:
    """Return the largest stretch of the list of survivors that a user is shown."""
    users = parameters.users
    tree = SurvivorTree(np.ones(users, dtype=bool))
    if parameters.complete:
        return tree.shown(leaves_near(complete_graph(users), 0))
    graph = harary_graph(users, parameters.neighbours, bytes(32))
    near = {tuple(leaves_near(graph, place)) for place in range(users)}
    return max(map(tree.shown, near), key=lambda one: sum(map(len, one.leaves + one.nodes)))
