"""Three hospitals that pool counts, in one process, every message as bytes."""

import masquerade as mq
from masquerade.crypto.keys import SigningKey
from masquerade.data.example_networks import eleven_nodes, eleven_nodes_policy
from masquerade.protocols.secure_sum import MaskedSum
from masquerade.protocols.wire.session import LocalTransport
from masquerade.sources.parties.pooled import PooledTally, pooling_party

NAMES = ("east", "north", "west")
SCHEMA = eleven_nodes().schema
CLEAR = mq.Policy.clear(SCHEMA)
FRAME = eleven_nodes().sample(900, seed=11)
POLICY = eleven_nodes_policy()
QUERIES = [
    mq.Query(),
    mq.Query(by="A"),
    mq.Query(by=("L", "B")),
    mq.Query(where={"A": 1}),
    mq.Query(by=("D", "E"), where={"B": 2, "S": 1}),
]


def shares(frame=FRAME, policy=None, parts=3):
    """Return the records of each party as a source."""
    pieces = [frame.iloc[i::parts] for i in range(parts)]
    return [mq.tally(p, schema=SCHEMA) if policy is None else mq.tally(p, policy) for p in pieces]


def members(sources, names=NAMES, **options):
    """Return the parties of a pool, each knowing the others' identities."""
    identities = {name: SigningKey() for name in names}
    public = {name: identity.public for name, identity in identities.items()}
    return {
        name: pooling_party(name, source, identities[name], public, **options)
        for name, source in zip(names, sources, strict=True)
    }


def pool_of(parties, policy=CLEAR, transport=None):
    """Return the sum over parties."""
    carried = transport or LocalTransport({name: party.receive for name, party in parties.items()})
    return MaskedSum(tuple(parties), carried, policy)


def pooled(sources, policy=CLEAR, **options):
    """Return a source over the pooled records."""
    return PooledTally(pool_of(members(sources, **options), policy), policy)
