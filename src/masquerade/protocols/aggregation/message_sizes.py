"""How many bytes a round takes a user at the most: derived from the sizes of its messages, field by field."""

from __future__ import annotations

from typing import NamedTuple

from masquerade.crypto.keys import SIGNATURE_SIZE
from masquerade.protocols.aggregation.batch import Batch
from masquerade.protocols.aggregation.committee import HASH_SIZE
from masquerade.protocols.aggregation.graph import complete_graph, harary_graph
from masquerade.protocols.aggregation.masks import ring
from masquerade.protocols.aggregation.messages import HEAD_SIZE
from masquerade.protocols.aggregation.parameters import Parameters
from masquerade.protocols.aggregation.roster import NONCE_SIZE
from masquerade.protocols.aggregation.round_state import ADVERT_SIZE, ROUND_SIZE, SEALED_SIZE
from masquerade.protocols.aggregation.seed_shares import SHARE_SIZE
from masquerade.protocols.aggregation.survivor_tree import leaves_near, shown_size


class Traffic(NamedTuple):
    """Bytes that a user sends and receives."""

    sent: int
    received: int


def most_traffic(parameters: Parameters, batch: Batch) -> Traffic:
    """Return the most that a user sends and receives in the first round of a session, with one drawing.

    That is a user whose neighbours are all there, who is on the committee that draws the graph, and whose
    neighbours lie across leaves of the list of survivors. Whoever is called to a committee again, since a
    member of the first was silent, sends and receives `drawing_traffic` again.
    """
    drawing = drawing_traffic(parameters)
    slots, neighbours = -(-parameters.neighbours // 8), parameters.neighbours
    drawn = 0 if parameters.complete else 1 + parameters.committee * (NONCE_SIZE + SIGNATURE_SIZE)
    received = [
        NONCE_SIZE + ROUND_SIZE + len(batch.encode()),
        drawn + slots + neighbours * (ADVERT_SIZE + SIGNATURE_SIZE),
        slots + neighbours * SEALED_SIZE,
        most_shown(parameters),
    ]
    sent = [
        ADVERT_SIZE,
        HASH_SIZE + slots + neighbours * SEALED_SIZE,
        slots + batch.length * ring(parameters.users).itemsize,
        slots + neighbours * SHARE_SIZE,
    ]
    if parameters.server == "malicious":
        received.append(slots + neighbours * SIGNATURE_SIZE)
        sent.append(0)
    return Traffic(
        drawing.sent + sum(HEAD_SIZE + body + SIGNATURE_SIZE for body in sent),
        drawing.received + sum(HEAD_SIZE + body for body in received),
    )


def drawing_traffic(parameters: Parameters) -> Traffic:
    """Return what it takes to be on a committee: nothing where everybody is everybody's neighbour."""
    if parameters.complete:
        return Traffic(0, 0)
    sent = (HEAD_SIZE + 1 + HASH_SIZE + SIGNATURE_SIZE) + (HEAD_SIZE + 1 + NONCE_SIZE + SIGNATURE_SIZE)
    return Traffic(sent, (HEAD_SIZE + 1) + (HEAD_SIZE + 1 + parameters.committee * HASH_SIZE))


def most_shown(parameters: Parameters) -> int:
    """Return the size of the largest stretch of the list of survivors that a user is shown."""
    users = parameters.users
    if parameters.complete:
        return shown_size(leaves_near(complete_graph(users), 0), users)
    graph = harary_graph(users, parameters.neighbours, bytes(32))
    stretches = {tuple(leaves_near(graph, place)) for place in range(users)}
    return max(shown_size(leaves, users) for leaves in stretches)
