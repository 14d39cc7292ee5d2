"""The most bytes that a user sends and receives in a round: the sizes of its largest messages."""

from __future__ import annotations

from typing import NamedTuple

from masquerade.crypto.keys import KEY_SIZE, SIGNATURE_SIZE
from masquerade.crypto.shamir import SHARE_SIZE
from masquerade.protocols.secure_aggregation import messages as wire
from masquerade.protocols.secure_aggregation.agreement import Parameters, QuestionBatch, RoundContext
from masquerade.protocols.secure_aggregation.circle import (
    SurvivorTree,
    complete_graph,
    harary_graph,
    leaves_near,
)
from masquerade.protocols.secure_aggregation.masks import SEALED_SIZE


class Traffic(NamedTuple):
    """Bytes that a user sends and receives."""

    sent: int
    received: int


def most_traffic(parameters: Parameters, batch: QuestionBatch) -> Traffic:
    """Return the most bytes that a user sends and receives in the first round of a session, with one drawing.

    This is the traffic of a user with all neighbours present, who is a witness and a member of the committee
    that draws the graph, and whose neighbours are in different leaves of the list of survivors. If a member
    of the first committee is silent and the user is called again, that part is repeated.
    """
    k, members = parameters.neighbours, 0 if parameters.complete else parameters.committee
    width = parameters.width
    context = RoundContext(b"", 0, b"", k, members, parameters.witnesses, width, batch.length)
    tag, key, signature = bytes(wire.TAG_SIZE), bytes(KEY_SIZE), bytes(SIGNATURE_SIZE)
    nonce, digest, sealed = bytes(wire.NONCE_SIZE), bytes(32), (bytes(SEALED_SIZE),) * k
    adverts = (bytes(wire.ADVERT_SIZE + SIGNATURE_SIZE),) * k
    received: list[wire.RoundMessage] = [
        wire.Neighbours(tag, 0, bytes(members * wire.SIGNED_NONCE_SIZE), adverts),
        wire.Delivery(tag, sealed),
        wire.Survivors(tag, _longest_stretch(parameters)),
    ]
    sent: list[wire.RoundMessage] = [
        wire.AggregationAdvert(tag, signature, key, key),
        wire.Shares(tag, signature, digest, sealed),
        wire.Vote(tag, signature, [True] * k, bytes(width * batch.length)),
        wire.Unmasking(tag, signature, (bytes(SHARE_SIZE),) * k),
    ]
    if parameters.server == "malicious":
        signed = [signature if i < parameters.quorum else None for i in range(parameters.witnesses)]
        received.append(wire.Endorsements(tag, tuple(signed)))
        sent.append(wire.Endorsement(tag, signature))
    if members:
        received += (wire.RoundCall(tag, 0), wire.Commitments(tag, 0, (digest,) * members))
        sent += (wire.Commitment(tag, signature, 0, digest), wire.Reveal(tag, signature, 0, nonce))
    announced = len(wire.Announcement(tag, nonce, 1, batch.questions).encode(batch))
    sizes = [sum(len(message.encode(context)) for message in some) for some in (sent, received)]
    return Traffic(sizes[0], announced + sizes[1])


def _longest_stretch(parameters: Parameters) -> wire.Stretch:
    users = parameters.users
    tree = SurvivorTree([True] * users)
    if parameters.complete:
        return tree.show_leaves(leaves_near(complete_graph(users), 0))
    graph = harary_graph(users, parameters.neighbours, bytes(32))
    near = {tuple(leaves_near(graph, place)) for place in range(users)}
    return max(map(tree.show_leaves, near), key=lambda one: sum(map(len, one.leaves + one.nodes)))
